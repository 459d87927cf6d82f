//! Building drivers: their sources are part of this binary, and are built when first needed.
//!
//! ```text
//! sources ── unpacked as in the repository ──► steps of the language's own tools ──► ~/.cache/larder/drivers/NAME-HASH
//! ```
//!
//! A built driver lies in the user's cache folder, under a hash of its sources and steps, and is built once. Its dependencies
//! have the versions of its lock file, or it does not build.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::{env, fs, process};

use super::sources;
use crate::error::Error;

/// How the C driver is compiled.
const CC: &[&str] =
    &["-std=c11", "-O2", "-Wall", "-Wextra", "-pthread", "-o", "driver", "libmemcached.c", "-lmemcached"];
/// The same with Larder's own client, whose library was built before.
const CC_OWN: &[&str] = &[
    "-std=c11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-pthread",
    "-DWITH_LARDER",
    "-I../../../../clients/c/include",
    "-o",
    "driver",
    "libmemcached.c",
    "built/release/liblarder_c.a",
    "-lmemcached",
    "-ldl",
    "-lm",
];
const C_START: &[&str] = &["{}/crates/lab/drivers/c/driver"];

const fn cc(arguments: &'static [&'static str]) -> Step {
    let package = "gcc libc6-dev libmemcached-dev";
    Step { folder: "crates/lab/drivers/c", program: "cc", arguments, environment: &[], package }
}

/// A plan for cargo, by its lock file.
const fn cargo(folder: &'static str) -> Step {
    let arguments = &["build", "--release", "--locked", "--quiet", "--target-dir", "built"];
    Step { folder, program: "cargo", arguments, environment: &[], package: "cargo" }
}

/// Languages whose drivers were built without some of their clients. That is reported once, and not tried again.
static LESSER: Mutex<BTreeSet<Language>> = Mutex::new(BTreeSet::new());

/// A driver that the lab can build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Language {
    /// `drivers/go`.
    Go,
    /// `drivers/c`.
    C,
    /// `drivers/rust`.
    Rust,
    /// `drivers/python`.
    Python,
    /// `drivers/java`.
    Java,
}

/// A program's part in a build.
#[derive(Clone, Copy, Debug, Hash)]
struct Step {
    /// The working directory, below the folder of the sources.
    folder: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
    /// The Debian package of the program.
    package: &'static str,
}

/// Packages of a virtual environment: exactly those of the lock file.
const PIP: &[&str] = &[
    "-m",
    "pip",
    "install",
    "--quiet",
    "--disable-pip-version-check",
    "--require-hashes",
    "--no-deps",
    "--only-binary",
    ":all:",
    "-r",
    "requirements.txt",
];

/// Copies the packages of a Maven project and does nothing else.
const COPY_PACKAGES: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

const fn python(program: &'static str, arguments: &'static [&'static str]) -> Step {
    let folder = "crates/lab/drivers/python";
    Step { folder, program, arguments, environment: &[], package: "python3-venv" }
}

const fn java(program: &'static str, package: &'static str, arguments: &'static [&'static str]) -> Step {
    Step { folder: "crates/lab/drivers/java", program, arguments, environment: &[], package }
}

const C: &[Step] = &[cc(CC)];

const C_OWN: &[Step] = &[cargo("crates/lab/drivers/c"), cc(CC_OWN)];

const RUST: &[Step] = &[cargo("crates/lab/drivers/rust")];

const PYTHON: &[Step] = &[python("python3", &["-m", "venv", "own"]), python("own/bin/python", PIP)];

const JAVA: &[Step] = &[
    java("mvn", "maven", &["-q", "-B", COPY_PACKAGES, "-DoutputDirectory=jars"]),
    java("sha256sum", "coreutils", &["--check", "--quiet", "jars.sha256"]),
    java("javac", "default-jdk-headless", &["-d", "classes", "-cp", "jars/*", "Driver.java"]),
];

/// How a driver is built, and how it is started.
struct Plan {
    sources: &'static [(&'static str, &'static str)],
    steps: &'static [Step],
    /// Program and arguments; `{}` is the folder.
    start: &'static [&'static str],
}

impl Language {
    /// All languages.
    pub const ALL: [Language; 5] =
        [Language::Go, Language::C, Language::Rust, Language::Python, Language::Java];

