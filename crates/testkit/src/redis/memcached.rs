//! memcached's commands on the keys of database 0. [`crate::model`] decides what they do: it gets the items, and its items are
//! taken back afterwards.

use super::model::{Item, Model};
use crate::model::{Exchange, Item as Their, Op};

/// A longer value is not appended to: it could exceed what memcached's clients may store.
const VALUE_BYTES_MAX: usize = 700_000;

impl Model {
    /// The bytes that a memcached client sends, and the reply.
    pub fn ask_memcached(&mut self, op: &Op) -> Option<Exchange> {
        let places = self.places(Some(0));
        if places.iter().any(|place| self.items[place].value.len() > VALUE_BYTES_MAX) {
            return None;
        }
        let items = places.iter().map(|place| (place.1.clone(), theirs(&self.items[place])));
        let exchange = self.memcached.apply_to(self.now as u64, items.collect(), op);
        let after = self.memcached.items();
        for place in &places {
            if !after.contains_key(&place.1) {
                self.remove(place);
            }
        }
        // A flush empties all databases.
        if matches!(op, Op::Classic(classic) if classic.flushes()) {
            for place in self.places(None) {
                self.remove(&place);
            }
        }
        for (key, item) in after {
            let place = (0, key);
            let item = ours(item);
            let same = self
                .live(&place)
                .is_some_and(|before| (before.version, before.expires_at) == (item.version, item.expires_at));
            if same && !self.memcached.touched(&place.1) {
                self.items.insert(place, item);
            } else {
                self.keep(&place, item);
            }
        }
        // An expired item counts as a key until a command finds it.
        for key in op.leaves_expired() {
            self.items.entry((0, key)).or_insert(Item { expires_at: Some(1), ..Item::default() });
        }
        Some(exchange)
    }

    /// Names of the versions that memcached's clients were shown; see [`crate::model::Model::tokens`].
    pub fn tokens(&self) -> impl Iterator<Item = Vec<String>> {
        self.memcached.tokens()
    }
}

fn theirs(item: &Item) -> Their {
    Their {
        value: item.value.clone(),
        flags: item.flags,
        expires_at: item.expires_at.map_or(0, |at| at as u64),
        version: item.version,
        stale: item.stale,
        token_sent: item.token_sent,
        fetched: item.fetched,
    }
}

fn ours(item: Their) -> Item {
    Item {
        value: item.value,
        flags: item.flags,
        expires_at: (item.expires_at != 0).then_some(item.expires_at as i64),
        version: item.version,
        stale: item.stale,
        token_sent: item.token_sent,
        fetched: item.fetched,
    }
}
