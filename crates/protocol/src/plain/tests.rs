//! Plain lines are read as the general decoder reads them, and all others are left to it.

use super::*;
use crate::classic::{Decoded, KeyStep, Request, StoreVerb, decode, next_key};
use crate::meta::Verb;
use proptest::prelude::*;

const VALUE_BYTES_MAX: usize = 40;

/// Key, first, last, and what is asked.
type Seen<'a> = (&'a [u8], bool, bool, Ask<'a>);

/// What the general decoder makes of `input`, up to the first line that is not plain.
fn general(input: &[u8]) -> Vec<Seen<'_>> {
    let mut all = Vec::new();
    let mut at = 0;
    let block = |at: &mut usize, bytes: u32| {
        let value = input.get(*at..*at + bytes as usize)?;
        *at += value.len() + 2;
        Some(value)
    };
    while at < input.len()
        && let Decoded::Request(request, bytes) = decode(&input[at..])
    {
        at += bytes;
        match request {
            Request::Fetch(fetch) if !fetch.cas && fetch.touch.is_none() => {
                let mut first = true;
                loop {
                    let KeyStep::Key { key, bytes, last } = next_key(&input[at..]) else { return all };
                    all.push((key, first, last, Ask::Get));
                    at += bytes;
                    first = false;
                    if last {
                        break;
                    }
                }
            }
            Request::Store(store) if store.verb == StoreVerb::Set && !store.noreply => {
                let Some(value) = block(&mut at, store.value_bytes) else { break };
                let ask = match (store.flags, store.exptime) {
                    (0, 0) => Ask::Set(value),
                    (flags, exptime) => Ask::SetWith(PlainSet { value, flags, exptime }),
                };
                all.push((store.key, true, true, ask));
            }
            Request::Arithmetic { key, delta, decrement: false, noreply: false } => {
                all.push((key, true, true, Ask::Add(delta)));
            }
            Request::Meta(meta) if meta.verb == Verb::Get && meta.flags.is_only(b'v') => {
                all.push((meta.key, true, true, Ask::MetaGet));
            }
            Request::Meta(meta) if meta.verb == Verb::Set && meta.flags.is_empty() => {
                let Some(value) = block(&mut at, meta.value_bytes) else { break };
                all.push((meta.key, true, true, Ask::MetaSet(value)));
            }
            _ => break,
        }
    }
    all
}

fn plain(input: &[u8]) -> Vec<Seen<'_>> {
    let mut lines = PlainLines::new(input, 0, u32::MAX, VALUE_BYTES_MAX);
    let mut all = Vec::new();
    loop {
        let mut other = lines.clone();
        let Some(plain) = lines.next() else { break };
        all.push((plain.key, plain.part.is_first(), plain.part.is_last(), plain.ask));
        // The fast ways give the same result.
        let short = if let Some((key, at)) = other.next_get() {
            Plain { key, at, part: Part::Whole, ask: Ask::Get }
        } else if let Some((key, at, value)) = other.next_set() {
            let ask = Ask::Set(value);
            Plain { key, at, part: Part::Whole, ask }
        } else {
            continue;
        };
        assert_eq!(plain, short);
        assert_eq!((other.at, other.line, other.lines_left), (lines.at, lines.line, lines.lines_left));
    }
    assert!(lines.next_get().is_none() && lines.next_set().is_none(), "no short way leads on");
    all
}

#[test]
fn usual_requests_are_plain() {
    let input = b"get a\r\nset b 0 0 2\r\nxy\r\nget c dd e\r\nset f 7 100 0\r\n\r\nget gg\r\nmg h v\r\n\
        ms i 1\r\nz\r\nincr j 17\r\nget k\r\n";
    let all = plain(input);
    assert_eq!(all.len(), 11);
    assert_eq!(all, general(input));
}

#[test]
fn a_line_that_is_not_plain_is_given_back_from_its_start() {
    let input = b"get a\r\nget b c  d\r\n";
    let mut lines = PlainLines::new(input, 0, 10, VALUE_BYTES_MAX);
    while lines.next().is_some() {}
    assert!(lines.is_inside());
    assert_eq!((lines.at(), lines.lines_left()), (7, 8));
}

#[test]
fn short_ways_take_what_is_usual() {
    let behind = " ".repeat(SHORT_SET);
    let lines = |input: &'static str| {
        let input = format!("{input}{behind}").leak().as_bytes();
        PlainLines::new(input, 0, 9, VALUE_BYTES_MAX)
    };
    assert_eq!(lines("get key-1\r\n").next_get(), Some((&b"key-1"[..], 0)));
    assert_eq!(lines("set key-1 0 0 2\r\nab\r\n").next_set(), Some((&b"key-1"[..], 0, &b"ab"[..])));
    let set = format!("set k 0 0 33\r\n{}\r\n", "v".repeat(33)).leak();
    assert_eq!(lines(set).next_set().map(|(_, _, value)| value.len()), Some(33));
    for no in
        ["set k 0 0 3\r\nab\r\n", "set k 1 0 2\r\nab\r\n", "set k 0 0 03\r\nabc\r\n", "set  0 0 1\r\na\r\n"]
    {
        assert_eq!(lines(no).next_set(), None, "{no}");
    }
    let long = format!("set k 0 0 41\r\n{}\r\n", "v".repeat(41)).leak();
    assert_eq!(lines(long).next_set(), None);
}

#[test]
fn limits_hold() {
    let set = |bytes: usize| format!("set k 0 0 {bytes}\r\n{}\r\n", "v".repeat(bytes)).into_bytes();
    assert_eq!(plain(&set(VALUE_BYTES_MAX)).len(), 1);
    assert_eq!(plain(&set(VALUE_BYTES_MAX + 1)).len(), 0);
    for (bytes, is) in [(KEY_BYTES_MAX - 1, 1), (KEY_BYTES_MAX, 1), (KEY_BYTES_MAX + 1, 0)] {
        assert_eq!(plain(format!("get {}\r\n", "k".repeat(bytes)).as_bytes()).len(), is);
    }
    let mut lines = PlainLines::new(b"get a\r\nget b\r\n", 0, 1, VALUE_BYTES_MAX);
    assert!(lines.next().is_some() && lines.next().is_none());
    assert_eq!(lines.at(), 7);
}

proptest! {
    #[test]
    fn what_is_plain_the_general_decoder_reads_alike(
        parts in prop::collection::vec(prop::sample::select(vec![
            &b"get "[..], b"set ", b"mg ", b"ms ", b"incr ", b" v\r\n", b" 2\r\n", b"a", b"key-of-some-length", b" ", b"  ", b" 0 0 ", b"2", b"11", b"\r\n", b"\n",
            b"xy\r\n", b"hello world\r\n", b"\x01", b"gets b\r\n", b"get k1 k2\r\n", b"set k 1 2 2\r\nab\r\n",
        ]), 0..30)
    ) {
        let input = parts.concat();
        let (plain, general) = (plain(&input), general(&input));
        prop_assert!(plain.len() <= general.len(), "{plain:?} {general:?}");
        prop_assert_eq!(&plain[..], &general[..plain.len()]);
    }
}
