//! A keeper's commands on a collection, and the replies that each allows.

use super::Kind;
use super::model::{Model, Text, score, unscore};
use crate::dialect::Reply;
use crate::op::short;
use crate::random::Random;
use larder_testkit::talk::encode;

/// Elements that one command writes, now and then.
const MANY: usize = 200;
/// Most elements of which it is noted which may have been written before a refusal.
const PARTS_MAX: usize = 8;
/// Most bytes of usual elements.
const SHORT_BYTES: usize = 20;
/// Most bytes of a few longer ones.
const LONG_BYTES: usize = 2000;
/// Bytes of one in [`APART_ONE_IN`] list elements, members and values of fields: about what a leaf takes, or
/// so many that it is stored apart.
const APART_BYTES: [usize; 2] = [16_000, 60_000];
const APART_ONE_IN: usize = 400;
/// One in this many of those has up to as many bytes as a member of a sorted set may have. One key in seven
/// of the largest has such an element: two replies with all of a key must fit what replies may hold at the
/// lowest memory limit.
const LONGEST_BYTES: usize = 1 << 20;
const LONGEST_ONE_IN: usize = 100;
/// Scores are integers below this, so that many members share one.
const SCORES: usize = 500;
/// The shortest and the longest expiry, in milliseconds.
const EXPIRE_MS: [usize; 2] = [300, 60_000];

/// A command on a key. Indexes are Redis's: negative ones count from the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// DEL of a key whose state is unknown.
    Forget,
    Delete,
    /// PEXPIRE.
    Expire(u64),
    Persist,
    Length(Kind),
    /// HGETALL, LRANGE 0 -1, SMEMBERS, ZRANGE 0 -1 WITHSCORES.
    All(Kind),
    HashSet(Vec<(Text, Text)>),
    HashDelete(Vec<Text>),
    HashGet(Vec<Text>),
    HashAdd(Text, i64),
    Push {
        front: bool,
        elements: Vec<Text>,
    },
    Pop {
        front: bool,
        count: usize,
    },
    Range(i64, i64),
    Trim(i64, i64),
    SetAt(i64, Text),
    Insert {
        before: bool,
        pivot: Text,
        element: Text,
    },
    /// LREM key 0 element.
    RemoveAll(Text),
    Add(Vec<Text>),
    Remove(Vec<Text>),
    Has(Vec<Text>),
    /// SPOP with a count.
    Take(usize),
    Score(Vec<(Text, i64)>),
    Unscore(Vec<Text>),
    ScoreOf(Vec<Text>),
    Rank(Text),
    Ranked(i64, i64),
    Scored(i64, i64),
    AddScore(Text, i64),
    PopLeast(usize),
    RemoveRanked(i64, i64),
}

fn element(made: &mut u64, random: &mut Random) -> Text {
    *made += 1;
    let bytes = if random.chance(2) { LONG_BYTES } else { SHORT_BYTES };
    let mut text = format!("e{made}.").into_bytes();
    text.resize(text.len() + random.below(bytes), b'a' + (*made % 26) as u8);
    text
}

/// An element of a list, a member, or the value of a field.
fn long_element(made: &mut u64, random: &mut Random) -> Text {
    let mut text = element(made, random);
    if random.below(APART_ONE_IN) == 0 {
        let most = if random.below(LONGEST_ONE_IN) == 0 { LONGEST_BYTES } else { APART_BYTES[1] };
        text.resize(random.within(APART_BYTES[0], most), b'A' + (*made % 26) as u8);
    }
    text
}

/// A number as text, for a request.
fn told(number: impl ToString) -> Text {
    number.to_string().into_bytes()
}

/// The range of indexes in a collection of `len` elements.
fn places(from: i64, to: i64, len: usize) -> std::ops::Range<usize> {
    let at = |place: i64| if place < 0 { place + len as i64 } else { place };
    let (from, to) = (at(from).max(0), at(to).min(len as i64 - 1));
    if from > to { 0..0 } else { from as usize..to as usize + 1 }
}

