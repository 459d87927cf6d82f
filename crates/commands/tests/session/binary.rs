//! The binary protocol: frames in, frames out.

use larder_commands::{Counter, RedisSettings, Session, Settings};

use crate::{Bench, START};

const OPAQUE: [u8; 4] = *b"opaq";

/// A request with a CAS token.
pub fn frame_cas(code: u8, extras: &[u8], key: &[u8], value: &[u8], cas: u64) -> Vec<u8> {
    let body_bytes = (extras.len() + key.len() + value.len()) as u32;
    let mut frame = vec![0x80, code];
    frame.extend((key.len() as u16).to_be_bytes());
    frame.extend([extras.len() as u8, 0, 0, 0]);
    frame.extend(body_bytes.to_be_bytes());
    frame.extend(OPAQUE);
    frame.extend(cas.to_be_bytes());
    [&frame[..], extras, key, value].concat()
}

pub fn frame(code: u8, extras: &[u8], key: &str, value: &[u8]) -> Vec<u8> {
    frame_cas(code, extras, key.as_bytes(), value, 0)
}

pub fn get(code: u8, key: &str) -> Vec<u8> {
    frame(code, b"", key, b"")
}

pub fn set(code: u8, key: &str, value: &[u8]) -> Vec<u8> {
    frame(code, &[0, 0, 0, 7, 0, 0, 0, 0], key, value)
}

pub fn number(code: u8, key: &str, delta: u64, initial: u64, exptime: u32) -> Vec<u8> {
    let extras = [&delta.to_be_bytes()[..], &initial.to_be_bytes(), &exptime.to_be_bytes()].concat();
    frame(code, &extras, key, b"")
}

pub const NOOP: u8 = 0x0a;

/// A reply; its opaque was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub code: u8,
    pub status: u16,
    pub extras: Vec<u8>,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub cas: u64,
}

pub fn replies(mut bytes: &[u8]) -> Vec<Reply> {
    let mut all = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<24>() {
        let short = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        assert_eq!((header[0], header[5], &header[12..16]), (0x81, 0, &OPAQUE[..]));
        let body_bytes = u32::from_be_bytes(*header[8..].first_chunk().unwrap()) as usize;
        let (body, behind) = rest.split_at(body_bytes);
        let (extras, body) = body.split_at(header[4].into());
        let (key, value) = body.split_at(short(2).into());
        all.push(Reply {
            code: header[1],
            status: short(6),
            extras: extras.into(),
            key: key.into(),
            value: value.into(),
            cas: u64::from_be_bytes(*header.last_chunk().unwrap()),
        });
        bytes = behind;
    }
    assert!(bytes.is_empty(), "a part of a frame: {bytes:?}");
    all
}

/// Each reply as `code status [extras] [key] text`, with a `*` if it has a CAS token. Last comes `closed` if
/// the connection closes.
pub fn told(bench: &mut Bench, session: &mut Session, input: &[u8]) -> Vec<String> {
    let (bytes, closed) = bench.run(session, input, usize::MAX);
    let mut told = lines(&bytes);
    told.extend(closed.then(|| "closed".to_owned()));
    told
}

/// The same for the bytes of replies.
pub fn lines(bytes: &[u8]) -> Vec<String> {
    replies(bytes)
        .into_iter()
        .map(|reply| {
            let Reply { code, status, extras, key, value, cas } = reply;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let flags = if extras.is_empty() { String::new() } else { format!(" {}", extras[3]) };
            let key = if key.is_empty() { String::new() } else { format!(" {}", text(&key)) };
            let value = match &value[..] {
                [] => String::new(),
                [0, .., n] if value.len() == 8 => format!(" ={n}"),
                _ => format!(" {}", text(&value)),
            };
            format!("{code:02x} {status}{flags}{key}{value}{}", if cas == 0 { "" } else { "*" })
        })
        .collect()
}

#[track_caller]
fn talk(bench: &mut Bench, frames: &[&[u8]], expected: &[&str]) {
    assert_eq!(told(bench, &mut Session::new(), &frames.concat()), expected);
}

