//! Figures and settings for an administrator of a running server, with several workers and real sockets.

use larder_testkit::PATIENCE;
use larder_testkit::process::{Program, Server};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// A client that counts what it sends and receives.
struct Client {
    stream: BufReader<TcpStream>,
    sent: u64,
    received: u64,
}

impl Client {
    fn new(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Client { stream: BufReader::new(stream), sent: 0, received: 0 }
    }

    fn send(&mut self, text: &str) {
        self.stream.get_mut().write_all(text.as_bytes()).expect("sent");
        self.sent += text.len() as u64;
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.received += self.stream.read_line(&mut line).expect("a line") as u64;
        line
    }

    /// Sends a line; returns the reply, of one line or with a length.
    fn say(&mut self, command: &str) -> String {
        self.send(&format!("{command}\r\n"));
        let line = self.line();
        let Some(length) = line.strip_prefix('$').and_then(|length| length.trim().parse::<usize>().ok())
        else {
            return line;
        };
        let mut body = vec![0; length + 2];
        self.stream.read_exact(&mut body).expect("a body");
        self.received += body.len() as u64;
        String::from_utf8_lossy(&body).into_owned()
    }

    /// True if the server has closed the connection.
    fn is_closed(&mut self) -> bool {
        match self.stream.read(&mut [0; 16]) {
            Ok(bytes) => bytes == 0,
            // A reset: bytes arrived after the server had closed the connection.
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }
}

fn server(options: &[&str]) -> Server {
    Server::start_program(&Program::LarderResp, options).expect("a server")
}

#[test]
fn times_of_monitor_never_step_back_whichever_worker_a_command_is_from() {
    const CLIENTS: usize = 6;
    const COMMANDS: usize = 2000;
    // There is memory for all lines at once: a slow monitor would be closed without it.
    let server = server(&["-t", "3", "-m", "1024"]);
    let address = server.address();
    let mut monitor = Client::new(address);
    assert_eq!(monitor.say("MONITOR"), "+OK\r\n");
    let senders: Vec<_> = (0..CLIENTS)
        .map(|nth| {
            thread::spawn(move || {
                let mut client = Client::new(address);
                // Several commands at once, or one by one.
                let pipeline = if nth % 2 == 0 { 1 } else { 20 };
                for _ in 0..COMMANDS / pipeline {
                    client.send(&format!("SET key:{nth} 1\r\n").repeat(pipeline));
                    (0..pipeline).for_each(|_| assert_eq!(client.line(), "+OK\r\n"));
                }
            })
        })
        .collect();
    let mut last = 0.0;
    for nth in 0..CLIENTS * COMMANDS {
        let line = monitor.line();
        let time = line.strip_prefix('+').and_then(|line| line.split(' ').next());
        let time: f64 = time.and_then(|time| time.parse().ok()).unwrap_or_else(|| panic!("{line}"));
        assert!(time >= last, "line {nth}: {time} behind {last}");
        last = time;
    }
    senders.into_iter().for_each(|sender| sender.join().expect("its replies"));
}

#[test]
fn maxclients_is_in_force_as_soon_as_it_is_set() {
    let server = server(&["-t", "2", "-c", "8"]);
    let mut admin = Client::new(server.address());
    let mut others: Vec<Client> = Vec::new();
    // Opens connections until one is refused; returns how many were accepted, the administrator's among them.
    let fill = |others: &mut Vec<Client>| loop {
        assert!(others.len() < 100, "nobody is refused");
        let mut client = Client::new(server.address());
        match client.say("PING").as_str() {
            "+PONG\r\n" => others.push(client),
            refused => {
                assert_eq!(refused, "-ERR max number of clients reached\r\n");
                assert!(client.is_closed());
                return others.len() + 1;
            }
        }
    };
    assert_eq!(fill(&mut others), 8);
    assert_eq!(admin.say("CONFIG SET maxclients 20"), "+OK\r\n");
    assert_eq!(fill(&mut others), 20);
    assert_eq!(admin.say("CONFIG SET maxclients 5"), "+OK\r\n");
    // Present connections stay, and no new one is accepted until there are fewer.
    assert_eq!(fill(&mut others), 20);
    assert!(others.iter_mut().all(|client| client.say("PING") == "+PONG\r\n"));
    others.truncate(3);
    let began = Instant::now();
    while admin.say("INFO clients").lines().all(|line| line != "connected_clients:4") {
        assert!(began.elapsed() < PATIENCE, "{}", admin.say("INFO clients"));
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(fill(&mut others), 5);
}

#[test]
fn client_list_tells_each_byte_of_a_client_and_each_command() {
    let server = server(&["-t", "2"]);
    let (mut client, mut admin) = (Client::new(server.address()), Client::new(server.address()));
    let id = client.say("CLIENT ID").trim_start_matches(':').trim().to_owned();
    let mut commands = 1;
    // Values around and beyond the length up to which values are copied, and values that come in several
    // receives.
    for bytes in [0, 1, 100, 16_000, 17_000, 300_000] {
        let value = "v".repeat(bytes);
        client.send(&format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${bytes}\r\n{value}\r\n"));
        assert_eq!(client.line(), "+OK\r\n");
        assert_eq!(client.say("GET k").len(), bytes + 2);
        client.send(&"*2\r\n$6\r\nSTRLEN\r\n$1\r\nk\r\n".repeat(50));
        (0..50).for_each(|_| assert_eq!(client.line(), format!(":{bytes}\r\n")));
        commands += 52;
        let wanted =
            format!(" tot-net-in={} tot-net-out={} tot-cmds={commands}\n", client.sent, client.received);
        let began = Instant::now();
        // A worker counts sent bytes after the send.
        loop {
            let told = admin.say(&format!("CLIENT LIST ID {id}"));
            if told.contains(&wanted) {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "not{wanted}but {told}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
