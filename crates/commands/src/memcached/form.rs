//! The two forms in which commands of administration are answered: lines of text, and frames of the binary protocol.

use std::fmt::Display;
use std::io::Write;

use larder_protocol::binary::{Head, Reply, Status};

use super::text::{END, OK};
use crate::core::output::Output;

/// Most bytes of a figure's name and value in a frame: libmemcached reads them into 350 bytes, and resets a connection that
/// sends more.
pub(crate) const FIGURE_BYTES_MAX: usize = 349;

/// A form of replies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// Lines.
    Text,
    /// Frames that repeat this head.
    Frames(Head),
}

impl Form {
    /// Writes a name and its value: `STAT <name> <value>`, or a frame of both, cut to [`FIGURE_BYTES_MAX`].
    pub fn put(self, out: &mut Output, name: &dyn Display, value: &dyn Display) {
        match self {
            Form::Text => write!(out, "STAT {name} {value}\r\n").expect("an output takes everything"),
            Form::Frames(head) => {
                let (name, value) = (name.to_string(), value.to_string());
                let name = &name[..name.floor_char_boundary(FIGURE_BYTES_MAX)];
                let value = &value[..value.floor_char_boundary(FIGURE_BYTES_MAX - name.len())];
                put_frame(out, head, Status::Ok, name.as_bytes(), value.as_bytes());
            }
        }
    }

    /// Ends a list of names and values.
    pub fn end(self, out: &mut Output) {
        self.say(out, END, Status::Ok);
    }

    /// Replies that the command is done.
    pub fn done(self, out: &mut Output) {
        self.say(out, OK, Status::Ok);
    }

    /// Writes a line, or the frame that stands for it.
    pub fn say(self, out: &mut Output, line: &[u8], status: Status) {
        match self {
            Form::Text => out.put(line),
            Form::Frames(head) => put_frame(out, head, status, b"", status.text().as_bytes()),
        }
    }
}

/// Appends a frame of a key, which has at most 65,535 bytes, and a value.
pub(crate) fn put_frame(out: &mut Output, head: Head, status: Status, key: &[u8], value: &[u8]) {
    debug_assert!(key.len() <= usize::from(u16::MAX), "a frame says a key's length in two bytes");
    let (key_bytes, value_bytes) = (key.len() as u16, value.len() as u32);
    out.put(&Reply { key_bytes, value_bytes, ..Reply::new(head, status) }.header());
    out.put(key);
    out.put(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(name: &str, value: &str) -> Vec<u8> {
        let mut out = Output::new(1 << 20);
        Form::Frames(Head { code: 0x10, opaque: [0; 4] }).put(&mut out, &name, &value);
        let frame = out.to_vec();
        assert_eq!(frame[8..12], ((frame.len() - 24) as u32).to_be_bytes());
        assert_eq!(frame[2..4], (name.len().min(FIGURE_BYTES_MAX) as u16).to_be_bytes());
        frame[24..].to_vec()
    }

    #[test]
    fn a_figure_ends_after_what_clients_read() {
        for (bytes, told) in [(338, 348), (339, 349), (340, 349), (10_000, 349)] {
            assert_eq!(body("ten_bytes_", &"v".repeat(bytes)).len(), told, "{bytes}");
        }
        assert_eq!(body(&"n".repeat(400), "v"), [b'n'; 349]);
        // No character is cut in two.
        let value = "v".repeat(338) + "é";
        assert_eq!(body("ten_bytes_", &value).len(), 348);
    }
}
