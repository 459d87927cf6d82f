//! HRANDFIELD, SRANDMEMBER, ZRANDMEMBER: elements at random, each as likely as any other.
//!
//! ```text
//! count > 0   so many different ones, or all: each is taken with the odds of what is left to take by what is left
//! count < 0   so many, each any of all
//! ```

use std::collections::BTreeSet;

use larder_protocol::resp::Args;
use larder_store::{Collection, Element, Entry, Hint, Key, Type};

use super::listing::{Form, Listed, Which};
use super::{Call, Shown, read_as, symmetric};
use crate::redis::call::is;
use crate::redis::fail::{Done, Fail};

/// How many picks are looked for at once.
pub(crate) const PICKS_DIRECT: usize = 1 << 10;

/// Random numbers, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed | 1)
    }

    /// A number below `n`, which is far below 2^32.
    pub fn below(&mut self, n: usize) -> usize {
        // xorshift64*: its higher bits are the better ones.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let random = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        ((random * n as u64) >> 32) as usize
    }
}

/// Draws so many of some places, in their order: each is taken with the odds of what is left to take by what is left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drawing {
    at: usize,
    wanted: usize,
    random: Random,
}

impl Drawing {
    pub fn new(wanted: usize, random: Random) -> Drawing {
        Drawing { at: 0, wanted, random }
    }

    /// The next place.
    pub fn at(&self) -> usize {
        self.at
    }

    /// How many are still to be drawn.
    pub fn wanted(&self) -> usize {
        self.wanted
    }

    /// The next place is drawn. It is below `len`, which is always the same.
    pub fn takes(&mut self, len: usize) -> bool {
        let taken = self.random.below(len - self.at) < self.wanted;
        self.at += 1;
        self.wanted -= usize::from(taken);
        taken
    }
}

/// Calls `visit` with so many of a collection's entries, or all if there are no more, each as likely as any other, in
/// their order.
pub(crate) fn each_of_some<'r>(
    there: &Collection<'r>,
    count: usize,
    random: Random,
    visit: &mut dyn FnMut(&Entry<'r>),
) {
    /// Where one of this many is taken each is looked at.
    const FEW: usize = 8;
    let len = there.len();
    if count <= PICKS_DIRECT && count.saturating_mul(FEW) < len {
        return few_places(len, count, random).into_iter().for_each(|place| visit(&there.entry(place)));
    }
    let mut drawing = Drawing::new(count.min(len), random);
    there.entries(0..len).filter(|_| drawing.takes(len)).for_each(|entry| visit(&entry));
}

/// The same of so many places that are no more than there are, in an order that says nothing.
pub(crate) fn some_places(len: usize, count: usize, mut random: Random) -> Vec<usize> {
    let mut places: Vec<usize> = few_places(len, count, random).into_iter().collect();
    // Other numbers than those by which they were drawn.
    random.0 = random.0.rotate_left(32) | 1;
    for last in (1..places.len()).rev() {
        places.swap(last, random.below(last + 1));
    }
    places
}

/// An entry of a collection at random.
fn any_entry<'r>(there: &Collection<'r>, mut random: Random) -> Entry<'r> {
    there.entry(random.below(there.len()))
}

/// Returns `count` different places below `len`, ascending. By Floyd's algorithm: each of the last places is as likely as one of
/// those before it, or takes the place of one that was taken.
fn few_places(len: usize, count: usize, mut random: Random) -> BTreeSet<usize> {
    let mut taken = BTreeSet::new();
    for last in len - count..len {
        let place = random.below(last + 1);
        if !taken.insert(place) {
            taken.insert(last);
        }
    }
    taken
}

/// HRANDFIELD, SRANDMEMBER, ZRANDMEMBER. `name`: the command's; `pairs`: how the word is called with which `Shown::Names`
/// become pairs.
pub(crate) fn random(
    call: &mut Call<'_, '_, '_>,
    name: &'static str,
    key: &Key<'_>,
    hint: &Hint<'_>,
    args: Args<'_>,
    kind: Type,
    pairs: Option<(&str, Shown)>,
) -> Done {
    let random = Random::new(call.shared.random());
    let Some(count) = args.at(0) else {
        return match read_as(call.cx, call.tally, key, hint, kind)? {
            Some(there) if there.is_due() => {
                if call.take_due(name, key, args)? {
                    return Ok(());
                }
                self::random(call, name, key, hint, args, kind, pairs)
            }
            Some(there) => {
                let entry = any_entry(&there, random);
                if let Element::Apart(apart) = entry.name {
                    let bytes = apart.len();
                    return call.reply_apart(key, kind, bytes, |there| Some(any_entry(there, random).name));
                }
                Shown::Names.put(call.out, false, (&there, &entry));
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
    let which = if count < 0 {
        Which::Any(count.unsigned_abs(), random)
    } else {
        Which::Some(usize::try_from(count).unwrap_or(usize::MAX), random)
    };
    call.list(
        name,
        key,
        hint,
        args,
        Listed { kind, shown, form: Form::Rows, which, takes: false, soonest: 0 },
    )
}