impl Ask {
    /// A random command on a collection that may be `like` this one and should have `most` elements.
    pub fn some(like: &Model, most: usize, made: &mut u64, random: &mut Random) -> Ask {
        let len = like.len();
        let kind = match like {
            Model::Hash(_) => Kind::Hash,
            Model::List(_) => Kind::List,
            Model::Set(_) => Kind::Set,
            Model::Sorted(..) => Kind::Sorted,
        };
        match random.below(300) {
            0 => return Ask::Delete,
            1 => return Ask::Expire(random.within(EXPIRE_MS[0], EXPIRE_MS[1]) as u64),
            2..6 => return Ask::Persist,
            6..20 => return Ask::Length(kind),
            20..24 => return Ask::All(kind),
            _ => {}
        }
        let fills = len < most && random.chance(60);
        let some = |made: &mut u64, random: &mut Random| {
            if fills && most > MANY && random.chance(20) {
                MANY
            } else {
                random.within(1, 4 + (*made % 3) as usize)
            }
        };
        // Mostly an element that exists.
        let known = |made: &mut u64, random: &mut Random| {
            let there = if random.chance(80) && len > 0 { like.at(random.below(len.min(500))) } else { None };
            there.cloned().unwrap_or_else(|| element(made, random))
        };
        let count = some(made, random);
        let several = |made: &mut u64, random: &mut Random| -> Vec<Text> {
            (0..count.min(8)).map(|_| known(made, random)).collect()
        };
        let shrinks = len > most && random.chance(50);
        let place = |random: &mut Random| {
            let place = random.below(len + 2) as i64;
            if random.chance(30) { -place - 1 } else { place }
        };
        match kind {
            Kind::Hash => match random.below(100) {
                _ if shrinks => {
                    Ask::HashDelete((0..MANY.min(len)).filter_map(|at| like.at(at).cloned()).collect())
                }
                0..40 if fills => {
                    let pair = |_| (element(made, random), long_element(made, random));
                    Ask::HashSet((0..count).map(pair).collect())
                }
                0..40 => Ask::HashSet(vec![(known(made, random), long_element(made, random))]),
                40..60 => Ask::HashDelete(several(made, random)),
                60..70 => {
                    Ask::HashAdd(format!("n{}", random.below(5)).into_bytes(), random.within(1, 9) as i64 - 5)
                }
                _ => Ask::HashGet(several(made, random)),
            },
            Kind::List => match random.below(100) {
                _ if shrinks => Ask::Trim(0, most as i64 / 2),
                0..35 => Ask::Push {
                    front: random.chance(50),
                    elements: (0..count).map(|_| long_element(made, random)).collect(),
                },
                35..55 => Ask::Pop { front: random.chance(50), count },
                55..60 => Ask::Trim(1, -2),
                60..70 => Ask::SetAt(place(random), long_element(made, random)),
                70..76 => Ask::Insert {
                    before: random.chance(50),
                    pivot: known(made, random),
                    element: long_element(made, random),
                },
                76..80 => Ask::RemoveAll(known(made, random)),
                _ => {
                    let from = place(random);
                    Ask::Range(from, from.saturating_add(random.below(50) as i64))
                }
            },
            Kind::Set => match random.below(100) {
                _ if shrinks => Ask::Take(MANY),
                0..40 if fills => Ask::Add((0..count).map(|_| long_element(made, random)).collect()),
                0..40 => Ask::Add(several(made, random)),
                40..60 => Ask::Remove(several(made, random)),
                60..66 => Ask::Take(count),
                _ => Ask::Has(several(made, random)),
            },
            Kind::Sorted => {
                let any = |random: &mut Random| random.below(SCORES) as i64 - SCORES as i64 / 2;
                match random.below(100) {
                    _ if shrinks => Ask::RemoveRanked(0, MANY as i64),
                    0..30 if fills => {
                        Ask::Score((0..count).map(|_| (long_element(made, random), any(random))).collect())
                    }
                    0..30 => Ask::Score(vec![(known(made, random), any(random))]),
                    30..42 => Ask::Unscore(several(made, random)),
                    42..52 => Ask::ScoreOf(several(made, random)),
                    52..64 => Ask::Rank(known(made, random)),
                    64..74 => {
                        let from = place(random);
                        Ask::Ranked(from, from.saturating_add(random.below(50) as i64))
                    }
                    74..82 => {
                        let from = any(random);
                        Ask::Scored(from, from + random.below(10) as i64)
                    }
                    82..90 => Ask::AddScore(known(made, random), random.within(0, 6) as i64 - 3),
                    90..96 => Ask::PopLeast(count.min(10)),
                    _ => {
                        let from = place(random);
                        Ask::RemoveRanked(from, from.saturating_add(random.below(3) as i64))
                    }
                }
            }
        }
    }

