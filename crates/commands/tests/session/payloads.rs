//! DUMP, RESTORE and COPY of collections: every form in which Redis has kept one, what is not as it should be, and large
//! ones, in steps.

use crate::pairs::waits;
use crate::slices::turns;
use crate::{Bench, START, bench};
use larder_commands::{Next, SLICE_NS, Session};
use larder_testkit::redis::forms::{self, FORMS, Form, Kind, Words, body, sealed};
use larder_testkit::redis::frame::Frame;
use larder_testkit::talk::encode;

const BAD: &str = "-ERR Bad data format\r\n";
const TOO_LARGE: &str = "-ERR collection exceeds maximum allowed size (16384 bytes of an element with its key, of a list, a set, a value or an entry of a stream 4 MiB, of a sorted set 1 MiB; an element of a list or a value that comes last 64 MiB)\r\n";
const MEBIBYTE: usize = 1 << 20;

/// The texts of an array.
pub fn texts(reply: &[u8]) -> Vec<Vec<u8>> {
    let (frame, bytes) = Frame::read(reply).expect("a reply").expect("all of it");
    assert_eq!(bytes, reply.len());
    frame.inside.iter().map(|one| one.body.clone().expect("a string")).collect()
}

fn bulk(reply: &[u8]) -> Vec<u8> {
    let (frame, bytes) = Frame::read(reply).expect("a reply").expect("all of it");
    assert_eq!(bytes, reply.len());
    frame.body.unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(reply)))
}

impl Bench {
    fn sends(&mut self, words: &[&[u8]]) -> Vec<u8> {
        self.turns(&mut Session::new(), &encode(words)).0
    }

    fn restores(&mut self, payload: &[u8]) -> String {
        let reply = self.sends(&[b"RESTORE", b"k", b"0", payload]);
        String::from_utf8_lossy(&reply).into_owned()
    }

