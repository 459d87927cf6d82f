//! Stand-ins for tests: a script under a program's name, a proxy that changes what passes, and processes that
//! occupy a core.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::{fs, thread};

use rustix::process::{Pid, setpriority_process};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Writes a program `name` into `folder`: a script of the shell.
///
/// # Panics
/// If it cannot be written.
pub fn script(folder: &Path, name: &str, text: &str) {
    fs::create_dir_all(folder).expect("a folder");
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("a script");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a script that may run");
}

/// What a proxy does with a received piece of bytes.
pub type Change = Arc<dyn Fn(&mut Vec<u8>) + Send + Sync>;

/// Passes everything on as it is.
pub fn unchanged() -> Change {
    Arc::new(|_| {})
}

/// Starts a proxy in front of `server`, which runs until the test process ends; returns its address.
///
/// # Panics
/// If it cannot listen.
pub fn proxy(server: SocketAddr, requests: Change, replies: Change) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(upstream) = TcpStream::connect(server) else { return };
            let other = (client.try_clone().expect("a socket"), upstream.try_clone().expect("a socket"));
            let (requests, replies) = (requests.clone(), replies.clone());
            thread::spawn(move || pass(other.0, other.1, &requests));
            thread::spawn(move || pass(upstream, client, &replies));
        }
    });
    address
}

/// Chooses the server for a connection, by its number from 0 on and the first bytes that it sends.
pub type Choose = Arc<dyn Fn(usize, &[u8]) -> SocketAddr + Send + Sync>;

/// Starts a proxy that connects each client to one of several servers, until the test process ends; returns
/// its address.
///
/// # Panics
/// If it cannot listen.
pub fn switch(choose: Choose) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for (number, mut client) in listener.incoming().map_while(Result::ok).enumerate() {
            let choose = choose.clone();
            thread::spawn(move || -> std::io::Result<()> {
                let mut first = [0; 64 * 1024];
                let received = client.read(&mut first)?;
                let mut upstream = TcpStream::connect(choose(number, &first[..received]))?;
                upstream.set_nodelay(true)?;
                upstream.write_all(&first[..received])?;
                let (client_too, upstream_too) = (client.try_clone()?, upstream.try_clone()?);
                thread::spawn(move || pass(client_too, upstream_too, &unchanged()));
                pass(upstream, client, &unchanged());
                Ok(())
            });
        }
    });
    address
}

fn pass(mut from: TcpStream, mut to: TcpStream, change: &Change) {
    let _ = to.set_nodelay(true);
    let mut buffer = [0; 64 * 1024];
    while let Ok(received @ 1..) = from.read(&mut buffer) {
        let mut bytes = buffer[..received].to_vec();
        change(&mut bytes);
        if to.write_all(&bytes).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// Processes that do nothing but occupy a core. They end when this is dropped.
#[derive(Debug)]
pub struct Burners(Vec<Child>);

impl Burners {
    /// Starts `count` of them on `core`, with the highest priority that is permitted.
    ///
    /// # Panics
    /// If they cannot be started or pinned.
    pub fn on(core: usize, count: usize) -> Burners {
        let start = |_| {
            let mut command = Command::new("sh");
            let command = command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            let child = command.spawn().expect("sh is everywhere");
            let pid = Pid::from_raw(child.id() as i32);
            let mut set = CpuSet::new();
            set.set(core);
            sched_setaffinity(pid, &set).expect("the core is ours to use");
            // If this is not permitted, the lab cannot raise the priority of its servers either.
            let _ = setpriority_process(pid, -20);
            child
        };
        Burners((0..count).map(start).collect())
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
