//! The RESP commands: one row each, from which they are run, and from which COMMAND and the
//! documentation speak.

mod bound;
mod weighs;

use larder_protocol::resp::{Args, parse_integer};

pub use self::bound::Bound;
pub(crate) use self::weighs::{Elements, Weighs};
use super::call::{Call, OfArgs, OfKey};
use super::keys::expiry::Clock;
use crate::core::calls::{ROWS_MAX, RowSum};
use crate::core::events::Change;
use crate::core::traffic::Verb;

/// What a command is like: Redis's own names for it.
pub mod flag {
    /// It may change a key.
    pub const WRITE: u64 = 1 << 0;
    /// It reads keys only.
    pub const READONLY: u64 = 1 << 1;
    /// It may need memory.
    pub const DENYOOM: u64 = 1 << 2;
    /// For administrators.
    pub const ADMIN: u64 = 1 << 3;
    /// Publishing and subscribing.
    pub const PUBSUB: u64 = 1 << 4;
    /// Not in scripts.
    pub const NOSCRIPT: u64 = 1 << 5;
    /// It may wait.
    pub const BLOCKING: u64 = 1 << 6;
    /// Also while loading.
    pub const LOADING: u64 = 1 << 7;
    /// Also on a stale replica.
    pub const STALE: u64 = 1 << 8;
    /// MONITOR does not show it.
    pub const SKIP_MONITOR: u64 = 1 << 9;
    /// SLOWLOG does not list it.
    pub const SKIP_SLOWLOG: u64 = 1 << 10;
    /// It takes a short time, whatever the data.
    pub const FAST: u64 = 1 << 11;
    /// Before a client has said who it is.
    pub const NO_AUTH: u64 = 1 << 12;
    /// Its keys are not at fixed places.
    pub const MOVABLEKEYS: u64 = 1 << 13;
    /// Not in transactions.
    pub const NO_MULTI: u64 = 1 << 14;
    /// Also while a script hangs.
    pub const ALLOW_BUSY: u64 = 1 << 15;

    // What Larder alone says of a command, and COMMAND does not tell: bits behind those that have names.
    /// It shows keys that nobody named: not with `-X`.
    pub const SHOWS_KEYS: u64 = 1 << 16;
    /// It takes all keys of a database away: not with `-F`.
    pub const FLUSHES: u64 = 1 << 17;
    /// Only with `--enable-debug-command`.
    pub const GUARDED: u64 = 1 << 18;
    /// It is told to others: it waits while writes are paused, as those do.
    pub const IS_TOLD: u64 = 1 << 19;
    /// It is carried out while all are paused.
    pub const WHILE_PAUSED: u64 = 1 << 20;
    /// Clients that speak RESP2 and listen to channels may say it.
    pub const WHILE_LISTENING: u64 = 1 << 21;
    /// It tells of subscriptions, whether replies are sent or not.
    pub const SUBSCRIBES: u64 = 1 << 22;
    /// Behind it, messages may be for nobody any more.
    pub const ENDS_LISTENING: u64 = 1 << 23;
    /// It may have sent something to the client itself.
    pub const PUBLISHES: u64 = 1 << 24;
    /// It is carried out at once also while commands are queued.
    pub const AT_ONCE: u64 = 1 << 25;
    /// It runs what was queued.
    pub const RUNS_QUEUE: u64 = 1 << 26;
    /// It selects the database that its argument names.
    pub const SELECTS: u64 = 1 << 27;
    /// It concerns no key but all, or keys of another database: EXEC takes the store as a whole for it.
    pub const TAKES_ALL: u64 = 1 << 28;
    /// It leaves a database empty, of which there may be so many together.
    pub const EMPTIES: u64 = 1 << 29;
    /// It says what a key had, though it writes: that the key is not there is told.
    pub const ASKS: u64 = 1 << 30;
    /// It goes through its keys in moments (`moments.rs`, `pieces.rs`), and tells of each itself.
    pub const MOMENTS: u64 = 1 << 31;
    /// In EXEC it weighs nothing beside what each command does: it takes as long whatever its keys have, but for the
    /// elements that it names.
    pub const WEIGHTLESS: u64 = 1 << 32;
    /// It changes users, connections or parameters, in a short time or as it weighs: EXEC carries it out, however much it has
    /// looked through by then.
    pub const SETTLES: u64 = 1 << 33;
    /// It has no keys, and its reply is a word or a number.
    pub const REPLIES_A_WORD: u64 = 1 << 34;
    /// It has no keys, and its reply has 64 KiB at most, whatever there is.
    pub const REPLIES_A_PAGE: u64 = 1 << 35;
    /// What it does to the keys or elements that it names goes in steps that need nothing but these, and its reply is short:
    /// an EXEC in steps has it go through its own.
    pub const IN_PARTS: u64 = 1 << 36;
    /// One step looks what each of its keys has: where these are too many it is refused before any is looked at, to be told or
    /// for itself.
    pub const AS_ONE: u64 = 1 << 37;

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
    /// Behind a word, which is behind this argument or is it: the first half of the words behind it.
    Behind {
        /// The word.
        word: &'static str,
        /// The first argument that may be it.
        from: i32,
        /// What finds them.
        keys: KeysFunction,
    },
}

