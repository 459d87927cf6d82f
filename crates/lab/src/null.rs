//! A server that answers fixed bytes: the least cost of any server, and the highest rate of the generator.
//!
//! One poll loop, one 64 KiB receive buffer, one send per receive. Of a load of one verb it parses nothing: all requests have the
//! same length, so counting bytes counts requests, and every reply is the same. Its cost is the kernel's, and that of wake-ups.
//! Of a mix it looks at one or two bytes of each request, which say of what kind it is, and so how long, and copies the kind's
//! reply (`mixed`).
//!
//! [`Null::converse`] answers clients that ask in turns, such as read, write, read, write: as many requests as there are turns,
//! each of its own length and with its own reply.

mod kinds;
mod mixed;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::{env, fs, process, thread};

use larder_eventloop::poll::{Events, Interest, Poller};
use larder_eventloop::socket::{Address, Listener, Socket};

use crate::error::Error;
use crate::generator::prefer;
use crate::route::SocketKind;
use crate::workload::Workload;
pub use kinds::Kinds;

const RECEIVE_BYTES: usize = 64 * 1024;
/// Replies lie ready one after the other in a block of about this size, at least one of them.
const BLOCK_BYTES: usize = 1 << 20;
const LISTENER: u64 = u64::MAX;
/// The number of the next Unix socket.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The requests of a kind, and their replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Canned {
    /// Length of every request.
    pub request_bytes: usize,
    /// The reply to each.
    pub reply: Vec<u8>,
}

impl Canned {
    /// The replies that a real server would give to the workload's first key.
    pub fn of(workload: &Workload) -> Canned {
        let (request, reply) = workload.sample();
        Canned { request_bytes: request.len(), reply }
    }
}

/// What a null server replies to requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answers {
    /// All requests are of one kind.
    One(Canned),
    /// Requests are of several kinds.
    Several(Kinds),
}

impl Answers {
    /// The replies to a workload; `None` if requests or replies of one of its verbs have several lengths.
    pub fn of(workload: &Workload) -> Option<Answers> {
        let kinds = Kinds::of(workload)?;
        Some(kinds.only().cloned().map_or(Answers::Several(kinds), Answers::One))
    }
}

impl From<Canned> for Answers {
    fn from(canned: Canned) -> Answers {
        Answers::One(canned)
    }
}

#[derive(Debug)]
struct Connection {
    socket: Socket,
    /// Received bytes of an incomplete request.
    partial: usize,
    /// Bytes of replies that are still to be sent.
    owed: usize,
    /// The place of the next byte to send in a reply.
    phase: usize,
    waits_to_send: bool,
}

/// A null server in a thread of this process. The file of its Unix socket goes with the value: connections stay.
#[derive(Debug)]
pub struct Running(Address);

