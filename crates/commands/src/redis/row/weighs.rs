//! What a command takes in EXEC beside what each takes, as its row says it: what that comes to is in
//! `transactions/weight.rs`.

use crate::core::topics::Kind;

/// What decides how long a command takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weighs {
    /// It takes as much whatever there is, as its flag `WEIGHTLESS` says.
    Nothing,
    /// Nothing, but the database is another one behind it.
    Selection,
    /// Watches of keys in two databases, which have exchanged their names behind it.
    Swap,
    /// Rules that are applied, and all users, of which there are others behind it.
    Rules,
    /// Users that are removed, with what they hold, and all users.
    Removal,
    /// Parameters that are set, and all users where one is a password.
    Settings,
    /// A name and a password, compared with those of all users.
    Login,
    /// The names of all keys, compared with a pattern.
    Names,
    /// Some of them.
    Scan,
    /// Keys that are looked at where one is wanted at random.
    Sample,
    /// The figures of the server.
    Figures,
    /// All keys with their values.
    Everything,
    /// Keys that it makes, as many as it says.
    Populate,
    /// A text that it makes, compared with a pattern.
    Match,
    /// The names of parameters, compared with patterns.
    Parameters,
    /// All patterns that are subscribed to, and the subscribers that get a message.
    Topics,
    /// The subscribers that get a message of a sharded channel.
    Shard,
    /// The names that it listens to.
    Listen,
    /// The names of this kind that it listens to no more, or all of them.
    ListenNoMore(Kind),
    /// How many subscribers names have.
    Counts,
    /// All channels, compared with a pattern.
    Channels,
    /// All clients.
    Clients,
    /// Nothing, but the key's value is this argument behind it.
    Value(usize),
    /// Nothing, but these keys have these values behind it.
    Pairs,
    /// The same, with their number in front of them.
    CountedPairs,
    /// The value, to which its argument is added.
    Append,
    /// The value, if it ends before what is written to it.
    Overlay,
    /// The same of one bit.
    Bit,
    /// The same of the last field that is written, and what lies between fields.
    BitFields { read_only: bool },
    /// The value that is read.
    Read,
    /// The values of all its arguments.
    ReadAll,
    /// The value, and what checks it.
    Dump,
    /// A payload that becomes a value.
    Restore,
    /// The registers of this argument.
    Registers(usize),
    /// Those of all its keys.
    RegistersRead,
    /// The same, put into those of the first.
    RegistersMerged,
    /// The longest of all its sources, as often as there are sources.
    BitOperation,
    /// One value by the other.
    Subsequence,
    /// The value, unless it stays where it lies.
    Rename,
    /// The value.
    Copy,
    /// The value, unless it stays where it lies; it goes to another database.
    Move,
    /// What a stream has beside its entries; of XINFO STREAM some of these.
    Survey,
    /// Elements of collections.
    Elements(Elements),
}

impl Weighs {
    /// What it works at becomes the value of a key, whatever that had, if the command writes.
    pub fn stores_elements(self) -> bool {
        matches!(
            self,
            Weighs::Elements(
                Elements::Union
                    | Elements::Intersection
                    | Elements::Difference
                    | Elements::StoreRange
                    | Elements::StorePlaces
                    | Elements::Places
                    | Elements::Sort
            )
        )
    }
}

/// How members of a sorted set are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Rank,
    Score,
    Lex,
}

/// Which elements of collections a command works at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elements {
    /// Those that it names, and it replies none. Long words are copied once more, or hashed and compared, of any collection.
    Few,
    /// The same of a sorted set, in which it looks for them among members of one score.
    Compared,
    /// Those that it names, which it replies.
    Named,
    /// The same of fields, which are behind options, the word `FIELDS` and their number.
    NamedBehind,
    /// The same of members, of which it replies a number each.
    NamedScores,
    /// The same of members, of which it replies a place each.
    NamedPlaces,
    /// Fields that it names, perhaps behind options, and perhaps each with a value behind it: they lose the values that they have.
    WriteFields { behind: bool, pairs: bool },
    /// One, which it replies.
    One,
    /// All, which it replies.
    All,
    /// The same of a hash, of which fields may be due.
    AllFields,
    /// The names of all fields of one, without their values.
    AllNames,
    /// Fields that are due.
    FieldCount,
    /// Some at random.
    Pick,
    /// The same of a hash, of which fields may be due.
    PickFields,
    /// Some at random, which it takes out.
    PickOut,
    /// Some, compared with a pattern.
    Scan,
    /// The same of a hash, of which fields may be due.
    ScanFields,
    /// Those of a list from one place to another.
    ListRange,
    /// A list that is looked through.
    Position,
    /// The same, and one is put in.
    Insert,
    /// The same, and equal ones are taken out.
    RemoveEqual,
    /// A leaf of a list.
    ListWrite,
    /// The ends of a list, which go.
    Trim,
    /// Elements of an end, as many as it says.
    Pop,
    /// One from an end to an end of another.
    MoveEnd,
    /// One, to another set.
    MoveMember,
    /// Members in their order, by rank if no option says otherwise.
    Range,
    /// The same by rank.
    RankRange,
    /// The same by what is not known, but for LIMIT.
    LimitedRange,
    /// The same, stored under another key.
    StoreRange,
    /// A leaf of a sorted set.
    SortedWrite,
    /// Members by this, which it takes out.
    RemoveRange(By),
    /// Members with the least or the highest scores, as many as it says, which it takes out.
    PopScored,
    /// One of whichever of its keys has some.
    PopAny,
    /// Any of them, as many as it says.
    PopSome,
    /// The same of sorted sets.
    PopSomeScored,
    /// All, in an order that it makes.
    Sort,
    /// All that lie in cells.
    Places,
    /// The same, stored under another key.
    StorePlaces,
    /// All of all its keys.
    Union,
    /// Those of the smallest, looked for in all others.
    Intersection,
    /// The same, of which it replies a number.
    IntersectionCount,
    /// Those of the first, looked for in all others, or all of all.
    Difference,
    /// A leaf of a stream, and what it trims if it does.
    AddEntry,
    /// The same, and it does.
    TrimEntries,
    /// Entries of a stream, as many as COUNT says.
    Entries,
    /// The same of several.
    ReadEntries,
    /// Entries that it names.
    Ids,
    /// All that are pending.
    Pending,
    /// Pending ones that it names.
    Claim,
    /// Pending ones, as many as COUNT says.
    ClaimIdle,
}
