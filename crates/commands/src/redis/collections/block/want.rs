//! How what is wanted of a key is given, and how it is put back: elements of a list, an element for another list, members of a
//! sorted set, or entries of a stream.

use std::sync::Arc;

use larder_store::{Collection, End, Entry, Guard, Key, Removed, ScoreRule, Store, Type};

use crate::core::events::Change;
use crate::core::output::Output;
use crate::redis::call::REPLY_BYTES_FREE;
use crate::redis::collections::sending::ToSend;
use crate::redis::collections::sorted;
use crate::redis::collections::stream;
use crate::redis::collections::stream::reading;
use crate::redis::collections::taking::Form;
use crate::redis::collections::{Shown, list};
use crate::redis::copied::Copied;
use crate::redis::fail::Fail;
use crate::redis::held::Held;
use crate::redis::reply::{put_array, put_bulk};
use crate::redis::waiters::{Portion, Taken, Want, Whence};

impl Want {
    /// Whether a stream, or what has come in its place, has something for it.
    pub fn ready(&self, key: &[u8], there: Result<Option<&Collection<'_>>, Fail>) -> bool {
        match self {
            Want::Entries { after, .. } => there.is_ok_and(|there| {
                let mut asked = after.iter().filter(|(name, _)| **name == *key);
                asked.any(|(_, after)| reading::entries_ready(there, *after))
            }),
            Want::Delivery { group, .. } => reading::delivery_ready(there, group),
            Want::Elements { .. } | Want::Members { .. } | Want::Move { .. } => false,
        }
    }

    /// Replies what there is in all streams, which are these keys and are held; false if there is nothing. `room`: bytes
    /// that the reply may take.
    ///
    /// # Errors
    /// Nothing is delivered then, nor replied.
    pub fn give_streams(
        &self,
        guard: &mut Guard<'_>,
        (db, keys): (u8, &[Box<[u8]>]),
        resp3: bool,
        (out, room): (&mut Output, u64),
    ) -> Result<bool, Fail> {
        match self {
            Want::Entries { after, most } => {
                reading::give_entries(guard, db, after, *most, resp3, (out, room))
            }
            Want::Delivery { group, consumer, most, pends } => {
                let who = (&**group, &**consumer);
                reading::give_delivery(guard, (db, keys), who, (*most, *pends), resp3, (out, room))
            }
            Want::Elements { .. } | Want::Members { .. } | Want::Move { .. } => Ok(false),
        }
    }

    /// Its group may go, and no write wakes it then: it has to look itself.
    pub fn is_to_look(&self) -> bool {
        match self {
            Want::Delivery { .. } => true,
            Want::Elements { .. } | Want::Members { .. } | Want::Move { .. } | Want::Entries { .. } => false,
        }
    }

    /// How the change of the key is called, and (1) that of the target.
    pub fn change(&self, nth: usize) -> Change {
        match self {
            Want::Move { to, .. } if nth > 0 => list::pushed(*to),
            Want::Move { from: end, .. } | Want::Elements { end, .. } => list::popped(*end),
            Want::Members { which, .. } => sorted::popped(*which),
            // Streams are read without an event.
            Want::Entries { .. } | Want::Delivery { .. } => stream::change("xreadgroup"),
        }
    }

    /// How elements are taken and replied, and how many of them, for a command that says how many it wants.
    pub fn counted(&self, resp3: bool) -> Option<(Form, usize)> {
        let (kind, end, count) = match self {
            Want::Elements { end, count } => (Type::List, *end, (*count)?),
            Want::Members { which, count } => (Type::SortedSet, which.end(), (*count)?),
            Want::Move { .. } | Want::Entries { .. } | Want::Delivery { .. } => return None,
        };
        Some((Form { kind, end, resp3, named: true }, count))
    }

    /// From which end of a collection it takes.
    pub fn end(&self) -> End {
        match self {
            Want::Elements { end, .. } | Want::Move { from: end, .. } => *end,
            Want::Members { which, .. } => which.end(),
            Want::Entries { .. } | Want::Delivery { .. } => End::Front,
        }
    }

