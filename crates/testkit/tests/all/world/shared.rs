//! Collections that several RESP clients write: each reply fits the requests of all clients, and in the end the collections
//! hold the result of all of them.
//!
//! ```text
//! counts   hash         fields to which many clients add           no two additions have the same reply
//! board    sorted set   members to whose scores many clients add   the same, and its order is that of the scores
//! queues   two lists    numbers are pushed, moved and popped       each number is popped once or is left
//! sides    two sets     members are moved from one to the other    each is in one of them, at every moment
//! log      stream       entries are added, delivered to a group,   each is delivered once, and pending or acknowledged;
//!                       acknowledged and deleted                   no empty reply while one is left to deliver
//! ```
//!
//! The hash and the sorted set are trees, the sets and the stream change between trees and leaves, and the texts of some numbers
//! are stored apart.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use larder_store::{Collection, Element, Guard, ScoreRule, Start, Store, StreamId, Type};
use larder_testkit::proof;
use larder_testkit::redis::frame::Frame;

use crate::world::asking::Asking;
use crate::world::books::Counter;
use crate::world::client::Client;
use crate::world::judge::shown;
use crate::world::log::{GROUP, LOG, Log};
use crate::world::part::{Part, bulk, words};
use crate::world::random::Random;
use crate::world::scene::Scene;
use crate::world::simulation::START_MS;

const COUNTS: &str = "counts";
const BOARD: &str = "board";
const QUEUES: [&str; 2] = ["queue-0", "queue-1"];
const SIDES: [&str; 2] = ["left", "right"];
const CONSUMERS: [&str; 2] = ["one", "two"];

/// Fields of the hash, members of the sorted set, and members of both sets together.
const ELEMENTS: usize = 200;
/// The first elements, for each of which there are many requests.
const OFTEN: usize = 3;
/// Most numbers that are pushed or popped together.
const TOGETHER: usize = 3;
/// Length of the text of one in [`LONG_ONE_IN`] numbers, if the plan allows such values. A text this long is
/// stored apart.
const LONG_BYTES: usize = 20_000;
const LONG_ONE_IN: u64 = 9;
/// How long a client waits for a number, in seconds.
const WAITS: &[u8] = b"0.05";

/// A request, as far as the right reply depends on it.
#[derive(Clone, Debug)]
pub enum Ask {
    /// HINCRBY or ZINCRBY of an element's counter by `by`; `before` is the sum of acknowledged additions.
    Add {
        board: bool,
        element: usize,
        by: u64,
        before: u64,
    },
    /// The members of the board, with their scores.
    Board,
    /// These numbers are pushed.
    Push(Vec<u64>),
    /// At most this many numbers are popped; the reply begins with the name of the queue if the request waits.
    Pop {
        most: usize,
        waited: bool,
    },
    /// A number is moved to the other queue.
    Rotate,
    /// A member is moved to the other side.
    Move,
    /// The members of both sides at one moment.
    Sides,
    /// How many members are on both sides.
    Both,
    /// XADD of this number.
    Log(u64),
    /// XREADGROUP, and the moment of the request.
    Deliver {
        asked: u64,
    },
    /// XACK of these entries; `Erase` is the XDEL after it.
    Acknowledge(Vec<StreamId>),
    Erase(Vec<StreamId>),
}

/// The expected states of the collections.
#[derive(Debug, Default)]
pub struct Shared {
    fields: BTreeMap<usize, Counter>,
    scores: BTreeMap<usize, Counter>,
    /// The next number that is pushed.
    next: u64,
    pushed: BTreeSet<u64>,
    /// Numbers of pushes on connections that ended before the reply.
    perhaps: BTreeSet<u64>,
    popped: BTreeSet<u64>,
    /// How many numbers may have been popped on connections that ended before the reply.
    untold: usize,
    log: Log,
    /// Replies that were judged.
    pub answers: u64,
}

