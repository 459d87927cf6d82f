//! One pattern of keys or channels. Nearly all are names, or `prefix*`: these are compared without a search for stars.
//!
//! ```text
//! app:*        word  a p p : 0 0 0 0        a name of eight bytes or more: (its first eight ^ word) & mask is 0
//!              mask  f f f f 0 0 0 0
//! session:1*   word  s e s s i o n :        … and behind them it goes on with the rest, here `1`
//!              mask  f f f f f f f f
//! ```
//!
//! Word and mask are made once, when the pattern is read. Shorter names are compared byte by byte, or by fours.

use crate::core::glob::{Weight, is_bounded, matches};

/// What a command does with a key, as far as rules distinguish it: a bit each for reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need(u8);

impl Need {
    /// Its value is neither read nor written: a look whether it is there, for example.
    pub const NOTHING: Need = Need(0);
    /// Its value is read.
    pub const READ: Need = Need(1);
    /// It is written, or removed.
    pub const WRITE: Need = Need(2);
    /// Both.
    pub const BOTH: Need = Need(3);

    /// All that either needs.
    pub const fn and(self, other: Need) -> Need {
        Need(self.0 | other.0)
    }

    /// Returns whether a user that may do this may also do `other`.
    #[inline]
    pub const fn covers(self, other: Need) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A pattern, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Glob {
    text: Box<[u8]>,
    kind: Kind,
}

/// Users hold up to a thousand patterns, and their bytes are counted.
const _: () = assert!(size_of::<Glob>() <= 40);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// One name.
    Exact(Head),
    /// Names that begin with all of it but its last byte, which is the star.
    Prefix(Head),
    /// Anything else. To match a name takes `ns`, and `byte_ns` for each of its bytes.
    Any { ns: u32, byte_ns: u32 },
}

/// Nanoseconds to compare a name with another or with a prefix, where no more than [`SHORT_BYTES`] are alike.
pub(crate) const COMPARE_NS: u64 = 5;
/// Bytes up to which the length of a comparison does not count.
const SHORT_BYTES: usize = 64;
/// Bytes of a longer comparison that take a nanosecond.
const BYTES_A_NS: usize = 32;

/// Bytes that are compared at once.
const HEAD_BYTES: usize = size_of::<u64>();

/// The first bytes of names, up to eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    word: u64,
    /// All bits of the bytes that are given.
    mask: u64,
}

impl Head {
    fn of(bytes: &[u8]) -> Head {
        let (mut word, mut mask) = ([0; HEAD_BYTES], [0; HEAD_BYTES]);
        for ((own, given), byte) in word.iter_mut().zip(&mut mask).zip(bytes) {
            (*own, *given) = (*byte, u8::MAX);
        }
        Head { word: u64::from_le_bytes(word), mask: u64::from_le_bytes(mask) }
    }

    /// Returns whether the name has eight bytes or more, and begins so.
    #[inline(always)]
    pub fn begins(self, name: &[u8]) -> bool {
        name.first_chunk().is_some_and(|first| self.has(*first))
    }

    /// Returns whether these bytes begin so.
    #[inline(always)]
    fn has(self, first: [u8; HEAD_BYTES]) -> bool {
        (u64::from_le_bytes(first) ^ self.word) & self.mask == 0
    }
}

/// The names of a pattern that is a name or a prefix. It says what [`Glob::matches`] says, in fewer steps where names are many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'g> {
    head: Head,
    /// No longer name is one of them.
    bytes_max: usize,
    /// The given bytes behind the first eight.
    rest: &'g [u8],
    glob: &'g Glob,
}

impl Names<'_> {
    /// Returns whether the name is one of them.
    #[inline(always)]
    pub fn have(&self, name: &[u8]) -> bool {
        let Some((first, behind)) = name.split_first_chunk() else { return self.have_short(name) };
        self.head.has(*first)
            && name.len() <= self.bytes_max
            && (self.rest.is_empty() || begins(behind, self.rest))
    }

    #[inline(never)]
    fn have_short(&self, name: &[u8]) -> bool {
        name.len() <= self.bytes_max && self.glob.matches(name)
    }
}

impl Glob {
    /// Reads a pattern. `None` if it is longer than one may be.
    pub fn new(text: &[u8]) -> Option<Glob> {
        if !is_bounded(text) {
            return None;
        }
        let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
        let kind = match text.iter().position(is_special) {
            None => Kind::Exact(Head::of(text)),
            Some(at) if text[at..] == *b"*" => Kind::Prefix(Head::of(&text[..at])),
            Some(_) => {
                let weight = Weight::of(text);
                let ns = weight.at_once_ns(0).saturating_add(weight.read_ns);
                let short = |ns: u64| u32::try_from(ns).unwrap_or(u32::MAX);
                Kind::Any { ns: short(ns), byte_ns: short(weight.byte_ns) }
            }
        };
        Some(Glob { text: text.into(), kind })
    }

