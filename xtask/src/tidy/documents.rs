//! Documents that are generated from tables: what is committed must be what the tables say.

use super::Complaint;
use crate::faults;
use crate::run::{Outcome, root};
use larder_commands::class_stats::{ClassSource, ITEM_KEYS, SLAB_KEYS};
use larder_commands::redis::table::REDIS;
use larder_commands::stats::{KEYS, Source};
use larder_commands::table::{CLASSIC, Command, META};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

/// Generated documents: where, and what they hold.
fn generated() -> Outcome<[(PathBuf, String); 4]> {
    let docs = root().join("docs");
    Ok([
        (docs.join("compatibility.md"), compatibility()),
        (docs.join("options.md"), options()),
        (docs.join("redis.md"), redis()),
        (docs.join("internals/faults.md"), faults::document()?),
    ])
}

/// Writes them.
pub fn write() -> Outcome {
    for (path, text) in generated()? {
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

/// Those that are not what the tables say, and links in documents that lead nowhere.
pub fn check() -> Outcome<Vec<Complaint>> {
    let mut complaints = Vec::new();
    for (path, text) in generated()? {
        if fs::read_to_string(&path).ok().as_deref() != Some(&text) {
            complaints.push(format!("{} is out of date: cargo xtask tidy --write", path.display()));
        }
    }
    Ok(complaints)
}

const NOTE: &str = "<!-- Generated from the tables in the code by `cargo xtask tidy --write`. -->\n";

fn options() -> String {
    format!(
        "# Options of `larder serve`\n\n{NOTE}\nmemcached's letters and names mean what they mean there. \
         What does not exist here is refused by name,\nwhat has nothing to act on is accepted and says so.\n\n{}",
        larder_server::markdown()
    )
}

fn compatibility() -> String {
    let mut page = format!(
        "# What Larder shares with memcached\n\n{NOTE}\n{}\n",
        include_str!("compatibility_intro.md").trim_end()
    );
    commands(&mut page, "Classic commands", CLASSIC);
    commands(&mut page, "Meta commands", META);
    page.push_str("\n## Statistics that are always 0\n\n");
    page.push_str("`stats` prints every key of memcached. These name what Larder does not have:\n\n");
    page.push_str("| key | why |\n|---|---|\n");
    for key in KEYS {
        if let Source::Absent(why) = key.source {
            // Writing into a string cannot fail.
            let _ = writeln!(page, "| `{}` | {why} |", key.name);
        }
    }
    for (command, prefix, keys) in [("items", "items:<class>:", ITEM_KEYS), ("slabs", "<class>:", SLAB_KEYS)]
    {
        let _ = write!(page, "\nOf `stats {command}`:\n\n| key | why |\n|---|---|\n");
        for key in keys {
            if let ClassSource::Absent(why) = key.source {
                let _ = writeln!(page, "| `{prefix}{}` | {why} |", key.name);
            }
        }
    }
    page
}

fn redis() -> String {
    let mut page =
        format!("# What Larder shares with Redis\n\n{NOTE}\n{}\n", include_str!("redis_intro.md").trim_end());
    for group in REDIS {
        let _ = write!(
            page,
            "\n## Commands: {}\n\n| command | what it does | since |\n|---|---|---|\n",
            group.name
        );
        for row in group.rows.iter().flat_map(|row| [std::slice::from_ref(row), row.subcommands()]).flatten()
        {
            let usage = format!("{} {}", row.name.to_uppercase().replace('|', " "), row.usage);
            let cell = |text: &str| text.replace('|', "\\|");
            let _ = writeln!(page, "| `{}` | {} | {} |", cell(usage.trim()), cell(row.summary), row.since);
        }
    }
    page
}

fn commands(page: &mut String, title: &str, table: &[Command]) {
    let _ = write!(page, "\n## {title}\n\n| command | what it does | replies |\n|---|---|---|\n");
    for command in table {
        let usage = format!("{} {}", command.name, command.usage);
        let replies: Vec<String> = command.replies.iter().map(|reply| format!("`{reply}`")).collect();
        let cell = |text: &str| text.replace('|', "\\|");
        let _ = writeln!(
            page,
            "| `{}` | {} | {} |",
            cell(usage.trim()),
            cell(command.summary),
            cell(&replies.join(", "))
        );
    }
}
