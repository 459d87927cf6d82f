//! Findings: what an operator should know, in words, with the figures that say so and what to do.
//!
//! One row a rule. A rule looks at figures of now and at what happened in the last minute; the least counts that it
//! asks for keep it silent where little happened.

use super::context::Context;
use super::figures::{self, Figures, Place};
use super::lately::{Event, Happened};
use super::shared::Shared;
use super::system::System;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something could be better.
    Note,
    /// Something is wrong, or will be.
    Warning,
    /// Clients are refused, or the machine is short.
    Serious,
}

impl Severity {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Serious => "serious",
        }
    }
}

/// What a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Memory, and what is kept in it.
    Memory,
    /// Time, and who waits.
    Latency,
    /// Anything else.
    Server,
}

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// Its name.
    pub name: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What it is about.
    pub about: About,
    /// When it is found, for who reads about it.
    pub when: &'static str,
    /// What to do.
    pub advice: &'static str,
    find: fn(&Look) -> Option<String>,
}

/// Something that was found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// By this rule.
    pub rule: &'static Rule,
    /// The figures that say so.
    pub evidence: String,
}

/// What rules look at.
#[derive(Debug)]
struct Look {
    figures: Figures,
    lately: Happened,
    system: System,
}

/// Events in a minute below which a share says nothing.
const FEW: u64 = 100;
/// Memory that the process takes beside `-m`.
const PROGRAM_BYTES: u64 = 6 << 20;

const MIB: u64 = 1 << 20;

/// One part in a hundred of `all`, and more than a few.
fn share(part: u64, all: u64, percent: u64) -> bool {
    all >= FEW && part * 100 > all * percent
}

fn percent(part: u64, all: u64) -> u64 {
    part * 100 / all.max(1)
}

use About::{Latency, Memory, Server};
use Severity::{Note, Serious, Warning};

