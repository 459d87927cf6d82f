//! Flags of commands: Redis's own, and those that Larder adds.
//!
//! A row writes its flags as one sum. `Command` keeps them in two fields, so that COMMAND, which shows `wire`, cannot show
//! what is in `own`.

/// May change a key.
pub const WRITE: u64 = 1 << 0;
/// Only reads keys.
pub const READONLY: u64 = 1 << 1;
/// May need memory.
pub const DENYOOM: u64 = 1 << 2;
/// Is for administrators.
pub const ADMIN: u64 = 1 << 3;
/// Publishes or subscribes.
pub const PUBSUB: u64 = 1 << 4;
/// Is not allowed in scripts.
pub const NOSCRIPT: u64 = 1 << 5;
/// May wait.
pub const BLOCKING: u64 = 1 << 6;
/// Is allowed while loading.
pub const LOADING: u64 = 1 << 7;
/// Is allowed on a stale replica.
pub const STALE: u64 = 1 << 8;
/// Is not shown by MONITOR.
pub const SKIP_MONITOR: u64 = 1 << 9;
/// Is not listed by SLOWLOG.
pub const SKIP_SLOWLOG: u64 = 1 << 10;
/// Takes a short time, whatever the data.
pub const FAST: u64 = 1 << 11;
/// Is allowed before a client has logged in.
pub const NO_AUTH: u64 = 1 << 12;
/// Has keys that are not at fixed places.
pub const MOVABLEKEYS: u64 = 1 << 13;
/// Is not allowed in transactions.
pub const NO_MULTI: u64 = 1 << 14;
/// Is allowed while a script hangs.
pub const ALLOW_BUSY: u64 = 1 << 15;

// Larder's own flags, which COMMAND does not show.
/// Shows keys that its words do not name: not allowed with `-X`.
pub const SHOWS_KEYS: u64 = own(0);
/// Takes all keys of a database away: not allowed with `-F`.
pub const FLUSHES: u64 = own(1);
/// Is allowed only with `--enable-debug-command`.
pub const GUARDED: u64 = own(2);
/// Is replicated by Redis (messages, scripts, PFCOUNT): it waits while writes are paused, as in Redis.
pub const IS_TOLD: u64 = own(3);
/// Runs while all commands are paused.
pub const WHILE_PAUSED: u64 = own(4);
/// Is allowed for RESP2 clients that are subscribed to channels.
pub const WHILE_LISTENING: u64 = own(5);
/// Replies about subscriptions, which is sent even if CLIENT REPLY has replies dropped.
pub const SUBSCRIBES: u64 = own(6);
/// May end subscriptions, so that messages for the client have no receiver behind it.
pub const ENDS_LISTENING: u64 = own(7);
/// May have published messages to its own client.
pub const PUBLISHES: u64 = own(8);
/// Runs at once, even while commands are queued.
pub const AT_ONCE: u64 = own(9);
/// Runs the queue.
pub const RUNS_QUEUE: u64 = own(10);
/// Selects the database that its argument names.
pub const SELECTS: u64 = own(11);
/// Names no key but concerns all, or keys of another database: EXEC takes the store as a whole for it.
pub const TAKES_ALL: u64 = own(12);
/// Empties a database. EXEC runs at most so many of these together.
pub const EMPTIES: u64 = own(13);
/// Replies what a key had, though it writes: a missing key is an event.
pub const ASKS: u64 = own(14);
/// Goes through its keys in moments (`moments.rs`, `pieces.rs`), and publishes the events of each itself.
pub const MOMENTS: u64 = own(15);
/// Weighs in EXEC only what each command does: it takes as long whatever its keys have, but for the elements that it names.
pub const WEIGHTLESS: u64 = own(16);
/// Changes users, connections or parameters, in a short time or in what it weighs: EXEC runs it, however much it has looked
/// through by then.
pub const SETTLES: u64 = own(17);
/// Has no keys, and replies a word or a number.
pub const REPLIES_A_WORD: u64 = own(18);
/// Has no keys, and replies 64 KiB at most.
pub const REPLIES_A_PAGE: u64 = own(19);
/// Works at the keys or elements that it names in steps that need nothing else, and has a short reply: an EXEC in steps lets it
/// make its own steps.
pub const IN_PARTS: u64 = own(20);
/// Looks in one step at what all of its keys have: if these are too many, for its events or for itself, it is refused before any
/// is looked at.
pub const AS_ONE: u64 = own(21);

/// Names of Redis's flags, in the order of their bits.
pub const NAMES: &[&str; u16::BITS as usize] = &[
    "write",
    "readonly",
    "denyoom",
    "admin",
    "pubsub",
    "noscript",
    "blocking",
    "loading",
    "stale",
    "skip_monitor",
    "skip_slowlog",
    "fast",
    "no_auth",
    "movablekeys",
    "no_multi",
    "allow_busy",
];

/// Makes a flag of Larder's own, by its bit in their field.
const fn own(bit: u32) -> u64 {
    assert!(bit < u32::BITS, "the field of Larder's own flags has this bit");
    1 << (u16::BITS + bit)
}

/// Splits a sum of flags into Redis's and Larder's own.
#[inline]
pub(crate) const fn fields(flags: u64) -> (u16, u32) {
    (flags as u16, (flags >> u16::BITS) as u32)
}

#[cfg(test)]
mod tests {
    use super::{ALLOW_BUSY, AS_ONE, SHOWS_KEYS, WRITE, fields, own};

    #[test]
    fn each_flag_is_in_one_of_two_fields() {
        assert_eq!(fields(WRITE), (1, 0));
        assert_eq!(fields(ALLOW_BUSY), (1 << 15, 0));
        assert_eq!(fields(SHOWS_KEYS), (0, 1));
        assert_eq!(fields(AS_ONE), (0, 1 << 21));
        assert_eq!(fields(WRITE | AS_ONE), (1, 1 << 21));
        assert_eq!([30, 31].map(|bit| fields(own(bit))), [(0, 1 << 30), (0, 1 << 31)]);
    }

    #[test]
    #[should_panic(expected = "the field of Larder's own flags has this bit")]
    fn a_flag_beyond_its_field_is_refused() {
        own(32);
    }
}
