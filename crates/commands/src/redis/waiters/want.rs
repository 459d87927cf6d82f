//! What a client waits for, and what it was given. How that is taken, replied and put back is in `collections/block/want.rs`.

use larder_store::{End, Pinned, StreamId, Type};

use crate::redis::copied::Copied;
use crate::redis::held::Held;

/// What is wanted of a key.
#[derive(Debug)]
pub(crate) enum Want {
    /// Elements from an end of a list, so many at most; without a number one.
    Elements { end: End, count: Option<usize> },
    /// Members from an end of a sorted set.
    Members { which: Which, count: Option<usize> },
    /// An element of one list for another.
    Move { from: End, to: End, target: Box<[u8]> },
    /// Entries of streams, each behind an ID, as they were named: a stream may be there more than once.
    Entries { after: Box<[(Box<[u8]>, StreamId)]>, most: Option<usize> },
    /// Entries of streams that no consumer of a group has had, for a consumer; `pends`: they are pending with it.
    Delivery { group: Box<[u8]>, consumer: Box<[u8]>, most: Option<usize>, pends: bool },
}

impl Want {
    /// What the key has to be.
    pub fn kind(&self) -> Type {
        match self {
            Want::Elements { .. } | Want::Move { .. } => Type::List,
            Want::Members { .. } => Type::SortedSet,
            Want::Entries { .. } | Want::Delivery { .. } => Type::Stream,
        }
    }

    /// Bytes of what it keeps beside keys.
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

    /// Where it goes, if it is not given to the waiter alone.
    pub fn target(&self) -> Option<&[u8]> {
        match self {
            Want::Move { target, .. } => Some(target),
            Want::Elements { .. } | Want::Members { .. } | Want::Entries { .. } | Want::Delivery { .. } => {
                None
            }
        }
    }
}

/// Which members are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Min,
    Max,
}

impl Which {
    /// From which end.
    pub fn end(self) -> End {
        match self {
            Which::Min => End::Front,
            Which::Max => End::Back,
        }
    }
}

/// What is taken at once of the elements that are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portion {
    pub count: usize,
    /// Bytes that the replies of these take at most.
    pub bytes: usize,
    /// So many are to be taken behind them.
    pub left: usize,
}

/// What was taken of a key, in the order in which it was there.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub whence: Whence,
    /// Copied; of what is in `pinned` there is nothing here but its place.
    pub names: Copied,
    /// What is sent from where it lies, each with its place among the names: it stays there until it is sent or put back.
    pub pinned: Vec<(usize, Pinned)>,
    pub scores: Vec<f64>,
    /// What it takes, for as long as it may have to be put back.
    pub _held: Option<Held>,
}

/// Where that was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Whence {
    /// It has gone elsewhere.
    #[default]
    Nowhere,
    List(End),
    SortedSet,
}
