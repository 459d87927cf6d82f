//! Totals of each type of values. The store counts collections; strings are the rest of what it counts.

use larder_store::{Store, Type, TypeTotals};

use crate::core::shared::Shared;

/// Number of types of values.
pub const TYPES: usize = 6;

/// Totals of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfType {
    /// The type's name in Redis.
    pub name: &'static str,
    /// Keys with a value of this type.
    pub items: u64,
    /// Fields, members and elements of all these values. A stream counts its rows: entries, groups, consumers, and one of its
    /// own. A string counts one.
    pub elements: u64,
    /// Bytes of all these values with their keys. Strings have all bytes that collections leave, so also those that wait to be
    /// freed or are on their way in.
    pub bytes: u64,
    /// Bytes of the largest. For collections [`TypeTotals`] says what that is; for strings it is the largest of those that were
    /// looked at, if some were.
    pub largest_bytes: Option<u64>,
    /// Elements of the collection that has most, as [`TypeTotals`] says it; `None` for strings.
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

/// The name of strings' type in Redis.
pub(crate) const STRING: &str = "string";

/// The name of a collection's type in Redis.
pub(crate) fn name_of(kind: Type) -> &'static str {
    match kind {
        Type::Hash => "hash",
        Type::Set => "set",
        Type::SortedSet => "zset",
        Type::List => "list",
        Type::Stream => "stream",
    }
}

/// Totals of each type, strings first.
pub(crate) fn of_types(shared: &Shared, store: &Store) -> [OfType; TYPES] {
    let (totals, collections) = (store.totals(), store.type_totals());
    let all = |part: fn(&TypeTotals) -> u64| collections.iter().map(part).sum::<u64>();
    let strings = totals.items.saturating_sub(all(|of| of.items));
    // A key that does not lie in its item is counted apart.
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
