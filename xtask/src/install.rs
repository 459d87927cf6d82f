//! What tasks need, installed by name: Debian packages, a Python environment, cargo tools.
//!
//! Only what is missing is installed. Debian packages need root: without it the line to run is the
//! error. Python packages and cargo tools go below the target directory.

use crate::run::{Outcome, capture, cargo_front, command, root, run, target, which, without_our_toolchain};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

/// Installs Debian packages whose program (or file, if it begins with `/`) is missing, and prints the versions. One call at a
/// time.
pub fn debian(wanted: &[(&str, &str)]) -> Outcome {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().map_err(|_| "an installation has panicked")?;
    let is_there =
        |file: &str| if file.starts_with('/') { PathBuf::from(file).exists() } else { which(file).is_some() };
    let missing: Vec<&str> =
        wanted.iter().filter(|(file, _)| !is_there(file)).map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        install(&missing)?;
    }
    // Versions are not pinned. Programs that are not Debian's are listed, too.
    let packages = wanted.iter().map(|(_, package)| *package);
    let query: Vec<&str> = std::iter::once("--show").chain(packages).collect();
    if let Ok((_, versions)) = capture(command("dpkg-query", &query)) {
        println!("{}", versions.trim_end());
    }
    Ok(())
}

/// Installs these packages.
fn install(packages: &[&str]) -> Outcome {
    let line = format!("apt-get install -y {}", packages.join(" "));
    if !is_root()? {
        return Err(format!("missing Debian packages; run as root: {line}"));
    }
    let apt = |arguments: &[&str]| {
        let mut command = command("apt-get", arguments);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        // Services of installed packages would take the ports that tests want.
        command.env("RUNLEVEL", "1");
        command
    };
    run(apt(&["update", "-q"]))?;
    run(apt(&[&["install", "-y", "-q", "--no-install-recommends"][..], packages].concat()))
}

/// Whether this user may create network namespaces and install packages.
pub fn is_root() -> Outcome<bool> {
    Ok(capture(command("id", &["-u"]))?.1.trim() == "0")
}

/// The interpreter of the clients' Python environment, with these packages.
pub fn python(packages: &[&str]) -> Outcome<PathBuf> {
    python_environment("python", packages)
}

/// The interpreter of a Python environment below the target directory, with these packages.
pub fn python_environment(name: &str, packages: &[&str]) -> Outcome<PathBuf> {
    let home = root().join(target()).join("conformance").join(name);
    let python = home.join("bin/python");
    if !python.exists() {
        if capture(command("python3", &["-c", "import venv, ensurepip"])).is_ok_and(|(works, _)| works) {
            run(command("python3", &["-m", "venv", &home.to_string_lossy()]))?;
        } else {
            debian(&[("/usr/share/doc/python3-venv", "python3-venv")])?;
            run(command("/usr/bin/python3", &["-m", "venv", &home.to_string_lossy()]))?;
        }
    }
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(command(&python, &[&pip[..], packages].concat()))?;
    Ok(python)
}

/// The source distribution of a Python package, unpacked below the target directory.
pub fn python_source(python: &PathBuf, name: &str, version: &str) -> Outcome<PathBuf> {
    let home = target().join("conformance/sources");
    let unpacked = home.join(format!("{name}-{version}"));
    if !unpacked.is_dir() {
        let into = home.to_string_lossy().into_owned();
        let package = format!("{name}=={version}");
        let pip = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"];
        let rest = ["--no-binary", ":all:", "--dest", &into, &package];
        run(command(python, &[&pip[..], &rest[..]].concat()))?;
        let archive = home.join(format!("{name}-{version}.tar.gz"));
        run(command("tar", &["-xzf", &archive.to_string_lossy(), "-C", &into]))?;
    }
    Ok(unpacked)
}

/// cargo-fuzz, installed once below the target directory; the directory to put on the path.
pub fn cargo_fuzz() -> Outcome<PathBuf> {
    const VERSION: &str = "0.13.2";
    let home = root().join(target()).join("tools");
    if !home.join("bin/cargo-fuzz").is_file() {
        let into = home.to_string_lossy().into_owned();
        // It only starts other programs: optimising it takes longer than it saves.
        run(cargo_front(&[
            "install",
            "--debug",
            "--locked",
            "--quiet",
            "cargo-fuzz",
            "--version",
            VERSION,
            "--root",
            &into,
        ]))?;
    }
    Ok(home.join("bin"))
}

/// The nightly compiler that sanitizers and fuzzers were tried with, by its own version text. Another one may have other
/// warnings, or behave differently.
const NIGHTLY: &str = "1.97.0-nightly (e50aa6fba 2026-05-19)";

/// Whether [`NIGHTLY`] is installed. Otherwise the stable compiler is told to allow unstable flags.
pub fn has_nightly() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let mut rustc = command("rustc", &["+nightly", "--version"]);
        without_our_toolchain(&mut rustc);
        let Ok((true, version)) = capture(rustc) else { return false };
        let is_known = version.contains(NIGHTLY);
        if !is_known {
            println!("{}: not {NIGHTLY}; the stable compiler is taken", version.trim());
        }
        is_known
    })
}
