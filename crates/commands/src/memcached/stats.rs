//! The keys of `stats`, in memcached's order. Each is a row with the source of its value; some stand for something that Larder
//! does not have.

use std::fmt::{self, Display};
use std::sync::atomic::Ordering::Relaxed;

use super::shared::Shared;
use super::slabs::SPANS_PER_PAGE;
use crate::core::context::Context;
use crate::core::counters::Counter;
use crate::core::figures;
use crate::core::figures::table::Figure;
use crate::core::shared::{Settings, VERSION};

/// All figures that `stats` reports from.
#[derive(Debug)]
pub struct Figures {
    /// Figures that every protocol shows.
    pub common: figures::Figures,
    /// Crawls started.
    pub crawls: u64,
}

impl Figures {
    /// Gathers them now, since the last reset.
    pub(crate) fn gather(shared: &Shared, cx: &Context<'_, '_>) -> Figures {
        Figures::new(shared, figures::Figures::gather(cx))
    }

    /// Adds memcached's own figures.
    pub(crate) fn new(shared: &Shared, common: figures::Figures) -> Figures {
        Figures { common, crawls: shared.crawls.load(Relaxed) }
    }
}

/// A value as it is printed.
#[derive(Clone, Debug)]
pub enum Value {
    /// A number.
    Number(u64),
    /// Microseconds, printed as seconds with six decimals.
    Micros(u64),
    /// A word.
    Word(&'static str),
}

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(n) => n.fmt(f),
            Value::Micros(us) => write!(f, "{}.{:06}", us / 1_000_000, us % 1_000_000),
            Value::Word(word) => f.write_str(word),
        }
    }
}

/// The option that must be on for a key to be there.
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
    /// `-Z`.
    Tls,
    /// `-Z` with `-o ssl_session_cache`.
    TlsSessions,
}

/// The source of a key's value.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// A figure of the server.
    Figure(Figure),
    /// A figure in microseconds, which is printed as seconds.
    Seconds(Figure),
    /// A value that no other protocol shows.
    Own(fn(&Figures) -> Value),
    /// A counter of the workers.
    Counter(Counter),
    /// Always 0, because Larder has no such thing; the text says why.
    Absent(&'static str),
}

/// A key of `stats`.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name, as printed.
    pub name: &'static str,
    /// The source of its value.
    pub source: Source,
    /// The option that it needs.
    pub needs: Needs,
}

impl Key {
    /// Its value.
    pub fn value(&self, figures: &Figures) -> Value {
        match self.source {
            Source::Figure(figure) => Value::Number(figure.of(&figures.common)),
            Source::Seconds(figure) => Value::Micros(figure.of(&figures.common)),
            Source::Own(read) => read(figures),
            Source::Counter(counter) => Value::Number(figures.common.sums.of(counter)),
            Source::Absent(_) => Value::Number(0),
        }
    }

    /// Returns whether it is there with these settings.
    pub fn is_shown(&self, settings: &Settings) -> bool {
        match self.needs {
            Needs::Nothing => true,
            Needs::Crawler => settings.lru_crawler,
            Needs::Maintainer => settings.lru_maintainer,
            Needs::IdleTimeout => settings.idle_timeout,
            Needs::Tls => settings.tls,
            Needs::TlsSessions => settings.tls_sessions,
        }
    }
}

const fn figure(name: &'static str, figure: Figure) -> Key {
    Key { name, source: Source::Figure(figure), needs: Needs::Nothing }
}

const fn seconds(name: &'static str, figure: Figure) -> Key {
    Key { name, source: Source::Seconds(figure), needs: Needs::Nothing }
}

