//! Figures as JSON, for pages and for tools. No value of an item is shown; keys are only of commands that took long, unless they
//! are to be hidden ([`Routes::hides_keys`]).

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use larder_commands::{Host, SERIES};
use larder_store::{SPAN_SEEN_BYTES, chunk_sizes};
use serde_json::{Map, Value, json};

use super::history::{Mark, What};
use super::http::{Answer, JSON, Status};
use super::points::{asked, head};
use super::reserve::Reserve;
use super::route::{Query, Routes};
use super::span_map::{SpanMap, number};
use crate::extended::EXTENDED;
use crate::options::{Effect, OPTIONS};

/// Connections of one answer, unless asked otherwise, and at most.
const CONNECTIONS: usize = 256;
const CONNECTIONS_MAX: usize = 4096;
/// Connections that are visited at a time.
const CONNECTIONS_AT_ONCE: usize = 64;
/// Most bytes of an answer of many rows.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Bytes that it may take while it is made, whatever connections hold: an observer is to see what holds so much.
const SPARE_BYTES: u64 = 1 << 20;
/// Bytes behind its rows.
const TAIL_BYTES: usize = 128;
/// Most bytes of a connection's row, whose addresses may be paths.
const CONNECTION_BYTES_MAX: usize = 2 << 10;
/// Bytes that are noted of each client while clients are put in order.
const CLIENT_BYTES: usize = 16;
/// Most commands of one answer that took long.
const SLOW_MAX: usize = 128;
/// Most commands of one answer with large requests, and with large replies.
const LARGE_MAX: usize = 64;
/// Most cells of a map.
const CELLS_MAX: u64 = 16_384;

pub(super) fn answer(value: &Value) -> Answer {
    Answer::ok(JSON, format!("{value}\n"))
}

/// All figures, since the server was started.
pub fn now(routes: &Routes) -> Answer {
    let mut figures = Map::new();
    routes.hub.shared.each_figure(routes.scene(), &mut |about, value| {
        figures.insert(about.name.to_owned(), value.into());
    });
    let now_ms = routes.hub.shared.now(routes.scene().system);
    answer(&json!({ "version": env!("CARGO_PKG_VERSION"), "now_ms": now_ms, "figures": figures }))
}

/// What each figure means.
pub fn figures(routes: &Routes) -> Answer {
    let mut figures = Vec::new();
    routes.hub.shared.each_figure(routes.scene(), &mut |about, _| {
        let (kind, unit) = (about.kind.name(), about.unit.name());
        figures.push(json!({ "name": about.name, "kind": kind, "unit": unit, "help": about.help }));
    });
    let series = SERIES.iter().map(|series| {
        let (kind, unit) = (series.kind.name(), series.unit.name());
        json!({ "name": series.name, "kind": kind, "unit": unit, "help": series.help })
    });
    let series: Vec<Value> = series.collect();
    answer(&json!({ "figures": figures, "series": series }))
}

/// The history of figures. It is written as text at once: as values it would take several times the memory.
pub fn history(routes: &Routes, query: &Query) -> Result<Answer, Status> {
    let (level, since) = asked(query)?;
    let names = query.words("series");
    if names.iter().any(|name| SERIES.iter().all(|series| series.name != *name)) {
        return Err(Status::BadRequest);
    }
    let history = &routes.observer.history;
    let (ends, values) = history.points(level, since);
    let marks: Vec<Value> = history.marks(since).map(mark).collect();
    let mut text = head(&routes.hub, level);
    // Writing into a string cannot fail.
    let _ = write!(text, ",\"marks\":{},\"end_ms\":[", Value::from(marks));
    put_list(&mut text, ends.iter().map(|end| *end as f64));
    text.push_str("],\"series\":{");
    let mut first = true;
    for (at, series) in SERIES.iter().enumerate() {
        if !names.is_empty() && !names.contains(&series.name) {
            continue;
        }
        text.push_str(if first { "\"" } else { ",\"" });
        first = false;
        text.push_str(series.name);
        text.push_str("\":[");
        put_list(&mut text, values(at).into_iter().map(f64::from));
        text.push(']');
    }
    text.push_str("}}\n");
    Ok(Answer::ok(JSON, text))
}

