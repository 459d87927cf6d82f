//! Drivers: clients in other languages as processes, which the lab builds, starts, and controls by lines.
//!
//! ```text
//! {"do":"hello"}     ──►  {"hello":version,"value":hex}     its version; a value, to compare with ours; its clients,
//!                                                           where it has several
//! {"do":"run", job}  ──►  {"ready":…}                       connected and warm; which options are in effect
//! {"do":"go"}        ──►  {"paused":n}                      at the job's `pause_at`; another "go" lets it go on
//!                    ──►  {"done":…}                        counts, times, a histogram of its calls
//! ```
//!
//! A driver ends with its stdin. A driver that ends by itself, for example because a library aborts the process, is a result and
//! no error of the lab: [`Said::Ended`].

pub mod build;
pub mod own;
pub mod reach;
mod sources;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{env, fmt, thread};

use larder_eventloop::cpu;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::tally::Latencies;
use crate::value;
use own::Way;
use reach::{Reach, Secured};

/// The longest silence of a driver: longer than any timeout of a library times the calls of a visit that time out.
const SILENCE: Duration = Duration::from_secs(300);
/// Keys of a call for many, in every driver.
pub const MANY_KEYS: u32 = 100;
/// The value that a driver shows: key, version and bytes.
const SAMPLE: (u32, u64, usize) = (305_419_896, 7, 61);

/// A driver's job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Job {
    /// How Larder's own client stores; other drivers ignore it.
    pub way: Way,
    /// Calls are made by the loop by hand, and not by the library.
    pub by_hand: bool,
    /// Each call has its own handle and connection.
    pub churn: bool,
    /// Segments of its connections are counted.
    pub segments: bool,
    /// The process exits after the last call and closes nothing.
    pub leave: bool,
    /// Nothing is stored before the first call that counts.
    pub cold: bool,
    /// libmemcached's `NO_BLOCK`.
    pub no_block: bool,
    /// libmemcached's `TCP_NODELAY`.
    pub nodelay: bool,
    /// libmemcached's `BUFFER_REQUESTS`.
    pub buffer: bool,
    /// libmemcached's `NOREPLY`.
    pub noreply: bool,
    /// The kind of calls, by the driver's number.
    pub op: u8,
    /// The server's IP address, as it is written.
    pub host: String,
    /// The server's port.
    pub port: u16,
    /// The path of the server's Unix socket, in place of both; empty if it has none.
    pub socket: String,
    /// Connections are by TLS; the fields below are for that.
    pub tls: bool,
    /// The name in the server's certificate.
    pub tls_name: String,
    /// The PEM file of the authorities that sign servers' certificates; empty for those of the system.
    pub tls_authorities: String,
    /// The PEM file of the client's own certificates; empty if it shows none.
    pub tls_chain: String,
    /// The PEM file of their key.
    pub tls_key: String,
    /// Number of the first key.
    pub first: u32,
    /// How many keys there are; calls go through them again and again.
    pub keys: u32,
    /// Version of the values that are set.
    pub version: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Bytes of the value of call `large_at`.
    pub large_bytes: usize,
    /// The least number of calls.
    pub ops_min: u64,
    /// The largest number of calls.
    pub ops_max: u64,
    /// No new call after this many nanoseconds, if there were enough calls.
    pub time_ns: u64,
    /// Requests that the loop by hand sends together.
    pub batch: u64,
    /// The call after which the driver waits for a "go"; 0 for none.
    pub pause_at: u64,
    /// The call whose value has `large_bytes`; 0 for none.
    pub large_at: u64,
    /// The client, of a driver that has several.
    pub client: String,
    /// Callers at the same time, each as fast as it can; 0 means 1, for drivers that know only one.
    pub callers: u64,
    /// Instead: bursts, in each of which all callers make one call together; 0 for none.
    pub bursts: u64,
    /// Nanoseconds between bursts; without bursts, the pause of a caller after a call that failed.
    pub pause_ns: u64,
    /// Time limit of a call, if a client has such an option; 0 for its default.
    pub timeout_ms: u64,
    /// The user of each connection; empty if the server needs none.
    pub user: String,
    /// The user's password; empty if the server needs none.
    pub password: Secret,
}

