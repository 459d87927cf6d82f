//! Commands that name many elements of one collection: some of their words at a time, between which others are served. How
//! many these are, and those that only look. Those that write are in `writing.rs`.
//!
//! ```text
//! HMGET h f1 … f1024 f1025 …  one moment, the first piece of the reply │ one moment, the next piece │ …
//! ```
//!
//! A long value is sent from where it lies, and counts with all its bytes in what is answered in one moment. In a transaction an
//! error stands in the place of one that is too long to be copied.
//!
//! A command of no more elements is one moment, and in EXEC all are. What would refuse any of the words of a write is found
//! before the first is written: some of them at a time are looked at.

use std::sync::Arc;

use larder_protocol::resp::{Args, HEAD_BYTES_MAX, parse_double};
use larder_store::{Collection, End, Fields, Hint, Key, Lasting, Millis, ScoreRule, Store, Type, Upload};

use super::fields::shown_time;
use super::sending::{is_sent, pinning_ns, put_or_send};
use super::{
    Call, ELEMENT_FRAME, ELEMENT_ROOM, FEW_ELEMENTS, LOOK_NS, Pairs, SCORE_ROOM, SCORED_NS, WRITE_NS,
    copied_bytes, geo, is_too_long, peek_as, read_as,
};
use crate::core::output::Output;
use crate::core::work::copying_ns;
use crate::redis::call::{ELEMENT_BYTES, REPLY_BYTES_FREE, has_room};
use crate::redis::clock::Clock;
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_array, put_double, put_fail, put_integer, put_null};
use crate::redis::source::Name;
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::{Kept, Place};
use crate::redis::steps::pieces::{MOMENT_BYTES, Piece};

/// Elements that are written in one step of several, at most.
pub(crate) const WRITES_AT_ONCE: usize = 512;
/// Members of a sorted set that are, each in two trees.
pub(crate) const SCORES_AT_ONCE: usize = 256;
/// Most elements that are put to an end of a list in one step of several.
pub(crate) const PUSHES_AT_ONCE: usize = 4 << 10;
/// Most bytes of these, about, for a command that has more in all than one step takes: some 0.5 ms.
const PUSHED_BYTES: usize = 256 << 10;
const PUSHED_BYTES_MAX: usize = MOMENT_BYTES as usize;
/// Bytes of fields that are set or replied in one moment, and of members that are put in, taken out or asked for, at most, of a
/// command that has more in all: as many as 512 of the longest have that lie in leaves, some 4 ms.
pub(super) const SET_BYTES_MAX: usize = 8 << 20;
/// How often a byte of a long member of a sorted set counts where it is looked for or taken out: it is compared with others of
/// its score, with some twenty of a million, which takes 0.1 ms each where a mebibyte is alike. So two of the longest that are
/// taken out are one moment, some 8 ms at worst.
pub(crate) const COMPARED_TIMES: usize = 4;
/// The same where it is put in: it may be there with another score, and is compared with others of both, with some forty. So one
/// of the longest is one moment, some 8 ms at worst.
pub(crate) const MOVED_TIMES: usize = 2 * COMPARED_TIMES;
/// Bytes of values that may be given back in one moment, at most, or one: 4,096 parts, some 0.5 ms.
const DROPPED_BYTES_MAX: usize = 64 << 20;
/// Work to come to a leaf that has something due.
pub(crate) const DUE_LEAF_NS: u64 = 100;
/// Fields that are set or replied in one moment, however long their values are, and members, however long they are, but for those
/// that are put into a sorted set: of these one is.
pub(super) const FIELDS_FEW: usize = 2;
/// Work to put an element to an end of a list, beside others.
pub(crate) const PUSH_NS: u64 = 100;
/// Work to put so many bytes of an element that was received into a collection, where they lie: a leaf, and its part of
/// the nodes above it.
const LINK_NS: u64 = 200;
const LINK_BYTES: u64 = 16 << 10;
/// Short elements that are written in one step if a command has no more: some 3 ms.
const SHORT_WRITES_MAX: usize = 2 << 10;
/// Short members of a sorted set that are written in one step.
const SHORT_SCORES_MAX: usize = 1 << 10;
/// Short elements of a list that are written in one step: some 2 ms.
const SHORT_PUSHES_MAX: usize = 16 << 10;
/// Elements that are looked for in one moment, at most.
pub(crate) const LOOKS_AT_ONCE: usize = 1 << 10;
/// Bytes of a piece of a reply behind the first, about.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes of a reply of one digit.
const ANSWER_BYTES: usize = 4;

