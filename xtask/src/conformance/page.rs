//! The page for operators in a browser that is not ours: Chromium without a window, driven by `crates/larder/tests/all/in_browser.rs`.

use super::namespace::Namespace;
use super::suites::succeeded;
use super::{Counts, Program};
use crate::install::debian;
use crate::run::{Outcome, cargo};

/// The suite. Its tests start servers themselves, on ports that are free.
pub fn suite(_: &Namespace, _: &Program) -> Outcome<Counts> {
    debian(&[("chromium", "chromium")])?;
    let tests = cargo(&[
        "test",
        "--quiet",
        "--package",
        "larder",
        "--test",
        "all",
        "in_browser::",
        "--",
        "--ignored",
        "--test-threads=1",
    ]);
    let output = succeeded(tests)?;
    let passed = output
        .lines()
        .find_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse().ok());
    passed.map(|passed| Counts { passed, skipped: 0 }).ok_or_else(|| format!("nothing was tried:\n{output}"))
}
