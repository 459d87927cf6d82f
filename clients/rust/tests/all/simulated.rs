//! A client's connection against a server's session, both without sockets: replies come in order and match a
//! plain map, in whatever pieces bytes are sent and received.

use larder_client::pipe::{Delivery, Group, Input, Limits, Pipe, Tag};
use larder_client::{Dialect, Mode, Want};
use larder_protocol::client::{Ask, Count, Delete, Get, Head, Kind, Refusal, Request, Status, Store};
use larder_testkit::local::{Local, LocalConnection};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

const KEYS: [&[u8]; 4] = [b"text:a", b"text:b", b"text:c", b"number"];
/// The key whose values are numbers.
const NUMBER: usize = 3;
/// A token that no item has.
const FOREIGN: u64 = 1 << 60;
/// Most pieces of an exchange: with more the test takes too long.
const PIECES_MAX: usize = 500;
const NEVER: Duration = Duration::from_secs(3600);

/// The next step; a key is given by its index.
#[derive(Clone, Debug)]
enum Step {
    Get(usize),
    /// Stores this many bytes, with these flags.
    Store(usize, Mode, usize, u32),
    /// Sets by compare-and-swap: with the token that was read last, or with one that no item has.
    Compare(usize, bool),
    Delete(usize),
    Touch(usize),
    Number(u64),
    /// Counts down or up by this much.
    Count(usize, bool, u64),
    Barrier,
    /// Makes quiet adds: only those that are refused have a reply.
    Quiet(Vec<usize>),
    /// Sends all requests in pieces of the first number of bytes, and receives the replies in pieces of the
    /// second.
    Exchange(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let modes = vec![Mode::Set, Mode::Set, Mode::Add, Mode::Replace, Mode::Append, Mode::Prepend];
    let store = (
        0..NUMBER,
        proptest::sample::select(modes),
        prop_oneof![1..200_usize, 60_000..140_000_usize],
        0..5_u32,
    );
    let count = (0..KEYS.len(), any::<bool>(), prop_oneof![0..2000_u64, any::<u64>()]);
    let piece = || prop_oneof![1..4_usize, 4..70_000_usize];
    prop_oneof![
        (0..KEYS.len()).prop_map(Step::Get),
        store.prop_map(|(key, mode, bytes, flags)| Step::Store(key, mode, bytes, flags)),
        (0..NUMBER, any::<bool>()).prop_map(|(key, own)| Step::Compare(key, own)),
        (0..KEYS.len()).prop_map(Step::Delete),
        (0..KEYS.len()).prop_map(Step::Touch),
        prop_oneof![0..1000_u64, any::<u64>()].prop_map(Step::Number),
        count.prop_map(|(key, down, delta)| Step::Count(key, down, delta)),
        Just(Step::Barrier),
        proptest::collection::vec(0..NUMBER, 1..6).prop_map(Step::Quiet),
        (piece(), piece()).prop_map(|(there, back)| Step::Exchange(there, back)),
    ]
}

/// A request that has no reply so far.
#[derive(Debug)]
enum Asked {
    Get(usize),
    Store {
        key: usize,
        mode: Mode,
        value: Vec<u8>,
        flags: u32,
        cas: Option<u64>,
    },
    Delete(usize),
    Touch(usize),
    Count {
        key: usize,
        down: bool,
        delta: u64,
    },
    Barrier,
    /// The opaque, the key and the value of each add.
    Quiet(Vec<(u32, usize, Vec<u8>)>),
}

#[derive(Debug)]
struct Item {
    value: Vec<u8>,
    flags: u32,
    /// Its token, once it was read.
    token: Option<u64>,
}

/// The items that the server must have.
#[derive(Debug, Default)]
struct Items {
    items: BTreeMap<usize, Item>,
    /// The token of each key that was read last.
    read: [u64; KEYS.len()],
}

impl Items {
    /// Checks the reply to a request against the items, and applies the request to them.
    fn answered(&mut self, asked: Asked, head: &Head<'_>, value: &[u8], refused: &[u32]) {
        let status = head.status;
        match asked {
            Asked::Get(key) => self.read(key, head, value),
            Asked::Store { key, mode, value, flags, cas } => {
                let expected = match (mode, self.items.get(&key), cas) {
                    (_, None, Some(_)) => Status::Absent,
                    (_, Some(item), Some(_)) if item.token != cas => Status::Exists,
                    (Mode::Add, Some(_), None) => Status::NotStored,
                    (Mode::Replace | Mode::Append | Mode::Prepend, None, None) => Status::NotStored,
                    _ => Status::Done,
                };
                assert_eq!(status, expected, "{mode:?} {cas:?}");
                if status == Status::Done {
                    self.store(key, mode, value, flags);
                }
            }
            Asked::Delete(key) => {
                let had = self.items.remove(&key).is_some();
                assert_eq!(status, if had { Status::Done } else { Status::Absent });
            }
            Asked::Touch(key) => {
                let has = self.items.contains_key(&key);
                assert_eq!(status, if has { Status::Done } else { Status::Absent });
            }
            Asked::Count { key, down, delta } => self.count(key, down, delta, status, value),
            // Classic text has no barrier of its own: a version request serves as one.
            Asked::Barrier => assert!(matches!(status, Status::Barrier | Status::Version), "{status:?}"),
            Asked::Quiet(adds) => {
                assert_eq!(status, Status::Barrier);
                let mut expected = Vec::new();
                for (opaque, key, value) in adds {
                    match self.items.contains_key(&key) {
                        true => expected.push(opaque),
                        false => self.store(key, Mode::Add, value, 0),
                    }
                }
                assert_eq!(refused, expected);
                return;
            }
        }
        assert!(refused.is_empty(), "{refused:?}");
    }

