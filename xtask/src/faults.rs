//! `cargo xtask faults [--untried | name…]`: plants faults in a copy of the tree, one by one, and finds the test that notices
//! each.
//!
//! The copy is a clone of the committed tree below the target directory, with a build of its own that is kept. A fault costs the
//! build of what depends on it, and the suites until one fails. First every suite runs without a fault: a suite that fails anyway
//! notices nothing. A fault that no test notices needs a test, or a reason why it cannot matter.

mod list;
mod suite;

use crate::run::{Outcome, capture, command, root, run, target};
use crate::tidy;
use list::Fault;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use suite::{End, Patience, SUITES, Slow, Suite};

/// A suite with a fault may take this many times as long as without.
const SLOWER: u32 = 5;
/// A suite with a fault may take at least this long.
const PATIENCE: Duration = Duration::from_secs(90);
/// A suite without a fault that takes this long hangs.
const HANGS: Duration = Duration::from_secs(1200);

/// Tries the faults whose names contain one of `names`, those that were never tried (`--untried`), or all. Writes the results
/// into their lists and the document.
///
/// # Errors
/// A fault could not be tried, or no test notices it and no reason says why it cannot matter.
pub fn faults(names: &[String]) -> Outcome {
    let all = list::load()?;
    let wanted = |fault: &&Fault| match names {
        [] => true,
        [untried] if untried == "--untried" => fault.is_untried(),
        names => names.iter().any(|name| fault.name.contains(name.as_str())),
    };
    let chosen: Vec<&Fault> = all.iter().filter(wanted).collect();
    if chosen.is_empty() {
        return Err("there is no such fault".to_owned());
    }
    let mut scratch = Scratch::new()?;
    let (mut wrong, mut untold) = (Vec::new(), Vec::new());
    for fault in &chosen {
        let started = Instant::now();
        println!("\n== {}", fault.name);
        let caught = match scratch.show(fault) {
            Ok(caught) => caught,
            // This fault gets no result; the other faults are tried.
            Err(error) => {
                println!("{error}");
                untold.push(format!("{}: {error}", fault.name));
                continue;
            }
        };
        println!(
            "{}, after {:.0} s",
            caught.as_deref().unwrap_or("NOTICED BY NOBODY"),
            started.elapsed().as_secs_f64()
        );
        fault.note(caught.as_deref())?;
        if caught.is_none() && fault.reason.is_none() {
            wrong.push(fault.name.clone());
        }
    }
    tidy::write()?;
    println!("\n{} faults tried, {} noticed by no test and without a reason", chosen.len(), wrong.len());
    if wrong.is_empty() && untold.is_empty() {
        return Ok(());
    }
    Err(format!("noticed by no test: {}\nnot tried: {}", wrong.join("; "), untold.join("; ")))
}

/// A copy of the tree, and how long each suite takes in it.
#[derive(Debug)]
struct Scratch {
    tree: PathBuf,
    build: PathBuf,
    takes: BTreeMap<&'static str, (Duration, Slow)>,
}

impl Scratch {
    /// Clones the committed tree once, and brings it up to date.
    fn new() -> Outcome<Scratch> {
        let home = target().join("faults");
        let (tree, build) = (home.join("tree"), home.join("build"));
        let (works, head) = capture(command("git", &["rev-parse", "HEAD"]))?;
        if !works {
            return Err(format!("git rev-parse: {head}"));
        }
        let place = tree.to_string_lossy().into_owned();
        if !tree.join(".git").exists() {
            fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
            let from = root().to_string_lossy().into_owned();
            run(command("git", &["clone", "--quiet", "--shared", "--no-checkout", &from, &place]))?;
        }
        run(command("git", &["-C", &place, "checkout", "--quiet", "--force", "--detach", head.trim()]))?;
        Ok(Scratch { tree, build, takes: BTreeMap::new() })
    }

    /// Tries a fault; returns the suite and test that notice it, or `None` if all pass.
    fn show(&mut self, fault: &Fault) -> Outcome<Option<String>> {
        let named = fault.suites.iter().map(|name| {
            Suite::named(name).ok_or_else(|| format!("{}: there is no suite {name}", fault.name))
        });
        let mut suites = named.collect::<Outcome<Vec<&Suite>>>()?;
        suites.extend(SUITES.iter().filter(|suite| !fault.suites.iter().any(|name| name == suite.name)));
        // A fault that is known to pass unnoticed is tried with its own suites alone.
        if fault.reason.is_some() {
            suites.truncate(fault.suites.len());
        }
        let path = self.tree.join(&fault.file);
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let sound = fs::read_to_string(&path).map_err(failed)?;
        let faulty = fault.plant(&sound).map_err(|error| format!("{}: {error}", fault.name))?;
        for suite in suites {
            let patience = self.patience(suite)?;
            let mut end = self.planted(suite, &patience, &path, [&faulty, &sound])?;
            if let End::Endless(test) = &end {
                // On a busy machine any suite may be late. So it has to pass without the fault, and to be late again with it.
                println!("  {} is late: {test}", suite.name);
                match suite.run(&self.tree, &self.build, &patience)?.0 {
                    End::Passed => end = self.planted(suite, &patience, &path, [&faulty, &sound])?,
                    other => return Err(format!("{} is late, and {other:?} without a fault", suite.name)),
                }
            }
            match end {
                End::Passed => println!("  {} passes", suite.name),
                End::Noticed(test) => return Ok(Some(format!("{}, {test}", suite.name))),
                End::Endless(test) => return Ok(Some(format!("{}, no end: {test}", suite.name))),
                End::DoesNotBuild(error) => return Err(format!("{} does not build: {error}", fault.name)),
            }
        }
        Ok(None)
    }

