//! CLIENT: facts about this connection and others, and what may be done with them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_protocol::resp::Args;

use super::filter::{Asked, Filter, filter_ns};
use crate::core::progress::Ending;
use crate::redis::call::{Call, Flow, integer, is};
use crate::redis::client::Replies;
use crate::redis::connection::{a_name, set_name};
use crate::redis::definition::Definition;
use crate::redis::facts::Cursor;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::reply::{put_bulk, put_verbatim};
use crate::redis::row::flag::{
    ADMIN, LOADING, NOSCRIPT, REPLIES_A_PAGE, REPLIES_A_WORD, SETTLES, STALE, WEIGHTLESS, WHILE_PAUSED,
};
use crate::redis::row::{Command, NO_KEYS, Weighs};
use crate::redis::server::absent;
use crate::redis::steps::job::{Job, Step};
use crate::redis::waiters::Unblock;

const PLAIN: u64 = NOSCRIPT | LOADING | STALE;
const RULES: u64 = PLAIN | ADMIN;

pub(crate) const ROWS: &[Definition] = &[
    Command::args("client|id", 2, PLAIN | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, |call, _| {
        call.integer(call.client.facts.id as i64)
    })
    .doc("5.0.0", "", "The connection's number."),
    Command::args("client|info", 2, PLAIN | WEIGHTLESS | REPLIES_A_PAGE, NO_KEYS, info).doc(
        "6.2.0",
        "",
        "What is known of the connection.",
    ),
    Command::args("client|list", -2, RULES, NO_KEYS, list).weighs(Weighs::Clients).doc(
        "2.4.0",
        FILTERS,
        "What is known of all connections.",
    ),
    Command::args("client|kill", -3, RULES | SETTLES, NO_KEYS, kill).weighs(Weighs::Clients).doc(
        "2.4.0",
        KILLED,
        "Closes connections.",
    ),
    Command::args("client|setname", 3, PLAIN | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, |call, mut args| {
        set_name(call, args.next().unwrap_or_default())?;
        call.ok()
    })
    .doc("2.6.9", "connection-name", "Names the connection."),
    Command::args("client|getname", 2, PLAIN | WEIGHTLESS | REPLIES_A_PAGE, NO_KEYS, get_name).doc(
        "2.6.9",
        "",
        "The connection's name.",
    ),
    Command::args("client|setinfo", 4, PLAIN | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, set_info).doc(
        "7.2.0",
        "LIB-NAME libname | LIB-VER libver",
        "Sets the name or version of the client's library.",
    ),
    Command::args("client|reply", 3, PLAIN | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, reply).doc(
        "3.2.0",
        "ON|OFF|SKIP",
        "Whether commands are answered.",
    ),
    Command::args("client|no-evict", 3, RULES | SETTLES | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, no_evict)
        .doc("7.0.0", "ON|OFF", "Accepted: connections are not closed for want of memory."),
    Command::args("client|no-touch", 3, PLAIN | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, no_touch).doc(
        "7.2.0",
        "ON|OFF",
        "Whether reads count as accesses.",
    ),
    Command::args("client|pause", -3, RULES | SETTLES | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, pause).doc(
        "3.0.0",
        "timeout [WRITE|ALL]",
        "Has commands wait for some milliseconds.",
    ),
    Command::args("client|unpause", 2, RULES | SETTLES | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, |call, _| {
        call.cx.shared.pause.end();
        call.cx.shared.look_in_time(call.cx.now());
        call.ok()
    })
    .with(WHILE_PAUSED)
    .doc("6.2.0", "", "Ends what CLIENT PAUSE began."),
    Command::args("client|unblock", -3, RULES | SETTLES | WEIGHTLESS, NO_KEYS, unblock).doc(
        "5.0.0",
        "client-id [TIMEOUT|ERROR]",
        "Ends the waiting of another connection.",
    ),
    Command::args("client|getredir", 2, PLAIN | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, |call, _| {
        call.integer(-1)
    })
    .doc("6.0.0", "", "Where invalidations go: nowhere, there is no tracking."),
    absent::TRACKING,
    absent::TRACKING_INFO,
    absent::CACHING,
    Command::args("client|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| {
        crate::redis::help::help(call, "client")
    })
    .doc("5.0.0", "", "What CLIENT can do."),
];

