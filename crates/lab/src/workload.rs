//! One kind of load: a table of facts, and its requests and replies as bytes.
//!
//! A [`crate::script::Script`] is the part of it that a connection sends, over and over.

use std::collections::HashMap;

use larder_protocol::client::{Ask, Get, Protocol, Request, Store, Want, command};
use memchr::memmem;

use crate::canned;
use crate::keys::{Choice, Keyspace, Prefix};
pub use crate::mix::{Mix, Verb};
use crate::offset::Offset;
use crate::script::{KeyAt, NO_TOKEN, NOBODYS};
use crate::sizes::Sizes;
use crate::value;

/// The script of [`Verb::EvalSha`].
pub const SCRIPT: &[u8] = b"return redis.call('GET', KEYS[1])";
/// Its SHA-1, which names it in requests.
pub const SCRIPT_DIGEST: &[u8] = b"d3c21d0c2b9ca22f82737626a27bcaf5d288f99f";

/// One kind of load. Requests are sent in windows: a connection sends `pipeline` of them together.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The protocol.
    pub protocol: Protocol,
    /// The kinds of requests.
    pub mix: Mix,
    /// The keys.
    pub keyspace: Keyspace,
    /// Sizes of values by key, where they are not all the keyspace's.
    pub sizes: Option<Sizes>,
    /// Seconds that a written value lives; 0 for ever.
    pub ttl_s: u32,
    /// The choice of keys.
    pub choice: Choice,
    /// The number of connections.
    pub connections: usize,
    /// Requests in a window.
    pub pipeline: usize,
    /// Keys of one read (1 for meta, whose requests have one key).
    pub keys_per_request: usize,
    /// Writes store the number 0 under the names of numbers, for a later [`Verb::Incr`].
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

    /// Bytes of the value of key `id`. They do not change with the version, so that a write can be renewed in place.
    pub fn value_bytes(&self, id: u32) -> usize {
        self.sizes.as_ref().map_or(self.keyspace.value_bytes, |sizes| sizes.of(id, 0))
    }

    /// The largest value.
    pub fn value_bytes_max(&self) -> usize {
        self.sizes.as_ref().map_or(self.keyspace.value_bytes, Sizes::most)
    }

    /// Whether a stored key may be gone although no client deleted it.
    pub fn may_lose(&self) -> bool {
        self.ttl_s > 0 || self.mix.parts().any(|(verb, _)| verb == Verb::Get)
    }

    /// Whether a read of a stored key may miss: it was lost, or deleted by the connection that owns it.
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
            | Verb::EvalSha
            | Verb::Gets => Prefix::Present,
        }
    }

    /// Appends the request for these `keys` and records their places; a write carries `version`. Returns the beginning of its
    /// value.
    pub(crate) fn request(&self, out: &mut Vec<u8>, verb: Verb, keys: &mut [KeyAt], version: u64) -> u32 {
        let (begins, key_bytes) = (out.len(), self.keyspace.key_bytes);
        let mut names = Vec::with_capacity(keys.len() * key_bytes);
        for key in &*keys {
            self.keyspace.write(&mut names, self.prefix(verb), key.id);
        }
        let mut value_at = 0;
        match (verb, &*keys) {
            (Verb::Hit | Verb::Miss | Verb::Get, _) => {
                self.protocol.get(out, names.chunks_exact(key_bytes));
            }
            (Verb::Set, &[KeyAt { id, .. }]) => {
                let value_bytes = if self.zeros { 1 } else { self.value_bytes(id) };
                self.protocol.begin_set(out, &names, value_bytes, self.ttl_s);
                value_at = out.len();
                match self.zeros {
                    true => out.push(b'0'),
                    false => value::write(out, id, version, value_bytes),
                }
                self.protocol.end_set(out, self.ttl_s);
            }
            (Verb::Cas, &[KeyAt { id, .. }]) => value_at = self.swap(out, &names, id, version),
            (Verb::Gets, &[_]) => {
                let dialect = self.protocol.dialect().expect("RESP has no tokens");
                let get = Get { want: Want::CAS, ..Get::default() };
                Request::new(Ask::Get(get), &names).write(dialect, out);
            }
            (Verb::SetBit | Verb::GetBit | Verb::SetRange, &[KeyAt { id, .. }]) => {
                assert_eq!(self.protocol, Protocol::Resp, "only RESP knows offsets in a value");
                Offset::of(version, self.value_bytes(id)).request(out, verb, &names);
            }
            (Verb::EvalSha, &[_]) => {
                assert_eq!(self.protocol, Protocol::Resp, "only RESP knows scripts");
                command(out, &[b"EVALSHA", SCRIPT_DIGEST, b"1", &names]);
            }
            (Verb::Delete, &[_]) => self.protocol.delete(out, &names),
            (Verb::Incr, &[_]) => self.protocol.incr(out, &names),
            (_, _) => unreachable!("only a read of values has several keys"),
        }
        let mut from = begins;
        for (key, name) in keys.iter_mut().zip(names.chunks_exact(key_bytes)) {
            let at = from + memmem::find(&out[from..], name).expect("it was written behind the last");
            (key.at, from) = (at as u32, at + key_bytes);
        }
        value_at as u32
    }

    /// Appends a write that is done only if the key was not changed since it was read. In memcached's protocols it names a token,
    /// which stands right before the line end in front of the value; in RESP it is a transaction that watches the key, reads it,
    /// and sets it. Returns the beginning of the value.
    fn swap(&self, out: &mut Vec<u8>, name: &[u8], id: u32, version: u64) -> usize {
        let (protocol, ttl_s, value_bytes) = (self.protocol, self.ttl_s, self.value_bytes(id));
        let dialect = protocol.dialect();
        match dialect {
            Some(dialect) => {
                let store = Ask::Store(Store { exptime: ttl_s.into(), ..Store::default() });
                let request = Request { cas: Some(NO_TOKEN), ..Request::new(store, name) };
                request.write_line(dialect, value_bytes, out);
            }
            None => {
                command(out, &[b"WATCH", name]);
                command(out, &[b"GET", name]);
                command(out, &[b"MULTI"]);
                protocol.begin_set(out, name, value_bytes, ttl_s);
            }
        }
        let value_at = out.len();
        value::write(out, id, version, value_bytes);
        protocol.end_set(out, ttl_s);
        if dialect.is_none() {
            command(out, &[b"EXEC"]);
        }
        value_at
    }

    /// A request of a load of one verb for the first key, and the reply to it if all is there and done, as bytes.
    ///
    /// # Panics
    /// If there are several verbs, or one of places inside a value.
    pub fn sample(&self) -> (Vec<u8>, Vec<u8>) {
        self.sample_of(self.mix.only().expect("a load of one verb"))
    }

    /// As [`Workload::sample`], for one verb of a mix. All requests of a verb have the same length where values have one size.
    ///
    /// # Panics
    /// For the verbs of places inside a value, whose requests have several lengths, and for [`Verb::Gets`] in RESP.
    pub(crate) fn sample_of(&self, verb: Verb) -> (Vec<u8>, Vec<u8>) {
        let (protocol, first) = (self.protocol, self.keyspace.first);
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        let key = KeyAt { id: first, at: 0, slot: NOBODYS };
        self.request(&mut request, verb, &mut vec![key; self.keys_of(verb)], 1);
        let write_value = |out: &mut Vec<u8>| value::write(out, first, 1, self.value_bytes(first));
        let (mut name, mut bytes) = (Vec::new(), Vec::new());
        self.keyspace.write(&mut name, Prefix::Present, first);
        match verb {
            Verb::Hit | Verb::Get | Verb::EvalSha => {
                write_value(&mut bytes);
                canned::hits(protocol, &mut reply, &vec![(name, bytes); self.keys_per_request]);
            }
            Verb::Miss => canned::misses(protocol, &mut reply, self.keys_per_request),
            Verb::Set => canned::stored(protocol, &mut reply),
            Verb::Delete => canned::deleted(protocol, &mut reply),
            Verb::Incr => canned::counted(protocol, &mut reply),
            Verb::Gets => {
                write_value(&mut bytes);
                canned::tokened(protocol, &mut reply, &name, &bytes);
            }
            Verb::Cas => {
                write_value(&mut bytes);
                canned::swapped(protocol, &mut reply, &bytes);
            }
            Verb::SetBit | Verb::GetBit | Verb::SetRange => unreachable!("requests of several lengths"),
        }
        (request, reply)
    }

    /// The end of the expected reply to a request; empty if it cannot be known.
    pub fn reply_tail(&self, verb: Verb) -> &'static [u8] {
        match (verb, self.protocol) {
            (Verb::Hit | Verb::Miss, Protocol::Classic) => b"END\r\n",
            (Verb::Hit | Verb::EvalSha, _) => b"\r\n",
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

    /// Whether the length of replies is known beforehand.
    pub fn has_known_replies(&self) -> bool {
        self.sizes.is_none()
            && self
                .mix
                .parts()
                .all(|(verb, _)| matches!(verb, Verb::Hit | Verb::Miss | Verb::Set | Verb::EvalSha))
    }

    /// Bytes of the reply to one request of each verb; none or 0 if they cannot be known.
    pub(crate) fn reply_bytes(&self) -> HashMap<Verb, usize> {
        let known = self.has_known_replies();
        let length = |verb: Verb| if known { self.sample_of(verb).1.len() } else { 0 };
        self.mix.parts().map(|(verb, _)| (verb, length(verb))).collect()
    }

    /// The number of keys of a request.
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
        let get_reply = get.1;
        let script = text(Protocol::Resp, Verb::EvalSha, 1);
        let digest = "d3c21d0c2b9ca22f82737626a27bcaf5d288f99f";
        assert_eq!(
            script.0,
            format!("*4\r\n$7\r\nEVALSHA\r\n$40\r\n{digest}\r\n$1\r\n1\r\n$16\r\nkey:000000000000\r\n")
        );
        assert_eq!(script.1, get_reply);
        assert_eq!(text(Protocol::Resp, Verb::Miss, 2).1, "*2\r\n$-1\r\n$-1\r\n");
        let set = text(Protocol::Resp, Verb::Set, 1);
        assert_eq!(set.0, "*3\r\n$3\r\nSET\r\n$16\r\nkey:000000000000\r\n$0\r\n\r\n");
    }
}
