//! Collections: the same operations on the store's and on a plain vector.

use super::op::Op;
use super::{DbKey, Known, Look, Model, name};
use larder_store::{Collection, Declined, Element, End, Entry, Guard, ScoreRule, Type};

/// A collection may refuse some changes if its elements have more bytes than this.
const LARGE_BYTES: usize = 6_000;
/// How many names a large hash, set or list has.
const WIDE: usize = 1_500;

/// A field, member or element; its value, in a hash; its score, in a sorted set.
type Known3 = (Vec<u8>, Vec<u8>, f64);

/// The contents of a collection, in order.
#[derive(Clone, Debug)]
pub(super) struct Elements {
    kind: Type,
    entries: Vec<Known3>,
}

fn text(there: &Collection<'_>, element: &Element<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    there.each_part(element, |part| text.extend_from_slice(part));
    text
}

fn known_of(there: &Collection<'_>, entry: Entry<'_>) -> Known3 {
    (text(there, &entry.name), text(there, &entry.value), entry.score)
}

/// The result of a change: the number that it returns, and the elements that it removed.
type Gave = (usize, Vec<Known3>);

impl Elements {
    pub(super) fn are_in(&self, collection: &Collection<'_>) -> bool {
        if collection.kind() != self.kind || collection.len() != self.entries.len() {
            return false;
        }
        let mut there: Vec<Known3> =
            collection.entries(0..collection.len()).map(|entry| known_of(collection, entry)).collect();
        let found = |(i, known): (usize, &Known3)| collection.find(&known.0) == Some(i);
        if self.kind != Type::List && !there.iter().enumerate().all(found) {
            return false;
        }
        if matches!(self.kind, Type::SortedSet | Type::List) {
            return there == self.entries;
        }
        // The order of a large collection's elements is arbitrary.
        let mut known = self.entries.clone();
        for entries in [&mut there, &mut known] {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        there == known
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        self.entries.iter().position(|known| known.0 == name)
    }

    /// Inserts a member in the order of scores and bytes.
    fn place(&mut self, member: Vec<u8>, score: f64) {
        let at = self.entries.partition_point(|known| (known.2, &known.0) < (score, &member));
        self.entries.insert(at, (member, Vec::new(), score));
    }

    /// Bytes of its strings, and of what is stored beside each.
    fn bytes(&self) -> usize {
        self.entries.iter().map(|known| known.0.len() + known.1.len() + 8).sum()
    }
}

/// The operation, and its strings.
struct Plan {
    kind: Type,
    step: usize,
    count: usize,
    end: End,
    names: Vec<Vec<u8>>,
    /// The values of fields with these names.
    values: Vec<Vec<u8>>,
}

impl Plan {
    fn of(op: &Op, writes: u64) -> Plan {
        let kind = [Type::Hash, Type::Set, Type::SortedSet, Type::List][op.flags as usize / 7 % 4];
        // Now and then there are enough names for a tree of several levels.
        let wide = kind != Type::SortedSet && op.bytes % 29 < 3;
        let count = if wide { WIDE / 3 } else { 1 + op.bytes / 4 % 5 };
        let string = |i: usize| {
            if wide {
                return format!("one of {}", (writes as usize * 101 + i) % WIDE).into_bytes();
            }
            // Names come from few, so that they occur again: numbers, short and long strings.
            let n = (op.bytes * 7 + i * 13 + writes as usize) % 60;
            match n % 5 {
                // About as long as an element in a leaf may be, and longer.
                _ if kind != Type::Hash && n % 20 == 13 => {
                    vec![n as u8; 16_355 + n / 20 * 2 + i % 2 * 20_000]
                }
                0 => (n as i64 * 1_000_003 - 20_000_000).to_string().into_bytes(),
                1 => n.to_string().into_bytes(),
                2 => vec![b'a' + n as u8 % 26; 62 + n % 3],
                3 => vec![n as u8; op.bytes % 400],
                _ => format!("element {n}").into_bytes(),
            }
        };
        let names: Vec<Vec<u8>> = (0..count).map(string).collect();
        let value = |(i, name): (usize, &Vec<u8>)| {
            // About as long as a value in a leaf may be, and longer.
            let n = (op.bytes * 5 + i * 11 + writes as usize) % 60;
            let long = kind == Type::Hash && !wide && n % 20 == 13;
            if long { vec![n as u8; 16_325 + n / 20 * 10 + i % 2 * 20_000] } else { name.clone() }
        };
        Plan {
            kind,
            step: op.bytes % 4,
            count,
            end: if (op.bytes / 20).is_multiple_of(2) { End::Front } else { End::Back },
            values: names.iter().rev().enumerate().map(value).collect(),
            names,
        }
    }

