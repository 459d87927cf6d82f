//! The cases of `spec/client`, which say in no language's terms what a client sends and returns; its README has their
//! grammar. The server of a case is a thread that reads what must come and sends what it is told to.

use larder_client::{
    Client, Dialect, Done, Error, LeaseState, Leasing, Meta, Mode, Outcome, Report, Server, Stored, Ticket,
    Ttl, Value, Want, Window,
};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// How long anything may take on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(20);
/// What a client of the case does not offer: values that are streamed, the server's figures; or its types forbid it:
/// a time to live below zero.
const ABSENT: [&str; 3] = ["get-to", "set-from", "stats"];

#[derive(Clone, Debug)]
struct Case {
    name: String,
    with: HashMap<String, String>,
    calls: Vec<Call>,
}

#[derive(Clone, Debug)]
struct Call {
    verb: String,
    fields: HashMap<String, String>,
    acts: Vec<Act>,
    want: String,
}

#[derive(Clone, Debug)]
enum Act {
    Expect(String),
    Answer(Vec<u8>),
    Close,
    Dial,
}

/// `\r \n \\ \x20 \{N:c}` in text.
fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, more)) = rest.split_first() {
        rest = more;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let (&kind, more) = rest.split_first().expect("an escape");
        rest = more;
        match kind {
            b'r' => out.push(b'\r'),
            b'n' => out.push(b'\n'),
            b'\\' => out.push(b'\\'),
            b'x' => {
                let digits = std::str::from_utf8(&rest[..2]).expect("two digits");
                out.push(u8::from_str_radix(digits, 16).expect("two digits"));
                rest = &rest[2..];
            }
            b'{' => {
                let end = rest.iter().position(|&byte| byte == b'}').expect("an end");
                let inner = std::str::from_utf8(&rest[..end]).expect("text");
                let (times, what) = inner.split_once(':').expect("N:c");
                out.extend(unescaped(what).repeat(times.parse().expect("a number")));
                rest = &rest[end + 1..];
            }
            _ => panic!("{text}"),
        }
    }
    out
}

fn fields(text: &str) -> HashMap<String, String> {
    let pair = |word: &str| match word.split_once('=') {
        Some((name, value)) => (name.to_owned(), value.to_owned()),
        None => (word.to_owned(), String::new()),
    };
    text.split_whitespace().map(pair).collect()
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/client");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("spec/client").map(|entry| entry.expect("a file").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    assert!(files.len() > 5);
    let mut cases: Vec<Case> = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a file of cases");
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let rest = rest.trim();
            if word == "==" {
                let file = file.file_stem().expect("a name").to_string_lossy();
                cases.push(Case { name: format!("{file}: {rest}"), with: HashMap::new(), calls: Vec::new() });
                continue;
            }
            let Some(case) = cases.last_mut() else { continue };
            let act = match word {
                "" | "#" => continue,
                "with" => {
                    case.with = fields(rest);
                    continue;
                }
                "call" => {
                    let (verb, rest) = rest.split_once(' ').unwrap_or((rest, ""));
                    let (verb, fields) = (verb.to_owned(), fields(rest));
                    case.calls.push(Call { verb, fields, acts: Vec::new(), want: String::new() });
                    continue;
                }
                "=" => {
                    case.calls.last_mut().expect("a call").want = rest.to_owned();
                    continue;
                }
                ">" => Act::Expect(rest.to_owned()),
                "<" => Act::Answer(unescaped(rest)),
                "close" => Act::Close,
                "dial" => Act::Dial,
                _ => panic!("{line}"),
            };
            case.calls.last_mut().expect("a call").acts.push(act);
        }
    }
    cases
}

/// A server that does what a case says.
struct Played {
    listener: UnixListener,
    path: PathBuf,
    stream: Option<UnixStream>,
    opaques: HashMap<String, String>,
    /// Sends byte by byte.
    slowly: bool,
    greets: Option<Dialect>,
}

