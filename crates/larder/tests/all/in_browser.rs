//! The page in a real browser: it shows the server's figures, keys are shown as text, nothing is written to
//! its console, and no policy is broken. It works by keyboard, at a width of 360 pixels, in both themes, and
//! with a server that goes away and comes back.
//!
//! `LARDER_PAGE_PICTURES=folder` keeps a picture of each scenario.

mod browser;
mod over_time;

use larder_testkit::PATIENCE;
use std::time::{Duration, Instant};

use crate::web::Web;
use browser::Browser;
use serde_json::Value;

fn data(web: &Web, place: &str) -> Value {
    let answer = web.get(&format!("/api/v1/{place}"));
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{place}: {error}: {body}"))
}

fn origin(web: &Web) -> String {
    format!("http://127.0.0.1:{}/", web.port)
}

/// Opens the page in a browser, and waits until its last part is filled.
fn open(web: &Web, width: u32, height: u32) -> Browser {
    let mut browser = Browser::start(width, height);
    browser.open(&origin(web));
    browser.wait("document.querySelectorAll('#options-table tbody tr').length > 0");
    browser
}

/// Sends requests of both protocols for some seconds: keys of several sizes, some of which are absent, and
/// some expire.
fn traffic(web: &Web, seconds: u64) {
    let (mut text, mut redis) = (web.text(), web.redis());
    let began = Instant::now();
    let mut n: u64 = 0;
    while began.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..200 {
            n += 1;
            let bytes = [40, 300, 1_500, 9_000][n as usize % 4];
            let expires = if n.is_multiple_of(3) { 30 } else { 0 };
            text.ask(&format!("set page:{n} 0 {expires} {bytes}\r\n{}\r\n", "v".repeat(bytes)));
            for back in [1, 5, 40] {
                text.until(&format!("get page:{} other:{n}\r\n", n.saturating_sub(back)), "END\r\n");
            }
            redis.ask(&format!("SET user:{} v EX 1000\r\n", n % 500));
            redis.until(&format!("GET user:{}\r\n", n % 700), "\r\n");
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// More bytes than the page's requests for data and their replies take.
const ASKING_BYTES: u64 = 256 << 10;

fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Cells of a table, row by row.
fn rows(browser: &mut Browser, table: &str) -> Vec<Vec<String>> {
    let cells = format!(
        "[...document.querySelectorAll('#{table} tbody tr')].map(row => [...row.children].map(cell => cell.textContent))"
    );
    let told = browser.value(&cells);
    let row = |row: &Value| {
        let cells = row.as_array().expect("cells").iter();
        cells.map(|cell| cell.as_str().unwrap_or_default().to_owned()).collect()
    };
    told.as_array().expect("rows").iter().map(row).collect()
}

#[test]
#[ignore = "browser: chromium"]
fn an_empty_server_is_shown_and_nothing_is_said_to_the_console() {
    let web = Web::start(&["-t", "1"]);
    let mut browser = open(&web, 1280, 900);
    assert_eq!(browser.text("document.querySelector('#tile-items strong').textContent"), "0");
    assert_eq!(browser.text("document.getElementById('verdict').className"), "good");
    assert_eq!(
        browser.text("document.querySelector('#findings li').textContent"),
        "Nothing to say: all is well."
    );
    assert_eq!(browser.text("document.querySelector('#slow-table tbody').textContent"), "none");
    browser.picture("empty");
    browser.is_quiet(&origin(&web), false);
}

#[test]
#[ignore = "browser: chromium"]
fn a_page_that_was_opened_with_a_password_in_its_address_is_filled() {
    let web = Web::start(&["-t", "1", "--requirepass", "secret"]);
    let mut browser = Browser::start(1_280, 900);
    browser.open(&origin(&web).replace("://", "://default:secret@"));
    browser.wait("document.querySelectorAll('#options-table tbody tr').length > 0");
}

#[test]
#[ignore = "browser: chromium"]
fn numbers_on_the_page_are_the_servers() {
    let web = Web::start(&["-t", "2", "-m", "64"]);
    traffic(&web, 6);
    let mut browser = open(&web, 1280, 900);
    traffic(&web, 6);
    // The server is idle: the comparison is repeated until the page shows the server's present figures.
    let began = Instant::now();
    loop {
        let (figures, memory) = (data(&web, "now")["figures"].clone(), data(&web, "memory"));
        let whole = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value}"));
        let mut differ = Vec::new();
        let mut hold = |what: &str, shown: String, expected: String| {
            if shown != expected {
                differ.push(format!("{what}: {shown}, expected {expected}"));
            }
        };
        let tile = |browser: &mut Browser, id: &str| {
            browser.text(&format!("document.querySelector('#tile-{id} strong').textContent"))
        };
        hold("items", tile(&mut browser, "items"), grouped(whole(&figures["items"])));
        hold("connections", tile(&mut browser, "connections"), grouped(whole(&figures["connections"])));
        let ratio = whole(&figures["hits"]) as f64
            / whole(&figures["hits"]).saturating_add(whole(&figures["misses"])) as f64;
        let more = browser.text("document.querySelector('#tile-ratio small').textContent");
        if !more.ends_with(&format!("; {:.1} % since the start", ratio * 100.0)) {
            hold("hit ratio", more, format!("{:.1} %", ratio * 100.0));
        }
        let shown = rows(&mut browser, "memory-table");
        for one in memory["uses"].as_array().expect("uses") {
            let name = match one["use"].as_str().expect("a name") {
                "aside" => "threads and bookkeeping".to_owned(),
                name => name.replace('_', " "),
            };
            let row = shown.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("{name}: {shown:?}"));
            let (told, bytes) = (row[1].clone(), whole(&one["bytes"]));
            // A client under way has a request and a reply in buffers: the page and the test see different
            // requests.
            if name == "buffers"
                && told.replace(',', "").parse::<u64>().is_ok_and(|told| told.abs_diff(bytes) < ASKING_BYTES)
            {
                continue;
            }
            hold(&name, told, grouped(bytes));
        }
        let classes = data(&web, "classes");
        let classes = classes["classes"].as_array().expect("classes");
        let shown = rows(&mut browser, "classes-table");
        for class in classes {
            let bytes = grouped(whole(&class["chunk_bytes"]));
            let row = shown.iter().find(|row| row[0] == bytes);
            hold(
                &format!("class {bytes}"),
                row.map_or(String::new(), |row| row[1].clone()),
                grouped(whole(&class["items"])),
            );
        }
        let called = data(&web, "commands");
        let commands = called["commands"].clone();
        let shown = rows(&mut browser, "commands-table");
        for (name, row) in commands.as_object().expect("commands") {
            let found = shown.iter().find(|row| row[0] == *name);
            hold(name, found.map_or(String::new(), |row| row[1].clone()), grouped(whole(&row["calls"])));
        }
        let shown = rows(&mut browser, "memcached-table");
        for (name, row) in called["memcached"].as_object().expect("commands") {
            let found = shown.iter().find(|row| row[0] == *name);
            let measured = grouped(whole(&row["measured_calls"]));
            hold(&format!("memcached's {name}"), found.map_or(String::new(), |row| row[1].clone()), measured);
        }
        let spans: u64 = rows(&mut browser, "map-owners")
            .iter()
            .map(|row| row[1].replace(',', "").parse::<u64>().unwrap_or(0))
            .sum();
        hold("spans", spans.to_string(), whole(&data(&web, "map")["spans"]).to_string());
        if differ.is_empty() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{differ:#?}");
        std::thread::sleep(Duration::from_millis(500));
    }
    // A chart's description for screen readers has the values of the history.
    let said = browser.text("document.querySelector('#chart-reads .plot').getAttribute('aria-label')");
    assert!(said.starts_with("Keys read, newest: hits "), "{said}");
    browser.value("document.querySelector('#chart-reads .head button').click()");
    // A value without a neighbour is drawn as a dot, no tile's text is cut, all uses of memory have colours
    // of their own, and the sentence about memory leaves out none of them.
    let lone = browser.value("Charts.lone([null, 1, null, 2, 3, null, undefined, 4])");
    assert_eq!(lone, serde_json::json!([1, 7]));
    let cut = "[...document.querySelectorAll('.tile small')].filter(text => text.scrollWidth > text.clientWidth).map(text => text.textContent)";
    assert_eq!(browser.value(cut), serde_json::json!([]));
    let colours = "[...document.querySelectorAll('#memory-table .swatch')].map(box => getComputedStyle(box).backgroundColor)";
    let colours = browser.value(colours);
    let mut colours: Vec<&str> =
        colours.as_array().expect("colours").iter().filter_map(Value::as_str).collect();
    let uses = colours.len();
    colours.sort_unstable();
    colours.dedup();
    assert!(uses == colours.len() && uses > 10, "{colours:?}");
    let said = browser.text("document.getElementById('memory-words').textContent");
    let parts = said.split(" % is ").filter_map(|text| text.rsplit(' ').next()?.parse::<f64>().ok());
    let sum: f64 = parts.sum();
    assert!(said.contains(" % is threads and bookkeeping") && (sum - 100.0).abs() < 1.0, "{sum}: {said}");
    // No row of charts is incomplete.
    assert_eq!(browser.value("document.querySelectorAll('#charts figure').length"), 12);
    let table = browser.text("document.querySelector('#chart-reads table').textContent");
    assert!(table.contains("hits") && table.contains("/s"), "{table}");
    browser.picture("traffic");
    browser.is_quiet(&origin(&web), false);
}

#[test]
#[ignore = "browser: chromium"]
fn prefixes_are_shown_with_what_they_take() {
    let web = Web::start(&["-t", "2", "-m", "64"]);
    traffic(&web, 4);
    let mut browser = open(&web, 1280, 900);
    browser.wait("document.querySelectorAll('#prefixes-table td.key, #prefixes-table th.key').length >= 3");
    // The prefixes are page:, other: and user:. No request has come since, so the page and this test get the
    // same figures.
    let shown = rows(&mut browser, "prefixes-table");
    let told = data(&web, "prefixes");
    let prefixes = told["prefixes"].as_array().expect("prefixes");
    assert_eq!(prefixes.len(), 3, "{told}");
    for prefix in prefixes {
        let name = prefix["prefix"]["text"].as_str().expect("text");
        let row = shown.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("{name}: {shown:?}"));
        let percent = |text: &str| text.split(' ').next().and_then(|text| text.parse::<f64>().ok());
        let near = |text: &str, told: &Value| {
            let (shown, told) = (percent(text).expect("a number"), told.as_f64().expect("a number") * 100.0);
            (shown - told).abs() < 5.0
        };
        assert!(near(&row[1], &prefix["share"]) && row[1].contains(" % ± "), "{row:?}: {prefix}");
        assert!(near(&row[7], &prefix["hit_ratio"]), "{row:?}: {prefix}");
    }
    let of = |name: &str| shown.iter().find(|row| row[0] == name).expect("it is there");
    assert!(of("page:")[10].contains(" % ± ") && of("other:")[10] == "–", "{shown:?}");
    assert!(of("other:")[7].starts_with("0"), "{shown:?}");
    assert!(of("page:")[9] != "0 B" && of("other:")[9] == "0 B", "{shown:?}");
    let said = browser.text("document.getElementById('prefixes-words').textContent");
    assert!(said.starts_with("Of ") && said.contains(" keys asked for in "), "{said}");
    browser.value("document.getElementById('h-prefixes').scrollIntoView()");
    browser.picture("prefixes");
    browser.is_quiet(&origin(&web), false);
}

