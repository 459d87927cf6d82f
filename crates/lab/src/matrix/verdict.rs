//! The verdict: sentences that answer the original article.

use super::faults::Mode;
use super::report::{Found, cell_of, point, rounds};
use super::setting::{BUFFER, Client, Grid, Handle, NO_BLOCK, NODELAY, Op, Options};
use super::{Cell, Faulted};
use crate::experiment::Experiment;
use crate::results::estimate::ROUNDS_MIN;
use crate::results::{Estimate, Outcome, number};

/// An effect that is worth a sentence: time by a tenth more or less.
const WORTH: f64 = 1.1;

/// Which option matters, on which server and at which size, and how much more the calls cost without it.
pub fn of_costs(experiment: &mut Experiment, cells: &[Cell], effects: &[Found], grid: &Grid) {
    if effects.iter().all(|found| found.effect.outcome == Outcome::Unknown) {
        experiment.run.verdict = format!("Effects need {ROUNDS_MIN} rounds.");
        return;
    }
    let mut parts = Vec::new();
    for (contender, name) in experiment.names().into_iter().enumerate() {
        let mut said = Vec::new();
        for (term, word) in [(NO_BLOCK, "NO_BLOCK"), (NODELAY, "TCP_NODELAY"), (BUFFER, "BUFFER_REQUESTS")] {
            let own = || {
                effects.iter().filter(|found| {
                    let plain = point(found.point.op, found.point.value_bytes, Handle::Kept);
                    (found.contender, found.term, found.point) == (contender, term, plain)
                })
            };
            if own().next().is_none() {
                continue;
            }
            said.push(format!("{word} {}", of_option(own())));
        }
        if !said.is_empty() {
            parts.push(format!("{name}, kept handles: {}", said.join("; ")));
        }
        let buffers = |cell: &&Cell| cell.setting.client.options().is_some_and(|options| options.has(BUFFER));
        let buffered = || cells.iter().filter(|cell| cell.seat.contender == contender).filter(buffers);
        let ended = buffered().filter(|cell| cell.ended.is_some()).count();
        if ended > 0 {
            let all = buffered().count();
            parts.push(format!(
                "{name}: BUFFER_REQUESTS ended the client's process in {ended} of {all} cells"
            ));
        }
        if let Some(words) = of_churn(effects, contender) {
            parts.push(format!("{name}, a handle for each call: {words}"));
        }
        if let Some(ratio) = of_batch(cells, contender, grid) {
            parts.push(format!(
                "{name}: sets sent 64 together with every reply read take {} × the time of BUFFER_REQUESTS",
                number::ratio(ratio)
            ));
        }
    }
    if !parts.is_empty() {
        experiment.run.verdict = parts.join(". ") + ".";
    }
}

/// "makes a set of 300,000 B 1/58 as long", or that it has no effect.
fn of_option<'f>(effects: impl Iterator<Item = &'f Found>) -> String {
    let matters = |found: &&Found| {
        let ratio = found.effect.ratio.median;
        found.effect.outcome == Outcome::Differs && !(1.0 / WORTH..=WORTH).contains(&ratio)
    };
    let said: Vec<String> = effects
        .filter(matters)
        .map(|found| {
            let size = number::text(found.point.value_bytes as f64);
            let ratio = number::ratio(found.effect.ratio.median);
            match found.point.op {
                Op::Delete => format!("{ratio} × the time of a delete"),
                op => format!("{ratio} × the time of a {} of {size} B", op.name()),
            }
        })
        .collect();
    if said.is_empty() { "does nothing that is more than a tenth".to_owned() } else { said.join(", ") }
}

/// The original article's own three answers, with its own way of calling.
fn of_churn(effects: &[Found], contender: usize) -> Option<String> {
    let smallest = effects.iter().map(|found| found.point.value_bytes).min()?;
    let of = |term: u8| {
        let wanted = point(Op::Set, smallest, Handle::Churn);
        let found = effects.iter().find(|f| (f.contender, f.term, f.point) == (contender, term, wanted))?;
        let ratio = number::ratio(found.effect.ratio.median);
        Some(match found.effect.outcome {
            Outcome::Differs => format!("{ratio} ×"),
            Outcome::Noise => "none".to_owned(),
            Outcome::Unknown => return None,
        })
    };
    let (no_block, nodelay, buffer) = (of(NO_BLOCK)?, of(NODELAY)?, of(BUFFER)?);
    Some(format!(
        "the time of a set of {smallest} B by NO_BLOCK: {no_block}, by TCP_NODELAY: {nodelay}, by \
         BUFFER_REQUESTS: {buffer} (the original article: 1.16, 1.01, 0.85)"
    ))
}

/// The cost of acknowledged batches beside buffering, for sets of the smallest size.
fn of_batch(cells: &[Cell], contender: usize, grid: &Grid) -> Option<f64> {
    let of = |client| cell_of(cells, contender, point(Op::Set, grid.sizes[0], Handle::Kept), client);
    let (batch, buffered) = (of(Client::Batch)?, of(Client::Library(Options(BUFFER)))?);
    if buffered.ended.is_some() {
        return None;
    }
    let barrier = |cell| rounds(cell, |sample| sample.barrier_us);
    Estimate::ratio(&barrier(batch), &barrier(buffered)).map(|ratio| ratio.median)
}

/// The sentence on lost values without an error.
pub fn of_faults(experiment: &mut Experiment, faulted: &[Faulted]) {
    let lost = |wanted: &dyn Fn(Mode) -> bool| -> u64 {
        faulted.iter().filter(|one| wanted(one.mode)).map(|one| one.account.untold()).sum()
    };
    let by_name = |name: &str| lost(&|mode: Mode| mode.name() == name);
    let acknowledged = lost(&Mode::is_acknowledged);
    let text = |count: u64| number::text(count as f64);
    let sentence = format!(
        "Of sets that returned OK, {} were lost without an error with BUFFER_REQUESTS, {} with NOREPLY, {} where \
         every reply was read.",
        text(by_name("BUFFER")),
        text(by_name("NOREPLY")),
        text(acknowledged)
    );
    let verdict = &mut experiment.run.verdict;
    if !verdict.is_empty() {
        verdict.push(' ');
    }
    verdict.push_str(&sentence);
}
