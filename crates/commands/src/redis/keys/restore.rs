//! RESTORE: makes a value of Redis's payload (`redis/serialize.rs`), a large one in steps. `loading.rs` reads collections.
//!
//! ```text
//! the request ─► the checksum, a part in each step ─► the lane ─► the value is made, a part in each step ─► stored
//! ```

use larder_protocol::resp::{Args, Encoder};
use larder_store::{Attributes, BulkLoad, Expect, Hint, Key, Millis, Refusal, Upload};

use crate::core::work::{Lane, copying_ns};
use crate::redis::call::{Call, integer, is, next};
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::keys::loading::{self, Loading, is_collection};
use crate::redis::row::Command;
use crate::redis::serialize::{
    BAD_FORMAT, FOOTER_BYTES, LZF_BACK_MAX, LZF_BYTES_MAX, Reader, TYPE_STRING, WRONG, checking_ns, crc64_on,
    footer, restore_string, unpack_some, verified,
};
use crate::redis::source::Name;
use crate::redis::steps::again::STEPS_BYTES_MIN;
use crate::redis::steps::job::{Job, LEAVES, STEP_NS_MIN, Step};
use crate::redis::steps::kept::Kept;

const BUSY: Fail = Fail::of("BUSYKEY Target key name already exists.");
/// A collection that takes at most so long is restored in one step.
const AT_ONCE_NS: u64 = 300_000;
/// Bytes that are checksummed, copied or unpacked between two looks at the work of a step.
const CHUNK_BYTES: usize = 16 << 10;

/// The options of RESTORE.
#[derive(Clone, Copy, Debug)]
struct Terms {
    replace: bool,
    expires_at: Millis,
    idle_s: Option<u64>,
    frequency: Option<u8>,
}

impl Terms {
    fn expect(&self) -> Expect {
        if self.replace { Expect::Any } else { Expect::Absent }
    }

    fn attributes(&self) -> Attributes {
        Attributes { expires_at: self.expires_at, ..Attributes::default() }
    }

