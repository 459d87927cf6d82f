//! The threads of a server that did the work, and the connections of each event loop, from /proc.
//!
//! A server's figures are those of the threads that it used. `/proc/<pid>/task/*/schedstat` has the running time of each;
//! `/proc/<pid>/fdinfo/<epoll>` lists the descriptors of each event loop, and `/proc/<pid>/net/tcp` shows which of these sockets
//! are established connections. With one event loop per thread, as in memcached, KeyDB and Larder, the second list is the
//! connections of each thread.

use std::collections::HashSet;
use std::fs;
use std::time::Duration;

use larder_eventloop::cpu;

use crate::error::Error;
use crate::starvation::{Waited, foreign_wait};
use crate::usage::{self, ThreadUsage};

/// A thread with less than this share of the busiest one's time counts as idle.
const IDLE_SHARE: f64 = 0.02;

/// CPU time of each thread of a process at one moment.
#[derive(Clone, Debug)]
pub struct Threads(Vec<ThreadUsage>);

/// The threads that worked between two moments.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// CPU time of each thread, busiest first.
    pub threads: Vec<(String, Duration)>,
    /// Connections of each event loop, most first; empty where the process may not be looked into.
    pub connections: Vec<usize>,
    /// The longest time in which one of its threads waited for a core because of other programs.
    pub waited: Duration,
}

impl Threads {
    /// Reads the times.
    ///
    /// # Errors
    /// When there is no such process.
    pub fn of(pid: u32) -> Result<Threads, Error> {
        usage::threads(pid).map(Threads)
    }

    /// The longest time since then in which a thread waited for a core because of other programs, if the process ran for `run` in
    /// that time, ended threads included.
    ///
    /// # Errors
    /// There is no such process any more.
    pub fn waited(&self, pid: u32, run: Duration) -> Result<Duration, Error> {
        let now = usage::threads(pid)?;
        let before = |tid| self.0.iter().find(|thread| thread.tid == tid).map_or(Duration::ZERO, |t| t.run);
        let living: Duration = now.iter().map(|thread| thread.run.saturating_sub(before(thread.tid))).sum();
        let cores = cpu::core_count(pid).map_err(|error| Error::System("reading a driver's cores", error))?;
        Ok(foreign_wait(&self.0, &now, run.saturating_sub(living), cores))
    }

    /// What each thread did since, and where the connections are now.
    ///
    /// # Errors
    /// When there is no such process any more.
    pub fn placement(&self, pid: u32) -> Result<Placement, Error> {
        let before = |tid| self.0.iter().find(|thread| thread.tid == tid).map_or(Duration::ZERO, |t| t.run);
        let now = usage::threads(pid)?;
        let gone = |error| Error::System("reading a server's cores", error);
        let waited = foreign_wait(&self.0, &now, Duration::ZERO, cpu::core_count(pid).map_err(gone)?);
        let mut threads: Vec<(String, Duration)> = now
            .into_iter()
            .map(|thread| (thread.name, thread.run.saturating_sub(before(thread.tid))))
            .collect();
        threads.sort_by_key(|thread| std::cmp::Reverse(thread.1));
        Ok(Placement { threads, connections: connections_by_loop(pid).unwrap_or_default(), waited })
    }
}

impl Placement {
    /// Shares of `elapsed` in which threads waited for their cores, with the generator's own.
    pub fn waited(placement: Option<&Placement>, elapsed: Duration, generator: f64) -> Waited {
        // The wait is read a little later than the time, and cannot be more than all of it.
        let share = |placement: &Placement| {
            (placement.waited.as_secs_f64() / elapsed.as_secs_f64().max(1e-9)).min(1.0)
        };
        Waited { server: placement.map(share), generator }
    }

    /// How many threads worked. Threads that watch no connections do not count: they run the server's clock or maintain its
    /// items.
    pub fn busy(&self) -> usize {
        let most = self.threads.first().map_or(Duration::ZERO, |thread| thread.1).as_secs_f64();
        let worked = |thread: &&(String, Duration)| most > 0.0 && thread.1.as_secs_f64() >= most * IDLE_SHARE;
        let busy = self.threads.iter().filter(worked).count();
        match self.connections.iter().filter(|&&connections| connections > 0).count() {
            0 => busy,
            serving => busy.min(serving),
        }
    }

