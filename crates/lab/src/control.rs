//! Questions to a server about itself, on another connection than the load's: version, settings, counters.

use std::io::ErrorKind;
use std::thread;
use std::time::{Duration, Instant};

use larder_eventloop::socket::Address;
use larder_protocol::client::{Protocol, command};
use larder_tls::Connector;

use crate::endpoint::{Endpoint, HIDDEN, Login};
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
    /// The protocol of a load: `wanted`, if it speaks memcached's protocols.
    pub fn protocol(self, wanted: Protocol) -> Protocol {
        match self {
            Family::Memcached => wanted,
            Family::Redis => Protocol::Resp,
        }
    }
}

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest wait for an answer that comes in many pieces.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(60);
/// The longest answer: servers report far less.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Tries of a dump of keys, with pauses, while another client's dump runs.
const DUMP_TRIES: u32 = 50;
const DUMP_PAUSE: Duration = Duration::from_millis(100);

/// A server's control connection. Each question uses a connection of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Control {
    /// Its name in messages.
    pub name: String,
    /// The protocol of the questions.
    pub family: Family,
    /// Its address.
    pub address: Address,
    /// The login, if the server needs one.
    pub login: Option<Login>,
    /// The TLS options, if the server speaks TLS.
    pub tls: Option<Connector>,
}

