//! A cache behind a socket, as simple as possible: an LRU with a limit for the bytes of keys and values,
//! which speaks memcached's text. Its results are known beforehand, however fast it is. A test can also have
//! it reply wrongly.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The properties of a cache.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// Bytes of keys and values that it holds.
    pub capacity_bytes: u64,
    /// How long it waits before it answers the requests of one receive.
    pub delay: Duration,
    /// It counts hits, misses and sets, and reports them in `stats`.
    pub counts: bool,
    /// Every second flush makes it hold only a tenth, until the next flush.
    pub moody: bool,
    /// It takes all keys for one: a read gets the last value written, whatever its key.
    pub forgetful: bool,
    /// What it does with a write that it acknowledges.
    pub writes: Writes,
}

/// What becomes of a write that is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// It is stored.
    #[default]
    Stored,
    /// It is dropped.
    Dropped,
    /// It is stored if the key is new; else the old value stays.
    OnlyNew,
}

impl Default for Model {
    fn default() -> Model {
        let delay = Duration::ZERO;
        let writes = Writes::Stored;
        Model { capacity_bytes: 64 << 20, delay, counts: true, moody: false, forgetful: false, writes }
    }
}

#[derive(Debug, Default)]
struct Items {
    /// Of each key: when it was last used, its flags and its value.
    of: HashMap<Vec<u8>, (u64, String, Vec<u8>)>,
    /// Keys, by when they were last used.
    order: BTreeMap<u64, Vec<u8>>,
    now: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Shared {
    model: Model,
    items: Mutex<Items>,
    hits: AtomicU64,
    misses: AtomicU64,
    sets: AtomicU64,
    flushes: AtomicU64,
}

impl Items {
    fn take(&mut self, key: &[u8]) -> Option<(String, Vec<u8>)> {
        let (at, flags, value) = self.of.remove(key)?;
        self.order.remove(&at);
        self.bytes -= (key.len() + value.len()) as u64;
        Some((flags, value))
    }

    fn put(&mut self, key: &[u8], flags: String, value: Vec<u8>, capacity_bytes: u64) {
        self.take(key);
        self.now += 1;
        self.bytes += (key.len() + value.len()) as u64;
        self.order.insert(self.now, key.to_vec());
        self.of.insert(key.to_vec(), (self.now, flags, value));
        while self.bytes > capacity_bytes {
            let oldest = self.order.first_key_value().map(|(_, key)| key.clone()).expect("there are bytes");
            self.take(&oldest);
        }
    }
}

/// Serves until the test process ends; returns its address.
///
/// # Panics
/// If it cannot listen.
pub fn serve(model: Model) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let count = || AtomicU64::new(0);
    let (hits, misses, sets, flushes) = (count(), count(), count(), count());
    let shared = Arc::new(Shared { model, items: Mutex::default(), hits, misses, sets, flushes });
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let shared = shared.clone();
            // A client that disconnects ends its own conversation alone.
            thread::spawn(move || shared.converse(stream));
        }
    });
    address
}

impl Shared {
    fn capacity_bytes(&self) -> u64 {
        let moody = self.model.moody && self.flushes.load(SeqCst) % 2 == 1;
        if moody { self.model.capacity_bytes / 10 } else { self.model.capacity_bytes }
    }

    fn converse(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut to = stream.try_clone()?;
        let mut from = BufReader::with_capacity(1 << 16, stream);
        let mut out = Vec::new();
        let mut line = String::new();
        loop {
            if from.buffer().is_empty() && !out.is_empty() {
                thread::sleep(self.model.delay);
                to.write_all(&out)?;
                out.clear();
            }
            line.clear();
            if from.read_line(&mut line)? == 0 {
                return Ok(());
            }
            match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
                ["get", key] => self.get(key.as_bytes(), &mut out),
                ["set", key, flags, _, bytes] => {
                    let mut value = vec![0; bytes.parse::<usize>().unwrap_or(0) + 2];
                    from.read_exact(&mut value)?;
                    value.truncate(value.len() - 2);
                    self.set(key.as_bytes(), flags.to_owned(), value);
                    out.extend_from_slice(b"STORED\r\n");
                }
                ["version"] => out.extend_from_slice(b"VERSION model\r\n"),
                ["stats"] => self.stats(&mut out),
                ["stats", ..] => out.extend_from_slice(b"END\r\n"),
                ["flush_all"] => {
                    self.flushes.fetch_add(1, SeqCst);
                    *self.items.lock().unwrap_or_else(PoisonError::into_inner) = Items::default();
                    out.extend_from_slice(b"OK\r\n");
                }
                _ => out.extend_from_slice(b"ERROR\r\n"),
            }
        }
    }

    fn name<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        if self.model.forgetful { b"all" } else { key }
    }

    fn get(&self, key: &[u8], out: &mut Vec<u8>) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        let name = self.name(key);
        match items.take(name) {
            None => drop(self.misses.fetch_add(1, SeqCst)),
            Some((flags, value)) => {
                self.hits.fetch_add(1, SeqCst);
                out.extend_from_slice(b"VALUE ");
                out.extend_from_slice(key);
                out.extend_from_slice(format!(" {flags} {}\r\n", value.len()).as_bytes());
                out.extend_from_slice(&value);
                out.extend_from_slice(b"\r\n");
                items.put(name, flags, value, self.capacity_bytes());
            }
        }
        out.extend_from_slice(b"END\r\n");
    }

    fn set(&self, key: &[u8], flags: String, value: Vec<u8>) {
        self.sets.fetch_add(1, SeqCst);
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        let name = self.name(key);
        let stores = match self.model.writes {
            Writes::Stored => true,
            Writes::Dropped => false,
            Writes::OnlyNew => !items.of.contains_key(name),
        };
        if stores {
            items.put(name, flags, value, self.capacity_bytes());
        }
    }

    fn stats(&self, out: &mut Vec<u8>) {
        if self.model.counts {
            let items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
            // Even if it mixes keys up, it counts as if it did not.
            let held = items.of.len();
            for (name, count) in [
                ("get_hits", self.hits.load(SeqCst)),
                ("get_misses", self.misses.load(SeqCst)),
                ("cmd_set", self.sets.load(SeqCst)),
                ("curr_items", held as u64),
                ("bytes", items.bytes),
            ] {
                out.extend_from_slice(format!("STAT {name} {count}\r\n").as_bytes());
            }
        }
        out.extend_from_slice(b"END\r\n");
    }
}
