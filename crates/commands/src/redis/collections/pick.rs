//! HRANDFIELD, SRANDMEMBER, ZRANDMEMBER: elements at random, each as likely as any other.
//!
//! ```text
//! count > 0   so many different ones, or all: each is taken with the odds of what is left to take by what is left
//! count < 0   so many, each any of all: of a copy, in as many steps as the reply is long
//! ```

use std::collections::BTreeSet;

use larder_protocol::resp::Args;
use larder_store::{Collection, Entry, Hint, Key, Type};
use smallvec::SmallVec;

use super::{Call, ELEMENT_NS, ELEMENT_ROOM, Shown, peek_as, read_as, symmetric};
use crate::core::output::Output;
use crate::redis::call::is;
use crate::redis::fail::{Done, Fail};
use crate::redis::steps::job::{Job, Step};
use crate::redis::strings::rewrite::Heap;

/// So many picks are written from where the collection lies.
const PICKS_DIRECT: i64 = 1024;
/// Picks of a reply that are written at once.
const PICKS_AT_ONCE: u64 = 256;

/// Random numbers, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed | 1)
    }

    /// One below `n`, which is far below 2^32.
    pub fn below(&mut self, n: usize) -> usize {
        // xorshift64*: its higher bits are the better ones.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let random = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        ((random * n as u64) >> 32) as usize
    }
}

/// Some of a collection's entries, each as likely as any other, in their order; no more than there are.
pub(crate) fn some<'r>(
    collection: &Collection<'r>,
    count: usize,
    random: Random,
) -> impl Iterator<Item = Entry<'r>> + use<'r> {
    let collection = *collection;
    places(collection.len(), count, random).into_iter().map(move |place| collection.entry(place))
}

/// So many different places of `len`, ascending.
fn places(len: usize, count: usize, mut random: Random) -> SmallVec<[usize; 8]> {
    /// Where one of this many is taken each is looked at.
    const FEW: usize = 8;
    if count.saturating_mul(FEW) < len {
        // Floyd's: of the last places each is as likely as one of those before it, or takes the place of one that was taken.
        let mut taken = BTreeSet::new();
        for last in len - count..len {
            let place = random.below(last + 1);
            if !taken.insert(place) {
                taken.insert(last);
            }
        }
        return taken.into_iter().collect();
    }
    let mut wanted = count;
    let taken = |place: &usize| {
        let taken = random.below(len - place) < wanted;
        wanted -= usize::from(taken);
        taken
    };
    (0..len).filter(taken).collect()
}

/// HRANDFIELD, SRANDMEMBER, ZRANDMEMBER; `pairs`: how the word is called with which `Shown::Names` become pairs.
pub(crate) fn random(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    hint: &Hint<'_>,
    args: Args<'_>,
    kind: Type,
    pairs: Option<(&str, Shown)>,
) -> Done {
    let mut random = Random::new(call.shared.random());
    let Some(count) = args.at(0) else {
        return match read_as(call.cx, call.tally, key, hint, kind)? {
            Some(there) => {
                Shown::Names.put(call.out, false, &there.entry(random.below(there.len())));
                Ok(())
            }
            None => call.null(),
        };
    };
    let count = symmetric(count)?;
    let shown = match (args.at(1), pairs) {
        (None, _) => Shown::Names,
        (Some(word), Some((name, shown))) if is(word, name) && args.len() == 2 => shown,
        _ => return Err(Fail::SYNTAX),
    };
    if shown != Shown::Names && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(Fail::of("ERR value is out of range"));
    }
    if (-PICKS_DIRECT..0).contains(&count) {
        let picks = |there: &Collection<'_>, visit: &mut dyn FnMut(&Entry<'_>)| {
            let mut random = random;
            (count..0).for_each(|_| visit(&there.entry(random.below(there.len()))));
        };
        let measure = |there: &Collection<'_>| {
            let mut bytes = 0;
            picks(there, &mut |entry| bytes += entry.name.len() + entry.value.len() + 2 * ELEMENT_ROOM);
            bytes
        };
        return call.reply_measured(key, hint, kind, measure, |out, resp3, there| {
            let count = if there.is_some() { count.unsigned_abs() as usize } else { 0 };
            shown.put_head(out, resp3, count);
            if let Some(there) = there {
                picks(&there, &mut |entry| shown.put_one(out, resp3, entry));
            }
            Ok(())
        });
    }
    if count < 0 {
        return Picking::begin(call, key, hint, (kind, shown), count.unsigned_abs(), random);
    }
    call.reply_of(key, hint, kind, |out, resp3, there| {
        let len = there.as_ref().map_or(0, Collection::len);
        let count = len.min(usize::try_from(count).unwrap_or(usize::MAX));
        shown.put_head(out, resp3, count);
        if let Some(there) = there {
            some(&there, count, random).for_each(|entry| shown.put_one(out, resp3, &entry));
        }
        Ok(())
    })
}

