//! Any bytes as the body of a payload, sealed with a checksum that is right: RESTORE takes them for a value, or says what
//! is wrong and keeps nothing. What it takes is dumped, and restored of that as the same; and in steps as at once.
#![no_main]

use larder_testkit::local::{Local, LocalConnection};
use larder_testkit::redis::forms::sealed;
use larder_testkit::redis::frame::Frame;
use larder_testkit::talk::encode;
use libfuzzer_sys::fuzz_target;

const REFUSALS: [&[u8]; 5] = [
    b"-ERR Bad data format\r\n",
    b"-ERR collection exceeds maximum allowed size",
    b"-ERR fields that expire are not restored here\r\n",
    b"-OOM connections hold as much memory as they may\r\n",
    b"-OOM command not allowed",
];

fuzz_target!(|input: &[u8]| {
    let mut local = Local::with_debug().expect("a server");
    let mut client = local.resp_connection();
    let mut say = |words: &[&[u8]]| said(&mut local, &mut client, &encode(words));
    let reply = say(&[b"RESTORE", b"a", b"0", &sealed(input, 10)]);
    if reply != b"+OK\r\n" {
        assert!(REFUSALS.iter().any(|refusal| reply.starts_with(refusal)), "{}", String::from_utf8_lossy(&reply));
        assert_eq!(say(&[b"EXISTS", b"a"]), b":0\r\n");
        return;
    }
    let reply = say(&[b"DUMP", b"a"]);
    let (frame, bytes) = Frame::read(&reply).expect("a reply").expect("all of it");
    assert_eq!(bytes, reply.len());
    let payload = frame.body.expect("a payload");
    assert_eq!(say(&[b"RESTORE", b"b", b"0", &payload]), b"+OK\r\n");
    assert_eq!(say(&[b"COPY", b"a", b"c"]), b":1\r\n");
    let digest = say(&[b"DEBUG", b"DIGEST-VALUE", b"a"]);
    for key in [b"b", b"c"] {
        assert_eq!(say(&[b"DEBUG", b"DIGEST-VALUE", key]), digest);
    }
});

fn said(local: &mut Local, client: &mut LocalConnection, request: &[u8]) -> Vec<u8> {
    local.exchange(client, request);
    let reply = client.sent().to_vec();
    client.forget();
    reply
}
