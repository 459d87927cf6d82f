//! [`Call`]: what a command works with, and the replies that most commands give. Beside it are lookups of a key that count hits
//! and misses ([`find`], [`read`]), and the limits of names, keys, patterns and databases that commands share.
//!
//! A long reply needs room before it is written ([`Call::make_room`]): the room is charged, and items are evicted for it
//! ([`Call::give_way`]). That leaves the batch: a [`Key`] that was made before may mean another database behind it.
//!
//! `job`: the rest of a command that goes on in later turns; `heap`: memory that a call charges beside its reply.

mod heap;
pub(crate) mod job;

use larder_protocol::resp::{Args, parse_integer};
use larder_store::{Attributes, DATABASES, Expect, Guard, Hint, Item, Key, Lookup, Millis, Refusal, Stored};

use self::job::UnderWay;
use super::fail::{Done, Fail};
use super::reply;
use super::shared::Shared;
pub(crate) use super::word::{cursor, integer, is};
use crate::core::calls::RowId;
use crate::core::context::Context;
use crate::core::glob::{PATTERN_BYTES_MAX, is_bounded};
use crate::core::output::Output;
use crate::core::progress::Ending;
use crate::core::tally::Tally;
use crate::core::work::SLICE_NS;
use crate::redis::client::Client;
use crate::redis::counters::RedisCounter;

/// Most bytes of a key.
pub(crate) const KEY_BYTES_MAX: usize = 64 << 10;

/// One connection's replies may copy one part in so many of what all connections may hold.
const REPLY_SHARE: u64 = 4;
/// Bytes of a reply for which no room is charged: they count as the worker's.
pub(crate) const REPLY_BYTES_FREE: u64 = 256 << 10;
/// Bytes of a value that is copied into a reply, with its frame; longer ones are sent from their place.
pub(crate) const ELEMENT_BYTES: usize = 17 << 10;
/// How often items are evicted for one charge, each time for about a millisecond.
const GIVE_WAY_MAX: usize = 256;

/// What the session does after a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Goes on.
    #[default]
    Next,
    /// Goes on after so many milliseconds, and replies OK then if `says`.
    Sleep { ms: Millis, says: bool },
    /// Goes on with [`Call::job`] in the next turn.
    Job,
    /// Reads the request again: memory is on its way, and nothing of it was done.
    Again,
    /// Sends what waits, then closes.
    Close(Ending),
}

impl Flow {
    /// How long the client sleeps, in milliseconds.
    pub fn sleep_ms(self) -> Millis {
        if let Flow::Sleep { ms, .. } = self { ms } else { 0 }
    }
}

/// One command at work.
pub(crate) struct Call<'x, 'c, 'w> {
    /// The store, the worker, the server.
    pub cx: &'x mut Context<'c, 'w>,
    /// What RESP clients share.
    pub shared: &'c Shared,
    /// The output of the reply.
    pub out: &'x mut Output,
    /// The client that sent it.
    pub client: &'x mut Client,
    /// Counts of the batch.
    pub tally: &'x mut Tally,
    /// What the session does next.
    pub flow: Flow,
    /// A command that has begun and goes on in the client's next turn.
    pub job: &'x mut Option<UnderWay>,
    /// The row of the command; `None` if there is no such command, or it is one of a batch.
    pub row: Option<RowId>,
    /// The command has passed the checks in front of it.
    pub admitted: bool,
    /// The command has replied to some of its arguments already, in pieces that are sent.
    pub later: bool,
}

/// A command of one key, which was hashed and prefetched ahead.
pub(crate) type OfKey = fn(&mut Call<'_, '_, '_>, &Key<'_>, &Hint<'_>, Args<'_>) -> Done;
/// Any other command; `Args` are those behind its name.
pub(crate) type OfArgs = fn(&mut Call<'_, '_, '_>, Args<'_>) -> Done;

