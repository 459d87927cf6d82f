//! Writing over a part of a large value where it lies, against readers, moves and the end of the value.
//!
//! The pins and the bucket are the store's own; the value's bytes are two atomics, which a patch writes
//! one after the other, as [`crate::patch`] writes pieces.

use crate::bucket::{Bucket, Slot};
use crate::pin::Pins;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;

struct Value {
    home: Bucket,
    pins: Pins,
    bytes: [AtomicU64; 2],
    /// The version that the head tells.
    version: AtomicU64,
}

impl Value {
    fn new() -> Arc<Value> {
        let value = Value {
            home: Bucket::new(),
            pins: Pins::new(),
            bytes: [AtomicU64::new(1), AtomicU64::new(1)],
            version: AtomicU64::new(0),
        };
        assert!(value.home.claim(Slot::new(1, 1, 0, false)));
        Arc::new(value)
    }

    /// As `Guard::patch`: 1. no pins, and none to come; 2. bytes and version; 3. pins may come again.
    /// False if a thread reads the value, or `seen` is another version than the one there is.
    fn patch(&self, new: u64, seen: Option<u64>) -> bool {
        let control = self.home.lock();
        let expected = seen.is_none_or(|seen| self.version.load(Ordering::Relaxed) == seen);
        let written = expected
            && self.pins.alone(|| {
                self.bytes.iter().for_each(|byte| byte.store(new, Ordering::Relaxed));
                self.version.store(control.writes() + 1, Ordering::Relaxed);
            });
        self.home.unlock(if written { control.written() } else { control });
        written
    }

    /// As a thread that will write back: what was seen, then a pin, then all bytes.
    fn read(&self) -> (u64, [u64; 2]) {
        let version = self.version.load(Ordering::Relaxed);
        self.pins.add().expect("it is not moved");
        let bytes = [0, 1].map(|at: usize| self.bytes[at].load(Ordering::Relaxed));
        self.pins.remove();
        (version, bytes)
    }
}

#[test]
fn reader_of_a_patched_value_sees_all_of_the_patch_or_nothing() {
    loom::model(|| {
        let value = Value::new();
        let writer = {
            let value = value.clone();
            thread::spawn(move || value.patch(2, None))
        };
        let (version, bytes) = value.read();
        assert_eq!(bytes[0], bytes[1], "a torn value");
        // What was seen is never newer than the bytes: a thread that writes back what it made of old bytes would
        // undo the patch.
        assert!(version == 0 || bytes == [2, 2]);
        let written = writer.join().unwrap();
        assert_eq!(value.read(), if written { (1, [2, 2]) } else { (0, [1, 1]) });
    });
}

#[test]
fn pinned_value_is_not_patched() {
    loom::model(|| {
        let value = Value::new();
        value.pins.add().unwrap();
        let writer = {
            let value = value.clone();
            thread::spawn(move || value.patch(2, None))
        };
        let first = value.bytes[0].load(Ordering::Relaxed);
        let second = value.bytes[1].load(Ordering::Relaxed);
        assert_eq!((first, second), (1, 1), "the bytes of a pin stay");
        value.pins.remove();
        // A thread that comes after the pin may write.
        let written = writer.join().unwrap();
        assert_eq!(value.read().1, if written { [2, 2] } else { [1, 1] });
    });
}

#[test]
fn two_patches_of_what_was_read_lose_nothing() {
    loom::model(|| {
        let value = Value::new();
        // SETBIT: reads, changes, and writes back only over what it has read.
        let add = |value: &Value| {
            let (version, bytes) = value.read();
            value.patch(bytes[0] + 1, Some(version))
        };
        let other = {
            let value = value.clone();
            thread::spawn(move || add(&value))
        };
        let mine = add(&value);
        let both = u64::from(mine) + u64::from(other.join().unwrap());
        assert_eq!(value.read(), (both, [1 + both, 1 + both]));
    });
}

#[test]
fn patch_and_the_end_of_a_value_free_it_once() {
    loom::model(|| {
        let value = Value::new();
        let writer = {
            let value = value.clone();
            thread::spawn(move || {
                let control = value.home.lock();
                // Removed: the item cannot be found, and later, by the epochs, it is dead.
                value.home.replace(0, Slot::EMPTY);
                value.home.unlock(control.written());
            })
        };
        let control = value.home.lock();
        let found = !value.home.slot(0).is_empty();
        let patched = found
            && value.pins.alone(|| value.bytes.iter().for_each(|byte| byte.store(2, Ordering::Relaxed)));
        assert_eq!(found, patched, "nobody reads it");
        value.home.unlock(if found { control.written() } else { control });
        writer.join().unwrap();
        assert!(value.pins.kill(), "no pin and no patch is left to free it");
        assert!(value.home.slot(0).is_empty());
    });
}
