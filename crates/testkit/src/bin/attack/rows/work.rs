//! Requests whose work must not grow faster than they do.

use super::{PATIENCE, prepare, set, within};
use crate::stage::Stage;
use crate::wire::{connect, exchange, said};
use larder_testkit::talk::encode;
use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

fn mset(stage: &Stage, keys: usize, most_ms: u64) -> Result<String, String> {
    let names: Vec<String> = (0..keys).map(|n| format!("key:{n}")).collect();
    let mut words = vec![&b"MSET"[..]];
    for name in &names {
        words.extend([name.as_bytes(), b"v"]);
    }
    let (took, reply) = exchange(stage.resp, &encode(&words), PATIENCE)?;
    if !reply.starts_with(b"+OK") {
        return Err(crate::wire::shown(&reply));
    }
    within(took, most_ms, &format!("{keys} keys"))
}

pub(super) fn mset_100k(stage: &Stage) -> Result<String, String> {
    mset(stage, 100_000, 500)
}

pub(super) fn mset_400k(stage: &Stage) -> Result<String, String> {
    mset(stage, 400_000, 1000)
}

pub(super) fn exec_of_sets(stage: &Stage) -> Result<String, String> {
    let mut requests = said("MULTI");
    (0..80_000).for_each(|n| requests.extend(said(&format!("SET key:{n} v"))));
    requests.extend(said("EXEC"));
    let (took, _) = exchange(stage.resp, &requests, PATIENCE)?;
    within(took, 1000, "80,000 SETs")
}

pub(super) fn psubscribe(stage: &Stage) -> Result<String, String> {
    let names: Vec<String> = (0..150_000).map(|n| format!("pattern:{n}*")).collect();
    let mut words = vec![&b"PSUBSCRIBE"[..]];
    words.extend(names.iter().map(|name| name.as_bytes()));
    // A listener may not ECHO, but PING.
    let (took, _) = exchange(stage.resp, &[said("HELLO 3"), encode(&words)].concat(), PATIENCE)?;
    within(took, 2000, "150,000 patterns")
}

/// A pattern that matches nothing, and tempts to try everything.
fn evil(bytes: usize) -> Vec<u8> {
    let mut pattern = b"*a".repeat(bytes / 2);
    pattern.push(b'b');
    pattern
}

pub(super) fn evil_keys(stage: &Stage) -> Result<(), String> {
    let keys = (0..20u8).map(|n| set(&[vec![b'a'; 65_000], vec![n]].concat(), b""));
    prepare(stage, &keys.collect::<Vec<_>>().concat())
}

pub(super) fn scan_match(stage: &Stage) -> Result<String, String> {
    let scan = encode(&[b"SCAN", b"0", b"MATCH", &evil(30_000), b"COUNT", b"1000"]);
    let (took, _) = exchange(stage.resp, &scan, PATIENCE)?;
    within(took, 1000, "20 keys of 64 KB")
}

pub(super) fn publish_glob(stage: &Stage) -> Result<String, String> {
    let mut listener = connect(stage.resp)?;
    listener.write_all(&encode(&[b"PSUBSCRIBE", &evil(1 << 20)])).map_err(|error| error.to_string())?;
    let _ = listener.set_read_timeout(Some(Duration::from_secs(2)));
    let _ = listener.read(&mut [0; 64]);
    let channel = vec![b'a'; 4 << 20];
    let (took, reply) = exchange(stage.resp, &encode(&[b"PUBLISH", &channel, b"m"]), PATIENCE)?;
    within(took, 1000, &format!("a channel of 4 MB ({})", crate::wire::shown(&reply)))
}

pub(super) fn patterns(stage: &Stage) -> Result<(), String> {
    for part in 0..2 {
        let names: Vec<String> = (0..4869).map(|n| format!("*{}", "?".repeat(n % 7))).collect();
        let names: Vec<String> = names
            .iter()
            .enumerate()
            .map(|(n, name)| format!("{name}*{}", "*".repeat(n / 7 + part * 700)))
            .collect();
        let mut words = vec![&b"PSUBSCRIBE"[..]];
        words.extend(names.iter().map(|name| name.as_bytes()));
        let mut stream = connect(stage.resp)?;
        stream.write_all(&encode(&words)).map_err(|error| error.to_string())?;
        let mut reader = stream.try_clone().map_err(|error| error.to_string())?;
        thread::spawn(move || {
            let mut room = vec![0; 1 << 20];
            while matches!(reader.read(&mut room), Ok(1..)) {}
        });
        stage.open.lock().expect("not poisoned").push(stream);
    }
    thread::sleep(Duration::from_millis(500));
    Ok(())
}

pub(super) fn publish_1mb(stage: &Stage) -> Result<String, String> {
    let message = vec![b'm'; 1 << 20];
    let began = Instant::now();
    let (_, reply) = exchange(stage.resp, &encode(&[b"PUBLISH", b"channel", &message]), PATIENCE)?;
    within(began.elapsed(), 1000, &format!("told {}", crate::wire::shown(&reply[..reply.len().min(7)])))
}
