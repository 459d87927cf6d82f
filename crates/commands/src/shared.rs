//! What all workers share beside the store: what all conversations do, and what those of each protocol do.

use std::collections::HashSet;
use std::sync::atomic::{Ordering::SeqCst, fence};

use larder_store::{Guard, Millis, Store};

use crate::core::access::{FiledUsers, Followed, RuledUsers, UsersNow};
use crate::core::acl::user::User;
use crate::core::context::Room;
use crate::core::digest::Digest;
use crate::core::figures::Place;
use crate::core::figures::types::{OfType, TYPES, of_types};
use crate::core::host::{Host, Peer};
use crate::core::shared::Settings;
use crate::core::traffic::{Ages, Delimiters, HotKeys, PrefixShares};
use crate::core::watchers::{Scene, stream};
use crate::redis::settings::RedisSettings;
use crate::redis::{LEFT_ROUNDS, Serving};
use crate::{core, memcached, redis};

/// What all workers share beside the store.
#[derive(Debug)]
pub struct Shared {
    /// What conversations of every protocol share.
    pub common: core::shared::Shared,
    /// What memcached's do.
    pub memcached: memcached::shared::Shared,
    /// What Redis's do.
    pub(crate) redis: redis::shared::Shared,
}

// The part that a conversation works with (`Converse::Shared`).
impl AsRef<core::shared::Shared> for Shared {
    #[inline]
    fn as_ref(&self) -> &core::shared::Shared {
        &self.common
    }
}

impl AsRef<memcached::shared::Shared> for Shared {
    #[inline]
    fn as_ref(&self) -> &memcached::shared::Shared {
        &self.memcached
    }
}

impl AsRef<redis::shared::Shared> for Shared {
    #[inline]
    fn as_ref(&self) -> &redis::shared::Shared {
        &self.redis
    }
}

/// Reads lines of users and what they may do, which are in the file or behind the option of this name; beside them users have
/// these passwords, and a new one may use all channels or none.
///
/// # Errors
/// What is wrong with them.
pub fn ruled_users(
    lines: &[u8],
    name: &str,
    known: (Option<&Digest>, &[(String, Digest)]),
    all_channels: bool,
) -> Result<RuledUsers, String> {
    RuledUsers::read(lines, name, known, all_channels, redis::catalog())
}

impl Shared {
    /// What is shared at the start, with these settings, and these of RESP's.
    pub fn new(settings: Settings, redis: RedisSettings) -> Shared {
        let memcached = memcached::shared::Shared::new(&settings, &memcached::table::NAMES);
        let common = core::shared::Shared::new(settings);
        common.access.allow_all_channels(common.settings.all_channels);
        common.access.ask_as(redis::catalog());
        // These are as many as were checked, with the same passwords.
        common.access.begin_with(common.settings.ruled.users());
        common.watchers.show_classes(|class| memcached.slabs.of(class));
        let (rows, catalog) = (&redis::table::ROWS, redis::catalog());
        let redis = redis::shared::Shared::new(redis, rows, catalog, redis::table::name_of);
        Shared { memcached, redis, common }
    }

    /// The users as they are now. It waits for a change that goes on: once for many connections, not for each.
    pub fn users_now(&self) -> UsersNow {
        UsersNow(self.common.access.users())
    }

    /// Carries out what two readings of the files of users differ in; connections of users that are gone are closed. What
    /// clients have changed meanwhile, and both readings have, stays as they have changed it.
    pub fn follow_files(&self, before: &FiledUsers, now: &FiledUsers, host: &dyn Host) -> Followed {
        let access = &self.common.access;
        let ruled: HashSet<&str> = self.common.settings.ruled.users().iter().map(User::name).collect();
        let (done, gone) = access.follow(before, now, &ruled);
        if done == Followed::default() {
            return done;
        }
        // Each connection looks at its user again from here on, whatever the time is. A client that logs in meanwhile has seen
        // the users of now, or is in the list.
        self.common.look_in_time(0);
        fence(SeqCst);
        if !gone.is_empty() {
            let clients = self.redis.clients.list();
            for facts in clients.iter().filter(|facts| gone.contains(&facts.user_id())) {
                if facts.turn_out(&access.log) {
                    host.kill(facts.place, facts.id);
                }
            }
            host.users_removed();
        }
        done
    }

