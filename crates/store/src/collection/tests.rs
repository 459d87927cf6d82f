//! Leaves against plain maps and vectors, byte by byte.

use super::build::{Full, LEAF_BYTES_MAX, NewEntry};
use super::scores::word_of;
use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// No member's hash: few tags, so that strangers share them.
fn tag_of(name: &[u8]) -> u8 {
    name.iter().fold(name.len() as u8, |tag, byte| tag.wrapping_mul(31) ^ byte) % 5
}

/// The leaf that a builder makes, in bytes of their own.
fn bytes_of(builder: &Builder) -> Vec<u8> {
    let mut bytes = vec![0xaa; builder.bytes().expect("tests know how much fits")];
    builder.write(&mut bytes);
    assert_eq!(leaf_bytes(bytes[..HEAD_BYTES].try_into().unwrap()), bytes.len());
    bytes
}

fn text(element: Element<'_>) -> Vec<u8> {
    element.text(&mut [0; DIGITS_MAX]).to_vec()
}

/// Strings about every length that lies in another way, and numbers about every width.
fn string() -> impl Strategy<Value = Vec<u8>> {
    let lengths = prop_oneof![
        8 => 0..12_usize,
        2 => 60..66_usize,
        1 => 253..258_usize,
        1 => 1_020..1_030_usize,
    ];
    let edges = (0..64_u32, -2..=2_i64, any::<bool>()).prop_map(|(power, near, negative)| {
        let number = i128::from(1_u64 << power) + i128::from(near);
        if negative { -number } else { number }.to_string().into_bytes()
    });
    prop_oneof![
        3 => (lengths, 0..4_u8).prop_map(|(length, byte)| vec![b'a' + byte; length]),
        2 => (0..40_i64).prop_map(|number| number.to_string().into_bytes()),
        2 => edges,
        1 => proptest::collection::vec(any::<u8>(), 0..20),
    ]
}

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (0..8_i32).prop_map(f64::from),
        2 => (-1_000_000..1_000_000_i32).prop_map(f64::from),
        2 => any::<f64>().prop_filter("a number", |score| !score.is_nan()),
        1 => prop_oneof![
            Just(f64::INFINITY),
            Just(f64::NEG_INFINITY),
            Just(-0.0),
            Just(5e-324),
            Just(-5e-324),
            Just(f64::MAX),
            Just(1_700_000_000_000.0),
            Just(1_700_000_000_001.0),
        ],
    ]
}

/// What is done to a leaf; places count modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Put { place: usize, name: Vec<u8>, value: Vec<u8>, score: f64 },
    Remove { place: usize, count: usize },
    Retain { modulo: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (any::<usize>(), string(), string(), score())
            .prop_map(|(place, name, value, score)| Step::Put { place, name, value, score }),
        2 => (any::<usize>(), 0..3_usize).prop_map(|(place, count)| Step::Remove { place, count }),
        1 => (2..5_usize).prop_map(|modulo| Step::Retain { modulo }),
    ]
}

/// An entry of the model; hashes and sets by order of insertion, sorted sets in order.
type Known = (Vec<u8>, Vec<u8>, f64);

