//! One connection of the generator: where it stands in its script, and the check of its replies.

use std::io;
use std::time::Instant;

use larder_eventloop::socket::Socket;

use crate::error::Error;
use crate::tally::Tally;
use crate::value::{self, Flaw};
use crate::wire::{Classic, Event, Grammar, Malformed, Meta, Protocol, Resp};
use crate::workload::{Script, Verb, Window, Workload};

/// How closely replies are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Bytes of a window are counted, and its end compared. Any reply of another length is found.
    Length,
    /// Every reply is parsed: each must be of the kind and size expected.
    Parse,
    /// And every value must name the key asked for and be whole.
    Verify,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    pub(crate) socket: Socket,
    /// Index of its script.
    pub(crate) script: usize,
    /// Index of the window being sent or answered.
    window: usize,
    /// Bytes of it that are sent.
    sent: usize,
    /// Bytes of replies that have come ([`Check::Length`]).
    received: usize,
    /// Requests of it that are answered.
    answered: usize,
    /// Index in the script's keys of the next key to be answered.
    key: usize,
    /// Start of a reply whose end has not come yet.
    held: Vec<u8>,
    started: Instant,
}

impl Connection {
    pub(crate) fn new(socket: Socket, script: usize) -> Connection {
        Connection {
            socket,
            script,
            window: 0,
            sent: 0,
            received: 0,
            answered: 0,
            key: 0,
            held: Vec::new(),
            started: Instant::now(),
        }
    }

    /// Takes up the script's current window, from its first byte.
    pub(crate) fn begin(&mut self, script: &Script, now: Instant) {
        self.sent = 0;
        self.received = 0;
        self.answered = 0;
        self.key = script.windows[self.window].keys.start;
        self.started = now;
    }

    /// Sends what the system takes; true when the window is out.
    pub(crate) fn send(&mut self, script: &Script) -> Result<bool, Error> {
        let bytes = &script.bytes[script.windows[self.window].bytes.clone()];
        match self.socket.send(&bytes[self.sent..]) {
            Ok(sent) => self.sent += sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(Error::lost(error)),
        }
        Ok(self.sent == bytes.len())
    }

    /// Takes what has come; true when the window is answered in full.
    pub(crate) fn receive(
        &mut self,
        buffer: &mut [u8],
        script: &Script,
        workload: &Workload,
        check: Check,
        tally: &mut Tally,
    ) -> Result<bool, Error> {
        let held = self.held.len();
        buffer[..held].copy_from_slice(&self.held);
        let received = match self.socket.recv(&mut buffer[held..]) {
            Ok(0) => return Err(Error::Closed),
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(Error::lost(error)),
        };
        self.held.clear();
        let bytes = &buffer[..held + received];
        let window = &script.windows[self.window];
        if check == Check::Length {
            return self.count(bytes, window, workload, tally);
        }
        let parse = match (workload.protocol, check == Check::Verify) {
            (Protocol::Classic, false) => Self::parse::<Classic, false>,
            (Protocol::Classic, true) => Self::parse::<Classic, true>,
            (Protocol::Meta, false) => Self::parse::<Meta, false>,
            (Protocol::Meta, true) => Self::parse::<Meta, true>,
            (Protocol::Resp, false) => Self::parse::<Resp, false>,
            (Protocol::Resp, true) => Self::parse::<Resp, true>,
        };
        let used = parse(self, bytes, script, window, workload, tally)?;
        if self.answered < window.requests {
            self.held.extend_from_slice(&bytes[used..]);
            return Ok(false);
        }
        if used < bytes.len() {
            return Err(Error::surplus(&bytes[used..]));
        }
        Ok(true)
    }

