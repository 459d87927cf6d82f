//! Users: each client has its own. An administrator changes their permissions and passwords, removes and
//! creates them.
//!
//! ```text
//! take, give     the key that is lent to an owner         renew    another password
//! remove ─► make the user is gone, and is there again, with another password
//! ```
//!
//! The passwords of every second owner are in a file, which the server reads again at a signal. Only that
//! changes these passwords.
//!
//! A change holds for every request that was sent after its reply, and for none that was answered before the
//! change was requested. In between, both the old and the new state are right. The default user is off; no
//! client uses it.

use std::net::SocketAddr;

use larder_commands::Digest;
use larder_testkit::folder::Folder;

use crate::world::plan::Plan;
use crate::world::simulation::owner_name;
use crate::world::user::{ADMINS, Change, Kind, There, User, listener_name};

/// Whether the password of a client that connects is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Login {
    Right,
    /// The user is gone: its password is wrong.
    Wrong,
    /// A change is under way, or was not answered.
    Unknown,
}

/// How often each case was met, and answered rightly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Refused requests for what a user is never allowed.
    pub refused: u64,
    /// Refused requests for a lent key whose permission was taken away. `given`: requests carried out after
    /// it was given back.
    pub taken: u64,
    pub given: u64,
    /// Refused wrong passwords. `outdated`: those of them that had been right before.
    pub wrong: u64,
    pub outdated: u64,
    /// Connected users that were removed. `overtaken`: connections that were closed during a change of their
    /// users' rules.
    pub removed: u64,
    pub overtaken: u64,
    /// Reloads of the file that brought a new password.
    pub reread: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.refused += other.refused;
        self.taken += other.taken;
        self.given += other.given;
        self.wrong += other.wrong;
        self.outdated += other.outdated;
        self.removed += other.removed;
        self.overtaken += other.overtaken;
        self.reread += other.reread;
    }
}

/// The state of the client's user when a request is queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    rules: u64,
    logins: u64,
    is_lent: bool,
    was_taken: bool,
}

/// The name of the file of users.
const FILE: &str = "users";

/// All users, by client; empty if clients need not log in.
#[derive(Debug, Default)]
pub struct Users {
    all: Vec<User>,
    /// The folder of the file of users and their passwords.
    folder: Option<Folder>,
    /// The client whose new password is in the file, but not yet read by the server.
    filing: Option<usize>,
    /// Connections of users that were removed.
    pub removed: Vec<SocketAddr>,
    /// Connections whose users an administrator is removing.
    pub removing: Vec<SocketAddr>,
    /// From now on no user is removed.
    pub stay: bool,
    pub counts: Counts,
    /// Logins without an answer.
    pub unsure: u64,
}

impl Users {
    /// The users of a world.
    pub fn new(plan: &Plan) -> Users {
        if !plan.users {
            return Users::default();
        }
        let owner =
            |owner: usize| User { is_filed: owner % 2 == 1, ..User::new(owner_name(owner), Kind::Owner) };
        let owners = (0..plan.owners).map(owner);
        let listeners = (0..plan.listeners).map(|n| User::new(listener_name(n), Kind::Listener));
        let admins = ADMINS.iter().map(|name| User::new((*name).to_owned(), Kind::Admin));
        let all = owners.chain(listeners).chain(admins).collect();
        let users = Users { all, folder: Some(Folder::new("world")), ..Users::default() };
        users.write();
        users
    }

    fn all_filed(&self) -> impl Iterator<Item = &User> {
        self.all.iter().filter(|user| user.is_filed)
    }

    /// Writes the file.
    fn write(&self) {
        let lines: Vec<String> =
            self.all_filed().map(|user| format!("{}:{}\n", user.name, user.password())).collect();
        if let Some(folder) = &self.folder {
            folder.write(FILE, &lines.concat());
        }
    }

    /// The names and password digests in the file.
    pub fn filed(&self) -> Vec<(String, Digest)> {
        self.all_filed().map(|user| (user.name.clone(), user.password().as_str().into())).collect()
    }

    /// The file's path.
    pub fn path(&self) -> Option<String> {
        self.folder.as_ref().map(|folder| folder.at(FILE))
    }

