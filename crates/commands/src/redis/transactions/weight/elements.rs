//! What commands at elements of collections take in EXEC, and how large they leave their keys.

use larder_protocol::resp::{Args, parse_integer};

use super::{COLLECTION_BYTES_MAX, Scale, Size, count_of, number_behind, pattern_behind};
use crate::core::glob::Weight;
use crate::core::work::copying_ns;
use crate::redis::call::{Call, ELEMENT_BYTES, is};
use crate::redis::collections::bounds::By;
use crate::redis::collections::ranging::meant;
use crate::redis::collections::{
    COMPARE_NS, ELEMENT_NS, ELEMENT_ROOM, LOOK_NS, MEMBER_NS, PICKS_DIRECT, SCAN_NS, SCORE_NS, SCORED_NS,
    STORED_NS, WRITE_NS,
};
use crate::redis::table::Command;
use crate::redis::table::flag::{DENYOOM, WRITE};

/// What an element takes beside its bytes, at most.
const ELEMENT_MORE_BYTES: u64 = 8;
/// Elements of a leaf, about, at most.
const LEAF_ENTRIES: u64 = 4 << 10;
/// Bytes of leaves that come from memory in a nanosecond.
const LEAF_BYTES_A_NS: u64 = 8;

impl Size {
    /// With what others have.
    fn and(self, other: Size) -> Size {
        Size {
            bytes: self.bytes.saturating_add(other.bytes),
            elements: self.elements.saturating_add(other.elements),
            ..self
        }
    }

    /// So many of its elements.
    fn some(self, count: u64) -> Size {
        Size {
            bytes: self.bytes.min(count.saturating_mul(ELEMENT_BYTES as u64)),
            elements: self.elements.min(count),
            ..self
        }
    }

    /// Bytes of an element at random, on average.
    fn each(self) -> u64 {
        (self.bytes / self.least.max(1)).max(self.longest).min(self.bytes).min(ELEMENT_BYTES as u64)
    }

    /// What it takes to reply its elements.
    fn told_ns(self) -> u64 {
        copying_ns(self.bytes).saturating_add(self.elements.saturating_mul(ELEMENT_NS))
    }

    /// Bytes of a reply of its elements, at most: of a hash with their values, of a sorted set with their scores.
    fn told_bytes(self) -> u64 {
        self.bytes.saturating_add(self.elements.saturating_mul(2 * ELEMENT_ROOM as u64))
    }

    /// What it takes to put its members together with others.
    fn combined_ns(self) -> u64 {
        copying_ns(self.bytes).saturating_add(self.elements.saturating_mul(MEMBER_NS))
    }

    /// What it takes to pick so many elements, each once, and to reply them.
    fn picked_ns(self, count: u64) -> u64 {
        let picks = self.elements.min(count);
        // Many are walked to.
        let walk = if count > PICKS_DIRECT as u64 { 2 * self.elements.saturating_mul(ELEMENT_NS) } else { 0 };
        self.any_ns(picks).saturating_add(walk)
    }

    /// The same of picks of which each is any of all.
    fn any_ns(self, count: u64) -> u64 {
        count.saturating_mul(2 * LOOK_NS + ELEMENT_NS + copying_ns(self.each()))
    }

    /// What it takes to look through all of a list.
    fn compared_ns(self) -> u64 {
        self.elements.saturating_mul(COMPARE_NS).saturating_add(self.gone_ns())
    }

    /// What it takes to come to all its leaves, or to take them out.
    fn gone_ns(self) -> u64 {
        self.bytes / LEAF_BYTES_A_NS
    }

    /// What a write of a list takes, a leaf of which is copied.
    fn list_ns(self) -> u64 {
        self.bytes.min(COLLECTION_BYTES_MAX) / 4
    }

    /// The same of a sorted set, of which one leaf of each of its trees is copied.
    fn sorted_ns(self) -> u64 {
        self.list_ns()
    }

    /// What it takes to store all of it at once.
    fn stored_ns(self) -> u64 {
        self.elements.saturating_mul(STORED_NS)
    }

    /// What it takes to take so many members out of a sorted set.
    fn scored_ns(self, count: u64) -> u64 {
        self.elements.min(count).saturating_mul(SCORED_NS)
    }
}

