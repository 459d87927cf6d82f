//! `ycsb-e`: scans of records in the order of their keys, and inserts.
//!
//! As YCSB's binding for Redis has them, a record is a hash of ten fields, and a sorted set has the keys of all records.
//! There every key has the same score, so that their order is that of their bytes:
//!
//! ```text
//! insert   HSET key field0 … field9 …      ZADD index 0 key                        both together
//! scan     ZRANGEBYLEX index [key + LIMIT 0 n      then HGETALL of each, together
//! ```
//!
//! Records that were stored beforehand have the numbers from 0 on, without gaps, so that a scan must find known keys among them.
//! Inserted records have higher numbers, a range of its own for each client.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_protocol::client::{Malformed, Protocol, command};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::command::counted;
use super::pace::{Pace, share};
use super::{Options, Ran, shared_cores};
use crate::books::{Books, check_back, evicted_since};
use crate::connection::Check;
use crate::contender::Target;
use crate::control::Control;
use crate::dialog::{Agent, Dialog, Step, Taken};
use crate::error::Error;
use crate::experiment::Checks;
use crate::fill::READ_BACK_MAX;
use crate::keys::{Choice, Chooser, Keyspace, Prefix};
use crate::progress::Progress;
use crate::results::number;
use crate::tally::Tally;
use crate::template::{Reply, reply};
use crate::value;

/// The sorted set of all keys.
const INDEX: &[u8] = b"index";
/// Fields of a record, and bytes of each.
const FIELDS: usize = 10;
const FIELD_BYTES: usize = 100;
const NAMES: [&[u8]; FIELDS] = [
    b"field0", b"field1", b"field2", b"field3", b"field4", b"field5", b"field6", b"field7", b"field8",
    b"field9",
];
/// Share of inserts.
const INSERTS: f64 = 0.05;
/// Records of a scan: each number up to this is as likely.
const SCAN_MAX: u32 = 100;
/// Records that are stored beforehand are sent in groups of this size.
const FILL_TOGETHER: u32 = 64;
/// The longest time in which they are stored.
const FILL_MAX: Duration = Duration::from_secs(3600);

/// The replies that a client waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    /// Records that are stored: each has two replies.
    Stored { records: u32, replies: u32 },
    /// The keys of a scan.
    Range { from: u32, most: u32 },
    /// The records of these keys.
    Records(VecDeque<u32>),
}

/// A client's task.
#[derive(Debug)]
enum Work {
    /// Stores records of these numbers, and shows how many are sent.
    Fill(std::ops::Range<u32>, Arc<Progress>),
    /// Scans and inserts.
    Mix(Box<Pace>),
    /// Reads these records once.
    Read(Vec<u32>),
}

/// One client.
#[derive(Debug)]
struct Client {
    keyspace: Keyspace,
    work: Work,
    chooser: Chooser,
    rng: StdRng,
    /// Values are compared, and not only counted.
    verify: bool,
    /// Number of the next record that it inserts, and the number of clients.
    next_id: u32,
    clients: u32,
    /// The records that it inserted last.
    inserted: VecDeque<u32>,
    asked: Asked,
    /// Keys that a scan has found, whose records are read next.
    found: VecDeque<u32>,
    /// Counts are kept by the second, from this time on.
    origin: Option<Instant>,
}

impl Client {
    fn new(args: &Options, keyspace: Keyspace, choice: Choice, number: u32, work: Work) -> Client {
        let seed = args.seed.wrapping_add(number.into());
        Client {
            keyspace,
            work,
            chooser: Chooser::new(keyspace, choice, seed),
            rng: StdRng::seed_from_u64(seed),
            verify: Check::from(args.check) == Check::Verify,
            next_id: keyspace.count.saturating_add(number),
            clients: args.connections,
            inserted: VecDeque::new(),
            asked: Asked::Records(VecDeque::new()),
            found: VecDeque::new(),
            origin: None,
        }
    }

