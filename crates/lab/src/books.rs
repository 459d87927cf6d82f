//! Both sides' counts of a load: what the generator counted must be what the server counted.

use crate::control::{Control, Counters, Family};
use crate::error::Error;
use crate::experiment::Checks;
use crate::tally::Tally;

/// In words, as we counted, as the server did.
type Figure = (&'static str, u64, u64);

/// Notes whether all replies were as they should be.
pub fn check_replies(checks: &mut Checks, whose: &str, tally: &Tally) {
    checks.add("every reply was the right one", tally.wrong == 0, || match &tally.first_wrong {
        Some(first) => format!("{whose}: {} wrong replies, the first: {first}", tally.wrong),
        None => format!("{whose}: {} requests", tally.requests),
    });
}

/// A server's figures before a load.
#[derive(Debug)]
pub struct Books {
    control: Control,
    before: Counters,
}

impl Books {
    /// Notes them.
    ///
    /// # Errors
    /// [`Error::Peer`] when the server does not answer.
    pub fn open(control: &Control) -> Result<Books, Error> {
        Ok(Books { control: control.clone(), before: control.counters()? })
    }

    /// The server counts hits and misses at all.
    pub fn counts(&self) -> bool {
        ["get_hits", "keyspace_hits"].iter().any(|name| self.before.number(name).is_some())
    }

    /// Holds what was counted since against `tally`.
    ///
    /// # Errors
    /// [`Error::Peer`] when the server does not answer.
    pub fn settle(self, checks: &mut Checks, whose: &str, tally: &Tally) -> Result<(), Error> {
        check_replies(checks, whose, tally);
        let after = self.control.counters()?;
        let grown = |name| {
            let read = |counters: &Counters| counters.number(name).unwrap_or(0);
            read(&after).wrapping_sub(read(&self.before))
        };
        // What every load is held against, and what only some do; in words, by us, by the server.
        let (always, where_any): (Vec<Figure>, Vec<Figure>) = match self.control.family {
            Family::Memcached => (
                vec![
                    ("hits", tally.hits, grown("get_hits")),
                    ("misses", tally.misses, grown("get_misses")),
                    ("writes", tally.stored + tally.swaps, grown("cmd_set")),
                ],
                vec![
                    ("deletes", tally.deleted, grown("delete_hits")),
                    ("additions", tally.counted, grown("incr_hits")),
                    ("swaps", tally.swapped, grown("cas_hits")),
                    ("refused swaps", tally.conflicts, grown("cas_badval")),
                    (
                        "changes of keys that are not there",
                        tally.absent,
                        grown("delete_misses") + grown("incr_misses") + grown("cas_misses"),
                    ),
                ],
            ),
            Family::Redis => {
                let mut always = vec![
                    ("hits", tally.hits, grown("keyspace_hits")),
                    ("misses", tally.misses, grown("keyspace_misses")),
                ];
                let called = |command| after.called_since(&self.before, command);
                // A server may count no commands.
                if let Some(sets) = called("set") {
                    always.push(("writes", tally.stored + tally.swapped, sets));
                }
                let some = [
                    ("deletes", tally.deleted + tally.absent, called("del")),
                    ("additions", tally.counted, called("incr")),
                    ("swaps", tally.swaps, called("exec")),
                ];
                let counted = some.into_iter().filter_map(|(what, ours, theirs)| Some((what, ours, theirs?)));
                (always, counted.collect())
            }
        };
        let happened = where_any.into_iter().filter(|(_, ours, theirs)| ours + theirs > 0);
        // Servers count a write that they refuse or do not, each in its own way.
        let known = |&(what, ..): &Figure| tally.refused == 0 || what != "writes";
        for (what, ours, theirs) in always.into_iter().chain(happened).filter(known) {
            checks.equal(&format!("the server counted the same {what}"), ours, theirs, whose);
        }
        Ok(())
    }
}
