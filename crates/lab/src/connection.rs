//! One connection of the generator: where it stands in its script, and the check of its replies.
//!
//! Windows are begun, sent, and answered in the order of the script; in a closed loop one is under way
//! at a time, in an open loop any number:
//!
//! ```text
//! answered ─► [ window ][ window ][ window ] ◄─ begun
//!                  ▲ replies      ▲ sent up to here
//! ```
//!
//! Whether a reply is true, as far as this connection can know, is decided in `known`.

mod known;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use larder_eventloop::socket::Socket;

use crate::error::Error;
use crate::script::{Script, Window};
use crate::tally::Tally;
use crate::wire::{Classic, Event, Grammar, Malformed, Meta, Protocol, Resp, long_number};
use crate::workload::{Verb, Workload};
use known::{Known, Token};

/// How closely replies are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Bytes of a window are counted, and its end compared. Any reply of another length is found.
    Length,
    /// Every reply is parsed: each must be of the kind and size expected.
    Parse,
    /// And every value must name the key asked for and be whole; of keys that only this connection
    /// changes it must be the last one written.
    Verify,
}

/// What decides when a window is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The answer to the last one.
    Closed,
    /// A clock.
    Open,
}

/// When a window was to be sent, and when it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub due: Instant,
    pub sent: Instant,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    pub(crate) socket: Socket,
    pub(crate) script: Arc<Script>,
    /// Windows begun since it connected for the first time; those before `begun` are to be sent.
    pub(crate) begun: u64,
    /// Windows sent whole, and bytes sent of the next.
    sent: u64,
    sent_bytes: usize,
    /// Windows answered in full, and how many of them before this run.
    pub(crate) answered: u64,
    pub(crate) answered_before: u64,
    /// Bytes of the first unanswered window's replies that have come ([`Check::Length`]).
    received: usize,
    /// Requests of it that are answered.
    requests: usize,
    /// Index in the script's keys of the next key to be answered.
    key: usize,
    /// Replies to the commands of a transaction that have come.
    step: usize,
    /// Start of a reply whose end has not come yet.
    held: Vec<u8>,
    /// Windows under way.
    pub(crate) flights: VecDeque<Flight>,
    /// What the keys hold that only this connection changes: see [`Known`].
    known: Vec<u64>,
    /// Their tokens, where the script swaps.
    tokens: Vec<Token>,
    /// It waits for room to send.
    pub(crate) blocked: bool,
}

impl Connection {
    pub(crate) fn new(socket: Socket, script: Arc<Script>) -> Connection {
        let known = vec![Known::UNKNOWN; script.slots];
        let tokens = vec![Token::NONE; if script.swaps { script.slots } else { 0 }];
        Connection {
            socket,
            script,
            begun: 0,
            sent: 0,
            sent_bytes: 0,
            answered: 0,
            answered_before: 0,
            received: 0,
            requests: 0,
            key: 0,
            step: 0,
            held: Vec::new(),
            flights: VecDeque::new(),
            known,
            tokens,
            blocked: false,
        }
    }

    /// Takes a new socket in place of the one whose windows are all answered.
    pub(crate) fn replace(&mut self, socket: Socket) {
        debug_assert!(self.flights.is_empty() && self.held.is_empty());
        self.socket = socket;
    }

    /// There is nothing for it to send.
    pub(crate) fn is_idle(&self) -> bool {
        self.script.windows.is_empty()
    }

    /// Begins a run: forgets what its keys hold, as others have changed them since the last one.
    pub(crate) fn start(&mut self) {
        self.answered_before = self.answered;
        self.known.fill(Known::UNKNOWN);
        self.tokens.fill(Token::NONE);
    }