    fn key(&self, id: u32) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.keyspace.key_bytes);
        self.keyspace.write(&mut key, Prefix::Present, id);
        key
    }

    /// Appends the requests that store a record: a field's version is its number, so that no field can be taken for another.
    fn store(&self, out: &mut Vec<u8>, id: u32) {
        let (key, mut values) = (self.key(id), Vec::with_capacity(FIELDS * FIELD_BYTES));
        (0..FIELDS as u64).for_each(|field| value::write(&mut values, id, field, FIELD_BYTES));
        let mut words: Vec<&[u8]> = vec![&b"HSET"[..], &key[..]];
        for (name, value) in NAMES.iter().zip(values.chunks(FIELD_BYTES)) {
            words.extend([*name, value]);
        }
        command(out, &words);
        command(out, &[b"ZADD", INDEX, b"0", &key]);
    }

    /// Appends the requests that read records.
    fn read(&mut self, out: &mut Vec<u8>, ids: VecDeque<u32>) {
        ids.iter().for_each(|&id| command(out, &[b"HGETALL", &self.key(id)]));
        self.asked = Asked::Records(ids);
    }

    /// The number of the next record to insert; none when there are no more numbers.
    fn insert(&mut self) -> Option<u32> {
        let id = self.next_id;
        self.next_id = id.checked_add(self.clients)?;
        if self.inserted.len() == READ_BACK_MAX {
            self.inserted.pop_front();
        }
        self.inserted.push_back(id);
        Some(id)
    }

    /// The numbers of a scan's keys, or the error in them.
    fn scanned(&self, keys: &[&[u8]], from: u32, most: u32) -> Result<VecDeque<u32>, String> {
        let mut ids: VecDeque<u32> = VecDeque::with_capacity(keys.len());
        for key in keys {
            let digits = key.get(Prefix::BYTES..).and_then(|rest| std::str::from_utf8(rest).ok());
            let id = digits.and_then(|digits| digits.parse().ok()).filter(|&id| self.key(id) == *key);
            let Some(id) = id else { return Err(format!("{:?} is no key", key.escape_ascii().to_string())) };
            if ids.back().is_some_and(|&last| last >= id) {
                return Err(format!("number {id} comes behind {}", ids[ids.len() - 1]));
            }
            ids.push_back(id);
        }
        if ids.len() > most as usize {
            return Err(format!("{} keys", ids.len()));
        }
        // All records that were stored beforehand exist, and no keys are between them.
        let known = most.min(self.keyspace.count.saturating_sub(from));
        match (from..from + known).zip(0..).find(|&(id, at)| ids.get(at) != Some(&id)) {
            Some((id, at)) => Err(match ids.get(at) {
                Some(other) => format!("number {other} in the place of {id}"),
                None => format!("{} keys, and number {id} is not among them", ids.len()),
            }),
            None => Ok(ids),
        }
    }

    /// The error in a record, if there is one.
    fn flaw(parts: &[Reply<'_>], id: u32) -> Option<String> {
        let mut seen = [false; FIELDS];
        for pair in parts.chunks(2) {
            let &[Reply::Value(name), Reply::Value(value)] = pair else {
                return Some("a field without a name or value".to_owned());
            };
            let field = NAMES.iter().position(|known| *known == name).filter(|&field| !seen[field]);
            let Some(field) = field else {
                return Some(format!("a field {:?}", name.escape_ascii().to_string()));
            };
            seen[field] = true;
            if value.len() != FIELD_BYTES || value::verify(value, id) != Ok(field as u64) {
                return Some(format!(
                    "a value of {} bytes in field {field} that is not its value",
                    value.len()
                ));
            }
        }
        seen.contains(&false).then(|| format!("{} fields", parts.len() / 2))
    }

    /// Takes a reply; returns whether it was the last that the client waits for.
    fn take(&mut self, reply: &Reply<'_>, bytes: &[u8], tally: &mut Tally) -> bool {
        match &mut self.asked {
            Asked::Stored { records, replies } => {
                *replies -= 1;
                // The replies about fields come first. All fields are new, and so is the member.
                let expected = if *replies % 2 == 1 { &b"10"[..] } else { b"1" };
                if *reply == Reply::Number(expected) {
                    tally.stored += u64::from(*replies % 2 == 0);
                } else {
                    tally.mistake(|| format!("an insert is answered by {}", reply.words()));
                }
                let (done, keys) = (*replies == 0, *records);
                if done {
                    tally.keys += u64::from(keys);
                }
                done
            }
            &mut Asked::Range { from, most } => {
                let keys: Option<Vec<&[u8]>> = elements(bytes)
                    .map(|part| if let Reply::Value(key) = part { Some(key) } else { None })
                    .collect();
                let found = match (reply, keys) {
                    (Reply::Many(_), Some(keys)) => self.scanned(&keys, from, most),
                    _ => Err(reply.words()),
                };
                match found {
                    Ok(ids) => self.found = ids,
                    Err(why) => {
                        tally.mistake(|| format!("a scan of {most} from number {from} found {why}"));
                    }
                }
                true
            }
            Asked::Records(ids) => {
                let id = ids.pop_front().expect("a record was asked for");
                let (last, verify) = (ids.is_empty(), self.verify);
                tally.keys += 1;
                match reply {
                    Reply::Many(0) => tally.misses += 1,
                    Reply::Many(_) => {
                        tally.hits += 1;
                        let parts: Vec<Reply<'_>> =
                            if verify { elements(bytes).collect() } else { Vec::new() };
                        if let Some(flaw) = verify.then(|| Client::flaw(&parts, id)).flatten() {
                            tally.mistake(|| format!("record {id} has {flaw}"));
                        }
                    }
                    _ => tally.mistake(|| format!("record {id} is {}", reply.words())),
                }
                last
            }
        }
    }
}

