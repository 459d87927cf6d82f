//! A connection without its socket, under random calls: each request ends once, in the order of requests,
//! with its own value, however its bytes are split, and whichever owners give up meanwhile.

use larder_client::pipe::{Broken, Delivery, Group, Input, Limits, Pipe, Tag};
use larder_client::{Dialect, Outcome};
use larder_protocol::client::{Ask, Get, Kind, Request, Status, Store};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const STALL: Duration = Duration::from_millis(500);
const IN_FLIGHT: usize = 12;

/// One random call.
#[derive(Clone, Debug)]
enum Step {
    /// A get whose value will have this many bytes; 0: a miss. It times out after this many milliseconds.
    Get(usize, u64),
    Set(u64),
    /// A group of this many sets.
    Group(u32),
    /// Encoded requests are handed out to be sent.
    HandOut,
    /// The server replies to this many requests; this many bytes arrive at a time.
    Answer(usize, usize),
    /// An owner gives up.
    Abandon(u32),
    /// This many milliseconds pass.
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (prop_oneof![0..40_usize, 60_000..140_000_usize], 1..300_u64)
            .prop_map(|(bytes, ms)| Step::Get(bytes, ms)),
        (1..300_u64).prop_map(Step::Set),
        (1..5_u32).prop_map(Step::Group),
        Just(Step::HandOut),
        Just(Step::HandOut),
        (1..6_usize, prop_oneof![1..3_usize, 7..50_usize, 10_000..100_000_usize])
            .prop_map(|(n, part)| Step::Answer(n, part)),
        (0..40_u32).prop_map(Step::Abandon),
        (1..100_u64).prop_map(Step::Pass),
    ]
}

/// A request as the model's server knows it.
#[derive(Clone, Debug)]
struct Known {
    op: u32,
    reply: Vec<u8>,
    value: Vec<u8>,
    begins: usize,
    ends: usize,
}

/// What was delivered to an owner, and how many of its requests are open.
#[derive(Debug)]
struct Owner {
    left: u32,
    items: u32,
    value: Vec<u8>,
    deadline: Instant,
    over: bool,
}

/// A pipe, and the model of what it must deliver.
struct Model {
    pipe: Pipe,
    input: Input,
    verify: bool,
    now: Instant,
    owners: BTreeMap<u32, Owner>,
    unanswered: VecDeque<Known>,
    pushed: usize,
    handed: usize,
    heard: Instant,
}

impl Model {
    fn new(verify: bool) -> Model {
        let now = Instant::now();
        let limits = Limits { in_flight: IN_FLIGHT, stall: STALL, verify };
        Model {
            pipe: Pipe::new(Dialect::Meta, limits, now),
            input: Input::default(),
            verify,
            now,
            owners: BTreeMap::new(),
            unanswered: VecDeque::new(),
            pushed: 0,
            handed: 0,
            heard: now,
        }
    }

