//! Sends numbers at the limits of integer arguments to a server of Redis's protocol, and compares its replies
//! with the table by which Larder's sessions are tested.
//!
//! `ends path/to/redis-server|valkey-server`
//!
//! Replies that differ are printed. Valkey is not asked about fields that expire, for which it has its own
//! error texts; no server is asked for elements at indexes beyond 32 bits, nor for MSETEX, which Redis 8.0
//! lacks.

use larder_testkit::PATIENCE;
use larder_testkit::process::{Program, Server};
use larder_testkit::redis::ends::{Asked, numbers, times};
use larder_testkit::redis::frame::Frame;
use larder_testkit::redis::known::names;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::ExitCode;

/// A connection, and the received bytes that are not yet part of a reply.
struct Peer {
    stream: TcpStream,
    come: Vec<u8>,
}

impl Peer {
    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.write_all(bytes).map_err(|error| error.to_string())
    }

    /// The next reply, as it came.
    fn reply(&mut self) -> Result<Vec<u8>, String> {
        loop {
            if let Some((_, bytes)) = Frame::read(&self.come)? {
                return Ok(self.come.drain(..bytes).collect());
            }
            let mut room = [0; 4096];
            match self.stream.read(&mut room).map_err(|error| error.to_string())? {
                0 => return Err("the server has closed the connection".to_owned()),
                bytes => self.come.extend_from_slice(&room[..bytes]),
            }
        }
    }
}

fn main() -> ExitCode {
    larder_testkit::exit(check())
}

fn check() -> Result<bool, String> {
    let program = std::env::args().nth(1).ok_or("ends path/to/redis-server")?;
    let names = names(Path::new(&program))?;
    let is_valkey = program.ends_with("valkey-server");
    let server = Server::start_program(&Program::Redis(program.as_str().into()), &[] as &[&str])?;
    let stream = server.connect().map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
    let mut peer = Peer { stream, come: Vec::new() };
    let (stock, made) = Asked::stock();
    let (mut replies, mut differ) = (0, 0);
    let asks =
        |asked: &Asked| !(is_valkey && asked.is_of_timed_fields() || asked.is_cut() || asked.is_of_newer());
    for asked in numbers().chain(times()).filter(asks) {
        peer.send(&stock)?;
        for _ in 0..made {
            peer.reply()?;
        }
        peer.send(&asked.request())?;
        let reply = peer.reply()?;
        replies += 1;
        if reply != format!("{}\r\n", asked.reply).into_bytes() {
            differ += 1;
            let reply = String::from_utf8_lossy(&reply).into_owned();
            println!("FAILED {} with {:?}: {reply:?}, not {:?}", asked.words, asked.number, asked.reply);
        }
    }
    println!("{replies} replies of {names}, {differ} differ");
    Ok(differ == 0)
}
