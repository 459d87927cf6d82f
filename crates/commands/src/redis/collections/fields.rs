//! Fields that expire: HEXPIRE and its kin, HTTL and its kin, HPERSIST, HGETEX, HSETEX, HGETDEL.
//!
//! ```text
//! named     a field whose time has passed is not there: the store compares
//! counted   HLEN, HGETALL, HSCAN, HRANDFIELD, DUMP: what is due is taken out first, some of it at a time (`take_due`)
//! ```
//!
//! Fields that words name are looked after some at a time, as elsewhere (`words.rs`). What is done with each of them, and replied,
//! is in `deed.rs`; one step of that in `answers.rs`, all of it in `doing.rs`.

mod answers;
mod deed;
mod doing;

use larder_protocol::resp::{Args, Encoder};
use larder_store::{Due, Fields, Hint, Key, Lasting, Millis, Type, Upload};

use super::words::{Ask, Write};
use super::{Call, Pairs, peek_as};
use crate::core::events::{Change, Class, Seen, seen};
use crate::redis::call::{integer, is};
use crate::redis::clock::{Clock, When};
use crate::redis::fail::{Done, Fail};
use crate::redis::source::Name;
use crate::redis::steps::again::Again;
use crate::redis::steps::job::{Job, Step};
use deed::Deed;
use doing::begin;

/// A time is no later, in milliseconds: as Redis's are.
const TIME_MAX: i64 = (1 << 46) - 1;
/// Work to make a leaf anew without what is due.
const LEAF_NS: u64 = 3_000;

const NO_FIELDS: Fail = Fail::of("ERR Mandatory argument FIELDS is missing or not at the right position");
const NOT_AS_MANY: Fail = Fail::of("ERR The `numfields` parameter must match the number of arguments");
const NEGATIVE: Fail = Fail::of("ERR invalid expire time, must be >= 0");

/// The fields behind `FIELDS` and their number, which have to be all that is left.
fn fields<'a>(mut args: Args<'a>, none: &'static str) -> Result<Args<'a>, Fail> {
    if !is(args.next().unwrap_or_default(), "FIELDS") {
        return Err(NO_FIELDS);
    }
    let count = integer(args.next().unwrap_or_default()).ok().filter(|count| *count > 0);
    let count = count.ok_or(Fail::of(none))?;
    if usize::try_from(count) != Ok(args.len()) {
        return Err(NOT_AS_MANY);
    }
    Ok(args)
}

/// The absolute time that a word says. It may have passed; it is not 0.
fn time(name: &str, word: &[u8], clock: Clock, now: Millis) -> Result<Millis, Fail> {
    let time = integer(word)?;
    if time < 0 {
        return Err(NEGATIVE);
    }
    let at = clock.absolute(time, now).filter(|at| *at <= TIME_MAX).ok_or_else(|| Fail::expire_time(name))?;
    Ok(at.max(1) as Millis)
}

