//! Requests that are much work each: on the longest values, on very many keys, and on very many connections.

use super::{PATIENCE, prepare, set, within};
use crate::stage::Stage;
use crate::wire::{connect, exchange, exchange_text, only_send, said, shown};
use larder_testkit::redis::forms;
use larder_testkit::talk::encode;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes of a value; there is memory for a second one beside it.
const LARGE_BYTES: usize = 24 << 20;
/// Keys of a request: with their headers some 8 MB, as much as requests may hold together.
const KEYS: usize = 1_000_000;
/// Connections whose requests the server keeps.
const KEPT: usize = 30;
/// Connections that are closed together.
const CONNECTIONS: usize = 8_000;
/// Longest time of requests as a whole: no other client waits for them.
const MOST_MS: u64 = 60_000;

pub(super) fn large(stage: &Stage) -> Result<(), String> {
    prepare(stage, &set(b"large", &vec![b'l'; LARGE_BYTES]))
}

/// Sends requests; the replies must begin with `begins`.
fn all(stage: &Stage, requests: &[u8], begins: &str, what: &str) -> Result<String, String> {
    let (took, reply) = exchange(stage.resp, requests, PATIENCE)?;
    if !reply.starts_with(begins.as_bytes()) {
        return Err(format!("{what}: {}", shown(&reply)));
    }
    within(took, MOST_MS, what)
}

pub(super) fn appends(stage: &Stage) -> Result<String, String> {
    let lines = [
        "append large 0 0 1\r\nx\r\n",
        "prepend large 0 0 1\r\nx\r\n",
        "ms large 1 MA\r\nx\r\n",
        "ms large 1 MP\r\nx\r\n",
    ];
    let (took, reply) = exchange_text(stage.server.address(), lines.concat().repeat(5).as_bytes(), PATIENCE)?;
    if !reply.starts_with(b"STORED\r\nSTORED\r\nHD\r\nHD\r\n") {
        return Err(shown(&reply));
    }
    within(took, MOST_MS, "20 × append and its like, 24 MiB")
}

pub(super) fn bitfield(stage: &Stage) -> Result<String, String> {
    let last = (8 * (LARGE_BYTES - 1)).to_string();
    let one = |n: u8| said(&format!("BITFIELD large SET u8 0 {n} SET u8 {last} {n}"));
    let requests: Vec<u8> = (0..20).flat_map(one).collect();
    all(stage, &requests, "*2\r\n:108\r\n:108\r\n*2\r\n:0\r\n:0\r\n", "20 × BITFIELD over 24 MiB")
}

pub(super) fn digest(stage: &Stage) -> Result<String, String> {
    let requests =
        [said("DEBUG DIGEST").repeat(5), said("DEBUG DIGEST-VALUE large large").repeat(5)].concat();
    all(stage, &requests, "+", "15 digests of 24 MiB")
}

/// A DUMP payload with this body, without a checksum.
fn payload(body: &[&[u8]]) -> Vec<u8> {
    let mut payload = vec![0];
    body.iter().for_each(|part| payload.extend_from_slice(part));
    payload.extend_from_slice(&[10, 0]);
    payload.extend_from_slice(&[0; 8]);
    payload
}

fn length(bytes: usize) -> Vec<u8> {
    [&[0x80][..], &(bytes as u32).to_be_bytes()].concat()
}

pub(super) fn restore(stage: &Stage) -> Result<String, String> {
    let mut plain = payload(&[&length(LARGE_BYTES), &vec![b'p'; LARGE_BYTES]]);
    // A payload with a wrong checksum, which the server verifies.
    if let Some(last) = plain.last_mut() {
        *last = 1;
    }
    let wrong = encode(&[b"RESTORE", b"wrong", b"0", &plain]);
    all(stage, &wrong, "-ERR DUMP payload", "a checksum over 24 MiB")?;
    if let Some(last) = plain.last_mut() {
        *last = 0;
    }
    let requests = encode(&[b"RESTORE", b"plain", b"0", &plain, b"REPLACE"]).repeat(3);
    all(stage, &requests, "+OK\r\n", "3 × RESTORE of 24 MiB")
}

pub(super) fn restore_packed(stage: &Stage) -> Result<String, String> {
    // A byte, and as long repeats of it as the format has: three bytes for 264.
    let repeats = (LARGE_BYTES - 1) / 264;
    let data = [&[0, b'a'][..], &[0xe0, 0xff, 0].repeat(repeats)].concat();
    let packed = payload(&[&[0xc3], &length(data.len()), &length(1 + 264 * repeats), &data]);
    let requests = encode(&[b"RESTORE", b"packed", b"0", &packed, b"REPLACE"]).repeat(10);
    all(stage, &requests, "+OK\r\n", "10 × RESTORE of 280 KB that become 24 MiB")
}

/// Members of a set that is restored. `NODE_ELEMENTS`: elements of each node of a packed list.
const MEMBERS: usize = 300_000;
const NODE_ELEMENTS: usize = 4_000;