    /// The command as a request.
    pub fn request(&self, key: &[u8]) -> Vec<u8> {
        encode(&self.words(key).iter().map(Vec::as_slice).collect::<Vec<_>>())
    }

    fn words(&self, key: &[u8]) -> Vec<Text> {
        let begin = |name: &str| vec![name.as_bytes().to_vec(), key.to_vec()];
        let with = |name: &str, more: &[Text]| [begin(name), more.to_vec()].concat();
        let range = |name: &str, from: i64, to: i64| with(name, &[told(from), told(to)]);
        match self {
            Ask::Forget | Ask::Delete => begin("DEL"),
            Ask::Expire(ms) => with("PEXPIRE", &[told(ms)]),
            Ask::Persist => begin("PERSIST"),
            Ask::Length(Kind::Hash) => begin("HLEN"),
            Ask::Length(Kind::List) => begin("LLEN"),
            Ask::Length(Kind::Set) => begin("SCARD"),
            Ask::Length(Kind::Sorted) => begin("ZCARD"),
            Ask::All(Kind::Hash) => begin("HGETALL"),
            Ask::All(Kind::List) => range("LRANGE", 0, -1),
            Ask::All(Kind::Set) => begin("SMEMBERS"),
            Ask::All(Kind::Sorted) => with("ZRANGE", &[told(0), told(-1), b"WITHSCORES".to_vec()]),
            Ask::HashSet(pairs) => {
                let mut words = begin("HSET");
                pairs.iter().for_each(|(field, value)| words.extend([field.clone(), value.clone()]));
                words
            }
            Ask::HashDelete(fields) => with("HDEL", fields),
            Ask::HashGet(fields) => with("HMGET", fields),
            Ask::HashAdd(field, by) => with("HINCRBY", &[field.clone(), told(by)]),
            Ask::Push { front, elements } => with(if *front { "LPUSH" } else { "RPUSH" }, elements),
            Ask::Pop { front, count } => with(if *front { "LPOP" } else { "RPOP" }, &[told(count)]),
            Ask::Range(from, to) => range("LRANGE", *from, *to),
            Ask::Trim(from, to) => range("LTRIM", *from, *to),
            Ask::SetAt(place, element) => with("LSET", &[told(place), element.clone()]),
            Ask::Insert { before, pivot, element } => {
                let side = if *before { &b"BEFORE"[..] } else { b"AFTER" };
                with("LINSERT", &[side.to_vec(), pivot.clone(), element.clone()])
            }
            Ask::RemoveAll(element) => with("LREM", &[told(0), element.clone()]),
            Ask::Add(members) => with("SADD", members),
            Ask::Remove(members) => with("SREM", members),
            Ask::Has(members) => with("SMISMEMBER", members),
            Ask::Take(count) => with("SPOP", &[told(count)]),
            Ask::Score(pairs) => {
                let mut words = begin("ZADD");
                pairs.iter().for_each(|(member, score)| words.extend([told(score), member.clone()]));
                words
            }
            Ask::Unscore(members) => with("ZREM", members),
            Ask::ScoreOf(members) => with("ZMSCORE", members),
            Ask::Rank(member) => with("ZRANK", std::slice::from_ref(member)),
            Ask::Ranked(from, to) => range("ZRANGE", *from, *to),
            Ask::Scored(from, to) => with("ZRANGEBYSCORE", &[told(from), told(to), b"WITHSCORES".to_vec()]),
            Ask::AddScore(member, by) => with("ZINCRBY", &[told(by), member.clone()]),
            Ask::PopLeast(count) => with("ZPOPMIN", &[told(count)]),
            Ask::RemoveRanked(from, to) => range("ZREMRANGEBYRANK", *from, *to),
        }
    }

    /// Whether it changes nothing.
    #[cfg(test)]
    fn reads(&self) -> bool {
        matches!(
            self,
            Ask::Length(_)
                | Ask::All(_)
                | Ask::HashGet(_)
                | Ask::Range(..)
                | Ask::Has(_)
                | Ask::ScoreOf(_)
                | Ask::Rank(_)
                | Ask::Ranked(..)
                | Ask::Scored(..)
        )
    }