    /// Runs a suite with the fault in the file, and restores the file.
    fn planted(
        &self,
        suite: &Suite,
        patience: &Patience,
        path: &Path,
        [faulty, sound]: [&str; 2],
    ) -> Outcome<End> {
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        fs::write(path, faulty).map_err(failed)?;
        let end = suite.run(&self.tree, &self.build, patience);
        fs::write(path, sound).map_err(failed)?;
        Ok(end?.0)
    }

    /// How long a suite may take. Without a fault it has to pass, and its slow tests are noted.
    fn patience(&mut self, suite: &'static Suite) -> Outcome<Patience> {
        if !self.takes.contains_key(suite.name) {
            let hangs = Patience { limit: HANGS, known: None };
            // The first run builds it, so that the second is the one that is timed.
            for again in [false, true] {
                let started = Instant::now();
                match suite.run(&self.tree, &self.build, &hangs)? {
                    (End::Passed, slow) if again || started.elapsed() < PATIENCE => {
                        self.takes.insert(suite.name, (started.elapsed(), slow));
                        break;
                    }
                    (End::Passed, _) => {}
                    (End::Noticed(test), _) => {
                        return Err(format!("{} fails without a fault: {test}", suite.name));
                    }
                    (End::Endless(test), _) => {
                        return Err(format!("{} comes to no end without a fault: {test}", suite.name));
                    }
                    (End::DoesNotBuild(error), _) => {
                        return Err(format!("{} does not build: {error}", suite.name));
                    }
                }
            }
            let (took, _) = &self.takes[suite.name];
            println!("  {} takes {:.0} s without a fault", suite.name, took.as_secs_f64());
        }
        let (took, slow) = &self.takes[suite.name];
        Ok(Patience { limit: (*took * SLOWER).max(PATIENCE), known: Some(slow.clone()) })
    }
}

/// Checks the lists: what a fault replaces has to be in its file, and the test that noticed it has to be in the gate.
pub fn check() -> Outcome<Vec<String>> {
    let mut complaints = Vec::new();
    let (all, tests) = (list::load()?, tidy::in_gate()?);
    for (index, fault) in all.iter().enumerate() {
        let mut complain = |what: String| complaints.push(format!("fault {:?}: {what}", fault.name));
        match fs::read_to_string(root().join(&fault.file)) {
            Ok(text) => drop(fault.plant(&text).map_err(&mut complain)),
            Err(error) => complain(format!("{}: {error}", fault.file.display())),
        }
        for name in fault.suites.iter().filter(|name| Suite::named(name).is_none()) {
            complain(format!("there is no suite {name}"));
        }
        if all[..index].iter().any(|other| other.name == fault.name) {
            complain("another one has this name".to_owned());
        }
        if fault.suites.is_empty() {
            complain("names no suite".to_owned());
        }
        match (&fault.caught, fault.test()) {
            (Some(caught), None) => complain(format!("{caught:?} names no test: try it again")),
            (_, Some(test)) if !tests.contains(test) => {
                complain(format!("{test} noticed it, which is no test of the gate"));
            }
            _ => {}
        }
    }
    Ok(complaints)
}

/// Counts the faults that the gate catches, and those that only other tests catch.
fn counts(all: &[Fault], gate: &BTreeSet<String>) -> String {
    let count = |is: &dyn Fn(&Fault) -> bool| all.iter().filter(|fault| is(fault)).count();
    let caught = count(&|fault| fault.test().is_some());
    let by_gate = count(&|fault| fault.test().is_some_and(|test| gate.contains(test)));
    let untested = count(&|fault| fault.caught.is_none() && fault.reason.is_some());
    format!(
        "\nOf {} faults the gate (`cargo xtask test`) catches {by_gate}, and `cargo xtask test --all` alone {}. No test \
         catches {untested}, with the reason; {} have not been tried.\n",
        all.len(),
        caught - by_gate,
        all.len() - caught - untested
    )
}

/// The document that says how many faults of each list are noticed.
pub fn document() -> Outcome<String> {
    let mut page = include_str!("faults/intro.md").to_owned();
    let (all, tests) = (list::load()?, tidy::in_gate()?);
    page.push_str(&counts(&all, &tests));
    page.push_str("\n| list | faults | noticed | no test, with the reason | not tried |\n");
    page.push_str("|---|---|---|---|---|\n");
    for faults in all.chunk_by(|one, other| one.list == other.list) {
        let name = faults[0].list.file_name().unwrap_or_default().to_string_lossy();
        let count = |is: fn(&Fault) -> bool| faults.iter().filter(|fault| is(fault)).count();
        let noticed = count(|fault| fault.test().is_some());
        let reasons = count(|fault| fault.caught.is_none() && fault.reason.is_some());
        let untried = faults.len() - noticed - reasons;
        // Writing into a string cannot fail.
        let _ = writeln!(page, "| `{name}` | {} | {noticed} | {reasons} | {untried} |", faults.len());
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_counted_by_who_catches_them() {
        let fault = |caught: Option<&str>, reason: Option<&str>| Fault {
            caught: caught.map(str::to_owned),
            reason: reason.map(str::to_owned),
            ..Fault::default()
        };
        let all = [
            fault(Some("store, a::one"), None),
            fault(Some("lab, two"), None),
            fault(None, Some("none")),
            fault(None, None),
            fault(Some("store, it failed"), None),
        ];
        let said = counts(&all, &BTreeSet::from(["one".to_owned()]));
        let wanted = "\nOf 5 faults the gate (`cargo xtask test`) catches 1, and `cargo xtask test --all` alone 1. No test \
                      catches 1, with the reason; 2 have not been tried.\n";
        assert_eq!(said, wanted);
    }
}
