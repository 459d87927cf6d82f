//! How long EXEC would take: what outside of a transaction is done in steps is one step in it, while others wait for
//! its keys, or for the store. What would take too long is refused before anything is run.

use crate::redis::connection::clients;
use crate::redis::keys::restore::restoring_ns;
use std::collections::HashMap;

use larder_protocol::resp::{Args, parse_integer};
use larder_store::DATABASES;

use crate::core::glob::weight;
use crate::core::work::{KEY_NS, STORE_NS, copying_ns};
use crate::redis::call::{Call, is};
use crate::redis::collections::ELEMENT_NS;
use crate::redis::fail::{Done, Fail};
use crate::redis::server::config;
use crate::redis::server::debug::MATCHED_BYTES_MAX;
use crate::redis::table::Command;

/// Work in values and in walks that one EXEC may do.
pub(crate) const EXEC_NS_MAX: u64 = 10_000_000;
/// Bytes of a key, where they are not known.
const KEY_BYTES: u64 = 32;
/// What BITFIELD does with what lies between its fields, in copies.
const PART_COPIES: u64 = 4;
/// Keys that INFO and RANDOMKEY look at.
const SAMPLE_KEYS: u64 = 4096;

pub(crate) const TOO_LONG: Fail = Fail::of(
    "EXECABORT Transaction discarded: its commands would look through or copy more than is done while others wait; send the long ones outside of MULTI",
);

/// The word behind an option, found in one pass over the words.
fn behind<'a>(option: &str, mut words: impl Iterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
    words.find(|word| is(word, option)).and_then(|_| words.next())
}

/// Adds up what the commands of a transaction take.
pub(crate) struct Scale<'q> {
    /// What values will have been when they are reached, as far as one can tell.
    bytes: HashMap<(u8, &'q [u8]), u64>,
    /// Keys of all databases.
    keys: u64,
    db: u8,
    ns: u64,
}

