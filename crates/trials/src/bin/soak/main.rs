//! A soak of the real server in real time: both protocols, all phases, bad peers, an administrator, and exact
//! expectations. `cargo xtask soak --minutes N [--seed S]` builds the server and runs it.
//!
//! ```text
//! core 0   larder serve -m 64 -t 2          larder lab null
//!               ▲   ▲   ▲   ▲                    ▲
//! core 1   clients, odd clients, administrator, filler, canaries, a look at memory
//! ```
//!
//! | part | what it is |
//! |---|---|
//! | [`phase`] | what the server is put through for a while, and what that explains |
//! | [`world`] | what threads share; causes for what is missing |
//! | [`op`], [`dialect`], [`wire`] | an operation; three ways to write it; connections that behave or do not |
//! | [`ledger`] | what a key must hold, and the judge of replies |
//! | [`client`], [`choice`], [`several`] | clients: pipelines; requests; several keys, messages, counters |
//! | [`keeper`], [`queue`] | clients that own collections; lists that are pushed to, and waited for |
//! | [`group`] | streams that the consumers of a group work off |
//! | [`lapse`] | hashes with fields that expire |
//! | [`admin`], [`filler`] | verbs at random; full memory |
//! | [`scraper`] | the HTTP listener's places |
//! | [`attackers`] | requests that ask for much, with `--attackers` |
//! | [`larder_testkit::canary`], [`watch`] | latency of a connection of each worker; memory and descriptors |
//! | [`director`], [`report`] | from phase to phase; the table at the end |
//!
//! The decisions of each thread follow from the seed. How threads meet does not. A failure names the phase
//! and the request, and a run with the same seed sends the same requests.

#![forbid(unsafe_code)]

mod admin;
mod attackers;
mod choice;
mod client;
mod dialect;
mod director;
mod filler;
mod group;
mod keeper;
mod lapse;
mod ledger;
mod op;
mod phase;
mod queue;
mod random;
mod report;
mod scraper;
mod several;
mod values;
mod watch;
mod wire;
mod world;

use larder_testkit::canary;
use larder_testkit::process::Server;
use larder_testkit::stage::{Null, pin, redis_port};
use phase::{MEGABYTES, PHASES};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use world::World;

const USAGE: &str = "soak [--minutes N] [--seed S] [--phase NAME] [--attackers]";
/// Number of workers; each has a canary.
const WORKERS: usize = 2;
/// Clients that behave well.
const CLIENTS: usize = 4;
/// Clients that do not: they send slowly, stop, read late, or reset.
const ODD_CLIENTS: usize = 4;
/// Clients that ask for as much as they may, with `--attackers`.
const ATTACKERS: u64 = 3;
/// Minutes, without an argument.
const MINUTES: f64 = 2.0;

fn main() -> ExitCode {
    larder_testkit::exit(soak())
}

/// The options of the command line.
#[derive(Debug, PartialEq)]
struct Options {
    lasts: Duration,
    seed: u64,
    /// Runs this phase alone.
    phase: Option<String>,
    /// Attackers take part.
    attackers: bool,
}

