//! `cargo xtask peers`: the newest memcached, Valkey and Redis that Debian publishes, below the target directory.
//!
//! Nothing is installed, and no root is needed: apt keeps an index of its own in a folder below the target directory, the
//! packages are unpacked there with the C library that they need, and each program is started by that library's loader.
//!
//! ```text
//! target/peers/apt      sources, index and state of that apt
//! target/peers/debs     what it has fetched
//! target/peers/root     the packages, unpacked
//! target/peers/bin      memcached, valkey-server, valkey-cli, redis-server, redis-cli, redis-benchmark
//! target/peers/sources  sources of packages whose own tests are run
//! ```

use crate::run::{Outcome, capture, command, root, run, target};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// The Debian suite with the newest packages.
const SUITE: &str = "sid";
/// The name of the program, the package, and the program's file in it.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("memcached", "memcached", "usr/bin/memcached"),
    ("valkey-server", "valkey-server", "usr/bin/valkey-check-rdb"),
    ("redis-server", "redis-server", "usr/bin/redis-check-rdb"),
    ("valkey-cli", "valkey-tools", "usr/bin/valkey-cli"),
    ("redis-cli", "redis-tools", "usr/bin/redis-cli"),
    ("redis-benchmark", "redis-tools", "usr/bin/redis-benchmark"),
];
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADER: &str = "ld-linux-x86-64.so.2";

/// Held while something is fetched: suites run at once, and the first that needs a program fetches all.
static ALONE: Mutex<()> = Mutex::new(());

/// Fetches the packages, unless they are there, and prints their versions.
pub fn peers() -> Outcome {
    for (name, ..) in PROGRAMS {
        println!("{}", version(&peer(name)?)?);
    }
    Ok(())
}

/// The newest program of this name. Fetches all packages if it is missing.
pub fn peer(name: &str) -> Outcome<PathBuf> {
    let _alone = ALONE.lock().map_err(|_| "a fetch has panicked")?;
    let home = root().join(target()).join("peers");
    let program = home.join("bin").join(name);
    if !(program.is_file() && version(&program).is_ok()) {
        fetch(&home)?;
    }
    Ok(program)
}

/// The first line of a program's version.
pub fn version(program: &Path) -> Outcome<String> {
    let (works, text) = capture(command(program, &["--version"]))?;
    let line = text.lines().next().unwrap_or_default().to_owned();
    if works && !line.is_empty() { Ok(line) } else { Err(format!("{}: {text}", program.display())) }
}

/// The sources of the newest package of this name as its authors publish them, unpacked: their folder. They are fetched once.
pub fn source(package: &str) -> Outcome<PathBuf> {
    let _alone = ALONE.lock().map_err(|_| "a fetch has panicked")?;
    let home = root().join(target()).join("peers");
    let folder = home.join("sources").join(package);
    made(&folder)?;
    let found = |wanted: &dyn Fn(&Path) -> bool| -> Outcome<Option<PathBuf>> {
        let listed = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(listed.filter_map(Result::ok).map(|entry| entry.path()).find(|path| wanted(path)))
    };
    if found(&Path::is_dir)?.is_none() {
        let mut fetch = apt(&home, "deb-src")?(&["source", "--download-only", "--only-source", package]);
        fetch.current_dir(&folder);
        // A mirror may lack what describes the package; apt checks the archive by its index.
        let fetched = run(fetch);
        // Beside an archive there may be its signature.
        let is_original = |path: &Path| {
            let name = path.to_string_lossy();
            name.contains(".orig.tar.") && !name.ends_with(".asc")
        };
        let Some(archive) = found(&is_original)? else {
            return fetched.and(Err(format!("{package}: there are no sources")));
        };
        run(command("tar", &["-xf", &archive.to_string_lossy(), "-C", &folder.to_string_lossy()]))?;
    }
    found(&Path::is_dir)?.ok_or_else(|| format!("{package}: its archive has no folder"))
}

