//! `cargo xtask conformance [suite…]`: other people's tests, run against Larder.
//!
//! Each suite installs what it needs by package name, runs against a fresh server on ports 11211 and 6379 in a
//! network namespace of its own, and reports how many tests ran and were skipped. Both must be what
//! `spec/conformance.toml` says: a suite that could not run, or ran fewer tests, has failed.
//!
//! `LARDER_CONFORMANCE_SERVER=memcached` runs the suites against memcached: the harness is right when
//! they pass there.

mod clients;
mod exporter;
mod namespace;
mod page;
mod redis;
mod redis_exporter;
mod suites;

use crate::run::{Outcome, cargo, lanes, root, run, target, which};
use namespace::Namespace;
use std::collections::BTreeMap;
use std::time::Instant;

/// What a suite did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Tests that ran and passed.
    pub passed: u32,
    /// Tests that did not run.
    pub skipped: u32,
}

/// What suites run against.
#[derive(Clone, Debug)]
pub struct Program {
    /// Program and first arguments.
    pub words: Vec<String>,
}

/// Runs all suites, or those named.
pub fn conformance(names: &[String]) -> Outcome {
    let expected = expected()?;
    let known: Vec<&str> = suites::SUITES.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("no suite {unknown}; there are {}", known.join(", ")));
    }
    if expected.keys().map(String::as_str).ne(sorted(&known)) {
        return Err(format!("spec/conformance.toml lists {:?}, the suites are {known:?}", expected.keys()));
    }
    crate::install::debian(&[("ip", "iproute2"), ("memcached", "memcached")])?;
    let program = program()?;
    let chosen =
        suites::SUITES.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|n| n == name));
    // What is in one Python environment is not installed beside each other. Suites mostly wait: two run at once.
    let two: (Vec<_>, Vec<_>) = chosen.partition(|(name, _)| suites::IN_PYTHON.contains(name));
    let results: Vec<_> = lanes(&[two.0, two.1], 2, |suites| {
        Some(suites.iter().map(|(name, suite)| (*name, one(name, *suite, &program))).collect::<Vec<_>>())
    });
    let (mut passed, mut skipped, mut failures) = (0, 0, Vec::new());
    for (name, result) in results.into_iter().flatten() {
        match result {
            Ok(counts) => {
                passed += counts.passed;
                skipped += counts.skipped;
                if counts != expected[name] {
                    failures.push(format!("{name}: {counts:?}, but {:?} are expected", expected[name]));
                }
            }
            Err(error) => failures.push(format!("{name}: {error}")),
        }
    }
    println!("conformance: {passed} passed, {} failed, {skipped} skipped", failures.len());
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Runs a suite in a namespace of its own.
fn one(name: &str, suite: suites::Suite, program: &Program) -> Outcome<Counts> {
    println!("-- {name}");
    let began = Instant::now();
    let counts = suite(&Namespace::new()?, program)?;
    let took = began.elapsed().as_secs_f64();
    println!("{name}: {} passed, {} skipped, {took:.0} s", counts.passed, counts.skipped);
    Ok(counts)
}

fn program() -> Outcome<Program> {
    if std::env::var_os("LARDER_CONFORMANCE_SERVER").is_some_and(|server| server == "memcached") {
        let memcached = which("memcached").ok_or("memcached is not installed")?;
        return Ok(Program {
            words: vec![memcached.to_string_lossy().into_owned(), "-u".into(), "root".into()],
        });
    }
    run(cargo(&["build", "--quiet", "--package", "larder"]))?;
    let larder = target().join("debug/larder").to_string_lossy().into_owned();
    // Suites start servers beside each other, and look at what they say.
    Ok(Program { words: [&larder[..], "serve", "--http-port", "0"].map(str::to_owned).to_vec() })
}

/// The committed numbers: `[suite]`, `passed = N`, `skipped = N`.
fn expected() -> Outcome<BTreeMap<String, Counts>> {
    let path = root().join("spec/conformance.toml");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut suites: BTreeMap<String, Counts> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let wrong = || format!("{}: not understood: {line}", path.display());
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            current = name.to_owned();
            suites.insert(current.clone(), Counts { passed: 0, skipped: 0 });
            continue;
        }
        let (key, value) = line.split_once('=').ok_or_else(wrong)?;
        let value: u32 = value.trim().parse().map_err(|_| wrong())?;
        let counts = suites.get_mut(&current).ok_or_else(wrong)?;
        match key.trim() {
            "passed" => counts.passed = value,
            "skipped" => counts.skipped = value,
            _ => return Err(wrong()),
        }
    }
    Ok(suites)
}

fn sorted<'n>(names: &[&'n str]) -> Vec<&'n str> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names
}
