//! Commands that are begun again: those that waited for the lane, and those that found their keys changed at their end. If that
//! happens again and again, they go on with their keys held ([`held`](super::held)).

use larder_protocol::resp::{Args, HEAD_BYTES_MAX, write_bulk_head};
use larder_store::Key;

use super::held::Held;
use super::job::{Job, STEP_NS_MIN, Step};
use super::moments::KEYS_AT_ONCE;
use crate::core::work::Lane;
pub(crate) use crate::core::work::STEPS_BYTES_MIN;
use crate::redis::call::Call;
use crate::redis::fail::{Done, Fail};
use crate::redis::heap::Heap;
pub(crate) use crate::redis::kept::Again;

/// How often a command may find its keys changed. Then it goes on with its keys held.
pub(super) const TRIES_MAX: u8 = 3;
/// How often it may still find held keys changed, though no client writes to them: a key expires, or an item is evicted. The next
/// time it is done in one step.
pub(super) const HELD_TRIES_MAX: u8 = 3;
/// Bytes of a value that is worked at in one step, if there is no memory to keep the command's words: some 4 ms.
const UNKEPT_BYTES_MAX: u64 = 8 << 20;

/// A command that waits for the lane, and then begins.
#[derive(Debug)]
struct Waiting(Again);

/// Whether a command may work at large values in steps.
pub(crate) enum Leave {
    /// It may not, and is done in one step.
    No,
    /// When others are done: a job waits for that, and this call ends.
    Later,
    /// It may, and has the lane.
    Yes(Again, Lane),
}

impl Again {
    /// Makes a command of one key that can be begun again; `args` are behind the key.
    ///
    /// # Errors
    /// Connections hold as much memory as they may.
    pub fn of(
        call: &mut Call<'_, '_, '_>,
        name: &'static str,
        key: &Key<'_>,
        args: Args<'_>,
    ) -> Result<Again, Fail> {
        let Some((row, _)) = call.shared.rows.find(name.as_bytes()) else { return Err(Fail::SYNTAX) };
        let held = Heap::take(call, 2 * words_bytes(Some(key.bytes()), args))?;
        let (words, count) = words_of(Some(key.bytes()), args);
        let longest = Args::decode(&words, count).longest();
        Ok(Again { row, words, count, longest, tries: call.client.tries, _held: held })
    }

    /// Begins the command again, after some tries with its keys held.
    pub fn run(mut self, call: &mut Call<'_, '_, '_>) -> Done {
        self.tries += 1;
        if self.tries == TRIES_MAX {
            call.go_on_with(Held::of(self));
            return Ok(());
        }
        self.run_as_it_is(call)
    }

    /// Begins the command again without counting a try. It is not tried again for want of memory: the job before it has gone.
    pub fn run_as_it_is(&self, call: &mut Call<'_, '_, '_>) -> Done {
        call.client.tries = self.tries;
        let again = call.cx.guard.ask_again(false);
        let done = call.execute_unseen(self.row, self.args());
        call.cx.guard.ask_again(again);
        call.client.tries = 0;
        done
    }

    /// Whether the command may work at a key for which `is_held` is true. True without a look if it has very many keys.
    pub fn may_work_at(&self, is_held: impl Fn(&[u8]) -> bool) -> bool {
        let args = self.args();
        if args.len() > KEYS_AT_ONCE || self.row.takes_all(args) {
            return true;
        }
        let mut names_one = false;
        self.row.each_key(args, &mut |key| names_one = names_one || is_held(key));
        names_one
    }
}

/// Bytes of a key and the words behind it, at most.
fn words_bytes(key: Option<&[u8]>, args: Args<'_>) -> usize {
    args.encoded().len() + key.map_or(0, |key| key.len() + HEAD_BYTES_MAX + 2)
}

/// Encodes a key and the words behind it; also returns how many words these are.
fn words_of(key: Option<&[u8]>, args: Args<'_>) -> (Vec<u8>, usize) {
    let mut words = Vec::with_capacity(words_bytes(key, args));
    if let Some(key) = key {
        let mut head = [0; HEAD_BYTES_MAX];
        let bytes = write_bulk_head(&mut head, key.len() as u64);
        words.extend_from_slice(&head[..bytes]);
        words.extend_from_slice(key);
        words.extend_from_slice(b"\r\n");
    }
    words.extend_from_slice(args.encoded());
    (words, args.len() + usize::from(key.is_some()))
}

impl Job for Waiting {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if !call.cx.room.work().lane_is_free() {
            call.spend(STEP_NS_MIN);
            return Ok(call.await_lane());
        }
        self.0.run_as_it_is(call)?;
        Ok(Step::Done)
    }

    fn again(&self) -> Option<&Again> {
        Some(&self.0)
    }
}

impl Call<'_, '_, '_> {
    /// Asks whether the command may work at values of so many bytes in steps. `name`: the command's; `key`: its first argument if
    /// that was read ahead, `args` the others.
    ///
    /// # Errors
    /// Connections hold as much memory as they may, and the command would take long in one step.
    pub(crate) fn leave(
        &mut self,
        bytes: u64,
        name: &'static str,
        key: Option<&[u8]>,
        args: Args<'_>,
    ) -> Result<Leave, Fail> {
        let tries = self.client.tries;
        let goes_on = tries < TRIES_MAX + HELD_TRIES_MAX;
        if bytes < STEPS_BYTES_MIN || self.cx.guard.in_transaction() || !goes_on {
            return Ok(Leave::No);
        }
        let Some((row, _)) = self.shared.rows.find(name.as_bytes()) else { return Ok(Leave::No) };
        let room = words_bytes(key, args);
        // A command whose keys are held has the lane already, and does not wait for another.
        let is_held = tries >= TRIES_MAX;
        let lane = if is_held { Some(Lane::kept_by_another()) } else { self.cx.room.work().take_lane() };
        // Twice, since what is written of it is kept beside it. One client of a worker works, and many may wait. If connections
        // hold all they may, a short command is done in one step. `bytes` of a value tell how long that takes, but the least that
        // goes in steps tells nothing: commands on collections pass that, whatever they look through.
        let held = if lane.is_some() { Heap::take(self, 2 * room) } else { Heap::keep(self, 2 * room) };
        let is_short = bytes > STEPS_BYTES_MIN && bytes <= UNKEPT_BYTES_MAX;
        let held = match held {
            Ok(held) => held,
            Err(_) if is_short => return Ok(Leave::No),
            Err(fail) => return Err(fail),
        };
        let (words, count) = words_of(key, args);
        let longest = Args::decode(&words, count).longest();
        let again = Again { row, words, count, longest, tries, _held: held };
        match lane {
            Some(lane) => Ok(Leave::Yes(again, lane)),
            None => {
                self.work(Waiting(again))?;
                Ok(Leave::Later)
            }
        }
    }
}
