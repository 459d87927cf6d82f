//! A relay between a client and a server that holds every byte for a while: a longer way.
//!
//! ```text
//! client ── socket ──► reader ── (due, bytes) ──► writer ── socket ──► server        and back the same
//! ```
//!
//! A reader notes when what it received is due, a writer waits for that and sends it: any number of bytes is on the
//! way at once. TCP ends at the relay on both sides, so Nagle's algorithm and acknowledgements are those of the
//! loopback; a close or a reset passes as a close.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use larder_eventloop::cpu;
use larder_eventloop::socket::Address;

use crate::control::Control;
use crate::error::Error;
use crate::stats::median;

/// Bytes received at once.
const RECEIVE_BYTES: usize = 256 * 1024;
/// Round trips of which a relay's delay is the median.
const TRIPS: usize = 21;

/// A relay. It serves until the process ends.
#[derive(Clone, Debug)]
pub struct Relay {
    /// Where it listens.
    pub address: SocketAddr,
}

impl Relay {
    /// A relay to `server` that holds each byte for `one_way`.
    ///
    /// # Errors
    /// [`Error::System`] when it cannot listen.
    pub fn start(server: SocketAddr, one_way: Duration) -> Result<Relay, Error> {
        let listen = || {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = listen().map_err(|error| Error::System("a relay", error))?;
        thread::spawn(move || {
            // Threads of connections inherit it: a relay that waits for a core is a longer way than it says.
            let _ = cpu::raise_priority(None);
            for client in listener.incoming().map_while(Result::ok) {
                // A server that is gone refuses at once, and the client sees a close.
                let Ok(upstream) = TcpStream::connect(server) else { continue };
                for stream in [&client, &upstream] {
                    let _ = stream.set_nodelay(true);
                }
                if let (Ok(back), Ok(forth)) = (client.try_clone(), upstream.try_clone()) {
                    pass(client, upstream, one_way);
                    pass(forth, back, one_way);
                }
            }
        });
        Ok(Relay { address })
    }

    /// What it adds to a round trip to `server`, measured: the difference of medians.
    ///
    /// # Errors
    /// [`Error::Peer`] when the server does not answer.
    pub fn added(&self, server: &Control) -> Result<Duration, Error> {
        let through = Control { address: Address::Tcp(self.address), ..server.clone() };
        let (there, direct) = (trip(&through)?, trip(server)?);
        Ok(Duration::from_secs_f64((there - direct).max(0.0)))
    }
}

/// The median time of a question and its answer on a connection that is there, in seconds.
fn trip(control: &Control) -> Result<f64, Error> {
    let failed = |error| Error::Peer(format!("{} does not answer through a relay: {error}", control.name));
    let Address::Tcp(address) = &control.address else {
        return Err(failed(std::io::Error::from(std::io::ErrorKind::Unsupported)));
    };
    let times = || -> std::io::Result<Vec<f64>> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let mut buffer = [0; 512];
        (0..TRIPS)
            .map(|_| {
                let began = Instant::now();
                stream.write_all(b"version\r\n")?;
                loop {
                    let received = stream.read(&mut buffer)?;
                    match buffer[..received] {
                        [] => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                        [.., b'\n'] => return Ok(began.elapsed().as_secs_f64()),
                        _ => {}
                    }
                }
            })
            .collect()
    };
    Ok(median(&times().map_err(failed)?))
}

/// Bytes, and when they are due.
type Held = (Instant, Vec<u8>);

/// Passes bytes one way, in two threads.
fn pass(mut from: TcpStream, mut to: TcpStream, hold: Duration) {
    let (sender, due) = channel::<Held>();
    thread::spawn(move || {
        let mut buffer = vec![0; RECEIVE_BYTES];
        while let Ok(received @ 1..) = from.read(&mut buffer) {
            if sender.send((Instant::now() + hold, buffer[..received].to_vec())).is_err() {
                return;
            }
        }
        // Nothing more: an empty piece is the end, due as a byte would be.
        let _ = sender.send((Instant::now() + hold, Vec::new()));
    });
    thread::spawn(move || {
        for (due, bytes) in due {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if bytes.is_empty() || to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it receives, and closes when its client does.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                thread::spawn(move || {
                    let mut back = stream.try_clone().unwrap();
                    let _ = std::io::copy(&mut stream, &mut back);
                });
            }
        });
        address
    }

    #[test]
    fn bytes_pass_whole_and_in_order_after_the_delay_and_a_close_passes_too() {
        let hold = Duration::from_millis(5);
        let relay = Relay::start(echo(), hold).unwrap();
        let mut stream = TcpStream::connect(relay.address).unwrap();
        let sent: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
        let began = Instant::now();
        let (mut writer, piece) = (stream.try_clone().unwrap(), sent.clone());
        let writing = thread::spawn(move || {
            writer.write_all(&piece).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        writing.join().unwrap();
        assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
        assert!(began.elapsed() >= 2 * hold, "{:?}", began.elapsed());
    }

    #[test]
    fn a_server_that_is_not_there_is_a_closed_connection() {
        let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let relay = Relay::start(gone, Duration::from_millis(1)).unwrap();
        let mut stream = TcpStream::connect(relay.address).unwrap();
        let mut received = Vec::new();
        // A close or a reset: nothing came either way.
        let _ = stream.read_to_end(&mut received);
        assert!(received.is_empty());
    }
}
