//! The RESP commands, one row each. Commands are run by their rows, and COMMAND and the documentation are made from them.
//!
//! Groups list commands with their functions. At compile time this module numbers them all, and parts rows from functions: a
//! row's function is found by its number.

use super::definition::{Definition, Function};
use super::row::Command;
pub use super::rows::Group;
use super::rows::Rows;
use crate::core::calls::{ROWS_MAX, RowId};

/// All commands, by group.
pub static REDIS: &[Group] = &GROUPS;

/// All commands as a value, for modules below this one.
pub(crate) static ROWS: Rows = Rows { groups: &GROUPS, find, row, sub };

/// A group, as its module lists its commands.
struct List {
    name: &'static str,
    category: Option<&'static str>,
    rows: &'static [Definition],
}

const LISTS: &[List] = &[
    List { name: "string", category: Some("string"), rows: super::strings::ROWS },
    List { name: "hash", category: Some("hash"), rows: super::collections::hash::ROWS },
    List { name: "list", category: Some("list"), rows: super::collections::list::ROWS },
    List { name: "set", category: Some("set"), rows: super::collections::set::ROWS },
    List { name: "sorted-set", category: Some("sortedset"), rows: super::collections::sorted::ROWS },
    List { name: "stream", category: Some("stream"), rows: super::collections::stream::ROWS },
    List { name: "generic", category: Some("keyspace"), rows: super::keys::ROWS },
    List { name: "bitmap", category: Some("bitmap"), rows: crate::redis::strings::bitmap::ROWS },
    List { name: "geo", category: Some("geo"), rows: super::collections::geo::ROWS },
    List {
        name: "hyperloglog",
        category: Some("hyperloglog"),
        rows: crate::redis::strings::hyperloglog::ROWS,
    },
    List { name: "pubsub", category: Some("pubsub"), rows: super::pubsub::ROWS },
    List { name: "transactions", category: Some("transaction"), rows: super::transactions::ROWS },
    List { name: "scripting", category: Some("scripting"), rows: super::scripts::ROWS },
    List { name: "connection", category: Some("connection"), rows: super::connection::ROWS },
    List { name: "cluster", category: None, rows: crate::redis::server::absent::ROWS },
    List { name: "server", category: None, rows: super::server::ROWS },
];

/// How many commands and subcommands there are.
const ROWS_COUNT: usize = {
    let (mut count, mut group) = (0, 0);
    while group < LISTS.len() {
        let rows = LISTS[group].rows;
        let mut row = 0;
        while row < rows.len() {
            count += 1 + rows[row].subcommands.len();
            row += 1;
        }
        group += 1;
    }
    assert!(count <= ROWS_MAX, "each command has a place among what is counted");
    count
};

/// How many commands there are, without subcommands.
const COMMANDS_COUNT: usize = {
    let (mut count, mut group) = (0, 0);
    while group < LISTS.len() {
        count += LISTS[group].rows.len();
        group += 1;
    }
    count
};

/// A row, its function, and its subcommands.
#[derive(Clone, Copy)]
struct Numbered {
    row: &'static Command,
    function: Function,
    /// The number of its first subcommand.
    subcommands: u16,
}

/// Fails to compile if a row is incomplete; the compiler's message has its name, and what is wrong.
const fn check(row: &Command) {
    let Some(fault) = row.fault() else { return };
    let (mut text, mut len) = ([0; 256], 0);
    let parts = [row.name, ": ", fault];
    let mut part = 0;
    while part < parts.len() {
        let bytes = parts[part].as_bytes();
        let mut at = 0;
        while at < bytes.len() && len < text.len() {
            text[len] = bytes[at];
            (at, len) = (at + 1, len + 1);
        }
        part += 1;
    }
    match std::str::from_utf8(text.split_at(len).0) {
        Ok(text) => panic!("{}", text),
        Err(_) => panic!("a row's name is no text"),
    }
}

/// Makes the row of a command with this number and these subcommands.
const fn row_of(definition: &Definition, id: usize, subcommands: &'static [Command]) -> Command {
    let row = definition.row(id as RowId, subcommands);
    check(&row);
    row
}

