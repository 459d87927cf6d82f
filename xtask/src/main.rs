//! The project's only scripts: `cargo xtask <task>`.
//!
//! | task | what it does |
//! |---|---|
//! | `test [stage…]` | the gate: tests whose result is the same on every machine, in order, with the time of each stage |
//! | `test --all [stage…]` | that, and what depends on time, cores, memory or other programs: all below but `attack`, `bench`, `faults`, `soak` and `vectors` |
//! | `test --quick [stage…]` | what takes a few minutes |
//! | `tidy [--write] [--arrows]` | architecture, unsafe code, transcripts, links, words, generated documents (`--write` renews these); `--arrows` prints which module uses which |
//! | `clients [c] [go] [rust] [lab]` | the client libraries in `clients`, against the server |
//! | `conformance [--frameworks] [--long] [suite…]` | the tests of other people's clients and tools; or programs that use frameworks, which take longer; or comparisons that take an hour |
//! | `faults [--untried \| name…]` | plants each fault of `spec/faults`, or those that were never tried, and finds the test that notices it |
//! | `lab` | the lab against other servers, and its report in a browser |
//! | `bench server\|tls\|store\|collections\|instructions` | the figures that the project promises |
//! | `fuzz [seconds [seed] \| --runs [seed]]` | replays each fuzzer's corpus, then runs it for seconds or for a number of inputs |
//! | `models` | explores thread interleavings of the store |
//! | `schedules [scenario…]` | plays the store's own code under the seeded scheduler |
//! | `peers` | fetches the newest memcached, Valkey and Redis into `target/peers` |
//! | `sanitize` | store and session tests under AddressSanitizer |
//! | `soak [--minutes N] [--seed S] [--attackers]` | the released server in real time, under everything at once |
//! | `vectors` | `clients/vectors.txt`, made by the libraries whose placement the clients follow |
//! | `attack [name…]` | the released server, under requests that try to take more memory, work or time than they may; `--write` stages all of them and writes their document |

#![forbid(unsafe_code)]

mod attack;
mod bench;
mod certificates;
mod clients;
mod conformance;
mod faults;
mod fuzz;
mod hang;
mod install;
mod instructions;
mod lab;
mod machine;
mod models;
mod peers;
mod programs;
mod run;
mod sanitize;
mod schedules;
mod soak;
mod test;
mod tidy;
mod vectors;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask test [--quick | --all] [STAGE…] | tidy [--write] [--arrows] | clients | conformance | faults | lab | bench | fuzz | models | \
                     peers | schedules | sanitize | soak | attack | vectors";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = match arguments.split_first() {
        Some((task, rest)) => (task.as_str(), rest),
        None => ("", &[][..]),
    };
    let result = match task {
        "test" => test::test(rest),
        "tidy" if rest.iter().any(|argument| argument == "--arrows") => tidy::print_arrows(),
        "tidy" => tidy::tidy(rest.iter().any(|argument| argument == "--write")),
        "clients" => clients::clients(rest),
        "conformance" => conformance::conformance(rest),
        "faults" => faults::faults(rest),
        "fuzz" => fuzz::fuzz(rest),
        "attack" => attack::attack(rest),
        "bench" => bench::bench(rest),
        "lab" => lab::lab(),
        "models" => models::models(),
        "peers" => peers::peers(),
        "schedules" => schedules::schedules(rest),
        "sanitize" => sanitize::sanitize(),
        "soak" => soak::soak(rest),
        "vectors" => vectors::vectors(),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::tidy::files;
    use crate::run::root;
    use std::collections::BTreeSet;
    use std::fs;

    /// The words behind `cargo xtask` in a text, without placeholders and choices.
    fn tasks_in(text: &str) -> Vec<&str> {
        let behind = text.split("cargo xtask ").skip(1);
        let word = |rest: &str| rest.find(|letter: char| !letter.is_ascii_lowercase()).unwrap_or(rest.len());
        behind.map(|rest| &rest[..word(rest)]).filter(|word| !word.is_empty()).collect()
    }

    /// The tasks of the table at the top of this file.
    fn tasks() -> BTreeSet<&'static str> {
        let rows = include_str!("main.rs").lines().filter_map(|line| line.strip_prefix("//! | `"));
        rows.filter_map(|row| row.split([' ', '`']).next()).collect()
    }

    #[test]
    fn every_task_that_a_document_names_is_one() {
        let tasks = tasks();
        assert!(tasks.len() >= 15 && ["test", "bench", "vectors"].iter().all(|task| tasks.contains(task)));
        let mut count = 0;
        for file in files().expect("git lists files") {
            if file.extension().is_none_or(|kind| kind != "md") {
                continue;
            }
            let text = fs::read_to_string(root().join(&file)).expect("documents are text");
            for task in tasks_in(&text) {
                count += 1;
                assert!(tasks.contains(task), "{}: cargo xtask {task}", file.display());
            }
        }
        assert!(count >= 30, "{count} tasks were found");
    }

    #[test]
    fn tasks_are_found_in_texts() {
        let text = "`cargo xtask bench server`, `cargo xtask <task>`:\ncargo xtask tidy\ncargo xtask";
        assert_eq!(tasks_in(text), ["bench", "tidy"]);
    }
}
