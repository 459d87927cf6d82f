//! One element of a pattern, which stands for one byte of a text, and the set of bytes that it allows.

/// An element of a pattern: it stands for one byte of a text.
#[derive(Clone, Copy)]
pub(super) enum One<'p> {
    Any,
    Byte(u8),
    /// The text inside of the brackets.
    Class(&'p [u8]),
}

/// Reads the first element of a pattern, and how many bytes of the pattern it takes.
pub(super) fn next(pattern: &[u8]) -> Option<(One<'_>, usize)> {
    Some(match pattern {
        [] => return None,
        [b'?', ..] => (One::Any, 1),
        [b'[', rest @ ..] => {
            let bytes = class_bytes(rest);
            (One::Class(&rest[..bytes]), 1 + bytes)
        }
        [b'\\', escaped, ..] => (One::Byte(*escaped), 2),
        [byte, ..] => (One::Byte(*byte), 1),
    })
}

/// The elements of a part, one for each byte of the text.
pub(super) fn ones(mut part: &[u8]) -> impl Iterator<Item = One<'_>> {
    std::iter::from_fn(move || {
        let (one, bytes) = next(part)?;
        part = &part[bytes..];
        Some(one)
    })
}

impl One<'_> {
    pub fn set(self, any_case: bool) -> Set {
        match self {
            One::Any => Set::ALL,
            One::Byte(byte) => Set::of([(byte, byte)], any_case),
            One::Class(inside) => {
                let not = inside.first() == Some(&b'^');
                let mut rest = &inside[usize::from(not)..];
                let ranges = std::iter::from_fn(|| {
                    let (from, to, bytes) = range(rest)?;
                    rest = &rest[bytes..];
                    Some((from, to))
                });
                let set = Set::of(ranges, any_case);
                if not { set.others() } else { set }
            }
        }
    }
}

/// Reads the first range of the rest of a class: its first byte, its last byte, and how many bytes of the class say so.
fn range(class: &[u8]) -> Option<(u8, u8, usize)> {
    Some(match *class {
        [b'\\', escaped, ..] => (escaped, escaped, 2),
        [b']', ..] | [] => return None,
        [from, b'-', to, ..] => (from.min(to), from.max(to), 3),
        [byte, ..] => (byte, byte, 1),
    })
}

/// Bytes of a class that begins behind its bracket, with the bracket that ends it. Without that it ends with the pattern.
fn class_bytes(class: &[u8]) -> usize {
    let mut at = usize::from(class.first() == Some(&b'^'));
    while let Some((_, _, bytes)) = range(&class[at..]) {
        at += bytes;
    }
    at + usize::from(at < class.len())
}

/// A set of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Set([u64; 4]);

/// The bits of capital letters, in the word that also has the small ones.
const CAPITALS: u64 = ((1 << 26) - 1) << (b'A' - 64);

impl Set {
    const ALL: Set = Set([u64::MAX; 4]);
    /// Most bytes that a set has, or has not, whichever are fewer.
    pub const NOTED_MAX: u64 = 128;

    /// The bytes of ranges.
    fn of(ranges: impl IntoIterator<Item = (u8, u8)>, any_case: bool) -> Set {
        let mut words = [0; 4];
        for (from, to) in ranges {
            // In Redis the ends become small letters, too, and what is between them stays as it is.
            let fold = |byte: u8| if any_case { byte.to_ascii_lowercase() } else { byte };
            let (from, to) = (fold(from), fold(to));
            if from == to {
                words[usize::from(from / 64)] |= 1 << (from % 64);
                continue;
            }
            for (n, word) in (0..).zip(&mut words) {
                *word |= up_to(i32::from(to) - 64 * n) & !up_to(i32::from(from) - 64 * n - 1);
            }
        }
        if any_case {
            words[1] = words[1] & !CAPITALS | words[1] >> (b'a' - b'A') & CAPITALS;
        }
        Set(words)
    }

    fn others(self) -> Set {
        Set(self.0.map(|word| !word))
    }

    #[inline]
    pub fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte / 64)] >> (byte % 64) & 1 == 1
    }

    pub fn has_most(self) -> bool {
        self.0.iter().map(|word| word.count_ones()).sum::<u32>() > Set::NOTED_MAX as u32
    }

    /// Calls `look` with each byte that it has; if it has most bytes, with each that it has not.
    pub fn each_other(self, mut look: impl FnMut(u8)) {
        let some = if self.has_most() { self.others() } else { self };
        for (n, mut word) in (0u8..).zip(some.0) {
            while word != 0 {
                look(64 * n + word.trailing_zeros() as u8);
                word &= word - 1;
            }
        }
    }
}

/// The bits up to the nth, with it.
fn up_to(n: i32) -> u64 {
    match n {
        ..0 => 0,
        0..63 => (2 << n) - 1,
        63.. => u64::MAX,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The set of a class by its meaning, byte by byte.
    pub fn class_has(class: &[u8], byte: u8, any_case: bool) -> bool {
        let fold = |b: u8| if any_case { b.to_ascii_lowercase() } else { b };
        let not = class.first() == Some(&b'^');
        let (mut at, mut held) = (usize::from(not), false);
        loop {
            match class[at..] {
                [b'\\', one, ..] => (held, at) = (held | (fold(one) == fold(byte)), at + 2),
                [b']', ..] | [] => return held != not,
                [from, b'-', to, ..] => {
                    let (from, to) = (fold(from.min(to)), fold(from.max(to)));
                    (held, at) = (held | (from..=to).contains(&fold(byte)), at + 3);
                }
                [one, ..] => (held, at) = (held | (fold(one) == fold(byte)), at + 1),
            }
        }
    }

    proptest! {
        #[test]
        fn a_set_has_what_its_class_says(class in "[a-cX-Z@`{0\\\\^-]{0,8}", any_case: bool) {
            let pattern = format!("[{class}]");
            let set = ones(pattern.as_bytes()).next().expect("a class").set(any_case);
            for byte in 0..=255 {
                let says = class_has(&pattern.as_bytes()[1..], byte, any_case);
                prop_assert_eq!(set.has(byte), says, "{} of {}", byte, &pattern);
            }
        }
    }
}
