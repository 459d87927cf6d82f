//! Where a command has its keys among its arguments.

use larder_protocol::resp::Args;

/// The places of a command's keys among its arguments; the name is argument 0.
#[derive(Clone, Copy, Debug)]
pub enum Keys {
    /// No keys.
    None,
    /// From one argument to another.
    Range {
        /// The first key.
        first: i32,
        /// The last key; negative: from the end.
        last: i32,
        /// From one key to the next.
        step: i32,
    },
    /// Behind an argument that is their number.
    Counted {
        /// That argument.
        count: i32,
        /// From one key to the next.
        step: i32,
    },
    /// Where a function finds them.
    By(KeysFunction),
    /// Behind a word, which is this argument or behind it: the first half of the words behind that.
    Behind {
        /// The word.
        word: &'static str,
        /// The first argument that may be the word.
        from: i32,
        /// The function that finds the keys.
        keys: KeysFunction,
    },
}

/// A function that finds the keys among a command's arguments.
#[derive(Clone, Copy)]
pub struct KeysFunction(pub(crate) KeysOf);

/// Calls the function with each key among the arguments behind the name; false if the arguments do not tell the keys.
pub(crate) type KeysOf = for<'a> fn(Args<'a>, &mut dyn FnMut(&'a [u8])) -> bool;

impl std::fmt::Debug for KeysFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeysFunction")
    }
}

/// For no keys.
pub const NO_KEYS: Keys = Keys::None;
/// For one key, right behind the name.
pub const ONE_KEY: Keys = Keys::Range { first: 1, last: 1, step: 1 };
/// For two keys.
pub const TWO_KEYS: Keys = Keys::Range { first: 1, last: 2, step: 1 };
/// For keys alone.
pub const ALL_KEYS: Keys = Keys::Range { first: 1, last: -1, step: 1 };

impl Keys {
    /// Whether the command has keys.
    pub const fn any(&self) -> bool {
        !matches!(self, Keys::None)
    }

    /// Whether a longer command has more keys.
    pub(crate) fn are_many(&self) -> bool {
        match self {
            Keys::None => false,
            Keys::Range { last, .. } => *last < 0,
            Keys::Counted { .. } | Keys::By(_) | Keys::Behind { .. } => true,
        }
    }

    /// First, last and step, as COMMAND shows them.
    pub(crate) fn range(&self) -> [i32; 3] {
        match *self {
            // Clients have to ask where the keys are.
            Keys::None | Keys::Counted { .. } | Keys::Behind { .. } => [0; 3],
            // The first key is shown; clients have to ask for the others.
            Keys::By(_) => [1; 3],
            Keys::Range { first, last, step } => [first, last, step],
        }
    }
}
