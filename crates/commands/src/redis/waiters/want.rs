//! What a client waits for, and what it was given. `collections/block/want.rs` takes, replies and puts that back.

use larder_store::{End, Pinned, StreamId, Type};

use crate::redis::copied::Copied;
use crate::redis::held::Held;

/// What a waiter wants of a key.
#[derive(Debug)]
pub(crate) enum Want {
    /// Elements from an end of a list, at most so many; `None`: one.
    Elements { end: End, count: Option<usize> },
    /// Members from an end of a sorted set.
    Members { which: Which, count: Option<usize> },
    /// An element of one list for another.
    Move { from: End, to: End, target: Box<[u8]> },
    /// Entries of streams behind IDs, as the command named them: a stream may be there more than once.
    Entries { after: Box<[(Box<[u8]>, StreamId)]>, most: Option<usize> },
    /// Entries of streams that no consumer of the group has had, for this consumer; `pends`: they become pending with it.
    Delivery { group: Box<[u8]>, consumer: Box<[u8]>, most: Option<usize>, pends: bool },
}

impl Want {
    /// The type that the key has to be of.
    pub fn kind(&self) -> Type {
        match self {
            Want::Elements { .. } | Want::Move { .. } => Type::List,
            Want::Members { .. } => Type::SortedSet,
            Want::Entries { .. } | Want::Delivery { .. } => Type::Stream,
        }
    }

    /// Bytes that it takes beside the keys.
    pub fn bytes(&self) -> usize {
        match self {
            Want::Elements { .. } | Want::Members { .. } => 0,
            Want::Move { target, .. } => target.len(),
            Want::Entries { after, .. } => {
                after.iter().map(|(key, _)| key.len() + size_of::<(Box<[u8]>, StreamId)>()).sum()
            }
            Want::Delivery { group, consumer, .. } => group.len() + consumer.len(),
        }
    }

    /// The key that the element is moved to, if it is not only given to the waiter.
    pub fn target(&self) -> Option<&[u8]> {
        match self {
            Want::Move { target, .. } => Some(target),
            Want::Elements { .. } | Want::Members { .. } | Want::Entries { .. } | Want::Delivery { .. } => {
                None
            }
        }
    }
}

/// Which members are taken: those of the least or the highest scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Min,
    Max,
}

impl Which {
    /// The end from which they are taken.
    pub fn end(self) -> End {
        match self {
            Which::Min => End::Front,
            Which::Max => End::Back,
        }
    }
}

/// The part of the wanted elements that is taken at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portion {
    pub count: usize,
    /// Bytes of their replies, at most.
    pub bytes: usize,
    /// How many are to be taken after them.
    pub left: usize,
}

/// What was taken of a key, in its order there.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub whence: Whence,
    /// Copies of the elements; a pinned one has an empty place here.
    pub names: Copied,
    /// Elements that are sent from where they lie, with their places among the names. They stay until they are sent or put back.
    pub pinned: Vec<(usize, Pinned)>,
    pub scores: Vec<f64>,
    /// The charge for them, for as long as they may have to be put back.
    pub _held: Option<Held>,
}

/// Where the elements were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Whence {
    /// They were moved elsewhere.
    #[default]
    Nowhere,
    List(End),
    SortedSet,
}
