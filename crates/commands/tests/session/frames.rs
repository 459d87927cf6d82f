//! Frames beside what else happens to a conversation: a pause, memory that does not come, values that are added to in steps,
//! listeners and watchers, replies that wait.

use larder_commands::{Next, Session, Settings};
use larder_store::{Config, Store};

use crate::binary::{NOOP, frame, frame_cas, get, guarded, lines, number, plain, replies, set, told};
use crate::slices::{LARGE, bulk, bytes};
use crate::steps::large_items;
use crate::survey::command;
use crate::{Bench, slices, watch};

/// Calls a session until it waits: for what, what it replied, and what it left of the input.
fn until_it_waits<'i>(
    bench: &mut Bench,
    session: &mut Session,
    mut input: &'i [u8],
) -> (Next, Vec<String>, &'i [u8]) {
    let mut replies = Vec::new();
    loop {
        let (next, more, consumed) = bench.call(session, input);
        replies.extend(more);
        input = &input[consumed..];
        if !matches!(next, Next::Yield | Next::Flush) {
            return (next, lines(&replies), input);
        }
    }
}

const PAUSE_MS: u64 = 10_000;

/// Holds up what clients ask for, all of it or writes.
fn pause(bench: &mut Bench, kind: &str) {
    let pause = command(&["CLIENT", "PAUSE", &PAUSE_MS.to_string(), kind]);
    assert_eq!(bench.turns(&mut Session::new(), &pause).0, b"+OK\r\n");
}

#[test]
fn a_pause_holds_frames_up_as_it_does_lines() {
    for kind in ["WRITE", "ALL"] {
        let mut bench = crate::bench();
        assert_eq!(told(&mut bench, &mut Session::new(), &set(0x01, "k", b"v")), ["01 0*"]);
        pause(&mut bench, kind);
        for read in [get(0x00, "k"), get(0x0d, "k"), get(NOOP, "")] {
            let (next, said, left) = until_it_waits(&mut bench, &mut Session::new(), &read);
            if kind == "WRITE" {
                assert_eq!((next, said.len(), left.len()), (Next::Receive, 1, 0));
            } else {
                assert!(matches!(next, Next::Sleep(_)) && said.is_empty() && left == read);
            }
        }
        for write in [
            set(0x01, "k", b"w"),
            set(0x12, "k", b"w"),
            frame(0x0e, b"", "k", b"w"),
            get(0x04, "k"),
            number(0x05, "n", 1, 1, 0),
            frame(0x1c, &[0; 4], "k", b""),
            frame(0x1d, &[0; 4], "k", b""),
            get(0x08, ""),
        ] {
            let (next, said, left) = until_it_waits(&mut bench, &mut Session::new(), &write);
            let waits = matches!(next, Next::Sleep(_)) && said.is_empty() && left == write;
            assert!(waits, "{kind}, {:02x}: {next:?} {said:?}", write[1]);
        }
        if kind == "WRITE" {
            // A read in front of a write, and a write of which the key or the value is missing.
            let both = [get(0x00, "k"), get(0x04, "k")].concat();
            let (next, said, left) = until_it_waits(&mut bench, &mut Session::new(), &both);
            assert!(matches!(next, Next::Sleep(_)) && left == get(0x04, "k"), "{next:?}");
            assert_eq!(said, ["00 0 7 v*"]);
            for bytes in [1, 10, 23, 24, 25, 26] {
                let part = &get(0x04, "key")[..bytes];
                let (next, said, left) = until_it_waits(&mut bench, &mut Session::new(), part);
                assert_eq!((next, said.len(), left), (Next::Receive, 0, part), "{bytes}");
            }
        }
        bench.system += PAUSE_MS;
        let both = [get(0x00, "k"), get(0x04, "k")].concat();
        assert_eq!(told(&mut bench, &mut Session::new(), &both), ["00 0 7 v*", "04 0"]);
    }
}

#[test]
fn a_value_that_is_on_its_way_is_stored_behind_a_pause_and_what_follows_it_comes_then() {
    let value = [b'v'; 20_000];
    for kind in ["WRITE", "ALL"] {
        // An upload, a value that is gathered, and one that is passed over.
        for long in [set(0x01, "k", &value), frame(0x0e, b"", "k", &value), set(0x02, "k", &value)] {
            let mut bench = crate::bench();
            assert_eq!(told(&mut bench, &mut Session::new(), &set(0x01, "k", b"v")), ["01 0*"]);
            let mut session = Session::new();
            let (first, rest) = long.split_at(10_000);
            let (next, before, left) = until_it_waits(&mut bench, &mut session, first);
            assert_eq!((next, left.len()), (Next::Receive, 0));
            pause(&mut bench, kind);
            let (delete, noop) = (get(0x04, "k"), get(NOOP, ""));
            let behind = [&delete[..], &noop].concat();
            let input = [rest, &behind].concat();
            let (next, said, left) = until_it_waits(&mut bench, &mut session, &input);
            let passed_over = long[1] == 0x02;
            let waits = if passed_over { &behind } else { &input };
            assert!(matches!(next, Next::Sleep(_)) && left == *waits, "{next:?}, {} bytes left", left.len());
            assert_eq!(before.len() + said.len(), usize::from(passed_over), "{before:?} {said:?}");
            bench.system += PAUSE_MS;
            let replies = told(&mut bench, &mut session, waits);
            assert_eq!(replies.len(), 2 + usize::from(!passed_over), "{replies:?}");
            assert_eq!(replies[replies.len() - 2..], ["04 0", "0a 0"]);
        }
    }
}

