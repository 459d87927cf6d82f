//! Figures of documents: each paragraph and each table with a figure has a line in docs/figures.md with its source.
//!
//! A line has words of the paragraph, and the source: a command that prints such figures, a file that fixes them or tests
//! them, or `beside it`, where the command stands in the same section of the document. The check complains of figures without
//! a source, of lines whose words are in no document, and of files that do not exist.

use super::Complaint;
use crate::run::{Outcome, root};
use std::fs;
use std::path::{Path, PathBuf};

/// The list of figures and sources.
const LIST: &str = "docs/figures.md";
/// Documents, and folders of them, whose figures have sources.
const DOCUMENTS: &[&str] = &[
    "README.md",
    "docs/clients.md",
    "docs/compatibility.md",
    "docs/frameworks.md",
    "docs/go.md",
    "docs/lab.md",
    "docs/lab",
    "docs/operating.md",
    "docs/redis.md",
    "docs/security.md",
];
/// Units: a number with one of these behind it is a figure.
const UNITS: &[&str] = &["µs", "ns", "ms", "%", "×", "/s", "times"];
/// Beginnings of commands that print figures.
const COMMANDS: &[&str] =
    &["larder lab ", "larder top", "cargo xtask ", "cargo bench ", "cargo run ", "go test "];
/// A source that stands in the document.
const BESIDE: &str = "beside it";

/// A line of the list.
#[derive(Debug, PartialEq, Eq)]
struct Row<'t> {
    line: usize,
    document: &'t str,
    words: &'t str,
    from: &'t str,
}

/// Compares the list with the documents, both ways.
pub fn check(files: &[PathBuf]) -> Outcome<Vec<Complaint>> {
    let read = |path: &Path| {
        fs::read_to_string(root().join(path)).map_err(|error| format!("{}: {error}", path.display()))
    };
    let list = read(Path::new(LIST))?;
    let rows = rows(&list);
    let (mut complaints, mut said) = (Vec::new(), vec![false; rows.len()]);
    for file in files.iter().filter(|file| is_document(file)) {
        let (name, text) = (file.display().to_string(), read(file)?);
        for (line, section, block) in blocks(&text) {
            let of = |row: &Row<'_>| row.document == name && block.contains(row.words);
            let mut found = rows.iter().enumerate().filter(|(_, row)| of(row)).peekable();
            if found.peek().is_none() {
                complaints.push(format!("{name}:{line}: a figure, of which {LIST} has no source"));
            }
            for (at, row) in found {
                said[at] = true;
                let wrong = wrong(row.from, section);
                complaints.extend(wrong.map(|why| format!("{LIST}:{}: {why}", row.line)));
            }
        }
    }
    for (row, _) in rows.iter().zip(said).filter(|(_, said)| !said) {
        let Row { line, document, words, .. } = row;
        complaints.push(format!("{LIST}:{line}: “{words}” is in no paragraph with a figure of {document}"));
    }
    Ok(complaints)
}

fn is_document(file: &Path) -> bool {
    file.extension().is_some_and(|kind| kind == "md") && DOCUMENTS.iter().any(|of| file.starts_with(of))
}

/// The lines of the list, each below the name of its document.
fn rows(list: &str) -> Vec<Row<'_>> {
    let (mut rows, mut document) = (Vec::new(), "");
    for (index, line) in list.lines().enumerate() {
        if let Some(name) = line.strip_prefix("## ") {
            document = name;
        }
        let cells = line.strip_prefix("| ").and_then(|rest| rest.strip_suffix(" |")?.split_once(" | "));
        if let Some((words, from)) = cells.filter(|(words, _)| *words != "words") {
            rows.push(Row { line: index + 1, document, words, from });
        }
    }
    rows
}

/// Paragraphs and tables that have a figure: the number of their first line, the section that they are in, and their text.
fn blocks(text: &str) -> Vec<(usize, &str, String)> {
    let mut all = Vec::new();
    for (number, section) in sections(text) {
        let (mut words, mut first, mut fenced) = (Vec::new(), 0, false);
        // An empty line behind the last one ends the last paragraph.
        for (index, line) in section.lines().chain([""]).enumerate() {
            let is_fence = line.trim_start().starts_with("```");
            fenced ^= is_fence;
            if !fenced && !is_fence && !line.trim().is_empty() {
                if words.is_empty() {
                    first = number + index;
                }
                words.extend(line.split_whitespace());
            } else if !words.is_empty() {
                all.push((first, section, words.join(" ")));
                words.clear();
            }
        }
    }
    all.retain(|(_, _, block)| has_figure(block));
    all
}

