//! The command `stats`, and its reply, which has any number of lines. No input or output.

use crate::error::{Error, Outcome};
use std::sync::Arc;

/// Most bytes of a reply: servers' statistics are far shorter.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Bytes that are received at a time.
pub const PIECE_BYTES: usize = 16 << 10;

/// Names and their values.
pub type Named = Vec<(String, String)>;

/// The request for a group of statistics; empty: the general one.
///
/// # Errors
/// [`Error::BadKey`] if the group's name has a control character, which could end the line.
pub fn question(group: &str) -> Result<String, Error> {
    if group.contains(|letter: char| letter.is_ascii_control()) {
        return Err(Error::BadKey);
    }
    Ok(format!("stats {group}").trim_end().to_owned() + "\r\n")
}

/// A line of a reply.
#[derive(Debug, PartialEq, Eq)]
enum Said<'l> {
    /// A name and its value.
    Figure(&'l str, &'l str),
    /// The reply is complete.
    End,
    /// The server has no such group, or this client may not read it.
    Refused,
    /// No line of a reply to `stats`.
    Strange,
}

impl Said<'_> {
    fn of(line: &str) -> Said<'_> {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("STAT", figure) => {
                let (name, value) = figure.split_once(' ').unwrap_or((figure, ""));
                Said::Figure(name, value)
            }
            // RESET and OK end the reply to a request that resets statistics.
            ("END" | "RESET" | "OK", "") => Said::End,
            ("ERROR" | "CLIENT_ERROR" | "SERVER_ERROR", _) => Said::Refused,
            _ => Said::Strange,
        }
    }
}

/// A reply that is being received.
#[derive(Debug, Default)]
pub struct Figures {
    answer: Vec<u8>,
    /// Where the lines that were read end.
    read: usize,
    found: Named,
}

impl Figures {
    /// Takes received bytes, and returns all statistics if the reply is complete.
    ///
    /// # Errors
    /// The server refuses, or this is no reply to `stats`.
    pub fn take(&mut self, server: &Arc<str>, bytes: &[u8]) -> Result<Option<Named>, Error> {
        let protocol = |what: String| Error::Protocol(Arc::clone(server), what, Outcome::Unknown);
        self.answer.extend_from_slice(bytes);
        while let Some(length) = self.answer[self.read..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.answer[self.read..self.read + length]);
            let line = line.trim_end_matches('\r');
            match Said::of(line) {
                Said::Figure(name, value) => self.found.push((name.to_owned(), value.to_owned())),
                Said::End => return Ok(Some(std::mem::take(&mut self.found))),
                Said::Refused => return Err(Error::Server(Arc::clone(server), line.to_owned())),
                Said::Strange => return Err(protocol(line.chars().take(100).collect())),
            }
            self.read += length + 1;
        }
        if self.answer.len() > ANSWER_BYTES_MAX {
            return Err(protocol("what it says of itself does not end".to_owned()));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_figures_an_end_or_a_refusal() {
        for (line, said) in [
            ("STAT pid 7", Said::Figure("pid", "7")),
            ("STAT version 1.6.45 larder", Said::Figure("version", "1.6.45 larder")),
            ("STAT items:1:number 0", Said::Figure("items:1:number", "0")),
            ("STAT auth_enabled_ascii ", Said::Figure("auth_enabled_ascii", "")),
            ("STAT empty", Said::Figure("empty", "")),
            ("END", Said::End),
            ("RESET", Said::End),
            ("ERROR", Said::Refused),
            ("CLIENT_ERROR bad command line format", Said::Refused),
            ("SERVER_ERROR out of memory", Said::Refused),
            ("", Said::Strange),
            ("END 1", Said::Strange),
            ("STATS pid 7", Said::Strange),
            ("VALUE k 0 1", Said::Strange),
        ] {
            assert_eq!(Said::of(line), said, "{line:?}");
        }
    }

    #[test]
    fn an_answer_is_whole_with_its_last_byte_however_it_comes() {
        let server: Arc<str> = "s".into();
        let (text, mut figures) = (b"STAT a 1\r\nSTAT b two words\r\nEND\r\n", Figures::default());
        let (last, others) = text.split_last().expect("it has some");
        for byte in others {
            assert_eq!(figures.take(&server, &[*byte]), Ok(None));
        }
        let all = [("a", "1"), ("b", "two words")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(figures.take(&server, &[*last]), Ok(Some(all.to_vec())));
        assert_eq!(Figures::default().take(&server, text), Ok(Some(all.to_vec())));
        let refused = Figures::default().take(&server, b"ERROR\r\n");
        assert_eq!(refused, Err(Error::Server(Arc::clone(&server), "ERROR".to_owned())));
        let endless = vec![b'S'; ANSWER_BYTES_MAX + 1];
        assert!(matches!(Figures::default().take(&server, &endless), Err(Error::Protocol(..))));
    }

    #[test]
    fn a_question_is_one_line() {
        assert_eq!(question("").as_deref(), Ok("stats\r\n"));
        assert_eq!(question("items").as_deref(), Ok("stats items\r\n"));
        assert_eq!(question("items\r\nflush_all"), Err(Error::BadKey));
    }
}
