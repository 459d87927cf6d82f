//! What a command is like: Redis's own names for it, and what Larder alone says of it.
//!
//! A row writes its flags as one sum. `Command` keeps them in two fields, so that COMMAND, which shows `wire`, cannot show
//! what is in `own`.

/// It may change a key.
pub const WRITE: u64 = 1 << 0;
/// It reads keys only.
pub const READONLY: u64 = 1 << 1;
/// It may need memory.
pub const DENYOOM: u64 = 1 << 2;
/// For administrators.
pub const ADMIN: u64 = 1 << 3;
/// Publishing and subscribing.
pub const PUBSUB: u64 = 1 << 4;
/// Not in scripts.
pub const NOSCRIPT: u64 = 1 << 5;
/// It may wait.
pub const BLOCKING: u64 = 1 << 6;
/// Also while loading.
pub const LOADING: u64 = 1 << 7;
/// Also on a stale replica.
pub const STALE: u64 = 1 << 8;
/// MONITOR does not show it.
pub const SKIP_MONITOR: u64 = 1 << 9;
/// SLOWLOG does not list it.
pub const SKIP_SLOWLOG: u64 = 1 << 10;
/// It takes a short time, whatever the data.
pub const FAST: u64 = 1 << 11;
/// A client that has not logged in may send it.
pub const NO_AUTH: u64 = 1 << 12;
/// Its keys are not at fixed places.
pub const MOVABLEKEYS: u64 = 1 << 13;
/// Not in transactions.
pub const NO_MULTI: u64 = 1 << 14;
/// Also while a script hangs.
pub const ALLOW_BUSY: u64 = 1 << 15;

// What Larder alone says of a command, and COMMAND does not show.
/// It shows keys that its words do not name: not with `-X`.
pub const SHOWS_KEYS: u64 = own(0);
/// It takes all keys of a database away: not with `-F`.
pub const FLUSHES: u64 = own(1);
/// Only with `--enable-debug-command`.
pub const GUARDED: u64 = own(2);
/// Redis would replicate it (messages, scripts, PFCOUNT): it waits while writes are paused, as those do.
pub const IS_TOLD: u64 = own(3);
/// It is carried out while all are paused.
pub const WHILE_PAUSED: u64 = own(4);
/// Clients that speak RESP2 and listen to channels may say it.
pub const WHILE_LISTENING: u64 = own(5);
/// Its reply is about subscriptions, and is sent whether replies are or not.
pub const SUBSCRIBES: u64 = own(6);
/// Behind it, messages may have no receiver any more.
pub const ENDS_LISTENING: u64 = own(7);
/// It may have sent something to the client itself.
pub const PUBLISHES: u64 = own(8);
/// It is carried out at once also while commands are queued.
pub const AT_ONCE: u64 = own(9);
/// It runs what was queued.
pub const RUNS_QUEUE: u64 = own(10);
/// It selects the database that its argument names.
pub const SELECTS: u64 = own(11);
/// It concerns no key but all, or keys of another database: EXEC takes the store as a whole for it.
pub const TAKES_ALL: u64 = own(12);
/// It leaves a database empty, of which there may be so many together.
pub const EMPTIES: u64 = own(13);
/// It says what a key had, though it writes: a key that is not there is an event.
pub const ASKS: u64 = own(14);
/// It goes through its keys in moments (`moments.rs`, `pieces.rs`), and publishes the events of each itself.
pub const MOMENTS: u64 = own(15);
/// In EXEC it weighs nothing beside what each command does: it takes as long whatever its keys have, but for the
/// elements that it names.
pub const WEIGHTLESS: u64 = own(16);
/// It changes users, connections or parameters, in a short time or as it weighs: EXEC carries it out, however much it has
/// looked through by then.
pub const SETTLES: u64 = own(17);
/// It has no keys, and its reply is a word or a number.
pub const REPLIES_A_WORD: u64 = own(18);
/// It has no keys, and its reply has 64 KiB at most, whatever there is.
pub const REPLIES_A_PAGE: u64 = own(19);
/// What it does to the keys or elements that it names goes in steps that need nothing but these, and its reply is short:
/// an EXEC in steps has it go through its own.
pub const IN_PARTS: u64 = own(20);
/// One step looks what each of its keys has: where these are too many, for its events or for itself, it is refused before any is
/// looked at.
pub const AS_ONE: u64 = own(21);

/// Redis's names, in the order of the bits.
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

/// A flag of Larder's own, by its bit in the field of these.
const fn own(bit: u32) -> u64 {
    assert!(bit < u32::BITS, "the field of Larder's own flags has this bit");
    1 << (u16::BITS + bit)
}

/// The fields of a sum of flags: those that Redis has, and Larder's own.
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
