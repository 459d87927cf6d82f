//! Documents that are generated from the server's tables: the committed ones must match the tables. `cargo
//! xtask tidy --write` writes them again.

use larder_commands::memcached::class_stats::{ClassSource, ITEM_KEYS, SLAB_KEYS};
use larder_commands::memcached::stats::{KEYS, Source};
use larder_commands::memcached::table::{CLASSIC, Command, META};
use larder_commands::redis::table::REDIS;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::slice::from_ref;

const NOTE: &str = "<!-- Generated from the tables in the code by `cargo xtask tidy --write`. -->\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn documents_say_what_the_tables_say() {
    let documents = [
        ("docs/compatibility.md", compatibility()),
        ("docs/metrics.md", metrics()),
        ("docs/options.md", options()),
        ("docs/redis.md", redis()),
        ("fuzz/dictionaries/resp.dict", words_of_resp()),
    ];
    let write = std::env::var_os("LARDER_WRITE_DOCUMENTS").is_some();
    for (name, text) in documents {
        let path = root().join(name);
        if write {
            fs::write(&path, &text).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        assert!(read(&path) == text, "{name} is out of date: cargo xtask tidy --write");
    }
}

fn options() -> String {
    format!(
        "# Options of `larder serve`\n\n{NOTE}\nmemcached's letters and names mean what they mean there. \
         What does not exist here is refused by name,\nwhat has nothing to act on is accepted and says so.\n\n{}",
        larder_server::markdown()
    )
}

fn metrics() -> String {
    let intro = include_str!("metrics.md").trim_end();
    format!("# Metrics\n\n{NOTE}\n{intro}\n{}", larder_server::metrics_markdown())
}

fn compatibility() -> String {
    let intro = include_str!("compatibility.md").trim_end();
    let mut page = format!("# What Larder shares with memcached\n\n{NOTE}\n{intro}\n");
    commands(&mut page, "Classic commands", CLASSIC);
    commands(&mut page, "Meta commands", META);
    page.push_str("\n## Statistics that are always 0\n\n");
    page.push_str("`stats` prints every key of memcached. These name what Larder does not have:\n\n");
    page.push_str("| key | why |\n|---|---|\n");
    for key in KEYS {
        if let Source::Absent(why) = key.source {
            // Writing into a string cannot fail.
            let _ = writeln!(page, "| `{}` | {why} |", key.name);
        }
    }
    for (command, prefix, keys) in [("items", "items:<class>:", ITEM_KEYS), ("slabs", "<class>:", SLAB_KEYS)]
    {
        let _ = write!(page, "\nOf `stats {command}`:\n\n| key | why |\n|---|---|\n");
        for key in keys {
            if let ClassSource::Absent(why) = key.source {
                let _ = writeln!(page, "| `{prefix}{}` | {why} |", key.name);
            }
        }
    }
    page
}

fn redis() -> String {
    let mut page =
        format!("# What Larder shares with Redis\n\n{NOTE}\n{}\n", include_str!("redis.md").trim_end());
    for group in REDIS {
        let _ = write!(
            page,
            "\n## Commands: {}\n\n| command | what it does | since | in `EXEC` |\n|---|---|---|---|\n",
            group.name
        );
        for row in group.rows.iter().flat_map(|row| [from_ref(row), row.subcommands()]).flatten() {
            let usage = format!("{} {}", row.name.to_uppercase().replace('|', " "), row.usage);
            let cell = |text: &str| text.replace('|', "\\|");
            let (usage, summary) = (cell(usage.trim()), cell(row.summary));
            let _ = writeln!(page, "| `{usage}` | {summary} | {} | {} |", row.since, row.bound().text());
        }
    }
    page.push_str(&differences());
    page
}

/// Words for fuzzers of RESP: frames of requests, unusual numbers, command names and words of the commands'
/// usage.
fn words_of_resp() -> String {
    const FRAMES: [&str; 15] = [
        r"*1\x0d\x0a$",
        r"*2\x0d\x0a$",
        r"*3\x0d\x0a$",
        r"*-1\x0d\x0a",
        r"$0\x0d\x0a\x0d\x0a",
        r"$-1\x0d\x0a",
        r"$1\x0d\x0aa\x0d\x0a",
        r"\x0d\x0a",
        "9223372036854775807",
        "-9223372036854775808",
        "-inf",
        "1e308",
        "u8",
        "i64",
        "#1",
    ];
    let mut words = BTreeSet::new();
    for row in
        REDIS.iter().flat_map(|group| group.rows).flat_map(|row| [from_ref(row), row.subcommands()]).flatten()
    {
        words.extend(row.name.split('|').map(str::to_uppercase));
        let usage = row.usage.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let said = |word: &&str| word.len() > 1 && !word.contains(|c: char| c.is_ascii_lowercase());
        words.extend(usage.filter(said).map(str::to_owned));
    }
    let mut text = "# Generated from the table of commands by `cargo xtask tidy --write`.\n".to_owned();
    for word in FRAMES.into_iter().chain(words.iter().map(String::as_str)) {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "\"{word}\"");
    }
    text
}

