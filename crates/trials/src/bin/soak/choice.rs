//! The requests of a [`Client`]: keys, operations and values, all from its random numbers.

use crate::client::{Client, KEYS, is_long, is_number};
use crate::dialect::Dialect;
use crate::op::{Ttl, Verb};
use crate::values::length;

/// Most bytes of replies that a pipeline asks for, unless its replies are read late: a server that cannot
/// send its replies reads no further requests, so both sides would wait for each other.
const REPLY_BYTES: usize = 2 << 20;
/// Numbers start here, so that no subtraction changes their number of digits.
const NUMBER: u64 = 5_000_000;

impl Client<'_> {
    /// Many reads of large values: more than sockets take.
    pub(crate) fn large_gets(&mut self) -> Vec<(usize, Verb)> {
        let mut large = Vec::new();
        for key in (0..KEYS).filter(|&key| !is_long(key)) {
            if self.keys[key].value().is_some_and(|value| value.len() > 4096) {
                large.push((key, Verb::Get));
            }
        }
        let few = self.random.within(1, 200);
        large.into_iter().cycle().take(few).collect()
    }

    /// Up to `count` operations that `dialect` knows.
    pub(crate) fn operations(&mut self, count: usize, dialect: Dialect) -> Vec<(usize, Verb)> {
        let mut asked: Vec<(usize, Verb)> = Vec::new();
        let mut reply_bytes = 0;
        // Now and then all operations are on a few keys, so that one sees the effects of another.
        let keys = if self.random.chance(20) { 3 } else { KEYS };
        let from = self.random.below(KEYS);
        for _ in 0..count {
            let key = (from + self.random.below(keys)) % KEYS;
            if dialect != Dialect::Resp && is_long(key) {
                continue;
            }
            if self.keys[key].is_doubtful() {
                // The key is in doubt until it is read.
                if !asked.iter().any(|(other, _)| *other == key) {
                    asked.push((key, Verb::Get));
                }
                continue;
            }
            let verb = if is_number(key) { self.of_number(key) } else { self.of_value(key) };
            let fresh = !asked.iter().any(|(other, _)| *other == key);
            if !dialect.knows(&verb) || (matches!(verb, Verb::Minus(_)) && !fresh) {
                continue;
            }
            reply_bytes += self.keys[key].value().map_or(0, <[u8]>::len);
            if reply_bytes > REPLY_BYTES {
                break;
            }
            asked.push((key, verb));
        }
        asked
    }

    pub(crate) fn ttl(&mut self) -> Ttl {
        match self.random.below(10) {
            0 => Ttl::Ms(self.random.within(20, 3000) as u64),
            1 => Ttl::Ms(self.random.within(60_000, 600_000) as u64),
            _ => Ttl::Ever,
        }
    }

    pub(crate) fn of_value(&mut self, key: usize) -> Verb {
        let ttl = self.ttl();
        let bytes = length(&mut self.random);
        let chosen = self.random.below(100);
        let value = match chosen {
            // Added values stay short, so that no value exceeds the limit.
            60..68 => self.values.make(&self.keys[key].name, bytes % 500 + 1),
            _ if chosen >= 38 => self.values.make(&self.keys[key].name, bytes),
            _ => Vec::new(),
        };
        match chosen {
            0..24 => Verb::Get,
            24..32 => Verb::GetToken,
            32..34 => Verb::Exists,
            34..36 => Verb::Length,
            36..38 => Verb::Take,
            38..58 => Verb::Set(value, ttl),
            58..60 => Verb::Swap(value),
            60..65 => Verb::Append(value),
            65..68 => Verb::Prepend(value),
            68..74 => Verb::Add(value, ttl),
            74..80 => Verb::Replace(value, ttl),
            80..90 => match self.keys[key].token() {
                Some(token) => Verb::Cas(value, token),
                None => Verb::GetToken,
            },
            90..95 => Verb::Delete,
            _ => Verb::Touch(ttl),
        }
    }

    pub(crate) fn of_number(&mut self, key: usize) -> Verb {
        let ttl = self.ttl();
        let by = self.random.within(1, 9) as u64;
        let number =
            self.keys[key].value().and_then(|value| std::str::from_utf8(value).ok()?.parse::<u64>().ok());
        match self.random.below(100) {
            0..30 => Verb::Get,
            30..40 => Verb::GetToken,
            40..65 => Verb::Plus(by),
            65..80 if number.is_some_and(|number| number > NUMBER / 2) => Verb::Minus(by),
            80..84 => Verb::Delete,
            84..88 => Verb::Touch(ttl),
            _ => Verb::Set(NUMBER.to_string().into_bytes(), ttl),
        }
    }

    /// Different keys, none in doubt.
    pub(crate) fn some_keys(&mut self, most: usize, long_too: bool) -> Vec<usize> {
        let count = self.random.within(1, most);
        let mut keys: Vec<usize> = (0..count).map(|_| self.random.below(KEYS)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.retain(|&key| !self.keys[key].is_doubtful() && (long_too || !is_long(key)));
        keys
    }

    /// An operation that RESP has.
    pub(crate) fn resp_verb(&mut self, key: usize) -> Verb {
        loop {
            let verb = if is_number(key) { self.of_number(key) } else { self.of_value(key) };
            if Dialect::Resp.knows(&verb) {
                return verb;
            }
        }
    }

    /// A new value for a key.
    pub(crate) fn new_value(&mut self, key: usize) -> Vec<u8> {
        if is_number(key) {
            return NUMBER.to_string().into_bytes();
        }
        let bytes = length(&mut self.random);
        self.values.make(&self.keys[key].name, bytes)
    }
}
