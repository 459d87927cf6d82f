//! Eight connections on two threads: every acknowledged operation counts, every value is whole.

use larder_testkit::client::Client;
use larder_testkit::process::Server;
use larder_testkit::proof;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const CONNECTIONS: u64 = 8;
const OPERATIONS: u64 = 1_200_000;
const COUNTERS: u64 = 6;

/// Number of operations; `LARDER_STRESS_OPERATIONS` lowers it for builds in which each costs more.
fn operations() -> u64 {
    let given = std::env::var("LARDER_STRESS_OPERATIONS").ok();
    given.map_or(OPERATIONS, |text| text.parse().expect("a number of operations"))
}

/// xorshift64*: the same stream for the same seed, printed with every failure.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }
}

/// Operations that the replies to one connection acknowledged.
#[derive(Default)]
struct Acknowledged {
    operations: u64,
    /// Sums by counter.
    sums: BTreeMap<String, u64>,
}

enum Waiting {
    Increment(String, u64),
    Stored,
    /// A store in a full cache may be refused: while a worker is off its core, the memory of evicted items
    /// stays in use.
    Tried,
    Deleted,
    Hits(u64),
}

struct Load<'l> {
    client: Client,
    random: Random,
    /// The last version written; a value read must not be newer.
    versions: &'l AtomicU64,
    keys: u64,
    /// Bytes of the largest value.
    bytes_max: u64,
}

impl Load<'_> {
    fn run(&mut self, operations: u64, counters: bool) -> io::Result<Acknowledged> {
        let mut told = Acknowledged::default();
        while told.operations < operations {
            let mut waiting = Vec::new();
            for _ in 0..self.random.below(60) + 1 {
                waiting.push(self.request(counters));
            }
            self.client.flush()?;
            for what in waiting {
                self.answer(what, &mut told)?;
            }
            if counters {
                self.swap(&mut told)?;
            }
        }
        Ok(told)
    }

    fn request(&mut self, counters: bool) -> Waiting {
        let key = format!("value:{}", self.random.below(self.keys));
        match self.random.below(10) {
            0..=2 if counters => {
                let name = format!("counter:{}", self.random.below(COUNTERS));
                let delta = self.random.below(9) + 1;
                self.client.line(&format!("incr {name} {delta}"));
                Waiting::Increment(name, delta)
            }
            3 | 4 => {
                let version = self.versions.fetch_add(1, Relaxed) + 1;
                let bytes = match self.random.below(200) {
                    0 => self.bytes_max,
                    1..=20 => self.random.below(self.bytes_max / 20),
                    _ => self.random.below(200),
                };
                self.client.store("set", &key, &proof::value(&key, version, bytes as usize), None);
                if counters { Waiting::Stored } else { Waiting::Tried }
            }
            5 => {
                self.client.line(&format!("delete {key}"));
                Waiting::Deleted
            }
            _ => {
                let other = format!("value:{}", self.random.below(self.keys));
                self.client.line(&format!("get {key} {other}"));
                Waiting::Hits(2)
            }
        }
    }

    fn answer(&mut self, what: Waiting, told: &mut Acknowledged) -> io::Result<()> {
        told.operations += 1;
        match what {
            Waiting::Increment(name, delta) => {
                let reply = self.client.reply()?;
                reply.parse::<u64>().map_err(|_| io::Error::other(format!("incr answered {reply}")))?;
                *told.sums.entry(name).or_default() += delta;
            }
            Waiting::Stored => expect(&self.client.reply()?, &["STORED"])?,
            Waiting::Tried => {
                expect(&self.client.reply()?, &["STORED", "SERVER_ERROR out of memory storing object"])?;
            }
            Waiting::Deleted => expect(&self.client.reply()?, &["DELETED", "NOT_FOUND"])?,
            Waiting::Hits(most) => {
                let hits = self.client.hits()?;
                if hits.len() as u64 > most {
                    return Err(io::Error::other("more hits than keys"));
                }
                for hit in hits {
                    let version = proof::version(&hit.key, &hit.value).map_err(io::Error::other)?;
                    if version > self.versions.load(Relaxed) {
                        return Err(io::Error::other("a version that was never written"));
                    }
                }
            }
        }
        Ok(())
    }

    /// One read and compare-and-swap of a counter that others increment.
    fn swap(&mut self, told: &mut Acknowledged) -> io::Result<()> {
        let name = format!("counter:{}", self.random.below(COUNTERS));
        self.client.line(&format!("gets {name}"));
        self.client.flush()?;
        let hits = self.client.hits()?;
        let hit = hits.first().ok_or_else(|| io::Error::other(format!("{name} is lost")))?;
        let number = String::from_utf8_lossy(&hit.value).trim().parse::<u64>().map_err(io::Error::other)?;
        self.client.store("cas", &name, (number + 1000).to_string().as_bytes(), hit.cas);
        self.client.flush()?;
        told.operations += 2;
        match self.client.reply()?.as_str() {
            "STORED" => *told.sums.entry(name).or_default() += 1000,
            "EXISTS" => {}
            other => return Err(io::Error::other(format!("cas answered {other}"))),
        }
        Ok(())
    }
}

