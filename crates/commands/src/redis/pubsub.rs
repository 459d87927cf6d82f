//! Publishing and subscribing, MONITOR, and what a client listens to.

mod channels;
pub(crate) mod monitor;
mod publish;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use larder_protocol::resp::Args;
use larder_store::Store;

use super::call::{Call, KEY_BYTES_MAX};
use super::fail::{Done, Fail};
use super::reply::{put_array, put_bulk, put_head, put_integer, put_null};
use super::table::flag::{
    ADMIN, ENDS_LISTENING, FAST, IS_TOLD, LOADING, NOSCRIPT, PUBLISHES, PUBSUB, SHOWS_KEYS, STALE,
    SUBSCRIBES, WHILE_LISTENING,
};
use super::table::{Command, NO_KEYS};
use crate::core::output::Output;
use crate::core::topics::{Message, Space, Target, Topic, Topics};
use crate::redis::call::bounded;
use channels::channels;
pub(crate) use channels::look_ns;
use publish::{publish, spublish};

/// Subscriptions of all clients together take at most one part in this many of the memory limit.
const TOPIC_SHARE: u64 = 16;
/// What a subscription takes beside its name, about.
const TOPIC_BYTES: usize = 256;

const LISTENS: u32 = PUBSUB | NOSCRIPT | LOADING | STALE;
const SPEAKS: u32 = PUBSUB | LOADING | STALE | FAST;
const ASKS: u32 = PUBSUB | LOADING | STALE;

pub(crate) const ROWS: &[Command] = &[
    Command::args("subscribe", -2, LISTENS, NO_KEYS, |call, args| subscribe(call, args, Kind::Channel))
        .with(SUBSCRIBES | WHILE_LISTENING)
        .doc("2.0.0", "channel [channel ...]", "Listens to channels."),
    Command::args("unsubscribe", -1, LISTENS, NO_KEYS, |call, args| unsubscribe(call, args, Kind::Channel))
        .with(SUBSCRIBES | WHILE_LISTENING | ENDS_LISTENING)
        .doc("2.0.0", "[channel [channel ...]]", "Listens to channels no more."),
    Command::args("psubscribe", -2, LISTENS, NO_KEYS, |call, args| subscribe(call, args, Kind::Pattern))
        .with(SUBSCRIBES | WHILE_LISTENING)
        .doc("2.0.0", "pattern [pattern ...]", "Listens to all channels whose names match."),
    Command::args("punsubscribe", -1, LISTENS, NO_KEYS, |call, args| unsubscribe(call, args, Kind::Pattern))
        .with(SUBSCRIBES | WHILE_LISTENING | ENDS_LISTENING)
        .doc("2.0.0", "[pattern [pattern ...]]", "Listens to patterns no more."),
    Command::args("ssubscribe", -2, LISTENS, NO_KEYS, |call, args| subscribe(call, args, Kind::Shard))
        .with(SUBSCRIBES | WHILE_LISTENING)
        .doc("7.0.0", "shardchannel [shardchannel ...]", "Listens to sharded channels."),
    Command::args("sunsubscribe", -1, LISTENS, NO_KEYS, |call, args| unsubscribe(call, args, Kind::Shard))
        .with(SUBSCRIBES | WHILE_LISTENING | ENDS_LISTENING)
        .doc("7.0.0", "[shardchannel [shardchannel ...]]", "Listens to sharded channels no more."),
    Command::args("publish", 3, SPEAKS, NO_KEYS, publish).with(PUBLISHES | IS_TOLD).doc(
        "2.0.0",
        "channel message",
        "Sends a message to all who listen to a channel.",
    ),
    Command::args("spublish", 3, SPEAKS, NO_KEYS, spublish).with(PUBLISHES | IS_TOLD).doc(
        "7.0.0",
        "shardchannel message",
        "Sends a message to all who listen to a sharded channel.",
    ),
    Command::container(
        "pubsub",
        &[
            Command::args("pubsub|channels", -2, ASKS, NO_KEYS, |call, args| {
                channels(call, "CHANNELS", args, |topics| &topics.channels)
            })
            .doc("2.8.0", "[pattern]", "Channels that somebody listens to."),
            Command::args("pubsub|numsub", -2, ASKS, NO_KEYS, |call, args| {
                counts(call, args, |topics| &topics.channels)
            })
            .doc("2.8.0", "[channel [channel ...]]", "How many listen to channels."),
            Command::args("pubsub|numpat", 2, ASKS, NO_KEYS, |call, _| {
                let patterns = call.cx.shared.topics.pattern_count();
                call.length(patterns)
            })
            .doc("2.8.0", "", "How many patterns somebody listens to."),
            Command::args("pubsub|shardchannels", -2, ASKS, NO_KEYS, |call, args| {
                channels(call, "SHARDCHANNELS", args, |topics| &topics.shards)
            })
            .doc("7.0.0", "[pattern]", "Sharded channels that somebody listens to."),
            Command::args("pubsub|shardnumsub", -2, ASKS, NO_KEYS, |call, args| {
                counts(call, args, |topics| &topics.shards)
            })
            .doc(
                "7.0.0",
                "[shardchannel [shardchannel ...]]",
                "How many listen to sharded channels.",
            ),
            Command::args("pubsub|help", 2, LOADING | STALE, NO_KEYS, |call, _| {
                crate::redis::server::introspect::help(call, "pubsub")
            })
            .doc("6.2.0", "", "What PUBSUB can do."),
        ],
    )
    .doc("2.8.0", "", "Asks about channels and who listens to them."),
    Command::args("monitor", 1, ADMIN | NOSCRIPT | LOADING | STALE | SHOWS_KEYS, NO_KEYS, monitor).doc(
        "1.0.0",
        "",
        "Shows every command as it is carried out.",
    ),
];

