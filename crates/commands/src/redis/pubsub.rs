//! The rows of the commands of pub/sub, and MONITOR. `subscriptions.rs` has what a client is subscribed to, `core/topics.rs` the
//! subscribers of each name.

mod channels;
pub(crate) mod monitor;
mod publish;
mod subscribe;

use larder_protocol::resp::Args;

use super::call::{Call, KEY_BYTES_MAX};
use super::definition::Definition;
use super::fail::{Done, Fail};
use super::reply::{put_array, put_bulk, put_head, put_integer};
use super::row::flag::{
    ADMIN, ENDS_LISTENING, FAST, IS_TOLD, LOADING, NOSCRIPT, PUBLISHES, PUBSUB, REPLIES_A_WORD, SHOWS_KEYS,
    STALE, SUBSCRIBES, WEIGHTLESS, WHILE_LISTENING,
};
use super::row::{Channels, Command, NO_KEYS, Weighs};
use crate::core::delivery::Target;
use crate::core::topics::Kind;
use crate::core::work::copying_ns;
use crate::redis::call::bounded;
use crate::redis::subscriptions::Subscriptions;
use channels::channels;
pub(crate) use channels::look_ns;
use publish::{publish, spublish};
pub(crate) use subscribe::{ending_all_ns, ending_ns, listening_ns};
use subscribe::{subscribe, unsubscribe};

const LISTENS: u64 = PUBSUB | NOSCRIPT | LOADING | STALE;
const SPEAKS: u64 = PUBSUB | LOADING | STALE | FAST;
const ASKS: u64 = PUBSUB | LOADING | STALE;

