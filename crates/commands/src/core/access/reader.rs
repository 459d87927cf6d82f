//! Rights of a client that comes by HTTP. It speaks neither protocol, but logs in as one of the users, and sees as much of the
//! server as that user's rules let it ask for in the protocols.

use super::{Access, DEFAULT_USER};
use crate::core::acl::user::User;
use crate::core::acl::verbs::Verb;

/// How much of the server a client may see, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rights {
    /// Nothing.
    None,
    /// Figures, clients, settings, and slow commands without their words, but no names of keys: the user may call `INFO` and
    /// `CLIENT LIST`.
    Figures,
    /// All of it: the user may call `KEYS`, too.
    Keys,
}

impl Access {
    /// Rights of a client that does not log in: those of the default user, if that needs no password.
    pub fn unasked(&self) -> Rights {
        let users = self.users();
        let default = users.get(DEFAULT_USER).filter(|_| !users.asks());
        default.map_or(Rights::None, |user| self.rights(user))
    }

    /// Rights of the user of this name and password. `None` if there is no such user, or if it needs no password: then the
    /// password proves nothing. The look takes the same time for every name.
    pub fn reader(&self, user: &[u8], password: &[u8]) -> Option<Rights> {
        let (user, _) = self.log_in(user, password)?;
        (!user.no_password).then(|| self.rights(&user))
    }

    fn rights(&self, user: &User) -> Rights {
        if user.may_everything() {
            return Rights::Keys;
        }
        let mut ns = 0;
        let mut may = |verb| self.may(user, verb, None, &mut ns).is_ok();
        if !may(Verb::Figures) || !may(Verb::Clients) {
            Rights::None
        } else if may(Verb::Keys) {
            Rights::Keys
        } else {
            Rights::Figures
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_asked_of_every_user_and_nobody_is_one_without() {
        let open = Access::default();
        assert_eq!((open.unasked(), open.has_passwords()), (Rights::Keys, false));
        assert_eq!(open.reader(b"default", b"anything"), None);
        let closed = Access::new(Some(&"secret".into()), &[("app".to_owned(), "other".into())]);
        assert_eq!((closed.unasked(), closed.has_passwords()), (Rights::None, true));
        for (user, password, rights) in [
            ("default", "secret", Some(Rights::Keys)),
            ("app", "other", Some(Rights::Keys)),
            ("default", "other", None),
            ("app", "secret", None),
            ("", "secret", None),
            ("default", "", None),
        ] {
            assert_eq!(closed.reader(user.as_bytes(), password.as_bytes()), rights, "{user}:{password}");
        }
        closed.set_password(None);
        assert_eq!((closed.unasked(), closed.reader(b"default", b"secret")), (Rights::None, None));
    }
}
