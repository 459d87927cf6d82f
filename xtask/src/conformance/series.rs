//! Series of an exporter against those of `/metrics`: each is there, of the same kind and with the same value, or is one of the
//! exceptions of `exporters.txt`.

use super::Program;
use super::namespace::Namespace;
use crate::run::Outcome;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const EXCEPTIONS: &str = include_str!("exporters.txt");
/// The port at which Larder answers by HTTP, in a namespace.
pub const PORT: &str = "9149";
/// How long figures may take until they are at rest: for hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Prints the page at an address.
const SCRAPE: &str = r#"
use HTTP::Tiny; my $r = HTTP::Tiny->new->get($ARGV[0]);
die "$ARGV[0]: $r->{status} $r->{content}" unless $r->{success};
print $r->{content};
"#;

/// The series of a page.
#[derive(Debug, Default)]
struct Page {
    /// Their values by name and labels, these in the order of their names.
    series: BTreeMap<String, f64>,
    kinds: BTreeMap<String, String>,
}

/// How a series may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Apart {
    /// It is not in `/metrics`.
    Absent,
    /// It is not in `/metrics`, as long as it is 0.
    Zero,
    /// It has another value.
    Moves,
    /// It has other values of labels.
    Labels,
}

/// An exception.
#[derive(Clone, Copy, Debug)]
struct Rule<'t> {
    apart: Apart,
    /// A name, or how names begin, with a star behind it.
    name: &'t str,
}

impl Rule<'_> {
    fn is_of(&self, name: &str) -> bool {
        match self.name.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == self.name,
        }
    }
}

/// The server with its HTTP port open, if it is Larder.
pub fn with_http(program: &Program) -> Option<Program> {
    let at = program.words.iter().position(|word| word == "--http-port")?;
    let mut with = program.clone();
    *with.words.get_mut(at + 1)? = PORT.to_owned();
    Some(with)
}

