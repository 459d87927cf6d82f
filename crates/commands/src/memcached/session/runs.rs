//! Runs of plain requests: the most usual pipeline, in groups that hold nothing else, through [`crate::core::stages`]. All
//! other requests go through [`crate::memcached::batch`]; the answers are the same.

use arrayvec::ArrayVec;
use larder_protocol::classic::{Fetch, Store, StoreVerb};
use larder_protocol::meta::decode_start;
use larder_protocol::number::write_u64;
use larder_protocol::plain::{Ask, Part, Plain, PlainLines, PlainSet};
use larder_protocol::reply::{SMALL_ROOM, write_small_meta_value, write_small_value};
use larder_store::{Guard, Hint, Key, plain_class};

use super::gate::Gate;
use super::{Conversation, Keys, Next, State, Turn};
use crate::core::counters::{ClassCounter, Counter, Counters};
use crate::core::output::Mark;
use crate::core::stages::{Ahead, GROUP, Stages};
use crate::core::tally::Tally;
use crate::core::traffic::{self, READ_NS, Seen, Verb, WRITE_NS};
use crate::core::usual::add;
use crate::memcached::classic;
use crate::memcached::text::{END, META_MISS, NO_MEMORY_FOR_REPLY};
use crate::memcached::times::InRun;
use crate::memcached::verbs::{fitting_value_bytes, string};

/// Most bytes of a value that is read ahead. Longer ones are received into their items.
const VALUE_BYTES_MAX: usize = 4096;
/// Fewest keys of a run after which another is looked for. Otherwise the rest of the input goes the general way.
const KEYS_MIN: usize = 16;

/// One key on its way.
struct Staged<'a, 'w> {
    key: Key<'a>,
    hint: Hint<'w>,
    /// Its place in the input: that of its line, if it is the line's first key.
    at: usize,
    part: Part,
    ask: Ask<'a>,
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
        matches!(self.ask, Ask::Set(_) | Ask::MetaSet(_) | Ask::SetWith(_))
    }
}

/// The state before the first answer to a line of several keys.
struct Line {
    at: usize,
    mark: Mark,
    tally: Tally,
}

impl Conversation {
    /// Answers the plain requests that come next in the input, up to one that the client's user does not allow at once. `None`:
    /// they are done, and something else follows.
    pub(super) fn run<G: Gate>(&mut self, turn: &mut Turn<'_, '_, '_, '_>, gate: &G) -> Option<Next> {
        turn.runs = false;
        if turn.cx.shared.prefixes.is_on() {
            return None;
        }
        let input = turn.reader.input;
        let value_bytes_max = VALUE_BYTES_MAX.min(fitting_value_bytes(&turn.cx.shared.settings));
        let mut lines = PlainLines::new(input, turn.reader.at, turn.reader.left, value_bytes_max);
        let mut stages = Stages::new(turn.cx.room.tap());
        let (mut line, mut given_back) = (None, false);
        loop {
            stages.turn(&turn.cx.guard, &mut lines, |lines, group| {
                let before = lines.clone();
                if !Staged::next(&turn.cx.guard, lines, group) {
                    return false;
                }
                let is_let = |staged: &Staged<'_, '_>| gate.lets(staged.key.bytes(), &staged.ask);
                if G::LOOKS && !group.last().is_some_and(is_let) {
                    // It is read again, the general way, and so is the line that has it behind others.
                    group.pop();
                    *lines = before;
                    return false;
                }
                true
            });
            if stages.has_ended() && lines.is_inside() && !given_back {
                // The line turned out not to be plain, or not to be allowed. The general way says what is wrong with it: as if it
                // had not begun.
                given_back = true;
                lines.give_back();
                let end = lines.at();
                stages.take_back(|staged| staged.at < end);
                turn.take_back(line.take().filter(|line: &Line| line.at == end));
            }
            if let Some(next) = self.answer(turn, &mut stages, &mut line) {
                return Some(next);
            }
            if stages.is_due() {
                turn.look(&mut stages, 0);
                if stages.is_over() {
                    break;
                }
                stages.go_on(turn.cx.room.tap());
            }
        }
        turn.reader.at = lines.at();
        turn.reader.left = lines.lines_left();
        turn.runs = stages.keys() >= KEYS_MIN;
        (turn.reader.at == input.len()).then_some(Next::Receive)
    }

