//! A stream of frames, read as a session reads it: every frame takes at least a header and no more than it announces, keys
//! keep their limit, and nothing that was decided on a part of the input is decided otherwise on all of it.
#![no_main]

use larder_protocol::binary::{BODY_BYTES_MAX, Decoded, HEADER_BYTES, decode};
use larder_protocol::classic::KEY_BYTES_MAX;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut at = 0;
    while at < input.len() {
        let rest = &input[at..];
        let whole = decode(rest);
        for cut in 0..rest.len().min(2 * HEADER_BYTES) {
            let part = decode(&rest[..cut]);
            assert!(part == Decoded::Incomplete || part == whole);
        }
        let bytes = match whole {
            Decoded::Frame(frame, start) => {
                assert!(start >= HEADER_BYTES && start <= rest.len());
                assert!(frame.key.len() <= KEY_BYTES_MAX && frame.value_bytes <= BODY_BYTES_MAX);
                assert_eq!(frame.opcode.code, frame.head.code);
                assert_eq!(decode(&rest[..start]), whole);
                start + frame.value_bytes as usize
            }
            Decoded::Refused(_, _, bytes) => {
                assert!(bytes >= HEADER_BYTES as u64);
                bytes as usize
            }
            Decoded::Incomplete | Decoded::Broken(..) | Decoded::NoFrame => return,
        };
        at = at.saturating_add(bytes);
    }
});
