//! `stats settings`: memcached's lines, in its order, with what holds here.

use std::fmt::Display;
use std::path::Path;

use larder_commands::{Kept, Speaks, Tuning};
use larder_eventloop::socket::Address;
use larder_tls::{KeyFormat, Version};

use crate::config::Config;
use crate::hub::{Hub, YesNo};

/// What memcached's tuning commands would change, as the server was started.
pub(crate) fn tuning(config: &Config) -> Tuning {
    let reported = &config.reported;
    let temporary_ttl_s = reported.temporary_ttl_s;
    let default = Tuning::default();
    Tuning {
        automove_ratio: Kept::ratio(reported.slab_automove_ratio),
        automove_free_ratio: Kept::ratio(reported.slab_automove_freeratio),
        automove_window_s: Kept::new(reported.slab_automove_window.into()),
        lru_segmented: Kept::new(config.lru_maintainer.into()),
        hot_lru_pct: Kept::new(reported.hot_lru_pct.into()),
        warm_lru_pct: Kept::new(reported.warm_lru_pct.into()),
        hot_max_factor: Kept::ratio(reported.hot_max_factor),
        warm_max_factor: Kept::ratio(reported.warm_max_factor),
        temp_lru: Kept::new(temporary_ttl_s.is_some().into()),
        temporary_ttl_s: temporary_ttl_s.map_or(default.temporary_ttl_s, |seconds| Kept::new(seconds.into())),
        crawler_sleep_us: Kept::new(reported.lru_crawler_sleep_us.into()),
        crawler_items: Kept::new(reported.lru_crawler_tocrawl.into()),
    }
}

