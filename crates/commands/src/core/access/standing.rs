//! Whether a connection has logged in, and as which user: as that was when it was looked at last.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Access, DEFAULT_ID, DEFAULT_USER, Users};
use crate::core::acl::user::User;
use crate::core::unauthenticated::UnauthenticatedClient;
use crate::core::work::{Work, copying_ns};

/// Whether a connection has logged in, and as which user.
#[derive(Debug)]
pub(crate) struct Standing {
    /// Nothing is checked before its commands run: it has logged in, or need not, and its user may do everything.
    free: bool,
    /// It has logged in, or need not.
    pub(in crate::core) admitted: bool,
    /// [`Access::epoch`] when its user was looked at.
    epoch: u64,
    /// Its user; none: the default one, which may do everything, or none yet.
    user: Option<Arc<User>>,
    /// It must log in, and has not.
    pub(in crate::core) unauthenticated: Option<UnauthenticatedClient>,
}

impl Standing {
    /// The standing of a connection that need not log in.
    pub fn unasked(access: &Access) -> Standing {
        let mut standing = Standing::of_nobody();
        standing.begin(access);
        standing
    }

    /// Of no user.
    pub(in crate::core) fn of_nobody() -> Standing {
        Standing { free: false, admitted: false, epoch: 0, user: None, unauthenticated: None }
    }

    /// The connection is the default user where clients need not log in, and otherwise no user.
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

    /// It has logged in, or need not, and may do everything.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.free
    }

    /// It has logged in, or need not.
    #[inline]
    pub fn is_admitted(&self) -> bool {
        self.admitted
    }

    /// Its user, where that is one which may not do everything, or the client has logged in.
    pub fn user(&self) -> Option<&Arc<User>> {
        self.user.as_ref()
    }

    /// Takes its user out for a look, to be put back by [`Standing::put_back`].
    #[inline]
    pub fn take_user(&mut self) -> Option<Arc<User>> {
        self.user.take()
    }

    /// Puts its user back.
    #[inline]
    pub fn put_back(&mut self, user: Arc<User>) {
        self.user = Some(user);
    }

    /// Which user it is now, for what is asked again later.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { epoch: self.epoch, user: self.user.clone() }
    }

    /// It is the same user with the same rules as then: what was allowed is allowed now.
    pub fn is_as(&self, then: &Snapshot) -> bool {
        match (&self.user, &then.user) {
            (None, None) => true,
            (Some(now), Some(then)) => Arc::ptr_eq(now, then),
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// As [`Standing::is_as`], where the rules of another [`User`] are compared, too: ACL LOAD makes each anew, and a new
    /// password leaves the rules as they are. Comparing them is spent.
    pub fn may_as(&self, then: &Snapshot, work: &Work) -> bool {
        let same = |(now, then): (&Arc<User>, &Arc<User>)| {
            work.spend(copying_ns(now.bytes() as u64));
            now.may_as(then)
        };
        self.is_as(then) || self.user.as_ref().zip(then.user.as_ref()).is_some_and(same)
    }

    /// It has to log in, and there are too many unauthenticated clients.
    pub fn is_one_too_many(&self) -> bool {
        !self.admitted && self.unauthenticated.is_none()
    }

    /// Its place among the unauthenticated; `None` if it has logged in, or need not.
    pub fn unauthenticated(&self) -> Option<&UnauthenticatedClient> {
        self.unauthenticated.as_ref()
    }

    /// The client has logged in: as this user, as it was at this epoch.
    pub fn admit(&mut self, user: Arc<User>, epoch: u64) {
        let free = user.may_everything();
        *self = Standing { free, admitted: true, epoch, user: Some(user), unauthenticated: None };
    }

    /// Clients need not log in any more: this one is the default user, if it has not logged in as another.
    pub fn admit_unasked(&mut self, access: &Access) {
        if !self.admitted && !access.asks() {
            self.begin(access);
            if self.admitted {
                self.unauthenticated = None;
            }
        }
    }

    /// Users may have been changed: what its user may do now. False if its user is gone.
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

    /// Its user is not among these.
    pub fn is_gone(&self, users: &Users) -> bool {
        // The default one, which is none here or has its number, is always there.
        self.user.as_ref().is_some_and(|user| users.get(user.name()).is_none_or(|now| now.id != user.id))
    }
}

/// The users as they are at one time, for connections that are looked at together ([`crate::Session::turn_out`]).
#[derive(Debug)]
pub struct UsersNow(pub(crate) Arc<Users>);

/// Which user a connection was at a time.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    epoch: u64,
    user: Option<Arc<User>>,
}

/// What has become of a user since a [`Snapshot`].
#[derive(Debug)]
pub(crate) enum Since {
    /// Nothing, or it may do everything now.
    AsGood,
    /// It has other rules.
    Changed(Arc<User>),
    Gone,
}

impl Snapshot {
    /// What has become of the user. A change that this does not see comes behind what its caller does.
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
