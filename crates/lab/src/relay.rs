//! A relay between a client and a server that delays every byte: a longer way.
//!
//! ```text
//! client ── socket ──► reader ── (due, bytes) ──► writer ── socket ──► server        and back the same
//! ```
//!
//! A reader records when the received bytes are due, and a writer waits for that and sends them: any number of bytes may be on
//! the way at once. TCP ends at the relay on both sides, so Nagle's algorithm and acknowledgements are those of the loopback. A
//! close or a reset passes as a close.
//!
//! A relay with [`Trouble`] harms replies while it is set to: it delays them for longer, cuts a connection in the middle of one,
//! sends one twice, or refuses connections. It counts its connections.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use larder_eventloop::cpu;
use larder_eventloop::port::Port;
use larder_eventloop::socket::Address;

use crate::control::Control;
use crate::error::Error;
use crate::stats::median;

/// Bytes received at once.
const RECEIVE_BYTES: usize = 256 * 1024;
/// Round trips for the median of a relay's delay.
const TRIPS: usize = 21;

/// The harm that a relay does to replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Harm {
    /// Nothing.
    #[default]
    None,
    /// It holds them for this many milliseconds.
    Slow(u32),
    /// It closes the connection in the middle of every [`OFTEN`]th piece.
    Cut,
    /// It sends every [`OFTEN`]th piece twice.
    Twice,
    /// It does not listen, and connections are closed.
    Refuse,
}

/// One in this many pieces is harmed.
pub const OFTEN: u64 = 20;

impl Harm {
    /// The harm in a word, which threads share.
    fn to_word(self) -> u32 {
        match self {
            Harm::None => 0,
            Harm::Cut => 1,
            Harm::Twice => 2,
            Harm::Refuse => 3,
            Harm::Slow(ms) => 4 + ms,
        }
    }

    fn of_word(word: u32) -> Harm {
        match word {
            0 => Harm::None,
            1 => Harm::Cut,
            2 => Harm::Twice,
            3 => Harm::Refuse,
            more => Harm::Slow(more - 4),
        }
    }
}

/// The instructions for a relay with faults, and its counts.
#[derive(Debug, Default)]
struct Shared {
    harm: AtomicU32,
    listens: AtomicBool,
    /// Connections so far.
    taken: AtomicU64,
    /// Pieces from the server while there was harm.
    pieces: AtomicU64,
    /// Connections, to close them.
    open: Mutex<Vec<TcpStream>>,
}

impl Shared {
    fn harm(&self) -> Harm {
        Harm::of_word(self.harm.load(Ordering::Relaxed))
    }

