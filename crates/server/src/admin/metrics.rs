//! Metrics of the process, its workers and this listener; and the page that lists all metrics.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use larder_commands::metrics::{Documented, documented};
use larder_commands::{Counter, Exposition, Family, Host, Kind, Sample, Sums};
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::machine::ThreadTime;
use super::route::Routes;
use crate::worker::timing::{Counts, MANY, PROTOCOLS, STAGES, STEPS, step_ns};

struct Metric {
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
    tell: fn(&Seen<'_>, &mut Family<'_>),
}

/// What metrics are read from.
struct Seen<'a> {
    routes: &'a Routes,
    process: larder_commands::Process,
    status: Status,
}

/// What is taken from `/proc/self/status`.
#[derive(Debug, Default)]
struct Status {
    virtual_bytes: u64,
    resident_bytes: u64,
    swapped_bytes: u64,
    threads: u64,
}

impl Status {
    fn read() -> Status {
        Status::parse(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
    }

    fn parse(text: &str) -> Status {
        let of = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        Status {
            virtual_bytes: of("VmSize") * 1024,
            resident_bytes: of("VmRSS") * 1024,
            swapped_bytes: of("VmSwap") * 1024,
            threads: of("Threads"),
        }
    }
}

const fn gauge(name: &'static str, help: &'static str, tell: fn(&Seen<'_>, &mut Family<'_>)) -> Metric {
    Metric { name, kind: Kind::Gauge, labels: &[], help, tell }
}

const fn counter(name: &'static str, help: &'static str, tell: fn(&Seen<'_>, &mut Family<'_>)) -> Metric {
    Metric { name, kind: Kind::Counter, labels: &[], help, tell }
}

/// Most workers that are told apart; more are told as one, `all`.
const WORKERS_MAX: usize = 64;

const METRICS: &[Metric] = &[
    Metric {
        name: "larder_build_info",
        kind: Kind::Gauge,
        labels: &["version", "target"],
        help: "Which Larder this is.",
        tell: |_, family| {
            let target = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
            family.put(&[("version", env!("CARGO_PKG_VERSION")), ("target", &target)], Sample::Whole(1));
        },
    },
    gauge("larder_start_time_seconds", STARTED, started),
    counter(
        "process_cpu_seconds_total",
        "The processor's time, of the program and of the system for it.",
        |seen, family| {
            family.put(&[], Sample::Micros(seen.process.user_us + seen.process.system_us));
        },
    ),
    gauge("process_start_time_seconds", STARTED, started),
    gauge("process_resident_memory_bytes", "Memory of the process.", |seen, family| {
        family.put(&[], Sample::Whole(seen.status.resident_bytes));
    }),
    gauge(
        "process_virtual_memory_bytes",
        "Addresses of the process, the arena's reserve among them.",
        |seen, family| {
            family.put(&[], Sample::Whole(seen.status.virtual_bytes));
        },
    ),
    gauge(
        "larder_swapped_bytes",
        "Memory of the process that the system has swapped out.",
        |seen, family| {
            family.put(&[], Sample::Whole(seen.status.swapped_bytes));
        },
    ),
    gauge("process_threads", "Threads of the process.", |seen, family| {
        family.put(&[], Sample::Whole(seen.status.threads));
    }),
    gauge("process_open_fds", "Open files and sockets.", |seen, family| {
        let asks = seen.routes.hub.clock.is_of_machine();
        if let Some(Ok(open)) = asks.then(|| std::fs::read_dir("/proc/self/fd")) {
            family.put(&[], Sample::Whole(open.count() as u64));
        }
    }),
    gauge("process_max_fds", "Files and sockets that may be open.", |_, family| {
        if let Some(most) = getrlimit(Resource::Nofile).current {
            family.put(&[], Sample::Whole(most));
        }
    }),
    Metric {
        name: "larder_worker_connections",
        kind: Kind::Gauge,
        labels: &["worker"],
        help: "Connections of a worker.",
        tell: |seen, family| {
            let handles = seen.routes.hub.handles.iter();
            let counts = handles.map(|handle| handle.connections.load(Relaxed) as u64);
            put_workers(family, counts.collect(), Sample::Whole);
        },
    },
    Metric {
        name: "larder_worker_cpu_seconds_total",
        kind: Kind::Counter,
        labels: &["worker"],
        help: "The processor's time of a worker.",
        tell: |seen, family| put_workers(family, worker_us(seen, |time| time.ran), Sample::Micros),
    },
    Metric {
        name: "larder_worker_run_delay_seconds_total",
        kind: Kind::Counter,
        labels: &["worker"],
        help: "How long a worker could have run, and others had its processor.",
        tell: |seen, family| put_workers(family, worker_us(seen, |time| time.waited), Sample::Micros),
    },
    Metric {
        name: "larder_turn_seconds",
        kind: Kind::Histogram,
        labels: &[],
        help: "How long turns of workers took, from the wake-up until all that had come was answered and sent, of the turns that are timed: some each tenth of a second.",
        tell: |seen, family| {
            let mut counts = [0; STEPS];
            let handles = seen.routes.hub.handles.iter();
            handles.for_each(|handle| handle.stages.add_turns_to(&mut counts));
            put_times(family, &[], &counts);
        },
    },
    Metric {
        name: "larder_requests_per_receive",
        kind: Kind::Histogram,
        labels: &[],
        help: "How many keys of memcached's commands, or RESP commands, were taken at once from what was received, of the turns that are timed.",
        tell: |seen, family| {
            let mut counts = [0; MANY];
            let handles = seen.routes.hub.handles.iter();
            handles.for_each(|handle| handle.stages.add_receives_to(&mut counts));
            let [parts @ .., beyond] = &counts;
            let bounds = (0..).map(|power| f64::from(1u32 << power));
            let mut sums = Sums::default();
            seen.routes.hub.counters(&mut |counters| sums.add(counters));
            let sum = Sample::Whole(sums.of(Counter::TimedRequests));
            family.put_histogram(&[], bounds.zip(parts.iter().copied()), *beyond, sum);
        },
    },
    Metric {
        name: "larder_request_seconds",
        kind: Kind::Histogram,
        labels: &["protocol", "stage"],
        help: "How long requests waited for their turn (queue), were worked on (service) and waited to be sent (reply), of those that were timed: some turns of each worker, ten times a second.",
        tell: |seen, family| {
            for (number, protocol) in PROTOCOLS.iter().enumerate() {
                let mut counts: Counts = [[0; STEPS]; STAGES.len()];
                seen.routes.hub.add_times(&mut counts, number);
                for (stage, counts) in STAGES.iter().zip(&counts) {
                    put_times(family, &[("protocol", protocol), ("stage", stage)], counts);
                }
            }
        },
    },
    Metric {
        name: "larder_stalls_by_cause_total",
        kind: Kind::Counter,
        labels: &["cause"],
        help: "The stalls of `larder_stalls_total`, by what held the worker up: its own work, others that had its processor (no-processor), memory that was read from a disk (page-fault), the system, which kept it waiting or had stopped it (stopped), or what the system does not say (unknown).",
        tell: |seen, family| {
            for (cause, stalls) in seen.routes.hub.stalls.by_cause() {
                family.put(&[("cause", cause.name())], Sample::Whole(stalls.count));
            }
        },
    },
    Metric {
        name: "larder_stall_seconds_total",
        kind: Kind::Counter,
        labels: &["cause"],
        help: "How long these stalls took.",
        tell: |seen, family| {
            for (cause, stalls) in seen.routes.hub.stalls.by_cause() {
                family.put(&[("cause", cause.name())], Sample::Micros(stalls.took_us));
            }
        },
    },
    counter(
        "larder_http_requests_total",
        "Requests to this listener that were understood.",
        |seen, family| {
            family.put(&[], Sample::Whole(seen.routes.requests));
        },
    ),
    counter(
        "larder_http_wrong_passwords_total",
        "Requests to this listener with a wrong password.",
        |seen, family| {
            family.put(&[], Sample::Whole(seen.routes.wrong_passwords));
        },
    ),
    counter("larder_observer_cpu_seconds_total", "The processor's time for telling this.", |seen, family| {
        if seen.routes.hub.clock.is_of_machine() {
            let used = clock_gettime(ClockId::ThreadCPUTime);
            let us = used.tv_sec as u64 * 1_000_000 + used.tv_nsec as u64 / 1_000;
            family.put(&[], Sample::Micros(us));
        }
    }),
];

/// Two to these powers of nanoseconds are the first bound of times and the last: 64 ns and 8.6 s.
const TIMES_LOG: std::ops::RangeInclusive<u32> = 6..=33;

/// Puts the values of workers, or their sum where there are too many; nothing where one is not known.
fn put_workers(family: &mut Family<'_>, values: Vec<u64>, sample: fn(u64) -> Sample) {
    if values.len() > WORKERS_MAX {
        return family.put(&[("worker", "all")], sample(values.iter().sum()));
    }
    for (worker, value) in values.into_iter().enumerate() {
        family.put(&[("worker", &worker.to_string())], sample(value));
    }
}

/// Microseconds of workers' times; empty if the system does not say.
fn worker_us(seen: &Seen<'_>, of: fn(ThreadTime) -> u64) -> Vec<u64> {
    let hub = &seen.routes.hub;
    let times = (0..hub.handles.len()).map(|worker| ThreadTime::of_worker(hub, worker));
    times.map(|time| Some(of(time?) / 1000)).collect::<Option<_>>().unwrap_or_default()
}

/// Puts the times of a stage. Those of a step are told as if all were in its middle: from 8 ns to 32 s a sixteenth off at most.
fn put_times(family: &mut Family<'_>, labels: &[(&str, &str)], counts: &[u64; STEPS]) {
    let mut step = 0;
    let parts = TIMES_LOG.map(|log| {
        let from = step;
        while step < STEPS && step_ns(step + 1) <= 1 << log {
            step += 1;
        }
        ((1u64 << log) as f64 / 1e9, counts[from..step].iter().sum())
    });
    let parts: Vec<(f64, u64)> = parts.collect();
    let beyond = counts[step..].iter().sum();
    let middle_ns = |step: usize| (step_ns(step) + step_ns(step + 1)) as f64 / 2.0;
    let sum_ns: f64 = counts.iter().enumerate().map(|(step, count)| *count as f64 * middle_ns(step)).sum();
    let sum = Sample::Micros((sum_ns / 1e3) as u64);
    family.put_histogram(labels, parts.into_iter(), beyond, sum);
}

const STARTED: &str = "When the server was started, since 1970.";

fn started(seen: &Seen<'_>, family: &mut Family<'_>) {
    let hub = &seen.routes.hub;
    let ran_ms = hub.clock.elapsed().as_millis() as u64;
    family.put(&[], Sample::Whole(hub.clock.system_ms().saturating_sub(ran_ms) / 1000));
}

/// Writes these metrics.
pub fn expose(routes: &Routes, page: &mut Exposition<'_>) {
    let status = if routes.hub.clock.is_of_machine() { Status::read() } else { Status::default() };
    let seen = Seen { routes, process: routes.hub.process(), status };
    for metric in METRICS {
        page.family(metric.name, metric.kind, metric.help, |family| (metric.tell)(&seen, family));
    }
}

/// All metrics as a page of Markdown: family by family, each with its kind, its labels, and what it says.
pub fn markdown() -> String {
    let own = METRICS.iter().map(|metric| Documented {
        name: metric.name,
        kind: metric.kind,
        labels: metric.labels.to_vec(),
        help: metric.help,
    });
    let mut own: Vec<Documented> = own.collect();
    own.push(Documented {
        name: "larder_exposition_truncated",
        kind: Kind::Gauge,
        labels: vec![],
        help: larder_commands::TRUNCATED,
    });
    let mut page = String::new();
    for (family, metrics) in documented() {
        let metrics = if family == "larder" { own.drain(..).chain(metrics).collect() } else { metrics };
        // Writing into a string cannot fail.
        let _ =
            write!(page, "\n## `{family}`\n\n| metric | kind | labels | what it says |\n|---|---|---|---|\n");
        for metric in metrics {
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let (name, kind, help) = (metric.name, metric.kind.name(), metric.help);
            let _ = writeln!(page, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
        }
    }
    page.push_str("\n## Findings\n\n`larder_finding{rule, severity}` is 1 while a rule finds something:\n\n");
    page.push_str("| rule | severity | when | what to do |\n|---|---|---|---|\n");
    for [name, severity, when, advice] in larder_commands::metrics::rules() {
        let _ = writeln!(page, "| {name} | {severity} | {when} | {advice} |");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_page_of_a_process_is_read() {
        let status =
            Status::parse("Name:\tlarder\nVmSize:\t  200 kB\nVmRSS:\t 7 kB\nVmSwap:\t0 kB\nThreads:\t5\n");
        assert_eq!((status.virtual_bytes, status.resident_bytes), (200 << 10, 7 << 10));
        assert_eq!((status.swapped_bytes, status.threads), (0, 5));
        assert_eq!(Status::parse("").threads, 0);
    }

    #[test]
    fn times_are_told_by_doublings_and_none_is_lost() {
        let mut counts = [0; STEPS];
        let at = |ns: u64| (0..STEPS).rfind(|step| step_ns(*step) <= ns).expect("a step");
        for (ns, count) in [(3, 1), (63, 2), (64, 4), (1_000, 8), (8_000_000_000, 16), (9_000_000_000, 32)] {
            counts[at(ns)] += count;
        }
        let mut told = larder_commands::LastValues::default();
        let mut page = Exposition::new(&mut told);
        page.family("t", Kind::Histogram, "T.", |family| put_times(family, &[("stage", "queue")], &counts));
        let text = page.finish();
        for line in [
            "t_bucket{stage=\"queue\",le=\"0.000000064\"} 3",
            "t_bucket{stage=\"queue\",le=\"0.000000128\"} 7",
            "t_bucket{stage=\"queue\",le=\"0.000001024\"} 15",
            "t_bucket{stage=\"queue\",le=\"8.589934592\"} 31",
            "t_bucket{stage=\"queue\",le=\"+Inf\"} 63",
            "t_count{stage=\"queue\"} 63",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{line}: {text}");
        }
        assert_eq!(text.matches("_bucket").count(), 29);
        let sum = text.lines().find_map(|line| line.strip_prefix("t_sum{stage=\"queue\"} "));
        let sum: f64 = sum.and_then(|sum| sum.parse().ok()).expect("a sum");
        assert!((sum - 416.0).abs() < 26.0, "{sum}");
    }

    #[test]
    fn the_page_has_each_metric_once() {
        let page = markdown();
        let mut names: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| `")).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert!(count > 100);
        assert_eq!(names.len(), count);
    }
}
