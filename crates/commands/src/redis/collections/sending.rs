//! Long elements that are sent from where they lie.
//!
//! ```text
//! in a leaf, or of up to 16 KiB ─▶ copied into the reply, which has room for it
//! longer, and it lies apart     ─▶ its parts are pinned, and spliced into the reply       as a large string
//!             in a transaction  ─▶ copied
//! of more than 4 MiB            ─▶ the same, and never copied
//!             in a transaction  ─▶ an error stands in its place, and it is not popped
//! ```
//!
//! What is popped is pinned before anything else is done to the store, so that its parts are still there: by LPOP and RPOP behind
//! the pop, and where the key is held (SPOP, LMPOP, BLPOP, HGETDEL and others) before it ([`ToSend`]). Nothing is popped that may
//! not be pinned and has no room.
//!
//! What is pinned counts as what connections hold, and needs no room in the reply. Where connections hold their share it is
//! copied, if there is room for it, and it is not too long for that ([`is_too_long`]). Else one that is alone is refused, and among
//! others an error stands in its place.
//!
//! In a transaction all replies are made before the first is sent, and EXEC makes room for them before it takes its keys: a pin
//! that is refused would come too late there.

use std::collections::VecDeque;
use std::sync::Arc;

use larder_store::{Collection, Element, End, Entry, Guard, Key, LongText, Pinned, Store, Type};

use super::list::end_places;
use super::{Call, ELEMENT_ROOM, Shown, copied_bytes, is_too_long, peek_as, put_element, put_element_of};
use crate::core::output::Output;
use crate::core::work::copying_ns;
use crate::redis::call::has_room;
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{COPIED_BYTES_MAX, put_double, put_fail, put_head, put_null};

/// Work to pin a part of an element, of which nothing is in the processor's caches, and to drop its pin: three lines of
/// memory.
const PIN_NS: u64 = 300;
/// Bytes that a part has, about.
const PART_BYTES: u64 = 16 << 10;

/// An element of so many bytes that lies apart is long enough to be sent from there.
pub(super) fn is_sent(bytes: usize) -> bool {
    bytes > COPIED_BYTES_MAX
}

/// Work to pin so many bytes.
pub(super) fn pinning_ns(bytes: u64) -> u64 {
    bytes.div_ceil(PART_BYTES) * PIN_NS
}

/// Writes an element that is sent from where it lies, as a bulk string.
fn put_pinned(out: &mut Output, pinned: Pinned) {
    put_head(out, b'$', pinned.value_bytes());
    out.splice(pinned);
    out.put(b"\r\n");
}

/// Writes an element that was popped, as a bulk string: one that is too long to be copied is sent from where it lies, whatever
/// connections hold, since it is nowhere else.
pub(super) fn put_gone(out: &mut Output, there: &Collection<'_>, element: &Element<'_>, store: &Arc<Store>) {
    match element {
        Element::Apart(apart) if is_too_long(apart.len()) => put_pinned(out, there.pin(store, apart)),
        element => put_element_of(out, there, element),
    }
}

/// Some of so many elements at an end of a collection are too long to be copied.
pub(super) fn has_too_long(there: &Collection<'_>, end: End, count: usize) -> bool {
    is_too_long(there.longest_apart())
        && there.entries(end_places(there, end, count)).any(|entry| is_too_long(entry.name.len()))
}

/// Writes an element of a collection, or a field's value, as a bulk string. With the collection's store a long one is sent from
/// where it lies; if that is refused, and it is not copied, an error stands in its place.
pub(super) fn put_or_send(
    out: &mut Output,
    there: &Collection<'_>,
    element: &Element<'_>,
    store: Option<&Arc<Store>>,
) {
    match (element, store) {
        (Element::Apart(apart), Some(store)) if is_sent(apart.len()) => {
            match there.pin_for_reply(store, apart) {
                Some(pinned) => put_pinned(out, pinned),
                None if !is_too_long(apart.len()) && has_room(out, apart.len() + ELEMENT_ROOM) => {
                    put_element_of(out, there, element);
                }
                None => put_fail(out, &Fail::HELD),
            }
        }
        (element, _) => put_element_of(out, there, element),
    }
}

