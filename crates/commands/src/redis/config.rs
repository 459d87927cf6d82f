//! CONFIG: parameters by Redis's names. Some mean something here, the others are kept and told, so
//! that tools which set them go on.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use larder_protocol::resp::Args;
use larder_store::Eviction;

use super::call::{Call, next};
use super::fail::{Done, Fail};
use super::glob::{bounded, matches};
use super::reply::put_bulk;
use super::table::flag::{ADMIN, LOADING, NOSCRIPT, STALE};
use super::table::{Command, NO_KEYS};

const RULES: u32 = ADMIN | NOSCRIPT | LOADING | STALE;

pub(crate) const ROWS: &[Command] = &[
    Command::args("config|get", -3, RULES, NO_KEYS, get).doc(
        "2.0.0",
        "parameter [parameter ...]",
        "What parameters are set to.",
    ),
    Command::args("config|set", -4, RULES, NO_KEYS, set).doc(
        "2.0.0",
        "parameter value [parameter value ...]",
        "Sets parameters.",
    ),
    Command::args("config|resetstat", 2, RULES, NO_KEYS, reset_stat).doc("2.0.0", "", "Counts anew."),
    Command::args("config|rewrite", 2, RULES, NO_KEYS, |_, _| {
        Err(Fail::of("ERR The server is running without a config file"))
    })
    .doc("2.8.0", "", "Fails: there is no file."),
    Command::args("config|help", 2, LOADING | STALE, NO_KEYS, |call, _| {
        super::introspect::help(call, "config")
    })
    .doc("5.0.0", "", "What CONFIG can do."),
];

/// What a parameter can be set to.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Number(i64, i64),
    /// Bytes, with a suffix.
    Memory,
    YesNo,
    Word(&'static [&'static str]),
    Text,
    /// Nothing: it is set at start.
    Fixed,
}

/// A parameter with what it is at start.
#[derive(Clone, Copy, Debug)]
struct Parameter {
    name: &'static str,
    kind: Kind,
    default: &'static str,
}

const fn at(name: &'static str, kind: Kind, default: &'static str) -> Parameter {
    Parameter { name, kind, default }
}

/// Policies by Redis's names. The store knows of recency and frequency at once (S3-FIFO): every
/// `allkeys-` name stands for that, every `volatile-` name but one for the same among keys that expire.
const POLICIES: &[&str] = &[
    "noeviction",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
];

/// What a policy's name stands for.
fn eviction(policy: &str) -> Eviction {
    match policy {
        "noeviction" => Eviction::Off,
        "volatile-ttl" => Eviction::VolatileTtl,
        name if name.starts_with("volatile-") => Eviction::Volatile,
        _ => Eviction::All,
    }
}

const MAX: i64 = i64::MAX;

