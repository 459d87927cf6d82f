//! Two looks at a server as lines of text. No I/O.
//!
//! ```text
//! larder 0.1.0, as 1.6.45 …, up 2 h                     what it is
//! 12.3k/s   hit ratio 91.2 %   …                        what it does: counts between the looks, a second
//! | class | items | …                                   one sheet of several
//! q:end o:overview …                                    the keys, in a terminal
//! ```

use std::collections::BTreeMap;

use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Map, Value, json};

use super::look::{Fields, Look, grouped, is_larder, words};
use crate::control::Family;
use crate::results::number;

/// The sheet below the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sheet {
    /// Counters that move
    Overview,
    /// Slab classes of a memcached
    Classes,
    /// RESP commands
    Commands,
    /// Connections by address
    Connections,
    /// Findings of a Larder
    #[value(name = "findings")]
    Doctor,
    /// Hot keys of a Larder
    #[value(name = "keys")]
    HotKeys,
    /// Prefixes of keys, of a Larder
    Prefixes,
}

impl Sheet {
    /// The sheet of a key.
    pub fn of(letter: char) -> Option<Sheet> {
        Some(match letter {
            'o' => Sheet::Overview,
            's' => Sheet::Classes,
            'r' => Sheet::Commands,
            'c' => Sheet::Connections,
            'd' => Sheet::Doctor,
            'k' => Sheet::HotKeys,
            'p' => Sheet::Prefixes,
            _ => return None,
        })
    }
}

/// What rows are sorted by, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// What they take: memory, or time
    Share,
    /// How often they are asked
    Rate,
}

/// The columns and lines of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub columns: usize,
    pub lines: usize,
}

impl Size {
    /// No limit.
    pub const UNBOUNDED: Size = Size { columns: usize::MAX, lines: usize::MAX };
}

/// The changes between two looks.
struct Between<'a> {
    before: &'a Look,
    now: &'a Look,
    seconds: f64,
}

impl<'a> Between<'a> {
    fn new(before: &'a Look, now: &'a Look) -> Between<'a> {
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64().max(0.001);
        Between { before, now, seconds }
    }

    fn is(&self, name: &str) -> Option<f64> {
        number_of(&self.now.general, name)
    }

    fn sum(&self, names: &[&str]) -> Option<f64> {
        let found: Vec<f64> = names.iter().filter_map(|name| self.is(name)).collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }

    /// How much these counters grew a second, of those that exist. A counter that fell was reset.
    fn rate(&self, names: &[&str]) -> Option<f64> {
        let grown = names.iter().filter_map(|name| {
            let before = number_of(&self.before.general, name).unwrap_or(0.0);
            Some((self.is(name)? - before).max(0.0))
        });
        let grown: Vec<f64> = grown.collect();
        (!grown.is_empty()).then(|| grown.iter().sum::<f64>() / self.seconds)
    }

    fn by_family(
        &self,
        memcached: &'static [&'static str],
        redis: &'static [&'static str],
    ) -> &'static [&'static str] {
        match self.now.family {
            Family::Memcached => memcached,
            Family::Redis => redis,
        }
    }

    fn figures(&self) -> Vec<(&'static str, Option<f64>)> {
        let hits = self.by_family(&["get_hits"], &["keyspace_hits"]);
        let misses = self.by_family(&["get_misses"], &["keyspace_misses"]);
        let (found, not) = (self.rate(hits), self.rate(misses));
        let ratio = found.zip(not).filter(|(found, not)| found + not > 0.0);
        let items = match self.now.family {
            Family::Memcached => self.is("curr_items"),
            Family::Redis => Some(databases(&self.now.general)),
        };
        let cpu = self.by_family(&["rusage_user", "rusage_system"], &["used_cpu_user", "used_cpu_sys"]);
        let limit =
            self.is(self.by_family(&["limit_maxbytes"], &["maxmemory"])[0]).filter(|limit| *limit > 0.0);
        // The memory that counts against the limit. For a Larder, `bytes` are the items alone.
        let used = number_of(&self.now.memory, "used")
            .or_else(|| self.is(self.by_family(&["bytes"], &["used_memory"])[0]));
        vec![
            ("requests_per_second", self.rate(self.by_family(REQUESTS, &["total_commands_processed"]))),
            ("hits_per_second", found),
            ("misses_per_second", not),
            ("hit_ratio", ratio.map(|(found, not)| found / (found + not))),
            ("evictions_per_second", self.rate(self.by_family(&["evictions"], &["evicted_keys"]))),
            ("expired_per_second", self.rate(self.by_family(&["reclaimed"], &["expired_keys"]))),
            ("items", items),
            ("memory_bytes", used),
            ("memory_limit_bytes", limit),
            ("connections", self.is(self.by_family(&["curr_connections"], &["connected_clients"])[0])),
            ("connections_max", self.is(self.by_family(&["max_connections"], &["maxclients"])[0])),
            (
                "received_bytes_per_second",
                self.rate(self.by_family(&["bytes_read"], &["total_net_input_bytes"])),
            ),
            (
                "sent_bytes_per_second",
                self.rate(self.by_family(&["bytes_written"], &["total_net_output_bytes"])),
            ),
            ("cpu_cores", self.rate(cpu)),
            ("uptime_seconds", self.sum(self.by_family(&["uptime"], &["uptime_in_seconds"]))),
        ]
    }
}

