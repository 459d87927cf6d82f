//! Runs the workspace's test programs, several at once: many of them mostly wait, and cargo runs one after the other.
//!
//! ```text
//! cargo builds all, and says where they are ─▶ each runs, the longest first ─▶ what failed runs alone, three times ─▶ verdict
//! ```
//!
//! A test that fails and then passes alone is unsteady. It still fails the stage: it has found a defect of Larder or of itself.

use crate::hang::is_ended;
use crate::machine::Busy;
use crate::run::{self, Outcome, capture, lanes, repeated, set_variables_of, shown};
use crate::test::WITHOUT;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Programs that start first, the longest one in front: package and name.
const LONG: &[&str] = &["store all", "testkit all", "session session", "store larder_store"];
/// How many of the slowest programs are listed.
const SLOWEST: usize = 12;
/// How often a test that failed runs alone.
const AGAIN: usize = 3;
/// Tests that are known to be unsteady: name, why, and since when. If such a test fails and then passes alone [`AGAIN`] times, a
/// line says so and the stage does not fail.
const UNSTEADY: &[(&str, &str, &str)] = &[];
/// The most tests that may be listed as unsteady.
const UNSTEADY_MAX: usize = 5;
const _: () = assert!(UNSTEADY.len() <= UNSTEADY_MAX);

/// The programs to build and run.
#[derive(Clone, Copy, Debug)]
pub struct Tests<'a> {
    /// What follows `cargo test`, up to `--`.
    pub build: &'a [&'a str],
    /// Whether the tests of a package run. Those of other packages are still built, so that features stay the same and nothing is
    /// built twice.
    pub runs: fn(&str) -> bool,
    /// Arguments of each program.
    pub arguments: &'a [&'a str],
    /// Programs that run at once.
    pub lanes: usize,
}

/// A line of cargo's messages about a build.
#[derive(Debug, Deserialize)]
struct Message {
    reason: String,
    executable: Option<PathBuf>,
    manifest_path: Option<PathBuf>,
    profile: Option<Profile>,
    target: Option<Target>,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Debug, Deserialize)]
struct Target {
    name: String,
}

/// A test program, or one that tests start.
#[derive(Debug)]
struct Program {
    name: String,
    path: PathBuf,
    /// The folder of its package, in which it runs.
    home: PathBuf,
    is_test: bool,
}

/// The result of a program.
struct Ran {
    name: String,
    took: Duration,
    /// The number of passed tests, or the failure.
    outcome: Outcome<u32>,
}

/// Builds a program of the workspace that is no test, with the packages and features of the tests, so that nothing is built
/// twice. Returns its path.
///
/// # Errors
/// It does not build.
pub fn built(name: &str) -> Outcome<PathBuf> {
    // To cargo, tests' own dependencies count only if a test is built with it: this one is small.
    let and_a_test = ["--bin", name, "--test", "on_sim"];
    run::run(run::cargo(&[&["build", "--quiet", "--workspace", WITHOUT], &and_a_test[..]].concat()))?;
    Ok(run::target().join("debug").join(name))
}

/// The number of cores.
pub fn lanes_of_cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Builds and runs the test programs that `cargo test` would run, and returns how many tests passed.
///
/// # Errors
/// A program does not build, or fails (all are run in any case); or there are none.
pub fn run_tests(cargo: impl Fn(&[&str]) -> Command + Sync, tests: Tests<'_>) -> Outcome<u32> {
    let began = Instant::now();
    let build =
        cargo(&[&["test", "--no-run", "--message-format=json-render-diagnostics"], tests.build].concat());
    println!("$ {}", shown(&build));
    let (works, text) = capture(build)?;
    let (messages, rest): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with('{'));
    if !works {
        return Err(format!("the tests do not build:\n{}", rest.join("\n")));
    }
    println!("built in {:.1} s", began.elapsed().as_secs_f64());
    let programs = messages.into_iter().filter_map(program).collect::<Outcome<Vec<Program>>>()?;
    let (mut programs, others): (Vec<Program>, Vec<Program>) =
        programs.into_iter().partition(|program| program.is_test);
    // Tests start the program of the same build.
    let larder = others.into_iter().find(|other| other.name == "larder larder").map(|larder| larder.path);
    let rank = |name: &str| LONG.iter().position(|long| *long == name).unwrap_or(LONG.len());
    programs.retain(|program| (tests.runs)(program.package()));
    programs.sort_by_key(|program| rank(&program.name));
    let like = || {
        let mut like = cargo(&[]);
        if let Some(larder) = &larder {
            like.env("LARDER_BIN", larder);
        }
        like
    };
    tell(lanes(&programs, tests.lanes, |program| Some(program.ran(&like(), tests.arguments))))
}

