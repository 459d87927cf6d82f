//! A seeded scheduler for the store's own code, with the feature `schedule`.
//!
//! ```text
//! threads     coroutines, of which one runs at a time
//! turn        before each access to a shared word, a fence or a lock (`sync/words.rs`)
//! strategy    says after how many turns another thread goes on, and which
//! wait        where the store spins, yields or sleeps: another thread goes on
//! time        20 ns a turn; a thread that sleeps goes on when it has passed, or when no other can
//! ```
//!
//! The same seed and the same threads give the same run. A run fails when a thread panics, or when no thread has
//! ended an operation ([`Schedule::progress`]) for [`IDLE_WAITS_MAX`] waits or [`IDLE_TURNS_MAX`] turns: the stacks of
//! all threads are part of the message.
//!
//! Strategies, drawn by the seed:
//!
//! - *arbitrary*: a thread goes on for a random number of turns, of a mean between 1 and 1,000; then any other.
//! - *conflicts*: besides, a thread is interrupted before one in two to one in eight accesses to a word of the arena
//!   that another thread has accessed last: what goes wrong between two threads goes wrong there.
//! - *priorities*: the first of an order of threads goes on until it waits; at a few random turns the one that runs
//!   becomes the last (Burckhardt and others, "A randomized scheduler with probabilistic guarantees of finding
//!   bugs", ASPLOS 2010).
//!
//! It does not reorder accesses as weak memory does: that is loom's (`models.rs`).

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Waits without the end of an operation after which a run has failed.
const IDLE_WAITS_MAX: u64 = 2_000_000;
/// Turns without the end of an operation after which a run has failed.
const IDLE_TURNS_MAX: u64 = 50_000_000;
/// The time that a turn takes.
const TURN_NS: u64 = 20;
/// Threads' stacks.
const STACK_BYTES: usize = 512 << 10;
/// Changes of priority in a run, at most.
const CHANGES_MAX: u64 = 6;

/// Why a thread gives up its turn.
enum Pause {
    /// Its turns are used up.
    Turn,
    /// It waits for another.
    Wait,
    /// It sleeps for so many nanoseconds.
    Sleep(u64),
    /// It has seen what may not be.
    Failed(String),
    /// It was asked where it stands: its stack.
    Stack(String),
}

type Thread = Coroutine<(), Pause, (), DefaultStack>;

/// What the thread that runs, and the scheduler, know of each other.
struct Running {
    /// Turns until another thread goes on.
    left: Cell<u64>,
    /// How the thread that runs gives up its turn; null where no schedule runs.
    yielder: Cell<*const Yielder<(), Pause>>,
    /// Operations that ended.
    progress: Cell<u64>,
    /// Waits of the thread that runs, and how long it slept, in nanoseconds.
    waits: Cell<u64>,
    slept_ns: Cell<u64>,
    /// Threads are to say where they stand.
    asked: Cell<bool>,
    /// The number of the thread that runs, from 1.
    number: Cell<u8>,
    /// One access in so many to a word that another thread has accessed last ends a turn; 0: none does.
    conflicts: Cell<u64>,
    /// Draws them.
    random: Cell<u64>,
    /// Where the arena begins: what lies there has the same place in every run.
    arena: Cell<usize>,
}

/// Words of the arena that are told apart: those of the first 16 MiB.
const WORDS: usize = 2 << 20;

thread_local! {
    /// The thread that has accessed each word last.
    static LAST: RefCell<Box<[u8]>> = RefCell::new(vec![0; WORDS].into_boxed_slice());
}

/// Notes where a store has its arena.
pub(crate) fn arena_at(base: *const u8) {
    RUNNING.with(|running| running.arena.set(base.addr()));
}

thread_local! {
    static RUNNING: Running = const {
        Running {
            left: Cell::new(u64::MAX),
            yielder: Cell::new(std::ptr::null()),
            progress: Cell::new(0),
            waits: Cell::new(0),
            slept_ns: Cell::new(0),
            asked: Cell::new(false),
            number: Cell::new(0),
            conflicts: Cell::new(0),
            random: Cell::new(0),
            arena: Cell::new(0),
        }
    };
}

/// Called before an access: ends the turn, if the strategy says so.
#[inline]
pub fn turn() {
    RUNNING.with(|running| match running.left.get() {
        0 => pause(running, Pause::Turn),
        left => running.left.set(left - 1),
    });
}

