//! Commands of many keys that reply for how many of them something holds. They go through their keys in moments of some
//! thousands, between which others are served.
//!
//! ```text
//! DEL k1 … k4096 k4097 … ─► one moment │ one moment │ …  ─► the sum of all
//! ```
//!
//! A command of at most [`KEYS_AT_ONCE`] keys is one moment, and so is any in EXEC. Each moment publishes its own keyspace
//! events.

use larder_protocol::resp::Args;

use crate::core::batch::BATCH_KEYS;
use crate::redis::call::Call;
use crate::redis::fail::{Done, Fail};
use crate::redis::row::Command;
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::Kept;

/// Keys of one moment, at most; each worker has room for so many.
pub(crate) const KEYS_AT_ONCE: usize = 4 << 10;
/// Work to look for a key and to note its state.
const KEY_NS: u64 = 200;
/// How often keys are looked at that writes disturb; then they are taken.
const LOOKS_MAX: usize = 3;

/// Counts, as one moment, for how many of some keys something holds, or to how many it was done.
pub(crate) type CountSome = fn(&mut Call<'_, '_, '_>, Args<'_>) -> usize;

/// Work for so many keys.
pub(crate) fn keys_ns(keys: usize) -> u64 {
    keys as u64 * KEY_NS
}

/// A command that has gone through some of its keys.
#[derive(Debug)]
struct Moments {
    row: &'static Command,
    count: CountSome,
    found: usize,
    kept: Kept,
}

/// Takes the first of some keys out.
fn take<'a>(args: &mut Args<'a>, keys: usize) -> Args<'a> {
    let some = Args::rest(args.encoded(), keys);
    args.nth(keys - 1);
    some
}

impl Call<'_, '_, '_> {
    /// Replies the sum of `count` over all keys. `name`: the command's.
    pub(crate) fn count_in_moments(
        &mut self,
        name: &'static str,
        mut args: Args<'_>,
        count: CountSome,
    ) -> Done {
        let Some((row, _)) = self.shared.rows.find(name.as_bytes()) else { return Ok(()) };
        if args.len() <= KEYS_AT_ONCE || self.cx.guard.in_transaction() {
            let found = self.moment(row, args, count);
            if args.len() > BATCH_KEYS {
                self.spend(keys_ns(args.len()));
            }
            return self.length(found);
        }
        let some = take(&mut args, self.keys_of_a_step());
        // Kept before anything is done to the first keys.
        let kept = Kept::new(self, args)?;
        let found = self.moment(row, some, count);
        self.spend(keys_ns(some.len()));
        self.go_on_with(Moments { row, count, found, kept });
        Ok(())
    }

    /// How many keys the rest of the slice allows.
    pub(crate) fn keys_of_a_step(&self) -> usize {
        ((self.step_ns() / KEY_NS) as usize).clamp(BATCH_KEYS, KEYS_AT_ONCE)
    }

    /// Does one moment, and publishes its events.
    fn moment(&mut self, row: &'static Command, args: Args<'_>, count: CountSome) -> usize {
        let mut found = 0;
        // The closure never fails.
        let _ = self.tell_of(row, args, |call| {
            found = count(call, args);
            Ok(())
        });
        found
    }

    /// Reads several keys as of one moment: `read` notes each key before it reads it, and is called again if one has changed
    /// meanwhile.
    pub(crate) fn look_as_one<'a, T>(
        &mut self,
        args: Args<'a>,
        read: impl Fn(&mut Self, Args<'a>) -> T,
    ) -> T {
        for _ in 0..LOOKS_MAX {
            self.cx.guard.look();
            let found = read(self, args);
            if args.len() == 1 || self.cx.guard.looked_as_one() {
                return found;
            }
        }
        self.cx.guard.look();
        self.as_one_in(args, |call| read(call, args))
    }
}

impl Job for Moments {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let keys = self.kept.left().min(call.keys_of_a_step());
        self.found += self.kept.take(|words| call.moment(self.row, take(words, keys), self.count));
        call.spend(keys_ns(keys));
        if self.kept.left() > 0 {
            return Ok(Step::More);
        }
        call.length(self.found)?;
        Ok(Step::Done)
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}
