//! Uploads: a value on its way in, received straight into the memory of the item it will be.
//!
//! ```text
//! 0            filled                  reserved          value_bytes
//! ├─ received ──┼─────── spaces() ───────┼─ no memory yet ─┤
//! │ piece │ piece   │ piece   │ piece    │
//! ```
//!
//! Memory is taken as bytes arrive: a large value's announced size costs nothing but its table, and
//! what a receive may fill is reserved just before it. Uploads count against what requests on their way
//! in may hold together ([`Store::input_bytes_max`]; one that is alone may be larger); beyond it they are
//! refused. Beyond half of that they reserve one piece at a time, so that those that stand still with
//! memory ahead of them do not take it from those that move.
//!
//! A long element of a list or value of a field is received in the same way. Its pieces become the leaves of its parts where they
//! lie (`collection/received.rs`), so in each of them room is left for what the leaf of a part begins and ends with:
//!
//! ```text
//! piece of a value      header 8 │ up to 16,376 bytes of the value
//! piece of an element   header 8 │ lead 16 │ up to 16,352 bytes of the element │ pad to 8 │ pins 8
//! ```

use crate::class::{CHUNK_BYTES_MAX, ClassId};
use crate::collection::{PART_BYTES, PART_LEAD_BYTES, Received, part_chunk_bytes};
use crate::item::{Header, RawItem, Shape};
use crate::large::{Large, PieceCursor, piece_bytes, piece_space};
use crate::sync::atomic::Ordering;
use crate::worker::{Guard, chunk_facts, free_alone};
use crate::write::{Draft, Token, Unpublished};
use crate::{Attributes, Expect, Key, Refusal, Store, Stored};
use std::sync::Arc;

/// A value on its way in. Dropping it gives the memory back.
#[derive(Debug)]
pub struct Upload {
    store: Arc<Store>,
    draft: DraftParts,
    hash: u64,
    cas: Option<u64>,
    /// Bytes of the whole value.
    bytes: u64,
    /// Bytes in front of the value's in each piece: none but for an element of a collection.
    lead: usize,
    /// Bytes of the value that have arrived.
    filled: u64,
    /// Bytes of the value that have arrived, or for which there is memory.
    reserved: u64,
    /// Bytes counted against what requests on their way in may hold.
    held: u64,
    /// It is for bytes that a client sends; others are there at once, and hold up no client.
    sent: bool,
    /// What is left of the piece that is being filled; of a value in one chunk, of all of it.
    space: *mut u8,
    space_bytes: usize,
    /// Stands behind that piece; none for a value in one chunk.
    ahead: Option<PieceCursor>,
}

/// The places for a value's next bytes, in order; none is empty.
#[derive(Debug)]
pub struct Spaces<'u> {
    store: &'u Store,
    space: *mut u8,
    space_bytes: usize,
    ahead: Option<PieceCursor>,
    lead: usize,
    /// Bytes of the value behind the space.
    behind: u64,
}

#[derive(Clone, Copy, Debug)]
struct DraftParts {
    chunk: Option<u64>,
    large: bool,
}

// SAFETY: `space` and `ahead` point into chunks that only this upload owns.
unsafe impl Send for Upload {}

