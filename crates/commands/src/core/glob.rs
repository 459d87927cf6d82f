//! Patterns of KEYS, SCAN, PSUBSCRIBE, CONFIG GET and users' rules: `*`, `?`, `[a-z]`, `[^a]`, and `\` before a byte that stands
//! for itself.
//!
//! ```text
//! user:*:[0-9]?     user:  at the beginning     the pattern's parts between its stars,
//!                   :[0-9]?  at the end         those in the middle each where it comes first
//! ```
//!
//! Every part has one length, so that the first place where it fits is as good as any: nothing is tried twice. A part of
//! letters alone is searched for by `memmem`. Another part of few places is tried at each byte of the text, a longer one at 64
//! bytes at once. A pattern is read once for all texts, and each pair of brackets into a set of bytes, so that a text costs its
//! length, times a factor that [`Weight`] has, by which commands know their work before they begin. A text that takes long is
//! matched in steps ([`Pattern::match_some`]).

mod set;

use memchr::memmem;
use set::{One, Set, next, ones};

/// Most bytes of a pattern: as many as a key may have, so that each key can be named.
pub(crate) const PATTERN_BYTES_MAX: usize = 64 << 10;

/// Most bytes of a part that has more than letters.
const PART_BYTES_MAX: usize = 4096;

/// Most places of a part that is tried at each byte of the text.
const TRIED_PLACES_MAX: usize = 16;

/// Nanoseconds to see whether a text begins as a pattern does, beside the bytes compared.
const LOOK_NS: u64 = 10;
/// Bytes of text and pattern that are compared in a nanosecond.
const LETTERS_PER_NS: u64 = 2;
/// Nanoseconds to read a byte of a pattern.
const READ_NS: u64 = 6;
/// Nanoseconds to begin with a text.
const TEXT_NS: u64 = 20;
/// Nanoseconds to begin a search for letters.
const SEARCH_NS: u64 = 30;
/// Nanoseconds to note one byte of one place of a long part, which is looked for at 64 bytes at once.
const NOTE_NS: u64 = 2;

/// Returns whether neither the pattern nor one of its parts is longer than allowed.
pub(crate) fn is_bounded(pattern: &[u8]) -> bool {
    pattern.len() <= PART_BYTES_MAX
        || pattern.len() <= PATTERN_BYTES_MAX
            && parts(pattern, false).all(|part| part.plain || part.pattern.len() <= PART_BYTES_MAX)
}

/// Returns whether the whole `text` matches `pattern`. For many texts a [`Pattern`] is read once.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_counting(pattern, text, &mut 0)
}

/// Does what [`matches()`] does, and adds the time to `ns`: little where the text begins otherwise than the pattern.
pub(crate) fn matches_counting(pattern: &[u8], text: &[u8], ns: &mut u64) -> bool {
    let letters = pattern.iter().take_while(|byte| !matches!(byte, b'*' | b'?' | b'[' | b'\\')).count();
    *ns += LOOK_NS + letters as u64 / LETTERS_PER_NS;
    if !text.starts_with(&pattern[..letters]) {
        return false;
    }
    *ns += Weight::of(pattern).with_reading_ns(1, text.len() as u64);
    matches_once(pattern, text)
}

/// Matches part by part. Each part is read where it is looked for, and then forgotten: a match takes no more memory than the
/// longest part.
fn matches_once(pattern: &[u8], text: &[u8]) -> bool {
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut rest, mut sets, mut has_star) = (text, Vec::new(), false);
    for (n, part) in parts(pattern, false).enumerate() {
        sets.clear();
        if !part.plain {
            sets.extend(ones(part.pattern).map(|one| one.set(false)));
        }
        let sought = Sought::of(part.kind(), part.pattern, &sets);
        has_star = n > 0;
        let at = match n {
            0 => Some(0),
            _ if part.is_searched => sought.find(rest),
            _ => rest.len().checked_sub(part.places),
        };
        let Some(behind) = sought.behind(rest, at) else { return false };
        rest = behind;
    }
    // Behind a star is the end.
    has_star || rest.is_empty()
}

