//! Executing a command that may run: its keys are short enough, others may be watching, its row says how.

use larder_protocol::resp::Args;

use super::call::{Call, KEY_BYTES_MAX};
use super::fail::{Done, Fail};
use super::introspect;
use super::reply::put_fail;
use super::table::{Command, Run};
use crate::counters::Counter;

impl Call<'_, '_, '_> {
    /// Says why a command was not carried out.
    #[cold]
    pub fn fail(&mut self, fail: &Fail) {
        self.cx.counters.add(Counter::RedisErrors, 1);
        self.cx.shared.redis.errors.count(fail.text());
        put_fail(self.out, fail);
    }

    /// Runs a command that may run; `args` begin behind its name, `words` with it.
    pub fn execute(&mut self, row: &'static Command, args: Args<'_>, words: Args<'_>) -> Done {
        let done = self.execute_unseen(row, args);
        // Afterwards, as Redis shows it: in the database that SELECT has selected.
        if self.cx.shared.redis.topics.monitored() {
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
        if self.cx.shared.redis.events.any() {
            return self.execute_with_events(row, args);
        }
        self.execute_row(row, args)
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