/// Parts that begin with a heading, and the numbers of their first lines.
fn sections(text: &str) -> Vec<(usize, &str)> {
    let (mut all, mut from, mut first) = (Vec::new(), 0, 1);
    let (mut at, mut fenced) = (0, false);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        fenced ^= line.trim_start().starts_with("```");
        if !fenced && line.starts_with('#') && at > from {
            all.push((first, &text[from..at]));
            (from, first) = (at, index + 1);
        }
        at += line.len();
    }
    all.push((first, &text[from..]));
    all
}

/// True if a text has a number with a unit.
fn has_figure(text: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(char::is_alphanumeric);
    text.match_indices(|letter: char| letter.is_ascii_digit()).any(|(at, digit)| {
        let rest = &text[at + digit.len()..];
        let rest = rest.strip_prefix(' ').unwrap_or(rest);
        UNITS.iter().any(|unit| rest.strip_prefix(unit).is_some_and(ends))
    })
}

/// What is wrong with the source of a paragraph in this section; `None` if nothing is.
fn wrong(from: &str, section: &str) -> Option<String> {
    if from.starts_with(BESIDE) {
        let stands = COMMANDS.iter().any(|command| section.contains(command));
        return (!stands).then(|| "no command stands beside it".to_owned());
    }
    let named: Vec<&str> = from.split('`').skip(1).step_by(2).collect();
    if named.is_empty() {
        return Some(format!("“{from}” names no command and no file"));
    }
    let is_wrong = |name: &&str| {
        !COMMANDS.iter().any(|command| name.starts_with(command)) && !root().join(name).exists()
    };
    named.into_iter().find(is_wrong).map(|name| format!("{name} is no command and no file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_a_number_with_a_unit() {
        for text in ["5.07 µs", "0.25×", "in 11,837/s.", "(3 %)", "4 times as much", "5 ms, or", "| 2 ns |"]
        {
            assert!(has_figure(text), "{text}");
        }
        for text in ["5 callers", "16 msec", "64 B", "at times", "1,024 keys", "% of 7"] {
            assert!(!has_figure(text), "{text}");
        }
    }

    #[test]
    fn paragraphs_and_tables_with_figures_are_found_with_their_sections() {
        let text = "# One\nA get takes\n3 µs.\n\nNothing here.\n## Two\n```\nlarder lab cas   # 5 ms\n```\n| a | b |\n|---|---|\n\
                    | 1 | 2 % |\n\n# Three\n";
        let found = blocks(text);
        let lines = found.iter().map(|(line, _, block)| (*line, block.as_str()));
        let lines: Vec<(usize, &str)> = lines.collect();
        // A heading without an empty line behind it is a part of its paragraph.
        assert_eq!(lines, [(1, "# One A get takes 3 µs."), (10, "| a | b | |---|---| | 1 | 2 % |")]);
        assert!(found[1].1.starts_with("## Two\n") && found[1].1.ends_with("2 % |\n\n"));
    }

    #[test]
    fn a_source_is_a_command_or_a_file_or_stands_beside() {
        let list = "# List\n\n## docs/a.md\n\n| words | from |\n|---|---|\n| takes 3 | `larder lab cas` |\n";
        let row = Row { line: 7, document: "docs/a.md", words: "takes 3", from: "`larder lab cas`" };
        assert_eq!(rows(list), [row]);
        let beside = "## Two\n```\nlarder lab cas\n```\n";
        for from in ["beside it, 2026", "`larder lab cas`", "`xtask/src/main.rs`, by `cargo bench -p x`"] {
            assert_eq!(wrong(from, beside), None, "{from}");
        }
        assert_eq!(wrong("beside it", "## Three\n").as_deref(), Some("no command stands beside it"));
        assert_eq!(wrong("a guess", beside).as_deref(), Some("“a guess” names no command and no file"));
        let gone = wrong("`xtask/src/gone.rs`", beside);
        assert_eq!(gone.as_deref(), Some("xtask/src/gone.rs is no command and no file"));
    }
}
