//! Programs of this repository that use other people's Redis clients: `spec/clients`, each with the versions it is built with. A
//! line `name: ok` is a test that passed; the first failure ends the program.
//!
//! Each runs three times: over plain connections as the default user, and over TLS as a user with rules, with a certificate of
//! its own where the server requires one, and without where it asks for none. Redis, against which the harness may be checked,
//! is asked over plain connections alone, and so has a third of the tests.

use super::namespace::Namespace;
use super::secured::Certificates;
use super::suites::{go, succeeded};
use super::{Counts, Program};
use crate::install::debian;
use crate::peers::{peer, version};
use crate::run::{Outcome, command, root, run, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// The address at which RESP is spoken inside a namespace.
const ADDRESS: &str = "127.0.0.1:6379";
/// The port and the address at which it is spoken over TLS.
const TLS_PORT: &str = "6380";
const TLS_ADDRESS: &str = "127.0.0.1:6380";
/// Options of the server for such programs. Queues must not be evicted.
pub(super) const SERVER_OPTIONS: &[&str] = &["-t", "2", "-M"];
/// Copies the packages of a Maven project and does nothing else.
pub(super) const COPY_PACKAGES: &str =
    "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// Runs the program for go-redis, over RESP2 and RESP3.
pub fn go_redis(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    debian(&[("go", "golang-go")])?;
    let home = copied("clients/go-redis")?;
    let mut build = go(&home, &["build", "-o", "smoke", "."]);
    // The versions are those of go.sum, or it does not build.
    build.env("GOFLAGS", "-mod=readonly");
    run(build)?;
    counted_twice(namespace, program, &home, &|is_tls| {
        let mut smoke = namespace.command(home.join("smoke"));
        smoke.arg(if is_tls { TLS_ADDRESS } else { ADDRESS });
        smoke
    })
}

/// Runs the tests of Larder's own Go client, with the newest memcached as the server.
pub fn larder_go(_: &Namespace, _: &Program) -> Outcome<Counts> {
    debian(&[("go", "golang-go")])?;
    let memcached = peer("memcached")?;
    println!("{}", version(&memcached)?);
    let home = root().join(target()).join("conformance");
    fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    let starts = home.join("larder-go-memcached");
    // The tests start `larder serve`.
    let script = format!("#!/bin/sh\nshift\nexec {} -u root \"$@\"\n", memcached.display());
    fs::write(&starts, script).map_err(|error| format!("{}: {error}", starts.display()))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&starts, mode).map_err(|error| format!("{}: {error}", starts.display()))?;
    let mut tests = command("go", &["test", "-count=1", "-timeout=0", ".", "./memcache"]);
    tests.current_dir(root().join("clients/go")).env("LARDER_SERVER", &starts);
    let output = succeeded(tests)?;
    let passed = output.lines().filter(|line| line.starts_with("ok ")).count() as u32;
    Ok(Counts { passed, skipped: 0 })
}

/// Runs the program for Jedis, over RESP2 and RESP3.
pub fn jedis(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    in_java(namespace, program, "clients/jedis")
}

/// Runs the program for Lettuce, over RESP2 and RESP3: its synchronous, asynchronous and reactive calls.
pub fn lettuce(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    in_java(namespace, program, "clients/lettuce")
}

/// Runs the class `Smoke` of a Maven project in `spec`.
fn in_java(namespace: &Namespace, program: &Program, project: &str) -> Outcome<Counts> {
    let home = built_java(project)?;
    counted_twice(namespace, program, &home, &|is_tls| {
        let mut smoke = namespace.command("java");
        smoke.args(["-cp", "packages/*:classes", "Smoke", if is_tls { TLS_ADDRESS } else { ADDRESS }]);
        smoke.current_dir(&home);
        smoke
    })
}

/// Runs the program for ioredis.
pub fn ioredis(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    debian(&[("node", "nodejs"), ("npm", "npm")])?;
    let home = copied("clients/ioredis")?;
    let mut packages = command("npm", &["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]);
    packages.current_dir(&home);
    run(packages)?;
    counted_twice(namespace, program, &home, &|is_tls| {
        let mut smoke = namespace.command("node");
        smoke.args(["main.js", if is_tls { TLS_PORT } else { "6379" }]).current_dir(&home);
        smoke
    })
}

/// Runs a program that prints a line for each passed test, plainly and over TLS, there with a certificate and without.
fn counted_twice(
    namespace: &Namespace,
    program: &Program,
    home: &Path,
    smoke: &dyn Fn(bool) -> Command,
) -> Outcome<Counts> {
    let plain = counted(namespace, program, smoke(false))?;
    if program.is_redis {
        return Ok(plain);
    }
    debian(&[("openssl", "openssl")])?;
    let certificates = Certificates::make(&home.join("certificates"))?;
    let mut passed = plain.passed;
    for (shown, required) in [(Some("client"), "yes"), (None, "no")] {
        let mut secured = smoke(true);
        certificates.tell(&mut secured, shown);
        let options = [certificates.options(TLS_PORT, required), Certificates::users()].concat();
        let options: Vec<&str> =
            SERVER_OPTIONS.iter().copied().chain(options.iter().map(String::as_str)).collect();
        passed += counted_with(namespace, program, &options, secured)?.passed;
    }
    Ok(Counts { passed, skipped: 0 })
}

/// Runs a program that prints a line for each passed test, against a fresh server.
pub(super) fn counted(namespace: &Namespace, program: &Program, smoke: Command) -> Outcome<Counts> {
    counted_with(namespace, program, SERVER_OPTIONS, smoke)
}

/// Runs it likewise, with these options of the server.
fn counted_with(
    namespace: &Namespace,
    program: &Program,
    options: &[&str],
    smoke: Command,
) -> Outcome<Counts> {
    let _server = namespace.serve(program, options)?;
    let output = succeeded(smoke)?;
    let passed = output.lines().filter(|line| line.ends_with(": ok")).count() as u32;
    Ok(Counts { passed, skipped: 0 })
}

/// Copies and builds a Maven project in `spec`: its packages lie in `packages`, its class `Smoke` and the classes that this names
/// in `classes`. Maven runs for one suite at a time: suites run at once, and fill the same repository of packages.
pub(super) fn built_java(project: &str) -> Outcome<PathBuf> {
    static ALONE: Mutex<()> = Mutex::new(());
    debian(&[("mvn", "maven"), ("javac", "default-jdk-headless")])?;
    let home = copied(project)?;
    let mut packages = command("mvn", &["-q", "-B", COPY_PACKAGES, "-DoutputDirectory=packages"]);
    packages.current_dir(&home);
    let alone = ALONE.lock().map_err(|_| "a run of Maven has panicked")?;
    run(packages)?;
    drop(alone);
    let sources = ["-sourcepath", "src/main/java", "src/main/java/Smoke.java"];
    let mut build = command("javac", &[&["-d", "classes", "-cp", "packages/*"][..], &sources].concat());
    build.current_dir(&home);
    run(build)?;
    Ok(home)
}

/// Copies a program's directory in `spec` to where it may be built.
pub(super) fn copied(name: &str) -> Outcome<PathBuf> {
    let home = root().join(target()).join("conformance");
    let (from, to) = (root().join("spec").join(name), home.join(name));
    copy(&from, &to).map_err(|error| format!("{}: {error}", from.display()))?;
    Ok(to)
}

/// Copies a directory's files, over existing ones.
pub(super) fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}
