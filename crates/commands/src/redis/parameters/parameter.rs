//! The parameters of CONFIG: their names, what they can be set to, and their values at start.

use larder_protocol::resp::parse_integer;

use crate::core::acl::log::ENTRIES_MAX;
use crate::redis::bytes::memory;

/// What a parameter can be set to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Number(i64, i64),
    /// A number from 0 on, which takes effect within these bounds.
    Clamped(i64, i64),
    /// A number of bytes, perhaps with a suffix.
    Memory,
    YesNo,
    /// Only `no`: Larder does not have it.
    No,
    Word(&'static [&'static str]),
    Text,
    /// A number of bytes, or a percentage of the memory limit.
    MemoryOrPercent,
    /// Percentages.
    Percentiles,
    /// Pairs of seconds and changes.
    Saves,
    /// Not at all: it is set at start.
    Fixed,
    /// Not at all: it is a place in the file system.
    Protected,
}

/// A parameter, and its value at start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter {
    pub name: &'static str,
    pub kind: Kind,
    pub default: &'static str,
}

const fn at(name: &'static str, kind: Kind, default: &'static str) -> Parameter {
    Parameter { name, kind, default }
}

/// Policies by Redis's names. The store goes by recency and frequency at once (S3-FIFO): every `allkeys-` name stands for that,
/// and every `volatile-` name but one for the same among keys that expire.
const POLICIES: &[&str] = &[
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
];

const MAX: i64 = i64::MAX;
/// The greatest number where Redis keeps 32 bits.
const INT_MAX: i64 = i32::MAX as i64;

