//! The digest that is kept of a password, and of a user's name: its SHA-256, as in Redis's files of users.
//!
//! A digest does not give its text back. The time of a comparison depends neither on where digests differ nor on the length of
//! their texts. Digests have no salt: their reader can find a password that is in a dictionary, so that strength comes from
//! long random passwords.

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The SHA-256 of a secret.
#[derive(Clone)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of these bytes, which the caller overwrites afterwards.
    pub fn of(text: &[u8]) -> Digest {
        Digest(Sha256::digest(text).into())
    }

    /// Reads a digest of its 64 hexadecimal digits, in small letters.
    pub fn from_hex(digits: &[u8]) -> Option<Digest> {
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(Digest(bytes))
    }

    /// Its bytes, for sets. The time of a look in a set tells something of the digest: a password that a client has just sent
    /// is never looked up in one.
    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Its hexadecimal digits, for lists and files of users.
    pub(crate) fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl From<&str> for Digest {
    fn from(text: &str) -> Digest {
        Digest::of(text.as_bytes())
    }
}

impl ConstantTimeEq for Digest {
    fn ct_eq(&self, other: &Digest) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_sha_256_that_others_make() {
        // FIPS 180-2, appendix B.1.
        let known = [
            0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
            0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad,
        ];
        assert_eq!(Digest::from("abc").0, known);
        let hex = Digest::from("abc").hex();
        assert_eq!(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(Digest::from_hex(hex.as_bytes()).expect("64 digits").0, known);
        for bad in [&hex[1..], &hex.to_uppercase(), &format!("{hex}0"), &hex.replace('b', "g"), ""] {
            assert!(Digest::from_hex(bad.as_bytes()).is_none(), "{bad}");
        }
    }

    #[test]
    fn it_is_shown_by_nobody() {
        let shown = format!("{:?} {:#?}", Digest::from("abc"), Some(Digest::from("abc")));
        assert!(!shown.contains("abc") && !shown.contains("ba") && !shown.contains("186"), "{shown}");
    }
}
