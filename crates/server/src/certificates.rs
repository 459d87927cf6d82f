//! TLS of the server's listeners: the options of each, and the certificates that were loaded for them.
//!
//! Files are read at start, and all of them again when an administrator says so (`refresh_certs`, SIGHUP, CONFIG SET).
//! What was loaded stays in force until everything could be read. Connections that are open keep what they have.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use larder_commands::Speaks;
use larder_eventloop::Stream;
use larder_tls::{Acceptor, Counters, Files, LoadError, Options, SCRATCH_BYTES, Transport};

use crate::listen::Bound;
use crate::listener::Listener;
use crate::tls::{self, TlsOptions};

/// Options of listeners, and the acceptors that were loaded by them.
#[derive(Debug, Default)]
pub struct Certificates {
    now: RwLock<Now>,
    /// Index of the HTTP listener's acceptor, if it speaks TLS.
    http: Option<usize>,
    /// How often the files were read again. Locked from the look at what is in force to its replacement, so that of two changes
    /// at once each is carried out as a whole.
    changes: Mutex<u64>,
    counters: Arc<Counters>,
    /// When the files were loaded, seconds of the server's time.
    loaded_at_s: AtomicU64,
    /// When expiry is looked at next, seconds of the wall clock.
    look_at_s: AtomicU64,
    /// Connections in handshakes.
    opening: AtomicUsize,
    /// How many handshakes that stand still are to be closed.
    wanted: AtomicUsize,
    /// Connections wait for the room of handshakes.
    waits: AtomicBool,
}

/// Seconds of a day.
const DAY_S: u64 = 86_400;

/// How long before a certificate expires the log warns of it.
const EXPIRY_WARNING_S: u64 = 14 * DAY_S;

/// Handshakes that are closed at a time when there is no room for others. More are when these are not enough.
const WANTED: usize = 8;

/// What is in force.
#[derive(Clone, Debug, Default)]
struct Now {
    /// Options as they were set.
    options: TlsOptions,
    /// The files of listeners as they were read, and behind them those of the HTTP listener.
    loaded: Vec<Loaded>,
}

/// What was in force before a change ([`Certificates::take_back`]).
#[derive(Debug)]
pub struct Before {
    now: Now,
    changes: u64,
}

impl Now {
    fn wanted(&self) -> Vec<(Speaks, Options)> {
        self.loaded.iter().map(|one| (one.speaks, one.options.clone())).collect()
    }
}

/// A listener's options, and the acceptor that was loaded by them.
#[derive(Clone, Debug)]
struct Loaded {
    speaks: Speaks,
    options: Options,
    acceptor: Acceptor,
}

