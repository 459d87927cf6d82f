//! How long EXEC would take. An EXEC of one step does at once what is otherwise done in steps, while others wait for its keys, or
//! for the store; an EXEC in steps (`steps.rs`) holds its keys for as long. What would take too long is refused before anything
//! is run.
//!
//! ```text
//! each command, in order ─▶ how large its keys will be by then, at most ─▶ what it takes ─▶ how large they are behind it
//! ```
//!
//! Work that is proportional to the length of the queue is not weighed. Elements that commands name are dear, and are counted.
//!
//! A weight errs upwards only. A key is as large as it was, or as any command before would leave it, whether that one succeeds or
//! fails. Where an option is given several times, each may be the one that counts.

mod elements;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use arrayvec::ArrayVec;
use larder_protocol::resp::{Args, parse_integer};
use larder_store::{DATABASES, Value};

use crate::core::access::{DEFAULT_USER, Users};
use crate::core::acl::user::USER_BYTES_MAX;
use crate::core::glob;
use crate::core::work::{COMMAND_NS, KEY_NS, STORE_NS, copying_ns};
use crate::redis::call::{Call, ELEMENT_BYTES, few_names, is};
use crate::redis::clock::Clock;
use crate::redis::collections::WRITE_NS;
use crate::redis::collections::words::PUSH_NS;
use crate::redis::connection::{self, clients};
use crate::redis::fail::{Done, Fail};
use crate::redis::keys::copy::{self, LEAF_BYTES_MAX};
use crate::redis::keys::loading::{self, Weight, is_collection};
use crate::redis::keys::restore::{restoring_ns, unpacked_bytes};
use crate::redis::pubsub;
use crate::redis::row::flag::{EMPTIES, READONLY, WRITE};
use crate::redis::row::{Access, Command, Elements, Replaces, Weighs};
use crate::redis::server::debug::MATCHED_BYTES_MAX;
use crate::redis::server::info::INFO_NS;
use crate::redis::server::{acl, config};
use crate::redis::strings::bitfield;
use crate::redis::strings::hyperloglog::{DENSE_BYTES, registers_ns};
use crate::redis::strings::pairs::PAIR_NS;

/// Work in values and in walks that one EXEC may do.
pub(crate) const EXEC_NS_MAX: u64 = 10_000_000;
/// Bytes of a key's name, where they are not known.
const KEY_BYTES: u64 = 32;
/// Copies that BITFIELD makes of what lies between its fields.
const PART_COPIES: u64 = 4;
/// A collection in one leaf has at most so many bytes.
const COLLECTION_BYTES_MAX: u64 = 16 << 10;
/// Keys that INFO and RANDOMKEY look at.
const SAMPLE_KEYS: u64 = 4096;
/// Words behind the names of commands on collections that one EXEC may have: some 100 ms at worst.
pub(crate) const WORDS_MAX: usize = 64 << 10;
/// Values of more bytes are noted, where a command writes several.
const NOTED_BYTES_MIN: usize = 512;
/// Words of 64 bits that say which keys may have another value by then.
const REPLACED_WORDS: usize = 32;
/// Bytes of a note of a key, twice while the table grows.
const NOTE_BYTES: usize = 200;

pub(crate) const TOO_LONG: Fail = Fail::of(
    "EXECABORT Transaction discarded: its commands would look through or copy more than is done while others wait; send the long ones outside of MULTI",
);

/// The words behind each occurrence of an option. Only the command itself knows which of them is the option's value: it may take
/// another word of that name for something else.
fn behind<'a>(option: &str, words: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
    let mut named = false;
    words.filter(move |word| std::mem::replace(&mut named, is(word, option)))
}

/// The largest number behind an option, if there is any.
fn number_behind<'a>(option: &str, words: impl Iterator<Item = &'a [u8]>) -> Option<u64> {
    behind(option, words).filter_map(count_of).max()
}

/// Parses a number that is not below 0.
fn count_of(word: &[u8]) -> Option<u64> {
    parse_integer(word).and_then(|n| u64::try_from(n).ok())
}

/// The dearest pattern behind MATCH, for so many names of so many bytes in all.
fn pattern_behind<'a>(words: impl Iterator<Item = &'a [u8]>, names: u64, bytes: u64) -> Option<glob::Weight> {
    behind("MATCH", words).map(glob::Weight::of).max_by_key(|weight| weight.with_reading_ns(names, bytes))
}