    /// What a key has, in an order that is always the same.
    fn shows(&mut self, kind: Kind, key: &[u8]) -> Words {
        match kind {
            Kind::List => texts(&self.sends(&[b"LRANGE", key, b"0", b"-1"])),
            Kind::Set => {
                let mut members = texts(&self.sends(&[b"SMEMBERS", key]));
                members.sort();
                members
            }
            Kind::SortedSet => texts(&self.sends(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"])),
            Kind::Hash => {
                let words = texts(&self.sends(&[b"HGETALL", key]));
                let mut pairs: Vec<_> = words.chunks(2).map(<[_]>::to_vec).collect();
                pairs.sort();
                pairs.concat()
            }
        }
    }
}

/// What a collection of some words would show.
fn shown(kind: Kind, words: &Words) -> Words {
    let mut rows: Vec<Words> = match kind {
        Kind::List | Kind::Set => words.iter().map(|word| vec![word.clone()]).collect(),
        Kind::SortedSet | Kind::Hash => words.chunks(2).map(<[_]>::to_vec).collect(),
    };
    match kind {
        Kind::List => {}
        Kind::Set | Kind::Hash => rows.sort(),
        Kind::SortedSet => rows.sort_by(|one, other| {
            let score = |row: &Words| std::str::from_utf8(&row[1]).unwrap().parse::<f64>().unwrap();
            score(one).total_cmp(&score(other)).then_with(|| one[0].cmp(&other[0]))
        }),
    }
    rows.concat()
}

/// A hash in which a field expires, as Redis writes it.
fn timed(entries: &[u8], count: u8) -> Vec<u8> {
    [&[24][..], &1_900_000_000_000_u64.to_le_bytes(), &[count], entries].concat()
}

/// The same in one string.
fn packed(words: &[&[u8]]) -> Vec<u8> {
    let words: Words = words.iter().map(|word| word.to_vec()).collect();
    let mut body = [&[25][..], &1_900_000_000_000_u64.to_le_bytes()].concat();
    forms::string(&mut body, &forms::listpack(&words));
    body
}

/// The same as Valkey writes it.
fn valkey(at: i64) -> Vec<u8> {
    [&b"\x16\x01\x01f\x01v"[..], &at.to_le_bytes()].concat()
}

/// Strings and numbers of all lengths that a form has a way of its own for.
fn words(kind: Kind, form: Form, entries: usize, bytes_max: usize) -> Words {
    let numbers = ["0", "12", "13", "-1", "127", "-128", "4095", "-4096", "32767", "-32769", "8388607"];
    let more = ["-8388609", "2147483648", "-9223372036854775808", "9223372036854775807"];
    let numbers: Vec<&str> = numbers.into_iter().chain(more).collect();
    let lengths = [1, 62, 63, 64, 65, 253, 254, 255, 4095, 4096, 5000];
    let word = |n: usize| -> Vec<u8> {
        if form == Form::Intset || n < numbers.len() && !n.is_multiple_of(3) {
            return numbers
                .get(n)
                .map_or((1_000 * n).to_string(), |number| (*number).to_owned())
                .into_bytes();
        }
        let mut word = format!("{n}:").into_bytes();
        word.resize(lengths[n % lengths.len()].min(bytes_max).max(word.len()), b'x');
        word
    };
    match kind {
        Kind::List | Kind::Set => (0..entries).map(word).collect(),
        Kind::Hash => (0..entries).flat_map(|n| [word(n), word(n / 2)]).collect(),
        Kind::SortedSet => {
            let scores = ["inf", "-inf", "0", "1.5", "-7", "3", "3", "3"];
            (0..entries).flat_map(|n| [word(n), scores[n % scores.len()].into()]).collect()
        }
    }
}

#[test]
fn every_form_that_redis_has_had_is_restored_and_what_is_dumped_of_it() {
    for &(kind, form, number) in FORMS {
        for (entries, packs) in [(1, false), (2, true), (40, false), (200, false), (200, true)] {
            let mut bench = bench();
            let held = bench.worker.store().held_bytes();
            let words = words(kind, form, entries, 5_000);
            let shown = shown(kind, &words);
            // By versions of Redis and of Valkey.
            for version in [1, 9, 10, 12, 80] {
                let payload = sealed(&body(kind, form, number, &words, packs), version);
                bench.sends(&[b"DEL", b"k"]);
                assert_eq!(bench.restores(&payload), "+OK\r\n", "{kind:?} {form:?} {entries} {packs}");
                assert_eq!(bench.shows(kind, b"k"), shown, "{kind:?} {form:?} {entries}");
                if number > 20 {
                    let told = bench.sends(&[
                        b"HPEXPIRETIME",
                        b"k",
                        b"FIELDS",
                        b"2",
                        &words[0],
                        &words[words.len() - 2],
                    ]);
                    let last = forms::time(entries - 1);
                    let last = if last == 0 { "-1".to_owned() } else { last.to_string() };
                    assert_eq!(String::from_utf8_lossy(&told), format!("*2\r\n:-1\r\n:{last}\r\n"));
                }
            }
            let payload = bulk(&bench.sends(&[b"DUMP", b"k"]));
            assert_eq!(bench.sends(&[b"RESTORE", b"again", b"0", &payload]), b"+OK\r\n");
            assert_eq!(bench.shows(kind, b"again"), shown);
            assert_eq!(bench.sends(&[b"COPY", b"k", b"copied"]), b":1\r\n");
            assert_eq!(bench.shows(kind, b"copied"), shown);
            assert_eq!(bench.worker.store().held_bytes(), held);
        }
    }
}

/// A body that was broken in any way is restored, or refused and nothing is kept: the rest of the bytes is not believed.
#[test]
fn a_body_that_is_broken_anywhere_is_refused_or_is_another_value() {
    let (mut refused, mut taken) = (0, 0);
    for &(kind, form, number) in FORMS {
        for packs in [false, true] {
            let mut bench = bench();
            let held = bench.worker.store().held_bytes();
            let body = body(kind, form, number, &words(kind, form, 20, 70), packs);
            let mut broken: Vec<Vec<u8>> = (0..body.len()).map(|end| body[..end].to_vec()).collect();
            broken.push([&body[..], b"\0"].concat());
            // What is said by it is near the beginning of each string, most of which are short.
            for at in 0..body.len().min(400) {
                for byte in [0, 1, 0x7f, 0x80, 0xc0, 0xfe, 0xff, body[at] ^ 1, body[at].wrapping_add(2)] {
                    let mut one = body.clone();
                    one[at] = byte;
                    broken.push(one);
                }
            }
            for (i, one) in broken.iter().enumerate() {
                let said = bench.restores(&sealed(one, 10));
                match said.as_str() {
                    "+OK\r\n" => {
                        assert!(i > body.len(), "a part of it is no whole: {kind:?} {form:?} {i}");
                        taken += 1;
                        let payload = bench.sends(&[b"DUMP", b"k"]);
                        assert!(payload.starts_with(b"$"));
                        // The time of the only field may have passed.
                        let gone = payload == b"$-1\r\n" && number > 20;
                        let count = if gone { b":0\r\n" } else { b":1\r\n" };
                        assert_eq!(bench.sends(&[b"DEL", b"k"]), count);
                    }
                    BAD | TOO_LARGE => {
                        refused += 1;
                        assert_eq!(bench.sends(&[b"EXISTS", b"k"]), b":0\r\n");
                    }
                    "-OOM connections hold as much memory as they may\r\n" if packs => refused += 1,
                    other => panic!("{kind:?} {form:?} {i}: {other}"),
                }
            }
            assert_eq!(bench.worker.store().held_bytes(), held);
        }
    }
    assert!(refused > 10_000 && taken > 1_000, "{refused} {taken}");
}

#[test]
fn what_is_no_collection_is_told_so() {
    let mut bench = bench();
    let of = |words: &[&str]| -> Words { words.iter().map(|word| word.as_bytes().to_vec()).collect() };
    let mut rows: Vec<(&str, Vec<u8>, &str)> = Vec::new();
    for &(kind, form, number) in FORMS {
        rows.push(("nothing in it", body(kind, form, number, &Words::new(), false), BAD));
        if kind != Kind::List && form != Form::Intset {
            let twice: &[&str] =
                if kind == Kind::Set { &["a", "b", "a"] } else { &["a", "1", "b", "2", "a", "3"] };
            rows.push(("twice", body(kind, form, number, &of(twice), false), BAD));
            let number_twice: &[&str] = if kind == Kind::Set { &["7", "7"] } else { &["7", "1", "7", "2"] };
            rows.push(("a number twice", body(kind, form, number, &of(number_twice), false), BAD));
        }
        let packed = !matches!(form, Form::Plain | Form::OldPlain | Form::Intset);
        if packed && matches!(kind, Kind::Hash | Kind::SortedSet) && form != Form::Zipmap {
            rows.push(("half a pair", body(kind, form, number, &of(&["a", "1", "b"]), false), BAD));
        }
    }
    let plain = |number: u8, entries: usize, rest: &[u8]| {
        let mut body = vec![number];
        forms::length(&mut body, entries);
        body.extend(rest);
        body
    };
    let long = vec![b'l'; 17_000];
    let mut long_element = Vec::new();
    forms::string(&mut long_element, &long);
    // A hundred zeros, of which all but the first refer to it.
    let zeros = [0xc3, 5, 0x40, 100, 0, b'0', 0xe0, 90, 0];
    let mut a_lot = vec![0xc3];
    forms::length(&mut a_lot, 4);
    a_lot.extend([0x80, 0x7f, 0xff, 0xff, 0xff, 0, b'0', 0x20, 0]);
    rows.extend([
        ("NaN", [&plain(5, 1, b"\x01a")[..], &f64::NAN.to_le_bytes()].concat(), BAD),
        ("NaN as text", plain(3, 1, b"\x01a\xfd"), BAD),
        ("NaN in words", plain(3, 1, b"\x01a\x03nan"), BAD),
        ("no score", plain(3, 1, b"\x01a\x00"), BAD),
        ("a score of letters", body(Kind::SortedSet, Form::Listpack, 17, &of(&["a", "b"]), false), BAD),
        ("more than there is", plain(2, 3, b"\x01a\x01b"), BAD),
        ("less than there is", plain(2, 1, b"\x01a\x01b"), BAD),
        ("billions", [&[2, 0x80, 0xff, 0xff, 0xff, 0xff][..], b"\x01a"].concat(), BAD),
        ("as many as there can be", [&[2, 0x81][..], &[0xff; 8], b"\x01a"].concat(), BAD),
        ("no length", vec![2, 0x82, 1, b'a'], BAD),
        ("a number for a length", vec![2, 0xc0, 1, b'a'], BAD),
        ("a long element of a list", plain(1, 1, &long_element), "+OK\r\n"),
        (
            "a long element of a list among others",
            plain(18, 1, &[&b"\x01"[..], &long_element].concat()),
            "+OK\r\n",
        ),
        ("a long member", plain(2, 1, &long_element), "+OK\r\n"),
        ("a long member twice", plain(2, 2, &long_element.repeat(2)), BAD),
        (
            "a long member with a score",
            plain(5, 1, &[&long_element[..], &1.0_f64.to_le_bytes()].concat()),
            "+OK\r\n",
        ),
        (
            "a long member twice, with two scores",
            plain(
                5,
                2,
                &[&long_element[..], &1.0_f64.to_le_bytes(), &long_element, &2.0_f64.to_le_bytes()].concat(),
            ),
            BAD,
        ),
        (
            "a long member whose score is no number",
            plain(5, 1, &[&long_element[..], &f64::NAN.to_le_bytes()].concat()),
            BAD,
        ),
        ("a long element, compressed", plain(1, 1, &[0xc3, 0x40, 0x80, 0x80, 0, 0, 0x80, 0]), BAD),
        ("elements that are compressed", plain(1, 1, &zeros), "+OK\r\n"),
        ("a blob that is billions", [&[16][..], &a_lot].concat(), BAD),
        ("a blob that is a number", vec![16, 0xc0, 1], BAD),
        ("a node of no kind", plain(18, 1, b"\x03\x01a"), BAD),
        ("a node of an element", plain(18, 1, b"\x01\x01a"), "+OK\r\n"),
        ("an empty node", [&plain(14, 2, &[])[..], b"\x0b", &forms::ziplist(&[]), b"\x01a"].concat(), BAD),
        ("fields that expire, cut off", vec![24, 1], BAD),
        ("the same in one string", vec![25, 1], BAD),
        ("the same of Valkey", vec![22, 1], BAD),
        ("fields that expire", timed(&[5, 1, b'f', 1, b'v', 0, 1, b'g', 1, b'w'], 2), "+OK\r\n"),
        ("no fields that expire", timed(&[], 0), BAD),
        ("more fields that expire than are said", timed(&[5, 1, b'f', 1, b'v', 0, 1, b'g', 1, b'w'], 1), BAD),
        ("fewer fields that expire", timed(&[5, 1, b'f', 1, b'v'], 2), BAD),
        ("a field that expires twice", timed(&[5, 1, b'f', 1, b'v', 0, 1, b'f', 1, b'w'], 2), BAD),
        (
            "a field beyond all time",
            timed(&[&[0x81, 0xff, 0, 0, 0, 0, 0, 0, 0][..], b"\x01f\x01v"].concat(), 1),
            BAD,
        ),
        ("a time beyond all numbers", timed(&[&[0x81][..], &[0xff; 8], b"\x01f\x01v"].concat(), 1), BAD),
        ("fields in one string", packed(&[b"f", b"v", b"1900000000000", b"g", b"w", b"0"]), "+OK\r\n"),
        ("a field in one string without a time", packed(&[b"f", b"v", b"1900000000000", b"g", b"w"]), BAD),
        ("a time that is text", packed(&[b"f", b"v", b"never"]), BAD),
        ("a time below 0", packed(&[b"f", b"v", b"-1"]), BAD),
        ("a field of Valkey's", valkey(1_900_000_000_000), "+OK\r\n"),
        ("a field of Valkey's that does not expire", valkey(-1), "+OK\r\n"),
        ("a field of Valkey's before all time", valkey(-2), BAD),
        ("a field of Valkey's at no time", valkey(0), BAD),
        ("a stream", vec![21, 1], BAD),
        ("a module's", vec![7, 1], BAD),
        ("no type", vec![99, 1], BAD),
        ("a descending intset", vec![11, 12, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 1, 0], BAD),
        ("a number twice in an intset", vec![11, 12, 2, 0, 0, 0, 2, 0, 0, 0, 1, 0, 1, 0], BAD),
        ("an intset of three bytes", vec![11, 11, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0], BAD),
    ]);
    for (about, body, said) in rows {
        assert_eq!(bench.restores(&sealed(&body, 10)), said, "{about}: {body:?}");
        assert_eq!(
            bench.sends(&[b"DEL", b"k"]),
            format!(":{}\r\n", u8::from(said == "+OK\r\n")).into_bytes()
        );
    }
    // The checksum comes first, and the version.
    let mut payload = sealed(&plain(2, 1, b"\x01a"), 10);
    payload[2] ^= 1;
    let wrong = "-ERR DUMP payload version or checksum are wrong\r\n";
    assert_eq!(bench.restores(&payload), wrong);
    for version in [13, 79, 90] {
        assert_eq!(bench.restores(&sealed(&plain(2, 1, b"\x01a"), version)), wrong);
    }
    // Scores that are not in order are put in order.
    let words = of(&["c", "3", "a", "1", "d", "1", "b", "-inf"]);
    for &(kind, form, number) in FORMS.iter().filter(|(kind, ..)| *kind == Kind::SortedSet) {
        assert_eq!(bench.restores(&sealed(&body(kind, form, number, &words, false), 10)), "+OK\r\n");
        assert_eq!(bench.shows(kind, b"k"), of(&["b", "-inf", "a", "1", "d", "1", "c", "3"]));
        bench.sends(&[b"DEL", b"k"]);
    }
}

#[test]
fn what_goes_with_a_collection_is_restored_as_of_a_string() {
    let mut bench = bench();
    let payload = sealed(b"\x02\x02\x01a\x01b", 10);
    let restore = |bench: &mut Bench, ttl: &str, more: &[&[u8]]| {
        let words = [&[&b"RESTORE"[..], b"k", ttl.as_bytes(), &payload][..], more].concat();
        String::from_utf8_lossy(&bench.sends(&words)).into_owned()
    };
    assert_eq!(restore(&mut bench, "5000", &[]), "+OK\r\n");
    assert_eq!(bench.sends(&[b"PTTL", b"k"]), b":5000\r\n");
    assert_eq!(restore(&mut bench, "0", &[]), "-BUSYKEY Target key name already exists.\r\n");
    assert_eq!(restore(&mut bench, "0", &[b"REPLACE"]), "+OK\r\n");
    assert_eq!(bench.sends(&[b"PTTL", b"k"]), b":-1\r\n");
    let at = (START + 7_000).to_string();
    assert_eq!(restore(&mut bench, &at, &[b"ABSTTL", b"REPLACE", b"IDLETIME", b"100"]), "+OK\r\n");
    assert_eq!(bench.sends(&[b"PEXPIRETIME", b"k"]), format!(":{at}\r\n").into_bytes());
    assert_eq!(bench.sends(&[b"OBJECT", b"IDLETIME", b"k"]), b":100\r\n");
    bench.sends(&[b"CONFIG", b"SET", b"maxmemory-policy", b"allkeys-lfu"]);
    assert_eq!(restore(&mut bench, "0", &[b"REPLACE", b"FREQ", b"3"]), "+OK\r\n");
    bench.sends(&[b"OBJECT", b"FREQ", b"k"]);
    // Its time has passed: nothing is there, whatever was.
    assert_eq!(restore(&mut bench, "1000", &[b"ABSTTL", b"REPLACE"]), "+OK\r\n");
    assert_eq!(bench.sends(&[b"EXISTS", b"k"]), b":0\r\n");
    // In place of whatever is there.
    bench.sends(&[b"SET", b"k", b"string"]);
    assert_eq!(restore(&mut bench, "0", &[b"REPLACE"]), "+OK\r\n");
    assert_eq!(bench.shows(Kind::Set, b"k"), [b"a", b"b"]);
    // As one of several commands.
    let sent = [encode(&[b"MULTI"]), encode(&[b"DUMP", b"k"]), encode(&[b"RESTORE", b"l", b"0", &payload])];
    let sent =
        [sent.concat(), encode(&[b"DUMP", b"none"]), encode(&[b"COPY", b"l", b"m"]), encode(&[b"EXEC"])];
    let reply = bench.turns(&mut Session::new(), &sent.concat()).0;
    let reply = String::from_utf8_lossy(&reply).into_owned();
    assert!(reply.starts_with("+OK\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n+QUEUED\r\n*4\r\n$16\r\n"), "{reply}");
    assert!(reply.ends_with("\r\n+OK\r\n$-1\r\n:1\r\n"), "{reply}");
    assert_eq!(bench.shows(Kind::Set, b"m"), [b"a", b"b"]);
}

/// Entries of a large collection, and bytes of one.
const LARGE: [(Kind, usize); 4] =
    [(Kind::Hash, 40_000), (Kind::Set, 60_000), (Kind::SortedSet, 80_000), (Kind::List, 100_000)];

fn entry(kind: Kind, n: usize) -> Words {
    let word = |text: String| text.into_bytes();
    match kind {
        Kind::List | Kind::Set => vec![word(format!("element number {n}"))],
        Kind::Hash => vec![word(format!("field {n}")), word(format!("a value {n}"))],
        Kind::SortedSet => vec![word(format!("member {n}")), word((n * 7919 % 9973).to_string())],
    }
}

fn large(kind: Kind, entries: usize) -> Words {
    (0..entries).flat_map(|n| entry(kind, n)).collect()
}

#[test]
fn large_ones_are_dumped_restored_and_copied_in_steps() {
    for (kind, entries) in LARGE {
        let mut bench = bench();
        let held = bench.worker.store().held_bytes();
        let words = large(kind, entries);
        let shown = shown(kind, &words);
        let (form, number) = match kind {
            Kind::List => (Form::Plain, 1),
            Kind::Set => (Form::Plain, 2),
            Kind::SortedSet => (Form::Plain, 5),
            Kind::Hash => (Form::Plain, 4),
        };
        let payload = sealed(&body(kind, form, number, &words, false), 10);
        let request = encode(&[b"RESTORE", b"k", b"0", &payload]);
        let (reply, count) = turns(&mut bench, &mut Session::new(), &request);
        assert_eq!((reply, count > 10), (b"+OK\r\n".to_vec(), true), "{kind:?} {count}");
        assert!(bench.shows(kind, b"k") == shown);
        let (reply, count) = bench.bounded("DUMP k");
        assert!(count > 2, "{kind:?} {count}");
        let dumped = bulk(&reply);
        assert_eq!(dumped.len(), payload.len());
        let request = encode(&[b"RESTORE", b"l", b"100000", &dumped]);
        let (reply, _) = turns(&mut bench, &mut Session::new(), &request);
        assert_eq!(reply, b"+OK\r\n");
        assert!(bench.shows(kind, b"l") == shown);
        assert!(bench.worker.store().held_bytes() == held);
        let (reply, count) = bench.bounded("COPY l c");
        assert_eq!(reply, b":1\r\n");
        assert!(count > 2, "{kind:?} {count}");
        assert!(bench.shows(kind, b"c") == shown);
        assert_eq!(bench.reply("PTTL c"), b":100000\r\n");
        assert_eq!(bench.reply("COPY k c"), b":0\r\n");
        assert_eq!(bench.reply("COPY k c REPLACE"), b":1\r\n");
        assert_eq!(bench.reply("PTTL c"), b":-1\r\n");
        assert_eq!(bench.reply("COPY k k DB 1"), b":1\r\n");
        assert_eq!(bench.worker.store().held_bytes(), held);
        // Each is its own.
        assert_eq!(bench.reply("DEL k l"), b":2\r\n");
        assert!(bench.shows(kind, b"c") == shown);
    }
}

/// Others write to what is copied, and to what is restored, between two steps.
#[test]
fn others_that_write_meanwhile_are_seen() {
    for (kind, entries) in LARGE {
        let mut bench = bench();
        let words = large(kind, entries);
        let (form, number) = FORMS
            .iter()
            .find(|(of, form, _)| *of == kind && *form == Form::Plain)
            .map(|row| (row.1, row.2))
            .unwrap();
        let payload = sealed(&body(kind, form, number, &words, false), 10);
        let request = encode(&[b"RESTORE", b"k", b"0", &payload]);
        assert_eq!(bench.turns(&mut Session::new(), &request).0, b"+OK\r\n");
        let (write, count) = match kind {
            Kind::List => ("RPUSH k one#", "LLEN c"),
            Kind::Set => ("SADD k one#", "SCARD c"),
            Kind::SortedSet => ("ZADD k 1 one#", "ZCARD c"),
            Kind::Hash => ("HSET k one# 1", "HLEN c"),
        };
        let mut there = entries;
        // 1. What is written while it is copied or dumped is copied, too. A key that is always written to is held in the end, and
        // writes wait until all of it is copied.
        for (words, always) in
            [("COPY k c", false), ("COPY k c REPLACE", true), ("DUMP k", false), ("DUMP k", true)]
        {
            let mut session = Session::new();
            let request = bench.asked(words);
            let mut first = bench.call(&mut session, &request);
            let (before, mut waited) = (there, 0);
            while first.0 == Next::Yield {
                let adds = bench.asked(&write.replace('#', &there.to_string()));
                if session.holds() {
                    waits(&mut bench, &mut Session::new(), &adds, words);
                    waited += 1;
                } else if waited > 0 || there > before && !always {
                    break;
                } else {
                    assert!(bench.turns(&mut Session::new(), &adds).0.starts_with(b":"), "{kind:?}");
                    there += 1;
                }
                let (next, more, consumed) = bench.call(&mut session, &request[first.2..]);
                first = (next, [first.1, more].concat(), first.2 + consumed);
            }
            assert_eq!(waited > 0, always, "{kind:?} {words}: it is written to {} times", there - before);
            let (reply, _) = bench.turns_after(first, &mut session, &request);
            if words.starts_with("DUMP") {
                let restore = encode(&[b"RESTORE", b"c", b"0", &bulk(&reply), b"REPLACE"]);
                assert_eq!(bench.turns(&mut Session::new(), &restore).0, b"+OK\r\n");
            } else {
                assert_eq!(reply, b":1\r\n");
            }
            assert_eq!(bench.reply(count), format!(":{there}\r\n").as_bytes(), "{kind:?} {words}");
            // Others have their turn before the next holds keys.
            bench.system += 100;
        }
        // 2. The key is another's by then.
        for (others, said) in
            [("SET t x", "-BUSYKEY Target key name already exists.\r\n"), ("SET u x", "+OK\r\n")]
        {
            let mut session = Session::new();
            let request = encode(&[b"RESTORE", b"t", b"0", &payload]);
            let first = bench.call(&mut session, &request);
            assert_eq!(first.0, Next::Yield);
            bench.reply(others);
            let (reply, _) = bench.turns_after(first, &mut session, &request);
            assert_eq!(String::from_utf8_lossy(&reply), said);
            bench.reply("DEL t u");
        }
        // 3. The client goes away.
        let held = bench.worker.store().held_bytes();
        for request in [encode(&[b"RESTORE", b"t", b"0", &payload]), encode(&[b"COPY", b"k", b"t"])] {
            let mut session = Session::new();
            let mut at = 0;
            for _ in 0..2 {
                let (next, _, consumed) = bench.call(&mut session, &request[at..]);
                at += consumed;
                assert_eq!(next, Next::Yield);
            }
            drop(session);
            assert_eq!(bench.worker.store().held_bytes(), held);
            assert_eq!(bench.reply("EXISTS t"), b":0\r\n");
        }
    }
}

/// What is small as it comes and would be very much: no more than is there, and others wait no longer.
#[test]
fn what_unpacks_to_very_much_is_refused_and_given_back() {
    let mut bench = bench();
    let held = bench.worker.store().held_bytes();
    // A node of 4,000 times the same element of eight bytes, said by a few references.
    let node = forms::listpack(&vec![b"elements".to_vec(); 4_000]);
    let mut packed = Vec::new();
    packed.push(25);
    packed.extend(&node[..26]);
    let mut left = node.len() - 26 - 1;
    while left > 0 {
        let len = left.min(260);
        assert!(len > 8, "what is left is a reference, too");
        packed.extend([0xe0, (len - 9) as u8, 9]);
        left -= len;
    }
    packed.extend([0, 0xff]);
    let mut body = vec![18];
    let nodes = 4_000;
    forms::length(&mut body, nodes);
    for _ in 0..nodes {
        body.push(2);
        body.push(0xc3);
        forms::length(&mut body, packed.len());
        forms::length(&mut body, node.len());
        body.extend(&packed);
    }
    assert!(body.len() < 2 * MEBIBYTE);
    let (mut session, mut at) = (Session::new(), 0);
    let request = encode(&[b"RESTORE", b"k", b"0", &sealed(&body, 10)]);
    let (mut reply, mut turns) = (Vec::new(), 0);
    loop {
        let (next, more, consumed) = bench.call(&mut session, &request[at..]);
        assert!(bench.room.work().done_ns() <= 3 * SLICE_NS, "{}", bench.room.work().done_ns());
        at += consumed;
        reply.extend(more);
        turns += 1;
        if next == Next::Receive {
            break;
        }
    }
    assert!(reply.starts_with(b"-OOM "), "{}", String::from_utf8_lossy(&reply));
    assert!(turns > 100, "{turns}");
    assert_eq!(bench.worker.store().held_bytes(), held);
    assert_eq!(bench.reply("EXISTS k"), b":0\r\n");
    // There is room for others at once.
    assert_eq!(bench.sends(&[b"SET", b"other", &vec![b'x'; 4 * MEBIBYTE]]), b"+OK\r\n");
}