/// Bytes of memory that a [`Pattern`] takes, and a match with it.
pub(crate) fn heap_bytes(pattern: &[u8], any_case: bool) -> usize {
    let of_part = |part: Read<'_>| {
        let sets = if part.plain { 0 } else { part.places * size_of::<Set>() };
        let noted = if part.is_searched && part.kind() == Kind::Long { noted_bytes(part.places) } else { 0 };
        (sets + size_of::<Part>(), noted)
    };
    let each = parts(pattern, any_case).map(of_part);
    let (sum, most) = each.fold((0, 0), |(sum, most), (bytes, noted)| (sum + bytes, noted.max(most)));
    sum + most
}

/// Bytes of memory that a search for a long part of so many places takes.
fn noted_bytes(places: usize) -> usize {
    (2 + 256) * places.div_ceil(64) * size_of::<u64>()
}

/// The time that a pattern takes to match, at worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Nanoseconds to read it.
    pub read_ns: u64,
    /// Nanoseconds for each byte of a text.
    pub byte_ns: u64,
    /// Nanoseconds for each byte of a text so long that the beginnings of searches are counted apart.
    long_byte_ns: u64,
}

impl Weight {
    /// The weight of a pattern.
    pub fn of(pattern: &[u8]) -> Weight {
        parts(pattern, false).fold(Weight::of_bytes(pattern.len()), Weight::with)
    }

    /// The weight of a pattern that does not distinguish capital and small letters.
    pub fn of_any_case(pattern: &[u8]) -> Weight {
        parts(pattern, true).fold(Weight::of_bytes(pattern.len()), Weight::with)
    }

    fn of_bytes(pattern_bytes: usize) -> Weight {
        Weight { read_ns: pattern_bytes as u64 * READ_NS, byte_ns: 1, long_byte_ns: 1 }
    }

    /// Adds the weight of one of its parts.
    fn with(self, part: Read<'_>) -> Weight {
        let places = part.places as u64;
        let byte_ns = match part.kind() {
            _ if !part.is_searched || places == 0 => 0,
            Kind::Letters => 1 + SEARCH_NS / places,
            Kind::Short => 1 + places,
            // The text is as long at least.
            Kind::Long => 1 + places / 64 + NOTE_NS * if part.has_class { Set::NOTED_MAX } else { 8 },
        };
        let long_byte_ns = if matches!(part.kind(), Kind::Letters) { 1 } else { byte_ns };
        Weight {
            byte_ns: self.byte_ns.max(byte_ns),
            long_byte_ns: self.long_byte_ns.max(long_byte_ns),
            ..self
        }
    }

    /// Nanoseconds to match so many texts, of so many bytes together, once the pattern is read.
    pub fn ns(self, texts: u64, bytes: u64) -> u64 {
        texts.saturating_mul(TEXT_NS).saturating_add(bytes.saturating_mul(self.byte_ns))
    }

    /// Nanoseconds to match one text that is far longer than the pattern, once that is read. Each part of letters is a search
    /// of its own, and there are no more parts than bytes of the pattern.
    pub fn long_ns(self, text_bytes: u64) -> u64 {
        let searches_ns = self.read_ns / READ_NS * SEARCH_NS;
        TEXT_NS + searches_ns.saturating_add(text_bytes.saturating_mul(self.long_byte_ns))
    }

    /// Nanoseconds to look for a part in so many bytes of such a text.
    fn part_ns(self, bytes: usize) -> u64 {
        SEARCH_NS + (bytes as u64).saturating_mul(self.long_byte_ns)
    }

    /// Nanoseconds to match one text alone.
    pub fn at_once_ns(self, text_bytes: u64) -> u64 {
        LOOK_NS + self.with_reading_ns(1, text_bytes)
    }

    /// Nanoseconds to read the pattern, and to match so many texts.
    pub fn with_reading_ns(self, texts: u64, bytes: u64) -> u64 {
        self.read_ns.saturating_add(self.ns(texts, bytes))
    }
}

