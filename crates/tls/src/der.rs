//! Elements of DER, the form of certificates: each is a tag, a length and that many bytes.

/// Elements in order, of one kind.
pub(crate) const SEQUENCE: u8 = 0x30;
/// Elements without an order.
pub(crate) const SET: u8 = 0x31;

/// The contents of the element in front, and what follows it.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, short], rest) = bytes.split_first_chunk::<2>()?;
    if found != tag {
        return None;
    }
    let (len, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        // The length takes this many bytes. Certificates have less than 64 KiB.
        0x81 => (usize::from(*rest.first()?), &rest[1..]),
        0x82 => {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*length)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(len)
}

/// Takes the element in front, whose contents it returns.
pub(crate) fn take<'b>(bytes: &mut &'b [u8], tag: u8) -> Option<&'b [u8]> {
    let (contents, rest) = element(bytes, tag)?;
    *bytes = rest;
    Some(contents)
}

/// Takes the element in front, whatever it is.
pub(crate) fn skip(bytes: &mut &[u8]) -> Option<()> {
    let tag = *bytes.first()?;
    take(bytes, tag)?;
    Some(())
}

/// The public key of a certificate, with what kind it is: the whole element.
pub(crate) fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    let mut body = from_validity(certificate)?;
    // Validity, subject.
    skip(&mut body)?;
    skip(&mut body)?;
    let mut rest = body;
    take(&mut rest, SEQUENCE)?;
    body.get(..body.len() - rest.len())
}

/// The fields of a certificate's body from its validity on:
///
/// ```text
/// Certificate { TBSCertificate { [0] version?, serial, algorithm, issuer, validity, subject, … } … }
/// ```
pub(crate) fn from_validity(certificate: &[u8]) -> Option<&[u8]> {
    const VERSION: u8 = 0xa0;
    let (mut whole, _) = element(certificate, SEQUENCE)?;
    let mut body = take(&mut whole, SEQUENCE)?;
    if body.first() == Some(&VERSION) {
        take(&mut body, VERSION)?;
    }
    // Serial, algorithm, issuer.
    for _ in 0..3 {
        skip(&mut body)?;
    }
    Some(body)
}