pub(crate) static PARAMETERS: &[Parameter] = &[
    at("maxmemory", Kind::Memory, ""),
    at("maxmemory-policy", Kind::Word(POLICIES), ""),
    at("maxmemory-samples", Kind::Number(1, 64), "5"),
    at("notify-keyspace-events", Kind::Text, ""),
    at("maxclients", Kind::Number(1, u32::MAX as i64), ""),
    // Larder's own.
    at("connections-per-address", Kind::Fixed, "0"),
    at("requests-per-second", Kind::Fixed, "0"),
    at("port", Kind::Fixed, ""),
    at("bind", Kind::Fixed, ""),
    at("databases", Kind::Fixed, "16"),
    at("io-threads", Kind::Fixed, ""),
    at("requirepass", Kind::Text, ""),
    at("aclfile", Kind::Fixed, ""),
    at("acl-pubsub-default", Kind::Word(&["allchannels", "resetchannels"]), "resetchannels"),
    at("acllog-max-len", Kind::Number(0, ENTRIES_MAX as i64), "128"),
    at("protected-mode", Kind::YesNo, "yes"),
    at("proto-max-bulk-len", Kind::Memory, ""),
    at("timeout", Kind::Number(0, i32::MAX as i64), "0"),
    at("tcp-keepalive", Kind::Number(0, i32::MAX as i64), "300"),
    at("tcp-backlog", Kind::Fixed, "1024"),
    at("slowlog-log-slower-than", Kind::Number(-1, MAX), "10000"),
    at("slowlog-max-len", Kind::Number(0, MAX), "128"),
    at("commandlog-execution-slower-than", Kind::Number(-1, MAX), "10000"),
    at("commandlog-slow-execution-max-len", Kind::Number(0, MAX), "128"),
    at("commandlog-request-larger-than", Kind::Number(-1, MAX), "1048576"),
    at("commandlog-large-request-max-len", Kind::Number(0, MAX), "128"),
    at("commandlog-reply-larger-than", Kind::Number(-1, MAX), "1048576"),
    at("commandlog-large-reply-max-len", Kind::Number(0, MAX), "128"),
    at("latency-monitor-threshold", Kind::Number(0, MAX), "0"),
    at("latency-tracking", Kind::YesNo, "yes"),
    at("latency-tracking-info-percentiles", Kind::Percentiles, "50 99 99.9"),
    at("appendonly", Kind::No, "no"),
    at("appendfsync", Kind::Word(&["everysec", "always", "no"]), "everysec"),
    at("save", Kind::Saves, ""),
    at("dir", Kind::Protected, "/"),
    at("dbfilename", Kind::Protected, ""),
    at("loglevel", Kind::Word(&["debug", "verbose", "notice", "warning", "nothing"]), "notice"),
    at("hz", Kind::Clamped(1, 500), "10"),
    at("dynamic-hz", Kind::YesNo, "yes"),
    at("activedefrag", Kind::No, "no"),
    at("active-expire-effort", Kind::Number(1, 10), "1"),
    at("lfu-log-factor", Kind::Number(0, INT_MAX), "10"),
    at("lfu-decay-time", Kind::Number(0, INT_MAX), "1"),
    at("lazyfree-lazy-eviction", Kind::YesNo, "yes"),
    at("lazyfree-lazy-expire", Kind::YesNo, "yes"),
    at("lazyfree-lazy-server-del", Kind::YesNo, "yes"),
    at("lazyfree-lazy-user-del", Kind::YesNo, "yes"),
    at("lazyfree-lazy-user-flush", Kind::YesNo, "yes"),
    at("replica-read-only", Kind::YesNo, "yes"),
    at("repl-backlog-size", Kind::Memory, "1048576"),
    at("min-replicas-to-write", Kind::Number(0, INT_MAX), "0"),
    at("cluster-enabled", Kind::Fixed, "no"),
    at("client-output-buffer-limit", Kind::Text, ""),
    at("client-query-buffer-limit", Kind::Memory, ""),
    at("maxmemory-clients", Kind::MemoryOrPercent, "0"),
    at("hash-max-listpack-entries", Kind::Number(0, MAX), "128"),
    at("hash-max-listpack-value", Kind::Memory, "64"),
    at("hash-max-ziplist-entries", Kind::Number(0, MAX), "128"),
    at("hash-max-ziplist-value", Kind::Memory, "64"),
    at("list-max-listpack-size", Kind::Number(i32::MIN as i64, INT_MAX), "-2"),
    at("list-max-ziplist-size", Kind::Number(i32::MIN as i64, INT_MAX), "-2"),
    at("list-compress-depth", Kind::Number(0, INT_MAX), "0"),
    at("set-max-intset-entries", Kind::Number(0, MAX), "512"),
    at("set-max-listpack-entries", Kind::Number(0, MAX), "128"),
    at("set-max-listpack-value", Kind::Number(0, MAX), "64"),
    at("zset-max-listpack-entries", Kind::Number(0, MAX), "128"),
    at("zset-max-listpack-value", Kind::Memory, "64"),
    at("zset-max-ziplist-entries", Kind::Number(0, MAX), "128"),
    at("zset-max-ziplist-value", Kind::Memory, "64"),
    at("hll-sparse-max-bytes", Kind::Memory, "3000"),
    at("stream-node-max-bytes", Kind::Memory, "4096"),
    at("stream-node-max-entries", Kind::Number(0, MAX), "100"),
    at("lua-time-limit", Kind::Number(0, MAX), "5000"),
    at("busy-reply-threshold", Kind::Number(0, MAX), "5000"),
    at("close-on-oom", Kind::YesNo, "no"),
    at("enable-debug-command", Kind::Fixed, ""),
    // TLS: the host has the values of these.
    at("tls-port", Kind::Fixed, "0"),
    at("tls-cert-file", Kind::Text, ""),
    at("tls-key-file", Kind::Text, ""),
    at("tls-key-file-pass", Kind::Text, ""),
    at("tls-ca-cert-file", Kind::Text, ""),
    at("tls-ca-cert-dir", Kind::Text, ""),
    at("tls-auth-clients", Kind::Word(&["no", "yes", "optional"]), "yes"),
    at("tls-auth-clients-user", Kind::Word(&["off", "CN"]), "off"),
    at("tls-protocols", Kind::Text, ""),
    at("tls-ciphers", Kind::Text, ""),
    at("tls-ciphersuites", Kind::Text, ""),
    at("tls-prefer-server-ciphers", Kind::YesNo, "no"),
    at("tls-session-caching", Kind::YesNo, "yes"),
    at("tls-session-cache-timeout", Kind::Number(0, INT_MAX), "300"),
    // These mean nothing here: clients keep the sessions, and this server is no client.
    at("tls-session-cache-size", Kind::Number(0, INT_MAX), "20480"),
    at("tls-dh-params-file", Kind::Text, ""),
    at("tls-client-cert-file", Kind::Text, ""),
    at("tls-client-key-file", Kind::Text, ""),
    at("tls-replication", Kind::No, "no"),
    at("tls-cluster", Kind::No, "no"),
    // Redis sets these at start. They mean nothing here.
    at("always-show-logo", Kind::Fixed, "no"),
    at("aof-rewrite-cpulist", Kind::Fixed, ""),
    at("aof_rewrite_cpulist", Kind::Fixed, ""),
    at("appenddirname", Kind::Fixed, ""),
    at("appendfilename", Kind::Fixed, ""),
    at("bgsave-cpulist", Kind::Fixed, ""),
    at("bgsave_cpulist", Kind::Fixed, ""),
    at("bio-cpulist", Kind::Fixed, ""),
    at("bio_cpulist", Kind::Fixed, ""),
    at("cluster-config-file", Kind::Fixed, ""),
    at("cluster-databases", Kind::Fixed, "1"),
    at("cluster-port", Kind::Fixed, "0"),
    at("daemonize", Kind::Fixed, "no"),
    at("disable-thp", Kind::Fixed, "no"),
    at("enable-module-command", Kind::Fixed, "no"),
    at("enable-protected-configs", Kind::Fixed, "no"),
    at("hash-seed", Kind::Fixed, ""),
    at("logfile", Kind::Fixed, ""),
    at("mptcp", Kind::Fixed, "no"),
    at("pidfile", Kind::Fixed, ""),
    at("rdbchecksum", Kind::Fixed, "yes"),
    at("rdma-completion-vector", Kind::Fixed, "-1"),
    at("rdma-rx-size", Kind::Fixed, "1048576"),
    at("repl-mptcp", Kind::Fixed, "no"),
    at("replicaof", Kind::Fixed, ""),
    at("server-cpulist", Kind::Fixed, ""),
    at("server_cpulist", Kind::Fixed, ""),
    at("set-proc-title", Kind::Fixed, "no"),
    at("slaveof", Kind::Fixed, ""),
    at("socket-mark-id", Kind::Fixed, "0"),
    at("supervised", Kind::Fixed, "no"),
    at("syslog-enabled", Kind::Fixed, "no"),
    at("syslog-facility", Kind::Fixed, "local0"),
    at("syslog-ident", Kind::Fixed, "larder"),
    at("unixsocket", Kind::Fixed, ""),
    at("unixsocketgroup", Kind::Fixed, ""),
    at("unixsocketperm", Kind::Fixed, "0"),
];