/// Numbers with commas between them, with as many digits as are worth something.
pub(super) fn put_list(text: &mut String, numbers: impl Iterator<Item = f64>) {
    for (nth, number) in numbers.enumerate() {
        if nth > 0 {
            text.push(',');
        }
        // Writing into a string cannot fail.
        let _ = match number {
            number if number.fract() == 0.0 || number >= 1000.0 => write!(text, "{number:.0}"),
            number if number >= 10.0 => write!(text, "{number:.2}"),
            number => write!(text, "{number:.4}"),
        };
    }
}

fn mark(mark: &Mark) -> Value {
    match mark.what {
        What::Flushed => json!({ "at_ms": mark.at, "what": "flushed" }),
        What::Limit { bytes } => json!({ "at_ms": mark.at, "what": "limit", "bytes": bytes }),
        What::Stalled { us, cause } => {
            json!({ "at_ms": mark.at, "what": "stalled", "took_us": us, "cause": cause.name() })
        }
        What::Found(rule) => json!({ "at_ms": mark.at, "what": "found", "rule": rule }),
        What::Over(rule) => json!({ "at_ms": mark.at, "what": "over", "rule": rule }),
    }
}

/// The store's classes.
pub fn classes(routes: &Routes) -> Answer {
    let mut classes: Vec<(u8, Map<String, Value>)> = Vec::new();
    routes.hub.shared.each_class(routes.scene(), &mut |id, about, value| {
        if classes.last().is_none_or(|(last, _)| *last != id) {
            classes.push((id, Map::from_iter([("id".to_owned(), id.into())])));
        }
        if let Some((_, class)) = classes.last_mut() {
            class.insert(about.name.to_owned(), value.into());
        }
    });
    let classes: Vec<Value> = classes.into_iter().map(|(_, class)| class.into()).collect();
    answer(&json!({ "classes": classes }))
}

/// RESP commands that were called, and the measured times of memcached's.
pub fn commands(routes: &Routes) -> Answer {
    let mut commands = Map::new();
    routes.hub.shared.each_command(
        routes.scene(),
        &mut |name, [calls, measured, took_us, refused, failed]| {
            let command = json!({
                "calls": calls,
                "measured_calls": measured,
                "usec": took_us,
                "rejected_calls": refused,
                "failed_calls": failed,
            });
            commands.insert(name.to_owned(), command);
        },
    );
    let mut memcached = Map::new();
    routes.hub.shared.each_memcached_command(
        routes.scene(),
        &mut |name, [measured, took_us, p50_us, p99_us]| {
            let command = json!({
                "measured_calls": measured,
                "usec": took_us,
                "p50_usec": p50_us,
                "p99_usec": p99_us,
            });
            memcached.insert(name.to_owned(), command);
        },
    );
    answer(&json!({ "commands": commands, "memcached": memcached }))
}

/// What an operator should know.
pub fn findings(routes: &Routes) -> Answer {
    let findings = routes.hub.shared.findings(routes.scene());
    let findings: Vec<Value> = findings
        .iter()
        .map(|finding| {
            let rule = finding.rule;
            json!({
                "rule": rule.name,
                "severity": rule.severity.name(),
                "evidence": finding.evidence,
                "advice": rule.advice,
            })
        })
        .collect();
    answer(&json!({ "findings": findings }))
}

/// An answer of many rows, written as they come, up to [`ANSWER_BYTES_MAX`]. It is charged as connections' memory before it
/// grows; once it is made its connection is charged for it. One is made at a time, so that all take [`SPARE_BYTES`] together
/// beyond what connections may hold.
pub(super) struct Rows<'r> {
    reserve: &'r Reserve,
    charged: u64,
    text: String,
    rows: usize,
}