/// The rows of all subcommands, by number: command by command, group by group.
static SUBCOMMANDS: [Command; ROWS_COUNT - COMMANDS_COUNT] = {
    let mut all = [row_of(&LISTS[0].rows[0], 0, &[]); ROWS_COUNT - COMMANDS_COUNT];
    let (mut at, mut group) = (0, 0);
    while group < LISTS.len() {
        let rows = LISTS[group].rows;
        let mut row = 0;
        while row < rows.len() {
            let subcommands = rows[row].subcommands;
            let mut sub = 0;
            while sub < subcommands.len() {
                all[at] = row_of(&subcommands[sub], COMMANDS_COUNT + at, &[]);
                at += 1;
                sub += 1;
            }
            row += 1;
        }
        group += 1;
    }
    all
};

/// The rows of all commands, by their numbers: group by group.
static COMMANDS: [Command; COMMANDS_COUNT] = {
    let mut all = [row_of(&LISTS[0].rows[0], 0, &[]); COMMANDS_COUNT];
    let mut subcommands: &[Command] = &SUBCOMMANDS;
    let (mut at, mut group) = (0, 0);
    while group < LISTS.len() {
        let rows = LISTS[group].rows;
        let mut row = 0;
        while row < rows.len() {
            let (own, others) = subcommands.split_at(rows[row].subcommands.len());
            all[at] = row_of(&rows[row], at, own);
            subcommands = others;
            at += 1;
            row += 1;
        }
        group += 1;
    }
    all
};

/// The groups of these rows.
static GROUPS: [Group; LISTS.len()] = {
    let mut all = [Group { name: "", category: None, rows: &[] }; LISTS.len()];
    let mut rows: &[Command] = &COMMANDS;
    let mut group = 0;
    while group < LISTS.len() {
        let list = &LISTS[group];
        let (own, others) = rows.split_at(list.rows.len());
        all[group] = Group { name: list.name, category: list.category, rows: own };
        rows = others;
        group += 1;
    }
    all
};

/// All rows by number: commands, group by group, and behind them all subcommands.
static NUMBERED: [Numbered; ROWS_COUNT] = {
    let none = Numbered { row: &COMMANDS[0], function: Function::Container, subcommands: 0 };
    let mut all = [none; ROWS_COUNT];
    let mut next = COMMANDS_COUNT;
    let (mut at, mut group) = (0, 0);
    while group < LISTS.len() {
        let rows = LISTS[group].rows;
        let mut row = 0;
        while row < rows.len() {
            let function = rows[row].function;
            all[at] = Numbered { row: &COMMANDS[at], function, subcommands: next as u16 };
            let subcommands = rows[row].subcommands;
            let mut sub = 0;
            while sub < subcommands.len() {
                let (row, function) = (&SUBCOMMANDS[next - COMMANDS_COUNT], subcommands[sub].function);
                all[next] = Numbered { row, function, subcommands: 0 };
                next += 1;
                sub += 1;
            }
            at += 1;
            row += 1;
        }
        group += 1;
    }
    all
};

/// Slots of [`INDEX`]: a power of two, several times as many as there are commands.
const INDEX_SLOTS: usize = 1024;

/// A place in [`INDEX`].
#[derive(Clone, Copy)]
struct Entry {
    hash: u64,
    /// The bytes of a name of up to eight, and the bits that differ between upper and lower case.
    bytes: u64,
    cases: u64,
    /// The command's number, or [`NO_ROW`].
    row: u16,
    len: u16,
}

impl Entry {
    const NONE: Entry = Entry { hash: 0, bytes: 0, cases: 0, row: NO_ROW, len: 0 };

    const fn of(name: &[u8], row: usize) -> Entry {
        let (bytes, mut cases, mut at) = (short(name), 0, 0);
        while at < name.len() && at < 8 {
            if name[at].is_ascii_alphabetic() {
                cases |= 0x20 << (8 * at);
            }
            at += 1;
        }
        Entry { hash: hash(name), bytes, cases, row: row as u16, len: name.len() as u16 }
    }

