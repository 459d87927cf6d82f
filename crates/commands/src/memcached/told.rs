//! Events and lines about what memcached's clients do, for clients that listen or watch: a command that uses a key looks at it
//! before and after.

use crate::core::context::Context;
use crate::core::counters::Counter;
use crate::core::events::{Seen, seen_at};
use crate::core::watchers::{Looked, Stored};
use crate::memcached::asked::Asked;
use crate::memcached::table::{Command, Effect};
use crate::memcached::time::seconds_left;

/// The state of a key of the first database before a command, where events or a watcher need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before(Option<(Seen, Looked)>);

/// Looks at the key.
fn look(cx: &mut Context<'_, '_>, key: &[u8]) -> (Seen, Looked) {
    let key = cx.guard.key(key);
    let found = cx.guard.peek(&key);
    let looked = Looked::at(&found);
    (seen_at(found), looked)
}

impl Before {
    /// Looks at the key, where events or a watcher need it.
    pub fn look(cx: &mut Context<'_, '_>, key: &[u8]) -> Before {
        Before(cx.shared.events.any().then(|| look(cx, key)))
    }

    /// Looks again, and publishes what the command of this row has done to the key.
    pub fn tell(self, cx: &mut Context<'_, '_>, row: &Command, key: &[u8]) {
        self.tell_stored(cx, row, key, None);
    }

    /// Does what [`Before::tell`] does, for a command that was asked to store something.
    pub fn tell_stored(self, cx: &mut Context<'_, '_>, row: &Command, key: &[u8], asked: Option<Asked>) {
        let Some((was, looked)) = self.0 else { return };
        let (is, now) = look(cx, key);
        if row.asks() && was.is_none() {
            cx.tell_miss(0, key);
            // The look has removed the item. It is counted all the same that it was there.
            match looked.status {
                "expired" => cx.counters.add(Counter::GetExpired, 1),
                "flushed" => cx.counters.add(Counter::GetFlushed, 1),
                _ => {}
            }
        }
        if let Some(change) = row.change() {
            cx.tell_change(change, 0, key, was, is);
        }
        if cx.shared.watches_keys(cx.guard.store()) {
            tell_watchers(cx, row, key, (was, looked), (is, now), asked);
        }
        cx.go_on_telling();
    }
}

/// Nanoseconds of a line, about.
const LINE_NS: u64 = 1_000;

#[cold]
fn tell_watchers(
    cx: &Context<'_, '_>,
    row: &Command,
    key: &[u8],
    (was, before): (Seen, Looked),
    (is, after): (Seen, Looked),
    asked: Option<Asked>,
) {
    cx.room.work().spend(2 * LINE_NS);
    let (watchers, scene) = (&cx.shared.watchers, cx.watched());
    watchers.tell_get(scene, cx.peer, key, &before);
    let stored = after.is_there() && was != is;
    let left_s = |expires_at| if expires_at == 0 { 0 } else { seconds_left(expires_at, scene.now) };
    if let Some(asked) = asked {
        // A value whose time was over when it was stored is not there any more.
        let is_over = asked.expires_at != 0 && asked.expires_at <= scene.now;
        let status = match asked.refused(before.is_there()) {
            _ if stored => "stored",
            "no_memory" if is_over => "stored",
            refused => refused,
        };
        let (class, value_bytes, expires_at) = if stored {
            (after.class, after.value_bytes, after.expires_at)
        } else {
            (Some(asked.class), asked.value_bytes, asked.expires_at)
        };
        let (cmd, ttl_s) = (asked.cmd, left_s(expires_at));
        watchers.tell_store(scene, cx.peer, key, Stored { status, cmd, ttl_s, class, value_bytes });
    } else if matches!(row.effect, Effect::Counts(_)) && stored && !before.is_there() {
        let Looked { class, value_bytes, expires_at, .. } = after;
        let ttl_s = left_s(expires_at);
        watchers.tell_store(
            scene,
            cx.peer,
            key,
            Stored { status: "stored", cmd: "add", ttl_s, class, value_bytes },
        );
    } else if before.is_there() && !after.is_there() && matches!(row.effect, Effect::Removes(_)) {
        watchers.tell_deleted(scene, key, row.name, &before);
    }
}
