//! Hashes: fields with values.

use super::change::Declined;
use super::element::Element;
use super::{Lasting, Type};
use crate::Key;
use crate::worker::Guard;

/// What came of taking elements out by their names ([`Guard::remove_some_named`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenOut {
    /// How many elements were there, and are gone.
    pub count: usize,
    /// Where there was no memory for all of them: how many names were looked for, from the first on, and why no more were.
    /// Elements with the other names are as they were.
    pub stopped: Option<(usize, Declined)>,
}

impl Guard<'_> {
    /// Sets fields, in order; they do not expire then. Returns how many were not there. The hash is
    /// written even if all have these values already.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn hash_set<'p>(
        &mut self,
        key: &Key<'_>,
        pairs: impl Iterator<Item = (&'p [u8], &'p [u8])> + Clone,
    ) -> Result<usize, Declined> {
        let changed =
            self.change_collection(key, Type::Hash, |hash| hash.put_all(pairs.clone(), Lasting::Never))?;
        Ok(changed.answer)
    }

    /// Sets a field, if it is not there; returns whether it did.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn hash_insert(&mut self, key: &Key<'_>, field: &[u8], value: &[u8]) -> Result<bool, Declined> {
        let changed = self.change_collection(key, Type::Hash, |hash| {
            let new = !hash.has(field);
            if new {
                hash.put(field, value)?;
            }
            Ok::<_, Declined>(new)
        })?;
        Ok(changed.answer)
    }

    /// Sets a field to what `make` makes of its value (`None`: there is no such field), and returns that. It expires when it did.
    ///
    /// # Errors
    /// The error of `make`, or [`Declined`]; and nothing done.
    pub fn hash_update<V: AsRef<[u8]>, E: From<Declined>>(
        &mut self,
        key: &Key<'_>,
        field: &[u8],
        mut make: impl FnMut(Option<Element<'_>>) -> Result<V, E>,
    ) -> Result<V, E> {
        let changed = self.change_collection(key, Type::Hash, |hash| {
            let new = match hash.with(field, |leaf, i| make(Some(leaf.entry(i).value))) {
                Some(new) => new?,
                None => make(None)?,
            };
            hash.put_lasting(field, new.as_ref(), Lasting::Keep)?;
            Ok::<_, E>(new)
        })?;
        Ok(changed.answer)
    }

    /// Takes fields out of a hash, or members out of a set or a sorted set; returns how many were there. Where there is no
    /// memory for what is left beside what was there, they are taken out one after the other, as one step for readers.
    ///
    /// # Errors
    /// [`Declined`], and nothing done; of those that are taken out one after the other, the first ones may be.
    pub fn remove_named<'p>(
        &mut self,
        key: &Key<'_>,
        kind: Type,
        names: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> Result<usize, Declined> {
        let gone = self.remove_some_named(key, kind, names)?;
        gone.stopped.map_or(Ok(gone.count), |(_, declined)| Err(declined))
    }

    /// As [`Guard::remove_named`], for a caller that must know which of them are gone, since it replies with what they had.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn remove_some_named<'p>(
        &mut self,
        key: &Key<'_>,
        kind: Type,
        names: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> Result<TakenOut, Declined> {
        debug_assert!(kind.has_tags(), "elements of a list have no names");
        let all = |count| TakenOut { count, stopped: None };
        if names.clone().nth(1).is_none() {
            return self.making_way(|guard| guard.remove_at_once(key, kind, names)).map(all);
        }
        // In a tree each may need nodes of its own: what is kept for leftovers would not do for all of them.
        match self.remove_at_once(key, kind, names.clone()) {
            Err(Declined::NoMemory) if !self.memory_comes() => {}
            done => return done.map(all),
        }
        let own = !self.in_transaction();
        if own {
            self.begin([*key]);
        }
        let (mut count, mut stopped) = (0, None);
        for (looked, name) in names.enumerate() {
            let one = std::iter::once(name);
            match self.making_way(|guard| guard.remove_at_once(key, kind, one)) {
                Ok(one) => count += one,
                Err(declined) => {
                    stopped = Some((looked, declined));
                    break;
                }
            }
        }
        if own {
            self.finish();
        }
        match stopped {
            Some((_, declined)) if count == 0 => Err(declined),
            stopped => Ok(TakenOut { count, stopped }),
        }
    }

    fn remove_at_once<'p>(
        &mut self,
        key: &Key<'_>,
        kind: Type,
        names: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> Result<usize, Declined> {
        let changed = self.change_collection(key, kind, |collection| collection.take_all(names.clone()))?;
        Ok(changed.answer)
    }
}