    /// Its name in options and tables.
    pub fn name(self) -> &'static str {
        match self {
            Language::Go => "go",
            Language::C => "c",
            Language::Rust => "rust",
            Language::Python => "python",
            Language::Java => "java",
        }
    }

    /// The plan for a driver where a tool is missing that not all of its clients need.
    fn lesser_plan(self) -> Option<Plan> {
        match self {
            Language::C => Some(Plan { sources: sources::C, steps: C, start: C_START }),
            Language::Go | Language::Rust | Language::Python | Language::Java => None,
        }
    }

    fn plan(self) -> Plan {
        match self {
            Language::Go => Plan {
                sources: sources::GO,
                steps: &[Step {
                    folder: "crates/lab/drivers/go",
                    program: "go",
                    arguments: &["build", "-o", "driver", "."],
                    environment: &[("GOFLAGS", "-mod=readonly"), ("GOWORK", "off")],
                    package: "golang-go",
                }],
                start: &["{}/crates/lab/drivers/go/driver"],
            },
            Language::C => Plan { sources: sources::C, steps: C_OWN, start: C_START },
            Language::Rust => Plan {
                sources: sources::RUST,
                steps: RUST,
                start: &["{}/crates/lab/drivers/rust/built/release/larder-lab-driver"],
            },
            Language::Python => Plan {
                sources: sources::PYTHON,
                steps: PYTHON,
                start: &[
                    "{}/crates/lab/drivers/python/own/bin/python",
                    "{}/crates/lab/drivers/python/driver.py",
                ],
            },
            Language::Java => Plan {
                sources: sources::JAVA,
                steps: JAVA,
                start: &[
                    "java",
                    "-XX:+UseSerialGC",
                    "-cp",
                    "{}/crates/lab/drivers/java/jars/*:{}/crates/lab/drivers/java/classes",
                    "Driver",
                ],
            },
        }
    }

    /// The command that starts its driver, which is built if necessary.
    ///
    /// # Errors
    /// [`Error::Peer`] with what to install, or with the tool's error.
    pub fn build(self) -> Result<Command, Error> {
        let mut lesser = LESSER.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plan) = self.lesser_plan().filter(|_| lesser.contains(&self)) {
            return self.built(&plan);
        }
        match (self.built(&self.plan()), self.lesser_plan()) {
            (Err(error), Some(plan)) => {
                let command = self.built(&plan)?;
                eprintln!("{error}: some of its clients are left out");
                lesser.insert(self);
                Ok(command)
            }
            (built, _) => built,
        }
    }

    fn built(self, plan: &Plan) -> Result<Command, Error> {
        let mut hash = DefaultHasher::new();
        (plan.sources, plan.steps).hash(&mut hash);
        let folder = cache().join(format!("{}-{:016x}", self.name(), hash.finish()));
        if !folder.is_dir() {
            make(plan, &folder).map_err(|error| error.within(|| format!("driver {}", self.name())))?;
        }
        let place = folder.to_string_lossy();
        let mut words = plan.start.iter().map(|word| word.replace("{}", &place));
        let mut command = Command::new(words.next().expect("it has a program"));
        command.args(words);
        Ok(command)
    }
}

/// Where built drivers are kept.
fn cache() -> PathBuf {
    let given = |name| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let home = given("XDG_CACHE_HOME").or_else(|| given("HOME").map(|home| home.join(".cache")));
    home.unwrap_or_else(env::temp_dir).join("larder/drivers")
}

/// Builds in a folder of this process. Two labs may build at once: the first that is done gets the name.
fn make(plan: &Plan, folder: &Path) -> Result<(), Error> {
    let file = |path: &Path, error: std::io::Error| Error::File(path.to_owned(), error.to_string());
    let own = folder.with_extension(process::id().to_string());
    let made = || {
        for (name, text) in plan.sources {
            let path = own.join(name);
            let parent = path.parent().expect("a file is in a folder");
            fs::create_dir_all(parent).map_err(|error| file(parent, error))?;
            fs::write(&path, text).map_err(|error| file(&path, error))?;
        }
        plan.steps.iter().try_for_each(|step| take(step, &own))?;
        match fs::rename(&own, folder) {
            Err(error) if !folder.is_dir() => Err(file(folder, error)),
            _ => Ok(()),
        }
    };
    let outcome = made();
    let _ = fs::remove_dir_all(&own);
    outcome
}

fn take(step: &Step, own: &Path) -> Result<(), Error> {
    let absent = || {
        Error::Peer(format!("{} is not on PATH; Debian has it: apt install {}", step.program, step.package))
    };
    let output = Command::new(step.program)
        .args(step.arguments)
        .current_dir(own.join(step.folder))
        .envs(step.environment.iter().copied())
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|_| absent())?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stderr, output.stdout].concat();
    Err(Error::Peer(complaint(&String::from_utf8_lossy(&said), step.package)))
}