/// A row of `spec/redis-differs.list`: the servers, the command, their reply, Larder's reply, and the reason.
struct Differs<'a> {
    servers: Vec<&'a str>,
    command: String,
    theirs: &'a str,
    ours: &'a str,
    reason: &'a str,
}

impl<'a> Differs<'a> {
    fn parse(line: &'a str) -> Option<Differs<'a>> {
        let (row, reason) = line.rsplit_once(" : ")?;
        let [sent, theirs, ours] = row.split(" | ").collect::<Vec<_>>()[..] else { return None };
        let (servers, words): (Vec<&str>, Vec<&str>) =
            sent.split_whitespace().partition(|word| word.starts_with('@'));
        let row = Differs { servers, command: words.join(" "), theirs, ours, reason: reason.trim() };
        (!row.command.is_empty() && !row.reason.is_empty() && row.reason != "the same").then_some(row)
    }

    /// The row as a line of a Markdown table.
    fn cells(&self) -> String {
        let who = match self.servers[..] {
            [] => "all".to_owned(),
            _ => self.servers.iter().map(|name| name[1..].replace('-', " ")).collect::<Vec<_>>().join(", "),
        };
        let reply = |text: &str| format!("`{}`", text.replace('|', "\\|"));
        let (theirs, ours) = match (self.theirs, self.ours) {
            ("lacks", _) => ("not there, or does not come".to_owned(), "has it".to_owned()),
            ("in MULTI", _) => ("in `MULTI` none, or not its own".to_owned(), "its own".to_owned()),
            (theirs, ours) => (reply(theirs), reply(ours)),
        };
        format!("| `{}` | {who} | {theirs} | {ours} | {} |\n", self.command, self.reason)
    }
}

/// The documented differences in replies, from the list that the comparison uses.
fn differences() -> String {
    let text = read(&root().join("spec/redis-differs.list"));
    let mut page = "\n## Replies that differ\n\nRandom commands are sent to Redis 7.0 and 8.0, to Valkey 9.1 and to Larder, \
                    and every reply is compared\n(`cargo xtask conformance redis-differential`; of collections to the newer \
                    two, `redis-elements`). These are known to differ (`*`: anything):\n\n| command | server | its reply | Larder's | why |\n|---|---|---|---|---|\n"
        .to_owned();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let row = Differs::parse(line).unwrap_or_else(|| panic!("not understood, or no reason: {line}"));
        page.push_str(&row.cells());
    }
    page
}

fn commands(page: &mut String, title: &str, table: &[Command]) {
    let _ = write!(page, "\n## {title}\n\n| command | what it does | replies |\n|---|---|---|\n");
    for command in table {
        let usage = format!("{} {}", command.name, command.usage);
        let replies: Vec<String> = command.replies.iter().map(|reply| format!("`{reply}`")).collect();
        let cell = |text: &str| text.replace('|', "\\|");
        let _ = writeln!(
            page,
            "| `{}` | {} | {} |",
            cell(usage.trim()),
            cell(command.summary),
            cell(&replies.join(", "))
        );
    }
}

#[test]
fn a_known_difference_is_a_row_and_has_a_reason_of_its_own() {
    let cells = |line| Differs::parse(line).map(|row| row.cells());
    let row = cells("@Valkey-9.1 CLIENT REPLY | -ERR 'client|reply' | +QUEUED : why").expect("a row");
    assert_eq!(row, "| `CLIENT REPLY` | Valkey 9.1 | `-ERR 'client\\|reply'` | `+QUEUED` | why |\n");
    assert!(cells("WAIT | lacks | not sent : why").expect("a row").contains("| all | not there"));
    assert!(cells("A | b | c : the same").is_none());
    assert!(cells("A | b | c : ").is_none() && cells("A | b : c").is_none());
}