/// A pattern that was read.
#[derive(Debug)]
pub(crate) struct Pattern<'p> {
    pattern: &'p [u8],
    /// The bytes that are allowed at each place of parts that have more than letters.
    sets: Vec<Set>,
    /// The part in front of the first star.
    first: Part,
    /// The parts between two stars.
    middle: Vec<Part>,
    /// The part behind the last star; `None` if there is no star.
    last: Option<Part>,
    weight: Weight,
}

/// The progress of a match in steps ([`Pattern::match_some`]).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LookedAt {
    has_begun: bool,
    /// Number of parts between two stars that were found.
    parts: usize,
    /// The place in the text from which the next part is looked for.
    at: usize,
}

/// A part of a pattern, between two stars: letters of the pattern, or sets, from a place on.
#[derive(Clone, Copy, Debug)]
struct Part {
    kind: Kind,
    from: usize,
    places: usize,
}

/// The way in which a part is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Each byte of it stands for itself.
    Letters,
    /// It has few places.
    Short,
    /// It has many places.
    Long,
}

impl<'p> Pattern<'p> {
    /// Reads a pattern. It keeps at most 33 times the bytes of the pattern ([`heap_bytes`]).
    pub fn of(pattern: &'p [u8], any_case: bool) -> Pattern<'p> {
        let parts = || parts(pattern, any_case);
        let nothing = Part { kind: Kind::Letters, from: 0, places: 0 };
        let sets = parts().map(|part| if part.plain { 0 } else { part.places }).sum();
        let mut read = Pattern {
            pattern,
            sets: Vec::with_capacity(sets),
            first: nothing,
            middle: Vec::with_capacity(parts().filter(|part| part.is_searched && part.places > 0).count()),
            last: None,
            weight: Weight::of_bytes(pattern.len()),
        };
        for (n, part) in parts().enumerate() {
            read.weight = read.weight.with(part);
            let from = if part.plain { part.from } else { read.sets.len() };
            if !part.plain {
                read.sets.extend(ones(part.pattern).map(|one| one.set(any_case)));
            }
            let part = Part { kind: part.kind(), from, places: part.places };
            match n {
                0 => read.first = part,
                _ => read.middle.extend(read.last.replace(part).filter(|before| before.places > 0)),
            }
        }
        read
    }

    /// The time that it takes to match.
    pub fn weight(&self) -> Weight {
        self.weight
    }

    /// Returns whether the whole `text` matches.
    pub fn matches(&self, text: &[u8]) -> bool {
        // In Redis not even `**` matches an empty text: callers that want `*` to match it check that themselves.
        if text.is_empty() {
            return self.pattern.is_empty();
        }
        let Some(mut rest) = self.sought(self.first).behind(text, Some(0)) else { return false };
        let Some(last) = self.last else { return rest.is_empty() };
        for &part in &self.middle {
            let sought = self.sought(part);
            let Some(behind) = sought.behind(rest, sought.find(rest)) else { return false };
            rest = behind;
        }
        rest.len() >= last.places && self.sought(last).fits(&rest[rest.len() - last.places..])
    }

    /// Does what [`Pattern::matches`] does, for a text that takes long: works for about `ns_max`, and adds the time to `ns`.
    /// `None` if more of the text is to be looked at.
    pub fn match_some(
        &self,
        text: &[u8],
        looked: &mut LookedAt,
        (ns, ns_max): (&mut u64, u64),
    ) -> Option<bool> {
        if !looked.has_begun {
            if text.is_empty() {
                return Some(self.pattern.is_empty());
            }
            *ns += TEXT_NS + self.weight.part_ns(self.first.places);
            let Some(rest) = self.sought(self.first).behind(text, Some(0)) else { return Some(false) };
            *looked = LookedAt { has_begun: true, parts: 0, at: text.len() - rest.len() };
        }
        let rest = &text[looked.at..];
        let Some(last) = self.last else { return Some(rest.is_empty()) };
        while let Some(&part) = self.middle.get(looked.parts) {
            let (sought, rest) = (self.sought(part), &text[looked.at..]);
            let most = ns_max.saturating_sub(*ns) / self.weight.long_byte_ns;
            // The part begins within so many bytes, or behind them.
            let begins = usize::try_from(most).unwrap_or(usize::MAX).max(PART_BYTES_MAX);
            let window = rest.len().min(begins.saturating_add(part.places - 1));
            let found = sought.find(&rest[..window]);
            *ns += self.weight.part_ns(found.map_or(window, |at| at + part.places));
            match found {
                Some(at) => (looked.at, looked.parts) = (looked.at + at + part.places, looked.parts + 1),
                None if window == rest.len() => return Some(false),
                None => looked.at += begins,
            }
            if *ns >= ns_max && looked.parts < self.middle.len() {
                return None;
            }
        }
        let rest = &text[looked.at..];
        *ns += self.weight.part_ns(last.places);
        Some(rest.len() >= last.places && self.sought(last).fits(&rest[rest.len() - last.places..]))
    }

    fn sought(&self, part: Part) -> Sought<'_> {
        let places = part.from..part.from + part.places;
        match part.kind {
            Kind::Letters => Sought::Letters(&self.pattern[places]),
            Kind::Short => Sought::Short(&self.sets[places]),
            Kind::Long => Sought::Long(&self.sets[places]),
        }
    }
}

