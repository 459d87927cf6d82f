//! Owners: each is the only writer of its keys, and so knows to the byte what must be there.

use crate::stage::{Actor, Cast, Stage, collect, size, value, words};
use larder_store::schedule::Random;
use larder_store::{Attributes, End, Expect, Guard, Key, Lookup, Pinned, Refusal, Stored};

/// Keys of one owner.
const KEYS: u64 = 12;

/// What an owner knows of an item.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub write: u64,
    pub bytes: usize,
    /// `None` after a write that did not return it.
    pub cas: Option<u64>,
    pub expires_at: u64,
    /// Ticks between which the last write happened.
    pub began: u64,
    pub ended: u64,
}

pub struct Owner {
    pub id: u64,
    /// The number of the database in which its keys are.
    number: u8,
    pub known: Vec<Option<Known>>,
    pins: Vec<(Pinned, u64, usize)>,
}

/// Adds `count` owners in database 0, each of which takes `steps` steps.
pub fn join(cast: &mut Cast, count: u64, steps: u64) {
    (0..count).for_each(|_| one(cast, 0, steps, |_| {}));
}

/// Adds owners as [`join`] does. Two thirds of them have waiting clients, and half of these are refused where
/// they would sleep, and try again.
pub fn join_hurried(cast: &mut Cast, count: u64, steps: u64) {
    for _ in 0..count {
        one(cast, 0, steps, |actor| {
            let drawn = actor.random.below(3);
            if drawn > 0 {
                actor.hurry(drawn == 1);
            }
        });
    }
}

/// Adds one owner in the database that has this number at first.
pub fn join_in(cast: &mut Cast, number: u8, steps: u64) {
    one(cast, number, steps, |_| {});
}

fn one(cast: &mut Cast, number: u8, steps: u64, first: impl FnOnce(&mut Actor) + 'static) {
    let id = cast.stage().number();
    cast.main("owner", move |actor| {
        first(actor);
        let mut owner = Owner { id, number, known: vec![None; KEYS as usize], pins: Vec::new() };
        for _ in 0..steps {
            owner.step(actor);
        }
        // Checks all keys once more.
        actor.batch(|guard, stage, random| {
            for n in 0..KEYS {
                owner.read(guard, stage, random, n);
            }
        });
        std::mem::take(&mut owner.pins).into_iter().for_each(|pin| owner.unpin(pin));
    });
}

impl Owner {
    pub fn name(&self, n: u64) -> String {
        format!("owner-{}-{n}", self.id)
    }

    /// The key of a name, in this batch.
    pub fn key<'k>(&self, guard: &Guard<'_>, stage: &Stage, name: &'k str) -> Key<'k> {
        guard.key_in(stage.name_of(self.number), name.as_bytes())
    }

    fn step(&mut self, actor: &mut Actor) {
        if actor.random.below(40) == 0 {
            actor.rest();
        }
        let upload = actor.random.below(12) == 0;
        if upload {
            return self.upload(actor);
        }
        actor.batch(|guard, stage, random| {
            for _ in 0..1 + random.below(4) {
                let n = random.below(KEYS);
                match random.below(16) {
                    0..4 => self.write(guard, stage, random, n),
                    4..9 => self.read(guard, stage, random, n),
                    9 => self.append(guard, stage, random, n),
                    10 => self.change(guard, stage, random, n),
                    11 => self.change_if(guard, stage, random, n),
                    12 => self.write_over(guard, stage, random, n),
                    _ => self.write_shortly(guard, stage, random, n),
                }
            }
        });
        if actor.random.below(4) == 0
            && let Some(pin) = self.pins.pop()
        {
            self.unpin(pin);
        }
    }

    fn unpin(&self, (pinned, write, bytes): (Pinned, u64, usize)) {
        let now: Vec<u8> = pinned.pieces(0).flatten().copied().collect();
        assert!(now == value(self.id, write, bytes), "a value changed while it was sent");
    }

    /// The item that must be there at the time of this batch.
    pub fn live(&mut self, guard: &Guard<'_>, n: u64) -> Option<Known> {
        let known = self.known[n as usize]?;
        (known.expires_at == 0 || known.expires_at > guard.now()).then_some(known)
    }

