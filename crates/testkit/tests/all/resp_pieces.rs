//! RESP pipelines of random commands get the same replies however their bytes are cut.

use larder_testkit::local::Local;
use larder_testkit::talk::encode;
use proptest::prelude::*;

const WORDS: &[&str] = &[
    "get",
    "SET",
    "mget",
    "MSET",
    "del",
    "INCR",
    "append",
    "STRLEN",
    "setrange",
    "GETRANGE",
    "EXPIRE",
    "ttl",
    "setbit",
    "BITCOUNT",
    "bitop",
    "BITFIELD",
    "copy",
    "RENAME",
    "multi",
    "EXEC",
    "discard",
    "WATCH",
    "lcs",
    "getex",
    "GETDEL",
    "SELECT",
    "keys",
    "SCAN",
    "dbsize",
    "FLUSHDB",
    "quit",
    "RESET",
    "hello",
    "object",
    "dump",
    "RESTORE",
    "msetex",
    "DELIFEQ",
    "cl.throttle",
    "ping",
    "ECHO",
    "and",
    "NX",
    "EX",
    "encoding",
    "u8",
    "#1",
    "0",
    "1",
    "-1",
    "3",
    "10",
    "100000",
    "a",
    "b",
    "c",
    "*",
    "",
];

/// A request: an array of words, sometimes long ones, or a line, or something broken.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        20 => prop::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
        1 => (0usize..70_000).prop_map(|bytes| vec![b'x'; bytes]),
    ];
    let words = prop::collection::vec(word, 1..7);
    (words, 0u8..40).prop_map(|(words, form)| match form {
        0 => b"*1\r\n$x\r\n".to_vec(),
        1 => b"*0\r\n\r\n".to_vec(),
        2..=6 => [words.join(&b' '), b"\r\n".to_vec()].concat(),
        _ => encode(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()),
    })
}

fn replies(input: &[u8], piece: usize) -> (Vec<u8>, bool) {
    let mut local = Local::new(&[]).expect("a server");
    let mut connection = local.resp_connection();
    for piece in input.chunks(piece) {
        local.exchange(&mut connection, piece);
    }
    (connection.sent().to_vec(), connection.is_closed())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn pipelines_answer_the_same_in_any_pieces(
        requests in prop::collection::vec(request(), 1..60),
        piece in prop_oneof![Just(1usize), 2usize..50, 1000usize..40_000],
    ) {
        let input = requests.concat();
        let whole = replies(&input, input.len().max(1));
        let pieces = replies(&input, piece);
        let same = whole.0.iter().zip(&pieces.0).take_while(|(one, other)| one == other).count();
        let rest = |replies: &(Vec<u8>, bool)| {
            let from = same.saturating_sub(20).min(replies.0.len());
            let until = (same + 60).min(replies.0.len());
            (String::from_utf8_lossy(&replies.0[from..until]).into_owned(), replies.1)
        };
        prop_assert!(whole == pieces, "{:?} and in pieces {:?}", rest(&whole), rest(&pieces));
    }
}

/// Behind a header's carriage return comes its line feed or, as in Redis, any byte; behind a value, any two bytes. Long values
/// are received by other code, which has to find the same ends.
#[test]
fn long_values_behind_odd_line_ends_are_the_same_in_any_pieces() {
    let mut value = vec![b'v'; 50_000];
    for (feed, header_end, value_end) in
        [(None, b'X', "\r\n"), (None, b'X', "\n\n"), (Some(0), b'X', "\r\n"), (Some(30_000), b'\r', "\n.")]
    {
        value.fill(b'v');
        if let Some(at) = feed {
            value[at] = b'\n';
        }
        // SET stores its value as it arrives; APPEND gathers it first.
        let mut input = Vec::new();
        for name in ["SET", "APPEND", "SET"] {
            input.extend_from_slice(
                format!("*3\r\n${}\r\n{name}\r\n$1\r\nk\r\n$50000\r", name.len()).as_bytes(),
            );
            input.push(header_end);
            input.extend_from_slice(&value);
            input.extend_from_slice(value_end.as_bytes());
            input.extend_from_slice(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
        }
        let bulk = |times: usize| {
            let value = value.repeat(times);
            [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat()
        };
        let expected = [b"+OK\r\n", &bulk(1)[..], b":100000\r\n", &bulk(2), b"+OK\r\n", &bulk(1)].concat();
        let first_end = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$50000\rX".len() + value.len();
        for piece in [1, 7, 33_000, 40_000, first_end + 1, first_end + 2, input.len()] {
            let (replies, closed) = replies(&input, piece);
            assert!(
                !closed && replies == expected,
                "{feed:?} {header_end} {value_end:?} in pieces of {piece}"
            );
        }
    }
}

#[test]
fn what_follows_a_long_value_behind_odd_line_ends_is_not_lost() {
    let mut input = b"*5\r\n$4\r\nMSET\r\n$1\r\na\r\n$50000\r\n".to_vec();
    input.resize(input.len() + 50_000, b'v');
    // There is no line feed up to the end of the request.
    input.extend_from_slice(b"..$1\rXb..$3\rXend..*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\nb\r\n");
    for piece in [1, 7, 33_000, 50_040, input.len()] {
        let (replies, closed) = replies(&input, piece);
        let told = String::from_utf8_lossy(&replies);
        assert_eq!((&*told, closed), ("+OK\r\n+PONG\r\n$3\r\nend\r\n", false), "in pieces of {piece}");
    }
}

/// A request for which there is no memory is discarded up to its end, wherever that is.
#[test]
fn long_request_that_is_refused_ends_where_it_ends() {
    let mut input = b"*6\r\n$4\r\nMSET\r\n$1\r\na\r\n$6000000\r\n".to_vec();
    input.resize(input.len() + 6_000_000, b'v');
    input.extend_from_slice(b"..$1\rXb..$3\rX\ne\n..$2\r\nxx\r\n*1\r\n$4\r\nPING\r\n");
    for piece in [33_000, input.len() - 40, input.len()] {
        let (replies, closed) = replies(&input, piece);
        let told = String::from_utf8_lossy(&replies);
        let expected = "-OOM command not allowed when used memory > 'maxmemory'.\r\n+PONG\r\n";
        assert_eq!((&*told, closed), (expected, false), "in pieces of {piece}");
    }
}