/// Words that are looked at in one step before the first of them is written, at most.
const LOOKED_AT_ONCE: usize = 8 << 10;
/// Work to look how long one of them is.
const LENGTH_NS: u64 = 30;
/// Work to look whether it is a number, for words that have numbers among them.
const NUMBER_NS: u64 = 50;

/// What is done with the elements that words name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Write {
    /// They are put into a set.
    Add,
    /// Each has its value behind it: a hash has that then, for so long.
    Set(Lasting),
    /// Each has its score in front of it, which is a number: a sorted set has it by that rule then. What has changed
    /// counts, too.
    Score(ScoreRule, bool),
    /// The same of places, each of two numbers that are one.
    Place(ScoreRule, bool),
    /// They are taken out.
    Remove(Type),
    /// The same of fields.
    Drop,
    /// The same of fields with their values behind them, which these would have had until a time that has passed.
    Lapse,
    /// They are put to an end of a list, perhaps only if there is one, so many in one moment at most.
    Push { end: End, present: bool, at_once: usize },
}

impl Write {
    /// Fields get their values at `now`, and last for so long.
    pub(super) fn lasting(lasting: Lasting, now: Millis) -> Write {
        match lasting {
            Lasting::Until(at) if at <= now => Write::Lapse,
            Lasting::Never | Lasting::Keep | Lasting::Until(_) => Write::Set(lasting),
        }
    }

    /// These elements are put to an end of a list.
    pub fn push(end: End, present: bool, elements: Args<'_>) -> Write {
        let bytes = elements.encoded().len();
        let at_once = match elements.longest() as usize {
            _ if bytes <= PUSHED_BYTES_MAX => PUSHES_AT_ONCE,
            // Any of them may be the longest.
            longest if longest > ELEMENT_BYTES => PUSHED_BYTES_MAX / longest,
            _ => (PUSHED_BYTES / (bytes / elements.len().max(1) + 1)).max(FEW_ELEMENTS),
        };
        Write::Push { end, present, at_once: at_once.clamp(1, PUSHES_AT_ONCE) }
    }

    /// Words of an element.
    pub(super) fn words(self) -> usize {
        match self {
            Write::Add | Write::Remove(_) | Write::Drop | Write::Push { .. } => 1,
            Write::Set(_) | Write::Score(..) | Write::Lapse => 2,
            Write::Place(..) => 3,
        }
    }

    /// Does it as one moment; how many elements count.
    pub(super) fn run(
        self,
        call: &mut Call<'_, '_, '_>,
        key: &Key<'_>,
        words: Args<'_>,
    ) -> Result<usize, Fail> {
        let guard = &mut call.cx.guard;
        Ok(match self {
            Write::Add => guard.set_add(key, words)?,
            Write::Set(Lasting::Never) => guard.hash_set(key, Pairs(words))?,
            Write::Set(lasting) => {
                guard.hash_set_lasting(key, Pairs(words), Fields::Any, lasting)?;
                words.len() / 2
            }
            Write::Score(rule, changes) => {
                let pairs = Pairs(words).map(|(word, member)| (parse_double(word).unwrap_or(0.0), member));
                let scored = guard.sorted_add(key, rule, pairs)?;
                scored.new + if changes { scored.changed } else { 0 }
            }
            Write::Place(rule, changes) => {
                let scored = guard.sorted_add(key, rule, geo::scored(words))?;
                scored.new + if changes { scored.changed } else { 0 }
            }
            Write::Remove(kind) => guard.remove_named(key, kind, words)?,
            Write::Drop => guard.remove_named(key, Type::Hash, words)?,
            Write::Lapse => guard.remove_named(key, Type::Hash, Pairs(words).map(|(field, _)| field))?,
            Write::Push { end, present, .. } => guard.list_push(key, end, words, present)?,
        })
    }

