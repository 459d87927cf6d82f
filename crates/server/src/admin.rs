//! The HTTP listener: metrics, what else a monitor asks, and a page that shows it.
//!
//! A thread of its own, which is no worker: it reads counters that workers write, and takes no lock that a request
//! waits for, but that of the users, for as long as it takes to clone an `Arc` (`AUTH` waits for it). It answers one request at
//! a time and rests thereafter, so that a client that asks without end has a quarter of a core at most. There are few
//! connections; one more takes the place of one of the network that has most.
//!
//! - `http`: heads and answers; `client`: a connection; `channel`: its bytes, plain or by TLS
//! - `backend`: sockets, real ones or those of a simulation
//! - `access`: which requests are answered; `route`: what is where
//! - `reserve`: what connections and answers take of the memory
//! - `page`: what a browser shows it with
//! - `observer`: looks at figures once a second, for `history` and `latency`, which keep `points`; samples of traffic are counted
//!   ten times a second, while there are any
//! - `machine`: looks at the machine, and at what workers have of its processors, every five seconds
//! - `metrics`, `api`, `traffic`, `span_map`: what is told

mod access;
mod api;
mod backend;
mod channel;
mod client;
mod history;
pub mod http;
mod latency;
mod machine;
mod metrics;
mod observer;
#[cfg(test)]
mod on_sim;
mod page;
mod points;
mod reserve;
mod route;
mod span_map;
mod traffic;

use std::cmp::Reverse;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use larder_eventloop::Millis;
use larder_eventloop::poll::{Event, Interest, Waker};
use larder_tls::SCRATCH_BYTES;

pub use backend::{HttpBackend, HttpEvent};
pub use metrics::markdown;

use crate::certificates::Certificates;
use crate::confine::Role;
use crate::hub::Hub;
use crate::listen::HttpHost;
use access::{Access, Admission, Readers, network_of};
use backend::{HttpSockets, Watched};
use channel::Channel;
use client::{Client, Gone, Stream as _, Verdict};
use http::{Answer, Hosts, Status};
use route::Routes;

/// Most connections.
pub const CLIENTS_MAX: usize = 16;

/// Memory counted for the thread: its stack, heads, what an answer is gathered from, and the histories of figures and times.
pub const THREAD_BYTES: u64 = 960 << 10;
const _: () = assert!(history::HISTORY_BYTES <= 256 << 10 && latency::LATENCY_BYTES <= 192 << 10);

/// Most bytes that connections hold, nearly all of them answers that wait to be sent; beyond that, requests are refused.
const ANSWERS_BYTES_MAX: u64 = 2 << 20;

/// After an answer the thread rests so many times as long as it took.
const REST_SHARE: u32 = 3;
/// The longest of these rests.
const REST_MAX: Duration = Duration::from_millis(250);

/// The pause after a connection that could not be taken in.
const PAUSE_MS: Millis = 100;

/// The stack: answers are gathered on the heap.
const STACK_BYTES: usize = 256 << 10;
/// The stack where handshakes are done, as a worker has it.
const TLS_STACK_BYTES: usize = 512 << 10;

/// Memory counted for the thread, with these certificates: TLS has buffers that are the thread's.
pub fn thread_bytes(certificates: &Certificates) -> u64 {
    let for_tls = (SCRATCH_BYTES + TLS_STACK_BYTES - STACK_BYTES) as u64;
    THREAD_BYTES + if certificates.http_speaks_tls() { for_tls } else { 0 }
}

