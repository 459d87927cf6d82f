//! Elements of lists, values of fields and members of sets that were received: an upload has their bytes in pieces, and each
//! piece becomes the leaf of a part where it lies.
//!
//! ```text
//! upload  head ─▶ piece │ piece │ … │ piece        header 8 │ lead 16 │ bytes of the element │ room
//!                   ▼       ▼           ▼          header 8 │ key 8 │ head of a leaf 8 │ bytes of the element │ pins
//! list    … leaf │ its own leaf │ part │ part │ … │ part │ leaf …
//! hash    … leaf that names it   │ part │ part │ … │ part │ leaf …       or a set
//! ```
//!
//! 1. An edit takes the pieces as nodes that it has made, and writes what is in front of each part and behind it. Nothing is
//!    copied.
//! 2. Where others write meanwhile the edit begins anew, and takes the same pieces again. Sweeps may have seen them as nodes that
//!    no tree names; their bytes stay what they were, and between two attempts their headers say that they are no nodes.
//! 3. When the tree is published the upload has no pieces any more. Its head goes.
//! 4. Where it comes to nothing the pieces go with the upload: those that a sweep may have seen wait in limbo.

use super::change::{Declined, Workpiece};
use super::{Fields, Lasting, PART_BYTES, PART_LEAD_BYTES, Type};
use crate::large::PieceCursor;
use crate::worker::Guard;
use crate::{End, Key, Store, Upload};

/// An element that was received: its pieces, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pieces: PieceCursor,
    bytes: usize,
    /// What the next pieces have of them.
    left: usize,
}

impl Received {
    /// One of so many bytes, which are in these pieces.
    pub(crate) fn new(pieces: PieceCursor, bytes: usize) -> Received {
        Received { pieces, bytes, left: bytes }
    }

    /// Bytes of the element.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The location of the next piece, and what it has of the element: as much as a part, but for the last.
    pub(super) fn next_piece(&mut self, store: &Store) -> Option<(u64, usize)> {
        let piece = self.pieces.next(&store.arena)?;
        let bytes = self.left.min(PART_BYTES);
        self.left -= bytes;
        Some((piece, bytes))
    }

    /// The bytes of the element, in blocks as its parts have.
    pub(super) fn blocks(mut self, store: &Store) -> impl Iterator<Item = &[u8]> {
        std::iter::from_fn(move || {
            let (piece, bytes) = self.next_piece(store)?;
            // SAFETY: a piece of an upload that is whole, which its owner keeps for as long as it is looked at, or the leaf that
            // was made of it. Behind its header and its lead, or what a leaf begins with, are so many bytes, which no thread
            // writes to.
            Some(unsafe {
                let at = store.arena.at(piece).add(8 + PART_LEAD_BYTES);
                std::slice::from_raw_parts(at.as_ptr().cast_const(), bytes)
            })
        })
    }
}