/// The name of a field or a member.
fn name(element: usize) -> String {
    format!("element-{element:03}")
}

/// Puts the collections into an empty store: all counters are 0, all members are on one side, the queues are empty.
pub fn begin(guard: &mut Guard<'_>) {
    let [counts, board, side] = [COUNTS, BOARD, SIDES[0]].map(|name| guard.key(name.as_bytes()));
    for element in 0..ELEMENTS {
        let name = name(element);
        let name = name.as_bytes();
        let pair = std::iter::once((name, &b"0"[..]));
        guard.hash_set(&counts, pair).expect("an empty store has room");
        let scored = std::iter::once((0.0, name));
        guard.sorted_add(&board, ScoreRule::default(), scored).expect("an empty store has room");
        guard.set_add(&side, std::iter::once(name)).expect("an empty store has room");
    }
    let (log, start) = (guard.key(LOG.as_bytes()), Start::Behind(StreamId::MIN));
    guard.group_create(&log, GROUP.as_bytes(), start, None, true).expect("an empty store has room");
}

/// The text of a number of a queue or the log, of at most `most` bytes.
fn text_of(of: &str, number: u64, most: usize) -> Vec<u8> {
    let bytes = if number.is_multiple_of(LONG_ONE_IN) { LONG_BYTES.min(most) } else { 40 };
    proof::value(of, number, bytes)
}

fn id(text: &[u8]) -> Result<StreamId, String> {
    let parts = std::str::from_utf8(text).ok().and_then(|text| text.split_once('-'));
    let id = parts.and_then(|(ms, seq)| Some(StreamId { ms: ms.parse().ok()?, seq: seq.parse().ok()? }));
    id.ok_or_else(|| format!("this is no ID: {}", shown(text)))
}

fn number(text: &[u8]) -> Result<u64, String> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| format!("this is no number: {}", shown(text)))
}

/// All strings and numbers of a reply, in order.
fn texts(frame: &Frame) -> Vec<&[u8]> {
    if !frame.inside.is_empty() {
        return frame.inside.iter().flat_map(texts).collect();
    }
    match (&frame.body, frame.line[0]) {
        (Some(body), _) => vec![body.as_slice()],
        // Null, or an empty list.
        (None, b'$' | b'*' | b'~' | b'_') => Vec::new(),
        (None, _) => vec![&frame.line[1..]],
    }
}

impl Shared {
    fn counters(&mut self, board: bool) -> &mut BTreeMap<usize, Counter> {
        if board { &mut self.scores } else { &mut self.fields }
    }

    /// Notes a request that adds to an element's counter.
    fn add(&mut self, board: bool, element: usize, by: u64) -> Ask {
        let counter = self.counters(board).entry(element).or_default();
        counter.asked += by;
        Ask::Add { board, element, by, before: counter.sure }
    }

    /// Notes that a number was popped.
    fn pop(&mut self, text: &[u8]) -> Result<(), String> {
        let number = proof::version(QUEUES[0], text)?;
        if number >= self.next || !self.popped.insert(number) {
            return Err(format!("{number} was popped before, or never pushed"));
        }
        Ok(())
    }

    /// Count of popped numbers that clients received.
    pub fn popped(&self) -> u64 {
        self.popped.len() as u64
    }

    /// Count of delivered entries of the log that clients received.
    pub fn delivered(&self) -> u64 {
        self.log.told.len() as u64
    }

