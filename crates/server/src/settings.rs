//! `stats settings`: memcached's lines, in its order, with what holds here.

use std::fmt::Display;
use std::sync::atomic::Ordering::Relaxed;

use larder_eventloop::socket::Address;

use crate::hub::{Hub, YesNo};

/// Calls `visit` with every line.
pub(crate) fn visit(hub: &Hub, visit: &mut dyn FnMut(&str, &dyn Display)) {
    let config = &hub.config;
    let reported = &config.reported;
    let tcp_port = hub.listening[..hub.redis_from].iter().find_map(|address| match address {
        Address::Tcp(address) => Some(address.port()),
        Address::Unix(_) => None,
    });
    let inter: Vec<&str> = config.listen.iter().map(|place| place.host.as_str()).collect();
    let inter = if inter.is_empty() { "127.0.0.1".to_owned() } else { inter.join(",") };
    let socket = config.unix_socket.as_ref().map_or("NULL".to_owned(), |path| path.display().to_string());
    let evictions = if config.evict { "on" } else { "off" };
    let oldest: u64 = 0;
    let pace = &hub.shared.automove;
    visit("maxbytes", &hub.store.totals().memory_bytes);
    visit("maxconns", &config.connections_max);
    visit("tcpport", &tcp_port.unwrap_or(0));
    visit("udpport", &0);
    visit("inter", &inter);
    visit("verbosity", &hub.log.level());
    visit("oldest", &oldest);
    visit("evictions", &evictions);
    visit("domain_socket", &socket);
    visit("umask", &format_args!("{:o}", config.unix_mode));
    visit("shutdown_command", &YesNo(config.shutdown));
    visit("growth_factor", &format_args!("{:.2}", config.growth_factor));
    visit("chunk_size", &config.chunk_bytes_min);
    visit("num_threads", &config.threads);
    visit("num_threads_per_udp", &0);
    visit("stat_key_prefix", &char::from(config.prefix_delimiter.unwrap_or(b':')));
    visit("detail_enabled", &YesNo(hub.shared.prefixes.is_on()));
    visit("reqs_per_event", &config.requests_per_event.unwrap_or(0));
    visit("cas_enabled", &YesNo(config.cas));
    visit("tcp_backlog", &config.backlog);
    visit("binding_protocol", &config.protocol);
    visit("auth_enabled_sasl", &YesNo(false));
    visit("auth_enabled_ascii", &YesNo(false));
    visit("item_size_max", &config.item_bytes_max());
    visit("maxconns_fast", &YesNo(config.refuse_fast));
    visit("hashpower_init", &reported.hash_power);
    visit("slab_reassign", &YesNo(reported.slab_reassign));
    visit("slab_automove", &(hub.store.automove() as u8));
    visit("slab_automove_ratio", &format_args!("{:.2}", f64::from_bits(pace.ratio.load(Relaxed))));
    visit("slab_automove_window", &pace.window_s.load(Relaxed));
    visit("slab_automove_freeratio", &format_args!("{:.3}", f64::from_bits(pace.free_ratio.load(Relaxed))));
    visit("slab_chunk_max", &reported.slab_chunk_bytes_max);
    visit("lru_crawler", &YesNo(config.lru_crawler));
    visit("lru_crawler_sleep", &reported.lru_crawler_sleep_us);
    visit("lru_crawler_tocrawl", &reported.lru_crawler_tocrawl);
    visit("tail_repair_time", &reported.tail_repair_s);
    visit("flush_enabled", &YesNo(config.flush));
    visit("dump_enabled", &YesNo(config.dump));
    visit("hash_algorithm", &reported.hash_algorithm);
    visit("lru_maintainer_thread", &YesNo(config.lru_maintainer));
    visit("lru_segmented", &YesNo(config.lru_maintainer));
    visit("hot_lru_pct", &reported.hot_lru_pct);
    visit("warm_lru_pct", &reported.warm_lru_pct);
    visit("hot_max_factor", &format_args!("{:.2}", reported.hot_max_factor));
    visit("warm_max_factor", &format_args!("{:.2}", reported.warm_max_factor));
    visit("temp_lru", &YesNo(reported.temporary_ttl_s.is_some()));
    visit("temporary_ttl", &reported.temporary_ttl_s.unwrap_or(61));
    visit("idle_timeout", &config.idle_timeout_s);
    visit("watcher_logbuf_size", &reported.watcher_logbuf_bytes);
    visit("worker_logbuf_size", &reported.worker_logbuf_bytes);
    visit("read_buf_mem_limit", &reported.read_buf_mem_limit_mb);
    visit("track_sizes", &YesNo(config.track_sizes));
    visit("inline_ascii_response", &YesNo(false));
    visit("ssl_enabled", &YesNo(false));
    visit("memory_file", &"(null)");
    visit("reply_bytes_max", &config.reply_bytes_max());
}
