//! MULTI, EXEC, DISCARD, WATCH, UNWATCH; and how a command of several keys is one step.
//!
//! ```text
//! MULTI ─► commands are checked and queued ─► EXEC: take the keys, look at the watches, run them all
//! ```
//!
//! EXEC takes the home buckets of all keys that the queued commands name and of all watched keys, in one order; for commands that
//! concern all keys but name none it takes the store as a whole. Only then it looks whether a watched key was touched. What takes
//! longer than others should wait is done in steps, with all of these keys held from the first to the last (`steps.rs`). Before
//! EXEC with scripts takes its keys, the garbage of others in the worker's Lua state is collected ([`Collecting`]).

mod steps;
mod weight;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_protocol::resp::Args;
use larder_store::{FLUSHES_TOGETHER_MAX, Key, Lookup, Touched};

use super::call::{Call, ELEMENT_BYTES, KEY_BYTES_MAX, REPLY_BYTES_FREE, late};
use super::connection;
use super::definition::Definition;
use super::fail::{Done, Fail};
use super::reply::{put_null_array, put_simple};
use super::row::flag::{
    ADMIN, ALLOW_BUSY, AT_ONCE, EMPTIES, ENDS_LISTENING, FAST, LOADING, NO_AUTH, NO_MULTI, NOSCRIPT,
    PUBLISHES, READONLY, REPLIES_A_PAGE, REPLIES_A_WORD, RUNS_QUEUE, SETTLES, SKIP_SLOWLOG, STALE,
    SUBSCRIBES, WEIGHTLESS,
};
use super::row::{ALL_KEYS, Access, Command, NO_KEYS, Weighs};
use crate::core::access::Snapshot;
use crate::core::calls::RowId;
use crate::core::hold::LOOK_MS;
use crate::core::output::Mark;
use crate::core::work::{CLEANING_NS, copying_ns};
use crate::redis::heap::Heap;
use crate::redis::held::Held;
use crate::redis::permissions::Looked;
use crate::redis::queue::{Queue, Queued, Transaction, Watched, Watches, selected};
use crate::redis::scripts::{self, Collecting};
use crate::redis::server::commandlog::{Measured, request_bytes};
use crate::redis::sizes::{KEY_EVENT_BYTES, KEY_HASH_BYTES, item_bytes};
use crate::redis::steps::job::{Job, Step};
use weight::{EXEC_NS_MAX, Scale, TOO_LONG, told_ns, words_ns};

/// All queues together take at most one part in so many of the memory limit.
const QUEUE_SHARE: u64 = 16;
/// Queues of up to so many bytes may take as much again: those that fill the share leave them room.
const SHORT_QUEUE_BYTES: u64 = 4 << 10;
/// Keys that one client watches at most.
pub(crate) const WATCHED_KEYS_MAX: usize = 16 << 10;
/// Items are evicted for watches each time so many have come.
const WATCHES_AT_ONCE: usize = 1 << 10;
/// A queue that is not short is run in one step, too, if it takes no longer.
const ONE_STEP_NS: u64 = 4_000_000;
/// Work to estimate a command's work: its key is looked at.
const RECKON_NS: u64 = 150;

const ANY_TIME: u64 = LOADING | STALE | FAST | NOSCRIPT | ALLOW_BUSY | WEIGHTLESS;

pub(crate) const ROWS: &[Definition] = &[
    Command::args("multi", 1, ANY_TIME, NO_KEYS, multi).with(AT_ONCE).doc(
        "1.2.0",
        "",
        "Queues what follows until EXEC.",
    ),
    Command::args("exec", 1, LOADING | STALE | NOSCRIPT | SKIP_SLOWLOG | WEIGHTLESS, NO_KEYS, exec)
        .with(AT_ONCE | RUNS_QUEUE | ENDS_LISTENING | PUBLISHES)
        .doc("1.2.0", "", "Runs what was queued as one, unless a watched key was touched."),
    Command::args("discard", 1, ANY_TIME, NO_KEYS, discard).with(AT_ONCE).doc(
        "2.0.0",
        "",
        "Forgets what was queued.",
    ),
    Command::args("watch", -2, ANY_TIME | NO_MULTI, ALL_KEYS, watch)
        .access(&[Access::Look])
        .with(AT_ONCE)
        .doc("2.2.0", "key [key ...]", "Has the next EXEC do nothing if one of the keys is touched before."),
    Command::args("unwatch", 1, ANY_TIME, NO_KEYS, unwatch).doc("2.2.0", "", "Forgets all watched keys."),
];

