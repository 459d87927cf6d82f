//! Subscribing and unsubscribing. Each name has an answer of its own, and many names are gone through in steps.

use std::sync::atomic::Ordering::Relaxed;

use larder_protocol::resp::Args;

use super::{ANSWER_BYTES, Kind, PASS_NS, answers_bytes, bounded_name};
use crate::core::access::Snapshot;
use crate::core::topics::Topics;
use crate::core::work::copying_ns;
use crate::redis::call::{Call, late};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_bulk, put_integer, put_null};
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::Kept;

/// Work to subscribe to a name, or to unsubscribe.
const SUBSCRIBE_NS: u64 = 1_000;
/// Names that one step goes through, at most.
const NAMES_AT_ONCE: usize = 256;
/// Items are evicted for subscriptions each time so many have come.
const SUBSCRIPTIONS_AT_ONCE: usize = 1 << 10;

/// The word in the answer to a change.
fn word(kind: Kind, adds: bool) -> &'static [u8] {
    match (kind, adds) {
        (Kind::Channel, true) => b"subscribe",
        (Kind::Pattern, true) => b"psubscribe",
        (Kind::Shard, true) => b"ssubscribe",
        (Kind::Channel, false) => b"unsubscribe",
        (Kind::Pattern, false) => b"punsubscribe",
        (Kind::Shard, false) => b"sunsubscribe",
    }
}

/// Serves SUBSCRIBE, PSUBSCRIBE and SSUBSCRIBE.
pub(super) fn subscribe(call: &mut Call<'_, '_, '_>, args: Args<'_>, kind: Kind) -> Done {
    for name in args {
        bounded_name(kind, name)?;
    }
    if takes_steps(call, args.len()) {
        let kept = Some(Kept::new(call, args)?);
        // The words of a gathered request are kept before the next step.
        let user = call.client.standing.snapshot();
        call.go_on_with(Changing { kind, adds: true, kept, user });
        return Ok(());
    }
    call.spend(args.len() as u64 * SUBSCRIBE_NS);
    call.make_room(answers_bytes(args))?;
    let user = call.client.standing.snapshot();
    for name in args {
        if let Err(fail) = call.listen(&user, kind, name) {
            call.end_change();
            return Err(fail);
        }
    }
    call.end_change();
    Ok(())
}

/// Serves UNSUBSCRIBE, PUNSUBSCRIBE and SUNSUBSCRIBE.
pub(super) fn unsubscribe(call: &mut Call<'_, '_, '_>, args: Args<'_>, kind: Kind) -> Done {
    let names = call.subscriptions().names_of(kind);
    let count = if args.is_empty() { names.len() } else { args.len() };
    if takes_steps(call, count) {
        let kept = if args.is_empty() { None } else { Some(Kept::new(call, args)?) };
        let user = call.client.standing.snapshot();
        call.go_on_with(Changing { kind, adds: false, kept, user });
        return Ok(());
    }
    call.spend(count as u64 * SUBSCRIBE_NS);
    if !args.is_empty() {
        call.make_room(answers_bytes(args))?;
        args.for_each(|name| call.listen_no_more(kind, name));
    } else if count == 0 {
        let count = call.subscriptions().len(kind);
        call.push(3);
        put_bulk(call.out, word(kind, false));
        put_null(call.out, call.client.resp3);
        put_integer(call.out, count as i64);
    } else {
        let bytes = call.subscriptions().names_of(kind).iter().map(|name| name.len() + ANSWER_BYTES).sum();
        call.make_room(bytes)?;
        while let Some(name) = call.subscriptions().names_of(kind).first().cloned() {
            call.listen_no_more(kind, &name);
        }
    }
    call.end_change();
    Ok(())
}

/// Work to subscribe to these names.
pub(crate) fn listening_ns(names: Args<'_>) -> u64 {
    names.len() as u64 * SUBSCRIBE_NS + copying_ns(names.encoded().len() as u64)
}

/// Work to unsubscribe from a name, passing its other subscribers.
fn ending_one_ns(topics: &Topics, kind: Kind, name: &[u8]) -> u64 {
    SUBSCRIBE_NS + copying_ns(name.len() as u64) + topics.listeners(kind, name) as u64 * PASS_NS
}

/// Work to unsubscribe from these names.
pub(crate) fn ending_ns(call: &Call<'_, '_, '_>, kind: Kind, names: Args<'_>) -> u64 {
    let topics = &call.cx.shared.topics;
    names.map(|name| ending_one_ns(topics, kind, name)).sum()
}

/// Work to unsubscribe from all names of a kind; it stops counting beyond `ns_max`.
pub(crate) fn ending_all_ns(call: &Call<'_, '_, '_>, kind: Kind, ns_max: u64) -> u64 {
    let Some(subscriptions) = &call.client.subscriptions else { return 0 };
    let topics = &call.cx.shared.topics;
    let mut ns = 0;
    for name in subscriptions.names_of(kind) {
        ns += ending_one_ns(topics, kind, name);
        if ns > ns_max {
            break;
        }
    }
    ns
}

fn takes_steps(call: &Call<'_, '_, '_>, names: usize) -> bool {
    names > NAMES_AT_ONCE && !call.cx.guard.in_transaction()
}