    /// What is replied behind some, of which `more` count.
    pub(super) fn counted(self, count: usize, more: usize) -> usize {
        match self {
            // As many as there are then.
            Write::Push { .. } => more,
            Write::Add
            | Write::Set(_)
            | Write::Score(..)
            | Write::Place(..)
            | Write::Remove(_)
            | Write::Drop
            | Write::Lapse => count + more,
        }
    }

    /// The type of value that it is done to.
    pub(super) fn kind(self) -> Type {
        match self {
            Write::Add => Type::Set,
            Write::Set(_) | Write::Drop | Write::Lapse => Type::Hash,
            Write::Score(..) | Write::Place(..) => Type::SortedSet,
            Write::Remove(kind) => kind,
            Write::Push { .. } => Type::List,
        }
    }

    /// The elements are there then: memory is wanted for them, and a key that goes takes them with it.
    pub(super) fn puts(self) -> bool {
        match self {
            Write::Add | Write::Set(_) | Write::Score(..) | Write::Place(..) | Write::Push { .. } => true,
            Write::Remove(_) | Write::Drop | Write::Lapse => false,
        }
    }

    /// There is a key with them then, also if there was none.
    pub(super) fn makes(self) -> bool {
        match self {
            Write::Add | Write::Set(_) => true,
            Write::Score(rule, _) | Write::Place(rule, _) => !rule.present,
            Write::Push { present, .. } => !present,
            Write::Remove(_) | Write::Drop | Write::Lapse => false,
        }
    }

    /// Short elements that are written in one step if there are no more.
    pub(super) fn short_max(self) -> usize {
        match self {
            Write::Push { .. } => SHORT_PUSHES_MAX,
            Write::Score(..) | Write::Place(..) | Write::Remove(Type::SortedSet) => SHORT_SCORES_MAX,
            Write::Add | Write::Set(_) | Write::Remove(_) | Write::Drop | Write::Lapse => SHORT_WRITES_MAX,
        }
    }

    /// Elements of one step of several, at most, and what each takes.
    pub(super) fn moment(self) -> (usize, u64) {
        match self {
            Write::Push { at_once, .. } => (at_once, PUSH_NS),
            Write::Score(..) | Write::Place(..) | Write::Remove(Type::SortedSet) => {
                (SCORES_AT_ONCE, SCORED_NS)
            }
            Write::Add | Write::Set(_) | Write::Remove(_) | Write::Drop | Write::Lapse => {
                (WRITES_AT_ONCE, WRITE_NS)
            }
        }
    }

    /// How often each byte of a long element counts.
    fn times(self) -> usize {
        match self {
            Write::Score(..) | Write::Place(..) => MOVED_TIMES,
            Write::Remove(Type::SortedSet) => COMPARED_TIMES,
            Write::Add
            | Write::Set(_)
            | Write::Remove(_)
            | Write::Drop
            | Write::Lapse
            | Write::Push { .. } => 1,
        }
    }

    /// Bytes that these words count beside their own.
    pub(super) fn compared_bytes(self, words: Args<'_>) -> usize {
        if self.times() == 1 || words.encoded().len() <= ELEMENT_BYTES {
            return 0;
        }
        words.map(|word| counted_bytes(word.len(), self.times()) - word.len()).sum()
    }

    /// All its words have to be looked at before the first of them is written: there are numbers among them, or one may be too
    /// long.
    fn looks(self, words: Args<'_>, store: &Store) -> bool {
        let longest = words.longest() as usize;
        // The longest of words that were kept is not known.
        let fit = |kind| longest > 0 && store.elements_fit(kind, longest);
        match self {
            Write::Add => !fit(Type::Set),
            Write::Set(_) => !fit(Type::Hash),
            Write::Push { .. } => !fit(Type::List),
            Write::Score(..) | Write::Place(..) => true,
            Write::Remove(_) | Write::Drop | Write::Lapse => false,
        }
    }

    /// Work to look at a word so.
    fn look_ns(self) -> u64 {
        match self {
            Write::Score(..) | Write::Place(..) => NUMBER_NS,
            Write::Add
            | Write::Set(_)
            | Write::Push { .. }
            | Write::Remove(_)
            | Write::Drop
            | Write::Lapse => LENGTH_NS,
        }
    }