/// Keys and commands of memcached's clients.
const REQUESTS: &[&str] = &[
    "cmd_get",
    "cmd_set",
    "cmd_touch",
    "cmd_flush",
    "delete_hits",
    "delete_misses",
    "incr_hits",
    "incr_misses",
    "decr_hits",
    "decr_misses",
];

fn number_of(fields: &Fields, name: &str) -> Option<f64> {
    fields.get(name)?.parse().ok()
}

/// Keys of all databases: `db0:keys=5,expires=0`.
fn databases(general: &Fields) -> f64 {
    let lines = general.iter().filter(|(name, _)| {
        name.strip_prefix("db").is_some_and(|n| !n.is_empty() && n.bytes().all(|byte| byte.is_ascii_digit()))
    });
    lines.filter_map(|(_, line)| part(line, "keys")).sum()
}

/// The value of a name in `a=1,b=2`.
fn part(line: &str, name: &str) -> Option<f64> {
    line.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

/// The figures as JSON, and the hot keys or prefixes if the sheet is theirs; unknown ones are null.
pub fn json(before: &Look, now: &Look) -> String {
    let between = Between::new(before, now);
    let figures: Map<String, Value> =
        between.figures().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let mut told = json!({ "server": program(now), "seconds": between.seconds, "figures": figures });
    for (name, listed) in [("keys", &now.hot_keys), ("prefixes", &now.prefixes)] {
        if !listed.is_empty() {
            told[name] = grouped(listed.clone()).iter().map(row_as_json).collect();
        }
    }
    format!("{told:#}\n")
}

/// A hot key or a prefix: its name is text also where it is a number.
fn row_as_json(row: &Fields) -> Value {
    let value = |name: &str, text: &str| match (name, text.parse::<f64>()) {
        ("key" | "prefix", _) | (_, Err(_)) => Value::from(text),
        (_, Ok(number)) => Value::from(number),
    };
    row.iter().map(|(name, text)| (name.clone(), value(name, text))).collect()
}

fn program(look: &Look) -> String {
    let says = |name: &str| look.general.get(name).cloned();
    match look.family {
        Family::Memcached if is_larder(look) => {
            format!("larder, as memcached {}", says("version").unwrap_or_default())
        }
        Family::Memcached => format!("memcached {}", says("version").unwrap_or_default()),
        Family::Redis => {
            let own = ["larder", "valkey", "dragonfly"]
                .into_iter()
                .find_map(|name| Some(format!("{name} {}", says(&format!("{name}_version"))?)));
            own.unwrap_or_else(|| format!("redis {}", says("redis_version").unwrap_or_default()))
        }
    }
}

/// The screen, cut to `size`. Control characters are removed from names that a client or a server chose: a terminal would obey
/// them.
pub fn lines(before: &Look, now: &Look, sheet: Sheet, sort: Sort, size: Size) -> Vec<String> {
    let between = Between::new(before, now);
    let mut lines = head(&between);
    lines.push(String::new());
    let body = match sheet {
        Sheet::Overview => overview(&between),
        Sheet::Classes => classes(&between, sort),
        Sheet::Commands => commands(&between, sort),
        Sheet::Connections => connections(&between),
        Sheet::Doctor => doctor(&between),
        Sheet::HotKeys => hot_keys(now),
        Sheet::Prefixes => prefixes(now),
    };
    lines.extend(body.lines().map(str::to_owned));
    if size == Size::UNBOUNDED {
        // There is no keyboard.
        lines.truncate(size.lines);
    } else {
        lines.resize(size.lines.saturating_sub(1), String::new());
        lines.push(keys(now));
    }
    let fits =
        |line: &String| line.chars().filter(|letter| !letter.is_control()).take(size.columns).collect();
    lines.iter().map(fits).collect()
}

/// The keys that lead to sheets which this server fills.
fn keys(look: &Look) -> String {
    let mut keys = vec!["q:end", "o:overview"];
    if look.family == Family::Memcached {
        keys.push("s:classes");
    }
    if look.family == Family::Redis {
        keys.push("r:commands");
    }
    keys.push("c:connections");
    if is_larder(look) {
        keys.extend(["k:keys", "p:prefixes", "d:findings"]);
    }
    keys.join("  ")
}

fn shown(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "–".into(), show)
}

