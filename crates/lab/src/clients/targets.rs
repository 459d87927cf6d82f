//! The targets of Larder's own clients, and the original article's figures.

use super::roster::{BY_HAND, Client, FACADE, GOMEMCACHE, GOMEMCACHE_POOL, OWN};
use super::visit::{Callers, Op};
use crate::driver::build::Language;

/// Bytes of the original article's value, "unko".
pub const ARTICLE_BYTES: usize = 4;
/// Bytes of the values of most targets.
const USUAL_BYTES: usize = 100;
/// Bytes of a large value.
pub const LARGE_BYTES: usize = 300_000;
/// Clients of the original article, and Larder's beside them.
pub const ARTICLE_CLIENTS: [&str; 4] = [GOMEMCACHE, "rainycape", BY_HAND, OWN];
/// Its figures for a set and a get: client, ns, bytes, allocations; the middle of its three runs.
pub const ARTICLE: [(&str, [f64; 3]); 3] = [
    (GOMEMCACHE, [62_850.0, 3_169.0, 60.0]),
    ("rainycape", [64_663.0, 208.0, 7.0]),
    (BY_HAND, [33_910.0, 96.0, 6.0]),
];

/// A figure of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// CPU time of a call, over that of another client in the same round.
    CpuOver(&'static str),
    /// CPU time of a call, in µs.
    Cpu,
    /// Allocations of a call.
    Allocations,
    /// Connections.
    Connections,
    /// Writes of a call.
    Writes,
    /// System calls of a call.
    Syscalls,
}

impl Figure {
    /// The client whose figure is the base of the ratio, if it is one.
    fn over(self) -> Option<&'static str> {
        match self {
            Figure::CpuOver(other) => Some(other),
            Figure::Cpu | Figure::Allocations | Figure::Connections | Figure::Writes | Figure::Syscalls => {
                None
            }
        }
    }
}

/// A figure and the most that it may be.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The language.
    pub language: Language,
    /// The client.
    pub client: &'static str,
    /// The kind of call.
    pub op: Op,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// The callers.
    pub callers: Callers,
    /// The figure.
    pub figure: Figure,
    /// The largest allowed value.
    pub most: f64,
}

const fn go(client: &'static str, op: Op, callers: u64, figure: Figure, most: f64) -> Target {
    let callers = Callers::Steady(callers);
    Target { language: Language::Go, client, op, value_bytes: USUAL_BYTES, callers, figure, most }
}

const fn burst(figure: Figure, most: f64) -> Target {
    Target { callers: Callers::Burst(256), ..go(OWN, Op::Hit, 256, figure, most) }
}

const fn c(op: Op, figure: Figure, most: f64) -> Target {
    Target { language: Language::C, ..go(OWN, op, 1, figure, most) }
}

const fn rust(op: Op, figure: Figure, most: f64) -> Target {
    Target { language: Language::Rust, ..go(OWN, op, 1, figure, most) }
}

/// A batch of sets: one call, with a result for each.
const fn together(language: Language) -> Target {
    Target { language, ..go(OWN, Op::Sets, 1, Figure::CpuOver(BY_HAND), 1.2) }
}

/// A set of a large value.
const fn large(language: Language) -> Target {
    Target { language, value_bytes: LARGE_BYTES, ..go(OWN, Op::Set, 1, Figure::CpuOver(BY_HAND), 1.10) }
}

/// What the runtime itself may add to a count, now and then.
pub const ALMOST: f64 = 0.01;

