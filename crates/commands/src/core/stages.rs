//! Requests of one key on their way, some in each stage.
//!
//! ```text
//! turn     0  1  2  3  4 …      a group of keys goes through one stage a turn
//! decode   0  1  2  3  4 …      hash them, start loading their home buckets
//! items       0  1  2  3 …      start loading the items that the buckets name
//! again          0  1  2 …      … or that their other buckets name, or what a new key needs
//! answer            0  1 …      read or write, reply: the caller's
//! ```
//!
//! A processor waits for some ten to sixteen lines of memory at once. Groups of eight keys spread
//! these over the work; a whole batch's, one stage after the other, had it stand still.
//!
//! Some keys are looked at once more behind their answers, since they are sampled or followed ([`Tap`]). All groups but the last
//! are full, so that it is known from the beginning in which turn the next sample is answered; of a key that is followed it is
//! known when it is hashed. The turn in which there is something to do, a look or the end, is one number: no turn before it asks
//! for either.

use arrayvec::ArrayVec;
use larder_store::{Guard, Hint, Key};

use super::traffic::{Tap, WATCHES};

/// Keys of a group.
pub(crate) const GROUP: usize = 8;
/// Groups on their way: one in each stage.
const GROUPS: usize = 4;

/// A request of one key that is hashed and looked for ahead.
pub(crate) trait Ahead<'w> {
    /// Its key.
    fn key(&self) -> &Key<'_>;
    /// Its key, and what the stages find out about it.
    fn ahead(&mut self) -> (&Key<'_>, &mut Hint<'w>);
    /// Returns whether it stores its key, be that there or not.
    fn stores(&self) -> bool;
}

/// Requests that go through the stages together.
struct Group<S> {
    keys: ArrayVec<S, GROUP>,
    /// A bit for each request whose key is looked for again.
    again: u32,
    /// A bit for each whose key is followed, until a look behind their answers.
    followed: u32,
}

/// All groups on their way.
pub(crate) struct Stages<S> {
    groups: [Group<S>; GROUPS],
    turns: Turns,
    /// The last turn, once no more come.
    last: usize,
    /// No more come.
    ended: bool,
    /// Keys that have come, …
    keys: usize,
    /// … and those of them that were taken back.
    back: usize,
    /// What the tap has left, had it been so before the first of them came.
    left: i64,
    /// A key is followed if these bits of its hash are 0.
    mask: u64,
}

/// Turns by their numbers, of which the first is one more than there are groups.
struct Turns {
    now: usize,
    /// The one behind whose answers a look is due, or the end.
    due: usize,
}

impl Turns {
    /// The one in which the group is answered that is decoded now.
    #[inline(always)]
    fn of_decoded(&self) -> usize {
        self.now + GROUPS - 1
    }
}

/// The turn in which a run answers the key that is sampled when so many are left, that one counted.
#[inline(always)]
fn turn_of(left: i64) -> usize {
    2 * GROUPS + (left - 1).max(0) as usize / GROUP
}

impl<'w, S: Ahead<'w>> Stages<S> {
    /// Stages with nothing on its way. The run counts its keys for `tap`, which hears of them by [`Stages::looks`].
    #[inline(always)]
    pub fn new(tap: &Tap) -> Stages<S> {
        let groups = std::array::from_fn(|_| Group { keys: ArrayVec::new(), again: 0, followed: 0 });
        let (left, mask) = (tap.left(), tap.mask());
        let turns = Turns { now: GROUPS, due: if WATCHES { turn_of(left) } else { usize::MAX } };
        Stages { groups, turns, last: usize::MAX, ended: false, keys: 0, back: 0, left, mask }
    }

    /// Moves every group on, and decodes the next one from `input` with `next`, which adds a request until it
    /// has no more.
    #[inline(always)]
    pub fn turn<I: Clone>(
        &mut self,
        guard: &Guard<'w>,
        input: &mut I,
        next: impl FnMut(&mut I, &mut ArrayVec<S, GROUP>) -> bool,
    ) {
        debug_assert!((self.turns.now + 1..=self.last).contains(&self.turns.due), "it would never end");
        let turn = self.turns.now;
        self.turns.now += 1;
        let group = &mut self.groups[turn % GROUPS];
        group.keys.clear();
        if !self.ended {
            group.decode(input, self.mask, &mut self.turns, next);
            self.keys += group.keys.len();
            if !group.keys.is_full() {
                self.end();
            }
        }
        self.groups[(turn - 1) % GROUPS].items(guard);
        self.groups[(turn - 2) % GROUPS].again(guard);
    }

    /// No more come: the group that was decoded in this turn is the last.
    #[cold]
    fn end(&mut self) {
        self.ended = true;
        self.last = self.turns.of_decoded();
        self.turns.due = self.turns.due.min(self.last);
    }

    /// The group that is to be answered in this turn.
    #[inline(always)]
    pub fn group(&self) -> &[S] {
        // It has been decoded three turns ago, and its place is the next one's.
        &self.groups[self.turns.now % GROUPS].keys
    }

