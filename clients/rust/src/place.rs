//! Placement: which server a key belongs to, by the rules of other clients, so that clients can be migrated one by one.
//!
//! Placement uses a server's name as configured, never a resolved address. A ring has points (value, server), sorted by value,
//! then by server. A key belongs to the first point at or behind its hash, and beyond the last point to the first.
//! `clients/vectors.txt` has the placement by other clients of a thousand keys each.

use crate::config::Server;
use crate::hashes::{fnv1a_64, jenkins, md5_first, murmur, murmur3, oaat, of_length};
use md5::{Digest, Md5};
use sha1::Sha1;

/// A rule of placement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Preset {
    /// libmemcached's weighted ketama, php-memcached's with OPT_LIBKETAMA_COMPATIBLE, twemproxy's with md5. For Unix sockets,
    /// libmemcached's alone: twemproxy names them differently.
    Ketama,
    /// spymemcached's ketama with addresses: a name includes the port even if it is 11211. If spymemcached resolved the host, the
    /// server's name is host/address:port.
    KetamaFullPort,
    /// libmemcached's unweighted ketama with its default hash.
    LibmemcachedConsistent,
    /// The same with the hash MD5, set before ketama was.
    LibmemcachedConsistentMd5,
    /// The same with the hash MD5, set after.
    LibmemcachedConsistentMd5Late,
    /// libmemcached's weighted ketama with KETAMA_SPY.
    LibmemcachedSpy,
    /// libmemcached's default, and php-memcached's.
    ModulaOaat,
    /// libmemcached's with the hash MD5.
    ModulaMd5,
    /// python-memcached's and spymemcached's; a server is listed as often as its weight says.
    ModulaCrc15,
    /// twemproxy's modula with the hash crc32: it sorts servers by name, shorter names first, before it counts.
    TwemproxyModulaCrc15,
    /// libmemcached's with the hash FNV1A_64.
    ModulaFnv1a64,
    /// libmemcached's with the hash MURMUR.
    ModulaMurmur,
    /// libmemcached's with the hash MURMUR3.
    ModulaMurmur3,
    /// libmemcached's with the hash JENKINS.
    ModulaJenkins,
    /// gomemcache's; list a server more than once to give it more keys.
    ModulaCrc32,
    /// That of twemproxy's example configuration.
    TwemproxyFnv1a64,
    /// pymemcache's, with keys that are str.
    RendezvousMurmur3,
    /// Dalli's ring.
    Dalli,
}

/// All presets, by the names that configurations use.
const NAMES: [(&str, Preset); 18] = [
    ("ketama", Preset::Ketama),
    ("ketama-full-port", Preset::KetamaFullPort),
    ("libmemcached-consistent", Preset::LibmemcachedConsistent),
    ("libmemcached-consistent-md5", Preset::LibmemcachedConsistentMd5),
    ("libmemcached-consistent-md5-late", Preset::LibmemcachedConsistentMd5Late),
    ("libmemcached-spy", Preset::LibmemcachedSpy),
    ("modula-oaat", Preset::ModulaOaat),
    ("modula-md5", Preset::ModulaMd5),
    ("modula-crc15", Preset::ModulaCrc15),
    ("twemproxy-modula-crc15", Preset::TwemproxyModulaCrc15),
    ("modula-fnv1a_64", Preset::ModulaFnv1a64),
    ("modula-murmur", Preset::ModulaMurmur),
    ("modula-murmur3", Preset::ModulaMurmur3),
    ("modula-jenkins", Preset::ModulaJenkins),
    ("modula-crc32", Preset::ModulaCrc32),
    ("twemproxy-fnv1a_64", Preset::TwemproxyFnv1a64),
    ("rendezvous-murmur3", Preset::RendezvousMurmur3),
    ("dalli", Preset::Dalli),
];

