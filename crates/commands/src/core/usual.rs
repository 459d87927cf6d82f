//! Adding to a number where nothing about it is unusual, for both protocols.

use larder_protocol::number::{U64_BYTES_MAX, parse_u64, write_u64};
use larder_store::{Guard, Hint, Key};

/// Most digits of a number that is added to without looking at limits.
const DIGITS_MAX: usize = 18;

/// The result of an addition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sum {
    pub value: u64,
    /// Bytes of the number before, no more than those of `value`.
    pub was_bytes: usize,
}

/// A number as text.
struct Text {
    room: [u8; U64_BYTES_MAX],
    bytes: usize,
}

impl AsRef<[u8]> for Text {
    #[inline(always)]
    fn as_ref(&self) -> &[u8] {
        &self.room[..self.bytes]
    }
}

/// Adds to the number that the hint names, if it is digits without a leading zero and stays so, its item has neither flags nor
/// expiry, and no other worker has changed it meanwhile. Otherwise `None`, and nothing is done.
#[inline(always)]
pub(crate) fn add(guard: &mut Guard<'_>, key: &Key<'_>, hint: &Hint<'_>, by: i64) -> Option<Sum> {
    let mut sum = None;
    let replaced = guard.replace_with(key, hint, true, |text| {
        if text.len() > DIGITS_MAX || text.first() == Some(&b'0') && text.len() > 1 {
            return None;
        }
        // What 18 digits and 32 bits add up to is in range of both protocols' numbers.
        let value = parse_u64(text)?.checked_add_signed(by)?;
        let mut room = [0; U64_BYTES_MAX];
        let bytes = write_u64(&mut room, value);
        // memcached keeps the length of what became shorter.
        if bytes < text.len() {
            return None;
        }
        sum = Some(Sum { value, was_bytes: text.len() });
        Some(Text { room, bytes })
    });
    sum.filter(|_| replaced)
}