/// How to fix the error of a tool, in a line.
fn complaint(said: &str, package: &str) -> String {
    let is_one = |line: &&str| {
        let line = line.to_lowercase();
        line.contains("error") || line.contains("no module named")
    };
    let first = said.lines().find(is_one).or(said.lines().find(|line| !line.trim().is_empty()));
    let first = first.unwrap_or("it says nothing").trim();
    match said {
        _ if said.contains("libmemcached/memcached.h") || said.contains("-lmemcached") => {
            "libmemcached is not installed; Debian has it: apt install libmemcached-dev".to_owned()
        }
        _ if said.contains(".h: No such file") => {
            format!("headers of the C library are missing; Debian has them: apt install libc6-dev ({first})")
        }
        _ if said.contains("ensurepip is not available") || said.contains("No module named") => {
            format!("a part of Python is missing; Debian has it: apt install {package} ({first})")
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
        let complaint = |said: &str| complaint(said, "python3-venv");
        assert!(complaint(header).ends_with("apt install libmemcached-dev"));
        let library = "/usr/bin/ld: cannot find -lmemcached: No such file or directory\n";
        assert!(complaint(library).ends_with("apt install libmemcached-dev"));
        let libc =
            "driver.c:22:10: fatal error: errno.h: No such file or directory\ncompilation terminated.\n";
        assert!(complaint(libc).contains("apt install libc6-dev"));
        let python = "/usr/bin/python3: No module named venv\n";
        assert!(complaint(python).contains("apt install python3-venv"));
        let other = "driver.c:1:1: error: unknown type name 'x'\n";
        assert_eq!(
            complaint(other),
            "the driver cannot be built: driver.c:1:1: error: unknown type name 'x'"
        );
        assert!([header, library, libc, python, other].iter().all(|said| !complaint(said).contains('\n')));
    }

    #[test]
    fn a_driver_that_cannot_be_built_leaves_nothing_behind() {
        let folder = env::temp_dir().join(format!("larder-build-{}", process::id()));
        let step = |program| Step { folder: "", program, arguments: &[], environment: &[], package: "none" };
        for (program, why) in [("false", "cannot be built"), ("larder-no-such-tool", "apt install none")] {
            let steps: &'static [Step] = Box::leak(Box::new([step(program)]));
            let plan = Plan { sources: &[("a/b.txt", "text")], steps, start: &[] };
            let error = make(&plan, &folder).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(!folder.exists() && !folder.with_extension(process::id().to_string()).exists());
        }
    }

    #[test]
    fn the_sources_of_drivers_are_those_that_they_are_built_from() {
        for language in Language::ALL {
            let plan = language.plan();
            assert!(!plan.sources.is_empty() && !plan.steps.is_empty() && !plan.start.is_empty());
            assert!(plan.sources.iter().all(|(name, _)| !name.starts_with('/') && !name.contains("..")));
        }
        let names: Vec<&str> = sources::GO.iter().map(|(name, _)| *name).collect();
        for name in ["crates/lab/drivers/go/go.sum", "clients/go/go.mod", "clients/go/memcache/memcache.go"] {
            assert!(names.contains(&name), "{name}");
        }
        assert!(names.iter().all(|name| !name.ends_with("_test.go")));
    }

    /// One of the sources of a driver.
    fn source(of: &'static [(&'static str, &'static str)], path: &str) -> &'static str {
        of.iter().find(|(name, _)| *name == path).expect("a source").1
    }

    /// The names of a manifest's dependencies.
    fn dependencies(manifest: &'static str) -> BTreeSet<&'static str> {
        let section = manifest.split("[dependencies]\n").nth(1).expect("it has dependencies");
        let section = section.split("\n[").next().unwrap_or_default();
        let lines = section.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.filter_map(|line| line.split(['.', ' ', '=']).next()).collect()
    }

    #[test]
    fn the_c_client_of_the_driver_has_its_dependencies() {
        let own = dependencies(source(sources::C, "clients/c/Cargo.toml"));
        assert!(own.contains("larder-client"), "{own:?}");
        assert_eq!(dependencies(source(sources::C, "crates/lab/drivers/c/Cargo.toml")), own);
    }

    #[test]
    fn lock_files_of_drivers_have_their_dependencies() {
        for (sources, folder) in
            [(sources::C, "crates/lab/drivers/c"), (sources::RUST, "crates/lab/drivers/rust")]
        {
            let own = dependencies(source(sources, &format!("{folder}/Cargo.toml")));
            let lock = source(sources, &format!("{folder}/Cargo.lock"));
            assert!(own.contains("rustls"), "{own:?}");
            for name in own {
                assert!(lock.contains(&format!("name = \"{name}\"\n")), "{folder}: {name}");
            }
        }
    }
}
