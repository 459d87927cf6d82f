//! TLS of the server's listeners: the options of each, and the certificates that were loaded for them.
//!
//! Files are read at start, and all of them again when an administrator says so (`refresh_certs`, SIGHUP, CONFIG SET).
//! What was loaded stays in force until everything could be read. Connections that are open keep what they have.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use larder_commands::Speaks;
use larder_eventloop::Stream;
use larder_tls::{Acceptor, Counters, LoadError, Options, SCRATCH_BYTES, Transport};

use crate::listen::Bound;
use crate::listener::Listener;
use crate::tls::{self, TlsOptions};

/// Options of listeners, and what makes connections by them.
#[derive(Debug, Default)]
pub struct Certificates {
    now: RwLock<Now>,
    counters: Arc<Counters>,
    /// When they were loaded, seconds of the server's time.
    loaded_at_s: AtomicU64,
    /// Connections in handshakes.
    opening: AtomicUsize,
}

/// What is in force.
#[derive(Clone, Debug, Default)]
struct Now {
    /// As they were set.
    options: TlsOptions,
    /// Of listeners, whose files were read.
    loaded: Vec<Loaded>,
}

/// A listener's options, and what makes connections by them.
#[derive(Clone, Debug)]
struct Loaded {
    speaks: Speaks,
    options: Options,
    acceptor: Acceptor,
}

impl Certificates {
    /// Loads what listeners need. Listeners of one protocol with equal options share them.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub fn of(bound: &[Bound], options: &TlsOptions) -> Result<(Vec<Listener>, Certificates), LoadError> {
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
        let counters = Arc::default();
        let now = Now { options: options.clone(), loaded: load(wanted, &counters)? };
        Ok((listeners, Certificates { now: RwLock::new(now), counters, ..Certificates::default() }))
    }

    /// The options as they are set.
    pub fn options(&self) -> TlsOptions {
        self.read().options.clone()
    }

    /// Some listener speaks TLS.
    pub fn any(&self) -> bool {
        !self.read().loaded.is_empty()
    }

    /// Memory of each worker for it.
    pub fn worker_bytes(&self) -> u64 {
        if self.any() { SCRATCH_BYTES as u64 } else { 0 }
    }

    /// Reads all files again.
    ///
    /// # Errors
    /// The first file that cannot be used. What was loaded stays in force.
    pub fn refresh(&self, now_s: u64) -> Result<(), LoadError> {
        // The lock is free again before it is taken to write.
        let now = self.read().clone();
        self.replace(now, now_s)
    }

    /// Sets parameters of Redis's, all together, and reads all files again. A file that is named serves the cache's
    /// listeners, too.
    ///
    /// # Errors
    /// The parameter that cannot be set so, and why. Everything stays as it was.
    pub fn set(&self, parameters: &[(&str, &str)], now_s: u64) -> Result<(), (usize, String)> {
        let mut next = self.read().clone();
        for (index, (name, value)) in parameters.iter().enumerate() {
            tls::set(&mut next.options.redis, name, value).map_err(|why| (index, why))?;
        }
        next.options.follow_redis();
        for Loaded { speaks, options, .. } in &mut next.loaded {
            *options = match speaks {
                Speaks::Redis => next.options.redis.clone(),
                Speaks::Any => next.options.with_files_of(options),
            };
        }
        self.replace(next, now_s).map_err(|error| (0, error.to_string()))
    }

    fn replace(&self, next: Now, now_s: u64) -> Result<(), LoadError> {
        let Now { options, loaded } = next;
        let wanted = loaded.into_iter().map(|one| (one.speaks, one.options)).collect();
        let loaded = load(wanted, &self.counters)?;
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = Now { options, loaded };
        self.loaded_at_s.store(now_s, Relaxed);
        Ok(())
    }

    /// Seconds since they were loaded.
    pub fn age_s(&self, now_s: u64) -> u64 {
        now_s.saturating_sub(self.loaded_at_s.load(Relaxed))
    }

    /// Counts of all TLS connections.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A connection of a listener with these options; a plain one where there are none.
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
        self.opening.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// A connection's handshake is over, however it ended.
    pub fn end(&self) {
        self.opening.fetch_sub(1, Relaxed);
    }

    /// Connections in handshakes.
    pub fn opening(&self) -> usize {
        self.opening.load(Relaxed)
    }

    fn read(&self) -> RwLockReadGuard<'_, Now> {
        self.now.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn load(wanted: Vec<(Speaks, Options)>, counters: &Arc<Counters>) -> Result<Vec<Loaded>, LoadError> {
    let load = |(speaks, options): (Speaks, Options)| {
        let acceptor = Acceptor::load(&options, counters)?;
        Ok(Loaded { speaks, options, acceptor })
    };
    wanted.into_iter().map(load).collect()
}
