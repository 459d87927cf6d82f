//! Arbitration: which class gives memory when another needs some.
//!
//! 1. A class with free chunks for more than a span gives the emptiest it has: nothing is lost.
//! 2. Else the class whose hand was away for longest gives the span that it passes next, if the class
//!    in need is clearly younger: its hand came round in less than 0.8 of that time. Time is counted in
//!    bytes that all classes allocated: at one rate of requests large values pass faster than small ones,
//!    and a class that was filled with large ones would look young for long.
//! 3. Else the class in need evicts its own items.
//!
//! The span is drained in steps as the class allocates, about four times as fast, and meanwhile the class evicts its own
//! items: no request pays for a whole span, and memory follows the workload as fast as it is written. A class with little of
//! its own to evict, such as a new one, has the next span drained while it uses up the last.

use crate::arena::Share;
use crate::class::{ClassId, SPAN_BYTES};
use crate::drain::{LINGERING_MAX, Purpose};
use crate::event::Giving;
use crate::slab::Magazine;
use crate::view::ClassView;
use crate::worker::{Guard, Local};
use crate::{Automove, Store};

/// A class younger than this many tenths of the oldest takes from it.
const AGE_TENTHS: u64 = 8;
/// Bytes drained for each byte allocated.
const DRAIN_FACTOR: usize = 4;
/// While there is no donor, one in so many allocations looks for one.
const ASKS: u32 = 4;
/// Chunks drained in a step at least, and at most in the first round of an allocation.
const STEP_CHUNKS_MIN: usize = 8;
const STEP_CHUNKS_MAX: usize = 64;
/// Spans that [`Guard::reassign`] tries for each span wanted: values being sent or received keep some from emptying.
const REASSIGN_TRIES: usize = 4;
/// Spans' worth of free chunks that make a class give one; where nothing may be evicted less does.
const SPARE_SPANS: u64 = 2;
const SPARE_SPANS_LEAST: u64 = 1;

/// The class that gives a span.
enum Donor {
    /// It has room for what is in its emptiest span.
    Spare(ClassId),
    /// It was not passed for longest.
    Oldest(ClassId),
}

/// Why a class gives memory to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Given {
    /// It is older than the other.
    Older,
    /// It is older, and hardly anything in it was read when it was judged.
    Unread,
}

/// Chunks larger than this make a class count as older, in proportion: a byte of a large item earns
/// fewer hits than a byte of a small item that was not read for as long.
const WEIGHED_BYTES: u64 = 1024;

/// How a class's age is weighed: by the size of its items, and by ghost hits. As long as the workload turns to other keys, a
/// class whose keys come back after their eviction counts as younger, one whose keys do not as older.
struct Bias<'a> {
    store: &'a Store,
    /// An age up to this counts as it is, whatever the size of the items.
    window_bytes: u64,
    /// Mean ghost hits per [`BIAS_SPANS`] spans; `None`: ghost hits do not change ages.
    mean: Option<u64>,
}

/// Ghost hits are counted per so many spans, so that few hits do not round to none.
const BIAS_SPANS: u64 = 1024;
/// Ages are changed by this factor at most.
const BIAS_MAX: u64 = 8;

