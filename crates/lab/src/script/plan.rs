//! The requests of each connection, before they are rendered.
//!
//! If one load reads and changes keys, each key has one connection that changes it: writes go to the owner of their key, and
//! reads fill the rest. Keys are distributed by how often they are changed, the hottest first, so that all connections have as
//! many requests in the same mix, and the whole keeps the popularity of keys. The owner knows the contents of its key when it
//! reads it. A key that is changed more often than a connection has requests has no owner: all connections change it, and none
//! knows its contents.
//!
//! A write with a token needs a read before it: the read is put in one window and the write, whose token is filled in when it is
//! sent, first in the next. The changes of the key between them decide whether the write must be done or must be refused, and the
//! connection knows which.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use larder_protocol::client::Protocol;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::error::Error;
use crate::keys::{Choice, Chooser};
use crate::workload::{Verb, Workload};

/// Memory that the scripts of one workload may take, unless a single window per connection needs more.
const SCRIPTS_BYTES_MAX: usize = 64 << 20;

/// Scripts above this size are refused: see [`Workload::renderable`].
const SCRIPTS_BYTES_LIMIT: u64 = 2 << 30;
/// Bytes of a request besides its text, and of a key with an owner, about.
const REQUEST_KEPT_BYTES: u64 = 128;
const KEY_KEPT_BYTES: u64 = 24;

/// The requests of one connection, before they are bytes.
pub(super) type Plan = Vec<(Verb, Vec<u32>)>;
/// The owner of a key that all connections change.
pub(super) const ALLS: usize = usize::MAX;

impl Workload {
    /// Whether [`Workload::scripts`] has room for the scripts.
    ///
    /// # Errors
    /// [`Error::Usage`] when they take more than 2 GiB.
    pub fn renderable(&self) -> Result<(), Error> {
        let (request, count) =
            (self.request_bytes() as u64 + REQUEST_KEPT_BYTES, u64::from(self.keyspace.count));
        let requests = match self.mix.only().filter(|_| self.choice == Choice::Sequential) {
            // A swap has a read before it.
            Some(_) => count * if self.swaps() { 2 } else { 1 },
            None => (self.requests_each() as u64).saturating_mul(self.connections as u64),
        };
        let keys = if self.mix.reads_own_writes() { count * KEY_KEPT_BYTES } else { 0 };
        let bytes = requests.saturating_mul(request).saturating_add(keys);
        if bytes <= SCRIPTS_BYTES_LIMIT {
            return Ok(());
        }
        let why = "requests are rendered before they are sent, and these take";
        Err(Error::Usage(format!("{why} {} MiB: fewer keys, connections or requests at a time", bytes >> 20)))
    }

    /// Each key once, distributed among the connections; each connection owns its keys, where that matters.
    pub(super) fn in_turn(&self, verb: Verb) -> (Vec<Plan>, Option<Vec<usize>>) {
        let share = |n: usize| (self.keyspace.count as usize * n / self.connections) as u32;
        let shares = (0..self.connections).map(|connection| share(connection)..share(connection + 1));
        let plan = |ids: Range<u32>| {
            let ids: Vec<u32> = ids.map(|id| self.keyspace.first + id).collect();
            let requests = ids.chunks(self.keys_of(verb)).map(|ids| {
                // A last request with too few keys gets its first ones again.
                let ids = ids.iter().cycle().take(self.keys_of(verb)).copied().collect();
                (verb, ids)
            });
            let plan: Plan = requests.collect();
            if self.swaps() { self.with_tokens_of_all(plan) } else { plan }
        };
        let owners = self.mix.reads_own_writes().then(|| {
            shares.clone().enumerate().flat_map(|(connection, ids)| ids.map(move |_| connection)).collect()
        });
        (shares.map(plan).collect(), owners)
    }

    /// How many requests each connection has: whole windows.
    fn requests_each(&self) -> usize {
        let per_request = self.keys_per_request;
        let wanted = (2 * self.keyspace.count as usize).max(65_536);
        let windows = wanted.div_ceil(self.connections).div_ceil(self.pipeline * per_request);
        let window_bytes = self.request_bytes() * self.pipeline;
        let windows_max = (SCRIPTS_BYTES_MAX / self.connections / window_bytes).max(1);
        windows.min(windows_max) * self.pipeline
    }

