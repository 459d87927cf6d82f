//! HyperLogLog: estimates how many different elements were added, in 12 KiB. The strings are Redis's (`sketch.rs`).
//!
//! PFCOUNT of one key stores the cardinality in it, as in Redis: so it may write, and waits where writes do. For many keys, some
//! are gathered in each step; then all are looked at together, and if one has changed, the command begins again.

mod sketch;

use larder_protocol::resp::Args;
use larder_store::{Attributes, Database, Expect, Item, Key};

use crate::core::events::Change;
use crate::core::work::{KEY_NS, Lane, STEPS_BYTES_MIN, copying_ns};
use crate::redis::call::{Call, few_keys, find, is, next, peek};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::reply::{copy_value, each_part, put_array, put_bulk, put_integer, put_simple};
use crate::redis::row::flag::{ADMIN, AS_ONE, DENYOOM, FAST, IS_TOLD, NOSCRIPT, READONLY, WRITE};
use crate::redis::row::{ALL_KEYS, Access, Command, Keys, Tells, Weighs};
use crate::redis::source::Name;
use crate::redis::steps::again::{Again, Leave};
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::Kept;
pub(crate) use sketch::DENSE_BYTES;
use sketch::{BYTES_MAX, Corrupt, HEAD_BYTES, Histogram, REGISTERS, Registers, Run};

pub(crate) const ROWS: &[Definition] = &[
    Command::key("pfadd", -2, WRITE | DENYOOM | FAST, |call, key, _, args| add(call, key, args))
        .tells(TOLD)
        .access(&[Access::Extend])
        .weighs(Weighs::Registers(0))
        .doc("2.8.9", "key [element [element ...]]", "Adds elements to a HyperLogLog; 1 if it has changed."),
    Command::args("pfcount", -2, READONLY, ALL_KEYS, count)
        .with(IS_TOLD | AS_ONE)
        .weighs(Weighs::RegistersRead)
        .doc(
            "2.8.9",
            "key [key ...]",
            "How many different elements were added to any of the HyperLogLogs, about.",
        ),
    Command::args("pfmerge", -2, WRITE | DENYOOM, ALL_KEYS, merge)
        .with(AS_ONE)
        .tells(TOLD)
        .access(&[Access::Change, Access::Read])
        .weighs(Weighs::RegistersMerged)
        .doc(
            "2.8.9",
            "destkey [sourcekey [sourcekey ...]]",
            "Adds to a HyperLogLog what was added to others.",
        ),
    Command::args("pfdebug", 3, WRITE | DENYOOM | ADMIN | NOSCRIPT, DEBUG_KEYS, debug)
        .tells(TOLD)
        .access(&[Access::Change])
        .weighs(Weighs::Registers(1))
        .doc("2.8.9", "<ENCODING|DECODE|GETREG|TODENSE> key", "What a HyperLogLog looks like inside."),
];

const TOLD: Tells = Tells::Each(Change::string("pfadd"));
const DEBUG_KEYS: Keys = Keys::Range { first: 2, last: 2, step: 1 };

const NO_SKETCH: Fail = Fail::of("WRONGTYPE Key is not a valid HyperLogLog string value.");
const CORRUPT: Fail = Fail::of("INVALIDOBJ Corrupted HLL object detected");

/// Elements that are added in one moment without counting the work.
const FEW_ELEMENTS: usize = 64;
/// Work to add an element, beside its bytes and those of a sparse HyperLogLog.
const ELEMENT_NS: u64 = 60;
/// Work to go through all registers.
const REGISTERS_NS: u64 = 20_000;
/// A command of less work is done in one step.
const AT_ONCE_NS: u64 = 400_000;

impl From<Corrupt> for Fail {
    fn from(Corrupt: Corrupt) -> Fail {
        CORRUPT
    }
}

/// Work to go through a HyperLogLog of so many bytes.
pub(crate) fn registers_ns(bytes: u64) -> u64 {
    KEY_NS + REGISTERS_NS.min(4 * bytes)
}

/// Checks by its head that a string is a HyperLogLog.
///
/// # Errors
/// It is none, or longer than one may be.
fn look(item: &Item<'_>) -> Done {
    let (bytes, mut head) = (item.value_bytes(), Vec::with_capacity(HEAD_BYTES));
    if bytes >= HEAD_BYTES as u64 {
        each_part(item.value(), 0..HEAD_BYTES, &mut |part| head.extend_from_slice(part));
    }
    if !sketch::is_sketch(&head, bytes) {
        return Err(NO_SKETCH);
    }
    if bytes > BYTES_MAX as u64 { Err(CORRUPT) } else { Ok(()) }
}

/// Copies a HyperLogLog into `into`.
///
/// # Errors
/// It is none.
fn read(item: &Item<'_>, into: &mut Vec<u8>) -> Done {
    look(item)?;
    into.clear();
    copy_value(item.value(), into);
    Ok(())
}