/// The elements of an array without arrays in it; none of another reply.
fn elements(bytes: &[u8]) -> impl Iterator<Item = Reply<'_>> {
    let is_array = bytes.first() == Some(&b'*');
    let head = memchr::memchr(b'\n', bytes).filter(|_| is_array).map_or(bytes.len(), |end| end + 1);
    let mut rest = &bytes[head..];
    std::iter::from_fn(move || {
        let (part, used) = reply(Protocol::Resp, rest).ok().flatten()?;
        rest = &rest[used..];
        Some(part)
    })
}

impl Agent for Client {
    type Tally = Tally;

    fn next(&mut self, now: Instant, ending: bool, tally: &mut Tally, out: &mut Vec<u8>) -> Step {
        if self.origin.is_some() && tally.series.is_none() {
            tally.series = Tally::since(self.origin).series;
        }
        if !self.found.is_empty() {
            let ids = std::mem::take(&mut self.found);
            self.read(out, ids);
            return Step::Request;
        }
        match &mut self.work {
            Work::Fill(left, progress) => {
                let from = left.start;
                let records = FILL_TOGETHER.min(left.end - from);
                if records == 0 {
                    return Step::Done;
                }
                left.start += records;
                progress.advance(records.into());
                (from..from + records).for_each(|id| self.store(out, id));
                self.asked = Asked::Stored { records, replies: 2 * records };
            }
            Work::Read(ids) => {
                let ids: VecDeque<u32> = std::mem::take(ids).into();
                if ids.is_empty() {
                    return Step::Done;
                }
                self.read(out, ids);
            }
            Work::Mix(pace) => {
                if let Some(step) = pace.next(now, ending) {
                    return step;
                }
                if self.rng.random::<f64>() < INSERTS {
                    let Some(id) = self.insert() else { return Step::Done };
                    self.store(out, id);
                    self.asked = Asked::Stored { records: 1, replies: 2 };
                } else {
                    let (from, most) = (self.chooser.next_key(), self.rng.random_range(1..=SCAN_MAX));
                    let (least, count) = ([&b"["[..], &self.key(from)[..]].concat(), most.to_string());
                    command(out, &[b"ZRANGEBYLEX", INDEX, &least, b"+", b"LIMIT", b"0", count.as_bytes()]);
                    self.asked = Asked::Range { from, most };
                }
            }
        }
        Step::Request
    }

    fn reply(&mut self, bytes: &[u8], now: Instant, tally: &mut Tally) -> Result<Taken, Error> {
        let read = reply(Protocol::Resp, bytes).map_err(|Malformed| Error::malformed(bytes))?;
        let Some((reply, used)) = read else { return Ok(Taken::Nothing) };
        tally.turn_at(now);
        if !self.take(&reply, &bytes[..used], tally) {
            return Ok(Taken::More(used));
        }
        if self.found.is_empty() {
            tally.requests += 1;
            if let Work::Mix(pace) = &mut self.work {
                pace.answered(now, tally);
            }
        }
        Ok(Taken::All(used))
    }
}