    /// Those of [`Stages::group`] that were answered: all but the last so many.
    #[inline(always)]
    pub fn answered(&self, unanswered: usize) -> &[S] {
        let group = self.group();
        &group[..group.len() - unanswered]
    }

    /// Whether something is to be done behind the answers of this turn: [`Stages::looks`], and unless the run is over then,
    /// [`Stages::go_on`].
    #[inline(always)]
    pub fn is_due(&self) -> bool {
        self.turns.now == self.turns.due
    }

    /// All have been answered.
    #[inline(always)]
    pub fn is_over(&self) -> bool {
        self.turns.now == self.last
    }

    /// Has `tap` know of what was answered, which is all of the group but the last so many: whether some of that is sampled, by
    /// [`Tap::next`], or followed. When it is due, and wherever a run is left.
    #[inline]
    pub fn looks(&self, tap: &Tap, unanswered: usize) -> bool {
        if !WATCHES {
            return false;
        }
        tap.set_left(self.left - self.all_answered(unanswered));
        tap.left() <= 0 || self.groups[self.turns.now % GROUPS].followed != 0
    }

    /// A bit for each of the group whose key is followed; none when asked again.
    pub fn take_followed(&mut self) -> u32 {
        std::mem::take(&mut self.groups[self.turns.now % GROUPS].followed)
    }

    /// Goes on to the next turn behind which something is to be done.
    #[cold]
    #[inline(never)]
    pub fn go_on(&mut self, tap: &Tap) {
        let followed = |turn: &usize| self.groups[turn % GROUPS].followed != 0;
        let now = self.turns.now;
        let followed = (now + 1..now + GROUPS).find(followed).unwrap_or(usize::MAX);
        self.left = tap.left().saturating_add(self.all_answered(0));
        // Where keys were taken back the turn that had the next sample may be this one.
        let sampled = if WATCHES { turn_of(self.left).max(now + 1) } else { usize::MAX };
        self.turns.due = sampled.min(followed).min(self.last);
    }

    /// Keys that were answered, all of the group but the last so many among them.
    #[inline]
    fn all_answered(&self, unanswered: usize) -> i64 {
        let group = |ahead: usize| &self.groups[(self.turns.now + ahead) % GROUPS];
        let behind: usize = (1..GROUPS).map(|ahead| group(ahead).keys.len()).sum();
        (self.keys - self.back - behind - unanswered) as i64
    }

    /// Takes the keys back that are on their way from the first on that is not one of those `kept`, since no more come.
    #[cold]
    pub fn take_back(&mut self, kept: impl Fn(&S) -> bool) {
        for group in &mut self.groups {
            let count = group.keys.partition_point(&kept);
            self.back += group.keys.len() - count;
            group.keys.truncate(count);
            group.again &= (1u32 << count) - 1;
        }
    }

    /// Returns whether no more requests come.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Number of keys that have come.
    #[inline]
    pub fn keys(&self) -> usize {
        self.keys
    }
}

impl<'w, S: Ahead<'w>> Group<S> {
    /// The first stage. The hash that was made just now is looked at, too: while it is at hand that is a comparison a key.
    #[inline(never)]
    fn decode<I: Clone>(
        &mut self,
        input: &mut I,
        mask: u64,
        turns: &mut Turns,
        mut next: impl FnMut(&mut I, &mut ArrayVec<S, GROUP>) -> bool,
    ) {
        debug_assert_eq!(self.followed, 0, "those that had this place before were looked at");
        // A copy that no other thread can see stays in registers.
        let mut from = input.clone();
        loop {
            let nth = self.keys.len();
            if nth == GROUP || !next(&mut from, &mut self.keys) {
                break;
            }
            if WATCHES
                && let Some(staged) = self.keys.get(nth)
                && staged.key().hash() & mask == 0
            {
                follow(&mut self.followed, nth, turns);
            }
        }
        *input = from;
    }

    #[inline(always)]
    fn items(&mut self, guard: &Guard<'w>) {
        self.again = 0;
        for (i, staged) in self.keys.iter_mut().enumerate() {
            let (key, hint) = staged.ahead();
            self.again |= u32::from(guard.prefetch_item(key, hint)) << i;
        }
    }

    #[inline(always)]
    fn again(&mut self, guard: &Guard<'w>) {
        while self.again != 0 {
            let staged = &mut self.keys[self.again.trailing_zeros() as usize];
            let stores = staged.stores();
            let (key, hint) = staged.ahead();
            guard.prefetch_again(key, hint);
            if stores {
                guard.prefetch_insert(key, hint);
            }
            self.again &= self.again - 1;
        }
    }
}

