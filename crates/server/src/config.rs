//! What a server is started with, parsed and checked.
//!
//! Filled by the rows of the option table ([`crate::options`]), then checked as a whole by
//! [`Config::check`]: what depends on two options belongs there, what depends on one in its row.

use std::path::PathBuf;

use larder_commands::memcached::slabs::{SIZES_MAX, slab_sizes};
use larder_commands::{DebugCommand, Digest, FiledUsers, RuledUsers, Speaks, ruled_users};
use larder_eventloop::socket::Address;

use crate::confine::Seccomp;
use crate::filed::UsersFiles;
use crate::listen::{HttpHost, ListenAddress};
use crate::tls::{self, TlsOptions};
use crate::values::{SecretText, USERS_MAX};

/// Which protocols a listener answers (`-B`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The first byte of a connection decides.
    Auto,
    /// memcached's text only.
    Ascii,
    /// The binary protocol only.
    Binary,
}

/// Everything that can be set at start.
#[derive(Clone, Debug)]
pub struct Config {
    /// `-p`: none is off, 0 any free port.
    pub port: Option<u16>,
    /// `-p` was given.
    pub port_given: bool,
    /// `--redis-port`: none is off, 0 any free port.
    pub redis_port: Option<u16>,
    /// `--redis-port` was given.
    pub redis_port_given: bool,
    /// `--http-port`: none is off, 0 any free port.
    pub http_port: Option<u16>,
    /// `--http-port` was given.
    pub http_port_given: bool,
    /// `-Z`.
    pub tls: bool,
    /// `-o ssl_…` and `--tls-…`.
    pub tls_options: TlsOptions,
    /// `--tls-port`: none is off, 0 any free port.
    pub redis_tls_port: Option<u16>,
    /// `--requirepass` or what `--requirepass-file` has, if given and not empty.
    pub password: Option<Digest>,
    /// `--http-host`, if given.
    pub http_host: Option<HttpHost>,
    /// Users of `--http-auth-file` and their passwords.
    pub http_users: Vec<(String, Digest)>,
    /// `--http-hide-keys`.
    pub http_hide_keys: bool,
    /// `--http-tls`.
    pub http_tls: bool,
    /// `--protected-mode`.
    pub protected: bool,
    /// `--enable-debug-command`.
    pub debug: DebugCommand,
    /// Users of `--auth-file` and `-Y`, and their passwords.
    pub users: Vec<(String, Digest)>,
    /// The files of these users, and of the password, if it is in one.
    pub users_files: UsersFiles,
    /// `-S`: the port of memcached's clients is one of the binary protocol, where they log in.
    pub sasl: bool,
    /// Lines of `--aclfile`, or of each `--acl-user`, until [`Config::check`] has read them.
    pub rules: SecretText,
    /// The users that they name, and what these may do.
    pub ruled: RuledUsers,
    /// `--aclfile`.
    pub rules_file: Option<String>,
    /// `--acl-pubsub-default allchannels`.
    pub all_channels: bool,
    /// `-Y`.
    pub text_users: Option<PathBuf>,
    /// `--strict-framing`.
    pub strict_framing: bool,
    /// Not `--text-auth no`: text clients have to log in, too.
    pub text_auth: bool,
    /// `-l`, in order; empty means the default address.
    pub listen: Vec<ListenAddress>,
    /// `-s`.
    pub unix_socket: Option<PathBuf>,
    /// `-a`.
    pub unix_mode: u32,
    /// `-m`.
    pub memory_bytes: u64,
    /// `--memory-limit-max`, if given.
    pub memory_bytes_max: Option<u64>,
    /// `-c`.
    pub connections_max: usize,
    /// `--connections-per-address`; 0: any number.
    pub connections_per_address: u32,
    /// `--requests-per-second`; 0: any number.
    pub requests_per_second: u32,
    /// `-t`.
    pub threads: usize,
    /// `-u`.
    pub user: Option<String>,
    /// `-d`.
    pub daemon: bool,
    /// `-P`.
    pub pid_file: Option<PathBuf>,
    /// `-v`, counted.
    pub verbosity: u8,
    /// `-I`, if given.
    pub item_bytes_max: Option<u64>,
    /// Not `-M`.
    pub evict: bool,
    /// `-f`, as given.
    pub growth_factor: f64,
    /// `-n`.
    pub chunk_bytes_min: u32,
    /// `-B`.
    pub protocol: Option<Protocol>,
    /// Not `-C`.
    pub cas: bool,
    /// `-b`.
    pub backlog: u16,
    /// `-R`, if given.
    pub requests_per_event: Option<u32>,
    /// `-D`, if given.
    pub prefix_delimiter: Option<u8>,
    /// `-k`.
    pub lock_memory: bool,
    /// `-r`.
    pub core_dumps: bool,
    /// `--seccomp`.
    pub seccomp: Seccomp,
    /// `-A`.
    pub shutdown: bool,
    /// Not `-F`.
    pub flush: bool,
    /// Not `-X`.
    pub dump: bool,
    /// Not `-W`: clients may watch.
    pub watch: bool,
    /// `--reply-bytes-max`, if given.
    pub reply_bytes_max: Option<u64>,
    /// `--request-timeout`, seconds; 0 never.
    pub request_timeout_s: u64,
    /// `-o idle_timeout`, seconds; 0 never.
    pub idle_timeout_s: u64,
    /// `-o maxconns_fast`.
    pub refuse_fast: bool,
    /// `-o relaxed_privileges`.
    pub relaxed_privileges: bool,
    /// `-o track_sizes`.
    pub track_sizes: bool,
    /// `-o lru_crawler`.
    pub lru_crawler: bool,
    /// `-o lru_maintainer`.
    pub lru_maintainer: bool,
    /// What memcached's tools read back from `stats settings` and Larder has no use for.
    pub reported: Reported,
    /// Options that were given, by their long names, in order, each with its value. No passwords.
    pub given: Vec<(&'static str, String)>,
}

/// Settings that are accepted, reported and otherwise without effect.
#[derive(Clone, Debug)]
pub struct Reported {
    /// `hashpower`.
    pub hash_power: u32,
    /// `hash_algorithm`.
    pub hash_algorithm: String,
    /// `tail_repair_time`.
    pub tail_repair_s: u32,
    /// `slab_reassign`.
    pub slab_reassign: bool,
    /// `slab_automove`.
    pub slab_automove: u8,
    /// `slab_automove_ratio`.
    pub slab_automove_ratio: f64,
    /// `slab_automove_window`.
    pub slab_automove_window: u32,
    /// `slab_automove_freeratio`.
    pub slab_automove_freeratio: f64,
    /// `slab_chunk_max`, bytes.
    pub slab_chunk_bytes_max: u32,
    /// `lru_crawler_sleep`, microseconds.
    pub lru_crawler_sleep_us: u32,
    /// `lru_crawler_tocrawl`.
    pub lru_crawler_tocrawl: u32,
    /// `hot_lru_pct`.
    pub hot_lru_pct: u32,
    /// `warm_lru_pct`.
    pub warm_lru_pct: u32,
    /// `hot_max_factor`.
    pub hot_max_factor: f64,
    /// `warm_max_factor`.
    pub warm_max_factor: f64,
    /// `temporary_ttl`, seconds, if given.
    pub temporary_ttl_s: Option<u32>,
    /// `watcher_logbuf_size`, bytes.
    pub watcher_logbuf_bytes: u32,
    /// `ssl_verify_mode`: 3 is served as 2, and told as 3.
    pub tls_verify_mode: u8,
    /// `ssl_wbuf_size`, bytes.
    pub tls_write_buffer_bytes: u32,
    /// `slab_sizes`, bytes; none by default.
    pub slab_sizes: Vec<u32>,
    /// `worker_logbuf_size`, bytes.
    pub worker_logbuf_bytes: u32,
    /// `read_buf_mem_limit`, MB.
    pub read_buf_mem_limit_mb: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            port: Some(11211),
            port_given: false,
            redis_port: Some(6379),
            redis_port_given: false,
            http_port: Some(HTTP_PORT),
            http_port_given: false,
            http_host: None,
            http_users: Vec::new(),
            http_hide_keys: false,
            http_tls: false,
            tls: false,
            tls_options: TlsOptions::default(),
            redis_tls_port: None,
            password: None,
            protected: true,
            debug: DebugCommand::No,
            users: Vec::new(),
            users_files: UsersFiles::default(),
            sasl: false,
            rules: SecretText::default(),
            ruled: RuledUsers::default(),
            rules_file: None,
            all_channels: false,
            text_users: None,
            strict_framing: false,
            text_auth: true,
            listen: Vec::new(),
            unix_socket: None,
            unix_mode: 0o700,
            memory_bytes: 64 << 20,
            memory_bytes_max: None,
            connections_max: 1024,
            connections_per_address: 0,
            requests_per_second: 0,
            threads: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            user: None,
            daemon: false,
            pid_file: None,
            verbosity: 0,
            item_bytes_max: None,
            evict: true,
            growth_factor: 1.25,
            chunk_bytes_min: 48,
            protocol: None,
            cas: true,
            backlog: 1024,
            requests_per_event: None,
            prefix_delimiter: None,
            lock_memory: false,
            core_dumps: false,
            seccomp: Seccomp::Off,
            shutdown: false,
            flush: true,
            dump: true,
            watch: true,
            reply_bytes_max: None,
            request_timeout_s: REQUEST_TIMEOUT_S,
            idle_timeout_s: 0,
            refuse_fast: true,
            relaxed_privileges: false,
            track_sizes: false,
            lru_crawler: true,
            lru_maintainer: true,
            reported: Reported::default(),
            given: Vec::new(),
        }
    }
}

