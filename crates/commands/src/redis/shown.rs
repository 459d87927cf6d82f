//! What pages show of slow or large commands and of clients, beside figures; scrapers do not get it.

/// A command that took long, or had a large request or reply.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Its number, as COMMANDLOG shows it.
    pub id: u64,
    /// When it was, seconds since 1970.
    pub at_s: u64,
    /// Its time in microseconds; or bytes of its request, or of its reply.
    pub value: u64,
    /// The command; a subcommand behind its container's name and a `|`.
    pub command: &'static str,
    /// How many words it had, including the name.
    pub words: u64,
    /// The beginning of its first key.
    pub key: Option<Vec<u8>>,
    /// The address of its client.
    pub address: Box<str>,
    /// The name of its client.
    pub client: Box<str>,
}

/// A client that speaks RESP.
#[derive(Clone, Debug)]
pub struct RespClient {
    /// Its number.
    pub id: u64,
    /// Its address: `127.0.0.1:49472`, or `/path:0`.
    pub address: Box<str>,
    /// The name that it gives.
    pub name: Box<str>,
    /// The library that it says it uses, with the version.
    pub library: String,
    /// Seconds since it connected.
    pub age_s: u64,
    /// Seconds since it last sent something.
    pub idle_s: u64,
    /// The value of `flags=` in CLIENT LIST.
    pub flags: String,
    /// The database it has selected.
    pub db: u32,
    /// RESP's version.
    pub resp: u8,
    /// Its last command.
    pub last: &'static str,
    /// How many commands it has sent.
    pub commands: u64,
    /// Bytes of its requests.
    pub received_bytes: u64,
    /// Bytes of the replies and messages that it was sent.
    pub replied_bytes: u64,
    /// Bytes of replies that it has not taken.
    pub waiting_bytes: u64,
}