    fn read(&mut self, key: usize, head: &Head<'_>, value: &[u8]) {
        let Some(item) = self.items.get_mut(&key) else {
            return assert_eq!(head.status, Status::Absent);
        };
        assert_eq!((head.status, head.flags), (Status::Value, item.flags));
        // A number that becomes shorter keeps its length: spaces follow it.
        let is_own = if key == NUMBER { value.trim_ascii_end() == item.value } else { value == item.value };
        assert!(is_own, "another value of {key}");
        match item.token {
            Some(token) => assert_eq!(head.cas, token),
            None => assert!(![0, self.read[key], FOREIGN].contains(&head.cas), "an old token: {}", head.cas),
        }
        item.token = Some(head.cas);
        self.read[key] = head.cas;
    }

    fn store(&mut self, key: usize, mode: Mode, value: Vec<u8>, flags: u32) {
        let item = match (mode, self.items.remove(&key)) {
            (Mode::Append, Some(old)) => Item { value: [old.value, value].concat(), token: None, ..old },
            (Mode::Prepend, Some(old)) => Item { value: [value, old.value].concat(), token: None, ..old },
            _ => Item { value, flags, token: None },
        };
        self.items.insert(key, item);
    }

    fn count(&mut self, key: usize, down: bool, delta: u64, status: Status, value: &[u8]) {
        let Some(item) = self.items.get_mut(&key) else {
            return assert_eq!(status, Status::Absent);
        };
        let Some(before) = number(&item.value) else {
            return assert_eq!(status, Status::Refused(Refusal::Client));
        };
        let after = if down { before.saturating_sub(delta) } else { before.wrapping_add(delta) };
        match status {
            Status::Number(told) => assert_eq!(told, after),
            Status::Value => assert_eq!(number(value), Some(after)),
            other => panic!("{other:?}"),
        }
        (item.value, item.token) = (after.to_string().into_bytes(), None);
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.trim_end().parse().ok()
}

/// A value of `bytes` bytes that is no number, and names its request.
fn text(request: u32, bytes: usize) -> Vec<u8> {
    format!("v{request}:").into_bytes().into_iter().cycle().take(bytes).collect()
}

/// Both ends of a connection.
struct Simulation {
    local: Local,
    connection: LocalConnection,
    pipe: Pipe,
    input: Input,
    now: Instant,
    pushed: u32,
    asked: VecDeque<Asked>,
    items: Items,
    /// The value and the refusals of the reply that is being received.
    value: Vec<u8>,
    refused: Vec<u32>,
}

impl Simulation {
    fn new(dialect: Dialect, verify: bool) -> Simulation {
        let (local, now) = (Local::new(&[]).expect("a server"), Instant::now());
        let connection = local.connection();
        let limits = Limits { in_flight: 1000, stall: NEVER, verify };
        Simulation {
            local,
            connection,
            pipe: Pipe::new(dialect, limits, now),
            input: Input::default(),
            now,
            pushed: 0,
            asked: VecDeque::new(),
            items: Items::default(),
            value: Vec::new(),
            refused: Vec::new(),
        }
    }

    fn take(&mut self, step: Step) {
        let request = self.pushed;
        match step {
            Step::Get(key) => self.push(Asked::Get(key)),
            Step::Store(key, mode, bytes, flags) => {
                // Values that are appended or prepended are short, so that the sum stays below the server's
                // limit.
                let grows = matches!(mode, Mode::Append | Mode::Prepend);
                let value = text(request, if grows { bytes.min(200) } else { bytes });
                self.push(Asked::Store { key, mode, value, flags, cas: None });
            }
            Step::Compare(key, own) => {
                let read = self.items.read[key];
                let cas = Some(if own && read != 0 { read } else { FOREIGN });
                let value = text(request, 20);
                self.push(Asked::Store { key, mode: Mode::Set, value, flags: 7, cas });
            }
            Step::Delete(key) => self.push(Asked::Delete(key)),
            Step::Touch(key) => self.push(Asked::Touch(key)),
            Step::Number(number) => {
                let value = number.to_string().into_bytes();
                self.push(Asked::Store { key: NUMBER, mode: Mode::Set, value, flags: 0, cas: None });
            }
            Step::Count(key, down, delta) => self.push(Asked::Count { key, down, delta }),
            Step::Barrier => self.push(Asked::Barrier),
            Step::Quiet(keys) if self.pipe.dialect() == Dialect::Meta => self.push_quiet(&keys),
            Step::Quiet(_) => {}
            Step::Exchange(there, back) => self.exchange(there, back),
        }
    }

