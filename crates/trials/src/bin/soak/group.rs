//! Streams and the consumers of a group: some clients add numbers, others read, claim and acknowledge them.
//! In a phase in which nothing may be lost, each entry is acknowledged once, or is pending, or was not
//! delivered yet.

use crate::dialect::Reply;
use crate::queue::{ask, leave};
use crate::random::Random;
use crate::wire::Wire;
use crate::world::{Span, World};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

/// Clients that add, and consumers.
pub const ADDERS: usize = 2;
pub const CONSUMERS: usize = 3;
/// Streams.
pub const STREAMS: usize = 2;
/// The group of each.
pub const GROUP: &str = "group";
/// How long a consumer waits for an entry, in milliseconds. No phase ends meanwhile.
const WAITS: &str = "50";
/// Entries that are read or claimed together.
const TOGETHER: &str = "3";
/// Bytes of a second field, now and then.
const LONG_BYTES: usize = 3000;
/// One entry in this many has a second field that makes it about as long as a leaf holds, or longer, so that
/// it is stored apart.
const APART_ONE_IN: usize = 400;
const APART_BYTES: [usize; 2] = [16_000, 60_000];
/// Longest pause between two entries, in microseconds.
const PAUSE_US: usize = 3000;

/// The ID of an entry.
pub type Id = (u64, u64);
/// A stream, and an entry of it.
type StreamEntry = (usize, Id);

/// The fate of the entries of a phase.
#[derive(Debug, Default)]
pub struct Work {
    added: BTreeMap<StreamEntry, u64>,
    /// Numbers whose additions were on connections that ended before the reply.
    perhaps: BTreeSet<u64>,
    /// Entries that consumers received, with their numbers.
    told: BTreeMap<StreamEntry, u64>,
    acknowledged: BTreeSet<StreamEntry>,
    /// Entries whose XACK was on a connection that ended before the reply.
    perhaps_acknowledged: BTreeSet<StreamEntry>,
}

/// The state of a stream and its group.
#[derive(Clone, Debug, Default)]
pub struct Left {
    pub entries: BTreeMap<Id, u64>,
    pub pending: BTreeSet<Id>,
    /// The last delivered entry.
    pub last: Id,
}

impl Work {
    /// What is wrong, if the streams are in these states.
    pub fn wrong(&self, left: &[Left]) -> Vec<String> {
        let mut wrong = Vec::new();
        for (stream, Left { entries, pending, last }) in left.iter().enumerate() {
            for (id, number) in entries {
                let entry = (stream, *id);
                let known = self.added.get(&entry).map_or(self.perhaps.contains(number), |n| n == number);
                if !known {
                    wrong.push(format!("{entry:?} is {number}, which was never added there"));
                }
                let (is_acknowledged, is_pending) =
                    (self.acknowledged.contains(&entry), pending.contains(id));
                let is_lost = !is_acknowledged && !is_pending && !self.perhaps_acknowledged.contains(&entry);
                if id > last && (is_acknowledged || is_pending) {
                    wrong.push(format!("{entry:?} was delivered, and {last:?} is said to be the last"));
                } else if is_acknowledged && is_pending {
                    wrong.push(format!("{entry:?} was acknowledged, and is pending"));
                } else if id <= last && is_lost {
                    wrong.push(format!("{entry:?} is neither pending nor acknowledged"));
                }
            }
            if let Some(id) = pending.iter().find(|&id| !entries.contains_key(id)) {
                wrong.push(format!("{id:?} of stream {stream} is pending and not there"));
            }
        }
        let there = |entry: &StreamEntry| left.get(entry.0).and_then(|left| left.entries.get(&entry.1));
        for (entry, number) in self.added.iter().chain(&self.told) {
            if there(entry) != Some(number) {
                wrong.push(format!("{entry:?} was {number}, and is {:?}", there(entry)));
            }
        }
        wrong
    }

    /// Number of acknowledged entries.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.len()
    }
}

/// The names of the streams of this round.
pub fn names(world: &World) -> [String; STREAMS] {
    let round = world.round.load(SeqCst);
    std::array::from_fn(|n| format!("stream:{round}:{n}"))
}

/// An ID as servers write it.
pub fn id(reply: &Reply) -> Option<Id> {
    let Reply::Bulk(Some(text)) = reply else { return None };
    let (ms, seq) = std::str::from_utf8(text).ok()?.split_once('-')?;
    Some((ms.parse().ok()?, seq.parse().ok()?))
}

/// `bytes` bytes for the second field of the entry with this number. The field's name says how many.
fn filling(number: u64, bytes: usize) -> String {
    let text = number.to_string();
    let mut all = text.repeat(bytes / text.len() + 1);
    all.truncate(bytes);
    all
}

