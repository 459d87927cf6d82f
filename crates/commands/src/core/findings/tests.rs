//! Each rule in the situation that it is for, and just short of it.

use super::*;
use crate::core::counters::Sums;
use crate::core::host::Process;
use crate::core::traffic::Outlook;
use crate::core::traffic::{self, Coldest, Hottest, Large};
use larder_store::{Curve, FACTORS, Point, Totals};
use std::sync::Arc;

fn quiet() -> Look {
    let process = Process { connections_max: 100, ..Process::default() };
    let totals = Totals { memory_bytes: 64 * MIB, ..Totals::default() };
    Look {
        figures: Figures {
            process,
            sums: Sums::default(),
            totals,
            now_s: 1000,
            events_lost: 0,
            prefixes_missed: 0,
            whole_holds: 0,
            topics: [0; 3],
            resident_bytes: 0,
            system: System::default(),
            traffic: traffic::Summary::default(),
            watched: [0; 3],
        },
        recent: Happened::default(),
        system: System::default(),
        machine: Machine::default(),
    }
}

fn with(change: impl FnOnce(&mut Look)) -> Look {
    let mut look = quiet();
    change(&mut look);
    look
}

fn recent(events: &[(Event, u64)]) -> Look {
    with(|look| look.recent = Happened::with(60, events))
}

fn hottest(share: f64, error: f64, all_per_second: f64) -> Look {
    let hottest = Hottest { share, error, all_per_second, hot_keys: 1, ..Hottest::default() };
    with(|look| look.figures.traffic.hottest = hottest)
}

/// A key that has so much of the bytes of requests and replies.
fn heaviest(bytes_share: f64, bytes_error: f64, mib_per_second: f64) -> Look {
    let bytes_per_second = mib_per_second * MIB as f64;
    let hottest = Hottest { bytes_share, bytes_error, bytes_per_second, ..Hottest::default() };
    with(|look| look.figures.traffic.hottest = hottest)
}

/// A forecast for 64 MiB that are used up, of which 16 % are missed, and so many with half and with twice of them.
fn forecast(half: f64, twice: f64, error: f64) -> Look {
    let misses = [0.4, half, 0.2, 0.16, 0.14, twice, 0.05];
    let points = std::array::from_fn(|nth| Point {
        factor: FACTORS[nth],
        miss_ratio: misses[nth],
        error,
        is_vague: nth == 6,
    });
    let curve = Curve { points: Some(points), counted_miss_ratio: 0.16, is_full: true, ..Curve::default() };
    let outlook = Outlook { curve, limit_bytes: 64 * MIB, reads_per_second: 10_000.0, ..Outlook::default() };
    with(|look| look.figures.traffic.outlook = Some(Arc::new(outlook)))
}

fn coldest(share_most: f64, all_per_second: f64) -> Look {
    let coldest = Coldest { memory: 0.2, memory_error: 0.05, share_most, all_per_second };
    with(|look| look.figures.traffic.coldest = Some(coldest))
}

fn large(share: f64, error: f64, mib_per_second: f64) -> Look {
    let bytes_per_second = mib_per_second * MIB as f64;
    with(|look| look.figures.traffic.large = Large { share, error, bytes_per_second })
}

/// Workers that were observed for so long: the parts of the time for which each ran, and could have.
fn workers(seconds: u64, times: &[(f64, f64)], stolen: f64) -> Look {
    let workers = times.iter().map(|&(busy, delayed)| WorkerTime { busy, delayed }).collect();
    with(|look| look.machine = Machine { seconds, workers, stolen, ..Machine::default() })
}

/// How often the system dropped a connection in so many seconds.
fn dropped(seconds: u64, dropped: u64) -> Look {
    with(|look| look.machine = Machine { seconds, dropped, ..Machine::default() })
}

/// Requests in a minute, and those of so many receives.
fn receives(requests: u64, timed: u64, requests_timed: u64) -> Look {
    recent(&[
        (Event::Requests, requests),
        (Event::TimedReceives, timed),
        (Event::TimedRequests, requests_timed),
    ])
}