#[test]
fn values_come_back_with_flags_and_tokens() {
    let mut bench = crate::bench();
    let noop = get(NOOP, "");
    talk(
        &mut bench,
        &[
            &set(0x01, "k", b"value"),
            &get(0x00, "k"),
            &get(0x09, "k"),
            &get(0x0c, "k"),
            &get(0x0d, "k"),
            &noop,
        ],
        &["01 0*", "00 0 7 value*", "09 0 7 value*", "0c 0 7 k value*", "0d 0 7 k value*", "0a 0"],
    );
    talk(
        &mut bench,
        &[&get(0x00, "no"), &get(0x09, "no"), &get(0x0c, "no"), &get(0x0d, "no"), &noop],
        &["00 1 Not found", "0c 1 no", "0a 0"],
    );
    // The text protocol has the same items.
    assert_eq!(bench.ask("get k\r\n"), "VALUE k 7 5\r\nvalue\r\nEND\r\n");
    bench.ask("set t 9 0 0\r\n\r\n");
    talk(&mut bench, &[&get(0x00, "t")], &["00 0 9*"]);
    assert_eq!(bench.counted(Counter::CmdGet), 10);
    assert_eq!(bench.counted(Counter::GetMisses), 4);
}

#[test]
fn a_token_makes_any_store_a_compare_and_swap() {
    let mut bench = crate::bench();
    let extras = [0; 8];
    let cas_of = |bench: &mut Bench| {
        let (bytes, _) = bench.run(&mut Session::new(), &get(0x00, "k"), usize::MAX);
        replies(&bytes)[0].cas
    };
    for code in [0x01, 0x02, 0x03] {
        let stale = frame_cas(code, &extras, b"no", b"x", 99);
        talk(&mut bench, &[&stale], &[&format!("{code:02x} 1 Not found")]);
    }
    talk(&mut bench, &[&set(0x01, "k", b"1")], &["01 0*"]);
    for code in [0x01, 0x02, 0x03] {
        let (now, old) = (cas_of(&mut bench), cas_of(&mut bench));
        let frames = [frame_cas(code, &extras, b"k", b"2", now), frame_cas(code, &extras, b"k", b"3", old)];
        let expected = [format!("{code:02x} 0*"), format!("{code:02x} 2 Data exists for key.")];
        talk(&mut bench, &[&frames.concat()], &[&expected[0], &expected[1]]);
    }
    let now = cas_of(&mut bench);
    talk(
        &mut bench,
        &[
            &frame_cas(0x0e, b"", b"k", b"!", now + 1),
            &frame_cas(0x0e, b"", b"k", b"!", now),
            &frame_cas(0x04, b"", b"k", b"", now),
            &frame_cas(0x11, &extras, b"k", b"4", now),
            &get(0x00, "k"),
        ],
        &[
            "0e 2 Data exists for key.",
            "0e 0*",
            "04 2 Data exists for key.",
            "11 2 Data exists for key.",
            "00 0 0 2!*",
        ],
    );
    let now = cas_of(&mut bench);
    talk(&mut bench, &[&frame_cas(0x04, b"", b"k", b"", now), &get(0x00, "k")], &["04 0", "00 1 Not found"]);
    assert_eq!((bench.counted(Counter::CasHits), bench.counted(Counter::CasBadval)), (3, 4));
    assert_eq!(bench.counted(Counter::CasMisses), 3);
}

#[test]
fn without_tokens_none_is_told_and_none_matches() {
    let mut bench = Bench::new(Settings { cas: false, ..Settings::default() });
    talk(
        &mut bench,
        &[
            &set(0x01, "k", b"1"),
            &get(0x00, "k"),
            &frame_cas(0x01, &[0; 8], b"k", b"2", 5),
            &frame_cas(0x04, b"", b"k", b"", 5),
        ],
        &["01 0", "00 0 7 1", "01 2 Data exists for key.", "04 2 Data exists for key."],
    );
}