    /// Whether it is the command of this name. Their hashes are equal.
    #[inline(always)]
    fn is(&self, name: &[u8]) -> bool {
        if name.len() > 8 {
            return name.eq_ignore_ascii_case(NUMBERED[usize::from(self.row)].row.name.as_bytes());
        }
        usize::from(self.len) == name.len() && (short(name) ^ self.bytes) & !self.cases == 0
    }
}

const NO_ROW: u16 = u16::MAX;

static INDEX: [Entry; INDEX_SLOTS] = {
    let mut index = [Entry::NONE; INDEX_SLOTS];
    let mut row = 0;
    while row < COMMANDS_COUNT {
        let entry = Entry::of(NUMBERED[row].row.name.as_bytes(), row);
        let mut at = slot(entry.hash);
        while index[at].row != NO_ROW {
            at = (at + 1) % INDEX_SLOTS;
        }
        index[at] = entry;
        row += 1;
    }
    index
};

/// A hash of the name in lower case; different for all names of up to eight bytes.
#[inline(always)]
const fn hash(name: &[u8]) -> u64 {
    const LOWER: u64 = 0x2020_2020_2020_2020;
    match (name.first_chunk(), name.last_chunk()) {
        (Some(first), Some(last)) => {
            let (first, last) = (u64::from_le_bytes(*first) | LOWER, u64::from_le_bytes(*last) | LOWER);
            if name.len() == 8 { first } else { first ^ last.rotate_left(29) ^ name.len() as u64 }
        }
        _ => short(name) | (LOWER & !(u64::MAX << (8 * name.len()))),
    }
}

/// The first bytes of a name, at most eight, as a number. In few operations, since each request needs it.
#[inline(always)]
const fn short(name: &[u8]) -> u64 {
    if let Some(all) = name.first_chunk() {
        return u64::from_le_bytes(*all);
    }
    let len = name.len();
    if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        return u32::from_le_bytes(*first) as u64 | (u32::from_le_bytes(*last) as u64) << (8 * (len - 4));
    }
    match *name {
        [] => 0,
        [a] => a as u64,
        [a, b] => a as u64 | (b as u64) << 8,
        [a, b, c, ..] => a as u64 | (b as u64) << 8 | (c as u64) << 16,
    }
}

#[inline(always)]
const fn slot(hash: u64) -> usize {
    (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize
}

/// Finds the row of this name.
#[inline]
pub(crate) fn find(name: &[u8]) -> Option<(&'static Command, RowId)> {
    let hash = hash(name);
    let mut at = slot(hash);
    loop {
        let entry = &INDEX[at];
        if entry.row == NO_ROW {
            return None;
        }
        if entry.hash == hash && entry.is(name) {
            return Some((NUMBERED[usize::from(entry.row)].row, RowId::from(entry.row)));
        }
        at = (at + 1) % INDEX_SLOTS;
    }
}

/// The number of a command that exists.
pub(crate) const fn id_of(name: &str) -> RowId {
    let mut row = 0;
    while row < COMMANDS_COUNT {
        let other = NUMBERED[row].row.name;
        if other.len() == name.len() && hash(other.as_bytes()) == hash(name.as_bytes()) && name.len() <= 8 {
            return row as RowId;
        }
        row += 1;
    }
    panic!("no command of this name, or a long one")
}

/// The number of a container's subcommand.
pub(crate) fn sub(container: RowId, at: usize) -> RowId {
    RowId::from(NUMBERED[container as usize].subcommands) + at as RowId
}

/// The function of the row with this number, which exists.
#[inline]
pub(crate) fn function(id: RowId) -> Function {
    NUMBERED[id as usize].function
}

/// The row with this number.
pub(crate) fn row(id: RowId) -> Option<&'static Command> {
    NUMBERED.get(id as usize).map(|numbered| numbered.row)
}

