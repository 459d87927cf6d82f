//! Requests that are too long to wait for in the receive buffer. They are gathered in memory of their own, out of what all such
//! requests may take together, or thrown away when that is used up.

use std::sync::atomic::Ordering::Relaxed;

use larder_protocol::resp::{Decoded, Partial, header_bytes, parse_integer, split};

use super::turn::Turn;
use crate::core::calls::RowId;
use crate::core::input::{Input, Looks};
use crate::core::progress::Next;
use crate::core::unauthenticated::UnauthenticatedClient;
use crate::redis::fail::Fail;
use crate::redis::session::{Conversation, State};
use crate::redis::table;

/// A long request that waits for keys looks again later, by a millisecond for each so many bytes.
const LOOKED_BYTES_A_MS: u64 = 64 << 10;

/// A long request, as far as it has come.
pub(crate) struct Gathering {
    bytes: Vec<u8>,
    partial: Partial,
    input: Input,
    looks: Looks,
    /// It is whole, and waits for the end of a pause, for held keys, or for memory.
    waits: bool,
}

impl std::fmt::Debug for Gathering {
    /// Leaves out the bytes, which may have a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gathering").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// The rest of a request that is skipped.
#[derive(Debug)]
pub(crate) struct Discard {
    /// Arguments that have not begun.
    args: u32,
    /// Bytes left of the one under way.
    bytes: u64,
    /// The row of the refused command, if its name is known.
    row: Option<RowId>,
    /// Whether it is refused because its key has another type of value, which counts as run; otherwise for want of memory.
    is_wrong_type: bool,
}

impl Conversation {
    /// Begins to gather the request whose start is at `turn.at`.
    #[cold]
    pub(crate) fn begin_gather(&mut self, turn: &mut Turn<'_, '_, '_, '_>, partial: Partial) -> Option<Next> {
        let unauthenticated = self.client.standing.unauthenticated().map(UnauthenticatedClient::all);
        let input = Input::new(turn.cx.guard.store(), unauthenticated);
        self.state = State::Gather(Gathering {
            bytes: Vec::new(),
            partial,
            input,
            looks: Looks::default(),
            waits: false,
        });
        None
    }

    /// Takes the bytes of the request from the input; runs the request when it is whole.
    pub(crate) fn gather(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        let State::Gather(gathering) = &mut self.state else { return None };
        while !gathering.waits {
            let rest = &turn.input[turn.at..];
            if rest.is_empty() {
                return Some(Next::Receive);
            }
            // The bytes that were decoded when it began are all there.
            let read = gathering.partial.bytes_read().saturating_sub(gathering.bytes.len());
            let taken = match gathering.partial.known_end() {
                _ if read > 0 => read.min(rest.len()),
                Some(end) => (end - gathering.bytes.len() as u64).min(rest.len() as u64) as usize,
                // Decoding finds where it ends.
                None => rest.len(),
            };
            if !gathering.take(&rest[..taken], turn.cx.shared.settings.append_bytes_max) {
                let room = gathering.room_for(gathering.bytes.len() + taken) as u64;
                let next = gathering.looks.for_input(turn.cx, &gathering.input, room);
                return next.or_else(|| self.give_up(turn));
            }
            gathering.looks = Looks::default();
            turn.at += taken;
            if turn.cx.guard.store().is_over_limit() {
                // Many gathered requests may have come in one turn.
                turn.cx.guard.give_way_for_now();
            }
            if gathering.partial.bytes_read() > gathering.bytes.len() {
                continue;
            }
            match decode_on(gathering, turn) {
                Decoded::Incomplete(partial) => gathering.partial = partial,
                Decoded::Request(_, bytes) | Decoded::Inline(_, bytes) | Decoded::Nothing(bytes) => {
                    // The rest belongs to the next request.
                    turn.at -= gathering.bytes.len() - bytes;
                    gathering.bytes.truncate(bytes);
                    break;
                }
                Decoded::Fault(fault) => return self.fault(turn, fault),
            }
        }
        if turn.cx.shared.pause.looks(turn.cx.now())
            && let Some(next) = self.waits_whole(turn)
        {
            return Some(next);
        }
        if let Some(next) = self.waits_for_memory(turn) {
            return Some(next);
        }
        let State::Gather(mut gathering) = std::mem::replace(&mut self.state, State::Ready) else {
            return None;
        };
        self.client.facts.waits.store(false, Relaxed);
        gathering.input.arrived();
        turn.left = turn.left.saturating_sub(1);
        match decode_on(&gathering, turn) {
            Decoded::Request(args, _) => {
                self.client.gathers = true;
                let next = self.single(turn, args);
                self.client.gathers = false;
                if let State::Job(under_way) = &mut self.state
                    && let Some(kept) = under_way.job.kept()
                {
                    kept.take_over(gathering.bytes, gathering.input);
                }
                next
            }
            // A password in it would be checked without the wait that logins have.
            Decoded::Inline(..) if !self.client.standing.is_admitted() && turn.cx.shared.access.asks() => {
                self.fault(turn, larder_protocol::resp::Fault::LongInline)
            }
            Decoded::Inline(line, _) => match split(line) {
                Some(words) if self.logs_in(words.args()) => {
                    self.fault(turn, larder_protocol::resp::Fault::LongInline)
                }
                Some(words) => self.single(turn, words.args()),
                None => self.fault(turn, larder_protocol::resp::Fault::UnbalancedQuotes),
            },
            Decoded::Nothing(_) | Decoded::Incomplete(_) | Decoded::Fault(_) => None,
        }
    }

