//! Random streams of both protocols to a server without sockets, every reply compared with the model's.

use super::frame::Frame;
use super::model::Model;
use super::reply::{Reply, bodies, cursor};
use super::stream::{Choices, shown};
use crate::local::{Local, LocalConnection, START};
use crate::model::{OP_BYTES, Op};
use crate::pattern::{Captures, Match, escaped};
use crate::talk::encode;
use std::collections::BTreeSet;

/// Clients that speak RESP; one more speaks memcached's protocol.
const CLIENTS: usize = 3;
/// Requests that come in one piece, at most.
const PIPELINE: usize = 6;
/// Milliseconds that may pass at once.
const WAITS_MS: &[i64] = &[1, 499, 1001, 40_003, 100_000, 900_007];
/// Most calls of SCAN until its cursor is 0 again.
const WALK_MAX: usize = 1000;

/// A server, its model, and the commands so far.
struct Both {
    local: Local,
    clients: Vec<LocalConnection>,
    memcached: LocalConnection,
    model: Model,
    captures: Captures,
    before: String,
}

/// Follows the choices for at most `steps` steps.
///
/// # Errors
/// The first reply that differs, with all that was sent before.
pub fn check(mut choices: Choices<'_>, steps: usize) -> Result<(), String> {
    let mut local = Local::with_debug()?;
    let clients = (0..CLIENTS).map(|_| local.resp_connection()).collect();
    let memcached = local.connection();
    let model = Model::new(START as i64, CLIENTS);
    let mut both =
        Both { local, clients, memcached, model, captures: Captures::new(), before: String::new() };
    for _ in 0..steps {
        if choices.is_empty() {
            break;
        }
        match choices.below(16) {
            0 => {
                let ms = choices.of(WAITS_MS);
                both.local.shift(ms);
                both.local.maintain(4);
                both.model.wait(ms);
                both.before.push_str(&format!("\n  {ms} ms later"));
            }
            1..=3 => {
                let bytes: [u8; OP_BYTES] = std::array::from_fn(|_| choices.below(256) as u8);
                let keys = [&b"a"[..], b"b", b"c", b"d", b"key:1", b"key:2"];
                both.memcached(&Op::on(bytes, choices.of(&keys), choices.of(&keys)))?;
            }
            other => {
                let client = if other == 4 { 1 + choices.below(CLIENTS - 1) } else { 0 };
                let requests = if other == 5 { 1 + choices.below(PIPELINE) } else { 1 };
                both.pipeline(client, requests, &mut choices)?;
            }
        }
    }
    Ok(())
}

impl Both {
    fn memcached(&mut self, op: &Op) -> Result<(), String> {
        let Some(exchange) = self.model.ask_memcached(op) else { return Ok(()) };
        let sent = exchange.sent.render(&self.captures)?;
        self.local.exchange(&mut self.memcached, &sent);
        let got = self.memcached.sent();
        if exchange.expected.matches(got, &mut self.captures) != Match::Full(got.len()) {
            let expected = exchange.expected.describe(&self.captures);
            let said = format!("\n  memcached> {}", escaped(&sent));
            return Err(self.unlike(&said, &expected, got));
        }
        self.memcached.forget();
        self.before.push_str(&format!("\n  memcached> {}", escaped(&sent)));
        Ok(())
    }

    /// Sends some requests of a client in one piece.
    fn pipeline(&mut self, client: usize, requests: usize, choices: &mut Choices<'_>) -> Result<(), String> {
        let (mut sent, mut expected, mut said) = (Vec::new(), Vec::new(), String::new());
        let mut walk = None;
        for _ in 0..requests {
            let command = choices.command_of_both();
            if !self.model.knows(client, &command) {
                continue;
            }
            let queued = self.model.queues(client);
            sent.extend(encoded(&command));
            said.push_str(&format!("\n  {client}> {}", shown(&command)));
            let reply = self.model.ask(client, &command);
            if let (Reply::Walk(keys), false) = (&reply, queued) {
                walk = Some((command, keys.clone()));
                expected.push(reply);
                break;
            }
            expected.push(reply);
        }
        self.local.exchange(&mut self.clients[client], &sent);
        let expected = Reply::Several(expected);
        let got = self.clients[client].sent();
        if expected.matches(got) != Some(got.len()) {
            return Err(self.unlike(&said, &expected.shown(), got));
        }
        self.before.push_str(&said);
        let got = got.to_vec();
        self.clients[client].forget();
        match walk {
            Some((command, keys)) => self.walk(client, command, keys, &got),
            None => Ok(()),
        }
    }

    /// Continues a SCAN to its end. If it began at 0, it must have found all keys.
    fn walk(
        &mut self,
        client: usize,
        mut command: Vec<Vec<u8>>,
        keys: BTreeSet<Vec<u8>>,
        got: &[u8],
    ) -> Result<(), String> {
        let whole = command[1] == b"0";
        // The replies to other requests of the same piece stand in front.
        let mut frame = last(got).ok_or("a reply")?;
        let mut found = BTreeSet::new();
        for _ in 0..WALK_MAX {
            found.extend(bodies(&frame.inside[1]).expect("the reply was right"));
            command[1] = cursor(&frame).expect("the reply was right");
            if command[1] == b"0" {
                let all = !whole || found == keys;
                return if all { Ok(()) } else { Err(self.unlike("", &format!("{keys:?}"), got)) };
            }
            let reply = Reply::Walk(keys.clone());
            self.local.exchange(&mut self.clients[client], &encoded(&command));
            let got = self.clients[client].sent();
            if reply.matches(got) != Some(got.len()) {
                let said = format!("\n  {client}> {}", shown(&command));
                return Err(self.unlike(&said, &reply.shown(), got));
            }
            frame = last(got).ok_or("a reply")?;
            self.clients[client].forget();
        }
        Err(format!("after{}\n  the walk has no end", self.before))
    }

    fn unlike(&self, said: &str, expected: &str, got: &[u8]) -> String {
        format!("after{}{said}\n  expected {expected}\n  got      {}", self.before, escaped(got))
    }
}

fn encoded(command: &[Vec<u8>]) -> Vec<u8> {
    encode(&command.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

/// The last of some replies.
fn last(mut bytes: &[u8]) -> Option<Frame> {
    let mut last = None;
    while let Some((frame, length)) = Frame::read(bytes).ok()? {
        last = Some(frame);
        bytes = &bytes[length..];
        if bytes.is_empty() {
            break;
        }
    }
    last
}
