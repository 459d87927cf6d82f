//! One kind of load: a table of facts, and its requests and replies as bytes.
//!
//! What connections send of it, over and over, is a [`crate::script::Script`].

use std::collections::HashMap;

use crate::keys::{Choice, Keyspace, Prefix};
pub use crate::mix::{Mix, Verb};
use crate::script::{KeyAt, NOBODYS};
use crate::sizes::Sizes;
use crate::value;
use crate::wire::{Place, Protocol};

/// One kind of load. Requests are sent in windows: a connection sends `pipeline` of them together.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// What the server speaks.
    pub protocol: Protocol,
    /// What requests do.
    pub mix: Mix,
    /// On which keys.
    pub keyspace: Keyspace,
    /// Sizes of values by key, where they are not all the keyspace's.
    pub sizes: Option<Sizes>,
    /// Seconds that a written value lives; 0 for ever.
    pub ttl_s: u32,
    /// Chosen how.
    pub choice: Choice,
    /// Over how many connections.
    pub connections: usize,
    /// Requests in a window.
    pub pipeline: usize,
    /// Keys that one read asks for (1 for meta, whose requests have one key).
    pub keys_per_request: usize,
    /// Writes store the number 0 under the names of numbers: what a later [`Verb::Incr`] needs.
    pub zeros: bool,
}

impl Workload {
    /// A load of one verb on values of one size, one request at a time on one connection.
    pub fn new(protocol: Protocol, mix: impl Into<Mix>, keyspace: Keyspace) -> Workload {
        Workload {
            protocol,
            mix: mix.into(),
            keyspace,
            sizes: None,
            ttl_s: 0,
            choice: Choice::Uniform,
            connections: 1,
            pipeline: 1,
            keys_per_request: 1,
            zeros: false,
        }
    }

    /// Bytes of the value of key `id`. It does not change with the version, so that a write can be
    /// renewed where it stands.
    pub fn value_bytes(&self, id: u32) -> usize {
        self.sizes.as_ref().map_or(self.keyspace.value_bytes, |sizes| sizes.of(id, 0))
    }

    /// The largest value there is.
    pub fn value_bytes_max(&self) -> usize {
        self.sizes.as_ref().map_or(self.keyspace.value_bytes, Sizes::most)
    }

    /// A stored key may be gone without anybody having deleted it.
    pub fn may_lose(&self) -> bool {
        self.ttl_s > 0 || self.mix.parts().any(|(verb, _)| verb == Verb::Get)
    }

    /// A read of a stored key may miss: it was lost, or deleted by the connection that owns it.
    pub fn may_miss(&self) -> bool {
        self.may_lose() || self.mix.parts().any(|(verb, _)| verb == Verb::Delete)
    }

    fn prefix(&self, verb: Verb) -> Prefix {
        match verb {
            Verb::Miss => Prefix::Absent,
            Verb::Incr => Prefix::Number,
            Verb::Set if self.zeros => Prefix::Number,
            Verb::Hit
            | Verb::Get
            | Verb::Set
            | Verb::Delete
            | Verb::Cas
            | Verb::SetBit
            | Verb::GetBit
            | Verb::SetRange
            | Verb::Gets => Prefix::Present,
        }
    }

