//! Requests of a [`Client`] on several keys: reads and writes of many, transactions with WATCH, messages, and
//! counters that all clients share.

use crate::client::{Client, is_long, is_number, open};
use crate::dialect::{Dialect, Reply, of_reply, reply};
use crate::op::{Seen, Ttl, Verb, short};
use crate::wire::{Manner, Wire};
use crate::world::{Cause, Span, World};
use larder_testkit::talk::encode;
use std::io;

/// Keys of a `get` or MGET.
const MANY: usize = 60;
/// Keys of an MSET.
const STORED: usize = 12;
/// Commands of a transaction.
const QUEUED: usize = 8;
/// Counters that all clients share.
pub const SHARED: usize = 3;
/// The first value of a counter.
pub const SHARED_START: u64 = 5_000_000;

impl Client<'_> {
    /// Sends a `get` or MGET of many keys.
    pub(crate) fn many(&mut self) {
        let text = self.random.chance(50);
        let keys = self.some_keys(MANY, !text);
        if keys.is_empty() {
            return;
        }
        let names: Vec<String> = keys.iter().map(|&key| self.key(key).name.clone()).collect();
        let words: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
        let (at, bytes, dialect) = if text {
            let line: Vec<&str> = names.iter().map(String::as_str).collect();
            (self.random.below(2), format!("get {}\r\n", line.join(" ")).into_bytes(), Dialect::Classic)
        } else {
            (self.resp_wire(), encode(&[&[&b"MGET"[..]], &words[..]].concat()), Dialect::Resp)
        };
        let (seen, span, ended) = self.ask(at, &bytes, Manner::Prompt, |wire| {
            let seen = if text { hits(wire, &names) } else { values(wire, names.len()) };
            match seen {
                Ok(seen) => (seen, Ok(())),
                Err(error) => (Vec::new(), Err(error)),
            }
        });
        self.tally("get of several");
        for (key, seen) in keys.iter().zip(&seen) {
            // A value that had no memory to be sent, and all behind it, shows nothing.
            if *seen != Seen::NotSent && !self.judge(*key, dialect, &Verb::Get, seen, &span) {
                self.close(at);
                break;
            }
        }
        if let Err(error) = ended {
            self.broken(at, Manner::Prompt, &error, "a get of several");
        }
    }

    /// Sends an MSET.
    pub(crate) fn store_many(&mut self) {
        let keys = self.some_keys(STORED, true);
        if keys.is_empty() {
            return;
        }
        let pairs: Vec<(String, Vec<u8>)> =
            keys.iter().map(|&key| (self.key(key).name.clone(), self.new_value(key))).collect();
        let words: Vec<&[u8]> = pairs.iter().flat_map(|(key, value)| [key.as_bytes(), &value[..]]).collect();
        let at = self.resp_wire();
        let (answer, span, ended) =
            self.ask(at, &encode(&[&[&b"MSET"[..]], &words[..]].concat()), Manner::Prompt, one);
        self.tally("set of several");
        for (&key, (_, value)) in keys.iter().zip(pairs) {
            let verb = Verb::Set(value, Ttl::Ever);
            match &answer {
                Some(answer) => {
                    let seen = of_reply(&verb, answer.clone());
                    self.judge(key, Dialect::Resp, &verb, &seen, &span);
                    // MSET is refused when memory ends: the keys before have been set.
                    if seen == Seen::Refused {
                        self.doubt(key, Dialect::Resp, &verb);
                    }
                }
                None => self.doubt(key, Dialect::Resp, &verb),
            }
        }
        if let Err(error) = ended {
            self.broken(at, Manner::Prompt, &error, "MSET");
        }
    }

    /// Sends WATCH, perhaps changes a watched key on another connection, and sends MULTI … EXEC.
    pub(crate) fn transaction(&mut self) {
        let keys = self.some_keys(QUEUED, true);
        if keys.is_empty() {
            return;
        }
        let at = self.resp_wire();
        let before = self.world.moment();
        let watched = if self.random.chance(60) { self.some_keys(4, true) } else { Vec::new() };
        if !watched.is_empty() {
            let names: Vec<String> = watched.iter().map(|&key| self.key(key).name.clone()).collect();
            let words: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
            let request = encode(&[&[&b"WATCH"[..]], &words[..]].concat());
            let (answer, _, ended) = self.ask(at, &request, Manner::Prompt, one);
            match (ended, answer) {
                (Err(error), _) => return self.broken(at, Manner::Prompt, &error, "WATCH"),
                (_, Some(Reply::Simple(ok))) if ok == "OK" => {}
                (_, answer) => self.world.complain(&format!("WATCH was answered {answer:?}")),
            }
        }
        let mut touched = false;
        if !watched.is_empty() && self.random.chance(40) {
            let key = watched[self.random.below(watched.len())];
            let (text, value) = (!is_long(key) && self.random.chance(50), self.new_value(key));
            let (other, dialect) =
                if text { (self.random.below(2), Dialect::Meta) } else { (5 - at, Dialect::Resp) };
            self.exchange(other, dialect, vec![(key, Verb::Set(value.clone(), Ttl::Ever))], Manner::Prompt);
            touched = self.key(key).value() == Some(&value) && !is_number(key);
        }
        // A watched key may be in doubt by now.
        let mut asked = Vec::new();
        for key in keys {
            if !self.key(key).is_doubtful() {
                asked.push((key, self.resp_verb(key)));
            }
        }
        let mut request = encode(&[b"MULTI"]);
        for (key, verb) in &asked {
            Dialect::Resp.put(&mut request, &self.key(*key).name, 0, verb);
        }
        request.extend(encode(&[b"EXEC"]));
        let count = asked.len();
        let (answers, span, ended) = self.ask(at, &request, Manner::Prompt, |wire| {
            let mut answers = Vec::new();
            let ended = (0..count + 2).try_for_each(|_| {
                answers.push(reply(wire)?);
                Ok(())
            });
            (answers, ended)
        });
        self.tally("transaction");
        if let Err(error) = ended {
            asked.iter().for_each(|(key, verb)| self.doubt(*key, Dialect::Resp, verb));
            return self.broken(at, Manner::Prompt, &error, "MULTI … EXEC");
        }
        let whole = Span { before, after: span.after };
        let refused = whole.may_meet(Cause::Full, &whole);
        let queued = |answer: &Reply| match answer {
            Reply::Simple(text) => text == "QUEUED",
            Reply::Error(text) => (refused || World::were_full(text, &whole)) && text.starts_with("OOM"),
            _ => false,
        };
        if answers[0] != Reply::Simple("OK".into()) || !answers[1..=count].iter().all(queued) {
            self.world.complain(&format!("a transaction was queued with {:?}", &answers[..=count]));
        }
        // A refused command has an explanation, or was complained about.
        let is_spoilt = answers[1..=count].iter().any(|answer| matches!(answer, Reply::Error(_)));
        match answers.into_iter().next_back() {
            Some(Reply::Array(Some(answers))) if answers.len() == count => {
                if touched {
                    self.world
                        .complain(&format!("{}: EXEC in spite of a watched key that was set", self.name));
                }
                for ((key, verb), answer) in asked.iter().zip(answers) {
                    let seen = of_reply(verb, answer);
                    if !self.judge(*key, Dialect::Resp, verb, &seen, &span) {
                        self.close(at);
                    }
                }
            }
            Some(Reply::Array(None)) => {
                self.tally("transaction, nothing done");
                let mut explained = touched;
                for &key in &watched {
                    // The key existed and may be gone, or its state is unknown.
                    let key = self.key(key);
                    explained |= (key.value().is_some() && key.may_be_gone(&whole)) || key.is_doubtful();
                    explained |= key.value().is_none() && whole.may_meet(Cause::Evict, &whole);
                }
                // A number that is set to its old value may count as touched or not.
                explained |= watched.iter().any(|&key| is_number(key));
                if !explained {
                    let watched: Vec<&str> = watched.iter().map(|&key| &self.key(key).name[..]).collect();
                    self.world
                        .complain(&format!("EXEC did nothing, and nobody touched {}", watched.join(" ")));
                }
            }
            Some(Reply::Error(text))
                if text.starts_with("EXECABORT")
                    && (refused || is_spoilt || World::were_full(&text, &whole)) =>
            {
                self.tally("transaction, refused");
            }
            answer => {
                self.world.complain(&format!("EXEC of {count} was answered {answer:?}"));
                asked.iter().for_each(|(key, verb)| self.doubt(*key, Dialect::Resp, verb));
            }
        }
    }

    /// Publishes messages to the client's own subscriber, which must get each once and in order.
    pub(crate) fn publish(&mut self) {
        let channel = format!("channel:{}", self.name);
        if self.subscriber.is_none() {
            self.subscriber = self.subscribe(&channel);
        }
        let Some(address) = self.subscriber.as_ref().map(|wire| wire.address) else { return };
        let count = self.random.within(1, 20);
        let messages: Vec<Vec<u8>> = (0..count).map(|n| self.new_value(2 * n + 1)).collect();
        let request: Vec<u8> =
            messages.iter().flat_map(|message| encode(&[b"PUBLISH", channel.as_bytes(), message])).collect();
        let at = self.resp_wire();
        let (heard_by, _, ended) = self.ask(at, &request, Manner::Prompt, |wire| {
            let mut heard_by = Vec::new();
            let ended = (0..count).try_for_each(|_| {
                heard_by.push(reply(wire)?);
                Ok(())
            });
            (heard_by, ended)
        });
        self.tally("publish");
        let mut told = Vec::new();
        let mut end = Ok(());
        if let Some(wire) = &mut self.subscriber {
            for _ in heard_by.iter().filter(|heard| **heard == Reply::Number(1)) {
                match reply(wire) {
                    Ok(message) => told.push(message),
                    Err(error) => {
                        end = Err(error);
                        break;
                    }
                }
            }
        }
        *self.tally.entry("messages").or_default() += told.len() as u64;
        for (told, message) in told.iter().zip(&messages) {
            let words = [&b"message"[..], channel.as_bytes(), message];
            let expected = Reply::Array(Some(words.map(|word| Reply::Bulk(Some(word.to_vec()))).to_vec()));
            if *told != expected {
                let told = short(format!("{told:?}").as_bytes());
                self.world.complain(&format!("{channel}: {told} in place of {}", short(message)));
            }
        }
        let killed = self.world.was_killed(address);
        let all = heard_by.iter().all(|heard| *heard == Reply::Number(1));
        if let Err(error) = end {
            if !killed {
                self.world.complain(&format!("{channel}: after {} messages: {error}", told.len()));
            }
        } else if !all && !killed {
            self.world.complain(&format!("{channel}: PUBLISH was answered {heard_by:?}"));
        }
        if let Err(error) = ended {
            // Messages behind the last reply may have been published or not.
            self.broken(at, Manner::Prompt, &error, "PUBLISH");
            self.subscriber = None;
        } else if killed || !all {
            self.subscriber = None;
        }
    }

    fn subscribe(&mut self, channel: &str) -> Option<Wire> {
        let mut wire = open(self.world, 1)?;
        let request = encode(&[b"SUBSCRIBE", channel.as_bytes()]);
        let answer = wire.send(&request, Manner::Prompt, &mut self.random).and_then(|()| reply(&mut wire));
        match answer {
            Ok(Reply::Array(Some(words))) if words.last() == Some(&Reply::Number(1)) => return Some(wire),
            Err(_) if self.world.was_killed(wire.address) => {}
            answer => self.world.complain(&format!("SUBSCRIBE was answered {answer:?}")),
        }
        None
    }

    /// Adds to a counter that all clients share, in one of three ways that lose nothing.
    pub(crate) fn contend(&mut self) {
        let round = self.world.round.load(std::sync::atomic::Ordering::SeqCst);
        let name = format!("shared:{round}:{}", self.random.below(SHARED));
        let (at, by) = match self.random.below(3) {
            0 => (self.random.below(2), 1),
            1 => (self.random.below(2), 1000),
            _ => (self.resp_wire(), 1_000_000),
        };
        let done = match by {
            1 => self.count_up(at, &name),
            1000 => self.compare_and_swap(at, &name, by),
            _ => self.watch_and_set(at, &name, by),
        };
        self.tally("shared counter");
        let mut sums = self.world.sums.lock().expect("not poisoned");
        let Some((least, most)) = sums.get_mut(&name) else { return };
        match done {
            Ok(true) => (*least, *most) = (*least + by, *most + by),
            Ok(false) => {}
            // The addition may have been done.
            Err(_) => *most += by,
        }
        drop(sums);
        if let Err(error) = done {
            self.broken(at, Manner::Prompt, &error, "a shared counter");
        }
    }

    fn line(&mut self, at: usize, request: &[u8]) -> io::Result<String> {
        let (line, _, ended) = self.ask(at, request, Manner::Prompt, |wire| match wire.line() {
            Ok(line) => (String::from_utf8_lossy(&line).into_owned(), Ok(())),
            Err(error) => (String::new(), Err(error)),
        });
        ended.map(|()| line)
    }

    fn count_up(&mut self, at: usize, name: &str) -> io::Result<bool> {
        let line = self.line(at, format!("incr {name} 1\r\n").as_bytes())?;
        if line.parse::<u64>().is_err() {
            self.world.complain(&format!("incr {name} 1 was answered {line}"));
        }
        Ok(true)
    }

    fn compare_and_swap(&mut self, at: usize, name: &str, by: u64) -> io::Result<bool> {
        let (seen, _, ended) =
            self.ask(
                at,
                format!("gets {name}\r\n").as_bytes(),
                Manner::Prompt,
                |wire| match Dialect::Classic.take(wire, &Verb::GetToken) {
                    Ok(seen) => (Some(seen), Ok(())),
                    Err(error) => (None, Err(error)),
                },
            );
        if let Err(error) = ended {
            // Nothing was written.
            self.broken(at, Manner::Prompt, &error, "gets");
            return Ok(false);
        }
        let Some(Seen::Token(value, _, token)) = seen else {
            self.world.lost(&format!("gets {name} was answered {seen:?}"));
            return Ok(false);
        };
        let Some(value) = number(&value) else {
            self.world.complain(&format!("{name} holds {}", short(&value)));
            return Ok(false);
        };
        let text = (value + by).to_string();
        let request = format!("cas {name} 0 0 {} {token}\r\n{text}\r\n", text.len());
        match &self.line(at, request.as_bytes())?[..] {
            "STORED" => Ok(true),
            "EXISTS" => Ok(false),
            other => {
                self.world.complain(&format!("cas {name} was answered {other}"));
                Ok(false)
            }
        }
    }

    fn watch_and_set(&mut self, at: usize, name: &str, by: u64) -> io::Result<bool> {
        let request = [encode(&[b"WATCH", name.as_bytes()]), encode(&[b"GET", name.as_bytes()])].concat();
        let (value, _, ended) =
            self.ask(at, &request, Manner::Prompt, |wire| match reply(wire).and_then(|_| reply(wire)) {
                Ok(value) => (Some(value), Ok(())),
                Err(error) => (None, Err(error)),
            });
        if let Err(error) = ended {
            self.broken(at, Manner::Prompt, &error, "WATCH");
            return Ok(false);
        }
        let value = match value {
            Some(Reply::Bulk(Some(value))) => number(&value),
            _ => None,
        };
        let Some(value) = value else {
            self.world.lost(&format!("GET {name} was answered {value:?}"));
            return Ok(false);
        };
        let set = encode(&[b"SET", name.as_bytes(), (value + by).to_string().as_bytes()]);
        let request = [encode(&[b"MULTI"]), set, encode(&[b"EXEC"])].concat();
        let (answer, _, ended) = self.ask(at, &request, Manner::Prompt, |wire| {
            match reply(wire).and_then(|_| reply(wire)).and_then(|_| reply(wire)) {
                Ok(value) => (Some(value), Ok(())),
                Err(error) => (None, Err(error)),
            }
        });
        ended?;
        match answer {
            Some(Reply::Array(Some(_))) => Ok(true),
            Some(Reply::Array(None)) => Ok(false),
            other => {
                self.world.complain(&format!("EXEC of SET {name} was answered {other:?}"));
                Ok(false)
            }
        }
    }
}

