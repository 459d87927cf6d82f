//! A circuit breaker for one server: a state machine with the time as an argument.
//!
//! ```text
//! closed ──3 failures in a row, or half of at least 32 requests late within a second──► open
//! open   ──a pause is over: one caller dials──► closed if the server answered, else open for a longer pause
//! ```
//!
//! Pauses grow from 50 ms to 5 s. Each is drawn from its upper half, so that many clients do not come back together.

use std::time::{Duration, Instant};

/// Dials or connections that may fail in a row.
const FAILURES_MAX: u32 = 3;
/// The time over which late requests are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Requests that a window needs before it can open the breaker.
const REQUESTS_MIN: u64 = 32;
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The breaker of one server.
#[derive(Debug)]
pub struct Breaker {
    /// When the server may be dialed again; `None` while the breaker is closed.
    open_until: Option<Instant>,
    probes: u32,
    failures: u32,
    window: Option<Instant>,
    /// How many requests had been made when the window began, and how many were late since.
    requests: u64,
    late: u64,
    random: u64,
}

impl Breaker {
    /// A closed breaker. The seed decides the lengths of pauses.
    pub fn new(seed: u64) -> Breaker {
        Breaker {
            open_until: None,
            probes: 0,
            failures: 0,
            window: None,
            requests: 0,
            late: 0,
            random: seed | 1,
        }
    }

    /// Whether the server counts as down: callers fail at once.
    pub fn is_open(&self, now: Instant) -> bool {
        self.open_until.is_some_and(|until| now < until)
    }

    /// Whether the breaker was opened, and the server has not answered since.
    pub fn is_tried(&self) -> bool {
        self.open_until.is_some()
    }

    /// Notes that a dial failed, or that a connection was given up.
    pub fn failed(&mut self, now: Instant) {
        self.failures += 1;
        if self.open_until.is_some() || self.failures >= FAILURES_MAX {
            self.open(now);
        }
    }

    /// Notes that a request was not answered in time, of `requests` made so far.
    pub fn late(&mut self, now: Instant, requests: u64) {
        if self.window.is_none_or(|window| now.duration_since(window) > WINDOW) || requests < self.requests {
            (self.window, self.requests, self.late) = (Some(now), requests, 0);
        }
        self.late += 1;
        let made = (requests - self.requests).max(self.late);
        if self.open_until.is_none() && made >= REQUESTS_MIN && self.late * 2 >= made {
            self.open(now);
        }
    }

    /// Notes that a connection was made and its greeting answered.
    pub fn answered(&mut self) {
        *self = Breaker::new(self.random);
    }

    fn open(&mut self, now: Instant) {
        let pause = PAUSE_MIN.saturating_mul(1 << self.probes.min(7)).min(PAUSE_MAX);
        self.probes += 1;
        // Marsaglia's xorshift: random enough for a pause.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let half = pause / 2;
        self.open_until = Some(now + half + half.mul_f64((self.random >> 11) as f64 / (1_u64 << 53) as f64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn three_failures_in_a_row_open_it_and_an_answer_closes_it() {
        let now = Instant::now();
        let mut breaker = Breaker::new(7);
        breaker.failed(now);
        breaker.failed(now);
        assert!(!breaker.is_open(now));
        breaker.answered();
        breaker.failed(now);
        breaker.failed(now);
        assert!(!breaker.is_open(now));
        breaker.failed(now);
        assert!(breaker.is_open(now) && breaker.is_open(now + 24 * MS) && !breaker.is_open(now + 50 * MS));
        breaker.answered();
        assert!(!breaker.is_open(now));
    }

    #[test]
    fn pauses_grow_to_five_seconds_and_are_drawn_from_their_upper_half() {
        let mut now = Instant::now();
        let mut breaker = Breaker::new(7);
        (0..3).for_each(|_| breaker.failed(now));
        for probe in 1..12 {
            let pause = (PAUSE_MIN * (1 << (probe - 1).min(7))).min(PAUSE_MAX);
            assert!(breaker.is_open(now + pause / 2 - MS), "probe {probe}");
            assert!(!breaker.is_open(now + pause + MS), "probe {probe}");
            now += pause + MS;
            breaker.failed(now);
        }
    }

    #[test]
    fn half_of_32_requests_late_within_a_second_open_it() {
        let now = Instant::now();
        let mut breaker = Breaker::new(7);
        (0..31).for_each(|_| breaker.late(now, 100));
        assert!(!breaker.is_open(now));
        breaker.late(now, 100);
        assert!(breaker.is_open(now));
        let mut breaker = Breaker::new(7);
        breaker.late(now, 0);
        (0..48).for_each(|_| breaker.late(now, 100));
        assert!(!breaker.is_open(now), "49 of 100");
        breaker.late(now, 100);
        assert!(breaker.is_open(now), "50 of 100");
        let mut breaker = Breaker::new(7);
        (0..100).for_each(|n| breaker.late(now + n * 100 * MS, 100));
        assert!(!breaker.is_open(now + 9900 * MS), "never 32 within a second");
    }
}
