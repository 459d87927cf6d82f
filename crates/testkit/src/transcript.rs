//! The transcripts under `spec/`: bytes to send, and the replies that must come back.
//!
//! A file is a list of cases; `spec/README.md` describes the format for authors. Parsing is strict: an unknown line is an error
//! that names file and line, and is never ignored.

use crate::frames::{self, Way};
use crate::pattern::Pattern;
use crate::runner::Split;
use std::path::{Path, PathBuf};

/// Where the transcripts are, and the files that their options name.
const SPEC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec");

/// One claim about the server, run from an empty cache.
#[derive(Clone, Debug)]
pub struct Case {
    /// File it stands in.
    pub file: PathBuf,
    /// Line of its title.
    pub line: usize,
    /// The claim.
    pub title: String,
    /// Rows (`17`) or sections (`2.5`) of the compatibility table that it tests.
    pub rows: Vec<String>,
    /// Options the server is started with.
    pub options: Vec<String>,
    /// Servers that are known to differ, each with a reason.
    pub differs: Vec<Differs>,
    /// Needs a server process; a session alone cannot show it.
    pub process_only: bool,
    /// Connections speak RESP from their first byte on.
    pub resp: bool,
    /// Connections speak the binary protocol.
    pub binary: bool,
    /// The end of the case leaves a connection in the middle of a request: no final probe.
    pub unfinished: bool,
    /// The bytes must arrive in one piece for the claim to hold.
    pub whole_only: bool,
    /// The server must refuse to start with these options.
    pub refused_start: bool,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// The words for a server that does not start.
pub const NO_START: &str = "does not start";

/// A server that is known to differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differs {
    /// A version of memcached, or a name.
    pub who: String,
    /// How it differs.
    pub why: String,
}

impl Differs {
    /// Whether it may also behave as the case says.
    pub fn may(&self) -> bool {
        self.why.starts_with("may ")
    }

    /// Whether it does not start with the case's options.
    pub fn ends_at_start(&self) -> bool {
        self.why.starts_with(NO_START)
    }
}

/// One step of a case.
#[derive(Clone, Debug)]
pub struct Step {
    /// Line of the file, for messages.
    pub line: usize,
    /// Name of the connection, `1` unless written.
    pub connection: String,
    /// What happens.
    pub action: Action,
    /// Steps that replace this one for other kinds of servers, which differ here; the case ends with such a
    /// step.
    pub otherwise: Vec<(String, Step)>,
}

/// What a step does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Send these bytes; neighbouring sends on one connection are one send.
    Send(Pattern),
    /// Exactly these bytes come next.
    Expect(Pattern),
    /// No unexpected bytes have come.
    Silent,
    /// Open the connection now, not at its first use.
    Connect,
    /// The server closes, and sends nothing more before that.
    Closed,
    /// The client closes.
    Hangup,
    /// Time passes, in seconds.
    Clock(u64),
    /// Waits until this many connections are blocked.
    Waits(u64),
    /// Two captured numbers differ.
    Differ(String, String),
    /// The first captured number is below the second.
    Below(String, String),
    /// A line of `stats [arguments]` holds.
    Stat {
        /// What follows `stats `.
        arguments: String,
        /// Name of the statistic.
        key: String,
        /// How its value compares.
        test: StatTest,
    },
    /// `stats [arguments]` has exactly these names, in any order.
    StatKeys {
        /// What follows `stats `.
        arguments: String,
        /// The names.
        keys: Vec<String>,
    },
}

/// A comparison with a statistic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatTest {
    /// The text is equal.
    Is(String),
    /// The number is at least this.
    AtLeast(u64),
}

/// All cases of all `.txt` files below `directory`, by file name.
///
/// # Errors
/// A file that cannot be read or parsed, with its name and line.
pub fn load(directory: &Path) -> Result<Vec<Case>, String> {
    let mut files = Vec::new();
    let entries =
        std::fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            files.push(path);
        }
    }
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        cases.extend(parse(&file, &text)?);
    }
    Ok(cases)
}

