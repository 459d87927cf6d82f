//! ACL: commands about users, their rules and what they were refused. `core/acl` has the rules, `core/access.rs` the table of
//! users.

mod close;
mod filing;

use std::sync::Arc;

use larder_protocol::resp::Args;
use rand::Rng as _;

use crate::core::access::{DEFAULT_USER, Unchanged, Users};
use crate::core::acl::log::{CLIENT_BYTES_MAX, Entry, OBJECT_BYTES_MAX, Reason};
use crate::core::acl::rules::Rules;
use crate::core::acl::user::{RULES_MAX, User};
use crate::core::calls::RowId;
use crate::redis::call::{Call, NAME_NS, few_names, integer, is, next};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail, shown};
use crate::redis::permissions::{CATEGORIES, CATEGORIES_NS, categories, check, told};
use crate::redis::reply::{put_array, put_bulk, put_double, put_integer, put_map, put_set};
use crate::redis::row::flag::{ADMIN, LOADING, NO_MULTI, NOSCRIPT, SETTLES, STALE, WEIGHTLESS};
use crate::redis::row::{Command, NO_KEYS, Secret, Weighs};
use crate::redis::rows::Rows;
use crate::redis::steps::job::{Job, Step};
pub(crate) use close::clients_ns;

const PLAIN: u64 = NOSCRIPT | LOADING | STALE | WEIGHTLESS;
const RULES: u64 = PLAIN | ADMIN;
const CHANGES: u64 = RULES & !WEIGHTLESS | SETTLES;

pub(crate) const ROWS: &[Definition] = &[
    Command::args("acl|whoami", 2, PLAIN, NO_KEYS, |call, _| {
        let user = call.client.facts.names().user;
        call.bulk(user.as_bytes())
    })
    .doc("6.0.0", "", "The connection's user."),
    Command::args("acl|users", 2, RULES, NO_KEYS, |call, _| {
        let users = call.cx.shared.access.users();
        call.spend(users.len() as u64 * USER_NS);
        call.array(users.len());
        users.iter().for_each(|user| put_bulk(call.out, user.name().as_bytes()));
        Ok(())
    })
    .doc("6.0.0", "", "The names of the users."),
    Command::args("acl|list", 2, RULES, NO_KEYS, list).doc(
        "6.0.0",
        "",
        "What the users may do, as rules that make the same users; their passwords as SHA-256 digests.",
    ),
    Command::args("acl|getuser", 3, RULES, NO_KEYS, user).doc(
        "6.0.0",
        "username",
        "What a user may do; its passwords as SHA-256 digests.",
    ),
    Command::args("acl|setuser", -3, CHANGES, NO_KEYS, set_user)
        .weighs(Weighs::Rules)
        .secret(Secret::Behind(2))
        .doc(
            "6.0.0",
            "username [rule [rule ...]]",
            "Applies rules to a user, which is made if there is none.",
        ),
    Command::args("acl|deluser", -3, CHANGES, NO_KEYS, delete_users).weighs(Weighs::Removal).doc(
        "6.0.0",
        "username [username ...]",
        "Removes users, and closes their connections.",
    ),
    Command::args("acl|cat", -2, PLAIN, NO_KEYS, category).doc(
        "6.0.0",
        "[category]",
        "Categories of commands, or the commands of one.",
    ),
    Command::args("acl|dryrun", -4, RULES, NO_KEYS, dry_run).secret(Secret::Behind(2)).doc(
        "7.0.0",
        "username command [arg [arg ...]]",
        "Whether a user may run a command; it is not run.",
    ),
    Command::args("acl|genpass", -2, PLAIN, NO_KEYS, generate).doc(
        "6.0.0",
        "[bits]",
        "A random password, in hexadecimal digits.",
    ),
    Command::args("acl|log", -2, RULES, NO_KEYS, log).doc(
        "6.0.0",
        "[count|RESET]",
        "What users were refused, the newest first; or forgets it.",
    ),
    Command::args("acl|load", 2, RULES | NO_MULTI, NO_KEYS, filing::load).doc(
        "6.0.0",
        "",
        "Replaces users by those of the file that --aclfile names.",
    ),
    Command::args("acl|save", 2, RULES | NO_MULTI, NO_KEYS, filing::save).doc(
        "6.0.0",
        "",
        "Writes users into the file that --aclfile names.",
    ),
    Command::args("acl|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| {
        crate::redis::help::help(call, "acl")
    })
    .doc("6.0.0", "", "What ACL can do."),
];

