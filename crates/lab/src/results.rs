//! The results of an experiment as data: everything that is printed, drawn or compared comes from here.
//!
//! ```text
//! Run ─┬─ command, environment, settings, targets     what was run, on what
//!      ├─ checks                                      what must hold, else there is no result
//!      ├─ ceilings                                    what the generator alone reaches
//!      ├─ tables ── rows ── estimates                 medians over rounds, with intervals
//!      ├─ comparisons                                 ratios, with what is noise called so
//!      ├─ plots ── curves ── points                   series over time or over a sweep
//!      ├─ histograms                                  raw latencies, HdrHistogram's own format
//!      └─ verdict                                     one sentence
//! ```
//!
//! | form | made by |
//! |---|---|
//! | text for a terminal | [`mod@terminal`] |
//! | one page of HTML | [`crate::report`] |
//! | JSON, read back by [`mod@compare`] | [`Run::json`], [`Run::read_json`] |
//!
//! Numbers are never formatted before they get here, and units stand beside them.

pub mod compare;
pub mod environment;
pub mod estimate;
pub mod file;
pub mod histogram;
pub mod number;
pub mod of_time;
pub mod plot;
pub mod table;
pub mod terminal;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::contender::Contender;
use crate::control::Family;
use crate::error::Error;
pub use environment::Environment;
pub use estimate::Estimate;
pub use file::ResultFile;
pub use histogram::Latency;
pub use plot::{Axis, Curve, Dash, Kind, Plot, Point, Scale};
pub use table::{ABSENT, Better, Column, Row, Shown, Table};

/// Version of the JSON form. A newer version than this is refused.
pub const FORMAT: u32 = 2;

/// Settings by name.
pub type Settings = BTreeMap<String, String>;

/// A run of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of the lab.
    pub lab: String,
    /// The experiment's name, as on the command line.
    pub experiment: String,
    /// The experiment's question, in a line.
    pub title: String,
    /// The words of its command.
    pub command: Vec<String>,
    /// The time of its beginning, RFC 3339, UTC.
    pub started: String,
    /// Its duration.
    pub elapsed_s: f64,
    /// The machine.
    pub environment: Environment,
    /// Settings of the experiment, defaults included.
    pub settings: Settings,
    /// Servers that were measured.
    pub targets: Vec<Target>,
    /// The checks.
    pub checks: Vec<Checked>,
    /// The rates of the generator when the server does almost nothing.
    pub ceilings: Vec<Ceiling>,
    /// The results.
    pub tables: Vec<Table>,
    /// Ratios that the experiment is about.
    pub comparisons: Vec<Comparison>,
    /// Pictures of the results, and series over time.
    pub plots: Vec<Plot>,
    /// Raw latencies.
    pub histograms: Vec<Latency>,
    /// Remarks that a reader should know.
    pub notes: Vec<String>,
    /// The result in a sentence.
    pub verdict: String,
}

/// A server that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Its name in tables.
    pub name: String,
    /// Its protocol's scheme: memcached, redis.
    pub protocol: String,
    /// The version that it reports.
    pub version: String,
    /// The address at which it listened.
    pub address: String,
    /// The command that started it; `None` for a server that was running.
    pub command: Option<String>,
    /// Settings in effect, as the server reports them.
    pub settings: Settings,
    /// Remarks on it, such as threads that did nothing.
    pub notes: Vec<String>,
}

impl Target {
    /// A server that takes part.
    pub fn of(contender: &Contender) -> Target {
        let protocol = match contender.control.family {
            Family::Redis => "redis",
            Family::Memcached => "memcached",
        };
        Target {
            name: contender.name.clone(),
            protocol: protocol.to_owned(),
            version: contender.version.clone(),
            address: contender.address().to_string(),
            command: contender.is_ours().then(|| contender.command.clone()),
            settings: contender.settings.iter().cloned().collect(),
            notes: contender
                .unseen
                .iter()
                .map(|why| format!("no CPU time or memory of it is shown: {why}"))
                .collect(),
        }
    }
}

/// A check of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    /// The claim: "the server counted as many gets as the generator".
    pub claim: String,
    /// Whether it passed; files of results call it `held`.
    #[serde(rename = "held")]
    pub passed: bool,
    /// The numbers; if the check failed, why.
    pub found: String,
}

