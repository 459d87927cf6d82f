//! What the client's user may do: checked before each command, unless the user may do everything.
//!
//! ```text
//! Standing::is_free ── yes ──► nothing is checked, and the client is read ahead
//!        │ no
//!        ├─► User::is_read_ahead: a request of one key ──► User::may_ahead ── yes ──► read ahead, too     (session/gate.rs)
//!        │                                                      │ no
//!        └─► permit: the command, its keys, its channels ◄──────┘
//!                └──► User::check ──► -NOPERM, and ACL LOG
//! ```
//!
//! A request is checked where it is queued and where it runs, and in scripts before each command. It is checked again where the
//! user or its rules may have changed since: in EXEC, before a waiting command is given something, before an uploaded value is
//! stored, and for each channel that is subscribed to. What a command does with its keys is in its row, as `COMMAND
//! GETKEYSANDFLAGS` shows it.

mod categories;

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::fence;

use larder_protocol::resp::Args;
use larder_store::Millis;

pub(crate) use self::categories::{CATEGORIES, CATEGORIES_NS, categories};
use super::call::{Call, Flow};
use super::facts::ClientFacts;
use super::fail::{Done, Fail};
use super::row::{Access, Channels, Command, flag};
use super::rows::Rows;
use crate::core;
use crate::core::access::{Since, Snapshot};
use crate::core::acl::asked::{Asked, AskedKeys};
use crate::core::acl::log::{REFUSAL_NS, Reason, Refusal, Whence};
use crate::core::acl::pattern::Need;
use crate::core::acl::rules::{CHECK_NS_MAX, Denied};
use crate::core::acl::user::User;
use crate::core::calls::RowId;
use crate::core::progress::Ending;

/// Work to begin with a queued command.
const QUEUED_NS: u64 = 20;
/// Refusals of one EXEC that ACL LOG lists; more are only counted.
const NOTED_MAX: usize = 64;

const NO_AUTH: Fail = Fail::of("NOAUTH Authentication required.");

/// What was checked for one request, or one EXEC.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// Work of that, in nanoseconds.
    pub ns: u64,
    refused: usize,
}

/// Notes for ACL LOG that a client was denied a command, as this user.
#[cold]
pub(crate) fn note_denied(
    access: &core::access::Access,
    whence: Whence,
    row: &Command,
    denied: &Denied<'_>,
    user: &str,
    client: &ClientFacts,
    now: Millis,
) {
    let object = match denied {
        Denied::Command | Denied::TooMuch => row.name.as_bytes(),
        Denied::Key(name) | Denied::Channel(name) => name,
    };
    let client = client.line(now);
    let reason = Reason::of(denied);
    access.log.note(&Refusal { reason, whence, object, user: user.as_bytes(), client }, now);
}

/// The permissions that an access to a key needs.
fn need(access: Access) -> Need {
    match access {
        Access::Look => Need::NOTHING,
        Access::Read | Access::Deliver => Need::READ,
        Access::Replace
        | Access::Make
        | Access::Extend
        | Access::Update
        | Access::Reduce
        | Access::Remove => Need::WRITE,
        Access::Change | Access::Take => Need::BOTH,
    }
}

/// The permissions needed for the first key among `args`, which begin behind the name.
#[inline]
pub(crate) fn need_of_first(row: &Command, args: Args<'_>) -> Need {
    need(row.uses.map_or_else(|| row.access_of(0), |uses| uses(args)))
}

/// Calls `visit` with each key among `args`, which begin behind the name, and the permissions that it needs.
fn each_need<'a>(row: &Command, args: Args<'a>, visit: &mut dyn FnMut(&'a [u8], Need)) {
    let always = row.uses.map(|uses| uses(args));
    let mut nth = 0;
    row.each_key(args, &mut |key| {
        visit(key, need(always.unwrap_or_else(|| row.access_of(nth))));
        nth += 1;
    });
}

/// The keys among `args`, which begin behind the name, if the row alone says which words they are and needs the same for all.
fn plain_keys<'v, 'a>(row: &Command, args: Args<'a>) -> Option<AskedKeys<'v, 'a>> {
    if !row.keys.any() {
        return Some(AskedKeys::None);
    }
    if row.uses.is_some() || row.access.len() > 1 {
        return None;
    }
    let (words, step) = row.key_words(args)?;
    Some(AskedKeys::Words { words, step, need: need(row.access_of(0)) })
}

/// Calls `visit` with each channel among `args`, and whether it is a pattern.
fn each_channel<'a>(row: &Command, args: Args<'a>, visit: &mut dyn FnMut(&'a [u8], bool)) {
    match row.channels {
        Channels::None => {}
        Channels::First => args.take(1).for_each(|channel| visit(channel, false)),
        Channels::All => args.for_each(|channel| visit(channel, false)),
        Channels::Patterns => args.for_each(|channel| visit(channel, true)),
    }
}

