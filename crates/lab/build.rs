//! Collects the sources of drivers, which the lab builds where it runs, and of the clients that they are built with.
//!
//! Paths are those below the repository's root, so that what names another by its path finds it there.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// What a driver is built from: files and folders.
const DRIVERS: &[(&str, &[&str])] = &[
    ("GO", &["crates/lab/drivers/go", "clients/go"]),
    // The workspace's manifest says which versions its members depend on.
    ("RUST", &["crates/lab/drivers/rust", "clients/rust", "crates/protocol", "Cargo.toml"]),
    ("C", &["crates/lab/drivers/c", "clients/c", "clients/rust", "crates/protocol", "Cargo.toml"]),
    ("PYTHON", &["crates/lab/drivers/python"]),
    ("JAVA", &["crates/lab/drivers/java"]),
];

/// Folders that no driver needs: modules of their own, and what tests are made of.
const LEFT_OUT: &[&str] = &["clients/go/compare", "clients/go/otel", "clients/go/prom", "tests", "testdata"];

fn main() {
    let of = |name: &str| PathBuf::from(env::var_os(name).expect("cargo sets it"));
    let home = of("CARGO_MANIFEST_DIR");
    let root = home.ancestors().nth(2).expect("crates/lab lies two below").to_owned();
    let mut code = String::new();
    for (name, wanted) in DRIVERS {
        let mut files = Vec::new();
        for path in *wanted {
            println!("cargo::rerun-if-changed={}", root.join(path).display());
            collect(&root, Path::new(path), &mut files);
        }
        files.sort();
        writeln!(code, "pub const {name}: &[(&str, &str)] = &[").expect("a string takes it");
        for file in files {
            let whole = root.join(&file);
            writeln!(code, "    ({file:?}, include_str!({whole:?})),").expect("a string takes it");
        }
        code.push_str("];\n");
    }
    let out = of("OUT_DIR").join("sources.rs");
    fs::write(&out, code).unwrap_or_else(|error| panic!("{}: {error}", out.display()));
}

fn collect(root: &Path, path: &Path, files: &mut Vec<PathBuf>) {
    let whole = root.join(path);
    if !whole.is_dir() {
        files.push(path.to_owned());
        return;
    }
    let entries = fs::read_dir(&whole).unwrap_or_else(|error| panic!("{}: {error}", whole.display()));
    for entry in entries {
        let path = path.join(entry.expect("a folder is read").file_name());
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let left_out = LEFT_OUT.iter().any(|out| Path::new(out) == path || *out == name);
        if !left_out && !name.starts_with('.') && !name.ends_with("_test.go") && name != "target" {
            collect(root, &path, files);
        }
    }
}