impl Played {
    fn new(case: &Case, slowly: bool) -> Played {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("larder-client-{}-{number}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).expect("a socket");
        listener.set_nonblocking(true).expect("an option");
        let greets = match case.with.get("protocol").map(String::as_str) {
            Some("auto") => None,
            Some("classic") => Some(Dialect::Classic),
            _ if case.with.contains_key("auth") => None,
            _ => Some(Dialect::Meta),
        };
        Played { listener, path, stream: None, opaques: HashMap::new(), slowly, greets }
    }

    fn dial(&mut self) {
        let until = std::time::Instant::now() + PATIENCE;
        let stream = loop {
            match self.listener.accept() {
                Ok((stream, _)) => break stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    assert!(std::time::Instant::now() < until, "the client does not dial");
                    thread::sleep(Duration::from_micros(200));
                }
                Err(error) => panic!("{error}"),
            }
        };
        stream.set_nonblocking(false).expect("an option");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        self.stream = Some(stream);
        match self.greets {
            Some(Dialect::Meta) => {
                self.expect("mn\\r\\n");
                self.answer(b"MN\r\n");
            }
            Some(Dialect::Classic) => {
                self.expect("version\\r\\n");
                self.answer(b"VERSION 1.6.45\r\n");
            }
            None => {}
        }
    }

    /// Reads what must come; `O{n}` is an opaque that the client has chosen.
    fn expect(&mut self, text: &str) {
        let mut parts = text.split("O{");
        let literal = |played: &mut Played, part: &str| {
            let want = unescaped(part);
            let mut got = vec![0; want.len()];
            let read = played.stream.as_mut().expect("connected").read_exact(&mut got);
            assert!(read.is_ok() && got == want, "{} came in place of {part}: {read:?}", got.escape_ascii());
        };
        literal(self, parts.next().expect("one at least"));
        for part in parts {
            let (name, rest) = part.split_once('}').expect("O{n}");
            let mut opaque = vec![b'O'];
            let mut byte = [0];
            let end = unescaped(rest)[0];
            self.stream.as_mut().expect("connected").read_exact(&mut byte).expect("an opaque");
            while {
                opaque.extend(byte);
                self.stream.as_mut().expect("connected").read_exact(&mut byte).expect("an opaque");
                byte[0] != end
            } {}
            let opaque = String::from_utf8(opaque).expect("text");
            assert_eq!(&opaque[..2], "OO");
            self.opaques.insert(name.to_owned(), opaque[1..].to_owned());
            let skip = if rest.starts_with('\\') { 2 } else { 1 };
            literal(self, &rest[skip..]);
        }
    }

    fn answer(&mut self, bytes: &[u8]) {
        let stream = self.stream.as_mut().expect("connected");
        let mut bytes = bytes.to_vec();
        for (name, opaque) in &self.opaques {
            let mark = format!("O{{{name}}}").into_bytes();
            while let Some(at) = bytes.windows(mark.len()).position(|window| window == mark) {
                bytes.splice(at..at + mark.len(), opaque.bytes());
            }
        }
        // A client that has seen enough may be gone.
        if self.slowly && bytes.len() < 4096 {
            bytes.iter().for_each(|&byte| drop(stream.write_all(&[byte])));
        } else {
            drop(stream.write_all(&bytes));
        }
    }

    fn play(&mut self, acts: &[Act]) {
        for act in acts {
            match act {
                Act::Expect(text) => {
                    if self.stream.is_none() {
                        self.dial();
                    }
                    self.expect(text);
                }
                Act::Answer(bytes) => self.answer(bytes),
                Act::Close => {
                    let stream = self.stream.take().expect("connected");
                    stream.shutdown(std::net::Shutdown::Both).expect("it was open");
                }
                Act::Dial => self.dial(),
            }
        }
    }

    /// Nothing was sent besides what is said.
    fn is_silent(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.set_nonblocking(true).expect("an option");
            let mut more = [0; 100];
            match stream.read(&mut more) {
                Ok(0) | Err(_) => {}
                Ok(bytes) => panic!("{} was sent besides", more[..bytes].escape_ascii()),
            }
        }
        assert!(self.listener.accept().is_err(), "another connection");
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn client(case: &Case, path: &Path) -> Client {
    let option = |name: &str| case.with.get(name);
    let mut builder = Client::builder()
        .server(path.to_str().expect("text"))
        .timeout(if option("timeout").is_some() { Duration::from_millis(100) } else { PATIENCE })
        .dial_timeout(PATIENCE)
        .stall_timeout(PATIENCE)
        .retry_reads(option("retry-reads").is_some())
        .verify(option("verify").is_some())
        .binary_keys(option("binary-keys").is_some());
    match option("protocol").map(String::as_str) {
        Some("auto") => {}
        Some("classic") => builder = builder.protocol(Dialect::Classic),
        _ => builder = builder.protocol(Dialect::Meta),
    }
    if let Some(prefix) = option("prefix") {
        builder = builder.key_prefix(unescaped(prefix));
    }
    if let Some((user, password)) = option("auth").and_then(|auth| auth.split_once(':')) {
        builder = builder.auth(user, password);
    }
    builder.build().expect("a client")
}

impl Call {
    fn text(&self, name: &str) -> Vec<u8> {
        self.fields.get(name).map(|text| unescaped(text)).unwrap_or_default()
    }

