//! What one connection sends, rendered before any clock runs.
//!
//! A [`Script`] is windows of pipelined requests, sent one after the other and then from the start again.
//! Beside the bytes it keeps the number and the place of every key, in the order of the requests, so that
//! a reply is checked without a look-up, and how long the reply of each window is.
//!
//! ```text
//! bytes    | get key:17\r\n get key:4\r\n … | get key:99\r\n … |   windows[0], windows[1], …
//! requests | hit, ends at 12; …               | …                |   what each is, where it ends
//! keys     | (17, 4) (4, 16) …                | (99, …) …        |   number, place in bytes
//! ```
//!
//! Where keys are read and changed by one load, each key has one connection that changes it: a write is
//! given to the connection that owns its key, and reads fill the rest. Keys are shared out by how often
//! they are changed, the hottest first, so that all connections have as many requests in the same mix,
//! and the whole keeps the popularity of keys asked for. That connection knows what the key must hold
//! when it reads it.
//!
//! A write with a token needs a read before it: the read is put in one window and the write, whose
//! token is filled in when it goes out, first in the next. What happens to the key between them decides
//! whether the write must happen or must be refused, and the connection knows which.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use larder_protocol::client::Protocol;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::keys::{Choice, Chooser};
use crate::value;
use crate::workload::{Verb, Workload};

/// A key in a script.
#[derive(Clone, Copy, Debug)]
pub struct KeyAt {
    /// Its number.
    pub id: u32,
    /// Where in [`Script::bytes`] it starts.
    pub at: u32,
    /// Its place among the keys that only this connection changes, or [`NOBODYS`].
    pub slot: u32,
}

/// The [`KeyAt::slot`] of a key about which this connection knows nothing.
pub const NOBODYS: u32 = u32::MAX;

/// Digits of a token in a request: as many as the longest has, so that it is written where it stands.
const TOKEN_DIGITS: usize = 20;
/// The token of who has none: no server gives it out.
pub const NO_TOKEN: u64 = u64::MAX;

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What it does.
    pub verb: Verb,
    /// Where its keys end in [`Script::keys`].
    pub keys_end: u32,
    /// Where the value of a write starts in [`Script::bytes`].
    pub value_at: u32,
}

/// Requests that are sent together.
#[derive(Clone, Debug)]
pub struct Window {
    /// Their place in [`Script::bytes`].
    pub bytes: Range<usize>,
    /// Their keys' place in [`Script::keys`].
    pub keys: Range<usize>,
    /// Their place in [`Script::requests`].
    pub requests: Range<usize>,
    /// Bytes of all replies when each is as expected; 0 where nobody can know.
    pub reply_bytes: usize,
}

/// All that one connection sends, over and over.
#[derive(Clone, Debug)]
pub struct Script {
    /// The requests as bytes.
    pub bytes: Vec<u8>,
    /// What they are.
    pub requests: Vec<Request>,
    /// Their keys.
    pub keys: Vec<KeyAt>,
    /// Where requests that are sent together start and end.
    pub windows: Vec<Window>,
    /// Keys that only this connection changes, of those it asks for.
    pub slots: usize,
    /// The version of its first write; the next request's is one more, whatever it is. No two
    /// connections write the same version, and 1 is the fill's.
    pub first_version: u64,
    /// There are writes with tokens.
    pub swaps: bool,
}

/// Memory that the scripts of one workload may take, unless a single window per connection needs more.
const SCRIPTS_BYTES_MAX: usize = 64 << 20;

/// What one connection is to ask, before it is bytes.
type Plan = Vec<(Verb, Vec<u32>)>;

impl Workload {
    /// Renders what the connections send. Sequential workloads share the keys out, each once; others
    /// draw twice as many keys as there are (65,536 at least), as far as 64 MiB of requests hold them.
    ///
    /// # Panics
    /// If the workload contradicts itself: no connection, no request in a window, more than one key
    /// in a meta request.
    pub fn scripts(&self, seed: u64) -> Vec<Arc<Script>> {
        assert!(self.connections > 0 && self.pipeline > 0 && self.keys_per_request > 0);
        assert!(self.keys_per_request == 1 || self.protocol != Protocol::Meta, "meta requests have one key");
        let (plans, owners) = match self.mix.only() {
            Some(verb) if self.choice == Choice::Sequential => (self.in_turn(verb), None),
            _ if self.mix.reads_own_writes() => self.owned(seed),
            _ => (self.drawn(seed), None),
        };
        let owners = owners.or_else(|| self.mix.reads_own_writes().then(|| self.owners(&[])));
        let reply_bytes = self.reply_bytes();
        plans
            .into_iter()
            .enumerate()
            .map(|(connection, plan)| {
                Arc::new(self.script(connection, plan, owners.as_deref(), &reply_bytes))
            })
            .collect()
    }