impl Call<'_, '_, '_> {
    /// Subscribes to a name that the user was allowed as it was in `user`, and answers.
    ///
    /// # Errors
    /// Subscriptions have their share of the memory, or the user may no longer listen to the name.
    fn listen(&mut self, user: &Snapshot, kind: Kind, name: &[u8]) -> Done {
        // A command that takes channels away looks at clients that it sees listen.
        self.client.facts.listens[0].fetch_max(1, Relaxed);
        if !self.subscriptions().add(kind, name) {
            return Err(Fail::of("ERR too many subscriptions"));
        }
        if let Err(fail) = self.still_hears(user, name, kind == Kind::Pattern) {
            self.subscriptions().remove(kind, name);
            return Err(fail);
        }
        if self.answer_change(kind, true, name).is_multiple_of(SUBSCRIPTIONS_AT_ONCE) {
            // In a transaction items are evicted afterwards.
            self.give_way();
        }
        Ok(())
    }

    /// Unsubscribes from a name, and answers.
    fn listen_no_more(&mut self, kind: Kind, name: &[u8]) {
        if self.subscriptions().leave(kind, name) {
            // A client that published before has counted this subscriber.
            self.tell_published();
            self.subscriptions().forget(kind, name);
        }
        self.answer_change(kind, false, name);
    }

    /// Writes what was published to the client so far: between two of its answers; in EXEC, to be sent behind it.
    fn tell_published(&mut self) {
        let Some(subscriptions) = &self.client.subscriptions else { return };
        let deliveries = self.cx.host.fetch(self.client.facts.place, self.client.facts.id);
        if !self.client.executes
            && let Some(late) = self.client.late.take()
        {
            self.out.put(late.contiguous().expect("messages have no values spliced in"));
        }
        if deliveries.is_empty() {
            return;
        }
        let out = if self.client.executes { late(&mut self.client.late, self.out) } else { &mut *self.out };
        for delivery in deliveries {
            subscriptions.deliver(self.client.resp3, &delivery.message, out);
        }
    }

    /// Answers for one name; returns how many names there are now.
    fn answer_change(&mut self, kind: Kind, adds: bool, name: &[u8]) -> usize {
        let count = self.subscriptions().len(kind);
        self.push(3);
        put_bulk(self.out, word(kind, adds));
        put_bulk(self.out, name);
        put_integer(self.out, count as i64);
        count
    }

    /// Whether the client has more subscriptions than one step ends.
    pub(crate) fn listens_to_many(&self) -> bool {
        self.client.subscriptions.as_ref().is_some_and(|all| all.count() > NAMES_AT_ONCE)
    }

    /// Ends some of the client's subscriptions; true while there are many more.
    pub(crate) fn forget_some_names(&mut self) -> bool {
        let (ns_max, mut ns) = (self.step_ns(), 0);
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            while ns < ns_max
                && let Some(name) = self.subscriptions().names_of(kind).first().cloned()
            {
                self.subscriptions().remove(kind, &name);
                ns += SUBSCRIBE_NS;
            }
        }
        self.spend(ns);
        self.listens_to_many()
    }

    /// Ends a command: shows others the client's subscriptions, and frees what it no longer needs.
    fn end_change(&mut self) {
        if self.client.subscriptions.as_ref().is_some_and(|all| all.count() == 0 && !all.monitors()) {
            self.client.subscriptions = None;
        }
        self.client.show_subscriptions();
    }
}

/// A command that goes through many names in steps.
#[derive(Debug)]
struct Changing {
    kind: Kind,
    adds: bool,
    /// The names; `None`: all names that the client is subscribed to.
    kept: Option<Kept>,
    /// The client's user when the command began.
    user: Snapshot,
}

impl Changing {
    /// Goes through one name; false if there is none left.
    fn change_one(&mut self, call: &mut Call<'_, '_, '_>) -> Result<bool, Fail> {
        let Changing { kind, adds, kept, user } = self;
        let change = |call: &mut Call<'_, '_, '_>, name: &[u8]| match *adds {
            true => call.listen(user, *kind, name),
            false => {
                call.listen_no_more(*kind, name);
                Ok(())
            }
        };
        match kept {
            Some(kept) => kept.take(|words| words.next().map(|name| change(call, name))).transpose(),
            None => {
                let name = call.subscriptions().names_of(*kind).first().cloned();
                name.map(|name| change(call, &name)).transpose()
            }
        }
        .map(|one| one.is_some())
    }
}

impl Job for Changing {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let step = loop {
            if call.out.is_full() {
                break Ok(Step::Full);
            }
            if ns >= ns_max {
                break Ok(Step::More);
            }
            ns += SUBSCRIBE_NS;
            match self.change_one(call) {
                Ok(true) => {}
                Ok(false) => break Ok(Step::Done),
                Err(fail) => break Err(fail),
            }
        };
        call.spend(ns);
        call.end_change();
        step
    }

    fn asks_itself(&self) -> bool {
        true
    }

    fn held_bytes(&self) -> u64 {
        self.kept.as_ref().map_or(0, Kept::held_bytes)
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        self.kept.as_mut()
    }
}
