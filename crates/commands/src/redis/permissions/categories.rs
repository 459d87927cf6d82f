//! The ACL categories of commands.

use crate::redis::row::{Command, flag};
use crate::redis::rows::Group;

/// Redis's names of categories, including those that have no command here.
pub(crate) const CATEGORIES: &[&str] = &[
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// The time to find the categories of a command.
pub(crate) const CATEGORIES_NS: u64 = 70;
/// The ACL categories that follow from a row and its group, in the order of [`CATEGORIES`].
pub(crate) fn categories(group: &Group, row: &Command) -> impl Iterator<Item = &'static str> {
    let (category, row) = (group.category, *row);
    CATEGORIES.iter().copied().filter(move |name| match *name {
        // What a script will do is not known.
        "read" => row.has(flag::READONLY) && !row.runs_script(),
        "write" => row.has(flag::WRITE),
        "admin" | "dangerous" if row.categories.is_some_and(|own| own.contains(name)) => true,
        "admin" | "dangerous" => row.has(flag::ADMIN),
        "fast" => row.has(flag::FAST),
        "slow" => !row.has(flag::FAST),
        "blocking" => row.has(flag::BLOCKING),
        // A container is not in the category of its group: its subcommands are.
        name => row
            .categories
            .map_or(category == Some(name) && row.subcommands().is_empty(), |own| own.contains(&name)),
    })
}