    /// Each key once, shared out over the connections.
    fn in_turn(&self, verb: Verb) -> Vec<Plan> {
        let share = |n: usize| (self.keyspace.count as usize * n / self.connections) as u32;
        let plan = |connection: usize| {
            let ids: Vec<u32> =
                (share(connection)..share(connection + 1)).map(|id| self.keyspace.first + id).collect();
            ids.chunks(self.keys_of(verb))
                .map(|ids| {
                    // A last request with too few keys asks for its first ones again.
                    let ids = ids.iter().cycle().take(self.keys_of(verb)).copied().collect();
                    (verb, ids)
                })
                .collect()
        };
        (0..self.connections).map(plan).collect()
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

    /// Every connection draws for itself.
    fn drawn(&self, seed: u64) -> Vec<Plan> {
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

    /// Which connection changes each key: so that all of them have as many of `changes` as each other.
    fn owners(&self, changes: &[(Verb, Vec<u32>)]) -> Vec<usize> {
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
            owners[key] = connection;
            // A key that nobody changes weighs, too: they are read by turns.
            least.push(Reverse((has + of_key[key].max(1), connection)));
        }
        owners
    }

    /// One stream is drawn; changes go to the connection that owns their key.
    fn owned(&self, seed: u64) -> (Vec<Plan>, Option<Vec<usize>>) {
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
        let owners = self.owners(&changes);
        for (verb, keys) in changes {
            let plan = &mut plans[owners[(keys[0] - self.keyspace.first) as usize]];
            // One connection cannot send more than its share: a hot key's changes beyond it go.
            if plan.len() < requests {
                plan.push((verb, keys));
            }
        }
        for plan in &mut plans {
            while plan.len() < requests {
                let Some(read) = reads.pop() else { break };
                plan.push(read);
            }
            plan.shuffle(&mut rng);
            if self.swaps() {
                *plan = self.with_tokens(std::mem::take(plan));
            }
        }
        (plans, Some(owners))
    }

    /// There are writes with tokens.
    fn swaps(&self) -> bool {
        self.protocol != Protocol::Resp && self.mix.has(Verb::Cas)
    }

    /// Puts a read with its token in place of each write with one, and the write at the beginning of the
    /// next window. The plan keeps its length.
    fn with_tokens(&self, plan: Plan) -> Plan {
        let requests = plan.len();
        let mut whole = Plan::with_capacity(2 * requests);
        let mut due: Vec<Vec<u32>> = Vec::new();
        let mut rest = plan.into_iter();
        while whole.len() < requests {
            let mut room = self.pipeline;
            let mut swaps = std::mem::take(&mut due);
            // Never more than a window has room for: each was read in the one before.
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

    fn script(
        &self,
        connection: usize,
        plan: Plan,
        owners: Option<&[usize]>,
        reply_bytes: &HashMap<Verb, usize>,
    ) -> Script {
        let first_version = 2 + ((connection as u64) << 40);
        let mut slots: HashMap<(bool, u32), u32> = HashMap::new();
        let mut script = Script {
            bytes: Vec::new(),
            requests: Vec::with_capacity(plan.len()),
            keys: Vec::with_capacity(plan.len() * self.keys_per_request),
            windows: Vec::with_capacity(plan.len().div_ceil(self.pipeline)),
            slots: 0,
            first_version,
            swaps: owners.is_some() && self.swaps(),
        };
        for requests in plan.chunks(self.pipeline) {
            let (bytes, keys, first) = (script.bytes.len(), script.keys.len(), script.requests.len());
            let mut replies = 0;
            for (verb, ids) in requests {
                let keys = script.keys.len();
                for &id in ids {
                    let mine = *verb != Verb::Miss
                        && owners.is_some_and(|of| of[(id - self.keyspace.first) as usize] == connection);
                    let fresh = slots.len() as u32;
                    let slot = match mine {
                        true => *slots.entry((*verb == Verb::Incr, id)).or_insert(fresh),
                        false => NOBODYS,
                    };
                    script.keys.push(KeyAt { id, at: 0, slot });
                }
                let version = first_version + script.requests.len() as u64;
                let value_at = self.request(&mut script.bytes, *verb, &mut script.keys[keys..], version);
                let keys_end = script.keys.len() as u32;
                script.requests.push(Request { verb: *verb, keys_end, value_at });
                replies += reply_bytes.get(verb).copied().unwrap_or(0);
            }
            script.windows.push(Window {
                bytes: bytes..script.bytes.len(),
                keys: keys..script.keys.len(),
                requests: first..script.requests.len(),
                reply_bytes: replies,
            });
        }
        assert!(u32::try_from(script.bytes.len()).is_ok(), "the requests of one connection exceed 4 GiB");
        script.slots = slots.len();
        script
    }
}

impl Script {
    /// Writes the values of a window anew, at the versions that follow from `before`, the number of
    /// requests that were sent before it.
    pub fn renew(&mut self, window: usize, before: u64, workload: &Workload) {
        let requests = self.windows[window].requests.clone();
        for (index, request) in requests.enumerate() {
            let Request { verb, keys_end, value_at } = self.requests[request];
            if !matches!(verb, Verb::Set | Verb::Cas) || workload.zeros {
                continue;
            }
            let id = self.keys[keys_end as usize - 1].id;
            let version = self.first_version + before + index as u64;
            let place = value_at as usize..value_at as usize + workload.value_bytes(id);
            value::rewrite(&mut self.bytes[place], id, version);
        }
    }

    /// Where the token of a write stands: right before the line end in front of the value.
    fn token_place(request: &Request) -> Range<usize> {
        let end = request.value_at as usize - b"\r\n".len();
        end - TOKEN_DIGITS..end
    }

    /// Writes into the swaps of a window the tokens that `token` knows, by [`KeyAt::slot`].
    pub fn name_tokens(&mut self, window: usize, token: impl Fn(u32) -> u64) {
        for request in self.windows[window].requests.clone() {
            let request = self.requests[request];
            if request.verb != Verb::Cas {
                continue;
            }
            let mut rest = token(self.keys[request.keys_end as usize - 1].slot);
            for digit in self.bytes[Script::token_place(&request)].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
    }

    /// The token that a write names.
    pub fn token(&self, request: &Request) -> u64 {
        let digits = &self.bytes[Script::token_place(request)];
        digits.iter().fold(0_u64, |token, digit| token.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Keyspace;
    use crate::mix::Mix;
    use crate::sizes::Sizes;

    fn workload(protocol: Protocol, verb: Verb) -> Workload {
        Workload { connections: 3, pipeline: 7, ..Workload::new(protocol, verb, Keyspace::new(1000, 32)) }
    }

    #[test]
    fn windows_tile_the_script_and_keys_are_where_it_says() {
        for protocol in [Protocol::Classic, Protocol::Meta, Protocol::Resp] {
            for verb in [Verb::Hit, Verb::Miss, Verb::Set] {
                let workload = workload(protocol, verb);
                let scripts = workload.scripts(1);
                assert_eq!(scripts.len(), 3);
                for script in scripts.iter() {
                    let (mut bytes, mut keys) = (0, 0);
                    for window in &script.windows {
                        assert_eq!((window.bytes.start, window.keys.start), (bytes, keys));
                        assert_eq!((window.requests.len(), window.keys.len()), (7, 7));
                        (bytes, keys) = (window.bytes.end, window.keys.end);
                    }
                    assert_eq!((bytes, keys), (script.bytes.len(), script.keys.len()));
                    for key in &script.keys {
                        let digits = &script.bytes[key.at as usize + 4..][..12];
                        assert_eq!(std::str::from_utf8(digits).unwrap().parse(), Ok(key.id));
                    }
                }
            }
        }
    }

    #[test]
    fn sequential_scripts_hold_every_key_once() {
        let workload = Workload {
            choice: Choice::Sequential,
            keyspace: Keyspace { first: 40, ..Keyspace::new(100, 32) },
            ..workload(Protocol::Classic, Verb::Set)
        };
        let mut ids: Vec<u32> =
            workload.scripts(0).iter().flat_map(|script| script.keys.clone()).map(|key| key.id).collect();
        ids.sort_unstable();
        assert_eq!(ids, (40..140).collect::<Vec<_>>());
    }

    #[test]
    fn more_connections_than_keys_leave_some_with_nothing_to_send() {
        let workload = Workload {
            choice: Choice::Sequential,
            keyspace: Keyspace::new(2, 32),
            ..workload(Protocol::Classic, Verb::Set)
        };
        let windows: usize = workload.scripts(0).iter().map(|script| script.windows.len()).sum();
        assert_eq!(windows, 2);
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
            // Each connection's, whoever has the hottest key.
            let share = f64::from(sets) / script.requests.len() as f64;
            assert!((share - 0.1).abs() < 0.01, "connection {connection}: {share}");
        }
        assert!(writers.iter().all(|(key, connection)| owners[key] == *connection));
    }

    #[test]
    fn a_renewed_window_carries_the_versions_that_follow() {
        let workload = workload(Protocol::Resp, Verb::Set);
        let mut script = Arc::unwrap_or_clone(workload.scripts(1).remove(2));
        let before = script.requests.len() as u64;
        script.renew(1, before, &workload);
        let Request { keys_end, value_at, .. } = script.requests[7];
        let value = &script.bytes[value_at as usize..][..32];
        let id = script.keys[keys_end as usize - 1].id;
        assert_eq!(value::verify(value, id), Ok(script.first_version + before));
    }

    #[test]
    fn values_of_many_sizes_keep_the_size_of_their_key() {
        let sizes = Sizes::Spread(30, 300);
        let workload = Workload { sizes: Some(sizes.clone()), ..workload(Protocol::Classic, Verb::Set) };
        assert!(!workload.has_known_replies());
        for script in workload.scripts(1) {
            for request in &script.requests {
                let id = script.keys[request.keys_end as usize - 1].id;
                let value = &script.bytes[request.value_at as usize..][..sizes.of(id, 0)];
                assert!(value::verify(value, id).is_ok());
            }
        }
    }
}