pub(crate) const ROWS: &[Definition] = &[
    Command::args("subscribe", -2, LISTENS, NO_KEYS, |call, args| subscribe(call, args, Kind::Channel))
        .channels(Channels::All)
        .with(SUBSCRIBES | WHILE_LISTENING)
        .weighs(Weighs::Listen)
        .doc("2.0.0", "channel [channel ...]", "Subscribes to channels."),
    Command::args("unsubscribe", -1, LISTENS, NO_KEYS, |call, args| unsubscribe(call, args, Kind::Channel))
        .with(SUBSCRIBES | WHILE_LISTENING | ENDS_LISTENING)
        .weighs(Weighs::ListenNoMore(Kind::Channel))
        .doc("2.0.0", "[channel [channel ...]]", "Unsubscribes from channels."),
    Command::args("psubscribe", -2, LISTENS, NO_KEYS, |call, args| subscribe(call, args, Kind::Pattern))
        .channels(Channels::Patterns)
        .with(SUBSCRIBES | WHILE_LISTENING)
        .weighs(Weighs::Listen)
        .doc("2.0.0", "pattern [pattern ...]", "Subscribes to the channels whose names match."),
    Command::args("punsubscribe", -1, LISTENS, NO_KEYS, |call, args| unsubscribe(call, args, Kind::Pattern))
        .with(SUBSCRIBES | WHILE_LISTENING | ENDS_LISTENING)
        .weighs(Weighs::ListenNoMore(Kind::Pattern))
        .doc("2.0.0", "[pattern [pattern ...]]", "Unsubscribes from patterns."),
    Command::args("ssubscribe", -2, LISTENS, NO_KEYS, |call, args| subscribe(call, args, Kind::Shard))
        .channels(Channels::All)
        .with(SUBSCRIBES | WHILE_LISTENING)
        .weighs(Weighs::Listen)
        .doc("7.0.0", "shardchannel [shardchannel ...]", "Subscribes to sharded channels."),
    Command::args("sunsubscribe", -1, LISTENS, NO_KEYS, |call, args| unsubscribe(call, args, Kind::Shard))
        .with(SUBSCRIBES | WHILE_LISTENING | ENDS_LISTENING)
        .weighs(Weighs::ListenNoMore(Kind::Shard))
        .doc("7.0.0", "[shardchannel [shardchannel ...]]", "Unsubscribes from sharded channels."),
    Command::args("publish", 3, SPEAKS, NO_KEYS, publish)
        .channels(Channels::First)
        .with(PUBLISHES | IS_TOLD)
        .weighs(Weighs::Topics)
        .doc("2.0.0", "channel message", "Sends a message to the subscribers of a channel."),
    Command::args("spublish", 3, SPEAKS, NO_KEYS, spublish)
        .channels(Channels::First)
        .with(PUBLISHES | IS_TOLD)
        .weighs(Weighs::Shard)
        .doc("7.0.0", "shardchannel message", "Sends a message to the subscribers of a sharded channel."),
    Command::container(
        "pubsub",
        &[
            Command::args("pubsub|channels", -2, ASKS, NO_KEYS, |call, args| {
                channels(call, "CHANNELS", args, |topics| &topics.channels)
            })
            .weighs(Weighs::Channels)
            .doc("2.8.0", "[pattern]", "Channels that have subscribers."),
            Command::args("pubsub|numsub", -2, ASKS, NO_KEYS, |call, args| counts(call, args, Kind::Channel))
                .weighs(Weighs::Counts)
                .doc("2.8.0", "[channel [channel ...]]", "How many subscribers channels have."),
            Command::args("pubsub|numpat", 2, ASKS | WEIGHTLESS | REPLIES_A_WORD, NO_KEYS, |call, _| {
                let patterns = call.cx.shared.topics.pattern_count();
                call.length(patterns)
            })
            .doc("2.8.0", "", "How many patterns have subscribers."),
            Command::args("pubsub|shardchannels", -2, ASKS, NO_KEYS, |call, args| {
                channels(call, "SHARDCHANNELS", args, |topics| &topics.shards)
            })
            .weighs(Weighs::Channels)
            .doc("7.0.0", "[pattern]", "Sharded channels that have subscribers."),
            Command::args("pubsub|shardnumsub", -2, ASKS, NO_KEYS, |call, args| {
                counts(call, args, Kind::Shard)
            })
            .weighs(Weighs::Counts)
            .doc(
                "7.0.0",
                "[shardchannel [shardchannel ...]]",
                "How many subscribers sharded channels have.",
            ),
            Command::args("pubsub|help", 2, LOADING | STALE | WEIGHTLESS, NO_KEYS, |call, _| {
                crate::redis::help::help(call, "pubsub")
            })
            .categories(&[])
            .doc("6.2.0", "", "What PUBSUB can do."),
        ],
    )
    .doc("2.8.0", "", "Asks about channels and their subscribers."),
    Command::args(
        "monitor",
        1,
        ADMIN | NOSCRIPT | LOADING | STALE | SHOWS_KEYS | WEIGHTLESS,
        NO_KEYS,
        monitor,
    )
    .categories(&[])
    .doc("1.0.0", "", "Shows every command as it is carried out."),
];

impl Call<'_, '_, '_> {
    fn subscriptions(&mut self) -> &mut Subscriptions {
        let (topics, store) = (&self.cx.shared.topics, self.cx.guard.store());
        let target = Target { place: self.client.facts.place, client: self.client.facts.id };
        self.client.subscriptions.get_or_insert_with(|| Box::new(Subscriptions::new(topics, store, target)))
    }

    /// Writes the head of an answer to a change of subscriptions, or of a push.
    fn push(&mut self, len: usize) {
        let kind = if self.client.resp3 { b'>' } else { b'*' };
        put_head(self.out, kind, len as u64);
    }
}

/// Work to count the subscribers of a channel.
const LOOK_NS: u64 = 50;
/// Work to post a message to a subscriber.
const POST_NS: u64 = 50;
/// Work to pass a subscriber when looking for another.
const PASS_NS: u64 = 1;

