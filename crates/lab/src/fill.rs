//! Stores the data that a load expects.

use larder_protocol::client::Protocol;

use crate::connection::{Check, LastWrites};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::generator::{Load, Stop};
use crate::keys::{Choice, Keyspace};
use crate::tally::Tally;
use crate::workload::{Mix, Verb, Workload};

/// Bytes of requests that a fill renders at a time.
const FILL_BYTES: usize = 64 << 20;

/// Stores every key of `keyspace` once, at version 1 and later, over 16 connections in windows of
/// 200, and checks that each write was acknowledged.
///
/// # Errors
/// Those of [`Load::run`], and [`Error::NotValid`] when a write was refused.
pub fn fill(
    to: impl Into<Endpoint>,
    protocol: Protocol,
    keyspace: Keyspace,
    cores: &[Option<usize>],
) -> Result<Tally, Error> {
    prepare(to, &Workload::new(protocol, Verb::Hit, keyspace), cores)
}

/// Keys that are read back, at most.
pub const READ_BACK_MAX: usize = 1024;

/// Reads the last writes of `workload` over another connection, and verifies every value: a server that mixes keys up, or stores
/// nothing, acknowledges writes like any other. Without writes nothing is read.
///
/// # Errors
/// Those of [`Load::run`].
pub fn read_back(
    to: impl Into<Endpoint>,
    workload: &Workload,
    written: LastWrites,
    cores: &[Option<usize>],
) -> Result<Tally, Error> {
    if workload.zeros || written.is_empty() {
        return Ok(Tally::default());
    }
    let mix = Mix::from(Verb::Get);
    let sample = Workload { mix, connections: 1, pipeline: 16, keys_per_request: 1, ..workload.clone() };
    let script = sample.reading(written.keys().copied());
    let mut load = Load::connect(to, &sample, vec![script], &cores[..1])?;
    load.expect(written);
    load.run(Check::Verify, Stop::Once)
}

/// Stores the data that `workload` expects: its keys, and its numbers at 0 if it adds to numbers.
///
/// # Errors
/// As [`fill`].
pub fn prepare(
    to: impl Into<Endpoint>,
    workload: &Workload,
    cores: &[Option<usize>],
) -> Result<Tally, Error> {
    let to = &to.into();
    let mut total = Tally::default();
    let verbs: Vec<Verb> = workload.mix.parts().map(|(verb, _)| verb).collect();
    if verbs.contains(&Verb::Incr) {
        store(to, &Workload { zeros: true, ..workload.clone() }, cores, &mut total)?;
    }
    if verbs.iter().any(|&verb| !matches!(verb, Verb::Miss | Verb::Incr)) {
        store(to, workload, cores, &mut total)?;
    }
    Ok(total)
}

fn store(to: &Endpoint, wanted: &Workload, cores: &[Option<usize>], total: &mut Tally) -> Result<(), Error> {
    let keyspace = wanted.keyspace;
    let request_bytes = keyspace.key_bytes + wanted.value_bytes_max() + 64;
    let step = (FILL_BYTES / request_bytes).max(1) as u32;
    let mut first = keyspace.first;
    let end = keyspace.first + keyspace.count;
    while first < end {
        let count = step.min(end - first);
        let workload = Workload {
            mix: Mix::from(Verb::Set),
            keyspace: Keyspace { first, count, ..keyspace },
            choice: Choice::Sequential,
            connections: 16,
            pipeline: ((1 << 20) / request_bytes).clamp(1, 200),
            keys_per_request: 1,
            ..wanted.clone()
        };
        let mut load = Load::connect(to, &workload, workload.scripts(0), cores)?;
        let tally = load.run(Check::Parse, Stop::Once)?;
        if tally.wrong > 0 || tally.stored != u64::from(count) {
            let why = tally.first_wrong.unwrap_or_else(|| format!("{} of {count} stored", tally.stored));
            return Err(Error::NotValid(format!("fill: {why}")));
        }
        let elapsed = total.elapsed + tally.elapsed;
        total.merge(tally);
        total.elapsed = elapsed;
        first += count;
    }
    Ok(())
}
