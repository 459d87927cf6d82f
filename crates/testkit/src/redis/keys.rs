//! The [`Model`](super::model::Model)'s keys: their expiry, moves and copies, and what scans find.

use super::glob;
use super::model::{Item, number_of};
use super::payload;
use super::reply::{Reply, bulk};
use super::words::{Answer, Fail, SYNTAX, Words, database, int, integer, ok};
use std::collections::BTreeSet;

const SAME: &str = "ERR source and destination objects are the same";

impl Words<'_> {
    /// When a value that is stored now with this option expires.
    pub(super) fn deadline(&self, name: &str, unit: &str, text: &[u8]) -> Result<i64, Fail> {
        let n = integer(text)?;
        let wrong = || Fail(format!("ERR invalid expire time in '{name}' command"));
        if n <= 0 {
            return Err(wrong());
        }
        self.absolute(unit, n).ok_or_else(wrong)
    }

    fn absolute(&self, unit: &str, n: i64) -> Option<i64> {
        let ms = if unit.starts_with("EX") { n.checked_mul(1000)? } else { n };
        if unit.ends_with("AT") { Some(ms) } else { ms.checked_add(self.model.now) }
    }

    pub(super) fn expire(&mut self, name: &str) -> Answer {
        let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
        for at in 2..self.args.len() {
            match self.option(at).as_str() {
                "NX" => nx = true,
                "XX" => xx = true,
                "GT" => gt = true,
                "LT" => lt = true,
                _ => {
                    // This much of a word is shown; Redis shows all of it.
                    let word: String = self.args[at].iter().take(128).map(|&byte| char::from(byte)).collect();
                    return Fail::of(&format!(
                        "ERR Unsupported option {}",
                        word.split('\0').next().unwrap_or("")
                    ));
                }
            }
        }
        if nx && (xx || gt || lt) {
            return Fail::of("ERR NX and XX, GT or LT options at the same time are not compatible");
        }
        if gt && lt {
            return Fail::of("ERR GT and LT options at the same time are not compatible");
        }
        let n = self.number(1)?;
        let unit = match name {
            "expire" => "EX",
            "pexpire" => "PX",
            "expireat" => "EXAT",
            _ => "PXAT",
        };
        let Some(at) = self.absolute(unit, n) else {
            return Fail::of(&format!("ERR invalid expire time in '{name}' command"));
        };
        let Some(item) = self.item(0) else { return int(0) };
        let holds = match item.expires_at {
            None => !xx && !gt,
            Some(old) => !(nx || gt && at <= old || lt && at >= old),
        };
        if holds {
            let place = self.place(0);
            self.model.keep(&place, Item { expires_at: Some(at), ..item });
        }
        int(holds.into())
    }

    pub(super) fn ttl(&mut self, name: &str) -> Answer {
        let now = self.model.now;
        int(match self.item(0) {
            None => -2,
            Some(Item { expires_at: None, .. }) => -1,
            Some(Item { expires_at: Some(at), .. }) => match name {
                "ttl" => (at - now).saturating_add(500) / 1000,
                "pttl" => at - now,
                "expiretime" => at.saturating_add(500) / 1000,
                _ => at,
            },
        })
    }

    pub(super) fn persist(&mut self) -> Answer {
        match self.item(0) {
            Some(item @ Item { expires_at: Some(_), .. }) => {
                let place = self.place(0);
                self.model.keep(&place, Item { expires_at: None, ..item });
                int(1)
            }
            _ => int(0),
        }
    }

    pub(super) fn rename(&mut self, only: bool) -> Answer {
        let Some(item) = self.item(0) else { return Fail::of("ERR no such key") };
        let (from, to) = (self.place(0), self.place(1));
        if only && self.item(1).is_some() {
            return int(0);
        }
        if from != to {
            self.model.remove(&from);
            self.model.put(&to, item);
        }
        if only { int(1) } else { ok() }
    }

    pub(super) fn move_to(&mut self) -> Answer {
        let to = database(&self.args[1])?;
        let (from, to) = (self.place(0), (to, self.args[0].clone()));
        if from == to {
            return Fail::of(SAME);
        }
        let (Some(item), None) = (self.item(0), self.model.live(&to)) else { return int(0) };
        self.model.remove(&from);
        self.model.put(&to, item);
        int(1)
    }

    pub(super) fn copy(&mut self) -> Answer {
        let mut to = (self.model.client(self.client).db, self.args[1].clone());
        let mut replace = false;
        let mut at = 2;
        while at < self.args.len() {
            match self.option(at).as_str() {
                "REPLACE" => replace = true,
                "DB" if at + 1 < self.args.len() => {
                    at += 1;
                    to.0 = database(&self.args[at])?;
                }
                _ => return Fail::of(SYNTAX),
            }
            at += 1;
        }
        if self.place(0) == to {
            return Fail::of(SAME);
        }
        let Some(item) = self.item(0) else { return int(0) };
        if !replace && self.model.live(&to).is_some() {
            return int(0);
        }
        self.model.put(&to, item);
        int(1)
    }

    pub(super) fn swap(&mut self) -> Answer {
        let (first, second) = ("ERR invalid first DB index", "ERR invalid second DB index");
        let numbers = [(&self.args[0], first), (&self.args[1], second)].map(|(word, text)| {
            integer(word).ok().filter(|n| i32::try_from(*n).is_ok()).ok_or(Fail(text.to_owned()))
        });
        let [one, two] = numbers;
        let (one, two) = (one?, two?);
        if !(0..16).contains(&one) || !(0..16).contains(&two) {
            return Fail::of("ERR DB index is out of range");
        }
        self.model.swap(one, two);
        ok()
    }

    pub(super) fn flush(&mut self, all: bool) -> Answer {
        match self.args {
            [] => {}
            [how] if how.eq_ignore_ascii_case(b"ASYNC") || how.eq_ignore_ascii_case(b"SYNC") => {}
            _ => return Fail::of(SYNTAX),
        }
        let db = self.model.client(self.client).db;
        for place in self.model.places((!all).then_some(db)) {
            self.model.remove(&place);
        }
        ok()
    }

    /// How many of the keys exist; a key that is named twice counts twice.
    pub(super) fn exists(&mut self) -> Answer {
        let there = (0..self.args.len()).filter(|&at| self.item(at).is_some());
        let there = there.collect::<Vec<_>>().len();
        int(there as i64)
    }

    pub(super) fn del(&mut self) -> Answer {
        let mut removed = 0;
        for at in 0..self.args.len() {
            let place = self.place(at);
            removed += i64::from(self.model.remove(&place).is_some());
        }
        int(removed)
    }

    /// DELEX; `simple`: DELIFEQ, which names the value that the key must have.
    pub(super) fn delete_if(&mut self, simple: bool) -> Answer {
        let (equal, value) = match self.args {
            [_, value] if simple => (true, Some(value)),
            [_] => (true, None),
            [_, word, value] if word.eq_ignore_ascii_case(b"IFEQ") => (true, Some(value)),
            [_, word, value] if word.eq_ignore_ascii_case(b"IFNE") => (false, Some(value)),
            _ => return Fail::of(SYNTAX),
        };
        let Some(item) = self.item(0) else { return int(0) };
        let holds = value.is_none_or(|value| (item.value == *value) == equal);
        if holds {
            let place = self.place(0);
            self.model.remove(&place);
        }
        int(holds.into())
    }

    pub(super) fn dump(&mut self) -> Answer {
        let payload = self.item(0).map(|item| payload::dumped(&item.value));
        Ok(self.maybe(payload.as_ref()))
    }

    pub(super) fn restore(&mut self) -> Answer {
        let (mut replace, mut absolute, mut given) = (false, false, None);
        let mut at = 3;
        while at < self.args.len() {
            let more = at + 1 < self.args.len();
            match self.option(at).as_str() {
                "REPLACE" => replace = true,
                "ABSTTL" => absolute = true,
                word @ ("IDLETIME" | "FREQ")
                    if more && given.as_deref().is_none_or(|other| other == word) =>
                {
                    at += 1;
                    given = Some(word.to_owned());
                    match (word, self.number(at)?) {
                        ("IDLETIME", ..0) => return Fail::of("ERR Invalid IDLETIME value, must be >= 0"),
                        ("FREQ", ..0 | 256..) => {
                            return Fail::of("ERR Invalid FREQ value, must be >= 0 and <= 255");
                        }
                        _ => {}
                    }
                }
                _ => return Fail::of(SYNTAX),
            }
            at += 1;
        }
        if !replace && self.item(0).is_some() {
            return Fail::of("BUSYKEY Target key name already exists.");
        }
        let ttl = self.number(1)?;
        if ttl < 0 {
            return Fail::of("ERR Invalid TTL value, must be >= 0");
        }
        let Some(value) = payload::restored(&self.args[2]) else {
            return Fail::of("ERR DUMP payload version or checksum are wrong");
        };
        let expires_at = match ttl {
            0 => None,
            at if absolute => Some(at),
            ttl => Some(ttl.saturating_add(self.model.now)),
        };
        self.store(0, value, expires_at);
        ok()
    }

    fn found(&mut self, pattern: Option<&[u8]>) -> BTreeSet<Vec<u8>> {
        let db = self.model.client(self.client).db;
        let keys = self.model.places(Some(db)).into_iter().map(|(_, key)| key);
        // A star alone is taken for no pattern: it also matches the empty key.
        let pattern = pattern.filter(|pattern| *pattern != b"*");
        keys.filter(|key| pattern.is_none_or(|pattern| glob::matches(pattern, key))).collect()
    }

    pub(super) fn keys(&mut self) -> Answer {
        Ok(Reply::Keys(self.found(Some(&self.args[0]))))
    }

    pub(super) fn scan(&mut self) -> Answer {
        let cursor = std::str::from_utf8(&self.args[0]).ok();
        let digits = cursor.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        if digits.and_then(|text| text.parse::<u64>().ok()).is_none() {
            return Fail::of("ERR invalid cursor");
        }
        let (mut pattern, mut none) = (None, false);
        for at in (1..self.args.len()).step_by(2) {
            let Some(value) = self.args.get(at + 1) else { return Fail::of(SYNTAX) };
            match self.option(at).as_str() {
                "COUNT" if integer(value)? < 1 => return Fail::of(SYNTAX),
                "COUNT" => {}
                "MATCH" => pattern = Some(&value[..]),
                "TYPE" => none = !value.eq_ignore_ascii_case(b"string"),
                _ => return Fail::of(SYNTAX),
            }
        }
        Ok(Reply::Walk(if none { BTreeSet::new() } else { self.found(pattern) }))
    }

    pub(super) fn random_key(&mut self) -> Answer {
        let keys = self.found(None);
        Ok(if keys.is_empty() { self.null() } else { Reply::OneOf(keys) })
    }

    pub(super) fn encoding(&mut self) -> Answer {
        let Some(item) = self.item(0) else { return Ok(self.null()) };
        Ok(bulk(match item.value.len() {
            0..=20 if integer(&item.value).is_ok() => b"int",
            0..=44 => b"embstr",
            _ => b"raw",
        })
        .into())
    }

    pub(super) fn refcount(&mut self) -> Answer {
        if self.item(0).is_some() { int(1) } else { Ok(self.null()) }
    }

    /// CL.THROTTLE. The key stores the time, in nanoseconds, at which all requests so far are forgotten.
    pub(super) fn throttle(&mut self) -> Answer {
        if self.args.len() > 5 {
            return Fail::of("ERR wrong number of arguments for 'cl.throttle' command");
        }
        let mut numbers = [0, 0, 0, 1];
        for (at, least) in (1..self.args.len()).zip([0, 1, 1, 0]) {
            let n = self.number(at)?;
            if n < least {
                return Fail::of("ERR value is out of range, must be positive");
            }
            numbers[at - 1] = i128::from(n);
        }
        let [burst, count, period, quantity] = numbers;
        let (limit, every) = (burst + 1, period * 1_000_000_000 / count);
        let no_number = || Fail("ERR value is not an integer or out of range".into());
        let room = limit.checked_mul(every).filter(|room| (1..=i128::from(i64::MAX)).contains(room));
        let room = room.ok_or_else(no_number)?;
        let now = i128::from(self.model.now) * 1_000_000;
        let stored = match self.item(0) {
            Some(item) => i128::from(number_of(&item.value)?),
            None => now,
        };
        let before = stored.max(now);
        let after = before + every * quantity;
        let refused = after - now > room;
        let stands = if refused { before } else { after };
        if !refused && quantity > 0 {
            let text = i64::try_from(after).map_err(|_| no_number())?;
            let expires_at = (after + 999_999) / 1_000_000;
            self.store(0, text.to_string().into_bytes(), Some(expires_at as i64));
        }
        let seconds = |nanos: i128| i64::try_from((nanos + 999_999_999) / 1_000_000_000).unwrap_or(i64::MAX);
        let left = (room - (stands - now)) / every;
        let again = if !refused || quantity > limit { -1 } else { seconds(after - room - now) };
        let all = seconds(stands - now);
        let text = format!("*5\r\n:{}\r\n:{limit}\r\n:{}\r\n", i32::from(refused), left.max(0));
        Ok(format!("{text}:{again}\r\n:{all}\r\n").into_bytes().into())
    }
}
