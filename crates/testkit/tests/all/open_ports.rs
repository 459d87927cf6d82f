//! A server that was started with few options: a line in the log names the machines that can reach it, commands that show or stop
//! everything are off, the memory limit holds, and an unread log stops nothing.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use larder_testkit::PATIENCE;
use larder_testkit::folder::Folder;
use larder_testkit::process::{Port, Program, Server, larder};

/// A placeholder in options for a port that no other program has.
const FREE: &str = "a free port";
/// Connections that have more lines in the log, two each, than a pipe and the log's own queue hold.
const CONNECTIONS: usize = 2_000;

/// A server with `options`, its port for memcached, the one that [`FREE`] stood for, and its stderr.
struct Started {
    child: Child,
    port: Port,
    free: Port,
    stderr: Option<ChildStderr>,
}

impl Started {
    fn new(options: &[&str]) -> Started {
        let [port, free] = [(); 2].map(|()| Port::reserve().expect("a port"));
        let options = options.iter().map(|option| match *option {
            FREE => free.address().port().to_string(),
            other => other.to_owned(),
        });
        let mut command = Command::new(larder());
        command
            .args(["serve", "-m", "64", "-t", "1", "--http-port", "0", "-p"])
            .arg(port.address().port().to_string())
            .args(options);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut greeting = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut greeting).expect("a greeting");
        if !greeting.contains("listens on") {
            let mut stderr = child.stderr.take().expect("it is piped");
            stderr.read_to_string(&mut greeting).expect("text");
            child.wait().expect("it ends");
            panic!("{greeting}");
        }
        let stderr = child.stderr.take();
        Started { child, port, free, stderr }
    }

    /// Ends the server with SIGTERM; returns the rest of its stderr.
    fn end(mut self) -> String {
        self.stop();
        let mut said = String::new();
        self.stderr.take().expect("nobody took it").read_to_string(&mut said).expect("text");
        said
    }

    /// As [`Started::end`], but waits for this text first: the end does not wait for a late log. Returns the whole log.
    fn end_when_said(mut self, wanted: &str) -> String {
        let stderr = self.stderr.take().expect("nobody took it");
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
            lines.all(|line| tell.send(line + "\n").is_ok())
        });
        let mut said = String::new();
        while !said.contains(wanted) {
            let Ok(line) = told.recv_timeout(PATIENCE) else { panic!("no {wanted:?}: {said}") };
            said += &line;
        }
        self.stop();
        said.extend(told);
        said
    }

    fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        let started = Instant::now();
        while self.child.try_wait().expect("a child").is_none() {
            assert!(started.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(address: SocketAddr, request: &[u8], reply_end: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(request).expect("sent");
    let mut reply = Vec::new();
    while !reply.ends_with(reply_end.as_bytes()) {
        let mut bytes = [0; 4096];
        let got = stream.read(&mut bytes).expect("a reply");
        assert_ne!(got, 0, "closed after {}", String::from_utf8_lossy(&reply));
        reply.extend_from_slice(&bytes[..got]);
    }
    String::from_utf8(reply).expect("text")
}

#[test]
fn a_port_of_other_machines_without_a_password_is_told() {
    const TOLD: &str = "every machine that reaches this address may read and write";
    let folder = Folder::new("open-ports");
    let path = folder.write("password", "open sesame\n");
    let file = path.as_str();
    for (options, told) in [
        (&["-l", "0.0.0.0", "--redis-port", "0"][..], 1),
        (&["-l", "127.0.0.1", "--redis-port", "0"], 0),
        // Text clients have to authenticate, too, unless an option lets them in.
        (&["-l", "0.0.0.0", "--redis-port", "0", "--requirepass-file", file], 0),
        (&["-l", "0.0.0.0", "--redis-port", "0", "--requirepass-file", file, "--text-auth", "no"], 1),
        (&["-l", "0.0.0.0", "-p", "0", "--redis-port", FREE, "--requirepass-file", file], 0),
        // Protected mode refuses other machines.
        (&["-l", "0.0.0.0", "-p", "0", "--redis-port", FREE], 0),
        (&["-l", "0.0.0.0", "-p", "0", "--redis-port", FREE, "--protected-mode", "no"], 1),
    ] {
        let server = Started::new(options);
        let said = if told > 0 { server.end_when_said(TOLD) } else { server.end() };
        assert_eq!(said.matches(TOLD).count(), told, "{options:?}: {said}");
    }
}

#[test]
fn what_others_are_shown_by_http_and_whose_passwords_they_see_is_told() {
    const NOBODY: &str = "the page needs a user with a password (--http-auth-file)";
    const CLIENTS: &str = "passwords of clients cross the network in the clear where they are given by HTTP";
    let open = ["-l", "127.0.0.1", "--redis-port", "0", "--http-port", FREE, "--http-host", "0.0.0.0"];
    // The default user needs no password, and another user has one: with that password the page is shown.
    let user = ["--acl-user", "app on >pw ~* &* +@all"];
    for (options, told, other) in [(&user[..0], NOBODY, CLIENTS), (&user[..], CLIENTS, NOBODY)] {
        let said = Started::new(&[&open[..], options].concat()).end_when_said(told);
        assert!(!said.contains(other), "{said}");
    }
}

#[test]
fn an_option_without_effect_has_a_line_in_the_log() {
    let options = ["-l", "127.0.0.1", "--redis-port", "0", "-v", "-o", "ssl_kernel_tls"];
    let said = Started::new(&options).end_when_said("option=-o ssl_kernel_tls");
    assert_eq!(said.matches("accepted without effect: records are sealed here").count(), 1, "{said}");
}

#[test]
fn a_log_that_nobody_reads_stops_nobody() {
    let server = Started::new(&["-l", "127.0.0.1", "--redis-port", "0", "-vv"]);
    for _ in 0..CONNECTIONS {
        assert_eq!(ask(server.port.address(), b"mn\r\n", "\r\n"), "MN\r\n");
    }
    let stats = ask(server.port.address(), b"stats\r\n", "END\r\n");
    let dropped = stats.lines().find_map(|line| line.strip_prefix("STAT log_worker_dropped "));
    let dropped: u64 = dropped.expect("a figure").parse().expect("a number");
    assert!(dropped > 0, "what does not fit is dropped and counted");
    let said = server.end();
    assert!(said.contains("connection opened"), "what fits is there for who reads late: {said}");
}

#[test]
fn the_log_names_no_password_however_much_it_says() {
    let server = Started::new(&["-l", "127.0.0.1", "--redis-port", FREE, "-vvv"]);
    let redis = server.free.address();
    // A password is set, sent in each possible way, sent wrongly, and cut off by the end of its connection.
    ask(redis, b"CONFIG SET requirepass sesame-canary\r\nAUTH wrong-canary\r\n", "disabled.\r\n");
    for words in ["AUTH sesame-canary", "AUTH default sesame-canary", "HELLO 3 AUTH default sesame-canary"] {
        ask(redis, format!("{words}\r\nPING\r\n").as_bytes(), "+PONG\r\n");
    }
    ask(server.port.address(), b"auth sesame-canary\r\n", "\r\n");
    ask(server.port.address(), b"set k 0 0 20\r\nnobody sesame-canary\r\n", "failure\r\n");
    ask(server.port.address(), b"set k 0 0 21\r\ndefault sesame-canary\r\n", "STORED\r\n");
    let mut cut = TcpStream::connect(redis).expect("it listens");
    cut.write_all(b"*2\r\n$4\r\nAUTH\r\n$100\r\nsesame-canary").expect("sent");
    drop(cut);
    let said = server.end_when_said("connection opened");
    assert!(!said.contains("canary"), "{said}");
}

#[test]
fn a_file_of_users_that_cannot_be_read_or_written_is_logged_without_its_passwords() {
    let folder = Folder::new("users");
    let lines = "user default on >sesame-canary ~* &* +@all\nuser app on >canary-too\n";
    let file = folder.write("users", lines);
    let server = Started::new(&["-l", "127.0.0.1", "--redis-port", FREE, "--aclfile", &file, "-vvv"]);
    let redis = server.free.address();
    // A password without the sign in front of it.
    folder.write("users", "user default on sesame-canary\n");
    let refused = ask(redis, b"AUTH sesame-canary\r\nACL LOAD\r\n", "was performed\r\n");
    assert!(refused.starts_with("+OK\r\n-ERR ") && !refused.contains("canary"), "{refused}");
    drop(folder);
    let refused = ask(redis, b"AUTH sesame-canary\r\nACL SAVE\r\n", "for more information\r\n");
    assert!(refused.starts_with("+OK\r\n-ERR ") && !refused.contains("canary"), "{refused}");
    let said = server.end_when_said("ACL SAVE: ");
    assert!(!said.contains("canary"), "{said}");
}

#[test]
fn debug_is_closed_unless_it_was_asked_for() {
    let open = |options: &[&str]| {
        let server = Server::start_program(&Program::LarderResp, options).expect("a server");
        let reply = ask(server.address(), b"DEBUG SLEEP 0\r\n", "\r\n");
        assert!(reply == "+OK\r\n" || reply.starts_with("-ERR DEBUG command not allowed."), "{reply}");
        reply == "+OK\r\n"
    };
    assert!(!open(&[]));
    assert!(open(&["--enable-debug-command", "local"]));
    assert!(open(&["--enable-debug-command", "yes"]));
}

#[test]
fn no_limit_at_all_is_the_limit_that_was_given_at_the_start() {
    for (options, most) in
        [(&["-m", "8"][..], 8u64 << 20), (&["-m", "8", "--memory-limit-max", "16"], 16 << 20)]
    {
        let server = Server::start_program(&Program::LarderResp, options).expect("a server");
        let address = server.address();
        let limit = || ask(address, b"CONFIG GET maxmemory\r\nPING\r\n", "+PONG\r\n");
        assert_eq!(ask(address, b"CONFIG SET maxmemory 0\r\n", "\r\n"), "+OK\r\n");
        assert!(limit().contains(&format!("\r\n{most}\r\n")), "{options:?}: {}", limit());
        let refused = ask(address, format!("CONFIG SET maxmemory {}\r\n", most + 1).as_bytes(), "\r\n");
        assert!(refused.starts_with("-ERR ") && refused.contains("--memory-limit-max"), "{refused}");
        assert!(limit().contains(&format!("\r\n{most}\r\n")), "{options:?}: {}", limit());
    }
}

#[test]
fn nothing_is_counted_right_after_a_flush() {
    let server = Server::start_program(
        &Program::LarderResp,
        &["-t", "2", "-m", "64", "--enable-debug-command", "yes"],
    )
    .expect("a server");
    let address = server.address();
    for (flush, left) in [("FLUSHDB", 3), ("FLUSHALL", 0)] {
        assert_eq!(ask(address, b"DEBUG POPULATE 200000 key\r\n", "\r\n"), "+OK\r\n");
        assert_eq!(ask(address, b"SELECT 1\r\nMSET a 1 b 2 c 3\r\n", "OK\r\n+OK\r\n"), "+OK\r\n+OK\r\n");
        assert_eq!(ask(address, format!("{flush}\r\nDBSIZE\r\n").as_bytes(), "0\r\n"), "+OK\r\n:0\r\n");
        // Connections go to the workers in turn.
        for _ in 0..2 {
            assert_eq!(ask(address, b"DBSIZE\r\n", "\r\n"), ":0\r\n");
            let other = format!("+OK\r\n:{left}\r\n");
            assert_eq!(ask(address, b"SELECT 1\r\nDBSIZE\r\n", &other), other);
        }
    }
}