/// A function that finds the keys among a command's arguments.
#[derive(Clone, Copy)]
pub struct KeysFunction(pub(crate) KeysOf);

/// Calls the function with each key among the arguments behind the name; false if these do not say which they are.
pub(crate) type KeysOf = for<'a> fn(Args<'a>, &mut dyn FnMut(&'a [u8])) -> bool;

impl std::fmt::Debug for KeysFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeysFunction")
    }
}

/// Which of a command's arguments are channels that it publishes or subscribes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channels {
    /// None.
    None,
    /// The first.
    First,
    /// All.
    All,
    /// All, and they are patterns.
    Patterns,
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
            Keys::Counted { .. } | Keys::By(_) | Keys::Behind { .. } => true,
        }
    }

    /// The first, the last and the step, as COMMAND tells them.
    pub(crate) fn range(&self) -> [i32; 3] {
        match *self {
            // Clients ask where they are.
            Keys::None | Keys::Counted { .. } | Keys::Behind { .. } => [0; 3],
            // The first is told; for the others clients ask.
            Keys::By(_) => [1; 3],
            Keys::Range { first, last, step } => [first, last, step],
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
    /// Says what it has, and notes to whom: for Redis its value is as it was.
    Deliver,
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
            Access::Read | Access::Deliver => &["RO", "access"],
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

    /// What it comes to.
    pub(crate) fn verb(self) -> Verb {
        match self {
            Access::Read | Access::Look => Verb::Read,
            Access::Remove => Verb::Delete,
            Access::Replace
            | Access::Make
            | Access::Extend
            | Access::Update
            | Access::Change
            | Access::Deliver
            | Access::Reduce
            | Access::Take => Verb::Write,
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

/// Which words of a command are secret: neither SLOWLOG nor MONITOR shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secret {
    /// None.
    None,
    /// All behind this one, the name being 0.
    Behind(usize),
    /// A name and a password behind AUTH.
    Credentials,
    /// Values of parameters that are passwords.
    Parameters,
    /// Those of another command, which is its first argument.
    OfAnother,
}

/// A command whose value comes last, behind its key and perhaps a time: all that decides where it is stored is known
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uploads {
    /// In what the time is given, if there is one.
    pub clock: Option<Clock>,
}

impl Uploads {
    /// Words of such a request, the name and the value among them.
    pub fn words(self) -> usize {
        3 + usize::from(self.clock.is_some())
    }
}

/// Whether a writing command may put another value in the place of what its keys hold, or none. What EXEC knows of their
/// values says nothing behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replaces {
    /// It may; of elements of collections, if it [stores](Weighs::stores_elements) them.
    Usual,
    /// The same, of its keys in its own database and in those that its words may name.
    AlsoElsewhere,
    /// It changes what is there, or when that expires.
    Never,
    /// It takes its keys away if the time that it names, in this, has passed.
    IfPast(Clock),
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
    pub flags: u64,
    /// Where its keys are.
    pub keys: Keys,
    /// Which of its arguments are channels.
    pub(crate) channels: Channels,
    /// What it does with the first of them, the second and so on; with those behind them as with the last.
    pub access: &'static [Access],
    /// What these arguments, which begin behind the name, have it do with its keys, where it is not always that.
    pub(crate) uses: Option<fn(Args<'_>) -> Access>,
    /// What it tells of those that it changes; a command that writes says so, or does not compile.
    pub tells: Option<Tells>,
    /// Arguments with which it [takes all](flag::TAKES_ALL).
    pub(crate) takes_all_if: fn(Args<'_>) -> bool,
    /// It works at elements of collections: what it takes goes by how large they are.
    pub(crate) elements: bool,
    /// What it takes in EXEC; a command that is not [`flag::WEIGHTLESS`] says so, or does not compile.
    pub(crate) weighs: Weighs,
    /// Whether its keys may have another value behind it, if it writes.
    pub(crate) replaces: Replaces,
    /// Which of its words nobody is shown.
    pub(crate) secret: Secret,
    /// Its value is received straight into its item, if it is long.
    pub(crate) uploads: Option<Uploads>,
    /// Its ACL categories, if they are others than its group's.
    pub(crate) categories: Option<&'static [&'static str]>,
    /// The first version of Redis that had it.
    pub since: &'static str,
    /// What follows the name.
    pub usage: &'static str,
    /// Words of the usage that are numbers with a fraction here, and whole numbers elsewhere.
    pub(crate) doubles: &'static [&'static str],
    /// What it does, in one sentence.
    pub summary: &'static str,
    /// How it is run.
    pub run: Run,
}

impl Command {
    /// Where its first key is among its arguments, the name being 0; none if it has none, or these say where.
    pub(crate) fn first_key_at(&self) -> Option<usize> {
        match self.keys {
            Keys::None | Keys::By(_) | Keys::Behind { .. } => None,
            Keys::Range { first, .. } => usize::try_from(first).ok(),
            Keys::Counted { count, .. } => usize::try_from(count + 1).ok(),
        }
    }

    /// A command of one key.
    pub(crate) const fn key(name: &'static str, arity: i32, flags: u64, run: OfKey) -> Command {
        Command::with_keys(ONE_KEY, Command::bare(name, arity, flags, Run::Key(KeyFunction(run))))
    }

    /// Any other command.
    pub(crate) const fn args(name: &'static str, arity: i32, flags: u64, keys: Keys, run: OfArgs) -> Command {
        Command::with_keys(keys, Command::bare(name, arity, flags, Run::Args(ArgsFunction(run))))
    }

    /// A command of one key that has a collection.
    pub(crate) const fn of_collection(name: &'static str, arity: i32, flags: u64, run: OfKey) -> Command {
        Command { elements: true, ..Command::key(name, arity, flags, run) }
    }

    /// A command of several keys that have collections.
    pub(crate) const fn of_collections(
        name: &'static str,
        arity: i32,
        flags: u64,
        keys: Keys,
        run: OfArgs,
    ) -> Command {
        Command { elements: true, ..Command::args(name, arity, flags, keys, run) }
    }

    /// A command with subcommands.
    pub(crate) const fn container(name: &'static str, rows: &'static [Command]) -> Command {
        Command::bare(name, -2, 0, Run::Container(rows))
    }

    const fn bare(name: &'static str, arity: i32, flags: u64, run: Run) -> Command {
        Command {
            name,
            arity,
            flags,
            keys: NO_KEYS,
            channels: Channels::None,
            access: &[],
            uses: None,
            tells: None,
            takes_all_if: |_| false,
            elements: false,
            weighs: Weighs::Nothing,
            replaces: Replaces::Usual,
            secret: Secret::None,
            uploads: None,
            categories: None,
            since: "1.0.0",
            usage: "",
            doubles: &[],
            summary: "",
            run,
        }
    }

    /// Says what its keys have if it does not write, and changes the value of its key if it does; of several keys a row has
    /// to say what a write does with them.
    const fn with_keys(keys: Keys, row: Command) -> Command {
        let access: &[Access] = match (&keys, row.has(flag::WRITE)) {
            (Keys::None, _) => &[],
            (_, false) => &[Access::Read],
            (Keys::Range { first, last, .. }, true) if *first == *last => &[Access::Update],
            (_, true) => &[],
        };
        Command { keys, access, ..row }
    }

    /// With arguments that are channels.
    pub(crate) const fn channels(self, channels: Channels) -> Command {
        Command { channels, ..self }
    }

    /// With what it does with its keys, if that is something else.
    pub(crate) const fn access(self, access: &'static [Access]) -> Command {
        Command { access, ..self }
    }

    /// With what it does with its keys, as its arguments say.
    pub(crate) const fn uses(self, uses: fn(Args<'_>) -> Access) -> Command {
        Command { uses: Some(uses), ..self }
    }

    /// With what it tells of the keys that it changes.
    pub(crate) const fn tells(self, tells: Tells) -> Command {
        Command { tells: Some(tells), ..self }
    }

    /// With arguments with which it concerns more than its keys.
    pub(crate) const fn takes_all_if(self, takes_all_if: fn(Args<'_>) -> bool) -> Command {
        Command { takes_all_if, ..self }
    }

    /// With what it takes in EXEC.
    pub(crate) const fn weighs(self, weighs: Weighs) -> Command {
        Command { weighs, ..self }
    }

    /// With what becomes of the values that its keys hold, if that is not usual.
    pub(crate) const fn replaces(self, replaces: Replaces) -> Command {
        Command { replaces, ..self }
    }

    /// With words that nobody is shown.
    pub(crate) const fn secret(self, secret: Secret) -> Command {
        Command { secret, ..self }
    }

    /// With a value that is received straight into its item.
    pub(crate) const fn uploads(self, uploads: Uploads) -> Command {
        Command { uploads: Some(uploads), ..self }
    }

    /// With ACL categories that are not its group's.
    pub(crate) const fn categories(self, categories: &'static [&'static str]) -> Command {
        Command { categories: Some(categories), ..self }
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

    /// With words of its usage that are numbers with a fraction.
    pub(crate) const fn doubles(self, words: &'static [&'static str]) -> Command {
        Command { doubles: words, ..self }
    }

    /// With these flags besides.
    pub(crate) const fn with(self, flags: u64) -> Command {
        Command { flags: self.flags | flags, ..self }
    }

    /// Has this flag.
    #[inline]
    pub const fn has(&self, flag: u64) -> bool {
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
    pub(crate) fn words(&self) -> usize {
        1 + self.name.matches('|').count()
    }

    /// How many keys there are among `args`, which begin behind the name.
    pub(crate) fn key_count(&self, args: Args<'_>) -> usize {
        match self.keys {
            Keys::None => 0,
            Keys::Range { first: 1, last: 1, .. } => 1,
            Keys::Range { first: 1, last: -1, step: 1 } if self.words() == 1 => args.len(),
            Keys::Range { .. } | Keys::Counted { .. } | Keys::By(_) | Keys::Behind { .. } => {
                let mut count = 0;
                self.each_key(args, &mut |_| count += 1);
                count
            }
        }
    }

    /// Calls `visit` with each key among `args`, which begin behind the name.
    pub(crate) fn each_key<'a>(&self, args: Args<'a>, visit: &mut dyn FnMut(&'a [u8])) {
        let words = self.words() as i32;
        let (first, last, step, most) = match self.keys {
            Keys::None => return,
            Keys::Range { first, last, step } => (first, last, step, usize::MAX),
            Keys::Counted { count, step } => {
                let counted = usize::try_from(count - words).ok().and_then(|at| args.at(at));
                let most = counted.and_then(parse_integer).and_then(|n| usize::try_from(n).ok());
                (count + 1, -1, step, most.unwrap_or(0))
            }
            Keys::By(keys) | Keys::Behind { keys, .. } => {
                (keys.0)(args, visit);
                return;
            }
        };
        let last = if last < 0 { i64::from(words + last) + args.len() as i64 } else { i64::from(last) };
        let (skipped, step) = ((first - words).max(0) as usize, step.max(1) as usize);
        let among = (last - i64::from(first) + 1).max(0) as usize;
        args.skip(skipped).take(among).step_by(step).take(most).for_each(visit);
    }

    /// Its words say which are keys: where one says how many there are, there are so many, one at least. `args` begin
    /// behind the name.
    pub(crate) fn counts_its_keys(&self, args: Args<'_>) -> bool {
        let (count, step) = match self.keys {
            Keys::None | Keys::Range { .. } => return true,
            Keys::By(keys) | Keys::Behind { keys, .. } => return (keys.0)(args, &mut |_| ()),
            Keys::Counted { count, step } => (count, step),
        };
        let Some(at) = usize::try_from(count - self.words() as i32).ok() else { return true };
        let keys = args.at(at).and_then(parse_integer).and_then(|n| usize::try_from(n).ok());
        let words = args.len().saturating_sub(at + 1);
        keys.is_some_and(|keys| keys > 0 && keys.saturating_mul(step.max(1) as usize) <= words)
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

    /// It runs a script, which is shown to MONITOR before what it calls.
    pub const fn runs_script(&self) -> bool {
        self.has(flag::SKIP_MONITOR) && self.has(flag::MOVABLEKEYS)
    }

    /// EXEC takes the store as a whole for it.
    pub(crate) fn takes_all(&self, args: Args<'_>) -> bool {
        self.has(flag::TAKES_ALL) || (self.takes_all_if)(args)
    }

    /// What its row leaves out, or says against itself.
    const fn fault(&self) -> Option<&'static str> {
        let writes = self.has(flag::WRITE);
        let (mut at, mut changes) = (0, false);
        while at < self.access.len() {
            changes |= self.access[at].writes();
            at += 1;
        }
        if matches!(self.run, Run::Container(_)) {
            return None;
        }
        if writes && self.tells.is_none() {
            return Some("it writes and does not say what it tells of its keys");
        }
        if !writes && self.tells.is_some() {
            return Some("it tells of changes and does not write");
        }
        // A script may write, unless its command says that it does not.
        let may_write = writes || self.runs_script() && !self.has(flag::READONLY);
        if self.keys.any() && changes != may_write {
            return Some(
                "what it does with its keys is not what WRITE says, or it does not say it of several",
            );
        }
        if !self.keys.any() && !matches!(self.tells, None | Some(Tells::Nothing)) {
            return Some("it tells of changes of its keys and has none");
        }
        if self.has(flag::WEIGHTLESS) != matches!(self.weighs, Weighs::Nothing) {
            return Some(
                "it does not say what it takes in EXEC, or says it of a command that weighs nothing",
            );
        }
        if !self.elements && matches!(self.weighs, Weighs::Elements(_)) {
            return Some("it weighs elements and is not a command of collections");
        }
        None
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
    Group { name: "stream", category: Some("stream"), rows: super::collections::stream::ROWS },
    Group { name: "generic", category: Some("keyspace"), rows: super::keys::ROWS },
    Group { name: "bitmap", category: Some("bitmap"), rows: crate::redis::strings::bitmap::ROWS },
    Group { name: "geo", category: Some("geo"), rows: super::collections::geo::ROWS },
    Group {
        name: "hyperloglog",
        category: Some("hyperloglog"),
        rows: crate::redis::strings::hyperloglog::ROWS,
    },
    Group { name: "pubsub", category: Some("pubsub"), rows: super::pubsub::ROWS },
    Group { name: "transactions", category: Some("transaction"), rows: super::transactions::ROWS },
    Group { name: "scripting", category: Some("scripting"), rows: super::scripts::ROWS },
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

/// A row that does not say all does not compile: the compiler says its name, and what is wrong.
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

/// All rows by their numbers: commands, group by group, and behind them the subcommands of each.
static NUMBERED: [Numbered; ROWS_COUNT] = {
    let mut all = [Numbered { row: &GROUPS[0].rows[0], subcommands: 0 }; ROWS_COUNT];
    let mut next = COMMANDS_COUNT;
    let (mut at, mut group) = (0, 0);
    while group < GROUPS.len() {
        let rows = GROUPS[group].rows;
        let mut row = 0;
        while row < rows.len() {
            check(&rows[row]);
            all[at] = Numbered { row: &rows[row], subcommands: next as u16 };
            let subcommands = rows[row].subcommands();
            let mut sub = 0;
            while sub < subcommands.len() {
                check(&subcommands[sub]);
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

/// A command by the hash of its name.
#[derive(Clone, Copy)]
struct Entry {
    hash: u64,
    /// Of a name of up to eight bytes: its bytes, and the bits by which its letters may differ from them.
    bytes: u64,
    cases: u64,
    /// Its number, or [`NO_ROW`].
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

    /// It is the command of this name, whose hash it has.
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

/// The bytes in lower case, folded; different for all names up to eight bytes.
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

/// The first bytes of a name, at most eight, as a number: in few steps, for this is done for each request.
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

/// The row of this name.
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

/// All rows by their numbers, with their groups; a subcommand's is that of its container.
pub(crate) fn numbered() -> impl Iterator<Item = (RowId, &'static Group, &'static Command)> {
    let groups = || REDIS.iter().flat_map(|group| group.rows.iter().map(move |row| (group, row)));
    let subcommands = groups().flat_map(|(group, row)| row.subcommands().iter().map(move |sub| (group, sub)));
    (0..).zip(groups().chain(subcommands)).map(|(id, (group, row))| (id, group, row))
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
        let mut count = 0;
        for (id, _, row) in numbered() {
            assert_eq!(super::row(id).expect("a row").name, row.name);
            count += 1;
        }
        assert!(super::row(count).is_none());
        assert!(find(b"").is_none());
    }

    #[test]
    fn a_name_that_differs_in_any_bit_is_another() {
        for (_, row) in rows() {
            for bit in 0..8 * row.name.len() {
                let mut name = row.name.as_bytes().to_vec();
                name[bit / 8] ^= 1 << (bit % 8);
                let is = |row: &&Command| row.name.as_bytes().eq_ignore_ascii_case(&name);
                let expected = rows().map(|(_, row)| row).find(is).map(|row| row.name);
                assert_eq!(find(&name).map(|(row, _)| row.name), expected, "{name:?}");
            }
        }
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
    fn exec_leaves_out_no_command_of_administrators_that_others_rely_on() {
        // What looks, or fails, or forgets figures: a client that has EXEC look through so much can do without.
        let left_out = "acl|dryrun acl|getuser acl|list acl|log acl|users bgrewriteaof bgsave client|list \
            commandlog|get commandlog|len config|get config|resetstat config|rewrite hotkeys|get hotkeys|reset \
            hotkeys|start hotkeys|stop latency|doctor latency|graph latency|histogram latency|history \
            latency|latest latency|reset module|list module|load module|loadex module|unload monitor \
            slowlog|get slowlog|len";
        let left_out: Vec<&str> = left_out.split_whitespace().collect();
        for (_, _, row) in numbered() {
            let concerns = row.has(flag::ADMIN) && !row.has(flag::NO_MULTI) && row.subcommands().is_empty();
            if concerns && !row.changes() && !row.name.starts_with("debug|") {
                assert_ne!(row.has(flag::SETTLES), left_out.contains(&row.name), "{}", row.name);
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
            keys(
                Keys::By(KeysFunction(|args, visit| {
                    args.skip(1).for_each(visit);
                    true
                })),
                &["a", "b"]
            ),
            "b"
        );
    }
}