    /// What has to be a number is one.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn parse(self, words: Args<'_>) -> Done {
        match self {
            Write::Score(..) => {
                Pairs(words).try_for_each(|(word, _)| parse_double(word).map(drop).ok_or(Fail::NOT_A_FLOAT))
            }
            Write::Place(..) => geo::are_places(words),
            Write::Add
            | Write::Set(_)
            | Write::Push { .. }
            | Write::Remove(_)
            | Write::Drop
            | Write::Lapse => Ok(()),
        }
    }

    /// None of the elements is too long for any collection.
    fn fits(self, mut words: Args<'_>, store: &Store) -> bool {
        let fits = |kind, name: &[u8], value: &[u8]| store.element_fits(kind, name, value);
        match self {
            Write::Add => words.all(|member| fits(Type::Set, member, b"")),
            Write::Set(_) => Pairs(words).all(|(field, value)| fits(Type::Hash, field, value)),
            Write::Push { .. } => words.all(|element| fits(Type::List, element, b"")),
            Write::Score(..) => Pairs(words).all(|(_, member)| fits(Type::SortedSet, member, b"")),
            Write::Place(..) => geo::Places(words).all(|(_, _, member)| fits(Type::SortedSet, member, b"")),
            Write::Remove(_) | Write::Drop | Write::Lapse => true,
        }
    }
}

/// The look at all words of a command before the first of them is written.
#[derive(Debug)]
pub(super) struct Looking {
    at: Place,
    /// One of them is too long for any collection.
    is_too_long: bool,
}

impl Looking {
    /// At the words that are kept.
    pub fn at(kept: &Kept) -> Looking {
        Looking { at: kept.place(), is_too_long: false }
    }

    /// Looks at some more of them; true if there are no more.
    ///
    /// # Errors
    /// What is to be a number is none, or, when all were looked at, one was too long.
    pub fn step(&mut self, call: &mut Call<'_, '_, '_>, write: Write, kept: &Kept) -> Result<bool, Fail> {
        let timely = ((call.step_ns() / write.look_ns()) as usize).clamp(FEW_ELEMENTS, LOOKED_AT_ONCE);
        let count = timely / write.words() * write.words();
        let Looking { at, is_too_long } = self;
        let store = call.cx.guard.store();
        let looked = kept.walk(at, |words| {
            let some = first(words, count);
            write.parse(some)?;
            *is_too_long |= !write.fits(some, store);
            Ok::<_, Fail>(some.len())
        })?;
        call.spend(looked as u64 * write.look_ns());
        match self.at.left {
            0 if self.is_too_long => Err(Fail::COLLECTION_TOO_LARGE),
            left => Ok(left == 0),
        }
    }
}

/// How many of these sizes, from the first on, are no more than `bytes_max` together; [`WRITES_AT_ONCE`] at most.
fn fit(sizes: impl Iterator<Item = usize>, bytes_max: usize) -> usize {
    let mut bytes = 0;
    let beyond = sizes.take(WRITES_AT_ONCE).position(|size| {
        bytes += size;
        bytes > bytes_max
    });
    beyond.unwrap_or(WRITES_AT_ONCE)
}

/// What so many bytes of a member count where each of a long one does so often.
pub(super) fn counted_bytes(bytes: usize, times: usize) -> usize {
    if bytes > ELEMENT_BYTES { bytes.saturating_mul(times) } else { bytes }
}

/// How many members are put in or taken out in one moment, at most, from the first of these words on, of which each is the
/// last of so many; or, of up to `most`, asked for. `times`: as often as a byte of a long one counts.
pub(super) fn members_at_once(words: Args<'_>, each: usize, most: usize, times: usize) -> usize {
    match words.encoded().len() {
        few if few.saturating_mul(times) <= SET_BYTES_MAX => most,
        _ => {
            let sizes = words.skip(each - 1).step_by(each).map(|word| counted_bytes(word.len(), times));
            fit(sizes, SET_BYTES_MAX).clamp(if times > COMPARED_TIMES { 1 } else { FIELDS_FEW }, most)
        }
    }
}

