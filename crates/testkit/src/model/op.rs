//! Operations, decoded from bytes: random ones for property tests, mutated ones for a fuzzer.
//!
//! ```text
//! byte 0     verb
//! byte 1     key (one of few, so that operations meet)
//! bytes 2 3  value: kind and size
//! byte 4     exptime
//! byte 5     CAS token
//! bytes 6 7  flags, one bit each
//! bytes 8 9  delta, client flags
//! byte 10    second key
//! byte 11    mode
//! ```

/// Bytes of one operation.
pub const OP_BYTES: usize = 12;

const KEYS: u8 = 7;
/// First bytes from this value on are flushes.
const FLUSHES_FROM: u8 = 0xfd;

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A command of the classic protocol.
    Classic(Classic),
    /// A meta command.
    Meta(Meta),
    /// Time passes.
    Wait {
        /// Seconds that pass.
        seconds: u64,
    },
}

/// A classic command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classic {
    pub(super) verb: ClassicVerb,
    pub(super) key: Vec<u8>,
    /// A key that is read between two reads of `key`; empty: `key` is read once, alone.
    pub(super) second: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) flags: u32,
    pub(super) exptime: i64,
    pub(super) token: u8,
    pub(super) delta: u64,
    pub(super) noreply: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClassicVerb {
    Get,
    Gets,
    Gat,
    Gats,
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Cas,
    Delete,
    Incr,
    Decr,
    Touch,
    FlushAll,
}

/// A meta command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    pub(super) verb: MetaVerb,
    pub(super) key: Vec<u8>,
    pub(super) value: Vec<u8>,
    pub(super) flags: u32,
    pub(super) exptime: i64,
    pub(super) token: u8,
    pub(super) delta: u64,
    pub(super) mode: u8,
    /// Which request flags are sent, one bit each.
    pub(super) asks: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetaVerb {
    Get,
    Set,
    Delete,
    Arithmetic,
}

impl Op {
    /// Decodes one operation; any twelve bytes are valid.
    pub fn decode(bytes: &[u8; OP_BYTES]) -> Op {
        use ClassicVerb::*;
        const CLASSIC: [ClassicVerb; 15] =
            [Get, Gets, Set, Set, Add, Replace, Append, Prepend, Cas, Delete, Incr, Decr, Touch, Gat, Gats];
        let delta = u64::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        let flags = if bytes[8] & 3 == 0 { u32::from(bytes[9]) << 24 | 7 } else { u32::from(bytes[9] & 3) };
        let asks = u16::from_le_bytes([bytes[6], bytes[7]]);
        match bytes[0] {
            0..=7 => Op::Wait { seconds: u64::from(bytes[1]) % 40 + 1 },
            FLUSHES_FROM..=0xff => {
                Op::Classic(Classic { verb: FlushAll, ..classic(bytes, Get, delta, flags, asks) })
            }
            verb if verb & 1 == 0 => {
                let verb = CLASSIC[usize::from(verb / 2) % CLASSIC.len()];
                Op::Classic(classic(bytes, verb, delta, flags, asks))
            }
            verb => Op::Meta(Meta {
                verb: match verb / 2 % 8 {
                    0..=2 => MetaVerb::Get,
                    3 | 4 => MetaVerb::Set,
                    5 => MetaVerb::Delete,
                    _ => MetaVerb::Arithmetic,
                },
                key: key(bytes[1]),
                value: value(bytes[2], bytes[3]),
                flags,
                exptime: exptime(bytes[4]),
                token: bytes[5],
                delta,
                mode: bytes[11],
                asks,
            }),
        }
    }
}

impl Op {
    /// A client's command on these keys, chosen by `bytes`; no time passes.
    pub fn on(mut bytes: [u8; OP_BYTES], key: &[u8], second: &[u8]) -> Op {
        bytes[0] = bytes[0].max(8);
        // Flushes are immediate here: callers of this function expect no delayed one.
        if bytes[0] >= FLUSHES_FROM {
            bytes[4] = 0;
        }
        let mut op = Op::decode(&bytes);
        // memcached leaves open whether a value with an expiry in the past has existed.
        match &mut op {
            Op::Classic(classic) if !classic.looks() => classic.exptime = classic.exptime.max(0),
            Op::Meta(meta) if meta.verb == MetaVerb::Set => meta.exptime = meta.exptime.max(0),
            Op::Classic(_) | Op::Meta(_) | Op::Wait { .. } => {}
        }
        match &mut op {
            Op::Classic(classic) => {
                classic.key = key.to_vec();
                classic.second = second.to_vec();
            }
            Op::Meta(meta) => meta.key = key.to_vec(),
            Op::Wait { .. } => {}
        }
        op
    }