/// The cases of one file's text.
///
/// # Errors
/// Names the line that does not parse.
pub fn parse(file: &Path, text: &str) -> Result<Vec<Case>, String> {
    let mut cases: Vec<Case> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let fail = |what: &str| format!("{}:{number}: {what}: {line}", file.display());
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(title) = line.strip_prefix("== ") {
            cases.push(Case::new(file, number, title));
            continue;
        }
        let case = cases.last_mut().ok_or_else(|| fail("a line before the first case"))?;
        if case.header(line).map_err(|what| fail(&what))? {
            continue;
        }
        if let Some(text) = line.strip_prefix("! ") {
            case.otherwise(number, text).map_err(|what| fail(&what))?;
            continue;
        }
        case.steps.push(Step::parse(number, line, case.binary).map_err(|what| fail(&what))?);
    }
    for case in &cases {
        if case.rows.is_empty() {
            return Err(format!("{}:{}: the case names no row", file.display(), case.line));
        }
        if case.steps.is_empty() && !case.refused_start {
            return Err(format!("{}:{}: the case does nothing", file.display(), case.line));
        }
    }
    Ok(cases)
}

impl Case {
    fn new(file: &Path, line: usize, title: &str) -> Case {
        Case {
            file: file.to_owned(),
            line,
            title: title.trim().to_owned(),
            rows: Vec::new(),
            options: Vec::new(),
            differs: Vec::new(),
            process_only: false,
            resp: false,
            binary: false,
            unfinished: false,
            whole_only: false,
            refused_start: false,
            steps: Vec::new(),
        }
    }

    /// `file:line title`, for messages.
    pub fn name(&self) -> String {
        let file = self.file.file_name().unwrap_or_default().to_string_lossy();
        format!("{file}:{} {}", self.line, self.title)
    }

    /// The ways in which the bytes of the case are handed over.
    pub fn splits(&self) -> &'static [Split] {
        if self.whole_only { &[Split::Whole] } else { &[Split::Whole, Split::Bytes] }
    }

    /// Seconds of clock movement in the case.
    pub fn clock_seconds(&self) -> u64 {
        self.steps.iter().map(|step| if let Action::Clock(seconds) = step.action { seconds } else { 0 }).sum()
    }

    /// Reads `KIND step`, in place of the last step.
    fn otherwise(&mut self, line: usize, text: &str) -> Result<(), String> {
        let (kind, step) = text.split_once(' ').ok_or("! KIND, and what happens then")?;
        if !self.differs.iter().any(|differs| differs.who == kind) {
            return Err(format!("{kind} does not differ"));
        }
        let step = Step::parse(line, step, self.binary)?;
        match (self.steps.last_mut(), &step.action) {
            (Some(Step { action: Action::Send(_), .. }), _) | (_, Action::Send(_)) | (None, _) => {
                Err("it is what is awaited that differs".into())
            }
            (Some(last), _) => {
                last.otherwise.push((kind.to_owned(), step));
                Ok(())
            }
        }
    }

    fn header(&mut self, line: &str) -> Result<bool, String> {
        let Some((word, rest)) = line.split_once(':').filter(|(word, _)| !word.contains([' ', '>', '<']))
        else {
            return Ok(false);
        };
        let words = || rest.split_whitespace();
        match word {
            "rows" => {
                for row in words() {
                    if !row.split('.').all(|part| part.parse::<u32>().is_ok()) {
                        return Err(format!("{row:?} is not a row"));
                    }
                    self.rows.push(row.to_owned());
                }
            }
            "options" => self.options.extend(words().map(|word| word.replace("{spec}", SPEC))),
            "differs" => {
                let (who, why) = rest.trim().split_once(' ').ok_or("differs: who, and how")?;
                self.differs.push(Differs { who: who.to_owned(), why: why.to_owned() });
            }
            "only" if rest.trim() == "process" => self.process_only = true,
            "start" if rest.trim() == "refused" => {
                self.refused_start = true;
                self.process_only = true;
            }
            "protocol" if rest.trim() == "resp" => self.resp = true,
            "protocol" if rest.trim() == "binary" => self.binary = true,
            "split" if rest.trim() == "whole" => self.whole_only = true,
            "end" if rest.trim() == "unfinished" => self.unfinished = true,
            _ => return Err("unknown header".into()),
        }
        Ok(true)
    }
}

impl Step {
    fn parse(line: usize, text: &str, binary: bool) -> Result<Step, String> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let connection = if digits == 0 { "1" } else { &text[..digits] };
        let action = Action::parse(text[digits..].trim_start_matches(' '), text, binary)?;
        Ok(Step { line, connection: connection.to_owned(), action, otherwise: Vec::new() })
    }
}