impl Guard<'_> {
    /// Starts a value of `value_bytes` that arrives in pieces.
    ///
    /// # Errors
    /// [`Refusal::NoMemory`].
    pub fn upload(
        &mut self,
        key: &Key<'_>,
        value_bytes: u64,
        attributes: &Attributes,
    ) -> Result<Upload, Refusal> {
        let mut upload = self.asking_once(|guard| guard.compose(key, value_bytes, attributes))?;
        upload.sent = true;
        // Of a value in one chunk there is memory for all of it.
        self.store.note_input(upload.reserved as i64);
        upload.held = upload.reserved;
        Ok(upload)
    }

    /// As [`Guard::upload`], for a value that is put together from what is there: it counts for no request on its way
    /// in.
    ///
    /// # Errors
    /// [`Refusal::NoMemory`].
    pub fn compose(
        &mut self,
        key: &Key<'_>,
        value_bytes: u64,
        attributes: &Attributes,
    ) -> Result<Upload, Refusal> {
        // A bucket written to four billion times will want an extension for the token.
        let writes = self.store.index.place(&self.store.arena, key.hash).home().control().writes();
        let shape = attributes.shape(key, value_bytes, writes > u64::from(u32::MAX / 2));
        self.start(key, shape, attributes)
    }

    /// As [`Guard::upload`], for an element of a list under this key, which [`Guard::list_push_upload`] or
    /// [`Guard::list_set_upload`] puts there, or the value of a field of a hash, which [`Guard::hash_set_upload`] sets; none if
    /// an element of so many bytes is not received ([`Store::element_is_received`]). Or for a member of a set, which
    /// [`Guard::set_add_upload`] puts in, and which may have fewer.
    ///
    /// # Errors
    /// [`Refusal::NoMemory`].
    pub fn upload_element(&mut self, key: &Key<'_>, bytes: u64) -> Result<Option<Upload>, Refusal> {
        if !self.store.element_is_received(bytes) {
            return Ok(None);
        }
        let attributes = Attributes::default();
        // With what a part has beside its bytes, so that the head has room to name all pieces.
        let beside = bytes.div_ceil(PART_BYTES as u64) * (part_chunk_bytes(PART_BYTES) - PART_BYTES) as u64;
        let shape = attributes.shape(key, bytes + beside, false);
        assert!(shape.large(), "what has two parts has no place in one chunk");
        let mut upload = self.asking_once(|guard| guard.start(key, shape, &attributes))?;
        (upload.sent, upload.bytes, upload.lead) = (true, bytes, PART_LEAD_BYTES);
        Ok(Some(upload))
    }

    /// As [`Guard::upload`], in a shape that was chosen.
    pub(crate) fn start(
        &mut self,
        key: &Key<'_>,
        shape: Shape,
        attributes: &Attributes,
    ) -> Result<Upload, Refusal> {
        let Draft { chunk, large, .. } = self.draft_marked(key, &shape, attributes, attributes.marks())?;
        let mut upload = Upload {
            store: Arc::clone(self.arc),
            draft: DraftParts { chunk: Some(chunk), large },
            hash: key.hash,
            cas: attributes.cas,
            bytes: shape.value_bytes(),
            lead: 0,
            filled: 0,
            reserved: 0,
            held: 0,
            sent: false,
            space: std::ptr::null_mut(),
            space_bytes: 0,
            ahead: None,
        };
        // SAFETY: the chunk is the upload's and holds the shape; of a large one, the head was
        // initialised.
        unsafe {
            let raw = RawItem::new(self.store.arena.at(chunk));
            if large {
                upload.ahead = Some(PieceCursor::new(Large::of(raw)));
            } else {
                upload.space = raw.draft_value(&shape);
                upload.space_bytes = shape.value_bytes() as usize;
                upload.reserved = shape.value_bytes();
            }
        }
        Ok(upload)
    }

    /// Makes room in [`Upload::spaces`] for the next `bytes` bytes, or as many as are missing. Less
    /// than that is no error while there is any.
    ///
    /// # Errors
    /// [`Refusal::NoMemory`]: the memory is out, or uploads hold their share of it.
    ///
    /// # Panics
    /// If it began in another store.
    pub fn upload_reserve(&mut self, upload: &mut Upload, bytes: usize) -> Result<(), Refusal> {
        self.assert_own(upload);
        let goal = upload.value_bytes().min(upload.filled + bytes as u64);
        while upload.reserved < goal {
            if upload.reserved > upload.filled && self.store.arena.awaits_memory() {
                return Ok(());
            }
            if let Err(refusal) = self.reserve_piece(upload) {
                return if upload.reserved > upload.filled { Ok(()) } else { Err(refusal) };
            }
        }
        Ok(())
    }

    /// Copies `bytes` to the end of what has arrived.
    ///
    /// # Errors
    /// As [`Guard::upload_reserve`]; as many as [`Upload::missing`] tells were copied.
    ///
    /// # Panics
    /// If fewer are missing, or it began in another store.
    pub fn upload_fill(&mut self, upload: &mut Upload, mut bytes: &[u8]) -> Result<(), Refusal> {
        assert!(bytes.len() as u64 <= upload.missing(), "more bytes than are missing");
        while !bytes.is_empty() {
            self.upload_reserve(upload, bytes.len())?;
            // All the room there is before more is asked for: where memory is out, asking takes long.
            while let Some(space) = upload.spaces().next().filter(|_| !bytes.is_empty()) {
                let n = space.len().min(bytes.len());
                space[..n].copy_from_slice(&bytes[..n]);
                upload.advance(n);
                bytes = &bytes[n..];
            }
        }
        Ok(())
    }

    /// What an upload has is a place in its own store's arena.
    fn assert_own(&self, upload: &Upload) {
        assert!(Arc::ptr_eq(&upload.store, self.arc), "an upload ends in the store where it began");
    }

    fn reserve_piece(&mut self, upload: &mut Upload) -> Result<(), Refusal> {
        let store = self.store;
        let chunk = upload.draft.chunk.expect("an upload has its chunk until it is published");
        // SAFETY: the chunk is the upload's, a large draft.
        let large = unsafe { Large::of(RawItem::new(store.arena.at(chunk))) };
        let (bytes, chunk_bytes) = if upload.lead == 0 {
            let bytes = piece_bytes(upload.bytes, upload.reserved);
            (bytes, 8 + bytes)
        } else {
            let bytes = bytes_of_next(upload.bytes - upload.reserved);
            (bytes, part_chunk_bytes(bytes))
        };
        let more = bytes as u64;
        let ahead = upload.reserved > upload.filled;
        if upload.sent && !upload.may_take(if ahead { more + store.input_bytes_max() / 2 } else { more }) {
            return Err(Refusal::NoMemory);
        }
        let table = if large.needs_table() {
            let class = ClassId::of(CHUNK_BYTES_MAX);
            let Some(table) = self.local.allocate(store, class, CHUNK_BYTES_MAX) else {
                return Err(Refusal::NoMemory);
            };
            self.write_piece_header(table, chunk, CHUNK_BYTES_MAX - 8);
            Some(table)
        } else {
            None
        };
        let Some(piece) = self.local.allocate(store, ClassId::of(chunk_bytes), chunk_bytes) else {
            if let Some(table) = table {
                self.local.free_unseen(store, table);
            }
            return Err(Refusal::NoMemory);
        };
        self.write_piece_header(piece, chunk, chunk_bytes - 8);
        // SAFETY: the draft and both chunks are this worker's.
        unsafe { large.push(&store.arena, piece, table) };
        if upload.sent {
            store.note_input(bytes as i64);
            upload.held += bytes as u64;
        }
        upload.reserved += bytes as u64;
        Ok(())
    }

    pub(crate) fn write_piece_header(&self, piece: u64, owner: u64, bytes: usize) {
        // SAFETY: the chunk is this worker's.
        let raw = unsafe { RawItem::new(self.store.arena.at(piece)) };
        raw.header_word().store(Header::piece(owner, bytes).0, Ordering::Release);
    }

    /// Stores a complete upload if `expect` holds; its memory is given back if not.
    ///
    /// # Errors
    /// What was expected and was not so, or [`Refusal::NoMemory`].
    ///
    /// # Panics
    /// If bytes are missing, it began in another store, or it is an element of a list or the value of a field.
    pub fn publish(&mut self, upload: Upload, expect: Expect) -> Result<Stored, Refusal> {
        let cas = upload.cas;
        self.publish_upload(upload, Token::Next(cas), expect)
    }

    pub(crate) fn publish_upload(
        &mut self,
        mut upload: Upload,
        keep: Token,
        expect: Expect,
    ) -> Result<Stored, Refusal> {
        self.assert_own(&upload);
        assert_eq!(upload.missing(), 0, "only complete uploads are published");
        assert_eq!(upload.lead, 0, "an element is no value of a key");
        self.local.leave_if_due(self.store);
        let chunk = upload.draft.chunk.take().expect("an upload has its chunk until it is published");
        // SAFETY: the chunk was the upload's and is this worker's now; its key stays while it is a
        // draft, and after publication for as long as this epoch.
        let raw = unsafe { RawItem::new(self.store.arena.at(chunk)) };
        // SAFETY: as above.
        let key = Key { bytes: unsafe { raw.key() }, hash: upload.hash, number: raw.number(raw.header()) };
        let draft = Draft { chunk, large: upload.draft.large, form: 0, soonest: 0 };
        match self.publish_draft(&key, draft, keep, expect) {
            Ok(stored) => Ok(stored),
            Err(Unpublished::Refused(refusal)) => Err(refusal),
            // Two billion writes to one bucket between `upload` and now: as if evicted at once.
            Err(Unpublished::NeedsExtension) => Err(Refusal::NoMemory),
        }
    }
}

