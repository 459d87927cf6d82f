//! Patterns of SORT: the keys that BY and GET name for an element.
//!
//! ```text
//! weight_*         the string of weight_<element>
//! user:*->name     the field name of the hash user:<element>
//! #                the element, for GET
//! ```
//!
//! Only the first `*` stands for the element. As in Redis, what is searched of a pattern ends at its first NUL.

use std::ops::Range;

use larder_store::{Collection, DIGITS_MAX, Element, Item, LongText, Type, Value};

use crate::core::context::Context;
use crate::core::tally::Tally;
use crate::redis::call::{ELEMENT_BYTES, KEY_BYTES_MAX, find};

/// A parsed pattern; its texts are places in [`Patterns::texts`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// The element.
    Element,
    /// Nothing, for any element.
    Nothing,
    /// The string whose key has these texts in front of the element and behind it.
    String { before: Range<usize>, behind: Range<usize> },
    /// A field of the hash whose key has these texts in front of the element and behind it.
    Field { before: Range<usize>, behind: Range<usize>, field: Range<usize> },
}

/// What a pattern found.
pub(super) enum Found<'f> {
    Nothing,
    /// An element, or a field's value.
    Text(&'f [u8]),
    /// A field's value that lies apart, and its hash.
    Apart(&'f Collection<'f>, LongText<'f>),
    /// A string.
    String(&'f Item<'f>),
}

impl Found<'_> {
    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        match self {
            Found::Nothing => 0,
            Found::Text(text) => text.len(),
            Found::Apart(_, apart) => apart.len(),
            Found::String(item) => item.value_bytes() as usize,
        }
    }

    /// Calls `visit` with its bytes, piece by piece, until `visit` returns false.
    pub fn each_piece(&self, visit: &mut dyn FnMut(&[u8]) -> bool) {
        match self {
            Found::Nothing => {}
            Found::Text(text) => {
                visit(text);
            }
            Found::Apart(there, apart) => {
                let _ = there.parts(apart).all(visit);
            }
            Found::String(item) => match item.value() {
                Value::Whole(text) => {
                    visit(text);
                }
                Value::Pieces(value) => {
                    let _ = value.pin().pieces(0).all(visit);
                }
                Value::Collection(_) => {}
            },
        }
    }
}

/// The patterns of a command, parsed.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    texts: Vec<u8>,
    pub by: Option<Shape>,
    pub gets: Vec<Shape>,
}

