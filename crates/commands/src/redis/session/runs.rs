//! A run of plain requests: the most usual pipeline, answered in groups of plain requests alone, through [`crate::core::stages`].
//! Any other request goes through the batch, with the same answers.

use larder_protocol::reply::SMALL_ROOM;
use larder_protocol::resp::{Ask, Plain, PlainRequests, write_head, write_small_bulk};
use larder_store::{Guard, Hint, Key};

use super::Conversation;
use super::gate::Gate;
use super::turn::{DECR, GET, INCR, SET, Turn};
use crate::core::progress::Next;
use crate::core::stages::{Ahead, GROUP, Stages};
use crate::core::tally::Tally;
use crate::core::traffic::{self, READ_NS, Seen, Verb, WRITE_NS};
use crate::core::usual::{Sum, add};
use crate::redis::reply::null;
use crate::redis::strings;

/// Behind a run of fewer keys, the next requests go through the batch.
const KEYS_MIN: usize = 16;

/// A plain request on its way through the stages.
struct Staged<'a, 'w> {
    key: Key<'a>,
    hint: Hint<'w>,
    ask: Ask<'a>,
    /// Where in the input it begins.
    at: usize,
}

impl<'w> Ahead<'w> for Staged<'_, 'w> {
    #[inline(always)]
    fn key(&self) -> &Key<'_> {
        &self.key
    }
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
    /// Answers the plain requests at the front of the input, up to one that the user's rules do not allow by its key alone.
    /// `None`: they are done, and another request follows.
    pub(crate) fn run<G: Gate>(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        turn.runs = false;
        let input = turn.input;
        let mut requests = PlainRequests::new(input, turn.at, turn.left);
        let mut stages = Stages::new(turn.cx.room.tap());
        let null = null(self.client.resp3);
        loop {
            stages.turn(&turn.cx.guard, &mut requests, |requests, group| {
                let at = requests.at();
                let Some((Plain { key, ask }, bytes)) = requests.peek() else { return false };
                if !G::lets_plain(&self.client.standing, key, &ask) {
                    // It is read again, the general way.
                    return false;
                }
                requests.take(bytes);
                let key = turn.cx.guard.key_in(self.client.db, key);
                group.push(Staged { key, hint: turn.cx.guard.prefetch_bucket(&key), ask, at });
                true
            });
            let mut rest = stages.group();
            while let Some(staged) = rest.first() {
                if turn.out.is_full() {
                    // The input is set back to the request that is read again.
                    turn.at = staged.at;
                    let unanswered = rest.len();
                    turn.look(self.client.db, &mut stages, unanswered);
                    return Some(Next::Flush);
                }
                let done = usual(&mut turn.cx.guard, rest, turn.out.room_for(), null, &mut turn.tally);
                turn.out.filled(done.bytes);
                if done.keys == 0 {
                    staged.answer(self, turn);
                }
                let count = done.keys.max(1);
                turn.tally.commands += count as u32;
                turn.left -= count as u32;
                rest = &rest[count..];
            }
            if stages.is_due() {
                turn.look(self.client.db, &mut stages, 0);
                if stages.is_over() {
                    break;
                }
                stages.go_on(turn.cx.room.tap());
            }
        }
        turn.at = requests.at();
        turn.runs = stages.keys() >= KEYS_MIN;
        (turn.at == input.len()).then_some(Next::Receive)
    }
}

impl Turn<'_, '_, '_, '_> {
    /// All of the group but the last so many were answered: some may be sampled, or followed.
    #[inline]
    fn look(&mut self, db: u8, stages: &mut Stages<Staged<'_, '_>>, unanswered: usize) {
        if stages.looks(self.cx.room.tap(), unanswered) {
            self.sample(db, stages, unanswered);
        }
    }

    #[cold]
    #[inline(never)]
    fn sample(&mut self, db: u8, stages: &mut Stages<Staged<'_, '_>>, unanswered: usize) {
        let tap = self.cx.room.tap();
        let followed = stages.take_followed();
        let group = stages.answered(unanswered);
        for (_, staged) in group.iter().enumerate().filter(|(nth, _)| followed >> nth & 1 == 1) {
            traffic::follow(tap, &mut self.cx.guard, &staged.key, staged.verb());
        }
        while let Some(staged) = tap.next(group.len()).and_then(|at| group.get(at)) {
            let verb = staged.verb();
            let cost_ns = if verb == Verb::Read { READ_NS } else { WRITE_NS };
            let seen = Seen { verb, db, cost_ns };
            traffic::sample(tap, &mut self.cx.guard, &staged.key, seen, |key, value| match staged.ask {
                // *2│$3│GET│key, and the value or null.
                Ask::Get => 13 + bulk_bytes(key) + value.map_or(5, bulk_bytes),
                // *3│$3│SET│key│value, and +OK.
                Ask::Set(value) => 13 + bulk_bytes(key) + bulk_bytes(value.len() as u64) + 5,
                // *2│$4│INCR│key, and the number.
                Ask::Incr | Ask::Decr => 14 + bulk_bytes(key) + 3 + value.unwrap_or(0),
            });
        }
    }
}

