//! Data that several clients change together, and the results that it must have.

use std::collections::BTreeSet;

use crate::world::bank::Bank;
use crate::world::queues::Queues;
use crate::world::shared::Shared;

/// A number that many clients add to.
#[derive(Debug, Default)]
pub struct Counter {
    /// Sum of acknowledged additions.
    pub sure: u64,
    /// Sum of requested additions.
    pub asked: u64,
    /// Sum of additions whose connections ended before the reply.
    pub unsure: u64,
    /// Replies to additions: no two are equal.
    answers: BTreeSet<u64>,
}

impl Counter {
    /// Notes the reply to an addition; `before`: the acknowledged sum when it was requested.
    pub fn answered(&mut self, number: u64, by: u64, before: u64) -> Result<(), String> {
        if number < before + by || number > self.asked {
            return Err(format!(
                "a counter says {number} after {by} more: {before} were there, {} are",
                self.asked
            ));
        }
        if !self.answers.insert(number) {
            return Err(format!("two additions were answered {number}"));
        }
        self.sure += by;
        Ok(())
    }

    /// True if the number is possible at the end.
    pub fn agrees(&self, number: u64) -> bool {
        (self.sure..=self.sure + self.unsure).contains(&number)
    }
}

/// Messages of one publisher, numbered from 0.
#[derive(Debug, Default)]
pub struct Channel {
    /// The number of the next one.
    pub next: u64,
    /// Messages below this one were published, or are unsure.
    pub sure: u64,
    /// Messages whose connections ended before the reply.
    unsure: BTreeSet<u64>,
}

impl Channel {
    pub fn published(&mut self, number: u64) {
        self.sure = self.sure.max(number + 1);
    }

    pub fn left(&mut self, number: u64) {
        self.unsure.insert(number);
    }

    /// How many messages were surely published, and how many at most.
    pub fn bounds(&self) -> (u64, u64) {
        (self.next - self.unsure.len() as u64, self.next)
    }

    /// True if perhaps none of these messages was published.
    pub fn may_be_missing(&self, mut numbers: std::ops::Range<u64>) -> bool {
        numbers.all(|number| self.unsure.contains(&number))
    }

    /// The text of a message.
    pub fn message(name: &str, number: u64) -> Vec<u8> {
        let bytes = if number.is_multiple_of(7) { 3000 } else { 20 };
        larder_testkit::proof::value(name, number, bytes)
    }
}

/// Bytes of all connections, as they are before encryption.
#[derive(Debug, Default)]
pub struct Bytes {
    /// Sent by clients.
    pub sent: u64,
    /// Of these, bytes on connections that ended before the reply to them.
    pub unsure: u64,
    /// Received by clients.
    pub received: u64,
}

/// All data that clients share.
#[derive(Debug, Default)]
pub struct Books {
    pub counters: Vec<Counter>,
    /// Numbers that clients read, and then write unless they have changed meanwhile.
    pub contests: Vec<Counter>,
    /// Keys that are lent to owners, by owner.
    pub lent: Vec<Counter>,
    /// Money that scripts move.
    pub bank: Bank,
    /// Lists to which clients push, and for which they wait.
    pub queues: Queues,
    /// Collections that several clients write.
    pub shared: Shared,
    /// Each owner's channel.
    pub channels: Vec<Channel>,
    /// Reads that found a value gone that only eviction can have removed.
    pub lost: u64,
    /// Connections that the server closed without a reason but lack of memory.
    pub closed: u64,
    /// What clients have sent and received.
    pub bytes: Bytes,
    /// Number of replies, for the test's output.
    pub replies: u64,
    /// Number of TLS connections that were begun.
    pub tls_begun: u64,
    /// TLS connections on which replies came. `resumed`: those of them that resumed a session.
    pub tls: u64,
    pub resumed: u64,
}

/// The name of a shared counter.
pub fn counter_name(counter: usize) -> String {
    format!("count-{counter}")
}

/// The name of a contended key.
pub fn contest_name(key: usize) -> String {
    format!("contest-{key}")
}
