//! The members tree of a sorted set that is loaded: made when its scores tree is whole, in the order of hashes, so that each
//! leaf is made once or twice, however many there are.
//!
//! ```text
//! scores tree ─▶ leaf by leaf: members whose hashes are of one part are noted, in buckets
//!      ▲                                                                            │
//!      └── the next part ◀── bucket by bucket: sorted, put behind all others ◀──────┘
//! ```
//!
//! Nodes of a load do not move, so that a note may say where its member's leaf lies. Notes lie on the heap: a large set is
//! done in several parts, and for each the scores tree is gone through once. Members that lie apart are put into the members
//! tree when they come: others go between them.

use super::super::change::Declined;
use super::members::{ALIKE_MAX, HASH_BITS, MembersBuilder, hash_by, hash_of, key_of};
use super::{Edit, EditContext, Growth, leaf_at};
use crate::Store;
use crate::collection::{DIGITS_MAX, Element};

/// Parts of a large set.
const PARTS_MAX: u64 = 8;
/// Members that a part has at least, about, but for the only one.
const PART_MEMBERS_MIN: u64 = if cfg!(any(test, feature = "schedule")) { 200 } else { 64 << 10 };
/// Members of a bucket, about: so many are sorted at once.
const BUCKET_MEMBERS: u64 = if cfg!(any(test, feature = "schedule")) { 40 } else { 1 << 10 };
const BUCKETS_MAX: u64 = 1 << 11;
/// Leaves that are looked at at once.
const LEAVES_AT_ONCE: usize = if cfg!(any(test, feature = "schedule")) { 3 } else { 8 };
/// Members that are put in at once, and bytes of their names.
const MEMBERS_AT_ONCE: usize = if cfg!(any(test, feature = "schedule")) { 30 } else { 256 };
const NAMES_AT_ONCE: usize = 64 << 10;

/// What is noted of a member.
#[derive(Clone, Copy, Debug)]
struct Note {
    hash: u64,
    word: u64,
    /// The place of its leaf, which it is in, and whether the members tree has its name.
    location: u64,
    i: u16,
    is_named: bool,
}

impl Note {
    /// The member's name, in a set that is as it was when this was noted.
    fn name<'g>(&self, store: &'g Store) -> Element<'g> {
        // SAFETY: a leaf of the load's scores tree, which stays as it is until the members tree is made.
        unsafe { leaf_at(&store.arena, self.location) }.entry(usize::from(self.i)).name
    }
}

/// What is done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Leaves from this place on are looked at.
    Look(usize),
    /// A bucket is sorted.
    Sort(usize),
    /// Members of it, from this one on, are put in.
    Put(usize, usize),
    Done,
}

/// A members tree that is being made.
#[derive(Debug)]
pub(in crate::collection) struct LateMembers {
    parts: u64,
    part: u64,
    /// By hash.
    buckets: Vec<Vec<Note>>,
    stage: Stage,
    /// The score that came last, how many have had it, and where those are noted that have no names yet.
    word: u64,
    alike: usize,
    unnamed: Vec<(usize, usize)>,
}

/// How a set of so many members is divided: into parts, and each of them into buckets.
fn division(members: u64) -> (u64, u64) {
    let parts = (members / PART_MEMBERS_MIN).clamp(1, PARTS_MAX);
    (parts, (members / parts / BUCKET_MEMBERS).clamp(1, BUCKETS_MAX))
}

impl LateMembers {
    /// Bytes of the heap that it takes for so many members, about: vectors grow by doubling.
    pub(in crate::collection) fn heap_bytes(members: u64) -> usize {
        let (parts, buckets) = division(members);
        2 * (members / parts) as usize * size_of::<Note>() + buckets as usize * size_of::<Vec<Note>>()
    }

    /// For a set with so many members.
    pub(in crate::collection) fn new(members: u64) -> LateMembers {
        let (parts, buckets) = division(members);
        LateMembers {
            parts,
            part: 0,
            buckets: (0..buckets).map(|_| Vec::new()).collect(),
            stage: Stage::Look(0),
            word: 0,
            alike: 0,
            unnamed: Vec::with_capacity(ALIKE_MAX),
        }
    }

    /// Notes a member, if its hash is of this part.
    fn note(&mut self, note: Note) {
        if self.alike == 0 || note.word != self.word {
            (self.word, self.alike) = (note.word, 0);
            self.unnamed.clear();
        }
        self.alike += 1;
        if self.alike == ALIKE_MAX + 1 {
            for (bucket, i) in self.unnamed.drain(..) {
                self.buckets[bucket][i].is_named = true;
            }
        }
        let buckets = self.buckets.len() as u64;
        let at = (note.hash * (self.parts * buckets)) >> HASH_BITS;
        if at / buckets != self.part {
            return;
        }
        let (bucket, is_named) = ((at % buckets) as usize, self.alike > ALIKE_MAX);
        if !is_named {
            self.unnamed.push((bucket, self.buckets[bucket].len()));
        }
        self.buckets[bucket].push(Note { is_named, ..note });
    }

