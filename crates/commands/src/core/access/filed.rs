//! Users of files that are read again while the server runs: `--requirepass-file`, `--auth-file`, `-Y`.
//!
//! Only the difference between two readings is carried out. What both readings agree in stays as clients have left it: a
//! password that `ACL SETUSER` or `CONFIG SET` took away, and a user that was removed, do not come back because certificates
//! were renewed and the file still has them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Access, DEFAULT_USER};
use crate::core::acl::user::User;
use crate::core::digest::Digest;

/// One reading of the files of users.
#[derive(Clone, Debug, Default)]
pub struct FiledUsers {
    /// The default user's password.
    pub password: Option<Digest>,
    /// Users and their passwords; one may have several.
    pub users: Vec<(String, Digest)>,
}

/// Numbers of users that another reading of the files has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Users that were not there.
    pub added: usize,
    /// Users that have other passwords.
    pub changed: usize,
    /// Users that are gone.
    pub removed: usize,
}

/// The difference between two readings for one user.
struct Difference<'a> {
    name: &'a str,
    /// Passwords of the earlier reading alone.
    gone: Vec<Digest>,
    /// Passwords of the later reading alone.
    new: Vec<Digest>,
    /// Whether the later reading names the user.
    is_named: bool,
}

impl FiledUsers {
    fn by_name(&self) -> BTreeMap<&str, Vec<&Digest>> {
        let mut all: BTreeMap<&str, Vec<&Digest>> = BTreeMap::new();
        if let Some(password) = &self.password {
            all.entry(DEFAULT_USER).or_default().push(password);
        }
        for (user, password) in &self.users {
            all.entry(user.as_str()).or_default().push(password);
        }
        all
    }

    /// The differences to a later reading, user by user.
    fn differences<'a>(&'a self, later: &'a FiledUsers) -> Vec<Difference<'a>> {
        let (before, now) = (self.by_name(), later.by_name());
        let names: BTreeSet<&str> = before.keys().chain(now.keys()).copied().collect();
        let of = |name: &'a str| {
            let [old, later] = [&before, &now].map(|all| all.get(name).map_or(&[][..], Vec::as_slice));
            let (gone, new) = (without(old, later), without(later, old));
            let differs = !gone.is_empty() || !new.is_empty();
            differs.then_some(Difference { name, gone, new, is_named: !later.is_empty() })
        };
        names.into_iter().filter_map(of).collect()
    }
}

/// Passwords of `some` that are not among `others`. They are looked up in a set, since a user may have thousands.
fn without(some: &[&Digest], others: &[&Digest]) -> Vec<Digest> {
    let others: BTreeSet<&[u8; 32]> = others.iter().map(|other| other.bytes()).collect();
    some.iter().filter(|one| !others.contains(one.bytes())).map(|&one| one.clone()).collect()
}

