//! RESP requests: decoding that goes on where it stopped ends as decoding at once; arguments lie
//! inside the input; nothing panics.
#![no_main]

use larder_protocol::resp::{Decoded, Limits, Partial, decode, decode_get, decode_set, split};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { bulk_bytes_max: 1 << 20, authenticated: true };

fuzz_target!(|input: &[u8]| {
    let Some(&first) = input.first() else { return };
    let whole = decode(input, &LIMITS);
    match whole {
        Decoded::Request(args, bytes) => {
            let words: Vec<&[u8]> = args.collect();
            assert_eq!(words.len(), args.len());
            assert!(words.iter().map(|word| word.len()).sum::<usize>() <= bytes);
            if let Some((key, end)) = decode_get(input) {
                assert_eq!((key, end), (words[1], bytes));
            }
            if let Some((key, value, end)) = decode_set(input) {
                assert_eq!((key, value, end), (words[1], words[2], bytes));
            }
        }
        Decoded::Inline(line, _) => drop(split(line)),
        _ => {}
    }
    if first != b'*' {
        return;
    }
    let mut partial = Partial::default();
    for end in 1..=input.len() {
        match partial.resume(&input[..end], &LIMITS) {
            Decoded::Incomplete(next) => partial = next,
            other => return assert_eq!(other, whole),
        }
    }
});
