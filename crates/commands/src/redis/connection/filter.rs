//! Filters: which clients CLIENT LIST lists and CLIENT KILL closes. A client has to meet all conditions.

use std::sync::atomic::Ordering::Relaxed;

use larder_protocol::resp::{Args, parse_integer};
use larder_store::{DATABASES, Millis};

use super::NAME_BYTES_MAX;
use crate::redis::call::{Call, integer, is, next};
use crate::redis::facts::ClientFacts;
use crate::redis::fail::{Fail, shown};
use crate::redis::heap::Heap;

/// A kind of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    Pubsub,
    /// No client of Larder is.
    Replication,
}

impl Kind {
    fn parse(word: &[u8]) -> Result<Kind, Fail> {
        if is(word, "NORMAL") {
            Ok(Kind::Normal)
        } else if is(word, "PUBSUB") {
            Ok(Kind::Pubsub)
        } else if ["MASTER", "PRIMARY", "REPLICA", "SLAVE"].iter().any(|kind| is(word, kind)) {
            Ok(Kind::Replication)
        } else {
            Err(Fail::with(format!("ERR Unknown client type '{}'", shown(word, 128))))
        }
    }

    fn of(facts: &ClientFacts) -> Kind {
        if facts.listens() { Kind::Pubsub } else { Kind::Normal }
    }
}

/// Letters of `flags=` in Redis and Valkey.
const FLAGS: &[u8] = b"AbBcdeiIMNOPrRStTuUxE";

/// Conditions of a filter, at most: more than there are kinds.
const TESTS_MAX: usize = 64;
/// Bytes of a text in a condition that are kept.
const TEXT_BYTES_MAX: usize = NAME_BYTES_MAX + 1;
/// Words that one step reads, at most, nearly all of them numbers of clients: some 5 ms.
const WORDS_MAX: usize = 1 << 16;
/// Work to look at a client.
const CLIENT_NS: u64 = 100;
/// Work to check a condition.
const TEST_NS: u64 = 150;

const TOO_MANY: Fail = Fail::of("ERR too many filters");

/// What a condition looks at.
#[derive(Debug)]
enum Test {
    /// Ascending.
    Ids(Vec<u64>),
    Kind(Kind),
    Address(Box<[u8]>),
    ListenAddress(Box<[u8]>),
    Ip(Box<[u8]>),
    User(Box<[u8]>),
    Name(Box<[u8]>),
    Library(Box<[u8]>),
    LibraryVersion(Box<[u8]>),
    /// It has these of [`FLAGS`], one bit each.
    Flags(u32),
    /// It can be redirected: no client can.
    Redirects,
    Db(u32),
    /// It has been connected, or idle, for so long.
    AgeS(u64),
    IdleS(u64),
}

/// The conditions on a client.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    /// What is looked at, and whether it has to hold or must not.
    tests: Vec<(bool, Test)>,
    /// Whether the client that asks is left out, if SKIPME is given.
    pub skip_me: Option<bool>,
    _held: Option<Heap>,
}

/// The command that a filter is for, which words errors about client numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    ForList,
    ToKill,
}

const NOT_POSITIVE: Fail = Fail::of("ERR client-id should be greater than 0");

impl Asked {
    /// How a number below 1 is taken.
    fn nobody(self) -> Result<u64, Fail> {
        match self {
            Asked::ForList => Ok(0),
            Asked::ToKill => Err(NOT_POSITIVE),
        }
    }

    fn bad_id(self) -> Fail {
        match self {
            Asked::ForList => Fail::of("ERR Invalid client ID"),
            Asked::ToKill => NOT_POSITIVE,
        }
    }
}

fn seconds(word: &[u8], name: &str) -> Result<u64, Fail> {
    let n = integer(word).map_err(|_| Fail::with(format!("ERR {name} is not an integer or out of range")))?;
    let n = u64::try_from(n).ok().filter(|&n| n > 0);
    n.ok_or_else(|| Fail::with(format!("ERR {name} should be greater than 0")))
}