/// How many of `count` fields of a hash, from the first on, have values of no more bytes together: where none can be longer
/// they are not looked at. [`WRITES_AT_ONCE`] at most.
pub(super) fn values_at_once<'p>(
    hash: Option<&Collection<'_>>,
    (fields, count): (impl Iterator<Item = &'p [u8]>, usize),
    bytes_max: usize,
) -> usize {
    match hash {
        Some(hash) if hash.longest_apart().saturating_mul(count.min(WRITES_AT_ONCE)) > bytes_max => {
            fit(fields.map(|field| hash.field(field).map_or(0, |value| value.len())), bytes_max)
        }
        Some(_) | None => WRITES_AT_ONCE,
    }
}

/// The first words of some, which are taken out.
pub(super) fn first<'a>(words: &mut Args<'a>, count: usize) -> Args<'a> {
    let some = Args::rest(words.encoded(), count.min(words.len()));
    if let Some(last) = some.len().checked_sub(1) {
        words.nth(last);
    }
    some
}

impl Call<'_, '_, '_> {
    /// Looks at all words before the first of them is written, if they are few or need no look; true if they are looked at in
    /// steps.
    ///
    /// # Errors
    /// What is to be a number is none, or one is too long.
    pub(super) fn look_ahead(&mut self, write: Write, words: Args<'_>) -> Result<bool, Fail> {
        let store = self.cx.guard.store();
        if !write.looks(words, store) {
            return Ok(false);
        }
        if words.len() > LOOKED_AT_ONCE {
            return Ok(true);
        }
        write.parse(words)?;
        if !write.fits(words, store) {
            return Err(Fail::COLLECTION_TOO_LARGE);
        }
        self.spend(words.len() as u64 * write.look_ns());
        Ok(false)
    }

    /// How many elements are written in one step of several, at most, from the first of these words on.
    pub(super) fn at_once(&mut self, write: Write, key: &Key<'_>, words: Args<'_>) -> usize {
        match write {
            Write::Set(_) => self.sets_at_once(key, words),
            Write::Drop => self.drops_at_once(key, words, words.len()),
            Write::Lapse => self.drops_at_once(key, Pairs(words).map(|(field, _)| field), words.len() / 2),
            Write::Add | Write::Score(..) | Write::Place(..) | Write::Remove(_) => {
                members_at_once(words, write.words(), write.moment().0, write.times())
            }
            Write::Push { .. } => write.moment().0,
        }
    }

    /// Fields that are set to the values behind them in one moment, at most, from the first of these words on.
    fn sets_at_once(&mut self, key: &Key<'_>, pairs: Args<'_>) -> usize {
        let written = match pairs.encoded().len() {
            few if few <= SET_BYTES_MAX => WRITES_AT_ONCE,
            _ => fit(Pairs(pairs).map(|(field, value)| field.len() + value.len()), SET_BYTES_MAX),
        };
        let dropped = self.drops_at_once(key, Pairs(pairs).map(|(field, _)| field), pairs.len() / 2);
        written.min(dropped).max(FIELDS_FEW)
    }

    /// Fields of a hash that may lose their values in one moment, from the first of `count` on: of long ones few, the parts of
    /// which all are given back.
    pub(super) fn drops_at_once<'p>(
        &mut self,
        key: &Key<'_>,
        fields: impl Iterator<Item = &'p [u8]>,
        count: usize,
    ) -> usize {
        // Two of the longest are one moment: 8,210 parts, some 1.2 ms.
        if count <= FIELDS_FEW {
            return WRITES_AT_ONCE;
        }
        let few = self.few_dropped(key);
        if count <= few {
            return WRITES_AT_ONCE;
        }
        let Some(bytes_max) = DROPPED_BYTES_MAX.checked_sub(self.due_bytes_max(key, count)) else {
            return few;
        };
        // What is of another type is refused when it is written to.
        let hash = peek_as(&mut self.cx.guard, key, Type::Hash).unwrap_or(None);
        values_at_once(hash.as_ref(), (fields, count), bytes_max).max(few)
    }

    /// Fields of a hash that may lose their values in one moment whichever they are: fewer where some value is too long to be
    /// copied.
    fn few_dropped(&mut self, key: &Key<'_>) -> usize {
        // What is of another type is refused when it is written to.
        let hash = peek_as(&mut self.cx.guard, key, Type::Hash).unwrap_or(None);
        match hash.map_or(0, |hash| hash.longest_apart()) {
            longest if is_too_long(longest) => (DROPPED_BYTES_MAX / longest).clamp(1, FEW_ELEMENTS),
            _ => FEW_ELEMENTS,
        }
    }

    /// Fields of a hash with which something may be done in one moment that gives back what is due in the same leaves: few, where
    /// that is much.
    pub(super) fn beside_due(&mut self, key: &Key<'_>, count: usize) -> usize {
        if self.due_bytes_max(key, count) > DROPPED_BYTES_MAX {
            self.few_dropped(key)
        } else {
            WRITES_AT_ONCE
        }
    }

    /// Bytes of long values that are due in leaves of a hash in which so many fields are, at most: what is due in a leaf goes
    /// with what is written there.
    fn due_bytes_max(&mut self, key: &Key<'_>, count: usize) -> usize {
        let hash = peek_as(&mut self.cx.guard, key, Type::Hash).unwrap_or(None);
        let Some(hash) = hash.filter(|hash| hash.longest_apart() > 0) else { return 0 };
        let (longest, bytes) = (hash.longest_apart(), hash.bytes());
        let (leaves, _) = hash.due_leaves(count.min(WRITES_AT_ONCE));
        self.spend(leaves as u64 * DUE_LEAF_NS);
        longest.saturating_mul(leaves).min(bytes)
    }

    /// Spends what it takes to copy so many bytes of elements, if that is much.
    pub(super) fn spend_on_bytes(&mut self, bytes: usize) {
        if bytes > ELEMENT_BYTES {
            self.spend(copying_ns(bytes as u64));
        }
    }

    /// Spends what it takes to put an element that was received into a collection.
    pub(super) fn spend_on_linking(&mut self, element: &Upload) {
        self.spend(LINK_NS * element.value_bytes().div_ceil(LINK_BYTES));
    }

    /// Spends what it takes to look for a member of a sorted set among others of its score, if it is long.
    pub(super) fn spend_on_comparing(&mut self, member: &[u8]) {
        self.spend_on_bytes(counted_bytes(member.len(), COMPARED_TIMES));
    }

    /// The same of one that gets a score, which may be another than it has.
    pub(super) fn spend_on_moving(&mut self, member: &[u8]) {
        self.spend_on_bytes(counted_bytes(member.len(), MOVED_TIMES));
    }

    /// How many writes what is left of the slice is for.
    pub(super) fn writes_of_a_step(&self) -> usize {
        ((self.step_ns() / WRITE_NS) as usize).clamp(FEW_ELEMENTS, WRITES_AT_ONCE)
    }

    /// How many elements what is left of the slice is for, where no more than `most` are written in one moment.
    pub(super) fn moment_of(&self, write: Write, most: usize) -> usize {
        let each_ns = write.moment().1;
        ((self.step_ns() / each_ns) as usize).clamp(FEW_ELEMENTS.min(most), most)
    }
}