    /// The last stage.
    #[inline(always)]
    fn answer(
        &mut self,
        turn: &mut Turn<'_, '_, '_, '_>,
        stages: &mut Stages<Staged<'_, '_>>,
        line: &mut Option<Line>,
    ) -> Option<Next> {
        let mut rest = stages.group();
        while let Some(staged) = rest.first() {
            let Staged { part, at, .. } = *staged;
            if turn.skips {
                turn.skips = !part.is_last();
                rest = &rest[1..];
                continue;
            }
            let Turn { cx, out, tally, .. } = &mut *turn;
            if out.is_full() {
                if !cx.room.is_again() {
                    if !part.is_first() {
                        let fetch = Fetch { cas: false, touch: None };
                        self.state = State::Keys(Keys { fetch, first: false, resumed: true });
                    }
                    turn.reader.at = at;
                }
                let unanswered = rest.len();
                turn.look(stages, unanswered);
                if turn.times.measures() {
                    turn.time(stages.answered(unanswered));
                }
                return Some(Next::Flush);
            }
            if part == Part::First {
                *line = Some(Line { at, mark: out.mark(), tally: *tally });
            }
            let done = usual(&mut cx.guard, cx.counters, rest, out.room_for());
            out.filled(done.bytes);
            if done.keys > 0 {
                done.count(tally);
                rest = &rest[done.keys..];
                continue;
            }
            if !staged.answer(turn) {
                // The line is answered by this error alone.
                if let Some(line) = line.take().filter(|_| !part.is_first()) {
                    turn.out.rewind(line.mark);
                }
                turn.out.put(NO_MEMORY_FOR_REPLY);
                turn.skips = !part.is_last();
            }
            rest = &rest[1..];
        }
        if turn.times.measures() {
            turn.time(stages.group());
        }
        None
    }
}

/// Counts of what [`usual`] did.
#[derive(Default)]
struct Done {
    keys: usize,
    metas: u32,
    /// Reads of keys that are not there.
    misses: u32,
    sets: u32,
    sums: u32,
    /// Sums that are as long as the numbers that they replaced.
    in_place: u32,
    bytes: usize,
}

impl Done {
    /// Adds what was done to the counts of the turn.
    #[inline(always)]
    fn count(&self, tally: &mut Tally) {
        let gets = self.keys as u32 - self.sets - self.sums;
        tally.gets += gets;
        tally.get_hits += gets - self.misses;
        tally.get_misses += self.misses;
        tally.sets += self.sets;
        tally.metas += self.metas;
        tally.increments += self.sums;
        tally.in_place += self.in_place;
    }

    /// Goes on with the group until `answer`, which returns how many bytes it wrote, answers a key with none. Returns how many
    /// keys it answered. `LINES`: it also stops at a key that begins a line of several keys, which only a `get` does.
    #[inline(always)]
    fn row<const LINES: bool>(
        &mut self,
        group: &[Staged<'_, '_>],
        room: &mut [u8; GROUP * SMALL_ROOM],
        mut answer: impl FnMut(&Staged<'_, '_>, &mut [u8; SMALL_ROOM]) -> Option<usize>,
    ) -> u32 {
        let (mut count, mut at) = (self.keys, self.bytes);
        for staged in &group[count..] {
            let Some(room) = room.get_mut(at..).and_then(|room| room.first_chunk_mut()) else { break };
            let Some(written) = answer(staged, room) else { break };
            at += written;
            count += 1;
            if LINES && staged.part.is_last() && group.get(count).is_some_and(|next| next.part == Part::First)
            {
                break;
            }
        }
        let done = count - self.keys;
        (self.keys, self.bytes) = (count, at);
        done as u32
    }
}