/// The thread, as its starter sees it.
#[derive(Debug)]
pub struct Admin {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

impl Admin {
    /// Starts answering on a listener.
    ///
    /// # Errors
    /// When there can be no thread, or no descriptors for it.
    pub fn start(hub: &Arc<Hub>, listener: TcpListener) -> io::Result<Admin> {
        let (stop, waker) = (Arc::new(AtomicBool::new(false)), Arc::new(Waker::new()?));
        let address = listener.local_addr()?.ip();
        let watched = Watched::new(listener, &waker)?;
        let speaks_tls = hub.certificates.http_speaks_tls();
        // Settings and figures of the start: no client has asked for anything yet.
        let routes = Routes::new(Arc::clone(hub));
        let stops = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("http".into())
            .stack_size(if speaks_tls { TLS_STACK_BYTES } else { STACK_BYTES })
            .spawn(move || {
                let server = HttpServer::of(routes, HttpSockets::new(watched), address);
                server.hub.confinement.enter(Role::Http);
                server.run(&stops);
            })?;
        Ok(Admin { thread, stop, waker })
    }

    /// Ends the thread, and waits for it.
    pub fn end(self) {
        self.stop.store(true, SeqCst);
        self.waker.wake();
        let _ = self.thread.join();
    }
}

/// A connection and what it was counted with.
#[derive(Debug)]
struct Seat<S> {
    client: Client<Channel<S>>,
    from: IpAddr,
    interest: Interest,
    held: u64,
}

/// The listener, its connections, and what answers them.
#[derive(Debug)]
pub struct HttpServer<B: HttpBackend> {
    hub: Arc<Hub>,
    backend: B,
    seats: [Option<Seat<B::Stream>>; CLIENTS_MAX],
    access: Access,
    routes: Routes,
    /// The listener is not watched until then.
    deaf_until: Option<Millis>,
}

impl<B: HttpBackend> HttpServer<B> {
    /// The HTTP server of a hub, without connections. Its listener has this address.
    pub fn new(hub: Arc<Hub>, backend: B, address: IpAddr) -> HttpServer<B> {
        HttpServer::of(Routes::new(hub), backend, address)
    }

    /// The HTTP server that answers from these routes, without connections.
    fn of(routes: Routes, backend: B, address: IpAddr) -> HttpServer<B> {
        let hub = Arc::clone(&routes.hub);
        HttpServer {
            access: access(&hub, address),
            routes,
            hub,
            backend,
            seats: [const { None }; CLIENTS_MAX],
            deaf_until: None,
        }
    }

    fn run(mut self, stop: &AtomicBool) {
        while !stop.load(SeqCst) {
            if let Err(error) = self.turn() {
                tracing::warn!(%error, "the HTTP port has stopped");
                break;
            }
        }
        self.end();
    }

    /// Waits for something to do, and does it.
    ///
    /// # Errors
    /// When the system refuses to wait.
    pub fn turn(&mut self) -> io::Result<()> {
        let now = self.now();
        let timeout = self.due(now).map(|due| Duration::from_millis(due.saturating_sub(now)));
        let mut arrives = false;
        for index in 0..self.backend.wait(timeout)? {
            match self.backend.event(index) {
                HttpEvent::Connections => arrives = true,
                HttpEvent::Woken => {}
                HttpEvent::Client(event) => self.serve(event.token as usize, Some(event)),
            }
        }
        if arrives {
            // Behind the events of clients: one of them may have to make way, and its seat then has another client.
            self.accept();
        }
        self.look_round();
        Ok(())
    }

    /// Closes all connections, and gives back what they held.
    pub fn end(mut self) {
        for seat in 0..CLIENTS_MAX {
            self.close(seat);
        }
        self.routes.reserve.give_back();
    }

    fn now(&self) -> Millis {
        self.hub.clock.elapsed().as_millis() as Millis
    }

    /// When there is something to do even if no event comes.
    fn due(&self, now: Millis) -> Option<Millis> {
        let seats = self.seats.iter().flatten();
        let due = seats.map(|seat| if seat.client.has_more(now) { 0 } else { seat.client.due() });
        due.chain(self.deaf_until).chain([self.routes.observer.due(), self.routes.samples_due()]).min()
    }