impl Default for Reported {
    fn default() -> Reported {
        Reported {
            hash_power: 0,
            hash_algorithm: "murmur3".into(),
            tail_repair_s: 0,
            slab_reassign: true,
            slab_automove: 1,
            slab_automove_ratio: 0.8,
            slab_automove_window: 10,
            slab_automove_freeratio: 0.01,
            slab_chunk_bytes_max: 512 << 10,
            lru_crawler_sleep_us: 100,
            lru_crawler_tocrawl: 0,
            hot_lru_pct: 20,
            warm_lru_pct: 40,
            hot_max_factor: 0.2,
            warm_max_factor: 2.0,
            temporary_ttl_s: None,
            watcher_logbuf_bytes: 256 << 10,
            tls_verify_mode: 0,
            tls_write_buffer_bytes: 16 << 10,
            slab_sizes: Vec::new(),
            worker_logbuf_bytes: 64 << 10,
            read_buf_mem_limit_mb: 0,
        }
    }
}

/// memcached_exporter's port: where monitors look.
const HTTP_PORT: u16 = 9150;

/// Largest item when `-I` is not given.
const ITEM_BYTES_MAX_DEFAULT: u64 = 1 << 20;

/// `--request-timeout` unless given.
const REQUEST_TIMEOUT_S: u64 = 60;

