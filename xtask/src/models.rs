//! `cargo xtask models`: the store's own modules under loom, which explores thread interleavings.

use crate::run::{Outcome, cargo, run, target};

/// Runs every test of the store whose name holds `model`, built with `--cfg loom`.
pub fn models() -> Outcome {
    let mut command = cargo(&["test", "--release", "--package", "larder-store", "--lib", "model"]);
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target().join("models"));
    // Optimised, but not as long as a release: exploring is what takes the time.
    command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_PANIC", "unwind");
    command
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
    run(command)
}