/// Work for one of many keys that is looked at or removed, and for an element that is looked for.
const KEY_WORD_NS: u64 = 300;
const ELEMENT_WORD_NS: u64 = 500;
/// Work for any other word.
const WORD_NS: u64 = 10;

/// Work of a command by its words alone: that it is run at all, and what it does for each key or element.
pub(crate) fn words_ns(row: &Command, args: Args<'_>) -> u64 {
    let each_ns = match row.weighs {
        Weighs::Pairs | Weighs::CountedPairs => PAIR_NS / 2,
        Weighs::Elements(Elements::ListWrite) => PUSH_NS,
        // Their words are bounds and options.
        Weighs::Elements(
            Elements::Range | Elements::RankRange | Elements::LimitedRange | Elements::StoreRange,
        ) => WORD_NS,
        _ if row.elements && row.has(WRITE) => WRITE_NS,
        _ if row.elements => ELEMENT_WORD_NS,
        _ if row.keys.are_many() => KEY_WORD_NS,
        // A command without keys is weighed with its words.
        _ if !row.keys.any() && row.weighs != Weighs::Nothing => 0,
        _ => WORD_NS,
    };
    let run_ns = if row.has(WRITE) && row.keys.any() { PAIR_NS } else { COMMAND_NS };
    run_ns + args.len() as u64 * each_ns + copying_ns(args.encoded().len() as u64)
}

/// Work to copy what a command replies of strings, by their present sizes; long ones are not copied.
pub(crate) fn told_ns(call: &mut Call<'_, '_, '_>, row: &Command, db: u8, args: Args<'_>) -> u64 {
    let tells = matches!(row.access_of(0), Access::Read | Access::Change | Access::Take);
    if row.elements || !tells {
        return 0;
    }
    let mut ns = 0;
    row.each_key(args, &mut |key| {
        let key = call.cx.guard.key_in(db, key);
        let bytes = call.cx.guard.peek(&key).hit().map_or(0, |item| item.value_bytes());
        ns += copying_ns(bytes.min(ELEMENT_BYTES as u64));
    });
    ns
}

/// How large a value is, at most.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    bytes: u64,
    /// Elements of a collection.
    elements: u64,
    /// Elements that are there now and will be left, at least.
    least: u64,
    /// Bytes of the longest element that is added, or of the longest that a list, set, sorted set or hash has, if longer than a
    /// leaf; of a stream whose values lie apart, what any of its entries may have.
    longest: u64,
    /// Bytes of the longest value that earlier commands may have given any field of a hash; of the longest entry that they may
    /// have put into a stream.
    given: u64,
}

impl Size {
    fn of_bytes(bytes: u64) -> Size {
        Size { bytes, ..Size::default() }
    }
}

/// A user that earlier commands may have changed.
#[derive(Clone, Copy, Debug)]
struct Changed {
    /// Bytes that the user takes, at most.
    bytes: usize,
    /// It may have connections, and the next change may be the first that closes some.
    closes: bool,
}

/// Adds up the work of a transaction's commands.
#[derive(Debug)]
pub(crate) struct Scale {
    /// Sizes of values by the time they are reached, by the present hashes of their keys.
    sizes: HashMap<u64, Size>,
    /// Keys that may have another value by then, one bit for the hashes of many.
    replaced: [u64; REPLACED_WORDS],
    /// Which database each name stands for by then: SWAPDB swaps names.
    names: [u8; DATABASES as usize],
    /// Some command may change something.
    changes: bool,
    /// Keys of all databases.
    keys: u64,
    db: u8,
    ns: u64,
    /// Which kinds of subscriptions were left all at once already: that is counted once.
    ended: [bool; 3],
    /// Words of commands on collections.
    words: usize,
    /// Work to compare a password.
    login_ns: Option<u64>,
    /// The users that there are now.
    users: Option<Arc<Users>>,
    /// Users that commands change, by the hashes of their names.
    changed: HashMap<u64, Changed>,
    /// A user is changed again: EXEC may go through all clients at its end.
    changes_again: bool,
    /// Bytes that commands on collections reply, at most.
    told_bytes: u64,
}

/// Parses the name of a database.
fn database(word: &[u8]) -> Option<u8> {
    parse_integer(word).and_then(|n| u8::try_from(n).ok()).filter(|db| *db < DATABASES)
}

