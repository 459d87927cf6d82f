//! A relay between clients and a server, which disturbs what the server sends: it delays it, cuts it short,
//! or refuses connections.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A relay that accepts connections until it is dropped.
pub struct Relay {
    address: SocketAddr,
    harm: Arc<Harm>,
    accepts: Option<JoinHandle<()>>,
}

/// How connections are disturbed.
#[derive(Default)]
struct Harm {
    /// Each part that the server sends is delayed by this time.
    hold_ms: AtomicU64,
    /// A connection ends after the server has sent this many bytes; 0: never.
    cut_bytes: AtomicUsize,
    /// New connections are closed at once.
    refuses: AtomicBool,
    /// How often a connection was disturbed.
    count: AtomicU64,
    is_over: AtomicBool,
    /// Both sockets of each connection so far.
    open: Mutex<Vec<TcpStream>>,
}

impl Relay {
    /// A relay to this server, which disturbs nothing yet.
    pub fn new(server: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let (address, harm) = (listener.local_addr().expect("it is bound"), Arc::new(Harm::default()));
        let own = Arc::clone(&harm);
        let accepts = thread::spawn(move || own.accept(&listener, server));
        Relay { address, harm, accepts: Some(accepts) }
    }

    /// The address to which clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Delays each part that the server sends by `time`.
    pub fn hold(&self, time: Duration) {
        self.harm.hold_ms.store(time.as_millis() as u64, Ordering::Relaxed);
    }

    /// Ends each connection after the server has sent this many bytes on it.
    pub fn cut(&self, bytes: usize) {
        self.harm.cut_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Ends all connections, and closes new ones at once.
    pub fn refuse(&self) {
        self.harm.refuses.store(true, Ordering::Relaxed);
        self.harm.end_all();
    }

    /// Disturbs nothing any more.
    pub fn heal(&self) {
        self.hold(Duration::ZERO);
        self.cut(0);
        self.harm.refuses.store(false, Ordering::Relaxed);
    }

    /// How often a connection was disturbed.
    pub fn harmed(&self) -> u64 {
        self.harm.count.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.harm.is_over.store(true, Ordering::Relaxed);
        // This wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
        if let Some(accepts) = self.accepts.take() {
            // A panic of that thread has already failed the test.
            let _ = accepts.join();
        }
        self.harm.end_all();
    }
}

impl Harm {
    fn accept(self: &Arc<Harm>, listener: &TcpListener, server: SocketAddr) {
        for client in listener.incoming().map_while(Result::ok) {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            if self.refuses.load(Ordering::Relaxed) {
                self.count.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            let server = TcpStream::connect(server).expect("it listens");
            for stream in [&client, &server] {
                stream.set_nodelay(true).expect("an option");
            }
            let copy = |stream: &TcpStream| stream.try_clone().expect("the same");
            self.open.lock().expect("not poisoned").extend([copy(&client), copy(&server)]);
            let (there, back) = ((copy(&client), copy(&server)), (server, client));
            thread::spawn(move || pass(there.0, there.1, None));
            let harm = Arc::clone(self);
            thread::spawn(move || pass(back.0, back.1, Some(&harm)));
        }
    }

    fn end_all(&self) {
        for stream in self.open.lock().expect("not poisoned").drain(..) {
            // The connection may have ended by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// How many of the next `bytes` bytes are passed on, when `passed` bytes of the connection were passed
    /// before.
    fn passes(&self, passed: usize, bytes: usize) -> usize {
        let hold_ms = self.hold_ms.load(Ordering::Relaxed);
        if hold_ms > 0 {
            self.count.fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(hold_ms));
        }
        let cut_bytes = self.cut_bytes.load(Ordering::Relaxed);
        if cut_bytes == 0 || passed + bytes <= cut_bytes {
            return bytes;
        }
        self.count.fetch_add(1, Ordering::Relaxed);
        cut_bytes.saturating_sub(passed)
    }
}

/// Copies from one socket to the other until one of them ends, or the relay cuts the connection.
fn pass(mut from: TcpStream, mut to: TcpStream, harm: Option<&Harm>) {
    let (mut buffer, mut passed) = ([0; 4096], 0);
    while let Ok(bytes @ 1..) = from.read(&mut buffer) {
        let part = harm.map_or(bytes, |harm| harm.passes(passed, bytes));
        if to.write_all(&buffer[..part]).is_err() || part < bytes {
            break;
        }
        passed += bytes;
    }
    for end in [&from, &to] {
        // The other direction may have ended it already.
        let _ = end.shutdown(Shutdown::Both);
    }
}
