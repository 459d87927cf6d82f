//! memcached's binary protocol: frames ⇄ requests and replies.
//!
//! ```text
//!     0        1        2        3        4        5        6        7
//!   +--------+--------+--------+--------+--------+--------+--------+--------+
//! 0 | magic  | opcode | key bytes       | extras | type   | vbucket, status |
//!   +--------+--------+--------+--------+--------+--------+--------+--------+
//! 8 | body bytes: extras, key and value | opaque                            |
//!   +--------+--------+--------+--------+--------+--------+--------+--------+
//! 16| CAS token                                                             |
//!   +--------+--------+--------+--------+--------+--------+--------+--------+
//! 24| extras … | key … | value …
//! ```
//!
//! Numbers are big-endian. A request begins with 0x80, a reply with 0x81. A reply repeats the request's opcode and opaque.
//! The data type, and the vbucket of a request, are ignored.
//!
//! [`decode`] checks a header before it takes anything behind it. A frame of an unknown opcode is skipped: as many bytes as its
//! header announces. A frame whose lengths contradict each other, are above a limit or do not fit its opcode ends the connection.

mod opcode;
#[cfg(test)]
mod tests;

pub use opcode::{OPCODES, Opcode, Verb, opcode};

use crate::classic::{KEY_BYTES_MAX, StoreVerb};

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 24;
/// First byte of a request.
pub const REQUEST_MAGIC: u8 = 0x80;
/// First byte of a reply.
pub const REPLY_MAGIC: u8 = 0x81;
/// Most bytes of a body. memcached closes the connection above that, too.
pub const BODY_BYTES_MAX: u32 = 1 << 30;
/// The exptime with which incr and decr make no item where there is none.
const NO_INITIAL: u32 = u32::MAX;

/// The status of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Status {
    /// It is done.
    Ok = 0,
    /// There is no item.
    NotFound = 1,
    /// There is an item, or it has another token.
    Exists = 2,
    /// The value is above the limit.
    TooLarge = 3,
    /// The parts of the frame do not fit its opcode, or are too long.
    Invalid = 4,
    /// The condition of a store does not hold.
    NotStored = 5,
    /// The value is no number.
    NotANumber = 6,
    /// The client is not authenticated, gave a wrong password, or lacks the permission.
    Auth = 0x20,
    /// SASL needs another step.
    AuthContinue = 0x21,
    /// The opcode is unknown, or the lengths contradict each other.
    Unknown = 0x81,
    /// Out of memory.
    NoMemory = 0x82,
}

impl Status {
    /// memcached's words for the status: the body of a reply.
    pub fn text(self) -> &'static str {
        match self {
            Status::Ok | Status::AuthContinue => "",
            Status::NotFound => "Not found",
            Status::Exists => "Data exists for key.",
            Status::TooLarge => "Too large.",
            Status::Invalid => "Invalid arguments",
            Status::NotStored => "Not stored.",
            Status::NotANumber => "Non-numeric server-side value for incr or decr",
            Status::Auth => "Auth failure.",
            Status::Unknown => "Unknown command",
            Status::NoMemory => "Out of memory",
        }
    }
}

/// The fields of a request that its replies repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The opcode.
    pub code: u8,
    /// Four bytes that the client chose.
    pub opaque: [u8; 4],
}

/// What a frame asks for, with its extras decoded. Exptimes are as in text, but have no sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The value of a key.
    Get,
    /// The value of a key, and a new exptime for it.
    GetAndTouch {
        /// The exptime.
        exptime: u32,
    },
    /// A new exptime.
    Touch {
        /// The exptime.
        exptime: u32,
    },
    /// set, add, replace.
    Store {
        /// Which of them.
        verb: StoreVerb,
        /// The item's flags.
        flags: u32,
        /// Its exptime.
        exptime: u32,
    },
    /// append, prepend.
    Concat {
        /// Which of them.
        verb: StoreVerb,
    },
    /// Removes an item.
    Delete,
    /// Adds to a number or takes from it.
    Arithmetic {
        /// Subtracts, down to 0.
        decrement: bool,
        /// The number to add or subtract.
        delta: u64,
        /// The number and the exptime of the item to make where there is none; `None`: a miss.
        initial: Option<(u64, u32)>,
    },
    /// Removes everything.
    Flush {
        /// Seconds until the flush.
        delay: u32,
    },
    /// A reply, after those of all earlier requests.
    Noop,
    /// The version.
    Version,
    /// Figures of the group that the key names.
    Stat,
    /// Sets the log level.
    Verbosity {
        /// The level.
        level: u32,
    },
    /// Ends the connection.
    Quit,
    /// Names of SASL mechanisms.
    SaslList,
    /// Authenticates the client, by the mechanism that the key names.
    Sasl {
        /// Continues an authentication.
        step: bool,
    },
}

/// A frame without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What its replies repeat.
    pub head: Head,
    /// The row of its opcode.
    pub opcode: &'static Opcode,
    /// What it asks for.
    pub request: Request,
    /// The key, up to [`KEY_BYTES_MAX`] bytes of any kind.
    pub key: &'a [u8],
    /// The token that the item must have; 0: any token.
    pub cas: u64,
    /// Bytes of the value that follows.
    pub value_bytes: u32,
}