    /// Takes up the script's next window, which was due at `due`. `renew`: writes get new versions, and
    /// tokens if they have any.
    pub(crate) fn begin(&mut self, due: Instant, renew: Option<&Workload>) {
        let windows = self.script.windows.len() as u64;
        if let Some(workload) = renew
            && self.begun >= windows
        {
            let window = (self.begun % windows) as usize;
            let before = self.begun / windows * self.script.requests.len() as u64
                + self.script.windows[window].requests.start as u64;
            Arc::make_mut(&mut self.script).renew(window, before, workload);
        }
        if !self.tokens.is_empty() {
            let tokens = &self.tokens;
            let token = |slot: u32| tokens[slot as usize].value;
            Arc::make_mut(&mut self.script).name_tokens((self.begun % windows) as usize, token);
        }
        self.begun += 1;
        self.flights.push_back(Flight { due, sent: due });
    }

    /// Sends what the system takes of the windows begun; true when all of it is out. `now` is noted as
    /// the time that windows go out which have not.
    pub(crate) fn send(&mut self, now: Instant) -> Result<bool, Error> {
        let windows = self.script.windows.len() as u64;
        while self.sent < self.begun {
            // As many windows as lie one behind the other.
            let first = (self.sent % windows) as usize;
            let count = (self.begun - self.sent).min(windows - first as u64) as usize;
            let start = self.script.windows[first].bytes.start + self.sent_bytes;
            let end = self.script.windows[first + count - 1].bytes.end;
            let begun = self.flights.len() - (self.begun - self.sent) as usize;
            let fresh = begun + usize::from(self.sent_bytes > 0);
            self.flights.iter_mut().skip(fresh).for_each(|flight| flight.sent = now);
            let taken = match self.socket.send(&self.script.bytes[start..end]) {
                Ok(taken) => taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(Error::lost(error)),
            };
            let upto = start + taken;
            if upto == end {
                (self.sent, self.sent_bytes) = (self.sent + count as u64, 0);
                continue;
            }
            let whole = self.script.windows[first..first + count].partition_point(|w| w.bytes.end <= upto);
            self.sent += whole as u64;
            self.sent_bytes = upto - self.script.windows[first + whole].bytes.start;
        }
        Ok(true)
    }