/// Makes an apt with an index of its own, of the newest programs (`deb`) or sources (`deb-src`); returns what makes its commands.
fn apt(home: &Path, kind: &str) -> Outcome<impl Fn(&[&str]) -> Command> {
    let (apt, debs) = (home.join("apt"), home.join("debs"));
    for folder in ["etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial", "var/lib/dpkg"]
    {
        made(&apt.join(folder))?;
    }
    made(&debs.join("partial"))?;
    // No package counts as installed, so dependencies are fetched, too.
    written(&apt.join("var/lib/dpkg/status"), "")?;
    let sources = format!("{kind} [trusted=yes] {} {SUITE} main\n", mirror()?);
    written(&apt.join("etc/apt/sources.list"), &sources)?;
    let options = [
        format!("Dir={}", apt.display()),
        format!("Dir::State::status={}", apt.join("var/lib/dpkg/status").display()),
        format!("Dir::Cache::archives={}", debs.display()),
        "APT::Architecture=amd64".to_owned(),
        "APT::Sandbox::User=root".to_owned(),
    ];
    let apt_get = move |arguments: &[&str]| {
        let mut command = command("apt-get", &["-q"]);
        command.args(options.iter().flat_map(|option| ["-o", option]));
        command.args(arguments);
        command
    };
    // This fails to run Debian's hooks after an update. The next step shows whether there is an index.
    let _ = capture(apt_get(&["update"]));
    Ok(apt_get)
}

fn fetch(home: &Path) -> Outcome {
    if !cfg!(target_arch = "x86_64") {
        return Err("the newest peers are fetched for x86-64 alone".to_owned());
    }
    let (debs, unpacked, bin) = (home.join("debs"), home.join("root"), home.join("bin"));
    for folder in [&unpacked, &bin] {
        made(folder)?;
    }
    let apt_get = apt(home, "deb")?;
    let packages: Vec<&str> = PROGRAMS.iter().map(|&(_, package, _)| package).collect();
    run(apt_get(
        &[&["install", "-y", "--download-only", "--no-install-recommends"], &packages[..]].concat(),
    ))?;
    let listed = fs::read_dir(&debs).map_err(|error| format!("{}: {error}", debs.display()))?;
    for file in listed.filter_map(Result::ok).map(|entry| entry.path()) {
        if file.extension().is_some_and(|extension| extension == "deb") {
            let (works, text) =
                capture(command("dpkg", &["-x", &file.to_string_lossy(), &unpacked.to_string_lossy()]))?;
            if !works {
                return Err(format!("dpkg -x {}: {text}", file.display()));
            }
        }
    }
    let libraries = unpacked.join(LIBRARIES);
    for (name, _, file) in PROGRAMS {
        let start = format!(
            "#!/bin/sh\nexec {} --argv0 {name} --library-path {} {} \"$@\"\n",
            libraries.join(LOADER).display(),
            libraries.display(),
            unpacked.join(file).display()
        );
        let program = bin.join(name);
        written(&program, &start)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))
            .map_err(|error| format!("{}: {error}", program.display()))?;
    }
    Ok(())
}

/// The mirror from which this machine's apt fetches packages.
fn mirror() -> Outcome<String> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(listed) = fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(listed.filter_map(Result::ok).map(|entry| entry.path()));
    }
    let texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    let found = texts.filter_map(|text| mirror_of(&text)).next();
    Ok(found.unwrap_or_else(|| "http://deb.debian.org/debian".to_owned()))
}

/// The first address in a list of sources that ends in `/debian`, of either format.
fn mirror_of(text: &str) -> Option<String> {
    let lines =
        text.lines().map(str::trim).filter(|line| line.starts_with("deb ") || line.starts_with("URIs:"));
    let words = lines.flat_map(str::split_whitespace);
    let addresses =
        words.filter(|word| word.contains("://") && word.trim_end_matches('/').ends_with("/debian"));
    addresses.map(str::to_owned).next()
}

fn made(folder: &Path) -> Outcome {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

fn written(file: &Path, text: &str) -> Outcome {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::mirror_of;

    #[test]
    fn a_mirror_is_found_in_both_formats() {
        let old = "# deb http://no.example/debian x\ndeb-src http://b.example/debian x main\ndeb [arch=amd64] https://a.example/debian/ bookworm main\n";
        assert_eq!(mirror_of(old).as_deref(), Some("https://a.example/debian/"));
        let new = "Types: deb\nURIs: http://c.example/debian\nSuites: bookworm\n";
        assert_eq!(mirror_of(new).as_deref(), Some("http://c.example/debian"));
        assert_eq!(mirror_of("deb http://d.example/debian-security x main\n"), None);
    }
}