/// Without huge pages.
fn small_pages(memory_bytes: u64) -> Look {
    with(|look| {
        look.figures.totals.memory_bytes = memory_bytes;
        look.machine.no_huge_pages = Some("they are switched off");
    })
}

fn clock(ns: u64) -> Look {
    with(|look| look.machine.clock_ns = Some(ns))
}

/// So many misses were seen, each of which stands for some.
fn herd(fills: u64, herd: u64, scale: f64) -> Look {
    let all = |seen: u64| (seen as f64 * scale) as u64;
    let mut look = recent(&[(Event::Fills, all(fills)), (Event::HerdMisses, all(herd))]);
    let curve = Curve { scale, ..Curve::default() };
    look.figures.traffic.outlook = Some(Arc::new(Outlook { curve, seconds: 60.0, ..Outlook::default() }));
    look
}

fn found(look: &Look) -> Vec<&'static str> {
    judge(look).iter().map(|finding| finding.rule.name).collect()
}

#[test]
fn where_nothing_happens_nothing_is_found() {
    assert!(found(&quiet()).is_empty());
}

#[test]
fn each_rule_is_found_at_its_condition_and_not_just_short_of_it() {
    use Event::*;
    let cases: [(&str, Look, Look); 50] = [
        ("memory-short", forecast(0.3, 0.139, 0.01), forecast(0.3, 0.141, 0.01)),
        ("memory-spare", forecast(0.163, 0.155, 0.0019), forecast(0.163, 0.155, 0.0021)),
        ("refused-writes", recent(&[(OutOfMemory, 1)]), recent(&[])),
        ("connections-refused", recent(&[(Refused, 1)]), recent(&[])),
        (
            "swapping",
            with(|look| look.system.swapped_bytes = MIB + 1),
            with(|look| look.system.swapped_bytes = MIB),
        ),
        (
            "memory-cgroup",
            with(|look| look.system.group_bytes = Some(70 * MIB - 1)),
            with(|look| look.system.group_bytes = Some(70 * MIB)),
        ),
        ("open-port", with(|look| look.figures.process.open = true), quiet()),
        (
            "connections-near",
            with(|look| look.figures.process.connections = 81),
            with(|look| look.figures.process.connections = 80),
        ),
        ("address-full", recent(&[(RefusedPerAddress, 1)]), recent(&[])),
        ("accept-late", recent(&[(AcceptPauses, 1)]), recent(&[])),
        ("accept-late", dropped(55, 1), dropped(55, 0)),
        ("accept-late", dropped(55, 1), dropped(54, 1)),
        ("slow-reader", recent(&[(RepliesHeld, 1)]), recent(&[])),
        ("slow-writer", recent(&[(RequestsHeld, 1)]), recent(&[])),
        (
            "evicted-too-soon",
            recent(&[(GhostHits, 51), (Stored, 1000)]),
            recent(&[(GhostHits, 50), (Stored, 1000)]),
        ),
        (
            "written-unread",
            recent(&[(EvictedUnfetched, 101), (Evictions, 200), (Stored, 1000)]),
            recent(&[(EvictedUnfetched, 100), (Evictions, 200), (Stored, 1000)]),
        ),
        (
            "expires-unread",
            recent(&[(ExpiredUnfetched, 31), (Reclaimed, 100)]),
            recent(&[(ExpiredUnfetched, 31), (Reclaimed, 99)]),
        ),
        (
            "ttl-too-short",
            recent(&[(MissesExpired, 21), (Misses, 100)]),
            recent(&[(MissesExpired, 20), (Misses, 100)]),
        ),
        (
            "cas-contention",
            recent(&[(NotSwapped, 31), (Swapped, 69)]),
            recent(&[(NotSwapped, 30), (Swapped, 70)]),
        ),
        ("hot-key", hottest(0.13, 0.02, 1001.0), hottest(0.13, 0.03, 1001.0)),
        ("hot-key", hottest(0.13, 0.02, 1001.0), hottest(0.13, 0.02, 1000.0)),
        ("hot-key", heaviest(0.31, 0.05, 1.1), heaviest(0.30, 0.05, 1.1)),
        ("hot-key", heaviest(0.31, 0.05, 1.1), heaviest(0.31, 0.05, 1.0)),
        ("prefix-cold", coldest(0.009, 101.0), coldest(0.01, 101.0)),
        ("prefix-cold", coldest(0.009, 101.0), coldest(0.009, 100.0)),
        ("herd", herd(94, 6, 7.0), herd(95, 5, 7.0)),
        ("herd", herd(94, 6, 7.0), herd(93, 6, 7.0)),
        (
            "samples-dropped",
            recent(&[(SamplesDropped, 11), (Sampled, 989)]),
            recent(&[(SamplesDropped, 10), (Sampled, 990)]),
        ),
        ("large-values", large(0.26, 0.05, 1.1), large(0.25, 0.05, 1.1)),
        ("large-values", large(0.26, 0.05, 1.1), large(0.26, 0.05, 1.0)),
        ("size-shift", recent(&[(SpansReassigned, 52)]), recent(&[(SpansReassigned, 51)])),
        ("no-pipelining", receives(1_200_060, 100, 149), receives(1_200_060, 100, 150)),
        ("no-pipelining", receives(1_200_060, 100, 149), receives(1_200_000, 100, 149)),
        ("no-pipelining", receives(1_200_060, 100, 149), receives(1_200_060, 99, 140)),
        ("cpu-starved", workers(55, &[(0.5, 0.01), (0.5, 0.051)], 0.0), workers(55, &[(0.5, 0.05)], 0.0)),
        ("cpu-starved", workers(55, &[(0.5, 0.051)], 0.0), workers(54, &[(0.5, 0.051)], 0.0)),
        ("cpu-starved", workers(60, &[(0.5, 0.01)], 0.051), workers(60, &[(0.5, 0.01)], 0.05)),
        (
            "one-worker",
            workers(60, &[(0.2, 0.0), (0.91, 0.0), (0.29, 0.0)], 0.0),
            workers(60, &[(0.2, 0.0), (0.91, 0.0), (0.3, 0.0)], 0.0),
        ),
        (
            "one-worker",
            workers(55, &[(0.91, 0.0), (0.29, 0.0)], 0.0),
            workers(55, &[(0.9, 0.0), (0.2, 0.0)], 0.0),
        ),
        (
            "one-worker",
            workers(55, &[(0.91, 0.0), (0.29, 0.0)], 0.0),
            workers(54, &[(0.91, 0.0), (0.2, 0.0)], 0.0),
        ),
        ("one-worker", workers(55, &[(0.91, 0.0), (0.29, 0.0)], 0.0), workers(60, &[(0.99, 0.0)], 0.0)),
        ("stalls", recent(&[(Stalls, 5)]), recent(&[(Stalls, 4)])),
        (
            "stalls",
            with(|look| look.recent = Happened::with(55, &[(Stalls, 5)])),
            with(|look| look.recent = Happened::with(54, &[(Stalls, 5)])),
        ),
        ("thp-off", small_pages(256 * MIB), small_pages(256 * MIB - 1)),
        ("slow-clock", clock(101), clock(100)),
        (
            "ineffective-option",
            with(|look| look.machine.idle_options = vec![("-o modern".into(), "it is always so")]),
            quiet(),
        ),
        ("churn", recent(&[(Opened, 6001)]), recent(&[(Opened, 6000)])),
        // Clients that come back after a restart.
        (
            "churn",
            with(|look| look.recent = Happened::with(55, &[(Opened, 5501)])),
            with(|look| look.recent = Happened::with(54, &[(Opened, 5501)])),
        ),
        ("events-lost", recent(&[(EventsLost, 1)]), recent(&[])),
        ("log-unread", recent(&[(LinesDropped, 1)]), recent(&[])),
    ];
    let mut names: Vec<&str> = cases.iter().map(|(name, ..)| *name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), RULES.len(), "each has a case, some have several");
    for (name, there, short) in cases {
        assert_eq!(found(&there), [name]);
        assert!(found(&short).is_empty(), "{name}: {:?}", found(&short));
    }
}

