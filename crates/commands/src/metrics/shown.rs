//! Parts of a page beside figures: commands that took long or were large, clients, and parameters that were set while the
//! server ran.
//!
//! Values are shown nowhere. Keys, and what clients tell of themselves, are private: the caller decides to which clients it
//! shows them.

use std::sync::atomic::Ordering::Relaxed;

use super::Scene;
use crate::core::access::Access;
use crate::redis::commandlog::Kind;
use crate::redis::shown::{Logged, RespClient};
use crate::redis::table::row;
use crate::shared::Shared;

impl Shared {
    /// The users: what is shown by HTTP needs their passwords, too.
    pub fn access(&self) -> &Access {
        &self.common.access
    }

    /// Returns whether RESP clients must log in.
    pub fn asks_who(&self) -> bool {
        self.common.access.asks()
    }

    /// The last commands that took long, at most `most`, the last one first.
    pub fn slow_commands(&self, most: usize) -> Vec<Logged> {
        self.redis.commandlog.last_of(Kind::Slow, most)
    }

    /// Microseconds that a command may take without being listed; less than 0: none is listed.
    pub fn slow_from_us(&self) -> i64 {
        self.redis.commandlog.from(Kind::Slow)
    }

    /// The last commands with large requests, and those with large replies, at most `most` of each, the last one first; and the
    /// bytes from which on each are listed.
    pub fn large_commands(&self, most: usize) -> [(&'static str, i64, Vec<Logged>); 2] {
        [Kind::LargeRequest, Kind::LargeReply].map(|kind| {
            let log = &self.redis.commandlog;
            (kind.name(), log.from(kind), log.last_of(kind, most))
        })
    }

    /// Calls `visit` with RESP clients, one after another, those with the most commands first, at most `most` and as long as it
    /// returns true. Returns how many clients there are. Takes 16 bytes for each of these.
    pub fn each_resp_client(
        &self,
        scene: Scene<'_>,
        most: usize,
        visit: &mut dyn FnMut(&RespClient) -> bool,
    ) -> usize {
        let now = self.now(scene.system);
        let mut all = self.redis.clients.list();
        let count = all.len();
        all.sort_by_key(|facts| std::cmp::Reverse(facts.commands.load(Relaxed)));
        all.truncate(most);
        let mut clients = all.iter().map(|facts| {
            let names = facts.names();
            let space = if names.library_version.is_empty() { "" } else { " " };
            RespClient {
                id: facts.id,
                address: facts.address.clone(),
                name: names.name,
                library: format!("{}{space}{}", names.library, names.library_version),
                age_s: now.saturating_sub(facts.since) / 1000,
                idle_s: now.saturating_sub(facts.active.load(Relaxed)) / 1000,
                flags: facts.flags(),
                db: facts.db.load(Relaxed),
                resp: if facts.resp3.load(Relaxed) { 3 } else { 2 },
                last: row(facts.row.load(Relaxed)).map_or("", |row| row.name),
                commands: facts.commands.load(Relaxed),
                received_bytes: facts.received_bytes.load(Relaxed),
                replied_bytes: facts.replied_bytes.load(Relaxed),
                waiting_bytes: facts.output_bytes.load(Relaxed),
            }
        });
        // One at a time: the names that a client gives itself may have some KiB.
        let _ = clients.all(|client| visit(&client));
        count
    }

    /// Calls `visit` with each parameter that CONFIG SET has set and that is kept for CONFIG GET alone, passwords
    /// excepted.
    pub fn each_parameter_set(&self, visit: &mut dyn FnMut(&'static str, &str)) {
        self.redis.parameters.each_set(visit);
    }

    /// Calls `visit` with each event of LATENCY, the second of its latest time, and that time in milliseconds.
    pub fn each_latency_event(&self, visit: &mut dyn FnMut(&'static str, u64, u64)) {
        self.redis.latency.each_latest(visit);
    }
}
