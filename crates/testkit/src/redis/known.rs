//! Replies that are known to differ from Redis's, each with a reason: `spec/redis-differs.list`.
//!
//! A line is `command | Redis's reply | Larder's reply : reason`, where replies are written as
//! [`Frame::shown`] has them; a `*` at the end stands for anything, and a command is given by its first
//! words. In front of it `@Redis-8.0`, `@Valkey` and the like name the servers that reply so (see [`names`]);
//! without them all do.
//!
//! Two lines have no replies: `in MULTI | not sent` leaves a command out of transactions (with it a server loses count
//! of its own replies), `lacks | not sent` leaves it out altogether. A `…` in a command is any number of words.

use super::differ::{Difference, Sent};
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
    peers: Vec<String>,
    command: Vec<String>,
    first: String,
    second: String,
    seen: u64,
}

impl Known {
    /// Reads the lines that are for a server with these [`names`].
    ///
    /// # Errors
    /// A line that is not understood, or has no reason.
    pub fn load(path: &Path, names: &str) -> Result<Known, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let rows = lines.map(|line| Row::parse(line).ok_or(format!("{}: {line}", path.display())));
        let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
        let is = |peer: &String| names.split(' ').any(|name| name == peer);
        rows.retain(|row| row.peers.is_empty() || row.peers.iter().any(is));
        Ok(Known { rows })
    }

    /// Removes from a stream the commands that the server is not sent, at all or between MULTI and EXEC.
    pub fn leave_out(&self, stream: &mut Vec<Sent>) {
        let mut in_multi: Vec<usize> = Vec::new();
        stream.retain(|(connection, command)| {
            let is = |name: &str| command[0].eq_ignore_ascii_case(name.as_bytes());
            let was_inside = in_multi.contains(connection);
            if is("multi") {
                in_multi.push(*connection);
            } else if is("exec") || is("discard") || is("reset") {
                in_multi.retain(|one| one != connection);
            }
            let inside = was_inside && in_multi.contains(connection);
            let left_out = |row: &Row| (inside || row.first == "lacks") && row.is_of(command);
            !self.rows.iter().any(|row| row.is_left_out() && left_out(row))
        });
    }

    /// Whether a line explains this difference.
    pub fn explains(&mut self, difference: &Difference) -> bool {
        let row = self.rows.iter_mut().find(|row| row.explains(difference));
        row.map(|row| row.seen += 1).is_some()
    }

    /// Reasons that explained nothing, for commands whose name `is_sent` accepts.
    pub fn unused<'k>(&'k self, is_sent: impl Fn(&str) -> bool + 'k) -> impl Iterator<Item = &'k str> {
        let unused = |row: &&Row| row.seen == 0 && !row.is_left_out();
        let is_sent = move |row: &&Row| row.command.first().is_some_and(|name| is_sent(name));
        self.rows.iter().filter(unused).filter(is_sent).map(|row| row.text.as_str())
    }

    /// Number of differences that a reason explained.
    pub fn seen(&self) -> u64 {
        self.rows.iter().map(|row| row.seen).sum()
    }
}

impl Row {
    fn parse(line: &str) -> Option<Row> {
        let (rows, reason) = line.rsplit_once(" : ")?;
        let [command, first, second] = rows.split(" | ").collect::<Vec<_>>()[..] else { return None };
        let (peers, command): (Vec<&str>, Vec<&str>) =
            command.split_whitespace().partition(|word| word.starts_with('@'));
        let row = Row {
            text: line.to_owned(),
            peers: peers.iter().map(|peer| peer[1..].to_owned()).collect(),
            command: command.into_iter().map(str::to_ascii_lowercase).collect(),
            first: first.trim().to_owned(),
            second: second.trim().to_owned(),
            seen: 0,
        };
        (!reason.trim().is_empty()).then_some(row)
    }

    fn is_left_out(&self) -> bool {
        self.second == "not sent" && matches!(self.first.as_str(), "in MULTI" | "lacks")
    }

    fn is_of(&self, sent: &[Vec<u8>]) -> bool {
        begins_with(&self.command, sent)
    }

    fn explains(&self, difference: &Difference) -> bool {
        let reply = |pattern: &str, frame: &Frame| {
            let line = frame.shown();
            match pattern.strip_suffix('*') {
                Some(start) => line.starts_with(start),
                None => line == pattern,
            }
        };
        self.is_of(&difference.command)
            && reply(&self.first, &difference.first)
            && reply(&self.second, &difference.second)
    }
}

