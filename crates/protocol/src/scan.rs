//! Where a token or a line ends.
//!
//! Tokens are short (keys, numbers), so eight bytes at a time are compared with a space, which finds the separator and both bytes
//! of a line end in one comparison. Control bytes are legal inside keys, so a hit is checked again, which is rare. Lines may be
//! long: `memchr` finds their ends.

use wide::u8x16;

/// Index of the first byte that is a space or a control byte (`<= 0x20`), or the length.
#[inline]
pub fn token_end(text: &[u8]) -> usize {
    let mut at = 0;
    while let Some(chunk) = text[at..].first_chunk::<8>() {
        let low = low_bytes(u64::from_le_bytes(*chunk));
        if low != 0 {
            return at + low.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while at < text.len() && text[at] > 0x20 {
        at += 1;
    }
    at
}

/// Bytes that [`token_end_within`] looks at.
pub const WINDOW: usize = 32;

/// Index of the first byte that is a space or a control byte, or [`WINDOW`] if there is none.
#[inline(always)]
pub fn token_end_within(text: &[u8; WINDOW]) -> usize {
    const HALF: usize = WINDOW / 2;
    let low = |at: usize| {
        let bytes = u8x16::new(text[at..at + HALF].try_into().expect("sixteen bytes"));
        bytes.min(u8x16::splat(b' ')).simd_eq(bytes).to_bitmask()
    };
    // A bit above the last byte is the result when no byte is low.
    (u64::from(low(HALF)) << HALF | u64::from(low(0)) | 1 << WINDOW).trailing_zeros() as usize
}

/// The top bit of each byte `<= 0x20`. Of several, the lowest is right; a borrow can only make those above it wrong.
#[inline]
fn low_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    word.wrapping_sub(ONES * 0x21) & !word & (ONES * 0x80)
}

/// Index of the first line feed.
#[inline]
pub fn line_feed(text: &[u8]) -> Option<usize> {
    memchr::memchr(b'\n', text)
}

/// The line in front of the line feed at `feed`, without its end.
#[inline]
pub fn line(text: &[u8], feed: usize) -> &[u8] {
    match text[..feed].split_last() {
        Some((b'\r', line)) => line,
        _ => &text[..feed],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_ends_at_the_first_low_byte_wherever_it_is() {
        for len in 0..70 {
            for at in 0..=len {
                let mut text = vec![b'k'; len];
                if at < len {
                    for low in [b' ', b'\r', b'\n', 0, 0x1f] {
                        text[at] = low;
                        assert_eq!(token_end(&text), at);
                        if let Some(window) = text.first_chunk() {
                            assert_eq!(token_end_within(window), at.min(WINDOW));
                        }
                    }
                }
                for high in [0x21, 0x7f, 0x80, 0xa0, 0xff] {
                    let text = vec![high; len];
                    assert_eq!(token_end(&text), len);
                }
            }
        }
    }

    #[test]
    fn only_low_bytes_are_found() {
        for byte in 0..=255u8 {
            let word = u64::from_le_bytes([b'a', 0xff, byte, b'x', 0x80, b'y', b'z', b'!']);
            let at = if byte <= 0x20 { 2 } else { 8 };
            assert_eq!(low_bytes(word).trailing_zeros() / 8, at);
            let mut window = [b'x'; WINDOW];
            window[17] = byte;
            assert_eq!(token_end_within(&window), if byte <= 0x20 { 17 } else { WINDOW });
        }
    }

    #[test]
    fn a_line_loses_one_carriage_return() {
        assert_eq!(line(b"a\r\n", 2), b"a");
        assert_eq!(line(b"a\n", 1), b"a");
        assert_eq!(line(b"a\r\r\n", 3), b"a\r");
        assert_eq!(line(b"\n", 0), b"");
        assert_eq!(line_feed(b"ab"), None);
    }
}
