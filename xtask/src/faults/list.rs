//! The list of faults in `spec/faults/`, and the test that caught each.
//!
//! ```text
//! == a tag that is a bit too short          what is wrong, in a few words; its name
//! file: crates/store/src/bucket.rs          where it is planted
//! suites: store, behaviour                  suites that are likely to notice, likeliest first
//! caught: store, a_tag_is_all_of_its_bits   written by the runner: the test that noticed; of a schedule, its seed too
//! reason: …                                 or, by hand: why no test can notice it
//!   a line that stays
//! - a line that goes
//! + a line that comes
//! ```
//!
//! A fault's lines are a small diff. The lines that stay or go must be in the file exactly once. An empty line inside the diff
//! stays.

use super::suite::UNNAMED;
use crate::run::{Outcome, root};
use std::fs;
use std::path::{Path, PathBuf};

/// One planted mistake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// What is wrong.
    pub name: String,
    /// The file that it is planted in.
    pub file: PathBuf,
    /// Suites that are tried first.
    pub suites: Vec<String>,
    /// The suite and test that noticed it.
    pub caught: Option<String>,
    /// Why it cannot matter.
    pub reason: Option<String>,
    /// The lines that are replaced.
    pub old: String,
    /// The new lines.
    pub new: String,
    /// The list that has the fault.
    pub list: PathBuf,
}

/// The folder of the lists.
fn directory() -> PathBuf {
    root().join("spec/faults")
}

/// All faults, list by list.
pub fn load() -> Outcome<Vec<Fault>> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory().display());
    let mut lists: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(directory()).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            lists.push(path);
        }
    }
    lists.sort();
    let mut faults = Vec::new();
    for list in lists {
        let text = fs::read_to_string(&list).map_err(|error| format!("{}: {error}", list.display()))?;
        faults.extend(parse(&text, &list)?);
    }
    Ok(faults)
}

fn parse(text: &str, list: &Path) -> Outcome<Vec<Fault>> {
    let mut faults: Vec<Fault> = Vec::new();
    // An empty line belongs to the diff if another line of it follows. Otherwise it ends the fault.
    let mut empty = 0;
    for (index, line) in text.lines().enumerate() {
        let wrong = |what: &str| format!("{}:{}: {what}", list.display(), index + 1);
        if let Some(name) = line.strip_prefix("== ") {
            faults.push(Fault { name: name.to_owned(), list: list.to_owned(), ..Fault::default() });
            empty = 0;
            continue;
        }
        let Some(fault) = faults.last_mut() else { continue };
        if line.is_empty() {
            empty += 1;
            continue;
        }
        if ["  ", "- ", "+ "].iter().any(|mark| line.starts_with(mark)) && !fault.old.is_empty() {
            (0..empty).for_each(|_| {
                add(&mut fault.old, "");
                add(&mut fault.new, "");
            });
        }
        empty = 0;
        let field = |name: &str| line.strip_prefix(name).map(|value| value.trim().to_owned());
        let both = line.strip_prefix("  ");
        if let Some(file) = field("file:") {
            fault.file = file.into();
        } else if let Some(suites) = field("suites:") {
            fault.suites = suites.split(", ").map(str::to_owned).collect();
        } else if let Some(caught) = field("caught:") {
            fault.caught = Some(caught);
        } else if let Some(reason) = field("reason:") {
            fault.reason = Some(reason);
        } else if let Some(old) = both.or(line.strip_prefix("- ")) {
            add(&mut fault.old, old);
            if both.is_some() {
                add(&mut fault.new, old);
            }
        } else if let Some(new) = line.strip_prefix("+ ") {
            add(&mut fault.new, new);
        } else {
            return Err(wrong("neither a field nor a line of a difference"));
        }
    }
    Ok(faults)
}

