//! How a connection goes on with its command in steps, one step in each turn. `call/job.rs` has what such a command is.

use std::sync::atomic::Ordering::Relaxed;

use super::turn::Turn;
use crate::core::conversation::Converse;
use crate::core::hold::LOOK_MS;
use crate::core::input::Asked;
use crate::core::progress::{Ending, Next};
use crate::redis::call::Flow;
use crate::redis::call::job::UnderWay;
use crate::redis::reply::put_fail;
use crate::redis::row::flag;
use crate::redis::session::{Conversation, State};
use crate::redis::steps::held::Held;
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::moments::KEYS_AT_ONCE;
use crate::redis::table;

/// Notes in a job's lane whether the job only waits.
fn rest(job: &dyn Job, rests: bool) {
    if let Some(lane) = job.lane() {
        lane.rest(rests);
    }
}

impl Conversation {
    /// Goes on in the next turn with the job that a command has just left, if it has; what is behind the command begins at
    /// `rest`.
    #[cold]
    pub(crate) fn begin_job(&mut self, turn: &mut Turn<'_, '_, '_, '_>, rest: usize) -> Option<Next> {
        let job = turn.job.take()?;
        turn.at = rest;
        // Waits of the command's beginning do not count for its steps.
        self.asked = Asked::default();
        let waits = job.job.waits();
        self.state = State::Job(job);
        if waits { self.job(turn) } else { Some(Next::Yield) }
    }

    /// Whether a command in steps waits because another holds keys: its next step may be at these. A command that goes through
    /// its words, each of them a key, waits only if one of the next is held; one that names the keys that it works at, only if
    /// one of these is.
    #[cold]
    fn waits_beside(&mut self, turn: &Turn<'_, '_, '_, '_>) -> bool {
        let db = self.client.db;
        let State::Job(under_way) = &mut self.state else { return false };
        let Some(keys) = turn.cx.shared.pause.holds.keys() else { return false };
        let job = &under_way.job;
        if job.must_end() || job.holds() || job.waits() || job.only_replies() {
            return false;
        }
        let is_held = |key: &[u8]| keys.has(turn.cx.guard.key_in(db, key).hash());
        if let Some(again) = job.again() {
            return again.may_work_at(is_held);
        }
        if let Some(name) = job.only_key() {
            return is_held(name.bytes());
        }
        let in_moments = under_way.row.and_then(table::row).is_some_and(|row| row.has(flag::MOMENTS));
        match under_way.job.kept() {
            Some(kept) if in_moments => {
                let mut words = kept.words().take(KEYS_AT_ONCE);
                words.any(is_held)
            }
            Some(_) | None => true,
        }
    }

    /// Whether the next step may take memory. Commands that only read or take out take none, nor does what only sends its reply.
    fn may_take_memory(under_way: &UnderWay) -> bool {
        let row = under_way.row.and_then(table::row);
        let takes =
            row.is_none_or(|row| row.has(flag::DENYOOM) || !row.has(flag::READONLY) && !row.has(flag::WRITE));
        let job = &under_way.job;
        takes && !job.only_reads() && !job.only_replies() && !job.waits()
    }

