//! The usual requests, in any protocol.
//!
//! ```text
//!           get                     set                        delete      incr
//! classic   get k …                 set k 0 ttl n  value       delete k    incr k 1
//! meta      mg k v  for each key    ms k n [Tttl]  value       md k        ma k v D1
//! RESP      GET k, or MGET k …      SET k value [EX ttl]       DEL k       INCR k
//! ```

use super::resp::{begin, begin_word, command, word};
use super::{Ask, Count, Delete, Dialect, Get, Request, Store};
use crate::number::{U64_BYTES_MAX, write_u64};

/// The protocol that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// memcached's `get` and `set`.
    Classic,
    /// memcached's `mg … v` and `ms`.
    Meta,
    /// Redis's `GET`, `MGET` and `SET`.
    Resp,
}

impl Protocol {
    /// The dialect in which a [`Request`] is written; `None` for RESP.
    pub fn dialect(self) -> Option<Dialect> {
        match self {
            Protocol::Classic => Some(Dialect::Classic),
            Protocol::Meta => Some(Dialect::Meta),
            Protocol::Resp => None,
        }
    }

    /// Appends a read of these keys: one request, except in meta, where each key has its own.
    pub fn get<'k>(
        self,
        out: &mut Vec<u8>,
        keys: impl IntoIterator<Item = &'k [u8], IntoIter: ExactSizeIterator>,
    ) {
        let keys = keys.into_iter();
        match self {
            Protocol::Classic => {
                out.extend_from_slice(b"get");
                for key in keys {
                    out.push(b' ');
                    out.extend_from_slice(key);
                }
                out.extend_from_slice(b"\r\n");
            }
            Protocol::Meta => {
                keys.for_each(|key| Request::new(Ask::Get(Get::default()), key).write(Dialect::Meta, out));
            }
            Protocol::Resp => {
                begin(out, keys.len() + 1);
                word(out, if keys.len() == 1 { b"GET" } else { b"MGET" });
                keys.for_each(|key| word(out, key));
            }
        }
    }

    /// Appends a write of a value that lives for `ttl_s` seconds, or for ever if that is 0.
    pub fn set(self, out: &mut Vec<u8>, key: &[u8], value: &[u8], ttl_s: u32) {
        self.begin_set(out, key, value.len(), ttl_s);
        out.extend_from_slice(value);
        self.end_set(out, ttl_s);
    }

    /// Appends what precedes the value of a write, for a caller that writes the value itself.
    pub fn begin_set(self, out: &mut Vec<u8>, key: &[u8], value_bytes: usize, ttl_s: u32) {
        match self.dialect() {
            Some(dialect) => {
                let store = Store { exptime: ttl_s.into(), ..Store::default() };
                Request::new(Ask::Store(store), key).write_line(dialect, value_bytes, out);
            }
            None => {
                begin(out, if ttl_s == 0 { 3 } else { 5 });
                word(out, b"SET");
                word(out, key);
                begin_word(out, value_bytes);
            }
        }
    }

    /// Appends what follows the value of a write.
    pub fn end_set(self, out: &mut Vec<u8>, ttl_s: u32) {
        out.extend_from_slice(b"\r\n");
        if self == Protocol::Resp && ttl_s > 0 {
            let mut digits = [0; U64_BYTES_MAX];
            let count = write_u64(&mut digits, ttl_s.into());
            word(out, b"EX");
            word(out, &digits[..count]);
        }
    }

    /// Appends a delete.
    pub fn delete(self, out: &mut Vec<u8>, key: &[u8]) {
        match self.dialect() {
            Some(dialect) => Request::new(Ask::Delete(Delete::default()), key).write(dialect, out),
            None => command(out, &[b"DEL", key]),
        }
    }

    /// Appends an addition of one to a number.
    pub fn incr(self, out: &mut Vec<u8>, key: &[u8]) {
        self.step(out, key, false);
    }

    /// Appends a subtraction of one from a number.
    pub fn decr(self, out: &mut Vec<u8>, key: &[u8]) {
        self.step(out, key, true);
    }

    fn step(self, out: &mut Vec<u8>, key: &[u8], down: bool) {
        match self.dialect() {
            Some(dialect) => {
                let count = Count { down, delta: 1, ..Count::default() };
                Request::new(Ask::Count(count), key).write(dialect, out);
            }
            None => command(out, &[if down { b"DECR" } else { b"INCR" }, key]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn requests_look_as_their_protocol_wants() {
        use Protocol::{Classic, Meta, Resp};
        let get = |protocol: Protocol, keys: &[&[u8]]| text(|out| protocol.get(out, keys.iter().copied()));
        assert_eq!(get(Classic, &[b"a", b"bc"]), "get a bc\r\n");
        assert_eq!(get(Meta, &[b"a", b"bc"]), "mg a v\r\nmg bc v\r\n");
        assert_eq!(get(Resp, &[b"a"]), "*2\r\n$3\r\nGET\r\n$1\r\na\r\n");
        assert_eq!(get(Resp, &[b"a", b"bc"]), "*3\r\n$4\r\nMGET\r\n$1\r\na\r\n$2\r\nbc\r\n");
        let set = |protocol: Protocol, ttl_s| text(|out| protocol.set(out, b"k", b"abc", ttl_s));
        assert_eq!(
            (set(Classic, 0), set(Classic, 60)),
            ("set k 0 0 3\r\nabc\r\n".into(), "set k 0 60 3\r\nabc\r\n".into())
        );
        assert_eq!(
            (set(Meta, 0), set(Meta, 60)),
            ("ms k 3\r\nabc\r\n".into(), "ms k 3 T60\r\nabc\r\n".into())
        );
        assert_eq!(set(Resp, 0), "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nabc\r\n");
        assert_eq!(set(Resp, 60), "*5\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\nabc\r\n$2\r\nEX\r\n$2\r\n60\r\n");
        for (protocol, delete, incr, decr) in [
            (Classic, "delete k\r\n", "incr k 1\r\n", "decr k 1\r\n"),
            (Meta, "md k\r\n", "ma k v D1\r\n", "ma k v MD D1\r\n"),
            (
                Resp,
                "*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n",
                "*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n",
                "*2\r\n$4\r\nDECR\r\n$1\r\nk\r\n",
            ),
        ] {
            assert_eq!(text(|out| protocol.delete(out, b"k")), delete);
            assert_eq!(text(|out| protocol.incr(out, b"k")), incr);
            assert_eq!(text(|out| protocol.decr(out, b"k")), decr);
        }
    }
}
