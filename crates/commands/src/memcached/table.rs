//! The commands of the memcached text protocols: one row each. Lines that name no item are run from
//! here; item commands are decoded to a request and run from the batch, and a test holds the rows to
//! the decoder. Documentation is generated from the rows.

use larder_protocol::Tokens;
use larder_protocol::classic::{Fetch, Request, StoreVerb};
use larder_protocol::meta::Verb;

use super::admin;
use super::flow::Flow;
use super::line::Line;
use super::watch;
use crate::core::calls::{MEMCACHED_ROWS_MAX, RowId};
use crate::core::events::Change;

/// The way in which a command is run.
#[derive(Clone, Copy)]
pub enum Run {
    /// It names an item: decoded to a request of its own, run in a batch.
    Item,
    /// It is a line with tokens.
    Line(LineCommand),
}

/// A command that is a line with tokens.
#[derive(Clone, Copy)]
pub struct LineCommand(pub(crate) fn(&mut Line<'_, '_, '_, '_>) -> Flow);

impl LineCommand {
    pub(crate) fn run(self, line: &mut Line<'_, '_, '_, '_>) -> Flow {
        (self.0)(line)
    }
}

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Run::Item => "Item",
            Run::Line(_) => "Line",
        })
    }
}

/// A command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// The words behind its name.
    pub usage: &'static str,
    /// A sentence about what it does.
    pub summary: &'static str,
    /// First words of its replies, in the order of their likelihood.
    pub replies: &'static [&'static str],
    /// Its effect on what is stored.
    pub effect: Effect,
    /// Whether a `noreply` behind it is a word like any other: clients ask for the version with words behind it.
    pub answers_always: bool,
    /// The way in which it is run.
    pub run: Run,
}

/// The effect of a command on what is stored: it decides what waits while writes are paused, and which events are told.
#[derive(Clone, Copy, Debug)]
pub enum Effect {
    /// It changes nothing.
    Reads,
    /// It changes nothing. A key that is not there is an event.
    Asks,
    /// It changes keys; `Change` names that.
    Writes(Change),
    /// It removes keys, or changes them; `Change` names that.
    Removes(Change),
    /// It changes numbers, or makes them if its line says so; `Change` names that.
    Counts(Change),
    /// A key that is not there is an event, and it changes keys if its line has such tokens.
    AsksAndWrites(Change, LineTest),
    /// It changes something that is no key.
    Turns,
}

/// A test of the tokens behind a command's key.
#[derive(Clone, Copy)]
pub struct LineTest(pub(crate) fn(Tokens<'_>) -> bool);

impl std::fmt::Debug for LineTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LineTest")
    }
}

impl Command {
    /// Returns whether the command may change something, with these tokens behind its key.
    pub(crate) fn may_write(&self, tokens: Tokens<'_>) -> bool {
        match self.effect {
            Effect::Reads | Effect::Asks => false,
            Effect::AsksAndWrites(_, LineTest(holds)) => holds(tokens),
            Effect::Writes(_) | Effect::Removes(_) | Effect::Counts(_) | Effect::Turns => true,
        }
    }

    /// The names of its changes of a key; `None` if it changes no key.
    pub(crate) fn change(&self) -> Option<&Change> {
        match &self.effect {
            Effect::Writes(change)
            | Effect::Removes(change)
            | Effect::Counts(change)
            | Effect::AsksAndWrites(change, _) => Some(change),
            Effect::Reads | Effect::Asks | Effect::Turns => None,
        }
    }

    /// Returns whether a key that is not there is an event.
    pub(crate) fn asks(&self) -> bool {
        matches!(self.effect, Effect::Asks | Effect::AsksAndWrites(..))
    }
}

/// A command on an item, with its effect.
const fn item(
    name: &'static str,
    usage: &'static str,
    effect: Effect,
    summary: &'static str,
    replies: &'static [&'static str],
) -> Command {
    Command { name, usage, summary, replies, effect, answers_always: false, run: Run::Item }
}