/// What is replied of each of the elements that words name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// A field's value.
    Value,
    /// Whether a member is there.
    IsThere,
    /// A member's score.
    Score,
    /// When a field expires.
    Time(Clock),
}

impl Ask {
    fn kind(self) -> Type {
        match self {
            Ask::Value | Ask::Time(_) => Type::Hash,
            Ask::IsThere => Type::Set,
            Ask::Score => Type::SortedSet,
        }
    }

    /// Bytes of the answer to any word, at most.
    fn bytes_max(self, there: Option<&Collection<'_>>) -> usize {
        match self {
            Ask::Value => {
                let longest = |hash: &Collection<'_>| ELEMENT_BYTES.max(hash.longest_apart());
                there.map_or(0, |hash| hash.bytes().min(longest(hash))) + ELEMENT_ROOM
            }
            Ask::IsThere => ANSWER_BYTES,
            Ask::Score | Ask::Time(_) => SCORE_ROOM,
        }
    }

    /// The same of one word.
    fn bytes(self, there: Option<&Collection<'_>>, word: &[u8]) -> usize {
        match self {
            Ask::Value => {
                there.and_then(|hash| hash.field(word)).map_or(0, |value| value.len()) + ELEMENT_FRAME
            }
            Ask::IsThere | Ask::Score | Ask::Time(_) => self.bytes_max(there),
        }
    }

