//! Is a history of overlapping calls linearizable? The search of Wing and Gong, which remembers what it has tried.
//!
//! ```text
//! thread 0   ├─ set 1 ─┤      ├─ get: 2 ─┤
//! thread 1        ├─── set 2 ───┤
//! order              set 1, set 2, get: 2          each call at one moment between its ends
//! ```
//!
//! 1. Of the calls that are not ordered yet, one may come next that began before any of the others ended.
//! 2. It may if the model, in the state reached, gives the outcome that was seen.
//! 3. If no order reaches the end, there is none. A state with a set of ordered calls is not tried twice.

use std::collections::HashSet;
use std::hash::Hash;

/// A call as it was seen.
#[derive(Clone, Debug)]
pub struct Call<O, R> {
    /// The thread that called.
    pub thread: usize,
    /// When it began, on one clock for all calls.
    pub began: u64,
    /// When it ended, on that clock.
    pub ended: u64,
    /// The operation.
    pub operation: O,
    /// Its outcome.
    pub outcome: R,
}

/// The right outcomes, one call at a time.
pub trait Model {
    /// The state that calls lead to.
    type State: Clone + Eq + Hash;
    /// The type of operations.
    type Operation;
    /// The type of outcomes.
    type Outcome;

    /// The state before any call.
    fn start(&self) -> Self::State;

    /// The state after this call, if it could have this outcome in this state.
    fn step(
        &self,
        state: &Self::State,
        thread: usize,
        operation: &Self::Operation,
        outcome: &Self::Outcome,
    ) -> Option<Self::State>;
}

/// True if the calls can be put in an order in which each has its outcome.
///
/// # Panics
/// If there are more than 64 calls.
pub fn is_linearizable<M: Model>(model: &M, calls: &[Call<M::Operation, M::Outcome>]) -> bool {
    assert!(calls.len() <= 64, "a short history");
    let all = if calls.len() == 64 { u64::MAX } else { (1 << calls.len()) - 1 };
    let mut tried = HashSet::new();
    let mut open = vec![(0u64, model.start())];
    while let Some((done, state)) = open.pop() {
        if done == all {
            return true;
        }
        if !tried.insert((done, state.clone())) {
            continue;
        }
        let left = || calls.iter().enumerate().filter(move |(i, _)| done >> i & 1 == 0);
        let first_end = left().map(|(_, call)| call.ended).min().expect("a call is left");
        for (i, call) in left().filter(|(_, call)| call.began < first_end) {
            if let Some(next) = model.step(&state, call.thread, &call.operation, &call.outcome) {
                open.push((done | 1 << i, next));
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One number; an operation sets it, or none reads it.
    struct Register;

    impl Model for Register {
        type State = u32;
        type Operation = Option<u32>;
        type Outcome = u32;
        fn start(&self) -> u32 {
            0
        }
        fn step(&self, state: &u32, _: usize, operation: &Option<u32>, outcome: &u32) -> Option<u32> {
            match operation {
                Some(n) => Some(*n),
                None => (state == outcome).then_some(*state),
            }
        }
    }

    fn call(began: u64, ended: u64, operation: Option<u32>, outcome: u32) -> Call<Option<u32>, u32> {
        Call { thread: 0, began, ended, operation, outcome }
    }

    #[test]
    fn read_during_a_write_sees_old_or_new() {
        for seen in [0, 1] {
            assert!(is_linearizable(&Register, &[call(0, 10, Some(1), 0), call(1, 2, None, seen)]));
        }
        assert!(!is_linearizable(&Register, &[call(0, 10, Some(1), 0), call(1, 2, None, 2)]));
    }

    #[test]
    fn read_after_a_write_sees_it() {
        assert!(!is_linearizable(&Register, &[call(0, 1, Some(1), 0), call(2, 3, None, 0)]));
    }

    #[test]
    fn two_reads_during_a_write_do_not_go_back() {
        let history = |one, two| [call(0, 10, Some(1), 0), call(1, 2, None, one), call(3, 4, None, two)];
        assert!(is_linearizable(&Register, &history(0, 1)));
        assert!(!is_linearizable(&Register, &history(1, 0)));
    }

    #[test]
    fn order_of_overlapping_writes_is_free_but_one() {
        let writes = [call(0, 10, Some(1), 0), call(0, 10, Some(2), 0)];
        let history = |one, two| [&writes[..], &[call(11, 12, None, one), call(13, 14, None, two)]].concat();
        assert!(is_linearizable(&Register, &history(1, 1)) && is_linearizable(&Register, &history(2, 2)));
        assert!(!is_linearizable(&Register, &history(1, 2)));
    }
}
