//! COMMANDLOG: what is listed of requests and replies that are large, whichever way they went.

use crate::{Bench, bench};
use larder_commands::Session;
use larder_testkit::talk::encode;

fn ask(bench: &mut Bench, session: &mut Session, request: &[&[u8]]) -> Vec<u8> {
    bench.run(session, &encode(request), 60_000).0
}

/// Size, words and the first of these that are no numbers, of each that is listed, the last one first.
fn listed(bench: &mut Bench, session: &mut Session, kind: &str) -> Vec<(u64, Vec<String>)> {
    let reply = ask(bench, session, &[b"COMMANDLOG", b"GET", b"-1", kind.as_bytes()]);
    let reply = String::from_utf8_lossy(&reply).into_owned();
    let mut lines = reply.split("\r\n");
    let mut next = || lines.next().expect("a line").to_owned();
    let number = |line: String| line[1..].parse::<usize>().unwrap_or_else(|_| panic!("{line}"));
    let entries = number(next());
    let mut found = Vec::new();
    for _ in 0..entries {
        assert_eq!(next(), "*6");
        let (_id, _at, value) = (next(), next(), number(next()));
        let words = number(next());
        let words = (0..words).map(|_| (next(), next()).1).collect();
        let (_, _address, _, _name) = (next(), next(), next(), next());
        found.push((value as u64, words));
    }
    found
}

