//! `stats sizes`: the number of items of each size, in steps of 32 bytes. The counts are written when all items were seen, in
//! steps, too: there may be hundreds of thousands. They are charged as memory of connections, since many may ask at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use larder_protocol::binary::Status;
use larder_store::Store;

use super::form::Form;
use super::steps::{ITEM_NS, ITEMS_PER_WALK, Step};
use crate::core::context::Context;
use crate::core::output::Output;

/// Sizes are counted in steps of so many bytes.
const SIZE_STEP_BYTES: u64 = 32;
/// Bytes of a count in a map whose nodes are at least half full.
const COUNT_BYTES: usize = 48;
/// Rows written between two looks at the output.
const ROWS_PER_STEP: usize = 64;
/// Nanoseconds to write one.
const ROW_NS: u64 = 200;

/// Counts under way.
#[derive(Debug)]
pub(crate) struct Sizes {
    cursor: u64,
    /// Whether all items were seen. The counts that are left are still to be written.
    counted: bool,
    counts: BTreeMap<u64, u64>,
    /// The store that the bytes are charged to.
    store: Arc<Store>,
    charged: i64,
    form: Form,
}

impl Sizes {
    pub fn new(store: &Arc<Store>, form: Form) -> Sizes {
        Sizes {
            cursor: 0,
            counted: false,
            counts: BTreeMap::new(),
            store: Arc::clone(store),
            charged: 0,
            form,
        }
    }

    /// Counts some items; or writes some counts, when all items were seen.
    pub fn step(&mut self, cx: &mut Context<'_, '_>, out: &mut Output) -> Step {
        while !self.counted {
            cx.spend(out, ITEMS_PER_WALK as u64 * ITEM_NS);
            cx.spend_beside(out);
            let counts = &mut self.counts;
            self.cursor = cx.guard.walk(self.cursor, ITEMS_PER_WALK, &mut |item| {
                let size = item.item_bytes().next_multiple_of(SIZE_STEP_BYTES);
                *counts.entry(size).or_default() += 1;
            });
            if !self.charge() {
                let line = b"SERVER_ERROR out of memory writing stats\r\n";
                self.form.say(out, line, Status::NoMemory);
                return Step::Done;
            }
            self.counted = self.cursor == 0;
            if out.is_full() {
                return Step::Full;
            }
        }
        while !self.counts.is_empty() {
            if out.is_full() {
                return Step::Full;
            }
            let mut rows = 0;
            while rows < ROWS_PER_STEP
                && let Some((size, count)) = self.counts.pop_first()
            {
                self.form.put(out, &size, &count);
                rows += 1;
            }
            cx.spend(out, rows as u64 * ROW_NS);
        }
        self.form.end(out);
        Step::Done
    }

    /// Charges the counts that were added; false if connections hold as much as they may.
    fn charge(&mut self) -> bool {
        let more = (self.counts.len() * COUNT_BYTES) as i64 - self.charged;
        if more > 0 && self.store.held_bytes().saturating_add(more as u64) > self.store.held_bytes_max() {
            return false;
        }
        self.store.hold(more);
        self.charged += more;
        true
    }
}

impl Drop for Sizes {
    fn drop(&mut self) {
        self.store.hold(-self.charged);
    }
}
