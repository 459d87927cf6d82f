//! Paths between backquotes in documents: each names a file or a folder of the tree, from the root on or from any folder on
//! (`tidy/paths.rs`).
//!
//! A word is a path of a file if its name ends like one of [`KINDS`], and of a folder if it ends with `/` and names two or more.
//! A name without a folder is looked at if it is one of Rust's. Absolute paths, and words with blanks or other signs (`:`, `*`,
//! `<`), are no paths of the tree.

use super::Complaint;
use super::links::{is_document, prose};
use crate::attack;
use crate::run::{Outcome, root};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// How the names of files end that documents refer to.
const KINDS: &[&str] =
    &["c", "css", "go", "h", "html", "js", "list", "lua", "md", "png", "py", "rs", "sh", "toml", "txt"];

/// Files that a command writes where it is asked to: documents name them before that, too.
const WRITTEN: &[&str] = &[attack::DOCUMENT];

/// Complains of paths that lead nowhere.
pub fn check(files: &[PathBuf]) -> Outcome<Vec<Complaint>> {
    let places = places(files);
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| is_document(file)) {
        let text =
            fs::read_to_string(root().join(file)).map_err(|error| format!("{}: {error}", file.display()))?;
        for (line, path) in paths(&text) {
            if !is_known(&places, path) {
                complaints.push(format!("{}:{line}: {path} is not in the tree", file.display()));
            }
        }
    }
    Ok(complaints)
}

/// Whether a path is of a file or a folder of the tree, or of a file that a command is to write.
fn is_known(places: &BTreeSet<String>, path: &str) -> bool {
    places.contains(path) || WRITTEN.contains(&path)
}

/// The ends of the paths of all files and folders, from any of their folders on. Behind a folder there is a `/`.
fn places(files: &[PathBuf]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for file in files {
        for (above, place) in file.ancestors().enumerate() {
            let path = format!("{}{}", place.display(), if above == 0 { "" } else { "/" });
            let starts = path.match_indices('/').map(|(at, _)| at + 1).chain([0]);
            found.extend(starts.map(|start| path[start..].to_owned()));
        }
    }
    found
}

/// Paths in a document, with their lines.
fn paths(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let words = line.split('`').skip(1).step_by(2).filter(|word| is_path(word));
        found.extend(words.map(|word| (number, word)));
    }
    found
}

/// Whether a word is to name something of the tree.
fn is_path(word: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_.-/".contains(letter);
    if word.starts_with('/') || !word.chars().all(is_plain) {
        return false;
    }
    let folders = word.matches('/').count();
    if word.ends_with('/') {
        return folders > 1;
    }
    let kind = Path::new(word).extension().and_then(OsStr::to_str).unwrap_or_default();
    KINDS.contains(&kind) && (folders > 0 || kind == "rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stand_between_backquotes_in_prose() {
        let text = "see `a/b.rs`, a/c.rs and `x y/z.rs`; `lib.rs`\n```\n`a/fenced.rs`\n```\n\
                    `a/b/` beside `a/` and `c.d`";
        assert_eq!(paths(text), [(1, "a/b.rs"), (1, "lib.rs"), (5, "a/b/")]);
    }

    #[test]
    fn words_that_are_no_paths_of_the_tree_are_left_alone() {
        for word in ["/proc/self/maps.txt", "target/", "users.txt", "a/b", "crate::a/b.rs", "a/*.rs", ""] {
            assert!(!is_path(word), "{word}");
        }
        for word in ["a/users.txt", "docs/lab/", "b.rs", "a-b/c_d.toml"] {
            assert!(is_path(word), "{word}");
        }
    }

    #[test]
    fn a_path_is_known_from_any_folder_on() {
        let places = places(&["a/b/c.rs", "a/d.md"].map(PathBuf::from));
        for path in ["a/b/c.rs", "b/c.rs", "c.rs", "a/d.md", "a/b/", "b/"] {
            assert!(places.contains(path), "{path}");
        }
        for path in ["d/c.rs", "a/c.rs", "a/b", "a/d.md/", "x/a/"] {
            assert!(!places.contains(path), "{path}");
        }
    }

    #[test]
    fn what_a_command_writes_is_known_before_and_nothing_else() {
        let places = places(&["docs/internals/slab.md"].map(PathBuf::from));
        for path in ["docs/internals/attacks.md", "docs/internals/slab.md"] {
            assert!(is_known(&places, path), "{path}");
        }
        for path in ["docs/internals/attack.md", "attacks.md"] {
            assert!(!is_known(&places, path), "{path}");
        }
    }
}
