//! System calls and users of a real server's threads. With `--seccomp` each thread is limited, and everything
//! that users and administrators do with the server works. With `-u` each thread runs as that user.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use larder_testkit::PATIENCE;
use larder_testkit::folder::Folder;
use larder_testkit::process::Server;
use larder_testkit::resp::ask_text;
use larder_testkit::talk::encode_text;
use rustls::{ClientConnection, StreamOwned};

use crate::tls::client::{Identity, connection, trusting};

/// Threads of a server with two workers: these, the main thread, and those for HTTP, memory and the log.
const THREADS: usize = 6;

/// Waits until `done` returns a value.
fn await_that<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(value) = done() {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A number of each thread of a process: the first one in the line `name` of its /proc status.
fn of_threads(process: &str, name: &str) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("a process that runs");
    let of = |path: &Path| {
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
    };
    // A thread may end in between.
    tasks.filter_map(|task| of(&task.ok()?.path())).collect()
}

/// Number of seccomp filters of each thread of a process.
fn filters(process: &str) -> Vec<u32> {
    of_threads(process, "Seccomp_filters:")
}

/// Sends a request and reads exactly as many bytes as `wanted` has.
fn says(stream: &mut (impl Read + Write), request: &str, wanted: &str) {
    stream.write_all(request.as_bytes()).expect("sent");
    let mut reply = vec![0; wanted.len()];
    stream.read_exact(&mut reply).unwrap_or_else(|error| panic!("{request:?}: {error}"));
    assert_eq!(String::from_utf8_lossy(&reply), wanted, "{request:?}");
}

/// Sends a request in RESP; returns its reply: a line, or the text of a bulk string.
fn resp(stream: &mut (impl Read + Write), words: &[&str]) -> String {
    ask_text(stream, &encode_text(words))
}