/// Parameters that [`Host::set_tls`](crate::core::host::Host::set_tls) sets.
const TLS: [&str; 13] = [
    "tls-cert-file",
    "tls-key-file",
    "tls-key-file-pass",
    "tls-ca-cert-file",
    "tls-ca-cert-dir",
    "tls-auth-clients",
    "tls-auth-clients-user",
    "tls-protocols",
    "tls-ciphers",
    "tls-ciphersuites",
    "tls-prefer-server-ciphers",
    "tls-session-caching",
    "tls-session-cache-timeout",
];

/// How many numbers `latency-tracking-info-percentiles` may have.
const PERCENTILES_MAX: usize = 16;

/// Parses numbers from 0 to 100.
fn percentiles(text: &str) -> Result<String, String> {
    const NAME: &str = "latency-tracking-info-percentiles";
    let number = |word: &str| match word.parse::<f64>() {
        Ok(n) if (0.0..=100.0).contains(&n) => Ok(n.abs().to_string()),
        Ok(n) if !n.is_nan() => Err(format!("{NAME} parameters should sit between [0.0,100.0]")),
        Ok(_) | Err(_) => Err(format!("Invalid {NAME} parameters")),
    };
    let numbers = text.split_ascii_whitespace().map(number).collect::<Result<Vec<_>, _>>()?;
    // INFO shows each of them for each command.
    if numbers.len() > PERCENTILES_MAX {
        return Err(format!("{NAME} takes {PERCENTILES_MAX} numbers at most"));
    }
    Ok(numbers.join(" "))
}

