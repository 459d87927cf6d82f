//! Sessions over a real store: what goes in, what comes out.

mod ahead;
mod apart;
mod binary;
mod blocking;
mod certified;
mod closed;
mod collections;
mod commandlog;
mod compiled;
mod dear;
mod ends;
mod exec;
mod fields;
mod fields_held;
mod figures;
mod forecast;
mod frames;
mod full;
mod full_jobs;
mod geo;
mod held;
mod hyperloglog;
mod later;
mod lines_ruled;
mod lists;
mod long_entries;
mod long_members;
mod long_order;
mod long_scans;
mod long_sorting;
mod longest;
mod meta;
mod moments;
mod named;
mod pairs;
mod payloads;
mod pops;
mod received;
mod restored;
mod revoked;
mod ruled;
mod scripts;
mod scripts_bounds;
mod sent;
mod sent_entries;
mod slices;
mod sorted;
mod sorting;
mod steps;
mod stored;
mod streams;
mod survey;
mod traffic;
mod types;
mod users;
mod values;
mod variables;
mod watch;
mod weight;
mod written;

use larder_commands::{
    Context, Counter, DebugCommand, Next, Output, RedisSettings, Room, Session, Settings, Shared,
};
use larder_store::{Config, Store, Worker};
use larder_testkit::host::LocalHost;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const START: u64 = 1_800_000_000_000;

struct Bench {
    worker: Worker,
    shared: Shared,
    host: LocalHost,
    room: Room,
    system: u64,
    limit: u64,
}

impl Bench {
    fn new(settings: Settings) -> Bench {
        Bench::of(settings, 64 << 20)
    }

    /// A bench with settings of RESP's besides.
    fn with_redis(settings: Settings, redis: RedisSettings) -> Bench {
        let mut bench = Bench::new(Settings::default());
        bench.shared = Shared::new(settings, redis);
        bench
    }

    /// A bench whose clients may use DEBUG.
    fn with_debug(settings: Settings) -> Bench {
        Bench::with_redis(settings, RedisSettings { debug: DebugCommand::Yes, ..RedisSettings::default() })
    }

    fn of(settings: Settings, memory_bytes: u64) -> Bench {
        let config =
            Config { memory_bytes, memory_bytes_max: memory_bytes, workers_max: 1, evict: true, seed: 1 };
        let store = Store::new(config).unwrap();
        let mut bench = Bench::over(store.worker().unwrap(), settings);
        bench.host.connections = 500;
        bench.host.settings = vec![("maxbytes", 67_108_864)];
        bench
    }

    /// A bench over a store that a test has prepared.
    fn over(worker: Worker, settings: Settings) -> Bench {
        Bench {
            worker,
            shared: Shared::new(settings, RedisSettings::default()),
            host: LocalHost::default(),
            room: Room::default(),
            system: START,
            limit: 1 << 20,
        }
    }

    /// Runs `session` over `input` given `step` bytes at a time; the replies, and whether it closed.
    fn run(&mut self, session: &mut Session, input: &[u8], step: usize) -> (Vec<u8>, bool) {
        let mut out = Output::new(self.limit);
        let mut replies = Vec::new();
        let mut kept: Vec<u8> = Vec::new();
        for bytes in input.chunks(step) {
            kept.extend_from_slice(bytes);
            loop {
                let now = self.shared.now(self.system);
                let guard = self.worker.enter(now);
                let counters = &self.host.counters;
                let mut cx = Context::new(guard, counters, &self.shared, &self.host, &self.host, &self.room);
                let progress = session.receive(&mut cx, &kept, &mut out);
                kept.drain(..progress.consumed);
                replies.extend_from_slice(&out.to_vec());
                out.clear();
                match progress.next {
                    Next::Receive => break,
                    Next::Flush | Next::Yield => {}
                    Next::Sleep(ms) => self.system += ms,
                    // Its time passes; a client that waits for ever is left alone.
                    Next::Await(Some(ms)) => {
                        self.system += ms;
                        self.host.clock_us.fetch_add(1000 * ms, Relaxed);
                    }
                    Next::Await(None) => break,
                    Next::Close => return (replies, true),
                }
            }
        }
        assert!(kept.len() <= 4096, "a session keeps little: {}", kept.len());
        (replies, false)
    }

