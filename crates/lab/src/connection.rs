//! A connection of the generator: its position in its script, and the checks of its replies.
//!
//! Windows are begun, sent, and answered in the order of the script; in a closed loop one is under way
//! at a time, in an open loop any number:
//!
//! ```text
//! answered ─► [ window ][ window ][ window ] ◄─ begun
//!                  ▲ replies      ▲ sent up to here
//! ```
//!
//! `known` decides whether a reply is right, as far as this connection can know.

mod known;
mod replies;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::error::Error;
use crate::script::Script;
use crate::value;
use crate::wire::Wire;
use crate::workload::{Verb, Workload};
use known::{Known, Token};

/// For each key, the versions that it may hold: its last writes, by each connection that wrote it. A value without a version has
/// none.
pub type LastWrites = BTreeMap<u32, Vec<u64>>;

/// How closely replies are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// Bytes of a window are counted, and its end compared. Any reply of another length is found.
    Length,
    /// Every reply is parsed: each must be of the kind and size expected.
    Parse,
    /// As `Parse`, and every value must name the key asked for and be whole; of keys that only this connection changes it must be
    /// the last one written.
    Verify,
}

/// When a window is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// After the answer to the last one.
    Closed,
    /// At the times of a clock.
    Open,
}

/// When a window was due, and when it was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    pub due: Instant,
    pub sent: Instant,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    pub(crate) wire: Wire,
    pub(crate) script: Arc<Script>,
    /// Windows begun since the first connect; those before `begun` still have to be sent.
    pub(crate) begun: u64,
    /// Windows that are sent completely, and bytes sent of the next.
    sent: u64,
    sent_bytes: usize,
    /// Windows that are answered completely, and how many of them before this run.
    pub(crate) answered: u64,
    pub(crate) answered_before: u64,
    /// Bytes of the first unanswered window's replies so far ([`Check::Length`]).
    received: usize,
    /// Requests of this window that are answered.
    requests: usize,
    /// Index in the script's keys of the next key to be answered.
    key: usize,
    /// Replies to the commands of a transaction that have come.
    step: usize,
    /// The beginning of an incomplete reply.
    buffered: Vec<u8>,
    /// Windows under way.
    pub(crate) flights: VecDeque<Flight>,
    /// Contents of the keys that only this connection changes: see [`Known`].
    known: Vec<u64>,
    /// Their tokens, where the script swaps.
    tokens: Vec<Token>,
    /// The last writes of other connections, for a connection that only reads.
    pub(crate) expected: Option<Arc<LastWrites>>,
    /// The connection waits for room to send.
    pub(crate) blocked: bool,
}

impl Connection {
    pub(crate) fn new(wire: Wire, script: Arc<Script>) -> Connection {
        let known = vec![Known::UNKNOWN; script.slots];
        let tokens = vec![Token::NONE; if script.swaps { script.token_slots } else { 0 }];
        Connection {
            wire,
            script,
            begun: 0,
            sent: 0,
            sent_bytes: 0,
            answered: 0,
            answered_before: 0,
            received: 0,
            requests: 0,
            key: 0,
            step: 0,
            buffered: Vec::new(),
            flights: VecDeque::new(),
            known,
            tokens,
            expected: None,
            blocked: false,
        }
    }

    /// Takes a new connection in place of the one whose windows are all answered.
    pub(crate) fn replace(&mut self, wire: Wire) {
        debug_assert!(self.flights.is_empty() && self.buffered.is_empty());
        self.wire = wire;
    }

    /// Whether it has nothing to send.
    pub(crate) fn is_idle(&self) -> bool {
        self.script.windows.is_empty()
    }

    /// Its writes, newest first, each request once: the key, and the version that was sent if the value has one. All begun
    /// windows must be answered.
    pub(crate) fn writes<'c>(
        &'c self,
        workload: &'c Workload,
    ) -> impl Iterator<Item = (u32, Option<u64>)> + 'c {
        let script = &*self.script;
        let windows = script.windows.len() as u64;
        let sent = (1..=self.begun.min(windows)).map(move |back| ((self.begun - back) % windows) as usize);
        let requests = sent.flat_map(|window| script.windows[window].requests.clone().rev());
        requests
            .map(|at| &script.requests[at])
            .filter(|request| matches!(request.verb, Verb::Set | Verb::Cas))
            .map(move |request| {
                let id = script.keys[request.keys_end as usize - 1].id;
                let place = request.value_at as usize..request.value_at as usize + workload.value_bytes(id);
                (id, value::version_of(&script.bytes[place]))
            })
    }

    /// Begins a run: forgets the contents of its keys, which others may have changed since the last one.
    pub(crate) fn start(&mut self) {
        self.answered_before = self.answered;
        self.known.fill(Known::UNKNOWN);
        self.tokens.fill(Token::NONE);
    }

    /// Begins the script's next window, which was due at `due`. `renew`: writes get new versions, and tokens if they have any.
    pub(crate) fn begin(&mut self, due: Instant, renew: Option<&Workload>) {
        let windows = self.script.windows.len() as u64;
        if let Some(workload) = renew
            && self.begun >= windows
        {
            let window = (self.begun % windows) as usize;
            let before = self.begun / windows * self.script.requests.len() as u64
                + self.script.windows[window].requests.start as u64;
            Arc::make_mut(&mut self.script).renew(window, before, workload);
        }
        if !self.tokens.is_empty() {
            let tokens = &self.tokens;
            let token = |slot: u32| tokens[slot as usize].value;
            Arc::make_mut(&mut self.script).name_tokens((self.begun % windows) as usize, token);
        }
        self.begun += 1;
        self.flights.push_back(Flight { due, sent: due });
    }

    /// Sends as much of the begun windows as the system takes; returns whether all of it is sent. `now` becomes the sending time
    /// of windows that have none.
    pub(crate) fn send(&mut self, now: Instant) -> Result<bool, Error> {
        let windows = self.script.windows.len() as u64;
        while self.sent < self.begun {
            // As many windows as lie one behind the other.
            let first = (self.sent % windows) as usize;
            let count = (self.begun - self.sent).min(windows - first as u64) as usize;
            let start = self.script.windows[first].bytes.start + self.sent_bytes;
            let end = self.script.windows[first + count - 1].bytes.end;
            let begun = self.flights.len() - (self.begun - self.sent) as usize;
            let fresh = begun + usize::from(self.sent_bytes > 0);
            self.flights.iter_mut().skip(fresh).for_each(|flight| flight.sent = now);
            let taken = match self.wire.send(&self.script.bytes[start..end]) {
                Ok(taken) => taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(Error::lost(error)),
            };
            let upto = start + taken;
            if upto == end {
                (self.sent, self.sent_bytes) = (self.sent + count as u64, 0);
                continue;
            }
            let whole = self.script.windows[first..first + count].partition_point(|w| w.bytes.end <= upto);
            self.sent += whole as u64;
            self.sent_bytes = upto - self.script.windows[first + whole].bytes.start;
        }
        self.wire.flush().map_err(Error::lost)
    }
}