impl Call<'_, '_, '_> {
    /// Makes a key of the selected database.
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        let key = self.cx.guard.key_in(self.client.db, bytes);
        // Behind the command, what happened to the key is sampled.
        self.cx.room.tap().mark(&key);
        key
    }

    /// Reads the live string of a key, without counting an access.
    ///
    /// # Errors
    /// The key has another type of value.
    pub fn peek(&mut self, key: &Key<'_>) -> Result<Option<Item<'_>>, Fail> {
        peek(&mut self.cx.guard, key)
    }

    /// Whether the key has a value, of any type.
    pub fn is_there(&mut self, key: &Key<'_>) -> bool {
        self.cx.guard.peek(key).hit().is_some()
    }

    /// Stores a value.
    ///
    /// # Errors
    /// There is no memory. The inner error: the item is not as expected, and is to be looked at again.
    pub fn store(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        attributes: &Attributes,
        expect: Expect,
    ) -> Result<Result<Stored, Refusal>, Fail> {
        match self.cx.guard.store_value(key, value, attributes, expect) {
            Err(Refusal::NoMemory) => Err(Fail::OUT_OF_MEMORY),
            other => Ok(other),
        }
    }

    /// Bytes of replies that one connection may have waiting here: copies of values, and everything that is no value. EXEC makes
    /// all its replies before the first is sent, and may have as much as all connections.
    pub fn reply_bytes_max(&self) -> u64 {
        let all = self.cx.guard.store().held_bytes_max();
        if self.client.executes { all } else { all / REPLY_SHARE }
    }

    /// Whether a reply of many values may have one more: its bytes are within the connection's share, and charged before they are
    /// written.
    #[inline]
    pub fn may_reply_more(&mut self) -> bool {
        let written = self.out.own_bytes();
        written < REPLY_BYTES_FREE
            || written < self.reply_bytes_max() && self.make_room(ELEMENT_BYTES).is_ok()
    }

    /// Charges room for so many bytes of reply before they are written, and has items evicted for it.
    ///
    /// # Errors
    /// Connections hold as much as they may; or there is no room, in a transaction, where nothing is evicted.
    pub fn make_room(&mut self, bytes: usize) -> Done {
        if !self.has_room(bytes) {
            self.charge(bytes, Output::charge_room)?;
            self.out.room(bytes);
        }
        Ok(())
    }

    /// Charges room by `charge`, and has items evicted for it.
    fn charge(&mut self, bytes: usize, charge: fn(&mut Output, usize)) -> Done {
        self.may_hold(bytes)?;
        charge(self.out, bytes);
        if self.give_way() {
            return Ok(());
        }
        self.out.give_up_room();
        Err(Fail::HELD)
    }

    /// As [`Call::make_room`], for replies that may turn out far shorter: room takes memory only as it is written to. The caller
    /// gives up the rest.
    ///
    /// # Errors
    /// As there.
    pub fn reserve_room(&mut self, bytes: usize) -> Done {
        if self.has_room(bytes) {
            return Ok(());
        }
        let reserved = self.charge(bytes, Output::reserve_room);
        if reserved.is_err() {
            self.out.end_reserve();
        }
        reserved
    }

    /// Whether a reply of so many bytes more needs no charge.
    pub fn has_room(&self, bytes: usize) -> bool {
        has_room(self.out, bytes)
    }

    /// As [`Call::make_room`], for an output that is charged and sent later.
    ///
    /// # Errors
    /// As there.
    pub fn make_room_in(&mut self, kept: &mut Output, bytes: usize) -> Done {
        if bytes <= kept.free_bytes() {
            return Ok(());
        }
        self.may_hold(bytes)?;
        kept.charge_room(bytes);
        if !self.give_way() {
            kept.give_up_room();
            return Err(Fail::HELD);
        }
        kept.room(bytes);
        Ok(())
    }

    /// Checks that connections may hold so many bytes more.
    fn may_hold(&self, bytes: usize) -> Done {
        let store = self.cx.guard.store();
        let held = store.held_bytes().saturating_add(bytes as u64);
        if held > store.held_bytes_max() { Err(Fail::HELD) } else { Ok(()) }
    }

    /// Evicts items for what was charged. False if there is still no room: in a transaction, where nothing is evicted, or while
    /// others hold the memory of evicted items.
    pub fn give_way(&mut self) -> bool {
        let guard = &mut self.cx.guard;
        if guard.in_transaction() {
            return !guard.store().may_evict() || !guard.store().is_over_limit();
        }
        if !guard.store().may_evict() {
            return true;
        }
        for _ in 0..GIVE_WAY_MAX {
            if !self.cx.guard.store().is_over_limit() {
                return true;
            }
            // This is between two batches: a key that was made before is of the database that had its number then.
            self.cx.guard.give_way();
            self.spend(SLICE_NS);
        }
        !self.cx.guard.store().is_over_limit()
    }

    pub fn ok(&mut self) -> Done {
        self.out.put(b"+OK\r\n");
        Ok(())
    }

    #[inline]
    pub fn integer(&mut self, n: i64) -> Done {
        reply::put_integer(self.out, n);
        Ok(())
    }

    /// Replies a length or a count.
    pub fn length(&mut self, n: usize) -> Done {
        self.integer(n as i64)
    }

    pub fn bulk(&mut self, bytes: &[u8]) -> Done {
        reply::put_bulk(self.out, bytes);
        Ok(())
    }

    pub fn null(&mut self) -> Done {
        reply::put_null(self.out, self.client.resp3);
        Ok(())
    }

    pub fn array(&mut self, len: usize) {
        reply::put_array(self.out, len);
    }

    pub fn map(&mut self, pairs: usize) {
        reply::put_map(self.out, self.client.resp3, pairs);
    }

    /// Bytes that a value may have, at most.
    pub fn value_bytes_max(&self) -> u64 {
        self.shared.limits.bulk_bytes_max(&self.cx.guard)
    }
}