    /// Lets a whole request wait while clients are paused or one of its keys is held. A longer request looks again later.
    #[cold]
    fn waits_whole(&mut self, turn: &Turn<'_, '_, '_, '_>) -> Option<Next> {
        let State::Gather(gathering) = &self.state else { return None };
        let waits_ms = match decode_on(gathering, turn) {
            Decoded::Request(args, _) => self.waits_ms(turn, args),
            Decoded::Inline(line, _) => split(line).and_then(|words| self.waits_ms(turn, words.args())),
            Decoded::Nothing(_) | Decoded::Incomplete(_) | Decoded::Fault(_) => None,
        };
        let State::Gather(gathering) = &mut self.state else { return None };
        gathering.waits = waits_ms.is_some();
        let more_ms = gathering.bytes.len() as u64 / LOOKED_BYTES_A_MS;
        self.sleep(waits_ms? + more_ms)
    }

    /// Lets a whole request wait while memory for what it writes is on its way: it looks again in some milliseconds, like a
    /// request in the input. It is tried once.
    #[cold]
    fn waits_for_memory(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        let State::Gather(gathering) = &mut self.state else { return None };
        let asks_again = turn.cx.guard.ask_again(false);
        turn.cx.guard.ask_again(asks_again);
        if !asks_again {
            return None;
        }
        let Decoded::Request(args, _) = decode_on(gathering, turn) else { return None };
        let (row, _) = args.at(0).and_then(table::find)?;
        let finds_none = turn.finds_none_ahead(&self.client, (row, true), args);
        let next = if finds_none { gathering.looks.for_memory() } else { None };
        gathering.waits |= next.is_some();
        next
    }

    /// There is no memory for the request: throws the rest of it away.
    fn give_up(&mut self, turn: &Turn<'_, '_, '_, '_>) -> Option<Next> {
        let State::Gather(gathering) = &self.state else { return None };
        let Some(count) = gathering.partial.count() else { return self.close() };
        let under_way = gathering.partial.known_end().map(|end| end - gathering.bytes.len() as u64);
        let begun = gathering.partial.read() + u32::from(under_way.is_some());
        let there = if gathering.bytes.is_empty() { &turn.input[turn.at..] } else { &gathering.bytes[..] };
        let is_read = there.len() >= gathering.partial.bytes_read();
        let name = is_read.then(|| gathering.partial.args(there).next()).flatten();
        let row = name.and_then(table::find).map(|(_, id)| id);
        let discard =
            Discard { args: count - begun, bytes: under_way.unwrap_or(0), row, is_wrong_type: false };
        self.state = State::Discard(discard);
        None
    }

