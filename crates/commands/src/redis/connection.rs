//! A connection's own commands: its user, its protocol, its database.

pub(crate) mod clients;
mod filter;

use larder_protocol::resp::{Args, parse_integer};

use super::call::{Call, Flow, database, is, next};
use super::client::{Client, Replies};
use super::definition::Definition;
use super::fail::{Done, Fail};
use super::reply::{put_bulk, put_simple};
use super::row::flag::{
    ALLOW_BUSY, AT_ONCE, ENDS_LISTENING, FAST, LOADING, NO_AUTH, NOSCRIPT, SELECTS, STALE, WEIGHTLESS,
    WHILE_LISTENING,
};
use super::row::{Command, NO_KEYS, Secret, Weighs};
use super::rows::REDIS_VERSION;
use super::steps::job::{Job, Step};
use crate::core::access::{DEFAULT_ID, DEFAULT_USER};
use crate::core::acl::log::{Reason, Refusal, Whence};
use crate::core::context::Context;
use crate::core::progress::Ending;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;

const ANY_TIME: u64 = LOADING | STALE | FAST | NOSCRIPT | ALLOW_BUSY | WEIGHTLESS;
const LOGIN: u64 = LOADING | STALE | FAST | NOSCRIPT | ALLOW_BUSY | NO_AUTH;

pub(crate) const ROWS: &[Definition] = &[
    Command::args("ping", -1, FAST | WEIGHTLESS, NO_KEYS, ping).with(WHILE_LISTENING).doc(
        "1.0.0",
        "[message]",
        "Answers PONG or the message.",
    ),
    Command::args("echo", 2, LOADING | STALE | FAST | WEIGHTLESS, NO_KEYS, echo).doc(
        "1.0.0",
        "message",
        "Answers the message.",
    ),
    Command::args("select", 2, LOADING | STALE | FAST, NO_KEYS, select)
        .with(SELECTS)
        .weighs(Weighs::Selection)
        .doc("1.0.0", "index", "Selects a database."),
    Command::args("quit", -1, ANY_TIME | NO_AUTH, NO_KEYS, quit)
        .with(AT_ONCE | WHILE_LISTENING | ENDS_LISTENING)
        .doc("1.0.0", "", "Closes the connection."),
    Command::args("hello", -1, LOGIN, NO_KEYS, hello).weighs(Weighs::Login).secret(Secret::Credentials).doc(
        "6.0.0",
        "[protover [AUTH username password] [SETNAME clientname]]",
        "Sets the protocol and, with AUTH, logs in.",
    ),
    Command::args("auth", -2, LOGIN, NO_KEYS, auth).weighs(Weighs::Login).secret(Secret::Behind(0)).doc(
        "1.0.0",
        "[username] password",
        "Logs in.",
    ),
    Command::container("client", clients::ROWS).doc("2.4.0", "", "Connections: this one and others."),
    Command::args("reset", 1, ANY_TIME | NO_AUTH, NO_KEYS, reset)
        .with(AT_ONCE | WHILE_LISTENING | ENDS_LISTENING)
        .doc("6.2.0", "", "Brings the connection back to how it began."),
];

fn ping(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    call.make_room(args.encoded().len())?;
    match (args.next(), args.next()) {
        (_, Some(_)) => Err(Fail::arity("ping")),
        (message, None) if call.client.only_listens() => {
            call.array(2);
            put_bulk(call.out, b"pong");
            call.bulk(message.unwrap_or_default())
        }
        (Some(message), None) => call.bulk(message),
        (None, None) => {
            put_simple(call.out, "PONG");
            Ok(())
        }
    }
}

fn echo(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    call.make_room(args.encoded().len())?;
    call.bulk(args.next().unwrap_or_default())
}

fn select(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let db = database(args.next().unwrap_or_default())?;
    call.client.select(db);
    call.ok()
}

fn quit(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    call.flow = Flow::Close(Ending::Quit);
    call.ok()
}

/// Bytes of a client's name, and of its library's, at most: others list them, and SLOWLOG keeps them.
pub(crate) const NAME_BYTES_MAX: usize = 1 << 10;

