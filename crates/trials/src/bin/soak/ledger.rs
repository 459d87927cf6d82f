//! The state that a client's keys must have. It judges every reply, and follows every acknowledged change.
//!
//! Only this client writes its keys. So a value that is read is the last one written, or the key is missing
//! and something explains it (see [`crate::world`]). Once it is missing it stays so until it is written. If a
//! connection ended before its replies, a key is in doubt until it is read: it holds what any of the
//! unanswered operations may have made of it, and nothing else.

use crate::dialect::Dialect;
use crate::op::{Seen, Ttl, Verb, short};
use crate::world::{Cause, Span};
use doubt::{counted, differs, done, resolve};

mod doubt;
#[cfg(test)]
mod tests;

/// Most difference between the server's clock, which it reads once a batch, and ours.
const CLOCK_MS: u64 = 50;

/// The state of a key.
#[derive(Clone, Debug)]
pub enum Entry {
    /// The key does not exist.
    Absent,
    /// A value.
    Item(Item),
    /// One of these values, or no value (`None`). Without a list, any state is possible.
    Doubtful(Option<Vec<Option<Vec<u8>>>>),
}

/// A value, and all that is known of it.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its bytes.
    pub value: Vec<u8>,
    flags: Option<u32>,
    /// The earliest and the latest time at which it expires, in milliseconds.
    expires: Option<(u64, u64)>,
    token: Token,
    /// From when it was last known to exist to when it was written at the latest.
    span: Span,
    /// It may have an unknown expiry.
    loose: bool,
}

/// What is known about a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Is(u64),
    /// Larger than any token that was seen.
    Changed,
    /// Perhaps changed.
    Unknown,
}

/// A key.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its name.
    pub name: String,
    /// The flags that memcached's commands give it.
    pub flags: u32,
    /// Its state.
    pub entry: Entry,
    token_max: u64,
}

/// What is wrong with a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An acknowledged value is missing.
    Lost(String),
    /// Anything else.
    Wrong(String),
}

/// Whether a value existed, and the kind of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The value exists.
    There,
    /// There is no value, as expected.
    Absent,
    /// The value is gone, and something explains that.
    Gone,
    /// The request was refused, and something explains that.
    Refused,
    /// The state was unknown.
    Doubtful,
}

impl Key {
    /// A key that was never written.
    pub fn new(name: String, flags: u32) -> Key {
        Key { name, flags, entry: Entry::Absent, token_max: 0 }
    }

    /// Whether the state is unknown.
    pub fn is_doubtful(&self) -> bool {
        matches!(self.entry, Entry::Doubtful(_))
    }

    /// The value, if one should exist.
    pub fn value(&self) -> Option<&[u8]> {
        match &self.entry {
            Entry::Item(item) => Some(&item.value),
            Entry::Absent | Entry::Doubtful(_) => None,
        }
    }

    /// The item's token, if it is known; else one that it no longer has.
    pub fn token(&self) -> Option<u64> {
        match &self.entry {
            Entry::Item(Item { token: Token::Is(token), .. }) => Some(*token),
            _ => (self.token_max > 0).then_some(self.token_max),
        }
    }

    /// Whether something during `span` explains that the key is missing.
    pub fn may_be_gone(&self, span: &Span) -> bool {
        match &self.entry {
            Entry::Absent | Entry::Doubtful(_) => true,
            Entry::Item(item) => item.may_be_gone(span),
        }
    }

    /// Judges the reply to `verb`.
    ///
    /// # Errors
    /// What is wrong with it. From then on the key has the state that the reply shows.
    pub fn judge(&mut self, dialect: Dialect, verb: &Verb, seen: &Seen, span: &Span) -> Result<Fate, Fault> {
        let fate = self.follow(dialect, verb, seen, span);
        if fate.is_err() {
            self.entry = Entry::Doubtful(None);
        }
        fate.map_err(|fault| {
            let told = |text: String| {
                format!("{} of {} by {dialect:?}: {text}; seen {}", verb.name(), self.name, seen.shown())
            };
            match fault {
                Fault::Lost(text) => Fault::Lost(told(text)),
                Fault::Wrong(text) => Fault::Wrong(told(text)),
            }
        })
    }

