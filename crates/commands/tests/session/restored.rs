//! FUNCTION RESTORE of many libraries: in steps, and all or none.

use crate::Bench;
use crate::compiled::said;
use crate::survey::command;
use larder_commands::{Next, Pace, Session, Settings};
use larder_testkit::talk::encode;

/// No turn of a client works longer: a slice, a state that has to be made, and a library.
const TURN_NS_MAX: u64 = 2_000_000;

fn bench() -> Bench {
    Bench::of(Settings::default(), 64 << 20)
}

fn said_by(bench: &mut Bench, client: &mut Session, words: &[&str]) -> Vec<u8> {
    bench.run(client, &command(words), usize::MAX).0
}

/// The payload of so many libraries, none of which is known any more.
fn dumped(bench: &mut Bench, count: usize) -> Vec<u8> {
    for n in 0..count {
        let code = format!("#!lua name=l{n}\nredis.register_function('f{n}', function() return {n} end)");
        assert!(said(bench, &["FUNCTION", "LOAD", &code]).starts_with('$'));
    }
    dumped_and_flushed(bench)
}

/// The payload of all libraries, none of which is known any more.
fn dumped_and_flushed(bench: &mut Bench) -> Vec<u8> {
    let (dump, _) = bench.run(&mut Session::new(), &command(&["FUNCTION", "DUMP"]), usize::MAX);
    let at = dump.iter().position(|byte| *byte == b'\n').expect("a head") + 1;
    assert_eq!(said(bench, &["FUNCTION", "FLUSH"]), "+OK\r\n");
    dump[at..dump.len() - 2].to_vec()
}

fn restoring(payload: &[u8]) -> Vec<u8> {
    encode(&[b"FUNCTION", b"RESTORE", payload])
}

fn known(bench: &mut Bench) -> usize {
    let stats = said(bench, &["FUNCTION", "STATS"]);
    let count = stats.split("libraries_count\r\n:").nth(1).expect("a count");
    count.split('\r').next().and_then(|count| count.parse().ok()).expect("a number")
}

/// No client sees some of them without the others. Beside a library of the worker's they are read in another state.
#[test]
fn many_libraries_become_known_in_steps_and_at_once() {
    for is_beside in [false, true] {
        let mut bench = bench();
        let payload = dumped(&mut bench, 300);
        if is_beside {
            let counts = "#!lua name=own\nlocal n = 0 \
                redis.register_function('count', function() n = n + 1 return n end)";
            assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", counts]), "$3\r\nown\r\n");
            assert_eq!(said(&mut bench, &["FCALL", "count", "0"]), ":1\r\n");
        }
        let (mut client, mut turns) = (Session::new(), 1);
        let (mut next, mut reply) = bench.turn(&mut client, &restoring(&payload));
        while reply.is_empty() {
            assert_eq!(next, Next::Yield);
            let done_ns = bench.room.work().done_ns();
            assert!(done_ns <= TURN_NS_MAX, "{done_ns} ns in a turn");
            assert_eq!(known(&mut bench), usize::from(is_beside));
            assert_eq!(said(&mut bench, &["FCALL", "f0", "0"]), "-ERR Function not found\r\n");
            (next, reply) = bench.turn(&mut client, b"");
            turns += 1;
        }
        assert_eq!(reply, b"+OK\r\n");
        assert!(turns > 10, "{turns}");
        assert_eq!(known(&mut bench), 300 + usize::from(is_beside));
        for n in [0, 299] {
            assert_eq!(said(&mut bench, &["FCALL", &format!("f{n}"), "0"]), format!(":{n}\r\n"));
        }
        if is_beside {
            assert_eq!(said(&mut bench, &["FCALL", "count", "0"]), ":2\r\n");
        }
    }
}