/// Checks that a user may run a command with these arguments, which begin behind its name. Adds that work to `ns`.
///
/// # Errors
/// It may not.
pub(crate) fn check<'a>(
    user: &User,
    (row, id): (&'static Command, RowId),
    args: Args<'a>,
    ns: &mut u64,
) -> Result<(), Denied<'a>> {
    with_asked(row, id, args, |asked| user.check(asked, ns))
}

/// Checks that a user may still be given something of these keys, for which its client waits, and write to `target`, if there is
/// one. Adds that work to `ns`.
///
/// # Errors
/// It may not.
pub(crate) fn check_waiting<'a>(
    user: &User,
    (row, id): (&'static Command, RowId),
    keys: &'a [Box<[u8]>],
    target: Option<&'a [u8]>,
    ns: &mut u64,
) -> Result<(), Denied<'a>> {
    let each = |visit: &mut dyn FnMut(&'a [u8], Need)| {
        keys.iter().for_each(|key| visit(key, need(row.access_of(0))));
        target.into_iter().for_each(|target| visit(target, need(row.access_of(1))));
    };
    user.check(
        &Asked {
            command: id,
            is_free: false,
            first: keys.first().map(|key| &**key),
            keys: AskedKeys::Each(&each),
            channels: None,
        },
        ns,
    )
}

/// Whether the user may run MONITOR.
pub(crate) fn may_monitor(rows: &Rows, user: &User) -> bool {
    let row = rows.find(b"monitor");
    row.is_some_and(|(row, id)| check(user, (row, id), Args::EMPTY, &mut 0).is_ok())
}

