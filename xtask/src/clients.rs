//! `cargo xtask clients`: the client libraries, tested against the server as it is.
//!
//! These tests judge no times: they claim counts, values and outcomes, so that a slow machine changes nothing.

mod c;
mod rust;
mod server;

use crate::install::debian;
use crate::programs::{self, Tests, steady};
use crate::run::{Outcome, all_of, capture, cargo, command, root, run};
use crate::test::EVERYTHING;
use std::process::Command;

/// The oldest Go that the client is for.
const GO_LEAST: (u32, u32) = (1, 24);
/// The oldest Go that its tests in virtual time need.
const GO_OF_TESTS: (u32, u32) = (1, 25);

/// Modules below the client that have dependencies, and their tests.
const MODULES: &[&str] = &["prom", "otel", "compare"];

/// Packages that the drivers of `larder lab matrix` and `larder lab clients` are built with.
const DRIVER: &[(&str, &str)] = &[
    ("cc", "gcc"),
    ("/usr/include/stdio.h", "libc6-dev"),
    ("/usr/include/libmemcached/memcached.h", "libmemcached-dev"),
    // The drivers count system calls with it where perf is not permitted.
    ("strace", "strace"),
];

type Part = fn() -> Outcome;

/// Parts, by name.
const PARTS: &[(&str, Part)] =
    &[("c", c::c), ("go", golang), ("rust", || steady("the documents", rust::rust)), ("lab", experiments)];

/// Tests all clients, or the named parts: the C client, the Go client, the Rust client as its users have it (its other tests are
/// among the workspace's), and the lab's experiments about clients.
pub fn clients(names: &[String]) -> Outcome {
    if let Some(name) = names.iter().find(|name| !PARTS.iter().any(|(known, _)| known == name)) {
        return Err(format!("there is no part {name}: cargo xtask clients [c] [go] [rust] [lab]"));
    }
    programs::built("larder")?;
    let chosen =
        PARTS.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|chosen| chosen == name));
    all_of(chosen.map(|(name, part)| part().map_err(|error| format!("{name}: {error}"))))
}

const VET: &[&str] = &["vet", "./..."];
const TEST: &[&str] = &["test", "-count=1", "-timeout=0", "./..."];
const RACE: &[&str] = &["test", "-race", "-count=1", "-timeout=0", "./..."];

/// Fuzzers, with a count of inputs, which is the same on a slow machine. An input that fails is left in the package's
/// `testdata/fuzz`, and is a test from then on.
const FUZZERS: &[&[&str]] =
    &[&["test", "-run=^$", "-fuzz=^FuzzReply$", "-fuzztime=200000x", "./internal/wire"]];

/// Checks format, vet and tests of `clients/go`, with the race detector and, for allocations, without; then runs its fuzzers.
fn golang() -> Outcome {
    debian(&[("go", "golang-go"), ("cc", "gcc"), ("/usr/include/stdio.h", "libc6-dev")])?;
    check_go()?;
    let (works, unformatted) = capture(go("gofmt", &["-l", "."]))?;
    let is_formatted = works && unformatted.trim().is_empty();
    let format = if is_formatted { Ok(()) } else { Err(format!("gofmt -w: {unformatted}")) };
    let mut steps = vec![(".", VET), (".", RACE), (".", TEST)];
    steps.extend(MODULES.iter().flat_map(|module| [(*module, VET), (*module, RACE)]));
    steps.extend(FUZZERS.iter().map(|fuzzer| (".", *fuzzer)));
    let steps = steps.into_iter().map(|(module, arguments)| {
        steady(&format!("{module}: go {}", arguments.join(" ")), || {
            let mut command = go("go", arguments);
            command.current_dir(root().join("clients/go").join(module));
            run(command)
        })
    });
    all_of(std::iter::once(format).chain(steps))
}

/// Tests `larder lab matrix` and `larder lab clients`.
fn experiments() -> Outcome {
    debian(&[&[("go", "golang-go")], DRIVER].concat())?;
    check_go()?;
    // One by one: two measurements at once would disturb each other.
    let arguments = &["lab_matrix::", "lab_clients::", "--ignored", "--test-threads=1"];
    let runs = |package: &str| package == "larder";
    programs::run_tests(cargo, Tests { build: EVERYTHING, runs, arguments, lanes: 1 }).map(drop)
}

fn go(program: &str, arguments: &[&str]) -> Command {
    let mut command = command(program, arguments);
    command.current_dir(root().join("clients/go"));
    // Dependencies are those of go.sum, and a test that finds no server fails.
    command.env("GOFLAGS", "-mod=readonly").env("LARDER_SERVER", server::larder());
    command
}

/// Fails with what to do if Go is too old.
fn check_go() -> Outcome {
    let (_, version) = capture(go("go", &["env", "GOVERSION"]))?;
    let found = version_of(version.trim());
    if found.is_some_and(|found| found >= GO_LEAST) {
        println!("{}", version.trim());
        if found < Some(GO_OF_TESTS) {
            let (major, minor) = GO_OF_TESTS;
            println!("no tests in virtual time (lane_test.go, fleet_test.go): they need Go {major}.{minor}");
        }
        return Ok(());
    }
    let (major, minor) = GO_LEAST;
    Err(format!(
        "clients/go needs Go {major}.{minor} or later, this is {}: see https://go.dev/dl",
        version.trim()
    ))
}

/// The numbers in `go1.26.8` or `go1.26rc1`: 1 and 26.
fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.strip_prefix("go")?.split('.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?;
    let digits = minor.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(minor.len());
    Some((major, minor[..digits].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    /// Names of the fuzzers below a folder.
    fn fuzzers(folder: &Path, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("the folder is there").path();
            if path.is_dir() {
                fuzzers(&path, found);
            } else if path.extension().is_some_and(|kind| kind == "go") {
                let text = fs::read_to_string(&path).expect("it is text");
                let names = text.lines().filter_map(|line| line.strip_prefix("func Fuzz")?.split('(').next());
                found.extend(names.map(|name| format!("Fuzz{name}")));
            }
        }
    }

    #[test]
    fn every_fuzzer_of_the_go_client_is_run() {
        let mut found = Vec::new();
        fuzzers(&root().join("clients/go"), &mut found);
        let name = |word: &&str| Some(word.strip_prefix("-fuzz=^")?.strip_suffix('$')?.to_owned());
        let words = FUZZERS.iter().flat_map(|words| words.iter());
        let mut listed: Vec<String> = words.filter_map(name).collect();
        found.sort();
        listed.sort();
        assert_eq!(found, listed);
    }

    #[test]
    fn versions_of_go_are_read() {
        assert_eq!(version_of("go1.26.8"), Some((1, 26)));
        assert_eq!(version_of("go1.24rc1"), Some((1, 24)));
        assert_eq!(version_of("devel"), None);
        assert!(version_of("go1.19.8") < Some(GO_LEAST));
    }
}