impl Bias<'_> {
    fn new(store: &Store) -> Bias<'_> {
        let limit_bytes = store.arena.limit_bytes();
        let mean = store.window.has_turned(limit_bytes).then(|| {
            let hits: u64 = ClassId::all().map(|id| store.slabs.view(id).recent_ghosts()).sum();
            hits * BIAS_SPANS / (limit_bytes / SPAN_BYTES as u64).max(1)
        });
        Bias { store, window_bytes: store.window.bytes(limit_bytes), mean }
    }

    /// Bytes allocated since the oldest key of a class was put on probation; `None` unless most of the class is on probation
    /// and its new items are looked at by themselves ([`Store::weighs_new`]).
    fn front(&self, id: ClassId, view: &ClassView) -> Option<u64> {
        let front = view.probation_front().filter(|_| self.store.weighs_new(id))?;
        Some(self.store.probation_age(front))
    }

    /// Returns the weighed age of a class: the bytes allocated since its hand passed, or since `front` if that is less.
    /// `plain`: the size of its items does not count.
    fn of(&self, id: ClassId, view: &ClassView, passed: u64, front: Option<u64>, plain: bool) -> u64 {
        let age = front.map_or(passed, |front| passed.min(front));
        let bytes = if plain { WEIGHED_BYTES } else { (id.chunk_bytes() as u64).max(WEIGHED_BYTES) };
        let young = age.min(self.window_bytes);
        let age = young + (age - young) * bytes / WEIGHED_BYTES;
        let Some(mean) = self.mean else { return age };
        let own = view.recent_ghosts() * BIAS_SPANS / u64::from(view.spans().max(1));
        // `factor` is in units of 1/`BIAS_SPANS`, so that halves are kept.
        let (mean, own) = (mean.max(1), own.max(1));
        let factor = (mean * BIAS_SPANS / own).clamp(BIAS_SPANS / BIAS_MAX, BIAS_SPANS * BIAS_MAX);
        age * factor / BIAS_SPANS
    }
}

impl Local {
    /// Drains a step of another class's span, if there is one to take, before a class in need evicts its own items. `round`
    /// counts the attempts of one allocation. Returns why the other class gives, if one does.
    pub(crate) fn arbitrate(&mut self, store: &Store, class: ClassId, round: usize) -> Option<Given> {
        if self.drain.is_none() {
            // A worker that asks often is told nothing new each time.
            if round == 0 && !self.asks.is_multiple_of(ASKS) {
                self.asks += 1;
                return None;
            }
            if !self.lingering.is_empty() {
                self.look_at_lingering(store, false);
            }
            match self.donor(store, Some(class)) {
                Some(donor) => self.drain_of(store, donor, Some(class)),
                None => {
                    self.asks = 1;
                    self.fed = None;
                    return None;
                }
            };
        }
        self.asks = 0;
        if round > 0 {
            self.fed = Some(class);
        }
        let wanted = Magazine::capacity(class).div_ceil(2) * class.chunk_bytes() * DRAIN_FACTOR;
        let Some(from) = self.draining_class() else { return Some(Given::Older) };
        let given = if store.slabs.view(from).is_unread() { Given::Unread } else { Given::Older };
        // A worker that needs whole spans waits for one.
        let most = if round == 0 || wanted < SPAN_BYTES {
            STEP_CHUNKS_MAX
        } else {
            from.chunks_per_span().max(STEP_CHUNKS_MAX)
        };
        let chunks = (wanted / from.chunk_bytes()).clamp(STEP_CHUNKS_MIN, most) << round.min(8);
        self.drain_step(store, chunks);
        (from != class).then_some(given)
    }

    /// Drains a step of the next span, while others give to `class`, before the last one is used up: a write that found
    /// nothing left would pay for a whole span. Does nothing where there is or will be room: what is free and what has
    /// expired goes first.
    #[inline]
    pub(crate) fn drain_ahead(&mut self, store: &Store, class: ClassId) {
        if self.fed != Some(class) {
            return;
        }
        let arena = &store.arena;
        let roomy = store.slabs.view(class).free_chunks() > class.chunks_per_span() as u64;
        if !roomy && !arena.has_span() && arena.over_items_limit() == 0 && !arena.agenda().any(self.now) {
            self.arbitrate(store, class, 0);
        }
    }

    /// Empties a span of a class that has room for what is in it; true if there was one, and memory came
    /// free.
    pub(crate) fn gather_spare(&mut self, store: &Store, class: ClassId) -> bool {
        let used = store.arena.used_bytes();
        if self.drain.as_ref().is_some_and(|drain| !drain.keeps()) {
            return false;
        }
        if self.drain.is_none() {
            match self.donor(store, Some(class)) {
                Some(donor @ Donor::Spare(_)) => self.drain_of(store, donor, Some(class)),
                _ => return false,
            };
        }
        while self.drain_step(store, SPAN_BYTES) {}
        self.pass_epochs(store);
        store.arena.used_bytes() < used
    }

