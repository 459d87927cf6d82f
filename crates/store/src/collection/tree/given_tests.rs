//! Commands that change many elements of a tree: no node is made twice for one command, and all is as it would be if each element
//! came by itself.

use super::header_of;
use super::testing;
use super::tests::{NOW, move_all, store, text};
use crate::collection::build::FIELD_BYTES_MAX;
use crate::collection::{Declined, Due, Fields, Lasting, ScoreRule, Type};
use crate::worker::Guard;
use crate::{Attributes, Eviction, Expect, Key, Store};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Leaves and inner nodes of the tree of a key, but for those of a members tree.
fn nodes(store: &Store, guard: &mut Guard<'_>, key: &Key<'_>) -> [usize; 2] {
    let item = guard.peek(key).hit().expect("it is there");
    let mut nodes = [0; 2];
    store.each_node(item.raw, &mut |node, level| {
        // SAFETY: a node of a tree that is there.
        let is_of_members = unsafe { header_of(&store.arena, node) }.is_of_members();
        nodes[usize::from(level > 0)] += usize::from(!is_of_members);
    });
    nodes
}

/// Leaves and inner nodes that `f` makes, but for those of members trees.
fn makes(guard: &mut Guard<'_>, f: impl FnOnce(&mut Guard<'_>)) -> [usize; 2] {
    let before = guard.local.edit.made;
    f(guard);
    let after = guard.local.edit.made;
    [after[0] - before[0], after[1] - before[1]]
}

/// The nth field. All are equally long, so that no leaf that is cut leaves a short one.
fn field(n: u32) -> Vec<u8> {
    format!("field {n:04}").into_bytes()
}

/// Sets so many fields, each by a command of its own.
fn set_one_by_one(guard: &mut Guard<'_>, key: &Key<'_>, fields: u32) {
    for n in 0..fields {
        assert_eq!(guard.hash_set(key, [(&field(n)[..], &b"some 000"[..])].into_iter()), Ok(1));
    }
}

/// An allocation for which items give way moves the epoch on. In a transaction, too, an edit goes on then: no other worker changes
/// what it holds.
#[test]
fn no_node_is_made_again_where_an_allocation_moves_the_epoch_on() {
    let (store, mut worker) = store(2);
    store.set_eviction(Eviction::Volatile);
    let gives_way = Attributes { expires_at: NOW + 100_000, ..Attributes::default() };
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    set_one_by_one(&mut guard, &key, 280);
    for n in 0..280u32 {
        for fill in 0..20 {
            let name = (n * 20 + fill).to_le_bytes();
            let fill_key = guard.key(&name);
            let value = vec![b'f'; ((n * 20 + fill) * 7 % 1000) as usize];
            guard.store_value(&fill_key, &value, &gives_way, Expect::Any).unwrap();
        }
        guard.begin([key]);
        let made = makes(&mut guard, |guard| {
            let pair = (&field(n)[..], &b"more 000"[..]);
            assert_eq!(guard.hash_set(&key, [pair].into_iter()), Ok(0));
        });
        guard.finish();
        assert_eq!(made[0], 1, "the leaf of field {n}");
    }
    assert!(store.totals().evictions > 1_000, "memory is short");
    drop(guard);
    store.check_behind(worker);
}

/// An inner node that was made for one field of a command names the leaves of the others where it lies.
#[test]
fn inner_nodes_are_made_once_for_all_fields_of_a_command() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    set_one_by_one(&mut guard, &key, 280);
    let there = nodes(&store, &mut guard, &key);
    assert!(there[1] > 12, "{there:?}");
    // Every field, and every seventh.
    for step in [1, 7] {
        let fields: Vec<Vec<u8>> = (0..280).step_by(step).map(field).collect();
        let made = makes(&mut guard, |guard| {
            let pairs = fields.iter().map(|name| (&name[..], &b"more 000"[..]));
            assert_eq!(guard.hash_set(&key, pairs), Ok(0));
        });
        assert!(made[1] <= there[1], "{made:?} of {there:?}");
        assert!(step > 1 || made[1] == there[1], "{made:?} of {there:?}");
    }
    assert_eq!(nodes(&store, &mut guard, &key), there);
    let hash = guard.collection(&key, Type::Hash).unwrap().unwrap();
    assert!((0..280).all(|n| hash.has(&field(n))));
    drop(guard);
    store.check_behind(worker);
}