/// The HTTP response to a GET of a path.
fn page(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

fn by_tls(address: SocketAddr, server: &Identity) -> StreamOwned<ClientConnection, TcpStream> {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    StreamOwned::new(connection(&trusting(server, None)), stream)
}

/// The address of a part of the greeting.
fn address(part: Option<&str>, greeting: &str) -> SocketAddr {
    let address = part.and_then(|part| part.parse().ok());
    address.unwrap_or_else(|| panic!("no such address: {greeting}"))
}

/// A server with two workers, TLS, HTTP, a file of users and a PID file; and its addresses.
struct Confined {
    server: Server,
    tls: SocketAddr,
    http: SocketAddr,
    identity: Identity,
    folder: Folder,
}

impl Confined {
    fn new(mode: &str) -> Confined {
        let (identity, folder) = (Identity::new(), Folder::new("confined"));
        let number = folder.at("pid");
        let users = folder.write("users.acl", "user default on nopass sanitize-payload ~* &* +@all\n");
        let (chain, key) = (identity.chain_text(), identity.key_text());
        let pair = ["--tls-cert-file", &chain, "--tls-key-file", &key, "--tls-auth-clients", "no"];
        let ports = ["--tls-port", "-1", "--http-port", "-1"];
        let others = ["-t", "2", "-v", "--aclfile", &users, "-P", &number];
        let server = Server::start(&[&["--seccomp", mode][..], &pair, &ports, &others].concat());
        let server = server.expect("larder starts");
        let greeting = server.output();
        let tls = greeting.rsplit(" (TLS)").nth(1).and_then(|said| said.split(' ').next_back());
        let http = greeting.split("http://").nth(1).and_then(|said| said.split('/').next());
        let (tls, http) = (address(tls, &greeting), address(http, &greeting));
        Confined { server, tls, http, identity, folder }
    }

    /// Sends commands of each protocol, to each port.
    fn serves(&self) {
        let mut text = self.server.connect().expect("it listens");
        says(&mut text, "set k 1 0 5\r\nvalue\r\n", "STORED\r\n");
        says(&mut text, "get k\r\n", "VALUE k 1 5\r\nvalue\r\nEND\r\n");
        says(&mut text, "append k 0 0 1\r\ns\r\ntouch k 100\r\n", "STORED\r\nTOUCHED\r\n");
        says(&mut text, "set n 0 0 1\r\n1\r\nincr n 41\r\n", "STORED\r\n42\r\n");
        says(&mut text, "ms m 2\r\nhi\r\nmg m v\r\nmd m\r\n", "HD\r\nVA 2\r\nhi\r\nHD\r\n");
        let value = "v".repeat(900_000);
        says(&mut text, &format!("set l 0 0 900000\r\n{value}\r\n"), "STORED\r\n");
        let reply = format!("VALUE l 0 900000\r\n{value}\r\nEND\r\n");
        says(&mut text, &"get l\r\n".repeat(5), &reply.repeat(5));
        says(&mut text, "delete l\r\nmn\r\n", "DELETED\r\nMN\r\n");
        let mut redis = self.server.connect().expect("it listens");
        assert_eq!(resp(&mut redis, &["GET", "k"]), "values");
        assert_eq!(resp(&mut redis, &["RPUSH", "list", "a", "b"]), ":2");
        assert_eq!(resp(&mut redis, &["EVAL", "return redis.call('lpop', KEYS[1])", "1", "list"]), "a");
        assert_eq!(resp(&mut redis, &["CONFIG", "SET", "maxclients", "1000"]), "+OK");
        assert!(resp(&mut redis, &["INFO"]).contains("used_memory_rss:"));
        let mut tls = by_tls(self.tls, &self.identity);
        assert_eq!(resp(&mut tls, &["SET", "k", "by TLS"]), "+OK");
        assert_eq!(resp(&mut tls, &["GET", "k"]), "by TLS");
        for path in ["/", "/metrics", "/healthz"] {
            let answer = page(self.http, path);
            assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
        }
        assert!(page(self.http, "/metrics").contains("process_open_fds "), "/proc is read");
    }

    /// Lets the server write and read its file of users, load other certificates, and read their files again.
    fn is_administered(&self) {
        let mut redis = self.server.connect().expect("it listens");
        assert_eq!(resp(&mut redis, &["ACL", "SETUSER", "reader", "on", ">secret", "~x*", "+get"]), "+OK");
        assert_eq!(resp(&mut redis, &["ACL", "SAVE"]), "+OK");
        let users = std::fs::read_to_string(self.folder.at("users.acl")).expect("it is there");
        assert!(users.contains("user reader on "), "{users}");
        assert_eq!(resp(&mut redis, &["ACL", "DELUSER", "reader"]), ":1");
        assert_eq!(resp(&mut redis, &["ACL", "LOAD"]), "+OK");
        assert_eq!(resp(&mut redis, &["AUTH", "reader", "secret"]), "+OK");
        let mut redis = self.server.connect().expect("it listens");
        let (second, third) = (Identity::new(), Identity::new());
        let (chain, key) = (second.chain_text(), second.key_text());
        let set = ["CONFIG", "SET", "tls-cert-file", &chain, "tls-key-file", &key];
        assert_eq!(resp(&mut redis, &set), "+OK");
        assert_eq!(resp(&mut by_tls(self.tls, &second), &["PING"]), "+PONG");
        second.replace_by(&third);
        self.server.hang_up();
        await_that("the old certificate is still shown", || {
            let mut stream = by_tls(self.tls, &third);
            stream.write_all(b"*1\r\n$4\r\nPING\r\n").ok().and_then(|()| stream.read_exact(&mut [0; 7]).ok())
        });
    }

    /// Stops the server: it succeeds, and removes its PID file.
    fn ends(self) {
        let status = self.server.stop().expect("it ends");
        assert!(status.success(), "{status}");
        assert!(!Path::new(&self.folder.at("pid")).exists());
    }
}

#[test]
fn each_thread_is_limited_and_all_that_serving_takes_works() {
    let confined = Confined::new("on");
    // In a container every process has the container's filters, too.
    let own = filters("self").into_iter().min().expect("a thread");
    let process = confined.server.id().to_string();
    let is = || (filters(&process) == [own + 3; THREADS]).then_some(());
    await_that("a thread has fewer filters, or more", is);
    confined.serves();
    confined.is_administered();
    // If the kernel has Landlock, the server cannot read files elsewhere.
    let said = await_that("the log does not say what is in force", || {
        let output = confined.server.output();
        output.lines().find(|line| line.contains("--seccomp on: ")).map(str::to_owned)
    });
    let mut redis = confined.server.connect().expect("it listens");
    let elsewhere = ["CONFIG", "SET", "tls-cert-file", "/etc/passwd", "tls-key-file", "/etc/passwd"];
    let refused = resp(&mut redis, &elsewhere);
    assert!(refused.starts_with("-ERR CONFIG SET failed"), "{refused}");
    assert_eq!(refused.contains("Permission denied"), !said.contains("files are not"), "{refused}: {said}");
    confined.ends();
}

#[test]
fn what_is_only_logged_works_and_each_thread_has_its_filters() {
    let confined = Confined::new("log");
    let own = filters("self").into_iter().min().expect("a thread");
    let process = confined.server.id().to_string();
    let is = || (filters(&process) == [own + 2; THREADS]).then_some(());
    await_that("a thread has fewer filters, or more", is);
    confined.serves();
    confined.is_administered();
    confined.ends();
}

#[test]
fn with_a_user_each_thread_is_that_users() {
    let server = Server::start(&["-t", "2", "-u", "nobody"]).expect("larder starts");
    // A server that does not run as root keeps its user.
    let own = rustix::process::geteuid();
    let user = if own.is_root() { number_of("nobody") } else { own.as_raw() };
    // All threads but the one for HTTP.
    assert_eq!(of_threads(&server.id().to_string(), "Uid:"), [user; THREADS - 1]);
}

/// The number (UID) of a user of this machine.
fn number_of(user: &str) -> u32 {
    let users = std::fs::read_to_string("/etc/passwd").expect("a list of users");
    let number = |line: &str| {
        let mut fields = line.split(':');
        fields.next().filter(|name| *name == user).and_then(|_| fields.nth(1)?.parse().ok())
    };
    users.lines().find_map(number).expect("there is such a user")
}