    /// The server's time when the system's is `system`: what guards are entered at.
    #[inline]
    pub fn now(&self, system: Millis) -> Millis {
        self.common.clock.now(system)
    }

    /// The same in microseconds.
    #[inline]
    pub fn now_us(&self, system_us: u64) -> u64 {
        self.common.clock.now_us(system_us)
    }

    /// Flushes the store if a delayed flush_all is due. Conversations do so too: workers that receive nothing call it on
    /// their tick, so that a flush happens in time without traffic.
    #[inline]
    pub fn flush_if_due(&self, guard: &mut Guard<'_>) {
        self.common.flush_if_due(guard);
    }

    /// Publishes what the store did by itself: a conversation does it at the end of a receive, upkeep has to.
    #[inline]
    pub fn tell_events(&self, guard: &mut Guard<'_>, host: &dyn Host) {
        self.common.tell_events(guard, host);
    }

    /// Ends the scripts that go on in later turns of their workers, which may be for ever; they have changed nothing. For the end
    /// of the server.
    pub fn end_scripts(&self) {
        self.redis.scripts.each_running(|running| {
            if running.is_paused() {
                running.kill();
            }
        });
    }

    /// Goes on publishing keyspace events that wait, for so many nanoseconds or a little longer. True if there are more.
    pub fn go_on_telling(&self, host: &dyn Host, store: &Store, ns_max: u64) -> bool {
        if !self.common.telling.waits() {
            return false;
        }
        self.common.go_on_telling(host, store, ns_max);
        self.common.telling.waits()
    }

    /// Forgets some of what clients that are gone have listened to; true if there is more.
    pub fn forget_subscriptions(&self, store: &Store) -> bool {
        self.common.topics.forget_left(store)
    }

    /// Finishes what is left of clients that waited and whose connections have ended: what was popped for one of them is put
    /// back. And wakes clients that wait for a stream to which something happened without a command of Redis's: a text client's,
    /// expiry, eviction. The server calls it after it has ended connections, and in upkeep now and then.
    #[inline]
    pub fn serve_left(&self, guard: &mut Guard<'_>, host: &dyn Host) {
        let (left, called) = (self.redis.waiters.has_left(), guard.has_called());
        if left || called {
            let (rows, waiters) = (self.redis.rows, &self.redis.waiters);
            let mut serving = Serving { guard, common: &self.common, rows, waiters, host, own: None };
            serving.called();
            serving.left(LEFT_ROUNDS);
        }
    }

    /// [`Shared::serve_left`] did not come to its end, and has no keys to wait for.
    pub fn is_left_more(&self) -> bool {
        let is_held = self.has_left() && self.common.pause.holds.any();
        if is_held {
            self.common.pause.holds.note_waiter();
        }
        self.has_left() && !is_held
    }

    /// There is something for [`Shared::serve_left`] to do.
    #[inline]
    pub fn has_left(&self) -> bool {
        self.redis.waiters.has_left()
    }

    /// Notes how much there is to do, how much memory is used, and now and then what happened. From one worker's upkeep.
    pub fn look(&self, now: Millis, host: &dyn Host, store: &Store) {
        self.redis.look(now, host, store.used_bytes());
        self.common.last_minute.look(Place { shared: &self.common, host, store, now });
    }

    /// Begins to sample traffic of so many workers, which [`Shared::count_samples`] counts; at a time of the server's own clock.
    pub fn show_traffic(&self, store: &Store, workers: u32, now: Millis) {
        let settings = &self.common.settings;
        let delimiters = Delimiters::new(settings.detail.then_some(settings.prefix_delimiter));
        self.common.traffic.show(store, workers, now, delimiters);
    }

