//! The table of `-o` options, memcached's `name` or `name=value`, one row each.

use larder_tls::{ClientAuth, KeyFormat, Version, cipher_names};

use crate::config::Config;
use crate::options::Effect;
use crate::tls::names;
use crate::values::number;

/// One `-o` option.
#[derive(Clone, Copy)]
pub struct Extended {
    /// Its name.
    pub name: &'static str,
    /// What it takes; none: it takes nothing, or does not need it.
    pub value: Option<&'static str>,
    /// What holds without it.
    pub default: &'static str,
    /// What it can be.
    pub range: &'static str,
    /// What it does.
    pub help: &'static str,
    /// What it does here.
    pub effect: Effect,
    /// Applies it with its value, if one was given.
    pub apply: fn(&mut Config, Option<&str>) -> Result<(), String>,
}

impl std::fmt::Debug for Extended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extended").field("name", &self.name).finish_non_exhaustive()
    }
}

type Apply = fn(&mut Config, Option<&str>) -> Result<(), String>;

const fn works(name: &'static str, help: &'static str, apply: Apply) -> Extended {
    Extended { name, value: None, default: "", range: "", help, effect: Effect::Works, apply }
}

const fn nothing(name: &'static str, help: &'static str, why: &'static str, apply: Apply) -> Extended {
    Extended { effect: Effect::Accepted(why), ..works(name, help, apply) }
}

const fn refused(name: &'static str, help: &'static str, why: &'static str) -> Extended {
    Extended { effect: Effect::Refused(why), ..works(name, help, |_, _| Ok(())) }
}

const fn takes(row: Extended, value: &'static str, default: &'static str, range: &'static str) -> Extended {
    Extended { value: Some(value), default, range, ..row }
}

const TLS_BUFFER: &str = "replies are sealed in memory of their worker's; reported by `stats settings`";
const TLS_KERNEL: &str = "records are sealed here; reported by `stats settings`";
const EXTSTORE: &str = "there is no storage beside memory";
const PROXY: &str = "this is a cache and no proxy";
const ONE_INDEX: &str = "the index grows by itself, in small steps";
const ONE_POLICY: &str = "eviction is one policy without segments; reported by `stats settings`";
const MEMORY_MOVES: &str =
    "memory moves between classes as fast as items need it; reported by `stats settings`";
const EXPIRY: &str = "expired items are taken back when they are read or when memory is short, not by crawling; reported by `stats settings`";
const NO_WORKER_LOG: &str = "lines go to watchers at once; reported by `stats settings`";
const BUFFERS: &str = "connections hold no buffer while nothing is under way";
const OLD: &str = "it has none in memcached either";

