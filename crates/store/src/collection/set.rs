//! Sets: members, each once. [`Guard::remove_named`] takes members out, and [`Guard::set_take_long`] one that was found.

use super::change::Declined;
use super::{Lasting, LongMember, Type};
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

    /// Takes a member that lies apart out of a set, as it was named by a look since which the key is held; whether it was there.
    /// It is neither hashed nor compared, however long it is.
    ///
    /// # Errors
    /// [`Declined`], and nothing done.
    pub fn set_take_long(&mut self, key: &Key<'_>, member: &LongMember) -> Result<bool, Declined> {
        let changed = self.take_out_of_collection(key, Type::Set, |set| set.take_long(member))?;
        Ok(changed.answer)
    }
}
