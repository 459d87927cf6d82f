//! Findings: facts that an operator should know, in words, with the figures that show them and advice.
//!
//! Each rule is one row. It looks at present figures, at what happened in the last minute, at what the system and the machine
//! say, and at the forecast of other memory limits. Its least counts keep it silent where little happened.

use super::context::Context;
use super::figures::{self, Figures, Place};
use super::host::{Machine, WorkerTime};
use super::last_minute::Event;
use super::looks::Happened;
use super::system::System;
use super::traffic::Gain;

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
    /// Its name, as it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Serious => "serious",
        }
    }
}

/// The subject of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// Memory, and what is kept in it.
    Memory,
    /// Time, and what waits.
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
    /// Its subject.
    pub about: About,
    /// The condition, in words for readers of the documentation.
    pub when: &'static str,
    /// The advice.
    pub advice: &'static str,
    find: fn(&Look) -> Option<String>,
}

/// A rule that applies now.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule that found it.
    pub rule: &'static Rule,
    /// The figures that show it.
    pub evidence: String,
}

impl Finding {
    /// The parts that every protocol shows of it, beside the name of its rule.
    pub(crate) fn parts(&self) -> [(&'static str, &str); 3] {
        let Rule { severity, advice, .. } = self.rule;
        [("severity", severity.name()), ("evidence", &self.evidence), ("advice", advice)]
    }
}

/// The figures that rules look at.
#[derive(Debug)]
struct Look {
    figures: Figures,
    recent: Happened,
    system: System,
    machine: Machine,
}

/// Events in a minute below which a share says nothing.
const FEW: u64 = 100;
/// Memory that the process takes beside `-m`.
const PROGRAM_BYTES: u64 = 6 << 20;

const MIB: u64 = 1 << 20;
/// Bytes of a span.
const SPAN_BYTES: u64 = 64 << 10;
/// Least memory limit for which huge pages matter.
const HUGE_FROM_BYTES: u64 = 256 * MIB;
/// Least seconds of observation for rules on times and rates: the work of a start is no trouble.
const OBSERVED_S: u64 = 55;
/// Most ineffective options that are named.
const OPTIONS_NAMED: usize = 6;

/// Returns whether `part` is more than `percent` % of `all`, where `all` is not below [`FEW`].
fn share(part: u64, all: u64, percent: u64) -> bool {
    all >= FEW && part * 100 > all * percent
}

fn percent(part: u64, all: u64) -> u64 {
    part * 100 / all.max(1)
}

/// A part of 1 as percent.
fn of_hundred(part: f64) -> f64 {
    part * 100.0
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
            let refused = look.recent.of(Event::OutOfMemory);
            (refused > 0).then(|| format!("{refused} writes were refused in {} s", look.recent.seconds))
        },
    },
    Rule {
        name: "connections-refused",
        severity: Serious,
        about: Server,
        when: "a connection was refused in the last minute because there were as many as -c",
        advice: "raise -c, have clients share connections, or have idle ones closed (-o idle_timeout=SECONDS)",
        find: |look| {
            let (refused, most) = (look.recent.of(Event::Refused), look.figures.process.connections_max);
            (refused > 0).then(|| {
                format!("{refused} connections were refused in {} s; -c is {most}", look.recent.seconds)
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
        advice: "-l 127.0.0.1, a firewall, or a password: --requirepass, --auth-file, -Y",
        find: |look| {
            let evidence = || "a client that reaches a port may read and write everything".to_owned();
            look.figures.process.open.then(evidence)
        },
    },
    Rule {
        name: "connections-near",
        severity: Warning,
        about: Server,
        when: "more than 80 % of -c connections are open",
        advice: "raise -c, have clients share connections, or have idle ones closed (-o idle_timeout=SECONDS)",
        find: |look| {
            let (open, most) = (look.figures.process.connections, look.figures.process.connections_max);
            (open * 10 > most * 8).then(|| format!("{open} of {most} connections are open"))
        },
    },
    Rule {
        name: "address-full",
        severity: Warning,
        about: Server,
        when: "a connection was refused in the last minute because its address had as many as --connections-per-address",
        advice: "the log names an address (-v); raise --connections-per-address where many clients share one, behind a proxy or NAT",
        find: |look| {
            let (refused, seconds) = (look.recent.of(Event::RefusedPerAddress), look.recent.seconds);
            let most = look.figures.process.connections_per_address_max;
            (refused > 0).then(|| {
                format!("{refused} connections were refused in {seconds} s; an address may have {most}")
            })
        },
    },
    Rule {
        name: "accept-late",
        severity: Warning,
        about: Latency,
        when: "accepting paused in the last minute, or the system dropped connections, of this program or another, since a listener's queue was full",
        advice: "where accepting paused, raise the limit of open files (ulimit -n), or -c: the log says which it was; where connections were dropped, raise -b and the system's net.core.somaxconn",
        find: |look| {
            let (pauses, dropped) = (look.recent.of(Event::AcceptPauses), look.machine.dropped);
            let paused = (pauses > 0)
                .then(|| format!("no connections were accepted {pauses} times in {} s", look.recent.seconds));
            let full = (dropped > 0 && look.machine.seconds >= OBSERVED_S).then(|| {
                let seconds = look.machine.seconds;
                format!("the system dropped connections, of any program, {dropped} times in {seconds} s")
            });
            let evidence: Vec<String> = [paused, full].into_iter().flatten().collect();
            (!evidence.is_empty()).then(|| evidence.join("; "))
        },
    },
    Rule {
        name: "slow-reader",
        severity: Warning,
        about: Latency,
        when: "a connection was closed in the last minute because its replies or messages held memory that others needed",
        advice: "look for clients that do not read (CLIENT LIST, omem), or a network that is too slow for what is asked",
        find: |look| {
            let closed = look.recent.of(Event::RepliesHeld);
            (closed > 0).then(|| format!("{closed} connections were closed in {} s", look.recent.seconds))
        },
    },
    Rule {
        name: "slow-writer",
        severity: Warning,
        about: Latency,
        when: "a connection was closed in the last minute because its request, which did not go on, held memory that others needed",
        advice: "look for clients that stop in the middle of a request; lower --request-timeout",
        find: |look| {
            let closed = look.recent.of(Event::RequestsHeld);
            (closed > 0).then(|| format!("{closed} connections were closed in {} s", look.recent.seconds))
        },
    },
    Rule {
        name: "evicted-too-soon",
        severity: Warning,
        about: Memory,
        when: "more than 5 % of what is stored had been evicted a short while ago",
        advice: "raise -m: these keys would still be there",
        find: |look| {
            let (again, stored) = (look.recent.of(Event::GhostHits), look.recent.of(Event::Stored));
            share(again, stored, 5).then(|| {
                let percent = percent(again, stored);
                format!("{again} of {stored} items stored in {} s ({percent} %) had been evicted a short while ago", look.recent.seconds)
            })
        },
    },
    Rule {
        name: "memory-short",
        severity: Warning,
        about: Memory,
        when: "twice the memory would find more than one in a hundred reads more, by the forecast and beyond its error",
        advice: "raise -m; the page and larder_forecast_miss_ratio show what each step brings",
        find: |look| {
            let outlook = look.figures.traffic.outlook.as_deref()?;
            let twice = outlook.change(2.0)?;
            if !outlook.curve.is_full || twice.found_more - twice.error <= 0.01 {
                return None;
            }
            let said = |factor: f64| {
                Some(format!("-m {} {}", outlook.megabytes(factor), changed(&outlook.change(factor)?)))
            };
            let steps: Vec<String> = [1.5, 2.0, 4.0].into_iter().filter_map(said).collect();
            let ratio = (1.0 - outlook.curve.counted_miss_ratio) * 100.0;
            Some(format!("{ratio:.1} % of reads are found; {}", steps.join("; ")))
        },
    },
    Rule {
        name: "cpu-starved",
        severity: Warning,
        about: Latency,
        when: "a worker could have run for more than 5 % of the last minute and did not, since others had its processor, or the machine's host gave more than 5 % of the processors' time to others",
        advice: "fewer threads (-t), or fewer other programs on these processors; a higher limit, where a container has one; if the host takes the time, a machine of its own",
        find: |look| {
            let Machine { seconds, workers, stolen, .. } = &look.machine;
            let delayed = workers.iter().map(|worker| worker.delayed).fold(0.0, f64::max);
            if *seconds < OBSERVED_S || delayed.max(*stolen) <= 0.05 {
                return None;
            }
            let [delayed, stolen] = [delayed, *stolen].map(of_hundred);
            Some(format!(
                "in {seconds} s a worker waited for a processor for {delayed:.0} % of the time, and the host took {stolen:.0} % of the processors'"
            ))
        },
    },
    Rule {
        name: "stalls",
        severity: Warning,
        about: Latency,
        when: "workers were held up for 10 ms or longer in the last minute, more than four times for each",
        advice: "look at the page or /api/v1/slow for the causes, and which commands of RESP take long (SLOWLOG, the page): whole keyspaces (KEYS, lru_crawler metadump), long scripts, collections of very many elements; where none do, the machine is slow or shared",
        find: |look| {
            let (stalls, seconds) = (look.recent.of(Event::Stalls), look.recent.seconds);
            // A pause of the machine holds up each worker once.
            let workers = look.machine.workers.len().max(1) as u64;
            (stalls > 4 * workers && seconds >= OBSERVED_S)
                .then(|| format!("workers were held up for 10 ms or longer {stalls} times in {seconds} s"))
        },
    },
    Rule {
        name: "memory-spare",
        severity: Note,
        about: Memory,
        when: "half of the memory would miss no more than one in two hundred reads more, by the forecast and its error",
        advice: "lower -m, if the memory is worth something elsewhere",
        find: |look| {
            let outlook = look.figures.traffic.outlook.as_deref()?;
            let half = outlook.change(0.5)?;
            (half.error - half.found_more < 0.005).then(|| {
                let (least, half) = (outlook.megabytes(0.5), changed(&half));
                format!("-m {least} {half}")
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
            let recent = &look.recent;
            let (unread, evicted) = (recent.of(Event::EvictedUnfetched), recent.of(Event::Evictions));
            (share(unread, evicted, 50) && share(unread, recent.of(Event::Stored), 10)).then(|| {
                format!("{unread} of {evicted} items evicted in {} s were never read", recent.seconds)
            })
        },
    },
    Rule {
        name: "expires-unread",
        severity: Note,
        about: Memory,
        when: "more than 30 % of what expired in the last minute was never read",
        advice: "a longer expiry, if items are read after it; otherwise do not store them: nothing reads them",
        find: |look| {
            let (unread, expired) =
                (look.recent.of(Event::ExpiredUnfetched), look.recent.of(Event::Reclaimed));
            share(unread, expired, 30).then(|| {
                format!(
                    "{unread} of {expired} items that expired in {} s were never read",
                    look.recent.seconds
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
            let (expired, misses) = (look.recent.of(Event::MissesExpired), look.recent.of(Event::Misses));
            share(expired, misses, 20).then(|| {
                format!(
                    "{expired} of {misses} misses in {} s found an item whose time had passed",
                    look.recent.seconds
                )
            })
        },
    },
    Rule {
        name: "hot-key",
        severity: Note,
        about: Latency,
        when: "one key has more than 10 % of all requests, which are more than 1,000 a second, or more than 25 % of the bytes of requests and replies, which are more than 1 MiB a second",
        advice: "keep a copy of it in the clients for a moment, or spread it over several names; the page, `stats hotkeys` and `larder top` show which key it is",
        find: |look| {
            let hottest = look.figures.traffic.hottest;
            let requests_are_many = hottest.all_per_second > 1000.0;
            let of_requests = (hottest.share - hottest.error > 0.1 && requests_are_many).then(|| {
                let [share, error] = [hottest.share, hottest.error].map(of_hundred);
                format!(
                    "one key has {share:.1} % (give or take {error:.1}) of {:.0} requests a second",
                    hottest.all_per_second
                )
            });
            let bytes_are_many = hottest.bytes_per_second > MIB as f64;
            let of_bytes = (hottest.bytes_share - hottest.bytes_error > 0.25 && bytes_are_many).then(|| {
                let [share, error] = [hottest.bytes_share, hottest.bytes_error].map(of_hundred);
                format!(
                    "one key has {share:.0} % (give or take {error:.0}) of {:.1} MiB of requests and replies a second",
                    hottest.bytes_per_second / MIB as f64
                )
            });
            let evidence: Vec<String> = [of_requests, of_bytes].into_iter().flatten().collect();
            (!evidence.is_empty()).then(|| evidence.join("; "))
        },
    },
    Rule {
        name: "large-values",
        severity: Note,
        about: Latency,
        when: "more than 20 % of the bytes of replies to reads, which are more than 1 MiB a second, are of replies above 100 KiB",
        advice: "compress these values, or split them: while one is sent, others wait; the page and `stats hotkeys` show which keys bring most bytes a second",
        find: |look| {
            let large = look.figures.traffic.large;
            (large.share - large.error > 0.2 && large.bytes_per_second > MIB as f64).then(|| {
                let [share, error] = [large.share, large.error].map(of_hundred);
                format!(
                    "{share:.0} % (give or take {error:.0}) of {:.1} MiB a second are of replies above 100 KiB",
                    large.bytes_per_second / MIB as f64
                )
            })
        },
    },
    Rule {
        name: "size-shift",
        severity: Note,
        about: Memory,
        when: "more than 5 % of the memory was taken from items of one size for items of another in the last minute; what items give up for a lower limit, or for what connections hold, does not count",
        advice: "nothing, if what is stored has changed its sizes: fewer keys are found until the new ones were stored once; if it goes on for hours, sizes alternate, and more memory helps",
        find: |look| {
            let (moved, all) =
                (look.recent.of(Event::SpansReassigned), look.figures.totals.memory_bytes / SPAN_BYTES);
            (share(moved, all, 5) && look.recent.seconds >= OBSERVED_S).then(|| {
                let percent = percent(moved, all);
                format!(
                    "{moved} of {all} blocks of 64 KiB ({percent} %) were moved between sizes in {} s",
                    look.recent.seconds
                )
            })
        },
    },
    Rule {
        name: "no-pipelining",
        severity: Note,
        about: Latency,
        when: "more than 20,000 keys or RESP commands a second came in the last minute, fewer than 1.5 with each receive",
        advice: "have clients send several requests at once, or ask for several keys (get k1 k2 …, MGET): most of the processor's time goes for receiving and sending them one by one; CLIENT LIST and the page show which clients send most",
        find: |look| {
            let recent = &look.recent;
            let (receives, requests) = (recent.of(Event::TimedReceives), recent.of(Event::TimedRequests));
            let a_second = recent.of(Event::Requests) / recent.seconds.max(1);
            let few = receives >= FEW && requests * 2 < receives * 3;
            (a_second > 20_000 && few && recent.seconds >= OBSERVED_S).then(|| {
                format!(
                    "{a_second} requests a second, {:.1} with each of {receives} receives that were looked at in {} s",
                    requests as f64 / receives as f64,
                    recent.seconds
                )
            })
        },
    },
    Rule {
        name: "one-worker",
        severity: Note,
        about: Latency,
        when: "one worker ran for more than 90 % of the last minute, and each other for less than 30 %",
        advice: "a connection stays with its worker: have clients open more of them, or use fewer threads (-t)",
        find: |look| {
            let Machine { seconds, workers, .. } = &look.machine;
            let mut busy: Vec<f64> = workers.iter().map(|WorkerTime { busy, .. }| *busy).collect();
            busy.sort_by(|one, other| other.total_cmp(one));
            let [first, second, ..] = busy[..] else { return None };
            (*seconds >= OBSERVED_S && first > 0.9 && second < 0.3).then(|| {
                let [first, second] = [first, second].map(of_hundred);
                format!("in {seconds} s one of {} workers ran for {first:.0} % of the time, the next for {second:.0} %", workers.len())
            })
        },
    },
    Rule {
        name: "thp-off",
        severity: Note,
        about: Latency,
        when: "-m is 256 MiB or more, and the system gives no huge pages",
        advice: "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: with small pages a processor looks up addresses far more often",
        find: |look| {
            let why = look.machine.no_huge_pages?;
            let most = look.figures.totals.memory_bytes;
            (most >= HUGE_FROM_BYTES).then(|| format!("-m is {} MiB in small pages: {why}", most / MIB))
        },
    },
    Rule {
        name: "slow-clock",
        severity: Note,
        about: Latency,
        when: "a look at the clock takes more than 100 ns",
        advice: "a clock source that programs read without the system (on x86 tsc, in virtual machines kvm-clock too), as far as the machine has one: each turn of a worker looks at the clock",
        find: |look| {
            let Machine { clock_ns, clock_source, .. } = &look.machine;
            let ns = (*clock_ns)?;
            (ns > 100).then(|| format!("a look at the clock takes {ns} ns; its source is {clock_source}"))
        },
    },
    Rule {
        name: "ineffective-option",
        severity: Note,
        about: Server,
        when: "an option was given that has no effect here",
        advice: "leave it out; docs/options.md says what it is for elsewhere",
        find: |look| {
            let idle = &look.machine.idle_options;
            let words = |(option, why): &(String, &'static str)| format!("{option} ({why})");
            let named: Vec<String> = idle.iter().take(OPTIONS_NAMED).map(words).collect();
            let others = idle.len() - named.len();
            let others = if others > 0 { format!(" and {others} more") } else { String::new() };
            (!idle.is_empty()).then(|| format!("without effect: {}{others}", named.join(", ")))
        },
    },
    Rule {
        name: "prefix-cold",
        severity: Note,
        about: Memory,
        when: "keys of one prefix take more than 10 % of the bytes of items and are less than 1 % of those asked for, which are more than 100 a second",
        advice: "shorter expiries for them, or keep them where memory is cheaper; the page, `stats prefixes` and `larder top` show which prefix it is",
        find: |look| {
            let coldest = look.figures.traffic.coldest?;
            (coldest.share_most < 0.01 && coldest.all_per_second > 100.0).then(|| {
                let [memory, error, most] =
                    [coldest.memory, coldest.memory_error, coldest.share_most].map(|part| part * 100.0);
                format!(
                    "one prefix takes {memory:.1} % (give or take {error:.1}) of the bytes of items, and at most {most:.1} % of {:.0} keys a second are its",
                    coldest.all_per_second
                )
            })
        },
    },
    Rule {
        name: "herd",
        severity: Note,
        about: Latency,
        when: "more than 5 % of misses in the last minute were of keys that had been missed less than 2 s before and were not stored yet, by keys that are followed",
        advice: "have one client load while others wait or take the old value (mg with N and R); where a key is not to be had at all, remember that",
        find: |look| {
            let outlook = look.figures.traffic.outlook.as_deref()?;
            let (herd, fills) = (look.recent.of(Event::HerdMisses), look.recent.of(Event::Fills));
            // Misses that were seen decide, not those for which they stand. Before the forecast began each stood for others.
            if outlook.seconds < look.recent.seconds as f64 {
                return None;
            }
            let seen = |count: u64| (count as f64 / outlook.curve.scale.max(1.0)) as u64;
            share(seen(herd), seen(herd + fills), 5).then(|| {
                format!(
                    "{} % of about {} misses in {} s were of keys that had been missed less than 2 s before and were not stored yet",
                    percent(herd, herd + fills),
                    herd + fills,
                    look.recent.seconds
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
            let failed = look.recent.of(Event::NotSwapped);
            let all = failed + look.recent.of(Event::Swapped);
            share(failed, all, 30).then(|| {
                format!(
                    "{failed} of {all} compare-and-swaps in {} s found another version",
                    look.recent.seconds
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
            let (opened, seconds) = (look.recent.of(Event::Opened), look.recent.seconds);
            (seconds >= OBSERVED_S && opened > 100 * seconds)
                .then(|| format!("{opened} connections were opened in {seconds} s"))
        },
    },
    Rule {
        name: "events-lost",
        severity: Note,
        about: Server,
        when: "keyspace events were lost in the last minute",
        advice: "subscribe to fewer patterns, or read faster: events that wait are bounded",
        find: |look| {
            let lost = look.recent.of(Event::EventsLost);
            (lost > 0).then(|| format!("{lost} events were lost in {} s", look.recent.seconds))
        },
    },
    Rule {
        name: "samples-dropped",
        severity: Note,
        about: Server,
        when: "more than 1 % of the samples of requests, and of requests for keys that are followed, were dropped in the last minute",
        advice: "hot keys, prefixes and the forecast are less exact than they say: leave the thread that counts a core's time",
        find: |look| {
            let dropped = look.recent.of(Event::SamplesDropped);
            let all = dropped + look.recent.of(Event::Sampled);
            share(dropped, all, 1)
                .then(|| format!("{dropped} of {all} were dropped in {} s", look.recent.seconds))
        },
    },
    Rule {
        name: "log-unread",
        severity: Note,
        about: Server,
        when: "lines of the log were dropped in the last minute",
        advice: "have a program read stderr, or lower -v",
        find: |look| {
            let lines = look.recent.of(Event::LinesDropped);
            (lines > 0).then(|| format!("{lines} lines of the log were dropped in {} s", look.recent.seconds))
        },
    },
];

/// The change that another limit would bring, in words.
fn changed(change: &Gain) -> String {
    let (points, error) = (change.found_more * 100.0, change.error * 100.0);
    let (found, missed) = if points >= 0.0 { ("found", "fewer") } else { ("missed", "more") };
    let (points, a_second) = (points.abs(), change.missed_less.abs());
    format!(
        "would have {points:.1} points more {found}, give or take {error:.1}: {a_second:.0} misses a second {missed}"
    )
}

/// The findings of now, those that matter most first. Spends what they take.
pub(crate) fn find_for(cx: &Context<'_, '_>) -> Vec<Finding> {
    figures::spend_on_findings(cx);
    find(Place::of(cx))
}

/// The findings of now, those that matter most first.
pub(crate) fn find(place: Place<'_>) -> Vec<Finding> {
    find_in(place, Figures::since_start(place)).1
}

/// The findings in figures that were gathered before; these are given back.
pub(crate) fn find_in(place: Place<'_>, figures: Figures) -> (Figures, Vec<Finding>) {
    let recent = place.shared.last_minute.until(&figures);
    let look = Look { system: figures.system, figures, recent, machine: place.host.machine() };
    let found = judge(&look);
    (look.figures, found)
}

fn judge(look: &Look) -> Vec<Finding> {
    let found = |rule: &'static Rule| Some(Finding { rule, evidence: (rule.find)(look)? });
    RULES.iter().filter_map(found).collect()
}

/// Findings on this subject as lines of text: `warning open-port: …. To do: ….`.
pub(crate) fn text(about: About, findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let Rule { name, severity, advice, .. } = finding.rule;
        format!("{} {name}: {}. To do: {advice}.\n", severity.name(), finding.evidence)
    };
    findings.iter().filter(|finding| finding.rule.about == about).map(line).collect()
}

#[cfg(test)]
mod tests;