/// The letters or sets that a part looks for.
#[derive(Clone, Copy)]
enum Sought<'p> {
    Letters(&'p [u8]),
    Short(&'p [Set]),
    Long(&'p [Set]),
}

impl<'p> Sought<'p> {
    fn of(kind: Kind, letters: &'p [u8], sets: &'p [Set]) -> Sought<'p> {
        match kind {
            Kind::Letters => Sought::Letters(letters),
            Kind::Short => Sought::Short(sets),
            Kind::Long => Sought::Long(sets),
        }
    }

    fn places(self) -> usize {
        match self {
            Sought::Letters(letters) => letters.len(),
            Sought::Short(sets) | Sought::Long(sets) => sets.len(),
        }
    }

    /// The text behind the part, which begins at `at`; `None` if the part is not there.
    fn behind(self, text: &[u8], at: Option<usize>) -> Option<&[u8]> {
        let text = text.get(at?..)?;
        (text.len() >= self.places() && self.fits(text)).then(|| &text[self.places()..])
    }

    /// Returns whether the text begins with the part. The text is long enough.
    fn fits(self, text: &[u8]) -> bool {
        match self {
            Sought::Letters(letters) => text.starts_with(letters),
            Sought::Short(sets) | Sought::Long(sets) => fit(sets, text),
        }
    }

    /// The first place in the text where the part fits.
    fn find(self, text: &[u8]) -> Option<usize> {
        if self.places() > text.len() {
            return None;
        }
        match self {
            Sought::Letters(letters) => memmem::find(text, letters),
            Sought::Short(sets) => text.windows(sets.len()).position(|text| fit(sets, text)),
            Sought::Long(sets) => find_long(sets, text),
        }
    }
}

/// Returns whether each byte of the text is in the set of its place.
fn fit(sets: &[Set], text: &[u8]) -> bool {
    sets.iter().zip(text).all(|(set, &byte)| set.has(byte))
}

/// The first place in the text whose bytes are in all of the sets, one behind the other. Bit n of `state` says that the last n
/// + 1 bytes of the text are in the first sets (Shift-And).
fn find_long(sets: &[Set], text: &[u8]) -> Option<usize> {
    let words = sets.len().div_ceil(64);
    // The sets that have most bytes.
    let mut most = vec![0u64; words];
    for (n, set) in sets.iter().enumerate() {
        most[n / 64] |= u64::from(set.has_most()) << (n % 64);
    }
    // For each byte, the sets that have it.
    let mut places = most.repeat(256);
    for (n, set) in sets.iter().enumerate() {
        set.each_other(|byte| places[usize::from(byte) * words + n / 64] ^= 1 << (n % 64));
    }
    let last = 1 << ((sets.len() - 1) % 64);
    let mut state = vec![0u64; words];
    for (at, &byte) in text.iter().enumerate() {
        let mut carried = 1;
        let places = &places[usize::from(byte) * words..][..words];
        for (word, places) in state.iter_mut().zip(places) {
            let shifted = *word << 1 | carried;
            carried = *word >> 63;
            *word = shifted & places;
        }
        if state[words - 1] & last != 0 {
            return Some(at + 1 - sets.len());
        }
    }
    None
}

/// A part, as it is read from the pattern.
#[derive(Clone, Copy)]
struct Read<'p> {
    pattern: &'p [u8],
    /// Its place in the pattern.
    from: usize,
    /// Bytes of the text that it stands for.
    places: usize,
    /// Whether each byte of it stands for itself.
    plain: bool,
    has_class: bool,
    /// Whether it is between two stars.
    is_searched: bool,
}

