//! FUNCTION RESTORE: makes the libraries of a payload known, all or none.
//!
//! ```text
//! its checksum ─► reads one library after the other ─► adds all
//! └─────────────────── in steps ─────────────────────┘
//! ```
//!
//! Each library is loaded to find what it registers ([`Reading`]). That takes some thirty microseconds even if it does nothing
//! else, which no limit counts, and a payload may have thousands. So they are read in steps, between which others have their
//! turn. The code of all libraries together has the time of one load. One connection of a worker reads at a time: a step has a
//! least time, however much was done in its turn. A long text is compiled between two steps, in later turns (`compiling`). In a
//! transaction everything is one step, and is refused if it takes longer than a load may.

use larder_protocol::resp::Args;
use larder_script::{Compiled, is_long_text};

use super::later::{Preparing, is_alone};
use super::library::{READ_NS_MAX, Reading, TIMEOUT, bounded, head, reading_ns};
use crate::core::work::Lane;
use crate::redis::call::{Call, is, next};
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::lua::libraries::{
    FUNCTIONS_MAX, LIBRARIES_MAX, Library, Policy, SHARE, TOO_MANY, TOO_MUCH,
};
use crate::redis::serialize::{Reader, WRONG, checking_ns, crc64_on, footer, restored_function};
use crate::redis::steps::job::{Job, STEP_NS_MIN, Step};
use crate::redis::steps::kept::Kept;

/// Bytes that are checksummed between two looks at the work of a step.
const CHUNK_BYTES: usize = 16 << 10;
/// Time for which a step reads, at least: it may have to make the state that it reads in, which takes twice as long.
const STEP_READ_NS_MIN: u64 = 500_000;

/// How far a FUNCTION RESTORE is.
#[derive(Debug)]
struct Restored {
    policy: Policy,
    /// Bytes that are checksummed.
    checked: usize,
    crc: u64,
    /// Bytes whose libraries are read.
    read: usize,
    libraries: Vec<Library>,
    /// How many functions the libraries have.
    functions: usize,
    /// Bytes of the libraries, and the charge for them until they are set aside.
    bytes: usize,
    held: Heap,
    /// Work of their own code, in ticks, and the work to read them.
    ticks: u32,
    ns: u64,
    /// The text of the next library, if it is long and being compiled.
    compiling: Option<Preparing>,
}

/// How far libraries were read.
enum Read {
    /// All of them.
    All,
    /// Some of them.
    Part,
    /// Up to a library of this name, whose text is long and not compiled yet.
    Long(Box<str>, Vec<u8>),
}

/// Bytes of a payload, and of its libraries, at most.
fn bytes_max(call: &Call<'_, '_, '_>) -> usize {
    (call.cx.guard.store().memory_bytes() / SHARE) as usize
}

impl Restored {
    fn new(call: &Call<'_, '_, '_>, policy: Policy) -> Restored {
        let (checked, crc, read, functions, bytes, ticks, ns) = (0, 0, 0, 0, 0, 0, 0);
        let (libraries, held) = (Vec::new(), Heap::none(call));
        let compiling = None;
        Restored { policy, checked, crc, read, libraries, functions, bytes, held, ticks, ns, compiling }
    }

    /// Does a step of about `until_ns`; true if all is done.
    ///
    /// # Errors
    /// What is wrong with the payload, or with a library: none becomes known.
    fn go_on(&mut self, call: &mut Call<'_, '_, '_>, payload: &[u8], until_ns: u64) -> Result<bool, Fail> {
        let (end, wanted) = footer(payload)?;
        if let Some(wanted) = wanted {
            // The checksum covers the version, too.
            if !self.check(call, &payload[..end + 2], until_ns) {
                return Ok(false);
            }
            if wanted != self.crc {
                return Err(WRONG);
            }
        }
        let (mut reading, mut compiled) = match self.compiling.take() {
            None => (Reading::begin(call)?, None),
            Some(mut compiling) => {
                let Some(over) = compiling.step(call)? else {
                    self.compiling = Some(compiling);
                    return Ok(false);
                };
                match Reading::behind(call, over) {
                    (reading, Ok(compiled)) => (reading, Some(compiled)),
                    (reading, Err(fail)) => {
                        reading.end(call);
                        return Err(fail);
                    }
                }
            }
        };
        // Clients may have been paused while it was compiled: nothing becomes known in this step.
        let is_last = compiled.is_none();
        match self.read_some(call, (&mut reading, &mut compiled), &payload[..end], until_ns) {
            Ok(Read::All) if is_last => reading.end(call),
            Ok(Read::All | Read::Part) => {
                reading.end(call);
                return Ok(false);
            }
            Ok(Read::Long(name, text)) => {
                self.compiling = Some(reading.compile_beside(call, &text, name));
                return Ok(false);
            }
            Err(fail) => {
                reading.end(call);
                return Err(fail);
            }
        }
        // From here on the libraries are charged as set aside.
        self.held = Heap::none(call);
        let taken = |name: &str| format!("ERR Library {name} already exists");
        let new = std::mem::take(&mut self.libraries);
        call.shared.libraries.add(call.cx.guard.store(), new, self.policy, taken)?;
        call.give_way();
        call.ok()?;
        Ok(true)
    }

