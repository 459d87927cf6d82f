//! Sets and sorted sets, most of whose members lie outside of the leaf. Two workers add members, find them,
//! change their scores, remove them and move them to another set, in a store that evicts sets, moves items
//! and has its limit changed. Each set is whole or gone, each member is in its place, and the store's counts
//! are right afterwards.

use crate::long_values::{MEBIBYTES, stepped_by_two};
use crate::plain::Dice;
use larder_store::{Declined, Expect, Guard, Key, ScoreRule, Type, Worker};
use std::collections::HashSet;
use std::time::Duration;

const NOW: u64 = 1_700_000_000_000;
const SETS: u64 = 12;
const MEMBERS: u64 = 24;

/// The member with a number: most lie outside of the leaf, some have the same length, and each ends with its
/// number.
fn member(number: u64) -> Vec<u8> {
    let bytes = match number % 8 {
        0 => 8,
        1 => 16_356,
        2 => 16_357,
        3 => 200_000,
        _ => 17_000 + (number % 3) as usize * 30_000,
    };
    let word = (number + 1).to_be_bytes();
    let mut all = vec![b'x'; bytes - word.len()];
    all.extend(word);
    all
}

/// Checks that each listed member is whole, is listed once and is found by name; a sorted set also has its
/// order and ranks.
fn look(guard: &mut Guard<'_>, name: &[u8], kind: Type) {
    let key = guard.key(name);
    let Some(there) = guard.collection(&key, kind).expect("a set") else { return };
    let mut known = HashSet::new();
    let mut before: Option<(f64, Vec<u8>)> = None;
    for (rank, entry) in there.entries(0..there.len()).enumerate() {
        let mut all = Vec::new();
        // The other worker may write while this one reads.
        there.each_part(&entry.name, |part| {
            all.extend_from_slice(part);
            std::thread::yield_now();
        });
        let number = u64::from_be_bytes(*all.last_chunk().expect("eight bytes")) - 1;
        assert!(all == member(number), "a torn member");
        assert!(known.insert(number), "{number} is there twice");
        assert!(there.has(&all), "{number} is not found");
        if kind == Type::SortedSet {
            assert_eq!((there.find(&all), there.score(&all)), (Some(rank), Some(entry.score)), "{number}");
            let this = (entry.score, all);
            assert!(before.is_none_or(|before| before < this), "{number} is out of order");
            before = Some(this);
        }
    }
    assert_eq!(known.len(), there.len());
    for number in 0..MEMBERS {
        assert_eq!(there.has(&member(number)), known.contains(&number), "{number}");
    }
}

/// Adds members; a sorted set gets few scores, so that many members share each.
fn put(
    guard: &mut Guard<'_>,
    (key, kind): (&Key<'_>, Type),
    members: &[Vec<u8>],
    dice: &mut Dice,
) -> Result<(), Declined> {
    if kind == Type::Set {
        return guard.set_add(key, members.iter().map(Vec::as_slice)).map(drop);
    }
    let pairs: Vec<(f64, &[u8])> =
        members.iter().map(|member| (dice.below(3) as f64, member.as_slice())).collect();
    guard.sorted_add(key, ScoreRule::default(), pairs.iter().copied()).map(drop)
}

/// Takes one random step; returns true if there was no memory for it.
fn step(worker: &mut Worker, dice: &mut Dice, kind: Type) -> bool {
    let number = dice.below(SETS);
    let names = [format!("set {number}"), format!("set {}", (number + 1) % SETS)];
    let mut guard = worker.enter(NOW);
    if dice.below(8) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    if dice.below(60) == 0 {
        guard.store().set_memory_bytes(MEBIBYTES[dice.below(3) as usize] << 20);
    }
    let keys = [guard.key(names[0].as_bytes()), guard.key(names[1].as_bytes())];
    let members: Vec<Vec<u8>> = (0..1 + dice.below(3)).map(|_| member(dice.below(MEMBERS))).collect();
    let words = || members.iter().map(Vec::as_slice);
    let done = match dice.below(9) {
        0..4 => put(&mut guard, (&keys[0], kind), &members, dice),
        4 if kind == Type::SortedSet && dice.below(2) == 0 => {
            guard.sorted_remove(&keys[0], |set| 1..set.len().min(4)).map(drop)
        }
        4 => guard.remove_named(&keys[0], kind, words()).map(drop),
        5 | 6 => {
            // Moves a member to the other set in a transaction. If there is no memory to remove it, it is in
            // both sets afterwards.
            guard.begin(keys);
            let there = guard.collection(&keys[0], kind).expect("a set").map(|set| set.has(&members[0]));
            let mut done = Ok(());
            if there == Some(true) {
                let one = || std::iter::once(&members[0][..]);
                done = put(&mut guard, (&keys[1], kind), &members[..1], dice);
                if done.is_ok() && guard.remove_named(&keys[0], kind, one()).is_ok() {
                    let left = guard.collection(&keys[0], kind).expect("a set");
                    assert!(!left.is_some_and(|set| set.has(&members[0])), "it was taken out");
                }
            }
            guard.finish();
            done
        }
        7 if dice.below(6) == 0 => {
            let _ = guard.delete(&keys[0], Expect::Present);
            Ok(())
        }
        _ => {
            look(&mut guard, names[0].as_bytes(), kind);
            Ok(())
        }
    };
    let refused = done == Err(Declined::NoMemory);
    assert!(refused || done.is_ok(), "{done:?}");
    for _ in 0..4 {
        guard.maintain();
    }
    refused
}

#[test]
fn sets_of_long_members_are_evicted_as_a_whole_beside_two_workers() {
    are_evicted_as_a_whole(Type::Set);
}

#[test]
fn sorted_sets_of_long_members_are_evicted_as_a_whole_beside_two_workers() {
    are_evicted_as_a_whole(Type::SortedSet);
}

fn are_evicted_as_a_whole(kind: Type) {
    let store = stepped_by_two(|worker, dice| step(worker, dice, kind));
    let mut worker = store.worker().unwrap();
    for n in 0..SETS {
        look(&mut worker.enter(NOW), format!("set {n}").as_bytes(), kind);
    }
    assert!(store.totals().evictions > 0);
    while worker.enter(NOW).maintain() {}
    store.check_behind(worker);
}
