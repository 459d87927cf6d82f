//! Places in sorted sets: GEOADD, GEOSEARCH and their kin. `grid.rs` has what a score means, `search.rs` the searches.

mod grid;
mod search;

use larder_protocol::resp::{Args, parse_double};
use larder_store::{Collection, Hint, Key, ScoreRule, Type};

use super::words::{Write, first, members_at_once};
use super::{Call, ELEMENT_FRAME, LOOK_NS, look, peek_as, read_as};
use crate::core::events::{Change, Class};
use crate::core::output::Output;
use crate::redis::call::{is, next};
use crate::redis::definition::Definition;
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_array, put_bulk, put_double, put_null, put_null_array};
use crate::redis::row::flag::{DENYOOM, IN_PARTS, MOVABLEKEYS, READONLY, WEIGHTLESS, WRITE};
use crate::redis::row::{Access, Command, Elements, Keys, KeysFunction, ONE_KEY, TWO_KEYS, Tells, Weighs};
use crate::redis::source::Name;
use crate::redis::steps::job::{Job, Step};
use crate::redis::steps::kept::Kept;
use grid::Place;
pub(crate) use search::PLACE_NS;
use search::{Kind, search};

pub(crate) const ROWS: &[Definition] = &[
    Command::of_collection("geoadd", -5, WRITE | DENYOOM | IN_PARTS, |call, key, _, args| {
        add(call, key, args)
    })
    .tells(Tells::Each(Change::of(Class::SortedSet, "zadd")))
    .weighs(Weighs::Elements(Elements::SortedWrite))
    .doc(
        "3.2.0",
        "key [NX|XX] [CH] longitude latitude member [longitude latitude member ...]",
        "Gives members places; how many were not there.",
    ),
    Command::of_collection("geodist", -4, READONLY | WEIGHTLESS, distance).doc(
        "3.2.0",
        "key member1 member2 [M|KM|FT|MI]",
        "How far two members are from each other.",
    ),
    Command::of_collection("geohash", -2, READONLY, |call, key, hint, args| {
        tell(call, key, hint, args, Form::Geohash)
    })
    .weighs(Weighs::Elements(Elements::NamedPlaces))
    .doc("3.2.0", "key [member [member ...]]", "The places of members as geohashes."),
    Command::of_collection("geopos", -2, READONLY, |call, key, hint, args| {
        tell(call, key, hint, args, Form::Place)
    })
    .weighs(Weighs::Elements(Elements::NamedPlaces))
    .doc("3.2.0", "key [member [member ...]]", "The places of members."),
    Command::of_collections("geosearch", -7, READONLY, ONE_KEY, |call, args| {
        search(call, "geosearch", Kind::Search, args)
    })
    .weighs(Weighs::Elements(Elements::Places))
    .doc("6.2.0", SEARCH_USAGE, "Members that lie in a circle or in a box."),
    Command::of_collections("geosearchstore", -8, WRITE | DENYOOM, TWO_KEYS, |call, args| {
        search(call, "geosearchstore", Kind::SearchStore, args)
    })
    .tells(Tells::Each(Change::store(Class::SortedSet, "geosearchstore")))
    .access(super::set::STORES)
    .weighs(Weighs::Elements(Elements::StorePlaces))
    .doc("6.2.0", STORE_USAGE, "Stores what GEOSEARCH would show."),
    Command::of_collections("georadius", -6, WRITE | DENYOOM | MOVABLEKEYS, RADIUS_KEYS, |call, args| {
        search(call, "georadius", Kind::Radius, args)
    })
    .tells(Tells::Each(Change::store(Class::SortedSet, "georadiusstore")))
    .access(&[Access::Read, Access::Replace])
    .weighs(Weighs::Elements(Elements::Places))
    .doc("3.2.0", RADIUS_STORE_USAGE, "Members that are no farther from a place; or stores them."),
    Command::of_collections("georadius_ro", -6, READONLY, ONE_KEY, |call, args| {
        search(call, "georadius_ro", Kind::RadiusRead, args)
    })
    .weighs(Weighs::Elements(Elements::Places))
    .doc("3.2.10", RADIUS_USAGE, "As GEORADIUS, which stores nothing."),
    Command::of_collections(
        "georadiusbymember",
        -5,
        WRITE | DENYOOM | MOVABLEKEYS,
        RADIUS_KEYS,
        |call, args| search(call, "georadiusbymember", Kind::Member, args),
    )
    .tells(Tells::Each(Change::store(Class::SortedSet, "georadiusstore")))
    .access(&[Access::Read, Access::Replace])
    .weighs(Weighs::Elements(Elements::Places))
    .doc("3.2.0", MEMBER_STORE_USAGE, "Members that are no farther from another one; or stores them."),
    Command::of_collections("georadiusbymember_ro", -5, READONLY, ONE_KEY, |call, args| {
        search(call, "georadiusbymember_ro", Kind::MemberRead, args)
    })
    .weighs(Weighs::Elements(Elements::Places))
    .doc("3.2.10", MEMBER_USAGE, "As GEORADIUSBYMEMBER, which stores nothing."),
];

