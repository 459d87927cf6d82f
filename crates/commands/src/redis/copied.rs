//! Elements copied out of a collection before it is changed, or made for one: their bytes one after the other.

use larder_store::{Collection, DIGITS_MAX, Element};

/// The bytes of an element of a collection in one piece: those of one that lies apart are copied to `long`.
pub(crate) fn run_of<'a: 'r, 'r>(
    there: &Collection<'_>,
    element: &Element<'a>,
    room: &'r mut [u8; DIGITS_MAX],
    long: &'r mut Vec<u8>,
) -> &'r [u8] {
    match element {
        Element::Apart(apart) => {
            long.clear();
            long.reserve_exact(apart.len());
            there.parts(apart).for_each(|part| long.extend_from_slice(part));
            long.as_slice()
        }
        element => element.text(room),
    }
}

/// Some strings, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Copied {
    bytes: Vec<u8>,
    /// Where each string ends.
    ends: Vec<usize>,
}

impl Copied {
    /// Adds a string.
    pub fn push(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    /// Adds a string: the bytes that `make` appends.
    pub fn push_made(&mut self, make: impl FnOnce(&mut Vec<u8>)) {
        make(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Adds an element of a collection.
    pub fn push_element_of(&mut self, there: &Collection<'_>, element: &Element<'_>) {
        match element {
            Element::Apart(apart) => {
                self.push_made(|bytes| {
                    bytes.reserve(apart.len());
                    there.parts(apart).for_each(|part| bytes.extend_from_slice(part));
                });
            }
            element => self.push_element(element),
        }
    }

    /// Adds an element that lies in a leaf.
    pub fn push_element(&mut self, element: &Element<'_>) {
        self.push(element.text(&mut [0; DIGITS_MAX]));
    }

    /// Removes all strings.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Bytes of all strings.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How many strings there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// The string at this place; there must be one.
    pub fn at(&self, i: usize) -> &[u8] {
        let start = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[i]]
    }

    /// All strings, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        (0..self.len()).map(|i| self.at(i))
    }
}