impl Scale {
    /// Makes a scale that has only this much work on it.
    pub fn new(call: &Call<'_, '_, '_>, ns: u64) -> Scale {
        let store = call.cx.guard.store();
        let keys = (0..DATABASES).map(|db| store.database_items(db)).sum();
        let names = std::array::from_fn(|name| name as u8);
        Scale {
            sizes: HashMap::new(),
            replaced: [0; REPLACED_WORDS],
            changes: false,
            names,
            keys,
            db: call.client.db,
            ns,
            ended: [false; 3],
            words: 0,
            login_ns: None,
            users: None,
            changed: HashMap::new(),
            changes_again: false,
            told_bytes: 0,
        }
    }

    /// Bytes that weighing takes for so many commands of so many bytes.
    pub fn bytes(commands: usize, bytes: usize) -> usize {
        (commands + bytes / NOTED_BYTES_MIN) * NOTE_BYTES
    }

    /// Judges what was added.
    ///
    /// # Errors
    /// It would take too long.
    pub fn judge(&self) -> Done {
        if self.ns > EXEC_NS_MAX || self.words > WORDS_MAX { Err(TOO_LONG) } else { Ok(()) }
    }

    /// Work of all that was added.
    pub fn ns(&self) -> u64 {
        self.ns
    }

    /// The database that is selected behind what was added.
    pub fn db(&self) -> u8 {
        self.db
    }

    /// Bytes that commands on collections reply, at most, as far as present sizes tell.
    pub fn told_bytes(&self) -> u64 {
        self.told_bytes
    }

