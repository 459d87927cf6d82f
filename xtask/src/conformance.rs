//! `cargo xtask conformance [--frameworks] [--long] [suite…]`: other people's tests and programs, run against Larder.
//!
//! Without arguments: all suites of clients and tools. With `--frameworks`: those of frameworks that keep queues, locks, limits,
//! caches and sessions in Redis (`conformance/frameworks.rs`), which take too long for `cargo xtask test`. With `--long`:
//! comparisons of Larder with other servers that take up to an hour. Or the named suites, of all of these.
//!
//! Each suite installs what it needs by package name, runs against a fresh server on ports 11211 and 6379 in a
//! network namespace of its own, and reports how many tests ran and were skipped. Both must be what
//! `spec/conformance.toml` says: a suite that could not run, or ran fewer tests, has failed.
//!
//! `LARDER_CONFORMANCE_SERVER=memcached` runs the suites against memcached, `LARDER_CONFORMANCE_SERVER=redis` against the newest
//! Redis, to check the harness itself. A path names a Larder to run in place of the one that is built.

mod binary;
mod clients;
mod exporter;
pub mod frameworks;
mod namespace;
mod page;
mod prometheus;
mod redis;
mod redis_exporter;
mod secured;
mod series;
mod suites;
mod watcher;

use crate::peers::{peer, version};
use crate::programs::{again, built};
use crate::run::{Outcome, lanes, root, which};
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

/// The program that suites run against.
#[derive(Clone, Debug)]
pub struct Program {
    /// Program and first arguments.
    pub words: Vec<String>,
    /// Whether the server is Redis: its options differ, and it has no port 11211.
    pub is_redis: bool,
}

impl Program {
    /// Whether the server is Larder, which is started by a word for that.
    fn is_larder(&self) -> bool {
        self.words.get(1).is_some_and(|word| word == SERVE)
    }
}

/// The word that starts Larder's server.
const SERVE: &str = "serve";

