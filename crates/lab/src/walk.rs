//! Clients that do the same with every key once: write, read and verify, or delete.
//!
//! Keys are distributed among connections, so each has one client that writes it. Requests are sent in batches; every reply is
//! checked.

use std::time::{Duration, Instant};

use larder_protocol::client::{Answer, Asked, Protocol};

use crate::contender::Contender;
use crate::dialog::{Agent, Dialog, Step, Taken, answer};
use crate::error::Error;
use crate::keys::{Keyspace, Prefix};
use crate::sizes::Sizes;
use crate::value;

/// The action on each key.
#[derive(Clone, Debug, PartialEq)]
pub enum Deed {
    /// Writes its value at a version, with a time to live of `ttl_s` seconds (0: for ever).
    Write {
        /// Sizes of values.
        sizes: Sizes,
        /// The version.
        version: u64,
        /// The time to live.
        ttl_s: u32,
    },
    /// Reads it; a value must be the one that was written with the version.
    Read {
        /// Sizes of values.
        sizes: Sizes,
        /// The version.
        version: u64,
    },
    /// Deletes the key.
    Delete,
}

/// Every `step`th key from `first` on, below `count`.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    /// The keyspace.
    pub space: Keyspace,
    /// Number of the first key.
    pub first: u32,
    /// The step from one key to the next.
    pub step: u32,
}

impl Keys {
    /// All keys.
    pub fn all(space: Keyspace) -> Keys {
        Keys { space, first: 0, step: 1 }
    }

    /// The number of keys.
    pub fn count(&self) -> u32 {
        self.space.count.saturating_sub(self.first).div_ceil(self.step)
    }
}

/// The results.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Values stored, found or deleted.
    pub done: u64,
    /// Keys that did not exist.
    pub misses: u64,
    /// Writes and deletes that the server refused.
    pub refused: u64,
    /// Values that are not the ones written.
    pub wrong: u64,
    /// The first wrong value or refusal, in words.
    pub first: Option<String>,
}

/// Connections of a walk.
const CONNECTIONS: u32 = 16;
/// Bytes of a batch, about.
const BATCH_BYTES: usize = 64 * 1024;
/// Requests of a batch at most.
const BATCH_MAX: usize = 200;
/// Longer than any walk takes: it ends when all keys were visited.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

/// Does `deed` with every key of `keys`.
///
/// # Errors
/// A connection fails or a reply is malformed.
pub fn walk(
    contender: &Contender,
    keys: Keys,
    deed: &Deed,
    cores: &[Option<usize>],
) -> Result<Counts, Error> {
    let protocol = contender.protocol(Protocol::Classic);
    let value_bytes = match deed {
        Deed::Write { sizes, .. } | Deed::Read { sizes, .. } => sizes.mean() as usize,
        Deed::Delete => 0,
    };
    let batch = (BATCH_BYTES / (keys.space.key_bytes + value_bytes + 32)).clamp(1, BATCH_MAX);
    let agents = (0..CONNECTIONS).map(|at| Walker {
        protocol,
        deed: deed.clone(),
        keys: Keys { first: keys.first + at * keys.step, step: keys.step * CONNECTIONS, ..keys },
        batch,
        next: u64::from(keys.first + at * keys.step),
        asked: 0,
        answered: 0,
        key: Vec::new(),
    });
    let mut dialog = Dialog::connect(contender.endpoint(), agents.collect(), cores)?;
    let mut total = Counts::default();
    for counts in dialog.run(FOR_EVER)?.tallies {
        total.done += counts.done;
        total.misses += counts.misses;
        total.refused += counts.refused;
        total.wrong += counts.wrong;
        total.first = total.first.or(counts.first);
    }
    Ok(total)
}

struct Walker {
    protocol: Protocol,
    deed: Deed,
    keys: Keys,
    batch: usize,
    /// The key after the last one of the batch under way.
    next: u64,
    /// Requests of the batch, and how many of them are answered.
    asked: u64,
    answered: u64,
    key: Vec<u8>,
}

impl Agent for Walker {
    type Tally = Counts;

    fn next(&mut self, _now: Instant, _ending: bool, _tally: &mut Counts, out: &mut Vec<u8>) -> Step {
        (self.asked, self.answered) = (0, 0);
        while self.asked < self.batch as u64 && self.next < u64::from(self.keys.space.count) {
            let id = self.next as u32;
            self.key.clear();
            self.keys.space.write(&mut self.key, Prefix::Present, id);
            match &self.deed {
                Deed::Write { sizes, version, ttl_s } => {
                    let bytes = sizes.of(id, *version);
                    self.protocol.begin_set(out, &self.key, bytes, *ttl_s);
                    value::write(out, id, *version, bytes);
                    self.protocol.end_set(out, *ttl_s);
                }
                Deed::Read { .. } => self.protocol.get(out, [&self.key[..]]),
                Deed::Delete => self.protocol.delete(out, &self.key),
            }
            self.next += u64::from(self.keys.step);
            self.asked += 1;
        }
        if self.asked == 0 { Step::Done } else { Step::Request }
    }

    fn reply(&mut self, bytes: &[u8], _now: Instant, tally: &mut Counts) -> Result<Taken, Error> {
        let asked = match self.deed {
            Deed::Write { .. } => Asked::Set,
            Deed::Read { .. } => Asked::Get,
            Deed::Delete => Asked::Delete,
        };
        let Some((answer, used)) = answer(self.protocol, asked, bytes)? else { return Ok(Taken::Nothing) };
        match answer {
            Answer::Stored | Answer::Deleted => tally.done += 1,
            Answer::Miss => tally.misses += 1,
            Answer::Refused(line) => {
                tally.refused += 1;
                tally.first.get_or_insert_with(|| line.escape_ascii().to_string());
            }
            Answer::Value(have) => {
                tally.done += 1;
                let back = (self.asked - self.answered) * u64::from(self.keys.step);
                self.verify((self.next - back) as u32, have, tally);
            }
        }
        self.answered += 1;
        Ok(if self.answered == self.asked { Taken::All(used) } else { Taken::More(used) })
    }
}

impl Walker {
    fn verify(&self, id: u32, have: &[u8], tally: &mut Counts) {
        let Deed::Read { sizes, version } = &self.deed else { return };
        let found = value::verify(have, id);
        let named = have.len() >= value::NAMED_BYTES_MIN;
        let right = have.len() == sizes.of(id, *version) && found == Ok(if named { *version } else { 0 });
        if !right {
            tally.wrong += 1;
            tally.first.get_or_insert_with(|| format!("key {id}: {} bytes, {found:?}", have.len()));
        }
    }
}