    fn push(&mut self, ask: Ask<'_>, value: Vec<u8>, ms: u64) {
        let op = self.owners.len() as u32;
        let request = Request::new(ask, b"key");
        let deadline = self.now + ms as u32 * MS;
        let full = self.pipe.owed() >= IN_FLIGHT;
        let opaque = self.pipe.number(0);
        let before = self.pipe.to_send();
        let pushed = self.pipe.push(&request, Tag { op, item: 0 }, self.now, deadline);
        assert_eq!(pushed.is_err(), full);
        if full {
            assert_eq!(self.pipe.to_send(), before);
            return;
        }
        let mark = if self.verify { format!(" O{}", base36(opaque)) } else { String::new() };
        let reply = match ask {
            Ask::Get(_) if value.is_empty() => format!("EN{mark}\r\n").into_bytes(),
            Ask::Get(_) => [format!("VA {}{mark}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat(),
            _ => format!("HD{mark}\r\n").into_bytes(),
        };
        self.admit(op, 1, deadline, self.pipe.to_send() - before, [(reply, value)].into());
    }

    fn push_group(&mut self, sets: u32) {
        let op = self.owners.len() as u32;
        let deadline = self.now + 1000 * MS;
        let mut bytes = Vec::new();
        let store = Ask::Store(Store { value: b"v", ..Store::default() });
        (0..sets).for_each(|_| Request::new(store, b"key").write(Dialect::Meta, &mut bytes));
        let group = Group { bytes: &bytes, kind: Kind::Store, replies: sets, quiet: false, opaque: None };
        let full = self.pipe.owed() >= IN_FLIGHT;
        assert_eq!(self.pipe.push_group(&group, Tag { op, item: 0 }, self.now, deadline).is_err(), full);
        if !full {
            let replies = vec![(b"HD\r\n".to_vec(), Vec::new()); sets as usize];
            self.admit(op, sets, deadline, bytes.len(), replies);
        }
    }

    fn admit(
        &mut self,
        op: u32,
        left: u32,
        deadline: Instant,
        bytes: usize,
        replies: Vec<(Vec<u8>, Vec<u8>)>,
    ) {
        if self.unanswered.is_empty() {
            self.heard = self.now;
        }
        let begins = self.pushed;
        self.pushed += bytes;
        for (reply, value) in replies {
            self.unanswered.push_back(Known { op, reply, value, begins, ends: self.pushed });
        }
        self.owners.insert(op, Owner { left, items: 0, value: Vec::new(), deadline, over: false });
    }

    fn answer(&mut self, count: usize, part: usize) {
        // A server replies only to requests that have reached it.
        let ready = self.unanswered.iter().take(count).take_while(|known| known.ends <= self.handed).count();
        let mut bytes = Vec::new();
        let mut expected = Vec::new();
        for known in self.unanswered.drain(..ready) {
            bytes.extend_from_slice(&known.reply);
            expected.push(known);
        }
        let mut told = Vec::new();
        for piece in bytes.chunks(part) {
            let mut piece = piece;
            while !piece.is_empty() {
                let room = self.input.room();
                let taken = room.len().min(piece.len());
                assert!(taken > 0, "there is always room");
                room[..taken].copy_from_slice(&piece[..taken]);
                self.input.put(taken);
                piece = &piece[taken..];
                let owners = &mut self.owners;
                let received = self.pipe.receive(&mut self.input, self.now, |tag, delivery| {
                    let owner = owners.get_mut(&tag.op).expect("it was pushed");
                    assert!(!owner.over, "{tag:?} was told after its end");
                    match delivery {
                        Delivery::Part(part) => owner.value.extend_from_slice(part),
                        Delivery::Reply(head, value) => {
                            owner.value.extend_from_slice(value);
                            assert_eq!(tag.item, owner.items);
                            owner.items += 1;
                            owner.left -= 1;
                            owner.over = owner.left == 0;
                            told.push((tag.op, head.status, owner.value.clone()));
                        }
                        Delivery::Refused(head) => panic!("{head:?}"),
                    }
                });
                assert_eq!(received, Ok(()));
                self.heard = self.now;
            }
        }
        // Deliveries are in the order of requests, each with its own value; owners that gave up get none.
        let gone = |op: u32| !told.iter().any(|(told, ..)| *told == op);
        let expected: Vec<_> = expected.into_iter().filter(|known| !gone(known.op)).collect();
        assert_eq!(expected.len(), told.len());
        for (known, (op, status, value)) in expected.iter().zip(&told) {
            assert_eq!(known.op, *op);
            assert!(known.value == *value, "another's value");
            assert_eq!(*status == Status::Value, !known.value.is_empty());
        }
        for known in &expected {
            assert!(self.owners[&known.op].items > 0);
        }
    }

    fn pass(&mut self, ms: u64) -> bool {
        self.now += ms as u32 * MS;
        let owes = !self.unanswered.is_empty();
        let stalled = owes && self.now - self.heard >= STALL;
        let wake = self.pipe.wake_at();
        let mut late = Vec::new();
        let result = self.pipe.tick(self.now, |tag| late.push(tag.op));
        assert_eq!(result == Err(Broken::Stalled), stalled);
        if stalled {
            return false;
        }
        for op in late {
            let owner = self.owners.get_mut(&op).expect("it was pushed");
            assert!(!owner.over && owner.deadline <= self.now && wake.is_some_and(|wake| wake <= self.now));
            owner.over = true;
        }
        assert!(
            self.owners.values().all(|owner| owner.over || owner.deadline > self.now),
            "somebody waits for too long"
        );
        true
    }

    fn end(mut self) {
        let mut told = BTreeMap::new();
        let handed = self.handed;
        self.pipe.fail(|tag, missing, outcome| assert!(told.insert(tag.op, (missing, outcome)).is_none()));
        for (op, owner) in &self.owners {
            let Some((missing, outcome)) = told.get(op) else {
                assert!(owner.over, "{op} is never told");
                continue;
            };
            assert!(!owner.over && *missing == owner.left);
            let begins = self.unanswered.iter().find(|known| known.op == *op).expect("not answered").begins;
            assert_eq!(*outcome == Outcome::Unknown, begins < handed);
        }
    }
}

fn base36(mut number: u32) -> String {
    let mut text = Vec::new();
    while {
        text.push(char::from_digit(number % 36, 36).expect("a digit"));
        number /= 36;
        number > 0
    } {}
    text.into_iter().rev().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn each_request_ends_once_with_its_own_answer(steps in proptest::collection::vec(step(), 1..60), verify: bool) {
        let mut model = Model::new(verify);
        for step in steps {
            match step {
                Step::Get(bytes, ms) => {
                    let n = model.owners.len();
                    let value = format!("value of {n} ").into_bytes().into_iter().cycle().take(bytes).collect();
                    model.push(Ask::Get(Get::default()), value, ms);
                }
                Step::Set(ms) => model.push(Ask::Store(Store { value: b"v", ..Store::default() }), Vec::new(), ms),
                Step::Group(sets) => model.push_group(sets),
                Step::HandOut => {
                    let bytes = model.pipe.hand_out(Vec::new());
                    model.handed += bytes.len();
                    assert_eq!((model.handed, model.pipe.to_send()), (model.pushed, 0));
                }
                Step::Answer(count, part) => model.answer(count, part),
                Step::Abandon(op) => {
                    model.pipe.abandon(op);
                    if let Some(owner) = model.owners.get_mut(&op) {
                        owner.over = true;
                    }
                }
                Step::Pass(ms) => {
                    if !model.pass(ms) {
                        break;
                    }
                }
            }
        }
        model.end();
    }

    /// Any bytes are delivered, or the connection is given up; no request ends twice.
    #[test]
    fn any_bytes_are_taken_without_a_panic(
        bytes in proptest::collection::vec(proptest::sample::select(b"VAHDENSXMN 0123456789cftO\r\nxk".to_vec()), 0..300),
        part in 1..40_usize,
    ) {
        let now = Instant::now();
        let limits = Limits { in_flight: IN_FLIGHT, stall: STALL, verify: false };
        let mut pipe = Pipe::new(Dialect::Meta, limits, now);
        for op in 0..4 {
            let ask = if op % 2 == 0 { Ask::Get(Get::default()) } else { Ask::Store(Store::default()) };
            pipe.push(&Request::new(ask, b"k"), Tag { op, item: 0 }, now, now + MS).expect("there is room");
        }
        let (mut input, mut told) = (Input::default(), 0);
        for piece in bytes.chunks(part) {
            input.room()[..piece.len()].copy_from_slice(piece);
            input.put(piece.len());
            let received = pipe.receive(&mut input, now, |tag, delivery| {
                if matches!(delivery, Delivery::Reply(..)) {
                    assert_eq!(tag.op, told);
                    told += 1;
                }
            });
            if received.is_err() {
                break;
            }
        }
        pipe.fail(|tag, _, _| {
            assert!(tag.op >= told);
        });
    }
}
