//! Requests that are legal and small, but whose replies or whose working memory would be large: `-m` bounds the process beside
//! each of them, at every moment. The cache is full, so that no memory is left over for uses that are not charged.
//! docs/operating.md has the table of the uses that are charged.

mod collections;
mod crowd;
mod replies;
mod scratch;
mod scripts;

use larder_testkit::bounded::{Bounded, number, random};
use larder_testkit::client::Client;

const MEGABYTES: u64 = 64;
/// The error where connections hold as much as they may; the kind of the error stands in front of it.
const HELD: &str = "-OOM connections hold as much memory as they may";

/// A full cache of 64 MB.
fn full() -> (Bounded, Client) {
    full_of(MEGABYTES)
}

/// A full cache of this many megabytes.
fn full_of(megabytes: u64) -> (Bounded, Client) {
    let bounded = Bounded::start(megabytes, &["-t", "2", "--enable-debug-command", "yes"]);
    let mut client = bounded.client();
    let items = megabytes as usize * 90_000 / MEGABYTES as usize;
    bounded.fill(&mut client, "k", random(2000).take(items), "a full cache");
    assert!(number(&mut client, "evictions") > 0);
    (bounded, client)
}