/// Calls `visit` with every line.
pub(crate) fn visit(hub: &Hub, visit: &mut dyn FnMut(&str, &dyn Display)) {
    let config = &hub.config;
    let reported = &config.reported;
    let tcp_port = hub.listeners.iter().find_map(|listener| match (&listener.address, listener.speaks) {
        (Address::Tcp(address), Speaks::Any) => Some(address.port()),
        (Address::Tcp(_) | Address::Unix(_), _) => None,
    });
    let inter: Vec<&str> = config.listen.iter().map(|place| place.host.as_str()).collect();
    let inter = if inter.is_empty() { "127.0.0.1".to_owned() } else { inter.join(",") };
    let socket = config.unix_socket.as_ref().map_or("NULL".to_owned(), |path| path.display().to_string());
    let evictions = if config.evict { "on" } else { "off" };
    let tuning = &hub.shared.memcached.tuning;
    visit("maxbytes", &hub.store.totals().memory_bytes);
    visit("maxconns", &hub.connections_max());
    visit("tcpport", &tcp_port.unwrap_or(0));
    visit("udpport", &0);
    visit("inter", &inter);
    visit("verbosity", &hub.log.level());
    visit("oldest", &hub.shared.memcached.oldest_s.get());
    visit("evictions", &evictions);
    visit("domain_socket", &socket);
    visit("umask", &format_args!("{:o}", config.unix_mode));
    visit("shutdown_command", &YesNo(config.shutdown));
    visit("growth_factor", &format_args!("{:.2}", config.growth_factor));
    visit("chunk_size", &config.chunk_bytes_min);
    visit("num_threads", &config.threads);
    visit("num_threads_per_udp", &0);
    visit("stat_key_prefix", &char::from(config.prefix_delimiter.unwrap_or(b':')));
    visit("detail_enabled", &YesNo(hub.shared.common.prefixes.is_on()));
    visit("reqs_per_event", &config.requests_per_event.unwrap_or(0));
    visit("cas_enabled", &YesNo(config.cas));
    visit("tcp_backlog", &config.backlog);
    visit("binding_protocol", &config.protocol());
    visit("auth_enabled_sasl", &YesNo(config.sasl));
    let file = config.text_users.as_ref().map(|path| path.display());
    match file {
        Some(file) => visit("auth_enabled_ascii", &file),
        None => visit("auth_enabled_ascii", &YesNo(config.text_auth && hub.shared.asks_who())),
    }
    visit("item_size_max", &config.item_bytes_max());
    visit("maxconns_fast", &YesNo(config.refuse_fast));
    visit("hashpower_init", &reported.hash_power);
    visit("slab_reassign", &YesNo(reported.slab_reassign));
    visit("slab_automove", &(hub.store.automove() as u8));
    visit("slab_automove_ratio", &format_args!("{:.2}", tuning.automove_ratio.get_ratio()));
    visit("slab_automove_window", &tuning.automove_window_s.get());
    visit("slab_automove_freeratio", &format_args!("{:.3}", tuning.automove_free_ratio.get_ratio()));
    visit("slab_chunk_max", &reported.slab_chunk_bytes_max);
    visit("lru_crawler", &YesNo(hub.shared.memcached.crawls_on()));
    visit("lru_crawler_sleep", &tuning.crawler_sleep_us.get());
    visit("lru_crawler_tocrawl", &tuning.crawler_items.get());
    visit("tail_repair_time", &reported.tail_repair_s);
    visit("flush_enabled", &YesNo(config.flush));
    visit("dump_enabled", &YesNo(config.dump));
    visit("hash_algorithm", &reported.hash_algorithm);
    visit("lru_maintainer_thread", &YesNo(config.lru_maintainer));
    visit("lru_segmented", &YesNo(tuning.lru_segmented.get() == 1));
    visit("hot_lru_pct", &tuning.hot_lru_pct.get());
    visit("warm_lru_pct", &tuning.warm_lru_pct.get());
    visit("hot_max_factor", &format_args!("{:.2}", tuning.hot_max_factor.get_ratio()));
    visit("warm_max_factor", &format_args!("{:.2}", tuning.warm_max_factor.get_ratio()));
    visit("temp_lru", &YesNo(tuning.temp_lru.get() == 1));
    visit("temporary_ttl", &tuning.temporary_ttl_s.get());
    visit("idle_timeout", &config.idle_timeout_s);
    visit("watcher_logbuf_size", &reported.watcher_logbuf_bytes);
    visit("worker_logbuf_size", &reported.worker_logbuf_bytes);
    visit("read_buf_mem_limit", &reported.read_buf_mem_limit_mb);
    visit("track_sizes", &YesNo(config.track_sizes));
    visit("inline_ascii_response", &YesNo(false));
    visit_tls(hub, visit);
    visit("proxy_enabled", &YesNo(false));
    visit("proxy_uring_enabled", &YesNo(false));
    visit("num_napi_ids", &0);
    visit("memory_file", &"(null)");
    visit("client_flags_size", &size_of::<u32>());
    // External storage, which is not here: what memcached says that has none.
    visit("ext_item_size", &512);
    visit("ext_item_age", &u32::MAX);
    visit("ext_low_ttl", &0);
    visit("ext_recache_rate", &2000);
    visit("ext_wbuf_size", &(4 << 20));
    visit("ext_compact_under", &0);
    visit("ext_drop_under", &0);
    visit("ext_max_sleep", &1_000_000);
    visit("ext_max_frag", &"0.80");
    visit("ext_drop_unread", &YesNo(false));
    visit("reply_bytes_max", &config.reply_bytes_max());
    visit("connections_per_address", &config.connections_per_address);
    visit("requests_per_second", &config.requests_per_second);
}

/// The lines of TLS, which memcached has in every build that can speak it.
fn visit_tls(hub: &Hub, visit: &mut dyn FnMut(&str, &dyn Display)) {
    let options = &hub.certificates.options().cache;
    let path = |path: Option<&Path>, none: &'static str| match path {
        Some(path) if !path.as_os_str().is_empty() => path.display().to_string(),
        _ => none.to_owned(),
    };
    let ciphers = if options.ciphers.is_empty() { "NULL".to_owned() } else { options.ciphers.join(":") };
    let key_format = match options.key_format {
        KeyFormat::Pem => 1,
        KeyFormat::Der => 2,
    };
    let min_version = match options.min_version {
        Version::Tls12 => "tlsv1.2",
        Version::Tls13 => "tlsv1.3",
    };
    visit("ssl_enabled", &YesNo(hub.config.tls));
    visit("ssl_chain_cert", &path(Some(&options.chain), "(null)"));
    visit("ssl_key", &path(Some(&options.key), "(null)"));
    visit("ssl_verify_mode", &hub.config.reported.tls_verify_mode);
    visit("ssl_keyformat", &key_format);
    visit("ssl_ciphers", &ciphers);
    visit("ssl_ca_cert", &path(options.authorities.as_deref(), "NULL"));
    visit("ssl_wbuf_size", &hub.config.reported.tls_write_buffer_bytes);
    visit("ssl_session_cache", &YesNo(options.resumption));
    visit("ssl_kernel_tls", &YesNo(false));
    visit("ssl_min_version", &min_version);
}
