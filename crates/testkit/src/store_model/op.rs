//! Operations on a store, decoded from bytes: random ones for a property test, mutated ones for a fuzzer.
//!
//! ```text
//! byte 0     verb
//! byte 1     which worker, which database, which expectation
//! byte 2     key, or first key of many
//! byte 3     how many, or what else there is to say
//! bytes 4 5  size of the value
//! byte 6     expiry
//! byte 7     flags, or another key; whether hints are used
//! ```

/// Bytes of one operation.
pub const OP_BYTES: usize = 8;

/// Keys that are written one by one, and may be large.
pub(super) const KEYS: u32 = 24;

/// Keys that are written many at a time, and are small.
pub(super) const CROWD: u32 = 6_000;

/// Of these, as many are reached in one batch.
const BATCH: u32 = 64;

/// The factor of [`Op::lighter`].
const LIGHTER: u32 = 16;

/// The limit moves between these. In the least, two values of the largest are less than uploads may hold.
const MEBIBYTES: [u64; 4] = [3, 4, 5, 8];

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    pub(super) verb: Verb,
    /// The worker that does it.
    pub(super) worker: usize,
    /// Index of the database's name.
    pub(super) database: usize,
    pub(super) key: u32,
    pub(super) expect: Wanted,
    pub(super) bytes: usize,
    /// Milliseconds until the expiry; none: never.
    pub(super) ttl_ms: Option<u64>,
    pub(super) flags: u32,
    /// The store gets the hint of a batch's stages, as from a server.
    pub(super) hinted: bool,
}

/// The verb.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verb {
    Get,
    Peek,
    Store,
    /// An operation on the elements of a collection, by size and flags.
    Elements,
    Append,
    Prepend,
    Delete,
    Touch,
    Invalidate,
    ClaimToken,
    /// Writes over the middle of a value.
    Patch,
    /// Begins a value that arrives in pieces; one that was begun before is dropped.
    Begin,
    /// Receives more of that value.
    Continue,
    /// Receives the rest of it, and stores it.
    Publish,
    /// Pins a large value, as for sending.
    Pin,
    /// Checks all pinned values, as if they were sent, and drops the pins.
    Unpin,
    /// Stores a crowd of small values, of sizes around the given one.
    Fill(u32),
    /// Reads a crowd.
    Read(u32),
    Drop(u32),
    /// Several keys in one transaction.
    Transaction,
    Walk,
    Wait(u64),
    Maintain(usize),
    Rest,
    GiveWay,
    Limit(u64),
    Automove(u8),
    Reassign(usize),
    Flush,
    FlushAll,
    Swap,
}

/// The condition of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Any,
    Absent,
    Present,
    /// The token that the model knows.
    Token,
    /// Another token.
    OldToken,
    /// The item that was seen a moment ago.
    Unchanged,
}

impl Op {
    /// Reads one operation: all bytes mean one.
    pub fn decode(bytes: &[u8; OP_BYTES]) -> Op {
        let [verb, how, key, count, low, high, expiry, last] = *bytes;
        let many = 1 + u32::from(count) * 4;
        let size = usize::from(u16::from_le_bytes([low, high]));
        let verb = match verb % 64 {
            // One in seven of all operations.
            _ if verb >= 220 => Verb::Elements,
            0..8 => Verb::Get,
            8 => Verb::Peek,
            9..18 => Verb::Store,
            18 => Verb::Append,
            19 => Verb::Prepend,
            20..22 => Verb::Delete,
            22..24 => Verb::Touch,
            24 => Verb::Invalidate,
            25 => Verb::ClaimToken,
            26 => Verb::Patch,
            27..29 => Verb::Begin,
            29 => Verb::Continue,
            30..32 => Verb::Publish,
            32 => Verb::Pin,
            33 => Verb::Unpin,
            34..40 => Verb::Fill(many),
            40..43 => Verb::Read(many),
            43 => Verb::Drop(many),
            44..46 => Verb::Transaction,
            46 => Verb::Walk,
            47..49 => Verb::Wait(u64::from(count) * 16),
            49 => Verb::Wait(u64::from(count) * 1000),
            50..55 => Verb::Maintain(1 + usize::from(count % 16)),
            55 => Verb::Rest,
            56 => Verb::GiveWay,
            57 => Verb::Limit(MEBIBYTES[usize::from(count) % MEBIBYTES.len()] << 20),
            58 => Verb::Automove(count % 3),
            59 => Verb::Reassign(1 + usize::from(count % 16)),
            60 => Verb::Flush,
            61 => Verb::FlushAll,
            62 => Verb::Swap,
            _ => Verb::Maintain(64),
        };
        let crowd = matches!(verb, Verb::Fill(_) | Verb::Read(_) | Verb::Drop(_));
        let expect = match how >> 3 & 7 {
            0..3 => Wanted::Any,
            3 => Wanted::Absent,
            4 => Wanted::Present,
            5 => Wanted::Token,
            6 => Wanted::OldToken,
            _ => Wanted::Unchanged,
        };
        Op {
            verb,
            worker: usize::from(how & 1),
            database: usize::from(how >> 1 & 1),
            key: if crowd { u32::from(key) * 24 % CROWD } else { u32::from(key) % KEYS },
            expect,
            bytes: match size % 16 {
                _ if crowd => size % 1_500,
                0..11 => size % 2_000,
                11..14 => size % 20_000,
                // Of the least limit, two are less than uploads may hold.
                _ => size * 5,
            },
            ttl_ms: (expiry % 4 == 0).then(|| u64::from(expiry) * 50),
            flags: u32::from(last % 4) * 7,
            hinted: last & 4 != 0,
        }
    }

    /// As [`Op::decode`], but seven of eight are on the elements of a few collections.
    pub fn of_elements(bytes: &[u8; OP_BYTES]) -> Op {
        let op = Op::decode(bytes);
        if bytes[0].is_multiple_of(8) {
            return op.lighter();
        }
        Op { verb: Verb::Elements, key: u32::from(bytes[2] % 4), ..op }
    }

    /// The operation with a sixteenth of the items, whose values are larger by as much: it fills a store with a sixteenth of the
    /// work, so that a fuzzer tries many streams a second.
    #[must_use]
    pub fn lighter(self) -> Op {
        let verb = match self.verb {
            Verb::Fill(count) => Verb::Fill(count.div_ceil(LIGHTER)),
            Verb::Read(count) => Verb::Read(count.div_ceil(LIGHTER)),
            Verb::Drop(count) => Verb::Drop(count.div_ceil(LIGHTER)),
            verb => return Op { verb, ..self },
        };
        Op { verb, bytes: self.bytes * LIGHTER as usize, ..self }
    }

    /// The operations that run in one batch each.
    pub(super) fn parts(self) -> impl Iterator<Item = Op> {
        let (whole, of): (u32, fn(u32) -> Verb) = match self.verb {
            Verb::Fill(count) => (count, Verb::Fill),
            Verb::Read(count) => (count, Verb::Read),
            Verb::Drop(count) => (count, Verb::Drop),
            _ => (0, |_| unreachable!("it is done at once")),
        };
        let batches = (0..whole.div_ceil(BATCH)).map(move |n| Op {
            verb: of(BATCH.min(whole - n * BATCH)),
            key: self.key + n * BATCH,
            ..self
        });
        (whole == 0).then_some(self).into_iter().chain(batches)
    }

    /// Another key than its own, for what needs several.
    pub(super) fn next_key(&self, n: u32) -> u32 {
        (self.key + n * (1 + self.flags)) % KEYS
    }
}
