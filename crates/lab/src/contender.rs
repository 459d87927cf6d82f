//! Contenders: the servers of an experiment, those that the lab starts and running ones.

use std::path::PathBuf;

use larder_eventloop::cpu;
use larder_eventloop::socket::Address;
use larder_protocol::client::Protocol;
use rustix::process::{Pid, Signal, kill_process};

use crate::control::{Control, Family};
use crate::endpoint::{Endpoint, Unusable};
use crate::error::Error;
use crate::owner;
use crate::peers::{self, Kind, PEERS, Server, Spec};
use crate::placement::{Placement, Threads};
use crate::route::{Route, SocketKind};
use crate::usage::Usage;

/// A running server that the lab did not start: `name=` and a URL as [`Endpoint::parse`] reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name in tables.
    pub name: String,
    /// The protocols that it speaks.
    pub family: Family,
    /// Its address and login.
    pub endpoint: Endpoint,
}

impl Target {
    /// Reads an argument of the command line, for clap.
    ///
    /// # Errors
    /// What is wrong with the argument.
    pub fn parse(text: &str) -> Result<Target, Unusable> {
        let form = "expected name=memcached://host:port, name=redis://host:port, …";
        let (name, url) = text.split_once('=').filter(|(name, _)| !name.trim().is_empty()).ok_or(form)?;
        let (family, endpoint) = Endpoint::parse(url)?;
        Ok(Target { name: name.to_owned(), family, endpoint })
    }

    /// The server's control connection.
    pub fn control(&self) -> Control {
        let Target { name, family, endpoint: Endpoint { address, login, tls } } = self.clone();
        Control { name, family, address, login, tls }
    }
}

/// Reads the name of a server that the lab can start, for clap.
///
/// # Errors
/// The names that are known, or how to fetch a server that was not fetched.
pub fn parse_peer(text: &str) -> Result<Kind, String> {
    let names = || PEERS.map(Kind::name).join(", ");
    let named = PEERS.into_iter().find(|kind| kind.name() == text);
    let kind = named.ok_or_else(|| format!("expected one of {}", names()))?;
    if kind.is_fetched() {
        kind.program().map_err(|error| error.to_string())?;
    }
    Ok(kind)
}

/// Words of a server's name that are names of programs.
const PROGRAMS: [&str; 5] = ["larder", "memcached", "redis", "valkey", "keydb"];

/// Whether a word of the name is another program's name, and none is this one's.
fn is_named_after_another(name: &str, program: &str) -> bool {
    let name = name.to_lowercase();
    let words = || name.split(|c: char| !c.is_alphanumeric());
    words().any(|word| PROGRAMS.contains(&word)) && words().all(|word| word != program)
}

/// A remark if a server's name is that of another program.
fn misnamed(name: &str, control: &Control) -> Result<Option<String>, Error> {
    let program = control.program()?;
    let other = is_named_after_another(name, &program);
    Ok(other.then(|| format!("is called {name}, and says that it is {program}")))
}

/// A server under test.
#[derive(Debug)]
pub struct Contender {
    /// Its name in tables.
    pub name: String,
    /// Its kind; `None` for a [`Target`].
    pub kind: Option<Kind>,
    /// Its control connection.
    pub control: Control,
    /// The version that it reports.
    pub version: String,
    /// The settings that it reports.
    pub settings: Vec<(String, String)>,
    /// The command that started it, or its address.
    pub command: String,
    /// The process that answers, if this user can see it and it is known to be the server's.
    pub pid: Option<u32>,
    /// Why the process is not known.
    pub unseen: Option<String>,
    /// How many of its threads serve connections, if known.
    pub workers: Option<u32>,
    /// Remarks for the report: the name is another program's, or a running server's settings differ from those of servers that
    /// the lab starts.
    pub remarks: Vec<String>,
    /// The process, if the lab started it: it ends with the contender.
    server: Option<Server>,
}

