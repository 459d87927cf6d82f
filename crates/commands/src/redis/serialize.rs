//! Redis's payload of a value, which DUMP (`keys/dump.rs`) writes and RESTORE (`keys/restore.rs`) reads. `collections/payload.rs`
//! has the payloads of collections.
//!
//! ```text
//! type 1 (0: string) | length and bytes, or a packed number, or LZF | version 2 LE | CRC-64 8 LE
//!
//! length: 00nnnnnn | 01nnnnnn 8 more bits | 0x80 32 bits BE | 0x81 64 bits BE
//! packed: 0xC0 8 bits | 0xC1 16 bits LE | 0xC2 32 bits LE | 0xC3 packed bytes, bytes, LZF data
//! ```

mod node;
pub(crate) mod packings;

use std::borrow::Cow;

use arrayvec::ArrayVec;
use larder_protocol::resp::{parse_integer, write_integer};

use super::fail::Fail;
pub(crate) use node::Node;

/// The version that is written: that of Redis 7.0, which every later one reads.
pub(crate) const VERSION: u16 = 10;
/// The version that is written for a hash in which a field expires: that of Redis 7.4.
pub(crate) const TIMED_VERSION: u16 = 12;
/// The last version of Redis that is read.
const VERSION_MAX: u16 = TIMED_VERSION;
/// Versions of Valkey, which begin at this one; strings are the same in all of them.
const VALKEY_VERSIONS: std::ops::RangeInclusive<u16> = 80..=89;
pub(crate) const TYPE_STRING: u8 = 0;
pub(crate) const BAD_FORMAT: Fail = Fail::of("ERR Bad data format");
/// Bytes of the version and the checksum, behind the value.
pub(crate) const FOOTER_BYTES: usize = 10;

/// Tables of the CRC: what a byte adds, by how many bytes are behind it.
static CRC: [[u64; 256]; 8] = {
    // The Jones polynomial, bits reversed.
    const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;
    let mut tables = [[0; 256]; 8];
    let mut n = 0;
    while n < 256 {
        let mut crc = n as u64;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][n] = crc;
        n += 1;
    }
    let mut behind = 1;
    while behind < 8 {
        let mut n = 0;
        while n < 256 {
            let before = tables[behind - 1][n];
            tables[behind][n] = tables[0][(before & 0xff) as usize] ^ before >> 8;
            n += 1;
        }
        behind += 1;
    }
    tables
};

/// The checksum of these bytes.
pub(crate) fn crc64(bytes: &[u8]) -> u64 {
    crc64_on(0, bytes)
}

/// The checksum of bytes behind others whose checksum is `crc`: eight bytes at a time, which do not wait for each other.
pub(crate) fn crc64_on(crc: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks();
    let crc = words.iter().fold(crc, |crc, word| {
        let word = (crc ^ u64::from_le_bytes(*word)).to_le_bytes();
        (0..8).fold(0, |crc, n| crc ^ CRC[7 - n][usize::from(word[n])])
    });
    rest.iter().fold(crc, |crc, byte| CRC[0][usize::from(crc as u8 ^ byte)] ^ crc >> 8)
}

/// Bytes of a length, at most.
pub(crate) const LENGTH_BYTES_MAX: usize = 9;
/// Bytes of a packed number, at most.
const PACKED_BYTES_MAX: usize = 5;

/// Encodes a length.
pub(crate) fn length(n: u64) -> ArrayVec<u8, LENGTH_BYTES_MAX> {
    let mut bytes = ArrayVec::new();
    match n {
        0..0x40 => bytes.push(n as u8),
        0x40..0x4000 => bytes.extend(((n as u16) | 0x4000).to_be_bytes()),
        0x4000..0x1_0000_0000 => {
            bytes.push(0x80);
            bytes.extend((n as u32).to_be_bytes());
        }
        _ => {
            bytes.push(0x81);
            bytes.extend(n.to_be_bytes());
        }
    }
    bytes
}

/// Encodes a string that is the decimal text of a number; `None` for more than 32 bits, which are not packed.
pub(crate) fn packed(n: i64) -> Option<ArrayVec<u8, PACKED_BYTES_MAX>> {
    let mut bytes = ArrayVec::new();
    let n = i32::try_from(n).ok()?;
    if let Ok(n) = i8::try_from(n) {
        bytes.extend([0xc0, n as u8]);
    } else if let Ok(n) = i16::try_from(n) {
        bytes.push(0xc1);
        bytes.extend(n.to_le_bytes());
    } else {
        bytes.push(0xc2);
        bytes.extend(n.to_le_bytes());
    }
    Some(bytes)
}

/// The type of a library of functions.
const LIBRARY: u8 = 245;

/// What is in front of a library of so many bytes, in a payload of libraries.
pub(crate) fn library_head(bytes: usize) -> ArrayVec<u8, { LENGTH_BYTES_MAX + 1 }> {
    let mut head = ArrayVec::new();
    head.push(LIBRARY);
    head.extend(length(bytes as u64));
    head
}

