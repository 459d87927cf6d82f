//! What the map knows of items, and whether the store's result of a write is possible.

use super::op::{Op, Wanted};
use super::{DbKey, Known, Model, name};
use larder_store::{Expect, Guard, Refusal, Stored};

impl Model {
    /// The item, if it exists and has not expired.
    pub(super) fn live(&mut self, place: DbKey) -> Option<&mut Known> {
        let now = self.now;
        let dead = |known: &Known| known.expires_at != 0 && known.expires_at <= now;
        if self.known.get(&place).is_some_and(dead) {
            self.known.remove(&place);
        }
        self.known.get_mut(&place)
    }

    /// Forgets an item that the store lacks, and counts it if the map has it; also if another one is about to
    /// replace it.
    pub(super) fn lose(&mut self, place: DbKey) {
        self.lost += u64::from(self.live(place).is_some());
        self.known.remove(&place);
    }

    pub(super) fn value(&mut self, place: DbKey, bytes: usize) -> Vec<u8> {
        self.writes += 1;
        let words = [u64::from(place.1) << 8 | place.0 as u64, self.writes].map(u64::to_le_bytes).concat();
        // Not byte by byte: that would take most of a fuzzer's time.
        let mut value = words.repeat(bytes.div_ceil(words.len()));
        value.truncate(bytes);
        value
    }

    pub(super) fn fresh(&mut self, op: &Op, place: DbKey, bytes: usize) -> Known {
        Known {
            value: self.value(place, bytes),
            elements: None,
            flags: op.flags,
            expires_at: op.ttl_ms.map_or(0, |ttl_ms| self.now + ttl_ms),
            cas: 0,
            stale: false,
            token_sent: false,
        }
    }

    /// Notes the token of a write.
    pub(super) fn token(&mut self, place: DbKey, cas: u64) -> u64 {
        let last = self.tokens.insert(place, cas).unwrap_or(0);
        assert!(cas > last && cas < 1 << 63, "{place:?}: token {cas} follows {last}");
        cas
    }

    /// The store's expectation for `op`; the map decides what it should be.
    pub(super) fn expect(&mut self, guard: &mut Guard<'_>, op: &Op, place: DbKey, absent: bool) -> Expect {
        let cas = self.live(place).map(|known| known.cas);
        match op.expect {
            Wanted::Absent if absent => Expect::Absent,
            Wanted::Absent | Wanted::Present => Expect::Present,
            Wanted::Any if absent => Expect::Any,
            Wanted::Any => Expect::Present,
            Wanted::Token => Expect::Cas(cas.unwrap_or(1)),
            Wanted::OldToken => Expect::Cas(cas.map_or(1, |cas| cas - 1)),
            Wanted::Unchanged => {
                let name = name(place.1);
                let key = self.key(guard, place, &name);
                match guard.peek(&key).hit() {
                    Some(item) => Expect::Unchanged(item.seen()),
                    None => Expect::Any,
                }
            }
        }
    }

    /// Judges a conditional write; true if it happened.
    pub(super) fn judge<T>(
        &mut self,
        guard: &Guard<'_>,
        place: DbKey,
        expect: Expect,
        done: &Result<T, Refusal>,
    ) -> bool {
        let live = self.live(place).map(|known| known.cas);
        match (done, expect) {
            (Ok(_), Expect::Any | Expect::Unchanged(_)) => {}
            // The old item was evicted: the map's knowledge of it is no longer true.
            (Ok(_), Expect::Absent) => self.lose(place),
            (Ok(_), Expect::Present) => assert!(live.is_some(), "{place:?} is not there"),
            (Ok(_), Expect::Cas(cas)) => assert_eq!(live, Some(cas), "{place:?} has another token"),
            (Err(Refusal::Absent), Expect::Present | Expect::Cas(_)) => self.lose(place),
            // The item was evicted to make room for the one that replaces it.
            (Err(Refusal::Absent), Expect::Unchanged(_)) => self.lose(place),
            (Err(Refusal::Present), Expect::Absent) => assert!(live.is_some(), "{place:?} is there"),
            (Err(Refusal::Changed), Expect::Cas(cas)) => {
                assert!(live.is_some_and(|live| live != cas), "{place:?} has this token");
            }
            // The item was moved to make room for the one that replaces it.
            (Err(Refusal::Changed), Expect::Unchanged(_)) => assert!(live.is_some(), "{place:?} came back"),
            (Err(Refusal::Type), _) => {
                let collection = self.live(place).is_some_and(|known| known.elements.is_some());
                assert!(collection, "{place:?} is a string");
            }
            (Err(Refusal::NoMemory), _) => {
                assert!(self.over, "{place:?}: there is memory, {:?}", guard.store().totals());
            }
            (Err(refusal), _) => panic!("{place:?}: {refusal:?} for {expect:?}"),
        }
        done.is_ok()
    }

    /// Notes the old and the new item after a write that stores one.
    pub(super) fn stored(&mut self, place: DbKey, known: Known, stored: Stored) {
        let cas = self.token(place, stored.cas);
        match (self.live(place).is_some(), stored.replaced) {
            (false, true) => panic!("{place:?} replaces what nobody stored"),
            (true, false) => self.lose(place),
            (true, true) | (false, false) => {}
        }
        self.known.insert(place, Known { cas, ..known });
    }
}