    /// Judges a reply. Returns its length in bytes; `None` if it is incomplete.
    ///
    /// # Errors
    /// What is wrong with the reply.
    pub fn judge(&mut self, ask: &Ask, rest: &[u8]) -> Result<Option<usize>, String> {
        let Some((frame, bytes)) = Frame::read(rest)? else { return Ok(None) };
        // In worlds with contended keys there is memory for everything, and nothing deletes a collection or its group.
        if frame.is_error() {
            return Err(format!("{ask:?} is refused: {}", frame.shown()));
        }
        let texts = texts(&frame);
        let wrong = || format!("this is no answer to {ask:?}");
        match ask {
            Ask::Add { board, element, by, before } => {
                let &[text] = texts.as_slice() else { return Err(wrong()) };
                let counter = self.counters(*board).entry(*element).or_default();
                counter.answered(number(text)?, *by, *before)?;
            }
            Ask::Board => {
                let mut last = None;
                for pair in texts.chunks(2) {
                    let &[member, score] = pair else { return Err(wrong()) };
                    let place = (number(score)?, member);
                    if last.replace(place).is_some_and(|last| last >= place) {
                        return Err(format!("{} is out of order", shown(member)));
                    }
                }
                let members: BTreeSet<&[u8]> = texts.iter().copied().step_by(2).collect();
                if !is_all(&members) || texts.len() != 2 * ELEMENTS {
                    return Err(format!("the board has {} members", members.len()));
                }
            }
            Ask::Push(numbers) => {
                let &[text] = texts.as_slice() else { return Err(wrong()) };
                if number(text)? < numbers.len() as u64 {
                    return Err("a queue is shorter than what was just pushed".into());
                }
                self.pushed.extend(numbers);
            }
            Ask::Pop { most, waited } => {
                let numbers = texts.get(usize::from(*waited)..).unwrap_or_default();
                if numbers.len() > *most || *waited && texts.len() == 1 {
                    return Err(wrong());
                }
                for text in numbers {
                    self.pop(text)?;
                }
            }
            Ask::Rotate => {
                if let Some(text) = texts.first() {
                    let number = proof::version(QUEUES[0], text)?;
                    if number >= self.next || texts.len() > 1 {
                        return Err(wrong());
                    }
                }
            }
            Ask::Move => {
                if !matches!(texts.as_slice(), [b"0" | b"1"]) {
                    return Err(wrong());
                }
            }
            Ask::Sides => {
                let members: BTreeSet<&[u8]> = texts.iter().copied().collect();
                if !is_all(&members) || texts.len() != ELEMENTS {
                    return Err(format!(
                        "{} members are on two sides, {} on any",
                        texts.len(),
                        members.len()
                    ));
                }
            }
            Ask::Both => {
                if !matches!(texts.as_slice(), [b"0"]) {
                    return Err("a member is on both sides".into());
                }
            }
            Ask::Log(number) => {
                let &[text] = texts.as_slice() else { return Err(wrong()) };
                self.log.add(id(text)?, *number)?;
            }
            Ask::Deliver { asked } => match texts.as_slice() {
                [] => self.log.deny(*asked),
                // The stream and its entries. Each has an ID, the name of the field and its value.
                [name, entries @ ..] if *name == LOG.as_bytes() && !entries.is_empty() => {
                    for entry in entries.chunks(3) {
                        let &[of, b"n", text] = entry else { return Err(wrong()) };
                        self.log.deliver(id(of)?, text, *asked)?;
                    }
                }
                _ => return Err(wrong()),
            },
            Ask::Acknowledge(ids) | Ask::Erase(ids) => {
                let &[text] = texts.as_slice() else { return Err(wrong()) };
                let count = number(text)?;
                if count != ids.len() as u64 {
                    return Err(format!("{count} of {ids:?} were there"));
                }
                let erases = matches!(ask, Ask::Erase(_));
                let done = if erases { &mut self.log.erased } else { &mut self.log.acknowledged };
                done.extend(ids);
            }
        }
        self.answers += 1;
        Ok(Some(bytes))
    }

    /// Notes that a connection ended before the reply to this request.
    pub fn left(&mut self, ask: Ask) {
        match ask {
            Ask::Add { board, element, by, .. } => {
                self.counters(board).entry(element).or_default().unsure += by;
            }
            Ask::Push(numbers) => self.perhaps.extend(numbers),
            Ask::Pop { most, .. } => self.untold += most,
            Ask::Log(number) => drop(self.log.perhaps.insert(number)),
            Ask::Acknowledge(ids) | Ask::Erase(ids) => self.log.perhaps_gone.extend(ids),
            // Delivered entries are pending.
            Ask::Deliver { .. } => {}
            Ask::Board | Ask::Rotate | Ask::Move | Ask::Sides | Ask::Both => {}
        }
    }