#[test]
fn numbers_are_made_where_they_may_be() {
    let mut bench = crate::bench();
    let noop = get(NOOP, "");
    talk(
        &mut bench,
        &[
            &number(0x05, "n", 1, 10, u32::MAX),
            &number(0x16, "n", 1, 10, u32::MAX),
            &number(0x05, "n", 1, 10, 0),
            &number(0x05, "n", 5, 10, 0),
            &number(0x06, "n", 6, 10, 0),
            &number(0x15, "n", 3, 10, 0),
            &number(0x06, "n", 100, 10, 0),
            &number(0x15, "m", 3, 7, 0),
            &number(0x05, "m", 0, 0, 0),
            &noop,
        ],
        &[
            "05 1 Not found",
            "16 1 Not found",
            "05 0 =10*",
            "05 0 =15*",
            "06 0 =9*",
            "06 0 =0*",
            "05 0 =7*",
            "0a 0",
        ],
    );
    let text = "Non-numeric server-side value for incr or decr";
    talk(
        &mut bench,
        &[&set(0x01, "t", b"text"), &number(0x05, "t", 1, 0, 0), &number(0x16, "t", 1, 0, 0)],
        &["01 0*", &format!("05 6 {text}"), &format!("16 6 {text}")],
    );
    let by = [&1u64.to_be_bytes()[..], &[0; 12]].concat();
    talk(&mut bench, &[&frame_cas(0x05, &by, b"m", b"", 1)], &["05 2 Data exists for key."]);
    // A collection is no number, and is not overwritten.
    bench.ask("*3\r\n$5\r\nRPUSH\r\n$1\r\nl\r\n$1\r\nx\r\n");
    talk(&mut bench, &[&number(0x05, "l", 1, 0, 0), &get(0x00, "l")], &["05 1 Not found", "00 1 Not found"]);
    assert_eq!(bench.ask("*2\r\n$4\r\nTYPE\r\n$1\r\nl\r\n"), "+list\r\n");
}

#[test]
fn exptimes_are_set_told_and_kept() {
    let mut bench = crate::bench();
    let seconds = |seconds: u32| seconds.to_be_bytes();
    talk(
        &mut bench,
        &[
            &frame(0x01, &[0, 0, 0, 3, 0, 0, 0, 10], "k", b"v"),
            &frame(0x1c, &seconds(100), "k", b""),
            &frame(0x1c, &seconds(100), "no", b""),
        ],
        &["01 0*", "1c 0 3*", "1c 1 Not found"],
    );
    assert_eq!(bench.ask("mg k t\r\n"), "HD t100\r\n");
    talk(
        &mut bench,
        &[
            &frame(0x1d, &seconds(200), "k", b""),
            &frame(0x23, &seconds(200), "k", b""),
            &frame(0x1e, &seconds(200), "k", b""),
            &frame(0x24, &seconds(0), "k", b""),
            &frame(0x1d, &seconds(1), "no", b""),
            &frame(0x23, &seconds(1), "no", b""),
            &frame(0x1e, &seconds(1), "no", b""),
            &frame(0x24, &seconds(1), "no", b""),
        ],
        &["1d 0 3 v*", "23 0 3 k v*", "1e 0 3 v*", "24 0 3 k v*", "1d 1 Not found", "23 1 no"],
    );
    assert_eq!(bench.ask("mg k t\r\n"), "HD t-1\r\n");
    // A time far ahead is not negative.
    talk(
        &mut bench,
        &[&frame(0x1c, &seconds(u32::MAX), "k", b""), &get(0x00, "k")],
        &["1c 0 3*", "00 0 3 v*"],
    );
    assert_eq!(bench.counted(Counter::CmdTouch), 11);
    bench.system = START + 5_000_000_000;
    talk(&mut bench, &[&frame(0x01, &[0, 0, 0, 3, 0, 0, 0, 10], "s", b"v")], &["01 0*"]);
    bench.system += 10_000;
    talk(&mut bench, &[&get(0x00, "s")], &["00 1 Not found"]);
}

