//! RESP requests: decoding that goes on where it stopped ends as decoding at once; arguments lie
//! inside the input; nothing panics.
#![no_main]

use larder_protocol::resp::{Ask, Decoded, Limits, Partial, decode, decode_plain, split};
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
            if let Some((plain, end)) = decode_plain(input) {
                let name = words[0].to_ascii_lowercase();
                let asked = match plain.ask {
                    Ask::Get => name == b"get" && words.len() == 2,
                    Ask::Set(value) => name == b"set" && words.len() == 3 && value == words[2],
                    Ask::Incr => name == b"incr" && words.len() == 2,
                    Ask::Decr => name == b"decr" && words.len() == 2,
                };
                assert!(asked && end == bytes && plain.key == words[1]);
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
