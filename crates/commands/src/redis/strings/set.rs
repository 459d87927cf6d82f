//! SET with all of its options, and MSETEX.

use larder_protocol::resp::Args;
use larder_store::{Attributes, Expect, Hint, Key, Millis, Value};

use crate::core::events::Change;
use crate::redis::call::{Call, integer, is, next};
use crate::redis::clock::{Clock, Expiry};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_null, put_value};
use crate::redis::row::{ChangeOf, Tells};
use crate::redis::strings::pairs::{self, Plan};

/// The condition on which a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition<'a> {
    Any,
    /// NX: the key is not there.
    Absent,
    /// XX: the key is there.
    Present,
    /// IFEQ: the key has this value.
    Equal(&'a [u8]),
    /// IFNE: the key has another value, or none.
    Differs(&'a [u8]),
}

/// The words of a SET.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Set<'a> {
    pub value: &'a [u8],
    pub condition: Condition<'a>,
    /// Whether the old value is replied.
    pub get: bool,
    pub expiry: Expiry,
}

/// The events of SET and MSETEX for a key. They remove a key only if the given time has passed. Only an absolute time can have:
/// without one, a key that is gone was removed by another client.
pub(crate) const TOLD: Tells = Tells::By(ChangeOf(|mut args, _| {
    let is_absolute =
        |word| matches!(Clock::of_option(word), Some(Clock::UnixSeconds | Clock::UnixMilliseconds));
    if args.any(is_absolute) { Change::SET_LATE } else { Change::SET }
}));

/// Serves SET.
#[inline]
pub(crate) fn set(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, mut args: Args<'_>) -> Done {
    let value = args.next().unwrap_or_default();
    if args.is_empty() {
        return super::set_plain(call, key, hint, value);
    }
    Set::parse("set", value, args, call.cx.now())?.run(call, key)
}

impl<'a> Set<'a> {
    fn parse(name: &str, value: &'a [u8], mut args: Args<'a>, now: Millis) -> Result<Set<'a>, Fail> {
        let mut set = Set { value, condition: Condition::Any, get: false, expiry: Expiry::None };
        let mut expires = None;
        while let Some(word) = args.next() {
            let condition = if is(word, "NX") {
                Condition::Absent
            } else if is(word, "XX") {
                Condition::Present
            } else if is(word, "IFEQ") {
                Condition::Equal(next(&mut args)?)
            } else if is(word, "IFNE") {
                Condition::Differs(next(&mut args)?)
            } else if is(word, "GET") {
                set.get = true;
                continue;
            } else if is(word, "KEEPTTL") {
                if expires.is_some() {
                    return Err(Fail::SYNTAX);
                }
                set.expiry = Expiry::Keep;
                continue;
            } else if let Some(clock) = Clock::of_option(word) {
                let time = next(&mut args)?;
                // Of several times in the same unit the last counts.
                let other = expires.replace((clock, time)).is_some_and(|(was, _)| was != clock);
                if set.expiry == Expiry::Keep || other {
                    return Err(Fail::SYNTAX);
                }
                continue;
            } else {
                return Err(Fail::SYNTAX);
            };
            // The same word twice is allowed, but two values to compare with are not.
            let again = matches!(
                (set.condition, condition),
                (Condition::Absent, Condition::Absent) | (Condition::Present, Condition::Present)
            );
            if set.condition != Condition::Any && !again {
                return Err(Fail::SYNTAX);
            }
            set.condition = condition;
        }
        if let Some((clock, time)) = expires {
            set.expiry = Expiry::At(clock.deadline(name, time, now)?);
        }
        Ok(set)
    }

    /// Whether it replies, or depends on, the old value.
    fn looks(&self) -> bool {
        self.get || matches!(self.condition, Condition::Equal(_) | Condition::Differs(_))
    }

    /// Carries it out, and replies.
    pub fn run(&self, call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> Done {
        loop {
            let mark = call.out.mark();
            let (mut attributes, mut expect) = (Attributes::default(), Expect::Absent);
            let holds = match call.cx.guard.peek(key).hit() {
                // A value that is looked at has to be a string; one that is not is replaced, whatever it is.
                Some(item) if item.is_collection() && self.looks() => return Err(Fail::WRONG_TYPE),
                Some(item) => {
                    // Read before the bytes: they may be newer than that, never older.
                    expect = Expect::Unchanged(item.seen());
                    if self.get {
                        put_value(call.out, &item);
                    }
                    if self.expiry == Expiry::Keep {
                        attributes.expires_at = item.expires_at();
                    }
                    match self.condition {
                        Condition::Any | Condition::Present => true,
                        Condition::Absent => false,
                        Condition::Equal(value) => equals(item.value(), value),
                        Condition::Differs(value) => !equals(item.value(), value),
                    }
                }
                None => {
                    if self.get {
                        put_null(call.out, call.client.resp3);
                    }
                    !matches!(self.condition, Condition::Present | Condition::Equal(_))
                }
            };
            if !holds {
                return if self.get { Ok(()) } else { call.null() };
            }
            if let Expiry::At(at) = self.expiry {
                attributes.expires_at = at;
            }
            // A value that was not looked at may change.
            if self.condition == Condition::Any && !self.get && self.expiry != Expiry::Keep {
                expect = Expect::Any;
            }
            match call.put(key, self.value, &attributes, expect) {
                Ok(true) => return if self.get { Ok(()) } else { call.ok() },
                // Another client was faster: what was replied is no longer the value before.
                Ok(false) => call.out.rewind(mark),
                // The error is the whole reply.
                Err(fail) => {
                    call.out.rewind(mark);
                    return Err(fail);
                }
            }
        }
    }
}

