//! Commands that are begun again: those that wait until no other works at large values, and those that found what they work at
//! changed when they were done. Where that happens again and again they go on with their keys held ([`held`](super::held)).

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

/// How often what a command works at may change meanwhile; then it goes on with its keys held, …
pub(super) const TRIES_MAX: u8 = 3;
/// … and may find it changed so often all the same, though no client writes to it: a key expires, an item gives way. The next
/// time it is done in one step.
pub(super) const HELD_TRIES_MAX: u8 = 3;
/// Bytes of a value that is worked at in one step where there is no memory to keep a command's words: some 4 ms.
const UNKEPT_BYTES_MAX: u64 = 8 << 20;

/// Waits for the lane, and begins then.
#[derive(Debug)]
struct Waiting(Again);

/// Whether a command may hold on to large values from one turn to the next.
pub(crate) enum Leave {
    /// It may not, and is done in one step.
    No,
    /// When others are done: it has said so, and ends here.
    Later,
    /// It may.
    Yes(Again, Lane),
}

impl Again {
    /// A command of one key, which is begun again; `args`: those behind the key.
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

    /// Begins anew; after some tries with its keys held.
    pub fn run(mut self, call: &mut Call<'_, '_, '_>) -> Done {
        self.tries += 1;
        if self.tries == TRIES_MAX {
            call.go_on_with(Held::of(self));
            return Ok(());
        }
        self.run_as_it_is(call)
    }

    /// Begins anew, without counting a try. It is not asked again for memory: the job that was there before has gone.
    pub fn run_as_it_is(&self, call: &mut Call<'_, '_, '_>) -> Done {
        call.client.tries = self.tries;
        let again = call.cx.guard.ask_again(false);
        let done = call.execute_unseen(self.row, self.args());
        call.cx.guard.ask_again(again);
        call.client.tries = 0;
        done
    }

    /// It may work at a key of which `is_held` says so: of very many it is not looked which they are.
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

/// Bytes that a key and what is behind it take, at most.
fn words_bytes(key: Option<&[u8]>, args: Args<'_>) -> usize {
    args.encoded().len() + key.map_or(0, |key| key.len() + HEAD_BYTES_MAX + 2)
}

/// A key and what is behind it as words, and how many these are.
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
    /// Asks for leave to work at large values of so many bytes in steps. `name`: the command's; `key`: its first
    /// argument if that was read ahead, `args` the others.
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
        // While its keys are held the command that holds them keeps the lane: it does not wait for another.
        let is_held = tries >= TRIES_MAX;
        let lane = if is_held { Some(Lane::kept_by_another()) } else { self.cx.room.work().take_lane() };
        // Twice: what is written of it is kept beside it. One client of a worker works at it, and many may wait. Where
        // connections hold all they may, what is short is one step. `bytes` of a value say how long that takes; the least that
        // goes in steps says nothing, since commands on collections pass it whatever they look through.
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
