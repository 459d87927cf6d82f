//! Replies that carry values, written into a slice of sufficient length.
//!
//! Nearly every value has flags 0 and fewer than 1000 bytes: what follows the key is then one entry of a table, copied as eight
//! bytes whatever its length.

use crate::number::{U64_BYTES_MAX, with_line_end, write_u64};

/// Most bytes of a reply's line around its key: `VALUE `, flags, length, CAS, spaces, line end.
pub const VALUE_LINE_BYTES_MAX: usize = 6 + 3 * (U64_BYTES_MAX + 1) + 2;

/// Values of fewer bytes have an entry.
const TABLE_VALUES: usize = 1000;

/// ` 0 <length>\r\n` padded with zeros to eight bytes, and its length in the last.
const TAILS: &[([u8; 8], u8); TABLE_VALUES] = &{
    let mut tails = [([0; 8], 0); TABLE_VALUES];
    let mut n = 0;
    while n < TABLE_VALUES {
        let (text, bytes) = with_line_end([b' ', b'0', b' ', 0, 0, 0, 0, 0], 3, n);
        tails[n] = (text, bytes as u8);
        n += 1;
    }
    tails
};

/// Writes `VALUE <key> <flags> <bytes>[ <cas>]\r\n` and returns its length.
///
/// # Panics
/// When `into` is shorter than the key and [`VALUE_LINE_BYTES_MAX`] together.
#[inline(always)]
pub fn write_value_line(
    into: &mut [u8],
    key: &[u8],
    flags: u32,
    value_bytes: u64,
    cas: Option<u64>,
) -> usize {
    let (word, rest) = into.split_first_chunk_mut::<6>().expect("room for the line");
    *word = *b"VALUE ";
    let (name, rest) = rest.split_at_mut(key.len());
    copy(name, key);
    if flags == 0 && value_bytes < TABLE_VALUES as u64 && cas.is_none() {
        let (tail, bytes) = &TAILS[value_bytes as usize];
        *rest.first_chunk_mut::<8>().expect("room for the line") = *tail;
        return 6 + key.len() + usize::from(*bytes);
    }
    6 + key.len() + write_numbers(rest, flags, value_bytes, cas)
}

/// Room for [`write_small_value`].
pub const SMALL_ROOM: usize = 160;
/// Most bytes of key and value, each, of a small reply.
pub const SMALL_BYTES_MAX: usize = 64;

/// Writes `VALUE <key> 0 <bytes>\r\n<value>\r\nEND\r\n` and returns its length; `None` if key or value is longer than
/// [`SMALL_BYTES_MAX`], and then `into` may hold anything.
#[inline(always)]
pub fn write_small_value(into: &mut [u8; SMALL_ROOM], key: &[u8], value: &[u8]) -> Option<usize> {
    if key.len() > SMALL_BYTES_MAX || value.len() > SMALL_BYTES_MAX {
        return None;
    }
    let (word, rest) = into.split_first_chunk_mut::<6>()?;
    *word = *b"VALUE ";
    let (name, rest) = rest.split_at_mut(key.len());
    copy(name, key);
    let (tail, bytes) = &TAILS[value.len()];
    *rest.first_chunk_mut::<8>()? = *tail;
    let (data, end) = rest[usize::from(*bytes)..].split_at_mut(value.len());
    copy(data, value);
    *end.first_chunk_mut::<7>()? = *b"\r\nEND\r\n";
    Some(6 + key.len() + usize::from(*bytes) + value.len() + 7)
}

/// Writes `VA <bytes>\r\n<value>\r\n` and returns its length; `None` if the value is longer than [`SMALL_BYTES_MAX`].
#[inline(always)]
pub fn write_small_meta_value(into: &mut [u8; SMALL_ROOM], value: &[u8]) -> Option<usize> {
    if value.len() > SMALL_BYTES_MAX {
        return None;
    }
    // ` 0 <bytes>` with two other bytes in front.
    let (tail, bytes) = &TAILS[value.len()];
    *into.first_chunk_mut::<8>()? = *tail;
    *into.first_chunk_mut::<2>()? = *b"VA";
    let (data, end) = into[usize::from(*bytes)..].split_at_mut(value.len());
    copy(data, value);
    *end.first_chunk_mut::<2>()? = *b"\r\n";
    Some(usize::from(*bytes) + value.len() + 2)
}