impl Preset {
    /// The preset with this name.
    pub fn named(name: &str) -> Option<Preset> {
        NAMES.iter().find(|(known, _)| *known == name).map(|&(_, preset)| preset)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, preset)| *preset == self).expect("each has a name").0
    }

    fn knows_weights(self) -> bool {
        match self {
            Preset::Ketama
            | Preset::KetamaFullPort
            | Preset::LibmemcachedSpy
            | Preset::TwemproxyFnv1a64
            | Preset::ModulaCrc15
            | Preset::TwemproxyModulaCrc15
            | Preset::Dalli => true,
            Preset::LibmemcachedConsistent
            | Preset::LibmemcachedConsistentMd5
            | Preset::LibmemcachedConsistentMd5Late
            | Preset::ModulaOaat
            | Preset::ModulaMd5
            | Preset::ModulaFnv1a64
            | Preset::ModulaMurmur
            | Preset::ModulaMurmur3
            | Preset::ModulaJenkins
            | Preset::ModulaCrc32
            | Preset::RendezvousMurmur3 => false,
        }
    }

    fn hash(self, key: &[u8]) -> u32 {
        match self {
            Preset::Ketama
            | Preset::KetamaFullPort
            | Preset::LibmemcachedSpy
            | Preset::LibmemcachedConsistentMd5
            | Preset::LibmemcachedConsistentMd5Late
            | Preset::ModulaMd5 => md5_first(key),
            Preset::TwemproxyFnv1a64 | Preset::ModulaFnv1a64 => fnv1a_64(key),
            Preset::LibmemcachedConsistent | Preset::ModulaOaat => oaat(key),
            Preset::ModulaMurmur => murmur(key),
            Preset::ModulaMurmur3 => murmur3(of_length(key), key.iter().copied()),
            Preset::ModulaJenkins => jenkins(key),
            Preset::ModulaCrc32 | Preset::Dalli => crc32fast::hash(key),
            Preset::ModulaCrc15 | Preset::TwemproxyModulaCrc15 => crc32fast::hash(key) >> 16 & 0x7fff,
            Preset::RendezvousMurmur3 => 0,
        }
    }
}

/// How a preset finds a key's server.
#[derive(Debug)]
enum Rule {
    One,
    /// The first point at or behind the hash.
    Ring(Vec<(u32, usize)>),
    /// The last point at or before it.
    RingBefore(Vec<(u32, usize)>),
    /// The hash modulo the number of entries.
    Listed(Vec<usize>),
    /// The server whose name, hashed together with the key, gives the highest value.
    Highest(Vec<String>),
}

/// A preset over a list of servers. It never changes.
#[derive(Debug)]
pub struct Placement {
    preset: Preset,
    rule: Rule,
}

impl Placement {
    /// # Errors
    /// There is no server, one has the weight 0, or there are weights with a preset that has none.
    pub fn new(preset: Preset, servers: &[Server]) -> Result<Placement, String> {
        let Some(first) = servers.first() else { return Err("there is no server".to_owned()) };
        if let Some(server) = servers.iter().find(|server| server.weight == 0) {
            return Err(format!("{} weighs nothing", server.name()));
        }
        if !preset.knows_weights() && servers.iter().any(|server| server.weight != first.weight) {
            return Err(format!("{} knows no weights", preset.name()));
        }
        let short = |server: &Server| short_name(server.name()).to_owned();
        let library = |server: &Server| library_name(server.name());
        let slash = |server: &Server| match host_and_port(server.name()) {
            Some((host, port)) => format!("/{host}:{port}"),
            None => format!("/{}", server.name()),
        };
        let rule = match preset {
            _ if servers.len() == 1 => Rule::One,
            Preset::Ketama => Rule::Ring(ketama(servers, library)),
            Preset::TwemproxyFnv1a64 => Rule::Ring(ketama(servers, short)),
            Preset::KetamaFullPort => Rule::Ring(ketama(servers, |server| server.name().to_owned())),
            Preset::LibmemcachedSpy => Rule::Ring(ketama(servers, slash)),
            Preset::LibmemcachedConsistent | Preset::LibmemcachedConsistentMd5Late => {
                Rule::Ring(hundred(servers, oaat))
            }
            Preset::LibmemcachedConsistentMd5 => Rule::Ring(hundred(servers, md5_first)),
            Preset::Dalli => Rule::RingBefore(dalli(servers)),
            Preset::RendezvousMurmur3 => {
                Rule::Highest(servers.iter().map(|server| server.name().to_owned()).collect())
            }
            Preset::ModulaOaat
            | Preset::ModulaMd5
            | Preset::ModulaFnv1a64
            | Preset::ModulaMurmur
            | Preset::ModulaMurmur3
            | Preset::ModulaJenkins
            | Preset::ModulaCrc32 => Rule::Listed((0..servers.len()).collect()),
            Preset::ModulaCrc15 | Preset::TwemproxyModulaCrc15 => {
                let mut order: Vec<usize> = (0..servers.len()).collect();
                if preset == Preset::TwemproxyModulaCrc15 {
                    order.sort_by_key(|&at| (short(&servers[at]).len(), short(&servers[at])));
                }
                let times = |at: usize| std::iter::repeat_n(at, servers[at].weight as usize);
                Rule::Listed(order.into_iter().flat_map(times).collect())
            }
        };
        Ok(Placement { preset, rule })
    }

