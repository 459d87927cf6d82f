//! Dashboards and alerts that were made for memcached_exporter and redis_exporter find their series.

use std::time::{Duration, Instant};

use super::{PATIENCE, fill};
use crate::web::{Page, Web};

const BOARDS: &str = include_str!("boards.txt");

/// One series that a dashboard queries.
struct Asked {
    line: &'static str,
    name: &'static str,
    rate: bool,
    labels: Vec<(&'static str, Option<&'static str>)>,
}

impl Asked {
    fn read(line: &'static str) -> Asked {
        let mut words = line.split(' ').peekable();
        let rate = words.next_if_eq(&"rate").is_some();
        let name = words.next().expect("a name");
        let label = |word: &'static str| match word.split_once('=') {
            Some((label, value)) => (label, Some(value)),
            None => (word, None),
        };
        Asked { line, name, rate, labels: words.map(label).collect() }
    }

    /// Why the dashboard would show nothing for this series; `None` if it would.
    fn lacks(&self, page: &Page) -> Option<String> {
        let Some(kind) = page.kinds.get(self.name) else { return Some(format!("{}: absent", self.line)) };
        if self.rate && kind != "counter" {
            return Some(format!("{}: a {kind}", self.line));
        }
        let found = page.series.keys().any(|series| {
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            name == self.name
                && self.labels.iter().all(|(label, value)| {
                    let begins = match value {
                        Some(value) => format!("{label}=\"{value}\""),
                        None => format!("{label}=\""),
                    };
                    labels.split(',').any(|part| part.starts_with(&begins))
                })
        });
        (!found).then(|| format!("{}: no series with these labels", self.line))
    }
}

/// The series that dashboards query and do not find. Also three counts: dashboards, series that they query,
/// and series that Larder does not have.
fn lacking(page: &Page) -> (Vec<String>, [usize; 3]) {
    let (mut lacking, mut counts, mut at) = (Vec::new(), [0; 3], "");
    for line in BOARDS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(board) = line.strip_prefix("= ") {
            counts[0] += 1;
            at = board;
        } else if let Some(absent) = line.strip_prefix("not ") {
            let (name, why) = absent.split_once(": ").unwrap_or_else(|| panic!("{line}: without a reason"));
            counts[2] += 1;
            assert!(!why.is_empty() && !page.kinds.contains_key(name), "{line}: but it is told");
        } else {
            counts[1] += 1;
            lacking.extend(Asked::read(line).lacks(page).map(|lack| format!("{at}: {lack}")));
        }
    }
    (lacking, counts)
}

#[test]
fn boards_that_were_made_for_exporters_find_what_they_ask_for() {
    let web = Web::start(&["-t", "2", "-m", "64"]);
    fill(&web);
    let began = Instant::now();
    loop {
        let (lacking, [boards, asked, not]) = lacking(&web.metrics(""));
        // The number of keys with an expiry is counted only after the first request for it.
        if lacking.is_empty() {
            assert!(boards == 6 && asked > 80 && not > 10, "{boards} boards, {asked} asked, {not} not");
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{lacking:#?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn what_a_board_lacks_is_seen() {
    let web = Web::start(&["-t", "1"]);
    let page = web.metrics("");
    let lacks = |line| Asked::read(line).lacks(&page).is_some();
    assert!(lacks("memcached_nothing") && lacks("rate memcached_up") && lacks("redis_up db"));
    assert!(lacks("memcached_commands_total command=mystery"));
    assert!(!lacks("memcached_up") && !lacks("rate memcached_commands_total status=hit command=get"));
}
