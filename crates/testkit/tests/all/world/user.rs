//! A user: what its client may do, its password, and what an administrator has done to it.

use std::net::SocketAddr;

use crate::world::asking_resp::channel_name;
use crate::world::bank::LEDGER;
use crate::world::log::LOG;

/// Clients that administer: the last ones, which may do everything.
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

/// What a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Owner,
    Listener,
    Admin,
}

/// What an administrator does to a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Takes the right to the key that is lent to it.
    Take,
    /// Gives that back.
    Give,
    /// Gives it another password, in place of the one before.
    Renew,
    Remove,
    /// Makes it anew, with another password.
    Make,
}

/// Whether a user exists and has the password that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum There {
    Is,
    /// A change was not answered.
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
    /// On its way.
    pub changing: Option<Change>,
    /// Raised when its rules begin to change, and when they have changed: odd while they may be the old or the new.
    pub rules: u64,
    /// The same of its password and of whether it exists.
    pub logins: u64,
    /// It may use the key that is lent to it.
    pub is_lent: bool,
    /// It was taken that right once.
    pub was_taken: bool,
    /// Its client's connection, and whether it has logged in on that.
    pub line: Option<(SocketAddr, bool)>,
}

impl User {
    /// A user that may do what is usual for its kind.
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

    /// A password that is wrong: the last one that it had, if it had another or is gone.
    pub fn wrong_password(&self) -> String {
        match (self.there, self.password.checked_sub(1)) {
            (There::Not, _) => self.password(),
            (_, Some(before)) => format!("{}-pw-{before}", self.name),
            (_, None) => format!("{}-none", self.name),
        }
    }

    /// The patterns of its keys.
    fn keys(&self, lent: bool) -> Vec<String> {
        let mut keys = vec![format!("~{}-*", self.name)];
        keys.extend(SHARED.iter().map(|key| format!("~{key}")));
        keys.extend(lent.then(|| format!("~{}", lent_name(&self.name))));
        keys
    }

    /// The words that make its rules of none.
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

    /// The command of a change that has begun.
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

    /// Nothing is open that would make it unknown what is right for it.
    pub fn is_certain(&self) -> bool {
        self.changing.is_none() && self.there == There::Is && self.rules.is_multiple_of(2)
    }

    /// A change may begin: its client does not log in at this moment.
    pub fn is_free(&self) -> bool {
        self.is_certain() && self.line.is_none_or(|(_, is_in)| is_in)
    }

    /// A change is asked for.
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

    /// A change was answered.
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

    /// The connection by which a change was asked for has ended before the reply.
    pub fn left(&mut self, change: Change) {
        self.changing = None;
        match change {
            // The rules stay unknown, until the key is given.
            Change::Take | Change::Give => {}
            Change::Renew | Change::Remove | Change::Make => self.there = There::Perhaps,
        }
    }
}