#[test]
#[ignore = "browser: chromium"]
fn what_is_there_is_shown_by_what_it_has_left_and_when_it_was_used() {
    let web = Web::start(&["-t", "1", "-m", "64"]);
    traffic(&web, 3);
    let mut browser = open(&web, 1280, 900);
    browser.wait("document.querySelectorAll('#left-table meter').length === 7 && document.querySelectorAll('#idle-table meter').length === 6");
    let percent =
        |text: &str| text.split(' ').next().and_then(|text| text.parse::<f64>().ok()).expect("a number");
    for (table, parts) in [("left-table", "left"), ("idle-table", "idle")] {
        let shown = rows(&mut browser, table);
        let told = data(&web, "ages");
        let parts = told[parts].as_array().expect("parts");
        assert_eq!(shown.len(), parts.len());
        let sum: f64 = shown.iter().map(|row| percent(&row[1])).sum();
        assert!((sum - 100.0).abs() < 5.0, "{shown:?}");
    }
    let shown = rows(&mut browser, "left-table");
    let names: Vec<&str> = shown.iter().map(|row| row[0].as_str()).collect();
    let expected =
        ["up to 10 s", "up to 1 min", "up to 10 min", "up to 1 h", "up to a day", "more than a day", "never"];
    assert_eq!(names, expected);
    // A third of the items set by text expires in half a minute, the rest never; those set by RESP expire in
    // a quarter of an hour.
    assert!(
        percent(&shown[1][1]) + percent(&shown[0][1]) > 20.0 && percent(&shown[6][1]) > 40.0,
        "{shown:?}"
    );
    let said = browser.text("document.getElementById('ages-words').textContent");
    assert!(said.starts_with("By ") && said.contains(" of the bytes were never read."), "{said}");
    browser.value("document.getElementById('h-ages').scrollIntoView()");
    browser.picture("ages");
    browser.is_quiet(&origin(&web), false);
}

