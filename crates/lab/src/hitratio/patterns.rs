//! Access patterns that streams of independent requests do not have: keys written and read late, sessions,
//! keys that come back once, loops, popularity that is drawn anew; and one after another.
//!
//! ```text
//! store full of keys that are never read ─▶ pattern, warmed ─▶ counted
//! ```
//!
//! A pattern runs step by step; a step is some requests. Distances are shares of the keys that fit: the number of keys of this
//! size that a cache of this memory holds. Only the standard library is used, since the store's bench of hit ratios and its tests
//! run the same patterns.

/// Before a pattern begins, the cache is filled with this many tenths of what its memory can hold.
const FILL_TENTHS: u64 = 15;
/// Bytes of a key.
pub const KEY_BYTES: u64 = 16;
/// A pattern that follows another is counted after writes of this many memories.
const TURNED_AFTER: u64 = 2;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub id: u64,
    pub verb: Verb,
    /// Whether its hits count for the pattern.
    pub counts: bool,
    /// The number of this write among those of its key, or of the last write.
    #[allow(dead_code, reason = "the store's bench checks no values")]
    pub version: u32,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// A write.
    Set,
    /// A read; nothing follows a miss.
    Get,
    /// A read, with a write if it misses.
    Load,
}

/// The kind of a pattern; distances are shares of the keys that fit.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// Written once, read `reads` times at equal distances up to this one.
    Later { distance: f64, reads: u32 },
    /// Read and written again after each `distance` of writes, this many times, then abandoned.
    Sessions { distance: f64, times: u32 },
    /// Loaded, and once more after this distance.
    Return { distance: f64 },
    /// Loaded by popularity, over this many times the keys that fit; a share of requests is for keys that come once.
    Zipf { alpha: f64, over: f64, lone: f64 },
    /// Loaded one after the other, round and round, over this share of the keys that fit.
    Loop { over: f64 },
    /// Zipf over four times the keys that fit. Whenever `every` of these was written, other keys become popular. Counting begins
    /// one memory later.
    Redrawn { alpha: f64, every: f64 },
}

/// The expected result.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// A share of hits.
    Hits(f64),
    /// The share of an LRU of as many keys, plus this: if thousands fit, and if [fewer](FEW_KEYS) do, where each key is a larger
    /// part.
    OverLru { many: f64, few: f64 },
    /// Within this of the better of LRU and the segmented one.
    BetterOfLrus(f64),
}

/// A pattern with its name and the expected result.
#[derive(Debug)]
pub struct Pattern {
    pub name: &'static str,
    pub shape: Shape,
    pub bound: Bound,
}

impl Pattern {
    /// The least share of hits where `fits` keys fit, beside an LRU's and the segmented one's.
    pub fn least(&self, lru: f64, segmented: f64, fits: u64) -> f64 {
        match self.bound {
            Bound::Hits(least) => least,
            Bound::OverLru { few, .. } if fits < FEW_KEYS => lru + few,
            Bound::OverLru { many, .. } => lru + many,
            Bound::BetterOfLrus(less) => lru.max(segmented) - less,
        }
    }
}

/// Fewer keys than this are few.
pub const FEW_KEYS: u64 = 2_000;

/// The part of keys that only fill the cache.
const FILL_PART: u64 = 1 << 20;

const fn row(name: &'static str, shape: Shape, bound: Bound) -> Pattern {
    Pattern { name, shape, bound }
}

