//! The server of a case: it reads the expected bytes and sends those of the case.

use super::PATIENCE;
use super::case::{Act, Case, unescaped};
use larder_client::Dialect;
use larder_testkit::folder::Folder;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// A server that follows a case.
pub struct Played {
    listener: UnixListener,
    pub path: PathBuf,
    _folder: Folder,
    stream: Option<UnixStream>,
    opaques: HashMap<String, String>,
    /// Whether the server sends byte by byte.
    slowly: bool,
    greets: Option<Dialect>,
}

impl Played {
    pub fn new(case: &Case, slowly: bool) -> Played {
        let folder = Folder::new("client");
        let path = folder.join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        listener.set_nonblocking(true).expect("an option");
        let greets = match case.with.get("protocol").map(String::as_str) {
            Some("auto") => None,
            Some("classic") => Some(Dialect::Classic),
            _ if case.with.contains_key("auth") => None,
            _ => Some(Dialect::Meta),
        };
        Played { listener, path, _folder: folder, stream: None, opaques: HashMap::new(), slowly, greets }
    }

    fn dial(&mut self) {
        let until = std::time::Instant::now() + PATIENCE;
        let stream = loop {
            match self.listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(std::time::Instant::now() < until, "the client does not dial");
                    thread::sleep(Duration::from_micros(200));
                }
                Err(error) => panic!("{error}"),
            }
        };
        stream.set_nonblocking(false).expect("an option");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        self.stream = Some(stream);
        match self.greets {
            Some(Dialect::Meta) => {
                self.expect("mn\\r\\n");
                self.answer(b"MN\r\n");
            }
            Some(Dialect::Classic) => {
                self.expect("version\\r\\n");
                self.answer(b"VERSION 1.6.45\r\n");
            }
            None => {}
        }
    }

    /// Reads the expected bytes; `O{n}` stands for an opaque that the client has chosen.
    fn expect(&mut self, text: &str) {
        let mut parts = text.split("O{");
        let literal = |played: &mut Played, part: &str| {
            let want = unescaped(part);
            let mut got = vec![0; want.len()];
            let read = played.stream.as_mut().expect("connected").read_exact(&mut got);
            assert!(read.is_ok() && got == want, "{} came in place of {part}: {read:?}", got.escape_ascii());
        };
        literal(self, parts.next().expect("one at least"));
        for part in parts {
            let (name, rest) = part.split_once('}').expect("O{n}");
            let mut opaque = vec![b'O'];
            let mut byte = [0];
            let end = unescaped(rest)[0];
            self.stream.as_mut().expect("connected").read_exact(&mut byte).expect("an opaque");
            while {
                opaque.extend(byte);
                self.stream.as_mut().expect("connected").read_exact(&mut byte).expect("an opaque");
                byte[0] != end
            } {}
            let opaque = String::from_utf8(opaque).expect("text");
            assert_eq!(&opaque[..2], "OO");
            self.opaques.insert(name.to_owned(), opaque[1..].to_owned());
            let skip = if rest.starts_with('\\') { 2 } else { 1 };
            literal(self, &rest[skip..]);
        }
    }

    fn answer(&mut self, bytes: &[u8]) {
        let stream = self.stream.as_mut().expect("connected");
        let mut bytes = bytes.to_vec();
        for (name, opaque) in &self.opaques {
            let mark = format!("O{{{name}}}").into_bytes();
            while let Some(at) = bytes.windows(mark.len()).position(|window| window == mark) {
                bytes.splice(at..at + mark.len(), opaque.bytes());
            }
        }
        // A client that has read enough may have disconnected.
        if self.slowly && bytes.len() < 4096 {
            bytes.iter().for_each(|&byte| drop(stream.write_all(&[byte])));
        } else {
            drop(stream.write_all(&bytes));
        }
    }

    pub fn play(&mut self, acts: &[Act]) {
        for act in acts {
            match act {
                Act::Expect(text) => {
                    if self.stream.is_none() {
                        self.dial();
                    }
                    self.expect(text);
                }
                Act::Answer(bytes) => self.answer(bytes),
                Act::Close => {
                    let stream = self.stream.take().expect("connected");
                    stream.shutdown(std::net::Shutdown::Both).expect("it was open");
                }
                Act::Dial => self.dial(),
            }
        }
    }

    /// Fails if the client has sent any more bytes.
    pub fn is_silent(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.set_nonblocking(true).expect("an option");
            let mut more = [0; 100];
            match stream.read(&mut more) {
                Ok(0) | Err(_) => {}
                Ok(bytes) => panic!("{} was sent besides", more[..bytes].escape_ascii()),
            }
        }
        assert!(self.listener.accept().is_err(), "another connection");
    }
}
