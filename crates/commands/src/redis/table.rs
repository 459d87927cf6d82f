//! The RESP commands: one row each, from which they are run, and from which COMMAND and the
//! documentation speak.

mod kind;

use larder_protocol::resp::Args;

use super::call::{OfArgs, OfKey};
use crate::core::calls::{ROWS_MAX, RowSum};

/// What a command is like: Redis's own names for it.
pub mod flag {
    /// It may change a key.
    pub const WRITE: u32 = 1 << 0;
    /// It reads keys only.
    pub const READONLY: u32 = 1 << 1;
    /// It may need memory.
    pub const DENYOOM: u32 = 1 << 2;
    /// For administrators.
    pub const ADMIN: u32 = 1 << 3;
    /// Publishing and subscribing.
    pub const PUBSUB: u32 = 1 << 4;
    /// Not in scripts.
    pub const NOSCRIPT: u32 = 1 << 5;
    /// It may wait.
    pub const BLOCKING: u32 = 1 << 6;
    /// Also while loading.
    pub const LOADING: u32 = 1 << 7;
    /// Also on a stale replica.
    pub const STALE: u32 = 1 << 8;
    /// MONITOR does not show it.
    pub const SKIP_MONITOR: u32 = 1 << 9;
    /// SLOWLOG does not list it.
    pub const SKIP_SLOWLOG: u32 = 1 << 10;
    /// It takes a short time, whatever the data.
    pub const FAST: u32 = 1 << 11;
    /// Before a client has said who it is.
    pub const NO_AUTH: u32 = 1 << 12;
    /// Its keys are not at fixed places.
    pub const MOVABLEKEYS: u32 = 1 << 13;
    /// Not in transactions.
    pub const NO_MULTI: u32 = 1 << 14;
    /// Also while a script hangs.
    pub const ALLOW_BUSY: u32 = 1 << 15;

    // What Larder alone says of a command, and COMMAND does not tell: bits behind those that have names.
    /// It shows keys that nobody named: not with `-X`.
    pub const SHOWS_KEYS: u32 = 1 << 16;
    /// It takes all keys of a database away: not with `-F`.
    pub const FLUSHES: u32 = 1 << 17;
    /// Only with `--enable-debug-command`.
    pub const GUARDED: u32 = 1 << 18;

    /// Names, in the order of the bits.
    pub const NAMES: &[&str] = &[
        "write",
        "readonly",
        "denyoom",
        "admin",
        "pubsub",
        "noscript",
        "blocking",
        "loading",
        "stale",
        "skip_monitor",
        "skip_slowlog",
        "fast",
        "no_auth",
        "movablekeys",
        "no_multi",
        "allow_busy",
    ];
}

/// Where a command's keys are among its arguments, the name being 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The first; 0: it has none.
    pub first: i32,
    /// The last; negative ones count from the end.
    pub last: i32,
    /// From one to the next.
    pub step: i32,
}

/// No keys.
pub const NO_KEYS: Keys = Keys { first: 0, last: 0, step: 0 };
/// One key, right behind the name.
pub const ONE_KEY: Keys = Keys { first: 1, last: 1, step: 1 };
/// Two keys.
pub const TWO_KEYS: Keys = Keys { first: 1, last: 2, step: 1 };
/// Nothing but keys.
pub const ALL_KEYS: Keys = Keys { first: 1, last: -1, step: 1 };

/// How a command is run.
#[derive(Clone, Copy)]
pub enum Run {
    /// With its one key, which was hashed and looked for ahead.
    Key(KeyFunction),
    /// With its arguments.
    Args(ArgsFunction),
    /// By one of these, which the next argument names.
    Container(&'static [Command]),
}

/// The function of a command of one key.
#[derive(Clone, Copy)]
pub struct KeyFunction(pub(crate) OfKey);
/// The function of any other command.
#[derive(Clone, Copy)]
pub struct ArgsFunction(pub(crate) OfArgs);

impl std::fmt::Debug for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Run::Key(_) => "Key",
            Run::Args(_) => "Args",
            Run::Container(_) => "Container",
        })
    }
}

/// A command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its name, in lower case; of a subcommand, the container's and a `|` in front.
    pub name: &'static str,
    /// How many arguments it takes, the name counted; negative: at least so many.
    pub arity: i32,
    /// [`flag`]s.
    pub flags: u32,
    /// Where its keys are.
    pub keys: Keys,
    /// The first version of Redis that had it.
    pub since: &'static str,
    /// What follows the name.
    pub usage: &'static str,
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// How it is run.
    pub run: Run,
}

impl Command {
    /// A command of one key.
    pub(crate) const fn key(name: &'static str, arity: i32, flags: u32, run: OfKey) -> Command {
        Command { keys: ONE_KEY, ..Command::bare(name, arity, flags, Run::Key(KeyFunction(run))) }
    }

    /// Any other command.
    pub(crate) const fn args(name: &'static str, arity: i32, flags: u32, keys: Keys, run: OfArgs) -> Command {
        Command { keys, ..Command::bare(name, arity, flags, Run::Args(ArgsFunction(run))) }
    }