/// Shortens a text to compare: no text of a client is longer.
fn cut(value: &[u8]) -> Box<[u8]> {
    value[..value.len().min(TEXT_BYTES_MAX)].into()
}

impl Filter {
    /// A filter of all clients with this address.
    ///
    /// # Errors
    /// Connections hold as much as they may.
    pub fn address(call: &mut Call<'_, '_, '_>, address: &[u8]) -> Result<Filter, Fail> {
        let held = Some(Heap::keep(call, size_of::<Test>() + address.len().min(TEXT_BYTES_MAX))?);
        Ok(Filter { tests: vec![(true, Test::Address(cut(address)))], _held: held, ..Filter::default() })
    }

    /// Parses a filter.
    ///
    /// # Errors
    /// An option does not exist, or has a wrong value; or connections hold as much as they may.
    pub fn parse(call: &mut Call<'_, '_, '_>, mut args: Args<'_>, asked: Asked) -> Result<Filter, Fail> {
        if args.len() > WORDS_MAX {
            return Err(TOO_MANY);
        }
        // The memory of all numbers and of their vector while it grows, of all texts, and of the vector of conditions, which
        // grows by doubling.
        let tests = args.len().min(TESTS_MAX + 1);
        let texts = args.encoded().len().min(tests * TEXT_BYTES_MAX);
        let noted = 3 * args.len() * size_of::<u64>() + 3 * tests * size_of::<(bool, Test)>() + texts;
        let held = Heap::keep(call, noted)?;
        let mut filter = Filter { _held: Some(held), ..Filter::default() };
        let mut behind_ids = false;
        while let Some(word) = args.next() {
            if filter.tests.len() > TESTS_MAX {
                return Err(TOO_MANY);
            }
            let value = args.clone().next();
            let (wanted, word) = match word {
                [b'n' | b'N', b'o' | b'O', b't' | b'T', b'-', rest @ ..] => (false, rest),
                word => (true, word),
            };
            if is(word, "ID") {
                let mut ids = Vec::new();
                while let Some(id) = args.clone().next().and_then(parse_integer) {
                    args.next();
                    // No client has a number below 1; CLIENT LIST accepts such a number and finds none.
                    ids.push(u64::try_from(id).ok().filter(|&id| id > 0).map_or_else(|| asked.nobody(), Ok)?);
                }
                if ids.is_empty() {
                    return Err(value.map_or(Fail::SYNTAX, |_| asked.bad_id()));
                }
                ids.sort_unstable();
                filter.tests.push((wanted, Test::Ids(ids)));
                behind_ids = true;
                continue;
            }
            let other = if behind_ids { asked.bad_id() } else { Fail::SYNTAX };
            if wanted && is(word, "SKIPME") {
                filter.skip_me = match next(&mut args)? {
                    yes if is(yes, "yes") => Some(true),
                    no if is(no, "no") => Some(false),
                    _ => return Err(Fail::SYNTAX),
                };
                continue;
            }
            let value = args.next();
            let test = Test::parse(call, word, value, other)?;
            let only_asked = matches!(test, Test::AgeS(_) | Test::IdleS(_));
            if !wanted && only_asked {
                return Err(Fail::SYNTAX);
            }
            filter.tests.push((wanted, test));
            behind_ids = false;
        }
        if filter.tests.len() > TESTS_MAX { Err(TOO_MANY) } else { Ok(filter) }
    }

    /// Work to look at a client.
    pub fn client_ns(&self) -> u64 {
        clients_ns(self.tests.len())
    }

    pub fn holds(&self, facts: &ClientFacts, now: Millis) -> bool {
        self.tests.iter().all(|(wanted, test)| test.holds(facts, now) == *wanted)
    }
}

/// Work to look at a client with so many conditions.
fn clients_ns(tests: usize) -> u64 {
    CLIENT_NS + TEST_NS * tests as u64
}

/// Work to look at a client, at most, by the number of words of a filter.
pub(crate) fn filter_ns(words: usize) -> u64 {
    clients_ns(words.div_ceil(2).min(TESTS_MAX))
}