#[test]
fn large_requests_are_listed_however_they_came() {
    let mut bench = bench();
    let mut session = Session::new();
    let value = vec![b'v'; 2_000_000];
    // Into its item, with and without a time; gathered; and one that is not large enough.
    ask(&mut bench, &mut session, &[b"set", b"key", &value]);
    ask(&mut bench, &mut session, &[b"SETEX", b"other", b"100", &value]);
    ask(&mut bench, &mut session, &[b"APPEND", b"third", &value]);
    ask(&mut bench, &mut session, &[b"SET", b"small", &value[..1_000_000]]);
    let listed = listed(&mut bench, &mut session, "large-request");
    let shown: Vec<(u64, Vec<&str>)> =
        listed.iter().map(|(size, words)| (*size, words.iter().map(|word| &word[..]).collect())).collect();
    let cut = format!("{}... (1999872 more bytes)", "v".repeat(128));
    // As they were on the wire.
    let bytes = |request: &[&[u8]]| encode(request).len() as u64;
    let expected = [
        (bytes(&[b"APPEND", b"third", &value]), vec!["APPEND", "third", &cut]),
        (bytes(&[b"SETEX", b"other", b"100", &value]), vec!["SETEX", "other", "100", &cut]),
        (bytes(&[b"set", b"key", &value]), vec!["set", "key", &cut]),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn large_replies_are_listed_however_they_are_made() {
    let mut bench = bench();
    let mut session = Session::new();
    let value = vec![b'v'; 1_500_000];
    ask(&mut bench, &mut session, &[b"SET", b"value", &value]);
    for n in 0..2000 {
        let field = format!("{n:04}{}", "f".repeat(500));
        ask(&mut bench, &mut session, &[b"HSET", b"hash", field.as_bytes(), &value[..500]]);
    }
    ask(&mut bench, &mut session, &[b"COMMANDLOG", b"RESET", b"large-request"]);
    let mut sizes = Vec::new();
    let (get, getrange) = ([&b"GET"[..], b"value"], [&b"GETRANGE"[..], b"value", b"0", b"1200000"]);
    let (mget, hgetall) = ([&b"MGET"[..], b"value", b"none", b"value"], [&b"HGETALL"[..], b"hash"]);
    let none = [&b"GETRANGE"[..], b"value", b"0", b"1000"];
    for request in [&get[..], &getrange, &none, &mget, &hgetall] {
        sizes.push(ask(&mut bench, &mut session, request).len() as u64);
    }
    // In a pipeline, behind one that is short.
    let pipeline: [&[&[u8]]; 4] = [&[b"GET", b"none"], &get, &[b"STRLEN", b"value"], &getrange];
    bench.run(&mut session, &pipeline.map(encode).concat(), 60_000);
    let listed = listed(&mut bench, &mut session, "large-reply");
    let shown: Vec<(u64, &str)> = listed.iter().rev().map(|(size, words)| (*size, &words[0][..])).collect();
    let expected = [
        (sizes[0], "GET"),
        (sizes[1], "GETRANGE"),
        (sizes[3], "MGET"),
        (sizes[4], "HGETALL"),
        (sizes[0], "GET"),
        (sizes[1], "GETRANGE"),
    ];
    assert_eq!(shown, expected);
    assert_eq!(listed.last().expect("the first").1, ["GET", "value"]);
    assert!(ask(&mut bench, &mut session, &[b"COMMANDLOG", b"LEN", b"large-request"]).starts_with(b":0"));
}

#[test]
fn lists_are_bounded_charged_and_show_no_passwords() {
    let mut bench = bench();
    let mut session = Session::new();
    let aside = |bench: &Bench| bench.worker.store().ledger().aside;
    let before = aside(&bench);
    ask(
        &mut bench,
        &mut session,
        &[
            b"CONFIG",
            b"SET",
            b"commandlog-request-larger-than",
            b"0",
            b"commandlog-large-request-max-len",
            b"1000000",
        ],
    );
    ask(&mut bench, &mut session, &[b"AUTH", b"somebody", b"secret"]);
    let long = vec![b'x'; 1000];
    let many: Vec<&[u8]> = std::iter::once(&b"MGET"[..]).chain((0..60).map(|_| &long[..])).collect();
    for _ in 0..5000 {
        ask(&mut bench, &mut session, &many);
    }
    let used = aside(&bench) - before;
    assert!((256 << 10..=512 << 10).contains(&used), "{used}");
    let shown = listed(&mut bench, &mut session, "large-request");
    assert!(shown.iter().all(|(_, words)| words.len() <= 32 && words.iter().all(|word| word.len() < 160)));
    ask(&mut bench, &mut session, &[b"CONFIG", b"SET", b"commandlog-large-request-max-len", b"2"]);
    ask(&mut bench, &mut session, &[b"AUTH", b"somebody", b"secret"]);
    let shown = listed(&mut bench, &mut session, "large-request");
    assert_eq!(shown.len(), 2);
    assert_eq!(shown[0].1, ["AUTH", "(redacted)", "(redacted)"]);
    ask(&mut bench, &mut session, &[b"CONFIG", b"SET", b"commandlog-request-larger-than", b"-1"]);
    ask(&mut bench, &mut session, &[b"COMMANDLOG", b"RESET", b"large-request"]);
    assert_eq!(aside(&bench), before);
}

/// What goes on in later turns is one command that took as long as all of its steps, in every list, and a script is, too.
#[test]
fn what_is_done_in_steps_is_listed_once_with_what_all_of_them_took() {
    let mut bench = bench();
    let mut session = Session::new();
    for from in (0..40_000).step_by(500) {
        let members: Vec<Vec<u8>> = (from..from + 500).map(|n| format!("m{n}").into_bytes()).collect();
        let mut request: Vec<&[u8]> = vec![b"SADD", b"large"];
        request.extend(members.iter().map(|member| &member[..]));
        ask(&mut bench, &mut session, &request);
    }
    let spins = b"local n = 0 while n < 300000 do n = n + 1 end return redis.call('SCARD', KEYS[1])";
    let asked: [&[&[u8]]; 4] = [
        &[b"SUNIONSTORE", b"stored", b"large"],
        &[b"SORT", b"large", b"ALPHA", b"STORE", b"sorted"],
        &[b"SMEMBERS", b"large"],
        &[b"EVAL", spins, b"1", b"large"],
    ];
    for (request, measured) in asked.into_iter().flat_map(|request| [(request, "0"), (request, "1000000")]) {
        // In receives that are measured in any case, too.
        ask(
            &mut bench,
            &mut session,
            &[b"CONFIG", b"SET", b"latency-monitor-threshold", measured.as_bytes()],
        );
        // Each look at the clock, of which there is one at each step at least, is a millisecond.
        bench.host.look_us.store(1_000, std::sync::atomic::Ordering::Relaxed);
        ask(&mut bench, &mut session, &[b"CONFIG", b"SET", b"slowlog-log-slower-than", b"4000"]);
        ask(&mut bench, &mut session, &[b"SLOWLOG", b"RESET"]);
        ask(&mut bench, &mut session, &[b"CONFIG", b"RESETSTAT"]);
        let reply = ask(&mut bench, &mut session, request);
        assert!(!reply.starts_with(b"-"), "{}", String::from_utf8_lossy(&reply));
        bench.host.look_us.store(0, std::sync::atomic::Ordering::Relaxed);
        let slow = listed(&mut bench, &mut session, "slow");
        let name = String::from_utf8_lossy(request[0]).into_owned();
        assert_eq!(slow.len(), 1, "{name}: {slow:?}");
        assert_eq!(slow[0].1[0], name);
        let stats = ask(&mut bench, &mut session, &[b"INFO", b"commandstats"]);
        let stats = String::from_utf8_lossy(&stats).into_owned();
        let start = format!("cmdstat_{}:calls=1,usec={},", name.to_lowercase(), slow[0].0);
        assert!(slow[0].0 > 4_000 && stats.contains(&start), "{start} {stats}");
    }
}

/// A command that waits is listed when it has its reply, by what it worked: for as long as it waits it is shown nowhere.
#[test]
fn a_command_that_waited_is_listed_when_it_is_served_by_the_time_that_it_worked() {
    use larder_commands::Next;
    use std::sync::atomic::Ordering::Relaxed;

    let mut bench = bench();
    let mut session = Session::new();
    ask(&mut bench, &mut session, &[b"CONFIG", b"SET", b"slowlog-log-slower-than", b"0"]);
    let of_waiting = |bench: &mut Bench, session: &mut Session| {
        let mut slow = listed(bench, session, "slow");
        slow.retain(|(_, words)| words[0].starts_with('B'));
        slow.into_iter().map(|(us, words)| (us, words.join(" "))).collect::<Vec<_>>()
    };
    let served: [&[&[u8]]; 3] =
        [&[b"RPUSH", b"l", b"a"], &[b"ZADD", b"z", b"1", b"a"], &[b"CLIENT", b"UNBLOCK", b"$id", b"ERROR"]];
    let waits: [&[&[u8]]; 3] = [&[b"BLPOP", b"l", b"0"], &[b"BZPOPMIN", b"z", b"0"], &[b"BRPOP", b"l", b"0"]];
    for (waits, served) in waits.into_iter().zip(served) {
        ask(&mut bench, &mut session, &[b"SLOWLOG", b"RESET"]);
        let mut waiting = Session::new();
        let id = ask(&mut bench, &mut waiting, &[b"CLIENT", b"ID"]);
        let id = &id[1..id.len() - 2];
        let name = String::from_utf8_lossy(waits[0]).into_owned();
        assert_eq!(bench.turn(&mut waiting, &encode(waits)), (Next::Await(None), Vec::new()), "{name}");
        bench.host.clock_us.fetch_add(3_000_000, Relaxed);
        assert_eq!(of_waiting(&mut bench, &mut session), [], "{name} waits");
        let served: Vec<&[u8]> = served.iter().map(|word| if *word == b"$id" { id } else { word }).collect();
        ask(&mut bench, &mut session, &served);
        let (next, reply) = bench.turn(&mut waiting, b"");
        assert!(next == Next::Receive && !reply.is_empty(), "{name} is answered");
        let text = waits.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ");
        assert_eq!(of_waiting(&mut bench, &mut session), [(0, text)], "{name} is listed once");
    }
    // Its time is up; and a client that goes leaves nothing.
    ask(&mut bench, &mut session, &[b"SLOWLOG", b"RESET"]);
    let mut late = Session::new();
    let wait = bench.turn(&mut late, &encode(&[b"BLPOP", b"l", b"1"]));
    assert_eq!(wait, (Next::Await(Some(1000)), Vec::new()));
    let mut gone = Session::new();
    bench.turn(&mut gone, &encode(&[b"BLPOP", b"other", b"0"]));
    drop(gone);
    bench.host.clock_us.fetch_add(1_000_000, Relaxed);
    assert_eq!(bench.turn(&mut late, b""), (Next::Receive, b"*-1\r\n".to_vec()));
    assert_eq!(of_waiting(&mut bench, &mut session), [(0, "BLPOP l 1".into())]);
    let stats = ask(&mut bench, &mut session, &[b"INFO", b"commandstats"]);
    let stats = String::from_utf8_lossy(&stats).into_owned();
    assert!(stats.contains("cmdstat_blpop:calls=3,usec=0,"), "{stats}");
}
