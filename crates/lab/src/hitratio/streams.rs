//! Streams by name: those of [`super::caches`] as plans, and patterns.

use std::time::Duration;

use super::caches::{LIFE_PER_KEY, STREAMS, Stream, Values};
use super::patterns::{PATTERNS, Pattern};
use crate::shift::plan::{Phase, Plan};
use crate::sizes::Sizes;

/// Streams of a quick run.
const QUICK: [&str; 2] = ["cluster52", "cluster25"];

/// Standard scores of the middles of sixteen equal shares of a normal distribution.
const SCORES: [f64; 8] = [0.0784, 0.2372, 0.4023, 0.5791, 0.7764, 1.0100, 1.3180, 1.8627];
const SIGMA: f64 = 0.8;

/// Sizes with this mean, log-normal.
fn around(mean: f64) -> Sizes {
    let raw: Vec<f64> = SCORES.iter().flat_map(|z| [(-SIGMA * z).exp(), (SIGMA * z).exp()]).collect();
    let scale = mean * raw.len() as f64 / raw.iter().sum::<f64>();
    Sizes::Weighted(raw.iter().map(|size| ((size * scale).round().max(1.0) as usize, 1.0)).collect())
}

impl Stream {
    /// Whether it is part of a quick run.
    pub fn is_quick(&self) -> bool {
        QUICK.contains(&self.name)
    }

    /// The stream over keys and values of `working_set` times the memory.
    pub fn plan(&self, memory_mb: u32, working_set: f64) -> Plan {
        let sizes = match self.values {
            Values::Mean(mean) => around(mean),
            Values::List(list) => Sizes::Weighted(list.to_vec()),
        };
        let keys = match self.key_bytes {
            (least, most) if least == most => Sizes::Fixed(least),
            (least, most) => Sizes::Spread(least, most),
        };
        let (zipf, lone, ttls) = (self.zipf, self.lone, self.ttls.to_vec());
        let mut phase = Phase { first: 0, count: 0, keys, sizes, zipf, lone, life: 0, ttls };
        phase = phase.filling(memory_mb, working_set);
        phase.life = LIFE_PER_KEY * u64::from(phase.count);
        Plan {
            phases: vec![phase],
            memory_mb,
            before: Duration::from_secs(3600),
            after: Duration::ZERO,
            bin: Duration::from_secs(3600),
            connections: 16,
            pipeline: 32,
        }
    }

    /// The stream in words.
    pub fn describe(&self) -> String {
        let (least, most) = self.key_bytes;
        let plan = self.plan(64, 1.0);
        format!(
            "keys of {} B, {}, Zipf {}, {:.1} % of requests for keys that come once",
            if least == most { least.to_string() } else { format!("{least}–{most}") },
            plan.phases[0].sizes,
            self.zipf,
            100.0 * self.lone
        )
    }
}

/// The meaning of a name.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    /// A stream.
    Stream(&'static Stream),
    /// A pattern.
    Pattern(&'static Pattern),
    /// All streams.
    Caches,
    /// All patterns.
    Patterns,
}

impl Named {
    /// The streams of this name.
    pub fn streams(self) -> Vec<&'static Stream> {
        match self {
            Named::Stream(stream) => vec![stream],
            Named::Caches => STREAMS.iter().collect(),
            Named::Pattern(_) | Named::Patterns => Vec::new(),
        }
    }

    /// The patterns of this name.
    pub fn patterns(self) -> Vec<&'static Pattern> {
        match self {
            Named::Pattern(pattern) => vec![pattern],
            Named::Patterns => PATTERNS.iter().collect(),
            Named::Stream(_) | Named::Caches => Vec::new(),
        }
    }
}

/// Finds a stream or a pattern by name, or all of one kind, for clap.
///
/// # Errors
/// What names there are.
pub fn parse(name: &str) -> Result<Named, String> {
    let stream = STREAMS.iter().find(|stream| stream.name == name).map(Named::Stream);
    stream
        .or_else(|| (name == "caches").then_some(Named::Caches))
        .map_or_else(|| parse_pattern(name), Ok)
        .map_err(|patterns| {
            let streams: Vec<&str> = STREAMS.iter().map(|stream| stream.name).collect();
            format!("{patterns}, caches, {}", streams.join(", "))
        })
}

/// Finds a pattern by name, or all, for clap.
///
/// # Errors
/// What names there are.
pub fn parse_pattern(name: &str) -> Result<Named, String> {
    if name == "patterns" {
        return Ok(Named::Patterns);
    }
    let found = PATTERNS.iter().find(|pattern| pattern.name == name).map(Named::Pattern);
    found.ok_or_else(|| {
        let names: Vec<&str> = PATTERNS.iter().map(|pattern| pattern.name).collect();
        format!("expected one of patterns, {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::super::caches::DAY;
    use super::*;

    #[test]
    fn streams_have_the_means_they_are_given() {
        for stream in &STREAMS {
            let plan = stream.plan(64, 4.0);
            let phase = &plan.phases[0];
            if let Values::Mean(mean) = stream.values {
                assert!((phase.sizes.mean() / mean - 1.0).abs() < 0.03, "{}", stream.name);
            }
            let bytes = f64::from(phase.count) * phase.item_bytes();
            assert!((bytes / (256.0 * 1_048_576.0) - 1.0).abs() < 0.01, "{}", stream.name);
            assert!(
                stream.ttls.iter().all(|&(ttl_s, _)| ttl_s <= 30 * DAY),
                "memcached takes more for a date"
            );
            assert!(parse(stream.name).unwrap().streams() == [stream]);
        }
        // Published: a mean of 335 bytes, and a median of at most 159.
        let kvcache = parse("kvcache").unwrap().streams()[0].plan(64, 4.0);
        assert!((250.0..400.0).contains(&kvcache.phases[0].sizes.mean()));
        assert!(parse("cluster1").unwrap_err().contains("cluster52"));
    }

    #[test]
    fn a_name_is_a_stream_or_a_pattern_or_all_of_them() {
        for pattern in PATTERNS {
            let named = parse(pattern.name).unwrap();
            assert_eq!(named.patterns().iter().map(|found| found.name).collect::<Vec<_>>(), [pattern.name]);
            assert!(named.streams().is_empty() && STREAMS.iter().all(|stream| stream.name != pattern.name));
        }
        let all = ["caches", "patterns"].map(|name| parse(name).unwrap());
        assert_eq!(
            all.map(|named| (named.streams().len(), named.patterns().len())),
            [(7, 0), (0, PATTERNS.len())]
        );
        assert!(parse_pattern("cluster52").unwrap_err().contains("later-0.2"));
    }
}
