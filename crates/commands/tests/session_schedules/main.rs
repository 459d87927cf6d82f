//! Sessions under the seeded scheduler: what two clients of both protocols see can be put in one order, whatever the
//! store does beside them. Built with the feature `schedule`, run by `cargo xtask schedules`; how to replay a seed is
//! said in `crates/store/tests/schedules`.

mod exec;
mod moments;
mod pairs;
mod scripts;
mod waiting;
mod written;

use larder_store::schedule::{Random, Schedule, pass, progress};
use larder_store::{Attributes, Automove, Expect, Store};
use larder_testkit::both::Both;
use larder_testkit::history::{Client, Script, Verdict, play, script};
use larder_testkit::local::{Local, LocalConnection, START};
use larder_testkit::talk::encode;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Histories of a schedule.
const HISTORIES: u64 = 12;

fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Seeds of a scenario: the one that is replayed, or so many, unless another number is given, from the first on.
fn seeds(runs: u64) -> Range<u64> {
    match given("LARDER_SCHEDULE_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = given("LARDER_SCHEDULE_FIRST").unwrap_or(0);
            first..first + given("LARDER_SCHEDULE_RUNS").unwrap_or(runs)
        }
    }
}

/// Plays a scenario with each of its seeds. The seed that is printed last replays a run that fails.
fn with_seeds(name: &str, runs: u64, scenario: fn(u64)) {
    for seed in seeds(runs) {
        println!("{name}: LARDER_SCHEDULE_SEED={seed}");
        scenario(seed);
    }
}

/// A server's worker, and so many others of it.
fn workers<const SIBLINGS: usize>() -> (Local, [Local; SIBLINGS]) {
    let local = Local::new(&["-m", "16", "-t", "4", "-M"].map(str::to_owned)).expect("a server");
    let siblings = [(); SIBLINGS].map(|()| local.sibling().expect("another worker"));
    (local, siblings)
}

/// Goes on while clients are at work: inserts and deletes small items, so that the index grows and shrinks.
fn disturb(store: &Arc<Store>, mut random: Random, at_work: &Cell<usize>) {
    let mut worker = store.worker().expect("a worker");
    let (mut now, mut next) = (START, 0u64);
    while at_work.get() > 0 {
        now += random.below(30);
        let mut guard = worker.enter(now);
        match random.below(8) {
            0..4 => {
                for _ in 0..random.below(100) {
                    next += 1;
                    let name = format!("grow-{next}");
                    let key = guard.key(name.as_bytes());
                    guard
                        .store_value(&key, &[b'g'; 24], &Attributes::default(), Expect::Any)
                        .expect("memory");
                }
            }
            4 => {
                for _ in 0..random.below(next + 1) {
                    let name = format!("grow-{next}");
                    let key = guard.key(name.as_bytes());
                    let _ = guard.delete(&key, Expect::Any);
                    next -= 1;
                }
            }
            5 => {
                store.set_automove([Automove::Ages, Automove::Always][random.below(2) as usize]);
                let classes = store.classes(now);
                let mut pick =
                    || classes.get(random.below(1 + classes.len() as u64) as usize).map(|class| class.id);
                guard.reassign(pick(), pick(), 1 + random.below(3) as usize);
            }
            _ => drop(guard.maintain()),
        }
        drop(guard);
        progress();
        pass();
    }
}

fn schedule(seed: u64) -> Verdict {
    let (local, [sibling]) = workers();
    let store = Arc::clone(local.store());
    let mut random = Random(seed);
    // Large enough for the segment of these keys to split, or not.
    let mut worker = store.worker().expect("a worker");
    for n in 0..random.below(6_000) {
        let mut guard = worker.enter(START);
        let name = format!("fill-{n}");
        let key = guard.key(name.as_bytes());
        guard.store_value(&key, &[b'f'; 24], &Attributes::default(), Expect::Any).expect("memory");
    }
    drop(worker);
    let mut state = seed;
    let scripts: Rc<Vec<Script>> = Rc::new((0..HISTORIES).map(|_| script(&mut state)).collect());
    let (at_work, clock) = (Rc::new(Cell::new(2)), Rc::new(AtomicU64::new(0)));
    let arrived = Rc::new(Cell::new(0));
    let calls = Rc::new(RefCell::new(vec![Vec::new(); HISTORIES as usize]));
    let mut schedule = Schedule::new(seed, 300_000);
    for (thread, local) in [local, sibling].into_iter().enumerate() {
        let (scripts, at_work, clock, calls) =
            (Rc::clone(&scripts), Rc::clone(&at_work), Rc::clone(&clock), Rc::clone(&calls));
        let arrived = Rc::clone(&arrived);
        let mut client = Both::new(local, random.draw());
        schedule.thread(format!("client-{thread}"), move || {
            for history in 0..HISTORIES {
                // Both begin together.
                arrived.set(arrived.get() + 1);
                while arrived.get() < 2 * (history + 1) {
                    pass();
                }
                let script = &scripts[history as usize][thread];
                let made = play(&mut client as &mut dyn Client, history, thread, script, &clock);
                calls.borrow_mut()[history as usize].extend(made);
                progress();
            }
            at_work.set(at_work.get() - 1);
        });
    }
    for n in 0..1 + random.below(2) {
        let (store, at_work, random) = (Arc::clone(&store), Rc::clone(&at_work), Random(random.draw()));
        schedule.thread(format!("disturber-{n}"), move || disturb(&store, random, &at_work));
    }
    schedule.run();
    store.check();
    let mut verdict = Verdict::default();
    calls.take().into_iter().for_each(|calls| verdict.add(calls));
    verdict
}

