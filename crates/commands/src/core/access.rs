//! Which clients may send commands: users with their passwords, and whether a connection must log in.
//!
//! One table for every protocol: `AUTH` and `HELLO` of RESP, and the `set` by which memcached's text clients log in
//! (`memcached/login.rs`), look in it. Each user's name and passwords are digests ([`super::acl::user`]). A look compares all of
//! them, whatever is asked for: a user that is not there, and a password of another length, take the same work as one that is
//! nearly right.
//!
//! Users are changed while they are in use: a change makes a new table, and raises its epoch. A connection keeps its user as
//! it was at an epoch ([`Standing`]), and looks again when that is another, at its next receive.

mod filed;
mod reader;
mod ruled;
mod standing;
mod verbs;

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::acl::catalog::Catalog;
use super::acl::log::Log;
use super::acl::user::{NAME_BYTES_MAX, Refused, USERS_BYTES_MAX, USERS_MAX, User, is_name};
use super::acl::verbs::Verbs;
use super::digest::Digest;
pub use filed::{FiledUsers, Followed};
pub use reader::Rights;
pub use ruled::RuledUsers;
pub use standing::UsersNow;
pub(crate) use standing::{Since, Snapshot, Standing};

/// The user of a client that names none.
pub(crate) const DEFAULT_USER: &str = "default";
/// The default user's number. That user is never removed.
pub(crate) const DEFAULT_ID: u64 = 0;

/// Most bytes of a password, and of a user's name: as many as Redis takes of a client that has not logged in. A longer one is
/// wrong without being looked at.
pub const SECRET_BYTES_MAX: usize = NAME_BYTES_MAX;
/// Most passwords of all users that `ACL SETUSER` and `ACL LOAD` make: a login compares each.
pub(crate) const ROWS_MAX: usize = 8192;

/// Nanoseconds that a look for a user takes: a base, for each byte of name and password, and for each row (password).
const LOOK_NS: u64 = 1_000;
const LOOK_BYTE_NS: u64 = 4;
const LOOK_ROW_NS: u64 = 100;

/// The users, and whether a client must log in.
#[derive(Debug)]
pub struct Access {
    users: Mutex<Arc<Users>>,
    /// [`Users::epoch`], readable without the lock.
    epoch: AtomicU64,
    /// Whether a client must log in: the default user has a password, or is off. Each connection reads this without the lock.
    asks: AtomicBool,
    /// Whether the default user may not do everything.
    restricts: AtomicBool,
    /// `acl-pubsub-default`: whether a new user may use all channels.
    all_channels: AtomicBool,
    last_id: AtomicU64,
    /// For each of memcached's requests, the Redis command as which it is checked.
    verbs: OnceLock<Box<Verbs>>,
    /// Whether there were other users at the start, or in a file since: then a client that does not log in is not the default
    /// user.
    has_others: AtomicBool,
    /// Whether the file of users is being read or written.
    pub(crate) filing: Arc<AtomicBool>,
    /// Refusals (`ACL LOG`).
    pub(crate) log: Log,
}

/// The users at one time. A copy shares each user and its name.
#[derive(Clone, Debug)]
pub(crate) struct Users {
    /// Number of changes since the start.
    epoch: u64,
    all: BTreeMap<Arc<str>, Arc<User>>,
}

/// Reasons why a change of users is not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unchanged {
    Refused(Refused),
    /// The users are more than there may be, or have too many passwords or bytes.
    TooMany,
    /// Another client changed the user at the same time.
    Raced,
    BadName,
}

impl Users {
    fn asks(&self) -> bool {
        self.get(DEFAULT_USER).is_none_or(|user| !user.enabled || !user.no_password)
    }

    fn restricts(&self) -> bool {
        self.get(DEFAULT_USER).is_none_or(|user| !user.may_everything())
    }

    /// The user of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<User>> {
        self.all.get(name)
    }

    /// All of them, by their names.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<User>> {
        self.all.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    fn insert(&mut self, user: impl Into<Arc<User>>) {
        let user = user.into();
        self.all.insert(user.shared_name(), user);
    }

    /// Number of passwords that a login compares.
    fn rows(&self) -> usize {
        self.iter().map(|user| user.rows()).sum()
    }

    fn is_bounded(&self) -> bool {
        let bytes: usize = self.iter().map(|user| user.bytes()).sum();
        self.len() <= USERS_MAX && bytes <= USERS_BYTES_MAX && self.rows() <= ROWS_MAX
    }

    /// Finds the user of this name and password. Also returns how many rows were compared: always all.
    fn find(&self, user: &[u8], password: &[u8]) -> (Option<&Arc<User>>, usize) {
        let (user, password) = (Digest::of(user), Digest::of(password));
        let (mut found, mut compared) = (None, 0);
        for known in self.iter() {
            if known.is_logged_in_by(&user, &password).into() {
                found = Some(known);
            }
            compared += known.rows();
        }
        (found, compared)
    }
}

