//! The figures that a server reports at one moment, in either protocol.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use larder_protocol::client::command;
use serde::Serialize;

use super::screen::Sheet;
use crate::control::Family;
use crate::endpoint::{Conversation, Endpoint};
use crate::error::Error;

/// The longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Names and values, as the server sent them.
pub type Fields = BTreeMap<String, String>;

/// All figures of a server.
#[derive(Clone, Debug)]
pub struct Look {
    pub family: Family,
    pub at: Instant,
    /// `stats`, or INFO.
    pub general: Fields,
    /// `stats slabs` and `stats items`.
    pub classes: Fields,
    /// `stats conns`, or lines of CLIENT LIST, by the number of the connection.
    pub connections: Vec<Fields>,
    /// `stats doctor`, or INFO findings: the most important first.
    pub findings: Vec<Finding>,
    /// `stats memory`: the memory that counts against the limit, which `stats` does not have. INFO has it.
    pub memory: Fields,
    /// `stats hotkeys`, or INFO hotkeys.
    pub hot_keys: Fields,
    /// `stats prefixes`, or INFO prefixes.
    pub prefixes: Fields,
}

/// A finding for the operator, in the server's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub rule: String,
    pub severity: String,
    pub evidence: String,
    pub advice: String,
}

impl Finding {
    /// Sets a part by its name; unknown parts of newer servers are ignored.
    fn set(&mut self, part: &str, text: &str) {
        match part {
            "rule" => self.rule = text.to_owned(),
            "severity" => self.severity = text.to_owned(),
            "evidence" => self.evidence = text.to_owned(),
            "advice" => self.advice = text.to_owned(),
            _ => {}
        }
    }
}

/// A connection to a server for its figures.
#[derive(Debug)]
pub struct Server {
    family: Family,
    to: Conversation,
}

impl Server {
    /// Connects; for a bare address, it finds out the server's protocol.
    ///
    /// # Errors
    /// [`Error::Usage`] when it names no server, [`Error::Peer`] when the server cannot be asked.
    pub fn connect(target: &str) -> Result<Server, Error> {
        let told = target.contains("://");
        let url = if told { target.to_owned() } else { format!("memcached://{target}") };
        let (family, endpoint) = Endpoint::parse(&url)?;
        let to = endpoint.converse(PATIENCE).map_err(|error| Error::Peer(error.to_string()))?;
        let mut server = Server { family, to };
        if told {
            return Ok(server);
        }
        // Redis does not know this command, and answers with an error.
        let said = server.ask(b"version\r\n", |said| said.ends_with(b"\n")).map_err(Error::Peer)?;
        match said.split([' ', '\r']).next().unwrap_or_default() {
            "VERSION" => {}
            "-ERR" | "-NOAUTH" | "-DENIED" => server.family = Family::Redis,
            _ if said.starts_with(UNAUTHENTICATED) => return Err(Error::Peer(says(&said))),
            _ => {
                let why = format!("it says {:?}: neither memcached nor Redis does", first_line(&said));
                return Err(Error::Peer(why));
            }
        }
        Ok(server)
    }

    /// Asks for all figures of a sheet.
    ///
    /// # Errors
    /// [`Error::Peer`]: why there is no answer.
    pub fn look(&mut self, sheet: Sheet) -> Result<Look, Error> {
        self.answered(sheet).map_err(Error::Peer)
    }