    /// How much of a collection, which is no stream, it is given at once, in so much time.
    pub fn portion(&self, there: &Collection<'_>, until_ns: u64) -> Portion {
        let (free, end) = (REPLY_BYTES_FREE as usize, self.end());
        match self.counted(false) {
            Some((_, count)) => Portion::of_step(there, end, count, (free, until_ns)),
            None => Portion::whole(there, end, 1, free),
        }
    }

    /// Pins what is to be sent from where it lies of a portion of a key, which is held. Of the first of several portions nothing
    /// is.
    ///
    /// # Errors
    /// The key has another type of value; or connections may not hold what is too long to be copied.
    #[cold]
    pub fn pin(&self, guard: &mut Guard<'_>, key: &Key<'_>, portion: &Portion) -> Result<ToSend, Fail> {
        match self {
            Want::Elements { .. } | Want::Members { .. } | Want::Move { .. } if portion.left == 0 => {
                ToSend::of(guard, key, (self.kind(), self.end()), portion.count)
            }
            Want::Elements { .. }
            | Want::Members { .. }
            | Want::Move { .. }
            | Want::Entries { .. }
            | Want::Delivery { .. } => Ok(ToSend::default()),
        }
    }

    /// How many bytes are held for each byte that is taken and not pinned, beside the reply, until the client has that:
    /// elements are copied, and where each ends is kept, in tables that grow. One alone is copied to where there is room for it.
    pub fn copies(&self) -> u64 {
        match self {
            Want::Elements { count: None, .. } | Want::Move { .. } => 1,
            Want::Elements { .. } | Want::Members { .. } | Want::Entries { .. } | Want::Delivery { .. } => 3,
        }
    }

    /// Takes the portion out of the key, which is no stream and is held with the target, and writes the reply, or what comes
    /// behind its head if there is more to be taken; false if there is nothing. What was pinned before is sent from where it
    /// lies. What was taken is noted in `taken`, too, unless it has gone to the target.
    ///
    /// # Errors
    /// Nothing is taken then, nor replied.
    pub fn give(
        &self,
        guard: &mut Guard<'_>,
        (key, target): (&Key<'_>, Option<&Key<'_>>),
        (portion, mut to_send): (&Portion, ToSend),
        (out, resp3): (&mut Output, bool),
        taken: Option<&mut Taken>,
    ) -> Result<bool, Fail> {
        let counted = self.counted(resp3);
        match self {
            Want::Elements { end, .. } => {
                let Some(popped) = guard.list_pop(key, *end, portion.count)? else { return Ok(false) };
                match counted {
                    None => {
                        put_array(out, 2);
                        put_bulk(out, key.bytes());
                        let (list, shown) = (popped.collection(), (Shown::Names, resp3));
                        popped.entries().for_each(|entry| to_send.put(out, shown, (list, &entry)));
                    }
                    Some((form, _)) => put_portion(out, form, key, portion, (&popped, &mut to_send)),
                }
                if let Some(taken) = taken {
                    taken.whence = Whence::List(*end);
                    let list = popped.collection();
                    popped.entries().for_each(|entry| taken.note(list, &entry, &to_send));
                }
            }
            Want::Members { which, .. } => {
                let popped = sorted::take(guard, key, *which, portion.count)?;
                let Some(popped) = popped else { return Ok(false) };
                match counted {
                    None => {
                        put_array(out, 3);
                        put_bulk(out, key.bytes());
                        sorted::each_popped(Some(&popped), *which, &mut |entry| {
                            to_send.put(out, (Shown::Scores, resp3), entry);
                        });
                    }
                    Some((form, _)) => put_portion(out, form, key, portion, (&popped, &mut to_send)),
                }
                if let Some(taken) = taken {
                    taken.whence = Whence::SortedSet;
                    for entry in popped.entries() {
                        taken.note(popped.collection(), &entry, &to_send);
                        taken.scores.push(entry.score);
                    }
                }
            }
            Want::Move { from, to, .. } => {
                let target = target.unwrap_or(key);
                return match list::carry(guard, out, (key, *from), (target, *to), &mut to_send)? {
                    list::Carried::Element => Ok(true),
                    list::Carried::Nothing => Ok(false),
                    // Room was made for what is there.
                    list::Carried::Needs(_) => Err(Fail::HELD),
                };
            }
            // [`Want::give_streams`] gives what streams have.
            Want::Entries { .. } | Want::Delivery { .. } => return Ok(false),
        }
        Ok(true)
    }
}

