//! Long elements of lists that go from one list to another: their parts stay where they lie, and become another tree's.
//!
//! ```text
//! source  … │ its own leaf │ part │ part │ … │ part │ …      1. what is left is published without them; they are of no tree
//!                             ▼      ▼          ▼
//! target  … │ its own leaf │ part │ part │ … │ part │ …      2. each gets a key and the number of this tree, and is published
//! ```
//!
//! 1. A transaction holds both keys from before publication 1 until after publication 2: no other worker reads, writes,
//!    evicts or moves anything of them. A reader that has found one of the lists before goes on with what it has found: bytes
//!    of parts never change, and a part that leaves its next tree waits in limbo as any node.
//! 2. In between, the headers of the parts say that they are no nodes, like those of an unpublished edit: sweeps pass them over.
//! 3. A part keeps its pins: it may be on its way to clients all the time.
//! 4. The source stays a tree until the parts have left it: a root that took its place would take them with it. A list of one
//!    element keeps an empty string meanwhile, so that its key stays, in case the element has to come back.

use super::Type;
use super::change::Declined;
use crate::worker::Guard;
use crate::{End, Key};

/// An element that has left its list.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// Where its parts lie, in order.
    pub(super) parts: Vec<u64>,
    /// Bytes of it.
    pub(super) bytes: usize,
}

/// The other end.
fn across(end: End) -> End {
    match end {
        End::Front => End::Back,
        End::Back => End::Front,
    }
}

impl Guard<'_> {
    /// Moves the element at an end of a list to an end of another list, or to the other end of the same; false, and nothing
    /// done, if it does not lie apart, or it is the only one and the two keys are one. Its parts are not copied. Called in a
    /// transaction that holds both keys.
    ///
    /// # Errors
    /// [`Declined`], and nothing done. (Two cases differ, where no memory is found, not even what is kept for removals. An
    /// element that cannot be put back is lost. An element that was alone and came back has an empty string beside it, if
    /// what was left in its place cannot be taken out.)
    ///
    /// # Panics
    /// If there is no transaction.
    pub fn list_carry(
        &mut self,
        (from, from_end): (&Key<'_>, End),
        (to, to_end): (&Key<'_>, End),
    ) -> Result<bool, Declined> {
        assert!(self.in_transaction(), "both keys are held");
        // There are no more elements than there were.
        self.making_way(|guard| guard.carry((from, from_end), (to, to_end)))
    }

    fn carry(
        &mut self,
        (from, from_end): (&Key<'_>, End),
        (to, to_end): (&Key<'_>, End),
    ) -> Result<bool, Declined> {
        let turns = (from.number, from.bytes) == (to.number, to.bytes);
        let mut carried = Carried::default();
        let taken = self.change_collection(from, Type::List, |list| {
            let Some(last) = list.len().checked_sub(1) else { return Ok::<_, Declined>(None) };
            if turns && last == 0 {
                return Ok(None);
            }
            let place = if from_end == End::Front { 0 } else { last };
            let Some(parts) = list.spare_parts(place) else { return Ok(None) };
            carried = parts;
            if last == 0 {
                list.set_at(0, &[])?;
            } else {
                list.remove_places(place..place + 1, from_end, true)?;
            }
            Ok(Some(last == 0))
        })?;
        let Some(was_alone) = taken.answer else { return Ok(false) };
        let pushed = self.push_carried(to, to_end, &carried);
        let is_back = pushed.is_err() && self.push_carried(from, from_end, &carried).is_ok();
        if pushed.is_err() && !is_back {
            for part in carried.parts {
                self.local.retire_node(self.store, part);
            }
        }
        if was_alone {
            // What was left in its place: at the other end, where the element has come back.
            let (end, least) = if is_back { (across(from_end), 2) } else { (from_end, 1) };
            // With the store to itself this worker may have evicted it by now.
            if self.collection(from, Type::List)?.is_some_and(|list| list.len() >= least) {
                self.list_pop(from, end, 1)?;
            }
        } else if pushed.is_ok() {
            // A small tree goes back into its item, if there is memory.
            _ = self.change_collection(from, Type::List, |list| {
                list.shrink();
                Ok::<_, Declined>(())
            });
        }
        pushed.map(|()| true)
    }

    /// Puts an element that has left its list to an end of a list. If that is refused, its parts are still of no tree.
    fn push_carried(&mut self, key: &Key<'_>, end: End, carried: &Carried) -> Result<(), Declined> {
        self.change_collection(key, Type::List, |list| list.push_carried(end, carried))?;
        Ok(())
    }
}