/// Picks of a collection as it was: each any of all.
#[derive(Debug)]
struct Picking {
    /// All of its entries as they are replied, one behind the other.
    replies: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<u32>,
    left: u64,
    random: Random,
    _held: Heap,
}

impl Picking {
    fn begin(
        call: &mut Call<'_, '_, '_>,
        key: &Key<'_>,
        hint: &Hint<'_>,
        (kind, shown): (Type, Shown),
        count: u64,
        random: Random,
    ) -> Done {
        let resp3 = call.client.resp3;
        let Some(there) = read_as(call.cx, call.tally, key, hint, kind)? else {
            shown.put_head(call.out, resp3, 0);
            return Ok(());
        };
        let (entries, bytes) = (there.len(), super::reply_bytes_max(&there));
        let held = Heap::take(call, bytes + entries * size_of::<u32>())?;
        // It may have given way to that.
        let Some(there) = peek_as(&mut call.cx.guard, key, kind)? else {
            shown.put_head(call.out, resp3, 0);
            return Ok(());
        };
        let (mut replies, mut ends) = (Output::new(u64::MAX), Vec::with_capacity(there.len()));
        for entry in there.entries(0..there.len()) {
            shown.put_one(&mut replies, resp3, &entry);
            ends.push(replies.len() as u32);
        }
        let picking = Picking { replies: replies.to_vec(), ends, left: count, random, _held: held };
        if call.cx.guard.in_transaction() {
            // All of it is sent at once.
            let longest = picking.longest() as u64;
            let bytes = count.checked_mul(longest).and_then(|bytes| usize::try_from(bytes).ok());
            call.make_room(bytes.ok_or(Fail::HELD)?)?;
        }
        shown.put_head(call.out, resp3, count as usize);
        call.work(picking)
    }

    fn place(&self, i: usize) -> std::ops::Range<usize> {
        let start = i.checked_sub(1).map_or(0, |before| self.ends[before]);
        start as usize..self.ends[i] as usize
    }

    /// Bytes of the longest reply.
    fn longest(&self) -> usize {
        (0..self.ends.len()).map(|i| self.place(i).len()).max().unwrap_or(0)
    }
}

impl Job for Picking {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        while self.left > 0 {
            if call.out.is_full() && !call.cx.guard.in_transaction() {
                call.spend(ns);
                return Ok(Step::Full);
            }
            if ns >= ns_max {
                call.spend(ns);
                return Ok(Step::More);
            }
            for _ in 0..self.left.min(PICKS_AT_ONCE) {
                let i = self.random.below(self.ends.len());
                call.out.put(&self.replies[self.place(i)]);
                self.left -= 1;
                ns += ELEMENT_NS;
            }
        }
        call.spend(ns);
        Ok(Step::Done)
    }

    fn only_reads(&self) -> bool {
        true
    }
}
