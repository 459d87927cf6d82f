//! Runs a case over anything that carries bytes.
//!
//! Expected bytes are compared as they come, so that a wrong reply is reported with what came, not as a
//! timeout. After the last step every open connection is probed with `mn` (or `PING`, or a noop): exactly
//! `MN` must come back. So a superfluous reply is found in the case that caused it.

use crate::PATIENCE;
use crate::frames;
use crate::pattern::{Captures, Match, escaped};
use crate::transcript::{Action, Case, StatTest, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// What [`Wire::receive`] got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Some bytes.
    Bytes,
    /// The server has closed the connection.
    Closed,
    /// Nothing, and nothing is to be expected.
    Silence,
}

/// How bytes are handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// In one piece.
    Whole,
    /// Byte by byte; input beyond [`SINGLE_BYTES_MAX`] in pieces of odd sizes.
    Bytes,
}

/// Bytes of one send that are handed over one by one.
pub const SINGLE_BYTES_MAX: usize = 4096;
const PIECE_BYTES: usize = 997;

/// Connections to one server, by name.
pub trait Wire {
    /// Opens a connection.
    ///
    /// # Errors
    /// The system's error.
    fn connect(&mut self, name: &str) -> Result<(), String>;
    /// Hands over bytes; a connection that the server has closed takes them and drops them.
    ///
    /// # Errors
    /// The system's error.
    fn send(&mut self, name: &str, bytes: &[u8]) -> Result<(), String>;
    /// Appends received bytes to `buffer`.
    ///
    /// # Errors
    /// The system's error.
    fn receive(&mut self, name: &str, buffer: &mut Vec<u8>) -> Result<Received, String>;
    /// Like [`Wire::receive`], but only for bytes that are there already.
    ///
    /// # Errors
    /// The system's error.
    fn peek(&mut self, name: &str, buffer: &mut Vec<u8>) -> Result<Received, String>;
    /// How long the case waits for an expected byte.
    fn patience(&self) -> Duration {
        PATIENCE
    }
    /// Closes the client's end.
    fn hangup(&mut self, name: &str);
    /// Lets time pass.
    ///
    /// # Errors
    /// When the server's clock cannot be moved.
    fn advance(&mut self, seconds: u64) -> Result<(), String>;
}

/// Runs `case` on a fresh server.
///
/// # Errors
/// File and line, the expected and the received bytes.
pub fn run(case: &Case, wire: &mut dyn Wire, split: Split) -> Result<(), String> {
    run_beside(case, wire, split, &|_| false)
}

/// Runs `case` on a server of the kind that `is` names. If a step of the case has another one in its place
/// for that kind, that one must hold, and the case ends there.
///
/// # Errors
/// As [`run`].
pub fn run_beside(
    case: &Case,
    wire: &mut dyn Wire,
    split: Split,
    is: &dyn Fn(&str) -> bool,
) -> Result<(), String> {
    let mut run =
        Run { wire, split, captures: Captures::new(), buffers: BTreeMap::new(), ended: BTreeSet::new() };
    let mut steps = case.steps.iter().peekable();
    while let Some(step) = steps.next() {
        let mut bytes = Vec::new();
        let at = |error: String| format!("{}: line {}: {error}", case.name(), step.line);
        if let Action::Send(pattern) = &step.action {
            bytes.extend(pattern.render(&run.captures).map_err(at)?);
            while let Some(Step { action: Action::Send(next), connection, .. }) = steps.peek() {
                if *connection != step.connection {
                    break;
                }
                bytes.extend(next.render(&run.captures).map_err(at)?);
                steps.next();
            }
            run.send(&step.connection, &bytes).map_err(at)?;
        } else if let Some((_, step)) = step.otherwise.iter().find(|(who, _)| is(who)) {
            return run.step(step).map_err(at);
        } else {
            run.step(step).map_err(at)?;
        }
    }
    if !case.unfinished {
        let noop = frames::probe();
        let (sent, expected): (&[u8], &[u8]) = match () {
            () if case.resp => (b"PING\r\n", b"+PONG\r\n"),
            () if case.binary => (&noop.0, &noop.1),
            () => (b"mn\r\n", b"MN\r\n"),
        };
        run.probe(sent, expected)
            .map_err(|error| format!("{}: after the last step: {error}", case.name()))?;
    }
    Ok(())
}