impl Queue {
    /// Makes an empty queue.
    fn new(call: &Call<'_, '_, '_>) -> Queue {
        Queue {
            commands: Vec::new(),
            bytes: Vec::new(),
            spoilt: false,
            logs_in: false,
            in_steps: true,
            uses_lua: false,
            longest_item: 0,
            items_bytes: 0,
            user: call.client.standing.snapshot(),
            held: Held::new(&call.shared.queued_bytes, call.cx.guard.store()),
        }
    }

    /// Work of all commands beside what is weighed. It stops counting beyond what one EXEC may do.
    fn reckon(&self, call: &mut Call<'_, '_, '_>) -> u64 {
        let (mut ns, mut db, mut reckoned) = (0, call.client.db, 0);
        for queued in &self.commands {
            let (row, args) = (queued.row, queued.args(&self.bytes));
            reckoned += 1;
            ns += words_ns(row, args);
            if ns > EXEC_NS_MAX {
                break;
            }
            ns += told_ns(call, row, db, args);
            db = selected(row, args).unwrap_or(db);
        }
        call.spend(reckoned * RECKON_NS);
        ns
    }
}

impl Call<'_, '_, '_> {
    /// Queues a command that has to wait for EXEC; false if it is to be run now.
    pub fn queue(&mut self, row: &'static Command, args: Args<'_>, words: Args<'_>) -> Result<bool, Fail> {
        if row.has(AT_ONCE) {
            return Ok(false);
        }
        let (touched, id) = (self.client.transaction.touched(), self.row);
        let needs_memory = self.client.transaction.is_open() && scripts::needs_memory(self, row, args);
        if needs_memory && !self.cx.guard.has_room(item_bytes(args)) {
            return Err(Fail::OUT_OF_MEMORY);
        }
        let Some(queue) = &mut self.client.transaction.queue else { return Ok(false) };
        if row.has(NO_MULTI) {
            return Err(Fail::of("ERR Command not allowed inside a transaction"));
        }
        if !queue.spoilt && !touched {
            let (at, bytes) = (queue.bytes.len(), words.encoded());
            let room = queue.bytes.len() + bytes.len() + (queue.commands.len() + 1) * size_of::<Queued>();
            let room = room.next_power_of_two() as u64;
            let share = self.cx.guard.store().memory_bytes() / QUEUE_SHARE;
            if !queue.held.raise(room, if room <= SHORT_QUEUE_BYTES { 2 * share } else { share }) {
                queue.spoilt = true;
                return Err(Fail::OUT_OF_MEMORY);
            }
            queue.bytes.extend_from_slice(bytes);
            queue.logs_in = queue.logs_in || connection::logs_in(row, args);
            queue.in_steps &=
                !row.has(ADMIN | NO_AUTH | EMPTIES) && !row.runs_script() && !row.takes_all(args);
            queue.uses_lua = queue.uses_lua || scripts::uses_lua(row);
            let name = words.len() - args.len();
            // A request that was decoded has a name, so that its longest word is not 0.
            let longest = match words.longest() {
                0 => Args::decode(bytes, words.len()).longest(),
                longest => longest,
            };
            let queued = Queued {
                row,
                id,
                at,
                end: queue.bytes.len(),
                words: words.len(),
                name,
                longest,
                item_bytes: item_bytes(args),
                needs_memory,
            };
            if let Some(bytes) = queued.wanted_bytes() {
                queue.longest_item = queue.longest_item.max(bytes);
                queue.items_bytes += if row.elements { bytes } else { queued.item_bytes.max(bytes) };
            }
            queue.commands.push(queued);
        }
        put_simple(self.out, "QUEUED");
        Ok(true)
    }

    /// Checks that there is room for the longest of EXEC's writes. Whether there is for all of them, the commands find out.
    ///
    /// # Errors
    /// There is none, and nothing will be run.
    pub fn admit_exec(&mut self) -> Done {
        let queued = self.client.transaction.queue.iter().filter(|queue| !queue.spoilt);
        let needing = queued.flat_map(|queue| &queue.commands).filter(|queued| queued.needs_memory);
        let Some(longest) = needing.map(|queued| queued.item_bytes).max() else { return Ok(()) };
        let starved = self.shared.starved_bytes.load(Relaxed) > 0;
        if starved || !self.cx.guard.has_room(longest) { Err(Fail::OUT_OF_MEMORY) } else { Ok(()) }
    }

    /// Spoils the transaction for a command that was refused before it could run or be queued. Returns the error for the client,
    /// which EXEC words in its own way.
    #[cold]
    pub fn refuse(&mut self, row: Option<&Command>, fail: Fail) -> Fail {
        if row.is_some_and(|row| row.has(RUNS_QUEUE)) {
            self.client.transaction.clear();
            let why = fail.text().strip_prefix("ERR ").unwrap_or(fail.text());
            return Fail::with(format!("EXECABORT Transaction discarded because of: {why}"));
        }
        self.client.transaction.spoil();
        fail
    }

    /// Runs `f` as one step for all observers of these keys.
    pub fn as_one<'k, R>(
        &mut self,
        keys: impl IntoIterator<Item = Key<'k>>,
        f: impl FnOnce(&mut Self) -> R,
    ) -> R {
        if self.cx.guard.in_transaction() {
            return f(self);
        }
        self.cx.guard.begin(keys);
        let done = f(self);
        self.cx.guard.finish();
        done
    }

    /// As [`Call::as_one`], for keys of these names in the selected database.
    pub fn as_one_in<'k, R>(
        &mut self,
        names: impl IntoIterator<Item = &'k [u8]>,
        f: impl FnOnce(&mut Self) -> R,
    ) -> R {
        if self.cx.guard.in_transaction() {
            return f(self);
        }
        self.cx.guard.begin_in(self.client.db, names);
        let done = f(self);
        self.cx.guard.finish();
        done
    }

    /// Runs `f` as one step for all observers of the keys with these names. If `f` returns the bytes that its reply needs, it has
    /// done nothing, and is run again when there is room.
    ///
    /// # Errors
    /// There is no room, or the error of `f`.
    pub fn as_one_with_room<'k>(
        &mut self,
        names: impl IntoIterator<Item = &'k [u8]> + Clone,
        mut f: impl FnMut(&mut Self) -> Result<Option<usize>, Fail>,
    ) -> Done {
        while let Some(bytes) = self.as_one_in(names.clone(), &mut f)? {
            self.make_room(bytes)?;
        }
        Ok(())
    }
}

