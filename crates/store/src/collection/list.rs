//! Lists: elements in the order in which they were put.

use super::Type;
use super::change::Declined;
use super::element::Element;
use super::leaf::Removed;
use crate::worker::Guard;
use crate::{End, Key};
use std::ops::Range;

/// Elements that are looked through at a time for those to be taken out, where there is no memory for more.
const AMONG_FEW: usize = 32;

/// What came of taking elements from both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// There was a list.
    pub there: bool,
    /// Number of elements that were taken from the front.
    pub front: usize,
    /// Number of elements that were taken from the back.
    pub back: usize,
    /// There are more that are to go: of a very long list some are taken at a time.
    pub more: bool,
}

impl Guard<'_> {
    /// Puts elements to an end of a list, one after the other; returns its length then. With
    /// `present` only if there is a list, else 0.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn list_push<'p>(
        &mut self,
        key: &Key<'_>,
        end: End,
        elements: impl Iterator<Item = &'p [u8]> + Clone,
        present: bool,
    ) -> Result<usize, Declined> {
        let changed = self.change_collection(key, Type::List, |list| {
            if present && list.len() == 0 {
                return Ok::<_, Declined>(0);
            }
            list.push(end, elements.clone())?;
            Ok(list.len())
        })?;
        Ok(changed.answer)
    }

    /// Takes up to `count` elements from an end of a list; none if there is no list.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn list_pop(
        &mut self,
        key: &Key<'_>,
        end: End,
        count: usize,
    ) -> Result<Option<Removed<'_>>, Declined> {
        let changed = self.take_out_of_collection(key, Type::List, |list| {
            let len = list.len();
            let gone = match end {
                End::Front => 0..count.min(len),
                End::Back => len.saturating_sub(count)..len,
            };
            list.remove_places(gone.clone(), end, true)?;
            Ok::<_, Declined>(gone)
        })?;
        Ok(self.removed(changed))
    }

    /// Takes the element at an end of a list; none if there is no list. One that lies apart and has more than `bytes_max`
    /// bytes is not taken: the inner error is how many it has.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn list_pop_within(
        &mut self,
        key: &Key<'_>,
        end: End,
        bytes_max: usize,
    ) -> Result<Result<Option<Removed<'_>>, usize>, Declined> {
        let changed = self.take_out_of_collection(key, Type::List, |list| {
            let Some(last) = list.len().checked_sub(1) else { return Ok::<_, Declined>(Ok(0..0)) };
            let place = if end == End::Front { 0 } else { last };
            if let Some(bytes) = list.apart_bytes(place).filter(|bytes| *bytes > bytes_max) {
                return Ok(Err(bytes));
            }
            list.remove_places(place..place + 1, end, true)?;
            Ok(Ok(place..place + 1))
        })?;
        Ok(match changed.transpose() {
            Ok(changed) => Ok(self.removed(changed)),
            Err(bytes) => Err(bytes),
        })
    }

    /// Keeps the elements in the range that `range` makes of the list's length. The list is written even if it keeps all. Of
    /// a very long list only some elements may go, from its ends on.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn list_trim(
        &mut self,
        key: &Key<'_>,
        range: impl Fn(usize) -> Range<usize>,
    ) -> Result<Trimmed, Declined> {
        let changed = self.take_out_of_collection(key, Type::List, |list| {
            let len = list.len();
            if len == 0 {
                return Ok::<_, Declined>(Trimmed::default());
            }
            let mut kept = range(len);
            kept = kept.start.min(len)..kept.end.min(len);
            list.touch();
            if kept.is_empty() {
                list.remove_places(0..len, End::Front, true)?;
                return Ok(Trimmed { there: true, front: len, back: 0, more: false });
            }
            let left = list.remove_places(kept.end..len, End::Back, false)?;
            let back = len - kept.end - left.len();
            let more = if left.is_empty() {
                list.remove_places(0..kept.start, End::Front, false)?.len()
            } else {
                kept.start
            };
            Ok(Trimmed { there: true, front: kept.start - more, back, more: more + left.len() > 0 })
        })?;
        Ok(changed.answer)
    }

    /// Replaces the element at the place that `place` makes of the list's length. Returns whether
    /// there is such a place; `None`: there is no list.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn list_set(
        &mut self,
        key: &Key<'_>,
        element: &[u8],
        place: impl Fn(usize) -> Option<usize>,
    ) -> Result<Option<bool>, Declined> {
        let changed = self.change_collection(key, Type::List, |list| {
            let len = list.len();
            if len == 0 {
                return Ok::<_, Declined>(None);
            }
            let Some(i) = place(len).filter(|i| *i < len) else { return Ok(Some(false)) };
            list.set_at(i, element)?;
            Ok(Some(true))
        })?;
        Ok(changed.answer)
    }

    /// Puts an element in front of the one at `place`, or behind all. Returns the list's length
    /// then; `None`: it has fewer elements.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn list_insert_at(
        &mut self,
        key: &Key<'_>,
        place: usize,
        element: &[u8],
    ) -> Result<Option<usize>, Declined> {
        let changed = self.change_collection(key, Type::List, |list| {
            if list.len() == 0 || place > list.len() {
                return Ok::<_, Declined>(None);
            }
            list.insert_at(place, element)?;
            Ok(Some(list.len()))
        })?;
        Ok(changed.answer)
    }

    /// Puts an element next to the first one that is `pivot`. Returns the list's length then; 0:
    /// there is no pivot; `None`: there is no list.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn list_insert(
        &mut self,
        key: &Key<'_>,
        end: End,
        pivot: &[u8],
        element: &[u8],
    ) -> Result<Option<usize>, Declined> {
        let pivot = Element::of(pivot);
        let changed = self.change_collection(key, Type::List, |list| {
            let Some(there) = list.collection() else { return Ok::<_, Declined>(None) };
            let Some(at) = there.entries(0..there.len()).position(|entry| there.is(&entry.name, &pivot))
            else {
                return Ok(Some(0));
            };
            list.insert_at(at + usize::from(end == End::Back), element)?;
            Ok(Some(list.len()))
        })?;
        Ok(changed.answer)
    }

    /// Takes out up to `count` elements that are `element`, the first ones from that end on; returns how many.
    ///
    /// # Errors
    /// [`Declined`], and nothing done; where there is no memory for what is left beside what was there, some may be taken
    /// out before there is none at all.
    pub fn list_remove(
        &mut self,
        key: &Key<'_>,
        end: End,
        count: usize,
        element: &[u8],
    ) -> Result<usize, Declined> {
        self.list_remove_among(key, 0..usize::MAX, end, count, element)
    }

    /// As [`Guard::list_remove`], of the elements at these places only.
    ///
    /// # Errors
    /// As there.
    pub fn list_remove_among(
        &mut self,
        key: &Key<'_>,
        places: Range<usize>,
        end: End,
        count: usize,
        element: &[u8],
    ) -> Result<usize, Declined> {
        match self.making_way(|guard| guard.remove_among(key, places.clone(), end, count, element)) {
            Err(Declined::NoMemory) if !self.memory_comes() => {}
            done => return done,
        }
        // In a tree each may need nodes of its own: what is kept for leftovers would not do for all of them.
        let own = !self.in_transaction();
        if own {
            self.begin([*key]);
        }
        let done = self.making_way(|guard| guard.remove_among_few(key, places, end, count, element));
        if own {
            self.finish();
        }
        done
    }

    /// As [`Guard::list_remove_among`], some places at a time.
    fn remove_among_few(
        &mut self,
        key: &Key<'_>,
        places: Range<usize>,
        end: End,
        count: usize,
        element: &[u8],
    ) -> Result<usize, Declined> {
        let len = self.collection(key, Type::List)?.map_or(0, |list| list.len());
        let mut left = places.start.min(len)..places.end.min(len);
        let mut gone = 0;
        while !left.is_empty() && gone < count {
            let few = match end {
                End::Front => left.start..left.end.min(left.start + AMONG_FEW),
                End::Back => left.end.saturating_sub(AMONG_FEW).max(left.start)..left.end,
            };
            let some = self.remove_among(key, few.clone(), end, count - gone, element)?;
            match end {
                End::Front => left = few.end - some..left.end - some,
                End::Back => left.end = few.start,
            }
            gone += some;
        }
        Ok(gone)
    }

    fn remove_among(
        &mut self,
        key: &Key<'_>,
        places: Range<usize>,
        end: End,
        count: usize,
        element: &[u8],
    ) -> Result<usize, Declined> {
        let element = Element::of(element);
        let changed = self.change_collection(key, Type::List, |list| {
            let Some(whole) = list.collection() else { return Ok::<_, Declined>(0) };
            let places = places.start.min(whole.len())..places.end.min(whole.len());
            let there = whole.entries(places.clone()).filter(|entry| whole.is(&entry.name, &element)).count();
            let gone = there.min(count);
            if gone > 0 {
                // Of those that are the element, by their number from the front.
                let numbers = match end {
                    End::Front => 0..gone,
                    End::Back => there - gone..there,
                };
                list.remove_equal(places, &element, &numbers)?;
            }
            Ok(gone)
        })?;
        Ok(changed.answer)
    }
}