/// Unauthenticated connections may be one part in this many of all.
pub(crate) const UNAUTHENTICATED_SHARE: usize = 4;

/// Least replies that a connection may have waiting by default, so that a client that writes
/// everything before it reads does not hang.
const REPLY_BYTES_MAX_LEAST: u64 = 1 << 20;

/// A slab size is more than this above the one before: chunks are in steps of it.
const SLAB_STEP_BYTES: u32 = 8;

impl Config {
    /// True if clients have to log in; text clients unless [`Config::text_auth`] is off.
    pub fn asks(&self) -> bool {
        self.ruled.asks().unwrap_or_else(|| self.password.is_some() || !self.users.is_empty())
    }

    /// True if `--requirepass` has no effect: the default user is as its line in `--aclfile` says.
    pub fn passes_over_password(&self) -> bool {
        self.password.is_some() && self.rules_file.is_some() && self.ruled.asks().is_some()
    }

    /// What the files of users said at the start.
    pub fn filed_users(&self) -> FiledUsers {
        let password = self.password.clone().filter(|_| self.users_files.password.is_some());
        FiledUsers { password, users: self.users.clone() }
    }

    /// True if other machines reach this address, and no password is asked for there.
    pub fn is_open(&self, address: &Address, speaks: Speaks) -> bool {
        let closed = match speaks {
            Speaks::Redis => self.asks() || self.protected,
            Speaks::Any => self.asks() && self.text_auth,
        };
        !address.is_local() && !closed
    }