/// Each leaf is looked for once and made once for all fields that come into it.
#[test]
fn leaves_are_made_once_for_all_fields_of_a_command() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    set_one_by_one(&mut guard, &key, 280);
    let there = nodes(&store, &mut guard, &key);
    let all: Vec<Vec<u8>> = (0..280).map(field).collect();
    let new: Vec<Vec<u8>> = (280..560).map(field).collect();
    let made = makes(&mut guard, |guard| {
        let pairs = all.iter().map(|name| (&name[..], &b"more 000"[..]));
        assert_eq!(guard.hash_set(&key, pairs), Ok(0));
    });
    assert_eq!(made, there, "every node once");
    let made = makes(&mut guard, |guard| {
        let pairs = new.iter().map(|name| (&name[..], &b"some 000"[..]));
        assert_eq!(guard.hash_set(&key, pairs), Ok(280));
    });
    let after = nodes(&store, &mut guard, &key);
    assert!(after[0] > there[0] && made[0] <= after[0], "{made:?}: {there:?} became {after:?}");
    // A set makes no leaf for members that it has, and its version stays if it has all.
    let set = guard.key(b"set");
    assert_eq!(guard.set_add(&set, all.iter().map(Vec::as_slice)), Ok(280));
    let version = guard.peek(&set).hit().unwrap().cas();
    let made = makes(&mut guard, |guard| {
        assert_eq!(guard.set_add(&set, all.iter().map(Vec::as_slice)), Ok(0));
    });
    assert_eq!((made, guard.peek(&set).hit().unwrap().cas()), ([0, 0], version));
    let made = makes(&mut guard, |guard| {
        let one = all.iter().chain(&new[..1]).map(Vec::as_slice);
        assert_eq!(guard.set_add(&set, one), Ok(1));
    });
    assert!((1..=2).contains(&made[0]), "one leaf, or the two that it was cut into: {made:?}");
    // So it is with what is taken out: leaves that have none of it stay.
    let made = makes(&mut guard, |guard| {
        let half = all.iter().step_by(2).map(Vec::as_slice);
        assert_eq!(guard.remove_named(&key, Type::Hash, half), Ok(140));
    });
    assert!(made[0] <= after[0], "{made:?} of {after:?}");
    let version = guard.peek(&key).hit().unwrap().cas();
    let made = makes(&mut guard, |guard| {
        let half = all.iter().step_by(2).map(Vec::as_slice);
        assert_eq!(guard.remove_named(&key, Type::Hash, half), Ok(0));
    });
    assert_eq!((made, guard.peek(&key).hit().unwrap().cas()), ([0, 0], version));
    guard.check_tree(&key);
    let whole = all.iter().chain(&new).map(Vec::as_slice);
    assert_eq!(guard.remove_named(&key, Type::Hash, whole), Ok(420));
    assert!(guard.peek(&key).hit().is_none());
    drop(guard);
    store.check_behind(worker);
}

/// Fields of a command that has fewer than eight, or of which fewer are left behind those that are put in order together, come
/// one by one. The last value of a field stays.
#[test]
fn few_fields_come_one_by_one_and_many_in_order() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let key = guard.key(b"key");
    set_one_by_one(&mut guard, &key, 280);
    let name = field(7);
    for (fields, leaves) in
        [(1, 1), (7, 7), (8, 1), (9, 1), (299, 1), (300, 1), (301, 2), (307, 8), (308, 2), (600, 2)]
    {
        let values: Vec<Vec<u8>> = (0..fields).map(|n| format!("some {n:03}").into_bytes()).collect();
        let made = makes(&mut guard, |guard| {
            let pairs = values.iter().map(|value| (&name[..], &value[..]));
            assert_eq!(guard.hash_set(&key, pairs), Ok(0));
        });
        assert_eq!(made[0], leaves, "{fields} fields");
        let hash = guard.collection(&key, Type::Hash).unwrap().unwrap();
        assert_eq!(hash.field(&name).map(text), values.last().cloned(), "{fields} fields");
    }
    drop(guard);
    store.check_behind(worker);
}

