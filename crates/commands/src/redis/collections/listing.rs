//! Replies of many entries of one collection.
//!
//! ```text
//! little, or in a transaction ─▶ written from where it lies
//! else                        ─▶ copied in steps ─▶ all of one version? ─▶ sent piece by piece
//!                                      ▲                └── no: begun anew
//! ```
//!
//! Long elements that lie apart are pinned, and sent from where they lie: in one step where the reply has little beside them, else
//! where others would be copied in steps. One for which that is refused is copied, unless it is too long ([`is_too_long`]): then
//! the command is. In a transaction, and where picks are made of a copy, an error stands in the place of such a one, and DUMP is
//! refused.
//!
//! What is copied is charged before it is made, as what connections hold, and refused beyond that. Where picks, each any
//! of all, are many beside the entries, it is the entries that are copied, once, and they are picked of the copy.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use larder_protocol::resp::{Args, HEAD_BYTES_MAX};
use larder_store::{Collection, Entry, Expect, Hint, Item, Key, Millis, Pinned, Seen, Store, Type};

use super::pick::{Drawing, PICKS_DIRECT, Random, each_of_some};
use super::sending::{is_sent, pinning_ns};
use super::{
    Call, ELEMENT_NS, ELEMENT_ROOM, LOOK_NS, MANY_ELEMENTS, Shown, copied_bytes_max, is_large, is_too_long,
    of_type, of_type_at, payload, peek_as, places, reply_bytes_max, shown_bytes_max, shown_places_bytes_max,
};
use crate::core::output::Output;
use crate::core::work::{Lane, STEPS_BYTES_MIN, copying_ns};
use crate::redis::call::{ELEMENT_BYTES, find, free_room, has_room};
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::reply::{put_map, put_null, put_set};
use crate::redis::row::Command;
use crate::redis::serialize::{checking_ns, crc64_on};
use crate::redis::source::Name;
use crate::redis::steps::again::{Again, Leave};
use crate::redis::steps::job::{Job, Step};

/// Bytes that are copied at a time, beside the longest entry.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes that are sent at a time.
const SENT_BYTES: usize = 16 << 10;
/// Bytes of long elements that are sent from where they lie in one step, at most. One that is longer is the only one of its step.
pub(super) const PINNED_AT_ONCE: usize = 4 << 20;
/// Picks whose replies have more bytes are copied in steps, however few they are.
const PICKED_BYTES_MAX: usize = 1 << 20;
/// Work to leave out one of the entries of which some are drawn.
const PASS_NS: u64 = 4;
/// Where one of so many is drawn each is walked over.
const DENSE: usize = 8;
/// Where picks are more than one of so many entries all of these are copied.
const PICKS_SHARE: u64 = 4;

/// Which entries of a collection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    /// All.
    All,
    /// Those from one place to another, which is one of them; negative ones count from the end.
    Places(i64, i64),
    /// Those from one place up to another, in the order of the reply; from the last one on with `back`. Which these are
    /// a [`Choose`] says.
    Ranks { start: usize, end: usize, back: bool },
    /// Entries at random, no entry twice: as many as this says, or all if there are fewer.
    Some(usize, Random),
    /// As many entries at random as this says, any of them perhaps again.
    Any(u64, Random),
}

/// Which entries are replied of a collection as it is.
pub(crate) type Choose<'c> = &'c dyn Fn(&Collection<'_>) -> Which;

/// What the reply is in RESP3; in RESP2 each is a flat array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// An array; of pairs an array of arrays.
    Rows,
    /// A map.
    Map,
    /// A set.
    Set,
    /// None of these, but DUMP's payload as one string; null if there is nothing. All are listed then.
    Payload,
}

/// Entries that are replied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub kind: Type,
    pub shown: Shown,
    pub form: Form,
    pub which: Which,
    /// The key is removed: all are listed then.
    pub takes: bool,
    /// When the first field of a hash expires; 0 for never.
    pub soonest: Millis,
}

impl Listed {
    /// The same entries, chosen of the collection as it is now.
    fn of(&self, there: &Collection<'_>, choose: Choose<'_>) -> Listed {
        Listed { which: choose(there), soonest: there.soonest(), ..*self }
    }

    /// Chooses of the collection as it is now.
    fn begin(&mut self, there: &Collection<'_>, choose: Choose<'_>) {
        *self = self.of(there, choose);
    }

    /// What is written of each entry: in a payload all.
    fn told(&self) -> Shown {
        if self.form == Form::Payload { Shown::Fields } else { self.shown }
    }

    /// How many entries are replied of so many.
    fn count(&self, len: usize) -> u64 {
        match self.which {
            Which::All => len as u64,
            Which::Places(start, stop) => places(start, stop, len).len() as u64,
            Which::Ranks { start, end, .. } => (end - start) as u64,
            Which::Some(count, _) => count.min(len) as u64,
            Which::Any(count, _) => {
                if len == 0 {
                    0
                } else {
                    count
                }
            }
        }
    }

