//! Every rule of RESP's framing, and that the fast paths agree with the general one.

use super::*;
use proptest::prelude::*;

const LIMITS: Limits = Limits { bulk_bytes_max: 512 << 20, authenticated: true };

fn args(input: &[u8]) -> Vec<Vec<u8>> {
    match decode(input, &LIMITS) {
        Decoded::Request(args, bytes) => {
            assert_eq!(bytes, input.len());
            assert_eq!(args.longest() as usize, args.map(<[u8]>::len).max().unwrap_or(0));
            args.map(<[u8]>::to_vec).collect()
        }
        Decoded::Inline(line, bytes) => {
            assert_eq!(bytes, input.len());
            split(line).expect("balanced").args().map(<[u8]>::to_vec).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn fault(input: &[u8], limits: &Limits) -> String {
    let Decoded::Fault(fault) = decode(input, limits) else { panic!("{}", String::from_utf8_lossy(input)) };
    let mut text = Vec::new();
    fault.write(&mut |bytes| text.extend_from_slice(bytes));
    let text = String::from_utf8_lossy(&text).into_owned();
    text.strip_prefix("-ERR Protocol error: ").and_then(|t| t.strip_suffix("\r\n")).expect("an error").into()
}

#[test]
fn arrays_are_read_and_the_bytes_behind_an_argument_are_not() {
    assert_eq!(args(b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n"), [b"GET".to_vec(), b"key".to_vec()]);
    assert_eq!(args(b"*1\r\n$4\r\nPINGxx"), [b"PING".to_vec()]);
    assert_eq!(args(b"*1\r\n$0\r\n\r\n"), [b"".to_vec()]);
    let long = [b"*2\r\n$1\r\na\r\n$20000\r\n".to_vec(), vec![b'x'; 20000], b"\r\n".to_vec()].concat();
    assert_eq!(args(&long)[1].len(), 20000);
}

#[test]
fn arguments_are_read_behind_headers_of_any_length() {
    for bytes in [0, 1, 9, 10, 11, 99, 100, 101, 999, 1_000, 1_001, 9_999, 10_000, 99_999, 1_000_000] {
        let (long, short) = (vec![b'7'; bytes], vec![b'x'; bytes % 13]);
        let words = [long.clone(), short, long, Vec::new()];
        assert_eq!(args(&encoded(&words)), words, "{bytes}");
    }
}

#[test]
fn any_byte_may_stand_behind_the_carriage_return_of_a_header() {
    for end in *b"\n\r0x$" {
        for word in [&b""[..], b"hello", b"\r\n", &[b'9'; 12], &[b'9'; 345]] {
            let head = format!("*2\r\n${}\r", word.len());
            let request = [head.as_bytes(), &[end], word, b"\r\n$1\r\na\r\n"].concat();
            assert_eq!(args(&request), [word.to_vec(), b"a".to_vec()], "{end} {}", word.len());
        }
    }
}

#[test]
fn arguments_that_are_cut_off_are_none() {
    let whole = encoded(&[vec![b'x'; 5], vec![b'y'; 45], vec![b'z'; 678]]);
    let whole = &whole[b"*3\r\n".len()..];
    for bytes in 0..whole.len() - 2 {
        let read: usize = Args::rest(&whole[..bytes], 3).map(|_| 1).sum();
        let ends = [5, 45, 678].map(|length: usize| length + 5 + length.to_string().len() - 2);
        let within = |nth: usize| ends[..=nth].iter().sum::<usize>() + 2 * nth <= bytes;
        assert_eq!(read, (0..3).take_while(|nth| within(*nth)).count(), "{bytes}");
    }
}

#[test]
fn a_plain_request_stays_unread_until_it_is_taken() {
    let (get, incr) = (&b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n"[..], &b"*2\r\n$4\r\nincr\r\n$2\r\nbc\r\n"[..]);
    let input = [&b"xx"[..], get, incr, b"*1\r\n$4\r\nPING\r\n"].concat();
    for (max, taken) in [(0, 0), (1, 1), (2, 2), (3, 2)] {
        let mut requests = PlainRequests::new(&input, 2, max);
        let mut at = 2;
        let plain = [Plain { key: b"a", ask: Ask::Get }, Plain { key: b"bc", ask: Ask::Incr }];
        for (plain, text) in plain.into_iter().zip([get, incr]).take(taken) {
            assert_eq!(requests.peek(), Some((plain, text.len())));
            assert_eq!(requests.peek(), Some((plain, text.len())), "it is unread");
            assert_eq!(requests.at(), at);
            requests.take(text.len());
            at += text.len();
        }
        assert_eq!((requests.peek(), requests.at()), (None, at), "{max}");
    }
}

#[test]
fn inline_words_are_split_with_quotes() {
    assert_eq!(args(b"PING\n"), [b"PING".to_vec()]);
    assert_eq!(args(b"  SET  a \"a\\x41\\n b\" \r\n"), [&b"SET"[..], b"a", b"aA\n b"]);
    assert_eq!(args(b"ECHO 'a\\'b'\r\n"), [&b"ECHO"[..], b"a'b"]);
    for bad in [&b"a \"b"[..], b"a 'b", b"a \"b\"c", b"a 'b'c"] {
        assert!(split(bad).is_none(), "{}", String::from_utf8_lossy(bad));
    }
    assert_eq!(decode(b"\r\n", &LIMITS), Decoded::Nothing(2));
    assert_eq!(decode(b"   \n", &LIMITS), Decoded::Nothing(4));
}

#[test]
fn empty_arrays_are_nothing() {
    for text in [&b"*0\r\n"[..], b"*-1\r\n", b"*-7\r\n"] {
        assert_eq!(decode(text, &LIMITS), Decoded::Nothing(text.len()));
    }
}

#[test]
fn what_cannot_be_a_request_is_said_in_redis_words() {
    for bad in ["*abc\r\n", "*+1\r\n", "*01\r\n", "*2147483648\r\n", "*\r\n"] {
        assert_eq!(fault(bad.as_bytes(), &LIMITS), "invalid multibulk length", "{bad:?}");
    }
    assert_eq!(fault(b"*1\r\nPING\r\n", &LIMITS), "expected '$', got 'P'");
    for bad in ["*1\r\n$-1\r\n", "*1\r\n$abc\r\n", "*1\r\n$536870913\r\n", "*1\r\n$01\r\n"] {
        assert_eq!(fault(bad.as_bytes(), &LIMITS), "invalid bulk length", "{bad:?}");
    }
    assert!(matches!(decode(b"*1\r\n$536870912\r\n", &LIMITS), Decoded::Incomplete(_)));
    let unauthenticated = Limits { authenticated: false, ..LIMITS };
    assert_eq!(fault(b"*11\r\n", &unauthenticated), "unauthenticated multibulk length");
    assert!(matches!(decode(b"*10\r\n", &unauthenticated), Decoded::Incomplete(_)));
    assert_eq!(fault(b"*1\r\n$16385\r\n", &unauthenticated), "unauthenticated bulk length");
    assert!(matches!(decode(b"*1\r\n$16384\r\n", &unauthenticated), Decoded::Incomplete(_)));
}

#[test]
fn lines_without_end_are_waited_for_up_to_a_limit() {
    for (start, text) in [
        (&b"*"[..], "too big mbulk count string"),
        (b"*1\r\n$", "too big bulk count string"),
        (b"a", "too big inline request"),
    ] {
        // The limit counts the line itself.
        let fill = LINE_BYTES_MAX - 1;
        let mut input = [start, &vec![b'1'; fill][..]].concat();
        assert!(matches!(decode(&input, &LIMITS), Decoded::Incomplete(_)), "{text}");
        input.push(b'1');
        assert_eq!(fault(&input, &LIMITS), text);
    }
}

#[test]
fn integers_are_read_strictly() {
    for n in [0, 1, -1, 9, 10, i64::MAX, i64::MIN] {
        assert_eq!(parse_integer(n.to_string().as_bytes()), Some(n));
    }
    for bad in ["", "-", "+1", "01", "-0", "1 ", " 1", "9223372036854775808", "-9223372036854775809", "1x"] {
        assert_eq!(parse_integer(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn doubles_are_read_and_written_as_redis_does() {
    for (text, n) in [("1.5", 1.5), ("-.5", -0.5), ("+3", 3.0), ("1e3", 1000.0), ("inf", f64::INFINITY)] {
        assert_eq!(parse_double(text.as_bytes()), Some(n), "{text}");
    }
    for bad in ["", "nan", " 1", "1 ", "abc", "1e400", "--1"] {
        assert_eq!(parse_double(bad.as_bytes()), None, "{bad}");
    }
    for (n, text) in [
        (1.5, "1.5"),
        (3.0, "3"),
        (0.1, "0.1"),
        (0.1 + 0.2, "0.30000000000000004"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
        (0.0, "0"),
        (-0.0, "-0"),
        (-7.25, "-7.25"),
        (std::f64::consts::PI, "3.141592653589793"),
        (1e17, "100000000000000000"),
        (4e18, "4000000000000000000"),
        (1e20, "1e+20"),
        (1.5e20, "1.5e+20"),
        (123_456_789_012_345_680_000.0, "123456789012345680000"),
        (1e21, "1e+21"),
        (1e100, "1e+100"),
        (0.001, "0.001"),
        (0.0001, "0.0001"),
        (0.000_001, "0.000001"),
        (0.000_000_1, "1e-7"),
        (0.000_000_095, "9.5e-8"),
        (123.456_789_012_3, "123.4567890123"),
        (f64::MAX, "1.7976931348623157e+308"),
        (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
        (-5e-324, "-5e-324"),
    ] {
        assert_eq!(&*format_double(n), text);
    }
}

#[test]
fn bulk_heads_of_table_and_general_form_agree() {
    for n in [0, 9, 10, 99, 100, 999, 1000, 1 << 40] {
        let (mut one, mut two) = ([0; HEAD_BYTES_MAX], [0; HEAD_BYTES_MAX]);
        let (a, b) = (write_bulk_head(&mut one, n), write_head(&mut two, b'$', n));
        assert_eq!(one[..a], two[..b]);
    }
}

fn encoded(words: &[Vec<u8>]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        text.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        text.extend_from_slice(word);
        text.extend_from_slice(b"\r\n");
    }
    text
}

fn words() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let name = prop::sample::select(vec!["GET", "set", "SEt", "incr", "DECR", "gets", "del"]);
    let name = name.prop_map(|name| name.as_bytes().to_vec());
    let word = prop::collection::vec(any::<u8>(), 0..1200);
    (name, prop::collection::vec(word, 0..12)).prop_map(|(name, mut words)| {
        words.insert(0, name);
        words
    })
}

proptest! {
    #[test]
    fn short_paths_agree_with_the_general_one(words in words()) {
        let text = encoded(&words);
        prop_assert_eq!(&args(&text), &words);
        let name = words[0].to_ascii_lowercase();
        let expected = match (&name[..], &words[1..]) {
            (b"get", [key]) => Some((key, Ask::Get)),
            (b"set", [key, value]) => Some((key, Ask::Set(value))),
            (b"incr", [key]) => Some((key, Ask::Incr)),
            (b"decr", [key]) => Some((key, Ask::Decr)),
            _ => None,
        };
        let expected = expected.map(|(key, ask)| (Plain { key, ask }, text.len()));
        prop_assert_eq!(decode_plain(&text), expected);
        // An incomplete request is not plain.
        prop_assert_eq!(decode_plain(&text[..text.len() - 1]), None);
    }

    /// Resumed decoding gives the same result as decoding at once, however the bytes arrive.
    #[test]
    fn decoding_resumes_after_any_byte(words in words(), steps in prop::collection::vec(1usize..2000, 1..40)) {
        let text = encoded(&words);
        let mut partial = Partial::default();
        let mut there = 0;
        for step in steps.iter().cycle() {
            there = (there + step).min(text.len());
            match partial.resume(&text[..there], &LIMITS) {
                Decoded::Incomplete(next) => {
                    prop_assert!(there < text.len());
                    prop_assert!(next.known_end().is_none_or(|end| end > there as u64));
                    partial = next;
                }
                Decoded::Request(args, bytes) => {
                    prop_assert_eq!(bytes, text.len());
                    prop_assert_eq!(args.map(<[u8]>::to_vec).collect::<Vec<_>>(), words);
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn any_bytes_are_decoded_without_panic(input in prop::collection::vec(any::<u8>(), 1..200)) {
        let _ = decode(&input, &LIMITS);
        let _ = split(&input);
    }
}