impl Job {
    /// The job, for the server at this address.
    pub fn at(self, server: SocketAddr) -> Job {
        Job { host: server.ip().to_string(), port: server.port(), ..self }
    }

    /// The job, for this server.
    pub fn on(self, server: Reach) -> Job {
        match server {
            Reach::Tcp(address) => self.at(address),
            Reach::Unix(socket) => Job { socket, ..self },
            Reach::Tls(address, Secured { name, authorities, chain, key }) => Job {
                tls: true,
                tls_name: name,
                tls_authorities: authorities,
                tls_chain: chain,
                tls_key: key,
                ..self.at(address)
            },
        }
    }

    /// The server's address and port, as clients take them, or the path of its socket; an IPv6 address is in brackets.
    pub fn address(&self) -> String {
        let Job { host, port, socket, .. } = self;
        if !socket.is_empty() {
            socket.clone()
        } else if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

/// A text that is sent to drivers, and not printed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A driver that is connected and warm. Fields that a driver does not send are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ready {
    /// The library reports `NO_BLOCK` as on; likewise the others.
    pub has_no_block: u8,
    /// `TCP_NODELAY`.
    pub has_nodelay: u8,
    /// `BUFFER_REQUESTS`.
    pub has_buffer: u8,
    /// `NOREPLY`.
    pub has_noreply: u8,
    /// There is a socket; its options follow.
    pub socket: u8,
    /// `TCP_NODELAY` as the system has it.
    pub socket_nodelay: u8,
    /// `SO_LINGER` as the system has it.
    pub socket_linger: u8,
    /// Errors while it became warm.
    pub warm_told: u64,
    /// The first error while warming up.
    pub warm_error: String,
}

/// A driver that waits in the middle of its job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paused {
    /// Calls so far.
    pub paused: u64,
    /// Calls that returned "done".
    pub ok: u64,
    /// Calls that returned "queued".
    pub queued: u64,
    /// Calls that returned an error.
    pub told: u64,
}

/// The results of a job. Fields that a driver does not send are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Done {
    /// Calls, each with one of the following outcomes.
    pub calls: u64,
    /// Calls that returned "done".
    pub ok: u64,
    /// Calls that returned "queued".
    pub queued: u64,
    /// Keys that do not exist, in calls for one key or for many.
    pub misses: u64,
    /// Calls that returned an error.
    pub told: u64,
    /// Errors of the flush and the barrier after the last call.
    pub late: u64,
    /// Values that are not the ones written.
    pub wrong: u64,
    /// The number of the first call that returned an error, from 1 on; 0 for none.
    pub first_error_at: u64,
    /// The first error.
    pub error: String,
    /// Connections opened.
    pub connections: u64,
    /// Segments sent and received, where they were to be counted.
    pub segments: u64,
    /// Nanoseconds until the last call had returned.
    pub return_ns: u64,
    /// Nanoseconds until the barrier was answered.
    pub barrier_ns: u64,
    /// CPU time of the driver until then.
    pub cpu_ns: u64,
    /// Errors that are timeouts.
    pub timeouts: u64,
    /// Nanoseconds of all calls that returned an error together.
    pub told_ns: u64,
    /// Nanoseconds from the beginning to the end of the last call that returned an error; 0 for none.
    pub last_error_ns: u64,
    /// Writes to sockets, where the client counts them.
    pub writes: u64,
    /// Allocations of the whole process, where they can be counted.
    pub allocations: u64,
    /// Their bytes.
    pub allocated_bytes: u64,
    /// Calls by their time: bucket and count.
    pub histogram: Vec<(u32, u64)>,
}

impl Done {
    /// Times of its calls.
    pub fn latencies(&self) -> Latencies {
        let mut all = Latencies::default();
        for &(bucket, count) in &self.histogram {
            all.record_many(Duration::from_nanos(middle_ns(bucket)), count);
        }
        all
    }
}

/// The bucket that a time falls into.
fn bucket_of(ns: u64) -> u32 {
    if ns < 64 {
        return ns as u32;
    }
    let power = ns.ilog2();
    (power - 5) * 64 + ((ns >> (power - 6)) & 63) as u32
}