/// Every pattern.
pub const PATTERNS: &[Pattern] = &[
    row("later-0.05", Shape::Later { distance: 0.05, reads: 1 }, Bound::Hits(0.98)),
    row("later-0.2", Shape::Later { distance: 0.2, reads: 1 }, Bound::Hits(0.98)),
    row("later-0.5", Shape::Later { distance: 0.5, reads: 1 }, Bound::Hits(0.98)),
    row("later-0.8", Shape::Later { distance: 0.8, reads: 1 }, Bound::Hits(0.98)),
    row("twice-0.05", Shape::Later { distance: 0.05, reads: 2 }, Bound::Hits(0.98)),
    row("twice-0.2", Shape::Later { distance: 0.2, reads: 2 }, Bound::Hits(0.98)),
    row("twice-0.5", Shape::Later { distance: 0.5, reads: 2 }, Bound::Hits(0.98)),
    row("twice-0.8", Shape::Later { distance: 0.8, reads: 2 }, Bound::Hits(0.98)),
    row("sessions", Shape::Sessions { distance: 0.3, times: 8 }, Bound::Hits(0.99)),
    row("return-0.2", Shape::Return { distance: 0.2 }, Bound::Hits(0.98)),
    row("return-0.5", Shape::Return { distance: 0.5 }, Bound::Hits(0.98)),
    row("return-0.8", Shape::Return { distance: 0.8 }, Bound::Hits(0.98)),
    // The store's lead over an LRU, less 0.003 to 0.005, at the least that was measured with many keys (8 to 64 MB, values of
    // 1,000 B) and with few (164 and 662 of 100 KB).
    row(
        "zipf-0.7",
        Shape::Zipf { alpha: 0.7, over: 4.0, lone: 0.0 },
        Bound::OverLru { many: 0.062, few: 0.031 },
    ),
    row(
        "zipf-0.9",
        Shape::Zipf { alpha: 0.9, over: 4.0, lone: 0.0 },
        Bound::OverLru { many: 0.038, few: 0.026 },
    ),
    row(
        "zipf-1.1",
        Shape::Zipf { alpha: 1.1, over: 4.0, lone: 0.0 },
        Bound::OverLru { many: 0.004, few: 0.016 },
    ),
    row(
        "zipf-lone",
        Shape::Zipf { alpha: 1.0, over: 4.0, lone: 0.5 },
        Bound::OverLru { many: 0.041, few: 0.053 },
    ),
    row("loop-0.8", Shape::Loop { over: 0.8 }, Bound::Hits(1.0)),
    row("loop-1.2", Shape::Loop { over: 1.2 }, Bound::Hits(0.3)),
    row("redrawn", Shape::Redrawn { alpha: 0.9, every: 4.0 }, Bound::BetterOfLrus(0.01)),
];

/// A random generator with 64 bits of state, the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
    /// A number in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

impl Shape {
    /// Requests to warm the pattern up if `fits` keys fit, and requests that are counted then.
    pub fn lengths(self, fits: u64) -> (u64, u64) {
        match self {
            Shape::Later { reads, .. } => (u64::from(reads + 1) * 4 * fits, u64::from(reads + 1) * 2 * fits),
            Shape::Sessions { .. } => (10 * fits, 6 * fits),
            Shape::Return { .. } => (8 * fits, 4 * fits),
            Shape::Loop { .. } => (10 * fits, 8 * fits),
            Shape::Zipf { .. } | Shape::Redrawn { .. } => (20 * fits, 20 * fits),
        }
    }
}

/// A running pattern.
pub struct Running {
    shape: Shape,
    /// Keys that fit.
    fits: u64,
    step: u64,
    random: Random,
    /// Added to every key's number: another pattern's keys are others.
    base: u64,
    /// Sums of popularity.
    shares: Vec<f64>,
    /// For each place, the session that has it, and how often it was used.
    sessions: Vec<(u64, u32)>,
    fresh: u64,
    /// How often popularity was drawn, and keys written since.
    drawn: u64,
    written: u64,
}

impl Running {
    /// The pattern if `fits` keys fit. `part` separates the keys of different runs.
    pub fn new(shape: Shape, fits: u64, part: u64) -> Running {
        let of = |share: f64| ((fits as f64 * share) as u64).max(1);
        let ranks = match shape {
            Shape::Zipf { over, .. } => of(over),
            Shape::Redrawn { .. } => 4 * fits,
            _ => 0,
        };
        let alpha = match shape {
            Shape::Zipf { alpha, .. } | Shape::Redrawn { alpha, .. } => alpha,
            _ => 0.0,
        };
        let mut sum = 0.0;
        let shares = (1..=ranks)
            .map(|rank| {
                sum += (rank as f64).powf(-alpha);
                sum
            })
            .collect();
        let mut random = Random(part);
        let mut fresh = 0;
        let sessions = match shape {
            Shape::Sessions { distance, times } => (0..of(distance))
                .map(|_| {
                    fresh += 1;
                    (fresh, (random.next() % u64::from(times + 1)) as u32)
                })
                .collect(),
            _ => Vec::new(),
        };
        let base = (part + 1) << 40;
        Running { shape, fits, step: 0, random, base, shares, sessions, fresh, drawn: 0, written: 0 }
    }

    /// Records a write to a key that did not exist, for patterns that depend on it.
    pub fn note_written(&mut self) {
        self.written += 1;
    }

    fn ranked(&mut self) -> u64 {
        let at = self.random.unit() * self.shares.last().expect("there are ranks");
        self.shares.partition_point(|&share| share <= at).min(self.shares.len() - 1) as u64
    }