    fn put_head(&self, out: &mut Output, resp3: bool, entries: u64) {
        let entries = entries as usize;
        match self.form {
            Form::Rows => self.shown.put_head(out, resp3, entries),
            Form::Map => put_map(out, resp3, entries),
            Form::Set => put_set(out, resp3, entries),
            Form::Payload => {}
        }
    }

    fn put(&self, out: &mut Output, resp3: bool, (there, entry): (&Collection<'_>, &Entry<'_>)) {
        match self.form {
            Form::Rows => self.shown.put_one(out, resp3, (there, entry)),
            Form::Map | Form::Set => self.shown.put(out, resp3, (there, entry)),
            Form::Payload => {
                let of = (self.kind, self.soonest);
                payload::each_piece_of_entry((there, entry), of, &mut |piece| out.put(piece));
            }
        }
    }

    /// As [`Listed::put`], of an entry of which something lies apart that is shown: it is sent from there.
    fn put_pinned(&self, out: &mut Output, resp3: bool, entry: &Entry<'_>, pinned: Pinned) {
        if self.form == Form::Rows {
            self.shown.begin_one(out, resp3);
        }
        self.shown.put_pinned(out, resp3, entry, pinned);
    }

    /// What may lie apart of an entry is shown as it is: of a field that is its value.
    fn shows_apart(&self) -> bool {
        self.form != Form::Payload && (self.kind != Type::Hash || self.shown != Shown::Names)
    }

    /// Bytes that the reply has beside long elements that are sent from where they lie; none if it is not made in one step. Looks
    /// at no more entries than one step replies: those of a list of long elements lie far from each other.
    fn bytes_beside(&self, there: &Collection<'_>) -> Option<usize> {
        let len = there.len();
        if self.count(len) >= MANY_ELEMENTS as u64 || self.picks(len) > PICKS_DIRECT {
            return None;
        }
        let (mut bytes, mut sent_bytes) = (2 * HEAD_BYTES_MAX, 0);
        let mut fits = |entry: &Entry<'_>| {
            let apart = entry.apart().map_or(0, |apart| apart.len());
            let sent = if is_sent(apart) { apart } else { 0 };
            bytes += shown_bytes_max(entry, (self.kind, self.shown)) - sent;
            sent_bytes += sent;
            bytes <= PIECE_BYTES && sent_bytes <= PINNED_AT_ONCE
        };
        let shown = match self.which {
            Which::All => 0..len,
            Which::Places(start, stop) => places(start, stop, len),
            Which::Ranks { start, end, .. } => start..end,
            Which::Some(..) | Which::Any(..) => {
                let mut all_fit = true;
                self.each(there, &mut |entry| all_fit = all_fit && fits(entry));
                return all_fit.then_some(bytes);
            }
        };
        there.entries(shown).all(|entry| fits(&entry)).then_some(bytes)
    }

    /// Long elements are sent from where they lie where it is replied in steps, too. Of entries all of which are copied since the
    /// picks are many beside them none is.
    fn sends_in_steps(&self, len: usize) -> bool {
        match self.which {
            Which::All | Which::Places(..) | Which::Ranks { .. } | Which::Some(..) => true,
            Which::Any(count, _) => count <= len as u64 / PICKS_SHARE,
        }
    }

    /// Calls `visit` with each entry.
    fn each<'r>(&self, there: &Collection<'r>, visit: &mut dyn FnMut(&Entry<'r>)) {
        match self.which {
            Which::All => there.entries(0..there.len()).for_each(|entry| visit(&entry)),
            Which::Places(start, stop) => {
                there.entries(places(start, stop, there.len())).for_each(|entry| visit(&entry));
            }
            Which::Ranks { start, end, back: false } => {
                there.entries(start..end).for_each(|entry| visit(&entry));
            }
            Which::Ranks { start, end, back: true } => {
                there.entries_back(start..end).for_each(|entry| visit(&entry));
            }
            Which::Some(count, random) => each_of_some(there, count, random, visit),
            Which::Any(count, mut random) => {
                (0..count).for_each(|_| visit(&there.entry(random.below(there.len()))));
            }
        }
    }

    /// All of the reply, from where the collection lies.
    fn write(&self, out: &mut Output, resp3: bool, there: Option<&Collection<'_>>) {
        if self.form == Form::Payload {
            return match there {
                Some(there) => payload::put_all(out, there),
                None => put_null(out, resp3),
            };
        }
        self.put_head(out, resp3, self.count(there.map_or(0, Collection::len)));
        if let Some(there) = there {
            self.each(there, &mut |entry| self.put(out, resp3, (there, entry)));
        }
    }

    /// Entries that are looked for, not walked over.
    fn picks(&self, len: usize) -> usize {
        match self.which {
            Which::All | Which::Places(..) | Which::Ranks { .. } => 0,
            Which::Some(..) | Which::Any(..) => usize::try_from(self.count(len)).unwrap_or(usize::MAX),
        }
    }

    /// Bytes of the reply, at most. Measured is what may be more than `free`.
    fn bytes(&self, there: &Collection<'_>, free: usize) -> usize {
        let (all, kind) = (reply_bytes_max(there), there.kind());
        let few = match self.which {
            Which::All | Which::Some(..) => all <= free,
            Which::Places(start, stop) => {
                return shown_places_bytes_max(there, places(start, stop, there.len()), (free, self.told()));
            }
            Which::Ranks { start, end, .. } => {
                return shown_places_bytes_max(there, start..end, (free, self.told()));
            }
            Which::Any(..) => false,
        };
        if few {
            return all;
        }
        // The head of the last one may be longer while it is written.
        let mut bytes = 2 * HEAD_BYTES_MAX;
        self.each(there, &mut |entry| bytes += copied_bytes_max(entry, (kind, self.told())));
        bytes
    }

    /// A payload of it would have an element that is too long to be copied.
    fn is_refused(&self, there: &Collection<'_>) -> bool {
        self.form == Form::Payload
            && is_too_long(there.longest_apart().min(there.bytes()))
            && there.entries(0..there.len()).any(|entry| has_too_long(&entry))
    }

    /// Bytes of the reply, at most; none if it is made in steps.
    fn short(&self, there: &Collection<'_>, free: usize) -> Option<usize> {
        let large = is_large(there);
        let few = match self.which {
            Which::All => !large,
            Which::Places(..) => self.count(there.len()) < MANY_ELEMENTS as u64,
            // Scores take longer to write.
            Which::Ranks { .. } if self.shown == Shown::Scores => {
                self.count(there.len()) < MANY_ELEMENTS as u64 / 4
            }
            Which::Ranks { .. } => self.count(there.len()) < MANY_ELEMENTS as u64,
            Which::Some(count, _) => !large || count <= PICKS_DIRECT,
            Which::Any(count, _) => count <= PICKS_DIRECT as u64,
        };
        let bytes = few.then(|| self.bytes(there, free))?;
        let may_be_long = large || matches!(self.which, Which::Any(..));
        (!may_be_long || bytes <= PICKED_BYTES_MAX).then_some(bytes)
    }
}

