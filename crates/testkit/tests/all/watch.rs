//! watch over sockets: lines come from every worker, connections are reported, and a watcher that does not read stops nothing.

use larder_testkit::PATIENCE;
use larder_testkit::process::Server;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

struct Client(BufReader<TcpStream>);

impl Client {
    fn of(server: &Server) -> Client {
        let stream = TcpStream::connect(server.address()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_nodelay(true).expect("a socket");
        Client(BufReader::new(stream))
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("it is read");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("a line");
        assert!(line.ends_with('\n'), "closed: {line:?}");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, request: &str) -> String {
        self.send(request.as_bytes());
        self.line()
    }

    /// Reads lines up to one that contains this.
    fn until(&mut self, part: &str) -> Vec<String> {
        let mut lines = vec![self.line()];
        while !lines.last().expect("a line").contains(part) {
            lines.push(self.line());
        }
        lines
    }
}

fn number(line: &str, name: &str) -> u64 {
    let rest = line.split_once(&format!(" {name}=")).unwrap_or_else(|| panic!("{line}")).1;
    rest.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn lines_come_from_every_worker_in_order_and_connections_are_told_of() {
    let server = Server::start(&["-t", "2"]).expect("it starts");
    let mut watcher = Client::of(&server);
    assert_eq!(watcher.ask("watch fetchers mutations connevents\r\n"), "OK");
    let mut clients: Vec<Client> = (0..4).map(|_| Client::of(&server)).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.ask(&format!("set k{n} 0 0 1\r\nx\r\n")), "STORED");
    }
    assert_eq!(clients[0].ask("mg last v\r\n"), "EN");
    let lines = watcher.until("key=last");
    let numbers: Vec<u64> = lines.iter().map(|line| number(line, "gid")).collect();
    assert!(numbers.is_sorted_by(|one, next| one + 1 == *next), "{lines:#?}");
    let opened: Vec<u64> =
        lines.iter().filter(|line| line.contains("type=conn_new")).map(|line| number(line, "cfd")).collect();
    assert_eq!(opened.len(), 4, "{lines:#?}");
    let stored = lines.iter().filter(|line| line.contains("type=item_store"));
    let mut by: Vec<u64> = stored.map(|line| number(line, "cfd")).collect();
    by.sort_unstable();
    by.dedup();
    assert_eq!(by.len(), 4, "each by its own connection: {lines:#?}");
    assert!(by.iter().all(|cfd| opened.contains(cfd)), "{lines:#?}");
    let ours = clients[1].0.get_ref().local_addr().expect("a socket").port();
    assert!(lines.iter().any(|line| line.contains(&format!("rip=127.0.0.1 rport={ours} transport=tcp"))));
    clients[1].send(b"quit\r\n");
    let lines = watcher.until("conn_close");
    assert!(
        lines.last().expect("a line").contains(&format!("rport={ours} transport=tcp reason=normal")),
        "{lines:?}"
    );
    let mut reason = || {
        let lines = watcher.until("conn_close");
        let (_, rest) = lines.last().and_then(|line| line.split_once(" reason=")).expect("a reason");
        rest.split(' ').next().expect("a word").to_owned()
    };
    // Three ends: of the stream, by a line of HTTP, and by a reset, which the system sends for a socket with
    // unread bytes.
    drop(clients.pop());
    assert_eq!(reason(), "normal");
    clients[2].send(b"GET / HTTP/1.1\r\n");
    assert_eq!(reason(), "error");
    clients[0].send(b"version\r\n");
    assert_eq!(clients[0].0.get_ref().peek(&mut [0]).expect("a reply"), 1);
    drop(clients.swap_remove(0));
    assert_eq!(reason(), "error");
    // A watcher that disconnects is closed like any other client.
    let mut asks = Client::of(&server);
    drop(watcher);
    let began = Instant::now();
    loop {
        asks.send(b"stats\r\n");
        if asks.until("END").iter().any(|line| line == "STAT log_watchers 0") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "it has gone");
    }
}

#[test]
fn who_reads_nothing_stops_nobody_and_is_told_what_it_has_lost() {
    let server = Server::start(&["-t", "2", "-o", "watcher_logbuf_size=64"]).expect("it starts");
    let mut watcher = Client::of(&server);
    assert_eq!(watcher.ask("watch fetchers\r\n"), "OK");
    let mut client = Client::of(&server);
    // Far more lines than sockets hold.
    const ROUNDS: usize = 400;
    const EACH: usize = 500;
    for _ in 0..ROUNDS {
        client.send("mg a v\r\n".repeat(EACH).as_bytes());
        let mut replies = vec![0; EACH * b"EN\r\n".len()];
        client.0.read_exact(&mut replies).expect("nobody waits for who watches");
    }
    client.send(b"stats\r\n");
    let stats = client.until("END");
    let of = |name: &str| -> u64 {
        let line = stats.iter().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.and_then(|value| value.parse().ok()).expect("a number")
    };
    let (sent, skipped) = (of("log_watcher_sent"), of("log_watcher_skipped"));
    assert_eq!(sent + skipped, (ROUNDS * EACH) as u64);
    assert!(skipped > 1000, "{skipped}");
    // All waiting lines are read before the next line is made, since that would be dropped, too.
    let (mut lines, mut waited) = (Vec::new(), 0);
    while waited < sent {
        lines.push(watcher.line());
        waited += u64::from(lines.last().is_some_and(|line| line.contains("type=item_get")));
    }
    client.ask("mg last v\r\n");
    lines.extend(watcher.until("key=last"));
    let said: u64 = lines.iter().filter_map(|line| line.strip_prefix("skipped=")?.parse::<u64>().ok()).sum();
    let told = lines.iter().filter(|line| line.contains("type=item_get")).count() as u64;
    assert_eq!((said, told), (skipped, sent + 1));
}

#[test]
fn watching_may_be_forbidden() {
    let server = Server::start(&["-W"]).expect("it starts");
    assert_eq!(Client::of(&server).ask("watch\r\n"), "CLIENT_ERROR watch commands not allowed");
}