impl<'c, 'w> Call<'_, 'c, 'w> {
    /// Runs `f` with another output for its reply, which is sent later.
    pub fn replying_to<R>(&mut self, kept: &mut Output, f: impl FnOnce(&mut Call<'_, 'c, 'w>) -> R) -> R {
        let mut within = Call {
            cx: self.cx,
            shared: self.shared,
            out: &mut *kept,
            client: self.client,
            tally: self.tally,
            flow: self.flow,
            job: self.job,
            row: self.row,
            admitted: self.admitted,
            later: self.later,
        };
        let done = f(&mut within);
        // Work that was spent has ended the turn of that output, which is not sent yet.
        kept.take_end();
        done
    }
}

/// Whether a reply of so many bytes more needs no charge.
pub(crate) fn has_room(out: &Output, bytes: usize) -> bool {
    bytes <= free_room(out)
}

/// Bytes of a reply that need no charge.
pub(crate) fn free_room(out: &Output) -> usize {
    out.free_bytes().max(REPLY_BYTES_FREE.saturating_sub(out.own_bytes()) as usize)
}

/// As [`Call::peek`], where other parts of the call are borrowed meanwhile.
pub(crate) fn peek<'r>(guard: &'r mut Guard<'_>, key: &Key<'_>) -> Result<Option<Item<'r>>, Fail> {
    strings(guard.peek(key).hit())
}

/// Refuses an item that is not a string.
#[inline]
fn strings(item: Option<Item<'_>>) -> Result<Option<Item<'_>>, Fail> {
    match item {
        Some(item) if item.is_collection() => Err(Fail::WRONG_TYPE),
        string => Ok(string),
    }
}

/// Reads the live string of a key, counted as an access and as a hit or miss.
///
/// # Errors
/// The key has another type of value, which counts as a hit.
#[inline]
pub(crate) fn read<'r>(
    cx: &'r mut Context<'_, '_>,
    tally: &mut Tally,
    key: &Key<'_>,
    hint: &Hint<'_>,
) -> Result<Option<Item<'r>>, Fail> {
    strings(find(cx, tally, key, hint))
}