    /// Whether the key's expiry has passed; if so, removes the key.
    fn is_over(&self, call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> bool {
        let over = self.expires_at != 0 && self.expires_at <= call.cx.now();
        if over {
            let _ = call.cx.guard.delete(key, Expect::Present);
        }
        over
    }

    /// Publishes a collection, unless its expiry has passed.
    fn publish(&self, call: &mut Call<'_, '_, '_>, key: &Key<'_>, load: BulkLoad) -> Done {
        if self.is_over(call, key) {
            return call.ok();
        }
        if load.is_empty() {
            // All fields have expired.
            let _ = call.cx.guard.delete(key, Expect::Present);
            return call.ok();
        }
        match call.cx.guard.load_publish(load, key, &self.attributes(), self.expect())? {
            Ok(_) => self.end(call, key),
            Err(Refusal::NoMemory) => Err(Fail::OUT_OF_MEMORY),
            Err(_) => Err(BUSY),
        }
    }

    /// Sets the access time or frequency of the stored value, and replies.
    fn end(&self, call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> Done {
        if self.idle_s.is_some() || self.frequency.is_some() {
            // A key that is gone by now needs neither.
            let _ = call.cx.guard.date(key, self.idle_s, self.frequency);
        }
        call.ok()
    }
}

/// Serves RESTORE.
pub(crate) fn restore(call: &mut Call<'_, '_, '_>, key: &Key<'_>, _: &Hint<'_>, mut args: Args<'_>) -> Done {
    let ttl = next(&mut args)?;
    let behind_ttl = args;
    let payload = next(&mut args)?;
    let (mut replace, mut absolute) = (false, false);
    // The store keeps one of the two for a key, so that only one of them may be given.
    let (mut idle_s, mut frequency) = (None, None);
    while let Some(word) = args.next() {
        if is(word, "REPLACE") {
            replace = true;
        } else if is(word, "ABSTTL") {
            absolute = true;
        } else if is(word, "IDLETIME") && frequency.is_none() {
            let idle = u64::try_from(integer(next(&mut args)?)?);
            idle_s = Some(idle.map_err(|_| Fail::of("ERR Invalid IDLETIME value, must be >= 0"))?);
        } else if is(word, "FREQ") && idle_s.is_none() {
            let often = u8::try_from(integer(next(&mut args)?)?);
            frequency = Some(often.map_err(|_| Fail::of("ERR Invalid FREQ value, must be >= 0 and <= 255"))?);
        } else {
            return Err(Fail::SYNTAX);
        }
    }
    if !replace && call.is_there(key) {
        return Err(BUSY);
    }
    let ttl = integer(ttl)?;
    let ttl = Millis::try_from(ttl).map_err(|_| Fail::of("ERR Invalid TTL value, must be >= 0"))?;
    let expires_at = match (ttl, absolute) {
        (0, _) => 0,
        (at, true) => at,
        (ttl, false) => call.cx.now().saturating_add(ttl).min(i64::MAX as u64),
    };
    let terms = Terms { replace, expires_at, idle_s, frequency };
    if is_collection(payload) {
        if !call.cx.guard.in_transaction()
            && (payload.len() as u64 >= STEPS_BYTES_MIN || loading::weigh(payload).ns >= AT_ONCE_NS)
        {
            return begin(call, key, behind_ttl, terms);
        }
        return load_at_once(call, key, verified(payload)?, &terms);
    }
    let bytes = unpacked_bytes(payload).min(call.value_bytes_max()).max(payload.len() as u64);
    if bytes >= STEPS_BYTES_MIN && !call.cx.guard.in_transaction() {
        return begin(call, key, behind_ttl, terms);
    }
    let (max, mut held) = (call.value_bytes_max(), None);
    let value = restore_string(payload, &mut |bytes| {
        if bytes as u64 > max {
            return Err(BAD_FORMAT);
        }
        held = Some(Heap::take(call, bytes)?);
        Ok(())
    })?;
    if terms.is_over(call, key) {
        return call.ok();
    }
    call.store(key, &value, &terms.attributes(), terms.expect())?.map_err(|_| BUSY)?;
    terms.end(call, key)
}

/// Restores a collection in one step.
fn load_at_once(call: &mut Call<'_, '_, '_>, key: &Key<'_>, body: &[u8], terms: &Terms) -> Done {
    let (mut loading, mut ns) = (Loading::new(call, body)?, 0);
    while !loading.step(call, key, body, (&mut ns, u64::MAX))? {}
    call.spend(ns);
    terms.publish(call, key, loading.into_load())
}

/// Bytes that a packed payload unpacks to, at most; 0 if it is not packed.
pub(crate) fn unpacked_bytes(payload: &[u8]) -> u64 {
    match packed(payload) {
        Some((packed, bytes, _)) => bytes.min(packed.saturating_mul(LZF_BYTES_MAX)) as u64,
        None => 0,
    }
}

/// A packed string: its packed bytes, its unpacked bytes, and what follows.
fn packed(body: &[u8]) -> Option<(usize, usize, &[u8])> {
    let mut reader = Reader(body);
    if reader.array() != Some([TYPE_STRING, 0xc3]) {
        return None;
    }
    Some((reader.length()?, reader.length()?, reader.0))
}

/// Work of RESTORE of this payload in one step.
pub(crate) fn restoring_ns(payload: &[u8], value_bytes_max: u64) -> u64 {
    let bytes = unpacked_bytes(payload).min(value_bytes_max);
    checking_ns(payload.len() as u64) + unpacking_ns(bytes) + copying_ns(bytes.max(payload.len() as u64))
}

/// Work to unpack so many bytes.
fn unpacking_ns(bytes: u64) -> u64 {
    2 * bytes
}

/// Begins to restore a large value in steps. `words`: the payload and what follows it.
fn begin(call: &mut Call<'_, '_, '_>, key: &Key<'_>, words: Args<'_>, terms: Terms) -> Done {
    let Some((row, _)) = call.shared.rows.find(b"restore") else { return Ok(()) };
    let kept = Kept::new(call, words)?;
    let name = Name::kept(call, key.bytes())?;
    let stage = Stage::Checking { crc: 0, at: 0 };
    call.go_on_with(Restoring { row, name, terms, kept, stage });
    Ok(())
}

/// A RESTORE in steps.
#[derive(Debug)]
struct Restoring {
    row: &'static Command,
    name: Name,
    terms: Terms,
    /// The payload, and what follows it.
    kept: Kept,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// The first `at` bytes are checksummed.
    Checking { crc: u64, at: usize },
    /// It waits for the lane.
    Waiting,
    /// The value is being made.
    Making { upload: Box<Upload>, from: From, lane: Lane },
    /// A collection is being made.
    Loading { loading: Box<Loading>, lane: Lane },
    /// The value is stored.
    Over,
}

/// The source of the value's bytes.
#[derive(Debug)]
enum From {
    /// Unpacked in the payload, from this byte on.
    Plain(usize),
    /// Packed in the payload, between these bytes.
    Packed { at: usize, end: usize, unpacked: Unpacked },
}

/// Unpacked bytes, some of which were taken but may still be referred to.
#[derive(Debug, Default)]
struct Unpacked {
    bytes: Vec<u8>,
    taken: usize,
}

impl Unpacked {
    /// Unpacks some more of `data`, and returns the new bytes; `None` if it is broken.
    fn more(&mut self, mut data: &[u8], at: &mut usize) -> Option<&[u8]> {
        let before = data.len();
        let forgotten = self.taken.saturating_sub(LZF_BACK_MAX);
        self.bytes.drain(..forgotten);
        self.taken -= forgotten;
        while !data.is_empty() && self.bytes.len() - self.taken < CHUNK_BYTES {
            unpack_some(&mut data, &mut self.bytes, usize::MAX)?;
        }
        *at += before - data.len();
        let from = std::mem::replace(&mut self.taken, self.bytes.len());
        Some(&self.bytes[from..])
    }
}

/// Finds the bytes of a string in a payload, and how many they will be.
fn source(body: &[u8], value_bytes_max: u64) -> Result<(From, u64), Fail> {
    if let Some((packed, bytes, data)) = packed(body) {
        if bytes as u64 > value_bytes_max
            || bytes > packed.saturating_mul(LZF_BYTES_MAX)
            || data.len() != packed
        {
            return Err(BAD_FORMAT);
        }
        let at = body.len() - packed;
        return Ok((From::Packed { at, end: body.len(), unpacked: Unpacked::default() }, bytes as u64));
    }
    let mut reader = Reader(body);
    let is_string = reader.array() == Some([TYPE_STRING]);
    match reader.length() {
        Some(bytes) if is_string && reader.0.len() == bytes => {
            Ok((From::Plain(body.len() - bytes), bytes as u64))
        }
        _ => Err(BAD_FORMAT),
    }
}

impl Restoring {
    /// Whether the value is a collection.
    fn has_elements(&self) -> bool {
        self.kept.words().next().is_some_and(is_collection)
    }

    /// Stores a collection, in the database that has the number now.
    fn end_load(&mut self, call: &mut Call<'_, '_, '_>, load: BulkLoad) -> Done {
        self.name.anew(call);
        let key = self.name.key(call);
        let mut words = Encoder::default();
        words.push(key.bytes());
        let mut load = Some(load);
        call.tell_around(self.row, words.args(), |call| match load.take() {
            Some(load) => self.terms.publish(call, &key, load),
            None => Ok(()),
        })
    }

    /// Stores a whole value; false if the database was swapped.
    fn end(&self, call: &mut Call<'_, '_, '_>, upload: Upload) -> Result<bool, Fail> {
        if self.name.is_swapped(call) {
            return Ok(false);
        }
        let key = self.name.key(call);
        let mut words = Encoder::default();
        words.push(key.bytes());
        let mut upload = Some(upload);
        call.tell_around(self.row, words.args(), |call| {
            if self.terms.is_over(call, &key) {
                return call.ok();
            }
            let Some(upload) = upload.take() else { return Ok(()) };
            match call.cx.guard.publish(upload, self.terms.expect()) {
                Ok(_) => self.terms.end(call, &key),
                Err(Refusal::NoMemory) => Err(Fail::OUT_OF_MEMORY),
                Err(_) => Err(BUSY),
            }
        })?;
        Ok(true)
    }
}

impl Job for Restoring {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let payload = self.kept.words().next().unwrap_or_default();
        if let Stage::Checking { crc, at } = &mut self.stage {
            let (body, wanted) = footer(payload)?;
            let end = if wanted.is_some() { body + 2 } else { 0 };
            while *at < end && ns < ns_max {
                let bytes = CHUNK_BYTES.min(end - *at);
                *crc = crc64_on(*crc, &payload[*at..*at + bytes]);
                *at += bytes;
                ns += checking_ns(bytes as u64);
            }
            if *at < end {
                call.spend(ns);
                return Ok(Step::More);
            }
            if wanted.is_some_and(|wanted| wanted != *crc) {
                return Err(WRONG);
            }
            // The next step may wait for memory, which this one cannot.
            self.stage = Stage::Waiting;
            call.spend(ns);
            return Ok(Step::More);
        }
        let body = &payload[..payload.len() - FOOTER_BYTES];
        if let Stage::Waiting = &self.stage
            && is_collection(body)
        {
            let loading = Box::new(Loading::new(call, body)?);
            let Some(lane) = call.cx.room.work().take_lane() else {
                call.spend(STEP_NS_MIN);
                return Ok(call.await_lane());
            };
            self.stage = Stage::Loading { loading, lane };
        }
        if let Stage::Loading { loading, .. } = &mut self.stage {
            let key = self.name.key(call);
            let done = loading.step(call, &key, body, (&mut ns, ns_max));
            call.spend(ns);
            if !done? {
                return Ok(Step::More);
            }
            let Stage::Loading { loading, lane } = std::mem::replace(&mut self.stage, Stage::Over) else {
                return Ok(Step::Done);
            };
            let done = self.end_load(call, loading.into_load());
            drop(lane);
            return done.map(|()| Step::Done);
        }
        if let Stage::Waiting = &self.stage {
            let (from, bytes) = source(body, call.value_bytes_max())?;
            let Some(lane) = call.cx.room.work().take_lane() else {
                call.spend(STEP_NS_MIN);
                return Ok(call.await_lane());
            };
            let key = self.name.key(call);
            let attributes = self.terms.attributes();
            let upload = call.cx.guard.compose(&key, bytes, &attributes).map_err(|_| Fail::OUT_OF_MEMORY)?;
            self.stage = Stage::Making { upload: Box::new(upload), from, lane };
        }
        let Stage::Making { upload, from, .. } = &mut self.stage else { return Ok(Step::Done) };
        let missing = upload.missing();
        while upload.missing() > 0 && ns < ns_max {
            let bytes = match from {
                From::Plain(at) => {
                    let bytes = CHUNK_BYTES.min(body.len() - *at);
                    *at += bytes;
                    &body[*at - bytes..*at]
                }
                From::Packed { at, end, unpacked } => {
                    let bytes = unpacked.more(&body[*at..*end], at).ok_or(BAD_FORMAT)?;
                    ns += unpacking_ns(bytes.len() as u64);
                    bytes
                }
            };
            if bytes.is_empty() || bytes.len() as u64 > upload.missing() {
                return Err(BAD_FORMAT);
            }
            ns += copying_ns(bytes.len() as u64);
            let end = upload.missing() - bytes.len() as u64;
            if call.cx.guard.upload_fill(upload, bytes).is_err() {
                // The bytes that were not copied come again.
                let left = (upload.missing() - end) as usize;
                match from {
                    From::Plain(at) => *at -= left,
                    From::Packed { unpacked, .. } => unpacked.taken -= left,
                }
                call.spend(ns);
                // Only a step that copied nothing waits for memory.
                let has_copied = upload.missing() < missing;
                return if has_copied { Ok(Step::More) } else { Err(Fail::OUT_OF_MEMORY) };
            }
        }
        call.spend(ns);
        if upload.missing() > 0 {
            return Ok(Step::More);
        }
        if let From::Packed { at, end, .. } = from
            && at < end
        {
            return Err(BAD_FORMAT);
        }
        let Stage::Making { upload, .. } = std::mem::replace(&mut self.stage, Stage::Over) else {
            return Ok(Step::Done);
        };
        // A whole value is stored without being tried again.
        let again = call.cx.guard.ask_again(false);
        let ended = self.end(call, *upload);
        call.cx.guard.ask_again(again);
        if ended? {
            return Ok(Step::Done);
        }
        // In another database it is another item.
        self.name.anew(call);
        self.stage = Stage::Waiting;
        Ok(Step::More)
    }

    /// A string goes on where it found no memory, or begins again.
    fn asks_again(&self) -> bool {
        match self.stage {
            Stage::Waiting => !self.has_elements(),
            Stage::Making { .. } => true,
            Stage::Checking { .. } | Stage::Loading { .. } | Stage::Over => false,
        }
    }

    fn wants(&self) -> Option<(usize, usize)> {
        match self.stage {
            Stage::Waiting => self.has_elements().then_some(LEAVES),
            Stage::Loading { .. } => Some(LEAVES),
            Stage::Checking { .. } | Stage::Making { .. } | Stage::Over => None,
        }
    }

    fn lane(&self) -> Option<&Lane> {
        match &self.stage {
            Stage::Making { lane, .. } | Stage::Loading { lane, .. } => Some(lane),
            Stage::Checking { .. } | Stage::Waiting | Stage::Over => None,
        }
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}
