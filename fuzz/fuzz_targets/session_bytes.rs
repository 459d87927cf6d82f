//! Any bytes, given to a session in one piece and byte by byte: the replies are the same.
//!
//! A line that is too long is the exception: seen whole it may be a line, seen in part it is the end
//! of the connection. So inputs have a line end every so often, values too.
#![no_main]

use larder_testkit::local::Local;
use libfuzzer_sys::fuzz_target;

/// Less than the longest line.
const LINE_BYTES_MAX: usize = 2000;

fuzz_target!(|input: &[u8]| {
    // Frames are `session_binary`'s.
    if input.first() == Some(&0x80) || input.split(|byte| *byte == b'\n').any(|line| line.len() > LINE_BYTES_MAX) {
        return;
    }
    let whole = replies(input, input.len().max(1));
    let bytes = replies(input, 1);
    assert_eq!(whole, bytes);
});

fn replies(input: &[u8], piece: usize) -> (Vec<u8>, bool) {
    let mut local = Local::new(&[]).expect("a server");
    let mut connection = local.connection();
    for piece in input.chunks(piece) {
        local.exchange(&mut connection, piece);
    }
    // Statistics also count how the bytes came.
    let lines = connection.sent().split_inclusive(|byte| *byte == b'\n');
    (lines.filter(|line| !line.starts_with(b"STAT ")).flatten().copied().collect(), connection.is_closed())
}