/// Work to reply a user's rules, beside printing.
const USER_NS: u64 = 200;
/// Work to print a byte of the rules.
const PRINT_NS: u64 = 4;
/// Work to apply a byte of a rule.
const RULE_BYTE_NS: u64 = 40;
/// Work to copy a byte of a user, and to free the old one.
const HELD_BYTE_NS: u64 = 3;
/// Bytes of a rule beside its text, which may be kept twice, at most.
const HELD_A_RULE: usize = 64;
/// Bytes of the rules that one ACL SETUSER applies, at most.
const RULES_BYTES_MAX: usize = 64 << 10;

fn list(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let users: Vec<Arc<User>> = call.cx.shared.access.users().iter().cloned().collect();
    let bytes: usize = users.iter().map(|user| line_bytes(user)).sum();
    call.spend(users.len() as u64 * USER_NS);
    call.make_room(bytes)?;
    call.array(users.len());
    call.work(Listing { users: users.into_iter() })
}

/// Bytes of a user's line in the reply, at most.
fn line_bytes(user: &User) -> usize {
    user.bytes() + user.passwords().len() * 66 + 128
}

/// An ACL LIST in steps: users that are left to print.
#[derive(Debug)]
struct Listing {
    users: std::vec::IntoIter<Arc<User>>,
}

impl Job for Listing {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let step = loop {
            if ns >= ns_max {
                break Step::More;
            }
            if call.out.is_full() {
                break Step::Full;
            }
            let Some(user) = self.users.next() else { break Step::Done };
            let line = user.print();
            ns += USER_NS + line.len() as u64 * PRINT_NS;
            put_bulk(call.out, &line);
        };
        call.spend(ns);
        Ok(step)
    }

    fn only_reads(&self) -> bool {
        true
    }
}

/// Replies the commands, keys and channels of a root or selector.
fn put_rules(call: &mut Call<'_, '_, '_>, rules: &Rules) {
    for (name, text) in [
        ("commands", rules.print_commands()),
        ("keys", rules.print_keys()),
        ("channels", rules.print_channels()),
    ] {
        put_bulk(call.out, name.as_bytes());
        put_bulk(call.out, &text);
    }
}

fn user(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let name = next(&mut args)?;
    let users = call.cx.shared.access.users();
    let user = std::str::from_utf8(name).ok().and_then(|name| users.get(name));
    call.spend(USER_NS);
    let Some(user) = user else { return call.null() };
    call.spend(user.bytes() as u64 * PRINT_NS);
    call.make_room(2 * user.bytes() + user.passwords().len() * 80)?;
    let resp3 = call.client.resp3;
    call.map(6);
    put_bulk(call.out, b"flags");
    put_set(call.out, resp3, user.flags().count());
    user.flags().for_each(|flag| put_bulk(call.out, flag.as_bytes()));
    put_bulk(call.out, b"passwords");
    put_array(call.out, user.passwords().len());
    user.passwords().iter().for_each(|digest| put_bulk(call.out, digest.hex().as_bytes()));
    if let Some(root) = user.rules().next() {
        put_rules(call, root);
    }
    put_bulk(call.out, b"selectors");
    put_array(call.out, user.selectors().len());
    for selector in user.selectors() {
        put_map(call.out, resp3, 3);
        put_rules(call, selector);
    }
    Ok(())
}

fn failed(unchanged: &Unchanged) -> Fail {
    Fail::with(match unchanged {
        Unchanged::Refused(refused) => format!("ERR {}", refused.text()),
        Unchanged::TooMany => {
            "ERR there are as many users as there may be, or their rules hold as much".into()
        }
        Unchanged::Raced => "ERR the user is changed by others at the same time".into(),
        Unchanged::BadName => "ERR Usernames can't contain spaces or null characters".into(),
    })
}

/// Work to change one of so many users, which has so many bytes.
pub(crate) fn changing_ns(args: Args<'_>, users: usize, user_bytes: usize) -> u64 {
    args.encoded().len() as u64 * RULE_BYTE_NS + renewing_ns(users, user_bytes)
}

/// Work to find the user of a name, or that there is none.
pub(crate) const FOUND_NS: u64 = 300;