#[test]
fn what_two_clients_see_can_be_put_in_one_order_whatever_the_store_does() {
    let seeds = seeds(100);
    let (mut met, all) = (0, (seeds.end - seeds.start) * HISTORIES);
    for seed in seeds {
        println!("sessions: LARDER_SCHEDULE_SEED={seed}");
        let verdict = schedule(seed);
        assert!(verdict.violations.is_empty(), "seed {seed}: no order explains {:#?}", verdict.violations[0]);
        met += verdict.overlapping.max(verdict.alternating);
    }
    println!("sessions: {met} of {all} histories in which the two met");
    assert!(met * 4 > all, "they meet in every other history");
}

/// What a RESP client is answered.
fn answer(local: &mut Local, connection: &mut LocalConnection, words: &[&str]) -> String {
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    local.exchange(connection, &encode(&words));
    let text = String::from_utf8_lossy(connection.sent()).into_owned();
    connection.forget();
    text
}

/// The same of a command that may have to wait for keys, or takes several turns: goes on until its reply is there.
fn answer_later(local: &mut Local, connection: &mut LocalConnection, words: &[&str]) -> String {
    let mut reply = answer(local, connection, words);
    while reply.is_empty() {
        pass();
        local.go_on(connection);
        reply = String::from_utf8_lossy(connection.sent()).into_owned();
        connection.forget();
    }
    reply
}

/// Others have their turn before the next command holds keys.
fn rest(local: &mut Local) {
    local.shift(1000);
    progress();
}

/// What a client says again and again while another writes.
type Look = Box<dyn FnMut(&mut Local, &mut LocalConnection)>;

/// One client writes by turns, while others, of other workers, look.
fn write_beside<const LOOKS: usize>(
    seed: u64,
    write: impl FnOnce(&mut Local, &mut LocalConnection) + 'static,
    looks: [Look; LOOKS],
) {
    let (mut writer, readers) = workers::<LOOKS>();
    let mut schedule = Schedule::new(seed, 3_000_000);
    let at_work = Rc::new(Cell::new(true));
    let is_over = Rc::clone(&at_work);
    schedule.thread("writer", move || {
        let mut connection = writer.resp_connection().by_turns();
        write(&mut writer, &mut connection);
        is_over.set(false);
    });
    for (nth, (mut reader, mut look)) in readers.into_iter().zip(looks).enumerate() {
        let at_work = Rc::clone(&at_work);
        schedule.thread(format!("reader-{nth}"), move || {
            let mut connection = reader.resp_connection();
            while at_work.get() {
                look(&mut reader, &mut connection);
                progress();
                pass();
            }
        });
    }
    schedule.run();
}

/// What was written in steps to several keys, one digit each, is of one moment.
fn are_of_one_moment(reply: &str, seed: u64) {
    let values: Vec<&str> = reply.split("\r\n").filter(|text| text.len() == 1).collect();
    assert!(
        reply == "*3\r\n$-1\r\n$-1\r\n$-1\r\n"
            || values.len() == 3 && values.iter().all(|value| *value == values[0]),
        "seed {seed}: {reply:?}"
    );
}

/// One client sets three keys to one value at a time, the other reads them together.
fn together(seed: u64) {
    const ROUNDS: usize = 60;
    let (mut writer, [mut reader]) = workers();
    let mut schedule = Schedule::new(seed, 300_000);
    schedule.thread("writer", move || {
        let mut connection = writer.resp_connection();
        for round in 0..ROUNDS {
            let value = format!("{round:03}");
            let words = ["MSET", "a", &value, "b", &value, "c", &value];
            assert_eq!(answer(&mut writer, &mut connection, &words), "+OK\r\n");
            progress();
        }
    });
    schedule.thread("reader", move || {
        let mut connection = reader.resp_connection();
        for _ in 0..ROUNDS {
            let reply = answer(&mut reader, &mut connection, &["MGET", "a", "b", "c"]);
            let values: Vec<&str> = reply.split("\r\n").skip(1).collect();
            let one = values.first().is_some_and(|value| *value == "$-1");
            let all = if one {
                ["$-1"; 3].join("\r\n")
            } else {
                vec![format!("$3\r\n{}", values[1]); 3].join("\r\n")
            };
            assert_eq!(reply, format!("*3\r\n{all}\r\n"), "seed {seed}: several moments in one reply");
            progress();
        }
    });
    schedule.run();
}

#[test]
fn keys_that_are_read_together_are_of_one_moment() {
    with_seeds("together", 40, together);
}
