//! Connections of attackers. They write while they read, so that neither side waits for the other.

use larder_testkit::talk::encode;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// The last request of a pipeline: no other reply is like its reply.
const END: &[u8] = b"*2\r\n$4\r\nECHO\r\n$14\r\nattack-is-over\r\n";
const ENDED: &[u8] = b"attack-is-over\r\n";
const ENDED_HEAD: &[u8] = b"$14\r\n";

/// A RESP request of plain words.
pub fn said(line: &str) -> Vec<u8> {
    encode(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

/// A connection.
///
/// # Errors
/// The system's error.
pub fn connect(address: SocketAddr) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    Ok(stream)
}

/// Sends requests, and reads all replies; returns the time that took, and their first bytes.
///
/// # Errors
/// The replies did not come within `patience`, or the connection ended.
pub fn exchange(
    address: SocketAddr,
    bytes: &[u8],
    patience: Duration,
) -> Result<(Duration, Vec<u8>), String> {
    let mut all = bytes.to_vec();
    all.extend_from_slice(END);
    let Heard { took, first, .. } = converse(address, &all, ENDED, patience)?;
    Ok((took, first))
}

/// As [`exchange`], with the last bytes of the replies.
///
/// # Errors
/// As [`exchange`], but returns the last bytes of the replies.
pub fn exchange_last(
    address: SocketAddr,
    bytes: &[u8],
    patience: Duration,
) -> Result<(Duration, Vec<u8>), String> {
    let all = [bytes, END].concat();
    let Heard { took, last, .. } = converse(address, &all, ENDED, patience)?;
    let end = last.len() - ENDED.len() - ENDED_HEAD.len();
    Ok((took, last[..end].to_vec()))
}

/// As [`exchange`], of the text protocol.
///
/// # Errors
/// As [`exchange`], in the text protocol.
pub fn exchange_text(
    address: SocketAddr,
    bytes: &[u8],
    patience: Duration,
) -> Result<(Duration, Vec<u8>), String> {
    let mut all = bytes.to_vec();
    all.extend_from_slice(b"mn\r\n");
    let Heard { took, first, .. } = converse(address, &all, b"MN\r\n", patience)?;
    Ok((took, first))
}

/// Bytes of a reply that messages show.
const SHOWN: usize = 200;

/// The replies that were read, and how long that took.
struct Heard {
    took: Duration,
    first: Vec<u8>,
    last: Vec<u8>,
}

fn converse(address: SocketAddr, bytes: &[u8], end: &[u8], patience: Duration) -> Result<Heard, String> {
    let mut stream = connect(address)?;
    let mut writer = stream.try_clone().map_err(|error| error.to_string())?;
    let began = Instant::now();
    let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
    let _ = writer.set_write_timeout(Some(patience));
    thread::scope(|scope| {
        let writing = scope.spawn(move || writer.write_all(bytes));
        let (mut first, mut last) = (Vec::new(), Vec::new());
        let mut room = vec![0; 1 << 20];
        let outcome = loop {
            match stream.read(&mut room) {
                Ok(0) => break Err(format!("closed after {:?}: {}", began.elapsed(), shown(&first))),
                Ok(count) => {
                    first.extend_from_slice(&room[..count.min(SHOWN.saturating_sub(first.len()))]);
                    last.extend_from_slice(&room[..count]);
                    let from = last.len().saturating_sub(SHOWN);
                    last.drain(..from);
                    if last.ends_with(end) {
                        break Ok(Heard { took: began.elapsed(), first, last });
                    }
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                }
                Err(error) => break Err(format!("after {:?}: {error}", began.elapsed())),
            }
            if began.elapsed() > patience {
                break Err(format!("not over after {:?}", began.elapsed()));
            }
        };
        let _ = stream.shutdown(std::net::Shutdown::Both);
        let _ = writing.join();
        outcome
    })
}

/// The beginning of a text.
pub fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).escape_debug().to_string()
}

/// Sends as much as is taken within `patience`, and reads nothing; returns the connection, and the number of bytes.
///
/// # Errors
/// The system's error.
pub fn only_send(
    address: SocketAddr,
    bytes: &[u8],
    patience: Duration,
) -> Result<(TcpStream, usize), String> {
    let mut stream = connect(address)?;
    let _ = stream.set_write_timeout(Some(patience));
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(count) => sent += count,
            Err(_) => break,
        }
    }
    Ok((stream, sent))
}