#[test]
fn what_names_no_item_is_answered() {
    let mut bench = crate::bench();
    let version = env!("CARGO_PKG_VERSION");
    let version = bench.ask("version\r\n").trim_end().replace("VERSION ", "").replace('\n', version);
    talk(&mut bench, &[&get(0x0b, "")], &[&format!("0b 0 {version}")]);
    talk(&mut bench, &[&frame(0x1b, &[0, 0, 0, 1], "", b"")], &["1b 0"]);
    talk(
        &mut bench,
        &[
            &set(0x01, "k", b"v"),
            &get(0x08, ""),
            &get(0x00, "k"),
            &set(0x01, "k", b"v"),
            &get(0x18, ""),
            &get(0, "k"),
        ],
        &["01 0*", "08 0", "00 1 Not found", "01 0*", "00 1 Not found"],
    );
    talk(
        &mut bench,
        &[&set(0x01, "k", b"v"), &frame(0x08, &[0, 0, 0, 5], "", b""), &get(0x00, "k")],
        &["01 0*", "08 0", "00 0 7 v*"],
    );
    bench.system += 5_000;
    talk(&mut bench, &[&get(0x00, "k")], &["00 1 Not found"]);
    assert_eq!(bench.counted(Counter::CmdFlush), 3);
    talk(&mut bench, &[&get(0x07, ""), &get(NOOP, "")], &["07 0", "closed"]);
    talk(&mut bench, &[&get(0x17, ""), &get(NOOP, "")], &["closed"]);
    let mut kept = Bench::new(Settings { flush: false, ..Settings::default() });
    talk(&mut kept, &[&get(0x08, ""), &get(0x18, "")], &["08 32 Auth failure.", "18 32 Auth failure."]);
    // Clients need not log in, so the commands of SASL are unknown.
    let plain = frame(0x21, b"", "PLAIN", b"\0u\0p");
    talk(
        &mut bench,
        &[&get(0x20, ""), &plain, &frame(0x22, b"", "PLAIN", b""), &get(NOOP, "")],
        &["20 129 Unknown command", "21 129 Unknown command", "22 129 Unknown command", "0a 0"],
    );
}

#[test]
fn figures_come_as_a_frame_each_and_an_empty_one() {
    let mut bench = crate::bench();
    let stat = |bench: &mut Bench, group: &str| {
        let (bytes, _) = bench.run(&mut Session::new(), &get(0x10, group), usize::MAX);
        let all = replies(&bytes);
        assert!(all.iter().all(|reply| reply.code == 0x10));
        all
    };
    let is_end = |reply: &Reply| reply.status == 0 && reply.key.is_empty() && reply.value.is_empty();
    // The names are those of the text protocol.
    let groups = " settings items slabs sizes conns memory types doctor forecast latency";
    for group in groups.split(' ') {
        let text = bench.ask(&format!("stats {group}\r\n"));
        let all = stat(&mut bench, group);
        assert!(is_end(all.last().unwrap()), "{group}");
        let names: Vec<_> =
            all[..all.len() - 1].iter().map(|reply| String::from_utf8_lossy(&reply.key)).collect();
        let expected: Vec<_> = text.lines().filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(names, expected, "{group}");
        bench.ask("set k 0 0 1\r\nx\r\n");
    }
    assert_eq!(told(&mut bench, &mut Session::new(), &get(0x10, "nonsense")), ["10 1 Not found"]);
    assert_eq!(told(&mut bench, &mut Session::new(), &get(0x10, "cachedump 1 1")), ["10 1 Not found"]);
    assert_eq!(told(&mut bench, &mut Session::new(), &get(0x10, "detail")), ["10 1 Not found"]);
    assert_eq!(told(&mut bench, &mut Session::new(), &get(0x10, "detail on")), ["10 0"]);
    talk(
        &mut bench,
        &[&set(0x01, "a:1", b"v"), &get(0x00, "a:1"), &get(0x0c, "a:2"), &get(0x04, "a:1")],
        &["01 0*", "00 0 7 v*", "0c 1 a:2", "04 0"],
    );
    let dump = ["10 0 a get 2 hit 1 set 1 del 1", "10 0"];
    assert_eq!(told(&mut bench, &mut Session::new(), &get(0x10, "detail dump")), dump);
    assert_eq!(told(&mut bench, &mut Session::new(), &get(0x10, "detail off")), ["10 0"]);
    assert!(bench.counted(Counter::CmdGet) > 0);
    assert_eq!(told(&mut bench, &mut Session::new(), &get(0x10, "reset")), ["10 0"]);
    let mut closed = Bench::new(Settings { dump: false, ..Settings::default() });
    assert_eq!(told(&mut closed, &mut Session::new(), &get(0x10, "detail on")), ["10 32 Auth failure."]);
}

