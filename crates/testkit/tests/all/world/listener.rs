//! Subscribers: a subscriber gets all messages of a channel from its subscription on, in order, none twice.

use crate::world::books::{Books, Channel};
use crate::world::judge::{bulk_at, shown};
use crate::world::part::{Dialect, bulk};

/// A channel to which a client has subscribed.
#[derive(Debug)]
pub struct Subscription {
    /// Its publisher.
    pub owner: usize,
    pub channel: String,
    /// The number of the next message at the latest, from the reply to the subscription on; the exact number from the first
    /// message on.
    pub next: Option<u64>,
    /// A message has arrived.
    pub heard: bool,
}

/// The kind of the bytes at the front of the input.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message of this many bytes.
    Message(usize),
    /// More bytes are needed to decide.
    More,
    /// No message.
    Nothing,
}

/// Takes a message.
///
/// # Errors
/// What is wrong with it.
pub fn hear(
    subscriptions: &mut [Subscription],
    dialect: Dialect,
    rest: &[u8],
    books: &Books,
) -> Result<Heard, String> {
    let mark = if dialect == Dialect::Resp3 { '>' } else { '*' };
    let head = [format!("{mark}3\r\n").as_bytes(), &bulk(b"message")].concat();
    if head.starts_with(rest) {
        return Ok(Heard::More);
    }
    let Some(body) = rest.strip_prefix(&head[..]) else { return Ok(Heard::Nothing) };
    let Some((first, channel)) = bulk_at(body)? else { return Ok(Heard::More) };
    let Some((second, message)) = bulk_at(&body[first..])? else { return Ok(Heard::More) };
    let subscription =
        subscriptions.iter_mut().find(|subscription| subscription.channel.as_bytes() == channel);
    let subscription = subscription.ok_or("a message of a channel that it does not listen to")?;
    let number = larder_testkit::proof::version(&subscription.channel, message)?;
    if message != Channel::message(&subscription.channel, number) {
        return Err(format!("message {number} is not as it was sent: {}", shown(message)));
    }
    let published = &books.channels[subscription.owner];
    match subscription.next {
        Some(next) if number > next && !published.may_be_missing(next..number) => {
            return Err(format!("{}: {number} comes where {next} is next", subscription.channel));
        }
        Some(next) if number < next && subscription.heard => {
            return Err(format!("{}: {number} comes behind {}", subscription.channel, next - 1));
        }
        Some(next) if number < next => {}
        Some(_) => {}
        None => return Err("a message before it was told that it listens".into()),
    }
    subscription.next = Some(number + 1);
    subscription.heard = true;
    Ok(Heard::Message(head.len() + first + second))
}

impl Subscription {
    /// True if everything that was surely published since its subscription has come.
    pub fn has_all(&self, books: &Books) -> bool {
        let published = &books.channels[self.owner];
        self.next.is_none_or(|next| next >= published.sure || published.may_be_missing(next..published.sure))
    }
}
