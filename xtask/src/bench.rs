//! `bench`: the figures that the project promises, measured by programs built for release.

use crate::instructions::instructions;
use crate::run::{self, Outcome};

const USAGE: &str = "\
usage: cargo xtask bench server [--quick] [--rounds N] [--only get,set,…] [--peer memcached-new,valkey-new,…]
                                                                            the server beside others
       cargo xtask bench store  [options of cargo bench]                    the store's own threads
       cargo xtask bench instructions [--base BINARY] [KIND…]               what a request costs, by callgrind";

/// Runs the benchmark that `args` (the words behind `bench`) name; what it prints goes to the
/// terminal.
///
/// # Errors
/// When there is no such benchmark, it cannot be built, or a figure misses its target.
pub fn bench(args: &[String]) -> Outcome {
    let (name, rest) = args.split_first().ok_or(USAGE)?;
    if name == "instructions" {
        return instructions(rest);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_benchmark_is_refused_with_the_usage() {
        assert_eq!(bench(&[]), Err(USAGE.to_owned()));
        assert!(bench(&["nothing".to_owned()]).unwrap_err().contains("nothing"));
    }
}