/// Called before an access to a word: ends the turn, if the strategy says so.
#[inline]
pub(crate) fn turn_at<T>(word: &T) {
    turn();
    RUNNING.with(|running| {
        if running.conflicts.get() > 0 {
            look_for_conflict(running, std::ptr::from_ref(word).addr());
        }
    });
}

fn look_for_conflict(running: &Running, address: usize) {
    let word = address.wrapping_sub(running.arena.get()) / 8;
    let me = running.number.get();
    let last = LAST.with_borrow_mut(|last| last.get_mut(word).map(|last| std::mem::replace(last, me)));
    if last.is_some_and(|last| last != 0 && last != me) {
        let mut random = Random(running.random.get());
        let ends = random.below(running.conflicts.get()) == 0;
        running.random.set(random.0);
        if ends {
            pause(running, Pause::Turn);
        }
    }
}

/// Waits for another thread.
pub(crate) fn wait() {
    RUNNING.with(|running| {
        running.waits.set(running.waits.get() + 1);
        pause(running, Pause::Wait);
    });
}

/// Lets other threads go on: for a loop that lasts as long as they are at work, and would keep them from it.
pub fn pass() {
    RUNNING.with(|running| pause(running, Pause::Wait));
}

/// Stands still for a time: a worker that its system interrupts inside a batch, or a store that sleeps.
pub fn sleep(time: Duration) {
    RUNNING.with(|running| {
        let ns = time.as_nanos() as u64;
        running.slept_ns.set(running.slept_ns.get() + ns);
        pause(running, Pause::Sleep(ns));
    });
}

/// Notes that an operation has ended.
pub fn progress() {
    RUNNING.with(|running| running.progress.set(running.progress.get() + 1));
}

/// How often the thread that runs has waited, and how long it has slept.
pub fn waited() -> (u64, Duration) {
    RUNNING.with(|running| (running.waits.get(), Duration::from_nanos(running.slept_ns.get())))
}

/// Runs `work`; returns its result, and how many turns it would have had: accesses to shared words,
/// fences and locks. No schedule may run.
///
/// # Panics
/// When one does.
pub fn counted<T>(work: impl FnOnce() -> T) -> (T, u64) {
    RUNNING.with(|running| {
        assert!(running.yielder.get().is_null(), "the turns of a schedule are its own");
        running.left.set(u64::MAX);
    });
    let result = work();
    (result, RUNNING.with(|running| u64::MAX - running.left.get()))
}

/// Ends the run: the thread that runs has seen what may not be. All threads say where they stand.
pub fn fail(why: String) {
    RUNNING.with(|running| pause(running, Pause::Failed(why)));
}

#[cold]
fn pause(running: &Running, why: Pause) {
    let yielder = running.yielder.get();
    if yielder.is_null() {
        // No schedule: tests of one thread, and what a test does before and after its schedule.
        match why {
            Pause::Failed(why) => panic!("{why}"),
            Pause::Wait | Pause::Sleep(_) => std::thread::yield_now(),
            Pause::Turn => running.left.set(u64::MAX),
            Pause::Stack(_) => {}
        }
        return;
    }
    // SAFETY: 1. The scheduler sets the pointer when it resumes a thread, to that thread's own, which lives as long
    // as its stack. 2. Only the thread that runs comes here.
    let yielder = unsafe { &*yielder };
    yielder.suspend(why);
    while running.asked.get() {
        yielder.suspend(Pause::Stack(stack()));
    }
}

/// The functions of this project on the stack of the thread that runs, with their lines where a build has them (`Cargo.toml`,
/// `profile.dev`).
fn stack() -> String {
    let all = Backtrace::force_capture().to_string();
    let mut lines = all.lines().map(str::trim).peekable();
    let mut ours = String::new();
    while let Some(line) = lines.next() {
        let place = lines.next_if(|line| line.starts_with("at ")).unwrap_or("at ");
        let name = line.split_once(": ").map_or(line, |(_, name)| name);
        let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part) || place.contains(part));
        let is_ours =
            has(&["at ./src/", "at ./tests/"]) || place == "at " && has(&["larder_store::", "schedules::"]);
        if is_ours && !has(&["schedule.rs", "words.rs", "::schedule::", "::sync::"]) {
            let name = name.split('<').next().unwrap_or(name);
            let _ = writeln!(ours, "    {name} {place}");
        }
    }
    ours
}

/// Which thread goes on, and for how long.
enum Strategy {
    Arbitrary {
        mean: u64,
        /// One conflict in so many ends a turn; 0: none does.
        conflicts: u64,
    },
    Priorities {
        /// Threads, the first first.
        order: Vec<usize>,
        /// Turns at which the one that runs becomes the last, the next at the end.
        changes: Vec<u64>,
    },
}

