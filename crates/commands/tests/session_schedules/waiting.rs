//! Commands that wait, under the scheduler: no waiter is missed, and each element goes to one.

use crate::{answer, disturb, with_seeds, workers};
use larder_store::schedule::{Random, Schedule, pass, progress};
use larder_testkit::local::{Local, LocalConnection};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// Two clients wait for elements that a third pushes to one of two lists: no waiter is missed, and each element goes to one.
fn waiting(seed: u64) {
    const PUSHES: usize = 40;
    let (mut pusher, siblings) = workers::<2>();
    let mut random = Random(seed);
    let mut schedule = Schedule::new(seed, 300_000);
    let (awake, popped) = (Rc::new(RefCell::new(Vec::new())), Rc::new(RefCell::new(Vec::new())));
    for (nth, mut local) in siblings.into_iter().enumerate() {
        let (awake, popped) = (Rc::clone(&awake), Rc::clone(&popped));
        let lists = if nth == 0 { ["a", "b"] } else { ["b", "a"] };
        schedule.thread(format!("waiter-{nth}"), move || {
            let mut connection = local.resp_connection();
            let id = connection.client().expect("a client");
            loop {
                let mut reply = answer(&mut local, &mut connection, &["BLPOP", lists[0], lists[1], "0"]);
                while reply.is_empty() {
                    awake.borrow_mut().extend(local.awake());
                    let woken = awake.borrow().contains(&id);
                    if woken {
                        awake.borrow_mut().retain(|other| *other != id);
                        local.go_on(&mut connection);
                        reply = String::from_utf8_lossy(connection.sent()).into_owned();
                        connection.forget();
                    } else {
                        pass();
                    }
                }
                progress();
                let element = reply.split("\r\n").nth(4).expect("an element").to_owned();
                awake.borrow_mut().extend(local.awake());
                if element == "end" {
                    return;
                }
                popped.borrow_mut().push(element);
            }
        });
    }
    let choices: Vec<u64> = (0..PUSHES + 2).map(|_| random.draw()).collect();
    let (shared, seen) = (Rc::clone(&awake), Rc::clone(&popped));
    schedule.thread("pusher", move || {
        let mut connection = pusher.resp_connection();
        for (n, choice) in choices.into_iter().enumerate() {
            let element = if n < PUSHES { n.to_string() } else { "end".to_owned() };
            // No client is to take the end before all else is taken.
            while n == PUSHES && seen.borrow().len() < PUSHES {
                pass();
            }
            let list = ["a", "b"][(choice % 2) as usize];
            let words = ["RPUSH", list, &element];
            if choice % 3 == 0 {
                answer(&mut pusher, &mut connection, &["MULTI"]);
                answer(&mut pusher, &mut connection, &words);
                answer(&mut pusher, &mut connection, &["EXEC"]);
            } else {
                assert!(answer(&mut pusher, &mut connection, &words).starts_with(':'));
            }
            shared.borrow_mut().extend(pusher.awake());
            progress();
        }
    });
    schedule.run();
    let mut popped: Vec<usize> =
        popped.borrow().iter().map(|element| element.parse().expect("a number")).collect();
    popped.sort_unstable();
    assert_eq!(popped, (0..PUSHES).collect::<Vec<_>>(), "seed {seed}");
}

#[test]
fn nobody_who_waits_is_missed_and_each_element_goes_to_one() {
    with_seeds("waiting", 60, waiting);
}

/// Lists that are waited for; what is moved goes to the last.
const LISTS: [&str; 3] = ["a", "b", "c"];
/// Turns in which each waiter that was called looks: one that was not is missed.
const QUIET_PASSES: usize = 3_000;