fn per_second(value: f64) -> String {
    format!("{}/s", number::short(value.round()))
}

fn bytes(value: f64) -> String {
    let sizes = [(2f64.powi(40), "TiB"), (2f64.powi(30), "GiB"), (2f64.powi(20), "MiB"), (1024.0, "KiB")];
    match sizes.into_iter().find(|(size, _)| value >= *size) {
        Some((size, unit)) => format!("{:.1} {unit}", value / size),
        None => format!("{value:.0} B"),
    }
}

fn percent(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

fn duration(seconds: f64) -> String {
    let steps = [(86_400.0, "d"), (3600.0, "h"), (60.0, "min")];
    match steps.into_iter().find(|(size, _)| seconds >= *size) {
        Some((size, unit)) => format!("{:.1} {unit}", seconds / size),
        None => format!("{seconds:.0} s"),
    }
}

fn head(between: &Between<'_>) -> Vec<String> {
    let figures: BTreeMap<&str, Option<f64>> = between.figures().into_iter().collect();
    let of = |name: &str| figures.get(name).copied().flatten();
    let limit = of("memory_limit_bytes");
    let full = of("memory_bytes").zip(limit).map(|(used, limit)| used / limit);
    let memory = match limit {
        Some(limit) => {
            format!("{} of {} ({})", shown(of("memory_bytes"), bytes), bytes(limit), shown(full, percent))
        }
        None => shown(of("memory_bytes"), bytes),
    };
    // Each of Larder's ports counts the requests of its own protocol.
    let whose = match between.now.family {
        _ if !is_larder(between.now) => "",
        Family::Memcached => "; requests and hits of memcached clients",
        Family::Redis => "; requests of Redis clients, hits of all",
    };
    vec![
        format!("{}, up {}{whose}", program(between.now), shown(of("uptime_seconds"), duration)),
        format!(
            "requests {}   hit ratio {} ({} misses)   evicted {}   expired {}",
            shown(of("requests_per_second"), per_second),
            shown(of("hit_ratio"), percent),
            shown(of("misses_per_second"), per_second),
            shown(of("evictions_per_second"), per_second),
            shown(of("expired_per_second"), per_second),
        ),
        format!(
            "memory {memory}   items {}   connections {} of {}",
            shown(of("items"), number::text),
            shown(of("connections"), number::text),
            shown(of("connections_max"), number::text),
        ),
        format!(
            "in {}/s   out {}/s   processor {} of a core",
            shown(of("received_bytes_per_second"), bytes),
            shown(of("sent_bytes_per_second"), bytes),
            shown(of("cpu_cores"), percent),
        ),
    ]
}

/// A table whose first column is text.
fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return "this server has no such figures".into();
    }
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header.iter().copied());
    for column in 1..header.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for row in rows {
        table.add_row(row);
    }
    table.to_string()
}