impl<'r> Rows<'r> {
    /// An answer that begins with `head`; `beside`: bytes that are taken beside its text while it is made.
    ///
    /// # Errors
    /// If connections hold as much as they may, and it needs more than [`SPARE_BYTES`] to begin with.
    pub fn new(reserve: &'r Reserve, head: &str, beside: usize) -> Result<Rows<'r>, Status> {
        let mut rows = Rows { reserve, charged: 0, text: head.to_owned(), rows: 0 };
        if rows.take(beside) { Ok(rows) } else { Err(Status::Unavailable) }
    }

    /// Charges so many bytes more; false if connections hold as much as they may, and it would have more than [`SPARE_BYTES`].
    fn take(&mut self, bytes: usize) -> bool {
        let charged = self.charged + bytes as u64;
        let has_room = self.reserve.has_room(bytes as u64) || charged <= SPARE_BYTES;
        if has_room {
            self.reserve.change(self.charged, charged);
            self.charged = charged;
        }
        has_room
    }

    /// Makes room for so many bytes more; false if there is none.
    fn has_room(&mut self, bytes: usize) -> bool {
        let bytes = self.text.len() + bytes + TAIL_BYTES;
        if bytes > ANSWER_BYTES_MAX {
            return false;
        }
        let capacity = self.text.capacity();
        if capacity < bytes {
            let wanted = (2 * bytes).min(ANSWER_BYTES_MAX);
            // Twice, for the copy that is sent behind the head of the answer.
            if !self.take(2 * (wanted - capacity)) {
                return false;
            }
            self.text.reserve_exact(wanted - self.text.len());
        }
        true
    }

    /// Adds a row; false if there is no room for it.
    pub fn add(&mut self, row: &Value) -> bool {
        let row = row.to_string();
        let has_room = self.has_room(row.len() + 1);
        if has_room {
            if self.rows > 0 {
                self.text.push(',');
            }
            self.text.push_str(&row);
            self.rows += 1;
        }
        has_room
    }

    /// Ends the answer with what is behind the rows.
    pub fn end(mut self, tail: &str) -> Answer {
        debug_assert!(tail.len() < TAIL_BYTES);
        self.text.push_str(tail);
        Answer::ok(JSON, std::mem::take(&mut self.text))
    }
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        self.reserve.change(self.charged, 0);
    }
}

/// Connections and listeners, as `stats conns` shows them.
pub fn connections(routes: &Routes, query: &Query) -> Result<Answer, Status> {
    let (from, max) = (query.number("from", 0)?, query.number("max", CONNECTIONS as u64)?);
    let max = usize::try_from(max).unwrap_or(CONNECTIONS_MAX).clamp(1, CONNECTIONS_MAX);
    let mut rows = Rows::new(&routes.reserve, "{\"connections\":[", 0)?;
    let mut next = Some(from);
    // Some at a time: a worker that takes a connection in waits for the thread that visits.
    while let Some(place) = next
        && rows.rows < max
        && rows.has_room(CONNECTIONS_AT_ONCE * CONNECTION_BYTES_MAX)
    {
        let some = CONNECTIONS_AT_ONCE.min(max - rows.rows);
        next = Host::connections(&*routes.hub, place, some, &mut |connection| {
            rows.add(&json!({
                "id": connection.id,
                "address": connection.address,
                "listen_address": connection.listen_address,
                "state": connection.state,
                "idle_seconds": connection.idle_s,
            }));
        });
    }
    if rows.rows == 0 && next.is_some() {
        return Err(Status::Unavailable);
    }
    Ok(rows.end(&format!("],\"next\":{}}}\n", Value::from(next))))
}

/// Settings as `stats settings` tells them and what they were at start, if that was something else; options, with what was
/// given and what they do here; parameters that were set.
pub fn settings(routes: &Routes) -> Answer {
    let (mut settings, mut before) = (Map::new(), Map::new());
    for (name, value) in super::route::settings(&routes.hub) {
        match routes.settings_before.iter().find(|(known, _)| *known == name) {
            Some((_, was)) if *was != value => {
                before.insert(name.clone(), was.clone().into());
            }
            Some(_) | None => {}
        }
        settings.insert(name, value.into());
    }
    let given = |name: &str| {
        let mut all = routes.hub.config.given.iter().filter(|(known, _)| *known == name);
        let first = all.next().map(|(_, value)| value.clone())?;
        Some(all.fold(first, |texts, (_, value)| if value.is_empty() { texts } else { texts + "," + value }))
    };
    let option = |shown: String, name: &str, default: &str, help: &str, effect: Effect| {
        let (works, why) = match effect {
            Effect::Works => (true, None),
            Effect::Accepted(why) => (false, Some(why)),
            Effect::Refused(_) => return None,
        };
        let given = given(name);
        Some(json!({
            "name": shown, "given": given, "default": default, "help": help, "works": works, "why": why,
        }))
    };
    let plain = OPTIONS.iter().filter_map(|row| {
        let letter = row.letter.map(|letter| format!("-{letter}, ")).unwrap_or_default();
        option(format!("{letter}--{}", row.name), row.name, row.default, row.help, row.effect)
    });
    let extended = EXTENDED
        .iter()
        .filter_map(|row| option(format!("-o {}", row.name), row.name, row.default, row.help, row.effect));
    let options: Vec<Value> = plain.chain(extended).collect();
    let mut parameters = Map::new();
    routes.hub.shared.each_parameter_set(&mut |name, text| {
        parameters.insert(name.to_owned(), text.into());
    });
    answer(&json!({ "settings": settings, "at_start": before, "options": options, "parameters": parameters }))
}

