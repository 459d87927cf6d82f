//! A server, as programs, discovery and placement name it.

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// host:port, or a path that begins with `/`.
    pub address: String,
    /// What placement hashes, if not the address as written.
    pub name: Option<String>,
    /// Its share of the keys, relative to the other servers'.
    pub weight: u32,
}

impl Server {
    /// What placement hashes.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.address)
    }
}

impl From<&str> for Server {
    fn from(address: &str) -> Server {
        Server { address: address.to_owned(), name: None, weight: 1 }
    }
}
