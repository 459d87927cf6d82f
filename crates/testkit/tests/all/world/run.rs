//! A world from its beginning to its end, and its required results.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use larder_commands::{Counter, Host, Sums};
use larder_eventloop::Millis;
use larder_store::{DIGITS_MAX, Lookup, Store, Value};

use crate::world::asking::Asking;
use crate::world::bank::{ACCOUNTS, LEDGER, account_name};
use crate::world::books::{contest_name, counter_name};
use crate::world::client::Role;
use crate::world::model::Verb;
use crate::world::part::{Dialect, Form, Part, words};
use crate::world::plan::Memory;
use crate::world::queues::{LISTS, list_name};
use crate::world::simulation::{World, owner_name};
use crate::world::user::lent_name;
use crate::world::users::Counts;

/// Tries until a page of metrics must agree with what clients did: a stalled worker may still have bytes to
/// receive.
const TRIES: usize = 20;

/// Time within which all clients have all their replies.
const LIFE_MS: Millis = 120_000;

/// Fair time within which the last requests are answered.
const PATIENCE_US: u64 = 20_000_000;

/// Time within which the acceptor sees a signal.
const HEARS_MS: Millis = 1_000;

/// Time within which workers end after a stop: they wait that long for clients that do not read.
const STOPS_MS: Millis = 40_000;

/// The result of a run without errors.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// A digest of all events, in order.
    pub digest: u64,
    pub replies: u64,
    /// Moves of money whose scripts have replied.
    pub moves: u64,
    /// Elements of lists that clients received.
    pub pops: u64,
    /// Replies about collections that several clients write.
    pub shared: u64,
    /// Of these: popped numbers. `deliveries`: delivered entries of the stream.
    pub shared_pops: u64,
    pub deliveries: u64,
    /// TLS connections on which replies came. `resumed`: those of them that resumed a session.
    pub tls: u64,
    pub resumed: u64,
    /// Counts about users: refusals, logins, removals.
    pub users: Counts,
    /// Pages of metrics that scrapers received.
    pub pages: u64,
}

/// Runs the world of a seed.
///
/// # Errors
/// What was wrong, and the last events.
pub fn run(seed: u64, pulse: &Arc<AtomicU64>) -> Result<Outcome, String> {
    let mut world = World::new(seed, Arc::clone(pulse));
    let result = live(&mut world).and_then(|()| end(&mut world));
    let journal = &world.scene.journal;
    match result {
        Ok(()) => {
            let books = &world.scene.books;
            Ok(Outcome {
                digest: journal.digest,
                replies: books.replies,
                moves: books.bank.moves(),
                pops: books.queues.pops(),
                shared: books.shared.answers,
                shared_pops: books.shared.popped(),
                deliveries: books.shared.delivered(),
                tls: books.tls,
                resumed: books.resumed,
                users: world.scene.users.counts,
                pages: world.http.as_ref().map_or(0, |http| http.scrapes.pages()),
            })
        }
        Err(wrong) => Err(format!("{:?}\n{}{wrong}", world.scene.plan, journal.shown())),
    }
}

fn live(world: &mut World) -> Result<(), String> {
    let stops_at = world.scene.plan.stops_early.then(|| 20 + world.scene.random.below(400));
    while !world.is_done() {
        if stops_at.is_some_and(|at| world.scene.now() >= at) {
            return Ok(());
        }
        if world.scene.now() > LIFE_MS {
            let names = world.clients.iter().filter(|client| !client.is_done());
            let names: Vec<String> = names.map(|client| client.shown()).collect();
            return Err(format!("not done after {LIFE_MS} ms: {}", names.join("; ")));
        }
        world.step()?;
    }
    read_all(world)?;
    scrape_all(world)
}

/// Lets the scrapers finish, then checks that a page of metrics agrees with what all clients did.
fn scrape_all(world: &mut World) -> Result<(), String> {
    for _ in 0..TRIES {
        while let Some(http) = world.http.as_ref().filter(|http| !http.is_done()) {
            if world.scene.now() > 2 * LIFE_MS {
                return Err(format!("scrapers are not done: {}", http.shown()));
            }
            world.step()?;
        }
        let now = world.scene.now();
        let Some(http) = &mut world.http else { return Ok(()) };
        if http.is_calm() && http.agrees(&world.scene).is_ok() {
            return Ok(());
        }
        http.ask_once_more(now);
    }
    world.http.as_ref().map_or(Ok(()), |http| http.agrees(&world.scene))
}