/// Work to send a message to all subscribers of a channel, at most, without looking for matching patterns when it is sent: the
/// message is copied once for all, and once for a publisher that is subscribed itself. If the work exceeds `ns_max`, the message
/// is not sent.
pub(crate) fn publishing_ns(call: &mut Call<'_, '_, '_>, args: Args<'_>, shard: bool, ns_max: u64) -> u64 {
    let topics = &call.cx.shared.topics;
    let (channel, bytes) = (args.at(0).unwrap_or_default(), args.encoded().len() as u64);
    let (told, looked_ns) = if shard {
        (topics.shards.count(channel), 0)
    } else {
        let (all, matching_ns) = (topics.pattern_targets(), topics.matching_ns(channel.len()));
        // Matching patterns are looked for if that is less work than posting to all subscribers of patterns, and only as long as
        // there is time to look once more when the message is sent.
        let looks = all as u64 * POST_NS > matching_ns;
        let look_ns = ns_max.saturating_sub(matching_ns);
        let (by_patterns, looked_ns) =
            if looks { topics.pattern_listeners(channel, look_ns) } else { (all, 0) };
        (topics.channels.count(channel) + by_patterns, looked_ns)
    };
    call.spend(looked_ns);
    looked_ns + 2 * copying_ns(bytes) + told as u64 * POST_NS
}

/// Work to count the subscribers of these names.
pub(crate) fn counting_ns(names: Args<'_>) -> u64 {
    names.len() as u64 * LOOK_NS + copying_ns(names.encoded().len() as u64)
}
/// Bytes of an answer for a name, beside the name.
const ANSWER_BYTES: usize = 64;

/// Bytes of the answers for these names, at most.
fn answers_bytes(names: Args<'_>) -> usize {
    names.encoded().len() + names.len() * ANSWER_BYTES
}

/// Bytes of a channel's name, at most: that of a keyspace event has a key in it.
const CHANNEL_BYTES_MAX: usize = 2 * KEY_BYTES_MAX;

/// Checks the length of a name to subscribe to or publish to.
///
/// # Errors
/// It is too long.
fn bounded_name(kind: Kind, name: &[u8]) -> Result<&[u8], Fail> {
    match kind {
        Kind::Pattern => bounded(name),
        Kind::Channel | Kind::Shard if name.len() > CHANNEL_BYTES_MAX => {
            Err(Fail::of("ERR channel exceeds maximum allowed size (131072 bytes)"))
        }
        Kind::Channel | Kind::Shard => Ok(name),
    }
}

/// Names whose subscribers one step counts, at most.
const COUNTED_AT_ONCE: usize = 1 << 10;

/// Serves PUBSUB NUMSUB and SHARDNUMSUB.
fn counts(call: &mut Call<'_, '_, '_>, args: Args<'_>, kind: Kind) -> Done {
    if args.len() <= COUNTED_AT_ONCE || call.cx.guard.in_transaction() {
        call.spend(args.len() as u64 * LOOK_NS);
        call.make_room(answers_bytes(args))?;
        put_array(call.out, 2 * args.len());
        args.for_each(|name| put_count(call, name, kind));
        return Ok(());
    }
    let mark = call.out.mark();
    put_array(call.out, 2 * args.len());
    call.in_pieces(mark, args, if kind == Kind::Shard { count_shards } else { count_channels })
}

fn put_count(call: &mut Call<'_, '_, '_>, name: &[u8], kind: Kind) {
    let count = call.cx.shared.topics.listeners(kind, name);
    put_bulk(call.out, name);
    put_integer(call.out, count as i64);
}

fn count_channels(call: &mut Call<'_, '_, '_>, args: &mut Args<'_>) {
    count_some(call, args, Kind::Channel);
}

fn count_shards(call: &mut Call<'_, '_, '_>, args: &mut Args<'_>) {
    count_some(call, args, Kind::Shard);
}

/// Answers as many names as there is time for, at least one.
fn count_some(call: &mut Call<'_, '_, '_>, args: &mut Args<'_>, kind: Kind) {
    let (piece, ns_max, mut ns) = (call.piece(), call.step_ns(), 0);
    while (ns == 0 || ns < ns_max && call.goes_on(piece))
        && let Some(name) = args.next()
    {
        put_count(call, name, kind);
        ns += LOOK_NS + copying_ns(name.len() as u64);
    }
    call.spend(ns);
}

fn monitor(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    if call.cx.guard.in_transaction() {
        return Err(Fail::of("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    let then = call.client.standing.snapshot();
    call.subscriptions().monitor();
    call.client.show_subscriptions();
    call.still_monitors(&then)?;
    call.ok()
}
