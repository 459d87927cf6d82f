//! A Prometheus scrapes the server, and is asked what panels and alerts of well-known boards ask (`panels.txt`).
//!
//! An expression of a panel has an answer that can be drawn. So has what an alert compares, and the alert does not fire. What
//! Larder does not tell is on the list with its reason, and has no answer.

use super::namespace::{Namespace, Server};
use super::series::{self, PORT};
use super::suites::write;
use super::{Counts, Program, exporter, redis_exporter};
use crate::install::debian;
use crate::run::{Outcome, target};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Expressions, board by board.
const PANELS: &str = include_str!("../../../crates/larder/tests/all/monitor/panels.txt");

/// The time between two scrapes.
const INTERVAL: &str = "2s";
/// The fewest scrapes before answers are judged: rates are of three values.
const SCRAPES_LEAST: f64 = 3.0;
/// How long all expressions may take until they have their answers: for hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the server was scraped.
const SCRAPES: &str = "sum_over_time(up[5m])";
/// The time of the newest scrape. Expressions are evaluated at that time: a scrape that is under way then does not count.
const NEWEST: &str = "max(timestamp(up))";

/// Variables of boards, and what is chosen for each. Labels are those of [`config`].
const VARIABLES: [(&str, &str); 7] = [
    ("$__rate_interval", "1m"),
    ("$__interval", "1m"),
    ("$instance", ".*"),
    ("$job", "memcached"),
    ("$cluster", "one"),
    ("$namespace", "caches"),
    ("$pod", ".*"),
];

/// Signs of alerts.
const SIGNS: [&str; 6] = ["==", "!=", ">", "<", ">=", "<="];

/// Waits until Prometheus answers.
const READY: &str = r#"
use HTTP::Tiny;
for (1..12000) { exit 0 if HTTP::Tiny->new->get('http://127.0.0.1:9090/-/ready')->{success};
    select(undef, undef, undef, 0.05) }
die "Prometheus does not answer";
"#;

/// Prints a line of JSON for each expression, evaluated at a time, or now.
const ASK: &str = r#"
use HTTP::Tiny; my ($at, @expressions) = @ARGV; my $http = HTTP::Tiny->new;
for my $expression (@expressions) {
    my %form = (query => $expression); $form{time} = $at if $at ne '';
    my $r = $http->post_form('http://127.0.0.1:9090/api/v1/query', \%form);
    die "$expression: $r->{status} $r->{content}" unless $r->{success};
    my $line = $r->{content}; $line =~ s/\s+$//; print "$line\n" }
"#;

/// What an expression's answer is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// Something that can be drawn.
    Numbers,
    /// Nothing: an alert that does not fire.
    Quiet,
    /// Nothing, for the reason that is listed.
    Absent,
}

/// An expression that is asked for.
#[derive(Debug)]
struct Asked<'t> {
    board: &'t str,
    /// The expression with values in place of its variables.
    expression: String,
    wanted: Wanted,
}

