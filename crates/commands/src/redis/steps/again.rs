//! Commands that are begun again: those that wait until nobody else works at large values, and those that found
//! what they work at changed when they were done.

use larder_protocol::resp::{Args, HEAD_BYTES_MAX, write_bulk_head};

use super::job::{Job, STEP_NS_MIN, Step};
use crate::core::work::Lane;
pub(crate) use crate::core::work::STEPS_BYTES_MIN;
use crate::redis::call::Call;
use crate::redis::fail::{Done, Fail};
use crate::redis::strings::rewrite::Heap;
use crate::redis::table::{self, Command};

/// So often what a command works at may change meanwhile; the next time it is done in one step.
const TRIES_MAX: u8 = 3;

/// A command with its arguments.
#[derive(Debug)]
pub(crate) struct Again {
    row: &'static Command,
    /// Behind its name.
    words: Vec<u8>,
    count: usize,
    tries: u8,
    _held: Heap,
}

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
    pub fn row(&self) -> &'static Command {
        self.row
    }

    pub fn args(&self) -> Args<'_> {
        Args::decode(&self.words, self.count)
    }

    /// Begins anew; after some tries it is done in one step.
    pub fn run(mut self, call: &mut Call<'_, '_, '_>) -> Done {
        self.tries += 1;
        self.run_as_it_is(call)
    }

    fn run_as_it_is(&self, call: &mut Call<'_, '_, '_>) -> Done {
        call.client.tries = self.tries;
        let done = call.execute_unseen(self.row, self.args());
        call.client.tries = 0;
        done
    }
}

impl Job for Waiting {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        if !call.cx.room.work().lane_is_free() {
            call.spend(STEP_NS_MIN);
            return Ok(Step::More);
        }
        self.0.run_as_it_is(call)?;
        Ok(Step::Done)
    }
}

impl Call<'_, '_, '_> {
    /// Asks for leave to work at large values of so many bytes in steps. `name`: the command's; `key`: its first
    /// argument if that was read ahead, `args` the others.
    pub(crate) fn leave(
        &mut self,
        bytes: u64,
        name: &'static str,
        key: Option<&[u8]>,
        args: Args<'_>,
    ) -> Result<Leave, Fail> {
        if bytes < STEPS_BYTES_MIN || self.cx.guard.in_transaction() || self.client.tries >= TRIES_MAX {
            return Ok(Leave::No);
        }
        let Some((row, _)) = table::find(name.as_bytes()) else { return Ok(Leave::No) };
        let encoded = args.encoded();
        let room = encoded.len() + key.map_or(0, |key| key.len() + HEAD_BYTES_MAX + 2);
        let lane = self.cx.room.work().take_lane();
        // Twice: what is written of it is kept beside it. One client of a worker works at it, and many may wait. Where
        // connections hold all they may it is done without.
        let held = if lane.is_some() { Heap::take(self, 2 * room) } else { Heap::keep(self, 2 * room) };
        let Ok(held) = held else { return Ok(Leave::No) };
        let mut words = Vec::with_capacity(room);
        if let Some(key) = key {
            let mut head = [0; HEAD_BYTES_MAX];
            let bytes = write_bulk_head(&mut head, key.len() as u64);
            words.extend_from_slice(&head[..bytes]);
            words.extend_from_slice(key);
            words.extend_from_slice(b"\r\n");
        }
        words.extend_from_slice(encoded);
        let count = args.len() + usize::from(key.is_some());
        let again = Again { row, words, count, tries: self.client.tries, _held: held };
        match lane {
            Some(lane) => Ok(Leave::Yes(again, lane)),
            None => {
                self.work(Waiting(again))?;
                Ok(Leave::Later)
            }
        }
    }
}
