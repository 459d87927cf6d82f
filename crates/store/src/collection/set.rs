//! Sets: members, each once. [`Guard::remove_named`] takes members out.

use super::change::Declined;
use super::{Lasting, Type};
use crate::Key;
use crate::worker::Guard;

impl Guard<'_> {
    /// Puts members into a set; how many were not there. Nothing is written if all were.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn set_add<'p>(
        &mut self,
        key: &Key<'_>,
        members: impl Iterator<Item = &'p [u8]> + Clone,
    ) -> Result<usize, Declined> {
        let changed = self.change_collection(key, Type::Set, |set| {
            set.put_all(members.clone().map(|member| (member, &b""[..])), Lasting::Never)
        })?;
        Ok(changed.answer)
    }
}