const SETS: Effect = Effect::Writes(Change::SET);
const APPENDS: Effect = Effect::Writes(Change::APPEND);
const COUNTS: Effect = Effect::Writes(Change::INCRBY);
const TOUCHES: Effect = Effect::AsksAndWrites(Change::KEY, LineTest(|_| true));
/// mg makes an item with N, and gives it a time with T.
const VIVIFIES: Effect = Effect::AsksAndWrites(
    Change::SET,
    LineTest(|mut tokens| tokens.any(|flag| matches!(flag.first(), Some(b'N' | b'T')))),
);

const fn line(
    name: &'static str,
    usage: &'static str,
    summary: &'static str,
    replies: &'static [&'static str],
    run: fn(&mut Line<'_, '_, '_, '_>) -> Flow,
) -> Command {
    Command {
        name,
        usage,
        summary,
        replies,
        effect: Effect::Turns,
        answers_always: false,
        run: Run::Line(LineCommand(run)),
    }
}

/// Makes it a command that changes nothing.
const fn reads(command: Command) -> Command {
    Command { effect: Effect::Reads, ..command }
}

/// Makes it a command that is answered whatever follows it.
const fn answered(command: Command) -> Command {
    Command { answers_always: true, ..command }
}

const STORE: &str = "<key> <flags> <exptime> <bytes> [noreply]";
const STORED: &[&str] =
    &["STORED", "SERVER_ERROR object too large for cache", "SERVER_ERROR out of memory storing object"];
const CONDITIONALLY_STORED: &[&str] = &[
    "STORED",
    "NOT_STORED",
    "SERVER_ERROR object too large for cache",
    "SERVER_ERROR out of memory storing object",
];

/// The classic commands.
pub static CLASSIC: &[Command] = CLASSIC_ROWS;
/// The meta commands.
pub static META: &[Command] = META_ROWS;