    /// Notes that a read missed the key, and checks that expiry, a flush or eviction explains it.
    pub fn missing(&mut self, guard: &Guard<'_>, stage: &Stage, n: u64) {
        let ended = stage.tick();
        let live = self.live(guard, n);
        self.known[n as usize] = None;
        let Some(known) = live else { return };
        // The clock of other threads' batches may be ahead of this one.
        let expired = known.expires_at != 0 && known.expires_at <= stage.now();
        if expired || stage.may_be_flushed(self.number, known.began, ended) {
            return;
        }
        let evicted = stage.evicts || stage.evicts_brief && known.expires_at != 0;
        assert!(evicted, "{} is lost, and nothing explains it: {known:?}", self.name(n));
        stage.miss(self.name(n).as_bytes());
    }

    fn read(&mut self, guard: &mut Guard<'_>, stage: &Stage, random: &mut Random, n: u64) {
        let name = self.name(n);
        let key = self.key(guard, stage, &name);
        let began = stage.tick();
        let live = self.live(guard, n);
        let lookup = match random.below(3) {
            0 => guard.peek(&key),
            1 => guard.get(&key),
            _ => {
                let mut hint = guard.prefetch_bucket(&key);
                if guard.prefetch_item(&key, &mut hint) {
                    guard.prefetch_again(&key, &mut hint);
                }
                guard.get_hinted(&key, &hint)
            }
        };
        let Lookup::Hit(item) = lookup else { return self.missing(guard, stage, n) };
        let Some(known) = live else { panic!("{name} came back: {:?}", self.known[n as usize]) };
        assert!(!self.must_be_gone(stage, known, began), "{name} was flushed, and is there: {known:?}");
        let bytes = collect(item.value());
        assert_eq!((words(&bytes), bytes.len()), ((self.id, known.write), known.bytes), "{name}");
        let cas = item.cas();
        assert!(known.cas.is_none_or(|known| known == cas), "{name}: {cas}, and {known:?}");
        self.known[n as usize] = Some(Known { cas: Some(cas), ..known });
        if bytes.len() > 40_000 && self.pins.len() < 2 {
            self.pins.push((item.pin(), known.write, bytes.len()));
        }
    }

    /// Returns whether a flush that began after the write of `known` must have removed it, for a read that
    /// began at `began`.
    pub fn must_be_gone(&self, stage: &Stage, known: Known, began: u64) -> bool {
        stage.must_be_flushed(self.number, known.ended, began)
    }