impl Shown {
    /// As [`Shown::put`], of an entry of which something lies apart that is shown: it is sent from there.
    pub(super) fn put_pinned(self, out: &mut Output, resp3: bool, entry: &Entry<'_>, pinned: Pinned) {
        match self {
            Shown::Names | Shown::Values => put_pinned(out, pinned),
            // Of a field it is the value that lies apart.
            Shown::Fields => {
                put_element(out, &entry.name);
                put_pinned(out, pinned);
            }
            Shown::Scores => {
                put_pinned(out, pinned);
                put_double(out, resp3, entry.score);
            }
        }
    }
}

/// What is sent from where it lies of elements that are about to be taken out or changed: it is pinned, in the order of the
/// reply.
#[derive(Debug, Default)]
pub(crate) struct ToSend {
    /// The store, if something is pinned.
    store: Option<Arc<Store>>,
    pinned: VecDeque<Pinned>,
    bytes: usize,
    /// Bytes of them that are read all the same: members of sorted sets are hashed and compared when they are taken out.
    read_bytes: usize,
}

impl ToSend {
    /// Pins the long ones of so many elements at an end of a collection, which is held. Nothing is pinned where connections may
    /// not hold one of them: all are copied then.
    ///
    /// # Errors
    /// The key has another type of value; or connections may not hold one of them, and one is too long to be copied.
    #[cold]
    pub fn of(
        guard: &mut Guard<'_>,
        key: &Key<'_>,
        (kind, end): (Type, End),
        count: usize,
    ) -> Result<ToSend, Fail> {
        let store = Arc::clone(guard.store());
        let Some(there) = peek_as(guard, key, kind)? else { return Ok(ToSend::default()) };
        let places = end_places(&there, end, count);
        let to_send = match end {
            End::Front => ToSend::of_entries(store, &there, there.entries(places)),
            End::Back => ToSend::of_entries(store, &there, there.entries_back(places)),
        }?;
        let read_bytes = if kind == Type::SortedSet { to_send.bytes } else { 0 };
        Ok(ToSend { read_bytes, ..to_send })
    }

    /// The same of the value of a field.
    ///
    /// # Errors
    /// As there.
    #[cold]
    pub fn of_field(guard: &mut Guard<'_>, key: &Key<'_>, field: &[u8]) -> Result<ToSend, Fail> {
        let store = Arc::clone(guard.store());
        let Some(hash) = peek_as(guard, key, Type::Hash)? else { return Ok(ToSend::default()) };
        let entry = hash.find(field).map(|i| hash.entry(i));
        ToSend::of_entries(store, &hash, entry.into_iter())
    }

    fn of_entries<'g>(
        store: Arc<Store>,
        there: &Collection<'g>,
        entries: impl Iterator<Item = Entry<'g>>,
    ) -> Result<ToSend, Fail> {
        ToSend::of_each(store, there, |visit| entries.for_each(|entry| visit(&entry)))
    }

    /// The same of entries of a collection that `each` visits.
    ///
    /// # Errors
    /// Connections may not hold one of them, and one is too long to be copied.
    #[cold]
    pub fn of_each<'g>(
        store: Arc<Store>,
        there: &Collection<'g>,
        each: impl FnOnce(&mut dyn FnMut(&Entry<'g>)),
    ) -> Result<ToSend, Fail> {
        let (mut to_send, mut refused, mut longest) = (ToSend::default(), false, 0_usize);
        each(&mut |entry| {
            let Some(apart) = long_of(entry) else { return };
            longest = longest.max(apart.len());
            // Behind one that is refused there may be many.
            let pinned = if refused { None } else { there.pin_for_reply(&store, &apart) };
            match pinned {
                Some(pinned) => {
                    to_send.bytes += apart.len();
                    to_send.pinned.push_back(pinned);
                }
                None => refused = true,
            }
        });
        if refused {
            return if is_too_long(longest) { Err(Fail::HELD) } else { Ok(ToSend::default()) };
        }
        to_send.store = Some(store);
        Ok(to_send)
    }

    /// An entry of which something is sent, if any is.
    pub fn sends(&self, entry: &Entry<'_>) -> bool {
        self.bytes > 0 && long_of(entry).is_some()
    }

    /// Bytes of what is pinned.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Work to pin that, to drop the pins, and to read what has to be read.
    pub fn ns(&self) -> u64 {
        pinning_ns(self.bytes as u64) + copying_ns(self.read_bytes as u64)
    }

    /// Writes the next of the elements.
    pub fn put(
        &mut self,
        out: &mut Output,
        (shown, resp3): (Shown, bool),
        (there, entry): (&Collection<'_>, &Entry<'_>),
    ) {
        match long_of(entry).and_then(|_| self.pinned.pop_front()) {
            Some(pinned) => shown.put_pinned(out, resp3, entry, pinned),
            None => shown.put(out, resp3, (there, entry)),
        }
    }

    /// A further pin of an element that was taken out, if it is one of those that are sent.
    pub fn pin_again(&self, there: &Collection<'_>, entry: &Entry<'_>) -> Option<Pinned> {
        let apart = long_of(entry)?;
        self.store.as_ref().map(|store| there.pin(store, &apart))
    }
}