/// The name of the row with this number, as CLIENT LIST shows it.
pub(crate) fn name_of(id: RowId) -> &'static str {
    row(id).map_or("NULL", |row| row.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::row::{Channels, Keys, Run, flag};

    #[test]
    fn every_row_is_found_in_any_case_and_nothing_else_is() {
        for (group, row) in ROWS.all() {
            for name in [row.name.to_owned(), row.name.to_uppercase()] {
                assert_eq!(find(name.as_bytes()).expect(row.name).0.name, row.name);
                let id = find(name.as_bytes()).expect(row.name).1;
                assert_eq!(super::row(id).expect("a row").name, row.name);
                assert_eq!(ROWS.group_of(id).expect("a group").name, group.name);
                for (at, subcommand) in row.subcommands().iter().enumerate() {
                    assert_eq!(super::row(sub(id, at)).expect("a row").name, subcommand.name);
                }
            }
            assert!(find(format!("{}_", row.name).as_bytes()).is_none());
        }
        let mut count = 0;
        for (id, _, row) in ROWS.numbered() {
            assert_eq!(super::row(id).expect("a row").name, row.name);
            count += 1;
        }
        assert!(super::row(count).is_none());
        assert!(find(b"").is_none());
    }

    #[test]
    fn every_row_has_its_number_and_a_function_of_its_kind() {
        for (id, _, row) in ROWS.numbered() {
            assert_eq!(row.id, id, "{}", row.name);
            let fits = match function(id) {
                Function::Key(_) => matches!(row.run, Run::Key),
                Function::Args(_) => matches!(row.run, Run::Args),
                Function::Container => matches!(row.run, Run::Container(_)),
            };
            assert!(fits, "{}", row.name);
        }
    }

    #[test]
    fn a_name_that_differs_in_any_bit_is_another() {
        for (_, row) in ROWS.all() {
            for bit in 0..8 * row.name.len() {
                let mut name = row.name.as_bytes().to_vec();
                name[bit / 8] ^= 1 << (bit % 8);
                let is = |row: &&Command| row.name.as_bytes().eq_ignore_ascii_case(&name);
                let expected = ROWS.all().map(|(_, row)| row).find(is).map(|row| row.name);
                assert_eq!(find(&name).map(|(row, _)| row.name), expected, "{name:?}");
            }
        }
    }

    #[test]
    fn rows_say_what_they_are() {
        for (_, row) in ROWS.all() {
            assert!(!row.summary.is_empty(), "{}", row.name);
            assert_eq!(row.name, row.name.to_lowercase());
            assert_eq!(row.words(), 1, "{}", row.name);
            for (at, sub) in row.subcommands().iter().enumerate() {
                assert!(sub.name.starts_with(&format!("{}|", row.name)), "{}", sub.name);
                assert_eq!(sub.words(), 2, "{}", sub.name);
                assert_eq!(row.subcommand(sub.short_name().to_uppercase().as_bytes()), Some(at));
                assert!(!sub.summary.is_empty(), "{}", sub.name);
            }
            if matches!(row.run, Run::Key) {
                assert!(matches!(row.keys, Keys::Range { first: 1, last: 1, step: 1 }), "{}", row.name);
                // It is read ahead, where nothing else is asked of it.
                let asked = flag::NO_AUTH | flag::GUARDED | flag::SHOWS_KEYS | flag::FLUSHES | flag::BLOCKING;
                assert!(!row.has(asked) && row.channels == Channels::None, "{}", row.name);
            }
        }
    }

    #[test]
    fn exec_leaves_out_no_command_of_administrators_that_others_rely_on() {
        // What looks, or fails, or forgets figures: a client that has EXEC look through so much can do without.
        let left_out = "acl|dryrun acl|getuser acl|list acl|log acl|users bgrewriteaof bgsave client|list \
            commandlog|get commandlog|len config|get config|resetstat config|rewrite hotkeys|get hotkeys|reset \
            hotkeys|start hotkeys|stop latency|doctor latency|graph latency|histogram latency|history \
            latency|latest latency|reset module|list module|load module|loadex module|unload monitor \
            slowlog|get slowlog|len";
        let left_out: Vec<&str> = left_out.split_whitespace().collect();
        for (_, _, row) in ROWS.numbered() {
            let concerns = row.has(flag::ADMIN) && !row.has(flag::NO_MULTI) && row.subcommands().is_empty();
            if concerns && !row.changes() && !row.name.starts_with("debug|") {
                assert_ne!(row.has(flag::SETTLES), left_out.contains(&row.name), "{}", row.name);
            }
        }
    }
}
