//! The contents of keys that only this connection changes, and the comparison of replies with them.

use larder_protocol::client::Event;

use super::Connection;
use crate::script::{KeyAt, NO_TOKEN, Request, Script, Window};
use crate::tally::Tally;
use crate::value::{self, Flaw, NAMED_BYTES_MIN};
use crate::workload::{Verb, Workload};

/// A key's contents in a word: 0 is unknown, 1 nothing, else a version or a number plus 2.
pub(super) struct Known;

impl Known {
    pub(super) const UNKNOWN: u64 = 0;
    const ABSENT: u64 = 1;

    fn holds(version: u64) -> u64 {
        version + 2
    }
}

/// The token of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    /// The last token that was read.
    pub(super) value: u64,
    /// The key was not changed since.
    live: bool,
}

impl Token {
    pub(super) const NONE: Token = Token { value: NO_TOKEN, live: false };
}

/// Indexes of the replies in a transaction, in order: WATCH, GET, MULTI, SET, EXEC and the result in it.
const WATCHED: usize = 0;
const GOT: usize = 1;
const BEGUN: usize = 2;
const WAITS: usize = 3;
const ENDED: usize = 4;
const DONE: usize = 5;

impl Connection {
    /// Counts a miss of the next key, and checks that it may miss.
    #[inline]
    pub(super) fn missed<const VERIFY: bool>(
        &mut self,
        script: &Script,
        verb: Verb,
        workload: &Workload,
        tally: &mut Tally,
    ) {
        let KeyAt { id, slot, .. } = script.keys[self.key];
        self.key += 1;
        tally.misses += 1;
        if verb != Verb::Miss && !workload.may_miss() {
            tally.mistake(|| format!("a miss for key {id}, which was stored"));
        }
        if VERIFY && let Some(known) = self.known.get_mut(slot as usize) {
            *known = Known::ABSENT;
        }
    }

    /// Checks a value that was read. All values of the lab have client flags 0.
    #[inline]
    pub(super) fn verify(
        &mut self,
        key: KeyAt,
        flags: u32,
        value: &[u8],
        workload: &Workload,
        tally: &mut Tally,
    ) {
        let id = key.id;
        if flags != 0 {
            tally.mistake(|| format!("key {id} has flags {flags}, which were never written"));
        }
        let version = match value::verify(value, id) {
            Ok(version) => version,
            Err(Flaw::OfKey(other)) => {
                return tally.mistake(|| format!("key {id} has the value of key {other}"));
            }
            Err(Flaw::Torn) => {
                let start = &value[..value.len().min(48)];
                return tally
                    .mistake(|| format!("key {id} has a broken value: \"{}\"…", start.escape_ascii()));
            }
        };
        if workload.sizes.is_some() && value.len() != workload.value_bytes(id) {
            tally.mistake(|| format!("key {id} has a value of {} bytes", value.len()));
        }
        if let Some(versions) = self.expected.as_ref().and_then(|expected| expected.get(&id))
            && !versions.is_empty()
            && !versions.contains(&version)
        {
            tally.mistake(|| {
                format!("key {id} has version {version}, which is no last write of anybody: stale")
            });
        }
        let Some(known) = self.known.get_mut(key.slot as usize) else { return };
        // Small values have no version, and what is known of a number stays known.
        if value.len() < NAMED_BYTES_MIN {
            if *known == Known::ABSENT {
                *known = Known::UNKNOWN;
                tally.mistake(|| format!("key {id} has come back"));
            }
            return;
        }
        match std::mem::replace(known, Known::holds(version)) {
            Known::UNKNOWN => {}
            Known::ABSENT => tally.mistake(|| format!("key {id} has come back with version {version}")),
            last if last == Known::holds(version) => {}
            last => tally.mistake(|| {
                format!("key {id} has version {version} after version {} was written: stale", last - 2)
            }),
        }
    }