#[test]
#[ignore = "browser: chromium"]
fn times_of_requests_are_drawn_in_three_parts() {
    let web = Web::start(&["-t", "1", "-m", "64"]);
    let mut browser = open(&web, 1280, 900);
    traffic(&web, 6);
    browser.wait("document.querySelectorAll('#latency-table tbody tr').length === 3 && document.getElementById('latency').getAttribute('aria-label').includes('service median')");
    let told = data(&web, "latency");
    let of = |stage: &str, name: &str| -> f64 {
        let all = told["stages"][stage][name].as_array().expect("numbers").iter();
        all.map(|ns| ns.as_f64().expect("a number")).fold(0.0, f64::max)
    };
    let ns = |text: &str| -> f64 {
        let (number, unit) = text.split_once(' ').unwrap_or_else(|| panic!("{text}"));
        let size = match unit {
            "ns" => 1.0,
            "µs" => 1e3,
            "ms" => 1e6,
            _ => 1e9,
        };
        number.replace(',', "").parse::<f64>().expect("a number") * size
    };
    for (row, stage) in rows(&mut browser, "latency-table").iter().zip(["queue", "service", "reply"]) {
        assert_eq!(row[0], stage);
        let (shown, worst) = (ns(&row[4]), of(stage, "p99_ns"));
        // The picture on the page may be some seconds old.
        assert!(shown > 0.0 && shown <= worst * 1.02 + 1.0 && ns(&row[2]) <= ns(&row[3]), "{row:?}: {worst}");
    }
    // The picture is drawn, and a keyboard moves through it.
    let painted = "(() => { const c = document.getElementById('latency'); const d = c.getContext('2d').getImageData(70, 0, c.width - 70, c.height - 24).data; let n = 0; for (let i = 3; i < d.length; i += 4) n += d[i] > 0; return n; })()";
    assert!(browser.value(painted).as_u64() > Some(200));
    browser.value("document.getElementById('latency').focus()");
    browser.press("ArrowLeft");
    browser.wait("/^\\d\\d:\\d\\d:\\d\\d/.test(document.getElementById('latency-seen').textContent)");
    browser.value("document.getElementById('latency-stage').value = 'reply'; document.getElementById('latency-stage').dispatchEvent(new Event('change'))");
    browser
        .wait("/reply: median|nothing was timed/.test(document.getElementById('latency-seen').textContent)");
    browser.press("Escape");
    browser.wait("document.getElementById('latency-seen').textContent.trim() === ''");
    browser.value("document.getElementById('latency-stage').value = 'service'; document.getElementById('latency-stage').dispatchEvent(new Event('change'))");
    browser.value("document.getElementById('h-latency').scrollIntoView()");
    browser.picture("latency");
    browser.is_quiet(&origin(&web), false);
}