/// Lets `change` change a HyperLogLog, or a fresh one (then the flag is true), and stores it if `change` returns true, as one
/// step: if another client was faster, it begins again. Expiry and flags stay. Returns what `change` returned last.
fn rewrite(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    mut change: impl FnMut(&mut Vec<u8>, bool) -> Result<bool, Fail>,
) -> Result<bool, Fail> {
    let mut bytes = call.cx.room.lend();
    let done = loop {
        let there = match peek(&mut call.cx.guard, key) {
            // What was seen is read first: the bytes may be newer than that, never older.
            Ok(Some(item)) => {
                let known = (crate::redis::call::kept(&item), Expect::Unchanged(item.seen()));
                read(&item, &mut bytes).map(|()| known)
            }
            Ok(None) => {
                sketch::clear(&mut bytes);
                Ok((Attributes::default(), Expect::Absent))
            }
            Err(fail) => Err(fail),
        };
        let (attributes, expect) = match there {
            Ok(known) => known,
            Err(fail) => break Err(fail),
        };
        let before = bytes.len();
        match change(&mut bytes, expect == Expect::Absent) {
            Ok(true) => {}
            done => break done,
        }
        call.spend(copying_ns((before + bytes.len()) as u64));
        match call.store(key, &bytes, &attributes, expect) {
            Ok(Ok(_)) => break Ok(true),
            Ok(Err(_)) => {}
            Err(fail) => break Err(fail),
        }
    };
    call.cx.room.take_back(bytes);
    done
}

/// Serves PFADD.
fn add(call: &mut Call<'_, '_, '_>, key: &Key<'_>, mut words: Args<'_>) -> Done {
    if words.len() <= FEW_ELEMENTS || call.cx.guard.in_transaction() {
        let changed = add_some(call, key, &mut words, u64::MAX)?;
        return call.integer(i64::from(changed));
    }
    let Some((row, _)) = call.shared.rows.find(b"pfadd") else { return Ok(()) };
    let name = Name::kept(call, key.bytes())?;
    let kept = Kept::new(call, words)?;
    call.go_on_with(Adding { row, name, changed: false, kept });
    Ok(())
}

/// Adds as many elements as there is time for, as one moment, and takes them out of `words`; true if that changed anything.
fn add_some(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    words: &mut Args<'_>,
    ns_max: u64,
) -> Result<bool, Fail> {
    let (all, mut ns) = (*words, 0);
    let changed = rewrite(call, key, |bytes, fresh| {
        let (mut rest, mut changed) = (all, fresh);
        ns = 0;
        while ns < ns_max
            && let Some(element) = rest.next()
        {
            changed |= sketch::add(bytes, element)?;
            let runs = if sketch::is_dense(bytes) { 0 } else { bytes.len() as u64 };
            ns += ELEMENT_NS + runs + copying_ns(element.len() as u64);
        }
        *words = rest;
        if changed {
            sketch::spoil_cardinality(bytes);
        }
        Ok(changed)
    });
    if all.len() > FEW_ELEMENTS {
        call.spend(ns);
    }
    changed
}

/// A PFADD in steps.
#[derive(Debug)]
struct Adding {
    row: &'static Command,
    name: Name,
    changed: bool,
    kept: Kept,
}

impl Job for Adding {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let Adding { row, name, changed, kept } = self;
        let (key, ns_max, before) = (name.key(call), call.step_ns(), kept.place());
        let done = kept.take(|rest| {
            call.tell_around_key(row, key.bytes(), |call| {
                *changed |= add_some(call, &key, rest, ns_max)?;
                Ok(())
            })
        });
        if done.is_err() {
            kept.go_back(before);
        }
        done?;
        if self.kept.left() > 0 {
            return Ok(Step::More);
        }
        call.integer(i64::from(self.changed))?;
        Ok(Step::Done)
    }

    /// True: a step stores all that it added or nothing, so that it can be retried.
    fn asks_again(&self) -> bool {
        true
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}

/// Serves PFCOUNT.
fn count(call: &mut Call<'_, '_, '_>, keys: Args<'_>) -> Done {
    match keys.at(0) {
        Some(name) if keys.len() == 1 => count_one(call, name),
        _ => gather(call, "pfcount", keys, false),
    }
}

/// Serves PFMERGE.
fn merge(call: &mut Call<'_, '_, '_>, keys: Args<'_>) -> Done {
    gather(call, "pfmerge", keys, true)
}

