//! The RESP commands: one row each, from which they are run, and from which COMMAND and the
//! documentation speak.

use larder_protocol::resp::{Args, parse_integer};

use super::call::{Call, OfArgs, OfKey};
use crate::core::calls::{ROWS_MAX, RowSum};
use crate::core::events::Change;

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
    /// It is told to others: it waits while writes are paused, as those do.
    pub const IS_TOLD: u32 = 1 << 19;
    /// It is carried out while all are paused.
    pub const WHILE_PAUSED: u32 = 1 << 20;
    /// Clients that speak RESP2 and listen to channels may say it.
    pub const WHILE_LISTENING: u32 = 1 << 21;
    /// It tells of subscriptions, whether replies are sent or not.
    pub const SUBSCRIBES: u32 = 1 << 22;
    /// Behind it, messages may be for nobody any more.
    pub const ENDS_LISTENING: u32 = 1 << 23;
    /// It may have sent something to the client itself.
    pub const PUBLISHES: u32 = 1 << 24;
    /// It is carried out at once also while commands are queued.
    pub const AT_ONCE: u32 = 1 << 25;
    /// It runs what was queued.
    pub const RUNS_QUEUE: u32 = 1 << 26;
    /// It selects the database that its argument names.
    pub const SELECTS: u32 = 1 << 27;
    /// It concerns no key but all, or keys of another database: EXEC takes the store as a whole for it.
    pub const TAKES_ALL: u32 = 1 << 28;
    /// It leaves a database empty, of which there may be so many together.
    pub const EMPTIES: u32 = 1 << 29;
    /// It says what a key had, though it writes: that the key is not there is told.
    pub const ASKS: u32 = 1 << 30;
    /// It goes through its keys in moments (`moments.rs`, `pieces.rs`), and tells of each itself.
    pub const MOMENTS: u32 = 1 << 31;

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
#[derive(Clone, Copy, Debug)]
pub enum Keys {
    /// It has none.
    None,
    /// From one place to another.
    Range {
        /// The first.
        first: i32,
        /// The last; negative ones count from the end.
        last: i32,
        /// From one to the next.
        step: i32,
    },
    /// Behind an argument that says how many there are.
    Counted {
        /// That argument.
        count: i32,
        /// From one to the next.
        step: i32,
    },
    /// Where the arguments say.
    By(KeysFunction),
}

/// A function that finds the keys among a command's arguments.
#[derive(Clone, Copy)]
pub struct KeysFunction(pub(crate) KeysOf);

/// Calls the function with each key among the arguments behind the name.
pub(crate) type KeysOf = for<'a> fn(Args<'a>, &mut dyn FnMut(&'a [u8]));

impl std::fmt::Debug for KeysFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeysFunction")
    }
}

/// No keys.
pub const NO_KEYS: Keys = Keys::None;
/// One key, right behind the name.
pub const ONE_KEY: Keys = Keys::Range { first: 1, last: 1, step: 1 };
/// Two keys.
pub const TWO_KEYS: Keys = Keys::Range { first: 1, last: 2, step: 1 };
/// Nothing but keys.
pub const ALL_KEYS: Keys = Keys::Range { first: 1, last: -1, step: 1 };

impl Keys {
    /// The command has keys.
    pub const fn any(&self) -> bool {
        !matches!(self, Keys::None)
    }

    /// The longer the command, the more there are.
    pub(crate) fn are_many(&self) -> bool {
        match self {
            Keys::None => false,
            Keys::Range { last, .. } => *last < 0,
            Keys::Counted { .. } | Keys::By(_) => true,
        }
    }

    /// The first, the last and the step, as COMMAND tells them.
    pub(crate) fn range(&self) -> [i32; 3] {
        match *self {
            Keys::None | Keys::By(_) => [0; 3],
            Keys::Range { first, last, step } => [first, last, step],
            Keys::Counted { count, step } => [count + 1, -1, step],
        }
    }
}