    /// Writes a new password of a user into the file, which the server has to read then; false if the user
    /// cannot be changed now.
    pub fn file_another(&mut self, client: usize) -> bool {
        let user = &mut self.all[client];
        if self.filing.is_some() || !user.is_filed || !user.is_free() {
            return false;
        }
        user.begin(Change::Renew);
        self.filing = Some(client);
        self.write();
        true
    }

    /// Notes that the server has read the file again.
    pub fn reread(&mut self) {
        if let Some(client) = self.filing.take() {
            self.all[client].done(Change::Renew);
            self.counts.reread += 1;
        }
    }

    /// The lines that define the users at the server's start.
    pub fn lines(&self) -> String {
        let mut lines = String::from("user default off\n");
        for user in &self.all {
            let password = if user.is_filed { String::new() } else { format!(" >{}", user.password()) };
            lines += &format!("user {} on{password} {}\n", user.name, user.rules().join(" "));
        }
        lines
    }

    /// True if clients have to log in.
    pub fn any(&self) -> bool {
        !self.all.is_empty()
    }

    /// The user of a client.
    pub fn of(&self, client: usize) -> &User {
        &self.all[client]
    }

    /// The last client's user: an administrator, whose password stays.
    ///
    /// # Panics
    /// If there are no users.
    pub fn last(&self) -> &User {
        self.all.last().expect("there are users")
    }

    /// True if no change of any user is under way or unanswered.
    pub fn are_certain(&self) -> bool {
        self.all.iter().all(User::is_certain)
    }

    /// Whether the password of a client is right now.
    pub fn login(&self, client: usize) -> Login {
        let Some(user) = self.all.get(client) else { return Login::Right };
        match (user.changing, user.there) {
            (Some(Change::Renew | Change::Remove | Change::Make), _) | (_, There::Perhaps) => Login::Unknown,
            (Some(Change::Take | Change::Give) | None, There::Is) => Login::Right,
            (Some(Change::Take | Change::Give) | None, There::Not) => Login::Wrong,
        }
    }

    /// The state of the client's user now.
    pub fn stamp(&self, client: usize) -> Stamp {
        self.all.get(client).map_or(Stamp::default(), |user| Stamp {
            rules: user.rules,
            logins: user.logins,
            is_lent: user.is_lent,
            was_taken: user.was_taken,
        })
    }

    /// True if the user's rules are certain, and have not changed since the stamp.
    pub fn is_sure_of_rules(&self, client: usize, stamp: Stamp) -> bool {
        let now = self.stamp(client);
        now.rules == stamp.rules && now.rules.is_multiple_of(2)
    }

    /// The same for its password and its existence.
    pub fn is_sure_of_login(&self, client: usize, stamp: Stamp) -> bool {
        let now = self.stamp(client);
        now.logins == stamp.logins && now.logins.is_multiple_of(2)
    }

    /// Notes the reply to a request for the lent key.
    ///
    /// # Errors
    /// The request was refused although it was allowed, or the other way round.
    pub fn lent(&mut self, client: usize, stamp: Stamp, refused: bool) -> Result<(), String> {
        if !self.is_sure_of_rules(client, stamp) {
            return Ok(());
        }
        if refused == stamp.is_lent {
            let may = if stamp.is_lent { "was given" } else { "was taken" };
            return Err(format!("{} {may} the right to this before it asked", self.all[client].name));
        }
        self.counts.taken += u64::from(refused);
        self.counts.given += u64::from(!refused && stamp.was_taken);
        Ok(())
    }

    /// Notes that a wrong password was refused.
    pub fn refused_login(&mut self, client: usize) {
        self.counts.wrong += 1;
        let user = &self.all[client];
        self.counts.outdated += u64::from(user.password > 0 || user.there == There::Not);
    }

    /// Notes that a client has connected.
    pub fn connected(&mut self, client: usize, address: SocketAddr) {
        if let Some(user) = self.all.get_mut(client) {
            user.line = Some((address, false));
        }
    }

    /// Notes that a client has logged in.
    pub fn admitted(&mut self, client: usize) {
        if let Some((_, is_in)) = self.all.get_mut(client).and_then(|user| user.line.as_mut()) {
            *is_in = true;
        }
    }

    /// True if a client has logged in on its connection, or need not.
    pub fn is_in(&self, client: usize) -> bool {
        self.all.get(client).is_none_or(|user| user.line.is_some_and(|(_, is_in)| is_in))
    }