/// The middle of a bucket: exact below 64 ns, then 64 buckets for each power of two.
fn middle_ns(bucket: u32) -> u64 {
    if bucket < 64 {
        return bucket.into();
    }
    let power = bucket / 64 - 1;
    let low = (64 + u64::from(bucket % 64)) << power;
    low + (1 << power) / 2
}

/// The next message of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The driver waits for a "go".
    Paused(Paused),
    /// The job is done.
    Done(Box<Done>),
    /// Its process has ended.
    Ended(Ended),
}

/// A driver that ended by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// How it ended, such as "ended by SIGABRT".
    pub how: String,
    /// Calls that had returned, and those among them that returned "done" or "queued", if the driver could still report that.
    pub calls: Option<(u64, u64)>,
    /// The last line that it wrote to stderr.
    pub complaint: String,
}

/// A running driver. Dropping it ends the process.
#[derive(Debug)]
pub struct Driver {
    /// The version that the library, or the language, reports.
    pub version: String,
    /// Its clients with their versions, if it has several.
    pub clients: Vec<(String, String)>,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    complaint: Arc<Mutex<String>>,
}

#[derive(Serialize, Deserialize)]
struct Hello {
    hello: String,
    value: String,
    #[serde(default)]
    clients: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Aborted {
    aborted: u64,
    said_ok: u64,
}

#[derive(Serialize)]
struct Run<'j> {
    r#do: &'static str,
    #[serde(flatten)]
    job: &'j Job,
}

impl Driver {
    /// Starts `program` on `core` and compares its values with the lab's.
    ///
    /// # Errors
    /// [`Error::Peer`] when it does not start, or makes other values.
    pub fn start(program: &Path, core: Option<usize>) -> Result<Driver, Error> {
        Driver::start_command(Command::new(program), core)
    }

    /// The driver of Larder's own client, which is this very program, on `core`.
    ///
    /// # Errors
    /// As [`Driver::start`].
    pub fn start_own(core: Option<usize>) -> Result<Driver, Error> {
        let program = env::current_exe().map_err(|error| Error::System("finding own program", error))?;
        let mut command = Command::new(program);
        command.args(["lab", "drive"]);
        Driver::start_command(command, core)
    }