#[test]
#[ignore = "browser: chromium"]
fn what_other_memory_limits_would_bring_is_drawn_once_it_is_known() {
    let web = Web::start(&["-t", "1", "-m", "16"]);
    let mut browser = open(&web, 1280, 900);
    browser.wait("document.getElementById('forecast').classList.contains('unready')");
    let said = browser.text("document.getElementById('forecast-words').textContent");
    assert!(said.starts_with("Not enough was seen yet: "), "{said}");
    assert_eq!(browser.value("document.querySelectorAll('#forecast .band').length"), 0);
    web.be_short();
    browser.wait("document.querySelectorAll('#forecast .band').length === 1 && !document.getElementById('forecast').classList.contains('unready')");
    // The picture, the table and the text show the server's figures.
    let told = data(&web, "forecast");
    assert_eq!(browser.value("document.querySelectorAll('#forecast .line').length"), 6);
    assert_eq!(browser.value("document.querySelectorAll('#forecast .now').length"), 1);
    let shown = rows(&mut browser, "forecast-table");
    let limits: Vec<&str> = shown.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(limits, ["4 MB", "8 MB", "12 MB", "16 MB", "24 MB", "32 MB", "64 MB"]);
    let points = told["points"].as_array().expect("points");
    for (row, point) in shown.iter().zip(points) {
        let percent = point["hit_ratio"].as_f64().expect("a number") * 100.0;
        let shown: f64 = row[2].split(' ').next().and_then(|text| text.parse().ok()).expect("a number");
        // The picture on the page may be some seconds old.
        assert!((shown - percent).abs() < 3.0, "{row:?}: {percent}");
    }
    let cut = "(() => { const all = document.getElementById('forecast').getBoundingClientRect(); return [...document.querySelectorAll('#forecast text')].filter(text => { const at = text.getBoundingClientRect(); return at.left < all.left || at.right > all.right; }).map(text => text.textContent); })()";
    assert_eq!(browser.value(cut), serde_json::json!([]), "no word of it is cut");
    let said = browser.text("document.getElementById('forecast-words').textContent");
    assert!(said.contains("twice as much (-m 32): ") && said.contains("misses a second fewer"), "{said}");
    let label = browser.text("document.getElementById('forecast').getAttribute('aria-label')");
    assert!(label.starts_with("Hit ratio by memory limit: 4 MB "), "{label}");
    browser.value("document.getElementById('h-forecast').scrollIntoView()");
    browser.picture("forecast");
    // Evicted items, by the time since they were last used.
    browser.wait("document.querySelectorAll('#evicted-table meter').length > 0");
    let evicted = rows(&mut browser, "evicted-table");
    let number =
        |text: &str| text.split(' ').next().and_then(|text| text.parse::<f64>().ok()).expect("a number");
    let sum: f64 = evicted.iter().map(|row| number(&row[1])).sum();
    assert!((sum - 100.0).abs() < 5.0 && evicted[0][0] == "up to 1 s", "{evicted:?}");
    browser.value("document.getElementById('h-ages').scrollIntoView()");
    browser.picture("evicted");
    browser.is_quiet(&origin(&web), false);
}

