//! Asking a server about itself, on a connection apart from the load's: version, settings, counters.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use larder_eventloop::socket::Address;
use larder_protocol::client::Protocol;

use crate::error::Error;

/// The protocol in which a server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// memcached's text: `version`, `stats`.
    Memcached,
    /// Redis's: `INFO`, `CONFIG GET`.
    Redis,
}

impl Family {
    /// What is asked of it: `wanted`, if it speaks memcached's protocols.
    pub fn protocol(self, wanted: Protocol) -> Protocol {
        match self {
            Family::Memcached => wanted,
            Family::Redis => Protocol::Resp,
        }
    }
}

/// How long a server may take for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// And for one that comes in many pieces.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(60);
/// Bytes of an answer at most: what a server says of itself is far less.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A server as somebody to ask. Each question has a connection of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// How messages call it.
    pub name: String,
    /// How it is asked.
    pub family: Family,
    /// Where it listens.
    pub address: Address,
}

impl Control {
    /// It can be connected to.
    pub fn connects(&self) -> bool {
        self.connect().is_ok()
    }

    /// It answers the simplest question.
    pub fn answers(&self) -> bool {
        let (question, start) = match self.family {
            Family::Memcached => ("version\r\n", "VERSION "),
            Family::Redis => ("PING\r\n", "+PONG\r\n"),
        };
        self.ask(question, "\r\n").is_ok_and(|reply| reply.starts_with(start))
    }

    /// What it says its version is.
    ///
    /// # Errors
    /// [`Error::Peer`] when it does not answer.
    pub fn version(&self) -> Result<String, Error> {
        match self.family {
            Family::Memcached => {
                let reply = self.ask("version\r\n", "\r\n")?;
                match reply.trim_end().strip_prefix("VERSION ") {
                    Some(version) => Ok(version.to_owned()),
                    None => Err(self.failed("version\r\n", &format!("it says \"{}\"", reply.trim_end()))),
                }
            }
            Family::Redis => {
                let fields = self.info()?;
                // Valkey and Larder name the Redis version that they are like, too.
                let named = |name: &str| {
                    fields.iter().find(|(have, _)| have == name).map(|(_, version)| version.as_str())
                };
                let like = named("redis_version").unwrap_or("unknown");
                Ok(match (named("larder_version"), named("valkey_version")) {
                    (Some(larder), _) => format!("{like}-larder-{larder}"),
                    (None, Some(valkey)) => valkey.to_owned(),
                    (None, None) => like.to_owned(),
                })
            }
        }
    }

    /// The settings in effect, by its own names.
    ///
    /// # Errors
    /// [`Error::Peer`] when it does not answer.
    pub fn settings(&self) -> Result<Vec<(String, String)>, Error> {
        match self.family {
            Family::Memcached => self.stats("settings"),
            Family::Redis => {
                let sent = self.ask("CONFIG GET *\r\nPING\r\n", "+PONG\r\n")?;
                let words: Vec<&str> =
                    sent.split("\r\n").filter(|line| !line.starts_with(['$', '*', '+'])).collect();
                Ok(words.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect())
            }
        }
    }

    /// All counters: memcached's `stats`, or the fields of Redis's `INFO all`.
    ///
    /// # Errors
    /// [`Error::Peer`] when it does not answer.
    pub fn counters(&self) -> Result<Counters, Error> {
        Ok(Counters(match self.family {
            Family::Memcached => self.stats("")?,
            Family::Redis => self.info()?,
        }))
    }

    /// The process id that it reports: memcached's `pid`, Redis's `process_id`; of its own namespace.
    ///
    /// # Errors
    /// [`Error::Peer`] when it does not answer.
    pub fn process_id(&self) -> Result<Option<u32>, Error> {
        let counters = self.counters()?;
        let pid = counters.number("pid").or_else(|| counters.number("process_id"));
        Ok(pid.and_then(|pid| u32::try_from(pid).ok()))
    }

    /// One counter as a number.
    pub fn counter(&self, name: &str) -> Option<u64> {
        self.counters().ok()?.number(name)
    }

    /// memcached's `stats <what>` (or plain `stats`) as names and values.
    ///
    /// # Errors
    /// [`Error::Peer`] when it does not answer.
    pub fn stats(&self, what: &str) -> Result<Vec<(String, String)>, Error> {
        let reply = self.ask(format!("stats {what}").trim_end().to_owned() + "\r\n", "END\r\n")?;
        let pair = |line: &str| {
            let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
            Some((name.to_owned(), value.to_owned()))
        };
        Ok(reply.lines().filter_map(pair).collect())
    }

    fn info(&self) -> Result<Vec<(String, String)>, Error> {
        let reply = self.ask("INFO all\r\nPING\r\n", "+PONG\r\n")?;
        let pair = |line: &str| {
            let (name, value) = line.split_once(':')?;
            Some((name.to_owned(), value.trim_end().to_owned()))
        };
        Ok(reply.lines().filter(|line| !line.starts_with(['#', '$', '+'])).filter_map(pair).collect())
    }

    /// Removes every item.
    ///
    /// # Errors
    /// [`Error::Peer`] when it refuses.
    pub fn flush(&self) -> Result<(), Error> {
        let (question, answer) = match self.family {
            Family::Memcached => ("flush_all\r\n", "OK\r\n"),
            Family::Redis => ("FLUSHALL\r\n", "+OK\r\n"),
        };
        let reply = self.ask(question, "\r\n")?;
        if reply == answer { Ok(()) } else { Err(self.failed(question, &reply)) }
    }