/// Bytes of a bulk string on the wire.
fn bulk_bytes(bytes: u64) -> u64 {
    let digits = bytes.checked_ilog10().map_or(1, |tens| u64::from(tens) + 1);
    digits + bytes + 5
}

impl Staged<'_, '_> {
    fn verb(&self) -> Verb {
        match self.ask {
            Ask::Get => Verb::Read,
            Ask::Set(_) | Ask::Incr | Ask::Decr => Verb::Write,
        }
    }

    /// Answers a request that [`usual`] did not.
    #[inline(never)]
    fn answer(&self, conversation: &mut Conversation, turn: &mut Turn<'_, '_, '_, '_>) {
        let replied = turn.out.len();
        self.answer_only(conversation, turn);
        let replied = turn.out.len().saturating_sub(replied);
        if replied >= turn.reply_from {
            turn.note_batched(&mut conversation.client, self.at, replied);
        }
        turn.beside();
    }

    #[inline(always)]
    fn answer_only(&self, conversation: &mut Conversation, turn: &mut Turn<'_, '_, '_, '_>) {
        let mut call = turn.call(&mut conversation.client);
        let Staged { key, hint, .. } = self;
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

/// What [`usual`] did: requests and bytes of replies.
#[derive(Clone, Copy, Default)]
struct Done {
    keys: usize,
    bytes: usize,
}

/// Answers requests up to the next that is not usual: hits on small items, misses (with `null`), overwrites of usual items, and
/// sums.
#[inline(always)]
fn usual(
    guard: &mut Guard<'_>,
    group: &[Staged<'_, '_>],
    room: &mut [u8; GROUP * SMALL_ROOM],
    null: &'static [u8],
    tally: &mut Tally,
) -> Done {
    let mut done = Done::default();
    // GETs, most of a cache's requests, have a loop of their own, since each of them is very little work.
    while let Some(staged) = group.get(done.keys) {
        let before = done.keys;
        done = match staged.ask {
            Ask::Get => gets(guard, group, room, null, done, tally),
            _ => others(guard, group, room, done, tally),
        };
        if done.keys == before {
            break;
        }
    }
    done
}

impl Done {
    /// Goes on with the group until `answer` returns `None`; otherwise it returns how many bytes it wrote.
    #[inline(always)]
    fn row(
        self,
        group: &[Staged<'_, '_>],
        room: &mut [u8; GROUP * SMALL_ROOM],
        mut answer: impl FnMut(&Staged<'_, '_>, &mut [u8; SMALL_ROOM]) -> Option<usize>,
    ) -> Done {
        let (mut count, mut at) = (self.keys, self.bytes);
        for staged in &group[count..] {
            let Some(room) = room.get_mut(at..).and_then(|room| room.first_chunk_mut()) else { break };
            let Some(written) = answer(staged, room) else { break };
            at += written;
            count += 1;
        }
        Done { keys: count, bytes: at }
    }
}

/// Answers GETs in a row.
#[inline(never)]
fn gets(
    guard: &Guard<'_>,
    group: &[Staged<'_, '_>],
    room: &mut [u8; GROUP * SMALL_ROOM],
    null: &'static [u8],
    done: Done,
    tally: &mut Tally,
) -> Done {
    let mut misses = 0;
    let after = done.row(group, room, |staged, room| {
        let Staged { key, hint, ask: Ask::Get, .. } = staged else { return None };
        if let Some(value) = guard.plain_value(key, hint) {
            return write_small_bulk(room, value);
        }
        guard.is_absent(key, hint).then(|| {
            misses += 1;
            room[..null.len()].copy_from_slice(null);
            null.len()
        })
    });
    let gets = (after.keys - done.keys) as u32;
    tally.gets += gets;
    tally.get_hits += gets - misses;
    tally.get_misses += misses;
    after
}

/// Answers other requests in a row.
#[inline(never)]
fn others(
    guard: &mut Guard<'_>,
    group: &[Staged<'_, '_>],
    room: &mut [u8; GROUP * SMALL_ROOM],
    done: Done,
    tally: &mut Tally,
) -> Done {
    done.row(group, room, |staged, room| {
        let Staged { key, hint, .. } = staged;
        let (by, count) = match staged.ask {
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
