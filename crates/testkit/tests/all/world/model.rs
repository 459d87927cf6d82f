//! The possible contents of a client's key, and the right answers to each verb.
//!
//! Only the owner of a key writes it. So the key has one state, which each answer confirms. It may have one of several states
//! only for a reason: a connection that ended before its answers, a flush on its way, an expiry that is near, or eviction. Each
//! answer keeps those states that would have given it, and there has to be at least one.

use std::rc::Rc;

use larder_eventloop::Millis;

/// What the server may make of a number of seconds: it may count from the second that has begun.
pub const SECOND_MS: Millis = 1_000;

/// When an item expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// So long after it was written.
    pub after_ms: Millis,
    /// It is there before the one and gone after the other, of the system's time. That is known when the write is
    /// answered.
    pub first: Millis,
    pub last: Millis,
}

/// What was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Its bytes.
    pub value: Rc<[u8]>,
    /// memcached's flags.
    pub flags: u32,
    pub expires: Option<Expiry>,
}

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing.
    Absent,
    /// This.
    Held(Held),
}

/// What is asked of a key.
#[derive(Clone, Debug)]
pub enum Verb {
    Get,
    Set(Held),
    /// If there is none.
    Add(Held),
    /// If there is one.
    Replace(Held),
    Append(Rc<[u8]>),
    Delete,
    /// GETDEL.
    Take,
    /// GETSET.
    Swap(Held),
    Plus(u64),
    /// STRLEN.
    Length,
}

/// What a key answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Value(Held),
    Nothing,
    Done,
    /// There is one, or there is none.
    Not,
    Number(u64),
    /// Its value is none.
    NoNumber,
    /// There is no memory for it.
    Refused,
    /// There is no memory for the rest of it.
    Broken,
}

/// Why a verb may be answered otherwise than by what the key is known to hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Doubts {
    /// The key may have gone, before the verb or behind it.
    pub gone: bool,
    /// A write may find no memory.
    pub full: bool,
    /// A value may find no memory to wait for its reader in.
    pub unsent: bool,
    /// The system's time since it was asked: not before the one, not after the other.
    pub now: (Millis, Millis),
}

/// What a verb was or may be answered, and what the key holds then.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub answer: Answer,
    pub next: State,
}

/// Values longer than this are sent from where they lie, or not at all.
const COPIED_BYTES_MAX: usize = 16 << 10;

fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

impl Verb {
    /// The key may hold something else behind it.
    pub fn writes(&self) -> bool {
        !matches!(self, Verb::Get | Verb::Length)
    }

    /// What it does to a key in this state. What RESP has otherwise: a key that does not exist is an empty one to it.
    fn act(&self, state: &State, resp: bool) -> Outcome {
        let keep = |answer| Outcome { answer, next: state.clone() };
        let put = |answer, held: &Held| Outcome { answer, next: State::Held(held.clone()) };
        let gone = |answer| Outcome { answer, next: State::Absent };
        match (self, state) {
            (Verb::Get | Verb::Take | Verb::Swap(_), State::Held(held)) => {
                let answer = Answer::Value(held.clone());
                match self {
                    Verb::Take => gone(answer),
                    Verb::Swap(new) => put(answer, new),
                    _ => keep(answer),
                }
            }
            (Verb::Swap(new), State::Absent) => put(Answer::Nothing, new),
            (Verb::Length, state) => {
                keep(Answer::Number(if let State::Held(held) = state { held.value.len() as u64 } else { 0 }))
            }
            (Verb::Set(new), _) | (Verb::Add(new), State::Absent) | (Verb::Replace(new), State::Held(_)) => {
                put(Answer::Done, new)
            }
            (Verb::Add(_), State::Held(_)) | (Verb::Replace(_), State::Absent) => keep(Answer::Not),
            (Verb::Append(more), State::Held(held)) => {
                let value: Rc<[u8]> = [&held.value[..], more].concat().into();
                let answer = if resp { Answer::Number(value.len() as u64) } else { Answer::Done };
                put(answer, &Held { value, ..held.clone() })
            }
            (Verb::Append(more), State::Absent) if resp => {
                let held = Held { value: Rc::clone(more), flags: 0, expires: None };
                put(Answer::Number(more.len() as u64), &held)
            }
            (Verb::Append(_), State::Absent) => keep(Answer::Not),
            (Verb::Delete, State::Held(_)) => gone(Answer::Done),
            (Verb::Plus(by), State::Held(held)) => match number(&held.value) {
                Some(before) => {
                    let value: Rc<[u8]> = (before + by).to_string().into_bytes().into();
                    put(Answer::Number(before + by), &Held { value, ..held.clone() })
                }
                None => keep(Answer::NoNumber),
            },
            (Verb::Plus(by), State::Absent) if resp => {
                let value: Rc<[u8]> = by.to_string().into_bytes().into();
                put(Answer::Number(*by), &Held { value, flags: 0, expires: None })
            }
            (Verb::Get | Verb::Take | Verb::Delete | Verb::Plus(_), State::Absent) => keep(Answer::Nothing),
        }
    }
}

