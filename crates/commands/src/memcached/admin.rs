//! Administrative commands: everything that is a whole line and names no item.

mod control;
mod crawler;
mod lru;
mod slabs;
mod stats;

pub(crate) use control::{
    VERBOSITY_MAX, cache_memlimit, debugtime, flush, flush_all, quit, refresh_certs, shutdown, verbosity,
    version,
};
pub(crate) use crawler::lru_crawler;
pub(crate) use lru::lru;
pub(crate) use slabs::slabs;
pub(crate) use stats::stats;