/// The entries in a reply to XRANGE, with their numbers; `None` if one differs from what was added.
pub fn entries(reply: &Reply) -> Option<BTreeMap<Id, u64>> {
    let Reply::Array(Some(entries)) = reply else { return None };
    let entry = |entry: &Reply| {
        let Reply::Array(Some(entry)) = entry else { return None };
        let [of, Reply::Array(Some(fields))] = entry.as_slice() else { return None };
        let Some(Reply::Bulk(Some(number))) = fields.get(1) else { return None };
        let number = std::str::from_utf8(number).ok()?.parse::<u64>().ok()?;
        let is_whole = match &fields[2..] {
            [] => true,
            [Reply::Bulk(Some(bytes)), Reply::Bulk(Some(more))] => {
                let bytes = std::str::from_utf8(bytes).ok()?.parse::<usize>().ok()?;
                bytes == more.len() && filling(number, bytes).as_bytes() == &more[..]
            }
            _ => false,
        };
        Some((id(of)?, number)).filter(|_| is_whole)
    };
    entries.iter().map(entry).collect()
}

/// Adds entries until the soak ends.
pub fn add(world: &World, seed: u64, number: usize) {
    let mut random = Random::of(seed, (7 << 32) + number as u64);
    let mut wire: Option<Wire> = None;
    let mut next = number as u64;
    while world.runs() {
        world.within(|phase| {
            if !phase.counts {
                return;
            }
            let stream = random.below(STREAMS);
            let (name, text) = (names(world)[stream].clone(), next.to_string());
            let bytes = match random.below(APART_ONE_IN) {
                0 => APART_BYTES[0] + random.below(APART_BYTES[1] - APART_BYTES[0]),
                _ if random.chance(5) => random.below(LONG_BYTES),
                _ => 0,
            };
            let (more, bytes) = (filling(next, bytes), bytes.to_string());
            let mut words = vec!["XADD", &name, "*", "n", &text];
            if !more.is_empty() {
                words.extend([&bytes, &more].map(String::as_str));
            }
            let answer = ask(world, &mut wire, &words, &mut random);
            let mut work = world.work.lock().expect("not poisoned");
            match answer.as_ref().map(|answer| (answer, id(answer))) {
                None => drop(work.perhaps.insert(next)),
                Some((_, Some(id))) => {
                    if work.added.insert((stream, id), next).is_some() {
                        world.complain(&format!("two entries of {name} have the ID {id:?}"));
                    }
                }
                Some((answer, None)) => world.complain(&format!("XADD {name} was answered {answer:?}")),
            }
            next += ADDERS as u64;
        });
        thread::sleep(Duration::from_micros(random.below(PAUSE_US) as u64));
    }
    leave(world, wire);
}

/// Reads and acknowledges entries until the soak ends.
pub fn consume(world: &World, seed: u64, number: usize) {
    let mut random = Random::of(seed, (8 << 32) + number as u64);
    let mut wire: Option<Wire> = None;
    let name = format!("consumer{number}");
    while world.runs() {
        let idle = world.within(|phase| {
            if phase.counts {
                let told = take_some(world, &name, &mut wire, &mut random);
                acknowledge(world, told, &mut wire, &mut random);
            }
            !phase.counts
        });
        if idle {
            thread::sleep(Duration::from_millis(20));
        }
    }
    leave(world, wire);
}

/// Reads new entries, or claims those of other consumers.
fn take_some(world: &World, name: &str, wire: &mut Option<Wire>, random: &mut Random) -> Vec<StreamEntry> {
    let streams = names(world);
    let [one, two] = streams.each_ref().map(String::as_str);
    let claimed = random.below(STREAMS);
    let claims = random.chance(15);
    let words = if claims {
        vec!["XAUTOCLAIM", [one, two][claimed], GROUP, name, "0", "0-0", "COUNT", TOGETHER]
    } else {
        let of = ["STREAMS", one, two, ">", ">"];
        [&["XREADGROUP", "GROUP", GROUP, name, "COUNT", TOGETHER, "BLOCK", WAITS][..], &of].concat()
    };
    let before = world.moment();
    // Entries that were delivered to a connection that has ended are pending.
    let Some(answer) = ask(world, wire, &words, random) else { return Vec::new() };
    let span = Span { before, after: world.moment() };
    if span.may_be_full() && matches!(&answer, Reply::Error(text) if text.starts_with("OOM")) {
        // Nothing was delivered; entries that were claimed before are pending.
        return Vec::new();
    }
    let found = if claims {
        match &answer {
            // XAUTOCLAIM's reply: the next ID, the entries, and the deleted ones.
            Reply::Array(Some(told)) if told.len() == 3 => {
                entries(&told[1]).map(|entries| vec![(claimed, entries)])
            }
            _ => None,
        }
    } else {
        of_streams(&answer, &streams)
    };
    let Some(found) = found else {
        world.complain(&format!("{} was answered {answer:?}", words[0]));
        return Vec::new();
    };
    let mut work = world.work.lock().expect("not poisoned");
    let mut taken = Vec::new();
    for (stream, entries) in found {
        for (id, number) in entries {
            let entry = (stream, id);
            if work.told.insert(entry, number).is_some_and(|before| before != number) {
                world.complain(&format!("{entry:?} is {number}, and was another number before"));
            }
            taken.push(entry);
        }
    }
    taken
}

