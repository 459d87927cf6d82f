//! A server for programs that the documents show.

use crate::run::{Outcome, root, target};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(600);

/// The server that tests start.
pub fn larder() -> PathBuf {
    root().join(target()).join("debug/larder")
}

/// A server that ends when this is dropped.
pub struct Server {
    child: Child,
    /// Where it listens for memcached's text.
    pub address: String,
}

impl Server {
    /// Starts a server for memcached's text alone.
    pub fn start() -> Outcome<Server> {
        let failed = |error: std::io::Error| format!("a server: {error}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        drop(listener);
        let mut larder = Command::new(larder());
        larder.args([
            "serve",
            "-l",
            "127.0.0.1",
            "--redis-port",
            "0",
            "--http-port",
            "0",
            "--threads",
            "1",
            "-p",
        ]);
        larder.arg(address.port().to_string()).stdout(Stdio::null());
        let server = Server { child: larder.spawn().map_err(failed)?, address: address.to_string() };
        let until = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            if Instant::now() > until {
                return Err(format!("the server does not listen on {address}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