/// splitmix64.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }
}

/// A thread of a schedule.
struct Member {
    name: String,
    thread: Thread,
    yielder: *const Yielder<(), Pause>,
    waits: u64,
    slept_ns: u64,
    /// When it goes on.
    wakes_at: u64,
}

/// Threads, and the order in which they go on.
pub struct Schedule {
    random: Random,
    seed: u64,
    /// Turns that a run is expected to have.
    length: u64,
    members: Vec<Member>,
}

impl std::fmt::Debug for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedule").field("seed", &self.seed).field("threads", &self.members.len()).finish()
    }
}

impl Schedule {
    /// A schedule without threads. `length` is about how many turns all threads will have: a strategy spreads what
    /// it changes over so many.
    pub fn new(seed: u64, length: u64) -> Schedule {
        Schedule { random: Random(seed), seed, length, members: Vec::new() }
    }

    /// Adds a thread.
    pub fn thread(&mut self, name: impl Into<String>, body: impl FnOnce() + 'static) {
        let stack = DefaultStack::new(STACK_BYTES).expect("memory for a stack");
        // What a stack begins with has to be small.
        let body = Box::new(body);
        let thread = Coroutine::with_stack(stack, move |yielder: &Yielder<(), Pause>, ()| {
            RUNNING.with(|running| running.yielder.set(std::ptr::from_ref(yielder)));
            body();
        });
        let name = name.into();
        self.members.push(Member {
            name,
            thread,
            yielder: std::ptr::null(),
            waits: 0,
            slept_ns: 0,
            wakes_at: 0,
        });
    }

    /// Runs all threads to their ends; returns how many turns they had.
    ///
    /// # Panics
    /// When a thread does, or no thread gets on: with the seed, and all stacks.
    pub fn run(mut self) -> u64 {
        let mut strategy = self.strategy();
        let (mut turns, mut now_ns, mut idle_waits, mut idle_turns, mut seen) = (0, 0, 0, 0, 0);
        RUNNING.with(|running| {
            running.progress.set(0);
            running.random.set(self.random.draw());
            running.conflicts.set(match strategy {
                Strategy::Arbitrary { conflicts, .. } => conflicts,
                Strategy::Priorities { .. } => 0,
            });
        });
        LAST.with_borrow_mut(|last| last.fill(0));
        while let Some(picked) = self.pick(&mut strategy, &mut now_ns) {
            let quantum = self.quantum(&mut strategy, turns);
            let result = self.resume(picked, quantum);
            let used = RUNNING.with(|running| quantum - running.left.get().min(quantum) + 1);
            turns += used;
            now_ns += used * TURN_NS;
            let progress = RUNNING.with(|running| running.progress.get());
            if progress != seen {
                (seen, idle_waits, idle_turns) = (progress, 0, 0);
            }
            idle_turns += used;
            let member = &mut self.members[picked];
            match result {
                Err(message) => {
                    let why = format!("{} panicked: {message}", member.name);
                    self.fail(&why);
                }
                Ok(CoroutineResult::Return(())) => strategy.forget(picked),
                Ok(CoroutineResult::Yield(Pause::Turn)) => {
                    if let Strategy::Priorities { changes, .. } = &mut strategy
                        && changes.last().is_some_and(|&at| turns >= at)
                    {
                        changes.pop();
                        strategy.last(picked);
                    }
                }
                Ok(CoroutineResult::Yield(Pause::Wait)) => {
                    idle_waits += 1;
                    strategy.last(picked);
                }
                Ok(CoroutineResult::Yield(Pause::Sleep(ns))) => {
                    idle_waits += 1;
                    member.wakes_at = now_ns + ns;
                    strategy.last(picked);
                }
                Ok(CoroutineResult::Yield(Pause::Failed(why))) => {
                    let why = format!("{}: {why}", member.name);
                    self.fail(&why);
                }
                Ok(CoroutineResult::Yield(Pause::Stack(_))) => unreachable!("nobody asked"),
            }
            if idle_waits > IDLE_WAITS_MAX || idle_turns > IDLE_TURNS_MAX {
                self.fail(&format!("nobody gets on: {idle_waits} waits, {idle_turns} turns"));
            }
        }
        RUNNING.with(|running| running.conflicts.set(0));
        turns
    }

