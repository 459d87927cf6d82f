//! Streams against maps: in one leaf, and in trees of small leaves and nodes.

use super::*;
use crate::collection::tree::tests::{NOW, height, move_all, store};
use crate::{Attributes, Expect, Key, Store};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

type Texts = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Clone, Debug, Default)]
struct ModelGroup {
    last: StreamId,
    consumers: BTreeMap<Vec<u8>, ()>,
    pending: BTreeMap<StreamId, (Vec<u8>, u64, u64)>,
}

#[derive(Clone, Debug, Default)]
struct Model {
    there: bool,
    entries: BTreeMap<StreamId, Texts>,
    last: StreamId,
    deleted_max: StreamId,
    added: u64,
    groups: BTreeMap<Vec<u8>, ModelGroup>,
}

fn id(ms: u64, seq: u64) -> StreamId {
    StreamId { ms, seq }
}

fn texts(stream: &Stream<'_>, entry: StreamEntry<'_>) -> Texts {
    let id = entry.id;
    let text = |element: crate::Element<'_>| {
        let mut all = Vec::new();
        stream.each_part(id, &element, |part| all.extend_from_slice(part));
        assert_eq!(all.len(), element.len());
        all
    };
    entry.fields.map(|(name, value)| (text(name), text(value))).collect()
}

fn fields(pairs: &Texts) -> NewFields {
    NewFields::of(pairs.iter().map(|(name, value)| (&name[..], &value[..]))).unwrap()
}

/// What values that lie apart have together, at most.
const APART_MAX: usize = 200_000;

/// The same however long they are, and values that are to lie apart.
fn long_fields(pairs: &Texts) -> Result<(NewFields, Vec<&[u8]>), crate::Declined> {
    let (mut new, mut apart) = (NewFields::default(), Vec::new());
    let pairs = pairs.iter().map(|(name, value)| (&name[..], &value[..]));
    new.set_long(pairs, APART_MAX, &mut apart)?;
    Ok((new, apart))
}