impl Certificates {
    /// Loads what listeners need, and the HTTP listener if it speaks TLS (`http`). Listeners of one protocol with equal
    /// options share them.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn of(
        bound: &[Bound],
        options: &TlsOptions,
        http: Option<Options>,
    ) -> Result<(Vec<Listener>, Certificates), LoadError> {
        let mut wanted: Vec<(Speaks, Options)> = Vec::new();
        let mut place = |at: &Bound| {
            let own = (at.speaks, at.tls.clone()?);
            Some(wanted.iter().position(|other| *other == own).unwrap_or_else(|| {
                wanted.push(own);
                wanted.len() - 1
            }))
        };
        let listener = |at: &Bound| {
            let tls = place(at);
            Listener { tls, ..Listener::new(at.address.clone(), at.speaks) }
        };
        let listeners = bound.iter().map(listener).collect();
        // It is shared with no listener: the number of the others says whether workers speak TLS. It follows the files, as the
        // cache's do.
        let http = http.map(|own| {
            wanted.push((Speaks::Any, own));
            wanted.len() - 1
        });
        let counters = Arc::default();
        let now = Now { options: options.clone(), loaded: load(wanted, &counters)? };
        Ok((listeners, Certificates { now: RwLock::new(now), http, counters, ..Certificates::default() }))
    }

    /// The options as they are set.
    pub fn options(&self) -> TlsOptions {
        self.read().options.clone()
    }

    /// True if a listener of the workers speaks TLS.
    pub fn any(&self) -> bool {
        self.read().loaded.len() > usize::from(self.http_speaks_tls())
    }

    /// True if files were read, for whichever listener.
    pub fn any_files(&self) -> bool {
        !self.read().loaded.is_empty()
    }

    /// True if the HTTP listener speaks TLS.
    pub fn http_speaks_tls(&self) -> bool {
        self.http.is_some()
    }

    /// Makes a connection of the HTTP listener.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn http<S: Stream>(&self, stream: S) -> io::Result<Transport<S>> {
        self.transport(self.http, stream)
    }

    /// Memory of each worker for TLS.
    pub fn worker_bytes(&self) -> u64 {
        if self.any() { SCRATCH_BYTES as u64 } else { 0 }
    }

    /// Reads all files again.
    ///
    /// # Errors
    /// The first file that cannot be used. What was loaded stays in force.
    pub fn refresh(&self, now_s: u64) -> Result<(), LoadError> {
        let mut changes = self.changes();
        let now = self.read().clone();
        self.replace(now, now_s)?;
        *changes += 1;
        Ok(())
    }

    /// Sets parameters of Redis's, all together, and reads all files again. A file that is named serves the cache's
    /// listeners, too.
    ///
    /// # Errors
    /// The parameter that cannot be set so, and why. Everything stays as it was.
    pub fn set(&self, parameters: &[(&str, &str)], now_s: u64) -> Result<Before, (usize, String)> {
        let changes = self.changes();
        let mut next = self.read().clone();
        for (index, (name, value)) in parameters.iter().enumerate() {
            tls::set(&mut next.options.redis, name, value).map_err(|why| (index, why))?;
        }
        next.options.follow_redis();
        for (place, Loaded { speaks, options, .. }) in next.loaded.iter_mut().enumerate() {
            *options = match speaks {
                _ if self.http == Some(place) => next.options.http(),
                Speaks::Redis => next.options.redis.clone(),
                Speaks::Any => next.options.with_files_of(options),
            };
        }
        let now = self.replace(next, now_s).map_err(|error| (0, error.to_string()))?;
        Ok(Before { now, changes: *changes })
    }

    /// Takes a [`Certificates::set`] back. What was in force is so again, whatever has become of its files. If files were read
    /// again since, these are, too.
    pub fn take_back(&self, before: Before, now_s: u64) {
        let changes = self.changes();
        self.now.write().unwrap_or_else(PoisonError::into_inner).clone_from(&before.now);
        if *changes != before.changes {
            let _ = self.replace(before.now, now_s);
        }
    }

    /// Loads what is to be in force, and returns what was.
    fn replace(&self, next: Now, now_s: u64) -> Result<Now, LoadError> {
        let loaded = load(next.wanted(), &self.counters)?;
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        self.loaded_at_s.store(now_s, Relaxed);
        self.look_at_s.store(0, Relaxed);
        Ok(std::mem::replace(&mut *now, Now { options: next.options, loaded }))
    }

    fn changes(&self) -> MutexGuard<'_, u64> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seconds since the files were loaded.
    pub fn age_s(&self, now_s: u64) -> u64 {
        now_s.saturating_sub(self.loaded_at_s.load(Relaxed))
    }

    /// When the first of the certificates expires, seconds since 1970; 0 if there are none.
    pub fn not_after_s(&self) -> u64 {
        let loaded = &self.read().loaded;
        loaded.iter().filter_map(|one| one.acceptor.not_after_s()).min().unwrap_or(0)
    }

    /// Logs that a certificate expires soon, or has: when files were read, and once a day.
    pub fn look_at_expiry(&self, wall_s: u64) {
        if wall_s < self.look_at_s.load(Relaxed) {
            return;
        }
        self.look_at_s.store(wall_s + DAY_S, Relaxed);
        match expiry(self.not_after_s(), wall_s) {
            None => {}
            Some(0) => tracing::error!("a TLS certificate has expired: clients refuse it"),
            Some(days) => tracing::warn!(days, "a TLS certificate expires soon"),
        }
    }

    /// Counts of all TLS connections.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Makes a connection of a listener with these options; a plain one where there are none.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn transport<S: Stream>(&self, options: Option<usize>, stream: S) -> io::Result<Transport<S>> {
        match options {
            None => Ok(Transport::Plain(stream)),
            Some(index) => self.read().loaded[index].acceptor.accept(stream),
        }
    }

    /// Counts a connection that begins its handshake, unless `max` are in theirs.
    pub fn begin(&self, max: usize) -> bool {
        let more = |opening: usize| (opening < max).then_some(opening + 1);
        self.opening.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    /// Notes that a connection's handshake is over, however it ended. True if others wait for its room.
    pub fn end(&self) -> bool {
        self.opening.fetch_sub(1, SeqCst);
        // Pairs with the acceptor, which first says that connections wait and then counts again.
        self.waits.load(SeqCst)
    }

    /// Connections in handshakes.
    pub fn opening(&self) -> usize {
        self.opening.load(SeqCst)
    }

    /// Notes that connections wait for the room of handshakes: some that stand still are to be closed.
    pub fn want_room(&self) {
        self.waits.store(true, SeqCst);
        self.wanted.store(WANTED, SeqCst);
    }

    /// Notes that no connections wait for it any more.
    pub fn have_room(&self) {
        self.waits.store(false, SeqCst);
        self.wanted.store(0, SeqCst);
    }

    /// Takes on to close a handshake that stands still; false if none is to be closed.
    pub fn take_wanted(&self) -> bool {
        self.wanted.fetch_update(SeqCst, SeqCst, |wanted| wanted.checked_sub(1)).is_ok()
    }

    /// Leaves that to other workers, since this one has none to close.
    pub fn leave_wanted(&self) {
        self.wanted.fetch_add(1, SeqCst);
    }

    fn read(&self) -> RwLockReadGuard<'_, Now> {
        self.now.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The days that are left to a certificate, begun ones too, if the log is to warn of it; 0 if it has expired.
fn expiry(not_after_s: u64, wall_s: u64) -> Option<u64> {
    let left_s = not_after_s.saturating_sub(wall_s);
    (not_after_s > 0 && left_s <= EXPIRY_WARNING_S).then_some(left_s.div_ceil(DAY_S))
}

/// Reads the files of all listeners, within one bound.
fn load(wanted: Vec<(Speaks, Options)>, counters: &Arc<Counters>) -> Result<Vec<Loaded>, LoadError> {
    let mut files = Files::default();
    let load = |(speaks, options): (Speaks, Options)| {
        let acceptor = Acceptor::load(&options, counters, &mut files)?;
        Ok(Loaded { speaks, options, acceptor })
    };
    wanted.into_iter().map(load).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Barrier;

    use super::*;

    /// A certificate and its key, in files.
    struct Pair {
        folder: PathBuf,
    }

    impl Pair {
        fn new(name: &str) -> Pair {
            let folder =
                std::env::temp_dir().join(format!("larder-certificates-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&folder).expect("a folder");
            let pair = Pair { folder };
            pair.write();
            pair
        }

        fn write(&self) {
            let made = rcgen::generate_simple_self_signed(["larder.test".to_owned()]).expect("a certificate");
            std::fs::write(self.folder.join("crt"), made.cert.pem()).expect("written");
            std::fs::write(self.folder.join("key"), made.signing_key.serialize_pem()).expect("written");
        }

        fn text(&self, name: &str) -> String {
            self.folder.join(name).display().to_string()
        }

        fn options(&self) -> Options {
            Options { chain: self.folder.join("crt"), key: self.folder.join("key"), ..Options::default() }
        }

        fn is_in_force(&self, certificates: &Certificates) -> bool {
            certificates.options().redis.chain == self.folder.join("crt")
        }
    }

    impl Drop for Pair {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }

    fn certificates(pair: &Pair) -> Certificates {
        let counters = Arc::default();
        let options = TlsOptions { redis: pair.options(), cache: pair.options() };
        let loaded = load(vec![(Speaks::Redis, pair.options())], &counters).expect("good files");
        Certificates { now: RwLock::new(Now { options, loaded }), counters, ..Certificates::default() }
    }

    fn set(certificates: &Certificates, pair: &Pair) -> Before {
        let (chain, key) = (pair.text("crt"), pair.text("key"));
        certificates.set(&[("tls-cert-file", &chain), ("tls-key-file", &key)], 0).expect("good files")
    }

    #[test]
    fn of_a_change_and_a_reload_at_once_neither_is_lost() {
        let (first, second) = (Pair::new("a1"), Pair::new("a2"));
        let certificates = certificates(&first);
        for _ in 0..100 {
            for pair in [&second, &first] {
                let barrier = Barrier::new(2);
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        barrier.wait();
                        certificates.refresh(0).expect("good files");
                    });
                    barrier.wait();
                    set(&certificates, pair);
                });
                assert!(pair.is_in_force(&certificates), "what was said to be set is");
            }
        }
    }

    #[test]
    fn it_is_told_in_the_last_fourteen_days_that_a_certificate_expires() {
        let end = 1_800_000_000;
        for (left_s, told) in [
            (EXPIRY_WARNING_S + 1, None),
            (EXPIRY_WARNING_S, Some(14)),
            (EXPIRY_WARNING_S - 1, Some(14)),
            (DAY_S + 1, Some(2)),
            (1, Some(1)),
            (0, Some(0)),
        ] {
            assert_eq!(expiry(end, end - left_s), told, "{left_s}");
        }
        assert_eq!((expiry(end, end + 5), expiry(0, end)), (Some(0), None));
    }

    #[test]
    fn http_follows_the_files_and_reads_no_authorities() {
        let (first, second) = (Pair::new("c1"), Pair::new("c2"));
        let redis = Options { authorities: Some(first.folder.join("none")), ..first.options() };
        let options = TlsOptions { redis, cache: first.options() };
        let loaded = Certificates::of(&[], &options, Some(options.http()));
        let (_, certificates) = loaded.expect("what clients show is not asked for");
        let for_tls = crate::admin::thread_bytes(&certificates) - crate::admin::THREAD_BYTES;
        assert!(for_tls > 0 && for_tls <= 433 << 10, "{for_tls}");
        for pair in [&first, &second] {
            set(&certificates, pair);
            certificates.refresh(0).expect("good files");
            let options = &certificates.read().loaded[0].options;
            assert_eq!((&options.chain, &options.authorities), (&pair.folder.join("crt"), &None));
            assert!(options.resumption);
        }
    }

    #[test]
    fn a_change_is_taken_back_though_the_files_of_before_are_gone() {
        let (first, second) = (Pair::new("b1"), Pair::new("b2"));
        let certificates = certificates(&first);
        let before = set(&certificates, &second);
        std::fs::remove_file(first.folder.join("crt")).expect("it is there");
        certificates.take_back(before, 0);
        assert!(first.is_in_force(&certificates));
        // Files that were read again meanwhile are read again for what is so again.
        first.write();
        let before = set(&certificates, &second);
        certificates.refresh(1).expect("good files");
        certificates.take_back(before, 7);
        assert!(first.is_in_force(&certificates));
        assert_eq!(certificates.age_s(7), 0);
    }
}