#[test]
#[ignore = "browser: chromium"]
fn keys_of_any_bytes_are_text() {
    let web = Web::start(&["-t", "1"]);
    let mut redis = web.redis();
    redis.ask("CONFIG SET slowlog-log-slower-than 0\r\n");
    let keys: &[&[u8]] = &[
        b"<img src=x onerror=alert(1)>",
        b"</td></table><script>document.title='taken'</script>",
        "\u{2028}\u{202e}\u{0}\u{1b}[31m".as_bytes(),
        b"\xff\xfe<b>",
        b"${7*7}{{7*7}}'\"`",
        b"__proto__",
    ];
    for key in keys {
        let mut bytes = format!("*3\r\n$3\r\nSET\r\n${}\r\n", key.len()).into_bytes();
        bytes.extend(*key);
        bytes.extend(b"\r\n$1\r\nv\r\n");
        assert_eq!(redis.ask_bytes(&bytes), "+OK\r\n");
    }
    assert_eq!(redis.ask("CLIENT SETNAME <svg/onload=alert(2)>\r\n"), "+OK\r\n");
    redis.ask("CONFIG SET slowlog-log-slower-than -1\r\n");
    let mut browser = open(&web, 1280, 900);
    browser.wait("document.querySelectorAll('#slow-table td.key').length >= 6");
    let shown: Vec<String> = rows(&mut browser, "slow-table").into_iter().map(|row| row[5].clone()).collect();
    for key in [
        "<img src=x onerror=alert(1)>",
        "</td></table><script>document.title='taken'</script>",
        "__proto__",
        "base64: //48Yj4=",
    ] {
        assert!(shown.iter().any(|one| one == key), "{key}: {shown:?}");
    }
    assert!(shown.iter().any(|one| one.contains("\\u0000\\u001b[31m")), "{shown:?}");
    browser.wait("document.querySelectorAll('#hot-table td.key, #hot-table th.key').length >= 6");
    let hot: Vec<String> = rows(&mut browser, "hot-table").into_iter().map(|row| row[0].clone()).collect();
    for key in &shown {
        assert!(key.is_empty() || hot.contains(key), "{key}: {hot:?}");
    }
    assert_eq!(
        browser.value(
            "document.querySelectorAll('main img, main script, main b b, main svg[onload], td b').length"
        ),
        0
    );
    assert!(browser.text("document.title").starts_with("Larder "));
    assert!(
        browser
            .text("document.getElementById('clients-table').textContent")
            .contains("<svg/onload=alert(2)>")
    );
    browser.value("document.getElementById('h-slow').scrollIntoView()");
    browser.picture("odd-keys");
    browser.is_quiet(&origin(&web), false);
}