static PARAMETERS: &[Parameter] = &[
    at("maxmemory", Kind::Memory, ""),
    at("maxmemory-policy", Kind::Word(POLICIES), ""),
    at("maxmemory-samples", Kind::Number(1, 64), "5"),
    at("notify-keyspace-events", Kind::Text, ""),
    at("maxclients", Kind::Fixed, ""),
    at("port", Kind::Fixed, ""),
    at("bind", Kind::Fixed, ""),
    at("databases", Kind::Fixed, "16"),
    at("io-threads", Kind::Fixed, ""),
    at("requirepass", Kind::Text, ""),
    at("protected-mode", Kind::YesNo, "yes"),
    at("proto-max-bulk-len", Kind::Memory, ""),
    at("timeout", Kind::Number(0, i32::MAX as i64), "0"),
    at("tcp-keepalive", Kind::Number(0, i32::MAX as i64), "300"),
    at("tcp-backlog", Kind::Fixed, "1024"),
    at("slowlog-log-slower-than", Kind::Number(-1, MAX), "10000"),
    at("slowlog-max-len", Kind::Number(0, MAX), "128"),
    at("latency-monitor-threshold", Kind::Number(0, MAX), "0"),
    at("latency-tracking", Kind::YesNo, "yes"),
    at("latency-tracking-info-percentiles", Kind::Text, "50 99 99.9"),
    at("appendonly", Kind::Word(&["no"]), "no"),
    at("appendfsync", Kind::Word(&["always", "everysec", "no"]), "everysec"),
    at("save", Kind::Text, ""),
    at("dir", Kind::Fixed, "/"),
    at("dbfilename", Kind::Fixed, ""),
    at("loglevel", Kind::Word(&["debug", "verbose", "notice", "warning", "nothing"]), "notice"),
    at("hz", Kind::Number(1, 500), "10"),
    at("dynamic-hz", Kind::YesNo, "yes"),
    at("activedefrag", Kind::Word(&["no"]), "no"),
    at("active-expire-effort", Kind::Number(1, 10), "1"),
    at("lfu-log-factor", Kind::Number(0, MAX), "10"),
    at("lfu-decay-time", Kind::Number(0, MAX), "1"),
    at("lazyfree-lazy-eviction", Kind::YesNo, "yes"),
    at("lazyfree-lazy-expire", Kind::YesNo, "yes"),
    at("lazyfree-lazy-server-del", Kind::YesNo, "yes"),
    at("lazyfree-lazy-user-del", Kind::YesNo, "yes"),
    at("lazyfree-lazy-user-flush", Kind::YesNo, "yes"),
    at("replica-read-only", Kind::YesNo, "yes"),
    at("repl-backlog-size", Kind::Memory, "1048576"),
    at("min-replicas-to-write", Kind::Number(0, MAX), "0"),
    at("cluster-enabled", Kind::Fixed, "no"),
    at("client-output-buffer-limit", Kind::Text, ""),
    at("client-query-buffer-limit", Kind::Memory, ""),
    at("maxmemory-clients", Kind::Text, "0"),
    at("hash-max-listpack-entries", Kind::Number(0, MAX), "128"),
    at("hash-max-listpack-value", Kind::Number(0, MAX), "64"),
    at("hash-max-ziplist-entries", Kind::Number(0, MAX), "128"),
    at("hash-max-ziplist-value", Kind::Number(0, MAX), "64"),
    at("list-max-listpack-size", Kind::Number(i32::MIN as i64, MAX), "-2"),
    at("list-max-ziplist-size", Kind::Number(i32::MIN as i64, MAX), "-2"),
    at("list-compress-depth", Kind::Number(0, MAX), "0"),
    at("set-max-intset-entries", Kind::Number(0, MAX), "512"),
    at("set-max-listpack-entries", Kind::Number(0, MAX), "128"),
    at("set-max-listpack-value", Kind::Number(0, MAX), "64"),
    at("zset-max-listpack-entries", Kind::Number(0, MAX), "128"),
    at("zset-max-listpack-value", Kind::Number(0, MAX), "64"),
    at("zset-max-ziplist-entries", Kind::Number(0, MAX), "128"),
    at("zset-max-ziplist-value", Kind::Number(0, MAX), "64"),
    at("hll-sparse-max-bytes", Kind::Number(0, MAX), "3000"),
    at("stream-node-max-bytes", Kind::Number(0, MAX), "4096"),
    at("stream-node-max-entries", Kind::Number(0, MAX), "100"),
    at("lua-time-limit", Kind::Number(0, MAX), "5000"),
    at("busy-reply-threshold", Kind::Number(0, MAX), "5000"),
    at("close-on-oom", Kind::YesNo, "no"),
    at("enable-debug-command", Kind::Fixed, "yes"),
];

/// What was set and is not kept where it means something.
#[derive(Debug, Default)]
pub(crate) struct Parameters(Mutex<BTreeMap<&'static str, String>>);

impl Parameters {
    /// A parameter that is kept here only.
    pub fn text(&self, name: &str) -> String {
        if let Some(text) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name) {
            return text.clone();
        }
        PARAMETERS.iter().find(|one| one.name == name).map_or(String::new(), |one| one.default.into())
    }

    fn set(&self, name: &'static str, text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, text);
    }
}