#[test]
fn much_of_what_is_stored_must_be_evicted_unread() {
    let look = recent(&[(Event::EvictedUnfetched, 150), (Event::Evictions, 200), (Event::Stored, 1500)]);
    assert!(found(&look).is_empty());
}

#[test]
fn a_finding_is_a_line_that_says_what_to_do() {
    let findings = judge(&with(|look| look.figures.process.connections = 90));
    assert!(text(About::Memory, &findings).is_empty());
    assert_eq!(
        text(About::Server, &findings),
        "warning connections-near: 90 of 100 connections are open. To do: raise -c, have clients share connections, or have idle ones closed (-o idle_timeout=SECONDS).\n"
    );
}

#[test]
fn of_a_hot_key_its_requests_and_its_bytes_are_told() {
    let mut look = heaviest(0.5, 0.05, 2.0);
    let hottest = &mut look.figures.traffic.hottest;
    (hottest.share, hottest.error, hottest.all_per_second) = (0.2, 0.01, 5000.0);
    assert_eq!(
        judge(&look).into_iter().map(|finding| finding.evidence).collect::<Vec<_>>(),
        ["one key has 20.0 % (give or take 1.0) of 5000 requests a second; \
          one key has 50 % (give or take 5) of 2.0 MiB of requests and replies a second"]
    );
}