    /// Drains all of a span of the class that was not passed for longest, however old `class` is; true if memory came
    /// free.
    pub(crate) fn drain_oldest(&mut self, store: &Store, class: ClassId) -> bool {
        let used = store.arena.used_bytes();
        if self.drain.is_none() {
            match self.donor(store, None) {
                Some(donor) => self.drain_of(store, donor, Some(class)),
                None => return false,
            };
        }
        while self.drain_step(store, SPAN_BYTES) {}
        // The span becomes free with its last chunk; it may have more chunks than one pass takes back.
        let mut left = usize::MAX;
        while self.limbo_chunks() < left {
            left = self.limbo_chunks();
            self.pass_epochs(store);
        }
        store.arena.used_bytes() < used || store.slabs.view(class).free_chunks() > 0
    }

    /// Begins to drain a span of the donor, for this class or, if the limit was lowered, for none; true if there was one.
    fn drain_of(&mut self, store: &Store, donor: Donor, to: Option<ClassId>) -> bool {
        let purpose = if to.is_some() { Purpose::Class } else { Purpose::Release };
        let (from, begun) = match donor {
            Donor::Spare(id) => {
                let emptiest = store.slabs.class(id).emptiest(&store.arena);
                (id, self.start_drain(store, id, emptiest, true, purpose))
            }
            Donor::Oldest(id) => (id, self.start_drain(store, id, None, false, purpose)),
        };
        self.note_giving(store, Giving { from: from.0, to: to.map(|id| id.0), begun });
        begun
    }

    /// Chooses the class that gives a span to `class`; `None`: to no class, since the limit was lowered.
    fn donor(&self, store: &Store, class: Option<ClassId>) -> Option<Donor> {
        let mine = class.map(|id| store.slabs.view(id));
        // A class without a span always gets one.
        let poor = mine.is_none_or(|view| view.spans() == 0);
        let automove = store.automove();
        if automove == Automove::Off && !poor {
            return None;
        }
        let least = if poor { 1 } else { 2 };
        let spare = if store.may_evict() { SPARE_SPANS } else { SPARE_SPANS_LEAST };
        let bias = Bias::new(store);
        let clock = store.moment(self.now).clock;
        // Probation is compared with probation alone: the parts of large values are in classes that have nothing there.
        let new = class.is_some_and(|id| bias.front(id, store.slabs.view(id)).is_some());
        let (mut oldest, mut oldest_age, mut oldest_key) = (None, 0, 0);
        for id in ClassId::all().filter(|&id| Some(id) != class) {
            let view = store.slabs.view(id);
            let spans = view.spans();
            let (free, in_span) = (view.free_chunks(), id.chunks_per_span() as u64);
            // The last span of a class, too, if nothing is in it: what this worker has of it goes back as it is drained.
            let is_empty =
                spans > 0 && free + self.magazines[id.0 as usize].len() as u64 == u64::from(spans) * in_span;
            if is_empty || spans > 1 && free > spare * in_span {
                return Some(Donor::Spare(id));
            }
            if spans < least {
                continue;
            }
            let Some(passed) = view.age_to_give(clock) else { continue };
            let front = bias.front(id, view).filter(|_| new);
            let age = bias.of(id, view, passed, front, false);
            // Items that are never read give before long ones.
            let key =
                if view.is_unread() { bias.of(ClassId::LONGEST, view, passed, front, false) } else { age };
            if oldest.is_none() || key > oldest_key {
                (oldest, oldest_age, oldest_key) = (Some(id), age, key);
            }
        }
        // Against items that are never read, the size of items does not count.
        let plain = oldest.is_some_and(|id| store.slabs.view(id).is_unread());
        let new = new && oldest.is_some_and(|id| bias.front(id, store.slabs.view(id)).is_some());
        // The age of a class in need counts from the span in which its hand is, and so is higher than the age at which it
        // would give: that spares caches of many small classes a to and fro. Measured: 1.020, else 1.030, of an ideal's
        // misses.
        let own = |age: fn(&ClassView, u64) -> Option<u64>| {
            let aged = |view| {
                let id = class.expect("mine");
                Some(bias.of(id, view, age(view, clock)?, bias.front(id, view).filter(|_| new), plain))
            };
            mine.and_then(aged).unwrap_or(0)
        };
        let younger = match automove {
            Automove::Always => own(ClassView::age_to_give) < oldest_age,
            Automove::Off | Automove::Ages => own(ClassView::age) * 10 < oldest_age * AGE_TENTHS,
        };
        if poor || younger { oldest.map(Donor::Oldest) } else { None }
    }