impl Control {
    /// The endpoint to connect to.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint { address: self.address.clone(), login: self.login.clone(), tls: self.tls.clone() }
    }

    /// Whether it accepts connections.
    pub fn connects(&self) -> bool {
        self.endpoint().converse(PATIENCE).is_ok()
    }

    /// Whether it answers the simplest question.
    pub fn answers(&self) -> bool {
        let (question, start) = match self.family {
            Family::Memcached => ("version\r\n", "VERSION "),
            Family::Redis => ("PING\r\n", "+PONG\r\n"),
        };
        self.ask(question, "\r\n").is_ok_and(|reply| reply.starts_with(start))
    }

    /// The version that it reports.
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
                // Valkey and Larder report the Redis version that they resemble, too.
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

    /// The program that it reports: larder, memcached, redis, valkey, keydb, or another name.
    ///
    /// # Errors
    /// [`Error::Peer`] when it does not answer.
    pub fn program(&self) -> Result<String, Error> {
        let fields = match self.family {
            Family::Memcached => {
                let version = self.version()?;
                return Ok(match version.split(' ').next().unwrap_or_default() {
                    // The memcached version that it resembles stands first, then its own name.
                    word if word.contains("larder") => "larder".to_owned(),
                    word if word.starts_with(|c: char| c.is_ascii_digit()) => "memcached".to_owned(),
                    word => word.to_owned(),
                });
            }
            Family::Redis => Counters(self.info()?),
        };
        let says = |name: &str| fields.text(name).is_some();
        let is_keydb = fields.text("executable").is_some_and(|path| path.contains("keydb"));
        Ok(match () {
            () if says("larder_version") => "larder",
            () if says("valkey_version") => "valkey",
            () if says("dragonfly_version") => "dragonfly",
            () if is_keydb => "keydb",
            () => "redis",
        }
        .to_owned())
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
                // Redis shows its own passwords to any client that has logged in.
                let is_secret = |name: &str| name.contains("pass") || name == "masterauth";
                let setting = |pair: &[&str]| {
                    let hides = is_secret(pair[0]) && !pair[1].is_empty();
                    (pair[0].to_owned(), if hides { HIDDEN } else { pair[1] }.to_owned())
                };
                Ok(words.chunks_exact(2).map(setting).collect())
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

    /// How many readable items it holds; 0 for none. memcached's count includes flushed and expired items until it meets them,
    /// and a dump of keys does not.
    ///
    /// # Errors
    /// [`Error::Peer`] when it does not report that.
    pub fn items(&self) -> Result<u64, Error> {
        let items = self.counters()?.items(self.family);
        let items = items
            .ok_or_else(|| Error::Peer(format!("{} does not say how many items it holds", self.name)))?;
        if items == 0 || self.family == Family::Redis {
            return Ok(items);
        }
        for _ in 0..DUMP_TRIES {
            let first = self.ask_until("lru_crawler metadump all\r\n", |reply| reply.contains(&b'\n'))?;
            match first.lines().next() {
                Some("END") => return Ok(0),
                Some(line) if line.starts_with("BUSY") => thread::sleep(DUMP_PAUSE),
                _ => break,
            }
        }
        Ok(items)
    }

    /// Makes sure that no data are lost: the server must be empty, or is flushed if that is permitted. Returns what was found, in
    /// words.
    ///
    /// # Errors
    /// [`Error::NotEmpty`] when it holds something and may not be flushed, [`Error::Peer`] when it does not answer.
    pub fn claim(&self, may_flush: bool) -> Result<String, Error> {
        let items = self.items();
        if may_flush {
            self.flush()?;
            let what = items.map_or("what it held".to_owned(), |items| format!("{items} items"));
            return Ok(format!("was running before: {what} flushed"));
        }
        let name = &self.name;
        match items {
            Ok(0) => Ok("was running before, and held nothing".to_owned()),
            Ok(items) => Err(Error::NotEmpty(format!(
                "{name} holds {items} items: it is written to and flushed; if they may go, say --flush-target"
            ))),
            Err(error) => Err(Error::Peer(format!(
                "{error}: it is written to and flushed; if all that it holds may go, say --flush-target"
            ))),
        }
    }

    /// Sends `question` and returns the reply up to `end`, `end` included.
    ///
    /// # Errors
    /// [`Error::Peer`] when the reply does not come.
    pub fn ask(&self, question: impl AsRef<[u8]>, end: &str) -> Result<String, Error> {
        self.ask_until(question, |reply| reply.ends_with(end.as_bytes()))
    }

    /// Sends `question` and returns the answer as soon as `is_whole` accepts it.
    fn ask_until(
        &self,
        question: impl AsRef<[u8]>,
        is_whole: impl Fn(&[u8]) -> bool,
    ) -> Result<String, Error> {
        let mut reply = Vec::new();
        let asked = Instant::now();
        let sent = match self.family {
            Family::Memcached => question.as_ref().to_vec(),
            Family::Redis => in_words(question.as_ref()),
        };
        let mut exchange = || {
            let mut conversation = self.endpoint().converse(PATIENCE)?;
            conversation.send(&sent)?;
            let mut buffer = [0; 16 * 1024];
            while !is_whole(&reply) {
                if reply.len() > ANSWER_BYTES_MAX || asked.elapsed() > PATIENCE_IN_ALL {
                    return Err(ErrorKind::FileTooLarge.into());
                }
                match conversation.receive(&mut buffer)? {
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
            // An unexpected answer helps more than the error that none came: -NOAUTH, HTTP/1.1 400 …
            Err(_) if !reply.is_empty() => {
                let first: String = said.lines().next().unwrap_or_default().chars().take(100).collect();
                Err(self.failed(question.as_ref(), &format!("it says \"{}\"", first.escape_debug())))
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => {
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
}

/// Lines of words as commands of RESP: a port that takes the first byte for the protocol understands them, too.
fn in_words(lines: &[u8]) -> Vec<u8> {
    let mut commands = Vec::new();
    for line in lines.split(|&byte| byte == b'\n') {
        let words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let words: Vec<&[u8]> = words.collect();
        if !words.is_empty() {
            command(&mut commands, &words);
        }
    }
    commands
}

/// A server's counters, by its own names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(pub Vec<(String, String)>);

impl Counters {
    /// A counter as the server writes it.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }

    /// A counter as a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The number of items: memcached's `curr_items`, or the keys of all of Redis's databases.
    pub fn items(&self, family: Family) -> Option<u64> {
        match family {
            Family::Memcached => self.number("curr_items"),
            // db0:keys=5,expires=0,avg_ttl=0; no such line when there is none.
            Family::Redis => {
                self.number("used_memory")?;
                let database = |name: &str| {
                    name.strip_prefix("db").is_some_and(|n| n.bytes().all(|byte| byte.is_ascii_digit()))
                };
                let keys = |line: &str| line.split(',').next()?.strip_prefix("keys=")?.parse::<u64>().ok();
                self.0.iter().filter(|(name, _)| database(name)).map(|(_, line)| keys(line)).sum()
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

    /// How often a Redis command was called since `before`. `None` where no command is counted.
    pub fn called_since(&self, before: &Counters, command: &str) -> Option<u64> {
        self.calls(command).map(|calls| calls.wrapping_sub(before.calls(command).unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn an_answer_without_end_is_an_error_before_it_takes_all_memory() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            while client.write_all(&b"STAT a 1\r\n".repeat(10_000)).is_ok() {}
        });
        let control =
            Control { name: "a".to_owned(), family: Family::Memcached, address, login: None, tls: None };
        let error = control.stats("").unwrap_err().to_string();
        assert!(error.contains("bytes, and they do not end"), "{error}");
    }

    #[test]
    fn lines_for_resp_are_sent_in_words() {
        assert_eq!(
            in_words(b"INFO all\r\nPING\r\n"),
            b"*2\r\n$4\r\nINFO\r\n$3\r\nall\r\n*1\r\n$4\r\nPING\r\n"
        );
        assert_eq!(in_words(b"\r\n"), b"");
    }

    /// A server with fixed answers to each question: those of `says` that belong to it, in their order.
    fn saying(says: &'static [(&'static str, &'static str)]) -> Control {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        thread::spawn(move || {
            let mut rest = says;
            for mut client in listener.incoming().map_while(Result::ok) {
                let mut asked = [0; 256];
                let received = client.read(&mut asked).unwrap();
                let &(question, answer) = rest.split_off_first().expect("a question that was expected");
                assert_eq!(String::from_utf8_lossy(&asked[..received]), question);
                client.write_all(answer.as_bytes()).unwrap();
            }
        });
        Control { name: "a".to_owned(), family: Family::Memcached, address, login: None, tls: None }
    }

    #[test]
    fn what_was_flushed_and_is_still_counted_is_not_held() {
        const STATS: (&str, &str) = ("stats\r\n", "STAT curr_items 7\r\nEND\r\n");
        const DUMP: &str = "lru_crawler metadump all\r\n";
        assert_eq!(saying(&[STATS, (DUMP, "END\r\n")]).items().unwrap(), 0);
        assert_eq!(saying(&[STATS, (DUMP, "BUSY currently\r\n"), (DUMP, "END\r\n")]).items().unwrap(), 0);
        for first in ["key=a exp=-1 la=1 cas=1 fetch=no cls=1 size=61\r\nkey=b", "ERROR\r\n"] {
            let says = vec![STATS, (DUMP, first)].leak();
            assert_eq!(saying(says).items().unwrap(), 7, "{first}");
        }
        assert_eq!(saying(&[("stats\r\n", "STAT curr_items 0\r\nEND\r\n")]).items().unwrap(), 0);
        let silent = saying(&[("stats\r\n", "END\r\n")]).claim(false).unwrap_err().to_string();
        assert!(
            silent.contains("does not say how many items") && silent.contains("--flush-target"),
            "{silent}"
        );
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
        let databases =
            [empty, ("db0", "keys=9,expires=0,avg_ttl=0"), ("db15", "keys=2,expires=2,avg_ttl=9")];
        assert_eq!(items(Family::Redis, &databases), Some(11));
        assert_eq!((items(Family::Redis, &[empty]), items(Family::Redis, &[])), (Some(0), None));
    }
}
