//! SCAN, KEYS, RANDOMKEY, DBSIZE: the keyspace as a whole.

use larder_protocol::resp::Args;
use larder_store::Item;

use super::call::{Call, integer, is, next};
use super::fail::{Done, Fail};
use super::glob::matches;
use super::reply::{put_array, put_bulk, put_null};

/// Items looked at between two looks at what was found.
const ITEMS_PER_WALK: usize = 64;

/// Which keys are wanted.
struct Wanted<'a> {
    db: u8,
    pattern: Option<&'a [u8]>,
    /// No key has the type that is asked for.
    none: bool,
}

impl Wanted<'_> {
    fn holds(&self, item: &Item<'_>) -> bool {
        !self.none
            && item.database() == self.db
            && self.pattern.is_none_or(|pattern| matches(pattern, item.key(), false))
    }
}

/// Keys found, encoded as they are replied.
#[derive(Default)]
struct Found {
    bytes: Vec<u8>,
    count: usize,
}

impl Found {
    fn add(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(format!("${}\r\n", key.len()).as_bytes());
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(b"\r\n");
        self.count += 1;
    }
}

/// SCAN
pub(crate) fn scan(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let cursor = next(&mut args)?;
    let mut cursor = larder_protocol::number::parse_u64(cursor).ok_or(Fail::of("ERR invalid cursor"))?;
    let mut count = 10;
    let mut wanted = Wanted { db: call.client.db, pattern: None, none: false };
    while let Some(word) = args.next() {
        let value = next(&mut args)?;
        if is(word, "COUNT") {
            count = integer(value)?;
            if count < 1 {
                return Err(Fail::SYNTAX);
            }
        } else if is(word, "MATCH") {
            wanted.pattern = Some(value).filter(|pattern| *pattern != b"*");
        } else if is(word, "TYPE") {
            wanted.none = !is(value, "string");
        } else {
            return Err(Fail::SYNTAX);
        }
    }
    let mut found = Found::default();
    let mut left = count as usize;
    loop {
        let items = left.min(ITEMS_PER_WALK);
        cursor = call.cx.guard.walk(cursor, items, &mut |item| {
            if wanted.holds(&item) {
                found.add(item.key());
            }
        });
        left -= items;
        if cursor == 0 || left == 0 {
            break;
        }
    }
    put_array(call.out, 2);
    put_bulk(call.out, cursor.to_string().as_bytes());
    put_array(call.out, found.count);
    call.out.put(&found.bytes);
    Ok(())
}

/// KEYS
pub(crate) fn keys(call: &mut Call<'_, '_, '_>, mut args: Args<'_>) -> Done {
    let pattern = next(&mut args)?;
    let wanted =
        Wanted { db: call.client.db, pattern: Some(pattern).filter(|pattern| *pattern != b"*"), none: false };
    let mut found = Found::default();
    let mut cursor = 0;
    loop {
        cursor = call.cx.guard.walk(cursor, ITEMS_PER_WALK, &mut |item| {
            if wanted.holds(&item) {
                found.add(item.key());
            }
        });
        if cursor == 0 {
            break;
        }
    }
    put_array(call.out, found.count);
    call.out.put(&found.bytes);
    Ok(())
}

/// RANDOMKEY
pub(crate) fn random_key(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    let wanted = Wanted { db: call.client.db, pattern: None, none: false };
    let start = call.cx.shared.redis.random();
    let mut key: Option<Vec<u8>> = None;
    // From a random place to the end, then from the beginning.
    for (from, to) in [(start, u64::MAX), (0, start)] {
        let mut cursor = from;
        loop {
            cursor = call.cx.guard.walk(cursor, 1, &mut |item| {
                if key.is_none() && wanted.holds(&item) {
                    key = Some(item.key().to_vec());
                }
            });
            if key.is_some() || cursor == 0 || cursor >= to {
                break;
            }
        }
        if key.is_some() {
            break;
        }
    }
    match key {
        Some(key) => put_bulk(call.out, &key),
        None => put_null(call.out, call.client.resp3),
    }
    Ok(())
}

/// Items looked at to say how many of all expire.
const SAMPLE_ITEMS: usize = 4096;

/// How many of the first items of a walk, up to [`SAMPLE_ITEMS`], are in each database; how many of
/// them expire, and the sum of their milliseconds. Exact for a small keyspace.
pub(crate) struct Sample {
    pub keys: [u64; larder_store::DATABASES as usize],
    pub expiring: [u64; larder_store::DATABASES as usize],
    pub left_ms: [u128; larder_store::DATABASES as usize],
}

impl Sample {
    pub fn take(call: &mut Call<'_, '_, '_>) -> Sample {
        let mut sample = Sample { keys: [0; 16], expiring: [0; 16], left_ms: [0; 16] };
        let now = call.cx.now();
        let (mut cursor, mut seen) = (0, 0);
        loop {
            cursor = call.cx.guard.walk(cursor, ITEMS_PER_WALK, &mut |item| {
                let db = usize::from(item.database());
                sample.keys[db] += 1;
                if item.expires_at() != 0 {
                    sample.expiring[db] += 1;
                    sample.left_ms[db] += u128::from(item.expires_at().saturating_sub(now));
                }
                seen += 1;
            });
            if cursor == 0 || seen >= SAMPLE_ITEMS {
                return sample;
            }
        }
    }
}
