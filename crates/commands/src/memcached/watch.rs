//! watch: a connection that is sent lines about what happens, and sends no further request.

use larder_store::Millis;

use super::flow::Flow;
use super::line::Line;
use super::text::ERROR;
use crate::core::output::Output;
use crate::core::progress::Next;
use crate::core::watchers::{Watching, stream};

/// Most bytes that may wait to be sent for more lines to be taken.
const SENT_BYTES: u64 = 64 << 10;
/// Milliseconds between two looks whether a socket takes more.
const LOOK_MS: Millis = 50;

/// The streams that can be watched. Larder accepts the last four, as memcached does, and writes no line for them: it has no
/// proxy, and it counts commands by what they do (memcached writes no line for `rawcmds` either).
const STREAMS: &[(&[u8], u32)] = &[
    (b"fetchers", stream::FETCHERS),
    (b"mutations", stream::MUTATIONS),
    (b"evictions", stream::EVICTIONS),
    (b"connevents", stream::CONNEVENTS),
    (b"deletions", stream::DELETIONS),
    (b"sysevents", stream::SYSEVENTS),
    (b"rawcmds", 0),
    (b"proxyreqs", 0),
    (b"proxyevents", 0),
    (b"proxyuser", 0),
];

/// watch [stream …]
pub(crate) fn watch(line: &mut Line<'_, '_, '_, '_>) -> Flow {
    let settings = &line.cx.shared.settings;
    if !settings.watch {
        line.out.put(b"CLIENT_ERROR watch commands not allowed\r\n");
        return Flow::Next;
    }
    let mut streams = if line.tokens.is_empty() { stream::FETCHERS } else { 0 };
    for token in &line.tokens {
        let Some((_, stream)) = STREAMS.iter().find(|(name, _)| name == token) else {
            line.out.put(ERROR);
            return Flow::Next;
        };
        streams |= stream;
    }
    let (cx, bytes_max) = (&*line.cx, settings.watch_bytes_max);
    let watching = cx.shared.watchers.watch(cx.guard.store(), cx.peer.place(), streams, bytes_max);
    let Some(watching) = watching else {
        line.out.put(b"WATCHER_TOO_MANY log watcher limit reached\r\n");
        return Flow::Next;
    };
    cx.shared.apply_watch(cx.guard.store());
    line.out.put(b"OK\r\n");
    Flow::Watch(watching)
}

/// Sends the lines that wait, and awaits more. While its socket takes nothing, the connection looks again now and then.
pub(crate) fn step(watching: &Watching, out: &mut Output) -> Next {
    if out.is_full() || out.len() > SENT_BYTES {
        return Next::Await(Some(LOOK_MS));
    }
    watching.take(|text| out.put(text));
    Next::Await(None)
}
