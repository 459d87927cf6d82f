//! Which connections a change of users closes: those of users that are gone, those that listen to what they may not receive any
//! more, and those that are shown commands by a MONITOR that they may not run any more.
//!
//! The new rules are in force first, then the connections that listen are looked for. A connection that begins to listen
//! meanwhile looks at the rules behind that ([`Call::still_hears`], [`Call::still_monitors`]): one of the two sees the other.
//!
//! EXEC may change users many times. The first change of each closes at once, so that what EXEC publishes behind it does not
//! reach them; further changes of the same user are noted ([`Closing`]), and the end goes through all clients once for all of
//! these.

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

/// What it takes to look at the client of a connection, and as which user it is there.
const CLIENT_NS: u64 = 100;
/// What it takes to look at a name that has subscribers, and at each of these.
const TOPIC_NS: u64 = 100;
const TARGET_NS: u64 = 30;

/// It listens, as one of these users.
fn is_deaf(facts: &ClientFacts, users: &HashSet<u64>) -> bool {
    facts.listens() && users.contains(&facts.user_id())
}

/// It is shown commands, as one of these users.
fn is_blind(facts: &ClientFacts, users: &HashSet<u64>) -> bool {
    facts.monitors.load(Relaxed) && users.contains(&facts.user_id())
}

/// What it takes to go through all clients once.
pub(crate) fn clients_ns(call: &Call<'_, '_, '_>) -> u64 {
    call.shared.clients.count() as u64 * CLIENT_NS
}

impl Call<'_, '_, '_> {
    /// Users were changed: each connection looks at its own again, this one at once.
    pub(crate) fn users_changed(&mut self) {
        self.cx.shared.look_in_time(self.cx.now());
        fence(SeqCst);
        if !self.client.standing.look_again(&self.cx.shared.access) {
            self.flow = Flow::Close(Ending::Error);
        }
    }

    /// The users that the commands of an EXEC at work have changed; none outside of EXEC.
    fn closing(&mut self) -> Option<&mut Closing> {
        if !self.client.executes {
            return None;
        }
        Some(self.client.closing.get_or_insert_default())
    }

    /// EXEC has run its commands: closes connections that further changes of a user concern.
    pub(crate) fn close_noted(&mut self) {
        let Some(closing) = self.client.closing.take() else { return };
        let (deaf, blind) = (closing.deaf.again, closing.blind.again);
        if !deaf.is_empty() || !blind.is_empty() {
            self.close_all(|facts| is_deaf(facts, &deaf) || is_blind(facts, &blind));
        }
    }

    /// Closes the connections of users that are gone, by the users' numbers; those of memcached's clients their workers close.
    pub(super) fn close_those(&mut self, is_gone: &dyn Fn(u64) -> bool) {
        self.close_all(|facts| is_gone(facts.user_id()));
        self.cx.host.users_removed();
    }

    /// Goes through all clients, and closes those that are to be.
    fn close_all(&mut self, are_closed: impl Fn(&ClientFacts) -> bool) {
        let clients = self.shared.clients.list();
        self.spend(clients.len() as u64 * CLIENT_NS);
        for facts in clients.iter().filter(|facts| are_closed(facts)) {
            self.close_client(facts);
        }
    }

    /// Closes the connections that are shown every command by MONITOR, which their users may not run any more.
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

    /// Closes a connection: this one behind its reply, also where that comes in a later turn.
    fn close_client(&mut self, facts: &Arc<ClientFacts>) {
        let is_own = Arc::ptr_eq(facts, &self.client.facts);
        if is_own {
            self.flow = Flow::Close(Ending::Error);
        }
        if facts.turn_out(&self.cx.shared.access.log) && !is_own {
            self.cx.host.kill(facts.place, facts.id);
        }
    }

    /// Closes the connections of these users that listen to what they may not listen to any more, and says OK. It looks at some
    /// of all names a step; in EXEC, which has no steps, each of their connections that listens to anything is closed.
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

/// All names that are listened to, gone through for some of the clients that listen.
#[derive(Debug)]
struct Deafening {
    users: Vec<Arc<User>>,
    /// The clients that listen, by their numbers, and as which of the users.
    listening: HashMap<u64, (Arc<ClientFacts>, usize)>,
    /// Which names are next, and those that are left of the part before.
    kind: Kind,
    part: usize,
    names: Vec<Arc<[u8]>>,
}

impl Deafening {
    /// Goes through one name: what that took, or none if there is none left.
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
        // What was found for a user holds for all of its connections.
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

    /// The new rules are in force already: if this job is dropped, remaining subscribers keep channels that are forbidden.
    fn must_end(&self) -> bool {
        true
    }
}