/// Prints the slowest programs and the failures; returns the number of passed tests.
fn tell(mut all: Vec<Ran>) -> Outcome<u32> {
    all.sort_by_key(|ran| std::cmp::Reverse(ran.took));
    println!("{} programs, the slowest of them:", all.len());
    for ran in all.iter().take(SLOWEST) {
        println!("  {:<40} {:>6.1} s", ran.name, ran.took.as_secs_f64());
    }
    let passed: u32 = all.iter().filter_map(|ran| ran.outcome.as_ref().ok()).sum();
    let failures: Vec<String> = all.into_iter().filter_map(|ran| ran.outcome.err()).collect();
    match passed {
        _ if !failures.is_empty() => Err(failures.join("\n")),
        0 => Err("no test was run".to_owned()),
        passed => {
            println!("{passed} tests passed");
            Ok(passed)
        }
    }
}

/// The program that a message of cargo is about, if it is about one.
fn program(line: &str) -> Option<Outcome<Program>> {
    let message: Message = match serde_json::from_str(line) {
        Ok(message) => message,
        Err(error) => return Some(Err(format!("cargo says {line}: {error}"))),
    };
    if message.reason != "compiler-artifact" {
        return None;
    }
    let is_test = message.profile?.test;
    let (path, manifest) = (message.executable?, message.manifest_path?);
    let home = manifest.parent().unwrap_or(Path::new("/")).to_owned();
    let package = home.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Some(Ok(Program { name: format!("{package} {}", message.target?.name), path, home, is_test }))
}

impl Program {
    /// The name of its package's folder.
    fn package(&self) -> &str {
        self.name.split(' ').next().unwrap_or_default()
    }

    /// Runs it, prints its output, and runs failed tests again.
    fn ran(&self, like: &Command, arguments: &[&str]) -> Ran {
        let (started, busy) = (Instant::now(), Busy::now());
        let outcome = self.run(like, arguments).and_then(|(works, text)| {
            println!("-- {}\n{text}", self.name);
            if !works {
                self.judge(like, &text, &busy.since())?;
            }
            Ok(passed(&text))
        });
        Ran { name: self.name.clone(), took: started.elapsed(), outcome }
    }

    /// Runs it; returns whether it passed, and its output.
    fn run(&self, like: &Command, arguments: &[&str]) -> Outcome<(bool, String)> {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.home).args(arguments);
        // The environment that cargo would get: sanitizers' options, and the target directory.
        command.env("CARGO", like.get_program());
        set_variables_of(like, &mut command);
        capture(command)
    }

    /// Runs the failed tests alone, and reports the verdict.
    fn judge(&self, like: &Command, text: &str, busy: &str) -> Outcome {
        let mut told = vec![format!("{} failed ({busy})", self.name)];
        told.extend(repeated(text));
        let failed = failed(text);
        let mut is_red = failed.is_empty();
        if failed.is_empty() {
            told.push("it ended before it said which tests failed".to_owned());
        }
        for test in failed {
            let verdict = alone(&test, || {
                let one = ["--exact", test.as_str(), "--include-ignored", "--test-threads=1"];
                self.run(like, &one).map(|(works, _)| works)
            })?;
            is_red |= verdict.is_red;
            told.push(format!("  {test}: {}", verdict.said));
        }
        let told = told.join("\n");
        if is_red {
            return Err(told);
        }
        println!("{told}");
        Ok(())
    }
}

/// Runs tests that are no program of the workspace, and after a failure runs them [`again`].
pub fn steady(name: &str, mut run: impl FnMut() -> Outcome) -> Outcome {
    run().or_else(|error| again(name, &error, run))
}

/// Runs failed tests again, as often as a failed test runs alone. Fails in the same way.
pub fn again(name: &str, error: &str, mut run: impl FnMut() -> Outcome) -> Outcome {
    let verdict = alone(name, || Ok(run().is_ok()))?;
    let told = format!("{error}\n{name}: {}", verdict.said);
    if verdict.is_red {
        return Err(told);
    }
    println!("{told}");
    Ok(())
}

/// The verdict about a failed test that ran alone.
#[derive(Debug, PartialEq, Eq)]
struct Verdict {
    is_red: bool,
    said: String,
}

