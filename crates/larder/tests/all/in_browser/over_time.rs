//! What changes while the page is open: which keys clients read and how long their values are, a key that
//! becomes hot, and an hour that passes.

use std::time::{Duration, Instant};

use larder_testkit::PATIENCE;
use serde_json::json;

use super::browser::Browser;
use super::{data, open, origin, rows, traffic};
use crate::web::{Web, below};

/// Two sets of keys: prefix, number of keys, bytes of a value. Each takes twice the server's 16 MiB.
const SMALL: (&str, u64, usize) = ("before:", 130_000, 200);
const LARGE: (&str, u64, usize) = ("after:", 10_000, 3_000);
/// By this uptime in seconds the server has a whole minute of history, and the page shows its findings.
const KNOWN_S: f64 = 70.0;

/// Of ten requests this many are for the hot key.
const HOT_OF_TEN: u64 = 3;
const HOT_PERCENT: f64 = 30.0;
/// How far its measured share may be off, in percent of all requests: 15 % of the true share.
const HOT_OFF_MAX: f64 = HOT_PERCENT * 0.15;

/// Most bytes that an hour of the page may add to its heap.
const HEAP_BYTES_MAX: f64 = 20e6;
/// Events of one kind that the page keeps: `MOMENTS` in its script.
const MOMENTS: u64 = 64;

/// Makes the page's seconds pass as fast as it can work. Its pause between two rounds is left out. Each reply
/// with a history has one more point, for one second, with the server's newest values, and an event of a
/// worker that was held up.
const FAST: &str = r"(() => {
  const [later, ask] = [self.setTimeout, self.fetch];
  self.seconds = 0;
  self.setTimeout = (what, ms, ...rest) => {
    if (ms === 1000) self.seconds += 1;
    return later(what, ms === 1000 ? 0 : ms, ...rest);
  };
  let newest = null;
  self.fetch = async (place, how) => {
    const url = new URL(place), since = url.searchParams.get('since');
    if (url.pathname !== '/api/v1/history') return ask(place, how);
    if (since !== null) url.searchParams.set('since', newest.end_ms.at(-1));
    const told = await (await ask(url, how)).json();
    if (told.end_ms.length > 0) newest = told;
    if (since === null) return new Response(JSON.stringify(told));
    const at_ms = Number(since) + 1000;
    const series = Object.entries(newest.series).map(([name, values]) => [name, values.slice(-1)]);
    const stall = { at_ms, what: 'stalled', took_us: 20000, cause: 'work' };
    const marks = [...told.marks.map(mark => ({ ...mark, at_ms })), stall];
    return new Response(JSON.stringify({ ...told, end_ms: [at_ms], series: Object.fromEntries(series), marks }));
  };
})()";

/// The first cell of a table.
fn first(browser: &mut Browser, table: &str) -> String {
    rows(browser, table).first().and_then(|row| row.first()).cloned().unwrap_or_default()
}

/// The number at the beginning of a cell.
fn number(cell: &str) -> f64 {
    cell.split(' ').next().and_then(|text| text.replace(',', "").parse().ok()).unwrap_or(0.0)
}

/// The chunk size of the class with the most memory, and its share of the memory in percent.
fn largest_class(browser: &mut Browser) -> (f64, f64) {
    let classes = rows(browser, "classes-table");
    let shares = classes.iter().filter_map(|row| Some((number(&row[0]), number(row.get(3)?))));
    shares.max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or_default()
}

fn content(browser: &mut Browser, id: &str) -> String {
    browser.text(&format!("document.getElementById('{id}').textContent"))
}

/// Whether a change of value sizes was found and is not over, by the page's list of events.
fn is_shifting(marks: &str) -> bool {
    marks.matches("found: size-shift").count() > marks.matches("over: size-shift").count()
}