/// Compares all series of an exporter whose names begin with `family` with those that the server tells itself, until they are at
/// rest. At least `least` of them must be found.
pub fn compare(namespace: &Namespace, exporter: &str, family: &str, least: usize) -> Outcome {
    let rules = rules(EXCEPTIONS)?;
    let scrape = |address: &str| {
        namespace.output("perl", &["-e", SCRAPE, address]).map(|text| Page::read(&text, family))
    };
    let own = format!("http://127.0.0.1:{PORT}/metrics");
    let began = Instant::now();
    loop {
        // The server's own page is read last: its figures include the exporter's requests.
        let (theirs, ours) = (scrape(exporter)?, scrape(&own)?);
        let (found, differ) = differing(&theirs, &ours, &rules);
        if differ.is_empty() {
            println!("{family}*: {found} of {} series of the exporter are in /metrics", theirs.series.len());
            return if found >= least { Ok(()) } else { Err(format!("{family}*: {found} series are few")) };
        }
        if began.elapsed() > PATIENCE {
            return Err(format!("{exporter} and {own} differ:\n{}", differ.join("\n")));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The number of an exporter's series that are in `/metrics`, and what differs and may not.
fn differing(theirs: &Page, ours: &Page, rules: &[Rule<'_>]) -> (usize, Vec<String>) {
    let (mut found, mut differ) = (0, Vec::new());
    for (series, value) in &theirs.series {
        let name = name_of(series);
        let may = |apart: Apart| rules.iter().any(|rule| rule.apart == apart && rule.is_of(name));
        let is_named = || ours.series.keys().any(|own| name_of(own) == name);
        match ours.series.get(series) {
            Some(own) if own == value || may(Apart::Moves) => found += 1,
            Some(own) => differ.push(format!("{series}: {own}, of the exporter {value}")),
            None if may(Apart::Absent) || may(Apart::Zero) && *value == 0.0 => {}
            None if may(Apart::Labels) && is_named() => found += 1,
            None => differ.push(format!("{series}: absent, of the exporter {value}")),
        }
    }
    for (name, kind) in &ours.kinds {
        if let Some(theirs) = theirs.kinds.get(name).filter(|theirs| *theirs != kind) {
            differ.push(format!("{name}: a {kind}, of the exporter a {theirs}"));
        }
    }
    (found, differ)
}

/// Reads exceptions: lines like `absent redis_aof_*: files`.
fn rules(text: &str) -> Outcome<Vec<Rule<'_>>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rule = |line| {
        let wrong = || format!("exporters.txt: not understood: {line}");
        let (rule, why): (&str, &str) = str::split_once(line, ": ").ok_or_else(wrong)?;
        let (apart, name) = rule.split_once(' ').ok_or_else(wrong)?;
        let apart = match apart {
            "absent" => Apart::Absent,
            "zero" => Apart::Zero,
            "moves" => Apart::Moves,
            "labels" => Apart::Labels,
            _ => return Err(wrong()),
        };
        if why.is_empty() || name.is_empty() { Err(wrong()) } else { Ok(Rule { apart, name }) }
    };
    lines.map(rule).collect()
}

fn name_of(series: &str) -> &str {
    series.split_once('{').map_or(series, |(name, _)| name)
}

impl Page {
    /// Reads the series of a page whose names begin with `family`.
    fn read(text: &str, family: &str) -> Page {
        let mut page = Page::default();
        for line in text.lines() {
            if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                if name.starts_with(family) {
                    page.kinds.insert(name.to_owned(), kind.to_owned());
                }
                continue;
            }
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            if let Ok(value) = value.parse()
                && series.starts_with(family)
            {
                page.series.insert(in_order(series), value);
            }
        }
        page
    }
}

/// A series with its labels in the order of their names.
fn in_order(series: &str) -> String {
    let labels = series.split_once('{').and_then(|(name, rest)| Some((name, rest.strip_suffix("\"}")?)));
    let Some((name, labels)) = labels else { return series.to_owned() };
    let mut labels: Vec<&str> = labels.split("\",").collect();
    labels.sort_unstable();
    format!("{name}{{{}\"}}", labels.join("\","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exception_is_understood_and_has_a_reason() {
        assert!(rules(EXCEPTIONS).is_ok_and(|rules| rules.len() > 50));
        for wrong in ["absent m_up", "absent m_up: ", "sometimes m_up: why", "absent: why"] {
            assert!(rules(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_differs_is_told_but_for_the_exceptions() {
        let theirs = "# TYPE m_a counter\nm_a{x=\"1\",y=\"2\"} 3\nm_b 1\nm_c 0\nm_d 7\nm_e{os=\"a\"} 1\n\
                      # TYPE m_f gauge\nm_f 2\nm_g 1\nother 5\n";
        let ours = "# TYPE m_a counter\nm_a{y=\"2\",x=\"1\"} 3\nm_d 9\nm_e{os=\"b\"} 1\n\
                    # TYPE m_f counter\nm_f 3\n";
        let (theirs, ours) = (Page::read(theirs, "m_"), Page::read(ours, "m_"));
        let text = "absent m_b*: why\nzero m_c: why\nmoves m_d: why\nlabels m_e: why\n";
        let (found, differ) = differing(&theirs, &ours, &rules(text).expect("rules"));
        assert_eq!(found, 3);
        let expected = [
            "m_f: 3, of the exporter 2",
            "m_g: absent, of the exporter 1",
            "m_f: a counter, of the exporter a gauge",
        ];
        assert_eq!(differ, expected);
    }

    #[test]
    fn only_larder_has_an_http_port() {
        let program = |words: &[&str]| Program {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            is_redis: false,
        };
        let with = with_http(&program(&["larder", "serve", "--http-port", "0"])).expect("it has one");
        assert_eq!(with.words, ["larder", "serve", "--http-port", PORT]);
        assert!(with_http(&program(&["memcached", "-u", "root"])).is_none());
    }
}