/// Answers hits on small items and misses, and overwrites items with nothing unusual, up to the next key that is none of these,
/// or that begins a line of several keys.
#[inline(always)]
fn usual(
    guard: &mut Guard<'_>,
    counters: &Counters,
    group: &[Staged<'_, '_>],
    room: &mut [u8; GROUP * SMALL_ROOM],
) -> Done {
    let mut done = Done::default();
    // The most usual two are apart, since they do so little.
    while let Some(staged) = group.get(done.keys) {
        if staged.part == Part::First && done.keys > 0 {
            break;
        }
        let count = match staged.ask {
            Ask::Get => gets(guard, counters, group, room, &mut done),
            Ask::Set(_) => sets(guard, counters, group, room, &mut done),
            _ => others(guard, counters, group, room, &mut done),
        };
        if count == 0 {
            break;
        }
    }
    done
}

/// Answers a row of `get`.
#[inline(never)]
fn gets(
    guard: &Guard<'_>,
    counters: &Counters,
    group: &[Staged<'_, '_>],
    room: &mut [u8; GROUP * SMALL_ROOM],
    done: &mut Done,
) -> u32 {
    let mut alike = Alike::new(counters);
    let mut misses = 0;
    let count = done.row::<true>(group, room, |staged, room| {
        let Staged { key, hint, ask: Ask::Get, part, .. } = staged else { return None };
        let Some(value) = guard.plain_value(key, hint) else {
            return guard.is_absent(key, hint).then(|| {
                misses += 1;
                room[..END.len()].copy_from_slice(END);
                if part.is_last() { END.len() } else { 0 }
            });
        };
        let written = write_small_value(room, key.bytes(), value)?;
        alike.count(ClassCounter::GetHits, key, value.len());
        Some(written - if part.is_last() { 0 } else { END.len() })
    });
    alike.settle();
    done.misses += misses;
    count
}

/// Answers a row of `set`.
#[inline(never)]
fn sets(
    guard: &mut Guard<'_>,
    counters: &Counters,
    group: &[Staged<'_, '_>],
    room: &mut [u8; GROUP * SMALL_ROOM],
    done: &mut Done,
) -> u32 {
    let mut alike = Alike::new(counters);
    let count = done.row::<false>(group, room, |staged, room| {
        let Ask::Set(value) = staged.ask else { return None };
        store(guard, staged, value, &mut alike)?;
        room[..8].copy_from_slice(b"STORED\r\n");
        Some(8)
    });
    alike.settle();
    done.sets += count;
    count
}

/// Answers a row of anything else.
#[inline(never)]
fn others(
    guard: &mut Guard<'_>,
    counters: &Counters,
    group: &[Staged<'_, '_>],
    room: &mut [u8; GROUP * SMALL_ROOM],
    done: &mut Done,
) -> u32 {
    let mut alike = Alike::new(counters);
    let (mut metas, mut misses, mut sets, mut sums, mut in_place) = (0, 0, 0, 0, 0);
    let count = done.row::<false>(group, room, |staged, room| {
        let Staged { key, hint, .. } = staged;
        match staged.ask {
            Ask::MetaSet(value) => {
                store(guard, staged, value, &mut alike)?;
                (sets, metas) = (sets + 1, metas + 1);
                room[..4].copy_from_slice(b"HD\r\n");
                Some(4)
            }
            Ask::MetaGet => {
                let Some(value) = guard.plain_value(key, hint) else {
                    return guard.is_absent(key, hint).then(|| {
                        (metas, misses) = (metas + 1, misses + 1);
                        room[..META_MISS.len()].copy_from_slice(META_MISS);
                        META_MISS.len()
                    });
                };
                let written = write_small_meta_value(room, value)?;
                alike.count(ClassCounter::GetHits, key, value.len());
                metas += 1;
                Some(written)
            }
            Ask::Add(delta) => {
                let sum = add(guard, key, hint, delta as i64)?;
                sums += 1;
                let digits = write_u64(room, sum.value);
                in_place += u32::from(digits == sum.was_bytes);
                alike.count(ClassCounter::IncrHits, key, sum.was_bytes);
                room[digits..digits + 2].copy_from_slice(b"\r\n");
                Some(digits + 2)
            }
            Ask::Get | Ask::Set(_) | Ask::SetWith(_) => None,
        }
    });
    alike.settle();
    done.metas += metas;
    done.misses += misses;
    done.sets += sets;
    done.sums += sums;
    done.in_place += in_place;
    count
}

