//! Variables of libraries: whatever else a worker does, what functions keep from one call to the next stays.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::Bench;
use crate::compiled::said;
use crate::survey::command;
use larder_commands::{Next, Pace, Session, Settings};
use larder_script::sha1_hex;

/// A library that counts its calls.
const COUNTS: &str = "#!lua name=l\nlocal n = 0 \
    redis.register_function('count', function() n = n + 1 return n end) \
    redis.register_function('loop', function() n = n + 1 while true do end end)";
const ENDLESS: &str = "while true do end";
/// Writes, and has a reply of some million tables.
const WRITES: &str = "redis.call('INCR', KEYS[1]) \
    local t = {} for i = 1, 14 do t = {t, t, t} end return t";

/// A server of so many MiB, an eighth of which a state may take. Each look at a script is a turn.
fn bench(mebibytes: u64) -> Bench {
    let mut bench = Bench::of(Settings::default(), mebibytes << 20);
    bench.host.script_pace = Some(Pace::Look(Duration::from_millis(1)));
    assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", COUNTS]), "$1\r\nl\r\n");
    bench
}

/// The library has counted so many calls, with this one.
fn counts(bench: &mut Bench, n: u32) {
    assert_eq!(said(bench, &["FCALL", "count", "0"]), format!(":{n}\r\n"));
}

/// What a client asks goes on in later turns.
fn goes_on(bench: &mut Bench, client: &mut Session, words: &[&str]) {
    assert_eq!(bench.turn(client, &command(words)), (Next::Yield, Vec::new()), "{words:?}");
}

/// A client queues a command for EXEC.
fn queues(bench: &mut Bench, client: &mut Session, words: &[&str]) {
    for (sent, reply) in [(&["MULTI"][..], "+OK\r\n"), (words, "+QUEUED\r\n")] {
        assert_eq!(bench.turn(client, &command(sent)).1, reply.as_bytes(), "{sent:?}");
    }
}

/// What EXEC of one command replies.
fn executes(bench: &mut Bench, words: &[&str]) -> String {
    let mut client = Session::new();
    queues(bench, &mut client, words);
    let (reply, _) = bench.run(&mut client, &command(&["EXEC"]), usize::MAX);
    String::from_utf8(reply).expect("text")
}

/// A client's next turn ends what it has asked.
fn ends(bench: &mut Bench, client: &mut Session) -> String {
    String::from_utf8(bench.turn(client, b"").1).expect("text")
}

/// XADD keeps room for fields with the worker, too.
#[test]
fn they_stay_beside_what_streams_keep() {
    let mut bench = bench(32);
    counts(&mut bench, 1);
    assert_eq!(said(&mut bench, &["XADD", "s", "1-1", "f", "v"]), "$3\r\n1-1\r\n");
    counts(&mut bench, 2);
    let adds = "return redis.call('XADD', KEYS[1], '1-2', 'f', 'v')";
    assert_eq!(said(&mut bench, &["EVAL", adds, "1", "s"]), "$3\r\n1-2\r\n");
    counts(&mut bench, 3);
    // Nor is a script forgotten that goes on: what keeps something waits for it.
    let (mut long, mut waits) = (Session::new(), Session::new());
    goes_on(&mut bench, &mut long, &["EVAL", ENDLESS, "0"]);
    assert_eq!(said(&mut bench, &["XADD", "s", "1-3", "f", "v"]), "$3\r\n1-3\r\n");
    goes_on(&mut bench, &mut waits, &["FCALL", "count", "0"]);
    assert_eq!(said(&mut bench, &["SCRIPT", "KILL"]), "+OK\r\n");
    assert!(ends(&mut bench, &mut long).contains("killed by user"));
    assert_eq!(ends(&mut bench, &mut waits), ":4\r\n");
}