/// Parses after how many seconds and changes Redis would save; one space between two numbers.
fn saves(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some(String::new());
    }
    let words = text.split(' ').map(|word| word.parse::<i32>().ok());
    let numbers = words.enumerate().map(|(at, n)| n.filter(|&n| n >= i32::from(at % 2 == 0)));
    let numbers = numbers.collect::<Option<Vec<i32>>>()?;
    let told = || numbers.iter().map(i32::to_string).collect::<Vec<_>>().join(" ");
    numbers.len().is_multiple_of(2).then(told)
}

impl Parameter {
    /// Finds the parameter of this name, in any case.
    pub fn named(name: &[u8]) -> Option<&'static Parameter> {
        PARAMETERS.iter().find(|one| name.eq_ignore_ascii_case(one.name.as_bytes()))
    }

    /// Whether it is set by the host, together with all such: a certificate and its key.
    pub fn is_tls(&self) -> bool {
        TLS.contains(&self.name)
    }

    /// When it is set, among parameters of one CONFIG SET. What can still be refused comes first, so that nothing else has to be
    /// taken back; the memory limit comes last of these, because a lower one may evict items.
    pub fn stage(&self) -> u8 {
        match self.name {
            "proto-max-bulk-len"
            | "client-query-buffer-limit"
            | "client-output-buffer-limit"
            | "notify-keyspace-events"
            | "maxclients" => 0,
            "maxmemory" => 1,
            _ => 2,
        }
    }
}