/// How the lab starts servers for an experiment.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Memory limit for items.
    pub memory_mb: u32,
    /// Number of serving threads.
    pub threads: u32,
    /// The core that servers are pinned to, if it is one.
    pub core: Option<usize>,
    /// Another larder binary than this one.
    pub larder: Option<PathBuf>,
}

/// Cores for a server with this many threads: the first core for one thread; for several, all but the last, which is the
/// generator's.
pub fn apart(threads: u32) -> Vec<usize> {
    let cores = cpu::cores().unwrap_or_default();
    match (threads, &cores[..]) {
        (1, [first, ..]) => vec![*first],
        (_, [others @ .., _]) if !others.is_empty() => others.to_vec(),
        _ => cores,
    }
}

impl Contender {
    /// Starts a server.
    ///
    /// # Errors
    /// [`Error::Peer`] when there is none or it does not answer.
    pub fn start(kind: Kind, setup: &Setup) -> Result<Contender, Error> {
        Contender::start_with(kind, setup, &[])
    }

    /// As [`Contender::start`], with more arguments.
    ///
    /// # Errors
    /// As [`Contender::start`].
    pub fn start_with(kind: Kind, setup: &Setup, more: &[&str]) -> Result<Contender, Error> {
        let spec = Spec {
            kind,
            program: if kind.is_larder() { setup.larder.clone() } else { None },
            memory_mb: setup.memory_mb,
            threads: setup.threads,
            core: setup.core,
            null: None,
        };
        let server = Server::start_with(&spec, more)?;
        if let (None, Ok(pid)) = (setup.core, server.answering()) {
            // Threads that start later inherit this.
            for tid in cpu::threads(pid).unwrap_or_default() {
                let _ = cpu::pin_tid_to(tid, &apart(setup.threads));
            }
        }
        let workers = match kind {
            Kind::Redis | Kind::Valkey | Kind::RedisNew | Kind::ValkeyNew | Kind::Null => 1,
            Kind::Larder | Kind::LarderRedis | Kind::Memcached | Kind::MemcachedNew | Kind::KeyDb => {
                setup.threads
            }
        };
        let remarks = match kind {
            Kind::Null => Vec::new(),
            _ => misnamed(kind.name(), &server.control)?.into_iter().collect(),
        };
        Ok(Contender {
            name: kind.name().to_owned(),
            kind: Some(kind),
            control: server.control.clone(),
            version: server.version.clone(),
            settings: server.settings.clone(),
            command: server.command.clone(),
            pid: server.answering().ok(),
            unseen: server.answering().err(),
            workers: Some(workers),
            remarks,
            server: Some(server),
        })
    }

    /// Takes a running server, and asks it for its facts. `setup` says how other servers are started.
    ///
    /// # Errors
    /// [`Error::Peer`] when it does not answer.
    pub fn reach(target: &Target, setup: &Setup) -> Result<Contender, Error> {
        let control = target.control();
        let (version, settings) = (control.version()?, control.settings()?);
        let named = misnamed(&target.name, &control)?;
        let others = peers::others(target.family, (setup.memory_mb, setup.threads), &settings);
        let others = others.into_iter().map(|(name, have, usual)| {
            format!("has {name} at {have:?}, where a server that is started here has {usual:?}")
        });
        let remarks = named.into_iter().chain(others).collect();
        // It may run on another machine: then the process with this number here is another one.
        let answering = match control.address.is_local() {
            true => owner::answering(&control.address, None, control.process_id()?),
            false => Err("it may run on another machine".to_owned()),
        };
        let setting = |name: &str| settings.iter().find(|(have, _)| have == name)?.1.parse().ok();
        Ok(Contender {
            name: target.name.clone(),
            kind: None,
            version,
            command: control.address.to_string(),
            pid: answering.clone().ok(),
            unseen: answering.err(),
            workers: setting("num_threads").or_else(|| setting("server-threads")),
            settings,
            control,
            remarks,
            server: None,
        })
    }