/// A script that is ended with its client has its worker's state, which others find as if it had been killed.
#[test]
fn they_stay_when_a_client_goes_amid_its_script() {
    let requests: [&[&str]; 8] = [
        &["EVAL", ENDLESS, "0"],
        &["EVAL", "while true do pcall(function() while true do end end) end", "0"],
        &["EVAL", "while true do coroutine.wrap(function() while true do end end)() end", "0"],
        &["EVAL", "local s = string.rep('x', 100000) while true do s:gsub('x', 'y') end", "0"],
        &["EVAL", "while true do redis.call('GET', KEYS[1]) end", "1", "k"],
        &["EVAL", "while true do collectgarbage() end", "0"],
        // Its reply is what it is at.
        &["EVAL", WRITES, "1", "w"],
        &["FCALL", "loop", "0"],
    ];
    for turns in 0..3 {
        for request in requests {
            // Nothing is there that another script has left: how much that is says the machine's clock, and a state of which
            // half is taken is collected before a function begins.
            let mut bench = bench(32);
            counts(&mut bench, 1);
            let mut client = Session::new();
            goes_on(&mut bench, &mut client, request);
            for _ in 0..turns {
                assert_eq!(bench.turn(&mut client, b""), (Next::Yield, Vec::new()), "{request:?}");
            }
            drop(client);
            let none = "-NOTBUSY No scripts in execution right now.\r\n";
            assert_eq!(said(&mut bench, &["SCRIPT", "KILL"]), none, "{request:?}");
            assert_eq!(said(&mut bench, &["EVAL", "return 5", "0"]), ":5\r\n", "{request:?}");
            // What it had done by then is done.
            counts(&mut bench, 2 + u32::from(request[0] == "FCALL"));
            let written = if request[1] == WRITES { "$1\r\n1\r\n" } else { "$-1\r\n" };
            assert_eq!(said(&mut bench, &["GET", "w"]), written, "{request:?}");
        }
    }
}

/// What came on a second state meanwhile goes with that, and what waited finds the first.
#[test]
fn what_waits_for_a_script_finds_them_when_its_client_goes() {
    let mut bench = bench(32);
    counts(&mut bench, 1);
    let (mut long, mut waits) = (Session::new(), Session::new());
    goes_on(&mut bench, &mut long, &["EVAL", ENDLESS, "0"]);
    goes_on(&mut bench, &mut waits, &["FCALL", "count", "0"]);
    let exec = [command(&["MULTI"]), command(&["FCALL", "count", "0"]), command(&["EXEC"])].concat();
    let (replies, _) = bench.run(&mut Session::new(), &exec, usize::MAX);
    assert_eq!(String::from_utf8_lossy(&replies), "+OK\r\n+QUEUED\r\n*1\r\n:1\r\n");
    assert_eq!(bench.turn(&mut waits, b""), (Next::Sleep(2), Vec::new()));
    drop(long);
    assert_eq!(ends(&mut bench, &mut waits), ":2\r\n");
    counts(&mut bench, 3);
    // A library that is forgotten meanwhile goes all the same.
    let mut long = Session::new();
    goes_on(&mut bench, &mut long, &["EVAL", ENDLESS, "0"]);
    assert_eq!(said(&mut bench, &["FUNCTION", "FLUSH"]), "+OK\r\n");
    assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", COUNTS]), "$1\r\nl\r\n");
    drop(long);
    counts(&mut bench, 1);
}

/// Where the state is only collected for what a client has asked for, that has not begun when the client goes.
#[test]
fn they_stay_when_a_client_goes_amid_a_collection() {
    let mut bench = bench(64);
    let fills = "local t = {} for i = 1, 1e9 do t[i] = {i} end";
    let requests: [&[&str]; 3] =
        [&["EVAL", "return 5", "0"], &["SCRIPT", "LOAD", "return 6"], &["FCALL", "count", "0"]];
    let mut n = 0;
    for turns in [0, 1, 10] {
        for request in requests {
            n += 1;
            counts(&mut bench, n);
            assert!(said(&mut bench, &["EVAL", fills, "0"]).contains("not enough memory"));
            let mut client = Session::new();
            goes_on(&mut bench, &mut client, request);
            for _ in 0..turns {
                assert_eq!(bench.turn(&mut client, b""), (Next::Yield, Vec::new()), "{request:?}");
            }
            drop(client);
        }
    }
    counts(&mut bench, n + 1);
    let sha1 = sha1_hex(b"return 6");
    assert_eq!(said(&mut bench, &["SCRIPT", "EXISTS", &sha1]), "*1\r\n:0\r\n");
}

/// What a script has in use that goes with its client is out of use: nothing fails by it.
#[test]
fn they_leave_room_when_clients_go_amid_scripts_that_take_much() {
    let mut bench = bench(32);
    // Of four mebibytes two, which grow by doubling.
    let takes = "local t = {} for i = 1, 120000 do t[i] = i end";
    let (stays, replies) = (format!("{takes} while true do end"), format!("{takes} return #t"));
    counts(&mut bench, 1);
    let before = bench.worker.store().heap_bytes();
    for n in 2..=6 {
        let mut client = Session::new();
        goes_on(&mut bench, &mut client, &["EVAL", &stays, "0"]);
        // How far it comes in a turn is not said.
        for _ in 0..10_000 {
            if bench.worker.store().heap_bytes() > before + (2 << 20) {
                break;
            }
            assert_eq!(bench.turn(&mut client, b""), (Next::Yield, Vec::new()));
        }
        assert!(bench.worker.store().heap_bytes() > before + (2 << 20));
        drop(client);
        assert_eq!(said(&mut bench, &["EVAL", &replies, "0"]), ":120000\r\n");
        counts(&mut bench, n);
    }
}

