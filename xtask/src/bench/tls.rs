//! `cargo xtask bench tls`: what TLS and its handshakes cost Larder, beside the newest memcached and Redis with the same
//! certificates.
//!
//! `larder lab bench-tls` measures. This makes the certificates below the target directory, fetches the peers, whose builds have
//! TLS, and with `--write` puts the table into a document.

use crate::attack::circumstances;
use crate::certificates::{Authority, Key};
use crate::install::debian;
use crate::peers::{peer, version};
use crate::run::{Outcome, cargo, command, lines_of, root, run, target};
use std::fs;
use std::process::Command;

/// The document with the table, and the lines around it there.
const DOCUMENT: &str = "docs/decisions/0015-tls.md";
const BEGINS: &str = "<!-- Written by `cargo xtask bench tls --write`. -->";
const ENDS: &str = "<!-- The end of it. -->";

/// The peers, unless others are named.
const PEERS: &str = "memcached-new,redis-new";
const PEER: &str = "--peer";
const WRITE: &str = "--write";

/// Measures with these options of `larder lab bench-tls`. `--write` alone measures as by default and writes the document.
pub fn tls(arguments: &[String]) -> Outcome {
    let (writes, options): (Vec<&String>, Vec<&String>) = arguments.iter().partition(|word| *word == WRITE);
    if !writes.is_empty() && !options.is_empty() {
        return Err(format!("bench tls {WRITE} measures as by default: it takes no options"));
    }
    // It takes minutes: commit and machine are noted before the build.
    let circumstances = if writes.is_empty() { None } else { Some(circumstances()?) };
    debian(&[("openssl", "openssl")])?;
    let authority = Authority::make(&root().join(target()).join("bench-tls"))?;
    authority.sign("ecdsa", Key::Ecdsa)?;
    authority.sign("rsa", Key::Rsa)?;
    run(cargo(&["build", "--release", "--package", "larder"]))?;
    let mut lab = command(target().join("release/larder"), &["lab", "bench-tls", "--certificates"]);
    lab.arg(authority.folder());
    if !options.iter().any(|word| word.starts_with(PEER)) {
        for name in ["memcached", "redis-server"] {
            println!("{}", version(&peer(name)?)?);
        }
        lab.args([PEER, PEERS]);
    }
    lab.args(options);
    match circumstances {
        Some(circumstances) => write(lab, &circumstances),
        None => run(lab),
    }
}

/// Measures, and writes the document.
fn write(lab: Command, circumstances: &str) -> Outcome {
    let (status, lines) = lines_of(lab)?;
    let table = table(&lines, circumstances).map_err(|error| format!("{error}: {status}"))?;
    let path = root().join(DOCUMENT);
    let document = fs::read_to_string(&path).map_err(|error| format!("{DOCUMENT}: {error}"))?;
    fs::write(&path, replaced(&document, &table)?).map_err(|error| format!("{DOCUMENT}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{DOCUMENT} tells which bounds were missed")) }
}

/// The table with its circumstances, from what `larder lab bench-tls` prints, and beneath it what the lab says behind it: which
/// row was left out and why, and which bounds were missed.
///
/// # Errors
/// The last line is missing: it was not measured to the end, or the result is not valid.
fn table(lines: &[String], circumstances: &str) -> Outcome<String> {
    let whole = lines.split_last().filter(|(end, _)| end.contains(" bounds missed; "));
    let (end, before) = whole.ok_or("larder lab bench-tls did not come to a result")?;
    let behind = before.iter().rposition(|line| line.starts_with('|')).map_or(before.len(), |last| last + 1);
    let (measured, notes) = before.split_at(behind);
    let rows = measured.iter().filter(|line| line.starts_with('|')).map(|row| format!("{row}\n"));
    let notes = notes.iter().filter(|note| !note.is_empty()).map(|note| format!("\n- {note}"));
    let (rows, mut notes) = (rows.collect::<String>(), notes.collect::<String>());
    if !notes.is_empty() {
        notes.push('\n');
    }
    Ok(format!("{circumstances}; {end}:\n\n{rows}{notes}"))
}

/// The document with this table in place of the old one.
///
/// # Errors
/// The lines around it are not there.
fn replaced(document: &str, table: &str) -> Outcome<String> {
    let absent = || format!("{DOCUMENT} has no place for the table");
    let (before, rest) = document.split_once(BEGINS).ok_or_else(absent)?;
    let (_, behind) = rest.split_once(ENDS).ok_or_else(absent)?;
    Ok(format!("{before}{BEGINS}\n\n{table}\n{ENDS}{behind}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(all: &[&str]) -> Vec<String> {
        all.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn a_table_takes_the_place_of_the_one_before_and_nothing_else() {
        let end = "0 bounds missed; medians of 6 rounds";
        let measured = lines(&["a machine", "", "| | unit |", "|---|---|", "| GET | µs |", end]);
        let table = table(&measured, "1 May 2026").expect("it is whole");
        assert_eq!(table, format!("1 May 2026; {end}:\n\n| | unit |\n|---|---|\n| GET | µs |\n"));
        let document = format!("before\n{BEGINS}\n\nold\n\n{ENDS}\nbehind\n");
        let written = replaced(&document, &table).expect("there is a place");
        assert_eq!(written, format!("before\n{BEGINS}\n\n{table}\n{ENDS}\nbehind\n"));
        assert_eq!(replaced(&written, &table), Ok(written.clone()));
    }

    #[test]
    fn what_was_left_out_and_what_was_missed_stand_beneath_the_table() {
        let end = "1 bounds missed; medians of 6 rounds";
        let (left_out, missed) = ("left out: p99", "missed: GET, column 1: 2.00 of at most 1.00");
        let measured = lines(&["| | unit |", "|---|---|", "| GET | µs |", left_out, missed, end]);
        let table = table(&measured, "1 May 2026").expect("it is whole");
        let expected = format!(
            "1 May 2026; {end}:\n\n| | unit |\n|---|---|\n| GET | µs |\n\n- {left_out}\n- {missed}\n"
        );
        assert_eq!(table, expected);
    }

    #[test]
    fn what_was_not_measured_to_the_end_or_is_not_valid_is_not_written() {
        for cut in [
            &["| | unit |", "|---|---|"][..],
            &["| | unit |", "|---|---|", "| GET | µs |", "missed: GET, column 1: no figure"],
            &[],
        ] {
            assert!(table(&lines(cut), "").unwrap_err().contains("did not come to a result"), "{cut:?}");
        }
        assert!(replaced("no place", "").is_err() && replaced(BEGINS, "").is_err());
    }

    #[test]
    fn the_document_has_a_place_for_the_table() {
        let document = fs::read_to_string(root().join(DOCUMENT)).expect("it is there");
        assert!(replaced(&document, "").is_ok());
    }

    #[test]
    fn the_document_is_written_of_the_usual_measurement_alone() {
        let words = lines(&[WRITE, "--quick"]);
        assert!(tls(&words).unwrap_err().contains("takes no options"));
    }
}
