//! The clients, each behind what all of them can.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use async_memcached::AsciiProtocol;
use larder_client::{Batch, Client, Ttl};
use tokio::runtime::{Builder, Runtime};

use crate::{Job, SETS_KEYS, Space};

/// Clients with the versions that Cargo.toml pins.
pub const VERSIONS: [(&str, &str); 5] = [
    ("larder", "0.1.0"),
    (TASKS, "0.1.0"),
    ("memcache", "0.21.0"),
    ("async-memcached", "0.9.0"),
    ("by hand", ""),
];

/// The one whose callers are tasks.
pub const TASKS: &str = "larder, tokio";

/// What a call says.
pub enum Answer {
    /// The key's value, or that it is stored.
    Right,
    /// Another value.
    Wrong,
    /// There is no such key.
    Miss,
    /// How many of the keys were found, and how many of their values were wrong.
    Many { found: usize, wrong: usize },
    /// An error, and whether it was that it took too long.
    Failed { timeout: bool, error: Box<dyn FnOnce() -> String> },
}

fn told(timeout: bool, error: impl std::fmt::Display + 'static) -> Answer {
    Answer::Failed { timeout, error: Box::new(move || error.to_string()) }
}

pub fn compared(got: &[u8], due: &[u8]) -> Answer {
    if got == due { Answer::Right } else { Answer::Wrong }
}

/// A client as one caller sees it.
pub trait Session: Send {
    fn get(&mut self, key: &str, due: &[u8]) -> Answer;
    fn set(&mut self, key: &str, value: &[u8]) -> Answer;
    fn many(&mut self, keys: &[String], space: &Space) -> Answer;

    /// Stores several keys with one call, from this number on.
    fn sets(&mut self, _: usize, _: &Space) -> Answer {
        told(false, "the client has no call that stores several keys")
    }
}

/// A session for each caller.
pub fn open(job: &Job) -> Result<Vec<Box<dyn Session>>, String> {
    let count = job.callers.max(1) as usize;
    match job.client.as_str() {
        "larder" => {
            let client = job.builder()?.build();
            let client = Arc::new(client.map_err(|error| error.to_string())?);
            Ok((0..count)
                .map(|_| {
                    let (client, batch) = (Arc::clone(&client), client.batch());
                    Box::new(Larder { client, batch, buffer: Vec::new() }) as _
                })
                .collect())
        }
        "memcache" => {
            // A URL without a host is a path.
            let url = format!("memcache://{}?protocol=ascii&tcp_nodelay=true", job.address());
            let client = memcache::Client::builder()
                .add_server(url)
                .map_err(|error| error.to_string())?
                .with_max_pool_size(count as u32)
                .with_connection_timeout(job.timeout())
                .with_read_timeout(job.timeout())
                .with_write_timeout(job.timeout())
                .build()
                .map_err(|error| error.to_string())?;
            Ok((0..count).map(|_| Box::new(Memcache(client.clone())) as _).collect())
        }
        "async-memcached" => (0..count)
            .map(|_| {
                let runtime = Builder::new_current_thread().enable_all().build();
                let runtime = runtime.map_err(|error| error.to_string())?;
                let scheme = if job.is_at_path() { "unix" } else { "tcp" };
                let (address, timeout) = (format!("{scheme}://{}", job.address()), job.timeout());
                Ok(Box::new(AsyncMemcached { runtime, address, timeout, client: None }) as _)
            })
            .collect(),
        "by hand" => Ok((0..count)
            .map(|_| {
                let (address, is_path, timeout) = (job.address(), job.is_at_path(), job.timeout());
                Box::new(ByHand {
                    address,
                    is_path,
                    timeout,
                    stream: None,
                    out: Vec::new(),
                    value: Vec::new(),
                }) as _
            })
            .collect()),
        other => Err(format!("there is no client {other:?}")),
    }
}

struct Larder {
    client: Arc<Client>,
    batch: Batch,
    buffer: Vec<u8>,
}

pub fn larder_told(error: larder_client::Error) -> Answer {
    told(matches!(error, larder_client::Error::Timeout(..)), error)
}

impl Session for Larder {
    fn get(&mut self, key: &str, due: &[u8]) -> Answer {
        self.buffer.clear();
        match self.client.get_into(key.as_bytes(), &mut self.buffer) {
            Ok(Some(_)) => compared(&self.buffer, due),
            Ok(None) => Answer::Miss,
            Err(error) => larder_told(error),
        }
    }

    fn set(&mut self, key: &str, value: &[u8]) -> Answer {
        match self.client.set(key.as_bytes(), value).send() {
            Ok(_) => Answer::Right,
            Err(error) => larder_told(error),
        }
    }

