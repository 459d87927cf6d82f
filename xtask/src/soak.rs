//! `cargo xtask soak`: the released server in real time, under everything that clients, peers and administrators do.

use crate::run::{Outcome, cargo, run, target};

/// Builds the server as it is released, and soaks it; `arguments` are the soak's own (`--minutes N`, `--seed S`,
/// `--phase NAME`, `--attackers`).
///
/// # Errors
/// A reply, a figure or a latency was wrong.
pub fn soak(arguments: &[String]) -> Outcome {
    run(cargo(&["build", "--release", "--package", "larder"]))?;
    let mut command = cargo(&["run", "--quiet", "--package", "larder-trials", "--bin", "soak", "--"]);
    command.args(arguments).env("LARDER_BIN", target().join("release/larder"));
    run(command)
}