/// What is listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Channel,
    Pattern,
    Shard,
}

/// What a client listens to.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    topics: Arc<Topics>,
    store: Arc<Store>,
    target: Target,
    channels: BTreeSet<Box<[u8]>>,
    patterns: BTreeSet<Box<[u8]>>,
    shards: BTreeSet<Box<[u8]>>,
    monitors: bool,
    bytes: u64,
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        self.channels.iter().for_each(|name| self.topics.channels.remove(name, self.target));
        self.patterns.iter().for_each(|name| self.topics.remove_pattern(name, self.target));
        self.shards.iter().for_each(|name| self.topics.shards.remove(name, self.target));
        if self.monitors {
            self.topics.remove_monitor(self.target);
        }
        self.charge(-(self.bytes as i64));
    }
}

impl Subscriptions {
    fn new(topics: &Arc<Topics>, store: &Arc<Store>, target: Target) -> Subscriptions {
        Subscriptions {
            topics: Arc::clone(topics),
            store: Arc::clone(store),
            target,
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            shards: BTreeSet::new(),
            monitors: false,
            bytes: 0,
        }
    }

    fn charge(&mut self, bytes: i64) {
        self.bytes = self.bytes.wrapping_add_signed(bytes);
        self.topics.bytes.fetch_add(bytes as u64, Relaxed);
        self.store.hold(bytes);
    }

