//! The two forms in which commands of administration are answered: lines of text, and frames of the binary protocol.

use std::fmt::Display;
use std::io::Write;

use larder_protocol::binary::{Head, Reply, Status};

use super::text::{END, OK};
use crate::core::output::Output;

/// A form of replies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// Lines.
    Text,
    /// Frames that repeat this.
    Frames(Head),
}

impl Form {
    /// A name and its value: `STAT <name> <value>`, or a frame of both.
    pub fn put(self, out: &mut Output, name: &dyn Display, value: &dyn Display) {
        match self {
            Form::Text => write!(out, "STAT {name} {value}\r\n").expect("an output takes everything"),
            Form::Frames(head) => {
                let (name, value) = (name.to_string(), value.to_string());
                let name = &name.as_bytes()[..name.len().min(usize::from(u16::MAX))];
                put_frame(out, head, Status::Ok, name, value.as_bytes());
            }
        }
    }

    /// There are no more of them.
    pub fn end(self, out: &mut Output) {
        self.say(out, END, Status::Ok);
    }

    /// It is done.
    pub fn done(self, out: &mut Output) {
        self.say(out, OK, Status::Ok);
    }

    /// A line, or what stands for it.
    pub fn say(self, out: &mut Output, line: &[u8], status: Status) {
        match self {
            Form::Text => out.put(line),
            Form::Frames(head) => put_frame(out, head, status, b"", status.text().as_bytes()),
        }
    }
}

/// Appends a frame of a key and a value.
pub(crate) fn put_frame(out: &mut Output, head: Head, status: Status, key: &[u8], value: &[u8]) {
    let (key_bytes, value_bytes) = (key.len() as u16, value.len() as u32);
    out.put(&Reply { key_bytes, value_bytes, ..Reply::new(head, status) }.header());
    out.put(key);
    out.put(value);
}
