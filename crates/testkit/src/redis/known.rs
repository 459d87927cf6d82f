//! Replies that are known to differ from Redis's, each with a reason: `spec/redis-differs.list`.
//!
//! A line is `command | Redis's reply | Larder's reply : reason`, where replies are written as
//! [`Frame::shown`] has them; a `*` at the end stands for anything, and a command is given by its first
//! words.

use super::differ::Difference;
use super::frame::Frame;
use std::path::Path;

/// The list.
#[derive(Debug)]
pub struct Known {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    text: String,
    command: Vec<String>,
    first: String,
    second: String,
    seen: u64,
}

impl Known {
    /// Reads the list.
    ///
    /// # Errors
    /// A line that is not understood, or has no reason.
    pub fn load(path: &Path) -> Result<Known, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let rows = lines.map(|line| Row::parse(line).ok_or(format!("{}: {line}", path.display())));
        Ok(Known { rows: rows.collect::<Result<_, _>>()? })
    }

    /// Whether one of the reasons is this difference's.
    pub fn explains(&mut self, difference: &Difference) -> bool {
        let row = self.rows.iter_mut().find(|row| row.explains(difference));
        row.map(|row| row.seen += 1).is_some()
    }

    /// Reasons that nothing needed.
    pub fn unused(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().filter(|row| row.seen == 0).map(|row| row.text.as_str())
    }

    /// Differences that had a reason.
    pub fn seen(&self) -> u64 {
        self.rows.iter().map(|row| row.seen).sum()
    }
}

impl Row {
    fn parse(line: &str) -> Option<Row> {
        let (rows, reason) = line.rsplit_once(" : ")?;
        let [command, first, second] = rows.split(" | ").collect::<Vec<_>>()[..] else { return None };
        let command = command.split_whitespace().map(str::to_ascii_lowercase).collect();
        let row = Row {
            text: line.to_owned(),
            command,
            first: first.trim().to_owned(),
            second: second.trim().to_owned(),
            seen: 0,
        };
        (!reason.trim().is_empty()).then_some(row)
    }

    fn explains(&self, difference: &Difference) -> bool {
        let words = self.command.iter().enumerate().all(|(at, word)| {
            let sent = difference.command.get(at);
            sent.is_some_and(|sent| word == "*" || sent.to_ascii_lowercase() == word.as_bytes())
        });
        let reply = |pattern: &str, frame: &Frame| {
            let line = frame.shown();
            match pattern.strip_suffix('*') {
                Some(start) => line.starts_with(start),
                None => line == pattern,
            }
        };
        words && reply(&self.first, &difference.first) && reply(&self.second, &difference.second)
    }
}
