//! CONFIG: parameters by Redis's names. Some have an effect here; the others are kept and shown, so that tools can set them.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

use larder_protocol::resp::Args;
use larder_store::MEMORY_BYTES_MIN;
use zeroize::{Zeroize, Zeroizing};

use super::{PROCESS_NS, acl};
use crate::core::access::DEFAULT_USER;
use crate::core::acl::user::User;
use crate::core::glob::{Pattern, Weight};
use crate::core::host::{CERTIFICATES_NS, Process};
use crate::redis::call::bounded;
use crate::redis::call::{Call, next};
use crate::redis::commandlog::namesakes;
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::parameters::{PARAMETERS, Parameter, eviction, is_password};
use crate::redis::reply::put_bulk;
use crate::redis::row::flag::{
    ADMIN, LOADING, NOSCRIPT, REPLIES_A_PAGE, REPLIES_A_WORD, SETTLES, STALE, WEIGHTLESS,
};
use crate::redis::row::{Command, NO_KEYS, Secret, Weighs};
use crate::redis::secret::REDACTED;

const RULES: u64 = ADMIN | NOSCRIPT | LOADING | STALE;

pub(crate) const ROWS: &[Definition] = &[
    Command::args("config|get", -3, RULES | REPLIES_A_PAGE, NO_KEYS, get).weighs(Weighs::Parameters).doc(
        "2.0.0",
        "parameter [parameter ...]",
        "What parameters are set to.",
    ),
    Command::args("config|set", -4, RULES | SETTLES | REPLIES_A_WORD, NO_KEYS, set)
        .weighs(Weighs::Settings)
        .secret(Secret::Parameters)
        .doc("2.0.0", "parameter value [parameter value ...]", "Sets parameters."),
    Command::args("config|resetstat", 2, RULES | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, reset_stat).doc(
        "2.0.0",
        "",
        "Counts anew.",
    ),
    Command::args("config|rewrite", 2, RULES | WEIGHTLESS, NO_KEYS, |_, _| {
        Err(Fail::of("ERR The server is running without a config file"))
    })
    .doc("2.8.0", "", "Fails: there is no file."),
    Command::args("config|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| {
        crate::redis::help::help(call, "config")
    })
    .doc("5.0.0", "", "What CONFIG can do."),
];

/// Figures of the process. Spends the work of that.
fn process(call: &Call<'_, '_, '_>) -> Process {
    call.cx.room.work().spend(PROCESS_NS);
    call.cx.host.process()
}

fn value(call: &Call<'_, '_, '_>, parameter: &Parameter) -> String {
    let common = call.shared;
    match parameter.name {
        "maxmemory" => common.memory_limit(call.cx.guard.store()).to_string(),
        "maxmemory-policy" => common.parameters.policy(call.cx.guard.store()),
        "maxclients" => process(call).connections_max.to_string(),
        "connections-per-address" => process(call).connections_per_address_max.to_string(),
        "requests-per-second" => process(call).requests_per_second_max.to_string(),
        "io-threads" => process(call).threads.to_string(),
        "port" => {
            let address = call.client.facts.listen_address.rsplit(':').next();
            address.unwrap_or("0").to_owned()
        }
        "bind" => call.client.facts.listen_address.rsplit_once(':').map_or("", |(host, _)| host).to_owned(),
        "requirepass" => call.cx.shared.access.password().map_or("", |_| REDACTED).into(),
        "aclfile" => call.cx.host.users_file().map_or(String::new(), |file| file.path().to_owned()),
        "acl-pubsub-default" if call.cx.shared.access.all_channels() => "allchannels".into(),
        "acl-pubsub-default" => "resetchannels".into(),
        "acllog-max-len" => call.cx.shared.access.log.entries_max().to_string(),
        "protected-mode" => if common.protected() { "yes" } else { "no" }.into(),
        "proto-max-bulk-len" => common.limits.bulk_bytes_max(&call.cx.guard).to_string(),
        "notify-keyspace-events" => call.cx.shared.events.letters(),
        "enable-debug-command" => common.settings.debug.name().into(),
        "client-output-buffer-limit" => common.limits.output_text(),
        "client-query-buffer-limit" => common.limits.query_bytes_max().to_string(),
        name if name == "tls-port" || parameter.is_tls() => {
            call.cx.host.tls_parameter(name).unwrap_or_else(|| parameter.default.into())
        }
        name => common.parameters.text(name),
    }
}

/// Work to look at a parameter's name, beside matching it; and about how long a name is.
const NAME_NS: u64 = 60;
const NAME_BYTES: u64 = 20;
/// Work that CONFIG GET may do: all parameters by their names, or some dozens of patterns.
const LOOK_NS_MAX: u64 = 4_000_000;

