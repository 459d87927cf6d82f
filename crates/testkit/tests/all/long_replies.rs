//! No short request gets a reply that takes more memory than connections may hold.

use larder_testkit::local::{Local, LocalConnection};
use larder_testkit::redis::frame::Frame;
use larder_testkit::talk::encode;

/// A value of this length is copied into replies, not sent from its chunk.
const VALUE_BYTES: usize = 16_000;
const TIMES: usize = 2_000;
/// A quarter of the memory, and a batch of keys more.
const REPLY_BYTES_MAX: usize = (16 << 20) / 4 + 64 * VALUE_BYTES;
const REFUSED: &[u8] = b"-OOM connections hold as much memory as they may";

fn server() -> (Local, LocalConnection) {
    let mut local = Local::new(&["-m", "16"].map(str::to_owned)).expect("a server");
    let mut client = local.resp_connection();
    local.exchange(&mut client, &encode(&[b"SET", b"k", &[b'v'; VALUE_BYTES]]));
    client.forget();
    (local, client)
}

/// Counts the replies of an array that are not refusals; all others must be refusals.
fn answered(frame: &Frame) -> usize {
    let there = frame.inside.iter().filter(|frame| frame.body.is_some()).count();
    let refused = frame.inside.iter().filter(|frame| frame.line == REFUSED).count();
    assert_eq!(there + refused, frame.inside.len());
    there
}

#[test]
fn keys_that_are_asked_for_again_and_again_are_all_answered() {
    let (mut local, mut client) = server();
    let mut words = vec![&b"MGET"[..]];
    words.resize(TIMES + 1, b"k");
    local.exchange(&mut client, &encode(&words));
    // The reply is made piece by piece, as the client reads it.
    let (frame, _) = Frame::read(client.sent()).expect("a reply").expect("all of it");
    assert_eq!((frame.inside.len(), answered(&frame)), (TIMES, TIMES));
}

#[test]
fn transaction_answers_up_to_a_limit_and_writes_all() {
    for read in ["GET", "GETEX"] {
        let (mut local, mut client) = server();
        local.exchange(&mut client, &encode(&[b"MULTI"]));
        for _ in 0..TIMES {
            local.exchange(&mut client, &encode(&[read.as_bytes(), b"k"]));
        }
        local.exchange(&mut client, &encode(&[b"SET", b"k", b"last"]));
        client.forget();
        local.exchange(&mut client, &encode(&[b"EXEC"]));
        assert!(client.sent().len() < REPLY_BYTES_MAX, "{}", client.sent().len());
        let (mut frame, _) = Frame::read(client.sent()).expect("a reply").expect("all of it");
        assert_eq!(frame.inside.pop().map(|last| last.line), Some(b"+OK".to_vec()));
        // A quarter of the memory: refused replies leave room in which later ones are answered.
        assert!((240..=262).contains(&answered(&frame)), "{}", answered(&frame));
        assert!(frame.inside[..230].iter().all(|frame| frame.body.is_some()));
        client.forget();
        local.exchange(&mut client, &encode(&[b"GET", b"k"]));
        assert_eq!(client.sent(), b"$4\r\nlast\r\n");
    }
}

#[test]
fn commands_are_described_as_often_as_they_are_asked_for() {
    let (mut local, mut client) = server();
    for (what, each) in [("INFO", 1), ("DOCS", 2)] {
        let mut words = vec![&b"COMMAND"[..], what.as_bytes()];
        words.resize(8_000, b"client");
        local.exchange(&mut client, &encode(&words));
        let (frame, length) = Frame::read(client.sent()).expect("a reply").expect("all of it");
        assert_eq!((frame.inside.len(), length), ((words.len() - 2) * each, client.sent().len()));
        client.forget();
    }
}
