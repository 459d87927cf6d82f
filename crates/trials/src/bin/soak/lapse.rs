//! Hashes with fields that expire at different times. In a phase in which nothing may be lost, every command
//! finds a field until it expires, and not after it.

use crate::dialect::Reply;
use crate::op::short;
use crate::queue::{ask, leave};
use crate::random::Random;
use crate::wire::Wire;
use crate::world::{Span, World};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

/// Number of field names of each hash; the smaller hashes fit in one leaf.
const NAMES: [usize; 4] = [20, 300, 3000, 3000];
/// Most fields of a command.
const TOGETHER: usize = 30;
/// The shortest and the longest time to live of a field, in milliseconds.
const LASTS_MS: [usize; 2] = [20, 8000];
/// A field without an expiry, so that the hash never becomes empty.
const STAYS: &str = "stays";
/// Most difference between the server's clock, which it reads once a batch, and ours.
const CLOCK_MS: u64 = 50;
/// Longest pause between two commands, in microseconds.
const PAUSE_US: usize = 2000;

/// A field, as it was written.
#[derive(Clone, Debug, PartialEq)]
struct Field {
    value: String,
    /// When it expires: the earliest and the latest time, in milliseconds since the start.
    expires_ms: Option<[u64; 2]>,
}

/// Whether a field exists.
#[derive(Clone, Copy, Debug, PartialEq)]
enum There {
    Yes,
    No,
    /// It may be expiring just now.
    Perhaps,
}

/// A hash.
#[derive(Debug, Default)]
struct Hash {
    /// The number in its name.
    number: u64,
    fields: BTreeMap<String, Field>,
}

/// A command.
#[derive(Debug)]
enum Ask {
    /// HSET
    Set(Vec<(String, String)>),
    /// HSETEX, with a time in milliseconds.
    SetFor(u64, Vec<(String, String)>),
    /// HPEXPIRE
    Expire(u64, Vec<String>),
    /// HPERSIST
    Persist(Vec<String>),
    /// HDEL
    Delete(Vec<String>),
    /// HMGET
    Get(Vec<String>),
    /// HPTTL
    Left(Vec<String>),
    /// HGETALL
    All,
}

impl Ask {
    /// A random command on a hash with this many names.
    fn some(names: usize, made: &mut u64, random: &mut Random) -> Ask {
        let count = random.within(1, TOGETHER.min(names));
        let first = random.below(names);
        let fields: Vec<String> = (first..first + count).map(|n| format!("field{}", n % names)).collect();
        let pairs = |made: &mut u64| {
            let pair = |field: &String| {
                *made += 1;
                (field.clone(), format!("value {made}"))
            };
            fields.iter().map(pair).collect::<Vec<(String, String)>>()
        };
        let lasts = random.within(LASTS_MS[0], LASTS_MS[1]) as u64;
        match random.below(100) {
            0..15 => Ask::Set(pairs(made)),
            15..35 => Ask::SetFor(lasts, pairs(made)),
            35..55 => Ask::Expire(lasts, fields),
            55..60 => Ask::Persist(fields),
            60..65 => Ask::Delete(fields),
            65..85 => Ask::Get(fields),
            85..95 => Ask::Left(fields),
            _ => Ask::All,
        }
    }

