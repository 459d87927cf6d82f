//! Which crate may use which, by their manifests, and which module of a crate, by the paths in their files.
//!
//! Only declared arrows are allowed, and each declared arrow has to be used.

use super::Complaint;
use crate::run::{Outcome, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// A name and the names of its kind that it may use.
type Arrows = [(&'static str, &'static [&'static str])];

/// A crate and the workspace's crates that its manifest may name. The tests of each may also name the testkit.
const CRATES: &Arrows = &[
    ("protocol", &[]),
    ("store", &[]),
    ("eventloop", &[]),
    ("tls", &["eventloop"]),
    ("script", &["protocol"]),
    ("commands", &["protocol", "script", "store"]),
    // The server makes the store that sessions work on.
    ("server", &["commands", "eventloop", "store", "tls"]),
    ("client", &["protocol"]),
    ("client-c", &["client"]),
    ("lab", &["client", "eventloop", "protocol", "tls"]),
    ("larder", &["lab", "server"]),
    ("testkit", &["commands", "eventloop", "server", "store", "tls"]),
    ("trials", &["testkit"]),
    ("benches", &["commands", "protocol", "store"]),
];

/// Crates whose modules have declared arrows. The crate's root, which exports names, has none.
const MODULES: &[(&str, &Arrows)] = &[(
    "commands",
    &[
        ("core", &[]),
        ("memcached", &["core"]),
        ("metrics", &["core", "memcached", "redis", "shared"]),
        ("redis", &["core"]),
        ("session", &["core", "memcached", "redis", "shared"]),
        ("shared", &["core", "memcached", "redis"]),
    ],
)];

/// Complains of arrows that are not declared, of declared ones that are not used, and of crates or modules that are not listed.
pub fn check() -> Outcome<Vec<Complaint>> {
    let mut complaints = Vec::new();
    compare("crate", CRATES, &crates()?, &mut complaints);
    for (name, arrows) in MODULES {
        compare("module", arrows, &Modules::of(&source(name))?.arrows(1), &mut complaints);
    }
    Ok(complaints)
}

/// Prints the arrows of crates and of modules, as the code has them.
pub fn print() -> Outcome {
    let mut text = "crates\n".to_owned();
    for (name, named) in crates()? {
        line(&mut text, 1, &name, &named, "");
    }
    for (name, _) in MODULES {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "\nmodules of {name}");
        let modules = Modules::of(&source(name))?;
        for (module, named) in modules.arrows(1) {
            line(&mut text, 1, &module, &named, &modules.size(&module));
            let inner = modules.arrows(2);
            for (module, named) in inner.iter().filter(|(inner, _)| inner.starts_with(&format!("{module}::")))
            {
                let short = |path: &str| path.split_once("::").map_or(path, |(_, name)| name).to_owned();
                let named = named.iter().map(|name| short(name)).collect();
                line(&mut text, 2, &short(module), &named, &modules.size(module));
            }
        }
    }
    print!("{text}");
    Ok(())
}

fn line(text: &mut String, depth: usize, name: &str, named: &BTreeSet<String>, size: &str) {
    let named = named.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let arrow = if named.is_empty() { "" } else { " ──► " };
    let size = if size.is_empty() { String::new() } else { format!(" ({size})") };
    let _ = writeln!(text, "{}{name}{size}{arrow}{named}", "  ".repeat(depth));
}

/// Names, and the names that each uses.
pub(super) type Named = BTreeMap<String, BTreeSet<String>>;

/// Complains of arrows that are used and not declared, and the other way round.
fn compare(kind: &str, declared: &Arrows, named: &Named, complaints: &mut Vec<Complaint>) {
    for (name, others) in named {
        let Some((_, allowed)) = declared.iter().find(|(known, _)| known == name) else {
            complaints.push(format!("{kind} {name} has no place among the arrows"));
            continue;
        };
        for other in others.iter().filter(|other| !allowed.contains(&other.as_str())) {
            complaints.push(format!("{kind} {name} must not know {other}"));
        }
    }
    for (name, allowed) in declared {
        for other in *allowed {
            if !named.get(*name).is_some_and(|others| others.contains(*other)) {
                complaints.push(format!("{kind} {name} may know {other}, and does not"));
            }
        }
    }
}

/// Manifests by the names of their crates.
fn manifests() -> Outcome<Vec<(String, String)>> {
    let mut paths = vec![
        ("client".to_owned(), root().join("clients/rust")),
        ("client-c".to_owned(), root().join("clients/c")),
    ];
    for entry in fs::read_dir(root().join("crates")).map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        paths.push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path));
    }
    paths.into_iter().map(|(name, path)| Ok((name, read(&path.join("Cargo.toml"))?))).collect()
}

