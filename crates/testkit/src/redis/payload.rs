//! DUMP's payload of a string, by Redis's format: the shortest of a packed number or a length and
//! bytes; version 10; a checksum, bit by bit.

const VERSION: [u8; 2] = [10, 0];
/// Version and checksum.
const FOOTER_BYTES: usize = 10;

/// DUMP's payload of a value.
pub(super) fn dumped(value: &[u8]) -> Vec<u8> {
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse::<i32>().ok());
    let number = number.filter(|n| n.to_string().as_bytes() == value);
    let mut bytes = vec![0];
    match (number, value.len()) {
        (Some(n @ -128..=127), _) => bytes.extend([0xc0, n as u8]),
        (Some(n @ -32768..=32767), _) => {
            bytes.push(0xc1);
            bytes.extend((n as i16).to_le_bytes());
        }
        (Some(n), _) => {
            bytes.push(0xc2);
            bytes.extend(n.to_le_bytes());
        }
        (None, length @ 0..=63) => bytes.push(length as u8),
        (None, length @ 64..=16383) => bytes.extend([0x40 | (length >> 8) as u8, length as u8]),
        (None, length) => {
            bytes.push(0x80);
            bytes.extend((length as u32).to_be_bytes());
        }
    }
    if number.is_none() {
        bytes.extend_from_slice(value);
    }
    bytes.extend(VERSION);
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// The value of a payload that [`dumped`] made; `None` if a byte of it differs.
pub(super) fn restored(payload: &[u8]) -> Option<Vec<u8>> {
    let body = payload.len().checked_sub(FOOTER_BYTES)?;
    let sum = u64::from_le_bytes(payload[body + 2..].try_into().ok()?);
    if payload[body..body + 2] != VERSION || sum != checksum(&payload[..body + 2]) {
        return None;
    }
    Some(match payload[1..body] {
        [0xc0, n] => (n as i8).to_string().into_bytes(),
        [0xc1, a, b] => i16::from_le_bytes([a, b]).to_string().into_bytes(),
        [0xc2, a, b, c, d] => i32::from_le_bytes([a, b, c, d]).to_string().into_bytes(),
        [0x80, _, _, _, _, ref value @ ..] => value.to_vec(),
        [0x40..=0x7f, _, ref value @ ..] | [_, ref value @ ..] => value.to_vec(),
        [] => return None,
    })
}

/// CRC-64 of Jones, least bit first.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let mut sum = 0u64;
    for byte in bytes {
        for bit in 0..8 {
            let feeds = (sum >> 63) ^ u64::from(byte >> bit & 1) == 1;
            sum = sum << 1 ^ if feeds { 0xad93_d235_94c9_35a9 } else { 0 };
        }
    }
    sum.reverse_bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_that_redis_documents() {
        assert_eq!(checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn what_is_dumped_is_restored_and_what_is_broken_is_not() {
        let long = vec![b'x'; 20_000];
        for value in [&b""[..], b"a", b"0", b"-129", b"70000", b"007", &long[..63], &long[..64], &long] {
            let mut payload = dumped(value);
            assert_eq!(restored(&payload).as_deref(), Some(value));
            *payload.last_mut().expect("a checksum") ^= 1;
            assert_eq!(restored(&payload), None);
        }
    }
}