impl Guard<'_> {
    /// The pieces of an element that is whole: they are to be the leaves of its parts.
    ///
    /// # Panics
    /// If bytes are missing, it began in another store, or it is a value.
    pub(crate) fn received(&self, upload: &Upload) -> Received {
        self.assert_own(upload);
        assert_eq!(upload.missing(), 0, "only complete uploads are put anywhere");
        assert_ne!(upload.lead, 0, "a value is no element");
        Received::new(PieceCursor::new(upload.large()), upload.bytes as usize)
    }

    /// What was received was not put into its collection, but its pieces may have been made leaves for that, which no reader has
    /// seen: they are the upload's again.
    pub(crate) fn take_pieces_back(&self, upload: &Upload) {
        let head = upload.draft.chunk.expect("an upload has its chunk until it is published");
        let arena = &self.store.arena;
        let mut pieces = PieceCursor::new(upload.large());
        while let Some(piece) = pieces.next(arena) {
            // SAFETY: a piece of the upload.
            let bytes = unsafe { RawItem::new(arena.at(piece)) }.header().piece_bytes();
            self.write_piece_header(piece, head, bytes);
        }
    }

    /// The same of pieces that sweeps may have seen as leaves: they wait in limbo until no sweep can.
    pub(crate) fn retire_pieces(&mut self, upload: &mut Upload) {
        let store = self.store;
        let mut pieces = PieceCursor::new(upload.large());
        while let Some(piece) = pieces.next(&store.arena) {
            // SAFETY: a piece of the upload.
            let item = unsafe { RawItem::new(store.arena.at(piece)) };
            let (class, bytes) = chunk_facts(&store.arena, piece);
            self.local.retire_alone(item, item.header().moved_piece(), piece, class, bytes);
        }
        upload.leave_pieces();
    }
}