/// HEXPIRE, HPEXPIRE, HEXPIREAT, HPEXPIREAT
pub(super) fn expire(
    call: &mut Call<'_, '_, '_>,
    (name, clock): (&'static str, Clock),
    key: &Key<'_>,
    mut args: Args<'_>,
) -> Done {
    peek_as(&mut call.cx.guard, key, Type::Hash)?;
    let at = time(name, args.next().unwrap_or_default(), clock, call.cx.now())?;
    let when = args.at(0).and_then(When::of_option);
    if when.is_some() {
        args.next();
    }
    if args.len() < 2 {
        return Err(Fail::arity(name));
    }
    let fields = fields(args, "ERR Parameter `numFields` should be greater than 0")?;
    begin(call, name, key, fields, Deed::Expire(at, when.unwrap_or_default()))
}

/// HPERSIST
pub(super) fn persist(call: &mut Call<'_, '_, '_>, key: &Key<'_>, args: Args<'_>) -> Done {
    peek_as(&mut call.cx.guard, key, Type::Hash)?;
    let fields = fields(args, "ERR Number of fields must be a positive integer")?;
    begin(call, "hpersist", key, fields, Deed::Persist)
}

/// HTTL, HPTTL, HEXPIRETIME, HPEXPIRETIME
pub(super) fn ttl(
    call: &mut Call<'_, '_, '_>,
    clock: Clock,
    key: &Key<'_>,
    hint: &Hint<'_>,
    args: Args<'_>,
) -> Done {
    peek_as(&mut call.cx.guard, key, Type::Hash)?;
    let fields = fields(args, "ERR Number of fields must be a positive integer")?;
    call.ask_words(key, hint, fields, Ask::Time(clock))
}

/// HGETDEL
pub(super) fn take(call: &mut Call<'_, '_, '_>, key: &Key<'_>, args: Args<'_>) -> Done {
    peek_as(&mut call.cx.guard, key, Type::Hash)?;
    let fields = fields(args, "ERR Number of fields must be a positive integer")?;
    begin(call, "hgetdel", key, fields, Deed::Take)
}

/// How long fields last, as options say it, and what else they ask.
#[derive(Clone, Copy, Debug)]
struct Options {
    lasting: Lasting,
    asked: Fields,
}

/// HSETEX: the options, and the pairs behind the number of fields.
fn options(mut args: Args<'_>, now: Millis) -> Result<(Options, Args<'_>), Fail> {
    let (mut lasting, mut asked) = (None, Fields::Any);
    while let Some(word) = args.next() {
        if is(word, "FIELDS") {
            // The number, and one pair at least.
            if args.len() < 3 {
                return Err(Fail::arity("hsetex"));
            }
            let count = integer(args.next().unwrap_or_default()).ok();
            let count = count.filter(|count| (1..=i64::from(i32::MAX)).contains(count));
            let count = count.ok_or(Fail::of("ERR invalid number of fields"))?;
            if usize::try_from(count) != Ok(args.len() / 2) || !args.len().is_multiple_of(2) {
                return Err(Fail::arity("hsetex"));
            }
            return Ok((Options { lasting: lasting.unwrap_or(Lasting::Never), asked }, args));
        }
        let clock = Clock::of_option(word);
        if clock.is_some() || is(word, "KEEPTTL") {
            if lasting.is_some() {
                return Err(Fail::of(
                    "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified",
                ));
            }
            lasting = Some(match clock {
                Some(clock) => {
                    let word = args.next().ok_or(Fail::of("ERR missing expire time"))?;
                    Lasting::Until(time("hsetex", word, clock, now)?)
                }
                None => Lasting::Keep,
            });
        } else if is(word, "FNX") || is(word, "FXX") {
            if asked != Fields::Any {
                return Err(Fail::of("ERR Only one of FXX or FNX arguments can be specified"));
            }
            asked = if is(word, "FNX") { Fields::Absent } else { Fields::Present };
        } else {
            let word = crate::redis::fail::shown(word, 128);
            return Err(Fail::with(format!("ERR unknown argument: {word}")));
        }
    }
    Err(Fail::of("ERR missing FIELDS argument"))
}

/// Words of HSETEX behind its key, but for the value, which comes last: they are right, and name one field.
pub(crate) fn is_of_one(words: Args<'_>, now: Millis) -> bool {
    let mut all = Encoder::default();
    words.for_each(|word| all.push(word));
    all.push(b"");
    options(all.args(), now).is_ok_and(|(_, pairs)| pairs.len() == 2)
}

/// HGETEX
pub(super) fn get(call: &mut Call<'_, '_, '_>, key: &Key<'_>, mut args: Args<'_>) -> Done {
    peek_as(&mut call.cx.guard, key, Type::Hash)?;
    let (first, mut lasting) = (args.at(0).unwrap_or_default(), Lasting::Keep);
    if let Some(clock) = Clock::of_option(first) {
        args.next();
        lasting = Lasting::Until(time("hgetex", args.next().unwrap_or_default(), clock, call.cx.now())?);
    } else if is(first, "PERSIST") {
        args.next();
        lasting = Lasting::Never;
    }
    if args.len() < 2 {
        return Err(Fail::arity("hgetex"));
    }
    let fields = fields(args, "ERR Number of fields must be a positive integer")?;
    begin(call, "hgetex", key, fields, Deed::Get(lasting))
}

/// What a key was like, if events are wanted.
fn look(call: &mut Call<'_, '_, '_>, name: &[u8]) -> Option<Seen> {
    let wanted = call.cx.shared.events.any();
    wanted.then(|| seen(&mut call.cx.guard, call.client.db, name))
}

/// HSETEX
pub(super) fn set(call: &mut Call<'_, '_, '_>, key: &Key<'_>, args: Args<'_>) -> Done {
    let (Options { lasting, asked }, pairs) = options(args, call.cx.now())?;
    peek_as(&mut call.cx.guard, key, Type::Hash)?;
    let write = Write::lasting(lasting, call.cx.now());
    if let Some(value) = call.client.received.take() {
        let set = set_at_once(call, key.bytes(), pairs, asked, write, Some(*value))?;
        return call.integer(i64::from(set));
    }
    let (count, most) = (pairs.len() / 2, call.at_once(write, key, pairs));
    if count <= most || call.cx.guard.in_transaction() || call.are_one_step(write, key, pairs) {
        let set = set_at_once(call, key.bytes(), pairs, asked, write, None)?;
        if asked != Fields::Any {
            call.spend_on_looks(count);
        }
        call.spend_on_writes(count);
        call.spend_on_bytes(pairs.encoded().len());
        return call.integer(i64::from(set));
    }
    call.write_in_steps("hsetex", key, pairs, (write, most), false, Some(asked))
}

/// Sets fields as one moment, if what is asked holds of them, and publishes that; whether they were set. `received`: the value of
/// the one that there is, where that was received.
fn set_at_once(
    call: &mut Call<'_, '_, '_>,
    name: &[u8],
    pairs: Args<'_>,
    asked: Fields,
    write: Write,
    received: Option<Upload>,
) -> Result<bool, Fail> {
    let (was, key) = (look(call, name), call.key(name));
    let set = if let Write::Set(lasting) = write {
        match received {
            Some(value) => {
                call.spend_on_linking(&value);
                let (guard, field) = (&mut call.cx.guard, pairs.at(0).unwrap_or_default());
                guard.hash_set_upload_lasting(&key, field, value, (asked, lasting))?.is_some()
            }
            None => call.cx.guard.hash_set_lasting(&key, Pairs(pairs), asked, lasting)?,
        }
    } else {
        // They would have gone by now: so they do, as those that are there.
        call.as_one([key], |call| {
            let guard = &mut call.cx.guard;
            let hash = peek_as(guard, &key, Type::Hash)?;
            let there = |field| hash.as_ref().is_some_and(|hash| hash.has(field));
            let holds = match asked {
                Fields::Any => true,
                Fields::Present => Pairs(pairs).all(|(field, _)| there(field)),
                Fields::Absent => !Pairs(pairs).any(|(field, _)| there(field)),
            };
            if holds {
                guard.remove_named(&key, Type::Hash, Pairs(pairs).map(|(field, _)| field))?;
            }
            Ok::<_, Fail>(holds)
        })?
    };
    if let (true, Some(was)) = (set, was) {
        let is = seen(&mut call.cx.guard, call.client.db, name);
        call.tell_fields_set(name, write, was, is);
    }
    Ok(set)
}

impl Call<'_, '_, '_> {
    /// Publishes that HSETEX has set fields of a key, by what that was like before and is now.
    pub(super) fn tell_fields_set(&mut self, name: &[u8], write: Write, was: Seen, is: Seen) {
        let db = self.client.db;
        let Write::Set(lasting) = write else {
            // As if they had been there for a moment.
            if was.is_none() {
                self.cx.tell_new(db, name);
            }
            self.cx.tell(Class::Hash, "hset", db, name);
            self.cx.tell(Class::Hash, "hdel", db, name);
            if is.is_none() {
                self.cx.tell(Class::Generic, "del", db, name);
            }
            return;
        };
        self.cx.tell_change(&Change::of(Class::Hash, "hset"), db, name, was, is);
        if matches!(lasting, Lasting::Until(_)) {
            self.cx.tell(Class::Hash, "hexpire", db, name);
        }
    }

    /// Runs what sets some of the fields of HSETEX as one moment, and publishes that.
    pub(super) fn tell_fields_around(
        &mut self,
        name: &[u8],
        write: Write,
        run: impl FnOnce(&mut Self) -> Done,
    ) -> Done {
        let was = look(self, name);
        run(self)?;
        if let Some(was) = was {
            let is = seen(&mut self.cx.guard, self.client.db, name);
            self.tell_fields_set(name, write, was, is);
        }
        Ok(())
    }

    /// Takes out of a hash what is due, before its fields are counted, listed or drawn. `name`: the command's; `args`: those
    /// behind the key. True if that takes longer than others should wait: the command has ended here, and is begun again
    /// when nothing is due any more.
    ///
    /// # Errors
    /// There is no memory for what is left of it.
    #[cold]
    pub fn take_due(&mut self, name: &'static str, key: &Key<'_>, args: Args<'_>) -> Result<bool, Fail> {
        let ns_max = self.step_ns();
        let mut ns = 0;
        loop {
            match self.cx.guard.hash_take_due(key)? {
                Due::Done(leaves) => {
                    self.spend(ns + leaves as u64 * LEAF_NS);
                    return Ok(false);
                }
                Due::More(leaves) => ns += leaves as u64 * LEAF_NS,
            }
            if ns >= ns_max && !self.cx.guard.in_transaction() {
                break;
            }
        }
        self.spend(ns);
        let again = Again::of(self, name, key, args)?;
        let name = Name::kept(self, key.bytes())?;
        self.go_on_with(Settling { name, again });
        Ok(true)
    }
}