/// Commands that took long, those with large requests and replies, events of LATENCY, and what held workers up.
pub fn slow(routes: &Routes) -> Answer {
    let hidden = routes.hides_keys();
    let shared = &routes.hub.shared;
    let commands = shared.slow_commands(SLOW_MAX).into_iter().map(|slow| {
        let key = slow.key.filter(|_| !hidden);
        json!({
            "id": slow.id,
            "at_s": slow.at_s,
            "took_us": slow.value,
            "command": slow.command,
            "words": slow.words,
            "key": key.map(text_of),
            "address": slow.address,
            "client": slow.client,
        })
    });
    let commands: Vec<Value> = commands.collect();
    let mut events = Vec::new();
    shared.each_latency_event(&mut |event, at_s, ms| {
        events.push(json!({ "event": event, "at_s": at_s, "ms": ms }));
    });
    let mut large = Vec::new();
    let mut large_from = Map::new();
    for (kind, from, logged) in shared.large_commands(LARGE_MAX) {
        large_from.insert(kind.to_owned(), from.into());
        large.extend(logged.into_iter().map(|one| {
            let key = one.key.filter(|_| !hidden);
            json!({
                "kind": kind,
                "id": one.id,
                "at_s": one.at_s,
                "bytes": one.value,
                "command": one.command,
                "words": one.words,
                "key": key.map(text_of),
                "address": one.address,
                "client": one.client,
            })
        }));
    }
    let from_us = shared.slow_from_us();
    let clock = &routes.hub.clock;
    let started_ms = clock.system_ms().saturating_sub(clock.elapsed().as_millis() as u64);
    let stalls = routes.hub.stalls.all().into_iter().map(|stall| {
        json!({
            "at_s": (started_ms + stall.at) / 1000,
            "worker": stall.worker,
            "took_us": stall.took_us,
            "cause": stall.cause.name(),
        })
    });
    answer(&json!({
        "stalls": stalls.collect::<Vec<Value>>(),
        "from_us": from_us,
        "commands": commands,
        "events": events,
        "large": large,
        "large_from": large_from,
        "keys_hidden": hidden,
    }))
}

/// Bytes that a client has chosen: text, or what is no text in base64.
pub(super) fn text_of(bytes: Vec<u8>) -> Value {
    match String::from_utf8(bytes) {
        Ok(text) => json!({ "text": text }),
        Err(error) => json!({ "base64": STANDARD.encode(error.as_bytes()) }),
    }
}

/// RESP clients, those with the most commands first: as many as are asked for, or, `truncated`, as have room in an answer.
pub fn clients(routes: &Routes, query: &Query) -> Result<Answer, Status> {
    let most = query.number("max", CONNECTIONS as u64)?;
    let most = usize::try_from(most).unwrap_or(CONNECTIONS_MAX).clamp(1, CONNECTIONS_MAX);
    let order_bytes = routes.hub.connections_max() * CLIENT_BYTES;
    let mut rows = Rows::new(&routes.reserve, "{\"clients\":[", order_bytes)?;
    let mut truncated = false;
    let all = routes.hub.shared.each_resp_client(routes.scene(), most, &mut |client| {
        truncated = !rows.add(&json!({
            "id": client.id,
            "address": client.address,
            "name": client.name,
            "library": client.library,
            "age_seconds": client.age_s,
            "idle_seconds": client.idle_s,
            "flags": client.flags,
            "db": client.db,
            "resp": client.resp,
            "last": client.last,
            "commands": client.commands,
            "received_bytes": client.received_bytes,
            "replied_bytes": client.replied_bytes,
            "waiting_bytes": client.waiting_bytes,
        }));
        !truncated
    });
    Ok(rows.end(&format!("],\"all\":{all},\"truncated\":{truncated}}}\n")))
}

