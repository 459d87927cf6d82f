//! The same requests received in several ways: one by one; all in one piece, with runs taken from two plain
//! requests on, never, or as a server takes them; and cut. All ways give the same bytes (except tokens, which
//! differ between servers), and leave the same items and the same counters.
//!
//! ```text
//! ask(request) ─▶ the first server, by itself, without runs: the caller judges its reply
//! together()   ─▶ all the others, the requests since then in one piece: compared with the first
//! ```
//!
use crate::local::{Local, LocalConnection};
use crate::pattern::{Captures, Match, Pattern, escaped};
use crate::talk::encode_text;
use larder_commands::{ClassCounter, Counter, RedisCounter};
use larder_store::CLASSES_END;

/// Pipelines that are longer are not cut at every byte, but into pieces of [`PIECE_BYTES`].
const CUT_BYTES_MAX: usize = 4 << 10;
const PIECE_BYTES: usize = 997;
/// Steps of upkeep when time has passed.
const UPKEEP: usize = 4;

/// How a server receives requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    /// In one piece.
    Whole,
    /// Each byte by itself.
    Bytes,
}

/// One server with one connection.
#[derive(Debug)]
struct Way {
    name: &'static str,
    local: Local,
    connection: LocalConnection,
    /// The connection on which the test asks for counts of commands.
    asking: LocalConnection,
    /// The tokens that it has given.
    captures: Captures,
    cut: Cut,
    /// Its clients' user has rules.
    ruled: bool,
}

impl Way {
    fn new(name: &'static str, resp: bool, run_bytes_min: Option<usize>, cut: Cut) -> Result<Way, String> {
        let mut local = Local::with_runs_from(run_bytes_min)?;
        let connection = if resp { local.resp_connection() } else { local.connection() };
        let asking = local.resp_connection();
        Ok(Way { name, local, connection, asking, captures: Captures::new(), cut, ruled: false })
    }

    /// Gives the clients' user these rules besides its own, which allow everything.
    fn rule(&mut self, rules: &str) -> Result<(), String> {
        let words: Vec<&str> = ["ACL", "SETUSER", "default"].into_iter().chain(rules.split(' ')).collect();
        let said = self.says(&words);
        self.ruled = true;
        if said == "+OK\r\n" { Ok(()) } else { Err(format!("{rules}: {said}")) }
    }

    /// Sends a command on the connection `asking`; returns the reply.
    fn says(&mut self, words: &[&str]) -> String {
        self.local.exchange(&mut self.asking, &encode_text(words));
        let said = String::from_utf8_lossy(self.asking.sent()).into_owned();
        self.asking.forget();
        said
    }

    /// Refused requests, the latest first, and how often each was refused.
    fn refused(&mut self) -> Vec<(String, u64)> {
        let log = self.says(&["ACL", "LOG", "1000"]);
        let (lines, mut refused) = (log.lines().collect::<Vec<_>>(), Vec::<(String, u64)>::new());
        for lines in lines.windows(3) {
            match lines[0] {
                "count" => refused.push(("refused".into(), lines[1][1..].parse().unwrap_or(u64::MAX))),
                "reason" | "context" | "object" | "username" => {
                    if let Some((name, _)) = refused.last_mut() {
                        *name += &format!(" {}", lines[2]);
                    }
                }
                _ => {}
            }
        }
        refused
    }

    fn receive(&mut self, bytes: &[u8]) {
        let piece = match self.cut {
            Cut::Whole => bytes.len(),
            Cut::Bytes if bytes.len() <= CUT_BYTES_MAX => 1,
            Cut::Bytes => PIECE_BYTES,
        };
        for piece in bytes.chunks(piece.max(1)) {
            self.local.exchange(&mut self.connection, piece);
        }
    }

    /// Its counters, by name. `commands`: also those of each RESP command, which takes longest.
    fn counts(&mut self, commands: bool) -> Vec<(String, u64)> {
        let sums = self.local.sums();
        let mut counts: Vec<_> =
            Counter::ALL.iter().map(|&counter| (counter.name().to_owned(), sums.of(counter))).collect();
        counts.extend(RedisCounter::ALL.map(|counter| (format!("RESP: {counter:?}"), sums.of(counter))));
        for class in 0..CLASSES_END as u8 {
            let of_class = ClassCounter::ALL.iter();
            counts.extend(
                of_class.map(|&(counter, name)| {
                    (format!("{name} in class {class}"), sums.in_class(class, counter))
                }),
            );
        }
        let totals = self.local.store().totals();
        counts.push(("items".into(), totals.items));
        counts.push(("items stored".into(), totals.items_stored));
        counts.push(("expired".into(), totals.reclaimed));
        counts.push(("expired, not read".into(), totals.expired_unfetched));
        // A class without items may have a span or not: only classes with items are compared.
        let classes = self.local.store().classes(self.local.now());
        for class in classes.iter().filter(|class| class.items > 0) {
            counts.push((format!("items in class {}", class.id), class.items));
        }
        if commands {
            // Which calls are timed depends on how the requests came: only numbers of calls are compared.
            let text = self.says(&["INFO", "commandstats"]);
            for line in text.lines().filter(|line| line.starts_with("cmdstat_")) {
                for (name, count) in line.split([':', ',']).filter_map(|part| part.split_once('=')) {
                    if let ("calls" | "rejected_calls" | "failed_calls", Ok(count)) = (name, count.parse()) {
                        let row = line.split(':').next().unwrap_or_default();
                        counts.push((format!("{row} {name}"), count));
                    }
                }
            }
        }
        if self.ruled {
            counts.append(&mut self.refused());
        }
        counts
    }
}

