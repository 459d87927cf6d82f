//! Words that are retired from what users read: documents, the page, help of options, findings. Each has another in its place,
//! which memcached's and Redis's users know.

use super::Complaint;
use crate::run::{Outcome, root};
use std::fs;
use std::path::{Path, PathBuf};

/// Retired words, and what is said instead.
const RETIRED: &[(&str, &str)] = &[
    ("turned away", "refused"),
    ("one more hears", "one more is refused with"),
    ("changed hands", "was moved"),
    ("evicted unread", "evicted, never read"),
    ("span of 64", "block of 64"),
    ("spans of 64", "blocks of 64"),
    ("worth a visit", "due"),
    ("kept from a core", "waited for a processor"),
    ("passed by eviction", "eviction went over it"),
];

/// What users read: files, and folders of them.
const USERS: &[&str] = &[
    "README.md",
    "docs/clients.md",
    "docs/compatibility.md",
    "docs/go.md",
    "docs/lab.md",
    "docs/metrics.md",
    "docs/operating.md",
    "docs/options.md",
    "docs/redis.md",
    "dashboard/app.js",
    "dashboard/charts.js",
    "dashboard/forecast.js",
    "dashboard/index.html",
    "dashboard/latency.js",
    "dashboard/map.js",
    "crates/commands/src/core/findings.rs",
    "crates/server/src/extended.rs",
    "crates/server/src/options",
    "crates/server/tests/documents",
];

/// Retired words in what users read.
pub fn check(files: &[PathBuf]) -> Outcome<Vec<Complaint>> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| is_users(file)) {
        let text =
            fs::read_to_string(root().join(file)).map_err(|error| format!("{}: {error}", file.display()))?;
        for (index, line) in text.lines().enumerate() {
            let found = retired(line).map(|(word, instead)| format!("“{word}” is retired: say “{instead}”"));
            complaints.extend(found.map(|what| format!("{}:{}: {what}", file.display(), index + 1)));
        }
    }
    Ok(complaints)
}

fn is_users(file: &Path) -> bool {
    USERS.iter().any(|of| file.starts_with(of))
}

/// Retired words of a line that users read. A comment of the code is not for them.
fn retired(line: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let line = if line.trim_start().starts_with("//") { String::new() } else { line.to_lowercase() };
    RETIRED.iter().filter(move |(word, _)| line.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retired_words_are_found_in_what_users_read_alone() {
        let words = |line: &str| retired(line).map(|(word, _)| *word).collect::<Vec<_>>();
        assert_eq!(words("clients are Turned away, and it changed hands"), ["turned away", "changed hands"]);
        assert!(words("    /// clients are turned away").is_empty());
        assert!(words("clients are refused").is_empty());
        assert!(
            is_users(Path::new("docs/redis.md")) && is_users(Path::new("crates/server/src/options/rows.rs"))
        );
        assert!(!is_users(Path::new("docs/internals/slab.md")));
    }

    #[test]
    fn each_place_that_users_read_is_there() {
        for of in USERS {
            assert!(root().join(of).exists(), "{of}");
        }
        assert!(
            RETIRED
                .iter()
                .all(|(word, instead)| word == &word.to_lowercase() && retired(instead).next().is_none())
        );
    }
}