/// Puts an entry where it belongs; what a plain vector does for it.
fn put(kind: Type, builder: &mut Builder, model: &mut Vec<Known>, step: (usize, &[u8], &[u8], f64)) {
    let (place, name, value, score) = step;
    let score = score + 0.0;
    let tag = tag_of(name);
    let new = NewEntry { tag, name, value, score };
    let there = model.iter().position(|known| known.0 == name);
    if kind != Type::List {
        assert_eq!(builder.leaf().find(name, tag), there);
    }
    let full = match (kind, there) {
        (Type::Hash, Some(i)) => {
            let done = builder.set_value(i, name.len(), value);
            if done.is_ok() {
                model[i].1 = value.to_vec();
            }
            done
        }
        (Type::Set, Some(_)) => Ok(()),
        (Type::Hash | Type::Set, None) => {
            let done = builder.insert(model.len(), new);
            if done.is_ok() {
                let value = if kind == Type::Hash { value.to_vec() } else { Vec::new() };
                model.push((name.to_vec(), value, 0.0));
            }
            done
        }
        (Type::SortedSet, _) => {
            if let Some(i) = there {
                builder.remove(i..i + 1);
                model.remove(i);
            }
            let before = |known: &Known| (word_of(known.2), known.0.as_slice()) < (word_of(score), name);
            let at = model.iter().filter(|known| before(known)).count();
            assert_eq!(builder.leaf().place(score, name), at);
            let done = builder.insert(at, new);
            if done.is_ok() {
                model.insert(at, (name.to_vec(), Vec::new(), score));
            }
            done
        }
        (Type::List, _) if place % 3 == 0 && !model.is_empty() => {
            let i = place % model.len();
            let done = builder.set_element(i, name);
            if done.is_ok() {
                model[i].0 = name.to_vec();
            }
            done
        }
        (Type::List, _) => {
            let at = place % (model.len() + 1);
            let done = builder.insert(at, new);
            if done.is_ok() {
                model.insert(at, (name.to_vec(), Vec::new(), 0.0));
            }
            done
        }
        (Type::Stream, _) => unreachable!("streams are of rows"),
    };
    if full == Err(Full) {
        let bytes: usize = model.iter().map(|known| known.0.len() + known.1.len() + 7).sum();
        assert!(bytes + name.len() + value.len() + 16 > LEAF_BYTES_MAX, "there is room");
    }
}

/// All that can be asked of a leaf is as the model has it.
fn compare(kind: Type, leaf: &Leaf<'_>, model: &[Known]) {
    assert_eq!((leaf.kind(), leaf.len()), (kind, model.len()));
    let of = |entry: Entry<'_>| (text(entry.name), text(entry.value), entry.score);
    let all: Vec<Known> = leaf.entries(0..model.len()).map(of).collect();
    assert!(all == model, "{all:?} is not {model:?}");
    let mut back: Vec<Known> = leaf.entries_back(0..model.len()).map(of).collect();
    back.reverse();
    assert!(back == model);
    let (third, half) = (model.len() / 3, model.len().div_ceil(2));
    assert!(leaf.entries(third..half).map(of).eq(model[third..half].iter().cloned()));
    assert!(leaf.entries_back(third..half).map(of).eq(model[third..half].iter().rev().cloned()));
    for (i, known) in model.iter().enumerate() {
        assert!(of(leaf.entry(i)) == *known);
        assert_eq!(leaf.entry(i).name.len(), known.0.len());
        if kind != Type::List {
            assert_eq!(leaf.find(&known.0, tag_of(&known.0)), Some(i));
        }
        if kind == Type::SortedSet {
            assert_eq!(leaf.score(i).to_bits(), known.2.to_bits(), "−0 is stored as 0");
            assert_eq!(leaf.below(known.2, false), model.iter().filter(|other| other.2 < known.2).count());
            assert_eq!(leaf.below(known.2, true), model.iter().filter(|other| other.2 <= known.2).count());
            assert_eq!(leaf.place(known.2, &known.0), i);
        }
    }
    if kind != Type::List {
        for stranger in [&b""[..], b"nobody's", b"-17", &[b'z'; 80]] {
            let there = model.iter().position(|known| known.0 == stranger);
            assert_eq!(leaf.find(stranger, tag_of(stranger)), there);
        }
    }
}