    /// Gives back spans, some chunks a step, while `over` more are used than may be. False if nothing was drained: no class
    /// has one to give, or as many are being drained, by whatever worker, as are to go, and only other batches still hold
    /// chunks of them.
    pub(crate) fn shrink(&mut self, store: &Store, over: u32, chunks_max: usize) -> bool {
        if self.drain.is_none() {
            self.pass_epochs(store);
            let waits = store.slabs.draining() >= over || self.lingering.len() >= LINGERING_MAX;
            if !self.lingering.is_empty() && (!waits || store.epochs.safe(self.looked_at)) {
                self.looked_at = store.epochs.now();
                self.look_at_lingering(store, false);
            }
            if waits {
                return false;
            }
            match self.donor(store, None) {
                Some(donor) => self.drain_of(store, donor, None),
                None => return false,
            };
        }
        self.drain_step(store, chunks_max);
        true
    }
}

impl Guard<'_> {
    /// Moves up to `spans` spans (64 KiB each) of class `from` to class `to`, or to the classes that need them next; what is
    /// hot in them stays, and everything if there is room. Without `from` the class that was not passed for longest gives.
    /// Returns how many spans were moved: fewer where an upload or a value being sent keeps a span from emptying. Some 100 µs
    /// a span.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn reassign(&mut self, from: Option<u8>, to: Option<u8>, spans: usize) -> usize {
        let store = self.store;
        let class = |id: u8| ClassId::all().find(|class| class.0 == id).expect("a class");
        let to = to.map(class);
        self.local.stop_drains(store);
        let before = self.local.spans_moved;
        let mut grown = 0;
        for _ in 0..spans * REASSIGN_TRIES {
            let started = match from.map(class) {
                Some(from) => self.local.start_drain(store, from, None, true, Purpose::Class),
                None => {
                    let clock = store.moment(self.now).clock;
                    let oldest = ClassId::all()
                        .filter(|&id| Some(id) != to && store.slabs.view(id).spans() > 1)
                        .max_by_key(|&id| store.slabs.view(id).age(clock));
                    oldest.is_some_and(|id| self.local.start_drain(store, id, None, true, Purpose::Class))
                }
            };
            if !started {
                break;
            }
            while self.local.drain_step(store, SPAN_BYTES) {}
            self.local.look_at_lingering(store, false);
            let moved = spans.min((self.local.spans_moved - before) as usize);
            if let Some(to) = to {
                let mut slab = store.slabs.class(to);
                let now = store.moment(self.now);
                let _ = (grown..moved).all(|_| slab.grow(&store.arena, now, Share::Items));
            }
            grown = moved;
            if moved == spans {
                break;
            }
        }
        self.local.stop_drains(store);
        grown
    }

    /// Gives up to `spans` free spans to class `to`; returns how many there were.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn grow(&mut self, to: u8, spans: usize) -> usize {
        let to = ClassId::all().find(|class| class.0 == to).expect("a class");
        let now = self.store.moment(self.now);
        let mut slab = self.store.slabs.class(to);
        (0..spans).take_while(|_| slab.grow(&self.store.arena, now, Share::Items)).count()
    }
}
