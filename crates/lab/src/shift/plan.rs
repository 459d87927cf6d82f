//! The plan of a shift: phases with their keys and sizes, and the beginning of each.

use std::time::Duration;

use crate::sizes::Sizes;

/// Keys and values of one phase. No two phases share a key.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Number of the first key.
    pub first: u32,
    /// Number of keys in use at any time.
    pub count: u32,
    /// Sizes of keys.
    pub keys: Sizes,
    /// Sizes of values.
    pub sizes: Sizes,
    /// Zipf's exponent of their popularity.
    pub zipf: f64,
    /// Share of the requests for keys that are requested only once.
    pub lone: f64,
    /// Requests after which another key has taken each key's place; 0: never.
    pub life: u64,
    /// Seconds that values live, each with its weight; 0 is for ever.
    pub ttls: Vec<(u32, f64)>,
}

/// This many keys follow each other in one place before the first comes again.
pub const GENERATIONS: u32 = 4;
/// Separates the random numbers for a key's length, its value and its time to live.
const OF_KEY: u64 = 1 << 40;
const OF_TTL: u64 = 2 << 40;

impl Phase {
    /// Key numbers that the phase uses.
    pub fn numbers(&self) -> u32 {
        if self.life > 0 { self.count * GENERATIONS } else { self.count }
    }

    /// The same phase with as many keys as take `working_set` times the memory.
    pub fn filling(self, memory_mb: u32, working_set: f64) -> Phase {
        let bytes = f64::from(memory_mb) * 1_048_576.0 * working_set;
        Phase { count: (bytes / self.item_bytes()).max(16.0) as u32, ..self }
    }

    /// Mean bytes of a key and its value.
    pub fn item_bytes(&self) -> f64 {
        self.keys.mean() + self.sizes.mean()
    }

    /// Bytes of key number `key`.
    pub fn key_bytes(&self, key: u32) -> usize {
        self.keys.of(key, OF_KEY)
    }

    /// Bytes of its value.
    pub fn value_bytes(&self, key: u32) -> usize {
        self.sizes.of(key, 0)
    }

    /// Seconds that its value lives; 0: for ever.
    pub fn ttl_s(&self, key: u32) -> u32 {
        let list = self.ttls.iter().map(|&(seconds, weight)| (seconds as usize, weight)).collect();
        if self.ttls.len() == 1 { self.ttls[0].0 } else { Sizes::Weighted(list).of(key, OF_TTL) as u32 }
    }
}

/// The plan for every server.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The phases, in order.
    pub phases: Vec<Phase>,
    /// Memory of a server, in MiB.
    pub memory_mb: u32,
    /// Measured time of the first phase.
    pub before: Duration,
    /// Length of each later phase.
    pub after: Duration,
    /// The length of a bin, whose events are counted together.
    pub bin: Duration,
    /// Connections.
    pub connections: usize,
    /// Gets that a connection sends together.
    pub pipeline: usize,
}

impl Plan {
    /// Phases like `model`, with values of each of `sizes`; each phase's keys and values take
    /// `working_set` times the memory.
    pub fn phases(model: &Phase, sizes: &[usize], memory_mb: u32, working_set: f64) -> Vec<Phase> {
        let mut first = 0;
        sizes
            .iter()
            .map(|&size| {
                let phase = Phase { first, sizes: Sizes::Fixed(size), ..model.clone() };
                let phase = phase.filling(memory_mb, working_set);
                first += phase.numbers();
                phase
            })
            .collect()
    }

    /// Number of all keys; higher numbers are keys that are requested only once.
    pub fn numbers(&self) -> u32 {
        self.phases.iter().map(|phase| phase.first + phase.numbers()).max().unwrap_or(0)
    }

    /// The phase of a key; keys that are requested only once belong to the last.
    pub fn phase_of(&self, key: u32) -> &Phase {
        self.phases.iter().rfind(|phase| key >= phase.first).expect("the first phase begins at 0")
    }

    /// Memory of a server in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.memory_mb) << 20
    }

    /// When each phase but the first begins, from the start of the measurement on.
    pub fn shifts(&self) -> Vec<Duration> {
        (1..self.phases.len()).map(|phase| self.before + self.after * (phase as u32 - 1)).collect()
    }

    /// The phase at a time from the start of the measurement on.
    pub fn phase_at(&self, time: Duration) -> usize {
        self.shifts().iter().filter(|&&shift| time >= shift).count()
    }

    /// The length of the measurement.
    pub fn length(&self) -> Duration {
        self.before + self.after * (self.phases.len() as u32 - 1)
    }

    /// The number of its bins.
    pub fn bins(&self) -> usize {
        (self.length().as_secs_f64() / self.bin.as_secs_f64()).round() as usize
    }

    /// The plan that stays in one phase for ever, in one bin: for parts of a run that have no clock.
    pub fn only_in(&self, phase: usize) -> Plan {
        let phases = self.phases[..=phase].to_vec();
        Plan { phases, before: Duration::ZERO, after: Duration::ZERO, bin: Duration::MAX, ..self.clone() }
    }

    /// The plan of a server that has only the last phase.
    pub fn only_last(&self) -> Plan {
        let mut last = self.phases[self.phases.len() - 1].clone();
        last.first = 0;
        Plan { phases: vec![last], ..self.clone() }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn model() -> Phase {
        Phase {
            first: 0,
            count: 0,
            keys: Sizes::Fixed(16),
            sizes: Sizes::Fixed(0),
            zipf: 0.9,
            lone: 0.0,
            life: 0,
            ttls: vec![(0, 1.0)],
        }
    }

    pub fn plan() -> Plan {
        Plan {
            phases: Plan::phases(&model(), &[100, 200, 400], 1, 2.0),
            memory_mb: 1,
            before: Duration::from_secs(2),
            after: Duration::from_secs(3),
            bin: Duration::from_millis(250),
            connections: 4,
            pipeline: 2,
        }
    }

    #[test]
    fn phases_share_no_key_and_each_has_the_same_bytes() {
        let plan = plan();
        for pair in plan.phases.windows(2) {
            assert_eq!(pair[1].first, pair[0].first + pair[0].count);
        }
        for phase in &plan.phases {
            let bytes = f64::from(phase.count) * (16.0 + phase.sizes.mean());
            assert!((bytes / 2_097_152.0 - 1.0).abs() < 0.001);
        }
        assert_eq!(plan.only_last().phases[0].count, plan.phases[2].count);
    }

    #[test]
    fn keys_have_lengths_and_times_in_the_mixture_given() {
        let ttls = vec![(60, 1.0), (0, 3.0)];
        let phase = Phase { keys: Sizes::Spread(16, 255), ttls, ..model() };
        let short = (0..10_000).filter(|&key| phase.ttl_s(key) == 60).count();
        assert!((2_300..2_700).contains(&short), "{short}");
        assert!((0..1_000).all(|key| (16..=255).contains(&phase.key_bytes(key))));
        assert_eq!(model().ttl_s(7), 0);
    }

    #[test]
    fn times_fall_into_their_phase() {
        let plan = plan();
        let at = |ms| plan.phase_at(Duration::from_millis(ms));
        assert_eq!([at(0), at(1_999), at(2_000), at(4_999), at(5_000)], [0, 0, 1, 1, 2]);
        assert_eq!((plan.length(), plan.bins()), (Duration::from_secs(8), 32));
        let stays = |phase| [0, 9_999].map(|ms| plan.only_in(phase).phase_at(Duration::from_millis(ms)));
        assert_eq!([stays(0), stays(1), stays(2)], [[0; 2], [1; 2], [2; 2]]);
    }
}
