//! The report in a browser: it draws every picture, writes no message to the console, and makes no request.
//!
//! Needs Debian's package chromium: `cargo test -p larder-lab --test all report:: -- --ignored`.
//! `LARDER_REPORT_SHOTS=<folder>` keeps pictures of the page in light and dark.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_lab::report;
use larder_lab::results::{
    Axis, Better, Ceiling, Column, Comparison, Dash, Estimate, Kind, Latency, Plot, Point, Run, Scale, Table,
    Target,
};
use larder_lab::tally::Latencies;

/// Collects errors from the start of the page on.
const WATCH: &str = "<script>
window.wrong = [];
addEventListener('error', event => wrong.push('error: ' + event.message));
addEventListener('unhandledrejection', event => wrong.push('rejected: ' + event.reason));
addEventListener('securitypolicyviolation', event => wrong.push('asked for ' + event.blockedURI));
for (const name of ['error', 'warn']) console[name] = (...words) => wrong.push(name + ': ' + words.join(' '));
</script>";

/// Points at every picture, measures its shapes, and writes the findings into the page. It runs some time
/// after the page has loaded, since refused requests are reported late.
const MEASURE: &str = "<script>
addEventListener('load', () => setTimeout(() => {
const found = [...document.querySelectorAll('figure')].map(figure => {
  const svg = figure.querySelector('svg');
  const shapes = [...svg.querySelectorAll('.curve, .area, .bar, .dot')];
  const sizes = shapes.map(shape => shape.getBBox()).map(box => Math.max(box.width, box.height));
  const box = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + box.width / 2, clientY: box.top + 50, bubbles: true }));
  const tip = document.getElementById('tip');
  const line = [
    figure.dataset.plot, shapes.length, shapes.filter((shape, at) => sizes[at] > 0).length,
    svg.querySelectorAll('.tick').length, figure.querySelectorAll('.legend li').length,
    new Set(shapes.map(shape => getComputedStyle(shape).color)).size,
    Math.round(box.width) > 300 && Math.round(box.height) > 100,
    figure.dataset.scale ? tip.children.length : 0,
  ].join(' ');
  tip.hidden = true;
  svg.dispatchEvent(new PointerEvent('pointerleave'));
  return line;
});
const list = document.createElement('pre');
list.id = 'findings';
list.textContent = [...wrong.map(what => 'wrong ' + what), ...found].join('\\n');
document.body.append(list);
}, 100));
</script>";

fn wave(curve: usize, points: usize) -> Vec<Point> {
    (0..points)
        .map(|at| {
            let (x, y) = (at as f64, 40.0 + 30.0 * ((at + 7 * curve) as f64 / 9.0).sin());
            Point { x, y, interval: Some([y * 0.9, y * 1.1]) }
        })
        .collect()
}

/// A run with every kind of picture.
fn run() -> Run {
    let mut run = Run::new("sample", "Every kind of picture");
    for name in ["larder", "memcached", "redis"] {
        let version = "1.2.3".to_owned();
        run.targets.push(Target { name: name.to_owned(), version, ..Target::default() });
    }
    let mut lines = Plot::new("lines", "Hit ratio over time", Kind::Lines);
    lines.x = Axis::new("time", "s", Scale::Linear);
    lines.y = Axis::new("hit ratio", "%", Scale::Linear).between(0.0, 100.0);
    for (at, name) in ["larder", "memcached", "redis"].into_iter().enumerate() {
        lines.curve(name, wave(at, 60));
    }
    lines.curve("oracle: LRU by bytes", wave(3, 60)).dash = Dash::Dashed;
    lines.mark(20.0, "values become 1.4 KB");
    lines.caption = "Cache-aside, Zipf 0.9.".to_owned();
    run.plots.push(lines);

    let mut clients = Plot::new("clients", "Goodput against clients", Kind::Lines);
    clients.x = Axis::new("clients", "", Scale::Log);
    clients.y = Axis::new("goodput", "1/s", Scale::Log);
    for (at, name) in ["larder", "memcached", "redis"].into_iter().enumerate() {
        let points = [1.0, 2.0, 3.0, 9.0, 50.0, 75.0, 100.0].map(|x: f64| {
            let y = 9_000.0 * x.sqrt() * (1.0 + at as f64);
            Point { x, y, interval: Some([y * 0.8, y * 1.3]) }
        });
        clients.curve(name, points);
    }
    run.plots.push(clients);

    let mut stacked = Plot::new("stacked", "Memory by class over time", Kind::Stacked);
    stacked.x = Axis::new("time", "s", Scale::Linear);
    stacked.y = Axis::new("memory", "MiB", Scale::Linear);
    for class in 0..10 {
        stacked.curve(&format!("class {class}"), wave(class, 40));
    }
    run.plots.push(stacked);

    let mut bars = Plot::new("bars", "Bytes per key above key and value", Kind::Bars);
    bars.groups = ["16 + 32 B", "20 + 8 B", "16 + 100 B", "30 + 400 B"].map(str::to_owned).to_vec();
    bars.x = Axis::new("key and value", "", Scale::Linear);
    bars.y = Axis::new("overhead", "B", Scale::Linear);
    for (at, name) in ["larder", "memcached", "redis"].into_iter().enumerate() {
        bars.curve(name, (0..4).map(|group| wave(at, 4)[group]).collect::<Vec<_>>());
    }
    run.plots.push(bars);
    let mut stack = Plot { kind: Kind::StackedBars, id: "stack".to_owned(), ..run.plots[3].clone() };
    stack.groups = ["after the fill", "overwritten", "half deleted", "idle"].map(str::to_owned).to_vec();
    run.plots.push(stack);

    let mut histogram = Latencies::default().ns;
    (1..50_000_u64).for_each(|n| histogram.record(1_000 + n * n % 4_000_000).unwrap());
    for target in ["larder", "redis"] {
        let clock = "open loop, from the intended send";
        run.histograms.push(Latency::new(target, "get", clock, &histogram, 0).unwrap());
    }
    let mut table = Table::new("t", "Bytes per key", &["key and value"]);
    table.column(Column::new("overhead", "B", Better::Lower));
    table.row("larder", ["16 + 32 B"], [Estimate::of(&[14.0, 15.0, 14.5, 14.7])]);
    run.tables.push(table);
    let ratio = Estimate::ratio(&[1.0, 1.1, 1.2], &[4.0, 4.1, 4.2]).unwrap();
    let claim = "larder / redis, overhead".to_owned();
    run.comparisons.push(Comparison::compared(claim, Better::Lower, ratio, &[]));
    run.check("the server counted as many gets as the generator", Ok("1,000,000".to_owned()));
    run.ceilings.push(Ceiling { load: "GET × 200".to_owned(), per_s: 1.2e7, busy: 0.97 });
    run.verdict = "Larder needs 14.6 bytes per key above key and value, redis 60.1.".to_owned();
    run
}