impl Guard<'_> {
    /// Puts an element that was received ([`Guard::upload_element`]) to an end of a list; how many elements there are then. With
    /// `present` only if there is a list, else 0. What is not put there gives its memory back.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    ///
    /// # Panics
    /// If bytes are missing, the upload began in another store, or it is a value.
    pub fn list_push_upload(
        &mut self,
        key: &Key<'_>,
        end: End,
        upload: Upload,
        present: bool,
    ) -> Result<usize, Declined> {
        self.list_push_upload_behind(key, end, std::iter::empty(), upload, present)
    }

    /// The same behind other elements, which are pushed before it: all of them or none.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    ///
    /// # Panics
    /// As [`Guard::list_push_upload`].
    pub fn list_push_upload_behind<'p>(
        &mut self,
        key: &Key<'_>,
        end: End,
        elements: impl Iterator<Item = &'p [u8]> + Clone,
        upload: Upload,
        present: bool,
    ) -> Result<usize, Declined> {
        let pushed = self.put_upload(key, Type::List, upload, |list, received| {
            if present && list.len() == 0 {
                return Ok(None);
            }
            if elements.clone().next().is_some() {
                list.push(end, elements.clone())?;
            }
            list.push_received(end, received)?;
            Ok(Some(list.len()))
        })?;
        Ok(pushed.unwrap_or(0))
    }

    /// Sets a field of a hash, which does not expire then, to a value that was received ([`Guard::upload_element`]); whether it
    /// was not there. With `absent` only a field that is not there: none if it is. A value that is not put there gives its
    /// memory back.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    ///
    /// # Panics
    /// As [`Guard::list_push_upload`].
    pub fn hash_set_upload(
        &mut self,
        key: &Key<'_>,
        field: &[u8],
        upload: Upload,
        absent: bool,
    ) -> Result<Option<bool>, Declined> {
        let asked = if absent { Fields::Absent } else { Fields::Any };
        self.hash_set_upload_lasting(key, field, upload, (asked, Lasting::Never))
    }

    /// The same, if what is asked holds of the field, which lasts as long as is said; none if it does not.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    ///
    /// # Panics
    /// As [`Guard::list_push_upload`].
    pub fn hash_set_upload_lasting(
        &mut self,
        key: &Key<'_>,
        field: &[u8],
        upload: Upload,
        (asked, lasting): (Fields, Lasting),
    ) -> Result<Option<bool>, Declined> {
        self.put_upload(key, Type::Hash, upload, |hash, received| {
            let holds = match asked {
                Fields::Any => true,
                Fields::Present => hash.has(field),
                Fields::Absent => !hash.has(field),
            };
            if holds { hash.put_received(field, received, lasting).map(Some) } else { Ok(None) }
        })
    }

    /// Sets fields, in order, and then one to a value that was received; how many were not there. None of them expires then.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    ///
    /// # Panics
    /// As [`Guard::list_push_upload`].
    pub fn hash_set_upload_behind<'p>(
        &mut self,
        key: &Key<'_>,
        pairs: impl Iterator<Item = (&'p [u8], &'p [u8])> + Clone,
        field: &[u8],
        upload: Upload,
    ) -> Result<usize, Declined> {
        let new = self.put_upload(key, Type::Hash, upload, |hash, received| {
            let new = hash.put_all(pairs.clone(), Lasting::Never)?;
            let is_new = hash.put_received(field, received, Lasting::Never)?;
            Ok(Some(new + usize::from(is_new)))
        })?;
        Ok(new.unwrap_or(0))
    }

    /// Puts an element that was received in the place that `place` says of the list's length; whether there is such a place, none
    /// if there is no list. An element that is not put there gives its memory back.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    ///
    /// # Panics
    /// As [`Guard::list_push_upload`].
    pub fn list_set_upload(
        &mut self,
        key: &Key<'_>,
        upload: Upload,
        place: impl Fn(usize) -> Option<usize>,
    ) -> Result<Option<bool>, Declined> {
        let mut is_place = None;
        self.put_upload(key, Type::List, upload, |list, received| {
            let len = list.len();
            let at = place(len).filter(|i| *i < len);
            is_place = (len > 0).then_some(at.is_some());
            let Some(at) = at else { return Ok(None) };
            list.set_received_at(at, received).map(Some)
        })?;
        Ok(is_place)
    }

    /// Puts members into a set, and one that was received ([`Guard::upload_element`]); how many were not there. The latter gives
    /// its memory back if it is there already. It is hashed and compared in one step, and so has no more bytes than one that is
    /// copied ([`Store::element_bytes_max`]).
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    ///
    /// # Panics
    /// As [`Guard::list_push_upload`].
    pub fn set_add_upload<'p>(
        &mut self,
        key: &Key<'_>,
        members: impl Iterator<Item = &'p [u8]> + Clone,
        upload: Upload,
    ) -> Result<usize, Declined> {
        if upload.value_bytes() > self.store.element_bytes_max() as u64 {
            return Err(Declined::TooLarge);
        }
        // Once, however often it is tried.
        let hash = self.store.hash_of_blocks(self.received(&upload).blocks(self.store));
        let mut new = 0;
        self.put_upload(key, Type::Set, upload, |set, received| {
            new = set.put_all(members.clone().map(|member| (member, &b""[..])), Lasting::Never)?;
            let is_new = set.add_received(hash, received)?;
            new += usize::from(is_new);
            Ok(is_new.then_some(()))
        })?;
        Ok(new)
    }

    /// Runs `put`, which puts what was received into a collection, or says none and does not.
    fn put_upload<R>(
        &mut self,
        key: &Key<'_>,
        kind: Type,
        mut upload: Upload,
        mut put: impl FnMut(&mut Workpiece<'_>, Received) -> Result<Option<R>, Declined>,
    ) -> Result<Option<R>, Declined> {
        let received = self.received(&upload);
        // An edit was whole with the pieces as nodes, which it may have shown.
        let mut shown = false;
        let changed = self.change_collection(key, kind, |there| {
            let answer = put(there, received)?;
            shown |= answer.is_some();
            Ok::<_, Declined>(answer)
        });
        let answer = changed.map(|changed| changed.answer);
        match &answer {
            Ok(Some(_)) => upload.leave_pieces(),
            Ok(None) | Err(_) if shown => self.retire_pieces(&mut upload),
            Ok(None) | Err(_) => self.take_pieces_back(&upload),
        }
        answer
    }
}
