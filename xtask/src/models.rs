//! `cargo xtask models`: the store's own modules under loom, which explores thread interleavings.

use crate::run::{Outcome, cargo, run};

/// Runs every test of the store whose name holds `model`, built with the feature `loom`.
pub fn models() -> Outcome {
    run(cargo(&["test", "--package", "larder-store", "--features", "loom", "--lib", "model"]))
}
