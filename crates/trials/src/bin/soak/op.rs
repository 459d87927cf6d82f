//! An operation on one key, and its reply, whatever the protocol.

/// An operation on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Reads its value.
    Get,
    /// Reads its value, and its token if the protocol has one.
    GetToken,
    /// Checks whether it exists.
    Exists,
    /// Reads the length of its value.
    Length,
    /// Removes it and returns its value.
    Take,
    /// Stores a value.
    Set(Vec<u8>, Ttl),
    /// Stores a value and returns the one before.
    Swap(Vec<u8>),
    /// Stores a value if there is none.
    Add(Vec<u8>, Ttl),
    /// Stores a value if there is one.
    Replace(Vec<u8>, Ttl),
    /// Appends to a value.
    Append(Vec<u8>),
    /// Prepends to a value.
    Prepend(Vec<u8>),
    /// Stores a value if the token is still this one.
    Cas(Vec<u8>, u64),
    /// Adds to a number.
    Plus(u64),
    /// Subtracts from a number.
    Minus(u64),
    /// Removes it.
    Delete,
    /// Sets when it expires.
    Touch(Ttl),
}

/// How long an item lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// Until it is removed.
    Ever,
    /// Milliseconds; whole seconds, if the protocol has no others.
    Ms(u64),
}

/// The reply to an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A value, with its flags if the protocol shows them.
    Value(Vec<u8>, Option<u32>),
    /// A value, its flags and its token.
    Token(Vec<u8>, u32, u64),
    /// The key does not exist, or a condition that it exists has failed.
    Nothing,
    /// It was done.
    Done,
    /// The key exists against the condition, or has another token.
    Otherwise,
    /// A number: a sum, a length, or a count.
    Number(u64),
    /// There was no memory for the operation.
    Refused,
    /// There was no memory to send the value.
    NotSent,
    /// Any other reply.
    Strange(String),
}

impl Verb {
    /// Bytes of the value that it stores or adds.
    pub fn value_bytes(&self) -> usize {
        match self {
            Verb::Set(value, _)
            | Verb::Add(value, _)
            | Verb::Replace(value, _)
            | Verb::Cas(value, _)
            | Verb::Swap(value)
            | Verb::Append(value)
            | Verb::Prepend(value) => value.len(),
            Verb::Get
            | Verb::GetToken
            | Verb::Exists
            | Verb::Length
            | Verb::Take
            | Verb::Plus(_)
            | Verb::Minus(_)
            | Verb::Delete
            | Verb::Touch(_) => 0,
        }
    }

    /// Its name in the table at the end.
    pub fn name(&self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::GetToken => "get with token",
            Verb::Exists => "exists",
            Verb::Length => "length",
            Verb::Take => "take",
            Verb::Set(..) => "set",
            Verb::Swap(_) => "swap",
            Verb::Add(..) => "add",
            Verb::Replace(..) => "replace",
            Verb::Append(_) => "append",
            Verb::Prepend(_) => "prepend",
            Verb::Cas(..) => "cas",
            Verb::Plus(_) => "increment",
            Verb::Minus(_) => "decrement",
            Verb::Delete => "delete",
            Verb::Touch(_) => "touch",
        }
    }
}

impl Ttl {
    /// The time as memcached's exptime.
    pub fn seconds(self) -> u64 {
        match self {
            Ttl::Ever => 0,
            Ttl::Ms(ms) => ms.div_ceil(1000),
        }
    }
}

/// A few bytes of a reply as text.
pub fn short(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
    format!("{text:?} ({} bytes)", bytes.len())
}

impl Seen {
    /// The kind of reply.
    pub fn kind(&self) -> &'static str {
        match self {
            Seen::Value(..) | Seen::Token(..) => "a value",
            Seen::Nothing => "nothing",
            Seen::Done => "done",
            Seen::Otherwise => "otherwise",
            Seen::Number(_) => "a number",
            Seen::Refused => "refused",
            Seen::NotSent => "not sent",
            Seen::Strange(_) => "strange",
        }
    }

    /// The reply in words.
    pub fn shown(&self) -> String {
        match self {
            Seen::Value(value, flags) => format!("the value {} with flags {flags:?}", short(value)),
            Seen::Token(value, flags, token) => {
                format!("the value {} with flags {flags} and token {token}", short(value))
            }
            other => format!("{other:?}"),
        }
    }
}