const SEARCH_USAGE: &str = "key <FROMMEMBER member|FROMLONLAT longitude latitude> <BYRADIUS radius <M|KM|FT|MI>|BYBOX width height <M|KM|FT|MI>> [ASC|DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]";
const STORE_USAGE: &str = "destination source <FROMMEMBER member|FROMLONLAT longitude latitude> <BYRADIUS radius <M|KM|FT|MI>|BYBOX width height <M|KM|FT|MI>> [ASC|DESC] [COUNT count [ANY]] [STOREDIST]";
const RADIUS_USAGE: &str = "key longitude latitude radius <M|KM|FT|MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC|DESC]";
const RADIUS_STORE_USAGE: &str = "key longitude latitude radius <M|KM|FT|MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC|DESC] [STORE destination|STOREDIST destination]";
const MEMBER_USAGE: &str =
    "key member radius <M|KM|FT|MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC|DESC]";
const MEMBER_STORE_USAGE: &str = "key member radius <M|KM|FT|MI> [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC|DESC] [STORE destination|STOREDIST destination]";

/// The key, and the destination of the last STORE or STOREDIST, as Redis finds them, whatever else is wrong.
const RADIUS_KEYS: Keys = Keys::By(KeysFunction(|mut args, visit| {
    let Some(key) = args.next() else { return false };
    visit(key);
    let (mut store, mut options) = (None, args);
    // The least number of words in front of the options.
    options.nth(2);
    while let Some(word) = options.next() {
        if is(word, "STORE") || is(word, "STOREDIST") {
            store = options.next().or(store);
        }
    }
    if let Some(store) = store {
        visit(store);
    }
    true
}));

/// Parses a number; `otherwise` is the error.
fn double(word: &[u8], otherwise: Fail) -> Result<f64, Fail> {
    parse_double(word).ok_or(otherwise)
}

/// Parses a longitude and a latitude.
///
/// # Errors
/// One is no number, or they are not on the grid.
fn place(longitude: &[u8], latitude: &[u8]) -> Result<Place, Fail> {
    let number = |word| double(word, Fail::NOT_A_FLOAT);
    let place = Place { longitude: number(longitude)?, latitude: number(latitude)? };
    if place.is_valid() {
        return Ok(place);
    }
    let Place { longitude, latitude } = place;
    Err(Fail::with(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}")))
}

/// The metres of a unit.
///
/// # Errors
/// There is no such unit.
fn unit(word: &[u8]) -> Result<f64, Fail> {
    let units = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];
    let unit = units.iter().find(|(name, _)| is(word, name));
    unit.map(|(_, metres)| *metres).ok_or(Fail::of("ERR unsupported unit provided. please use M, KM, FT, MI"))
}

/// Words in threes: a longitude, a latitude and a member.
#[derive(Clone, Debug)]
pub(super) struct Places<'a>(pub Args<'a>);

impl<'a> Iterator for Places<'a> {
    type Item = (&'a [u8], &'a [u8], &'a [u8]);
    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?, self.0.next()?))
    }
}

/// Checks that all of these words are places with members.
///
/// # Errors
/// One is no place.
pub(super) fn are_places(words: Args<'_>) -> Done {
    Places(words).try_for_each(|(longitude, latitude, _)| place(longitude, latitude).map(drop))
}

/// The scores of places that were checked, with their members.
pub(super) fn scored(words: Args<'_>) -> impl Iterator<Item = (f64, &[u8])> + Clone {
    Places(words)
        .map(|(longitude, latitude, member)| (place(longitude, latitude).map_or(0.0, Place::score), member))
}

/// Serves GEOADD.
fn add(call: &mut Call<'_, '_, '_>, key: &Key<'_>, mut args: Args<'_>) -> Done {
    let (mut rule, mut changes) = (ScoreRule::default(), false);
    while let Some(word) = args.at(0) {
        if is(word, "NX") {
            rule.absent = true;
        } else if is(word, "XX") {
            rule.present = true;
        } else if is(word, "CH") {
            changes = true;
        } else {
            break;
        }
        args.next();
    }
    if args.is_empty() || !args.len().is_multiple_of(3) || rule.absent && rule.present {
        return Err(Fail::SYNTAX);
    }
    call.write_words("geoadd", key, args, Write::Place(rule, changes), false)
}