fn read(path: &Path) -> Outcome<String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The arrows of crates. That tests use the testkit, or their own crate, is left out.
fn crates() -> Outcome<Named> {
    let named = manifests()?.into_iter().map(|(name, manifest)| {
        let is_of_tests = |(section, other): &(&str, &str)| {
            *section == "dev-dependencies" && (*other == "testkit" || *other == name)
        };
        let named = ours(&manifest).into_iter().filter(|named| !is_of_tests(named));
        let named = named.map(|(_, dependency)| dependency.to_owned()).collect();
        (name, named)
    });
    Ok(named.collect())
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

/// The folder of a crate's source.
fn source(name: &str) -> PathBuf {
    root().join("crates").join(name).join("src")
}

/// The modules of a crate: of each file its path, its lines, and the paths that it names. Those that tests name are left out.
pub(super) struct Modules(Vec<(Vec<String>, usize, Vec<Vec<String>>)>);

impl Modules {
    /// The modules whose files are in this folder.
    pub(super) fn of(source: &Path) -> Outcome<Modules> {
        let mut files = Vec::new();
        collect(source, &mut files)?;
        files.sort();
        let mut modules = Vec::new();
        for file in files {
            let module = module_of(file.strip_prefix(source).unwrap_or(&file));
            // The root stands outside.
            if !module.is_empty() {
                let text = read(&file)?;
                let of_tests = module.iter().any(|name| name == "tests");
                let paths = if of_tests { Vec::new() } else { paths(&module, &text) };
                modules.push((module, text.lines().count(), paths));
            }
        }
        Ok(Modules(modules))
    }

    /// The arrows of modules at this depth that have the same parent.
    pub(super) fn arrows(&self, depth: usize) -> Named {
        let known = |path: &[String]| self.0.iter().any(|(module, ..)| module.starts_with(path));
        let mut named = Named::new();
        for (module, _, paths) in self.0.iter().filter(|(module, ..)| module.len() >= depth) {
            let from = &module[..depth];
            let others = named.entry(from.join("::")).or_default();
            for path in paths {
                let sibling = path.len() >= depth && path[..depth - 1] == from[..depth - 1];
                if sibling && path[..depth] != *from && known(&path[..depth]) {
                    others.insert(path[..depth].join("::"));
                } else if depth == 1 && !known(&path[..path.len().min(1)]) {
                    others.insert("the crate's root".to_owned());
                }
            }
        }
        named
    }

    fn size(&self, module: &str) -> String {
        let within = |path: &[String]| {
            let path = path.join("::");
            path == module || path.starts_with(&format!("{module}::"))
        };
        let sizes: Vec<usize> =
            self.0.iter().filter(|(path, ..)| within(path)).map(|(_, lines, _)| *lines).collect();
        let files = if sizes.len() == 1 { "1 file".to_owned() } else { format!("{} files", sizes.len()) };
        format!("{files}, {} lines", sizes.iter().sum::<usize>())
    }
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Outcome {
    for entry in fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))? {
        let path = entry.map_err(|error| error.to_string())?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The path of the module that a file is.
fn module_of(file: &Path) -> Vec<String> {
    let mut path: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|name| name == "mod" || name == "lib") {
        path.pop();
    }
    path
}

/// The paths in a file that begin with `crate` or `super`, from the crate's root on. Comments are skipped, and the tests at the
/// end.
fn paths(module: &[String], text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let lines = text.lines().take_while(|line| !line.starts_with("mod tests {"));
    let code: Vec<&str> = lines.map(|line| line.split("//").next().unwrap_or_default()).collect();
    for (index, line) in code.iter().enumerate() {
        for (at, word) in line.match_indices("crate").chain(line.match_indices("super")) {
            let before = line[..at].chars().next_back();
            let is_first = before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':' && c != '$');
            let Some(rest) = line[at + word.len()..].strip_prefix("::").filter(|_| is_first) else {
                continue;
            };
            let rest = [rest, &code[index + 1..].concat()].concat();
            let (mut base, mut rest) = match word {
                "crate" => (Vec::new(), rest.as_str()),
                _ => (module[..module.len() - 1].to_vec(), rest.as_str()),
            };
            while let Some(further) = rest.strip_prefix("super::") {
                base.pop();
                rest = further;
            }
            for name in names(rest) {
                found.push(base.iter().cloned().chain(name.split("::").map(str::to_owned)).collect());
            }
        }
    }
    found
}

/// The paths of a tree: `a::b::c` and `a::b::d` of `a::b::{c, d}`, `a` of `a as b`.
fn names(text: &str) -> Vec<String> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len());
    let (head, rest) = text.split_at(end);
    let Some(list) = rest.strip_prefix('{').filter(|_| head.is_empty() || head.ends_with("::")) else {
        return vec![head.trim_end_matches(':').to_owned()];
    };
    let (mut found, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                let part = list[start..at].trim();
                if !part.is_empty() {
                    found.extend(names(part).iter().map(|name| format!("{head}{name}")));
                }
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
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

    #[test]
    fn paths_are_found_from_the_root_on() {
        let module: Vec<String> = ["redis", "keys", "scan"].map(str::to_owned).to_vec();
        let found = |text| paths(&module, text).iter().map(|path| path.join("::")).collect::<Vec<_>>();
        assert_eq!(found("use crate::core::output::Output;"), ["core::output::Output"]);
        assert_eq!(found("use super::super::call::{Call, is};"), ["redis::call::Call", "redis::call::is"]);
        assert_eq!(
            found("use crate::{\n    core,\n    memcached::{a, b::{c, d as e}},\n};"),
            ["core", "memcached::a", "memcached::b::c", "memcached::b::d"]
        );
        assert_eq!(found("    super::survey::look(x) + crate::NAME"), ["NAME", "redis::keys::survey::look"]);
        assert!(found("mod tests {\n    use super::super::copy;").is_empty());
        assert!(found("// crate::memcached is another\n let supersede = $crate::x;").is_empty());
    }

    #[test]
    fn what_is_not_declared_and_what_is_not_used_are_told() {
        let named = Named::from([
            ("a".to_owned(), BTreeSet::from(["b".to_owned()])),
            ("b".to_owned(), BTreeSet::from(["a".to_owned()])),
            ("c".to_owned(), BTreeSet::new()),
        ]);
        let mut complaints = Vec::new();
        compare("module", &[("a", &["b"]), ("b", &["c"])], &named, &mut complaints);
        assert_eq!(
            complaints,
            [
                "module b must not know a",
                "module c has no place among the arrows",
                "module b may know c, and does not"
            ]
        );
    }
}