    fn score(&self, i: usize) -> f64 {
        (self.names[i].len() % 7) as f64 - self.count as f64 / 2.0
    }

    fn store(&self, guard: &mut Guard<'_>, key: &larder_store::Key<'_>) -> Result<Gave, Declined> {
        let names = || self.names.iter().map(Vec::as_slice);
        let taken = |removed: Option<larder_store::Removed<'_>>| {
            let known = |entry, removed: &larder_store::Removed<'_>| known_of(removed.collection(), entry);
            let taken: Vec<Known3> = removed
                .iter()
                .flat_map(|removed| removed.entries().map(|entry| known(entry, removed)))
                .collect();
            (taken.len(), taken)
        };
        let counted = |count: usize| (count, Vec::new());
        match (self.kind, self.step) {
            (Type::Hash, 0 | 1) => {
                guard.hash_set(key, names().zip(self.values.iter().map(Vec::as_slice))).map(counted)
            }
            (Type::Hash, 2) => {
                guard.hash_insert(key, &self.names[0], b"new").map(|new| counted(usize::from(new)))
            }
            (Type::Set, 0..3) => guard.set_add(key, names()).map(counted),
            (Type::SortedSet, 0 | 1) => {
                let rule = ScoreRule { added: self.step == 1, ..ScoreRule::default() };
                let pairs = names().enumerate().map(|(i, name)| (self.score(i), name));
                guard.sorted_add(key, rule, pairs).map(|scored| counted(scored.new))
            }
            (Type::SortedSet, 2) => guard.sorted_remove(key, |_| 1..1 + self.count).map(taken),
            (Type::List, 0 | 1) => guard.list_push(key, self.end, names(), self.step == 1).map(counted),
            (Type::List, 2) => guard.list_pop(key, self.end, self.count).map(taken),
            (Type::List, _) => guard.list_remove(key, self.end, self.count, &self.names[0]).map(counted),
            (kind, _) => guard.remove_named(key, kind, names()).map(counted),
        }
    }

