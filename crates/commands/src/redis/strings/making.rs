//! Large values that are made of others, in steps. The old value is pinned, and the new one is stored when it is whole, if the
//! old one is still there then; otherwise the command begins again.
//!
//! ```text
//! old   |■■■■■■■■■■|               pinned
//! new   |■■■■|bytes|■|  ◄─ a part in each step             then, in one step: unchanged? publish, remove, reply
//! ```
//!
//! For all observers it is one step, the last. One connection of a worker makes a value at a time
//! ([`crate::core::work::Work::take_lane`]).

use larder_protocol::resp::Args;
use larder_store::{Expect, Key, Refusal, Upload};

use crate::core::work::{Lane, copying_ns};
use crate::redis::call::Call;
use crate::redis::fail::Fail;
use crate::redis::heap::Heap;
use crate::redis::source::{Name, Source};
use crate::redis::steps::again::{Again, Leave, STEPS_BYTES_MIN};
use crate::redis::steps::job::{Job, Step};

/// Bytes that are copied between two looks at the work of a step.
const CHUNK_BYTES: u64 = 16 << 10;
static ZEROS: [u8; CHUNK_BYTES as usize] = [0; CHUNK_BYTES as usize];
/// Bytes of one patch, at most.
const PLACE_BYTES_MAX: usize = 1 << 30;

/// How the new value is made: the old one, zeros behind it if the new one is longer, and bytes written over it.
#[derive(Debug)]
pub(crate) struct Edit<'b> {
    /// Bytes of the new value.
    value_bytes: u64,
    over: Over<'b>,
}

#[derive(Debug)]
enum Over<'b> {
    /// These bytes, from an offset on.
    One(u64, &'b [u8]),
    Many(Patches),
}

/// Patches: bytes that are written over some places of a value.
#[derive(Debug, Default)]
pub(crate) struct Patches {
    /// Offsets and lengths, ascending, without overlaps.
    places: Vec<(u64, u32)>,
    /// All the bytes, in order.
    bytes: Vec<u8>,
    /// The charge for them.
    _held: Option<Heap>,
}

impl Patches {
    /// No patches yet, charged to `held`.
    pub fn charged(held: Heap) -> Patches {
        Patches { _held: Some(held), ..Patches::default() }
    }

    /// Adds a patch behind those before.
    pub fn add(&mut self, at: u64, bytes: &[u8]) {
        debug_assert!(self.places.last().is_none_or(|&(last, bytes)| last + u64::from(bytes) <= at));
        self.places.push((at, bytes.len() as u32));
        self.bytes.extend_from_slice(bytes);
    }
}

impl<'b> Edit<'b> {
    /// Keeps the old value as it is.
    fn nothing(old_bytes: u64) -> Edit<'b> {
        Edit { value_bytes: old_bytes, over: Over::One(old_bytes, &[]) }
    }

    /// Adds `bytes` behind the old value.
    pub fn behind(bytes: &'b [u8], old_bytes: u64) -> Edit<'b> {
        Edit::over(bytes, old_bytes, old_bytes)
    }

    /// Writes `bytes` over the old value from `offset` on, with zeros in front if it is shorter.
    pub fn over(bytes: &'b [u8], offset: u64, old_bytes: u64) -> Edit<'b> {
        let end = offset.saturating_add(bytes.len() as u64);
        Edit { value_bytes: end.max(old_bytes), over: Over::One(offset, bytes) }
    }

    /// Writes these patches over the old value, which is `room` bytes long then if it was shorter.
    pub fn patched(patches: Patches, room: u64, old_bytes: u64) -> Edit<'b> {
        Edit { value_bytes: room.max(old_bytes), over: Over::Many(patches) }
    }
}

/// What is done when the value is whole.
#[derive(Debug)]
pub(crate) struct Then {
    /// Where it is stored, if not in place of the old one. It replaces any value there, unless `only_new`.
    pub to: Option<Name>,
    pub only_new: bool,
    /// Whether the old value is removed.
    pub removes: bool,
    /// The reply, encoded.
    pub reply: Vec<u8>,
}