    /// The index of the key's server.
    pub fn pick(&self, key: &[u8]) -> usize {
        let ring = |points: &[(u32, usize)], at: usize| points[at % points.len()].1;
        match &self.rule {
            Rule::One => 0,
            Rule::Ring(points) => {
                let hash = self.preset.hash(key);
                ring(points, points.partition_point(|point| point.0 < hash))
            }
            Rule::RingBefore(points) => {
                let hash = self.preset.hash(key);
                ring(points, points.partition_point(|point| point.0 <= hash) + points.len() - 1)
            }
            Rule::Listed(servers) => servers[self.preset.hash(key) as usize % servers.len()],
            Rule::Highest(names) => {
                let score = |at: &usize| (scored(&names[*at], key), &names[*at]);
                (0..names.len()).max_by(|a, b| score(a).cmp(&score(b))).expect("there are some")
            }
        }
    }
}

/// A name without memcached's default port, as twemproxy has it.
fn short_name(name: &str) -> &str {
    name.strip_suffix(":11211").unwrap_or(name)
}

/// The host of host:port, without the brackets of an IPv6 address, and the port.
fn host_and_port(name: &str) -> Option<(&str, &str)> {
    let (host, port) = name.rsplit_once(':')?;
    match host.strip_prefix('[') {
        Some(host) => Some((host.strip_suffix(']')?, port)),
        None => (!host.contains(':')).then_some((host, port)),
    }
}

/// The host as in libmemcached's calls: a Unix socket has the port 0; memcached's default port is omitted.
fn library_name(name: &str) -> String {
    match host_and_port(name) {
        None if name.starts_with('/') => format!("{name}:0"),
        None => name.to_owned(),
        Some((host, "11211")) => host.to_owned(),
        Some((host, port)) => format!("{host}:{port}"),
    }
}

/// Four points of each MD5 of name-i. The number of points is computed in single precision, in this order.
fn ketama(servers: &[Server], name: impl Fn(&Server) -> String) -> Vec<(u32, usize)> {
    let total: u32 = servers.iter().map(|server| server.weight).sum();
    let mut points = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        let share = server.weight as f32 / total as f32;
        let hashes = (share * 160.0 / 4.0 * servers.len() as f32 + 0.000_000_000_1) as usize;
        for i in 0..hashes {
            let sum = Md5::digest(format!("{}-{i}", name(server)));
            let words =
                sum.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")));
            points.extend(words.map(|word| (word, at)));
        }
    }
    points.sort_unstable();
    points
}

/// A hundred points per server, each the hash of name-i.
fn hundred(servers: &[Server], hash: impl Fn(&[u8]) -> u32) -> Vec<(u32, usize)> {
    let mut points = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        let name = library_name(server.name());
        points.extend((0..100).map(|i| (hash(format!("{name}-{i}").as_bytes()), at)));
    }
    points.sort_unstable();
    points
}

fn dalli(servers: &[Server]) -> Vec<(u32, usize)> {
    let total: usize = servers.iter().map(|server| server.weight as usize).sum();
    let mut points = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        for i in 0..servers.len() * 160 * server.weight as usize / total {
            let sum = Sha1::digest(format!("{}:{i}", server.name()));
            points.push((u32::from_be_bytes([sum[0], sum[1], sum[2], sum[3]]), at));
        }
    }
    points.sort_unstable();
    points
}

/// The 32-bit hash of "name-key" with the seed 0, over the low eight bits of each code point, as pymemcache computes it.
fn scored(name: &str, key: &[u8]) -> u32 {
    let low = |letter: char| letter as u8;
    let name = name.chars().map(low).chain([b'-']);
    match std::str::from_utf8(key) {
        Ok(text) => murmur3(0, name.chain(text.chars().map(low))),
        // pymemcache has no such keys: each byte counts as a code point.
        Err(_) => murmur3(0, name.chain(key.iter().copied())),
    }
}
