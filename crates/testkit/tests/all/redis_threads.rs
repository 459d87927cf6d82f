//! RESP clients on several threads of a real server: exact counts under WATCH and in collections, order of messages,
//! slow subscribers.

use larder_testkit::PATIENCE;
use larder_testkit::process::Server;
use larder_testkit::resp::Resp;
use std::collections::BTreeMap;
use std::io::Read;
use std::time::Instant;

fn server() -> Server {
    Server::start(&["-m", "64", "-t", "2"]).expect("larder starts")
}

#[test]
fn counter_raised_under_watch_by_many_counts_exactly() {
    let server = server();
    const EACH: usize = 500;
    let clients = 6;
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = Resp::new(&server);
                let mut raised = 0;
                while raised < EACH {
                    assert_eq!(client.ask(&[b"WATCH", b"counter"]), "+OK");
                    client.send(&[b"GET", b"counter"]);
                    let seen: u64 = client.text().map_or(0, |value| value.parse().expect("a number"));
                    let next = (seen + 1).to_string();
                    client.send(&[b"MULTI"]);
                    client.send(&[b"SET", b"counter", next.as_bytes()]);
                    client.send(&[b"INCR", b"twin"]);
                    client.send(&[b"EXEC"]);
                    assert_eq!([client.line(), client.line(), client.line()], ["+OK", "+QUEUED", "+QUEUED"]);
                    match client.line().as_str() {
                        "*-1" => {}
                        "*2" => {
                            assert_eq!(client.line(), "+OK");
                            assert_eq!(client.line(), format!(":{next}"), "both move together");
                            raised += 1;
                        }
                        other => panic!("{other}"),
                    }
                }
            });
        }
    });
    let mut client = Resp::new(&server);
    client.send(&[b"GET", b"counter"]);
    assert_eq!(client.text(), Some((clients * EACH).to_string()));
}

/// The sums that a client has added, by number: to fields, and to members.
type Added = [BTreeMap<usize, u64>; 2];

/// Adds to fields and scores, and moves members between two sets, `times` times.
fn write_collections(server: &Server, times: usize, elements: usize, mut seed: u64) -> Added {
    let mut client = Resp::new(server);
    let mut added = Added::default();
    // The last value of each counter that this client has read: counters never fall.
    let mut told = Added::default();
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 20) as usize % below
    };
    for _ in 0..times {
        // All clients write a few elements at the same time.
        let element = if random(2) == 0 { random(3) } else { random(elements) };
        let (name, by) = (format!("e{element:03}"), 1 + random(3));
        let (name, text) = (name.as_bytes(), by.to_string());
        match random(5) {
            which @ 0..4 => {
                let board = which % 2;
                let number = if board == 1 {
                    client.send(&[b"ZINCRBY", b"board", text.as_bytes(), name]);
                    client.text().expect("a score")
                } else {
                    client.ask(&[b"HINCRBY", b"counts", name, text.as_bytes()])[1..].to_owned()
                };
                let number: u64 = number.parse().expect("a number");
                *added[board].entry(element).or_default() += by as u64;
                let last = told[board].insert(element, number).unwrap_or(0);
                assert!(number >= last + by as u64, "{number} behind {last}");
            }
            _ => {
                let (from, to): (&[u8], &[u8]) =
                    if random(2) == 0 { (b"left", b"right") } else { (b"right", b"left") };
                assert!([":0", ":1"].contains(&client.ask(&[b"SMOVE", from, to, name]).as_str()));
                assert_eq!(client.ask(&[b"SINTERCARD", b"2", b"left", b"right"]), ":0");
                client.send(&[b"MULTI"]);
                client.send(&[b"SCARD", b"left"]);
                client.send(&[b"SCARD", b"right"]);
                client.send(&[b"EXEC"]);
                let lines = [(); 6].map(|()| client.line());
                assert_eq!(lines[..4], ["+OK", "+QUEUED", "+QUEUED", "*2"]);
                let cards = [&lines[4], &lines[5]].map(|line| line[1..].parse::<usize>().expect("a number"));
                assert_eq!(cards[0] + cards[1], elements, "each is on one side at every moment");
            }
        }
    }
    added
}

