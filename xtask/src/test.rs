//! `cargo xtask test`: all stages, each with its time; goes on after a failure, fails at the end.

use crate::limit::within;
use crate::run::{Outcome, cargo, run};
use crate::{clients, conformance, fuzz, lab, models, sanitize, schedules, tidy};
use std::time::{Duration, Instant};

/// Seconds each fuzzer runs beyond its corpus, and its seed: what passed once is not found wrong by chance.
const FUZZ: [&str; 2] = ["8", "1"];

/// The longest that a stage may take, and all of them: one that hangs is told with what it was doing.
const STAGE_MAX: Duration = Duration::from_secs(25 * 60);
const ALL_MAX: Duration = Duration::from_secs(84 * 60);

type Stage = (&'static str, fn() -> Outcome);

const STAGES: &[Stage] = &[
    ("format", || run(cargo(&["fmt", "--all", "--", "--check"]))),
    ("tidy", || tidy::tidy(false)),
    ("clippy", || run(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))),
    ("documentation", || {
        let mut command = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"]);
        command.env("RUSTDOCFLAGS", "-D warnings");
        run(command)
    }),
    ("tests", || run(cargo(&["test", "--workspace", "--no-fail-fast"]))),
    ("models", models::models),
    ("schedules", || schedules::schedules(&[])),
    ("clients", || clients::clients(&[])),
    ("conformance", || conformance::conformance(&[])),
    ("lab", lab::lab),
    ("sanitize", sanitize::sanitize),
    ("fuzz", || fuzz::fuzz(&FUZZ.map(str::to_owned))),
];

/// What is worth a few minutes after each change: no servers are started, nothing is explored at length.
const QUICK: &[Stage] = &[
    ("format", || run(cargo(&["fmt", "--all", "--", "--check"]))),
    ("tidy", || tidy::tidy(false)),
    ("clippy", || run(cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))),
    ("unit tests", || run(cargo(&["test", "--workspace", "--lib", "--bins", "--no-fail-fast"]))),
    ("fast tests", || run(cargo(&[&["test", "--no-fail-fast"], FAST].concat()))),
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

/// Runs all stages, or with `--quick` those that take a few minutes.
///
/// # Errors
/// When one of them fails; all are run.
pub fn test(arguments: &[String]) -> Outcome {
    let stages = match arguments {
        [] => STAGES,
        [quick] if quick == "--quick" => QUICK,
        _ => return Err("usage: cargo xtask test [--quick]".to_owned()),
    };
    let mut results: Vec<(&str, Duration, Outcome)> = Vec::new();
    let began = Instant::now();
    for (name, stage) in stages {
        println!("\n== {name}");
        let started = Instant::now();
        let outcome = within(STAGE_MAX.min(ALL_MAX.saturating_sub(began.elapsed())), *stage);
        if let Err(error) = &outcome {
            println!("{name} failed: {error}");
        }
        results.push((name, started.elapsed(), outcome));
    }
    println!("\n== stages");
    for (name, took, outcome) in &results {
        let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
        println!("{name:<14} {:>7.1} s  {verdict}", took.as_secs_f64());
    }
    let failed: Vec<&str> = results.iter().filter(|(_, _, o)| o.is_err()).map(|(name, _, _)| *name).collect();
    for (name, _, outcome) in &results {
        if let Err(error) = outcome {
            println!("\n{name}: {error}");
        }
    }
    println!("stages: {} passed, {} failed", results.len() - failed.len(), failed.len());
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}
