//! The first thread: takes connections in, hands each to the worker that has the fewest, and hears
//! the signals.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use larder_eventloop::poll::{Events, Interest, Poller};
use larder_eventloop::socket::Socket;

use crate::hub::{Hub, Message};
use crate::listen::Bound;
use crate::worker::fewest;

/// What a connection above `-c` hears, as from memcached.
const REFUSAL: &[u8] = b"ERROR Too many open connections\r\n";

/// And what a Redis client hears.
const REDIS_REFUSAL: &[u8] = b"-ERR max number of clients reached\r\n";

/// Connections taken from one listener before others have their turn.
const ACCEPTS_PER_EVENT: usize = 64;

/// How long accepting pauses when the system has no descriptor left and no connection ends.
const PAUSE: Duration = Duration::from_millis(100);

const WAKER: u64 = u64::MAX;
const SIGNAL: u64 = u64::MAX - 1;

/// Accepts until a signal or a client stops the server.
///
/// # Errors
/// When the system refuses to watch the listeners.
pub fn run(hub: &Arc<Hub>, bound: &[Bound], signals: &UnixStream) -> io::Result<()> {
    let poller = Poller::new()?;
    poller.add(&hub.waker, WAKER, Interest::Read)?;
    poller.add(signals, SIGNAL, Interest::Read)?;
    for (index, Bound { listener, .. }) in bound.iter().enumerate() {
        poller.add(listener, index as u64, Interest::Read)?;
    }
    let mut events = Events::with_capacity(bound.len() + 2);
    let mut paused: Option<Instant> = None;
    loop {
        poller.wait(&mut events, paused.map(|_| PAUSE))?;
        let mut pause = false;
        for event in events.iter() {
            match event.token {
                WAKER => {
                    hub.waker.drain();
                }
                SIGNAL => return Ok(()),
                listener => pause |= !accept(hub, bound, listener as usize),
            }
        }
        if hub.stop.load(SeqCst) {
            return Ok(());
        }
        if pause && paused.is_none() {
            paused = Some(Instant::now());
            hub.tally.paused.store(true, SeqCst);
            hub.tally.pauses.fetch_add(1, Relaxed);
            watch(&poller, bound, Interest::None)?;
        }
        // Counted after the pause was announced: a connection that ended in between is seen here.
        if let Some(since) = paused
            && hub.connections() < hub.config.connections_max
        {
            paused = None;
            hub.tally.paused.store(false, SeqCst);
            hub.tally.paused_us.fetch_add(since.elapsed().as_micros() as u64, Relaxed);
            watch(&poller, bound, Interest::Read)?;
        }
    }
}

fn watch(poller: &Poller, bound: &[Bound], interest: Interest) -> io::Result<()> {
    bound.iter().enumerate().try_for_each(|(index, at)| poller.modify(&at.listener, index as u64, interest))
}

/// Takes waiting connections in; false when accepting has to pause.
fn accept(hub: &Hub, bound: &[Bound], listener: usize) -> bool {
    for _ in 0..ACCEPTS_PER_EVENT {
        let full = hub.connections() >= hub.config.connections_max;
        if full && !hub.config.refuse_fast {
            return false;
        }
        let socket = match bound[listener].listener.accept() {
            Ok(socket) => socket,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                return false;
            }
        };
        if full {
            refuse(hub, &socket, listener);
        } else {
            hand_over(hub, socket, listener);
        }
    }
    true
}

fn refuse(hub: &Hub, socket: &Socket, listener: usize) {
    hub.tally.rejected.fetch_add(1, Relaxed);
    let _ = socket.send(if listener >= hub.redis_from { REDIS_REFUSAL } else { REFUSAL });
    // Bytes that nobody took would have the close reset the connection, and the refusal be lost.
    let _ = socket.recv(&mut [0; 4096]);
    tracing::info!("connection refused: -c is reached");
}

fn hand_over(hub: &Hub, socket: Socket, listener: usize) {
    hub.tally.accepted.fetch_add(1, Relaxed);
    let worker = fewest(hub);
    let desk = &hub.desks[worker];
    desk.connections.fetch_add(1, SeqCst);
    let mut message = Message::Connection { socket, listener };
    while let Err(back) = desk.mailbox.send(message) {
        message = back;
        std::thread::sleep(Duration::from_millis(1));
    }
}
