//! Operations on items, applied to the store and to the map.

use super::op::{CROWD, KEYS, Op, Verb, Wanted};
use super::{Begun, DbKey, Known, Model, VALUE_BYTES_MAX, hint, name};
use larder_store::{Attributes, End, Expect, Guard, Key, Refusal, Stored, Upload};

impl Model {
    pub(super) fn store(
        &mut self,
        guard: &mut Guard<'_>,
        op: &Op,
        place: DbKey,
        bytes: usize,
        expect: Expect,
    ) {
        let name = name(place.1);
        let key = self.key(guard, place, &name);
        let known = self.fresh(op, place, bytes);
        let attributes =
            Attributes { flags: known.flags, expires_at: known.expires_at, ..Attributes::default() };
        let done = if op.hinted {
            store_hinted(guard, &key, &known.value, &attributes, expect)
        } else {
            guard.store_value(&key, &known.value, &attributes, expect)
        };
        if self.judge(guard, place, expect, &done) {
            self.stored(place, known, done.expect("it was judged so"));
        }
    }

    pub(super) fn concat(&mut self, guard: &mut Guard<'_>, op: &Op, place: DbKey, end: End) {
        let Some(known) = self.live(place).cloned() else { return };
        if known.value.len() + op.bytes > VALUE_BYTES_MAX {
            return;
        }
        let expect = match self.expect(guard, op, place, false) {
            Expect::Unchanged(_) | Expect::Any => Expect::Present,
            expect => expect,
        };
        let name = name(place.1);
        let key = self.key(guard, place, &name);
        let more = self.value(place, op.bytes);
        let done = guard.concat(&key, &more, end, None, expect);
        if self.judge(guard, place, expect, &done) {
            let value = match end {
                End::Back => [known.value, more].concat(),
                End::Front => [more, known.value].concat(),
            };
            assert!(known.elements.is_none(), "{place:?} is a collection");
            let known = Known { value, stale: false, token_sent: false, ..known };
            self.stored(place, known, done.expect("it was judged so"));
        }
    }

    /// Changes an item without storing another.
    pub(super) fn change(&mut self, guard: &mut Guard<'_>, op: &Op, place: DbKey) {
        let expect = self.expect(guard, op, place, false);
        let expect = if expect == Expect::Any { Expect::Present } else { expect };
        let name = name(place.1);
        let key = self.key(guard, place, &name);
        let later = op.ttl_ms.map_or(0, |ttl_ms| self.now + ttl_ms);
        match op.verb {
            Verb::Delete => {
                let done = guard.delete(&key, expect);
                if self.judge(guard, place, expect, &done) {
                    self.known.remove(&place);
                }
            }
            Verb::Touch => {
                let done = guard.touch(&key, later);
                if self.judge(guard, place, Expect::Present, &done) {
                    self.known.get_mut(&place).expect("it was touched").expires_at = later;
                }
            }
            Verb::Invalidate => {
                let done = guard.invalidate(&key, None, op.ttl_ms.map(|_| later), expect);
                if self.judge(guard, place, expect, &done) {
                    let cas = self.token(place, done.expect("it was judged so").cas);
                    let known = self.known.get_mut(&place).expect("it was judged so");
                    *known = Known {
                        cas,
                        stale: true,
                        token_sent: false,
                        expires_at: op.ttl_ms.map_or(known.expires_at, |_| later),
                        ..std::mem::replace(known, Known::nothing())
                    };
                }
            }
            Verb::ClaimToken => {
                let Some(seen) = guard.peek(&key).hit().map(|item| item.seen()) else {
                    return self.lose(place);
                };
                let claimed = guard.claim_token(&key, seen);
                let known = self.live(place).expect("it was seen");
                assert_eq!(claimed, !known.token_sent, "one caller claims it");
                known.token_sent = true;
            }
            Verb::Patch => {
                let Some(known) = self.live(place).cloned() else { return };
                let offset = known.value.len() / 3;
                let bytes = self.value(place, op.bytes.min(known.value.len() - offset));
                let done = guard.patch(&key, offset as u64, &bytes, expect);
                if done == Ok(None) {
                    return;
                }
                if self.judge(guard, place, expect, &done) {
                    assert_eq!(done, Ok(Some(known.value.len() as u64)));
                    let mut value = known.value;
                    value[offset..offset + bytes.len()].copy_from_slice(&bytes);
                    let cas = guard.peek(&key).hit().expect("it was written").cas();
                    let cas = self.token(place, cas);
                    let known = Known { value, cas, stale: false, token_sent: false, ..known };
                    self.known.insert(place, known);
                }
            }
            other => unreachable!("{other:?} stores an item"),
        }
    }

