//! A user: its permissions, its password, and the state of an administrator's changes.

use std::net::SocketAddr;

use crate::world::asking_resp::channel_name;
use crate::world::bank::LEDGER;
use crate::world::log::LOG;

/// The names of administrators. They are the last clients, and may do everything.
pub const ADMINS: [&str; 2] = ["text-admin", "redis-admin"];

/// Patterns of keys that all owners use.
const SHARED: [&str; 11] = [
    "count-*",
    "contest-*",
    "account-*",
    LEDGER,
    "list-*",
    "counts",
    "board",
    "queue-*",
    "left",
    "right",
    LOG,
];

/// A listener's name.
pub fn listener_name(index: usize) -> String {
    format!("listener{index}")
}

/// The key that is lent to an owner.
pub fn lent_name(owner: &str) -> String {
    format!("lent-{owner}")
}

/// The kind of client that a user is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Owner,
    Listener,
    Admin,
}

/// A change that an administrator makes to a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Takes away the permission for its lent key.
    Take,
    /// Gives that permission back.
    Give,
    /// Replaces its password.
    Renew,
    Remove,
    /// Creates a removed user again, with another password.
    Make,
}

/// Whether a user exists and has the password that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum There {
    Is,
    /// A change was not answered: it may have been carried out or not.
    Perhaps,
    Not,
}

/// A user.
#[derive(Debug)]
pub struct User {
    pub name: String,
    pub kind: Kind,
    /// Its password is in the file.
    pub is_filed: bool,
    /// The number of its password.
    pub password: u64,
    pub there: There,
    /// The change that is under way.
    pub changing: Option<Change>,
    /// Version of its rules: rises when a change of them begins, and when it is done. While it is odd, the
    /// old or the new rules may apply.
    pub rules: u64,
    /// The same for its password and its existence.
    pub logins: u64,
    /// It may use its lent key.
    pub is_lent: bool,
    /// That permission was taken away at least once.
    pub was_taken: bool,
    /// Its client's connection, and whether the client has logged in there.
    pub line: Option<(SocketAddr, bool)>,
}

impl User {
    /// A user with the usual permissions of its kind.
    pub fn new(name: String, kind: Kind) -> User {
        User {
            name,
            kind,
            is_filed: false,
            password: 0,
            there: There::Is,
            changing: None,
            rules: 0,
            logins: 0,
            is_lent: true,
            was_taken: false,
            line: None,
        }
    }

    /// Its password.
    pub fn password(&self) -> String {
        format!("{}-pw-{}", self.name, self.password)
    }

    /// A wrong password: the last one of a removed user, else the one before the present one, if there was
    /// one.
    pub fn wrong_password(&self) -> String {
        match (self.there, self.password.checked_sub(1)) {
            (There::Not, _) => self.password(),
            (_, Some(before)) => format!("{}-pw-{before}", self.name),
            (_, None) => format!("{}-none", self.name),
        }
    }

    /// The key patterns of an owner; `lent`: with its lent key.
    fn keys(&self, lent: bool) -> Vec<String> {
        let mut keys = vec![format!("~{}-*", self.name)];
        keys.extend(SHARED.iter().map(|key| format!("~{key}")));
        keys.extend(lent.then(|| format!("~{}", lent_name(&self.name))));
        keys
    }

    /// The rules that give a new user the permissions of its kind.
    pub fn rules(&self) -> Vec<String> {
        let words = |words: &str| words.split(' ').map(str::to_owned).collect::<Vec<_>>();
        match self.kind {
            Kind::Admin => words("~* &* +@all"),
            Kind::Listener => words("&channel-* +@connection +@pubsub"),
            Kind::Owner => {
                let mut rules = self.keys(true);
                rules.push(format!("&{}", channel_name(&self.name)));
                rules.extend(words("+@all -@admin -flushall -flushdb"));
                rules
            }
        }
    }

    /// The words of the command for a change that has begun.
    pub fn command(&self, change: Change) -> Vec<String> {
        let verb = if change == Change::Remove { "DELUSER" } else { "SETUSER" };
        let mut words = vec!["ACL".to_owned(), verb.to_owned(), self.name.clone()];
        match change {
            Change::Remove => {}
            Change::Take => {
                words.push("resetkeys".to_owned());
                words.extend(self.keys(false));
            }
            Change::Give => words.push(format!("~{}", lent_name(&self.name))),
            Change::Renew => words.extend(["resetpass".to_owned(), format!(">{}", self.password())]),
            Change::Make => {
                words.extend(["reset".to_owned(), "on".to_owned(), format!(">{}", self.password())]);
                words.extend(self.rules());
            }
        }
        words
    }

    /// True if it is certain what the user may do and which password is right.
    pub fn is_certain(&self) -> bool {
        self.changing.is_none() && self.there == There::Is && self.rules.is_multiple_of(2)
    }

    /// True if a change may begin: none is under way, and the client is not logging in.
    pub fn is_free(&self) -> bool {
        self.is_certain() && self.line.is_none_or(|(_, is_in)| is_in)
    }

    /// Notes that a change is requested.
    pub fn begin(&mut self, change: Change) {
        self.changing = Some(change);
        match change {
            Change::Take | Change::Give => self.rules |= 1,
            Change::Renew => (self.password, self.logins) = (self.password + 1, self.logins | 1),
            Change::Remove => self.logins |= 1,
            Change::Make => {
                (self.password, self.logins) = (self.password + 1, self.logins | 1);
                self.rules |= 1;
            }
        }
    }

    /// Notes that a change was answered.
    pub fn done(&mut self, change: Change) {
        self.changing = None;
        match change {
            Change::Take => (self.rules, self.is_lent, self.was_taken) = (self.rules + 1, false, true),
            Change::Give => (self.rules, self.is_lent) = (self.rules + 1, true),
            Change::Renew => self.logins += 1,
            Change::Remove => (self.logins, self.there) = (self.logins + 1, There::Not),
            Change::Make => {
                (self.rules, self.is_lent) = (self.rules + 1, true);
                (self.logins, self.there) = (self.logins + 1, There::Is);
            }
        }
    }

    /// Notes that the connection on which a change was requested ended before the reply.
    pub fn left(&mut self, change: Change) {
        self.changing = None;
        match change {
            // The rules stay unknown until the key is given again.
            Change::Take | Change::Give => {}
            Change::Renew | Change::Remove | Change::Make => self.there = There::Perhaps,
        }
    }
}