    fn follow(&mut self, dialect: Dialect, verb: &Verb, seen: &Seen, span: &Span) -> Result<Fate, Fault> {
        if let Entry::Doubtful(options) = &self.entry {
            if let Some(entry) = resolve(options.as_deref(), verb, seen, *span)? {
                self.entry = entry;
            } else {
                self.doubt(dialect, verb);
            }
            return Ok(Fate::Doubtful);
        }
        let text = dialect != Dialect::Resp;
        let flags = text.then_some(self.flags);
        let fresh = |value: &[u8], ttl: Ttl| Item {
            value: value.to_vec(),
            flags,
            expires: expiry(ttl, dialect, span),
            token: Token::Changed,
            span: *span,
            loose: false,
        };
        match (verb, seen) {
            (Verb::Get, Seen::NotSent) => match self.value() {
                Some(value) if value.len() > 16 << 10 => Ok(Fate::Refused),
                _ => Err(Fault::Wrong("a small value is always sent".into())),
            },
            (Verb::Get | Verb::GetToken | Verb::Exists | Verb::Delete | Verb::Touch(_), Seen::Nothing)
            | (Verb::Take | Verb::Replace(..) | Verb::Cas(..), Seen::Nothing)
            | (Verb::Length, Seen::Number(0)) => self.absent(span),
            (Verb::Append(_) | Verb::Prepend(_) | Verb::Plus(_) | Verb::Minus(_), Seen::Nothing) if text => {
                self.absent(span)
            }
            (Verb::Get, Seen::Value(value, flags)) => {
                self.holds(value, *flags, span)?;
                Ok(Fate::There)
            }
            (Verb::GetToken, Seen::Token(value, flags, token)) => {
                self.holds(value, Some(*flags), span)?;
                self.has_token(*token)?;
                Ok(Fate::There)
            }
            (Verb::Exists, Seen::Done) => {
                self.present(span)?;
                Ok(Fate::There)
            }
            (Verb::Length, Seen::Number(bytes)) => {
                let item = self.present(span)?;
                if item.value.len() as u64 != *bytes {
                    return Err(Fault::Wrong(format!("it has {} bytes", item.value.len())));
                }
                Ok(Fate::There)
            }
            (Verb::Take, Seen::Value(value, flags)) => {
                self.holds(value, *flags, span)?;
                self.entry = Entry::Absent;
                Ok(Fate::There)
            }
            (Verb::Delete, Seen::Done) => {
                self.present(span)?;
                self.entry = Entry::Absent;
                Ok(Fate::There)
            }
            (Verb::Touch(ttl), Seen::Done) => {
                let item = self.present(span)?;
                item.expires = expiry(*ttl, dialect, span);
                item.loose = false;
                item.token = if item.token == Token::Changed { Token::Changed } else { Token::Unknown };
                Ok(Fate::There)
            }
            (Verb::Set(value, ttl), Seen::Done) => {
                self.entry = Entry::Item(fresh(value, *ttl));
                Ok(Fate::There)
            }
            (Verb::Swap(new), Seen::Value(value, flags)) => {
                self.holds(value, *flags, span)?;
                self.entry = Entry::Item(fresh(new, Ttl::Ever));
                Ok(Fate::There)
            }
            (Verb::Swap(new), Seen::Nothing) => {
                let fate = self.absent(span)?;
                self.entry = Entry::Item(fresh(new, Ttl::Ever));
                Ok(fate)
            }
            (Verb::Add(value, ttl), Seen::Done) => {
                let fate = self.absent(span)?;
                self.entry = Entry::Item(fresh(value, *ttl));
                Ok(fate)
            }
            (Verb::Add(..), Seen::Otherwise) => {
                self.present(span)?;
                Ok(Fate::There)
            }
            (Verb::Replace(value, ttl), Seen::Done) => {
                self.present(span)?;
                self.entry = Entry::Item(fresh(value, *ttl));
                Ok(Fate::There)
            }
            (Verb::Cas(value, token), Seen::Done) => {
                let item = self.present(span)?;
                if !matches!(item.token, Token::Unknown) && item.token != Token::Is(*token) {
                    return Err(Fault::Wrong(format!("its token is {:?}", item.token)));
                }
                self.entry = Entry::Item(fresh(value, Ttl::Ever));
                Ok(Fate::There)
            }
            (Verb::Cas(_, token), Seen::Otherwise) => {
                let item = self.present(span)?;
                if item.token == Token::Is(*token) {
                    return Err(Fault::Wrong("it has this token".into()));
                }
                Ok(Fate::There)
            }
            (Verb::Append(more) | Verb::Prepend(more), Seen::Done) if text => {
                let front = matches!(verb, Verb::Prepend(_));
                self.concat(more, front, span)
            }
            (Verb::Append(more), Seen::Number(bytes)) if !text => {
                if *bytes == more.len() as u64 {
                    let fate = self.absent(span)?;
                    self.entry = Entry::Item(fresh(more, Ttl::Ever));
                    return Ok(fate);
                }
                let fate = self.concat(more, false, span)?;
                let length = self.value().map_or(0, <[u8]>::len);
                if length as u64 != *bytes {
                    return Err(Fault::Wrong(format!("it has {length} bytes now")));
                }
                Ok(fate)
            }
            (Verb::Plus(by), Seen::Number(sum)) if !text && sum == by => {
                let fate = self.absent(span)?;
                self.entry = Entry::Item(fresh(sum.to_string().as_bytes(), Ttl::Ever));
                Ok(fate)
            }
            (Verb::Plus(_) | Verb::Minus(_), Seen::Number(sum)) => {
                let item = self.present(span)?;
                let new =
                    counted(&item.value, verb, text).ok_or(Fault::Wrong("it holds no number".into()))?;
                if String::from_utf8_lossy(&new).trim_end() != sum.to_string() {
                    return Err(Fault::Wrong(format!("it was {}", short(&item.value))));
                }
                item.rewrite(new, span);
                Ok(Fate::There)
            }
            (_, Seen::Refused) => {
                let reads = matches!(verb, Verb::Get | Verb::GetToken | Verb::Take | Verb::Swap(_));
                let unread = reads && span.may_be_full();
                // There may also be no memory for a value that is gathered until it is complete.
                let unkept = span.may_meet(Cause::Evict, span);
                if !unread && !unkept && !span.may_meet(Cause::Full, span) {
                    return Err(Fault::Wrong("there is memory".into()));
                }
                let value = self.value().map(<[u8]>::to_vec);
                match (dialect, verb) {
                    // memcached deletes the old value that was to be overwritten.
                    (Dialect::Classic, Verb::Set(..)) => self.entry = Entry::Absent,
                    // `ms` deletes it in every mode, if it finds no memory; perhaps it was refused before
                    // that.
                    (Dialect::Meta, Verb::Plus(_) | Verb::Minus(_) | Verb::Touch(_)) => {}
                    (Dialect::Meta, _) => self.entry = Entry::Doubtful(Some(vec![value, None])),
                    (Dialect::Classic | Dialect::Resp, _) => {}
                }
                Ok(Fate::Refused)
            }
            _ => Err(Fault::Wrong("this is no answer to it".into())),
        }
    }