#[test]
fn none_becomes_known_where_one_is_wrong_or_the_client_goes() {
    let mut bench = bench();
    let mut payload = dumped(&mut bench, 100);
    let mut client = Session::new();
    assert_eq!(bench.turn(&mut client, &restoring(&payload)), (Next::Yield, Vec::new()));
    drop(client);
    assert_eq!(known(&mut bench), 0);
    let damaged = [&payload[..payload.len() - 1], &[!payload[payload.len() - 1]]].concat();
    let (reply, _) = bench.run(&mut Session::new(), &restoring(&damaged), usize::MAX);
    assert_eq!(String::from_utf8_lossy(&reply), "-ERR DUMP payload version or checksum are wrong\r\n");
    // The last of all by their names. A checksum of nothing is not looked at.
    let at = payload.windows(9).position(|bytes| bytes == b"return 99").expect("it is there");
    payload[at..at + 9].copy_from_slice(b"return 9)");
    let end = payload.len();
    payload[end - 8..].fill(0);
    let (reply, _) = bench.run(&mut Session::new(), &restoring(&payload), usize::MAX);
    let reply = String::from_utf8_lossy(&reply);
    assert!(reply.starts_with("-ERR Error compiling function: "), "{reply}");
    assert_eq!(known(&mut bench), 0);
}

/// A GiB of memory may have 16 MiB of them.
#[test]
fn many_libraries_are_dumped_in_steps_as_they_were_when_that_began() {
    let mut bench = Bench::of(Settings::default(), 256 << 20);
    let code = |n: usize, text: &str| {
        let text = text.repeat(256 << 10);
        format!("#!lua name=l{n}\nredis.register_function('f{n}', function() return {n} end) --{text}")
    };
    for n in 0..12 {
        assert!(said(&mut bench, &["FUNCTION", "LOAD", &code(n, "x")]).starts_with('$'));
    }
    let mut client = Session::new();
    assert_eq!(said_by(&mut bench, &mut client, &["MULTI"]), b"+OK\r\n");
    assert_eq!(said_by(&mut bench, &mut client, &["FUNCTION", "DUMP"]), b"+QUEUED\r\n");
    let of_exec = said_by(&mut bench, &mut client, &["EXEC"]);
    let (mut next, mut reply) = bench.turn(&mut client, &command(&["FUNCTION", "DUMP"]));
    // What takes the place of one of them is not in it.
    assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", "REPLACE", &code(11, "y")]), "$3\r\nl11\r\n");
    let mut turns = 0;
    while next != Next::Receive {
        let (then, more) = bench.turn(&mut client, b"");
        let done_ns = bench.room.work().done_ns();
        assert!(done_ns <= 600_000, "{done_ns} ns in a turn");
        next = then;
        reply.extend(more);
        turns += 1;
    }
    assert!(turns >= 5, "{turns}");
    assert!([&b"*1\r\n"[..], &reply[..]].concat() == of_exec, "{} bytes of {}", reply.len(), of_exec.len());
    let at = reply.iter().position(|byte| *byte == b'\n').expect("a head") + 1;
    let restores = encode(&[b"FUNCTION", b"RESTORE", &reply[at..reply.len() - 2], b"FLUSH"]);
    assert_eq!(bench.run(&mut Session::new(), &restores, usize::MAX).0, b"+OK\r\n");
    assert_eq!(known(&mut bench), 12);
    assert!(!said(&mut bench, &["FUNCTION", "LIST", "WITHCODE"]).contains("yyy"));
}

#[test]
fn long_texts_of_libraries_are_compiled_between_two_steps() {
    let mut bench = bench();
    // Each look at what goes on is a turn.
    bench.host.script_pace = Some(Pace::Look(std::time::Duration::from_millis(1)));
    for n in 0..6 {
        let text = "x".repeat(if n % 2 == 0 { 64 << 10 } else { 0 });
        let code =
            format!("#!lua name=l{n}\nredis.register_function('f{n}', function() return {n} end) --{text}");
        assert!(said(&mut bench, &["FUNCTION", "LOAD", &code]).starts_with('$'));
    }
    let payload = dumped_and_flushed(&mut bench);
    let (mut client, mut turns) = (Session::new(), 0);
    let (mut next, mut reply) = bench.turn(&mut client, &restoring(&payload));
    while reply.is_empty() {
        assert_eq!(next, Next::Yield);
        assert_eq!(known(&mut bench), 0);
        (next, reply) = bench.turn(&mut client, b"");
        turns += 1;
    }
    assert_eq!(reply, b"+OK\r\n");
    // One for each piece of 256 bytes, and some for what goes on in Lua between them.
    assert!((3 * 256..3 * 400).contains(&turns), "{turns}");
    assert_eq!(known(&mut bench), 6);
    for n in 0..6 {
        assert_eq!(said(&mut bench, &["FCALL", &format!("f{n}"), "0"]), format!(":{n}\r\n"));
    }
    // A broken one is told, and none becomes known.
    assert_eq!(said(&mut bench, &["FUNCTION", "FLUSH"]), "+OK\r\n");
    let mut broken = payload.clone();
    let at = broken.windows(8).position(|bytes| bytes == b"return 4").expect("it is there");
    broken[at..at + 8].copy_from_slice(b"return )");
    let end = broken.len();
    broken[end - 8..].fill(0);
    let (reply, _) = bench.run(&mut Session::new(), &restoring(&broken), usize::MAX);
    let reply = String::from_utf8_lossy(&reply);
    assert!(reply.starts_with("-ERR Error compiling function: user_function:2: "), "{reply}");
    assert_eq!(known(&mut bench), 0);
}