#[test]
fn a_bad_frame_loses_no_step_or_ends_the_connection() {
    let mut bench = crate::bench();
    let noop = get(NOOP, "");
    for (code, extras, key, value) in [
        (0x50, &b""[..], "", &b""[..]),
        (0x30, b"", "key", b""),
        (0x3c, b"extras", "key", &[b'v'; 70_000]),
        (0xff, b"", "", b"v"),
    ] {
        let unknown = format!("{code:02x} 129 Unknown command");
        talk(&mut bench, &[&frame(code, extras, key, value), &noop], &[&unknown, "0a 0"]);
    }
    for (bad, reply) in [
        (frame(NOOP, b"", "", b"x"), "0a 4 Invalid arguments"),
        (frame(0x00, b"1234", "k", b""), "00 4 Invalid arguments"),
        (get(0x00, ""), "00 4 Invalid arguments"),
        (frame(0x01, b"", "k", b"v"), "01 4 Invalid arguments"),
        (frame(0x0e, b"1234", "k", b"v"), "0e 4 Invalid arguments"),
        (frame(0x1c, &[0; 4], "k", b"v"), "1c 4 Invalid arguments"),
        (frame(0x10, b"", "reset", b"v"), "10 4 Invalid arguments"),
        (frame(0x05, &[0; 8], "k", b""), "05 4 Invalid arguments"),
        (get(0x00, &"k".repeat(251)), "00 4 Invalid arguments"),
        (get(0x50, &"k".repeat(251)), "50 4 Invalid arguments"),
    ] {
        talk(&mut bench, &[&noop, &bad, &noop], &["0a 0", reply, "closed"]);
    }
    let mut short = get(0x00, "kkk");
    short[11] = 1;
    talk(&mut bench, &[&short, &noop], &["00 129 Unknown command", "closed"]);
    let mut huge = set(0x01, "k", b"");
    huge[8] = 0x80;
    talk(&mut bench, &[&huge], &["01 4 Invalid arguments", "closed"]);
    // Text behind frames closes the connection. A first byte that begins no frame is text.
    talk(&mut bench, &[&noop, b"get a\r\n"], &["0a 0", "closed"]);
    assert_eq!(bench.ask("\u{81}\r\n"), "ERROR\r\n");
}

#[test]
fn values_above_the_limit_are_passed_over_and_a_set_leaves_nothing() {
    let mut bench = Bench::new(Settings { item_bytes_max: 10_000, ..Settings::default() });
    let noop = get(NOOP, "");
    // Flags take four bytes.
    let largest = 10_000 - 60 - 4;
    let value = vec![b'x'; largest + 1];
    for (bytes, fits) in [(largest - 1, true), (largest, true), (largest + 1, false)] {
        let expected: &[&str] = if fits { &["01 0*", "0a 0"] } else { &["01 3 Too large.", "0a 0"] };
        talk(&mut bench, &[&set(0x01, "k", &value[..bytes]), &noop], expected);
        talk(&mut bench, &[&get(0x1c, "")], &["1c 4 Invalid arguments", "closed"]);
        let there = bench.ask("mg k s\r\n");
        assert_eq!(there, if fits { format!("HD s{bytes}\r\n") } else { "EN\r\n".into() });
    }
    talk(&mut bench, &[&set(0x01, "k", b"v")], &["01 0*"]);
    talk(
        &mut bench,
        &[&set(0x12, "k", &value), &set(0x03, "k", &value), &frame(0x0e, b"", "k", &[b'x'; 10_000]), &noop],
        &["12 3 Too large.", "03 3 Too large.", "0e 3 Too large.", "0a 0"],
    );
    talk(&mut bench, &[&frame(0x0e, b"", "k", &value), &get(0x00, "k")], &["0e 5 Not stored.", "00 0 7 v*"]);
}

