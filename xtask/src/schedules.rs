//! `cargo xtask schedules`: the store's own code, and sessions over it, under the seeded scheduler
//! (`crates/store/src/schedule.rs`).

use crate::run::{Outcome, cargo, run, target};

/// Plays the schedules of every scenario whose name holds one of `names`, or of all.
pub fn schedules(names: &[String]) -> Outcome {
    let mut arguments = vec!["test", "--release", "--package", "larder-store", "--test", "schedules"];
    arguments.extend(["--package", "larder-testkit", "--test", "session_schedules", "--"]);
    arguments.extend(names.iter().map(String::as_str));
    let mut command = cargo(&arguments);
    command.env("RUSTFLAGS", "--cfg larder_schedule").env("CARGO_TARGET_DIR", target().join("schedules"));
    // Playing takes seconds: a build that takes less than that is the better one.
    command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_PANIC", "unwind");
    command.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1").env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "64");
    command.env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
    // What a schedule shows of stacks it writes itself.
    command.env("RUST_BACKTRACE", "0");
    run(command)
}