/// Serves GEODIST.
fn distance(call: &mut Call<'_, '_, '_>, key: &Key<'_>, hint: &Hint<'_>, mut args: Args<'_>) -> Done {
    let (one, two) = (next(&mut args)?, next(&mut args)?);
    let unit_m = match args.next() {
        Some(word) if args.is_empty() => unit(word)?,
        Some(_) => return Err(Fail::SYNTAX),
        None => 1.0,
    };
    call.spend_on_bytes(one.len() + two.len());
    let scores = look(call, key, hint, Type::SortedSet, |set| Some((set.score(one)?, set.score(two)?)))?;
    match scores.flatten() {
        Some((one, two)) => {
            put_distance(call.out, Place::of_score(one).distance(Place::of_score(two)) / unit_m);
            Ok(())
        }
        None => call.null(),
    }
}

/// Writes a distance with four digits behind the point.
fn put_distance(out: &mut Output, distance: f64) {
    let parts = (distance * 10_000.0).round_ties_even() as i64;
    let (sign, parts) = (if parts < 0 { "-" } else { "" }, parts.unsigned_abs());
    put_bulk(out, format!("{sign}{}.{:04}", parts / 10_000, parts % 10_000).as_bytes());
}

fn put_place(out: &mut Output, resp3: bool, place: Place) {
    put_array(out, 2);
    put_double(out, resp3, place.longitude);
    put_double(out, resp3, place.latitude);
}

/// The form of a member's place in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Geohash,
    Place,
}

/// Bytes of the reply for a member, at most.
const TOLD_BYTES: usize = 2 * ELEMENT_FRAME + 64;
/// Members that are replied in one moment, at most.
const TOLD_AT_ONCE: usize = 512;

/// Serves GEOHASH and GEOPOS.
fn tell(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    hint: &Hint<'_>,
    mut words: Args<'_>,
    form: Form,
) -> Done {
    let mark = call.out.mark();
    read_as(call.cx, call.tally, key, hint, Type::SortedSet)?;
    put_array(call.out, words.len());
    let whole = call.cx.guard.in_transaction();
    let most = if whole { usize::MAX } else { members_at_once(words, 1, TOLD_AT_ONCE, 1) };
    call.make_room(words.len().min(most) * TOLD_BYTES).inspect_err(|_| call.out.rewind(mark))?;
    tell_some(call, key, &mut words, form, most);
    if words.is_empty() {
        return Ok(());
    }
    let kept = Kept::new(call, words).inspect_err(|_| call.out.rewind(mark))?;
    let name = Name::kept(call, key.bytes()).inspect_err(|_| call.out.rewind(mark))?;
    call.go_on_with(Telling { name, form, kept });
    Ok(())
}

/// Replies some members, as of one moment, and takes them out of the words.
fn tell_some(call: &mut Call<'_, '_, '_>, key: &Key<'_>, words: &mut Args<'_>, form: Form, most: usize) {
    let all_bytes = words.encoded().len();
    let some = first(words, most);
    let some_bytes = all_bytes - words.encoded().len();
    let resp3 = call.client.resp3;
    // A key of another type has none of them.
    let there: Option<Collection<'_>> = peek_as(&mut call.cx.guard, key, Type::SortedSet).unwrap_or(None);
    for member in some {
        let place = there.as_ref().and_then(|set| set.score(member)).map(Place::of_score);
        match (place, form) {
            (Some(place), Form::Geohash) => put_bulk(call.out, &place.geohash()),
            (Some(place), Form::Place) => put_place(call.out, resp3, place),
            (None, Form::Geohash) => put_null(call.out, resp3),
            (None, Form::Place) => put_null_array(call.out, resp3),
        }
    }
    call.spend_on(some.len(), LOOK_NS);
    call.spend_on_bytes(some_bytes);
}

/// A GEOHASH or GEOPOS that has replied some members, and goes on.
#[derive(Debug)]
struct Telling {
    name: Name,
    form: Form,
    kept: Kept,
}

impl Job for Telling {
    fn step(&mut self, call: &mut Call<'_, '_, '_>) -> Result<Step, Fail> {
        let Telling { name, form, kept } = self;
        let key = name.key(call);
        let most = ((call.step_ns() / LOOK_NS) as usize).clamp(16, TOLD_AT_ONCE);
        kept.take(|words| {
            let most = members_at_once(*words, 1, most, 1);
            tell_some(call, &key, words, *form, most);
        });
        Ok(if self.kept.left() == 0 { Step::Done } else { Step::Full })
    }

    fn held_bytes(&self) -> u64 {
        self.kept.held_bytes()
    }

    fn only_reads(&self) -> bool {
        true
    }

    fn spends_on_words(&self) -> bool {
        true
    }

    fn kept(&mut self) -> Option<&mut Kept> {
        Some(&mut self.kept)
    }
}
