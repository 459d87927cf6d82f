//! RESP over sockets, for tests: commands are sent whole, and a reply is read a line or a bulk string at a time.

use crate::process::Server;
use crate::talk::{encode, encode_text};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// One connection. Its methods panic if the server does not answer.
#[derive(Debug)]
pub struct Resp(pub BufReader<TcpStream>);

impl Resp {
    /// Connects to a server.
    ///
    /// # Panics
    /// If it does not accept.
    pub fn new(server: &Server) -> Resp {
        Resp(BufReader::new(server.connect().expect("a connection")))
    }

    /// Sends a command of these arguments.
    pub fn send(&mut self, words: &[&[u8]]) {
        self.0.get_mut().write_all(&encode(words)).expect("sent");
    }

    /// As [`Resp::send`], of arguments that are text.
    pub fn send_text(&mut self, words: &[&str]) {
        self.0.get_mut().write_all(&encode_text(words)).expect("sent");
    }

    /// Reads a line, without its end; an empty one at the end of the connection.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Sends a command; returns the first line of its reply.
    pub fn ask(&mut self, words: &[&[u8]]) -> String {
        self.send(words);
        self.line()
    }

    /// As [`Resp::ask`], of arguments that are text.
    pub fn say(&mut self, words: &[&str]) -> String {
        self.send_text(words);
        self.line()
    }

    /// Reads a bulk string, or a null.
    pub fn bulk(&mut self) -> Option<Vec<u8>> {
        let head = self.line();
        if head == "$-1" {
            return None;
        }
        let bytes = head.strip_prefix('$').and_then(|length| length.parse::<usize>().ok());
        let mut value = vec![0; bytes.unwrap_or_else(|| panic!("{head}")) + 2];
        self.0.read_exact(&mut value).expect("a value");
        value.truncate(value.len() - 2);
        Some(value)
    }

    /// As [`Resp::bulk`], of a value that is text.
    pub fn text(&mut self) -> Option<String> {
        self.bulk().map(|value| String::from_utf8(value).expect("text"))
    }
}

/// Reads a line from any stream, without its end, and no byte behind it.
///
/// # Panics
/// If the stream ends before, or the line is no text.
pub fn line(stream: &mut impl Read) -> String {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a reply");
        line.extend(byte);
    }
    String::from_utf8(line).expect("text").trim_end().to_owned()
}

/// Sends a request over any stream; returns the first line of its reply.
///
/// # Panics
/// As [`line()`], and if the stream takes no bytes.
pub fn ask(stream: &mut (impl Read + Write), request: &[u8]) -> String {
    stream.write_all(request).expect("sent");
    line(stream)
}

/// As [`ask`]; if the reply is a bulk string, returns its text.
///
/// # Panics
/// As [`ask`].
pub fn ask_text(stream: &mut (impl Read + Write), request: &[u8]) -> String {
    let head = ask(stream, request);
    let Some(length) = head.strip_prefix('$').and_then(|length| length.parse::<usize>().ok()) else {
        return head;
    };
    let mut text = vec![0; length + 2];
    stream.read_exact(&mut text).expect("a bulk string");
    text.truncate(length);
    String::from_utf8(text).expect("text")
}