const CLASSIC_ROWS: &[Command] = &[
    item("get", "<key>*", Effect::Asks, "Values of keys that are there.", &["VALUE", "END"]),
    item("gets", "<key>*", Effect::Asks, "As get, with CAS tokens.", &["VALUE", "END"]),
    item("set", STORE, SETS, "Stores a value.", STORED),
    item("add", STORE, SETS, "Stores a value under a key that has none.", CONDITIONALLY_STORED),
    item("replace", STORE, SETS, "Stores a value under a key that has one.", CONDITIONALLY_STORED),
    item("append", STORE, APPENDS, "Adds behind a value; flags and exptime stay.", CONDITIONALLY_STORED),
    item(
        "prepend",
        STORE,
        APPENDS,
        "Adds in front of a value; flags and exptime stay.",
        CONDITIONALLY_STORED,
    ),
    item(
        "cas",
        "<key> <flags> <exptime> <bytes> <cas> [noreply]",
        SETS,
        "Stores a value if the item still has this token.",
        &["STORED", "EXISTS", "NOT_FOUND", "SERVER_ERROR object too large for cache"],
    ),
    item(
        "delete",
        "<key> [noreply]",
        Effect::Removes(Change::KEY),
        "Removes an item.",
        &["DELETED", "NOT_FOUND"],
    ),
    item(
        "incr",
        "<key> <delta> [noreply]",
        COUNTS,
        "Adds to a number, wrapping at 2^64.",
        &["<number>", "NOT_FOUND", "CLIENT_ERROR cannot increment or decrement non-numeric value"],
    ),
    item(
        "decr",
        "<key> <delta> [noreply]",
        COUNTS,
        "Takes from a number, stopping at 0.",
        &["<number>", "NOT_FOUND", "CLIENT_ERROR cannot increment or decrement non-numeric value"],
    ),
    item(
        "touch",
        "<key> <exptime> [noreply]",
        Effect::Writes(Change::KEY),
        "Sets an item's exptime.",
        &["TOUCHED", "NOT_FOUND", "SERVER_ERROR out of memory storing object"],
    ),
    item("gat", "<exptime> <key>*", TOUCHES, "As get, setting exptimes.", &["VALUE", "END"]),
    item("gats", "<exptime> <key>*", TOUCHES, "As gets, setting exptimes.", &["VALUE", "END"]),
    line(
        "flush_all",
        "[delay] [noreply]",
        "Removes everything, now or after a delay.",
        &["OK", "CLIENT_ERROR invalid exptime argument", "CLIENT_ERROR flush_all not allowed"],
        admin::flush_all,
    ),
    answered(reads(line("version", "", "The version.", &["VERSION"], admin::version))),
    reads(line(
        "verbosity",
        "<level> [noreply]",
        "Sets how much is logged, 0 to 2.",
        &["OK", "ERROR"],
        admin::verbosity,
    )),
    reads(line("quit", "", "Closes the connection.", &[], admin::quit)),
    line(
        "shutdown",
        "[graceful]",
        "Stops the server, if it was started with -A.",
        &["SERVER_ERROR: shutdown not enabled", "CLIENT_ERROR invalid shutdown mode"],
        admin::shutdown,
    ),
    line(
        "cache_memlimit",
        "<megabytes> [noreply]",
        "Sets the memory limit.",
        &["OK", "ERROR", "MEMLIMIT_TOO_SMALL", "MEMLIMIT_ADJUST_FAILED"],
        admin::cache_memlimit,
    ),
    answered(line(
        "watch",
        "[fetchers|mutations|evictions|connevents|deletions|sysevents|rawcmds|proxyreqs|proxyevents|proxyuser …]",
        "Sends a line for each event until the connection ends; what comes on it is not read.",
        &["OK", "CLIENT_ERROR", "WATCHER_TOO_MANY", "ERROR"],
        watch::watch,
    )),
    reads(answered(line(
        "stats",
        "[settings|items|slabs|sizes|conns|memory|types|doctor|hotkeys|prefixes|forecast|latency|commands|reset|detail on|off|dump|cachedump <class> <items>]",
        "Figures of the server, its store and its connections.",
        &["STAT", "END", "RESET", "OK", "PREFIX", "ITEM", "CLIENT_ERROR", "ERROR"],
        admin::stats,
    ))),
    line(
        "lru",
        "tune <hot%> <warm%> <hot factor> <warm factor> | mode flat|segmented | temp_ttl <seconds>",
        "Checked and answered as memcached does; without effect, because there are no LRU lists.",
        &["OK", "ERROR"],
        admin::lru,
    ),
    line(
        "slabs",
        "reassign <from|-1|0> <to|0> | automove 0|1|2 | automove ratio|freeratio|window <n>",
        "Moves a page of memory to another class, and answers when it has; other connections have their turn meanwhile; sets when memory moves by itself: 0 never, 1 to \
         classes that evict sooner than others, 2 always from the class that was used least recently.",
        &["OK", "BUSY", "BADCLASS", "NOSPARE", "SAME", "CLIENT_ERROR", "ERROR"],
        admin::slabs,
    ),
    line(
        "lru_crawler",
        "enable | disable | sleep <us> | tocrawl <n> | crawl <ids|all> | metadump <ids|all|hash> | mgdump <ids|all|hash>",
        "Dumps keys; enable, disable, sleep, tocrawl and crawl are answered as memcached does.",
        &["OK", "BADCLASS invalid class id", "CLIENT_ERROR", "ERROR"],
        admin::lru_crawler,
    ),
    answered(line(
        "refresh_certs",
        "",
        "Reads TLS certificates and keys again; open connections keep theirs.",
        &["OK", "Error TLS not enabled", "Error loading", "Error validating"],
        admin::refresh_certs,
    )),
    line(
        "debugtime",
        "p | r | <seconds>",
        "Stops, resumes or moves the server's clock, with -o relaxed_privileges.",
        &["OK", "ERROR"],
        admin::debugtime,
    ),
];