fn multi(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    if call.client.transaction.is_open() {
        return Err(Fail::of("ERR MULTI calls can not be nested"));
    }
    call.client.transaction.queue = Some(Box::new(Queue::new(call)));
    call.ok()
}

fn discard(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    if !call.client.transaction.is_open() {
        return Err(Fail::of("ERR DISCARD without MULTI"));
    }
    call.client.transaction.clear();
    call.cx.guard.end_watches();
    call.ok()
}

fn watch(call: &mut Call<'_, '_, '_>, args: Args<'_>) -> Done {
    if call.client.transaction.is_open() {
        return Err(Fail::of("ERR WATCH inside MULTI is not allowed"));
    }
    if call.client.transaction.touched() {
        return call.ok();
    }
    let db = call.client.db;
    let store = call.cx.guard.store();
    let watches = call.client.transaction.watches.get_or_insert_with(|| {
        Box::new(Watches { store: Arc::clone(store), keys: Vec::new(), touched: Touched::default() })
    });
    for name in args {
        let there = if watches.keys.len() < WATCHED_KEYS_MAX && name.len() <= KEY_BYTES_MAX {
            let key = call.cx.guard.key_in(db, name);
            call.cx.guard.watch(db, &key, &watches.touched)
        } else {
            None
        };
        let Some(there) = there else { return Err(Fail::of("ERR too many watched keys")) };
        if watches.keys.len().is_multiple_of(WATCHES_AT_ONCE) {
            call.cx.guard.give_way();
        }
        watches.keys.push(Watched { db, key: name.into(), there });
    }
    call.ok()
}

