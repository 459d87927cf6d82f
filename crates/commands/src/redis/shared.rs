//! What the RESP clients of all workers share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_store::Millis;

use crate::core::errors::Errors;
use crate::redis::connection::client::Clients;
use crate::redis::connection::limits::Limits;
use crate::redis::server::config::Parameters;
use crate::redis::server::latency::Latency;

use crate::core::calls::RowSum;
use crate::core::events::Events;
use crate::core::topics::Topics;
use crate::redis::server::slowlog::Slowlog;

/// Shared by all RESP clients.
#[derive(Debug)]
pub struct Common {
    pub(crate) clients: Arc<Clients>,
    pub(crate) limits: Limits,
    pub(crate) access: Access,
    /// Which keyspace events are wanted.
    pub(crate) events: Events,
    /// Who listens to what.
    pub(crate) topics: Arc<Topics>,
    /// Bytes that commands take between MULTI and EXEC.
    pub(crate) queued_bytes: Arc<AtomicU64>,
    pub(crate) parameters: Parameters,
    pub(crate) slowlog: Slowlog,
    /// Events that took long.
    pub(crate) latency: Latency,
    /// Errors that were answered.
    pub(crate) errors: Errors,
    /// How much there is to do, lately.
    pub(crate) rates: Rates,
    /// The most memory that was seen to be used.
    pub(crate) used_peak: AtomicU64,
    /// What was counted of each command at the last CONFIG RESETSTAT.
    pub(crate) counted: Mutex<Vec<RowSum>>,
    pub(crate) pause: Pause,
    /// What `maxmemory` was set to, if that is less than there can be: what may need memory is refused. Else 0.
    pub(crate) starved_bytes: AtomicU64,
    /// What INFO tells apart one run of the server from another by.
    pub(crate) run_id: u128,
    random: AtomicU64,
}

impl Common {
    pub(crate) fn new(access: Access) -> Common {
        use std::hash::{BuildHasher, Hasher};
        let random = || std::hash::RandomState::new().build_hasher().finish();
        Common {
            clients: Arc::default(),
            limits: Limits::default(),
            access,
            parameters: Parameters::default(),
            slowlog: Slowlog::default(),
            latency: Latency::default(),
            errors: Errors::default(),
            rates: Rates::default(),
            used_peak: AtomicU64::new(0),
            counted: Mutex::default(),
            pause: Pause::default(),
            starved_bytes: AtomicU64::new(0),
            run_id: u128::from(random()) << 64 | u128::from(random()),
            random: AtomicU64::new(random()),
            events: Events::default(),
            topics: Arc::default(),
            queued_bytes: Arc::default(),
        }
    }

    /// Counts commands and errors anew.
    pub(crate) fn reset_counts(&self, host: &dyn crate::core::host::Host) {
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner) =
            crate::core::calls::sums(|visit| host.counters(visit), &[]);
        self.errors.reset();
    }

    /// Some number.
    pub(crate) fn random(&self) -> u64 {
        // splitmix64: good enough to pick a key by.
        let n = self.random.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed);
        let n = (n ^ n >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let n = (n ^ n >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        n ^ n >> 31
    }
}

/// Looks at the counters that rates are taken from.
const LOOKS: usize = 16;

/// What is counted for rates: commands, bytes in, bytes out.
pub(crate) type Counts = [u64; 3];

/// How much there is to do: counts of the last looks, of which upkeep takes some a second.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<VecDeque<(Millis, Counts)>>);

impl Rates {
    /// Takes a look.
    pub fn look(&self, now: Millis, counts: Counts) {
        let mut looks = self.looks();
        // Counted anew, or the clock was moved.
        if looks.back().is_some_and(|(at, last)| *at > now || last.iter().zip(&counts).any(|(a, b)| a > b)) {
            looks.clear();
        }
        looks.push_back((now, counts));
        if looks.len() > LOOKS {
            looks.pop_front();
        }
    }

    /// Each of the counts a second.
    pub fn per_second(&self) -> Counts {
        let looks = self.looks();
        let (Some((from, first)), Some((to, last))) = (looks.front(), looks.back()) else { return [0; 3] };
        let ms = to - from;
        std::array::from_fn(|i| ((last[i] - first[i]) * 1000).checked_div(ms).unwrap_or(0))
    }

    fn looks(&self) -> MutexGuard<'_, VecDeque<(Millis, Counts)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// CLIENT PAUSE: until when commands wait, and which.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    until: AtomicU64,
    writes_only: AtomicBool,
}

impl Pause {
    /// Commands wait until then. A pause that lasts longer stays, and one of all commands is of all.
    pub fn begin(&self, now: Millis, until: Millis, writes_only: bool) {
        let all = self.left_ms(now) > 0 && !self.writes_only();
        self.writes_only.store(writes_only && !all, Relaxed);
        self.until.fetch_max(until, Relaxed);
    }