    fn many(&mut self, keys: &[String], space: &Space) -> Answer {
        let mut batch = self.client.batch();
        let tickets: Vec<_> = keys.iter().map(|key| batch.get(key.as_bytes())).collect();
        let done = batch.run();
        let (mut found, mut wrong) = (0, 0);
        for (key, ticket) in keys.iter().zip(&tickets) {
            match done.value(ticket) {
                Ok(Some((value, _))) => {
                    found += 1;
                    wrong += usize::from(!space.is_right(key.as_bytes(), value));
                }
                Ok(None) => {}
                Err(error) => return larder_told(error),
            }
        }
        Answer::Many { found, wrong }
    }

    fn sets(&mut self, at: usize, space: &Space) -> Answer {
        let set = |(key, value): (&str, &[u8])| self.batch.set(key.as_bytes(), value, Ttl::Forever);
        let tickets: Vec<_> = space.several(at).map(set).collect();
        let done = self.batch.run();
        let failed = tickets.into_iter().find_map(|ticket| done.take(ticket).err());
        failed.map_or(Answer::Right, larder_told)
    }
}

struct Memcache(memcache::Client);

fn memcache_told(error: memcache::MemcacheError) -> Answer {
    let timeout = match &error {
        memcache::MemcacheError::IOError(error) => is_timeout(error),
        memcache::MemcacheError::PoolError(_) => true,
        _ => false,
    };
    told(timeout, error)
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl Session for Memcache {
    fn get(&mut self, key: &str, due: &[u8]) -> Answer {
        match self.0.get::<Vec<u8>>(key) {
            Ok(Some(value)) => compared(&value, due),
            Ok(None) => Answer::Miss,
            Err(error) => memcache_told(error),
        }
    }

    fn set(&mut self, key: &str, value: &[u8]) -> Answer {
        match self.0.set(key, value, 0) {
            Ok(()) => Answer::Right,
            Err(error) => memcache_told(error),
        }
    }

    fn many(&mut self, keys: &[String], space: &Space) -> Answer {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        match self.0.gets::<Vec<u8>>(&keys) {
            Ok(values) => {
                let right =
                    values.iter().filter(|(key, value)| space.is_right(key.as_bytes(), value)).count();
                Answer::Many { found: values.len(), wrong: values.len() - right }
            }
            Err(error) => memcache_told(error),
        }
    }
}

/// It has no timeout of its own: each call is cancelled by tokio's. A connection that is closed is made anew.
struct AsyncMemcached {
    runtime: Runtime,
    address: String,
    timeout: Duration,
    client: Option<async_memcached::Client>,
}

impl AsyncMemcached {
    fn ask<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut async_memcached::Client) -> Result<T, async_memcached::Error>,
    ) -> Result<T, Answer> {
        if self.client.as_ref().is_some_and(async_memcached::Client::is_closed) {
            self.client = None;
        }
        let (address, timeout, client) = (&self.address, self.timeout, &mut self.client);
        let outcome = self.runtime.block_on(async {
            let asked = async {
                let client = match client {
                    Some(client) => client,
                    none => none.insert(async_memcached::Client::new(address).await?),
                };
                call(client).await
            };
            tokio::time::timeout(timeout, asked).await
        });
        match outcome {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(told(false, error)),
            Err(elapsed) => Err(told(true, elapsed)),
        }
    }
}

impl Session for AsyncMemcached {
    fn get(&mut self, key: &str, due: &[u8]) -> Answer {
        match self.ask(async |client| client.get(key).await) {
            Ok(Some(value)) => compared(value.data.as_deref().unwrap_or_default(), due),
            Ok(None) => Answer::Miss,
            Err(answer) => answer,
        }
    }

    fn set(&mut self, key: &str, value: &[u8]) -> Answer {
        self.ask(async |client| client.set(key, value, None, None).await)
            .map_or_else(|answer| answer, |()| Answer::Right)
    }

    fn many(&mut self, keys: &[String], space: &Space) -> Answer {
        match self.ask(async |client| client.get_multi(keys).await) {
            Ok(values) => {
                let right = |value: &&async_memcached::Value| {
                    space.is_right(&value.key, value.data.as_deref().unwrap_or_default())
                };
                Answer::Many {
                    found: values.len(),
                    wrong: values.len() - values.iter().filter(right).count(),
                }
            }
            Err(answer) => answer,
        }
    }
}