/// The generator's own limit for a kind of load, from a null server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// The load.
    pub load: String,
    /// Requests a second that the generator sent and checked.
    pub per_s: f64,
    /// Share of the time that its threads were running.
    pub busy: f64,
}

/// A ratio of two targets in the same rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The two sides: "larder / memcached, goodput, 10 clients".
    pub claim: String,
    /// The ratio; `None` if it cannot be formed.
    pub ratio: Option<Estimate>,
    /// Which way is better for the first side.
    #[serde(default)]
    pub better: Better,
    /// Whether both sides are the same server, measured twice, which shows the noise.
    pub control: bool,
    /// Whether the difference is more than noise.
    pub outcome: Outcome,
    /// Why no difference is shown, if not because of the noise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

impl Comparison {
    /// The ratio of a server to itself.
    pub fn control(claim: String, better: Better, ratio: Estimate) -> Comparison {
        let outcome = Outcome::between(&ratio, [1.0, 1.0]);
        Comparison { claim, ratio: Some(ratio), better, control: true, outcome, why: String::new() }
    }

    /// Two servers, compared with the noise of `controls`, each of which is `None` if it has no ratio.
    pub fn compared(
        claim: String,
        better: Better,
        ratio: Estimate,
        controls: &[Option<Estimate>],
    ) -> Comparison {
        let outcomes = controls.iter().map(|control| Outcome::of(&ratio, control.as_ref()));
        let outcome = outcomes.min_by_key(|outcome| *outcome == Outcome::Differs);
        let outcome = outcome.unwrap_or_else(|| Outcome::of(&ratio, None));
        let known = controls.iter().all(|control| Outcome::noise(control.as_ref()).is_some());
        let why = match outcome {
            Outcome::Noise if !known || controls.is_empty() => {
                "how much the server differs from itself is not known".to_owned()
            }
            Outcome::Noise | Outcome::Differs | Outcome::Unknown => String::new(),
        };
        Comparison { claim, ratio: Some(ratio), better, control: false, outcome, why }
    }

    /// The outcome in a word or two.
    pub fn word(&self) -> &'static str {
        let Some(ratio) = &self.ratio else { return Outcome::Noise.word() };
        if self.control {
            return "noise: one server, measured twice";
        }
        match (self.outcome, self.better) {
            (outcome @ (Outcome::Noise | Outcome::Unknown), _) | (outcome, Better::Neither) => outcome.word(),
            (Outcome::Differs, Better::Higher) if ratio.median > 1.0 => "ahead",
            (Outcome::Differs, Better::Lower) if ratio.median < 1.0 => "ahead",
            (Outcome::Differs, Better::Higher | Better::Lower) => "behind",
        }
    }

    /// The outcome with its reason, as tables print it.
    pub fn said(&self) -> String {
        if self.why.is_empty() { self.word().to_owned() } else { format!("{}: {}", self.word(), self.why) }
    }

    /// The median of the ratio, and its interval, as tables print them.
    pub fn figures(&self) -> [String; 2] {
        let ratio = self.ratio.as_ref();
        let interval = ratio.and_then(|ratio| ratio.interval);
        [
            ratio.map_or(ABSENT.to_owned(), |ratio| number::ratio(ratio.median)),
            interval.map_or(ABSENT.to_owned(), |[low, high]| {
                format!("{} … {}", number::ratio(low), number::ratio(high))
            }),
        ]
    }

    /// The claim with its ratio, or with the reason why there is none.
    fn figure(&self) -> String {
        let Some(ratio) = &self.ratio else { return format!("{} ({})", self.claim, self.why) };
        let ends = match ratio.interval {
            Some([low, high]) => format!(" ({} … {})", number::ratio(low), number::ratio(high)),
            None => String::new(),
        };
        format!("{} {}{ends}", self.claim, number::ratio(ratio.median))
    }
}

/// Comparisons in a verdict's sentence; further ones are counted.
const JUDGED_MAX: usize = 6;

