//! Usages of commands and their keys (`spec/key-positions.list`), as Larder and other servers see them.

use std::path::Path;

use crate::talk::encode;

/// A usage of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The command and its arguments.
    pub words: Vec<String>,
    /// Whether other servers have the same keys.
    pub is_common: bool,
    /// Names of servers that answer otherwise, and why they do.
    differs: Option<(Vec<String>, String)>,
}

/// All usages.
///
/// # Errors
/// What is wrong with the list.
pub fn usages() -> Result<Vec<Usage>, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/key-positions.list");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(Usage::parse).collect()
}

impl Usage {
    fn parse(line: &str) -> Result<Usage, String> {
        let (usage, differs) = match line.split_once(" | ") {
            None => (line, None),
            Some((usage, rest)) => {
                let (servers, why) = rest.split_once(": ").ok_or_else(|| format!("no reason: {line}"))?;
                let servers = servers.split(' ').map(str::to_owned).collect();
                (usage, Some((servers, why.to_owned())))
            }
        };
        let own = usage.strip_prefix("~ ");
        let words = own.unwrap_or(usage).split(' ').map(str::to_owned).collect();
        let usage = Usage { words, is_common: own.is_none(), differs };
        if usage.keys().next().is_none() { Err(format!("no key: {line}")) } else { Ok(usage) }
    }

    /// Its keys.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str).filter(|word| word.starts_with("key"))
    }

    /// The request by which a server is asked for the keys of the command.
    pub fn question(&self) -> Vec<u8> {
        let words = self.words.iter().map(String::as_bytes);
        encode(&[&b"COMMAND"[..], b"GETKEYS"].into_iter().chain(words).collect::<Vec<_>>())
    }

    /// The reply of a server that has the keys where Larder has them.
    pub fn answer(&self) -> Vec<u8> {
        encode(&self.keys().map(str::as_bytes).collect::<Vec<_>>())
    }

    /// Why a server that has one of these names answers otherwise.
    pub fn differs_at(&self, names: &str) -> Option<&str> {
        let (servers, why) = self.differs.as_ref()?;
        servers.iter().any(|server| names.split(' ').any(|name| name == server)).then_some(why.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_usage_and_who_differs() {
        let line = "SORT key1 STORE key2 | Valkey Redis-7.0: it has a reason: this";
        let usage = Usage::parse(line).expect("good");
        assert_eq!(usage.keys().collect::<Vec<_>>(), ["key1", "key2"]);
        assert_eq!(usage.answer(), b"*2\r\n$4\r\nkey1\r\n$4\r\nkey2\r\n");
        assert!(usage.question().starts_with(b"*6\r\n$7\r\nCOMMAND\r\n$7\r\nGETKEYS\r\n$4\r\nSORT\r\n"));
        assert_eq!(usage.differs_at("Redis Valkey Valkey-9.1"), Some("it has a reason: this"));
        assert_eq!((usage.differs_at("Redis Redis-8.0"), usage.is_common), (None, true));
        assert!(!Usage::parse("~ DEBUG OBJECT key").expect("good").is_common);
        assert!(Usage::parse("PING").is_err() && Usage::parse("GET key | Valkey").is_err());
    }
}