    pub(super) fn uploads(
        &mut self,
        guard: &mut Guard<'_>,
        op: &Op,
        place: DbKey,
        begun: &mut Option<Begun>,
    ) {
        match op.verb {
            Verb::Begin => {
                *begun = None;
                let known = self.fresh(op, place, op.bytes);
                let name = name(place.1);
                let key = self.key(guard, place, &name);
                let attributes =
                    Attributes { flags: known.flags, expires_at: known.expires_at, ..Attributes::default() };
                let upload = guard.upload(&key, known.value.len() as u64, &attributes);
                if self.judge(guard, place, Expect::Any, &upload) {
                    *begun = Some(Begun { upload: upload.expect("it was judged so"), place, known });
                }
            }
            Verb::Continue => {
                let Some(Begun { upload, known, place }) = begun else { return };
                let done = fill(guard, upload, &known.value, 2);
                if !self.judge(guard, *place, Expect::Any, &done) {
                    *begun = None;
                }
            }
            _ => {
                let Some(Begun { mut upload, place, known }) = begun.take() else { return };
                let done = fill(guard, &mut upload, &known.value, 1);
                if !self.judge(guard, place, Expect::Any, &done) {
                    return;
                }
                let expect = self.expect(guard, op, place, true);
                let done = guard.publish(upload, expect);
                if self.judge(guard, place, expect, &done) {
                    self.stored(place, known, done.expect("it was judged so"));
                }
            }
        }
    }

    pub(super) fn crowd(&mut self, guard: &mut Guard<'_>, op: &Op) {
        let (Verb::Fill(count) | Verb::Read(count) | Verb::Drop(count)) = op.verb else { return };
        for n in 0..count {
            let place = self.place(op, KEYS + (op.key + n) % CROWD);
            match op.verb {
                Verb::Fill(_) => self.store(guard, op, place, op.bytes + n as usize % 64, Expect::Any),
                Verb::Read(_) => self.read(guard, place, op.look()),
                _ => self.change(guard, &Op { verb: Verb::Delete, expect: Wanted::Any, ..*op }, place),
            }
        }
    }
}

impl Known {
    /// A stand-in for an item that is being changed.
    pub(super) fn nothing() -> Known {
        Known {
            value: Vec::new(),
            elements: None,
            flags: 0,
            expires_at: 0,
            cas: 0,
            stale: false,
            token_sent: false,
        }
    }
}

/// Stores in the shortest way, as a server does.
fn store_hinted(
    guard: &mut Guard<'_>,
    key: &Key<'_>,
    value: &[u8],
    attributes: &Attributes,
    expect: Expect,
) -> Result<Stored, Refusal> {
    let hint = hint(guard, key);
    if (attributes.flags, attributes.expires_at, expect) == (0, 0, Expect::Any) {
        let replaced = guard.replace_value(key, value, &hint);
        if replaced || guard.insert_value(key, value, &hint) {
            let item = guard.peek(key).hit().expect("it was stored in this batch");
            return Ok(Stored { cas: item.cas(), replaced });
        }
    }
    guard.store_value_hinted(key, value, attributes, expect, &hint)
}

/// Fills the upload with one part in `parts` of the missing rest of `value`.
fn fill(guard: &mut Guard<'_>, upload: &mut Upload, value: &[u8], parts: u64) -> Result<(), Refusal> {
    let missing = upload.missing();
    let at = value.len() - missing as usize;
    let bytes = missing.div_ceil(parts) as usize;
    guard.upload_fill(upload, &value[at..at + bytes])
}
