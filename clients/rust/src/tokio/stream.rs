//! Writes that are not waited for one by one, async.
//!
//! A call that is dropped early has either taken and counted its write, or not: reports add up in any case.

use super::client::Client;
use super::dial;
use crate::error::Error;
use crate::fleet::Front;
use crate::pipe::Pipe;
use crate::stream::{Report, Sent, Stream, Streams, Window, Write};
use crate::ttl::Ttl;
use crate::wire::{Ask, Delete, Store};
use ::tokio::runtime::Handle;
use std::sync::Arc;

impl Client {
    /// Begins a stream: writes that are sent without waiting, and acknowledged later.
    pub fn stream(&self, window: Window) -> Stream<Client> {
        Stream::new(self.clone(), window, false)
    }

    /// Begins a stream of which the server answers only the writes that it refuses. With a server that speaks classic text, this
    /// is a [`Client::stream`].
    pub fn quiet(&self) -> Stream<Client> {
        self.quiet_within(Window::default())
    }

    /// [`Client::quiet`] with a window of its own.
    pub fn quiet_within(&self, window: Window) -> Stream<Client> {
        Stream::new(self.clone(), window, true)
    }
}

impl Streams for Client {
    fn leave(stream: &mut Stream<Client>) {
        stream.leave();
    }
}

impl Stream<Client> {
    /// Sends a set; waits while the window is full.
    ///
    /// # Errors
    /// [`Error::BadKey`], and then nothing is sent or counted.
    pub async fn set(&mut self, key: &[u8], value: &[u8], ttl: Ttl) -> Result<(), Error> {
        self.store(key, Store { value, exptime: ttl.exptime(), ..Store::default() }, None).await
    }

    /// Sends any store, with the token that the item must have. The item's new token is not reported.
    ///
    /// # Errors
    /// As [`Stream::set`].
    pub async fn store(&mut self, key: &[u8], store: Store<'_>, cas: Option<u64>) -> Result<(), Error> {
        self.send(key, Ask::Store(Store { want_cas: false, ..store }), cas).await
    }

    /// Sends a deletion.
    ///
    /// # Errors
    /// As [`Stream::set`].
    pub async fn delete(&mut self, key: &[u8]) -> Result<(), Error> {
        self.remove(key, Delete::default(), None).await
    }

    /// Sends any deletion, with the token that the item must have.
    ///
    /// # Errors
    /// As [`Stream::set`].
    pub async fn remove(&mut self, key: &[u8], delete: Delete, cas: Option<u64>) -> Result<(), Error> {
        self.send(key, Ask::Delete(delete), cas).await
    }

    /// Sends what is left, waits for all replies, and reports the results of everything since the last barrier.
    pub async fn barrier(&mut self) -> Report {
        for at in 0..self.groups() {
            self.flush(at).await;
        }
        while self.oldest().is_some() {
            self.finish_oldest().await;
        }
        self.reported()
    }

    async fn send(&mut self, key: &[u8], ask: Ask<'_>, cas: Option<u64>) -> Result<(), Error> {
        let (client, mut full) = (self.client().clone(), Vec::new());
        if self.is_old() {
            for at in 0..self.groups() {
                self.flush(at).await;
            }
            self.renew();
        }
        let list = Arc::clone(self.list());
        let mut write = Write::new(&client, &list, key, &mut full, ask, cas)?;
        loop {
            let at = self.at(&write);
            if self.is_in_the_way_of(&write) {
                self.flush(at).await;
            }
            let lane = match self.lane(at) {
                Some(lane) => Ok(lane),
                None => {
                    let server = list.server(write.server);
                    dial::lane(client.shared(), server, write.lane, client.deadline()).await
                }
            };
            if matches!(lane, Err(Error::Down(..))) && write.moves_on(&client, &list) {
                continue;
            }
            if self.add(&write, lane) {
                self.flush(at).await;
            }
            return Ok(());
        }
    }

    /// Sends what was collected for a lane, as soon as the window has room for it.
    async fn flush(&mut self, at: usize) {
        let Some(lane) = self.seal(at) else { return };
        while self.is_too_much(at) {
            self.finish_oldest().await;
        }
        let deadline = self.client().deadline();
        let (stream, mut memory) = (&*self, Vec::new());
        let push = |pipe: &mut Pipe, op, now| stream.push(at, pipe, op, now, deadline);
        let begun = lane.begin(deadline, &mut memory, push).await;
        self.pushed(at, begun);
    }

    /// Waits for the oldest group and counts its results.
    async fn finish_oldest(&mut self) {
        if let Some(Sent { ticket, .. }) = self.oldest() {
            let op = ticket.await;
            self.count_results(op);
        }
    }

    /// Called on drop: a task sends the rest and counts its results. Without a runtime, what was collected is sent, and all
    /// writes whose results are unknown are counted.
    fn leave(&mut self) {
        let Some(mut rest) = self.hand_on() else {
            // The task itself was dropped, with its runtime.
            return self.leave_unreported(self.unconfirmed());
        };
        match Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    let report = rest.barrier().await;
                    rest.leave_unreported(report.refused + report.unknown);
                });
            }
            Err(_) => rest.send_rest(),
        }
    }

    /// Sends what was collected, as far as there is room, without waiting.
    fn send_rest(&mut self) {
        let deadline = self.client().deadline();
        for at in 0..self.groups() {
            let Some(lane) = self.seal(at) else { continue };
            let push = |pipe: &mut Pipe, op, now| self.push(at, pipe, op, now, deadline);
            let begun = lane.try_begin(deadline, &mut Vec::new(), push);
            if let Some(begun) = begun {
                self.pushed(at, begun);
            }
        }
        self.leave_unreported(self.unconfirmed());
    }
}
