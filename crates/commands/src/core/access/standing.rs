//! The standing of a connection: whether it has logged in, and as which user. The user is kept as it was at the last look.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Access, DEFAULT_ID, DEFAULT_USER, Users};
use crate::core::acl::user::User;
use crate::core::unauthenticated::UnauthenticatedClient;
use crate::core::work::{Work, copying_ns};

/// Whether a connection has logged in, and as which user.
#[derive(Debug)]
pub(crate) struct Standing {
    /// Whether nothing is checked before its commands run: it has logged in, or need not, and its user may do everything.
    free: bool,
    /// Whether it has logged in, or need not.
    pub(in crate::core) admitted: bool,
    /// [`Access::epoch`] when its user was looked at.
    epoch: u64,
    /// Its user; `None`: the default one, if that may do everything, or no user yet.
    user: Option<Arc<User>>,
    /// Its place among the unauthenticated clients, while it must log in and has not.
    pub(in crate::core) unauthenticated: Option<UnauthenticatedClient>,
}

impl Standing {
    /// The standing of a connection that need not log in.
    pub fn unasked(access: &Access) -> Standing {
        let mut standing = Standing::of_nobody();
        standing.begin(access);
        standing
    }

    /// The standing of no user.
    pub(in crate::core) fn of_nobody() -> Standing {
        Standing { free: false, admitted: false, epoch: 0, user: None, unauthenticated: None }
    }

    /// Makes the connection the default user where clients need not log in, and no user otherwise.
    pub(in crate::core) fn begin(&mut self, access: &Access) {
        // Read first: what has changed since is looked at again.
        self.epoch = access.epoch();
        self.admitted = !access.asks();
        self.user = None;
        if self.admitted && access.restricts.load(Relaxed) {
            self.user = access.users().get(DEFAULT_USER).cloned();
        }
        self.free = self.admitted && self.user.as_ref().is_none_or(|user| user.may_everything());
    }

    /// Returns whether it has logged in, or need not, and may do everything.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.free
    }

    /// Returns whether it has logged in, or need not.
    #[inline]
    pub fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// Its user, if the client has logged in or the default user may not do everything.
    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// Takes its user out for a look. [`Standing::put_back`] puts it back.
    #[inline]
    pub fn take_user(&mut self) -> Option<Arc<User>> {
        self.user.take()
    }

    /// Puts its user back.
    #[inline]
    pub fn put_back(&mut self, user: Arc<User>) {
        self.user = Some(user);
    }

    /// Its present user and epoch, to be compared later.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { epoch: self.epoch, user: self.user.clone() }
    }

    /// Returns whether the user and its rules are the same as then: what was allowed is allowed now.
    pub fn is_as(&self, then: &Snapshot) -> bool {
        match (&self.user, &then.user) {
            (None, None) => true,
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// Does what [`Standing::is_as`] does, but also compares the rules of two [`User`]s: `ACL LOAD` makes each anew, and a new
    /// password leaves the rules as they are. The comparison is charged to `work`.
    pub fn may_as(&self, then: &Snapshot, work: &Work) -> bool {
        let same = |(now, then): (&Arc<User>, &Arc<User>)| {
            work.spend(copying_ns(now.bytes() as u64));
            now.may_as(then)
        };
        self.is_as(then) || self.user.as_ref().zip(then.user.as_ref()).is_some_and(same)
    }

    /// Returns whether it must log in, and there are too many unauthenticated clients.
    pub fn is_one_too_many(&self) -> bool {
        !self.admitted && self.unauthenticated.is_none()
    }

    /// Its place among the unauthenticated; `None` if it has logged in, or need not.
    pub fn unauthenticated(&self) -> Option<&UnauthenticatedClient> {
        self.unauthenticated.as_ref()
    }

    /// Notes that the client has logged in as this user, which was looked up at this epoch.
    pub fn admit(&mut self, user: Arc<User>, epoch: u64) {
        let free = user.may_everything();
        *self = Standing { free, admitted: true, epoch, user: Some(user), unauthenticated: None };
    }

    /// Makes the client the default user, if it has not logged in and clients need not any more.
    pub fn admit_unasked(&mut self, access: &Access) {
        if !self.admitted && !access.asks() {
            self.begin(access);
            if self.admitted {
                self.unauthenticated = None;
            }
        }
    }

    /// Looks its user up again if users were changed. False if its user is gone.
    #[cold]
    pub fn look_again(&mut self, access: &Access) -> bool {
        if self.epoch == access.epoch() {
            return true;
        }
        let users = access.users();
        self.epoch = users.epoch;
        if !self.admitted {
            return true;
        }
        let (name, id) = self.user.as_ref().map_or((DEFAULT_USER, DEFAULT_ID), |user| (user.name(), user.id));
        let Some(user) = users.get(name).filter(|user| user.id == id) else {
            // Whatever it does before it is closed, it does as no user.
            *self = Standing { epoch: users.epoch, ..Standing::of_nobody() };
            return false;
        };
        self.free = user.may_everything();
        self.user = Some(Arc::clone(user));
        true
    }

    /// Returns whether its user is missing among these.
    pub fn is_gone(&self, users: &Users) -> bool {
        // The default one, which is none here or has its number, is always there.
        self.user.as_ref().is_some_and(|user| users.get(user.name()).is_none_or(|now| now.id != user.id))
    }
}

/// The users as they are at one time, for connections that are looked at together ([`crate::Session::turn_out`]).
#[derive(Debug)]
pub struct UsersNow(pub(crate) Arc<Users>);

/// The user that a connection had at a time.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    epoch: u64,
    user: Option<Arc<User>>,
}

/// A user's change since a [`Snapshot`].
#[derive(Debug)]
pub(crate) enum Since {
    /// None, or the user may do everything now.
    AsGood,
    /// The user has other rules.
    Changed(Arc<User>),
    Gone,
}

impl Snapshot {
    /// Compares the user with what it was. A change that this does not see counts as later than what the caller does.
    pub fn since(&self, access: &Access) -> Since {
        if self.epoch == access.epoch() {
            return Since::AsGood;
        }
        let users = access.users();
        let (name, id) = self.user.as_ref().map_or((DEFAULT_USER, DEFAULT_ID), |user| (user.name(), user.id));
        let Some(now) = users.get(name).filter(|user| user.id == id) else { return Since::Gone };
        if now.may_everything() || self.user.as_ref().is_some_and(|then| Arc::ptr_eq(then, now)) {
            return Since::AsGood;
        }
        Since::Changed(Arc::clone(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparing_the_rules_of_a_user_is_spent() {
        let name = "n".repeat(16 << 10);
        let user = || Arc::new(User::open(1, &name, Vec::new()));
        let (mut standing, work) = (Standing::of_nobody(), Work::default());
        standing.admit(user(), 1);
        let then = standing.snapshot();
        assert!(standing.may_as(&then, &work) && work.done_ns() == 0, "nothing has changed");
        standing.admit(user(), 2);
        assert!(standing.may_as(&then, &work));
        assert!(work.done_ns() >= copying_ns(16 << 10), "{}", work.done_ns());
    }
}