    /// Makes a step of the job.
    pub(crate) fn job(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        if turn.out.is_full() && !self.must_end() && !self.holds() {
            return Some(Next::Flush);
        }
        if turn.cx.shared.pause.looks(turn.cx.now()) && self.waits_beside(turn) {
            turn.cx.shared.pause.holds.note_waiter();
            return Some(Next::Sleep(LOOK_MS));
        }
        if let State::Job(under_way) = &self.state
            && Self::may_take_memory(under_way)
            && let Some(next) = self.asked.for_mapping(turn.cx)
        {
            rest(&*under_way.job, true);
            return Some(next);
        }
        let State::Job(mut under_way) = std::mem::replace(&mut self.state, State::Ready) else { return None };
        let (mark, replied, held) = (turn.out.mark(), turn.out.len(), under_way.job.holds());
        let began_us = turn.cx.host.clock_us();
        let asks_again = under_way.job.asks_again();
        let again = turn.cx.guard.ask_again(false);
        turn.cx.guard.ask_again(again && asks_again);
        let mut call = turn.call(&mut self.client);
        call.row = under_way.row;
        if again && !asks_again && call.finds_none_for(&*under_way.job) {
            if let Some(next) = self.asked.again(call.cx, 0) {
                call.cx.guard.ask_again(again);
                rest(&*under_way.job, true);
                turn.cx.spend_beside(turn.out);
                self.state = State::Job(under_way);
                return Some(next);
            }
            call.cx.guard.memory_did_not_come();
        }
        rest(&*under_way.job, false);
        let mut done = under_way.job.step(&mut call);
        if asks_again && done.as_ref().is_err_and(|fail| call.comes_for(&*under_way.job, fail)) {
            if let Some(next) = self.asked.again(call.cx, 0) {
                call.cx.guard.ask_again(again);
                rest(&*under_way.job, true);
                self.state = State::Job(under_way);
                return Some(next);
            }
            call.cx.guard.memory_did_not_come();
            call.cx.guard.ask_again(false);
            done = under_way.job.step(&mut call);
        }
        // The next step, or request, has not been tried yet.
        self.asked = Asked::default();
        call.cx.guard.ask_again(again);
        let flow = call.flow;
        // EXEC keeps or drops the reply of each of its commands itself, but not its own error.
        let execs = under_way.row.and_then(table::row).is_some_and(|row| row.has(flag::RUNS_QUEUE));
        let silent = under_way.silent || execs && done.is_err() && call.client.replies.is_silent();
        if let Err(fail) = &done {
            call.count_error(fail);
            put_fail(call.out, fail);
            if let Some(row) = under_way.row {
                fail.count(&call.cx.counters.rows, row);
            }
        }
        if silent {
            turn.out.rewind(mark);
        }
        under_way.replied_bytes += turn.out.len().saturating_sub(replied);
        // The next command does not pay for it.
        turn.cx.spend_beside(turn.out);
        turn.serve_called();
        if held && !under_way.job.holds() || execs && !under_way.job.must_end() {
            // Serves clients that waited for what the job held: it has ended, or its keys are to be held anew since databases
            // were swapped.
            turn.serve_left();
        }
        under_way.took_us += turn.cx.host.clock_us().saturating_sub(began_us);
        if let Some(row) = under_way.row
            && !matches!(done, Ok(Step::More | Step::Hold | Step::Full | Step::Await(_) | Step::Sleep(_)))
        {
            turn.note_latency(row, under_way.took_us);
        }
        let next = match done {
            Ok(Step::Done) | Err(_) => {
                // An EXEC that had to wait ends here, with all that it may have run.
                turn.tell_behind(&mut self.client, under_way.row.and_then(table::row));
                turn.limits = self.limits(turn.shared, turn.cx);
                // The job may have begun another.
                let Some(next) = turn.job.take() else {
                    if execs {
                        self.client.replies.end_command();
                    }
                    if let (Some(row), true) = (under_way.row, under_way.is_timed) {
                        turn.cx.counters.rows.took(row, 1, under_way.took_us);
                    }
                    if let Some(noted) = under_way.noted.take() {
                        let (took_us, reply_bytes) = (under_way.took_us, under_way.replied_bytes);
                        turn.call(&mut self.client).note_end(*noted, took_us, reply_bytes);
                    }
                    drop(under_way);
                    turn.serve_left();
                    // The connection was to be closed when the job that must end has ended.
                    let is_killed = self.client.facts.killed.load(Relaxed);
                    return self.follow(turn, if is_killed { Flow::Close(Ending::Error) } else { flow });
                };
                // The new job began under the rules of this turn.
                (under_way.job, under_way.user) = (next.job, next.user);
                Next::Yield
            }
            Ok(Step::More) => Next::Yield,
            Ok(Step::Hold) => {
                under_way.job = Box::new(Held::around(under_way.job));
                Next::Yield
            }
            Ok(Step::Full) => Next::Flush,
            Ok(Step::Await(ms)) => Next::Await(ms),
            Ok(Step::Sleep(ms)) => Next::Sleep(ms),
        };
        self.state = State::Job(under_way);
        Some(next)
    }
}