/// New members of one command make each leaf of the scores tree once, wherever they come.
#[test]
fn leaves_of_scores_are_made_once_for_all_new_members_of_a_command() {
    const COUNT: u32 = 280;
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    // In the midst, behind all others, in front of them, and most of them with one score.
    let scores: [fn(u32) -> f64; 4] = [
        |n| f64::from(n) + 0.5,
        |n| f64::from(COUNT + n),
        |n| f64::from(n) - 1_000.0,
        |n| if n % 4 == 0 { f64::from(n) } else { 77.0 },
    ];
    for (case, score) in scores.into_iter().enumerate() {
        let name = [case as u8];
        let key = guard.key(&name);
        let mut all = BTreeMap::new();
        for n in 0..COUNT {
            let (score, name) = (f64::from(n), field(n));
            let scored = guard.sorted_add(&key, ScoreRule::default(), [(score, &name[..])].into_iter());
            assert_eq!(scored.unwrap().new, 1);
            all.insert(name, score);
        }
        let before = guard.local.edit.made[0];
        // The order of the command says nothing.
        let given: Vec<(f64, Vec<u8>)> =
            (0..COUNT).map(|n| n * 121 % COUNT).map(|n| (score(n), field(COUNT + n))).collect();
        let pairs = given.iter().map(|(score, name)| (*score, &name[..]));
        let new = guard.sorted_add(&key, ScoreRule::default(), pairs).unwrap().new;
        assert_eq!(new, COUNT as usize);
        let made = guard.local.edit.made[0] - before;
        all.extend(given.into_iter().map(|(score, name)| (name, score)));
        guard.check_tree(&key);
        let there = guard.collection(&key, Type::SortedSet).unwrap().unwrap();
        assert_eq!(there.len(), all.len());
        assert!(all.iter().all(|(name, score)| there.score(name) == Some(*score)));
        let leaves = nodes(&store, &mut guard, &key)[0];
        // Eight members come one by one: each makes up to three leaves, which are made again. Very many of one leaf come 36 at a
        // time, and the last leaf of these is made again: eight times at most.
        assert!(made <= leaves + 32 && made < 160, "case {case}: {made} made, {leaves} are there");
    }
    drop(guard);
    store.check_behind(worker);
}

/// Members that get other scores by one command leave each leaf of the scores tree once and come into each once, also if all of
/// the set do.
#[test]
fn leaves_of_scores_are_made_once_for_all_members_of_a_command_that_move() {
    const COUNT: u32 = 280;
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    // A little higher, which is in the same leaf; to the other end; all to one score; among each other.
    let scores: [fn(u32) -> f64; 4] =
        [|n| f64::from(n) + 0.25, |n| 1_000.0 - f64::from(n), |_| 77.0, |n| f64::from(n * 121 % COUNT)];
    for (case, score) in scores.into_iter().enumerate() {
        let name = [case as u8];
        let key = guard.key(&name);
        for n in 0..COUNT {
            let (score, name) = (f64::from(n), field(n));
            let scored = guard.sorted_add(&key, ScoreRule::default(), [(score, &name[..])].into_iter());
            assert_eq!(scored.unwrap().new, 1);
        }
        let there = nodes(&store, &mut guard, &key)[0];
        let before = guard.local.edit.made[0];
        let given: Vec<(f64, Vec<u8>)> =
            (0..COUNT).map(|n| n * 37 % COUNT).map(|n| (score(n), field(n))).collect();
        let pairs = given.iter().map(|(score, name)| (*score, &name[..]));
        let scored = guard.sorted_add(&key, ScoreRule::default(), pairs).unwrap();
        let differ = (0..COUNT).filter(|n| score(*n) != f64::from(*n)).count();
        assert_eq!((scored.new, scored.changed), (0, differ), "case {case}");
        let made = guard.local.edit.made[0] - before;
        let after = nodes(&store, &mut guard, &key)[0];
        // The first eight come one by one, and very many of one leaf 36 at a time, as above.
        assert!(made <= there + after + 32 && made < 120, "case {case}: {made} made, {there} became {after}");
        guard.check_tree(&key);
        let set = guard.collection(&key, Type::SortedSet).unwrap().unwrap();
        assert_eq!(set.len(), COUNT as usize);
        assert!(given.iter().all(|(score, name)| set.score(name) == Some(*score)), "case {case}");
    }
    // One that is named eight times comes one by one, and then moves with all others.
    let key = guard.key(b"all");
    let names: Vec<Vec<u8>> = (0..30).map(field).collect();
    let first = names.iter().map(|name| (1.0, &name[..]));
    assert_eq!(guard.sorted_add(&key, ScoreRule::default(), first).unwrap().new, 30);
    let again = std::iter::repeat_n((-5.0, &names[0][..]), 8);
    let all = again.chain(names.iter().enumerate().map(|(n, name)| (500.0 - n as f64, &name[..])));
    let scored = guard.sorted_add(&key, ScoreRule::default(), all).unwrap();
    assert_eq!((scored.new, scored.changed, scored.score), (0, 31, Some(471.0)));
    guard.check_tree(&key);
    let set = guard.collection(&key, Type::SortedSet).unwrap().unwrap();
    let there = set.entries(0..set.len()).map(|entry| (entry.score, text(entry.name)));
    assert!(there.eq(names.iter().enumerate().rev().map(|(n, name)| (500.0 - n as f64, name.clone()))));
    drop(guard);
    store.check_behind(worker);
}