    /// Sends `question` and returns the reply up to and with `end`.
    ///
    /// # Errors
    /// [`Error::Peer`] when the reply does not come.
    pub fn ask(&self, question: impl AsRef<[u8]>, end: &str) -> Result<String, Error> {
        let mut reply = Vec::new();
        let asked = Instant::now();
        let mut exchange = || {
            let mut stream = self.connect()?;
            stream.write_all(question.as_ref())?;
            let mut buffer = [0; 16 * 1024];
            while !reply.ends_with(end.as_bytes()) {
                if reply.len() > ANSWER_BYTES_MAX || asked.elapsed() > PATIENCE_IN_ALL {
                    return Err(ErrorKind::FileTooLarge.into());
                }
                match stream.read(&mut buffer)? {
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    received => reply.extend_from_slice(&buffer[..received]),
                }
            }
            Ok(())
        };
        let outcome: std::io::Result<()> = exchange();
        let said = String::from_utf8_lossy(&reply);
        match outcome {
            Ok(()) => Ok(said.into_owned()),
            Err(error) if error.kind() == ErrorKind::FileTooLarge => {
                let why = format!("it says {} bytes, and they do not end", reply.len());
                Err(self.failed(question.as_ref(), &why))
            }
            // What it says in place of an answer tells more than that none came: -NOAUTH, HTTP/1.1 400 …
            Err(_) if !reply.is_empty() => {
                let first: String = said.lines().next().unwrap_or_default().chars().take(100).collect();
                Err(self.failed(question.as_ref(), &format!("it says \"{}\"", first.escape_debug())))
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let why = format!("nothing came for {} s", PATIENCE.as_secs());
                Err(self.failed(question.as_ref(), &why))
            }
            Err(error) => Err(self.failed(question.as_ref(), &error.to_string())),
        }
    }

    fn failed(&self, question: impl AsRef<[u8]>, why: &str) -> Error {
        let question: String = question.as_ref().escape_ascii().to_string().chars().take(60).collect();
        Error::Peer(format!("{} does not answer \"{question}\" as it should: {}", self.name, why.trim_end()))
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let Address::Tcp(address) = &self.address else { return Err(std::io::ErrorKind::Unsupported.into()) };
        let stream = TcpStream::connect_timeout(address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }
}

/// What a server counts, by its own names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(pub Vec<(String, String)>);

impl Counters {
    /// A counter as it is written.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    /// A counter as a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// Items that are there: memcached's `curr_items`, or the keys of Redis's first database.
    pub fn items(&self, family: Family) -> Option<u64> {
        match family {
            Family::Memcached => self.number("curr_items"),
            // db0:keys=5,expires=0,avg_ttl=0; no such line when there is none.
            Family::Redis => {
                self.number("used_memory")?;
                let keys = self.text("db0").and_then(|line| line.split(',').next()?.strip_prefix("keys="));
                keys.map_or(Some(0), |keys| keys.parse().ok())
            }
        }
    }

    /// How often a Redis command was called (`cmdstat_get:calls=5,usec=…`); 0 if never. `None` where no
    /// command is counted at all.
    pub fn calls(&self, command: &str) -> Option<u64> {
        if !self.0.iter().any(|(name, _)| name.starts_with("cmdstat_")) {
            return None;
        }
        let line = self.text(&format!("cmdstat_{command}")).unwrap_or_default();
        let calls = line.split(',').find_map(|field| field.strip_prefix("calls="));
        Some(calls.and_then(|calls| calls.parse().ok()).unwrap_or(0))
    }

    /// How often it was called since `before`. `None` where no command is counted.
    pub fn called_since(&self, before: &Counters, command: &str) -> Option<u64> {
        self.calls(command).map(|calls| calls.wrapping_sub(before.calls(command).unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn an_answer_without_end_is_an_error_before_it_takes_all_memory() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            while client.write_all(&b"STAT a 1\r\n".repeat(10_000)).is_ok() {}
        });
        let control = Control { name: "a".to_owned(), family: Family::Memcached, address };
        let error = control.stats("").unwrap_err().to_string();
        assert!(error.contains("bytes, and they do not end"), "{error}");
    }

    #[test]
    fn counters_are_read_as_servers_write_them() {
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let counters = Counters(vec![
            pair("get_hits", "17"),
            pair("cmdstat_get", "calls=5,usec=3,usec_per_call=0.60,rejected_calls=0,failed_calls=0"),
        ]);
        assert_eq!(counters.number("get_hits"), Some(17));
        assert_eq!(counters.number("get_misses"), None);
        assert_eq!((counters.calls("get"), counters.calls("set")), (Some(5), Some(0)));
        assert_eq!(Counters(vec![pair("keyspace_hits", "1")]).calls("get"), None);
        let items = |family, fields: &[(&str, &str)]| {
            Counters(fields.iter().map(|(name, value)| pair(name, value)).collect()).items(family)
        };
        assert_eq!(items(Family::Memcached, &[("curr_items", "7")]), Some(7));
        assert_eq!(items(Family::Memcached, &[]), None);
        let empty = ("used_memory", "1000");
        assert_eq!(items(Family::Redis, &[empty, ("db0", "keys=9,expires=0,avg_ttl=0")]), Some(9));
        assert_eq!((items(Family::Redis, &[empty]), items(Family::Redis, &[])), (Some(0), None));
    }
}