/// The part of a pattern that is searched.
fn head(pattern: &[u8]) -> &[u8] {
    pattern.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// Whether a pattern names a key for each element.
pub(super) fn names(pattern: &[u8]) -> bool {
    head(pattern).contains(&b'*')
}

/// Whether a pattern of GET reads keys.
pub(super) fn reads(pattern: &[u8]) -> bool {
    pattern != b"#" && names(pattern)
}

impl Patterns {
    pub fn by(&mut self, pattern: &[u8]) {
        self.by = names(pattern).then(|| self.shape(pattern));
    }

    pub fn get(&mut self, pattern: &[u8]) {
        let shape = if pattern == b"#" { Shape::Element } else { self.shape(pattern) };
        self.gets.push(shape);
    }

    fn keep(&mut self, text: &[u8]) -> Range<usize> {
        let start = self.texts.len();
        self.texts.extend_from_slice(text);
        start..self.texts.len()
    }

    fn shape(&mut self, pattern: &[u8]) -> Shape {
        let Some(star) = head(pattern).iter().position(|byte| *byte == b'*') else { return Shape::Nothing };
        let (before, behind) = (&pattern[..star], &pattern[star + 1..]);
        let arrow = head(behind).windows(2).position(|two| two == b"->");
        // An arrow with nothing behind it is a part of the name.
        let arrow = arrow.filter(|arrow| behind.get(arrow + 2).is_some_and(|byte| *byte != 0));
        let (behind, field) = match arrow {
            Some(arrow) => (&behind[..arrow], Some(&behind[arrow + 2..])),
            None => (behind, None),
        };
        if before.len() + behind.len() > KEY_BYTES_MAX
            || field.is_some_and(|field| field.len() > ELEMENT_BYTES)
        {
            // Neither keys nor fields are so long.
            return Shape::Nothing;
        }
        let (before, behind) = (self.keep(before), self.keep(behind));
        match field {
            Some(field) => Shape::Field { before, behind, field: self.keep(field) },
            None => Shape::String { before, behind },
        }
    }

    /// Bytes that the patterns take.
    pub fn bytes(&self) -> usize {
        self.texts.capacity() + self.gets.capacity() * size_of::<Shape>()
    }

    /// Looks up what a pattern names for an element. `name`: a buffer for the key's name.
    pub fn look<R>(
        &self,
        (cx, tally, db): (&mut Context<'_, '_>, &mut Tally, u8),
        shape: &Shape,
        element: &[u8],
        name: &mut Vec<u8>,
        found: impl FnOnce(Found<'_>) -> R,
    ) -> R {
        let (before, behind, field) = match shape {
            Shape::Element => return found(Found::Text(element)),
            Shape::Nothing => return found(Found::Nothing),
            Shape::String { before, behind } => (before, behind, None),
            Shape::Field { before, behind, field } => (before, behind, Some(field)),
        };
        if before.len() + element.len() + behind.len() > KEY_BYTES_MAX {
            return found(Found::Nothing);
        }
        name.clear();
        name.extend_from_slice(&self.texts[before.clone()]);
        name.extend_from_slice(element);
        name.extend_from_slice(&self.texts[behind.clone()]);
        let key = cx.guard.key_in(db, name);
        let hint = cx.guard.prefetch_bucket(&key);
        let now = cx.guard.now();
        let item = find(cx, tally, &key, &hint);
        match (item.as_ref().map(|item| (item, item.value())), field) {
            (Some((_, Value::Collection(there))), Some(field)) if there.kind() == Type::Hash => {
                let there = there.elements_at(now);
                match there.field(&self.texts[field.clone()]) {
                    Some(Element::Apart(apart)) => found(Found::Apart(&there, apart)),
                    Some(value) => found(Found::Text(value.text(&mut [0; DIGITS_MAX]))),
                    None => found(Found::Nothing),
                }
            }
            (Some((item, Value::Whole(_) | Value::Pieces(_))), None) => found(Found::String(item)),
            (Some(_) | None, _) => found(Found::Nothing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(pattern: &[u8]) -> Option<(String, String, Option<String>)> {
        let mut patterns = Patterns::default();
        patterns.get(pattern);
        let text =
            |range: &Range<usize>| String::from_utf8_lossy(&patterns.texts[range.clone()]).into_owned();
        match &patterns.gets[0] {
            Shape::Element | Shape::Nothing => None,
            Shape::String { before, behind } => Some((text(before), text(behind), None)),
            Shape::Field { before, behind, field } => Some((text(before), text(behind), Some(text(field)))),
        }
    }

    #[test]
    fn a_pattern_names_a_key_and_perhaps_a_field() {
        let key = |before: &str, behind: &str| Some((before.to_owned(), behind.to_owned(), None));
        let field = |before: &str, behind: &str, field: &str| {
            Some((before.to_owned(), behind.to_owned(), Some(field.to_owned())))
        };
        assert_eq!(parts(b"w_*"), key("w_", ""));
        assert_eq!(parts(b"*"), key("", ""));
        assert_eq!(parts(b"a*b*c"), key("a", "b*c"));
        assert_eq!(parts(b"h_*->f"), field("h_", "", "f"));
        assert_eq!(parts(b"h_*:x->f->g"), field("h_", ":x", "f->g"));
        assert_eq!(parts(b"h_*->"), key("h_", "->"));
        assert_eq!(parts(b"a->b*"), key("a->b", ""));
        assert_eq!(parts(b"a*\0->f"), key("a", "\0->f"));
        assert_eq!(parts(b"a*->\0f"), key("a", "->\0f"));
        for nothing in [&b"abc"[..], b"", b"#", b"##", b"a\0*"] {
            assert_eq!(parts(nothing), None, "{nothing:?}");
            assert!(!reads(nothing));
        }
        let long = [vec![b'x'; KEY_BYTES_MAX], b"y*".to_vec()].concat();
        assert_eq!(parts(&long), None);
        assert!(parts(&long[1..]).is_some());
        assert!(names(b"a*") && !names(b"nosort") && !names(b"#") && reads(b"*"));
    }
}
