//! The page around the pictures.

use std::fmt::Write;

use super::chart;
use super::svg::escape;
use crate::results::histogram::{QUANTILES, quantile_us};
use crate::results::{
    ABSENT, Axis, Column, Kind, Plot, Point, Run, Scale, Settings, Shown, Table, environment, number, of_time,
};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// The page may load nothing.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// The whole page.
// Writing into a string cannot fail, so the results of `write!` are dropped.
pub fn html(run: &Run) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body{class}>\n<header>\n\
         <button id=\"theme\" type=\"button\" hidden>theme</button>\n<h1>{title}</h1>\n{verdict}\n\
         <p class=\"where\">{machine}<br>{started}, {elapsed:.0} s, larder {lab}</p>\n\
         <pre class=\"command\">{command}</pre>\n</header>\n<main>\n",
        title = escape(&run.title),
        class = if run.failed().next().is_some() { " class=\"not-valid\"" } else { "" },
        verdict = verdict(run),
        machine = escape(&run.environment.line()),
        started = escape(&run.started),
        elapsed = run.elapsed_s,
        lab = escape(&run.lab),
        command = escape(&environment::quoted(&run.command)),
    );
    page.push_str("<section class=\"plots\">\n");
    let (percentiles, left_out) = percentiles(run);
    let open = if percentiles.len() > PERCENTILES_OPEN_MAX { 0 } else { percentiles.len() };
    for plot in run.plots.iter().chain(&percentiles[..open]) {
        page.push_str(&chart::figure(run, plot));
    }
    page.push_str("</section>\n");
    if open < percentiles.len() {
        let figures: String = percentiles.iter().map(|plot| chart::figure(run, plot)).collect();
        let more = if left_out > 0 { format!(", {left_out} more in --json") } else { String::new() };
        let summary = format!("Raw latencies, {} pictures{more}", percentiles.len());
        page.push_str(&folded(&summary, &format!("<div class=\"plots\">\n{figures}</div>\n")));
    }
    page.push_str("<section>\n<h2>Figures</h2>\n");
    if !run.notes.is_empty() {
        let items: String = run.notes.iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
        let _ = writeln!(page, "<ul class=\"notes\">{items}</ul>");
    }
    run.tables.iter().for_each(|table| page.push_str(&figures(table)));
    page.push_str(&comparisons(run));
    page.push_str(&latencies(run));
    page.push_str("</section>\n<section>\n<h2>What had to hold</h2>\n");
    page.push_str(&checks(run));
    page.push_str(&ceilings(run));
    page.push_str("</section>\n<section>\n<h2>What was run</h2>\n");
    page.push_str(&settings("Settings of the experiment", &run.settings));
    page.push_str(&targets(run));
    let _ = write!(
        page,
        "</section>\n</main>\n<div id=\"tip\" hidden></div>\n\
         <script type=\"application/json\" id=\"plots\">{}</script>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        // Inside a script element nothing but its end tag is markup.
        serde_json::to_string(&run.plots.iter().chain(&percentiles).collect::<Vec<_>>())
            .unwrap_or_else(|_| "[]".to_owned())
            .replace("</", "<\\/")
    );
    page
}

/// The verdict. For a run that is not valid, the reasons: each with what to do, and a link to its place among the checks.
fn verdict(run: &Run) -> String {
    if run.failed().next().is_none() {
        return format!("<p class=\"verdict\">{}</p>", escape(&run.verdict));
    }
    let reasons = run.checks.iter().enumerate().filter(|(_, check)| !check.passed).map(|(at, check)| {
        format!(
            "<li><a href=\"#{}\">{}</a>: {}<br><small>{}</small></li>\n",
            anchor(at),
            escape(&check.claim),
            escape(&check.found),
            escape(of_time::remedy(&check.claim))
        )
    });
    format!(
        "<div class=\"verdict bad\">Result not valid: what is below is no result.\n<ul>\n{}</ul></div>",
        reasons.collect::<String>()
    )
}

/// The place of a check on the page.
fn anchor(check: usize) -> String {
    format!("check-{check}")
}

/// Number of latency pictures that are shown at once; further ones are folded.
const PERCENTILES_OPEN_MAX: usize = 4;
/// Most percentile tables on a page.
const PERCENTILES_MAX: usize = 24;
/// Lines of a table of ratios or latencies that is not folded.
const LINES_OPEN_MAX: usize = 40;

fn folded(summary: &str, content: &str) -> String {
    format!("<details><summary>{}</summary>\n{content}</details>\n", escape(summary))
}

