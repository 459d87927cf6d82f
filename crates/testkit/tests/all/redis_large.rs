//! Commands on large values take no memory beyond the limit, and a refused command destroys no value.

use larder_testkit::PATIENCE;
use larder_testkit::process::{Program, Server};
use larder_testkit::resp::Resp;
use rustix::net::sockopt;
use std::io::Read;
use std::time::{Duration, Instant};

const MEBIBYTE: usize = 1 << 20;

/// The reply to a command that answers with a long text.
fn text(client: &mut Resp, words: &[&[u8]]) -> Vec<u8> {
    client.send(words);
    client.bulk().expect("a value")
}

fn server() -> Server {
    Server::start_program(&Program::LarderResp, &["-m", "64", "-t", "2"]).expect("larder starts")
}

/// Waits until the process fits its limit: it may take time to return memory that it need not keep.
fn holds(server: &Server, what: &str) {
    let began = Instant::now();
    loop {
        let rss = server.rss_bytes().expect("a figure") as usize;
        let program = server.program_bytes().expect("a figure") as usize;
        let bound = 64 * MEBIBYTE * 21 / 20 + 8 * MEBIBYTE + program;
        if rss <= bound {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{what}: {rss} bytes, and {bound} are allowed");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_large_value_is_changed_beside_itself_and_nowhere_else() {
    let server = server();
    let mut client = Resp::new(&server);
    let mut model = vec![b'x'; 28 * MEBIBYTE];
    assert_eq!(client.ask(&[b"SET", b"big", &model]), "+OK");
    holds(&server, "SET");
    assert_eq!(client.ask(&[b"APPEND", b"big", b"end"]), format!(":{}", model.len() + 3));
    model.extend_from_slice(b"end");
    holds(&server, "APPEND");
    let beyond = 29 * MEBIBYTE;
    assert_eq!(
        client.ask(&[b"SETRANGE", b"big", beyond.to_string().as_bytes(), b"far"]),
        format!(":{}", beyond + 3)
    );
    model.resize(beyond, 0);
    model.extend_from_slice(b"far");
    holds(&server, "SETRANGE");
    let bit = (beyond + 100) * 8;
    assert_eq!(client.ask(&[b"SETBIT", b"big", bit.to_string().as_bytes(), b"1"]), ":0");
    model.resize(beyond + 101, 0);
    model[beyond + 100] = 0x80;
    holds(&server, "SETBIT");
    let ones: u32 = model.iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(client.ask(&[b"BITCOUNT", b"big"]), format!(":{ones}"));
    assert_eq!(client.ask(&[b"BITOP", b"NOT", b"big", b"big"]), format!(":{}", model.len()));
    model.iter_mut().for_each(|byte| *byte = !*byte);
    holds(&server, "BITOP");
    assert_eq!(client.ask(&[b"RENAME", b"big", b"other"]), "+OK");
    holds(&server, "RENAME");
    assert!(text(&mut client, &[b"GET", b"other"]) == model);
    let part = text(&mut client, &[b"GETRANGE", b"other", b"1000001", b"-2"]);
    assert!(part == model[1_000_001..model.len() - 1]);
    holds(&server, "GETRANGE");
    // Two bit fields far apart: the server must not copy the bytes between them.
    let far = (20 * MEBIBYTE * 8).to_string();
    let fields = [b"BITFIELD", &b"other"[..], b"SET", b"u8", b"0", b"1", b"SET", b"u8", far.as_bytes(), b"1"];
    assert_eq!(client.ask(&fields), "*2");
    let was = |at: usize| format!(":{}", model.get(at).copied().unwrap_or(0));
    assert_eq!([client.line(), client.line()], [was(0), was(20 * MEBIBYTE)]);
    model[0] = 1;
    let length = model.len().max(20 * MEBIBYTE + 1);
    model.resize(length, 0);
    model[20 * MEBIBYTE] = 1;
    holds(&server, "BITFIELD");
    // A value that is too long changes nothing.
    assert!(client.ask(&[b"APPEND", b"other", &vec![b'y'; 4 * MEBIBYTE]]).starts_with("-ERR string exceeds"));
    assert!(text(&mut client, &[b"GET", b"other"]) == model);
    holds(&server, "after all");
}

#[test]
fn an_append_for_which_there_is_no_room_leaves_the_value() {
    let server = server();
    let mut client = Resp::new(&server);
    // The largest possible value: with a copy beside it, it is nearly all of the memory.
    let mut model = vec![b'x'; 32 * MEBIBYTE - 8];
    assert_eq!(client.ask(&[b"SET", b"big", &model]), "+OK");
    let reply = client.ask(&[b"APPEND", b"big", b"1234"]);
    if reply.starts_with(':') {
        model.extend_from_slice(b"1234");
    } else {
        assert_eq!(reply, "-OOM command not allowed when used memory > 'maxmemory'.");
    }
    assert!(text(&mut client, &[b"GET", b"big"]) == model);
    assert!(client.ask(&[b"APPEND", b"big", b"123456789"]).starts_with("-ERR string exceeds"));
    assert!(text(&mut client, &[b"GET", b"big"]) == model);
    holds(&server, "APPEND");
}

#[test]
fn unread_dumps_and_ranges_of_large_values_hold_one_value() {
    let server = server();
    let mut client = Resp::new(&server);
    let value = vec![b'v'; 20 * MEBIBYTE];
    assert_eq!(client.ask(&[b"SET", b"big", &value]), "+OK");
    assert_eq!(client.ask(&[b"SET", b"small", &value[..100_000]]), "+OK");
    let payload = text(&mut client, &[b"DUMP", b"small"]);
    assert_eq!(client.ask(&[b"RESTORE", b"again", b"0", &payload]), "+OK");
    assert!(text(&mut client, &[b"GET", b"again"]) == value[..100_000]);
    let mut others = Vec::new();
    for number in 0..24 {
        let mut other = Resp::new(&server);
        match number % 2 {
            0 => other.send(&[b"DUMP", b"big"]),
            _ => other.send(&[b"GETRANGE", b"big", b"1", b"-1"]),
        }
        others.push(other);
        assert_eq!(client.ask(&[b"STRLEN", b"big"]), format!(":{}", value.len()));
        holds(&server, "unread replies");
    }
    // Bytes that were sent in pieces are complete.
    let payload = text(&mut client, &[b"DUMP", b"big"]);
    assert_eq!(payload.len(), 1 + 5 + value.len() + 10);
    assert!(payload[6..6 + value.len()] == value);
    holds(&server, "after all");
}

/// A slow client can read a value that alone is more than connections may hold, until another client needs the memory.
#[test]
fn the_only_reader_of_a_value_beyond_the_share_is_waited_for() {
    let server = server();
    let mut client = Resp::new(&server);
    let value = vec![b'v'; 20 * MEBIBYTE];
    assert_eq!(client.ask(&[b"SET", b"big", &value]), "+OK");
    assert_eq!(client.ask(&[b"SET", b"other", &value[..5 * MEBIBYTE]]), "+OK");
    let mut slow = Resp::new(&server);
    // With a larger buffer the system would take the whole value, and nothing would wait in the server.
    sockopt::set_socket_recv_buffer_size(slow.0.get_ref(), 256 << 10).expect("a socket");
    assert_eq!(slow.ask(&[b"GET", b"big"]), format!("${}", value.len()));
    let mut part = vec![0; value.len() / 2];
    slow.0.read_exact(&mut part).expect("half of it");
    // Unread replies may not stay this long if other clients need their memory.
    std::thread::sleep(Duration::from_secs(1));
    slow.0.read_exact(&mut part).expect("the other half");
    assert!(part == value[value.len() / 2..] && slow.line().is_empty());

    assert_eq!(slow.ask(&[b"GET", b"big"]), format!("${}", value.len()));
    let began = Instant::now();
    let mut served = false;
    while !served {
        assert!(began.elapsed() < PATIENCE, "the reader that stands still keeps the memory");
        let head = client.ask(&[b"GET", b"other"]);
        if !head.starts_with('$') {
            assert!(head.starts_with("-OOM"), "{head}");
            std::thread::sleep(Duration::from_millis(50));
            continue;
        }
        let mut other = vec![0; 5 * MEBIBYTE];
        if client.0.read_exact(&mut other).is_err() {
            // The client was off its core for so long that the server closed it for not reading.
            client = Resp::new(&server);
            continue;
        }
        served = other == value[..5 * MEBIBYTE] && client.line().is_empty();
        assert!(served, "another value");
    }
    let mut rest = Vec::new();
    let read = slow.0.read_to_end(&mut rest);
    assert!(rest.len() < value.len(), "it was closed for the other: {read:?}");
}