/// Where the memory is that counts against the limit.
pub fn memory(routes: &Routes) -> Answer {
    let store = &routes.hub.store;
    let (ledger, totals) = (store.ledger(), store.totals());
    let uses = ledger.uses().map(|(of, help, bytes)| json!({ "use": of, "help": help, "bytes": bytes }));
    answer(&json!({
        "limit": totals.memory_bytes,
        "used": totals.used_bytes,
        "held": totals.held_bytes,
        "held_max": store.held_bytes_max(),
        "uses": uses,
    }))
}

/// The store's spans as cells of a picture.
pub fn map(routes: &Routes) -> Answer {
    let store = &routes.hub.store;
    let now = routes.hub.shared.now(routes.hub.clock.system_ms());
    let map = SpanMap::of(store, now, CELLS_MAX);
    let owners = map.owners.iter().map(|(owner, counted)| {
        json!({ "owner": number(*owner), "spans": counted.spans, "draining": counted.draining })
    });
    let owners: Vec<Value> = owners.collect();
    let sizes: Map<String, Value> =
        chunk_sizes().map(|(class, bytes)| (class.to_string(), bytes.into())).collect();
    answer(&json!({
        "span_bytes": SPAN_SEEN_BYTES,
        "spans_per_cell": map.spans_per_cell,
        "spans": store.spans_ever(),
        "spans_allowed": store.spans_allowed(),
        "owners": owners,
        "chunk_bytes": sizes,
        "cells": STANDARD.encode(map.cells.as_flattened()),
    }))
}

#[cfg(test)]
mod tests {
    use larder_store::Store;

    use super::*;
    use crate::config::Config;

    #[test]
    fn an_answer_has_some_room_whatever_connections_hold_and_no_more() {
        let config = Config { threads: 1, ..Config::default() };
        let store = Store::new(crate::store_config(&config)).expect("a store");
        let reserve = Reserve::new(&store);
        let rows = |beside: u64| Rows::new(&reserve, "[", beside as usize);
        let told = || (reserve.used(), store.held_bytes());
        assert!(rows(SPARE_BYTES + 1).is_ok(), "there is room");
        assert_eq!(told(), (0, SPARE_BYTES + 1));
        reserve.give_back();
        let all = store.held_bytes_max() + (5 << 20);
        store.hold(all as i64);
        assert!(rows(SPARE_BYTES - 1).is_ok());
        assert_eq!(told(), (0, all + SPARE_BYTES - 1));
        assert!(rows(SPARE_BYTES).is_ok());
        assert!(rows(SPARE_BYTES + 1).is_err());
        assert_eq!(told(), (0, all + SPARE_BYTES));
        let mut some = rows(0).expect("room");
        let row = Value::from("x".repeat(1000));
        while some.add(&row) {
            assert_eq!(store.held_bytes(), all + SPARE_BYTES);
        }
        assert!(some.rows > 200 && reserve.used() <= SPARE_BYTES, "{} rows, {:?}", some.rows, told());
        assert!(some.end("]").body.len() > 200_000);
        assert_eq!(told(), (0, all + SPARE_BYTES));
        reserve.give_back();
        assert_eq!(told(), (0, all));
        store.hold(-(all as i64));
    }

    #[test]
    fn numbers_have_the_digits_that_are_worth_something() {
        let mut text = String::new();
        put_list(&mut text, [0.0, 3.0, 0.008_333, 12.345_6, 1234.56, f64::from(3.0e9_f32)].into_iter());
        assert_eq!(text, "0,3,0.0083,12.35,1235,3000000000");
        let back: Vec<f64> = serde_json::from_str(&format!("[{text}]")).expect("JSON");
        assert_eq!(back.len(), 6);
    }
}
