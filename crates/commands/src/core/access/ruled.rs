//! Users with rules from the start of the server (`--aclfile`, `--acl-user`): read and checked once, with all other users that
//! are known by then.

use super::{Access, DEFAULT_USER};
use crate::core::acl::catalog::Catalog;
use crate::core::acl::user::User;
use crate::core::digest::Digest;

/// Users and their rules, read from `--aclfile` or `--acl-user` and checked. Passwords are kept as digests.
#[derive(Clone, Debug, Default)]
pub struct RuledUsers {
    users: Vec<User>,
    asks: Option<bool>,
}

impl RuledUsers {
    /// Reads lines of the file or the option `name`. The tuple has the default user's password and those of other users.
    /// `all_channels`: a new user may use all channels.
    ///
    /// # Errors
    /// Says what is wrong with the lines.
    pub(crate) fn read(
        lines: &[u8],
        name: &str,
        (password, users): (Option<&Digest>, &[(String, Digest)]),
        all_channels: bool,
        catalog: &Catalog,
    ) -> Result<RuledUsers, String> {
        let access = Access::new(password, users);
        access.allow_all_channels(all_channels);
        let users = access
            .read(lines, name, catalog)
            .map_err(|errors| errors.split(" WARNING: ACL errors").next().unwrap_or_default().to_owned())?;
        if !access.begin_with(&users) {
            return Err("there are too many users, or their rules hold too much".into());
        }
        let names_default = users.iter().any(|user| user.name() == DEFAULT_USER);
        Ok(RuledUsers { users, asks: names_default.then(|| access.asks()) })
    }

    /// Whether a client must log in; `None`: the default user is not among these.
    pub fn asks(&self) -> Option<bool> {
        self.asks
    }

    pub(crate) fn users(&self) -> &[User] {
        &self.users
    }
}
