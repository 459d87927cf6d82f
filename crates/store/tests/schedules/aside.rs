//! Threads of other roles beside the threads that know what must be there.

use crate::stage::{Actor, Cast, collect, size, value, words};
use larder_store::schedule::{fail, sleep, waited};
use larder_store::{Attributes, Automove, Expect, Upload};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// What a thread does until the others are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Flushes, once or twice.
    Flusher,
    /// Inserts many small items and deletes them again: the index grows and shrinks.
    Grower,
    /// Stores values of all sizes, so that classes take spans from each other.
    Filler,
    /// Does upkeep and moves the clock.
    Upkeep,
    /// Walks over all items, some steps in each batch.
    Walker,
    /// Walks over all items several times in one batch.
    Keys,
    /// Walks over all items once, in one batch.
    Survey,
    /// Moves spans from one class to another.
    Mover,
    /// Lowers and raises the memory limit.
    Limiter,
    /// Enters a batch and stays in it for a while.
    Staller,
    /// Stores items that expire soon.
    Expirer,
    /// Begins uploads, continues them late, and abandons some.
    Pinner,
    /// Writes many keys in each transaction.
    Transactions,
    /// Walks over all items, and checks those that owners have written.
    Reader,
    /// Flushes one database or all. The flush is refused while too much of earlier flushes is not cleaned up.
    DatabaseFlusher,
    /// Swaps databases.
    Swapper,
    /// Deletes some of the items that filled the store to the last chunk.
    Thinner,
}

/// The first roles that there were, for a store that evicts.
pub const ALL: [Role; 11] = [
    Role::Flusher,
    Role::Grower,
    Role::Filler,
    Role::Upkeep,
    Role::Walker,
    Role::Mover,
    Role::Limiter,
    Role::Staller,
    Role::Expirer,
    Role::Pinner,
    Role::Transactions,
];

/// All of [`ALL`], and roles that were added later.
pub const MORE: [Role; 14] = [
    Role::Flusher,
    Role::Grower,
    Role::Filler,
    Role::Upkeep,
    Role::Walker,
    Role::Mover,
    Role::Limiter,
    Role::Staller,
    Role::Expirer,
    Role::Pinner,
    Role::Transactions,
    Role::Survey,
    Role::Reader,
    Role::DatabaseFlusher,
];

/// Roles that remove no key of others, and leave enough memory in a store that evicts nothing.
pub const HARMLESS: [Role; 10] = [
    Role::Grower,
    Role::Upkeep,
    Role::Walker,
    Role::Survey,
    Role::Mover,
    Role::Staller,
    Role::Transactions,
    Role::Expirer,
    Role::Pinner,
    Role::Reader,
];

/// Roles that leave enough memory in a store that evicts nothing; one of them flushes.
pub const KEEPING: [Role; 7] =
    [Role::Flusher, Role::Grower, Role::Upkeep, Role::Walker, Role::Mover, Role::Staller, Role::Transactions];

/// Adds up to `most` threads whose roles are drawn from these.
pub fn some(cast: &mut Cast, most: u64, of: &[Role]) {
    for _ in 0..1 + cast.random.below(most) {
        let role = of[cast.random.below(of.len() as u64) as usize];
        one(cast, role);
    }
}