/// Requests of every kind, in one pipeline.
fn pipeline() -> Vec<u8> {
    let large: Vec<u8> = (0..20_000u32).map(|n| (n % 251) as u8).collect();
    let seconds = 100u32.to_be_bytes();
    [
        set(0x01, "a", b"hello"),
        set(0x11, "b", b""),
        get(0x00, "a"),
        get(0x09, "no"),
        get(0x0d, "b"),
        get(0x0c, "no"),
        set(0x01, "large", &large),
        get(0x00, "large"),
        set(0x02, "large", &large),
        set(0x13, "none", &large),
        frame_cas(0x01, &[0; 8], b"none", &large, 9),
        frame(0x0e, b"", "large", &large),
        frame(0x1a, b"", "none", &large),
        get(0x0c, "large"),
        number(0x05, "n", 1, 9, 0),
        number(0x16, "n", 1, 9, 0),
        number(0x05, "n", 2, 9, 0),
        number(0x05, "a", 2, 9, 0),
        frame(0x1c, &seconds, "a", b""),
        frame(0x24, &seconds, "large", b""),
        frame(0x30, b"ext", "key", &large),
        get(0x04, "a"),
        get(0x14, "a"),
        get(0x18, ""),
        get(0x00, "large"),
        get(0x0b, ""),
        get(NOOP, ""),
        get(0x07, ""),
    ]
    .concat()
}

#[test]
fn frames_in_any_pieces_give_the_same_replies() {
    let input = pipeline();
    let whole = crate::bench().run(&mut Session::new(), &input, usize::MAX);
    let codes: Vec<(u8, u16)> = replies(&whole.0).iter().map(|reply| (reply.code, reply.status)).collect();
    assert_eq!(
        codes,
        [
            (0x01, 0),
            (0x00, 0),
            (0x0d, 0),
            (0x0c, 1),
            (0x01, 0),
            (0x00, 0),
            (0x02, 2),
            (0x13, 1),
            (0x01, 1),
            (0x0e, 0),
            (0x1a, 5),
            (0x0c, 0),
            (0x05, 0),
            (0x05, 0),
            (0x05, 6),
            (0x1c, 0),
            (0x24, 0),
            (0x30, 0x81),
            (0x04, 0),
            (0x14, 1),
            (0x00, 1),
            (0x0b, 0),
            (0x0a, 0),
            (0x07, 0),
        ]
    );
    let large = &replies(&whole.0)[11].value;
    assert!(large.len() == 40_000 && large[..20_000] == large[20_000..]);
    assert!(whole.1, "it ends");
    for step in [1, 2, 3, 7, 23, 24, 25, 333, 4095, 4096, 4097, 65_536] {
        assert!(crate::bench().run(&mut Session::new(), &input, step) == whole, "in steps of {step}");
    }
    for limit in [1, 100, 5000] {
        let mut bench = crate::bench();
        bench.limit = limit;
        assert!(bench.run(&mut Session::new(), &input, usize::MAX) == whole, "full at {limit}");
    }
    let mut bench = Bench::new(Settings { requests_per_event: Some(1), ..Settings::default() });
    assert!(bench.run(&mut Session::new(), &input, usize::MAX) == whole, "one request a turn");
    assert!(bench.counted(Counter::ConnYields) >= 20);
}

#[test]
fn a_pipeline_of_more_keys_than_are_read_ahead_is_answered_in_order() {
    let mut bench = crate::bench();
    let sets: Vec<u8> =
        (0..100).flat_map(|n| set(0x11, &format!("k{n}"), format!("v{n}").as_bytes())).collect();
    let gets: Vec<u8> = (0..200).flat_map(|n| get(0x0d, &format!("k{n}"))).collect();
    let noop = get(NOOP, "");
    let expected: Vec<String> =
        (0..100).map(|n| format!("0d 0 7 k{n} v{n}*")).chain(["0a 0".to_owned()]).collect();
    let told = told(&mut bench, &mut Session::new(), &[sets, gets, noop].concat());
    assert_eq!(told, expected);
}

#[test]
fn the_settings_say_what_a_first_byte_may_begin() {
    let noop = get(NOOP, "");
    let undetected = RedisSettings { detected: false, ..RedisSettings::default() };
    let ascii = Settings { binary: false, ..Settings::default() };
    let mut bench = Bench::with_redis(ascii, undetected.clone());
    talk(&mut bench, &[&noop], &["closed"]);
    assert_eq!(bench.ask("mn\r\n"), "MN\r\n");
    let mut bench = Bench::with_redis(Settings { text: false, ..Settings::default() }, undetected);
    talk(&mut bench, &[&noop], &["0a 0"]);
    for other in [&b"mn\r\n"[..], b"*1\r\n$4\r\nPING\r\n", b"\x81"] {
        assert_eq!(bench.run(&mut Session::new(), other, usize::MAX), (Vec::new(), true));
    }
}