/// What lies apart of an entry is too long to be copied.
fn has_too_long(entry: &Entry<'_>) -> bool {
    entry.apart().is_some_and(|apart| is_too_long(apart.len()))
}

impl Call<'_, '_, '_> {
    /// Replies entries of the collection of a key. `name`: the command's; `args`: those behind the key.
    ///
    /// # Errors
    /// The key has another type of value; there is no room.
    pub fn list(
        &mut self,
        name: &'static str,
        key: &Key<'_>,
        hint: &Hint<'_>,
        args: Args<'_>,
        listed: Listed,
    ) -> Done {
        self.list_chosen(name, key, hint, args, listed, &|_| listed.which)
    }

    /// As [`Call::list`], of the entries that `choose` says of the collection as it is.
    ///
    /// # Errors
    /// As there.
    pub fn list_chosen(
        &mut self,
        name: &'static str,
        key: &Key<'_>,
        hint: &Hint<'_>,
        args: Args<'_>,
        mut listed: Listed,
        choose: Choose<'_>,
    ) -> Done {
        let (resp3, at_once) = (self.client.resp3, self.cx.guard.in_transaction());
        let (free, now) = (free_room(self.out), self.cx.now());
        let looks_only = listed.takes || listed.form == Form::Payload;
        let item =
            if looks_only { self.cx.guard.peek(key).hit() } else { find(self.cx, self.tally, key, hint) };
        let version = item.map_or(0, |item| item.cas());
        let Some(there) = of_type_at(item, listed.kind, now)? else {
            listed.write(self.out, resp3, None);
            return Ok(());
        };
        if there.is_due() {
            if self.take_due(name, key, args)? {
                return Ok(());
            }
            return self.list_chosen(name, key, hint, args, listed, choose);
        }
        let len = there.len();
        listed.begin(&there, choose);
        // Where long elements may be sent from where they lie, no more is copied in one step than in one of several.
        let sends = !at_once && !listed.takes && listed.shows_apart() && is_sent(there.longest_apart());
        let is_little = sends && listed.bytes_beside(&there).is_some();
        if is_little || sends && listed.sends_in_steps(len) {
            if is_little && self.list_pinned(key, listed, choose)? {
                return Ok(());
            }
            return self.list_in_steps(name, key, args, listed, (version, len), choose);
        }
        if at_once && listed.is_refused(&there) {
            return Err(Fail::TOO_LONG_TO_COPY);
        }
        let short = if at_once { Some(listed.bytes(&there, free)) } else { listed.short(&there, free) };
        let short = short.filter(|_| !listed.takes);
        if let Some(bytes) = short {
            if bytes <= self.out.free_bytes() {
                listed.write(self.out, resp3, Some(&there));
            } else {
                // What is written is what was measured last.
                let chosen = Cell::new(listed);
                let measure = |there: &Collection<'_>| {
                    chosen.set(listed.of(there, choose));
                    chosen.get().bytes(there, free)
                };
                self.reply_with_room(key, listed.kind, bytes, measure, |out, resp3, there| {
                    let none = Listed { which: Which::All, ..listed };
                    let listed = if there.is_some() { chosen.get() } else { none };
                    // It may have come while room was made.
                    if there.as_ref().is_some_and(|there| listed.is_refused(there)) {
                        return Err(Fail::TOO_LONG_TO_COPY);
                    }
                    listed.write(out, resp3, there.as_ref());
                    Ok(())
                })?;
            }
            self.spend_on_looks(listed.picks(len));
            return Ok(());
        }
        self.list_in_steps(name, key, args, listed, (version, len), choose)
    }

    /// Replies entries of a collection in one step, long ones from where they lie; false, and nothing done, if that is too much
    /// for one, or connections hold as much as they may.
    fn list_pinned(&mut self, key: &Key<'_>, listed: Listed, choose: Choose<'_>) -> Result<bool, Fail> {
        let (resp3, store) = (self.client.resp3, Arc::clone(self.cx.guard.store()));
        let out = &mut *self.out;
        let Some(there) = peek_as(&mut self.cx.guard, key, listed.kind)? else { return Ok(false) };
        // Others may have written meanwhile.
        let listed = listed.of(&there, choose);
        let fits = |bytes| has_room(out, bytes) && !there.is_due();
        if !listed.bytes_beside(&there).is_some_and(fits) {
            return Ok(false);
        }
        let (mark, mut sent_bytes, mut refused) = (out.mark(), 0, false);
        let picks = listed.picks(there.len());
        listed.put_head(out, resp3, listed.count(there.len()));
        listed.each(&there, &mut |entry| {
            let Some(apart) = entry.apart().filter(|apart| is_sent(apart.len())) else {
                return listed.put(out, resp3, (&there, entry));
            };
            // Behind one that is refused there may be many.
            let pinned = if refused { None } else { there.pin_for_reply(&store, &apart) };
            match pinned {
                Some(pinned) => {
                    sent_bytes += pinned.value_bytes();
                    listed.put_pinned(out, resp3, entry, pinned);
                }
                None => refused = true,
            }
        });
        if refused {
            out.rewind(mark);
        }
        self.spend(pinning_ns(sent_bytes));
        self.spend_on_looks(picks);
        Ok(!refused)
    }

    /// Replies entries of a collection, which had this version and so many of them, in steps.
    fn list_in_steps(
        &mut self,
        name: &'static str,
        key: &Key<'_>,
        args: Args<'_>,
        listed: Listed,
        (version, len): (u64, usize),
        choose: Choose<'_>,
    ) -> Done {
        let Some((row, _)) = self.shared.rows.find(name.as_bytes()) else { return Ok(()) };
        match self.leave(STEPS_BYTES_MIN, name, Some(key.bytes()), args)? {
            Leave::Later => Ok(()),
            Leave::Yes(again, lane) => {
                let mut copying = Copying::new(self, row, key, listed)?;
                copying.begin(self, version, len, false)?;
                copying.again = Some((again, lane));
                self.work(copying)
            }
            Leave::No => {
                let mut copying = Copying::new(self, row, key, listed)?;
                copying.copy_at_once(self, choose)?;
                self.work(copying)
            }
        }
    }
}

