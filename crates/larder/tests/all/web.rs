//! A server with its HTTP port, and clients for both protocols and for HTTP that share no code with Larder.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use larder_testkit::PATIENCE;
use larder_testkit::process::Server;

/// A server, and the HTTP port at which it serves its metrics.
pub struct Web {
    server: Server,
    pub port: u16,
    /// The header line with user and password, including its line end; empty at first.
    pub user: &'static str,
}

impl Web {
    pub fn start(options: &[&str]) -> Web {
        Web::start_at("-1", options)
    }

    /// Starts a server with this HTTP port.
    pub fn start_at(port: &str, options: &[&str]) -> Web {
        let mut all = vec!["--http-port", port];
        all.extend(options);
        let server = Server::start(&all).expect("it starts");
        let output = server.output();
        let told = output.split_once("http://127.0.0.1:").and_then(|(_, rest)| rest.split_once('/'));
        let port =
            told.and_then(|(port, _)| port.parse().ok()).unwrap_or_else(|| panic!("no port: {output}"));
        Web { server, port, user: "" }
    }

    pub fn connect(&self) -> TcpStream {
        let address = SocketAddr::from(([127, 0, 0, 1], self.port));
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream
    }

    /// Sends this request; returns the whole reply.
    pub fn ask(&self, request: &str) -> String {
        let mut stream = self.connect();
        // The server may have closed the connection of a request that it refused early.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).expect("text")
    }

    pub fn get(&self, path: &str) -> String {
        let user = self.user;
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{user}Connection: close\r\n\r\n"))
    }

    pub fn metrics(&self, query: &str) -> Page {
        let answer = self.get(&format!("/metrics{query}"));
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}");
        Page::read(body)
    }

    /// Runs `larder top` on the data port, with `scheme` in front of the target; returns its exit code and
    /// its output.
    pub fn top(&self, scheme: &str, options: &[&str]) -> (Option<i32>, String) {
        let target = format!("{scheme}{}", self.server.address());
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        let output = command.args(["top", "--every", "0.2", "--target", &target]).args(options).output();
        let output = output.expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs `larder doctor` on the data port; returns its exit code and its output.
    pub fn doctor(&self, options: &[&str]) -> (Option<i32>, String) {
        self.doctor_by("", options)
    }

    /// Runs `larder doctor` with `scheme` in front of the target.
    pub fn doctor_by(&self, scheme: &str, options: &[&str]) -> (Option<i32>, String) {
        let target = format!("{scheme}{}", self.server.address());
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        let output = command.args(["doctor", "--target", &target]).args(options).output();
        let output = output.expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a command of the program that connects to a server; returns its exit code and both of its
    /// outputs. `login` is the target's scheme, with user and password.
    pub fn told_by(&self, words: &[&str], login: &str) -> (Option<i32>, String) {
        let target = format!("{login}{}", self.server.address());
        let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
        let output = command.args(words).args(["--target", &target]).output().expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&said).into_owned())
    }

    /// Stops the server's process for a while.
    pub fn stop_for(&self, pause: Duration) {
        let signal = |name: &str| {
            let status = Command::new("kill").args([name, &self.server.id().to_string()]).status();
            assert!(status.is_ok_and(|status| status.success()), "kill {name}");
        };
        signal("-STOP");
        std::thread::sleep(pause);
        signal("-CONT");
    }

    pub fn text(&self) -> Talk {
        Talk { stream: self.server.connect().expect("it listens") }
    }

    /// A client whose first bytes are RESP.
    pub fn redis(&self) -> Talk {
        let mut talk = self.text();
        assert_eq!(talk.ask("*1\r\n$4\r\nPING\r\n"), "+PONG\r\n");
        talk
    }
}

/// Keys of a stream in which each is equally likely; 16 MiB hold half of them.
const SHORT_KEYS: u64 = 100_000;
const SHORT_VALUE_BYTES: usize = 200;

