//! The server's actors in a world: workers and an acceptor. Their connections are sockets or, if a listener
//! speaks TLS, streams that are sockets or TLS over one.

use std::io;
use std::sync::Arc;

use larder_eventloop::sim::{Network, SimStream};
use larder_eventloop::{Backend, Stream};
use larder_server::{Acceptor, Arrivals, Entrance, Hub, Mailbox, Worker};
use larder_tls::{Counters, Options, Transport};

use crate::tls::client::Identity;
use crate::world::door::{Begin, Door, Entry};
use crate::world::plan::Plan;
use crate::world::wire::Trust;

/// An actor of the server.
pub trait Turns {
    /// Takes a turn; false if the actor has ended.
    fn turn(&mut self) -> io::Result<bool>;
}

impl<B: Backend> Turns for Worker<B> {
    fn turn(&mut self) -> io::Result<bool> {
        Worker::turn(self)
    }
}

impl<E: Entrance> Turns for Acceptor<E> {
    fn turn(&mut self) -> io::Result<bool> {
        Acceptor::turn(self)
    }
}

/// The actors of a server, and what is known of its TLS.
pub struct Server {
    pub workers: Vec<Box<dyn Turns>>,
    pub acceptor: Box<dyn Turns>,
    /// How clients speak TLS, if a listener does.
    pub trust: Option<Trust>,
    /// What the server counts of TLS.
    pub counters: Arc<Counters>,
}

impl Server {
    /// The server of a plan.
    pub fn new(plan: &Plan, hub: &Arc<Hub>, network: &Network, door: &Door) -> Server {
        let counters = Arc::default();
        if !plan.speaks_tls() {
            let (workers, acceptor) = actors(hub, network, door, Box::new(|_, stream| Ok(stream)));
            return Server { workers, acceptor, trust: None, counters };
        }
        let identity = Identity::of_known_length();
        let (chain, key) = (identity.chain.clone(), identity.key.clone());
        let options = Options { chain, key, resumption: true, ..Options::default() };
        let tls = larder_tls::Acceptor::load(&options, &counters, &mut larder_tls::Files::default());
        let (tls, speaks) = (tls.expect("good files"), plan.tls);
        let begin: Begin<Transport<SimStream>> =
            Box::new(
                move |listener, stream| {
                    if speaks[listener] { tls.accept(stream) } else { Ok(Transport::Plain(stream)) }
                },
            );
        let (workers, acceptor) = actors(hub, network, door, begin);
        Server { workers, acceptor, trust: Some(Trust::new(&identity)), counters }
    }
}

/// Workers and an acceptor, for connections that are streams of this kind.
fn actors<S: Stream + AsRef<SimStream> + 'static>(
    hub: &Arc<Hub>,
    network: &Network,
    door: &Door,
    begin: Begin<S>,
) -> (Vec<Box<dyn Turns>>, Box<dyn Turns>) {
    let arrivals: Arrivals<S> =
        hub.handles.iter().map(|handle| Arc::new(Mailbox::new(&handle.waker))).collect();
    let worker = |index: usize| -> Box<dyn Turns> {
        let backend = network.backend::<S>(Arc::clone(&hub.handles[index].waker));
        let store = hub.store.worker().expect("a worker of the store");
        Box::new(Worker::new(Arc::clone(hub), index, store, backend, Arc::clone(&arrivals[index])))
    };
    let workers = (0..hub.handles.len()).map(worker).collect();
    (workers, Box::new(Acceptor::new(Arc::clone(hub), Entry::new(door.clone(), begin), arrivals)))
}