/// Entries that are copied, and sent then.
#[derive(Debug)]
struct Copying {
    row: &'static Command,
    listed: Listed,
    name: Name,
    resp3: bool,
    /// What is copied of, and how many entries it has.
    version: u64,
    len: usize,
    next: Upcoming,
    /// The replies of the entries, one behind the other. Long elements are spliced in.
    kept: Output,
    /// The store, where long elements are sent from where they lie.
    store: Option<Arc<Store>>,
    /// The checksum of a payload's head and of these.
    checksum: u64,
    /// Where each of them ends, if it is all entries that are kept, and picked of.
    ends: Option<Vec<usize>>,
    /// None when all are copied.
    again: Option<(Again, Lane)>,
    /// The head of the reply is written.
    headed: bool,
    /// Bytes of `kept` that are sent, if nothing is spliced in; or, if it is picked of, picks that are.
    sent: u64,
    /// The pick that is being sent, and bytes of it that are.
    partly: Option<(usize, usize)>,
    held: Heap,
}

/// Which entry is copied next.
#[derive(Clone, Copy, Debug)]
enum Upcoming {
    /// The one at this place, and those behind it, up to another.
    Places(usize, usize),
    /// The one in front of the second place, and those before it, down to the first.
    Back(usize, usize),
    /// Those that are drawn.
    Drawn(Drawing),
    /// Picks at random: how many are left.
    Picks(u64, Random),
}