    /// Checks what the collections hold at the end.
    ///
    /// # Errors
    /// What is wrong.
    pub fn agrees(&self, store: &Arc<Store>) -> Result<(), String> {
        let mut worker = store.worker().expect("those of the server are gone");
        let mut guard = worker.enter(START_MS);
        let key = guard.key(COUNTS.as_bytes());
        let hash = guard.collection(&key, Type::Hash).ok().flatten().ok_or("the counts are gone")?;
        for element in 0..ELEMENTS {
            let field = hash.field(name(element).as_bytes()).ok_or("a field of the counts is gone")?;
            counted(&self.fields, element, number(&text(&hash, &field))?)?;
        }
        let key = guard.key(BOARD.as_bytes());
        let board = guard.collection(&key, Type::SortedSet).ok().flatten().ok_or("the board is gone")?;
        let mut last = None;
        for entry in board.entries(0..board.len()) {
            let place = (entry.score as u64, text(&board, &entry.name));
            let named = board.score(&place.1);
            if named != Some(entry.score) || last.as_ref().is_some_and(|last| *last >= place) {
                return Err(format!("the board says {entry:?} by its order, {named:?} by its name"));
            }
            last = Some(place);
        }
        for element in 0..ELEMENTS {
            let score = board.score(name(element).as_bytes()).ok_or("a member of the board is gone")?;
            counted(&self.scores, element, score as u64)?;
        }
        self.queues_agree(&mut guard)?;
        self.log.agrees(&mut guard)?;
        let mut members = BTreeSet::new();
        for side in SIDES {
            let key = guard.key(side.as_bytes());
            let there = guard.collection(&key, Type::Set).map_err(|error| format!("{error:?}"))?;
            let Some(set) = there else { continue };
            for entry in set.entries(0..set.len()) {
                let member = text(&set, &entry.name);
                if !members.insert(member.clone()) {
                    return Err(format!("{} is on both sides", shown(&member)));
                }
            }
        }
        if !is_all(&members.iter().map(Vec::as_slice).collect()) {
            return Err(format!("{} members are on the two sides", members.len()));
        }
        Ok(())
    }

    /// Checks that each pushed number was popped once, is left, or may have been popped for a connection that had ended.
    fn queues_agree(&self, guard: &mut Guard<'_>) -> Result<(), String> {
        let mut seen = self.popped.clone();
        for queue in QUEUES {
            let key = guard.key(queue.as_bytes());
            let there = guard.collection(&key, Type::List).map_err(|error| format!("{error:?}"))?;
            let Some(list) = there else { continue };
            for entry in list.entries(0..list.len()) {
                let number = proof::version(QUEUES[0], &text(&list, &entry.name))?;
                if !seen.insert(number) {
                    return Err(format!("{number} is left, and was popped or is left twice"));
                }
            }
        }
        let is_known = |number: &u64| self.pushed.contains(number) || self.perhaps.contains(number);
        if let Some(number) = seen.iter().find(|&number| !is_known(number)) {
            return Err(format!("{number} was never pushed"));
        }
        let missing = self.pushed.difference(&seen).count();
        if missing > self.untold {
            return Err(format!("{missing} numbers are missing, of which {} may be untold", self.untold));
        }
        Ok(())
    }
}

fn is_all(members: &BTreeSet<&[u8]>) -> bool {
    members.len() == ELEMENTS && (0..ELEMENTS).all(|element| members.contains(name(element).as_bytes()))
}

