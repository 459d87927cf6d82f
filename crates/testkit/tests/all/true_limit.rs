//! `-m` bounds the process: items, index, buffers, threads, whatever clients do.

use larder_testkit::PATIENCE;
use larder_testkit::bounded::{Bounded, LARGE, MEBIBYTE, number, random};
use memchr::memmem;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A thousand clients ask for several large values each and read nothing.
fn slow_readers(megabytes: u64, options: &[&str]) {
    const READERS: usize = 1000;
    let bounded = Bounded::start(megabytes, options);
    let mut client = bounded.client();
    bounded.fill(&mut client, "k", (0..READERS).map(|_| LARGE), "values for slow readers");
    let mut readers: Vec<TcpStream> = Vec::new();
    for number in 0..READERS {
        let mut stream = bounded.server.connect().expect("a connection");
        // Some of the keys are gone. The replies are more than sockets take; only their first megabytes are needed.
        stream.write_all(format!("get k{number}\r\n").repeat(10).as_bytes()).expect("sent");
        readers.push(stream);
        if number % 50 == 0 {
            bounded.stays_within("slow readers");
        }
    }
    let mut refused = 0;
    let started = Instant::now();
    while number(&mut client, "response_obj_oom") == 0 {
        assert!(started.elapsed() < PATIENCE, "nobody is closed");
        std::thread::sleep(Duration::from_millis(20));
        // The reply to this may find no memory.
        client.store("set", "wanted", &vec![b'w'; LARGE], None);
        client.line("get wanted");
        client.flush().expect("sent");
        assert_eq!(client.reply().expect("a reply"), "STORED");
        if client.reply().expect("a reply").starts_with("VALUE") {
            client.skip(LARGE + 7).expect("a value");
        } else {
            refused += 1;
        }
    }
    let held = number(&mut client, "response_obj_bytes");
    assert!(held <= bounded.memory_bytes / 4 + MEBIBYTE, "{held} bytes are held");
    bounded.stays_within("slow readers");
    // Sets of other clients go on, large and small.
    bounded.fill(&mut client, "s", random(5000).take(20_000), "sets beside slow readers");
    bounded.fill(&mut client, "l", (0..200).map(|_| LARGE), "large sets beside slow readers");
    // A reader whose reply finds no memory gets SERVER_ERROR, perhaps behind other replies.
    let started = Instant::now();
    while refused == 0 && started.elapsed() < PATIENCE {
        for stream in &mut readers {
            stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
            let mut replies = Vec::new();
            // The read ends with the bytes that have come in time, or at the close. The rest comes in the next round.
            let _ = stream.read_to_end(&mut replies);
            refused += memmem::find_iter(&replies, "SERVER_ERROR").count();
            if refused > 0 {
                break;
            }
        }
    }
    assert!(refused > 0, "nobody was refused");
    drop(readers);
    let started = Instant::now();
    while number(&mut client, "response_obj_bytes") > 0 {
        assert!(started.elapsed() < PATIENCE, "memory of replies is not given back");
        std::thread::sleep(Duration::from_millis(20));
    }
    bounded.stays_within("after slow readers");
}

#[test]
#[ignore = "memory: what a process holds in real time"]
fn slow_readers_of_large_values_hold_a_quarter_of_64_megabytes() {
    slow_readers(64, &["-t", "2"]);
}

#[test]
#[ignore = "memory: what a process holds in real time"]
fn slow_readers_of_large_values_hold_a_quarter_of_64_megabytes_for_16_threads() {
    slow_readers(64, &["-t", "16"]);
}

#[test]
#[ignore = "memory: what a process holds in real time"]
fn slow_readers_of_large_values_hold_a_quarter_of_a_gigabyte() {
    slow_readers(1024, &["-t", "2"]);
}

