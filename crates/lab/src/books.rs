//! Both sides' counts of a load: what the generator counted must be what the server counted.

use crate::control::{Control, Counters, Family};
use crate::error::Error;
use crate::experiment::Checks;
use crate::tally::Tally;

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

    /// Holds what was counted since against `tally`.
    ///
    /// # Errors
    /// [`Error::Peer`] when the server does not answer.
    pub fn settle(self, checks: &mut Checks, whose: &str, tally: &Tally) -> Result<(), Error> {
        checks.add("every reply was the right one", tally.wrong == 0, || match &tally.first_wrong {
            Some(first) => format!("{whose}: {} wrong, the first: {first}", tally.wrong),
            None => format!("{whose}: {} requests", tally.requests),
        });
        let after = self.control.counters()?;
        let grown = |name| {
            let read = |counters: &Counters| counters.number(name).unwrap_or(0);
            read(&after).wrapping_sub(read(&self.before))
        };
        let (hits, misses, sets) = match self.control.family {
            Family::Memcached => (grown("get_hits"), grown("get_misses"), grown("cmd_set")),
            Family::Redis => {
                let sets = after.calls("set").wrapping_sub(self.before.calls("set"));
                (grown("keyspace_hits"), grown("keyspace_misses"), sets)
            }
        };
        checks.equal("the server counted the same hits", tally.hits, hits, whose);
        checks.equal("the server counted the same misses", tally.misses, misses, whose);
        checks.equal("the server counted the same writes", tally.stored, sets, whose);
        Ok(())
    }
}
