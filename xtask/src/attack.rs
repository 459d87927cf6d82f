//! `cargo xtask attack`: the released server under requests that try to take more memory, work or time than one client may.

use crate::run::{Outcome, cargo, command, lines_of, root, run, target};
use std::fs;
use std::process::Command;

/// The document that `--write` writes: the result of each attack.
pub const DOCUMENT: &str = "docs/internals/attacks.md";

/// Builds the server as it is released, and attacks it. `arguments` are names of attacks; none: all of them. `--write` alone
/// stages all of them and writes the document.
///
/// # Errors
/// A bound did not hold.
pub fn attack(arguments: &[String]) -> Outcome {
    let writes = arguments.iter().any(|argument| argument == "--write");
    if writes && arguments.len() > 1 {
        return Err("attack --write stages all attacks: it takes no names".to_owned());
    }
    // The attacks take minutes: commit and machine are noted before the build.
    let circumstances = if writes { Some(circumstances()?) } else { None };
    run(cargo(&["build", "--release", "--package", "larder"]))?;
    let mut command = cargo(&["run", "--quiet", "--package", "larder-trials", "--bin", "attack", "--"]);
    command.env("LARDER_BIN", target().join("release/larder"));
    if let Some(circumstances) = circumstances {
        return write(command, &circumstances);
    }
    command.args(arguments);
    run(command)
}

/// Runs the attacks, and writes the document.
fn write(mut attacks: Command, circumstances: &str) -> Outcome {
    attacks.arg("--markdown");
    // Lines are shown as they arrive: all attacks together take some minutes.
    let (status, lines) = lines_of(attacks)?;
    let text = document(&lines, circumstances).map_err(|error| format!("{error}: {status}"))?;
    fs::write(root().join(DOCUMENT), text).map_err(|error| format!("{DOCUMENT}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{DOCUMENT} tells of bounds that did not hold")) }
}

/// The date, the commit and the machine, as documents have them.
pub fn circumstances() -> Outcome<String> {
    let date = said(command("date", &["-u", "+%-d %B %Y"]))?;
    let describe = ["describe", "--always", "--exclude=*", "--dirty", "--abbrev=12"];
    let commit = said(command("git", &describe))?;
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (cpuinfo, meminfo) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    let machine = machine(&cpuinfo, &meminfo, &read("/proc/sys/kernel/osrelease"));
    Ok(format!("{date}, commit {commit}, {machine}"))
}

/// A program's output, without the space around it.
fn said(mut program: Command) -> Outcome<String> {
    let name = program.get_program().to_string_lossy().into_owned();
    let output = program.output().map_err(|error| format!("{name}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !text.is_empty() { Ok(text) } else { Err(format!("{name} says nothing")) }
}

/// The machine: cores, processor, memory and kernel, from the files of `/proc`.
fn machine(cpuinfo: &str, meminfo: &str, kernel: &str) -> String {
    let fields = |name: &'static str| {
        let values = cpuinfo.lines().filter_map(move |line| line.strip_prefix(name)?.split_once(':'));
        values.map(|(_, value)| value.trim())
    };
    let model = fields("model name").next().unwrap_or("a processor without a name");
    let cores = fields("processor").count();
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let memory_kb = total.and_then(|total| total.split_whitespace().next()?.parse().ok()).unwrap_or(0u64);
    let gib = (memory_kb + (1 << 19)) >> 20;
    format!("{cores} cores of {model}, {gib} GiB, Linux {}", kernel.trim())
}

/// The document, from what `attack --markdown` prints.
///
/// # Errors
/// The last line is missing: the attacks did not come to their end.
fn document(lines: &[String], circumstances: &str) -> Outcome<String> {
    let (table, rest): (Vec<&String>, Vec<&String>) = lines.iter().partition(|line| line.starts_with('|'));
    let end = rest.last().filter(|line| line.contains(" failed; "));
    let end = end.ok_or("attack --markdown did not come to its end")?;
    let table: String = table.into_iter().map(|row| format!("{row}\n")).collect();
    Ok(format!("{HEAD}`cargo xtask attack --write`, {circumstances}: {end}.\n\n{table}"))
}

const HEAD: &str = "\
# Attacks, and what came of them

<!-- Written by `cargo xtask attack --write`, which stages them all. -->

Each row is a request, or some, that are legal and try to take more memory, work or time than one client may. Each has a
server of its own, as it is released: `larder serve -m 64 -t 2`, unless its row in `crates/trials/src/bin/attack/rows.rs` says
otherwise.

| column | what it says |
|---|---|
| MB, bound MB | the most memory that the process had, and what it may have |
| canary ms | how long a connection of each worker that asks for a key every 10 ms waited at most |
| excess ms | the same beyond what a connection to a server of fixed replies waited meanwhile, on the same core |
| verdict | whether memory and canaries kept to their bounds, and all was answered as it should be |

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_says_when_and_where_and_has_the_table() {
        let end = "0 failed; a canary may wait 10 ms more";
        let lines = ["| attack | MB |", "| --- | --- |", "| bitfield | 71 |", end].map(str::to_owned);
        let text = document(&lines, "1 May 2026, commit abc, a machine").expect("it is whole");
        let said = format!(
            "\n\n`cargo xtask attack --write`, 1 May 2026, commit abc, a machine: {end}.\n\n\
             | attack | MB |\n| --- | --- |\n| bitfield | 71 |\n"
        );
        assert!(text.starts_with("# Attacks") && text.ends_with(&said), "{text}");
        assert!(document(&lines[..3], "").is_err(), "it was cut off");
    }

    #[test]
    fn a_machine_is_told_by_its_cores_its_memory_and_its_system() {
        let cpuinfo = "processor\t: 0\nmodel name\t: A 7\n\nprocessor\t: 1\nmodel name\t: A 7\n";
        let told = machine(cpuinfo, "MemTotal:       16384000 kB\nMemFree: 1 kB\n", "6.18.0\n");
        assert_eq!(told, "2 cores of A 7, 16 GiB, Linux 6.18.0");
        assert_eq!(machine("", "", ""), "0 cores of a processor without a name, 0 GiB, Linux ");
    }
}