/// A picture of the raw latencies for each kind of request: latency against the share of requests that took longer; the first
/// [`PERCENTILES_MAX`], and how many there are beyond.
fn percentiles(run: &Run) -> (Vec<Plot>, usize) {
    let mut plots: Vec<Plot> = Vec::new();
    let mut left_out: Vec<String> = Vec::new();
    for latency in &run.histograms {
        let Ok(histogram) = latency.histogram() else { continue };
        if histogram.is_empty() {
            continue;
        }
        let title = format!("Latency of {}, {}", latency.what, latency.clock);
        let plot = match plots.iter_mut().position(|plot| plot.title == title) {
            Some(at) => &mut plots[at],
            None if plots.len() == PERCENTILES_MAX => {
                if !left_out.contains(&title) {
                    left_out.push(title);
                }
                continue;
            }
            None => {
                let mut plot = Plot::new(&format!("percentiles-{}", plots.len()), &title, Kind::Lines);
                plot.x = Axis::new("slower are one request in", "", Scale::Log);
                plot.y = Axis::new("latency", "µs", Scale::Log);
                plot.caption = "10 is the 90th percentile, 100 the 99th, 1000 the 99.9th.".to_owned();
                plots.push(plot);
                plots.last_mut().expect("one was added")
            }
        };
        // As many points as the number of values can tell apart.
        let steps = (12.0 * (histogram.len() as f64).log10()).floor().max(1.0) as i32;
        plot.curve(
            &latency.target,
            (1..=steps).map(|step| {
                let one_in = 10f64.powf(f64::from(step) / 12.0);
                let ns = histogram.value_at_quantile(1.0 - 1.0 / one_in);
                Point::new(one_in, ns as f64 / 1e3)
            }),
        );
    }
    (plots, left_out.len())
}

