//! The commands of the memcached text protocols: one row each. Lines that name no item are run from
//! here; item commands are decoded to a request and run from the batch, and a test holds the rows to
//! the decoder. Documentation is generated from the rows.

use super::admin::{self, Line};
use super::flow::Flow;

/// How a command is run.
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
    /// What follows the name.
    pub usage: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// First words of its replies, in the order of their likelihood.
    pub replies: &'static [&'static str],
    /// How it is run.
    pub run: Run,
}

const fn item(
    name: &'static str,
    usage: &'static str,
    summary: &'static str,
    replies: &'static [&'static str],
) -> Command {
    Command { name, usage, summary, replies, run: Run::Item }
}

const fn line(
    name: &'static str,
    usage: &'static str,
    summary: &'static str,
    replies: &'static [&'static str],
    run: fn(&mut Line<'_, '_, '_, '_>) -> Flow,
) -> Command {
    Command { name, usage, summary, replies, run: Run::Line(LineCommand(run)) }
}

/// A `noreply` behind these is a word like any other: clients ask for the version with words behind it.
pub(crate) fn answers_always(name: &[u8]) -> bool {
    matches!(name, b"version" | b"stats" | b"refresh_certs")
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
pub static CLASSIC: &[Command] = &[
    item("get", "<key>*", "Values of keys that are there.", &["VALUE", "END"]),
    item("gets", "<key>*", "As get, with CAS tokens.", &["VALUE", "END"]),
    item("set", STORE, "Stores a value.", STORED),
    item("add", STORE, "Stores a value under a key that has none.", CONDITIONALLY_STORED),
    item("replace", STORE, "Stores a value under a key that has one.", CONDITIONALLY_STORED),
    item("append", STORE, "Adds behind a value; flags and exptime stay.", CONDITIONALLY_STORED),
    item("prepend", STORE, "Adds in front of a value; flags and exptime stay.", CONDITIONALLY_STORED),
    item(
        "cas",
        "<key> <flags> <exptime> <bytes> <cas> [noreply]",
        "Stores a value if the item still has this token.",
        &["STORED", "EXISTS", "NOT_FOUND", "SERVER_ERROR object too large for cache"],
    ),
    item("delete", "<key> [noreply]", "Removes an item.", &["DELETED", "NOT_FOUND"]),
    item(
        "incr",
        "<key> <delta> [noreply]",
        "Adds to a number, wrapping at 2^64.",
        &["<number>", "NOT_FOUND", "CLIENT_ERROR cannot increment or decrement non-numeric value"],
    ),
    item(
        "decr",
        "<key> <delta> [noreply]",
        "Takes from a number, stopping at 0.",
        &["<number>", "NOT_FOUND", "CLIENT_ERROR cannot increment or decrement non-numeric value"],
    ),
    item(
        "touch",
        "<key> <exptime> [noreply]",
        "Sets an item's exptime.",
        &["TOUCHED", "NOT_FOUND", "SERVER_ERROR out of memory storing object"],
    ),
    item("gat", "<exptime> <key>*", "As get, setting exptimes.", &["VALUE", "END"]),
    item("gats", "<exptime> <key>*", "As gets, setting exptimes.", &["VALUE", "END"]),
    line(
        "flush_all",
        "[delay] [noreply]",
        "Removes everything, now or after a delay.",
        &["OK", "CLIENT_ERROR invalid exptime argument", "CLIENT_ERROR flush_all not allowed"],
        admin::flush_all,
    ),
    line("version", "", "The version.", &["VERSION"], admin::version),
    line(
        "verbosity",
        "<level> [noreply]",
        "Sets how much is logged, 0 to 2.",
        &["OK", "ERROR"],
        admin::verbosity,
    ),
    line("quit", "", "Closes the connection.", &[], admin::quit),
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
    line(
        "stats",
        "[settings|items|slabs|sizes|conns|reset|detail on|off|dump|cachedump <class> <items>]",
        "Figures of the server, its store and its connections.",
        &["STAT", "END", "RESET", "OK", "PREFIX", "ITEM", "CLIENT_ERROR", "ERROR"],
        admin::stats,
    ),
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
         classes that evict sooner than others, 2 always from the class that was used least lately.",
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
    line(
        "refresh_certs",
        "",
        "Reads TLS certificates anew; there is no TLS.",
        &["Error TLS not enabled"],
        admin::refresh_certs,
    ),
    line(
        "debugtime",
        "p | r | <seconds>",
        "Stops, resumes or moves the server's clock, with -o relaxed_privileges.",
        &["OK", "ERROR"],
        admin::debugtime,
    ),
];

/// The meta commands.
pub static META: &[Command] = &[
    item("mg", "<key> <flag>*", "Gets; flags b c C E f h k l N O q R s t T u v.", &["VA", "HD", "EN"]),
    item(
        "ms",
        "<key> <bytes> <flag>*",
        "Stores; flags b c C E F I k M N O q s T.",
        &["HD", "NS", "EX", "NF"],
    ),
    item("md", "<key> <flag>*", "Deletes or marks stale; flags b C E I k O q T x.", &["HD", "NF", "EX"]),
    item(
        "ma",
        "<key> <flag>*",
        "Adds to or takes from a number; flags b c C D E J k M N O q t T v.",
        &["HD", "VA", "NF", "EX"],
    ),
    item("mn", "", "Answers, so that what was quiet before it is known to be done.", &["MN"]),
    item("me", "<key> <flag>*", "An item's internals; flag b.", &["ME", "EN"]),
];

/// The line command of this name.
pub(crate) fn line_command(name: &[u8]) -> Option<LineCommand> {
    CLASSIC.iter().find(|row| row.name.as_bytes() == name).and_then(|row| match row.run {
        Run::Line(command) => Some(command),
        Run::Item => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_protocol::classic::{Decoded, Request, decode};

    #[test]
    fn the_decoder_knows_exactly_the_item_commands() {
        for row in CLASSIC.iter().chain(META) {
            // Enough tokens for any of them.
            let text = format!("{} 1 2 3 4 5\r\n", row.name);
            let Decoded::Request(request, _) = decode(text.as_bytes()) else { panic!("{}", row.name) };
            let is_line = matches!(request, Request::Line(_));
            assert_eq!(is_line, matches!(row.run, Run::Line(_)), "{}", row.name);
        }
    }

    #[test]
    fn no_name_comes_twice() {
        let mut names: Vec<_> = CLASSIC.iter().chain(META).map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CLASSIC.len() + META.len());
    }
}