/// The client of a waiter that waits now, and for which lists.
type Waiting = Option<(u64, [&'static str; 2])>;

/// What waiters, the pusher and those beside them know of each other.
#[derive(Default)]
struct Hall {
    /// Clients that are to look again.
    awake: RefCell<Vec<u64>>,
    /// Elements that were given to a waiter.
    given: RefCell<BTreeSet<String>>,
    /// By waiter.
    waiting: RefCell<Vec<Waiting>>,
    pushed: Cell<usize>,
    /// Those before this one were flushed: what was not given by then has gone.
    flushed: Cell<usize>,
    /// Nothing is pushed any more.
    over: Cell<bool>,
    waiters: Cell<usize>,
    at_work: Rc<Cell<usize>>,
}

impl Hall {
    /// Has the clients look that a worker has woken.
    fn wake(&self, local: &Local) {
        self.awake.borrow_mut().extend(local.awake());
    }

    /// Clients that wait.
    fn clients(&self) -> Vec<u64> {
        self.waiting.borrow().iter().flatten().map(|waiting| waiting.0).collect()
    }

    /// An element was replied.
    fn take(&self, element: &str) {
        assert!(self.given.borrow_mut().insert(element.to_owned()), "{element} was given twice");
    }
}

/// BLPOP, BRPOP and BLMOVE again and again, by a client that now and then goes while it waits.
fn wait_often(local: &mut Local, hall: &Hall, nth: usize, random: &mut Random) {
    let mut connection = local.resp_connection();
    while !hall.over.get() {
        let [one, other] = [LISTS[random.below(3) as usize], LISTS[random.below(3) as usize]];
        let moves = random.below(4) == 0;
        let words = match random.below(2) {
            _ if moves => ["BLMOVE", one, LISTS[2], "LEFT", "RIGHT", "0"].to_vec(),
            0 => vec!["BLPOP", one, other, "0"],
            _ => vec!["BRPOP", one, other, "0"],
        };
        let reply = answer(local, &mut connection, &words);
        hall.wake(local);
        progress();
        let lists = if moves { [one, one] } else { [one, other] };
        let Some(reply) = wait_for(local, hall, (nth, lists), &mut connection, reply, random) else {
            // What it was given is put back.
            let gone = std::mem::replace(&mut connection, local.resp_connection());
            local.ended(gone);
            hall.wake(local);
            continue;
        };
        match reply.split("\r\n").collect::<Vec<_>>()[..] {
            ["*2", _, _, _, element, ""] => hall.take(element),
            // It is in the other list now.
            [head, _, ""] if moves && head.starts_with('$') => {}
            ["*-1" | "$-1", ""] => {}
            [error, ""] if error.starts_with("-UNBLOCKED") => {}
            ref other => panic!("{words:?} is answered {other:?}"),
        }
    }
    hall.waiters.set(hall.waiters.get() - 1);
}

/// The reply; none if the client is to go before it has any.
fn wait_for(
    local: &mut Local,
    hall: &Hall,
    (nth, lists): (usize, [&'static str; 2]),
    connection: &mut LocalConnection,
    mut reply: String,
    random: &mut Random,
) -> Option<String> {
    let id = connection.client().expect("a client");
    while reply.is_empty() {
        hall.waiting.borrow_mut()[nth] = Some((id, lists));
        if random.below(300) == 0 && !hall.over.get() {
            hall.waiting.borrow_mut()[nth] = None;
            return None;
        }
        if !hall.awake.borrow().contains(&id) {
            pass();
            continue;
        }
        hall.awake.borrow_mut().retain(|other| *other != id);
        local.go_on(connection);
        hall.wake(local);
        reply = String::from_utf8_lossy(connection.sent()).into_owned();
        connection.forget();
        progress();
    }
    hall.waiting.borrow_mut()[nth] = None;
    Some(reply)
}

/// Pushes, alone, several at once and in transactions, swaps databases and ends waits.
fn push_often(local: &mut Local, hall: &Hall, random: &mut Random) {
    const PUSHES: usize = 50;
    let mut connection = local.resp_connection();
    for _ in 0..PUSHES {
        let first = hall.pushed.get();
        let elements: Vec<String> =
            (first..first + 1 + random.below(3) as usize).map(|n| n.to_string()).collect();
        hall.pushed.set(first + elements.len());
        let mut words = vec![["RPUSH", "LPUSH"][random.below(2) as usize], LISTS[random.below(3) as usize]];
        words.extend(elements.iter().map(String::as_str));
        match random.below(8) {
            0 => {
                answer(local, &mut connection, &["SWAPDB", "0", "1"]);
                answer(local, &mut connection, &words);
            }
            1 | 2 => {
                answer(local, &mut connection, &["MULTI"]);
                answer(local, &mut connection, &words);
                let exec = answer(local, &mut connection, &["EXEC"]);
                assert!(exec.starts_with("*1\r\n:"), "{exec}");
            }
            3 => {
                for id in hall.clients() {
                    answer(local, &mut connection, &["CLIENT", "UNBLOCK", &id.to_string(), "ERROR"]);
                }
                answer(local, &mut connection, &words);
            }
            _ => assert!(answer(local, &mut connection, &words).starts_with(':')),
        }
        hall.wake(local);
        progress();
    }
    (0..QUIET_PASSES).for_each(|_| pass());
    let missed = |local: &mut Local, connection: &mut LocalConnection| {
        let waiting: Vec<_> = hall.waiting.borrow().iter().flatten().copied().collect();
        let there = |list: &&str| answer(local, connection, &["LLEN", list]) != ":0\r\n";
        let there: Vec<&str> = LISTS.iter().copied().filter(there).collect();
        let missed = |(_, lists): &(u64, [&str; 2])| lists.iter().any(|list| there.contains(list));
        waiting.into_iter().filter(missed).collect::<Vec<_>>()
    };
    // A waiter that waits for a list that is there, and does so for long, was missed.
    let first = missed(local, &mut connection);
    (0..QUIET_PASSES).for_each(|_| pass());
    let still: Vec<_> =
        missed(local, &mut connection).into_iter().filter(|one| first.contains(one)).collect();
    assert!(still.is_empty(), "they wait for what is there: {still:?}");
    hall.over.set(true);
    while hall.waiters.get() > 0 {
        for id in hall.clients() {
            answer(local, &mut connection, &["CLIENT", "UNBLOCK", &id.to_string()]);
        }
        hall.wake(local);
        progress();
        pass();
    }
}

/// Every element was given to a waiter, or is in one of the lists of either database.
fn count_all(local: &mut Local, hall: &Hall) {
    let mut connection = local.resp_connection();
    for db in ["0", "1"] {
        answer(local, &mut connection, &["SELECT", db]);
        for list in LISTS {
            let reply = answer(local, &mut connection, &["LRANGE", list, "0", "-1"]);
            reply.split("\r\n").skip(2).step_by(2).filter(|element| !element.is_empty()).for_each(
                |element| {
                    let n: usize = element.parse().expect("a number");
                    assert!(n >= hall.flushed.get(), "{element} was flushed, and is there");
                    hall.take(element);
                },
            );
        }
    }
    let given = hall.given.borrow();
    let lost = (hall.flushed.get()..hall.pushed.get()).find(|n| !given.contains(&n.to_string()));
    assert_eq!(lost, None, "pushed, and neither given nor there");
}

fn waiting_beside_everything(seed: u64) {
    const WAITERS: usize = 3;
    let local = Local::new(&["-m", "16", "-t", "8", "-M"].map(str::to_owned)).expect("a server");
    let store = Arc::clone(local.store());
    let mut random = Random(seed ^ 0x3a17);
    let mut schedule = Schedule::new(seed, 500_000);
    let hall = Rc::new(Hall::default());
    hall.waiting.borrow_mut().resize(WAITERS, None);
    hall.waiters.set(WAITERS);
    hall.at_work.set(1);
    for nth in 0..WAITERS {
        let (mut local, hall) = (local.sibling().expect("another worker"), Rc::clone(&hall));
        let mut random = Random(random.draw());
        schedule.thread(format!("waiter-{nth}"), move || wait_often(&mut local, &hall, nth, &mut random));
    }
    for nth in 0..random.below(3) {
        let (store, random, hall) = (Arc::clone(&store), Random(random.draw()), Rc::clone(&hall));
        schedule.thread(format!("disturber-{nth}"), move || disturb(&store, random, &hall.at_work));
    }
    let (mut pusher, its) = (local, Rc::clone(&hall));
    schedule.thread("pusher", move || {
        push_often(&mut pusher, &its, &mut random);
        count_all(&mut pusher, &its);
        its.at_work.set(0);
    });
    schedule.run();
    store.check();
}

#[test]
fn elements_are_given_once_or_stay_whoever_goes_and_whatever_is_swapped() {
    with_seeds("waiting-more", 60, waiting_beside_everything);
}

/// A client goes while it waits, about when it is given an element: that is its own or goes back, unless all was flushed
/// since it was pushed.
fn going(seed: u64) {
    const PUSHES: usize = 200;
    let local = Local::new(&["-m", "16", "-t", "2", "-M"].map(str::to_owned)).expect("a server");
    let mut waiter = local.sibling().expect("another worker");
    let mut random = Random(seed ^ 0x60e5);
    let mut schedule = Schedule::new(seed, 200_000);
    let hall = Rc::new(Hall::default());
    let waits = Rc::new(Cell::new(false));
    let (its, here) = (Rc::clone(&hall), Rc::clone(&waits));
    schedule.thread("waiter", move || {
        while !its.over.get() {
            let mut connection = waiter.resp_connection();
            let flushed = its.flushed.get();
            let reply = answer(&mut waiter, &mut connection, &["BLPOP", LISTS[0], "0"]);
            if reply.is_empty() {
                here.set(true);
                (0..random.below(3)).for_each(|_| pass());
            } else {
                let element = reply.split("\r\n").nth(4).expect("an element");
                let n: usize = element.parse().expect("a number");
                assert!(n >= flushed, "{n} came back behind a flush");
                its.take(element);
            }
            waiter.ended(connection);
            here.set(false);
            progress();
        }
        its.waiters.set(0);
    });
    let (mut pusher, mut flushes) = (local, Random(seed ^ 0xf1a5));
    hall.waiters.set(1);
    schedule.thread("pusher", move || {
        let mut connection = pusher.resp_connection();
        for n in 0..PUSHES {
            while !waits.get() {
                pass();
            }
            hall.pushed.set(n + 1);
            assert!(
                answer(&mut pusher, &mut connection, &["RPUSH", LISTS[0], &n.to_string()]).starts_with(':')
            );
            if flushes.below(8) == 0 {
                assert_eq!(answer(&mut pusher, &mut connection, &["FLUSHALL"]), "+OK\r\n");
                hall.flushed.set(n + 1);
            }
            progress();
        }
        hall.over.set(true);
        while hall.waiters.get() > 0 {
            pass();
        }
        count_all(&mut pusher, &hall);
    });
    schedule.run();
}

#[test]
fn what_one_is_given_who_goes_at_that_moment_stays() {
    with_seeds("going", 60, going);
}
