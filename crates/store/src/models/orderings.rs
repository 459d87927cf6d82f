//! Orderings that only weak memory breaks: an epoch announced anew, and times noted while they are looked for.

use crate::due::{Agenda, Due};
use crate::epoch::Epochs;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

/// An item that is found while it is linked.
struct Item {
    epochs: Epochs,
    linked: AtomicBool,
    bytes: UnsafeCell<u64>,
}

// SAFETY: what is between the accesses of `bytes` is what the model is about; loom complains of two at once.
unsafe impl Sync for Item {}

/// A worker that goes on to the next step of something long announces its epoch anew, without leaving. What it read
/// before is read by then: the chunk may be written to as soon as the announcement is seen.
#[test]
fn what_was_read_before_an_epoch_is_announced_anew_is_read() {
    loom::model(|| {
        let item = Arc::new(Item {
            epochs: Epochs::new(2),
            linked: AtomicBool::new(true),
            bytes: UnsafeCell::new(1),
        });
        let reader = {
            let item = item.clone();
            thread::spawn(move || {
                item.epochs.enter(0);
                if item.linked.load(Ordering::Acquire) {
                    // SAFETY: reachable in this epoch.
                    item.bytes.with(|bytes| assert_eq!(unsafe { *bytes }, 1));
                }
                item.epochs.renew(0);
                item.epochs.renew(0);
            })
        };
        item.linked.store(false, Ordering::Release);
        let tag = item.epochs.tag();
        let passed = item.epochs.advance() && item.epochs.advance() && item.epochs.safe(tag);
        if passed {
            // SAFETY: no thread can see it.
            item.bytes.with_mut(|bytes| unsafe { *bytes = 2 });
        }
        reader.join().unwrap();
    });
}

/// A thread that notes a time later than what stands above it writes nothing there. If what stands there is
/// cleared meanwhile, the thread that clears it finds the time below.
#[test]
fn time_that_is_noted_while_times_are_looked_for_is_found() {
    loom::model(|| {
        // An earlier time stands above, as after the item that had it was deleted.
        let all = Arc::new((Agenda::new(1), Due::default()));
        all.0.note(0, 10);
        let writer = {
            let all = all.clone();
            thread::spawn(move || {
                let (agenda, span) = &*all;
                if span.lower(20) {
                    agenda.note(0, 20);
                }
            })
        };
        let (agenda, span) = &*all;
        assert_eq!(agenda.take(0, 1, 15, |_| span), None);
        writer.join().unwrap();
        assert_eq!(agenda.take(0, 1, 25, |_| span), Some(0));
    });
}
