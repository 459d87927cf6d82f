//! Which clients may speak: users and their passwords, and whether a connection has said who it is.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::context::Context;
use super::strangers::Stranger;

/// Which clients may speak: passwords of the default user and of named ones.
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
fn strange(cx: &Context<'_, '_>, max: usize) -> Option<Stranger> {
    Stranger::new(&cx.shared.strangers, cx.host.clock_us() / 1000, max)
}

#[cfg(test)]
mod tests {
    use super::*;

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
