//! What the compiler refuses: a value, a hint, a place that would be used when it may be another's. Each program is
//! the shortest one that would do it, and does not compile for the reason that its code names.
//!
//! An item's bytes stay as long as nothing else is done through the guard, for then it may leave its epoch:
//!
//! ```compile_fail,E0499
//! # use larder_store::{Attributes, Config, Expect, Store};
//! # let store = Store::new(Config::default()).unwrap();
//! # let mut worker = store.worker().unwrap();
//! # let mut guard = worker.enter(1);
//! # let key = guard.key(b"key");
//! let item = guard.get(&key).hit();
//! guard.store_value(&key, b"other", &Attributes::default(), Expect::Any);
//! item.map(|item| item.cas());
//! ```
//!
//! Bytes that were read by a hint stay as long:
//!
//! ```compile_fail,E0502
//! # use larder_store::{Attributes, Config, Expect, Store};
//! # let store = Store::new(Config::default()).unwrap();
//! # let mut worker = store.worker().unwrap();
//! # let mut guard = worker.enter(1);
//! # let key = guard.key(b"key");
//! # let hint = guard.prefetch_bucket(&key);
//! let value = guard.plain_value(&key, &hint);
//! guard.delete(&key, Expect::Any);
//! value.map(|value| value.len());
//! ```
//!
//! An item's bytes are gone with the guard:
//!
//! ```compile_fail,E0505
//! # use larder_store::{Config, Store};
//! # let store = Store::new(Config::default()).unwrap();
//! # let mut worker = store.worker().unwrap();
//! # let mut guard = worker.enter(1);
//! # let key = guard.key(b"key");
//! let value = guard.get(&key).hit().map(|item| item.value());
//! drop(guard);
//! value.is_some();
//! ```
//!
//! What a walk visits stays in the visit:
//!
//! ```compile_fail,E0521
//! # use larder_store::{Config, Item, Store};
//! # let store = Store::new(Config::default()).unwrap();
//! # let mut worker = store.worker().unwrap();
//! # let mut guard = worker.enter(1);
//! let mut items: Vec<Item<'_>> = Vec::new();
//! guard.walk(0, 10, &mut |item| items.push(item));
//! ```
//!
//! A hint is its batch's: its worker begins no other while the hint is used.
//!
//! ```compile_fail,E0499
//! # use larder_store::{Config, Store};
//! # let store = Store::new(Config::default()).unwrap();
//! # let mut worker = store.worker().unwrap();
//! let guard = worker.enter(1);
//! let key = guard.key(b"key");
//! let hint = guard.prefetch_bucket(&key);
//! drop(guard);
//! worker.enter(2).get_hinted(&key, &hint);
//! ```
//!
//! A worker is in one batch, and a batch in one worker that is still there:
//!
//! ```compile_fail,E0499
//! # use larder_store::{Config, Store};
//! # let store = Store::new(Config::default()).unwrap();
//! # let mut worker = store.worker().unwrap();
//! let guard = worker.enter(1);
//! worker.rest();
//! guard.now();
//! ```
//!
//! ```compile_fail,E0505
//! # use larder_store::{Config, Store};
//! # let store = Store::new(Config::default()).unwrap();
//! # let mut worker = store.worker().unwrap();
//! let guard = worker.enter(1);
//! drop(worker);
//! guard.now();
//! ```
//!
//! The pieces of a value are read while it is pinned:
//!
//! ```compile_fail,E0505
//! # use larder_store::Pinned;
//! fn last(pinned: Pinned) -> usize {
//!     let pieces = pinned.pieces(0);
//!     drop(pinned);
//!     pieces.count()
//! }
//! ```
//!
//! One receiver has the places of an upload, and lets go of them before it says that they are full, reserves more or publishes:
//!
//! ```compile_fail,E0499
//! # use larder_store::Upload;
//! fn receive(upload: &mut Upload) {
//!     let mut spaces = upload.spaces();
//!     upload.advance(1);
//!     spaces.next();
//! }
//! ```
//!
//! ```compile_fail,E0499
//! # use larder_store::{Guard, Upload};
//! fn receive(guard: &mut Guard<'_>, upload: &mut Upload) {
//!     let mut spaces = upload.spaces();
//!     guard.upload_reserve(upload, 1);
//!     spaces.next();
//! }
//! ```
//!
//! ```compile_fail,E0505
//! # use larder_store::{Expect, Guard, Upload};
//! fn publish(guard: &mut Guard<'_>, mut upload: Upload) {
//!     let space = upload.spaces().next();
//!     guard.publish(upload, Expect::Any);
//!     space.map(|space| space.fill(0));
//! }
//! ```
//!
//! An upload goes from thread to thread, and is used by one at a time; its places stay in the thread that asked for them:
//!
//! ```compile_fail,E0277
//! fn shared<T: Sync>() {}
//! shared::<larder_store::Upload>();
//! ```
//!
//! ```compile_fail,E0277
//! fn sent<T: Send>() {}
//! sent::<larder_store::Spaces<'_>>();
//! ```
//!
//! ```compile_fail,E0277
//! fn sent<T: Send>() {}
//! sent::<larder_store::Item<'_>>();
//! ```
//!
//! ```compile_fail,E0277
//! fn sent<T: Send>() {}
//! sent::<larder_store::Pieces<'_>>();
//! ```
//!
//! The others may be sent, and all but an upload shared:
//!
//! ```
//! use larder_store::{Guard, Hint, Key, Pinned, Store, Upload, Worker};
//! fn sent<T: Send>() {}
//! fn shared<T: Sync>() {}
//! (sent::<Store>(), sent::<Worker>(), sent::<Guard<'_>>(), sent::<Hint<'_>>());
//! (sent::<Key<'_>>(), sent::<Pinned>(), sent::<Upload>());
//! (shared::<Store>(), shared::<Worker>(), shared::<Guard<'_>>(), shared::<Hint<'_>>(), shared::<Pinned>());
//! ```
//!
//! With its lines in another order each of these programs compiles, so that it is refused for that:
//!
//! ```
//! use larder_store::{Attributes, Config, Expect, Guard, Pinned, Store, Upload};
//! let store = Store::new(Config { memory_bytes: 4 << 20, ..Config::default() }).unwrap();
//! let mut worker = store.worker().unwrap();
//! let mut guard = worker.enter(1);
//! let key = guard.key(b"key");
//! let item = guard.get(&key).hit();
//! item.map(|item| item.cas());
//! guard.store_value(&key, b"other", &Attributes::default(), Expect::Any).unwrap();
//! let hint = guard.prefetch_bucket(&key);
//! let value = guard.plain_value(&key, &hint);
//! value.map(|value| value.len());
//! guard.delete(&key, Expect::Any);
//! let value = guard.get(&key).hit().map(|item| item.value());
//! value.is_some();
//! let mut bytes: Vec<u64> = Vec::new();
//! guard.walk(0, 10, &mut |item| bytes.push(item.value_bytes()));
//! guard.get_hinted(&key, &hint);
//! guard.now();
//! drop(guard);
//! worker.rest();
//! worker.enter(2).now();
//! drop(worker);
//! fn last(pinned: Pinned) -> usize {
//!     let pieces = pinned.pieces(0);
//!     let count = pieces.count();
//!     drop(pinned);
//!     count
//! }
//! fn receive(guard: &mut Guard<'_>, upload: &mut Upload) {
//!     let mut spaces = upload.spaces();
//!     spaces.next();
//!     upload.advance(1);
//!     guard.upload_reserve(upload, 1);
//! }
//! fn publish(guard: &mut Guard<'_>, mut upload: Upload) {
//!     let space = upload.spaces().next();
//!     space.map(|space| space.fill(0));
//!     guard.publish(upload, Expect::Any);
//! }
//! ```