/// Runs the suite.
pub fn suite(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    debian(&[("prometheus", "prometheus")])?;
    let asked = asked(PANELS)?;
    let with_http = series::with_http(program).ok_or("only Larder tells its figures to Prometheus itself")?;
    let _server = namespace.serve(&with_http, &["-t", "2"])?;
    let home = target().join("conformance/prometheus");
    // Prometheus would also answer with what it scraped before.
    if home.exists() {
        fs::remove_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    }
    let _prometheus = started(namespace, &home)?;
    let perl = |script: &str, arguments: &[&str]| {
        namespace.output("perl", &[&["-e", script][..], arguments].concat())
    };
    let ask = |at: &str, expressions: &[&str]| -> Outcome<Vec<Vec<f64>>> {
        let answers = perl(ASK, &[&[at][..], expressions].concat())?;
        answers.lines().map(numbers).collect()
    };
    perl(READY, &[])?;
    let expressions: Vec<&str> = asked.iter().map(|one| one.expression.as_str()).collect();
    let began = Instant::now();
    loop {
        // Some of everything is asked for between any two scrapes, so that ratios of rates are numbers.
        perl(exporter::FILL, &[])?;
        perl(redis_exporter::FILL, &[])?;
        let seen = ask("", &[SCRAPES, NEWEST])?;
        let first = |nth: usize| seen.get(nth).and_then(|numbers| numbers.first()).copied();
        let (scrapes, newest) = (first(0).unwrap_or(0.0), first(1).unwrap_or(0.0));
        let differ = if scrapes >= SCRAPES_LEAST {
            differing(&asked, &ask(&newest.to_string(), &expressions)?)
        } else {
            vec![format!("Prometheus has scraped the server {scrapes} times")]
        };
        if differ.is_empty() {
            break;
        }
        if began.elapsed() > PATIENCE {
            return Err(differ.join("\n"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let absent = asked.iter().filter(|one| one.wanted == Wanted::Absent).count() as u32;
    Ok(Counts { passed: asked.len() as u32 - absent, skipped: absent })
}

/// Starts a Prometheus that keeps all it has in this folder.
fn started(namespace: &Namespace, home: &Path) -> Outcome<Server> {
    let file = home.join("prometheus.yml");
    write(&file, &config())?;
    let options = [
        format!("--config.file={}", file.display()),
        format!("--storage.tsdb.path={}", home.join("data").display()),
        "--web.listen-address=127.0.0.1:9090".to_owned(),
        "--log.level=error".to_owned(),
    ];
    namespace.background("prometheus", &options.each_ref().map(String::as_str))
}

/// Its configuration: the server as the only one that is scraped, with the labels that one in Kubernetes would have.
fn config() -> String {
    format!(
        "global: {{scrape_interval: {INTERVAL}, scrape_timeout: {INTERVAL}}}\n\
         scrape_configs:\n\
         - job_name: memcached\n\
         \x20 static_configs:\n\
         \x20 - targets: [\"127.0.0.1:{PORT}\"]\n\
         \x20   labels: {{cluster: one, namespace: caches, pod: redis-0, container: redis-server-exporter}}\n"
    )
}

/// The numbers of an answer, a line of JSON, without those that cannot be drawn, such as 0 / 0.
fn numbers(line: &str) -> Outcome<Vec<f64>> {
    let answer: Value = serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
    let result = answer["data"]["result"].as_array().ok_or_else(|| format!("not a vector: {line}"))?;
    let number = |one: &Value| one["value"][1].as_str()?.parse::<f64>().ok();
    Ok(result.iter().filter_map(number).filter(|number| number.is_finite()).collect())
}

/// Expressions whose answers are not what is wanted, and why.
fn differing(asked: &[Asked<'_>], answers: &[Vec<f64>]) -> Vec<String> {
    if asked.len() != answers.len() {
        return vec![format!("{} answers to {} expressions", answers.len(), asked.len())];
    }
    let mut differ = Vec::new();
    for (Asked { board, expression, wanted }, numbers) in asked.iter().zip(answers) {
        let why = match (wanted, numbers.first()) {
            (Wanted::Numbers, Some(_)) | (Wanted::Quiet | Wanted::Absent, None) => continue,
            (Wanted::Numbers, None) => "nothing to draw".to_owned(),
            (Wanted::Quiet, Some(number)) => format!("an alert, of {number}"),
            (Wanted::Absent, Some(number)) => format!("listed as absent, and is {number}"),
        };
        differ.push(format!("{board}: {expression}: {why}"));
    }
    differ
}

/// The expressions of `panels.txt`; an alert's are two.
fn asked(text: &str) -> Outcome<Vec<Asked<'_>>> {
    let (mut board, mut asked) = ("", Vec::new());
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let wrong = || format!("panels.txt: not understood: {line}");
        let mut add = |expression: &str, wanted: Wanted| {
            let expression = chosen(expression);
            let is_whole = !expression.is_empty() && !expression.contains('$');
            asked.push(Asked { board, expression, wanted });
            if is_whole { Ok(()) } else { Err(wrong()) }
        };
        if let Some(name) = line.strip_prefix("= ") {
            board = name;
        } else if let Some(alert) = line.strip_prefix("alert ") {
            let mut words = alert.rsplitn(3, ' ');
            let (_limit, sign, compared) = (words.next(), words.next(), words.next());
            if sign.is_none_or(|sign| !SIGNS.contains(&sign)) {
                return Err(wrong());
            }
            add(compared.ok_or_else(wrong)?, Wanted::Numbers)?;
            add(alert, Wanted::Quiet)?;
        } else if let Some(absent) = line.strip_prefix("not ") {
            let (expression, why) = absent.split_once(": ").ok_or_else(wrong)?;
            if why.is_empty() {
                return Err(wrong());
            }
            add(expression, Wanted::Absent)?;
        } else {
            add(line, Wanted::Numbers)?;
        }
    }
    Ok(asked)
}

/// An expression with values in the place of variables.
fn chosen(expression: &str) -> String {
    VARIABLES.iter().fold(expression.to_owned(), |text, (variable, value)| text.replace(variable, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// The names of what boards ask for; the gate checks that all are told.
    const BOARDS: &str = include_str!("../../../crates/larder/tests/all/monitor/boards.txt");

    /// Words of this text that are names of the exporters' series, or of labels that are named like them.
    fn names(text: &str) -> impl Iterator<Item = &str> {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        words.filter(|word| word.starts_with("memcached_") || word.starts_with("redis_"))
    }

    /// What a text of boards names, board by board.
    fn named(text: &str) -> BTreeMap<&str, BTreeSet<&str>> {
        let (mut board, mut named) = ("", BTreeMap::<&str, BTreeSet<&str>>::new());
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(name) = line.strip_prefix("= ") {
                board = name;
                continue;
            }
            // The reason may name others.
            let absent = line.strip_prefix("not ").and_then(|line| line.split(": ").next());
            named.entry(board).or_default().extend(names(absent.unwrap_or(line)));
        }
        named
    }

    #[test]
    fn panels_ask_for_what_their_boards_are_said_to_ask_for() {
        let boards = named(BOARDS);
        assert_eq!(boards.len(), 6);
        assert_eq!(named(PANELS), boards);
    }

    #[test]
    fn every_expression_is_understood_and_an_alert_is_two() {
        let all = asked(PANELS).expect("panels");
        let count = |wanted: Wanted| all.iter().filter(|one| one.wanted == wanted).count();
        assert_eq!([Wanted::Numbers, Wanted::Quiet, Wanted::Absent].map(count), [102, 9, 20]);
        let text = "= b\nalert m_up{pod=~\"$pod\"} * 100 >= 80\nnot rate(m_no[$__interval]): why\n";
        let told: Vec<(String, Wanted)> =
            asked(text).expect("two lines").into_iter().map(|one| (one.expression, one.wanted)).collect();
        let expected = [
            ("m_up{pod=~\".*\"} * 100", Wanted::Numbers),
            ("m_up{pod=~\".*\"} * 100 >= 80", Wanted::Quiet),
            ("rate(m_no[1m])", Wanted::Absent),
        ];
        assert_eq!(told, expected.map(|(expression, wanted)| (expression.to_owned(), wanted)));
        for wrong in ["m_up{pod=\"$node\"}", "alert m_up", "alert m_up is 0", "not m_no", "not m_no: "] {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn answers_are_judged_by_what_can_be_drawn() {
        let read =
            |values: &str| numbers(&format!("{{\"data\":{{\"result\":[{values}]}}}}")).expect("a vector");
        let one = read(r#"{"value":[9,"0.5"]}"#);
        let none = read("");
        let odd = read(r#"{"value":[9,"NaN"]},{"value":[9,"+Inf"]}"#);
        assert_eq!((&one[..], none.len(), odd.len()), (&[0.5][..], 0, 0));
        assert!(numbers(r#"{"data":{"result":1}}"#).is_err() && numbers("no").is_err());
        let all = asked("= b\nm_a\nalert m_b > 1\nnot m_c: why\n").expect("three lines");
        let as_wanted = [one.clone(), one.clone(), none.clone(), none.clone()];
        assert_eq!(differing(&all, &as_wanted), [""; 0]);
        let others = [none.clone(), none, one.clone(), one];
        let expected = [
            "b: m_a: nothing to draw",
            "b: m_b: nothing to draw",
            "b: m_b > 1: an alert, of 0.5",
            "b: m_c: listed as absent, and is 0.5",
        ];
        assert_eq!(differing(&all, &others), expected);
        assert_eq!(differing(&all, &[]), ["0 answers to 4 expressions"]);
    }
}