/// Work to find the parameters that patterns match.
pub(crate) fn look_ns(patterns: Args<'_>) -> u64 {
    let names = PARAMETERS.len() as u64;
    let one_ns =
        |pattern| Weight::of_any_case(pattern).with_reading_ns(names, names * NAME_BYTES) + names * NAME_NS;
    patterns.map(one_ns).fold(0, u64::saturating_add)
}

fn get(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    for pattern in args {
        bounded(pattern)?;
    }
    let ns = look_ns(args);
    if ns > LOOK_NS_MAX {
        return Err(Fail::of(
            "ERR CONFIG GET of so many patterns, or so intricate ones, would take too long",
        ));
    }
    call.spend(ns);
    // A parameter that is named is replied with its name as the client wrote it.
    let mut wanted: Vec<Option<&[u8]>> = vec![None; PARAMETERS.len()];
    for pattern in args {
        let _held = Heap::of_pattern(call, pattern, true);
        let is_name = !pattern.iter().any(|byte| matches!(byte, b'[' | b'*' | b'?'));
        let matching = Pattern::of(pattern, true);
        for (one, wanted) in PARAMETERS.iter().zip(&mut wanted) {
            let name = one.name.as_bytes();
            if if is_name { pattern.eq_ignore_ascii_case(name) } else { matching.matches(name) } {
                wanted.get_or_insert(if is_name { pattern } else { name });
            }
        }
    }
    call.map(wanted.iter().flatten().count());
    for (parameter, name) in PARAMETERS.iter().zip(wanted) {
        let Some(name) = name else { continue };
        let value = value(call, parameter);
        put_bulk(call.out, name);
        put_bulk(call.out, value.as_bytes());
    }
    Ok(())
}

/// Bytes of a parameter's value, at most: all of them together take a few hundred KiB.
const TEXT_BYTES_MAX: usize = 4 << 10;

/// Work to set a parameter, beside its effect.
const SET_NS: u64 = 1_500;
/// Work for each byte of the request: a password becomes a digest.
const SET_BYTE_NS: u64 = 4;

/// Work to set parameters, if there are so many users and the default one, which a password changes, has so many bytes.
pub(crate) fn setting_ns(args: Args<'_>, users: usize, default_bytes: usize) -> u64 {
    let (mut ns, mut reads_certificates) = (args.encoded().len() as u64 * SET_BYTE_NS, false);
    for parameter in args.step_by(2).filter_map(Parameter::named) {
        reads_certificates |= parameter.is_tls();
        ns += SET_NS;
        ns += match parameter.name {
            "requirepass" => acl::renewing_ns(users, default_bytes),
            "maxclients" => PROCESS_NS,
            _ => 0,
        };
    }
    ns + if reads_certificates { CERTIFICATES_NS } else { 0 }
}

fn failed(name: &str, why: &str) -> Fail {
    Fail::with(format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}"))
}

fn set(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    if !args.len().is_multiple_of(2) {
        return Err(Fail::SYNTAX);
    }
    // All values are checked before any is set.
    let mut all: Vec<(&'static Parameter, Zeroizing<String>)> = Vec::new();
    while !args.is_empty() {
        let (name, text) = (next(&mut args)?, next(&mut args)?);
        let Some(parameter) = Parameter::named(name) else {
            let name = crate::redis::fail::shown(name, 128);
            return Err(Fail::with(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{name}'"
            )));
        };
        if all.iter().any(|(other, _)| other.name == parameter.name) {
            return Err(failed(parameter.name, "duplicate parameter"));
        }
        if text.len() > TEXT_BYTES_MAX {
            return Err(failed(parameter.name, "the text is too long"));
        }
        if is_password(parameter.name) && std::str::from_utf8(text).is_err() {
            // Shown and compared as text, it would be another password.
            return Err(failed(parameter.name, "a password is UTF-8"));
        }
        let text = String::from_utf8_lossy(text);
        if is_password(parameter.name) && text == REDACTED {
            // A client that writes back what CONFIG GET has shown must not make that the password.
            return Err(failed(parameter.name, "(redacted) stands for a password, and cannot be one"));
        }
        let checked = parameter.kind.check(&text).map_err(|why| failed(parameter.name, &why))?;
        all.push((parameter, Zeroizing::new(checked)));
    }
    all.sort_by_key(|(parameter, _)| parameter.stage());
    // If two of these ran at once, one could take back the other's values.
    let _alone = call.shared.setting.lock().unwrap_or_else(PoisonError::into_inner);
    let (tls, all): (Vec<_>, Vec<_>) = all.into_iter().partition(|(parameter, _)| parameter.is_tls());
    let mut before = Vec::with_capacity(all.len() + 1);
    if !tls.is_empty() {
        call.spend(CERTIFICATES_NS);
        let pairs: Vec<(&str, &str)> =
            tls.iter().map(|(parameter, text)| (parameter.name, &***text)).collect();
        let host = call.cx.host;
        let take_back = host.set_tls(&pairs).map_err(|(at, why)| {
            failed(pairs[at].0, &format!("Unable to update TLS configuration: {why}"))
        })?;
        before.push((pairs[0].0, Was::Tls(take_back)));
    }
    for (parameter, mut text) in all {
        call.spend(SET_NS);
        let was = Was::of(call, parameter);
        if let Err(why) = apply(call, parameter.name, std::mem::take(&mut *text)) {
            for (parameter, was) in before.into_iter().rev() {
                // The old values can be set again.
                match was {
                    Was::Text(text) => _ = apply(call, parameter, text),
                    Was::Login(user) => {
                        user.iter().for_each(|user| call.cx.shared.access.put_back_login(user));
                        call.users_changed();
                    }
                    Was::Tls(take_back) => take_back(),
                }
            }
            return Err(failed(parameter.name, &why));
        }
        before.push((parameter.name, was));
    }
    call.ok()
}

