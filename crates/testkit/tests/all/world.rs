//! The world: real workers, sessions and store with simulated sockets, in one process and on one thread, in simulated time.
//! Clients of both protocols check every byte that they receive. A seed decides everything.
//!
//! - [`world`], [`run`]: the order of actions, a world's beginning and end, and its required results;
//! - [`plan`], [`scene`]: what a seed decides; what all actors share;
//! - [`door`], [`server`]: the entrance, and the server's actors; the network is `larder_eventloop::sim`;
//! - [`http`], [`lobby`]: the HTTP thread and its listener; [`scraper`], [`visit`], [`scrapes`]: its clients, and its right answers;
//! - [`client`], [`line`], [`wire`]: a client and its connection, plain or by TLS;
//! - [`asking`], [`admin`], [`listener`], [`asking_user`]: the client's requests and what it receives;
//!   [`user`], [`users`]: the client's user;
//! - [`model`], [`part`], [`judge`], [`books`], [`bank`], [`queues`], [`shared`], [`log`]: the right answers.
//!
//! `LARDER_WORLD_SEED` runs the world of one seed; `LARDER_WORLD_RUNS`: as many seeds from that one on. More:
//! docs/internals/world.md.

mod admin;
mod asking;
mod asking_resp;
mod asking_script;
mod asking_text;
mod asking_user;
mod bank;
mod books;
mod client;
mod door;
mod http;
mod judge;
mod line;
mod listener;
mod lobby;
mod log;
mod model;
mod part;
mod plan;
mod queues;
mod random;
mod run;
mod scene;
mod scraper;
mod scrapes;
mod server;
mod shared;
mod simulation;
mod user;
mod users;
mod visit;
mod wire;

use larder_testkit::PATIENCE;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Worlds of a usual run.
const RUNS: u64 = 60;

fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// A second thread that aborts the process if a step does not end. The thread ends when `pulse` is dropped.
fn watch(seed: &Arc<AtomicU64>, pulse: &Arc<AtomicU64>) {
    let (seed, pulse) = (Arc::clone(seed), Arc::downgrade(pulse));
    std::thread::spawn(move || {
        let mut before = 0;
        loop {
            std::thread::sleep(PATIENCE);
            let Some(now) = pulse.upgrade().map(|pulse| pulse.load(Relaxed)) else { return };
            if now == before {
                eprintln!(
                    "the world of seed {} hangs in step {now}: LARDER_WORLD_SEED replays it",
                    seed.load(Relaxed)
                );
                std::process::abort();
            }
            before = now;
        }
    });
}

#[test]
fn every_byte_is_the_answer_to_what_its_client_has_asked() {
    let first = given("LARDER_WORLD_SEED");
    let runs = given("LARDER_WORLD_RUNS").unwrap_or(if first.is_some() { 1 } else { RUNS });
    let first = first.unwrap_or(1);
    let (at, pulse) = (Arc::new(AtomicU64::new(first)), Arc::new(AtomicU64::new(0)));
    watch(&at, &pulse);
    let (mut replies, mut moves, mut pops, mut shared) = (0, 0, 0, 0);
    let (mut shared_pops, mut deliveries) = (0, 0);
    let (mut tls, mut resumed, mut users, mut pages) = (0, 0, users::Counts::default(), 0);
    for seed in first..first + runs {
        at.store(seed, Relaxed);
        let began = std::time::Instant::now();
        match std::panic::catch_unwind(|| run::run(seed, &pulse)) {
            Ok(Ok(outcome)) => {
                replies += outcome.replies;
                moves += outcome.moves;
                pops += outcome.pops;
                shared += outcome.shared;
                shared_pops += outcome.shared_pops;
                deliveries += outcome.deliveries;
                tls += outcome.tls;
                resumed += outcome.resumed;
                users += outcome.users;
                pages += outcome.pages;
            }
            Ok(Err(wrong)) => panic!("LARDER_WORLD_SEED={seed}\n{wrong}"),
            Err(panic) => {
                eprintln!("LARDER_WORLD_SEED={seed} panicked");
                std::panic::resume_unwind(panic);
            }
        }
        println!(
            "seed {seed}: {:?}, {replies} replies, {moves} moves, {pops} pops, {shared} shared \
             ({shared_pops} pops, {deliveries} deliveries), {tls} by TLS ({resumed} resumed), {users:?}, \
             {pages} pages of metrics",
            began.elapsed()
        );
    }
    // Each world checks its own replies. These assertions check that there were enough of them.
    assert!(runs < RUNS || replies > 100 * runs, "{replies} replies in {runs} worlds");
    assert!(runs < RUNS || moves > runs, "{moves} times scripts have moved money in {runs} worlds");
    assert!(runs < RUNS || pops > runs, "{pops} elements of lists were given to clients in {runs} worlds");
    assert!(runs < RUNS || shared > runs, "{shared} answers about shared collections in {runs} worlds");
    let told = "numbers were popped from shared lists and entries of a shared stream delivered";
    assert!(runs < RUNS || shared_pops.min(deliveries) > 0, "{shared_pops} and {deliveries}: {told}");
    let told = "connections by TLS had replies, and of these such that resumed a session";
    assert!(runs < RUNS || tls > runs && resumed > runs / 4, "{tls} and {resumed}: {told}");
    let users::Counts { refused, taken, given, wrong, outdated, removed, reread, overtaken: _ } = users;
    let least = [taken, given, outdated, removed, reread].into_iter().min();
    assert!(runs < RUNS || refused > 2 * runs && wrong > runs / 4 && least > Some(0), "{users:?}");
    assert!(runs < RUNS || pages > runs / 2, "{pages} pages of metrics in {runs} worlds");
}

#[test]
fn a_seed_replays_to_the_last_event() {
    let pulse = Arc::new(AtomicU64::new(0));
    // The first world moves money by scripts, some of which are killed; the second has users; it and the third speak TLS. The
    // first and the third have HTTP.
    for seed in [1, 3, 4] {
        let [one, other] = [(); 2].map(|()| run::run(seed, &pulse).expect("a world that goes well"));
        assert_eq!(one, other, "seed {seed}");
    }
}
