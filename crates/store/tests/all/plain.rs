//! What these tests share: a store with a worker, operations on strings, and random numbers.

use larder_store::{Attributes, Config, Expect, Guard, Store, Value, Worker};
use std::sync::Arc;

/// A store with a limit of `megabytes` MiB, and a worker of it.
pub fn store(megabytes: u64) -> (Arc<Store>, Worker) {
    let store = Store::new(Config { memory_bytes: megabytes << 20, ..Config::default() }).unwrap();
    let worker = store.worker().unwrap();
    (store, worker)
}

/// All bytes of a string.
pub fn collect(value: Value<'_>) -> Vec<u8> {
    match value {
        Value::Whole(bytes) => bytes.to_vec(),
        Value::Pieces(value) => value.pin().pieces(0).flatten().copied().collect(),
        Value::Collection(_) => panic!("it is a string"),
    }
}

/// Writes a string in a database.
pub fn set_in(guard: &mut Guard<'_>, database: u8, key: &[u8], value: &[u8]) {
    let key = guard.key_in(database, key);
    guard.store_value(&key, value, &Attributes::default(), Expect::Any).unwrap();
}

/// Reads a string in a database.
pub fn get_in(guard: &mut Guard<'_>, database: u8, key: &[u8]) -> Option<Vec<u8>> {
    let key = guard.key_in(database, key);
    guard.get(&key).hit().map(|item| collect(item.value()))
}

/// Deletes a key whose name is a number, and which must be there.
pub fn delete(worker: &mut Worker, now: u64, name: u64) {
    let mut guard = worker.enter(now);
    let bytes = name.to_be_bytes();
    let key = guard.key(&bytes);
    guard.delete(&key, Expect::Present).unwrap();
}

/// Random numbers, the same each time.
pub struct Dice(pub u64);

impl Dice {
    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}