    /// What the port of memcached's clients speaks: `-B`, or what `-S` needs.
    pub fn protocol(&self) -> Protocol {
        self.protocol.unwrap_or(if self.sasl { Protocol::Binary } else { Protocol::Auto })
    }

    /// The TCP port for memcached's clients. Few of them can log in. Where clients have to, there is one only if it was asked
    /// for, by `-p`, `-S` or `-Y`.
    pub fn text_port(&self) -> Option<u16> {
        let closed = !self.port_given && self.text_users.is_none() && !self.sasl && self.asks();
        self.port.filter(|_| !closed)
    }

    /// The TCP port for RESP clients; beside a Unix socket, or where others speak TLS, only if it was asked for.
    pub fn resp_port(&self) -> Option<u16> {
        let usual = self.unix_socket.is_none() && !self.tls;
        self.redis_port.filter(|_| self.redis_port_given || usual)
    }

    /// Bytes of the largest item: `-I`, or 1 MiB as far as memory allows.
    pub fn item_bytes_max(&self) -> u64 {
        self.item_bytes_max.unwrap_or(ITEM_BYTES_MAX_DEFAULT.min(self.memory_bytes / 2))
    }

    /// Unsent reply bytes above which a connection is read no further: 1/16 of the memory, at least
    /// 1 MiB, unless given.
    pub fn reply_bytes_max(&self) -> u64 {
        self.reply_bytes_max.unwrap_or((self.memory_bytes / 16).max(REPLY_BYTES_MAX_LEAST))
    }

    /// Most bytes that an append or prepend, or a RESP request, longer than a receive buffer may hold while it arrives: 1/8 of
    /// the memory, at least the largest item, so that every append that is allowed can be made.
    pub fn append_bytes_max(&self) -> u64 {
        (self.memory_bytes / 8).max(self.item_bytes_max())
    }

    /// Connections that may be open without having logged in, where they have to.
    pub fn unauthenticated_max(&self) -> usize {
        (self.connections_max / UNAUTHENTICATED_SHARE).max(1)
    }

    /// Sizes of the slab classes as they are shown: as listed, or by `-f` and `-n`.
    pub fn slab_sizes(&self) -> Vec<u32> {
        let Reported { slab_sizes: listed, slab_chunk_bytes_max, .. } = &self.reported;
        if listed.is_empty() {
            return slab_sizes(self.growth_factor, self.chunk_bytes_min, *slab_chunk_bytes_max);
        }
        let last = listed.last().filter(|&&last| last == *slab_chunk_bytes_max);
        listed.iter().copied().chain(last.is_none().then_some(*slab_chunk_bytes_max)).collect()
    }