/// A number that is not below 0; 0 if it is none.
fn natural(word: Option<&[u8]>) -> u64 {
    word.and_then(count_of).unwrap_or(0)
}

/// How many places are from one to another, at most.
fn places(start: Option<&[u8]>, stop: Option<&[u8]>) -> u64 {
    match (start.and_then(parse_integer), stop.and_then(parse_integer)) {
        (Some(start), Some(stop)) if (start < 0) == (stop < 0) => stop.abs_diff(start).saturating_add(1),
        _ => u64::MAX,
    }
}

impl<'q> Scale<'q> {
    /// Adds the words of a command on collections; what it takes beside that.
    pub(super) fn elements(&mut self, call: &mut Call<'_, '_, '_>, row: &Command, args: Args<'q>) -> u64 {
        self.words = self.words.saturating_add(args.len());
        let (db, first) = (self.db, args.at(0).unwrap_or_default());
        let there = self.size(call, db, first);
        // What it takes, and which elements are replied.
        let none = Size::default();
        let (ns, told) = match row.name {
            "hgetall" | "hkeys" | "hvals" | "smembers" => (there.told_ns(), there),
            "hrandfield" | "srandmember" | "zrandmember" => match args.at(1).and_then(parse_integer) {
                Some(count) if count < 0 => {
                    let count = count.unsigned_abs();
                    let bytes = there.each().saturating_mul(count);
                    (there.any_ns(count), Size { bytes, elements: count, ..none })
                }
                Some(count) => (there.picked_ns(count.unsigned_abs()), there.some(count.unsigned_abs())),
                None => (0, there.some(1)),
            },
            "spop" => {
                let count = args.at(1).map_or(1, |count| natural(Some(count)));
                let gone_ns = there.elements.min(count).saturating_mul(WRITE_NS);
                (there.picked_ns(count).saturating_add(gone_ns), there.some(count))
            }
            "hscan" | "sscan" | "zscan" => {
                let weight = pattern_behind(args.skip(2), there.elements, there.bytes);
                let weight = weight.unwrap_or_else(|| Weight::of(b"*"));
                let count = number_behind("COUNT", args.skip(2)).unwrap_or(10);
                // With those beside the last of them, and of one leaf all.
                let looked = there.some(count.saturating_add(LEAF_ENTRIES));
                let each = ELEMENT_NS + 2 * weight.ns(1, there.each());
                let looked_ns = looked.elements.saturating_mul(each).min(SCAN_NS);
                let leaf_ns =
                    2 * weight.ns(there.elements.min(LEAF_ENTRIES), there.bytes.min(COLLECTION_BYTES_MAX));
                (weight.read_ns + looked_ns + leaf_ns, looked)
            }
            "lrange" => {
                let some = there.some(places(args.at(1), args.at(2)));
                (some.told_ns() + there.list_ns(), some)
            }
            "lpos" => (there.compared_ns(), Size { elements: there.elements, ..none }),
            "linsert" => (there.compared_ns() + there.list_ns(), none),
            // Each leaf may be made anew.
            "lrem" => (there.compared_ns() + there.bytes, none),
            "lpush" | "rpush" | "lpushx" | "rpushx" | "lset" => (there.list_ns(), none),
            "ltrim" => (there.list_ns() + there.gone_ns(), none),
            "lpop" | "rpop" => {
                let some = there.some(args.at(1).map_or(1, |count| natural(Some(count))));
                (some.told_ns() + some.gone_ns() + there.list_ns(), some)
            }
            "lmove" | "rpoplpush" | "blmove" | "brpoplpush" => {
                let to = self.size(call, db, args.at(1).unwrap_or_default());
                (there.list_ns() + to.list_ns(), there.some(1))
            }
            "zrange" | "zrevrange" | "zrangebyscore" | "zrevrangebyscore" | "zrangebylex"
            | "zrevrangebylex" => {
                let scored = args.skip(3).any(|word| is(word, "WITHSCORES"));
                let some = there.some(ranged(row.name, args));
                (some.told_ns() + if scored { some.elements * SCORE_NS } else { 0 }, some)
            }
            "zadd" | "zincrby" | "zrem" => (there.sorted_ns(), none),
            "zremrangebyrank" | "zremrangebyscore" | "zremrangebylex" => {
                let gone = self.removed(call, row, first, there, args.skip(1));
                (there.sorted_ns() + gone.saturating_mul(SCORED_NS), none)
            }
            "zpopmin" | "zpopmax" => {
                let some = there.some(args.at(1).map_or(1, |count| natural(Some(count))));
                let gone_ns = some.scored_ns(u64::MAX);
                (some.told_ns() + some.elements * SCORE_NS + there.sorted_ns() + gone_ns, some)
            }
            "blpop" | "brpop" | "bzpopmin" | "bzpopmax" => {
                let all = self.largest(call, row, args);
                (all.some(1).told_ns() + SCORE_NS + all.sorted_ns(), all.some(1))
            }
            "lmpop" | "zmpop" | "blmpop" | "bzmpop" => {
                let count = number_behind("COUNT", args.skip(2)).unwrap_or(1).max(1);
                let all = self.largest(call, row, args);
                let some = all.some(count);
                let scored_ns = if row.name.ends_with("zmpop") { some.scored_ns(u64::MAX) } else { 0 };
                let told_ns = some.told_ns() + some.elements * SCORE_NS;
                (told_ns + some.gone_ns() + scored_ns + all.sorted_ns(), some)
            }
            "zrangestore" => {
                let from = self.size(call, db, args.at(1).unwrap_or_default());
                (from.combined_ns() + from.stored_ns(), none)
            }
            "sunion" | "zunion" => {
                let all = self.sum(call, row, args);
                (all.combined_ns(), all)
            }
            "sunionstore" | "zunionstore" => {
                let all = self.sum(call, row, args);
                (all.combined_ns() + all.stored_ns(), none)
            }
            "sinter" | "zinter" => self.sieved(call, row, args, true),
            "sintercard" | "zintercard" => (self.sieved(call, row, args, true).0, none),
            "sinterstore" | "zinterstore" => {
                let (ns, least) = self.sieved(call, row, args, true);
                (ns + least.stored_ns(), none)
            }
            "sdiff" | "sdiffstore" | "zdiff" | "zdiffstore" => {
                let gathered = self.sum(call, row, args).combined_ns();
                let (ns, first) = self.sieved(call, row, args, false);
                let stored_ns = if row.has(WRITE) { first.stored_ns() } else { 0 };
                (ns.min(gathered) + stored_ns, if row.has(WRITE) { none } else { first })
            }
            // They look at what they name.
            "hget" | "hmget" | "hgetdel" => (0, there.some(args.len() as u64)),
            "smismember" | "zmscore" => (0, Size { elements: args.len() as u64, ..none }),
            "lindex" => (0, there.some(1)),
            "hset" | "hmset" | "hsetnx" | "hdel" | "hexists" | "hlen" | "hstrlen" | "hincrby"
            | "hincrbyfloat" | "sadd" | "srem" | "sismember" | "scard" | "smove" | "llen" | "zscore"
            | "zcard" | "zcount" | "zlexcount" | "zrank" | "zrevrank" => (0, none),
            _ => {
                let all = self.sum(call, row, args);
                (all.combined_ns(), all)
            }
        };
        self.told_bytes = self.told_bytes.saturating_add(told.told_bytes());
        if row.has(WRITE) {
            self.grow(call, row, args);
        }
        ns
    }