/// Whether a command begins as a pattern says: `*` is any one word, `…` any number of words.
fn begins_with(pattern: &[String], sent: &[Vec<u8>]) -> bool {
    let Some((word, rest)) = pattern.split_first() else { return true };
    if word == "…" {
        return (0..=sent.len()).any(|from| begins_with(rest, &sent[from..]));
    }
    let is = |sent: &Vec<u8>| word == "*" || sent.to_ascii_lowercase() == word.as_bytes();
    sent.first().is_some_and(is) && begins_with(rest, &sent[1..])
}

/// Names by which a list may give a server: `Redis` for all that speak as Redis does, and its own, with its version and without:
/// `Redis Redis-8.0`, `Redis Valkey Valkey-9.1`.
///
/// # Errors
/// It does not report what it is.
pub fn names(server: &Path) -> Result<String, String> {
    let said = std::process::Command::new(server).arg("--version").output();
    let said = said.map_err(|error| format!("{}: {error}", server.display()))?.stdout;
    let said = String::from_utf8_lossy(&said).into_owned();
    let name = said.split(' ').next().unwrap_or_default();
    let version = said.split(' ').find_map(|word| word.strip_prefix("v=")).unwrap_or_default();
    let mut numbers = version.split('.');
    match (name, numbers.next(), numbers.next()) {
        ("Redis", Some(major), Some(minor)) => Ok(format!("Redis Redis-{major}.{minor}")),
        (name, Some(major), Some(minor)) => Ok(format!("Redis {name} {name}-{major}.{minor}")),
        _ => Err(format!("{}: {said}", server.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &str) -> Frame {
        Frame { line: text.as_bytes().to_vec(), body: None, inside: Vec::new() }
    }

    #[test]
    fn a_pattern_is_of_the_first_words() {
        let of = |pattern: &str, sent: &str| {
            let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
            let sent = words(sent).into_iter().map(String::into_bytes).collect::<Vec<_>>();
            begins_with(&words(pattern), &sent)
        };
        assert!(of("set", "SET a b") && of("set a", "set A") && of("set * b", "set a b c"));
        assert!(!of("set a b", "set a") && !of("get", "set") && !of("set *", "set"));
        assert!(of("set … ifeq", "set a b ex 1 IFEQ c") && of("set … ifeq", "set ifeq"));
        assert!(!of("set … ifeq", "set a b"));
    }

    #[test]
    fn a_multi_within_another_is_left_out_and_the_first_is_not() {
        let list = std::env::temp_dir().join(format!("larder-nested-{}", std::process::id()));
        std::fs::write(&list, "MULTI | in MULTI | not sent : x\n").expect("a file of our own");
        let known = Known::load(&list, "Redis").expect("a list");
        let say = |word: &str| (0, vec![word.as_bytes().to_vec()]);
        let mut stream = ["multi", "GET", "MULTI", "exec", "MULTI", "EXEC"].map(say).to_vec();
        known.leave_out(&mut stream);
        assert_eq!(stream, ["multi", "GET", "exec", "MULTI", "EXEC"].map(say));
        std::fs::remove_file(&list).expect("it was written");
    }

    #[test]
    fn a_line_is_of_the_servers_that_it_names() {
        let list = std::env::temp_dir().join(format!("larder-known-{}", std::process::id()));
        let text = "# none\nA | :1 | :* : all\n@Valkey @Redis-8.0 B | :1 | :2 : some\n@Valkey C | in MULTI | not sent : x\n@Redis-8.0 C | lacks | not sent : x\n";
        std::fs::write(&list, text).expect("a file of our own");
        let difference = |command: &str| Difference {
            at: 0,
            command: vec![command.as_bytes().to_vec()],
            first: frame(":1"),
            second: frame(":2"),
        };
        for (names, more, kept) in [
            ("Redis Redis-7.0", false, 6),
            ("Redis Redis-8.0", true, 2),
            ("Redis Valkey Valkey-9.1", true, 5),
        ] {
            let mut known = Known::load(&list, names).expect("a list");
            assert!(known.explains(&difference("a")));
            assert_eq!(known.explains(&difference("b")), more, "{names}");
            let say = |(connection, word): (usize, &str)| (connection, vec![word.as_bytes().to_vec()]);
            let mut stream =
                [(0, "C"), (0, "multi"), (0, "C"), (1, "C"), (0, "exec"), (0, "C")].map(say).to_vec();
            known.leave_out(&mut stream);
            assert_eq!(stream.len(), kept);
            assert!(!known.explains(&difference("c")));
            assert_eq!(known.unused(|_| true).count(), 0);
        }
        std::fs::remove_file(&list).expect("it was written");
    }
}
