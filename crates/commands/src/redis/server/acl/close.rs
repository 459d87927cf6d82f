//! Connections that a change of users closes: those of removed users, those that listen to channels they may no longer receive,
//! and those of MONITOR that may no longer run it.
//!
//! The new rules are in force first, and then the listening connections are looked for. A connection that begins to listen
//! meanwhile looks at the rules after that ([`Call::still_hears`], [`Call::still_monitors`]): one of the two sees the other.
//!
//! EXEC may change users many times. The first change of each user closes at once, so that what EXEC publishes behind it does not
//! reach them; further changes of that user are noted ([`Closing`]), and EXEC goes through all clients once for these at its end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

use smallvec::SmallVec;

use crate::core::acl::user::User;
use crate::core::progress::Ending;
use crate::core::topics::Kind;
use crate::core::work::copying_ns;
use crate::redis::call::{Call, Flow};
use crate::redis::closing::Closing;
use crate::redis::facts::ClientFacts;
use crate::redis::fail::{Done, Fail};
use crate::redis::permissions::may_monitor;
use crate::redis::steps::job::{Job, Step};

/// Work to look at a client, and at its user.
const CLIENT_NS: u64 = 100;
/// Work to look at a name with subscribers, and at each of these.
const TOPIC_NS: u64 = 100;
const TARGET_NS: u64 = 30;

/// Whether the client listens, as one of these users.
fn is_deaf(facts: &ClientFacts, users: &HashSet<u64>) -> bool {
    facts.listens() && users.contains(&facts.user_id())
}

/// Whether the client is a monitor, as one of these users.
fn is_blind(facts: &ClientFacts, users: &HashSet<u64>) -> bool {
    facts.monitors.load(Relaxed) && users.contains(&facts.user_id())
}

/// Work to go through all clients once.
pub(crate) fn clients_ns(call: &Call<'_, '_, '_>) -> u64 {
    call.shared.clients.count() as u64 * CLIENT_NS
}

impl Call<'_, '_, '_> {
    /// Notes that users were changed: each connection looks at its own again, this one at once.
    pub(crate) fn users_changed(&mut self) {
        self.cx.shared.look_in_time(self.cx.now());
        fence(SeqCst);
        if !self.client.standing.look_again(&self.cx.shared.access) {
            self.flow = Flow::Close(Ending::Error);
        }
    }

    /// The users that the running EXEC has changed; `None` outside of EXEC.
    fn closing(&mut self) -> Option<&mut Closing> {
        if !self.client.executes {
            return None;
        }
        Some(self.client.closing.get_or_insert_default())
    }

    /// At the end of EXEC's commands, closes connections that further changes of a user concern.
    pub(crate) fn close_noted(&mut self) {
        let Some(closing) = self.client.closing.take() else { return };
        let (deaf, blind) = (closing.deaf.again, closing.blind.again);
        if !deaf.is_empty() || !blind.is_empty() {
            self.close_all(|facts| is_deaf(facts, &deaf) || is_blind(facts, &blind));
        }
    }

    /// Closes the connections of removed users, by the users' numbers. Those of memcached's clients are closed by their workers.
    pub(super) fn close_those(&mut self, is_gone: &dyn Fn(u64) -> bool) {
        self.close_all(|facts| is_gone(facts.user_id()));
        self.cx.host.users_removed();
    }

    /// Goes through all clients, and closes those for which `are_closed` is true.
    fn close_all(&mut self, are_closed: impl Fn(&ClientFacts) -> bool) {
        let clients = self.shared.clients.list();
        self.spend(clients.len() as u64 * CLIENT_NS);
        for facts in clients.iter().filter(|facts| are_closed(facts)) {
            self.close_client(facts);
        }
    }

    /// Closes the monitors of users that may no longer run MONITOR.
    pub(super) fn close_monitors(&mut self, users: &[Arc<User>]) {
        if !self.cx.shared.topics.monitored() {
            return;
        }
        let mut blind: HashSet<u64> =
            users.iter().filter(|user| !may_monitor(self.shared.rows, user)).map(|user| user.id).collect();
        if let Some(closing) = self.closing() {
            blind.retain(|&user| closing.blind.is_first(user));
        }
        if !blind.is_empty() {
            self.close_all(|facts| is_blind(facts, &blind));
        }
    }

    /// Closes a connection; this call's own behind its reply, even if that comes in a later turn.
    fn close_client(&mut self, facts: &Arc<ClientFacts>) {
        let is_own = Arc::ptr_eq(facts, &self.client.facts);
        if is_own {
            self.flow = Flow::Close(Ending::Error);
        }
        if facts.turn_out(&self.cx.shared.access.log) && !is_own {
            self.cx.host.kill(facts.place, facts.id);
        }
    }

    /// Closes the connections of these users that listen to channels they may no longer receive, and replies OK. A step looks at
    /// some of all names; in EXEC, which has no steps here, all their listening connections are closed.
    pub(super) fn close_deaf(&mut self, users: Vec<Arc<User>>) -> Done {
        if users.is_empty() {
            return self.ok();
        }
        if let Some(closing) = self.closing() {
            let mut deaf: HashSet<u64> = users.iter().map(|user| user.id).collect();
            deaf.retain(|&user| closing.deaf.is_first(user));
            if !deaf.is_empty() {
                self.close_all(|facts| is_deaf(facts, &deaf));
            }
            return self.ok();
        }
        let clients = self.shared.clients.list();
        self.spend(clients.len() as u64 * CLIENT_NS);
        let places: HashMap<u64, usize> = users.iter().enumerate().map(|(at, user)| (user.id, at)).collect();
        let listening: HashMap<u64, (Arc<ClientFacts>, usize)> = clients
            .into_iter()
            .filter(|facts| facts.listens())
            .filter_map(|facts| {
                let user = *places.get(&facts.user_id())?;
                Some((facts.id, (facts, user)))
            })
            .collect();
        if listening.is_empty() {
            return self.ok();
        }
        self.work(Deafening { users, listening, kind: Kind::Channel, part: 0, names: Vec::new() })
    }
}