#[test]
fn counters_in_a_hash_and_a_sorted_set_and_members_of_two_sets_add_up() {
    let server = server();
    const EACH: usize = 3000;
    const ELEMENTS: usize = 300;
    let mut client = Resp::new(&server);
    let names: Vec<String> = (0..ELEMENTS).map(|element| format!("e{element:03}")).collect();
    let mut fill: Vec<&[u8]> = vec![b"SADD", b"left"];
    fill.extend(names.iter().map(|name| name.as_bytes()));
    assert_eq!(client.ask(&fill), format!(":{ELEMENTS}"));
    let server = &server;
    let added: Vec<Added> = std::thread::scope(|scope| {
        let writes = |n: u64| move || write_collections(server, EACH, ELEMENTS, 77 + 1000 * n);
        let clients: Vec<_> = (0..6).map(|n| scope.spawn(writes(n))).collect();
        clients.into_iter().map(|client| client.join().expect("it has written all")).collect()
    });
    let mut sums = Added::default();
    for (which, sums) in sums.iter_mut().enumerate() {
        for (element, by) in added.iter().flat_map(|added| &added[which]) {
            *sums.entry(*element).or_default() += by;
        }
        // With this many elements both collections are trees with several leaves.
        assert!(sums.len() > ELEMENTS * 9 / 10, "{} of {ELEMENTS} elements were written", sums.len());
    }
    for (element, sum) in &sums[0] {
        client.send(&[b"HGET", b"counts", names[*element].as_bytes()]);
        assert_eq!(client.text(), Some(sum.to_string()), "field {element}");
    }
    // In the order of scores the sorted set has the same scores as by name.
    client.send(&[b"ZRANGE", b"board", b"0", b"-1", b"WITHSCORES"]);
    assert_eq!(client.line(), format!("*{}", 2 * sums[1].len()));
    let mut board: Vec<(u64, String)> = Vec::new();
    for _ in 0..sums[1].len() {
        let (member, score) = (client.text().expect("a member"), client.text().expect("a score"));
        board.push((score.parse().expect("a number"), member));
    }
    let mut expected: Vec<(u64, String)> =
        sums[1].iter().map(|(element, sum)| (*sum, names[*element].clone())).collect();
    expected.sort_unstable();
    assert_eq!(board, expected);
    for (rank, (score, member)) in board.iter().enumerate() {
        client.send(&[b"ZSCORE", b"board", member.as_bytes()]);
        assert_eq!(client.text(), Some(score.to_string()), "{member}");
        assert_eq!(client.ask(&[b"ZRANK", b"board", member.as_bytes()]), format!(":{rank}"));
    }
    assert_eq!(client.ask(&[b"SUNIONSTORE", b"all", b"left", b"right"]), format!(":{ELEMENTS}"));
}

#[test]
fn every_subscriber_hears_every_publisher_in_order() {
    let server = server();
    const EACH: usize = 3000;
    let mut listeners: Vec<Resp> = (0..4).map(|_| Resp::new(&server)).collect();
    for client in &mut listeners {
        assert_eq!(client.ask(&[b"SUBSCRIBE", b"news"]), "*3");
        assert_eq!([client.line(), client.line(), client.line(), client.line()].last().unwrap(), "news");
        assert_eq!(client.line(), ":1");
    }
    std::thread::scope(|scope| {
        for publisher in 0..3 {
            let server = &server;
            scope.spawn(move || {
                let mut client = Resp::new(server);
                for n in 0..EACH {
                    client.send(&[b"PUBLISH", b"news", format!("{publisher} {n}").as_bytes()]);
                }
                (0..EACH).for_each(|_| assert_eq!(client.line(), ":4"));
            });
        }
        for client in &mut listeners {
            scope.spawn(move || {
                let mut next = [0; 3];
                for _ in 0..3 * EACH {
                    let lines: Vec<String> = (0..7).map(|_| client.line()).collect();
                    let (publisher, n) = lines[6].split_once(' ').expect("two numbers");
                    let publisher: usize = publisher.parse().expect("a number");
                    assert_eq!(n, next[publisher].to_string());
                    next[publisher] += 1;
                }
            });
        }
    });
}

#[test]
fn subscriber_that_does_not_read_is_cut_and_others_are_not() {
    let server = server();
    let mut slow = Resp::new(&server);
    slow.ask(&[b"SUBSCRIBE", b"news"]);
    let mut publisher = Resp::new(&server);
    // One client of each worker: by the time it is answered, the worker has seen the messages for the slow client.
    let mut others = [(); 2].map(|()| Resp::new(&server));
    let text = vec![b'x'; 60_000];
    let start = Instant::now();
    let mut sent = 0u64;
    loop {
        let told = publisher.ask(&[b"PUBLISH", b"news", &text]);
        sent += text.len() as u64;
        if told == ":0" {
            break;
        }
        others.iter_mut().for_each(|other| assert_eq!(other.ask(&[b"PING"]), "+PONG"));
        assert!(start.elapsed() < PATIENCE, "{sent} bytes, and it still listens");
    }
    assert!(sent < 64 << 20, "{sent} bytes waited for one of 64 MiB");
    assert_eq!(publisher.ask(&[b"PING"]), "+PONG");
    // The client receives the messages that were being sent, and then the end.
    let mut rest = Vec::new();
    let end = slow.0.read_to_end(&mut rest);
    assert!(end.is_ok() || end.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
}
