//! The `larder` command: `serve` is the cache, `lab` measures caches, `doctor` and `top` ask a cache how it is.

#![forbid(unsafe_code)]

use std::process::ExitCode;

const USAGE: &str = "\
usage: larder <command> [options]

  serve   starts a cache that memcached's and Redis's clients use unchanged
  lab     measures caches: Larder, memcached, Redis, or any other
  doctor  says what the operator of a running Larder should know
  top     one screen about a running cache: Larder, memcached, Redis

larder <command> --help says more; larder --version prints the version.
";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let command = arguments.next().unwrap_or_default();
    match command.to_str() {
        Some("serve") => larder_server::main(arguments),
        Some("lab") => larder_lab::main(arguments.collect()),
        Some("doctor") => larder_lab::doctor::main(arguments),
        Some("top") => larder_lab::top::main(arguments),
        Some("-h" | "--help" | "help") => {
            print!("{USAGE}\n{}", larder_lab::exit::TABLE);
            ExitCode::SUCCESS
        }
        Some("-V" | "--version") => {
            println!("larder {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        _ => {
            if !command.is_empty() {
                // As a literal: what another user typed is no terminal's to carry out.
                eprintln!("larder: unknown command {:?}", command.to_string_lossy());
            }
            eprint!("{USAGE}");
            ExitCode::from(larder_lab::exit::USAGE)
        }
    }
}
