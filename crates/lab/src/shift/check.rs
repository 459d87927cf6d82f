//! Checks of a visit: values, counts, and whether the load was sent in its time.

use super::seen::Seen;
use super::variant::Variant;
use super::visit::{Counted, Visit};
use crate::experiment::Experiment;
use crate::results::of_time;

/// A run that sends less of the offered load than this has no result.
const OFFERED_MIN: f64 = 0.8;

/// All checks of a visit.
pub fn check(experiment: &mut Experiment, variant: &Variant, visit: &Visit) {
    check_values(experiment, variant, &visit.seen);
    check_values(experiment, variant, &visit.warm);
    check_counts(experiment, variant, &[&visit.warm, &visit.seen], visit.server_counts);
    // Requests that wait for long come after a shift although they belong before it.
    let share = visit.seen.totals().0 as f64 / visit.offered.max(1.0);
    experiment.checks.add(of_time::OFFERED, share >= OFFERED_MIN, || {
        format!("{}: {:.0} % of it", variant.name, 100.0 * share)
    });
}

/// Checks that the server counted the same as the clients.
pub fn check_counts(
    experiment: &mut Experiment,
    variant: &Variant,
    seen: &[&Seen],
    server_counts: Option<Counted>,
) {
    let name = &variant.name;
    let (mut gets, mut hits, mut sets, mut refused) = (0, 0, 0, 0);
    for seen in seen {
        let (more_gets, more_hits, more_sets) = seen.totals();
        (gets, hits, sets, refused) =
            (gets + more_gets, hits + more_hits, sets + more_sets, refused + seen.refused);
    }
    let checks = &mut experiment.checks;
    let claim = "the server counted as many hits as the clients";
    let Some(theirs) = server_counts else {
        checks.add(claim, false, || format!("{name} does not count hits and misses"));
        return;
    };
    checks.equal(claim, hits, theirs.hits, name);
    checks.equal("the server counted as many misses as the clients", gets - hits, theirs.misses, name);
    if let Some(theirs) = theirs.sets {
        checks.add(
            "the server counted as many sets as the clients",
            (sets..=sets + refused).contains(&theirs),
            || format!("{name}: {sets} here, {theirs} there, {refused} refused"),
        );
    }
}

/// Checks that every value is one that was written.
pub fn check_values(experiment: &mut Experiment, variant: &Variant, seen: &Seen) {
    let (_, hits, _) = seen.totals();
    experiment.checks.add(
        "every hit carried the right value, no older than acknowledged",
        seen.wrong == 0,
        || {
            let first = seen.first.as_deref().unwrap_or_default();
            format!("{}: {hits} hits, {} wrong {first}", variant.name, seen.wrong)
        },
    );
}
