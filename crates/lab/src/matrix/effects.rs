//! The effect of an option, separated from the others: effects of a factorial design, as ratios.
//!
//! With ln y for every combination of k options that vary, round by round:
//!
//! ```text
//! effect of f         mean over the others of   ln y(f on) − ln y(f off)
//! of f and g          mean over the others of   [effect of f, g on] − [effect of f, g off]
//! ```
//!
//! Both are Σ s·ln y / 2^(k − n), with n = 1 or 2 options and s the product of their signs, + on and − off. `exp` of it
//! is a ratio: 1.2 is 20 % more time; of a pair, how many times the effect of one is what it was when the other is on.
//!
//! Noise is the difference of two measurements of the same server, over as many visits as the effect has.

use crate::results::{Estimate, Outcome};

/// An effect, and whether it is more than noise.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// The ratio.
    pub ratio: Estimate,
    /// Whether it is more than noise.
    pub outcome: Outcome,
    /// The options that varied.
    pub varied: u8,
}

/// Rounds of a figure by combination of options: its index is their bits. A combination that was not measured, or has
/// no figures, is empty.
pub type Cells = [Vec<f64>; 8];

/// The effects that there are: single options and pairs, as bits.
pub const TERMS: [u8; 6] = [1, 2, 4, 1 | 2, 1 | 4, 2 | 4];

/// The name of an effect.
pub fn name(term: u8) -> String {
    let names: Vec<&str> =
        (0..3).filter(|at| term & 1 << at != 0).map(|at| super::setting::OPTIONS[at]).collect();
    names.join(" × ")
}

/// The effect of `term` over all combinations of the options `varied` (the others are off), by round. None when
/// a combination was not measured as often as the others, or `term` does not vary.
pub fn rounds(cells: &Cells, term: u8, varied: u8) -> Option<Vec<f64>> {
    if term & !varied != 0 || term == 0 {
        return None;
    }
    let combinations: Vec<u8> = (0..8).filter(|bits| bits & !varied == 0).collect();
    let count = cells[0].len();
    if count == 0 || combinations.iter().any(|&bits| cells[usize::from(bits)].len() != count) {
        return None;
    }
    let halves = f64::from(1_u32 << (varied.count_ones() - term.count_ones()));
    let effect = |round: usize| {
        let sum: f64 = combinations
            .iter()
            .map(|&bits| {
                let off = (term & !bits).count_ones();
                let sign = if off.is_multiple_of(2) { 1.0 } else { -1.0 };
                sign * cells[usize::from(bits)][round].ln()
            })
            .sum();
        (sum / halves).exp()
    };
    Some((0..count).map(effect).collect())
}

/// How far apart two measurements of the same cells are, by round: over the combinations in which `term` is off, since the effect
/// has as many with it on.
fn twice(first: &Cells, again: &Cells, term: u8, varied: u8) -> Option<Vec<f64>> {
    let off: Vec<usize> =
        (0..8_u8).filter(|bits| bits & !varied == 0 && bits & term == 0).map(usize::from).collect();
    let count = first[0].len();
    if count == 0 || off.iter().any(|&at| first[at].len() != count || again[at].len() != count) {
        return None;
    }
    let apart = |round: usize| {
        let sum: f64 = off.iter().map(|&at| (again[at][round] / first[at][round]).ln()).sum();
        (sum / off.len() as f64).exp()
    };
    Some((0..count).map(apart).collect())
}