fn with<R>(guard: &mut Guard<'_>, key: &Key<'_>, ask: impl FnOnce(Option<Stream<'_>>) -> R) -> R {
    let there = guard.collection(key, Type::Stream).unwrap();
    ask(there.and_then(|there| there.stream()))
}

/// All that can be asked of a stream is as the model has it.
fn compare(guard: &mut Guard<'_>, key: &Key<'_>, model: &Model) {
    with(guard, key, |stream| {
        let Some(stream) = stream else {
            assert!(!model.there);
            return;
        };
        assert!(model.there);
        stream.check();
        assert_eq!(stream.len(), model.entries.len());
        assert_eq!(stream.last_id(), model.last);
        assert_eq!((stream.deleted_max(), stream.added()), (model.deleted_max, model.added));
        let all: Vec<_> =
            stream.entries(0..stream.len()).map(|entry| (entry.id, texts(&stream, entry))).collect();
        let wanted: Vec<_> = model.entries.iter().map(|(id, texts)| (*id, texts.clone())).collect();
        assert_eq!(all, wanted);
        let mut back: Vec<_> =
            stream.entries_back(0..stream.len()).map(|entry| (entry.id, texts(&stream, entry))).collect();
        back.reverse();
        assert_eq!(back, wanted);
        let third = all.len() / 3..all.len().div_ceil(2);
        assert!(
            stream
                .entries(third.clone())
                .map(|entry| entry.id)
                .eq(all[third.clone()].iter().map(|all| all.0))
        );
        assert!(
            stream
                .entries_back(third.clone())
                .map(|entry| entry.id)
                .eq(all[third].iter().rev().map(|all| all.0))
        );
        for (place, (id, _)) in all.iter().enumerate() {
            assert_eq!(stream.below(*id), place);
            assert_eq!(stream.places(*id, *id), place..place + 1);
            assert_eq!(stream.entry(*id).map(|entry| entry.id), Some(*id));
        }
        assert_eq!(stream.places(StreamId::MIN, StreamId::MAX), 0..all.len());
        assert_eq!(stream.first_id(), all.first().map_or(StreamId::MIN, |first| first.0));
        let names: Vec<_> = stream.groups().map(|group| group.name.to_vec()).collect();
        assert!(names.iter().eq(model.groups.keys()));
        for (name, wanted) in &model.groups {
            let group = stream.group(name).unwrap();
            assert_eq!(group.last, wanted.last);
            let consumers: Vec<_> = stream.consumers(&group).map(|consumer| consumer.name.to_vec()).collect();
            assert!(consumers.iter().eq(wanted.consumers.keys()), "{consumers:?} {wanted:?}");
            let pending: Vec<_> = stream
                .pending(&group, StreamId::MIN)
                .map(|there| {
                    let name = stream.consumer_of(there.consumer).unwrap().name.to_vec();
                    (there.id, (name, there.time, there.count))
                })
                .collect();
            let wanted_pending: Vec<_> = wanted.pending.iter().map(|(id, one)| (*id, one.clone())).collect();
            assert_eq!(pending, wanted_pending);
            for name in wanted.consumers.keys() {
                let consumer = stream.consumer(&group, name).unwrap();
                let with: Vec<_> = stream.pending_with(&consumer, StreamId::MIN).collect();
                let of = wanted.pending.iter().filter(|(_, one)| one.0 == *name).map(|(id, _)| *id);
                assert_eq!(with, of.collect::<Vec<_>>());
                assert_eq!(stream.pending_with_count(&consumer), with.len());
            }
        }
        assert!(stream.group(b"nobody's").is_none());
    });
}

#[derive(Clone, Debug)]
enum Step {
    Add { count: u64, ms: u64, names: u8, bytes: usize },
    AddLong { bytes: usize },
    Delete { from: usize, count: usize, step: usize },
    Trim { to: u64, about: bool },
    TrimId { part: usize },
    Create { group: u8, from_start: bool },
    Destroy { group: u8, most: usize },
    Read { group: u8, consumer: u8, most: usize },
    Again { group: u8, consumer: u8, most: usize },
    Ack { group: u8, from: usize, count: usize },
    Claim { group: u8, consumer: u8, from: usize, count: usize, force: bool },
    ClaimFrom { group: u8, consumer: u8, from: usize, count: usize },
    DeleteConsumer { group: u8, consumer: u8, most: usize },
    SetBack { group: u8, part: usize },
    Move,
    Maintain,
}

fn step() -> impl Strategy<Value = Step> {
    let group = || 0..3_u8;
    let consumer = || 0..4_u8;
    let bytes = prop_oneof![6 => 0..8_usize, 2 => 60..66_usize, 1 => Just(300_usize), 1 => Just(3_000_usize)];
    prop_oneof![
        8 => (1..40_u64, 0..400_u64, 0..6_u8, bytes)
            .prop_map(|(count, ms, names, bytes)| Step::Add { count, ms, names, bytes }),
        2 => (16_000..24_000_usize).prop_map(|bytes| Step::AddLong { bytes }),
        3 => (0..300_usize, 1..40_usize, 1..4_usize)
            .prop_map(|(from, count, step)| Step::Delete { from, count, step }),
        1 => (0..200_u64, any::<bool>()).prop_map(|(to, about)| Step::Trim { to, about }),
        1 => (0..4_usize).prop_map(|part| Step::TrimId { part }),
        3 => (group(), any::<bool>()).prop_map(|(group, from_start)| Step::Create { group, from_start }),
        1 => (group(), prop_oneof![Just(usize::MAX), 1..9_usize])
            .prop_map(|(group, most)| Step::Destroy { group, most }),
        6 => (group(), consumer(), 0..60_usize)
            .prop_map(|(group, consumer, most)| Step::Read { group, consumer, most }),
        2 => (group(), consumer(), 0..30_usize)
            .prop_map(|(group, consumer, most)| Step::Again { group, consumer, most }),
        3 => (group(), 0..100_usize, 0..50_usize).prop_map(|(group, from, count)| Step::Ack { group, from, count }),
        2 => (group(), consumer(), 0..100_usize, 0..30_usize, any::<bool>()).prop_map(
            |(group, consumer, from, count, force)| Step::Claim { group, consumer, from, count, force }
        ),
        2 => (group(), consumer(), 0..100_usize, 0..30_usize)
            .prop_map(|(group, consumer, from, count)| Step::ClaimFrom { group, consumer, from, count }),
        1 => (group(), consumer(), prop_oneof![Just(usize::MAX), 1..9_usize])
            .prop_map(|(group, consumer, most)| Step::DeleteConsumer { group, consumer, most }),
        1 => (group(), 0..4_usize).prop_map(|(group, part)| Step::SetBack { group, part }),
        1 => Just(Step::Move),
        1 => Just(Step::Maintain),
    ]
}

fn group_name(n: u8) -> Vec<u8> {
    [&b"g"[..], b"group two", b"groups"][usize::from(n)].to_vec()
}

fn consumer_name(n: u8) -> Vec<u8> {
    format!("consumer-{}", n % 3).into_bytes()[..if n == 3 { 3 } else { 10 }].to_vec()
}

fn pairs_of(n: u64, names: u8, bytes: usize) -> Texts {
    let value = |more: u64| vec![b'x'; bytes + (more % 3) as usize];
    match names {
        0 => vec![(b"field".to_vec(), value(n))],
        1 => vec![(b"field".to_vec(), n.to_string().into_bytes()), (b"other".to_vec(), value(n))],
        2 => vec![(n.to_string().into_bytes(), value(0))],
        3 => vec![(vec![b'n'; 70], value(1)), (b"".to_vec(), b"".to_vec())],
        more => vec![(format!("name {}", n % u64::from(more)).into_bytes(), value(n))],
    }
}

fn do_step(
    store: &Arc<Store>,
    guard: &mut Guard<'_>,
    key: &Key<'_>,
    model: &mut Model,
    step: &Step,
    now: u64,
) {
    let ids: Vec<StreamId> = model.entries.keys().copied().collect();
    let part = |part: usize| ids.get(ids.len() * part / 4).copied().unwrap_or(model.last);
    match *step {
        Step::Add { count, ms, names, bytes } => {
            for n in 0..count {
                let pairs = pairs_of(n, names, bytes);
                let new = match n % 3 {
                    0 => NewId::Now,
                    1 => NewId::In(model.last.ms + ms),
                    _ => NewId::Is(id(model.last.ms + ms % 7, model.last.seq + 1 + ms)),
                };
                let trim = (ms == 17).then_some(Trim { to: TrimTo::Len(20), about: false, limit: None });
                let adding = Adding {
                    id: new,
                    now,
                    fields: &fields(&pairs),
                    apart: &[],
                    present: ms == 3,
                    trim,
                    at_once: true,
                };
                let added = guard.stream_add(key, &adding).unwrap();
                if ms == 3 && !model.there {
                    assert_eq!(added, None);
                    continue;
                }
                let added = added.unwrap();
                assert!(added.id > model.last);
                (model.there, model.last, model.added) = (true, added.id, model.added + 1);
                model.entries.insert(added.id, pairs);
                let beyond = if trim.is_some() { model.entries.len().saturating_sub(20) } else { 0 };
                assert_eq!((added.trimmed.count, added.trimmed.left), (beyond as u64, 0));
                (0..beyond).for_each(|_| drop(model.entries.pop_first()));
            }
        }
        Step::AddLong { bytes } => {
            let more = (b"more".to_vec(), vec![b'm'; bytes % 1_500]);
            let pairs = vec![(b"long".to_vec(), vec![b'l'; bytes]), more];
            let added = add(guard, key, &pairs, NewId::In(model.last.ms + 1)).unwrap();
            (model.there, model.last, model.added) = (true, added, model.added + 1);
            model.entries.insert(added, pairs);
        }
        Step::Delete { from, count, step } => {
            let some: Vec<_> = ids.iter().skip(from).step_by(step).take(count).copied().collect();
            let with_strangers = some.iter().copied().chain([id(0, 77)]).chain(some.first().copied());
            assert_eq!(guard.stream_delete(key, with_strangers), Ok(some.len()));
            for id in some {
                model.entries.remove(&id);
                model.deleted_max = model.deleted_max.max(id);
            }
        }
        Step::Trim { to, about } => {
            let trim = Trim { to: TrimTo::Len(to), about, limit: None };
            let done = guard.stream_trim(key, &trim, true).unwrap();
            let beyond = (ids.len() as u64).saturating_sub(to);
            assert!(if about {
                done.count <= beyond && beyond - done.count < 100
            } else {
                done.count == beyond
            });
            (0..done.count).for_each(|_| drop(model.entries.pop_first()));
        }
        Step::TrimId { part: at } => {
            let first = part(at);
            let trim = Trim { to: TrimTo::Id(first), about: false, limit: None };
            let done = guard.stream_trim(key, &trim, true).unwrap();
            let kept = model.entries.split_off(&first);
            assert_eq!(done.count, model.entries.len() as u64);
            model.entries = kept;
        }
        Step::Create { group, from_start } => {
            let (name, start) =
                (group_name(group), if from_start { Start::Behind(StreamId::MIN) } else { Start::Last });
            let done = guard.group_create(key, &name, start, None, true);
            if model.groups.contains_key(&name) {
                assert_eq!(done, Err(StreamRefusal::GroupExists));
                return;
            }
            assert_eq!(done, Ok(()));
            model.there = true;
            let last = if from_start { StreamId::MIN } else { model.last };
            model.groups.insert(name, ModelGroup { last, ..ModelGroup::default() });
        }
        Step::Destroy { group, most } => {
            let name = group_name(group);
            let done = guard.group_destroy(key, &name, most).unwrap();
            assert_eq!(done.there, model.groups.contains_key(&name));
            match model.groups.remove(&name) {
                Some(there) => assert_eq!(done.pending, there.pending.len().min(most)),
                // What is left of others that are gone.
                None => drop(guard.group_removal(key, most).unwrap()),
            }
        }
        Step::Read { group, consumer, most } => {
            let (name, consumer) = (group_name(group), consumer_name(consumer));
            let done = guard.group_read(key, (&name, &consumer), now, most, true);
            let Some(there) = model.groups.get_mut(&name) else {
                assert_eq!(done, Err(StreamRefusal::NoGroup));
                return;
            };
            let done = done.unwrap();
            assert_eq!(done.new_consumer, there.consumers.insert(consumer.clone(), ()).is_none());
            let new: Vec<_> = ids.iter().filter(|id| **id > there.last).take(most).copied().collect();
            assert_eq!(done.count, new.len());
            assert_eq!(done.range, new.first().map(|first| (*first, new[new.len() - 1])));
            for id in new {
                there.last = id;
                there.pending.insert(id, (consumer.clone(), now, 1));
            }
        }
        Step::Again { group, consumer, most } => {
            let (name, consumer) = (group_name(group), consumer_name(consumer));
            let from = part(1);
            let done = guard.group_read_again(key, (&name, &consumer), now, from, most);
            let Some(there) = model.groups.get_mut(&name) else {
                assert_eq!(done, Err(StreamRefusal::NoGroup));
                return;
            };
            there.consumers.insert(consumer.clone(), ());
            let mut count = 0;
            for (id, one) in there.pending.range_mut(from..).filter(|(_, one)| one.0 == consumer).take(most) {
                count += 1;
                if model.entries.contains_key(id) {
                    (one.1, one.2) = (now, one.2 + 1);
                }
            }
            assert_eq!(done.unwrap().count, count);
        }
        Step::Ack { group, from, count } => {
            let name = group_name(group);
            let pending: Vec<_> = model.groups.get(&name).map_or_else(Vec::new, |there| {
                there.pending.keys().skip(from).take(count).copied().collect()
            });
            let with_strangers = pending.iter().copied().chain([id(5, 5)]).chain(pending.first().copied());
            assert_eq!(guard.group_ack(key, &name, with_strangers), Ok(pending.len()));
            if let Some(there) = model.groups.get_mut(&name) {
                pending.iter().for_each(|id| drop(there.pending.remove(id)));
            }
        }
        Step::Claim { group, consumer, from, count, force } => {
            let (name, consumer) = (group_name(group), consumer_name(consumer));
            let mut some: Vec<_> = ids.iter().skip(from).take(count).copied().collect();
            some.extend(model.groups.get(&name).and_then(|there| there.pending.keys().nth(from)).copied());
            some.extend(some.first().copied());
            let claim = Claim {
                group: &name,
                consumer: &consumer,
                now,
                min_idle_ms: 0,
                time: now - 5,
                count: None,
                silent: false,
                force,
                last: None,
            };
            let done = guard.group_claim(key, &claim, some.iter().copied());
            let Some(there) = model.groups.get_mut(&name) else {
                assert_eq!(done, Err(StreamRefusal::NoGroup));
                return;
            };
            there.consumers.insert(consumer.clone(), ());
            let mut claimed = Vec::new();
            for id in some {
                if !model.entries.contains_key(&id) {
                    there.pending.remove(&id);
                    continue;
                }
                let before = match there.pending.get(&id) {
                    Some(one) => one.2,
                    None if force => 1,
                    None => continue,
                };
                there.pending.insert(id, (consumer.clone(), now - 5, before + 1));
                claimed.push(id);
            }
            assert_eq!(done.unwrap().0, claimed);
        }
        Step::ClaimFrom { group, consumer, from, count } => {
            let (name, consumer) = (group_name(group), consumer_name(consumer));
            let claim = Claim {
                group: &name,
                consumer: &consumer,
                now,
                min_idle_ms: 2,
                time: now,
                count: None,
                silent: true,
                force: false,
                last: None,
            };
            let start = ids.get(from).copied().unwrap_or_default();
            let done = guard.group_claim_from(key, &claim, start, (count, 2 * count));
            let Some(there) = model.groups.get_mut(&name) else {
                assert_eq!(done, Err(StreamRefusal::NoGroup));
                return;
            };
            let done = done.unwrap();
            there.consumers.insert(consumer.clone(), ());
            for id in &done.deleted {
                assert!(!model.entries.contains_key(id) && there.pending.remove(id).is_some());
            }
            for id in &done.claimed {
                let one = there.pending.get_mut(id).unwrap();
                assert!(now - one.1 >= 2);
                *one = (consumer.clone(), now, one.2);
            }
            assert!(done.claimed.len() + done.deleted.len() <= count && done.looked <= 2 * count);
        }
        Step::DeleteConsumer { group, consumer, most } => {
            let (name, consumer) = (group_name(group), consumer_name(consumer));
            let done = guard.consumer_delete(key, &name, &consumer, most);
            let Some(there) = model.groups.get_mut(&name) else {
                assert_eq!(done, Err(StreamRefusal::NoGroup));
                return;
            };
            let done = done.unwrap();
            assert_eq!(done.there, there.consumers.contains_key(&consumer));
            let with: Vec<_> =
                there.pending.iter().filter(|(_, one)| one.0 == consumer).map(|(id, _)| *id).collect();
            assert_eq!(done.more, with.len() > done.pending);
            with[..done.pending].iter().for_each(|id| drop(there.pending.remove(id)));
            if !done.more {
                there.consumers.remove(&consumer);
            }
        }
        Step::SetBack { group, part: at } => {
            let (name, last) = (group_name(group), part(at));
            let done = guard.group_set_id(key, &name, Start::Behind(last), Some(7));
            match model.groups.get_mut(&name) {
                None => assert_eq!(done, Err(StreamRefusal::NoGroup)),
                Some(there) => there.last = last,
            }
        }
        Step::Move => move_all(store, guard),
        Step::Maintain => while guard.maintain() {},
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_stream_is_as_a_map(steps in proptest::collection::vec(step(), 1..40)) {
        let (store, mut worker) = store(8);
        let mut model = Model::default();
        for (n, step) in steps.iter().enumerate() {
            let now = NOW + n as u64;
            let mut guard = worker.enter(now);
            let key = guard.key(b"key");
            do_step(&store, &mut guard, &key, &mut model, step, now);
            compare(&mut guard, &key, &model);
        }
        store.check_behind(worker);
    }
}

fn add(guard: &mut Guard<'_>, key: &Key<'_>, pairs: &Texts, new: NewId) -> Result<StreamId, StreamRefusal> {
    let (fields, apart) = long_fields(pairs)?;
    let adding = Adding {
        id: new,
        now: NOW,
        fields: &fields,
        apart: &apart,
        present: false,
        trim: None,
        at_once: true,
    };
    guard.stream_add(key, &adding).map(|added| added.unwrap().id)
}

#[test]
fn a_stream_that_grows_has_full_leaves_and_comes_down_again() {
    let (store, mut worker) = store(32);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    for n in 0..4_000_u64 {
        let pairs = vec![(b"temperature".to_vec(), n.to_string().into_bytes())];
        add(&mut guard, &key, &pairs, NewId::In(NOW + n)).unwrap();
    }
    assert!(height(&mut guard, &key) >= 3);
    let bytes = with(&mut guard, &key, |stream| stream.unwrap().bytes());
    // In leaves of 120 bytes, with 16 bytes of a node each.
    assert!(bytes < 4_000 * 10, "{bytes}");
    let trim = Trim { to: TrimTo::Len(3), about: false, limit: None };
    let mut gone = 0;
    loop {
        let done = guard.stream_trim(&key, &trim, false).unwrap();
        gone += done.count;
        if done.left == 0 {
            break;
        }
    }
    assert_eq!(gone, 3_997);
    let ids = with(&mut guard, &key, |stream| {
        stream.unwrap().entries(0..3).map(|entry| entry.id).collect::<Vec<_>>()
    });
    assert_eq!(guard.stream_delete(&key, ids.into_iter()), Ok(3));
    assert_eq!(height(&mut guard, &key), 0, "so few lie in the item again");
    with(&mut guard, &key, |stream| {
        let stream = stream.expect("a stream stays without entries");
        assert_eq!((stream.len(), stream.added(), stream.last_id().ms), (0, 4_000, NOW + 3_999));
    });
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn ids_ascend_or_are_refused() {
    let (_store, mut worker) = store(8);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let pairs = vec![(b"f".to_vec(), b"v".to_vec())];
    let mut put = |new| add(&mut guard, &key, &pairs, new);
    assert_eq!(put(NewId::In(0)), Ok(id(0, 1)));
    assert_eq!(put(NewId::Is(id(5, 3))), Ok(id(5, 3)));
    assert_eq!(put(NewId::Is(id(5, 3))), Err(StreamRefusal::Small));
    assert_eq!(put(NewId::In(5)), Ok(id(5, 4)));
    assert_eq!(put(NewId::In(4)), Err(StreamRefusal::Small));
    assert_eq!(put(NewId::Now), Ok(id(NOW, 0)));
    assert_eq!(put(NewId::Now), Ok(id(NOW, 1)));
    assert_eq!(put(NewId::Is(id(NOW + 9, u64::MAX))), Ok(id(NOW + 9, u64::MAX)));
    assert_eq!(put(NewId::In(NOW + 9)), Err(StreamRefusal::Small));
    assert_eq!(put(NewId::Now), Ok(id(NOW + 10, 0)));
    assert_eq!(put(NewId::Is(StreamId::MAX)), Ok(StreamId::MAX));
    assert_eq!(put(NewId::Now), Err(StreamRefusal::Exhausted));
}

#[test]
fn entries_of_any_length_come_back_or_are_refused() {
    let (store, mut worker) = store(8);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let mut model = Model { there: true, ..Model::default() };
    let lengths = (0..200)
        .chain([1_000, 1_008, 1_009, 2_000, 2_100, 8_000, 16_000, 16_150])
        .chain(16_190..16_220)
        .chain([16_376, 16_384, 16_799, 16_800, 16_801, 70_000, APART_MAX]);
    for bytes in lengths {
        let pairs = vec![(b"field".to_vec(), vec![b'v'; bytes]), (vec![b'n'; bytes % 99], b"-17".to_vec())];
        let new =
            add(&mut guard, &key, &pairs, NewId::Now).unwrap_or_else(|refused| panic!("{bytes} {refused:?}"));
        model.entries.insert(new, pairs);
        (model.last, model.added) = (new, model.added + 1);
    }
    compare(&mut guard, &key, &model);
    let value = |bytes: usize| (b"field".to_vec(), vec![b'v'; bytes]);
    let name = |bytes: usize| (vec![b'n'; bytes], vec![b'v'; 2_000]);
    for pairs in [
        vec![value(APART_MAX + 1)],
        vec![value(APART_MAX - 2_000), name(5), name(6)],
        // Names and short values lie in one leaf.
        vec![name(16_370)],
        vec![name(9_000), name(9_001)],
        (0..20).map(|_| value(1_000)).collect(),
        (0..9_000).map(|_| value(0)).collect(),
    ] {
        let refused = Err(StreamRefusal::Declined(crate::Declined::TooLarge));
        assert_eq!(add(&mut guard, &key, &pairs, NewId::Now), refused);
    }
    compare(&mut guard, &key, &model);
    drop(guard);
    store.check_behind(worker);
}

/// A leaf has 16,376 bytes, and no field takes less than two of them.
#[test]
fn fields_that_are_too_many_are_not_looked_at() {
    let looks = std::cell::Cell::new(0);
    for (fields, looked_at) in [(8_188, 2 * 8_188), (8_189, 0), (1_000_000, 0)] {
        looks.set(0);
        let pairs = (0..fields).map(|_| {
            looks.set(looks.get() + 1);
            (&b""[..], &b""[..])
        });
        let refused = NewFields::default().set_long(pairs, APART_MAX, &mut Vec::new());
        assert_eq!((refused, looks.get()), (Err(crate::Declined::TooLarge), looked_at), "{fields}");
    }
}

#[test]
fn every_allocation_of_a_change_may_be_refused() {
    let (store, mut worker) = store(8);
    let mut model = Model::default();
    let steps: Vec<Step> = (0..60)
        .map(|n| match n % 6 {
            0 | 1 => Step::Add { count: 30, ms: 2, names: n as u8 % 6, bytes: 5 },
            2 => Step::Create { group: (n / 6 % 3) as u8, from_start: true },
            3 => Step::Read { group: (n / 6 % 3) as u8, consumer: 1, most: 40 },
            4 => Step::Ack { group: (n / 6 % 3) as u8, from: 3, count: 9 },
            _ => Step::Delete { from: n, count: 9, step: 2 },
        })
        .collect();
    for (n, step) in steps.iter().enumerate() {
        let now = NOW + n as u64;
        let mut guard = worker.enter(now);
        let key = guard.key(b"key");
        do_step(&store, &mut guard, &key, &mut model, step, now);
        // What comes behind is refused at each allocation in turn, and leaves all as it is.
        let pairs = vec![(b"one".to_vec(), vec![b'v'; 100]), (b"two".to_vec(), b"2".to_vec())];
        let fields = fields(&pairs);
        for left in 0..3 {
            guard.local.refuse_after = Some(left);
            let adding = Adding {
                id: NewId::Now,
                now,
                fields: &fields,
                apart: &[],
                present: false,
                trim: None,
                at_once: true,
            };
            let done = guard.stream_add(&key, &adding);
            guard.local.refuse_after = None;
            match done {
                Ok(added) => {
                    let added = added.unwrap();
                    model.there = true;
                    model.entries.insert(added.id, pairs.clone());
                    (model.last, model.added) = (added.id, model.added + 1);
                }
                Err(refused) => assert_eq!(refused, StreamRefusal::Declined(crate::Declined::NoMemory)),
            }
            compare(&mut guard, &key, &model);
        }
    }
    store.check_behind(worker);
}

#[test]
fn every_allocation_of_a_long_entry_may_be_refused() {
    let (store, mut worker) = store(8);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    let mut model = Model::default();
    do_step(&store, &mut guard, &key, &mut model, &Step::Add { count: 60, ms: 2, names: 1, bytes: 5 }, NOW);
    let pairs = vec![(b"long".to_vec(), vec![b'v'; 17_000]), (b"short".to_vec(), b"2".to_vec())];
    for refuse_after in 0.. {
        guard.local.refuse_after = Some(refuse_after);
        let done = add(&mut guard, &key, &pairs, NewId::Now);
        guard.local.refuse_after = None;
        if let Ok(added) = done {
            // Of each of its parts at least one was refused.
            assert!(refuse_after as usize >= 17_000 / rows::PART_BYTES, "{refuse_after}");
            (model.last, model.added) = (added, model.added + 1);
            model.entries.insert(added, pairs);
            break;
        }
        assert_eq!(done, Err(StreamRefusal::Declined(crate::Declined::NoMemory)));
        compare(&mut guard, &key, &model);
    }
    compare(&mut guard, &key, &model);
    drop(guard);
    store.check_behind(worker);
}

/// Its parts stay where they lie while a value is sent, whatever becomes of the entry; what lies beside something else comes with
/// them.
#[test]
fn values_of_entries_are_pinned_while_they_are_sent() {
    const PART: usize = rows::PART_BYTES;
    let value = |n: usize, bytes: usize| (0..bytes).map(|i| (i / 7 + 31 * i + n) as u8).collect::<Vec<u8>>();
    let lengths = [17_000, 24 * PART, 24 * PART + 1, 25 * PART - 1];
    let pairs: Texts = lengths
        .iter()
        .enumerate()
        .map(|(n, &bytes)| (format!("f{n}").into_bytes(), value(n, bytes)))
        .collect();
    for goes in 0..4 {
        let (store, mut worker) = store(16);
        let reclaim_all = |worker: &mut crate::Worker| {
            for _ in 0..4 {
                worker.rest();
                (0..32).for_each(|_| _ = worker.enter(NOW).maintain());
            }
        };
        let mut guard = worker.enter(NOW);
        let key = guard.key(b"key");
        let short = vec![(b"f".to_vec(), b"v".to_vec())];
        add(&mut guard, &key, &short, NewId::Now).unwrap();
        let long = add(&mut guard, &key, &pairs, NewId::Now).unwrap();
        add(&mut guard, &key, &short, NewId::Now).unwrap();
        let pin_all = |guard: &mut Guard<'_>| {
            with(guard, &key, |stream| {
                let stream = stream.unwrap();
                let fields = stream.entry(long).unwrap().fields;
                let pin = |(_, value): (_, crate::Element<'_>)| {
                    let crate::Element::Apart(apart) = value else { panic!("it lies apart") };
                    let value = stream.pin_for_reply(&store, long, &apart)?;
                    Some((value.parts, value.rest.to_vec()))
                };
                fields.map(pin).collect::<Option<Vec<_>>>()
            })
        };
        let taken = (store.held_bytes_max() - store.held_bytes()) as i64;
        store.hold(taken);
        assert!(pin_all(&mut guard).is_none(), "connections hold their share");
        store.hold(-taken);
        let pinned = pin_all(&mut guard).unwrap();
        let held: usize = pinned
            .iter()
            .zip(lengths)
            .map(|((_, rest), bytes)| bytes - rest.len() + 8 * (bytes - rest.len()).div_ceil(PART))
            .sum();
        assert_eq!(store.held_bytes(), held as u64);
        // What is sent to another takes no more but for its list.
        assert!(pin_all(&mut guard).is_some());
        assert_eq!(store.held_bytes(), held as u64);
        match goes {
            0 => guard.delete(&key, Expect::Present).unwrap(),
            1 => assert_eq!(guard.stream_delete(&key, std::iter::once(long)), Ok(1)),
            2 => move_all(&store, &mut guard),
            _ => _ = guard.store_value(&key, b"text", &Attributes::default(), Expect::Any).unwrap(),
        }
        drop(guard);
        reclaim_all(&mut worker);
        // What was freed is written over.
        let mut guard = worker.enter(NOW);
        for n in 0..100_u8 {
            let name = [n];
            let key = guard.key(&name);
            guard.store_value(&key, &[n; 700], &Attributes::default(), Expect::Any).unwrap();
        }
        for (n, ((parts, rest), bytes)) in pinned.iter().zip(lengths).enumerate() {
            let (whole, there) = (value(n, bytes), bytes - rest.len());
            assert!(rest.len() < PART && parts.value_bytes() == there as u64);
            for offset in [0, 1, PART - 1, PART, PART + 1, there - 1] {
                let read: Vec<u8> = parts.pieces(offset as u64).flatten().chain(rest).copied().collect();
                assert!(read == whole[offset..], "{bytes} from {offset}");
            }
        }
        drop(pinned);
        assert_eq!(store.held_bytes(), 0);
        drop(guard);
        reclaim_all(&mut worker);
        store.check_behind(worker);
    }
}

#[test]
fn values_that_lie_apart_go_with_their_entries() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let (key, copy) = (guard.key(b"key"), guard.key(b"copy"));
    let mut model = Model { there: true, ..Model::default() };
    for n in 0..30_usize {
        // Each third is short; others have two values that lie apart, and one between them that does not.
        let bytes = if n.is_multiple_of(3) { 10 } else { 9_000 + 700 * n };
        let pairs = vec![
            (b"one".to_vec(), vec![n as u8; bytes]),
            (b"two".to_vec(), b"2".to_vec()),
            (b"three".to_vec(), vec![b'x'; bytes + 1]),
        ];
        let added = add(&mut guard, &key, &pairs, NewId::Now).unwrap();
        (model.last, model.added) = (added, model.added + 1);
        model.entries.insert(added, pairs);
    }
    compare(&mut guard, &key, &model);
    for step in [
        Step::Create { group: 0, from_start: true },
        Step::Read { group: 0, consumer: 1, most: 9 },
        // Five of them, three of which are long.
        Step::Delete { from: 3, count: 5, step: 2 },
        Step::Move,
    ] {
        do_step(&store, &mut guard, &key, &mut model, &step, NOW);
        compare(&mut guard, &key, &model);
    }
    guard.collection_copy(&key, &copy, Expect::Any).unwrap().unwrap();
    let whole = model.clone();
    // A long one has more parts than go in a moment.
    let trim = Trim { to: TrimTo::Len(4), about: false, limit: None };
    let (mut gone, mut moments) = (0, 0);
    loop {
        let done = guard.stream_trim(&key, &trim, false).unwrap();
        (gone, moments) = (gone + done.count, moments + 1);
        (0..done.count).for_each(|_| drop(model.entries.pop_first()));
        compare(&mut guard, &key, &model);
        assert!(done.count > 0);
        if done.left == 0 {
            break;
        }
    }
    assert_eq!(gone, 21);
    assert!(moments > 10, "{moments}");
    compare(&mut guard, &copy, &whole);
    let all: Vec<StreamId> = model.entries.keys().copied().collect();
    assert_eq!(guard.stream_delete(&key, all.iter().chain(&all).copied()), Ok(4));
    with(&mut guard, &key, |stream| {
        let stream = stream.expect("a stream stays without entries");
        stream.check();
        assert_eq!(stream.len(), 0);
        assert!(stream.bytes() < 2_000, "{}", stream.bytes());
    });
    // All at once, with the entry that they go for.
    let fields = fields(&vec![(b"f".to_vec(), b"v".to_vec())]);
    let trim = Some(Trim { to: TrimTo::Len(1), about: false, limit: None });
    let id = NewId::Now;
    let adding = Adding { id, now: NOW, fields: &fields, apart: &[], present: true, trim, at_once: true };
    let added = guard.stream_add(&copy, &adding).unwrap().unwrap();
    assert_eq!((added.trimmed.count, added.trimmed.left), (25, 0));
    with(&mut guard, &copy, |stream| {
        stream.unwrap().check();
        assert_eq!(stream.unwrap().len(), 1);
    });
    drop(guard);
    store.check_behind(worker);
}

#[test]
fn a_copy_and_a_renamed_stream_are_as_it_was() {
    let (store, mut worker) = store(8);
    let mut model = Model::default();
    let mut guard = worker.enter(NOW);
    let (key, copy, other) = (guard.key(b"key"), guard.key(b"copy"), guard.key(b"other"));
    for step in [
        Step::Add { count: 300, ms: 2, names: 1, bytes: 3 },
        Step::Create { group: 0, from_start: true },
        Step::Read { group: 0, consumer: 1, most: 200 },
    ] {
        do_step(&store, &mut guard, &key, &mut model, &step, NOW);
    }
    guard.collection_copy(&key, &copy, Expect::Any).unwrap().unwrap();
    compare(&mut guard, &copy, &model);
    guard.begin([key, other]);
    guard.collection_carry(&key, &other, Expect::Any).unwrap().unwrap();
    guard.finish();
    compare(&mut guard, &other, &model);
    assert!(guard.peek(&key).hit().is_none());
    // Each goes on by itself.
    do_step(&store, &mut guard, &other, &mut model, &Step::Delete { from: 0, count: 40, step: 3 }, NOW);
    compare(&mut guard, &other, &model);
    guard.delete(&copy, Expect::Present).unwrap();
    let _ = guard.store_value(&other, b"a string", &Attributes::default(), Expect::Any);
    while guard.maintain() {}
    drop(guard);
    store.check_behind(worker);
}