fn figures(table: &Table) -> String {
    let mut out = String::from("<div class=\"wide figures\"><table>\n<thead><tr><th>server</th>");
    for label in &table.labels {
        let _ = write!(out, "<th>{}</th>", escape(label));
    }
    let filled = table.filled();
    for &at in &filled {
        let _ = write!(out, "<th class=\"number\">{}</th>", escape(&Column::heading(&table.columns[at])));
    }
    let notes = table.rows.iter().any(|row| !row.note.is_empty());
    out.push_str(if notes { "<th></th></tr></thead>\n<tbody>\n" } else { "</tr></thead>\n<tbody>\n" });
    for row in &table.rows {
        let _ = write!(out, "<tr><td class=\"label\">{}</td>", escape(&row.target));
        for label in &row.labels {
            let _ = write!(out, "<td class=\"label\">{}</td>", escape(label));
        }
        for &at in &filled {
            let Some(value) = &row.values[at] else {
                let _ = write!(out, "<td class=\"number\" title=\"{}\">{ABSENT}</td>", escape(&table.absent));
                continue;
            };
            let ends = match value.interval {
                Some([low, high]) if low != high => {
                    format!("<small>{} … {}</small>", number::text(low), number::text(high))
                }
                _ => String::new(),
            };
            let _ = write!(out, "<td class=\"number\">{}{ends}</td>", number::text(value.median));
        }
        if notes {
            let _ = write!(out, "<td class=\"note\">{}</td>", escape(&row.note));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>\n");
    if let Some(legend) = table.legend() {
        let _ = writeln!(out, "<p class=\"notes\">{}</p>", escape(&legend));
    }
    match table.shown {
        Shown::Folded => folded(&format!("{} ({})", table.title, table.rows.len()), &out),
        Shown::Everywhere | Shown::Digest => format!("<h3>{}</h3>\n{out}", escape(&table.title)),
    }
}

fn comparisons(run: &Run) -> String {
    if run.comparisons.is_empty() {
        return String::new();
    }
    let rows = run.comparisons.iter().map(|comparison| {
        let [median, interval] = comparison.figures();
        vec![comparison.claim.clone(), median, interval, comparison.said()]
    });
    of_figures("Ratios within rounds", &["ratio", "median", "95 % interval", ""], rows)
}

fn latencies(run: &Run) -> String {
    let rows: Vec<Vec<String>> = run
        .histograms
        .iter()
        .filter_map(|latency| {
            let histogram = latency.histogram().ok()?;
            let mut row = vec![latency.target.clone(), latency.what.clone(), latency.clock.clone()];
            row.push(number::text(latency.count as f64));
            let at = |quantile| quantile_us(&histogram, quantile).map_or(ABSENT.to_owned(), number::text);
            row.extend(QUANTILES.map(|(_, quantile)| at(quantile)));
            Some(row)
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut header = vec!["server", "requests", "clock", "count"];
    header.extend(QUANTILES.map(|(name, _)| name));
    of_figures("Latencies over all rounds, µs", &header, rows.into_iter())
}

fn checks(run: &Run) -> String {
    let rows = run.checks.iter().map(|check| {
        let outcome = if check.passed { "held" } else { "FAILED" };
        vec![outcome.to_owned(), check.claim.clone(), check.found.clone()]
    });
    // A failed check is no figure: it is the reason why figures are pale.
    table_of_words("Checks", &["", "claim", "found"], "wide", rows, |at| Some(anchor(at)))
}

fn ceilings(run: &Run) -> String {
    if run.ceilings.is_empty() {
        return String::new();
    }
    let rows = run.ceilings.iter().map(|ceiling| {
        let busy = format!("{:.0} %", 100.0 * ceiling.busy);
        vec![ceiling.load.clone(), number::text(ceiling.per_s.round()), busy]
    });
    of_figures("The generator alone, against a null server", &["load", "requests/s", "its cores busy"], rows)
}

fn targets(run: &Run) -> String {
    let mut out = String::new();
    for target in &run.targets {
        let _ = write!(
            out,
            "<h3>{} {}</h3>\n<p>{} at {}</p>\n",
            escape(&target.name),
            escape(&target.version),
            escape(&target.protocol),
            escape(&target.address)
        );
        if let Some(command) = &target.command {
            let _ = writeln!(out, "<pre>{}</pre>", escape(command));
        }
        for note in &target.notes {
            let _ = writeln!(out, "<p>{}</p>", escape(note));
        }
        out.push_str(&settings("Settings in effect", &target.settings));
    }
    out
}

fn settings(title: &str, settings: &Settings) -> String {
    if settings.is_empty() {
        return String::new();
    }
    let rows: String = settings
        .iter()
        .map(|(name, value)| format!("<tr><td>{}</td><td>{}</td></tr>\n", escape(name), escape(value)))
        .collect();
    format!(
        "<details><summary>{}</summary><div class=\"wide\"><table><tbody>\n{rows}</tbody></table></div></details>\n",
        escape(title)
    )
}

/// A table of figures, as words have them.
fn of_figures(title: &str, header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    table_of_words(title, header, "wide figures", rows, |_| None)
}

/// A table of texts, with names for some of its rows, which links lead to.
fn table_of_words(
    title: &str,
    header: &[&str],
    class: &str,
    rows: impl Iterator<Item = Vec<String>>,
    name: impl Fn(usize) -> Option<String>,
) -> String {
    let cells = |tag: &str, words: &[String]| -> String {
        words.iter().map(|word| format!("<{tag}>{}</{tag}>", escape(word))).collect()
    };
    let named = |at: usize| name(at).map_or(String::new(), |name| format!(" id=\"{name}\""));
    let header: Vec<String> = header.iter().map(|&word| word.to_owned()).collect();
    let body: Vec<String> =
        rows.enumerate().map(|(at, row)| format!("<tr{}>{}</tr>\n", named(at), cells("td", &row))).collect();
    let table = format!(
        "<div class=\"{class}\"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody></table></div>\n",
        cells("th", &header),
        body.concat()
    );
    match body.len() > LINES_OPEN_MAX {
        true => folded(&format!("{title} ({})", body.len()), &table),
        false => format!("<h3>{}</h3>\n{table}", escape(title)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_servers_say_is_text_and_not_markup() {
        let mut run = crate::results::tests::sample();
        run.targets[0].version = "<script>alert(1)</script>".to_owned();
        run.plots[0].curve("</script><b>", [Point::new(2.0, 1.0)]);
        let page = html(&run);
        assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;alert(1)"));
        assert_eq!(page.matches("</script>").count(), 2, "only our own two");
    }

    #[test]
    fn every_picture_and_figure_is_on_the_page() {
        let run = crate::results::tests::sample();
        let page = html(&run);
        assert_eq!(page.matches("<figure").count(), run.plots.len() + 1, "and one of the histogram");
        assert!(page.contains("<p class=\"notes\">without p99: not measured"), "{page}");
        for said in ["goodput, 1/s", "90 … 110", "12 = 12", "GET × 200", "12,000,000", "It works."] {
            assert!(page.contains(said), "{said:?}");
        }
        assert!(!page.contains("http://") && !page.contains("https://"), "a page without the network");
    }

    #[test]
    fn a_run_that_is_not_valid_says_so_first_and_links_to_what_failed() {
        let mut run = crate::results::tests::sample();
        assert!(!html(&run).contains("<body class"));
        run.check("nothing was <lost>", Err("2 were".to_owned()));
        run.check("all were found", Ok("2 were".to_owned()));
        let page = html(&run);
        let banner = page.find("Result not valid").expect("the banner");
        assert!(banner < page.find("class=\"plots\"").unwrap() && !page.contains("It works."));
        let link = "<a href=\"#check-1\">nothing was &lt;lost&gt;</a>: 2 were<br><small>no other machine";
        assert!(
            page[banner..].contains(link) && page.matches("<tr id=\"check-1\"><td>FAILED</td>").count() == 1
        );
        assert!(!page.contains("<a href=\"#check-2\">"), "a check that held is no reason");
        // Figures and pictures are drawn pale, and the reasons are not.
        assert!(page.contains("<body class=\"not-valid\">"));
        assert!(STYLE.contains(".not-valid figure, .not-valid .figures {"));
        let class = |title: &str| {
            let (_, behind) = page.split_once(&format!("<h3>{title}</h3>\n<div class=\"")).expect(title);
            behind.split('"').next().expect("a class").to_owned()
        };
        assert_eq!((class("Checks"), class("Ratios within rounds")), ("wide".into(), "wide figures".into()));
    }
}