#[test]
fn a_client_may_say_who_it_is_in_a_pause_and_waits_with_the_others_then() {
    let mut bench = guarded(true);
    let mut known = Session::new();
    assert_eq!(bench.turns(&mut known, &command(&["AUTH", "app", "secret"])).0, b"+OK\r\n");
    assert_eq!(bench.turns(&mut known, &command(&["CLIENT", "PAUSE", "10000", "ALL"])).0, b"+OK\r\n");
    let (login, noop) = (plain(b"\0app\0secret"), get(NOOP, ""));
    let input = [&login[..], &noop].concat();
    let (next, said, left) = until_it_waits(&mut bench, &mut Session::new(), &input);
    assert!(matches!(next, Next::Sleep(_)) && left == noop, "{next:?}");
    assert_eq!(said, ["21 0 Authenticated"]);
    // What a client is refused it is refused at once.
    let write = set(0x01, "k", b"v");
    let (next, said, _) = until_it_waits(&mut bench, &mut Session::new(), &write);
    assert_eq!((next, &said[..]), (Next::Close, &["01 32 Auth failure.".to_owned()][..]));
}

#[test]
fn a_second_wrong_password_is_answered_late_and_what_is_behind_it_waits() {
    let mut bench = guarded(true);
    let wrong = plain(b"\0app\0wrong");
    let right = plain(b"\0app\0secret");
    let behind = [wrong.clone(), right, set(0x01, "k", b"v"), get(0x00, "k"), get(NOOP, "")].concat();
    let input = [wrong, behind.clone()].concat();
    let mut session = Session::new();
    let (next, said, left) = until_it_waits(&mut bench, &mut session, &input);
    assert!(matches!(next, Next::Sleep(_)) && left == behind, "{next:?}");
    assert_eq!(said, ["21 32 Auth failure."]);
    // Asked before its time it waits on.
    let (next, said, same) = until_it_waits(&mut bench, &mut session, left);
    assert!(matches!(next, Next::Sleep(_)) && said.is_empty() && same == left, "{next:?}");
    let expected = ["21 32 Auth failure.", "21 0 Authenticated", "01 0*", "00 0 7 v*", "0a 0"];
    assert_eq!(told(&mut bench, &mut session, left), expected);
}

/// Each line and each frame does the same, so listeners and watchers get the same.
#[test]
fn listeners_and_watchers_are_told_of_frames_as_of_lines() {
    let mut sides = [(); 2].map(|()| {
        let mut bench = crate::bench();
        let mut listens = Session::new();
        bench.turns(&mut listens, &command(&["CONFIG", "SET", "notify-keyspace-events", "EAm"]));
        bench.turns(&mut listens, &command(&["PSUBSCRIBE", "__keyevent@0__:*"]));
        let watches = watch::watcher(&mut bench, "fetchers mutations deletions");
        (bench, listens, watches)
    });
    let long = "v".repeat(100_000);
    let store = |verb: &str, key: &str, value: &str| {
        format!("{verb} {key} 7 0 {}\r\n{value}\r\n", value.len()).into_bytes()
    };
    let exptime = [0; 4];
    for (line, frame) in [
        (b"get k\r\n".to_vec(), get(0x00, "k")),
        (store("set", "k", "hello"), set(0x01, "k", b"hello")),
        (b"get k\r\n".to_vec(), get(0x0c, "k")),
        (store("add", "k", "x"), set(0x02, "k", b"x")),
        (store("add", "a", "x"), set(0x12, "a", b"x")),
        (store("replace", "k", "x"), set(0x03, "k", b"x")),
        (store("replace", "no", "x"), set(0x13, "no", b"x")),
        (store("append", "k", "y"), frame(0x0e, b"", "k", b"y")),
        (store("prepend", "no", "y"), frame(0x1a, b"", "no", b"y")),
        (b"touch k 0\r\n".to_vec(), frame(0x1c, &exptime, "k", b"")),
        (b"gat 0 k\r\n".to_vec(), frame(0x1d, &exptime, "k", b"")),
        (store("set", "n", "1"), set(0x11, "n", b"1")),
        (b"incr n 4\r\n".to_vec(), number(0x05, "n", 4, 0, u32::MAX)),
        (b"decr n 1\r\n".to_vec(), number(0x16, "n", 1, 0, u32::MAX)),
        (store("set", "k", &long), set(0x01, "k", long.as_bytes())),
        (store("append", "k", &long), frame(0x0e, b"", "k", long.as_bytes())),
        (store("add", "k", &long), set(0x02, "k", long.as_bytes())),
        (b"delete k\r\n".to_vec(), get(0x04, "k")),
        (b"delete k\r\n".to_vec(), get(0x14, "k")),
    ] {
        let shown = String::from_utf8_lossy(&line[..line.len().min(30)]).into_owned();
        let mut heard = Vec::new();
        for ((bench, listens, watches), request) in sides.iter_mut().zip([line, frame]) {
            let (_, closed) = bench.run(&mut Session::new(), &request, 4096);
            assert!(!closed, "{shown}");
            let events = bench.turns(listens, &command(&["PING"])).0;
            heard.push((String::from_utf8(events).expect("text"), watch::told(bench, watches)));
        }
        assert_eq!(heard[0], heard[1], "{shown}");
        assert!(!heard[0].1.is_empty() || shown.contains("100000"), "{shown}");
    }
}

