//! Batches, async: lanes are dialed and given their requests one after another, then all replies are awaited.

use super::client::Client;
use super::dial;
use super::lane::Lane;
use crate::batch::{Batch, Begun, Done, Path};
use crate::fleet::{Front, Server};
use crate::line::Line;
use std::sync::Arc;
use std::time::Instant;

impl Client {
    /// Begins a batch: requests that are sent together and acknowledged together.
    pub fn batch(&self) -> Batch<Client> {
        Batch::new(self.clone())
    }
}

impl Batch<Client> {
    /// Sends all requests and waits for all replies. Each request has its own result. A run that is dropped gives up what it has
    /// sent, and leaves the batch empty.
    pub async fn run(&mut self) -> Done<'_, Client> {
        let (deadline, began) = (self.client().deadline(), self.client().fleet().begins());
        let done = Done::begin(self);
        let batch = &mut *done.batch;
        // All lanes get their requests before the first reply is awaited.
        let mut begun = Vec::new();
        let (list, mut paths) = batch.paths();
        while let Some(Path { server, at, mine }) = paths.pop_front() {
            match dial::lane(batch.client().shared(), &server, at, deadline).await {
                Ok(lane) => batch.begin(&server, &mine, &lane, deadline, &mut begun).await,
                Err(error) => paths.extend(batch.instead(&list, &mine, &error)),
            }
        }
        for Begun { mine, server, ticket, .. } in begun {
            let op = ticket.await;
            if let Some(error) = &op.error {
                batch.client().fleet().note(&server, error);
            }
            batch.take(&mine, &server.name, op);
        }
        batch.ended(began);
        done
    }

    /// Pushes the requests of one lane, in parts for which it has room.
    async fn begin(
        &mut self,
        server: &Arc<Server<Lane>>,
        mine: &[u32],
        lane: &Arc<Lane>,
        deadline: Instant,
        begun: &mut Vec<Begun<Lane>>,
    ) {
        let mine = self.fitting(mine, lane.dialect());
        let mut rest = mine.as_slice();
        while !rest.is_empty() {
            let (part, mut pushed) = (self.part(rest), 0);
            let mut memory = std::mem::take(self.memory());
            let batch = &*self;
            let pushing = lane.begin(deadline, &mut memory, |pipe, op, now| {
                pushed = batch.push(part, pipe, op, now, deadline)?;
                Ok(pushed)
            });
            let begins = pushing.await;
            match begins {
                Ok(ticket) => {
                    let (pushed, others) = rest.split_at(pushed as usize);
                    let (mine, server, lane) = (pushed.to_vec(), Arc::clone(server), Arc::clone(lane));
                    begun.push(Begun { mine, server, lane, ticket });
                    rest = others;
                }
                Err(error) => {
                    *self.memory() = memory;
                    return self.tell(rest, &error);
                }
            }
        }
    }
}
