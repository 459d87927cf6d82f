//! Wrong passwords, from very many connections of one address.

use super::{PATIENCE, set, within};
use crate::stage::Stage;
use crate::wire::{exchange, only_send, said, shown};
use larder_testkit::client::Client;
use std::thread;
use std::time::{Duration, Instant};

/// Connections that guess.
const GUESSERS: usize = 2000;
/// Guesses that each sends at once.
const GUESSES: usize = 20;
/// How long the guesses are watched.
const LASTS: Duration = Duration::from_secs(6);
/// A client that knows the password waits at most a second for the guesses of others with its address; then
/// it logs in and writes.
const LOGIN_MS_MAX: u64 = 2_000;

/// Number of wrong passwords since the server's start.
fn wrong(stage: &Stage) -> Result<u64, String> {
    let mut client = stage.server.connect().and_then(Client::new).map_err(|error| error.to_string())?;
    let told = client.stat("auth_errors").map_err(|error| error.to_string())?;
    told.parse().map_err(|_| told)
}

pub(super) fn wrong_passwords(stage: &Stage) -> Result<String, String> {
    let before = wrong(stage)?;
    let began = Instant::now();
    let mut open = Vec::with_capacity(GUESSERS);
    for n in 0..GUESSERS {
        let guesses: Vec<u8> = (0..GUESSES).flat_map(|m| said(&format!("AUTH guess-{n}-{m}"))).collect();
        open.push(only_send(stage.resp, &guesses, Duration::from_secs(1))?.0);
    }
    let (took, reply) = exchange(stage.resp, &[said("AUTH secret"), set(b"k", b"v")].concat(), PATIENCE)?;
    if !reply.starts_with(b"+OK\r\n+OK\r\n") {
        return Err(format!("the right password beside wrong ones: {}", shown(&reply)));
    }
    thread::sleep(LASTS.saturating_sub(began.elapsed()));
    let tried = wrong(stage)? - before;
    let watched = began.elapsed();
    stage.open.lock().expect("not poisoned").extend(open);
    let (of, seconds) = (GUESSERS * GUESSES, watched.as_secs());
    let said = format!("{tried} of {of} passwords looked at in {seconds} s, the right one and a write");
    let said = within(took, LOGIN_MS_MAX, &said)?;
    // The server tries one password of each connection a second, and by now a first one of each.
    let (least, most) = (GUESSERS as u64, GUESSERS as u64 * (seconds + 2));
    if (least..=most).contains(&tried) { Ok(said) } else { Err(format!("{said}; not {least} to {most}")) }
}