#[test]
#[ignore = "browser: chromium"]
fn a_working_set_that_shifts_to_other_keys_and_sizes_is_told() {
    let web = Web::start(&["-t", "1", "-m", "16"]);
    let mut browser = open(&web, 1280, 900);
    browser.value("document.querySelector('#chart-moving .head button').click()");
    let (mut text, mut random) = (web.text(), 1);
    let mut ask = |(prefix, count, bytes): (&str, u64, usize)| {
        let value = "v".repeat(bytes);
        for _ in 0..20 {
            text.look_aside(prefix, count, &value, &mut random);
        }
        let stats = text.stats();
        std::thread::sleep(Duration::from_millis(50));
        (stats["uptime"], stats["evictions"])
    };
    let began = Instant::now();
    loop {
        let (uptime_s, evictions) = ask(SMALL);
        let (prefix, (chunk_bytes, percent)) =
            (first(&mut browser, "prefixes-table"), largest_class(&mut browser));
        let (findings, marks) = (content(&mut browser, "findings"), content(&mut browser, "marks"));
        // A store that has just become full moves some blocks for its index and its ghosts; this must be over
        // first.
        let is_steady = !findings.contains("(size-shift)") && !is_shifting(&marks);
        if uptime_s >= KNOWN_S && is_steady && evictions > 0.0 && prefix == SMALL.0 && percent > 90.0 {
            assert!((200.0..400.0).contains(&chunk_bytes), "{chunk_bytes}");
            break;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{uptime_s} s, {evictions}, {prefix}: {chunk_bytes}, {percent}; {findings}; {marks}"
        );
    }
    // The open table below the chart shows the last twenty seconds.
    let moves = "[...document.querySelectorAll('#chart-moving tbody td:nth-child(2)')].some(cell => parseFloat(cell.textContent) > 0)";
    let (began, mut has_moved) = (Instant::now(), false);
    loop {
        ask(LARGE);
        has_moved |= browser.value(moves) == true;
        let (prefix, (chunk_bytes, percent)) =
            (first(&mut browser, "prefixes-table"), largest_class(&mut browser));
        let (findings, marks) = (content(&mut browser, "findings"), content(&mut browser, "marks"));
        let is_told = findings.contains("were moved between sizes in ") && findings.contains("(size-shift)");
        if has_moved
            && is_told
            && is_shifting(&marks)
            && prefix == LARGE.0
            && percent > 50.0
            && chunk_bytes > 3_000.0
        {
            break;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{has_moved}, {prefix}: {chunk_bytes}, {percent}; {findings}; {marks}"
        );
    }
    browser.picture("shift");
    browser.is_quiet(&origin(&web), false);
}

#[test]
#[ignore = "browser: chromium"]
fn a_hot_key_is_listed_with_its_share_and_found() {
    let web = Web::start(&["-t", "1", "-m", "64"]);
    let mut browser = open(&web, 1280, 900);
    let mut text = web.text();
    assert_eq!(text.ask(&format!("set hot:one 0 0 100\r\n{}\r\n", "v".repeat(100))), "STORED\r\n");
    let (began, mut random, mut n) = (Instant::now(), 1, 0u64);
    loop {
        for _ in 0..20 {
            let gets: String = (0..100)
                .map(|_| {
                    n += 1;
                    match below(&mut random, 10) < HOT_OF_TEN {
                        true => "mg hot:one v\r\n".to_owned(),
                        false => format!("mg cold:{n} v\r\n"),
                    }
                })
                .collect();
            text.until(&(gets + "mn\r\n"), "MN\r\n");
        }
        let shown = rows(&mut browser, "hot-table");
        let findings = content(&mut browser, "findings");
        let row: Vec<&str> = shown.iter().take(1).flatten().map(String::as_str).collect();
        // The row's cells: key, share with its error, …, reads, …, hit ratio and value, over at least ten
        // seconds.
        if let ["hot:one", share, _, _, "100.0 %", _, _, "100.0 %", "100 B", ..] = row[..]
            && (number(share) - HOT_PERCENT).abs() < HOT_OFF_MAX
            && share.contains(" % ± ")
            && findings.contains("(hot-key)")
            && data(&web, "hotkeys")["seconds"].as_f64() >= Some(10.0)
        {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{row:?}: {findings}");
        std::thread::sleep(Duration::from_millis(50));
    }
    browser.value("document.getElementById('h-hot').scrollIntoView()");
    browser.picture("hot-key");
    browser.is_quiet(&origin(&web), false);
}

#[test]
#[ignore = "browser: chromium"]
fn an_hour_of_the_page_leaves_20_mb_on_its_heap_at_most() {
    let web = Web::start(&["-t", "1", "-m", "64"]);
    traffic(&web, 3);
    let mut browser = Browser::start(1_280, 900);
    browser.begin_with(FAST);
    browser.open(&origin(&web));
    browser.wait("document.querySelectorAll('#options-table tbody tr').length > 0");
    // The page has loaded. The browser's events about an hour of requests would fill the test's memory.
    for domain in ["Network", "Accessibility"] {
        browser.call(&format!("{domain}.disable"), json!({}));
    }
    let mut heaps = Vec::new();
    for minute in 1..=60 {
        traffic(&web, 1);
        browser.wait(&format!("self.seconds >= {}", minute * 60));
        heaps.push(browser.heap_bytes());
    }
    println!("the page's heap, minute by minute: {heaps:?}");
    assert!(heaps.iter().all(|bytes| *bytes <= HEAP_BYTES_MAX), "{heaps:?}");
    // The charts are full. The list of events is bounded, although each second brought a stall.
    let points = "document.querySelector('#tile-items polyline').getAttribute('points').split(' ').length";
    assert_eq!(browser.value(points), 120);
    let stalls = "[...document.querySelectorAll('#marks li')].filter(line => line.textContent.includes('a worker was held up')).length";
    assert_eq!(browser.value(stalls), MOMENTS);
    browser.picture("an-hour");
    browser.is_quiet(&origin(&web), false);
}
