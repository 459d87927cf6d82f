//! Any bytes, given to a RESP session in one piece, in odd pieces and byte by byte: the replies are the
//! same, and nothing panics.
#![no_main]

use larder_testkit::local::Local;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // Clients, times, figures and chance differ from one server to another, and waiting is not for a fuzzer.
    let lower = input.to_ascii_lowercase();
    let told = [
        &b"client"[..],
        b"info",
        b"hello",
        b"debug",
        b"memory",
        b"log",
        b"latency",
        b"config",
        b"lastsave",
        b"randomkey",
    ];
    if told.iter().any(|word| lower.windows(word.len()).any(|part| part == *word)) {
        return;
    }
    let whole = replies(input, input.len().max(1));
    assert_eq!(whole, replies(input, 7));
    assert_eq!(whole, replies(input, 1));
});

fn replies(input: &[u8], piece: usize) -> (Vec<u8>, bool) {
    let mut local = Local::with_debug().expect("a server");
    let mut connection = local.resp_connection();
    for piece in input.chunks(piece) {
        local.exchange(&mut connection, piece);
    }
    (connection.sent().to_vec(), connection.is_closed())
}
