//! The reference model: a map with memcached's rules, written without looking at the store.
//!
//! An [`Op`] is applied to the model, which gives the bytes to send and the expected reply. CAS tokens are the server's choice,
//! so the model names them (`$c7` is the seventh version of anything), and the runner checks that one name always means the same
//! digits; [`Model::tokens`] says which must grow.
//!
//! If memcached leaves something open (is an appended item still stale?), the model does not ask: such an operation becomes a
//! plain read.

mod check;
mod classic;
mod meta;
mod op;

pub use check::{check, check_pipelines};
pub use op::{OP_BYTES, Op};

use crate::pattern::Pattern;
use std::collections::BTreeMap;

/// Milliseconds since the Unix epoch; 0 as an expiry: never.
type Millis = u64;

/// The bytes that an operation sends, and those that must come back.
#[derive(Clone, Debug, Default)]
pub struct Exchange {
    /// The bytes to send.
    pub sent: Pattern,
    /// The complete reply.
    pub expected: Pattern,
    /// Seconds that pass, if nothing is sent.
    pub seconds: u64,
}

/// The contents of a key.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) value: Vec<u8>,
    pub(crate) flags: u32,
    pub(crate) expires_at: Millis,
    /// Number of this version, over all keys.
    pub(crate) version: u64,
    pub(crate) stale: bool,
    pub(crate) token_sent: bool,
    /// Whether it was read; `None` if memcached leaves that open.
    pub(crate) fetched: Option<bool>,
}

impl Item {
    /// Whether the item is stale, or a client has the token to refresh it: memcached leaves some effects open
    /// then.
    fn is_open(&self) -> bool {
        self.stale || self.token_sent
    }
}

/// Bytes of the largest number.
const NUMBER_BYTES_MAX: usize = 20;

/// The model.
#[derive(Debug)]
pub struct Model {
    now: Millis,
    items: BTreeMap<Vec<u8>, Item>,
    flush_at: Option<Millis>,
    versions: u64,
    /// Versions that clients were shown, oldest first.
    shown: BTreeMap<Vec<u8>, Vec<u64>>,
    /// Keys whose expiry the last operation has set, even to the time that they had.
    touched: Vec<Vec<u8>>,
}

impl Model {
    /// An empty model at this time.
    pub fn new(now: Millis) -> Model {
        Model {
            now,
            items: BTreeMap::new(),
            flush_at: None,
            versions: 0,
            shown: BTreeMap::new(),
            touched: Vec::new(),
        }
    }

    /// Applies one operation.
    pub fn apply(&mut self, op: &Op) -> Exchange {
        let mut exchange = self.apply_alone(op);
        if exchange.seconds == 0 {
            // A last request, which always has a reply: so the absence of one before it is seen.
            exchange.sent.push(b"mn\r\n");
            exchange.expected.push(b"MN\r\n");
        }
        exchange
    }

    /// As [`Model::apply`], without an `mn` behind it, for callers that notice a missing reply themselves.
    pub fn apply_alone(&mut self, op: &Op) -> Exchange {
        if let Op::Wait { seconds } = op {
            self.now += seconds * 1000;
            self.remove_expired();
            return Exchange { seconds: *seconds, ..Exchange::default() };
        }
        let exchange = match op {
            Op::Meta(meta) => self.meta(meta),
            Op::Classic(classic) => self.classic(classic),
            Op::Wait { .. } => unreachable!("handled above"),
        };
        self.remove_expired();
        exchange
    }

    /// Applies one operation, at this time, to items that another protocol has left.
    pub(crate) fn apply_to(&mut self, now: Millis, items: BTreeMap<Vec<u8>, Item>, op: &Op) -> Exchange {
        (self.now, self.items) = (now, items);
        self.touched.clear();
        self.apply(op)
    }

    /// Whether the last operation has set the expiry of this key.
    pub(crate) fn touched(&self, key: &[u8]) -> bool {
        self.touched.iter().any(|touched| touched == key)
    }

    /// The items as they are now.
    pub(crate) fn items(&self) -> BTreeMap<Vec<u8>, Item> {
        self.items.clone()
    }

    /// Names of the versions that clients were shown, per key, in the order in which they were made: their
    /// tokens must differ and grow.
    pub fn tokens(&self) -> impl Iterator<Item = Vec<String>> {
        self.shown.values().map(|versions| versions.iter().map(|version| name(*version)).collect())
    }

    /// Removes items that have expired or were flushed.
    fn remove_expired(&mut self) {
        if self.flush_at.is_some_and(|at| at <= self.now) {
            self.flush_at = None;
            self.items.clear();
        }
        let now = self.now;
        self.items.retain(|_, item| item.expires_at == 0 || item.expires_at > now);
    }

