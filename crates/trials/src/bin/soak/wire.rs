//! A connection that sends well or badly, as its [`Manner`] says, and reads replies exactly.

use crate::random::Random;
use rustix::net::{self, AddressFamily, SocketType};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Longest time of a reply; after it the reply counts as missing.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a batch of requests is sent and its replies are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Sent at once, and read at once.
    Prompt,
    /// In small pieces with pauses.
    Slow,
    /// Sent up to a random byte; the rest after a pause.
    Stopping,
    /// Sent at once; nothing is read for a while.
    Late,
    /// Sent; then the sending side is closed, and the replies are read.
    HalfClosing,
    /// Sent up to a random byte; then the connection is reset.
    Resetting,
}

/// All manners but the prompt one.
pub const ODD: &[Manner] =
    &[Manner::Slow, Manner::Stopping, Manner::Late, Manner::HalfClosing, Manner::Resetting];

/// A connection.
#[derive(Debug)]
pub struct Wire {
    reader: BufReader<TcpStream>,
    /// The client's own address.
    pub address: SocketAddr,
    /// The connection has had a reply. Before that its worker may not have taken it over: CLIENT LIST does
    /// not show it, and its requests are carried out even after it was reset.
    pub answered: bool,
}

impl Wire {
    /// Connects from an address of this machine that no earlier connection had. The system gives one port to
    /// several connections if their other ends differ, and reuses it at once after a reset.
    ///
    /// # Errors
    /// The system's error.
    pub fn connect(to: SocketAddr) -> io::Result<Wire> {
        static CONNECTED: AtomicU32 = AtomicU32::new(0);
        let [_, a, b, c] = CONNECTED.fetch_add(1, Relaxed).to_be_bytes();
        let from = IpAddr::V4(Ipv4Addr::new(127, 1 + a % 254, b, c));
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        net::bind(&socket, &SocketAddr::new(from, 0))?;
        net::connect(&socket, &to)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let address = stream.local_addr()?;
        Ok(Wire { address, reader: BufReader::with_capacity(1 << 16, stream), answered: false })
    }

    /// Sends `bytes` in a manner, with its pauses.
    ///
    /// # Errors
    /// The system's error; for [`Manner::Resetting`], that the connection is reset, which this does itself.
    pub fn send(&mut self, bytes: &[u8], manner: Manner, random: &mut Random) -> io::Result<()> {
        let mut pause = |most: usize| thread::sleep(Duration::from_millis(random.within(1, most) as u64));
        let mut stream = self.reader.get_ref();
        match manner {
            Manner::Prompt => stream.write_all(bytes),
            Manner::Slow => {
                // Pieces and pauses together take about half a second at most.
                let piece = (bytes.len() / 40).max(1);
                bytes.chunks(piece).try_for_each(|piece| {
                    pause(20);
                    stream.write_all(piece)
                })
            }
            Manner::Stopping => {
                let at = random.below(bytes.len());
                stream.write_all(&bytes[..at])?;
                thread::sleep(Duration::from_millis(random.within(1, 2000) as u64));
                stream.write_all(&bytes[at..])
            }
            Manner::Late => {
                stream.write_all(bytes)?;
                pause(2000);
                Ok(())
            }
            Manner::HalfClosing => {
                stream.write_all(bytes)?;
                stream.shutdown(Shutdown::Write)
            }
            Manner::Resetting => {
                let at = random.within(1, bytes.len());
                stream.write_all(&bytes[..at])?;
                if random.chance(50) {
                    thread::sleep(Duration::from_millis(random.below(20) as u64));
                }
                // Unread bytes, or no lingering, turn the close into a reset.
                rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?;
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
    }

    /// Waits for a first reply of the server: from then on the server lists the connection as its client.
    ///
    /// # Errors
    /// The system's error, or another reply.
    pub fn greet(&mut self, resp: bool) -> io::Result<()> {
        let (asked, wanted): (&[u8], &[u8]) = if resp { (b"PING\r\n", b"+PONG") } else { (b"mn\r\n", b"MN") };
        self.reader.get_ref().write_all(asked)?;
        let line = self.line()?;
        self.answered = line == wanted;
        if self.answered {
            Ok(())
        } else {
            Err(io::Error::other(String::from_utf8_lossy(&line).into_owned()))
        }
    }

    /// Reads a line, without its end.
    ///
    /// # Errors
    /// The system's error, or that the line does not end.
    pub fn line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        if line.ends_with(b"\r\n") {
            line.truncate(line.len() - 2);
            return Ok(line);
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    /// Reads a line of a dump, which ends as memcached's does: with a line feed alone.
    ///
    /// # Errors
    /// The system's error, or that the line does not end.
    pub fn dump_line(&mut self) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        self.reader.read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.truncate(line.trim_ascii_end().len());
        Ok(line)
    }

    /// Reads a value of so many bytes and the line end behind it.
    ///
    /// # Errors
    /// The system's error, or other bytes in place of the line end.
    pub fn block(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        let mut block = vec![0; bytes + 2];
        self.reader.read_exact(&mut block)?;
        if !block.ends_with(b"\r\n") {
            let end = String::from_utf8_lossy(&block[bytes..]).into_owned();
            return Err(io::Error::other(format!("a value of {bytes} bytes ends in {end:?}")));
        }
        block.truncate(bytes);
        Ok(block)
    }

    /// Whether the other end has closed, with nothing more to read.
    ///
    /// # Errors
    /// The system's error.
    pub fn is_at_end(&mut self) -> io::Result<bool> {
        Ok(self.reader.fill_buf()?.is_empty())
    }
}