    /// Adds a command.
    pub fn add(&mut self, call: &mut Call<'_, '_, '_>, row: &Command, args: Args<'_>) {
        self.changes |= !row.has(READONLY);
        // `Args::at` walks from the first word on: it is asked for the first few only.
        let at = |n: usize| args.at(n).unwrap_or_default();
        let number = |n: usize| count_of(at(n)).unwrap_or(0);
        let db = self.db;
        self.ns = self.ns.saturating_add(match row.weighs {
            Weighs::Selection => {
                // Any other name fails.
                self.db = database(at(0)).unwrap_or(db);
                0
            }
            Weighs::Swap => {
                self.replaced.fill(u64::MAX);
                match (database(at(0)), database(at(1))) {
                    (Some(one), Some(other)) => {
                        self.names.swap(usize::from(one), usize::from(other));
                        // Watches follow their names.
                        copy::swapping_ns(call, one, other).unwrap_or(EXEC_NS_MAX + 1)
                    }
                    _ => 0,
                }
            }
            Weighs::Rules => self.change_users(call, args),
            Weighs::Removal => self.remove_users(call, args),
            Weighs::Settings => {
                let (users, default) = self.users_with(call, DEFAULT_USER.as_bytes());
                config::setting_ns(args, users, default.bytes)
            }
            Weighs::Login if connection::logs_in(row, args) => {
                let access = &call.cx.shared.access;
                let look_ns = *self.login_ns.get_or_insert_with(|| access.look_ns(0));
                look_ns + access.said_ns(args.encoded().len())
            }
            Weighs::Login => 0,
            Weighs::Names => self.walk(self.keys, (at(0) != b"*").then(|| glob::Weight::of(at(0)))),
            Weighs::Parameters => config::look_ns(args),
            Weighs::Topics => {
                let matching_ns = call.cx.shared.topics.matching_ns(at(0).len());
                matching_ns.saturating_add(pubsub::publishing_ns(call, args, false, EXEC_NS_MAX))
            }
            Weighs::Shard => pubsub::publishing_ns(call, args, true, EXEC_NS_MAX),
            // The second half pays for unsubscribing from these names by commands that name none.
            Weighs::Listen => 2 * pubsub::listening_ns(args),
            Weighs::ListenNoMore(kind) if args.is_empty() => {
                let counted = std::mem::replace(&mut self.ended[kind as usize], true);
                if counted { 0 } else { pubsub::ending_all_ns(call, kind, EXEC_NS_MAX) }
            }
            Weighs::ListenNoMore(kind) => pubsub::ending_ns(call, kind, args),
            Weighs::Counts => pubsub::counting_ns(args),
            Weighs::Channels => pubsub::look_ns(call, at(0)),
            Weighs::Clients => clients::look_ns(call, args.len()),
            Weighs::Scan => {
                let keys = self.keys.min(number_behind("COUNT", args.skip(1)).unwrap_or(10));
                self.walk(keys, pattern_behind(args.skip(1), keys, keys.saturating_mul(KEY_BYTES)))
            }
            Weighs::Sample => self.walk(self.keys.min(SAMPLE_KEYS), None),
            // Gathering the figures takes as much again.
            Weighs::Figures => 2 * INFO_NS + self.walk(self.keys.min(SAMPLE_KEYS), None),
            Weighs::Everything => self.walk(self.keys, None) + call.cx.guard.store().used_bytes(),
            Weighs::Populate => {
                let bytes = args.skip(2).filter_map(count_of).max().unwrap_or(0) + at(1).len() as u64;
                number(0).saturating_mul(STORE_NS + 2 * copying_ns(bytes))
            }
            Weighs::Match => {
                glob::Weight::of(at(1)).with_reading_ns(1, number(0).min(MATCHED_BYTES_MAX as u64))
            }
            Weighs::Value(value) => self.put(call, at(0), at(value).len() as u64, 0),
            Weighs::Pairs => self.put_pairs(call, args),
            Weighs::CountedPairs => {
                let mut pairs = args;
                // The first word is their number. Options are no long values.
                pairs.next();
                self.put_pairs(call, pairs)
            }
            Weighs::Append => {
                let bytes = self.of(call, db, at(0)) + at(1).len() as u64;
                self.put(call, at(0), bytes, copying_ns(bytes))
            }
            Weighs::Overlay => self.reach(call, at(0), number(1).saturating_add(at(2).len() as u64)),
            Weighs::Bit => self.reach(call, at(0), number(1) / 8 + 1),
            Weighs::BitFields { read_only } => {
                let mut fields = args;
                fields.next();
                let Some((looks, writes)) = bitfield::ends(fields, read_only, call.value_bytes_max()) else {
                    return;
                };
                // A part of what is there is copied to be looked at, compared, and written back.
                let part = PART_COPIES * copying_ns(self.of(call, db, at(0)).min(looks));
                part + self.reach(call, at(0), writes)
            }
            Weighs::Read => self.of(call, db, at(0)),
            Weighs::Dump => self.dumped(call, at(0)),
            Weighs::Restore if is_collection(at(2)) => {
                let Weight { entries, bytes, ns } = loading::weigh(at(2));
                let scored_max = call.cx.guard.store().scored_bytes_max() as u64;
                let longest = loading::longest(at(2), bytes, scored_max);
                let size = Size { bytes, elements: entries, least: 0, longest, given: longest };
                self.note(call, db, at(0), size);
                ns
            }
            Weighs::Restore => {
                let ns = restoring_ns(at(2), call.value_bytes_max());
                self.put(call, at(0), unpacked_bytes(at(2)).max(at(2).len() as u64), ns)
            }
            Weighs::Registers(key) => {
                let ns = registers_ns(self.of(call, db, at(key)));
                self.put(call, at(0), DENSE_BYTES as u64, ns)
            }
            Weighs::RegistersRead => args.map(|key| registers_ns(self.of(call, db, key))).sum(),
            Weighs::RegistersMerged => {
                let ns = args.map(|key| registers_ns(self.of(call, db, key))).sum::<u64>();
                self.put(call, at(0), DENSE_BYTES as u64, ns + 2 * registers_ns(DENSE_BYTES as u64))
            }
            Weighs::ReadAll => args.map(|key| self.of(call, db, key)).sum(),
            Weighs::BitOperation => {
                let sources = args.skip(2).map(|key| self.of(call, db, key));
                let (sum, most) = sources.fold((0, 0), |(sum, most), bytes| (sum + bytes, bytes.max(most)));
                let blocks = most.saturating_mul(args.len() as u64 - 1);
                self.put(call, at(1), most, copying_ns(blocks.max(sum)))
            }
            Weighs::Subsequence => {
                let cells = self.of(call, db, at(0)).saturating_mul(self.of(call, db, at(1)));
                // Above that the command fails.
                cells.min(call.cx.guard.store().held_bytes_max() / 4).saturating_mul(2)
            }
            Weighs::Rename | Weighs::Copy | Weighs::Move => {
                let size = self.size(call, db, at(0));
                // In the other key each of its fields counts as given by an earlier command.
                let size = Size { given: size.given.max(size.longest), ..size };
                if row.weighs == Weighs::Move {
                    // The command fails where that is no database.
                    let Some(to) = database(at(1)) else { return };
                    self.note(call, to, at(0), size);
                } else {
                    self.note(call, db, at(1), size);
                    for to in behind("DB", args.skip(2)).filter_map(database) {
                        self.note(call, to, at(1), size);
                    }
                }
                // Moving a large collection does not copy it.
                let stays = size.elements > 0 && row.weighs != Weighs::Copy;
                copying_ns(if stays { size.bytes.min(LEAF_BYTES_MAX) } else { size.bytes })
            }
            Weighs::Survey => self.surveyed(call, row, args),
            Weighs::Elements(which) => self.elements(call, row, which, args),
            Weighs::Nothing if row.elements => self.elements(call, row, Elements::Few, args),
            Weighs::Nothing => 0,
        });
        self.note_replaced(call, row, args);
    }