/// A sentence for each group of comparisons: where the first server is ahead, where it is behind, and where no difference is
/// shown. Empty without comparisons.
pub fn judged(comparisons: &[Comparison]) -> String {
    let between: Vec<&Comparison> = comparisons.iter().filter(|comparison| !comparison.control).collect();
    if between.is_empty() {
        return String::new();
    }
    if between.iter().all(|comparison| comparison.outcome == Outcome::Unknown) {
        return format!("No comparison is shown: it takes {} rounds.", estimate::ROUNDS_MIN);
    }
    let group = |(word, title): (&str, &str)| {
        let all: Vec<String> = between
            .iter()
            .filter(|comparison| comparison.word() == word)
            .map(|comparison| comparison.figure())
            .collect();
        let more = match all.len().saturating_sub(JUDGED_MAX) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        (!all.is_empty()).then(|| format!("{title}: {}{more}.", all[..all.len().min(JUDGED_MAX)].join("; ")))
    };
    let groups = [
        ("ahead", "Ahead"),
        ("behind", "Behind"),
        ("differs", "Different"),
        ("not shown", "Not shown"),
        ("too few rounds", "Of too few rounds"),
    ];
    groups.into_iter().filter_map(group).collect::<Vec<_>>().join(" ")
}

/// The outcome of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// More than the noise.
    Differs,
    /// Within the noise: no difference is shown.
    Noise,
    /// There were too few rounds.
    Unknown,
}

impl Outcome {
    /// A ratio is a difference when its interval contains neither 1 nor any value of the control, which is the same thing
    /// measured twice. If the control is missing or has no interval, the noise is unknown: then there is no difference.
    pub fn of(ratio: &Estimate, control: Option<&Estimate>) -> Outcome {
        match (ratio.interval, Outcome::noise(control)) {
            (None, _) => Outcome::Unknown,
            (Some(_), None) => Outcome::Noise,
            (Some(_), Some(noise)) => Outcome::between(ratio, noise),
        }
    }

    /// The range of a control's values.
    fn noise(control: Option<&Estimate>) -> Option<[f64; 2]> {
        control.and_then(|control| control.interval)
    }

    fn between(ratio: &Estimate, noise: [f64; 2]) -> Outcome {
        let Some([low, high]) = ratio.interval else { return Outcome::Unknown };
        if low > noise[1].max(1.0) || high < noise[0].min(1.0) { Outcome::Differs } else { Outcome::Noise }
    }

    /// The outcome as tables print it.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Differs => "differs",
            Outcome::Noise => "not shown",
            Outcome::Unknown => "too few rounds",
        }
    }
}

/// Where results go beside the terminal.
#[derive(Clone, Debug, Default, Args)]
pub struct Output {
    /// Write everything as JSON: settings, rows, series, raw histograms
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write one page of HTML with pictures, tables and checks, which needs no network
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write over files that are there already
    #[arg(long)]
    pub force: bool,
}

/// The files of [`Output`], open.
#[derive(Debug, Default)]
pub struct Files {
    json: Option<ResultFile>,
    report: Option<ResultFile>,
}

impl Output {
    /// Opens the files before the run. Their contents stay as they are.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn open(&self) -> Result<Files, Error> {
        Ok(self.open_with([])?.0)
    }

    /// As [`Output::open`], with further files.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn open_with<const N: usize>(
        &self,
        others: [Option<&Path>; N],
    ) -> Result<(Files, [Option<ResultFile>; N]), Error> {
        let usual = [self.json.as_deref(), self.report.as_deref()];
        let mut all = ResultFile::open_all(self.force, usual.into_iter().chain(others))?.into_iter();
        let mut next = || all.next().flatten();
        let (json, report) = (next(), next());
        Ok((Files { json, report }, others.map(|_| next())))
    }
}

/// Prints on stdout. If stdout is closed or full, a line on stderr says so; files and exit code stay the same.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        complain(&format!("stdout: {error}"));
    }
}

impl Run {
    /// A run of `experiment` that begins now. Its command is this process's.
    pub fn new(experiment: &str, title: &str) -> Run {
        Run {
            format: FORMAT,
            lab: env!("CARGO_PKG_VERSION").to_owned(),
            experiment: experiment.to_owned(),
            title: title.to_owned(),
            command: environment::command(),
            started: environment::rfc3339(SystemTime::now()),
            elapsed_s: 0.0,
            environment: Environment::of_this_machine(),
            settings: Settings::new(),
            targets: Vec::new(),
            checks: Vec::new(),
            ceilings: Vec::new(),
            tables: Vec::new(),
            comparisons: Vec::new(),
            plots: Vec::new(),
            histograms: Vec::new(),
            notes: Vec::new(),
            verdict: String::new(),
        }
    }