impl Upload {
    /// The head of a large draft.
    fn large(&self) -> Large {
        let chunk = self.draft.chunk.expect("an upload has its chunk until it is published");
        debug_assert!(self.draft.large);
        // SAFETY: the chunk is this upload's, a large draft.
        unsafe { Large::of(RawItem::new(self.store.arena.at(chunk))) }
    }

    /// Its pieces are something else's from here on, which looks at no head.
    pub(crate) fn leave_pieces(&mut self) {
        self.ahead = None;
        // SAFETY: the draft is this upload's.
        unsafe { self.large().leave_pieces() };
    }

    /// The key's bytes, as copied into the item.
    pub fn key(&self) -> &[u8] {
        let chunk = self.draft.chunk.expect("an upload has its chunk until it is published");
        // SAFETY: the chunk is this upload's.
        unsafe { RawItem::new(self.store.arena.at(chunk)).key() }
    }

    /// Bytes still missing.
    #[inline]
    pub fn missing(&self) -> u64 {
        self.bytes - self.filled
    }

    /// It may take `more` bytes of what requests on their way in may hold. One that begins leaves a quarter of that to those under
    /// way: otherwise many that stand still would have all of it by turns, and one that goes on would be as slow as they.
    pub fn may_take(&self, more: u64) -> bool {
        let may = |more| self.store.may_take_input(self.held, more);
        may(more) && (self.held > 0 || may(more + self.store.input_bytes_max() / 4))
    }