/// Checks a name of a client or a library; `what` it is, for the error.
///
/// # Errors
/// It has other than visible characters, or too many.
pub(crate) fn a_name<'a>(what: &str, text: &'a [u8]) -> Result<&'a str, Fail> {
    if text.len() > NAME_BYTES_MAX {
        return Err(Fail::with(format!("ERR {what} cannot be longer than {NAME_BYTES_MAX} bytes.")));
    }
    let visible = |text: &&str| text.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
    std::str::from_utf8(text).ok().filter(visible).ok_or_else(|| {
        Fail::with(format!("ERR {what} cannot contain spaces, newlines or special characters."))
    })
}

/// Sets the client's name.
///
/// # Errors
/// It is no valid name.
pub(crate) fn set_name(call: &mut Call<'_, '_, '_>, name: &[u8]) -> Result<(), Fail> {
    let name = a_name("Client names", name)?;
    call.client.rename(|names| names.name = name.into());
    Ok(())
}

fn hello(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let mut resp3 = call.client.resp3;
    let mut user = None;
    let mut name = None;
    if let Some(version) = args.next() {
        let version = parse_integer(version)
            .ok_or(Fail::of("ERR Protocol version is not an integer or out of range"))?;
        resp3 = match version {
            2 => false,
            3 => true,
            _ => return Err(Fail::of("NOPROTO unsupported protocol version")),
        };
        while let Some(word) = args.next() {
            let bad = || {
                let word = super::fail::shown(word, 128);
                Fail::with(format!("ERR Syntax error in HELLO option '{word}'"))
            };
            if is(word, "AUTH") && args.len() >= 2 {
                user = Some((next(&mut args)?, next(&mut args)?));
            } else if is(word, "SETNAME") && !args.is_empty() {
                let wanted = next(&mut args)?;
                a_name("Client names", wanted)?;
                name = Some(wanted);
            } else {
                return Err(bad());
            }
        }
    }
    if let Some((user, password)) = user {
        admit(call, "hello", user, password)?;
    }
    if !call.client.standing.is_admitted() {
        return Err(Fail::of(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        set_name(call, name)?;
    }
    call.client.speak(resp3);
    call.map(7);
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        put_bulk(call.out, key.as_bytes());
        put_bulk(call.out, value.as_bytes());
    }
    put_bulk(call.out, b"proto");
    call.integer(if resp3 { 3 } else { 2 })?;
    put_bulk(call.out, b"id");
    call.integer(call.client.facts.id as i64)?;
    for (key, value) in [("mode", "standalone"), ("role", "master"), ("modules", "")] {
        put_bulk(call.out, key.as_bytes());
        if value.is_empty() {
            call.array(0);
        } else {
            put_bulk(call.out, value.as_bytes());
        }
    }
    Ok(())
}

/// The commands that may check a password.
const LOGINS: [&str; 3] = ["auth", "exec", "hello"];

/// Whether a command of this name may log its client in, at once or by what was queued.
#[inline]
pub(crate) fn may_log_in(name: &[u8]) -> bool {
    LOGINS.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name))
}

/// Whether a command logs its client in by a password; `args` are behind its name.
pub(crate) fn logs_in(row: &Command, mut args: Args<'_>) -> bool {
    row.weighs == Weighs::Login
        && match row.secret {
            Secret::Credentials => args.any(|word| is(word, "AUTH")),
            _ => true,
        }
}