fn unwatch(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    // Inside EXEC the watches were looked at before, and go with it.
    if !call.cx.guard.in_transaction() {
        call.client.transaction.watches = None;
        call.cx.guard.end_watches();
    }
    call.ok()
}

const NO_ROOM: Fail =
    Fail::of("EXECABORT Transaction discarded because of: connections hold as much memory as they may");

fn exec(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    exec_since(call, None)
}

/// Serves EXEC. `since_us`: since when it has waited, by the host's clock, if it has.
fn exec_since(call: &mut Call<'_, '_, '_>, since_us: Option<u64>) -> Done {
    let Transaction { queue, watches } = std::mem::take(&mut call.client.transaction);
    let Some(queue) = queue else {
        call.client.transaction.watches = watches;
        return Err(Fail::of("ERR EXEC without MULTI"));
    };
    if queue.spoilt {
        return Err(Fail::of("EXECABORT Transaction discarded because of previous errors."));
    }
    if queue.uses_lua
        && let Some(collecting) = Collecting::before_exec(call, since_us)
    {
        call.client.transaction = Transaction { queue: Some(queue), watches };
        call.go_on_with(Waiting { collecting: Some(collecting), ..Waiting::new(call, since_us) });
        return Ok(());
    }
    let ns = if queue.is_long() { queue.reckon(call) } else { 0 };
    if queue.in_steps && ns > ONE_STEP_NS {
        return steps::begin(call, queue, watches);
    }
    if queue.in_steps && !queue.is_looked_through() && call.cx.shared.pause.holds.any() {
        call.client.transaction = Transaction { queue: Some(queue), watches };
        call.go_on_with(Waiting::new(call, since_us));
        return Ok(());
    }
    if ns > EXEC_NS_MAX {
        return Err(TOO_LONG);
    }
    // The charge for the notes of all keys.
    let words: usize = queue.commands.iter().map(|queued| queued.words).sum();
    let watched = watches.as_ref().map_or(0, |watches| watches.keys.len());
    let tells = call.cx.shared.events.any();
    let note_bytes = KEY_HASH_BYTES + if tells { KEY_EVENT_BYTES } else { 0 };
    let bytes = (words + watched) * note_bytes + Scale::bytes(queue.commands.len(), queue.bytes.len());
    let Ok(_held) = Heap::take(call, bytes) else { return Err(NO_ROOM) };
    make_room_for(call, &queue, 0..queue.commands.len());
    call.client.executes = true;
    let done = run(call, queue, watches, ns);
    call.client.executes = false;
    call.out.end_reserve();
    done
}

/// Takes the keys, or the store, and runs all commands. `ns`: their work beside what is weighed.
fn run(call: &mut Call<'_, '_, '_>, queue: Box<Queue>, watches: Option<Box<Watches>>, ns: u64) -> Done {
    if queue.commands().any(|(row, args)| row.takes_all(args)) {
        call.cx.guard.begin_whole();
    } else {
        let watched = || watches.iter().flat_map(|watches| &watches.keys);
        call.cx.guard.begin_each(|take| {
            queue.each_key(call.client.db, take);
            watched().for_each(|watched| take(watched.db, &watched.key));
        });
    }
    let flushes = queue.commands().filter(|(row, _)| row.has(EMPTIES)).count();
    if flushes > FLUSHES_TOGETHER_MAX {
        call.cx.guard.finish();
        return Err(TOO_LONG);
    }
    if flushes > 0 && !call.cx.guard.store().may_flush(flushes) {
        call.cx.guard.finish();
        call.client.transaction = Transaction { queue: Some(queue), watches };
        return call.work(Waiting { flushes, ..Waiting::new(call, None) });
    }
    let mut scale = Scale::new(call, ns);
    let judged = queue.commands().try_for_each(|(row, args)| {
        scale.add(call, row, args);
        scale.judge()
    });
    if let Err(fail) = judged {
        call.cx.guard.finish();
        return Err(fail);
    }
    if call.looks_too_long(&queue) {
        call.cx.guard.finish();
        return Err(TOO_LONG);
    }
    if watches.as_ref().is_some_and(|watches| is_touched(call, watches)) {
        if !call.client.replies.is_silent() {
            put_null_array(call.out, call.client.resp3);
        }
    } else {
        let mark = call.out.mark();
        call.array(queue.commands.len());
        if call.client.replies.is_silent() {
            call.out.rewind(mark);
        }
        let began_ns = call.cx.room.work().done_ns();
        let mut looked = Looked::default();
        call.client.logins.skip_logins(false);
        for queued in &queue.commands {
            let args = queued.words(&queue.bytes).1;
            let permitted = call.permit_changed(queued, &queue.user, args, &mut looked);
            run_queued(call, queued, &queue, began_ns, permitted);
        }
        call.close_noted();
    }
    call.cx.guard.finish();
    drop(watches);
    call.cx.guard.end_watches();
    Ok(())
}