    fn draw(&self, rng: &mut StdRng) -> Verb {
        let mut point: f64 = rng.random();
        let mut last = None;
        for (verb, share) in self.mix.parts() {
            point -= share;
            last = Some(verb);
            if point < 0.0 {
                break;
            }
        }
        last.expect("a mix asks for something")
    }

    /// Draws requests for every connection by itself.
    pub(super) fn drawn(&self, seed: u64) -> Vec<Plan> {
        let requests = self.requests_each();
        let plan = |connection: usize| {
            let seed = seed.wrapping_add(connection as u64);
            let mut chooser = Chooser::new(self.keyspace, self.choice, seed);
            let mut rng = StdRng::seed_from_u64(seed ^ 1 << 63);
            let request = |_| {
                let verb = self.draw(&mut rng);
                (verb, (0..self.keys_of(verb)).map(|_| chooser.next_key()).collect())
            };
            (0..requests).map(request).collect()
        };
        (0..self.connections).map(plan).collect()
    }

    /// The connection that changes each key: all connections get equally many of `changes`, and none more than `most`. A key for
    /// which no connection has room is [`ALLS`].
    fn owners(&self, changes: &[(Verb, Vec<u32>)], most: usize) -> Vec<usize> {
        let mut of_key = vec![0usize; self.keyspace.count as usize];
        for (_, keys) in changes {
            of_key[(keys[0] - self.keyspace.first) as usize] += 1;
        }
        let mut hottest: Vec<usize> = (0..of_key.len()).collect();
        hottest.sort_by_key(|&key| Reverse(of_key[key]));
        let mut least: BinaryHeap<_> =
            (0..self.connections).map(|connection| Reverse((0, connection))).collect();
        let mut owners = vec![0; of_key.len()];
        for key in hottest {
            let Reverse((has, connection)) = least.pop().expect("as many as there are connections");
            // A key without changes has a weight, too: connections take turns in reading it. These keys come last.
            let (owner, weighs) = match of_key[key] {
                0 => (connection, 1),
                changes if has + changes <= most => (connection, changes),
                _ => (ALLS, 0),
            };
            owners[key] = owner;
            least.push(Reverse((has + weighs, connection)));
        }
        owners
    }

