//! Uploads: a value on its way in, received straight into the memory of the item it will be.
//!
//! Memory is taken as bytes arrive: a large value's announced size costs nothing but its table. All
//! uploads together hold at most a quarter of the limit; beyond it they are refused.

use crate::class::{CHUNK_BYTES_MAX, ClassId};
use crate::item::{Header, RawItem, Shape};
use crate::large::{Large, piece_bytes};
use crate::worker::{Guard, free_alone};
use crate::write::{Draft, Token, Unpublished};
use crate::{Attributes, Expect, Key, Refusal, Store, Stored};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Uploads may hold one part in this many of the memory limit.
const UPLOAD_SHARE: u64 = 4;

/// A value on its way in. Dropping it gives the memory back.
#[derive(Debug)]
pub struct Upload {
    store: Arc<Store>,
    draft: DraftParts,
    hash: u64,
    shape: Shape,
    cas: Option<u64>,
    /// Bytes of the value that have arrived.
    filled: u64,
    /// Bytes counted against the uploads' share.
    held: u64,
    /// The chunk that is being filled, its start and end in the value; for a whole value, its own.
    space: *mut u8,
    space_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
struct DraftParts {
    chunk: Option<u64>,
    large: bool,
}

// SAFETY: `space` points into a chunk that only this upload owns.
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
        // A bucket written to four billion times will want an extension for the token.
        let writes = self.store.index.place(&self.store.arena, key.hash).home().control().writes();
        let shape = attributes.shape(key.bytes, value_bytes, writes > u64::from(u32::MAX / 2));
        self.start(key, shape, attributes)
    }

    /// As [`Guard::upload`], for a value that fits a chunk but for its optional words.
    pub(crate) fn upload_large(
        &mut self,
        key: &Key<'_>,
        value_bytes: u64,
        attributes: &Attributes,
    ) -> Result<Upload, Refusal> {
        let shape = Shape::new(key.bytes.len(), value_bytes, attributes.flags, true, true);
        debug_assert!(shape.large());
        self.start(key, shape, attributes)
    }

    fn start(&mut self, key: &Key<'_>, shape: Shape, attributes: &Attributes) -> Result<Upload, Refusal> {
        let Draft { chunk, large } = self.draft_marked(key.bytes, &shape, attributes, attributes.marks())?;
        let mut upload = Upload {
            store: Arc::clone(self.arc),
            draft: DraftParts { chunk: Some(chunk), large },
            hash: key.hash,
            shape,
            cas: attributes.cas,
            filled: 0,
            held: 0,
            space: std::ptr::null_mut(),
            space_bytes: 0,
        };
        if !large {
            // SAFETY: the chunk is the upload's and holds the shape.
            upload.space = unsafe { RawItem::new(self.store.arena.at(chunk)) }.draft_value(&shape);
            upload.space_bytes = shape.value_bytes() as usize;
        }
        Ok(upload)
    }

    /// Makes sure that [`Upload::space`] is not empty while bytes are missing.
    ///
    /// # Errors
    /// [`Refusal::NoMemory`]: the memory is out, or uploads hold their share of it.
    pub fn upload_reserve(&mut self, upload: &mut Upload) -> Result<(), Refusal> {
        if upload.space_bytes > 0 || upload.missing() == 0 {
            return Ok(());
        }
        let store = self.store;
        let chunk = upload.draft.chunk.expect("an upload has its chunk until it is published");
        // SAFETY: the chunk is the upload's, a large draft.
        let large = unsafe { Large::of(RawItem::new(store.arena.at(chunk))) };
        let bytes = piece_bytes(upload.shape.value_bytes(), upload.filled);
        let held = store.upload_bytes.load(Ordering::Relaxed) + bytes as u64;
        if held > store.arena.limit_bytes() / UPLOAD_SHARE {
            return Err(Refusal::NoMemory);
        }
        let table = if large.needs_table() {
            let class = ClassId::of(CHUNK_BYTES_MAX);
            let Some(table) = self.local.allocate(store, self.now_s, class, CHUNK_BYTES_MAX) else {
                return Err(Refusal::NoMemory);
            };
            self.write_piece_header(table, chunk, CHUNK_BYTES_MAX - 8);
            Some(table)
        } else {
            None
        };
        let Some(piece) = self.local.allocate(store, self.now_s, ClassId::of(bytes + 8), bytes + 8) else {
            if let Some(table) = table {
                self.local.free_unseen(store, table);
            }
            return Err(Refusal::NoMemory);
        };
        self.write_piece_header(piece, chunk, bytes);
        // SAFETY: the draft and both chunks are this worker's.
        unsafe { large.push(&store.arena, piece, table) };
        store.upload_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        upload.held += bytes as u64;
        // SAFETY: a piece's bytes begin behind its header word.
        upload.space = unsafe { store.arena.at(piece).as_ptr().add(8) };
        upload.space_bytes = bytes;
        Ok(())
    }

    fn write_piece_header(&self, piece: u64, owner: u64, bytes: usize) {
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
    /// If bytes are missing.
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
        assert_eq!(upload.missing(), 0, "only complete uploads are published");
        self.local.breathe(self.store);
        let chunk = upload.draft.chunk.take().expect("an upload has its chunk until it is published");
        // SAFETY: the chunk was the upload's and is this worker's now; its key stays while it is a
        // draft, and after publication for as long as this epoch.
        let bytes = unsafe { RawItem::new(self.store.arena.at(chunk)).key() };
        let key = Key { bytes, hash: upload.hash };
        let draft = Draft { chunk, large: upload.draft.large };
        match self.publish_draft(&key, draft, keep, expect) {
            Ok(stored) => Ok(stored),
            Err(Unpublished::Refused(refusal)) => Err(refusal),
            // Two billion writes to one bucket between `upload` and now: as if evicted at once.
            Err(Unpublished::NeedsExtension) => Err(Refusal::NoMemory),
        }
    }
}

impl Upload {
    /// The key's bytes, as copied into the item.
    pub fn key(&self) -> &[u8] {
        let chunk = self.draft.chunk.expect("an upload has its chunk until it is published");
        // SAFETY: the chunk is this upload's.
        unsafe { RawItem::new(self.store.arena.at(chunk)).key() }
    }

    /// Bytes still missing.
    #[inline]
    pub fn missing(&self) -> u64 {
        self.shape.value_bytes() - self.filled
    }

    /// Bytes of the whole value.
    pub fn value_bytes(&self) -> u64 {
        self.shape.value_bytes()
    }

    /// The next place to receive into; empty when [`Guard::upload_reserve`] has to be called.
    #[inline]
    pub fn space(&mut self) -> &mut [u8] {
        if self.space_bytes == 0 {
            return &mut [];
        }
        // SAFETY: 1. The bytes belong to a chunk of this upload. 2. They were mapped zeroed or used
        // before, so they are initialised. 3. `&mut self` makes the slice unique.
        unsafe { std::slice::from_raw_parts_mut(self.space, self.space_bytes) }
    }

    /// Says that the first `n` bytes of [`Upload::space`] were filled.
    ///
    /// # Panics
    /// If there was less space.
    #[inline]
    pub fn advance(&mut self, n: usize) {
        assert!(n <= self.space_bytes, "more filled than there was space");
        // SAFETY: at most to the end of the space.
        self.space = unsafe { self.space.add(n) };
        self.space_bytes -= n;
        self.filled += n as u64;
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.store.upload_bytes.fetch_sub(self.held, Ordering::Relaxed);
        if let Some(chunk) = self.draft.chunk {
            free_alone(&self.store, chunk);
        }
    }
}