    /// Throws more of a request away.
    pub(crate) fn discard(&mut self, turn: &mut Turn<'_, '_, '_, '_>) -> Option<Next> {
        let State::Discard(discard) = &mut self.state else { return None };
        loop {
            let rest = &turn.input[turn.at..];
            let taken = discard.bytes.min(rest.len() as u64);
            turn.at += taken as usize;
            discard.bytes -= taken;
            if discard.bytes > 0 {
                return Some(Next::Receive);
            }
            if discard.args == 0 {
                let (row, is_wrong_type) = (discard.row, discard.is_wrong_type);
                if is_wrong_type && turn.cx.shared.pause.looks(turn.cx.now()) {
                    let paused_ms = self.paused_ms(turn);
                    if paused_ms > 0 {
                        return self.sleep(paused_ms);
                    }
                }
                self.client.facts.waits.store(false, Relaxed);
                let fail = if is_wrong_type { Fail::WRONG_TYPE } else { Fail::OUT_OF_MEMORY };
                self.state = State::Ready;
                turn.tally.commands += u32::from(is_wrong_type);
                if let Some(row) = row {
                    turn.settle_any();
                    turn.count_single(row, is_wrong_type, Some(&fail), None);
                }
                turn.call(&mut self.client).fail(&fail);
                return None;
            }
            let rest = &turn.input[turn.at..];
            let Some(header) = header_bytes(rest) else { return Some(Next::Receive) };
            let bytes = match rest[..header] {
                [b'$', ref digits @ .., _, _] => parse_integer(digits).and_then(|n| u64::try_from(n).ok()),
                _ => None,
            };
            let Some(bytes) = bytes.filter(|&n| n <= turn.limits.bulk_bytes_max) else {
                return self.fault(turn, larder_protocol::resp::Fault::BadBulk);
            };
            turn.at += header;
            discard.args -= 1;
            discard.bytes = bytes + 2;
        }
    }
}

impl Discard {
    /// Discards the rest of a request's last argument, and its line end.
    pub fn of_value(missing: u64, row: RowId) -> Discard {
        Discard { args: 0, bytes: missing + 2, row: Some(row), is_wrong_type: false }
    }

    /// Discards an argument of which nothing has been taken, for a key with another type of value.
    pub fn of_wrong_type(bytes: u64, row: RowId) -> Discard {
        Discard { is_wrong_type: true, ..Discard::of_value(bytes, row) }
    }
}

/// Decodes the gathered bytes, from where decoding stopped.
fn decode_on<'g>(gathering: &'g Gathering, turn: &Turn<'_, '_, '_, '_>) -> Decoded<'g> {
    match gathering.bytes.first() {
        Some(b'*') => gathering.partial.resume(&gathering.bytes, &turn.limits),
        Some(_) => larder_protocol::resp::decode(&gathering.bytes, &turn.limits),
        None => Decoded::Incomplete(gathering.partial),
    }
}

impl Gathering {
    /// Bytes of memory that it is charged for.
    pub fn held_bytes(&self) -> u64 {
        self.input.bytes()
    }

    /// Bytes to allocate for so many; for an argument of known length no more than that.
    fn room_for(&self, len: usize) -> usize {
        let known = self.partial.known_end().map_or(usize::MAX, |end| end as usize);
        len.next_power_of_two().min(known.max(len))
    }

    /// Adds bytes; false if there is no memory for them.
    fn take(&mut self, bytes: &[u8], max: u64) -> bool {
        let len = self.bytes.len() + bytes.len();
        if len > self.bytes.capacity() {
            let room = self.room_for(len);
            if !self.input.raise(room as u64, max) {
                return false;
            }
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        true
    }
}
