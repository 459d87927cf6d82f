//! The store's own code under the seeded scheduler: built with the feature `schedule`, run by `cargo xtask
//! schedules`.
//!
//! A scenario is a store, a few threads that know exactly what must be there, and other threads beside them
//! that grow, shrink, flush, move, expire, stall and wait. After each schedule every acknowledged write is
//! there, or the store has said that it was evicted, or a flush explains why it is not. The store's counts
//! are right, no lock is held, and all memory can be freed. `LARDER_SCHEDULE_SEED=n` replays one schedule of
//! a scenario. `LARDER_SCHEDULE_RUNS=n` plays `n` schedules, beginning with seed `LARDER_SCHEDULE_FIRST`.
//!
//! `upkeep` plays no schedule: it counts the memory accesses of a step.

mod adder;
mod aside;
mod awaiter;
mod counter;
mod elements;
mod full;
mod holder;
mod hover;
mod owner;
mod publishing;
mod sent;
mod short;
mod stage;
mod together;
mod upkeep;
mod watcher;

use larder_store::{Config, Eviction};
use stage::{Cast, MOST_WAITS, play};
use std::cell::Cell;
use std::rc::Rc;

/// Turns over which the scheduler spreads a seed's thread changes. It is a constant, so that a seed has the
/// same schedule whichever ones were played before.
const LENGTH: u64 = 100_000;

/// Plays a scenario with seeds 0 to `runs` - 1, or with those that the environment names; returns how many it
/// played.
fn explore(name: &str, runs: u64, scenario: impl Fn(&mut Cast)) -> u64 {
    let given = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seeds = match given("LARDER_SCHEDULE_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = given("LARDER_SCHEDULE_FIRST").unwrap_or(0);
            first..first + given("LARDER_SCHEDULE_RUNS").unwrap_or(runs)
        }
    };
    let began = std::time::Instant::now();
    let (mut turns, count) = (0, seeds.end - seeds.start);
    for seed in seeds {
        println!("{name}: LARDER_SCHEDULE_SEED={seed}");
        turns += play(seed, LENGTH, &scenario);
    }
    let most = MOST_WAITS.take();
    println!("{name}: {count} schedules, {turns} turns, {most} waits of a batch, {:?}", began.elapsed());
    count
}

fn config(mebibytes: u64) -> Config {
    Config { memory_bytes: mebibytes << 20, memory_bytes_max: 16 << 20, workers_max: 8, evict: true, seed: 1 }
}

/// Owners beside threads of other roles, drawn by the seed, in a store that evicts.
#[test]
fn what_is_acknowledged_is_there_or_was_evicted() {
    explore("evicting", 60, |cast| {
        let mebibytes = 2 + cast.random.below(3);
        cast.store(config(mebibytes), Eviction::All);
        cast.fill(20_000);
        owner::join(cast, 2, 60);
        aside::some(cast, 3, &aside::MORE);
    });
}

/// As above with eviction off: only a flush may remove a key.
#[test]
fn what_is_acknowledged_is_there_where_nothing_is_evicted() {
    explore("keeping", 100, |cast| {
        cast.store(config(16), Eviction::Off);
        let items = cast.random.below(7_000);
        cast.fill(items);
        owner::join_hurried(cast, 2, 60);
        aside::some(cast, 3, &aside::MORE);
    });
}

/// As above where only items with an expiry may be evicted.
#[test]
fn what_never_expires_is_there_where_only_the_rest_is_evicted() {
    const POLICIES: [Eviction; 2] = [Eviction::Volatile, Eviction::VolatileTtl];
    explore("volatile", 40, |cast| {
        let mebibytes = 2 + cast.random.below(3);
        let policy = POLICIES[cast.random.below(2) as usize];
        cast.store(config(mebibytes), policy);
        let items = cast.random.below(20_000);
        cast.fill(items);
        owner::join_hurried(cast, 2, 60);
        aside::one(cast, aside::Role::Expirer);
        aside::some(cast, 3, &aside::MORE);
    });
}

/// Databases are swapped and flushed, one of them or all. Each keeps its own keys.
#[test]
fn each_database_has_its_own_wherever_it_is() {
    explore("databases", 40, |cast| {
        cast.store(config(16), Eviction::Off);
        let items = cast.random.below(7_000);
        cast.fill(items);
        for number in [aside::DATABASES[0], aside::DATABASES[1], aside::DATABASES[3]] {
            owner::join_in(cast, number, 30);
        }
        aside::one(cast, aside::Role::Swapper);
        aside::one(cast, aside::Role::DatabaseFlusher);
        aside::some(cast, 2, &aside::HARMLESS);
    });
}