    /// Work of a command that changes a user. A user's first change goes through all clients, for those that listen and for those
    /// that are shown commands; for users that are changed again the end of EXEC does so once.
    fn change_users(&mut self, call: &Call<'_, '_, '_>, args: Args<'_>) -> u64 {
        let name = args.at(0).unwrap_or_default();
        let hash = self.hash_of_user(name);
        let is_again = self.changed.contains_key(&hash);
        let (users, before) = self.users_with(call, name);
        let bytes = before.bytes + args.skip(1).map(acl::rule_bytes).sum::<usize>();
        // A user that this makes has no connections before the next change.
        let closes = !before.closes && !is_again;
        self.changed.insert(hash, Changed { bytes: bytes.min(USER_BYTES_MAX), closes });
        let mut walks = if before.closes { 1 + u64::from(call.cx.shared.topics.monitored()) } else { 0 };
        if is_again && !std::mem::replace(&mut self.changes_again, true) {
            walks += 1;
        }
        walks * acl::clients_ns(call) + acl::changing_ns(args, users, before.bytes)
    }

    /// Work of a command that removes users, which goes through all clients.
    fn remove_users(&mut self, call: &mut Call<'_, '_, '_>, names: Args<'_>) -> u64 {
        if few_names(names).is_err() {
            // The command is refused before it removes any.
            return 0;
        }
        call.spend(names.len() as u64 * acl::FOUND_NS);
        let (mut users, mut held_bytes) = (0, 0);
        for name in names {
            let (count, removed) = self.users_with(call, name);
            (users, held_bytes) = (count, held_bytes + removed.bytes);
            // A user made of this name later is another user.
            let hash = self.hash_of_user(name);
            self.changed.entry(hash).and_modify(|changed| changed.closes = true);
        }
        acl::clients_ns(call) + acl::removing_ns(names, users, held_bytes)
    }

    fn hash_of_user(&self, name: &[u8]) -> u64 {
        self.sizes.hasher().hash_one(name)
    }

    /// How many users there will be, at most, and the named one. Each name counts as a user that is made.
    fn users_with(&mut self, call: &Call<'_, '_, '_>, name: &[u8]) -> (usize, Changed) {
        let changed = self.changed.get(&self.hash_of_user(name)).copied();
        let users = self.users.get_or_insert_with(|| call.cx.shared.access.users());
        let changed = changed.unwrap_or_else(|| Changed {
            bytes: acl::held_bytes(users, name),
            closes: std::str::from_utf8(name).is_ok_and(|name| users.get(name).is_some()),
        });
        (users.len() + self.changed.len() + 1, changed)
    }

    /// Notes that a command may replace or remove the values of its keys: behind it nothing is sure of them.
    fn note_replaced(&mut self, call: &Call<'_, '_, '_>, row: &Command, args: Args<'_>) {
        if row.has(EMPTIES) {
            return self.replaced.fill(u64::MAX);
        }
        let replaces = row.has(WRITE)
            && match row.replaces {
                Replaces::Usual | Replaces::AlsoElsewhere => !row.elements || row.weighs.stores_elements(),
                Replaces::Never => false,
                Replaces::IfPast(clock) => {
                    let now = match clock {
                        Clock::Seconds | Clock::Milliseconds => 0,
                        Clock::UnixSeconds => call.cx.now() / 1000,
                        Clock::UnixMilliseconds => call.cx.now(),
                    };
                    args.at(1).and_then(count_of).is_none_or(|time| time <= now)
                }
            };
        if !replaces {
            return;
        }
        let mut databases: ArrayVec<u8, { DATABASES as usize }> = ArrayVec::from_iter([self.db]);
        if row.replaces == Replaces::AlsoElsewhere {
            args.skip(1).filter_map(database).for_each(|db| {
                if !databases.contains(&db) {
                    databases.push(db);
                }
            });
        }
        row.each_key(args, &mut |key| {
            for &db in &databases {
                let (word, bit) = self.replaced_bit(db, key);
                self.replaced[word] |= bit;
            }
        });
    }