    /// The command in words.
    pub fn shown(&self) -> String {
        short(format!("{self:?}").as_bytes())
    }

    /// The possible states after a refusal: as before, or with the first of several elements written. `None`
    /// if these are unknown.
    pub fn begun(&self, state: &Model) -> Option<Vec<Model>> {
        let parts: Vec<Ask> = match self {
            Ask::HashSet(pairs) => pairs.iter().map(|pair| Ask::HashSet(vec![pair.clone()])).collect(),
            Ask::HashDelete(fields) => {
                fields.iter().map(|field| Ask::HashDelete(vec![field.clone()])).collect()
            }
            Ask::Add(members) => members.iter().map(|member| Ask::Add(vec![member.clone()])).collect(),
            Ask::Remove(members) => members.iter().map(|member| Ask::Remove(vec![member.clone()])).collect(),
            Ask::Score(pairs) => pairs.iter().map(|pair| Ask::Score(vec![pair.clone()])).collect(),
            Ask::Unscore(members) => {
                members.iter().map(|member| Ask::Unscore(vec![member.clone()])).collect()
            }
            Ask::Push { front, elements } => {
                elements.iter().map(|one| Ask::Push { front: *front, elements: vec![one.clone()] }).collect()
            }
            Ask::Take(_) | Ask::Trim(..) | Ask::Pop { .. } | Ask::PopLeast(_) => return None,
            Ask::RemoveAll(_) | Ask::RemoveRanked(..) => return None,
            _ => Vec::new(),
        };
        if parts.len() > PARTS_MAX {
            return None;
        }
        let mut states = vec![state.clone()];
        for part in parts {
            let mut next = states[states.len() - 1].clone();
            part.carry_out(&mut next);
            states.push(next);
        }
        states.dedup();
        Some(states)
    }