    /// All memory that it has is filled.
    pub fn is_full(&self) -> bool {
        self.filled == self.reserved
    }

    /// Bytes that it holds of what requests on their way in may hold.
    pub fn held_bytes(&self) -> u64 {
        self.held
    }

    /// Bytes of the whole value.
    pub fn value_bytes(&self) -> u64 {
        self.bytes
    }

    /// The places to receive into, as far as [`Guard::upload_reserve`] has made any; of a value in
    /// one chunk, all of it.
    #[inline]
    pub fn spaces(&mut self) -> Spaces<'_> {
        Spaces {
            store: &self.store,
            space: self.space,
            space_bytes: self.space_bytes,
            ahead: self.ahead,
            lead: self.lead,
            behind: self.missing() - self.space_bytes as u64,
        }
    }

    /// Says that the first `n` bytes of [`Upload::spaces`] were filled.
    ///
    /// # Panics
    /// If there was less space.
    #[inline]
    pub fn advance(&mut self, n: usize) {
        assert!(n as u64 <= self.reserved - self.filled, "more filled than there was space");
        self.filled += n as u64;
        let mut n = n;
        while n > self.space_bytes {
            n -= self.space_bytes;
            // The space is full, and the rest of what was filled is behind it.
            let behind = self.missing() + n as u64;
            (self.space, self.space_bytes) = next_piece(&self.store, &mut self.ahead, (self.lead, behind))
                .expect("pieces hold what is reserved");
        }
        // SAFETY: at most to the end of the space.
        self.space = unsafe { self.space.add(n) };
        self.space_bytes -= n;
    }
}

/// Bytes of an element that its next piece has, if so many are behind the pieces before it.
fn bytes_of_next(behind: u64) -> usize {
    behind.min(PART_BYTES as u64) as usize
}

/// Where what the next piece of a draft has of the value begins, and its bytes; so many of the value are behind the pieces before
/// it. A piece of an element has more than it has of the element: a lead, and room for what is behind.
fn next_piece(
    store: &Store,
    ahead: &mut Option<PieceCursor>,
    (lead, behind): (usize, u64),
) -> Option<(*mut u8, usize)> {
    let piece = ahead.as_mut()?.next(&store.arena)?;
    // SAFETY: the draft and its pieces are the upload's, and each of an element has its lead and more.
    let (space, bytes) = unsafe {
        let (space, bytes) = piece_space(&store.arena, piece);
        (space.add(lead), bytes)
    };
    Some((space, if lead == 0 { bytes } else { bytes_of_next(behind) }))
}

impl<'u> Iterator for Spaces<'u> {
    type Item = &'u mut [u8];

    #[inline]
    fn next(&mut self) -> Option<&'u mut [u8]> {
        if self.space_bytes == 0 {
            let place = (self.lead, self.behind);
            (self.space, self.space_bytes) = next_piece(self.store, &mut self.ahead, place)?;
            self.behind -= self.space_bytes as u64;
        }
        let bytes = std::mem::take(&mut self.space_bytes);
        // SAFETY: 1. The bytes belong to a chunk of the upload. 2. They were mapped zeroed or used
        // before, so they are initialised. 3. The upload is borrowed mutably for `'u`, and each
        // place is returned once: the slices are unique.
        Some(unsafe { std::slice::from_raw_parts_mut(self.space, bytes) })
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.held > 0 {
            self.store.note_input(-(self.held as i64));
        }
        if let Some(chunk) = self.draft.chunk {
            free_alone(&self.store, chunk);
        }
    }
}
