//! A run of plain gets: the most usual pipeline, in slots that hold nothing else. Whatever else comes
//! goes through [`crate::batch`]; the answers are the same.

use arrayvec::ArrayVec;
use larder_protocol::classic::decode_get;
use larder_store::{Hint, Key};

use super::{Call, Next, Session};
use crate::batch::{SLOTS, prefetch_items};
use crate::classic;
use crate::text::NO_MEMORY_FOR_REPLY;

/// One plain get.
pub(super) struct Get<'a, 'w> {
    key: Key<'a>,
    hint: Hint<'w>,
    /// Where in the input it begins.
    at: usize,
}

impl Session {
    /// Answers the gets that the input goes on with, if they make a whole batch or are all there is;
    /// else none, and nothing was done.
    #[inline]
    pub(super) fn gets(&mut self, call: &mut Call<'_, '_, '_, '_>) -> Option<Next> {
        let input = call.reader.input;
        let mut at = call.reader.at;
        let mut run = ArrayVec::<Get<'_, '_>, SLOTS>::new();
        while !run.is_full()
            && let Some((key, bytes)) = decode_get(&input[at..])
        {
            let key = call.cx.guard.key(key);
            run.push(Get { key, hint: call.cx.guard.prefetch_bucket(&key), at });
            at += bytes;
        }
        let all = at == input.len();
        if run.is_empty() || !(run.is_full() || all) || (call.reader.turn as usize) < run.len() {
            call.runs_of_gets = false;
            return None;
        }
        prefetch_items(&call.cx.guard, &mut run, |get| &mut get.hint);
        for get in &run {
            if call.out.is_full() {
                call.reader.at = get.at;
                return Some(Next::Flush);
            }
            if !classic::fetch(call.cx, call.out, &mut call.tally, &get.key, &get.hint, false, true) {
                call.out.put(NO_MEMORY_FOR_REPLY);
            }
            call.reader.turn -= 1;
        }
        call.reader.at = at;
        all.then_some(Next::Receive)
    }
}