/// Stores a value without flags and expiry; `None` if that is not usual here.
#[inline(always)]
fn store(guard: &mut Guard<'_>, staged: &Staged<'_, '_>, value: &[u8], alike: &mut Alike<'_>) -> Option<()> {
    let Staged { key, hint, .. } = staged;
    if !guard.replace_value(key, value, hint) && !guard.insert_value(key, value, hint) {
        return None;
    }
    alike.count(ClassCounter::CmdSet, key, value.len());
    Some(())
}

/// Requests in a row that count alike, as most of a pipeline do: they are counted once.
struct Alike<'c> {
    counters: &'c Counters,
    /// Bytes of key and value, and the counter.
    what: usize,
    count: u64,
}

impl<'c> Alike<'c> {
    fn new(counters: &'c Counters) -> Alike<'c> {
        Alike { counters, what: 0, count: 0 }
    }

    #[inline(always)]
    fn count(&mut self, counter: ClassCounter, key: &Key<'_>, value_bytes: usize) {
        let what = (key.bytes().len() + value_bytes) << 8 | counter as usize;
        if what != self.what {
            self.settle();
            self.what = what;
        }
        self.count += 1;
    }

    #[inline(always)]
    fn settle(&mut self) {
        if self.count > 0 {
            let (counter, _) = ClassCounter::ALL[self.what & 0xff];
            self.counters.add_in(plain_class(self.what >> 8), counter, self.count);
            self.count = 0;
        }
    }
}

impl Turn<'_, '_, '_, '_> {
    /// All of the group but the last so many were answered: some may be sampled, or followed.
    #[inline]
    fn look(&mut self, stages: &mut Stages<Staged<'_, '_>>, unanswered: usize) {
        if stages.looks(self.cx.room.tap(), unanswered) {
            self.sample(stages, unanswered);
        }
    }

    /// Counts requests that were answered in a receive that is measured.
    #[cold]
    #[inline(never)]
    fn time(&mut self, group: &[Staged<'_, '_>]) {
        for staged in group.iter().filter(|staged| staged.part.is_first()) {
            self.times.count_in_run(match staged.ask {
                Ask::Get => InRun::Get,
                Ask::Set(_) | Ask::SetWith(_) => InRun::Set,
                Ask::MetaGet => InRun::MetaGet,
                Ask::MetaSet(_) => InRun::MetaSet,
                Ask::Add(_) => InRun::Incr,
            });
        }
    }

    #[cold]
    #[inline(never)]
    fn sample(&mut self, stages: &mut Stages<Staged<'_, '_>>, unanswered: usize) {
        let tap = self.cx.room.tap();
        let followed = stages.take_followed();
        let group = stages.answered(unanswered);
        for (_, staged) in group.iter().enumerate().filter(|(nth, _)| followed >> nth & 1 == 1) {
            traffic::follow(tap, &mut self.cx.guard, &staged.key, staged.verb());
        }
        while let Some(staged) = tap.next(group.len()).and_then(|at| group.get(at)) {
            let verb = staged.verb();
            let cost_ns = if verb == Verb::Read { READ_NS } else { WRITE_NS };
            let seen = Seen { verb, db: 0, cost_ns };
            traffic::sample(tap, &mut self.cx.guard, &staged.key, seen, verb.text_bytes());
        }
    }

