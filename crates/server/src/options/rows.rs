//! The rows, in the order of the help.

use larder_commands::{DebugCommand, SECRET_BYTES_MAX};

use super::{Effect, Row};
use crate::config::Protocol;
use crate::confine::Seccomp;
use crate::extended;
use crate::listen::{HttpHost, ListenAddress};
use crate::tls;
use crate::values::{SecretText, bytes, number, password, users, yes_or_no};

/// The default of an option that is off or unset.
const OFF: &str = "off";

/// A flag or option with what most rows share.
const fn row(letter: char, name: &'static str, help: &'static str) -> Row {
    Row {
        letter: Some(letter),
        name,
        value: None,
        default: OFF,
        range: "",
        help,
        effect: Effect::Works,
        apply: |_, _| Ok(()),
    }
}

/// Every option, in the order of the help.
pub const OPTIONS: &[Row] = &[
    Row {
        value: Some("PORT"),
        default: "11211",
        range: "-1 to 65535",
        apply: |config, value| {
            config.port_given = true;
            config.port = match number::<i64>(value, -1, 65535)? {
                0 => None,
                -1 => Some(0),
                port => Some(port as u16),
            };
            Ok(())
        },
        ..row('p', "port", "TCP port; 0 listens on none, -1 on a free one (see MEMCACHED_PORT_FILENAME)")
    },
    Row {
        value: Some("PORT"),
        default: "6379",
        range: "-1 to 65535",
        letter: None,
        apply: |config, value| {
            config.redis_port_given = true;
            config.redis_port = match number::<i64>(value, -1, 65535)? {
                0 => None,
                -1 => Some(0),
                port => Some(port as u16),
            };
            Ok(())
        },
        ..row(' ', "redis-port", "TCP port for Redis clients; 0 listens on none, -1 on a free one")
    },
    Row {
        value: Some("PORT"),
        default: "9150",
        range: "-1 to 65535",
        letter: None,
        apply: |config, value| {
            config.http_port_given = true;
            config.http_port = match number::<i64>(value, -1, 65535)? {
                0 => None,
                -1 => Some(0),
                port => Some(port as u16),
            };
            Ok(())
        },
        ..row(
            ' ',
            "http-port",
            "port of this machine where a browser shows figures (/) and monitors ask for them (/metrics, /healthz, /api/v1); 0 listens on none, -1 on a free one. The default port may be taken: the server says so and goes on. Where clients need a password, / and /api/v1 ask for it",
        )
    },
    Row {
        value: Some("HOST[,NAME…]"),
        default: "127.0.0.1",
        range: "an address or a host name, and further names by which browsers and monitors call this server",
        letter: None,
        apply: |config, value| {
            config.http_host = Some(HttpHost::parse(value)?);
            Ok(())
        },
        ..row(
            ' ',
            "http-host",
            "address that --http-port is listened on. Other machines are shown /metrics and /healthz alone, unless users have passwords (--http-auth-file; without it those of the clients, if these have no TLS port or --http-tls is given). Nothing is encrypted without --http-tls",
        )
    },
    Row {
        value: Some("PATH"),
        range: "a file with lines user:password",
        letter: None,
        apply: |config, value| {
            config.http_users = users(value)?;
            Ok(())
        },
        ..row(
            ' ',
            "http-auth-file",
            "users that are shown the page and all else by HTTP, on every machine; /metrics and /healthz need no password. Without it these are the clients' users: with --http-host always, else as soon as clients need a password",
        )
    },
    Row {
        letter: None,
        apply: |config, _| {
            config.http_hide_keys = true;
            Ok(())
        },
        ..row(' ', "http-hide-keys", "names of keys and prefixes are not shown by HTTP")
    },
    Row {
        value: Some("YES|NO"),
        letter: None,
        default: "no",
        apply: |config, value| {
            config.http_tls = yes_or_no(value)?;
            Ok(())
        },
        ..row(
            ' ',
            "http-tls",
            "--http-port speaks TLS (https), with the certificate and key of --tls-cert-file and --tls-key-file, or of `-o ssl_chain_cert` and `-o ssl_key`; clients show no certificates. A port that is taken is an error then",
        )
    },
    Row {
        value: Some("PASSWORD"),
        letter: None,
        apply: |config, value| {
            if value.len() > SECRET_BYTES_MAX {
                return Err(format!("{SECRET_BYTES_MAX} bytes at most"));
            }
            config.password = (!value.is_empty()).then(|| value.into());
            config.users_files.password = None;
            Ok(())
        },
        ..row(
            ' ',
            "requirepass",
            "the default user's password: clients have to give it, text clients as with -Y (user default), and these have no port without -p or -Y. It is shown in this machine's list of processes",
        )
    },
    Row {
        value: Some("PATH"),
        range: "a file whose one line is the password",
        letter: None,
        apply: |config, value| {
            config.password = Some(password(value)?);
            config.users_files.password = Some(value.into());
            Ok(())
        },
        ..row(
            ' ',
            "requirepass-file",
            "the same password from a file, where no list of processes shows it. SIGHUP reads the file again",
        )
    },
    Row {
        value: Some("SECONDS"),
        letter: None,
        default: "60",
        range: "0 to 2147483648; 0 waits for ever",
        apply: |config, value| {
            config.request_timeout_s = number(value, 0, 1 << 31)?;
            Ok(())
        },
        ..row(
            ' ',
            "request-timeout",
            "closes connections that have sent a part of a request, and nothing more of it for so long",
        )
    },
    Row {
        value: Some("YES|NO"),
        letter: None,
        default: "yes",
        apply: |config, value| {
            config.protected = yes_or_no(value)?;
            Ok(())
        },
        ..row(
            ' ',
            "protected-mode",
            "while there is no password, Redis clients of other machines are refused (`-DENIED`)",
        )
    },
    Row {
        value: Some("NO|LOCAL|YES"),
        letter: None,
        default: "no",
        apply: |config, value| {
            let all = [DebugCommand::No, DebugCommand::Local, DebugCommand::Yes];
            let found = all.into_iter().find(|debug| debug.name() == value);
            config.debug = found.ok_or("no, local or yes")?;
            Ok(())
        },
        ..row(' ', "enable-debug-command", "lets Redis clients, or those of this machine, use DEBUG")
    },
    Row {
        value: Some("ADDRESS[:PORT]"),
        default: "127.0.0.1",
        range: "addresses or host names, separated by commas",
        apply: |config, value| {
            let before = config.listen.len();
            for part in value.split(',').filter(|part| !part.is_empty()) {
                config.listen.push(ListenAddress::parse(part)?);
            }
            // Nothing listed must not become everything, or the default.
            if config.listen.len() == before { Err("an address".into()) } else { Ok(()) }
        },
        ..row('l', "listen", "where to listen; repeat it or use commas for several; 0.0.0.0 is every address")
    },
    Row {
        value: Some("PATH"),
        apply: |config, value| {
            if value.is_empty() {
                return Err("a path".into());
            }
            config.unix_socket = Some(value.into());
            Ok(())
        },
        ..row('s', "unix-socket", "listens on a Unix socket and on no TCP port")
    },
    Row {
        value: Some("MODE"),
        default: "700",
        range: "octal, 0 to 777",
        apply: |config, value| {
            config.unix_mode = u32::from_str_radix(value, 8)
                .ok()
                .filter(|&mode| mode <= 0o777)
                .ok_or("the mode is octal, 0 to 777")?;
            Ok(())
        },
        ..row('a', "unix-mask", "mode of the Unix socket: which users may connect to it")
    },
    Row {
        value: Some("MB"),
        default: "64",
        range: "1 to 262143",
        apply: |config, value| {
            config.memory_bytes = number::<u64>(value, 1, larder_store::MEMORY_BYTES_MAX >> 20)? << 20;
            Ok(())
        },
        ..row('m', "memory-limit", "memory for items, their index, buffers and threads, in megabytes")
    },
    Row {
        letter: None,
        value: Some("MB"),
        default: "what -m is",
        range: "1 to 262143",
        apply: |config, value| {
            let bytes = number::<u64>(value, 1, larder_store::MEMORY_BYTES_MAX >> 20)? << 20;
            config.memory_bytes_max = Some(bytes);
            Ok(())
        },
        ..row(
            ' ',
            "memory-limit-max",
            "how far clients may raise -m (cache_memlimit, CONFIG SET maxmemory), in megabytes",
        )
    },
    Row {
        value: Some("N"),
        default: "1024",
        range: "1 to 1000000",
        apply: |config, value| {
            config.connections_max = number(value, 1, 1_000_000)?;
            Ok(())
        },
        ..row(
            'c',
            "conn-limit",
            "connections at once; one more is refused with `ERROR Too many open connections`",
        )
    },
    Row {
        value: Some("N"),
        letter: None,
        default: "0",
        range: "0 to 1000000; 0 is any number",
        apply: |config, value| {
            config.connections_per_address = number(value, 0, 1_000_000)?;
            Ok(())
        },
        ..row(
            ' ',
            "connections-per-address",
            "connections of one address at once, on all ports together; one more is refused as with -c. Of IPv6 the first 64 bits are one address. Unix sockets and --http-port are not counted",
        )
    },
    Row {
        value: Some("N"),
        letter: None,
        default: "0",
        range: "0 to 1000000000; 0 is any number",
        apply: |config, value| {
            config.requests_per_second = number(value, 0, 1_000_000_000)?;
            Ok(())
        },
        ..row(
            ' ',
            "requests-per-second",
            "what one address asks for in a second, on all its connections together: commands of Redis clients, keys of memcached clients. An address that asks for more is not read from until its time has come; nothing is refused. What was received is answered: 64 KiB at most at a time, for which it then waits a minute at most. Of IPv6 the first 64 bits are one address. Unix sockets and --http-port are not counted",
        )
    },
    Row {
        value: Some("N"),
        default: "as many as cores",
        range: "1 to 1024",
        apply: |config, value| {
            config.threads = number(value, 1, THREADS_MAX)?;
            Ok(())
        },
        ..row('t', "threads", "worker threads; more than there are cores help nothing")
    },
    Row {
        value: Some("BYTES"),
        default: "1m",
        range: "1k to 1g, at most half of -m; suffixes k, m, g",
        apply: |config, value| {
            config.item_bytes_max = Some(bytes(value, 1 << 10, 1 << 30)?);
            Ok(())
        },
        ..row('I', "max-item-size", "the largest item, its key and header included")
    },
    Row {
        apply: |config, _| {
            config.evict = false;
            Ok(())
        },
        ..row('M', "disable-evictions", "a full cache refuses writes and drops nothing")
    },
    Row {
        value: Some("N"),
        default: "as many as a receive brings",
        range: "1 to 2147483647",
        apply: |config, value| {
            config.requests_per_event = Some(number(value, 1, i32::MAX as u32)?);
            Ok(())
        },
        ..row('R', "max-reqs-per-event", "requests of one connection before others have their turn")
    },
    Row {
        value: Some("N"),
        default: "1024",
        range: "1 to 65535",
        apply: |config, value| {
            config.backlog = number(value, 1, u16::MAX)?;
            Ok(())
        },
        ..row('b', "listen-backlog", "connections that wait to be accepted")
    },
    Row {
        value: Some("NAME"),
        default: "auto",
        range: "auto, ascii, binary",
        apply: |config, value| {
            config.protocol = Some(match value {
                "auto" | "auto-negotiate" => Protocol::Auto,
                "ascii" => Protocol::Ascii,
                "binary" => Protocol::Binary,
                _ => return Err("the protocol is auto, ascii or binary".into()),
            });
            Ok(())
        },
        ..row('B', "protocol", "protocols that are answered")
    },
    Row {
        apply: |config, _| {
            config.cas = false;
            Ok(())
        },
        ..row(
            'C',
            "disable-cas",
            "`gets` shows 0 and every `cas` fails; saves nothing here, a token takes no memory",
        )
    },
    Row {
        value: Some("CHAR"),
        default: ":",
        range: "one byte",
        apply: |config, value| match value.as_bytes() {
            &[byte] => {
                config.prefix_delimiter = Some(byte);
                Ok(())
            }
            _ => Err("the delimiter is one byte".into()),
        },
        ..row('D', "prefix-delimiter", "what ends a key's prefix in `stats detail`, which this turns on")
    },
    Row {
        apply: |config, _| {
            config.shutdown = true;
            Ok(())
        },
        ..row('A', "enable-shutdown", "clients may stop the server (`shutdown`)")
    },
    Row {
        apply: |config, _| {
            config.flush = false;
            Ok(())
        },
        ..row('F', "disable-flush-all", "clients may not flush_all")
    },
    Row {
        apply: |config, _| {
            config.dump = false;
            Ok(())
        },
        ..row('X', "disable-dumping", "clients may not list keys (cachedump, metadump)")
    },
    Row {
        apply: |config, _| {
            config.watch = false;
            Ok(())
        },
        ..row('W', "disable-watch", "clients may not watch")
    },
    Row {
        value: Some("BYTES"),
        default: "1/16 of -m, at least 1m",
        range: "64k to 1g; suffixes k, m, g",
        letter: None,
        apply: |config, value| {
            config.reply_bytes_max = Some(bytes(value, 64 << 10, 1 << 30)?);
            Ok(())
        },
        ..row(
            ' ',
            "reply-bytes-max",
            "unread replies of a connection above which no more of its requests are read",
        )
    },
    Row {
        value: Some("USER"),
        default: "the user that starts it",
        range: "a user of this system",
        apply: |config, value| {
            config.user = Some(value.into());
            Ok(())
        },
        ..row('u', "user", "becomes this user after listening; only root can")
    },
    Row {
        apply: |config, _| {
            config.daemon = true;
            Ok(())
        },
        ..row('d', "daemon", "goes to the background once it listens")
    },
    Row {
        value: Some("PATH"),
        apply: |config, value| {
            config.pid_file = Some(value.into());
            Ok(())
        },
        ..row('P', "pidfile", "writes the process id there, and removes it at the end")
    },
    Row {
        apply: |config, _| {
            config.verbosity = config.verbosity.saturating_add(1);
            Ok(())
        },
        ..row('v', "verbose", "logs connections that fail (-v), also those that come and go (-vv)")
    },
    Row {
        apply: |config, _| {
            config.core_dumps = true;
            Ok(())
        },
        ..row(
            'r',
            "enable-coredumps",
            "lifts the limit on core files, which then have what is cached: without, they leave it out",
        )
    },
    Row {
        value: Some("ON|LOG|OFF"),
        letter: None,
        range: "on, log, off",
        apply: |config, value| {
            config.seccomp = Seccomp::named(value).ok_or("on, log or off")?;
            Ok(())
        },
        ..row(
            ' ',
            "seccomp",
            "with on, threads may make only those system calls that serving takes, and open files only in folders of those that options name, in /proc and in parts of /sys; with log the kernel logs other calls and allows them",
        )
    },
    Row {
        apply: |config, _| {
            config.lock_memory = true;
            Ok(())
        },
        ..row('k', "lock-memory", "locks all memory in RAM; needs the right to (ulimit -l)")
    },
    Row {
        effect: Effect::Accepted("memory is in 2 MB pages wherever that helps"),
        ..row('L', "enable-largepages", "large memory pages")
    },
    Row {
        value: Some("FACTOR"),
        default: "1.25",
        range: "above 1",
        effect: Effect::Accepted(
            "classes are finer than any factor in use; it says what `stats slabs` and `stats items` sum up",
        ),
        apply: |config, value| {
            config.growth_factor = value
                .parse()
                .ok()
                .filter(|&f: &f64| f > 1.0 && f.is_finite())
                .ok_or("the factor is above 1")?;
            Ok(())
        },
        ..row('f', "slab-growth-factor", "ratio of the sizes of slab classes")
    },
    Row {
        value: Some("BYTES"),
        default: "48",
        range: "1 to 1048576",
        effect: Effect::Accepted(
            "small items take what they need; it says what `stats slabs` and `stats items` sum up",
        ),
        apply: |config, value| {
            config.chunk_bytes_min = number(value, 1, 1 << 20)?;
            Ok(())
        },
        ..row('n', "slab-min-size", "room for key, value and flags in the smallest class")
    },
    Row {
        value: Some("PORT"),
        default: "0",
        range: "0",
        apply: |_, value| match value {
            "0" => Ok(()),
            _ => Err("UDP is not served; only 0 is accepted".into()),
        },
        ..row('U', "udp-port", "UDP is not served")
    },
    Row {
        value: Some("NAME[=VALUE],…"),
        range: "see below",
        default: "",
        apply: extended::apply,
        ..row('o', "extended", "further options, separated by commas; may be repeated")
    },
    Row {
        apply: |config, _| {
            config.tls = true;
            Ok(())
        },
        ..row(
            'Z',
            "enable-ssl",
            "TCP clients of -p and -l speak TLS, with `-o ssl_chain_cert` and `-o ssl_key`; Redis clients have a port without it only if --redis-port is given",
        )
    },
    Row {
        value: Some("PORT"),
        default: "0",
        range: "-1 to 65535",
        letter: None,
        apply: |config, value| {
            config.redis_tls_port = match number::<i64>(value, -1, 65535)? {
                0 => None,
                -1 => Some(0),
                port => Some(port as u16),
            };
            Ok(())
        },
        ..row(
            ' ',
            "tls-port",
            "TCP port for Redis clients that speak TLS; 0 listens on none, -1 on a free one",
        )
    },
    Row {
        value: Some("PATH"),
        letter: None,
        default: OFF,
        range: "",
        apply: |config, value| tls::set(&mut config.tls_options.redis, "tls-cert-file", value),
        ..row(
            ' ',
            "tls-cert-file",
            "certificates that --tls-port shows, the server's own first, as PEM; those of -o ssl_chain_cert unless it is given",
        )
    },
    Row {
        value: Some("PATH"),
        letter: None,
        default: OFF,
        range: "",
        apply: |config, value| tls::set(&mut config.tls_options.redis, "tls-key-file", value),
        ..row(
            ' ',
            "tls-key-file",
            "the key of --tls-cert-file, as PEM; that of -o ssl_key unless it is given",
        )
    },
    Row {
        value: Some("PASSWORD"),
        letter: None,
        default: OFF,
        range: "empty",
        apply: |config, value| tls::set(&mut config.tls_options.redis, "tls-key-file-pass", value),
        ..row(' ', "tls-key-file-pass", "the password of an encrypted key, which is not read")
    },
    Row {
        value: Some("PATH"),
        letter: None,
        default: OFF,
        range: "",
        apply: |config, value| tls::set(&mut config.tls_options.redis, "tls-ca-cert-file", value),
        ..row(
            ' ',
            "tls-ca-cert-file",
            "authorities that sign clients' certificates, as PEM; those of -o ssl_ca_cert unless it is given",
        )
    },
    Row {
        value: Some("PATH"),
        letter: None,
        default: OFF,
        range: "",
        apply: |config, value| tls::set(&mut config.tls_options.redis, "tls-ca-cert-dir", value),
        ..row(' ', "tls-ca-cert-dir", "a folder of such files")
    },
    Row {
        value: Some("YES|NO|OPTIONAL"),
        letter: None,
        default: "yes",
        range: "yes, no, optional",
        apply: |config, value| tls::set(&mut config.tls_options.redis, "tls-auth-clients", value),
        ..row(
            ' ',
            "tls-auth-clients",
            "clients at --tls-port must show a certificate; with optional, one that is shown must verify",
        )
    },
    Row {
        value: Some("OFF|CN"),
        letter: None,
        default: "off",
        range: "off, CN",
        apply: |config, value| tls::set(&mut config.tls_options.redis, "tls-auth-clients-user", value),
        ..row(
            ' ',
            "tls-auth-clients-user",
            "with CN, a client at --tls-port whose certificate has the name of a user as its common name is logged in as that user; where no user that is on has the name, it is as without a certificate, and ACL LOG says so",
        )
    },
    Row {
        value: Some("VERSIONS"),
        letter: None,
        default: "TLSv1.2 TLSv1.3",
        range: "TLSv1.2, TLSv1.3, or both",
        apply: |config, value| tls::set(&mut config.tls_options.redis, "tls-protocols", value),
        ..row(' ', "tls-protocols", "versions of TLS at --tls-port")
    },
    Row {
        value: Some("LIST"),
        letter: None,
        default: OFF,
        range: "as of -o ssl_ciphers",
        apply: |config, value| tls::set(&mut config.tls_options.redis, "tls-ciphers", value),
        ..row(
            ' ',
            "tls-ciphers",
            "cipher suites of TLS 1.2 at --tls-port, by OpenSSL's names with colons between, best first; all unless it is given",
        )
    },
    Row {
        value: Some("LIST"),
        letter: None,
        default: OFF,
        range: "of TLS_AES_256_GCM_SHA384, TLS_AES_128_GCM_SHA256 and TLS_CHACHA20_POLY1305_SHA256",
        apply: |config, value| tls::set(&mut config.tls_options.redis, "tls-ciphersuites", value),
        ..row(' ', "tls-ciphersuites", "the same of TLS 1.3")
    },
    Row {
        value: Some("YES|NO"),
        letter: None,
        default: "no",
        range: "yes, no",
        apply: |config, value| tls::set(&mut config.tls_options.redis, "tls-prefer-server-ciphers", value),
        ..row(' ', "tls-prefer-server-ciphers", "the order of these lists counts, not the client's")
    },
    Row {
        value: Some("YES|NO"),
        letter: None,
        default: "yes",
        range: "yes, no",
        apply: |config, value| tls::set(&mut config.tls_options.redis, "tls-session-caching", value),
        ..row(' ', "tls-session-caching", "sessions at --tls-port are resumed, by tickets that clients keep")
    },
    Row {
        value: Some("SECONDS"),
        letter: None,
        default: "300",
        range: "0 to 2147483647",
        apply: |config, value| tls::set(&mut config.tls_options.redis, "tls-session-cache-timeout", value),
        ..row(' ', "tls-session-cache-timeout", "how long a ticket is good for")
    },
    Row {
        value: Some("SESSIONS"),
        letter: None,
        default: "20480",
        range: "0 to 2147483647",
        effect: Effect::Accepted("tickets are kept by clients"),
        apply: |_, value| number::<u32>(value, 0, i32::MAX as u32).map(drop),
        ..row(' ', "tls-session-cache-size", "sessions that are remembered")
    },
    Row {
        value: Some("PATH"),
        letter: None,
        default: OFF,
        range: "",
        effect: Effect::Accepted("keys are agreed on by elliptic curves"),
        apply: |_, _| Ok(()),
        ..row(' ', "tls-dh-params-file", "parameters of Diffie-Hellman")
    },
    Row {
        value: Some("PATH"),
        letter: None,
        default: OFF,
        range: "",
        effect: Effect::Accepted("this server is no client of others"),
        apply: |_, _| Ok(()),
        ..row(' ', "tls-client-cert-file", "the certificate that the server shows other servers")
    },
    Row {
        value: Some("PATH"),
        letter: None,
        default: OFF,
        range: "",
        effect: Effect::Accepted("this server is no client of others"),
        apply: |_, _| Ok(()),
        ..row(' ', "tls-client-key-file", "its key")
    },
    Row {
        value: Some("PASSWORD"),
        letter: None,
        default: OFF,
        range: "",
        effect: Effect::Accepted("this server is no client of others"),
        apply: |_, _| Ok(()),
        ..row(' ', "tls-client-key-file-pass", "the password of its key")
    },
    Row {
        value: Some("no"),
        letter: None,
        default: "no",
        range: "no",
        effect: Effect::Accepted("there are no replicas and no cluster"),
        apply: |_, value| if value == "no" { Ok(()) } else { Err("no".into()) },
        ..row(' ', "tls-replication", "replicas speak TLS")
    },
    Row {
        value: Some("no"),
        letter: None,
        default: "no",
        range: "no",
        effect: Effect::Accepted("there are no replicas and no cluster"),
        apply: |_, value| if value == "no" { Ok(()) } else { Err("no".into()) },
        ..row(' ', "tls-cluster", "nodes of a cluster speak TLS")
    },
    Row {
        apply: |config, _| {
            config.sasl = true;
            Ok(())
        },
        ..row(
            'S',
            "enable-sasl",
            "the port of memcached's clients speaks the binary protocol alone, and clients log in by SASL PLAIN, as a user of --auth-file or with the password of --requirepass",
        )
    },
    Row {
        value: Some("PATH"),
        range: "a file with lines user:password",
        letter: None,
        apply: |config, value| {
            config.users.extend(users(value)?);
            config.users_files.users.push(("--auth-file", value.into()));
            Ok(())
        },
        ..row(
            ' ',
            "auth-file",
            "users that clients have to be one of, text clients as with -Y; these have no port without -p or -Y. A line that begins with # is none. SIGHUP reads the file again",
        )
    },
    Row {
        value: Some("PATH"),
        range: "a file with lines user:password",
        apply: |config, value| {
            config.users.extend(users(value)?);
            config.users_files.users.push(("-Y", value.into()));
            config.text_users = Some(value.into());
            Ok(())
        },
        ..row(
            'Y',
            "text-auth-file",
            "users as in --auth-file, and text clients have their port: the first set of a connection, of any key, has user and password as its value. SIGHUP reads the file again",
        )
    },
    Row {
        value: Some("PATH"),
        range: "a file with lines of ACL LIST",
        letter: None,
        apply: |config, value| {
            if !config.rules.is_empty() {
                return Err("users are in one file, or in --acl-user".into());
            }
            config.rules = SecretText::of_file(value)?;
            config.rules_file = Some(value.into());
            Ok(())
        },
        ..row(
            ' ',
            "aclfile",
            "users and what they may do, which ACL LOAD reads again and ACL SAVE writes; passwords of a user that it names are those of its line; where it does not name the default user, that is as --requirepass says",
        )
    },
    Row {
        value: Some("RULES"),
        range: "a name and rules, as ACL SETUSER takes them",
        letter: None,
        apply: |config, value| {
            if value.contains('\n') {
                return Err("one line".into());
            }
            if config.rules_file.is_some() {
                return Err("users are in --aclfile, or in --acl-user".into());
            }
            config.rules.add(&["user ", value, "\n"]);
            Ok(())
        },
        ..row(
            ' ',
            "acl-user",
            "a user and what it may do; passwords are those of the rules, and of --auth-file. They are shown in this machine's list of processes: #HASH is a password's SHA-256",
        )
    },
    Row {
        value: Some("WORD"),
        letter: None,
        default: "resetchannels",
        range: "resetchannels or allchannels",
        apply: |config, value| {
            config.all_channels = match value {
                "allchannels" => true,
                "resetchannels" => false,
                _ => return Err("resetchannels or allchannels".into()),
            };
            Ok(())
        },
        ..row(' ', "acl-pubsub-default", "which channels a new user may use: none, or all")
    },
    Row {
        value: Some("YES|NO"),
        letter: None,
        default: "yes",
        apply: |config, value| {
            config.text_auth = yes_or_no(value)?;
            Ok(())
        },
        ..row(
            ' ',
            "text-auth",
            "no: where Redis clients need a password, text clients need none, and may do everything",
        )
    },
    Row {
        letter: None,
        apply: |config, _| {
            config.strict_framing = true;
            Ok(())
        },
        ..row(
            ' ',
            "strict-framing",
            "closes a connection of memcached's text behind a line that is no request, and behind data that do not end where their line says: nothing that follows is taken for requests. Without it memcached's way holds, which goes on reading",
        )
    },
    Row {
        value: Some("PATH"),
        effect: Effect::Refused("items do not outlive the process"),
        ..row('e', "memory-file", "a file that keeps items over a restart")
    },
    Row {
        value: Some("N"),
        effect: Effect::Refused("connections go to the worker that has the fewest"),
        ..row('N', "napi-ids", "threads chosen by network queue")
    },
];