/// EXEC that waits before it begins. With scripts it waits until the garbage in the worker's Lua state is collected; if clients
/// were paused meanwhile, until the pause is over; until no keys are held, since it does not look whether they are its own; and
/// with flushes, until what very many flushes before them left is cleaned up.
#[derive(Debug)]
struct Waiting {
    flushes: usize,
    collecting: Option<Collecting>,
    /// Since when it has waited, by the host's clock.
    since_us: u64,
    /// Clients were paused meanwhile: it waits as if it had not been read.
    is_paused: bool,
}

impl Waiting {
    fn new(call: &Call<'_, '_, '_>, since_us: Option<u64>) -> Waiting {
        let since_us = since_us.unwrap_or_else(|| call.cx.host.clock_us());
        Waiting { flushes: 0, collecting: None, since_us, is_paused: false }
    }
}

impl Job for Waiting {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if let Some(collecting) = &mut self.collecting {
            if let Some(step) = collecting.step(call) {
                return Ok(step);
            }
            self.collecting = None;
        }
        let paused_ms = call.paused_ms(|call| call.client.transaction.changes());
        self.is_paused = paused_ms.is_some();
        if let Some(ms) = paused_ms {
            return Ok(Step::Sleep(ms));
        }
        if call.cx.shared.pause.holds.any() {
            call.cx.shared.pause.holds.note_waiter();
            return Ok(Step::Await(Some(LOOK_MS)));
        }
        let until_ns = call.step_ns();
        let mut spent_ns = 0;
        while self.flushes > 0 && !call.cx.guard.store().may_flush(self.flushes) {
            if spent_ns >= until_ns {
                return Ok(Step::More);
            }
            call.cx.guard.maintain();
            call.spend(CLEANING_NS);
            spent_ns += CLEANING_NS;
        }
        let done = exec_since(call, Some(self.since_us));
        call.client.show_transaction();
        done.map(|()| Step::Done)
    }

    /// EXEC is carried out even if its client has gone, unless a pause keeps it waiting, as it would any request.
    fn must_end(&self) -> bool {
        !self.is_paused
    }

    fn asks_itself(&self) -> bool {
        true
    }
}

/// Replies of up to so many bytes are sent whatever else EXEC has to send.
const SHORT_REPLY_BYTES: u64 = 64;
/// Bytes of a reply of a page.
const PAGE_BYTES: usize = 64 << 10;

