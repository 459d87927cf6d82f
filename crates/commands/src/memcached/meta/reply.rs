//! Return flags: what a meta reply repeats or tells, in the order of the request.

use arrayvec::ArrayVec;
use larder_protocol::meta::{Flags, OPAQUE_BYTES_MAX};
use larder_protocol::number::{U64_BYTES_MAX, write_u64};

use crate::core::output::Output;
use crate::memcached::text::put_meta_key;

/// The key that `k` and `b` are answered from.
#[derive(Clone, Copy, Debug)]
pub struct ReplyKey<'a> {
    /// The key, decoded.
    pub bytes: &'a [u8],
    /// Whether it is sent in base64, marked ` b`. A key that is no text is sent so in any case.
    pub binary: bool,
}

/// ` <letter><number>`
pub fn put_number_flag(out: &mut Output, letter: u8, n: u64) {
    let room = out.room(2 + U64_BYTES_MAX);
    room[0] = b' ';
    room[1] = letter;
    let bytes = 2 + write_u64(&mut room[2..], n);
    out.filled(bytes);
}

/// ` k<key>[ b]`
pub fn put_key_flag(out: &mut Output, key: ReplyKey<'_>) {
    out.put(b" k");
    put_meta_key(out, key.bytes, key.binary);
}

/// ` O<opaque>`
pub fn put_opaque_flag(out: &mut Output, opaque: &[u8]) {
    out.put(b" O");
    out.put(opaque);
}

/// Writes a reply of two letters that repeats `k` and `O` and tells nothing else, with its line end.
pub fn put_status(out: &mut Output, status: &[u8; 2], flags: &Flags<'_>, key: ReplyKey<'_>) {
    out.put(status);
    if flags.has_any(b"kO") {
        for flag in flags.iter() {
            match flag.letter {
                b'k' => put_key_flag(out, key),
                b'O' => put_opaque_flag(out, flag.token),
                _ => {}
            }
        }
    }
    out.put(b"\r\n");
}

/// The return flags of an ms, kept while its value arrives: the letters in order (of `k O c s`) and the opaque.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    letters: ArrayVec<u8, 4>,
    opaque: ArrayVec<u8, OPAQUE_BYTES_MAX>,
    binary: bool,
}

impl Tail {
    /// The tail for these flags, whose opaque was found to be of legal length.
    #[inline]
    pub fn new(flags: &Flags<'_>) -> Tail {
        let mut tail = Tail { binary: flags.has(b'b'), ..Tail::default() };
        if flags.has_any(b"kOcs") {
            for flag in flags.iter().filter(|flag| matches!(flag.letter, b'k' | b'O' | b'c' | b's')) {
                tail.letters.push(flag.letter);
                if flag.letter == b'O' {
                    tail.opaque.extend(flag.token.iter().copied());
                }
            }
        }
        tail
    }

    /// Returns whether there is nothing to repeat or tell.
    pub fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// Writes the flags and the line end.
    #[inline]
    pub fn put(&self, out: &mut Output, key: &[u8], cas: u64, value_bytes: u64) {
        for &letter in &self.letters {
            match letter {
                b'k' => put_key_flag(out, ReplyKey { bytes: key, binary: self.binary }),
                b'O' => put_opaque_flag(out, &self.opaque),
                b'c' => put_number_flag(out, b'c', cas),
                _ => put_number_flag(out, b's', value_bytes),
            }
        }
        out.put(b"\r\n");
    }
}
