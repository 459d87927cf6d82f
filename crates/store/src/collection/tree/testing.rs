//! What tests of trees share beside [`super::tests`]: texts that lie apart, places that a scan gives, and copies of a collection
//! under another key.

use super::tests::height;
use crate::collection::{BulkLoad, Collection, Copied, Element, Lasting, Type};
use crate::worker::Guard;
use crate::{Attributes, End, Expect, Key, Store};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The text of an element, wherever it lies.
pub(super) fn text(there: &Collection<'_>, element: &Element<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    there.each_part(element, |part| text.extend_from_slice(part));
    assert_eq!(text.len(), element.len());
    text
}

/// A member of so many bytes, which differs from others of its length only at its end.
pub(super) fn member_of(n: usize, bytes: usize) -> Vec<u8> {
    let end = format!("m{n}").into_bytes();
    [vec![b'x'; bytes.saturating_sub(end.len())], end].concat()
}

/// Members with their scores in the order of a sorted set.
pub(super) fn ranked(map: &BTreeMap<Vec<u8>, f64>) -> Vec<(f64, Vec<u8>)> {
    let mut all: Vec<_> = map.iter().map(|(name, score)| (*score, name.clone())).collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0).then_with(|| one.1.cmp(&other.1)));
    all
}

/// Values of fields with their times, 0 for never.
pub(super) type Timed = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// The fields that are there at this time.
pub(super) fn live(map: &Timed, now: u64) -> Timed {
    map.iter()
        .filter(|(_, (_, at))| *at == 0 || *at > now)
        .map(|(name, known)| (name.clone(), known.clone()))
        .collect()
}

/// Sets fields, which last for so long.
pub(super) fn set_all(map: &mut Timed, pairs: Vec<(Vec<u8>, Vec<u8>)>, lasting: Lasting) {
    for (name, value) in pairs {
        let at = match lasting {
            Lasting::Never => 0,
            Lasting::Keep => map.get(&name).map_or(0, |(_, at)| *at),
            Lasting::Until(at) => at,
        };
        map.insert(name, (value, at));
    }
}

/// Takes `count` elements at most that are `which` out of a list, from this end on; returns how many they were.
pub(super) fn remove(list: &mut Vec<Vec<u8>>, end: End, count: usize, which: &[u8]) -> usize {
    let mut places: Vec<usize> = (0..list.len()).filter(|&i| list[i] == which).collect();
    if end == End::Back {
        places.reverse();
    }
    places.truncate(count);
    let gone = places.len();
    places.sort_unstable();
    places.iter().rev().for_each(|&i| drop(list.remove(i)));
    gone
}

/// The end of a list that a step is at.
pub(super) fn ends(front: bool) -> End {
    if front { End::Front } else { End::Back }
}

/// All places that a scan from its beginning to its end gives.
pub(super) fn scanned(there: &Collection<'_>) -> Vec<Range<usize>> {
    let (mut cursor, mut places) = (0, Vec::new());
    loop {
        let next = there.scan(cursor, &mut places);
        assert!(next == 0 || next > cursor && next < 1 << 48);
        cursor = next;
        if cursor == 0 {
            return places;
        }
    }
}

/// Finishes what was loaded, and puts it in place of whatever is there.
pub(super) fn publish(guard: &mut Guard<'_>, mut load: BulkLoad, to: &Key<'_>) {
    while !guard.load_finish(&mut load, to).unwrap() {}
    guard.load_publish(load, to, &Attributes::default(), Expect::Any).unwrap().unwrap();
}

/// Copies a collection, a tree node by node where it is to be so; returns whether there was one.
pub(super) fn copy(
    store: &Arc<Store>,
    guard: &mut Guard<'_>,
    kind: Type,
    (from, to): (&Key<'_>, &Key<'_>),
    by_node: bool,
) -> bool {
    if !by_node || height(guard, from) == 0 {
        return guard.collection_copy(from, to, Expect::Any).unwrap().is_ok();
    }
    let version = guard.peek(from).hit().unwrap().cas();
    let mut load = BulkLoad::new(store, kind);
    while guard.load_copy(&mut load, (from, version), to).unwrap() == Copied::More {}
    publish(guard, load, to);
    true
}

/// Carries a collection, if there is one, to another key and back.
pub(super) fn carry(guard: &mut Guard<'_>, key: &Key<'_>, other: &Key<'_>) {
    guard.begin([*key, *other]);
    if guard.peek(key).hit().is_some() {
        assert!(guard.collection_carry(key, other, Expect::Any).unwrap().is_ok());
        assert!(guard.collection_carry(other, key, Expect::Absent).unwrap().is_ok());
    }
    guard.finish();
}