    /// Forgets which tokens were shown: keys have changed places, so it is open which of two tokens is older.
    /// They are not sent any more.
    pub(crate) fn forget_shown(&mut self) {
        self.shown.clear();
    }

    /// The number of a new version.
    pub(crate) fn version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    /// Absolute expiry of an exptime as clients write it.
    fn expiry(&self, exptime: i64) -> Millis {
        const RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;
        match exptime {
            0 => 0,
            ..0 => 1,
            1..=RELATIVE_MAX => self.now + exptime as u64 * 1000,
            _ => exptime as u64 * 1000,
        }
    }

    /// Seconds left, as `t` prints them: to the nearest.
    fn ttl(&self, item: &Item) -> String {
        match item.expires_at {
            0 => "-1".into(),
            at => ((at.saturating_sub(self.now) + 500) / 1000).to_string(),
        }
    }

    fn insert(&mut self, key: &[u8], value: Vec<u8>, flags: u32, expires_at: Millis) -> u64 {
        let version = self.version();
        let item =
            Item { value, flags, expires_at, version, stale: false, token_sent: false, fetched: Some(false) };
        self.items.insert(key.to_vec(), item);
        version
    }

    /// Adds to one end of a value. All else stays, but the version is new.
    fn concat(&mut self, key: &[u8], value: &[u8], front: bool) -> u64 {
        let version = self.version();
        let item = self.items.get_mut(key).expect("the caller has looked");
        let at = if front { 0 } else { item.value.len() };
        item.value.splice(at..at, value.iter().copied());
        item.version = version;
        item.fetched = None;
        version
    }

    /// Adds to or subtracts from a number; `None` if the value is no number.
    fn count(&mut self, key: &[u8], delta: u64, down: bool) -> Option<(u64, u64)> {
        let version = self.version();
        let item = self.items.get_mut(key).expect("the caller has looked");
        let number = number(&item.value)?;
        let number = if down { number.saturating_sub(delta) } else { number.wrapping_add(delta) };
        let mut text = number.to_string().into_bytes();
        // A shorter number is padded with spaces to the length of the old one.
        while text.len() < item.value.len() {
            text.push(b' ');
        }
        item.value = text;
        item.version = version;
        item.fetched = None;
        Some((number, version))
    }

    /// A token to write into a command: digits, or the name of a shown version.
    fn token(&self, key: &[u8], choice: u8) -> (Pattern, Option<u64>) {
        let mut pattern = Pattern::default();
        let shown = self.shown.get(key).map_or(&[][..], Vec::as_slice);
        let version = match choice % 4 {
            0 | 1 => shown.last(),
            2 => shown.get(usize::from(choice / 4) % shown.len().max(1)),
            _ => None,
        };
        match version {
            Some(version) => pattern.capture(name(*version)),
            None => pattern.push(b"9"),
        }
        (pattern, version.copied())
    }

    /// Writes a version's token into a reply, and remembers that it was shown.
    fn show(&mut self, key: &[u8], version: u64, into: &mut Pattern) {
        into.capture(name(version));
        let shown = self.shown.entry(key.to_vec()).or_default();
        if shown.last() != Some(&version) {
            shown.push(version);
        }
    }
}

fn name(version: u64) -> String {
    format!("c{version}")
}

/// A stored text as a number: white space, a plus sign, digits, then nothing or white space.
fn number(text: &[u8]) -> Option<u64> {
    const SPACE: [char; 6] = [' ', '\t', '\n', '\x0b', '\x0c', '\r'];
    let text = String::from_utf8_lossy(text);
    let text = text.trim_start_matches(SPACE);
    let text = text.strip_prefix('+').unwrap_or(text);
    let digits = text.split(SPACE).next()?;
    if digits.starts_with('+') { None } else { digits.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_memcached_reads_them() {
        assert_eq!(number(b"5"), Some(5));
        assert_eq!(number(b" +5 x"), Some(5));
        assert_eq!(number(b"5 \xff"), Some(5));
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for text in [&b"18446744073709551616"[..], b"", b"-5", b"5x", b"++5", b"\xff"] {
            assert_eq!(number(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_item_is_gone_when_its_time_has_come() {
        let mut model = Model::new(1_000_000_000_000);
        let expiry = model.expiry(10);
        model.insert(b"k", b"v".to_vec(), 0, expiry);
        model.apply(&Op::Wait { seconds: 9 });
        assert!(model.items.contains_key(&b"k"[..]));
        model.apply(&Op::Wait { seconds: 1 });
        assert!(model.items.is_empty());
    }
}
