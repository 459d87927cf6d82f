//! The common name of a certificate's subject.
//!
//! ```text
//! Name [ SET [ { type, value }, … ], … ]
//! ```
//!
//! rustls has verified the certificate before it is read here: its authority vouches for the name. A name that cannot be read
//! counts as none.

use crate::der::{SEQUENCE, SET, from_validity, skip, take};
use crate::expiry::not_after;

const OBJECT_IDENTIFIER: u8 = 0x06;
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const UTF8_STRING: u8 = 0x0c;
const PRINTABLE_STRING: u8 = 0x13;
const IA5_STRING: u8 = 0x16;

/// The common name of a certificate's subject, unless the certificate has expired at this time, in seconds since 1970. A resumed
/// session is not verified again, and its client gets a new ticket each time: without this check its name would never expire.
pub(crate) fn common_name_at(certificate: &[u8], now_s: u64) -> Option<Box<str>> {
    let is_valid = not_after(certificate).is_none_or(|end_s| now_s <= end_s);
    if is_valid { common_name(certificate) } else { None }
}

/// The first common name of a certificate's subject, as OpenSSL's programs take it, if it is text in UTF-8 or ASCII and has no
/// zero, at which a program in C would cut it.
fn common_name(certificate: &[u8]) -> Option<Box<str>> {
    let mut body = from_validity(certificate)?;
    skip(&mut body)?;
    let mut subject = take(&mut body, SEQUENCE)?;
    while !subject.is_empty() {
        let mut set = take(&mut subject, SET)?;
        while !set.is_empty() {
            let mut attribute = take(&mut set, SEQUENCE)?;
            if take(&mut attribute, OBJECT_IDENTIFIER)? != COMMON_NAME {
                continue;
            }
            let tag = *attribute.first()?;
            if !matches!(tag, UTF8_STRING | PRINTABLE_STRING | IA5_STRING) {
                return None;
            }
            let name = std::str::from_utf8(take(&mut attribute, tag)?).ok()?;
            return (!name.is_empty() && !name.contains('\0')).then(|| name.into());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{DistinguishedName, DnType, DnValue};

    use super::*;

    fn certificate(subject: Vec<(DnType, DnValue)>) -> Vec<u8> {
        let mut wanted = rcgen::CertificateParams::new(["larder.test".to_owned()]).expect("a name");
        wanted.distinguished_name = DistinguishedName::new();
        subject.into_iter().for_each(|(kind, value)| wanted.distinguished_name.push(kind, value));
        let key = rcgen::KeyPair::generate().expect("random numbers");
        wanted.self_signed(&key).expect("a certificate").der().to_vec()
    }

    fn text(text: &str) -> DnValue {
        DnValue::Utf8String(text.to_owned())
    }

    #[test]
    fn the_common_name_is_read_wherever_it_stands_in_the_subject() {
        let printable = "app-1".try_into().expect("it is printable");
        for (subject, name) in [
            (vec![(DnType::CommonName, text("app"))], Some("app")),
            (vec![(DnType::CommonName, DnValue::PrintableString(printable))], Some("app-1")),
            (
                vec![(DnType::OrganizationName, text("none")), (DnType::CommonName, text("größe"))],
                Some("größe"),
            ),
            (vec![(DnType::CommonName, text("app")), (DnType::CountryName, text("DE"))], Some("app")),
            (vec![(DnType::CommonName, text(&"n".repeat(300)))], Some(&"n".repeat(300)[..])),
            (vec![(DnType::OrganizationName, text("app"))], None),
            (vec![(DnType::CommonName, text(""))], None),
            (vec![(DnType::CommonName, text("app\0.evil"))], None),
            (vec![], None),
        ] {
            assert_eq!(common_name(&certificate(subject)).as_deref(), name);
        }
    }

    #[test]
    fn a_certificate_names_its_user_up_to_its_last_second() {
        let mut wanted = rcgen::CertificateParams::new(["larder.test".to_owned()]).expect("a name");
        wanted.distinguished_name = DistinguishedName::new();
        wanted.distinguished_name.push(DnType::CommonName, "app");
        wanted.not_before = rcgen::date_time_ymd(1971, 1, 1);
        wanted.not_after = rcgen::date_time_ymd(2000, 3, 1);
        let key = rcgen::KeyPair::generate().expect("random numbers");
        let certificate = wanted.self_signed(&key).expect("a certificate").der().to_vec();
        let end_s = 11_017 * 86_400;
        for (now_s, name) in [(end_s - 1, Some("app")), (end_s, Some("app")), (end_s + 1, None)] {
            assert_eq!(common_name_at(&certificate, now_s).as_deref(), name, "{now_s}");
        }
    }

    proptest! {
        /// Bytes that are no certificate, and bytes that are nearly one.
        #[test]
        fn any_bytes_have_a_name_or_none(
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            cut in any::<prop::sample::Index>(),
            junk in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut bytes = certificate(vec![(DnType::CommonName, text("app"))]);
            let index = at.index(bytes.len().min(160));
            bytes[index] = byte;
            common_name(&bytes);
            common_name(&bytes[..cut.index(bytes.len())]);
            common_name(&junk);
        }
    }
}