    fn ask(&mut self, input: &str) -> String {
        String::from_utf8(self.run(&mut Session::new(), input.as_bytes(), usize::MAX).0).unwrap()
    }

    fn counted(&self, counter: Counter) -> u64 {
        self.host.counters.value(counter)
    }

    /// Ends with a look at all that is in the store.
    fn check(self) {
        let store = Arc::clone(self.worker.store());
        drop(self);
        store.check();
    }
}

fn bench() -> Bench {
    Bench::with_debug(Settings::default())
}

/// Each pair: what is sent, what comes back.
fn talk(bench: &mut Bench, pairs: &[(&str, &str)]) {
    for (sent, expected) in pairs {
        assert_eq!(bench.ask(sent), *expected, "{sent:?}");
    }
}

const BAD: &str = "CLIENT_ERROR bad command line format\r\n";

/// What a request is answered where framing is strict, in pieces of every length; a store behind it must not have happened.
fn strictly(sent: &str, answered: &str, closes: bool) {
    let settings = || Settings { strict_framing: true, item_bytes_max: 100_000, ..Settings::default() };
    let sent = format!("{sent}set smuggled 0 0 1 noreply\r\nx\r\nmn\r\n");
    let answered = if closes { answered.to_owned() } else { format!("{answered}MN\r\n") };
    let steps = [1, 2, 3, 5, 7, 1000, usize::MAX];
    for step in steps.into_iter().filter(|&step| step > 3 || sent.len() < 1000) {
        let mut bench = Bench::new(settings());
        let (replies, closed) = bench.run(&mut Session::new(), sent.as_bytes(), step);
        let replies = String::from_utf8(replies).expect("text");
        assert_eq!((&replies, closed), (&answered, closes), "in steps of {step}");
        let smuggled = bench.ask("get smuggled\r\n");
        assert_eq!(smuggled == "END\r\n", closes, "{smuggled}");
    }
}

#[test]
fn strict_framing_closes_where_the_end_of_a_request_is_not_sure() {
    const CHUNK: &str = "CLIENT_ERROR bad data chunk\r\n";
    strictly("set a 0 0 1\r\nxy\r\n", CHUNK, true);
    strictly("set a 0 0 3\r\nx\r\n", CHUNK, true);
    strictly("set a 0 0 1\r\nx\n", CHUNK, true);
    strictly("set a 0 0 1 noreply\r\nxy\r\n", "", true);
    strictly("ms a 1\r\nxy\r\n", CHUNK, true);
    // A value that comes in parts.
    strictly(&format!("set a 0 0 70000\r\n{}\r\n", "x".repeat(70_001)), CHUNK, true);
    let append = format!("append a 0 0 70000\r\n{}\r\n", "x".repeat(70_001));
    strictly(&format!("set a 0 0 1 noreply\r\n1\r\n{append}"), CHUNK, true);
    // Lines that are no requests.
    strictly("\r\n", BAD, true);
    strictly("bogus 5\r\n", "ERROR\r\n", true);
    strictly("bogus noreply\r\n", "", true);
    strictly("set a 0 0\r\n", BAD, true);
    strictly("set a 0 0 -1\r\n", BAD, true);
    strictly("incr a\r\n", BAD, true);
    // Blocks of a length that is known.
    strictly("set a 0 x 2\r\nxy\r\n", BAD, false);
    strictly("set a 0 x 2\r\nxyz\r\n", BAD, true);
    let large = "x".repeat(200_000);
    let too_large = "SERVER_ERROR object too large for cache\r\n";
    strictly(&format!("set a 0 0 200000\r\n{large}\r\n"), too_large, false);
    strictly(&format!("set a 0 0 199999\r\n{large}\r\n"), too_large, true);
    strictly(&format!("set a 0 0 200000\r\n{large}\n\r"), too_large, true);
    // What is wrong, and yet of one line.
    strictly("incr a x\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n", false);
    strictly("get a b\r\n", "END\r\n", false);
}

