//! `cargo xtask bench …`: benchmarks whose figures the project promises, built for release.

use std::env;
use std::process::Command;

const USAGE: &str = "\
usage: cargo xtask bench server [--quick] [--rounds N] [--only get,set,…]   the server beside others
       cargo xtask bench store  [options of cargo bench]                    the store's own threads";

/// Runs the benchmark that `args` (the words behind `bench`) name. What it prints goes to the
/// terminal.
///
/// # Errors
/// When there is no such benchmark, it cannot be built, or a figure misses its target.
pub fn bench(args: &[String]) -> Result<(), String> {
    let (name, rest) = args.split_first().ok_or(USAGE)?;
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    match name.as_str() {
        // The generator is part of the larder binary, which starts itself as the server too.
        "server" => {
            command.args(["run", "--release", "--quiet", "--package", "larder", "--", "lab", "bench-server"])
        }
        "store" => command.args(["bench", "--package", "larder-store", "--bench", "scaling", "--"]),
        _ => return Err(format!("there is no benchmark {name:?}\n{USAGE}")),
    };
    let status = command.args(rest).status().map_err(|error| format!("cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("bench {name}: {status}")) }
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
