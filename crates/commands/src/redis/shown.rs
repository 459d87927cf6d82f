//! What is shown of commands that took long and of clients, beside figures: on pages, not to scrapers.

/// A command that took long, or had a large request or reply.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Its number, as COMMANDLOG shows it.
    pub id: u64,
    /// When it was, seconds since 1970.
    pub at_s: u64,
    /// How long it took, microseconds; or bytes of its request, or of its reply.
    pub value: u64,
    /// The command; of a subcommand, the container's name and a `|` in front.
    pub command: &'static str,
    /// Its words, the name counted.
    pub words: u64,
    /// The beginning of its first key.
    pub key: Option<Vec<u8>>,
    /// The client that asked.
    pub address: Box<str>,
    /// What the client calls itself.
    pub client: Box<str>,
}

/// A client that speaks RESP.
#[derive(Clone, Debug)]
pub struct RespClient {
    /// Its number.
    pub id: u64,
    /// `127.0.0.1:49472`, or `/path:0`.
    pub address: Box<str>,
    /// What it calls itself.
    pub name: Box<str>,
    /// The library that it says it uses, and its version.
    pub library: String,
    /// Seconds since it connected.
    pub age_s: u64,
    /// Seconds since it last sent something.
    pub idle_s: u64,
    /// `flags=` of CLIENT LIST.
    pub flags: String,
    /// The database it has selected.
    pub db: u32,
    /// RESP's version.
    pub resp: u8,
    /// Its last command.
    pub last: &'static str,
    /// Commands.
    pub commands: u64,
    /// Bytes of its requests.
    pub received_bytes: u64,
    /// Bytes of the replies and messages that it was sent.
    pub replied_bytes: u64,
    /// Bytes that hold replies which it has not taken.
    pub waiting_bytes: u64,
}
