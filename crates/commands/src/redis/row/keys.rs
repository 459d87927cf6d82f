//! Where the keys of a command are among its arguments.

use larder_protocol::resp::Args;

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

    /// The first, the last and the step, as COMMAND shows them.
    pub(crate) fn range(&self) -> [i32; 3] {
        match *self {
            // Clients ask where they are.
            Keys::None | Keys::Counted { .. } | Keys::Behind { .. } => [0; 3],
            // The first is shown; for the others clients ask.
            Keys::By(_) => [1; 3],
            Keys::Range { first, last, step } => [first, last, step],
        }
    }
}