    fn names(&mut self, kind: Kind) -> &mut BTreeSet<Box<[u8]>> {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shards,
        }
    }

    /// Channels and patterns, or sharded channels.
    fn len(&self, kind: Kind) -> usize {
        match kind {
            Kind::Channel | Kind::Pattern => self.channels.len() + self.patterns.len(),
            Kind::Shard => self.shards.len(),
        }
    }

    /// Channels, patterns and sharded channels.
    pub fn count(&self) -> usize {
        self.channels.len() + self.patterns.len() + self.shards.len()
    }

    /// Channels, patterns, and sharded channels.
    pub fn counts(&self) -> [usize; 3] {
        [self.channels.len(), self.patterns.len(), self.shards.len()]
    }

    /// It is shown every command.
    pub fn monitors(&self) -> bool {
        self.monitors
    }

    /// It listens to something that somebody publishes.
    pub fn listens(&self) -> bool {
        self.count() > 0
    }

    /// False if subscriptions hold their share of the memory.
    fn add(&mut self, kind: Kind, name: &[u8]) -> bool {
        if self.names(kind).contains(name) {
            return true;
        }
        let bytes = bytes_of(name);
        let max = self.store.memory_bytes() / TOPIC_SHARE;
        if self.topics.bytes.load(Relaxed) + bytes as u64 > max {
            return false;
        }
        self.charge(bytes);
        self.names(kind).insert(name.into());
        match kind {
            Kind::Channel => self.topics.channels.add(name, self.target),
            Kind::Pattern => self.topics.add_pattern(name, self.target),
            Kind::Shard => self.topics.shards.add(name, self.target),
        }
        true
    }

    fn remove(&mut self, kind: Kind, name: &[u8]) {
        if !self.names(kind).remove(name) {
            return;
        }
        self.charge(-bytes_of(name));
        match kind {
            Kind::Channel => self.topics.channels.remove(name, self.target),
            Kind::Pattern => self.topics.remove_pattern(name, self.target),
            Kind::Shard => self.topics.shards.remove(name, self.target),
        }
    }

    fn takes(&self, message: &Message) -> bool {
        match &message.topic {
            Topic::Channel => self.channels.contains(&*message.channel),
            Topic::Pattern(name) => self.patterns.contains(&**name),
            Topic::Shard => self.shards.contains(&*message.channel),
            Topic::Commands => self.monitors,
        }
    }

    /// Writes a message, unless the client listens to its topic no more.
    pub fn deliver(&self, resp3: bool, message: &Message, out: &mut Output) {
        if self.takes(message) {
            put_message(out, resp3, message);
        }
    }
}

/// A message: an array, a push in RESP3, or a line.
fn put_message(out: &mut Output, resp3: bool, message: &Message) {
    let (word, pattern): (&[u8], _) = match &message.topic {
        Topic::Channel => (b"message", None),
        Topic::Pattern(pattern) => (b"pmessage", Some(pattern)),
        Topic::Shard => (b"smessage", None),
        Topic::Commands => return out.put(&message.text),
    };
    put_head(out, if resp3 { b'>' } else { b'*' }, 3 + u64::from(pattern.is_some()));
    put_bulk(out, word);
    if let Some(pattern) = pattern {
        put_bulk(out, pattern);
    }
    put_bulk(out, &message.channel);
    put_bulk(out, &message.text);
}

fn bytes_of(name: &[u8]) -> i64 {
    (TOPIC_BYTES + 2 * name.len()) as i64
}

impl Call<'_, '_, '_> {
    fn subscriptions(&mut self) -> &mut Subscriptions {
        let (topics, store) = (&self.cx.shared.topics, self.cx.guard.store());
        let target = Target { place: self.client.facts.place, client: self.client.facts.id };
        self.client.subscriptions.get_or_insert_with(|| Box::new(Subscriptions::new(topics, store, target)))
    }

    /// The head of what answers a change of subscriptions, or is pushed.
    fn push(&mut self, len: usize) {
        let kind = if self.client.resp3 { b'>' } else { b'*' };
        put_head(self.out, kind, len as u64);
    }
}

/// What it takes to listen to a channel or a pattern, or to do so no more, …
const SUBSCRIBE_NS: u64 = 1_000;
/// … and to look how many do.
const LOOK_NS: u64 = 50;

