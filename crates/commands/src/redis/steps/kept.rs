//! The words of a request that a command in steps has still to look at.

use larder_protocol::resp::Args;

use crate::core::input::Input;
use crate::redis::call::Call;
use crate::redis::fail::Fail;

/// The last words of a request, kept until they are answered; by default none.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The end of the request; the last `rest` bytes are `left` words.
    bytes: Vec<u8>,
    rest: usize,
    left: usize,
    /// The charge for them; none until the gathered request is handed over.
    input: Option<Input>,
}

/// A place among the words that are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    rest: usize,
    pub left: usize,
}

impl Kept {
    /// Keeps these words: a copy, or, of a request that was gathered, its bytes, which come by [`Kept::take_over`]
    /// before the next step.
    ///
    /// # Errors
    /// There is no memory for the copy.
    pub fn new(call: &Call<'_, '_, '_>, words: Args<'_>) -> Result<Kept, Fail> {
        let encoded = words.encoded();
        let (bytes, input) = if call.client.gathers {
            (Vec::new(), None)
        } else {
            let max = call.cx.shared.settings.append_bytes_max;
            let input = Input::kept(call.cx.guard.store(), encoded.len() as u64, max).ok_or(Fail::HELD)?;
            (encoded.to_vec(), Some(input))
        };
        Ok(Kept { bytes, rest: encoded.len(), left: words.len(), input })
    }

    /// Takes over the gathered request, whose last words they are.
    pub fn take_over(&mut self, bytes: Vec<u8>, input: Input) {
        (self.bytes, self.input) = (bytes, Some(input));
    }

    /// Bytes that are held for them.
    pub fn held_bytes(&self) -> u64 {
        self.input.as_ref().map_or(0, Input::bytes)
    }

    /// The words that are left.
    pub fn words(&self) -> Args<'_> {
        Args::rest(&self.bytes[self.bytes.len() - self.rest..], self.left)
    }

    /// Where the words begin that are left.
    pub fn place(&self) -> Place {
        Place { rest: self.rest, left: self.left }
    }

    /// Has `look` look at some of the words from a place on, which moves behind them. They are left all the same.
    pub fn walk<T>(&self, at: &mut Place, look: impl FnOnce(&mut Args<'_>) -> T) -> T {
        let mut words = Args::rest(&self.bytes[self.bytes.len() - at.rest..], at.left);
        let found = look(&mut words);
        (at.rest, at.left) = (words.encoded().len(), words.len());
        found
    }

    /// Has the words from a place on left once more.
    pub fn go_back(&mut self, to: Place) {
        (self.rest, self.left) = (to.rest, to.left);
    }

    /// How many are left.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Has `look` take some of the words that are left.
    pub fn take<T>(&mut self, look: impl FnOnce(&mut Args<'_>) -> T) -> T {
        let mut words = self.words();
        let found = look(&mut words);
        (self.rest, self.left) = (words.encoded().len(), words.len());
        found
    }
}
