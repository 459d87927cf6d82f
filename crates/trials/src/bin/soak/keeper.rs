//! Clients that own hashes, lists, sets and sorted sets, and check after each pipeline whether every reply
//! was one that the collection could give.
//!
//! If a flush, an eviction or an expiry may have removed a collection, that may have happened between any two
//! commands. So a key has *possible* states. Each command keeps the states that explain its reply, and adds
//! the empty one if something explains that. If none is left, the reply is wrong.

mod ask;
mod model;

use crate::client::open;
use crate::dialect::{Reply, reply};
use crate::op::short;
use crate::random::Random;
use crate::wire::{Manner, Wire};
use crate::world::{Cause, Span, World};
use ask::Ask;
use model::Model;
use std::io;
use std::thread;
use std::time::Duration;

/// Number of keepers.
pub const KEEPERS: usize = 2;
/// Keys of each keeper; types alternate.
const KEYS: usize = 24;
/// Most elements that a key should have: the trees of the largest have three levels.
const ELEMENTS: [usize; 3] = [12, 300, 6000];
/// Most commands of a pipeline.
const PIPELINE: usize = 20;
/// A key with more possible states than this is deleted, and begins again.
const STATES_MAX: usize = 64;
/// Longest pause between two pipelines, in microseconds.
const PAUSE_US: usize = 3000;
/// Most difference between the server's clock, which it reads once a batch, and ours.
const CLOCK_MS: u64 = 50;

/// A type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hash,
    List,
    Set,
    Sorted,
}

const KINDS: [Kind; 4] = [Kind::Hash, Kind::List, Kind::Set, Kind::Sorted];

/// A key, and its possible states.
#[derive(Debug)]
struct Key {
    name: String,
    kind: Kind,
    elements_max: usize,
    /// The possible states. Empty: they are unknown, and the key is deleted before it is used again.
    states: Vec<Model>,
    /// The time of the last request for it.
    span: Span,
    /// The time from which on it may have expired, in milliseconds.
    expires_ms: Option<u64>,
}

/// A client.
#[derive(Debug)]
pub struct Keeper<'w> {
    world: &'w World,
    random: Random,
    keys: Vec<Key>,
    wire: Option<Wire>,
    made: u64,
    judged: u64,
    refused: u64,
}

impl<'w> Keeper<'w> {
    /// Keeper number `number`.
    pub fn new(world: &'w World, seed: u64, number: usize) -> Keeper<'w> {
        let keys = (0..KEYS).map(|n| {
            let kind = KINDS[n % KINDS.len()];
            Key {
                name: format!("keeper{number}:{n}"),
                kind,
                elements_max: ELEMENTS[n / KINDS.len() % ELEMENTS.len()],
                states: Vec::new(),
                span: Span::default(),
                expires_ms: None,
            }
        });
        Keeper {
            world,
            random: Random::of(seed, (4 << 32) + number as u64),
            keys: keys.collect(),
            wire: None,
            made: 0,
            judged: 0,
            refused: 0,
        }
    }

    /// Sends requests until the soak ends.
    pub fn run(mut self) {
        while self.world.runs() {
            self.world.within(|_| {
                let key = self.random.below(KEYS);
                self.pipeline(key);
            });
            thread::sleep(Duration::from_micros(self.random.below(PAUSE_US) as u64));
        }
        self.world.count("collections: replies judged", self.judged);
        self.world.count("collections: refused, explained", self.refused);
        if let Some(wire) = self.wire {
            self.world.forget(wire.address);
        }
    }

    fn pipeline(&mut self, at: usize) {
        let mut asked = Vec::new();
        if self.keys[at].states.is_empty() {
            asked.push(Ask::Forget);
        }
        let key = &self.keys[at];
        let empty = Model::empty(key.kind);
        let like = key.states.first().unwrap_or(&empty);
        for _ in 0..self.random.within(1, PIPELINE) {
            asked.push(Ask::some(like, key.elements_max, &mut self.made, &mut self.random));
        }
        let name = key.name.clone();
        let request: Vec<u8> = asked.iter().flat_map(|ask| ask.request(name.as_bytes())).collect();
        let before = self.world.moment();
        let answered = self.answers(&request, asked.len());
        let span = Span { before, after: self.world.moment() };
        match answered {
            Ok(answers) => self.judge(at, &asked, answers, &span),
            Err(error) => {
                self.keys[at].states.clear();
                let Some(wire) = self.wire.take() else { return };
                self.world.broke(wire.address, || format!("{name}: {error}"));
            }
        }
    }

    fn answers(&mut self, request: &[u8], count: usize) -> io::Result<Vec<Reply>> {
        if self.wire.is_none() {
            self.wire = open(self.world, 1);
        }
        let wire = self.wire.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        wire.send(request, Manner::Prompt, &mut self.random)?;
        (0..count).map(|_| reply(wire)).collect()
    }

    /// Judges the replies to a pipeline.
    fn judge(&mut self, at: usize, asked: &[Ask], answers: Vec<Reply>, span: &Span) {
        let key = &mut self.keys[at];
        let empty = Model::empty(key.kind);
        if key.span.was_followed_by(Cause::Flush, span) && !key.states.is_empty() {
            key.states = vec![empty.clone()];
        }
        for (number, (ask, answer)) in asked.iter().zip(&answers).enumerate() {
            self.judged += 1;
            if *ask == Ask::Forget {
                key.states = vec![empty.clone()];
                key.expires_ms = None;
                if !matches!(answer, Reply::Number(0 | 1)) {
                    self.world.complain(&format!("DEL {} was answered {answer:?}", key.name));
                }
                continue;
            }
            if let Reply::Error(text) = answer
                && text.starts_with("OOM")
            {
                if !World::were_full(text, span) && !span.may_meet(Cause::Full, span) {
                    self.world.complain(&format!("{}: {ask:?}: there is memory: {text}", key.name));
                }
                self.refused += 1;
                // Some of the elements may have been written.
                let begun: Option<Vec<Vec<Model>>> =
                    key.states.iter().map(|state| ask.begun(state)).collect();
                key.states = begun.unwrap_or_default().concat();
                if key.states.is_empty() || key.states.len() > STATES_MAX {
                    return key.states.clear();
                }
                continue;
            }
            let goes = key.span.may_meet(Cause::Flush, span)
                || key.span.may_meet(Cause::Evict, span)
                || key.expires_ms.is_some_and(|ms| span.after.at_ms + CLOCK_MS >= ms);
            let mut possible = std::mem::take(&mut key.states);
            if goes && !possible.contains(&empty) {
                possible.push(empty.clone());
            }
            let before = possible.len();
            for mut state in possible {
                if ask.follow(&mut state, answer) && !key.states.contains(&state) {
                    key.states.push(state);
                }
            }
            if key.states.is_empty() {
                let told = short(format!("{answer:?}").as_bytes());
                let explained = if goes { "it may have gone" } else { "nothing explains that it has gone" };
                self.world.lost(&format!(
                    "{}: command {number} of {}, {}, was answered {told}; it had {before} possible states, {explained}",
                    key.name,
                    asked.len(),
                    ask.shown(),
                ));
                return;
            }
            match ask {
                Ask::Expire(ms) if *answer == Reply::Number(1) => {
                    key.expires_ms = Some(span.before.at_ms + ms);
                }
                Ask::Persist => key.expires_ms = None,
                _ => {}
            }
        }
        if key.states.len() > STATES_MAX {
            return key.states.clear();
        }
        // A new collection has no expiry.
        if key.states.iter().all(|state| state.len() == 0) {
            key.expires_ms = None;
        }
        key.span = *span;
    }
}