/// Reads the code of the next library from a payload without its footer. `room` is asked as by [`Reader::string`].
///
/// # Errors
/// It is no library, or there is no room.
pub(crate) fn restored_function<'a>(
    payload: &mut Reader<'a>,
    room: &mut dyn FnMut(usize) -> Result<(), Fail>,
) -> Result<Option<Cow<'a, [u8]>>, Fail> {
    if payload.0.is_empty() {
        return Ok(None);
    }
    if payload.array() != Some([LIBRARY]) {
        return Err(Fail::of("ERR given type is not a function"));
    }
    payload.string(room).map(Some)
}

/// Makes the payload of a string.
pub(crate) fn dump_string(value: &[u8]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(value.len() + 32);
    payload.push(TYPE_STRING);
    match parse_integer(value).and_then(packed) {
        Some(packed) => payload.extend_from_slice(&packed),
        None => {
            payload.extend_from_slice(&length(value.len() as u64));
            payload.extend_from_slice(value);
        }
    }
    payload.extend_from_slice(&VERSION.to_le_bytes());
    let crc = crc64(&payload);
    payload.extend_from_slice(&crc.to_le_bytes());
    payload
}

/// The rest of a payload that is being read.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    pub fn length(&mut self) -> Option<usize> {
        let [first] = self.array()?;
        let n = match first >> 6 {
            0 => u64::from(first),
            1 => u64::from(first & 0x3f) << 8 | u64::from(self.array::<1>()?[0]),
            _ => match first {
                0x80 => u64::from(u32::from_be_bytes(self.array()?)),
                0x81 => u64::from_be_bytes(self.array()?),
                _ => return None,
            },
        };
        usize::try_from(n).ok()
    }

    /// Reads a string, packed or not. `room` checks that there is room to unpack so many bytes.
    pub fn string(&mut self, room: &mut dyn FnMut(usize) -> Result<(), Fail>) -> Result<Cow<'a, [u8]>, Fail> {
        self.string_or(room).unwrap_or(Err(BAD_FORMAT))
    }

    fn string_or(
        &mut self,
        room: &mut dyn FnMut(usize) -> Result<(), Fail>,
    ) -> Option<Result<Cow<'a, [u8]>, Fail>> {
        let packed = match *self.0.first()? {
            0xc0 => i32::from(i8::from_le_bytes({
                self.take(1)?;
                self.array()?
            })),
            0xc1 => i32::from(i16::from_le_bytes({
                self.take(1)?;
                self.array()?
            })),
            0xc2 => i32::from_le_bytes({
                self.take(1)?;
                self.array()?
            }),
            0xc3 => {
                self.take(1)?;
                let (packed, bytes) = (self.length()?, self.length()?);
                let data = self.take(packed)?;
                return match room(bytes) {
                    Ok(()) => Some(Ok(Cow::Owned(unpack(data, bytes)?))),
                    Err(fail) => Some(Err(fail)),
                };
            }
            _ => {
                let bytes = self.length()?;
                return Some(Ok(Cow::Borrowed(self.take(bytes)?)));
            }
        };
        let mut digit_room = [0; 20];
        let digits = write_integer(&mut digit_room, i64::from(packed));
        Some(Ok(Cow::Owned(digit_room[..digits].to_vec())))
    }
}

/// A byte of LZF stands for at most so many bytes.
pub(crate) const LZF_BYTES_MAX: usize = 264;
/// How many bytes LZF refers back, at most.
pub(crate) const LZF_BACK_MAX: usize = 8 << 10;

/// Unpacks LZF into exactly so many bytes.
fn unpack(mut data: &[u8], bytes: usize) -> Option<Vec<u8>> {
    if bytes > data.len().saturating_mul(LZF_BYTES_MAX) {
        return None;
    }
    let mut out = Vec::with_capacity(bytes);
    while !data.is_empty() {
        unpack_some(&mut data, &mut out, bytes)?;
    }
    (out.len() == bytes).then_some(out)
}

/// Unpacks what one control byte says, behind `out`, which has at least the last [`LZF_BACK_MAX`] bytes, up to `bytes_max` in
/// all.
pub(crate) fn unpack_some(data: &mut &[u8], out: &mut Vec<u8>, bytes_max: usize) -> Option<()> {
    let (control, rest) = data.split_first()?;
    let control = usize::from(*control);
    if control < 32 {
        let (literal, rest) = rest.split_at_checked(control + 1)?;
        if literal.len() > bytes_max - out.len() {
            return None;
        }
        out.extend_from_slice(literal);
        *data = rest;
        return Some(());
    }
    let mut len = control >> 5;
    let mut rest = rest;
    if len == 7 {
        let (more, after) = rest.split_first()?;
        len += usize::from(*more);
        rest = after;
    }
    let (low, after) = rest.split_first()?;
    let back = ((control & 0x1f) << 8 | usize::from(*low)) + 1;
    let start = out.len().checked_sub(back)?;
    if len + 2 > bytes_max - out.len() {
        return None;
    }
    // The copied bytes may be some of those that this writes.
    for at in start..start + len + 2 {
        out.push(out[at]);
    }
    *data = after;
    Some(())
}

