//! Words that are retired from what users read: documents, the page, help of options, findings. Each has another in its place,
//! which memcached's and Redis's users know. Pronouns for people in comments about connections, threads and bytes. And names that
//! Rust code has given up.

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
    ("kept from a core", "waited for a core"),
    ("passed by eviction", "eviction went over it"),
];

/// Files that users read, and folders of them.
const USERS: &[&str] = &[
    "README.md",
    "SECURITY.md",
    "docs/clients.md",
    "docs/compatibility.md",
    "docs/frameworks.md",
    "docs/go.md",
    "docs/lab",
    "docs/lab.md",
    "docs/metrics.md",
    "docs/operating.md",
    "docs/options.md",
    "docs/redis.md",
    "docs/security.md",
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

/// Parts whose comments name each thing by its noun.
const PLAIN: &[&str] = &[
    "clients",
    "crates/benches",
    "crates/commands",
    "crates/eventloop",
    "crates/lab",
    "crates/larder",
    "crates/protocol",
    "crates/script",
    "crates/server",
    "crates/store",
    "crates/testkit",
    "crates/tls",
    "crates/trials",
    "fuzz",
    "spec",
    "xtask",
];

/// Names that Rust code had, and what it calls these things now.
const NAMES: &[(&str, &str)] = &[
    ("breathe", "leave_if_due"),
    ("is_tired", "budget_spent"),
    ("is_weary", "budget_nearly_spent"),
    ("Desk", "HttpServer"),
    ("Facts", "ClientFacts"),
    ("Hand", "EditContext"),
    ("Lately", "LastMinute"),
    ("Post", "Outbox"),
    ("Stranger", "UnauthenticatedClient"),
    ("Strangers", "Unauthenticated"),
    ("Told", "what it holds"),
];

/// The file that has these names, as words of a list.
const NAMES_FILE: &str = "xtask/src/tidy/words.rs";

/// Pronouns for people, which are refused where people are meant, too. Comments behind code are not searched, nor are inner lines
/// of a C comment that do not begin with `*`.
const PERSONS: &[&str] = &["who", "whom", "whoever", "nobody", "somebody", "someone", "everybody"];

/// Complains of retired words in what users read, of pronouns in comments of [`PLAIN`] parts, and of former names in Rust code.
pub fn check(files: &[PathBuf]) -> Outcome<Vec<Complaint>> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| is_users(file) || is_plain(file) || has_names(file)) {
        let text =
            fs::read_to_string(root().join(file)).map_err(|error| format!("{}: {error}", file.display()))?;
        for (index, line) in text.lines().enumerate() {
            let mut complain =
                |what: String| complaints.push(format!("{}:{}: {what}", file.display(), index + 1));
            if is_users(file) {
                for (word, instead) in retired(line) {
                    complain(format!("“{word}” is retired: say “{instead}”"));
                }
            }
            if is_plain(file)
                && let Some(word) = person(line)
            {
                complain(format!("“{word}” is for people: name the client, the connection or the thread"));
            }
            if has_names(file)
                && let Some((name, now)) = former(line)
            {
                complain(format!("{name} is a former name: it is {now}"));
            }
        }
    }
    Ok(complaints)
}

/// Whether a file is source whose comments are in plain words.
fn is_plain(file: &Path) -> bool {
    let kind = file.extension().unwrap_or_default();
    let is_source = kind == "rs" || kind == "go" || kind == "c" || kind == "h";
    is_source && PLAIN.iter().any(|of| file.starts_with(of))
}

/// The first pronoun for people in a line that is a comment.
fn person(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let is_comment = ["//", "/*", "* "].iter().any(|mark| line.starts_with(mark));
    let mut words = line.split(|letter: char| !letter.is_alphabetic()).filter(|_| is_comment);
    words.find(|word| PERSONS.contains(&word.to_lowercase().as_str()))
}

/// Whether a file is in Rust, and its names are looked at.
fn has_names(file: &Path) -> bool {
    file.extension().is_some_and(|kind| kind == "rs") && file != Path::new(NAMES_FILE)
}

/// The first former name in a line of code.
fn former(line: &str) -> Option<&'static (&'static str, &'static str)> {
    let is_comment = line.trim_start().starts_with("//");
    let mut names = NAMES.iter().filter(|(name, _)| !is_comment && line.contains(name));
    let parts = |letter: char| !letter.is_alphanumeric() && letter != '_';
    names.find(|(name, _)| line.split(parts).any(|word| word == *name))
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
    fn a_pronoun_for_people_is_found_in_comments_of_plain_parts_alone() {
        assert_eq!(person("    /// Wakes whoever waits."), Some("whoever"));
        assert_eq!(person(" * Who waits is woken."), Some("Who"));
        assert_eq!(person("// A chunk is nobody's."), Some("nobody"));
        assert_eq!(person("// The whole of it, and whose it is."), None);
        assert_eq!(person("    let who = waits(); // It is woken."), None);
        assert!(is_plain(Path::new("clients/go/lease.go")) && is_plain(Path::new("xtask/src/tidy.rs")));
        assert!(is_plain(Path::new("crates/commands/src/lib.rs")));
        assert!(!is_plain(Path::new("dashboard/app.js")));
        assert!(!is_plain(Path::new("xtask/Cargo.toml")));
    }

    #[test]
    fn a_former_name_is_found_as_a_whole_word_of_code() {
        assert_eq!(former("    let told = Told::default();").map(|(name, _)| *name), Some("Told"));
        assert_eq!(former("if work.is_weary() {").map(|(_, now)| *now), Some("budget_nearly_spent"));
        assert!(former("    // Told to stop, it stops.").is_none() && former("struct Untold;").is_none());
        assert!(former("fn is_weary_of_it() {}").is_none());
        assert!(has_names(Path::new("xtask/src/tidy.rs")) && !has_names(Path::new(NAMES_FILE)));
        assert!(!has_names(Path::new("clients/go/lease.go")));
    }

    #[test]
    fn each_place_that_is_checked_is_there() {
        for of in USERS.iter().chain(PLAIN).chain(&[NAMES_FILE]) {
            assert!(root().join(of).exists(), "{of}");
        }
        assert!(
            RETIRED
                .iter()
                .all(|(word, instead)| word == &word.to_lowercase() && retired(instead).next().is_none())
        );
    }
}