    /// The pattern, as it was written.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns whether it is `*`.
    pub fn is_star(&self) -> bool {
        *self.text == *b"*"
    }

    /// Returns whether it is some bytes, or none, and a star behind them.
    pub fn is_prefix(&self) -> bool {
        matches!(self.kind, Kind::Prefix(_))
    }

    /// The first bytes of its names, if it is a prefix of no more than eight bytes: a name of eight or more needs no other
    /// comparison.
    pub fn head(&self) -> Option<Head> {
        match self.kind {
            Kind::Prefix(head) if self.text.len() <= HEAD_BYTES + 1 => Some(head),
            Kind::Prefix(_) | Kind::Exact(_) | Kind::Any { .. } => None,
        }
    }

    /// Returns whether it is a prefix, and the name begins with it.
    #[inline]
    pub fn is_prefix_of(&self, name: &[u8]) -> bool {
        matches!(self.kind, Kind::Prefix(head) if self.begins_name(head, name))
    }

    /// Returns whether the name begins with all of the text but the star.
    #[inline]
    fn begins_name(&self, head: Head, name: &[u8]) -> bool {
        let before_star = self.text.len() - 1;
        match name.split_first_chunk() {
            Some((first, behind)) => {
                head.has(*first)
                    && (before_star <= HEAD_BYTES || begins(behind, &self.text[HEAD_BYTES..before_star]))
            }
            None => self.begins_short(name),
        }
    }

    /// Does what [`Glob::begins_name`] does, for a name of less than eight bytes.
    #[inline(never)]
    fn begins_short(&self, name: &[u8]) -> bool {
        // In Redis no pattern but the empty one has the empty name.
        !name.is_empty() && begins(name, &self.text[..self.text.len() - 1])
    }

    /// Returns whether the name is as the pattern says.
    #[inline]
    pub fn matches(&self, name: &[u8]) -> bool {
        match self.kind {
            Kind::Exact(_) => name.len() == self.text.len() && begins(name, &self.text),
            Kind::Prefix(head) => self.begins_name(head, name),
            Kind::Any { .. } => matches(&self.text, name),
        }
    }

    /// Its names of at most `bytes_max` bytes, if it is a name or a prefix.
    #[inline]
    pub fn names(&self, bytes_max: usize) -> Option<Names<'_>> {
        let (head, bytes_max, end) = match self.kind {
            Kind::Exact(head) => (head, bytes_max.min(self.text.len()), self.text.len()),
            Kind::Prefix(head) => (head, bytes_max, self.text.len() - 1),
            Kind::Any { .. } => return None,
        };
        let rest = self.text.get(HEAD_BYTES..end).unwrap_or_default();
        Some(Names { head, bytes_max, rest, glob: self })
    }

    /// Returns whether the text is so long that to compare it may take more than [`COMPARE_NS`].
    pub fn is_long(&self) -> bool {
        self.text.len() > SHORT_BYTES
    }

    /// Most nanoseconds to compare a name of so many bytes.
    #[inline]
    pub fn cost_ns(&self, bytes: usize) -> u64 {
        match self.kind {
            Kind::Exact(_) | Kind::Prefix(_) if self.is_long() && bytes > SHORT_BYTES => {
                COMPARE_NS + (self.text.len().min(bytes) / BYTES_A_NS) as u64
            }
            Kind::Exact(_) | Kind::Prefix(_) => COMPARE_NS,
            Kind::Any { ns, byte_ns } => u64::from(ns) + u64::from(byte_ns) * bytes as u64,
        }
    }
}

