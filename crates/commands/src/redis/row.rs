//! What a row of the table of commands says: what a command is called, takes, does with its keys, which events it causes, what it
//! weighs, and how it is run.
//!
//! It knows no command, and no function that runs one: those are in the modules of their groups, which list both together
//! (`definition.rs`), and [`table`](super::table) numbers them.

mod access;
mod bound;
pub mod flag;
mod keys;
mod weighs;

use larder_protocol::resp::{Args, parse_integer};
use larder_store::Type;

pub use self::access::Access;
pub use self::bound::Bound;
pub use self::keys::{ALL_KEYS, Keys, KeysFunction, NO_KEYS, ONE_KEY, TWO_KEYS};
pub(crate) use self::weighs::{By, Elements, Weighs};
use super::clock::Clock;
use crate::core::calls::RowId;
use crate::core::events::Change;

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

/// Which events a writing command publishes of the keys that it has changed.
#[derive(Clone, Copy, Debug)]
pub enum Tells {
    /// It changes no key of its own.
    Nothing,
    /// Each change is called so.
    Each(Change),
    /// The same, and behind it that its key has come to the database which its second argument names.
    Moved(Change),
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

/// What the last word of a command may be that has its one long word there, behind its key and a few short ones: all that decides
/// where it is stored is known before it. The row's function of an element or of a field finds that beside its words, with the
/// client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uploads {
    /// The value of the key.
    Value {
        /// The unit of the time that it is given, if it is given one.
        clock: Option<Clock>,
    },
    /// An element of the list that the key has, behind others.
    Element,
    /// The same, behind its place.
    Place,
    /// A member of the set that the key has, behind others.
    Member,
    /// The value of a field, which is named before it, of the hash that the key has.
    Field,
    /// The same, behind other fields with their values.
    Fields,
    /// The same, behind options, FIELDS and the number of fields.
    FieldBehind,
}

/// Words between the key and the last one, at most: they are kept while that comes.
const BETWEEN_MAX: usize = 16;

impl Uploads {
    /// A request of so many words may be such a one, the name, the key and the last one among them.
    pub fn fits(self, words: usize) -> bool {
        let between = words.saturating_sub(3);
        match self {
            Uploads::Value { clock: None } => between == 0,
            Uploads::Value { clock: Some(_) } | Uploads::Field | Uploads::Place => between == 1,
            Uploads::Element | Uploads::Member => between <= BETWEEN_MAX,
            Uploads::Fields => between <= BETWEEN_MAX && between % 2 == 1,
            // With no option, or with FNX or FXX and a time.
            Uploads::FieldBehind => (3..=6).contains(&between),
        }
    }

