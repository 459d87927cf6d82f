//! `cargo xtask fuzz [seconds [seed] | --runs [seed]]`: each fuzzer replays its committed corpus, then looks for more.
//!
//! It looks for a number of seconds, or with `--runs` for a number of inputs, which is the same on a slow machine: the stage of
//! `cargo xtask test --all` uses that.

use crate::install::{cargo_fuzz, has_nightly};
use crate::run::{Outcome, capture, cargo_front, lanes, root, run, shown, target};
use std::path::Path;
use std::process::Command;

/// Seconds of each fuzzer by default.
const SECONDS: u64 = 60;
/// Inputs that a fuzzer tries beyond its corpus. A fuzzer of a decoder takes a hundredth of the time for each, so it tries more.
const RUNS: usize = 10_000;
const RUNS_OF_DECODERS: usize = 200_000;
/// Beginnings of the names of decoders' fuzzers.
const DECODERS: [&str; 2] = ["protocol_", "http_request"];
const USAGE: &str = "usage: cargo xtask fuzz [seconds [seed] | --runs [seed]]";

/// How long a fuzzer looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Seconds(u64),
    /// A fixed number of inputs.
    Runs,
}

impl Length {
    fn of(argument: Option<&str>) -> Outcome<Length> {
        match argument {
            None => Ok(Length::Seconds(SECONDS)),
            Some("--runs") => Ok(Length::Runs),
            Some(text) => {
                let seconds =
                    text.parse().map_err(|_| format!("{text:?} is not a number of seconds\n{USAGE}"))?;
                Ok(Length::Seconds(seconds))
            }
        }
    }

    /// The option for libFuzzer, whose count includes the inputs of the corpus.
    fn option(self, name: &str, given: usize) -> String {
        match self {
            Length::Seconds(seconds) => format!("-max_total_time={seconds}"),
            Length::Runs if DECODERS.iter().any(|begin| name.starts_with(begin)) => {
                format!("-runs={}", given + RUNS_OF_DECODERS)
            }
            Length::Runs => format!("-runs={}", given + RUNS),
        }
    }
}
/// Dictionaries of fuzzers.
const DICTIONARIES: [(&str, &str); 5] = [
    ("acl_rules", "acl.dict"),
    ("protocol_resp", "resp.dict"),
    ("session_resp", "resp.dict"),
    ("session_two_protocols", "resp.dict"),
    ("scripts", "scripts.dict"),
];
/// How many fuzzers run at once; each has one thread.
const LANES: usize = 2;

/// Runs all fuzzers.
pub fn fuzz(arguments: &[String]) -> Outcome {
    let length = Length::of(arguments.first().map(String::as_str))?;
    // With a seed, the inputs come in the same order each time.
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
        let found =
            target().join("fuzz-corpus").join(if length == Length::Runs { "counted" } else { "" }).join(name);
        if length == Length::Runs {
            // Findings of an earlier run would change the course of this one.
            let _ = std::fs::remove_dir_all(&found);
        }
        std::fs::create_dir_all(&found).map_err(|error| format!("{}: {error}", found.display()))?;
        let inputs = std::fs::read_dir(&seeds).map_or(0, Iterator::count);
        if inputs == 0 {
            return Err(format!("{name} has no committed corpus in {}", seeds.display()));
        }
        let (seeds, found) = (seeds.to_string_lossy().into_owned(), found.to_string_lossy().into_owned());
        quietly(fuzzer(&tools, &["run", name, &seeds, "--", "-runs=0"]))?;
        let time = length.option(name, inputs);
        // The run above checks each kept input for leaks. Checking each new one takes up to six parts in seven of the time.
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

/// The command that builds all fuzzers.
///
/// # Errors
/// The tool that it needs cannot be installed.
pub fn build() -> Outcome<Command> {
    Ok(fuzzer(&cargo_fuzz()?, &["build"]))
}

/// Runs a fuzzer, whose thousands of lines are shown only if it finds something.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fuzzer_looks_for_seconds_or_for_a_count_beyond_its_corpus() {
        assert_eq!(Length::of(None), Ok(Length::Seconds(60)));
        assert_eq!(Length::of(Some("8")).map(|length| length.option("a", 3)), Ok("-max_total_time=8".into()));
        assert!(Length::of(Some("-1")).is_err());
        let runs = |name| Length::of(Some("--runs")).map(|length| length.option(name, 3));
        assert_eq!(runs("store_model"), Ok("-runs=10003".into()));
        assert_eq!(runs("protocol_resp"), Ok("-runs=200003".into()));
    }
}
