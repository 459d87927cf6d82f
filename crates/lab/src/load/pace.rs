//! When a client of a dialog begins its next requests: after its previous replies, or at times of a clock.

use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::Options;
use crate::dialog::Step;
use crate::generator::gap;
use crate::tally::Tally;

/// The windows of one client.
#[derive(Debug)]
pub(super) struct Pace {
    /// Windows a second; none when the next follows the last.
    per_s: Option<f64>,
    /// Windows are due at even times.
    even: bool,
    rng: StdRng,
    /// When the next window is due.
    due: Instant,
    /// The client had nothing to do but to wait for that.
    idle: bool,
    /// The window under way is answered, and the next has no time yet.
    over: bool,
    /// Windows that the client begins at most.
    left: u64,
    sent: Instant,
}

impl Pace {
    /// The share of one connection in the offered load.
    pub fn new(args: &Options, seed: u64) -> Pace {
        let now = Instant::now();
        Pace {
            per_s: args.rate.map(|rate| rate / f64::from(args.connections)),
            even: args.even,
            rng: StdRng::seed_from_u64(seed ^ 1 << 63),
            due: now,
            idle: false,
            over: false,
            left: u64::MAX,
            sent: now,
        }
    }

    /// Begins a run of `left` windows now; the first is due at some time of the first gap.
    pub fn start(&mut self, now: Instant, left: u64) {
        (self.left, self.over) = (left, false);
        let gap = self.gap();
        self.due = now + if self.even { gap.mul_f64(self.rng.random::<f64>()) } else { gap };
    }

    /// Time from one window to the next.
    fn gap(&mut self) -> Duration {
        let Some(per_s) = self.per_s else { return Duration::ZERO };
        gap(per_s, self.even, &mut self.rng)
    }

    /// The client's next step, if it is no window; `None` if a window begins, which is sent now.
    pub fn next(&mut self, now: Instant, ending: bool) -> Option<Step> {
        if std::mem::take(&mut self.over) {
            let gap = self.gap();
            self.due += gap;
        }
        if ending || self.left == 0 {
            return Some(Step::Done);
        }
        if self.per_s.is_none() {
            self.due = now;
        } else if self.due > now {
            self.idle = true;
            return Some(Step::Until(self.due));
        }
        self.left -= 1;
        self.sent = now;
        None
    }

    /// Records that the window is answered.
    pub fn answered(&mut self, now: Instant, tally: &mut Tally) {
        match self.per_s {
            None => tally.took(now - self.sent),
            Some(_) => {
                // A request that waited for the last reply is not late because of the generator.
                let lag = if self.idle { self.sent - self.due } else { Duration::ZERO };
                tally.took_since_due(now - self.due, now - self.sent, lag);
            }
        }
        (self.idle, self.over) = (false, true);
    }
}

/// The part of `windows` that client `number` of `clients` has; without a limit `u64::MAX`.
pub(super) fn share(windows: Option<u64>, number: u64, clients: u64) -> u64 {
    let until =
        |windows, number: u64| (u128::from(windows) * u128::from(number) / u128::from(clients)) as u64;
    windows.map_or(u64::MAX, |windows| until(windows, number + 1) - until(windows, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_share_windows_out_and_have_no_end_without() {
        let shares: Vec<u64> = (0..3).map(|number| share(Some(10), number, 3)).collect();
        assert_eq!((shares.iter().sum::<u64>(), shares), (10, vec![3, 3, 4]));
        assert_eq!((share(None, 0, 3), share(Some(u64::MAX), 0, 1)), (u64::MAX, u64::MAX));
    }
}