    /// The type of the collection that it is a part of.
    pub fn kind(self) -> Option<Type> {
        match self {
            Uploads::Value { .. } => None,
            Uploads::Element | Uploads::Place => Some(Type::List),
            Uploads::Member => Some(Type::Set),
            Uploads::Field | Uploads::Fields | Uploads::FieldBehind => Some(Type::Hash),
        }
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
#[derive(Clone, Copy, Debug)]
pub enum Run {
    /// By a function of its one key, which was hashed and looked for ahead.
    Key,
    /// By a function of its arguments.
    Args,
    /// As one of these, which the next argument names.
    Container(&'static [Command]),
}

/// Words of a name: a bar is between two. Counted once, when the table is compiled: each request of a user with rules asks it.
const fn words_of(name: &str) -> u8 {
    let (name, mut words, mut at) = (name.as_bytes(), 1, 0);
    while at < name.len() {
        if name[at] == b'|' {
            words += 1;
        }
        at += 1;
    }
    words
}

/// A command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// Its name, in lower case; of a subcommand, the container's and a `|` in front.
    pub name: &'static str,
    /// Its number, by which the table finds the function that runs it.
    pub(crate) id: RowId,
    /// Words in front of its arguments: its name, and of a subcommand the container's.
    pub(crate) words: u8,
    /// How many arguments it takes, the name counted; negative: at least so many.
    pub arity: i32,
    /// [`flag`]s that Redis has, which COMMAND shows.
    pub wire: u16,
    /// [`flag`]s that Larder alone has.
    pub own: u32,
    /// Where its keys are.
    pub keys: Keys,
    /// Which of its arguments are channels.
    pub(crate) channels: Channels,
    /// What it does with the first of them, the second and so on; with those behind them as with the last.
    pub access: &'static [Access],
    /// What these arguments, which begin behind the name, have it do with its keys, where it is not always that.
    pub(crate) uses: Option<fn(Args<'_>) -> Access>,
    /// The events of its changes; a command that writes says so, or does not compile.
    pub tells: Option<Tells>,
    /// Arguments with which it [takes all](flag::TAKES_ALL).
    pub(crate) takes_all_if: fn(Args<'_>) -> bool,
    /// It works at elements of collections: what it takes goes by how large they are.
    pub(crate) elements: bool,
    /// What it takes in EXEC; a command that is not [`flag::WEIGHTLESS`] says so, or does not compile.
    pub(crate) weighs: Weighs,
    /// Whether its keys may have another value behind it, if it writes.
    pub(crate) replaces: Replaces,
    /// Which of its words are shown to no client.
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

    /// A row of a command without keys, of which nothing else is said. The table gives it its number.
    pub(super) const fn bare(name: &'static str, arity: i32, flags: u64, run: Run) -> Command {
        let (wire, own) = flag::fields(flags);
        Command {
            name,
            id: RowId::MAX,
            words: words_of(name),
            arity,
            wire,
            own,
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

    /// Gives a row its keys: it says what they have if it does not write, and changes the value of its key if it does; of several
    /// keys a row has to say what a write does with them.
    pub(super) const fn with_keys(keys: Keys, row: Command) -> Command {
        let access: &[Access] = match (&keys, row.has(flag::WRITE)) {
            (Keys::None, _) => &[],
            (_, false) => &[Access::Read],
            (Keys::Range { first, last, .. }, true) if *first == *last => &[Access::Update],
            (_, true) => &[],
        };
        Command { keys, access, ..row }
    }

    /// It has one of these flags.
    #[inline]
    pub const fn has(&self, flags: u64) -> bool {
        let (wire, own) = flag::fields(flags);
        self.wire & wire != 0 || self.own & own != 0
    }

    /// Whether so many arguments, the name counted, are not too few and not too many.
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
            Run::Key | Run::Args => &[],
        }
    }

    /// Which of its subcommands has this name.
    pub(crate) fn subcommand(&self, name: &[u8]) -> Option<usize> {
        // Behind the container's name and the bar.
        let from = self.name.len() + 1;
        let is = |own: &[u8]| name.eq_ignore_ascii_case(own);
        self.subcommands().iter().position(|row| row.name.as_bytes().get(from..).is_some_and(is))
    }

    /// Words in front of its arguments: its name, and of a subcommand the container's.
    #[inline]
    pub(crate) fn words(&self) -> usize {
        usize::from(self.words)
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

    /// Of which words among `args`, which begin behind the name, each that is so many behind another is a key, as is the first;
    /// none if a function finds the keys, or there are none.
    pub(crate) fn key_words<'a>(&self, args: Args<'a>) -> Option<(Args<'a>, usize)> {
        let (first, last, step, most) = match self.keys {
            Keys::Range { first, last, step } => (first, last, step, usize::MAX),
            Keys::Counted { count, step } => (count + 1, -1, step, self.counted(count, args)),
            Keys::None | Keys::By(_) | Keys::Behind { .. } => return None,
        };
        let step = step.max(1) as usize;
        let (skipped, among) = self.places(first, last, args.len());
        let mut words = args;
        if skipped > 0 {
            words.nth(skipped - 1);
        }
        let count = among.min(words.len()).min(most.saturating_mul(step));
        Some((Args::kept(words.encoded(), count, args.longest()), step))
    }

    /// How many keys the argument at `count` says that there are, the name being 0; 0 if it does not say that.
    fn counted(&self, count: i32, args: Args<'_>) -> usize {
        let counted = usize::try_from(count - self.words() as i32).ok().and_then(|at| args.at(at));
        counted.and_then(parse_integer).and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
    }

    /// How many of so many arguments behind the name are in front of the `first` of a range, and how many there are from that to
    /// its `last`.
    fn places(&self, first: i32, last: i32, args: usize) -> (usize, usize) {
        let words = self.words() as i32;
        let last = if last < 0 { i64::from(words + last) + args as i64 } else { i64::from(last) };
        ((first - words).max(0) as usize, (last - i64::from(first) + 1).max(0) as usize)
    }

    /// Calls `visit` with each key among `args`, which begin behind the name.
    pub(crate) fn each_key<'a>(&self, args: Args<'a>, visit: &mut dyn FnMut(&'a [u8])) {
        let (first, last, step, most) = match self.keys {
            Keys::None => return,
            Keys::Range { first, last, step } => (first, last, step, usize::MAX),
            Keys::Counted { count, step } => (count + 1, -1, step, self.counted(count, args)),
            Keys::By(keys) | Keys::Behind { keys, .. } => {
                (keys.0)(args, visit);
                return;
            }
        };
        let (skipped, among) = self.places(first, last, args.len());
        args.skip(skipped).take(among).step_by(step.max(1) as usize).take(most).for_each(visit);
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

    /// It may write, or Redis would replicate it: it waits while writes are paused.
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
    pub(crate) const fn fault(&self) -> Option<&'static str> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use larder_protocol::resp::Encoder;

    #[test]
    fn keys_are_where_the_row_says() {
        let keys = |keys: Keys, words: &[&str]| {
            let mut args = Encoder::default();
            words.iter().for_each(|word| args.push(word.as_bytes()));
            let mut found = Vec::new();
            let row = Command { keys, ..Command::bare("x", -2, 0, Run::Container(&[])) };
            row.each_key(args.args(), &mut |key| found.push(String::from_utf8_lossy(key).into_owned()));
            if let Some((words, step)) = row.key_words(args.args()) {
                let key_words: Vec<_> = words.step_by(step).map(String::from_utf8_lossy).collect();
                assert_eq!(key_words, found);
            }
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
        assert_eq!(keys(pairs, &["2", "a", "1", "b"]), "a b");
        assert_eq!(keys(pairs, &["9223372036854775807", "a", "1", "b"]), "a b");
        assert_eq!(keys(pairs, &["1", "a", "1", "b"]), "a");
        assert_eq!(keys(pairs, &["1"]), "");
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