/// What a command does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Says what it has.
    Read,
    /// Says something else of it.
    Look,
    /// Gives it another value, whatever it had.
    Replace,
    /// Gives it a value if it has none.
    Make,
    /// Adds to its value.
    Extend,
    /// Changes its value.
    Update,
    /// Changes its value, and says what it is or was.
    Change,
    /// Takes something out of its value.
    Reduce,
    /// Removes it.
    Remove,
    /// Removes it, and says what it had, or gives that to another.
    Take,
}

impl Access {
    /// In Redis's words.
    pub fn words(self) -> &'static [&'static str] {
        match self {
            Access::Read => &["RO", "access"],
            Access::Look => &["RO"],
            Access::Replace => &["OW", "update"],
            Access::Make => &["OW", "insert"],
            Access::Extend => &["RW", "insert"],
            Access::Update => &["RW", "update"],
            Access::Change => &["RW", "access", "update"],
            Access::Reduce => &["RW", "delete"],
            Access::Remove => &["RM", "delete"],
            Access::Take => &["RW", "access", "delete"],
        }
    }

    /// The key may be another behind it.
    pub const fn writes(self) -> bool {
        !matches!(self, Access::Read | Access::Look)
    }
}

/// What a writing command tells of the keys that it has changed.
#[derive(Clone, Copy, Debug)]
pub enum Tells {
    /// It changes no key of its own.
    Nothing,
    /// Each change is called so.
    Each(Change),
    /// The same, and something else behind them.
    EachAnd(Change, ArgsTold),
    /// Each change is called as the arguments say.
    By(ChangeOf),
}

/// A function that says what a command with these arguments calls its change of the nth of its keys.
#[derive(Clone, Copy)]
pub struct ChangeOf(pub(crate) fn(Args<'_>, usize) -> Change);

impl std::fmt::Debug for ChangeOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ChangeOf")
    }
}

/// A function that tells something of a command that was carried out.
#[derive(Clone, Copy)]
pub struct ArgsTold(pub(crate) fn(&mut Call<'_, '_, '_>, Args<'_>));

