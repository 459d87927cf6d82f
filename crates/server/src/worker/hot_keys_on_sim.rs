//! Hot keys of a server's traffic over the simulated network: their shares as they are told, against what was asked for.

use std::collections::HashMap;
use std::sync::Arc;

use larder_eventloop::sim::Weather;

use super::on_sim::{World, resp};
use crate::config::Config;

/// Milliseconds between rounds of upkeep of a busy worker, and requests in that time, of which it samples some 250.
const TICK_MS: u64 = 100;
const TICK_REQUESTS: usize = 8_000;
/// Requests of one pipeline. Behind each, samples are counted, as the thread of the HTTP port does beside the worker.
const PIPELINE: usize = 1_000;
/// Until just before the first of three rounds of five seconds is forgotten.
const TICKS: u64 = 149;
const KEYS: usize = 5_000;

/// splitmix64.
struct Random(u64);

impl Random {
    /// In [0, 1).
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let n = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((n ^ n >> 31) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// For each rank how much is asked for of it and of those before it: the nth as often as a part of 1/n^skew.
fn zipf(skew: f64) -> Vec<f64> {
    let mut sum = 0.0;
    let weights = (1..=KEYS).map(|n| (n as f64).powf(-skew));
    let mut sums: Vec<f64> = weights.map(|weight| (sum += weight, sum).1).collect();
    sums.iter_mut().for_each(|up_to| *up_to /= sum);
    sums
}

/// Keys that have a hundredth of what is asked for, with listener 0 or 1, and how many of them are told within their error.
fn told(listener: usize, skew: f64, request: impl Fn(&str) -> String) -> (usize, usize) {
    let weather = Weather { window: usize::MAX, ..Weather::FAIR };
    let mut world = World::of(Config { threads: 1, ..Config::default() }, 1, weather);
    let hub = Arc::clone(world.service.hub());
    hub.shared.draw_samples_by(7);
    hub.shared.show_traffic(&hub.store, 1, world.events.now());
    world.service.tend_samples();
    let peer = world.connect_to(listener);
    let (sums, mut random) = (zipf(skew), Random(11));
    let mut counts: HashMap<usize, usize> = HashMap::new();
    for _ in 0..TICKS {
        for _ in 0..TICK_REQUESTS / PIPELINE {
            let mut pipeline = String::new();
            for _ in 0..PIPELINE {
                let at = random.uniform();
                let key = sums.partition_point(|up_to| *up_to <= at);
                *counts.entry(key).or_default() += 1;
                pipeline.push_str(&request(&format!("key-{key:05}")));
            }
            peer.send(pipeline.as_bytes());
            // `END` of each, or null.
            assert_eq!(world.read_all(&peer).len(), 5 * PIPELINE);
            while hub.shared.count_samples(&hub.store, world.events.now()) > 0 {}
        }
        world.pass(TICK_MS);
        world.service.upkeep(true);
    }
    let hot = hub.shared.hot_keys(100).expect("traffic is sampled");
    let all = TICKS as f64 * TICK_REQUESTS as f64;
    assert!((hot.all as f64 / all - 1.0).abs() < 0.03, "{} of {all}", hot.all);
    assert!(hot.samples < hot.all / 16, "not each is sampled: {} of {}", hot.samples, hot.all);
    let (mut listed, mut inside) = (0, 0);
    for (key, count) in counts {
        let share = count as f64 / all;
        if share < 0.01 {
            continue;
        }
        let name = format!("key-{key:05}");
        let found = hot.rows.iter().find(|hot| *hot.key == *name.as_bytes());
        let found = found.unwrap_or_else(|| panic!("{name} of {share} is not listed"));
        let off = (found.share - share).abs();
        assert!(off <= 0.15 * share, "{name}: {} is not {share}", found.share);
        listed += 1;
        inside += usize::from(off <= found.error);
    }
    (listed, inside)
}

#[test]
fn each_hot_key_is_told_within_15_percent_of_its_share_and_nearly_all_within_their_errors() {
    let text = told(0, 0.99, |key| format!("get {key}\r\n"));
    let redis = told(1, 1.2, |key| resp(&["GET", key]));
    let (listed, inside) = (text.0 + redis.0, text.1 + redis.1);
    assert!(listed >= 20, "{listed}");
    assert!(inside * 100 >= listed * 95, "{inside} of {listed} are within their errors");
}