/// A command that waits until nothing of its hash is due.
#[derive(Debug)]
struct Settling {
    name: Name,
    again: Again,
}

impl Job for Settling {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let key = self.name.key(call);
        let done = loop {
            match call.cx.guard.hash_take_due(&key)? {
                Due::Done(_) => break true,
                Due::More(leaves) => ns += leaves as u64 * LEAF_NS,
            }
            if ns >= ns_max {
                break false;
            }
        };
        call.spend(ns);
        if !done {
            return Ok(Step::More);
        }
        self.again.run_as_it_is(call)?;
        Ok(Step::Done)
    }

    fn again(&self) -> Option<&Again> {
        Some(&self.again)
    }
}

/// A field's time, as HTTL and its kin reply it: seconds are rounded up.
pub(super) fn shown_time(at: Millis, now: Millis, clock: Clock) -> i64 {
    let (at, now) = (at as i64, now as i64);
    match clock {
        Clock::Seconds => (at - now + 999) / 1000,
        Clock::Milliseconds => at - now,
        Clock::UnixSeconds => (at + 999) / 1000,
        Clock::UnixMilliseconds => at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up_and_times_have_a_limit() {
        assert_eq!(shown_time(10_001, 10_000, Clock::Seconds), 1);
        assert_eq!(shown_time(11_000, 10_000, Clock::Seconds), 1);
        assert_eq!(shown_time(11_001, 10_000, Clock::Seconds), 2);
        assert_eq!(shown_time(11_001, 10_000, Clock::UnixSeconds), 12);
        assert_eq!(shown_time(11_001, 10_000, Clock::Milliseconds), 1_001);
        let most = TIME_MAX.to_string();
        assert_eq!(time("hpexpireat", most.as_bytes(), Clock::UnixMilliseconds, 5), Ok(TIME_MAX as Millis));
        let more = (TIME_MAX + 1).to_string();
        for (word, clock) in [(more.as_str(), Clock::UnixMilliseconds), (&most, Clock::Milliseconds)] {
            assert_eq!(time("h", word.as_bytes(), clock, 5), Err(Fail::expire_time("h")));
        }
        assert_eq!(time("h", b"-1", Clock::Seconds, 5), Err(NEGATIVE));
        assert_eq!(time("h", b"0", Clock::UnixSeconds, 5), Ok(1));
    }
}