    /// The error of a run on a server with `workers` threads that serve connections: some of them had no connections, or did
    /// nothing.
    pub fn complaint(&self, workers: usize) -> Option<String> {
        let busy = self.busy();
        let shown: Vec<String> = self.connections.iter().map(usize::to_string).collect();
        let where_ = match shown.is_empty() {
            true => String::new(),
            false => format!(" (connections per event loop: {})", shown.join(", ")),
        };
        (busy < workers).then(|| format!("{busy} of {workers} threads did all the work{where_}"))
    }
}

/// Established TCP connections watched by each of the process's epoll instances, most first;
/// instances that watch none are among them.
fn connections_by_loop(pid: u32) -> Option<Vec<usize>> {
    let established = established(pid);
    let mut sockets = HashSet::new();
    let mut loops = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten() {
        let (Some(fd), Ok(target)) =
            (number(&entry.file_name().to_string_lossy()), fs::read_link(entry.path()))
        else {
            continue;
        };
        let target = target.to_string_lossy();
        if target == "anon_inode:[eventpoll]" {
            loops.push(fd);
        } else if let Some(inode) = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'))
            && number(inode).is_some_and(|inode| established.contains(&inode))
        {
            sockets.insert(fd);
        }
    }
    let mut counts: Vec<usize> = loops
        .into_iter()
        .filter_map(|fd| fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok())
        .map(|text| watched(&text).filter(|fd| sockets.contains(fd)).count())
        .collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    Some(counts)
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// Descriptors of an epoll instance: `tfd:       12 events:       19 data: …`.
fn watched(fdinfo: &str) -> impl Iterator<Item = u64> + '_ {
    fdinfo.lines().filter_map(|line| number(line.strip_prefix("tfd:")?.split_ascii_whitespace().next()?))
}

/// Inodes of established connections in the process's network: the fourth field is the state, 01, the tenth the inode
/// (proc_net_tcp).
fn established(pid: u32) -> HashSet<u64> {
    let mut inodes = HashSet::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        inodes.extend(text.lines().skip(1).filter_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            if *fields.get(3)? == "01" { number(fields.get(9)?) } else { None }
        }));
    }
    inodes
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use larder_eventloop::poll::{Interest, Poller};
    use larder_eventloop::socket::{Address, Socket};

    use super::*;

    #[test]
    fn connections_are_counted_at_the_loop_that_watches_them() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        let connect = || Socket::connect_timeout(&address, Duration::from_secs(600)).unwrap();
        let sockets: Vec<Socket> = (0..7).map(|_| connect()).collect();
        let _accepted: Vec<TcpStream> = (0..7).map(|_| listener.accept().unwrap().0).collect();
        let (full, empty) = (Poller::new().unwrap(), Poller::new().unwrap());
        for socket in &sockets {
            full.add(socket, 0, Interest::Read).unwrap();
        }
        empty.add(&listener, 0, Interest::Read).unwrap();
        let counts = connections_by_loop(std::process::id()).unwrap();
        assert!(counts.contains(&7) && counts.contains(&0), "{counts:?}");
    }

    #[test]
    fn idle_threads_are_named() {
        let ms = Duration::from_millis;
        let thread = |time| ("worker".to_owned(), time);
        let mut placement = Placement {
            threads: vec![thread(ms(900)), thread(ms(1)), thread(ms(0))],
            connections: vec![16, 0],
            waited: ms(0),
        };
        assert_eq!(placement.busy(), 1);
        let words = placement.complaint(4).unwrap();
        assert_eq!(words, "1 of 4 threads did all the work (connections per event loop: 16, 0)");
        // A thread that runs the clock works as well.
        placement.threads[1] = thread(ms(90));
        assert_eq!(placement.busy(), 1);
        placement.threads = (0..4).map(|_| thread(ms(250))).collect();
        placement.connections = vec![4; 4];
        assert_eq!(placement.complaint(4), None);
        placement.connections = Vec::new();
        assert_eq!(placement.complaint(4), None, "where it may not be looked into");
    }
}
