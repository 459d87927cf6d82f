//! A client's line of CLIENT LIST, which ACL LOG shows of it, too.

use std::sync::atomic::Ordering::Relaxed;

use larder_store::Millis;

use super::facts::ClientFacts;
use super::table;

/// What is known of a client, with the name of its last command.
pub(crate) fn client_line(facts: &ClientFacts, now: Millis) -> String {
    facts.line(table::name_of(facts.row.load(Relaxed)), now)
}
