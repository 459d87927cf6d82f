//! Links between documents: each leads to a file of the tree, and one with `#` to a heading of that file or an `<a id="…">`.
//!
//! Links to other hosts are not followed, and code has no links.

use super::Complaint;
use crate::run::{Outcome, root};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Parts of generated documents: their links are relative to the document, which is elsewhere.
const TEMPLATES: &[&str] = &["crates/server/tests/documents", "xtask/src"];

/// Checks all documents.
pub fn check(files: &[PathBuf]) -> Outcome<Vec<Complaint>> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| is_document(file)) {
        let text = read(file)?;
        for (line, target) in links(&text) {
            let reason = match place(file, &target) {
                None => Some("leads out of the tree".to_owned()),
                Some((path, heading)) => dead(&path, heading.as_deref())?,
            };
            complaints.extend(reason.map(|reason| format!("{}:{line}: {target} {reason}", file.display())));
        }
    }
    Ok(complaints)
}

/// Whether a file is a document, and not a part of a generated one.
pub(super) fn is_document(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "md")
        && !TEMPLATES.iter().any(|folder| file.starts_with(folder))
}

fn read(file: &Path) -> Outcome<String> {
    fs::read_to_string(root().join(file)).map_err(|error| format!("{}: {error}", file.display()))
}

/// Why the target of a link does not exist; `None` if it does.
fn dead(path: &Path, heading: Option<&str>) -> Outcome<Option<String>> {
    if !root().join(path).exists() {
        return Ok(Some("does not exist".to_owned()));
    }
    let Some(heading) = heading.filter(|_| is_document(path)) else { return Ok(None) };
    Ok((!headings(&read(path)?).contains(heading)).then(|| "is no heading or anchor".to_owned()))
}

/// The file that a link in `from` leads to, relative to the root, and the heading; `None` if it is outside of the tree.
fn place(from: &Path, target: &str) -> Option<(PathBuf, Option<String>)> {
    let (path, heading) = match target.split_once('#') {
        Some((path, heading)) => (path, Some(heading.to_owned())),
        None => (target, None),
    };
    if path.is_empty() {
        return Some((from.to_owned(), heading));
    }
    let mut place = from.parent()?.to_owned();
    for part in Path::new(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                if !place.pop() {
                    return None;
                }
            }
            Component::Normal(name) => place.push(name),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some((place, heading))
}

/// Lines outside of fenced code, with their numbers.
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!fenced && !is_fence).then_some((index + 1, line))
    })
}

/// Targets of `[text](target)` and `![text](target)` that are not on another host, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Text between backquotes is code.
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for (at, _) in plain.match_indices("](") {
            let rest = &plain[at + 2..];
            let Some(end) = rest.find(')') else { continue };
            let target = rest[..end].split_whitespace().next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push((number, target.to_owned()));
            }
        }
    }
    found
}

/// Names that may follow `#`: those of anchors, and those of headings, in small letters, without punctuation, with a hyphen for
/// each space. The second heading of a name has `-1` behind it.
fn headings(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(text) {
        let anchors = line.split("<a id=\"").skip(1);
        found.extend(anchors.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
        let level = line.bytes().take_while(|byte| *byte == b'#').count();
        let Some(title) = line[level..].strip_prefix(' ').filter(|_| (1..=6).contains(&level)) else {
            continue;
        };
        let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
        let name: String = title.trim().to_lowercase().chars().filter(kept).collect();
        let name = name.replace(' ', "-");
        let again = (1..).map(|n| format!("{name}-{n}"));
        let free = std::iter::once(name.clone()).chain(again).find(|name| !found.contains(name));
        found.extend(free);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stand_in_prose_and_lead_to_the_tree() {
        let text = "[a](b.md) and ![c](d.png \"title\") `[no](code.md)` [`e`](f.md#g)\n```\n[no](fenced.md)\n```\n\
                    [other](https://example.org/x.md) [to](mailto:a@example.org) [here](#there)";
        let targets: Vec<(usize, String)> = links(text);
        let expected = [(1, "b.md"), (1, "d.png"), (1, "f.md#g"), (5, "#there")];
        assert_eq!(targets, expected.map(|(line, target)| (line, target.to_owned())));
    }

    #[test]
    fn a_link_is_relative_to_its_document() {
        let from = Path::new("docs/lab/cas.md");
        let to = |target: &str| place(from, target).map(|(path, _)| path.display().to_string());
        assert_eq!(to("matrix.md").as_deref(), Some("docs/lab/matrix.md"));
        assert_eq!(to("../../README.md#two-minutes").as_deref(), Some("README.md"));
        assert_eq!(to("#figures").as_deref(), Some("docs/lab/cas.md"));
        assert_eq!(to("../../../elsewhere.md"), None);
        assert_eq!(to("/etc/passwd"), None);
        assert_eq!(place(from, "a.md#b").and_then(|(_, heading)| heading).as_deref(), Some("b"));
    }

    #[test]
    fn a_dead_link_is_told() {
        let is_dead = |path: &str, heading| dead(Path::new(path), heading).expect("it is read").is_some();
        assert!(is_dead("docs/no-such-page.md", None));
        assert!(!is_dead("README.md", None) && !is_dead("docs/decisions", None));
        assert!(is_dead("README.md", Some("no-such-heading")) && !is_dead("README.md", Some("larder")));
    }

    #[test]
    fn anchors_have_names_and_headings_are_called_by_their_letters() {
        let text =
            "# One, `two` & three!\n## What *is* it?\n#no\n```\n# code\n```\n## What is it\n####### seven\n";
        let expected = ["one-two--three", "what-is-it", "what-is-it-1"];
        assert_eq!(headings(text), expected.map(str::to_owned).into());
        let text = "<a id=\"here\"></a>**Here** and <a id=\"there\">";
        assert_eq!(headings(text), ["here", "there"].map(str::to_owned).into());
    }
}
