//! Figures of INFO and the metrics that only RESP has: commands, clients, waiters; and some of the process's memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_store::Store;

use super::shared::Shared;
use crate::core::context::Context;
use crate::core::figures;
use crate::core::figures::table::figures;
use crate::core::work::CLIENT_NS;
use crate::redis::counters::RedisCounter;
use crate::redis::facts::ClientFacts;

/// The figures from which INFO is made.
#[derive(Debug)]
pub(crate) struct Figures {
    /// The figures of all protocols.
    pub common: figures::Figures,
    clients: Clients,
    /// How many keys clients wait for.
    awaited_keys: u64,
    /// The highest use of memory that was seen.
    used_peak: u64,
    /// The value of `maxmemory`.
    limit: u64,
    slow_commands: u64,
    /// Number and microseconds of the last slow command.
    slowest: (u64, u64),
}

/// Sums over RESP clients.
#[derive(Debug, Default)]
struct Clients {
    all: u64,
    waiting: u64,
    listening: u64,
    watching: u64,
    watched_keys: u64,
    query_bytes_max: u64,
    output_bytes_max: u64,
}

impl Clients {
    fn count(shared: &Shared) -> Clients {
        let clients = shared.clients.list();
        let count =
            |holds: fn(&ClientFacts) -> bool| clients.iter().filter(|facts| holds(facts)).count() as u64;
        let most = |of: fn(&ClientFacts) -> &AtomicU64| {
            clients.iter().map(|facts| of(facts).load(Relaxed)).max().unwrap_or(0)
        };
        Clients {
            all: clients.len() as u64,
            waiting: count(|facts| facts.waits.load(Relaxed)),
            listening: count(ClientFacts::listens),
            watching: count(|facts| facts.watched.load(Relaxed) > 0),
            watched_keys: clients.iter().map(|facts| u64::from(facts.watched.load(Relaxed))).sum(),
            query_bytes_max: most(|facts| &facts.query_bytes),
            output_bytes_max: most(|facts| &facts.output_bytes),
        }
    }
}

impl Figures {
    /// Gathers the figures, counted since the last reset. Spends the work of that.
    pub fn gather(shared: &Shared, cx: &Context<'_, '_>) -> Figures {
        let figures = Figures::new(shared, cx.guard.store(), figures::Figures::gather(cx));
        cx.room.work().spend(figures.clients.all * CLIENT_NS);
        figures
    }

    /// Adds RESP's figures to those of all protocols.
    pub fn new(shared: &Shared, store: &Store, common: figures::Figures) -> Figures {
        let used = common.totals.used_bytes;
        Figures {
            clients: Clients::count(shared),
            awaited_keys: shared.waiters.keys() as u64,
            used_peak: shared.used_peak.load(Relaxed).max(used),
            limit: shared.memory_limit(store),
            slow_commands: shared.commandlog.slow() as u64,
            slowest: shared.commandlog.last().unwrap_or_default(),
            common,
        }
    }

    /// Memory of the process for each byte that is used.
    pub fn fragmentation(&self) -> f64 {
        self.common.resident_bytes as f64 / self.common.totals.used_bytes.max(1) as f64
    }
}

figures! {
    /// A figure that Redis's clients are shown.
    RedisFigure of Figures {
        /// Keys that RESP commands read and found.
        Hits = "redis_hits": Counter, Count, |f| f.common.sums.of(RedisCounter::Hits);
        /// And did not find.
        Misses = "redis_misses": Counter, Count, |f| f.common.sums.of(RedisCounter::Misses);
        /// Of these, those whose item's time had passed.
        Expired = "redis_expired": Counter, Count, |f| f.common.sums.of(RedisCounter::Expired);
        /// RESP commands.
        Commands = "redis_commands": Counter, Count, |f| f.common.sums.of(RedisCounter::Commands);
        /// RESP commands that were answered with an error.
        Errors = "redis_errors": Counter, Count, |f| f.common.sums.of(RedisCounter::Errors);
        /// Connections, or RESP clients that have not left yet.
        Clients = "redis_clients": Gauge, Count, |f| f.common.process.connections.max(f.clients.all);
        /// RESP clients that wait: for the end of a pause, or for something to be there.
        ClientsWaiting = "redis_clients_waiting": Gauge, Count, |f| f.clients.waiting;
        /// RESP clients that listen to channels.
        ClientsListening = "redis_clients_listening": Gauge, Count, |f| f.clients.listening;
        /// RESP clients that watch keys.
        ClientsWatching = "redis_clients_watching": Gauge, Count, |f| f.clients.watching;
        /// Keys that they watch.
        KeysWatched = "redis_keys_watched": Gauge, Count, |f| f.clients.watched_keys;
        /// Keys that clients wait for.
        KeysAwaited = "redis_keys_awaited": Gauge, Count, |f| f.awaited_keys;
        /// Bytes of the longest request that is not whole.
        QueryBytesMax = "redis_query_bytes_max": Gauge, Bytes, |f| f.clients.query_bytes_max;
        /// The most bytes of replies that wait for one client.
        OutputBytesMax = "redis_output_bytes_max": Gauge, Bytes, |f| f.clients.output_bytes_max;
        /// Memory of the machine.
        SystemMemory = "system_memory": Gauge, Bytes, |f| f.common.system.memory_bytes;
        /// The most memory that was seen to be used.
        MemoryPeak = "memory_peak": Gauge, Bytes, |f| f.used_peak;
        /// `maxmemory`: the memory limit, or what was set below the least that there can be.
        MaxMemory = "maxmemory": Gauge, Bytes, |f| f.limit;
        /// Whether several threads answer.
        SeveralThreads = "several_threads": Gauge, Switch, |f| u64::from(f.common.process.threads > 1);
        /// Commands that SLOWLOG lists.
        SlowCommands = "slow_commands": Gauge, Count, |f| f.slow_commands;
        /// Number of the last one.
        SlowLast = "slow_last": Gauge, Count, |f| f.slowest.0;
        /// How long that took.
        SlowLastTook = "slow_last_took": Gauge, Micros, |f| f.slowest.1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::counters::Counter;
    use crate::core::figures::table::Figure;

    #[test]
    fn no_name_is_another_figures_too() {
        for figure in RedisFigure::ALL {
            let row = figure.row();
            assert!(Figure::ALL.iter().all(|other| other.row().name != row.name), "{}", row.name);
            assert!(Counter::ALL.iter().all(|other| other.name() != row.name), "{}", row.name);
            assert!(row.help.ends_with('.'), "{}", row.help);
        }
    }
}
