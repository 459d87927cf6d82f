//! The attacks.

mod dear;
mod elements;
mod guesses;
mod half_open;
mod handshakes;
mod long;
mod memory;
mod slice;
mod steps;
mod told;
mod work;

use crate::stage::Stage;
use crate::wire::{exchange, said};
use larder_testkit::talk::encode;
use std::time::Duration;

/// How long an attacker waits for its replies.
const PATIENCE: Duration = Duration::from_secs(60);

/// An attack.
#[derive(Debug)]
pub struct Row {
    pub name: &'static str,
    /// `-m`.
    pub megabytes: u64,
    /// Further options of the server.
    pub options: &'static [&'static str],
    /// The cache is filled before the attack.
    pub full: bool,
    /// Stores the data that the attack needs.
    pub prepare: fn(&Stage) -> Result<(), String>,
    /// Runs the attack; returns its result in words. An error: what the server must not do.
    pub attack: fn(&Stage) -> Result<String, String>,
    /// The attack ends the server.
    pub ends: bool,
    /// The server has a port that speaks TLS, too.
    pub tls: bool,
}

/// An attack with the usual options on an empty store.
const fn row(name: &'static str, attack: fn(&Stage) -> Result<String, String>) -> Row {
    let prepare = |_: &Stage| Ok(());
    Row { name, megabytes: 64, options: &[], full: false, prepare, attack, ends: false, tls: false }
}

/// An attack on memory, with a full cache.
const fn heap(name: &'static str, attack: fn(&Stage) -> Result<String, String>) -> Row {
    Row { full: true, ..row(name, attack) }
}

/// Every client may use DEBUG.
const DEBUG: &[&str] = &["--enable-debug-command", "yes"];

/// Values may have up to 32 MiB.
const LARGE: &[&str] = &["-I", "32m"];
const LARGE_AND_DEBUG: &[&str] = &["-I", "32m", "--enable-debug-command", "yes"];