/// Replies what was taken of a key; without a head, if there is more to be taken.
fn put_portion(
    out: &mut Output,
    form: Form,
    key: &Key<'_>,
    portion: &Portion,
    (popped, to_send): (&Removed<'_>, &mut ToSend),
) {
    if portion.left == 0 {
        form.put_head(out, key.bytes(), popped.len());
    }
    form.put_all(out, popped, to_send);
}

impl Taken {
    /// Nothing yet; what comes is held.
    pub fn within(held: Held) -> Taken {
        Taken { _held: Some(held), ..Taken::default() }
    }

    /// Notes an entry that was taken. What is sent of it from where it lies is not copied.
    fn note(&mut self, there: &Collection<'_>, entry: &Entry<'_>, to_send: &ToSend) {
        match to_send.pin_again(there, entry) {
            Some(pinned) => {
                self.pinned.push((self.names.len(), pinned));
                self.names.push(&[]);
            }
            None => self.names.push_element_of(there, &entry.name),
        }
    }

    /// Copies what is pinned, so that what it has goes: where it is put back there may be no other memory.
    fn unpin(&mut self, store: &Arc<Store>) {
        if self.pinned.is_empty() {
            return;
        }
        let pinned_bytes: u64 = self.pinned.iter().map(|(_, pinned)| pinned.value_bytes()).sum();
        let mut held = Held::new(&Arc::default(), store);
        let all_bytes = self.names.bytes() + pinned_bytes as usize;
        // It was held already, by its pins.
        held.raise(all_bytes as u64, u64::MAX);
        let (mut copied, mut all) = (Copied::default(), self.pinned.iter().peekable());
        for (i, name) in self.names.iter().enumerate() {
            match all.next_if(|(place, _)| *place == i) {
                Some((_, pinned)) => copied.push_made(|bytes| {
                    // Once for all of them.
                    bytes.reserve_exact(all_bytes - bytes.len());
                    pinned.pieces(0).for_each(|piece| bytes.extend_from_slice(piece));
                }),
                None => copied.push(name),
            }
        }
        self.pinned.clear();
        (self.names, self._held) = (copied, Some(held));
    }

    /// Bytes of the longest.
    pub fn longest(&self) -> usize {
        let pinned = self.pinned.iter().map(|(_, pinned)| pinned.value_bytes() as usize);
        self.names.iter().map(<[u8]>::len).chain(pinned).max().unwrap_or(0)
    }

    /// There is nothing to put back.
    pub fn is_empty(&self) -> bool {
        self.whence == Whence::Nowhere
    }

    /// The event of its coming back.
    pub fn change(&self) -> Change {
        match self.whence {
            Whence::List(end) => list::pushed(end),
            Whence::Nowhere | Whence::SortedSet => sorted::change("zadd"),
        }
    }

    /// Puts it back where it was. A member that has come again meanwhile has its new score.
    ///
    /// # Errors
    /// Nothing is put back then.
    pub fn put_back(&mut self, guard: &mut Guard<'_>, key: &Key<'_>) -> Result<(), Fail> {
        self.unpin(guard.store());
        let all = &self.names;
        match self.whence {
            Whence::Nowhere => {}
            Whence::List(end) => {
                let last = all.len().saturating_sub(1);
                // The first of them is the last to come to the front.
                let place = |i| if end == End::Front { last - i } else { i };
                let names = (0..all.len()).map(|i| all.at(place(i)));
                guard.list_push(key, end, names, false)?;
            }
            Whence::SortedSet => {
                let rule = ScoreRule { absent: true, ..ScoreRule::default() };
                guard.sorted_add(key, rule, self.scores.iter().copied().zip(all.iter()))?;
            }
        }
        Ok(())
    }
}