fn is_as_a_vector(kind: Type, steps: &[Step]) {
    let (mut builder, mut model) = (Builder::default(), Vec::<Known>::new());
    builder.start(kind);
    for step in steps {
        match step {
            Step::Put { place, name, value, score } => {
                put(kind, &mut builder, &mut model, (*place, name, value, *score));
            }
            Step::Remove { place, count } => {
                let start = place % (model.len() + 1);
                let end = (start + count).min(model.len());
                builder.remove(start..end);
                model.drain(start..end);
            }
            Step::Retain { modulo } => {
                let mut number = 0;
                let mut keep = || {
                    number += 1;
                    number % modulo != 0
                };
                builder.retain(|_| keep());
                number = 0;
                let mut keep = || {
                    number += 1;
                    number % modulo != 0
                };
                model.retain(|_| keep());
            }
        }
        compare(kind, &builder.leaf(), &model);
        if model.is_empty() {
            assert!(builder.is_empty());
            continue;
        }
        // What is written is what was built, and can be gone on with.
        let bytes = bytes_of(&builder);
        let leaf = Leaf::of(&bytes);
        leaf.check(&tag_of);
        compare(kind, &leaf, &model);
        let mut again = Builder::default();
        again.load(&leaf);
        assert_eq!(bytes_of(&again), bytes, "one collection has one form");
        builder = again;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_hash_is_as_a_map(steps in proptest::collection::vec(step(), 1..40)) {
        is_as_a_vector(Type::Hash, &steps);
    }

    #[test]
    fn a_set_is_as_a_set(steps in proptest::collection::vec(step(), 1..40)) {
        is_as_a_vector(Type::Set, &steps);
    }

    #[test]
    fn a_sorted_set_is_as_a_sorted_vector(steps in proptest::collection::vec(step(), 1..40)) {
        is_as_a_vector(Type::SortedSet, &steps);
    }

    #[test]
    fn a_list_is_as_a_vector(steps in proptest::collection::vec(step(), 1..40)) {
        is_as_a_vector(Type::List, &steps);
    }
}

proptest! {
    #[test]
    fn what_is_turned_to_the_front_is_what_was_put_there_one_by_one(
        old in proptest::collection::vec(string(), 0..10),
        new in proptest::collection::vec(string(), 0..10),
    ) {
        let (mut turned, mut put) = (Builder::default(), Builder::default());
        for (builder, front) in [(&mut turned, false), (&mut put, true)] {
            builder.start(Type::List);
            let entry = |name| NewEntry { tag: 0, name, value: &[], score: 0.0 };
            old.iter().enumerate().for_each(|(i, name)| builder.insert(i, entry(name)).unwrap());
            for (i, name) in new.iter().enumerate() {
                builder.insert(if front { 0 } else { old.len() + i }, entry(name)).unwrap();
            }
        }
        turned.turn_to_front(old.len());
        if !put.is_empty() {
            let bytes = bytes_of(&turned);
            Leaf::of(&bytes).check(&tag_of);
            assert_eq!(bytes, bytes_of(&put));
        }
    }
}

/// Many small entries: more than are worked out at a time, and tags that recur.
#[test]
fn leaves_of_thousands_of_entries_are_found_in_and_walked_both_ways() {
    for kind in [Type::Hash, Type::Set, Type::SortedSet, Type::List] {
        let (mut builder, mut model) = (Builder::default(), Vec::<Known>::new());
        builder.start(kind);
        for n in 0..1_500_u32 {
            // Ascending as text, so that in a sorted set of one score each comes last.
            let name = (10_000 + n).to_string().into_bytes();
            let tag = tag_of(&name);
            let new = NewEntry { tag, name: &name, value: &name, score: 7.0 };
            if builder.insert(model.len(), new).is_err() {
                break;
            }
            let value = if kind == Type::Hash { name.clone() } else { Vec::new() };
            model.push((name, value, if kind == Type::SortedSet { 7.0 } else { 0.0 }));
        }
        let bytes = bytes_of(&builder);
        let leaf = Leaf::of(&bytes);
        leaf.check(&tag_of);
        assert_eq!(leaf.len(), 1_500);
        let of = |entry: Entry<'_>| (text(entry.name), text(entry.value), entry.score);
        assert!(leaf.entries(0..1_500).map(of).eq(model.iter().cloned()));
        assert!(leaf.entries_back(0..1_500).map(of).eq(model.iter().rev().cloned()));
        assert!(leaf.entries_back(70..1_400).map(of).eq(model[70..1_400].iter().rev().cloned()));
        if kind != Type::List {
            let places: HashMap<&[u8], usize> =
                model.iter().enumerate().map(|(i, known)| (known.0.as_slice(), i)).collect();
            assert!(places.iter().all(|(name, i)| leaf.find(name, tag_of(name)) == Some(*i)));
        }
    }
}

#[test]
fn a_leaf_is_as_long_as_it_may_be_and_no_byte_longer() {
    for kind in [Type::Hash, Type::Set, Type::List] {
        let mut builder = Builder::default();
        builder.start(kind);
        let entry = |name: &'static [u8]| NewEntry { tag: tag_of(name), name, value: b"v", score: 0.0 };
        // So long that the other one is short enough for a leaf of a tree.
        builder.insert(0, entry(b"the first of two members")).unwrap();
        let bytes = builder.bytes().unwrap();
        let arrays = match kind {
            Type::Hash => 3,
            Type::Set => 2,
            _ => 1,
        };
        let value = if kind == Type::Hash { 1 } else { 0 };
        // A length in front, and its share of the arrays.
        let room = LEAF_BYTES_MAX - bytes - arrays - value - 2;
        let name = vec![b'x'; room + 1];
        let too_long = NewEntry { tag: tag_of(&name), name: &name, value: b"v", score: 0.0 };
        assert_eq!(builder.insert(1, too_long), Err(Full));
        assert_eq!((builder.leaf().len(), builder.bytes()), (1, Ok(bytes)), "nothing was done");
        let fits = NewEntry { tag: tag_of(&name[..room]), name: &name[..room], value: b"v", score: 0.0 };
        builder.insert(1, fits).unwrap();
        assert_eq!(builder.bytes(), Ok(LEAF_BYTES_MAX));
        Leaf::of(&bytes_of(&builder)).check(&tag_of);
        assert_eq!(builder.insert(0, entry(b"")), Err(Full));
        builder.remove(0..1);
        builder.insert(0, entry(b"")).unwrap();
        Leaf::of(&bytes_of(&builder)).check(&tag_of);
    }
}

#[test]
fn a_sorted_set_whose_scores_need_more_bytes_than_there_are_is_too_long() {
    let mut builder = Builder::default();
    builder.start(Type::SortedSet);
    let mut n = 0_u32;
    while let (name, true) = (format!("{n:05}x"), builder.bytes().is_ok()) {
        let new = NewEntry { tag: tag_of(name.as_bytes()), name: name.as_bytes(), value: b"", score: 1.0 };
        if builder.insert(n as usize, new).is_err() {
            break;
        }
        n += 1;
    }
    builder.remove(n as usize - 3..n as usize);
    assert!(builder.bytes().is_ok(), "equal scores take no bytes");
    let new = NewEntry { tag: tag_of(b"last"), name: b"last", value: b"", score: 1.1 };
    builder.insert(builder.leaf().len(), new).unwrap();
    assert_eq!(builder.bytes(), Err(Full), "now each takes seven");
}

/// What is done to a leaf of a hash in which fields expire; times are few, so that they meet, and 0 is never.
#[derive(Clone, Debug)]
enum TimedStep {
    Put { name: u8, at: u64 },
    Time { place: usize, at: u64 },
    Remove { place: usize, count: usize },
    Retain { modulo: usize },
    Beside { names: Vec<u8>, at: u64, in_front: bool },
    Load,
    Expire { now: u64 },
}

fn timed_step() -> impl Strategy<Value = TimedStep> {
    let at = || prop_oneof![2 => Just(0_u64), 5 => 1..20_u64, 2 => (1..5_u64).prop_map(|n| n << 40), 1 => Just(255 + 5)];
    prop_oneof![
        6 => (any::<u8>(), at()).prop_map(|(name, at)| TimedStep::Put { name, at }),
        4 => (any::<usize>(), at()).prop_map(|(place, at)| TimedStep::Time { place, at }),
        2 => (any::<usize>(), 0..3_usize).prop_map(|(place, count)| TimedStep::Remove { place, count }),
        1 => (2..5_usize).prop_map(|modulo| TimedStep::Retain { modulo }),
        2 => (proptest::collection::vec(any::<u8>(), 1..4), at(), any::<bool>())
            .prop_map(|(names, at, in_front)| TimedStep::Beside { names, at, in_front }),
        1 => Just(TimedStep::Load),
        1 => (0..20_u64).prop_map(|now| TimedStep::Expire { now }),
    ]
}

type TimedModel = Vec<(Vec<u8>, u64)>;

/// Puts a field in that is not there.
fn put_timed(builder: &mut Builder, model: &mut TimedModel, name: &[u8], at: u64) {
    let end = model.len();
    builder.insert(end, NewEntry { tag: tag_of(name), name, value: name, score: 0.0 }).unwrap();
    builder.set_time(end, at);
    model.push((name.to_vec(), at));
}

proptest! {
    #[test]
    fn a_leaf_with_times_is_as_a_vector(steps in proptest::collection::vec(timed_step(), 1..60)) {
        let mut builder = Builder::default();
        builder.start(Type::Hash);
        let mut model = TimedModel::new();
        for step in steps {
            match step {
                TimedStep::Put { name, at } => {
                    let name = [b'n', name];
                    match model.iter().position(|known| known.0 == name) {
                        Some(i) => {
                            builder.set_value(i, name.len(), &name).unwrap();
                            builder.set_time(i, at);
                            model[i].1 = at;
                        }
                        None => put_timed(&mut builder, &mut model, &name, at),
                    }
                }
                TimedStep::Time { place, at } => {
                    if !model.is_empty() {
                        let i = place % model.len();
                        builder.set_time(i, at);
                        model[i].1 = at;
                    }
                }
                TimedStep::Remove { place, count } => {
                    let start = place % (model.len() + 1);
                    let end = model.len().min(start + count);
                    builder.remove(start..end);
                    model.drain(start..end);
                }
                TimedStep::Retain { modulo } => {
                    let mut i = 0;
                    builder.retain(|_| {
                        i += 1;
                        i % modulo != 0
                    });
                    let mut i = 0;
                    model.retain(|_| {
                        i += 1;
                        i % modulo != 0
                    });
                }
                TimedStep::Beside { names, at, in_front } => {
                    let mut beside = Builder::default();
                    beside.start(Type::Hash);
                    let mut others = TimedModel::new();
                    for (i, name) in names.iter().enumerate() {
                        let name = [b'n', *name];
                        if model.iter().chain(&others).all(|known| known.0 != name) {
                            put_timed(&mut beside, &mut others, &name, at * (i as u64 % 2));
                        }
                    }
                    if !others.is_empty() {
                        let bytes = bytes_of(&beside);
                        let leaf = Leaf::of(&bytes);
                        if in_front {
                            builder.prepend(&leaf);
                            others.append(&mut model);
                            model = others;
                        } else {
                            builder.push_run(&leaf, 0..others.len(), 0..leaf.offset(others.len()));
                            model.append(&mut others);
                        }
                    }
                }
                TimedStep::Load => {
                    if !model.is_empty() {
                        let bytes = bytes_of(&builder);
                        builder.load(&Leaf::of(&bytes));
                    }
                }
                TimedStep::Expire { now } => {
                    let before = model.len();
                    model.retain(|(_, at)| *at == 0 || *at > now);
                    assert_eq!(builder.drop_expired(now), before - model.len());
                }
            }
            let soonest = model.iter().map(|(_, at)| *at).filter(|at| *at != 0).min().unwrap_or(0);
            assert_eq!(builder.soonest(), soonest);
            if model.is_empty() {
                continue;
            }
            let bytes = bytes_of(&builder);
            assert_eq!(builder.tree_bytes(), bytes.len());
            let leaf = Leaf::of(&bytes);
            leaf.check(&tag_of);
            assert_eq!((leaf.soonest(), leaf.is_timed()), (soonest, soonest != 0));
            let entries: TimedModel =
                leaf.entries(0..leaf.len()).map(|entry| (text(entry.name), entry.expires_at)).collect();
            assert_eq!(entries, model);
            for (i, (name, at)) in model.iter().enumerate() {
                assert_eq!(leaf.find_live(name, tag_of(name), 10), (*at == 0 || *at > 10).then_some(i));
            }
        }
    }
}