    /// Carries the command out; returns the reply, if only one is possible.
    fn carry_out(&self, state: &mut Model) -> Option<Reply> {
        let count = |count: usize| Some(Reply::Number(count as i64));
        let bulk = |text: &Text| Reply::Bulk(Some(text.clone()));
        let array = |replies: Vec<Reply>| Some(Reply::Array(Some(replies)));
        let ok = || Some(Reply::Simple("OK".into()));
        let len = state.len();
        match (self, state) {
            (Ask::Forget, _) | (Ask::Take(_), _) => None,
            (Ask::Delete, state) => {
                state.clear();
                count(usize::from(len > 0))
            }
            (Ask::Expire(_), _) => count(usize::from(len > 0)),
            // The keeper may not know whether there was an expiry.
            (Ask::Persist, _) => None,
            (Ask::Length(_), _) => count(len),
            (Ask::All(Kind::Hash), Model::Hash(fields)) => {
                array(fields.iter().flat_map(|(field, value)| [bulk(field), bulk(value)]).collect())
            }
            (Ask::All(Kind::List), Model::List(elements)) => array(elements.iter().map(bulk).collect()),
            (Ask::All(Kind::Set), Model::Set(members)) => array(members.iter().map(bulk).collect()),
            (Ask::All(Kind::Sorted), Model::Sorted(order, _)) => {
                array(order.iter().flat_map(|(score, member)| [bulk(member), bulk(&told(score))]).collect())
            }
            (Ask::HashSet(pairs), Model::Hash(fields)) => count(
                pairs
                    .iter()
                    .filter(|(field, value)| fields.insert(field.clone(), value.clone()).is_none())
                    .count(),
            ),
            (Ask::HashDelete(gone), Model::Hash(fields)) => {
                count(gone.iter().filter(|field| fields.remove(*field).is_some()).count())
            }
            (Ask::HashGet(wanted), Model::Hash(fields)) => {
                array(wanted.iter().map(|field| Reply::Bulk(fields.get(field).cloned())).collect())
            }
            (Ask::HashAdd(field, by), Model::Hash(fields)) => {
                let number =
                    |text: &Text| std::str::from_utf8(text).ok().and_then(|text| text.parse::<i64>().ok());
                let Some(before) = fields.get(field).map_or(Some(0), number) else {
                    return Some(Reply::Error("ERR hash value is not an integer".into()));
                };
                fields.insert(field.clone(), told(before + by));
                Some(Reply::Number(before + by))
            }
            (Ask::Push { front, elements: more }, Model::List(elements)) => {
                for element in more {
                    if *front {
                        elements.push_front(element.clone())
                    } else {
                        elements.push_back(element.clone())
                    }
                }
                count(elements.len())
            }
            (Ask::Pop { front, count }, Model::List(elements)) => {
                if len == 0 {
                    return Some(Reply::Array(None));
                }
                let pop = |_| if *front { elements.pop_front() } else { elements.pop_back() };
                array((0..(*count).min(len)).filter_map(pop).map(|element| bulk(&element)).collect())
            }
            (Ask::Range(from, to), Model::List(elements)) => {
                array(elements.range(places(*from, *to, len)).map(bulk).collect())
            }
            (Ask::Trim(from, to), Model::List(elements)) => {
                *elements = elements.range(places(*from, *to, len)).cloned().collect();
                ok()
            }
            (Ask::SetAt(place, element), Model::List(elements)) => {
                if len == 0 {
                    return Some(Reply::Error("ERR no such key".into()));
                }
                let at = if *place < 0 { place + len as i64 } else { *place };
                match usize::try_from(at).ok().and_then(|at| elements.get_mut(at)) {
                    Some(there) => {
                        there.clone_from(element);
                        ok()
                    }
                    None => Some(Reply::Error("ERR index out of range".into())),
                }
            }
            (Ask::Insert { before, pivot, element }, Model::List(elements)) => {
                let Some(at) = elements.iter().position(|there| there == pivot) else {
                    return Some(Reply::Number(if len == 0 { 0 } else { -1 }));
                };
                elements.insert(at + usize::from(!before), element.clone());
                count(elements.len())
            }
            (Ask::RemoveAll(element), Model::List(elements)) => {
                elements.retain(|there| there != element);
                count(len - elements.len())
            }
            (Ask::Add(more), Model::Set(members)) => {
                count(more.iter().filter(|member| members.insert((*member).clone())).count())
            }
            (Ask::Remove(gone), Model::Set(members)) => {
                count(gone.iter().filter(|member| members.remove(*member)).count())
            }
            (Ask::Has(wanted), Model::Set(members)) => array(
                wanted.iter().map(|member| Reply::Number(i64::from(members.contains(member)))).collect(),
            ),
            (Ask::Score(pairs), Model::Sorted(order, members)) => {
                count(pairs.iter().filter(|(member, to)| score(order, members, member, *to)).count())
            }
            (Ask::Unscore(gone), Model::Sorted(order, members)) => {
                count(gone.iter().filter(|member| unscore(order, members, member)).count())
            }
            (Ask::ScoreOf(wanted), Model::Sorted(_, members)) => {
                array(wanted.iter().map(|member| Reply::Bulk(members.get(member).map(told))).collect())
            }
            (Ask::Rank(member), Model::Sorted(order, members)) => Some(match members.get(member) {
                Some(score) => Reply::Number(order.range(..(*score, member.clone())).count() as i64),
                None => Reply::Bulk(None),
            }),
            (Ask::Ranked(from, to), Model::Sorted(order, _)) => {
                let places = places(*from, *to, len);
                array(
                    order
                        .iter()
                        .skip(places.start)
                        .take(places.len())
                        .map(|(_, member)| bulk(member))
                        .collect(),
                )
            }
            (Ask::Scored(from, to), Model::Sorted(order, _)) => {
                let meant = order.range((*from, Vec::new())..(*to + 1, Vec::new()));
                array(meant.flat_map(|(score, member)| [bulk(member), bulk(&told(score))]).collect())
            }
            (Ask::AddScore(member, by), Model::Sorted(order, members)) => {
                let to = members.get(member).copied().unwrap_or(0) + by;
                score(order, members, member, to);
                Some(bulk(&told(to)))
            }
            (Ask::PopLeast(count), Model::Sorted(order, members)) => {
                let mut popped = Vec::new();
                for _ in 0..*count {
                    let Some((score, member)) = order.pop_first() else { break };
                    members.remove(&member);
                    popped.extend([bulk(&member), bulk(&told(score))]);
                }
                array(popped)
            }
            (Ask::RemoveRanked(from, to), Model::Sorted(order, members)) => {
                let places = places(*from, *to, len);
                let gone: Vec<(i64, Text)> =
                    order.iter().skip(places.start).take(places.len()).cloned().collect();
                count(gone.iter().filter(|(_, member)| unscore(order, members, member)).count())
            }
            (ask, state) => unreachable!("{ask:?} is not asked of {state:?}"),
        }
    }