/// Each owner reads all of its keys, and each listener gets all messages.
fn read_all(world: &mut World) -> Result<(), String> {
    world.scene.plan.resets = false;
    world.scene.plan.kills = false;
    world.scene.users.stay = true;
    // One more request is due from each client, and clients without a connection connect for it.
    world.clients.iter_mut().for_each(|client| client.left = 1);
    pass_until(world, "one request more is not answered", |world| world.is_done())?;
    let World { scene, clients, .. } = world;
    for client in clients.iter_mut().filter(|client| client.line.is_some()) {
        let form = Form { dialect: client.dialect, quiet: false, opaque: 7 };
        for key in 0..client.keys.len() {
            let name = &client.keys[key].name;
            let get = match client.dialect {
                Dialect::Classic => format!("get {name}\r\n").into_bytes(),
                Dialect::Meta => format!("mg {name} v k f O7\r\n").into_bytes(),
                Dialect::Resp2 | Dialect::Resp3 => words(&[b"GET", name.as_bytes()]),
            };
            let mut parts = vec![client.part(scene, key, Verb::Get, form)];
            if client.dialect == Dialect::Classic {
                parts.push(Part::Bytes(b"END\r\n".into()));
            }
            client.put(scene, Asking::new(get, parts));
        }
    }
    pass_until(world, "the last reads are not answered", |world| world.is_done())?;
    pass_until(world, "a listener has missed messages", |world| {
        world.clients.iter().all(|client| match &client.role {
            Role::Listener(subscriptions) => subscriptions.iter().all(|one| one.has_all(&world.scene.books)),
            Role::Owner | Role::Admin => true,
        })
    })
}

/// Runs the world until `so` holds.
fn pass_until(world: &mut World, wrong: &str, so: impl Fn(&World) -> bool) -> Result<(), String> {
    let until = world.scene.fair_us + PATIENCE_US;
    while !so(world) {
        if world.scene.fair_us > until {
            return Err(wrong.to_owned());
        }
        world.step()?;
    }
    Ok(())
}

fn end(world: &mut World) -> Result<(), String> {
    world.scene.note("the server is told to stop");
    world.scene.stopping = true;
    world.scene.door.signal();
    let began = world.scene.now();
    while !world.is_over() || world.clients.iter().any(|client| client.line.is_some()) {
        let took = world.scene.now() - began;
        if world.takes_connections() && took > HEARS_MS {
            return Err(format!("the signal to stop is not heard for {took} ms"));
        }
        if took > STOPS_MS {
            return Err(format!("the server has not stopped after {took} ms"));
        }
        world.step()?;
    }
    world.store.check();
    let held = world.store.held_bytes();
    if held != 0 {
        return Err(format!("connections hold {held} bytes, and there are none"));
    }
    let mut left = world.hub.connections();
    Host::connections(&*world.hub, FIRST_CONNECTION, usize::MAX, &mut |_| left += 1);
    if left != 0 {
        return Err("a connection is left in the server's books".into());
    }
    balance(world)?;
    balance_tls(world)?;
    balance_queues(world)?;
    balance_bank(world)
}

/// Places of `Host::connections` below are listeners.
const FIRST_CONNECTION: u64 = 1 << 16;