/// Adds a thread of this role.
pub fn one(cast: &mut Cast, role: Role) {
    let id = cast.stage().number();
    match role {
        Role::Flusher => cast.aside("flusher", flush),
        Role::Grower => {
            let (mut next, mut most) = (0, 0);
            cast.aside("grower", move |actor| grow(actor, id, &mut next, &mut most));
        }
        Role::Filler => cast.aside("filler", move |actor| fill(actor, id)),
        Role::Upkeep => cast.aside("upkeep", upkeep),
        Role::Walker => {
            let mut cursor = 0;
            cast.aside("walker", move |actor| {
                let items = 1 + actor.random.below(100) as usize;
                cursor = actor.batch(|guard, _, _| guard.walk(cursor, items, &mut |item| _ = item.key()));
            });
        }
        Role::Keys => cast.aside("keys", |actor| survey(actor, KEYS_WALKS)),
        Role::Survey => cast.aside("survey", |actor| survey(actor, 1)),
        Role::Mover => cast.aside("mover", r#move),
        Role::Limiter => cast.aside("limiter", |actor| {
            nap(actor, 100_000);
            actor.batch(|guard, stage, random| {
                assert!(stage.store.set_memory_bytes((2 << 20) + (random.below(4) << 20)));
                guard.give_way();
            });
        }),
        Role::Staller => cast.aside("staller", |actor| {
            nap(actor, 5_000_000);
            actor.batch(|guard, _, random| {
                let key = guard.key(b"fill-1");
                let _ = guard.get(&key);
                sleep(Duration::from_nanos(random.below(20_000_000)));
            });
        }),
        Role::Expirer => cast.aside("expirer", move |actor| {
            actor.batch(|guard, stage, random| {
                let name = format!("brief-{}", stage.number());
                let expires_at = stage.now() + 1 + random.below(2_000);
                let attributes = Attributes { expires_at, ..Attributes::default() };
                let key = guard.key(name.as_bytes());
                let _ = guard.store_value(&key, &value(id, 0, size(random)), &attributes, Expect::Any);
                stage.pass(random.below(100));
            });
        }),
        Role::Pinner => {
            let mut under_way: Option<Upload> = None;
            cast.aside("pinner", move |actor| pin(actor, id, &mut under_way));
        }
        Role::Reader => {
            let mut cursor = 0;
            cast.aside("reader", move |actor| {
                let items = 1 + actor.random.below(100) as usize;
                cursor = actor.batch(|guard, _, _| {
                    guard.walk(cursor, items, &mut |item| {
                        // No value is a mix of two writes, even if it is overwritten in place meanwhile.
                        if item.key().starts_with(b"owner-") {
                            words(&collect(item.value()));
                        }
                    })
                });
            });
        }
        Role::DatabaseFlusher => cast.aside("flusher-of-databases", |actor| {
            nap(actor, 200_000);
            actor.batch(|guard, stage, random| {
                let name = (random.below(3) > 0).then(|| DATABASES[random.below(4) as usize]);
                stage.flush(name.map(|name| stage.number_of(name)), || guard.try_flush(name));
            });
        }),
        Role::Swapper => cast.aside("swapper", |actor| {
            nap(actor, 100_000);
            actor.batch(|guard, stage, random| {
                let [one, other] = [(); 2].map(|()| DATABASES[random.below(4) as usize]);
                guard.begin_whole();
                guard.swap_databases(one, other);
                stage.swapped(one, other);
                guard.finish();
            });
        }),
        Role::Thinner => cast.aside("thinner", |actor| {
            actor.batch(|guard, stage, random| {
                let name = format!("full-{:011}", random.below(stage.numbers()));
                let key = guard.key(name.as_bytes());
                let _ = guard.delete(&key, Expect::Any);
            });
        }),
        Role::Transactions => cast.aside("transactions", |actor| {
            actor.batch(|guard, stage, random| {
                let count = 2 + random.below(30);
                let names: Vec<String> =
                    (0..count).map(|_| format!("many-{}", random.below(2_000))).collect();
                guard.begin_in(0, names.iter().map(|name| name.as_bytes()));
                for name in &names {
                    let key = guard.key(name.as_bytes());
                    let done = guard.store_value(&key, &[b't'; 200], &Attributes::default(), Expect::Any);
                    assert!(done.is_ok() || !stage.evicts, "a transaction is refused: {done:?}");
                }
                guard.finish();
            });
        }),
    }
}

/// Adds a thread whose upkeep goes through this many periods of compaction; it then adds the store's emptied
/// spans and its evictions to `done`.
pub fn compact(cast: &mut Cast, periods: u64, done: &Rc<Cell<Compacted>>) {
    let done = Rc::clone(done);
    cast.main("compactor", move |actor| {
        for _ in 0..periods * PERIOD_STEPS {
            actor.batch(|guard, stage, random| {
                stage.pass(random.below(2 * PERIOD_MS / PERIOD_STEPS));
                let steps = 1 + random.below(8);
                let _ = (0..steps).all(|_| guard.maintain());
            });
        }
        let (before, totals) = (done.get(), actor.stage.store.totals());
        let (spans, evictions) = (before.spans + totals.spans_moved, before.evictions + totals.evictions);
        done.set(Compacted { spans, evictions });
    });
}

/// Sums over all schedules, each taken when its compaction was over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compacted {
    /// Spans that were emptied.
    pub spans: u64,
    /// Items that were evicted.
    pub evictions: u64,
}

/// Compaction frees memory that was free for this long.
const PERIOD_MS: u64 = 2_000;
const PERIOD_STEPS: u64 = 8;

/// The names of the databases that are flushed and swapped.
pub const DATABASES: [u8; 4] = [0, 3, 7, 15];

/// Walks in one batch: together they take some 10 ms.
const KEYS_WALKS: usize = 4;
/// Walks over all items `walks` times in one batch.
fn survey(actor: &mut Actor, walks: usize) {
    actor.batch(|guard, _, _| {
        for _ in 0..walks {
            let mut cursor = 0;
            loop {
                cursor = guard.walk(cursor, 64, &mut |item| _ = item.key());
                if cursor == 0 {
                    break;
                }
            }
        }
    });
}

