//! What a command in steps keeps of its request: the words that are left ([`Kept`]), a key ([`Name`]), or all words, to begin
//! again ([`Again`]).
//!
//! This module knows nothing of a call. `steps/kept.rs`, `source.rs` and `steps/again.rs` make these out of one.

use larder_protocol::resp::Args;
use larder_store::Database;

use super::heap::Heap;
use super::row::Command;
use crate::core::input::Input;

/// The last words of a request, kept until they are answered; by default none.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// The end of the request. Its last `rest` bytes are the `left` words.
    bytes: Vec<u8>,
    rest: usize,
    left: usize,
    /// The charge for the bytes; `None` until a gathered request is handed over.
    input: Option<Input>,
}

/// A place among kept words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    rest: usize,
    pub left: usize,
}

impl Kept {
    /// The last words of a gathered request: its bytes come by [`Kept::take_over`] before the next step.
    pub fn gathered(words: Args<'_>) -> Kept {
        Kept { bytes: Vec::new(), rest: words.encoded().len(), left: words.len(), input: None }
    }

    /// A copy of these words, which is charged to `input`.
    pub fn copied(words: Args<'_>, input: Input) -> Kept {
        let encoded = words.encoded();
        Kept { bytes: encoded.to_vec(), rest: encoded.len(), left: words.len(), input: Some(input) }
    }

    /// Takes over the gathered request, which ends with these words.
    pub fn take_over(&mut self, bytes: Vec<u8>, input: Input) {
        (self.bytes, self.input) = (bytes, Some(input));
    }

    /// Bytes that are charged for the words.
    pub fn held_bytes(&self) -> u64 {
        self.input.as_ref().map_or(0, Input::bytes)
    }

    /// The words that are left.
    pub fn words(&self) -> Args<'_> {
        Args::rest(&self.bytes[self.bytes.len() - self.rest..], self.left)
    }

    /// The place of the words that are left.
    pub fn place(&self) -> Place {
        Place { rest: self.rest, left: self.left }
    }

    /// Has `look` take words from a place on, which moves behind them. `left` stays as it is.
    pub fn walk<T>(&self, at: &mut Place, look: impl FnOnce(&mut Args<'_>) -> T) -> T {
        let mut words = Args::rest(&self.bytes[self.bytes.len() - at.rest..], at.left);
        let found = look(&mut words);
        (at.rest, at.left) = (words.encoded().len(), words.len());
        found
    }

    /// Goes back to a place: the words from there on are left again.
    pub fn go_back(&mut self, to: Place) {
        (self.rest, self.left) = (to.rest, to.left);
    }

    /// How many words are left.
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

/// A key by its name.
#[derive(Debug)]
pub(crate) struct Name {
    pub(super) db: u8,
    /// The database, as it was named when this was made.
    pub(super) database: Database,
    pub(super) key: Box<[u8]>,
    /// The charge for it, if any.
    pub(super) _held: Option<Heap>,
}

impl Name {
    /// A copy without a charge, for one step.
    pub fn for_now(&self) -> Name {
        Name { db: self.db, database: self.database, key: self.key.clone(), _held: None }
    }

    /// The key's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.key
    }
}

/// A command with its arguments.
#[derive(Debug)]
pub(crate) struct Again {
    pub(super) row: &'static Command,
    /// The words behind its name.
    pub(super) words: Vec<u8>,
    pub(super) count: usize,
    /// Bytes of the longest word.
    pub(super) longest: u64,
    /// How often it was tried before.
    pub(super) tries: u8,
    /// The charge for them.
    pub(super) _held: Heap,
}

impl Again {
    pub fn row(&self) -> &'static Command {
        self.row
    }

    pub fn args(&self) -> Args<'_> {
        Args::kept(&self.words, self.count, self.longest)
    }
}