    /// Records a setting of the experiment.
    pub fn set(&mut self, name: &str, value: impl ToString) {
        self.settings.insert(name.to_owned(), value.to_string());
    }

    /// Records whether a claim passed: `Ok` has the numbers, `Err` the reason.
    pub fn check(&mut self, claim: impl Into<String>, outcome: Result<String, String>) {
        let (passed, found) = match outcome {
            Ok(found) => (true, found),
            Err(why) => (false, why),
        };
        self.checks.push(Checked { claim: claim.into(), passed, found });
    }

    /// Checks that did not hold.
    pub fn failed(&self) -> impl Iterator<Item = &Checked> {
        self.checks.iter().filter(|check| !check.passed)
    }

    /// Checks that did not hold and are not [`of_time`].
    pub fn failed_at_any_time(&self) -> impl Iterator<Item = &Checked> {
        self.failed().filter(|check| !of_time::ALL.contains(&check.claim.as_str()))
    }

    /// The error in a run that no experiment can have written: the file was changed.
    fn unsound(&self) -> Option<String> {
        if self.checks.is_empty() && !self.tables.is_empty() {
            return Some("nothing was checked".to_owned());
        }
        let figures = |table: &Table| {
            let row = table.rows.iter().find(|row| {
                row.labels.len() != table.labels.len()
                    || row.values.len() != table.columns.len()
                    || !row.values.iter().flatten().all(Estimate::is_of_its_rounds)
            })?;
            Some(format!("table {}: figures of {} are not what their rounds make them", table.id, row.target))
        };
        let claims = |comparison: &Comparison| {
            let claim = &comparison.claim;
            let sound = comparison.ratio.as_ref().is_none_or(Estimate::is_of_its_rounds);
            (!sound).then(|| format!("{claim}: not what its rounds make it"))
        };
        let figures = self.tables.iter().find_map(figures);
        let found = figures.or_else(|| self.comparisons.iter().find_map(claims));
        found.or_else(|| self.histograms.iter().find_map(|latency| latency.histogram().err()))
    }

    /// Reads a run from the form of [`Run::json`].
    ///
    /// # Errors
    /// When the file cannot be read, is of another form, or its figures are not what its rounds make them.
    pub fn read_json(path: &Path) -> Result<Run, Error> {
        let refuse = |why: String| Error::File(path.to_owned(), why);
        let text = fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
        let run: Run = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
        if run.format > FORMAT {
            return Err(refuse(format!("of format {}, this lab knows {FORMAT}", run.format)));
        }
        match run.unsound() {
            None => Ok(run),
            Some(why) => Err(refuse(format!("no run as an experiment leaves it: {why}"))),
        }
    }

    /// The whole run as JSON.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn json(&self) -> Result<String, Error> {
        let text = serde_json::to_string_pretty(self);
        text.map(|text| text + "\n").map_err(|error| Error::NotValid(format!("JSON: {error}")))
    }

    /// Ends the run that `began`: writes the files, and prints it.
    ///
    /// # Errors
    /// A file cannot be written, or a check failed: then the rest is written and everything is printed, marked as no result.
    pub fn finish(self, began: Instant, files: Files) -> Result<(), Error> {
        self.finish_as(began, files, Vec::new(), terminal::text)
    }

    /// As [`Run::finish`], with further files, each with its contents, and with another text.
    ///
    /// # Errors
    /// As [`Run::finish`].
    pub(crate) fn finish_as(
        mut self,
        began: Instant,
        files: Files,
        others: Vec<(ResultFile, Vec<u8>)>,
        text: impl FnOnce(&Run) -> String,
    ) -> Result<(), Error> {
        self.elapsed_s = began.elapsed().as_secs_f64();
        // A program that reads only the file must not take it for a result.
        if self.failed().next().is_some() {
            self.verdict.clear();
        }
        // Files are written first, so that a closed terminal loses nothing of them.
        let json = files.json.map_or(Ok(()), |file| file.write(self.json()?.as_bytes()));
        let report = files.report.map_or(Ok(()), |file| file.write(crate::report::html(&self).as_bytes()));
        let others = others.into_iter().map(|(file, bytes)| file.write(&bytes));
        let written: Vec<Result<(), Error>> = [json, report].into_iter().chain(others).collect();
        say(&(terminal::reasons(&self) + &text(&self)));
        let failed: Vec<String> =
            self.failed().map(|check| format!("{} ({})", check.claim, check.found)).collect();
        let valid = if failed.is_empty() { Ok(()) } else { Err(Error::NotValid(failed.join("; "))) };
        first_error(written.into_iter().chain([valid]))
    }
}