/// Of a state of eight mebibytes all, and three: half of the way to where any run would begin by collecting it, and more.
const FILLS: &str = "local t = {} for i = 1, 1e9 do t[i] = {i} end";
const TAKES_HALF: &str = "local a, b = {}, {} \
    for i = 1, 120000 do a[i] = i end for i = 1, 60000 do b[i] = i end return #a";

/// One script of EXEC would else collect the state in one step, while others wait for all keys.
#[test]
fn exec_has_what_others_left_collected_in_turns_before_it_takes_its_keys() {
    let mut bench = bench(64);
    let mut n = 0;
    for (leaves, is_killed) in [(FILLS, false), (TAKES_HALF, false), (FILLS, true)] {
        for (words, counts_too) in
            [(&["FCALL", "count", "0"][..], true), (&["EVAL", "return 5", "0"][..], false)]
        {
            n += 1;
            counts(&mut bench, n);
            let left = said(&mut bench, &["EVAL", leaves, "0"]);
            assert_eq!(left == ":120000\r\n", leaves == TAKES_HALF, "{left}");
            if leaves == TAKES_HALF {
                // Others begin at once: a look may be a turn more.
                n += 1;
                let mut other = Session::new();
                let first = bench.turn(&mut other, &command(&["FCALL", "count", "0"])).1;
                let reply = if first.is_empty() { bench.turn(&mut other, b"").1 } else { first };
                assert_eq!(String::from_utf8_lossy(&reply), format!(":{n}\r\n"));
            }
            let mut client = Session::new();
            queues(&mut bench, &mut client, words);
            goes_on(&mut bench, &mut client, &["EXEC"]);
            // It begins in the turn behind the kill, or the next, as the machine's clock says.
            for turn in 1..=if is_killed { 3 } else { 5 } {
                assert_eq!(bench.turn(&mut client, b""), (Next::Yield, Vec::new()), "{words:?}");
                // It is carried out also if its client goes, and others are served meanwhile.
                assert!(client.must_end());
                assert_eq!(said(&mut bench, &["SET", "k", "v"]), "+OK\r\n");
                if is_killed && turn == 3 {
                    // What it collects for has not begun, and begins all the same.
                    assert_eq!(said(&mut bench, &["SCRIPT", "KILL"]), "+OK\r\n");
                }
            }
            let mut reply = Vec::new();
            while reply.is_empty() {
                reply = bench.turn(&mut client, b"").1;
            }
            n += u32::from(counts_too);
            let result = if counts_too { n } else { 5 };
            assert_eq!(String::from_utf8_lossy(&reply), format!("*1\r\n:{result}\r\n"), "{words:?}");
            assert!(!client.must_end());
        }
    }
    // Where little is left it begins at once.
    let mut client = Session::new();
    queues(&mut bench, &mut client, &["FCALL", "count", "0"]);
    let reply = bench.turn(&mut client, &command(&["EXEC"])).1;
    assert_eq!(String::from_utf8_lossy(&reply), format!("*1\r\n:{}\r\n", n + 1));
}

/// Else it would count on a second state. It waits for a second at most: that client may take no replies.
#[test]
fn exec_waits_for_a_collection_that_another_client_has_begun() {
    for (waited_us, in_exec) in [(0, false), (0, true), (999_999, true), (1_000_000, true)] {
        let mut bench = bench(64);
        counts(&mut bench, 1);
        assert!(said(&mut bench, &["EVAL", FILLS, "0"]).contains("not enough memory"));
        let (mut collects, mut execs) = (Session::new(), Session::new());
        let eval = ["EVAL", "return 5", "0"];
        if in_exec {
            queues(&mut bench, &mut collects, &eval);
        }
        // There is no room for what it would compile.
        let asks: &[&str] = if in_exec { &["EXEC"] } else { &eval };
        goes_on(&mut bench, &mut collects, asks);
        queues(&mut bench, &mut execs, &["FCALL", "count", "0"]);
        goes_on(&mut bench, &mut execs, &["EXEC"]);
        bench.host.clock_us.fetch_add(waited_us, Relaxed);
        if waited_us < 1_000_000 {
            assert_eq!(bench.turn(&mut execs, b""), (Next::Await(Some(2)), Vec::new()));
        } else {
            assert_eq!(ends(&mut bench, &mut execs), "*1\r\n:1\r\n");
        }
        let mut reply = Vec::new();
        while reply.is_empty() {
            reply = bench.turn(&mut collects, b"").1;
        }
        assert!(reply.ends_with(b":5\r\n"));
        if waited_us < 1_000_000 {
            assert_eq!(ends(&mut bench, &mut execs), "*1\r\n:2\r\n");
        } else {
            counts(&mut bench, 2);
        }
    }
}

