//! Which clients may speak: users and their passwords, and whether a connection has said who it is.
//!
//! One table for every protocol: `AUTH` and `HELLO` of RESP, and the `set` by which memcached's text clients say who they
//! are (`memcached/login.rs`), look in it. A row is two digests. A look compares all rows, whatever is in them and
//! whatever is asked for: a user that is not there, and a password of another length, take the same work as one that is
//! nearly right.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use subtle::{Choice, ConstantTimeEq};

use super::context::Context;
use super::digest::Digest;
use super::strangers::Stranger;

/// The user that a client is that names none.
pub(crate) const DEFAULT_USER: &str = "default";

/// Most bytes of a password, and of a user's name: as many as Redis takes of a client that has not said who it is. Who
/// sends more is wrong without being looked at.
pub const SECRET_BYTES_MAX: usize = 16 << 10;

/// What it takes to look whether somebody is a user: to begin, for each byte of what was said, and for each row.
const LOOK_NS: u64 = 1_000;
const LOOK_BYTE_NS: u64 = 4;
const LOOK_ROW_NS: u64 = 100;

/// Which clients may speak.
#[derive(Debug)]
pub struct Access {
    users: Mutex<Arc<Users>>,
    /// There is a password: what each connection asks, without the lock.
    asks: AtomicBool,
    protected: AtomicBool,
}

/// The rows. The default user has one if it has a password.
#[derive(Clone, Debug)]
struct Users {
    default: Option<Row>,
    named: Vec<Row>,
}

/// A user, and a password that is right for it. A user may have several rows.
#[derive(Clone)]
struct Row {
    name: Box<str>,
    name_digest: Digest,
    password: Digest,
}

impl Row {
    fn new(name: &str, password: Digest) -> Row {
        Row { name: name.into(), name_digest: name.into(), password }
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("name", &self.name).finish_non_exhaustive()
    }
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
        self.default.is_some() || !self.named.is_empty()
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.default.iter().chain(&self.named)
    }

    /// Whether a row has both; and how many rows were compared, which are all of them.
    fn find(&self, user: &[u8], password: &[u8]) -> (bool, usize) {
        let (user, password) = (Digest::of(user), Digest::of(password));
        let (mut found, mut compared) = (Choice::from(0), 0);
        for row in self.rows() {
            found |= row.name_digest.ct_eq(&user) & row.password.ct_eq(&password);
            compared += 1;
        }
        (found.into(), compared)
    }
}

impl Default for Access {
    fn default() -> Access {
        Access::new(None, &[], true)
    }
}

impl Access {
    /// The default user's password, if it has one, and further users with theirs.
    /// `protected`: as long as there is none, clients of this machine alone may speak.
    pub fn new(password: Option<&Digest>, named: &[(String, Digest)], protected: bool) -> Access {
        let default = password.map(|password| Row::new(DEFAULT_USER, password.clone()));
        let named = named.iter().map(|(user, password)| Row::new(user, password.clone())).collect();
        let users = Users { default, named };
        Access {
            asks: AtomicBool::new(users.asks()),
            users: Mutex::new(Arc::new(users)),
            protected: AtomicBool::new(protected),
        }
    }

    /// A client that nobody has asked for a password is on another machine, and is not to speak.
    pub(crate) fn turns_away_unasked(&self, local: bool) -> bool {
        !local && self.protected()
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
        self.asks.load(Relaxed)
    }

    /// All users, the default one first, each once.
    pub(crate) fn all(&self) -> Vec<User> {
        let users = self.users();
        let open = !users.asks();
        let may_enter = open || users.default.is_some();
        let mut all = vec![User { name: DEFAULT_USER.into(), may_enter, without_password: open }];
        let mut known = HashSet::new();
        for row in &users.named {
            if *row.name == *DEFAULT_USER {
                all[0].may_enter = true;
            } else if known.insert(&row.name) {
                all.push(User { name: row.name.clone(), may_enter: true, without_password: false });
            }
        }
        all
    }

    /// The default user's password; none: it has none.
    pub(crate) fn password(&self) -> Option<Digest> {
        self.users().default.as_ref().map(|row| row.password.clone())
    }