/// The servers.
#[derive(Debug)]
pub struct Ways {
    first: Way,
    others: Vec<Way>,
    resp: bool,
    /// Requests that the first server has answered since the last comparison.
    sent: Vec<u8>,
    replies: Vec<u8>,
    before: String,
}

impl Ways {
    /// Fresh servers, whose connections speak RESP or memcached's text.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn new(resp: bool) -> Result<Ways, String> {
        let way = |name, run_bytes_min, cut| Way::new(name, resp, run_bytes_min, cut);
        Ok(Ways {
            first: way("one by one", Some(usize::MAX), Cut::Whole)?,
            others: vec![
                way("runs wherever there are any", Some(0), Cut::Whole)?,
                way("no runs", Some(usize::MAX), Cut::Whole)?,
                way("as usual", None, Cut::Whole)?,
                way("cut at every byte", Some(0), Cut::Bytes)?,
            ],
            resp,
            sent: Vec::new(),
            replies: Vec::new(),
            before: String::new(),
        })
    }

    /// Servers whose clients are a user that has these rules beside those that allow everything. They allow `INFO` and `ACL`.
    ///
    /// # Errors
    /// There is no memory for them, or the rules are none.
    pub fn ruled(resp: bool, rules: &str) -> Result<Ways, String> {
        let mut ways = Ways::new(resp)?;
        for way in std::iter::once(&mut ways.first).chain(&mut ways.others) {
            way.rule(rules)?;
        }
        ways.before = format!("\n  rules {rules}");
        Ok(ways)
    }

    /// Sends a request to the first server; returns its reply.
    pub fn ask(&mut self, request: &[u8]) -> &[u8] {
        let Way { local, connection, .. } = &mut self.first;
        local.exchange(connection, request);
        let begin = self.replies.len();
        self.replies.extend_from_slice(connection.sent());
        connection.forget();
        self.sent.extend_from_slice(request);
        &self.replies[begin..]
    }

    /// Sends the requests since the last comparison to the other servers. Compares their replies: if replies
    /// have tokens, with a model's expectation, else with the first server's.
    ///
    /// # Errors
    /// A reply or a count that differs.
    pub fn together(&mut self, expected: Option<&Pattern>) -> Result<(), String> {
        if self.sent.is_empty() {
            return Ok(());
        }
        let counts = self.first.counts(self.resp);
        let (sent, replies) = (std::mem::take(&mut self.sent), std::mem::take(&mut self.replies));
        let mut unlike = None;
        for way in &mut self.others {
            way.receive(&sent);
            let got = way.connection.sent();
            let same = match expected {
                Some(expected) => expected.matches(got, &mut way.captures) == Match::Full(got.len()),
                None => got == replies,
            };
            if !same {
                unlike = Some(format!("{}: {}", way.name, first_difference(&replies, way.connection.sent())));
                break;
            }
            way.connection.forget();
            let theirs = way.counts(self.resp);
            if theirs != counts {
                let differs = counts.iter().zip(&theirs).find(|(ours, theirs)| ours != theirs);
                unlike = Some(format!("{}: counts, first of all {differs:?}", way.name));
                break;
            }
        }
        if let Some(unlike) = unlike {
            return Err(self.unlike(&sent, &unlike));
        }
        self.before.push_str(&format!("\n  {}", escaped(&sent)));
        Ok(())
    }

    /// Moves the clocks of all servers.
    pub fn pass(&mut self, ms: i64) {
        for way in std::iter::once(&mut self.first).chain(&mut self.others) {
            way.local.shift(ms);
            way.local.maintain(UPKEEP);
        }
        self.before.push_str(&format!("\n  {ms} ms later"));
    }

    /// Describes a difference.
    pub fn unlike(&self, sent: &[u8], what: &str) -> String {
        format!("after{}\n  sent     {}\n  {what}", self.before, escaped(sent))
    }
}

/// Describes where two replies begin to differ.
fn first_difference(expected: &[u8], got: &[u8]) -> String {
    const SHOWN: usize = 60;
    let at = expected.iter().zip(got).take_while(|(expected, got)| expected == got).count();
    let near = |bytes: &[u8]| escaped(&bytes[at.saturating_sub(SHOWN)..bytes.len().min(at + SHOWN)]);
    format!("from byte {at} on\n  expected …{}…\n  got      …{}…", near(expected), near(got))
}

/// Sends `before` in one piece to fresh servers, and then `pipeline` in two pieces, cut at each of its bytes.
/// Each server must answer as a server without runs answers each request by itself.
///
/// # Errors
/// The first cut with other replies or counters.
pub fn cut_at_every_byte(resp: bool, before: &[Vec<u8>], pipeline: &[Vec<u8>]) -> Result<(), String> {
    let mut first = Way::new("one by one", resp, Some(usize::MAX), Cut::Whole)?;
    before.iter().for_each(|request| first.receive(request));
    first.connection.forget();
    pipeline.iter().for_each(|request| first.receive(request));
    let counts = first.counts(resp);
    let (before, pipeline) = (before.concat(), pipeline.concat());
    for cut in 0..pipeline.len() {
        let mut way = Way::new("cut", resp, Some(0), Cut::Whole)?;
        way.receive(&before);
        way.connection.forget();
        let (front, back) = pipeline.split_at(cut);
        way.receive(front);
        way.receive(back);
        let same = way.connection.sent() == first.connection.sent();
        if !same || way.counts(resp) != counts {
            return Err(format!(
                "cut at {cut} of {}\n  expected {}\n  got      {}{}",
                escaped(&pipeline),
                escaped(first.connection.sent()),
                escaped(way.connection.sent()),
                if same { ", and other counts" } else { "" }
            ));
        }
    }
    Ok(())
}
