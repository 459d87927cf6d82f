//! Random streams of commands to a server of Redis's protocol and to Larder: every reply is compared.
//!
//! `differential path/to/redis-server|valkey-server [streams [seed [elements|scripts]]]`
//!
//! With `elements` half of the commands are on hashes, lists, sets, sorted sets and streams. With `scripts` they are random
//! Lua scripts, which call some of them.
//!
//! Replies that are known to differ are in `spec/redis-differs.list`, each with its reason; a reason that no
//! reply needed is named. Every other difference is printed, with no more commands than it needs.

use larder_testkit::PATIENCE;
use larder_testkit::process::{Program, Server};
use larder_testkit::redis::differ::{Difference, Kind, differ, reduce, stream};
use larder_testkit::redis::known::{Known, names};
use larder_testkit::redis::stream::shown;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Streams without an argument.
const STREAMS: u64 = 200;
/// Commands of a stream.
const LENGTH: usize = 400;
/// Number of differences after which the search ends.
const DIFFERENCES_MAX: usize = 40;

fn main() -> ExitCode {
    larder_testkit::exit(check())
}

fn check() -> Result<bool, String> {
    let mut arguments = std::env::args().skip(1);
    let redis = arguments.next().ok_or("differential path/to/redis-server [streams [seed]]")?;
    let mut number = |otherwise| match arguments.next() {
        Some(text) => text.parse::<u64>().map_err(|_| format!("{text:?} is not a number")),
        None => Ok(otherwise),
    };
    let (streams, seed) = (number(STREAMS)?, number(1)?);
    let kind = match arguments.next().as_deref() {
        None => Kind::Strings,
        Some("elements") => Kind::Elements,
        Some("scripts") => Kind::Scripts,
        Some(other) => {
            return Err(format!("{other:?} is no kind of commands; there are elements and scripts"));
        }
    };
    let names = names(Path::new(&redis))?;
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/redis-differs.list");
    let mut known = Known::load(&list, &names)?;
    let start = || Server::start_program(&Program::Redis(redis.as_str().into()), &[] as &[&str]);
    let mut peer = start()?;
    let larder = Server::start_program(
        &Program::LarderResp,
        &["-m", "1100", "-t", "2", "--enable-debug-command", "yes"],
    )?;
    let mut servers = [peer.address(), larder.address()];
    if kind == Kind::Scripts {
        // Scripts have no time limit, so that a busy machine ends none.
        let mut stream = TcpStream::connect(larder.address()).map_err(|error| error.to_string())?;
        let said = stream.write_all(b"CONFIG SET busy-reply-threshold 0\r\n");
        let mut reply = [0; 5];
        said.and_then(|()| stream.read_exact(&mut reply)).map_err(|error| error.to_string())?;
        if reply != *b"+OK\r\n" {
            return Err("busy-reply-threshold cannot be set".to_owned());
        }
    }
    let (mut found, mut printed, mut ends, mut passed_over) = (0, Vec::new(), 0, 0);
    for seed in seed..seed + streams {
        let mut sent = stream(seed, LENGTH, kind);
        known.leave_out(&mut sent);
        let mut expected =
            |difference: &Difference| printed.contains(&place(difference)) || known.explains(difference);
        let mut differs = differ(servers, &sent, &mut expected);
        // Redis 8.0.6 crashes in FUNCTION FLUSH after some streams: it is started again, and the stream is
        // tried once more.
        for tries in 1..=2 {
            if differs.is_ok() || !has_ended(&mut peer) {
                break;
            }
            ends += 1;
            peer = start()?;
            servers[0] = peer.address();
            differs = if tries == 1 { differ(servers, &sent, &mut expected) } else { Ok(None) };
            passed_over += u64::from(tries == 2);
        }
        let Some(differs) = differs.map_err(|error| format!("stream {seed}: {error}"))? else { continue };
        found += 1;
        // If the difference does not occur again, all commands before it are shown.
        let again = reduce(servers, &sent, &mut expected).unwrap_or(None);
        let (sent, difference) = again.unwrap_or((sent[..=differs.at].to_vec(), differs));
        printed.push(place(&difference));
        println!("FAILED stream {seed}");
        sent.iter().for_each(|(connection, command)| println!("  {connection}> {}", shown(command)));
        println!("  Redis:  {}\n  Larder: {}", difference.first.shown(), difference.second.shown());
        if found == DIFFERENCES_MAX {
            break;
        }
    }
    // An unused reason is named only if streams of this kind are the first to have its command: other streams
    // may need the others.
    for reason in known.unused(|name| kind.is_first_with(name)) {
        println!("no reply needs this any more: {reason}");
    }
    if ends > 0 {
        println!("{names} has ended {ends} times by itself; {passed_over} streams could not be compared");
    }
    if passed_over * 10 > streams {
        return Err("too many streams could not be compared".to_owned());
    }
    println!(
        "{names}: {} streams of {LENGTH} commands, {found} differ, {} known differences seen",
        streams,
        known.seen()
    );
    Ok(found == 0)
}

/// Whether a server has ended by itself, which takes a while. A server that answers has not, so there is no
/// wait: the other server broke off.
fn has_ended(server: &mut Server) -> bool {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if server.wait(Duration::from_millis(10)).is_some() {
            return true;
        }
        if answers(server).is_ok() {
            return false;
        }
    }
    false
}

/// Waits for any reply of a server of Redis's protocol; an error is one.
fn answers(server: &Server) -> std::io::Result<()> {
    let mut stream = server.connect()?;
    stream.write_all(b"PING\r\n")?;
    stream.read_exact(&mut [0; 1])
}

/// What equal differences have in common: the command, and the first lines that differ.
fn place(difference: &Difference) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let Difference { command, first, second, .. } = difference;
    let (mut first, mut second) = (first, second);
    while first.line == second.line
        && let Some((one, two)) = first.inside.iter().zip(&second.inside).find(|(one, two)| one != two)
    {
        (first, second) = (one, two);
    }
    (command[0].to_ascii_lowercase(), first.line.clone(), second.line.clone())
}