    /// The keys of items that it may store with an expiry in the past.
    pub(crate) fn leaves_expired(&self) -> Vec<Vec<u8>> {
        match self {
            Op::Classic(classic) if classic.exptime < 0 => vec![classic.key.clone(), classic.second.clone()],
            Op::Meta(meta) if meta.exptime < 0 => vec![meta.key.clone()],
            Op::Classic(_) | Op::Meta(_) | Op::Wait { .. } => Vec::new(),
        }
    }
}

impl Op {
    /// Whether it sends a token, which a server has given before.
    pub fn names_token(&self) -> bool {
        match self {
            Op::Classic(classic) => classic.verb == ClassicVerb::Cas,
            Op::Meta(meta) => meta.names_token(),
            Op::Wait { .. } => false,
        }
    }

    /// The same operation in the form of most of a pipeline: few verbs, no flags, no expiry, a reply.
    #[must_use]
    pub fn plainly(self) -> Op {
        match self {
            Op::Classic(classic) => Op::Classic(classic.plainly()),
            Op::Meta(meta) => Op::Meta(meta.plainly()),
            wait @ Op::Wait { .. } => wait,
        }
    }
}

impl Classic {
    fn plainly(self) -> Classic {
        use ClassicVerb::*;
        /// Plain additions and subtractions are of less than this.
        const DELTAS: u64 = 1 << 20;
        let verb = match self.verb {
            Get | Gats | Gat | Gets | FlushAll => Get,
            Set | Add | Replace | Append | Prepend | Cas => Set,
            Delete | Incr | Decr | Touch => Incr,
        };
        // A `gets` keeps its second key, and so reads three; the others read one.
        let second = if self.verb == Gets { self.second } else { Vec::new() };
        Classic { verb, second, flags: 0, exptime: 0, delta: self.delta % DELTAS, noreply: false, ..self }
    }

    /// Whether it stores nothing.
    fn looks(&self) -> bool {
        use ClassicVerb::{Gat, Gats, Get, Gets, Touch};
        matches!(self.verb, Get | Gets | Gat | Gats | Touch)
    }

    /// Whether it removes everything.
    pub fn flushes(&self) -> bool {
        self.verb == ClassicVerb::FlushAll
    }
}

fn classic(bytes: &[u8; OP_BYTES], verb: ClassicVerb, delta: u64, flags: u32, asks: u16) -> Classic {
    Classic {
        verb,
        key: key(bytes[1]),
        second: key(bytes[10]),
        value: value(bytes[2], bytes[3]),
        flags,
        exptime: exptime(bytes[4]),
        token: bytes[5],
        delta: if asks & 2 == 0 { delta } else { u64::MAX - delta },
        noreply: asks & 1 == 1,
    }
}

fn key(choice: u8) -> Vec<u8> {
    match choice % KEYS {
        0 => vec![b'k'; 250],
        1 => b"a\tb\x01".to_vec(),
        n => format!("key{n}").into_bytes(),
    }
}

/// A number, a short text with line ends, or something longer, up to many pieces.
fn value(kind: u8, size: u8) -> Vec<u8> {
    let size = usize::from(size);
    match kind % 8 {
        0 | 1 => size.to_string().into_bytes(),
        2 => (u64::MAX - size as u64).to_string().into_bytes(),
        3 => b" 12 ".to_vec(),
        4 => b"\r\nEND\r\n"[..size % 8].to_vec(),
        5 => pattern(size * 13),
        6 => pattern(size * 130),
        _ => pattern(if kind > 240 { size * 900 } else { size }),
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

fn exptime(choice: u8) -> i64 {
    match choice % 16 {
        0..=7 => 0,
        8 => -1,
        9 => 1,
        10..=13 => i64::from(choice / 4) + 1,
        14 => 2_592_000,
        _ => 1_900_000_000,
    }
}