    /// Workers that begin to sample from here on draw by this: for simulations, in each run of which the same requests are
    /// sampled. Which keys the forecast follows stays chance.
    pub fn draw_samples_by(&self, seed: u64) {
        self.common.traffic.draw_by(seed);
    }

    /// Ends that.
    pub fn hide_traffic(&self, store: &Store) {
        self.common.traffic.hide(store);
    }

    /// Counts samples that wait, some of each worker, at a time of the server's own clock; how many.
    pub fn count_samples(&self, store: &Store, now: Millis) -> usize {
        self.common.traffic.count(store, now)
    }

    /// Does what is asked of a worker that samples, whose room this is, and frees some of what was counted by prefix and
    /// forgotten. From its upkeep, at a time of the server's own clock.
    pub fn tend_samples(&self, room: &Room, store: &Store, now: Millis) {
        self.common.prefixes.free_some(store);
        room.tap().tend(&self.common.traffic, store, now);
    }

    /// A client is shown what is sampled.
    #[inline]
    pub fn shows_traffic(&self) -> bool {
        self.common.traffic.is_shown()
    }

    /// Samples are taken which upkeep alone counts.
    pub fn counts_samples(&self) -> bool {
        self.common.traffic.is_left_to_upkeep()
    }

    /// The keys that were asked for most in the last seconds, so many at most; none if traffic is not sampled.
    pub fn hot_keys(&self, most: usize) -> Option<HotKeys> {
        self.common.traffic.hot_keys(most)
    }

    /// The prefixes whose keys were asked for most in the last seconds, so many at most; none if traffic is not sampled.
    pub fn prefix_shares(&self, most: usize) -> Option<PrefixShares> {
        self.common.traffic.prefix_shares(most)
    }

    /// Looks at some of what is there, while traffic is sampled. From one worker's upkeep, at a time of the server's own clock.
    pub fn sample_items(&self, guard: &mut Guard<'_>, now: Millis) {
        self.common.traffic.items.step(guard, now);
    }

    /// Looks for keys of databases of few beside many of others, for RANDOMKEY. From one worker's upkeep, at a time of the
    /// server's own clock.
    pub fn look_for_rare_keys(&self, guard: &mut Guard<'_>, now: Millis) {
        self.redis.rare.step(guard, now);
    }

    /// How long what is there has left, and how long it was not read; none without a reader, or if nothing was seen.
    pub fn ages(&self) -> Option<Ages> {
        self.common.traffic.items.ages()
    }

    /// What there is of each type of values.
    pub fn types(&self, store: &Store) -> [OfType; TYPES] {
        of_types(&self.common, store)
    }

    /// A watcher watches connections.
    #[inline]
    pub fn watches_connections(&self) -> bool {
        self.common.watchers.wants(stream::CONNEVENTS)
    }

    /// Sends watchers a line: this connection was opened, or, for this reason, closed.
    #[cold]
    pub fn watch_connection(
        &self,
        host: &dyn Host,
        store: &Store,
        now: Millis,
        peer: &dyn Peer,
        closed: Option<&'static str>,
    ) {
        self.common.watchers.tell_connection(Scene { host, store, now }, peer, closed);
    }

    /// Sends watchers a line: TLS failed on this connection, for this reason.
    #[cold]
    pub fn watch_failure(&self, host: &dyn Host, store: &Store, now: Millis, peer: &dyn Peer, why: &str) {
        self.common.watchers.tell_failure(Scene { host, store, now }, peer, why);
    }

    /// Upkeep is to be measured, for [`Shared::note_upkeep`].
    #[inline]
    pub fn watches_latency(&self) -> bool {
        self.redis.latency.watches()
    }

    /// A round of upkeep took this long: LATENCY notes it if it was long.
    pub fn note_upkeep(&self, now: Millis, took_us: u64) {
        self.redis.note_upkeep(now, took_us);
    }

    /// A worker was held up for this long: LATENCY notes it if it was long.
    pub fn note_stall(&self, now: Millis, took_us: u64) {
        self.redis.note_stall(now, took_us);
    }
}
