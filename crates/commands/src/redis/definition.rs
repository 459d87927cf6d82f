//! The definition of a command in the list of its group: its row, and the function that runs it.
//!
//! ```text
//! ROWS of a group: row, function ──► table ──► rows without functions: for clients, queues and calls
//!                                      └────► functions by number: the session runs them
//! ```

use larder_protocol::resp::Args;

use super::call::{OfArgs, OfKey};
use super::row::{
    Access, Channels, Command, Keys, ONE_KEY, Replaces, Run, Secret, Tells, Uploads, Weighs, flag,
};
use crate::core::calls::RowId;

/// What runs a command.
#[derive(Clone, Copy)]
pub(crate) enum Function {
    /// A function of its one key, which was hashed and prefetched ahead.
    Key(OfKey),
    /// A function of its arguments.
    Args(OfArgs),
    /// The function of the subcommand that the next argument names.
    Container,
}

/// A command, its function, and its subcommands.
#[derive(Clone, Copy)]
pub(crate) struct Definition {
    /// Its row without its number and the rows of its subcommands, which the table adds.
    row: Command,
    pub(super) function: Function,
    pub(super) subcommands: &'static [Definition],
}

/// The beginnings of a definition.
impl Command {
    /// A command of one key.
    pub(crate) const fn key(name: &'static str, arity: i32, flags: u64, run: OfKey) -> Definition {
        let row = Command::with_keys(ONE_KEY, Command::bare(name, arity, flags, Run::Key));
        Definition { row, function: Function::Key(run), subcommands: &[] }
    }

    /// Any other command.
    pub(crate) const fn args(
        name: &'static str,
        arity: i32,
        flags: u64,
        keys: Keys,
        run: OfArgs,
    ) -> Definition {
        let row = Command::with_keys(keys, Command::bare(name, arity, flags, Run::Args));
        Definition { row, function: Function::Args(run), subcommands: &[] }
    }

    /// A command of one key that has a collection.
    pub(crate) const fn of_collection(name: &'static str, arity: i32, flags: u64, run: OfKey) -> Definition {
        Command::key(name, arity, flags, run).elements()
    }

    /// A command of several keys that have collections.
    pub(crate) const fn of_collections(
        name: &'static str,
        arity: i32,
        flags: u64,
        keys: Keys,
        run: OfArgs,
    ) -> Definition {
        Command::args(name, arity, flags, keys, run).elements()
    }

    /// A command with subcommands.
    pub(crate) const fn container(name: &'static str, subcommands: &'static [Definition]) -> Definition {
        let row = Command::bare(name, -2, 0, Run::Container(&[]));
        Definition { row, function: Function::Container, subcommands }
    }
}

impl Definition {
    /// Makes its row, with its number and the rows of its subcommands.
    pub(super) const fn row(&self, id: RowId, subcommands: &'static [Command]) -> Command {
        let run = match self.function {
            Function::Key(_) => Run::Key,
            Function::Args(_) => Run::Args,
            Function::Container => Run::Container(subcommands),
        };
        Command { id, run, ..self.row }
    }

    /// Replaces its row.
    const fn says(self, row: Command) -> Definition {
        Definition { row, ..self }
    }

    /// Adds that it works at elements of collections.
    const fn elements(self) -> Definition {
        self.says(Command { elements: true, ..self.row })
    }

    /// Changes its arity.
    pub(crate) const fn arity(self, arity: i32) -> Definition {
        self.says(Command { arity, ..self.row })
    }

    /// Adds which arguments are channels.
    pub(crate) const fn channels(self, channels: Channels) -> Definition {
        self.says(Command { channels, ..self.row })
    }

    /// Adds how it accesses its keys, if not in the default way.
    pub(crate) const fn access(self, access: &'static [Access]) -> Definition {
        self.says(Command { access, ..self.row })
    }

    /// Adds how its arguments decide its access to keys.
    pub(crate) const fn uses(self, uses: fn(Args<'_>) -> Access) -> Definition {
        self.says(Command { uses: Some(uses), ..self.row })
    }

    /// Adds the events of the keys that it changes.
    pub(crate) const fn tells(self, tells: Tells) -> Definition {
        self.says(Command { tells: Some(tells), ..self.row })
    }

    /// Adds with which arguments it concerns more than its keys.
    pub(crate) const fn takes_all_if(self, takes_all_if: fn(Args<'_>) -> bool) -> Definition {
        self.says(Command { takes_all_if, ..self.row })
    }

    /// Adds what its work in EXEC depends on.
    pub(crate) const fn weighs(self, weighs: Weighs) -> Definition {
        self.says(Command { weighs, ..self.row })
    }

    /// Adds whether it replaces the values of its keys, if not in the default way.
    pub(crate) const fn replaces(self, replaces: Replaces) -> Definition {
        self.says(Command { replaces, ..self.row })
    }

    /// Adds which words are shown to no client.
    pub(crate) const fn secret(self, secret: Secret) -> Definition {
        self.says(Command { secret, ..self.row })
    }

    /// Adds which value is received straight into its item.
    pub(crate) const fn uploads(self, uploads: Uploads) -> Definition {
        self.says(Command { uploads: Some(uploads), ..self.row })
    }

    /// Adds ACL categories that are not its group's.
    pub(crate) const fn categories(self, categories: &'static [&'static str]) -> Definition {
        self.says(Command { categories: Some(categories), ..self.row })
    }

    /// Adds the texts of COMMAND DOCS and the documentation.
    pub(crate) const fn doc(
        self,
        since: &'static str,
        usage: &'static str,
        summary: &'static str,
    ) -> Definition {
        self.says(Command { since, usage, summary, ..self.row })
    }

    /// Adds which words of its usage are numbers with a fraction.
    pub(crate) const fn doubles(self, words: &'static [&'static str]) -> Definition {
        self.says(Command { doubles: words, ..self.row })
    }

    /// Adds these flags.
    pub(crate) const fn with(self, flags: u64) -> Definition {
        let (wire, own) = flag::fields(flags);
        self.says(Command { wire: self.row.wire | wire, own: self.row.own | own, ..self.row })
    }
}