/// What a look at the collection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// There is more to copy.
    More,
    /// All is copied.
    All,
    /// It is another one.
    Changed,
}

/// Why an entry is not copied.
#[derive(Debug)]
enum Uncopied {
    /// It needs so much room.
    Needs(usize),
    /// It is too long for that, and connections may not hold it; or it is to be in a payload.
    Refused(Fail),
}

/// Where entries are copied to, and what that takes.
struct Sink<'k> {
    listed: Listed,
    resp3: bool,
    kept: &'k mut Output,
    ends: Option<&'k mut Vec<usize>>,
    ns: u64,
    ns_max: u64,
    /// Room that the next entry needs, if that is more than there is for any, …
    needs: usize,
    /// … or why it is not copied in any.
    refused: Option<Fail>,
    /// The store, where long elements are sent from where they lie.
    store: Option<&'k Arc<Store>>,
    /// What lies apart of the next entry, if it is sent.
    pinned: Option<Pinned>,
}

impl Sink<'_> {
    /// There is room for an entry, and time.
    fn goes_on(&self) -> bool {
        self.ns < self.ns_max && self.kept.free_bytes() >= ELEMENT_BYTES
    }

    /// There is room for this entry, too, of which something may lie apart. That is pinned if it is to be sent.
    fn has_room(&mut self, there: &Collection<'_>, entry: &Entry<'_>) -> bool {
        let Some(apart) = entry.apart() else { return true };
        // With a time, and what separates pairs.
        let mut bytes = shown_bytes_max(entry, (self.listed.kind, self.listed.told())) + 3 * ELEMENT_ROOM;
        if let Some(store) = self.store
            && is_sent(apart.len())
        {
            self.pinned = there.pin_for_reply(store, &apart);
            if self.pinned.is_some() {
                bytes -= apart.len();
            }
        }
        if is_too_long(apart.len()) && self.pinned.is_none() {
            self.refused = match self.store {
                Some(_) => Some(Fail::HELD),
                None if self.listed.form == Form::Payload => Some(Fail::TOO_LONG_TO_COPY),
                None => None,
            };
            if self.refused.is_some() {
                return false;
            }
            bytes = copied_bytes_max(entry, (self.listed.kind, self.listed.told())) + 3 * ELEMENT_ROOM;
        }
        let fits = bytes <= self.kept.free_bytes();
        if !fits {
            self.needs = bytes;
            self.pinned = None;
        }
        fits
    }

    fn put(&mut self, there: &Collection<'_>, entry: &Entry<'_>) {
        let before = self.kept.len();
        let sent_bytes = match self.pinned.take() {
            Some(pinned) => {
                let bytes = pinned.value_bytes();
                self.listed.put_pinned(self.kept, self.resp3, entry, pinned);
                bytes
            }
            None => {
                self.listed.put(self.kept, self.resp3, (there, entry));
                0
            }
        };
        let copied_bytes = self.kept.len() - before - sent_bytes;
        self.ns += ELEMENT_NS + copying_ns(copied_bytes) + pinning_ns(sent_bytes);
        if let Some(ends) = &mut self.ends {
            ends.push(self.kept.len() as usize);
        }
    }
}

impl Upcoming {
    /// Copies entries as long as there is room and time; true when all are.
    fn copy(&mut self, there: &Collection<'_>, sink: &mut Sink<'_>) -> bool {
        let len = there.len();
        match self {
            Upcoming::Places(at, end) => {
                let mut entries = there.entries(*at..*end);
                while sink.goes_on()
                    && let Some(entry) = entries.next()
                    && sink.has_room(there, &entry)
                {
                    sink.put(there, &entry);
                    *at += 1;
                }
                *at == *end
            }
            Upcoming::Back(start, at) => {
                let mut entries = there.entries_back(*start..*at);
                while sink.goes_on()
                    && let Some(entry) = entries.next()
                    && sink.has_room(there, &entry)
                {
                    sink.put(there, &entry);
                    *at -= 1;
                }
                *start == *at
            }
            Upcoming::Drawn(drawing) => {
                let dense = drawing.wanted().saturating_mul(DENSE) >= len - drawing.at();
                let mut entries = dense.then(|| there.entries(drawing.at()..len));
                while sink.goes_on() && drawing.wanted() > 0 {
                    let (place, before) = (drawing.at(), *drawing);
                    let taken = drawing.takes(len);
                    let passed = entries.as_mut().and_then(Iterator::next);
                    sink.ns += if dense { ELEMENT_NS } else { PASS_NS };
                    if taken {
                        sink.ns += if dense { 0 } else { LOOK_NS };
                        let entry = passed.unwrap_or_else(|| there.entry(place));
                        if !sink.has_room(there, &entry) {
                            // It is drawn again.
                            *drawing = before;
                            break;
                        }
                        sink.put(there, &entry);
                    }
                }
                drawing.wanted() == 0
            }
            Upcoming::Picks(left, random) => {
                while sink.goes_on() && *left > 0 {
                    sink.ns += LOOK_NS;
                    let before = *random;
                    let entry = there.entry(random.below(len));
                    if !sink.has_room(there, &entry) {
                        *random = before;
                        break;
                    }
                    sink.put(there, &entry);
                    *left -= 1;
                }
                *left == 0
            }
        }
    }
}

