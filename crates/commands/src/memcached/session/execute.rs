//! One key of a batch, to the function of its command.

use larder_protocol::classic::Request;
use larder_protocol::meta::{Meta, Verb};
use larder_store::{Hint, Key};

use super::Call;
use crate::memcached::batch::Slot;
use crate::memcached::table::row_of;
use crate::memcached::text::NO_MEMORY_FOR_REPLY;
use crate::memcached::told::Before;
use crate::memcached::{classic, meta};

impl Call<'_, '_, '_, '_> {
    /// One key of a batch.
    #[inline]
    pub(super) fn execute(&mut self, slot: &Slot<'_, '_>) {
        if self.cx.shared.events.any() {
            self.execute_and_tell(slot);
        } else {
            self.execute_slot(slot);
        }
    }

    /// Keyspace events are wanted: looks at the key before and after.
    #[cold]
    fn execute_and_tell(&mut self, slot: &Slot<'_, '_>) {
        let name = slot.key.bytes();
        let before = Before::look(self.cx, name);
        self.execute_slot(slot);
        before.tell(self.cx, row_of(&slot.request), name);
        self.cx.end_turn_if_due(self.out);
    }

    #[inline(always)]
    fn execute_slot(&mut self, slot: &Slot<'_, '_>) {
        let Call { cx, out, tally, .. } = self;
        let key = &slot.key;
        match &slot.request {
            Request::Fetch(fetch) => {
                if slot.first && !slot.last {
                    self.line_mark = Some(out.mark());
                }
                let done = match fetch.touch {
                    None => classic::fetch(cx, out, tally, key, &slot.hint, fetch.cas, slot.last),
                    Some(exptime) => classic::fetch_and_touch(cx, out, key, fetch.cas, exptime, slot.last),
                };
                if !done {
                    self.fail_keys(slot);
                }
            }
            Request::Store(store) => classic::store(cx, out, tally, key, &slot.hint, store, slot.value),
            Request::Delete { noreply, .. } => classic::delete(cx, out, key, *noreply),
            Request::Arithmetic { delta, decrement, noreply, .. } => {
                classic::arithmetic(cx, out, key, *delta, *decrement, *noreply);
            }
            Request::Touch { exptime, noreply, .. } => classic::touch(cx, out, key, *exptime, *noreply),
            Request::Meta(meta) => self.meta(key, &slot.hint, meta, slot.value),
            Request::Line(_) | Request::Fault { .. } => unreachable!("these come as events"),
        }
    }

    /// No memory to send a value of a line of keys from: the line is answered by that alone, unless
    /// other values of it are out already.
    #[cold]
    fn fail_keys(&mut self, slot: &Slot<'_, '_>) {
        if let Some(mark) = self.line_mark.filter(|_| !slot.first) {
            self.out.rewind(mark);
        }
        self.out.put(NO_MEMORY_FOR_REPLY);
        self.skips = !slot.last;
    }

    /// A meta command with its key decoded and its value at hand.
    #[inline]
    pub(super) fn meta(&mut self, key: &Key<'_>, hint: &Hint<'_>, meta: &Meta<'_>, value: &[u8]) {
        let Call { cx, shared, out, tally, .. } = self;
        match meta.verb {
            Verb::Get => meta::get(cx, out, tally, key, hint, &meta.flags),
            Verb::Set => match meta::plan_set(cx, &meta.flags) {
                Ok(plan) => meta::set(cx, out, tally, key, hint, &plan, value),
                Err(fault) => out.put(fault.reply()),
            },
            Verb::Delete => meta::delete(cx, out, tally, key, &meta.flags),
            Verb::Arithmetic => meta::arithmetic(cx, out, tally, key, &meta.flags),
            Verb::Debug => meta::debug(shared, cx, out, tally, key),
            Verb::Noop => out.put(b"MN\r\n"),
        }
    }
}