/// Counters that changed between the looks, those that changed most first.
fn overview(between: &Between<'_>) -> String {
    let mut moved: Vec<(f64, &String, f64)> = Vec::new();
    for (name, value) in &between.now.general {
        let (Ok(now), Some(before)) = (value.parse::<f64>(), number_of(&between.before.general, name)) else {
            continue;
        };
        let is_time = ["time", "uptime", "rusage", "used_cpu"].iter().any(|start| name.starts_with(start));
        if now > before && !is_time && !name.contains("uptime") && !name.contains("usec") {
            moved.push(((now - before) / between.seconds, name, now));
        }
    }
    moved.sort_by(|one, other| other.0.total_cmp(&one.0));
    if moved.is_empty() {
        return "nothing moves".into();
    }
    let rows =
        moved.into_iter().map(|(rate, name, now)| vec![name.clone(), per_second(rate), number::text(now)]);
    table(&["what moves", "a second", "is"], rows.collect())
}

/// Fields of each number: `3:chunk_size`, `items:3:number`.
fn by_class(fields: &Fields) -> BTreeMap<u32, BTreeMap<&str, f64>> {
    let mut classes: BTreeMap<u32, BTreeMap<&str, f64>> = BTreeMap::new();
    for (name, value) in fields {
        let name = name.strip_prefix("items:").unwrap_or(name);
        let Some((class, name)) = name.split_once(':') else { continue };
        if let (Ok(class), Ok(value)) = (class.parse(), value.parse()) {
            classes.entry(class).or_default().insert(name, value);
        }
    }
    classes
}

fn classes(between: &Between<'_>, sort: Sort) -> String {
    if between.now.family == Family::Redis {
        return if is_larder(between.now) {
            "slab classes are told in memcached's protocol: --target memcached://HOST:PORT, with the port of -p".into()
        } else {
            "slab classes are told by a Larder or a memcached".into()
        };
    }
    let (before, now) = (by_class(&between.before.classes), by_class(&between.now.classes));
    let mut rows = Vec::new();
    for (class, fields) in &now {
        let of = |name: &str| fields.get(name).copied();
        let rate = |name: &str| {
            // There was no look before this sheet was shown.
            let before = before.get(class)?.get(name)?;
            Some((of(name)? - before).max(0.0) / between.seconds)
        };
        let memory = of("total_chunks").zip(of("chunk_size")).map(|(chunks, size)| chunks * size);
        let full = of("used_chunks")
            .zip(of("total_chunks"))
            .filter(|(_, all)| *all > 0.0)
            .map(|(used, all)| used / all);
        let asked = rate("get_hits").zip(rate("cmd_set")).map(|(hits, sets)| hits + sets);
        let by = match sort {
            Sort::Share => memory,
            Sort::Rate => asked,
        };
        let cells = vec![
            shown(of("chunk_size"), number::text),
            shown(of("number"), number::text),
            shown(memory, bytes),
            shown(full, percent),
            shown(rate("get_hits"), per_second),
            shown(rate("cmd_set"), per_second),
            shown(rate("evicted"), per_second),
            shown(of("age"), duration),
        ];
        rows.push((by.unwrap_or(0.0), cells));
    }
    rows.sort_by(|one, other| other.0.total_cmp(&one.0));
    let header = ["chunk bytes", "items", "memory", "full", "hits", "sets", "evicted", "age"];
    table(&header, rows.into_iter().map(|(_, cells)| cells).collect())
}