    /// Its words.
    fn words(&self, key: &str) -> Vec<String> {
        let with = |front: &[&str], behind: &[String]| {
            let front = front.iter().map(|word| (*word).to_owned());
            front.chain(behind.iter().cloned()).collect::<Vec<String>>()
        };
        let flat = |pairs: &[(String, String)]| {
            pairs.iter().flat_map(|(field, value)| [field.clone(), value.clone()]).collect::<Vec<String>>()
        };
        match self {
            Ask::Set(pairs) => with(&["HSET", key], &flat(pairs)),
            Ask::SetFor(ms, pairs) => {
                let (ms, count) = (ms.to_string(), pairs.len().to_string());
                with(&["HSETEX", key, "PX", &ms, "FIELDS", &count], &flat(pairs))
            }
            Ask::Expire(ms, fields) => {
                let (ms, count) = (ms.to_string(), fields.len().to_string());
                with(&["HPEXPIRE", key, &ms, "FIELDS", &count], fields)
            }
            Ask::Persist(fields) => with(&["HPERSIST", key, "FIELDS", &fields.len().to_string()], fields),
            Ask::Delete(fields) => with(&["HDEL", key], fields),
            Ask::Get(fields) => with(&["HMGET", key], fields),
            Ask::Left(fields) => with(&["HPTTL", key, "FIELDS", &fields.len().to_string()], fields),
            Ask::All => with(&["HGETALL", key], &[]),
        }
    }

    /// Whether this reply is a refusal for lack of memory for a long reply; `much`: clients that do not read
    /// may have all that memory. Other commands have replies so short that they need none.
    fn may_be_unsent(&self, answer: &Reply, much: bool) -> bool {
        let is_long = matches!(self, Ask::All);
        much && is_long && matches!(answer, Reply::Error(text) if text.starts_with("OOM"))
    }
}

/// The earliest and the latest time at which a field expires that is given `ms` milliseconds.
fn window(ms: u64, span: &Span) -> Option<[u64; 2]> {
    Some([(span.before.at_ms + ms).saturating_sub(CLOCK_MS), span.after.at_ms + ms + CLOCK_MS])
}

impl Hash {
    fn there(&self, field: &str, span: &Span) -> There {
        match self.fields.get(field).map(|field| field.expires_ms) {
            None => There::No,
            Some(None) => There::Yes,
            Some(Some([least, _])) if span.after.at_ms < least => There::Yes,
            Some(Some([_, most])) if span.before.at_ms > most => There::No,
            Some(Some(_)) => There::Perhaps,
        }
    }