/// The policy's name: what was set, if that still stands for what the store does.
pub(crate) fn policy(call: &Call<'_, '_, '_>) -> String {
    let is = call.cx.guard.store().eviction();
    let set = call.cx.shared.redis.parameters.text("maxmemory-policy");
    if !set.is_empty() && eviction(&set) == is {
        return set;
    }
    let name = match is {
        Eviction::Off => "noeviction",
        Eviction::All => "allkeys-lru",
        Eviction::Volatile => "volatile-lru",
        Eviction::VolatileTtl => "volatile-ttl",
    };
    name.into()
}

fn value(call: &Call<'_, '_, '_>, parameter: &Parameter) -> String {
    let common = &call.cx.shared.redis;
    match parameter.name {
        "maxmemory" => call.cx.guard.store().memory_bytes().to_string(),
        "maxmemory-policy" => policy(call),
        "maxclients" => call.cx.host.process().connections_max.to_string(),
        "io-threads" => call.cx.host.process().threads.to_string(),
        "port" => {
            let address = call.client.facts.listen_address.rsplit(':').next();
            address.unwrap_or("0").to_owned()
        }
        "bind" => call.client.facts.listen_address.rsplit_once(':').map_or("", |(host, _)| host).to_owned(),
        "requirepass" => common.access.password(),
        "protected-mode" => if common.access.protected() { "yes" } else { "no" }.into(),
        "proto-max-bulk-len" => common.limits.bulk_bytes_max(&call.cx.guard).to_string(),
        "notify-keyspace-events" => common.events.letters(),
        "client-output-buffer-limit" => common.limits.output_text(),
        "client-query-buffer-limit" => common.limits.query_bytes_max().to_string(),
        name => common.parameters.text(name),
    }
}

fn get(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    for pattern in args {
        bounded(pattern)?;
    }
    let wanted: Vec<&Parameter> = PARAMETERS
        .iter()
        .filter(|one| args.into_iter().any(|pattern| matches(pattern, one.name.as_bytes(), true)))
        .collect();
    call.map(wanted.len());
    for parameter in wanted {
        let value = value(call, parameter);
        put_bulk(call.out, parameter.name.as_bytes());
        put_bulk(call.out, value.as_bytes());
    }
    Ok(())
}