    /// The bit of a key in `replaced`.
    fn replaced_bit(&self, db: u8, key: &[u8]) -> (usize, u64) {
        let hash = self.sizes.hasher().hash_one((self.names[usize::from(db)], key));
        (hash as usize / 64 % REPLACED_WORDS, 1 << (hash % 64))
    }

    /// Whether a key may have another value than now, so that its present size says nothing.
    fn is_replaced(&self, db: u8, key: &[u8]) -> bool {
        let (word, bit) = self.replaced_bit(db, key);
        self.replaced[word] & bit != 0
    }

    /// Work to look at so many keys, and to compare their names with a pattern.
    fn walk(&self, keys: u64, pattern: Option<glob::Weight>) -> u64 {
        let bytes = keys.saturating_mul(KEY_BYTES);
        let matching_ns = pattern.map_or(0, |weight| weight.with_reading_ns(keys, bytes));
        keys.saturating_mul(KEY_NS).saturating_add(matching_ns)
    }

    /// The size of a value, at most.
    fn size(&mut self, call: &mut Call<'_, '_, '_>, db: u8, key: &[u8]) -> Size {
        let key = call.cx.guard.key_in(self.names[usize::from(db)], key);
        if let Some(size) = self.sizes.get(&key.hash()) {
            return *size;
        }
        let entry_bytes_max = call.cx.guard.store().element_bytes_max() as u64;
        call.cx.guard.peek(&key).hit().map_or(Size::default(), |item| {
            let (elements, longest) = match item.value() {
                Value::Collection(there) => {
                    let there = there.elements();
                    // The store does not keep the length of a stream's longest entry.
                    let is_long = there.stream().is_some_and(|stream| stream.has_parts());
                    let entry_bytes = entry_bytes_max.min(item.value_bytes());
                    let longest = if is_long { entry_bytes } else { there.longest_apart() as u64 };
                    (there.len() as u64, longest)
                }
                Value::Whole(_) | Value::Pieces(_) => (0, 0),
            };
            Size { bytes: item.value_bytes(), elements, least: elements, longest, given: 0 }
        })
    }

    /// Bytes of a value.
    fn of(&mut self, call: &mut Call<'_, '_, '_>, db: u8, key: &[u8]) -> u64 {
        self.size(call, db, key).bytes
    }

    /// Notes that a value may be so large.
    fn note(&mut self, call: &mut Call<'_, '_, '_>, db: u8, key: &[u8], size: Size) {
        let there = self.size(call, db, key);
        let size = Size {
            bytes: size.bytes.max(there.bytes),
            elements: size.elements.max(there.elements),
            least: size.least.min(there.least),
            longest: size.longest.max(there.longest),
            given: size.given.max(there.given),
        };
        let key = call.cx.guard.key_in(self.names[usize::from(db)], key);
        self.sizes.insert(key.hash(), size);
    }

    /// Notes that a value may have so many bytes. Short values are not noted: they add next to nothing.
    fn put(&mut self, call: &mut Call<'_, '_, '_>, key: &[u8], bytes: u64, ns: u64) -> u64 {
        if bytes > NOTED_BYTES_MIN as u64 {
            self.note(call, self.db, key, Size::of_bytes(bytes));
        }
        ns
    }

    /// Notes the values of pairs.
    fn put_pairs(&mut self, call: &mut Call<'_, '_, '_>, mut pairs: Args<'_>) -> u64 {
        while let (Some(key), Some(value)) = (pairs.next(), pairs.next()) {
            self.put(call, key, value.len() as u64, 0);
        }
        0
    }

    /// Work to write to a value up to `end`: it is copied if it ends before that, or may have been replaced.
    fn reach(&mut self, call: &mut Call<'_, '_, '_>, key: &[u8], end: u64) -> u64 {
        let there = self.of(call, self.db, key);
        if end > call.value_bytes_max() || end <= there && !self.is_replaced(self.db, key) {
            return 0;
        }
        self.put(call, key, end, copying_ns(end))
    }
}
