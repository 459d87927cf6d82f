//! Executes a command that passed its checks: its keys are short enough, monitors and watchers are told, and its function is run.

use larder_protocol::resp::Args;

use crate::core::traffic::{self, Seen};
use crate::redis::call::{Call, KEY_BYTES_MAX, few_keys};
use crate::redis::counters::RedisCounter;
use crate::redis::definition::Function;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
use crate::redis::reply::put_fail;
use crate::redis::row::flag::{AS_ONE, MOMENTS, WRITE};
use crate::redis::row::{Access, Command};
use crate::redis::server::introspect;
use crate::redis::sizes::{KEY_EVENT_BYTES, KEY_HASH_BYTES, KEY_LOOK_BYTES};
use crate::redis::table;

/// Words for whose keys each worker has room.
const MANY_WORDS: usize = 4 << 10;
/// Work to write a sample of a key, and to hash a key.
const SAMPLE_NS: u64 = 100;
const HASH_NS: u64 = 10;

/// Checks that a command of many words has not too many keys, if it looks at them as one.
///
/// # Errors
/// It has too many.
fn few_as_one(row: &Command, args: Args<'_>) -> Done {
    if !row.has(AS_ONE) {
        return Ok(());
    }
    // The target of the result is not one of the keys that it looks at.
    let targets = usize::from(row.access_of(0) == Access::Replace);
    few_keys(row.key_count(args).saturating_sub(targets))
}