    /// Checks the result of a write.
    pub fn judge(
        &mut self,
        (guard, stage): (&Guard<'_>, &Stage),
        (n, began, expect): (u64, u64, Expect),
        done: Result<Stored, Refusal>,
        mut new: Known,
    ) {
        let live = self.live(guard, n);
        match (done, expect) {
            (Ok(stored), _) => {
                if live.is_some() && !stored.replaced {
                    self.missing(guard, stage, n);
                }
                assert!(!stored.replaced || live.is_some(), "{} came back", self.name(n));
                if let (Expect::Cas(cas), Some(live)) = (expect, live) {
                    let its = live.cas.is_none_or(|its| its == cas);
                    assert!(its, "{} was stored by another token", self.name(n));
                }
                (new.cas, new.began, new.ended) = (Some(stored.cas), began, stage.tick());
                self.known[n as usize] = Some(new);
            }
            (Err(Refusal::NoMemory), _) => assert!(!stage.evicts, "no memory for {}", self.name(n)),
            (Err(Refusal::Present), _) => assert!(live.is_some(), "{} came back", self.name(n)),
            (Err(Refusal::Absent), _) => self.missing(guard, stage, n),
            (Err(Refusal::Changed), Expect::Cas(cas)) => {
                assert!(live.is_some_and(|live| live.cas != Some(cas)), "{} has this token", self.name(n));
            }
            (Err(Refusal::Changed), _) => panic!("{}: nobody else writes it", self.name(n)),
            (Err(Refusal::Type), _) => panic!("{}: it is a string", self.name(n)),
        }
    }

    fn write(&mut self, guard: &mut Guard<'_>, stage: &Stage, random: &mut Random, n: u64) {
        let name = self.name(n);
        let key = self.key(guard, stage, &name);
        let (write, bytes, began) = (stage.number(), size(random), stage.tick());
        let live = self.live(guard, n);
        let expect = match random.below(6) {
            0 => Expect::Absent,
            1 => Expect::Present,
            2 => live.and_then(|live| live.cas).map_or(Expect::Any, Expect::Cas),
            3 => Expect::Cas(live.and_then(|live| live.cas).map_or(7, |cas| cas - 1)),
            _ => Expect::Any,
        };
        let expires_at = if random.below(6) == 0 { stage.now() + random.below(3_000) } else { 0 };
        let attributes = Attributes { expires_at, ..Attributes::default() };
        let bytes_of = value(self.id, write, bytes);
        let done = if expect == Expect::Any && random.below(2) == 0 {
            let mut hint = guard.prefetch_bucket(&key);
            if guard.prefetch_item(&key, &mut hint) {
                guard.prefetch_again(&key, &mut hint);
            }
            guard.store_value_hinted(&key, &bytes_of, &attributes, expect, &hint)
        } else {
            guard.store_value(&key, &bytes_of, &attributes, expect)
        };
        let new = Known { write, bytes: bytes_of.len(), cas: None, expires_at, began: 0, ended: 0 };
        self.judge((guard, stage), (n, began, expect), done, new);
    }

    /// Appends to a value, in the same pattern.
    fn append(&mut self, guard: &mut Guard<'_>, stage: &Stage, random: &mut Random, n: u64) {
        let Some(known) = self.live(guard, n).filter(|known| known.bytes % 16 == 0 && known.bytes < 90_000)
        else {
            return;
        };
        let name = self.name(n);
        let key = self.key(guard, stage, &name);
        let began = stage.tick();
        let more = value(self.id, known.write, 16 + 16 * random.below(40) as usize);
        let expect = Expect::Present;
        let done = guard.concat(&key, &more, End::Back, None, expect);
        let new = Known { bytes: known.bytes + more.len(), ..known };
        self.judge((guard, stage), (n, began, expect), done, new);
    }

    fn change(&mut self, guard: &mut Guard<'_>, stage: &Stage, random: &mut Random, n: u64) {
        let name = self.name(n);
        let key = self.key(guard, stage, &name);
        let delete = random.below(2) == 0;
        let expires_at = if random.below(2) == 0 { stage.now() + 1 + random.below(3_000) } else { 0 };
        let done = if delete { guard.delete(&key, Expect::Present) } else { guard.touch(&key, expires_at) };
        let live = self.live(guard, n);
        match done {
            Ok(()) if delete => {
                assert!(live.is_some(), "{name} came back");
                self.known[n as usize] = None;
            }
            Ok(()) => {
                let live = live.unwrap_or_else(|| panic!("{name} came back"));
                self.known[n as usize] = Some(Known { expires_at, ..live });
            }
            Err(Refusal::NoMemory) => assert!(!stage.evicts, "no memory for {name}"),
            Err(_) => self.missing(guard, stage, n),
        }
    }

    /// Begins an upload, which is filled over several batches, and may never be complete.
    fn upload(&mut self, actor: &mut Actor) {
        let n = actor.random.below(KEYS);
        let name = self.name(n);
        let write = actor.stage.number();
        let bytes = 20_000 + actor.random.below(60_000) as usize;
        let bytes_of = value(self.id, write, bytes);
        let begun = actor.batch(|guard, stage, _| {
            let key = self.key(guard, stage, &name);
            guard.upload(&key, bytes as u64, &Attributes::default())
        });
        let Ok(mut upload) = begun else { return };
        let abandoned = actor.random.below(4) == 0;
        for part in bytes_of.chunks(16_000) {
            if actor.batch(|guard, _, _| guard.upload_fill(&mut upload, part)).is_err() || abandoned {
                return;
            }
        }
        actor.batch(|guard, stage, _| {
            let began = stage.tick();
            let done = guard.publish(upload, Expect::Any);
            let new = Known { write, bytes, cas: None, expires_at: 0, began: 0, ended: 0 };
            self.judge((guard, stage), (n, began, Expect::Any), done, new);
        });
    }
}