/// What is too long for any hash is refused, wherever it comes, and nothing is done.
#[test]
fn a_command_of_which_one_field_is_too_long_does_nothing() {
    let (store, mut worker) = store(16);
    let mut guard = worker.enter(NOW);
    let (key, set) = (guard.key(b"key"), guard.key(b"set"));
    set_one_by_one(&mut guard, &key, 280);
    let names: Vec<Vec<u8>> = (0..280).map(field).collect();
    guard.set_add(&set, names.iter().map(Vec::as_slice)).unwrap();
    let versions = |guard: &mut Guard<'_>| [&key, &set].map(|key| guard.peek(key).hit().unwrap().cas());
    let before = versions(&mut guard);
    let most = store.element_bytes_max();
    let (name, long) = (vec![b'n'; FIELD_BYTES_MAX + 1], vec![b'm'; most + 1]);
    for at in [0, 9, 279, 280] {
        let mut fields: Vec<(&[u8], &[u8])> = names.iter().map(|name| (&name[..], &b"more"[..])).collect();
        fields.insert(at, (&name[..], &b""[..]));
        assert_eq!(guard.hash_set(&key, fields.iter().copied()), Err(Declined::TooLarge), "{at}");
        fields[at] = (&b"field"[..], &long[..]);
        assert_eq!(guard.hash_set(&key, fields.iter().copied()), Err(Declined::TooLarge), "{at}");
        let mut members: Vec<Vec<u8>> = (280..560).map(field).collect();
        members.insert(at, long.clone());
        assert_eq!(guard.set_add(&set, members.iter().map(Vec::as_slice)), Err(Declined::TooLarge), "{at}");
        assert_eq!(versions(&mut guard), before);
    }
    let hash = guard.collection(&key, Type::Hash).unwrap().unwrap();
    assert_eq!(hash.len(), 280);
    assert!(names.iter().all(|name| hash.field(name).map(text) == Some(b"some 000".to_vec())));
    drop(guard);
    store.check_behind(worker);
}

#[derive(Clone, Debug)]
enum Step {
    /// One command gives elements with these numbers: how long what belongs to them is, and how long fields last.
    Put {
        numbers: Vec<u32>,
        bytes: usize,
        lasting: u8,
        in_ms: u64,
    },
    Take {
        from: u32,
        count: u32,
    },
    Wait {
        ms: u64,
    },
    Move,
    Maintain,
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || {
        let short = prop_oneof![6 => 0..8_usize, 2 => 60..66_usize, 1 => Just(250_usize)];
        prop_oneof![12 => short, 1 => Just(3_000_usize), 1 => Just(17_000_usize)]
    };
    let numbers = prop_oneof![
        4 => proptest::collection::vec(0..300_u32, 1..120),
        2 => (0..300_u32, 1..400_u32).prop_map(|(from, count)| (from..from + count).collect::<Vec<u32>>()),
        1 => proptest::collection::vec(0..9_u32, 1..40),
    ];
    prop_oneof![
        8 => (numbers, bytes(), 0..4_u8, 1..3_000_u64)
            .prop_map(|(numbers, bytes, lasting, in_ms)| Step::Put { numbers, bytes, lasting, in_ms }),
        3 => (0..400_u32, 1..200_u32).prop_map(|(from, count)| Step::Take { from, count }),
        2 => (0..1_500_u64).prop_map(|ms| Step::Wait { ms }),
        1 => Just(Step::Move),
        1 => Just(Step::Maintain),
    ]
}

/// The `i`-th element of a command, which has this number. Of a hash values are long, some more than others, and of a set some
/// members.
fn element(kind: Type, (i, number): (usize, u32), bytes: usize) -> (Vec<u8>, Vec<u8>) {
    let name = number.to_string().into_bytes();
    if kind == Type::Set {
        let long = if number.is_multiple_of(7) { bytes } else { bytes.min(8) };
        return ([vec![b'm'; long], name].concat(), Vec::new());
    }
    let long = if number.is_multiple_of(5) || bytes < 1_000 { bytes } else { 9 };
    (name, [i.to_string().into_bytes(), vec![b'v'; long]].concat())
}

