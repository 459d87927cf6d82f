//! TLS handshakes that begin and stand still.

use super::half_open::writes;
use super::{PATIENCE, within};
use crate::stage::Stage;
use crate::wire::{connect, only_send, said};
use std::time::Duration;

/// Connections that begin a handshake and stand: twice as many as may be in handshakes. The others wait in the system's backlog,
/// which holds 1,024.
const STANDING: usize = 2000;

/// How long a client that does its handshake may have to wait for room: a silent handshake makes room after a second, and one
/// that came after it after another. A test build of this program is slow besides.
const SERVED_MS_MAX: u64 = 5_000;

pub(super) fn standing(stage: &Stage) -> Result<String, String> {
    let tls = stage.tls.as_ref().ok_or("no port speaks TLS")?;
    let hello = tls.hello()?;
    let mut open = Vec::with_capacity(STANDING);
    for n in 0..STANDING {
        open.push(match n % 3 {
            0 => connect(tls.address)?,
            // The server waits for the rest of it, …
            1 => only_send(tls.address, &hello[..hello.len() / 2], Duration::from_secs(1))?.0,
            // … or has agreed on keys, signed, and waits for the client's answer.
            _ => only_send(tls.address, &hello, Duration::from_secs(1))?.0,
        });
    }
    let slowest = writes(stage)?;
    let served = tls.exchange(&said("PING"), b"+PONG\r\n", PATIENCE)?;
    stage.open.lock().expect("not poisoned").extend(open);
    let said = within(slowest, 100, &format!("beside {STANDING} handshakes the slowest of 50 writes"))?;
    within(served, SERVED_MS_MAX, &format!("{said}, a client by TLS was served"))
}