/// Each filter but the last three may have NOT- in front.
const FILTERS: &str = "[ID client-id [client-id ...]] [TYPE <NORMAL|MASTER|REPLICA|PUBSUB>] [ADDR ip:port] [LADDR ip:port] [IP ip] [USER username] [NAME name] [LIB-NAME libname] [LIB-VER libver] [FLAGS flags] [CAPA r] [DB db] [MAXAGE maxage] [IDLE idle] [SKIPME <YES|NO>]";
const KILLED: &str = "ip:port | [ID client-id [client-id ...]] [TYPE <NORMAL|MASTER|REPLICA|PUBSUB>] [ADDR ip:port] [LADDR ip:port] [IP ip] [USER username] [NAME name] [LIB-NAME libname] [LIB-VER libver] [FLAGS flags] [CAPA r] [DB db] [MAXAGE maxage] [IDLE idle] [SKIPME <YES|NO>]";

fn info(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let text = call.client.facts.line(call.cx.now()) + "\n";
    put_verbatim(call.out, call.client.resp3, &text);
    Ok(())
}

/// Work to go to the next client.
const NOTE_NS: u64 = 20;

/// Work to list all clients, or to close them, with a filter of so many words.
pub(crate) fn look_ns(call: &Call<'_, '_, '_>, words: usize) -> u64 {
    call.shared.clients.count() as u64 * (NOTE_NS + filter_ns(words) + LINE_NS)
}

fn list(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    let filter = Filter::parse(call, args, Asked::ForList)?;
    let held = Heap::take(call, 0)?;
    call.work(Lines { clients: call.shared.clients.cursor(), filter, text: String::new(), held })
}

/// Work to write a client's line.
const LINE_NS: u64 = 1_500;

/// A CLIENT LIST in steps: each line shows the client as it is when the line is written.
#[derive(Debug)]
struct Lines {
    /// Which clients are next.
    clients: Cursor,
    filter: Filter,
    text: String,
    /// The charge for the text, if that is long or kept from one step to the next. A short one has none: an administrator that
    /// looks for the clients which hold all the memory is not refused.
    held: Heap,
}

impl Lines {
    /// Adds a line.
    ///
    /// # Errors
    /// Connections hold as much as they may.
    fn put(&mut self, call: &mut Call<'_, '_, '_>, line: &str) -> Done {
        let bytes = self.text.len() + line.len();
        if bytes > self.text.capacity() {
            let room = 2 * bytes;
            self.held = Heap::take(call, room)?;
            self.text.reserve_exact(room - self.text.len());
        }
        self.text.push_str(line);
        Ok(())
    }
}

impl Job for Lines {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        loop {
            if ns >= ns_max {
                self.held = Heap::take_however_short(call, size_of::<Lines>() + self.text.capacity())?;
                call.spend(ns);
                return Ok(Step::More);
            }
            let clients = call.shared.clients.next(&mut self.clients);
            if clients.is_empty() {
                break;
            }
            for facts in &clients {
                let now = call.cx.now();
                ns += NOTE_NS + self.filter.client_ns();
                let left_out = self.filter.skip_me == Some(true) && Arc::ptr_eq(facts, &call.client.facts);
                if left_out || !self.filter.holds(facts, now) {
                    continue;
                }
                let line = facts.line(now) + "\n";
                ns += LINE_NS + line.len() as u64;
                self.put(call, &line)?;
            }
        }
        call.spend(ns);
        call.make_room(self.text.len())?;
        put_verbatim(call.out, call.client.resp3, &self.text);
        Ok(Step::Done)
    }

    fn only_reads(&self) -> bool {
        true
    }
}

fn kill(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    let one = args.len() == 1;
    let filter = match args.at(0) {
        Some(address) if one => Filter::address(call, address)?,
        _ => Filter::parse(call, args, Asked::ToKill)?,
    };
    let skip_me = filter.skip_me.unwrap_or(!one);
    let clients = call.shared.clients.cursor();
    call.work(Killing { clients, filter, skip_me, one, killed: 0, me: false })
}

/// Work to have a client closed.
const KILL_NS: u64 = 300;

/// A CLIENT KILL in steps, of the clients that were there when it began. It takes no memory, since the clients that it closes may
/// hold all of it.
#[derive(Debug)]
struct Killing {
    /// Which clients are next.
    clients: Cursor,
    filter: Filter,
    skip_me: bool,
    /// Whether it names a client by its address alone.
    one: bool,
    killed: i64,
    /// Whether it closes its own client.
    me: bool,
}