impl Test {
    fn parse(call: &Call<'_, '_, '_>, word: &[u8], value: Option<&[u8]>, other: Fail) -> Result<Test, Fail> {
        let names = [
            "TYPE", "ADDR", "LADDR", "IP", "USER", "NAME", "LIB-NAME", "LIB-VER", "FLAGS", "CAPA", "DB",
            "MAXAGE", "IDLE",
        ];
        let Some(name) = names.into_iter().find(|name| is(word, name)) else { return Err(other) };
        let value = value.ok_or(Fail::SYNTAX)?;
        Ok(match name {
            "TYPE" => Test::Kind(Kind::parse(value)?),
            "ADDR" => Test::Address(cut(value)),
            "LADDR" => Test::ListenAddress(cut(value)),
            "IP" => Test::Ip(cut(value)),
            "USER" => {
                let users = call.cx.shared.access.users();
                if std::str::from_utf8(value).ok().and_then(|name| users.get(name)).is_none() {
                    return Err(Fail::with(format!("ERR No such user '{}'", shown(value, NAME_BYTES_MAX))));
                }
                Test::User(value.into())
            }
            "NAME" => Test::Name(cut(value)),
            "LIB-NAME" => Test::Library(cut(value)),
            "LIB-VER" => Test::LibraryVersion(cut(value)),
            "FLAGS" => {
                let place = |flag: &u8| FLAGS.iter().position(|known| known == flag);
                let places = value.iter().map(place).try_fold(0, |all, place| Some(all | 1 << place?));
                let Some(places) = places else {
                    let value = shown(value, 128);
                    return Err(Fail::with(format!(
                        "ERR Unknown flags found in the provided filter: {value}"
                    )));
                };
                Test::Flags(places)
            }
            "CAPA" => {
                if value != b"r" {
                    let value = shown(value, 128);
                    return Err(Fail::with(format!(
                        "ERR Unknown capa found in the provided filter: {value}"
                    )));
                }
                Test::Redirects
            }
            "DB" => {
                let db = integer(value).map_err(|_| Fail::of("ERR DB is not an integer or out of range"))?;
                let db = u32::try_from(db).ok().filter(|&db| db < u32::from(DATABASES));
                Test::Db(db.ok_or(Fail::of("ERR DB number should be between 0 and 15"))?)
            }
            "MAXAGE" => Test::AgeS(seconds(value, "maxage")?),
            _ => Test::IdleS(seconds(value, "idle")?),
        })
    }

    fn holds(&self, facts: &ClientFacts, now: Millis) -> bool {
        let since_s = |then: Millis| now.saturating_sub(then) / 1000;
        match self {
            Test::Ids(ids) => ids.binary_search(&facts.id).is_ok(),
            Test::Kind(kind) => Kind::of(facts) == *kind,
            Test::Address(address) => facts.address.as_bytes() == &**address,
            Test::ListenAddress(address) => facts.listen_address.as_bytes() == &**address,
            Test::Ip(ip) => facts.address.rsplit_once(':').is_some_and(|(host, _)| {
                host.trim_start_matches('[').trim_end_matches(']').as_bytes() == &**ip
            }),
            Test::User(user) => facts.says(user, |names| &names.user),
            Test::Name(name) => facts.says(name, |names| &names.name),
            Test::Library(name) => facts.says(name, |names| &names.library),
            Test::LibraryVersion(version) => facts.says(version, |names| &names.library_version),
            Test::Flags(flags) => {
                let has = facts.flags();
                (0..FLAGS.len()).all(|n| flags >> n & 1 == 0 || has.contains(char::from(FLAGS[n])))
            }
            Test::Redirects => false,
            Test::Db(db) => facts.db.load(Relaxed) == *db,
            Test::AgeS(age) => since_s(facts.since) >= *age,
            Test::IdleS(idle) => since_s(facts.active.load(Relaxed)) >= *idle,
        }
    }
}
