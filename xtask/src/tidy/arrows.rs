//! Who may depend on whom.

use super::Complaint;
use crate::run::{Outcome, root};
use std::fs;

/// A crate and the crates of ours it may name under `[dependencies]`.
const ARROWS: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("store", &[]),
    ("eventloop", &[]),
    ("commands", &["protocol", "store"]),
    // The server makes the store that sessions work on.
    ("server", &["commands", "eventloop", "store"]),
    ("client", &["protocol"]),
    ("lab", &["client", "protocol", "eventloop"]),
    ("larder", &["server", "lab"]),
    ("testkit", &["commands", "eventloop", "store", "server"]),
];

/// A manifest that names a crate it must not, or a crate that nobody has placed.
pub fn check() -> Outcome<Vec<Complaint>> {
    let mut complaints = Vec::new();
    let mut crates = vec![("client".to_owned(), root().join("clients/rust"))];
    for entry in fs::read_dir(root().join("crates")).map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        crates.push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path));
    }
    for (name, path) in crates {
        let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
            complaints.push(format!("crate {name} has no place among the arrows"));
            continue;
        };
        let manifest = path.join("Cargo.toml");
        let text =
            fs::read_to_string(&manifest).map_err(|error| format!("{}: {error}", manifest.display()))?;
        for (section, dependency) in ours(&text) {
            // Tests may look from further away; only the testkit is for tests alone.
            let fine = if section == "dev-dependencies" {
                dependency == "testkit" || allowed.contains(&dependency)
            } else {
                dependency != "testkit" && allowed.contains(&dependency)
            };
            if !fine {
                complaints.push(format!("crate {name} must not depend on {dependency} ({section})"));
            }
        }
    }
    Ok(complaints)
}

/// Sections and names (without `larder-`) of dependencies within the workspace.
fn ours(manifest: &str) -> Vec<(&str, &str)> {
    let mut section = "";
    let mut found = Vec::new();
    for line in manifest.lines() {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
        } else if section.contains("dependencies")
            && let Some(rest) = line.strip_prefix("larder-")
        {
            found.push((section, rest.split(['.', ' ', '=']).next().unwrap_or_default()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_found_with_their_section() {
        let manifest = "[dependencies]\nlarder-store.workspace = true\nrand = \"1\"\n[dev-dependencies]\nlarder-testkit = { path = \"x\" }\n";
        assert_eq!(ours(manifest), [("dependencies", "store"), ("dev-dependencies", "testkit")]);
    }
}
