//! What is asked of a server, and the same as bytes ready to send.
//!
//! A [`Script`] is what one connection sends, rendered before any clock runs: windows of pipelined
//! requests, sent one after the other and then from the start again. Beside the bytes it keeps the
//! number and the place of every key, in the order of the requests, so that a reply is checked
//! without a look-up, and how long the reply of each window is.
//!
//! ```text
//! bytes  | get key:17\r\n get key:4\r\n … | get key:99\r\n … |   windows[0], windows[1], …
//! keys   | (17, 4) (4, 16) …              | (99, …) …        |   number, place in bytes
//! ```

use std::ops::Range;
use std::sync::Arc;

use crate::keys::{Choice, Chooser, Keyspace, Prefix};
use crate::value;
use crate::wire::Protocol;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads keys that are there; a miss is a wrong reply.
    Hit,
    /// Reads keys that are not there; a hit is a wrong reply.
    Miss,
    /// Writes.
    Set,
}

/// One kind of load. Requests are sent in windows: a connection sends `pipeline` of them, takes all
/// replies, and sends the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// What the server speaks.
    pub protocol: Protocol,
    /// What requests do.
    pub verb: Verb,
    /// On which keys.
    pub keyspace: Keyspace,
    /// Chosen how.
    pub choice: Choice,
    /// Over how many connections.
    pub connections: usize,
    /// Requests in a window.
    pub pipeline: usize,
    /// Keys that one request reads (1 for writes; 1 for meta, whose requests have one key).
    pub keys_per_request: usize,
}

/// A key in a script.
#[derive(Clone, Copy, Debug)]
pub struct KeyAt {
    /// Its number.
    pub id: u32,
    /// Where in [`Script::bytes`] it starts.
    pub at: u32,
}

/// Requests that are sent together.
#[derive(Clone, Debug)]
pub struct Window {
    /// Their place in [`Script::bytes`].
    pub bytes: Range<usize>,
    /// Their keys' place in [`Script::keys`].
    pub keys: Range<usize>,
    /// How many there are.
    pub requests: usize,
    /// Bytes of all replies when each is as expected.
    pub reply_bytes: usize,
}

/// All that one connection sends, over and over.
#[derive(Debug)]
pub struct Script {
    /// The requests.
    pub bytes: Vec<u8>,
    /// Their keys.
    pub keys: Vec<KeyAt>,
    /// Where requests that are sent together start and end.
    pub windows: Vec<Window>,
}

/// Memory that the scripts of one workload may take, unless a single window per connection needs more.
const SCRIPTS_BYTES_MAX: usize = 64 << 20;

impl Workload {
    /// Appends the request for these `keys` and notes their places; writes carry `version`.
    fn request(&self, out: &mut Vec<u8>, keys: &mut [KeyAt], version: u64) {
        let Keyspace { key_bytes, value_bytes, .. } = self.keyspace;
        let prefix = if self.verb == Verb::Miss { Prefix::Absent } else { Prefix::Present };
        if self.verb == Verb::Set {
            for key in keys {
                let write_key = |out: &mut Vec<u8>| self.keyspace.write(out, prefix, key.id);
                let write_value = |out: &mut Vec<u8>| value::write(out, key.id, version, value_bytes);
                key.at = self.protocol.set(out, key_bytes, value_bytes, write_key, write_value) as u32;
            }
            return;
        }
        self.protocol.open_get(out, keys.len());
        for key in keys {
            key.at = self.protocol.key(out, key_bytes, |out| self.keyspace.write(out, prefix, key.id)) as u32;
        }
        self.protocol.close_get(out);
    }

    /// The first request and the reply expected to it, as bytes. All requests are of the same length,
    /// and so are all replies.
    pub fn sample(&self) -> (Vec<u8>, Vec<u8>) {
        let first = self.keyspace.first;
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        self.request(&mut request, &mut vec![KeyAt { id: first, at: 0 }; self.keys_per_request], 1);
        match self.verb {
            Verb::Hit => {
                let (mut key, mut value) = (Vec::new(), Vec::new());
                self.keyspace.write(&mut key, Prefix::Present, first);
                value::write(&mut value, first, 1, self.keyspace.value_bytes);
                self.protocol.reply_hits(&mut reply, &vec![(key, value); self.keys_per_request]);
            }
            Verb::Miss => self.protocol.reply_misses(&mut reply, self.keys_per_request),
            Verb::Set => self.protocol.reply_stored(&mut reply),
        }
        (request, reply)
    }

