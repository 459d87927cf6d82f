//! The short ways of writing, used by owners: by the hint of a batch, in place, over a part of a value, and
//! on condition that the expiry is the known one.

use crate::owner::{Known, Owner};
use crate::stage::{Stage, size, value, words};
use larder_store::schedule::Random;
use larder_store::{Attributes, Expect, Guard, Refusal};

impl Owner {
    /// Makes the usual SET: over the item that the hint names, as a new key if it names none, or as a general
    /// write.
    pub fn write_shortly(&mut self, guard: &mut Guard<'_>, stage: &Stage, random: &mut Random, n: u64) {
        let name = self.name(n);
        let key = self.key(guard, stage, &name);
        let (write, began) = (stage.number(), stage.tick());
        let live = self.live(guard, n);
        // Half of the values have the length of the present one, so that a chunk of the same class replaces
        // it.
        let bytes = live.filter(|_| random.below(2) == 0).map_or_else(|| size(random), |live| live.bytes);
        let bytes_of = value(self.id, write, bytes);
        let mut hint = guard.prefetch_bucket(&key);
        if guard.prefetch_item(&key, &mut hint) {
            guard.prefetch_again(&key, &mut hint);
        }
        let read = random.below(2) == 0;
        let replaced = if random.below(2) == 0 {
            guard.replace_value(&key, &bytes_of, &hint)
        } else {
            guard.replace_with(&key, &hint, read, |old| {
                if let Some(live) = live {
                    let seen = (words(old), old.len());
                    assert_eq!(seen, ((self.id, live.write), live.bytes), "{name}, as it is written over");
                }
                Some(&bytes_of)
            })
        };
        let new = Known { write, bytes: bytes_of.len(), cas: None, expires_at: 0, began, ended: 0 };
        if replaced {
            let Some(live) = live else { panic!("{name} came back: {:?}", self.known[n as usize]) };
            assert!(
                !self.must_be_gone(stage, live, began),
                "{name} was flushed, and is written over: {live:?}"
            );
            assert_eq!(live.expires_at, 0, "{name} has an expiry, and is written over as if it had none");
        } else if guard.insert_value(&key, &bytes_of, &hint) {
            if live.is_some() {
                self.missing(guard, stage, n);
            }
        } else {
            let done = guard.store_value(&key, &bytes_of, &Attributes::default(), Expect::Any);
            return self.judge((guard, stage), (n, began, Expect::Any), done, new);
        }
        self.known[n as usize] = Some(Known { ended: stage.tick(), ..new });
    }

    /// Overwrites the whole value, or a part of it and bytes beyond its end: in place, or in a copy.
    pub fn write_over(&mut self, guard: &mut Guard<'_>, stage: &Stage, random: &mut Random, n: u64) {
        let Some(known) = self.live(guard, n) else { return };
        let name = self.name(n);
        let key = self.key(guard, stage, &name);
        let began = stage.tick();
        let (write, offset, bytes) = if random.below(2) == 0 {
            (stage.number(), 0, known.bytes + 40 * random.below(2) as usize)
        } else {
            // Writes the bytes that are there already: the value's pattern begins anew at each such offset.
            let offset = 16 * random.below(known.bytes as u64 / 16 + 1);
            (known.write, offset, 16 + random.below(3_000) as usize)
        };
        let bytes_of = value(self.id, write, bytes);
        let total = known.bytes.max(offset as usize + bytes_of.len());
        let expect = match known.cas {
            Some(cas) if random.below(2) == 0 => Expect::Cas(cas),
            _ => Expect::Present,
        };
        let new = Known { write, bytes: total, cas: None, ..known };
        match guard.patch(&key, offset, &bytes_of, expect) {
            Ok(Some(there)) => {
                assert_eq!(
                    (there as usize, total),
                    (known.bytes, known.bytes),
                    "{name}, written over in place"
                );
                assert!(
                    !self.must_be_gone(stage, known, began),
                    "{name} was flushed, and is patched: {known:?}"
                );
                self.known[n as usize] = Some(Known { began, ended: stage.tick(), ..new });
            }
            Ok(None) => {
                let done = guard.overlay(&key, offset, &bytes_of, expect);
                self.judge((guard, stage), (n, began, expect), done, new);
            }
            Err(refusal) => self.judge((guard, stage), (n, began, expect), Err(refusal), new),
        }
    }

    /// Deletes the key or sets its expiry, on condition that its expiry is the known one; a quarter of the
    /// conditions are false.
    pub fn change_if(&mut self, guard: &mut Guard<'_>, stage: &Stage, random: &mut Random, n: u64) {
        let Some(known) = self.live(guard, n) else { return };
        let name = self.name(n);
        let key = self.key(guard, stage, &name);
        let holds = random.below(4) > 0;
        let asked = if holds { known.expires_at } else { known.expires_at + 1 };
        let delete = random.below(2) == 0;
        let expires_at = if random.below(2) == 0 { stage.now() + 1 + random.below(3_000) } else { 0 };
        let done = if delete {
            guard.delete_if(&key, |at| at == asked)
        } else {
            guard.touch_if(&key, expires_at, |at| at == asked)
        };
        match done {
            Ok(held) => {
                assert_eq!(held, holds, "{name}: another expiry than {known:?} has");
                if held {
                    self.known[n as usize] = (!delete).then_some(Known { expires_at, ..known });
                }
            }
            Err(Refusal::NoMemory) => assert!(!stage.evicts, "no memory for {name}"),
            Err(_) => self.missing(guard, stage, n),
        }
    }
}