impl Options {
    fn parse(words: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options {
            lasts: Duration::from_secs_f64(MINUTES * 60.0),
            seed: 1,
            phase: None,
            attackers: false,
        };
        let mut words = words;
        while let Some(word) = words.next() {
            if word == "--attackers" {
                options.attackers = true;
                continue;
            }
            let value = words.next().ok_or(USAGE)?;
            let wrong = |_| format!("{word} {value}: not a number\n{USAGE}");
            match &word[..] {
                "--minutes" => {
                    let minutes = value.parse::<f64>().map_err(|error| wrong(error.to_string()))?;
                    options.lasts = Duration::try_from_secs_f64(minutes * 60.0)
                        .map_err(|error| wrong(error.to_string()))?;
                }
                "--phase" if PHASES.iter().any(|phase| phase.name == value) => options.phase = Some(value),
                "--seed" => options.seed = value.parse().map_err(|_| wrong(String::new()))?,
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(options)
    }
}

fn soak() -> Result<bool, String> {
    let options = Options::parse(std::env::args().skip(1))?;
    println!("seed {}, {:.1} minutes", options.seed, options.lasts.as_secs_f64() / 60.0);
    let two_cores = pin(0);
    let server = Server::start(&[
        "--redis-port",
        "-1",
        "-m",
        &MEGABYTES.to_string(),
        "--memory-limit-max",
        &admin::LIMIT[1].to_string(),
        "-t",
        &WORKERS.to_string(),
        "-c",
        "1000",
        "--http-port",
        "-1",
    ])?;
    let null = Null::start()?;
    // Threads that are started from here on inherit the core.
    if two_cores && !pin(1) {
        pin(0);
    }
    let ports = [server.address(), redis_port(&server)?];
    let http = scraper::address(&server)?;
    let base = watch::descriptors_at_rest(&server)?;
    let world = World::new(ports);
    let canaries = canary::hatch(server.id(), server.address(), null.address)
        .map_err(|error| format!("canaries: {error}"))?;
    let found = thread::scope(|scope| {
        let world = &world;
        let (server, seed) = (&server, options.seed);
        let watch = scope.spawn(move || watch::run(world, server));
        let canaries = scope.spawn(move || canaries.sing(world.started(), || world.runs()));
        let mut others = Vec::new();
        for number in 0..CLIENTS + ODD_CLIENTS {
            others
                .push(scope.spawn(move || client::Client::new(world, seed, number, number >= CLIENTS).run()));
        }
        for number in 0..keeper::KEEPERS {
            others.push(scope.spawn(move || keeper::Keeper::new(world, seed, number).run()));
        }
        for number in 0..queue::PUSHERS {
            others.push(scope.spawn(move || queue::push(world, seed, number)));
        }
        for number in 0..queue::POPPERS {
            others.push(scope.spawn(move || queue::pop(world, seed, number)));
        }
        for number in 0..group::ADDERS {
            others.push(scope.spawn(move || group::add(world, seed, number)));
        }
        for number in 0..group::CONSUMERS {
            others.push(scope.spawn(move || group::consume(world, seed, number)));
        }
        others.push(scope.spawn(move || lapse::run(world, seed)));
        others.push(scope.spawn(move || admin::Admin::new(world, seed, false).run()));
        others.push(scope.spawn(move || filler::run(world, seed)));
        others.push(scope.spawn(move || scraper::run(world, seed, http)));
        for number in 0..if options.attackers { ATTACKERS } else { 0 } {
            others.push(scope.spawn(move || attackers::run(world, seed, number)));
        }
        let directed = director::run(world, server, &options);
        world.stop.store(true, std::sync::atomic::Ordering::SeqCst);
        for other in others {
            if other.join().is_err() {
                world.complain("a thread of the soak ended by itself");
            }
        }
        let songs = canaries.join().map_err(|_| "the canaries' thread")?;
        let heard = songs.map_err(|error| world.complain(&format!("canaries: {error}"))).ok();
        let seen = watch.join().map_err(|_| "the watch's thread")?;
        directed?;
        Ok::<_, String>((heard, seen))
    });
    let (heard, seen) = found?;
    let after = director::leave(&world, &server, base)?;
    director::end(&world, server);
    Ok(report::print(&world, heard.as_ref(), &seen, base, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let parse = |text: &str| Options::parse(text.split_whitespace().map(str::to_owned));
        assert_eq!(
            parse("--minutes 0.5 --seed 7"),
            Ok(Options { lasts: Duration::from_secs(30), seed: 7, phase: None, attackers: false })
        );
        assert!(parse("--attackers --seed 7").is_ok_and(|options| options.attackers && options.seed == 7));
        assert!(parse("").is_ok());
        for wrong in ["--minutes", "--minutes x", "--minutes -1", "--seed 1.5", "--other 1", "--phase none"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