/// Deletes leave few items, spread over all spans. Compaction moves them together while threads read and
/// write them.
#[test]
fn what_compaction_moves_is_there() {
    const RUNS: u64 = 60;
    const ITEMS: u64 = 12_000;
    let done = Rc::new(Cell::new(aside::Compacted::default()));
    let played = explore("compacting", RUNS, |cast| {
        cast.store(config(16), Eviction::Off);
        cast.fill(ITEMS);
        cast.spread(ITEMS, 16);
        owner::join(cast, 2, 60);
        aside::compact(cast, 6, &done);
        aside::some(cast, 2, &aside::HARMLESS);
    });
    println!("compacting: {:?}", done.get());
    assert!(played < RUNS || done.get().spans > RUNS, "nothing is compacted");
}

/// Removals from collections in a full store that evicts nothing. They succeed whichever thread takes the
/// memory that they free.
#[test]
fn what_is_taken_out_of_a_full_store_goes() {
    use aside::Role::{Filler, Mover, Staller, Thinner, Upkeep};
    explore("leftovers", 40, |cast| {
        cast.store(config(8), Eviction::Off);
        full::join(cast, 2, 40, true);
        aside::one(cast, Filler);
        aside::some(cast, 3, &[Filler, Upkeep, Mover, Thinner, Staller]);
    });
}

/// As above while the memory limit changes: far above it a removal may be refused, and then the element is
/// still there.
#[test]
fn what_is_taken_out_of_a_full_store_goes_or_stays_where_the_limit_moves() {
    use aside::Role::{Filler, Limiter, Mover, Thinner, Upkeep};
    explore("leftovers-limited", 40, |cast| {
        cast.store(config(8), Eviction::Off);
        full::join(cast, 2, 40, false);
        aside::one(cast, Filler);
        aside::one(cast, Limiter);
        aside::some(cast, 2, &[Filler, Upkeep, Mover, Thinner]);
    });
}

/// Growth, merges and flushes, and nothing else: a flush happens while the index is rebuilt.
#[test]
fn writes_after_a_flush_stay_beside_growth_and_merges() {
    explore("flushing", 100, |cast| {
        cast.store(config(16), Eviction::Off);
        let items = 5_000 + cast.random.below(2_000);
        cast.fill(items);
        owner::join(cast, 1, 60);
        aside::one(cast, aside::Role::Flusher);
        aside::one(cast, aside::Role::Grower);
        aside::one(cast, aside::Role::Grower);
        aside::one(cast, aside::Role::Upkeep);
    });
}

/// A segment that is merged while others insert into it.
#[test]
fn merges_beside_inserts_leave_no_lock() {
    explore("merging", 100, |cast| {
        cast.store(config(16), Eviction::Off);
        // So few items that the two halves of a split segment are almost merged.
        cast.fill(8_000);
        let stay = 3_000 + cast.random.below(1_700);
        cast.thin(stay);
        owner::join(cast, 1, 40);
        aside::one(cast, aside::Role::Grower);
        aside::one(cast, aside::Role::Upkeep);
        aside::some(cast, 1, &[aside::Role::Upkeep, aside::Role::Flusher, aside::Role::Transactions]);
    });
}

/// The index plans a smaller segment, and more items are inserted meanwhile than fit it.
#[test]
fn a_rebuilding_that_gives_up_leaves_no_lock() {
    explore("hovering", 100, |cast| {
        cast.store(config(16), Eviction::Off);
        hover::join(cast, 6);
    });
}

/// Counters that several threads raise by CAS and in transactions: no update is lost, counted twice or
/// undone.
#[test]
fn counters_are_exact_beside_everything() {
    explore("counting", 60, |cast| {
        let mebibytes = 2 + cast.random.below(3);
        cast.store(config(mebibytes), Eviction::All);
        cast.fill(20_000);
        counter::join(cast, 3, 60);
        aside::some(cast, 2, &aside::ALL);
    });
}

/// Writes one key in every way of publishing an item, each beside every other, and beside a thread that
/// watches the key.
#[test]
fn what_is_published_by_any_way_is_there_once() {
    explore("publishing", 100, |cast| {
        cast.store(config(16), Eviction::Off);
        let items = cast.random.below(7_000);
        cast.fill(items);
        publishing::join(cast, 3, 40);
        watcher::join(cast, 10);
        aside::some(cast, 2, &[aside::Role::Grower, aside::Role::Upkeep, aside::Role::Mover]);
    });
}