    fn answered(&mut self, sheet: Sheet) -> Result<Look, String> {
        let mut look = Look {
            family: self.family,
            at: Instant::now(),
            general: Fields::new(),
            classes: Fields::new(),
            connections: Vec::new(),
            findings: Vec::new(),
            memory: Fields::new(),
            hot_keys: Fields::new(),
            prefixes: Fields::new(),
        };
        match self.family {
            Family::Memcached => {
                look.general = self.stats("")?;
                if is_larder(&look) {
                    look.memory = self.stats(" memory")?;
                }
                match sheet {
                    Sheet::Classes => {
                        look.classes = self.stats(" slabs")?;
                        look.classes.extend(self.stats(" items")?);
                    }
                    Sheet::Connections => look.connections = grouped(self.stats(" conns")?),
                    // Other servers have no doctor.
                    Sheet::Doctor if is_larder(&look) => {
                        look.findings = findings_of_stats(&self.stat_lines(" doctor")?)?;
                    }
                    Sheet::HotKeys if is_larder(&look) => look.hot_keys = self.stats(" hotkeys")?,
                    Sheet::Prefixes if is_larder(&look) => look.prefixes = self.stats(" prefixes")?,
                    Sheet::Overview | Sheet::Commands | Sheet::Doctor | Sheet::HotKeys | Sheet::Prefixes => {}
                }
            }
            Family::Redis => {
                look.general = info(&self.bulk(&["INFO", "all"])?);
                match sheet {
                    Sheet::Connections => {
                        look.connections = self.bulk(&["CLIENT", "LIST"])?.lines().map(client).collect();
                    }
                    Sheet::Doctor if is_larder(&look) => {
                        let told = self.bulk(&["INFO", "findings"])?;
                        look.findings =
                            findings_of_info(&told).ok_or("it is older, and tells no findings here")?;
                    }
                    Sheet::HotKeys if is_larder(&look) => {
                        look.hot_keys = ranked(&info(&self.bulk(&["INFO", "hotkeys"])?), "hotkey");
                    }
                    Sheet::Prefixes if is_larder(&look) => {
                        look.prefixes = ranked(&info(&self.bulk(&["INFO", "prefixes"])?), "prefix");
                    }
                    Sheet::Overview
                    | Sheet::Classes
                    | Sheet::Commands
                    | Sheet::Doctor
                    | Sheet::HotKeys
                    | Sheet::Prefixes => {}
                }
            }
        }
        Ok(look)
    }

    fn stats(&mut self, what: &str) -> Result<Fields, String> {
        Ok(self.stat_lines(what)?.into_iter().collect())
    }

    /// Names and values of `stats` in their order.
    fn stat_lines(&mut self, what: &str) -> Result<Vec<(String, String)>, String> {
        let said = self.ask(format!("stats{what}\r\n").as_bytes(), |said| {
            said.ends_with(b"END\r\n")
                || said.ends_with(b"RESET\r\n")
                || said.starts_with(b"ERROR")
                || is_error(said)
        })?;
        if is_error(said.as_bytes()) || said.starts_with("ERROR") {
            return Err(says(&said));
        }
        let pair = |line: &str| {
            let (name, value) = line.strip_prefix("STAT ")?.split_once(' ')?;
            Some((name.to_owned(), value.to_owned()))
        };
        Ok(said.lines().filter_map(pair).collect())
    }

    /// The bulk string in the reply to a RESP command.
    fn bulk(&mut self, words: &[&str]) -> Result<String, String> {
        // Not as a line: where two protocols share a port, its first letter would be taken for the other's.
        let mut question = Vec::new();
        command(&mut question, &words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>());
        let whole = |said: &[u8]| {
            let Some(at) = said.iter().position(|byte| *byte == b'\n') else { return false };
            let length = std::str::from_utf8(&said[1..at]).ok().and_then(|text| text.trim_end().parse().ok());
            said[0] != b'$' || length.is_none_or(|length: usize| said.len() >= at + 1 + length + 2)
        };
        let said = self.ask(&question, whole)?;
        match said.split_once("\r\n") {
            Some((head, body)) if head.starts_with('$') => Ok(body.trim_end_matches("\r\n").to_owned()),
            _ => Err(says(&said)),
        }
    }

