//! Changes in place, under the home bucket's lock: expiry, marks, version. Where an item lacks the word for
//! one of these, it is first copied into a shape that has it.

use super::{Token, Version, note_expiry};
use crate::access;
use crate::bucket::FREQUENCY_MAX;
use crate::collection::Builder;
use crate::expect::check;
use crate::index::Found;
use crate::item::{EXPIRY, RawItem, STALE, Shape, TOKEN_SENT};
use crate::read::seen;
use crate::worker::Guard;
use crate::{Attributes, Expect, Key, Lookup, Millis, Refusal, Seen, Store, Stored, Value};

impl Guard<'_> {
    /// Sets the expiry (0: never). The token does not change.
    ///
    /// # Errors
    /// [`Refusal::Absent`], [`Refusal::NoMemory`].
    pub fn touch(&mut self, key: &Key<'_>, expires_at: Millis) -> Result<(), Refusal> {
        self.touch_if(key, expires_at, |_| true).map(|_| ())
    }

    /// As [`Guard::touch`], if `holds` is true for the expiry that the item has; returns whether it was.
    ///
    /// # Errors
    /// As [`Guard::touch`].
    pub fn touch_if(
        &mut self,
        key: &Key<'_>,
        expires_at: Millis,
        holds: impl Fn(Millis) -> bool,
    ) -> Result<bool, Refusal> {
        loop {
            let store = self.store;
            let set = self.with_live(key, |guard, locked, found, raw| {
                if !holds(raw.expires_at()) {
                    return Ok(Ok(false));
                }
                if raw.header().has(EXPIRY) {
                    set_expiry(store, raw, found, expires_at);
                } else if expires_at != 0 {
                    return Ok(Err(seen(raw, found.slot.location(), key.hash)));
                }
                locked.control = guard.local.written(store, locked.control, key);
                Ok(Ok(true))
            })?;
            match set {
                Ok(held) => return Ok(held),
                Err(was) => self.reshape(key, was)?,
            }
        }
    }

    /// Marks the item stale, clears its token-sent mark, gives it the next version (or `cas`) and,
    /// if told, a new expiry.
    ///
    /// # Errors
    /// What was expected and was not so, or [`Refusal::NoMemory`].
    pub fn invalidate(
        &mut self,
        key: &Key<'_>,
        cas: Option<u64>,
        expires_at: Option<Millis>,
        expect: Expect,
    ) -> Result<Stored, Refusal> {
        loop {
            let store = self.store;
            let done = self.with_live(key, |guard, locked, found, raw| {
                let location = found.slot.location();
                check(expect, Some((raw, location)), key.hash)?;
                let Version { writes, explicit, .. } = Version::next(locked.control, cas, key.hash);
                let lacks_expiry = expires_at.is_some_and(|at| at != 0) && !raw.header().has(EXPIRY);
                if lacks_expiry || explicit.is_some() && !raw.has_extension() {
                    return Ok(Err(seen(raw, location, key.hash)));
                }
                if let Some(at) = expires_at
                    && raw.header().has(EXPIRY)
                {
                    set_expiry(store, raw, found, at);
                }
                raw.set_token(writes, explicit, (STALE | TOKEN_SENT, STALE));
                locked.control = guard.local.written(store, locked.control, key);
                Ok(Ok(Stored { cas: raw.token(key.hash), replaced: true }))
            })?;
            match done {
                Ok(stored) => return Ok(stored),
                Err(was) => self.reshape(key, was)?,
            }
        }
    }

    /// Sets what an item that was stored elsewhere before brings along: how long ago it was accessed, and how often recently.
    /// `None` leaves it as it is. Nothing that others see of the item changes.
    ///
    /// # Errors
    /// [`Refusal::Absent`].
    pub fn date(&mut self, key: &Key<'_>, idle_s: Option<u64>, frequency: Option<u8>) -> Result<(), Refusal> {
        let now_s = self.now_s;
        self.with_live(key, |_, _, found, _| {
            let mut slot = found.slot;
            if let Some(idle_s) = idle_s {
                slot = slot.with_access(access::encode_idle(idle_s, now_s));
            }
            if let Some(frequency) = frequency {
                slot = slot.with_frequency(u64::from(frequency).min(FREQUENCY_MAX));
            }
            found.bucket.replace(found.i, slot);
            Ok(())
        })
    }

    /// Sets the token-sent mark; true for the one caller that set it.
    pub fn claim_token(&mut self, key: &Key<'_>, was: Seen) -> bool {
        self.with_live(key, |_, locked, found, raw| {
            // A copy of the same version, moved meanwhile, is what was seen.
            let is = seen(raw, found.slot.location(), key.hash);
            if raw.header().has(TOKEN_SENT) || (is.version, is.token) != (was.version, was.token) {
                return Err(Refusal::Changed);
            }
            raw.mark(TOKEN_SENT);
            locked.control = locked.control.written();
            Ok(())
        })
        .is_ok()
    }

    /// Copies the item into a shape with expiry and extension, token unchanged. A writer that changed
    /// it meanwhile did what was wanted, or it has to be looked at anew: that is no error.
    fn reshape(&mut self, key: &Key<'_>, was: Seen) -> Result<(), Refusal> {
        let mut copy = std::mem::take(&mut self.local.copy);
        let mut builder = std::mem::take(&mut self.local.builder);
        let done = self.asking_once(|guard| guard.reshape_through(key, was, &mut copy, &mut builder));
        self.local.builder = builder;
        self.local.copy = copy;
        match done {
            Err(Refusal::NoMemory) => Err(Refusal::NoMemory),
            _ => Ok(()),
        }
    }

    /// [`Guard::reshape`] with room for a copy of the value.
    fn reshape_through(
        &mut self,
        key: &Key<'_>,
        was: Seen,
        copy: &mut Vec<u8>,
        builder: &mut Builder,
    ) -> Result<Stored, Refusal> {
        let Lookup::Hit(item) = self.peek(key) else { return Err(Refusal::Absent) };
        if item.seen() != was {
            return Err(Refusal::Changed);
        }
        let attributes = Attributes {
            flags: item.flags(),
            expires_at: item.expires_at(),
            cas: None,
            key_binary: item.key_binary(),
            stale: item.stale(),
            token_sent: item.token_sent(),
        };
        let keep = Token::Keep { version: item.raw.header().version(), explicit: item.raw.explicit() };
        match item.value() {
            Value::Whole(value) => {
                copy.clear();
                copy.extend_from_slice(value);
            }
            Value::Collection(_) => {
                // SAFETY: it was just found in this epoch, and is no tree: that has all words.
                builder.load(&unsafe { item.raw.leaf(item.raw.header()) });
                return self
                    .making_way(|guard| guard.reshape_collection(key, builder, &attributes, keep, was));
            }
            Value::Pieces(_) => unreachable!("a large item has all words"),
        }
        // With its new words it may be too long for one chunk.
        let shape = Shape::new(key.bytes.len(), copy.len() as u64, attributes.flags, true, true);
        let mut upload = self.start(key, shape, &attributes)?;
        self.upload_fill(&mut upload, copy)?;
        self.publish_upload(upload, keep, Expect::Unchanged(was))
    }
}

/// Sets the expiry of a published item under its home's lock.
fn set_expiry(store: &Store, raw: RawItem, found: &Found<'_>, at: Millis) {
    raw.set_expires_at(at);
    note_expiry(store, raw, found.slot.location());
}