impl Default for Access {
    fn default() -> Access {
        Access::new(None, &[])
    }
}

impl Access {
    /// Makes the table of the default user's password, if it has one, and of further users with theirs. All of them may do
    /// everything.
    pub fn new(password: Option<&Digest>, named: &[(String, Digest)]) -> Access {
        let mut passwords: BTreeMap<&str, Vec<Digest>> = BTreeMap::new();
        for (user, password) in named {
            passwords.entry(user).or_default().push(password.clone());
        }
        let mut own: Vec<Digest> = password.cloned().into_iter().collect();
        own.append(&mut passwords.remove(DEFAULT_USER).unwrap_or_default());
        let is_open = own.is_empty() && passwords.is_empty();
        let mut default = User::open(DEFAULT_ID, DEFAULT_USER, own);
        default.no_password = is_open;
        // Where there are other users, a client that does not log in is not the default user.
        default.enabled = is_open || !default.passwords().is_empty();
        default.is_unnamed = !default.enabled;
        let mut users = Users { epoch: 0, all: BTreeMap::new() };
        let mut last_id = DEFAULT_ID;
        users.insert(default);
        for (user, passwords) in passwords {
            last_id += 1;
            users.insert(User::open(last_id, user, passwords));
        }
        Access {
            epoch: AtomicU64::new(0),
            asks: AtomicBool::new(users.asks()),
            restricts: AtomicBool::new(users.restricts()),
            users: Mutex::new(Arc::new(users)),
            all_channels: AtomicBool::new(false),
            last_id: AtomicU64::new(last_id),
            verbs: OnceLock::new(),
            has_others: AtomicBool::new(last_id != DEFAULT_ID),
            filing: Arc::default(),
            log: Log::default(),
        }
    }

    /// Reads lines of users, as at the start. A user that already has passwords keeps them, and may log in; its line says what
    /// it may do. `name` is the file's or the option's.
    ///
    /// # Errors
    /// Says what is wrong with the lines.
    pub(crate) fn read(&self, lines: &[u8], name: &str, catalog: &Catalog) -> Result<Vec<User>, String> {
        let known = self.users();
        let new_user = |name: &str| {
            let mut user = self.new_user(name);
            if let Some(known) = known.get(name) {
                user.id = known.id;
                user.take_passwords(known);
            }
            user.awaits_password = !user.enabled && name != DEFAULT_USER;
            user
        };
        super::acl::file::read(lines, name, catalog, new_user)
    }

    /// Adds users at the start, before any client has logged in; false if they are too many.
    pub(crate) fn begin_with(&self, users: &[User]) -> bool {
        if users.is_empty() {
            return true;
        }
        let mut all = Users::clone(&self.users());
        users.iter().for_each(|user| all.insert(user.clone()));
        let last_id = users.iter().map(|user| user.id).max().unwrap_or(DEFAULT_ID);
        self.last_id.fetch_max(last_id, Relaxed);
        self.asks.store(all.asks(), Relaxed);
        self.restricts.store(all.restricts(), Relaxed);
        let is_bounded = all.is_bounded();
        *self.lock() = Arc::new(all);
        is_bounded
    }

    /// Returns whether a new user may use all channels.
    pub(crate) fn all_channels(&self) -> bool {
        self.all_channels.load(Relaxed)
    }

    /// Sets whether a new user may use all channels.
    pub(crate) fn allow_all_channels(&self, allowed: bool) {
        self.all_channels.store(allowed, Relaxed);
    }

    /// Returns whether a client must log in.
    pub fn asks(&self) -> bool {
        self.asks.load(Relaxed)
    }

    /// Returns whether the default user may not do everything: then a client may gain by logging in as another.
    pub fn restricts(&self) -> bool {
        self.restricts.load(Relaxed)
    }

    /// Returns whether a user has a password.
    pub fn has_passwords(&self) -> bool {
        self.users().iter().any(|user| !user.passwords().is_empty())
    }

