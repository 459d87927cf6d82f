//! The members tree of a sorted set: from a member's hash to its score.
//!
//! ```text
//! leaf    entries 2 │ payload bytes 2 │ shape 4 │ least hash 8 │ least score 8 │ arrays │ payload
//! arrays  hash − least, v × n │ (score − least) >> shift, w × n │ code 1 × n if any has its name        by hash
//! payload name …, of those that have it
//! shape   31 … 15 spare │ 14 named │ 13 whole │ 12 … 10 width of hashes │ 9 … 4 shift of scores │ 3 … 0 width of scores
//! ```
//!
//! 1. A hash is 40 bits of the member's seeded one. Keys of this tree are hashes, with 24 bits behind, of which the last 16
//!    number parts: a member that is too long for a leaf lies apart (`strings.rs`), and the leaf before its parts ends with
//!    its hash.
//! 2. Scores are whole numbers, if all of the leaf are, or words in their order (`scores.rs`);
//!    scores of neighbours are not alike.
//! 3. Members are not here: a reader looks in the scores tree whether the set has this member with the hash's score. If more
//!    than [`ALIKE_MAX`] members have had one score at once, each has its name here, too, as a leaf of a set would have it:
//!    so a walk through the hashes looks at no more than that many for a hash without a name (`ranked.rs`). A member that
//!    lies apart is always named, here and in the scores tree by the same bytes: its length, and the label of its parts,
//!    which has its hash.

use super::super::element::{self, APART, APART_BYTES, Element, LONG, Packed, extent};
use super::super::leaf::leaf_entries;
use super::super::scores::{Packing, Scores, score_of, word_of};
use super::{NODE_BYTES, ORDER_SHIFT};
use crate::arena::Arena;
use std::ops::Range;

/// Members of one score that may all be without a name. Tests have few.
pub(super) const ALIKE_MAX: usize = if cfg!(any(test, feature = "schedule")) { 3 } else { 16 };
/// Bits of an order that a hash does not have.
const HASH_SHIFT: u32 = 8;
/// Bits of a hash.
pub(super) const HASH_BITS: u32 = u64::BITS - ORDER_SHIFT - HASH_SHIFT;
/// Bytes before the arrays.
pub(in crate::collection) const HEAD_BYTES: usize = 24;
/// Room that is kept for the next leaf.
const KEPT_BYTES: usize = 64 << 10;
const KEPT_ENTRIES: usize = 1 << 10;
/// The code of an entry without a name.
const UNNAMED: u8 = u8::MAX;

const SHAPE_SHIFT: u32 = 4;
const SHAPE_HASHES: u32 = 10;
const SHAPE_WHOLE: u32 = 1 << 13;
const SHAPE_NAMED: u32 = 1 << 14;

/// The hash that goes with an order.
#[inline]
pub(super) fn hash_of(order: u64) -> u64 {
    order >> HASH_SHIFT
}

/// The least key of a hash.
#[inline]
pub(super) fn key_of(hash: u64) -> u64 {
    hash << (HASH_SHIFT + ORDER_SHIFT)
}

/// The hash of a member whose parts have keys behind this label.
pub(super) fn hash_by(label: u64) -> u64 {
    label >> (HASH_SHIFT + ORDER_SHIFT)
}

/// A score as a whole number, in order; none if it is not whole.
fn whole_of(word: u64) -> Option<u64> {
    let score = score_of(word);
    let number = score as i64;
    (number as f64 == score).then_some(number as u64 ^ 1 << 63)
}

/// The word of the score that is this whole number.
fn word_of_whole(whole: u64) -> u64 {
    word_of((whole ^ 1 << 63) as i64 as f64)
}

/// A leaf's parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Members<'a> {
    len: usize,
    whole: bool,
    hashes: Scores<'a>,
    scores: Scores<'a>,
    /// None if no entry has its name.
    codes: &'a [u8],
    payload: &'a [u8],
    bytes: usize,
}