const META_ROWS: &[Command] = &[
    item(
        "mg",
        "<key> <flag>*",
        VIVIFIES,
        "Gets; flags b c C E f h k l N O q R s t T u v.",
        &["VA", "HD", "EN"],
    ),
    item(
        "ms",
        "<key> <bytes> <flag>*",
        SETS,
        "Stores; flags b c C E F I k M N O q s T.",
        &["HD", "NS", "EX", "NF"],
    ),
    item(
        "md",
        "<key> <flag>*",
        Effect::Removes(Change::SET),
        "Deletes or marks stale; flags b C E I k O q T x.",
        &["HD", "NF", "EX"],
    ),
    item(
        "ma",
        "<key> <flag>*",
        Effect::Counts(Change::INCRBY),
        "Adds to or takes from a number; flags b c C D E J k M N O q t T v.",
        &["HD", "VA", "NF", "EX"],
    ),
    item("mn", "", Effect::Reads, "Answers, so that what was quiet before it is known to be done.", &["MN"]),
    item("me", "<key> <flag>*", Effect::Reads, "An item's internals; flag b.", &["ME", "EN"]),
];

const _: () = assert!(CLASSIC_ROWS.len() + META_ROWS.len() <= MEMCACHED_ROWS_MAX);

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let (mut byte, mut same) = (0, one.len() == other.len());
    while same && byte < one.len() {
        same = one[byte] == other[byte];
        byte += 1;
    }
    same
}

/// The place of the row of this name among these; the number of rows if none has it.
const fn place(rows: &[Command], name: &str) -> usize {
    let mut at = 0;
    while at < rows.len() && !is_same(rows[at].name, name) {
        at += 1;
    }
    at
}

/// The row of this name, which must be there.
const fn row(rows: &'static [Command], name: &str) -> &'static Command {
    let at = place(rows, name);
    assert!(at < rows.len(), "no command of this name");
    &rows[at]
}

/// The number of the command of this name, which must be there: its place among the classic and then the meta commands.
pub(crate) const fn number(name: &str) -> RowId {
    let mut at = place(CLASSIC_ROWS, name);
    if at == CLASSIC_ROWS.len() {
        at += place(META_ROWS, name);
        assert!(at < CLASSIC_ROWS.len() + META_ROWS.len(), "no command of this name");
    }
    at as RowId
}

/// The names of all commands, by their numbers: for rows whose commands show counts of each.
pub(crate) static NAMES: [&str; CLASSIC_ROWS.len() + META_ROWS.len()] = {
    let mut names = [""; CLASSIC_ROWS.len() + META_ROWS.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = match at.checked_sub(CLASSIC_ROWS.len()) {
            Some(at) => META_ROWS[at].name,
            None => CLASSIC_ROWS[at].name,
        };
        at += 1;
    }
    names
};

/// The row of a request that names an item. Verbs whose rows say the same about keys share one.
pub(crate) fn row_of(request: &Request<'_>) -> &'static Command {
    const GET: &Command = row(CLASSIC_ROWS, "get");
    const GAT: &Command = row(CLASSIC_ROWS, "gat");
    const DELETE: &Command = row(CLASSIC_ROWS, "delete");
    const INCR: &Command = row(CLASSIC_ROWS, "incr");
    const TOUCH: &Command = row(CLASSIC_ROWS, "touch");
    match request {
        Request::Fetch(Fetch { touch: None, .. }) => GET,
        Request::Fetch(Fetch { touch: Some(_), .. }) => GAT,
        Request::Store(store) => row_of_store(store.verb),
        Request::Delete { .. } => DELETE,
        Request::Arithmetic { .. } => INCR,
        Request::Touch { .. } => TOUCH,
        Request::Meta(meta) => row_of_meta(meta.verb),
        Request::Line(_) | Request::Fault { .. } => unreachable!("these name no item"),
    }
}

/// The row of a classic store.
pub(crate) fn row_of_store(verb: StoreVerb) -> &'static Command {
    const SET: &Command = row(CLASSIC_ROWS, "set");
    const ADD: &Command = row(CLASSIC_ROWS, "add");
    const REPLACE: &Command = row(CLASSIC_ROWS, "replace");
    const APPEND: &Command = row(CLASSIC_ROWS, "append");
    const PREPEND: &Command = row(CLASSIC_ROWS, "prepend");
    const CAS: &Command = row(CLASSIC_ROWS, "cas");
    match verb {
        StoreVerb::Set => SET,
        StoreVerb::Add => ADD,
        StoreVerb::Replace => REPLACE,
        StoreVerb::Append => APPEND,
        StoreVerb::Prepend => PREPEND,
        StoreVerb::Cas => CAS,
    }
}

/// The row of a meta command.
pub(crate) fn row_of_meta(verb: Verb) -> &'static Command {
    const MG: &Command = row(META_ROWS, "mg");
    const MS: &Command = row(META_ROWS, "ms");
    const MD: &Command = row(META_ROWS, "md");
    const MA: &Command = row(META_ROWS, "ma");
    const MN: &Command = row(META_ROWS, "mn");
    const ME: &Command = row(META_ROWS, "me");
    match verb {
        Verb::Get => MG,
        Verb::Set => MS,
        Verb::Delete => MD,
        Verb::Arithmetic => MA,
        Verb::Noop => MN,
        Verb::Debug => ME,
    }
}