#[test]
#[ignore = "memory: what a process holds in real time"]
fn slow_readers_of_small_values_are_bounded_too() {
    let bounded = Bounded::start(64, &["-t", "2"]);
    let mut client = bounded.client();
    bounded.fill(&mut client, "k", random(16_000).take(10_000), "values");
    let items = number(&mut client, "curr_items");
    let mut readers = Vec::new();
    for reader in 0..1000 {
        let mut stream = bounded.server.connect().expect("a connection");
        let gets: String = random(10_000).take(1000).map(|key| format!("get k{key}\r\n")).collect();
        stream.write_all(gets.as_bytes()).expect("sent");
        readers.push(stream);
        bounded.stays_within("slow readers of small values");
        if reader % 10 == 0 {
            bounded.fill(&mut client, "s", random(16_000).take(10), "sets beside slow readers");
        }
    }
    let started = Instant::now();
    while number(&mut client, "response_obj_bytes") > bounded.memory_bytes / 4 {
        assert!(started.elapsed() < PATIENCE, "replies hold more than their share");
        std::thread::sleep(Duration::from_millis(20));
    }
    // Items were evicted for the memory that replies may hold, not for more.
    let left = number(&mut client, "curr_items");
    assert!(left > items / 3, "{left} of {items} items are left");
    drop(readers);
    let started = Instant::now();
    while number(&mut client, "response_obj_bytes") > 0 {
        assert!(started.elapsed() < PATIENCE, "memory of replies is not given back");
        std::thread::sleep(Duration::from_millis(20));
    }
    bounded.fill(&mut client, "s", random(16_000).take(10_000), "after slow readers");
}

fn changing_sizes(megabytes: u64, options: &[&str]) {
    let bounded = Bounded::start(megabytes, options);
    let mut client = bounded.client();
    let large = LARGE.min(megabytes as usize * MEBIBYTE as usize / 8);
    let items = megabytes as usize * 20_000;
    bounded.fill(&mut client, "a", (0..items).map(|_| 30), "index growth");
    bounded.fill(&mut client, "a", random(2000).take(items), "overwrites of random sizes");
    for number in (0..items).step_by(2) {
        client.line(&format!("delete a{number} noreply"));
        if client.pending.len() > 100_000 {
            client.flush().expect("sent");
        }
    }
    assert_eq!(client.ask("mn").expect("a reply"), "MN");
    bounded.stays_within("half deleted");
    for (name, bytes, count) in [
        ("100", 100, items / 2),
        ("1000", 1000, items / 10),
        ("100 KB", 100_000, items / 500),
        ("10", 10, items),
    ] {
        bounded.fill(&mut client, "b", (0..count).map(|_| bytes.min(large)), &format!("shift to {name}"));
    }
    bounded.fill(&mut client, "c", (0..4 * megabytes as usize).map(|_| large), "shift to the largest");
    bounded.fill(&mut client, "d", random(100).take(items), "and back");
}

#[test]
#[ignore = "memory: what a process holds in real time"]
fn changing_sizes_stay_within_64_megabytes() {
    changing_sizes(64, &["-t", "2"]);
}

#[test]
#[ignore = "memory: what a process holds in real time"]
fn changing_sizes_stay_within_64_megabytes_for_16_threads() {
    changing_sizes(64, &["-t", "16"]);
}

#[test]
#[ignore = "memory: what a process holds in real time"]
fn changing_sizes_stay_within_3_megabytes() {
    changing_sizes(3, &["-t", "2"]);
}

#[test]
#[ignore = "memory: what a process holds in real time"]
fn the_limit_falls_and_rises_while_it_runs() {
    let mut bounded = Bounded::start(64, &["-t", "2", "--memory-limit-max", "128"]);
    let mut client = bounded.client();
    let refused = client.ask("cache_memlimit 129").expect("a reply");
    assert_eq!(refused, "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust");
    bounded.fill(&mut client, "k", random(2000).take(80_000), "full");
    let items = number(&mut client, "curr_items");
    for (megabytes, most) in [(16, 16), (128, 128), (32, 32)] {
        assert_eq!(client.ask(&format!("cache_memlimit {megabytes}")).expect("a reply"), "OK");
        assert_eq!(number(&mut client, "limit_maxbytes"), megabytes * MEBIBYTE);
        bounded.memory_bytes = most * MEBIBYTE;
        let bound = bounded.memory_bytes + bounded.memory_bytes / 20 + 8 * MEBIBYTE;
        let started = Instant::now();
        while bounded.server.rss_bytes().expect("a figure") > bound {
            assert!(started.elapsed() < PATIENCE, "pages are not given back at {megabytes} MB");
            std::thread::sleep(Duration::from_millis(20));
        }
        bounded.fill(&mut client, "k", random(2000).take(150_000), "after the limit changed");
        let now = number(&mut client, "curr_items");
        assert_eq!(now > items, megabytes > 64, "{now} items at {megabytes} MB");
    }
}
