//! The administrator: random commands during all traffic. Their effects must stay within what the phase
//! explains.

use crate::client::open;
use crate::dialect::{Reply, reply};
use crate::op::short;
use crate::phase::Phase;
use crate::random::Random;
use crate::wire::{Manner, Wire};
use crate::world::{Cause, World};
use larder_testkit::talk::encode;
use std::io;
use std::thread;
use std::time::Duration;

/// Longest pause between two verbs.
const PAUSE_MS: usize = 150;
/// The memory limit moves between these, in megabytes.
pub const LIMIT: [usize; 2] = [24, 96];
/// Databases that only the administrator uses.
const OWN: [&str; 2] = ["8", "9"];

/// Requests of memcached's text: the last line of each one's reply; none: the reply is one line.
const TEXT: &[(&str, Option<&str>)] = &[
    ("stats", Some("END")),
    ("stats items", Some("END")),
    ("stats slabs", Some("END")),
    ("stats conns", Some("END")),
    ("stats settings", Some("END")),
    ("stats sizes", Some("END")),
    ("lru_crawler crawl all", None),
    ("lru_crawler metadump all", Some("END")),
    ("lru_crawler mgdump all", Some("EN")),
    ("slabs automove 0", None),
    ("slabs automove 1", None),
    ("slabs automove 2", None),
    ("lru mode segmented", None),
    ("verbosity 0", None),
    ("version", None),
];

/// Commands of Redis.
const RESP: &[&[&str]] = &[
    &["INFO", "everything"],
    &["CLIENT", "LIST"],
    &["DBSIZE"],
    &["RANDOMKEY"],
    &["KEYS", "c1:1*"],
    &["MEMORY", "STATS"],
    &["SLOWLOG", "GET"],
    &["SLOWLOG", "RESET"],
    &["LATENCY", "LATEST"],
    &["PUBSUB", "CHANNELS"],
    &["CONFIG", "GET", "*"],
    &["COMMAND", "COUNT"],
    &["LATENCY", "HISTOGRAM"],
];

/// The administrator.
#[derive(Debug)]
pub struct Admin<'w> {
    world: &'w World,
    random: Random,
    wires: [Option<Wire>; 2],
    /// No other client closes its connections.
    spared: bool,
}

