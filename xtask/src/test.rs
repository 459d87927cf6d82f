//! `cargo xtask test`: stages, each with its time. The task goes on after a failure and fails at the end.
//!
//! The gate, without an option, has the same result on every machine at any load: its tests judge no times, no memory of the
//! process at one moment, no other programs and no network. `--all` is the gate and everything else. `--quick` is for everyday
//! work. A test outside of the gate is marked `#[ignore = "kind: reason"]`, and docs/testing.md lists it.

use crate::hang::unless_it_hangs;
use crate::install::debian;
use crate::machine::Busy;
use crate::programs::{self, Tests};
use crate::run::{Outcome, all_of, capture, cargo, command, keep_nothing_for_a_second_build, run};
use crate::{clients, conformance, fuzz, lab, models, sanitize, schedules, tidy};
use std::time::{Duration, Instant};

/// Each fuzzer tries a fixed number of inputs beyond its corpus, with this seed: the inputs are the same each time.
const FUZZ: [&str; 2] = ["--runs", "1"];

/// The package has no tests, and building criterion takes a minute.
pub const WITHOUT: &str = "--exclude=larder-benches";
/// Arguments of cargo for everything that has tests.
pub const EVERYTHING: &[&str] = &["--workspace", WITHOUT, "--lib", "--bins", "--tests"];

const USAGE: &str = "usage: cargo xtask test [--quick | --all] [STAGE…]";

/// Whether the compiler has the version that the workspace names. Another version has other lints: they are shown and do not
/// count, so that the gate's result stays the same.
fn are_lints_judged() -> Outcome<bool> {
    let (_, version) = capture(command("rustc", &["--version"]))?;
    let judged = version.starts_with(concat!("rustc ", env!("CARGO_PKG_RUST_VERSION"), "."));
    if !judged {
        println!("{}: its lints are shown and not judged", version.trim());
    }
    Ok(judged)
}

type Stage = (&'static str, fn() -> Outcome);

const STYLE: &[Stage] = &[
    ("format", || run(cargo(&["fmt", "--all", "--", "--check"]))),
    ("tidy", || tidy::tidy(false)),
    ("clippy", || {
        let judged: &[&str] = if are_lints_judged()? { &["--", "-D", "warnings"] } else { &[] };
        run(cargo(&[&["clippy", "--workspace", "--all-targets"], judged].concat()))
    }),
];

/// The stages of the gate besides [`STYLE`].
const GATE: &[Stage] = &[
    ("documentation", || {
        let mut command = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"]);
        if are_lints_judged()? {
            command.env("RUSTDOCFLAGS", "-D warnings");
        }
        run(command)
    }),
    ("tests", || {
        let programs = tests(EVERYTHING, &[]);
        let examples = || run(cargo(&["test", "--workspace", WITHOUT, "--doc", "--no-fail-fast"]));
        all_of([programs, programs::steady("examples", examples)])
    }),
    ("models", models::models),
    ("schedules", || schedules::schedules(&[])),
];

/// Stages that depend on time, cores, memory of the system or other people's programs.
const MORE: &[Stage] = &[
    ("timed", || {
        // A foreign client for TLS.
        debian(&[("openssl", "openssl")])?;
        // One by one: two measurements at once would disturb each other. The lab's tests run in a stage of their own.
        let arguments = &["--ignored", "--test-threads=1"];
        let runs = |package: &str| !lab::PACKAGES.contains(&package);
        programs::run_tests(cargo, Tests { build: EVERYTHING, runs, arguments, lanes: 1 }).map(drop)
    }),
    ("clients", || clients::clients(&[])),
    ("conformance", || conformance::conformance(&[])),
    ("lab", lab::lab),
    ("sanitize", sanitize::sanitize),
    ("fuzz", || fuzz::fuzz(&FUZZ.map(str::to_owned))),
];

/// The stages of `--quick` besides [`STYLE`]: a few minutes after each change, nothing explored at length.
const QUICK: &[Stage] = &[
    ("unit tests", || tests(&["--workspace", WITHOUT, "--lib", "--bins"], &[])),
    ("fast tests", || {
        let skipped: Vec<&str> = SLOW.iter().flat_map(|module| ["--skip", module]).collect();
        tests(FAST, &skipped)
    }),
];

/// Test programs, besides units, whose tests mostly take seconds.
const FAST: &[&str] = &[
    "--package=larder-store",
    "--package=larder-eventloop",
    "--package=larder-commands",
    "--package=larder-session",
    "--package=larder-testkit",
    "--test=all",
    "--test=session",
    "--test=on_sim",
];

/// Modules of these programs whose tests take longer, or start servers.
const SLOW: &[&str] = &[
    "attacks::",
    "bad_clients::",
    "canary::",
    "collections::",
    "expiry_first::",
    "held_replies::",
    "hostile::",
    "huge_values::",
    "impatient_worker::",
    "large_values::",
    "lengths::",
    "limits::",
    "linearizability::",
    "long_replies::",
    "mixed_sizes::",
    "moving::",
    "open_ports::",
    "other_workers::",
    "access_patterns::",
    "pauses::",
    "redis_blocking::",
    "redis_kill::",
    "redis_large::",
    "redis_scripts::",
    "redis_start::",
    "redis_threads::",
    "redis_true_limit::",
    "redis_watched::",
    "removals::",
    "shift::",
    "slabs::",
    "small_memory::",
    "stopping::",
    "storm::",
    "strangers::",
    "stress::",
    "stuck_worker::",
    "transactions::beside",
    "transactions::full",
    "transactions::watching",
    "transcripts_pass_over_sockets",
    "true_limit::",
    "two_workers::",
    "watch::lines_come_from_every_worker",
    "watch::who_reads_nothing_stops_nobody",
    "world::",
];

/// Runs test programs, as many at once as there are cores.
fn tests(build: &[&str], arguments: &[&str]) -> Outcome {
    let lanes = programs::lanes_of_cores();
    programs::run_tests(cargo, Tests { build, runs: |_| true, arguments, lanes }).map(drop)
}

/// Runs the gate, with `--all` everything, with `--quick` what takes a few minutes; or only the named stages of these.
///
/// # Errors
/// A stage fails; all of them run in any case.
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
    // What is built here is built once, except with `--quick`, which is for the next change, too.
    if options != ["--quick"] {
        keep_nothing_for_a_second_build();
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