/// The first error; the others are printed on stderr.
pub(crate) fn first_error(outcomes: impl IntoIterator<Item = Result<(), Error>>) -> Result<(), Error> {
    let mut errors = outcomes.into_iter().filter_map(Result::err);
    let Some(first) = errors.next() else { return Ok(()) };
    errors.for_each(|error| complain(&error.to_string()));
    Err(first)
}

/// Prints an error on stderr, besides the one that ends the run.
fn complain(why: &str) {
    let _ = writeln!(std::io::stderr(), "larder lab: {why}");
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A run with one part of each kind.
    pub(crate) fn sample() -> Run {
        let mut run = Run::new("sample", "A run with one of everything");
        run.set("seconds", 1);
        run.targets.push(Target { name: "larder".to_owned(), version: "1".to_owned(), ..Target::default() });
        run.check("counts agree", Ok("12 = 12".to_owned()));
        run.ceilings.push(Ceiling { load: "GET × 200".to_owned(), per_s: 1.2e7, busy: 0.97 });
        let mut table = Table::new("goodput", "Goodput", &["clients"]);
        table.column(Column::new("goodput", "1/s", Better::Higher));
        table.column(Column::new("p99", "µs", Better::Lower));
        let goodput = [100.0, 110.0, 105.0, 90.0, 104.0, 98.0, 104.0, 109.0];
        table.row("larder", ["3"], [Estimate::of(&goodput), None]);
        run.tables.push(table);
        let ratio = Estimate::ratio(&goodput, &goodput);
        run.comparisons.push(Comparison::compared(
            "larder / itself".to_owned(),
            Better::Higher,
            ratio.clone().unwrap(),
            &[ratio],
        ));
        let mut plot = Plot::new("goodput", "Goodput against clients", Kind::Lines);
        plot.x = Axis::new("clients", "", Scale::Log);
        plot.y = Axis::new("goodput", "1/s", Scale::Linear);
        plot.curve("larder", [Point::new(2.0, 100.0), Point::new(3.0, 104.0)]);
        run.plots.push(plot);
        let mut histogram = crate::tally::Latencies::default().ns;
        histogram.record(12_345).unwrap();
        run.histograms.push(Latency::new("larder", "get", "closed loop", &histogram, 0).unwrap());
        run.verdict = "It works.".to_owned();
        run
    }

    #[test]
    fn each_comparison_is_ahead_behind_or_not_shown() {
        let itself = || Estimate::of(&[1.0; 6]).unwrap();
        let one = |claim: &str, better, low: f64, high: f64| {
            let ratio =
                Estimate { median: (low + high) / 2.0, interval: Some([low, high]), rounds: vec![low, high] };
            Comparison::compared(claim.to_owned(), better, ratio, &[Some(itself())])
        };
        let mut all = vec![
            one("a / b, throughput", Better::Higher, 1.2, 1.4),
            one("a / b, server CPU", Better::Lower, 1.2, 1.4),
            one("a / c, server CPU", Better::Lower, 0.7, 0.9),
            one("a / c, throughput", Better::Higher, 0.7, 0.9),
            one("a / d, throughput", Better::Higher, 0.9, 1.1),
            one("a / d, size", Better::Neither, 2.0, 3.0),
        ];
        let words: Vec<&str> = all.iter().map(Comparison::word).collect();
        assert_eq!(words, ["ahead", "behind", "ahead", "behind", "not shown", "differs"]);
        all[0].control = true;
        assert_eq!(
            judged(&all),
            "Ahead: a / c, server CPU 0.800 (0.700 … 0.900). \
             Behind: a / b, server CPU 1.300 (1.200 … 1.400); a / c, throughput 0.800 (0.700 … 0.900). \
             Different: a / d, size 2.500 (2.000 … 3.000). Not shown: a / d, throughput 1.000 (0.900 … 1.100)."
        );
        assert_eq!(judged(&all[..1]), "");
        assert_eq!(judged(&all[4..5]), "Not shown: a / d, throughput 1.000 (0.900 … 1.100).");
        let mut few = all[4].clone();
        few.outcome = Outcome::Unknown;
        few.ratio.as_mut().unwrap().interval = None;
        assert_eq!((few.word(), judged(&[few.clone()]).ends_with("6 rounds.")), ("too few rounds", true));
        assert!(judged(&[few, all[2].clone()]).ends_with("Of too few rounds: a / d, throughput 1.000."));
        assert!(judged(&vec![all[2].clone(); 9]).ends_with("; and 3 more."));
    }

    #[test]
    fn a_run_survives_being_written_and_read() {
        let run = sample();
        let path = std::env::temp_dir().join(format!("larder-run-{}.json", std::process::id()));
        fs::write(&path, run.json().unwrap()).unwrap();
        let back = Run::read_json(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(back, run);
        let histogram = back.histograms[0].histogram().unwrap();
        // 12,345 ns, in steps of 8.
        assert_eq!((histogram.len(), histogram.max()), (1, 12_351));
    }

    #[test]
    fn a_file_that_somebody_changed_is_no_run() {
        let path = std::env::temp_dir().join(format!("larder-edited-{}.json", std::process::id()));
        let refused = |change: &dyn Fn(&mut Run)| {
            let mut run = sample();
            change(&mut run);
            fs::write(&path, run.json().unwrap()).unwrap();
            let error = Run::read_json(&path).unwrap_err();
            assert_eq!(error.exit_code(), crate::exit::FILE, "{error}");
            assert!(error.to_string().contains("no run as an experiment leaves it"), "{error}");
        };
        refused(&|run| run.checks.clear());
        refused(&|run| _ = run.tables[0].rows[0].values.pop());
        refused(&|run| run.tables[0].rows[0].labels.clear());
        fn first(run: &mut Run) -> &mut Estimate {
            run.tables[0].rows[0].values[0].as_mut().unwrap()
        }
        refused(&|run| first(run).median *= 1.01);
        refused(&|run| first(run).rounds.clear());
        refused(&|run| first(run).rounds[0] = 1e300);
        refused(&|run| first(run).interval = None);
        refused(&|run| run.histograms[0].hdr_ns = "AAAA".to_owned());
        refused(&|run| run.comparisons[0].ratio.as_mut().unwrap().median = 7.0);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_newer_form_is_refused_by_name() {
        let path = std::env::temp_dir().join(format!("larder-newer-{}.json", std::process::id()));
        fs::write(&path, Run { format: FORMAT + 1, ..sample() }.json().unwrap()).unwrap();
        let error = Run::read_json(&path).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(error.contains(&format!("of format {}", FORMAT + 1)), "{error}");
    }

    #[test]
    fn a_check_that_does_not_hold_leaves_no_result() {
        let mut run = sample();
        run.check("server and generator count the same", Err("3 ≠ 4".to_owned()));
        let path = std::env::temp_dir().join(format!("larder-invalid-{}.json", std::process::id()));
        let output = Output { json: Some(path.clone()), ..Output::default() };
        let error = run.finish(Instant::now(), output.open().unwrap()).unwrap_err().to_string();
        let back = Run::read_json(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((back.verdict.as_str(), back.failed().count()), ("", 1));
        assert!(
            error.starts_with("result not valid: server and generator count the same (3 ≠ 4)"),
            "{error}"
        );
    }

    #[test]
    fn a_difference_that_the_control_shows_too_is_noise() {
        let ratio =
            |low, high| Estimate { median: (low + high) / 2.0, interval: Some([low, high]), rounds: vec![] };
        let none = ratio(1.0, 1.0);
        assert_eq!(Outcome::of(&ratio(1.01, 1.03), Some(&none)), Outcome::Differs);
        assert_eq!(Outcome::of(&ratio(0.99, 1.03), Some(&none)), Outcome::Noise);
        assert_eq!(Outcome::of(&ratio(1.01, 1.03), None), Outcome::Noise);
        assert_eq!(Outcome::of(&ratio(1.01, 1.03), Some(&ratio(0.97, 1.02))), Outcome::Noise);
        assert_eq!(Outcome::of(&ratio(0.8, 0.9), Some(&ratio(0.97, 1.02))), Outcome::Differs);
        let single = Estimate::of(&[2.0]).unwrap();
        assert_eq!(Outcome::of(&ratio(1.01, 1.03), Some(&single)), Outcome::Noise);
        assert_eq!(Outcome::of(&single, Some(&none)), Outcome::Unknown);
    }
}