pub fn guarded(text_auth: bool) -> Bench {
    let users = vec![("app".to_owned(), "secret".into())];
    Bench::new(Settings { users, text_auth, ..Settings::default() })
}

pub fn plain(value: &[u8]) -> Vec<u8> {
    frame(0x21, b"", "PLAIN", value)
}

#[test]
fn a_client_that_is_asked_says_who_it_is_by_sasl() {
    let mut bench = guarded(true);
    let noop = get(NOOP, "");
    let version = told(&mut crate::bench(), &mut Session::new(), &get(0x0b, "")).remove(0);
    talk(
        &mut bench,
        &[&get(0x20, ""), &get(0x0b, ""), &plain(b"\0app\0secret"), &noop, &set(0x01, "k", b"v")],
        &["20 0 PLAIN", &version, "21 0 Authenticated", "0a 0", "01 0*"],
    );
    // The password comes in a second frame.
    talk(
        &mut bench,
        &[&plain(b""), &frame(0x22, b"", "PLAIN", b"app\0app\0secret"), &noop],
        &["21 33", "22 0 Authenticated", "0a 0"],
    );
    // A login that fails leaves the former one in force.
    talk(
        &mut bench,
        &[&plain(b"\0app\0secret"), &plain(b"\0app\0wrong"), &noop],
        &["21 0 Authenticated", "21 32 Auth failure.", "0a 0"],
    );
    for wrong in [
        plain(b"\0app\0wrong"),
        plain(b"\0other\0secret"),
        plain(b"other\0app\0secret"),
        plain(b"nonsense"),
        frame(0x22, b"", "PLAIN", b"\0app\0secret"),
        frame(0x21, b"", "CRAM-MD5", b""),
        plain(&[0; 33_000]),
    ] {
        let reply = format!("{:02x} 32 Auth failure.", wrong[1]);
        talk(
            &mut bench,
            &[&wrong, &get(0x20, ""), &noop],
            &[&reply, "20 0 PLAIN", "0a 32 Auth failure.", "closed"],
        );
    }
    let long = "m".repeat(33);
    let name = |bytes: usize| frame(0x21, b"", &long[..bytes], b"x");
    talk(
        &mut bench,
        &[&name(31), &name(32), &name(33)],
        &["21 32 Auth failure.", "21 32 Auth failure.", "21 4 Invalid arguments"],
    );
    assert_eq!(bench.counted(Counter::AuthErrors), 1 + 6 + 2);
}

#[test]
fn a_client_that_has_not_said_who_it_is_is_closed_with_the_first_frame_that_asks_for_more() {
    let mut bench = guarded(true);
    let noop = get(NOOP, "");
    for bad in [
        noop.clone(),
        get(0x07, ""),
        get(0x00, "k"),
        set(0x01, "k", b"v"),
        set(0x01, "k", &[b'v'; 50_000])[..60].to_vec(),
        // The header is enough for the refusal, however much of the rest is missing.
        get(0x00, &"k".repeat(250))[..24].to_vec(),
        set(0x01, "k", b"v")[..24].to_vec(),
        get(0x10, ""),
        frame(0x50, b"", "k", b"v"),
        get(0x00, &"k".repeat(251)),
    ] {
        let reply = format!("{:02x} 32 Auth failure.", bad[1]);
        talk(&mut bench, &[&bad, &plain(b"\0app\0secret"), &noop], &[&reply, "closed"]);
    }
    let mut short = get(0x00, "kkk");
    short[11] = 1;
    talk(&mut bench, &[&short], &["00 129 Unknown command", "closed"]);
    assert_eq!(bench.ask("get k\r\n"), "CLIENT_ERROR unauthenticated\r\n");
    // If text clients need not log in, clients of the binary protocol need not either, but may.
    let mut open = guarded(false);
    talk(&mut open, &[&noop, &plain(b"\0app\0secret"), &noop], &["0a 0", "21 0 Authenticated", "0a 0"]);
}
