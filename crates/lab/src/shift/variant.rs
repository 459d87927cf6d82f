//! A server with one of its ways to manage memory: memcached's automove, Redis's eviction policy.

use clap::Args;

use crate::contender::{Contender, Setup, Target};
use crate::control::Family;
use crate::error::Error;
use crate::experiment::Experiment;
use crate::numbers;
use crate::peers::Kind;
use crate::results::Run;

/// The variants of servers, and how they are made equal.
#[derive(Clone, Debug, Args)]
#[group(skip)]
pub struct Ways {
    /// Give every server the same memory limit, not the same resident memory
    #[arg(long)]
    pub equal_limit: bool,
    /// Seconds that a warm-up may take: a run whose warm-up is cut off has no result
    #[arg(long, default_value = "600", value_name = "S", value_parser = numbers::seconds)]
    pub warm_max: f64,
    /// memcached's automove, one run for each: 0, 1, 2 [default: as it starts]
    #[arg(long, value_delimiter = ',', value_name = "N", value_parser = clap::value_parser!(u32).range(0..=2))]
    automove: Vec<u32>,
    /// Redis's eviction policy, one run for each: allkeys-lru, allkeys-lfu … [default: allkeys-lru]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    policy: Vec<String>,
}

impl Ways {
    /// Adds to the settings how servers are made equal.
    pub fn note(&self, run: &mut Run) {
        run.set("memory is equal by", if self.equal_limit { "limit" } else { "resident memory" });
        run.set("seconds of a warm-up at most", self.warm_max);
    }

    /// How much memory servers had. Each has its name, the resident memory that was seen, and whether the lab chose its limit.
    /// The words claim no more than is known.
    pub fn memory_words(&self, memory_mb: u32, near: f64, servers: &[(&Variant, Option<f64>)]) -> String {
        if self.equal_limit && servers.iter().all(|(variant, _)| variant.can_be_limited()) {
            return format!("with limits of {memory_mb} MB");
        }
        let wanted = f64::from(memory_mb);
        let off = |&(variant, seen): &(&Variant, Option<f64>)| match seen.map(|mib| mib / wanted - 1.0) {
            None => Some(format!("{} is not seen", variant.name)),
            Some(share) if share.abs() > near => Some(format!("{} {:+.1} %", variant.name, 100.0 * share)),
            Some(_) => None,
        };
        let mut others: Vec<String> =
            servers.iter().filter(|(variant, _)| !variant.again).filter_map(off).collect();
        others.sort_unstable();
        others.dedup();
        match others.is_empty() {
            true => format!("in {memory_mb} MiB of resident memory"),
            false => {
                format!("in memory that was not equal ({} of {memory_mb} MiB resident)", others.join(", "))
            }
        }
    }
}

/// A measured server, started anew for each visit.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its name in tables.
    pub name: String,
    /// Index among the contenders of the experiment.
    pub contender: usize,
    /// It is the first variant a second time: differences between the two are noise.
    pub again: bool,
    source: Source,
    /// A command that is sent before it is used, and the reply to it.
    command: Option<(String, &'static str)>,
}

#[derive(Clone, Debug)]
enum Source {
    Started(Kind, Setup),
    Running(Target, Setup),
}

impl Variant {
    /// Every contender once for each of its ways: memcached's for every automove, Redis's for every policy; once unchanged if it
    /// has none. The first one is listed twice.
    pub fn all(experiment: &Experiment, ways: &Ways) -> Vec<Variant> {
        let Ways { automove, policy: policies, .. } = ways;
        let mut variants = Vec::new();
        for (at, contender) in experiment.contenders.iter().enumerate() {
            let source = match contender.kind {
                Some(kind) => Source::Started(kind, experiment.setup.clone()),
                None => {
                    let same = |target: &&Target| target.name == contender.name;
                    let target = experiment.options.targets.iter().find(same);
                    let target = target.expect("a contender that is not ours is a target").clone();
                    Source::Running(target, experiment.setup.clone())
                }
            };
            let way = |name: String, command| Variant {
                name,
                contender: at,
                again: false,
                source: source.clone(),
                command,
            };
            let ways: Vec<(String, String, &'static str)> = match (contender.control.family, contender.kind) {
                // Larder moves memory by itself.
                (_, Some(Kind::Larder | Kind::LarderRedis)) => Vec::new(),
                (Family::Memcached, _) => automove
                    .iter()
                    .map(|n| (format!("automove {n}"), format!("slabs automove {n}\r\n"), "OK\r\n"))
                    .collect(),
                (Family::Redis, _) => policies
                    .iter()
                    .map(|policy| {
                        (policy.clone(), format!("CONFIG SET maxmemory-policy {policy}\r\n"), "+OK\r\n")
                    })
                    .collect(),
            };
            if ways.is_empty() {
                variants.push(way(contender.name.clone(), None));
            }
            for (suffix, command, reply) in ways {
                variants.push(way(format!("{} {suffix}", contender.name), Some((command, reply))));
            }
        }
        variants.insert(1, variants[0].again());
        variants
    }

    /// The same variant once more.
    fn again(&self) -> Variant {
        Variant { name: format!("{} again", self.name), again: true, ..self.clone() }
    }

    /// The limit with which a search for `memory_mb` of resident memory begins.
    pub fn limit_mb(&self, memory_mb: u32) -> u32 {
        memory_mb
    }

    /// Whether its memory limit can be chosen.
    pub fn can_be_limited(&self) -> bool {
        matches!(self.source, Source::Started(..))
    }

    /// An empty server: a new process, or a running one flushed.
    ///
    /// # Errors
    /// [`Error::Peer`] when it does not start or refuses a setting of this variant.
    pub fn start(&self, limit_mb: u32) -> Result<Contender, Error> {
        self.start_with(limit_mb, &[])
    }

    /// The kind of server, if the lab starts it.
    pub fn kind(&self) -> Option<Kind> {
        match self.source {
            Source::Started(kind, _) => Some(kind),
            Source::Running(..) => None,
        }
    }

    /// Like [`Variant::start`], with more arguments for a server that the lab starts.
    ///
    /// # Errors
    /// As [`Variant::start`].
    pub fn start_with(&self, limit_mb: u32, more: &[&str]) -> Result<Contender, Error> {
        let server = match &self.source {
            Source::Started(kind, setup) => {
                Contender::start_with(*kind, &Setup { memory_mb: limit_mb, ..setup.clone() }, more)?
            }
            Source::Running(target, setup) => {
                let server = Contender::reach(target, setup)?;
                server.control.flush()?;
                server
            }
        };
        if let Some((command, wanted)) = &self.command {
            let reply = server.control.ask(command, "\r\n")?;
            if reply != *wanted {
                return Err(Error::Peer(format!(
                    "{} answers \"{}\" to \"{}\"",
                    server.name,
                    reply.trim_end(),
                    command.trim_end()
                )));
            }
        }
        Ok(server)
    }
}