    /// Starts `command`.
    ///
    /// # Errors
    /// As [`Driver::start`].
    pub fn start_command(mut command: Command, core: Option<usize>) -> Result<Driver, Error> {
        let name = command.get_program().to_string_lossy().into_owned();
        let refuse = |why: String| Error::Peer(format!("driver {name}: {why}"));
        command
            // Symbols are bound before anything is timed.
            .env("LD_BIND_NOW", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = on_core(command, core).map_err(|error| refuse(error.to_string()))?;
        let (sender, lines) = channel();
        let stdout = child.stdout.take().expect("it was asked for");
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let complaint = Arc::new(Mutex::new(String::new()));
        let (stderr, said) = (child.stderr.take().expect("it was asked for"), complaint.clone());
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                *said.lock().unwrap_or_else(PoisonError::into_inner) = line;
            }
        });
        let stdin = child.stdin.take();
        let (version, clients) = (String::new(), Vec::new());
        let mut driver = Driver { version, clients, child, stdin, lines, complaint };
        let line = match driver.exchange(r#"{"do":"hello"}"#)? {
            Ok(line) => line,
            Err(ended) => return Err(refuse(format!("{} {}", ended.how, ended.complaint))),
        };
        let hello: Hello = parse(&line)?;
        if hello.value != sample() {
            return Err(refuse("its values are not the lab's".to_owned()));
        }
        (driver.version, driver.clients) = (hello.hello, hello.clients);
        Ok(driver)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes the driver connect and become warm.
    ///
    /// # Errors
    /// [`Error::Peer`] when its answer is not understood, or missing.
    pub fn prepare(&mut self, job: &Job) -> Result<Result<Ready, Ended>, Error> {
        let job = serde_json::to_string(&Run { r#do: "run", job });
        let job = job.map_err(|error| Error::Peer(format!("a driver's job: {error}")))?;
        match self.exchange(&job)? {
            Ok(line) => Ok(Ok(parse(&line)?)),
            Err(ended) => Ok(Err(ended)),
        }
    }

    /// Has the driver continue, and waits for its next message.
    ///
    /// # Errors
    /// As [`Driver::prepare`].
    pub fn go(&mut self) -> Result<Said, Error> {
        self.tell(r#"{"do":"go"}"#);
        self.wait()
    }

    /// Sends "go".
    pub fn tell_to_go(&mut self) {
        self.tell(r#"{"do":"go"}"#);
    }

    /// Waits for the driver's next message.
    ///
    /// # Errors
    /// As [`Driver::prepare`].
    pub fn wait(&mut self) -> Result<Said, Error> {
        match self.hear()? {
            Ok(line) if line.starts_with(r#"{"paused""#) => Ok(Said::Paused(parse(&line)?)),
            Ok(line) => Ok(Said::Done(Box::new(parse(&line)?))),
            Err(ended) => Ok(Said::Ended(ended)),
        }
    }

    /// Makes the driver ready. It is an error here if the driver ends.
    ///
    /// # Errors
    /// [`Error::Peer`] when it ends, or its answer is not understood.
    pub fn ready(&mut self, job: &Job) -> Result<(), Error> {
        match self.prepare(job)? {
            Ok(_) => Ok(()),
            Err(ended) => Err(Error::Peer(format!("the driver {}: {}", ended.how, ended.complaint))),
        }
    }

    /// Makes the driver do its job, and waits until it is done.
    ///
    /// # Errors
    /// As [`Driver::ready`].
    pub fn done(&mut self) -> Result<Done, Error> {
        self.tell_to_go();
        self.wait_done()
    }

    /// Waits until its job is done.
    ///
    /// # Errors
    /// As [`Driver::ready`].
    pub fn wait_done(&mut self) -> Result<Done, Error> {
        match self.wait()? {
            Said::Done(done) => Ok(*done),
            Said::Ended(ended) => Err(Error::Peer(format!("the driver {}: {}", ended.how, ended.complaint))),
            Said::Paused(_) => Err(Error::Peer("a driver waits that was not asked to".to_owned())),
        }
    }

    fn exchange(&mut self, line: &str) -> Result<Result<String, Ended>, Error> {
        self.tell(line);
        self.hear()
    }

    /// Sends a line. A driver that has ended gets nothing; its next message is that it has ended.
    fn tell(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = writeln!(stdin, "{line}");
        }
    }

    fn hear(&mut self) -> Result<Result<String, Ended>, Error> {
        let mut calls = None;
        loop {
            match self.lines.recv_timeout(SILENCE) {
                Ok(line) if line.starts_with(r#"{"aborted""#) => {
                    let Aborted { aborted, said_ok } = parse(&line)?;
                    calls = Some((aborted, said_ok));
                }
                Ok(line) if line.starts_with(r#"{"failed""#) => {
                    return Err(Error::Peer(format!("the driver says {line}")));
                }
                Ok(line) => return Ok(Ok(line)),
                Err(RecvTimeoutError::Timeout) => {
                    let silent = format!("the driver says nothing for {} s", SILENCE.as_secs());
                    return Err(Error::Peer(silent));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().map_err(|error| Error::System("a driver", error))?;
                    let complaint = self.complaint.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    return Ok(Err(Ended { how: how(status), calls, complaint }));
                }
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a process on `core` from its first instruction on: a runtime counts its cores and starts threads before it could be
/// pinned from outside.
fn on_core(mut command: Command, core: Option<usize>) -> std::io::Result<Child> {
    let starter = thread::spawn(move || {
        // As for servers and generator: where the priority may not be raised, all run without it. A child inherits priority and
        // pinning.
        let _ = cpu::raise_priority(None);
        if let Some(core) = core {
            cpu::pin_thread(core)?;
        }
        command.spawn()
    });
    starter.join().unwrap_or_else(|_| Err(std::io::Error::other("the thread that starts it ended")))
}

/// The value that is compared, in hexadecimal digits.
fn sample() -> String {
    let (key, version, bytes) = SAMPLE;
    let mut value = Vec::new();
    value::write(&mut value, key, version, bytes);
    value.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn parse<'l, T: Deserialize<'l>>(line: &'l str) -> Result<T, Error> {
    let shown = || line.chars().take(200).collect::<String>();
    serde_json::from_str(line)
        .map_err(|error| Error::Peer(format!("the driver says what is not understood: {error}: {}", shown())))
}

/// How a process ended.
fn how(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(6), _) => "ended by SIGABRT".to_owned(),
        (Some(9), _) => "ended by SIGKILL".to_owned(),
        (Some(11), _) => "ended by SIGSEGV".to_owned(),
        (Some(signal), _) => format!("ended by signal {signal}"),
        (None, Some(code)) => format!("exited with {code}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_a_bucket_is_within_a_hundredth_of_what_fell_into_it() {
        for ns in (0..100_000).chain([1_000_000, 123_456_789, 59_999_999_999]) {
            let middle = middle_ns(bucket_of(ns));
            assert!(middle.abs_diff(ns) as f64 <= 0.008 * ns as f64, "{ns}: {middle}");
        }
    }

    #[test]
    fn what_a_driver_says_is_read_and_its_histogram_is_kept() {
        let line = r#"{"done":1,"calls":3,"ok":2,"queued":0,"misses":1,"told":0,"late":0,"wrong":0,
            "first_error_at":0,"error":"","connections":1,"segments":7,"return_ns":9,"barrier_ns":10,"cpu_ns":8,
            "histogram":[[5,1],[384,2]]}"#;
        let done: Done = parse(line).unwrap();
        assert_eq!((done.calls, done.misses, done.histogram.len()), (3, 1, 2));
        let latencies = done.latencies();
        assert_eq!((latencies.len(), latencies.ns.min()), (3, 5));
        assert!(parse::<Done>("END").unwrap_err().to_string().contains("not understood"));
    }

    #[test]
    fn a_job_is_one_flat_object_in_a_line() {
        let secret = Secret("a\"b".to_owned());
        let job = Job { port: 11211, buffer: true, password: secret, ..Job::default() };
        let line = serde_json::to_string(&Run { r#do: "run", job: &job }).unwrap();
        assert!(line.starts_with(r#"{"do":"run","way":"one-by-one","by_hand":false,"#), "{line}");
        assert!(line.contains(r#""buffer":true,"#) && line.contains(r#""port":11211,"#), "{line}");
        assert!(line.ends_with(r#","user":"","password":"a\"b"}"#), "{line}");
        assert!(!line[1..].contains('{') && !line.contains('\n'), "{line}");
        assert!(!format!("{job:?}").contains("a\\\"b"), "{job:?}");
    }

    #[test]
    fn a_job_is_on_a_server_of_either_kind_of_address() {
        for (server, host) in [("127.0.0.1:7", "127.0.0.1"), ("[::1]:7", "::1")] {
            let job = Job { port: 9, ..Job::default() }.at(server.parse().unwrap());
            assert_eq!((job.host.as_str(), job.port, job.address().as_str()), (host, 7, server));
        }
    }

    #[test]
    fn a_job_is_on_a_server_behind_a_unix_socket_or_tls() {
        let job = Job::default().on(Reach::Unix("/run/m".to_owned()));
        assert_eq!((job.address().as_str(), job.host.as_str(), job.tls), ("/run/m", "", false));
        let of = |word: &str| word.to_owned();
        let secured = Secured { name: of("n"), authorities: of("a"), chain: of("c"), key: of("k") };
        let job = Job::default().on(Reach::Tls("[::1]:7".parse().unwrap(), secured));
        assert_eq!((job.address().as_str(), job.socket.as_str(), job.tls), ("[::1]:7", "", true));
        let texts = [&job.tls_name, &job.tls_authorities, &job.tls_chain, &job.tls_key];
        assert_eq!(texts, ["n", "a", "c", "k"]);
        // Names of fields are unlike each other for a driver that looks for `"NAME":`.
        let line = serde_json::to_string(&job).unwrap();
        assert_eq!(line.matches(r#""tls":"#).count(), 1);
    }

    #[test]
    fn a_program_that_is_no_driver_is_refused_with_how_it_ended() {
        let error = Driver::start(Path::new("/bin/false"), None).unwrap_err().to_string();
        assert!(error.contains("exited with 1"), "{error}");
        let error = Driver::start(Path::new("/nowhere/driver"), None).unwrap_err().to_string();
        assert!(error.contains("/nowhere/driver"), "{error}");
    }
}