#[test]
fn frames_add_to_large_values_in_steps_and_are_answered_in_order() {
    let mut bench = large_items();
    let (exists, noop) = ("0e 2 Data exists for key.", get(NOOP, ""));
    let input = [
        get(0x00, "no"),
        frame(0x0e, b"", "large", b"x"),
        frame(0x1a, b"", "large", b"y"),
        frame(0x0e, b"", "no", b"x"),
        noop.clone(),
    ]
    .concat();
    let (said, count) = slices::turns(&mut bench, &mut Session::new(), &input);
    assert_eq!(lines(&said), ["00 1 Not found", "0e 0*", "0e 5 Not stored.", "0a 0"]);
    assert!(count >= 10, "{count} turns");
    // One that is gathered.
    let gathered = vec![b'g'; 200_000];
    let input = [frame(0x19, b"", "large", &gathered), noop].concat();
    for step in [usize::MAX, 1000, 60_000] {
        let (said, _) = bench.run(&mut Session::new(), &input, step);
        assert_eq!(lines(&said), ["0a 0"], "{step}");
    }
    let value = [b"y", &bytes(LARGE, 0)[..], b"x", &gathered.repeat(3)].concat();
    assert!(slices::get(&mut bench, "large") == bulk(&value));
    // What is there is another by the end, once, often, or gone.
    let mut session = Session::new();
    for (times, most) in [(1, 1), (1000, 100)] {
        slices::set(&mut bench, "large", &bytes(LARGE, 0));
        let (mut next, mut said) = bench.turn(&mut session, &frame(0x0e, b"", "large", b"end"));
        let mut sets = 0;
        while next == Next::Yield {
            if sets < times {
                sets += 1;
                slices::set(&mut bench, "large", &bytes(LARGE, sets as u8));
            }
            let more;
            (next, more) = bench.turn(&mut session, b"");
            said.extend(more);
        }
        assert_eq!(lines(&said), ["0e 0*"]);
        assert!(sets <= most, "{times}: {sets}");
        let value = [&bytes(LARGE, sets as u8)[..], b"end"].concat();
        assert!(slices::get(&mut bench, "large") == bulk(&value));
    }
    assert_eq!(bench.turn(&mut session, &frame(0x0e, b"", "large", b"x")).0, Next::Yield);
    bench.turn(&mut Session::new(), b"delete large\r\n");
    assert_eq!(lines(&bench.turns(&mut session, b"").0), ["0e 5 Not stored."]);
    // With a token: the item's, that of the item before, and one that is another's by the end.
    slices::set(&mut bench, "large", &bytes(LARGE, 0));
    let token = |bench: &mut Bench| -> u64 {
        let told = bench.ask("mg large c\r\n");
        told.trim().trim_start_matches("HD c").parse().expect("a token")
    };
    let add = |token| frame_cas(0x0e, b"", b"large", b"x", token);
    let now = token(&mut bench);
    assert_eq!(lines(&bench.turns(&mut session, &add(now)).0), ["0e 0*"]);
    assert_eq!(lines(&bench.turns(&mut session, &add(now)).0), [exists]);
    let now = token(&mut bench);
    assert_eq!(bench.turn(&mut session, &add(now)).0, Next::Yield);
    slices::set(&mut bench, "large", &bytes(LARGE, 0));
    assert_eq!(lines(&bench.turns(&mut session, b"").0), [exists]);
}

