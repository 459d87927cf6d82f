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
//! A processor waits for some ten to sixteen lines of memory at once. Groups of eight keys spread these loads over the work.
//! With a whole batch in one stage after the other the processor stood still.

use arrayvec::ArrayVec;
use larder_store::{Guard, Hint, Key};

use super::traffic::WATCHES;

/// Keys of a group.
pub(crate) const GROUP: usize = 8;
/// Groups on their way: one in each stage.
const GROUPS: usize = 4;

/// A request of one key that is hashed and looked for ahead.
pub(crate) trait Ahead<'w> {
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
    /// A bit for each request whose key is followed.
    followed: u32,
}

/// All groups on their way.
pub(crate) struct Stages<S> {
    groups: [Group<S>; GROUPS],
    turn: usize,
    /// Turns until the last group has been answered, once no more requests come.
    left: usize,
    /// Whether no more requests come.
    ended: bool,
    keys: usize,
    /// A key is followed if these bits of its hash are 0.
    mask: u64,
}

impl<'w, S: Ahead<'w>> Stages<S> {
    /// Stages with nothing on its way. A key is followed if the bits of `mask` are 0 in its hash.
    #[inline(always)]
    pub fn new(mask: u64) -> Stages<S> {
        let groups = std::array::from_fn(|_| Group { keys: ArrayVec::new(), again: 0, followed: 0 });
        Stages { groups, turn: GROUPS, left: GROUPS, ended: false, keys: 0, mask }
    }

    /// Moves every group on, and decodes the next one from `input` with `next`, which adds one request a call and returns false
    /// when there are no more. Returns false once all have been answered.
    #[inline(always)]
    pub fn turn<I: Clone>(
        &mut self,
        guard: &Guard<'w>,
        input: &mut I,
        next: impl FnMut(&mut I, &mut ArrayVec<S, GROUP>) -> bool,
    ) -> bool {
        if self.left == 0 {
            return false;
        }
        let turn = self.turn;
        self.turn += 1;
        let group = &mut self.groups[turn % GROUPS];
        group.keys.clear();
        if !self.ended {
            group.decode(input, next);
            self.keys += group.keys.len();
            self.ended = !group.keys.is_full();
        }
        self.left -= usize::from(self.ended);
        self.groups[(turn - 1) % GROUPS].items(guard, self.mask);
        self.groups[(turn - 2) % GROUPS].again(guard);
        true
    }

    /// The group that is to be answered in this turn.
    #[inline(always)]
    pub fn group(&self) -> &[S] {
        // It has been decoded three turns ago, and its place is the next one's.
        &self.groups[self.turn % GROUPS].keys
    }

    /// A bit for each request of that group whose key is followed.
    #[inline(always)]
    pub fn followed(&self) -> u32 {
        if WATCHES { self.groups[self.turn % GROUPS].followed } else { 0 }
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
    /// The first stage.
    #[inline(never)]
    fn decode<I: Clone>(
        &mut self,
        input: &mut I,
        mut next: impl FnMut(&mut I, &mut ArrayVec<S, GROUP>) -> bool,
    ) {
        // A copy that no other thread can see stays in registers.
        let mut from = input.clone();
        while !self.keys.is_full() && next(&mut from, &mut self.keys) {}
        *input = from;
    }

    #[inline(always)]
    fn items(&mut self, guard: &Guard<'w>, mask: u64) {
        (self.again, self.followed) = (0, 0);
        for (i, staged) in self.keys.iter_mut().enumerate() {
            let (key, hint) = staged.ahead();
            if WATCHES && key.hash() & mask == 0 {
                follow(&mut self.followed, i);
            }
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
fn follow(followed: &mut u32, nth: usize) {
    *followed |= 1 << nth;
}