    /// How a window's replies end when each is as expected.
    pub fn reply_tail(&self) -> &'static [u8] {
        match (self.verb, self.protocol) {
            (Verb::Hit | Verb::Miss, Protocol::Classic) => b"END\r\n",
            (Verb::Hit, _) => b"\r\n",
            (Verb::Miss, Protocol::Meta) => b"EN\r\n",
            (Verb::Miss, Protocol::Resp) => b"$-1\r\n",
            (Verb::Set, Protocol::Classic) => b"STORED\r\n",
            (Verb::Set, Protocol::Meta) => b"HD\r\n",
            (Verb::Set, Protocol::Resp) => b"+OK\r\n",
        }
    }

    /// Renders what the connections send. Sequential workloads share the keys out, each once; others
    /// draw twice as many keys as there are (65,536 at least), as far as 64 MiB of requests hold them.
    ///
    /// # Panics
    /// If the workload contradicts itself: no connection, no request in a window, more than one key
    /// in a write or in a meta request.
    pub fn scripts(&self, seed: u64) -> Arc<Vec<Script>> {
        assert!(self.connections > 0 && self.pipeline > 0 && self.keys_per_request > 0);
        let single = self.verb == Verb::Set || self.protocol == Protocol::Meta;
        assert!(self.keys_per_request == 1 || !single, "requests of this kind have one key");
        let (request, reply) = self.sample();
        let per_window = self.pipeline * self.keys_per_request;
        let scripts = (0..self.connections).map(|connection| {
            let (keyspace, keys) = if self.choice == Choice::Sequential {
                let share = |n: usize| (self.keyspace.count as usize * n / self.connections) as u32;
                let (start, end) = (share(connection), share(connection + 1));
                let first = self.keyspace.first + start;
                let keyspace = Keyspace { first, count: (end - start).max(1), ..self.keyspace };
                (keyspace, (end - start) as usize)
            } else {
                let wanted = (2 * self.keyspace.count as usize).max(65_536).div_ceil(self.connections);
                let window_bytes = request.len() * self.pipeline;
                let windows_max = (SCRIPTS_BYTES_MAX / self.connections / window_bytes).max(1);
                (self.keyspace, wanted.div_ceil(per_window).min(windows_max) * per_window)
            };
            let mut chooser = Chooser::new(keyspace, self.choice, seed.wrapping_add(connection as u64));
            // Version 1 is the fill's; no two connections write the same version.
            let version = 2 + ((connection as u64) << 32);
            self.script(&mut chooser, keys, version, request.len(), reply.len())
        });
        Arc::new(scripts.collect())
    }

    fn script(
        &self,
        chooser: &mut Chooser,
        keys: usize,
        version: u64,
        request_bytes: usize,
        reply_bytes: usize,
    ) -> Script {
        let requests = keys.div_ceil(self.keys_per_request);
        let total_bytes = requests * request_bytes;
        assert!(u32::try_from(total_bytes).is_ok(), "the requests of one connection exceed 4 GiB");
        let mut script = Script {
            bytes: Vec::with_capacity(total_bytes),
            keys: (0..requests * self.keys_per_request)
                .map(|_| KeyAt { id: chooser.next_key(), at: 0 })
                .collect(),
            windows: Vec::with_capacity(requests.div_ceil(self.pipeline)),
        };
        let mut left = requests;
        let mut key = 0;
        while left > 0 {
            let requests = left.min(self.pipeline);
            let (bytes_start, keys_start) = (script.bytes.len(), key);
            for _ in 0..requests {
                let end = key + self.keys_per_request;
                self.request(&mut script.bytes, &mut script.keys[key..end], version + key as u64);
                key = end;
            }
            script.windows.push(Window {
                bytes: bytes_start..script.bytes.len(),
                keys: keys_start..key,
                requests,
                reply_bytes: requests * reply_bytes,
            });
            left -= requests;
        }
        debug_assert_eq!(script.bytes.len(), total_bytes, "requests differ in length");
        script
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(protocol: Protocol, verb: Verb) -> Workload {
        Workload {
            protocol,
            verb,
            keyspace: Keyspace::new(1000, 32),
            choice: Choice::Uniform,
            connections: 3,
            pipeline: 7,
            keys_per_request: 1,
        }
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
                        assert_eq!((window.requests, window.keys.len()), (7, 7));
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
    fn requests_look_as_their_protocol_wants() {
        let text = |protocol, verb, keys_per_request| {
            let workload =
                Workload { keyspace: Keyspace::new(1, 0), keys_per_request, ..workload(protocol, verb) };
            let (request, reply) = workload.sample();
            assert!(reply.ends_with(workload.reply_tail()));
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

    #[test]
    fn sequential_scripts_hold_every_key_once() {
        let workload = Workload {
            choice: Choice::Sequential,
            keyspace: Keyspace { first: 40, ..Keyspace::new(100, 32) },
            ..workload(Protocol::Classic, Verb::Set)
        };
        let mut ids: Vec<u32> =
            workload.scripts(0).iter().flat_map(|script| &script.keys).map(|key| key.id).collect();
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
}