impl Copying {
    fn new(
        call: &mut Call<'_, '_, '_>,
        row: &'static Command,
        key: &Key<'_>,
        listed: Listed,
    ) -> Result<Copying, Fail> {
        let kept = Output::charged(u64::MAX, call.cx.guard.store(), 0);
        let sends = listed.shows_apart() && !call.cx.guard.in_transaction();
        Ok(Copying {
            row,
            listed,
            name: Name::kept(call, key.bytes())?,
            resp3: call.client.resp3,
            version: 0,
            len: 0,
            next: Upcoming::Places(0, 0),
            kept,
            store: sends.then(|| Arc::clone(call.cx.guard.store())),
            checksum: 0,
            ends: None,
            again: None,
            headed: false,
            sent: 0,
            partly: None,
            held: Heap::none(call),
        })
    }

    /// Begins to copy a collection of so many entries; `all`: however few the picks are.
    ///
    /// # Errors
    /// There is no memory to note where they end.
    fn begin(&mut self, call: &mut Call<'_, '_, '_>, version: u64, len: usize, all: bool) -> Done {
        (self.version, self.len) = (version, len);
        self.kept.clear();
        if self.listed.form == Form::Payload {
            self.checksum = payload::begin_checksum((self.listed.kind, self.listed.soonest), len);
        }
        self.ends = None;
        self.next = match self.listed.which {
            Which::Any(count, random) if !all && count <= len as u64 / PICKS_SHARE => {
                Upcoming::Picks(count, random)
            }
            Which::Any(..) => {
                self.held = Heap::take_however_short(call, len * size_of::<usize>())?;
                self.ends = Some(Vec::with_capacity(len));
                Upcoming::Places(0, len)
            }
            Which::Places(start, stop) => {
                let Range { start, end } = places(start, stop, len);
                Upcoming::Places(start, end)
            }
            Which::Ranks { start, end, back: false } => Upcoming::Places(start, end),
            Which::Ranks { start, end, back: true } => Upcoming::Back(start, end),
            Which::Some(count, random) if count < len => Upcoming::Drawn(Drawing::new(count, random)),
            Which::All | Which::Some(..) => Upcoming::Places(0, len),
        };
        Ok(())
    }

    /// Copies entries of what is there until `ns_max` is spent or there is no more room; what was spent is added to `ns`.
    ///
    /// # Errors
    /// The next one needs more room, or is not copied.
    fn copy(&mut self, there: &Collection<'_>, ns: &mut u64, ns_max: u64) -> Result<bool, Uncopied> {
        let Copying { listed, resp3, kept, store, ends, .. } = self;
        let before = kept.len();
        let mut sink = Sink {
            listed: *listed,
            resp3: *resp3,
            kept,
            // What is picked of lies in one run.
            store: store.as_ref().filter(|_| ends.is_none()),
            ends: ends.as_mut(),
            ns: *ns,
            ns_max,
            needs: 0,
            refused: None,
            pinned: None,
        };
        let done = self.next.copy(there, &mut sink);
        let (needs, refused) = (sink.needs, sink.refused);
        *ns = sink.ns;
        if self.listed.form == Form::Payload {
            let copied = &self.kept.contiguous().unwrap_or_default()[before as usize..];
            self.checksum = crc64_on(self.checksum, copied);
            *ns += checking_ns(copied.len() as u64);
        }
        match refused {
            Some(fail) => Err(Uncopied::Refused(fail)),
            None if needs > 0 => Err(Uncopied::Needs(needs)),
            None => Ok(done),
        }
    }