impl Access {
    /// Carries out the difference between two readings of the files. Returns how many users it concerned, and the numbers of
    /// those that are gone. `ruled`: users with rules of their own, which no file adds or removes.
    pub(crate) fn follow(
        &self,
        before: &FiledUsers,
        now: &FiledUsers,
        ruled: &HashSet<&str>,
    ) -> (Followed, HashSet<u64>) {
        let differences = before.differences(now);
        let (mut done, mut gone) = (Followed::default(), HashSet::new());
        if differences.is_empty() {
            return (done, gone);
        }
        let _ = self.change(|users| {
            for one in differences {
                let is_left_out = !one.is_named && one.name != DEFAULT_USER && !ruled.contains(one.name);
                if is_left_out {
                    let removed = users.all.remove(one.name);
                    done.removed += usize::from(removed.is_some());
                    gone.extend(removed.map(|user| user.id));
                } else if let Some(user) = users.all.get_mut(one.name) {
                    Arc::make_mut(user).change_passwords(&one.gone, &one.new);
                    done.changed += 1;
                } else if !one.new.is_empty() && !ruled.contains(one.name) {
                    // A user of `--acl-user` that a client has removed stays removed: it would come back without its rules.
                    users.insert(User::open(self.next_id(), one.name, one.new));
                    self.has_others.store(true, Relaxed);
                    done.added += 1;
                }
            }
            Ok(())
        });
        (done, gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(password: Option<&str>, users: &[(&str, &str)]) -> FiledUsers {
        let users = users.iter().map(|&(user, password)| (user.to_owned(), password.into())).collect();
        FiledUsers { password: password.map(Digest::from), users }
    }

    fn begun(read: &FiledUsers) -> Access {
        Access::new(read.password.as_ref(), &read.users)
    }

    fn done(added: usize, changed: usize, removed: usize) -> Followed {
        Followed { added, changed, removed }
    }

    #[test]
    fn what_two_readings_differ_in_is_carried_out() {
        let before = read(Some("old"), &[("app", "one"), ("app", "two"), ("gone", "three")]);
        let now = read(Some("next"), &[("app", "two"), ("app", "four"), ("new", "five")]);
        let access = begun(&before);
        let ids = |name| access.users().get(name).map(|user| user.id);
        let (app, left) = (ids("app"), ids("gone").expect("a user"));
        let (followed, gone) = access.follow(&before, &now, &HashSet::new());
        assert_eq!((followed, gone), (done(1, 2, 1), HashSet::from([left])));
        assert_eq!(ids("app"), app, "its connections stay");
        for (user, password, admits) in [
            ("default", "old", false),
            ("default", "next", true),
            ("app", "one", false),
            ("app", "two", true),
            ("app", "four", true),
            ("gone", "three", false),
            ("new", "five", true),
        ] {
            assert_eq!(access.admits(user.as_bytes(), password.as_bytes()), admits, "{user} {password}");
        }
        assert!(access.asks());
    }

    /// Each in the place of another, and one of them twice.
    #[test]
    fn a_user_may_have_thousands_of_passwords_each_of_which_is_there_once() {
        let passwords = |begin: &str| -> Vec<(String, Digest)> {
            (0..4_000).map(|n| ("app".to_owned(), format!("{begin}{n}").as_str().into())).collect()
        };
        let before = FiledUsers { password: None, users: passwords("old") };
        let mut now = FiledUsers { password: None, users: passwords("new") };
        now.users.push(("app".to_owned(), "new7".into()));
        let access = begun(&before);
        assert_eq!(access.follow(&before, &now, &HashSet::new()), (done(0, 1, 0), HashSet::new()));
        assert_eq!(access.users().get("app").expect("a user").passwords().len(), 4_000);
        assert!(access.admits(b"app", b"new7") && access.admits(b"app", b"new3999"));
        assert!(!access.admits(b"app", b"old0") && !access.admits(b"app", b"old3999"));
    }

    #[test]
    fn what_two_readings_agree_in_stays_as_clients_have_changed_it() {
        let before = read(Some("leaked"), &[("app", "one"), ("removed", "two")]);
        let access = begun(&before);
        access.set_password(Some("better".into()));
        access.remove_users(["removed"].into_iter());
        let epoch = access.epoch();
        assert_eq!(access.follow(&before, &before, &HashSet::new()), (done(0, 0, 0), HashSet::new()));
        assert_eq!(access.epoch(), epoch, "nothing was changed");
        let now = read(Some("leaked"), &[("app", "next"), ("removed", "two")]);
        assert_eq!(access.follow(&before, &now, &HashSet::new()), (done(0, 1, 0), HashSet::new()));
        assert!(!access.admits(b"default", b"leaked") && access.admits(b"default", b"better"));
        assert!(!access.admits(b"removed", b"two"));
        assert!(access.admits(b"app", b"next") && !access.admits(b"app", b"one"));
        // With another password it is made again.
        let back = read(Some("leaked"), &[("app", "next"), ("removed", "three")]);
        assert_eq!(access.follow(&now, &back, &HashSet::new()), (done(1, 0, 0), HashSet::new()));
        assert!(access.admits(b"removed", b"three") && !access.admits(b"removed", b"two"));
    }

    #[test]
    fn a_user_with_rules_loses_the_passwords_of_the_file_and_stays() {
        let before = read(None, &[("app", "one"), ("other", "two")]);
        let now = read(None, &[("other", "two")]);
        let access = begun(&before);
        assert_eq!(access.follow(&before, &now, &HashSet::from(["app"])), (done(0, 1, 0), HashSet::new()));
        assert!(access.users().get("app").is_some() && !access.admits(b"app", b"one"));
    }

    #[test]
    fn a_user_with_rules_that_was_removed_does_not_come_back_without_them() {
        let before = read(None, &[("app", "one"), ("other", "two")]);
        let now = read(None, &[("app", "next"), ("other", "two")]);
        let access = begun(&before);
        access.remove_users(["app"].into_iter());
        assert_eq!(access.follow(&before, &now, &HashSet::from(["app"])), (done(0, 0, 0), HashSet::new()));
        assert!(access.users().get("app").is_none() && !access.admits(b"app", b"next"));
    }

    #[test]
    fn the_default_user_may_log_in_when_a_file_names_it_and_is_nobody_without() {
        let alone = read(None, &[("app", "one")]);
        let named = read(None, &[("app", "one"), ("default", "two")]);
        let access = begun(&alone);
        assert!(access.asks() && !access.admits(b"default", b""));
        assert_eq!(access.follow(&alone, &named, &HashSet::new()).0, done(0, 1, 0));
        assert!(access.asks() && access.admits(b"default", b"two") && !access.admits(b"default", b""));
        assert_eq!(access.follow(&named, &alone, &HashSet::new()).0, done(0, 1, 0));
        assert!(access.asks() && !access.admits(b"default", b"two") && !access.admits(b"default", b""));
    }

    #[test]
    fn whoever_needs_no_password_goes_on_without_one() {
        let (before, now) = (read(Some("old"), &[]), read(Some("next"), &[]));
        let access = begun(&before);
        access.set_password(None);
        assert_eq!(access.follow(&before, &now, &HashSet::new()).0, done(0, 1, 0));
        assert!(!access.asks() && access.admits(b"default", b"anything"));
    }
}
