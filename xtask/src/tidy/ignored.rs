//! Tests outside of the gate: each says why, and docs/testing.md lists them with the stage that runs them.

use super::{Complaint, files};
use crate::run::{Outcome, root};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// What such a test depends on, and what that means.
const KINDS: &[(&str, &str)] = &[
    ("time", "it judges how long something takes, or fails where a thread is off its core for seconds"),
    ("memory", "it judges what a process holds in memory at one moment or ever held, or needs gigabytes"),
    ("cores", "it needs several cores that do nothing else"),
    ("peers", "it starts other people's programs"),
    ("browser", "it drives Chromium"),
    ("network", "it installs packages"),
    ("again", "it runs tests of the gate once more, with other options"),
];

const INTRO: &str = include_str!("testing_intro.md");

/// An ignored test.
#[derive(Debug, PartialEq, Eq)]
struct Ignored {
    file: String,
    name: String,
    kind: String,
    reason: String,
}

impl Ignored {
    /// The stage of `cargo xtask test --all` that runs it.
    fn stage(&self) -> &'static str {
        let of_lab = ["crates/larder/", "crates/lab/"].iter().any(|folder| self.file.starts_with(folder));
        let of_clients = ["lab_matrix.rs", "lab_clients.rs"].iter().any(|file| self.file.ends_with(file));
        let of_page = self.file.starts_with("crates/larder/tests/all/in_browser");
        match () {
            () if of_page => "conformance (`page`)",
            () if of_clients => "clients (`lab`)",
            () if of_lab => "lab",
            () => "timed",
        }
    }
}

/// Ignored tests of a file. A test that does not say why in the form `kind: reason` is a complaint.
fn of_text(file: &str, text: &str) -> Vec<Result<Ignored, Complaint>> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(rest) = line.strip_prefix("#[ignore") else { continue };
        let reason = rest.strip_prefix(" = \"").and_then(|rest| rest.strip_suffix("\"]")).unwrap_or_default();
        let name = lines[at..].iter().find_map(|line| line.strip_prefix("fn ")?.split('(').next());
        found.push(match (reason.split_once(": "), name) {
            (Some((kind, reason)), Some(name)) if KINDS.iter().any(|(known, _)| *known == kind) => {
                Ok(Ignored {
                    file: file.to_owned(),
                    name: name.to_owned(),
                    kind: kind.to_owned(),
                    reason: reason.to_owned(),
                })
            }
            _ => Err(format!(
                "{file}:{}: an ignored test says why: #[ignore = \"kind: reason\"], of {}",
                at + 1,
                kinds(),
            )),
        });
    }
    found
}

/// Names of kinds, for people.
fn kinds() -> String {
    KINDS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Files that tests may be in, and their texts.
fn sources() -> Outcome<Vec<(String, String)>> {
    let mut sources = Vec::new();
    for file in files()? {
        let is_test = file.extension().is_some_and(|extension| extension == "rs")
            && ["crates", "clients"].iter().any(|folder| file.starts_with(Path::new(folder)));
        if is_test {
            let text = fs::read_to_string(root().join(&file))
                .map_err(|error| format!("{}: {error}", file.display()))?;
            sources.push((file.to_string_lossy().into_owned(), text));
        }
    }
    Ok(sources)
}

fn all() -> Outcome<Vec<Result<Ignored, Complaint>>> {
    Ok(sources()?.iter().flat_map(|(file, text)| of_text(file, text)).collect())
}

/// Names of the gate's tests: those that are not ignored.
pub fn in_gate() -> Outcome<BTreeSet<String>> {
    Ok(sources()?.iter().flat_map(|(_, text)| tests(text)).collect())
}

/// Names of a file's tests that are not ignored: functions below a line `#[test]`, with any other attributes between.
fn tests(text: &str) -> Vec<String> {
    let (mut is_test, mut found) = (false, Vec::new());
    for line in text.lines().map(str::trim) {
        if line == "#[test]" {
            is_test = true;
        } else if line.starts_with("#[ignore") {
            is_test = false;
        } else if let Some(name) = line.strip_prefix("fn ") {
            found.extend(name.split('(').next().filter(|_| is_test).map(str::to_owned));
            is_test = false;
        }
    }
    found
}

/// Complains of ignored tests that do not say why.
pub fn check() -> Outcome<Vec<Complaint>> {
    Ok(all()?.into_iter().filter_map(Result::err).collect())
}

/// The text of docs/testing.md.
pub fn document() -> Outcome<String> {
    let mut page = format!("# Testing\n\n{}\n{}\n", super::documents::NOTE, INTRO.trim_end());
    page.push_str("\n| kind | a test is of it when |\n|---|---|\n");
    for (kind, meaning) in KINDS {
        // Writing into a string cannot fail.
        let _ = writeln!(page, "| {kind} | {meaning} |");
    }
    let mut rows: Vec<Ignored> = all()?.into_iter().filter_map(Result::ok).collect();
    rows.sort_by(|one, other| (&one.file, &one.name).cmp(&(&other.file, &other.name)));
    let _ = write!(
        page,
        "\n{} tests:\n\n| file | test | kind | reason | stage |\n|---|---|---|---|---|\n",
        rows.len()
    );
    for row in &rows {
        let _ = writeln!(
            page,
            "| `{}` | `{}` | {} | {} | {} |",
            row.file,
            row.name,
            row.kind,
            row.reason,
            row.stage()
        );
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_of_the_gate_is_no_other_function_and_is_not_ignored() {
        let text = "#[test]\n#[should_panic = \"x\"]\nfn one() {\n    fn two() {}\n}\n#[test]\n#[ignore = \"time: it waits\"]\nfn three() {}\n    #[test]\n    fn four(n in 0..9) {}\n";
        assert_eq!(tests(text), ["one", "four"]);
    }

    #[test]
    fn an_ignored_test_says_why() {
        let text = "#[test]\n#[ignore = \"time: it waits\"]\nfn one() {}\n\n#[test]\n#[ignore]\nfn two() {}\n#[ignore = \"slow\"]\nfn three() {}\n";
        let found = of_text("a.rs", text);
        let one = Ignored {
            file: "a.rs".into(),
            name: "one".into(),
            kind: "time".into(),
            reason: "it waits".into(),
        };
        assert_eq!(found[0].as_ref(), Ok(&one));
        assert!(found[1].as_ref().unwrap_err().starts_with("a.rs:6: "));
        assert!(found[2].as_ref().unwrap_err().starts_with("a.rs:8: "));
        assert_eq!(found.len(), 3);
    }
}