/// Notes a followed key. It is a call, so that the usual way is a branch that is not taken.
#[cold]
#[inline(never)]
fn follow(followed: &mut u32, nth: usize, turns: &mut Turns) {
    *followed |= 1 << nth;
    turns.due = turns.due.min(turns.of_decoded());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::traffic::{Delimiters, Traffic};
    use larder_store::Store;

    /// A key that is asked for, and its number in the run.
    struct Asked<'k, 'w> {
        key: Key<'k>,
        hint: Hint<'w>,
        nth: usize,
    }

    impl<'w> Ahead<'w> for Asked<'_, 'w> {
        fn key(&self) -> &Key<'_> {
            &self.key
        }
        fn ahead(&mut self) -> (&Key<'_>, &mut Hint<'w>) {
            (&self.key, &mut self.hint)
        }
        fn stores(&self) -> bool {
            false
        }
    }

    /// Hashes of keys that were sampled, and of those that were followed, in their order.
    #[derive(Debug, Default, PartialEq)]
    struct Seen {
        sampled: Vec<u64>,
        followed: Vec<u64>,
    }

    /// A tap that samples as any other that was made here, and its traffic.
    fn tap(store: &Store) -> (Traffic, Tap) {
        let (traffic, tap) = (Traffic::default(), Tap::default());
        traffic.draw_by(7);
        traffic.show(store, 1, 0, Delimiters::default());
        tap.tend(&traffic, store, 0);
        (traffic, tap)
    }

    /// Where a run ends.
    #[derive(Clone, Copy)]
    enum End {
        /// Behind its last key.
        Last,
        /// Where so many are answered, as when there is no room for more replies.
        Answered(usize),
        /// Where so many have come, as when the others turn out to be of a line that is not whole.
        TakenBack(usize),
    }

    fn look(stages: &mut Stages<Asked<'_, '_>>, tap: &Tap, unanswered: usize, seen: &mut Seen) {
        let followed = stages.take_followed();
        let group = stages.answered(unanswered);
        let is_followed = |nth: usize| followed >> nth & 1 == 1;
        let all = group.iter().enumerate().filter(|(nth, _)| is_followed(*nth));
        seen.followed.extend(all.map(|(_, asked)| asked.key.hash()));
        while let Some(asked) = tap.next(group.len()).and_then(|at| group.get(at)) {
            seen.sampled.push(asked.key.hash());
        }
    }

    /// Answers a run of these keys; how many of them.
    fn run(guard: &Guard<'_>, tap: &Tap, keys: &[Key<'_>], end: End, seen: &mut Seen) -> usize {
        let mut stages: Stages<Asked<'_, '_>> = Stages::new(tap);
        let (mut next, mut answered, mut is_taken) = (0usize, 0, false);
        loop {
            stages.turn(guard, &mut next, |next, group| {
                let Some(&key) = keys.get(*next) else { return false };
                group.push(Asked { key, hint: guard.prefetch_bucket(&key), nth: *next });
                *next += 1;
                true
            });
            if let End::TakenBack(from) = end
                && stages.has_ended()
                && !is_taken
            {
                stages.take_back(|asked| asked.nth < from);
                is_taken = true;
            }
            let most = if let End::Answered(most) = end { most } else { usize::MAX };
            let unanswered = (answered + stages.group().len()).saturating_sub(most);
            answered += stages.answered(unanswered).len();
            if (stages.is_due() || unanswered > 0) && stages.looks(tap, unanswered) {
                look(&mut stages, tap, unanswered, seen);
            }
            if unanswered > 0 {
                return answered;
            }
            if stages.is_due() {
                if stages.is_over() {
                    break;
                }
                stages.go_on(tap);
            }
        }
        assert_eq!(stages.keys(), keys.len());
        answered
    }

    #[test]
    fn keys_of_runs_are_sampled_and_followed_as_they_are_one_by_one() {
        let store = Store::new(<_>::default()).expect("a store");
        let names: Vec<String> = (0..60_000).map(|n| format!("key{n:05}")).collect();
        let keys: Vec<Key<'_>> = names.iter().map(|name| store.key(name.as_bytes())).collect();
        let (mut one_by_one, mut in_runs) = (Seen::default(), Seen::default());
        let ((_one, tap_of_one), (_other, tap_of_runs)) = (tap(&store), tap(&store));
        for key in &keys {
            if tap_of_one.pass(1) && tap_of_one.next(1).is_some() {
                one_by_one.sampled.push(key.hash());
            }
            // Which keys are followed is chance, and others by each tap.
            if tap_of_runs.follows(key) {
                one_by_one.followed.push(key.hash());
            }
        }
        let mut worker = store.worker().expect("a worker");
        let guard = worker.enter(0);
        let (mut at, mut nth) = (0, 0);
        while at < keys.len() {
            let length = [1, 7, 8, 9, 0, 24, 31, 200, 40, 33][nth % 10].min(keys.len() - at);
            let end = match nth % 7 {
                2 => End::Answered(length.saturating_sub(1 + nth % 20)),
                4 => End::TakenBack(length.saturating_sub(nth % 9)),
                _ => End::Last,
            };
            at += run(&guard, &tap_of_runs, &keys[at..at + length], end, &mut in_runs);
            nth += 1;
        }
        assert!((600..6_000).contains(&one_by_one.sampled.len()), "{}", one_by_one.sampled.len());
        assert!(!one_by_one.followed.is_empty());
        assert!(in_runs == one_by_one);
        assert_eq!(tap_of_runs.left(), tap_of_one.left());
    }
}