    /// Checksums more of the payload; true if all of it is.
    fn check(&mut self, call: &mut Call<'_, '_, '_>, bytes: &[u8], until_ns: u64) -> bool {
        let mut ns = 0;
        while self.checked < bytes.len() && ns < until_ns {
            let piece = &bytes[self.checked..bytes.len().min(self.checked + CHUNK_BYTES)];
            self.crc = crc64_on(self.crc, piece);
            self.checked += piece.len();
            ns += checking_ns(piece.len() as u64);
        }
        call.spend(ns);
        self.checked == bytes.len()
    }

    /// Reads libraries for so long, at least one that is not long. `compiled`: the next library's text, if that was long.
    fn read_some(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        (reading, compiled): (&mut Reading, &mut Option<Compiled>),
        body: &[u8],
        until_ns: u64,
    ) -> Result<Read, Fail> {
        let (most, in_transaction) = (bytes_max(call), call.cx.guard.in_transaction());
        let (until_ns, began_ns) = (until_ns.max(STEP_READ_NS_MIN), call.cx.room.work().done_ns());
        while self.read < body.len() {
            if call.cx.room.work().done_ns().saturating_sub(began_ns) >= until_ns {
                return Ok(Read::Part);
            }
            if in_transaction && self.ns > READ_NS_MAX {
                return Err(TIMEOUT);
            }
            if self.libraries.len() == LIBRARIES_MAX {
                return Err(TOO_MANY);
            }
            // Charges a library's unpacked text first, and then the library.
            let (held, before) = (&mut self.held, self.bytes);
            let mut room = |unpacked: usize| {
                let bytes = before + unpacked;
                if bytes > most { Err(TOO_MUCH) } else { held.set(call, bytes) }
            };
            let mut rest = Reader(&body[self.read..]);
            let Some(code) = restored_function(&mut rest, &mut room)? else { return Ok(Read::All) };
            let (name, end) = head(&code)?;
            bounded(&code)?;
            let library = match compiled.take() {
                Some(compiled) => reading.read_compiled(call, &code, name, &compiled, &mut self.ticks)?,
                None if is_long_text(&code[end..]) && is_alone(call) => {
                    return Ok(Read::Long(name, code[end..].to_vec()));
                }
                // It is one step in a transaction, and while another script of the worker goes on in later turns.
                None if is_long_text(&code[end..]) => {
                    let compiled = reading.compile_at_once(call, &code[end..], name.clone())?;
                    reading.read_compiled(call, &code, name, &compiled, &mut self.ticks)?
                }
                None => reading.read(call, &code, (name, end), &mut self.ticks)?,
            };
            self.read = body.len() - rest.0.len();
            self.ns += reading_ns(code.len());
            self.functions += library.functions.len();
            // The last step looks at the names of all functions, which takes time, too.
            if self.functions > FUNCTIONS_MAX {
                return Err(TOO_MANY);
            }
            self.bytes += library.bytes() as usize;
            if self.bytes > most {
                return Err(TOO_MUCH);
            }
            self.held.set(call, self.bytes)?;
            self.libraries.push(library);
        }
        Ok(Read::All)
    }
}

/// A FUNCTION RESTORE in steps.
#[derive(Debug)]
struct Restoring {
    /// The payload and the policy.
    kept: Kept,
    restored: Restored,
    /// One connection of a worker reads libraries at a time: each step makes a state and reads some, however much was done in
    /// this turn.
    lane: Option<Lane>,
}

impl Job for Restoring {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        // Compiling goes on as any run does, and waits for nothing.
        let reads = self.restored.compiling.is_none();
        if reads && let Some(ms) = call.paused_ms(|_| true) {
            self.lane = None;
            return Ok(Step::Sleep(ms));
        }
        if !reads {
            self.lane = None;
        } else if self.lane.is_none() {
            self.lane = call.cx.room.work().take_lane();
            if self.lane.is_none() {
                call.spend(STEP_NS_MIN);
                return Ok(call.await_lane());
            }
        }
        let payload = self.kept.words().next().unwrap_or_default();
        let until_ns = call.step_ns();
        let is_done = self.restored.go_on(call, payload, until_ns)?;
        Ok(if is_done { Step::Done } else { Step::More })
    }

    fn lane(&self) -> Option<&Lane> {
        self.lane.as_ref()
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}

/// Serves FUNCTION RESTORE: does the first step, unless this turn's slice is used up, and leaves a job for the rest; in a
/// transaction does all of it.
pub(super) fn restore(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let words = args;
    let payload = next(&mut args)?;
    let policy = match args.next() {
        _ if !args.is_empty() => return Err(Fail::subcommand_arity("FUNCTION", "RESTORE")),
        None => Policy::Append,
        Some(word) if is(word, "APPEND") => Policy::Append,
        Some(word) if is(word, "REPLACE") => Policy::Replace,
        Some(word) if is(word, "FLUSH") => Policy::Flush,
        Some(_) => {
            return Err(Fail::of(
                "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
            ));
        }
    };
    if payload.len() > bytes_max(call) {
        return Err(TOO_MUCH);
    }
    let mut restored = Restored::new(call, policy);
    let in_transaction = call.cx.guard.in_transaction();
    let until_ns = if in_transaction { u64::MAX } else { call.step_ns() };
    let is_put_off = !in_transaction && call.cx.room.work().is_used_up();
    if is_put_off || !restored.go_on(call, payload, until_ns)? {
        let kept = Kept::new(call, words)?;
        call.go_on_with(Restoring { kept, restored, lane: None });
    }
    Ok(())
}