fn commands(between: &Between<'_>, sort: Sort) -> String {
    if between.now.family == Family::Memcached {
        return if is_larder(between.now) {
            "RESP commands are told in Redis's protocol: --target redis://HOST:PORT, with this port or that of --redis-port".into()
        } else {
            "RESP commands are told by a Larder or a Redis".into()
        };
    }
    let mut rows = Vec::new();
    for (name, line) in &between.now.general {
        let Some(command) = name.strip_prefix("cmdstat_") else { continue };
        let before = between.before.general.get(name);
        let of = |part_name: &str| part(line, part_name);
        let was = |part_name: &str| before.and_then(|line| part(line, part_name)).unwrap_or(0.0);
        let rate = of("calls").map(|calls| (calls - was("calls")).max(0.0) / between.seconds);
        let busy = of("usec").map(|usec| (usec - was("usec")).max(0.0) / 1e6 / between.seconds);
        let by = match sort {
            Sort::Share => busy,
            Sort::Rate => rate,
        };
        let cells = vec![
            command.to_owned(),
            shown(rate, per_second),
            shown(busy, percent),
            shown(of("usec_per_call"), |us| format!("{us:.2} µs")),
            shown(of("calls"), number::text),
            shown(of("failed_calls"), number::text),
        ];
        rows.push((by.unwrap_or(0.0), of("calls").unwrap_or(0.0), cells));
    }
    rows.sort_by(|one, other| other.0.total_cmp(&one.0).then(other.1.total_cmp(&one.1)));
    let header = ["command", "calls", "of a core", "a call", "calls in all", "failed"];
    table(&header, rows.into_iter().map(|(_, _, cells)| cells).collect())
}

fn connections(between: &Between<'_>) -> String {
    #[derive(Default)]
    struct Row {
        count: f64,
        idle_s: f64,
        waiting: f64,
    }
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for fields in &between.now.connections {
        if fields.get("state").is_some_and(|state| state == "conn_listening") {
            continue;
        }
        let address = fields.get("addr").map_or("", |address| address.as_str());
        let row = rows.entry(host(address).to_owned()).or_default();
        row.count += 1.0;
        let idle = number_of(fields, "secs_since_last_cmd").or_else(|| number_of(fields, "idle"));
        row.idle_s = row.idle_s.max(idle.unwrap_or(0.0));
        row.waiting += number_of(fields, "omem").unwrap_or(0.0);
    }
    let mut rows: Vec<(String, Row)> = rows.into_iter().collect();
    rows.sort_by(|one, other| other.1.count.total_cmp(&one.1.count));
    let cells = rows.into_iter().map(|(address, row)| {
        vec![address, number::text(row.count), duration(row.idle_s), bytes(row.waiting)]
    });
    table(&["address", "connections", "longest idle", "replies that wait"], cells.collect())
}

/// An address without its protocol in front and without its port.
fn host(address: &str) -> &str {
    let address =
        ["tcp:", "tcp6:", "unix:"].iter().find_map(|kind| address.strip_prefix(kind)).unwrap_or(address);
    match address.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        Some(_) | None => address,
    }
}

fn doctor(between: &Between<'_>) -> String {
    if !is_larder(between.now) {
        return "findings are told by a Larder".into();
    }
    words(&between.now.findings)
}

/// The hot keys as text: every byte that is no letter, digit or one of `-._~` is `%` and two digits.
fn hot_keys(now: &Look) -> String {
    if !is_larder(now) {
        return "hot keys are told by a Larder".into();
    }
    let Some(stands_on) = stands_on(&now.hot_keys) else { return NOT_SAMPLED.into() };
    let rows = grouped(now.hot_keys.clone()).into_iter().map(|fields| {
        let of = |name: &str| number_of(&fields, name);
        let key = fields.get("key").cloned().unwrap_or_default();
        let error = of("error").map(|error| error * 100.0);
        let writes = of("reads").zip(of("deletes")).map(|(reads, deletes)| (1.0 - reads - deletes).max(0.0));
        vec![
            key,
            shown(of("share"), percent),
            shown(error, |error| format!("± {error:.1}")),
            shown(of("requests_per_second"), per_second),
            shown(of("bytes_per_second"), |rate| format!("{}/s", bytes(rate))),
            shown(of("reads"), percent),
            shown(writes, percent),
            shown(of("hit_ratio"), percent),
            shown(of("value_bytes"), bytes),
        ]
    });
    let header = ["key", "share", "error", "requests", "traffic", "reads", "writes", "hit ratio", "value"];
    let rows: Vec<Vec<String>> = rows.collect();
    let listed = if rows.is_empty() { "no key stands out".into() } else { table(&header, rows) };
    format!("{stands_on}\n{listed}")
}

const NOT_SAMPLED: &str = "traffic is not sampled: that needs the HTTP port (--http-port)";

/// The size of a sample in words; none if there is no sample.
fn stands_on(fields: &Fields) -> Option<String> {
    let of = |name: &str| number_of(fields, name);
    let (requests, samples) = (number::text(of("requests")?), number::text(of("samples")?));
    Some(format!("{requests} requests of the last {}, by {samples} samples", duration(of("seconds")?)))
}

