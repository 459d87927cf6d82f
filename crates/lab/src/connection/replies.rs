//! Replies of a connection: received, counted or parsed, and compared with what is expected.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use larder_protocol::client::{Classic, Event, Grammar, Malformed, Meta, Protocol, Resp, counter};

use super::{Check, Connection, Flight, Pace};
use crate::error::Error;
use crate::script::{Script, Window};
use crate::tally::Tally;
use crate::workload::{Verb, Workload};

impl Connection {
    /// Receives the bytes that have come, and records the windows that are answered completely. Returns their number.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        workload: &Workload,
        check: Check,
        pace: Pace,
        tally: &mut Tally,
    ) -> Result<usize, Error> {
        let buffered = self.buffered.len();
        buffer[..buffered].copy_from_slice(&self.buffered);
        let received = match self.wire.recv(&mut buffer[buffered..]) {
            Ok(0) => return Err(Error::Closed),
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(Error::lost(error)),
        };
        self.buffered.clear();
        let mut bytes = &buffer[..buffered + received];
        // A second reference, so that the script can be read while the connection changes; it is dropped before the next send.
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
            match pace {
                Pace::Closed => tally.took(now - due),
                Pace::Open => tally.took_since_due(now - due, now - sent, sent - due),
            }
            done += 1;
        }
        if bytes.len() == buffer.len() {
            return Err(Error::endless(bytes.len() - 1, bytes));
        }
        self.buffered.extend_from_slice(bytes);
        Ok(done)
    }

    /// [`Check::Length`]: counts bytes up to the end of the window, and compares its end; returns how many bytes it took.
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
            Verb::Hit | Verb::EvalSha => tally.hits += keys as u64,
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

    /// [`Check::Parse`] and [`Check::Verify`]: reads replies up to the end of the window; returns how many bytes they took.
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
                    (
                        Event::Value { key, flags, value },
                        Verb::Hit | Verb::Get | Verb::Miss | Verb::EvalSha,
                    ) if self.key < end => {
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
                            self.verify(script.keys[self.key], flags, value, workload, tally);
                        }
                        self.key += 1;
                        tally.hits += 1;
                        if request.verb == Verb::Miss {
                            tally.mistake(|| "a value for a key that was never stored".to_owned());
                        } else if fixed.is_some_and(|bytes| bytes != value.len()) {
                            tally.mistake(|| format!("a value of {} bytes", value.len()));
                        }
                        !G::END && self.key == end
                    }
                    (Event::Token { key, flags, value, token }, Verb::Gets) if self.key < end => {
                        if VERIFY && key.is_some_and(|key| !is_key(script, self.key, key)) {
                            tally.mistake(|| wrong_key(script, self.key, key.unwrap_or_default()));
                        }
                        self.found::<VERIFY>(script.keys[self.key], flags, value, workload, tally);
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
                        let number = counter(value).map_err(|Malformed| Error::malformed(rest))?;
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
        let come = self.received.max(first / requests * self.requests + self.buffered.len());
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
