//! Figures compared with their targets.

use super::figures::{Data, Figure, MEMORY, MEMORY_BYTES_MAX, Reference};
use super::report::{self, Cell, Outcome, Role, Verdict};
use crate::peers::Kind;

/// The largest allowed ratio of a request's CPU time to the older binary's.
const OLDER_FACTOR_MAX: f64 = 1.03;

pub(super) fn memory(kind: Kind, data: Data, empty: u64, full: u64) -> Verdict {
    let key_and_value = data.keyspace().key_bytes + data.value_bytes;
    let items = f64::from(data.keys);
    let above = full.saturating_sub(empty) as f64 / items - key_and_value as f64;
    let larder = kind == Kind::Larder;
    Verdict {
        id: MEMORY.to_owned(),
        claim: format!("{}, RSS per item above key and value", kind.name()),
        ratio: None,
        of_minima: None,
        measured: format!("{above:.1} B"),
        target: if larder { format!("≤ {MEMORY_BYTES_MAX} B") } else { String::new() },
        outcome: if larder { Outcome::of(above <= MEMORY_BYTES_MAX) } else { Outcome::Shown },
    }
}

/// Compares every figure with its targets, and the pairs on one server with each other.
pub(super) fn judge(cells: &[Cell]) -> Vec<Verdict> {
    let cell = |id: &str, kind: Kind| {
        cells.iter().find(|cell| cell.figure.id == id && cell.kind == kind && cell.role == Role::First)
    };
    let mut verdicts = Vec::new();
    for older in cells.iter().filter(|cell| cell.role == Role::Older) {
        let Some(first) = cell(older.figure.id, older.kind) else { continue };
        let claim = "larder / older binary".to_owned();
        verdicts.push(Verdict {
            target: format!("≤ {}", report::ratio(OLDER_FACTOR_MAX)),
            ..Verdict::on_ratio(older.figure.id, claim, first, older, |ratio| {
                Outcome::of(ratio <= OLDER_FACTOR_MAX)
            })
        });
    }
    for again in cells.iter().filter(|cell| cell.role == Role::Again) {
        let Figure { id, peers, bounds, .. } = again.figure;
        let name = again.kind.name();
        let Some(first) = cell(id, again.kind) else { continue };
        let claim = format!("A/A: {name} / {name}");
        verdicts.push(Verdict::on_ratio(id, claim, again, first, |_| Outcome::Noise));
        let Some(larder) = cell(id, Kind::Larder) else { continue };
        // The server that was measured in the place of this kind.
        let standing_for = |kind: Kind| {
            let of = move |cell: &&Cell| cell.figure.id == id && cell.role == Role::First;
            cells.iter().filter(of).filter(move |cell| cell.kind.stands_for() == kind)
        };
        for bound in bounds {
            let others: Vec<(&Cell, &str)> = match bound.reference {
                Reference::Server(kind) => standing_for(kind).map(|cell| (cell, cell.kind.name())).collect(),
                Reference::Figure(other) => {
                    cell(other, Kind::Larder).map(|cell| (cell, other)).into_iter().collect()
                }
            };
            for (other, name) in others {
                let claim = format!("larder / {name}");
                let judge = |ratio| Outcome::of(ratio <= bound.factor);
                verdicts.push(Verdict {
                    target: format!("≤ {}", report::ratio(bound.factor)),
                    ..Verdict::on_ratio(id, claim, larder, other, judge)
                });
            }
        }
        let bounded = |kind: Kind| bounds.iter().any(|bound| bound.reference == Reference::Server(kind));
        for other in peers.iter().filter(|&&kind| !bounded(kind)).flat_map(|&kind| standing_for(kind)) {
            let claim = format!("larder / {}", other.kind.name());
            verdicts.push(Verdict::on_ratio(id, claim, larder, other, |_| Outcome::Shown));
        }
    }
    verdicts
}