/// What of an entry lies apart and is long enough to be sent from there.
fn long_of<'g>(entry: &Entry<'g>) -> Option<LongText<'g>> {
    entry.apart().filter(|apart| is_sent(apart.len()))
}

impl Call<'_, '_, '_> {
    /// Replies the element that `find` says of the collection of a key: it lies apart, and has so many bytes as the collection
    /// is now. Null if it is not there by then.
    ///
    /// # Errors
    /// The key has another type of value; connections hold as much as they may, or there is no room for the reply.
    #[cold]
    pub(super) fn reply_apart(
        &mut self,
        key: &Key<'_>,
        kind: Type,
        bytes: usize,
        find: impl for<'r> Fn(&Collection<'r>) -> Option<Element<'r>>,
    ) -> Done {
        if is_sent(bytes) && !self.cx.guard.in_transaction() {
            let store = Arc::clone(self.cx.guard.store());
            let there = peek_as(&mut self.cx.guard, key, kind)?;
            // Others may have written meanwhile.
            if let Some(there) = &there
                && let Some(Element::Apart(apart)) = find(there)
                && is_sent(apart.len())
            {
                match there.pin_for_reply(&store, &apart) {
                    Some(pinned) => {
                        let bytes = pinned.value_bytes();
                        put_pinned(self.out, pinned);
                        self.spend(pinning_ns(bytes));
                        return Ok(());
                    }
                    None if is_too_long(apart.len()) => return Err(Fail::HELD),
                    None => {}
                }
            }
        } else if is_too_long(bytes) {
            return Err(Fail::TOO_LONG_TO_COPY);
        }
        let bytes = copied_bytes(bytes);
        let room = |element: Element<'_>| copied_bytes(element.len()) + ELEMENT_ROOM;
        let measure = |there: &Collection<'_>| find(there).map_or(0, room);
        self.reply_with_room(key, kind, bytes + ELEMENT_ROOM, measure, |out, resp3, there| {
            match there.as_ref().and_then(|there| Some((there, find(there)?))) {
                Some((there, element)) => put_element_of(out, there, &element),
                None => put_null(out, resp3),
            }
            Ok(())
        })?;
        self.spend_on_bytes(bytes);
        Ok(())
    }

    /// Takes the element at an end of a list, which lies apart and has so many bytes as the list is now, and replies it from
    /// where it lies, out of reach of all others. False, and nothing done, if connections hold their share.
    ///
    /// # Errors
    /// The key has another type of value, or there is no memory to take it out.
    #[cold]
    pub(super) fn pop_apart(&mut self, key: &Key<'_>, end: End, mut bytes: usize) -> Result<bool, Fail> {
        let store = Arc::clone(self.cx.guard.store());
        loop {
            if !store.may_pin(bytes as u64) {
                return Ok(false);
            }
            let mut sent_bytes = 0;
            match self.cx.guard.list_pop_within(key, end, bytes)? {
                Ok(Some(popped)) => {
                    let list = popped.collection();
                    popped.entries().for_each(|entry| match &entry.name {
                        Element::Apart(apart) if is_sent(apart.len()) => {
                            put_pinned(self.out, list.pin(&store, apart));
                            sent_bytes = apart.len() as u64;
                        }
                        // Others have taken that one meanwhile.
                        element => put_element_of(self.out, list, element),
                    });
                }
                Ok(None) => put_null(self.out, self.client.resp3),
                Err(longer) => {
                    bytes = longer;
                    continue;
                }
            }
            self.spend(pinning_ns(sent_bytes));
            return Ok(true);
        }
    }
}