    /// Notes that the item existed during `span`.
    fn present(&mut self, span: &Span) -> Result<&mut Item, Fault> {
        match &mut self.entry {
            Entry::Absent => Err(Fault::Wrong("it is gone, and nobody has written it since".into())),
            Entry::Item(item) => match item.must_be_gone(span) {
                Some(why) => Err(Fault::Wrong(format!("it must be gone by {why}"))),
                None => {
                    item.span.before = span.before;
                    Ok(item)
                }
            },
            Entry::Doubtful(_) => unreachable!("resolved before"),
        }
    }

    /// Notes that the item was missing during `span`.
    fn absent(&mut self, span: &Span) -> Result<Fate, Fault> {
        match &self.entry {
            Entry::Absent => Ok(Fate::Absent),
            Entry::Item(item) if item.may_be_gone(span) => {
                self.entry = Entry::Absent;
                Ok(Fate::Gone)
            }
            Entry::Item(item) => Err(Fault::Lost(format!(
                "{} was acknowledged {} ms ago, and nothing took it",
                short(&item.value),
                span.after.at_ms - item.span.before.at_ms
            ))),
            Entry::Doubtful(_) => unreachable!("resolved before"),
        }
    }

    fn holds(&mut self, value: &[u8], flags: Option<u32>, span: &Span) -> Result<(), Fault> {
        let item = self.present(span)?;
        if item.value != value {
            return Err(Fault::Wrong(format!(
                "it holds {}, {}",
                short(&item.value),
                differs(&item.value, value)
            )));
        }
        match (item.flags, flags) {
            (Some(ours), Some(theirs)) if ours != theirs => {
                Err(Fault::Wrong(format!("its flags are {ours}")))
            }
            _ => Ok(()),
        }
    }

