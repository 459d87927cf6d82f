//! Who takes part in an experiment: servers that the lab starts, and running ones.

use std::net::ToSocketAddrs;
use std::path::PathBuf;

use larder_eventloop::socket::Address;

use crate::control::{Control, Family};
use crate::error::Error;
use crate::peers::{Kind, PEERS, Server, Spec};
use crate::placement::{Placement, Threads};
use crate::usage::Usage;
use crate::wire::Protocol;

/// A running server that somebody else started: `name=memcached://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// How tables call it.
    pub name: String,
    /// What it speaks.
    pub family: Family,
    /// Where it listens.
    pub address: Address,
}

impl Target {
    /// Reads what the command line says, for clap.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Target, String> {
        let form = "expected name=memcached://host:port or name=redis://host:port";
        let (name, url) = text.split_once('=').filter(|(name, _)| !name.trim().is_empty()).ok_or(form)?;
        let (scheme, place) = url.split_once("://").ok_or(form)?;
        let family = match scheme {
            "memcached" => Family::Memcached,
            "redis" => Family::Redis,
            _ => return Err(form.to_owned()),
        };
        let mut addresses = place.to_socket_addrs().map_err(|error| format!("{place}: {error}"))?;
        let address = addresses.next().ok_or_else(|| format!("{place}: no address"))?;
        Ok(Target { name: name.to_owned(), family, address: Address::Tcp(address) })
    }
}

/// Reads the name of a server that the lab can start, for clap.
///
/// # Errors
/// What names there are; how to fetch it, if it is one that is fetched and was not.
pub fn parse_peer(text: &str) -> Result<Kind, String> {
    let names = || PEERS.map(Kind::name).join(", ");
    let named = PEERS.into_iter().find(|kind| kind.name() == text);
    let kind = named.ok_or_else(|| format!("expected one of {}", names()))?;
    if kind.is_fetched() {
        kind.program().map_err(|error| error.to_string())?;
    }
    Ok(kind)
}

/// A server under test.
#[derive(Debug)]
pub struct Contender {
    /// How tables call it.
    pub name: String,
    /// Which it is; `None` for a [`Target`].
    pub kind: Option<Kind>,
    /// Where it listens, and how it is asked.
    pub control: Control,
    /// What it says its version is.
    pub version: String,
    /// The settings it says are in effect.
    pub settings: Vec<(String, String)>,
    /// The command that started it, or its address.
    pub command: String,
    /// Its process, where it can be seen from here.
    pub pid: Option<u32>,
    /// How many threads of it serve connections, where known.
    pub workers: Option<u32>,
    /// The process, if it is ours: it ends with the contender.
    server: Option<Server>,
}

/// How the lab starts servers for an experiment.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Memory limit for items.
    pub memory_mb: u32,
    /// Threads that serve.
    pub threads: u32,
    /// Core that servers are pinned to, if to one.
    pub core: Option<usize>,
    /// Another larder binary than the one that runs.
    pub larder: Option<PathBuf>,
}

impl Contender {
    /// Starts a server.
    ///
    /// # Errors
    /// [`Error::Peer`] when there is none or it does not answer.
    pub fn start(kind: Kind, setup: &Setup) -> Result<Contender, Error> {
        Contender::start_with(kind, setup, &[])
    }

    /// The same with more arguments.
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
        let workers = match kind {
            Kind::Redis | Kind::Valkey | Kind::RedisNew | Kind::ValkeyNew | Kind::Null => 1,
            Kind::Larder | Kind::LarderRedis | Kind::Memcached | Kind::MemcachedNew | Kind::KeyDb => {
                setup.threads
            }
        };
        Ok(Contender {
            name: kind.name().to_owned(),
            kind: Some(kind),
            control: server.control.clone(),
            version: server.version.clone(),
            settings: server.settings.clone(),
            command: server.command.clone(),
            pid: Some(server.pid()),
            workers: Some(workers),
            server: Some(server),
        })
    }

    /// Takes a running server, and asks it what it is.
    ///
    /// # Errors
    /// [`Error::Peer`] when it does not answer.
    pub fn reach(target: &Target) -> Result<Contender, Error> {
        let control =
            Control { name: target.name.clone(), family: target.family, address: target.address.clone() };
        let (version, settings, counters) = (control.version()?, control.settings()?, control.counters()?);
        // It may run on another machine: then its process is not the one with that number here.
        let local = matches!(&target.address, Address::Tcp(address) if address.ip().is_loopback());
        let pid = counters.number("pid").or_else(|| counters.number("process_id"));
        let pid = pid.and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| local && Usage::of(pid).is_ok());
        let setting = |name: &str| settings.iter().find(|(have, _)| have == name)?.1.parse().ok();
        Ok(Contender {
            name: target.name.clone(),
            kind: None,
            version,
            command: target.address.to_string(),
            pid,
            workers: setting("num_threads").or_else(|| setting("server-threads")),
            settings,
            control,
            server: None,
        })
    }

    /// What it is asked in: `wanted`, if it speaks memcached's protocols.
    pub fn protocol(&self, wanted: Protocol) -> Protocol {
        match self.control.family {
            Family::Memcached => wanted,
            Family::Redis => Protocol::Resp,
        }
    }

    /// Its address.
    pub fn address(&self) -> &Address {
        &self.control.address
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

    /// Who worked since `before`, and where the connections are.
    ///
    /// # Errors
    /// When its process is gone.
    pub fn placement(&self, before: Option<&Threads>) -> Result<Option<Placement>, Error> {
        match (self.pid, before) {
            (Some(pid), Some(before)) => before.placement(pid).map(Some),
            _ => Ok(None),
        }
    }

    /// The lab started it.
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
        assert_eq!(parsed.address, Address::Tcp("127.0.0.1:11211".parse().unwrap()));
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
    fn peers_are_known_by_name() {
        assert_eq!(parse_peer("keydb"), Ok(Kind::KeyDb));
        assert_eq!(parse_peer("larder-redis"), Ok(Kind::LarderRedis));
        assert!(parse_peer("larder").unwrap_err().contains("memcached, redis, valkey, keydb, larder-redis"));
    }
}