    /// Sorts a bucket.
    ///
    /// # Errors
    /// [`Declined::Twice`]: a member is there twice.
    fn sort(&mut self, store: &Store, bucket: usize) -> Result<(), Declined> {
        let notes = &mut self.buckets[bucket];
        notes.sort_unstable_by_key(|note| note.hash);
        let twice = notes.chunk_by(|one, other| one.hash == other.hash).any(|alike| {
            let name = |note: &Note| note.name(store);
            (1..alike.len()).any(|i| alike[..i].iter().any(|other| name(other) == name(&alike[i])))
        });
        if twice { Err(Declined::Twice) } else { Ok(()) }
    }
}

impl Edit {
    /// Makes some of the members tree, some 0.05 ms; true when all of it is made.
    ///
    /// # Errors
    /// [`Declined::Twice`]: a member is there twice. [`Declined::NoMemory`].
    pub(in crate::collection) fn make_members(
        &mut self,
        cx: &mut EditContext<'_>,
        late: &mut LateMembers,
    ) -> Result<bool, Declined> {
        late.stage = match late.stage {
            Stage::Look(place) => self.look_at_leaves(cx.store, late, place),
            Stage::Sort(bucket) => {
                late.sort(cx.store, bucket)?;
                Stage::Put(bucket, 0)
            }
            Stage::Put(bucket, from) => {
                let to = self.put_notes(cx, &late.buckets[bucket], from)?;
                if to < late.buckets[bucket].len() {
                    Stage::Put(bucket, to)
                } else {
                    late.buckets[bucket].clear();
                    match (bucket + 1 < late.buckets.len(), late.part + 1 < late.parts) {
                        (true, _) => Stage::Sort(bucket + 1),
                        (false, true) => {
                            late.part += 1;
                            Stage::Look(0)
                        }
                        (false, false) => {
                            late.buckets = Vec::new();
                            Stage::Done
                        }
                    }
                }
            }
            Stage::Done => Stage::Done,
        };
        Ok(late.stage == Stage::Done)
    }

    /// Notes members of some leaves of the scores tree, from `place` on.
    fn look_at_leaves(&self, store: &Store, late: &mut LateMembers, mut place: usize) -> Stage {
        for _ in 0..LEAVES_AT_ONCE {
            if place as u64 == self.elements {
                late.alike = 0;
                late.unnamed.clear();
                return Stage::Sort(0);
            }
            let at = self.place_of(store, place);
            let (leaf, location) = (self.leaf(store, &at.path), at.path.leaf);
            for (i, entry) in leaf.entries(0..leaf.len()).enumerate() {
                let hash = match &entry.name {
                    Element::Apart(apart) => hash_by(apart.label()),
                    name => hash_of(store.order_of(name.text(&mut [0; DIGITS_MAX]))),
                };
                let word = leaf.word(i);
                late.note(Note { hash, word, location, i: i as u16, is_named: false });
            }
            place = at.start + leaf.len();
        }
        Stage::Look(place)
    }

    /// Puts some of these behind all others into the members tree; returns up to which one.
    fn put_notes(
        &mut self,
        cx: &mut EditContext<'_>,
        notes: &[Note],
        from: usize,
    ) -> Result<usize, Declined> {
        let Some(first) = notes.get(from) else { return Ok(from) };
        // Where the scores grew says nothing of these.
        self.growth = Growth::Within;
        let (store, has_apart, mut to) = (cx.store, self.apart > 0, from);
        let mut put = |members: &mut MembersBuilder, high: Option<u64>| {
            let names = members.payload_bytes() + NAMES_AT_ONCE;
            while let Some(note) = notes.get(to).filter(|_| to - from < MEMBERS_AT_ONCE)
                && (to == from || members.payload_bytes() < names)
                && high.is_none_or(|high| key_of(note.hash) < high)
            {
                to += 1;
                if has_apart && matches!(note.name(store), Element::Apart(_)) {
                    // It is there since it came.
                    continue;
                }
                let name = note.is_named.then(|| note.name(store));
                let room = &mut [0; DIGITS_MAX];
                members.push(note.hash, note.word, name.as_ref().map(|name| name.text(room)));
            }
            if has_apart {
                members.sort();
            }
        };
        if self.beside == (0, 0) {
            self.plant_members_of(cx, |members| put(members, None))?;
        } else {
            self.change_members(cx, first.hash, put)?;
        }
        Ok(to)
    }
}
