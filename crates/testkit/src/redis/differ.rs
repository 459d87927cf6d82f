//! Sends random streams to two servers, and finds the first reply that differs. Such a stream is then reduced to the commands
//! that it needs.

use super::compare::Comparer;
use super::frame::Frame;
use super::lua;
use super::stream::{Choices, ELEMENT_FORMS, FORMS, NEWER_FORMS, shown};
use crate::PATIENCE;
use crate::talk::encode;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Connections of a stream.
const CONNECTIONS: usize = 3;
/// Commands of one connection that are sent before another's turn.
const TURN: usize = 8;

/// Bytes that a message shows of an incomplete reply.
const SHOWN_BYTES: usize = 400;

/// Commands that change nothing: a stream continues after a known difference in one of them.
const READS: &[&str] = &["BITCOUNT", "BITPOS", "OBJECT", "DUMP", "COMMAND", "SCAN", "LCS", "EVAL_RO"];

/// A command and the connection that sends it.
pub type Sent = (usize, Vec<Vec<u8>>);

/// A reply that differs.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Index in the stream.
    pub at: usize,
    /// The command.
    pub command: Vec<Vec<u8>>,
    /// The first server's reply.
    pub first: Frame,
    /// The second server's reply.
    pub second: Frame,
}

/// Kinds of streams, by their commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Commands on strings, keys and connections.
    Strings,
    /// Half of the commands are on hashes, lists, sets, sorted sets and streams.
    Elements,
    /// Scripts and functions, and some other commands, so that scripts find data.
    Scripts,
}

impl Kind {
    /// Whether streams of this kind have a command of this name, and streams of earlier kinds do not.
    pub fn is_first_with(self, name: &str) -> bool {
        let is = |form: &str| form.split(' ').next().is_some_and(|first| first.eq_ignore_ascii_case(name));
        let is_of_strings = || FORMS.iter().chain(NEWER_FORMS).any(|form| is(form));
        match self {
            Kind::Strings => is_of_strings(),
            Kind::Elements => !is_of_strings() && ELEMENT_FORMS.iter().any(|form| is(form)),
            Kind::Scripts => name.to_ascii_lowercase().starts_with("eval"),
        }
    }
}

/// The stream of `length` commands of a seed.
pub fn stream(seed: u64, length: usize, kind: Kind) -> Vec<Sent> {
    let mut choices = Choices::Seed(seed);
    let mut connection = 0;
    (0..length)
        .map(|_| {
            if choices.below(TURN) == 0 {
                connection = choices.below(CONNECTIONS);
            }
            let command = match kind {
                Kind::Strings => choices.command_of_both(),
                Kind::Elements => choices.command_of_any(),
                Kind::Scripts => match choices.below(40) {
                    0 => vec![b"HELLO".to_vec(), choices.of(&[b"2", b"3"]).to_vec()],
                    1 => vec![choices.of(&["MULTI", "EXEC", "EXEC", "EXEC"]).into()],
                    2..=9 => lua::request_of_functions(&mut choices),
                    _ => lua::request(&mut choices),
                },
            };
            (connection, command)
        })
        .collect()
}

/// The names of both sides.
const NAMES: [&str; 2] = ["Redis", "Larder"];

/// One server's connections.
struct Side {
    streams: Vec<(TcpStream, Vec<u8>)>,
}

impl Side {
    fn new(address: SocketAddr) -> Result<Side, String> {
        let connect = || -> std::io::Result<TcpStream> {
            let stream = TcpStream::connect(address)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            Ok(stream)
        };
        let connect = |_| connect().map(|stream| (stream, Vec::new())).map_err(|error| error.to_string());
        Ok(Side { streams: (0..CONNECTIONS).map(connect).collect::<Result<_, _>>()? })
    }

    fn send(&mut self, connection: usize, bytes: &[u8]) -> Result<(), String> {
        self.streams[connection].0.write_all(bytes).map_err(|error| error.to_string())
    }

