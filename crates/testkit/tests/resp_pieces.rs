//! RESP pipelines of random commands answer the same however their bytes come.

use larder_testkit::local::Local;
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
        _ => {
            let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
            for word in &words {
                bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                bytes.extend_from_slice(word);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes
        }
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