    fn close_all(&self) {
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// A relay that can harm replies. It serves until it is dropped.
#[derive(Debug)]
pub struct Trouble {
    /// Its address.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

/// Pause between looks for new connections.
const BLINK: Duration = Duration::from_micros(200);
/// The longest time until it listens, or listens no more.
const PATIENCE: Duration = Duration::from_secs(5);

impl Trouble {
    /// Starts a relay to `server` that does no harm yet.
    ///
    /// # Errors
    /// [`Error::System`] when it cannot listen.
    pub fn start(server: SocketAddr) -> Result<Trouble, Error> {
        let failed = |error| Error::System("a relay", error);
        let port = Port::reserve().map_err(failed)?;
        let address = port.address();
        let listener = listen(&port).map_err(failed)?;
        let shared = Arc::new(Shared { listens: AtomicBool::new(true), ..Shared::default() });
        let weak = Arc::downgrade(&shared);
        thread::spawn(move || {
            let _ = cpu::raise_priority(None);
            let mut listener = Some(listener);
            while let Some(shared) = weak.upgrade() {
                if shared.harm() == Harm::Refuse {
                    listener = None;
                    shared.close_all();
                } else if listener.is_none() {
                    listener = listen(&port).ok();
                }
                shared.listens.store(listener.is_some(), Ordering::Relaxed);
                match listener.as_ref().map(TcpListener::accept) {
                    Some(Ok((client, _))) => take(client, server, &shared),
                    _ => {
                        drop(shared);
                        thread::sleep(BLINK);
                    }
                }
            }
        });
        Ok(Trouble { address, shared })
    }

    /// Does this harm from now on; returns when it listens, or does not, as it should.
    pub fn set(&self, harm: Harm) {
        self.shared.harm.store(harm.to_word(), Ordering::Relaxed);
        let began = Instant::now();
        while self.shared.listens.load(Ordering::Relaxed) == (harm == Harm::Refuse)
            && began.elapsed() < PATIENCE
        {
            thread::sleep(BLINK);
        }
    }

    /// Connections so far.
    pub fn taken(&self) -> u64 {
        self.shared.taken.load(Ordering::Relaxed)
    }
}

impl Drop for Trouble {
    fn drop(&mut self) {
        self.shared.close_all();
    }
}

fn listen(port: &Port) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(port.address())?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Relays a connection.
fn take(client: TcpStream, server: SocketAddr, shared: &Arc<Shared>) {
    shared.taken.fetch_add(1, Ordering::Relaxed);
    let Ok(upstream) = TcpStream::connect(server) else { return };
    for stream in [&client, &upstream] {
        let _ = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(false));
    }
    let (Ok(back), Ok(forth), Ok(own)) = (client.try_clone(), upstream.try_clone(), client.try_clone())
    else {
        return;
    };
    shared.open.lock().unwrap_or_else(PoisonError::into_inner).push(own);
    pass(client, upstream, || Duration::ZERO, |_| Fate::Pass);
    let (slow, harm) = (Arc::clone(shared), Arc::clone(shared));
    let hold = move || match slow.harm() {
        Harm::Slow(ms) => Duration::from_millis(ms.into()),
        _ => Duration::ZERO,
    };
    pass(forth, back, hold, move |bytes| {
        let kind = harm.harm();
        if !matches!(kind, Harm::Cut | Harm::Twice) {
            return Fate::Pass;
        }
        match (harm.pieces.fetch_add(1, Ordering::Relaxed) % OFTEN, kind) {
            (0, Harm::Cut) => Fate::Cut(bytes / 2),
            (0, Harm::Twice) => Fate::Twice,
            _ => Fate::Pass,
        }
    });
}

/// The fate of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Pass,
    /// This many bytes of it are sent, and then the connection is closed.
    Cut(usize),
    Twice,
}

/// A relay. It serves until the process ends.
#[derive(Clone, Debug)]
pub struct Relay {
    /// Its address.
    pub address: SocketAddr,
}

impl Relay {
    /// Starts a relay to `server` that holds each byte for `one_way`.
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
            // Threads of connections inherit the priority: if a relay waited for a core, the way would be longer than intended.
            let _ = cpu::raise_priority(None);
            for client in listener.incoming().map_while(Result::ok) {
                // A server that is gone refuses at once, and the client sees a close.
                let Ok(upstream) = TcpStream::connect(server) else { continue };
                for stream in [&client, &upstream] {
                    let _ = stream.set_nodelay(true);
                }
                if let (Ok(back), Ok(forth)) = (client.try_clone(), upstream.try_clone()) {
                    pass(client, upstream, move || one_way, |_| Fate::Pass);
                    pass(forth, back, move || one_way, |_| Fate::Pass);
                }
            }
        });
        Ok(Relay { address })
    }

    /// Measures the time that the relay adds to a round trip to `server`: the difference of medians.
    ///
    /// # Errors
    /// [`Error::Peer`] when the server does not answer.
    pub fn added(&self, server: &Control) -> Result<Duration, Error> {
        let through = Control { address: Address::Tcp(self.address), ..server.clone() };
        let (there, direct) = (trip(&through)?, trip(server)?);
        Ok(Duration::from_secs_f64((there - direct).max(0.0)))
    }
}

/// The median time of a question and its answer on an open connection, in seconds.
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
type Delayed = (Instant, Vec<u8>);