    /// A command with subcommands.
    pub(crate) const fn container(name: &'static str, rows: &'static [Command]) -> Command {
        Command::bare(name, -2, 0, Run::Container(rows))
    }

    const fn bare(name: &'static str, arity: i32, flags: u32, run: Run) -> Command {
        Command { name, arity, flags, keys: NO_KEYS, since: "1.0.0", usage: "", summary: "", run }
    }

    /// With what COMMAND DOCS and people are told.
    pub(crate) const fn doc(
        self,
        since: &'static str,
        usage: &'static str,
        summary: &'static str,
    ) -> Command {
        Command { since, usage, summary, ..self }
    }

    /// With these flags besides.
    pub(crate) const fn with(self, flags: u32) -> Command {
        Command { flags: self.flags | flags, ..self }
    }

    /// Has this flag.
    #[inline]
    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// So many arguments, the name counted, are not too few and not too many.
    #[inline]
    pub fn takes(&self, args: usize) -> bool {
        let args = args as i64;
        if self.arity >= 0 { args == i64::from(self.arity) } else { args >= -i64::from(self.arity) }
    }

    /// The part of the name behind the container's.
    pub fn short_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, name)| name)
    }

    /// Its subcommands.
    pub const fn subcommands(&self) -> &'static [Command] {
        match self.run {
            Run::Container(rows) => rows,
            Run::Key(_) | Run::Args(_) => &[],
        }
    }

    /// Which of its subcommands has this name.
    pub(crate) fn subcommand(&self, name: &[u8]) -> Option<usize> {
        self.subcommands().iter().position(|row| name.eq_ignore_ascii_case(row.short_name().as_bytes()))
    }

    /// Calls `visit` with each key among `args`, which begin behind the name.
    pub(crate) fn each_key<'a>(&self, args: Args<'a>, visit: &mut dyn FnMut(&'a [u8])) {
        let Keys { first, last, step } = self.keys;
        if first == 0 {
            return;
        }
        // Of a subcommand, behind the container's name and its own.
        let skipped = 1 + self.name.matches('|').count() as i64;
        let count = args.len() as i64 + skipped;
        let last = if last < 0 { count + i64::from(last) } else { i64::from(last) };
        for (at, arg) in args.enumerate() {
            let at = at as i64 + skipped;
            if at >= i64::from(first) && at <= last && (at - i64::from(first)) % i64::from(step) == 0 {
                visit(arg);
            }
        }
    }
}

/// A group of rows, as the documentation and COMMAND DOCS name it.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Its name.
    pub name: &'static str,
    /// Its rows.
    pub rows: &'static [Command],
}

/// All commands, by group.
pub static REDIS: &[Group] = GROUPS;

const GROUPS: &[Group] = &[
    Group { name: "string", rows: super::strings::ROWS },
    Group { name: "generic", rows: super::keys::ROWS },
    Group { name: "bitmap", rows: crate::redis::strings::bitmap::ROWS },
    Group { name: "pubsub", rows: super::pubsub::ROWS },
    Group { name: "transactions", rows: super::transactions::ROWS },
    Group { name: "connection", rows: super::connection::ROWS },
    Group { name: "cluster", rows: crate::redis::server::absent::ROWS },
    Group { name: "server", rows: super::server::ROWS },
];

/// The number of a row among all, for what is counted per command.
pub(crate) use crate::core::calls::RowId;

/// Commands and subcommands.
const ROWS_COUNT: usize = {
    let (mut count, mut group) = (0, 0);
    while group < GROUPS.len() {
        let rows = GROUPS[group].rows;
        let mut row = 0;
        while row < rows.len() {
            count += 1 + rows[row].subcommands().len();
            row += 1;
        }
        group += 1;
    }
    assert!(count <= ROWS_MAX, "each command has a place among what is counted");
    count
};

/// A row that has a number.
#[derive(Clone, Copy)]
struct Numbered {
    row: &'static Command,
    /// The number of its first subcommand.
    subcommands: u16,
}

