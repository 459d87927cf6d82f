//! The keys of `stats`, in memcached's order: one row each, where its value comes from, and which of
//! them stand for something that Larder does not have.

use std::fmt::{self, Display};
use std::sync::atomic::Ordering::Relaxed;

use larder_store::Totals;

use super::shared::Shared;
use super::slabs::SPANS_PER_PAGE;
use crate::core::context::Context;
use crate::core::counters::{Counter, Sums};
use crate::core::figures;
use crate::core::host::Process;
use crate::core::shared::{Settings, VERSION};

/// Everything `stats` reports from.
#[derive(Debug)]
pub struct Figures {
    /// Of the process.
    pub process: Process,
    /// Of all workers, since the last reset.
    pub sums: Sums,
    /// Of the store.
    pub totals: Totals,
    /// Server time, seconds.
    pub now_s: u64,
    /// Crawls started.
    pub crawls: u64,
}

impl Figures {
    /// Gathers them now.
    pub(crate) fn gather(shared: &Shared, cx: &Context<'_, '_>) -> Figures {
        let figures::Figures { process, sums, totals, now_s } = figures::Figures::gather(cx);
        Figures { process, sums, totals, now_s, crawls: shared.crawls.load(Relaxed) }
    }
}

/// A value as it is printed.
#[derive(Clone, Debug)]
pub enum Figure {
    /// A number.
    Number(u64),
    /// Microseconds, printed as seconds with six decimals.
    Micros(u64),
    /// A word.
    Word(&'static str),
}

impl Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Figure::Number(n) => n.fmt(f),
            Figure::Micros(us) => write!(f, "{}.{:06}", us / 1_000_000, us % 1_000_000),
            Figure::Word(word) => f.write_str(word),
        }
    }
}

/// Which option must be on for a key to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// None.
    Nothing,
    /// Not `-o no_lru_crawler`.
    Crawler,
    /// Not `-o no_lru_maintainer`.
    Maintainer,
    /// `-o idle_timeout` above 0.
    IdleTimeout,
}

/// Where a key's value comes from.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// Something that is measured.
    Figure(fn(&Figures) -> Figure),
    /// A counter of the workers.
    Counter(Counter),
    /// Always 0, because Larder has no such thing; the text says why.
    Absent(&'static str),
}

/// A key of `stats`.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// As printed.
    pub name: &'static str,
    /// Where its value comes from.
    pub source: Source,
    /// When it is there.
    pub needs: Needs,
}

impl Key {
    /// Its value.
    pub fn value(&self, figures: &Figures) -> Figure {
        match self.source {
            Source::Figure(read) => read(figures),
            Source::Counter(counter) => Figure::Number(figures.sums.of(counter)),
            Source::Absent(_) => Figure::Number(0),
        }
    }

    /// It is there with these settings.
    pub fn is_shown(&self, settings: &Settings) -> bool {
        match self.needs {
            Needs::Nothing => true,
            Needs::Crawler => settings.lru_crawler,
            Needs::Maintainer => settings.lru_maintainer,
            Needs::IdleTimeout => settings.idle_timeout,
        }
    }
}

const fn figure(name: &'static str, read: fn(&Figures) -> Figure) -> Key {
    Key { name, source: Source::Figure(read), needs: Needs::Nothing }
}

const fn counter(name: &'static str, counter: Counter) -> Key {
    Key { name, source: Source::Counter(counter), needs: Needs::Nothing }
}

const fn absent(name: &'static str, why: &'static str) -> Key {
    Key { name, source: Source::Absent(why), needs: Needs::Nothing }
}

const fn needs(needs: Needs, key: Key) -> Key {
    Key { needs, ..key }
}

use Figure::{Micros, Number, Word};

const NO_RESPONSE_OBJECTS: &str = "replies are written into one buffer, not into objects";
const NO_AUTH: &str = "there is no authentication on the memcached port";
const NO_WATCHERS: &str = "there are no watchers";
pub(crate) const NO_LRU_LISTS: &str = "there are no LRU lists";
pub(crate) const NOT_EVICTED_ACTIVE: &str = "no item is evicted while its frequency says it is active";
pub(crate) const NOT_BY_CRAWLING: &str = "expired items are taken back when they are met, not by crawling";
const NO_NAPI: &str = "connections are spread by load, not by NAPI id";
const NO_WAITING_MOVER: &str = "a span is emptied by whoever needs it, no mover waits for its items";