/// Work to remove users of these names, with so many bytes together, from so many users.
pub(crate) fn removing_ns(names: Args<'_>, users: usize, held_bytes: usize) -> u64 {
    names.len() as u64 * FOUND_NS + renewing_ns(users, held_bytes)
}

/// Work to make a new table of so many users, in which one of so many bytes is replaced.
pub(crate) fn renewing_ns(users: usize, user_bytes: usize) -> u64 {
    users as u64 * USER_NS + user_bytes as u64 * HELD_BYTE_NS
}

/// Bytes of the user of this name, or of a new one without rules.
pub(crate) fn held_bytes(users: &Users, name: &[u8]) -> usize {
    let user = std::str::from_utf8(name).ok().and_then(|name| users.get(name));
    user.map_or(size_of::<User>() + name.len(), |user| user.bytes())
}

/// Bytes that applying this rule adds to a user, at most.
pub(crate) fn rule_bytes(rule: &[u8]) -> usize {
    match rule.first() {
        // Each rule of a selector may have only two bytes and a blank.
        Some(b'(') => size_of::<Rules>() + rule.len() * HELD_A_RULE / 2,
        Some(b'~' | b'%' | b'&' | b'+' | b'-' | b'>' | b'#') => 2 * rule.len() + HELD_A_RULE,
        _ => 0,
    }
}

fn set_user(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let name = next(&mut args)?;
    if args.len() > RULES_MAX || args.encoded().len() > RULES_BYTES_MAX {
        return Err(Fail::of("ERR so many rules are not applied at once"));
    }
    let users = call.cx.shared.access.users();
    call.spend(changing_ns(args, users.len(), held_bytes(&users, name)));
    let changed = call.cx.shared.access.set_user(call.shared.catalog, name, args);
    let (before, user) = changed.map_err(|unchanged| failed(&unchanged))?;
    call.users_changed();
    // A new user has no connections.
    let Some(before) = before else { return call.ok() };
    call.close_monitors(std::slice::from_ref(&user));
    call.close_deaf(if user.hears_as_much(&before) { Vec::new() } else { vec![user] })
}

fn delete_users(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    few_names(args)?;
    let users = call.cx.shared.access.users();
    call.spend(removing_ns(args, users.len(), args.map(|name| held_bytes(&users, name)).sum()));
    if args.clone().any(|name| name == DEFAULT_USER.as_bytes()) {
        return Err(Fail::of("ERR The 'default' user cannot be removed"));
    }
    let names = args.filter_map(|name| std::str::from_utf8(name).ok());
    let removed = call.cx.shared.access.remove_users(names);
    // If no user was removed, no connection is looked for.
    if !removed.is_empty() {
        call.users_changed();
        call.close_those(&|id| removed.contains(&id));
    }
    call.length(removed.len())
}

fn category(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let Some(name) = args.next() else {
        call.array(CATEGORIES.len());
        CATEGORIES.iter().for_each(|name| put_bulk(call.out, name.as_bytes()));
        return Ok(());
    };
    if !args.is_empty() {
        return Err(Fail::subcommand_arity("ACL", "CAT"));
    }
    if !CATEGORIES.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name)) {
        return Err(Fail::with(format!("ERR Unknown category '{}'", shown(name, 128))));
    }
    let (mut names, mut looked_at) = (Vec::new(), 0);
    for (group, row) in call.shared.rows.all() {
        let own = if row.subcommands().is_empty() { std::slice::from_ref(row) } else { row.subcommands() };
        // A container is of no other category, as in Redis.
        if !row.subcommands().is_empty() && name.eq_ignore_ascii_case(b"slow") {
            names.push(row.name);
        }
        looked_at += own.len() as u64;
        let of =
            |row: &&Command| categories(group, row).any(|other| other.as_bytes().eq_ignore_ascii_case(name));
        names.extend(own.iter().filter(of).map(|row| row.name));
    }
    call.spend(looked_at * CATEGORIES_NS);
    call.array(names.len());
    names.iter().for_each(|name| put_bulk(call.out, name.as_bytes()));
    Ok(())
}

/// Finds the row of the command that these words name, its number, and the words behind its name.
fn named<'a>(rows: &Rows, words: Args<'a>) -> Option<(&'static Command, RowId, Args<'a>)> {
    let mut rest = words;
    let (row, id) = rows.find(rest.next()?)?;
    if !row.subcommands().is_empty()
        && let Some(name) = rest.next()
    {
        let at = row.subcommand(name)?;
        return Some((&row.subcommands()[at], rows.sub(id, at), rest));
    }
    Some((row, id, rest))
}

