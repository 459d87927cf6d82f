//! A run of plain gets and sets: the most usual pipeline, in slots that hold nothing else. Whatever
//! else comes goes through [`crate::batch`]; the answers are the same.
//!
//! ```text
//! turn     0  1  2  3  4 …      a group of keys goes through one stage a turn
//! decode   0  1  2  3  4 …      hash them, start loading their home buckets
//! items       0  1  2  3 …      start loading the items that the buckets name
//! away           0  1  2 …      … or that their other buckets name
//! answer            0  1 …      read or write, reply
//! ```
//!
//! A processor waits for some ten to sixteen lines of memory at once. Groups of eight keys spread
//! these over the work; a whole batch's, one stage after the other, had it stand still.

use arrayvec::ArrayVec;
use larder_protocol::classic::{Fetch, Store, StoreVerb};
use larder_protocol::plain::{Plain, PlainLines, PlainSet};
use larder_protocol::reply::{SMALL_ROOM, write_small_value};
use larder_store::{Guard, Hint, Key};

use super::{Call, Keys, Next, Session, State};
use crate::classic::{self, fitting_value_bytes};
use crate::context::Context;
use crate::output::{Mark, Output};
use crate::tally::Tally;
use crate::text::{END, NO_MEMORY_FOR_REPLY};

/// Keys of a group.
const GROUP: usize = 8;
/// Groups on their way: one in each stage.
const GROUPS: usize = 4;
/// Longer values are received into their items rather than read ahead.
const VALUE_BYTES_MAX: usize = 4096;
/// After a run of fewer keys the rest of the input goes the general way.
const KEYS_MIN: usize = 16;

/// One key on its way.
struct Slot<'a, 'w> {
    key: Key<'a>,
    hint: Hint<'w>,
    /// Where in the input it begins: its line does, if it is the first.
    at: usize,
    /// The first, the last of its line.
    first: bool,
    last: bool,
    set: Option<PlainSet<'a>>,
}

/// Keys that go through the stages together.
#[derive(Default)]
struct Group<'a, 'w> {
    slots: ArrayVec<Slot<'a, 'w>, GROUP>,
    /// A bit for each whose item has to be looked for in its other bucket.
    away: u32,
}

/// What stood before the first answer to a line of several keys.
struct Line {
    at: usize,
    mark: Mark,
    tally: Tally,
}

impl Session {
    /// Answers the plain requests that the input goes on with. None: they are done, and something else
    /// follows.
    pub(super) fn run(&mut self, call: &mut Call<'_, '_, '_, '_>) -> Option<Next> {
        call.runs = false;
        if call.cx.shared.prefixes.is_on() {
            return None;
        }
        let input = call.reader.input;
        let value_bytes_max = VALUE_BYTES_MAX.min(fitting_value_bytes(&call.cx.shared.settings));
        let mut lines = PlainLines::new(input, call.reader.at, call.reader.turn, value_bytes_max);
        let mut groups: [Group<'_, '_>; GROUPS] = Default::default();
        let mut line = None;
        // Keys from here on belong to a line that turned out not to be plain.
        let mut end = usize::MAX;
        let (mut more, mut keys) = (true, 0);
        let mut turns_left = GROUPS;
        for turn in GROUPS.. {
            if more {
                groups[turn % GROUPS].decode(&call.cx.guard, &mut lines);
                keys += groups[turn % GROUPS].slots.len();
                more = groups[turn % GROUPS].slots.is_full();
                if lines.is_inside() && !more {
                    // The general way says what is wrong with the line: as if it had not begun.
                    lines.give_back();
                    end = lines.at();
                    call.take_back(line.take().filter(|line: &Line| line.at == end));
                }
            } else {
                groups[turn % GROUPS].slots.clear();
            }
            groups[(turn - 1) % GROUPS].items(&call.cx.guard);
            groups[(turn - 2) % GROUPS].away(&call.cx.guard);
            if let Some(next) = self.answer(call, &groups[(turn - 3) % GROUPS], &mut line, end) {
                return Some(next);
            }
            if !more {
                turns_left -= 1;
                if turns_left == 0 {
                    break;
                }
            }
        }
        call.reader.at = lines.at();
        call.reader.turn = lines.lines_left();
        call.runs = keys >= KEYS_MIN;
        (call.reader.at == input.len()).then_some(Next::Receive)
    }

