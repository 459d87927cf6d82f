//! A RESP client that sends what no client sends by accident, and counts what comes back, whatever it is.

use crate::PATIENCE;
use crate::bounded::Bounded;
use crate::talk::encode;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;

/// One client.
#[derive(Debug)]
pub struct Attacker {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

/// What a reply contained, at any depth.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Number of strings, nulls included.
    pub strings: u64,
    /// Bytes of these strings.
    pub bytes: u64,
    /// Number of errors.
    pub errors: u64,
    /// The first error.
    pub first_error: String,
}

impl Attacker {
    /// Connects one more client to a server.
    ///
    /// # Panics
    /// If it does not accept one.
    pub fn new(bounded: &Bounded) -> Attacker {
        let stream = bounded.server.connect().expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        let reader = BufReader::with_capacity(1 << 18, stream.try_clone().expect("a socket"));
        Attacker { stream, reader }
    }

    /// Sends bytes, from a thread of its own: the server need not take them before its replies are read.
    ///
    /// # Panics
    /// If the socket cannot be used twice.
    pub fn send(&self, bytes: Vec<u8>) {
        let mut stream = self.stream.try_clone().expect("a socket");
        // If the connection is closed meanwhile, the reader notices.
        thread::spawn(move || drop(stream.write_all(&bytes)));
    }

    /// Sends a request and reads its reply.
    ///
    /// # Panics
    /// If there is none.
    pub fn ask(&mut self, words: &[&[u8]]) -> Heard {
        self.send(encode(words));
        self.hear()
    }

    /// [`Attacker::ask`] for a request that ends in the same words many times.
    ///
    /// # Panics
    /// If there is no reply.
    pub fn ask_many(&mut self, words: &[&[u8]], more: &[&[u8]], times: usize) -> Heard {
        let mut all = words.to_vec();
        all.extend(more.iter().cycle().take(more.len() * times));
        self.ask(&all)
    }

    /// Reads one reply.
    ///
    /// # Panics
    /// If there is none.
    pub fn hear(&mut self) -> Heard {
        let mut heard = Heard::default();
        let mut left = 1u64;
        while left > 0 {
            left -= 1;
            let mut line = Vec::new();
            self.reader.read_until(b'\n', &mut line).expect("a reply");
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            assert!(!text.is_empty(), "closed after {heard:?}");
            let number = || text[1..].parse::<i64>().expect("a length");
            match text.as_bytes()[0] {
                b'*' | b'~' | b'>' => left += number().max(0) as u64,
                b'%' => left += 2 * number() as u64,
                b'$' | b'=' => {
                    heard.strings += 1;
                    if let Ok(bytes) = u64::try_from(number()) {
                        heard.bytes += bytes;
                        let copied = io::copy(&mut (&mut self.reader).take(bytes + 2), &mut io::sink());
                        assert_eq!(copied.expect("a string"), bytes + 2);
                    }
                }
                b'-' => {
                    heard.errors += 1;
                    if heard.first_error.is_empty() {
                        heard.first_error = text;
                    }
                }
                b'+' | b':' | b'_' | b',' | b'#' => {}
                _ => panic!("no reply: {text}"),
            }
        }
        heard
    }
}