    fn number<N: std::str::FromStr>(&self, name: &str) -> Option<N> {
        self.fields.get(name).and_then(|text| text.parse().ok())
    }

    fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    fn ttl(&self, name: &str) -> Ttl {
        match self.number::<f64>(name) {
            None | Some(0.0) => Ttl::Forever,
            Some(seconds) => Ttl::In(Duration::from_secs_f64(seconds)),
        }
    }

    /// Makes the call; the result in the words of the cases.
    fn make(&self, client: &Client) -> String {
        let key = self.text("key");
        let value = self.text("value");
        let hit = |result: Result<Option<Meta>, Error>, bytes: &[u8]| match result {
            Ok(Some(meta)) => found(bytes, &meta),
            Ok(None) => "miss".to_owned(),
            Err(error) => failed(&error),
        };
        let yes = |result: Result<bool, Error>, word: &str| match result {
            Ok(true) => word.to_owned(),
            Ok(false) => "miss".to_owned(),
            Err(error) => failed(&error),
        };
        let mut bytes = Vec::new();
        match self.verb.as_str() {
            "get" => hit(client.get_into(&key, &mut bytes), &bytes),
            "item" => {
                let mut want = Want::default();
                for name in self.fields.get("want").iter().flat_map(|names| names.split(',')) {
                    want = want
                        | match name {
                            "flags" => Want::FLAGS,
                            "cas" => Want::CAS,
                            "ttl" => Want::TTL,
                            "size" => Want::SIZE,
                            "last-access" => Want::LAST_ACCESS,
                            "hit-before" => Want::HIT_BEFORE,
                            _ => panic!("{name}"),
                        };
                }
                if self.has("no-bump") {
                    want = want | Want::NO_BUMP;
                }
                if self.has("touch") {
                    return hit(client.get_and_touch(&key, self.ttl("touch"), &mut bytes), &bytes);
                }
                hit(client.get_with(&key, want, &mut bytes), &bytes)
            }
            "set" | "add" | "replace" | "append" | "prepend" => {
                let mode = match self.verb.as_str() {
                    "add" => Mode::Add,
                    "replace" => Mode::Replace,
                    "append" => Mode::Append,
                    "prepend" => Mode::Prepend,
                    _ => Mode::Set,
                };
                let flags = self.number("flags").unwrap_or(0);
                let mut set = client.set(&key, &value).mode(mode).ttl(self.ttl("ttl")).flags(flags);
                if let Some(cas) = self.number("cas") {
                    set = set.cas(cas);
                }
                if self.has("want-cas") {
                    set = set.want_cas();
                }
                if self.has("stale-if-older") {
                    set = set.stale_if_older();
                }
                stored(set.send())
            }
            "delete" | "invalidate" => {
                let mut delete = client.delete(&key);
                if let Some(cas) = self.number("cas") {
                    delete = delete.cas(cas);
                }
                for name in ["keep-stale", "serve-stale"] {
                    if self.has(name) {
                        delete = delete.keep_stale(self.ttl(name));
                    }
                }
                if self.has("empty") {
                    delete = delete.keep_empty();
                }
                yes(delete.send(), "deleted")
            }
            "touch" => yes(client.touch(&key, self.ttl("ttl")), "touched"),
            "incr" | "decr" => {
                let delta = self.number("delta").expect("a delta");
                let mut count =
                    if self.verb == "incr" { client.incr(&key, delta) } else { client.decr(&key, delta) };
                if self.has("create") {
                    count = count.or_make(self.number("init").unwrap_or(0), self.ttl("ttl"));
                }
                if let Some(cas) = self.number("cas") {
                    count = count.cas(cas);
                }
                match count.send() {
                    Ok(Some(number)) => format!("number {number}"),
                    Ok(None) => "miss".to_owned(),
                    Err(error) => failed(&error),
                }
            }
            "get-or-lease" => {
                let seconds = |name| Duration::from_secs(self.number(name).unwrap_or(0));
                let leasing = Leasing { vivify: seconds("vivify"), refresh: seconds("refresh") };
                match client.get_or_lease(&key, leasing, &mut bytes) {
                    Err(error) => failed(&error),
                    Ok(lease) => {
                        let mut text = format!("{:?}", lease.state);
                        if !matches!(lease.state, LeaseState::MissWon | LeaseState::MissWait) {
                            write!(text, " value={}", plain(&bytes)).expect("text");
                        }
                        write!(text, " cas={} ttl={}", lease.cas, lease.ttl.unwrap_or_default().as_secs())
                            .expect("text");
                        text
                    }
                }
            }
            "fill" => {
                let lease = larder_client::Lease {
                    state: LeaseState::MissWon,
                    cas: self.number("cas").expect("a token"),
                    ttl: None,
                };
                stored(client.fill(&key, &value, self.ttl("ttl"), &lease))
            }
            "many" => {
                let mut batch = client.batch();
                let keys = self.fields["keys"].split(',');
                let tickets: Vec<_> = keys.map(|key| batch.get(&unescaped(key))).collect();
                let done = batch.run();
                let results: Vec<_> = tickets.iter().map(|ticket| done.value(ticket)).collect();
                let all = results
                    .iter()
                    .find_map(|result| result.as_ref().err())
                    .map(|error| format!("all: {}", failed(error)));
                let each = results.iter().map(|result| match result {
                    Ok(Some((bytes, meta))) => found(bytes, meta),
                    Ok(None) => "miss".to_owned(),
                    Err(error) => failed(error),
                });
                each.chain(all).collect::<Vec<_>>().join("; ")
            }
            "batch" => self.batch(client),
            "stream" | "quiet" => {
                let mut stream =
                    if self.verb == "quiet" { client.quiet() } else { client.stream(Window::default()) };
                for part in self.fields["of"].split(',') {
                    let mut words = part.split(':');
                    let (verb, key) =
                        (words.next().expect("a verb"), words.next().expect("a key").as_bytes());
                    let sent = match verb {
                        "set" => stream.set(key, words.next().expect("a value").as_bytes(), Ttl::Forever),
                        "delete" => stream.delete(key),
                        _ => panic!("{part}"),
                    };
                    sent.expect("its key is good");
                }
                reported(&stream.barrier())
            }
            "version" => match client.versions().pop().expect("one server").1 {
                Ok(version) => format!("version {version}"),
                Err(error) => failed(&error),
            },
            "flush" => match client.flush_all() {
                Ok(()) => "flushed".to_owned(),
                Err(error) => failed(&error),
            },
            verb => panic!("{verb}"),
        }
    }