impl Read<'_> {
    fn kind(&self) -> Kind {
        match self.places {
            _ if self.plain => Kind::Letters,
            0..=TRIED_PLACES_MAX => Kind::Short,
            _ => Kind::Long,
        }
    }
}

/// The parts of a pattern: one more than it has stars.
fn parts(pattern: &[u8], any_case: bool) -> impl Iterator<Item = Read<'_>> {
    let mut from = Some(0);
    std::iter::from_fn(move || {
        let begin = from?;
        let (mut at, mut places, mut plain, mut has_class) = (begin, 0, !any_case, false);
        from = loop {
            if pattern.get(at) == Some(&b'*') {
                break Some(at + 1);
            }
            let Some((one, bytes)) = next(&pattern[at..]) else { break None };
            plain &= bytes == 1 && matches!(one, One::Byte(_));
            has_class |= matches!(one, One::Class(_));
            at += bytes;
            places += 1;
        };
        let is_searched = begin > 0 && from.is_some();
        Some(Read { pattern: &pattern[begin..at], from: begin, places, plain, has_class, is_searched })
    })
}

#[cfg(test)]
mod tests {
    use super::set::tests::class_has;
    use super::*;
    use larder_testkit::timing::{at_most, timed};
    use proptest::prelude::*;
    use std::time::Duration;