const fn own(name: &'static str, read: fn(&Figures) -> Value) -> Key {
    Key { name, source: Source::Own(read), needs: Needs::Nothing }
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

use Value::{Number, Word};

const NO_RESPONSE_OBJECTS: &str = "replies are written into one buffer, not into objects";
pub(crate) const NO_LRU_LISTS: &str = "there are no LRU lists";
pub(crate) const NOT_EVICTED_ACTIVE: &str = "no item is evicted while its frequency says it is active";
pub(crate) const NOT_BY_CRAWLING: &str = "expired items are taken back when they are met, not by crawling";
const NO_NAPI: &str = "connections are spread by load, not by NAPI id";
const NO_WAITING_MOVER: &str =
    "a block of 64 KiB is emptied by the worker that needs it, no mover waits for its items";

/// All keys, in order.
pub static KEYS: &[Key] = &[
    figure("pid", Figure::ProcessId),
    figure("uptime", Figure::Uptime),
    figure("time", Figure::Time),
    own("version", |_| Word(VERSION)),
    own("libevent", |f| Word(f.common.process.eventloop)),
    own("pointer_size", |_| Number(u64::from(usize::BITS))),
    seconds("rusage_user", Figure::CpuUser),
    seconds("rusage_system", Figure::CpuSystem),
    figure("max_connections", Figure::ConnectionsMax),
    figure("curr_connections", Figure::Connections),
    figure("total_connections", Figure::ConnectionsOpened),
    figure("rejected_connections", Figure::ConnectionsRefused),
    figure("connection_structures", Figure::ConnectionRecords),
    counter("response_obj_oom", Counter::Shed),
    absent("response_obj_count", NO_RESPONSE_OBJECTS),
    figure("response_obj_bytes", Figure::MemoryHeld),
    figure("read_buf_count", Figure::ReceiveBuffers),
    figure("read_buf_bytes", Figure::ReceiveBufferBytes),
    figure("read_buf_bytes_free", Figure::ReceiveBufferBytesFree),
    counter("read_buf_oom", Counter::Crowded),
    figure("reserved_fds", Figure::DescriptorsReserved),
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
    counter("auth_cmds", Counter::AuthCommands),
    counter("auth_errors", Counter::AuthErrors),
    needs(Needs::IdleTimeout, counter("idle_kicks", Counter::IdleKicks)),
    counter("bytes_read", Counter::BytesRead),
    counter("bytes_written", Counter::BytesWritten),
    figure("limit_maxbytes", Figure::MemoryLimit),
    figure("accepting_conns", Figure::Accepts),
    figure("listen_disabled_num", Figure::AcceptPauses),
    figure("time_in_listen_disabled_us", Figure::AcceptPaused),
    figure("threads", Figure::Threads),
    counter("conn_yields", Counter::ConnYields),
    figure("hash_power_level", Figure::IndexPower),
    figure("hash_bytes", Figure::IndexBytes),
    figure("hash_is_expanding", Figure::IndexGrows),
    figure("slab_reassign_rescues", Figure::ChunksMoved),
    absent("slab_reassign_chunk_rescues", "pieces of large values count with slab_reassign_rescues"),
    absent("slab_reassign_inline_reclaim", "what has no room elsewhere counts with evictions"),
    absent("slab_reassign_busy_items", NO_WAITING_MOVER),
    absent("slab_reassign_busy_deletes", NO_WAITING_MOVER),
    absent("slab_reassign_busy_nomem", NO_WAITING_MOVER),
    absent("slab_reassign_last_busy_status", NO_WAITING_MOVER),
    absent("slab_reassign_running", NO_WAITING_MOVER),
    figure("slabs_moved", Figure::SpansMoved),
    needs(Needs::Crawler, absent("lru_crawler_running", "dumps run on the asking connection")),
    needs(Needs::Crawler, own("lru_crawler_starts", |f| Number(f.crawls))),
    needs(Needs::Maintainer, absent("lru_maintainer_juggles", NO_LRU_LISTS)),
    absent("malloc_fails", "a failed allocation ends the process"),
    figure("log_worker_dropped", Figure::LogLinesDropped),
    figure("log_worker_written", Figure::LogLines),
    own("log_watcher_skipped", |f| Value::Number(f.common.watched[2])),
    own("log_watcher_sent", |f| Value::Number(f.common.watched[1])),
    own("log_watchers", |f| Value::Number(f.common.watched[0])),
    absent("unexpected_napi_ids", NO_NAPI),
    absent("round_robin_fallback", NO_NAPI),
    needs(Needs::Tls, figure("ssl_handshake_errors", Figure::TlsHandshakeErrors)),
    needs(Needs::TlsSessions, figure("ssl_new_sessions", Figure::TlsNewSessions)),
    needs(Needs::Tls, figure("ssl_proto_errors", Figure::TlsProtocolErrors)),
    needs(Needs::Tls, figure("time_since_server_cert_refresh", Figure::TlsCertificatesAge)),
    figure("bytes", Figure::ItemBytes),
    figure("curr_items", Figure::Items),
    figure("total_items", Figure::ItemsStored),
    own("slab_global_page_pool", |f| Number(f.common.totals.spans_free / SPANS_PER_PAGE)),
    figure("expired_unfetched", Figure::ExpiredUnfetched),
    figure("evicted_unfetched", Figure::EvictedUnfetched),
    needs(Needs::Maintainer, absent("evicted_active", NOT_EVICTED_ACTIVE)),
    figure("evictions", Figure::Evictions),
    figure("reclaimed", Figure::Reclaimed),
    absent("crawler_reclaimed", NOT_BY_CRAWLING),
    figure("crawler_items_checked", Figure::UpkeepChecked),
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
        let tls = Settings { tls: true, ..Settings::default() };
        assert_eq!(shown(&tls), 93 + 3);
        assert_eq!(shown(&Settings { tls_sessions: true, ..tls }), 93 + 4);
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
        assert_eq!(Value::Micros(3_013).to_string(), "0.003013");
        assert_eq!(Value::Micros(12_000_001).to_string(), "12.000001");
    }
}
