//! Models of eviction policies: one thread, no overhead, a limit on the bytes of keys and values.

use std::collections::{HashMap, VecDeque};

/// A cache that decides what stays.
pub trait Policy {
    /// An access; true if the key is there and its time has not passed.
    fn get(&mut self, id: u64, now: u64) -> bool;
    /// Stores a key that takes `bytes`; `expires_at` 0 is never.
    fn set(&mut self, id: u64, bytes: u64, expires_at: u64);
}

fn live(expires_at: u64, now: u64) -> bool {
    expires_at == 0 || expires_at > now
}

/// S3-FIFO: a small queue of 10 %, a main queue with reinsertion, ghosts of 90 %, promotion at two
/// accesses.
pub struct S3Fifo {
    capacity: u64,
    items: HashMap<u64, Item>,
    small: VecDeque<(u64, u32)>,
    main: VecDeque<(u64, u32)>,
    small_bytes: u64,
    main_bytes: u64,
    ghosts: HashMap<u64, u32>,
    ghost_queue: VecDeque<(u64, u32, u64)>,
    ghost_bytes: u64,
    /// Numbers entries of the queues, so that outdated ones are known.
    turn: u32,
}

#[derive(Clone, Copy)]
struct Item {
    bytes: u64,
    expires_at: u64,
    frequency: u8,
    small: bool,
    turn: u32,
}

impl S3Fifo {
    pub fn new(capacity: u64) -> S3Fifo {
        S3Fifo {
            capacity,
            items: HashMap::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            small_bytes: 0,
            main_bytes: 0,
            ghosts: HashMap::new(),
            ghost_queue: VecDeque::new(),
            ghost_bytes: 0,
            turn: 0,
        }
    }

    fn remove(&mut self, id: u64) -> Option<Item> {
        let item = self.items.remove(&id)?;
        *if item.small { &mut self.small_bytes } else { &mut self.main_bytes } -= item.bytes;
        Some(item)
    }

    fn enter(&mut self, id: u64, item: Item) {
        self.turn += 1;
        let item = Item { turn: self.turn, ..item };
        let (queue, bytes) = match item.small {
            true => (&mut self.small, &mut self.small_bytes),
            false => (&mut self.main, &mut self.main_bytes),
        };
        queue.push_back((id, item.turn));
        *bytes += item.bytes;
        self.items.insert(id, item);
    }

    fn evict(&mut self) {
        if self.small_bytes * 10 >= self.capacity || self.main.is_empty() {
            while let Some((id, turn)) = self.small.pop_front() {
                if self.items.get(&id).is_none_or(|item| item.turn != turn) {
                    continue;
                }
                let item = self.remove(id).expect("it is there");
                if item.frequency >= 2 {
                    self.enter(id, Item { frequency: 0, small: false, ..item });
                    continue;
                }
                self.ghosts.insert(id, turn);
                self.ghost_queue.push_back((id, turn, item.bytes));
                self.ghost_bytes += item.bytes;
                while self.ghost_bytes * 10 > self.capacity * 9 {
                    let (old, turn, bytes) = self.ghost_queue.pop_front().expect("it has bytes");
                    self.ghost_bytes -= bytes;
                    if self.ghosts.get(&old) == Some(&turn) {
                        self.ghosts.remove(&old);
                    }
                }
                return;
            }
        }
        while let Some((id, turn)) = self.main.pop_front() {
            if self.items.get(&id).is_none_or(|item| item.turn != turn) {
                continue;
            }
            let item = self.remove(id).expect("it is there");
            if item.frequency == 0 {
                return;
            }
            self.enter(id, Item { frequency: item.frequency.min(3) - 1, ..item });
        }
    }
}

impl Policy for S3Fifo {
    fn get(&mut self, id: u64, now: u64) -> bool {
        let Some(item) = self.items.get_mut(&id) else { return false };
        if live(item.expires_at, now) {
            item.frequency = (item.frequency + 1).min(3);
            return true;
        }
        self.remove(id);
        false
    }

    fn set(&mut self, id: u64, bytes: u64, expires_at: u64) {
        if let Some(item) = self.items.get_mut(&id) {
            item.expires_at = expires_at;
            return;
        }
        if bytes > self.capacity {
            return;
        }
        while self.small_bytes + self.main_bytes + bytes > self.capacity {
            self.evict();
        }
        let small = self.ghosts.remove(&id).is_none();
        self.enter(id, Item { bytes, expires_at, frequency: 0, small, turn: 0 });
    }
}

/// Exact least recently used.
pub struct Lru {
    lists: Lists<1>,
}

impl Lru {
    pub fn new(capacity: u64) -> Lru {
        Lru { lists: Lists::new(capacity) }
    }
}