    /// Looks at figures, counts samples, and goes on with clients that have more to be answered or whose time is over.
    fn look_round(&mut self) {
        let now = self.now();
        if now >= self.routes.observer.due() {
            self.routes.observe(now);
        }
        if now >= self.routes.samples_due() {
            self.routes.count_samples(now);
        }
        self.routes.reserve.lower(now);
        if self.deaf_until.is_some_and(|until| now >= until) {
            self.deaf_until = None;
            self.listen(true);
        }
        // Of the clients whose passwords wait to be checked, the one that has waited for longest is next.
        let mut order: [usize; CLIENTS_MAX] = std::array::from_fn(|index| index);
        order.sort_by_key(|&index| self.seats[index].as_ref().map(|seat| seat.client.since()));
        for index in order {
            let Some(seat) = &mut self.seats[index] else { continue };
            if seat.client.has_more(now) {
                self.serve(index, None);
            } else if now >= seat.client.due() {
                let over = seat.client.expire(now);
                self.after_turn(index, over);
            }
        }
    }

    fn listen(&mut self, connections: bool) {
        if let Err(error) = self.backend.watch(connections) {
            tracing::warn!(%error, "the HTTP listener cannot be watched");
        }
    }

    fn accept(&mut self) {
        match self.backend.accept() {
            Ok((stream, from)) => {
                if self.enter(stream, from).is_err() {
                    tracing::debug!("an HTTP connection could not be taken in");
                }
            }
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => {}
            Err(error) => {
                tracing::debug!(%error, "no HTTP connections for a while");
                self.deaf_until = Some(self.now() + PAUSE_MS);
                self.listen(false);
            }
        }
    }

    fn enter(&mut self, stream: B::Stream, from: IpAddr) -> io::Result<()> {
        let Some(index) = self.free_seat(from) else { return Ok(()) };
        let transport = self.hub.certificates.http(stream)?;
        let client = Client::new(Channel::new(transport), self.now());
        self.backend.add(client.stream.transport(), index as u64, client.interest())?;
        self.seats[index] = Some(Seat { interest: client.interest(), client, from, held: 0 });
        // A session of TLS holds memory before anything has come.
        self.after_turn(index, Ok(()));
        Ok(())
    }

    /// A seat for a connection from this address: a free one, or that of a connection of the network that has most. Of these the
    /// one makes way that has waited for a request for longest, or, if all are being answered and the network is another, the one
    /// that has been answered for longest.
    fn free_seat(&mut self, from: IpAddr) -> Option<usize> {
        if let Some(free) = self.seats.iter().position(Option::is_none) {
            return Some(free);
        }
        let taken = || self.seats.iter().flatten();
        let share = |network| taken().filter(|seat| network_of(seat.from) == network).count();
        let (index, seat) = self
            .seats
            .iter()
            .enumerate()
            .filter_map(|(index, seat)| Some((index, seat.as_ref()?)))
            .min_by_key(|(_, seat)| {
                (Reverse(share(network_of(seat.from))), seat.client.is_answered(), seat.client.since())
            })?;
        if seat.client.is_answered() && network_of(seat.from) == network_of(from) {
            return None;
        }
        self.close(index);
        Some(index)
    }