    fn ask(&mut self, question: &[u8], whole: impl Fn(&[u8]) -> bool) -> Result<String, String> {
        self.to.send(question).map_err(|error| error.to_string())?;
        let (mut said, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        while said.is_empty() || !whole(&said) {
            match self.to.receive(&mut buffer).map_err(|error| error.to_string())? {
                0 => return Err("it has closed the connection".into()),
                received => said.extend_from_slice(&buffer[..received]),
            }
            if said.len() > ANSWER_BYTES_MAX {
                return Err("its answer has no end".into());
            }
        }
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}

/// Whether it is an error of memcached's text, or one in Redis's protocol by a server that only speaks that.
fn is_error(said: &[u8]) -> bool {
    said.starts_with(b"CLIENT_ERROR") || said.starts_with(b"SERVER_ERROR") || said.starts_with(b"-")
}

/// Findings as text, each with what to do.
pub fn words(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "nothing to say: all is well\n".into();
    }
    let one = |finding: &Finding| {
        let Finding { rule, severity, evidence, advice } = finding;
        format!("{severity}: {evidence} ({rule})\n  {advice}\n")
    };
    findings.iter().map(one).collect()
}

/// Findings from `rule:severity …`, `rule:evidence …`, `rule:advice …`.
///
/// # Errors
/// A line is another statistic: the reply answers another question.
fn findings_of_stats(lines: &[(String, String)]) -> Result<Vec<Finding>, String> {
    let mut findings: Vec<Finding> = Vec::new();
    for (name, text) in lines {
        let (rule, part) = name.split_once(':').ok_or_else(|| format!("{name} is no finding"))?;
        if findings.last().is_none_or(|last| last.rule != rule) {
            findings.push(Finding { rule: rule.to_owned(), ..Finding::default() });
        }
        if let Some(finding) = findings.last_mut() {
            finding.set(part, text);
        }
    }
    Ok(findings)
}

/// Findings from `findings:2`, `finding_1_rule:…`, `finding_1_severity:…`; none if the server has no such section.
fn findings_of_info(text: &str) -> Option<Vec<Finding>> {
    let fields = info(text);
    fields.get("findings")?;
    let mut by_number: BTreeMap<u64, Finding> = BTreeMap::new();
    for (name, text) in &fields {
        let part = name.strip_prefix("finding_").and_then(|rest| rest.split_once('_'));
        let Some((number, part)) = part else { continue };
        if let Ok(number) = number.parse() {
            by_number.entry(number).or_default().set(part, text);
        }
    }
    Some(by_number.into_values().collect())
}

/// Whether it reports to be a Larder.
pub fn is_larder(look: &Look) -> bool {
    look.general.get("version").is_some_and(|version| version.contains("larder"))
        || look.general.contains_key("larder_version")
}

/// The reply of the text protocol to a request before authentication.
const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated";

/// An unexpected reply of a server, and how to authenticate where it asks for that.
fn says(said: &str) -> String {
    let line = first_line(said);
    let asks = line.starts_with("-NOAUTH") || line.starts_with(UNAUTHENTICATED);
    let more = if asks { ": --target needs its scheme, and USER:PASSWORD@ in front of the host" } else { "" };
    format!("it says {line:?}{more}")
}

fn first_line(said: &str) -> String {
    said.lines().next().unwrap_or_default().chars().take(100).collect()
}

fn info(text: &str) -> Fields {
    let pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.map(|(name, value)| (name.to_owned(), value.trim_end().to_owned())).collect()
}

/// Turns INFO's lines of a list into those of `stats`: `hotkey_1:key=a,share=0.5` becomes `1:key` and `1:share`; lines that begin
/// with the list's name are about the whole list.
fn ranked(info: &Fields, one: &str) -> Fields {
    let mut fields = Fields::new();
    for (name, value) in info {
        let Some(name) = name.strip_prefix(one) else { continue };
        if let Some(rank) = name.strip_prefix('_') {
            let parts = value.split(',').filter_map(|pair| pair.split_once('='));
            fields.extend(parts.map(|(name, value)| (format!("{rank}:{name}"), value.to_owned())));
        } else if let Some((_, name)) = name.split_once('_') {
            fields.insert(name.to_owned(), value.clone());
        }
    }
    fields
}

/// `id=3 addr=127.0.0.1:4 …`.
fn client(line: &str) -> Fields {
    let pairs = line.split(' ').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// `7:addr …`, `7:state …`: one entry for each number.
pub fn grouped(fields: Fields) -> Vec<Fields> {
    let mut all: BTreeMap<u64, Fields> = BTreeMap::new();
    for (name, value) in fields {
        let Some((number, name)) = name.split_once(':') else { continue };
        if let Ok(number) = number.parse() {
            all.entry(number).or_default().insert(name.to_owned(), value);
        }
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A server that answers the questions in `says`.
    fn knowing(says: &'static [(&'static str, &'static str)]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut asked = [0; 256];
            while let Ok(received @ 1..) = client.read(&mut asked) {
                let question = String::from_utf8_lossy(&asked[..received]).into_owned();
                let (_, answer) =
                    says.iter().find(|(known, _)| *known == question).expect("a known question");
                client.write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    #[test]
    fn a_memcached_is_known_by_its_answer_and_asked_by_stats() {
        let address = knowing(&[
            ("version\r\n", "VERSION 1.6.45\r\n"),
            ("stats\r\n", "STAT version 1.6.45\r\nSTAT curr_items 7\r\nEND\r\n"),
            (
                "stats conns\r\n",
                "STAT 9:addr tcp:1.2.3.4:5\r\nSTAT 9:state conn_read\r\nSTAT 10:addr x\r\nEND\r\n",
            ),
        ]);
        let mut server = Server::connect(&address).unwrap();
        let look = server.look(Sheet::Connections).unwrap();
        assert_eq!((look.family, &look.general["curr_items"][..]), (Family::Memcached, "7"));
        assert_eq!(look.connections.len(), 2);
        assert_eq!(look.connections[0]["state"], "conn_read");
        // It has no doctor, and is not asked for one.
        assert!(server.look(Sheet::Doctor).unwrap().findings.is_empty());
    }

    #[test]
    fn findings_are_read_in_their_order_in_either_protocol() {
        let by_text = knowing(&[
            ("version\r\n", "VERSION 1.6.45-larder-0.1.0\r\n"),
            ("stats\r\n", "STAT version 1.6.45-larder-0.1.0\r\nEND\r\n"),
            ("stats memory\r\n", "STAT used 7\r\nEND\r\n"),
            (
                "stats doctor\r\n",
                "STAT swapping:severity serious\r\nSTAT swapping:newer x\r\nSTAT swapping:evidence 2 MiB: swapped\r\nSTAT swapping:advice lower -m\r\n\
                 STAT churn:severity note\r\nSTAT churn:evidence many\r\nSTAT churn:advice keep them\r\nEND\r\n",
            ),
        ]);
        let by_info = knowing(&[
            ("version\r\n", "-ERR unknown command\r\n"),
            ("*2\r\n$4\r\nINFO\r\n$3\r\nall\r\n", "$22\r\nlarder_version:0.1.0\r\n\r\n"),
            (
                "*2\r\n$4\r\nINFO\r\n$8\r\nfindings\r\n",
                "$258\r\n# Findings\r\nfindings:2\r\nfinding_1_rule:swapping\r\nfinding_1_severity:serious\r\nfinding_1_newer:x\r\n\
                 finding_1_evidence:2 MiB: swapped\r\nfinding_1_advice:lower -m\r\nfinding_2_rule:churn\r\nfinding_2_severity:note\r\n\
                 finding_2_evidence:many\r\nfinding_2_advice:keep them\r\n\r\n",
            ),
        ]);
        let looks = [by_text, by_info].map(|at| Server::connect(&at).unwrap().look(Sheet::Doctor).unwrap());
        let [text, resp] = &looks;
        assert_eq!(text.findings, resp.findings);
        let [first, second] = &text.findings[..] else { panic!("two findings: {:?}", text.findings) };
        assert_eq!(
            [&first.rule, &first.severity, &first.evidence],
            ["swapping", "serious", "2 MiB: swapped"]
        );
        assert_eq!([&second.rule, &second.advice], ["churn", "keep them"]);
        assert!(findings_of_stats(&[("used".to_owned(), "7".to_owned())]).is_err(), "another statistic");
        assert_eq!(findings_of_info("# Findings\r\nfindings:0\r\n"), Some(Vec::new()));
        assert_eq!(findings_of_info(""), None, "Redis passes over sections that it does not know");
    }

    #[test]
    fn an_error_in_the_other_protocol_is_told_at_once() {
        let address = knowing(&[("stats\r\n", "-ERR unknown command 'stats'\r\n")]);
        let mut server = Server::connect(&format!("memcached://{address}")).unwrap();
        let error = server.look(Sheet::Overview).unwrap_err();
        assert!(error.to_string().contains("-ERR unknown command 'stats'"), "{error}");
    }

    #[test]
    fn a_redis_is_known_by_its_error_and_asked_by_info() {
        let address = knowing(&[
            ("version\r\n", "-ERR unknown command 'version', with args beginning with: \r\n"),
            (
                "*2\r\n$4\r\nINFO\r\n$3\r\nall\r\n",
                "$43\r\n# Server\r\nredis_version:8\r\nused_memory:12\r\n\r\n",
            ),
            ("*2\r\n$6\r\nCLIENT\r\n$4\r\nLIST\r\n", "$31\r\nid=3 addr=1.2.3.4:5 name= cmd=x\r\n"),
        ]);
        let mut server = Server::connect(&address).unwrap();
        let look = server.look(Sheet::Overview).unwrap();
        assert_eq!((look.family, &look.general["used_memory"][..]), (Family::Redis, "12"));
        assert_eq!(server.look(Sheet::Connections).unwrap().connections[0]["addr"], "1.2.3.4:5");
    }

    #[test]
    fn hot_keys_are_read_in_either_protocol() {
        let by_text = knowing(&[
            ("version\r\n", "VERSION 1.6.45-larder-0.1.0\r\n"),
            ("stats\r\n", "STAT version 1.6.45-larder-0.1.0\r\nEND\r\n"),
            ("stats memory\r\n", "STAT limit 100\r\nSTAT used 30\r\nEND\r\n"),
            (
                "stats hotkeys\r\n",
                "STAT seconds 10.1\r\nSTAT requests 9\r\nSTAT samples 9\r\nSTAT 1:key a%20b\r\nSTAT 1:share 0.5000\r\nEND\r\n",
            ),
        ]);
        let by_info = knowing(&[
            ("version\r\n", "-ERR unknown command\r\n"),
            ("*2\r\n$4\r\nINFO\r\n$3\r\nall\r\n", "$22\r\nlarder_version:0.1.0\r\n\r\n"),
            (
                "*2\r\n$4\r\nINFO\r\n$7\r\nhotkeys\r\n",
                "$105\r\n# Hotkeys\r\nhotkeys_seconds:10.1\r\nhotkeys_requests:9\r\nhotkeys_samples:9\r\nhotkey_1:key=a%20b,share=0.5000\r\n\r\n",
            ),
        ]);
        let looks = [by_text, by_info].map(|at| Server::connect(&at).unwrap().look(Sheet::HotKeys).unwrap());
        assert_eq!(looks[0].memory["used"], "30");
        for name in ["seconds", "requests", "samples", "1:key", "1:share"] {
            assert_eq!(looks[0].hot_keys[name], looks[1].hot_keys[name], "{name}");
        }
        let told = info("prefixes_sampled:1\r\nprefixes_seconds:9\r\nprefix_12:prefix=a%3A,share=0.25\r\n");
        let told = ranked(&told, "prefix");
        assert_eq!([&told["seconds"], &told["12:prefix"], &told["12:share"]], ["9", "a%3A", "0.25"]);
    }

    #[test]
    fn who_is_neither_or_asks_for_a_password_is_named_with_what_it_says() {
        let other = knowing(&[("version\r\n", "HTTP/1.1 400 Bad Request\r\n\r\n")]);
        assert!(Server::connect(&other).unwrap_err().to_string().contains("HTTP/1.1 400 Bad Request"));
        let closed = knowing(&[
            ("version\r\n", "-NOAUTH Authentication required.\r\n"),
            ("*2\r\n$4\r\nINFO\r\n$3\r\nall\r\n", "-NOAUTH Authentication required.\r\n"),
        ]);
        let error = Server::connect(&closed).unwrap().look(Sheet::Overview).unwrap_err().to_string();
        assert!(error.contains("NOAUTH") && error.contains("USER:PASSWORD@"), "{error}");
        let asks = knowing(&[("version\r\n", "CLIENT_ERROR unauthenticated\r\n")]);
        let error = Server::connect(&asks).unwrap_err().to_string();
        assert!(error.contains("unauthenticated") && error.contains("USER:PASSWORD@"), "{error}");
    }
}
