//! Discovery of servers: the source of their list, and the thread that asks it.

use crate::error::Error;
use crate::server::Server;
use std::fmt::{self, Debug, Formatter};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// A source of the list of servers: a function that a thread of the client calls again and again.
#[derive(Clone)]
pub struct Discovery {
    ask: Arc<dyn Fn() -> io::Result<Vec<Server>> + Send + Sync>,
    every: Duration,
}

impl Debug for Discovery {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discovery").field("every", &self.every).finish_non_exhaustive()
    }
}

/// The thread that asks the source; it ends when this is dropped.
pub(crate) type Watch = Sender<()>;

impl Discovery {
    /// Calls this function once in each interval. If it fails, the servers stay as they are.
    pub fn new(
        every: Duration,
        ask: impl Fn() -> io::Result<Vec<Server>> + Send + Sync + 'static,
    ) -> Discovery {
        // Without a pause the thread would do nothing else.
        Discovery { ask: Arc::new(ask), every: every.max(Duration::from_millis(1)) }
    }

    /// The addresses of a name, each with this port, looked up every 30 s. Placement hashes the addresses.
    pub fn dns(host: &str, port: u16) -> Discovery {
        let host = host.to_owned();
        Discovery::new(Duration::from_secs(30), move || looked_up(&host, port))
    }

    /// Looks the name up once in each interval.
    #[must_use]
    pub fn every(self, every: Duration) -> Discovery {
        Discovery { every: every.max(Duration::from_millis(1)), ..self }
    }

    /// Asks the source once.
    ///
    /// # Errors
    /// The error of the source.
    pub(crate) fn ask(&self) -> io::Result<Vec<Server>> {
        (self.ask)()
    }

    /// Starts the thread. It calls `change` with each list that differs from the one before, until `change` returns that the
    /// client is closed. A list that `change` cannot use leaves the servers as they are.
    ///
    /// # Errors
    /// No thread could be started.
    pub(crate) fn watch(
        &self,
        before: &[Server],
        change: impl Fn(Vec<Server>) -> Result<(), Error> + Send + 'static,
    ) -> io::Result<Watch> {
        let (watch, watched) = channel::<()>();
        let (discovery, mut before) = (self.clone(), before.to_vec());
        let asks = move || {
            while watched.recv_timeout(discovery.every) == Err(RecvTimeoutError::Timeout) {
                let Ok(servers) = discovery.ask() else { continue };
                if servers == before {
                    continue;
                }
                match change(servers.clone()) {
                    Ok(()) => before = servers,
                    Err(Error::Closed(_)) => return,
                    Err(_) => {}
                }
            }
        };
        thread::Builder::new().name("larder-servers".to_owned()).spawn(asks)?;
        Ok(watch)
    }
}

/// The addresses of a name, sorted: placement may depend on the order, and the order of an answer is arbitrary.
fn looked_up(host: &str, port: u16) -> io::Result<Vec<Server>> {
    let mut addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    if addresses.is_empty() {
        return Err(io::Error::new(ErrorKind::NotFound, format!("{host} has no address")));
    }
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses.iter().map(|address| Server::from(address.to_string().as_str())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_name_is_its_addresses_in_their_own_order() {
        let servers = looked_up("127.0.0.1", 11211).expect("an address");
        assert_eq!(servers, [Server::from("127.0.0.1:11211")]);
        assert!(looked_up("no such name.invalid", 1).is_err());
    }

    #[test]
    fn only_changes_are_told_until_the_watch_ends() {
        let (told, asked) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(0)));
        let count = Arc::clone(&asked);
        let discovery = Discovery::new(Duration::from_millis(1), move || {
            let mut count = count.lock().expect("not poisoned");
            *count += 1;
            match *count {
                // The source fails, returns the same list, and then another.
                2 | 4 => Err(ErrorKind::TimedOut.into()),
                1 | 3 | 5 => Ok(vec![Server::from("a:1")]),
                _ => Ok(vec![Server::from("b:1")]),
            }
        });
        let tells = Arc::clone(&told);
        let watch = discovery.watch(&[Server::from("a:1")], move |servers| {
            tells.lock().expect("not poisoned").push(servers);
            Ok(())
        });
        while *asked.lock().expect("not poisoned") < 9 {
            thread::sleep(Duration::from_millis(1));
        }
        drop(watch);
        assert_eq!(*told.lock().expect("not poisoned"), [[Server::from("b:1")]]);
    }
}
