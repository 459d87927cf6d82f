//! The lab under attack: results that it once reported as valid and that were not. docs/lab.md describes each
//! one, and its test.

mod asked;
mod cores;
mod hits;
mod loads;
mod processes;
mod targets;
mod writes;

use std::path::Path;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_lab::results::Run;

use crate::outcome::{refused, said};

/// Tests that keep cores busy, or that measure, hold this lock.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A command for `larder lab` that writes `out.json` into `folder`.
fn lab(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.arg("lab").args(arguments).arg("--force").arg("--json").arg(folder.join("out.json"));
    command
}

/// Reads the `out.json` of a run.
fn written(folder: &Path, output: &Output) -> Run {
    Run::read_json(&folder.join("out.json")).unwrap_or_else(|error| panic!("{error}\n{}", said(output)))
}