/// One behind the other, of two clients: it waits for a second in all.
#[test]
fn exec_waits_no_longer_where_one_collection_begins_behind_another() {
    let mut bench = bench(64);
    counts(&mut bench, 1);
    let (mut execs, mut others) = (Session::new(), [Session::new(), Session::new()]);
    for (n, collects) in others.iter_mut().enumerate() {
        assert!(said(&mut bench, &["EVAL", FILLS, "0"]).contains("not enough memory"));
        queues(&mut bench, collects, &["EVAL", "return 5", "0"]);
        goes_on(&mut bench, collects, &["EXEC"]);
        if n == 0 {
            queues(&mut bench, &mut execs, &["FCALL", "count", "0"]);
            goes_on(&mut bench, &mut execs, &["EXEC"]);
            bench.host.clock_us.fetch_add(600_000, Relaxed);
        }
        assert_eq!(bench.turn(&mut execs, b""), (Next::Await(Some(2)), Vec::new()), "{n}");
        let mut reply = Vec::new();
        while n == 0 && reply.is_empty() {
            reply = bench.turn(collects, b"").1;
        }
    }
    bench.host.clock_us.fetch_add(399_999, Relaxed);
    assert_eq!(bench.turn(&mut execs, b""), (Next::Await(Some(2)), Vec::new()));
    bench.host.clock_us.fetch_add(1, Relaxed);
    // On a second state.
    assert_eq!(ends(&mut bench, &mut execs), "*1\r\n:1\r\n");
}

/// What has begun to wait before a pause changes nothing amid it.
#[test]
fn what_waited_for_a_collection_or_a_script_waits_for_a_pause_that_begins_meanwhile() {
    let pause = ["CLIENT", "PAUSE", "100000", "WRITE"];
    let mut bench = bench(64);
    counts(&mut bench, 1);
    assert!(said(&mut bench, &["EVAL", FILLS, "0"]).contains("not enough memory"));
    let mut execs = Session::new();
    queues(&mut bench, &mut execs, &["FCALL", "count", "0"]);
    goes_on(&mut bench, &mut execs, &["EXEC"]);
    assert!(execs.must_end());
    assert_eq!(said(&mut bench, &pause), "+OK\r\n");
    let mut next = Next::Yield;
    while next == Next::Yield {
        let (then, reply) = bench.turn(&mut execs, b"");
        assert_eq!(reply, b"");
        next = then;
    }
    // If its client goes now, nothing is carried out.
    assert_eq!((next, execs.must_end()), (Next::Sleep(100), false));
    assert_eq!(said(&mut bench, &["CLIENT", "UNPAUSE"]), "+OK\r\n");
    assert_eq!(ends(&mut bench, &mut execs), "*1\r\n:2\r\n");
    // It is behind MULTI no more.
    let (shown, _) = bench.run(&mut execs, &command(&["CLIENT", "INFO"]), usize::MAX);
    assert!(String::from_utf8_lossy(&shown).contains(" multi=-1 "));

    let (mut long, mut waits) = (Session::new(), Session::new());
    goes_on(&mut bench, &mut long, &["EVAL", ENDLESS, "0"]);
    goes_on(&mut bench, &mut waits, &["FCALL", "count", "0"]);
    assert_eq!(said(&mut bench, &pause), "+OK\r\n");
    drop(long);
    assert_eq!(bench.turn(&mut waits, b""), (Next::Sleep(100), Vec::new()));
    assert_eq!(said(&mut bench, &["CLIENT", "UNPAUSE"]), "+OK\r\n");
    assert_eq!(ends(&mut bench, &mut waits), ":3\r\n");
}