/// Replies the cardinality of one HyperLogLog, and stores it there if it was counted.
fn count_one(call: &mut Call<'_, '_, '_>, name: &[u8]) -> Done {
    let key = call.key(name);
    let hint = call.cx.guard.prefetch_bucket(&key);
    let mut bytes = call.cx.room.lend();
    let counted = match find(call.cx, call.tally, &key, &hint) {
        None => Ok((0, None)),
        Some(item) if item.is_collection() => Err(Fail::WRONG_TYPE),
        Some(item) => {
            let known = (crate::redis::call::kept(&item), Expect::Unchanged(item.seen()));
            count_item(&item, &mut bytes).map(|(n, noted)| (n, (!noted).then_some(known)))
        }
    };
    if let Ok((n, Some((attributes, expect)))) = counted {
        sketch::set_cardinality(&mut bytes, n);
        call.spend(registers_ns(bytes.len() as u64) + copying_ns(2 * bytes.len() as u64));
        // If there is no memory, or another client was faster, it is counted again the next time.
        let _ = call.store(&key, &bytes, &attributes, expect);
    }
    call.cx.room.take_back(bytes);
    call.integer(counted?.0 as i64)
}

/// The cardinality of a HyperLogLog, and whether it was stored; if not, copies the HyperLogLog.
fn count_item(item: &Item<'_>, bytes: &mut Vec<u8>) -> Result<(u64, bool), Fail> {
    let (len, mut head) = (item.value_bytes(), Vec::with_capacity(HEAD_BYTES));
    if len >= HEAD_BYTES as u64 {
        each_part(item.value(), 0..HEAD_BYTES, &mut |part| head.extend_from_slice(part));
    }
    if !sketch::is_sketch(&head, len) {
        return Err(NO_SKETCH);
    }
    if let Some(n) = sketch::cardinality(&head) {
        return Ok((n, true));
    }
    read(item, bytes)?;
    Ok((Histogram::of(bytes)?.estimate(), false))
}

/// The merged registers of several keys.
#[derive(Debug)]
struct Gathered {
    registers: Box<Registers>,
    /// Whether a key's was dense.
    dense: bool,
    /// The copy of the last key's value.
    bytes: Vec<u8>,
}

impl Gathered {
    fn new() -> Gathered {
        Gathered { registers: Box::new([0; REGISTERS]), dense: false, bytes: Vec::new() }
    }

    /// Merges a key's registers, and returns the key's version. Adds that work to `ns`.
    fn add(&mut self, call: &mut Call<'_, '_, '_>, name: &[u8], ns: &mut u64) -> Result<u64, Fail> {
        *ns += KEY_NS;
        let key = call.key(name);
        let hint = call.cx.guard.prefetch_bucket(&key);
        let Some(item) = find(call.cx, call.tally, &key, &hint) else { return Ok(0) };
        if item.is_collection() {
            return Err(Fail::WRONG_TYPE);
        }
        let version = item.cas();
        read(&item, &mut self.bytes)?;
        *ns += registers_ns(self.bytes.len() as u64);
        self.dense |= sketch::is_dense(&self.bytes);
        sketch::gather(&self.bytes, &mut self.registers)?;
        Ok(version)
    }

    /// Replies the cardinality, or merges the registers into the first key.
    fn end(&self, call: &mut Call<'_, '_, '_>, keys: Args<'_>, stores: bool) -> Done {
        call.spend(REGISTERS_NS);
        if !stores {
            return call.integer(Histogram::of_registers(&self.registers).estimate() as i64);
        }
        let target = call.key(keys.at(0).unwrap_or_default());
        call.spend(REGISTERS_NS);
        rewrite(call, &target, |bytes, _| {
            if self.dense {
                sketch::make_dense(bytes)?;
            }
            sketch::raise_all(bytes, &self.registers)?;
            Ok(true)
        })?;
        call.ok()
    }
}

/// Serves PFCOUNT of several keys, and PFMERGE.
fn gather(call: &mut Call<'_, '_, '_>, name: &'static str, keys: Args<'_>, stores: bool) -> Done {
    few_keys(keys.len())?;
    let mut ns = 2 * REGISTERS_NS;
    for name in keys {
        let key = call.key(name);
        ns += call.cx.guard.peek(&key).hit().map_or(KEY_NS, |item| registers_ns(item.value_bytes()));
        if ns >= AT_ONCE_NS {
            break;
        }
    }
    let bytes = if ns >= AT_ONCE_NS { STEPS_BYTES_MIN } else { 0 };
    match call.leave(bytes, name, None, keys)? {
        Leave::Later => Ok(()),
        Leave::Yes(again, lane) => {
            let held = Heap::take_however_short(
                call,
                keys.len() * size_of::<u64>() + size_of::<Registers>() + BYTES_MAX,
            )?;
            let versions = Vec::with_capacity(keys.len());
            let database = call.cx.guard.database(call.client.db);
            let (gathered, again) = (Gathered::new(), Some((again, lane)));
            call.go_on_with(Union { gathered, stores, at: 0, versions, database, again, _held: held });
            Ok(())
        }
        Leave::No if stores => call.as_one_in(keys, |call| {
            let (mut gathered, mut ns) = (Gathered::new(), 0);
            for name in keys {
                gathered.add(call, name, &mut ns)?;
            }
            call.spend(ns);
            gathered.end(call, keys, true)
        }),
        Leave::No => {
            let gathered = call.look_as_one(keys, |call, keys| {
                let (mut gathered, mut ns) = (Gathered::new(), 0);
                for name in keys {
                    let key = call.key(name);
                    call.cx.guard.note(&key);
                    gathered.add(call, name, &mut ns)?;
                }
                call.spend(ns);
                Ok::<_, Fail>(gathered)
            })?;
            gathered.end(call, keys, false)
        }
    }
}