impl Call<'_, '_, '_> {
    /// Stores a value, or removes the key if its expiry has passed; true if that was done.
    fn put(
        &mut self,
        key: &Key<'_>,
        value: &[u8],
        attributes: &Attributes,
        expect: Expect,
    ) -> Result<bool, Fail> {
        if attributes.expires_at != 0 && attributes.expires_at <= self.cx.now() {
            return Ok(match expect {
                Expect::Unchanged(_) => self.cx.guard.delete(key, expect).is_ok(),
                _ => {
                    let _ = self.cx.guard.delete(key, Expect::Present);
                    true
                }
            });
        }
        Ok(self.store(key, value, attributes, expect)?.is_ok())
    }
}

/// Whether the value is these bytes.
pub(crate) fn equals(value: Value<'_>, bytes: &[u8]) -> bool {
    match value {
        Value::Collection(_) => false,
        Value::Whole(whole) => whole == bytes,
        Value::Pieces(pieces) => {
            let (pinned, mut rest) = (pieces.pin(), bytes);
            for piece in pinned.pieces(0) {
                match rest.split_at_checked(piece.len()) {
                    Some((start, after)) if start == piece => rest = after,
                    _ => return false,
                }
            }
            rest.is_empty()
        }
    }
}

/// The number of pairs that an MSETEX with these arguments gives.
pub(super) fn pairs_counted(args: Args<'_>) -> Option<usize> {
    let count = usize::try_from(integer(args.at(0)?).ok()?).ok()?;
    Some(count).filter(|&count| count > 0 && count <= i32::MAX as usize)
}

/// Stores the value of a pair, whatever the key has.
pub(super) fn put_pair(call: &mut Call<'_, '_, '_>, key: &Key<'_>, value: &[u8], expiry: Expiry) -> Done {
    let mut attributes = Attributes::default();
    match expiry {
        Expiry::None => {}
        Expiry::At(at) => attributes.expires_at = at,
        Expiry::Keep => {
            let there = call.cx.guard.peek(key).hit();
            attributes.expires_at = there.map_or(0, |item| item.expires_at());
        }
    }
    call.put(key, value, &attributes, Expect::Any)?;
    Ok(())
}

/// Serves MSETEX, with 1 if all keys were set and 0 if none was; very many in steps ([`pairs`]).
pub(crate) fn msetex(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    let count = pairs_counted(args).ok_or(Fail::of("ERR invalid numkeys value"))?;
    let mut words = args;
    words.next();
    if words.len() < 2 * count {
        return Err(Fail::arity("msetex"));
    }
    let (all, keys) = (words, Args::rest(words.encoded(), 2 * count));
    words.nth(2 * count - 1);
    // The options are those of SET without those that look at a value.
    let options = Set::parse("msetex", b"", words, call.cx.now())?;
    if options.looks() {
        return Err(Fail::SYNTAX);
    }
    let expiry = options.expiry;
    let there = match options.condition {
        Condition::Absent => Some(false),
        Condition::Present => Some(true),
        Condition::Any | Condition::Equal(_) | Condition::Differs(_) => None,
    };
    if pairs::in_steps(count, args) && !call.cx.guard.in_transaction() {
        return pairs::begin(call, Plan { name: "msetex", there, expiry, behind: words.len() }, all);
    }
    pairs::telling(call, "msetex", args, |call| {
        call.as_one_in(keys.step_by(2), |call| {
            let is_unlike = there
                .is_some_and(|there| keys.step_by(2).any(|name| call.is_there(&call.key(name)) != there));
            if is_unlike {
                return call.integer(0);
            }
            pairs::store_pairs(call, expiry, keys)?;
            call.integer(1)
        })
    })
}
