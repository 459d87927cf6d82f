//! Meta commands: flags are known, come once and keep their order; tokens are read without panic; a
//! decoded key encodes to the text it came from.
#![no_main]

use larder_protocol::base64;
use larder_protocol::classic::{Decoded, Request, decode};
use larder_protocol::meta::{OPAQUE_BYTES_MAX, TOKENS_MAX};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| {
    let mut text = b"m".to_vec();
    text.extend(line.iter().filter(|&&b| b != b'\n'));
    text.extend(b"\r\n");
    let Decoded::Request(Request::Meta(meta), bytes) = decode(&text) else { return };
    assert_eq!(bytes, text.len());
    let mut seen = [false; 256];
    let mut count = 0;
    for flag in meta.flags.iter() {
        assert!(meta.flags.has(flag.letter));
        assert!(matches!(flag.letter, b'P' | b'L') || !seen[usize::from(flag.letter)]);
        seen[usize::from(flag.letter)] = true;
        count += 1;
        let _ = (meta.flags.number(flag.letter), meta.flags.exptime(flag.letter));
    }
    assert!(count + 2 <= TOKENS_MAX);
    if let Ok(Some(opaque)) = meta.flags.opaque() {
        assert!(opaque.len() <= OPAQUE_BYTES_MAX);
    }
    let (mut plain, mut back) = ([0; 250], [0; 252]);
    if let Ok(bytes) = base64::decode(meta.key, &mut plain) {
        // Bits behind the last byte are not looked at, so only what was decoded can come back.
        let again = base64::encode(&plain[..bytes], &mut back);
        assert_eq!(again, meta.key.len());
        let mut twice = [0; 250];
        assert_eq!(base64::decode(&back[..again], &mut twice), Ok(bytes));
        assert_eq!(plain[..bytes], twice[..bytes]);
    }
});