/// Runs a test alone several times, unless the stage is being ended.
fn alone(test: &str, mut run: impl FnMut() -> Outcome<bool>) -> Outcome<Verdict> {
    let (mut runs, mut failures) = (0, 0);
    while runs < AGAIN && !is_ended() {
        failures += usize::from(!run()?);
        runs += 1;
    }
    if is_ended() {
        let said = match runs {
            0 => "was not run again, as the stage was ended".to_owned(),
            _ => format!("failed {failures} of {runs} times alone, and the stage was ended meanwhile"),
        };
        return Ok(Verdict { is_red: true, said });
    }
    let known = UNSTEADY.iter().find(|(name, ..)| *name == test);
    let said = match (failures, known) {
        (0, Some((_, why, since))) => format!("unsteady, as is known since {since}: {why}"),
        (0, None) => format!("unsteady: passed {AGAIN} of {AGAIN} times alone"),
        _ => format!("failed {failures} of {AGAIN} times alone, too"),
    };
    Ok(Verdict { is_red: failures > 0 || known.is_none(), said })
}

/// The failed tests that a program lists at its end.
fn failed(text: &str) -> Vec<String> {
    let Some((_, list)) = text.rsplit_once("\nfailures:\n") else { return Vec::new() };
    list.lines().map_while(|line| line.strip_prefix("    ")).map(|name| name.trim().to_owned()).collect()
}

/// The number of passed tests that a program reports at its end.
fn passed(text: &str) -> u32 {
    let results = text.lines().filter_map(|line| line.strip_prefix("test result: ")?.split_once(". "));
    results.filter_map(|(_, counts)| counts.split_once(" passed;")?.0.parse::<u32>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hang::nobody_is_ended;

    #[test]
    fn test_programs_are_found_among_what_cargo_says() {
        let artifact = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/store/Cargo.toml",
            "target":{"name":"storm","kind":["test"]},"profile":{"test":true,"opt_level":"1"},"executable":"/t/storm-1"}"#;
        let found = program(artifact).expect("a test program").expect("it is understood");
        assert_eq!((found.name.as_str(), found.home.to_str()), ("store storm", Some("/w/crates/store")));
        assert!(found.is_test);
        let other = program(&artifact.replace("\"test\":true", "\"test\":false"));
        assert!(!other.expect("a program").expect("it is understood").is_test);
        assert!(program(&artifact.replace("\"/t/storm-1\"", "null")).is_none());
        assert!(program(r#"{"reason":"build-finished","success":true}"#).is_none());
        assert!(program("{").expect("a complaint").is_err());
    }

    #[test]
    fn the_failure_of_one_program_fails_all_and_is_told() {
        let ran = |name: &str, outcome| Ran { name: name.to_owned(), took: Duration::ZERO, outcome };
        assert_eq!(tell(vec![ran("a", Ok(2)), ran("b", Ok(3))]), Ok(5));
        assert_eq!(tell(vec![ran("a", Ok(2)), ran("b", Err("b".into()))]), Err("b".into()));
        assert_eq!(tell(vec![ran("a", Ok(0))]), Err("no test was run".into()));
    }

    #[test]
    fn tests_that_passed_are_counted_by_the_line_at_the_end() {
        let rest = "0 ignored; 0 measured; 9 filtered out; finished in 0.10s";
        assert_eq!(passed(&format!("test a ... ok\n\ntest result: ok. 31 passed; 0 failed; {rest}\n\n")), 31);
        assert_eq!(passed(&format!("test result: FAILED. 4 passed; 1 failed; {rest}\n")), 4);
        assert_eq!(passed("process died\n"), 0);
    }

    #[test]
    fn tests_that_failed_are_read_from_the_list_at_the_end() {
        let text = "running 3 tests\n\nfailures:\n\n---- a::b stdout ----\nx\nfailures:\n    no\n\n\nfailures:\n    a::b\n    c\n\ntest result: FAILED.\n";
        assert_eq!(failed(text), ["a::b", "c"]);
        assert_eq!(failed("process died\n"), Vec::<String>::new());
    }

    #[test]
    fn a_test_that_passes_alone_is_unsteady_and_red() {
        let _lives = nobody_is_ended();
        let mut runs = 0;
        let verdict = alone("t", || {
            Ok({
                runs += 1;
                true
            })
        })
        .unwrap();
        assert_eq!((runs, verdict.is_red), (AGAIN, true));
        assert!(verdict.said.starts_with("unsteady"), "{verdict:?}");
        let verdict = alone("t", || Ok(false)).unwrap();
        assert_eq!(verdict, Verdict { is_red: true, said: "failed 3 of 3 times alone, too".into() });
    }

    #[test]
    fn what_is_no_program_of_ours_runs_again_and_stays_red() {
        let _lives = nobody_is_ended();
        let mut runs = 0;
        let mut fails = |at: usize| {
            let outcome = steady("t", || {
                runs += 1;
                if runs == at { Err("it failed".into()) } else { Ok(()) }
            });
            (runs, outcome)
        };
        assert_eq!(fails(0), (1, Ok(())));
        let told = "it failed\nt: unsteady: passed 3 of 3 times alone";
        assert_eq!(fails(2), (2 + AGAIN, Err(told.into())));
    }
}
