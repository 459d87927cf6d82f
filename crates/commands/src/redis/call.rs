//! What a command works with, and the words that most of them use.

use larder_protocol::resp::Args;
use larder_store::{Attributes, Expect, Hint, Item, Key, Lookup, Millis, Refusal, Stored};

use super::client::Client;
use super::fail::{Done, Fail};
use super::reply;
use super::table::RowId;
use crate::context::Context;
use crate::counters::Counter;
use crate::output::Output;
use crate::tally::Tally;

/// Most bytes of a key.
pub(crate) const KEY_BYTES_MAX: usize = 64 << 10;

/// What the session does after a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Goes on.
    #[default]
    Next,
    /// Goes on after so many milliseconds, and says OK then if that is not said yet.
    Sleep { ms: Millis, says: bool },
    /// Goes on with [`super::client::Client::job`] in the next turn.
    Job,
    /// Sends what waits, then closes.
    Close,
}

/// One command at work.
pub(crate) struct Call<'x, 'c, 'w> {
    /// The store, the worker, the server.
    pub cx: &'x mut Context<'c, 'w>,
    /// Where it replies.
    pub out: &'x mut Output,
    /// Whose command it is.
    pub client: &'x mut Client,
    /// What is counted often.
    pub tally: &'x mut Tally,
    /// What the session does next.
    pub flow: Flow,
    /// The row of the command; none if there is no such command, or it is one of many.
    pub row: Option<RowId>,
    /// The command has passed what it has to before it runs.
    pub admitted: bool,
}

/// A command of one key, which was hashed and looked for ahead.
pub(crate) type OfKey = fn(&mut Call<'_, '_, '_>, &Key<'_>, &Hint<'_>, Args<'_>) -> Done;
/// Any other command; the arguments behind its name.
pub(crate) type OfArgs = fn(&mut Call<'_, '_, '_>, Args<'_>) -> Done;

impl Call<'_, '_, '_> {
    /// A key of the selected database.
    #[inline]
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        self.cx.guard.key_in(self.client.db, bytes)
    }

    /// The live string of a key, read without a trace.
    pub fn peek(&mut self, key: &Key<'_>) -> Result<Option<Item<'_>>, Fail> {
        Ok(self.cx.guard.peek(key).hit())
    }

    /// Stores a value.
    ///
    /// # Errors
    /// No memory. What was expected and is not so is the inner error: to be looked at again.
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

    /// A reply that grows with the request, or with what was queued, may go on: one command is not sent in
    /// parts, and what it copies may take as much as all connections may hold.
    pub fn may_reply_more(&self) -> bool {
        self.out.own_bytes() < self.cx.guard.store().held_bytes_max()
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

    /// Bytes that were written or found.
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

    /// Bytes that a value may have.
    pub fn value_bytes_max(&self) -> u64 {
        self.cx.shared.redis.limits.bulk_bytes_max(&self.cx.guard)
    }
}

/// The live string of a key, counted as an access and as a hit or miss.
#[inline]
pub(crate) fn read<'r>(
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
        Lookup::Expired => Some(Counter::RedisExpired),
    };
    counters.add(Counter::RedisMisses, 1);
    if let Some(why) = why {
        counters.add(why, 1);
    }
    None
}

/// Attributes of a new value that takes the place of an old one and keeps what goes with it.
pub(crate) fn kept(item: &Item<'_>) -> Attributes {
    Attributes {
        flags: item.flags(),
        expires_at: item.expires_at(),
        key_binary: item.key_binary(),
        ..Attributes::default()
    }
}

/// The word is this option, in any case.
pub(crate) fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

/// A 64-bit number.
///
/// # Errors
/// It is none.
pub(crate) fn integer(word: &[u8]) -> Result<i64, Fail> {
    larder_protocol::resp::parse_integer(word).ok_or(Fail::NOT_AN_INTEGER)
}

/// The next argument of an option that needs one.
///
/// # Errors
/// There is none.
pub(crate) fn next<'a>(args: &mut Args<'a>) -> Result<&'a [u8], Fail> {
    args.next().ok_or(Fail::SYNTAX)
}