    /// How often users were changed since the start. A connection that finds another number than before looks up its user again.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Acquire)
    }

    /// All users, as of now.
    pub(crate) fn users(&self) -> Arc<Users> {
        Arc::clone(&self.lock())
    }

    /// Changes users: all at once, or not at all.
    fn change<R>(&self, change: impl FnOnce(&mut Users) -> Result<R, Unchanged>) -> Result<R, Unchanged> {
        let mut users = self.lock();
        let mut changed = Users::clone(&users);
        let done = change(&mut changed)?;
        changed.epoch += 1;
        self.asks.store(changed.asks(), Relaxed);
        self.restricts.store(changed.restricts(), Relaxed);
        let epoch = changed.epoch;
        let before = std::mem::replace(&mut *users, Arc::new(changed));
        // A thread that reads this epoch sees the users of it, too.
        self.epoch.store(epoch, Release);
        drop(users);
        // What goes with the users before is freed without the lock, for which logins wait.
        drop(before);
        Ok(done)
    }

    /// Applies rules to a user, which is made if there is none. Returns the user before, if there was one, and as it is now.
    ///
    /// # Errors
    /// The name is none, a rule cannot be applied (then none is), or the users would be too many.
    pub(crate) fn set_user<'a>(
        &self,
        catalog: &Catalog,
        name: &[u8],
        rules: impl Iterator<Item = &'a [u8]>,
    ) -> Result<(Option<Arc<User>>, Arc<User>), Unchanged> {
        let name = std::str::from_utf8(name).ok().filter(|name| is_name(name.as_bytes()));
        let name = name.ok_or(Unchanged::BadName)?;
        let all_channels = self.all_channels();
        let rules: Vec<&[u8]> = rules.collect();
        loop {
            // Rules are applied without the lock, for which logins wait.
            let before = self.users().get(name).cloned();
            let rules = rules.iter().copied();
            let user = match &before {
                Some(user) => user.with(catalog, rules, all_channels),
                None => self.new_user(name).with(catalog, rules, all_channels),
            };
            let user = Arc::new(user.map_err(Unchanged::Refused)?);
            let done = self.change(|users| {
                let same = users.get(name).map(Arc::as_ptr) == before.as_ref().map(Arc::as_ptr);
                if !same {
                    return Err(Unchanged::Raced);
                }
                users.insert(Arc::clone(&user));
                // A file may have made more users than the bound allows: a change that adds nothing is made all the same.
                let takes_no_more = before.as_ref().is_some_and(|before| user.takes_no_more_than(before));
                if takes_no_more || users.is_bounded() { Ok(()) } else { Err(Unchanged::TooMany) }
            });
            match done {
                Ok(()) => return Ok((before, user)),
                // Another client has changed the user meanwhile.
                Err(Unchanged::Raced) => {}
                Err(unchanged) => return Err(unchanged),
            }
        }
    }

    fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Relaxed) + 1
    }

    /// Makes a user of this name, which may call no command yet.
    fn new_user(&self, name: &str) -> User {
        let id = if name == DEFAULT_USER { DEFAULT_ID } else { self.next_id() };
        User::new(id, name, self.all_channels())
    }

    /// Removes users. Returns the numbers of those that existed. The default user stays.
    pub(crate) fn remove_users<'n>(&self, names: impl Iterator<Item = &'n str>) -> HashSet<u64> {
        let removed = self.change(|users| {
            let names = names.filter(|name| *name != DEFAULT_USER);
            Ok(names.filter_map(|name| users.all.remove(name)).map(|user| user.id).collect())
        });
        removed.unwrap_or_default()
    }

    /// Replaces all users by these. A default user that is not among them stays as it is. A user of a known name keeps its
    /// number, so that its connections stay. Returns the users before, and those that there are now.
    ///
    /// # Errors
    /// They are too many.
    pub(crate) fn replace_users(&self, all: Vec<User>) -> Result<(Users, Users), Unchanged> {
        self.change(|users| {
            let before = users.clone();
            let mut old = std::mem::take(&mut users.all);
            if let Some((name, default)) = old.remove_entry(DEFAULT_USER) {
                users.all.insert(name, default);
            }
            for mut user in all {
                if user.name() != DEFAULT_USER {
                    user.id = old.get(user.name()).map_or_else(|| self.next_id(), |old| old.id);
                }
                users.insert(user);
            }
            if users.is_bounded() { Ok((before, users.clone())) } else { Err(Unchanged::TooMany) }
        })
    }

    /// The default user's first password, if it has one.
    pub(crate) fn password(&self) -> Option<Digest> {
        self.users().get(DEFAULT_USER).and_then(|user| user.passwords().first().cloned())
    }

    /// The default user as it is now, for [`Access::put_back_login`].
    pub(crate) fn default_login(&self) -> Option<Arc<User>> {
        self.users().get(DEFAULT_USER).cloned()
    }

    /// Restores how the default user logs in; what it may do stays as it is.
    pub(crate) fn put_back_login(&self, then: &User) {
        let _ = self.change(|users| {
            if let Some(default) = users.all.get_mut(DEFAULT_USER) {
                Arc::make_mut(default).log_in_as(then);
            }
            Ok(())
        });
    }

    /// Sets the default user's password, or takes it away; connections that are logged in stay so. Where there were other users
    /// at the start, or in a file since, no client is the default user without a password.
    pub(crate) fn set_password(&self, password: Option<Digest>) {
        let _ = self.change(|users| {
            if let Some(default) = users.all.get_mut(DEFAULT_USER) {
                let default = Arc::make_mut(default);
                // One that a rule has turned off stays so.
                if default.is_unnamed {
                    default.enabled = password.is_some();
                }
                let no_password = password.is_none() && !self.has_others.load(Relaxed);
                default.set_password(password, no_password);
            }
            Ok(())
        });
    }

    /// Returns whether this name and password log in. For a user that needs no password (`nopass`) any password does.
    pub fn admits(&self, user: &[u8], password: &[u8]) -> bool {
        self.log_in(user, password).is_some()
    }

    /// The user of this name and password, and the epoch at which that was so.
    pub(crate) fn log_in(&self, user: &[u8], password: &[u8]) -> Option<(Arc<User>, u64)> {
        if user.len() > SECRET_BYTES_MAX || password.len() > SECRET_BYTES_MAX {
            return None;
        }
        let users = self.users();
        users.find(user, password).0.map(|user| (Arc::clone(user), users.epoch))
    }

    /// The user of this name, if it may log in, and the epoch of the look. No password is compared: the client's certificate
    /// names the user.
    pub(crate) fn named(&self, name: &str) -> Option<(Arc<User>, u64)> {
        let users = self.users();
        users.get(name).filter(|user| user.enabled).map(|user| (Arc::clone(user), users.epoch))
    }

    /// Nanoseconds that [`Access::admits`] takes for a name and a password of so many bytes together.
    pub(crate) fn look_ns(&self, bytes: usize) -> u64 {
        LOOK_NS + self.said_ns(bytes) + LOOK_ROW_NS * self.users().rows() as u64
    }

    /// The part of [`Access::look_ns`] that grows with the bytes of name and password.
    pub(crate) fn said_ns(&self, bytes: usize) -> u64 {
        LOOK_BYTE_NS * bytes.min(2 * SECRET_BYTES_MAX) as u64
    }

    /// Locks the table of users. Readers copy the `Arc`, and look through it without the lock.
    fn lock(&self) -> MutexGuard<'_, Arc<Users>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        let closed = Access::new(Some(&"secret".into()), &named(&[("app", "other"), ("app", "next")]));
        assert!(closed.asks());
        assert!(closed.admits(b"default", b"secret") && closed.admits(b"app", b"other"));
        assert!(closed.admits(b"app", b"next"), "a user may have several");
        for bad in [&b""[..], b"secre", b"secrets", b"other"] {
            assert!(!closed.admits(b"default", bad));
        }
        assert!(!closed.admits(b"app", b"secret"));
        let named = Access::new(None, &named(&[("app", "other")]));
        assert!(named.asks() && !named.admits(b"default", b"") && !named.admits(b"", b"other"));
    }

    #[test]
    fn every_look_compares_all_rows_whoever_is_asked_for() {
        let users = named(&[("one", "a"), ("two", "b"), ("three", "c")]);
        let access = Access::new(Some(&"secret".into()), &users);
        let users = access.users();
        for (user, password, is_right) in [
            (&b"one"[..], &b"a"[..], true),
            (b"three", b"c", true),
            (b"three", b"wrong", false),
            (b"nobody", b"c", false),
            (b"", b"", false),
            (b"default", &[b's'; 4096], false),
        ] {
            let (found, compared) = users.find(user, password);
            assert_eq!((found.is_some(), compared), (is_right, 4));
        }
    }

    #[test]
    fn a_password_has_as_many_bytes_as_are_looked_at() {
        let text = "p".repeat(SECRET_BYTES_MAX + 1);
        for (bytes, admits) in
            [(SECRET_BYTES_MAX - 1, true), (SECRET_BYTES_MAX, true), (SECRET_BYTES_MAX + 1, false)]
        {
            let access = Access::new(Some(&text[..bytes].into()), &[]);
            assert_eq!(access.admits(b"default", &text.as_bytes()[..bytes]), admits);
        }
    }

    /// Names of all users may be 16 MiB, and logins wait for each change.
    #[test]
    fn a_change_of_users_copies_no_names() {
        let access = Access::new(None, &named(&[("app", "one"), ("other", "two")]));
        let before = access.users();
        access.set_password(Some("secret".into()));
        let (after, default) = (access.users(), access.default_login().expect("one"));
        assert!(before.all.keys().zip(after.all.keys()).all(|(before, after)| Arc::ptr_eq(before, after)));
        assert!(std::ptr::eq(default.name(), &**after.all.get_key_value(DEFAULT_USER).expect("one").0));
    }

    #[test]
    fn a_password_is_set_and_taken_away_and_nothing_shows_it() {
        let access = Access::new(None, &named(&[("app", "canary")]));
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
