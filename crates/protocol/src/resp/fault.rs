//! What cannot be a RESP request, in Redis's words.

/// What is wrong with the bytes of a connection. It ends after the error was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An inline request without end.
    LongInline,
    /// An inline request with an open quote.
    UnbalancedQuotes,
    /// A count without end.
    LongCount,
    /// The count is no number, or too large.
    BadCount,
    /// Too many arguments for a client that has not said who it is.
    UnauthenticatedCount,
    /// An argument's length without end.
    LongBulkHeader,
    /// An argument that begins with this byte instead of a dollar sign.
    NotABulk(u8),
    /// The length is no number, negative, or too large.
    BadBulk,
    /// Too long an argument for a client that has not said who it is.
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