/// Every `-o` option, in the order of the help.
pub const EXTENDED: &[Extended] = &[
    takes(
        works("idle_timeout", "closes connections that send nothing for so long", |config, value| {
            config.idle_timeout_s = number(need(value)?, 0, 1 << 31)?;
            Ok(())
        }),
        "SECONDS",
        "0 (never)",
        "0 to 2147483648",
    ),
    works("maxconns_fast", "refuses connections above -c with an error (the default)", |config, _| {
        config.refuse_fast = true;
        Ok(())
    }),
    works("no_maxconns_fast", "lets connections above -c wait to be accepted", |config, _| {
        config.refuse_fast = false;
        Ok(())
    }),
    works("track_sizes", "counts items by size for `stats sizes`", |config, _| {
        config.track_sizes = true;
        Ok(())
    }),
    works(
        "relaxed_privileges",
        "allows `debugtime`, which moves the server's clock, for tests",
        |config, _| {
            config.relaxed_privileges = true;
            Ok(())
        },
    ),
    works(
        "lru_crawler",
        "lets clients start crawls and shows their statistics (the default)",
        |config, _| {
            config.lru_crawler = true;
            Ok(())
        },
    ),
    works("no_lru_crawler", "hides the crawler's statistics", |config, _| {
        config.lru_crawler = false;
        Ok(())
    }),
    works("lru_maintainer", "shows the maintainer's statistics (the default)", |config, _| {
        config.lru_maintainer = true;
        Ok(())
    }),
    works("no_lru_maintainer", "hides the maintainer's statistics", |config, _| {
        config.lru_maintainer = false;
        Ok(())
    }),
    works("no_modern", "as no_lru_crawler and no_lru_maintainer", |config, _| {
        config.lru_crawler = false;
        config.lru_maintainer = false;
        config.reported.slab_reassign = false;
        config.reported.slab_automove = 0;
        Ok(())
    }),
    nothing("modern", "memcached's present defaults", OLD, |_, _| Ok(())),
    takes(
        nothing("lru_crawler_sleep", "pause between crawled items", EXPIRY, |config, value| {
            config.reported.lru_crawler_sleep_us = number(need(value)?, 0, 1_000_000)?;
            Ok(())
        }),
        "MICROSECONDS",
        "100",
        "0 to 1000000",
    ),
    takes(
        nothing("lru_crawler_tocrawl", "items a crawl looks at", EXPIRY, |config, value| {
            config.reported.lru_crawler_tocrawl = number(need(value)?, 0, u32::MAX)?;
            Ok(())
        }),
        "N",
        "0 (all)",
        "0 to 4294967295",
    ),
    takes(
        nothing("hot_lru_pct", "share of the HOT segment", ONE_POLICY, |config, value| {
            config.reported.hot_lru_pct = number(need(value)?, 1, 80)?;
            Ok(())
        }),
        "PERCENT",
        "20",
        "1 to 80",
    ),
    takes(
        nothing("warm_lru_pct", "share of the WARM segment", ONE_POLICY, |config, value| {
            config.reported.warm_lru_pct = number(need(value)?, 1, 80)?;
            Ok(())
        }),
        "PERCENT",
        "40",
        "1 to 80",
    ),
    takes(
        nothing("hot_max_factor", "age of HOT against COLD", ONE_POLICY, |config, value| {
            config.reported.hot_max_factor = factor(value)?;
            Ok(())
        }),
        "FACTOR",
        "0.2",
        "above 0",
    ),
    takes(
        nothing("warm_max_factor", "age of WARM against COLD", ONE_POLICY, |config, value| {
            config.reported.warm_max_factor = factor(value)?;
            Ok(())
        }),
        "FACTOR",
        "2.0",
        "above 0",
    ),
    takes(
        nothing(
            "temporary_ttl",
            "items of so short a life in a queue of their own",
            ONE_POLICY,
            |config, value| {
                config.reported.temporary_ttl_s = Some(number(need(value)?, 0, u32::MAX)?);
                Ok(())
            },
        ),
        "SECONDS",
        "off",
        "0 to 4294967295",
    ),
    works("slab_reassign", "`slabs reassign` may move memory between classes (the default)", |config, _| {
        config.reported.slab_reassign = true;
        Ok(())
    }),
    works("no_slab_reassign", "refuses `slabs reassign`", |config, _| {
        config.reported.slab_reassign = false;
        Ok(())
    }),
    takes(
        works(
            "slab_automove",
            "memory moves between classes by itself: 1 to those that evict clearly sooner, 2 always from the one used least recently, 0 not at all",
            |config, value| {
                config.reported.slab_automove = value.map_or(Ok(1), |value| number(value, 0, 2))?;
                Ok(())
            },
        ),
        "MODE",
        "1",
        "0, 1, 2",
    ),
    works("no_slab_automove", "as slab_automove=0: a class evicts its own", |config, _| {
        config.reported.slab_automove = 0;
        Ok(())
    }),
    takes(
        nothing("slab_automove_ratio", "age ratio at which memory moves", MEMORY_MOVES, |config, value| {
            config.reported.slab_automove_ratio = factor(value)?;
            Ok(())
        }),
        "RATIO",
        "0.8",
        "above 0",
    ),
    takes(
        nothing(
            "slab_automove_window",
            "seconds of history that decide a move",
            MEMORY_MOVES,
            |config, value| {
                config.reported.slab_automove_window = number(need(value)?, 3, 1800)?;
                Ok(())
            },
        ),
        "SECONDS",
        "10",
        "3 to 1800",
    ),
    takes(
        nothing("slab_automove_freeratio", "share of memory kept free", MEMORY_MOVES, |config, value| {
            config.reported.slab_automove_freeratio = factor(value)?;
            Ok(())
        }),
        "RATIO",
        "0.01",
        "above 0",
    ),
    takes(
        nothing(
            "slab_sizes",
            "sizes of the slab classes",
            "they are what `stats slabs` and `stats items` sum up; the classes themselves are finer",
            |config, value| {
                let sizes = need(value)?.split('-').map(|size| number(size, 1, u32::MAX));
                config.reported.slab_sizes = sizes.collect::<Result<_, _>>()?;
                Ok(())
            },
        ),
        "N-N-…",
        "by -f and -n",
        "bytes from -n to slab_chunk_max, each more than 8 above the one before",
    ),
    takes(
        nothing(
            "slab_chunk_max",
            "largest piece of an item",
            "it is the last class that `stats slabs` shows; pieces are 16 KB at most",
            |config, value| {
                config.reported.slab_chunk_bytes_max = number::<u32>(need(value)?, 1, 1 << 20)? << 10;
                Ok(())
            },
        ),
        "KILOBYTES",
        "512",
        "1 to 1048576",
    ),
    nothing("no_chunked_items", "items in one piece", "pieces cost nothing here", |_, _| Ok(())),
    takes(
        nothing("hashpower", "size of the index at start", ONE_INDEX, |config, value| {
            config.reported.hash_power = number(need(value)?, 12, 32)?;
            Ok(())
        }),
        "POWER",
        "by need",
        "12 to 32",
    ),
    nothing("no_hashexpand", "an index that does not grow", ONE_INDEX, |_, _| Ok(())),
    takes(
        nothing("hash_algorithm", "hash of keys", "one keyed hash serves all", |config, value| {
            match need(value)? {
                name @ ("jenkins" | "murmur3" | "xxh3") => {
                    config.reported.hash_algorithm = name.into();
                    Ok(())
                }
                _ => Err("one of jenkins, murmur3, xxh3".into()),
            }
        }),
        "NAME",
        "murmur3",
        "jenkins, murmur3, xxh3",
    ),
    takes(
        nothing(
            "tail_repair_time",
            "repair of leaked references",
            "there are none to leak",
            |config, value| {
                config.reported.tail_repair_s = number(need(value)?, 10, u32::MAX)?;
                Ok(())
            },
        ),
        "SECONDS",
        "off",
        "10 to 4294967295",
    ),
    takes(
        works("watcher_logbuf_size", "lines that may wait for a client that watches", |config, value| {
            config.reported.watcher_logbuf_bytes = number::<u32>(need(value)?, 1, 1 << 20)? << 10;
            Ok(())
        }),
        "KILOBYTES",
        "256",
        "1 to 1048576",
    ),
    takes(
        nothing("worker_logbuf_size", "buffer of a worker's log", NO_WORKER_LOG, |config, value| {
            config.reported.worker_logbuf_bytes = number::<u32>(need(value)?, 1, 1 << 20)? << 10;
            Ok(())
        }),
        "KILOBYTES",
        "64",
        "1 to 1048576",
    ),
    takes(
        nothing("read_buf_mem_limit", "memory for receive buffers", BUFFERS, |config, value| {
            config.reported.read_buf_mem_limit_mb = number(need(value)?, 0, 1 << 20)?;
            Ok(())
        }),
        "MB",
        "0",
        "0 to 1048576",
    ),
    takes(
        nothing("resp_obj_mem_limit", "memory for replies", OLD, |_, value| {
            number::<u64>(need(value)?, 0, 1 << 20).map(drop)
        }),
        "MB",
        "0",
        "0 to 1048576",
    ),
    nothing("inline_ascii_resp", "copies small values into replies", OLD, |_, _| Ok(())),
    nothing("no_inline_ascii_resp", "does not", OLD, |_, _| Ok(())),
    nothing(
        "drop_privileges",
        "a filter of system calls",
        "memcached has it in few builds only; --seccomp on is one here",
        |_, _| Ok(()),
    ),
    nothing("no_drop_privileges", "no such filter", OLD, |_, _| Ok(())),
    takes(
        nothing(
            "sock_cookie_id",
            "a mark on sockets for packet filters",
            "sockets are not marked",
            |_, value| number::<u32>(need(value)?, 0, u32::MAX).map(drop),
        ),
        "N",
        "0",
        "0 to 4294967295",
    ),
    takes(
        works("ssl_chain_cert", "with -Z: certificates, the server's own first, as PEM", |config, value| {
            config.tls_options.cache.chain = need(value)?.into();
            Ok(())
        }),
        "PATH",
        "",
        "",
    ),
    takes(
        works("ssl_key", "with -Z: the key of ssl_chain_cert", |config, value| {
            config.tls_options.cache.key = need(value)?.into();
            Ok(())
        }),
        "PATH",
        "",
        "",
    ),
    takes(
        works("ssl_keyformat", "how ssl_key is written: 1 as PEM, 2 as DER", |config, value| {
            config.tls_options.cache.key_format =
                if number(need(value)?, 1, 2)? == 1 { KeyFormat::Pem } else { KeyFormat::Der };
            Ok(())
        }),
        "FORMAT",
        "1",
        "1, 2",
    ),
    takes(
        works(
            "ssl_verify_mode",
            "certificates of clients: 0 are not asked for, 1 have to be good if they are shown, 2 and 3 have to be shown",
            |config, value| {
                config.reported.tls_verify_mode = number(need(value)?, 0, 3)?;
                config.tls_options.cache.clients = match config.reported.tls_verify_mode {
                    0 => ClientAuth::None,
                    1 => ClientAuth::Optional,
                    _ => ClientAuth::Required,
                };
                Ok(())
            },
        ),
        "MODE",
        "0",
        "0 to 3",
    ),
    takes(
        works("ssl_ca_cert", "authorities that sign the certificates of clients, as PEM", |config, value| {
            config.tls_options.cache.authorities = Some(need(value)?.into());
            Ok(())
        }),
        "PATH",
        "",
        "",
    ),
    takes(
        works(
            "ssl_ciphers",
            "ciphers of TLS 1.2, by OpenSSL's names with colons between; those of 1.3 are always all",
            |config, value| {
                config.tls_options.cache.ciphers = names(need(value)?, cipher_names())?;
                Ok(())
            },
        ),
        "LIST",
        "",
        "of ECDHE-ECDSA and ECDHE-RSA with AES256-GCM-SHA384, AES128-GCM-SHA256 and CHACHA20-POLY1305",
    ),
    takes(
        works("ssl_min_version", "the oldest version of TLS: 2 is 1.2, 3 is 1.3", |config, value| {
            config.tls_options.cache.min_version = match number(need(value)?, 0, 3)? {
                0 | 1 => return Err("TLS before 1.2 is not spoken: it is not safe any more".into()),
                2 => Version::Tls12,
                _ => Version::Tls13,
            };
            Ok(())
        }),
        "VERSION",
        "2",
        "2, 3",
    ),
    works("ssl_session_cache", "sessions are resumed, by tickets that clients keep", |config, _| {
        config.tls_options.cache.resumption = true;
        Ok(())
    }),
    takes(
        nothing("ssl_wbuf_size", "buffer for replies by TLS", TLS_BUFFER, |config, value| {
            config.reported.tls_write_buffer_bytes = number::<u32>(need(value)?, 1, 1 << 20)? << 10;
            Ok(())
        }),
        "KILOBYTES",
        "16",
        "1 to 1048576",
    ),
    nothing("ssl_kernel_tls", "TLS in the kernel", TLS_KERNEL, |_, _| Ok(())),
    takes(refused("ext_path", "storage", EXTSTORE), "PATH:SIZE", "", ""),
    takes(refused("ext_page_size", "storage", EXTSTORE), "MB", "", ""),
    takes(refused("ext_wbuf_size", "storage", EXTSTORE), "MB", "", ""),
    takes(refused("ext_threads", "storage", EXTSTORE), "N", "", ""),
    takes(refused("ext_io_depth", "storage", EXTSTORE), "N", "", ""),
    takes(refused("ext_item_size", "storage", EXTSTORE), "BYTES", "", ""),
    takes(refused("ext_item_age", "storage", EXTSTORE), "SECONDS", "", ""),
    takes(refused("ext_low_ttl", "storage", EXTSTORE), "SECONDS", "", ""),
    takes(refused("ext_recache_rate", "storage", EXTSTORE), "N", "", ""),
    takes(refused("ext_compact_under", "storage", EXTSTORE), "N", "", ""),
    takes(refused("ext_drop_under", "storage", EXTSTORE), "N", "", ""),
    takes(refused("ext_max_frag", "storage", EXTSTORE), "RATIO", "", ""),
    takes(refused("ext_max_sleep", "storage", EXTSTORE), "MICROSECONDS", "", ""),
    refused("ext_drop_unread", "storage", EXTSTORE),
    takes(refused("proxy_config", "proxy", PROXY), "PATH", "", ""),
    takes(refused("proxy_arg", "proxy", PROXY), "TEXT", "", ""),
    refused("proxy_uring", "proxy", PROXY),
    refused("proxy_memprofile", "proxy", PROXY),
];