/// The effect of `term`. Where some combinations have no figures because a client ended in them, the effect is that
/// over the rest: with the options of `without` off.
pub fn effect(cells: &Cells, noise: Option<(&Cells, &Cells)>, term: u8, without: &[u8]) -> Option<Effect> {
    let all = 7;
    let tried = std::iter::once(all).chain(without.iter().map(|bits| all & !bits));
    let (varied, ratios) = tried.filter_map(|varied| Some((varied, rounds(cells, term, varied)?))).next()?;
    let ratio = Estimate::of(&ratios)?;
    let control =
        noise.and_then(|(first, again)| twice(first, again, term, varied)).and_then(|r| Estimate::of(&r));
    let outcome = Outcome::of(&ratio, control.as_ref());
    Some(Effect { ratio, outcome, varied })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times of a client with a NO_BLOCK that costs a tenth, and a BUFFER that halves the time and makes NODELAY cost a fifth.
    fn known() -> Cells {
        std::array::from_fn(|bits| {
            let on = |bit: usize| bits & bit != 0;
            let mut time = 100.0;
            time *= if on(1) { 1.1 } else { 1.0 };
            time *= if on(4) { 0.5 } else { 1.0 };
            time *= if on(2) && on(4) { 1.2 } else { 1.0 };
            // A round that was disturbed as a whole.
            vec![time, 3.0 * time, 1.5 * time, time, time, time]
        })
    }

    fn median(cells: &Cells, term: u8) -> f64 {
        effect(cells, None, term, &[]).unwrap().ratio.median
    }

    #[test]
    fn effects_are_the_factors_that_made_the_times() {
        let cells = known();
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-12;
        assert!(near(median(&cells, 1), 1.1));
        // Half of the pairs have the other option on: the effect is the mean of both, on the logarithm.
        assert!(near(median(&cells, 2), 1.2_f64.sqrt()));
        assert!(near(median(&cells, 4), 0.5 * 1.2_f64.sqrt()));
        assert!(near(median(&cells, 1 | 2), 1.0) && near(median(&cells, 1 | 4), 1.0));
        assert!(near(median(&cells, 2 | 4), 1.2));
    }

    #[test]
    fn a_disturbed_round_cancels() {
        let effect = effect(&known(), Some((&known(), &known())), 1, &[]).unwrap();
        let [low, high] = effect.ratio.interval.unwrap();
        assert!((low - 1.1).abs() < 1e-12 && (high - 1.1).abs() < 1e-12);
        assert_eq!(effect.outcome, Outcome::Differs);
    }

    #[test]
    fn what_the_same_server_shows_twice_is_no_effect() {
        let cells = known();
        let again: Cells = std::array::from_fn(|at| cells[at].iter().map(|time| 1.3 * time).collect());
        let effect = |term| effect(&cells, Some((&cells, &again)), term, &[]).unwrap().outcome;
        assert_eq!((effect(1), effect(4)), (Outcome::Noise, Outcome::Differs));
        // A control that ended shows no noise, and so no effect is shown.
        let none: Cells = Default::default();
        assert_eq!(super::effect(&cells, Some((&cells, &none)), 4, &[]).unwrap().outcome, Outcome::Noise);
    }

    #[test]
    fn an_option_with_which_the_client_ended_has_no_effect_and_the_others_have_theirs_without_it() {
        let mut cells = known();
        cells[4..].iter_mut().for_each(Vec::clear);
        assert_eq!(effect(&cells, None, 4, &[4]), None);
        assert_eq!(effect(&cells, None, 1, &[]), None);
        let without = effect(&cells, None, 1, &[4]).unwrap();
        assert!((without.ratio.median - 1.1).abs() < 1e-12);
        assert_eq!(without.varied, 3);
        assert_eq!(effect(&cells, None, 1 | 4, &[4]), None);
        // Over a relay NODELAY is not varied.
        let mut relayed = known();
        [2, 3, 6, 7].iter().for_each(|&at| relayed[at].clear());
        let effect = effect(&relayed, None, 4, &[2]).unwrap();
        assert!((effect.ratio.median - 0.5).abs() < 1e-12);
    }

    #[test]
    fn effects_have_names() {
        assert_eq!(
            TERMS.map(name),
            ["NO_BLOCK", "NODELAY", "BUFFER", "NO_BLOCK × NODELAY", "NO_BLOCK × BUFFER", "NODELAY × BUFFER"]
        );
    }
}
