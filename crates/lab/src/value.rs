//! Values that name their key and version.
//!
//! ```text
//! 0        8         16                              n
//! | key    | version | s | s + G | s + 2 G | …  cut  |     little-endian words
//! ```
//!
//! `s` is a hash of key, version and length, and `G` an odd constant. So a value that belongs to another key, was torn between
//! two versions, cut, or corrupted in any byte is recognised by reading it alone. Values below [`NAMED_BYTES_MIN`] bytes have
//! room for the words of `s` only, with version 0: another key's value is recognised, another version is not.

/// The shortest value that names its key and version.
pub const NAMED_BYTES_MIN: usize = 24;

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The error in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// A complete value, of another key.
    OfKey(u64),
    /// A value that was never written: torn, cut or corrupted.
    Torn,
}

/// The finalizer of SplitMix64 over a combination of the three: every input bit reaches every output bit.
pub(crate) fn seed(key: u64, version: u64, bytes: usize) -> u64 {
    let mut x = key.wrapping_mul(0xD6E8_FEB8_6659_FD93) ^ version.rotate_left(32) ^ (bytes as u64) << 17;
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// Appends the value of `key` at `version`, `bytes` long.
pub fn write(out: &mut Vec<u8>, key: u32, version: u64, bytes: usize) {
    let end = out.len() + bytes;
    let version = if bytes < NAMED_BYTES_MIN { 0 } else { version };
    let mut word = seed(key.into(), version, bytes);
    if bytes >= NAMED_BYTES_MIN {
        out.extend_from_slice(&u64::from(key).to_le_bytes());
        out.extend_from_slice(&version.to_le_bytes());
    }
    while out.len() < end {
        let room = (end - out.len()).min(8);
        out.extend_from_slice(&word.to_le_bytes()[..room]);
        word = word.wrapping_add(STEP);
    }
}

/// Writes the value of `key` at `version` over `place`, which keeps its length.
pub fn rewrite(place: &mut [u8], key: u32, version: u64) {
    let bytes = place.len();
    let version = if bytes < NAMED_BYTES_MIN { 0 } else { version };
    let mut word = seed(key.into(), version, bytes);
    let body = if bytes >= NAMED_BYTES_MIN {
        place[..8].copy_from_slice(&u64::from(key).to_le_bytes());
        place[8..16].copy_from_slice(&version.to_le_bytes());
        &mut place[16..]
    } else {
        place
    };
    for chunk in body.chunks_mut(8) {
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        word = word.wrapping_add(STEP);
    }
}

/// The version that a value names, if it is long enough to name one.
pub fn version_of(value: &[u8]) -> Option<u64> {
    let named = value.len() >= NAMED_BYTES_MIN;
    named.then(|| u64::from_le_bytes(value[8..16].try_into().expect("8 bytes")))
}

/// Checks that `value` is one that [`write()`] made for `key`, and returns its version.
///
/// # Errors
/// The [`Flaw`].
#[inline]
pub fn verify(value: &[u8], key: u32) -> Result<u64, Flaw> {
    if value.len() < NAMED_BYTES_MIN {
        return if filled(value, seed(key.into(), 0, value.len())) { Ok(0) } else { Err(Flaw::Torn) };
    }
    let named = u64::from_le_bytes(value[..8].try_into().expect("8 bytes"));
    let version = u64::from_le_bytes(value[8..16].try_into().expect("8 bytes"));
    if !filled(&value[16..], seed(named, version, value.len())) {
        return Err(Flaw::Torn);
    }
    if named == u64::from(key) { Ok(version) } else { Err(Flaw::OfKey(named)) }
}

#[inline]
fn filled(body: &[u8], first: u64) -> bool {
    let (words, rest) = body.as_chunks::<8>();
    let mut word = first;
    let mut differ = 0;
    for have in words {
        differ |= u64::from_le_bytes(*have) ^ word;
        word = word.wrapping_add(STEP);
    }
    differ == 0 && rest == &word.to_le_bytes()[..rest.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(key: u32, version: u64, bytes: usize) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, key, version, bytes);
        assert_eq!(out.len(), bytes);
        out
    }

    #[test]
    fn every_length_verifies_for_its_own_key_and_no_other() {
        for bytes in 0..200 {
            let version = if bytes < NAMED_BYTES_MIN { 0 } else { 7 };
            assert_eq!(verify(&value(5, 7, bytes), 5), Ok(version), "{bytes}");
            if bytes >= NAMED_BYTES_MIN {
                assert_eq!(verify(&value(5, 7, bytes), 6), Err(Flaw::OfKey(5)));
            } else if bytes > 4 {
                assert_eq!(verify(&value(5, 7, bytes), 6), Err(Flaw::Torn));
            }
        }
    }

    #[test]
    fn a_value_written_over_another_is_as_if_written_anew() {
        for bytes in [0, 1, 7, 8, 23, 24, 25, 61, 300] {
            let mut place = value(9, 1, bytes);
            rewrite(&mut place, 4, 77);
            assert_eq!(place, value(4, 77, bytes));
        }
    }

    #[test]
    fn any_changed_byte_is_found() {
        let whole = value(123_456, 9, 61);
        for at in 0..whole.len() {
            let mut broken = whole.clone();
            broken[at] ^= 1;
            assert_eq!(verify(&broken, 123_456), Err(Flaw::Torn), "{at}");
        }
    }

    #[test]
    fn a_value_torn_between_two_versions_is_found() {
        let (old, new) = (value(1, 1, 4096), value(1, 2, 4096));
        for cut in [1, 8, 9, 16, 17, 24, 2048, 4095] {
            let torn: Vec<u8> = old[..cut].iter().chain(&new[cut..]).copied().collect();
            let whole = torn == old || torn == new;
            assert_eq!(verify(&torn, 1).is_ok(), whole, "{cut}");
        }
    }
}