/// Makes room for the replies of queued commands before their keys are taken, while items can be evicted: by the present lengths
/// of strings, and for collections by as many elements as commands ask for, up to what connections may still hold. A reply that
/// finds no room is an error in its place.
fn make_room_for(call: &mut Call<'_, '_, '_>, queue: &Queue, some: Range<usize>) {
    let commands = &queue.commands[some.clone()];
    let words: usize = commands.iter().map(|queued| queued.words).sum();
    let elements = commands.iter().any(|queued| queued.row.elements);
    let asked = commands.iter().map(|queued| queued.end - queued.at).sum();
    if !elements && (words * ELEMENT_BYTES + asked) as u64 <= REPLY_BYTES_FREE {
        return;
    }
    let unknown = call.reply_bytes_max() as usize;
    let store = call.cx.guard.store();
    // The rest is held by others.
    let most = store.held_bytes_max().saturating_sub(store.held_bytes()) as usize;
    let short = commands.len() * SHORT_REPLY_BYTES as usize;
    let most = most.saturating_sub(short);
    let mut bytes: usize = asked;
    for row in commands.iter().map(|queued| queued.row) {
        if !row.keys.any() && !row.has(FAST | REPLIES_A_WORD) {
            // The length of the reply is not known.
            bytes += if row.has(REPLIES_A_PAGE) { PAGE_BYTES } else { unknown };
        }
    }
    queue.each_key_of(some, call.client.db, &mut |row, db, key| {
        if row.elements || bytes >= most {
            return;
        }
        let key = call.cx.guard.key_in(db, key);
        let value = call.cx.guard.peek(&key).hit().map_or(0, |item| item.value_bytes());
        bytes += (value as usize).min(ELEMENT_BYTES);
    });
    if elements {
        let mut scale = Scale::new(call, 0);
        // Messages to subscribers take no room in the reply. A command that sends some looks up its subscribers when it is
        // weighed, which is not done twice.
        let tells = |queued: &Queued| matches!(queued.row.weighs, Weighs::Topics | Weighs::Shard);
        let judged = commands.iter().filter(|queued| !tells(queued)).try_for_each(|queued| {
            scale.add(call, queued.row, queued.words(&queue.bytes).1);
            scale.judge()
        });
        if judged.is_err() {
            // EXEC will be refused.
            return;
        }
        bytes = bytes.saturating_add(scale.told_bytes() as usize);
    }
    // If there is no room, each command that needs some is refused.
    let _ = call.reserve_room(bytes.min(most) + short);
}

/// A queued command that was begun.
#[derive(Debug)]
struct AtWork {
    /// Where its reply begins: the mark, the output's own bytes, and its bytes in all.
    mark: Mark,
    own_bytes: u64,
    replied: u64,
    /// There is room for a long reply.
    may: bool,
    /// The work that it has spent. For long replies that includes the copying.
    spent_ns: u64,
    /// How long it took so far, if that is measured.
    took_us: Option<u64>,
}

/// Runs a command of EXEC. `began_ns`: the work done when EXEC began.
fn run_queued(call: &mut Call<'_, '_, '_>, queued: &Queued, queue: &Queue, began_ns: u64, permitted: Done) {
    let (at_work, done) = begin_queued(call, queued, queue, began_ns, permitted);
    end_queued(call, queued, queue, at_work, done);
}

/// Begins a queued command. Outside of a transaction it may leave a job, which is still to be done.
fn begin_queued(
    call: &mut Call<'_, '_, '_>,
    queued: &Queued,
    queue: &Queue,
    began_ns: u64,
    permitted: Done,
) -> (AtWork, Done) {
    let (words, args) = queued.words(&queue.bytes);
    if queued.row.has(ENDS_LISTENING) {
        keep_deliveries(call);
    }
    let (mark, own_bytes, replied) = (call.out.mark(), call.out.own_bytes(), call.out.len());
    let done_ns = call.cx.room.work().done_ns();
    let may = call.may_reply_more();
    let slept_ms = call.flow.sleep_ms();
    let began_us = call.measures(queued.row).then(|| call.cx.host.clock_us());
    // Commands that others learn of, or that later ones rely on, are run however long EXEC has worked.
    let (row, settles) = (queued.row, queued.row.changes() || queued.row.has(SETTLES));
    let looks = !settles && (row.has(READONLY) || !row.has(FAST));
    let done = if let Err(fail) = permitted {
        Err(fail)
    } else if !may && queued.row.has(READONLY) {
        Err(Fail::HELD)
    } else if looks && call.cx.room.work().done_ns().saturating_sub(began_ns) > EXEC_NS_MAX {
        Err(Fail::LOOKED_ENOUGH)
    } else {
        call.client.executes_from_ns = began_ns;
        // The row is that of the queued command, so that a script's failures are counted for it.
        let exec = std::mem::replace(&mut call.row, queued.id);
        let done = call.execute(queued.row, args, words);
        call.row = exec;
        done
    };
    let spent_ns = call.cx.room.work().done_ns().saturating_sub(done_ns);
    let took_us = began_us.map(|began_us| {
        let slept_us = (call.flow.sleep_ms() - slept_ms) * 1000;
        call.cx.host.clock_us().saturating_sub(began_us) + slept_us
    });
    (AtWork { mark, own_bytes, replied, may, spent_ns, took_us }, done)
}

