//! Frames of any kind, given to a session in one piece and in small ones: the replies are the same, and each is a frame. What a
//! last frame announces and the input has not is made up, so that a short input is a long value, too. Once for a client that
//! may ask, once for one that must log in.
#![no_main]

use larder_testkit::local::Local;
use libfuzzer_sys::fuzz_target;

const HEADER_BYTES: usize = 24;
const REQUEST: u8 = 0x80;
const STAT: u8 = 0x10;
/// Most bytes of a body that are made up: values of more than 4,096 bytes are received in parts.
const BODY_BYTES_MAX: usize = 20_000;
/// A frame that is always answered.
const NOOP: [u8; HEADER_BYTES] = {
    let mut frame = [0; HEADER_BYTES];
    (frame[0], frame[1]) = (REQUEST, 0x0a);
    frame
};
/// Sizes of pieces: bytes, headers, parts of a value.
const PIECES: [usize; 3] = [1, HEADER_BYTES, 4097];

fuzz_target!(|input: &[u8]| {
    let frames = whole(input);
    for options in [&[][..], &["--requirepass", "secret"]] {
        let whole = replies(options, &frames, frames.len());
        for piece in PIECES {
            assert_eq!(whole, replies(options, &frames, piece), "{options:?}, pieces of {piece}");
        }
    }
});

/// The frames of an input; what is missing of the last one's body is made up, with a noop behind it.
fn whole(input: &[u8]) -> Vec<u8> {
    let mut frames = [&[REQUEST], input].concat();
    let mut at = 0;
    while let Some(header) = frames[at..].first_chunk::<HEADER_BYTES>() {
        let end = at + HEADER_BYTES + body_bytes(header);
        if header[0] != REQUEST || end > frames.len() + BODY_BYTES_MAX {
            break;
        }
        if end > frames.len() {
            frames.resize(end, b'v');
            frames.extend(NOOP);
            break;
        }
        at = end;
    }
    frames
}

fn body_bytes(header: &[u8; HEADER_BYTES]) -> usize {
    u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize
}

/// The replies, but for figures, which also count how the bytes came; and whether the connection was closed.
fn replies(options: &[&str], input: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
    let mut local = Local::new(&options).expect("a server");
    let mut connection = local.connection();
    for piece in input.chunks(piece) {
        local.exchange(&mut connection, piece);
    }
    let (mut sent, mut frames) = (connection.sent(), Vec::new());
    while !sent.is_empty() {
        let header = sent.first_chunk::<HEADER_BYTES>().expect("whole frames");
        assert_eq!(header[0], 0x81);
        let (frame, rest) = sent.split_at(HEADER_BYTES + body_bytes(header));
        if header[1] != STAT {
            frames.push(frame.to_vec());
        }
        sent = rest;
    }
    (frames, connection.is_closed())
}