/// It has read nothing that is so no more: it is as if it had just begun, and so it is where it only worked.
#[test]
fn a_script_that_was_left_before_a_pause_writes_nothing_amid_it() {
    let mut bench = bench(64);
    let works = "for i = 1, 10000 do end redis.call('INCR', KEYS[1]) return redis.call('GET', KEYS[1])";
    let reads = format!("redis.call('GET', KEYS[1]) {works}");
    for (n, script) in (1..).zip([works, &*reads]) {
        let mut client = Session::new();
        goes_on(&mut bench, &mut client, &["EVAL", script, "1", "n"]);
        assert_eq!(said(&mut bench, &["CLIENT", "PAUSE", "100000", "WRITE"]), "+OK\r\n");
        // It needs no more room for its words than they have.
        let most = bench.worker.store().held_bytes_max() as i64;
        bench.worker.store().hold(most);
        let mut next = Next::Yield;
        while next == Next::Yield {
            let (then, reply) = bench.turn(&mut client, b"");
            assert_eq!(reply, b"", "{script}");
            next = then;
        }
        assert_eq!(next, Next::Sleep(100));
        bench.worker.store().hold(-most);
        for _ in 0..3 {
            assert_eq!(bench.turn(&mut client, b""), (Next::Sleep(100), Vec::new()));
        }
        // Others of the worker go on in later turns meanwhile.
        let mut other = Session::new();
        goes_on(&mut bench, &mut other, &["EVAL_RO", "for i = 1, 10000 do end return 1", "0"]);
        let mut reply = String::new();
        while reply.is_empty() {
            reply = ends(&mut bench, &mut other);
        }
        assert_eq!(reply, ":1\r\n");
        let before = if n == 1 { "$-1\r\n".to_owned() } else { format!("$1\r\n{}\r\n", n - 1) };
        assert_eq!(said(&mut bench, &["GET", "n"]), before);
        assert_eq!(said(&mut bench, &["CLIENT", "UNPAUSE"]), "+OK\r\n");
        let mut reply = String::new();
        while reply.is_empty() {
            reply = ends(&mut bench, &mut client);
        }
        assert_eq!(reply, format!("$1\r\n{n}\r\n"));
    }
    // One whose client goes meanwhile never does.
    let mut client = Session::new();
    goes_on(&mut bench, &mut client, &["EVAL", works, "1", "n"]);
    assert_eq!(said(&mut bench, &["CLIENT", "PAUSE", "100000", "WRITE"]), "+OK\r\n");
    while bench.turn(&mut client, b"").0 == Next::Yield {}
    drop(client);
    assert_eq!(said(&mut bench, &["CLIENT", "UNPAUSE"]), "+OK\r\n");
    assert_eq!(said(&mut bench, &["GET", "n"]), "$1\r\n2\r\n");
    counts(&mut bench, 1);
}

/// To throw away 64 MiB takes up to 45 ms, which no other client waits for.
#[test]
fn a_large_state_is_collected_in_turns_and_a_small_one_made_anew() {
    // An eighth of them is a state's.
    for (mebibytes, texts, is_large) in [(64, 5, false), (256, 20, true)] {
        let mut bench = bench(mebibytes);
        assert_eq!(said(&mut bench, &["EVAL", "return 1", "0"]), ":1\r\n");
        let before = bench.worker.store().heap_bytes();
        let most = before + (1 << 20);
        let leaves =
            format!("local t = {{}} for i = 1, {texts} do t[i] = string.rep('x', 1048576 - i) end return #t");
        assert_eq!(said(&mut bench, &["EVAL", &leaves, "0"]), format!(":{texts}\r\n"));
        let left = bench.worker.store().heap_bytes();
        assert_eq!(left > before + (texts << 20), is_large, "{left} behind {before}");
        let mut client = Session::new();
        let (mut next, mut reply) = bench.turn(&mut client, &command(&["EVAL", "return 7", "0"]));
        assert_eq!(reply.is_empty(), is_large);
        while reply.is_empty() {
            assert_eq!(next, Next::Yield);
            (next, reply) = bench.turn(&mut client, b"");
        }
        assert_eq!(reply, b":7\r\n");
        let left = bench.worker.store().heap_bytes();
        assert!(left <= most, "{left} behind {before}");
    }
}

/// Beside a script that goes on for long EXEC collects nothing either: what is left there goes with its state.
#[test]
fn a_second_state_that_is_to_be_collected_is_made_anew() {
    let mut bench = bench(64);
    counts(&mut bench, 1);
    let mut long = Session::new();
    goes_on(&mut bench, &mut long, &["EVAL", ENDLESS, "0"]);
    for n in 1..=2 {
        assert_eq!(executes(&mut bench, &["FCALL", "count", "0"]), format!("*1\r\n:{n}\r\n"));
    }
    assert!(executes(&mut bench, &["EVAL", FILLS, "0"]).contains("not enough memory"));
    assert_eq!(executes(&mut bench, &["FCALL", "count", "0"]), "*1\r\n:1\r\n");
    drop(long);
    counts(&mut bench, 2);
}