/// All attacks.
pub const ROWS: &[Row] = &[
    Row { prepare: memory::one_of_16k, ..heap("mget-of-one", memory::mget_of_one) },
    Row { prepare: memory::one_of_16k, ..heap("exec-of-gets", memory::exec_of_gets) },
    heap("command-docs", memory::command_docs),
    heap("client-names", memory::client_names),
    Row { prepare: memory::keys_of_8k, ..row("keys-of-8k", memory::keys) },
    Row { options: &["-M"], prepare: memory::keys_of_8k, ..row("keys-of-8k-refused", memory::keys) },
    heap("full-writes", memory::full_writes),
    heap("bitfield", memory::bitfield),
    heap("stats-detail", memory::stats_detail),
    Row { megabytes: 1024, ..row("mset-100k", work::mset_100k) },
    Row { megabytes: 1024, ..row("mset-400k", work::mset_400k) },
    Row { megabytes: 1024, ..row("exec-of-sets", work::exec_of_sets) },
    Row { megabytes: 1024, ..row("exec-of-incrs", work::exec_of_incrs) },
    Row { megabytes: 1024, prepare: memory::one_of_16k, ..row("exec-of-getexs", work::exec_of_getexs) },
    Row { megabytes: 1024, ..row("exec-of-many-keys", work::exec_of_many_keys) },
    Row { megabytes: 1024, ..row("exec-of-elements", work::exec_of_elements) },
    Row { megabytes: 1024, ..row("psubscribe", work::psubscribe) },
    Row { prepare: work::evil_keys, ..row("scan-match", work::scan_match) },
    heap("publish-glob", work::publish_glob),
    Row { prepare: slice::prepare, ..row("keys-class", work::keys_by_class) },
    Row { prepare: work::listeners, ..row("events", work::events) },
    Row { prepare: told::items, ..row("publish-500", told::publish) },
    Row { prepare: told::items, ..row("monitors-500", told::monitors) },
    row("exec-of-publish", told::exec_of_publish),
    heap("words", work::words),
    Row { megabytes: 1024, prepare: work::patterns, ..row("publish-1mb", work::publish_1mb) },
    Row { prepare: slice::prepare, ..row("bitcount", slice::bitcount) },
    Row { prepare: slice::prepare, ..row("append", slice::append) },
    Row { prepare: slice::prepare, ..row("setbit", slice::setbit) },
    Row { prepare: slice::prepare, ..row("rename", slice::rename) },
    Row { prepare: slice::prepare, ..row("bitop", slice::bitop) },
    Row { prepare: slice::prepare, ..row("lcs", slice::lcs) },
    Row { prepare: slice::prepare, ..row("info", slice::info) },
    Row { prepare: slice::prepare, ..row("keys", slice::keys) },
    Row { prepare: slice::prepare, ..row("scan-count", slice::scan_count) },
    Row { prepare: slice::prepare, ..row("text-append", slice::text_append) },
    Row { prepare: slice::prepare, ..row("exec-of-keys", slice::exec_of_keys) },
    Row { prepare: slice::prepare, ..row("swapdb", slice::swapdb) },
    Row { options: DEBUG, ..row("populate", slice::populate) },
    Row { options: DEBUG, ..row("stringmatch", slice::stringmatch) },
    Row { options: LARGE, prepare: steps::large, ..heap("appends", steps::appends) },
    Row { options: LARGE, prepare: steps::large, ..heap("bitfield-far", steps::bitfield) },
    Row { options: LARGE_AND_DEBUG, prepare: steps::large, ..row("digest", steps::digest) },
    Row { options: LARGE, ..heap("restore", steps::restore) },
    Row { options: LARGE, ..heap("restore-packed", steps::restore_packed) },
    heap("restore-elements", steps::restore_elements),
    heap("many-keys", steps::many_keys),
    Row { options: LARGE, ..heap("kept-requests", steps::kept) },
    Row { prepare: steps::connections, ..row("client-kill", steps::client_kill) },
    Row { options: &["--request-timeout", "2"], ..row("timeouts", steps::timeouts) },
    row("cheap", slice::cheap),
    heap("text-lines", dear::lines),
    Row { prepare: dear::empties, ..heap("dear-commands", dear::commands) },
    // ZRANGESTORE copies in steps, and stores in steps.
    Row { prepare: dear::sorted, ..row("zrangestore", dear::zrangestore) },
    Row { prepare: elements::entries, ..row("streams", elements::streams) },
    Row { prepare: elements::fields, ..heap("times-of-fields", elements::times) },
    heap("hotkeys", elements::hotkeys),
    Row { prepare: long::elements, ..heap("elements-unread", long::unread) },
    heap("elements-in-part", long::in_part),
    Row { megabytes: 1024, ..row("longest-elements", long::longest) },
    Row { prepare: slice::prepare, ends: true, ..row("sigterm", slice::sigterm) },
    Row { full: true, ..row("half-open", half_open::half_open) },
    Row {
        full: true,
        options: &["--requirepass", "secret", "--text-auth", "no"],
        ..row("unauthenticated", half_open::unauthenticated)
    },
    // A quarter of the connections that -c allows may be in handshakes.
    Row { full: true, tls: true, options: &["-c", "4000"], ..row("handshakes", handshakes::standing) },
    Row {
        full: true,
        options: &["--requirepass", "secret", "--text-auth", "no"],
        ..row("wrong-passwords", guesses::wrong_passwords)
    },
];

/// Fills the cache.
pub fn fill(stage: &Stage) -> Result<(), String> {
    let mut requests = said("AUTH secret");
    (0..80_000).for_each(|n| requests.extend(set(format!("key:{n}").as_bytes(), &[b'v'; 1000])));
    prepare(stage, &requests)
}

/// Sends the requests that prepare an attack, and waits for the replies.
fn prepare(stage: &Stage, requests: &[u8]) -> Result<(), String> {
    exchange(stage.resp, requests, PATIENCE).map(drop)
}

/// A SET.
fn set(key: &[u8], value: &[u8]) -> Vec<u8> {
    encode(&[b"SET", key, value])
}

/// The time that `what` took, in words; an error if it is more than `most_ms`.
fn within(took: Duration, most_ms: u64, what: &str) -> Result<String, String> {
    let said = format!("{what} in {:.0} ms", took.as_secs_f64() * 1e3);
    if took <= Duration::from_millis(most_ms) { Ok(said) } else { Err(format!("{said}, not {most_ms}")) }
}
