//! Standard base64 with padding, for binary keys of meta commands.

/// The text is not base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotBase64;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// 0–63, or 64 for a byte outside the alphabet.
const VALUES: &[u8; 256] = &{
    let mut values = [64; 256];
    let mut n = 0;
    while n < 64 {
        values[ALPHABET[n] as usize] = n as u8;
        n += 1;
    }
    values
};

/// Length of the encoding of `bytes` bytes.
pub const fn encoded_bytes(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

/// Decodes `text` to the start of `into` and returns the length.
///
/// # Errors
/// When `text` is empty, not a multiple of four, has bytes outside the alphabet, padding elsewhere
/// than at the end, or does not fit.
pub fn decode(text: &[u8], into: &mut [u8]) -> Result<usize, NotBase64> {
    if text.is_empty() || !text.len().is_multiple_of(4) {
        return Err(NotBase64);
    }
    let padding = text.iter().rev().take(2).take_while(|&&b| b == b'=').count();
    let bytes = text.len() / 4 * 3 - padding;
    if bytes > into.len() {
        return Err(NotBase64);
    }
    let mut at = 0;
    for quad in text[..text.len() - padding].chunks(4) {
        let mut bits = 0u32;
        for &byte in quad {
            let value = VALUES[usize::from(byte)];
            if value == 64 {
                return Err(NotBase64);
            }
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * (4 - quad.len());
        for &byte in &bits.to_be_bytes()[1..quad.len()] {
            into[at] = byte;
            at += 1;
        }
    }
    Ok(bytes)
}

/// Encodes `bytes` to the start of `into` and returns the length, [`encoded_bytes`].
///
/// # Panics
/// When it does not fit.
pub fn encode(bytes: &[u8], into: &mut [u8]) -> usize {
    for (chunk, quad) in bytes.chunks(3).zip(into.chunks_mut(4)) {
        let mut bits = 0u32;
        for n in 0..3 {
            bits = bits << 8 | u32::from(chunk.get(n).copied().unwrap_or(0));
        }
        for (n, byte) in quad.iter_mut().enumerate() {
            let value = bits >> (18 - 6 * n) & 63;
            *byte = if n <= chunk.len() { ALPHABET[value as usize] } else { b'=' };
        }
    }
    assert!(encoded_bytes(bytes.len()) <= into.len(), "room for the encoded key");
    encoded_bytes(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_the_standard_encodes_and_decodes() {
        for (plain, coded) in [
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            let mut room = [0; 16];
            let len = encode(plain.as_bytes(), &mut room);
            assert_eq!(&room[..len], coded.as_bytes());
            let len = decode(coded.as_bytes(), &mut room).unwrap();
            assert_eq!(&room[..len], plain.as_bytes());
        }
    }

    #[test]
    fn all_bytes_survive() {
        let plain: Vec<u8> = (0..=255).collect();
        let (mut coded, mut back) = ([0; 400], [0; 256]);
        let len = encode(&plain, &mut coded);
        assert_eq!(decode(&coded[..len], &mut back), Ok(256));
        assert_eq!(plain, back);
    }

    #[test]
    fn bad_text_is_refused() {
        for bad in ["", "Zg", "Zg=", "Z===", "====", "Zm9v=", "Zm 9", "Zm9v!m8=", "Zg==Zg=="] {
            assert_eq!(decode(bad.as_bytes(), &mut [0; 16]), Err(NotBase64), "{bad}");
        }
        assert_eq!(decode(b"Zm9v", &mut [0; 2]), Err(NotBase64));
    }
}