/// Connections take buffers while upkeep lowers the bytes that are charged for them.
#[test]
fn what_buffers_hold_is_charged() {
    explore("holding", 300, |cast| {
        cast.store(config(16), Eviction::Off);
        holder::join(cast, 2, 30);
    });
}

/// Several threads append to the same values: no record is lost, and none is there twice.
#[test]
fn what_is_appended_beside_others_is_there_once() {
    explore("adding", 100, |cast| {
        cast.store(config(16), Eviction::Off);
        let items = cast.random.below(7_000);
        cast.fill(items);
        adder::join(cast, 3, 12);
        aside::some(cast, 1, &[aside::Role::Grower, aside::Role::Upkeep]);
    });
}

/// Several threads change the same collections: no change is lost or made twice, and none is seen half done.
#[test]
fn elements_of_collections_are_there_once() {
    explore("elements", 100, |cast| {
        cast.store(config(16), Eviction::Off);
        let items = cast.random.below(7_000);
        cast.fill(items);
        elements::join(cast, 3, 25);
        aside::some(cast, 2, &[aside::Role::Grower, aside::Role::Upkeep, aside::Role::Mover]);
    });
}

/// As above beside all roles that remove no item, with threads that watch the collections and that set the
/// hash's expiry.
#[test]
fn elements_of_collections_are_there_once_beside_everything() {
    explore("elements-more", 60, |cast| {
        cast.store(config(16), Eviction::Off);
        let items = cast.random.below(5_000);
        cast.fill(items);
        elements::join(cast, 2, 25);
        elements::join_watched(cast, 25);
        aside::some(cast, 3, &aside::HARMLESS);
    });
}

/// Collections are flushed and expire in a store that evicts nothing: each is there as a whole, or gone.
#[test]
fn collections_are_flushed_as_a_whole() {
    explore("elements-flushed", 40, |cast| {
        cast.store(config(16), Eviction::Off);
        let items = cast.random.below(7_000);
        cast.fill(items);
        elements::join_evicted(cast, 3, 25);
        aside::some(cast, 1, &[aside::Role::Flusher, aside::Role::DatabaseFlusher]);
        aside::some(cast, 3, &aside::HARMLESS);
    });
}

/// The leaves of a list get other labels without a move, while sweeps look for nodes by their labels. A sweep
/// finds a node that was moved, and no element is lost.
#[test]
fn nodes_are_found_by_labels_that_change() {
    explore("relabeled", 60, |cast| {
        cast.store(config(16), Eviction::Off);
        let items = cast.random.below(7_000);
        cast.fill(items);
        elements::join_relabeled(cast, 2, 12);
        aside::some(cast, 1, &[aside::Role::Mover]);
        aside::some(cast, 1, &[aside::Role::Grower, aside::Role::Upkeep, aside::Role::Mover]);
    });
}

/// As above in a store that evicts: the list is there as a whole, or gone.
#[test]
fn a_list_whose_labels_change_is_evicted_as_a_whole() {
    explore("relabeled-evicted", 30, |cast| {
        let mebibytes = 3 + cast.random.below(2);
        cast.store(config(mebibytes), Eviction::All);
        cast.fill(20_000);
        elements::join_relabeled(cast, 2, 12);
        aside::some(cast, 1, &[aside::Role::Mover]);
        aside::some(cast, 2, &aside::MORE);
    });
}

/// Long elements are sent and received while their collections are changed, moved, evicted and flushed.
#[test]
fn what_is_sent_of_a_collection_stays_what_it_was() {
    explore("sent", 40, |cast| {
        let mebibytes = 2 + cast.random.below(3);
        cast.store(config(mebibytes), Eviction::All);
        cast.fill(20_000);
        sent::join(cast, 3, 30);
        aside::some(cast, 1, &[aside::Role::Mover]);
        aside::some(cast, 2, &aside::MORE);
    });
}

/// Threads wait for keys beside growth, flushes, moves and swaps: a thread that writes such a key learns that
/// it is awaited.
#[test]
fn whoever_writes_what_is_awaited_is_told() {
    explore("awaiting", 40, |cast| {
        cast.store(config(16), Eviction::Off);
        let items = 300 + cast.random.below(6_000);
        cast.fill(items);
        let swaps = cast.random.below(2) == 0;
        awaiter::join(cast, 40, swaps);
        aside::some(cast, 2, &[aside::Role::Grower, aside::Role::Upkeep, aside::Role::DatabaseFlusher]);
        aside::some(cast, 1, &[aside::Role::Mover, aside::Role::Transactions, aside::Role::Walker]);
    });
}