    /// How many of these fields exist: the least number, and the most.
    fn count<'f>(&self, fields: impl Iterator<Item = &'f String>, span: &Span) -> [usize; 2] {
        fields.fold([0, 0], |[least, most], field| match self.there(field, span) {
            There::Yes => [least + 1, most + 1],
            There::No => [least, most],
            There::Perhaps => [least, most + 1],
        })
    }

    fn set(&mut self, pairs: &[(String, String)], expires_ms: Option<[u64; 2]>) {
        for (field, value) in pairs {
            self.fields.insert(field.clone(), Field { value: value.clone(), expires_ms });
        }
    }

    /// Whether a field may be missing, as a reply says; it is forgotten then.
    fn lacks(&mut self, field: &str, span: &Span) -> bool {
        let may = self.there(field, span) != There::Yes;
        if may {
            self.fields.remove(field);
        }
        may
    }

    /// Whether the reply to a command is possible; applies the command.
    fn follow(&mut self, ask: &Ask, answer: &Reply, span: &Span) -> bool {
        match (ask, answer) {
            (Ask::Set(pairs), Reply::Number(new)) => {
                let [least, most] = self.count(pairs.iter().map(|(field, _)| field), span);
                self.set(pairs, None);
                let may = pairs.len() - most..=pairs.len() - least;
                usize::try_from(*new).is_ok_and(|new| may.contains(&new))
            }
            (Ask::SetFor(ms, pairs), Reply::Number(1)) => {
                self.set(pairs, window(*ms, span));
                true
            }
            (Ask::Delete(fields), Reply::Number(gone)) => {
                let [least, most] = self.count(fields.iter(), span);
                fields.iter().for_each(|field| drop(self.fields.remove(field)));
                usize::try_from(*gone).is_ok_and(|gone| (least..=most).contains(&gone))
            }
            (Ask::Get(fields), Reply::Array(Some(values))) if fields.len() == values.len() => {
                fields.iter().zip(values).all(|(field, value)| match value {
                    Reply::Bulk(None) => self.lacks(field, span),
                    Reply::Bulk(Some(value)) => self.has(field, value, span),
                    _ => false,
                })
            }
            (Ask::Expire(_, fields) | Ask::Persist(fields) | Ask::Left(fields), Reply::Array(Some(told)))
                if fields.len() == told.len() =>
            {
                fields.iter().zip(told).all(|(field, told)| match told {
                    Reply::Number(-2) => self.lacks(field, span),
                    Reply::Number(told) => self.follow_time(ask, field, *told, span),
                    _ => false,
                })
            }
            (Ask::All, Reply::Array(Some(told))) if told.len().is_multiple_of(2) => self.is_all(told, span),
            _ => false,
        }
    }

    /// Whether the field may exist with this value.
    fn has(&self, field: &str, value: &[u8], span: &Span) -> bool {
        let is = self.fields.get(field).is_some_and(|field| field.value.as_bytes() == value);
        is && self.there(field, span) != There::No
    }

    /// Applies the reply to a command on the expiry of a field that exists.
    fn follow_time(&mut self, ask: &Ask, field: &str, told: i64, span: &Span) -> bool {
        if self.there(field, span) == There::No {
            return false;
        }
        let Some(field) = self.fields.get_mut(field) else { return false };
        match (ask, told, field.expires_ms) {
            (Ask::Expire(ms, _), 1, _) => {
                field.expires_ms = window(*ms, span);
                true
            }
            (Ask::Persist(_), 1, Some(_)) => {
                field.expires_ms = None;
                true
            }
            (Ask::Persist(_) | Ask::Left(_), -1, None) => true,
            (Ask::Left(_), left, Some([least, most])) => {
                let least = least.saturating_sub(span.after.at_ms + CLOCK_MS);
                let most = (most + CLOCK_MS).saturating_sub(span.before.at_ms);
                u64::try_from(left).is_ok_and(|left| (least..=most).contains(&left))
            }
            _ => false,
        }
    }

    /// Whether these may be all fields and their values.
    fn is_all(&mut self, told: &[Reply], span: &Span) -> bool {
        let mut names = Vec::new();
        for pair in told.chunks(2) {
            let [Reply::Bulk(Some(field)), Reply::Bulk(Some(value))] = pair else { return false };
            let Ok(field) = std::str::from_utf8(field) else { return false };
            if !self.has(field, value, span) {
                return false;
            }
            names.push(field);
        }
        names.sort_unstable();
        let all: Vec<String> = self.fields.keys().cloned().collect();
        let mut others = all.iter().filter(|field| names.binary_search(&field.as_str()).is_err());
        names.windows(2).all(|two| two[0] != two[1]) && others.all(|field| self.lacks(field, span))
    }
}