#[test]
fn strict_framing_closes_where_the_end_of_a_login_is_not_sure() {
    const TOO_LONG: &str = "CLIENT_ERROR auth token too long\r\n";
    let settings =
        || Settings { strict_framing: true, password: Some("secret".into()), ..Settings::default() };
    let login = "set k 0 0 14\r\ndefault secret\r\n";
    let (token, unasked) = ("x".repeat(16_385), "CLIENT_ERROR unauthenticated\r\n");
    for (sent, answered, closes) in [
        ("add k 0 0 5\r\n".to_owned(), unasked.to_owned(), true),
        ("version\r\n".to_owned(), unasked.to_owned(), true),
        (
            "set k 0 0 13\r\ndefault secret\r\n".to_owned(),
            "CLIENT_ERROR bad command line termination\r\n".to_owned(),
            true,
        ),
        (format!("set k 0 0 16385\r\n{token}x\r\n"), TOO_LONG.to_owned(), true),
        // It ends where its line says.
        (format!("set k 0 0 16385\r\n{token}\r\n"), format!("{TOO_LONG}STORED\r\nMN\r\n"), false),
    ] {
        for step in [1, 7, 1000, usize::MAX] {
            let mut bench = Bench::new(settings());
            let all = format!("{sent}{login}mn\r\n");
            let (replies, closed) = bench.run(&mut Session::new(), all.as_bytes(), step);
            let replies = String::from_utf8(replies).expect("text");
            assert_eq!((&replies, closed), (&answered, closes), "in steps of {step}");
        }
    }
}

#[test]
fn an_endless_line_of_keys_is_answered_as_it_comes() {
    let mut bench = bench();
    bench.ask("set key000007 0 0 1\r\nx\r\n");
    let keys: String = (0..30_000).map(|n| format!(" key{:06}", n % 10)).collect();
    let line = format!("get{keys}\r\nmn\r\n");
    let expected = format!("{}END\r\nMN\r\n", "VALUE key000007 0 1\r\nx\r\n".repeat(3000));
    for step in [usize::MAX, 65_536, 4096, 1000] {
        let (replies, closed) = bench.run(&mut Session::new(), line.as_bytes(), step);
        assert!(!closed);
        assert!(replies == expected.as_bytes(), "in steps of {step}");
    }
    bench.limit = 100;
    assert!(bench.run(&mut Session::new(), line.as_bytes(), 65_536).0 == expected.as_bytes());
    let spaces = format!("get key000007{}\r\nmn\r\n", " ".repeat(100_000));
    let (replies, _) = bench.run(&mut Session::new(), spaces.as_bytes(), 4000);
    assert_eq!(replies, b"VALUE key000007 0 1\r\nx\r\nEND\r\nMN\r\n");
}

#[test]
fn a_key_too_long_takes_back_its_line() {
    let mut bench = bench();
    bench.ask("set a 0 0 1\r\nx\r\n");
    let long = "k".repeat(251);
    talk(
        &mut bench,
        &[
            (&format!("get {long}\r\nmn\r\n"), &format!("{BAD}MN\r\n")),
            (&format!("get a a {long} a\r\nmn\r\n"), &format!("{BAD}MN\r\n")),
            (&format!("set {long} 0 0 1\r\nx\r\nmn\r\n"), &format!("{BAD}MN\r\n")),
            (&format!("get a\r\nget {long}\r\n"), &format!("VALUE a 0 1\r\nx\r\nEND\r\n{BAD}")),
        ],
    );
}

