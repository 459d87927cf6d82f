//! `cargo xtask attack`: the released server under requests that try to take more memory, work or time than one client may.

use crate::run::{Outcome, cargo, run, target};

/// Builds the server as it is released, and attacks it; `arguments` are names of attacks, none for all.
///
/// # Errors
/// When a bound did not hold.
pub fn attack(arguments: &[String]) -> Outcome {
    run(cargo(&["build", "--release", "--package", "larder"]))?;
    let mut command = cargo(&["run", "--quiet", "--package", "larder-trials", "--bin", "attack", "--"]);
    command.args(arguments).env("LARDER_BIN", target().join("release/larder"));
    run(command)
}
