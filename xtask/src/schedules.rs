//! `cargo xtask schedules`: the store's own code, and sessions over it, under the seeded scheduler
//! (`crates/store/src/schedule.rs`).

use crate::programs::{self, Tests};
use crate::run::{Outcome, cargo};
use crate::test::WITHOUT;

/// What follows `cargo test`, for the faults' suite too. Of the workspace, whose packages are built for the other tests: the
/// same of fewer packages would have other features.
pub const SCHEDULES: &[&str] = &[
    "--workspace",
    WITHOUT,
    "--features=larder-commands/schedule",
    // A turn is a few instructions where the compiler sees the whole store, and as many calls where it does not: schedules run
    // in less than half the time.
    "--config=profile.dev.package.larder-store.codegen-units=1",
    // What sessions do between two turns is the lesser part.
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
        // What a schedule shows of stacks it writes itself.
        command.env("RUST_BACKTRACE", "0");
        command
    };
    let lanes = programs::lanes_of_cores();
    programs::run_tests(cargo, Tests { build: SCHEDULES, runs: |_| true, arguments: &names, lanes }).map(drop)
}
