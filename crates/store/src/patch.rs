//! Writing over a part of a large value where it lies.
//!
//! 1. Under the home bucket's lock the value's pins are kept away, as for a move: if there are none,
//!    no thread reads it. A reader of a large value has pinned it ([`crate::InPieces`]).
//! 2. The bytes are written, the item gets the bucket's next version, watches are touched.
//! 3. Pins may come again, and see all of the bytes and the new version.
//!
//! What is pinned, grows, or is small enough to be copied is for the general way ([`crate::write`]): a
//! value in one piece is read without a pin. A copy of the whole value for one bit of it takes as long as the
//! value is large.

use crate::access;
use crate::expect::check;
use crate::item::{STALE, TOKEN_SENT};
use crate::large::{Large, PIECE_BYTES, piece_space};
use crate::read::Find;
use crate::worker::Guard;
use crate::write::Version;
use crate::{Expect, Key, Refusal, Store};

/// Most bytes that are written in place: readers of the value wait meanwhile.
const PATCH_BYTES_MAX: usize = 64 << 10;

impl Guard<'_> {
    /// Writes `bytes` over a live large value from `offset` on, if `expect` holds; flags and expiry stay.
    /// Returns the value's length; none, and nothing done, if that cannot be done in place: there
    /// is no large value, or it is shorter, or a reader has it.
    ///
    /// # Errors
    /// What was expected and was not so.
    pub fn patch(
        &mut self,
        key: &Key<'_>,
        offset: u64,
        bytes: &[u8],
        expect: Expect,
    ) -> Result<Option<u64>, Refusal> {
        // Most values are small: they are not locked to find that out.
        let small = match self.store.find(key) {
            Find::Item(_, raw) => !raw.header().is_large(),
            Find::Nothing => true,
            Find::Unclean => false,
        };
        if small || bytes.len() > PATCH_BYTES_MAX {
            return Ok(None);
        }
        self.local.leave_if_due(self.store);
        self.with_live(key, |guard, locked, found, raw| {
            let store = guard.store;
            let location = found.slot.location();
            check(expect, Some((raw, location)), key.hash)?;
            if !raw.header().is_large() {
                return Ok(None);
            }
            // SAFETY: a large item that is reachable under this lock.
            let large = unsafe { Large::of(raw) };
            if large.has_one_run() {
                // It is read without a pin, and is small enough to be copied.
                return Ok(None);
            }
            let fits =
                offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= large.head().value_bytes);
            let Version { writes, explicit, .. } = Version::next(locked.control, None, key.hash);
            let alone = fits
                && large.head().pins.alone(|| {
                    write(store, large, offset, bytes);
                    // A large item has an extension for any token.
                    raw.set_token(writes, explicit, (STALE | TOKEN_SENT, 0));
                });
            if !alone {
                return Ok(None);
            }
            found.bucket.replace(found.i, found.slot.with_access(access::encode(guard.now_s)));
            locked.control = guard.local.written(store, locked.control, key);
            guard.local.counters(store).items_stored.add(1);
            Ok(Some(large.head().value_bytes))
        })
    }
}

/// Writes bytes into pieces that no other thread reads or writes now.
fn write(store: &Store, large: Large, offset: u64, bytes: &[u8]) {
    let mut piece = (offset / PIECE_BYTES as u64) as usize;
    let mut skip = (offset % PIECE_BYTES as u64) as usize;
    let mut rest = bytes;
    while !rest.is_empty() {
        let location = large.piece(&store.arena, piece);
        // SAFETY: 1. The piece is the value's, which the caller's lock keeps. 2. Its bytes are written by
        // no other thread: that takes the same lock. 3. No thread reads them: readers have a pin, and there is
        // none until `end_move`, which their pins come after. 4. The part is inside the piece: all but
        // the last are full, and the last has what is left of the value's bytes.
        unsafe {
            let (space, used) = piece_space(&store.arena, location);
            let n = rest.len().min(used - skip);
            space.add(skip).copy_from_nonoverlapping(rest.as_ptr(), n);
            rest = &rest[n..];
        }
        piece += 1;
        skip = 0;
    }
}
