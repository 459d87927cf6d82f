//! `cargo xtask fuzz [seconds [seed]]`: each fuzzer replays its committed corpus, then looks for more.

use crate::install::{cargo_fuzz, has_nightly};
use crate::run::{Outcome, capture, cargo_front, lanes, root, run, shown, target};
use std::path::Path;
use std::process::Command;

/// Without an argument a minute each.
const SECONDS: u64 = 60;
/// Words that fuzzers try.
const DICTIONARIES: [(&str, &str); 4] = [
    ("protocol_resp", "resp.dict"),
    ("session_resp", "resp.dict"),
    ("session_two_protocols", "resp.dict"),
    ("scripts", "scripts.dict"),
];
/// Fuzzers that run at once; each has one thread.
const LANES: usize = 2;

/// Runs all fuzzers.
pub fn fuzz(arguments: &[String]) -> Outcome {
    let seconds = match arguments.first() {
        Some(text) => text.parse().map_err(|_| format!("{text:?} is not a number of seconds"))?,
        None => SECONDS,
    };
    // With a seed the inputs come in the same order each time.
    let seed = arguments.get(1).map(|seed| format!("-seed={seed}"));
    let tools = cargo_fuzz()?;
    let (works, list) = capture(fuzzer(&tools, &["list"]))?;
    if !works {
        return Err(format!("cargo fuzz list: {list}"));
    }
    let names: Vec<&str> = list.split_whitespace().collect();
    if names.is_empty() {
        return Err("there is no fuzzer".into());
    }
    run(build()?)?;
    let one = |name: &str| -> Outcome {
        let seeds = root().join("fuzz/seeds").join(name);
        let found = target().join("fuzz-corpus").join(name);
        std::fs::create_dir_all(&found).map_err(|error| format!("{}: {error}", found.display()))?;
        let inputs = std::fs::read_dir(&seeds).map_or(0, Iterator::count);
        if inputs == 0 {
            return Err(format!("{name} has no committed corpus in {}", seeds.display()));
        }
        let (seeds, found) = (seeds.to_string_lossy().into_owned(), found.to_string_lossy().into_owned());
        quietly(fuzzer(&tools, &["run", name, &seeds, "--", "-runs=0"]))?;
        let time = format!("-max_total_time={seconds}");
        // Leaks are looked for above, with each input that is kept. To look after each new one takes up to six
        // parts in seven of the time.
        let new = ["-timeout=300", "-detect_leaks=0", "-print_final_stats=1"];
        let mut more = [&["run", name, &found, &seeds, "--", &time][..], &new].concat();
        more.extend(seed.as_deref());
        let words = DICTIONARIES.iter().find(|(fuzzer, _)| *fuzzer == name);
        let words = words.map(|(_, file)| root().join("fuzz/dictionaries").join(file));
        let words = words.map(|path| format!("-dict={}", path.to_string_lossy()));
        more.extend(words.as_deref());
        quietly(fuzzer(&tools, &more))
    };
    let failures = lanes(&names, LANES, |name| one(name).err().map(|error| format!("{name}: {error}")));
    println!("{} passed, {} failed", names.len() - failures.len(), failures.len());
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Builds all of them.
///
/// # Errors
/// When the tool that does so cannot be had.
pub fn build() -> Outcome<Command> {
    Ok(fuzzer(&cargo_fuzz()?, &["build"]))
}

/// Runs a fuzzer, whose thousands of lines matter only when it finds something.
fn quietly(command: Command) -> Outcome {
    println!("$ {}", shown(&command));
    let (worked, text) = capture(command)?;
    if !worked {
        return Err(text);
    }
    text.lines()
        .filter(|line| line.starts_with("stat::") || line.contains("DONE"))
        .for_each(|line| println!("{line}"));
    Ok(())
}

fn fuzzer(tools: &Path, arguments: &[&str]) -> Command {
    let nightly = has_nightly();
    let toolchain: &[&str] = if nightly { &["+nightly"] } else { &[] };
    let mut command = cargo_front(&[toolchain, &["fuzz"], arguments].concat());
    if !nightly {
        command.env("RUSTC_BOOTSTRAP", "1");
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(tools.to_owned()).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(paths).expect("a directory below target has no colon"));
    command.env("CARGO_TARGET_DIR", target().join("fuzz"));
    command
}