/// Collections in a store that evicts, beside everything: each is there as a whole, or gone. (In 2 MiB there
/// is memory for the edit of only one of three threads at a time; the others would wait longer than a batch
/// may.)
#[test]
fn collections_are_evicted_as_a_whole() {
    explore("elements-evicted", 40, |cast| {
        let mebibytes = 3 + cast.random.below(2);
        cast.store(config(mebibytes), Eviction::All);
        cast.fill(20_000);
        elements::join_evicted(cast, 3, 25);
        aside::some(cast, 3, &aside::MORE);
    });
}

/// Several keys are written in one transaction. They are read one by one, by hints, and in a transaction.
#[test]
fn keys_of_a_transaction_change_as_one() {
    explore("together", 60, |cast| {
        cast.store(config(16), Eviction::Off);
        let items = cast.random.below(7_000);
        cast.fill(items);
        together::join(cast, 60);
        aside::some(cast, 2, &aside::KEEPING);
    });
}

/// Two keys are written in one transaction, and read one after the other, the second by a hint. A batch does
/// little else, so that a schedule reaches every place between two steps.
#[test]
fn a_hint_shows_nothing_older_than_what_was_read_before() {
    explore("hinting", 1_000, |cast| {
        cast.store(config(16), Eviction::Off);
        together::join_closely(cast, 200);
    });
}

/// Transactions in a full store, beside other threads and walks: no thread waits long, and no write is
/// refused.
#[test]
fn transactions_of_a_full_store_get_their_memory() {
    explore("full", 50, |cast| {
        cast.store(config(2), Eviction::All);
        cast.fill(20_000);
        for _ in 0..3 {
            together::join_inserts(cast, 15);
        }
        aside::some(cast, 2, &[aside::Role::Walker, aside::Role::Walker, aside::Role::Staller]);
    });
}

/// Writes to a full store beside walks over everything in one batch, as KEYS makes them. A write does not
/// wait for the end of a walk to get memory.
#[test]
fn writes_wait_for_no_walk() {
    explore("walking", 16, |cast| {
        cast.store(config(2), Eviction::All);
        cast.fill(20_000);
        cast.main("writer", |actor| (0..30).for_each(|_| aside::write_soon(actor)));
        aside::one(cast, aside::Role::Keys);
    });
}

/// Watches beside growth and merges: each write sets the watch's flag, and the bucket's watched bit ends with
/// the watch.
#[test]
fn watches_see_every_write_and_end() {
    explore("watching", 100, |cast| {
        cast.store(config(16), Eviction::Off);
        let items = 300 + cast.random.below(7_000);
        cast.fill(items);
        watcher::join(cast, 40);
        aside::some(cast, 2, &[aside::Role::Grower, aside::Role::Upkeep, aside::Role::Flusher]);
    });
}

/// Watches beside all other roles in a store that evicts nothing.
#[test]
fn watches_see_every_write_beside_everything() {
    explore("watching-more", 60, |cast| {
        cast.store(config(16), Eviction::Off);
        let items = 300 + cast.random.below(5_000);
        cast.fill(items);
        watcher::join(cast, 40);
        aside::some(cast, 3, &aside::KEEPING);
    });
}

/// Compaction moves watched items, and eviction removes some. A key whose flag is not set has the value that
/// it had, or is gone.
#[test]
fn watches_see_every_write_where_items_move_and_are_evicted() {
    use aside::Role::{Filler, Mover, Staller, Transactions, Upkeep};
    const RUNS: u64 = 60;
    const ITEMS: u64 = 12_000;
    let done = Rc::new(Cell::new(aside::Compacted::default()));
    let played = explore("watching-evicted", RUNS, |cast| {
        cast.store(config(4), Eviction::All);
        cast.fill(ITEMS);
        cast.spread(ITEMS, 16);
        watcher::join(cast, 40);
        aside::compact(cast, 6, &done);
        aside::one(cast, Filler);
        aside::some(cast, 2, &[Filler, Upkeep, Mover, Staller, Transactions]);
    });
    println!("watching-evicted: {:?}", done.get());
    let aside::Compacted { spans, evictions } = done.get();
    assert!(played < RUNS || spans > RUNS && evictions > RUNS, "nothing is compacted, or evicted");
}