/// All targets.
pub const TARGETS: &[Target] = &[
    go(OWN, Op::Hit, 1, Figure::Allocations, 0.0),
    go(OWN, Op::Set, 1, Figure::Allocations, 0.0),
    go(OWN, Op::Many, 1, Figure::Allocations, 0.0),
    go(FACADE, Op::Hit, 1, Figure::Allocations, 2.0),
    // The allocation is the caller's own Item.
    go(FACADE, Op::Set, 1, Figure::Allocations, 1.0),
    go(OWN, Op::Hit, 1, Figure::CpuOver(BY_HAND), 1.10),
    go(OWN, Op::Set, 1, Figure::CpuOver(BY_HAND), 1.10),
    go(OWN, Op::Hit, 16, Figure::CpuOver(GOMEMCACHE_POOL), 1.0 / 3.0),
    go(OWN, Op::Set, 16, Figure::CpuOver(GOMEMCACHE_POOL), 1.0 / 3.0),
    go(OWN, Op::Hit, 16, Figure::CpuOver("rueidis"), 0.5),
    go(OWN, Op::Set, 16, Figure::CpuOver("rueidis"), 0.5),
    go(OWN, Op::Hit, 256, Figure::CpuOver(GOMEMCACHE_POOL), 1.0 / 8.0),
    go(OWN, Op::Set, 256, Figure::CpuOver(GOMEMCACHE_POOL), 1.0 / 8.0),
    go(OWN, Op::Hit, 256, Figure::CpuOver("rueidis"), 0.5),
    go(OWN, Op::Set, 256, Figure::CpuOver("rueidis"), 0.5),
    go(OWN, Op::Hit, 16, Figure::Writes, 0.25),
    go(OWN, Op::Hit, 256, Figure::Writes, 0.06),
    c(Op::Hit, Figure::Allocations, 0.0),
    c(Op::Set, Figure::Allocations, 0.0),
    c(Op::Hit, Figure::CpuOver(BY_HAND), 1.05),
    c(Op::Set, Figure::CpuOver(BY_HAND), 1.05),
    c(Op::Hit, Figure::Syscalls, 2.0),
    c(Op::Set, Figure::Syscalls, 2.0),
    rust(Op::Hit, Figure::Allocations, 0.0),
    rust(Op::Set, Figure::Allocations, 0.0),
    rust(Op::Hit, Figure::CpuOver(BY_HAND), 1.05),
    rust(Op::Set, Figure::CpuOver(BY_HAND), 1.05),
    rust(Op::Hit, Figure::Syscalls, 2.0),
    rust(Op::Set, Figure::Syscalls, 2.0),
    together(Language::Go),
    together(Language::C),
    together(Language::Rust),
    large(Language::Go),
    large(Language::C),
    large(Language::Rust),
    burst(Figure::Connections, 1.0),
    burst(Figure::Cpu, 5.0),
];

impl Target {
    /// The target in words.
    pub fn words(&self) -> String {
        let what = match self.figure {
            Figure::CpuOver(other) => format!("client CPU over that of {other}"),
            Figure::Cpu => "client CPU, µs".to_owned(),
            Figure::Allocations => "allocations".to_owned(),
            Figure::Connections => "connections".to_owned(),
            Figure::Writes => "writes of a call".to_owned(),
            Figure::Syscalls => "system calls".to_owned(),
        };
        let Target { language, client, op, value_bytes, callers, .. } = self;
        let large = if *value_bytes == USUAL_BYTES { String::new() } else { format!(" of {value_bytes} B") };
        format!("{}: {client}, {}{large}, {callers} callers: {what}", language.name(), op.name())
    }

    /// Whether a target is about large sets of this client, or compares with them.
    pub fn sets_large(client: &Client) -> bool {
        let is_it = |target: &Target| {
            let by = [Some(target.client), target.figure.over()];
            let (bytes, language) = (target.value_bytes, target.language);
            (bytes, language) == (LARGE_BYTES, client.language) && by.contains(&Some(client.name))
        };
        TARGETS.iter().any(is_it)
    }

    /// Whether a figure meets the target.
    pub fn is_met(&self, figure: f64) -> bool {
        let counted = matches!(self.figure, Figure::Allocations | Figure::Syscalls);
        figure <= self.most + if counted { ALMOST } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::roster::CLIENTS;
    use super::*;

    #[test]
    fn targets_have_words_of_their_own_and_large_sets_are_of_those_that_they_hold() {
        let words: Vec<String> = TARGETS.iter().map(Target::words).collect();
        for (at, one) in words.iter().enumerate() {
            assert!(!words[..at].contains(one), "{one}");
        }
        let large = "rust: larder, set of 300000 B, 1 callers: client CPU over that of by hand";
        let sets = "c: larder, sets, 1 callers: client CPU over that of by hand";
        assert!([large, sets].iter().all(|wanted| words.iter().any(|have| have == wanted)), "{words:#?}");
        let names: Vec<String> =
            CLIENTS.iter().filter(|client| Target::sets_large(client)).map(Client::full_name).collect();
        let expected =
            ["go: larder", "go: by hand", "c: larder", "c: by hand", "rust: larder", "rust: by hand"];
        assert_eq!(names, expected);
        // Both clients of a comparison have a call for a batch of sets.
        for target in TARGETS.iter().filter(|target| target.op == Op::Sets) {
            let of = |name| {
                let is_it = |client: &&Client| (client.language, client.name) == (target.language, name);
                CLIENTS.iter().find(is_it).is_some_and(Client::sets_several)
            };
            assert!(of(target.client) && target.figure.over().is_none_or(of), "{}", target.words());
        }
    }
}
