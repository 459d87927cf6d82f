//! SCAN, KEYS, RANDOMKEY, DBSIZE: the keyspace as a whole.

use std::sync::Arc;

use larder_protocol::resp::Args;

use super::survey::{Found, Goal, Kind, Picked, Wanted};
use crate::core::work::KEY_NS;
use crate::redis::call::bounded;
use crate::redis::call::{Call, cursor, integer, is, next};
use crate::redis::census::ITEMS_PER_WALK;
use crate::redis::fail::{Done, Fail};
use crate::redis::reply::{put_bulk, put_null};

/// How often RANDOMKEY walks from a random place before it looks at recent keys.
const RANDOM_WALKS: usize = 8;

/// Serves SCAN.
pub(crate) fn scan(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let cursor = cursor(next(&mut args)?)?;
    let mut count = 10;
    let mut wanted = wanted(call, None);
    while let Some(word) = args.next() {
        if is(word, "NOVALUES") {
            return Err(Fail::ONLY_HSCAN);
        }
        if is(word, "NOSCORES") {
            return Err(Fail::ONLY_ZSCAN);
        }
        let value = next(&mut args)?;
        if is(word, "COUNT") {
            count = integer(value)?;
            if count < 1 {
                return Err(Fail::SYNTAX);
            }
        } else if is(word, "MATCH") {
            wanted.pattern = pattern(value)?;
        } else if is(word, "TYPE") {
            wanted.kind = Some(Kind::of(value));
        } else {
            return Err(Fail::SYNTAX);
        }
    }
    let found = Found::new(call, &wanted)?;
    call.survey(Goal::Scan { wanted, found, left: count as usize }, cursor)
}

/// Serves KEYS.
pub(crate) fn keys(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let wanted = wanted(call, pattern(next(&mut args)?)?);
    let found = Found::new(call, &wanted)?;
    call.survey(Goal::Keys { wanted, found }, 0)
}

fn wanted(call: &Call<'_, '_, '_>, pattern: Option<Arc<[u8]>>) -> Wanted {
    Wanted { database: call.cx.guard.database(call.client.db), pattern, kind: None }
}

fn pattern(pattern: &[u8]) -> Result<Option<Arc<[u8]>>, Fail> {
    Ok(if pattern == b"*" { None } else { Some(bounded(pattern)?.into()) })
}

/// Serves RANDOMKEY. Draws a key from those at a random place; near the end the first keys are drawn from, too. If none there is
/// of this database, draws from keys that were new in it or found in it recently; if there are none either, takes the next from
/// there on.
pub(crate) fn random_key(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let database = call.cx.guard.database(call.client.db);
    let mut cursor = call.shared.random();
    let mut picked = Picked::new(cursor);
    // While a flush is cleaned up the count may be too low by a few: what was stored since is among the new keys.
    let none = call.cx.guard.store().database_items(call.client.db) == 0;
    let mut round = false;
    for _ in 0..if none { 0 } else { RANDOM_WALKS } {
        call.spend(ITEMS_PER_WALK as u64 * KEY_NS);
        cursor = call.cx.guard.walk(cursor, ITEMS_PER_WALK, &mut |item| {
            if item.is_in(database) {
                picked.offer(item.key());
            }
        });
        // The first keys have few places before them, so they are drawn from behind the last ones too.
        if picked.key.is_some() && (round || cursor != 0) {
            break;
        }
        round |= cursor == 0;
    }
    if picked.key.is_none() {
        call.cx.guard.visit_new(database, &mut |item| picked.offer(item.key()));
        call.cx.guard.visit_found(database, &mut |item| picked.offer(item.key()));
    }
    match &picked.key {
        Some(key) => put_bulk(call.out, key),
        None if none => put_null(call.out, call.client.resp3),
        None => {
            return call
                .survey(Goal::Random { database, start: cursor, round: false, picked, found: 0 }, cursor);
        }
    }
    Ok(())
}
