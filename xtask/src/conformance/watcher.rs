//! memcached's own test of `watch` (`t/watcher.t`), of the newest memcached's sources, against Larder under that name.
//!
//! The test runs in a folder where memcached would have been built: `memcached-debug` there is Larder, and `timedrun` runs it.
//! Where Larder differs, lines of the test are changed ([`DIFFERENCES`]); a line that is not there any more is an error.

use super::namespace::Namespace;
use super::suites::succeeded;
use super::{Counts, Program};
use crate::install::debian;
use crate::peers::source;
use crate::run::Outcome;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// How long the test may take: it waits for ever for a line that never comes.
const SECONDS_MAX: &str = "600";

/// A store of the test that is made several times here, each of another key.
struct Difference {
    key: &'static str,
    times: u32,
    /// The reason.
    why: &'static str,
}

const DIFFERENCES: &[Difference] = &[Difference {
    key: "bfoo",
    times: 200,
    why: "memcached evicts an item for each that it stores, Larder some at a time and then none",
}];

/// Runs the suite.
pub fn suite(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    debian(&[("prove", "perl")])?;
    let sources = source("memcached")?;
    println!("{}", sources.display());
    let test = sources.join("t/watcher.t");
    let text = fs::read_to_string(&test).map_err(|error| format!("{}: {error}", test.display()))?;
    let ours = sources.join("t/watcher-larder.t");
    written(&ours, &adapted(&text)?)?;
    runnable(&sources.join("memcached-debug"), &format!("exec {} \"$@\"", program.words.join(" ")))?;
    // `timedrun` gets a limit of seconds, and the command.
    runnable(&sources.join("timedrun"), "shift\nexec \"$@\"")?;
    let mut command = namespace.command("timeout");
    command.args([SECONDS_MAX, "perl"]).arg(&ours).current_dir(&sources);
    let output = succeeded(command)?;
    let count = |is: &dyn Fn(&str) -> bool| output.lines().filter(|line| is(line)).count() as u32;
    let skipped = count(&|line| line.starts_with("ok ") && line.contains("# skip"));
    Ok(Counts { passed: count(&|line| line.starts_with("ok ")) - skipped, skipped })
}

/// The test with Larder's differences.
fn adapted(text: &str) -> Outcome<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for Difference { key, times, why } in DIFFERENCES {
        let stores = format!("\"set {key} ");
        let mut found = lines.iter_mut().filter(|line| line.contains(&stores));
        let (Some(line), None) = (found.next(), found.next()) else {
            return Err(format!("watcher.t has changed: {key} is not stored once ({why})"));
        };
        let each = line.replace(&stores, &format!("\"set {key}$n "));
        // The reply to `mn` comes when all of them are stored. Events that are still on their way would be told to the next
        // watcher, of which the test reads thirty lines.
        let waits = "print $client \"mn\\r\\n\"; $res = <$client>;";
        *line = format!("for my $n (1 .. {times}) {{ {each} }} {waits}");
    }
    Ok(lines.join("\n") + "\n")
}

fn runnable(path: &Path, script: &str) -> Outcome {
    written(path, &format!("#!/bin/sh\n{script}\n"))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn written(path: &Path, text: &str) -> Outcome {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_made_several_times_or_the_test_is_another() {
        let text: String = DIFFERENCES.iter().map(|one| format!("say \"set {} 0\";\n", one.key)).collect();
        let ours = adapted(&text).expect("each is stored once");
        let stores = "for my $n (1 .. 200) { say \"set bfoo$n 0\"; }";
        assert_eq!(ours, format!("{stores} print $client \"mn\\r\\n\"; $res = <$client>;\n"));
        assert!(adapted("nothing of it").is_err() && adapted(&text.repeat(2)).is_err());
    }
}