    /// Notes what an acknowledged write stored.
    #[inline]
    pub(super) fn stored(&mut self, script: &Script, window: &Window, workload: &Workload) {
        let KeyAt { slot, id, .. } = script.keys[self.key];
        self.changed(slot);
        let Some(known) = self.known.get_mut(slot as usize) else { return };
        // The fill's and small values have no version.
        if workload.value_bytes(id) < NAMED_BYTES_MIN {
            *known = Known::UNKNOWN;
            return;
        }
        let rounds = self.answered / script.windows.len() as u64;
        let before = rounds * script.requests.len() as u64 + (window.requests.start + self.requests) as u64;
        *known = Known::holds(script.first_version + before);
    }

    /// Counts the reply to a delete, and checks it.
    pub(super) fn deleted<const VERIFY: bool>(
        &mut self,
        script: &Script,
        was_there: bool,
        workload: &Workload,
        tally: &mut Tally,
    ) {
        let KeyAt { slot, id, .. } = script.keys[self.key];
        if was_there {
            tally.deleted += 1;
            self.changed(slot);
        } else {
            tally.absent += 1;
        }
        let Some(known) = self.known.get_mut(slot as usize).filter(|_| VERIFY) else { return };
        match std::mem::replace(known, Known::ABSENT) {
            Known::ABSENT if was_there => tally.mistake(|| format!("key {id} was deleted twice")),
            Known::UNKNOWN | Known::ABSENT => {}
            _ if !was_there && !workload.may_lose() => {
                tally.mistake(|| format!("key {id} was there, and was not to be deleted"));
            }
            _ => {}
        }
    }

    /// Counts the number that an addition of one returned, and checks it.
    pub(super) fn counted<const VERIFY: bool>(
        &mut self,
        script: &Script,
        number: u64,
        workload: &Workload,
        tally: &mut Tally,
    ) {
        let KeyAt { slot, id, .. } = script.keys[self.key];
        tally.counted += 1;
        let Some(known) = self.known.get_mut(slot as usize).filter(|_| VERIFY) else { return };
        let last = std::mem::replace(known, Known::holds(number));
        // Redis counts from 0 where the key does not exist.
        let anew = last == Known::ABSENT || (workload.may_lose() && number == 1);
        if last != Known::UNKNOWN && !anew && last + 1 != Known::holds(number) {
            tally.mistake(|| format!("number {id} is {number} after it was {}", last - 2));
        }
    }

    /// Counts an addition that found no number, and checks that it may be gone.
    pub(super) fn no_number<const VERIFY: bool>(
        &mut self,
        script: &Script,
        workload: &Workload,
        tally: &mut Tally,
    ) {
        let KeyAt { slot, id, .. } = script.keys[self.key];
        tally.absent += 1;
        if !workload.may_miss() {
            tally.mistake(|| format!("number {id} is gone"));
        }
        if VERIFY && let Some(known) = self.known.get_mut(slot as usize) {
            *known = Known::ABSENT;
        }
    }

    /// Counts and checks a value found by a read with its token, or within a transaction.
    pub(super) fn found<const VERIFY: bool>(
        &mut self,
        key: KeyAt,
        flags: u32,
        value: &[u8],
        workload: &Workload,
        tally: &mut Tally,
    ) {
        tally.hits += 1;
        if workload.sizes.is_none() && value.len() != workload.keyspace.value_bytes {
            tally.mistake(|| format!("a value of {} bytes", value.len()));
        }
        if VERIFY {
            self.verify(key, flags, value, workload, tally);
        }
    }

    /// Notes that the key was changed: its token is invalid.
    fn changed(&mut self, slot: u32) {
        if let Some(token) = self.tokens.get_mut(slot as usize) {
            token.live = false;
        }
    }

    /// Whether other connections change the key, too.
    fn is_shared(&self, slot: u32) -> bool {
        slot as usize >= self.known.len()
    }

    /// Notes a token that was read, and checks that it is new exactly if the key was changed.
    pub(super) fn learnt<const VERIFY: bool>(&mut self, key: KeyAt, value: u64, tally: &mut Tally) {
        let shared = self.is_shared(key.slot);
        let Some(token) = self.tokens.get_mut(key.slot as usize) else { return };
        let last = std::mem::replace(token, Token { value, live: true });
        let differs = last.value != NO_TOKEN && (last.value == value) != last.live;
        if VERIFY && differs && !(shared && last.live) {
            let id = key.id;
            tally.mistake(|| match last.live {
                true => format!("key {id} has another token, {value}, although it was not changed"),
                false => format!("key {id} has token {value} again after it was changed"),
            });
        }
    }