impl Action {
    fn parse(text: &str, line: &str, binary: bool) -> Result<Action, String> {
        let bytes = |way: Way, text: &str| {
            let text = text.strip_prefix(' ').unwrap_or(text);
            if binary { frames::parse(way, text) } else { Pattern::parse(text) }
        };
        if let Some(rest) = text.strip_prefix('>') {
            return Ok(Action::Send(bytes(Way::Request, rest)?));
        }
        if let Some(rest) = text.strip_prefix('<') {
            return Ok(Action::Expect(bytes(Way::Reply, rest)?));
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
        match words[..] {
            ["connect"] => Ok(Action::Connect),
            ["silent"] => Ok(Action::Silent),
            ["closed"] => Ok(Action::Closed),
            ["hangup"] => Ok(Action::Hangup),
            ["waits", count] => Ok(Action::Waits(number(count)?)),
            ["clock", seconds] => {
                Ok(Action::Clock(number(seconds.strip_prefix('+').ok_or("the clock moves by +seconds")?)?))
            }
            ["differ", a, b] => Ok(Action::Differ(a.to_owned(), b.to_owned())),
            ["below", a, b] => Ok(Action::Below(a.to_owned(), b.to_owned())),
            ["stat", .., key, "=", value] => {
                Ok(stat(&words[1..words.len() - 3], key, StatTest::Is(value.to_owned())))
            }
            ["stat", .., key, ">=", value] => {
                Ok(stat(&words[1..words.len() - 3], key, StatTest::AtLeast(number(value)?)))
            }
            ["keys", ..] => {
                let end = words.iter().position(|word| *word == "=").ok_or("keys [arguments] = names")?;
                Ok(Action::StatKeys {
                    arguments: words[1..end].join(" "),
                    keys: words[end + 1..].iter().map(|word| (*word).to_owned()).collect(),
                })
            }
            _ => Err(format!("unknown line ({line:?})")),
        }
    }
}

fn stat(arguments: &[&str], key: &str, test: StatTest) -> Action {
    Action::Stat { arguments: arguments.join(" "), key: key.to_owned(), test }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Case>, String> {
        parse(Path::new("case.txt"), text)
    }

    #[test]
    fn a_case_holds_its_headers_and_steps() {
        let cases =
            parsed("# note\n== it works\nrows: 1 2\noptions: -m 64\n> mn\\r\\n\n2< MN\\r\\n\nclock +3\n")
                .expect("valid");
        assert_eq!(cases.len(), 1);
        assert_eq!(cases[0].rows, ["1", "2"]);
        assert_eq!(cases[0].options, ["-m", "64"]);
        assert_eq!(cases[0].steps.len(), 3);
        assert_eq!(cases[0].steps[1].connection, "2");
        assert_eq!(cases[0].clock_seconds(), 3);
    }

    #[test]
    fn what_happens_elsewhere_stands_behind_the_step_that_differs() {
        let cases = parsed("== a\nrows: 1\ndiffers: 9 may say NO\n> a\n2< YES\n! 9 2< NO\n").expect("valid");
        assert!(cases[0].differs[0].may() && cases[0].steps.len() == 2);
        let [(who, step)] = &cases[0].steps[1].otherwise[..] else { panic!("one") };
        assert_eq!((who.as_str(), step.connection.as_str(), step.line), ("9", "2", 6));
        for (text, why) in [
            ("> a\n< YES\n! 8 < NO\n", "does not differ"),
            ("> a\n! 9 < NO\n", "awaited"),
            ("! 9 < NO\n", "awaited"),
            ("> a\n< YES\n! 9 > b\n", "awaited"),
            ("> a\n< YES\n! 9\n", "what happens"),
        ] {
            let error = parsed(&format!("== a\nrows: 1\ndiffers: 9 says NO\n{text}")).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn what_is_not_understood_is_an_error_with_its_line() {
        for text in
            ["== a\nrows: x\n> a", "== a\n> mn", "> mn", "== a\nrows: 1\nwhatever\n", "== a\nrows: 1\n"]
        {
            let error = parsed(text).expect_err(text);
            assert!(error.starts_with("case.txt:"), "{error}");
        }
    }

    #[test]
    fn statistics_are_compared_by_text_or_number() {
        let cases = parsed("== a\nrows: 1\nstat settings maxconns = 5\nstat cmd_get >= 2\n").expect("valid");
        let Action::Stat { arguments, key, test } = &cases[0].steps[0].action else { panic!("a stat") };
        assert_eq!((arguments.as_str(), key.as_str()), ("settings", "maxconns"));
        assert_eq!(*test, StatTest::Is("5".into()));
        let Action::Stat { test, .. } = &cases[0].steps[1].action else { panic!("a stat") };
        assert_eq!(*test, StatTest::AtLeast(2));
    }
}
