//! Commands on elements of large collections (streams, fields that expire), and reports of the keys that are
//! asked for most.

use super::{PATIENCE, prepare as prepared, within};
use crate::stage::Stage;
use crate::wire::{exchange, said, shown};
use larder_testkit::talk::encode;

/// Longest time of a pipeline as a whole: no other client waits for it.
const MOST_MS: u64 = 60_000;
/// Entries of the stream, and fields of the hash.
const ELEMENTS: usize = 50_000;
/// Fields that one command names.
const NAMED: usize = 512;

/// Sends a request `times` times; fails if the first reply is an error.
fn repeated(stage: &Stage, request: &[u8], times: usize, name: &str) -> Result<String, String> {
    let (took, reply) = exchange(stage.resp, &request.repeat(times), PATIENCE)?;
    if reply.starts_with(b"-") {
        return Err(format!("{name}: {}", shown(&reply)));
    }
    within(took, MOST_MS, &format!("{times} × {name}"))
}

pub(super) fn entries(stage: &Stage) -> Result<(), String> {
    let mut requests: Vec<u8> =
        (1..=ELEMENTS).flat_map(|n| said(&format!("XADD s {n} name value:{n} other value"))).collect();
    requests.extend(said("XGROUP CREATE s g 0"));
    prepared(stage, &requests)
}

pub(super) fn streams(stage: &Stage) -> Result<String, String> {
    let all = [
        ("XRANGE s - +", 20),
        ("XREVRANGE s + -", 20),
        ("XREAD COUNT 1000000 STREAMS s 0", 20),
        ("XREADGROUP GROUP g one COUNT 1000000 STREAMS s >", 1),
        ("XREADGROUP GROUP g one COUNT 1000000 STREAMS s 0", 10),
        ("XPENDING s g - + 1000000", 20),
        ("XAUTOCLAIM s g two 0 0 COUNT 1000000", 3),
        ("XINFO STREAM s FULL COUNT 0", 10),
        ("XGROUP DELCONSUMER s g two", 1),
        ("XGROUP DESTROY s g", 1),
        ("XADD s MAXLEN 10 * name value", 1),
    ];
    let said_of = |(line, times): (&str, usize)| repeated(stage, &said(line), times, line);
    Ok(all.into_iter().map(said_of).collect::<Result<Vec<_>, _>>()?.join(", "))
}

/// A command on some fields of the hash.
fn of_fields(head: &str, fields: std::ops::Range<usize>) -> Vec<u8> {
    let names: Vec<String> = fields.map(|n| format!("field:{n}")).collect();
    let count = names.len().to_string();
    let head = head.split(' ').map(str::as_bytes).chain([&b"FIELDS"[..], count.as_bytes()]);
    encode(&head.chain(names.iter().map(String::as_bytes)).collect::<Vec<_>>())
}

pub(super) fn fields(stage: &Stage) -> Result<(), String> {
    let mut requests = Vec::new();
    for from in (0..ELEMENTS).step_by(NAMED) {
        let pairs: Vec<String> =
            (from..from + NAMED).flat_map(|n| [format!("field:{n}"), "value".to_owned()]).collect();
        let words = [&b"HSET"[..], b"h"].into_iter().chain(pairs.iter().map(String::as_bytes));
        requests.extend(encode(&words.collect::<Vec<_>>()));
    }
    prepared(stage, &requests)
}

pub(super) fn times(stage: &Stage) -> Result<String, String> {
    let mut all = Vec::new();
    for (head, times) in [
        ("HEXPIRE h 1000", 50),
        ("HGETEX h EX 2000", 50),
        ("HTTL h", 50),
        ("HGETEX h PERSIST", 50),
        ("HPEXPIRE h 3000000", 50),
        ("HPERSIST h", 50),
    ] {
        all.push(repeated(stage, &of_fields(head, 0..NAMED), times, head)?);
    }
    // All fields at once, in one request for each command.
    for head in ["HGETEX h EX 3000", "HPEXPIRE h 1"] {
        all.push(repeated(stage, &of_fields(head, 0..ELEMENTS), 1, head)?);
    }
    // No field is left: commands notice that, and so does upkeep.
    for (line, times) in [("HSCAN h 0 COUNT 1000000", 10), ("HGETALL h", 10), ("HLEN h", 10)] {
        all.push(repeated(stage, &said(line), times, line)?);
    }
    Ok(all.join(", "))
}

pub(super) fn hotkeys(stage: &Stage) -> Result<String, String> {
    let mut all = Vec::new();
    all.push(repeated(stage, &said("HOTKEYS START METRICS 2 CPU NET COUNT 64"), 1, "HOTKEYS START")?);
    // The longest keys, each a different one.
    let long: Vec<u8> = (0..400_u32)
        .flat_map(|n| encode(&[b"GET", &[&[b'k'; 60_000][..], &n.to_le_bytes()].concat()]))
        .collect();
    all.push(repeated(stage, &long, 1, "400 long keys")?);
    let short: Vec<u8> = (0..100_000).flat_map(|n| said(&format!("GET some:{}:{n}", n % 1000))).collect();
    all.push(repeated(stage, &short, 1, "100000 keys")?);
    for (line, times) in [("HOTKEYS GET", 2_000), ("INFO hotkeys", 500), ("INFO prefixes", 500)] {
        all.push(repeated(stage, &said(line), times, line)?);
    }
    for line in ["HOTKEYS STOP", "HOTKEYS RESET"] {
        repeated(stage, &said(line), 1, line)?;
    }
    Ok(all.join(", "))
}