/// Passes bytes one way, in two threads. When a piece arrives, `delay` says how long it waits; when it is due, `fate` says what
/// happens to it.
fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    delay: impl Fn() -> Duration + Send + 'static,
    fate: impl Fn(usize) -> Fate + Send + 'static,
) {
    let (sender, due) = channel::<Delayed>();
    thread::spawn(move || {
        let mut buffer = vec![0; RECEIVE_BYTES];
        while let Ok(received @ 1..) = from.read(&mut buffer) {
            if sender.send((Instant::now() + delay(), buffer[..received].to_vec())).is_err() {
                let _ = from.shutdown(Shutdown::Both);
                return;
            }
        }
        // No more bytes come: an empty piece is the end, due as a byte would be.
        let _ = sender.send((Instant::now() + delay(), Vec::new()));
    });
    thread::spawn(move || {
        for (due, bytes) in due {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let sent = match fate(bytes.len()) {
                _ if bytes.is_empty() => break,
                Fate::Pass => to.write_all(&bytes),
                Fate::Twice => to.write_all(&bytes).and_then(|()| to.write_all(&bytes)),
                Fate::Cut(most) => {
                    let _ = to.write_all(&bytes[..most]).and_then(|()| to.shutdown(Shutdown::Both));
                    break;
                }
            };
            if sent.is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Longer than any delay of a machine: what takes longer hangs.
    const HANGS: Duration = Duration::from_secs(600);

    /// An echo server that closes when its client does.
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
        let gone = Port::reserve().unwrap();
        let relay = Relay::start(gone.address(), Duration::from_millis(1)).unwrap();
        let mut stream = TcpStream::connect(relay.address).unwrap();
        let mut received = Vec::new();
        // A close or a reset: nothing came either way.
        let _ = stream.read_to_end(&mut received);
        assert!(received.is_empty());
    }

    fn exchange(stream: &mut TcpStream, text: &[u8], want: usize) -> std::io::Result<Vec<u8>> {
        stream.write_all(text)?;
        let mut got = vec![0; want];
        stream.read_exact(&mut got).map(|()| got)
    }

    #[test]
    fn a_relay_with_faults_does_each_of_them_and_no_harm_before_and_after() {
        let trouble = Trouble::start(echo()).unwrap();
        let connect = || {
            let stream = TcpStream::connect(trouble.address).unwrap();
            stream.set_read_timeout(Some(HANGS)).unwrap();
            stream
        };
        let mut stream = connect();
        assert_eq!(exchange(&mut stream, b"one", 3).unwrap(), b"one");
        trouble.set(Harm::Slow(30));
        let began = Instant::now();
        assert_eq!(exchange(&mut stream, b"two", 3).unwrap(), b"two");
        assert!(began.elapsed() >= Duration::from_millis(30));
        // The first piece in each group is harmed.
        trouble.set(Harm::Twice);
        assert_eq!(exchange(&mut stream, b"three", 10).unwrap(), b"threethree");
        assert_eq!(exchange(&mut stream, b"four", 4).unwrap(), b"four");
        let mut other = connect();
        assert_eq!(exchange(&mut other, b"five", 4).unwrap(), b"five");
        trouble.set(Harm::Refuse);
        assert!(exchange(&mut stream, b"six", 3).is_err() && TcpStream::connect(trouble.address).is_err());
        trouble.set(Harm::Cut);
        let deadline = Instant::now() + HANGS;
        let mut stream = loop {
            match TcpStream::connect(trouble.address) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > deadline => panic!("{error}"),
                Err(_) => thread::sleep(BLINK),
            }
        };
        let mut got = Vec::new();
        for _ in 0..=OFTEN {
            if stream.write_all(b"seven!").is_err() {
                break;
            }
            let mut piece = [0; 6];
            match stream.read(&mut piece) {
                Ok(0) | Err(_) => break,
                Ok(received) => got.extend_from_slice(&piece[..received]),
            }
        }
        assert_eq!(got.len() % 6, 3, "{got:?}");
        assert_eq!(trouble.taken(), 3);
        trouble.set(Harm::None);
        assert_eq!(exchange(&mut connect(), b"eight", 5).unwrap(), b"eight");
    }
}
