//! Executing a command that may run: its keys are short enough, others may be watching, its row says how.

use larder_protocol::resp::Args;

use crate::core::counters::Counter;
use crate::redis::call::{Call, KEY_BYTES_MAX};
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::put_fail;
use crate::redis::server::introspect;
use crate::redis::strings::rewrite::Heap;
use crate::redis::table::flag::{MOMENTS, WRITE};
use crate::redis::table::{Command, Run};

/// For fewer keys each worker has room.
const MANY_WORDS: usize = 4 << 10;
/// What the store notes of a key that is written with others as one: its hash, and its bucket.
pub(crate) const KEY_HASH_BYTES: usize = 16;
/// And of one that is looked at with others as one: its hash, and what its bucket was like.
const KEY_LOOK_BYTES: usize = 32;
/// What is noted of a key while keyspace events are wanted: it, and what it was like.
pub(crate) const KEY_EVENT_BYTES: usize = 72;

impl Call<'_, '_, '_> {
    /// Says why a command was not carried out.
    #[cold]
    pub fn fail(&mut self, fail: &Fail) {
        self.cx.counters.add(Counter::RedisErrors, 1);
        self.cx.shared.errors.count(fail.text());
        put_fail(self.out, fail);
    }

    /// Runs a command that may run; `args` begin behind its name, `words` with it.
    pub fn execute(&mut self, row: &'static Command, args: Args<'_>, words: Args<'_>) -> Done {
        let done = self.execute_unseen(row, args);
        // Afterwards, as Redis shows it: in the database that SELECT has selected.
        if self.cx.shared.topics.monitored() {
            self.show(row, words);
        }
        done
    }

    /// As [`Call::execute`], and shows it to nobody.
    pub fn execute_unseen(&mut self, row: &'static Command, args: Args<'_>) -> Done {
        if args.longest() > KEY_BYTES_MAX as u64 {
            let mut longest = 0;
            row.each_key(args, &mut |key| longest = longest.max(key.len()));
            if longest > KEY_BYTES_MAX {
                return Err(Fail::KEY_TOO_LONG);
            }
        }
        let tells = self.cx.shared.events.any();
        // What EXEC runs it has charged, and what is done in moments notes no more keys than there is room for.
        let notes_all = (tells || row.keys.are_many()) && !row.has(MOMENTS);
        if args.len() > MANY_WORDS && notes_all && !self.cx.guard.in_transaction() {
            // What is noted of each of many keys, while it runs.
            let note_bytes = if row.has(WRITE) { KEY_HASH_BYTES } else { KEY_LOOK_BYTES };
            let bytes = note_bytes + if tells { KEY_EVENT_BYTES } else { 0 };
            let _held = Heap::take(self, args.len() * bytes)?;
            let done = self.execute_admitted(row, args, tells);
            // What was noted is forgotten.
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
        match row.run {
            Run::Key(run) => {
                let key = self.key(args.next().unwrap_or_default());
                let hint = self.cx.guard.prefetch_bucket(&key);
                (run.0)(self, &key, &hint, args)
            }
            Run::Args(run) => (run.0)(self, args),
            // Only COMMAND may stand alone.
            Run::Container(_) => introspect::all(self),
        }
    }
}
