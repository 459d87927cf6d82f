//! A small blocking client of the text protocol for tests: pipelines, and replies read exactly.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;

/// One connection.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
    /// Bytes to send with the next flush.
    pub pending: Vec<u8>,
}

/// A value as `get` and `gets` answer it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The token, with `gets`.
    pub cas: Option<u64>,
}

impl Client {
    /// A client over a connected socket.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(stream: TcpStream) -> io::Result<Client> {
        let reader = BufReader::with_capacity(1 << 16, stream.try_clone()?);
        Ok(Client { reader, writer: stream, pending: Vec::new() })
    }

    /// Adds a storage command to the pending bytes.
    pub fn store(&mut self, command: &str, key: &str, value: &[u8], cas: Option<u64>) {
        self.pending.extend_from_slice(format!("{command} {key} 0 0 {}", value.len()).as_bytes());
        if let Some(cas) = cas {
            self.pending.extend_from_slice(format!(" {cas}").as_bytes());
        }
        self.pending.extend_from_slice(b"\r\n");
        self.pending.extend_from_slice(value);
        self.pending.extend_from_slice(b"\r\n");
    }

    /// Adds a line to the pending bytes.
    pub fn line(&mut self, line: &str) {
        self.pending.extend_from_slice(line.as_bytes());
        self.pending.extend_from_slice(b"\r\n");
    }

    /// Sends the pending bytes.
    ///
    /// # Errors
    /// The system's error.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.write_all(&self.pending)?;
        self.pending.clear();
        Ok(())
    }

    /// Sends one line and reads one line.
    ///
    /// # Errors
    /// The system's error.
    pub fn ask(&mut self, line: &str) -> io::Result<String> {
        self.line(line);
        self.flush()?;
        self.reply()
    }

    /// Reads one line, without its end.
    ///
    /// # Errors
    /// The system's error, or that the line does not end.
    pub fn reply(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        match line.strip_suffix(b"\r\n") {
            Some(line) => Ok(String::from_utf8_lossy(line).into_owned()),
            None => Err(io::Error::other(format!("no whole line: {:?}", String::from_utf8_lossy(&line)))),
        }
    }

    /// Reads the reply of a `get` or `gets`.
    ///
    /// # Errors
    /// The system's error, or a malformed reply.
    pub fn hits(&mut self) -> io::Result<Vec<Hit>> {
        let mut hits = Vec::new();
        loop {
            let line = self.reply()?;
            if line == "END" {
                return Ok(hits);
            }
            let wrong = || io::Error::other(format!("not a reply to a get: {line:?}"));
            let words: Vec<&str> = line.split(' ').collect();
            let (key, bytes, cas) = match words[..] {
                ["VALUE", key, _, bytes] => (key, bytes, None),
                ["VALUE", key, _, bytes, cas] => (key, bytes, Some(cas.parse().map_err(|_| wrong())?)),
                _ => return Err(wrong()),
            };
            let bytes: usize = bytes.parse().map_err(|_| wrong())?;
            let mut value = vec![0; bytes + 2];
            self.reader.read_exact(&mut value)?;
            if !value.ends_with(b"\r\n") {
                return Err(wrong());
            }
            value.truncate(bytes);
            hits.push(Hit { key: key.to_owned(), value, cas });
        }
    }

    /// Reads `bytes` bytes of a reply and drops them.
    ///
    /// # Errors
    /// The system's error, or that the connection ended.
    pub fn skip(&mut self, bytes: usize) -> io::Result<()> {
        io::copy(&mut (&mut self.reader).take(bytes as u64), &mut io::sink()).and_then(|copied| {
            let whole = copied == bytes as u64;
            if whole { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        })
    }

    /// One statistic.
    ///
    /// # Errors
    /// The system's error, or that there is none of this name.
    pub fn stat(&mut self, name: &str) -> io::Result<String> {
        self.line("stats");
        self.flush()?;
        let mut found = None;
        loop {
            let line = self.reply()?;
            if line == "END" {
                return found.ok_or_else(|| io::Error::other(format!("no statistic {name}")));
            }
            let mut words = line.splitn(3, ' ').skip(1);
            if words.next() == Some(name) {
                found = words.next().map(str::to_owned);
            }
        }
    }

    /// Reads to the end of the connection.
    ///
    /// # Errors
    /// The system's error.
    pub fn rest(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.reader.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.writer
    }
}