/// A PFCOUNT or PFMERGE in steps.
#[derive(Debug)]
struct Union {
    gathered: Gathered,
    stores: bool,
    /// Bytes of the names that are done; `versions` has one for each of these.
    at: usize,
    versions: Vec<u64>,
    /// The database, as it was named when the command began.
    database: Database,
    again: Option<(Again, Lane)>,
    _held: Heap,
}

impl Union {
    /// Whether the keys are still as they were read.
    fn is_so(&self, call: &mut Call<'_, '_, '_>, keys: Args<'_>) -> bool {
        call.cx.guard.database(call.client.db) == self.database
            && keys.zip(&self.versions).all(|(name, version)| {
                let key = call.key(name);
                call.cx.guard.peek(&key).hit().map_or(0, |item| item.cas()) == *version
            })
    }
}

impl Job for Union {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let Some((again, lane)) = self.again.take() else { return Ok(Step::Done) };
        let (ns_max, mut ns, keys) = (call.step_ns(), 0, again.args());
        let encoded = keys.encoded();
        let mut rest = Args::rest(&encoded[self.at..], keys.len() - self.versions.len());
        while ns < ns_max
            && let Some(name) = rest.next()
        {
            let version = self.gathered.add(call, name, &mut ns)?;
            self.versions.push(version);
        }
        self.at = encoded.len() - rest.encoded().len();
        call.spend(ns);
        if !rest.is_empty() {
            self.again = Some((again, lane));
            return Ok(Step::More);
        }
        let mut done = false;
        call.tell_around(again.row(), keys, |call| {
            call.as_one_in(keys, |call| {
                call.spend(keys.len() as u64 * KEY_NS);
                if self.is_so(call, keys) {
                    done = true;
                    self.gathered.end(call, keys, self.stores)?;
                }
                Ok(())
            })
        })?;
        drop(lane);
        if !done {
            again.run(call)?;
        }
        Ok(Step::Done)
    }

    fn only_reads(&self) -> bool {
        !self.stores
    }

    fn again(&self) -> Option<&Again> {
        self.again.as_ref().map(|(again, _)| again)
    }
}

/// Serves PFDEBUG.
fn debug(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let (what, name) = (next(&mut args)?, next(&mut args)?);
    let key = call.key(name);
    let mut bytes = Vec::new();
    match call.peek(&key)? {
        Some(item) => read(&item, &mut bytes)?,
        None => return Err(Fail::of("ERR The specified key does not exist")),
    }
    call.spend(registers_ns(bytes.len() as u64) + copying_ns(bytes.len() as u64));
    let dense = sketch::is_dense(&bytes);
    if is(what, "ENCODING") {
        put_simple(call.out, if dense { "dense" } else { "sparse" });
        return Ok(());
    }
    if is(what, "DECODE") {
        if dense {
            return Err(Fail::of("ERR HLL encoding is not sparse"));
        }
        let told = sketch::runs(&bytes).map(|(run, wide)| match run {
            Run::Zeros(len) if wide => format!("Z:{len}"),
            Run::Zeros(len) => format!("z:{len}"),
            Run::Values(value, len) => format!("v:{value},{len}"),
        });
        let told = told.collect::<Vec<_>>().join(" ");
        call.make_room(told.len())?;
        put_bulk(call.out, told.as_bytes());
        return Ok(());
    }
    let registers = is(what, "GETREG");
    if !registers && !is(what, "TODENSE") {
        let what = crate::redis::fail::shown(what, 128);
        return Err(Fail::with(format!("ERR Unknown PFDEBUG subcommand '{what}'")));
    }
    if registers {
        call.make_room(REGISTERS * 5)?;
    }
    let mut changed = false;
    rewrite(call, &key, |bytes, fresh| {
        // The key may have gone meanwhile.
        changed = !fresh && sketch::make_dense(bytes)?;
        Ok(changed)
    })?;
    if !registers {
        return call.integer(i64::from(changed));
    }
    let registers = sketch::registers_of(&bytes)?;
    put_array(call.out, REGISTERS);
    registers.iter().for_each(|value| put_integer(call.out, i64::from(*value)));
    Ok(())
}