    /// Takes back the answers of a line, and what they counted.
    #[cold]
    fn take_back(&mut self, line: Option<Line>) {
        let Some(Line { at, mark, tally }) = line else { return };
        let (gets, hits) = (self.tally.gets - tally.gets, self.tally.get_hits - tally.get_hits);
        let mut lines = PlainLines::new(self.reader.input, at, 1, VALUE_BYTES_MAX);
        for _ in 0..gets {
            let Some(Plain { key, .. }) = lines.next() else { break };
            let key = self.cx.guard.key(key);
            if let Some(item) = string(&mut self.cx.guard, &key) {
                self.cx.counters.uncount_in(item.class(), ClassCounter::GetHits);
            }
        }
        let misses = gets - hits - (self.tally.get_misses - tally.get_misses);
        self.cx.counters.add(Counter::GetMisses, u64::from(misses).wrapping_neg());
        self.out.rewind(mark);
        self.tally = tally;
        self.times.take_back_get();
    }
}

impl<'a, 'w> Staged<'a, 'w> {
    /// Adds the next request of the input; false if there is none.
    #[inline(always)]
    fn next(
        guard: &Guard<'w>,
        lines: &mut PlainLines<'a>,
        group: &mut ArrayVec<Staged<'a, 'w>, GROUP>,
    ) -> bool {
        // The most usual two are apart, since they do so little.
        if let Some((key, at)) = lines.next_get() {
            group.push(Staged::new(guard, key, at, Part::Whole, Ask::Get));
        } else if let Some((key, at, value)) = lines.next_set() {
            group.push(Staged::new(guard, key, at, Part::Whole, Ask::Set(value)));
        } else if let Some(Plain { key, at, part, ask }) = lines.next() {
            group.push(Staged::new(guard, key, at, part, ask));
        } else {
            return false;
        }
        true
    }

    #[inline(always)]
    fn new(guard: &Guard<'w>, key: &'a [u8], at: usize, part: Part, ask: Ask<'a>) -> Staged<'a, 'w> {
        let key = guard.key(key);
        Staged { key, hint: guard.prefetch_bucket(&key), at, part, ask }
    }

    fn verb(&self) -> Verb {
        match self.ask {
            Ask::Get | Ask::MetaGet => Verb::Read,
            Ask::Set(_) | Ask::MetaSet(_) | Ask::SetWith(_) | Ask::Add(_) => Verb::Write,
        }
    }

    /// Answers a request that is not usual. False: a line of keys has failed.
    #[inline(never)]
    fn answer(&self, turn: &mut Turn<'_, '_, '_, '_>) -> bool {
        let Staged { key, hint, .. } = self;
        if !matches!(self.ask, Ask::Get | Ask::MetaGet) {
            turn.again_at = self.at;
        }
        let Turn { cx, out, tally, .. } = &mut *turn;
        match self.ask {
            Ask::Get => return classic::fetch(cx, out, tally, key, hint, false, self.part.is_last()),
            Ask::Set(value) => self.set(turn, PlainSet { value, flags: 0, exptime: 0 }),
            Ask::SetWith(set) => self.set(turn, set),
            Ask::Add(delta) => classic::arithmetic(cx, out, key, delta, false, false),
            Ask::MetaGet => self.meta(turn, &[]),
            Ask::MetaSet(value) => self.meta(turn, value),
        }
        turn.cx.spend_beside(turn.out);
        true
    }

    fn set(&self, turn: &mut Turn<'_, '_, '_, '_>, set: PlainSet<'_>) {
        let PlainSet { value, flags, exptime } = set;
        let (verb, value_bytes, key) = (StoreVerb::Set, value.len() as u32, self.key.bytes());
        let store = Store { verb, noreply: false, flags, exptime, value_bytes, cas: 0, key };
        let done = classic::store(turn.cx, turn.out, &mut turn.tally, &self.key, &self.hint, &store, value);
        debug_assert!(done.is_ok(), "nothing is added");
    }

    /// Carries out a meta command, whose line is read again in full.
    fn meta(&self, turn: &mut Turn<'_, '_, '_, '_>, value: &[u8]) {
        let (meta, _) = decode_start(&turn.reader.input[self.at..]).expect("it was read before");
        turn.meta(&self.key, &self.hint, &meta, value);
    }
}
