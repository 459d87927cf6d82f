//! The page for operators in Chromium without a window, driven by `crates/larder/tests/all/in_browser.rs`.

use super::namespace::Namespace;
use super::{Counts, Program};
use crate::install::debian;
use crate::programs::{self, Tests};
use crate::run::{Outcome, cargo};
use crate::test::EVERYTHING;

/// Runs the suite, whose tests start servers themselves, on free ports.
pub fn suite(_: &Namespace, _: &Program) -> Outcome<Counts> {
    debian(&[("chromium", "chromium")])?;
    let arguments = &["in_browser::", "--ignored", "--test-threads=1"];
    let runs = |package: &str| package == "larder";
    let passed = programs::run_tests(cargo, Tests { build: EVERYTHING, runs, arguments, lanes: 1 })?;
    Ok(Counts { passed, skipped: 0 })
}
