//! The suites that try faults: quick ones, each a call of cargo that is built first and then run with a time limit.

use crate::run::{Outcome, shown};
use crate::schedules::SCHEDULES;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The name for a failure of a suite that names no test.
pub const UNNAMED: &str = "it failed";

/// A suite.
#[derive(Debug)]
pub struct Suite {
    /// Its name in the lists.
    pub name: &'static str,
    /// What follows `cargo test`.
    arguments: &'static [&'static str],
    /// What follows `--`.
    filter: &'static [&'static str],
}

/// The program of the testkit's tests, whose modules a filter names.
const TESTKIT: &[&str] = &["-p", "larder-testkit", "--test", "all"];

/// All suites, quickest first. A fault that its own suites do not catch is tried with the others in this order.
pub const SUITES: &[Suite] = &[
    Suite { name: "store", arguments: &["-p", "larder-store", "--lib"], filter: &[] },
    Suite { name: "loop", arguments: &["-p", "larder-eventloop"], filter: &[] },
    Suite {
        name: "commands",
        arguments: &[
            "-p",
            "larder-protocol",
            "-p",
            "larder-commands",
            "-p",
            "larder-session",
            "-p",
            "larder-server",
        ],
        filter: &[],
    },
    Suite { name: "tls", arguments: &["-p", "larder-tls"], filter: &[] },
    Suite {
        name: "client",
        arguments: &["-p", "larder-client", "--lib", "--tests"],
        filter: &["fleet::", "lanes::", "place::", "reports::", "vectors::", "xxh3::"],
    },
    Suite { name: "lab", arguments: &["-p", "larder-lab", "--lib", "--tests"], filter: &[] },
    Suite {
        name: "behaviour",
        arguments: &["-p", "larder-store", "--test", "*"],
        filter: &["--skip", "storm", "--skip", "stress"],
    },
    Suite {
        name: "conversations",
        arguments: TESTKIT,
        filter: &[
            "model::",
            "lengths::",
            "redis_transactions::",
            "redis_maxmemory::",
            "redis_pubsub::",
            "resp_pieces::",
        ],
    },
    Suite {
        name: "encrypted",
        arguments: TESTKIT,
        filter: &["tls::sim::", "tls::process::", "tls::users::"],
    },
    Suite { name: "transcripts", arguments: TESTKIT, filter: &["transcripts_pass_over_the_session_alone"] },
    Suite {
        name: "peers",
        arguments: TESTKIT,
        filter: &[
            "held_replies::",
            "bad_clients::",
            "stopping::",
            "hostile::",
            "accept_failures::",
            "confined::",
            "limits::",
        ],
    },
    Suite { name: "world", arguments: TESTKIT, filter: &["world::"] },
    Suite { name: "attacks", arguments: TESTKIT, filter: &["--ignored", "attacks::"] },
    Suite { name: "schedules", arguments: SCHEDULES, filter: &[] },
    Suite {
        name: "models",
        arguments: &["-p", "larder-store", "--features", "loom", "--lib"],
        filter: &["model"],
    },
];

/// How a suite ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// All passed.
    Passed,
    /// This test failed, or this happened instead.
    Noticed(String),
    /// It did not end in time, and this test was running.
    Endless(String),
    /// It does not build: the compiler notices the fault, so it does not count as one.
    DoesNotBuild(String),
}

impl Suite {
    /// The suite of this name.
    pub fn named(name: &str) -> Option<&'static Suite> {
        SUITES.iter().find(|suite| suite.name == name)
    }

    fn command(&self, tree: &Path, build: &Path) -> Command {
        let mut command = Command::new("cargo");
        command.args(["test", "--quiet"]).args(self.arguments).current_dir(tree);
        command.env("RUST_BACKTRACE", "0").env("CARGO_TERM_COLOR", "never");
        command.env_remove("LARDER_BIN");
        command.env("CARGO_TARGET_DIR", build);
        command
    }

    /// Builds the suite in `tree` and runs it within `patience`.
    ///
    /// # Errors
    /// Cargo cannot be started.
    pub fn run(&self, tree: &Path, build: &Path, patience: &Patience) -> Outcome<(End, Slow)> {
        let mut command = self.command(tree, build);
        command.arg("--no-run");
        let (ended, text) = within(command, build, &Patience { limit: Duration::MAX, known: None })?;
        if ended != Some(true) {
            return Ok((End::DoesNotBuild(last_error(&text)), Slow::new()));
        }
        let mut command = self.command(tree, build);
        command.arg("--").args(self.filter);
        let (ended, text) = within(command, build, patience)?;
        let end = match ended {
            Some(true) => End::Passed,
            Some(false) => End::Noticed(failed(&text)),
            None => End::Endless(failed(&text)),
        };
        Ok((end, slow(&text)))
    }
}