fn expect(reply: &str, allowed: &[&str]) -> io::Result<()> {
    if allowed.contains(&reply) {
        Ok(())
    } else {
        Err(io::Error::other(format!("unexpected reply {reply:?}")))
    }
}

/// Runs all connections; returns what each had acknowledged.
fn load(server: &Server, keys: u64, bytes_max: u64, operations: u64, counters: bool) -> Vec<Acknowledged> {
    let versions = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let connections: Vec<_> = (1..=CONNECTIONS)
            .map(|seed| {
                let client = server.connect().and_then(Client::new).expect("a connection");
                let mut load = Load { client, random: Random(seed), versions: &versions, keys, bytes_max };
                let each = operations / CONNECTIONS;
                scope.spawn(move || {
                    load.run(each, counters).unwrap_or_else(|error| panic!("seed {seed}: {error}"))
                })
            })
            .collect();
        connections.into_iter().map(|connection| connection.join().expect("a connection's thread")).collect()
    })
}

#[test]
fn acknowledged_changes_are_all_there_and_no_others() {
    let server = Server::start(&["-t", "2", "-m", "256"]).expect("larder starts");
    let mut client = server.connect().and_then(Client::new).expect("a connection");
    for counter in 0..COUNTERS {
        client.store("set", &format!("counter:{counter}"), b"100", None);
        client.flush().expect("sent");
        assert_eq!(client.reply().expect("a reply"), "STORED");
    }
    let told = load(&server, 2000, 40_000, operations(), true);
    let acknowledged: u64 = told.iter().map(|told| told.operations).sum();
    assert!(acknowledged >= operations() / CONNECTIONS * CONNECTIONS, "{acknowledged} acknowledged");
    for counter in 0..COUNTERS {
        let name = format!("counter:{counter}");
        let sum: u64 = told.iter().filter_map(|told| told.sums.get(&name)).sum();
        client.line(&format!("get {name}"));
        client.flush().expect("sent");
        let hits = client.hits().expect("a reply");
        let last = String::from_utf8_lossy(&hits[0].value).trim().parse::<u64>().expect("a number");
        assert_eq!(last, 100 + sum, "{name}");
    }
    assert_eq!(client.stat("evictions").expect("a statistic"), "0", "counters may not be evicted here");
}

#[test]
fn values_stay_whole_while_the_cache_evicts() {
    let server = Server::start(&["-t", "2", "-m", "16"]).expect("larder starts");
    load(&server, 40_000, 60_000, operations() / 4, false);
    let mut client = server.connect().and_then(Client::new).expect("a connection");
    let evictions: u64 = client.stat("evictions").expect("a statistic").parse().expect("a number");
    assert!(evictions > 0 || operations() < OPERATIONS, "the cache was full");
}
