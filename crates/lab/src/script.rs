//! The requests of one connection, rendered before any clock runs.
//!
//! A [`Script`] is windows of pipelined requests, sent one after the other and then from the start again. Besides the bytes it
//! has the number and the place of every key, in the order of the requests, so that a reply is checked without a look-up, and the
//! length of the reply to each window.
//!
//! ```text
//! bytes    | get key:17\r\n get key:4\r\n … | get key:99\r\n … |   windows[0], windows[1], …
//! requests | hit, ends at 12; …               | …                |   what each is, where it ends
//! keys     | (17, 4) (4, 16) …                | (99, …) …        |   number, place in bytes
//! ```
//!
//! `plan` decides the requests of a connection, and which keys only it changes.

mod plan;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use larder_protocol::client::Protocol;

use crate::keys::Choice;
use crate::value;
use crate::workload::{Verb, Workload};
use plan::{ALLS, Plan};

/// A key in a script.
#[derive(Clone, Copy, Debug)]
pub struct KeyAt {
    /// Its number.
    pub id: u32,
    /// Its place in [`Script::bytes`].
    pub at: u32,
    /// Its slot among the keys that only this connection changes, behind these among those whose token it keeps, or [`NOBODYS`].
    pub slot: u32,
}

/// The [`KeyAt::slot`] of a key about which this connection knows nothing.
pub const NOBODYS: u32 = u32::MAX;
/// The first slot of keys that all connections change, while a script is made.
const ALLS_SLOTS: u32 = 1 << 31;

/// Digits of a token in a request: as many as the longest token has, so that it can be written in place.
const TOKEN_DIGITS: usize = 20;
/// The token of a key without one: servers never use it.
pub const NO_TOKEN: u64 = u64::MAX;

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The kind of the request.
    pub verb: Verb,
    /// The end of its keys in [`Script::keys`].
    pub keys_end: u32,
    /// The beginning of a write's value in [`Script::bytes`].
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
    /// Bytes of all replies when each is right; 0 if that cannot be known.
    pub reply_bytes: usize,
}

/// All requests that one connection sends, over and over.
#[derive(Clone, Debug)]
pub struct Script {
    /// The requests as bytes.
    pub bytes: Vec<u8>,
    /// The kinds of the requests.
    pub requests: Vec<Request>,
    /// Their keys.
    pub keys: Vec<KeyAt>,
    /// The places of requests that are sent together.
    pub windows: Vec<Window>,
    /// Number of keys in the requests that only this connection changes: the first slots are theirs.
    pub slots: usize,
    /// Number of all slots: the others are for keys that other connections change, too, and whose tokens are kept.
    pub token_slots: usize,
    /// The version of its first write; the next request's is one more, whatever its kind is. No two connections write the same
    /// version, and 1 is the fill's.
    pub first_version: u64,
    /// Whether there are writes with tokens.
    pub swaps: bool,
}

impl Workload {
    /// Renders the requests of the connections. Sequential workloads distribute the keys, each once; others draw twice as many
    /// keys as there are (65,536 at least), as far as 64 MiB of requests hold them.
    ///
    /// # Panics
    /// If the workload contradicts itself: no connection, no request in a window, more than one key
    /// in a meta request.
    pub fn scripts(&self, seed: u64) -> Vec<Arc<Script>> {
        assert!(self.connections > 0 && self.pipeline > 0 && self.keys_per_request > 0);
        assert!(self.keys_per_request == 1 || self.protocol != Protocol::Meta, "meta requests have one key");
        let (plans, owners) = match self.mix.only() {
            Some(verb) if self.choice == Choice::Sequential => self.in_turn(verb),
            _ if self.mix.reads_own_writes() => self.owned(seed),
            _ => (self.drawn(seed), None),
        };
        let reply_bytes = self.reply_bytes();
        plans
            .into_iter()
            .enumerate()
            .map(|(connection, plan)| {
                Arc::new(self.script(connection, plan, owners.as_deref(), &reply_bytes))
            })
            .collect()
    }

    /// Reads of these keys over the first connection, one behind the other.
    pub(crate) fn reading(&self, ids: impl IntoIterator<Item = u32>) -> Arc<Script> {
        let plan = ids.into_iter().map(|id| (Verb::Get, vec![id])).collect();
        Arc::new(self.script(0, plan, None, &self.reply_bytes()))
    }

    fn script(
        &self,
        connection: usize,
        plan: Plan,
        owners: Option<&[usize]>,
        reply_bytes: &HashMap<Verb, usize>,
    ) -> Script {
        let first_version = 2 + ((connection as u64) << 40);
        let swaps = owners.is_some() && self.swaps();
        let owner = |id: u32| owners.map(|of| of[self.place_of(id)]);
        let (mut slots, mut alls): (HashMap<(bool, u32), u32>, HashMap<u32, u32>) = Default::default();
        let mut script = Script {
            bytes: Vec::new(),
            requests: Vec::with_capacity(plan.len()),
            keys: Vec::with_capacity(plan.len() * self.keys_per_request),
            windows: Vec::with_capacity(plan.len().div_ceil(self.pipeline)),
            slots: 0,
            token_slots: 0,
            first_version,
            swaps,
        };
        for requests in plan.chunks(self.pipeline) {
            let (bytes, keys, first) = (script.bytes.len(), script.keys.len(), script.requests.len());
            let mut replies = 0;
            for (verb, ids) in requests {
                let keys = script.keys.len();
                for &id in ids {
                    let slot = match owner(id) {
                        _ if *verb == Verb::Miss => NOBODYS,
                        Some(owner) if owner == connection => {
                            let fresh = slots.len() as u32;
                            *slots.entry((*verb == Verb::Incr, id)).or_insert(fresh)
                        }
                        // Behind the connection's own slots, whose number is known at the end.
                        Some(ALLS) if swaps && *verb != Verb::Incr => {
                            let fresh = alls.len() as u32;
                            ALLS_SLOTS + *alls.entry(id).or_insert(fresh)
                        }
                        _ => NOBODYS,
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
        let own = slots.len() as u32;
        for key in script.keys.iter_mut().filter(|key| (ALLS_SLOTS..NOBODYS).contains(&key.slot)) {
            key.slot = own + (key.slot - ALLS_SLOTS);
        }
        (script.slots, script.token_slots) = (slots.len(), slots.len() + alls.len());
        script
    }
}

impl Script {
    /// Renders the values of a window anew, at the versions that follow from `before`, the number of requests that were sent
    /// before it.
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

    /// The place of a write's token: right before the line end in front of the value.
    pub(crate) fn token_place(request: &Request) -> Range<usize> {
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

    /// The token of a write.
    pub fn token(&self, request: &Request) -> u64 {
        let digits = &self.bytes[Script::token_place(request)];
        digits.iter().fold(0_u64, |token, digit| token.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Keyspace;
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