/// Reads a string's payload. `room`: as for [`Reader::string`].
pub(crate) fn restore_string<'a>(
    payload: &'a [u8],
    room: &mut dyn FnMut(usize) -> Result<(), Fail>,
) -> Result<Cow<'a, [u8]>, Fail> {
    let mut reader = Reader(verified(payload)?);
    if reader.array() != Some([TYPE_STRING]) {
        return Err(BAD_FORMAT);
    }
    let value = reader.string(room)?;
    if reader.0.is_empty() { Ok(value) } else { Err(BAD_FORMAT) }
}

pub(crate) const WRONG: Fail = Fail::of("ERR DUMP payload version or checksum are wrong");

/// Where the value in a payload ends, and the checksum behind it; `None` if it was not computed. Checks the version.
pub(crate) fn footer(payload: &[u8]) -> Result<(usize, Option<u64>), Fail> {
    let Some(at) = payload.len().checked_sub(FOOTER_BYTES) else { return Err(WRONG) };
    let footer = &payload[at..];
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    let mut crc = [0; 8];
    crc.copy_from_slice(&footer[2..]);
    let crc = u64::from_le_bytes(crc);
    let is_known = version <= VERSION_MAX || VALKEY_VERSIONS.contains(&version);
    // Redis takes 0 for "not computed".
    if is_known { Ok((at, Some(crc).filter(|&crc| crc != 0))) } else { Err(WRONG) }
}

/// The value in a payload, if its version is known and its checksum right.
pub(crate) fn verified(payload: &[u8]) -> Result<&[u8], Fail> {
    let (at, crc) = footer(payload)?;
    if crc.is_some_and(|crc| crc != crc64(&payload[..at + 2])) { Err(WRONG) } else { Ok(&payload[..at]) }
}

/// Work to checksum so many bytes.
pub(crate) fn checking_ns(bytes: u64) -> u64 {
    bytes / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restore(payload: &[u8], bytes_max: usize) -> Result<Vec<u8>, Fail> {
        let room = &mut |bytes| if bytes <= bytes_max { Ok(()) } else { Err(BAD_FORMAT) };
        restore_string(payload, room).map(Cow::into_owned)
    }

    #[test]
    fn the_checksum_is_the_one_that_redis_computes() {
        assert_eq!(crc64(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        // Whether eight at a time or one by one.
        let bytes: Vec<u8> = (0..100u32).map(|n| (n * 37) as u8).collect();
        let one_by_one = bytes.iter().fold(0, |crc, byte| crc64_on(crc, &[*byte]));
        assert_eq!(crc64(&bytes), one_by_one);
    }

    #[test]
    fn what_is_dumped_is_restored() {
        for value in [
            b"".to_vec(),
            b"hello".to_vec(),
            b"0".to_vec(),
            b"-1".to_vec(),
            b"127".to_vec(),
            b"-32768".to_vec(),
            b"2147483647".to_vec(),
            b"2147483648".to_vec(),
            b"007".to_vec(),
            vec![b'x'; 63],
            vec![b'x'; 64],
            vec![b'x'; 16384],
        ] {
            let payload = dump_string(&value);
            assert_eq!(restore(&payload, 1 << 20), Ok(value));
            for at in 0..payload.len().min(40) {
                let mut broken = payload.clone();
                broken[at] ^= 1;
                assert!(restore(&broken, 1 << 20).is_err());
            }
        }
    }

    #[test]
    fn a_payload_of_redis_is_read() {
        // DUMP of "hello" and of a hundred times "a", by Redis 7.0.
        let hello = b"\x00\x05hello\x0a\x00";
        let mut payload = hello.to_vec();
        payload.extend_from_slice(&crc64(hello).to_le_bytes());
        assert_eq!(restore(&payload, 100), Ok(b"hello".to_vec()));
        let packed = b"\x00\xc3\x09\x40\x64\x01aa\xe0\x57\x00\x01aa\x0a\x00";
        let mut payload = packed.to_vec();
        payload.extend_from_slice(&crc64(packed).to_le_bytes());
        assert_eq!(restore(&payload, 100), Ok(vec![b'a'; 100]));
        assert!(restore(&payload, 99).is_err(), "no more than a value may have");
    }

    #[test]
    fn unpacking_reads_nothing_before_the_start() {
        assert_eq!(unpack(&[0x20, 0x05], 3), None);
        assert_eq!(unpack(&[0x00], 1), None);
    }
}