/// Logs the client in. The request has had its wait, if any, before. EXEC waits as one request, and checks no more passwords
/// behind the first wrong one.
fn admit(call: &mut Call<'_, '_, '_>, word: &str, user: &[u8], password: &[u8]) -> Result<(), Fail> {
    let wrong = Fail::of("WRONGPASS invalid username-password pair or user is disabled.");
    let in_transaction = call.cx.guard.in_transaction();
    if in_transaction && call.client.logins.logins_skipped() {
        return Err(wrong);
    }
    let shared = call.cx.shared;
    let access = &shared.access;
    call.spend(access.look_ns(user.len() + password.len()));
    // The request has had its wait, right or wrong. A gathered one has not: no user and password are as long.
    let found = if call.client.gathers { None } else { access.log_in(user, password) };
    let admits = found.is_some();
    // Also where clients need not log in, a named user's password may be guessed.
    if access.asks() || access.has_passwords() {
        call.client.logins.record_attempt(call.cx, admits);
    }
    let Some((found, epoch)) = found else {
        // EXEC has waited for one try only.
        call.client.logins.skip_logins(in_transaction);
        call.note_refusal(Reason::Auth, call.whence(), word.as_bytes(), user);
        return Err(wrong);
    };
    call.client.rename(|names| (names.user, names.user_id) = (found.name().into(), found.id));
    call.client.standing.admit(found, epoch);
    // A command that removes the user closes the clients that it sees as that user.
    fence(SeqCst);
    if !call.client.standing.look_again(access) {
        call.flow = Flow::Close(Ending::Error);
        return Err(wrong);
    }
    Ok(())
}

/// Logs a client in as the user that its certificate names, and returns whether that user may log in. If not, that is noted, and
/// the client stays what it is: the default user, or unauthenticated.
pub(crate) fn log_in_by_certificate(client: &mut Client, cx: &Context<'_, '_>, name: &str) -> bool {
    let access = &cx.shared.access;
    if let Some((found, epoch)) = access.named(name) {
        client.rename(|names| (names.user, names.user_id) = (found.name().into(), found.id));
        client.standing.admit(found, epoch);
        // A command that removes the user closes the clients that it sees as that user.
        fence(SeqCst);
        if client.standing.look_again(access) {
            return true;
        }
        // The user was removed at this moment.
        client.standing.forget(cx);
        client.rename(|names| (names.user, names.user_id) = (DEFAULT_USER.into(), DEFAULT_ID));
    }
    let (reason, whence) = (Reason::TlsCertificate, Whence::TopLevel);
    let (object, user, told) = (&b""[..], name.as_bytes(), client.facts.line(cx.now()));
    access.log.note(&Refusal { reason, whence, object, user, client: told }, cx.now());
    false
}

fn auth(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let (user, password) = match (args.next(), args.next(), args.next()) {
        (_, _, Some(_)) => return Err(Fail::SYNTAX),
        (Some(password), None, _) => {
            let users = call.cx.shared.access.users();
            if users.get(DEFAULT_USER).is_some_and(|user| user.no_password) {
                return Err(Fail::of(
                    "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
                ));
            }
            (&b"default"[..], password)
        }
        (user, password, _) => (user.unwrap_or_default(), password.unwrap_or_default()),
    };
    admit(call, "auth", user, password)?;
    call.ok()
}

fn reset(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    match call.listens_to_many() {
        true => call.work(Resetting),
        false => reset_now(call),
    }
}

/// A RESET that ends the client's many subscriptions first.
#[derive(Debug)]
struct Resetting;

impl Job for Resetting {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if call.forget_some_names() {
            return Ok(Step::More);
        }
        reset_now(call)?;
        Ok(Step::Done)
    }

    /// It needs no permission: it only gives things back.
    fn asks_itself(&self) -> bool {
        true
    }
}

fn reset_now(call: &mut Call<'_, '_, '_>) -> Done {
    let client = &mut *call.client;
    client.select(0);
    client.speak(false);
    client.replies = Replies::On;
    client.transaction.clear();
    client.subscriptions = None;
    client.show_subscriptions();
    client.no_touch = false;
    call.cx.guard.leave_traces(true);
    client.standing.forget(call.cx);
    client.facts.no_evict.store(false, Relaxed);
    client.facts.no_touch.store(false, Relaxed);
    client.rename(|names| {
        names.name = "".into();
        (names.user, names.user_id) = (DEFAULT_USER.into(), DEFAULT_ID);
    });
    put_simple(call.out, "RESET");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::row::flag::RUNS_QUEUE;
    use crate::redis::table::ROWS;

    #[test]
    fn no_other_command_logs_in_or_runs_what_was_queued() {
        for (_, row) in ROWS.all() {
            let logs_in = row.weighs == Weighs::Login || row.has(RUNS_QUEUE);
            assert_eq!(may_log_in(row.name.to_ascii_uppercase().as_bytes()), logs_in, "{}", row.name);
        }
    }
}