/// All rules, those that matter most first.
pub static RULES: &[Rule] = &[
    Rule {
        name: "refused-writes",
        severity: Serious,
        about: Memory,
        when: "a write was refused for want of memory in the last minute",
        advice: "raise -m; with -M or noeviction nothing gives way to new items, with volatile policies only what expires does",
        find: |look| {
            let refused = look.lately.of(Event::OutOfMemory);
            (refused > 0).then(|| format!("{refused} writes were refused in {} s", look.lately.seconds))
        },
    },
    Rule {
        name: "connections-refused",
        severity: Serious,
        about: Server,
        when: "a connection was refused in the last minute because there were as many as -c",
        advice: "raise -c, or have clients share connections",
        find: |look| {
            let (refused, most) = (look.lately.of(Event::Refused), look.figures.process.connections_max);
            (refused > 0).then(|| {
                format!("{refused} connections were refused in {} s; -c is {most}", look.lately.seconds)
            })
        },
    },
    Rule {
        name: "swapping",
        severity: Serious,
        about: Memory,
        when: "the system has swapped out more than 1 MiB of the process",
        advice: "lower -m, or give the machine more memory: a read of what is swapped out waits for a disk",
        find: |look| {
            let swapped = look.system.swapped_bytes;
            (swapped > MIB).then(|| format!("{} MiB of the process are swapped out", swapped / MIB))
        },
    },
    Rule {
        name: "memory-cgroup",
        severity: Serious,
        about: Memory,
        when: "-m and 6 MiB are more than the group's memory limit",
        advice: "lower -m: the system ends a process that goes beyond its group's limit",
        find: |look| {
            let (limit, most) = (look.system.group_bytes?, look.figures.totals.memory_bytes + PROGRAM_BYTES);
            (most > limit).then(|| {
                format!("-m and the program may take {} MiB, the group {} MiB", most / MIB, limit / MIB)
            })
        },
    },
    Rule {
        name: "open-port",
        severity: Warning,
        about: Server,
        when: "a port that other machines reach asks for no password",
        advice: "-l 127.0.0.1, a firewall, or --requirepass and no port for text clients",
        find: |look| {
            look.figures.process.open.then(|| "who reaches a port may read and write everything".to_owned())
        },
    },
    Rule {
        name: "connections-near",
        severity: Warning,
        about: Server,
        when: "more than 80 % of -c connections are open",
        advice: "raise -c, or have clients share connections",
        find: |look| {
            let (open, most) = (look.figures.process.connections, look.figures.process.connections_max);
            (open * 10 > most * 8).then(|| format!("{open} of {most} connections are open"))
        },
    },
    Rule {
        name: "accept-late",
        severity: Warning,
        about: Latency,
        when: "accepting paused in the last minute",
        advice: "raise the limit of open files (ulimit -n), or -c; the log says which it was",
        find: |look| {
            let pauses = look.lately.of(Event::AcceptPauses);
            (pauses > 0)
                .then(|| format!("no connections were accepted {pauses} times in {} s", look.lately.seconds))
        },
    },
    Rule {
        name: "slow-reader",
        severity: Warning,
        about: Latency,
        when: "a connection was closed in the last minute because its replies or messages held memory that others needed",
        advice: "look for clients that do not read (CLIENT LIST, omem), or a network that is too slow for what is asked",
        find: |look| {
            let closed = look.lately.of(Event::RepliesHeld);
            (closed > 0).then(|| format!("{closed} connections were closed in {} s", look.lately.seconds))
        },
    },
    Rule {
        name: "slow-writer",
        severity: Warning,
        about: Latency,
        when: "a connection was closed in the last minute because its request, which did not go on, held memory that others needed",
        advice: "look for clients that stop in the middle of a request; lower --request-timeout",
        find: |look| {
            let closed = look.lately.of(Event::RequestsHeld);
            (closed > 0).then(|| format!("{closed} connections were closed in {} s", look.lately.seconds))
        },
    },
    Rule {
        name: "evicted-too-soon",
        severity: Warning,
        about: Memory,
        when: "more than 5 % of what is stored had been evicted a short while ago",
        advice: "raise -m: these keys would still be there",
        find: |look| {
            let (again, stored) = (look.lately.of(Event::GhostHits), look.lately.of(Event::Stored));
            share(again, stored, 5).then(|| {
                let percent = percent(again, stored);
                format!("{again} of {stored} items stored in {} s ({percent} %) had been evicted a short while ago", look.lately.seconds)
            })
        },
    },
    Rule {
        name: "written-unread",
        severity: Note,
        about: Memory,
        when: "more than half of what was evicted in the last minute was never read, and it is more than 10 % of what was stored",
        advice: "do not cache what is read once, or give it a short expiry",
        find: |look| {
            let lately = &look.lately;
            let (unread, evicted) = (lately.of(Event::EvictedUnfetched), lately.of(Event::Evictions));
            (share(unread, evicted, 50) && share(unread, lately.of(Event::Stored), 10)).then(|| {
                format!("{unread} of {evicted} items evicted in {} s were never read", lately.seconds)
            })
        },
    },
    Rule {
        name: "expires-unread",
        severity: Note,
        about: Memory,
        when: "more than 30 % of what expired in the last minute was never read",
        advice: "the expiry is too short for when it is asked for, or it is stored for nobody",
        find: |look| {
            let (unread, expired) =
                (look.lately.of(Event::ExpiredUnfetched), look.lately.of(Event::Reclaimed));
            share(unread, expired, 30).then(|| {
                format!(
                    "{unread} of {expired} items that expired in {} s were never read",
                    look.lately.seconds
                )
            })
        },
    },
    Rule {
        name: "ttl-too-short",
        severity: Note,
        about: Memory,
        when: "more than 20 % of misses in the last minute were of keys that had just expired",
        advice: "longer expiries, or have one client fetch anew before the end (mg with R)",
        find: |look| {
            let (expired, misses) = (look.lately.of(Event::MissesExpired), look.lately.of(Event::Misses));
            share(expired, misses, 20).then(|| {
                format!(
                    "{expired} of {misses} misses in {} s found an item whose time had passed",
                    look.lately.seconds
                )
            })
        },
    },
    Rule {
        name: "cas-contention",
        severity: Note,
        about: Latency,
        when: "more than 30 % of compare-and-swaps in the last minute found another version",
        advice: "one writer for a key, or a command that needs no comparison (incr, append)",
        find: |look| {
            let failed = look.lately.of(Event::NotSwapped);
            let all = failed + look.lately.of(Event::Swapped);
            share(failed, all, 30).then(|| {
                format!(
                    "{failed} of {all} compare-and-swaps in {} s found another version",
                    look.lately.seconds
                )
            })
        },
    },
    Rule {
        name: "churn",
        severity: Note,
        about: Latency,
        when: "more than 100 connections a second were opened in the last minute",
        advice: "have clients keep connections: opening one costs more than many requests",
        find: |look| {
            let (opened, seconds) = (look.lately.of(Event::Opened), look.lately.seconds);
            (seconds > 0 && opened > 100 * seconds)
                .then(|| format!("{opened} connections were opened in {seconds} s"))
        },
    },
    Rule {
        name: "events-lost",
        severity: Note,
        about: Server,
        when: "keyspace events were lost in the last minute",
        advice: "listen to fewer patterns, or read faster: events that wait are bounded",
        find: |look| {
            let lost = look.lately.of(Event::EventsLost);
            (lost > 0).then(|| format!("{lost} events were lost in {} s", look.lately.seconds))
        },
    },
    Rule {
        name: "log-unread",
        severity: Note,
        about: Server,
        when: "lines of the log were dropped in the last minute",
        advice: "have somebody read stderr, or lower -v",
        find: |look| {
            let lines = look.lately.of(Event::LinesDropped);
            (lines > 0).then(|| format!("{lines} lines of the log were dropped in {} s", look.lately.seconds))
        },
    },
];

/// What is found now, what matters most first. Spends what that takes.
pub(crate) fn find_for(cx: &Context<'_, '_>) -> Vec<Finding> {
    figures::spend_on_findings(cx);
    find(Place::of(cx))
}

/// What is found now, what matters most first.
pub(crate) fn find(place: Place<'_>) -> Vec<Finding> {
    find_in(place.shared, Figures::since_start(place)).1
}

/// The same in figures that were gathered, which are given back.
pub(crate) fn find_in(shared: &Shared, figures: Figures) -> (Figures, Vec<Finding>) {
    let lately = shared.lately.until(&figures);
    let look = Look { system: figures.system, figures, lately };
    let found = judge(&look);
    (look.figures, found)
}

fn judge(look: &Look) -> Vec<Finding> {
    let found = |rule: &'static Rule| Some(Finding { rule, evidence: (rule.find)(look)? });
    RULES.iter().filter_map(found).collect()
}

/// Findings about this as lines of text: `warning open-port: …. To do: ….`.
pub(crate) fn text(about: About, findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let Rule { name, severity, advice, .. } = finding.rule;
        format!("{} {name}: {}. To do: {advice}.\n", severity.name(), finding.evidence)
    };
    findings.iter().filter(|finding| finding.rule.about == about).map(line).collect()
}

#[cfg(test)]
mod tests;
