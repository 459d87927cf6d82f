//! Blocking commands, on four threads of a real server: no waiting client is missed, and each element goes to one client,
//! whichever clients are killed or disconnect meanwhile.

use larder_testkit::PATIENCE;
use larder_testkit::process::Server;
use larder_testkit::talk::encode;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

fn server() -> Server {
    Server::start(&["-m", "64", "-t", "4"]).expect("larder starts")
}

struct Client {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Client {
    fn new(server: &Server) -> Client {
        let stream = server.connect().expect("a connection");
        let reader = BufReader::new(stream.try_clone().expect("a descriptor"));
        Client { stream, reader }
    }

    /// Sends a request; false if the connection has ended.
    fn send(&mut self, words: &[&[u8]]) -> bool {
        self.stream.write_all(&encode(words)).is_ok()
    }

    /// Reads a line; none at the end of the connection.
    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) if line.ends_with("\r\n") => Some(line.trim_end().to_owned()),
            Ok(_) => panic!("half a line: {line:?}"),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no reply: {error}"),
        }
    }

    fn ask(&mut self, words: &[&[u8]]) -> String {
        assert!(self.send(words));
        self.line().expect("a reply")
    }

    fn number(&mut self, words: &[&[u8]]) -> u64 {
        self.ask(words)[1..].parse().expect("a number")
    }

    /// The reply to BLPOP: the element, or none after a timeout; none at all if the connection has ended.
    fn popped(&mut self) -> Option<Option<String>> {
        match self.line()?.as_str() {
            "*-1" => Some(None),
            "*2" => {
                let words: Vec<String> = (0..4).map_while(|_| self.line()).collect();
                assert_eq!(words.len(), 4, "a reply comes whole");
                Some(words.into_iter().nth(3))
            }
            other => panic!("{other}"),
        }
    }

    fn list(&mut self, key: &str) -> Vec<String> {
        let count = self.number(&[b"LRANGE", key.as_bytes(), b"0", b"-1"]);
        (0..count)
            .map(|_| {
                self.line();
                self.line().expect("an element")
            })
            .collect()
    }
}

/// Waits until this many clients are blocked.
fn until_blocked(client: &mut Client, count: usize) {
    let began = Instant::now();
    loop {
        let head = client.ask(&[b"INFO", b"clients"]);
        let mut text = vec![0; head[1..].parse::<usize>().expect("a length") + 2];
        client.reader.read_exact(&mut text).expect("INFO");
        if String::from_utf8_lossy(&text).contains(&format!("\r\nblocked_clients:{count}\r\n")) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{count} are to wait");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn nobody_who_waits_is_missed() {
    const PUSHERS: usize = 4;
    const POPPERS: usize = 12;
    const EACH: usize = 3_000;
    let server = server();
    let (seen, popped) = (Mutex::new(BTreeMap::new()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for popper in 0..POPPERS {
            let (server, seen, popped) = (&server, &seen, &popped);
            scope.spawn(move || {
                let mut client = Client::new(server);
                let mut mine = Vec::new();
                // Each client waits for all keys, but begins with another one.
                let keys: Vec<String> = (0..4).map(|n| format!("q{}", (n + popper) % 4)).collect();
                loop {
                    let mut words: Vec<&[u8]> = vec![b"BLPOP"];
                    words.extend(keys.iter().map(|key| key.as_bytes()));
                    // Half of the requests wait without a timeout, half with a long one: its timer must leave
                    // nothing behind.
                    words.push(if mine.len().is_multiple_of(2) { b"0" } else { b"1000" });
                    assert!(client.send(&words));
                    let element = client.popped().expect("it is not closed").expect("its time has not come");
                    if element == "end" {
                        break;
                    }
                    mine.push(element);
                    popped.fetch_add(1, Relaxed);
                }
                let mut seen = seen.lock().expect("no holder panics");
                mine.into_iter().for_each(|element| *seen.entry(element).or_insert(0) += 1);
            });
        }
        let pushers: Vec<_> = (0..PUSHERS)
            .map(|pusher| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = Client::new(server);
                    let mut seed = 77 + pusher as u64;
                    let mut n = 0;
                    while n < EACH {
                        let key = format!("q{}", random(&mut seed) % 4);
                        let count = (1 + random(&mut seed) as usize % 3).min(EACH - n);
                        let elements: Vec<String> = (n..n + count).map(|n| format!("{pusher}-{n}")).collect();
                        let verb: &[u8] = if seed.is_multiple_of(2) { b"RPUSH" } else { b"LPUSH" };
                        let in_exec = seed.is_multiple_of(5);
                        let mut words: Vec<&[u8]> = vec![verb, key.as_bytes()];
                        words.extend(elements.iter().map(|element| element.as_bytes()));
                        if in_exec {
                            assert_eq!(client.ask(&[b"MULTI"]), "+OK");
                            assert_eq!(client.ask(&words), "+QUEUED");
                            assert_eq!(client.ask(&[b"EXEC"]), "*1");
                            client.line();
                        } else {
                            client.number(&words);
                        }
                        n += count;
                    }
                })
            })
            .collect();
        pushers.into_iter().for_each(|pusher| pusher.join().expect("it pushed all"));
        // The end marks are pushed when everything else has been popped: no client takes one before.
        let began = Instant::now();
        while popped.load(Relaxed) < PUSHERS * EACH && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
        let in_time = popped.load(Relaxed) == PUSHERS * EACH;
        let mut client = Client::new(&server);
        for _ in 0..POPPERS {
            client.number(&[b"RPUSH", b"q0", b"end"]);
        }
        assert!(in_time, "somebody was missed");
    });
    let seen = seen.into_inner().expect("no holder panicked");
    assert_eq!(seen.len(), PUSHERS * EACH);
    assert!(seen.values().all(|&times| times == 1), "each element goes to one");
    let mut client = Client::new(&server);
    assert_eq!(client.ask(&[b"DBSIZE"]), ":0");
    until_blocked(&mut client, 0);
}

