//! Carries out one key of a batch, by the function of its command.

use larder_protocol::classic::{Request, Store};
use larder_protocol::meta::{Meta, Verb};
use larder_store::{Hint, Key};

use super::Turn;
use crate::core::watchers::stream;
use crate::memcached::asked::Asked;
use crate::memcached::batch::Staged;
use crate::memcached::purpose::Purpose;
use crate::memcached::table::row_of;
use crate::memcached::text::NO_MEMORY_FOR_REPLY;
use crate::memcached::told::Before;
use crate::memcached::verbs::{self, InSteps, WholeValue};
use crate::memcached::{classic, join, meta};

impl Turn<'_, '_, '_, '_> {
    /// Carries out one key of a batch.
    #[inline]
    pub(super) fn execute(&mut self, staged: &Staged<'_, '_>) {
        if self.cx.shared.events.any() {
            self.execute_and_tell(staged);
        } else {
            self.execute_slot(staged);
        }
    }

    /// Carries out a key while keyspace events are wanted: looks at the key before and after.
    #[cold]
    fn execute_and_tell(&mut self, staged: &Staged<'_, '_>) {
        let name = staged.key.bytes();
        let before = Before::look(self.cx, name);
        self.execute_slot(staged);
        let asked = if self.cx.shared.watchers.wants(stream::KEYS) { self.asked(staged) } else { None };
        before.tell_stored(self.cx, row_of(&staged.request), name, asked);
        self.cx.end_turn_if_due(self.out);
    }

    /// A staged request's order to store a value; `None` if it stores none.
    fn asked(&self, staged: &Staged<'_, '_>) -> Option<Asked> {
        let value_bytes = staged.value.len() as u64;
        match &staged.request {
            Request::Store(store) => {
                let attributes = classic::attributes(store, self.cx.now());
                Some(Asked::of_store(store.verb, &attributes, &staged.key, value_bytes))
            }
            Request::Meta(meta) if meta.verb == Verb::Set => {
                let plan = meta::plan_set(self.cx, &meta.flags).ok()?;
                Some(plan.asked(&staged.key, value_bytes))
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn execute_slot(&mut self, staged: &Staged<'_, '_>) {
        let Turn { cx, out, tally, .. } = self;
        let key = &staged.key;
        match &staged.request {
            Request::Fetch(fetch) => {
                if staged.first && !staged.last {
                    self.line_mark = Some(out.mark());
                }
                let done = match fetch.touch {
                    None => classic::fetch(cx, out, tally, key, &staged.hint, fetch.cas, staged.last),
                    Some(exptime) => classic::fetch_and_touch(cx, out, key, fetch.cas, exptime, staged.last),
                };
                if !done {
                    // No memory to send a value from.
                    self.refuse_keys(staged, NO_MEMORY_FOR_REPLY);
                }
            }
            Request::Store(store) => {
                let value = staged.value;
                if let Err(InSteps) = classic::store(cx, out, tally, key, &staged.hint, store, value) {
                    let purpose = Purpose::Classic(Store { key: &[], ..*store });
                    join::add(cx, out, tally, key, value, purpose);
                }
            }
            Request::Delete { noreply, .. } => classic::delete(cx, out, key, *noreply),
            Request::Arithmetic { delta, decrement, noreply, .. } => {
                classic::arithmetic(cx, out, key, *delta, *decrement, *noreply);
            }
            Request::Touch { exptime, noreply, .. } => classic::touch(cx, out, key, *exptime, *noreply),
            Request::Meta(meta) => self.meta(key, &staged.hint, meta, staged.value),
            Request::Line(_) | Request::Fault { .. } => unreachable!("these come as events"),
        }
    }

    /// Answers a line of keys, one of which cannot be answered, by that error alone. Values of the line that were sent already
    /// stay.
    #[cold]
    pub(super) fn refuse_keys(&mut self, staged: &Staged<'_, '_>, why: &[u8]) {
        if let Some(mark) = self.line_mark.filter(|_| !staged.first) {
            self.out.rewind(mark);
        }
        self.out.put(why);
        self.skips = !staged.last;
    }

    /// Carries out a meta command with its key decoded and its value at hand.
    #[inline]
    pub(super) fn meta(&mut self, key: &Key<'_>, hint: &Hint<'_>, meta: &Meta<'_>, value: &[u8]) {
        let Turn { cx, shared, out, tally, .. } = self;
        match meta.verb {
            Verb::Get => meta::get(cx, out, tally, key, hint, &meta.flags),
            Verb::Set => match meta::plan_set(cx, &meta.flags) {
                Ok(plan) => {
                    let whole = WholeValue { key, hint, value };
                    if let Err(InSteps) = verbs::store(cx, out, tally, &plan, whole) {
                        join::add(cx, out, tally, key, value, Purpose::Meta(plan));
                    }
                }
                Err(fault) => out.put(fault.reply()),
            },
            Verb::Delete => meta::delete(cx, out, tally, key, &meta.flags),
            Verb::Arithmetic => meta::arithmetic(cx, out, tally, key, &meta.flags),
            Verb::Debug => meta::debug(shared, cx, out, tally, key),
            Verb::Noop => out.put(b"MN\r\n"),
        }
    }
}