    fn batch(&self, client: &Client) -> String {
        enum Of {
            Get(Ticket<Option<Value>>),
            Set(Ticket<Stored>),
            Delete(Ticket<bool>),
            Incr(Ticket<Option<u64>>),
        }
        let mut batch = client.batch();
        let mut tickets = Vec::new();
        for part in self.fields["of"].split(',') {
            let mut words = part.split(':');
            let (verb, key) = (words.next().expect("a verb"), words.next().expect("a key").as_bytes());
            tickets.push(match verb {
                "get" => Of::Get(batch.get(key)),
                "set" => Of::Set(batch.set(key, words.next().expect("a value").as_bytes(), Ttl::Forever)),
                "delete" => Of::Delete(batch.delete(key)),
                "incr" => Of::Incr(batch.incr(key, 1)),
                _ => panic!("{part}"),
            });
        }
        let done: Done<'_> = batch.run();
        let text = |value: &[u8], number: u64| format!("value={} number={number}", plain(value));
        let told = |result: Result<Option<String>, Error>| match result {
            Ok(Some(text)) => text,
            Ok(None) => "miss".to_owned(),
            Err(error) => failed(&error),
        };
        let each = tickets.into_iter().map(|ticket| {
            told(match ticket {
                Of::Get(ticket) => done.take(ticket).map(|value| value.map(|value| text(&value.bytes, 0))),
                Of::Set(ticket) => done.take(ticket).map(|_| Some(text(b"", 0))),
                Of::Delete(ticket) => done.take(ticket).map(|deleted| deleted.then(|| text(b"", 0))),
                Of::Incr(ticket) => done.take(ticket).map(|number| number.map(|number| text(b"", number))),
            })
        });
        each.collect::<Vec<_>>().join("; ")
    }
}

fn plain(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn found(bytes: &[u8], meta: &Meta) -> String {
    let mut text = format!("hit value={}", plain(bytes));
    let marks = meta.marks;
    for (name, number) in [
        ("flags", u64::from(meta.flags)),
        ("cas", meta.cas),
        ("ttl", meta.ttl.unwrap_or_default().as_secs()),
        ("size", meta.size),
        ("last-access", meta.last_access.as_secs()),
        ("hit-before", u64::from(marks.hit_before)),
        ("stale", u64::from(marks.stale)),
        ("won", u64::from(marks.won)),
        ("pending", u64::from(marks.pending)),
    ] {
        if number > 0 {
            write!(text, " {name}={number}").expect("text");
        }
    }
    text
}

fn stored(result: Result<Stored, Error>) -> String {
    match result {
        Ok(Stored { cas: 0 }) => "stored".to_owned(),
        Ok(Stored { cas }) => format!("stored cas={cas}"),
        Err(error) => failed(&error),
    }
}

fn failed(error: &Error) -> String {
    let name = match error {
        Error::Absent => return "miss".to_owned(),
        Error::Conflict => return "conflict".to_owned(),
        Error::NotStored => return "not-stored".to_owned(),
        Error::BadKey => "bad-key",
        Error::TooLarge => "too-large",
        Error::NotNumber => "not-number",
        Error::Auth(_) => "auth",
        Error::Closed => "closed",
        Error::Config(_) => "config",
        Error::ServerMemory(_) => "server-memory",
        Error::Server(..) | Error::Unsupported => "server",
        Error::Protocol(..) => "protocol",
        Error::Timeout(..) => "timeout",
        Error::Down(..) => "down",
        Error::Lost(..) => "lost",
        _ => panic!("{error}"),
    };
    let outcome = match error.outcome() {
        Outcome::Answered => "answered",
        Outcome::NotSent => "not-sent",
        Outcome::Unknown => "unknown",
    };
    format!("error {name} {outcome}")
}

fn reported(report: &Report) -> String {
    let Report { sent, stored, refused, unknown, .. } = report;
    assert_eq!(*sent, stored + refused + unknown);
    let mut text = format!("sent={sent} stored={stored} refused={refused} unknown={unknown}");
    for refused in &report.first {
        write!(text, "; {} {}", plain(&refused.key), failed(&refused.error)).expect("text");
    }
    if let Some(error) = &report.error {
        write!(text, "; all: {}", failed(error)).expect("text");
    }
    text
}

/// Plays a case; the results of its calls.
fn play(case: &Case, slowly: bool) {
    let mut server = Played::new(case, slowly);
    let client = client(case, &server.path);
    for call in &case.calls {
        thread::scope(|scope| {
            let played = scope.spawn(|| server.play(&call.acts));
            let want = String::from_utf8(unescaped(&call.want)).expect("text");
            let got = call.make(&client);
            assert_eq!(got, want, "{}: {} {:?}, slowly {slowly}", case.name, call.verb, call.fields);
            played.join().expect("the server has seen what it expects");
        });
    }
    server.is_silent();
}

fn is_for_us(case: &Case) -> bool {
    case.calls.iter().all(|call| !ABSENT.contains(&call.verb.as_str()) && !call.want.contains("bad-ttl"))
}

#[test]
fn what_a_client_sends_and_returns() {
    let cases: Vec<_> = cases().into_iter().filter(is_for_us).collect();
    for case in &cases {
        play(case, false);
        play(case, true);
    }
    assert!(cases.len() >= 70, "{} cases", cases.len());
}

#[test]
fn an_answer_that_is_cut_after_any_byte_is_lost() {
    let mut cut = 0;
    for case in cases().iter().filter(|case| is_for_us(case) && case.calls.len() == 1) {
        let call = &case.calls[0];
        let several = matches!(call.verb.as_str(), "many" | "batch" | "stream" | "quiet");
        let [Act::Expect(_), Act::Answer(answer)] = call.acts.as_slice() else { continue };
        if several || call.want.contains("error") || answer.len() > 1000 {
            continue;
        }
        for bytes in 0..answer.len() {
            let mut case = case.clone();
            case.calls[0].acts[1] = Act::Answer(answer[..bytes].to_vec());
            case.calls[0].acts.push(Act::Close);
            case.calls[0].want = "error lost unknown".to_owned();
            play(&case, false);
            cut += 1;
        }
    }
    assert!(cut > 100, "{cut} cuts");
}

#[test]
fn a_server_has_a_name_of_its_own() {
    let server = Server { name: Some("a".to_owned()), ..Server::from("/run/x") };
    let client = Client::builder().server(server).build().expect("a client");
    assert_eq!(client.server_of(b"k"), "a");
}