#[test]
#[ignore = "browser: chromium"]
fn the_page_is_used_by_keyboard_and_everything_on_it_has_a_name() {
    let web = Web::start(&["-t", "1"]);
    traffic(&web, 3);
    let mut browser = open(&web, 1280, 900);
    browser.wait("document.querySelector('#tile-items strong').textContent !== '–'");
    // 1. Tab visits each element that can be used, once.
    let wanted = browser.value("document.querySelectorAll('a, button, select, summary, [tabindex=\"0\"]').length - document.querySelectorAll('details:not([open]) button, [hidden] summary').length");
    let wanted = wanted.as_u64().expect("a number");
    let mut seen = 0;
    for _ in 0..wanted {
        browser.press("Tab");
        seen += u64::from(browser.value("document.activeElement !== document.body && !document.activeElement.dataset.seen && (document.activeElement.dataset.seen = 1, true)") == true);
    }
    assert_eq!(seen, wanted);
    // 2. A range is chosen; the arrows move through a chart, and Escape leaves it.
    browser.value("document.querySelector('[data-step=\"15\"]').focus()");
    browser.press("Enter");
    assert_eq!(browser.text("document.querySelector('#ranges [aria-pressed=\"true\"]').textContent"), "1 h");
    browser.value("document.querySelector('[data-step=\"1\"]').focus()");
    browser.press("Enter");
    browser.wait("document.querySelector('#chart-reads .legend b').textContent !== '–'");
    browser.value("document.querySelector('#chart-reads .plot').focus()");
    browser.press("ArrowLeft");
    browser.wait("/^\\d\\d:\\d\\d:\\d\\d$/.test(document.querySelector('#chart-reads .head p').textContent)");
    let times = "[...document.querySelectorAll('figure .head p')].map(time => time.textContent)";
    let times = browser.value(&format!("new Set({times}).size"));
    assert_eq!(times, 1, "all charts move together, and stay there");
    browser.press("Escape");
    browser.wait("document.querySelector('#chart-reads .head p').textContent === ''");
    // 3. The map describes the block under its cursor.
    browser.value("document.getElementById('map').focus()");
    browser.press("ArrowRight");
    browser.wait("document.getElementById('map-seen').textContent.startsWith('block 1: ')");
    // 4. The heads of a table's columns sort it.
    browser.value("document.querySelector('#commands-table thead button').focus()");
    browser.press("Enter");
    assert_eq!(
        browser.text("document.querySelector('#commands-table th[aria-sort]').textContent"),
        "command"
    );
    // 5. Each element that can be used or is drawn has a name.
    let tree = browser.call("Accessibility.getFullAXTree", serde_json::json!({}));
    let mut count = 0;
    for node in tree["nodes"].as_array().expect("nodes") {
        let role = node["role"]["value"].as_str().unwrap_or_default();
        if node["ignored"] == true
            || !["button", "link", "combobox", "image", "img", "table", "DisclosureTriangle"].contains(&role)
        {
            continue;
        }
        count += 1;
        assert!(node["name"]["value"].as_str().is_some_and(|name| !name.trim().is_empty()), "{node}");
    }
    assert!(count > 40, "{count}");
    browser.is_quiet(&origin(&web), false);
}