    /// The same of what is copied into a reply that sends nothing from where it lies.
    fn copied_bytes(self, there: Option<&Collection<'_>>, word: &[u8]) -> usize {
        let bytes = self.bytes(there, word);
        match self {
            Ask::Value => copied_bytes(bytes - ELEMENT_FRAME) + ELEMENT_FRAME,
            Ask::IsThere | Ask::Score | Ask::Time(_) => bytes,
        }
    }

    /// The same where long values are sent from where they lie: of what has to be in the reply, and of what is sent.
    fn split_bytes(self, there: Option<&Collection<'_>>, word: &[u8]) -> (usize, usize) {
        let bytes = self.bytes(there, word);
        let value_bytes = bytes - ELEMENT_FRAME;
        if is_sent(value_bytes) { (ELEMENT_FRAME, value_bytes) } else { (bytes, 0) }
    }

    /// Writes the answer to a word. With the collection's store a long value is sent from where it lies.
    fn put(
        self,
        out: &mut Output,
        (resp3, now): (bool, Millis),
        (there, store): (Option<&Collection<'_>>, Option<&Arc<Store>>),
        word: &[u8],
    ) {
        match self {
            Ask::Time(clock) => match there.and_then(|hash| hash.entry_named(word)) {
                None => put_integer(out, -2),
                Some(entry) if entry.expires_at == 0 => put_integer(out, -1),
                Some(entry) => put_integer(out, shown_time(entry.expires_at, now, clock)),
            },
            Ask::Value => match there.and_then(|hash| Some((hash, hash.field(word)?))) {
                Some((hash, value)) => put_or_send(out, hash, &value, store),
                None => put_null(out, resp3),
            },
            Ask::IsThere => put_integer(out, i64::from(there.is_some_and(|set| set.has(word)))),
            Ask::Score => match there.and_then(|set| set.score(word)) {
                Some(score) => put_double(out, resp3, score),
                None => put_null(out, resp3),
            },
        }
    }
}

/// How many of the words, `most` at most, are answered in `bytes_max` bytes, one at least; and in how many.
fn measure(
    ask: Ask,
    there: Option<&Collection<'_>>,
    words: Args<'_>,
    most: usize,
    bytes_max: usize,
) -> (usize, usize) {
    let (count, each) = (words.len().min(most), ask.bytes_max(there));
    if count.saturating_mul(each) <= bytes_max.min(REPLY_BYTES_FREE as usize) {
        return (count, count * each);
    }
    let (mut fit, mut bytes) = (0, 0);
    for word in words.take(most) {
        let more = ask.bytes(there, word);
        if fit > 0 && bytes + more > bytes_max {
            break;
        }
        (fit, bytes) = (fit + 1, bytes + more);
    }
    (fit, bytes)
}

impl Call<'_, '_, '_> {
    /// Replies of each of the elements that `words` name, piece by piece if they are many.
    ///
    /// # Errors
    /// The key has another type of value; there is no memory to keep the request, or, in EXEC, for the whole reply.
    pub fn ask_words(&mut self, key: &Key<'_>, hint: &Hint<'_>, mut words: Args<'_>, ask: Ask) -> Done {
        let mark = self.out.mark();
        read_as(self.cx, self.tally, key, hint, ask.kind())?;
        put_array(self.out, words.len());
        let piece = self.piece();
        self.answer_words(key, &mut words, ask, piece).inspect_err(|_| self.out.rewind(mark))?;
        if words.is_empty() {
            return Ok(());
        }
        let kept = Kept::new(self, words).inspect_err(|_| self.out.rewind(mark))?;
        let name = Name::kept(self, key.bytes()).inspect_err(|_| self.out.rewind(mark))?;
        self.go_on_with(Asking { name, ask, kept });
        Ok(())
    }