    /// Copies what a step is for.
    fn copy_some(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Looked, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let mut longest = ELEMENT_BYTES;
        let looked = loop {
            call.make_room_in(&mut self.kept, PIECE_BYTES + longest)?;
            // Items may have given way to that.
            let swapped = self.name.is_swapped(call);
            let key = self.name.key(call);
            let item = call.cx.guard.peek(&key).hit().filter(|item| !swapped && item.cas() == self.version);
            let Some(there) = of_type(item, self.listed.kind)? else { break Looked::Changed };
            let seen = item.map(|item| item.seen());
            match self.copy(&there, &mut ns, ns_max) {
                Ok(true) => break if self.takes(call, seen) { Looked::All } else { Looked::Changed },
                Ok(false) => longest = ELEMENT_BYTES,
                Err(Uncopied::Needs(needs)) => longest = needs.max(ELEMENT_BYTES),
                Err(Uncopied::Refused(fail)) => return Err(fail),
            }
            if ns >= ns_max {
                break Looked::More;
            }
        };
        call.spend(ns);
        Ok(looked)
    }

    /// Copies all in one step.
    fn copy_at_once(&mut self, call: &mut Call<'_, '_, '_>, choose: Choose<'_>) -> Done {
        loop {
            let listed = self.listed;
            let needs = |there: &Collection<'_>| {
                let listed = listed.of(there, choose);
                let (mut ranks, mut bytes) = (0..0, reply_bytes_max(there));
                match listed.which {
                    Which::Places(..) => bytes = listed.bytes(there, 0),
                    Which::Ranks { start, end, .. } => {
                        (ranks, bytes) = (start..end, listed.bytes(there, 0));
                    }
                    Which::All | Which::Some(..) | Which::Any(..) => {
                        if listed.kind == Type::Hash
                            && listed.told() == Shown::Names
                            && there.longest_apart() > 0
                        {
                            // Values, which may be most of it, are not shown.
                            bytes = shown_places_bytes_max(there, 0..there.len(), (0, Shown::Names));
                        } else if is_too_long(there.longest_apart()) {
                            // None of these is copied.
                            bytes = shown_places_bytes_max(there, 0..there.len(), (0, listed.told()));
                        }
                    }
                }
                (bytes + ELEMENT_BYTES, (there.len(), ranks, listed.soonest), listed.which)
            };
            let there = of_type(self.item(call), self.listed.kind)?;
            let (bytes, wanted, which) = there.as_ref().map_or((0, (0, 0..0, 0), Which::All), needs);
            (self.listed.which, self.listed.soonest) = (which, wanted.2);
            self.begin(call, 0, wanted.0, true)?;
            call.make_room_in(&mut self.kept, bytes)?;
            // Items may have given way to that, and others written meanwhile.
            let item = self.item(call);
            let there = of_type(item, self.listed.kind)?;
            let now = there.as_ref().map_or((0, (0, 0..0, 0), Which::All), needs);
            if now.1 != wanted || now.0 > bytes {
                continue;
            }
            let (mut ns, seen) = (0, item.map(|item| item.seen()));
            if let Some(there) = there {
                loop {
                    match self.copy(&there, &mut ns, u64::MAX) {
                        Ok(true) => break,
                        Ok(false) => _ = self.kept.room(PIECE_BYTES),
                        Err(Uncopied::Needs(needs)) => _ = self.kept.room(needs.max(PIECE_BYTES)),
                        Err(Uncopied::Refused(fail)) => return Err(fail),
                    }
                }
            }
            call.spend(ns);
            if self.takes(call, seen) {
                return Ok(());
            }
        }
    }

    /// The item as it is now.
    fn item<'r>(&self, call: &'r mut Call<'_, '_, '_>) -> Option<Item<'r>> {
        let key = self.name.key(call);
        call.cx.guard.peek(&key).hit()
    }

    /// Removes the item that was seen, if it is to be; false if it is another one by now.
    fn takes(&self, call: &mut Call<'_, '_, '_>, seen: Option<Seen>) -> bool {
        let (true, Some(seen)) = (self.listed.takes, seen) else { return true };
        let key = self.name.key(call);
        let mut gone = true;
        // It fails at nothing.
        let _ = call.tell_around_key(self.row, key.bytes(), |call| {
            gone = call.cx.guard.delete(&key, Expect::Unchanged(seen)).is_ok();
            Ok(())
        });
        gone
    }

    /// Sends what there is room for of the reply.
    fn send(&mut self, call: &mut Call<'_, '_, '_>) -> Step {
        let count = self.listed.count(self.len);
        let headed = std::mem::replace(&mut self.headed, true);
        if self.listed.form == Form::Payload {
            if self.len == 0 {
                put_null(call.out, self.resp3);
                return Step::Done;
            }
            if !headed {
                payload::put_head(
                    call.out,
                    (self.listed.kind, self.listed.soonest),
                    self.len,
                    self.kept.len(),
                );
            }
            let step = send(call, &self.kept, &mut self.sent);
            if step == Step::Done {
                payload::put_end(call.out, self.listed.soonest, self.checksum);
            }
            return step;
        }
        if !headed {
            self.listed.put_head(call.out, self.resp3, count);
        }
        if !self.kept.is_plain() {
            return hand_on(call, &mut self.kept);
        }
        let (Which::Any(_, random), Some(ends)) = (&mut self.listed.which, &self.ends) else {
            return send(call, &self.kept, &mut self.sent);
        };
        let kept = self.kept.contiguous().unwrap_or_default();
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let step = loop {
            if self.sent == count {
                break Step::Done;
            }
            if call.out.is_full() {
                break Step::Full;
            }
            if ns >= ns_max {
                break Step::More;
            }
            let (i, from) = self.partly.take().unwrap_or_else(|| (random.below(ends.len()), 0));
            let all = &kept[i.checked_sub(1).map_or(0, |before| ends[before])..ends[i]];
            let piece = &all[from..all.len().min(from + SENT_BYTES.max(ELEMENT_BYTES))];
            call.out.put(piece);
            ns += ELEMENT_NS + copying_ns(piece.len() as u64);
            if from + piece.len() < all.len() {
                self.partly = Some((i, from + piece.len()));
            } else {
                self.sent += 1;
            }
        };
        call.spend(ns);
        step
    }
}

