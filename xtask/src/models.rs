//! `cargo xtask models`: the store's own modules under loom, which explores thread interleavings.

use crate::programs::{self, Tests};
use crate::run::{Outcome, cargo};

/// Runs every test of the store whose name holds `model`, built with the feature `loom`.
pub fn models() -> Outcome {
    let build = &["--package", "larder-store", "--features", "loom", "--lib"];
    programs::run_tests(cargo, Tests { build, runs: |_| true, arguments: &["model"], lanes: 1 }).map(drop)
}