    /// Appends the request for these `keys` and notes their places; a write carries `version`.
    /// Returns where its value starts.
    pub(crate) fn request(&self, out: &mut Vec<u8>, verb: Verb, keys: &mut [KeyAt], version: u64) -> u32 {
        let Keyspace { key_bytes, .. } = self.keyspace;
        let prefix = self.prefix(verb);
        match verb {
            Verb::Hit | Verb::Miss | Verb::Get => {
                self.protocol.open_get(out, keys.len());
                for key in keys {
                    let write = |out: &mut Vec<u8>| self.keyspace.write(out, prefix, key.id);
                    key.at = self.protocol.key(out, key_bytes, write) as u32;
                }
                self.protocol.close_get(out);
                0
            }
            Verb::Set => {
                let [key] = keys else { unreachable!("a write has one key") };
                let value_bytes = if self.zeros { 1 } else { self.value_bytes(key.id) };
                let write_key = |out: &mut Vec<u8>| self.keyspace.write(out, prefix, key.id);
                let mut value_at = 0;
                let write_value = |out: &mut Vec<u8>| {
                    value_at = out.len() as u32;
                    match self.zeros {
                        true => out.push(b'0'),
                        false => value::write(out, key.id, version, value_bytes),
                    }
                };
                let sizes = (key_bytes, value_bytes);
                key.at = self.protocol.set(out, sizes, self.ttl_s, write_key, write_value) as u32;
                value_at
            }
            Verb::Cas => {
                let [key] = keys else { unreachable!("a write has one key") };
                let (mut name, mut value_at) = (Vec::with_capacity(key_bytes), 0);
                self.keyspace.write(&mut name, prefix, key.id);
                let sizes = (key_bytes, self.value_bytes(key.id));
                let write_value = |out: &mut Vec<u8>| {
                    value_at = out.len() as u32;
                    value::write(out, key.id, version, sizes.1);
                };
                key.at = self.protocol.cas(out, sizes, self.ttl_s, &name, write_value) as u32;
                value_at
            }
            Verb::SetBit | Verb::GetBit | Verb::SetRange => {
                let [key] = keys else { unreachable!("a place in a value has one key") };
                let write = |out: &mut Vec<u8>| self.keyspace.write(out, prefix, key.id);
                let place = Place::of(version, self.value_bytes(key.id));
                key.at = self.protocol.inside(out, verb, key_bytes, write, &place) as u32;
                0
            }
            Verb::Delete | Verb::Incr | Verb::Gets => {
                let [key] = keys else { unreachable!("a change has one key") };
                let write = |out: &mut Vec<u8>| self.keyspace.write(out, prefix, key.id);
                key.at = match verb {
                    Verb::Delete => self.protocol.delete(out, key_bytes, write),
                    Verb::Gets => self.protocol.gets(out, write),
                    _ => self.protocol.incr(out, key_bytes, write),
                } as u32;
                0
            }
        }
    }

    /// The first request of a load of one verb and the reply expected to it, as bytes. All its requests
    /// are of the same length, and so are all replies.
    ///
    /// # Panics
    /// If there are several verbs, or one whose replies nobody can know.
    pub fn sample(&self) -> (Vec<u8>, Vec<u8>) {
        let verb = self.mix.only().expect("a load of one verb");
        let first = self.keyspace.first;
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        let key = KeyAt { id: first, at: 0, slot: NOBODYS };
        self.request(&mut request, verb, &mut vec![key; self.keys_of(verb)], 1);
        match verb {
            Verb::Hit | Verb::Get => {
                let (mut key, mut value) = (Vec::new(), Vec::new());
                self.keyspace.write(&mut key, Prefix::Present, first);
                value::write(&mut value, first, 1, self.value_bytes(first));
                self.protocol.reply_hits(&mut reply, &vec![(key, value); self.keys_per_request]);
            }
            Verb::Miss => self.protocol.reply_misses(&mut reply, self.keys_per_request),
            Verb::Set => self.protocol.reply_stored(&mut reply),
            Verb::Delete
            | Verb::Incr
            | Verb::Cas
            | Verb::SetBit
            | Verb::GetBit
            | Verb::SetRange
            | Verb::Gets => {
                unreachable!("replies to changes of unknown keys")
            }
        }
        (request, reply)
    }