type Pair<'a> = (&'a [u8], &'a [u8]);

/// Gives some elements in one command; how many were not there, if fields are not to last otherwise.
fn put(
    guard: &mut Guard<'_>,
    key: &Key<'_>,
    kind: Type,
    some: &[Pair<'_>],
    lasting: Option<Lasting>,
) -> usize {
    let pairs = some.iter().copied();
    match lasting {
        _ if kind == Type::Set => guard.set_add(key, pairs.map(|(name, _)| name)).unwrap(),
        None => guard.hash_set(key, pairs).unwrap(),
        Some(lasting) => {
            assert_eq!(guard.hash_set_lasting(key, pairs, Fields::Any, lasting), Ok(true));
            0
        }
    }
}

type Contents = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// All that is there, once what is due has gone. Counts and bytes of all nodes are as the root says.
fn contents(guard: &mut Guard<'_>, key: &Key<'_>, kind: Type) -> Contents {
    while kind == Type::Hash && matches!(guard.hash_take_due(key).unwrap(), Due::More(_)) {}
    guard.check_tree(key);
    let Some(there) = guard.collection(key, kind).unwrap() else { return Contents::new() };
    let all: Contents = there
        .entries(0..there.len())
        .map(|entry| {
            let value = testing::text(&there, &entry.value);
            (testing::text(&there, &entry.name), (value, entry.expires_at))
        })
        .collect();
    assert_eq!(all.len(), there.len(), "none is there twice");
    all
}

fn is_as_one_by_one(kind: Type, steps: &[Step]) {
    let (store, mut worker) = store(64);
    let mut now = NOW;
    for step in steps {
        let mut guard = worker.enter(now);
        let keys = [guard.key(b"together"), guard.key(b"one by one")];
        match step {
            Step::Put { numbers, bytes, lasting, in_ms } => {
                let given: Vec<(Vec<u8>, Vec<u8>)> = numbers
                    .iter()
                    .enumerate()
                    .map(|(i, number)| element(kind, (i, *number), *bytes))
                    .collect();
                let lasting = match lasting {
                    0 | 1 => None,
                    2 => Some(Lasting::Keep),
                    _ => Some(Lasting::Until(now + in_ms)),
                };
                let pairs: Vec<Pair<'_>> =
                    given.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect();
                let together = put(&mut guard, &keys[0], kind, &pairs, lasting);
                let mut apart = 0;
                for pair in &pairs {
                    apart += put(&mut guard, &keys[1], kind, std::slice::from_ref(pair), lasting);
                }
                assert_eq!(together, apart);
            }
            Step::Take { from, count } => {
                let names: Vec<Vec<u8>> = (*from..from + count)
                    .flat_map(|n| [0, 3, 8, 17_000].map(|bytes| element(kind, (0, n), bytes).0))
                    .collect();
                let gone = [&keys[0], &keys[1]]
                    .map(|key| guard.remove_named(key, kind, names.iter().map(Vec::as_slice)).unwrap());
                assert_eq!(gone[0], gone[1]);
            }
            Step::Wait { ms } => now += ms,
            Step::Move => move_all(&store, &mut guard),
            Step::Maintain => while guard.maintain() {},
        }
        let [together, apart] = [&keys[0], &keys[1]].map(|key| contents(&mut guard, key, kind));
        assert_eq!(together, apart);
        assert_eq!(store.held_bytes(), 0);
    }
    for name in [&b"together"[..], b"one by one"] {
        let mut guard = worker.enter(now);
        let key = guard.key(name);
        let _ = guard.delete(&key, Expect::Present);
    }
    for _ in 0..2_000 {
        worker.enter(now).maintain();
    }
    store.check_behind(worker);
    assert_eq!((store.totals().items, store.trees.count()), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn fields_of_one_command_are_as_fields_that_come_one_by_one(
        steps in proptest::collection::vec(step(), 1..16)
    ) {
        is_as_one_by_one(Type::Hash, &steps);
    }

    #[test]
    fn members_of_one_command_are_as_members_that_come_one_by_one(
        steps in proptest::collection::vec(step(), 1..16)
    ) {
        is_as_one_by_one(Type::Set, &steps);
    }
}