/// All rows by their numbers: commands, group by group, and behind them the subcommands of each.
static NUMBERED: [Numbered; ROWS_COUNT] = {
    let mut all = [Numbered { row: &GROUPS[0].rows[0], subcommands: 0 }; ROWS_COUNT];
    let mut next = COMMANDS_COUNT;
    let (mut at, mut group) = (0, 0);
    while group < GROUPS.len() {
        let rows = GROUPS[group].rows;
        let mut row = 0;
        while row < rows.len() {
            all[at] = Numbered { row: &rows[row], subcommands: next as u16 };
            let subcommands = rows[row].subcommands();
            let mut sub = 0;
            while sub < subcommands.len() {
                all[next] = Numbered { row: &subcommands[sub], subcommands: 0 };
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

/// Commands, without subcommands.
const COMMANDS_COUNT: usize = {
    let (mut count, mut group) = (0, 0);
    while group < GROUPS.len() {
        count += GROUPS[group].rows.len();
        group += 1;
    }
    count
};

/// Slots of [`INDEX`]: a power of two, several times as many as there are commands.
const INDEX_SLOTS: usize = 1024;

/// A command by the hash of its name; its number, or [`NO_ROW`].
#[derive(Clone, Copy)]
struct Entry {
    hash: u64,
    row: u16,
}

const NO_ROW: u16 = u16::MAX;

static INDEX: [Entry; INDEX_SLOTS] = {
    let mut index = [Entry { hash: 0, row: NO_ROW }; INDEX_SLOTS];
    let mut row = 0;
    while row < COMMANDS_COUNT {
        let hash = hash(NUMBERED[row].row.name.as_bytes());
        let mut at = slot(hash);
        while index[at].row != NO_ROW {
            at = (at + 1) % INDEX_SLOTS;
        }
        index[at] = Entry { hash, row: row as u16 };
        row += 1;
    }
    index
};

/// The bytes in lower case, folded; different for all names up to eight bytes.
#[inline(always)]
const fn hash(name: &[u8]) -> u64 {
    let mut hash = 0u64;
    let mut at = 0;
    while at < name.len() {
        hash = hash.rotate_left(8) ^ (name[at] | 0x20) as u64;
        at += 1;
    }
    hash
}

#[inline(always)]
const fn slot(hash: u64) -> usize {
    (hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54) as usize
}

/// The row of this name.
#[inline]
pub(crate) fn find(name: &[u8]) -> Option<(&'static Command, RowId)> {
    let hash = hash(name);
    let mut at = slot(hash);
    loop {
        let entry = INDEX[at];
        if entry.row == NO_ROW {
            return None;
        }
        let row = NUMBERED[usize::from(entry.row)].row;
        if entry.hash == hash && name.eq_ignore_ascii_case(row.name.as_bytes()) {
            return Some((row, RowId::from(entry.row)));
        }
        at = (at + 1) % INDEX_SLOTS;
    }
}

/// The number of the row of this name, which there is.
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

/// The row with this number.
pub(crate) fn row(id: RowId) -> Option<&'static Command> {
    NUMBERED.get(id as usize).map(|numbered| numbered.row)
}

/// Commands that were called, refused or failed, and their counts.
pub(crate) fn in_use(sums: &[RowSum]) -> impl Iterator<Item = (&'static Command, &RowSum)> {
    let commands = REDIS.iter().flat_map(|group| group.rows).zip(0..);
    let ids = commands.flat_map(|(row, id)| {
        std::iter::once(id).chain((0..row.subcommands().len()).map(move |at| sub(id, at)))
    });
    ids.filter_map(|id| Some((row(id)?, sums.get(id as usize)?))).filter(|(_, sum)| sum.any())
}

/// All rows with their groups; subcommands not among them.
pub(crate) fn rows() -> impl Iterator<Item = (&'static Group, &'static Command)> {
    REDIS.iter().flat_map(|group| group.rows.iter().map(move |row| (group, row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_protocol::resp::Encoder;

    #[test]
    fn every_row_is_found_in_any_case_and_nothing_else_is() {
        for (_, row) in rows() {
            for name in [row.name.to_owned(), row.name.to_uppercase()] {
                assert_eq!(find(name.as_bytes()).expect(row.name).0.name, row.name);
                let id = find(name.as_bytes()).expect(row.name).1;
                assert_eq!(super::row(id).expect("a row").name, row.name);
                for (at, subcommand) in row.subcommands().iter().enumerate() {
                    assert_eq!(super::row(sub(id, at)).expect("a row").name, subcommand.name);
                }
            }
            assert!(find(format!("{}x", row.name).as_bytes()).is_none());
        }
        assert!(find(b"").is_none());
    }

    #[test]
    fn rows_say_what_they_are() {
        for (_, row) in rows() {
            assert!(!row.summary.is_empty(), "{}", row.name);
            assert_eq!(row.name, row.name.to_lowercase());
            for sub in row.subcommands() {
                assert!(sub.name.starts_with(&format!("{}|", row.name)), "{}", sub.name);
                assert!(!sub.summary.is_empty(), "{}", sub.name);
            }
            if let Run::Key(_) = row.run {
                assert_eq!(row.keys, ONE_KEY, "{}", row.name);
            }
        }
    }

    #[test]
    fn keys_are_where_the_row_says() {
        let keys = |keys: Keys, words: &[&str]| {
            let mut args = Encoder::default();
            words.iter().for_each(|word| args.push(word.as_bytes()));
            let mut found = Vec::new();
            let row = Command { keys, ..Command::container("x", &[]) };
            row.each_key(args.args(), &mut |key| found.push(String::from_utf8_lossy(key).into_owned()));
            found.join(" ")
        };
        assert_eq!(keys(ONE_KEY, &["a", "b"]), "a");
        assert_eq!(keys(ALL_KEYS, &["a", "b", "c"]), "a b c");
        assert_eq!(keys(Keys { first: 1, last: -1, step: 2 }, &["a", "1", "b", "2"]), "a b");
        assert_eq!(keys(Keys { first: 2, last: -1, step: 1 }, &["and", "d", "s"]), "d s");
        assert_eq!(keys(NO_KEYS, &["a"]), "");
    }
}
