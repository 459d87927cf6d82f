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
    prepare_telling(to, workload, cores, |_| ())
}

/// As [`prepare`]; calls `stored` with the number of writes of each part that is done, [`writes`] in all.
///
/// # Errors
/// As [`fill`].
pub fn prepare_telling(
    to: impl Into<Endpoint>,
    workload: &Workload,
    cores: &[Option<usize>],
    stored: impl FnMut(u64),
) -> Result<Tally, Error> {
    prepare_in_parts(FILL_BYTES, &to.into(), workload, cores, stored)
}

/// The number of writes by which [`prepare`] stores the data.
pub fn writes(workload: &Workload) -> u64 {
    u64::from(workload.keyspace.count) * contents(workload).count() as u64
}

/// What the keys of `workload` hold: numbers, values, both or nothing.
fn contents(workload: &Workload) -> impl Iterator<Item = Workload> {
    let numbers = workload.mix.has(Verb::Incr);
    let values = workload.mix.parts().any(|(verb, _)| !matches!(verb, Verb::Miss | Verb::Incr));
    let numbers = numbers.then(|| Workload { zeros: true, ..workload.clone() });
    numbers.into_iter().chain(values.then(|| workload.clone()))
}

/// Stores the data by requests of about `part_bytes` at a time.
fn prepare_in_parts(
    part_bytes: usize,
    to: &Endpoint,
    workload: &Workload,
    cores: &[Option<usize>],
    mut stored: impl FnMut(u64),
) -> Result<Tally, Error> {
    let mut total = Tally::default();
    for wanted in contents(workload) {
        let keyspace = wanted.keyspace;
        let request_bytes = keyspace.key_bytes + wanted.value_bytes_max() + 64;
        let step = (part_bytes / request_bytes).max(1) as u32;
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
            stored(count.into());
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null::Null;
    use crate::route::SocketKind;

    #[test]
    fn each_part_of_a_fill_is_told_when_it_is_stored() {
        let sets = Workload::new(Protocol::Classic, Verb::Set, Keyspace::new(25, 100));
        let null = Null::in_background(&sets, None, SocketKind::Tcp).unwrap();
        let server = Endpoint::from(null.address());
        let request_bytes = sets.keyspace.key_bytes + 100 + 64;
        for (part_bytes, parts) in [
            (10 * request_bytes, &[10, 10, 5][..]),
            (25 * request_bytes - 1, &[24, 1]),
            (25 * request_bytes, &[25]),
            (0, &[1; 25]),
        ] {
            let mut told = Vec::new();
            let tally = prepare_in_parts(part_bytes, &server, &sets, &[None], |count| told.push(count));
            assert_eq!((tally.unwrap().stored, &told[..]), (25, parts));
            assert_eq!(told.iter().sum::<u64>(), writes(&sets));
        }
    }

    #[test]
    fn a_load_that_adds_to_numbers_has_them_stored_beside_its_values() {
        let of = |mix: &[(Verb, u32)]| {
            let workload = Workload::new(Protocol::Classic, Verb::Hit, Keyspace::new(7, 100));
            writes(&Workload { mix: Mix::of(mix), ..workload })
        };
        assert_eq!([of(&[(Verb::Hit, 1)]), of(&[(Verb::Set, 1), (Verb::Miss, 2)])], [7, 7]);
        assert_eq!([of(&[(Verb::Incr, 1)]), of(&[(Verb::Incr, 1), (Verb::Get, 9)])], [7, 14]);
        assert_eq!(of(&[(Verb::Miss, 1)]), 0);
    }
}