    /// Sets the default user's password, or takes it away; those who are in stay in.
    pub(crate) fn set_password(&self, password: Option<Digest>) {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut users).default = password.map(|password| Row::new(DEFAULT_USER, password));
        self.asks.store(users.asks(), Relaxed);
    }

    /// Whether this user has this password. The default user has any while nobody is asked for one.
    pub fn admits(&self, user: &[u8], password: &[u8]) -> bool {
        let users = self.users();
        if !users.asks() {
            return user == DEFAULT_USER.as_bytes();
        }
        user.len() <= SECRET_BYTES_MAX && password.len() <= SECRET_BYTES_MAX && users.find(user, password).0
    }

    /// What [`Access::admits`] takes, of a name and a password that have so many bytes together.
    pub(crate) fn look_ns(&self, bytes: usize) -> u64 {
        let bytes = bytes.min(2 * SECRET_BYTES_MAX) as u64;
        LOOK_NS + LOOK_BYTE_NS * bytes + LOOK_ROW_NS * self.users().rows().count() as u64
    }

    /// The rows as they are now: looked through without the lock.
    fn users(&self) -> Arc<Users> {
        Arc::clone(&self.users.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether a connection has said who it is.
#[derive(Debug)]
pub(crate) struct Standing {
    /// It has, or need not.
    admitted: bool,
    /// It has to, and did not.
    stranger: Option<Stranger>,
}

impl Standing {
    /// Of a connection that has just begun to speak.
    pub fn new(cx: &Context<'_, '_>) -> Standing {
        let asks = cx.shared.access.asks();
        let stranger = asks.then(|| strange(cx, cx.shared.settings.strangers_max)).flatten();
        Standing { admitted: !asks, stranger }
    }

    /// It has said who it is, or need not.
    #[inline]
    pub fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// It has to say who it is, and there are too many who have to.
    pub fn is_one_too_many(&self) -> bool {
        !self.admitted && self.stranger.is_none()
    }

    /// That it has to say who it is, and did not.
    pub fn stranger(&self) -> Option<&Stranger> {
        self.stranger.as_ref()
    }

    /// It has said who it is.
    pub fn admit(&mut self) {
        *self = Standing { admitted: true, stranger: None };
    }

    /// What it said of itself is forgotten. It is not turned away, however many strangers there are.
    pub fn forget(&mut self, cx: &Context<'_, '_>) {
        self.admitted = !cx.shared.access.asks();
        if self.admitted {
            self.stranger = None;
        } else if self.stranger.is_none() {
            self.stranger = strange(cx, usize::MAX);
        }
    }
}

/// One more that has to say who it is; none if there are `max`.
pub(crate) fn strange(cx: &Context<'_, '_>, max: usize) -> Option<Stranger> {
    Stranger::new(&cx.shared.strangers, cx.host.clock_us() / 1000, max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(users: &[(&str, &str)]) -> Vec<(String, Digest)> {
        users.iter().map(|&(user, password)| (user.to_owned(), password.into())).collect()
    }

    #[test]
    fn only_the_right_password_admits() {
        let open = Access::default();
        assert!(!open.asks() && open.admits(b"default", b"anything") && !open.admits(b"app", b""));
        let closed = Access::new(Some(&"secret".into()), &named(&[("app", "other"), ("app", "next")]), true);
        assert!(closed.asks());
        assert!(closed.admits(b"default", b"secret") && closed.admits(b"app", b"other"));
        assert!(closed.admits(b"app", b"next"), "a user may have several");
        for bad in [&b""[..], b"secre", b"secrets", b"other"] {
            assert!(!closed.admits(b"default", bad));
        }
        assert!(!closed.admits(b"app", b"secret"));
        let named = Access::new(None, &named(&[("app", "other")]), true);
        assert!(named.asks() && !named.admits(b"default", b"") && !named.admits(b"", b"other"));
    }

    #[test]
    fn every_look_compares_all_rows_whoever_is_asked_for() {
        let users = named(&[("one", "a"), ("two", "b"), ("three", "c")]);
        let access = Access::new(Some(&"secret".into()), &users, true);
        let users = access.users();
        for (user, password, is_right) in [
            (&b"one"[..], &b"a"[..], true),
            (b"three", b"c", true),
            (b"three", b"wrong", false),
            (b"nobody", b"c", false),
            (b"", b"", false),
            (b"default", &[b's'; 4096], false),
        ] {
            assert_eq!(users.find(user, password), (is_right, 4));
        }
    }

    #[test]
    fn a_password_has_as_many_bytes_as_are_looked_at() {
        let text = "p".repeat(SECRET_BYTES_MAX + 1);
        for (bytes, admits) in
            [(SECRET_BYTES_MAX - 1, true), (SECRET_BYTES_MAX, true), (SECRET_BYTES_MAX + 1, false)]
        {
            let access = Access::new(Some(&text[..bytes].into()), &[], true);
            assert_eq!(access.admits(b"default", &text.as_bytes()[..bytes]), admits);
        }
    }

    #[test]
    fn a_password_is_set_and_taken_away_and_nothing_shows_it() {
        let access = Access::new(None, &named(&[("app", "canary")]), true);
        access.set_password(Some("canary".into()));
        assert!(access.admits(b"default", b"canary") && access.admits(b"app", b"canary"));
        let shown = format!("{access:?}");
        assert!(shown.contains("app") && !shown.contains("canary") && !shown.contains("igest"), "{shown}");
        let before = access.password();
        access.set_password(None);
        assert!(!access.admits(b"default", b"canary") && access.asks());
        access.set_password(before);
        assert!(access.admits(b"default", b"canary"));
    }
}