/// How long a write may sleep beside the walks: a few steps of a walk take as long.
const SLEPT_MAX: Duration = Duration::from_millis(3);

/// Makes a write, and fails if it sleeps longer than [`SLEPT_MAX`].
pub fn write_soon(actor: &mut Actor) {
    let before = waited().1;
    fill(actor, 0);
    let slept = waited().1 - before;
    if slept > SLEPT_MAX {
        fail(format!("a write slept {slept:?}"));
    }
}

fn nap(actor: &mut Actor, ns: u64) {
    sleep(Duration::from_nanos(actor.random.below(ns)));
}

fn flush(actor: &mut Actor) {
    nap(actor, 200_000);
    actor.batch(|guard, stage, random| {
        for _ in 0..1 + random.below(2) {
            let number = if random.below(2) == 0 { None } else { Some(stage.number_of(0)) };
            stage.flush(number, || {
                match number {
                    None => guard.flush(),
                    Some(_) => guard.flush_database(0),
                }
                true
            });
        }
    });
}

/// The most items that one grower has.
const GROWN_MAX: u64 = 4_000;

fn grow(actor: &mut Actor, id: u64, next: &mut u64, most: &mut u64) {
    if *next >= *most {
        // Deletes the newest items, and leaves a random number of the oldest.
        let stay = actor.random.below(*next + 1);
        let gone = *next - stay;
        for _ in 0..gone.div_ceil(64) {
            actor.batch(|guard, _, _| {
                for _ in 0..64.min(*next - stay) {
                    *next -= 1;
                    let name = format!("grow-{id}-{next}");
                    let key = guard.key(name.as_bytes());
                    let _ = guard.delete(&key, Expect::Any);
                }
            });
        }
        *most = *next + 1 + actor.random.below(GROWN_MAX - *next);
    }
    actor.batch(|guard, stage, random| {
        for _ in 0..1 + random.below(64) {
            *next += 1;
            let name = format!("grow-{id}-{}", *next - 1);
            let key = guard.key(name.as_bytes());
            let done = guard.store_value(&key, &[b'g'; 16], &Attributes::default(), Expect::Any);
            assert!(done.is_ok() || !stage.evicts, "an insertion is refused: {done:?}");
        }
    });
}

fn fill(actor: &mut Actor, id: u64) {
    actor.batch(|guard, stage, random| {
        let name = format!("filler-{id}-{}", random.below(5_000));
        let key = guard.key(name.as_bytes());
        let bytes = size(random);
        let done = guard.store_value(&key, &value(id, 0, bytes), &Attributes::default(), Expect::Any);
        assert!(done.is_ok() || !stage.evicts, "a write is refused: {done:?}");
    });
}

fn upkeep(actor: &mut Actor) {
    actor.batch(|guard, stage, random| {
        stage.pass(random.below(60));
        if random.below(2) == 0 {
            guard.maintain()
        } else {
            guard.maintain_beside_requests()
        };
    });
    if actor.random.below(20) == 0 {
        actor.rest();
    }
}

fn r#move(actor: &mut Actor) {
    nap(actor, 100_000);
    actor.batch(|guard, stage, random| {
        let modes = [Automove::Off, Automove::Ages, Automove::Always];
        stage.store.set_automove(modes[random.below(3) as usize]);
        let classes = stage.store.classes(guard.now());
        let mut pick =
            || classes.get(random.below(2 * classes.len() as u64 + 1) as usize).map(|class| class.id);
        let (from, to) = (pick(), pick());
        guard.reassign(from, to, 1 + random.below(4) as usize);
    });
}

fn pin(actor: &mut Actor, id: u64, under_way: &mut Option<Upload>) {
    nap(actor, 50_000);
    let bytes = 20_000 + actor.random.below(60_000);
    actor.batch(|guard, _, random| {
        let name = format!("pinned-{id}-{}", random.below(4));
        let key = guard.key(name.as_bytes());
        if let Some(mut upload) = under_way.take() {
            let rest = vec![b'u'; upload.missing().min(20_000) as usize];
            if guard.upload_fill(&mut upload, &rest).is_ok() && random.below(8) > 0 {
                if upload.missing() == 0 {
                    let _ = guard.publish(upload, Expect::Any);
                } else {
                    *under_way = Some(upload);
                }
            }
            return;
        }
        *under_way = guard.upload(&key, bytes, &Attributes::default()).ok();
    });
}
