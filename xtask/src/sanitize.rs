//! `cargo xtask sanitize`: store and session tests under AddressSanitizer, with free chunks poisoned.
//!
//! Sanitizers are unstable flags: nightly where it is installed, else the stable compiler told to
//! allow them. Never skipped. Why not ThreadSanitizer: docs/decisions/0003-sanitizers.md.

use crate::install::has_nightly;
use crate::run::{Outcome, cargo, cargo_front, run, target};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs the tests of the crates that hold or reach unsafe code.
pub fn sanitize() -> Outcome {
    let arguments = ["--target", TARGET, "--package", "larder-store", "--package", "larder-commands"];
    let mut command =
        unstable(&[&["test", "--no-fail-fast", "--lib", "--tests"][..], &arguments[..]].concat());
    command.env("RUSTFLAGS", "-Zsanitizer=address --cfg larder_asan -Cforce-frame-pointers=yes");
    command.env("CARGO_TARGET_DIR", target().join("asan"));
    // Reserved address space is not a leak; statics that live for ever are not either.
    command.env("ASAN_OPTIONS", "detect_leaks=0:allow_user_poisoning=1");
    run(command)
}

/// cargo that accepts unstable compiler flags.
fn unstable(arguments: &[&str]) -> Command {
    if has_nightly() {
        cargo_front(&[&["+nightly"][..], arguments].concat())
    } else {
        let mut command = cargo(arguments);
        command.env("RUSTC_BOOTSTRAP", "1");
        command
    }
}
