//! TLS handshakes that begin and are never completed.

use super::half_open::writes;
use super::{PATIENCE, within};
use crate::stage::Stage;
use crate::wire::{connect, only_send, said};
use std::time::Duration;

/// Connections that begin a handshake and then send nothing: twice as many as may be in handshakes. The
/// others wait in the system's backlog, which holds 1,024.
const STANDING: usize = 2000;

/// Longest wait for a client that completes its handshake. A silent handshake is closed after a second if
/// others wait, and one that came after it a second later. In a test build this program itself is slow.
const SERVED_MS_MAX: u64 = 5_000;

pub(super) fn standing(stage: &Stage) -> Result<String, String> {
    let tls = stage.tls.as_ref().ok_or("no port speaks TLS")?;
    let hello = tls.hello()?;
    let mut open = Vec::with_capacity(STANDING);
    for n in 0..STANDING {
        open.push(match n % 3 {
            0 => connect(tls.address)?,
            // The server waits for the rest of the hello, …
            1 => only_send(tls.address, &hello[..hello.len() / 2], Duration::from_secs(1))?.0,
            // … or it has answered the hello, and waits for the client's reply.
            _ => only_send(tls.address, &hello, Duration::from_secs(1))?.0,
        });
    }
    let slowest = writes(stage)?;
    let served = tls.exchange(&said("PING"), b"+PONG\r\n", PATIENCE)?;
    stage.open.lock().expect("not poisoned").extend(open);
    let said = within(slowest, 100, &format!("beside {STANDING} handshakes the slowest of 50 writes"))?;
    within(served, SERVED_MS_MAX, &format!("{said}, a client by TLS was served"))
}
