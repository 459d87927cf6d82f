//! Hashes: fields with values.

use super::change::Declined;
use super::element::Element;
use super::{Lasting, Type};
use crate::Key;
use crate::worker::Guard;

impl Guard<'_> {
    /// Sets fields, in order, which do not expire then; how many were not there. The hash is written even if all have these values already.
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

    /// Sets a field that is not there; whether it was so.
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

    /// Sets a field to what `make` makes of the value that it has, if it has one; what that is. It expires when it did.
    ///
    /// # Errors
    /// What `make` said, or [`Declined`]; and nothing done.
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

    /// Takes fields out of a hash, or members out of a set or a sorted set; how many were there. Where there is no memory
    /// for what is left beside what was there, they are taken out one after the other, as one step for readers.
    ///
    /// # Errors
    /// [`Declined`], and nothing done; of those that are taken out one after the other, the first ones may be.
    pub fn remove_named<'p>(
        &mut self,
        key: &Key<'_>,
        kind: Type,
        names: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> Result<usize, Declined> {
        debug_assert!(kind.has_tags(), "elements of a list have no names");
        if names.clone().nth(1).is_none() {
            return self.making_way(|guard| guard.remove_at_once(key, kind, names));
        }
        // In a tree each may need nodes of its own: what is kept for leftovers would not do for all of them.
        match self.remove_at_once(key, kind, names.clone()) {
            Err(Declined::NoMemory) if !self.memory_comes() => {}
            done => return done,
        }
        let own = !self.in_transaction();
        if own {
            self.begin([*key]);
        }
        let mut gone = 0;
        let mut done = Ok(());
        for name in names {
            let one = std::iter::once(name);
            match self.making_way(|guard| guard.remove_at_once(key, kind, one)) {
                Ok(one) => gone += one,
                Err(declined) => {
                    done = Err(declined);
                    break;
                }
            }
        }
        if own {
            self.finish();
        }
        done.map(|()| gone)
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