/// Tests that run longer than the harness expects: a minute.
pub type Slow = BTreeSet<String>;

/// How long a suite may run: this limit, and, if its slow tests are known, no longer than until another test is slow.
#[derive(Debug)]
pub struct Patience {
    pub limit: Duration,
    pub known: Option<Slow>,
}

/// Tests that the harness reports as slow.
fn slow(text: &str) -> Slow {
    let names = text.lines().filter_map(|line| {
        let (_, name) = line.strip_suffix(" has been running for over 60 seconds")?.rsplit_once("test ")?;
        Some(name.to_owned())
    });
    names.collect()
}

/// Runs a command to its end, or until `patience` is over. Returns whether it passed (`None`: it was stopped), and its output.
fn within(mut command: Command, build: &Path, patience: &Patience) -> Outcome<(Option<bool>, String)> {
    let line = shown(&command);
    let failed = |error: std::io::Error| format!("{line}: {error}");
    fs::create_dir_all(build).map_err(failed)?;
    let output = build.join("output.txt");
    let file = File::create(&output).map_err(failed)?;
    command.stdin(Stdio::null()).stdout(file.try_clone().map_err(failed)?).stderr(file);
    // A process group of its own, so that everything that cargo has started ends with it.
    let mut child = command.process_group(0).spawn().map_err(failed)?;
    let started = Instant::now();
    let printed = || fs::read(&output).map(|text| String::from_utf8_lossy(&text).into_owned());
    let ended = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break Some(status.success());
        }
        let known = patience.known.as_ref();
        let hangs = known.is_some_and(|known| printed().is_ok_and(|text| !slow(&text).is_subset(known)));
        if hangs || started.elapsed() > patience.limit {
            let group = format!("-{}", child.id());
            Command::new("kill").args(["-KILL", "--", &group]).status().map_err(failed)?;
            child.wait().map_err(failed)?;
            break None;
        }
        thread::sleep(Duration::from_millis(50));
    };
    Ok((ended, printed().map_err(failed)?))
}

/// The first test that failed, with scenario and seed of a schedule; or another sign of a failure.
fn failed(text: &str) -> String {
    let of_list = || {
        let (_, rest) = text.split_once("\nfailures:\n    ")?;
        let name = rest.lines().next()?.trim();
        Some(seed_of(text, name).map_or(name.to_owned(), |seed| format!("{name}, {seed}")))
    };
    let of_panic = || {
        let line = text.lines().find(|line| line.starts_with("thread '") && line.contains("panicked"))?;
        line.split('\'').nth(1).map(str::to_owned)
    };
    let running = || slow(text).pop_first();
    let signal = || text.lines().find(|line| line.contains("(signal:")).map(|line| line.trim().to_owned());
    of_list().or_else(of_panic).or_else(running).or_else(signal).unwrap_or_else(|| UNNAMED.to_owned())
}

/// The last schedule that a test has begun, from its output.
fn seed_of(text: &str, test: &str) -> Option<String> {
    let (_, printed) = text.split_once(&format!("---- {test} stdout ----"))?;
    let printed = printed.split("\n---- ").next()?;
    let last = printed.lines().rev().find_map(|line| line.split_once(": LARDER_SCHEDULE_SEED="))?;
    Some(format!("{} seed {}", last.0, last.1))
}

fn last_error(text: &str) -> String {
    let error = text.lines().find(|line| line.starts_with("error"));
    error.unwrap_or("it failed").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_failed_is_found() {
        let listed = "\nfailures:\n\n---- a::b stdout ----\nthread 'a::b' panicked at x\n\nfailures:\n    a::b\n    a::c\n";
        assert_eq!(failed(listed), "a::b");
        let seeds = "\nfailures:\n\n---- a stdout ----\nx: LARDER_SCHEDULE_SEED=1\nx: LARDER_SCHEDULE_SEED=2\nthread\n\n---- b stdout ----\ny: LARDER_SCHEDULE_SEED=3\n\nfailures:\n    a\n    b\n";
        assert_eq!(failed(seeds), "a, x seed 2");
        assert_eq!(failed("thread 'main::c' (12) panicked at x\n"), "main::c");
        assert_eq!(failed("...test d has been running for over 60 seconds\n"), "d");
        assert_eq!(
            failed("  process didn't exit (signal: 6, SIGABRT)\n"),
            "process didn't exit (signal: 6, SIGABRT)"
        );
        assert_eq!(failed(""), UNNAMED);
    }

    #[test]
    fn suites_have_different_names() {
        for suite in SUITES {
            assert_eq!(SUITES.iter().filter(|other| other.name == suite.name).count(), 1, "{}", suite.name);
        }
    }
}