impl Policy for Lru {
    fn get(&mut self, id: u64, now: u64) -> bool {
        self.lists.hit(id, now) && {
            self.lists.push(id, 0);
            true
        }
    }
    fn set(&mut self, id: u64, bytes: u64, expires_at: u64) {
        self.lists.store(id, bytes, expires_at);
        self.lists.push(id, 0);
        while self.lists.bytes() > self.lists.capacity {
            let Some(id) = self.lists.tail(0) else { return };
            self.lists.remove(id);
        }
    }
}

const HOT: usize = 0;
const WARM: usize = 1;
const COLD: usize = 2;

/// memcached's segmented LRU: new items in HOT (20 %), items read twice in WARM (40 %), the rest in
/// COLD, whose tail goes; an item moves only when it reaches a tail.
pub struct Segmented {
    lists: Lists<3>,
}

impl Segmented {
    pub fn new(capacity: u64) -> Segmented {
        Segmented { lists: Lists::new(capacity) }
    }

    fn juggle(&mut self) {
        let capacity = self.lists.capacity;
        for (list, percent) in [(HOT, 20), (WARM, 40)] {
            while self.lists.list_bytes[list] * 100 > capacity * percent {
                let Some(id) = self.lists.tail(list) else { break };
                let to = if self.lists.take_active(id) { WARM } else { COLD };
                self.lists.push(id, to);
            }
        }
        while self.lists.bytes() > capacity {
            let Some(id) = [COLD, WARM, HOT].into_iter().find_map(|list| self.lists.tail(list)) else {
                return;
            };
            if self.lists.entries[&id].list == COLD && self.lists.take_active(id) {
                self.lists.push(id, WARM);
            } else {
                self.lists.remove(id);
            }
        }
    }
}

impl Policy for Segmented {
    fn get(&mut self, id: u64, now: u64) -> bool {
        self.lists.hit(id, now)
    }
    fn set(&mut self, id: u64, bytes: u64, expires_at: u64) {
        if self.lists.store(id, bytes, expires_at) {
            self.lists.push(id, HOT);
        }
        self.juggle();
    }
}

/// Items in lists ordered by when they were pushed; what was pushed again leaves a stale entry.
struct Lists<const N: usize> {
    capacity: u64,
    entries: HashMap<u64, Entry>,
    queues: [VecDeque<(u64, u32)>; N],
    list_bytes: [u64; N],
    turn: u32,
}

struct Entry {
    bytes: u64,
    expires_at: u64,
    list: usize,
    turn: u32,
    hits: u8,
}

impl<const N: usize> Lists<N> {
    fn new(capacity: u64) -> Lists<N> {
        Lists {
            capacity,
            entries: HashMap::new(),
            queues: std::array::from_fn(|_| VecDeque::new()),
            list_bytes: [0; N],
            turn: 0,
        }
    }

    fn bytes(&self) -> u64 {
        self.list_bytes.iter().sum()
    }

    fn hit(&mut self, id: u64, now: u64) -> bool {
        let Some(entry) = self.entries.get_mut(&id) else { return false };
        if live(entry.expires_at, now) {
            entry.hits = entry.hits.saturating_add(1);
            return true;
        }
        self.remove(id);
        false
    }

    /// True if the key is new; it is in list 0 then, and to be pushed.
    fn store(&mut self, id: u64, bytes: u64, expires_at: u64) -> bool {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.expires_at = expires_at;
            return false;
        }
        self.entries.insert(id, Entry { bytes, expires_at, list: 0, turn: 0, hits: 0 });
        self.list_bytes[0] += bytes;
        true
    }

    fn push(&mut self, id: u64, list: usize) {
        self.turn += 1;
        let entry = self.entries.get_mut(&id).expect("it is there");
        self.list_bytes[entry.list] -= entry.bytes;
        self.list_bytes[list] += entry.bytes;
        (entry.list, entry.turn) = (list, self.turn);
        self.queues[list].push_back((id, self.turn));
        if self.queues[list].len() > 4 * self.entries.len() + 64 {
            let entries = &self.entries;
            self.queues[list].retain(|(id, turn)| entries.get(id).is_some_and(|entry| entry.turn == *turn));
        }
    }

    /// The oldest of a list; it stays there.
    fn tail(&mut self, list: usize) -> Option<u64> {
        while let Some(&(id, turn)) = self.queues[list].front() {
            if self.entries.get(&id).is_some_and(|entry| entry.turn == turn) {
                return Some(id);
            }
            self.queues[list].pop_front();
        }
        None
    }

    /// Read at least twice since it was asked for last.
    fn take_active(&mut self, id: u64) -> bool {
        let entry = self.entries.get_mut(&id).expect("it is there");
        std::mem::take(&mut entry.hits) >= 2
    }

    fn remove(&mut self, id: u64) {
        let entry = self.entries.remove(&id).expect("it is there");
        self.list_bytes[entry.list] -= entry.bytes;
    }
}
