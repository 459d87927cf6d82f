//! What Larder's own clients are to reach, and the original article's figures.

use super::roster::{BY_HAND, FACADE, GOMEMCACHE, GOMEMCACHE_POOL, OWN};
use super::visit::{Callers, Op};
use crate::driver::build::Language;

/// Bytes of the original article's value, "unko".
pub const ARTICLE_BYTES: usize = 4;
/// Clients of the original article, and ours beside them.
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

/// A figure and the most that it may be.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Whose.
    pub language: Language,
    /// Which client.
    pub client: &'static str,
    /// Of which call.
    pub op: Op,
    /// By how many.
    pub callers: Callers,
    /// What.
    pub figure: Figure,
    /// The most.
    pub most: f64,
}

const fn go(client: &'static str, op: Op, callers: u64, figure: Figure, most: f64) -> Target {
    Target { language: Language::Go, client, op, callers: Callers::Steady(callers), figure, most }
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

/// What a runtime's own may add to a count, now and then.
pub const ALMOST: f64 = 0.01;

/// All of them.
pub const TARGETS: &[Target] = &[
    go(OWN, Op::Hit, 1, Figure::Allocations, 0.0),
    go(OWN, Op::Set, 1, Figure::Allocations, 0.0),
    go(OWN, Op::Many, 1, Figure::Allocations, 0.0),
    go(FACADE, Op::Hit, 1, Figure::Allocations, 2.0),
    // The caller's own Item.
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
    burst(Figure::Connections, 1.0),
    burst(Figure::Cpu, 5.0),
];

impl Target {
    /// In words.
    pub fn words(&self) -> String {
        let what = match self.figure {
            Figure::CpuOver(other) => format!("client CPU over that of {other}"),
            Figure::Cpu => "client CPU, µs".to_owned(),
            Figure::Allocations => "allocations".to_owned(),
            Figure::Connections => "connections".to_owned(),
            Figure::Writes => "writes of a call".to_owned(),
            Figure::Syscalls => "system calls".to_owned(),
        };
        let Target { language, client, op, callers, .. } = self;
        format!("{}: {client}, {}, {callers} callers: {what}", language.name(), op.name())
    }

    /// Whether a figure is within it.
    pub fn is_met(&self, figure: f64) -> bool {
        let counted = matches!(self.figure, Figure::Allocations | Figure::Syscalls);
        figure <= self.most + if counted { ALMOST } else { 0.0 }
    }
}
