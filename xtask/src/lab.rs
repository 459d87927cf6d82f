//! The lab's tests that need other people's programs: servers to compare with, a browser for reports, a parser of metrics.

use crate::install;
use crate::programs::{self, Tests};
use crate::run::{Outcome, cargo};
use crate::test::EVERYTHING;

/// Folders of the packages that have such tests.
pub const PACKAGES: [&str; 2] = ["lab", "larder"];

/// Programs that they need, and Debian's names for the packages.
const NEEDED: &[(&str, &str)] = &[
    ("memcached", "memcached"),
    ("redis-server", "redis-server"),
    ("chromium", "chromium"),
    ("promtool", "prometheus"),
];

/// Installs the programs and runs the tests.
pub fn lab() -> Outcome {
    install::debian(NEEDED)?;
    // One by one: two measurements at once would disturb each other. Clients and the page have stages of their own.
    let skipped = ["--skip", "lab_matrix::", "--skip", "lab_clients::", "--skip", "in_browser::"];
    let tests = [&["--ignored", "--test-threads=1"], &skipped[..]].concat();
    let runs = |package: &str| PACKAGES.contains(&package);
    programs::run_tests(cargo, Tests { build: EVERYTHING, runs, arguments: &tests, lanes: 1 }).map(drop)
}