/// Bytes with one of Redis's suffixes.
pub(crate) fn memory(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let unit: u64 = match text[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

impl Kind {
    /// The text in the form in which it is told.
    fn check(self, text: &str) -> Result<String, String> {
        match self {
            Kind::Number(least, most) => match text.parse::<i64>() {
                Ok(n) if (least..=most).contains(&n) => Ok(n.to_string()),
                Ok(_) => Err(format!("argument must be between {least} and {most} inclusive")),
                Err(_) => Err("argument couldn't be parsed into an integer".into()),
            },
            Kind::Memory => match memory(text) {
                Some(bytes) => Ok(bytes.to_string()),
                None => Err("argument must be a memory value".into()),
            },
            Kind::YesNo => match text.to_ascii_lowercase().as_str() {
                yes_or_no @ ("yes" | "no") => Ok(yes_or_no.into()),
                _ => Err("argument must be 'yes' or 'no'".into()),
            },
            Kind::Word(words) => {
                let text = text.to_ascii_lowercase();
                if words.contains(&text.as_str()) {
                    return Ok(text);
                }
                Err(format!("argument(s) must be one of the following: {}", words.join(", ")))
            }
            Kind::Text => Ok(text.into()),
            Kind::Fixed => Err("can't set immutable config".into()),
        }
    }
}

/// Most bytes of what a parameter is set to: all of them together are a few hundred KiB at most.
const TEXT_BYTES_MAX: usize = 4 << 10;

fn failed(name: &str, why: &str) -> Fail {
    Fail::with(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}

fn set(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    if !args.len().is_multiple_of(2) {
        return Err(Fail::SYNTAX);
    }
    // All are checked before any is set.
    let mut all: Vec<(&'static str, String)> = Vec::new();
    while !args.is_empty() {
        let (name, text) = (next(&mut args)?, next(&mut args)?);
        let Some(parameter) = PARAMETERS.iter().find(|one| name.eq_ignore_ascii_case(one.name.as_bytes()))
        else {
            let name = super::fail::shown(name, 128);
            return Err(Fail::with(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
            )));
        };
        if all.iter().any(|(other, _)| *other == parameter.name) {
            return Err(failed(parameter.name, "duplicate parameter"));
        }
        if text.len() > TEXT_BYTES_MAX {
            return Err(failed(parameter.name, "the text is too long"));
        }
        let text = String::from_utf8_lossy(text);
        all.push((parameter.name, parameter.kind.check(&text).map_err(|why| failed(parameter.name, &why))?));
    }
    for (name, text) in all {
        apply(call, name, text).map_err(|why| failed(name, why))?;
    }
    call.ok()
}

/// Has a parameter do what it says.
fn apply(call: &mut Call<'_, '_, '_>, name: &'static str, text: String) -> Result<(), &'static str> {
    let common = &call.cx.shared.redis;
    let store = call.cx.guard.store();
    let number = || text.parse::<u64>().unwrap_or(0);
    match name {
        // Redis's 0 is no limit; here it is the most that was allowed at start.
        "maxmemory" => {
            let bytes = if number() == 0 { store.memory_bytes_max() } else { number() };
            if !store.set_memory_bytes(bytes) {
                return Err(
                    "the memory limit is too small, or above --memory-limit-max (-m, if that is not given)",
                );
            }
        }
        "maxmemory-policy" => {
            store.set_eviction(eviction(&text));
            common.parameters.set(name, text);
        }
        "requirepass" => common.access.set_password(&text),
        "protected-mode" => common.access.protect(text == "yes"),
        "notify-keyspace-events" if !text.is_empty() && !call.cx.shared.settings.dump => {
            return Err("keys may not be listed (-X)");
        }
        "notify-keyspace-events" => common.events.set(store, &text)?,
        "proto-max-bulk-len" | "client-query-buffer-limit" => {
            if number() < 1 << 20 {
                return Err("argument must be between 1048576 and 9223372036854775807 inclusive");
            }
            match name {
                "proto-max-bulk-len" => common.limits.set_bulk_bytes_max(number()),
                _ => common.limits.set_query_bytes_max(number()),
            }
        }
        "client-output-buffer-limit" => common.limits.set_output(&text)?,
        "latency-monitor-threshold" => {
            common.latency.set_threshold(number());
            common.parameters.set(name, text);
        }
        "slowlog-max-len" | "slowlog-log-slower-than" => {
            common.slowlog.set(store, name, text.parse().unwrap_or(0));
            common.parameters.set(name, text);
        }
        name => common.parameters.set(name, text),
    }
    Ok(())
}

fn reset_stat(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    crate::stats::reset(call.cx);
    call.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_with_redis_suffixes() {
        for (text, bytes) in [
            ("100", Some(100)),
            ("1kb", Some(1024)),
            ("1K", Some(1000)),
            ("100MB", Some(100 << 20)),
            ("2g", Some(2_000_000_000)),
            ("x", None),
            ("1tb", None),
            ("-1", None),
        ] {
            assert_eq!(memory(text), bytes, "{text}");
        }
    }

    #[test]
    fn defaults_are_what_may_be_set() {
        for parameter in PARAMETERS.iter().filter(|one| !one.default.is_empty()) {
            if !matches!(parameter.kind, Kind::Fixed) {
                assert_eq!(parameter.kind.check(parameter.default), Ok(parameter.default.into()));
            }
        }
    }
}
