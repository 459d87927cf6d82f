//! Figures as JSON, for pages and for tools: names and numbers, no keys and no values.

use larder_commands::Host;
use serde_json::{Map, Value, json};

use super::http::{Answer, JSON, Status};
use super::route::{Query, Routes};

/// Connections of one answer, unless asked otherwise, and at most.
const CONNECTIONS: usize = 256;
const CONNECTIONS_MAX: usize = 4096;
/// Connections that are visited at a time.
const CONNECTIONS_AT_ONCE: usize = 64;

fn answer(value: &Value) -> Answer {
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
    answer(&json!({ "figures": figures }))
}

/// The store's classes.
pub fn classes(routes: &Routes) -> Answer {
    let mut classes: Vec<(u8, Map<String, Value>)> = Vec::new();
    routes.hub.shared.each_class(routes.scene(), &mut |id, about, value| {
        if classes.last().is_none_or(|(last, _)| *last != id) {
            classes.push((id, Map::new()));
        }
        if let Some((_, class)) = classes.last_mut() {
            class.insert(about.name.to_owned(), value.into());
        }
    });
    let classes: Vec<Value> = classes.into_iter().map(|(_, class)| class.into()).collect();
    answer(&json!({ "classes": classes }))
}

/// RESP commands that were called.
pub fn commands(routes: &Routes) -> Answer {
    let mut commands = Map::new();
    routes.hub.shared.each_command(routes.scene(), &mut |name, [calls, took_us, refused, failed]| {
        let command =
            json!({ "calls": calls, "usec": took_us, "rejected_calls": refused, "failed_calls": failed });
        commands.insert(name.to_owned(), command);
    });
    answer(&json!({ "commands": commands }))
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

/// Connections and listeners, as `stats conns` shows them.
pub fn connections(routes: &Routes, query: &Query) -> Result<Answer, Status> {
    let number = |name, default: u64| match query.value(name) {
        None => Ok(default),
        Some(text) => text.parse().map_err(|_| Status::BadRequest),
    };
    let (from, max) = (number("from", 0)?, number("max", CONNECTIONS as u64)?);
    let max = usize::try_from(max).unwrap_or(CONNECTIONS_MAX).clamp(1, CONNECTIONS_MAX);
    let (mut connections, mut next) = (Vec::new(), Some(from));
    // Some at a time: a worker that takes a connection in waits for who visits.
    while let Some(place) = next
        && connections.len() < max
    {
        let some = CONNECTIONS_AT_ONCE.min(max - connections.len());
        next = Host::connections(&*routes.hub, place, some, &mut |connection| {
            connections.push(json!({
                "id": connection.id,
                "address": connection.address,
                "listen_address": connection.listen_address,
                "state": connection.state,
                "idle_seconds": connection.idle_s,
            }));
        });
    }
    Ok(answer(&json!({ "connections": connections, "next": next })))
}

/// Settings, as `stats settings` tells them.
pub fn settings(routes: &Routes) -> Answer {
    let mut settings = Map::new();
    routes.hub.settings(&mut |name, value| {
        settings.insert(name.to_owned(), value.to_string().into());
    });
    answer(&json!({ "settings": settings }))
}
