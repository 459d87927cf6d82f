//! A run of plain gets: the most usual pipeline, in slots that hold nothing else. Whatever else comes
//! goes through [`crate::batch`]; the answers are the same.
//!
//! ```text
//! turn     0  1  2  3  4 …      a group of keys goes through one stage a turn
//! decode   0  1  2  3  4 …      hash them, start loading their home buckets
//! items       0  1  2  3 …      start loading the items that the buckets name
//! away           0  1  2 …      … or that their other buckets name
//! answer            0  1 …      read, reply
//! ```
//!
//! A processor waits for some ten to sixteen lines of memory at once. Groups of eight keys spread
//! these over the work; a whole batch's, one stage after the other, had it stand still.

use arrayvec::ArrayVec;
use larder_protocol::classic::{Fetch, GetLines};
use larder_protocol::reply::{SMALL_ROOM, write_small_value};
use larder_store::{Guard, Hint, Key};

use super::{Call, Keys, Next, Session, State};
use crate::classic;
use crate::context::Context;
use crate::output::{Mark, Output};
use crate::tally::Tally;
use crate::text::{END, NO_MEMORY_FOR_REPLY};

/// Keys of a group.
const GROUP: usize = 8;
/// Groups on their way: one in each stage.
const GROUPS: usize = 4;
/// After a run of fewer keys the rest of the input goes the general way.
const KEYS_MIN: usize = 16;

/// One key on its way.
struct Get<'a, 'w> {
    key: Key<'a>,
    hint: Hint<'w>,
    /// Where in the input it begins: the line does, if it is the line's first.
    at: usize,
    first: bool,
    last: bool,
}

/// Keys that go through the stages together.
#[derive(Default)]
struct Group<'a, 'w> {
    gets: ArrayVec<Get<'a, 'w>, GROUP>,
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
    /// Answers the gets that the input goes on with. None: they are done, and something else follows.
    pub(super) fn gets(&mut self, call: &mut Call<'_, '_, '_, '_>) -> Option<Next> {
        call.runs_of_gets = false;
        if call.cx.shared.prefixes.is_on() {
            return None;
        }
        let input = call.reader.input;
        let mut lines = GetLines::new(input, call.reader.at, call.reader.turn);
        let mut groups: [Group<'_, '_>; GROUPS] = Default::default();
        let mut line = None;
        // Keys from here on belong to a line that turned out not to be plain.
        let mut end = usize::MAX;
        let (mut more, mut keys) = (true, 0);
        let mut turns_left = GROUPS;
        for turn in GROUPS.. {
            if more {
                groups[turn % GROUPS].decode(&call.cx.guard, &mut lines);
                keys += groups[turn % GROUPS].gets.len();
                more = groups[turn % GROUPS].gets.is_full();
                if lines.is_inside() && !more {
                    // The general way says what is wrong with the line: as if it had not begun.
                    lines.give_back();
                    end = lines.at();
                    call.take_back(line.take().filter(|line: &Line| line.at == end));
                }
            } else {
                groups[turn % GROUPS].gets.clear();
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
        call.runs_of_gets = keys >= KEYS_MIN;
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
        let mut rest = group.gets.as_slice();
        while let Some(get) = rest.first()
            && get.at < end
        {
            if call.skips {
                call.skips = !get.last;
                rest = &rest[1..];
                continue;
            }
            let Call { cx, out, tally, .. } = &mut *call;
            if out.is_full() {
                if !get.first {
                    let fetch = Fetch { cas: false, touch: None };
                    self.state = State::Keys(Keys { fetch, first: false, resumed: true });
                }
                call.reader.at = get.at;
                return Some(Next::Flush);
            }
            if get.first && !get.last {
                *line = Some(Line { at: get.at, mark: out.mark(), tally: *tally });
            }
            let (hits, bytes) = hot(&cx.guard, rest, out.room_for(), end);
            out.filled(bytes);
            tally.gets += hits as u32;
            tally.get_hits += hits as u32;
            rest = &rest[hits..];
            if hits == 0 {
                if !get.answer(cx, out, tally) {
                    // The line is answered by that alone.
                    if let Some(line) = line.take().filter(|_| !get.first) {
                        out.rewind(line.mark);
                    }
                    out.put(NO_MEMORY_FOR_REPLY);
                    call.skips = !get.last;
                }
                rest = &rest[1..];
            }
        }
        None
    }
}

/// Answers hits on small and hot items, up to the next key that is not one, or that begins a line of
/// several; returns how many, and the bytes of their answers.
#[inline(never)]
fn hot(
    guard: &Guard<'_>,
    gets: &[Get<'_, '_>],
    room: &mut [u8; GROUP * SMALL_ROOM],
    end: usize,
) -> (usize, usize) {
    let mut bytes = 0;
    for (i, get) in gets.iter().enumerate() {
        let begins_line = get.first && !get.last;
        if let Some(value) = guard.hot_value(&get.key, &get.hint)
            && !(begins_line && i > 0)
            && get.at < end
            && let Some(room) = room[bytes..].first_chunk_mut()
            && let Some(written) = write_small_value(room, get.key.bytes(), value)
        {
            bytes += written - if get.last { 0 } else { END.len() };
        } else {
            return (i, bytes);
        }
    }
    (gets.len(), bytes)
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

impl Get<'_, '_> {
    /// What is not the usual hit.
    #[inline(never)]
    fn answer(&self, cx: &mut Context<'_, '_>, out: &mut Output, tally: &mut Tally) -> bool {
        classic::fetch(cx, out, tally, &self.key, &self.hint, false, self.last)
    }
}

impl<'a, 'w> Group<'a, 'w> {
    /// The first stage.
    #[inline(never)]
    fn decode(&mut self, guard: &Guard<'w>, lines: &mut GetLines<'a>) {
        self.gets.clear();
        while !self.gets.is_full()
            && let Some(found) = lines.next()
        {
            let key = guard.key(found.key);
            let hint = guard.prefetch_bucket(&key);
            self.gets.push(Get { key, hint, at: found.at, first: found.first, last: found.last });
        }
    }

    #[inline(always)]
    fn items(&mut self, guard: &Guard<'w>) {
        self.away = 0;
        for (i, get) in self.gets.iter_mut().enumerate() {
            self.away |= u32::from(guard.prefetch_item(&mut get.hint)) << i;
        }
    }

    #[inline(always)]
    fn away(&mut self, guard: &Guard<'w>) {
        while self.away != 0 {
            guard.prefetch_away(&mut self.gets[self.away.trailing_zeros() as usize].hint);
            self.away &= self.away - 1;
        }
    }
}