/// Holds back the reply to the page's next request for a path that begins with `path`, until the page calls
/// `window.release()`. `window.emptied` is set if the chart of reads showed no value meanwhile.
fn hold(browser: &mut Browser, path: &str) {
    browser.value(&format!(
        r#"(() => {{
  const ask = window.fetch;
  const legend = document.querySelector('#chart-reads .legend b');
  window.emptied = false;
  window.held = false;
  new MutationObserver(() => {{ window.emptied ||= legend.textContent === '–'; }})
    .observe(legend, {{ childList: true, characterData: true, subtree: true }});
  window.fetch = async (...what) => {{
    if (window.held || !new URL(what[0]).pathname.startsWith('{path}')) return ask(...what);
    const answer = await ask(...what);
    window.held = true;
    await new Promise(go => {{ window.release = go; }});
    window.fetch = ask;
    return answer;
  }};
}})()"#
    ));
    browser.wait("window.held");
}

#[test]
#[ignore = "browser: chromium"]
fn a_range_that_is_chosen_while_answers_are_on_their_way_is_shown_whole() {
    let web = Web::start(&["-t", "1"]);
    traffic(&web, 3);
    let mut browser = open(&web, 1280, 900);
    for path in ["/api/v1/history", "/api/v1/now"] {
        browser.wait("document.querySelector('#chart-reads .legend b').textContent !== '–'");
        hold(&mut browser, path);
        browser.value("document.querySelector('[data-step=\"15\"]').click()");
        browser.value("document.querySelector('[data-step=\"1\"]').click()");
        browser.value("document.querySelector('#chart-reads .plot').focus()");
        browser.value("window.release()");
        // The known values stay until those of the chosen range have come. A late reply for the earlier range
        // does not start the new one.
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(browser.value("window.emptied"), false, "{path}");
        let points = data(&web, "history?step=1")["end_ms"].as_array().expect("times").len();
        browser.press("Home");
        for _ in 0..points - 3 {
            browser.press("ArrowRight");
        }
        assert_ne!(browser.text("document.querySelector('#chart-reads .head p').textContent"), "", "{path}");
        browser.press("Escape");
    }
    browser.is_quiet(&origin(&web), false);
}