    /// Gives a connection its turn.
    fn serve(&mut self, index: usize, event: Option<Event>) {
        let now = self.now();
        // All of it is connections': no answer is being gathered.
        let held = self.routes.reserve.used();
        let Some(seat) = &mut self.seats[index] else { return };
        if event.is_some_and(|event| event.hangup && !event.readable) {
            return self.close(index);
        }
        let (routes, access, from) = (&mut self.routes, &mut self.access, seat.from);
        let (clients, clock) = (self.hub.shared.access(), &self.hub.clock);
        let mut took = Duration::ZERO;
        let handshake = seat.client.stream.is_opening().then(|| clock.elapsed());
        let went = seat.client.go_on(now, &mut |request| {
            let begun = clock.elapsed();
            let admission = access.admit(clients, request, route::is_open(request.path), from, now);
            let verdict = match admission {
                Admission::Granted(rights) => {
                    Verdict::Answer(routes.answer(request, rights, held < ANSWERS_BYTES_MAX))
                }
                Admission::Refused(Status::Misdirected) => Verdict::Refused(Status::Misdirected),
                Admission::Refused(status) => Verdict::Answer(Answer::refusal(status)),
                Admission::Wrong(at) => {
                    tracing::debug!(%from, "a wrong password was given by HTTP");
                    routes.wrong_passwords = access.failed();
                    Verdict::AnswerAt(Answer::refusal(Status::Unauthorized), at)
                }
                Admission::Later(at) => Verdict::Later(at),
            };
            took = clock.elapsed().saturating_sub(begun);
            verdict
        });
        // A key agreement takes as long as an answer, and any client can ask for it.
        took = handshake.map_or(took, |begun| clock.elapsed().saturating_sub(begun));
        self.after_turn(index, went);
        // A simulated clock stands still while an answer is made.
        if !took.is_zero() {
            std::thread::sleep((took * REST_SHARE).min(REST_MAX));
        }
    }

    /// Counts what a connection holds after its turn, and watches it for what it waits for.
    fn after_turn(&mut self, index: usize, went: Result<(), Gone>) {
        let Some(seat) = &mut self.seats[index] else { return };
        if went.is_err() {
            return self.close(index);
        }
        let bytes = seat.client.bytes() as u64;
        self.routes.reserve.change(seat.held, bytes);
        seat.held = bytes;
        let interest = seat.client.interest();
        if interest != seat.interest {
            seat.interest = interest;
            if self.backend.modify(seat.client.stream.transport(), index as u64, interest).is_err() {
                self.close(index);
            }
        }
    }

    fn close(&mut self, index: usize) {
        if let Some(seat) = self.seats[index].take() {
            // It leaves the set with its descriptor.
            self.routes.reserve.change(seat.held, 0);
        }
    }
}

/// Which requests are answered by a listener at this address.
fn access(hub: &Hub, address: IpAddr) -> Access {
    let names = hub.config.http_host.as_ref().map(HttpHost::names).unwrap_or_default();
    Access::new(Hosts { addresses: !address.is_loopback(), names }, readers(hub, address))
}

/// Which users may see the page of a listener at this address.
fn readers(hub: &Hub, address: IpAddr) -> Readers {
    let clients_have_tls = hub.listeners.iter().any(|listener| listener.tls.is_some());
    let beyond = !address.is_loopback();
    Readers::of(&hub.config.http_users, beyond, clients_have_tls && !hub.config.http_tls)
}

/// The warning at the start of a listener at this address, which other machines reach; `None` if there is none.
pub fn warning(hub: &Hub, address: IpAddr) -> Option<&'static str> {
    readers(hub, address).warning(hub.shared.access(), hub.config.http_tls)
}

/// Address of the page as users write it, by TLS or not.
pub fn shown(address: SocketAddr, speaks_tls: bool) -> String {
    let scheme = if speaks_tls { "https" } else { "http" };
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("{scheme}://{}/", SocketAddr::new(ip, address.port()))
}

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;
    use std::time::Instant;

    use larder_store::Store;

    use super::*;
    use crate::clock::Clock;
    use crate::config::Config;
    use crate::log::Log;

    /// Settings are looked at beside the machine: clients that come now may change them.
    #[test]
    fn the_state_at_the_start_is_known_when_the_thread_has_been_started() {
        let config = Config { threads: 1, ..Config::default() };
        let store = Store::new(crate::store_config(&config)).expect("a store");
        let clock = Clock::Machine { started: Instant::now() };
        let hub = Hub::new(config, store, Vec::new(), Log::default(), clock).expect("wakers");
        let hub = Arc::new(hub);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let admin = Admin::start(&hub, listener).expect("a thread");
        let seen = hub.machine.lock().unwrap_or_else(PoisonError::into_inner).clone();
        admin.end();
        assert!(seen.clock_ns.is_some(), "{seen:?}");
    }
}
