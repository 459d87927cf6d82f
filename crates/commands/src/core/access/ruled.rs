//! Users with rules as the server is started with them: read and checked once, with all that is known of users by then.

use super::{Access, DEFAULT_USER};
use crate::core::acl::catalog::Catalog;
use crate::core::acl::user::User;
use crate::core::digest::Digest;

/// Users and what they may do, as `--aclfile` or `--acl-user` says it: read and checked. Of their passwords there are digests.
#[derive(Clone, Debug, Default)]
pub struct RuledUsers {
    users: Vec<User>,
    asks: Option<bool>,
}

impl RuledUsers {
    /// Reads lines, which are in the file or behind the option of this name; beside them users have these passwords, and a new
    /// one may use all channels or none.
    ///
    /// # Errors
    /// What is wrong with them.
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

    /// Whether the default user, if it is among them, has a password, or may not log in.
    pub fn asks(&self) -> Option<bool> {
        self.asks
    }

    pub(crate) fn users(&self) -> &[User] {
        &self.users
    }
}