fn add(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

impl Fault {
    /// Whether it was never tried, and no reason says why it would pass.
    pub fn is_untried(&self) -> bool {
        self.caught.is_none() && self.reason.is_none()
    }

    /// The name of the test that noticed it, without its modules; `None` if none is noted.
    pub fn test(&self) -> Option<&str> {
        let told = self.caught.as_deref()?.split(", ").nth(1)?;
        if told.ends_with(UNNAMED) { None } else { told.rsplit([':', ' ']).next() }
    }

    /// The file's text with the fault in it.
    ///
    /// # Errors
    /// The replaced lines are not in the file exactly once.
    pub fn plant(&self, text: &str) -> Outcome<String> {
        // The lines must begin at the start of a line: a part of a line is another text.
        let places: Vec<usize> = text
            .match_indices(&self.old)
            .map(|(at, _)| at)
            .filter(|&at| at == 0 || text[..at].ends_with('\n'))
            .collect();
        match places[..] {
            _ if self.old.is_empty() || self.old == self.new => Err("changes nothing".to_owned()),
            [at] => Ok([&text[..at], &self.new, &text[at + self.old.len()..]].concat()),
            _ => Err(format!("what it replaces is {} times in {}", places.len(), self.file.display())),
        }
    }

    /// Notes in its list which test caught it; `None`: no test.
    pub fn note(&self, caught: Option<&str>) -> Outcome {
        let failed = |error: std::io::Error| format!("{}: {error}", self.list.display());
        let text = fs::read_to_string(&self.list).map_err(failed)?;
        fs::write(&self.list, noted(&text, &self.name, caught)).map_err(failed)
    }
}

/// The text of a list with this result for the fault of this name.
fn noted(text: &str, name: &str, caught: Option<&str>) -> String {
    let mut lines = String::new();
    let mut within = false;
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("== ") {
            within = title == name;
        }
        if within && line.starts_with("caught:") {
            continue;
        }
        add(&mut lines, line);
        if within && line.starts_with("suites:") {
            caught.iter().for_each(|caught| add(&mut lines, &format!("caught: {caught}")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "Words before.\n\n== one\nfile: a/b.rs\nsuites: store, loop\n  fn f() {\n\n-     1\n+     2\n\n== two\nfile: c.rs\nsuites: loop\nreason: none\n- x\n";

    fn faults() -> Vec<Fault> {
        parse(LIST, Path::new("list")).expect("a list")
    }

    #[test]
    fn a_list_is_read() {
        let faults = faults();
        assert_eq!(faults.len(), 2);
        assert_eq!(faults[0].old, "fn f() {\n\n    1\n");
        assert_eq!(faults[0].new, "fn f() {\n\n    2\n");
        assert_eq!(faults[0].suites, ["store", "loop"]);
        assert_eq!((faults[1].new.as_str(), faults[1].reason.as_deref()), ("", Some("none")));
        assert!(parse("== one\nwhat is this\n", Path::new("list")).is_err());
    }

    #[test]
    fn a_fault_is_planted_where_its_lines_are_once() {
        let fault = &faults()[0];
        assert_eq!(fault.plant("fn f() {\n\n    1\n}\n"), Ok("fn f() {\n\n    2\n}\n".to_owned()));
        assert!(fault.plant("fn g() {\n\n    1\n}\n").is_err());
        assert!(fault.plant("fn f() {\n\n    1\n}\nfn f() {\n\n    1\n}\n").is_err());
        let end = &faults()[1];
        assert_eq!(end.plant("xx\nx\n"), Ok("xx\n".to_owned()));
        assert!(Fault { new: "x\n".into(), ..end.clone() }.plant("x\n").is_err());
    }

    #[test]
    fn a_result_takes_the_place_of_the_one_before() {
        let once = noted(LIST, "one", Some("store, a_test"));
        assert!(once.contains("suites: store, loop\ncaught: store, a_test\n"));
        assert_eq!(noted(&once, "one", Some("store, a_test")), once);
        assert_eq!(noted(&once, "one", None), LIST);
        let test = |caught: &str| {
            Fault { caught: Some(caught.into()), ..Fault::default() }.test().map(str::to_owned)
        };
        assert_eq!(test("schedules, waiting::a_test, waiting seed 19").as_deref(), Some("a_test"));
        assert_eq!(test("store, no end after 310 s: a::b::a_test").as_deref(), Some("a_test"));
        assert_eq!(test("store, it failed"), None);
        assert_eq!(test("store, no end: it failed"), None);
    }
}