#[test]
fn values_above_the_limit_are_swallowed() {
    let mut bench = Bench::new(Settings { item_bytes_max: 10_000, ..Settings::default() });
    let largest = 10_000 - 60;
    let set = |verb: &str, bytes: usize, noreply: &str| {
        format!("{verb} k 0 0 {bytes}{noreply}\r\n{}\r\nmn\r\n", "x".repeat(bytes))
    };
    let too_large = "SERVER_ERROR object too large for cache\r\n";
    talk(
        &mut bench,
        &[
            (&set("set", largest - 1, ""), "STORED\r\nMN\r\n"),
            (&set("set", largest, ""), "STORED\r\nMN\r\n"),
            (&set("add", largest + 1, ""), &format!("{too_large}MN\r\n")),
            ("mg k s\r\n", "HD s9940\r\n"),
            ("append k 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            (&set("set", largest + 1, ""), &format!("{too_large}MN\r\n")),
            ("mg k s\r\n", "EN\r\n"),
            (&set("set", largest + 1, " noreply"), "MN\r\n"),
        ],
    );
    let ms = format!("ms k {} q\r\n{}\r\nmn\r\n", largest + 1, "x".repeat(largest + 1));
    assert_eq!(bench.ask(&ms), format!("{too_large}MN\r\n"));
    assert_eq!(bench.counted(Counter::StoreTooLarge), 4);
}

#[test]
fn long_values_arrive_in_any_pieces() {
    let mut bench = bench();
    let value: String = (0..100_000).map(|n| char::from(b'a' + (n % 26) as u8)).collect();
    let input = format!(
        "set k 5 0 100000\r\n{value}\r\nget k\r\nappend k 0 0 100000\r\n{value}\r\nms k2 100000 k s Oq\r\n{value}\r\nadd k 0 0 100000\r\n{value}\r\n\
         append none 0 0 100000\r\n{value}\r\nset bad 0 0 100000\r\n{value}xx\r\nget k k2\r\n"
    );
    let expected = format!(
        "STORED\r\nVALUE k 5 100000\r\n{value}\r\nEND\r\nSTORED\r\nHD kk2 s100000 Oq\r\nNOT_STORED\r\nNOT_STORED\r\n\
         CLIENT_ERROR bad data chunk\r\n{BAD}VALUE k 5 200000\r\n{value}{value}\r\nVALUE k2 0 100000\r\n{value}\r\nEND\r\n"
    );
    for step in [usize::MAX, 65_536, 5000, 333] {
        let (replies, closed) = bench.run(&mut Session::new(), input.as_bytes(), step);
        assert!(!closed);
        assert!(replies == expected.as_bytes(), "in steps of {step}");
    }
}

#[test]
fn time_moves_by_debugtime_and_items_expire() {
    let mut bench = Bench::new(Settings { debugtime: true, ..Settings::default() });
    talk(
        &mut bench,
        &[
            (
                "debugtime p\r\nset a 0 10 1\r\nx\r\nset b 0 -1 1\r\nx\r\nset c 0 2592001 1\r\nx\r\n",
                "OK\r\nSTORED\r\nSTORED\r\nSTORED\r\n",
            ),
            ("get a b c\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"),
            ("debugtime 9\r\nmg a t\r\ndebugtime 1\r\nget a\r\n", "OK\r\nHD t1\r\nOK\r\nEND\r\n"),
            ("set d 0 0 1\r\nx\r\nflush_all 5\r\nget d\r\n", "STORED\r\nOK\r\nVALUE d 0 1\r\nx\r\nEND\r\n"),
            (
                "debugtime 4\r\nset e 0 0 1\r\nx\r\nget d e\r\ndebugtime 1\r\nget d e\r\n",
                "OK\r\nSTORED\r\nVALUE d 0 1\r\nx\r\nVALUE e 0 1\r\nx\r\nEND\r\nOK\r\nEND\r\n",
            ),
            (
                "set f 0 0 1\r\nx\r\nflush_all\r\nset g 0 0 1\r\nx\r\nget f g\r\n",
                "STORED\r\nOK\r\nSTORED\r\nVALUE g 0 1\r\nx\r\nEND\r\n",
            ),
            ("debugtime r\r\n", "OK\r\n"),
        ],
    );
    assert_eq!(bench.counted(Counter::GetExpired), 3);
    assert!(bench.counted(Counter::GetFlushed) >= 1);
}

#[test]
fn a_turn_ends_after_the_requests_it_was_given() {
    let mut bench = Bench::new(Settings { requests_per_event: Some(1), ..Settings::default() });
    assert_eq!(bench.ask(&"set a 0 0 1\r\nx\r\n".repeat(6)), "STORED\r\n".repeat(6));
    assert!(bench.counted(Counter::ConnYields) >= 5);
    let mut free = self::bench();
    free.ask(&"set a 0 0 1\r\nx\r\n".repeat(100));
    assert_eq!(free.counted(Counter::ConnYields), 0);
}