    /// [`Check::Length`].
    fn count(
        &mut self,
        bytes: &[u8],
        window: &Window,
        workload: &Workload,
        tally: &mut Tally,
    ) -> Result<bool, Error> {
        self.received += bytes.len();
        if self.received < window.reply_bytes {
            return Ok(false);
        }
        if self.received > window.reply_bytes {
            return Err(Error::surplus(bytes));
        }
        let tail = workload.reply_tail();
        let end = &bytes[bytes.len().saturating_sub(tail.len())..];
        if !tail.ends_with(end) {
            return Err(Error::Reply(format!(
                "replies end with \"{}\" in place of \"{}\"",
                end.escape_ascii(),
                tail.escape_ascii()
            )));
        }
        let keys = window.keys.len() as u64;
        match workload.verb {
            Verb::Hit => tally.hits += keys,
            Verb::Miss => tally.misses += keys,
            Verb::Set => tally.stored += keys,
        }
        self.answered = window.requests;
        Ok(true)
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
        let mut used = 0;
        while self.answered < window.requests {
            let rest = &bytes[used..];
            let Some((event, event_bytes)) = G::event(rest).map_err(|Malformed| Error::malformed(rest))?
            else {
                break;
            };
            // Keys of this request end here.
            let end = window.keys.start + (self.answered + 1) * per_request;
            let mut done = false;
            match event {
                Event::Value { key, value } if workload.verb != Verb::Set && self.key < end => {
                    if key.is_some_and(|key| key.len() != workload.keyspace.key_bytes) {
                        return Err(Error::malformed(rest));
                    }
                    if VERIFY {
                        // Keys that a classic server leaves out were misses.
                        if let Some(key) = key {
                            while self.key + 1 < end && !is_key(script, self.key, key) {
                                self.key += 1;
                                missed(workload, tally);
                            }
                            if !is_key(script, self.key, key) {
                                tally.mistake(|| wrong_key(script, self.key, key));
                            }
                        }
                        verify(script.keys[self.key].id, value, tally);
                    }
                    self.key += 1;
                    tally.hits += 1;
                    if workload.verb == Verb::Miss {
                        tally.mistake(|| "a value for a key that nobody stored".to_owned());
                    } else if value.len() != workload.keyspace.value_bytes {
                        tally.mistake(|| format!("a value of {} bytes", value.len()));
                    }
                    done = !G::END && self.key == end;
                }
                Event::Miss if workload.verb != Verb::Set && self.key < end => {
                    self.key += 1;
                    missed(workload, tally);
                    done = self.key == end;
                }
                Event::End if workload.verb != Verb::Set => {
                    (self.key..end).for_each(|_| missed(workload, tally));
                    done = true;
                }
                Event::Stored if workload.verb == Verb::Set => {
                    tally.stored += 1;
                    done = true;
                }
                Event::Count(keys)
                    if keys == per_request && per_request > 1 && self.key + per_request == end => {}
                Event::Refused(line) => {
                    tally.mistake(|| format!("refused: {}", line.escape_ascii()));
                    done = true;
                }
                Event::Value { .. } | Event::Miss | Event::End | Event::Stored | Event::Count(_) => {
                    return Err(Error::malformed(rest));
                }
            }
            if done {
                self.answered += 1;
                self.key = end;
            }
            used += event_bytes;
        }
        Ok(used)
    }

    /// Counts an answered window, and turns to the next; true when the script is at its start again.
    pub(crate) fn finish(&mut self, script: &Script, now: Instant, tally: &mut Tally) -> bool {
        let window = &script.windows[self.window];
        tally.requests += window.requests as u64;
        tally.keys += window.keys.len() as u64;
        tally.record(now - self.started);
        self.window = (self.window + 1) % script.windows.len();
        self.window == 0
    }

    /// Bytes still missing of the current window's replies, as far as [`Check::Length`] knows; for the
    /// other checks, of the requests that are not answered.
    pub(crate) fn missing_bytes(&self, script: &Script) -> usize {
        let window = &script.windows[self.window];
        let answered_bytes = window.reply_bytes / window.requests * self.answered;
        window.reply_bytes.saturating_sub(self.received.max(answered_bytes + self.held.len()))
    }
}

#[inline]
fn is_key(script: &Script, index: usize, key: &[u8]) -> bool {
    script.bytes[script.keys[index].at as usize..].starts_with(key)
}

#[inline]
fn missed(workload: &Workload, tally: &mut Tally) {
    tally.misses += 1;
    if workload.verb == Verb::Hit {
        tally.mistake(|| "a miss for a key that was stored".to_owned());
    }
}

#[inline]
fn verify(id: u32, value: &[u8], tally: &mut Tally) {
    match value::verify(value, id) {
        Ok(_) => {}
        Err(Flaw::OfKey(other)) => {
            tally.mistake(|| format!("key {id} has the value of key {other}"));
        }
        Err(Flaw::Torn) => {
            let start = &value[..value.len().min(48)];
            tally.mistake(|| format!("key {id} has a broken value: \"{}\"…", start.escape_ascii()));
        }
    }
}

fn wrong_key(script: &Script, index: usize, key: &[u8]) -> String {
    format!("a value of \"{}\" for key {}", key.escape_ascii(), script.keys[index].id)
}
