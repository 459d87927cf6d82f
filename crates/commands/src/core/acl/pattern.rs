//! One pattern of keys or channels. Nearly all are names, or `prefix*`: these are compared without a look for stars.

use crate::core::glob::{Weight, is_bounded, matches};

/// What a command does with a key, as far as rules distinguish it: a bit each for reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Need(u8);

impl Need {
    /// Neither its value is read nor written: only whether it is there, for example.
    pub const NOTHING: Need = Need(0);
    /// Its value is read.
    pub const READ: Need = Need(1);
    /// It is written, or removed.
    pub const WRITE: Need = Need(2);
    /// Both.
    pub const BOTH: Need = Need(3);

    /// What is needed by either.
    pub const fn and(self, other: Need) -> Need {
        Need(self.0 | other.0)
    }

    /// A user that may do this may do `other`.
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
    /// What it takes to match it, beside what each byte of a name takes.
    ns: u32,
    byte_ns: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The one name.
    Exact,
    /// Names that begin with so many bytes of it.
    Prefix(usize),
    /// Anything else.
    Any,
}

/// What it takes to compare a name with another, or with a prefix.
const COMPARE_NS: u32 = 5;

impl Glob {
    /// Reads a pattern; none if it is longer than one may be.
    pub fn new(text: &[u8]) -> Option<Glob> {
        if !is_bounded(text) {
            return None;
        }
        let is_special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
        let kind = match text.iter().position(is_special) {
            None => Kind::Exact,
            Some(at) if text[at..] == *b"*" => Kind::Prefix(at),
            Some(_) => Kind::Any,
        };
        let (ns, byte_ns) = match kind {
            Kind::Exact | Kind::Prefix(_) => (COMPARE_NS, 0),
            Kind::Any => {
                let weight = Weight::of(text);
                let ns = weight.at_once_ns(0).saturating_add(weight.read_ns);
                (u32::try_from(ns).unwrap_or(u32::MAX), u32::try_from(weight.byte_ns).unwrap_or(u32::MAX))
            }
        };
        Some(Glob { text: text.into(), kind, ns, byte_ns })
    }

    /// As it was written.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// It is `*`.
    pub fn is_star(&self) -> bool {
        self.kind == Kind::Prefix(0)
    }

    /// It is some bytes, or none, and a star behind them.
    pub fn is_prefix(&self) -> bool {
        matches!(self.kind, Kind::Prefix(_))
    }

    /// It is a prefix, which the name begins with.
    #[inline]
    pub fn is_prefix_of(&self, name: &[u8]) -> bool {
        // In Redis no pattern but the empty one has the empty name.
        matches!(self.kind, Kind::Prefix(bytes) if begins(name, &self.text[..bytes]) && !name.is_empty())
    }

    /// The name is as the pattern says.
    #[inline]
    pub fn matches(&self, name: &[u8]) -> bool {
        match self.kind {
            Kind::Exact => *self.text == *name,
            Kind::Prefix(_) => self.is_prefix_of(name),
            Kind::Any => matches(&self.text, name),
        }
    }

    /// What it takes to compare a name of so many bytes, at most.
    #[inline]
    pub fn cost_ns(&self, bytes: usize) -> u64 {
        u64::from(self.ns) + u64::from(self.byte_ns) * bytes as u64
    }
}

/// The name begins with these bytes. In few steps, for this is done for each key: a call of `memcmp` takes longer than it takes to
/// compare a usual prefix.
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
        let names: &[&[u8]] = &[b"", b"a", b"app:", b"app:1", b"app:*", b"ap", b"b", b"app:12", b"*"];
        for text in
            ["", "*", "**", "a*", "app:*", "app:?", "app:1", "app:\\*", "[ab]*", "*1", "a*1*", "app:**"]
        {
            let glob = Glob::new(text.as_bytes()).expect("short");
            for name in names {
                let says = matches(text.as_bytes(), name);
                assert_eq!(glob.matches(name), says, "{text} {}", String::from_utf8_lossy(name));
            }
        }
    }

    #[test]
    fn a_prefix_of_any_length_is_told_from_one_that_differs_in_any_byte() {
        let name: Vec<u8> = (b'a'..=b'z').collect();
        for bytes in 0..=name.len() {
            let prefix = Glob::new(&[&name[..bytes], b"*"].concat()).expect("short");
            for end in 0..=name.len() {
                // No prefix has the empty name.
                assert_eq!(prefix.matches(&name[..end]), end >= bytes && end > 0, "{bytes} {end}");
            }
            for at in 0..name.len() {
                let mut other = name.clone();
                other[at] ^= 1;
                assert_eq!(prefix.matches(&other), at >= bytes, "{bytes} {at}");
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
