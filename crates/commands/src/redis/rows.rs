//! All rows as one value, for commands that look rows up or show them. The table, which names the functions of all commands, is
//! defined above these: it makes the value at compile time, and clients share it.

use super::row::Command;
use crate::core::calls::{RowId, RowSum};

/// The version of Redis that is reported: client libraries enable features by it.
pub(crate) const REDIS_VERSION: &str = "7.4.0";

/// A group of rows, as the documentation and COMMAND DOCS name it.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Its name.
    pub name: &'static str,
    /// The ACL category of its commands; `None` if only their flags give categories.
    pub category: Option<&'static str>,
    /// Its rows.
    pub rows: &'static [Command],
}

/// The rows of all commands, by group, name and number.
#[derive(Debug)]
pub(crate) struct Rows {
    pub groups: &'static [Group],
    /// Finds the row of a name.
    pub find: fn(&[u8]) -> Option<(&'static Command, RowId)>,
    /// The row of a number.
    pub row: fn(RowId) -> Option<&'static Command>,
    /// The number of a container's subcommand.
    pub sub: fn(RowId, usize) -> RowId,
}

impl Rows {
    /// Finds the row of this name.
    pub fn find(&self, name: &[u8]) -> Option<(&'static Command, RowId)> {
        (self.find)(name)
    }

    /// The row with this number.
    pub fn row(&self, id: RowId) -> Option<&'static Command> {
        (self.row)(id)
    }

    /// The number of a container's subcommand.
    pub fn sub(&self, container: RowId, at: usize) -> RowId {
        (self.sub)(container, at)
    }

    /// The group of a command, by the command's number.
    pub fn group_of(&self, id: RowId) -> Option<&'static Group> {
        let mut behind = 0;
        self.groups.iter().find(|group| {
            behind += group.rows.len();
            (id as usize) < behind
        })
    }

    /// Commands that were called, refused or failed, and their counts.
    pub fn in_use<'s>(&self, sums: &'s [RowSum]) -> impl Iterator<Item = (&'static Command, &'s RowSum)> {
        let commands = self.groups.iter().flat_map(|group| group.rows).zip(0..);
        let ids = commands.flat_map(move |(row, id)| {
            std::iter::once(id).chain((0..row.subcommands().len()).map(move |at| self.sub(id, at)))
        });
        ids.filter_map(move |id| Some((self.row(id)?, sums.get(id as usize)?))).filter(|(_, sum)| sum.any())
    }

    /// All rows by number, with their groups; a subcommand's group is its container's.
    pub fn numbered(&self) -> impl Iterator<Item = (RowId, &'static Group, &'static Command)> {
        let subcommands =
            self.all().flat_map(|(group, row)| row.subcommands().iter().map(move |sub| (group, sub)));
        (0..).zip(self.all().chain(subcommands)).map(|(id, (group, row))| (id, group, row))
    }

    /// All rows with their groups, without subcommands.
    pub fn all(&self) -> impl Iterator<Item = (&'static Group, &'static Command)> + use<> {
        self.groups.iter().flat_map(|group| group.rows.iter().map(move |row| (group, row)))
    }
}
