//! What a command does with a key.

use crate::core::traffic::Verb;

/// What a command does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Replies its value.
    Read,
    /// Replies something else about it.
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
    /// Replies its value, and notes the consumer that got it: for Redis the value is as it was.
    Deliver,
    /// Takes something out of its value.
    Reduce,
    /// Removes it.
    Remove,
    /// Removes the value or a part of it, and replies that or gives it to another key.
    Take,
}

impl Access {
    /// The flags for it in Redis's words.
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

    /// The kind of access it counts as.
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

    /// Whether the key may be different afterwards.
    pub const fn writes(self) -> bool {
        !matches!(self, Access::Read | Access::Look)
    }
}