/// Lists the text on the page with too low a contrast: the ratio of its colour's light to that of its
/// background.
const CONTRAST: &str = r#"(() => {
  const parse = text => { const n = text.match(/[\d.]+/g).map(Number); return n.length === 3 ? [...n, 1] : n; };
  const over = (top, under) => top.slice(0, 3).map((c, i) => c * top[3] + under[i] * (1 - top[3]));
  const light = c => { const [r, g, b] = c.map(v => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = node => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const under = behind(node), text = over(parse(style.color), under);
    const [a, b] = [light(text), light(under)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${walker.currentNode.textContent.trim()}: ${ratio.toFixed(2)}`);
  }
  for (const mark of document.querySelectorAll('.legend i')) {
    const under = behind(mark.parentElement), line = parse(getComputedStyle(mark).borderTopColor);
    const [a, b] = [light(line.slice(0, 3)), light(under)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 3) bad.push(`line ${mark.className}: ${ratio.toFixed(2)}`);
  }
  return [...new Set(bad)];
})()"#;

#[test]
#[ignore = "browser: chromium"]
fn it_is_read_in_both_themes_in_360_pixels_and_in_the_systems_colours() {
    let web = Web::start(&["-t", "1", "-c", "20"]);
    traffic(&web, 4);
    // With these connections the page shows a warning, too.
    let mut talks: Vec<_> = (0..17).map(|_| web.text()).collect();
    talks.iter_mut().for_each(|talk| assert_eq!(talk.ask("mn\r\n"), "MN\r\n"));
    let mut browser = open(&web, 1280, 900);
    browser.wait("document.getElementById('verdict').className === 'warning'");
    for theme in ["light", "dark"] {
        browser.prefer(&[("prefers-color-scheme", theme)]);
        let other = if theme == "light" { "dark" } else { "light" };
        browser.wait(&format!("document.getElementById('theme').textContent === '{other}'"));
        assert_eq!(browser.value(CONTRAST), serde_json::json!([]), "{theme}");
        browser.picture(theme);
    }
    // The theme that was chosen by the button is kept, whatever the system prefers.
    browser.value("document.getElementById('theme').click()");
    browser.open(&origin(&web));
    browser.wait("document.documentElement.dataset.theme === 'light'");
    browser.resize(360, 740);
    browser.wait("document.querySelectorAll('#options-table tbody tr').length > 0");
    browser.wait("document.querySelector('#chart-reads canvas').clientWidth < 340");
    assert_eq!(browser.value("document.documentElement.scrollWidth"), 360, "nothing is wider than the page");
    browser.picture("narrow");
    browser.prefer(&[("forced-colors", "active"), ("prefers-reduced-motion", "reduce")]);
    browser.resize(1280, 900);
    browser.wait("document.querySelector('#chart-reads canvas').clientWidth > 340");
    assert_eq!(browser.value("document.getAnimations().length"), 0);
    browser.picture("forced-colours");
    browser.is_quiet(&origin(&web), false);
    drop(talks);
}

#[test]
#[ignore = "browser: chromium"]
fn a_server_that_goes_is_said_to_be_gone_and_another_begins_anew() {
    let web = Web::start(&["-t", "1"]);
    traffic(&web, 3);
    let mut browser = open(&web, 1280, 900);
    browser.wait("document.querySelector('#tile-items strong').textContent !== '0'");
    let (port, origin) = (web.port.to_string(), origin(&web));
    drop(web);
    browser.wait("document.getElementById('verdict').className === 'gone'");
    assert!(browser.text("document.getElementById('verdict').textContent").contains("has not answered"));
    browser.picture("gone");
    let again = Web::start_at(&port, &["-t", "1"]);
    browser.wait("document.getElementById('verdict').className === 'good'");
    browser.wait("document.querySelector('#tile-items strong').textContent === '0'");
    assert!(
        browser.text("document.getElementById('marks').textContent").contains("the server was started anew")
    );
    browser.wait("!document.body.classList.contains('stale')");
    browser.is_quiet(&origin, true);
    drop(again);
}
