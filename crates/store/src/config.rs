//! How a store is made, what of it can be set later, and why it could not be made.

#[cfg(doc)]
use crate::MEMORY_BYTES_MAX;
use crate::sync::atomic::Ordering;
use crate::{MEMORY_BYTES_MIN, Store};
use std::thread::Thread;

/// How a store is made.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes that items, index and bookkeeping may take together: [`MEMORY_BYTES_MIN`] to [`MEMORY_BYTES_MAX`].
    pub memory_bytes: u64,
    /// Address space to reserve, the most [`Store::set_memory_bytes`] can grow to. Less than `memory_bytes`
    /// means just that, more than [`MEMORY_BYTES_MAX`] as much as there can be.
    pub memory_bytes_max: u64,
    /// Most workers that may exist at once.
    pub workers_max: usize,
    /// False: a full store refuses writes instead of evicting.
    pub evict: bool,
    /// Seed of the key hash: random where keys come from strangers, fixed in tests.
    pub seed: u64,
}

impl Default for Config {
    /// 64 MiB, 64 workers, evicting, and a fixed seed.
    fn default() -> Config {
        Config { memory_bytes: 64 << 20, memory_bytes_max: 0, workers_max: 64, evict: true, seed: 0 }
    }
}

/// Which items a full store evicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Eviction {
    /// None: writes are refused.
    Off,
    /// Any, those of least use first.
    All,
    /// Those that have an expiry, of least use first.
    Volatile,
    /// Those that have an expiry, the soonest first of some hundreds at a time.
    VolatileTtl,
}

impl Eviction {
    const ALL: [Eviction; 4] = [Eviction::Off, Eviction::All, Eviction::Volatile, Eviction::VolatileTtl];
}

/// Whether memory moves between slab classes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Automove {
    /// It does not: a class evicts its own. One without a span gets one.
    Off,
    /// A class that is clearly younger than the oldest takes from it.
    Ages,
    /// The oldest class always gives.
    Always,
}

impl Automove {
    const ALL: [Automove; 3] = [Automove::Off, Automove::Ages, Automove::Always];
}

/// Why a store or worker could not be made.
#[derive(Debug)]
pub enum Error {
    /// The configuration cannot work; the text says why.
    Config(&'static str),
    /// The system refused memory.
    System(std::io::Error),
    /// More workers than `workers_max`.
    Workers,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Config(why) => f.write_str(why),
            Error::System(error) => write!(f, "the system refused memory: {error}"),
            Error::Workers => f.write_str("more workers than configured"),
        }
    }
}

impl std::error::Error for Error {}

impl Store {
    /// Which items a full store evicts.
    #[inline]
    pub fn eviction(&self) -> Eviction {
        Eviction::ALL[usize::from(self.eviction.load(Ordering::Relaxed))]
    }

    /// Sets which items a full store evicts, from the next eviction on.
    pub fn set_eviction(&self, eviction: Eviction) {
        self.eviction.store(eviction as u8, Ordering::Relaxed);
        self.arena.barren.clear();
    }

    #[inline]
    pub(crate) fn evicts(&self) -> bool {
        self.eviction() != Eviction::Off
    }

    /// Whether memory moves between slab classes by itself.
    pub fn automove(&self) -> Automove {
        Automove::ALL[usize::from(self.automove.load(Ordering::Relaxed))]
    }

    /// Sets whether memory moves between slab classes by itself.
    pub fn set_automove(&self, automove: Automove) {
        self.automove.store(automove as u8, Ordering::Relaxed);
    }

    /// Has core dumps of the process contain what is cached, from now on; otherwise they leave it out.
    pub fn show_in_core_dumps(&self) {
        self.arena.show_in_core_dumps();
    }

    /// The memory limit.
    pub fn memory_bytes(&self) -> u64 {
        self.arena.limit_bytes()
    }

    /// The most that the memory limit can be set to.
    pub fn memory_bytes_max(&self) -> u64 {
        self.arena.bytes_max()
    }

    /// Sets the memory limit; false when above the reservation or below the least. A lower limit
    /// takes effect as upkeep gives memory back.
    pub fn set_memory_bytes(&self, bytes: u64) -> bool {
        let set = bytes >= MEMORY_BYTES_MIN && self.arena.set_limit_bytes(bytes);
        // What remembers evicted keys must not take what is left for items.
        if set && self.ghosts.is_made() {
            self.fit_ghosts();
        }
        set
    }

    /// Has the allocator give its free pages back to the system. When some connections have ended, what many held in small
    /// blocks is full of holes, and the allocator by itself gives back only its end. It takes some microseconds for each
    /// hole, so the thread that makes memory ready does it, if there is one; else it is done at once.
    pub fn trim_heap(&self) {
        if !self.arena.hand_over_trim() {
            crate::held::trim_heap();
        }
    }

    /// Wakes `thread` from now on whenever [`Store::make_memory_ready`] has something to do. The first thread stays.
    pub fn memory_is_made_ready_by(&self, thread: Thread) {
        self.arena.is_made_ready_by(thread);
    }

    /// Has the system map some of the memory that items will take next, 2 MiB at a time, so that no request waits for
    /// it; false if enough is mapped. Takes as long as the system does: for a thread of its own.
    pub fn make_memory_ready(&self) -> bool {
        self.arena.make_ready()
    }

    /// Returns whether the thread that makes memory ready is behind: little of what it mapped is left. What takes more than that
    /// waits for the system, up to 20 ms in some virtual machines, with all clients of its worker.
    pub fn awaits_memory(&self) -> bool {
        self.arena.awaits_memory()
    }
}