/// What a leaf's first words say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    entries: usize,
    payload_bytes: usize,
    named: bool,
    whole: bool,
    hashes: Packing,
    scores: Packing,
}

impl Head {
    fn read(bytes: [u8; HEAD_BYTES]) -> Head {
        let word = |i: usize| u64::from_le_bytes(std::array::from_fn(|j| bytes[8 * i + j]));
        let shape = (word(0) >> 32) as u32;
        Head {
            entries: (word(0) & 0xffff) as usize,
            payload_bytes: (word(0) >> 16 & 0xffff) as usize,
            named: shape & SHAPE_NAMED != 0,
            whole: shape & SHAPE_WHOLE != 0,
            hashes: Packing { base: word(1), shift: 0, width: (shape >> SHAPE_HASHES & 7) as usize },
            scores: Packing { base: word(2), shift: shape >> SHAPE_SHIFT & 63, width: (shape & 15) as usize },
        }
    }

    fn write(&self) -> [u8; HEAD_BYTES] {
        let shape = self.scores.width as u32
            | self.scores.shift << SHAPE_SHIFT
            | (self.hashes.width as u32) << SHAPE_HASHES
            | if self.whole { SHAPE_WHOLE } else { 0 }
            | if self.named { SHAPE_NAMED } else { 0 };
        let first = self.entries as u64 | (self.payload_bytes as u64) << 16 | u64::from(shape) << 32;
        let mut bytes = [0; HEAD_BYTES];
        for (i, word) in [first, self.hashes.base, self.scores.base].into_iter().enumerate() {
            bytes[8 * i..][..8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Bytes of the leaf.
    pub(super) fn leaf_bytes(&self) -> usize {
        let each = self.hashes.width + self.scores.width + usize::from(self.named);
        HEAD_BYTES + each * self.entries + self.payload_bytes
    }
}

impl<'a> Members<'a> {
    /// The leaf at the start of `bytes`.
    fn of(bytes: &'a [u8]) -> Members<'a> {
        let (first, mut rest) = bytes.split_first_chunk().expect("a leaf has a head");
        let head = Head::read(*first);
        let n = head.entries;
        let mut take = |bytes: usize| rest.split_off(..bytes).expect("a leaf has all its parts");
        Members {
            len: n,
            whole: head.whole,
            hashes: Scores::Packed(head.hashes, take(n * head.hashes.width)),
            scores: Scores::Packed(head.scores, take(n * head.scores.width)),
            codes: take(if head.named { n } else { 0 }),
            payload: take(head.payload_bytes),
            bytes: head.leaf_bytes(),
        }
    }

    /// The leaf of a leaf node of a members tree; without entries, if it is a part of a member that lies apart.
    ///
    /// # Safety
    /// Such a node of this epoch is at the location.
    #[inline]
    pub(super) unsafe fn at(arena: &Arena, location: u64) -> Members<'a> {
        // SAFETY: the caller's obligation; its head says how long it is, and it never changes. That of a part is shorter.
        unsafe {
            let at = arena.at(location).add(NODE_BYTES);
            if leaf_entries(at.cast::<[u8; 8]>().read()) == 0 {
                return Members::none();
            }
            let bytes = Head::read(at.cast::<[u8; HEAD_BYTES]>().read()).leaf_bytes();
            Members::of(std::slice::from_raw_parts(at.as_ptr(), bytes))
        }
    }

    /// The leaf of a part.
    pub(super) fn none() -> Members<'a> {
        let none = Scores::Plain(&[]);
        Members { len: 0, whole: false, hashes: none, scores: none, codes: &[], payload: &[], bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn hash(&self, i: usize) -> u64 {
        self.hashes.at(i)
    }

    /// The word of a score.
    pub(super) fn word(&self, i: usize) -> u64 {
        let word = self.scores.at(i);
        if self.whole { word_of_whole(word) } else { word }
    }

    /// The entries of a hash.
    #[inline]
    pub(super) fn with_hash(&self, hash: u64) -> Range<usize> {
        let start = self.hashes.partition(self.len, |other| other < hash);
        let mut end = start;
        while end < self.len && self.hash(end) == hash {
            end += 1;
        }
        start..end
    }

    /// Where the name of an entry begins in the payload.
    fn offset(&self, i: usize) -> usize {
        self.codes[..i].iter().fold(0, |at, &code| at + name_bytes(code, &self.payload[at..]))
    }

    /// An entry's code, and what is behind the start of its name.
    fn packed(&self, i: usize) -> (u8, &'a [u8]) {
        match self.codes.get(i) {
            None | Some(&UNNAMED) => (UNNAMED, &[]),
            Some(&code) => (code, &self.payload[self.offset(i)..]),
        }
    }

    /// An entry's name, if it has it.
    pub(super) fn name(&self, i: usize) -> Option<Element<'a>> {
        let (code, payload) = self.packed(i);
        (code != UNNAMED).then(|| Element::read(code, payload).0)
    }

    /// True if an entry has this name; `None` if it has no name.
    pub(super) fn is_named(&self, i: usize, name: &Packed<'_>) -> Option<bool> {
        let (code, payload) = self.packed(i);
        (code != UNNAMED).then(|| name.is_at(code, payload))
    }

    /// Checks that it is what it says: as narrow as it can be, in order, names in their one form and no byte too many.
    ///
    /// # Panics
    /// If it is not so.
    pub(super) fn check(&self) {
        assert!(self.len > 0, "no leaf is empty");
        let mut built = MembersBuilder::default();
        built.load(self);
        assert!(built.entries.is_sorted_by_key(|entry| entry.hash), "hashes out of order");
        let payload: usize = built.entries.iter().map(|entry| entry.bytes as usize).sum();
        assert_eq!(payload, self.payload.len(), "bytes behind the last name");
        assert_eq!(built.bytes(0..self.len), self.bytes, "a leaf as narrow as it can be");
        for entry in &built.entries {
            let name = &built.payload[entry.at as usize..];
            let is_apart = entry.code == APART && entry.bytes as usize == APART_BYTES;
            assert!(
                entry.code == UNNAMED || is_apart || element::is_canonical(entry.code, name),
                "a name in its one form"
            );
        }
    }
}

/// Bytes of a name with this code at the start of `payload`.
fn name_bytes(code: u8, payload: &[u8]) -> usize {
    match code {
        UNNAMED => 0,
        LONG => extent(LONG, payload).1,
        code => element::bytes_by(code),
    }
}

/// An entry of a leaf that is being built.
#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: u64,
    word: u64,
    code: u8,
    /// Where its name is.
    at: u32,
    bytes: u32,
}

/// Bytes that an entry takes while a leaf is built.
pub(super) const ENTRY_BYTES: usize = size_of::<Entry>();

/// A leaf of a members tree that is being built. Its vectors stay for the next one.
#[derive(Debug, Default)]
pub(super) struct MembersBuilder {
    /// By hash.
    entries: Vec<Entry>,
    /// Names, in any order.
    payload: Vec<u8>,
}

impl MembersBuilder {
    /// Begins an empty leaf.
    pub(super) fn start(&mut self) {
        self.entries.clear();
        self.payload.clear();
    }

    /// Gives room back that few leaves need.
    pub(super) fn shrink(&mut self) {
        if self.payload.capacity() > KEPT_BYTES || self.entries.capacity() > KEPT_ENTRIES {
            self.start();
            self.payload.shrink_to(KEPT_BYTES);
            self.entries.shrink_to(KEPT_ENTRIES);
        }
    }

    /// Begins with what is in `leaf`.
    pub(super) fn load(&mut self, leaf: &Members<'_>) {
        self.start();
        self.append(leaf);
    }

    /// Adds all entries of a leaf, whose hashes are all above or all below those that are there.
    pub(super) fn append(&mut self, leaf: &Members<'_>) {
        let (old, base) = (self.entries.len(), self.payload.len());
        self.payload.extend_from_slice(leaf.payload);
        let mut at = 0;
        for i in 0..leaf.len {
            let code = leaf.codes.get(i).copied().unwrap_or(UNNAMED);
            let bytes = name_bytes(code, &leaf.payload[at..]);
            let (hash, word) = (leaf.hash(i), leaf.word(i));
            self.entries.push(Entry { hash, word, code, at: (base + at) as u32, bytes: bytes as u32 });
            at += bytes;
        }
        if let (Some(first), Some(last)) = (self.entries.first(), self.entries.last())
            && last.hash < first.hash
        {
            self.entries.rotate_left(old);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn hash(&self, i: usize) -> u64 {
        self.entries[i].hash
    }

    /// Adds an entry behind those of its hash.
    pub(super) fn insert(&mut self, hash: u64, word: u64, name: Option<&[u8]>) {
        let i = self.entries.partition_point(|entry| entry.hash <= hash);
        self.entries.insert(i, Entry { hash, word, code: UNNAMED, at: 0, bytes: 0 });
        if let Some(name) = name {
            self.set_name(i, name);
        }
    }

    /// Adds an entry behind all; they are put in order later ([`MembersBuilder::sort`]).
    pub(super) fn push(&mut self, hash: u64, word: u64, name: Option<&[u8]>) {
        self.entries.push(Entry { hash, word, code: UNNAMED, at: 0, bytes: 0 });
        if let Some(name) = name {
            self.set_name(self.entries.len() - 1, name);
        }
    }

    /// Adds the entry of a member that lies apart behind those of its hash.
    pub(super) fn insert_apart(&mut self, hash: u64, word: u64, packed: &[u8; APART_BYTES]) {
        let i = self.entries.partition_point(|entry| entry.hash <= hash);
        let entry = self.apart(hash, word, packed);
        self.entries.insert(i, entry);
    }

    /// Adds the entry of a member that lies apart behind all; they are put in order later ([`MembersBuilder::sort`]).
    pub(super) fn push_apart(&mut self, hash: u64, word: u64, packed: &[u8; APART_BYTES]) {
        let entry = self.apart(hash, word, packed);
        self.entries.push(entry);
    }

    fn apart(&mut self, hash: u64, word: u64, packed: &[u8; APART_BYTES]) -> Entry {
        let at = self.payload.len() as u32;
        self.payload.extend_from_slice(packed);
        Entry { hash, word, code: APART, at, bytes: APART_BYTES as u32 }
    }

    /// Puts entries that were pushed in order.
    pub(super) fn sort(&mut self) {
        self.entries.sort_by_key(|entry| entry.hash);
    }

    /// Finds the entry of a member with this score.
    pub(super) fn find(&self, hash: u64, word: u64, name: &[u8]) -> Option<usize> {
        let name = Packed::of(name);
        self.find_by(hash, word, |code, payload| name.is_at(code, payload))
    }

    /// Finds the entry of a member that lies apart.
    pub(super) fn find_apart(&self, hash: u64, packed: &[u8; APART_BYTES]) -> Option<usize> {
        let start = self.entries.partition_point(|entry| entry.hash < hash);
        let is_it = |entry: &Entry| {
            entry.code == APART && self.payload[entry.at as usize..].first_chunk() == Some(packed)
        };
        let found = self.entries[start..].iter().take_while(|entry| entry.hash == hash).position(is_it);
        found.map(|i| start + i)
    }

    /// As [`MembersBuilder::find`]; `is_name` says which name is the member's.
    fn find_by(&self, hash: u64, word: u64, is_name: impl Fn(u8, &[u8]) -> bool) -> Option<usize> {
        let start = self.entries.partition_point(|entry| entry.hash < hash);
        let alike = self.entries[start..].iter().take_while(|entry| entry.hash == hash).count();
        let there = &self.entries[start..start + alike];
        let is_it =
            |entry: &Entry| entry.code != UNNAMED && is_name(entry.code, &self.payload[entry.at as usize..]);
        // One without a name is as good as any other with this hash and score.
        let found = there
            .iter()
            .position(is_it)
            .or_else(|| there.iter().position(|entry| entry.code == UNNAMED && entry.word == word));
        found.map(|i| start + i)
    }

    /// Takes out the entry that is entry `i` of `other`, with its name; false if there is none.
    pub(super) fn remove_one_of(&mut self, other: &MembersBuilder, i: usize) -> bool {
        let Entry { hash, word, code, at, bytes } = other.entries[i];
        let name = &other.payload[at as usize..][..bytes as usize];
        let found =
            self.find_by(hash, word, |of, payload| of == code && payload.get(..name.len()) == Some(name));
        found.inspect(|i| self.remove(*i)).is_some()
    }

    /// Adds entry `i` of `other`, with its name, behind all; they are put in order later ([`MembersBuilder::sort`]).
    pub(super) fn push_one_of(&mut self, other: &MembersBuilder, i: usize) {
        let entry = other.entries[i];
        let at = self.payload.len() as u32;
        self.payload.extend_from_slice(&other.payload[entry.at as usize..][..entry.bytes as usize]);
        self.entries.push(Entry { at, ..entry });
    }

    /// Bytes of names.
    pub(super) fn payload_bytes(&self) -> usize {
        self.payload.len()
    }

    /// Gives an entry its name, if it has none.
    pub(super) fn set_name(&mut self, i: usize, name: &[u8]) {
        let entry = &mut self.entries[i];
        if entry.code != UNNAMED {
            return;
        }
        let packed = Packed::of(name);
        let at = self.payload.len();
        self.payload.resize(at + packed.bytes(), 0);
        packed.write(&mut self.payload[at..]);
        (entry.code, entry.at, entry.bytes) = (packed.code, at as u32, packed.bytes() as u32);
    }

    pub(super) fn remove(&mut self, i: usize) {
        self.entries.remove(i);
    }

    /// The first words of a leaf of these entries. Looks at all of them.
    pub(super) fn head(&self, range: Range<usize>) -> Head {
        let entries = &self.entries[range];
        let whole = entries.iter().all(|entry| whole_of(entry.word).is_some());
        Head {
            entries: entries.len(),
            payload_bytes: entries.iter().map(|entry| entry.bytes as usize).sum(),
            named: entries.iter().any(|entry| entry.code != UNNAMED),
            whole,
            hashes: Packing::unshifted(entries.iter().map(|entry| entry.hash)),
            scores: Packing::of_any(entries.iter().map(|entry| Entry::packed_word(entry, whole))),
        }
    }

    /// Bytes of a leaf of these entries.
    fn bytes(&self, range: Range<usize>) -> usize {
        self.head(range).leaf_bytes()
    }

    /// Finds the ends of the leaves that it is cut into. They are about equally long and no longer than `bytes_max`, unless
    /// entries of one hash are. A leaf with a hash that has parts ends with it. `head` is that of one leaf of all.
    pub(super) fn cut(&self, head: &Head, bytes_max: usize, ends: &mut Vec<usize>) {
        ends.clear();
        let all = head.leaf_bytes();
        let each = head.hashes.width + head.scores.width + usize::from(head.named);
        let most = if all <= bytes_max { all } else { all.div_ceil(all.div_ceil(bytes_max * 3 / 4).max(2)) };
        let (mut sum, mut parts_follow) = (HEAD_BYTES, false);
        for (i, entry) in self.entries.iter().enumerate() {
            let more = each + entry.bytes as usize;
            if i > 0 && (parts_follow || sum + more > most) && entry.hash != self.entries[i - 1].hash {
                ends.push(i);
                (sum, parts_follow) = (HEAD_BYTES, false);
            }
            sum += more;
            parts_follow |= entry.code == APART;
        }
        ends.push(self.len());
    }

    /// Writes a leaf of these entries, whose head is `head`, to `to`, which is as long as the leaf.
    pub(super) fn write(&self, range: Range<usize>, head: &Head, mut to: &mut [u8]) {
        debug_assert_eq!(to.len(), head.leaf_bytes());
        let mut next = |bytes: usize| to.split_off_mut(..bytes).expect("it is as long as the leaf");
        next(HEAD_BYTES).copy_from_slice(&head.write());
        let entries = &self.entries[range];
        let (hashes, scores) =
            (next(head.hashes.width * head.entries), next(head.scores.width * head.entries));
        for (i, entry) in entries.iter().enumerate() {
            head.hashes.write_one(entry.hash, i, hashes);
            head.scores.write_one(entry.packed_word(head.whole), i, scores);
        }
        if head.named {
            for (code, entry) in next(head.entries).iter_mut().zip(entries) {
                *code = entry.code;
            }
        }
        for entry in entries {
            let name = &self.payload[entry.at as usize..][..entry.bytes as usize];
            next(name.len()).copy_from_slice(name);
        }
    }
}

impl Entry {
    /// Its score as it lies in a leaf.
    fn packed_word(&self, whole: bool) -> u64 {
        if whole { whole_of(self.word).unwrap_or(0) } else { self.word }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::collection::LongText;

    const SCORES: [f64; 14] = [
        f64::NEG_INFINITY,
        f64::MIN,
        -9.3e18,
        -3.0,
        -0.5,
        0.0,
        5e-324,
        1.0,
        7.0,
        1e6,
        9_007_199_254_740_993.0,
        9_223_372_036_854_775_808.0,
        1e300,
        f64::INFINITY,
    ];

    #[test]
    fn whole_scores_come_back() {
        for score in SCORES {
            if let Some(whole) = whole_of(word_of(score)) {
                assert_eq!(word_of_whole(whole), word_of(score), "{score}");
            }
        }
        for whole in [-3.0, 0.0, 1.0, 1e6, 4_503_599_627_370_496.0, -9_223_372_036_854_775_808.0] {
            assert!(whole_of(word_of(whole)).is_some(), "{whole}");
        }
        for other in [0.5, f64::INFINITY, 1e300, 5e-324] {
            assert!(whole_of(word_of(other)).is_none(), "{other}");
        }
    }

    /// A leaf that was built, written and read has what was put in.
    #[test]
    fn what_is_written_is_read_whatever_the_hashes_scores_and_names_are() {
        let long = vec![b'x'; 300];
        let names: [&[u8]; 6] = [b"", b"a", b"17", b"-9000000000", &[b'y'; 63], &long];
        for seed in 1..400_u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut next = |n: u64| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random % n
            };
            let (spread, pick, named) = (1 << next(40), next(4), next(3));
            let mut builder = MembersBuilder::default();
            let mut wanted: Vec<(u64, u64, Option<Vec<u8>>)> = Vec::new();
            for _ in 0..1 + next(40) {
                let hash = 7 + next(spread);
                let score = match pick {
                    0 => SCORES[next(14) as usize],
                    1 => next(1000) as f64,
                    2 => 1.7e12 + next(1 << 20) as f64,
                    _ => next(1 << 50) as f64 / 1024.0,
                };
                let name = (next(3) < named).then(|| names[next(6) as usize]);
                builder.insert(hash, word_of(score), name);
                let at = wanted.partition_point(|other| other.0 <= hash);
                wanted.insert(at, (hash, word_of(score), name.map(<[u8]>::to_vec)));
            }
            let all = 0..builder.len();
            let mut bytes = vec![0; builder.bytes(all.clone())];
            builder.write(all.clone(), &builder.head(all), &mut bytes);
            let leaf = Members::of(&bytes);
            leaf.check();
            assert_eq!(leaf.bytes(), bytes.len());
            let text = |i| leaf.name(i).map(|name: Element<'_>| name.text(&mut [0; 20]).to_vec());
            let read: Vec<_> = (0..leaf.len()).map(|i| (leaf.hash(i), leaf.word(i), text(i))).collect();
            assert_eq!(read, wanted, "seed {seed}");
            for (i, (hash, word, name)) in wanted.iter().enumerate() {
                assert!(leaf.with_hash(*hash).contains(&i));
                let name = name.as_deref();
                assert_eq!(name.and_then(|name| leaf.is_named(i, &Packed::of(name))), name.map(|_| true));
                assert!(builder.find(*hash, *word, name.unwrap_or(b"")).is_some());
            }
            // Cut and joined it is the same again.
            let mut ends = Vec::new();
            builder.cut(&builder.head(0..builder.len()), 200, &mut ends);
            let mut joined = MembersBuilder::default();
            let mut start = 0;
            let mut parts = Vec::new();
            for &end in &ends {
                let mut bytes = vec![0; builder.bytes(start..end)];
                builder.write(start..end, &builder.head(start..end), &mut bytes);
                assert!(start == 0 || builder.hash(start) != builder.hash(start - 1));
                start = end;
                parts.push(bytes);
            }
            assert_eq!(start, builder.len());
            // From the last one on: as a leaf joins the one in front of it, too.
            for part in parts.iter().rev() {
                joined.append(&Members::of(part));
            }
            let all = 0..joined.len();
            let mut again = vec![0; joined.bytes(all.clone())];
            joined.write(all.clone(), &joined.head(all), &mut again);
            assert_eq!(again, bytes, "seed {seed}");
        }
    }

    /// Members that lie apart and have one hash are told apart by their labels, whatever their scores; a leaf ends behind the
    /// last that has their hash.
    #[test]
    fn members_apart_of_one_hash_are_found_by_their_labels_and_end_a_leaf() {
        let (one, other) = (word_of(1.0), word_of(2.5));
        let packed = |part: u64| LongText::packed(20_000, key_of(6) + part);
        let mut builder = MembersBuilder::default();
        builder.insert(9, one, None);
        builder.insert_apart(6, one, &packed(0));
        builder.insert(6, one, None);
        builder.insert_apart(6, other, &packed(29));
        builder.insert(5, other, Some(&b"named"[..]));
        let found = [0, 29, 58].map(|part| builder.find_apart(6, &packed(part)));
        assert_eq!(found, [Some(1), Some(3), None]);
        assert_eq!(builder.find_apart(5, &packed(0)), None);
        // One without a name is none of them.
        assert_eq!(builder.find(6, one, b"short"), Some(2));
        assert_eq!(builder.find(6, other, b"short"), None);
        let (all, mut ends) = (0..builder.len(), Vec::new());
        builder.cut(&builder.head(all.clone()), 1_000, &mut ends);
        assert_eq!(ends, [4, 5]);
        let mut bytes = vec![0; builder.bytes(all.clone())];
        builder.write(all.clone(), &builder.head(all), &mut bytes);
        let leaf = Members::of(&bytes);
        leaf.check();
        let label = |i| match leaf.name(i) {
            Some(Element::Apart(apart)) => Some(apart.label()),
            Some(Element::Text(_) | Element::Number(_)) | None => None,
        };
        let labels: Vec<Option<u64>> = leaf.with_hash(6).map(label).collect();
        assert_eq!(labels, [Some(key_of(6)), None, Some(key_of(6) + 29)]);
        let mut doomed = MembersBuilder::default();
        doomed.push_apart(6, other, &packed(29));
        doomed.push_apart(6, other, &packed(58));
        assert!(builder.remove_one_of(&doomed, 0));
        assert!(!builder.remove_one_of(&doomed, 1));
        let found = [0, 29].map(|part| builder.find_apart(6, &packed(part)));
        assert_eq!((found, builder.len()), ([Some(1), None], 4));
    }
}
