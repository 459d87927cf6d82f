//! Leads from phase to phase. At the end of a phase all clients pause between two requests, the results are
//! checked, and the next phase begins.

use crate::Options;
use crate::admin::Admin;
use crate::client::open;
use crate::dialect::{Dialect, Reply, reply};
use crate::group::{self, Left, Work};
use crate::op::{Seen, Verb};
use crate::phase::{LASTS, MEGABYTES, PHASES, Phase};
use crate::queue::{self, Queue};
use crate::several::{SHARED, SHARED_START, number};
use crate::watch;
use crate::wire::Manner;
use crate::world::{Cause, World};
use larder_testkit::process::Server;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

/// Longest time until the server has freed what connections had.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest time until connections hold no memory: memory for HTTP answers stays counted for two rounds of 75
/// seconds.
const HELD_PATIENCE: Duration = Duration::from_secs(170);
/// Longest time until a number is back in its queue, and until the memory of a client that disconnected is
/// free.
const BACK: Duration = Duration::from_secs(2);
/// Time between two checks that the server still runs.
const LOOK: Duration = Duration::from_millis(100);

/// Statistics that must not change while nothing is evicted and nothing is refused.
const QUIET: [&str; 3] = ["evictions", "store_no_memory", "response_obj_oom"];

/// Runs the phases for as long as the options say.
///
/// # Errors
/// The server is gone.
pub fn run(world: &World, server: &Server, options: &Options) -> Result<(), String> {
    let until = Instant::now() + options.lasts;
    let wanted = |phase: &&Phase| options.phase.as_ref().is_none_or(|name| phase.name == name);
    let mut admin = Admin::new(world, 0, true);
    // Between two phases no client has a request under way.
    let mut gate = world.gate.write().expect("nobody panics between phases");
    for (round, phase) in PHASES.iter().filter(wanted).cycle().enumerate() {
        world.round.store(round, SeqCst);
        *gate = phase;
        println!("{:>7.1} s  round {round}: {}", world.now_ms() as f64 / 1e3, phase.name);
        let figures = begin(world, &mut admin, phase, round);
        drop(gate);
        let ends = Instant::now() + LASTS;
        while Instant::now() < ends.min(until) {
            thread::sleep(LOOK);
            if watch::descriptors(server).is_err() {
                return Err(format!("the server is gone: {}", server.output()));
            }
        }
        // At the end of the soak clients read all their keys. They do so before the phase ends.
        if Instant::now() >= until {
            world.stop.store(true, SeqCst);
            thread::sleep(LOOK);
        }
        gate = world.gate.write().expect("nobody panics between phases");
        end_phase(world, &mut admin, phase, round, figures);
        if Instant::now() >= until {
            return Ok(());
        }
    }
    Ok(())
}