impl<'w> Admin<'w> {
    /// An administrator with its own decisions. Unless it is `spared`, its own CLIENT KILL may close its
    /// connections.
    pub fn new(world: &'w World, seed: u64, spared: bool) -> Admin<'w> {
        Admin { world, random: Random::of(seed, 1 << 32), wires: [None, None], spared }
    }

    /// Runs until the soak ends.
    pub fn run(mut self) {
        while self.world.runs() {
            let world = self.world;
            let verb = world.within(|phase| {
                let began_us = world.now_us();
                let verb = self.act(phase);
                world.note(&verb, began_us);
                verb
            });
            world.count(&format!("admin: {verb}"), 1);
            thread::sleep(Duration::from_millis(self.random.within(1, PAUSE_MS) as u64));
        }
        for wire in self.wires.iter().flatten() {
            self.world.forget(wire.address);
        }
    }

    fn act(&mut self, phase: &Phase) -> String {
        match self.random.below(100) {
            0..30 => {
                let (line, end) = *self.random.of_list(TEXT);
                self.text(line, end);
                line.to_owned()
            }
            30..55 => {
                let words = *self.random.of_list(RESP);
                self.resp(words);
                words[0].to_owned()
            }
            55..60 => self.scan(),
            60..68 => self.reassign(),
            68..76 => self.kill(),
            76..82 => self.other_databases(),
            82..84 if !phase.counts => {
                self.resp(&["CONFIG", "RESETSTAT"]);
                "CONFIG RESETSTAT".to_owned()
            }
            84..94 if phase.moves_limit => self.move_limit(),
            84..94 if phase.flushes => self.flush(),
            94..100 if phase.flushes => self.flush(),
            _ => {
                self.text("mn", None);
                "mn".to_owned()
            }
        }
    }

    /// Sends a request of one line; returns its reply's last line.
    pub fn text(&mut self, request: &str, end: Option<&str>) -> String {
        let answer = self.ask(0, format!("{request}\r\n").as_bytes(), |wire| {
            loop {
                let line = String::from_utf8_lossy(&wire.dump_line()?).into_owned();
                let error = line.contains("ERROR") || line.starts_with("BUSY");
                if error || end.is_none_or(|end| line == end) {
                    return Ok(line);
                }
            }
        });
        let line = answer.unwrap_or_default();
        if line.contains("ERROR") {
            self.world.complain(&format!("{request} was answered {line}"));
        }
        line
    }

    /// A figure of `stats`.
    pub fn stat(&mut self, name: &str) -> Option<u64> {
        self.ask(0, b"stats\r\n", |wire| {
            let mut found = None;
            loop {
                let line = String::from_utf8_lossy(&wire.line()?).into_owned();
                if line == "END" {
                    return Ok(found);
                }
                let mut words = line.split(' ').skip(1);
                if words.next() == Some(name) {
                    found = words.next().and_then(|number| number.parse().ok());
                }
            }
        })
        .flatten()
    }

    /// Sends a command that may be refused.
    pub fn resp_or_error(&mut self, words: &[&str]) -> Option<Reply> {
        let request = encode(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
        self.ask(1, &request, reply)
    }

    /// Sends a command; an error reply is a complaint.
    pub fn resp(&mut self, words: &[&str]) -> Option<Reply> {
        let answer = self.resp_or_error(words);
        if let Some(Reply::Error(text)) = &answer {
            self.world.complain(&format!("{} was answered {text}", words.join(" ")));
        }
        answer
    }

    fn ask<R>(
        &mut self,
        port: usize,
        request: &[u8],
        read: impl FnOnce(&mut Wire) -> io::Result<R>,
    ) -> Option<R> {
        if self.wires[port].is_none() {
            let wire = open(self.world, port);
            if let Some(wire) = wire.as_ref().filter(|_| self.spared) {
                self.world.forget(wire.address);
            }
            self.wires[port] = wire;
        }
        let wire = self.wires[port].as_mut()?;
        let answer = wire.send(request, Manner::Prompt, &mut self.random).and_then(|()| read(wire));
        if let Err(error) = &answer {
            let address = wire.address;
            self.wires[port] = None;
            // The administrator may have closed this connection itself.
            self.world.broke(address, || format!("the administrator's {}: {error}", short(request)));
        }
        answer.ok()
    }

    fn scan(&mut self) -> String {
        let mut cursor = "0".to_owned();
        let count = *self.random.of_list(&["10", "1000", "100000"]);
        for _ in 0..20 {
            match self.resp(&["SCAN", &cursor, "COUNT", count]) {
                Some(Reply::Array(Some(parts))) => match &parts[..] {
                    [Reply::Bulk(Some(next)), Reply::Array(Some(_))] => {
                        cursor = String::from_utf8_lossy(next).into_owned();
                    }
                    _ => self.world.complain(&format!("SCAN was answered {parts:?}")),
                },
                Some(other) => self.world.complain(&format!("SCAN was answered {other:?}")),
                None => break,
            }
            if cursor == "0" {
                break;
            }
        }
        format!("SCAN COUNT {count}")
    }

    fn reassign(&mut self) -> String {
        let from =
            if self.random.chance(20) { "-1".to_owned() } else { self.random.within(1, 42).to_string() };
        let to = self.random.within(1, 42);
        let line = self.text(&format!("slabs reassign {from} {to}"), None);
        format!("slabs reassign: {}", line.split(' ').next().unwrap_or_default())
    }

    fn kill(&mut self) -> String {
        let mut open: Vec<_> = self.world.open.lock().expect("not poisoned").iter().copied().collect();
        if open.is_empty() {
            return "nobody to kill".to_owned();
        }
        open.sort_unstable();
        let victim = *self.random.of_list(&open);
        self.world.killed.lock().expect("not poisoned").insert(victim);
        self.resp(&["CLIENT", "KILL", "ADDR", &victim.to_string()]);
        "CLIENT KILL".to_owned()
    }

    /// Swaps and flushes databases that no other client uses.
    fn other_databases(&mut self) -> String {
        let [one, two] = OWN;
        let database = *self.random.of_list(&OWN);
        self.resp(&["SELECT", database]);
        let set = encode(&[b"SET", b"own", b"value"]);
        // There may be no memory for this.
        self.ask(1, &set, reply);
        self.resp(&["SWAPDB", one, two]);
        self.resp(&["FLUSHDB"]);
        self.resp(&["SELECT", "0"]);
        "SELECT, SWAPDB, FLUSHDB".to_owned()
    }

    fn move_limit(&mut self) -> String {
        let megabytes = self.random.within(LIMIT[0], LIMIT[1]);
        self.set_limit(megabytes as u64, self.random.clone().chance(50));
        "limit moved".to_owned()
    }

    /// Sets the memory limit, in text or by RESP.
    pub fn set_limit(&mut self, megabytes: u64, text: bool) {
        self.world.limit(megabytes);
        if text {
            self.text(&format!("cache_memlimit {megabytes}"), None);
        } else {
            self.resp(&["CONFIG", "SET", "maxmemory", &format!("{megabytes}mb")]);
        }
        // Noted again, so that the old limit counts until the server has acknowledged the new one.
        self.world.limit(megabytes);
    }

    /// Removes everything of all clients.
    pub fn flush(&mut self) -> String {
        self.world.begin(Cause::Flush);
        let verb = match self.random.below(4) {
            0 | 1 => {
                self.text("flush_all", None);
                "flush_all"
            }
            2 => {
                self.resp(&["FLUSHALL"]);
                "FLUSHALL"
            }
            _ => {
                self.resp(&["FLUSHDB", "ASYNC"]);
                "FLUSHDB"
            }
        };
        self.world.end(Cause::Flush);
        verb.to_owned()
    }
}