    #[test]
    fn patterns_match_as_redis_matches_them() {
        for (pattern, text) in [
            ("", ""),
            ("*", "abc"),
            ("h?llo", "hello"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-c]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            ("a\\*b", "a*b"),
            ("*a*b*c*", "xxaxxbxxcxx"),
            ("[\\]]", "]"),
            ("[*]", "*"),
            ("a**b", "ab"),
            ("[abc", "b"),
            ("a\\", "a\\"),
            ("*ab?b", "abbabab"),
        ] {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            // In Redis KEYS * and SCAN of all keys do not ask.
            ("*", ""),
            ("h?llo", "hllo"),
            ("h[^e]llo", "hello"),
            ("h[^a-c]llo", "hbllo"),
            ("a\\*b", "axb"),
            ("*a", "ab"),
            ("a*a", "a"),
            ("*ab*ba*", "xabax"),
            ("[a-c]", "d"),
            ("ABC", "abc"),
        ] {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        assert!(Pattern::of(b"A[B-C]?", true).matches(b"abz"));
    }

    /// What a text comes to that is looked at for no longer than a step has to, and how many steps that takes.
    fn in_steps(pattern: &Pattern<'_>, text: &[u8]) -> (bool, usize) {
        let (mut looked, mut steps) = (LookedAt::default(), 0);
        loop {
            steps += 1;
            if let Some(is) = pattern.match_some(text, &mut looked, (&mut 0, 0)) {
                return (is, steps);
            }
        }
    }

    /// A step looks for a part where it begins at one of 4096 bytes: wherever it lies, and whatever comes before it, it is found.
    #[test]
    fn a_text_that_is_looked_at_in_steps_matches_as_it_does_at_once() {
        let mut bits = 1_u32;
        let mut bit = || {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b"ab"[(bits >> 31) as usize]
        };
        let text: Vec<u8> = (0..5 * PART_BYTES_MAX).map(|_| bit()).collect();
        let question = |from: usize, places: usize| {
            let part = text[from..from + places].iter().enumerate();
            part.map(|(n, byte)| if n % 3 == 1 { '?' } else { char::from(*byte) }).collect::<String>()
        };
        let letters = |from: usize, places: usize| {
            text[from..from + places].iter().copied().map(char::from).collect::<String>()
        };
        let mut longest = 0;
        for places in [60, 64, 65, 2000] {
            for at in [1, 2, 3].map(|n| n * PART_BYTES_MAX) {
                for from in [at - places - 1, at - places, at - places + 1, at - 1, at, at + 1] {
                    for part in [question(from, places), letters(from, places)] {
                        for pattern in [
                            format!("*{part}*"),
                            format!("{}*{part}*{}", letters(0, 9), question(text.len() - 9, 9)),
                            format!("*{}*{part}*", letters(from - 90, 70)),
                        ] {
                            let read = Pattern::of(pattern.as_bytes(), false);
                            let (is, steps) = in_steps(&read, &text);
                            assert!(is && read.matches(&text), "{places} {from} {}", &pattern[..20]);
                            longest = longest.max(steps);
                        }
                        for pattern in [format!("*{part}c*"), format!("*{part}*c")] {
                            let read = Pattern::of(pattern.as_bytes(), false);
                            assert!(!in_steps(&read, &text).0 && !read.matches(&text), "{places} {from}");
                        }
                    }
                }
            }
        }
        assert!((3..7).contains(&longest), "{longest}");
        for pattern in ["", "a", "*", "a*", "*a", "**", "?*?", "[ab]*[ab]"] {
            let read = Pattern::of(pattern.as_bytes(), false);
            for text in [&b""[..], b"a", b"ab", b"ba", &text[..]] {
                assert_eq!(in_steps(&read, text), (read.matches(text), 1), "{pattern} {}", text.len());
            }
        }
    }

    /// The meaning itself: a star stands for nothing, or for a byte and a star.
    fn plainly(pattern: &[u8], text: &[u8], any_case: bool) -> bool {
        match (pattern, next(pattern)) {
            ([b'*', rest @ ..], _) => {
                plainly(rest, text, any_case) || !text.is_empty() && plainly(pattern, &text[1..], any_case)
            }
            (_, None) => text.is_empty(),
            (_, Some((one, bytes))) => {
                !text.is_empty()
                    && match one {
                        One::Any => true,
                        One::Byte(byte) => class_has(&[b'\\', byte], text[0], any_case),
                        One::Class(inside) => class_has(inside, text[0], any_case),
                    }
                    && plainly(&pattern[bytes..], &text[1..], any_case)
            }
        }
    }

    proptest! {
        #[test]
        fn parts_that_are_searched_for_mean_what_the_pattern_means(
            pattern in "[ab*?\\[\\]^\\\\-]{0,12}",
            middle in "[ab?]{1,150}",
            text in "[abAB]{1,14}",
            around in "[ab]{0,80}",
            any_case: bool,
        ) {
            let is = Pattern::of(pattern.as_bytes(), any_case).matches(text.as_bytes());
            prop_assert_eq!(is, plainly(pattern.as_bytes(), text.as_bytes(), any_case));
            if !any_case {
                prop_assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), is);
            }
            let read = Pattern::of(pattern.as_bytes(), any_case);
            prop_assert_eq!(in_steps(&read, text.as_bytes()).0, is);
            // A long part is found where trying each place finds it.
            let text = [around.as_str(), &middle.replace('?', "a"), &around].concat();
            let part = Pattern::of(middle.as_bytes(), any_case);
            let places = part.first.places;
            let sought = part.sought(part.first);
            let tried = (0..=text.len() - places).find(|&at| sought.fits(&text.as_bytes()[at..]));
            prop_assert_eq!(sought.find(text.as_bytes()), tried);
        }
    }

    /// Patterns of 4 KiB that tempt to look at much, for texts of nothing but `a`.
    fn dear() -> Vec<String> {
        let most = PART_BYTES_MAX;
        vec![
            "a*".repeat(most / 2 - 1) + "b",
            "*".to_owned() + &"a".repeat(most - 3) + "b*",
            "*".to_owned() + &"?".repeat(most - 3) + "b*",
            "*".to_owned() + &"[a]".repeat(most / 3 - 2) + "b*",
            "*".to_owned() + &"a?".repeat(7) + "b*c",
            "*a?b".repeat(most / 4),
            "*".to_owned() + &"[^b]".repeat(most / 4 - 2) + "b*",
            "*[".to_owned() + &"b".repeat(most - 4) + "]*",
            "*[".to_owned() + &"x-y".repeat(most / 3 - 2) + "]*",
            "*[".to_owned() + &"x-y".repeat(most / 3 - 12) + "]" + &"?".repeat(20) + "*",
            "*".to_owned() + &"[\x01-\x7f]".repeat(most / 5 - 2) + "b*",
        ]
    }

    #[test]
    fn dear_patterns_match_nothing_and_weigh_what_is_said_of_them() {
        let (long, short) = (vec![b'a'; 64 << 10], [b'a'; 24]);
        for pattern in dear() {
            assert!(pattern.len() <= PART_BYTES_MAX && is_bounded(pattern.as_bytes()));
            let read = Pattern::of(pattern.as_bytes(), false);
            assert!(!read.matches(&long) && !read.matches(&short), "{:?}", &pattern[..8]);
            assert_eq!(read.weight(), Weight::of(pattern.as_bytes()));
        }
    }

    #[test]
    #[ignore = "time: a search has 500 ms"]
    fn no_pattern_takes_long() {
        let text = vec![b'a'; 64 << 10];
        for pattern in dear() {
            assert!(pattern.len() <= PART_BYTES_MAX && is_bounded(pattern.as_bytes()));
            println!("{:?}", &pattern[..8]);
            at_most(Duration::from_millis(500), || timed(|| assert!(!matches(pattern.as_bytes(), &text))));
        }
    }

    /// What is between brackets is read once, not for each text, nor for each of its bytes.
    #[test]
    #[ignore = "time: texts have 40 times what the pattern weighs"]
    fn many_texts_take_what_the_pattern_weighs() {
        let text = [b'a'; 24];
        for pattern in dear() {
            let texts = 20_000;
            let read = Pattern::of(pattern.as_bytes(), false);
            let match_all = || {
                let read = Pattern::of(pattern.as_bytes(), false);
                assert!((0..texts).all(|_| !read.matches(std::hint::black_box(&text))));
            };
            assert_eq!(read.weight(), Weight::of(pattern.as_bytes()));
            // Without optimization everything takes longer.
            let most = 40 * read.weight().with_reading_ns(texts, texts * text.len() as u64);
            println!("{:?}", &pattern[..8]);
            at_most(Duration::from_nanos(most), || timed(match_all));
        }
    }

    #[test]
    fn a_pattern_takes_no_more_memory_than_is_said() {
        let long = ["?", "*?", "?*", "[a]*", "\\a"].map(|some| some.repeat(PATTERN_BYTES_MAX / some.len()));
        for pattern in dear().into_iter().chain(long) {
            for any_case in [false, true] {
                let read = Pattern::of(pattern.as_bytes(), any_case);
                let noted = |part: &Part| if part.kind == Kind::Long { noted_bytes(part.places) } else { 0 };
                let takes = read.sets.capacity() * size_of::<Set>()
                    + read.middle.capacity() * size_of::<Part>()
                    + read.middle.iter().map(noted).max().unwrap_or(0);
                let said = heap_bytes(pattern.as_bytes(), any_case);
                assert!(
                    takes <= said && said <= 34 * PATTERN_BYTES_MAX + noted_bytes(PART_BYTES_MAX),
                    "{said}"
                );
            }
        }
    }

    #[test]
    fn a_pattern_weighs_what_its_dearest_part_does() {
        let per_byte = |pattern: &str| Weight::of(pattern.as_bytes()).byte_ns;
        assert_eq!(["", "*", "user:*", "[ab]??", "*user:*", "*[ab]??*"].map(per_byte), [1, 1, 1, 1, 7, 4]);
        assert_eq!(per_byte("*????*"), 5);
        assert!(per_byte(&format!("*{}*", "?".repeat(4090))) > 64);
        let letters = Weight::of(&[b'a'; 1000]).with_reading_ns(3, 50);
        assert_eq!(letters, 1000 * READ_NS + 3 * TEXT_NS + 50);
        assert!(!is_bounded(&[b'?'; PART_BYTES_MAX + 1]) && is_bounded(&[b'a'; PATTERN_BYTES_MAX]));
    }
}
