//! A run of plain requests: the most usual pipeline, in slots that hold nothing else, through
//! [`crate::core::stages`]. Whatever else comes goes through the batch; the answers are the same.

use larder_protocol::reply::SMALL_ROOM;
use larder_protocol::resp::{Ask, Plain, PlainRequests, write_head, write_small_bulk};
use larder_store::{Guard, Hint, Key};

use super::Conversation;
use super::turn::{DECR, GET, INCR, SET, Turn};
use crate::core::progress::Next;
use crate::core::stages::{Ahead, GROUP, Stages};
use crate::core::tally::Tally;
use crate::core::usual::{Sum, add};
use crate::redis::reply::null;
use crate::redis::strings;

/// After a run of fewer keys the rest of the input goes the general way.
const KEYS_MIN: usize = 16;

/// One plain request on its way.
struct Slot<'a, 'w> {
    key: Key<'a>,
    hint: Hint<'w>,
    ask: Ask<'a>,
    /// Where in the input it begins.
    at: usize,
}

impl<'w> Ahead<'w> for Slot<'_, 'w> {
    #[inline(always)]
    fn ahead(&mut self) -> (&Key<'_>, &mut Hint<'w>) {
        (&self.key, &mut self.hint)
    }
    #[inline(always)]
    fn stores(&self) -> bool {
        matches!(self.ask, Ask::Set(_))
    }
}

impl Conversation {
    /// Answers the plain requests that the input goes on with. None: they are done, and something else
    /// follows.
    pub(crate) fn run(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        turn.runs = false;
        let input = turn.input;
        let mut requests = PlainRequests::new(input, turn.at, turn.left);
        let mut stages = Stages::new();
        let null = null(self.client.resp3);
        while stages.turn(&turn.cx.guard, &mut requests, |requests, slots| {
            let at = requests.at();
            let Some(Plain { key, ask }) = requests.next() else { return false };
            let key = turn.cx.guard.key_in(self.client.db, key);
            slots.push(Slot { key, hint: turn.cx.guard.prefetch_bucket(&key), ask, at });
            true
        }) {
            let mut rest = stages.slots();
            while let Some(slot) = rest.first() {
                if turn.out.is_full() {
                    // What is to be asked again is set back to.
                    turn.at = slot.at;
                    return Some(Next::Flush);
                }
                let done = usual(&mut turn.cx.guard, rest, turn.out.room_for(), null, &mut turn.tally);
                turn.out.filled(done.bytes);
                if done.slots == 0 {
                    slot.answer(self, turn);
                }
                let count = done.slots.max(1);
                turn.tally.commands += count as u32;
                turn.left -= count as u32;
                rest = &rest[count..];
            }
        }
        turn.at = requests.at();
        turn.runs = stages.keys() >= KEYS_MIN;
        (turn.at == input.len()).then_some(Next::Receive)
    }
}

impl Slot<'_, '_> {
    /// What is not usual.
    #[inline(never)]
    fn answer(&self, conversation: &mut Conversation, turn: &mut Turn<'_, '_, '_, '_>) {
        self.answer_only(conversation, turn);
        turn.cx.spend_beside(turn.out);
    }

    #[inline(always)]
    fn answer_only(&self, conversation: &mut Conversation, turn: &mut Turn<'_, '_, '_, '_>) {
        let mut call = turn.call(&mut conversation.client);
        let Slot { key, hint, .. } = self;
        let (row, done) = match self.ask {
            Ask::Get => (GET, strings::fetch(&mut call, key, hint)),
            Ask::Set(value) => (SET, strings::set_plain(&mut call, key, hint, value)),
            Ask::Incr => {
                call.tally.incrs += 1;
                (INCR, strings::add(&mut call, key, hint, 1))
            }
            Ask::Decr => {
                call.tally.decrs += 1;
                (DECR, strings::add(&mut call, key, hint, -1))
            }
        };
        if let Err(fail) = done {
            if fail.is_no_memory() && call.cx.asks_again(call.out) {
                turn.again_at = self.at;
                return;
            }
            call.fail(&fail);
            fail.count(&call.cx.counters.rows, row);
        }
    }
}

/// What [`usual`] did.
#[derive(Clone, Copy, Default)]
struct Done {
    slots: usize,
    bytes: usize,
}

/// Answers hits on small items and misses, with `null`, and writes over what has nothing unusual, up to the next
/// slot that is none of these.
#[inline(always)]
fn usual(
    guard: &mut Guard<'_>,
    slots: &[Slot<'_, '_>],
    room: &mut [u8; GROUP * SMALL_ROOM],
    null: &'static [u8],
    tally: &mut Tally,
) -> Done {
    let mut done = Done::default();
    // Most of what is asked of a cache apart, for how little it is.
    while let Some(slot) = slots.get(done.slots) {
        let before = done.slots;
        done = match slot.ask {
            Ask::Get => gets(guard, slots, room, null, done, tally),
            _ => others(guard, slots, room, done, tally),
        };
        if done.slots == before {
            break;
        }
    }
    done
}

impl Done {
    /// Goes on with slots until `answer`, which says how many bytes it wrote, does none.
    #[inline(always)]
    fn row(
        self,
        slots: &[Slot<'_, '_>],
        room: &mut [u8; GROUP * SMALL_ROOM],
        mut answer: impl FnMut(&Slot<'_, '_>, &mut [u8; SMALL_ROOM]) -> Option<usize>,
    ) -> Done {
        let (mut count, mut at) = (self.slots, self.bytes);
        for slot in &slots[count..] {
            let Some(room) = room.get_mut(at..).and_then(|room| room.first_chunk_mut()) else { break };
            let Some(written) = answer(slot, room) else { break };
            at += written;
            count += 1;
        }
        Done { slots: count, bytes: at }
    }
}

/// A row of GET.
#[inline(never)]
fn gets(
    guard: &Guard<'_>,
    slots: &[Slot<'_, '_>],
    room: &mut [u8; GROUP * SMALL_ROOM],
    null: &'static [u8],
    done: Done,
    tally: &mut Tally,
) -> Done {
    let mut misses = 0;
    let after = done.row(slots, room, |slot, room| {
        let Slot { key, hint, ask: Ask::Get, .. } = slot else { return None };
        if let Some(value) = guard.plain_value(key, hint) {
            return write_small_bulk(room, value);
        }
        guard.is_absent(key, hint).then(|| {
            misses += 1;
            room[..null.len()].copy_from_slice(null);
            null.len()
        })
    });
    let gets = (after.slots - done.slots) as u32;
    tally.gets += gets;
    tally.get_hits += gets - misses;
    tally.get_misses += misses;
    after
}

/// A row of anything but GET.
#[inline(never)]
fn others(
    guard: &mut Guard<'_>,
    slots: &[Slot<'_, '_>],
    room: &mut [u8; GROUP * SMALL_ROOM],
    done: Done,
    tally: &mut Tally,
) -> Done {
    done.row(slots, room, |slot, room| {
        let Slot { key, hint, .. } = slot;
        let (by, count) = match slot.ask {
            Ask::Get => return None,
            Ask::Set(value) => {
                if !guard.replace_value(key, value, hint) && !guard.insert_value(key, value, hint) {
                    return None;
                }
                room[..5].copy_from_slice(b"+OK\r\n");
                return Some(5);
            }
            Ask::Incr => (1, &mut tally.incrs),
            Ask::Decr => (-1, &mut tally.decrs),
        };
        let Sum { value, .. } = add(guard, key, hint, by)?;
        *count += 1;
        Some(write_head(room, b':', value))
    })
}