/// A suite and its name.
type Named = (&'static str, Box<dyn Fn(&Namespace, &Program) -> Outcome<Counts> + Sync>);

/// How many suites run at once.
const LANES: usize = 3;

/// Flags for suites that run only when asked for.
const FRAMEWORKS: &str = "--frameworks";
const LONG: &str = "--long";

/// Runs the suites of clients and tools, those that the flags choose, or the named ones.
pub fn conformance(arguments: &[String]) -> Outcome {
    let (flags, names): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|word| [FRAMEWORKS, LONG].contains(&word.as_str()));
    if let (Some(flag), Some(name)) = (flags.first(), names.first()) {
        return Err(format!("{flag} chooses suites, and so does {name}: one of both"));
    }
    let given = |flag: &str| flags.iter().any(|given| *given == flag);
    let expected = expected()?;
    let listed = suites::SUITES.iter().chain(suites::LONG_FORMS);
    let clients = listed.map(|&(name, suite)| -> Named { (name, Box::new(suite)) });
    let frameworks = frameworks::FRAMEWORKS.iter().map(|framework| -> Named {
        (framework.name, Box::new(|namespace, program| framework.run(namespace, program)))
    });
    let flag_of = |name: &str| {
        let is_long = suites::LONG_FORMS.iter().any(|(long, _)| *long == name);
        let is_framework = frameworks::FRAMEWORKS.iter().any(|framework| framework.name == name);
        if is_long { Some(LONG) } else { is_framework.then_some(FRAMEWORKS) }
    };
    let all: Vec<Named> = clients.chain(frameworks).collect();
    let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("no suite {unknown}; there are {}", known.join(", ")));
    }
    if expected.keys().map(String::as_str).ne(sorted(&known)) {
        return Err(format!("spec/conformance.toml lists {:?}, the suites are {known:?}", expected.keys()));
    }
    crate::install::debian(&[("ip", "iproute2"), ("memcached", "memcached")])?;
    let program = program()?;
    let chosen = all.into_iter().filter(|(name, _)| match (names.is_empty(), flag_of(name)) {
        (true, None) => flags.is_empty(),
        (true, Some(flag)) => given(flag),
        (false, _) => names.iter().any(|named| named == name),
    });
    // Suites that share a Python environment cannot be installed at once. Suites mostly wait, so three run at once, the longest
    // first. Those that depend on times run afterwards, one by one.
    let (alone, chosen): (Vec<Named>, Vec<Named>) =
        chosen.partition(|(name, _)| suites::ALONE.contains(name));
    let (python, mut others): (Vec<Named>, Vec<Named>) =
        chosen.into_iter().partition(|(name, _)| suites::IN_PYTHON.contains(name));
    let rank = |name: &str| suites::LONG.iter().position(|long| *long == name).unwrap_or(suites::LONG.len());
    others.sort_by_key(|(name, _)| rank(name));
    let units: Vec<_> = std::iter::once(python).chain(others.into_iter().map(|suite| vec![suite])).collect();
    // The document compares the seconds of frameworks here and on Redis, so one framework runs at a time.
    let at_once = if given(FRAMEWORKS) { 1 } else { LANES };
    let run = |suite: &Named| (suite.0, one(suite, &program, expected[suite.0]));
    let in_turn = |suites: &Vec<Named>| Some(suites.iter().map(run).collect::<Vec<_>>());
    let results = lanes(&units, at_once, in_turn).into_iter().chain(in_turn(&alone));
    let results: BTreeMap<&str, Outcome<Counts>> = results.flatten().collect();
    let (mut passed, mut skipped, mut failures) = (0, 0, Vec::new());
    for suite in units.iter().flatten().chain(&alone) {
        let name = suite.0;
        match &results[name] {
            Ok(counts) => {
                passed += counts.passed;
                skipped += counts.skipped;
            }
            // All others are done: this suite has the machine to itself.
            Err(error) => {
                let outcome = again(name, &format!("{name}: {error}"), || run(suite).1.map(drop));
                failures.extend(outcome.err());
            }
        }
    }
    println!("conformance: {passed} passed, {} failed, {skipped} skipped", failures.len());
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Runs a suite in a namespace of its own. It has to pass and skip as many tests as expected.
fn one((name, suite): &Named, program: &Program, expected: Counts) -> Outcome<Counts> {
    println!("-- {name}");
    let began = Instant::now();
    let counts = suite(&Namespace::new()?, program)?;
    let took = began.elapsed().as_secs_f64();
    println!("{name}: {} passed, {} skipped, {took:.0} s", counts.passed, counts.skipped);
    if counts == expected { Ok(counts) } else { Err(format!("{counts:?}, but {expected:?} are expected")) }
}

fn program() -> Outcome<Program> {
    let chosen = std::env::var("LARDER_CONFORMANCE_SERVER").unwrap_or_default();
    let larder = match &chosen[..] {
        "memcached" => {
            let memcached = which("memcached").ok_or("memcached is not installed")?;
            let words = vec![memcached.to_string_lossy().into_owned(), "-u".into(), "root".into()];
            return Ok(Program { words, is_redis: false });
        }
        "redis" => {
            let redis = peer("redis-server")?;
            println!("{}", version(&redis)?);
            return Ok(Program { words: vec![redis.to_string_lossy().into_owned()], is_redis: true });
        }
        "" => built("larder")?.to_string_lossy().into_owned(),
        path => path.to_owned(),
    };
    // No HTTP port: of two servers that run at once, one would print that it is taken, and suites read the output.
    let words = [&larder[..], SERVE, "--http-port", "0"].map(str::to_owned).to_vec();
    Ok(Program { words, is_redis: false })
}

/// The committed numbers of a suite in `spec/conformance.toml`.
pub fn expected_of(name: &str) -> Outcome<Counts> {
    expected()?.get(name).copied().ok_or_else(|| format!("spec/conformance.toml does not list {name}"))
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
