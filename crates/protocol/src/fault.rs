//! What can be wrong with a request, and memcached's words for it.

use crate::number::parse_u64;

/// A request that cannot be carried out as it was written. It is always the client's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Too few tokens, key too long, length or flags not a number, line too short.
    BadLine,
    /// A store whose length is no number, or too large: where its data end is unknown.
    NoLength,
    /// incr, decr: the delta is not an unsigned 64-bit number.
    BadDelta,
    /// touch, gat, flush_all: the exptime is not a number of 32 bits.
    BadExptime,
    /// The data block does not end where the length says.
    BadChunk,
    /// Meta: a flag that no meta command has.
    UnknownFlag,
    /// Meta: a flag twice.
    DuplicateFlag,
    /// Meta: more tokens than [`crate::meta::TOKENS_MAX`].
    TooManyFlags,
    /// Meta: a flag's number cannot be read.
    BadToken,
    /// Meta: opaque of more than [`crate::meta::OPAQUE_BYTES_MAX`] bytes.
    LongOpaque,
    /// Meta: the key is not base64 although flag b says so.
    BadBase64Key,
    /// Meta: flag D, where it is not read, is no number.
    BadFlagDelta,
    /// Meta: flag J, where it is not read, is no number.
    BadFlagInitial,
    /// ma: any fault in its flags.
    BadArithmeticFlag,
    /// ms: an unknown mode letter.
    BadStoreMode,
    /// ma: an unknown mode letter.
    BadArithmeticMode,
}

impl Fault {
    /// The fault of a store whose length is no number. Without a length, or with a negative one, no data block follows.
    pub(crate) fn of_length(word: Option<&[u8]>) -> Fault {
        let is_none = |word: &[u8]| word.strip_prefix(b"-").and_then(parse_u64).is_some();
        if word.is_none_or(is_none) { Fault::BadLine } else { Fault::NoLength }
    }

    /// Requests that follow cannot be told from data: the connection is closed after the reply.
    pub fn closes(self) -> bool {
        self == Fault::NoLength
    }

    /// The reply, with its line end.
    pub fn reply(self) -> &'static [u8] {
        match self {
            Fault::BadLine | Fault::NoLength => b"CLIENT_ERROR bad command line format\r\n",
            Fault::BadDelta => b"CLIENT_ERROR invalid numeric delta argument\r\n",
            Fault::BadExptime => b"CLIENT_ERROR invalid exptime argument\r\n",
            Fault::BadChunk => b"CLIENT_ERROR bad data chunk\r\n",
            Fault::UnknownFlag => b"CLIENT_ERROR invalid flag\r\n",
            Fault::DuplicateFlag => b"CLIENT_ERROR duplicate flag\r\n",
            Fault::TooManyFlags => b"CLIENT_ERROR options flags are too long\r\n",
            Fault::BadToken => b"CLIENT_ERROR bad token in command line format\r\n",
            Fault::LongOpaque => b"CLIENT_ERROR opaque token too long\r\n",
            Fault::BadBase64Key => b"CLIENT_ERROR error decoding key\r\n",
            Fault::BadFlagDelta => b"CLIENT_ERROR invalid numeric delta value\r\n",
            Fault::BadFlagInitial => b"CLIENT_ERROR invalid numeric initial value\r\n",
            Fault::BadArithmeticFlag => b"CLIENT_ERROR invalid or duplicate flag\r\n",
            Fault::BadStoreMode => b"CLIENT_ERROR invalid mode for ms M token\r\n",
            Fault::BadArithmeticMode => b"CLIENT_ERROR invalid mode for ma M token\r\n",
        }
    }
}
