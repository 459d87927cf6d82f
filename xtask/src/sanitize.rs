//! `cargo xtask sanitize`: store and session tests under AddressSanitizer, with free chunks poisoned.
//!
//! Sanitizers need unstable flags: the known nightly where it is installed, else the stable compiler with unstable flags allowed.
//! It is never skipped. Why not ThreadSanitizer: docs/decisions/0003-sanitizers.md.

use crate::install::has_nightly;
use crate::programs::{self, Tests};
use crate::run::{Outcome, cargo, cargo_front, locked, target};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The tests of the crates that hold or reach unsafe code.
const TESTS: &[&str] = &[
    "--lib",
    "--tests",
    "--target",
    TARGET,
    "--package=larder-store",
    "--package=larder-commands",
    "--package=larder-session",
];

/// Runs them.
pub fn sanitize() -> Outcome {
    let lanes = programs::lanes_of_cores();
    programs::run_tests(under_asan, Tests { build: TESTS, runs: |_| true, arguments: &[], lanes }).map(drop)
}

/// cargo that builds and runs with AddressSanitizer.
fn under_asan(arguments: &[&str]) -> Command {
    let mut command = unstable(arguments);
    command.env("RUSTFLAGS", "-Zsanitizer=address --cfg larder_asan -Cforce-frame-pointers=yes");
    command.env("CARGO_TARGET_DIR", target().join("asan"));
    // Reserved address space is not a leak; statics that live for ever are not either.
    command.env("ASAN_OPTIONS", "detect_leaks=0:allow_user_poisoning=1");
    command
}

/// cargo that accepts unstable compiler flags.
fn unstable(arguments: &[&str]) -> Command {
    if has_nightly() {
        cargo_front(&[&["+nightly"][..], &locked(arguments)].concat())
    } else {
        let mut command = cargo(arguments);
        command.env("RUSTC_BOOTSTRAP", "1");
        command
    }
}