/// A key.
#[derive(Clone, Debug)]
pub struct Key {
    pub name: String,
    /// One of these is what it holds.
    pub possible: Vec<State>,
    /// Verbs on their way.
    pub asked: usize,
    /// Nothing was asked of it since a flush began.
    pub rests: bool,
}

fn add(states: &mut Vec<State>, state: State) {
    if !states.contains(&state) {
        states.push(state);
    }
}

impl Key {
    /// One that was never written.
    pub fn new(name: String) -> Key {
        Key { name, possible: vec![State::Absent], asked: 0, rests: false }
    }

    /// It may have gone.
    pub fn may_be_gone(&mut self) {
        add(&mut self.possible, State::Absent);
    }

    /// What it may hold at a time between these.
    fn at(&self, (from, to): (Millis, Millis), gone: bool) -> Vec<State> {
        let mut states = Vec::new();
        for state in &self.possible {
            match state {
                State::Held(Held { expires: Some(Expiry { last, .. }), .. }) if from > *last => {
                    add(&mut states, State::Absent);
                }
                State::Held(Held { expires: Some(Expiry { first, .. }), .. }) if to >= *first => {
                    add(&mut states, state.clone());
                    add(&mut states, State::Absent);
                }
                State::Held(_) | State::Absent => add(&mut states, state.clone()),
            }
        }
        if gone {
            add(&mut states, State::Absent);
        }
        states
    }

    /// What a verb may be answered, the likeliest first.
    pub fn outcomes(&self, verb: &Verb, resp: bool, doubts: Doubts) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for state in self.at(doubts.now, doubts.gone) {
            let outcome = verb.act(&state, resp);
            let large = matches!(&outcome.answer, Answer::Value(held) if held.value.len() > COPIED_BYTES_MAX);
            if doubts.gone && outcome.next != State::Absent {
                outcomes.push(Outcome { answer: outcome.answer.clone(), next: State::Absent });
            }
            outcomes.push(outcome);
            if doubts.full && verb.writes() {
                for next in [state.clone(), State::Absent] {
                    outcomes.push(Outcome { answer: Answer::Broken, next: next.clone() });
                    outcomes.push(Outcome { answer: Answer::Refused, next });
                }
            }
            if doubts.unsent && large {
                outcomes.push(Outcome { answer: Answer::Refused, next: state });
            }
        }
        outcomes
    }

    /// A verb was answered, not later than `now`: these are the states that would have given it.
    pub fn settle(&mut self, now: Millis, next: impl Iterator<Item = State>) {
        self.possible.clear();
        for mut state in next {
            if let State::Held(Held { expires: Some(expiry), .. }) = &mut state
                && expiry.last == Millis::MAX
            {
                expiry.last = now + expiry.after_ms + SECOND_MS;
            }
            add(&mut self.possible, state);
        }
    }

    /// A verb was sent and will not be answered: it was done, or not.
    pub fn leave(&mut self, verb: &Verb, resp: bool, doubts: Doubts) {
        for outcome in self.outcomes(verb, resp, doubts) {
            add(&mut self.possible, outcome.next);
        }
    }
}