impl<'q> Scale<'q> {
    pub fn new(call: &Call<'_, '_, '_>) -> Scale<'q> {
        let store = call.cx.guard.store();
        let keys = (0..DATABASES).map(|db| store.database_items(db)).sum();
        Scale { bytes: HashMap::new(), keys, db: call.client.db, ns: 0 }
    }

    /// All that was added is not too long.
    ///
    /// # Errors
    /// It is.
    pub fn judge(&self) -> Done {
        if self.ns > EXEC_NS_MAX { Err(TOO_LONG) } else { Ok(()) }
    }

    /// Adds a command.
    pub fn add(&mut self, call: &mut Call<'_, '_, '_>, row: &Command, args: Args<'q>) {
        let at = |n: usize| args.at(n).unwrap_or_default();
        let count_of = |word: &[u8]| parse_integer(word).and_then(|n| u64::try_from(n).ok());
        let number = |n: usize| count_of(at(n)).unwrap_or(0);
        let db = self.db;
        self.ns = self.ns.saturating_add(match row.name {
            "select" => {
                // Any other fails.
                self.db = u8::try_from(number(0)).ok().filter(|db| *db < DATABASES).unwrap_or(db);
                0
            }
            "keys" => self.walk(self.keys, at(0)),
            "config|get" => config::look_ns(args),
            "client|list" | "client|kill" => clients::look_ns(call, args.len()),
            "scan" => {
                let count = behind("COUNT", args.skip(1)).map_or(Some(10), count_of).unwrap_or(0);
                self.walk(self.keys.min(count), behind("MATCH", args.skip(1)).unwrap_or(b"*"))
            }
            "randomkey" | "info" => self.walk(self.keys.min(SAMPLE_KEYS), b"*"),
            "debug|digest" => self.walk(self.keys, b"*") + call.cx.guard.store().used_bytes(),
            "debug|populate" => number(0).saturating_mul(STORE_NS),
            "debug|stringmatch-len" => number(0).min(MATCHED_BYTES_MAX as u64) * weight(at(1)) as u64,
            "set" | "setnx" | "getset" => self.put(db, at(0), at(1).len() as u64, 0),
            "setex" | "psetex" => self.put(db, at(0), at(2).len() as u64, 0),
            "append" => {
                let bytes = self.of(call, db, at(0)) + at(1).len() as u64;
                self.put(db, at(0), bytes, copying_ns(bytes))
            }
            "setrange" => self.reach(call, at(0), number(1).saturating_add(at(2).len() as u64)),
            "setbit" => self.reach(call, at(0), number(1) / 8 + 1),
            "bitfield" | "bitfield_ro" => {
                let (mut reads, mut writes, mut n) = (0, 0, 1);
                while n < args.len() {
                    let get = is(at(n), "GET");
                    if get || is(at(n), "SET") || is(at(n), "INCRBY") {
                        let end = field_end(at(n + 1), at(n + 2));
                        reads = end.max(reads);
                        writes = if get { writes } else { end.max(writes) };
                        n += 2;
                    }
                    n += 1;
                }
                if reads > call.value_bytes_max() {
                    // It fails.
                    return;
                }
                // A part of what is there is copied to be looked at, compared, and written back.
                let part = PART_COPIES * copying_ns(self.of(call, db, at(0)).min(reads));
                part + self.reach(call, at(0), writes)
            }
            "bitcount" | "bitpos" | "dump" | "digest" => self.of(call, db, at(0)),
            "restore" => restoring_ns(at(2), call.value_bytes_max()),
            "debug|digest-value" => args.map(|key| self.of(call, db, key)).sum(),
            "bitop" => {
                let sources = args.skip(2).map(|key| self.of(call, db, key));
                let (sum, most) = sources.fold((0, 0), |(sum, most), bytes| (sum + bytes, bytes.max(most)));
                let blocks = most.saturating_mul(args.len() as u64 - 1);
                self.put(db, at(1), most, copying_ns(blocks.max(sum)))
            }
            "lcs" => {
                let cells = self.of(call, db, at(0)).saturating_mul(self.of(call, db, at(1)));
                // Above that it fails.
                if cells > call.cx.guard.store().held_bytes_max() / 4 { 0 } else { cells.saturating_mul(2) }
            }
            "rename" | "renamenx" | "copy" | "move" => {
                let bytes = self.of(call, db, at(0));
                let to = match row.name {
                    "move" => (u8::try_from(number(1)).unwrap_or(db), at(0)),
                    "copy" => {
                        let named = behind("DB", args.skip(2));
                        let number = named.and_then(count_of).and_then(|n| u8::try_from(n).ok());
                        (number.unwrap_or(db), at(1))
                    }
                    _ => (db, at(1)),
                };
                self.put(to.0, to.1, bytes, copying_ns(bytes))
            }
            "hscan" | "sscan" | "zscan" => {
                let pattern = behind("MATCH", args.skip(2));
                self.of(call, db, at(0)).saturating_mul(2 * pattern.map_or(1, weight) as u64)
            }
            "hrandfield" | "srandmember" | "zrandmember" => {
                let picks = parse_integer(at(1)).map_or(0, |n| if n < 0 { n.unsigned_abs() } else { 0 });
                self.of(call, db, at(0)).saturating_add(picks.saturating_mul(ELEMENT_NS))
            }
            // An element is looked at in some nanoseconds, and takes some bytes.
            _ if row.elements => {
                let mut ns = args.len() as u64 * ELEMENT_NS;
                row.each_key(args, &mut |key| ns += self.of(call, db, key));
                ns
            }
            _ => 0,
        });
    }

    /// What it takes to look at so many keys.
    fn walk(&self, keys: u64, pattern: &[u8]) -> u64 {
        let each = if pattern == b"*" { 0 } else { (weight(pattern) as u64).saturating_mul(KEY_BYTES) };
        keys.saturating_mul(KEY_NS + each)
    }

    /// Bytes of a value.
    fn of(&mut self, call: &mut Call<'_, '_, '_>, db: u8, key: &'q [u8]) -> u64 {
        *self.bytes.entry((db, key)).or_insert_with(|| {
            let key = call.cx.guard.key_in(db, key);
            call.cx.guard.peek(&key).hit().map_or(0, |item| item.value_bytes())
        })
    }

    /// A value will have so many bytes.
    fn put(&mut self, db: u8, key: &'q [u8], bytes: u64, ns: u64) -> u64 {
        self.bytes.insert((db, key), bytes);
        ns
    }

    /// A value is written to up to `end`: where it ends before that it is copied.
    fn reach(&mut self, call: &mut Call<'_, '_, '_>, key: &'q [u8], end: u64) -> u64 {
        let there = self.of(call, self.db, key);
        if end <= there || end > call.value_bytes_max() {
            return 0;
        }
        self.put(self.db, key, end, copying_ns(end))
    }
}

/// Where a field of BITFIELD ends, in bytes; 0 if it is none.
fn field_end(kind: &[u8], offset: &[u8]) -> u64 {
    let number = |digits| parse_integer(digits).and_then(|n| u64::try_from(n).ok());
    let bits = kind.get(1..).and_then(number).unwrap_or(0);
    let (digits, unit) = offset.strip_prefix(b"#").map_or((offset, 1), |digits| (digits, bits));
    number(digits).map_or(0, |offset| offset.saturating_mul(unit).saturating_add(bits).div_ceil(8))
}