struct Run<'w> {
    wire: &'w mut dyn Wire,
    split: Split,
    captures: Captures,
    /// Received bytes that no step has expected yet, per open connection.
    buffers: BTreeMap<String, Vec<u8>>,
    ended: BTreeSet<String>,
}

impl Run<'_> {
    fn step(&mut self, step: &Step) -> Result<(), String> {
        let name = &step.connection;
        match &step.action {
            Action::Send(_) => Ok(()),
            Action::Connect => self.open(name),
            Action::Silent => {
                self.open(name)?;
                self.wire.peek(name, self.buffers.get_mut(name).expect("opened"))?;
                match &self.buffers[name][..] {
                    [] => Ok(()),
                    extra => Err(format!("expected nothing, got {}", escaped(extra))),
                }
            }
            Action::Expect(pattern) => {
                self.open(name)?;
                loop {
                    let buffer = &self.buffers[name];
                    match pattern.matches(buffer, &mut self.captures) {
                        Match::Full(bytes) => {
                            self.buffers.get_mut(name).expect("opened").drain(..bytes);
                            return Ok(());
                        }
                        Match::Differs(_) => break,
                        Match::More => {}
                    }
                    if self.receive(name)? != Received::Bytes {
                        break;
                    }
                }
                let got = escaped(&self.buffers[name]);
                Err(format!("\n  expected {}\n  got      {got}", pattern.describe(&self.captures)))
            }
            Action::Closed => {
                self.open(name)?;
                while self.receive(name)? == Received::Bytes {}
                self.ended.insert(name.clone());
                match &self.buffers[name][..] {
                    [] if self.wire.receive(name, &mut Vec::new())? == Received::Closed => Ok(()),
                    [] => Err("the connection stays open".into()),
                    extra => Err(format!("expected a close, got {}", escaped(extra))),
                }
            }
            Action::Hangup => {
                self.wire.hangup(name);
                self.ended.insert(name.clone());
                Ok(())
            }
            Action::Clock(seconds) => self.wire.advance(*seconds),
            Action::Waits(count) => self.until_blocked(name, *count),
            Action::Differ(a, b) => match (self.captures.get(a), self.captures.get(b)) {
                (Some(a), Some(b)) if a != b => Ok(()),
                (a, b) => Err(format!("{a:?} and {b:?} should differ")),
            },
            Action::Below(a, b) => {
                let (low, high) = (self.number(a)?, self.number(b)?);
                if low < high { Ok(()) } else { Err(format!("{low} should be below {high}")) }
            }
            Action::Stat { arguments, key, test } => {
                let stats = self.stats(name, arguments)?;
                let value = stats.iter().find(|(other, _)| other == key).map(|(_, value)| value.clone());
                let value = value.ok_or(format!("no statistic {key}"))?;
                let holds = match test {
                    StatTest::Is(text) => value == *text,
                    StatTest::AtLeast(number) => value.parse::<u64>().is_ok_and(|value| value >= *number),
                };
                if holds { Ok(()) } else { Err(format!("{key} is {value}, expected {test:?}")) }
            }
            Action::StatKeys { arguments, keys } => {
                let mut found: Vec<String> =
                    self.stats(name, arguments)?.into_iter().map(|(key, _)| key).collect();
                let mut keys = keys.clone();
                found.sort();
                keys.sort();
                if found == keys {
                    return Ok(());
                }
                let missing: Vec<_> = keys.iter().filter(|key| !found.contains(key)).collect();
                let extra: Vec<_> = found.iter().filter(|key| !keys.contains(key)).collect();
                Err(format!("{} names; missing {missing:?}, extra {extra:?}, or one twice", found.len()))
            }
        }
    }

    fn open(&mut self, name: &str) -> Result<(), String> {
        if !self.buffers.contains_key(name) {
            self.wire.connect(name)?;
            self.buffers.insert(name.to_owned(), Vec::new());
        }
        Ok(())
    }

    fn send(&mut self, name: &str, bytes: &[u8]) -> Result<(), String> {
        self.open(name)?;
        if self.split == Split::Whole {
            return self.wire.send(name, bytes);
        }
        let (single, rest) = bytes.split_at(bytes.len().min(SINGLE_BYTES_MAX));
        for byte in single.chunks(1).chain(rest.chunks(PIECE_BYTES)) {
            self.wire.send(name, byte)?;
        }
        Ok(())
    }

    fn receive(&mut self, name: &str) -> Result<Received, String> {
        self.wire.receive(name, self.buffers.get_mut(name).expect("opened"))
    }

    /// Sends INFO on the connection, which must have no reply outstanding, until this many clients are
    /// blocked.
    fn until_blocked(&mut self, name: &str, count: u64) -> Result<(), String> {
        let wanted = format!("\r\nblocked_clients:{count}\r\n");
        let began = Instant::now();
        self.open(name)?;
        loop {
            self.wire.send(name, b"INFO clients\r\n")?;
            let text = loop {
                let text = String::from_utf8_lossy(&self.buffers[name]).into_owned();
                let head = text.strip_prefix('$').and_then(|rest| rest.split_once("\r\n"));
                if let Some((bytes, rest)) = head
                    && bytes.parse() == Ok(rest.len().saturating_sub(2))
                {
                    break text;
                }
                if self.receive(name)? != Received::Bytes {
                    return Err(format!("INFO ended with {}", escaped(&self.buffers[name])));
                }
            };
            self.buffers.get_mut(name).expect("opened").clear();
            if text.contains(&wanted) {
                return Ok(());
            }
            if began.elapsed() > self.wire.patience() {
                return Err(format!("there are not {count} that wait: {text}"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn number(&self, name: &str) -> Result<u64, String> {
        let digits = self.captures.get(name).ok_or(format!("${name} is not captured"))?;
        String::from_utf8_lossy(digits).parse().map_err(|_| format!("${name} is no number"))
    }

    /// Asks for statistics on the connection, which must have no reply outstanding.
    fn stats(&mut self, name: &str, arguments: &str) -> Result<Vec<(String, String)>, String> {
        let command =
            if arguments.is_empty() { "stats\r\n".into() } else { format!("stats {arguments}\r\n") };
        self.open(name)?;
        self.wire.send(name, command.as_bytes())?;
        while !self.buffers[name].ends_with(b"END\r\n") {
            if self.receive(name)? != Received::Bytes {
                return Err(format!("stats ended with {}", escaped(&self.buffers[name])));
            }
        }
        let text = String::from_utf8_lossy(&std::mem::take(self.buffers.get_mut(name).expect("opened")))
            .into_owned();
        let mut stats = Vec::new();
        for line in text.strip_suffix("END\r\n").expect("checked").split_terminator("\r\n") {
            let pair = line.strip_prefix("STAT ").ok_or(format!("not a statistic: {line:?}"))?;
            let (key, value) = pair.split_once(' ').ok_or(format!("not a statistic: {line:?}"))?;
            stats.push((key.to_owned(), value.to_owned()));
        }
        Ok(stats)
    }

    fn probe(&mut self, sent: &[u8], expected: &[u8]) -> Result<(), String> {
        let open: Vec<String> =
            self.buffers.keys().filter(|name| !self.ended.contains(*name)).cloned().collect();
        for name in open {
            self.wire.send(&name, sent)?;
            while self.buffers[&name].len() < expected.len() && self.receive(&name)? == Received::Bytes {}
            let buffer = &self.buffers[&name];
            if buffer != expected {
                let (asked, answer) = (escaped(sent), escaped(buffer));
                return Err(format!("connection {name}: the answer to a last {asked} is {answer}"));
            }
        }
        Ok(())
    }
}
