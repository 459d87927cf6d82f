//! ms: stores a value in the mode and under the condition that its flags say, and replies.

use larder_protocol::Fault;
use larder_protocol::meta::Flags;
use larder_protocol::number::parse_u32;
use larder_store::{Attributes, End, Expect, Key, Refusal};

use super::reply::Tail;
use crate::core::context::Context;
use crate::core::output::Output;
use crate::core::tally::Tally;
use crate::memcached::asked::Asked;
use crate::memcached::text::NO_MEMORY;
use crate::memcached::time::expires_at;
use crate::memcached::verbs::{Outcome, StorePlan, concat, has_collection, refuse, string};

/// The order of an ms, read from its flags: all that is kept of it while its value arrives.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Attributes that are stored beside the value.
    pub attributes: Attributes,
    mode: Mode,
    /// The token that the item must have (C).
    compare: Option<u64>,
    /// Whether a token below the item's stores, too, as stale (I).
    invalidate: bool,
    /// Whether a miss of append or prepend stores (N).
    vivify: bool,
    quiet: bool,
    tail: Tail,
}

/// The mode (M).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Set,
    Add,
    Replace,
    Append,
    Prepend,
}

impl Plan {
    /// Returns whether it is append or prepend.
    pub fn concats(&self) -> bool {
        matches!(self.mode, Mode::Append | Mode::Prepend)
    }

    /// The end of the value to which an append or prepend adds.
    pub fn end(&self) -> End {
        if self.mode == Mode::Prepend { End::Front } else { End::Back }
    }

    /// The token that the item must have.
    pub fn compares_with(&self) -> Option<u64> {
        self.compare
    }

    /// Its request to store a value, for watchers.
    pub(crate) fn asked(&self, key: &Key<'_>, value_bytes: u64) -> Asked {
        let cmd = match self.mode {
            _ if self.compares() => "cas",
            Mode::Set => "set",
            Mode::Add => "add",
            Mode::Replace => "replace",
            Mode::Append => "append",
            Mode::Prepend => "prepend",
        };
        let (class, expires_at) = (self.attributes.class(key, value_bytes), self.attributes.expires_at);
        Asked { cmd, expires_at, class, value_bytes }
    }
}

/// Reads the flags of an ms.
///
/// # Errors
/// Says what is wrong with them.
#[inline]
pub fn plan(cx: &Context<'_, '_>, flags: &Flags<'_>) -> Result<Plan, Fault> {
    let mut plan = Plan {
        attributes: Attributes::default(),
        mode: Mode::Set,
        compare: None,
        invalidate: false,
        vivify: false,
        quiet: false,
        tail: Tail::default(),
    };
    if flags.is_empty() {
        return Ok(plan);
    }
    let now = cx.now();
    for flag in flags.iter() {
        match flag.letter {
            b'F' => {
                // As `set` reads them: cut to 32 bits.
                plan.attributes.flags = parse_u32(flag.token).ok_or(Fault::BadLine)?;
            }
            b'M' => plan.mode = mode(flag.token)?,
            b'I' => plan.invalidate = true,
            b'q' => plan.quiet = true,
            b'b' => plan.attributes.key_binary = true,
            _ => {}
        }
    }
    if let Some(exptime) = flags.exptime(b'T')? {
        plan.attributes.expires_at = expires_at(exptime, now);
    }
    plan.compare = match flags.number(b'C')? {
        // To append and prepend 0 compares nothing, as in memcached.
        Some(0) if plan.concats() => None,
        compare => compare.map(|cas| cx.shared.settings.token(cas)),
    };
    plan.attributes.cas = flags.version()?;
    if let Some(exptime) = flags.exptime(b'N')?
        && plan.concats()
    {
        plan.vivify = true;
        plan.attributes.expires_at = expires_at(exptime, now);
    }
    flags.opaque()?;
    plan.tail = Tail::new(flags);
    Ok(plan)
}

fn mode(token: &[u8]) -> Result<Mode, Fault> {
    match token.first() {
        Some(b'S') => Ok(Mode::Set),
        Some(b'E') => Ok(Mode::Add),
        Some(b'R') => Ok(Mode::Replace),
        Some(b'A') => Ok(Mode::Append),
        Some(b'P') => Ok(Mode::Prepend),
        _ => Err(Fault::BadStoreMode),
    }
}

impl StorePlan for Plan {
    #[inline]
    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The condition as it stands, for a value that arrives in pieces, too.
    #[inline]
    fn expect(&self) -> Expect {
        match (self.mode, self.compare) {
            (Mode::Set | Mode::Replace, Some(cas)) => Expect::Cas(cas),
            (Mode::Set, None) => Expect::Any,
            (Mode::Add, _) => Expect::Absent,
            (Mode::Replace | Mode::Append | Mode::Prepend, _) => Expect::Present,
        }
    }