fn dry_run(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    call.spend(args.len() as u64 * NAME_NS);
    let name = next(&mut args)?;
    let users = call.cx.shared.access.users();
    let user = std::str::from_utf8(name).ok().and_then(|name| users.get(name));
    let user = user.ok_or_else(|| Fail::with(format!("ERR User '{}' not found", shown(name, 512))))?;
    let words = args;
    let command = args.at(0).unwrap_or_default();
    let (row, id, args) = named(call.shared.rows, words)
        .ok_or_else(|| Fail::with(format!("ERR Command '{}' not found", shown(command, 512))))?;
    if !row.takes(words.len()) {
        return Err(Fail::arity(row.name));
    }
    let mut ns = 0;
    let checked = check(user, (row, id), args, &mut ns);
    call.spend(ns);
    match checked {
        Ok(()) => call.ok(),
        Err(denied) => call.bulk(told(user, row, &denied, true).as_bytes()),
    }
}

/// Bits of a password of ACL GENPASS, at most, and without an argument.
const PASSWORD_BITS_MAX: i64 = 4096;
const PASSWORD_BITS: i64 = 256;

fn generate(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    if args.len() > 1 {
        return Err(Fail::subcommand_arity("ACL", "GENPASS"));
    }
    let bits = args.at(0).map_or(Ok(PASSWORD_BITS), integer)?;
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        return Err(Fail::with(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to {PASSWORD_BITS_MAX}"
        )));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut bytes = [0; PASSWORD_BITS_MAX as usize / 8];
    rand::rng().fill_bytes(&mut bytes);
    let text: String = bytes.iter().take(digits.div_ceil(2)).map(|byte| format!("{byte:02x}")).collect();
    call.bulk(&text.as_bytes()[..digits])
}

/// Work to reply an entry of the log.
const ENTRY_NS: u64 = 1_500;
/// Bytes of an entry in the reply, at most: an object, a name, a client, and the fields around them.
const ENTRY_BYTES: usize = CLIENT_BYTES_MAX + 2 * OBJECT_BYTES_MAX + 384;
/// Entries that are replied if no number is given.
const ENTRIES: i64 = 10;

fn log(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    let count = match args.at(0) {
        _ if args.len() > 1 => return Err(Fail::subcommand_arity("ACL", "LOG")),
        Some(word) if is(word, "RESET") => {
            call.cx.shared.access.log.clear();
            return call.ok();
        }
        Some(count) => integer(count)?,
        None => ENTRIES,
    };
    let entries = call.cx.shared.access.log.newest(usize::try_from(count).unwrap_or(0));
    call.spend(entries.len() as u64 * ENTRY_NS);
    call.make_room(entries.len() * ENTRY_BYTES)?;
    call.array(entries.len());
    entries.iter().for_each(|entry| put_entry(call, entry));
    Ok(())
}

fn put_entry(call: &mut Call<'_, '_, '_>, entry: &Entry) {
    let age_s = call.cx.now().saturating_sub(entry.updated) as f64 / 1000.0;
    call.map(10);
    put_bulk(call.out, b"count");
    put_integer(call.out, entry.count as i64);
    for (name, text) in [
        ("reason", entry.reason.name().as_bytes()),
        ("context", entry.whence.name().as_bytes()),
        ("object", &entry.object),
        ("username", &entry.user),
    ] {
        put_bulk(call.out, name.as_bytes());
        put_bulk(call.out, text);
    }
    put_bulk(call.out, b"age-seconds");
    put_double(call.out, call.client.resp3, age_s);
    put_bulk(call.out, b"client-info");
    put_bulk(call.out, entry.client.as_bytes());
    for (name, n) in [
        ("entry-id", entry.id),
        ("timestamp-created", entry.created),
        ("timestamp-last-updated", entry.updated),
    ] {
        put_bulk(call.out, name.as_bytes());
        put_integer(call.out, n as i64);
    }
}

/// Counts of refusals, for INFO.
pub(crate) fn refused(call: &Call<'_, '_, '_>) -> Vec<(&'static str, u64)> {
    call.cx
        .shared
        .access
        .log
        .counts()
        .map(|(reason, count): (Reason, u64)| (reason.figure(), count))
        .collect()
}