    /// The last stage, of the keys that begin before `end`.
    #[inline(always)]
    fn answer(
        &mut self,
        call: &mut Call<'_, '_, '_, '_>,
        group: &Group<'_, '_>,
        line: &mut Option<Line>,
        end: usize,
    ) -> Option<Next> {
        let mut rest = group.slots.as_slice();
        while let Some(slot) = rest.first()
            && slot.at < end
        {
            let Slot { first, last, at, .. } = *slot;
            if call.skips {
                call.skips = !last;
                rest = &rest[1..];
                continue;
            }
            let Call { cx, out, tally, .. } = &mut *call;
            if out.is_full() {
                if !first {
                    let fetch = Fetch { cas: false, touch: None };
                    self.state = State::Keys(Keys { fetch, first: false, resumed: true });
                }
                call.reader.at = at;
                return Some(Next::Flush);
            }
            if first && !last {
                *line = Some(Line { at, mark: out.mark(), tally: *tally });
            }
            let done = usual(&mut cx.guard, rest, out.room_for(), end);
            out.filled(done.bytes);
            tally.gets += done.gets;
            tally.get_hits += done.gets;
            tally.sets += done.sets;
            let count = (done.gets + done.sets) as usize;
            rest = &rest[count..];
            if count > 0 {
                continue;
            }
            if !slot.answer(cx, out, tally) {
                // The line is answered by that alone.
                if let Some(line) = line.take().filter(|_| !first) {
                    out.rewind(line.mark);
                }
                out.put(NO_MEMORY_FOR_REPLY);
                call.skips = !last;
            }
            rest = &rest[1..];
        }
        None
    }
}

/// What [`usual`] did.
#[derive(Default)]
struct Done {
    gets: u32,
    sets: u32,
    bytes: usize,
}

/// Answers hits on small and hot items and sets that overwrite their like, up to the next slot that is
/// neither, or that begins a line of several keys.
#[inline(never)]
fn usual(
    guard: &mut Guard<'_>,
    slots: &[Slot<'_, '_>],
    room: &mut [u8; GROUP * SMALL_ROOM],
    end: usize,
) -> Done {
    let mut done = Done::default();
    for (i, slot) in slots.iter().enumerate() {
        let Slot { key, hint, .. } = slot;
        if slot.at >= end || (slot.first && !slot.last && i > 0) {
            break;
        }
        let Some(room) = room[done.bytes..].first_chunk_mut::<SMALL_ROOM>() else { break };
        if let Some(set) = &slot.set {
            if set.flags != 0 || set.exptime != 0 || !guard.replace_value(key, set.value, hint) {
                break;
            }
            *room.first_chunk_mut().expect("room for more") = *b"STORED\r\n";
            done.bytes += 8;
            done.sets += 1;
        } else {
            let Some(value) = guard.hot_value(key, hint) else { break };
            let Some(written) = write_small_value(room, key.bytes(), value) else { break };
            done.bytes += written - if slot.last { 0 } else { END.len() };
            done.gets += 1;
        }
    }
    done
}

impl Call<'_, '_, '_, '_> {
    /// Drops the answers of a line.
    fn take_back(&mut self, line: Option<Line>) {
        if let Some(Line { mark, tally, .. }) = line {
            self.out.rewind(mark);
            self.tally = tally;
        }
    }
}

impl Slot<'_, '_> {
    /// What is not usual. False: a line of keys has failed.
    #[inline(never)]
    fn answer(&self, cx: &mut Context<'_, '_>, out: &mut Output, tally: &mut Tally) -> bool {
        let Slot { key, hint, .. } = self;
        let Some(PlainSet { value, flags, exptime }) = self.set else {
            return classic::fetch(cx, out, tally, key, hint, false, self.last);
        };
        let store = Store {
            verb: StoreVerb::Set,
            noreply: false,
            flags,
            exptime,
            value_bytes: value.len() as u32,
            cas: 0,
            key: key.bytes(),
        };
        classic::store(cx, out, tally, key, hint, &store, value);
        true
    }
}

impl<'a, 'w> Group<'a, 'w> {
    /// The first stage.
    #[inline(never)]
    fn decode(&mut self, guard: &Guard<'w>, lines: &mut PlainLines<'a>) {
        self.slots.clear();
        while !self.slots.is_full()
            && let Some(Plain { key, at, first, last, set }) = lines.next()
        {
            let key = guard.key(key);
            self.slots.push(Slot { key, hint: guard.prefetch_bucket(&key), at, first, last, set });
        }
    }

    #[inline(always)]
    fn items(&mut self, guard: &Guard<'w>) {
        self.away = 0;
        for (i, slot) in self.slots.iter_mut().enumerate() {
            self.away |= u32::from(guard.prefetch_item(&mut slot.hint)) << i;
        }
    }

    #[inline(always)]
    fn away(&mut self, guard: &Guard<'w>) {
        while self.away != 0 {
            guard.prefetch_away(&mut self.slots[self.away.trailing_zeros() as usize].hint);
            self.away &= self.away - 1;
        }
    }
}