    /// Whether a collection in this state can have given this reply; `state` becomes the state after it.
    pub fn follow(&self, state: &mut Model, answer: &Reply) -> bool {
        match (self, &mut *state) {
            (Ask::Take(count), Model::Set(members)) => {
                let Reply::Array(Some(taken)) = answer else { return false };
                let wanted = (*count).min(members.len());
                let all = taken
                    .iter()
                    .all(|one| matches!(one, Reply::Bulk(Some(member)) if members.remove(member)));
                return all && taken.len() == wanted;
            }
            (Ask::Persist, _) => return matches!(answer, Reply::Number(0 | 1)),
            _ => {}
        }
        let Some(expected) = self.carry_out(state) else { return true };
        match (self, answer, &expected) {
            // The order is the server's.
            (Ask::All(Kind::Hash), Reply::Array(Some(told)), Reply::Array(Some(expected))) => {
                told.len() == expected.len() && sorted(told.chunks(2)) == sorted(expected.chunks(2))
            }
            (Ask::All(Kind::Set), Reply::Array(Some(told)), Reply::Array(Some(expected))) => {
                told.len() == expected.len() && sorted(told.chunks(1)) == sorted(expected.chunks(1))
            }
            _ => *answer == expected,
        }
    }
}

fn sorted<'r>(parts: impl Iterator<Item = &'r [Reply]>) -> Vec<Vec<Option<&'r Text>>> {
    let text = |reply: &'r Reply| match reply {
        Reply::Bulk(text) => text.as_ref(),
        _ => None,
    };
    let mut all: Vec<Vec<Option<&Text>>> = parts.map(|part| part.iter().map(text).collect()).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::KINDS;

    #[test]
    fn what_a_collection_answers_is_followed_and_nothing_else_is() {
        let (mut random, mut made) = (Random::of(1, 1), 0);
        for kind in KINDS {
            let mut state = Model::empty(kind);
            for _ in 0..3000 {
                let ask = Ask::some(&state, 300, &mut made, &mut random);
                let before = state.clone();
                let Some(answer) = ask.carry_out(&mut state) else { continue };
                assert!(ask.follow(&mut before.clone(), &answer), "{ask:?}");
                let lie = match answer {
                    Reply::Number(number) => Reply::Number(number + 1),
                    Reply::Array(Some(mut all)) if !all.is_empty() => {
                        all.pop();
                        Reply::Array(Some(all))
                    }
                    _ => Reply::Simple("no".into()),
                };
                assert!(!ask.follow(&mut before.clone(), &lie), "{ask:?}");
                if ask.reads() {
                    assert!(before == state);
                }
            }
            assert!(state.len() > 50, "{}", state.len());
        }
    }

    /// Some elements of each type are stored apart; none is longer than every type allows.
    #[test]
    fn elements_of_every_type_lie_apart_now_and_then() {
        let (mut random, mut made) = (Random::of(2, 1), 0);
        for kind in KINDS {
            let (state, mut longest) = (Model::empty(kind), 0);
            for _ in 0..5000 {
                let ask = Ask::some(&state, 6000, &mut made, &mut random);
                longest = ask.words(b"key").iter().map(Vec::len).fold(longest, usize::max);
            }
            assert!((APART_BYTES[0]..=LONGEST_BYTES).contains(&longest), "{kind:?}: {longest}");
        }
    }

    #[test]
    fn members_that_are_taken_are_members() {
        let mut state = Model::Set([b"a".to_vec(), b"b".to_vec()].into());
        let told = |names: &[&str]| {
            Reply::Array(Some(names.iter().map(|name| Reply::Bulk(Some(name.as_bytes().to_vec()))).collect()))
        };
        for wrong in [&["c"][..], &["a", "a"], &[], &["a", "b"]] {
            assert!(!Ask::Take(1).follow(&mut state.clone(), &told(wrong)), "{wrong:?}");
        }
        assert!(
            Ask::Take(1).follow(&mut state, &told(&["b"])) && state == Model::Set([b"a".to_vec()].into())
        );
    }
}
