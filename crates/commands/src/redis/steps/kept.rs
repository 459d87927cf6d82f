//! How a command in steps keeps the words of its request that it still has to look at.

use larder_protocol::resp::Args;

use crate::core::input::Input;
use crate::redis::call::Call;
use crate::redis::fail::Fail;
pub(crate) use crate::redis::kept::{Kept, Place};

impl Kept {
    /// Keeps these words as a copy. Where the request was gathered its own bytes are kept: they come by [`Kept::take_over`]
    /// before the next step.
    ///
    /// # Errors
    /// There is no memory for the copy.
    pub fn new(call: &Call<'_, '_, '_>, words: Args<'_>) -> Result<Kept, Fail> {
        if call.client.gathers {
            return Ok(Kept::gathered(words));
        }
        let (store, max) = (call.cx.guard.store(), call.cx.shared.settings.append_bytes_max);
        let input = Input::kept(store, words.encoded().len() as u64, max).ok_or(Fail::HELD)?;
        Ok(Kept::copied(words, input))
    }
}