    pub fn end(&self) {
        self.until.store(0, Relaxed);
    }

    /// How long commands wait at `now`; 0 if they do not.
    #[inline]
    pub fn left_ms(&self, now: Millis) -> u64 {
        self.until.load(Relaxed).saturating_sub(now)
    }

    pub fn writes_only(&self) -> bool {
        self.writes_only.load(Relaxed)
    }
}

/// Who may speak: passwords of the default user and of named ones.
#[derive(Debug, Default)]
pub struct Access {
    users: Mutex<Users>,
    protected: AtomicBool,
}

#[derive(Clone, Debug, Default)]
struct Users {
    /// The default user's password; empty: none is asked for.
    password: Box<str>,
    /// Named users and their passwords.
    named: Vec<(Box<str>, Box<str>)>,
}

/// A user, as ACL shows one.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub name: Box<str>,
    /// Somebody may say that he is this user.
    pub may_enter: bool,
    /// Any password is right.
    pub without_password: bool,
}

impl Users {
    fn asks(&self) -> bool {
        !self.password.is_empty() || !self.named.is_empty()
    }
}

impl Access {
    /// A password for the default user (empty: none), and further users with theirs.
    /// `protected`: as long as there is none, clients of this machine alone may speak.
    pub fn new(password: &str, named: &[(String, String)], protected: bool) -> Access {
        let named = named.iter().map(|(user, password)| (user.as_str().into(), password.as_str().into()));
        let users = Users { password: password.into(), named: named.collect() };
        Access { users: Mutex::new(users), protected: AtomicBool::new(protected) }
    }

    /// A client that nobody asks for a password is on another machine, and is not to speak.
    pub(crate) fn turns_away(&self, local: bool) -> bool {
        !local && self.protected() && !self.asks()
    }

    /// Protected mode is on.
    pub(crate) fn protected(&self) -> bool {
        self.protected.load(Relaxed)
    }

    /// Turns protected mode on or off; who speaks goes on.
    pub(crate) fn protect(&self, protected: bool) {
        self.protected.store(protected, Relaxed);
    }

    /// A client has to say who it is.
    pub fn asks(&self) -> bool {
        self.users().asks()
    }

    /// All users, the default one first.
    pub(crate) fn all(&self) -> Vec<User> {
        let users = self.users();
        let open = !users.asks();
        let may_enter = open || !users.password.is_empty();
        let default = User { name: "default".into(), may_enter, without_password: open };
        let named = users.named.iter().map(|(name, _)| name.clone());
        let named = named.map(|name| User { name, may_enter: true, without_password: false });
        std::iter::once(default).chain(named).collect()
    }

    /// The default user's password.
    pub fn password(&self) -> String {
        self.users().password.to_string()
    }

    /// Sets the default user's password; those who are in stay in.
    pub fn set_password(&self, password: &str) {
        self.users().password = password.into();
    }

    /// Whether this user has this password. A default user without one has any.
    pub fn admits(&self, user: &[u8], password: &[u8]) -> bool {
        let users = self.users();
        if user == b"default"
            && (!users.asks() || !users.password.is_empty() && same(users.password.as_bytes(), password))
        {
            return true;
        }
        let mut admitted = false;
        for (name, secret) in &users.named {
            admitted |= name.as_bytes() == user && same(secret.as_bytes(), password);
        }
        admitted
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares without telling by the time it takes where the difference is.
fn same(one: &[u8], two: &[u8]) -> bool {
    let mut differ = one.len() ^ two.len();
    for (i, byte) in two.iter().enumerate() {
        differ |= usize::from(byte ^ one.get(i).copied().unwrap_or(0));
    }
    differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_of_the_last_looks_and_begin_anew_with_the_counters() {
        let rates = Rates::default();
        assert_eq!(rates.per_second(), [0; 3]);
        for n in 0..100u64 {
            rates.look(1000 + n * 100, [n * 10, n * 1000, 0]);
        }
        assert_eq!(rates.per_second(), [100, 10_000, 0]);
        rates.look(20_000, [5, 5, 5]);
        assert_eq!(rates.per_second(), [0; 3]);
    }

    #[test]
    fn only_the_right_password_admits() {
        let open = Access::default();
        assert!(!open.asks() && open.admits(b"default", b"anything") && !open.admits(b"app", b""));
        let closed = Access::new("secret", &[("app".into(), "other".into())], true);
        assert!(closed.asks());
        assert!(closed.admits(b"default", b"secret") && closed.admits(b"app", b"other"));
        for bad in [&b""[..], b"secre", b"secrets", b"other"] {
            assert!(!closed.admits(b"default", bad));
        }
        assert!(!closed.admits(b"app", b"secret"));
        let named = Access::new("", &[("app".into(), "other".into())], true);
        assert!(named.asks() && !named.admits(b"default", b""));
    }
}