/// Finds the live item of a key, counted as an access and as a hit or miss.
#[inline]
pub(crate) fn find<'r>(
    cx: &'r mut Context<'_, '_>,
    tally: &mut Tally,
    key: &Key<'_>,
    hint: &Hint<'_>,
) -> Option<Item<'r>> {
    tally.gets += 1;
    let counters = cx.counters;
    let why = match cx.guard.get_hinted(key, hint) {
        Lookup::Hit(item) => {
            tally.get_hits += 1;
            return Some(item);
        }
        Lookup::Miss | Lookup::Flushed => None,
        Lookup::Expired => Some(RedisCounter::Expired),
    };
    counters.add(RedisCounter::Misses, 1);
    if let Some(why) = why {
        counters.add(why, 1);
    }
    None
}

/// Attributes of a new value that replaces `item` and keeps its flags and expiry. The caller reads what the write expects
/// ([`Item::seen`]) first, so that an expiry changed in between is found out.
pub(crate) fn kept(item: &Item<'_>) -> Attributes {
    Attributes {
        flags: item.flags(),
        expires_at: item.expires_at(),
        key_binary: item.key_binary(),
        ..Attributes::default()
    }
}

/// Checks a client's pattern.
///
/// # Errors
/// It is longer than a pattern may be, or one of its parts is.
pub(crate) fn bounded(pattern: &[u8]) -> Result<&[u8], Fail> {
    // A pattern may be as long as a key, so that each key can be asked for by its name.
    const { assert!(PATTERN_BYTES_MAX == KEY_BYTES_MAX) };
    if is_bounded(pattern) { Ok(pattern) } else { Err(Fail::PATTERN_TOO_LONG) }
}

/// Names that one step looks through, at most.
pub(crate) const NAMES_AT_ONCE: usize = 64 << 10;
/// Work to look up what a name means.
pub(crate) const NAME_NS: u64 = 40;

/// Checks that one step may look through these names.
///
/// # Errors
/// They are too many.
pub(crate) fn few_names(names: Args<'_>) -> Done {
    if names.len() > NAMES_AT_ONCE { Err(Fail::of("ERR too many arguments")) } else { Ok(()) }
}

/// Keys whose values one step looks at, at most: some 7 ms.
pub(crate) const KEYS_AS_ONE_MAX: usize = 16 << 10;

/// Checks that so many keys may be looked at as one.
///
/// # Errors
/// They are too many.
pub(crate) fn few_keys(keys: usize) -> Done {
    if keys > KEYS_AS_ONE_MAX { Err(Fail::of("ERR too many keys")) } else { Ok(()) }
}

/// The next argument, as the value of an option.
///
/// # Errors
/// There is none.
pub(crate) fn next<'a>(args: &mut Args<'a>) -> Result<&'a [u8], Fail> {
    args.next().ok_or(Fail::SYNTAX)
}

const OUT_OF_I32: Fail = Fail::of("ERR value is out of range, value must between -2147483648 and 2147483647");

/// Parses the number of a database.
///
/// # Errors
/// There is no such database.
pub(crate) fn database(word: &[u8]) -> Result<u8, Fail> {
    database_or(word, Fail::NOT_AN_INTEGER, OUT_OF_I32)
}

/// As [`database`], with its own errors for what is no number of 32 bits.
///
/// # Errors
/// There is no such database.
pub(crate) fn database_or(word: &[u8], not_a_number: Fail, too_large: Fail) -> Result<u8, Fail> {
    let n = parse_integer(word).ok_or(not_a_number)?;
    let n = i32::try_from(n).map_err(|_| too_large)?;
    u8::try_from(n).ok().filter(|&n| n < DATABASES).ok_or(Fail::BAD_DATABASE)
}

/// The output for messages that come behind a reply, of the same kind as `out`.
pub(crate) fn late<'l>(late: &'l mut Option<Box<Output>>, out: &Output) -> &'l mut Output {
    late.get_or_insert_with(|| Box::new(out.beside(&[])))
}