fn begin(world: &World, admin: &mut Admin<'_>, phase: &Phase, round: usize) -> [Option<u64>; 3] {
    admin.resp(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    admin.flush();
    if phase.evicts {
        world.begin(Cause::Evict);
        admin.resp(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    } else if phase.fills {
        world.begin(Cause::Full);
    }
    let mut sums = world.sums.lock().expect("not poisoned");
    sums.clear();
    *world.queue.lock().expect("not poisoned") = Queue::default();
    *world.work.lock().expect("not poisoned") = Work::default();
    for name in group::names(world).iter().filter(|_| phase.counts) {
        admin.resp(&["XGROUP", "CREATE", name, group::GROUP, "0", "MKSTREAM"]);
    }
    for shared in 0..SHARED {
        if phase.counts {
            let name = format!("shared:{round}:{shared}");
            admin.resp(&["SET", &name, &SHARED_START.to_string()]);
            sums.insert(name, (SHARED_START, SHARED_START));
        }
    }
    QUIET.map(|name| admin.stat(name))
}

fn end_phase(world: &World, admin: &mut Admin<'_>, phase: &Phase, round: usize, figures: [Option<u64>; 3]) {
    for (name, (least, most)) in world.sums.lock().expect("not poisoned").iter() {
        let Some(Reply::Bulk(Some(value))) = admin.resp(&["GET", name]) else {
            world.lost(&format!("{name} is not there"));
            continue;
        };
        if !number(&value).is_some_and(|value| (*least..=*most).contains(&value)) {
            let value = String::from_utf8_lossy(&value).into_owned();
            world.complain(&format!("{name} is {value}, and was counted from {least} to {most}"));
        }
    }
    if phase.counts {
        judge_queue(world, admin);
        judge_work(world, admin);
        for (name, before) in QUIET.iter().zip(figures).take(2) {
            let now = admin.stat(name);
            if now != before {
                world.complain(&format!("{name} was {before:?} and is {now:?} in round {round}"));
            }
        }
    }
    if phase.moves_limit {
        admin.set_limit(MEGABYTES, true);
    }
    if phase.evicts {
        admin.resp(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        world.end(Cause::Evict);
    } else if phase.fills {
        world.end(Cause::Full);
    }
}

/// What `look` finds wrong. It is called until it finds nothing, or `again` returns false: after a connection
/// has ended, an element on its way and the memory of its replies come back in its worker's next turns.
fn still_wrong(mut look: impl FnMut() -> Vec<String>, mut again: impl FnMut() -> bool) -> Vec<String> {
    loop {
        let wrong = look();
        if wrong.is_empty() || !again() {
            return wrong;
        }
    }
}

/// Pauses before another look; false when [`BACK`] has passed.
fn until_back() -> impl FnMut() -> bool {
    let started = Instant::now();
    move || {
        let due = started.elapsed() <= BACK;
        if due {
            thread::sleep(LOOK);
        }
        due
    }
}

/// Checks that every number that was pushed was popped, or is left.
fn judge_queue(world: &World, admin: &mut Admin<'_>) {
    let names = queue::names(world);
    let look = || match numbers_left(admin, &names) {
        Ok(left) => world.queue.lock().expect("not poisoned").wrong(&left),
        Err(why) => vec![why],
    };
    let wrong = still_wrong(look, until_back());
    world.count("queue: popped", world.queue.lock().expect("not poisoned").popped() as u64);
    wrong.iter().for_each(|wrong| world.lost(&format!("queue: {wrong}")));
}

/// Checks that every entry that was added exists, and was acknowledged once, is pending, or was not
/// delivered.
fn judge_work(world: &World, admin: &mut Admin<'_>) {
    let names = group::names(world);
    let look = || {
        let left: Result<Vec<Left>, String> = names.iter().map(|name| stream_left(admin, name)).collect();
        match left {
            Ok(left) => world.work.lock().expect("not poisoned").wrong(&left),
            Err(why) => vec![why],
        }
    };
    let wrong = still_wrong(look, until_back());
    world.count("streams: acknowledged", world.work.lock().expect("not poisoned").acknowledged() as u64);
    wrong.iter().for_each(|wrong| world.lost(&format!("streams: {wrong}")));
}

/// A reply that is no error. An error is no complaint yet: the next look may succeed.
fn told(admin: &mut Admin<'_>, words: &[&str]) -> Result<Reply, String> {
    match admin.resp_or_error(words) {
        Some(Reply::Error(text)) => Err(format!("{} was answered {text}", words.join(" "))),
        Some(reply) => Ok(reply),
        None => Err(format!("{} was not answered", words.join(" "))),
    }
}

/// The numbers that are left in all queues.
fn numbers_left(admin: &mut Admin<'_>, names: &[String]) -> Result<Vec<u64>, String> {
    let mut left = Vec::new();
    for name in names {
        let Reply::Array(Some(elements)) = told(admin, &["LRANGE", name, "0", "-1"])? else {
            return Err(format!("{name} is not told as a list"));
        };
        left.extend(elements.iter().filter_map(|element| match element {
            Reply::Bulk(Some(text)) => number(text),
            _ => None,
        }));
    }
    Ok(left)
}

/// A stream's entries, and its group's pending and last delivered entries.
fn stream_left(admin: &mut Admin<'_>, name: &str) -> Result<Left, String> {
    let entries = told(admin, &["XRANGE", name, "-", "+"])?;
    let pending = told(admin, &["XPENDING", name, group::GROUP, "-", "+", "1000000"])?;
    let groups = told(admin, &["XINFO", "GROUPS", name])?;
    let left = left_of(&entries, &pending, &groups);
    left.ok_or_else(|| format!("{name} is not told as a stream with its group"))
}

/// The state of a stream, from the replies to XRANGE, XPENDING and XINFO GROUPS.
fn left_of(entries: &Reply, pending: &Reply, groups: &Reply) -> Option<Left> {
    let entries = group::entries(entries)?;
    let Reply::Array(Some(pending)) = pending else { return None };
    let pending = pending.iter().map(|entry| match entry {
        Reply::Array(Some(entry)) => group::id(entry.first()?),
        _ => None,
    });
    let pending = pending.collect::<Option<BTreeSet<_>>>()?;
    let Reply::Array(Some(groups)) = groups else { return None };
    let [Reply::Array(Some(group))] = groups.as_slice() else { return None };
    let last = group.iter().position(|word| *word == Reply::Bulk(Some(b"last-delivered-id".to_vec())))?;
    Some(Left { entries, pending, last: group::id(group.get(last + 1)?)? })
}

/// Checks, when all clients have disconnected, that the server has freed all that they had, and after a flush
/// all items; returns the descriptors that it has then.
///
/// # Errors
/// The server does not answer.
pub fn leave(world: &World, server: &Server, base: usize) -> Result<usize, String> {
    let mut text = open(world, 0).ok_or("no connection at the end")?;
    let mut resp = open(world, 1).ok_or("no connection at the end")?;
    let mut random = crate::random::Random::of(0, 0);
    let mut ask = |request: &[u8]| {
        text.send(request, Manner::Prompt, &mut random)
            .and_then(|()| text.line())
            .map_err(|error| error.to_string())
    };
    ask(b"flush_all\r\n")?;
    let mut stat = |name: &str| -> Result<u64, String> {
        let mut found = 0;
        resp.send(b"*1\r\n$4\r\nPING\r\n", Manner::Prompt, &mut crate::random::Random::of(0, 0))
            .and_then(|()| reply(&mut resp))
            .map_err(|error| error.to_string())?;
        let mut line = ask(b"stats\r\n")?;
        while line != b"END" {
            let text = String::from_utf8_lossy(&line).into_owned();
            if let Some(number) = text.strip_prefix(&format!("STAT {name} ")) {
                found = number.parse().map_err(|_| text.clone())?;
            }
            line = ask(b"")?;
        }
        Ok(found)
    };
    for (name, wanted) in
        [("curr_connections", 2), ("response_obj_bytes", 0), ("curr_items", 0), ("bytes", 0)]
    {
        let started = Instant::now();
        loop {
            let now = stat(name)?;
            if now == wanted {
                break;
            }
            let patience = if name == "response_obj_bytes" { HELD_PATIENCE } else { PATIENCE };
            if started.elapsed() > patience {
                world.complain(&format!("{name} stays at {now}, when all are gone"));
                break;
            }
            thread::sleep(LOOK);
        }
    }
    // Freed memory can be used again.
    let mut request = Vec::new();
    Dialect::Classic.put(&mut request, "again", 1, &Verb::Set(vec![b'a'; 500_000], crate::op::Ttl::Ever));
    if ask(&request)? != b"STORED" {
        world.complain("an empty store takes no value");
    }
    request.clear();
    Dialect::Classic.put(&mut request, "again", 1, &Verb::Get);
    text.send(&request, Manner::Prompt, &mut random).map_err(|error| error.to_string())?;
    let seen = Dialect::Classic.take(&mut text, &Verb::Get).map_err(|error| error.to_string())?;
    if seen != Seen::Value(vec![b'a'; 500_000], Some(1)) {
        world.complain(&format!("an empty store keeps no value: {}", seen.shown()));
    }
    drop((text, resp));
    let started = Instant::now();
    loop {
        let now = watch::descriptors(server)?;
        if now == base {
            return Ok(now);
        }
        if started.elapsed() > PATIENCE {
            world.complain(&format!("{now} descriptors are open when all are gone, {base} were before"));
            return Ok(now);
        }
        thread::sleep(LOOK);
    }
}

/// Checks that the server ends when it is stopped, and has printed nothing but its addresses.
pub fn end(world: &World, server: Server) {
    let output = server.output();
    if output.trim_end().lines().count() != 1 {
        world.complain(&format!("the server said: {output}"));
    }
    match server.stop() {
        Some(status) if status.success() => {}
        other => world.complain(&format!("the server ended with {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn what_is_wrong_is_looked_at_again_until_it_is_right_or_late() {
        let looks = |right_from: usize, pauses: usize| {
            let (mut looked, mut paused) = (0, 0);
            let look = || {
                looked += 1;
                if looked < right_from { vec![format!("wrong, look {looked}")] } else { Vec::new() }
            };
            let again = || {
                paused += 1;
                paused <= pauses
            };
            let wrong = still_wrong(look, again);
            (wrong, looked)
        };
        assert_eq!(looks(1, 2), (vec![], 1));
        assert_eq!(looks(3, 2), (vec![], 3));
        assert_eq!(looks(4, 2), (vec!["wrong, look 3".to_owned()], 3));
    }

    #[test]
    fn a_stream_is_left_with_what_its_group_says() {
        let bulk = |text: &str| Reply::Bulk(Some(text.as_bytes().to_vec()));
        let list = |all: Vec<Reply>| Reply::Array(Some(all));
        let entries = list(vec![list(vec![bulk("7-1"), list(vec![bulk("n"), bulk("42")])])]);
        let pending = list(vec![list(vec![bulk("7-1"), bulk("one"), Reply::Number(3), Reply::Number(1)])]);
        let groups = list(vec![list(vec![bulk("last-delivered-id"), bulk("7-1")])]);
        let left = left_of(&entries, &pending, &groups).expect("all three are told");
        assert_eq!(left.entries, BTreeMap::from([((7, 1), 42)]));
        assert_eq!((left.pending, left.last), (BTreeSet::from([(7, 1)]), (7, 1)));
        let refused = Reply::Error("OOM connections hold as much memory as they may".to_owned());
        for (entries, pending, groups) in
            [(&refused, &pending, &groups), (&entries, &refused, &groups), (&entries, &pending, &refused)]
        {
            assert!(left_of(entries, pending, groups).is_none());
        }
    }
}