#[test]
fn of_a_listener_both_are_told_that_it_paused_and_what_the_system_dropped() {
    let mut look = recent(&[(Event::AcceptPauses, 2)]);
    look.machine = Machine { seconds: 60, dropped: 7, ..Machine::default() };
    assert_eq!(
        judge(&look).into_iter().map(|finding| finding.evidence).collect::<Vec<_>>(),
        ["no connections were accepted 2 times in 60 s; \
          the system dropped connections, of any program, 7 times in 60 s"]
    );
}

#[test]
fn what_matters_most_is_found_first_and_names_are_words() {
    assert!(RULES.is_sorted_by(|one, next| one.severity >= next.severity));
    for rule in RULES {
        assert!(rule.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{}", rule.name);
        assert!(!rule.advice.ends_with('.') && !rule.when.ends_with('.'), "{}", rule.name);
    }
}

#[test]
fn what_other_limits_would_bring_is_said_with_its_error_and_what_is_vague_is_not() {
    let evidence = |look: &Look| judge(look).into_iter().map(|finding| finding.evidence).collect::<Vec<_>>();
    assert_eq!(
        evidence(&forecast(0.3, 0.1, 0.004)),
        [
            "84.0 % of reads are found; -m 96 would have 2.0 points more found, give or take 0.4: 200 misses a second fewer; \
          -m 128 would have 6.0 points more found, give or take 0.4: 600 misses a second fewer"
        ]
    );
    assert_eq!(
        evidence(&forecast(0.162, 0.155, 0.001)),
        ["-m 32 would have 0.2 points more missed, give or take 0.1: 20 misses a second more"]
    );
    let mut free = forecast(0.3, 0.1, 0.004);
    let outlook = Outlook { curve: Curve { is_full: false, ..curve_of(&free) }, ..Outlook::default() };
    free.figures.traffic.outlook = Some(Arc::new(outlook));
    assert!(evidence(&free).is_empty(), "there is memory");
    let mut early = forecast(0.16, 0.1, 0.0);
    let outlook = Outlook { curve: Curve { points: None, ..curve_of(&early) }, ..Outlook::default() };
    early.figures.traffic.outlook = Some(Arc::new(outlook));
    assert!(evidence(&early).is_empty(), "nothing is known yet");
}

fn curve_of(look: &Look) -> Curve {
    look.figures.traffic.outlook.as_ref().expect("it was set").curve.clone()
}

#[test]
fn of_many_options_without_effect_some_are_named_and_all_are_counted() {
    let options = |count: usize| -> Vec<(String, &'static str)> {
        (0..count).map(|n| (format!("-o {n}"), "why")).collect()
    };
    let evidence = |count| {
        let found = judge(&with(|look| look.machine.idle_options = options(count)));
        found.into_iter().next().map(|finding| finding.evidence)
    };
    assert_eq!(evidence(2).as_deref(), Some("without effect: -o 0 (why), -o 1 (why)"));
    let many = evidence(OPTIONS_NAMED + 2).expect("it is found");
    assert!(many.contains("-o 5 (why) and 2 more") && !many.contains("-o 6"), "{many}");
}