/// Compares the server's counters with the clients' books, and sums of additions with the stored numbers.
fn balance(world: &World) -> Result<(), String> {
    let books = &world.scene.books;
    let mut sums = Sums::default();
    Host::counters(&*world.hub, &mut |counters| sums.add(counters));
    let cut = Host::process(&*world.hub).listeners_cut;
    if books.closed > sums.of(Counter::Shed) + sums.of(Counter::Crowded) + cut {
        return Err(format!("{} connections were closed, and the server has counted fewer", books.closed));
    }
    let users = &world.scene.users;
    let (wrong, errors) = (users.counts.wrong, sums.of(Counter::AuthErrors));
    if users.any() && !(wrong..=wrong + users.unsure).contains(&errors) {
        let unsure = users.unsure;
        return Err(format!("{wrong} passwords were refused, {unsure} unanswered, and {errors} are counted"));
    }
    let totals = world.store.totals();
    if books.lost > totals.evictions && world.scene.plan.memory == Memory::Evicts {
        return Err(format!("{} values are gone, and {} were evicted", books.lost, totals.evictions));
    }
    if !world.scene.plan.contends() {
        return Ok(());
    }
    let named = books.counters.iter().enumerate().map(|(n, counter)| (counter_name(n), counter));
    let contended = books.contests.iter().enumerate().map(|(n, contest)| (contest_name(n), contest));
    let lent = books.lent.iter().enumerate().map(|(n, lent)| (lent_name(&owner_name(n)), lent));
    for (name, counter) in named.chain(contended).chain(lent) {
        let number = number(&world.store, &name).ok_or_else(|| format!("{name} is gone"))?;
        if !counter.agrees(number) {
            return Err(format!("{name} is {number}, and {counter:?} were added"));
        }
    }
    books.shared.agrees(&world.store)
}

/// Checks that the server counts the handshakes that clients saw, and no TLS errors.
fn balance_tls(world: &World) -> Result<(), String> {
    let (books, counted) = (&world.scene.books, &world.tls);
    let [broken, failed] =
        [&counted.protocol_errors, &counted.handshake_errors].map(|count| count.load(Relaxed));
    if broken + failed > 0 {
        return Err(format!("{failed} handshakes have failed, and {broken} clients broke the protocol"));
    }
    let [handshakes, resumptions, new] =
        [&counted.handshakes, &counted.resumptions, &counted.new_sessions].map(|count| count.load(Relaxed));
    let (begun, tls, resumed) = (books.tls_begun, books.tls, books.resumed);
    let all_seen = tls <= handshakes && resumed <= resumptions && tls - resumed <= new;
    // The server may count a handshake whose end the client did not see, because it reset the connection.
    if !all_seen || handshakes > begun || resumptions + new != handshakes {
        return Err(format!(
            "of {begun} handshakes {tls} were seen, {resumed} of them resumed; counted are {handshakes}: \
             {resumptions} resumed and {new} new"
        ));
    }
    Ok(())
}

/// Checks that each element was given to one client, or is in its list.
fn balance_queues(world: &World) -> Result<(), String> {
    if !world.scene.plan.has_queues() {
        return Ok(());
    }
    let lists: Vec<_> = (0..LISTS).map(|list| elements(&world.store, &list_name(list))).collect();
    world.scene.books.queues.agrees(&lists)
}

/// The elements of a list, all of which are short.
fn elements(store: &Arc<Store>, name: &str) -> Vec<Vec<u8>> {
    let mut worker = store.worker().expect("those of the server are gone");
    let mut guard = worker.enter(1_800_000_000_000);
    let key = guard.key(name.as_bytes());
    let Some(Value::Collection(there)) = guard.peek(&key).hit().map(|item| item.value()) else {
        return Vec::new();
    };
    let list = there.elements();
    list.entries(0..list.len()).map(|entry| entry.name.text(&mut [0; DIGITS_MAX]).to_vec()).collect()
}

/// Checks that all money is in the accounts, as the ledger says.
fn balance_bank(world: &mut World) -> Result<(), String> {
    if !world.scene.plan.moves_money() {
        return Ok(());
    }
    let ledger = stored(&world.store, LEDGER).ok_or("the ledger is gone")?;
    let names = (0..ACCOUNTS).map(account_name);
    let balances: Option<Vec<u64>> = names.map(|name| number(&world.store, &name)).collect();
    world.scene.books.bank.agrees(&ledger, &balances.ok_or("an account is gone, or overdrawn")?)
}

fn number(store: &Arc<Store>, name: &str) -> Option<u64> {
    std::str::from_utf8(&stored(store, name)?).ok()?.parse().ok()
}

/// The value of a key; the value must be short.
fn stored(store: &Arc<Store>, name: &str) -> Option<Vec<u8>> {
    let mut worker = store.worker().expect("those of the server are gone");
    let mut guard = worker.enter(1_800_000_000_000);
    let key = guard.key(name.as_bytes());
    let Lookup::Hit(item) = guard.get(&key) else { return None };
    let Value::Whole(value) = item.value() else { return None };
    Some(value.to_vec())
}