    /// The next requests.
    pub fn step(&mut self, requests: &mut Vec<Request>) {
        let base = self.base;
        let step = self.step;
        self.step += 1;
        let mut say =
            |id: u64, verb, counts, version| requests.push(Request { id: base + id, verb, counts, version });
        let mut push = |id, verb, counts| say(id, verb, counts, 1);
        match self.shape {
            Shape::Later { distance, reads } => {
                push(step, Verb::Set, false);
                for read in 1..=reads {
                    let back = (self.fits as f64 * distance * f64::from(read) / f64::from(reads)) as u64;
                    if let Some(id) = step.checked_sub(back.max(1)) {
                        push(id, Verb::Get, true);
                    }
                }
            }
            Shape::Sessions { times, .. } => {
                let place = (step % self.sessions.len() as u64) as usize;
                let (mut id, mut used) = self.sessions[place];
                if used > times {
                    self.fresh += 1;
                    (id, used) = (self.fresh, 0);
                }
                if used > 0 {
                    say(id, Verb::Get, step >= self.sessions.len() as u64, used);
                }
                say(id, Verb::Set, false, used + 1);
                self.sessions[place] = (id, used + 1);
            }
            Shape::Return { distance } => {
                push(step, Verb::Load, false);
                if let Some(id) = step.checked_sub((self.fits as f64 * distance) as u64) {
                    push(id, Verb::Load, true);
                }
            }
            Shape::Zipf { lone, .. } => {
                if self.random.unit() < lone {
                    push((1 << 39) + step, Verb::Load, true);
                } else {
                    let rank = self.ranked();
                    push(rank, Verb::Load, true);
                }
            }
            Shape::Loop { over } => push(step % (self.fits as f64 * over) as u64, Verb::Load, true),
            Shape::Redrawn { every, .. } => {
                if self.written as f64 > self.fits as f64 * every {
                    (self.drawn, self.written) = (self.drawn + 1, 0);
                }
                let rank = self.ranked();
                let counts = self.written >= self.fits && self.drawn > 0;
                push(self.drawn << 32 | rank, Verb::Load, counts);
            }
        }
    }
}

/// A pattern from its first request to the last that is counted.
pub struct Course {
    running: Running,
    fits: u64,
    /// Number of requests before the counted ones, and of those.
    warm: u64,
    counted: u64,
    /// Requests so far, and the writes among them.
    requests: u64,
    written: u64,
    /// The first request that is counted.
    from: u64,
    /// The pattern follows another.
    turned: bool,
    gets: u64,
    hits: u64,
}

impl Course {
    /// The pattern where `fits` keys fit. `turned`: it follows another, and is counted when two memories were written at the
    /// latest. `part` differs for each pattern of a run.
    pub fn new(shape: Shape, fits: u64, part: u64, turned: bool) -> Course {
        let running = Running::new(shape, fits, part);
        let (warm, counted) = shape.lengths(fits);
        let (requests, written, gets, hits) = (0, 0, 0, 0);
        Course { running, fits, warm, counted, requests, written, from: warm, turned, gets, hits }
    }

    /// As many keys, written one after the other and never read, as are sure to fill `memory_bytes` with values of `value_bytes`.
    pub fn filling(memory_bytes: u64, value_bytes: u64) -> Course {
        let keys = memory_bytes / (value_bytes + KEY_BYTES) * FILL_TENTHS / 10;
        let course = Course::new(Shape::Later { distance: 0.0, reads: 0 }, keys, FILL_PART, false);
        Course { warm: keys, counted: 0, from: keys, ..course }
    }

    /// Whether all requests were made.
    pub fn is_done(&self) -> bool {
        self.requests >= self.from + self.counted
    }

    /// The next requests; each is to be [noted](Course::note) before the next step.
    pub fn step(&mut self, requests: &mut Vec<Request>) {
        self.running.step(requests);
    }

    /// Records the result of a request: whether it was a hit, and whether it wrote a key that did not exist.
    pub fn note(&mut self, request: Request, hit: bool, new: bool) {
        if new {
            self.running.note_written();
        }
        self.written += u64::from(new || request.verb == Verb::Set);
        if self.turned && self.from == self.warm && self.written >= TURNED_AFTER * self.fits {
            self.from = self.requests.min(self.warm);
        }
        if request.counts && self.requests >= self.from {
            self.gets += 1;
            self.hits += u64::from(hit);
        }
        self.requests += 1;
    }

    /// The share of hits.
    pub fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.gets.max(1) as f64
    }
}
