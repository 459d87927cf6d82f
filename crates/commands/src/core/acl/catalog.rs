//! The commands that rules may name, and the commands of each category.

use std::collections::HashMap;
use std::ops::Range;

use crate::core::rows::ROWS_MAX;

/// Commands of Redis 8.0 and Valkey 9.1 that are not here. Files of their users name some: a rule on one of these has no effect.
const ABSENT: [&str; 32] = [
    "client|capa",
    "client|import-source",
    "cluster|cancelslotmigrations",
    "cluster|flushslot",
    "cluster|getslotmigrations",
    "cluster|migrateslots",
    "cluster|slot-stats",
    "cluster|syncslots",
    "clusterscan",
    "failover",
    "lolwut",
    "migrate",
    "pfselftest",
    "psync",
    "replconf",
    "replicaof",
    "restore-asking",
    "slaveof",
    "sync",
    "vadd",
    "vcard",
    "vdim",
    "vemb",
    "vgetattr",
    "vinfo",
    "vismember",
    "vlinks",
    "vrandmember",
    "vrem",
    "vsetattr",
    "vsim",
    "waitaof",
];

/// Returns whether Redis or Valkey has a command of this name that is not here.
pub(crate) fn is_absent(name: &[u8]) -> bool {
    ABSENT.iter().any(|absent| name.eq_ignore_ascii_case(absent.as_bytes()))
}

/// The number of a command or a subcommand: its row's.
pub(crate) type CommandId = u32;

/// A command, as rules see it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its name in lower case; of a subcommand `container|name`.
    pub name: &'static str,
    /// Its categories: a bit for each.
    pub categories: u32,
    /// Its subcommands.
    pub subcommands: Range<CommandId>,
}

impl Entry {
    /// Returns whether it is a subcommand.
    pub fn is_subcommand(&self) -> bool {
        self.name.contains('|')
    }
}

/// A set of commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commands([u64; ROWS_MAX / 64]);

impl Commands {
    /// No command.
    pub const NONE: Commands = Commands([0; ROWS_MAX / 64]);
    /// Every command.
    pub const ALL: Commands = Commands([u64::MAX; ROWS_MAX / 64]);

    /// Returns whether the command is in the set. No set has a number of [`ROWS_MAX`] or more.
    #[inline]
    pub fn has(&self, id: CommandId) -> bool {
        self.0.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }

    /// Adds a command, or removes it.
    pub fn set(&mut self, id: CommandId, is_in: bool) {
        let (word, bit) = (&mut self.0[id as usize / 64], 1 << (id % 64));
        *word = if is_in { *word | bit } else { *word & !bit };
    }

    /// Adds all commands of another set, or removes them.
    pub fn set_all(&mut self, others: &Commands, are_in: bool) {
        for (word, others) in self.0.iter_mut().zip(others.0) {
            *word = if are_in { *word | others } else { *word & !others };
        }
    }
}

/// All commands.
#[derive(Debug)]
pub(crate) struct Catalog {
    entries: Vec<Entry>,
    by_name: HashMap<&'static str, CommandId>,
    /// Categories, each with the commands that a rule on it concerns.
    categories: Vec<(&'static str, Commands)>,
}

impl Catalog {
    /// A catalog of entries in the order of their numbers, with the names of categories in the order of their bits.
    pub fn new(entries: Vec<Entry>, categories: &[&'static str]) -> Catalog {
        assert!(entries.len() <= ROWS_MAX, "a set has a bit for each command");
        let by_name = entries.iter().zip(0..).map(|(entry, id)| (entry.name, id)).collect();
        let of = |bit: usize| {
            let mut commands = Commands::NONE;
            let has = |entry: &Entry| entry.categories >> bit & 1 == 1;
            for (entry, id) in entries.iter().zip(0..).filter(|(entry, _)| has(entry)) {
                commands.set(id, true);
                // A rule on a container is one on all that it has.
                entry.subcommands.clone().for_each(|id| commands.set(id, true));
            }
            commands
        };
        let categories = categories.iter().enumerate().map(|(bit, &name)| (name, of(bit))).collect();
        Catalog { entries, by_name, categories }
    }

    /// The command of this name, in any case; `container|name` is a subcommand.
    pub fn find(&self, name: &[u8]) -> Option<CommandId> {
        let name = std::str::from_utf8(name).ok()?.to_ascii_lowercase();
        self.by_name.get(&*name).copied()
    }

    /// The commands that a rule on this category concerns. Its name may be in any case.
    pub fn category(&self, name: &[u8]) -> Option<&Commands> {
        let named = |known: &str| known.as_bytes().eq_ignore_ascii_case(name);
        self.categories.iter().find(|(known, _)| named(known)).map(|(_, commands)| commands)
    }

    /// What is known of a command.
    pub fn entry(&self, id: CommandId) -> &Entry {
        &self.entries[id as usize]
    }
}