    /// Returns whether it is a compare-and-swap: set or replace with a token.
    #[inline]
    fn compares(&self) -> bool {
        self.compare.is_some() && matches!(self.mode, Mode::Set | Mode::Replace)
    }

    #[inline]
    fn adds(&self) -> bool {
        self.concats()
    }

    /// Returns true: in every mode, as in memcached.
    #[inline]
    fn removes_old(&self) -> bool {
        true
    }

    /// Stores on a miss if N is there.
    fn add(&self, cx: &mut Context<'_, '_>, key: &Key<'_>, value: &[u8], in_steps: bool) -> Option<Outcome> {
        loop {
            match concat(cx, key, value, (self.end(), self.attributes.cas, self.compare), in_steps)? {
                Outcome::NotFound if self.vivify && !has_collection(cx, key) => {
                    match cx.guard.store_value(key, value, &self.attributes, Expect::Absent) {
                        Ok(stored) => return Some(Outcome::of_stored(stored, value.len() as u64)),
                        Err(Refusal::NoMemory) => return Some(Outcome::NoMemory),
                        Err(Refusal::Present | Refusal::Changed | Refusal::Absent | Refusal::Type) => {}
                    }
                }
                Outcome::NotFound => return Some(Outcome::NotStored),
                other => return Some(other),
            }
        }
    }

    fn refused(&self, cx: &mut Context<'_, '_>, key: &Key<'_>, value: &[u8], refusal: Refusal) -> Outcome {
        match refusal {
            Refusal::Changed if self.invalidate && self.compare.is_some() => {
                store_stale(cx, key, self, value)
            }
            refusal => refuse(refusal, self.compares()),
        }
    }

    #[inline]
    fn count(&self, tally: &mut Tally) {
        tally.metas += 1;
    }

    /// Writes HD, NS, EX, NF, or that there is no memory.
    #[inline]
    fn put_outcome(&self, cx: &Context<'_, '_>, out: &mut Output, key: &[u8], outcome: Outcome) {
        let (status, cas, value_bytes) = match outcome {
            Outcome::Stored { .. } if self.quiet => return,
            Outcome::Stored { cas, value_bytes } => (b"HD", cas, value_bytes),
            Outcome::NotStored => (b"NS", 0, 0),
            Outcome::Exists => (b"EX", 0, 0),
            Outcome::NotFound => (b"NF", 0, 0),
            Outcome::NoMemory => return out.put(NO_MEMORY),
        };
        if self.tail.is_empty() {
            let room = out.room(4);
            room[..2].copy_from_slice(status);
            room[2..].copy_from_slice(b"\r\n");
            return out.filled(4);
        }
        out.put(status);
        self.tail.put(out, key, cx.shared.settings.token(cas), value_bytes);
    }
}

/// Stores with I, where the token (C) is not the item's: a token below the item's stores, marked stale, and keeps the TTL.
fn store_stale(cx: &mut Context<'_, '_>, key: &Key<'_>, plan: &Plan, value: &[u8]) -> Outcome {
    loop {
        let Some(item) = string(&mut cx.guard, key) else { return Outcome::NotFound };
        let unchanged = Expect::Unchanged(item.seen());
        let compare = plan.compare.expect("only called with a token");
        let attributes = if compare == item.cas() {
            plan.attributes
        } else if 0 < compare && compare < item.cas() {
            Attributes {
                expires_at: item.expires_at(),
                stale: true,
                token_sent: item.token_sent(),
                ..plan.attributes
            }
        } else {
            return Outcome::Exists;
        };
        match cx.guard.store_value(key, value, &attributes, unchanged) {
            Ok(stored) => return Outcome::of_stored(stored, value.len() as u64),
            Err(Refusal::NoMemory) => return Outcome::NoMemory,
            Err(Refusal::Changed | Refusal::Absent | Refusal::Present | Refusal::Type) => {}
        }
    }
}

impl Plan {
    /// Decides the condition of an upload with I whose token (C) is below the item's. It then gets other attributes, which have
    /// to be known before the value arrives.
    pub fn decide_stale(&mut self, cx: &mut Context<'_, '_>, key: &Key<'_>) {
        let (true, Some(compare)) = (self.invalidate, self.compare) else { return };
        if let Some(item) = string(&mut cx.guard, key)
            && (1..item.cas()).contains(&compare)
        {
            self.attributes.expires_at = item.expires_at();
            self.attributes.stale = true;
            self.attributes.token_sent = item.token_sent();
            self.compare = Some(item.cas());
        }
    }
}
