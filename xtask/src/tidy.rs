//! `cargo xtask tidy`: checks of the tree that no compiler makes.
//!
//! Arrows of crates and modules, where unsafe code may be, a transcript for every row, generated documents, links between
//! documents, paths that they name, sources of their figures, and words that do not belong or are retired. `--write` renews the
//! generated documents.

mod arrows;
mod documents;
mod figures;
mod ignored;
mod inner_arrows;
mod links;
mod paths;
mod rows;
mod source;
mod words;

pub use documents::NOTE;
pub use ignored::in_gate;

use crate::faults;
use crate::run::{Outcome, capture, command, root};
use std::path::PathBuf;

/// One thing to mend, with its place.
pub type Complaint = String;

/// Checks everything; fails with all complaints.
pub fn tidy(write: bool) -> Outcome {
    if write {
        self::write()?;
    }
    let files = files()?;
    let checks: [(&str, Vec<Complaint>); 11] = [
        ("arrows", arrows::check()?),
        ("inner arrows", inner_arrows::check()?),
        ("source", source::check(&files)?),
        ("transcripts", rows::check()?),
        ("documents", documents::check()?),
        ("links", links::check(&files)?),
        ("paths", paths::check(&files)?),
        ("figures", figures::check(&files)?),
        ("words", words::check(&files)?),
        ("ignored tests", ignored::check()?),
        ("faults", faults::check()?),
    ];
    let mut failed = 0;
    for (name, complaints) in &checks {
        println!("{name}: {}", if complaints.is_empty() { "ok" } else { "FAILED" });
        failed += usize::from(!complaints.is_empty());
        for complaint in complaints {
            println!("  {complaint}");
        }
    }
    println!("tidy: {} passed, {failed} failed", checks.len() - failed);
    if failed == 0 { Ok(()) } else { Err("the tree is not tidy".into()) }
}

/// Prints crates and modules, and which of them uses which.
pub fn print_arrows() -> Outcome {
    arrows::print()
}

/// Writes the generated documents.
pub fn write() -> Outcome {
    documents::write()
}

/// Files of the repository, committed or not yet, relative to its root.
pub fn files() -> Outcome<Vec<PathBuf>> {
    let (works, list) = capture(command("git", &["ls-files", "--cached", "--others", "--exclude-standard"]))?;
    if !works {
        return Err(format!("git ls-files: {list}"));
    }
    Ok(list.lines().map(PathBuf::from).filter(|path| root().join(path).is_file()).collect())
}
