//! Waiting for sockets: a level-triggered epoll set and an eventfd that wakes it from elsewhere.
//!
//! Each descriptor is registered with a `u64` token of the caller's choice; [`Poller::wait`] fills
//! an [`Events`] that the caller keeps, so that waiting allocates nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

/// What a registered descriptor is waited for. Hang-up and error are always reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Only hang-up and error.
    None,
    /// Hang-up, error, and the end of the peer's stream, which is reported as a hang-up.
    End,
    /// Bytes (or a connection) to take.
    Read,
    /// Room to send.
    Write,
    /// Both.
    Both,
}

impl Interest {
    fn flags(self) -> epoll::EventFlags {
        match self {
            Interest::None => epoll::EventFlags::empty(),
            Interest::End => epoll::EventFlags::RDHUP,
            Interest::Read => epoll::EventFlags::IN,
            Interest::Write => epoll::EventFlags::OUT,
            Interest::Both => epoll::EventFlags::IN | epoll::EventFlags::OUT,
        }
    }
}

/// One report of [`Poller::wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token the descriptor was registered with.
    pub token: u64,
    /// A receive or accept will not block (end of stream included).
    pub readable: bool,
    /// A send will not block.
    pub writable: bool,
    /// The peer is gone in both directions, or the socket has failed. With [`Interest::End`] also: the peer sends no more.
    pub hangup: bool,
}

/// The place where [`Poller::wait`] reports; reused from wait to wait.
pub struct Events {
    list: Vec<epoll::Event>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Events {
    /// Room for `events_max` reports per wait; what does not fit is reported by the next wait.
    ///
    /// # Panics
    /// If `events_max` is 0.
    pub fn with_capacity(events_max: usize) -> Events {
        assert!(events_max > 0, "a wait must be able to report something");
        Events { list: Vec::with_capacity(events_max) }
    }

    /// How many reports the last wait left.
    #[inline]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The last wait left nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Report number `index` of the last wait.
    ///
    /// # Panics
    /// If there is no such report.
    #[inline]
    pub fn at(&self, index: usize) -> Event {
        decode(&self.list[index])
    }

    /// The reports of the last wait.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        self.list.iter().map(decode)
    }
}

#[inline]
fn decode(event: &epoll::Event) -> Event {
    let flags = event.flags;
    let ends = epoll::EventFlags::HUP | epoll::EventFlags::ERR | epoll::EventFlags::RDHUP;
    let hangup = flags.intersects(ends);
    Event {
        token: event.data.u64(),
        readable: flags.contains(epoll::EventFlags::IN),
        writable: flags.contains(epoll::EventFlags::OUT),
        hangup,
    }
}

/// A set of descriptors to wait for.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// An empty set.
    ///
    /// # Errors
    /// What epoll_create1(2) says (too many open files).
    pub fn new() -> io::Result<Poller> {
        Ok(Poller { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Adds a descriptor. It leaves the set by [`Poller::delete`] or when it is closed.
    ///
    /// # Errors
    /// What epoll_ctl(2) says (already there, out of memory).
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), interest.flags())?)
    }

    /// Changes what a descriptor in the set is waited for, and its token.
    ///
    /// # Errors
    /// What epoll_ctl(2) says (not in the set).
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token), interest.flags())?)
    }

    /// Takes a descriptor out.
    ///
    /// # Errors
    /// What epoll_ctl(2) says (not in the set).
    pub fn delete(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits until something is ready or `timeout` has passed (`None`: for ever; zero: not at all),
    /// rounded up to a millisecond. An interrupting signal ends the wait with no reports.
    ///
    /// # Errors
    /// What epoll_wait(2) says; none in correct use.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        events.list.clear();
        let timeout = timeout.map(|wait| {
            // With whole milliseconds the plain epoll_pwait is enough.
            let ms = wait.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i64;
            Timespec { tv_sec: ms / 1000, tv_nsec: ms % 1000 * 1_000_000 }
        });
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events.list), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Wakes a [`Poller`] from another thread: add it with [`Interest::Read`] and [`Waker::drain`] it
/// when its token is reported.
#[derive(Debug)]
pub struct Waker {
    eventfd: OwnedFd,
}

impl Waker {
    /// A waker that has not fired.
    ///
    /// # Errors
    /// What eventfd(2) says (too many open files).
    pub fn new() -> io::Result<Waker> {
        Ok(Waker { eventfd: eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)? })
    }

    /// Fires. Any number of times before a drain counts once.
    pub fn wake(&self) {
        // A full counter (EAGAIN) means that it has fired already, which is all that is needed.
        let _ = rustix::io::write(&self.eventfd, &1u64.to_ne_bytes());
    }

    /// Resets the waker; true if it had fired.
    pub fn drain(&self) -> bool {
        let mut count = [0u8; 8];
        matches!(rustix::io::read(&self.eventfd, &mut count), Ok(8))
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_woken_poller_reports_the_wakers_token_until_it_is_drained() {
        let poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        let mut events = Events::with_capacity(4);
        poller.add(&waker, 7, Interest::Read).unwrap();
        poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty());
        waker.wake();
        waker.wake();
        for _ in 0..2 {
            poller.wait(&mut events, None).unwrap();
            assert_eq!(events.len(), 1);
            assert_eq!(events.at(0), Event { token: 7, readable: true, writable: false, hangup: false });
        }
        assert!(waker.drain());
        assert!(!waker.drain());
        poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty());
    }

    #[test]
    fn modify_changes_token_and_interest() {
        let poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        let mut events = Events::with_capacity(4);
        waker.wake();
        poller.add(&waker, 1, Interest::None).unwrap();
        poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty());
        poller.modify(&waker, 2, Interest::Both).unwrap();
        poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert_eq!(events.iter().map(|e| e.token).collect::<Vec<_>>(), [2]);
        poller.delete(&waker).unwrap();
        poller.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert!(events.is_empty());
    }
}
