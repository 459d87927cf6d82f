//! Lists: elements in the order in which they were put.

use super::Type;
use super::change::Declined;
use super::element::Element;
use super::leaf::Removed;
use crate::worker::Guard;
use crate::{End, Key};
use std::ops::Range;

impl Guard<'_> {
    /// Puts elements to an end of a list, one after the other; how many it has then. With `present` only if there is a
    /// list, else 0.
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
            let old = list.len();
            for element in elements.clone() {
                let end = list.len();
                list.insert(end, element, &[], 0.0)?;
            }
            if end == End::Front {
                list.write().turn_to_front(old);
            }
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
            if !gone.is_empty() {
                list.remove(gone.clone());
            }
            Ok::<_, Declined>(gone)
        })?;
        Ok(self.removed(changed))
    }

    /// Keeps the elements that `range` says of the list's length, and is written even if those are all; whether there is
    /// a list.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn list_trim(
        &mut self,
        key: &Key<'_>,
        range: impl Fn(usize) -> Range<usize>,
    ) -> Result<bool, Declined> {
        let changed = self.take_out_of_collection(key, Type::List, |list| {
            let len = list.len();
            if len > 0 {
                let kept = range(len);
                let kept = kept.start.min(len)..kept.end.min(len);
                list.write();
                if kept.is_empty() {
                    list.remove(0..len);
                } else {
                    list.remove(kept.end..len);
                    list.remove(0..kept.start);
                }
            }
            Ok::<_, Declined>(len > 0)
        })?;
        Ok(changed.answer)
    }

    /// Puts another element in the place that `place` says of the list's length; whether there is such a place, none if
    /// there is no list.
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
            list.write().set_element(i, element)?;
            Ok(Some(true))
        })?;
        Ok(changed.answer)
    }

    /// Puts an element next to the first one that is `pivot`; how many there are then, 0 without a pivot, none without a
    /// list.
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
            let Some(leaf) = list.leaf() else { return Ok::<_, Declined>(None) };
            let Some(at) = leaf.entries(0..leaf.len()).position(|entry| entry.name == pivot) else {
                return Ok(Some(0));
            };
            list.insert(at + usize::from(end == End::Back), element, &[], 0.0)?;
            Ok(Some(list.len()))
        })?;
        Ok(changed.answer)
    }

    /// Takes out up to `count` elements that are `element`, the first ones from that end on; how many.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn list_remove(
        &mut self,
        key: &Key<'_>,
        end: End,
        count: usize,
        element: &[u8],
    ) -> Result<usize, Declined> {
        let element = Element::of(element);
        let changed = self.take_out_of_collection(key, Type::List, |list| {
            let Some(leaf) = list.leaf() else { return Ok::<_, Declined>(0) };
            let there = leaf.entries(0..leaf.len()).filter(|entry| entry.name == element).count();
            let gone = there.min(count);
            if gone == 0 {
                return Ok(0);
            }
            // Of those that are the element, by their number from the front.
            let leaving = match end {
                End::Front => 0..gone,
                End::Back => there - gone..there,
            };
            let mut number = 0;
            list.write().retain(|entry| {
                let found = entry.name == element;
                number += usize::from(found);
                !(found && leaving.contains(&(number - 1)))
            });
            Ok(gone)
        })?;
        Ok(changed.answer)
    }
}
