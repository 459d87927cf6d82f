//! The lab's tests that need other people's programs: servers to compare with, a browser for reports, a reader of metrics.

use crate::install;
use crate::programs::{self, Tests};
use crate::run::{Outcome, cargo};

/// What they need, as Debian calls it.
const PACKAGES: &[(&str, &str)] = &[
    ("memcached", "memcached"),
    ("redis-server", "redis-server"),
    ("chromium", "chromium"),
    ("promtool", "prometheus"),
];

/// Installs it and runs them.
pub fn lab() -> Outcome {
    install::debian(PACKAGES)?;
    // One after the other: a measurement beside another is none. Clients and the page have stages of their own.
    let skipped = ["--skip", "lab_matrix::", "--skip", "lab_clients::", "--skip", "in_browser::"];
    let tests = [&["--ignored", "--test-threads=1"], &skipped[..]].concat();
    let build = &["-p", "larder-lab", "-p", "larder", "--lib", "--bins", "--tests"];
    programs::run_tests(cargo, Tests { build, without: &[], arguments: &tests, lanes: 1 })
}