    fn reply(&mut self, connection: usize) -> Result<Frame, String> {
        let (stream, received) = &mut self.streams[connection];
        let mut bytes = [0; 65536];
        loop {
            if let Some((frame, length)) = Frame::read(received)? {
                received.drain(..length);
                return Ok(frame);
            }
            match stream.read(&mut bytes) {
                Ok(0) => return Err("the connection was closed".into()),
                Ok(count) => received.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(unfinished(received)),
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    fn ask(&mut self, connection: usize, command: &[Vec<u8>]) -> Result<Frame, String> {
        let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        self.send(connection, &encode(&words))?;
        self.reply(connection).map_err(|error| format!("{}: {error}", shown(command)))
    }
}

/// The error for an incomplete reply, with the bytes that came.
fn unfinished(received: &[u8]) -> String {
    let end = &received[received.len().saturating_sub(SHOWN_BYTES)..];
    format!("no whole reply, but {} bytes: …{}", received.len(), end.escape_ascii())
}

/// Sends a stream to both servers, which are emptied first; returns the first difference that `known` does
/// not explain.
///
/// # Errors
/// A server that does not answer.
pub fn differ(
    servers: [SocketAddr; 2],
    stream: &[Sent],
    known: &mut dyn FnMut(&Difference) -> bool,
) -> Result<Option<Difference>, String> {
    let mut sides = [Side::new(servers[0])?, Side::new(servers[1])?];
    for (name, side) in NAMES.iter().zip(&mut sides) {
        for command in [&["FLUSHALL"][..], &["FUNCTION", "FLUSH"]] {
            let words: Vec<Vec<u8>> = command.iter().map(|word| word.as_bytes().to_vec()).collect();
            let emptied = side.ask(0, &words).map_err(|error| format!("{name}: {error}"))?;
            if emptied.line != b"+OK" {
                return Err(format!("{name}: {}: {}", command[0], emptied.shown()));
            }
        }
    }
    let mut comparers = vec![Comparer::default(); CONNECTIONS];
    for (at, (connection, command)) in stream.iter().enumerate() {
        let mut ask = |side: usize| {
            let name = NAMES[side];
            sides[side].ask(*connection, command).map_err(|error| format!("{name}, command {at}: {error}"))
        };
        let (first, second) = (ask(0)?, ask(1)?);
        for (command, first, second) in comparers[*connection].unlike(command, &first, &second) {
            let difference = Difference { at, command, first, second };
            if !known(&difference) {
                return Ok(Some(difference));
            }
            // The servers hold different data from here on, unless both refused the command, or it only
            // reads.
            let refused = difference.first.is_error() && difference.second.is_error();
            let reads =
                || READS.iter().any(|name| difference.command[0].eq_ignore_ascii_case(name.as_bytes()));
            if !refused && !reads() {
                return Ok(None);
            }
        }
    }
    Ok(None)
}

/// Leaves out each command without which the stream's last reply still differs; `None` if no reply differs this time.
///
/// # Errors
/// A server does not answer.
pub fn reduce(
    servers: [SocketAddr; 2],
    stream: &[Sent],
    known: &mut dyn FnMut(&Difference) -> bool,
) -> Result<Option<(Vec<Sent>, Difference)>, String> {
    let Some(mut found) = differ(servers, stream, known)? else { return Ok(None) };
    let mut stream = stream[..=found.at].to_vec();
    let mut piece = stream.len() / 2;
    while piece > 0 {
        let mut from = 0;
        while from + piece < stream.len() {
            let mut shorter = stream.clone();
            shorter.drain(from..from + piece);
            match differ(servers, &shorter, known)? {
                Some(again) if again.command == found.command => {
                    shorter.truncate(again.at + 1);
                    (stream, found) = (shorter, again);
                }
                _ => from += piece,
            }
        }
        piece /= 2;
    }
    Ok(Some((stream, found)))
}
