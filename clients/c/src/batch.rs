//! Batches: requests that are sent together, and their results.

use crate::asks::Asked;
use crate::failure::{Failure, wrong};
use crate::lives::Life;
use crate::shapes::Status;
use larder_client::{Error, Fault, Reply};

/// A batch, and how many requests it has.
#[derive(Debug)]
pub struct Batch {
    batch: larder_client::Batch,
    /// How many requests its last run had.
    ran: usize,
}

impl Batch {
    pub fn new(life: &Life) -> Batch {
        Batch { batch: life.client.batch(), ran: 0 }
    }

    /// Adds a request and returns its number.
    pub fn add(&mut self, asked: &Asked<'_>) -> usize {
        self.batch.request(asked.key, asked.ask, asked.cas)
    }

    /// Sends all requests and waits for all replies.
    ///
    /// # Errors
    /// The error of the first request that was not answered.
    pub fn run(&mut self) -> Result<Status, Failure> {
        self.ran = self.batch.len();
        drop(self.batch.run());
        let error =
            (0..self.ran).find_map(|at| self.reply(at).err().filter(|error| error.fault() != Fault::Answer));
        error.map_or(Ok(Status::OK), |error| Err(error.clone().into()))
    }

    fn reply(&self, at: usize) -> Result<(Reply, &[u8]), &Error> {
        self.batch.reply(at).expect("the last run had it")
    }

    /// The result of a request in the last run, and its value.
    ///
    /// # Errors
    /// The error of that request.
    pub fn result(&self, at: usize) -> Result<(Status, Reply, &[u8]), Failure> {
        if at >= self.ran {
            return wrong("the last run had no such request");
        }
        let (reply, value) = self.reply(at).map_err(|error| Failure::from(error.clone()))?;
        Ok((if reply.found { Status::OK } else { Status::MISS }, reply, value))
    }
}