/// Applies one `-o` with all that it lists.
pub(crate) fn apply(config: &mut Config, list: &str) -> Result<(), String> {
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (name, value) = match part.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (part, None),
        };
        let row =
            EXTENDED.iter().find(|row| row.name == name).ok_or_else(|| format!("{name} is not known"))?;
        match row.effect {
            Effect::Refused(why) => return Err(format!("{name} is refused: {why}")),
            Effect::Works | Effect::Accepted(_) => {}
        }
        if row.value.is_none() && value.is_some() {
            return Err(format!("{name} takes no value"));
        }
        (row.apply)(config, value).map_err(|why| format!("{part}: {why}"))?;
        config.given.push((row.name, value.unwrap_or_default().into()));
    }
    Ok(())
}

fn need(value: Option<&str>) -> Result<&str, String> {
    value.filter(|value| !value.is_empty()).ok_or_else(|| "a value is missing".into())
}

fn factor(value: Option<&str>) -> Result<f64, String> {
    need(value)?
        .parse()
        .ok()
        .filter(|&factor: &f64| factor > 0.0 && factor.is_finite())
        .ok_or_else(|| "a number above 0".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_applies_in_order() {
        let mut config = Config::default();
        apply(&mut config, "idle_timeout=3,no_lru_crawler,slab_automove=2,,no_lru_maintainer").unwrap();
        assert_eq!(config.idle_timeout_s, 3);
        assert!(!config.lru_crawler && !config.lru_maintainer);
        assert_eq!(config.reported.slab_automove, 2);
    }

    #[test]
    fn unknown_refused_and_impossible_ones_are_errors_that_name_them() {
        for bad in [
            "nonsense",
            "ext_path=/x:1g",
            "ssl_key=",
            "ssl_min_version=1",
            "ssl_min_version=4",
            "ssl_keyformat=3",
            "ssl_verify_mode=4",
            "ssl_ciphers=RC4-SHA",
            "proxy_config=x",
            "hashpower=11",
            "hashpower=33",
            "idle_timeout",
            "idle_timeout=",
            "idle_timeout=x",
            "slab_automove=3",
            "hash_algorithm=md5",
            "tail_repair_time=9",
            "lru_crawler=1",
            "slab_automove_ratio=inf",
            "slab_automove_window=2",
            "slab_automove_window=1801",
        ] {
            let error = apply(&mut Config::default(), bad).unwrap_err();
            assert!(error.contains(bad.split('=').next().unwrap()), "{error}");
            assert!(!error.contains('\n'));
        }
    }

    #[test]
    fn all_others_are_accepted_with_their_own_defaults() {
        for row in EXTENDED {
            if matches!(row.effect, Effect::Refused(_)) {
                continue;
            }
            let text = match row.value {
                None => row.name.to_owned(),
                Some(_) if row.name == "slab_sizes" => "slab_sizes=100-200".into(),
                Some(_) if row.name == "tail_repair_time" => "tail_repair_time=10".into(),
                Some(_) if row.name == "ssl_ciphers" => "ssl_ciphers=ECDHE-RSA-AES128-GCM-SHA256".into(),
                Some(_) if row.value == Some("PATH") => format!("{}=/path", row.name),
                Some(_) if row.name == "hashpower" => "hashpower=16".into(),
                Some(_) if row.name == "temporary_ttl" => "temporary_ttl=61".into(),
                Some(_) => format!("{}={}", row.name, row.default.split(' ').next().unwrap()),
            };
            apply(&mut Config::default(), &text).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }
}
