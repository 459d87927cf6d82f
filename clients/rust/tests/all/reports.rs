//! Reports of streams beside every fault. Whatever happens to the replies of a third of the writes, a report
//! counts every write; what it counts as stored is there, and what it reports as refused is not.

use super::relay::Relay;
use larder_client::{Builder, Client, Dialect, Outcome, Report, Stream, Ttl, Window, tokio as larder};
use larder_testkit::PATIENCE;
use larder_testkit::process::Server;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use tokio::runtime::{self, Runtime};

/// Writes before a fault, during it, and after it: this many each.
const THIRD: usize = 1000;
const TIMEOUT: Duration = Duration::from_millis(50);

/// What happens to a third of the writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Replies come after their calls have timed out.
    Late,
    /// Connections end in the middle of replies.
    Cut,
    /// All connections end, and new ones are refused.
    Refused,
    /// The server stops, and continues later.
    Stopped,
}

const FAULTS: [Fault; 5] = [Fault::None, Fault::Late, Fault::Cut, Fault::Refused, Fault::Stopped];

impl Fault {
    fn begin(self, relay: &Relay, server: &Server, quiet: bool) {
        match self {
            Fault::None => {}
            Fault::Late => relay.hold(TIMEOUT + TIMEOUT / 4),
            // A group of a quiet stream has a reply of four bytes. Both limits let the greeting pass.
            Fault::Cut => relay.cut(if quiet { 60 } else { 400 }),
            Fault::Refused => relay.refuse(),
            Fault::Stopped => server.pause().expect("it stops"),
        }
    }

    fn end(self, relay: &Relay, server: &Server) {
        match self {
            Fault::None | Fault::Late | Fault::Cut | Fault::Refused => relay.heal(),
            Fault::Stopped => server.resume(),
        }
    }

    /// Returns whether the fault has had an effect.
    fn has_harmed(self, relay: &Relay) -> bool {
        self == Fault::Stopped || relay.harmed() > 0
    }
}

/// A stream whose calls block.
trait Writes {
    fn set(&mut self, key: &[u8]);
    fn barrier(&mut self) -> Report;
}

impl Writes for Stream {
    fn set(&mut self, key: &[u8]) {
        <Stream>::set(self, key, key, Ttl::Forever).expect("its key is good");
    }

    fn barrier(&mut self) -> Report {
        <Stream>::barrier(self)
    }
}

/// A stream of the async client, and the runtime that drives it.
struct Awaited {
    stream: larder::Stream,
    runtime: Runtime,
}

impl Writes for Awaited {
    fn set(&mut self, key: &[u8]) {
        self.runtime.block_on(self.stream.set(key, key, Ttl::Forever)).expect("its key is good");
    }

    fn barrier(&mut self) -> Report {
        self.runtime.block_on(self.stream.barrier())
    }
}

fn blocking(builder: Builder, quiet: bool) -> Box<dyn Writes> {
    let client = builder.build().expect("a client");
    Box::new(if quiet { client.quiet() } else { client.stream(Window::default()) })
}

fn awaited(builder: Builder, quiet: bool) -> Box<dyn Writes> {
    let client = builder.build_tokio().expect("a client");
    let stream = if quiet { client.quiet() } else { client.stream(Window::default()) };
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    Box::new(Awaited { stream, runtime: runtime.expect("a runtime") })
}

/// Writes of one stream, each to a key of its own, and the sum of its reports.
struct Run {
    name: String,
    stream: Box<dyn Writes>,
    keys: Vec<String>,
    sum: Report,
}

impl Run {
    fn write(&mut self, writes: usize) {
        for _ in 0..writes {
            let key = format!("{}:{}", self.name, self.keys.len());
            self.stream.set(key.as_bytes());
            self.keys.push(key);
        }
    }

    fn add_report(&mut self) {
        let Report { sent, stored, refused, unknown, first, .. } = self.stream.barrier();
        self.sum.sent += sent;
        self.sum.stored += stored;
        self.sum.refused += refused;
        self.sum.unknown += unknown;
        self.sum.first.extend(first);
        assert_eq!(sent, stored + refused + unknown, "{}", self.name);
        assert_eq!(self.sum.sent, self.keys.len() as u64, "{}", self.name);
    }
}

/// Writes three thirds, the second one during the fault; then reads all keys without the relay, and compares
/// them with the reports.
fn adds_up(fault: Fault, quiet: bool, server: &Server, open: fn(Builder, bool) -> Box<dyn Writes>) {
    let relay = Relay::new(server.address());
    let builder = Client::builder().server(relay.address().to_string().as_str());
    let builder = builder.protocol(Dialect::Meta).verify(true);
    let builder = match fault {
        // No timeout may end a call, however slow the machine is.
        Fault::None => builder.timeout(PATIENCE).dial_timeout(PATIENCE).stall_timeout(PATIENCE),
        Fault::Late | Fault::Cut | Fault::Refused | Fault::Stopped => builder.timeout(TIMEOUT),
    };
    let (name, stream) = (format!("{fault:?}:{quiet}"), open(builder, quiet));
    let mut run = Run { name, stream, keys: Vec::new(), sum: Report::default() };
    run.write(THIRD);
    fault.begin(&relay, server, quiet);
    run.write(THIRD);
    run.add_report();
    let until = Instant::now() + PATIENCE;
    while fault != Fault::None && !fault.has_harmed(&relay) {
        assert!(Instant::now() < until, "{}: nothing is harmed", run.name);
        run.write(1);
        run.add_report();
    }
    fault.end(&relay, server);
    run.write(THIRD);
    run.add_report();

    let Run { name, keys, sum, .. } = run;
    if fault == Fault::None {
        assert_eq!((sum.stored, relay.harmed()), (3 * THIRD as u64, 0), "{sum:?}");
    }
    let direct = Client::builder().server(server.address().to_string().as_str()).timeout(PATIENCE);
    let direct = direct.dial_timeout(PATIENCE).stall_timeout(PATIENCE).build().expect("a client");
    let mut batch = direct.batch();
    let gets: Vec<_> = keys.iter().map(|key| batch.get(key.as_bytes())).collect();
    let (done, mut found) = (batch.run(), HashSet::new());
    for (key, get) in keys.iter().zip(&gets) {
        if let Some((value, _)) = done.value(get).expect("an answer") {
            assert_eq!(value, key.as_bytes());
            found.insert(key.as_bytes());
        }
    }
    let there = found.len() as u64;
    assert!((sum.stored..=sum.stored + sum.unknown).contains(&there), "{name}: {there} are there: {sum:?}");
    // Each refused key is looked up: a count alone would miss a lost write if a refused one was stored.
    for refused in &sum.first {
        let is_there = found.contains(refused.key.as_slice());
        assert!(!is_there || refused.error.outcome() == Outcome::Unknown, "{name}: {refused:?} is there");
    }
}

/// Checks all faults, for streams that ask for replies and for quiet ones.
fn add_up(open: fn(Builder, bool) -> Box<dyn Writes>) {
    let server = Server::start(&["--threads", "1", "-m", "64"]).expect("a server");
    for fault in FAULTS {
        for quiet in [false, true] {
            adds_up(fault, quiet, &server, open);
        }
    }
}

#[test]
fn reports_add_up_beside_every_fault() {
    add_up(blocking);
}

#[test]
fn reports_of_tasks_add_up_beside_every_fault() {
    add_up(awaited);
}