/// Where nothing goes on in later turns it is looked at all the same, so that it ends in time.
#[test]
fn a_long_text_that_is_compiled_in_one_step_is_looked_at() {
    for in_exec in [false, true] {
        let mut bench = bench();
        // Each look takes a millisecond.
        bench.host.script_pace = Some(Pace::Look(std::time::Duration::from_millis(1)));
        let text = "x".repeat(64 << 10);
        let code = format!("#!lua name=l\nredis.register_function('f', function() return 1 end) --{text}");
        assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", &code]), "$1\r\nl\r\n");
        let payload = dumped_and_flushed(&mut bench);
        let (mut other, mut client) = (Session::new(), Session::new());
        let mut sent = restoring(&payload);
        if in_exec {
            sent = [command(&["MULTI"]), sent, command(&["EXEC"])].concat();
        } else {
            let endless = command(&["EVAL", "while true do end", "0"]);
            assert_eq!(bench.turn(&mut other, &endless), (Next::Yield, Vec::new()));
        }
        let before_ns = bench.room.work().done_ns();
        let (reply, _) = bench.run(&mut client, &sent, usize::MAX);
        let took_ns = bench.room.work().done_ns() - before_ns;
        let queued = if in_exec { "+OK\r\n+QUEUED\r\n*1\r\n" } else { "" };
        assert_eq!(String::from_utf8_lossy(&reply), format!("{queued}+OK\r\n"));
        // One for each piece of 256 bytes.
        assert!(took_ns >= 256 * 1_000_000, "{took_ns} ns");
        assert_eq!(said(&mut bench, &["FCALL", "f", "0"]), ":1\r\n");
    }
}

/// Its client may take the reply as slowly as it likes.
#[test]
fn what_libraries_keep_goes_with_them_while_they_are_dumped() {
    let mut bench = bench();
    let padded = |head: &str| format!("{head} --{}", "x".repeat(400 << 10));
    let keeps = "#!lua name=l\nlocal t = {} redis.register_function('fill', function() \
        for i = 1, 3 do t[i] = string.rep('x', 1048576 - i) end return #t end)";
    let other = "#!lua name=m\nredis.register_function('f', function() return 1 end)";
    for (head, name) in [(keeps, "l"), (other, "m")] {
        assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", &padded(head)]), format!("$1\r\n{name}\r\n"));
    }
    let before = bench.worker.store().heap_bytes();
    assert_eq!(said(&mut bench, &["FCALL", "fill", "0"]), ":3\r\n");
    let filled = bench.worker.store().heap_bytes();
    assert!(filled > before + (2 << 20), "{filled} behind {before}");
    let mut client = Session::new();
    let (mut next, mut reply) = bench.turn(&mut client, &command(&["FUNCTION", "DUMP"]));
    assert!(next == Next::Yield && !reply.is_empty(), "{next:?}");
    assert_eq!(said(&mut bench, &["FUNCTION", "FLUSH"]), "+OK\r\n");
    let left = bench.worker.store().heap_bytes();
    assert!(left <= before, "{left} behind {before}");
    while next != Next::Receive {
        let (then, more) = bench.turn(&mut client, b"");
        next = then;
        reply.extend(more);
    }
    let at = reply.iter().position(|byte| *byte == b'\n').expect("a head") + 1;
    let (restored, _) = bench.run(&mut client, &restoring(&reply[at..reply.len() - 2]), usize::MAX);
    assert_eq!((&restored[..], known(&mut bench)), (&b"+OK\r\n"[..], 2));
}