impl Web {
    /// A client reads more keys than a server of 16 MiB can hold, and stores those that are missing, until
    /// the server's forecast is complete; returns the reply with the forecast.
    pub fn be_short(&self) -> String {
        let (mut text, mut random, began) = (self.text(), 1, Instant::now());
        let value = "v".repeat(SHORT_VALUE_BYTES);
        loop {
            for _ in 0..100 {
                text.look_aside("key-", SHORT_KEYS, &value, &mut random);
            }
            let told = self.get("/api/v1/forecast");
            // Twice the memory would hold all keys: the forecast for that is complete last.
            let is_told = told.matches("\"vague\":false").count() >= 6;
            if is_told && told.contains("\"ready\":true") {
                return told;
            }
            assert!(began.elapsed() < PATIENCE, "{told}");
        }
    }
}

/// The next of a sequence of numbers below `count`, the same in each run.
pub fn below(random: &mut u64, count: u64) -> u64 {
    *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    (*random >> 33) % count
}

/// A connection to the data port.
pub struct Talk {
    stream: TcpStream,
}

impl Talk {
    /// Sends a request; returns the first line of the reply. An inline command of RESP works, too.
    pub fn ask(&mut self, request: &str) -> String {
        self.until(request, "\r\n")
    }

    /// Sends a request of any bytes; returns the first line of the reply.
    pub fn ask_bytes(&mut self, request: &[u8]) -> String {
        self.bytes_until(request, "\r\n")
    }

    /// Sends a request; returns the reply up to `end`.
    pub fn until(&mut self, request: &str, end: &str) -> String {
        self.bytes_until(request.as_bytes(), end)
    }

    fn bytes_until(&mut self, request: &[u8], end: &str) -> String {
        self.stream.write_all(request).expect("it listens");
        let mut reply = Vec::new();
        while !reply.ends_with(end.as_bytes()) {
            let mut bytes = [0; 4096];
            let got = self.stream.read(&mut bytes).expect("a reply");
            assert_ne!(got, 0, "closed after {}", request.escape_ascii());
            reply.extend_from_slice(&bytes[..got]);
        }
        String::from_utf8(reply).expect("text")
    }

    /// Reads 200 of `count` keys that begin with `prefix`, each equally likely, and stores the value for
    /// those that are missing.
    pub fn look_aside(&mut self, prefix: &str, count: u64, value: &str, random: &mut u64) {
        let keys = [(); 200].map(|()| format!("{prefix}{:08}", below(random, count)));
        let gets = keys.iter().map(|key| format!("mg {key} k\r\n")).collect::<String>();
        let found = self.until(&(gets + "mn\r\n"), "MN\r\n");
        let missed = keys.iter().zip(found.lines()).filter(|(_, line)| line.starts_with("EN"));
        let sets = missed.map(|(key, _)| format!("ms {key} {} q\r\n{value}\r\n", value.len()));
        self.until(&(sets.collect::<String>() + "mn\r\n"), "MN\r\n");
    }

    /// All numbers of `stats`, `stats slabs` and `stats items`.
    pub fn stats(&mut self) -> BTreeMap<String, f64> {
        let text: String = ["stats", "stats slabs", "stats items"]
            .map(|line| self.until(&format!("{line}\r\n"), "END\r\n"))
            .concat();
        let pairs = text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
        pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
    }

    /// All numbers of INFO; if a line has several, they are named `line.name`.
    pub fn info(&mut self) -> BTreeMap<String, f64> {
        let head = "INFO everything\r\n";
        self.stream.write_all(head.as_bytes()).expect("it listens");
        let mut reply = Vec::new();
        let text = loop {
            let mut bytes = [0; 65536];
            let got = self.stream.read(&mut bytes).expect("a reply");
            assert_ne!(got, 0, "closed");
            reply.extend_from_slice(&bytes[..got]);
            let text = String::from_utf8_lossy(&reply).into_owned();
            let length = text.split_once("\r\n").and_then(|(length, rest)| {
                Some((length.strip_prefix('$')?.parse::<usize>().ok()?, rest.to_owned()))
            });
            if let Some((length, rest)) = length
                && rest.len() >= length + 2
            {
                break rest;
            }
        };
        let mut figures = BTreeMap::new();
        for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
            if let Ok(value) = value.parse() {
                figures.insert(name.to_owned(), value);
            }
            for (part, value) in value.split(',').filter_map(|pair| pair.split_once('=')) {
                if let Ok(value) = value.parse() {
                    figures.insert(format!("{name}.{part}"), value);
                }
            }
        }
        figures
    }
}