/// A search through all names with subscribers, for listening clients that may no longer receive them.
#[derive(Debug)]
struct Deafening {
    users: Vec<Arc<User>>,
    /// The listening clients by number, with the places of their users in `users`.
    listening: HashMap<u64, (Arc<ClientFacts>, usize)>,
    /// The kind and part of names that come next, and the names that are left of the part before.
    kind: Kind,
    part: usize,
    names: Vec<Arc<[u8]>>,
}

impl Deafening {
    /// Looks at one name, and returns the work; `None` if there is none left.
    fn one(&mut self, call: &mut Call<'_, '_, '_>) -> Option<u64> {
        let topics = &call.cx.shared.topics;
        let Some(name) = self.names.pop() else {
            match topics.names_in(self.kind, self.part) {
                Some(names) => (self.names, self.part) = (names, self.part + 1),
                None => {
                    self.part = 0;
                    self.kind = match self.kind {
                        Kind::Channel => Kind::Shard,
                        Kind::Shard => Kind::Pattern,
                        Kind::Pattern => return None,
                    };
                }
            }
            return Some(TOPIC_NS * (1 + self.names.len() as u64 / 4));
        };
        let targets = topics.targets(self.kind, &name);
        let mut ns = TOPIC_NS + TARGET_NS * targets.len() as u64 + copying_ns(name.len() as u64);
        // A check of a user holds for all its connections.
        let mut heard: SmallVec<[(usize, bool); 4]> = SmallVec::new();
        let mut deaf = Vec::new();
        for target in targets {
            let Some(&(_, user)) = self.listening.get(&target.client) else { continue };
            let known = heard.iter().find(|(at, _)| *at == user).map(|(_, hears)| *hears);
            let hears = known.unwrap_or_else(|| {
                let mut looked_ns = 0;
                let hears = self.users[user].may_hear(&name, self.kind == Kind::Pattern, &mut looked_ns);
                ns += looked_ns;
                heard.push((user, hears));
                hears
            });
            if !hears {
                deaf.extend(self.listening.remove(&target.client));
            }
        }
        deaf.iter().for_each(|(facts, _)| call.close_client(facts));
        Some(ns)
    }
}

impl Job for Deafening {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        while ns < ns_max {
            match self.one(call) {
                Some(took) if !self.listening.is_empty() => ns += took,
                _ => {
                    call.spend(ns);
                    call.ok()?;
                    return Ok(Step::Done);
                }
            }
        }
        call.spend(ns);
        Ok(Step::More)
    }

    /// The new rules are in force already: if this job were dropped, subscribers would keep forbidden channels.
    fn must_end(&self) -> bool {
        true
    }
}