/// Writes ` <flags> <bytes>[ <cas>]\r\n` and returns its length.
#[inline(never)]
fn write_numbers(into: &mut [u8], flags: u32, value_bytes: u64, cas: Option<u64>) -> usize {
    let mut at = 0;
    for n in [Some(u64::from(flags)), Some(value_bytes), cas].into_iter().flatten() {
        into[at] = b' ';
        at += 1;
        at += write_u64(&mut into[at..], n);
    }
    into[at..at + 2].copy_from_slice(b"\r\n");
    at + 2
}

/// Copies `from` to `to`, which have the same length. Up to 64 bytes are moved as two or four overlapping blocks of fixed size,
/// without a call.
///
/// # Panics
/// When the lengths differ.
#[inline(always)]
pub fn copy(to: &mut [u8], from: &[u8]) {
    assert_eq!(to.len(), from.len(), "equal lengths");
    match from.len() {
        8..=16 => ends::<8>(to, from),
        17..=32 => ends::<16>(to, from),
        33..=64 => ends::<32>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// Copies the first and the last `N` bytes, which cover all of them.
#[inline(always)]
fn ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(head), Some(tail)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
        *to.first_chunk_mut().expect("equal lengths") = *head;
        *to.last_chunk_mut().expect("equal lengths") = *tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_line(key: &[u8], flags: u32, bytes: u64, cas: Option<u64>) -> String {
        let mut room = [0; 400];
        let len = write_value_line(&mut room[..key.len() + VALUE_LINE_BYTES_MAX], key, flags, bytes, cas);
        String::from_utf8(room[..len].to_vec()).unwrap()
    }

    #[test]
    fn table_and_general_form_agree() {
        for bytes in [0, 1, 9, 10, 99, 100, 999, 1000, 1001, 1 << 20] {
            assert_eq!(value_line(b"k", 0, bytes, None), format!("VALUE k 0 {bytes}\r\n"));
            assert_eq!(value_line(b"k", 7, bytes, None), format!("VALUE k 7 {bytes}\r\n"));
            assert_eq!(value_line(b"k", 0, bytes, Some(5)), format!("VALUE k 0 {bytes} 5\r\n"));
        }
        let longest = value_line(&[b'k'; 250], u32::MAX, u64::MAX, Some(u64::MAX));
        assert!(longest.len() <= 250 + VALUE_LINE_BYTES_MAX);
    }

    #[test]
    fn small_values_are_written_as_large_ones() {
        for bytes in 0..=SMALL_BYTES_MAX {
            let value = vec![b'v'; bytes];
            let text = String::from_utf8(value.clone()).unwrap();
            let mut room = [0; SMALL_ROOM];
            let len = write_small_value(&mut room, b"key", &value).unwrap();
            assert_eq!(room[..len], *format!("VALUE key 0 {bytes}\r\n{text}\r\nEND\r\n").as_bytes());
            let len = write_small_meta_value(&mut room, &value).unwrap();
            assert_eq!(room[..len], *format!("VA {bytes}\r\n{text}\r\n").as_bytes());
        }
        let long = [b'v'; SMALL_BYTES_MAX + 1];
        assert!(write_small_value(&mut [0; SMALL_ROOM], b"key", &long).is_none());
        assert!(write_small_value(&mut [0; SMALL_ROOM], &long, b"value").is_none());
        assert!(write_small_meta_value(&mut [0; SMALL_ROOM], &long).is_none());
    }

    #[test]
    fn copies_of_every_short_length_are_exact() {
        let from: Vec<u8> = (0..100).collect();
        for len in 0..100 {
            let mut to = vec![0xff; len];
            copy(&mut to, &from[..len]);
            assert_eq!(to, from[..len]);
        }
    }
}