#[test]
fn memory_that_runs_out_in_the_midst_of_a_value_is_said_at_its_end() {
    let memory_bytes = 8 << 20;
    let config =
        Config { memory_bytes, memory_bytes_max: memory_bytes, workers_max: 1, evict: false, seed: 1 };
    let store = Store::new(config).expect("a store");
    let settings = Settings { item_bytes_max: 4 << 20, ..Settings::default() };
    let mut bench = Bench::over(store.worker().expect("a worker"), settings);
    let value = "v".repeat(1000);
    let fill: String = (0..4000)
        .map(|n| format!("set f{n} 0 0 1000 noreply\r\n{value}\r\n"))
        .chain(["mn\r\n".into()])
        .collect();
    assert_eq!(bench.ask(&fill), "MN\r\n");
    let large = vec![b'v'; 4_000_000];
    // A set leaves nothing of what was there, and others leave it.
    for (code, there) in [(0x01, "00 1 Not found"), (0x11, "00 1 Not found"), (0x03, "00 0 7 x*")] {
        let mut session = Session::new();
        assert_eq!(told(&mut bench, &mut session, &set(0x01, "big", b"x")), ["01 0*"]);
        let input = [set(code, "big", &large), get(0x00, "big"), get(NOOP, "")].concat();
        let (said, closed) = bench.run(&mut session, &input, 65_536);
        let refused = format!("{code:02x} 130 Out of memory during read");
        assert_eq!((lines(&said), closed), (vec![refused, there.into(), "0a 0".into()], false));
    }
}

#[test]
fn figures_beyond_the_output_are_told_in_turns() {
    for group in ["conns", "detail dump", "sizes", "items"] {
        let mut bench = Bench::new(Settings { track_sizes: true, detail: true, ..Settings::default() });
        for n in 0..300 {
            let value = vec![b'v'; n * 32];
            bench.run(&mut Session::new(), &set(0x11, &format!("p{n}:k"), &value), usize::MAX);
        }
        let whole = bench.run(&mut Session::new(), &get(0x10, group), usize::MAX);
        bench.limit = 100;
        assert!(bench.run(&mut Session::new(), &get(0x10, group), usize::MAX) == whole, "{group}");
        assert!(replies(&whole.0).last().is_some_and(|end| end.key.is_empty()), "{group}");
    }
}

/// There may be a count for each 32 bytes that an item may have.
#[test]
fn counts_of_sizes_are_told_as_the_output_takes_them() {
    const LIMIT: u64 = 1_000;
    const COUNTS: usize = 1_000;
    let mut bench = Bench::new(Settings { track_sizes: true, ..Settings::default() });
    for n in 0..COUNTS {
        slices::set(&mut bench, &format!("k{n}"), &vec![b'v'; n * 32]);
    }
    bench.limit = LIMIT;
    for (request, row_bytes) in [(b"stats sizes\r\n".to_vec(), 20), (get(0x10, "sizes"), 40)] {
        let mut session = Session::new();
        let (mut most, mut all, mut input) = (0, Vec::new(), &request[..]);
        loop {
            let (next, said, consumed) = bench.call(&mut session, input);
            input = &input[consumed..];
            most = most.max(said.len());
            all.extend(said);
            if next == Next::Receive {
                break;
            }
        }
        assert!(most <= LIMIT as usize + 64 * row_bytes, "{most} bytes in a turn");
        let rows = if request[0] == 0x80 { replies(&all).len() } else { all.split(|&b| b == b'\n').count() };
        assert!(rows > COUNTS / 2, "{rows} rows");
    }
}

/// libmemcached reads a figure into 350 bytes, and spymemcached takes a frame without a key for the last.
#[test]
fn each_figure_has_a_key_and_is_no_longer_than_clients_read() {
    let mut bench = Bench::new(Settings { detail: true, ..Settings::default() });
    let longest = "p".repeat(249);
    for key in [":x", "k:x", &format!("{longest}:")] {
        bench.run(&mut Session::new(), &get(0x09, key), usize::MAX);
    }
    let dump = replies(&bench.run(&mut Session::new(), &get(0x10, "detail dump"), usize::MAX).0);
    let keys: Vec<&[u8]> = dump.iter().map(|reply| &reply.key[..]).collect();
    assert_eq!(keys, [&b":"[..], b"k", longest.as_bytes(), b""]);
    for group in
        ["", "settings", "items", "slabs", "conns", "memory", "doctor", "forecast", "latency", "commands"]
    {
        let figures = replies(&bench.run(&mut Session::new(), &get(0x10, group), usize::MAX).0);
        let (_, figures) = figures.split_last().expect("an end");
        for figure in figures {
            let bytes = figure.key.len() + figure.value.len();
            assert!(!figure.key.is_empty() && bytes <= 349, "{group}: {figure:?}");
        }
    }
}
