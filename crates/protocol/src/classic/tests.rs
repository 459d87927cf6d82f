//! What lines decode to, however they arrive.

use super::*;
use proptest::prelude::*;

fn request(input: &[u8]) -> Request<'_> {
    match decode(input) {
        Decoded::Request(request, _) => request,
        other => panic!("{other:?}"),
    }
}

fn bad(swallow: u64, noreply: bool) -> Request<'static> {
    fault(Fault::BadLine, swallow, noreply)
}

/// The keys of the line of keys at the start of `input`, and the bytes of the line.
fn keys(input: &[u8]) -> (Vec<&[u8]>, usize) {
    let Decoded::Request(Request::Fetch(_), mut at) = decode(input) else { panic!("no keys") };
    let mut keys = Vec::new();
    loop {
        match next_key(&input[at..]) {
            KeyStep::Key { key, bytes, last } => {
                keys.push(key);
                at += bytes;
                if last {
                    return (keys, at);
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn lines_of_keys_are_read_key_by_key() {
    assert_eq!(keys(b"get a\r\nget b\r\n"), (vec![&b"a"[..]], 7));
    assert_eq!(keys(b"get a  bb c  \r\nx").0, [&b"a"[..], b"bb", b"c"]);
    assert_eq!(keys(b"  gets   a\tb c\n").0, [&b"a\tb"[..], b"c"]);
    assert_eq!(keys(b"gat 10 a noreply\r\n").0, [&b"a"[..], b"noreply"]);
    assert_eq!(keys(b"get a\0\x01 b\r\r\n").0, [&b"a\0\x01"[..], b"b\r"]);
    assert_eq!(request(b"gats -1 k\r\n"), Request::Fetch(Fetch { cas: true, touch: Some(-1) }));
}

#[test]
fn keys_end_at_the_limit() {
    let key = |bytes: usize| format!("get {}\r\n", "k".repeat(bytes));
    let at_limit = key(KEY_BYTES_MAX);
    assert_eq!(keys(at_limit.as_bytes()).0[0].len(), KEY_BYTES_MAX);
    let above = key(KEY_BYTES_MAX + 1);
    assert_eq!(next_key(&above.as_bytes()[4..]), KeyStep::TooLong(0));
    assert_eq!(next_key(&above.as_bytes()[4..KEY_BYTES_MAX + 4]), KeyStep::Incomplete(0));
    assert_eq!(next_key(&above.as_bytes()[4..KEY_BYTES_MAX + 5]), KeyStep::TooLong(0));
}

#[test]
fn an_unfinished_key_is_no_key() {
    assert_eq!(next_key(b"  ab"), KeyStep::Incomplete(2));
    assert_eq!(next_key(b"ab\r"), KeyStep::Incomplete(0));
    assert_eq!(next_key(b"  "), KeyStep::Incomplete(2));
    assert_eq!(next_key(b"  \r\nx"), KeyStep::End(4));
    assert_eq!(next_key(b"ab "), KeyStep::Key { key: b"ab", bytes: 2, last: false });
}

#[test]
fn too_few_tokens_are_bad_lines() {
    for line in ["get", "gets", "delete", "incr k", "touch k", "gat 10", "gat", "get  "] {
        let text = format!("{line}\r\n");
        assert_eq!(request(text.as_bytes()), bad(0, false), "{line}");
    }
    for short in ["\r\n", "\n", "a\r\n", " \r\n", "mn\n"] {
        assert_eq!(decode(short.as_bytes()), Decoded::Request(bad(0, false), short.len()), "{short:?}");
    }
}

#[test]
fn stores_say_what_to_swallow() {
    for verb in ["set", "add", "replace", "append", "prepend", "cas"] {
        for rest in [" k 0 0 noreply", " k 0 0 -", " k x x abc", " k 0 0 +1", " k 0 0 2147483646"] {
            let line = format!("{verb}{rest}\r\n");
            assert_eq!(request(line.as_bytes()), fault(Fault::NoLength, 0, false), "{line}");
        }
        for rest in ["", " k", " k 0 0", " k 0 0 -1", " k x x -2147483648"] {
            let line = format!("{verb}{rest}\r\n");
            assert_eq!(request(line.as_bytes()), bad(0, false), "{line}");
        }
    }
    assert!(matches!(request(b"set k 0 0 2147483645\r\n"), Request::Store(_)));
    assert_eq!(request(b"set k x 0 5\r\n"), bad(7, false));
    assert_eq!(request(b"set k 0 x 5 noreply\r\n"), bad(7, true));
    let long = format!("set {} 0 0 5\r\n", "k".repeat(251));
    assert_eq!(request(long.as_bytes()), bad(7, false));
    assert_eq!(request(b"cas k 0 0 5\r\n"), bad(7, false));
}

#[test]
fn noreply_is_the_last_token_only() {
    let noreply = |text: &'static str| match request(text.as_bytes()) {
        Request::Store(store) => store.noreply,
        Request::Delete { noreply, .. } => noreply,
        other => panic!("{other:?}"),
    };
    assert!(noreply("set k 0 0 1 noreply\r\n"));
    assert!(noreply("set k 0 0 1 x noreply\r\n"));
    assert!(!noreply("set k 0 0 1 noreply x\r\n"));
    assert!(noreply("delete k 0 noreply\r\n"));
    assert!(!noreply("delete noreply\r\n"));
    assert!(!noreply("delete k foo\r\n"));
}

#[test]
fn numbers_are_checked_per_field() {
    assert_eq!(request(b"incr k -1\r\n"), fault(Fault::BadDelta, 0, false));
    assert_eq!(request(b"incr k 18446744073709551616\r\n"), fault(Fault::BadDelta, 0, false));
    assert_eq!(request(b"touch k 2147483648\r\n"), fault(Fault::BadExptime, 0, false));
    assert_eq!(request(b"gat x k\r\n"), fault(Fault::BadExptime, 0, false));
    let Request::Store(store) = request(b"set k 4294967296 2147483648 1\r\n") else { panic!() };
    assert_eq!((store.flags, store.exptime), (0, i32::MIN));
}

#[test]
fn a_line_without_end_has_a_limit() {
    let line = |start: &str, bytes: usize| format!("{start}{}", "x".repeat(bytes - start.len())).into_bytes();
    for start in ["set ", "mg ", "gat 1 ", "stats "] {
        assert_eq!(decode(&line(start, LINE_BYTES_MAX - 1)), Decoded::Incomplete);
        assert_eq!(decode(&line(start, LINE_BYTES_MAX)), Decoded::Incomplete);
        assert_eq!(decode(&line(start, LINE_BYTES_MAX + 1)), Decoded::TooLong);
    }
    assert!(matches!(decode(&line("gets ", LINE_BYTES_MAX + 1)), Decoded::Request(Request::Fetch(_), 5)));
    let spaces = |n: usize| line(&format!("{}get ", " ".repeat(n)), 3000);
    assert!(matches!(decode(&spaces(100)), Decoded::Request(Request::Fetch(_), 104)));
    assert_eq!(decode(&spaces(101)), Decoded::TooLong);
}

#[test]
fn other_lines_come_whole() {
    assert_eq!(request(b"stats items\r\n"), Request::Line(b"stats items"));
    assert_eq!(request(b"GET a\n"), Request::Line(b"GET a"));
    assert_eq!(request(b"    \r\n"), Request::Line(b"    "));
}

/// Lines that look like requests, some of them broken.
fn lines() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(vec![
        "get", "gets", "gat", "set", "cas", "add", "incr", "delete", "mg", "ms", "ma", "mn", "me", "stats",
        "x",
    ]);
    let token = prop_oneof![
        "[a-z]{1,20}",
        "[0-9]{1,12}",
        Just("noreply".to_string()),
        Just("v".to_string()),
        "[bctTNqkO][0-9a-z]{0,3}",
        "[ -~]{0,10}",
    ];
    let end = prop::sample::select(vec!["\r\n", "\n"]);
    (name, prop::collection::vec(token, 0..8), prop::sample::select(vec![" ", "  "]), end).prop_map(
        |(name, tokens, space, end)| format!("{name}{space}{}{end}", tokens.join(space)).into_bytes(),
    )
}

proptest! {
    #[test]
    fn the_short_path_and_the_general_one_agree(text in lines()) {
        let general = decode_line(&text);
        match (decode(&text), general) {
            // The fast path stops a line of keys at its first key, whatever follows.
            (Decoded::Request(Request::Fetch(a), _), Decoded::Request(Request::Fetch(b), _)) => prop_assert_eq!(a, b),
            (short, general) => prop_assert_eq!(short, general),
        }
    }

    #[test]
    fn no_byte_is_decided_before_it_is_there(text in lines()) {
        let whole = decode(&text);
        for at in 1..text.len() {
            match decode(&text[..at]) {
                Decoded::Incomplete => {}
                Decoded::Request(Request::Fetch(fetch), bytes) => {
                    prop_assert_eq!(Decoded::Request(Request::Fetch(fetch), bytes), whole);
                }
                early => prop_assert!(text[..at].contains(&b'\n'), "{:?} at {}", early, at),
            }
        }
    }

    #[test]
    fn any_bytes_decode_to_something(bytes in prop::collection::vec(any::<u8>(), 1..200)) {
        if let Decoded::Request(_, taken) = decode(&bytes) {
            prop_assert!(taken <= bytes.len() && taken > 0);
        }
        let _ = next_key(&bytes);
    }
}