    /// Checks a list of slab sizes by memcached's rules.
    fn check_slab_sizes(&self) -> Result<(), String> {
        let sizes = &self.reported.slab_sizes;
        let range = self.chunk_bytes_min..=self.reported.slab_chunk_bytes_max;
        if let Some(size) = sizes.iter().find(|size| !range.contains(size)) {
            return Err(format!(
                "-o slab_sizes: {size}: bytes from {} (-n) to {} (slab_chunk_max)",
                range.start(),
                range.end()
            ));
        }
        if let Some(pair) = sizes.windows(2).find(|pair| pair[1] <= pair[0].saturating_add(SLAB_STEP_BYTES)) {
            let (low, high) = (pair[0], pair[1]);
            return Err(format!("-o slab_sizes: {high} is not more than {SLAB_STEP_BYTES} above {low}"));
        }
        if sizes.len() > SIZES_MAX {
            return Err(format!("-o slab_sizes: {SIZES_MAX} sizes at most"));
        }
        Ok(())
    }

    /// Reads the users that have rules, which depends on what else is known of users. Their text is not kept after that.
    ///
    /// # Errors
    /// One line that names the option.
    fn read_rules(&mut self) -> Result<(), String> {
        let text = std::mem::take(&mut self.rules);
        let (option, name) = match &self.rules_file {
            Some(path) => (format!("--aclfile {path}"), path.as_str()),
            None => ("--acl-user".into(), "--acl-user"),
        };
        // If lines of users are in a file, that alone has their passwords, as when ACL LOAD reads it again.
        let in_file = self.rules_file.is_some();
        let users: &[(String, Digest)] = if in_file { &[] } else { &self.users };
        let known = (self.password.as_ref().filter(|_| !in_file), users);
        self.ruled = ruled_users(text.as_bytes(), name, known, self.all_channels)
            .map_err(|why| format!("{option}: {why}"))?;
        Ok(())
    }

    /// Checks what depends on several options, and reads what does.
    ///
    /// # Errors
    /// One line that names the options.
    pub fn check(&mut self) -> Result<(), String> {
        if let Some(bytes) = self.item_bytes_max
            && bytes > self.memory_bytes / 2
        {
            let (item, memory) = (bytes, self.memory_bytes >> 20);
            return Err(format!(
                "-I {item}: an item may take half of the memory at most, and -m is {memory} MB"
            ));
        }
        let Reported { hot_lru_pct, warm_lru_pct, .. } = self.reported;
        if hot_lru_pct + warm_lru_pct > 80 {
            return Err("-o hot_lru_pct,warm_lru_pct: together 80 at most".into());
        }
        if self.http_port.is_none() && self.http_host.is_some() {
            return Err("--http-host, --http-port 0: an address for HTTP, which is off".into());
        }
        if self.users.len() > USERS_MAX {
            return Err(format!("--auth-file, -Y: {USERS_MAX} users at most"));
        }
        if self.rules_file.is_some() && !self.users.is_empty() {
            return Err("--aclfile, --auth-file, -Y: only one file holds users: ACL SAVE writes it".into());
        }
        if !self.text_auth && self.text_users.is_some() {
            return Err("-Y, --text-auth no: text clients need no password, so -Y has no effect".into());
        }
        if !self.rules.is_empty() {
            self.read_rules()?;
        }
        if self.passes_over_password() {
            self.users_files.password = None;
        }
        self.check_sasl()?;
        self.check_slab_sizes()?;
        tls::check(self)
    }

    /// Refuses options by which clients could not log in.
    fn check_sasl(&self) -> Result<(), String> {
        let binary = self.protocol() == Protocol::Binary;
        if self.text_users.is_some() && binary {
            return Err("-Y, -S, -B binary: -Y is for text clients, and the text protocol is off".into());
        }
        if !self.sasl {
            return Ok(());
        }
        if !binary {
            return Err("-S, -B: only the binary protocol has SASL".into());
        }
        if !self.text_auth {
            return Err("-S, --text-auth no: -S asks for a password, and --text-auth no asks for none".into());
        }
        if !self.asks() {
            return Err("-S: there are no users; name them with --auth-file or --requirepass".into());
        }
        Ok(())
    }
}
