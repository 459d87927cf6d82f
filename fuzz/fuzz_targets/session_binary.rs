//! Frames of any kind, given to a session in one piece and byte by byte: the replies are the same, and each is a frame.
#![no_main]

use larder_testkit::local::Local;
use libfuzzer_sys::fuzz_target;

const HEADER_BYTES: usize = 24;
const STAT: u8 = 0x10;

fuzz_target!(|input: &[u8]| {
    let mut frames = vec![0x80];
    frames.extend_from_slice(input);
    let whole = replies(&frames, frames.len());
    let bytes = replies(&frames, 1);
    assert_eq!(whole, bytes);
});

/// The replies, but for figures, which also count how the bytes came; and whether the connection was closed.
fn replies(input: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let mut local = Local::new(&[]).expect("a server");
    let mut connection = local.connection();
    for piece in input.chunks(piece) {
        local.exchange(&mut connection, piece);
    }
    let (mut sent, mut frames) = (connection.sent(), Vec::new());
    while !sent.is_empty() {
        let header = sent.first_chunk::<HEADER_BYTES>().expect("whole frames");
        assert_eq!(header[0], 0x81);
        let body_bytes = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let (frame, rest) = sent.split_at(HEADER_BYTES + body_bytes);
        if header[1] != STAT {
            frames.push(frame.to_vec());
        }
        sent = rest;
    }
    (frames, connection.is_closed())
}