impl Job for Killing {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let (ns_max, mut ns) = (call.step_ns(), 0);
        let now = call.cx.now();
        loop {
            if ns >= ns_max {
                call.spend(ns);
                return Ok(Step::More);
            }
            let clients = call.shared.clients.next(&mut self.clients);
            if clients.is_empty() {
                break;
            }
            for facts in &clients {
                ns += NOTE_NS + self.filter.client_ns();
                let me = Arc::ptr_eq(facts, &call.client.facts);
                if me && self.skip_me || !self.filter.holds(facts, now) {
                    continue;
                }
                if me {
                    (self.me, self.killed) = (true, self.killed + 1);
                } else if !facts.killed.swap(true, Relaxed) {
                    // A client that another command has closed already is not counted.
                    self.killed += 1;
                    call.cx.host.kill(facts.place, facts.id);
                    ns += KILL_NS;
                }
            }
        }
        call.spend(ns);
        if self.me {
            // In a later step the session sees that when it looks next, behind the reply.
            call.flow = Flow::Close(Ending::Error);
            call.client.facts.killed.store(true, Relaxed);
        }
        match (self.one, self.killed) {
            (true, 0) => return Err(Fail::of("ERR No such client")),
            (true, _) => call.ok()?,
            (false, killed) => call.integer(killed)?,
        }
        Ok(Step::Done)
    }
}

fn get_name(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let names = call.client.facts.names();
    if names.name.is_empty() {
        return call.null();
    }
    put_bulk(call.out, names.name.as_bytes());
    Ok(())
}

fn set_info(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let (what, value) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let is_name = is(what, "LIB-NAME");
    if !is_name && !is(what, "LIB-VER") {
        let what = crate::redis::fail::shown(what, 128);
        return Err(Fail::with(format!("ERR Unrecognized option '{what}'")));
    }
    // The error repeats the word as the client wrote it.
    let value = a_name(&crate::redis::fail::shown(what, 128), value)?;
    call.client.rename(|names| {
        if is_name {
            names.library = value.into();
        } else {
            names.library_version = value.into();
        }
    });
    call.ok()
}

fn reply(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let word = args.next().unwrap_or_default();
    if is(word, "ON") {
        call.client.replies = Replies::On;
        return call.ok();
    } else if is(word, "OFF") {
        call.client.replies = Replies::Off;
    } else if is(word, "SKIP") {
        if call.client.replies != Replies::Off {
            call.client.replies = Replies::SkipNext;
        }
    } else {
        return Err(Fail::SYNTAX);
    }
    Ok(())
}

fn on_or_off(word: &[u8]) -> Result<bool, Fail> {
    if is(word, "ON") {
        Ok(true)
    } else if is(word, "OFF") {
        Ok(false)
    } else {
        Err(Fail::SYNTAX)
    }
}

fn no_evict(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let on = on_or_off(args.next().unwrap_or_default())?;
    call.client.facts.no_evict.store(on, Relaxed);
    call.ok()
}

fn no_touch(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let on = on_or_off(args.next().unwrap_or_default())?;
    call.client.no_touch = on;
    call.client.facts.no_touch.store(on, Relaxed);
    call.cx.guard.leave_traces(!on);
    call.ok()
}

fn pause(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let timeout = args.next().unwrap_or_default();
    let writes_only = match (args.next(), args.next()) {
        (_, Some(_)) => return Err(Fail::subcommand_arity("CLIENT", "PAUSE")),
        (None, None) => false,
        (Some(word), None) if is(word, "ALL") => false,
        (Some(word), None) if is(word, "WRITE") => true,
        (Some(_), None) => return Err(Fail::of("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let timeout = integer(timeout).map_err(|_| Fail::of("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(Fail::of("ERR timeout is negative"));
    }
    let now = call.cx.now();
    // The end has to be a valid time.
    let until = (now as i64).checked_add(timeout).ok_or(Fail::of("ERR timeout is out of range"))?;
    call.cx.shared.pause.begin(now, until as u64, writes_only);
    call.cx.shared.look_in_time(now);
    if !call.cx.guard.in_transaction() {
        // Requests that began before others could know of the pause have ended when this client gets its reply.
        call.cx.guard.begin_whole();
        call.cx.guard.finish();
    }
    call.ok()
}

fn unblock(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let id = args.next().unwrap_or_default();
    if args.len() > 1 {
        return Err(Fail::subcommand_arity("CLIENT", "UNBLOCK"));
    }
    let how = match args.next() {
        None => Unblock::Timeout,
        Some(word) if is(word, "TIMEOUT") => Unblock::Timeout,
        Some(word) if is(word, "ERROR") => Unblock::Error,
        Some(_) => return Err(Fail::of("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
    };
    let client = u64::try_from(integer(id)?).ok();
    let ended = client.is_some_and(|client| call.shared.waiters.unblock(call.cx.host, client, how));
    call.integer(i64::from(ended))
}