/// Reads one reply.
fn one(wire: &mut Wire) -> (Option<Reply>, io::Result<()>) {
    match reply(wire) {
        Ok(reply) => (Some(reply), Ok(())),
        Err(error) => (None, Err(error)),
    }
}

/// The number in a value; memcached pads numbers with spaces.
pub fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.trim_end().parse().ok()
}

/// Reads the reply to a `get` of these keys: hits come in the order of the request.
fn hits(wire: &mut Wire, names: &[String]) -> io::Result<Vec<Seen>> {
    let mut seen = Vec::new();
    loop {
        let line = wire.line()?;
        let text = String::from_utf8_lossy(&line).into_owned();
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["END"] => {
                seen.resize(names.len(), Seen::Nothing);
                return Ok(seen);
            }
            ["VALUE", key, flags, bytes] => {
                let at = names[seen.len()..].iter().position(|name| name == key);
                let (Some(at), Ok(flags), Ok(bytes)) = (at, flags.parse(), bytes.parse()) else {
                    return Err(io::Error::other(format!("not asked for: {text}")));
                };
                seen.resize(seen.len() + at, Seen::Nothing);
                seen.push(Seen::Value(wire.block(bytes)?, Some(flags)));
            }
            _ if text.ends_with("writing get response") => {
                seen.resize(names.len(), Seen::NotSent);
                return Ok(seen);
            }
            _ => return Err(io::Error::other(format!("no reply to a get: {text}"))),
        }
    }
}

/// Reads the reply to an MGET of `count` keys.
fn values(wire: &mut Wire, count: usize) -> io::Result<Vec<Seen>> {
    match reply(wire)? {
        Reply::Array(Some(values)) if values.len() == count => {
            Ok(values.into_iter().map(|value| of_reply(&Verb::Get, value)).collect())
        }
        Reply::Error(text) if text.starts_with("OOM") => Ok(vec![Seen::NotSent; count]),
        other => {
            Err(io::Error::other(format!("no reply to MGET: {}", short(format!("{other:?}").as_bytes()))))
        }
    }
}
