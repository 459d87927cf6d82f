//! Each rule in the situation that it is for, and just short of it.

use super::*;
use crate::core::counters::Sums;
use crate::core::host::Process;
use larder_store::Totals;

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
        },
        lately: Happened::default(),
        system: System::default(),
    }
}

fn with(change: impl FnOnce(&mut Look)) -> Look {
    let mut look = quiet();
    change(&mut look);
    look
}

fn lately(events: &[(Event, u64)]) -> Look {
    with(|look| look.lately = Happened::with(60, events))
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
    let cases: [(&str, Look, Look); 17] = [
        ("refused-writes", lately(&[(OutOfMemory, 1)]), lately(&[])),
        ("connections-refused", lately(&[(Refused, 1)]), lately(&[])),
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
        ("accept-late", lately(&[(AcceptPauses, 1)]), lately(&[])),
        ("slow-reader", lately(&[(RepliesHeld, 1)]), lately(&[])),
        ("slow-writer", lately(&[(RequestsHeld, 1)]), lately(&[])),
        (
            "evicted-too-soon",
            lately(&[(GhostHits, 51), (Stored, 1000)]),
            lately(&[(GhostHits, 50), (Stored, 1000)]),
        ),
        (
            "written-unread",
            lately(&[(EvictedUnfetched, 101), (Evictions, 200), (Stored, 1000)]),
            lately(&[(EvictedUnfetched, 100), (Evictions, 200), (Stored, 1000)]),
        ),
        (
            "expires-unread",
            lately(&[(ExpiredUnfetched, 31), (Reclaimed, 100)]),
            lately(&[(ExpiredUnfetched, 31), (Reclaimed, 99)]),
        ),
        (
            "ttl-too-short",
            lately(&[(MissesExpired, 21), (Misses, 100)]),
            lately(&[(MissesExpired, 20), (Misses, 100)]),
        ),
        (
            "cas-contention",
            lately(&[(NotSwapped, 31), (Swapped, 69)]),
            lately(&[(NotSwapped, 30), (Swapped, 70)]),
        ),
        ("churn", lately(&[(Opened, 6001)]), lately(&[(Opened, 6000)])),
        ("events-lost", lately(&[(EventsLost, 1)]), lately(&[])),
        ("log-unread", lately(&[(LinesDropped, 1)]), lately(&[])),
    ];
    assert_eq!(cases.len(), RULES.len());
    for (name, there, short) in cases {
        assert_eq!(found(&there), [name]);
        assert!(found(&short).is_empty(), "{name}: {:?}", found(&short));
    }
}

#[test]
fn much_of_what_is_stored_must_be_evicted_unread() {
    let look = lately(&[(Event::EvictedUnfetched, 150), (Event::Evictions, 200), (Event::Stored, 1500)]);
    assert!(found(&look).is_empty());
}

#[test]
fn a_finding_is_a_line_that_says_what_to_do() {
    let findings = judge(&with(|look| look.figures.process.connections = 90));
    assert!(text(About::Memory, &findings).is_empty());
    assert_eq!(
        text(About::Server, &findings),
        "warning connections-near: 90 of 100 connections are open. To do: raise -c, or have clients share connections.\n"
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