/// All keys, in order.
pub static KEYS: &[Key] = &[
    figure("pid", |f| Number(u64::from(f.process.pid))),
    figure("uptime", |f| Number(f.process.uptime_s)),
    figure("time", |f| Number(f.now_s)),
    figure("version", |_| Word(VERSION)),
    figure("libevent", |f| Word(f.process.eventloop)),
    figure("pointer_size", |_| Number(u64::from(usize::BITS))),
    figure("rusage_user", |f| Micros(f.process.user_us)),
    figure("rusage_system", |f| Micros(f.process.system_us)),
    figure("max_connections", |f| Number(f.process.connections_max)),
    figure("curr_connections", |f| Number(f.process.connections)),
    figure("total_connections", |f| Number(f.process.connections_total)),
    figure("rejected_connections", |f| Number(f.process.connections_rejected)),
    figure("connection_structures", |f| Number(f.process.connection_structures)),
    counter("response_obj_oom", Counter::Shed),
    absent("response_obj_count", NO_RESPONSE_OBJECTS),
    figure("response_obj_bytes", |f| Number(f.totals.held_bytes)),
    figure("read_buf_count", |f| Number(f.process.receive_buffers)),
    figure("read_buf_bytes", |f| Number(f.process.receive_buffer_bytes)),
    figure("read_buf_bytes_free", |f| Number(f.process.receive_buffer_bytes_free)),
    counter("read_buf_oom", Counter::Crowded),
    figure("reserved_fds", |f| Number(f.process.reserved_fds)),
    counter("cmd_get", Counter::CmdGet),
    counter("cmd_set", Counter::CmdSet),
    counter("cmd_flush", Counter::CmdFlush),
    counter("cmd_touch", Counter::CmdTouch),
    counter("cmd_meta", Counter::CmdMeta),
    counter("get_hits", Counter::GetHits),
    counter("get_misses", Counter::GetMisses),
    counter("get_expired", Counter::GetExpired),
    counter("get_flushed", Counter::GetFlushed),
    counter("delete_misses", Counter::DeleteMisses),
    counter("delete_hits", Counter::DeleteHits),
    counter("incr_misses", Counter::IncrMisses),
    counter("incr_hits", Counter::IncrHits),
    counter("decr_misses", Counter::DecrMisses),
    counter("decr_hits", Counter::DecrHits),
    counter("cas_misses", Counter::CasMisses),
    counter("cas_hits", Counter::CasHits),
    counter("cas_badval", Counter::CasBadval),
    counter("touch_hits", Counter::TouchHits),
    counter("touch_misses", Counter::TouchMisses),
    counter("store_too_large", Counter::StoreTooLarge),
    counter("store_no_memory", Counter::StoreNoMemory),
    absent("auth_cmds", NO_AUTH),
    absent("auth_errors", NO_AUTH),
    needs(Needs::IdleTimeout, counter("idle_kicks", Counter::IdleKicks)),
    counter("bytes_read", Counter::BytesRead),
    counter("bytes_written", Counter::BytesWritten),
    figure("limit_maxbytes", |f| Number(f.totals.memory_bytes)),
    figure("accepting_conns", |f| Number(u64::from(f.process.accepting))),
    figure("listen_disabled_num", |f| Number(f.process.accept_pauses)),
    figure("time_in_listen_disabled_us", |f| Number(f.process.accept_paused_us)),
    figure("threads", |f| Number(f.process.threads)),
    counter("conn_yields", Counter::ConnYields),
    figure("hash_power_level", |f| Number(u64::from(f.totals.index_slots.checked_ilog2().unwrap_or(0)))),
    figure("hash_bytes", |f| Number(f.totals.index_bytes)),
    figure("hash_is_expanding", |f| Number(u64::from(f.totals.index_growing))),
    figure("slab_reassign_rescues", |f| Number(f.totals.chunks_moved)),
    absent("slab_reassign_chunk_rescues", "pieces of large values count with slab_reassign_rescues"),
    absent("slab_reassign_inline_reclaim", "what has no room elsewhere counts with evictions"),
    absent("slab_reassign_busy_items", NO_WAITING_MOVER),
    absent("slab_reassign_busy_deletes", NO_WAITING_MOVER),
    absent("slab_reassign_busy_nomem", NO_WAITING_MOVER),
    absent("slab_reassign_last_busy_status", NO_WAITING_MOVER),
    absent("slab_reassign_running", NO_WAITING_MOVER),
    figure("slabs_moved", |f| Number(f.totals.spans_moved)),
    needs(Needs::Crawler, absent("lru_crawler_running", "dumps run on the asking connection")),
    needs(Needs::Crawler, figure("lru_crawler_starts", |f| Number(f.crawls))),
    needs(Needs::Maintainer, absent("lru_maintainer_juggles", NO_LRU_LISTS)),
    absent("malloc_fails", "a failed allocation ends the process"),
    figure("log_worker_dropped", |f| Number(f.process.log_lines_dropped)),
    figure("log_worker_written", |f| Number(f.process.log_lines)),
    absent("log_watcher_skipped", NO_WATCHERS),
    absent("log_watcher_sent", NO_WATCHERS),
    absent("log_watchers", NO_WATCHERS),
    absent("unexpected_napi_ids", NO_NAPI),
    absent("round_robin_fallback", NO_NAPI),
    figure("bytes", |f| Number(f.totals.item_bytes)),
    figure("curr_items", |f| Number(f.totals.items)),
    figure("total_items", |f| {
        Number(f.totals.items_stored.saturating_sub(f.sums.of(Counter::NumbersInPlace)))
    }),
    figure("slab_global_page_pool", |f| Number(f.totals.spans_free / SPANS_PER_PAGE)),
    figure("expired_unfetched", |f| Number(f.totals.expired_unfetched)),
    figure("evicted_unfetched", |f| Number(f.totals.evicted_unfetched)),
    needs(Needs::Maintainer, absent("evicted_active", NOT_EVICTED_ACTIVE)),
    figure("evictions", |f| Number(f.totals.evictions)),
    figure("reclaimed", |f| Number(f.totals.reclaimed)),
    absent("crawler_reclaimed", NOT_BY_CRAWLING),
    figure("crawler_items_checked", |f| Number(f.totals.maintain_checked)),
    absent("lrutail_reflocked", NO_LRU_LISTS),
    needs(Needs::Maintainer, absent("moves_to_cold", NO_LRU_LISTS)),
    needs(Needs::Maintainer, absent("moves_to_warm", NO_LRU_LISTS)),
    needs(Needs::Maintainer, absent("moves_within_lru", NO_LRU_LISTS)),
    needs(Needs::Maintainer, absent("direct_reclaims", NO_LRU_LISTS)),
    needs(Needs::Maintainer, absent("lru_bumps_dropped", NO_LRU_LISTS)),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(settings: &Settings) -> usize {
        KEYS.iter().filter(|key| key.is_shown(settings)).count()
    }

    #[test]
    fn there_are_93_keys_and_84_without_crawler_and_maintainer() {
        assert_eq!(shown(&Settings::default()), 93);
        let bare = Settings { lru_crawler: false, lru_maintainer: false, ..Settings::default() };
        assert_eq!(shown(&bare), 84);
    }

    #[test]
    fn idle_kicks_are_shown_where_idle_connections_are_closed() {
        assert_eq!(shown(&Settings { idle_timeout: true, ..Settings::default() }), 94);
    }

    #[test]
    fn no_key_comes_twice() {
        let mut names: Vec<_> = KEYS.iter().map(|key| key.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KEYS.len());
    }

    #[test]
    fn seconds_have_six_decimals() {
        assert_eq!(Figure::Micros(3_013).to_string(), "0.003013");
        assert_eq!(Figure::Micros(12_000_001).to_string(), "12.000001");
    }
}
