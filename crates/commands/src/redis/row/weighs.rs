//! What a command's work in EXEC depends on beside its words, as its row says it. `transactions/weight.rs` computes the work.

use crate::core::topics::Kind;

/// What the work of a command depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weighs {
    /// Nothing: the command has the flag `WEIGHTLESS`.
    Nothing,
    /// Nothing; the command selects another database.
    Selection,
    /// The watched keys of two databases, which swap their names.
    Swap,
    /// Rules that are applied, and all users; the command may make one.
    Rules,
    /// Users that are removed, with what they hold, and all users.
    Removal,
    /// Parameters that are set; for a password, all users.
    Settings,
    /// A name and a password, compared with those of all users.
    Login,
    /// The names of all keys, compared with a pattern.
    Names,
    /// As many keys as COUNT says, compared with a pattern.
    Scan,
    /// Keys that are looked at for a random one.
    Sample,
    /// The figures of the server.
    Figures,
    /// All keys with their values.
    Everything,
    /// As many keys as the command says, which it makes.
    Populate,
    /// A text that the command makes, compared with a pattern.
    Match,
    /// The names of parameters, compared with patterns.
    Parameters,
    /// All patterns that are subscribed to, and the subscribers that get a message.
    Topics,
    /// The subscribers that get a message of a sharded channel.
    Shard,
    /// The names that are subscribed to.
    Listen,
    /// The names of this kind that are unsubscribed from, or all of them.
    ListenNoMore(Kind),
    /// Names whose subscribers are counted.
    Counts,
    /// All channels, compared with a pattern.
    Channels,
    /// All clients.
    Clients,
    /// Nothing; this argument becomes the key's value.
    Value(usize),
    /// Nothing; the keys get these values.
    Pairs,
    /// As [`Weighs::Pairs`], behind their number.
    CountedPairs,
    /// The value, to which its argument is added.
    Append,
    /// The value, if it ends before the end of what is written.
    Overlay,
    /// As [`Weighs::Overlay`], up to a bit.
    Bit,
    /// As [`Weighs::Overlay`], up to the last field that is written; and what lies between fields.
    BitFields { read_only: bool },
    /// The value that is read.
    Read,
    /// The values of all its arguments.
    ReadAll,
    /// The value, and its checksum.
    Dump,
    /// A payload that becomes a value.
    Restore,
    /// The HyperLogLog's registers of this argument.
    Registers(usize),
    /// The registers of all its keys.
    RegistersRead,
    /// The registers of all its keys, merged into those of the first.
    RegistersMerged,
    /// The longest of its sources, times the number of sources.
    BitOperation,
    /// The length of one value times that of the other.
    Subsequence,
    /// The value, unless it stays where it lies.
    Rename,
    /// The value, which is copied.
    Copy,
    /// The value, unless it stays where it lies, in another database.
    Move,
    /// A stream's groups and consumers; for XINFO STREAM some entries, too.
    Survey,
    /// Elements of collections.
    Elements(Elements),
}

impl Weighs {
    /// Whether elements become the value of a key, if the command writes.
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
    /// Elements that the command names and does not reply. Long words are copied once more, or hashed and compared, for any
    /// collection.
    Few,
    /// As [`Elements::Few`], in a sorted set, where they are looked for among members of one score.
    Compared,
    /// Elements that the command names and replies.
    Named,
    /// As [`Elements::Named`]: fields behind options, the word `FIELDS` and their number.
    NamedBehind,
    /// Members that the command names; it replies a number for each.
    NamedScores,
    /// Members that the command names; it replies a place for each.
    NamedPlaces,
    /// Fields that the command names, perhaps behind options, and perhaps each with a value behind it: they lose their values.
    WriteFields { behind: bool, pairs: bool },
    /// One element, which it replies.
    One,
    /// All elements, which it replies.
    All,
    /// As [`Elements::All`], of a hash, which may have due fields.
    AllFields,
    /// The names of all fields of a hash, without their values.
    AllNames,
    /// The due fields of a hash.
    FieldCount,
    /// Random elements.
    Pick,
    /// As [`Elements::Pick`], of a hash, which may have due fields.
    PickFields,
    /// Random elements, which it takes out.
    PickOut,
    /// Some elements, compared with a pattern.
    Scan,
    /// As [`Elements::Scan`], of a hash, which may have due fields.
    ScanFields,
    /// Elements of a list from one place to another.
    ListRange,
    /// A list that is looked through.
    Position,
    /// A list that is looked through, and an element that is put in.
    Insert,
    /// A list that is looked through, and equal elements that are taken out.
    RemoveEqual,
    /// A leaf of a list.
    ListWrite,
    /// The ends of a list, which are removed.
    Trim,
    /// As many elements of an end as the command says.
    Pop,
    /// One element, from an end of a list to an end of another.
    MoveEnd,
    /// One member, from a set to another.
    MoveMember,
    /// Members of a sorted set in their order, by rank if no option says otherwise.
    Range,
    /// Members of a sorted set by rank.
    RankRange,
    /// Members of a sorted set by a range of unknown size, but for LIMIT.
    LimitedRange,
    /// As [`Elements::Range`], stored under another key.
    StoreRange,
    /// A leaf of a sorted set.
    SortedWrite,
    /// Members of a sorted set in such a range, which it takes out.
    RemoveRange(By),
    /// As many members with the least or the highest scores as the command says, which it takes out.
    PopScored,
    /// One element of the first of its keys that has some.
    PopAny,
    /// As many elements as the command says, of the first of its keys that has some.
    PopSome,
    /// As [`Elements::PopSome`], of sorted sets.
    PopSomeScored,
    /// All elements, which it sorts.
    Sort,
    /// All members in the cells of an area.
    Places,
    /// As [`Elements::Places`], stored under another key.
    StorePlaces,
    /// All elements of all its keys.
    Union,
    /// The elements of the smallest key, looked for in all others.
    Intersection,
    /// As [`Elements::Intersection`]; it replies how many.
    IntersectionCount,
    /// The elements of the first key, looked for in all others; or all of all keys.
    Difference,
    /// A leaf of a stream, and what is trimmed, if that is asked for.
    AddEntry,
    /// A leaf of a stream, and what is trimmed.
    TrimEntries,
    /// As many entries of a stream as COUNT says.
    Entries,
    /// As many entries of several streams as COUNT says.
    ReadEntries,
    /// Entries of a stream that the command names.
    Ids,
    /// All pending entries.
    Pending,
    /// Pending entries that the command names.
    Claim,
    /// As many pending entries as COUNT says.
    ClaimIdle,
}