    /// Takes what has come; the windows that it answers in full are recorded. Returns how many.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        workload: &Workload,
        check: Check,
        pace: Pace,
        tally: &mut Tally,
    ) -> Result<usize, Error> {
        let held = self.held.len();
        buffer[..held].copy_from_slice(&self.held);
        let received = match self.socket.recv(&mut buffer[held..]) {
            Ok(0) => return Err(Error::Closed),
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(Error::lost(error)),
        };
        self.held.clear();
        let mut bytes = &buffer[..held + received];
        // A count more, so that the script can be read while the connection changes; it is given back
        // before anything is sent.
        let script = Arc::clone(&self.script);
        let parse = match (workload.protocol, check) {
            (_, Check::Length) => Self::count,
            (Protocol::Classic, Check::Parse) => Self::parse::<Classic, false>,
            (Protocol::Classic, Check::Verify) => Self::parse::<Classic, true>,
            (Protocol::Meta, Check::Parse) => Self::parse::<Meta, false>,
            (Protocol::Meta, Check::Verify) => Self::parse::<Meta, true>,
            (Protocol::Resp, Check::Parse) => Self::parse::<Resp, false>,
            (Protocol::Resp, Check::Verify) => Self::parse::<Resp, true>,
        };
        let mut done = 0;
        let mut now = None;
        while !bytes.is_empty() {
            let Some(&Flight { due, sent }) = self.flights.front() else {
                return Err(Error::surplus(bytes));
            };
            let window = &script.windows[(self.answered % script.windows.len() as u64) as usize];
            let used = parse(self, bytes, &script, window, workload, tally)?;
            bytes = &bytes[used..];
            if self.requests < window.requests.len() {
                break;
            }
            self.finish(&script, window, tally);
            let now = *now.get_or_insert_with(Instant::now);
            tally.latency.record(now - due);
            if pace == Pace::Open {
                tally.service.record(now - sent);
                tally.lag.record(sent - due);
            }
            done += 1;
        }
        self.held.extend_from_slice(bytes);
        Ok(done)
    }

    /// [`Check::Length`].
    fn count(
        &mut self,
        bytes: &[u8],
        script: &Script,
        window: &Window,
        workload: &Workload,
        tally: &mut Tally,
    ) -> Result<usize, Error> {
        let used = bytes.len().min(window.reply_bytes - self.received);
        self.received += used;
        if self.received < window.reply_bytes {
            return Ok(used);
        }
        let tail = workload.reply_tail(script.requests[window.requests.end - 1].verb);
        let end = &bytes[used.saturating_sub(tail.len())..used];
        if !tail.ends_with(end) {
            return Err(Error::Reply(format!(
                "replies end with \"{}\" in place of \"{}\"",
                end.escape_ascii(),
                tail.escape_ascii()
            )));
        }
        let mut count = |verb: Verb, keys: usize| match verb {
            Verb::Hit => tally.hits += keys as u64,
            Verb::Miss => tally.misses += keys as u64,
            Verb::Set => tally.stored += keys as u64,
            _ => unreachable!("their replies have no known length"),
        };
        match workload.mix.only() {
            Some(verb) => count(verb, window.keys.len()),
            None => {
                let mut start = window.keys.start;
                for request in &script.requests[window.requests.clone()] {
                    count(request.verb, request.keys_end as usize - start);
                    start = request.keys_end as usize;
                }
            }
        }
        self.requests = window.requests.len();
        Ok(used)
    }

    /// [`Check::Parse`] and [`Check::Verify`]: reads replies up to the end of the window; returns how
    /// many bytes they took.
    fn parse<G: Grammar, const VERIFY: bool>(
        &mut self,
        bytes: &[u8],
        script: &Script,
        window: &Window,
        workload: &Workload,
        tally: &mut Tally,
    ) -> Result<usize, Error> {
        let per_request = workload.keys_per_request;
        let fixed = if workload.sizes.is_none() { Some(workload.keyspace.value_bytes) } else { None };
        let mut used = 0;
        for request in &script.requests[window.requests.start + self.requests..window.requests.end] {
            let end = request.keys_end as usize;
            loop {
                let rest = &bytes[used..];
                let read = if request.verb == Verb::Gets { G::tokened(rest) } else { G::event(rest) };
                let Some((event, event_bytes)) = read.map_err(|Malformed| Error::malformed(rest))? else {
                    return Ok(used);
                };
                used += event_bytes;
                let done = match (event, request.verb) {
                    (Event::Value { key, value }, Verb::Hit | Verb::Get | Verb::Miss) if self.key < end => {
                        if key.is_some_and(|key| key.len() != workload.keyspace.key_bytes) {
                            return Err(Error::malformed(rest));
                        }
                        if VERIFY {
                            // Keys that a classic server leaves out were misses.
                            if let Some(key) = key {
                                while self.key + 1 < end && !is_key(script, self.key, key) {
                                    self.missed::<VERIFY>(script, request.verb, workload, tally);
                                }
                                if !is_key(script, self.key, key) {
                                    tally.mistake(|| wrong_key(script, self.key, key));
                                }
                            }
                            self.verify(script.keys[self.key], value, workload, tally);
                        }
                        self.key += 1;
                        tally.hits += 1;
                        if request.verb == Verb::Miss {
                            tally.mistake(|| "a value for a key that nobody stored".to_owned());
                        } else if fixed.is_some_and(|bytes| bytes != value.len()) {
                            tally.mistake(|| format!("a value of {} bytes", value.len()));
                        }
                        !G::END && self.key == end
                    }
                    (Event::Token { key, value, token }, Verb::Gets) if self.key < end => {
                        if VERIFY && key.is_some_and(|key| !is_key(script, self.key, key)) {
                            tally.mistake(|| wrong_key(script, self.key, key.unwrap_or_default()));
                        }
                        self.found::<VERIFY>(script.keys[self.key], value, workload, tally);
                        self.learnt::<VERIFY>(script.keys[self.key], token, tally);
                        self.key += 1;
                        !G::END
                    }
                    (Event::Miss, verb) if verb.is_read() && self.key < end => {
                        self.missed::<VERIFY>(script, verb, workload, tally);
                        self.key == end
                    }
                    (Event::End, verb) if verb.is_read() => {
                        while self.key < end {
                            self.missed::<VERIFY>(script, request.verb, workload, tally);
                        }
                        true
                    }
                    (Event::Count(keys), Verb::Hit | Verb::Get | Verb::Miss)
                        if keys == per_request && keys > 1 && self.key + keys == end =>
                    {
                        false
                    }
                    (Event::Stored, Verb::Set) => {
                        tally.stored += 1;
                        if VERIFY && !workload.zeros {
                            self.stored(script, window, workload);
                        }
                        true
                    }
                    (Event::Deleted | Event::Stored, Verb::Delete) | (Event::Number(1), Verb::Delete) => {
                        self.deleted::<VERIFY>(script, true, workload, tally);
                        true
                    }
                    (Event::Absent | Event::Number(0), Verb::Delete) => {
                        self.deleted::<VERIFY>(script, false, workload, tally);
                        true
                    }
                    (Event::Number(number), Verb::SetBit | Verb::GetBit | Verb::SetRange) => {
                        let most = match request.verb {
                            Verb::SetRange => workload.value_bytes(script.keys[self.key].id) as u64,
                            _ => 1,
                        };
                        let holds = number == most || number == 0 && most == 1;
                        if VERIFY && !holds {
                            tally.mistake(|| format!("{number} in place of {most}"));
                        }
                        tally.counted += 1;
                        true
                    }
                    (Event::Number(number), Verb::Incr) => {
                        self.counted::<VERIFY>(script, number, workload, tally);
                        true
                    }
                    (Event::Value { value, .. }, Verb::Incr) => {
                        let number = long_number(value).map_err(|Malformed| Error::malformed(rest))?;
                        self.counted::<VERIFY>(script, number, workload, tally);
                        true
                    }
                    (Event::Absent, Verb::Incr) => {
                        self.no_number::<VERIFY>(script, workload, tally);
                        true
                    }
                    (event, Verb::Cas) if workload.protocol == Protocol::Resp => self
                        .step::<VERIFY>(event, request, (script, window), workload, tally)
                        .ok_or_else(|| Error::malformed(rest))?,
                    (Event::Stored, Verb::Cas) => {
                        self.swapped::<VERIFY>(request, (script, window), workload, tally);
                        true
                    }
                    (Event::Conflict, Verb::Cas) => {
                        self.conflicted::<VERIFY>(request, script, tally);
                        true
                    }
                    (Event::Absent, Verb::Cas) => {
                        self.nothing_to_swap::<VERIFY>(script, workload, tally);
                        true
                    }
                    (Event::Refused(line), _) => {
                        tally.mistake(|| format!("refused: {}", line.escape_ascii()));
                        true
                    }
                    _ => return Err(Error::malformed(rest)),
                };
                if done {
                    break;
                }
            }
            self.requests += 1;
            self.key = end;
            self.step = 0;
        }
        Ok(used)
    }

    /// Turns to the next window.
    fn finish(&mut self, script: &Script, window: &Window, tally: &mut Tally) {
        tally.requests += window.requests.len() as u64;
        tally.keys += window.keys.len() as u64;
        self.flights.pop_front();
        self.answered += 1;
        self.received = 0;
        self.requests = 0;
        self.key = script.windows[(self.answered % script.windows.len() as u64) as usize].keys.start;
    }

    /// Bytes still missing of the replies under way, where their length is known.
    pub(crate) fn missing_bytes(&self) -> usize {
        let windows = self.script.windows.len() as u64;
        let length = |n: u64| self.script.windows[(n % windows) as usize].reply_bytes;
        let Some(first) = (self.answered < self.begun).then(|| length(self.answered)) else { return 0 };
        let requests = self.script.windows[(self.answered % windows) as usize].requests.len();
        let come = self.received.max(first / requests * self.requests + self.held.len());
        (self.answered..self.begun).map(length).sum::<usize>().saturating_sub(come)
    }
}

#[inline]
fn is_key(script: &Script, index: usize, key: &[u8]) -> bool {
    script.bytes[script.keys[index].at as usize..].starts_with(key)
}

fn wrong_key(script: &Script, index: usize, key: &[u8]) -> String {
    format!("a value of \"{}\" for key {}", key.escape_ascii(), script.keys[index].id)
}
