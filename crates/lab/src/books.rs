//! Counts of a load on both sides: the generator's must equal the server's.

use crate::control::{Control, Counters, Family};
use crate::error::Error;
use crate::experiment::Checks;
use crate::tally::Tally;
use crate::workload::{Verb, Workload};

/// A figure in words, as the generator counted it, and as the server did.
type Figure = (&'static str, u64, u64);

/// Checks that all replies were right.
pub fn check_replies(checks: &mut Checks, whose: &str, tally: &Tally) {
    checks.add("every reply was the right one", tally.wrong == 0, || match &tally.first_wrong {
        Some(first) => format!("{whose}: {} wrong replies, the first: {first}", tally.wrong),
        None => format!("{whose}: {} requests", tally.requests),
    });
}

/// A value with this time to live still exists when it is read back right after the write.
pub const LIVES_S: u32 = 60;

/// Checks that the last writes of `workload` were there when they were read `back`, as [`check_back`] does. Values that may have
/// gone for other reasons are ignored.
pub fn check_kept(checks: &mut Checks, whose: &str, workload: &Workload, back: &Tally, evicted: Option<u64>) {
    let lives = workload.ttl_s == 0 || workload.ttl_s >= LIVES_S;
    if lives && !workload.mix.has(Verb::Delete) {
        check_back(checks, whose, back, evicted);
    }
}

/// Checks that written values were there when they were read `back`: all of them if the server reports no evictions meanwhile,
/// and some of them in any case.
pub fn check_back(checks: &mut Checks, whose: &str, back: &Tally, evicted: Option<u64>) {
    let Tally { hits, misses, .. } = *back;
    if hits + misses == 0 {
        return;
    }
    let readable = if evicted == Some(0) { misses == 0 } else { hits > 0 };
    checks.add("what was written can be read", readable, || {
        let evicted = evicted.map_or(String::new(), |items| format!(", {items} evicted"));
        format!("{whose}: {hits} of the {} keys that were written last{evicted}", hits + misses)
    });
}

/// How many items were evicted since `books` were opened; `None` if the server does not say.
///
/// # Errors
/// [`Error::Peer`] when the server does not answer.
pub fn evicted_since(books: Option<&Books>) -> Result<Option<u64>, Error> {
    Ok(books.map(Books::evicted).transpose()?.flatten())
}

/// A server's figures before a load.
#[derive(Debug)]
pub struct Books {
    control: Control,
    before: Counters,
}

impl Books {
    /// Reads the server's figures.
    ///
    /// # Errors
    /// [`Error::Peer`] when the server does not answer.
    pub fn open(control: &Control) -> Result<Books, Error> {
        Ok(Books { control: control.clone(), before: control.counters()? })
    }

    /// How many items were evicted since; `None` if the server does not say.
    ///
    /// # Errors
    /// [`Error::Peer`] when the server does not answer.
    pub fn evicted(&self) -> Result<Option<u64>, Error> {
        let after = self.control.counters()?;
        let grown = |name| Some(after.number(name)?.wrapping_sub(self.before.number(name)?));
        Ok(["evictions", "evicted_keys"].into_iter().find_map(grown))
    }

    /// Whether the server counts hits and misses at all.
    pub fn counts(&self) -> bool {
        ["get_hits", "keyspace_hits"].iter().any(|name| self.before.number(name).is_some())
    }

    /// Compares the server's counts since then with `tally`.
    ///
    /// # Errors
    /// [`Error::Peer`] when the server does not answer.
    pub fn compare(self, checks: &mut Checks, whose: &str, tally: &Tally) -> Result<(), Error> {
        check_replies(checks, whose, tally);
        let after = self.control.counters()?;
        let grown = |name| {
            let read = |counters: &Counters| counters.number(name).unwrap_or(0);
            read(&after).wrapping_sub(read(&self.before))
        };
        // Figures that every load is compared in, and figures that only some loads have; in words, by the lab, by the server.
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
        // Some servers count refused writes as writes, others do not.
        let known = |&(what, ..): &Figure| tally.refused == 0 || what != "writes";
        for (what, ours, theirs) in always.into_iter().chain(happened).filter(known) {
            checks.equal(&format!("the server counted the same {what}"), ours, theirs, whose);
        }
        Ok(())
    }
}
