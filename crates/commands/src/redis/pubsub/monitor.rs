//! What MONITOR shows: a line for each command that is carried out.
//!
//! ```text
//! +1339518083.107412 [0 127.0.0.1:60866] "keys" "*"
//! ```

use std::io::Write;

use larder_protocol::resp::Args;

use crate::core::topics::stamp;
use crate::redis::call::Call;
use crate::redis::row::Command;
use crate::redis::row::flag::{ADMIN, SKIP_MONITOR};
use crate::redis::secret;

/// Bytes of a word that are shown, and of a line, after which no further word begins. What is shown is copied, with up to four
/// characters for a byte.
const WORD_BYTES_MAX: usize = 16 << 10;
const LINE_BYTES_MAX: usize = 64 << 10;

impl Call<'_, '_, '_> {
    /// Shows a command to monitors, in the client's words.
    #[cold]
    pub fn show(&mut self, row: &'static Command, words: Args<'_>) {
        let client = std::sync::Arc::clone(&self.client.facts);
        self.show_as(row, words, &client.address);
    }

    /// Shows a command as sent from an address, or by scripts (`lua`).
    #[cold]
    pub fn show_as(&mut self, row: &'static Command, words: Args<'_>, who: &str) {
        if row.has(SKIP_MONITOR) && !row.runs_script() || row.has(ADMIN) {
            return;
        }
        // The batch's millisecond, with microseconds of the clock that only goes on.
        let at_us = self.cx.now() * 1000 + self.cx.host.clock_us() % 1000;
        let mut line = Vec::with_capacity(words.encoded().len().min(LINE_BYTES_MAX) + 64);
        line.extend_from_slice(&stamp(at_us));
        let _ = write!(line, " [{} {who}]", self.client.db);
        let count = words.len();
        for (nth, word) in secret::shown(self.shared.rows, Some(row), words).enumerate() {
            if line.len() > LINE_BYTES_MAX {
                let _ = write!(line, " ... ({} more arguments)", count - nth);
                break;
            }
            line.extend_from_slice(b" ");
            let shown = &word[..word.len().min(WORD_BYTES_MAX)];
            quote(shown, &mut line);
            if shown.len() < word.len() {
                let _ = write!(line, "... ({} more bytes)", word.len() - shown.len());
            }
        }
        line.extend_from_slice(b"\r\n");
        self.cx.shared.topics.show(self.cx.host, at_us, line);
    }
}

/// Writes text in quotes, with escapes for bytes that cannot be printed.
fn quote(text: &[u8], line: &mut Vec<u8>) {
    line.push(b'"');
    for &byte in text {
        match byte {
            b'\\' | b'"' => line.extend_from_slice(&[b'\\', byte]),
            b'\n' => line.extend_from_slice(b"\\n"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\t' => line.extend_from_slice(b"\\t"),
            7 => line.extend_from_slice(b"\\a"),
            8 => line.extend_from_slice(b"\\b"),
            b' '..=b'~' => line.push(byte),
            _ => {
                let _ = write!(line, "\\x{byte:02x}");
            }
        }
    }
    line.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_to_be_seen_is_escaped() {
        let mut line = Vec::new();
        quote(b"a \"b\"\\\r\n\t\x07\x08\0\xff~", &mut line);
        assert_eq!(line, br#""a \"b\"\\\r\n\t\a\b\x00\xff~""#);
    }
}
