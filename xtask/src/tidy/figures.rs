//! Figures of documents: each paragraph and each table with a figure has a line in docs/figures.md with its source.
//!
//! A line has words of the paragraph, and the source: a command that prints such figures, a file that fixes them or tests
//! them, or `beside it` and a day, where the command stands in the same section of the document. The check complains of figures
//! without a source, of lines whose words are in no document, of files that do not exist, and of commands with `--quick` or
//! fewer rounds than an interval takes, unless the line has a reason behind `few rounds:`. All documents are checked but those
//! of [`LEFT_OUT`]. A decision is of its day: a line with `all` in place of words is for each of its figures.

use super::Complaint;
use crate::run::{Outcome, root};
use std::fs;
use std::path::{Path, PathBuf};

/// The list of figures and sources.
const LIST: &str = "docs/figures.md";
/// Documents, and folders of them, whose figures have sources.
const DOCUMENTS: &[&str] = &["ARCHITECTURE.md", "README.md", "SECURITY.md", "docs"];
/// Documents whose figures have none in the list: the list itself, and what one command writes, which it names.
const LEFT_OUT: &[&str] = &[LIST, crate::attack::DOCUMENT];
/// The folder of the documents for which one line may stand for all figures.
const DECISIONS: &str = "docs/decisions";
/// What such a line has in place of words.
const ALL: &str = "all";
/// Units: a number with one of these behind it is a figure.
const UNITS: &[&str] = &["µs", "ns", "ms", "%", "×", "/s", "times", "B", "KiB", "MiB"];
/// Beginnings of commands that print figures.
const COMMANDS: &[&str] =
    &["larder lab ", "larder top", "cargo xtask ", "cargo bench ", "cargo run ", "go test "];
/// A source that stands in the document; behind it is the day of its figures.
const BESIDE: &str = "beside it";
/// What stands in front of the reason for which figures need no full run.
const FEW: &str = "few rounds:";
/// Rounds that an interval of the lab takes.
const ROUNDS_MIN: u32 = 6;

/// A line of the list.
#[derive(Debug, PartialEq, Eq)]
struct Row<'t> {
    line: usize,
    document: &'t str,
    words: &'t str,
    from: &'t str,
}

impl Row<'_> {
    /// Whether this line is for this paragraph of a document. [`ALL`] is never words of a paragraph: most have these letters.
    fn is_for(&self, document: &str, block: &str) -> bool {
        let fits = match self.words {
            ALL => Path::new(document).starts_with(DECISIONS),
            words => block.contains(words),
        };
        self.document == document && fits
    }
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
            let of = |row: &Row<'_>| row.is_for(&name, &block);
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
    let is_left_out = LEFT_OUT.iter().any(|name| file == Path::new(name));
    let is_one = file.extension().is_some_and(|kind| kind == "md");
    is_one && !is_left_out && DOCUMENTS.iter().any(|of| file.starts_with(of))
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
    let (source, reason) = match from.split_once(FEW) {
        Some((source, reason)) => (source, Some(reason.trim())),
        None => (from, None),
    };
    let named: Vec<&str> = source.split('`').skip(1).step_by(2).collect();
    let is_wrong = |name: &&str| !is_command(name) && !root().join(name).exists();
    if let Some(name) = named.iter().copied().find(is_wrong) {
        return Some(format!("{name} is no command and no file"));
    }
    let commands = if source.starts_with(BESIDE) {
        if !has_day(source) {
            return Some(format!("“{BESIDE}” has no day behind it, such as 2026-11-30"));
        }
        commands(section)
    } else if named.is_empty() {
        return Some(format!("“{source}” names no command and no file"));
    } else {
        named.into_iter().filter(|name| is_command(name)).map(str::to_owned).collect()
    };
    if commands.is_empty() && source.starts_with(BESIDE) {
        return Some("no command stands beside it".to_owned());
    }
    match (commands.into_iter().find(|command| is_short(command)), reason) {
        (None, None) => None,
        (None, Some(_)) => Some(format!("“{FEW}”, but no command has fewer than {ROUNDS_MIN}")),
        (Some(_), Some(reason)) if !reason.is_empty() => None,
        (Some(short), None | Some(_)) => {
            Some(format!("{short} is no full run of {ROUNDS_MIN} rounds, and “{FEW}” has no reason for it"))
        }
    }
}

fn is_command(text: &str) -> bool {
    COMMANDS.iter().any(|command| text.starts_with(command))
}

/// True if a text has a day: 2026-11-30.
fn has_day(text: &str) -> bool {
    let mut words = text.split(|letter: char| !letter.is_ascii_digit() && letter != '-');
    words.any(|word| word.split('-').map(str::len).eq([4, 2, 2]))
}

/// The commands that print figures in a section: those of its blocks of code and those within its sentences.
fn commands(section: &str) -> Vec<String> {
    let (mut all, mut prose, mut fenced) = (Vec::new(), String::new(), false);
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    // A command may go on in the next line.
    for line in section.replace("\\\n", " ").lines() {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        if fenced && !is_fence {
            let code = line.split_once(" #").map_or(line, |(code, _)| code);
            all.push(squeezed(code.strip_prefix("$ ").unwrap_or(code)));
        } else if !is_fence {
            prose.push_str(line);
            prose.push(' ');
        }
    }
    all.extend(prose.split('`').skip(1).step_by(2).map(squeezed));
    all.retain(|text| is_command(text));
    all
}

