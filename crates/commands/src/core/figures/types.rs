//! What there is of each type of values. The store counts collections; strings are the rest of what it counts.

use larder_store::{Store, Type, TypeTotals};

use crate::core::shared::Shared;

/// Types of values.
pub const TYPES: usize = 6;

/// What there is of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfType {
    /// Which type, in Redis's words.
    pub name: &'static str,
    /// Keys that have one.
    pub items: u64,
    /// Fields, members and elements of all of them; of streams rows: entries, groups, consumers, and one of the stream; of
    /// strings one each.
    pub elements: u64,
    /// Bytes of all of them, with their keys; of strings what collections leave of all bytes, so also what waits to be freed,
    /// and what is on its way in.
    pub bytes: u64,
    /// Bytes of the largest, as [`TypeTotals`] says it of collections; of strings of those that were looked at, if some were.
    pub largest_bytes: Option<u64>,
    /// Elements of the collection that has most, as [`TypeTotals`] says it.
    pub most_elements: Option<u64>,
}

impl OfType {
    /// Calls `visit` with each figure that is known, and its name.
    pub(crate) fn each(&self, visit: &mut dyn FnMut(&'static str, u64)) {
        let figures = [
            ("items", Some(self.items)),
            ("elements", Some(self.elements)),
            ("bytes", Some(self.bytes)),
            ("largest_bytes", self.largest_bytes),
            ("most_elements", self.most_elements),
        ];
        for (name, value) in figures {
            if let Some(value) = value {
                visit(name, value);
            }
        }
    }
}

/// The type of a string, in Redis's words.
pub(crate) const STRING: &str = "string";

/// The type of a collection.
pub(crate) fn name_of(kind: Type) -> &'static str {
    match kind {
        Type::Hash => "hash",
        Type::Set => "set",
        Type::SortedSet => "zset",
        Type::List => "list",
        Type::Stream => "stream",
    }
}

/// What there is of each type, strings first.
pub(crate) fn of_types(shared: &Shared, store: &Store) -> [OfType; TYPES] {
    let (totals, collections) = (store.totals(), store.type_totals());
    let all = |part: fn(&TypeTotals) -> u64| collections.iter().map(part).sum::<u64>();
    let strings = totals.items.saturating_sub(all(|of| of.items));
    // A key that is not in its item is counted apart.
    let bytes = totals.item_bytes.saturating_add(store.long_key_bytes());
    let seen = shared.traffic.items.ages().map(|ages| ages.largest_string_bytes);
    let string = OfType {
        name: STRING,
        items: strings,
        elements: strings,
        bytes: bytes.saturating_sub(all(|of| of.bytes)),
        largest_bytes: seen.filter(|bytes| *bytes > 0),
        most_elements: None,
    };
    let [hash, set, sorted, list, stream] = collections.map(|of| OfType {
        name: name_of(of.kind),
        items: of.items,
        elements: of.elements,
        bytes: of.bytes,
        largest_bytes: Some(of.largest_bytes),
        most_elements: Some(of.most_elements),
    });
    [string, hash, set, sorted, list, stream]
}