    /// How many members of a range are taken out: those that are there now, and those that come before it.
    fn removed(
        &self,
        call: &mut Call<'_, '_, '_>,
        row: &Command,
        name: &[u8],
        there: Size,
        args: impl Iterator<Item = &'q [u8]>,
    ) -> u64 {
        let by = match row.name {
            "zremrangebyrank" => By::Rank,
            "zremrangebylex" => By::Lex,
            _ => By::Score,
        };
        let key = call.cx.guard.key_in(self.names[usize::from(self.db)], name);
        let (meant, len) = meant(call, &key, by, args);
        if self.is_replaced(self.db, name) {
            return there.elements;
        }
        // All of a set go with its root, unless others come to it before.
        let gone = if meant == len && there.elements == len { 0 } else { meant };
        gone.saturating_add(there.elements.saturating_sub(len))
    }

    /// How large the keys of a command are behind it, if they may be larger.
    fn grow(&mut self, call: &mut Call<'_, '_, '_>, row: &Command, args: Args<'q>) {
        let db = self.db;
        let (key, more) = match row.name {
            "sinterstore" | "sunionstore" | "sdiffstore" | "zinterstore" | "zunionstore" | "zdiffstore"
            | "zrangestore" => {
                let Size { bytes, elements, .. } = self.sum(call, row, args);
                let longest = bytes.min(ELEMENT_BYTES as u64);
                (args.at(0), Size { bytes, elements, least: 0, longest })
            }
            "smove" | "lmove" | "rpoplpush" | "blmove" | "brpoplpush" => {
                let longest = ELEMENT_BYTES as u64;
                (args.at(1), Size { bytes: longest, elements: 1, least: 0, longest })
            }
            _ if row.has(DENYOOM) => {
                let bytes = |word: &[u8]| word.len() as u64 + ELEMENT_MORE_BYTES;
                let longest = args.map(bytes).max().unwrap_or(0);
                let elements = args.len() as u64;
                (args.at(0), Size { bytes: args.map(bytes).sum(), elements, least: 0, longest: 2 * longest })
            }
            name => {
                // Which are taken out they may choose.
                let gone = if name == "spop" { natural(args.at(1)).max(1) } else { args.len() as u64 };
                let key = args.at(0).unwrap_or_default();
                let size = self.size(call, db, key);
                if size.elements > 0 {
                    self.note(call, db, key, Size { least: size.least.saturating_sub(gone), ..size });
                }
                return;
            }
        };
        let key = key.unwrap_or_default();
        let there = self.size(call, db, key);
        let size = Size { longest: there.longest.max(more.longest), ..there.and(more) };
        self.note(call, db, key, size);
    }

