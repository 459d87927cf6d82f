//! When a certificate expires.
//!
//! ```text
//! Validity { notBefore, notAfter }
//! ```
//!
//! rustls verifies certificates. This date informs an operator, and says how long the certificate of a resumed session names its
//! user, so a certificate that cannot be read is no error.

use crate::der::{SEQUENCE, from_validity, skip, take};

const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// When the certificate expires, in seconds since 1970.
pub(crate) fn not_after(certificate: &[u8]) -> Option<u64> {
    let mut body = from_validity(certificate)?;
    let mut validity = take(&mut body, SEQUENCE)?;
    skip(&mut validity)?;
    match *validity.first()? {
        UTC_TIME => {
            let text = take(&mut validity, UTC_TIME)?;
            // Two digits of the year: 1950 to 2049 (RFC 5280, 4.1.2.5.1).
            let year = number(text.get(..2)?)?;
            seconds(if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
        }
        GENERALIZED_TIME => {
            let text = take(&mut validity, GENERALIZED_TIME)?;
            seconds(number(text.get(..4)?)?, text.get(4..)?)
        }
        _ => None,
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |all, digit| match digit {
        b'0'..=b'9' => Some(all * 10 + u64::from(digit - b'0')),
        _ => None,
    })
}

/// Seconds since 1970 of a year and the `MMDDHHMMSSZ` in it.
fn seconds(year: u64, rest: &[u8]) -> Option<u64> {
    let [digits @ .., b'Z'] = rest else { return None };
    if digits.len() != 10 || year < 1970 {
        return None;
    }
    let mut parts = digits.chunks(2).map(number);
    let mut part = || parts.next().flatten();
    let (month, day, hour, minute, second) = (part()?, part()?, part()?, part()?, part()?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // Counts the days in years that begin in March, so that the leap day is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    Some((days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn certificate(year: i32, month: u8, day: u8) -> Vec<u8> {
        let mut wanted = rcgen::CertificateParams::new(["larder.test".to_owned()]).expect("a name");
        wanted.not_before = rcgen::date_time_ymd(1971, 1, 1);
        wanted.not_after = rcgen::date_time_ymd(year, month, day);
        let key = rcgen::KeyPair::generate().expect("random numbers");
        wanted.self_signed(&key).expect("a certificate").der().to_vec()
    }

    #[test]
    fn the_end_of_a_certificate_is_read_in_both_forms_of_time() {
        for (year, month, day, days) in [
            (1999, 12, 31, 10_956),
            (2000, 2, 29, 11_016),
            (2000, 3, 1, 11_017),
            (2026, 11, 29, 20_786),
            (2049, 12, 31, 29_219),
            (2050, 1, 1, 29_220),
            (2100, 3, 1, 47_541),
        ] {
            assert_eq!(
                not_after(&certificate(year, month, day)),
                Some(days * 86_400),
                "{year}-{month}-{day}"
            );
        }
        assert_eq!(seconds(1970, b"0101000000Z"), Some(0));
        assert_eq!(seconds(2001, b"0909014640Z"), Some(1_000_000_000));
        for bad in
            [&b"0101000000"[..], b"1301000000Z", b"0100000000Z", b"0101240000Z", b"01010000aaZ", b"Z", b""]
        {
            assert_eq!(seconds(2001, bad), None);
        }
        assert_eq!(seconds(1969, b"1231235959Z"), None);
    }

    proptest! {
        /// Bytes that are no certificate, and bytes that are nearly one.
        #[test]
        fn any_bytes_are_read_or_not_understood(
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            cut in any::<prop::sample::Index>(),
            junk in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut bytes = certificate(2030, 1, 1);
            let index = at.index(bytes.len().min(120));
            bytes[index] = byte;
            not_after(&bytes);
            not_after(&bytes[..cut.index(bytes.len())]);
            not_after(&junk);
        }
    }
}
