//! The plan of a shift: phases with their keys and sizes, and when each begins.

use std::time::Duration;

use crate::sizes::Sizes;

/// Keys and values that are asked for in one phase. No two phases share a key.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Number of the first key.
    pub first: u32,
    /// How many keys there are.
    pub count: u32,
    /// How large their values are.
    pub sizes: Sizes,
}

/// What every server goes through.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The phases, in order.
    pub phases: Vec<Phase>,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Exponent of the keys' popularity.
    pub zipf: f64,
    /// Memory of a server, in MiB.
    pub memory_mb: u32,
    /// How long the first phase is measured before the first shift.
    pub before: Duration,
    /// How long each later phase lasts.
    pub after: Duration,
    /// What is counted together.
    pub bin: Duration,
    /// Connections.
    pub connections: usize,
    /// Gets that a connection sends together.
    pub pipeline: usize,
    /// Time to live of what is stored, in seconds; 0: for ever.
    pub ttl_s: u32,
}

impl Plan {
    /// Phases of keys of `key_bytes` with values of each of `sizes`; each phase's keys and values
    /// take `working_set` times the memory.
    pub fn phases(sizes: &[usize], key_bytes: usize, memory_mb: u32, working_set: f64) -> Vec<Phase> {
        let bytes = f64::from(memory_mb) * 1_048_576.0 * working_set;
        let mut first = 0;
        sizes
            .iter()
            .map(|&size| {
                let count = (bytes / (key_bytes + size) as f64).max(16.0) as u32;
                let phase = Phase { first, count, sizes: Sizes::Fixed(size) };
                first += count;
                phase
            })
            .collect()
    }

    /// Memory of a server in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.memory_mb) << 20
    }

    /// When, from the start of the measurement on, each phase but the first begins.
    pub fn shifts(&self) -> Vec<Duration> {
        (1..self.phases.len()).map(|phase| self.before + self.after * (phase as u32 - 1)).collect()
    }

    /// The phase at a time from the start of the measurement on.
    pub fn phase_at(&self, time: Duration) -> usize {
        self.shifts().iter().filter(|&&shift| time >= shift).count()
    }

    /// How long the measurement takes.
    pub fn length(&self) -> Duration {
        self.before + self.after * (self.phases.len() as u32 - 1)
    }

    /// How many bins it has.
    pub fn bins(&self) -> usize {
        (self.length().as_secs_f64() / self.bin.as_secs_f64()).round() as usize
    }

    /// The plan of a server that only ever sees the last phase.
    pub fn only_last(&self) -> Plan {
        let mut last = self.phases[self.phases.len() - 1].clone();
        last.first = 0;
        Plan { phases: vec![last], ..self.clone() }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn plan() -> Plan {
        Plan {
            phases: Plan::phases(&[100, 200, 400], 16, 1, 2.0),
            key_bytes: 16,
            zipf: 0.9,
            memory_mb: 1,
            before: Duration::from_secs(2),
            after: Duration::from_secs(3),
            bin: Duration::from_millis(250),
            connections: 4,
            pipeline: 2,
            ttl_s: 0,
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
    fn times_fall_into_their_phase() {
        let plan = plan();
        let at = |ms| plan.phase_at(Duration::from_millis(ms));
        assert_eq!([at(0), at(1_999), at(2_000), at(4_999), at(5_000)], [0, 0, 1, 1, 2]);
        assert_eq!((plan.length(), plan.bins()), (Duration::from_secs(8), 32));
    }
}
