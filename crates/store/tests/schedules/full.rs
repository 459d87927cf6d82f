//! Collections in a store that evicts nothing and is full to the last chunk: elements are removed from them
//! whichever thread takes the memory that this frees.

use crate::stage::{Actor, Cast};
use larder_store::schedule::Random;
use larder_store::{DIGITS_MAX, Declined, Element, End, Guard, ScoreRule, Type};

/// How many elements a collection has at first: some fit in a leaf, some need a tree.
const ELEMENTS: [u64; 4] = [3, 20, 60, 200];
const TYPES: [Type; 4] = [Type::Hash, Type::Set, Type::SortedSet, Type::List];

/// A collection that only one thread changes, and its elements in order.
struct Kept {
    name: String,
    kind: Type,
    elements: Vec<String>,
    next: u64,
}

/// Adds `count` threads that each remove elements `steps` times, from collections that are filled before the
/// rest of the store. With `always` no removal may be refused.
pub fn join(cast: &mut Cast, count: u64, steps: u64, always: bool) {
    let mut all = Vec::new();
    for _ in 0..count {
        let kept: Vec<Kept> = cast.before(|actor| {
            let mut make = |kind| {
                let name = format!("kept-{}", actor.stage.number());
                let mut kept = Kept { name, kind, elements: Vec::new(), next: 0 };
                for _ in 0..ELEMENTS[actor.random.below(4) as usize] {
                    // This may be refused: the collections' chunks are of many sizes, and memory is short.
                    let _ = actor.batch(|guard, _, _| kept.add(guard));
                }
                kept
            };
            TYPES.map(&mut make).into()
        });
        all.push(kept);
    }
    cast.fill_up();
    for mut kept in all {
        cast.main("remover", move |actor| {
            for _ in 0..steps {
                let one = &mut kept[actor.random.below(4) as usize];
                step(actor, one, always);
            }
            kept.iter().for_each(|kept| actor.batch(|guard, _, _| kept.check(guard)));
        });
    }
}

fn step(actor: &mut Actor, kept: &mut Kept, always: bool) {
    actor.batch(|guard, _, random| {
        if random.below(8) == 0 {
            // This may be refused: there may be no memory.
            let _ = kept.add(guard);
            return;
        }
        // A refused removal of several elements may have removed some of them, so only one is asked for.
        let refused = kept.take_out(guard, random, if always { 3 } else { 1 }).err();
        assert!(refused.is_none() || !always, "{refused:?}: {} of {:?}", kept.elements.len(), kept.kind);
    });
    actor.batch(|guard, _, _| kept.check(guard));
}

fn text(element: Element<'_>) -> String {
    String::from_utf8(element.text(&mut [0; DIGITS_MAX]).to_vec()).expect("text was written")
}

impl Kept {
    /// Adds one more element, behind all others.
    fn add(&mut self, guard: &mut Guard<'_>) -> Result<(), Declined> {
        let name = format!("element {:06}", self.next);
        let key = guard.key(self.name.as_bytes());
        let one = || std::iter::once(name.as_bytes());
        match self.kind {
            Type::Hash => drop(guard.hash_set(&key, one().map(|name| (name, name)))?),
            Type::Set => drop(guard.set_add(&key, one())?),
            Type::List | Type::Stream => drop(guard.list_push(&key, End::Back, one(), false)?),
            Type::SortedSet => {
                let score = self.next as f64 * 0.1;
                guard.sorted_add(&key, ScoreRule::default(), one().map(|name| (score, name)))?;
            }
        }
        self.next += 1;
        self.elements.push(name);
        Ok(())
    }

    /// Removes up to `most` elements in one call: by name, or from an end.
    fn take_out(&mut self, guard: &mut Guard<'_>, random: &mut Random, most: u64) -> Result<(), Declined> {
        let len = self.elements.len();
        let count = (1 + random.below(most) as usize).min(len);
        let at = random.below((len - count) as u64 + 1) as usize;
        let key = guard.key(self.name.as_bytes());
        let names = self.elements[at..at + count].iter().map(|name| name.as_bytes());
        let (gone, taken) = match (self.kind, random.below(2)) {
            (Type::List, 0) => (0..count, guard.list_trim(&key, |len| count..len).map(|_| count)),
            (Type::List, _) => {
                let popped = guard.list_pop(&key, End::Back, count);
                (len - count..len, popped.map(|popped| popped.map_or(0, |popped| popped.len())))
            }
            (Type::SortedSet, 0) => {
                let removed = guard.sorted_remove(&key, |_| at..at + count);
                (at..at + count, removed.map(|removed| removed.map_or(0, |removed| removed.len())))
            }
            (kind, _) => (at..at + count, guard.remove_named(&key, kind, names)),
        };
        assert_eq!(taken?, count, "{}", self.name);
        self.elements.drain(gone);
        Ok(())
    }

    fn check(&self, guard: &mut Guard<'_>) {
        let key = guard.key(self.name.as_bytes());
        let there = guard.collection(&key, self.kind).expect("it has its type");
        let mut names: Vec<String> = there.map_or_else(Vec::new, |there| {
            there.entries(0..there.len()).map(|entry| text(entry.name)).collect()
        });
        if self.kind != Type::List {
            names.sort_unstable();
        }
        assert_eq!(names, self.elements, "{}", self.name);
    }
}
