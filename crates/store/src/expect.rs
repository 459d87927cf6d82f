//! The condition of a write, and what came of it.

use crate::Millis;
use crate::collection::moves_of;
use crate::item::RawItem;
use crate::read::seen;

/// The condition under which a write happens; checked under the bucket's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Always.
    Any,
    /// Only if no live item has the key (`add`).
    Absent,
    /// Only if a live item has the key (`replace`).
    Present,
    /// Only if the live item's wire token equals this (`cas`).
    Cas(u64),
    /// Only if the live item is still exactly the one seen before.
    Unchanged(Seen),
}

/// Identity of one version of one item with its expiry, for [`Expect::Unchanged`]. Good within the guard it was made in. A
/// write that keeps the expiry reads it after this was made: so a change of the expiry alone, in between, is found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub(crate) location: u64,
    pub(crate) version: u32,
    pub(crate) token: u64,
    pub(crate) expires_at: Millis,
    /// How often a node of the tree that is being changed was moved by then; 0, which is not compared, without a tree.
    pub(crate) moves: u64,
}

/// Why a conditional write did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The key has no live item, and one was expected.
    Absent,
    /// The key has a live item, and none was expected.
    Present,
    /// The live item is another one than expected.
    Changed,
    /// The live item is a collection, and the write is one of strings.
    Type,
    /// No memory could be had (only without eviction, when everything is pinned, when long keys hold
    /// their share), or the key is longer than [`crate::KEY_BYTES_MAX`].
    NoMemory,
}

/// A write that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The wire token of the new item.
    pub cas: u64,
    /// A live item was overwritten.
    pub replaced: bool,
}

/// Checks that a live item (with its location), or its absence, is as expected.
pub(crate) fn check(expect: Expect, live: Option<(RawItem, u64)>, hash: u64) -> Result<(), Refusal> {
    match (expect, live) {
        (Expect::Any, _) | (Expect::Absent, None) | (Expect::Present, Some(_)) => Ok(()),
        (Expect::Absent, Some(_)) => Err(Refusal::Present),
        (Expect::Present | Expect::Cas(_) | Expect::Unchanged(_), None) => Err(Refusal::Absent),
        (Expect::Cas(wire), Some((raw, _))) if raw.token(hash) == wire => Ok(()),
        (Expect::Unchanged(was), Some((raw, at))) if is_unchanged(raw, at, hash, was) => Ok(()),
        (Expect::Cas(_) | Expect::Unchanged(_), Some(_)) => Err(Refusal::Changed),
    }
}

/// True if the item is the one that was seen, and no node of its tree was moved, where that was looked at.
#[inline]
fn is_unchanged(raw: RawItem, at: u64, hash: u64, was: Seen) -> bool {
    let is = seen(raw, at, hash);
    // SAFETY: reachable, under its home's lock.
    Seen { moves: was.moves, ..is } == was && (was.moves == 0 || unsafe { moves_of(raw) } == was.moves)
}
