//! Every row of the compatibility table has a transcript, or a reason why not.

use super::Complaint;
use crate::run::{Outcome, root};
use std::collections::BTreeSet;
use std::fs;

/// Rows are numbered from 1 to this.
const ROWS: u32 = 80;
/// Rules of RESP are numbered from 7.1 to this.
const RESP_RULES: u32 = 47;
/// Sections that cases may name in place of rows: transports, commands, options, statistics, replies.
const SECTIONS: &[&str] = &["1.2", "1.3", "1.5", "1.6", "2.5"];

/// Complains of rows and sections without a case, of cases of rows that do not exist, and of reasons for rows that have a case.
pub fn check() -> Outcome<Vec<Complaint>> {
    let mut complaints = Vec::new();
    let mut pinned = BTreeSet::new();
    let mut named = BTreeSet::new();
    let directory = root().join("spec");
    for entry in fs::read_dir(&directory).map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        for row in text.lines().filter_map(|line| line.strip_prefix("rows:")).flat_map(str::split_whitespace)
        {
            let rule = row.strip_prefix("7.").and_then(|rule| rule.parse::<u32>().ok());
            match row.parse::<u32>() {
                _ if rule.is_some_and(|rule| (1..=RESP_RULES).contains(&rule)) => {
                    pinned.insert(row.to_owned());
                }
                Ok(n) if (1..=ROWS).contains(&n) => drop(pinned.insert(row.to_owned())),
                _ if SECTIONS.contains(&row) => drop(named.insert(row.to_owned())),
                _ => complaints.push(format!("{}: there is no row {row}", path.display())),
            }
        }
    }
    let excepted =
        excepted(&fs::read_to_string(directory.join("excepted.md")).map_err(|error| error.to_string())?);
    let rules = (1..=RESP_RULES).map(|rule| format!("7.{rule}"));
    for row in (1..=ROWS).map(|row| row.to_string()).chain(rules) {
        match (pinned.contains(&row), excepted.contains(&row)) {
            (false, false) => complaints.push(format!("row {row} has no transcript and no reason")),
            (true, true) => complaints.push(format!("row {row} is excepted and has a transcript")),
            _ => {}
        }
    }
    for section in SECTIONS.iter().filter(|section| !named.contains(**section)) {
        complaints.push(format!("section {section} has no transcript"));
    }
    Ok(complaints)
}

/// Rows of lines like `- 13: the reason`.
fn excepted(text: &str) -> BTreeSet<String> {
    let reasons = text.lines().filter_map(|line| line.strip_prefix("- ")?.split_once(": "));
    reasons.filter(|(_, why)| !why.is_empty()).map(|(row, _)| row.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_needs_its_reason() {
        assert_eq!(excepted("# x\n- 13: binary\n- 14: \n- 15 y\n"), BTreeSet::from(["13".to_owned()]));
    }
}