/// What is at the front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A part of a frame: the rest has not arrived.
    Incomplete,
    /// A frame up to its value, which begins after this many bytes.
    Frame(Frame<'a>, usize),
    /// A frame that is answered by a status, and its length in bytes, header included.
    Refused(Head, Status, u64),
    /// A frame that is answered by a status and ends the connection.
    Broken(Head, Status),
    /// Not a frame.
    NoFrame,
}

/// Reads the frame at the front of `input`, up to its value.
///
/// The header alone decides what is wrong with a frame: the result does not depend on how much of it has arrived.
#[inline]
pub fn decode(input: &[u8]) -> Decoded<'_> {
    let Some((header, rest)) = input.split_first_chunk::<HEADER_BYTES>() else {
        return match input.first() {
            None | Some(&REQUEST_MAGIC) => Decoded::Incomplete,
            Some(_) => Decoded::NoFrame,
        };
    };
    if header[0] != REQUEST_MAGIC {
        return Decoded::NoFrame;
    }
    let key_bytes = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let extras_bytes = usize::from(header[4]);
    let body_bytes = u32::from_be_bytes([header[8], header[9], header[10], header[11]]);
    let head = Head { code: header[1], opaque: [header[12], header[13], header[14], header[15]] };
    let Some(value_bytes) = body_bytes.checked_sub((key_bytes + extras_bytes) as u32) else {
        return Decoded::Broken(head, Status::Unknown);
    };
    if key_bytes > KEY_BYTES_MAX || body_bytes > BODY_BYTES_MAX {
        return Decoded::Broken(head, Status::Invalid);
    }
    let Some(opcode) = opcode(head.code) else {
        return Decoded::Refused(head, Status::Unknown, HEADER_BYTES as u64 + u64::from(body_bytes));
    };
    if !opcode.takes(key_bytes, extras_bytes, value_bytes) {
        return Decoded::Broken(head, Status::Invalid);
    }
    let Some(start) = rest.get(..extras_bytes + key_bytes) else { return Decoded::Incomplete };
    let (extras, key) = start.split_at(extras_bytes);
    let cas = u64::from_be_bytes(*header.last_chunk().expect("a header has eight bytes"));
    let request = request(opcode.verb, extras);
    let frame = Frame { head, opcode, request, key, cas, value_bytes };
    Decoded::Frame(frame, HEADER_BYTES + extras_bytes + key_bytes)
}

/// Four bytes of the extras, whose length the opcode's row gives.
fn word(extras: &[u8], at: usize) -> u32 {
    let bytes = extras.get(at..).and_then(<[u8]>::first_chunk).copied();
    bytes.map_or(0, u32::from_be_bytes)
}

/// Eight bytes of the extras.
fn long(extras: &[u8], at: usize) -> u64 {
    u64::from(word(extras, at)) << 32 | u64::from(word(extras, at + 4))
}

#[inline]
fn request(verb: Verb, extras: &[u8]) -> Request {
    match verb {
        Verb::Get => Request::Get,
        Verb::GetAndTouch => Request::GetAndTouch { exptime: word(extras, 0) },
        Verb::Touch => Request::Touch { exptime: word(extras, 0) },
        Verb::Store(verb) => Request::Store { verb, flags: word(extras, 0), exptime: word(extras, 4) },
        Verb::Concat(verb) => Request::Concat { verb },
        Verb::Delete => Request::Delete,
        Verb::Increment | Verb::Decrement => {
            let (initial, exptime) = (long(extras, 8), word(extras, 16));
            Request::Arithmetic {
                decrement: verb == Verb::Decrement,
                delta: long(extras, 0),
                initial: (exptime != NO_INITIAL).then_some((initial, exptime)),
            }
        }
        Verb::Flush => Request::Flush { delay: word(extras, 0) },
        Verb::Noop => Request::Noop,
        Verb::Version => Request::Version,
        Verb::Stat => Request::Stat,
        Verb::Verbosity => Request::Verbosity { level: word(extras, 0) },
        Verb::Quit => Request::Quit,
        Verb::SaslList => Request::SaslList,
        Verb::SaslAuth => Request::Sasl { step: false },
        Verb::SaslStep => Request::Sasl { step: true },
    }
}

/// The header of a reply.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// The fields that it repeats.
    pub head: Head,
    /// What it says.
    pub status: Status,
    /// Bytes of its extras.
    pub extras_bytes: u8,
    /// Bytes of its key.
    pub key_bytes: u16,
    /// Bytes of its value.
    pub value_bytes: u32,
    /// The item's token, or 0.
    pub cas: u64,
}

impl Reply {
    /// A reply without a body.
    pub fn new(head: Head, status: Status) -> Reply {
        Reply { head, status, extras_bytes: 0, key_bytes: 0, value_bytes: 0, cas: 0 }
    }

    /// The header's bytes.
    #[inline]
    pub fn header(&self) -> [u8; HEADER_BYTES] {
        let body_bytes = u32::from(self.extras_bytes) + u32::from(self.key_bytes) + self.value_bytes;
        let (key, status) = (self.key_bytes.to_be_bytes(), (self.status as u16).to_be_bytes());
        let (body, opaque) = (body_bytes.to_be_bytes(), self.head.opaque);
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&[
            REPLY_MAGIC,
            self.head.code,
            key[0],
            key[1],
            self.extras_bytes,
            0,
            status[0],
            status[1],
        ]);
        header[8..12].copy_from_slice(&body);
        header[12..16].copy_from_slice(&opaque);
        header[16..].copy_from_slice(&self.cas.to_be_bytes());
        header
    }
}