#[test]
fn what_was_pushed_was_popped_once_or_is_left_whoever_goes_meanwhile() {
    const PUSHERS: usize = 3;
    const POPPERS: usize = 8;
    const EACH: usize = 4_000;
    let server = server();
    let seen = Mutex::new(BTreeMap::<String, usize>::new());
    let (stop, left, ids) = (AtomicBool::new(false), AtomicUsize::new(PUSHERS), Mutex::new(Vec::new()));
    let (killed, gone, taken) = (AtomicU64::new(0), AtomicU64::new(0), AtomicUsize::new(0));
    let (killed, gone, taken) = (&killed, &gone, &taken);
    std::thread::scope(|scope| {
        for popper in 0..POPPERS {
            let (server, seen, stop, ids) = (&server, &seen, &stop, &ids);
            scope.spawn(move || {
                let mut seed = 1_000 + popper as u64;
                let mut mine = Vec::new();
                'connections: while !stop.load(Relaxed) {
                    let mut client = Client::new(server);
                    let id = client.number(&[b"CLIENT", b"ID"]);
                    ids.lock().expect("no holder panics").push(id);
                    loop {
                        let key = format!("q{}", random(&mut seed) % 3);
                        let other = format!("q{}", random(&mut seed) % 3);
                        if !client.send(&[b"BLPOP", key.as_bytes(), other.as_bytes(), b"0.02"]) {
                            continue 'connections;
                        }
                        // Some clients disconnect while they wait. Elements that were sent to them before
                        // come in front of the end.
                        let goes = random(&mut seed).is_multiple_of(7);
                        if goes {
                            std::thread::sleep(Duration::from_micros(random(&mut seed) % 400));
                            gone.fetch_add(1, Relaxed);
                            let _ = client.stream.shutdown(Shutdown::Write);
                        }
                        match client.popped() {
                            Some(Some(element)) => {
                                mine.push(element);
                                taken.fetch_add(1, Relaxed);
                            }
                            Some(None) => {}
                            None => continue 'connections,
                        }
                        if goes {
                            assert!(client.line().is_none());
                            continue 'connections;
                        }
                        if stop.load(Relaxed) {
                            break;
                        }
                    }
                }
                let mut seen = seen.lock().expect("no holder panics");
                mine.into_iter().for_each(|element| *seen.entry(element).or_insert(0) += 1);
            });
        }
        // Elements are moved from list to list.
        for mover in 0..3 {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || {
                let mut client = Client::new(server);
                let (from, to) = (format!("q{mover}"), format!("q{}", (mover + 1) % 3));
                while !stop.load(Relaxed) {
                    let words: [&[u8]; 6] =
                        [b"BLMOVE", from.as_bytes(), to.as_bytes(), b"RIGHT", b"LEFT", b"0.01"];
                    if client.ask(&words) != "*-1" {
                        client.line();
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
            });
        }
        {
            let (server, stop, ids) = (&server, &stop, &ids);
            scope.spawn(move || {
                let mut client = Client::new(server);
                let mut seed = 5;
                while !stop.load(Relaxed) {
                    let id = {
                        let mut ids = ids.lock().expect("no holder panics");
                        if ids.is_empty() { None } else { ids.pop() }
                    };
                    if let Some(id) = id {
                        let id = id.to_string();
                        let how: &[&[u8]] = match random(&mut seed) % 4 {
                            0 => &[b"CLIENT", b"UNBLOCK", id.as_bytes()],
                            _ => &[b"CLIENT", b"KILL", b"ID", id.as_bytes()],
                        };
                        killed.fetch_add(client.number(how), Relaxed);
                    }
                    std::thread::sleep(Duration::from_micros(random(&mut seed) % 3_000));
                }
            });
        }
        for pusher in 0..PUSHERS {
            let (server, stop, left) = (&server, &stop, &left);
            scope.spawn(move || {
                let mut client = Client::new(server);
                let mut seed = 99 + pusher as u64;
                for n in 0..EACH {
                    let key = format!("q{}", random(&mut seed) % 3);
                    let element = format!("{pusher}-{n}");
                    client.number(&[b"RPUSH", key.as_bytes(), element.as_bytes()]);
                    if seed.is_multiple_of(4) {
                        std::thread::sleep(Duration::from_micros(seed % 300));
                    }
                }
                if left.fetch_sub(1, Relaxed) == 1 {
                    // On a machine with few cores some clients have not had their turn by now.
                    let enough = || {
                        let most_is_taken = taken.load(Relaxed) > PUSHERS * EACH / 2;
                        killed.load(Relaxed) > 10 && gone.load(Relaxed) > 10 && most_is_taken
                    };
                    let began = Instant::now();
                    std::thread::sleep(Duration::from_millis(100));
                    while !enough() && began.elapsed() < PATIENCE {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    stop.store(true, Relaxed);
                }
            });
        }
    });
    let mut client = Client::new(&server);
    until_blocked(&mut client, 0);
    let seen = seen.into_inner().expect("no holder panicked");
    let popped = seen.len();
    let all: Vec<String> =
        (0..PUSHERS).flat_map(|pusher| (0..EACH).map(move |n| format!("{pusher}-{n}"))).collect();
    // An element that was popped for a client that disconnected comes back a moment later.
    let began = Instant::now();
    loop {
        let mut seen = seen.clone();
        for key in ["q0", "q1", "q2"] {
            client.list(key).into_iter().for_each(|element| *seen.entry(element).or_insert(0) += 1);
        }
        let twice: Vec<_> = seen.iter().filter(|(_, times)| **times != 1).take(10).collect();
        assert!(twice.is_empty(), "in two places: {twice:?}");
        let lost: Vec<_> = all.iter().filter(|element| !seen.contains_key(*element)).take(10).collect();
        if lost.is_empty() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "of {popped} popped: {lost:?} …");
        std::thread::sleep(Duration::from_millis(1));
    }
    let (killed, gone) = (killed.load(Relaxed), gone.load(Relaxed));
    assert!(killed > 10 && gone > 10 && popped > PUSHERS * EACH / 2, "{killed} {gone} {popped}");
}