impl Call<'_, '_, '_> {
    /// Replies an error, and counts it.
    #[cold]
    pub fn fail(&mut self, fail: &Fail) {
        self.count_error(fail);
        put_fail(self.out, fail);
    }

    /// Counts an error, unless it was counted where it arose.
    #[cold]
    pub fn count_error(&mut self, fail: &Fail) {
        if !fail.is_counted() {
            self.cx.counters.add(RedisCounter::Errors, 1);
            self.cx.shared.errors.count(fail.text());
        }
    }

    /// Runs a command that passed its checks; `args` begin behind its name, `words` with it.
    pub fn execute(&mut self, row: &'static Command, args: Args<'_>, words: Args<'_>) -> Done {
        if self.cx.shared.topics.monitored() {
            return self.execute_shown(row, args, words);
        }
        self.execute_unseen(row, args)
    }

    #[cold]
    fn execute_shown(&mut self, row: &'static Command, args: Args<'_>, words: Args<'_>) -> Done {
        if row.runs_script() {
            // Before the commands that it calls.
            self.show(row, words);
            return self.execute_unseen(row, args);
        }
        let done = self.execute_unseen(row, args);
        // Afterwards, as in Redis: a SELECT is shown in the database that it has selected.
        self.show(row, words);
        done
    }

    /// As [`Call::execute`], but shows no monitor the command.
    pub fn execute_unseen(&mut self, row: &'static Command, args: Args<'_>) -> Done {
        if row.keys.any() && self.cx.shared.traffic.is_wanted() {
            return self.execute_sampled(row, args);
        }
        self.execute_unsampled(row, args)
    }

    /// Runs a command some of whose keys may be sampled. Of a script, its commands are sampled instead; a command that is tried
    /// again was sampled before.
    #[inline(never)]
    fn execute_sampled(&mut self, row: &'static Command, args: Args<'_>) -> Done {
        if args.len() > MANY_WORDS && few_as_one(row, args).is_err() {
            // The command will be refused, and looks at no key.
            return self.execute_unsampled(row, args);
        }
        let counts = !row.runs_script() && self.client.tries == 0;
        let keys = if counts { row.key_count(args) } else { 0 };
        let tap = self.cx.room.tap();
        tap.take_mark();
        let is_sampled = keys > 0 && tap.pass(keys);
        let done = if is_sampled { self.sampled(row, args, keys) } else { self.execute_unsampled(row, args) };
        if tap.take_mark() && !row.runs_script() && !self.comes_again(&done) {
            self.follow_keys(row, args);
        }
        done
    }

    /// Whether a command found no memory and is tried again, while some is on its way: it is sampled then.
    fn comes_again(&self, done: &Done) -> bool {
        done.as_ref().is_err_and(Fail::is_no_memory) && self.cx.guard.memory_comes()
    }

    /// Records the followed keys of a command that named one, or looked at one besides. If a command has several tries, each is
    /// recorded.
    #[cold]
    #[inline(never)]
    fn follow_keys(&mut self, row: &'static Command, args: Args<'_>) {
        let tap = self.cx.room.tap();
        let (mut nth, mut told) = (0, 0);
        row.each_key(args, &mut |key| {
            let key = self.cx.guard.key_in(self.client.db, key);
            if tap.follows(&key) {
                traffic::follow(tap, &mut self.cx.guard, &key, row.access_of(nth).verb());
                told += 1;
            }
            nth += 1;
        });
        self.spend(nth as u64 * HASH_NS + told * SAMPLE_NS);
    }

    /// Runs a command some of whose keys are sampled.
    #[cold]
    #[inline(never)]
    fn sampled(&mut self, row: &'static Command, args: Args<'_>, keys: usize) -> Done {
        let tap = self.cx.room.tap();
        let Some(mut next) = tap.next(keys) else { return self.execute_unsampled(row, args) };
        let (began_us, replied) = (self.cx.host.clock_us(), self.out.len());
        let received = self.client.received.as_ref().map_or(0, |element| element.value_bytes());
        let done = self.execute_unsampled(row, args);
        if self.comes_again(&done) {
            return done;
        }
        let all_ns = self.cx.host.clock_us().saturating_sub(began_us) * 1000;
        let replied = self.out.len().saturating_sub(replied);
        let all_bytes = (row.name.len() + 16 + args.encoded().len()) as u64 + received + replied;
        let (cost_ns, bytes) = (all_ns / keys as u64, all_bytes / keys as u64);
        let (mut nth, mut samples) = (0, 0);
        row.each_key(args, &mut |key| {
            if nth == next {
                let key = self.cx.guard.key_in(self.client.db, key);
                let seen = Seen { verb: row.access_of(nth).verb(), db: self.client.db, cost_ns };
                traffic::sample(tap, &mut self.cx.guard, &key, seen, |_, _| bytes);
                next = tap.next(keys).unwrap_or(usize::MAX);
                samples += 1;
            }
            nth += 1;
        });
        self.spend(samples * SAMPLE_NS);
        done
    }

    fn execute_unsampled(&mut self, row: &'static Command, args: Args<'_>) -> Done {
        if args.longest() > KEY_BYTES_MAX as u64 {
            let mut longest = 0;
            row.each_key(args, &mut |key| longest = longest.max(key.len()));
            if longest > KEY_BYTES_MAX {
                return Err(Fail::KEY_TOO_LONG);
            }
        }
        let tells = self.cx.shared.events.any();
        if args.len() > MANY_WORDS {
            return self.execute_long(row, args, tells);
        }
        self.execute_admitted(row, args, tells)
    }

    /// Runs a command of many words, which may be keys.
    #[cold]
    #[inline(never)]
    fn execute_long(&mut self, row: &'static Command, args: Args<'_>, tells: bool) -> Done {
        few_as_one(row, args)?;
        // EXEC has charged its commands, and a command in moments notes no more keys than there is room for.
        let notes_all = (tells || row.keys.are_many()) && !row.has(MOMENTS);
        if notes_all && !self.cx.guard.in_transaction() {
            // The notes of all its keys while it runs.
            let note_bytes = if row.has(WRITE) { KEY_HASH_BYTES } else { KEY_LOOK_BYTES };
            let bytes = note_bytes + if tells { KEY_EVENT_BYTES } else { 0 };
            let _held = Heap::take(self, args.len() * bytes)?;
            let done = self.execute_admitted(row, args, tells);
            // This frees the notes.
            self.cx.guard.look();
            return done;
        }
        self.execute_admitted(row, args, tells)
    }

    fn execute_admitted(&mut self, row: &'static Command, args: Args<'_>, tells: bool) -> Done {
        if tells { self.execute_with_events(row, args) } else { self.execute_row(row, args) }
    }

    /// Runs a command's function.
    pub fn execute_row(&mut self, row: &'static Command, mut args: Args<'_>) -> Done {
        match table::function(row.id) {
            Function::Key(run) => {
                let key = self.key(args.next().unwrap_or_default());
                let hint = self.cx.guard.prefetch_bucket(&key);
                run(self, &key, &hint, args)
            }
            Function::Args(run) => run(self, args),
            // Of containers only COMMAND may be sent alone.
            Function::Container => introspect::all(self),
        }
    }
}
