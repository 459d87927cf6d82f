//! Access patterns that no stream of independent requests has: the hit ratio of each keeps its bound, also
//! soon after a change from another pattern. Larger stores: `cargo bench -p larder-store --bench hitratio --
//! patterns`; all pairs of patterns: `-- turns`.

#[path = "../../benches/hitratio/cold.rs"]
#[allow(dead_code, reason = "the bench has models beside it")]
mod cold;
#[path = "../../../lab/src/hitratio/patterns.rs"]
mod patterns;
#[path = "../../benches/hitratio/policies.rs"]
mod policies;
#[path = "../../benches/hitratio/race.rs"]
mod race;

use patterns::{PATTERNS, Pattern, Verb};
use race::{Cache as _, Stored};

/// The time at which a pattern begins.
const START: u64 = 1_700_000_000_000;
/// By how much the hit ratio of a pattern may be lower after another pattern.
const TURNED_LESS: f64 = 0.02;

fn row(name: &str) -> &'static Pattern {
    PATTERNS.iter().find(|row| row.name == name).expect("a pattern")
}

/// The hit ratio of a pattern in a store that was filled with keys that are never read.
fn seen(pattern: &Pattern, memory_bytes: u64, value_bytes: usize) -> f64 {
    let (mut stored, fits) = Stored::full(memory_bytes, value_bytes);
    race::run(&mut stored, pattern.shape, fits, 0, false)
}

fn check(memory_bytes: u64, value_bytes: usize) {
    let (_, fits) = Stored::full(memory_bytes, value_bytes);
    let missed: Vec<String> = PATTERNS
        .iter()
        .filter_map(|pattern| {
            let [lru, segmented, _] = race::models(pattern.shape, fits);
            let hits = seen(pattern, memory_bytes, value_bytes);
            let least = pattern.least(lru, segmented, fits);
            (hits < least).then(|| format!("{}: {hits:.4}, not {least:.4}", pattern.name))
        })
        .collect();
    assert!(missed.is_empty(), "values of {value_bytes} B, of which {fits} fit: {missed:?}");
}

#[test]
fn every_pattern_keeps_its_bound_with_values_of_a_kilobyte() {
    check(8 << 20, 1_000);
}

#[test]
fn every_pattern_keeps_its_bound_with_values_in_pieces() {
    check(16 << 20, 100_000);
}

#[test]
fn a_pattern_after_another_keeps_its_bound_two_memories_later() {
    for (before, after) in [("zipf-0.9", "later-0.8"), ("later-0.8", "loop-0.8"), ("loop-1.2", "later-0.5")] {
        let (mut stored, fits) = Stored::full(8 << 20, 1_000);
        race::run(&mut stored, row(before).shape, fits, 1, false);
        let hits = race::run(&mut stored, row(after).shape, fits, 0, true);
        let least = row(after).least(0.0, 0.0, fits) - TURNED_LESS;
        assert!(hits >= least, "{after} after {before}: {hits:.4}, not {least:.4}");
    }
}

/// A client writes keys that are never read and keys that are read twice, then writes all of them again under
/// the same names. Each is stored without a read before, and some have ghosts of main, which say nothing
/// about the reads that follow.
#[test]
fn names_that_are_used_again_are_read_as_often_as_new_ones() {
    let (pattern, (_, fits)) = (row("twice-0.5"), Stored::full(8 << 20, 1_000));
    let least = pattern.least(0.0, 0.0, fits);
    let rounds = cold::rounds(8 << 20, 1_000, pattern.shape, fits * 8 / 10);
    assert!(
        rounds.len() == 4 && rounds.iter().all(|&hits| hits >= least),
        "third and fourth memory of each round: {rounds:.4?}, not {least}"
    );
}

/// One read does not move a key from probation to main; one read and a second write do.
#[test]
fn a_key_that_was_written_over_stays_for_one_read_less() {
    let left = |again: bool| {
        let (mut stored, fits) = Stored::full(8 << 20, 1_000);
        let keys = || (0..100).map(|n| 1 << 50 | n);
        keys().for_each(|id| _ = stored.request(id, Verb::Set));
        if again {
            keys().for_each(|id| _ = stored.request(id, Verb::Set));
        }
        assert!(keys().all(|id| stored.request(id, Verb::Get).0), "they are new");
        for n in 0..fits / 2 {
            stored.request(1 << 51 | n, Verb::Set);
            stored.rest();
        }
        keys().filter(|&id| stored.request(id, Verb::Get).0).count()
    };
    let (once, again) = (left(false), left(true));
    assert!(once <= 10 && again >= 90, "of 100: {once} written once, {again} twice");
}