    /// Answers some words, as they are at one moment, and takes them out: one at least.
    fn answer_words(&mut self, key: &Key<'_>, words: &mut Args<'_>, ask: Ask, piece: Piece) -> Done {
        let looks = (self.step_ns() / LOOK_NS) as usize;
        let (mut most, mut bytes_max) = match piece {
            Piece::Whole => (usize::MAX, usize::MAX),
            Piece::First { .. } => (LOOKS_AT_ONCE, MOMENT_BYTES.min(self.reply_bytes_max()) as usize),
            Piece::Later => (looks.clamp(FEW_ELEMENTS, LOOKS_AT_ONCE), PIECE_BYTES),
        };
        let is_members = matches!(ask, Ask::IsThere | Ask::Score);
        if is_members && !matches!(piece, Piece::Whole) {
            // Long ones are compared with what is as long.
            most = members_at_once(*words, 1, most, 1);
        }
        let words_bytes = words.encoded().len();
        let sends = matches!(ask, Ask::Value) && !self.cx.guard.in_transaction();
        let (mut store, mut refused) = (None, false);
        loop {
            let (resp3, now) = (self.client.resp3, self.cx.now());
            // What is of another type by now has none of them.
            let there = peek_as(&mut self.cx.guard, key, ask.kind()).unwrap_or(None);
            if sends && store.is_none() && there.as_ref().is_some_and(|hash| is_sent(hash.longest_apart())) {
                store = Some(Arc::clone(self.cx.guard.store()));
                continue;
            }
            let (count, mut bytes) = measure(ask, there.as_ref(), *words, most, bytes_max);
            if let Some(store) = &store {
                let (mut own_bytes, mut sent_bytes) = (0, 0);
                for word in (*words).take(count) {
                    let (own, sent) = ask.split_bytes(there.as_ref(), word);
                    (own_bytes, sent_bytes) = (own_bytes + own, sent_bytes + sent as u64);
                }
                if sent_bytes > 0 && count > 1 && !store.may_pin(sent_bytes) {
                    // One alone may be sent.
                    bytes_max = 0;
                    continue;
                }
                bytes = own_bytes;
            } else if there.as_ref().is_some_and(|hash| is_too_long(hash.longest_apart())) {
                bytes = (*words).take(count).map(|word| ask.copied_bytes(there.as_ref(), word)).sum();
            }
            // The last one is written into room for the longest.
            let bytes = bytes + HEAD_BYTES_MAX;
            // One is written in any case, but for one that is longer than others may be.
            let fits = has_room(self.out, bytes);
            if fits || refused {
                let (before, all_before) = (self.out.own_bytes(), self.out.len());
                for word in first(words, count) {
                    if !fits && bytes > 2 * ELEMENT_BYTES {
                        put_fail(self.out, &Fail::HELD);
                        continue;
                    }
                    ask.put(self.out, (resp3, now), (there.as_ref(), store.as_ref()), word);
                }
                let written = self.out.own_bytes().saturating_sub(before);
                self.spend_on_looks(count);
                self.spend_on_bytes(written as usize);
                if store.is_some() {
                    let sent = (self.out.len() - all_before).saturating_sub(written);
                    self.spend(pinning_ns(sent));
                }
                if is_members {
                    self.spend_on_bytes(words_bytes - words.encoded().len());
                }
                return Ok(());
            }
            if let Err(fail) = self.make_room(bytes) {
                if matches!(piece, Piece::Whole) {
                    return Err(fail);
                }
                // For one alone there may be room.
                refused = bytes_max == 0;
                bytes_max = 0;
            }
        }
    }
}

/// A command that has answered some of its words.
#[derive(Debug)]
struct Asking {
    name: Name,
    ask: Ask,
    kept: Kept,
}

impl Job for Asking {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let Asking { name, ask, kept } = self;
        let key = name.key(call);
        kept.take(|words| call.answer_words(&key, words, *ask, Piece::Later))?;
        Ok(if self.kept.left() == 0 { Step::Done } else { Step::Full })
    }

    fn held_bytes(&self) -> u64 {
        self.kept.held_bytes()
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn spends_on_words(&self) -> bool {
        true
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}