    /// All keys of a command together.
    fn sum(&mut self, call: &mut Call<'_, '_, '_>, row: &Command, args: Args<'q>) -> Size {
        let (db, mut sum) = (self.db, Size::default());
        row.each_key(args, &mut |key| sum = sum.and(self.size(call, db, key)));
        sum
    }

    /// What it takes to have the members of one key, the first or the smallest, go through all others; and that key.
    fn sieved(
        &mut self,
        call: &mut Call<'_, '_, '_>,
        row: &Command,
        args: Args<'q>,
        smallest: bool,
    ) -> (u64, Size) {
        let (db, mut first, mut others) = (self.db, None, 0);
        // What it stores to is not read.
        let mut stores = row.has(WRITE);
        row.each_key(args, &mut |key| {
            if std::mem::take(&mut stores) {
                return;
            }
            let size = self.size(call, db, key);
            match first {
                None => first = Some(size),
                Some(least) => {
                    others += 1;
                    first = Some(if smallest && size.elements < least.elements { size } else { least });
                }
            }
        });
        let first = first.unwrap_or_default();
        let looks = first.elements.saturating_mul(LOOK_NS).saturating_mul(others);
        (first.combined_ns().saturating_add(looks), first)
    }

    /// As large as each of the keys of a command is, at most.
    fn largest(&mut self, call: &mut Call<'_, '_, '_>, row: &Command, args: Args<'q>) -> Size {
        let (db, mut most) = (self.db, Size::default());
        row.each_key(args, &mut |key| {
            let size = self.size(call, db, key);
            most = Size {
                bytes: most.bytes.max(size.bytes),
                elements: most.elements.max(size.elements),
                ..most
            };
        });
        most
    }
}

/// How many members a range of a sorted set has, at most.
fn ranged(name: &str, args: Args<'_>) -> u64 {
    let by_rank = match name {
        "zrange" => !args.skip(3).any(|word| is(word, "BYSCORE") || is(word, "BYLEX")),
        name => name == "zrevrange",
    };
    if by_rank {
        return places(args.at(1), args.at(2));
    }
    // Said several times, the last one counts: the largest does here.
    let (mut words, mut most) = (args.skip(3), None);
    while let Some(word) = words.next() {
        if is(word, "LIMIT") {
            let count = words.clone().nth(1).and_then(count_of).unwrap_or(u64::MAX);
            most = most.max(Some(count));
        }
    }
    most.unwrap_or(u64::MAX)
}