fn with_asked<'a, R>(
    row: &'static Command,
    id: RowId,
    args: Args<'a>,
    f: impl FnOnce(&Asked<'_, 'a>) -> R,
) -> R {
    let each = |visit: &mut dyn FnMut(&'a [u8], Need)| each_need(row, args, visit);
    let channels = |visit: &mut dyn FnMut(&'a [u8], bool)| each_channel(row, args, visit);
    f(&Asked {
        command: id,
        is_free: row.has(flag::NO_AUTH),
        first: args.clone().next(),
        keys: plain_keys(row, args).unwrap_or(AskedKeys::Each(&each)),
        channels: if row.channels == Channels::None { None } else { Some(&channels) },
    })
}

/// Bytes of a refused name that its client is shown, at most.
const SHOWN_BYTES_MAX: usize = 512;

/// Says why a request is denied, in Redis's words without the first; with `tells`, also which key or channel it is.
pub(crate) fn told(user: &User, row: &Command, denied: &Denied<'_>, tells: bool) -> String {
    let shown = |bytes: &[u8]| super::fail::shown(bytes, SHOWN_BYTES_MAX);
    match denied {
        Denied::Command => {
            format!("User {} has no permissions to run the '{}' command", user.name(), row.name)
        }
        Denied::Key(key) if tells => {
            format!("User {} has no permissions to access the '{}' key", user.name(), shown(key))
        }
        Denied::Channel(channel) if tells => {
            format!("User {} has no permissions to access the '{}' channel", user.name(), shown(channel))
        }
        Denied::Key(_) => "No permissions to access a key".into(),
        Denied::Channel(_) => "No permissions to access a channel".into(),
        Denied::TooMuch => "Too many keys for the patterns of this user".into(),
    }
}

/// Says why EXEC does not run a queued command.
fn told_late(denied: &Denied<'_>) -> &'static str {
    match denied {
        Denied::Command => "no permission to execute the command or subcommand",
        Denied::Key(_) => "no permission to touch the specified keys",
        Denied::Channel(_) => "no permission to access one of the channels used as arguments",
        Denied::TooMuch => "too many keys for the patterns of this user",
    }
}

impl Call<'_, '_, '_> {
    /// Checks that the client's user may run a command. Called for users that may not do everything.
    ///
    /// # Errors
    /// It may not; that is noted.
    #[cold]
    pub fn permit(&mut self, row: &'static Command, id: RowId, args: Args<'_>, whence: Whence) -> Done {
        let say = |user: &User, denied: &Denied<'_>| {
            let why = told(user, row, denied, false);
            Fail::with(match whence {
                Whence::Script => format!("ERR ACL failure in script: {why}"),
                Whence::TopLevel | Whence::Multi => format!("NOPERM {why}"),
            })
        };
        self.permit_or(row, id, args, whence, &mut Looked::default(), say)
    }

    /// As [`Call::permit`], in EXEC, for a command that was queued by another user or under other rules. `looked`: what this EXEC
    /// has checked so far.
    ///
    /// # Errors
    /// It may not; that is noted.
    #[cold]
    pub fn permit_queued(
        &mut self,
        row: &'static Command,
        id: RowId,
        args: Args<'_>,
        looked: &mut Looked,
    ) -> Done {
        self.permit_or(row, id, args, Whence::Multi, looked, |_, denied| {
            Fail::with(format!(
                "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no longer allowed for the following reason: {}",
                told_late(denied)
            ))
        })
    }

    /// Checks a queued command ahead, and notes no refusal; false if all such checks take too long.
    pub fn looks_at_queued(
        &self,
        row: &'static Command,
        id: RowId,
        args: Args<'_>,
        looked: &mut Looked,
    ) -> bool {
        let Some(user) = self.client.standing.user() else { return true };
        looked.ns += QUEUED_NS;
        let denied = check(user, (row, id), args, &mut looked.ns);
        denied != Err(Denied::TooMuch) && looked.ns <= CHECK_NS_MAX / 2
    }

    fn permit_or(
        &mut self,
        row: &'static Command,
        id: RowId,
        args: Args<'_>,
        whence: Whence,
        looked: &mut Looked,
        say: impl FnOnce(&User, &Denied<'_>) -> Fail,
    ) -> Done {
        // The user is not cloned: its count is on a line that all workers of this user would write.
        let Some(user) = self.client.standing.take_user() else {
            // In EXEC the client may have removed its own user.
            let may = self.client.standing.is_admitted() || row.has(flag::NO_AUTH);
            return if may { Ok(()) } else { Err(NO_AUTH) };
        };
        let before = looked.ns;
        let checked = check(&user, (row, id), args, &mut looked.ns);
        self.spend(looked.ns.saturating_sub(before));
        let done = checked.map_err(|denied| {
            looked.refused += 1;
            if looked.refused > NOTED_MAX {
                self.cx.shared.access.log.count(Reason::of(&denied));
            } else {
                self.spend(REFUSAL_NS);
                let (access, now) = (&self.cx.shared.access, self.cx.now());
                note_denied(access, whence, row, &denied, user.name(), &self.client.facts, now);
            }
            say(&user, &denied)
        });
        self.client.standing.put_back(user);
        done
    }

    /// Notes a refusal for ACL LOG.
    #[cold]
    pub fn note_refusal(&mut self, reason: Reason, whence: Whence, object: &[u8], user: &[u8]) {
        self.spend(REFUSAL_NS);
        let client = self.client.facts.line(self.cx.now());
        let refusal = Refusal { reason, whence, object, user, client };
        self.cx.shared.access.log.note(&refusal, self.cx.now());
    }

    /// Checks that the client's user may still listen to a name that was just subscribed to. A command that takes channels away
    /// changes the rules first and looks for subscriptions then, so that one of the two sees the other.
    ///
    /// # Errors
    /// It may not, or is gone: the connection is closed.
    pub fn still_hears(&mut self, then: &Snapshot, channel: &[u8], is_pattern: bool) -> Done {
        if self.still_may(then, |user, ns| user.may_hear(channel, is_pattern, ns)) {
            return Ok(());
        }
        self.close_at_once();
        Err(Fail::of("NOPERM No permissions to access a channel"))
    }

    /// As [`Call::still_hears`], for a client that was just made a monitor.
    ///
    /// # Errors
    /// Its user may not, or is gone: the connection is closed.
    pub fn still_monitors(&mut self, then: &Snapshot) -> Done {
        let rows = self.shared.rows;
        if self.still_may(then, |user, _| may_monitor(rows, user)) {
            return Ok(());
        }
        self.close_at_once();
        Err(Fail::of("NOPERM The user has no permissions to run the 'monitor' command any more"))
    }

    /// Whether the client's user, as it is now, may do what it was allowed then.
    fn still_may(&mut self, then: &Snapshot, may: impl FnOnce(&User, &mut u64) -> bool) -> bool {
        fence(SeqCst);
        match then.since(&self.cx.shared.access) {
            Since::AsGood => true,
            Since::Gone => false,
            Since::Changed(user) => {
                let mut ns = 0;
                let may = may(&user, &mut ns);
                self.spend(ns);
                may
            }
        }
    }

    fn close_at_once(&mut self) {
        self.flow = Flow::Close(Ending::Error);
        let facts = &self.client.facts;
        if facts.turn_out(&self.cx.shared.access.log) {
            self.cx.host.kill(facts.place, facts.id);
        }
    }

    /// Where the client's request runs, for ACL LOG.
    pub fn whence(&self) -> Whence {
        if self.client.transaction.is_open() { Whence::Multi } else { Whence::TopLevel }
    }

    /// Whether the user may call a command from a script, with these keys and channels.
    pub fn may_call(&mut self, row: &'static Command, id: RowId, args: Args<'_>) -> bool {
        let Some(user) = self.client.standing.user().filter(|_| !self.client.standing.is_free()) else {
            return true;
        };
        let mut ns = 0;
        let may = check(user, (row, id), args, &mut ns).is_ok();
        self.spend(ns);
        may
    }

    /// Whether the user may read every key by this command, also keys that its arguments do not name.
    pub fn may_read_every_key(&mut self, name: &str, args: Args<'_>) -> bool {
        let Some(user) = self.client.standing.user().filter(|_| !self.client.standing.is_free()) else {
            return true;
        };
        let Some((row, id)) = self.shared.rows.find(name.as_bytes()) else { return false };
        let mut ns = 0;
        let may = with_asked(row, id, args, |asked| user.may_with_every_key(asked, Need::READ, &mut ns));
        self.spend(ns);
        may
    }
}

#[cfg(test)]
mod tests;