    fn strategy(&mut self) -> Strategy {
        let threads = self.members.len();
        match self.random.below(3) {
            0 => {
                let mean = [1, 3, 10, 30, 100, 1000][self.random.below(6) as usize];
                return Strategy::Arbitrary { mean, conflicts: 0 };
            }
            1 => {
                let conflicts = [2, 4, 8][self.random.below(3) as usize];
                return Strategy::Arbitrary { mean: 10_000, conflicts };
            }
            _ => {}
        }
        let mut order: Vec<usize> = (0..threads).collect();
        for i in (1..threads).rev() {
            order.swap(i, self.random.below(i as u64 + 1) as usize);
        }
        let changes = self.random.below(CHANGES_MAX + 1);
        let mut changes: Vec<u64> = (0..changes).map(|_| self.random.below(self.length.max(1))).collect();
        changes.sort_unstable_by(|a, b| b.cmp(a));
        Strategy::Priorities { order, changes }
    }

    /// The thread that goes on next; none if all have ended.
    fn pick(&mut self, strategy: &mut Strategy, now_ns: &mut u64) -> Option<usize> {
        let alive = |member: &Member| !member.thread.done();
        let wakes = self.members.iter().filter(|m| alive(m)).map(|m| m.wakes_at).min()?;
        *now_ns = (*now_ns).max(wakes);
        let able = |member: &Member| alive(member) && member.wakes_at <= *now_ns;
        match strategy {
            Strategy::Arbitrary { .. } => {
                let count = self.members.iter().filter(|m| able(m)).count() as u64;
                let nth = self.random.below(count) as usize;
                self.members.iter().enumerate().filter(|(_, m)| able(m)).nth(nth).map(|(i, _)| i)
            }
            Strategy::Priorities { order, .. } => order.iter().copied().find(|&i| able(&self.members[i])),
        }
    }

    /// How many turns the thread that was picked has.
    fn quantum(&mut self, strategy: &mut Strategy, turns: u64) -> u64 {
        match strategy {
            Strategy::Arbitrary { mean, .. } => self.random.below(2 * *mean),
            // A thread that sleeps wakes in between.
            Strategy::Priorities { changes, .. } => {
                changes.last().map_or(10_000, |&at| at.saturating_sub(turns).min(10_000))
            }
        }
    }

    fn resume(&mut self, picked: usize, quantum: u64) -> Result<CoroutineResult<Pause, ()>, String> {
        let member = &mut self.members[picked];
        RUNNING.with(|running| {
            running.left.set(quantum);
            running.yielder.set(member.yielder);
            running.number.set(picked as u8 + 1);
            running.waits.set(member.waits);
            running.slept_ns.set(member.slept_ns);
        });
        let result = catch_unwind(AssertUnwindSafe(|| member.thread.resume(())));
        RUNNING.with(|running| {
            member.waits = running.waits.get();
            member.slept_ns = running.slept_ns.get();
            // A thread that has just begun has set its own.
            member.yielder = running.yielder.replace(std::ptr::null());
            running.number.set(0);
        });
        result.map_err(|payload| {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("(no text)").to_owned()
        })
    }

    /// Has every thread say where it stands, and panics.
    fn fail(&mut self, why: &str) -> ! {
        RUNNING.with(|running| running.asked.set(true));
        let mut text = format!("seed {}: {why}\n", self.seed);
        for picked in 0..self.members.len() {
            let state = match &self.members[picked].thread {
                thread if thread.done() => "has ended\n".to_owned(),
                thread if !thread.started() => "has not begun\n".to_owned(),
                _ => match self.resume(picked, 0) {
                    Ok(CoroutineResult::Yield(Pause::Stack(stack))) => format!("stands at\n{stack}"),
                    _ => "does not say where it stands\n".to_owned(),
                },
            };
            let _ = write!(text, "  {} {state}", self.members[picked].name);
        }
        RUNNING.with(|running| {
            running.asked.set(false);
            running.left.set(u64::MAX);
            running.conflicts.set(0);
        });
        // What they hold of the store cannot be given back: they are left where they stand.
        std::mem::forget(std::mem::take(&mut self.members));
        panic!("{text}");
    }
}

impl Strategy {
    /// Puts the thread behind all others.
    fn last(&mut self, thread: usize) {
        if let Strategy::Priorities { order, .. } = self
            && let Some(at) = order.iter().position(|&other| other == thread)
        {
            order.remove(at);
            order.push(thread);
        }
    }

    /// Forgets the thread, which has ended.
    fn forget(&mut self, thread: usize) {
        if let Strategy::Priorities { order, .. } = self {
            order.retain(|&other| other != thread);
        }
    }
}
