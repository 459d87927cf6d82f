//! Clients of memcached's binary protocol in other languages: spymemcached, and PHP's sessions.
//!
//! Each is a program of this repository that prints a line `name: ok` for each check that holds, and ends at the first failure.
//! It runs twice: with a server that asks for nothing, and with one that asks for SASL. memcached, against which the harness may
//! be checked, has no file of users for SASL, and is not asked the second time.

use super::clients::built_java;
use super::namespace::Namespace;
use super::suites::{PASSWORD, USER, serve_sasl, succeeded, write};
use super::{Counts, Program};
use crate::install::debian;
use crate::run::{Outcome, target};
use std::process::Command;

/// The address of the server in a namespace.
const ADDRESS: &str = "127.0.0.1:11211";

/// Runs a program that uses spymemcached by the binary protocol.
pub fn spymemcached(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    let home = built_java("clients/spymemcached")?;
    counted_twice(namespace, program, "spymemcached", &|login| {
        let mut smoke = namespace.command("java");
        smoke.args(["-cp", "packages/*:classes", "Smoke", ADDRESS]).args(login).current_dir(&home);
        smoke
    })
}

/// Runs a program that uses PHP's sessions, as its extension memcached keeps them.
pub fn php_sessions(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    debian(&[("php", "php-cli"), ("/usr/share/doc/php-memcached", "php-memcached")])?;
    let script = target().join("conformance/php_sessions.php");
    write(&script, include_str!("php_sessions.php"))?;
    counted_twice(namespace, program, "php-sessions", &|login| {
        let mut sessions = namespace.command("php");
        sessions.arg(&script).args(login);
        sessions
    })
}

/// Runs a program without a login, and with one.
fn counted_twice(
    namespace: &Namespace,
    program: &Program,
    name: &str,
    checks: &dyn Fn(&[&str]) -> Command,
) -> Outcome<Counts> {
    let server = namespace.serve(program, &[])?;
    let plain = passed(checks(&[]))?;
    drop(server);
    if !program.is_larder() {
        return Ok(Counts { passed: plain, skipped: 0 });
    }
    let _server = serve_sasl(namespace, program, name)?;
    Ok(Counts { passed: plain + passed(checks(&[USER, PASSWORD]))?, skipped: 0 })
}

/// Runs a program, shows its lines, and counts the checks that held.
fn passed(program: Command) -> Outcome<u32> {
    let output = succeeded(program)?;
    let held: Vec<&str> = output.lines().filter(|line| line.ends_with(": ok")).collect();
    println!("{}", held.join("\n"));
    Ok(held.len() as u32)
}