/// The prefixes of hot keys, as text like keys.
fn prefixes(now: &Look) -> String {
    if !is_larder(now) {
        return "prefixes are told by a Larder".into();
    }
    let Some(stands_on) = stands_on(&now.prefixes) else { return NOT_SAMPLED.into() };
    let rows = grouped(now.prefixes.clone()).into_iter().map(|fields| {
        let of = |name: &str| number_of(&fields, name);
        let prefix = match fields.get("prefix").map_or("-", |prefix| prefix.as_str()) {
            "-" => "(none)".to_owned(),
            prefix => prefix.to_owned(),
        };
        let give_or_take = |name: &str| shown(of(name), |error| format!("± {:.1}", error * 100.0));
        vec![
            prefix,
            shown(of("share"), percent),
            give_or_take("error"),
            shown(of("requests_per_second"), per_second),
            shown(of("bytes_per_second"), |rate| format!("{}/s", bytes(rate))),
            shown(of("hit_ratio"), percent),
            give_or_take("hit_ratio_error"),
            shown(of("misses_per_second"), per_second),
            shown(of("value_bytes"), bytes),
            shown(of("memory_share"), percent),
            give_or_take("memory_error"),
        ]
    });
    let header = [
        "prefix",
        "share",
        "error",
        "requests",
        "traffic",
        "hit ratio",
        "error",
        "misses",
        "mean value",
        "of memory",
        "error",
    ];
    let rows: Vec<Vec<String>> = rows.collect();
    let listed = if rows.is_empty() { "no prefix stands out".into() } else { table(&header, rows) };
    format!("{stands_on}\n{listed}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::look::Finding;
    use std::time::{Duration, Instant};

    fn look(family: Family, at: Instant, general: &[(&str, &str)]) -> Look {
        let general = general.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Look {
            family,
            at,
            general,
            classes: Fields::new(),
            connections: Vec::new(),
            findings: Vec::new(),
            memory: Fields::new(),
            hot_keys: Fields::new(),
            prefixes: Fields::new(),
        }
    }

    fn two(family: Family, before: &[(&str, &str)], now: &[(&str, &str)]) -> (Look, Look) {
        let at = Instant::now();
        (look(family, at, before), look(family, at + Duration::from_secs(2), now))
    }

    #[test]
    fn a_memcached_and_a_redis_have_the_same_head() {
        let (before, now) = two(
            Family::Memcached,
            &[("get_hits", "100"), ("get_misses", "0"), ("cmd_get", "100"), ("evictions", "9")],
            &[
                ("version", "1.6.45"),
                ("get_hits", "280"),
                ("get_misses", "20"),
                ("cmd_get", "300"),
                ("evictions", "3"),
                ("bytes", "33554432"),
                ("limit_maxbytes", "67108864"),
                ("curr_items", "1234567"),
                ("uptime", "7200"),
            ],
        );
        let said = lines(&before, &now, Sheet::Overview, Sort::Share, Size::UNBOUNDED).join("\n");
        for part in [
            "memcached 1.6.45, up 2.0 h",
            "requests 100/s",
            "hit ratio 90.0 % (10/s misses)",
            "evicted 0/s",
            "memory 32.0 MiB of 64.0 MiB (50.0 %)",
            "items 1,234,567",
            "connections – of –",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let (before, now) = two(
            Family::Redis,
            &[("total_commands_processed", "10"), ("keyspace_hits", "5"), ("keyspace_misses", "5")],
            &[
                ("redis_version", "8.0.6"),
                ("total_commands_processed", "30"),
                ("keyspace_hits", "8"),
                ("keyspace_misses", "6"),
                ("used_memory", "1048576"),
                ("maxmemory", "0"),
                ("db0", "keys=5,expires=1"),
                ("db3", "keys=2,expires=0"),
                ("used_cpu_user", "1.5"),
                ("used_cpu_sys", "0.5"),
                ("cmdstat_get", "calls=20,usec=40,usec_per_call=2.00,rejected_calls=0,failed_calls=1"),
            ],
        );
        let said = lines(&before, &now, Sheet::Commands, Sort::Rate, Size::UNBOUNDED).join("\n");
        for part in [
            "redis 8.0.6",
            "requests 10/s",
            "hit ratio 75.0 %",
            "memory 1.0 MiB   items 7",
            "processor 100.0 % of a core",
            "| get     |  10/s |",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let told: Value = serde_json::from_str(&json(&before, &now)).expect("JSON");
        assert_eq!(
            (&told["figures"]["items"], &told["figures"]["memory_limit_bytes"]),
            (&json!(7.0), &Value::Null)
        );
    }

    #[test]
    fn a_screen_is_as_large_as_there_is_room_and_no_terminal_is_told_what_to_do() {
        let (before, now) =
            two(Family::Memcached, &[], &[("version", "1.6\u{1b}[31m\r\nx\u{7}"), ("uptime", "5")]);
        for lines in [0, 1, 2, 40] {
            let size = Size { columns: 80, lines };
            let said = super::lines(&before, &now, Sheet::Overview, Sort::Share, size);
            assert_eq!(said.len(), lines.max(1));
            assert_eq!(said.last().unwrap(), "q:end  o:overview  s:classes  c:connections");
        }
        let size = Size { columns: 20, lines: 3 };
        let said = lines(&before, &now, Sheet::Doctor, Sort::Share, size);
        assert_eq!(said.len(), 3);
        assert!(
            said.iter().all(|line| line.chars().count() <= 20 && !line.contains(char::is_control)),
            "{said:?}"
        );
    }

    #[test]
    fn memory_is_what_counts_against_the_limit_in_either_protocol() {
        let general = [("version", "1.6.45-larder-0.1.0"), ("bytes", "12"), ("limit_maxbytes", "67108864")];
        let (before, mut now) = two(Family::Memcached, &[], &general);
        now.memory.insert("used".into(), "1677722".into());
        let by_text = lines(&before, &now, Sheet::Overview, Sort::Share, Size::UNBOUNDED);
        let general = [
            ("larder_version", "0.1.0"),
            ("used_memory", "1677722"),
            ("maxmemory", "67108864"),
            ("db0", "keys=1"),
        ];
        let (before, now) = two(Family::Redis, &[], &general);
        let by_info = lines(&before, &now, Sheet::Overview, Sort::Share, Size::UNBOUNDED);
        assert!(by_text[0].ends_with("; requests and hits of memcached clients"), "{by_text:?}");
        assert!(by_info[0].ends_with("; requests of Redis clients, hits of all"), "{by_info:?}");
        for said in [by_text, by_info] {
            assert!(said[2].starts_with("memory 1.6 MiB of 64.0 MiB (2.5 %)   items "), "{said:?}");
        }
    }

    #[test]
    fn a_sheet_that_another_protocol_fills_says_so() {
        let said = |family, name: &str, sheet| {
            let (before, now) = two(family, &[], &[(name, "1.6.45-larder-0.1.0")]);
            lines(&before, &now, sheet, Sort::Share, Size::UNBOUNDED).join("\n")
        };
        let commands = said(Family::Memcached, "version", Sheet::Commands);
        assert!(commands.contains("--target redis://HOST:PORT"), "{commands}");
        let classes = said(Family::Redis, "larder_version", Sheet::Classes);
        assert!(classes.contains("--target memcached://HOST:PORT"), "{classes}");
        assert!(!said(Family::Redis, "redis_version", Sheet::Classes).contains("--target"));
    }

    #[test]
    fn classes_connections_and_findings_are_read() {
        let (mut before, mut now) = two(Family::Memcached, &[], &[("version", "1.6.45-larder-0.1.0")]);
        let fields = |pairs: &[(&str, &str)]| -> Fields {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        before.classes = fields(&[("3:get_hits", "10"), ("3:cmd_set", "0"), ("items:3:evicted", "0")]);
        now.classes = fields(&[
            ("3:chunk_size", "1024"),
            ("3:total_chunks", "2048"),
            ("3:used_chunks", "1024"),
            ("3:get_hits", "30"),
            ("3:cmd_set", "4"),
            ("items:3:number", "1000"),
            ("items:3:evicted", "2"),
            ("items:3:age", "90"),
            ("active_slabs", "1"),
        ]);
        now.connections = vec![
            fields(&[("addr", "tcp:1.2.3.4:5"), ("state", "conn_read"), ("secs_since_last_cmd", "70")]),
            fields(&[("addr", "tcp:1.2.3.4:6"), ("state", "conn_read")]),
            fields(&[("addr", "tcp:0.0.0.0:11211"), ("state", "conn_listening")]),
        ];
        let [rule, severity, evidence, advice] = ["churn", "note", "many", "keep them"].map(str::to_owned);
        now.findings = vec![Finding { rule, severity, evidence, advice }];
        let said = |sheet| lines(&before, &now, sheet, Sort::Share, Size::UNBOUNDED).join("\n");
        let classes = said(Sheet::Classes);
        for part in ["1,024", "1,000", "2.0 MiB", "50.0 %", "10/s", "2/s", "1/s", "1.5 min"] {
            assert!(classes.contains(part), "{part}: {classes}");
        }
        let connections = said(Sheet::Connections);
        assert!(
            connections.contains("1.2.3.4")
                && connections.contains("1.2 min")
                && !connections.contains("11211")
        );
        assert!(said(Sheet::Doctor).contains("note: many (churn)\n  keep them"));
        assert!(said(Sheet::HotKeys).contains("traffic is not sampled"));
        now.hot_keys = fields(&[
            ("seconds", "10.0"),
            ("requests", "1000"),
            ("samples", "1000"),
            ("2:key", "b"),
            ("1:key", "a%0A"),
            ("1:share", "0.2500"),
            ("1:error", "0.0100"),
            ("1:reads", "0.5000"),
            ("1:deletes", "0.2500"),
        ]);
        let said = lines(&before, &now, Sheet::HotKeys, Sort::Share, Size::UNBOUNDED).join("\n");
        assert!(said.contains("1,000 requests of the last 10 s, by 1,000 samples"), "{said}");
        let (first, second) = (said.find("a%0A").unwrap(), said.find("| b ").unwrap());
        assert!(first < second && said.contains("25.0 %") && said.contains("± 1.0"), "{said}");
        let told: Value = serde_json::from_str(&json(&before, &now)).expect("JSON");
        let first = json!({ "key": "a%0A", "share": 0.25, "error": 0.01, "reads": 0.5, "deletes": 0.25 });
        assert_eq!((&told["keys"], told.get("prefixes")), (&json!([first, { "key": "b" }]), None));
        let said = lines(&before, &now, Sheet::Prefixes, Sort::Share, Size::UNBOUNDED).join("\n");
        assert!(said.contains("not sampled"), "{said}");
        now.prefixes = fields(&[
            ("seconds", "10.0"),
            ("requests", "64000"),
            ("samples", "1000"),
            ("1:prefix", "user%3A"),
            ("1:share", "0.7500"),
            ("1:error", "0.0300"),
            ("1:hit_ratio", "0.9000"),
            ("1:hit_ratio_error", "0.0200"),
            ("1:misses_per_second", "120.0"),
            ("2:prefix", "-"),
            ("2:share", "0.2500"),
        ]);
        let said = lines(&before, &now, Sheet::Prefixes, Sort::Share, Size::UNBOUNDED).join("\n");
        for part in
            ["64,000 requests of the last 10 s, by 1,000 samples", "user%3A", "75.0 %", "± 2.0", "(none)"]
        {
            assert!(said.contains(part), "{part}: {said}");
        }
        let size = Size { columns: 80, lines: 50 };
        let said = lines(&before, &now, Sheet::Prefixes, Sort::Share, size);
        assert_eq!(
            said.last().unwrap(),
            "q:end  o:overview  s:classes  c:connections  k:keys  p:prefixes  d:findings"
        );
        assert_eq!(host("unix:/run/s"), "/run/s");
        assert_eq!((host("tcp6:[::1]:11211"), host("127.0.0.1:5")), ("[::1]", "127.0.0.1"));
    }

    #[test]
    fn a_table_without_rows_says_that_the_server_has_no_figures() {
        assert_eq!(table(&["address"], Vec::new()), "this server has no such figures");
    }
}
