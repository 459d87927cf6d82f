//! The commands as users' rules know them: by name, category and number.

use std::sync::LazyLock;

use super::permissions::{CATEGORIES, categories};
use super::row::Command;
use super::table::ROWS;
use crate::core::acl::catalog::{Catalog, Entry};
use crate::core::calls::RowId;

/// The commands as users' rules know them.
static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
    let bits = |group, row| {
        let bit = |name| CATEGORIES.iter().position(|known| *known == name).map_or(0, |bit| 1 << bit);
        categories(group, row).map(bit).sum()
    };
    let entry = |(id, group, row): (RowId, _, &'static Command)| {
        let first = ROWS.sub(id, 0);
        let subcommands = first..first + row.subcommands().len() as RowId;
        let subcommands = if row.subcommands().is_empty() { 0..0 } else { subcommands };
        Entry { name: row.name, categories: bits(group, row), subcommands }
    };
    Catalog::new(ROWS.numbered().map(entry).collect(), CATEGORIES)
});

/// The commands that users' rules may name.
pub(crate) fn catalog() -> &'static Catalog {
    &CATALOG
}
