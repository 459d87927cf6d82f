//! The ledger judges what it is told.

use super::*;
use crate::world::World;

fn world() -> World {
    World::new([([127, 0, 0, 1], 1).into(); 2])
}

fn now(world: &World) -> Span {
    Span { before: world.moment(), after: world.moment() }
}

fn set(text: &str) -> Verb {
    Verb::Set(text.into(), Ttl::Ever)
}

fn value(text: &str) -> Seen {
    Seen::Value(text.into(), None)
}

#[test]
fn what_was_written_is_read_or_it_is_lost() {
    let world = world();
    let mut key = Key::new("k".into(), 0);
    let mut ask = |verb: Verb, seen: Seen| key.judge(Dialect::Resp, &verb, &seen, &now(&world));
    assert_eq!(ask(Verb::Get, Seen::Nothing), Ok(Fate::Absent));
    assert_eq!(ask(set("one"), Seen::Done), Ok(Fate::There));
    assert_eq!(ask(Verb::Get, value("one")), Ok(Fate::There));
    assert!(matches!(ask(Verb::Get, Seen::Nothing), Err(Fault::Lost(_))));
    assert_eq!(ask(Verb::Get, value("what is there counts from here on")), Ok(Fate::Doubtful));
    assert_eq!(ask(set("two"), Seen::Done), Ok(Fate::There));
    assert!(matches!(ask(Verb::Get, value("one")), Err(Fault::Wrong(_))));
}

#[test]
fn what_was_evicted_does_not_come_back() {
    let world = world();
    let mut key = Key::new("k".into(), 0);
    let mut ask = |verb: Verb, seen: Seen| key.judge(Dialect::Classic, &verb, &seen, &now(&world));
    ask(set("one"), Seen::Done).expect("stored");
    world.begin(Cause::Evict);
    assert_eq!(ask(Verb::Get, Seen::Nothing), Ok(Fate::Gone));
    assert!(matches!(ask(Verb::Get, value("one")), Err(Fault::Wrong(_))));
}

#[test]
fn a_flush_takes_what_was_there_and_nothing_that_comes_later() {
    let world = world();
    let mut key = Key::new("k".into(), 0);
    let mut ask = |verb: Verb, seen: Seen| key.judge(Dialect::Resp, &verb, &seen, &now(&world));
    ask(set("one"), Seen::Done).expect("stored");
    world.begin(Cause::Flush);
    world.end(Cause::Flush);
    assert!(matches!(ask(Verb::Get, value("one")), Err(Fault::Wrong(_))));
    ask(Verb::Get, Seen::Nothing).expect("resolved");
    ask(set("two"), Seen::Refused).expect_err("there is memory");
    ask(Verb::Get, Seen::Nothing).expect("resolved");
    ask(set("two"), Seen::Done).expect("stored");
    assert!(matches!(ask(Verb::Get, Seen::Nothing), Err(Fault::Lost(_))));
}

#[test]
fn a_token_fits_once_and_grows() {
    let world = world();
    let mut key = Key::new("k".into(), 3);
    let mut ask = |verb: Verb, seen: Seen| key.judge(Dialect::Meta, &verb, &seen, &now(&world));
    ask(set("one"), Seen::Done).expect("stored");
    ask(Verb::GetToken, Seen::Token("one".into(), 3, 7)).expect("a token");
    assert!(ask(Verb::Cas("two".into(), 7), Seen::Otherwise).is_err());
    ask(Verb::Get, Seen::Nothing).expect("resolved");
    ask(set("one"), Seen::Done).expect("stored");
    assert!(ask(Verb::GetToken, Seen::Token("one".into(), 3, 7)).is_err());
    ask(Verb::Get, Seen::Nothing).expect("resolved");
    ask(set("one"), Seen::Done).expect("stored");
    ask(Verb::GetToken, Seen::Token("one".into(), 3, 9)).expect("a token");
    ask(Verb::Cas("two".into(), 9), Seen::Done).expect("stored");
    assert!(ask(Verb::Cas("three".into(), 9), Seen::Done).is_err());
}

#[test]
fn a_key_in_doubt_holds_what_unanswered_operations_may_have_made_of_it() {
    let world = world();
    for (last, fine) in [("one", true), ("onetwo", true), ("three", true), ("two", false)] {
        let mut key = Key::new("k".into(), 0);
        key.judge(Dialect::Resp, &set("one"), &Seen::Done, &now(&world)).expect("stored");
        // APPEND may create a value, if the key was evicted before.
        key.doubt(Dialect::Classic, &Verb::Append("two".into()));
        key.doubt(Dialect::Classic, &set("three"));
        assert_eq!(key.judge(Dialect::Resp, &Verb::Get, &value(last), &now(&world)).is_ok(), fine, "{last}");
    }
}