impl std::fmt::Debug for ArgsTold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ArgsTold")
    }
}

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
    /// What it does with the first of them, the second and so on; with those behind them as with the last.
    pub access: &'static [Access],
    /// What it tells of those that it changes; a command that writes says so, or does not compile.
    pub tells: Option<Tells>,
    /// Arguments with which it [takes all](flag::TAKES_ALL).
    pub(crate) takes_all_if: fn(Args<'_>) -> bool,
    /// It works at elements of collections: what it takes goes by how large they are.
    pub(crate) elements: bool,
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
    /// Where its first key is among its arguments, the name being 0; none if it has none, or these say where.
    pub(crate) fn first_key_at(&self) -> Option<usize> {
        match self.keys {
            Keys::None | Keys::By(_) => None,
            Keys::Range { first, .. } => usize::try_from(first).ok(),
            Keys::Counted { count, .. } => usize::try_from(count + 1).ok(),
        }
    }

    /// A command of one key.
    pub(crate) const fn key(name: &'static str, arity: i32, flags: u32, run: OfKey) -> Command {
        Command::with_keys(ONE_KEY, Command::bare(name, arity, flags, Run::Key(KeyFunction(run))))
    }

    /// Any other command.
    pub(crate) const fn args(name: &'static str, arity: i32, flags: u32, keys: Keys, run: OfArgs) -> Command {
        Command::with_keys(keys, Command::bare(name, arity, flags, Run::Args(ArgsFunction(run))))
    }

    /// A command of one key that has a collection.
    pub(crate) const fn of_collection(name: &'static str, arity: i32, flags: u32, run: OfKey) -> Command {
        Command { elements: true, ..Command::key(name, arity, flags, run) }
    }

    /// A command of several keys that have collections.
    pub(crate) const fn of_collections(
        name: &'static str,
        arity: i32,
        flags: u32,
        keys: Keys,
        run: OfArgs,
    ) -> Command {
        Command { elements: true, ..Command::args(name, arity, flags, keys, run) }
    }

    /// A command with subcommands.
    pub(crate) const fn container(name: &'static str, rows: &'static [Command]) -> Command {
        Command::bare(name, -2, 0, Run::Container(rows))
    }

    const fn bare(name: &'static str, arity: i32, flags: u32, run: Run) -> Command {
        Command {
            name,
            arity,
            flags,
            keys: NO_KEYS,
            access: &[],
            tells: None,
            takes_all_if: |_| false,
            elements: false,
            since: "1.0.0",
            usage: "",
            summary: "",
            run,
        }
    }

    /// Of whose keys it changes values if it writes, and says what they have if it does not.
    const fn with_keys(keys: Keys, row: Command) -> Command {
        let access: &[Access] = match (&keys, row.has(flag::WRITE)) {
            (Keys::None, _) => &[],
            (_, true) => &[Access::Update],
            (_, false) => &[Access::Read],
        };
        Command { keys, access, ..row }
    }

    /// With what it does with its keys, if that is something else.
    pub(crate) const fn access(self, access: &'static [Access]) -> Command {
        Command { access, ..self }
    }

    /// With what it tells of the keys that it changes.
    pub(crate) const fn tells(self, tells: Tells) -> Command {
        Command { tells: Some(tells), ..self }
    }

    /// With arguments with which it concerns more than its keys.
    pub(crate) const fn takes_all_if(self, takes_all_if: fn(Args<'_>) -> bool) -> Command {
        Command { takes_all_if, ..self }
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
    pub const fn has(&self, flag: u32) -> bool {
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

    /// Words in front of its arguments: its name, and of a subcommand the container's.
    fn words(&self) -> i32 {
        1 + self.name.matches('|').count() as i32
    }

    /// Calls `visit` with each key among `args`, which begin behind the name.
    pub(crate) fn each_key<'a>(&self, args: Args<'a>, visit: &mut dyn FnMut(&'a [u8])) {
        let words = self.words();
        let (first, last, step, most) = match self.keys {
            Keys::None => return,
            Keys::Range { first, last, step } => (first, last, step, usize::MAX),
            Keys::Counted { count, step } => {
                let counted = usize::try_from(count - words).ok().and_then(|at| args.at(at));
                let most = counted.and_then(parse_integer).and_then(|n| usize::try_from(n).ok());
                (count + 1, -1, step, most.unwrap_or(0))
            }
            Keys::By(keys) => return (keys.0)(args, visit),
        };
        let last = if last < 0 { i64::from(words + last) + args.len() as i64 } else { i64::from(last) };
        let (skipped, step) = ((first - words).max(0) as usize, step.max(1) as usize);
        let among = (last - i64::from(first) + 1).max(0) as usize;
        args.skip(skipped).take(among).step_by(step).take(most).for_each(visit);
    }

    /// It may write, or is told to others: it waits while writes are paused.
    pub(crate) fn changes(&self) -> bool {
        self.has(flag::WRITE | flag::IS_TOLD)
    }

    /// What it does with the nth of its keys.
    pub(crate) fn access_of(&self, nth: usize) -> Access {
        let last = self.access.last().copied().unwrap_or(Access::Read);
        self.access.get(nth).copied().unwrap_or(last)
    }

    /// EXEC takes the store as a whole for it.
    pub(crate) fn takes_all(&self, args: Args<'_>) -> bool {
        self.has(flag::TAKES_ALL) || (self.takes_all_if)(args)
    }

    /// A command that writes says what it tells, and only such a one; so do the accesses to its keys.
    const fn is_coherent(&self) -> bool {
        let writes = self.has(flag::WRITE);
        let (mut at, mut changes) = (0, false);
        while at < self.access.len() {
            changes |= self.access[at].writes();
            at += 1;
        }
        writes == self.tells.is_some() && (changes == writes || !self.keys.any())
    }
}

/// A group of rows, as the documentation and COMMAND DOCS name it.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Its name.
    pub name: &'static str,
    /// The ACL category of its commands; none that have no other than their flags say.
    pub category: Option<&'static str>,
    /// Its rows.
    pub rows: &'static [Command],
}

/// All commands, by group.
pub static REDIS: &[Group] = GROUPS;

const GROUPS: &[Group] = &[
    Group { name: "string", category: Some("string"), rows: super::strings::ROWS },
    Group { name: "hash", category: Some("hash"), rows: super::collections::hash::ROWS },
    Group { name: "list", category: Some("list"), rows: super::collections::list::ROWS },
    Group { name: "set", category: Some("set"), rows: super::collections::set::ROWS },
    Group { name: "sorted-set", category: Some("sortedset"), rows: super::collections::sorted::ROWS },
    Group { name: "generic", category: Some("keyspace"), rows: super::keys::ROWS },
    Group { name: "bitmap", category: Some("bitmap"), rows: crate::redis::strings::bitmap::ROWS },
    Group { name: "pubsub", category: Some("pubsub"), rows: super::pubsub::ROWS },
    Group { name: "transactions", category: Some("transaction"), rows: super::transactions::ROWS },
    Group { name: "connection", category: Some("connection"), rows: super::connection::ROWS },
    Group { name: "cluster", category: None, rows: crate::redis::server::absent::ROWS },
    Group { name: "server", category: None, rows: super::server::ROWS },
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
            assert!(rows[row].is_coherent(), "a command that writes says what it tells of its keys");
            all[at] = Numbered { row: &rows[row], subcommands: next as u16 };
            let subcommands = rows[row].subcommands();
            let mut sub = 0;
            while sub < subcommands.len() {
                assert!(
                    subcommands[sub].is_coherent(),
                    "a command that writes says what it tells of its keys"
                );
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

/// The group of a command by its number.
pub(crate) fn group_of(id: RowId) -> Option<&'static Group> {
    let mut behind = 0;
    REDIS.iter().find(|group| {
        behind += group.rows.len();
        (id as usize) < behind
    })
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
        for (group, row) in rows() {
            for name in [row.name.to_owned(), row.name.to_uppercase()] {
                assert_eq!(find(name.as_bytes()).expect(row.name).0.name, row.name);
                let id = find(name.as_bytes()).expect(row.name).1;
                assert_eq!(super::row(id).expect("a row").name, row.name);
                assert_eq!(group_of(id).expect("a group").name, group.name);
                for (at, subcommand) in row.subcommands().iter().enumerate() {
                    assert_eq!(super::row(sub(id, at)).expect("a row").name, subcommand.name);
                }
            }
            assert!(find(format!("{}_", row.name).as_bytes()).is_none());
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
                assert!(matches!(row.keys, Keys::Range { first: 1, last: 1, step: 1 }), "{}", row.name);
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
        assert_eq!(keys(Keys::Range { first: 1, last: -1, step: 2 }, &["a", "1", "b", "2"]), "a b");
        assert_eq!(keys(Keys::Range { first: 2, last: -1, step: 1 }, &["and", "d", "s"]), "d s");
        assert_eq!(keys(NO_KEYS, &["a"]), "");
        let pairs = Keys::Counted { count: 1, step: 2 };
        assert_eq!(keys(pairs, &["2", "a", "1", "b", "2", "EX", "5"]), "a b");
        assert_eq!(keys(pairs, &["9", "a", "1"]), "a");
        for none in ["0", "-1", "x"] {
            assert_eq!(keys(pairs, &[none, "a", "1"]), "");
        }
        assert_eq!(keys(Keys::Counted { count: 2, step: 1 }, &["d", "2", "a", "b", "WEIGHTS"]), "a b");
        assert_eq!(
            keys(Keys::By(KeysFunction(|args, visit| args.skip(1).for_each(visit))), &["a", "b"]),
            "b"
        );
    }
}