/// Ends a queued command: counts and notes it, and drops its reply if CLIENT REPLY says so.
fn end_queued(call: &mut Call<'_, '_, '_>, queued: &Queued, queue: &Queue, at_work: AtWork, mut done: Done) {
    let words = queued.words(&queue.bytes).0;
    let AtWork { mark, own_bytes, replied, may, spent_ns, took_us } = at_work;
    let reply_ns = copying_ns(call.out.own_bytes().saturating_sub(own_bytes));
    call.spend(reply_ns.saturating_sub(spent_ns));
    if !may && call.out.own_bytes() > own_bytes + SHORT_REPLY_BYTES && done.is_ok() {
        // The command is done, but its reply finds no room.
        call.out.rewind(mark);
        done = Err(Fail::HELD);
    }
    let reply_bytes = call.out.len().saturating_sub(replied);
    call.note(queued.row, words, Measured { took_us, request_bytes: request_bytes(words), reply_bytes });
    if let Some(id) = queued.id {
        call.cx.counters.rows.called(id, 1);
        if let Some(took_us) = took_us {
            call.cx.counters.rows.took(id, 1, took_us);
        }
        if let Err(fail) = &done {
            fail.count(&call.cx.counters.rows, id);
        }
    }
    let told = done.is_ok() && queued.row.has(SUBSCRIBES);
    if let Err(fail) = done {
        call.fail(&fail);
    }
    if call.client.replies.is_silent() && !told {
        call.out.rewind(mark);
    }
}

impl Call<'_, '_, '_> {
    /// Checks that a queued command may still run, if the client's user or its rules changed since MULTI, or in this EXEC.
    fn permit_changed(
        &mut self,
        queued: &Queued,
        then: &Snapshot,
        args: Args<'_>,
        looked: &mut Looked,
    ) -> Done {
        let standing = &self.client.standing;
        if standing.is_free() || standing.is_as(then) {
            return Ok(());
        }
        self.permit_queued(queued.row, queued.id.unwrap_or(RowId::MAX), args, looked)
    }

    /// Whether the rules have changed since MULTI, and checking all that was queued takes longer than others should wait.
    fn looks_too_long(&mut self, queue: &Queue) -> bool {
        let standing = &self.client.standing;
        if standing.is_free() || standing.is_as(&queue.user) {
            return false;
        }
        let mut looked = Looked::default();
        let too_long = queue.commands.iter().any(|queued| {
            let id = queued.id.unwrap_or(RowId::MAX);
            !self.looks_at_queued(queued.row, id, queued.words(&queue.bytes).1, &mut looked)
        });
        self.spend(looked.ns);
        too_long
    }
}

/// Keeps messages that wait for the client until after EXEC: the next command may end its subscriptions.
fn keep_deliveries(call: &mut Call<'_, '_, '_>) {
    let Some(subscriptions) = &call.client.subscriptions else { return };
    let late = late(&mut call.client.late, call.out);
    for delivery in call.cx.host.fetch(call.client.facts.place, call.client.facts.id) {
        subscriptions.deliver(call.client.resp3, &delivery.message, late);
    }
}

/// Whether a watched key was written, or was there and has gone by itself.
fn is_touched(call: &mut Call<'_, '_, '_>, watches: &Watches) -> bool {
    watches.touched.load(Relaxed) || watches.keys.iter().any(|watched| has_gone(call, watched))
}

/// Whether a watched key was there, and is not any more.
fn has_gone(call: &mut Call<'_, '_, '_>, watched: &Watched) -> bool {
    let key = call.cx.guard.key_in(watched.db, &watched.key);
    watched.there && !matches!(call.cx.guard.peek(&key), Lookup::Hit(_))
}
