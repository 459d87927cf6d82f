//! Bytes that cannot be a RESP request, with Redis's error texts.

/// What is wrong with the bytes of a connection. The connection ends after the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An inline request is too long.
    LongInline,
    /// An inline request has an open quote.
    UnbalancedQuotes,
    /// The line of a count is too long.
    LongCount,
    /// The count is no number, or too large.
    BadCount,
    /// An unauthenticated client's request has too many arguments.
    UnauthenticatedCount,
    /// The line of an argument's length is too long.
    LongBulkHeader,
    /// An argument begins with this byte instead of a dollar sign.
    NotABulk(u8),
    /// The length is no number, negative, or too large.
    BadBulk,
    /// An unauthenticated client's argument is too long.
    UnauthenticatedBulk,
}

impl Fault {
    /// Calls `put` with the pieces of the error line.
    pub fn write(self, put: &mut dyn FnMut(&[u8])) {
        put(b"-ERR Protocol error: ");
        match self {
            Fault::LongInline => put(b"too big inline request"),
            Fault::UnbalancedQuotes => put(b"unbalanced quotes in request"),
            Fault::LongCount => put(b"too big mbulk count string"),
            Fault::BadCount => put(b"invalid multibulk length"),
            Fault::UnauthenticatedCount => put(b"unauthenticated multibulk length"),
            Fault::LongBulkHeader => put(b"too big bulk count string"),
            Fault::NotABulk(byte) => {
                let byte = if matches!(byte, b'\r' | b'\n') { b' ' } else { byte };
                put(b"expected '$', got '");
                put(&[byte, b'\'']);
            }
            Fault::BadBulk => put(b"invalid bulk length"),
            Fault::UnauthenticatedBulk => put(b"unauthenticated bulk length"),
        }
        put(b"\r\n");
    }
}
