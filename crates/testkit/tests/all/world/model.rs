//! The possible contents of a client's key, and the right replies to each verb.
//!
//! Only the owner of a key writes it. So the key has one state, which each reply confirms. It may have one of several states only
//! for a reason: a connection that ended before its replies, a flush on its way, an expiry that is near, or eviction. Each reply
//! keeps those states that would have led to it, and there has to be at least one.

use std::rc::Rc;

use larder_eventloop::Millis;

/// The inaccuracy of a number of seconds: the server may count from the start of the current second.
pub const SECOND_MS: Millis = 1_000;

/// When an item expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// Time from the write to the expiry.
    pub after_ms: Millis,
    /// The item is there before the first and gone after the last of these, in the system's time. They are known when the write
    /// has its reply.
    pub first: Millis,
    pub last: Millis,
}

/// A stored item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its bytes.
    pub value: Rc<[u8]>,
    /// memcached's flags.
    pub flags: u32,
    pub expires: Option<Expiry>,
}

/// The state of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The key does not exist.
    Absent,
    /// The key holds this item.
    Item(Item),
}

/// A command on a key.
#[derive(Clone, Debug)]
pub enum Verb {
    Get,
    Set(Item),
    /// Stores if the key does not exist.
    Add(Item),
    /// Stores if the key exists.
    Replace(Item),
    Append(Rc<[u8]>),
    Delete,
    /// GETDEL.
    Take,
    /// GETSET.
    Swap(Item),
    Plus(u64),
    /// STRLEN.
    Length,
}

/// The reply of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Value(Item),
    Nothing,
    Done,
    /// The condition of the write does not hold.
    Not,
    Number(u64),
    /// The value is not a number.
    NoNumber,
    /// There is no memory for the reply or the write.
    Refused,
    /// There is no memory for the rest of the reply.
    Broken,
}

/// Why the reply to a verb may differ from the known state of the key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Doubts {
    /// The key may be gone, before the verb or after it.
    pub gone: bool,
    /// A write may find no memory.
    pub full: bool,
    /// A value may find no memory in which to wait for its reader.
    pub unsent: bool,
    /// The system's time since the request: not before the first, not after the second.
    pub now: (Millis, Millis),
}

/// A possible reply to a verb, and the state of the key afterwards.
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
    /// True if the verb may change the key.
    pub fn writes(&self) -> bool {
        !matches!(self, Verb::Get | Verb::Length)
    }

    /// The result on a key in this state. RESP differs where the key does not exist: it counts as an empty one.
    fn act(&self, state: &State, resp: bool) -> Outcome {
        let keep = |answer| Outcome { answer, next: state.clone() };
        let put = |answer, item: &Item| Outcome { answer, next: State::Item(item.clone()) };
        let gone = |answer| Outcome { answer, next: State::Absent };
        match (self, state) {
            (Verb::Get | Verb::Take | Verb::Swap(_), State::Item(item)) => {
                let answer = Answer::Value(item.clone());
                match self {
                    Verb::Take => gone(answer),
                    Verb::Swap(new) => put(answer, new),
                    _ => keep(answer),
                }
            }
            (Verb::Swap(new), State::Absent) => put(Answer::Nothing, new),
            (Verb::Length, state) => {
                keep(Answer::Number(if let State::Item(item) = state { item.value.len() as u64 } else { 0 }))
            }
            (Verb::Set(new), _) | (Verb::Add(new), State::Absent) | (Verb::Replace(new), State::Item(_)) => {
                put(Answer::Done, new)
            }
            (Verb::Add(_), State::Item(_)) | (Verb::Replace(_), State::Absent) => keep(Answer::Not),
            (Verb::Append(more), State::Item(item)) => {
                let value: Rc<[u8]> = [&item.value[..], more].concat().into();
                let answer = if resp { Answer::Number(value.len() as u64) } else { Answer::Done };
                put(answer, &Item { value, ..item.clone() })
            }
            (Verb::Append(more), State::Absent) if resp => {
                let item = Item { value: Rc::clone(more), flags: 0, expires: None };
                put(Answer::Number(more.len() as u64), &item)
            }
            (Verb::Append(_), State::Absent) => keep(Answer::Not),
            (Verb::Delete, State::Item(_)) => gone(Answer::Done),
            (Verb::Plus(by), State::Item(item)) => match number(&item.value) {
                Some(before) => {
                    let value: Rc<[u8]> = (before + by).to_string().into_bytes().into();
                    put(Answer::Number(before + by), &Item { value, ..item.clone() })
                }
                None => keep(Answer::NoNumber),
            },
            (Verb::Plus(by), State::Absent) if resp => {
                let value: Rc<[u8]> = by.to_string().into_bytes().into();
                put(Answer::Number(*by), &Item { value, flags: 0, expires: None })
            }
            (Verb::Get | Verb::Take | Verb::Delete | Verb::Plus(_), State::Absent) => keep(Answer::Nothing),
        }
    }
}

/// A key.
#[derive(Clone, Debug)]
pub struct Key {
    pub name: String,
    /// The key has one of these states.
    pub possible: Vec<State>,
    /// Verbs on their way.
    pub asked: usize,
    /// No request was sent for the key since a flush began.
    pub rests: bool,
}

fn add(states: &mut Vec<State>, state: State) {
    if !states.contains(&state) {
        states.push(state);
    }
}

impl Key {
    /// A key that was never written.
    pub fn new(name: String) -> Key {
        Key { name, possible: vec![State::Absent], asked: 0, rests: false }
    }

    /// Notes that the key may be gone.
    pub fn may_be_gone(&mut self) {
        add(&mut self.possible, State::Absent);
    }

    /// The possible states at a time between these.
    fn at(&self, (from, to): (Millis, Millis), gone: bool) -> Vec<State> {
        let mut states = Vec::new();
        for state in &self.possible {
            match state {
                State::Item(Item { expires: Some(Expiry { last, .. }), .. }) if from > *last => {
                    add(&mut states, State::Absent);
                }
                State::Item(Item { expires: Some(Expiry { first, .. }), .. }) if to >= *first => {
                    add(&mut states, state.clone());
                    add(&mut states, State::Absent);
                }
                State::Item(_) | State::Absent => add(&mut states, state.clone()),
            }
        }
        if gone {
            add(&mut states, State::Absent);
        }
        states
    }

    /// The possible replies to a verb, the likeliest first.
    pub fn outcomes(&self, verb: &Verb, resp: bool, doubts: Doubts) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for state in self.at(doubts.now, doubts.gone) {
            let outcome = verb.act(&state, resp);
            let large = matches!(&outcome.answer, Answer::Value(item) if item.value.len() > COPIED_BYTES_MAX);
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

    /// Notes the reply to a verb, which came at `now` or before; `next`: the states that would have led to
    /// it.
    pub fn answer(&mut self, now: Millis, next: impl Iterator<Item = State>) {
        self.possible.clear();
        for mut state in next {
            if let State::Item(Item { expires: Some(expiry), .. }) = &mut state
                && expiry.last == Millis::MAX
            {
                expiry.last = now + expiry.after_ms + SECOND_MS;
            }
            add(&mut self.possible, state);
        }
    }

    /// Notes that a sent verb gets no reply: it was carried out, or not.
    pub fn leave(&mut self, verb: &Verb, resp: bool, doubts: Doubts) {
        for outcome in self.outcomes(verb, resp, doubts) {
            add(&mut self.possible, outcome.next);
        }
    }
}