    /// Draws one stream of requests; changes go to the connection that owns their key.
    pub(super) fn owned(&self, seed: u64) -> (Vec<Plan>, Option<Vec<usize>>) {
        let requests = self.requests_each();
        let mut chooser = Chooser::new(self.keyspace, self.choice, seed);
        let mut rng = StdRng::seed_from_u64(seed ^ 1 << 63);
        let mut plans: Vec<Plan> = vec![Plan::with_capacity(requests); self.connections];
        let (mut reads, changes): (Vec<_>, Vec<_>) = (0..requests * self.connections)
            .map(|_| {
                let verb = self.draw(&mut rng);
                (verb, (0..self.keys_of(verb)).map(|_| chooser.next_key()).collect::<Vec<u32>>())
            })
            .partition(|(verb, _)| verb.is_read());
        // A little more than its share, so that nearly all keys have an owner where all requests are changes.
        let owners = self.owners(&changes, requests + requests / 16);
        let (alls, own): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|(_, keys)| owners[self.place_of(keys[0])] == ALLS);
        for (verb, keys) in own {
            plans[owners[self.place_of(keys[0])]].push((verb, keys));
        }
        // As many requests were drawn as all connections have room for.
        let mut least: BinaryHeap<_> =
            plans.iter().enumerate().map(|(connection, plan)| Reverse((plan.len(), connection))).collect();
        for change in alls {
            let Reverse((has, connection)) = least.pop().expect("as many as there are connections");
            plans[connection].push(change);
            least.push(Reverse((has + 1, connection)));
        }
        for plan in &mut plans {
            let room = requests.saturating_sub(plan.len()).min(reads.len());
            plan.extend(reads.drain(reads.len() - room..));
            plan.shuffle(&mut rng);
            if self.swaps() {
                *plan = self.with_tokens(std::mem::take(plan));
            }
        }
        (plans, Some(owners))
    }

    /// The place of a key in the keyspace.
    pub(super) fn place_of(&self, id: u32) -> usize {
        (id - self.keyspace.first) as usize
    }

    /// Whether there are writes with tokens.
    pub(crate) fn swaps(&self) -> bool {
        self.protocol != Protocol::Resp && self.mix.has(Verb::Cas)
    }

    /// Puts a window of reads with their tokens before each window of a plan of writes.
    fn with_tokens_of_all(&self, plan: Plan) -> Plan {
        let windows = plan.chunks(self.pipeline).map(|window| {
            // As many reads as a window has requests, so that the writes begin one.
            let reads = window.iter().map(|(_, keys)| (Verb::Gets, keys.clone())).cycle();
            reads.take(self.pipeline).chain(window.iter().cloned()).collect::<Plan>()
        });
        windows.flatten().collect()
    }

    /// Puts a read with its token in place of each write with one, and the write at the beginning of the next window. The plan
    /// keeps its length.
    fn with_tokens(&self, plan: Plan) -> Plan {
        let requests = plan.len();
        let mut whole = Plan::with_capacity(2 * requests);
        let mut due: Vec<Vec<u32>> = Vec::new();
        let mut rest = plan.into_iter();
        while whole.len() < requests {
            let mut room = self.pipeline;
            let mut swaps = std::mem::take(&mut due);
            // Never more than a window has room for: each key was read in the window before.
            room -= swaps.len();
            whole.extend(swaps.drain(..).map(|keys| (Verb::Cas, keys)));
            for (verb, keys) in rest.by_ref().take(room) {
                if verb == Verb::Cas {
                    due.push(keys.clone());
                }
                whole.push((if verb == Verb::Cas { Verb::Gets } else { verb }, keys));
            }
        }
        whole.truncate(requests);
        whole
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::sync::Arc;

    use super::*;
    use crate::keys::Keyspace;
    use crate::mix::Mix;
    use crate::script::{NOBODYS, Request, Script};

    fn workload(protocol: Protocol, verb: Verb) -> Workload {
        Workload { connections: 3, pipeline: 7, ..Workload::new(protocol, verb, Keyspace::new(1000, 32)) }
    }

    #[test]
    fn a_mix_keeps_its_shares_and_gives_each_key_one_writer() {
        let workload = Workload {
            mix: Mix::of(&[(Verb::Hit, 8), (Verb::Set, 1), (Verb::Incr, 1)]),
            choice: Choice::Zipf(0.9),
            keyspace: Keyspace::new(5000, 32),
            connections: 8,
            ..workload(Protocol::Classic, Verb::Hit)
        };
        let scripts = workload.scripts(1);
        let mut writers: HashMap<u32, usize> = HashMap::new();
        let mut owners: HashMap<u32, usize> = HashMap::new();
        for (connection, script) in scripts.iter().enumerate() {
            assert_eq!(script.requests.len(), scripts[0].requests.len());
            let mut sets = 0;
            for request in &script.requests {
                let key = script.keys[request.keys_end as usize - 1];
                if !request.verb.is_read() {
                    sets += u32::from(request.verb == Verb::Set);
                    assert_eq!(*writers.entry(key.id).or_insert(connection), connection);
                }
                if key.slot != NOBODYS {
                    assert_eq!(*owners.entry(key.id).or_insert(connection), connection);
                }
            }
            // Each connection's share, whichever owns the hottest key.
            let share = f64::from(sets) / script.requests.len() as f64;
            assert!((share - 0.1).abs() < 0.01, "connection {connection}: {share}");
        }
        assert!(writers.iter().all(|(key, connection)| owners[key] == *connection));
    }

    #[test]
    fn a_key_that_is_changed_more_often_than_one_connection_asks_is_changed_by_all() {
        for (choice, keys) in [(Choice::One, 100), (Choice::Hot(0.6), 100), (Choice::Uniform, 3)] {
            let workload = Workload {
                mix: Mix::of(&[(Verb::Hit, 1), (Verb::Set, 1)]),
                choice,
                keyspace: Keyspace::new(keys, 32),
                connections: 8,
                ..workload(Protocol::Classic, Verb::Hit)
            };
            let scripts = workload.scripts(1);
            let count = |of: &dyn Fn(&Script, &Request) -> bool| {
                let of_script =
                    |script: &Arc<Script>| script.requests.iter().filter(|one| of(script, one)).count();
                scripts.iter().map(of_script).sum::<usize>() as f64
            };
            let all = count(&|_, _| true);
            assert!(scripts.iter().all(|script| script.requests.len() as f64 == all / 8.0), "{choice:?}");
            let sets = count(&|_, request| request.verb == Verb::Set) / all;
            assert!((sets - 0.5).abs() < 0.01, "{choice:?}: {sets}");
            // The popularity is right for writes and for reads, and no connection claims to know the contents of such a key.
            let key_of = |script: &Script, request: &Request| script.keys[request.keys_end as usize - 1];
            let hottest = |script: &Script, request: &Request| key_of(script, request).id == 0;
            let share = |verb: Verb| {
                count(&|script, request| request.verb == verb && hottest(script, request))
                    / count(&|_, request| request.verb == verb)
            };
            let wanted = match choice {
                Choice::One => 1.0,
                Choice::Hot(share) => share,
                _ => 1.0 / 3.0,
            };
            for verb in [Verb::Hit, Verb::Set] {
                assert!((share(verb) - wanted).abs() < 0.02, "{choice:?}, {verb:?}: {}", share(verb));
            }
            let known =
                count(&|script, request| hottest(script, request) && key_of(script, request).slot != NOBODYS);
            assert_eq!(known, 0.0, "{choice:?}");
        }
    }

    #[test]
    fn a_swap_has_a_token_of_its_own_connection_whoever_else_changes_the_key() {
        for choice in [Choice::One, Choice::Sequential, Choice::Zipf(1.2)] {
            let workload = Workload {
                mix: Verb::Cas.into(),
                choice,
                keyspace: Keyspace::new(50, 32),
                connections: 4,
                ..workload(Protocol::Classic, Verb::Cas)
            };
            for script in workload.scripts(1) {
                let mut read = HashSet::new();
                for window in &script.windows {
                    let mut now = Vec::new();
                    for request in &script.requests[window.requests.clone()] {
                        let slot = script.keys[request.keys_end as usize - 1].slot;
                        assert!((slot as usize) < script.token_slots, "{choice:?}: {slot}");
                        let own = (slot as usize) < script.slots;
                        assert!(own || choice != Choice::Sequential, "{choice:?}: {slot}");
                        assert!(!own || choice != Choice::One, "{choice:?}: {slot}");
                        match request.verb {
                            Verb::Gets => now.push(slot),
                            verb => assert!(verb == Verb::Cas && read.contains(&slot), "{choice:?}"),
                        }
                    }
                    read.extend(now);
                }
                assert!(script.requests.iter().any(|request| request.verb == Verb::Cas));
            }
        }
    }

    #[test]
    fn what_takes_too_much_memory_to_render_is_refused() {
        let usual = workload(Protocol::Classic, Verb::Set);
        assert!(usual.renderable().is_ok());
        let large = Keyspace::new(1000, 1 << 20);
        for bad in [
            Workload { choice: Choice::Sequential, keyspace: Keyspace::new(u32::MAX, 32), ..usual.clone() },
            Workload { choice: Choice::Sequential, keyspace: Keyspace::new(4000, 1 << 20), ..usual.clone() },
            Workload { mix: Verb::Incr.into(), keyspace: Keyspace::new(u32::MAX, 32), ..usual.clone() },
            Workload { connections: u32::MAX as usize, ..usual.clone() },
            Workload { pipeline: 10_000, keyspace: large, ..usual.clone() },
        ] {
            assert!(bad.renderable().unwrap_err().to_string().contains("MiB: fewer keys"), "{bad:?}");
        }
        assert!(Workload { keyspace: large, ..usual }.renderable().is_ok());
    }
}
