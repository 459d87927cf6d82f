//! A run of plain GETs and SETs: the most usual pipeline, in slots that hold nothing else. Whatever
//! else comes goes through the batch; the answers are the same.

use arrayvec::ArrayVec;
use larder_protocol::resp::{decode_get, decode_set};
use larder_store::{Hint, Key};

use super::call::KEY_BYTES_MAX;
use super::session::{Conversation, Turn};
use super::string;
use crate::batch::{SLOTS, prefetch_items};
use crate::session::Next;

/// One plain GET, or SET of a value.
struct Plain<'a, 'w> {
    key: Key<'a>,
    hint: Hint<'w>,
    value: Option<&'a [u8]>,
    /// Where in the input it begins.
    at: usize,
}

impl Conversation {
    /// Answers the gets and sets that the input goes on with, if they make a whole batch or are all
    /// there is; else none, and nothing was done.
    #[inline]
    pub(super) fn run(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        let input = turn.input;
        let mut at = turn.at;
        let mut run = ArrayVec::<Plain<'_, '_>, SLOTS>::new();
        while !run.is_full() {
            let (key, value, bytes) = if let Some((key, bytes)) = decode_get(&input[at..]) {
                (key, None, bytes)
            } else if let Some((key, value, bytes)) = decode_set(&input[at..]) {
                (key, Some(value), bytes)
            } else {
                break;
            };
            if key.len() > KEY_BYTES_MAX {
                break;
            }
            let key = turn.cx.guard.key_in(self.client.db, key);
            run.push(Plain { key, hint: turn.cx.guard.prefetch_bucket(&key), value, at });
            at += bytes;
        }
        let all = at == input.len();
        if run.is_empty() || !(run.is_full() || all) || (turn.left as usize) < run.len() {
            turn.runs = false;
            return None;
        }
        prefetch_items(&turn.cx.guard, &mut run, |plain| &mut plain.hint);
        for plain in &run {
            if turn.out.is_full() {
                turn.at = plain.at;
                return Some(Next::Flush);
            }
            let mut call = turn.call(&mut self.client);
            let done = match plain.value {
                None => string::fetch(&mut call, &plain.key, &plain.hint),
                Some(value) => string::set_plain(&mut call, &plain.key, &plain.hint, value),
            };
            if let Err(fail) = done {
                call.fail(&fail);
            }
            turn.left -= 1;
            turn.tally.commands += 1;
        }
        turn.at = at;
        all.then_some(Next::Receive)
    }
}
