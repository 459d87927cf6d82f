//! The state of a collection.

use super::Kind;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A field's or member's name, or an element.
pub type Text = Vec<u8>;

/// A collection; without elements, none exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Model {
    Hash(BTreeMap<Text, Text>),
    List(VecDeque<Text>),
    Set(BTreeSet<Text>),
    /// The same members in the order of the sorted set, and by name.
    Sorted(BTreeSet<(i64, Text)>, BTreeMap<Text, i64>),
}

impl Model {
    /// A collection without elements.
    pub fn empty(kind: Kind) -> Model {
        match kind {
            Kind::Hash => Model::Hash(BTreeMap::new()),
            Kind::List => Model::List(VecDeque::new()),
            Kind::Set => Model::Set(BTreeSet::new()),
            Kind::Sorted => Model::Sorted(BTreeSet::new(), BTreeMap::new()),
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Model::Hash(fields) => fields.len(),
            Model::List(elements) => elements.len(),
            Model::Set(members) => members.len(),
            Model::Sorted(_, members) => members.len(),
        }
    }

    /// Removes all elements.
    pub fn clear(&mut self) {
        match self {
            Model::Hash(fields) => fields.clear(),
            Model::List(elements) => elements.clear(),
            Model::Set(members) => members.clear(),
            Model::Sorted(order, members) => {
                order.clear();
                members.clear();
            }
        }
    }

    /// An element by index, in some order.
    pub fn at(&self, place: usize) -> Option<&Text> {
        match self {
            Model::Hash(fields) => fields.keys().nth(place),
            Model::List(elements) => elements.get(place),
            Model::Set(members) => members.iter().nth(place),
            Model::Sorted(_, members) => members.keys().nth(place),
        }
    }
}

/// Sets a member's score; returns whether the member is new.
pub fn score(
    order: &mut BTreeSet<(i64, Text)>,
    members: &mut BTreeMap<Text, i64>,
    member: &Text,
    to: i64,
) -> bool {
    let before = members.insert(member.clone(), to);
    if let Some(before) = before {
        order.remove(&(before, member.clone()));
    }
    order.insert((to, member.clone()));
    before.is_none()
}

/// Removes a member of a sorted set; returns whether it existed.
pub fn unscore(order: &mut BTreeSet<(i64, Text)>, members: &mut BTreeMap<Text, i64>, member: &Text) -> bool {
    match members.remove(member) {
        Some(before) => order.remove(&(before, member.clone())),
        None => false,
    }
}
