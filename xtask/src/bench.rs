//! `bench`: the figures that the project promises, measured by programs built for release.

mod tls;

use crate::instructions::instructions;
use crate::run::{self, Outcome};

const USAGE: &str = "\
usage: cargo xtask bench server [--quick] [--rounds N] [--only get,set,…] [--peer memcached-new,valkey-new,…]
                                                                            the server beside others
       cargo xtask bench tls [--write] [--quick] [--rounds N] [--peer memcached-new,valkey-new,…]
                                                                            what TLS and its handshakes cost, beside others
       cargo xtask bench store  [options of cargo bench]                    the store's own threads
       cargo xtask bench collections [MILLIONS]                             collections of up to so many elements (10), and streams
       cargo xtask bench instructions [--base BINARY] [KIND…]               what a request costs, by callgrind
       cargo xtask bench instructions --watching [get|set|GET|SET…]         what samples of traffic add to it";

/// Runs the benchmark that `args` (the words behind `bench`) name. Its output goes to the terminal.
///
/// # Errors
/// There is no such benchmark, it cannot be built, or a figure misses its target.
pub fn bench(args: &[String]) -> Outcome {
    let (name, rest) = args.split_first().ok_or(USAGE)?;
    if name == "instructions" {
        return instructions(rest);
    }
    if name == "tls" {
        return tls::tls(rest);
    }
    if name == "collections" {
        return collections(rest);
    }
    let mut command = run::cargo(match name.as_str() {
        // The generator is part of the larder binary, which starts itself as the server too.
        "server" => &["run", "--release", "--package", "larder", "--", "lab", "bench-server"],
        "store" => &["bench", "--package", "larder-store", "--bench", "scaling", "--"],
        _ => return Err(format!("there is no benchmark {name:?}\n{USAGE}")),
    });
    command.args(rest);
    run::run(command)
}

/// The number of elements of the largest collections, in millions, by default.
const MILLIONS: &str = "10";

/// Measures collections of all types, then streams; streams also if collections miss a bound.
fn collections(rest: &[String]) -> Outcome {
    let millions = match rest {
        [] => MILLIONS,
        [millions] if millions.parse::<f64>().is_ok_and(|n| (0.1..=100.0).contains(&n)) => millions.as_str(),
        _ => return Err(format!("expected a number of millions from 0.1 to 100\n{USAGE}")),
    };
    let outcomes = [millions, "streams"].map(|what| {
        let bench = &["bench", "--package", "larder-store", "--bench", "collections", "--"];
        let mut command = run::cargo(bench);
        command.arg(what);
        run::run(command)
    });
    outcomes.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_benchmark_is_refused_with_the_usage() {
        assert_eq!(bench(&[]), Err(USAGE.to_owned()));
        assert!(bench(&["nothing".to_owned()]).unwrap_err().contains("nothing"));
    }

    #[test]
    fn what_is_no_number_of_millions_is_refused_before_anything_is_built() {
        for rest in [&["many"][..], &["0.09"], &["101"], &["-1"], &["nan"], &["1", "2"]] {
            let rest: Vec<String> = rest.iter().map(|word| (*word).to_owned()).collect();
            assert!(collections(&rest).unwrap_err().contains("expected a number of millions"), "{rest:?}");
        }
    }
}
