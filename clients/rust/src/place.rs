//! Placement: which server a key belongs to, by the rules of other clients, so that clients can be migrated one by one.
//!
//! Placement uses a server's name as configured, never a resolved address. A ring has points (value, server), sorted by value,
//! then by server. A key belongs to the first point at or behind its hash, and beyond the last point to the first.
//! `clients/vectors.txt` has the placement by other clients of a thousand keys each.

use crate::hashes::{fnv1a_64, jenkins, md5_first, murmur, murmur3, oaat, of_length};
use crate::server::Server;
use crate::xxh3::xxh3;
use md5::{Digest, Md5};
use sha1::Sha1;

/// Most that all weights of an xmemcached ring are together: it has 160 points for each 1.
const XMEMCACHED_WEIGHTS_MAX: u64 = 1000;

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
    /// The default of memcached's built-in proxy.
    JumpXxh3,
    /// The ring of memcached's built-in proxy, with its default mode and hash.
    ProxyRing,
    /// xmemcached's ketama. If xmemcached resolved the host, or found a name for the address, the server's name is
    /// host/address:port. A server's points grow with its own weight, whatever the others' are, and all weights add up to 1,000
    /// at most.
    XmemcachedKetama,
}

/// All presets, by the names that configurations use.
const NAMES: [(&str, Preset); 21] = [
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
    ("jump-xxh3", Preset::JumpXxh3),
    ("proxy-ring", Preset::ProxyRing),
    ("xmemcached-ketama", Preset::XmemcachedKetama),
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
            | Preset::Dalli
            | Preset::XmemcachedKetama => true,
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
            | Preset::RendezvousMurmur3
            | Preset::JumpXxh3
            | Preset::ProxyRing => false,
        }
    }

    fn hash(self, key: &[u8]) -> u32 {
        match self {
            Preset::Ketama
            | Preset::KetamaFullPort
            | Preset::LibmemcachedSpy
            | Preset::LibmemcachedConsistentMd5
            | Preset::LibmemcachedConsistentMd5Late
            | Preset::XmemcachedKetama
            | Preset::ModulaMd5 => md5_first(key),
            Preset::TwemproxyFnv1a64 | Preset::ModulaFnv1a64 => fnv1a_64(key),
            Preset::LibmemcachedConsistent | Preset::ModulaOaat => oaat(key),
            Preset::ModulaMurmur => murmur(key),
            Preset::ModulaMurmur3 => murmur3(of_length(key), key.iter().copied()),
            Preset::ModulaJenkins => jenkins(key),
            Preset::ModulaCrc32 | Preset::Dalli => crc32fast::hash(key),
            Preset::ModulaCrc15 | Preset::TwemproxyModulaCrc15 => crc32fast::hash(key) >> 16 & 0x7fff,
            Preset::ProxyRing => xxh3_low(key),
            Preset::JumpXxh3 | Preset::RendezvousMurmur3 => 0,
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
    /// Jump hash over this many servers.
    Jump(usize),
}

/// A preset over a list of servers. It never changes.
#[derive(Debug)]
pub struct Placement {
    preset: Preset,
    rule: Rule,
}

impl Placement {
    /// # Errors
    /// There is no server, one has the weight 0, there are weights with a preset that has none, or more than it may have.
    pub fn new(preset: Preset, servers: &[Server]) -> Result<Placement, String> {
        let Some(first) = servers.first() else { return Err("there is no server".to_owned()) };
        if let Some(server) = servers.iter().find(|server| server.weight == 0) {
            return Err(format!("{} weighs nothing", server.name()));
        }
        if !preset.knows_weights() && servers.iter().any(|server| server.weight != first.weight) {
            return Err(format!("{} knows no weights", preset.name()));
        }
        let weights: u64 = servers.iter().map(|server| u64::from(server.weight)).sum();
        if preset == Preset::XmemcachedKetama && weights > XMEMCACHED_WEIGHTS_MAX {
            return Err(format!("the weights are more than {XMEMCACHED_WEIGHTS_MAX} together"));
        }
        let short = |server: &Server| short_name(server.name()).to_owned();
        let library = |server: &Server| library_name(server.name());
        let slash = |server: &Server| match host_and_port(server.name()) {
            Some((host, port)) => format!("/{host}:{port}"),
            None => format!("/{}", server.name()),
        };
        let bare = |server: &Server| match host_and_port(server.name()) {
            Some((host, port)) => format!("{host}:{port}"),
            None => server.name().to_owned(),
        };
        let rule = match preset {
            _ if servers.len() == 1 => Rule::One,
            Preset::Ketama => Rule::Ring(ketama(servers, library)),
            Preset::TwemproxyFnv1a64 => Rule::Ring(ketama(servers, short)),
            Preset::KetamaFullPort => Rule::Ring(ketama(servers, |server| server.name().to_owned())),
            Preset::LibmemcachedSpy => Rule::Ring(ketama(servers, slash)),
            Preset::LibmemcachedConsistent | Preset::LibmemcachedConsistentMd5Late => {
                Rule::Ring(hashed(servers, 100, library, oaat))
            }
            Preset::LibmemcachedConsistentMd5 => Rule::Ring(hashed(servers, 100, library, md5_first)),
            Preset::ProxyRing => Rule::Ring(hashed(servers, 160, bare, xxh3_low)),
            Preset::XmemcachedKetama => Rule::Ring(xmemcached(servers)),
            Preset::JumpXxh3 => Rule::Jump(servers.len()),
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
            Rule::Jump(servers) => jump(xxh3(key), *servers),
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
            points.extend(md5_words(&format!("{}-{i}", name(server))).map(|word| (word, at)));
        }
    }
    points.sort_unstable();
    points
}

/// Four points of each MD5 of name-i, 40 of these for each 1 of a server's weight. The name is as Java shows an address: the
/// host's name, which may be missing, a slash, and the address with its port.
fn xmemcached(servers: &[Server]) -> Vec<(u32, usize)> {
    let mut points = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        let slash = if server.name().contains('/') { "" } else { "/" };
        for i in 0..40 * server.weight {
            let name = format!("{slash}{}-{i}", server.name());
            points.extend(md5_words(&name).map(|word| (word, at)));
        }
    }
    points.sort_unstable();
    points
}

