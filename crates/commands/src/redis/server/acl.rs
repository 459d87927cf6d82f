//! ACL, as far as clients ask who they are: the users are those of `--requirepass` (or its file), `--auth-file` and `-Y`, and
//! each may do everything.

use larder_protocol::resp::Args;

use super::introspect::{CATEGORIES, CATEGORIES_NS, categories};
use crate::core::access::User;
use crate::redis::call::{Call, integer, is, next};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_array, put_bulk, put_set};
use crate::redis::table::flag::{ADMIN, LOADING, NOSCRIPT, STALE, WEIGHTLESS};
use crate::redis::table::{Command, NO_KEYS, Secret, rows};

const PLAIN: u64 = NOSCRIPT | LOADING | STALE | WEIGHTLESS;
const RULES: u64 = PLAIN | ADMIN;

pub(crate) const ROWS: &[Command] = &[
    Command::args("acl|whoami", 2, PLAIN, NO_KEYS, |call, _| {
        let user = call.client.facts.names().user;
        call.bulk(user.as_bytes())
    })
    .doc("6.0.0", "", "The connection's user."),
    Command::args("acl|users", 2, RULES, NO_KEYS, |call, _| {
        let users = all(call);
        call.array(users.len());
        users.iter().for_each(|user| put_bulk(call.out, user.name.as_bytes()));
        Ok(())
    })
    .doc("6.0.0", "", "The names of the users."),
    Command::args("acl|list", 2, RULES, NO_KEYS, |call, _| {
        let users = all(call);
        call.array(users.len());
        for user in users {
            let line = format!("user {} {} ~* &* +@all", user.name, flags(&user).join(" "));
            put_bulk(call.out, line.as_bytes());
        }
        Ok(())
    })
    .doc("6.0.0", "", "What the users may do: everything. Passwords are not shown."),
    Command::args("acl|getuser", 3, RULES, NO_KEYS, user).doc(
        "6.0.0",
        "username",
        "What a user may do: everything. Passwords are not shown.",
    ),
    Command::args("acl|cat", -2, PLAIN, NO_KEYS, category).doc(
        "6.0.0",
        "[category]",
        "Categories of commands, or the commands of one.",
    ),
    Command::args("acl|log", -2, RULES, NO_KEYS, |call, args| {
        match args.at(0) {
            _ if args.len() > 1 => return Err(Fail::subcommand_arity("ACL", "LOG")),
            Some(word) if is(word, "RESET") => return call.ok(),
            Some(count) => {
                let _ = integer(count)?;
            }
            None => {}
        }
        call.array(0);
        Ok(())
    })
    .doc("6.0.0", "[count|RESET]", "What users were refused: nothing."),
    Command::args("acl|setuser", -3, RULES, NO_KEYS, fixed).secret(Secret::Behind(2)).doc(
        "6.0.0",
        "username [rule ...]",
        FIXED,
    ),
    Command::args("acl|deluser", -3, RULES, NO_KEYS, fixed).doc("6.0.0", "username [username ...]", FIXED),
    Command::args("acl|load", 2, RULES, NO_KEYS, fixed).doc("6.0.0", "", FIXED),
    Command::args("acl|save", 2, RULES, NO_KEYS, fixed).doc("6.0.0", "", FIXED),
    Command::args("acl|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| {
        super::introspect::help(call, "acl")
    })
    .doc("6.0.0", "", "What ACL can do."),
];

const FIXED: &str = "Fails: users are set up when the server starts.";

fn fixed(_: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    Err(Fail::of("ERR users come from --requirepass, --auth-file and -Y, when the server starts"))
}

/// What it takes to say what a user may do, beside the reply.
const USER_NS: u64 = 200;

fn all(call: &mut Call<'_, '_, '_>) -> Vec<User> {
    let users = call.cx.shared.access.all();
    call.spend(users.len() as u64 * USER_NS);
    users
}

fn flags(user: &User) -> Vec<&'static str> {
    let mut flags = vec![if user.may_enter { "on" } else { "off" }];
    if user.without_password {
        flags.push("nopass");
    }
    flags
}

fn user(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let name = next(&mut args)?;
    let users = all(call);
    let Some(user) = users.iter().find(|user| user.name.as_bytes() == name) else { return call.null() };
    call.map(6);
    put_bulk(call.out, b"flags");
    let flags = flags(user);
    put_set(call.out, call.client.resp3, flags.len());
    flags.iter().for_each(|flag| put_bulk(call.out, flag.as_bytes()));
    put_bulk(call.out, b"passwords");
    put_array(call.out, 0);
    for word in ["commands", "+@all", "keys", "~*", "channels", "&*", "selectors"] {
        put_bulk(call.out, word.as_bytes());
    }
    put_array(call.out, 0);
    Ok(())
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
        return Err(Fail::with(format!("ERR Unknown category '{}'", crate::redis::fail::shown(name, 128))));
    }
    let (mut names, mut looked_at) = (Vec::new(), 0);
    for (group, row) in rows() {
        let own = if row.subcommands().is_empty() { std::slice::from_ref(row) } else { row.subcommands() };
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