impl Kind {
    /// Checks a value, and returns it as it will be shown.
    pub fn check(self, text: &str) -> Result<String, String> {
        match self {
            Kind::Number(least, most) => match parse_integer(text.as_bytes()) {
                Some(n) if (least..=most).contains(&n) => Ok(n.to_string()),
                Some(_) => Err(format!("argument must be between {least} and {most} inclusive")),
                None => Err("argument couldn't be parsed into an integer".into()),
            },
            Kind::Clamped(least, most) => {
                let text = Kind::Number(0, i64::from(i32::MAX)).check(text)?;
                text.parse::<i64>()
                    .map(|n| n.clamp(least, most).to_string())
                    .map_err(|error| error.to_string())
            }
            Kind::Memory => match memory(text) {
                Some(bytes) => Ok(bytes.to_string()),
                None => Err("argument must be a memory value".into()),
            },
            Kind::MemoryOrPercent => match (text.strip_suffix('%').map(str::parse::<u64>), memory(text)) {
                (Some(Ok(_)), _) if text != "0%" && text.starts_with(['0', '+']) => {
                    Err("argument must be a memory or percent value".into())
                }
                (Some(Ok(0)), _) => Ok("0".into()),
                (Some(Ok(percent @ 1..=100)), _) => Ok(format!("{percent}%")),
                (Some(Ok(_)), _) => Err("percentage argument must be less or equal to 100".into()),
                (None, Some(bytes)) => Ok(bytes.to_string()),
                (Some(Err(_)), _) | (None, None) => Err("argument must be a memory or percent value".into()),
            },
            Kind::Percentiles => percentiles(text),
            Kind::Saves => saves(text).ok_or_else(|| "Invalid save parameters".into()),
            Kind::YesNo => match text.to_ascii_lowercase().as_str() {
                yes_or_no @ ("yes" | "no") => Ok(yes_or_no.into()),
                _ => Err("argument must be 'yes' or 'no'".into()),
            },
            // Larder knows these features, but does not have them.
            Kind::No => match Kind::YesNo.check(text)?.as_str() {
                "no" => Ok("no".into()),
                _ => Err("argument(s) must be one of the following: no".into()),
            },
            Kind::Word(words) => {
                let known = words.iter().find(|word| word.eq_ignore_ascii_case(text));
                known
                    .map(|word| (*word).to_owned())
                    .ok_or_else(|| format!("argument(s) must be one of the following: {}", words.join(", ")))
            }
            Kind::Text => Ok(text.into()),
            Kind::Fixed => Err("can't set immutable config".into()),
            Kind::Protected => Err("can't set protected config".into()),
        }
    }
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
            ("", Some(0)),
            ("kb", Some(0)),
            ("x", None),
            ("1tb", None),
            ("-1", None),
        ] {
            assert_eq!(memory(text), bytes, "{text}");
        }
    }

    #[test]
    fn a_part_of_the_memory_is_bytes_or_percent() {
        for (text, told) in [("100%", Ok("100%")), ("0%", Ok("0")), ("1mb", Ok("1048576")), ("0", Ok("0"))] {
            assert_eq!(Kind::MemoryOrPercent.check(text), told.map(str::to_owned), "{text}");
        }
        let most = "percentage argument must be less or equal to 100";
        assert_eq!(Kind::MemoryOrPercent.check("101%"), Err(most.into()));
        for text in ["-5", "5x", "%", "05%", "+5%", "00%", "-1%", "1.5%", "99999999999999999999%"] {
            let wrong = "argument must be a memory or percent value";
            assert_eq!(Kind::MemoryOrPercent.check(text), Err(wrong.into()), "{text}");
        }
    }

    #[test]
    fn what_is_clamped_is_told_as_it_is_in_effect() {
        let of = |text| Kind::Clamped(1, 500).check(text);
        for (text, told) in [("0", "1"), ("1", "1"), ("500", "500"), ("501", "500"), ("2147483647", "500")] {
            assert_eq!(of(text), Ok(told.into()));
        }
        let beyond = "argument must be between 0 and 2147483647 inclusive";
        assert_eq!((of("-1"), of("2147483648")), (Err(beyond.into()), Err(beyond.into())));
        assert_eq!(of("x"), Err("argument couldn't be parsed into an integer".into()));
    }

    #[test]
    fn percentiles_are_numbers_up_to_a_hundred() {
        for (text, told) in
            [("", ""), ("50  99.90 0", "50 99.9 0"), ("1e1", "10"), ("100 50 50", "100 50 50")]
        {
            assert_eq!(Kind::Percentiles.check(text), Ok(told.into()));
        }
        for (text, why) in [("x", "Invalid"), ("50 nan", "Invalid"), ("50,99", "Invalid")] {
            assert!(Kind::Percentiles.check(text).is_err_and(|error| error.starts_with(why)), "{text}");
        }
        for text in ["100.1", "-1", "50 101", "inf"] {
            assert!(
                Kind::Percentiles.check(text).is_err_and(|error| error.contains("[0.0,100.0]")),
                "{text}"
            );
        }
    }

    #[test]
    fn saves_are_pairs_of_seconds_and_changes() {
        for (text, told) in [("", ""), ("60 0", "60 0"), ("060 01", "60 1"), ("60 1 300 10", "60 1 300 10")] {
            assert_eq!(Kind::Saves.check(text), Ok(told.into()));
        }
        for text in
            ["x", "60", "60 x", "0 1", "60 -1", "60 1 300", " 60 1", "60  1", "60 1 ", "99999999999 1"]
        {
            assert_eq!(Kind::Saves.check(text), Err("Invalid save parameters".into()), "{text}");
        }
    }

    #[test]
    fn words_are_known_in_any_case_and_told_as_they_are_written() {
        let of = |text| Kind::Word(&["off", "CN"]).check(text);
        for (text, told) in [("off", "off"), ("OFF", "off"), ("CN", "CN"), ("cn", "CN")] {
            assert_eq!(of(text), Ok(told.into()));
        }
        assert_eq!(of("URI"), Err("argument(s) must be one of the following: off, CN".into()));
    }

    #[test]
    fn defaults_are_what_may_be_set() {
        for parameter in PARAMETERS.iter().filter(|one| !one.default.is_empty()) {
            if !matches!(parameter.kind, Kind::Fixed | Kind::Protected) {
                assert_eq!(parameter.kind.check(parameter.default), Ok(parameter.default.into()));
            }
        }
    }
}