/// The row of this name.
pub(crate) fn find(name: &[u8]) -> Option<&'static Command> {
    CLASSIC.iter().chain(META).find(|row| row.name.as_bytes() == name)
}

/// The line command of this name, and its row.
pub(crate) fn line_command(name: &[u8]) -> Option<(LineCommand, &'static Command)> {
    CLASSIC.iter().find(|row| row.name.as_bytes() == name).and_then(|row| match row.run {
        Run::Line(command) => Some((command, row)),
        Run::Item => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::calls::{RowSum, measured};
    use larder_protocol::classic::{Decoded, decode};

    #[test]
    fn the_decoder_knows_exactly_the_item_commands() {
        for row in CLASSIC.iter().chain(META) {
            // Enough tokens for any of them.
            let text = format!("{} 1 2 3 4 5\r\n", row.name);
            let Decoded::Request(request, _) = decode(text.as_bytes()) else { panic!("{}", row.name) };
            let is_line = matches!(request, Request::Line(_));
            assert_eq!(is_line, matches!(row.run, Run::Line(_)), "{}", row.name);
            if !is_line && !matches!(request, Request::Fault { .. }) {
                let found = row_of(&request);
                assert_eq!(found.change(), row.change(), "{}", row.name);
                assert_eq!(found.asks(), row.asks(), "{}", row.name);
            }
        }
    }

    #[test]
    fn numbers_are_places_in_the_table() {
        for (place, row) in CLASSIC.iter().chain(META).enumerate() {
            assert_eq!(number(row.name) as usize, place, "{}", row.name);
            assert_eq!(NAMES[place], row.name);
        }
        let mut sums = vec![RowSum::default(); CLASSIC.len() + META.len()];
        for name in ["set", "me"] {
            sums[number(name) as usize].measured = 1;
        }
        assert_eq!(measured(&NAMES, &sums).map(|(name, _)| name).collect::<Vec<_>>(), ["set", "me"]);
        assert_eq!(measured(&NAMES, &sums[..3]).count(), 1, "sums end with the last that is not 0");
    }

    #[test]
    fn no_name_comes_twice() {
        let mut names: Vec<_> = CLASSIC.iter().chain(META).map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CLASSIC.len() + META.len());
    }
}
