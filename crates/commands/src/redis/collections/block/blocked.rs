//! A command that waits, as its client has it: from joining the lines to its reply.

use std::sync::Arc;

use larder_store::Store;

use super::serve::{SERVE_NS, Serving};
use crate::core::output::Output;
use crate::redis::call::Call;
use crate::redis::collections::listing::send_or_hand_on;
use crate::redis::collections::taking;
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::put_null_array;
use crate::redis::steps::job::{Job, Step};
use crate::redis::waiters::{Left, Served, Stands, Waiter, Waiters};

use std::sync::atomic::Ordering::Relaxed;

/// Items give way to keys that are awaited when so many have come.
const KEYS_AT_ONCE: usize = 1 << 10;
/// How often a waiter of a group looks whether that is there: a key that expires, gives way or is flushed wakes no waiter.
const LOOK_US: u64 = 1_000_000;
/// Work to stand in line at a key.
const KEY_NS: u64 = 1_000;

pub(super) const TOO_MANY_KEYS: Fail = Fail::of("ERR too many keys are waited for");
const UNBLOCKED: Fail = Fail::of("UNBLOCKED client unblocked via CLIENT UNBLOCK");

/// A command that waits.
#[derive(Debug)]
pub(crate) struct Blocked {
    waiter: Arc<Waiter>,
    waiters: Arc<Waiters>,
    store: Arc<Store>,
    /// When its time has come, by the clock that only goes on.
    until_us: Option<u64>,
    /// When it looks at its keys whatever happens, if it has to.
    look_us: Option<u64>,
    /// It stands in line.
    joined: bool,
    /// The store awaits so many of its keys.
    awaited: usize,
    /// What it was given, and how much of that is sent.
    reply: Option<Output>,
    sent: u64,
}

impl Blocked {
    /// One that stands in no line yet.
    pub fn new(call: &Call<'_, '_, '_>, waiter: Waiter, until_us: Option<u64>) -> Blocked {
        let look_us = waiter.want.is_to_look().then(|| call.cx.host.clock_us() + LOOK_US);
        Blocked {
            look_us,
            waiter: Arc::new(waiter),
            waiters: Arc::clone(&call.shared.waiters),
            store: Arc::clone(call.cx.guard.store()),
            until_us,
            joined: false,
            awaited: 0,
            reply: None,
            sent: 0,
        }
    }

    /// Joins the lines, has the keys awaited, and looks at them: in this order.
    fn join(&mut self, call: &mut Call<'_, '_, '_>) -> Done {
        let waiter = Arc::clone(&self.waiter);
        self.joined = true;
        self.store.set_aside(waiter.bytes() as i64);
        self.waiters.join(&waiter);
        for name in &waiter.keys {
            let key = call.cx.guard.key_in(waiter.db, name);
            if !call.cx.guard.await_key(waiter.db, &key) {
                if waiter.end(Stands::Over) {
                    return Err(TOO_MANY_KEYS);
                }
                // It was served by then.
                return Ok(());
            }
            self.awaited += 1;
            if self.awaited.is_multiple_of(KEYS_AT_ONCE) {
                call.cx.guard.give_way();
            }
        }
        if self.awaited > 1 {
            call.spend(self.awaited as u64 * KEY_NS);
        }
        self.look(call);
        Ok(())
    }

    /// Serves the waiters in line at its keys, of which it is one.
    fn look(&self, call: &mut Call<'_, '_, '_>) {
        let (common, rows, host) = (call.cx.shared, call.shared.rows, call.cx.host);
        let (waiters, own) = (&*self.waiters, Some(&*self.waiter));
        let served =
            Serving { guard: &mut call.cx.guard, common, rows, waiters, host, own }.at_keys_of(&self.waiter);
        call.spend(served as u64 * SERVE_NS);
        call.cx.go_on_telling();
    }

    /// It waits no more.
    fn leave(&mut self) {
        if std::mem::take(&mut self.joined) {
            self.waiters.leave(&self.waiter);
            for key in &self.waiter.keys[..std::mem::take(&mut self.awaited)] {
                self.store.unawait(self.waiter.db, key);
            }
            self.store.set_aside(-(self.waiter.bytes() as i64));
        }
    }

    fn end(&mut self, call: &mut Call<'_, '_, '_>) {
        self.leave();
        call.cx.guard.end_watches();
        call.client.facts.waits.store(false, Relaxed);
    }
}

impl Job for Blocked {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if let Some(reply) = &mut self.reply {
            return Ok(send_or_hand_on(call, reply, &mut self.sent));
        }
        if !self.joined {
            self.join(call)?;
        } else if self.waiter.take_call() {
            self.look(call);
        }
        loop {
            match self.waiter.stands() {
                Stands::Waiting => {
                    let now_us = call.cx.host.clock_us();
                    let left_us = self.until_us.map(|until| until.saturating_sub(now_us));
                    if left_us == Some(0) {
                        // Unless it is claimed at this moment.
                        self.waiter.end(Stands::Over);
                        continue;
                    }
                    if self.look_us.is_some_and(|look| look <= now_us) {
                        self.look_us = Some(now_us + LOOK_US);
                        self.look(call);
                        continue;
                    }
                    let look_us = self.look_us.map(|look| look - now_us);
                    let sleep_us = left_us.into_iter().chain(look_us).min();
                    call.client.facts.waits.store(true, Relaxed);
                    return Ok(Step::Await(sleep_us.map(|us| us.div_ceil(1000))));
                }
                // The worker that has claimed it wakes it.
                Stands::Claimed => return Ok(Step::Await(None)),
                Stands::Served => break,
                Stands::Over | Stands::Unblocked | Stands::Gone => {
                    self.end(call);
                    put_null_array(call.out, call.client.resp3);
                    return Ok(Step::Done);
                }
                Stands::Refused => {
                    self.end(call);
                    return Err(UNBLOCKED);
                }
            }
        }
        self.end(call);
        // It was called once more: what it does not need is for the next in line.
        if self.waiter.take_call() {
            self.look(call);
        }
        let Some(served) = self.waiter.take_served() else { return Ok(Step::Done) };
        served.done?;
        let counted = self.waiter.want.counted(self.waiter.resp3);
        if let (Some(portion), Some((form, _))) = (served.begun, counted) {
            // What comes is taken beside others, as by one that did not wait.
            let place = (&*served.key, served.moment.database());
            taking::go_on(call, place, form, portion, served.reply);
            return Ok(Step::Done);
        }
        let reply = self.reply.insert(served.reply);
        Ok(send_or_hand_on(call, reply, &mut self.sent))
    }

    fn waits(&self) -> bool {
        self.reply.is_none()
    }

    fn asks_itself(&self) -> bool {
        true
    }

    fn held_bytes(&self) -> u64 {
        self.reply.as_ref().map_or(0, |reply| reply.capacity_bytes() as u64 + reply.pinned_bytes())
    }
}

impl Drop for Blocked {
    /// What it leaves is done where connections are dropped.
    fn drop(&mut self) {
        let db = self.waiter.db;
        if let Some(Served { moment, key, taken, .. }) = self.waiter.go()
            && !taken.is_empty()
        {
            self.waiters.leave_behind(Left::Taken { moment, key, taken, tries: 0, again_us: 0 });
        }
        self.leave();
        if self.waiter.take_call() {
            for key in &self.waiter.keys {
                self.waiters.leave_behind(Left::Key { db, key: key.clone() });
            }
        }
    }
}
