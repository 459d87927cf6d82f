//! RESP clients for which more waits than `client-output-buffer-limit` says: closed at once, or when it
//! has been so for some seconds.
//!
//! They are looked at when a send leaves something behind, so that connections whose peers read cost nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_commands::OutputLimit;
use larder_eventloop::{Backend, Closed, EventLoop};
use larder_store::Millis;

use crate::table::ConnectionFacts;
use crate::worker::{Connection, Service};

/// A connection above its soft limit, or its hard one.
#[derive(Debug)]
pub(crate) struct Above {
    facts: Arc<ConnectionFacts>,
    /// When it is to be closed.
    at: Millis,
}

/// The connections of a worker that are above their limits.
#[derive(Debug, Default)]
pub(crate) struct Overflow(Vec<Above>);

impl Overflow {
    /// Notes that a send left so many bytes of a connection behind.
    pub fn left_behind(&mut self, facts: &Arc<ConnectionFacts>, bytes: u64, limit: OutputLimit, now: Millis) {
        let above = |max: u64| max > 0 && bytes > max;
        let known = self.0.iter().position(|above| Arc::ptr_eq(&above.facts, facts));
        let at = match (above(limit.hard_bytes), above(limit.soft_bytes)) {
            (true, _) => now,
            (false, true) => now + limit.soft_ms,
            (false, false) => {
                if let Some(known) = known {
                    self.0.swap_remove(known);
                }
                return;
            }
        };
        match known {
            // The time goes on from when it first was above.
            Some(known) => self.0[known].at = self.0[known].at.min(at),
            None => self.0.push(Above { facts: Arc::clone(facts), at }),
        }
    }

    /// True if there are any.
    #[inline]
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Takes one whose time has come.
    fn due(&mut self, now: Millis) -> Option<Arc<ConnectionFacts>> {
        let at = self.0.iter().position(|above| above.at <= now)?;
        Some(self.0.swap_remove(at).facts)
    }
}

impl Service {
    /// Closes connections whose time above their limits is over; true while others are above theirs.
    pub(crate) fn cut<B: Backend>(&mut self, events: &mut EventLoop<B, Connection>) -> bool {
        while let Some(facts) = self.overflow.due(events.now()) {
            let index = (facts.place() & u64::from(u32::MAX)) as usize;
            // It may have ended since, and another have its place.
            if let Some(id) = events.id_at(index)
                && events.state(id).is_some_and(|connection| Arc::ptr_eq(&connection.facts, &facts))
            {
                self.hub().tally.listeners_cut.fetch_add(1, Relaxed);
                events.close(self, id, Closed::Shed);
            }
        }
        self.overflow.any()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_eventloop::socket::Address;

    #[test]
    fn hard_limit_is_due_at_once_and_soft_one_after_its_time_unless_it_sinks() {
        let facts = || Arc::new(ConnectionFacts::new(Address::Unix("/x".into()), 0, 0));
        let limit = OutputLimit { hard_bytes: 100, soft_bytes: 50, soft_ms: 1000 };
        let (one, two, three) = (facts(), facts(), facts());
        let mut overflow = Overflow::default();
        overflow.left_behind(&one, 100, limit, 5);
        overflow.left_behind(&two, 60, limit, 5);
        overflow.left_behind(&three, 50, limit, 5);
        assert!(overflow.due(1004).is_none());
        overflow.left_behind(&one, 101, limit, 500);
        assert!(Arc::ptr_eq(&overflow.due(500).expect("above the hard limit"), &one));
        overflow.left_behind(&two, 70, limit, 900);
        assert!(Arc::ptr_eq(&overflow.due(1005).expect("above the soft limit for a second"), &two));
        assert!(!overflow.any());
        overflow.left_behind(&two, 70, limit, 2000);
        overflow.left_behind(&two, 50, limit, 2500);
        assert!(!overflow.any());
        overflow.left_behind(&two, u64::MAX, OutputLimit::default(), 2500);
        assert!(!overflow.any(), "0 is no limit");
    }
}
