//! Values that prove where they come from: each names its key and its version and carries a checksum.
//!
//! ```text
//! key ' ' version ' ' checksum (16 hex digits, over the rest) ' ' filling
//! ```

/// A value of `bytes` bytes for `key`; longer, if its proof needs more.
pub fn value(key: &str, version: u64, bytes: usize) -> Vec<u8> {
    let head = format!("{key} {version} ");
    let filling = bytes.saturating_sub(head.len() + 17);
    let mut body = Vec::with_capacity(filling);
    let mut state = version.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while body.len() < filling {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        body.push(state as u8);
    }
    let sum = checksum(head.as_bytes(), &body);
    let mut value = format!("{head}{sum:016x} ").into_bytes();
    value.extend_from_slice(&body);
    value
}

/// The version of a value that was read under `key`.
///
/// # Errors
/// The value is another key's, or differs from what was written.
pub fn version(key: &str, value: &[u8]) -> Result<u64, String> {
    let mut parts = value.splitn(4, |byte| *byte == b' ');
    let mut next = || parts.next().ok_or(format!("{key} holds what was never written"));
    let (name, version, sum, body) = (next()?, next()?, next()?, next()?);
    if name != key.as_bytes() {
        return Err(format!("{key} holds the value of {}", String::from_utf8_lossy(name)));
    }
    let head = [name, b" ", version, b" "].concat();
    if sum != format!("{:016x}", checksum(&head, body)).as_bytes() {
        return Err(format!("{key} holds a torn value of {} bytes", value.len()));
    }
    std::str::from_utf8(version)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(format!("{key} has no version"))
}

/// FNV-1a: changes with every byte and every place.
fn checksum(head: &[u8], body: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    body.iter().fold(head.iter().fold(0xcbf2_9ce4_8422_2325, step), step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_proves_its_key_and_version() {
        for bytes in [0, 40, 1000] {
            let value = value("k1", 7, bytes);
            assert!(value.len() >= bytes);
            assert_eq!(version("k1", &value), Ok(7));
            assert!(version("k2", &value).is_err());
        }
    }

    #[test]
    fn a_torn_value_is_found_out() {
        let (old, new) = (value("k", 1, 500), value("k", 2, 500));
        let torn = [&old[..250], &new[250..]].concat();
        assert!(version("k", &torn).is_err());
        assert!(version("k", &new[..499]).is_err());
    }
}
