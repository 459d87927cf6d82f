//! The definition of a command, as the module of its group lists it: what its row says, and the function that runs it.
//!
//! ```text
//! ROWS of a group: row, function ──► table ──► rows, which know no function: clients, queues and calls have these
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
    /// A function of its one key, which was hashed and looked for ahead.
    Key(OfKey),
    /// A function of its arguments.
    Args(OfArgs),
    /// That of the subcommand which the next argument names.
    Container,
}

/// A command, what runs it, and its subcommands.
#[derive(Clone, Copy)]
pub(crate) struct Definition {
    /// What its row says; the table adds its number, and the rows of its subcommands.
    row: Command,
    pub(super) function: Function,
    pub(super) subcommands: &'static [Definition],
}

/// How a group lists its commands.
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
    /// Its row, with its number and the rows of its subcommands.
    pub(super) const fn row(&self, id: RowId, subcommands: &'static [Command]) -> Command {
        let run = match self.function {
            Function::Key(_) => Run::Key,
            Function::Args(_) => Run::Args,
            Function::Container => Run::Container(subcommands),
        };
        Command { id, run, ..self.row }
    }

    /// Has its row say this.
    const fn says(self, row: Command) -> Definition {
        Definition { row, ..self }
    }

    /// Adds that it works at elements of collections.
    const fn elements(self) -> Definition {
        self.says(Command { elements: true, ..self.row })
    }

    /// Changes how many arguments it takes.
    pub(crate) const fn arity(self, arity: i32) -> Definition {
        self.says(Command { arity, ..self.row })
    }

    /// Adds that arguments are channels.
    pub(crate) const fn channels(self, channels: Channels) -> Definition {
        self.says(Command { channels, ..self.row })
    }

    /// Adds what it does with its keys, if that is something else.
    pub(crate) const fn access(self, access: &'static [Access]) -> Definition {
        self.says(Command { access, ..self.row })
    }

    /// Adds what it does with its keys, as its arguments say.
    pub(crate) const fn uses(self, uses: fn(Args<'_>) -> Access) -> Definition {
        self.says(Command { uses: Some(uses), ..self.row })
    }

    /// Adds the events of the keys that it changes.
    pub(crate) const fn tells(self, tells: Tells) -> Definition {
        self.says(Command { tells: Some(tells), ..self.row })
    }

    /// Adds arguments with which it concerns more than its keys.
    pub(crate) const fn takes_all_if(self, takes_all_if: fn(Args<'_>) -> bool) -> Definition {
        self.says(Command { takes_all_if, ..self.row })
    }

    /// Adds what it takes in EXEC.
    pub(crate) const fn weighs(self, weighs: Weighs) -> Definition {
        self.says(Command { weighs, ..self.row })
    }

    /// Adds what becomes of the values that its keys hold, if that is not usual.
    pub(crate) const fn replaces(self, replaces: Replaces) -> Definition {
        self.says(Command { replaces, ..self.row })
    }

    /// Adds words that are shown to no client.
    pub(crate) const fn secret(self, secret: Secret) -> Definition {
        self.says(Command { secret, ..self.row })
    }

    /// Adds a value that is received straight into its item.
    pub(crate) const fn uploads(self, uploads: Uploads) -> Definition {
        self.says(Command { uploads: Some(uploads), ..self.row })
    }

    /// Adds ACL categories that are not its group's.
    pub(crate) const fn categories(self, categories: &'static [&'static str]) -> Definition {
        self.says(Command { categories: Some(categories), ..self.row })
    }

    /// Adds what COMMAND DOCS and the documentation say.
    pub(crate) const fn doc(
        self,
        since: &'static str,
        usage: &'static str,
        summary: &'static str,
    ) -> Definition {
        self.says(Command { since, usage, summary, ..self.row })
    }

    /// Adds words of its usage that are numbers with a fraction.
    pub(crate) const fn doubles(self, words: &'static [&'static str]) -> Definition {
        self.says(Command { doubles: words, ..self.row })
    }

    /// Adds these flags.
    pub(crate) const fn with(self, flags: u64) -> Definition {
        let (wire, own) = flag::fields(flags);
        self.says(Command { wire: self.row.wire | wire, own: self.row.own | own, ..self.row })
    }
}
