//! A stream of text requests, read as a session reads it: every request takes at least a byte and no
//! more than there are, keys keep their limit, and nothing that was decided on a part of the input is
//! decided otherwise on all of it.
#![no_main]

use larder_protocol::classic::{Decoded, KEY_BYTES_MAX, KeyStep, Request, decode, next_key};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut at = 0;
    while at < input.len() {
        let rest = &input[at..];
        let Decoded::Request(request, bytes) = decode(rest) else { return };
        assert!(bytes > 0 && bytes <= rest.len());
        // A long line of keys without end is begun where a short one is waited for.
        if !matches!(request, Request::Fetch(_)) {
            assert_eq!(decode(&rest[..bytes]), Decoded::Request(request, bytes));
        }
        at += bytes;
        match request {
            Request::Fetch(_) => at = keys(input, at),
            Request::Store(store) => {
                assert!(store.key.len() <= KEY_BYTES_MAX && !store.key.is_empty());
                at = at.saturating_add(store.value_bytes as usize + 2);
            }
            Request::Meta(meta) => {
                assert!(meta.key.len() <= KEY_BYTES_MAX);
                if meta.verb == larder_protocol::meta::Verb::Set {
                    at = at.saturating_add(meta.value_bytes as usize + 2);
                }
            }
            Request::Delete { key, .. } | Request::Arithmetic { key, .. } | Request::Touch { key, .. } => {
                assert!(key.len() <= KEY_BYTES_MAX && !key.is_empty());
            }
            Request::Line(line) => assert!(!line.contains(&b'\n')),
            Request::Fault { swallow, .. } => at = at.saturating_add(swallow as usize),
        }
    }
});

/// Reads a line of keys; where it ends.
fn keys(input: &[u8], mut at: usize) -> usize {
    loop {
        match next_key(&input[at..]) {
            KeyStep::Key { key, bytes, last } => {
                assert!(!key.is_empty() && key.len() <= KEY_BYTES_MAX);
                assert!(!key.contains(&b' ') && !key.contains(&b'\n'));
                at += bytes;
                if last {
                    assert_eq!(input[at - 1], b'\n');
                    return at;
                }
            }
            KeyStep::End(bytes) => return at + bytes,
            KeyStep::TooLong(_) | KeyStep::Incomplete(_) => return input.len(),
        }
    }
}