    fn model(&self, elements: &mut Elements) -> Gave {
        let mut count = 0;
        let mut taken = Vec::new();
        let names = || self.names.iter();
        match (self.kind, self.step) {
            (Type::Hash, 0..3) => {
                let new = b"new".to_vec();
                let pairs: Vec<_> = match self.step {
                    2 => vec![(&self.names[0], &new)],
                    _ => names().zip(&self.values).collect(),
                };
                for (name, value) in pairs {
                    match elements.find(name) {
                        Some(_) if self.step == 2 => {}
                        Some(i) => elements.entries[i].1 = value.clone(),
                        None => {
                            elements.entries.push((name.clone(), value.clone(), 0.0));
                            count += 1;
                        }
                    }
                }
            }
            (Type::Set, 0..3) => {
                for name in names() {
                    if elements.find(name).is_none() {
                        elements.entries.push((name.clone(), Vec::new(), 0.0));
                        count += 1;
                    }
                }
            }
            (Type::SortedSet, 0 | 1) => {
                for (i, name) in names().enumerate() {
                    let there = elements.find(name).map(|at| elements.entries.remove(at));
                    count += usize::from(there.is_none());
                    let before = there.map_or(0.0, |known| if self.step == 1 { known.2 } else { 0.0 });
                    elements.place(name.clone(), before + self.score(i));
                }
            }
            (Type::SortedSet, 2) => {
                let len = elements.entries.len();
                taken = elements.entries.drain(1.min(len)..(1 + self.count).min(len)).collect();
                count = taken.len();
            }
            (Type::List, 0 | 1) => {
                if self.step == 0 || !elements.entries.is_empty() {
                    for name in names() {
                        let at = if self.end == End::Front { 0 } else { elements.entries.len() };
                        elements.entries.insert(at, (name.clone(), Vec::new(), 0.0));
                    }
                    count = elements.entries.len();
                }
            }
            (Type::List, 2) => {
                let len = elements.entries.len();
                let gone = self.count.min(len);
                let range = if self.end == End::Front { 0..gone } else { len - gone..len };
                taken = elements.entries.drain(range).collect();
                count = taken.len();
            }
            (Type::List, _) => {
                while count < self.count {
                    let mut places = elements.entries.iter().map(|known| known.0 == self.names[0]);
                    let found = match self.end {
                        End::Front => places.position(|same| same),
                        End::Back => places.rposition(|same| same),
                    };
                    let Some(i) = found else { break };
                    elements.entries.remove(i);
                    count += 1;
                }
            }
            _ => {
                for name in names() {
                    if let Some(i) = elements.find(name) {
                        elements.entries.remove(i);
                        count += 1;
                    }
                }
            }
        }
        (count, taken)
    }
}

impl Model {
    pub(super) fn change_elements(&mut self, guard: &mut Guard<'_>, op: &Op, place: DbKey) {
        // A read notices that the item was evicted: during the change it would be unknown what the store
        // holds.
        self.read(guard, place, Look::Peek);
        self.writes += 1;
        let plan = Plan::of(op, self.writes);
        let name = name(place.1);
        let key = self.key(guard, place, &name);
        let known = self.live(place).cloned();
        let done = plan.store(guard, &key);
        guard.check_tree(&key);
        let other = known
            .as_ref()
            .is_some_and(|known| known.elements.as_ref().is_none_or(|elements| elements.kind != plan.kind));
        assert_eq!(done == Err(Declined::Type), other, "{place:?}: {done:?} of {known:?}");
        let before = known.as_ref().map(|known| known.cas);
        let known = known.unwrap_or_else(Known::nothing);
        let mut elements =
            known.elements.clone().unwrap_or_else(|| Elements { kind: plan.kind, entries: Vec::new() });
        match done {
            Ok(gave) => {
                assert_eq!(plan.model(&mut elements), gave, "{place:?}");
                if elements.entries.is_empty() {
                    self.known.remove(&place);
                    assert!(guard.peek(&key).hit().is_none(), "{place:?} is empty");
                    return;
                }
                let cas = guard.peek(&key).hit().expect("it is spared").cas();
                let known = if Some(cas) == before {
                    Known { elements: Some(elements), ..known }
                } else {
                    let cas = self.token(place, cas);
                    Known { elements: Some(elements), cas, stale: false, token_sent: false, ..known }
                };
                self.known.insert(place, known);
                self.read(guard, place, Look::Peek);
            }
            Err(Declined::Type) => {}
            Err(Declined::NoMemory) => assert!(self.over, "{place:?}: there is memory"),
            Err(Declined::TooLarge) => {
                plan.model(&mut elements);
                assert!(elements.bytes() > LARGE_BYTES, "{place:?}: {} bytes are few", elements.bytes());
            }
            Err(Declined::NotANumber) => panic!("{place:?}: scores are numbers"),
            Err(Declined::Twice) => panic!("{place:?}: nothing is loaded"),
        }
    }
}