/// Returns whether the name begins with these bytes. It takes few steps, since this is done for many keys: a call of `memcmp`
/// takes longer than to compare what a usual prefix has behind its first eight bytes.
#[inline]
fn begins(name: &[u8], prefix: &[u8]) -> bool {
    let Some(name) = name.get(..prefix.len()) else { return false };
    if let (Some(own), Some(wanted)) = (name.last_chunk::<8>(), prefix.last_chunk::<8>()) {
        // The last eight bytes, some of which are among the others, too.
        let mut words = name.as_chunks::<8>().0.iter().zip(prefix.as_chunks::<8>().0);
        return own == wanted && words.all(|(own, wanted)| own == wanted);
    }
    if let (Some(own), Some(wanted)) = (name.last_chunk::<4>(), prefix.last_chunk::<4>()) {
        return own == wanted && name.first_chunk::<4>() == prefix.first_chunk::<4>();
    }
    name.iter().zip(prefix).all(|(own, wanted)| own == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_pattern_says_what_the_glob_says() {
        let short = ["", "a", "app:", "app:1", "app:*", "ap", "b", "app:12", "*"];
        let long = ["session", "session:", "session:1", "session:12", "session:1234567", "sessions"];
        let texts =
            ["", "*", "**", "a*", "app:*", "app:?", "app:1", "app:\\*", "[ab]*", "*1", "a*1*", "app:**"];
        let long_texts =
            ["session", "session*", "session:", "session:*", "session:1", "session:1*", "session:12*", "s*1"];
        let mut named = 0;
        for text in texts.iter().chain(&long_texts) {
            let glob = Glob::new(text.as_bytes()).expect("short");
            let names = glob.names(usize::MAX);
            named += usize::from(names.is_some());
            for name in short.iter().chain(&long) {
                let says = matches(text.as_bytes(), name.as_bytes());
                assert_eq!(glob.matches(name.as_bytes()), says, "{text} {name}");
                if let Some(names) = names {
                    assert_eq!(names.have(name.as_bytes()), says, "{text} {name}");
                }
            }
        }
        assert_eq!(named, 12, "the others have a star, or the like, elsewhere than at their end");
    }

    #[test]
    fn a_pattern_has_no_name_of_more_bytes_than_were_asked_for() {
        let name = |bytes: usize| {
            let mut name = vec![b'x'; bytes];
            name[0] = b'k';
            name
        };
        for bytes_max in [3, 7, 8, 9, 20] {
            let prefix = Glob::new(b"k*").expect("short");
            for (bytes, is_one) in [(bytes_max - 1, true), (bytes_max, true), (bytes_max + 1, false)] {
                let exact = Glob::new(&name(bytes)).expect("short");
                for glob in [&prefix, &exact] {
                    let names = glob.names(bytes_max).expect("a name, or a prefix");
                    assert_eq!(names.have(&name(bytes)), is_one, "{bytes} of {bytes_max}");
                }
            }
        }
    }

    #[test]
    fn a_prefix_of_any_length_is_told_from_one_that_differs_in_any_byte() {
        let name: Vec<u8> = (b'a'..=b'z').collect();
        for bytes in 0..=name.len() {
            let prefix = Glob::new(&[&name[..bytes], b"*"].concat()).expect("short");
            let exact = Glob::new(&name[..bytes]).expect("short");
            let both = |glob: &Glob, name: &[u8]| {
                let says = glob.matches(name);
                assert_eq!(glob.names(usize::MAX).map(|names| names.have(name)), Some(says));
                says
            };
            for end in 0..=name.len() {
                // No prefix has the empty name.
                assert_eq!(both(&prefix, &name[..end]), end >= bytes && end > 0, "{bytes} {end}");
                assert_eq!(both(&exact, &name[..end]), end == bytes, "{bytes} {end}");
            }
            for at in 0..name.len() {
                let mut other = name.clone();
                other[at] ^= 1;
                assert_eq!(both(&prefix, &other), at >= bytes, "{bytes} {at}");
                assert_eq!(both(&exact, &other[..bytes]), at >= bytes, "{bytes} {at}");
            }
        }
    }

    #[test]
    fn long_names_and_prefixes_cost_more_where_a_key_is_long_too() {
        for (text_bytes, key_bytes, ns) in [
            (1, 8000, 5),
            (64, 8000, 5),
            (65, 64, 5),
            (65, 65, 7),
            (8000, 63, 5),
            (8000, 96, 8),
            (8000, 8000, 255),
            (64 << 10, 8000, 255),
        ] {
            let exact = Glob::new(&vec![b'a'; text_bytes]).expect("short");
            let mut text = vec![b'a'; text_bytes];
            text[text_bytes - 1] = b'*';
            let prefix = Glob::new(&text).expect("short");
            for glob in [exact, prefix] {
                assert_eq!(glob.cost_ns(key_bytes), ns, "{text_bytes} {key_bytes}");
                assert_eq!(glob.is_long(), text_bytes > 64);
            }
        }
    }

    #[test]
    fn a_pattern_is_no_longer_than_one_of_keys_may_be() {
        for (bytes, is_one) in [((64 << 10) - 1, true), (64 << 10, true), ((64 << 10) + 1, false)] {
            assert_eq!(Glob::new(&vec![b'a'; bytes]).is_some(), is_one);
        }
        assert!(Glob::new(&[b'?'; 4097]).is_none());
    }
}