/// The entries in a reply to XREADGROUP, by stream.
fn of_streams(answer: &Reply, names: &[String; STREAMS]) -> Option<Vec<(usize, BTreeMap<Id, u64>)>> {
    let told = match answer {
        Reply::Array(None) => return Some(Vec::new()),
        Reply::Array(Some(told)) => told,
        _ => return None,
    };
    let stream = |told: &Reply| {
        let Reply::Array(Some(told)) = told else { return None };
        let [Reply::Bulk(Some(name)), list] = told.as_slice() else { return None };
        Some((names.iter().position(|have| have.as_bytes() == name)?, entries(list)?))
    };
    told.iter().map(stream).collect()
}

/// Acknowledges most of the entries, one by one.
fn acknowledge(world: &World, entries: Vec<StreamEntry>, wire: &mut Option<Wire>, random: &mut Random) {
    let names = names(world);
    for entry in entries {
        if random.chance(10) {
            continue;
        }
        let (stream, (ms, seq)) = entry;
        let answer = ask(world, wire, &["XACK", &names[stream], GROUP, &format!("{ms}-{seq}")], random);
        let mut work = world.work.lock().expect("not poisoned");
        match answer {
            None => drop(work.perhaps_acknowledged.insert(entry)),
            // Another consumer has claimed and acknowledged it before.
            Some(Reply::Number(0)) => {}
            Some(Reply::Number(1)) if work.acknowledged.insert(entry) => {}
            Some(answer) => world.complain(&format!("XACK of {entry:?} was answered {answer:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Reply {
        Reply::Bulk(Some(text.into()))
    }

    #[test]
    fn each_entry_is_acknowledged_once_or_pending_or_not_delivered() {
        let work = Work {
            added: [((0, (1, 0)), 10), ((0, (2, 0)), 11), ((0, (3, 0)), 12)].into(),
            perhaps: [13].into(),
            told: [((0, (1, 0)), 10), ((0, (2, 0)), 11)].into(),
            acknowledged: [(0, (1, 0))].into(),
            perhaps_acknowledged: BTreeSet::new(),
        };
        let right = Left {
            entries: [((1, 0), 10), ((2, 0), 11), ((3, 0), 12), ((4, 0), 13)].into(),
            pending: [(2, 0)].into(),
            last: (2, 0),
        };
        let none = Left::default;
        assert!(work.wrong(&[right.clone(), none()]).is_empty());
        let mut more = right.entries.clone();
        more.insert((5, 0), 14);
        let wrong = [
            // An entry that was added is gone, …
            Left { entries: [((1, 0), 10), ((2, 0), 11), ((4, 0), 13)].into(), ..right.clone() },
            // … one was never added, …
            Left { entries: more, ..right.clone() },
            // … what was delivered is neither pending nor acknowledged, …
            Left { pending: BTreeSet::new(), ..right.clone() },
            // … or both, or was not delivered.
            Left { pending: [(1, 0), (2, 0)].into(), ..right.clone() },
            Left { pending: [(2, 0), (3, 0)].into(), ..right.clone() },
        ];
        for left in wrong {
            assert_eq!(work.wrong(&[left.clone(), none()]).len(), 1, "{left:?}");
        }
        let unsure = Work { perhaps_acknowledged: [(0, (2, 0))].into(), ..work };
        assert!(unsure.wrong(&[Left { pending: BTreeSet::new(), ..right }, none()]).is_empty());
    }

    #[test]
    fn what_servers_tell_of_streams_is_read() {
        let entry = |id: &str, number: &str| {
            Reply::Array(Some(vec![bulk(id), Reply::Array(Some(vec![bulk("n"), bulk(number)]))]))
        };
        let list = Reply::Array(Some(vec![entry("5-1", "7"), entry("5-2", "9")]));
        let all: BTreeMap<Id, u64> = [((5, 1), 7), ((5, 2), 9)].into();
        assert_eq!(entries(&list), Some(all.clone()));
        let names = ["a".to_owned(), "b".to_owned()];
        let told = Reply::Array(Some(vec![Reply::Array(Some(vec![bulk("b"), list]))]));
        assert_eq!(of_streams(&told, &names), Some(vec![(1, all)]));
        assert_eq!(of_streams(&Reply::Array(None), &names), Some(Vec::new()));
        assert_eq!(of_streams(&Reply::Error("ERR".into()), &names), None);
        assert_eq!(entries(&Reply::Array(Some(vec![entry("5", "7")]))), None);
        let with = |more: [&str; 2]| {
            let fields = ["n", "71"].into_iter().chain(more).map(bulk).collect();
            let entry = Reply::Array(Some(vec![bulk("5-1"), Reply::Array(Some(fields))]));
            entries(&Reply::Array(Some(vec![entry])))
        };
        assert_eq!(with(["5", "71717"]), Some([((5, 1), 71)].into()));
        assert_eq!(filling(71, 5), "71717");
        for more in [["5", "7171"], ["5", "71718"], ["4", "71717"], ["x", "71717"]] {
            assert_eq!(with(more), None, "{more:?}");
        }
    }
}