/// A socket of either kind.
enum Wire {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Wire {
    fn connect(address: &str, is_path: bool, timeout: Duration) -> io::Result<Wire> {
        if is_path {
            let stream = UnixStream::connect(address)?;
            stream.set_read_timeout(Some(timeout))?;
            stream.set_write_timeout(Some(timeout))?;
            return Ok(Wire::Unix(stream));
        }
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Wire::Tcp(stream))
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Tcp(stream) => stream.read(buffer),
            Wire::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Tcp(stream) => stream.write(bytes),
            Wire::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The least that a program can do: a connection for each caller, one write and one read.
struct ByHand {
    address: String,
    is_path: bool,
    timeout: Duration,
    stream: Option<BufReader<Wire>>,
    out: Vec<u8>,
    value: Vec<u8>,
}

/// What stands in a reply.
enum Found {
    Value(usize),
    End,
}

impl ByHand {
    fn send(&mut self) -> io::Result<()> {
        if self.stream.is_none() {
            let wire = Wire::connect(&self.address, self.is_path, self.timeout)?;
            self.stream = Some(BufReader::with_capacity(64 << 10, wire));
        }
        let stream = self.stream.as_mut().expect("it was just made");
        stream.get_mut().write_all(&self.out)
    }

    /// The next line, without its end, is left in `value`.
    fn line(&mut self) -> io::Result<()> {
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        self.value.clear();
        stream.read_until(b'\n', &mut self.value)?;
        if !self.value.ends_with(b"\r\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.value.truncate(self.value.len() - 2);
        Ok(())
    }

    /// A value of a key, which is left in `value`, or the end.
    fn found(&mut self, key: &str) -> io::Result<Found> {
        self.line()?;
        if self.value == b"END" {
            return Ok(Found::End);
        }
        let odd = || io::Error::other("a reply that was not expected");
        let text = std::str::from_utf8(&self.value).map_err(|_| odd())?;
        let mut words = text.split(' ');
        let named = words.next() == Some("VALUE") && words.next() == Some(key);
        let bytes: usize =
            words.nth(1).and_then(|word| word.parse().ok()).filter(|&n| n <= 1 << 20).ok_or_else(odd)?;
        if !named {
            return Err(odd());
        }
        self.value.resize(bytes + 2, 0);
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        stream.read_exact(&mut self.value)?;
        Ok(Found::Value(bytes))
    }

    fn expect(&mut self, line: &[u8]) -> io::Result<()> {
        self.line()?;
        if self.value == line { Ok(()) } else { Err(io::Error::other("a reply that was not expected")) }
    }

    /// Drops a connection after an error: bytes that it may still bring belong to no request.
    fn answer(&mut self, outcome: io::Result<Answer>) -> Answer {
        outcome.unwrap_or_else(|error| {
            self.stream = None;
            told(is_timeout(&error), error)
        })
    }
}

impl Session for ByHand {
    fn get(&mut self, key: &str, due: &[u8]) -> Answer {
        self.out.clear();
        self.out.extend_from_slice(b"get ");
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\r\n");
        let outcome = self.send().and_then(|()| match self.found(key)? {
            Found::End => Ok(Answer::Miss),
            Found::Value(bytes) => {
                let answer = compared(&self.value[..bytes], due);
                self.expect(b"END").map(|()| answer)
            }
        });
        self.answer(outcome)
    }

    fn set(&mut self, key: &str, value: &[u8]) -> Answer {
        self.out.clear();
        let _ = write!(self.out, "set {key} 0 0 {}\r\n", value.len());
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
        let outcome = self.send().and_then(|()| self.expect(b"STORED")).map(|()| Answer::Right);
        self.answer(outcome)
    }

    fn sets(&mut self, at: usize, space: &Space) -> Answer {
        self.out.clear();
        for (key, value) in space.several(at) {
            let _ = write!(self.out, "set {key} 0 0 {}\r\n", value.len());
            self.out.extend_from_slice(value);
            self.out.extend_from_slice(b"\r\n");
        }
        let outcome = self.send().and_then(|()| (0..SETS_KEYS).try_for_each(|_| self.expect(b"STORED")));
        self.answer(outcome.map(|()| Answer::Right))
    }

    fn many(&mut self, keys: &[String], space: &Space) -> Answer {
        self.out.clear();
        self.out.extend_from_slice(b"get");
        for key in keys {
            self.out.push(b' ');
            self.out.extend_from_slice(key.as_bytes());
        }
        self.out.extend_from_slice(b"\r\n");
        let (mut found, mut wrong) = (0, 0);
        let outcome = self.send().and_then(|()| {
            for key in keys {
                match self.found(key)? {
                    Found::End => return Ok(()),
                    Found::Value(bytes) => {
                        found += 1;
                        wrong += usize::from(!space.is_right(key.as_bytes(), &self.value[..bytes]));
                    }
                }
            }
            self.expect(b"END")
        });
        self.answer(outcome.map(|()| Answer::Many { found, wrong }))
    }
}
