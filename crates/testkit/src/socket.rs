//! A case's connections as TCP sockets.

use crate::PATIENCE;
use crate::runner::{Received, Wire};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// How the server's clock is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// By the command `debugtime`, on a connection of its own.
    Debugtime,
    /// By waiting.
    Wait,
}

/// Sockets to one server.
#[derive(Debug)]
pub struct Sockets {
    address: SocketAddr,
    clock: Clock,
    patience: Duration,
    streams: HashMap<String, TcpStream>,
}

impl Sockets {
    /// No connection yet.
    pub fn new(address: SocketAddr, clock: Clock) -> Sockets {
        Sockets { address, clock, patience: PATIENCE, streams: HashMap::new() }
    }

    /// Sets how long an expected byte may take.
    pub fn within(mut self, patience: Duration) -> Sockets {
        self.patience = patience;
        self
    }

    fn stream(&mut self, name: &str) -> Result<&mut TcpStream, String> {
        self.streams.get_mut(name).ok_or(format!("connection {name} is not open"))
    }
}

impl Wire for Sockets {
    fn connect(&mut self, name: &str) -> Result<(), String> {
        let stream = TcpStream::connect(self.address).map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(self.patience)).map_err(|error| error.to_string())?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
        self.streams.insert(name.to_owned(), stream);
        Ok(())
    }

    fn send(&mut self, name: &str, bytes: &[u8]) -> Result<(), String> {
        match self.stream(name)?.write_all(bytes) {
            Err(error) if is_close(error.kind()) => Ok(()),
            other => other.map_err(|error| format!("sending: {error}")),
        }
    }

    fn receive(&mut self, name: &str, buffer: &mut Vec<u8>) -> Result<Received, String> {
        let mut bytes = [0; 65536];
        match self.stream(name)?.read(&mut bytes) {
            Ok(0) => Ok(Received::Closed),
            Ok(count) => {
                buffer.extend_from_slice(&bytes[..count]);
                Ok(Received::Bytes)
            }
            Err(error) if is_close(error.kind()) => Ok(Received::Closed),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(Received::Silence)
            }
            Err(error) => Err(format!("receiving: {error}")),
        }
    }

    fn peek(&mut self, name: &str, buffer: &mut Vec<u8>) -> Result<Received, String> {
        let blocking = |stream: &TcpStream, is| stream.set_nonblocking(is).map_err(|error| error.to_string());
        blocking(self.stream(name)?, true)?;
        let received = self.receive(name, buffer);
        blocking(self.stream(name)?, false)?;
        received
    }

    fn patience(&self) -> Duration {
        self.patience
    }

    fn hangup(&mut self, name: &str) {
        if let Some(stream) = self.streams.remove(name) {
            // The peer may have closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn advance(&mut self, seconds: u64) -> Result<(), String> {
        if self.clock == Clock::Wait {
            // Long enough for the next tick of a clock that counts whole seconds.
            std::thread::sleep(Duration::from_secs(seconds) + Duration::from_millis(1100));
            return Ok(());
        }
        const NAME: &str = "clock";
        if !self.streams.contains_key(NAME) {
            self.connect(NAME)?;
        }
        self.send(NAME, format!("debugtime {seconds}\r\n").as_bytes())?;
        let mut reply = Vec::new();
        while reply.len() < 4 && self.receive(NAME, &mut reply)? == Received::Bytes {}
        if reply == b"OK\r\n" {
            Ok(())
        } else {
            Err(format!("debugtime answered {}", crate::pattern::escaped(&reply)))
        }
    }
}

fn is_close(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted)
}
