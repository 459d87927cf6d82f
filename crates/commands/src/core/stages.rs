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

use arrayvec::ArrayVec;
use larder_store::{Guard, Hint, Key};

/// Keys of a group.
pub(crate) const GROUP: usize = 8;
/// Groups on their way: one in each stage.
const GROUPS: usize = 4;

/// A request of one key, which was hashed and looked for ahead.
pub(crate) trait Ahead<'w> {
    /// Its key, and what the stages find out about it.
    fn ahead(&mut self) -> (&Key<'_>, &mut Hint<'w>);
    /// It stores its key, whether that is there or not.
    fn stores(&self) -> bool;
}

/// Requests that go through the stages together.
struct Group<S> {
    slots: ArrayVec<S, GROUP>,
    /// A bit for each that has to be looked for again.
    again: u32,
}

/// All that are on their way.
pub(crate) struct Stages<S> {
    groups: [Group<S>; GROUPS],
    turn: usize,
    /// Turns until the last has been answered, once no more come.
    left: usize,
    /// No more come.
    ended: bool,
    keys: usize,
}

impl<'w, S: Ahead<'w>> Stages<S> {
    /// Nothing on its way.
    #[inline(always)]
    pub fn new() -> Stages<S> {
        let groups = std::array::from_fn(|_| Group { slots: ArrayVec::new(), again: 0 });
        Stages { groups, turn: GROUPS, left: GROUPS, ended: false, keys: 0 }
    }

    /// Moves every group on, and decodes the next one from `input` with `next`, which adds a request until it
    /// has no more. False: all have been answered.
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
        group.slots.clear();
        if !self.ended {
            group.decode(input, next);
            self.keys += group.slots.len();
            self.ended = !group.slots.is_full();
        }
        self.left -= usize::from(self.ended);
        self.groups[(turn - 1) % GROUPS].items(guard);
        self.groups[(turn - 2) % GROUPS].again(guard);
        true
    }

    /// The group that is to be answered in this turn.
    #[inline(always)]
    pub fn slots(&self) -> &[S] {
        // It has been decoded three turns ago, and its place is the next one's.
        &self.groups[self.turn % GROUPS].slots
    }

    /// No more come.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Keys that have come.
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
        // A copy that nobody else can see stays in registers.
        let mut from = input.clone();
        while !self.slots.is_full() && next(&mut from, &mut self.slots) {}
        *input = from;
    }

    #[inline(always)]
    fn items(&mut self, guard: &Guard<'w>) {
        self.again = 0;
        for (i, slot) in self.slots.iter_mut().enumerate() {
            let (key, hint) = slot.ahead();
            self.again |= u32::from(guard.prefetch_item(key, hint)) << i;
        }
    }

    #[inline(always)]
    fn again(&mut self, guard: &Guard<'w>) {
        while self.again != 0 {
            let slot = &mut self.slots[self.again.trailing_zeros() as usize];
            let stores = slot.stores();
            let (key, hint) = slot.ahead();
            guard.prefetch_again(key, hint);
            if stores {
                guard.prefetch_insert(key, hint);
            }
            self.again &= self.again - 1;
        }
    }
}