/// A client that waits is given an element of a list of any length, whichever thread serves it.
#[test]
fn an_element_of_any_length_reaches_a_client_that_waits() {
    let server = server();
    let mut me = Client::new(&server);
    let waits: [&[&[u8]]; 4] = [
        &[b"BLMOVE", b"q", b"w", b"LEFT", b"RIGHT", b"0"],
        &[b"BRPOPLPUSH", b"q", b"w", b"0"],
        &[b"BLPOP", b"q", b"0"],
        &[b"BRPOP", b"q", b"0"],
    ];
    for bytes in [100_000, 300_000, 4 << 20] {
        let job = vec![b'j'; bytes];
        for waits in waits.iter().cycle().take(8) {
            let mut waiter = Client::new(&server);
            assert!(waiter.send(waits));
            until_blocked(&mut me, 1);
            assert_eq!(me.ask(&[b"RPUSH", b"q", &job]), ":1");
            if waits.len() == 3 {
                assert_eq!([(); 3].map(|()| waiter.line().expect("a reply")), ["*2", "$1", "q"]);
            }
            assert_eq!(waiter.line().expect("a reply"), format!("${bytes}"));
            assert!(waiter.line().expect("an element").as_bytes() == job);
            let moved = waits.contains(&&b"w"[..]);
            assert_eq!(me.number(&[b"DEL", b"q", b"w"]), u64::from(moved));
        }
    }
}
