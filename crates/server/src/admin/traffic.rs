//! JSON about what is asked for and what is there: keys, prefixes, ages, and what other memory limits would bring.

use larder_commands::{AgeShare, HotKey, OfType, PrefixShare, Shares};
use serde_json::{Value, json};

use super::api::{Rows, answer, text_of};
use super::http::{Answer, Status};
use super::route::{Query, Routes};
use crate::hub::Hub;

/// Keys, or prefixes, of one answer, unless asked otherwise, and at most.
const ROWS: usize = 50;
const ROWS_MAX: usize = 500;

/// An answer of what was asked for most in the last seconds, by this name. `row` makes a row, with keys hidden or not.
fn shares<R>(
    routes: &Routes,
    query: &Query,
    name: &str,
    told: impl FnOnce(&Hub, usize) -> Option<Shares<R>>,
    row: impl Fn(R, bool) -> Value,
) -> Result<Answer, Status> {
    let most = query.number("max", ROWS as u64)?;
    let most = usize::try_from(most).unwrap_or(ROWS_MAX).clamp(1, ROWS_MAX);
    let (hub, hidden) = (&routes.hub, routes.hides_keys());
    let told = told(hub, most).unwrap_or_default();
    let head = format!(
        "{{\"seconds\":{:.3},\"requests\":{},\"samples\":{},\"keys_hidden\":{hidden},\"{name}\":[",
        told.seconds, told.all, told.samples
    );
    let mut rows = Rows::new(&routes.reserve, &head, 0)?;
    for one in told.rows {
        if !rows.add(&row(one, hidden)) {
            break;
        }
    }
    Ok(rows.end("]}\n"))
}

/// Keys that were asked for most in the last seconds, those of the largest shares first.
pub fn hot_keys(routes: &Routes, query: &Query) -> Result<Answer, Status> {
    shares(routes, query, "keys", |hub, most| hub.shared.hot_keys(most), row_of_key)
}

/// Prefixes whose keys were asked for most in the last seconds, those of the largest shares first.
pub fn prefixes(routes: &Routes, query: &Query) -> Result<Answer, Status> {
    shares(routes, query, "prefixes", |hub, most| hub.shared.prefix_shares(most), row_of_prefix)
}

fn row_of_key(key: HotKey, hidden: bool) -> Value {
    let shown = (!hidden).then(|| text_of(key.key.into_vec()));
    json!({
        "key": shown,
        "key_bytes": key.key_bytes,
        "db": key.db,
        "share": key.share,
        "error": key.error,
        "requests_per_second": key.per_second,
        "bytes_per_second": key.bytes_per_second,
        "reads": key.reads,
        "deletes": key.deletes,
        "hit_ratio": key.hit_ratio,
        "value_bytes": key.value_bytes,
    })
}

fn row_of_prefix(prefix: PrefixShare, hidden: bool) -> Value {
    let is_none = prefix.prefix.is_none();
    let shown = prefix.prefix.filter(|_| !hidden).map(|bytes| text_of(bytes.into_vec()));
    json!({
        "prefix": shown,
        "none": is_none,
        "db": prefix.db,
        "share": prefix.share,
        "error": prefix.error,
        "requests_per_second": prefix.per_second,
        "bytes_per_second": prefix.bytes_per_second,
        "bytes_error": prefix.bytes_error,
        "reads": prefix.reads,
        "deletes": prefix.deletes,
        "hit_ratio": prefix.hit_ratio,
        "hit_ratio_error": prefix.hit_ratio_error,
        "misses_per_second": prefix.misses_per_second,
        "value_bytes": prefix.value_bytes,
        "memory_share": prefix.memory.map(|(share, _)| share),
        "memory_error": prefix.memory.map(|(_, error)| error),
    })
}

/// What there is of a type of values, of so many bytes in all.
fn row_of_type(of: &OfType, all: u64) -> Value {
    json!({
        "type": of.name,
        "items": of.items,
        "elements": of.elements,
        "bytes": of.bytes,
        "share": of.bytes as f64 / all.max(1) as f64,
        "largest_bytes": of.largest_bytes,
        "most_elements": of.most_elements,
    })
}

/// How long what is there has left, and how long it was not read; and what there is of each type of values.
pub fn ages(routes: &Routes) -> Answer {
    let totals = routes.hub.store.totals();
    let bytes = totals.item_bytes;
    let types = routes.hub.shared.types(&routes.hub.store);
    let of_types: u64 = types.iter().map(|of| of.bytes).sum();
    let types = types.iter().filter(|of| of.items > 0).map(|of| row_of_type(of, of_types));
    let types: Vec<Value> = types.collect();
    // How long ago what was evicted had been used: up to so many seconds, and not up to fewer; the last are those beyond.
    let bounds = (0..totals.evicted_idle.len() as u32 - 1).map(|power| Some(4u64.pow(power))).chain([None]);
    let evicted = bounds.zip(totals.evicted_idle);
    let evicted: Vec<Value> =
        evicted.map(|(seconds, items)| json!({ "seconds": seconds, "items": items })).collect();
    let Some(ages) = routes.hub.shared.ages() else {
        let nothing = json!({
            "items": 0,
            "whole": false,
            "bytes": bytes,
            "left": [],
            "idle": [],
            "types": types,
            "evicted": evicted,
        });
        return answer(&nothing);
    };
    let part = |part: &AgeShare| {
        json!({
            "within": part.within,
            "share": part.share,
            "error": part.error,
            "bytes": (part.share * bytes as f64) as u64,
            "items": part.items,
        })
    };
    let [left, idle] =
        [&ages.left[..], &ages.idle[..]].map(|parts| parts.iter().map(part).collect::<Vec<_>>());
    answer(&json!({
        "items": ages.items,
        "whole": ages.whole,
        "bytes": bytes,
        "left": left,
        "idle": idle,
        "evicted": evicted,
        "unread": part(&ages.unread),
        "types": types,
    }))
}

/// What other memory limits would bring.
pub fn forecast(routes: &Routes) -> Answer {
    let Some(outlook) = routes.hub.shared.outlook() else {
        return answer(&json!({ "ready": false, "progress": 0 }));
    };
    let curve = &outlook.curve;
    let points = curve.points.into_iter().flatten().map(|point| {
        json!({
            "factor": point.factor,
            "limit_bytes": (outlook.limit_bytes as f64 * point.factor) as u64,
            "hit_ratio": 1.0 - point.miss_ratio,
            "error": point.error,
            "vague": point.is_vague,
        })
    });
    let points: Vec<Value> = points.collect();
    answer(&json!({
        "ready": curve.points.is_some(),
        "progress": curve.progress,
        "full": curve.is_full,
        "limit_bytes": outlook.limit_bytes,
        "free_bytes": outlook.free_bytes,
        "hit_ratio": 1.0 - curve.counted_miss_ratio,
        "reads_per_second": outlook.reads_per_second,
        "simulated_miss_ratio": curve.simulated[0],
        "sampled_miss_ratio": curve.simulated[1],
        "keys": curve.keys,
        "keys_for_each": curve.scale,
        "events": curve.events,
        "seconds": outlook.seconds,
        "bytes": outlook.bytes,
        "fills": outlook.fills,
        "herd_misses": outlook.herd_misses,
        "points": points,
    }))
}
