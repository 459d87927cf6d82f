//! Building drivers: their sources lie in this binary, and are compiled when they are first wanted.
//!
//! A built driver lies in the user's cache folder, under a hash of its source, and is built once.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, process};

use crate::error::Error;

const SOURCE: &str = include_str!("../../drivers/c/libmemcached.c");

/// How a driver is compiled, with its source and where it goes between.
const COMPILER: &str = "cc";
const FLAGS: [&str; 4] = ["-std=c11", "-O2", "-Wall", "-Wextra"];
const LIBRARIES: [&str; 1] = ["-lmemcached"];

/// The driver of libmemcached, built if it is not there yet.
///
/// # Errors
/// [`Error::Peer`] that says what to install.
pub fn libmemcached() -> Result<PathBuf, Error> {
    let mut hash = DefaultHasher::new();
    (SOURCE, FLAGS, LIBRARIES).hash(&mut hash);
    let folder = cache().join(format!("libmemcached-{:016x}", hash.finish()));
    let program = folder.join("driver");
    if !program.is_file() {
        compile(&folder, &program)?;
    }
    Ok(program)
}

/// Where built drivers are kept.
fn cache() -> PathBuf {
    let given = |name| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let home = given("XDG_CACHE_HOME").or_else(|| given("HOME").map(|home| home.join(".cache")));
    home.unwrap_or_else(env::temp_dir).join("larder/drivers")
}

fn compile(folder: &Path, program: &Path) -> Result<(), Error> {
    let file = |path: &Path, error: std::io::Error| Error::File(path.to_owned(), error.to_string());
    fs::create_dir_all(folder).map_err(|error| file(folder, error))?;
    // Two labs may build at once: each has its own file, and the last to be named stays.
    let own = |suffix: &str| folder.join(format!("{}{suffix}", process::id()));
    let (source, built) = (own(".c"), own(".out"));
    fs::write(&source, SOURCE).map_err(|error| file(&source, error))?;
    let output = Command::new(COMPILER)
        .args(FLAGS)
        .arg("-o")
        .arg(&built)
        .arg(&source)
        .args(LIBRARIES)
        .env("LC_ALL", "C")
        .output();
    let _ = fs::remove_file(&source);
    let output = output.map_err(|_| {
        Error::Peer(format!(
            "{COMPILER} is not on PATH; Debian has it: apt install gcc libc6-dev libmemcached-dev"
        ))
    })?;
    if !output.status.success() {
        return Err(Error::Peer(complaint(&String::from_utf8_lossy(&output.stderr))));
    }
    fs::rename(&built, program).map_err(|error| file(program, error))
}

/// What to do about what the compiler says.
fn complaint(said: &str) -> String {
    let first = said.lines().find(|line| line.contains("error")).unwrap_or("it says nothing").trim();
    match said {
        _ if said.contains("libmemcached/memcached.h") || said.contains("-lmemcached") => {
            "libmemcached is not installed; Debian has it: apt install libmemcached-dev".to_owned()
        }
        _ if said.contains(".h: No such file") => {
            format!("headers of the C library are missing; Debian has them: apt install libc6-dev ({first})")
        }
        _ => format!("the driver cannot be built: {first}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_a_line_that_says_what_to_install() {
        let header = "driver.c:24:10: fatal error: libmemcached/memcached.h: No such file or directory\n";
        assert!(complaint(header).ends_with("apt install libmemcached-dev"));
        let library = "/usr/bin/ld: cannot find -lmemcached: No such file or directory\n";
        assert!(complaint(library).ends_with("apt install libmemcached-dev"));
        let libc =
            "driver.c:22:10: fatal error: errno.h: No such file or directory\ncompilation terminated.\n";
        assert!(complaint(libc).contains("apt install libc6-dev"));
        let other = "driver.c:1:1: error: unknown type name 'x'\n";
        assert_eq!(
            complaint(other),
            "the driver cannot be built: driver.c:1:1: error: unknown type name 'x'"
        );
        assert!([header, library, libc, other].iter().all(|said| !complaint(said).contains('\n')));
    }
}