/// Stores the records, and scans.
pub(super) fn run(
    args: &Options,
    control: &Control,
    protocol: Protocol,
    cores: &[Option<usize>],
) -> Result<Ran, Error> {
    let refuse = |why: &str| Err(Error::Usage(why.to_owned()));
    if protocol != Protocol::Resp {
        return refuse(
            "ycsb-e scans keys in their order, and memcached has no command for that: redis:// has",
        );
    }
    if args.pipeline > 1 {
        return refuse("ycsb-e has one scan at a time on a connection, whose records are asked for together");
    }
    let workload = args.workload(protocol)?;
    let (keyspace, choice) = (workload.keyspace, workload.choice);
    let Target { name, endpoint, .. } = &args.target;
    eprintln!("{name} {}; it is written to", control.claim(args.flush_target)?);
    let clients = args.connections;
    let sleeps = !shared_cores(control, &args.placement(cores)).is_empty();
    let dialog = |works: Vec<Work>, cores: &[Option<usize>]| {
        let clients = works.into_iter().zip(0..);
        let clients = clients.map(|(work, number)| Client::new(args, keyspace, choice, number, work));
        let mut dialog = Dialog::connect(endpoint, clients.collect(), cores)?;
        if sleeps {
            dialog.sleep();
        }
        Ok::<_, Error>(dialog)
    };
    let part = |number: u32| (u64::from(keyspace.count) * u64::from(number) / u64::from(clients)) as u32;
    let progress = Arc::new(Progress::new(keyspace.count.into()));
    progress.say("storing records");
    let parts = (0..clients)
        .map(|number| Work::Fill(part(number)..part(number + 1), Arc::clone(&progress)))
        .collect();
    let filled = counted(dialog(parts, cores)?.run(FILL_MAX)?, cores.len());
    drop(progress);
    if filled.stored != u64::from(keyspace.count) {
        let why = filled.first_wrong.unwrap_or_else(|| format!("{} stored", filled.stored));
        return Err(Error::NotValid(format!("fill: of {} records: {why}", keyspace.count)));
    }
    let books = Books::open(control).ok().filter(Books::counts);
    let mixes = (0..clients)
        .map(|number| Work::Mix(Box::new(Pace::new(args, args.seed.wrapping_add(number.into())))));
    let mut mix = dialog(mixes.collect(), cores)?;
    let (outcome, started, server) = args.watched(|| {
        let now = Instant::now();
        for (client, number) in mix.agents_mut().zip(0..) {
            client.origin = Some(now);
            if let Work::Mix(pace) = &mut client.work {
                pace.start(now, share(args.requests, number, clients.into()));
            }
        }
        mix.run(args.time())
    })?;
    let tally = counted(outcome, cores.len());
    let last = (READ_BACK_MAX / clients as usize).max(1);
    let written: Vec<u32> =
        mix.agents().flat_map(|client| client.inserted.iter().rev().take(last)).copied().collect();
    drop(mix);
    let back = counted(dialog(vec![Work::Read(written)], &cores[..1])?.run(FILL_MAX)?, 1);
    let mut checks = Checks::default();
    check_back(&mut checks, name, &back, evicted_since(books.as_ref())?);
    let mut remarks =
        vec!["what the server counted is not compared: it counts hashes and a sorted set".to_owned()];
    if tally.misses > 0 {
        remarks
            .push(format!("{} records of scans were not there: the server has forgotten some", tally.misses));
    }
    let settings = [
        ("preset", format!("95 % scans of 1 to {SCAN_MAX} records in the order of their keys, 5 % inserts")),
        ("protocol", format!("{protocol:?}")),
        ("records beforehand", keyspace.count.to_string()),
        ("bytes of values", format!("{FIELDS} fields of {FIELD_BYTES}")),
        ("seconds at most", args.time().as_secs_f64().to_string()),
    ];
    Ok(Ran {
        tally,
        others: back.clone(),
        back,
        placement: args.placement(cores),
        started,
        server,
        books: None,
        checks,
        pipeline: 1,
        offered: args.rate.map(|rate| format!("{} requests a second that were offered", number::text(rate))),
        settings: settings.map(|(name, value)| (name.to_owned(), value)).into(),
        remarks,
        ceiling: None,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: Options,
    }

    fn client(count: u32) -> Client {
        let line = Line::parse_from(["load", "--target", "a=redis://127.0.0.1:1", "--connections", "3"]);
        let keyspace = Keyspace { first: 0, count, key_bytes: 23, value_bytes: 1000 };
        Client::new(&line.load, keyspace, Choice::Uniform, 1, Work::Read(Vec::new()))
    }

    #[test]
    fn a_scan_must_find_all_records_from_its_first_on_in_their_order() {
        let client = client(10);
        let scanned = |ids: &[u32], from, most| {
            let keys: Vec<Vec<u8>> = ids.iter().map(|&id| client.key(id)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            client.scanned(&keys, from, most).map(Vec::from)
        };
        assert_eq!(scanned(&[3, 4, 5], 3, 3), Ok(vec![3, 4, 5]));
        // Behind the records of the fill come inserted ones, with gaps, since not all are inserted yet.
        assert_eq!(scanned(&[8, 9, 11, 17], 8, 5), Ok(vec![8, 9, 11, 17]));
        assert_eq!(scanned(&[9], 9, 100), Ok(vec![9]));
        for (ids, from, most, why) in [
            (&[3, 4][..], 3, 3, "2 keys, and number 5 is not among them"),
            (&[], 3, 1, "0 keys, and number 3 is not among them"),
            (&[4, 5, 6], 3, 3, "number 4 in the place of 3"),
            (&[3, 5, 4], 3, 3, "number 4 comes behind 5"),
            (&[3, 4, 5, 6], 3, 3, "4 keys"),
            (&[8, 9, 9], 8, 9, "number 9 comes behind 9"),
        ] {
            assert_eq!(scanned(ids, from, most).unwrap_err(), why, "{ids:?}");
        }
        let foreign = client.scanned(&[b"key:7"], 3, 1).unwrap_err();
        assert_eq!(foreign, "\"key:7\" is no key");
    }

    #[test]
    fn a_record_is_whole_with_each_of_its_fields_in_any_order() {
        let client = client(10);
        let mut stored = Vec::new();
        client.store(&mut stored, 7);
        let (whole, used) = reply(Protocol::Resp, &stored).unwrap().unwrap();
        assert_eq!(whole, Reply::Many(2 + 2 * FIELDS));
        let words: Vec<Reply<'_>> = elements(&stored[..used]).collect();
        assert_eq!(words[..2], [Reply::Value(b"HSET"), Reply::Value(&client.key(7))]);
        let mut fields = words[2..].to_vec();
        assert_eq!(Client::flaw(&fields, 7), None);
        assert!(Client::flaw(&fields, 6).unwrap().contains("that is not its value"));
        assert_eq!(Client::flaw(&fields[2..], 7).unwrap(), "9 fields");
        fields.rotate_left(6);
        assert_eq!(Client::flaw(&fields, 7), None);
        // Two values that have changed places.
        fields.swap(1, 3);
        assert!(Client::flaw(&fields, 7).unwrap().contains("in field 3 that is not its value"));
        fields.swap(1, 3);
        fields[2] = fields[0];
        assert!(Client::flaw(&fields, 7).unwrap().starts_with("a field \"field3\""));
        assert_eq!(elements(b"$3\r\n*1\r\r\n").count(), 0);
    }

    #[test]
    fn what_clients_insert_has_numbers_of_their_own() {
        let mut client = client(10);
        assert_eq!([client.insert(), client.insert()], [Some(11), Some(14)]);
        client.next_id = u32::MAX;
        assert_eq!(client.insert(), None);
        client.next_id = 20;
        (0..2 * READ_BACK_MAX).for_each(|_| _ = client.insert());
        assert_eq!(client.inserted.len(), READ_BACK_MAX);
    }

    #[test]
    fn a_reply_that_is_none_of_what_was_asked_is_counted_as_wrong() {
        let wrong = |asked: Asked, replies: &[u8]| {
            let (mut client, mut tally) = (client(10), Tally::default());
            client.asked = asked;
            let taken = client.reply(replies, Instant::now(), &mut tally).unwrap();
            assert!(matches!(taken, Taken::All(used) if used == replies.len()));
            tally.first_wrong.unwrap_or_default()
        };
        let range = || Asked::Range { from: 3, most: 1 };
        assert!(wrong(range(), b"-ERR unknown command\r\n").ends_with("found \"ERR unknown command\""));
        assert!(wrong(range(), b"*1\r\n:3\r\n").ends_with("found 1 replies in one"));
        assert!(wrong(Asked::Records([3].into()), b"$-1\r\n").ends_with("record 3 is nil"));
        assert_eq!(wrong(Asked::Records([3].into()), b"*0\r\n"), "");
        assert!(wrong(Asked::Stored { records: 1, replies: 1 }, b":0\r\n").ends_with("the number 0"));
    }
}