fn subscribe(call: &mut Call<'_, '_, '_>, args: Args<'_>, kind: Kind) -> Done {
    let word: &[u8] = match kind {
        Kind::Channel => b"subscribe",
        Kind::Pattern => b"psubscribe",
        Kind::Shard => b"ssubscribe",
    };
    for name in args {
        bounded_name(kind, name)?;
    }
    call.spend(args.len() as u64 * SUBSCRIBE_NS);
    call.make_room(answers_bytes(args))?;
    for name in args {
        if !call.subscriptions().add(kind, name) {
            return Err(Fail::of("ERR too many subscriptions"));
        }
        let count = call.subscriptions().len(kind);
        call.push(3);
        put_bulk(call.out, word);
        put_bulk(call.out, name);
        put_integer(call.out, count as i64);
        if count.is_multiple_of(SUBSCRIPTIONS_AT_ONCE) {
            // In a transaction, items do afterwards.
            call.give_way();
        }
    }
    call.client.show_subscriptions();
    Ok(())
}

/// Items give way to subscriptions when so many have come.
const SUBSCRIPTIONS_AT_ONCE: usize = 1 << 10;

/// What is answered for each name, beside the name.
const ANSWER_BYTES: usize = 64;

/// What is answered at most, if each name is told.
fn answers_bytes(names: Args<'_>) -> usize {
    names.encoded().len() + names.len() * ANSWER_BYTES
}

fn unsubscribe(call: &mut Call<'_, '_, '_>, args: Args<'_>, kind: Kind) -> Done {
    let word: &[u8] = match kind {
        Kind::Channel => b"unsubscribe",
        Kind::Pattern => b"punsubscribe",
        Kind::Shard => b"sunsubscribe",
    };
    let remove = |call: &mut Call<'_, '_, '_>, name: &[u8]| {
        call.spend(SUBSCRIBE_NS);
        call.subscriptions().remove(kind, name);
        let count = call.subscriptions().len(kind);
        call.push(3);
        put_bulk(call.out, word);
        put_bulk(call.out, name);
        put_integer(call.out, count as i64);
    };
    if !args.is_empty() {
        call.make_room(answers_bytes(args))?;
        args.for_each(|name| remove(call, name));
    } else if call.subscriptions().names(kind).is_empty() {
        let count = call.subscriptions().len(kind);
        call.push(3);
        put_bulk(call.out, word);
        put_null(call.out, call.client.resp3);
        put_integer(call.out, count as i64);
    } else {
        let bytes = call.subscriptions().names(kind).iter().map(|name| name.len() + ANSWER_BYTES).sum();
        call.make_room(bytes)?;
        while let Some(name) = call.subscriptions().names(kind).first().cloned() {
            remove(call, &name);
        }
    }
    if call.client.subscriptions.as_ref().is_some_and(|all| all.count() == 0 && !all.monitors) {
        call.client.subscriptions = None;
    }
    call.client.show_subscriptions();
    Ok(())
}

/// Most bytes of a channel's name: that of a keyspace event has a key in it.
const CHANNEL_BYTES_MAX: usize = 2 * KEY_BYTES_MAX;

/// A name that may be listened to, or published by.
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

fn counts(call: &mut Call<'_, '_, '_>, args: Args<'_>, space: fn(&Topics) -> &Space) -> Done {
    call.spend(args.len() as u64 * LOOK_NS);
    call.make_room(answers_bytes(args))?;
    put_array(call.out, 2 * args.len());
    for name in args {
        put_bulk(call.out, name);
        put_integer(call.out, space(&call.cx.shared.topics).count(name) as i64);
    }
    Ok(())
}

fn monitor(call: &mut Call<'_, '_, '_>, _: Args<'_>) -> Done {
    if call.cx.guard.in_transaction() {
        return Err(Fail::of("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    let subscriptions = call.subscriptions();
    if !subscriptions.monitors {
        subscriptions.monitors = true;
        subscriptions.topics.add_monitor(subscriptions.target);
    }
    call.client.show_subscriptions();
    call.ok()
}
