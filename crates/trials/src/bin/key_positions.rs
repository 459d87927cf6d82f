//! Compares where a server of Redis's protocol finds the keys of commands with where Larder finds them:
//! `spec/key-positions.list`.
//!
//! `key_positions path/to/redis-server|valkey-server`
//!
//! Commands that the server does not know are passed over. What differs is printed, and so is a reason in the list that is no
//! longer needed.

use larder_testkit::process::{Program, Server};
use larder_testkit::redis::frame::Frame;
use larder_testkit::redis::known::names;
use larder_testkit::redis::positions::usages;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;

/// The reply of a server that has no such command.
const UNKNOWN: &[u8] = b"-ERR Invalid command specified\r\n";

fn main() -> ExitCode {
    larder_testkit::exit(check())
}

fn check() -> Result<bool, String> {
    let server = std::env::args().nth(1).ok_or("key_positions path/to/redis-server")?;
    let names = names(Path::new(&server))?;
    let peer = Server::start_program(&Program::Redis(server.as_str().into()), &[] as &[&str])?;
    let mut stream = peer.connect().map_err(|error| error.to_string())?;
    let (mut asked, mut known, mut differ) = (0, 0, 0);
    for usage in usages()?.iter().filter(|usage| usage.is_common) {
        asked += 1;
        let reply = ask(&mut stream, &usage.question())?;
        if reply == UNKNOWN {
            continue;
        }
        known += 1;
        let complaint = match (reply == usage.answer(), usage.differs_at(&names)) {
            (true, None) | (false, Some(_)) => continue,
            (true, Some(why)) => format!("no longer differs: {why}"),
            (false, None) => reply.escape_ascii().to_string(),
        };
        differ += 1;
        println!("FAILED {}: {complaint}", usage.words.join(" "));
    }
    println!("{names}: {asked} usages, {known} known, {differ} differ");
    Ok(differ == 0)
}

/// Sends a request; returns the bytes of its reply.
fn ask(stream: &mut TcpStream, request: &[u8]) -> Result<Vec<u8>, String> {
    stream.write_all(request).map_err(|error| error.to_string())?;
    let (mut received, mut bytes) = (Vec::new(), [0; 4096]);
    while Frame::read(&received)?.is_none() {
        match stream.read(&mut bytes).map_err(|error| error.to_string())? {
            0 => return Err("the connection was closed".to_owned()),
            count => received.extend_from_slice(&bytes[..count]),
        }
    }
    Ok(received)
}
