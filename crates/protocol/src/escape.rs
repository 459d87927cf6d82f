//! Keys in `lru_crawler metadump`: bytes that a URI would escape become `%XX`.

/// Most bytes that `bytes` bytes take escaped.
pub const fn escaped_bytes_max(bytes: usize) -> usize {
    bytes * 3
}

/// Escapes `key` to the start of `into` and returns the length.
///
/// # Panics
/// When it does not fit; [`escaped_bytes_max`] always suffices.
pub fn escape(key: &[u8], into: &mut [u8]) -> usize {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut at = 0;
    for &byte in key {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            into[at] = byte;
            at += 1;
        } else {
            into[at] = b'%';
            into[at + 1] = HEX[usize::from(byte >> 4)];
            into[at + 2] = HEX[usize::from(byte & 15)];
            at += 3;
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unreserved_bytes_stay() {
        let mut room = [0; 64];
        let len = escape(b"a-Z.0_~ :%\n\xff", &mut room);
        assert_eq!(&room[..len], b"a-Z.0_~%20%3A%25%0A%FF");
    }
}