pub(super) fn restore_elements(stage: &Stage) -> Result<String, String> {
    let mut members = vec![2];
    forms::length(&mut members, MEMBERS);
    (0..MEMBERS).for_each(|n| forms::string(&mut members, format!("member {n}").as_bytes()));
    let members = forms::sealed(&members, 10);
    let mut requests = encode(&[b"RESTORE", b"set", b"0", &members, b"REPLACE"]);
    for words in ["COPY set other REPLACE", "DUMP nosuch", "DEL set", "COPY other set", "DEL other"] {
        requests.extend(said(words));
    }
    let sets = all(
        stage,
        &requests.repeat(3),
        "+OK\r\n:1\r\n$-1\r\n:1\r\n:1\r\n",
        "3 × a set of 300,000, copied twice",
    )?;
    let dumps = all(stage, &said("DUMP set").repeat(3), "$", "3 × DUMP of it")?;
    // A node with 4,000 equal elements, packed in some 500 bytes. A list of them refers to 2,000 such nodes.
    let node = forms::listpack(&vec![b"elements".to_vec(); NODE_ELEMENTS]);
    let mut packed = [&[25][..], &node[..26]].concat();
    let mut left = node.len() - 27;
    while left > 0 {
        let len = left.min(260);
        packed.extend([0xe0, (len - 9) as u8, 9]);
        left -= len;
    }
    packed.extend([0, 0xff]);
    let nodes = 2_000;
    let mut body = vec![18];
    forms::length(&mut body, nodes);
    for _ in 0..nodes {
        body.extend([2, 0xc3]);
        forms::length(&mut body, packed.len());
        forms::length(&mut body, node.len());
        body.extend(&packed);
    }
    let payload = forms::sealed(&body, 10);
    let requests = encode(&[b"RESTORE", b"list", b"0", &payload]).repeat(3);
    let lists = all(stage, &requests, "-OOM ", "3 × a list of 8,000,000 elements out of 1 MB")?;
    Ok(format!("{sets}, {dumps}, {lists}"))
}

pub(super) fn many_keys(stage: &Stage) -> Result<String, String> {
    let mut said = Vec::new();
    for (name, begins) in [
        (&b"EXISTS"[..], ":0\r\n"),
        (b"TOUCH", ":0\r\n"),
        (b"MGET", "*1000000\r\n$-1\r\n"),
        (b"DEL", ":0\r\n"),
        (b"UNLINK", ":0\r\n"),
    ] {
        let mut words = vec![name];
        words.resize(KEYS + 1, b"k");
        let name = String::from_utf8_lossy(name).into_owned();
        said.push(all(stage, &encode(&words), begins, &name)?);
    }
    Ok(format!("{KEYS} keys: {}", said.join(", ")))
}

/// Requests of 8 MB whose replies are not read: the server keeps each until its reply is sent.
pub(super) fn kept(stage: &Stage) -> Result<String, String> {
    let mut words = vec![&b"MGET"[..]];
    words.resize(KEYS + 1, b"k");
    let request = encode(&words);
    let mut open = stage.open.lock().expect("not poisoned");
    for _ in 0..KEPT {
        // The server may close the connection meanwhile, or stop reading.
        open.push(only_send(stage.resp, &request, Duration::from_millis(500))?.0);
    }
    std::thread::sleep(Duration::from_secs(2));
    let closed = open.iter_mut().filter_map(|stream| is_closed(stream).then_some(())).count();
    Ok(format!("{KEPT} × MGET of {KEYS} keys that nobody reads, {closed} closed"))
}

/// Whether the server has closed the connection; drops all that it had sent before.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut bytes = vec![0; 1 << 20];
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

pub(super) fn connections(stage: &Stage) -> Result<(), String> {
    let mut open = stage.open.lock().expect("not poisoned");
    for _ in 0..CONNECTIONS {
        let mut stream = connect(stage.resp)?;
        stream.write_all(&said("PING")).map_err(|error| error.to_string())?;
        open.push(stream);
    }
    for stream in open.iter_mut() {
        stream.read_exact(&mut [0; 7]).map_err(|error| error.to_string())?;
    }
    Ok(())
}

pub(super) fn client_kill(stage: &Stage) -> Result<String, String> {
    let mut words = vec!["CLIENT", "KILL"];
    (0..63).for_each(|_| words.extend(["NOT-NAME", "nobody"]));
    words.extend(["USER", "default"]);
    let words: Vec<&[u8]> = words.into_iter().map(str::as_bytes).collect();
    let killed = all(stage, &encode(&words), &format!(":{CONNECTIONS}\r\n"), "8,000 clients by 64 filters")?;
    ended(stage, Instant::now(), &killed)
}

/// Waits until all connections have ended; returns in words how long that took.
fn ended(stage: &Stage, began: Instant, what: &str) -> Result<String, String> {
    let mut open = stage.open.lock().expect("not poisoned");
    for stream in open.iter_mut() {
        let _ = stream.set_read_timeout(Some(PATIENCE));
        // A reset is an end, too.
        while matches!(stream.read(&mut [0; 512]), Ok(1..)) {}
    }
    open.clear();
    within(began.elapsed(), MOST_MS, &format!("{what}; closed"))
}

pub(super) fn timeouts(stage: &Stage) -> Result<String, String> {
    for _ in 0..CONNECTIONS {
        let mut stream = connect(stage.server.address())?;
        stream.write_all(b"get someth").map_err(|error| error.to_string())?;
        stage.open.lock().expect("not poisoned").push(stream);
    }
    std::thread::sleep(Duration::from_secs(2));
    ended(stage, Instant::now(), "8,000 half requests whose time has come")
}