/// Sends replies that are kept, of which so many bytes are sent: as many as there is room for.
pub(crate) fn send(call: &mut Call<'_, '_, '_>, kept: &Output, sent: &mut u64) -> Step {
    let (ns_max, mut ns) = (call.step_ns(), 0);
    let mut rest = &kept.contiguous().unwrap_or_default()[*sent as usize..];
    let step = loop {
        if rest.is_empty() {
            break Step::Done;
        }
        if call.out.is_full() {
            break Step::Full;
        }
        if ns >= ns_max {
            break Step::More;
        }
        let piece;
        (piece, rest) = rest.split_at(rest.len().min(SENT_BYTES));
        call.out.put(piece);
        *sent += piece.len() as u64;
        ns += copying_ns(piece.len() as u64);
    };
    call.spend(ns);
    step
}

/// As [`send`], of replies that values are spliced into, which leave `kept` as they are sent.
fn hand_on(call: &mut Call<'_, '_, '_>, kept: &mut Output) -> Step {
    let (ns_max, mut ns) = (call.step_ns(), 0);
    let step = loop {
        if kept.is_empty() {
            break Step::Done;
        }
        if call.out.is_full() {
            break Step::Full;
        }
        if ns >= ns_max {
            break Step::More;
        }
        ns += copying_ns(kept.hand_on(call.out, SENT_BYTES) as u64);
    };
    call.spend(ns);
    step
}

/// As [`send`], of replies that values may be spliced into. Once the last value has left `kept`, what is behind it is sent as
/// any.
pub(crate) fn send_or_hand_on(call: &mut Call<'_, '_, '_>, kept: &mut Output, sent: &mut u64) -> Step {
    if kept.is_plain() { send(call, kept, sent) } else { hand_on(call, kept) }
}

/// As [`send`]; in a transaction, in which the client takes nothing meanwhile, all of it at once.
///
/// # Errors
/// In a transaction: connections hold as much as they may.
pub(crate) fn send_whole(call: &mut Call<'_, '_, '_>, kept: &Output, sent: &mut u64) -> Result<Step, Fail> {
    if !call.cx.guard.in_transaction() {
        return Ok(send(call, kept, sent));
    }
    let rest = &kept.contiguous().unwrap_or_default()[*sent as usize..];
    for piece in rest.chunks(SENT_BYTES) {
        if !call.may_reply_more() {
            return Err(Fail::HELD);
        }
        call.out.put(piece);
        *sent += piece.len() as u64;
    }
    call.spend(copying_ns(rest.len() as u64));
    Ok(Step::Done)
}

impl Job for Copying {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if self.again.is_some() {
            match self.copy_some(call)? {
                Looked::More => return Ok(Step::More),
                Looked::All => self.again = None,
                Looked::Changed => {
                    if let Some((again, lane)) = self.again.take() {
                        drop(lane);
                        again.run(call)?;
                    }
                    return Ok(Step::Done);
                }
            }
        }
        Ok(self.send(call))
    }

    fn held_bytes(&self) -> u64 {
        self.held.bytes() + self.kept.capacity_bytes() as u64 + self.kept.pinned_bytes()
    }

    fn only_reads(&self) -> bool {
        !self.listed.takes
    }

    fn asks_itself(&self) -> bool {
        self.again.is_none()
    }

    fn only_replies(&self) -> bool {
        self.again.is_none()
    }

    fn again(&self) -> Option<&Again> {
        self.again.as_ref().map(|(again, _)| again)
    }
}