    /// How the reply to a request ends when it is as expected; nothing where nobody can know.
    pub fn reply_tail(&self, verb: Verb) -> &'static [u8] {
        match (verb, self.protocol) {
            (Verb::Hit | Verb::Miss, Protocol::Classic) => b"END\r\n",
            (Verb::Hit, _) => b"\r\n",
            (Verb::Miss, Protocol::Meta) => b"EN\r\n",
            (Verb::Miss, Protocol::Resp) => b"$-1\r\n",
            (Verb::Set, Protocol::Classic) => b"STORED\r\n",
            (Verb::Set, Protocol::Meta) => b"HD\r\n",
            (Verb::Set, Protocol::Resp) => b"+OK\r\n",
            (
                Verb::Get
                | Verb::Delete
                | Verb::Incr
                | Verb::Cas
                | Verb::SetBit
                | Verb::GetBit
                | Verb::SetRange
                | Verb::Gets,
                _,
            ) => b"",
        }
    }

    /// Replies have a length that is known beforehand.
    pub fn has_known_replies(&self) -> bool {
        self.sizes.is_none()
            && self.mix.parts().all(|(verb, _)| matches!(verb, Verb::Hit | Verb::Miss | Verb::Set))
    }

    /// Bytes of the reply to one request of each verb; none or 0 where nobody can know.
    pub(crate) fn reply_bytes(&self) -> HashMap<Verb, usize> {
        let known = self.has_known_replies();
        let length = |verb: Verb| match known {
            true => Workload { mix: verb.into(), ..self.clone() }.sample().1.len(),
            false => 0,
        };
        self.mix.parts().map(|(verb, _)| (verb, length(verb))).collect()
    }

    /// How many keys a request has.
    pub(crate) fn keys_of(&self, verb: Verb) -> usize {
        if verb.is_read() && verb != Verb::Gets { self.keys_per_request } else { 1 }
    }

    /// Bytes of a request, about.
    pub(crate) fn request_bytes(&self) -> usize {
        let bytes = |(verb, share): (Verb, f64)| {
            let mut out = Vec::new();
            let key = KeyAt { id: self.keyspace.first, at: 0, slot: NOBODYS };
            self.request(&mut out, verb, &mut vec![key; self.keys_of(verb)], 1);
            let larger = match (verb, &self.sizes) {
                (Verb::Set | Verb::Cas, Some(sizes)) => sizes.most() - self.value_bytes(self.keyspace.first),
                _ => 0,
            };
            (out.len() + larger) as f64 * share
        };
        (self.mix.parts().map(bytes).sum::<f64>() as usize).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(protocol: Protocol, verb: Verb) -> Workload {
        Workload { connections: 3, pipeline: 7, ..Workload::new(protocol, verb, Keyspace::new(1000, 32)) }
    }

    #[test]
    fn requests_look_as_their_protocol_wants() {
        let text = |protocol, verb, keys_per_request| {
            let workload =
                Workload { keyspace: Keyspace::new(1, 0), keys_per_request, ..workload(protocol, verb) };
            let (request, reply) = workload.sample();
            assert!(reply.ends_with(workload.reply_tail(verb)));
            (String::from_utf8(request).unwrap(), String::from_utf8(reply).unwrap())
        };
        let get = text(Protocol::Classic, Verb::Hit, 2);
        assert_eq!(get.0, "get key:000000000000 key:000000000000\r\n");
        assert_eq!(get.1, "VALUE key:000000000000 0 0\r\n\r\n".repeat(2) + "END\r\n");
        assert_eq!(text(Protocol::Classic, Verb::Set, 1).0, "set key:000000000000 0 0 0\r\n\r\n");
        assert_eq!(text(Protocol::Meta, Verb::Miss, 1).0, "mg nil:000000000000 v\r\n");
        assert_eq!(text(Protocol::Meta, Verb::Set, 1).0, "ms key:000000000000 0\r\n\r\n");
        let get = text(Protocol::Resp, Verb::Hit, 1);
        assert_eq!(get.0, "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000000\r\n");
        assert_eq!(text(Protocol::Resp, Verb::Miss, 2).1, "*2\r\n$-1\r\n$-1\r\n");
        let set = text(Protocol::Resp, Verb::Set, 1);
        assert_eq!(set.0, "*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000000\r\n$0\r\n\r\n");
    }
}