/// The value of a parameter before.
enum Was<'h> {
    Text(String),
    /// For `requirepass`: the password of the default user, whose text is not kept.
    Login(Option<Arc<User>>),
    /// For parameters that the host sets together: what sets them back.
    Tls(Box<dyn FnOnce() + 'h>),
}

impl Was<'_> {
    fn of(call: &Call<'_, '_, '_>, parameter: &Parameter) -> Self {
        match parameter.name {
            "requirepass" => Was::Login(call.cx.shared.access.default_login()),
            _ => Was::Text(value(call, parameter)),
        }
    }
}

/// Sets a parameter, and has it take effect.
fn apply(call: &mut Call<'_, '_, '_>, name: &'static str, text: String) -> Result<(), Cow<'static, str>> {
    let (common, access) = (call.shared, &call.cx.shared.access);
    let store = call.cx.guard.store();
    let number = || text.parse::<u64>().unwrap_or(0);
    match name {
        // Redis's 0 is no limit; here it is the greatest limit allowed at start. A value below the least limit sets that, and
        // commands that Redis would refuse are refused.
        "maxmemory" => {
            let asked = number();
            let least = MEMORY_BYTES_MIN;
            let bytes = if asked == 0 { store.memory_bytes_max() } else { asked.max(least) };
            if !store.set_memory_bytes(bytes) {
                return Err("the memory limit is above --memory-limit-max (-m, if that is not given)".into());
            }
            common.starved_bytes.store(if (1..least).contains(&asked) { asked } else { 0 }, Relaxed);
        }
        "maxclients" => call.cx.host.set_connections_max(number()).map_err(|most| {
            format!(
                "The operating system is not able to handle the specified number of clients, try with {most}"
            )
        })?,
        "maxmemory-policy" => {
            store.set_eviction(eviction(&text));
            common.parameters.set(name, text);
        }
        "requirepass" => {
            let users = access.users();
            let default_bytes = acl::held_bytes(&users, DEFAULT_USER.as_bytes());
            call.cx.room.work().spend(acl::renewing_ns(users.len(), default_bytes));
            access.set_password((!text.is_empty()).then(|| text.as_str().into()));
            let mut text = text;
            text.zeroize();
            call.users_changed();
        }
        "acl-pubsub-default" => access.allow_all_channels(text == "allchannels"),
        "acllog-max-len" => access.log.keep(number()),
        "protected-mode" => common.protect(text == "yes"),
        "notify-keyspace-events" if !text.is_empty() && !call.cx.shared.settings.dump => {
            return Err("keys may not be listed (-X)".into());
        }
        "notify-keyspace-events" => {
            let shared = call.cx.shared;
            shared.events.set(store, &shared.watchers, &text)?;
        }
        "proto-max-bulk-len" | "client-query-buffer-limit" => {
            if number() < 1 << 20 {
                return Err("argument must be between 1048576 and 9223372036854775807 inclusive".into());
            }
            match name {
                "proto-max-bulk-len" => common.limits.set_bulk_bytes_max(number()),
                _ => common.limits.set_query_bytes_max(number()),
            }
        }
        "client-output-buffer-limit" => common.limits.set_output(&text)?,
        "latency-monitor-threshold" => {
            common.latency.set_threshold(number());
            common.parameters.set(name, text);
        }
        "busy-reply-threshold" | "lua-time-limit" => {
            // Both names are of one parameter.
            common.scripts.set_limit(text.parse().unwrap_or(0));
            for name in ["busy-reply-threshold", "lua-time-limit"] {
                common.parameters.set(name, text.clone());
            }
        }
        name => match namesakes(name) {
            Some(names) => {
                common.commandlog.set(store, name, text.parse().unwrap_or(0));
                names.for_each(|name| common.parameters.set(name, text.clone()));
            }
            None => common.parameters.set(name, text),
        },
    }
    Ok(())
}

fn reset_stat(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    crate::core::figures::reset(call.cx);
    call.ok()
}
