//! Source: where unsafe code is, words that do not belong, code that is not finished.

use super::Complaint;
use crate::run::{Outcome, root};
use std::fs;
use std::path::{Path, PathBuf};

/// Crates that may hold unsafe code: the one with the arena.
const UNSAFE: &[&str] = &["store"];
/// Folders of other crates that may hold unsafe code: where C calls in, by pointers alone. Their crates deny unsafe code, and the
/// folders allow it.
const UNSAFE_FOLDERS: &[&str] = &["clients/c/src/abi"];
/// First directories of paths that exist on one machine only.
const MACHINE: &[&str] = &["home", "root", "work", "Users"];
/// Marks of unfinished code. Split, so that this list does not find itself.
const UNFINISHED: &[&str] =
    &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("todo", "!("), concat!("unimpl", "emented!(")];

/// Calls that wait, and the modules of the store that may make them: a worker that waits for another leaves its epoch first.
const WAITS: &[(&str, &[&str])] = &[
    ("thread::sleep(", &["schedule", "sync"]),
    ("thread::yield_now(", &["schedule", "sync"]),
    ("sync::sleep(", &["wait"]),
    ("sync::yield_now(", &["wait"]),
    ("Backoff::", &["bucket", "pin", "read"]),
];

/// Checks all text files.
pub fn check(files: &[PathBuf]) -> Outcome<Vec<Complaint>> {
    let mut complaints = Vec::new();
    for file in files {
        let bytes = fs::read(root().join(file)).map_err(|error| format!("{}: {error}", file.display()))?;
        let Ok(text) = String::from_utf8(bytes) else { continue };
        let generated = file.ends_with("Cargo.lock") || file.starts_with("fuzz/seeds");
        if generated {
            continue;
        }
        let mut tests = false;
        for (index, line) in text.lines().enumerate() {
            tests |= line.starts_with("#[cfg(") && line.contains("test");
            let mut complain =
                |what: &str| complaints.push(format!("{}:{}: {what}", file.display(), index + 1));
            if UNFINISHED.iter().any(|word| line.contains(word)) {
                complain("unfinished");
            }
            if names_machine(line) {
                complain("a path of one machine");
            }
            if is_rust(file) && has_unsafe(line) && !may_be_unsafe(file) {
                complain("unsafe code outside of store and the C client's abi");
            }
            if !tests && waits_elsewhere(file, line) {
                complain("the store waits by wait.rs, outside of the epoch");
            }
        }
        let strictly = if has_unsafe_folder(file) { "deny" } else { "forbid" };
        if is_crate_root(file)
            && !may_be_unsafe(file)
            && !text.contains(&format!("#![{strictly}(unsafe_code)]"))
        {
            complaints.push(format!("{}: lacks {strictly}(unsafe_code)", file.display()));
        }
        if is_rust(file) && !is_fuzzer(file) && !text.starts_with("//!") {
            complaints.push(format!("{}: does not begin with what it is (//!)", file.display()));
        }
        if file.ends_with("mod.rs") {
            complaints.push(format!("{}: a module is a file beside its folder", file.display()));
        }
    }
    Ok(complaints)
}

fn names_machine(line: &str) -> bool {
    MACHINE.iter().any(|name| {
        let path = format!("/{name}/");
        line.match_indices(&path).any(|(at, _)| {
            // A part of a longer path or of an address does not count.
            !line[..at].ends_with(|before: char| before.is_alphanumeric() || "./_-})*".contains(before))
        })
    })
}

/// True if a line of the store waits in a module that may not.
fn waits_elsewhere(file: &Path, line: &str) -> bool {
    let Ok(module) = file.strip_prefix("crates/store/src") else { return false };
    let module = module.with_extension("");
    // Tests may wait.
    !module.starts_with("models")
        && !module.ends_with("tests")
        && WAITS
            .iter()
            .any(|(word, may)| line.contains(word) && !may.iter().any(|may| module == Path::new(may)))
}

fn is_rust(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "rs")
}

fn is_fuzzer(file: &Path) -> bool {
    file.starts_with("fuzz")
}

fn is_crate_root(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default();
    (name == "lib.rs" || name == "main.rs") && file.parent().is_some_and(|parent| parent.ends_with("src"))
}

fn may_be_unsafe(file: &Path) -> bool {
    UNSAFE.iter().any(|name| file.starts_with(Path::new("crates").join(name)))
        || UNSAFE_FOLDERS.iter().any(|name| file.starts_with(name))
}

/// True for the root of a crate with a folder that may hold unsafe code.
fn has_unsafe_folder(file: &Path) -> bool {
    UNSAFE_FOLDERS.iter().any(|name| Path::new(name).parent() == file.parent())
}

/// True for the keyword; lints and comments do not count.
fn has_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let quoted = code.contains('"');
    !quoted
        && code.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|word| word == "unsafe")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_is_a_keyword_and_not_a_word() {
        assert!(has_unsafe("    unsafe { read() }"));
        assert!(has_unsafe("pub unsafe fn read()"));
        assert!(!has_unsafe("#![forbid(unsafe_code)]"));
        assert!(!has_unsafe("// unsafe only in store"));
    }

    #[test]
    fn of_the_servers_crates_the_store_alone_may_be_unsafe() {
        assert!(may_be_unsafe(Path::new("crates/store/src/arena.rs")));
        assert!(!may_be_unsafe(Path::new("crates/eventloop/src/epoll.rs")));
    }

    #[test]
    fn one_folder_of_the_c_client_may_be_unsafe() {
        assert!(may_be_unsafe(Path::new("clients/c/src/abi/pointers.rs")));
        assert!(!may_be_unsafe(Path::new("clients/c/src/calls.rs")));
        assert!(has_unsafe_folder(Path::new("clients/c/src/lib.rs")));
        assert!(!has_unsafe_folder(Path::new("clients/rust/src/lib.rs")));
    }

    #[test]
    fn store_waits_in_one_place() {
        let waits = |module: &str| {
            let file = Path::new("crates/store/src").join(module);
            waits_elsewhere(&file, "        crate::sync::yield_now();")
        };
        assert!(waits("transaction.rs") && waits("worker/allocate.rs"));
        assert!(!waits("wait.rs") && !waits("models/moving.rs") && !waits("index/tests.rs"));
        assert!(!waits_elsewhere(Path::new("crates/server/src/main.rs"), "std::thread::sleep(time);"));
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let path = |first: &str| format!("see /{first}/notes");
        assert!(names_machine(&path("home")));
        assert!(!names_machine("https://example.org/home/notes"));
        assert!(!names_machine("usr/share"));
    }
}
