//! `cargo xtask test`: stages, each with its time; the task goes on after a failure and fails at the end.
//!
//! The gate, without an option, says the same on every machine at any load: nothing in it judges time, resident memory,
//! other programs or a network. `--all` is the gate and everything else. `--quick` is for everyday work. A test that is
//! not in the gate is marked `#[ignore = "kind: reason"]`, and docs/testing.md lists it.

use crate::hang::unless_it_hangs;
use crate::machine::Busy;
use crate::run::{Outcome, cargo, root, run, target};
use crate::{clients, conformance, fuzz, lab, models, sanitize, schedules, tidy};
use std::process::Command;
use std::time::{Duration, Instant};

/// Seconds each fuzzer runs beyond its corpus, and its seed: the inputs come in the same order each time.
const FUZZ: [&str; 2] = ["8", "1"];

const USAGE: &str = "usage: cargo xtask test [--quick | --all] [STAGE…]";

type Stage = (&'static str, fn() -> Outcome);

const STYLE: &[Stage] = &[
    ("format", || run(cargo(&["fmt", "--all", "--", "--check"]))),
    ("tidy", || tidy::tidy(false)),
    ("clippy", || run(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))),
];

/// What beside [`STYLE`] stands in the gate.
const GATE: &[Stage] = &[
    ("documentation", || {
        let mut command = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"]);
        command.env("RUSTDOCFLAGS", "-D warnings");
        run(command)
    }),
    ("tests", || run(tests(&["--workspace"]))),
    ("models", models::models),
    ("schedules", || schedules::schedules(&[])),
];

/// What depends on time, cores, memory of the system or other people's programs.
const MORE: &[Stage] = &[
    ("timed", || {
        // One after the other: a measurement beside another is none. Those of the lab run in its own stage.
        let packages = ["--workspace", "--exclude", "larder", "--exclude", "larder-lab"];
        run(tests(&[&packages[..], &["--", "--ignored", "--test-threads=1"]].concat()))
    }),
    ("clients", || clients::clients(&[])),
    ("conformance", || conformance::conformance(&[])),
    ("lab", lab::lab),
    ("sanitize", sanitize::sanitize),
    ("fuzz", || fuzz::fuzz(&FUZZ.map(str::to_owned))),
];

/// What beside [`STYLE`] is worth a few minutes after each change: nothing is explored at length.
const QUICK: &[Stage] = &[
    ("unit tests", || run(tests(&["--workspace", "--lib", "--bins"]))),
    ("fast tests", || run(tests(FAST))),
];

/// Tests beside the units that take seconds.
const FAST: &[&str] = &[
    "--package=larder-store",
    "--package=larder-eventloop",
    "--package=larder-commands",
    "--package=larder-testkit",
    "--test=behaviour",
    "--test=compaction",
    "--test=databases",
    "--test=patching",
    "--test=usual_writes",
    "--test=watches",
    "--test=shrinking",
    "--test=drain_on_sim",
    "--test=held_on_sim",
    "--test=loop_on_sim",
    "--test=session",
    "--test=model",
    "--test=pipelines",
    "--test=transcripts",
    "--test=redis_model",
    "--test=store_model",
    "--test=resp_pieces",
    "--test=redis_transactions",
    "--test=redis_maxmemory",
    "--test=redis_pubsub",
    "--test=redis_monitor",
];

/// `cargo test`, whose tests start the program that the same build makes.
fn tests(arguments: &[&str]) -> Command {
    let mut command = cargo(&[&["test", "--no-fail-fast"], arguments].concat());
    if arguments.contains(&"--workspace") {
        command.env("LARDER_BIN", root().join(target()).join("debug/larder"));
    }
    command
}

/// Runs the gate, or with `--all` everything, or with `--quick` what takes a few minutes; of these the stages that are
/// named, if any are.
///
/// # Errors
/// When one of them fails; all are run.
pub fn test(arguments: &[String]) -> Outcome {
    let (options, names): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|word| word.starts_with('-'));
    let stages = match options[..] {
        [] => [STYLE, GATE].concat(),
        ["--all"] => [STYLE, GATE, MORE].concat(),
        ["--quick"] => [STYLE, QUICK].concat(),
        _ => return Err(USAGE.to_owned()),
    };
    if let Some(unknown) = names.iter().find(|name| stages.iter().all(|(known, _)| known != *name)) {
        let known: Vec<&str> = stages.iter().map(|(name, _)| *name).collect();
        return Err(format!("no stage {unknown}; there are {}\n{USAGE}", known.join(", ")));
    }
    let mut results: Vec<(&str, Duration, String, Outcome)> = Vec::new();
    for (name, stage) in stages.iter().filter(|(name, _)| names.is_empty() || names.contains(name)) {
        println!("\n== {name}");
        let (started, busy) = (Instant::now(), Busy::now());
        let outcome = unless_it_hangs(*stage);
        if let Err(error) = &outcome {
            println!("{name} failed: {error}");
        }
        results.push((name, started.elapsed(), busy.since(), outcome));
    }
    println!("\n== stages");
    for (name, took, busy, outcome) in &results {
        let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("{name:<14} {:>7.1} s  {verdict:<6}  {busy}", took.as_secs_f64());
    }
    let all: f64 = results.iter().map(|(_, took, _, _)| took.as_secs_f64()).sum();
    println!("{:<14} {all:>7.1} s", "all");
    for (name, _, _, outcome) in &results {
        if let Err(error) = outcome {
            println!("\n{name}: {error}");
        }
    }
    let failed: Vec<&str> =
        results.iter().filter(|(_, _, _, o)| o.is_err()).map(|(name, _, _, _)| *name).collect();
    println!("stages: {} passed, {} failed", results.len() - failed.len(), failed.len());
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}
