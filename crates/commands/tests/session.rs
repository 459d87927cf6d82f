//! Sessions over a real store: what goes in, what comes out.

use larder_commands::{Context, Counter, Next, Output, Room, Session, Settings, Shared};
use larder_store::{Config, Store, Worker};
use larder_testkit::host::LocalHost;

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
        let config = Config {
            memory_bytes: 64 << 20,
            memory_bytes_max: 64 << 20,
            workers_max: 1,
            evict: true,
            seed: 1,
        };
        let store = Store::new(config).unwrap();
        Bench {
            worker: store.worker().unwrap(),
            shared: Shared::new(settings),
            host: LocalHost {
                connections: 500,
                settings: vec![("maxbytes", 67_108_864)],
                ..LocalHost::default()
            },
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
                let mut cx = Context {
                    guard,
                    counters,
                    shared: &self.shared,
                    host: &self.host,
                    peer: &self.host,
                    room: &self.room,
                };
                let progress = session.receive(&mut cx, &kept, &mut out);
                kept.drain(..progress.consumed);
                replies.extend_from_slice(&out.to_vec());
                out.clear();
                match progress.next {
                    Next::Receive => break,
                    Next::Flush | Next::Yield | Next::Sleep(_) => {}
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
}

fn bench() -> Bench {
    Bench::new(Settings::default())
}

/// Each pair: what is sent, what comes back.
fn talk(bench: &mut Bench, pairs: &[(&str, &str)]) {
    for (sent, expected) in pairs {
        assert_eq!(bench.ask(sent), *expected, "{sent:?}");
    }
}

const BAD: &str = "CLIENT_ERROR bad command line format\r\n";

#[test]
fn values_come_back_as_stored() {
    talk(
        &mut bench(),
        &[
            ("get a\r\n", "END\r\n"),
            ("set a 0 0 5\r\nhello\r\n", "STORED\r\n"),
            ("set b 7 0 0\r\n\r\n", "STORED\r\n"),
            ("get a\r\n", "VALUE a 0 5\r\nhello\r\nEND\r\n"),
            (
                "get a x b a  \r\n",
                "VALUE a 0 5\r\nhello\r\nVALUE b 7 0\r\n\r\nVALUE a 0 5\r\nhello\r\nEND\r\n",
            ),
            ("get a\nget b\n", "VALUE a 0 5\r\nhello\r\nEND\r\nVALUE b 7 0\r\n\r\nEND\r\n"),
            ("set c 0 0 1 noreply\r\nx\r\nget c\r\n", "VALUE c 0 1\r\nx\r\nEND\r\n"),
            ("add a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("add n 0 0 1\r\nx\r\n", "STORED\r\n"),
            ("replace z 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("replace n 0 0 1\r\ny\r\n", "STORED\r\n"),
            (
                "append n 5 9 2\r\n12\r\nprepend n 0 0 1\r\n0\r\nget n\r\n",
                "STORED\r\nSTORED\r\nVALUE n 0 4\r\n0y12\r\nEND\r\n",
            ),
            ("append zz 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("delete n\r\ndelete n\r\n", "DELETED\r\nNOT_FOUND\r\n"),
            ("touch a 100\r\ntouch z 1\r\n", "TOUCHED\r\nNOT_FOUND\r\n"),
            ("gat 0 a z\r\n", "VALUE a 0 5\r\nhello\r\nEND\r\n"),
        ],
    );
}

#[test]
fn cas_stores_only_over_the_version_that_was_seen() {
    let mut bench = bench();
    talk(&mut bench, &[("set a 0 0 1\r\n1\r\n", "STORED\r\n"), ("cas z 0 0 1 5\r\nx\r\n", "NOT_FOUND\r\n")]);
    let reply = bench.ask("gets a\r\n");
    let token = reply.split_whitespace().nth(4).unwrap().to_string();
    talk(
        &mut bench,
        &[
            (&format!("cas a 0 0 1 {token}\r\n2\r\n"), "STORED\r\n"),
            (&format!("cas a 0 0 1 {token}\r\n3\r\n"), "EXISTS\r\n"),
            ("cas a 0 0 1 0\r\n3\r\n", "EXISTS\r\n"),
            ("get a\r\n", "VALUE a 0 1\r\n2\r\nEND\r\n"),
        ],
    );
    assert_eq!(bench.counted(Counter::CasHits), 1);
    assert_eq!(bench.counted(Counter::CasBadval), 2);
    assert_eq!(bench.counted(Counter::CasMisses), 1);
    assert_eq!(bench.counted(Counter::CmdSet), 5);
}

#[test]
fn without_cas_no_token_matches() {
    let mut bench = Bench::new(Settings { cas: false, ..Settings::default() });
    talk(
        &mut bench,
        &[
            ("set a 0 0 1\r\n1\r\ngets a\r\n", "STORED\r\nVALUE a 0 1 0\r\n1\r\nEND\r\n"),
            ("cas a 0 0 1 0\r\n2\r\n", "EXISTS\r\n"),
            ("ms a 1 C5\r\n2\r\n", "EX\r\n"),
        ],
    );
}

#[test]
fn counters_add_wrap_and_stop_at_zero() {
    let not_a_number = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    talk(
        &mut bench(),
        &[
            ("incr n 1\r\n", "NOT_FOUND\r\n"),
            ("set n 3 0 2\r\n10\r\n", "STORED\r\n"),
            ("decr n 1\r\nget n\r\n", "9\r\nVALUE n 3 2\r\n9 \r\nEND\r\n"),
            ("incr n 1\r\n", "10\r\n"),
            ("decr n 100\r\n", "0\r\n"),
            ("set n 0 0 20\r\n18446744073709551615\r\nincr n 2\r\n", "STORED\r\n1\r\n"),
            ("set n 0 0 3\r\n1 2\r\nincr n 1\r\n", "STORED\r\n2\r\n"),
            ("set n 0 0 1\r\nx\r\nincr n 1\r\n", &format!("STORED\r\n{not_a_number}")),
            ("set n 0 0 0\r\n\r\nincr n 1\r\n", &format!("STORED\r\n{not_a_number}")),
            ("incr n -1\r\n", "CLIENT_ERROR invalid numeric delta argument\r\n"),
        ],
    );
}

#[test]
fn broken_blocks_are_told_and_never_resynchronised() {
    talk(
        &mut bench(),
        &[
            ("set a 0 0 1\r\nxy\r\n", &format!("CLIENT_ERROR bad data chunk\r\n{BAD}")),
            ("set a 0 0 2\r\nx\r\nversion\r\n", "CLIENT_ERROR bad data chunk\r\nERROR\r\n"),
            ("set a 0 x 2\r\nxy\r\nget a\r\n", &format!("{BAD}END\r\n")),
            ("set a 0 x 2 noreply\r\nxy\r\nget a\r\n", "END\r\n"),
            ("set a 0 0 -1\r\nget a\r\n", &format!("{BAD}END\r\n")),
        ],
    );
}

#[test]
fn lines_that_are_no_commands_get_their_error() {
    let mut bench = bench();
    talk(
        &mut bench,
        &[
            ("\r\n", BAD),
            ("mn\n", BAD),
            ("bogus\r\n", "ERROR\r\n"),
            ("GET a\r\n", "ERROR\r\n"),
            ("foo bar noreply\r\n", ""),
            ("verbosity noreply\r\n", ""),
            ("verbosity 1 noreply\r\n", ""),
            ("*1\r\n$4\r\nPING\r\n", "+PONG\r\n"),
            ("slabs reassign 1\r\nslabs\r\nlru\r\nstats foo\r\n", "ERROR\r\nERROR\r\nERROR\r\nERROR\r\n"),
            ("shutdown\r\n", "SERVER_ERROR: shutdown not enabled\r\n"),
            ("debugtime 5\r\n", "ERROR\r\n"),
            ("mn\r\n", "MN\r\n"),
        ],
    );
    for closing in [&b"GET / HTTP/1.1\r\nHost: x\r\n"[..], b"\x80\x00", b"quit\r\nversion\r\n"] {
        let (replies, closed) = bench.run(&mut Session::new(), closing, usize::MAX);
        assert!(closed && replies.is_empty(), "{closing:?}");
    }
    let long = format!("set {}", "x".repeat(2045));
    assert!(bench.run(&mut Session::new(), long.as_bytes(), usize::MAX).1, "2049 bytes");
    assert!(!bench.run(&mut Session::new(), &long.as_bytes()[..2048], usize::MAX).1, "2048 bytes");
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
fn bytes_one_by_one_give_the_same_replies() {
    let input = "set a 0 0 5\r\nhello\r\nget a b a\r\n gets  z\r\nms b 2 T0 k\r\nhi\r\nmg b v t k\r\nincr a 1\r\nbogus\r\n\
                 set n 0 0 1\r\n1\r\nincr n 5\r\nset x 0 0 1\r\nxy\r\nma n v\r\nmn\r\ndelete a\r\ntouch a 1\r\nverbosity 1\r\n";
    let whole = bench().run(&mut Session::new(), input.as_bytes(), usize::MAX);
    for step in 1..9 {
        assert_eq!(bench().run(&mut Session::new(), input.as_bytes(), step), whole, "in steps of {step}");
    }
}

#[test]
fn meta_gets_tell_what_is_asked_in_order() {
    let mut bench = bench();
    talk(
        &mut bench,
        &[
            ("mg a v\r\n", "EN\r\n"),
            ("mg a v q\r\nmn\r\n", "MN\r\n"),
            ("mg a k O123 v\r\n", "EN ka O123\r\n"),
            ("ms a 5 T100 F7\r\nhello\r\n", "HD\r\n"),
            ("mg a\r\n", "HD\r\n"),
            ("mg a v\r\n", "VA 5\r\nhello\r\n"),
            ("mg a s v f k Oabc t\r\n", "VA 5 s5 f7 ka Oabc t100\r\nhello\r\n"),
            ("mg a t T50 t\r\n", "CLIENT_ERROR duplicate flag\r\n"),
            ("mg a t T50\r\n", "HD t100\r\n"),
            ("mg a T60 t\r\n", "HD t60\r\n"),
            ("mg a T0 t\r\n", "HD t-1\r\n"),
            ("mg a x!\r\n", "HD\r\n"),
            ("mg a !\r\n", "CLIENT_ERROR invalid flag\r\n"),
            ("mg a Tx\r\n", "CLIENT_ERROR bad token in command line format\r\n"),
            ("ms h 1\r\nx\r\nmg h h\r\nmg h h u\r\n", "HD\r\nHD h0\r\nHD h1\r\n"),
        ],
    );
    let cas = bench.ask("mg a c\r\n")[4..].trim().to_string();
    talk(&mut bench, &[(&format!("mg a v C{cas}\r\n"), "HD\r\n"), ("mg a v C1\r\n", "VA 5\r\nhello\r\n")]);
}

#[test]
fn stale_items_are_recached_by_one() {
    let mut bench = bench();
    talk(
        &mut bench,
        &[
            ("ms a 1 T100\r\nx\r\n", "HD\r\n"),
            ("md a I T30\r\n", "HD\r\n"),
            ("mg a t v\r\n", "VA 1 t30 X W\r\nx\r\n"),
            ("mg a v\r\n", "VA 1 Z X\r\nx\r\n"),
            ("get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"),
            ("ms a 1 T20\r\ny\r\nmg a v\r\n", "HD\r\nVA 1\r\ny\r\n"),
            ("mg a R30 t\r\n", "HD t20 W\r\n"),
            ("mg a R30\r\n", "HD Z\r\n"),
            ("mg new N30 v t s\r\n", "VA 0 t30 s0 W\r\n\r\n"),
            ("mg new v\r\n", "VA 0 Z\r\n\r\n"),
            ("get new\r\n", "VALUE new 0 0\r\n\r\nEND\r\n"),
            ("md a x\r\nmg a v f\r\n", "HD\r\nVA 0 f0\r\n\r\n"),
            ("md a x I\r\nmg a s\r\n", "HD\r\nHD s0 X W\r\n"),
        ],
    );
    bench.ask("ms c 1 T100\r\nx\r\n");
    talk(
        &mut bench,
        &[
            ("ms c 1 I C1 T5\r\ny\r\nmg c v t\r\n", "HD\r\nVA 1 t100 X W\r\ny\r\n"),
            ("ms c 1 I C9223372036854775807\r\nz\r\n", "EX\r\n"),
            ("ms c 1 C1 c k\r\nz\r\n", "EX c0 kc\r\n"),
            ("ms none 1 C1\r\nz\r\n", "NF\r\n"),
        ],
    );
}

#[test]
fn meta_modes_and_arithmetic() {
    talk(
        &mut bench(),
        &[
            ("ms a 1 ME\r\nx\r\nms a 1 ME\r\nx\r\n", "HD\r\nNS\r\n"),
            ("ms a 2 MA s\r\nyz\r\nmg a v\r\n", "HD s3\r\nVA 3\r\nxyz\r\n"),
            ("ms n 2 MA\r\nyz\r\nms n 2 MP N0\r\nyz\r\n", "NS\r\nHD\r\n"),
            ("ms r 1 MR\r\nx\r\nms a 1 MReplace q\r\nx\r\nmn\r\n", "NS\r\nMN\r\n"),
            ("ms a 1 MX\r\nx\r\nmn\r\n", "CLIENT_ERROR invalid mode for ms M token\r\nMN\r\n"),
            ("ms a 1 Fx\r\nx\r\nmn\r\n", &format!("{BAD}MN\r\n")),
            ("ma c\r\nma c q k\r\n", "NF\r\nNF kc\r\n"),
            (
                "ma c N0 J13 v\r\nma c v\r\nma c MD D4 v t\r\n",
                "VA 2\r\n13\r\nVA 2\r\n14\r\nVA 2 t-1\r\n10\r\n",
            ),
            ("ma c q\r\nma c M-\r\nma c MX\r\n", "HD\r\nCLIENT_ERROR invalid mode for ma M token\r\n"),
            ("ma c Dx\r\nma c v v\r\n", &"CLIENT_ERROR invalid or duplicate flag\r\n".repeat(2)),
            ("md a q\r\nmd a q\r\nmd a C1\r\n", "NF\r\nNF\r\n"),
            (
                "ms Zm9v 1 b k\r\nx\r\nget foo\r\nmg foo k v\r\n",
                "HD kZm9v b\r\nVALUE foo 0 1\r\nx\r\nEND\r\nVA 1 kZm9v b\r\nx\r\n",
            ),
            (
                "mg Zm9v= b v\r\nms Zm9v= 1 b\r\nx\r\nmn\r\n",
                "CLIENT_ERROR error decoding key\r\nCLIENT_ERROR error decoding key\r\nMN\r\n",
            ),
        ],
    );
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
                "debugtime 4\r\nset e 0 0 1\r\nx\r\ndebugtime 1\r\nget d e\r\n",
                "OK\r\nSTORED\r\nOK\r\nEND\r\n",
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

#[test]
fn dumps_are_made_in_pieces_and_name_every_key() {
    let mut bench = bench();
    let sets: String = (0..2000).map(|n| format!("set key{n} 0 0 1 noreply\r\nx\r\n")).collect();
    bench.ask(&sets);
    bench.ask("ms Zm9v 1 b\r\nx\r\n");
    bench.limit = 500;
    let dump = bench.ask("lru_crawler metadump all\r\nmn\r\n");
    assert!(dump.starts_with("OK\r\nkey=") && dump.ends_with(" \nEND\r\nMN\r\n"));
    assert_eq!(dump.lines().filter(|line| line.starts_with("key=")).count(), 2001);
    let dump = bench.ask("lru_crawler mgdump hash\r\n");
    assert!(dump.ends_with("EN\r\n"));
    assert!(dump.contains("mg Zm9v b\r\n"));
    assert_eq!(dump.lines().filter(|line| line.starts_with("mg ")).count(), 2001);
    let conns = bench.ask("stats conns\r\n");
    assert_eq!(conns.matches(":addr ").count(), 500);
    assert!(conns.ends_with("END\r\n"));
}

#[test]
fn stats_have_memcacheds_lines() {
    let mut bench = bench();
    bench.ask("set a 0 0 1\r\nx\r\nget a b\r\n");
    let stats = bench.ask("stats\r\n");
    assert_eq!(stats.lines().count(), 94);
    for line in ["STAT cmd_get 2", "STAT get_hits 1", "STAT cmd_set 1", "STAT curr_items 1", "END"] {
        assert!(stats.lines().any(|found| found == line), "{line} in {stats}");
    }
    assert!(bench.ask("stats slabs\r\n").contains(":total_pages 1\r\n"));
    assert!(bench.ask("stats items\r\n").contains(":number 1\r\n"));
    talk(
        &mut bench,
        &[
            ("stats settings\r\n", "STAT maxbytes 67108864\r\nEND\r\n"),
            ("stats sizes\r\n", "STAT sizes_status disabled\r\nEND\r\n"),
            (
                "stats detail on\r\nset p:a 0 0 1\r\nx\r\nget p:a p:b\r\ndelete p:z\r\nstats detail dump\r\n",
                "OK\r\nSTORED\r\nVALUE p:a 0 1\r\nx\r\nEND\r\nNOT_FOUND\r\nPREFIX p get 2 hit 1 set 1 del 1\r\nEND\r\n",
            ),
            ("stats detail x\r\n", "CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
            (
                "stats cachedump 99 1\r\nstats cachedump 1\r\n",
                "CLIENT_ERROR Illegal slab id\r\nCLIENT_ERROR bad command line\r\n",
            ),
            ("stats reset\r\n", "RESET\r\n"),
        ],
    );
    assert!(bench.ask("stats\r\n").contains("STAT cmd_get 0\r\n"));
}

#[test]
fn a_large_value_goes_to_nobody_when_connections_hold_their_share() {
    const NO_MEMORY: &str = "SERVER_ERROR out of memory writing get response\r\n";
    let mut bench = bench();
    let value = "v".repeat(100_000);
    let large = format!("VALUE l 0 100000\r\n{value}\r\n");
    assert_eq!(
        bench.ask(&format!("set l 0 0 100000\r\n{value}\r\nset s 0 0 1\r\nx\r\n")),
        "STORED\r\nSTORED\r\n"
    );
    let store = std::sync::Arc::clone(bench.worker.store());
    let full = store.held_bytes_max() as i64;
    store.hold(full);
    let small = "VALUE s 0 1\r\nx\r\n";
    talk(
        &mut bench,
        &[
            ("get l\r\nmn\r\n", &format!("{NO_MEMORY}MN\r\n")),
            ("get s\r\n", &format!("{small}END\r\n")),
            ("get s l s\r\nget s\r\n", &format!("{NO_MEMORY}{small}END\r\n")),
            ("get l s  \r\nget s s\r\n", &format!("{NO_MEMORY}{small}{small}END\r\n")),
            ("gets s s l\r\ngat 0 s l s\r\nmn\r\n", &format!("{NO_MEMORY}{NO_MEMORY}MN\r\n")),
            ("mg l v\r\nmg l\r\nmg l v k q\r\n", &format!("{NO_MEMORY}HD\r\n{NO_MEMORY}")),
            // More keys than are read ahead at once.
            (
                &format!("get{} l{}\r\nmn\r\n", " s".repeat(40), " s".repeat(100)),
                &format!("{NO_MEMORY}MN\r\n"),
            ),
        ],
    );
    let long = format!("get{} l{}\r\nmn\r\n", " s".repeat(19_000), " l".repeat(9000));
    let replies = String::from_utf8(bench.run(&mut Session::new(), long.as_bytes(), 4096).0).unwrap();
    assert!(replies.ends_with(&format!("{small}{NO_MEMORY}MN\r\n")));
    assert!(!replies.contains("END"));
    store.hold(-full);
    assert_eq!(bench.ask("get l s\r\n"), format!("{large}{small}END\r\n"));
}

/// A figure of `stats <of>`.
fn figure(bench: &mut Bench, of: &str, name: &str) -> u64 {
    let lines = bench.ask(&format!("stats {of}\r\n"));
    let line = lines.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

#[test]
fn a_page_that_is_moved_leaves_its_items_where_there_is_room() {
    const ITEMS: u64 = 20_000;
    let mut bench = bench();
    for n in 0..ITEMS {
        assert_eq!(bench.ask(&format!("set key:{n:06} 0 0 200\r\n{n:0200}\r\n")), "STORED\r\n");
    }
    let pages = figure(&mut bench, "slabs", "5:total_pages");
    let [used, free, total] =
        ["used", "free", "total"].map(|name| figure(&mut bench, "slabs", &format!("5:{name}_chunks")));
    assert_eq!((used, used + free), (ITEMS, total));
    assert_eq!(figure(&mut bench, "items", "items:5:number"), ITEMS);
    // Header 8, key 10, value 200.
    assert_eq!(figure(&mut bench, "items", "items:5:mem_requested"), ITEMS * 218);
    talk(&mut bench, &[("slabs reassign 5 9\r\nslabs reassign 5 0\r\n", "OK\r\nOK\r\n")]);
    assert_eq!(figure(&mut bench, "slabs", "9:total_pages"), 1);
    assert!(figure(&mut bench, "", "slabs_moved") >= 32);
    for n in 0..ITEMS {
        let expected = format!("VALUE key:{n:06} 0 200\r\n{n:0200}\r\nEND\r\n");
        assert_eq!(bench.ask(&format!("get key:{n:06}\r\n")), expected);
    }
    assert!(figure(&mut bench, "slabs", "5:total_pages") <= pages + 1, "what was moved fills new spans");
    assert_eq!(figure(&mut bench, "", "evictions"), 0);
}

#[test]
fn slab_classes_are_shown_as_they_were_asked_for() {
    let mut bench = Bench::new(Settings {
        slab_sizes: larder_commands::slabs::slab_sizes(2.0, 8, 512 << 10),
        ..Settings::default()
    });
    bench.ask(&format!(
        "set k 0 0 100\r\n{}\r\nset l 0 0 100000\r\n{}\r\n",
        "v".repeat(100),
        "l".repeat(100_000)
    ));
    // 56, 112, 224 … : 8 + 1 + 100 bytes are in the second; pieces of 16 KiB in the ninth.
    assert_eq!(figure(&mut bench, "slabs", "2:chunk_size"), 112);
    assert_eq!(figure(&mut bench, "items", "items:2:number"), 1);
    assert_eq!(figure(&mut bench, "items", "items:10:number"), 1);
    assert_eq!(figure(&mut bench, "slabs", "10:used_chunks"), 6, "pieces count as chunks");
    assert!(bench.ask("me l\r\n").contains(" cls=10 "));
}

#[test]
fn a_line_that_is_read_twice_is_counted_once() {
    let mut bench = bench();
    bench.ask("set a 0 0 1\r\nx\r\nset b 0 0 1\r\ny\r\n");
    // Warm items, then a line that turns out to be unusual behind keys that were answered already.
    let keys = "a none b ".repeat(20);
    for _ in 0..4 {
        bench.ask("get a\r\nget b\r\n");
    }
    let before = (bench.counted(Counter::GetHits), bench.counted(Counter::GetMisses));
    let reply = bench.ask(&format!("get {keys} a\r\n"));
    assert_eq!(reply.matches("VALUE").count(), 41);
    assert_eq!(bench.counted(Counter::GetHits) - before.0, 41);
    assert_eq!(bench.counted(Counter::GetMisses) - before.1, 20);
    let hits = format!("STAT 1:get_hits {}\r\n", bench.counted(Counter::GetHits));
    assert!(bench.ask("stats slabs\r\n").contains(&hits));
}
