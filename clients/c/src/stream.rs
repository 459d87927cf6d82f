//! Writes that are not waited for one by one.

use crate::asks::Asked;
use crate::failure::{Failure, wrong};
use crate::lives::Life;
use crate::shapes::{self, Status};
use larder_client::wire::Ask;
use larder_client::{Refused, Window};

/// A stream, and the refusals of its last barrier.
#[derive(Debug)]
pub struct Stream {
    stream: larder_client::Stream,
    refused: Vec<Refused>,
}

impl Stream {
    /// A stream of a client. A number that is 0 means the default.
    pub fn new(life: &Life, requests: u32, bytes: u32, failures_only: bool) -> Stream {
        let usual = Window::default();
        let said = |number: u32, usual: usize| if number == 0 { usual } else { number as usize };
        let window = Window { requests: said(requests, usual.requests), bytes: said(bytes, usual.bytes) };
        let stream =
            if failures_only { life.client.quiet_within(window) } else { life.client.stream(window) };
        Stream { stream, refused: Vec::new() }
    }

    /// Sends a store or a deletion.
    pub fn send(&mut self, asked: &Asked<'_>) -> Result<Status, Failure> {
        match asked.ask {
            Ask::Store(store) => self.stream.store(asked.key, store, asked.cas)?,
            Ask::Delete(delete) => self.stream.remove(asked.key, delete, asked.cas)?,
            _ => return wrong("a stream stores and deletes"),
        }
        Ok(Status::OK)
    }

    /// Waits for all replies. Returns the report, and the error of the first request that was not carried out.
    pub fn barrier(&mut self) -> (shapes::Report, Option<Failure>) {
        let report = self.stream.barrier();
        let told = shapes::Report {
            size: 0,
            told: report.first.len() as u32,
            sent: report.sent,
            stored: report.stored,
            refused: report.refused,
            unknown: report.unknown,
        };
        let first = report.first.first().map(|refused| refused.error.clone());
        self.refused = report.first;
        (told, report.error.or(first).map(Failure::from))
    }

    /// One of the refusals of the last barrier.
    pub fn refused(&self, at: usize) -> Result<&Refused, Failure> {
        self.refused.get(at).ok_or(Failure::Argument("the last barrier told of fewer".into()))
    }
}