/// The string of an element, which may be stored apart.
fn text(of: &Collection<'_>, element: &Element<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    of.each_part(element, |part| text.extend_from_slice(part));
    text
}

/// Checks that an element's counter is the sum of the additions.
fn counted(counters: &BTreeMap<usize, Counter>, element: usize, number: u64) -> Result<(), String> {
    let agrees = counters.get(&element).map_or(number == 0, |counter| counter.agrees(number));
    let counter = counters.get(&element);
    if agrees { Ok(()) } else { Err(format!("{} is {number}, and {counter:?} were added", name(element))) }
}

/// A random element, more often one of the first.
fn some(random: &mut Random) -> usize {
    let among = random.of(&[OFTEN, ELEMENTS]);
    random.index(among)
}

impl Client {
    /// A request on a collection to which other clients write, too.
    pub fn ask_shared(&self, scene: &mut Scene) -> Asking {
        let one = |command: &[&[u8]], ask| Asking::new(words(command), vec![Part::Shared(ask)]);
        let (random, shared) = (&mut scene.random, &mut scene.books.shared);
        let from = random.index(2);
        let [queue, other] = [QUEUES[from], QUEUES[1 - from]].map(str::as_bytes);
        let [left, right] = [SIDES[from], SIDES[1 - from]].map(str::as_bytes);
        match random.below(15) {
            board @ 0..4 => {
                let (board, element, by) = (board < 2, some(random), 1 + random.below(5));
                let (name, number) = (name(element), by.to_string());
                let (name, number) = (name.as_bytes(), number.as_bytes());
                let ask = shared.add(board, element, by);
                if board {
                    one(&[b"ZINCRBY", BOARD.as_bytes(), number, name], ask)
                } else {
                    one(&[b"HINCRBY", COUNTS.as_bytes(), name, number], ask)
                }
            }
            4 => one(&[b"ZRANGE", BOARD.as_bytes(), b"0", b"-1", b"WITHSCORES"], Ask::Board),
            5..7 => {
                let numbers: Vec<u64> = (shared.next..).take(1 + random.index(TOGETHER)).collect();
                shared.next += numbers.len() as u64;
                let texts: Vec<Vec<u8>> =
                    numbers.iter().map(|number| text_of(QUEUES[0], *number, scene.plan.value_max)).collect();
                let mut push = vec![random.of(&[&b"LPUSH"[..], b"RPUSH"]), queue];
                push.extend(texts.iter().map(Vec::as_slice));
                one(&push, Ask::Push(numbers))
            }
            7 => one(&[b"LPOP", queue, b"3"], Ask::Pop { most: TOGETHER, waited: false }),
            // A connection that waits ends without a reply if its client sends no more, or the server stops.
            8 if !scene.plan.resets && !scene.plan.stops_early => {
                one(&[b"BLPOP", queue, other, WAITS], Ask::Pop { most: 1, waited: true })
            }
            8 => one(&[b"RPOP", queue], Ask::Pop { most: 1, waited: false }),
            9 => one(&[b"LMOVE", queue, other, b"LEFT", b"RIGHT"], Ask::Rotate),
            10 => one(&[b"SMOVE", left, right, name(some(random)).as_bytes()], Ask::Move),
            11 => {
                let number = shared.log.next;
                shared.log.next += 1;
                let text = text_of(LOG, number, scene.plan.value_max);
                one(&[b"XADD", LOG.as_bytes(), b"*", b"n", &text], Ask::Log(number))
            }
            12 if !shared.log.open.is_empty() => {
                let ids = shared.log.take_some(TOGETHER);
                let texts: Vec<String> = ids.iter().map(|id| format!("{}-{}", id.ms, id.seq)).collect();
                let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
                let acknowledge = [&[&b"XACK"[..], LOG.as_bytes(), GROUP.as_bytes()][..], &texts].concat();
                let erase = [&[&b"XDEL"[..], LOG.as_bytes()][..], &texts].concat();
                let parts = vec![Part::Shared(Ask::Acknowledge(ids.clone())), Part::Shared(Ask::Erase(ids))];
                Asking::new([words(&acknowledge), words(&erase)].concat(), parts)
            }
            12 | 13 => {
                let consumer = random.of(&CONSUMERS).as_bytes();
                let (log, group) = (LOG.as_bytes(), GROUP.as_bytes());
                let read: [&[u8]; 9] =
                    [b"XREADGROUP", b"GROUP", group, consumer, b"COUNT", b"3", b"STREAMS", log, b">"];
                one(&read, Ask::Deliver { asked: shared.log.now() })
            }
            _ if random.one_in(2) => one(&[b"SUNION", left, right], Ask::Sides),
            _ if self.contesting.is_none() && random.one_in(2) => {
                let commands: [&[&[u8]]; 4] =
                    [&[b"MULTI"], &[b"SMEMBERS", left], &[b"SMEMBERS", right], &[b"EXEC"]];
                let known = [&b"+OK\r\n"[..], b"+QUEUED\r\n", b"+QUEUED\r\n"];
                let mut parts: Vec<Part> = known.map(|bytes| Part::Bytes(bytes.into())).into();
                parts.push(Part::Shared(Ask::Sides));
                Asking::new(commands.map(words).concat(), parts)
            }
            _ => one(&[b"SINTERCARD", b"2", left, right], Ask::Both),
        }
    }
}

