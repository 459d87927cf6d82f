//! Scripts under the scheduler: money that they move between accounts is all there whenever a client looks, by a script, by MGET
//! or by EXEC, and whether they name their accounts or not.

use crate::{answer, disturb, with_seeds};
use larder_store::schedule::{Random, Schedule, progress};
use larder_testkit::local::Local;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

const ACCOUNTS: [&str; 4] = ["a", "b", "c", "d"];
const EACH: u64 = 100;
const MOVES: usize = 40;
const LOOKS: usize = 40;

/// Moves between the accounts that are declared, or, where none is, those that are named.
const MOVE: &str = "local from, to = KEYS[1] or ARGV[2], KEYS[2] or ARGV[3] \
    if tonumber(redis.call('GET', from)) < tonumber(ARGV[1]) then return 0 end \
    redis.call('DECRBY', from, ARGV[1]) redis.call('INCRBY', to, ARGV[1]) return 1";
/// Reads for so long that it gives up what it has read, and is begun anew.
const SLOW_SUM: &str = "local sum = 0 \
    for _, key in ipairs(KEYS) do sum = sum + redis.call('GET', key) for i = 1, 150000 do end end return sum";
const SUM: &str =
    "local sum = 0 for _, key in ipairs(ARGV) do sum = sum + redis.call('GET', key) end return sum";

/// What all have together, by a reply that has their values in lines of their own.
fn sum(reply: &str) -> u64 {
    reply.split("\r\n").filter_map(|line| line.parse::<u64>().ok()).sum()
}

fn moving(seed: u64) {
    let local = Local::new(&["-m", "16", "-t", "6", "-M"].map(str::to_owned)).expect("a server");
    let store = Arc::clone(local.store());
    let all = EACH * ACCOUNTS.len() as u64;
    let mut random = Random(seed);
    let mut schedule = Schedule::new(seed, 2_000_000);
    let at_work = Rc::new(Cell::new(3));
    let siblings = [(); 2].map(|()| local.sibling().expect("another worker"));
    let mut first = local;
    let mut connection = first.resp_connection();
    for account in ACCOUNTS {
        answer(&mut first, &mut connection, &["SET", account, &EACH.to_string()]);
    }
    // In some seeds the script is trusted with the keys that it declares from the beginning, and names no others then: behind
    // its first write that would be an error.
    let is_trusted = random.below(2) == 0;
    if is_trusted {
        for _ in 0..64 {
            answer(&mut first, &mut connection, &["EVAL", MOVE, "2", "a", "a", "1"]);
        }
    }
    drop(connection);
    for (nth, mut local) in siblings.into_iter().enumerate() {
        let (at_work, mut random) = (Rc::clone(&at_work), Random(random.draw()));
        schedule.thread(format!("mover-{nth}"), move || {
            let mut connection = local.resp_connection();
            for _ in 0..MOVES {
                let [from, to] = [(); 2].map(|()| ACCOUNTS[random.below(4) as usize]);
                let amount = (1 + random.below(60)).to_string();
                let reply = match random.below(8) {
                    0 if !is_trusted => {
                        answer(&mut local, &mut connection, &["EVAL", MOVE, "0", &amount, from, to])
                    }
                    1 => {
                        // As one of the commands of a transaction, beside another.
                        let words = ["EVAL", MOVE, "2", from, to, &amount];
                        answer(&mut local, &mut connection, &["MULTI"]);
                        answer(&mut local, &mut connection, &words);
                        answer(&mut local, &mut connection, &["GET", from]);
                        let reply = answer(&mut local, &mut connection, &["EXEC"]);
                        assert!(reply.starts_with("*2\r\n"), "seed {seed}: {reply}");
                        format!("{}\r\n", reply.split("\r\n").nth(1).unwrap_or_default())
                    }
                    _ => answer(&mut local, &mut connection, &["EVAL", MOVE, "2", from, to, &amount]),
                };
                assert!(reply == ":0\r\n" || reply == ":1\r\n", "seed {seed}: {reply}");
                progress();
            }
            at_work.set(at_work.get() - 1);
        });
    }
    let (left, mut choices) = (Rc::clone(&at_work), Random(random.draw()));
    schedule.thread("looker", move || {
        let mut connection = first.resp_connection();
        for _ in 0..LOOKS {
            let [a, b, c, d] = ACCOUNTS;
            let (how, reply) = match choices.below(4) {
                0 => ("MGET", answer(&mut first, &mut connection, &["MGET", a, b, c, d])),
                1 => ("EVAL", answer(&mut first, &mut connection, &["EVAL", SUM, "0", a, b, c, d])),
                2 => ("slow", answer(&mut first, &mut connection, &["EVAL", SLOW_SUM, "4", a, b, c, d])),
                _ => {
                    answer(&mut first, &mut connection, &["MULTI"]);
                    ACCOUNTS.iter().for_each(|key| drop(answer(&mut first, &mut connection, &["GET", key])));
                    ("EXEC", answer(&mut first, &mut connection, &["EXEC"]))
                }
            };
            let seen = if how == "EVAL" || how == "slow" {
                reply.trim_end().trim_start_matches(':').parse().unwrap_or(0)
            } else {
                sum(&reply)
            };
            assert_eq!(seen, all, "seed {seed}, {how}: {reply}");
            progress();
        }
        left.set(left.get() - 1);
    });
    let (disturbed, random) = (Arc::clone(&store), Random(random.draw()));
    schedule.thread("disturber", move || disturb(&disturbed, random, &at_work));
    schedule.run();
    store.check();
}

#[test]
fn money_that_scripts_move_is_all_there_at_every_moment() {
    with_seeds("scripts", 30, moving);
}