    /// The protocol of its load: `wanted`, if it speaks memcached's protocols.
    pub fn protocol(&self, wanted: Protocol) -> Protocol {
        self.control.family.protocol(wanted)
    }

    /// The route of its load, in the same protocol.
    pub fn route(&self, wanted: Protocol) -> Route {
        Route { protocol: self.protocol(wanted), socket: SocketKind::of(self.address()) }
    }

    /// Its address.
    pub fn address(&self) -> &Address {
        &self.control.address
    }

    /// The endpoint to connect to.
    pub fn endpoint(&self) -> Endpoint {
        self.control.endpoint()
    }

    /// Sends a signal to its process.
    ///
    /// # Errors
    /// [`Error::Peer`] when it has none here, [`Error::System`] when it is not allowed.
    pub fn signal(&self, signal: Signal) -> Result<(), Error> {
        let pid = self.pid.and_then(|pid| Pid::from_raw(pid as i32));
        let pid = pid.ok_or_else(|| Error::Peer(format!("{} has no process here", self.name)))?;
        kill_process(pid, signal).map_err(|error| Error::System("a signal to a server", error.into()))
    }

    /// CPU time so far, where its process can be seen.
    ///
    /// # Errors
    /// When its process is gone.
    pub fn usage(&self) -> Result<Option<Usage>, Error> {
        self.pid.map(Usage::of).transpose()
    }

    /// CPU time of each of its threads so far, where its process can be seen.
    ///
    /// # Errors
    /// When its process is gone.
    pub fn threads(&self) -> Result<Option<Threads>, Error> {
        self.pid.map(Threads::of).transpose()
    }

    /// Which threads worked since `before`, and where the connections are.
    ///
    /// # Errors
    /// Its process has ended.
    pub fn placement(&self, before: Option<&Threads>) -> Result<Option<Placement>, Error> {
        match (self.pid, before) {
            (Some(pid), Some(before)) => before.placement(pid).map(Some),
            _ => Ok(None),
        }
    }

    /// Whether the lab started it.
    pub fn is_ours(&self) -> bool {
        self.server.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_name_a_protocol_and_an_address() {
        let parsed = Target::parse("a=memcached://127.0.0.1:11211").unwrap();
        assert_eq!((parsed.name.as_str(), parsed.family), ("a", Family::Memcached));
        assert_eq!(parsed.endpoint, (&Address::Tcp("127.0.0.1:11211".parse().unwrap())).into());
        assert_eq!(Target::parse("b=redis://127.0.0.1:1").unwrap().family, Family::Redis);
        for bad in [
            "127.0.0.1:1",
            "=redis://127.0.0.1:1",
            "a=127.0.0.1:1",
            "a=http://127.0.0.1:1",
            "a=redis://127.0.0.1",
        ] {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn servers_of_any_number_of_threads_leave_the_last_core_to_the_generator() {
        let cores = cpu::cores().unwrap();
        let (last, rest) = cores.split_last().unwrap();
        for threads in [1, 2, 64] {
            let placed = apart(threads);
            assert!(rest.is_empty() || !placed.contains(last), "{threads}: {placed:?}");
            assert!(!placed.is_empty() && placed.iter().all(|core| cores.contains(core)));
        }
    }

    #[test]
    fn a_name_that_is_another_programs_is_found() {
        for (name, program, told) in [
            ("memcached", "larder", true),
            ("Redis 7", "valkey", true),
            ("old-memcached", "pelikan", true),
            ("larder-redis", "larder", false),
            ("memcached", "memcached", false),
            ("mine", "larder", false),
            ("redistribution", "larder", false),
        ] {
            assert_eq!(is_named_after_another(name, program), told, "{name}");
        }
    }

    #[test]
    fn peers_are_known_by_name() {
        assert_eq!(parse_peer("keydb"), Ok(Kind::KeyDb));
        assert_eq!(parse_peer("larder-redis"), Ok(Kind::LarderRedis));
        assert!(parse_peer("larder").unwrap_err().contains("memcached, redis, valkey, keydb, larder-redis"));
    }
}