#[test]
fn a_refusal_is_no_answer_to_any_ask() {
    let ids = vec![StreamId { ms: 1, seq: 0 }];
    let asks = [
        Ask::Add { board: false, element: 0, by: 1, before: 0 },
        Ask::Board,
        Ask::Push(vec![0]),
        Ask::Pop { most: 1, waited: false },
        Ask::Pop { most: 1, waited: true },
        Ask::Rotate,
        Ask::Move,
        Ask::Sides,
        Ask::Both,
        Ask::Log(0),
        Ask::Deliver { asked: 1 },
        Ask::Acknowledge(ids.clone()),
        Ask::Erase(ids),
    ];
    for ask in asks {
        let mut shared = Shared::default();
        let judged = shared.judge(&ask, b"-NOGROUP no such group\r\n");
        assert_eq!(judged, Err(format!("{ask:?} is refused: -NOGROUP no such group")));
        assert_eq!(shared.answers, 0);
    }
}

#[test]
fn a_delivery_is_nothing_or_the_log_and_its_entries() {
    let judged = |reply: &[u8]| {
        let mut shared = Shared::default();
        shared.log.next = 1;
        shared.judge(&Ask::Deliver { asked: 1 }, reply).map(|bytes| (bytes, shared.delivered()))
    };
    for nothing in [&b"*-1\r\n"[..], b"_\r\n"] {
        assert_eq!(judged(nothing), Ok((Some(nothing.len()), 0)));
    }
    let entry = |number| {
        let text = text_of(LOG, number, 40);
        [&b"*1\r\n*2\r\n$3\r\n1-0\r\n*2\r\n$1\r\nn\r\n"[..], &bulk(&text)].concat()
    };
    let of = |head: &[u8], entries: &[u8]| judged(&[head, entries].concat()).map(|(_, delivered)| delivered);
    // The replies of RESP2, and of RESP3.
    for head in [&b"*1\r\n*2\r\n$3\r\nlog\r\n"[..], b"%1\r\n$3\r\nlog\r\n"] {
        assert_eq!(of(head, &entry(0)), Ok(1));
        assert!(of(head, &entry(1)).unwrap_err().contains("never added"));
        assert_eq!(of(head, b"*0\r\n"), Err("this is no answer to Deliver { asked: 1 }".to_owned()));
    }
    let other = of(b"*1\r\n*2\r\n$3\r\nlag\r\n", &entry(0));
    assert_eq!(other, Err("this is no answer to Deliver { asked: 1 }".to_owned()));
}
