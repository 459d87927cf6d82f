//! What the fleet, and all that is the same for blocking and async callers, needs of a connection.

use crate::error::Error;
use crate::op::Counters;
use larder_protocol::client::Dialect;
use std::fmt::Debug;
use std::time::Instant;

/// A connection that callers share.
pub trait Line: Debug + Send + Sync + 'static {
    /// Wakes callers that wait until another has made a connection.
    type Dialed: Debug + Default + Send + Sync;
    /// A caller's place on the connection.
    type Ticket: Debug;
    /// A server's connection for one caller at a time.
    type Alone: Debug + Default + Send + Sync;

    /// Whether the connection takes requests.
    fn is_alive(&self) -> bool;
    /// The dialect that is spoken.
    fn dialect(&self) -> Dialect;
    /// What it has done so far.
    fn counters(&self) -> Counters;
    /// Whether no call waits on the connection.
    fn is_idle(&self) -> bool;
    /// Fails everything that waits.
    fn close(&self, error: Error);
    /// Takes no new requests: the connection ends when all owed replies have arrived.
    fn retire(&self);
    /// Whether no caller has the connection for one caller.
    fn is_free(alone: &Self::Alone) -> bool;
    /// Ends the connection for one caller.
    fn end(alone: &Self::Alone);
    /// Wakes callers that wait for a connection.
    fn tell(dialed: &Self::Dialed);
    /// The time by its callers' clock.
    fn now() -> Instant;
}