    fn tag(&mut self) -> Tag {
        self.pushed += 1;
        Tag { op: self.pushed - 1, item: 0 }
    }

    fn push(&mut self, asked: Asked) {
        let (ask, key, cas) = match &asked {
            Asked::Get(key) => {
                (Ask::Get(Get { want: Want::CAS | Want::FLAGS, ..Get::default() }), *key, None)
            }
            Asked::Store { key, mode, value, flags, cas } => {
                let store = Store { value, mode: *mode, flags: *flags, ..Store::default() };
                (Ask::Store(store), *key, *cas)
            }
            Asked::Delete(key) => (Ask::Delete(Delete::default()), *key, None),
            Asked::Touch(key) => (Ask::Touch(1000), *key, None),
            Asked::Count { key, down, delta } => {
                (Ask::Count(Count { down: *down, delta: *delta, ..Count::default() }), *key, None)
            }
            Asked::Barrier => (Ask::Barrier, 0, None),
            Asked::Quiet(_) => unreachable!("those are a group"),
        };
        let request = Request { cas, ..Request::new(ask, KEYS[key]) };
        let tag = self.tag();
        self.pipe.push(&request, tag, self.now, self.now + NEVER).expect("there is room");
        self.asked.push_back(asked);
    }

    fn push_quiet(&mut self, keys: &[usize]) {
        let (tag, first) = (self.tag(), self.pipe.number(keys.len() as u32));
        let (mut bytes, mut adds) = (Vec::new(), Vec::new());
        for (opaque, &key) in (first..).zip(keys) {
            let value = text(opaque, 20);
            let store = Ask::Store(Store { value: &value, mode: Mode::Add, ..Store::default() });
            let request = Request { opaque: Some(opaque), quiet: true, ..Request::new(store, KEYS[key]) };
            request.write(Dialect::Meta, &mut bytes);
            adds.push((opaque, key, value));
        }
        Request::new(Ask::Barrier, b"").write(Dialect::Meta, &mut bytes);
        let group = Group { bytes: &bytes, kind: Kind::Barrier, replies: 1, quiet: true, opaque: None };
        self.pipe.push_group(&group, tag, self.now, self.now + NEVER).expect("there is room");
        self.asked.push_back(Asked::Quiet(adds));
    }

    /// Sends all requests made so far, and receives their replies.
    fn exchange(&mut self, there: usize, back: usize) {
        let bytes = self.pipe.hand_out(Vec::new());
        for piece in bytes.chunks(there.max(bytes.len() / PIECES_MAX + 1)) {
            self.local.exchange(&mut self.connection, piece);
            let answers = self.connection.sent().to_vec();
            self.connection.forget();
            for piece in answers.chunks(back.max(answers.len() / PIECES_MAX + 1)) {
                self.receive(piece);
            }
        }
        assert!(!self.connection.is_closed());
        assert_eq!((self.pipe.owed(), self.asked.len()), (0, 0));
    }

    fn receive(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let room = self.input.room();
            let taken = room.len().min(piece.len());
            assert!(taken > 0, "there is always room");
            room[..taken].copy_from_slice(&piece[..taken]);
            self.input.put(taken);
            piece = &piece[taken..];
            let Simulation { pipe, input, now, pushed, asked, items, value, refused, .. } = self;
            let received = pipe.receive(input, *now, |tag, delivery| match delivery {
                Delivery::Part(part) => value.extend_from_slice(part),
                Delivery::Refused(head) => refused.push(head.opaque.expect("it has a number")),
                Delivery::Reply(head, last) => {
                    value.extend_from_slice(last);
                    assert_eq!(tag, Tag { op: *pushed - asked.len() as u32, item: 0 });
                    let oldest = asked.pop_front().expect("it was asked");
                    items.answered(oldest, &head, value, refused);
                    value.clear();
                    refused.clear();
                }
            });
            assert_eq!(received, Ok(()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn a_server_answers_as_a_map_would(
        steps in proptest::collection::vec(step(), 1..80),
        classic: bool,
        verify: bool,
    ) {
        let dialect = if classic { Dialect::Classic } else { Dialect::Meta };
        let mut simulation = Simulation::new(dialect, verify);
        steps.into_iter().for_each(|step| simulation.take(step));
        simulation.exchange(1000, 1000);
        // At the end the server has the items of the map.
        (0..KEYS.len()).for_each(|key| simulation.push(Asked::Get(key)));
        simulation.exchange(7, 7);
    }
}