    /// Notes that a client's connection has ended.
    pub fn disconnected(&mut self, client: usize) {
        if let Some(user) = self.all.get_mut(client) {
            user.line = None;
        }
    }

    /// The address of the connection of a user's client.
    pub fn address(&self, client: usize) -> Option<SocketAddr> {
        self.all[client].line.map(|(address, _)| address)
    }

    /// A user that is removed or in an unknown state, and the change that repairs it.
    pub fn broken(&self) -> Option<(usize, Change)> {
        let of = |user: &User| match (user.changing, user.there) {
            (Some(_), _) => None,
            (None, There::Not | There::Perhaps) => Some(Change::Make),
            (None, There::Is) => (!user.rules.is_multiple_of(2)).then_some(Change::Give),
        };
        self.all.iter().enumerate().find_map(|(client, user)| Some((client, of(user)?)))
    }

    /// Changes that may be made to a user now.
    pub fn changes(&self, client: usize) -> Vec<Change> {
        let user = &self.all[client];
        if user.kind == Kind::Admin || !user.is_free() {
            return Vec::new();
        }
        let mut changes = Vec::new();
        if !user.is_filed {
            changes.push(Change::Renew);
            changes.extend((!self.stay).then_some(Change::Remove));
        }
        if user.kind == Kind::Owner {
            changes.extend([if user.is_lent { Change::Take } else { Change::Give }; 3]);
        }
        changes
    }

    /// Begins a change; returns the words of its command.
    pub fn begin(&mut self, client: usize, change: Change) -> Vec<String> {
        let user = &mut self.all[client];
        user.begin(change);
        user.command(change)
    }

    /// Notes the reply to a change; `address`: the connection of a removed user's client, which is to be
    /// closed.
    pub fn done(&mut self, client: usize, change: Change, address: Option<SocketAddr>) {
        self.all[client].done(change);
        self.counts.removed += u64::from(address.is_some());
        self.removed.extend(address);
    }

    /// Notes that a change was not answered.
    pub fn left(&mut self, client: usize, change: Change) {
        self.all[client].left(change);
    }
}

#[test]
fn what_is_right_is_unknown_from_a_change_until_its_reply() {
    let mut users = Users { all: vec![User::new("owner0".into(), Kind::Owner)], ..Users::default() };
    let before = users.stamp(0);
    assert_eq!(users.lent(0, before, false), Ok(()));
    assert!(users.lent(0, before, true).is_err());
    users.begin(0, Change::Take);
    let amid = users.stamp(0);
    users.done(0, Change::Take, None);
    for unsure in [before, amid] {
        assert_eq!((users.lent(0, unsure, false), users.lent(0, unsure, true)), (Ok(()), Ok(())));
    }
    let behind = users.stamp(0);
    assert!(users.lent(0, behind, false).is_err());
    assert_eq!(users.lent(0, behind, true), Ok(()));
    assert_eq!((users.counts.taken, users.counts.given), (1, 0));
    users.begin(0, Change::Give);
    users.left(0, Change::Give);
    assert_eq!((users.broken(), users.are_certain()), (Some((0, Change::Give)), false));
    users.begin(0, Change::Give);
    users.done(0, Change::Give, None);
    assert!(users.are_certain() && users.lent(0, users.stamp(0), false).is_ok());
    assert_eq!(users.counts.given, 1);
}

#[test]
fn a_removed_user_is_made_with_another_password_and_the_one_before_stays_wrong() {
    let mut users = Users { all: vec![User::new("owner0".into(), Kind::Owner)], ..Users::default() };
    let first = users.of(0).password();
    users.begin(0, Change::Remove);
    assert_eq!(users.login(0), Login::Unknown);
    users.done(0, Change::Remove, None);
    assert_eq!((users.login(0), users.of(0).wrong_password()), (Login::Wrong, first.clone()));
    assert_eq!(users.broken(), Some((0, Change::Make)));
    let words = users.begin(0, Change::Make);
    assert!(words.contains(&format!(">{}", users.of(0).password())) && users.of(0).password() != first);
    users.left(0, Change::Make);
    assert_eq!((users.login(0), users.broken()), (Login::Unknown, Some((0, Change::Make))));
    users.begin(0, Change::Make);
    users.done(0, Change::Make, None);
    assert_eq!(users.login(0), Login::Right);
    assert!(users.are_certain() && users.of(0).wrong_password() != users.of(0).password());
}
