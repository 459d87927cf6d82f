//! Checks of memcached's requests against users' rules: each request is checked as a command of Redis.

use super::Access;
use crate::core::acl::asked::{Asked, AskedKeys};
use crate::core::acl::catalog::{Catalog, CommandId};
use crate::core::acl::rules::Denied;
use crate::core::acl::user::User;
use crate::core::acl::verbs::{Verb, Verbs};

impl Access {
    /// Sets the commands as which memcached's requests are checked.
    pub(crate) fn ask_as(&self, catalog: &Catalog) {
        self.verbs.get_or_init(|| Box::new(Verbs::of(catalog)));
    }

    /// The command as which a request of memcached's is checked; before [`Access::ask_as`] a number that no command has.
    pub(crate) fn command_of(&self, verb: Verb) -> CommandId {
        self.verbs.get().map_or(CommandId::MAX, |verbs| verbs.id(verb))
    }

    /// Checks whether a user may make a request of memcached's with this key. Adds the time to `ns`.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn may<'a>(
        &self,
        user: &User,
        verb: Verb,
        key: Option<&'a [u8]>,
        ns: &mut u64,
    ) -> Result<(), Denied<'a>> {
        let Some(verbs) = self.verbs.get() else { return Err(Denied::Command) };
        let keys = key.map_or(AskedKeys::None, |key| AskedKeys::One(key, verb.need()));
        let asked = Asked { command: verbs.id(verb), is_free: false, first: key, keys, channels: None };
        user.check(&asked, ns)
    }
}