fn chromium(arguments: &[&str], page: &Path) -> (String, String) {
    let profile = page.with_extension("profile");
    let output = Command::new("chromium")
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--enable-logging=stderr",
        ])
        .args(["--disable-dev-shm-usage", "--no-first-run", "--window-size=1400,1300"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("Debian's package chromium is installed");
    let _ = fs::remove_dir_all(profile);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("larder-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// The lines of [`MEASURE`]'s findings, and the messages in the browser's console.
fn measured(page: &str, name: &str) -> (Vec<String>, Vec<String>) {
    let folder = folder(name);
    let path = folder.join("page.html");
    // A policy in a meta element applies only to what follows it: the test's script comes before it.
    let page = page.replacen("<head>", &format!("<head>{WATCH}"), 1);
    fs::write(&path, page.replacen("</body>", &format!("{MEASURE}</body>"), 1)).unwrap();
    let (dom, log) = chromium(&["--dump-dom", "--virtual-time-budget=5000"], &path);
    fs::remove_dir_all(folder).unwrap();
    let found = dom.split("<pre id=\"findings\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let found = found.unwrap_or_else(|| panic!("the page did not run to its end: {log}"));
    let console = log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    (found.lines().map(str::to_owned).collect(), console)
}

#[test]
#[ignore = "browser: chromium"]
fn every_picture_draws_and_nothing_is_complained_of() {
    let run = run();
    let (found, console) = measured(&report::html(&run), "report");
    assert!(console.is_empty(), "{console:?}");
    assert_eq!(
        found.len(),
        run.plots.len() + 1,
        "a line for each picture and one for the latencies: {found:?}"
    );
    // Per picture: shapes, shapes with a size, ticks, names in the legend, colours, whether it fits, lines of
    // the tip.
    let expected = [
        ("lines", 4, 4, 5),
        ("clients", 3 + 21, 3, 4),
        ("stacked", 10, 10, 11),
        ("bars", 12, 3, 0),
        ("stack", 12, 3, 0),
        ("percentiles-0", 2, 2, 3),
    ];
    for (line, (id, shapes, curves, tips)) in found.iter().zip(expected) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<usize>().unwrap();
        assert_eq!(words[0], id, "{found:?}");
        let dots = if id == "percentiles-0" { number(1) - shapes } else { 0 };
        assert_eq!(number(1), shapes + dots, "{line}");
        assert_eq!(number(2), number(1), "a shape without extent: {line}");
        assert!(number(3) >= 6, "few ticks: {line}");
        assert_eq!(number(4), curves, "{line}");
        assert_eq!(number(5), curves.min(8), "colours: {line}");
        assert_eq!((words[6], number(7)), ("true", tips), "{line}");
    }
}

#[test]
#[ignore = "browser: chromium"]
fn the_watch_sees_a_script_that_fails_and_a_picture_from_elsewhere() {
    let page = report::html(&run());
    let broken = page.replacen("'use strict';", "'use strict'; undefined.x;", 1);
    let (found, _) = measured(&broken, "broken");
    assert!(found.iter().any(|line| line.starts_with("wrong error:")), "{found:?}");
    let asking = page.replacen("<main>", "<main><img src=\"http://127.0.0.1:9/x.png\">", 1);
    let (found, _) = measured(&asking, "asking");
    assert!(found.iter().any(|line| line.starts_with("wrong asked for http://127.0.0.1:9")), "{found:?}");
}

#[test]
#[ignore = "browser: chromium"]
fn light_and_dark_differ_and_both_have_been_drawn() {
    let folder = folder("shots");
    let page = folder.join("page.html");
    let html = report::html(&run());
    let mut shots = Vec::new();
    for theme in ["light", "dark"] {
        let page_of =
            html.replacen("<html lang=\"en\">", &format!("<html lang=\"en\" data-theme=\"{theme}\">"), 1);
        fs::write(&page, page_of).unwrap();
        let shot = folder.join(format!("{theme}.png"));
        chromium(&[&format!("--screenshot={}", shot.display())], &page);
        let png = fs::read(&shot).unwrap();
        assert!(png.starts_with(b"\x89PNG") && png.len() > 50_000, "{} bytes", png.len());
        if let Some(kept) = std::env::var_os("LARDER_REPORT_SHOTS") {
            fs::copy(&shot, Path::new(&kept).join(format!("{theme}.png"))).unwrap();
        }
        shots.push(png);
    }
    assert_ne!(shots[0], shots[1]);
    fs::remove_dir_all(folder).unwrap();
}