/// Sends requests until the soak ends.
pub fn run(world: &World, seed: u64) {
    let mut random = Random::of(seed, 9 << 32);
    let mut wire: Option<Wire> = None;
    let mut hashes: Vec<Hash> = Vec::new();
    let (mut round, mut made, mut judged) = (None, 0, 0);
    while world.runs() {
        world.within(|phase| {
            if !phase.counts {
                return;
            }
            let now = world.round.load(SeqCst);
            if round.replace(now) != Some(now) {
                hashes = NAMES.iter().map(|_| Hash::default()).collect();
            }
            let at = random.below(hashes.len());
            let hash = &mut hashes[at];
            let asked = if hash.fields.is_empty() {
                made += 1;
                *hash = Hash { number: made, ..Hash::default() };
                Ask::Set(vec![(STAYS.to_owned(), "as it is".to_owned())])
            } else {
                Ask::some(NAMES[at], &mut made, &mut random)
            };
            let key = format!("lapse:{now}:{at}:{}", hash.number);
            let words = asked.words(&key);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let before = world.moment();
            let answer = ask(world, &mut wire, &words, &mut random);
            let span = Span { before, after: world.moment() };
            let Some(answer) = answer else {
                // It is unknown whether the command was carried out.
                return hash.fields.clear();
            };
            if asked.may_be_unsent(&answer, span.may_be_full()) {
                return hash.fields.clear();
            }
            judged += 1;
            if !hash.follow(&asked, &answer, &span) {
                let told = short(format!("{answer:?}").as_bytes());
                let (asked, at) = (short(words.join(" ").as_bytes()), [span.before.at_ms, span.after.at_ms]);
                world.lost(&format!("{asked} was answered {told} between {at:?} ms"));
                hash.fields.clear();
            }
        });
        thread::sleep(Duration::from_micros(random.below(PAUSE_US) as u64));
    }
    world.count("fields that expire: replies judged", judged);
    leave(world, wire);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(before: u64, after: u64) -> Span {
        let mut span = Span::default();
        (span.before.at_ms, span.after.at_ms) = (before, after);
        span
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn numbers(numbers: &[i64]) -> Reply {
        Reply::Array(Some(numbers.iter().map(|number| Reply::Number(*number)).collect()))
    }

    fn texts(texts: &[&str]) -> Reply {
        let text = |text: &&str| Reply::Bulk(Some(text.as_bytes().to_vec()).filter(|text| !text.is_empty()));
        Reply::Array(Some(texts.iter().map(text).collect()))
    }

    /// A hash with a field that stays, and one that expires between 1,950 and 2,060 ms.
    fn hash() -> Hash {
        let mut hash = Hash::default();
        let pair = |name: &str| (name.to_owned(), format!("value of {name}"));
        assert!(hash.follow(&Ask::Set(vec![pair("a")]), &Reply::Number(1), &span(900, 901)));
        assert!(hash.follow(&Ask::SetFor(1000, vec![pair("b")]), &Reply::Number(1), &span(1000, 1010)));
        assert_eq!(hash.fields["b"].expires_ms, Some([1950, 2060]));
        hash
    }

    #[test]
    fn only_long_replies_may_be_refused_where_others_take_memory() {
        let refused = Reply::Error("OOM connections hold as much memory as they may".to_owned());
        let fields = || names(&["a"]);
        assert!(Ask::All.may_be_unsent(&refused, true) && !Ask::All.may_be_unsent(&refused, false));
        assert!(!Ask::All.may_be_unsent(&numbers(&[1]), true));
        for short in [
            Ask::Get(fields()),
            Ask::Left(fields()),
            Ask::Set(Vec::new()),
            Ask::SetFor(9, Vec::new()),
            Ask::Expire(9, fields()),
            Ask::Persist(fields()),
            Ask::Delete(fields()),
        ] {
            assert!(!short.may_be_unsent(&refused, true), "{short:?}");
        }
    }

    #[test]
    fn fields_are_there_until_their_time_has_come_and_not_behind_it() {
        let (a, b) = ("value of a", "value of b");
        let get = Ask::Get(names(&["a", "b", "c"]));
        let all = |both: bool| if both { texts(&["b", b, "a", a]) } else { texts(&["a", a]) };
        let left = Ask::Left(names(&["a", "b"]));
        // A time, whether the field may exist then, and whether it may be missing.
        for (at, may, may_not) in [(1900, true, false), (2000, true, true), (2100, false, true)] {
            let span = span(at, at + 5);
            for (is, allowed) in [(true, may), (false, may_not)] {
                let told = if is { b } else { "" };
                assert_eq!(hash().follow(&get, &texts(&[a, told, ""]), &span), allowed, "HMGET {at} {is}");
                assert_eq!(hash().follow(&Ask::All, &all(is), &span), allowed, "HGETALL {at} {is}");
                let gone = Ask::Delete(names(&["a", "b"]));
                let count = Reply::Number(1 + i64::from(is));
                assert_eq!(hash().follow(&gone, &count, &span), allowed, "HDEL {at} {is}");
                let set = Ask::Set(vec![("b".to_owned(), "other".to_owned())]);
                let new = Reply::Number(i64::from(!is));
                assert_eq!(hash().follow(&set, &new, &span), allowed, "HSET {at} {is}");
                let time = if is { 2000_i64.saturating_sub(at as i64).max(0) } else { -2 };
                assert_eq!(hash().follow(&left, &numbers(&[-1, time]), &span), allowed, "HPTTL {at} {is}");
                let done = if is { 1 } else { -2 };
                for ask in [Ask::Expire(500, names(&["b"])), Ask::Persist(names(&["b"]))] {
                    let mut hash = hash();
                    assert_eq!(hash.follow(&ask, &numbers(&[done]), &span), allowed, "{ask:?} {at} {is}");
                    let expected = match (&ask, is && allowed) {
                        (Ask::Expire(..), true) => Some(Some([at + 450, at + 555])),
                        (_, true) => Some(None),
                        (_, false) if allowed => None,
                        (_, false) => Some(Some([1950, 2060])),
                    };
                    let found = hash.fields.get("b").map(|field| field.expires_ms);
                    assert_eq!(found, expected, "{ask:?} {at} {is}");
                }
            }
        }
    }

    #[test]
    fn nothing_else_is_followed() {
        let at = span(1900, 1905);
        let (a, b) = ("value of a", "value of b");
        for (ask, answer) in [
            (Ask::Get(names(&["a"])), texts(&["value of b"])),
            (Ask::Get(names(&["a"])), texts(&[a, b])),
            (Ask::Get(names(&["a"])), Reply::Error("ERR".into())),
            (Ask::All, texts(&["a", a, "b", "other"])),
            (Ask::All, texts(&["a", a, "b", b, "b", b])),
            (Ask::All, texts(&["a", a, "b", b, "c", "x"])),
            (Ask::Left(names(&["a"])), numbers(&[100])),
            (Ask::Left(names(&["b"])), numbers(&[-1])),
            (Ask::Left(names(&["b"])), numbers(&[400])),
            (Ask::Persist(names(&["a"])), numbers(&[1])),
            (Ask::Persist(names(&["b"])), numbers(&[-1])),
            (Ask::Expire(5, names(&["b"])), numbers(&[0])),
            (Ask::Set(vec![("a".to_owned(), "x".to_owned())]), Reply::Number(1)),
            (Ask::SetFor(5, vec![("a".to_owned(), "x".to_owned())]), Reply::Number(0)),
            (Ask::Delete(names(&["a", "b"])), Reply::Number(3)),
        ] {
            assert!(!hash().follow(&ask, &answer, &at), "{ask:?} {answer:?}");
        }
    }

    #[test]
    fn commands_have_their_words() {
        let pair = vec![("f".to_owned(), "v".to_owned())];
        for (ask, expected) in [
            (Ask::Set(pair.clone()), "HSET k f v"),
            (Ask::SetFor(70, pair), "HSETEX k PX 70 FIELDS 1 f v"),
            (Ask::Expire(7, names(&["f", "g"])), "HPEXPIRE k 7 FIELDS 2 f g"),
            (Ask::Persist(names(&["f"])), "HPERSIST k FIELDS 1 f"),
            (Ask::Delete(names(&["f"])), "HDEL k f"),
            (Ask::Get(names(&["f"])), "HMGET k f"),
            (Ask::Left(names(&["f"])), "HPTTL k FIELDS 1 f"),
            (Ask::All, "HGETALL k"),
        ] {
            assert_eq!(ask.words("k").join(" "), expected);
        }
        let (mut random, mut made) = (Random::of(1, 1), 0);
        for _ in 0..1000 {
            let words = Ask::some(20, &mut made, &mut random).words("k");
            let mut fields: Vec<&String> = words.iter().filter(|word| word.starts_with("field")).collect();
            let count = fields.len();
            fields.sort_unstable();
            fields.dedup();
            assert!(fields.len() == count && count <= 20, "{words:?}");
        }
    }
}