/// A step makes a state, and reads for half a millisecond at least, however much was done in its turn.
#[test]
fn one_client_of_a_worker_reads_libraries_at_a_time() {
    let mut bench = bench();
    let payload = dumped(&mut bench, 100);
    let sent = encode(&[b"FUNCTION", b"RESTORE", &payload[..], b"REPLACE"]);
    let mut clients: Vec<_> = (0..20).map(|_| (Session::new(), 0, false)).collect();
    // All come in one wake-up of their worker, and go on in the same ones.
    let mut wakes = 0;
    while clients.iter().any(|(.., is_done)| !is_done) {
        bench.room.work().begin_slice();
        for (client, at, is_done) in clients.iter_mut().filter(|(.., is_done)| !is_done) {
            let (_, reply, consumed) = bench.call_on(client, &sent[*at..]);
            *at += consumed;
            assert!(reply.is_empty() || reply == b"+OK\r\n");
            *is_done = !reply.is_empty();
        }
        let done_ns = bench.room.work().done_ns();
        assert!(done_ns <= 2 * TURN_NS_MAX, "{done_ns} ns in a wake-up");
        wakes += 1;
    }
    assert!(wakes > 20, "{wakes}");
    assert_eq!(known(&mut bench), 100);
}

/// Nor is one amid a pause that has begun since.
#[test]
fn none_becomes_known_before_the_end_of_a_pause() {
    let mut bench = bench();
    let payload = dumped(&mut bench, 100);
    let mut client = Session::new();
    assert_eq!(bench.turn(&mut client, &restoring(&payload)), (Next::Yield, Vec::new()));
    assert_eq!(said(&mut bench, &["CLIENT", "PAUSE", "100000", "WRITE"]), "+OK\r\n");
    for _ in 0..20 {
        assert_eq!(bench.turn(&mut client, b""), (Next::Sleep(100), Vec::new()));
    }
    assert_eq!(known(&mut bench), 0);
    assert_eq!(said(&mut bench, &["CLIENT", "UNPAUSE"]), "+OK\r\n");
    let mut reply = Vec::new();
    while reply.is_empty() {
        reply = bench.turn(&mut client, b"").1;
    }
    assert_eq!(reply, b"+OK\r\n");
    assert_eq!(known(&mut bench), 100);
}

/// The second would take the place of the first, whose functions could be called for ever.
#[test]
fn a_payload_that_has_two_libraries_of_one_name_is_refused() {
    let mut bench = bench();
    let payloads = ["f", "g"].map(|name| {
        let code = format!("#!lua name=l\nredis.register_function('{name}', function() return 1 end)");
        assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", &code]), "$1\r\nl\r\n");
        dumped_and_flushed(&mut bench)
    });
    // Two bytes of a version, and eight of a checksum: one of nothing is not looked at.
    let [(one, footer), (other, _)] = payloads.each_ref().map(|payload| payload.split_at(payload.len() - 10));
    let both = [one, other, &footer[..2], &[0; 8]].concat();
    for policy in ["APPEND", "REPLACE", "FLUSH"] {
        let sent = encode(&[b"FUNCTION", b"RESTORE", &both[..], policy.as_bytes()]);
        let (reply, _) = bench.run(&mut Session::new(), &sent, usize::MAX);
        assert_eq!(String::from_utf8_lossy(&reply), "-ERR Library 'l' already exists\r\n", "{policy}");
        assert_eq!(known(&mut bench), 0);
        assert_eq!(said(&mut bench, &["FCALL", "f", "0"]), "-ERR Function not found\r\n");
    }
}

/// In a transaction it is one step, which has the time of one load.
#[test]
fn in_a_transaction_so_many_are_restored_as_take_no_longer_than_a_load_may() {
    let refused = "-ERR Error registering functions: FUNCTION LOAD timeout\r\n";
    for (count, reply) in [(200, "+OK\r\n"), (400, refused)] {
        let mut bench = bench();
        let payload = dumped(&mut bench, count);
        let sent = [command(&["MULTI"]), restoring(&payload), command(&["EXEC"])].concat();
        let (replies, _) = bench.run(&mut Session::new(), &sent, usize::MAX);
        let replies = String::from_utf8_lossy(&replies);
        assert_eq!(replies, format!("+OK\r\n+QUEUED\r\n*1\r\n{reply}"), "{count}");
        assert_eq!(known(&mut bench), if reply == refused { 0 } else { count });
    }
}