    fn has_token(&mut self, token: u64) -> Result<(), Fault> {
        let most = self.token_max;
        let Entry::Item(item) = &mut self.entry else { return Ok(()) };
        let fits = match item.token {
            Token::Is(known) => known == token,
            Token::Changed => token > most,
            Token::Unknown => token >= most,
        };
        if !fits {
            return Err(Fault::Wrong(format!("its token is {:?}, the largest seen {most}", item.token)));
        }
        item.token = Token::Is(token);
        self.token_max = token;
        Ok(())
    }

    fn concat(&mut self, more: &[u8], front: bool, span: &Span) -> Result<Fate, Fault> {
        let item = self.present(span)?;
        let new = if front { [more, &item.value].concat() } else { [&item.value[..], more].concat() };
        item.rewrite(new, span);
        Ok(Fate::There)
    }

    /// Notes that the connection ended before the reply to `verb`. Calls must be in the order of the
    /// requests.
    pub fn doubt(&mut self, dialect: Dialect, verb: &Verb) {
        let mut options = match std::mem::replace(&mut self.entry, Entry::Absent) {
            // The item may be gone by now.
            Entry::Item(item) => vec![Some(item.value), None],
            Entry::Absent => vec![None],
            Entry::Doubtful(Some(options)) => options,
            Entry::Doubtful(None) => return self.entry = Entry::Doubtful(None),
        };
        let after: Vec<_> = options.iter().map(|value| done(dialect, verb, value.as_deref())).collect();
        for value in after {
            if !options.contains(&value) {
                options.push(value);
            }
        }
        self.entry = Entry::Doubtful(Some(options));
    }
}

impl Item {
    fn may_be_gone(&self, span: &Span) -> bool {
        self.loose
            || self.span.may_meet(Cause::Flush, span)
            || self.span.may_meet(Cause::Evict, span)
            || self.expires.is_some_and(|(early, _)| early <= span.after.at_ms)
    }

    fn must_be_gone(&self, span: &Span) -> Option<&'static str> {
        if self.span.was_followed_by(Cause::Flush, span) {
            return Some("a flush");
        }
        self.expires.is_some_and(|(_, late)| late <= span.before.at_ms).then_some("its expiry")
    }

    /// Sets another value; the expiry stays.
    fn rewrite(&mut self, value: Vec<u8>, span: &Span) {
        self.value = value;
        self.token = Token::Changed;
        self.span = *span;
    }
}

/// When an item written during `span` expires.
fn expiry(ttl: Ttl, dialect: Dialect, span: &Span) -> Option<(u64, u64)> {
    let (ms, unit) = match (ttl, dialect) {
        (Ttl::Ever, _) => return None,
        (Ttl::Ms(ms), Dialect::Resp) => (ms, 0),
        (Ttl::Ms(_), Dialect::Classic | Dialect::Meta) => (ttl.seconds() * 1000, 1000),
    };
    Some(((span.before.at_ms + ms).saturating_sub(CLOCK_MS), span.after.at_ms + ms + unit + CLOCK_MS))
}