/// A scrape, parsed as strictly as the format is defined.
pub struct Page {
    /// Values by name and labels.
    pub series: BTreeMap<String, f64>,
    /// The type of each family.
    pub kinds: BTreeMap<String, String>,
    pub bytes: usize,
}

impl Page {
    fn read(text: &str) -> Page {
        assert!(text.ends_with('\n'), "the last line has its end");
        let (mut series, mut kinds) = (BTreeMap::new(), BTreeMap::new());
        let (mut done, mut family, mut helped) = (BTreeSet::new(), String::new(), String::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect("a help says something");
                assert!(done.insert(name.to_owned()), "{name} comes twice");
                assert!(!help.is_empty(), "{line}");
                name.clone_into(&mut helped);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a kind");
                assert_eq!(name, helped, "the help comes first");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                kinds.insert(name.to_owned(), kind.to_owned());
                name.clone_into(&mut family);
            } else {
                let (name, value) = line.rsplit_once(' ').expect("a value");
                let own = name.split('{').next().expect("a name");
                let part = own.strip_prefix(&family[..]).unwrap_or_else(|| panic!("{line}: another family"));
                let parts: &[&str] = match &kinds[&family][..] {
                    "histogram" => &["_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                assert!(parts.contains(&part), "{line}");
                labels(name);
                let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
                assert!(value.is_finite() && value >= 0.0, "{line}");
                assert!(series.insert(name.to_owned(), value).is_none(), "{name} comes twice");
            }
        }
        assert_eq!(kinds.len(), done.len());
        let page = Page { series, kinds, bytes: text.len() };
        page.kinds.iter().filter(|(_, kind)| *kind == "histogram").for_each(|(name, _)| page.histogram(name));
        page
    }

    /// Checks that the bounds of a histogram ascend, that their counts do not fall, and that the last count
    /// is the count of all.
    fn histogram(&self, name: &str) {
        let mut of: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (series, count) in &self.series {
            let Some(labels) = series.strip_prefix(&format!("{name}_bucket{{")) else { continue };
            let (labels, bound) = labels.split_once("le=\"").expect("a bound");
            let bound = bound.trim_end_matches("\"}").parse().expect("a number");
            of.entry(labels.trim_end_matches(',').to_owned()).or_default().push((bound, *count));
        }
        assert!(!of.is_empty(), "{name}");
        for (labels, mut parts) in of {
            parts.sort_by(|one, other| one.0.total_cmp(&other.0));
            assert!(parts.is_sorted_by(|one, next| one.0 < next.0 && one.1 <= next.1), "{name}: {parts:?}");
            let all =
                if labels.is_empty() { format!("{name}_count") } else { format!("{name}_count{{{labels}}}") };
            assert_eq!(parts.last().expect("parts"), &(f64::INFINITY, self.series[&all]), "{name}");
        }
    }
}

/// Checks the names, quotes and escapes of labels.
fn labels(series: &str) {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            && !name.as_bytes()[0].is_ascii_digit()
    };
    let (name, mut rest) = series.split_once('{').map_or((series, ""), |(name, rest)| (name, rest));
    assert!(is_name(name), "{series}");
    while !rest.is_empty() && rest != "}" {
        let (label, value) =
            rest.trim_start_matches(',').split_once("=\"").unwrap_or_else(|| panic!("{series}"));
        assert!(is_name(label), "{series}");
        let mut escaped = false;
        let end = value.char_indices().find(|(_, letter)| {
            let ends = *letter == '"' && !escaped;
            assert!(!escaped || ['\\', '"', 'n'].contains(letter), "{series}");
            escaped = *letter == '\\' && !escaped;
            ends
        });
        rest = &value[end.unwrap_or_else(|| panic!("{series}")).0 + 1..];
    }
}
