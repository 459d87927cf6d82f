//! Generated documents: the committed text must be what the tables give. A test of the server checks those that come from its
//! tables (`crates/server/tests/documents`).

use super::Complaint;
use crate::conformance::frameworks;
use crate::faults;
use crate::run::{Outcome, cargo, root, run};
use crate::test::WITHOUT;
use std::fs;
use std::path::PathBuf;

/// Generated documents: path and text.
fn generated() -> Outcome<[(PathBuf, String); 3]> {
    let docs = root().join("docs");
    Ok([
        (docs.join("frameworks.md"), frameworks::document()?),
        (docs.join("internals/faults.md"), faults::document()?),
        (docs.join("testing.md"), super::ignored::document()?),
    ])
}

/// Writes these documents, and those of the server's tables.
pub fn write() -> Outcome {
    for (path, text) in generated()? {
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    // The whole workspace is named: the server alone would be built again with other features.
    let mut command = cargo(&["test", "--quiet", "--workspace", WITHOUT, "--test", "documents"]);
    command.env("LARDER_WRITE_DOCUMENTS", "1");
    run(command)
}

/// Complains of documents that are out of date, and of a glossary that is too long.
pub fn check() -> Outcome<Vec<Complaint>> {
    let mut complaints = Vec::new();
    for (path, text) in generated()? {
        if fs::read_to_string(&path).ok().as_deref() != Some(&text) {
            complaints.push(format!("{} is out of date: cargo xtask tidy --write", path.display()));
        }
    }
    let glossary = root().join("docs/glossary.md");
    let text = fs::read_to_string(&glossary).map_err(|error| format!("{}: {error}", glossary.display()))?;
    complaints.extend(too_many_words(&text));
    Ok(complaints)
}

/// The most words of the glossary. The words of one part alone are explained in its own page.
const GLOSSARY_WORDS_MAX: usize = 60;

/// Complains of a glossary that has too many words.
fn too_many_words(glossary: &str) -> Option<Complaint> {
    let rows = glossary.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| word |"));
    let words = rows.count();
    (words > GLOSSARY_WORDS_MAX)
        .then(|| format!("docs/glossary.md: {words} words, {GLOSSARY_WORDS_MAX} at most: move those of one part to its page"))
}

pub const NOTE: &str = "<!-- Generated from the tables in the code by `cargo xtask tidy --write`. -->\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glossary_has_sixty_words_at_most() {
        let glossary = |words: usize| {
            let row = |n| format!("| word{n} | meaning |\n");
            let rows: String = (0..words).map(row).collect();
            format!("# Words\n\n| word | meaning |\n|---|---|\n{rows}")
        };
        assert!(too_many_words(&glossary(GLOSSARY_WORDS_MAX - 1)).is_none());
        assert!(too_many_words(&glossary(GLOSSARY_WORDS_MAX)).is_none());
        assert!(
            too_many_words(&glossary(GLOSSARY_WORDS_MAX + 1)).is_some_and(|said| said.contains("61 words"))
        );
    }
}