/// The MD5 of a text, as four numbers.
fn md5_words(text: &str) -> [u32; 4] {
    let sum = Md5::digest(text);
    [0, 4, 8, 12].map(|at| u32::from_le_bytes([sum[at], sum[at + 1], sum[at + 2], sum[at + 3]]))
}

/// Returns `count` points for each server: the ith is the hash of `name-i`.
fn hashed(
    servers: &[Server],
    count: u32,
    name: impl Fn(&Server) -> String,
    hash: impl Fn(&[u8]) -> u32,
) -> Vec<(u32, usize)> {
    let mut points = Vec::new();
    for (at, server) in servers.iter().enumerate() {
        let name = name(server);
        points.extend((0..count).map(|i| (hash(format!("{name}-{i}").as_bytes()), at)));
    }
    points.sort_unstable();
    points
}

/// The low half of the XXH3.
fn xxh3_low(key: &[u8]) -> u32 {
    xxh3(key) as u32
}

/// Lamping's and Veach's jump hash: which of so many buckets, of which there is one at least, a hash has.
fn jump(mut hash: u64, buckets: usize) -> usize {
    let (mut bucket, mut next) = (0, 0);
    while next < buckets as u64 {
        bucket = next;
        hash = hash.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let stride = (1_u64 << 31) as f64 / ((hash >> 33) + 1) as f64;
        next = ((bucket + 1) as f64 * stride) as u64;
    }
    bucket as usize
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_jumps_among_buckets_as_it_does_elsewhere() {
        for (hash, buckets, bucket) in [
            (0, 1, 0),
            (0, 2, 0),
            (1, 10, 6),
            (0xdead_beef, 10, 5),
            (u64::MAX, 10, 9),
            (u64::MAX, 1000, 313),
            (0xfedc_ba98_7654_3210, 1000, 143),
        ] {
            assert_eq!(jump(hash, buckets), bucket, "{hash} of {buckets}");
        }
    }

    #[test]
    fn weights_of_an_xmemcached_ring_are_bounded_together() {
        let placed = |weight| {
            let servers = [Server::from("a:1"), Server { weight, ..Server::from("b:1") }];
            Placement::new(Preset::XmemcachedKetama, &servers).map(|placement| match placement.rule {
                Rule::Ring(points) => points.len(),
                other => panic!("{other:?}"),
            })
        };
        let wrong = || Err("the weights are more than 1000 together".to_owned());
        assert_eq!([998, 999, 1000].map(placed), [Ok(160 * 999), Ok(160 * 1000), wrong()]);
        assert_eq!(placed(u32::MAX), wrong());
    }
}