/// Most worker threads.
const THREADS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn set(name: &str, value: &str) -> Result<Config, String> {
        let row = OPTIONS.iter().find(|row| row.name == name).unwrap();
        let mut config = Config::default();
        (row.apply)(&mut config, value).map(|()| config)
    }

    #[test]
    fn names_and_letters_are_unique() {
        for (index, row) in OPTIONS.iter().enumerate() {
            for other in &OPTIONS[..index] {
                assert_ne!(row.name, other.name);
                assert!(row.letter.is_none() || row.letter != other.letter, "{}", row.name);
            }
        }
    }

    #[test]
    fn numbers_hold_at_their_limits() {
        for (name, least, most) in
            [("conn-limit", 1u64, 1_000_000u64), ("threads", 1, 1024), ("listen-backlog", 1, 65535)]
        {
            assert!(set(name, &(least - 1).to_string()).is_err());
            assert!(set(name, &least.to_string()).is_ok());
            assert!(set(name, &most.to_string()).is_ok());
            assert!(set(name, &(most + 1).to_string()).is_err());
            assert!(set(name, "x").is_err());
            assert!(set(name, "-1").is_err());
        }
    }

    #[test]
    fn an_address_may_have_any_number_of_connections_or_a_million_at_most() {
        const NAME: &str = "connections-per-address";
        let most = |value: &str| set(NAME, value).map(|config| config.connections_per_address);
        assert_eq!(Config::default().connections_per_address, 0);
        assert_eq!([most("0"), most("1"), most("1000000")], [Ok(0), Ok(1), Ok(1_000_000)]);
        assert!(["-1", "1000001", "x", ""].into_iter().all(|value| most(value).is_err()));
    }

    #[test]
    fn an_address_may_ask_for_anything_or_for_a_thousand_million_a_second_at_most() {
        const NAME: &str = "requests-per-second";
        let most = |value: &str| set(NAME, value).map(|config| config.requests_per_second);
        assert_eq!(Config::default().requests_per_second, 0);
        assert_eq!([most("0"), most("1"), most("1000000000")], [Ok(0), Ok(1), Ok(1_000_000_000)]);
        assert!(["-1", "1000000001", "x", ""].into_iter().all(|value| most(value).is_err()));
    }

    #[test]
    fn item_size_takes_suffixes_and_holds_at_its_limits() {
        let item = |value: &str| set("max-item-size", value).map(|config| config.item_bytes_max());
        assert_eq!(item("1k"), Ok(1024));
        assert_eq!(item("1024"), Ok(1024));
        assert!(item("1023").is_err());
        assert!(item("1000").is_err());
        assert_eq!(item("2m"), Ok(2 << 20));
        assert_eq!(item("1g"), Ok(1 << 30));
        assert!(item("1073741825").is_err());
        assert!(item("18446744073709551615g").is_err());
        assert!(item("k").is_err());
    }

    #[test]
    fn memory_is_a_megabyte_at_least_and_what_the_store_can_address_at_most() {
        let memory = |value: &str| set("memory-limit", value).map(|config| config.memory_bytes >> 20);
        assert_eq!((memory("1"), memory("262143")), (Ok(1), Ok(262_143)));
        assert!(memory("0").is_err() && memory("262144").is_err());
    }

    #[test]
    fn an_item_takes_half_of_the_memory_at_most() {
        let mut config = set("max-item-size", "32m").unwrap();
        assert!(config.check().is_ok());
        config.item_bytes_max = Some((32 << 20) + 1);
        assert!(config.check().is_err());
    }

    #[test]
    fn a_list_of_no_address_and_a_factor_without_end_are_errors() {
        for (name, bad) in [("listen", ""), ("listen", ","), ("slab-growth-factor", "inf")] {
            assert!(set(name, bad).is_err(), "{name} {bad}");
        }
        assert_eq!(set("listen", "127.0.0.1,").unwrap().listen.len(), 1);
    }

    /// What a server is started with that has these options, in this order.
    fn set_all(options: &[(&str, &str)]) -> Result<Config, String> {
        let mut config = Config::default();
        for (name, value) in options {
            let row = OPTIONS.iter().find(|row| row.name == *name).unwrap();
            (row.apply)(&mut config, value)?;
        }
        config.check().map(|()| config)
    }

    #[test]
    fn users_with_rules_are_read_when_all_options_are_known_and_nothing_keeps_their_passwords() {
        let channels = ("acl-pubsub-default", "allchannels");
        for options in [[channels, ("acl-user", "a on >p &foo")], [("acl-user", "a on >p &foo"), channels]] {
            assert!(
                set_all(&options).is_err_and(|why| why.contains("Adding a pattern after the *")),
                "{options:?}"
            );
        }
        let config =
            set_all(&[("acl-user", "a on >canary ~*"), ("acl-user", "default on >canary +@all")]).unwrap();
        assert!(config.asks() && !format!("{config:?}").contains("canary"));
        let config = set_all(&[("acl-user", "a on >canary ~*"), channels]).unwrap();
        assert!(!config.asks());
        // As many users as there may be: with those that have passwords only.
        let path = std::env::temp_dir().join(format!("larder-users-with-rules-{}", std::process::id()));
        for (users, is_right) in [(4094, true), (4095, false)] {
            let lines: String = (0..users).map(|n| format!("u{n}:x\n")).collect();
            std::fs::write(&path, lines).unwrap();
            let made = set_all(&[("auth-file", path.to_str().unwrap()), ("acl-user", "a on >p")]);
            assert_eq!(made.is_ok(), is_right, "{users} and the default user and one more");
        }
        std::fs::remove_file(&path).unwrap();
    }

    /// The start reads the file as ACL LOAD does later: what is right for one is right for the other.
    #[test]
    fn a_password_beside_a_file_of_users_is_that_of_a_default_user_whom_the_file_does_not_name() {
        let folder = std::env::temp_dir();
        let [rules, password] = ["rules", "password"]
            .map(|name| folder.join(format!("larder-{name}-beside-{}", std::process::id())));
        std::fs::write(&password, "old").unwrap();
        for (lines, asks, passes_over) in [
            ("user default on >new ~* &* +@all", true, true),
            ("user default on ~* &* +@all", true, true),
            ("user default on nopass ~* &* +@all", false, true),
            ("user app on >new", true, false),
        ] {
            std::fs::write(&rules, lines).unwrap();
            let options =
                [("aclfile", rules.to_str().unwrap()), ("requirepass-file", password.to_str().unwrap())];
            for options in [options, [options[1], options[0]]] {
                let config = set_all(&options).unwrap();
                assert_eq!((config.asks(), config.passes_over_password()), (asks, passes_over), "{lines}");
            }
        }
        for path in [rules, password] {
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn port_zero_is_off_and_minus_one_any() {
        assert_eq!(set("port", "0").unwrap().port, None);
        assert_eq!(set("port", "-1").unwrap().port, Some(0));
        assert_eq!(set("port", "65535").unwrap().port, Some(65535));
        assert!(set("port", "65536").is_err());
        assert!(set("port", "-2").is_err());
    }

    #[test]
    fn small_memory_lowers_the_default_item_and_keeps_a_mebibyte_of_replies() {
        let mut config = set("memory-limit", "1").unwrap();
        assert_eq!(config.item_bytes_max(), 512 << 10);
        assert_eq!(config.reply_bytes_max(), 1 << 20);
        assert!(config.check().is_ok());
        assert_eq!(set("memory-limit", "1024").unwrap().reply_bytes_max(), 64 << 20);
    }
}