impl Running {
    /// Its address.
    pub fn address(&self) -> &Address {
        &self.0
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

/// A null server that listens.
#[derive(Debug)]
pub struct Null {
    listener: Listener,
    answers: Answers,
}

impl Null {
    /// Listens on `address`; clients can connect from now on.
    ///
    /// # Errors
    /// When it cannot listen there.
    pub fn bind(address: &Address, answers: impl Into<Answers>) -> io::Result<Null> {
        Ok(Null { listener: Listener::bind(address, 1024)?, answers: answers.into() })
    }

    /// Starts a null server for `workload` in a thread of this process, pinned to `core`, which serves until the process ends. It
    /// has this kind of socket.
    ///
    /// # Errors
    /// [`Error::System`] when it cannot listen.
    ///
    /// # Panics
    /// If there are no [`Answers`] to the workload.
    pub fn in_background(
        workload: &Workload,
        core: Option<usize>,
        socket: SocketKind,
    ) -> Result<Running, Error> {
        let answers = Answers::of(workload).expect("a workload that a null server can answer");
        Null::background(answers, core, socket, Null::serve)
    }

    /// As [`Null::in_background`], with one reply to every request.
    ///
    /// # Errors
    /// [`Error::System`] when it cannot listen.
    pub fn answering_in_background(
        canned: Canned,
        core: Option<usize>,
        socket: SocketKind,
    ) -> Result<Running, Error> {
        Null::background(canned.into(), core, socket, Null::serve)
    }

    /// As [`Null::in_background`], for clients that ask in `turns`.
    ///
    /// # Errors
    /// [`Error::System`] when it cannot listen.
    pub fn conversing_in_background(
        turns: Vec<Canned>,
        core: Option<usize>,
        socket: SocketKind,
    ) -> Result<Running, Error> {
        Null::background(turns[0].clone().into(), core, socket, move |null| null.converse(&turns))
    }

    fn background(
        answers: Answers,
        core: Option<usize>,
        socket: SocketKind,
        serve: impl FnOnce(Null) -> io::Result<Infallible> + Send + 'static,
    ) -> Result<Running, Error> {
        let listen = || {
            let null = Null::bind_anywhere(socket, answers)?;
            let address = null.address()?;
            Ok((null, address))
        };
        let (null, address) = listen().map_err(|error| Error::System("the null server", error))?;
        thread::spawn(move || {
            // A server that may not be pinned is only slower, which does no harm to a ceiling.
            let _ = prefer(core);
            serve(null)
        });
        Ok(Running(address))
    }

    /// Listens on a free port of 127.0.0.1, or on a new Unix socket among temporary files.
    fn bind_anywhere(socket: SocketKind, answers: Answers) -> io::Result<Null> {
        if socket == SocketKind::Tcp {
            return Null::bind(&Address::Tcp(([127, 0, 0, 1], 0).into()), answers);
        }
        loop {
            let number = NEXT.fetch_add(1, Relaxed);
            let path = env::temp_dir().join(format!("larder-null-{}-{number}", process::id()));
            match Null::bind(&Address::Unix(path), answers.clone()) {
                // A process of the same number that was killed has left it.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                bound => return bound,
            }
        }
    }

    /// Its address.
    ///
    /// # Errors
    /// The error of getsockname(2); none in correct use.
    pub fn address(&self) -> io::Result<Address> {
        self.listener.local_address()
    }

    /// Serves for ever.
    ///
    /// # Errors
    /// When it cannot wait; a connection's error only ends that connection.
    pub fn serve(self) -> io::Result<Infallible> {
        match self.answers {
            Answers::One(canned) => serve_one(&self.listener, &canned),
            Answers::Several(kinds) => mixed::serve(&self.listener, &kinds),
        }
    }

    /// Serves clients that ask one request at a time, in the turns of `turns`, for ever.
    ///
    /// # Errors
    /// As [`Null::serve`].
    pub fn converse(self, turns: &[Canned]) -> io::Result<Infallible> {
        let mut buffer = vec![0; RECEIVE_BYTES];
        let begin = |socket: Socket| (socket, 0_usize, 0_usize);
        each_connection(
            &self.listener,
            begin,
            |(socket, turn, partial): &mut (Socket, usize, usize), _, _| {
                let received = socket.recv(&mut buffer)?;
                if received == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                *partial += received;
                if *partial >= turns[*turn].request_bytes {
                    *partial = 0;
                    let reply = &turns[*turn].reply;
                    // A reply is far smaller than a socket's buffer: it is sent at once, or the client is gone.
                    if socket.send(reply)? < reply.len() {
                        return Err(io::ErrorKind::WriteZero.into());
                    }
                    *turn = (*turn + 1) % turns.len();
                }
                Ok(())
            },
        )
    }
}

/// Serves for ever: accepts connections, which `begin` makes of their sockets, and takes a `step` on each that is ready. An error
/// of a step ends its connection.
fn each_connection<C>(
    listener: &Listener,
    begin: impl Fn(Socket) -> C,
    mut step: impl FnMut(&mut C, u64, &Poller) -> io::Result<()>,
) -> io::Result<Infallible> {
    let poller = Poller::new()?;
    poller.add(listener, LISTENER, Interest::Read)?;
    let mut events = Events::with_capacity(1024);
    let mut connections: HashMap<u64, C> = HashMap::new();
    let mut next = 0;
    loop {
        poller.wait(&mut events, None)?;
        for event in events.iter() {
            if event.token == LISTENER {
                if let Ok(socket) = listener.accept() {
                    let _ = socket.set_nodelay(true);
                    poller.add(&socket, next, Interest::Read)?;
                    connections.insert(next, begin(socket));
                    next += 1;
                }
                continue;
            }
            let Some(connection) = connections.get_mut(&event.token) else { continue };
            if step(connection, event.token, &poller).is_err() {
                connections.remove(&event.token);
            }
        }
    }
}

/// Serves requests of one kind.
fn serve_one(listener: &Listener, canned: &Canned) -> io::Result<Infallible> {
    let mut buffer = vec![0; RECEIVE_BYTES];
    let block = canned.reply.repeat((BLOCK_BYTES / canned.reply.len()).max(1));
    each_connection(listener, Connection::new, |connection: &mut Connection, token, poller| {
        step(connection, token, poller, &mut buffer, canned, &block)
    })
}

impl Connection {
    fn new(socket: Socket) -> Connection {
        Connection { socket, partial: 0, owed: 0, phase: 0, waits_to_send: false }
    }
}

/// Receives the bytes that have come, and sends the replies.
fn step(
    connection: &mut Connection,
    token: u64,
    poller: &Poller,
    buffer: &mut [u8],
    canned: &Canned,
    block: &[u8],
) -> io::Result<()> {
    if connection.owed == 0 {
        match connection.socket.recv(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(received) => {
                connection.partial += received;
                connection.owed = connection.partial / canned.request_bytes * canned.reply.len();
                connection.partial %= canned.request_bytes;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    while connection.owed > 0 {
        let end = block.len().min(connection.phase + connection.owed);
        match connection.socket.send(&block[connection.phase..end]) {
            Ok(sent) => {
                connection.owed -= sent;
                connection.phase = (connection.phase + sent) % canned.reply.len();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    let waits = connection.owed > 0;
    if waits != connection.waits_to_send {
        poller.modify(&connection.socket, token, if waits { Interest::Write } else { Interest::Read })?;
        connection.waits_to_send = waits;
    }
    Ok(())
}
