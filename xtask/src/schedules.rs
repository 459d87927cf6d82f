//! `cargo xtask schedules`: the store's own code, and sessions over it, under the seeded scheduler
//! (`crates/store/src/schedule.rs`).

use crate::programs::{self, Tests};
use crate::run::{Outcome, cargo};
use crate::test::WITHOUT;

/// Arguments of `cargo test`, for the faults' suite too. They name the whole workspace, as for the other tests: fewer packages
/// would have other features, and be built again.
pub const SCHEDULES: &[&str] = &[
    "--workspace",
    WITHOUT,
    "--features=larder-commands/schedule",
    // A turn is a few instructions if the compiler sees the whole store, and many calls if it does not: so schedules run in less
    // than half the time.
    "--config=profile.dev.package.larder-store.codegen-units=1",
    // Sessions do little between two turns.
    "--config=profile.dev.package.larder-commands.opt-level=0",
    "--config=profile.dev.package.larder-testkit.opt-level=0",
    "--test=schedules",
    "--test=session_schedules",
];

/// Plays the schedules of every scenario whose name holds one of `names`, or of all.
pub fn schedules(names: &[String]) -> Outcome {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let cargo = |arguments: &[&str]| {
        let mut command = cargo(arguments);
        // Schedules print stacks themselves.
        command.env("RUST_BACKTRACE", "0");
        command
    };
    let lanes = programs::lanes_of_cores();
    programs::run_tests(cargo, Tests { build: SCHEDULES, runs: |_| true, arguments: &names, lanes }).map(drop)
}
