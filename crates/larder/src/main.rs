//! The `larder` command: `serve` is the cache, `lab` measures caches.

#![forbid(unsafe_code)]

use std::process::ExitCode;

const USAGE: &str = "\
usage: larder <command> [options]

  serve   starts a cache that memcached clients use unchanged
  lab     measures caches: Larder, memcached, Redis, or any other

larder serve --help and larder lab --help say more; larder --version prints the version.
";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next().unwrap_or_default();
    match command.to_str() {
        Some("serve") => larder_server::main(arguments),
        Some("lab") => larder_lab::main(arguments.collect()),
        Some("-h" | "--help" | "help") => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        Some("-V" | "--version") => {
            println!("larder {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("{USAGE}");
            ExitCode::from(64)
        }
    }
}