/// True if a command asks for a first look, or for fewer rounds than an interval takes.
fn is_short(command: &str) -> bool {
    let words: Vec<&str> = command.split([' ', '=']).collect();
    let few = |pair: &[&str]| {
        pair[0] == "--rounds" && pair[1].parse::<u32>().is_ok_and(|rounds| rounds < ROUNDS_MIN)
    };
    words.contains(&"--quick") || words.windows(2).any(few)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_documents_are_checked_but_the_list_and_what_a_command_writes() {
        for name in ["README.md", "docs/metrics.md", "docs/internals/item.md", "docs/lab/cas.md"] {
            assert!(is_document(Path::new(name)), "{name}");
        }
        for name in ["docs/figures.md", "docs/internals/attacks.md", "docs/page.png", "spec/README.md"] {
            assert!(!is_document(Path::new(name)), "{name}");
        }
    }

    #[test]
    fn one_line_is_for_all_figures_of_a_decision_and_of_no_other_document() {
        let is = |document, words, of| {
            let row = Row { line: 1, document, words, from: "" };
            row.is_for(of, "all of it takes 3 µs")
        };
        let (decision, other) = ("docs/decisions/0001-a.md", "docs/internals/item.md");
        assert!(is(decision, "all", decision));
        assert!(!is(decision, "all", other) && !is(other, "all", other));
        assert!(is(other, "takes 3", other) && !is(other, "takes 4", other));
    }

    #[test]
    fn a_figure_is_a_number_with_a_unit() {
        for text in [
            "5.07 µs",
            "0.25×",
            "in 11,837/s.",
            "(3 %)",
            "4 times as much",
            "5 ms, or",
            "| 2 ns |",
            "64 B",
            "16 KiB each",
            "1 MiB.",
        ] {
            assert!(has_figure(text), "{text}");
        }
        for text in ["5 callers", "16 msec", "64 Bytes", "64 MB", "at times", "1,024 keys", "% of 7", "B 2"] {
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
        for from in
            ["beside it, 2026-11-30", "`larder lab cas`", "`xtask/src/main.rs`, by `cargo bench -p x`"]
        {
            assert_eq!(wrong(from, beside), None, "{from}");
        }
        let none = wrong("beside it, 2026-11-30", "## Three\n");
        assert_eq!(none.as_deref(), Some("no command stands beside it"));
        assert_eq!(wrong("a guess", beside).as_deref(), Some("“a guess” names no command and no file"));
        let gone = wrong("`xtask/src/gone.rs`", beside);
        assert_eq!(gone.as_deref(), Some("xtask/src/gone.rs is no command and no file"));
    }

    #[test]
    fn what_stands_beside_has_a_day() {
        let beside = "## Two\n```\nlarder lab cas\n```\n";
        for from in ["beside it, 2026-11-30", "beside it: of one machine, 2026-11-30, and more"] {
            assert_eq!(wrong(from, beside), None, "{from}");
        }
        for from in ["beside it", "beside it, 2026", "beside it, 2026-11", "beside it, 30-11-2026"] {
            let why = "“beside it” has no day behind it, such as 2026-11-30";
            assert_eq!(wrong(from, beside).as_deref(), Some(why), "{from}");
        }
        let gone = wrong("beside it, 2026-11-30, and `xtask/src/gone.rs`", beside);
        assert_eq!(gone.as_deref(), Some("xtask/src/gone.rs is no command and no file"));
    }

    #[test]
    fn commands_are_found_in_blocks_and_in_sentences() {
        let section = "## Two\nRun `larder lab\nmemory`, not `larder serve`:\n```\n$ larder top\nlarder lab cas \\\n    --rounds 6  \
                       # 5 ms\nseven `larder lab zipf`\n```\n`cargo bench -p a`\n";
        let found = ["larder top", "larder lab cas --rounds 6", "larder lab memory", "cargo bench -p a"];
        assert_eq!(commands(section), found);
    }

    #[test]
    fn a_figure_takes_a_full_run_or_a_reason() {
        let name = |options: &str| format!("larder lab cas {options} --json x");
        for options in ["", "--rounds 6", "--rounds=7", "--full", "--rounds N"] {
            let (command, beside) = (format!("`{}`", name(options)), "beside it, 2026-11-30");
            let section = format!("By {command}:\n");
            assert_eq!([wrong(&command, ""), wrong(beside, &section)], [None, None], "{options}");
            for from in [format!("{command}; few rounds: since"), format!("{beside}; few rounds: since")] {
                let why = "“few rounds:”, but no command has fewer than 6";
                assert_eq!(wrong(&from, &section).as_deref(), Some(why), "{from}");
            }
        }
        for options in ["--rounds 5", "--rounds=1", "--rounds 6 --quick"] {
            let command = name(options);
            let section = format!("```\nlarder lab zipf\n{command}\n```\n");
            let why = format!("{command} is no full run of 6 rounds, and “few rounds:” has no reason for it");
            for from in [format!("`{command}`, 2026-11-30"), "beside it, 2026-11-30".to_owned()] {
                for reason in ["", "; few rounds:", "; few rounds: "] {
                    let from = from.clone() + reason;
                    assert_eq!(wrong(&from, &section).as_ref(), Some(&why), "{from}");
                }
                assert_eq!(wrong(&(from + "; few rounds: it is counted"), &section), None);
            }
        }
    }

    #[test]
    fn an_interval_of_the_lab_takes_as_many_rounds_as_a_figure() {
        let stats = fs::read_to_string(root().join("crates/lab/src/stats.rs")).unwrap();
        assert!(stats.contains(&format!("pub const ROUNDS_MIN: usize = {ROUNDS_MIN};")));
    }
}