    /// Counts a write with a token that succeeded, and checks that it had to.
    pub(super) fn swapped<const VERIFY: bool>(
        &mut self,
        request: &Request,
        (script, window): (&Script, &Window),
        workload: &Workload,
        tally: &mut Tally,
    ) {
        let KeyAt { slot, id, .. } = script.keys[self.key];
        (tally.swaps, tally.swapped) = (tally.swaps + 1, tally.swapped + 1);
        if VERIFY && let Some(token) = self.tokens.get(slot as usize) {
            let sent = script.token(request);
            if sent != token.value || !token.live {
                tally.mistake(|| {
                    format!(
                        "key {id} was written with token {sent}, though it had changed: an update is lost"
                    )
                });
            }
        }
        self.changed(slot);
        if VERIFY {
            self.stored(script, window, workload);
        }
    }

    /// Counts a write with a token that was refused because the key had changed, and checks that it had.
    pub(super) fn conflicted<const VERIFY: bool>(
        &mut self,
        request: &Request,
        script: &Script,
        tally: &mut Tally,
    ) {
        let KeyAt { slot, id, .. } = script.keys[self.key];
        (tally.swaps, tally.conflicts) = (tally.swaps + 1, tally.conflicts + 1);
        if !VERIFY || self.is_shared(slot) {
            return;
        }
        let Some(token) = self.tokens.get(slot as usize) else { return };
        let sent = script.token(request);
        if token.live && sent == token.value {
            tally.mistake(|| format!("key {id} was refused with token {sent}, which is its own"));
        } else if self.known[slot as usize] == Known::ABSENT {
            tally.mistake(|| format!("key {id} is deleted, and was refused as if it were changed"));
        }
    }

    /// Counts a write with a token that found no key, and checks that it may be gone.
    pub(super) fn nothing_to_swap<const VERIFY: bool>(
        &mut self,
        script: &Script,
        workload: &Workload,
        tally: &mut Tally,
    ) {
        let KeyAt { slot, id, .. } = script.keys[self.key];
        (tally.swaps, tally.absent) = (tally.swaps + 1, tally.absent + 1);
        self.changed(slot);
        let Some(known) = self.known.get_mut(slot as usize).filter(|_| VERIFY) else { return };
        let before = std::mem::replace(known, Known::ABSENT);
        if before > Known::ABSENT && !workload.may_lose() {
            tally.mistake(|| format!("key {id} was there, and was not to be swapped"));
        }
    }

    /// Takes a reply to one command of a transaction; returns whether it was the last. `None` if it is no such reply.
    pub(super) fn step<const VERIFY: bool>(
        &mut self,
        event: Event<'_>,
        request: &Request,
        (script, window): (&Script, &Window),
        workload: &Workload,
        tally: &mut Tally,
    ) -> Option<bool> {
        let key = script.keys[self.key];
        match (self.step, event) {
            (WATCHED | BEGUN, Event::Stored) | (WAITS, Event::Queued) | (ENDED, Event::Count(1)) => {}
            (GOT, Event::Value { flags, value, .. }) => {
                self.found::<VERIFY>(key, flags, value, workload, tally);
            }
            (GOT, Event::Miss) => {
                let at = self.key;
                self.missed::<VERIFY>(script, request.verb, workload, tally);
                self.key = at;
            }
            (DONE, Event::Stored) => {
                self.swapped::<VERIFY>(request, (script, window), workload, tally);
                return Some(true);
            }
            (ENDED, Event::Conflict) => {
                (tally.swaps, tally.conflicts) = (tally.swaps + 1, tally.conflicts + 1);
                if !self.is_shared(key.slot) {
                    tally.mistake(|| {
                        format!("no other connection changes key {}, and EXEC did nothing", key.id)
                    });
                }
                return Some(true);
            }
            (step, Event::Refused(line)) => {
                tally.mistake(|| format!("refused: {}", line.escape_ascii()));
                if step >= ENDED {
                    return Some(true);
                }
            }
            _ => return None,
        }
        self.step += 1;
        Some(false)
    }
}