/// A value that is being made.
#[derive(Debug)]
pub(crate) struct Making {
    old: Source,
    /// The patches. Those in front of `next` are written, and had `written` bytes.
    over: Patches,
    next: usize,
    written: usize,
    then: Then,
    upload: Option<Upload>,
    again: Option<Again>,
    lane: Option<Lane>,
}

/// Begins to make a value of that of `from`, if any, if the new one is large enough for steps. True: the command ends here, and
/// is replied to later. False also if the old value is not as expected.
pub(crate) fn make<'b>(
    call: &mut Call<'_, '_, '_>,
    (leave_for, read_ahead, args): (&'static str, Option<&[u8]>, Args<'_>),
    (db, from): (u8, &Key<'_>),
    expect: Option<Expect>,
    edit: impl FnOnce(u64) -> Edit<'b>,
    then: impl FnOnce(&Call<'_, '_, '_>, u64) -> Then,
) -> Result<bool, Fail> {
    let old_bytes = call.cx.guard.peek(from).hit().map_or(0, |item| item.value_bytes());
    let edit = edit(old_bytes);
    let bytes = edit.value_bytes;
    if bytes < STEPS_BYTES_MIN || old_bytes.saturating_add(bytes) > call.cx.guard.store().memory_bytes() {
        return Ok(false);
    }
    let (again, lane) = match call.leave(bytes, leave_for, read_ahead, args)? {
        Leave::No => return Ok(false),
        Leave::Later => return Ok(true),
        Leave::Yes(again, lane) => (again, lane),
    };
    let name = Name::of(call, db, from);
    let old = Source::read(call, name);
    if old.bytes() != old_bytes || expect.is_some_and(|expect| expect != old.expect) {
        // It has changed since, or was evicted for the words.
        return Ok(false);
    }
    let then = then(call, bytes);
    let target = then.to.as_ref().unwrap_or(&old.name).key(call);
    let upload = call.cx.guard.compose(&target, bytes, &old.attributes).map_err(|_| Fail::OUT_OF_MEMORY)?;
    let over = match edit.over {
        Over::One(at, bytes) => {
            let mut over = Patches::default();
            for (nth, some) in bytes.chunks(PLACE_BYTES_MAX).enumerate() {
                over.add(at + (nth * PLACE_BYTES_MAX) as u64, some);
            }
            over
        }
        Over::Many(over) => over,
    };
    call.work(Making {
        old,
        over,
        next: 0,
        written: 0,
        then,
        upload: Some(upload),
        again: Some(again),
        lane: Some(lane),
    })?;
    Ok(true)
}

impl Making {
    /// Copies some bytes behind those that are there; returns how many.
    fn copy(&mut self, call: &mut Call<'_, '_, '_>, upload: &mut Upload) -> Result<u64, Refusal> {
        let at = upload.value_bytes() - upload.missing();
        while let Some(&(start, bytes)) = self.over.places.get(self.next)
            && start + u64::from(bytes) <= at
        {
            self.next += 1;
            self.written += bytes as usize;
        }
        let mut end = upload.value_bytes();
        if let Some(&(start, bytes)) = self.over.places.get(self.next) {
            if start <= at {
                let inside = at - start;
                let bytes = CHUNK_BYTES.min(u64::from(bytes) - inside);
                let from = self.written + inside as usize;
                call.cx.guard.upload_fill(upload, &self.over.bytes[from..from + bytes as usize])?;
                return Ok(bytes);
            }
            end = start;
        }
        let some = match self.old.piece(at) {
            [] => &ZEROS,
            piece => piece,
        };
        let bytes = CHUNK_BYTES.min(end - at).min(some.len() as u64);
        call.cx.guard.upload_fill(upload, &some[..bytes as usize])?;
        Ok(bytes)
    }

    /// Stores the whole value; false if the old one has changed meanwhile.
    fn end(&self, call: &mut Call<'_, '_, '_>, upload: Upload) -> Result<bool, Fail> {
        let from = self.old.name.key(call);
        let to = self.then.to.as_ref().unwrap_or(&self.old.name);
        let target = to.key(call);
        call.as_one([from, target], |call| {
            if !self.old.is_there(call) || to.is_swapped(call) {
                return Ok(false);
            }
            if self.then.only_new && call.cx.guard.peek(&target).hit().is_some() {
                call.integer(0)?;
                return Ok(true);
            }
            call.cx.guard.publish(upload, Expect::Any).map_err(|_| Fail::OUT_OF_MEMORY)?;
            if self.then.removes {
                let _ = call.cx.guard.delete(&from, Expect::Present);
            }
            call.out.put(&self.then.reply);
            Ok(true)
        })
    }
}

impl Job for Making {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let Some(mut upload) = self.upload.take() else { return Ok(Step::Done) };
        let (ns_max, mut bytes, missing) = (call.step_ns(), 0, upload.missing());
        // The old value is not evicted for the new one.
        let from = self.old.name.key(call);
        call.cx.guard.spare(Some(&from));
        let done = loop {
            if upload.missing() == 0 || copying_ns(bytes) >= ns_max {
                break Ok(());
            }
            match self.copy(call, &mut upload) {
                Ok(copied) => bytes += copied,
                Err(refusal) => break Err(refusal),
            }
        };
        call.cx.guard.spare(None);
        call.spend(copying_ns(bytes));
        if done.is_err() || upload.missing() > 0 {
            // The job goes on behind what was copied, even if it found no memory. Only a step that copied nothing waits for
            // memory.
            let has_copied = upload.missing() < missing;
            self.upload = Some(upload);
            return if done.is_ok() || has_copied { Ok(Step::More) } else { Err(Fail::OUT_OF_MEMORY) };
        }
        let Some(again) = self.again.take() else { return Ok(Step::Done) };
        let (row, args) = (again.row(), again.args());
        let (mut upload, mut ended) = (Some(upload), true);
        let done = call.tell_around(row, args, |call| {
            let Some(upload) = upload.take() else { return Ok(()) };
            ended = self.end(call, upload)?;
            Ok(())
        });
        self.lane = None;
        self.old.let_go();
        done?;
        if !ended {
            again.run(call)?;
        }
        Ok(Step::Done)
    }

    fn again(&self) -> Option<&Again> {
        self.again.as_ref()
    }

    fn asks_again(&self) -> bool {
        self.upload.is_some()
    }

    fn lane(&self) -> Option<&Lane> {
        self.lane.as_ref()
    }
}

/// A value to move or copy from one key to another, in steps.
pub(crate) struct Carry<'k> {
    pub from: (u8, Key<'k>),
    pub to: (u8, Key<'k>),
    pub only_new: bool,
    pub removes: bool,
    pub reply: &'static [u8],
}

/// Begins a copy by [`make`]; true if it has begun.
pub(crate) fn carry(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    args: Args<'_>,
    carry: &Carry<'_>,
) -> Result<bool, Fail> {
    let Carry { from: (db, from), to: (to_db, to), only_new, removes, reply } = *carry;
    if (db, from.bytes()) == (to_db, to.bytes()) || only_new && call.cx.guard.peek(&to).hit().is_some() {
        return Ok(false);
    }
    make(call, (name, None, args), (db, &from), None, Edit::nothing, |call, _| Then {
        to: Some(Name::of(call, to_db, &to)),
        only_new,
        removes,
        reply: reply.to_vec(),
    })
}

/// Encodes an integer reply.
pub(crate) fn integer(n: i64) -> Vec<u8> {
    format!(":{n}\r\n").into_bytes()
}

/// What follows an edit in place.
pub(crate) fn edited(reply: Vec<u8>) -> Then {
    Then { to: None, only_new: false, removes: false, reply }
}
