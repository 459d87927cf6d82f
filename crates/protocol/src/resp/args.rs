//! The arguments of a request, read out of its bytes when they are asked for.

#[cfg(debug_assertions)]
use std::cell::Cell;

#[cfg(debug_assertions)]
thread_local! {
    static WORDS_READ: Cell<u64> = const { Cell::new(0) };
}

/// How many arguments [`Args`] has read on this thread so far. Only builds with debug assertions count them: tests compare
/// the work of requests of two lengths with it, which says the same on a busy machine, where a clock does not.
#[cfg(debug_assertions)]
pub fn words_read() -> u64 {
    WORDS_READ.get()
}

/// Arguments of a request that was checked as a whole: an iterator that borrows from the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Args<'a> {
    /// Headers and arguments, those already returned not among them.
    encoded: &'a [u8],
    left: u32,
    longest: u64,
}

impl<'a> Args<'a> {
    /// `count` arguments in `encoded`, none longer than `longest` bytes.
    #[inline]
    pub(super) fn new(encoded: &'a [u8], count: u32, longest: u64) -> Args<'a> {
        Args { encoded, left: count, longest }
    }

    /// No arguments.
    pub const EMPTY: Args<'static> = Args { encoded: &[], left: 0, longest: 0 };

    /// Bytes of the longest argument of the whole request, those already returned among them.
    #[inline]
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// How many are left.
    #[inline]
    pub fn len(&self) -> usize {
        self.left as usize
    }

    /// None is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The one behind `skip` others, without taking it.
    pub fn at(&self, skip: usize) -> Option<&'a [u8]> {
        self.clone().nth(skip)
    }

    /// What is left, encoded as it came: good for [`Args::decode`].
    pub fn encoded(&self) -> &'a [u8] {
        self.encoded
    }

    /// The arguments of [`Args::encoded`], which are not looked through: the longest is not known.
    pub fn rest(encoded: &'a [u8], count: usize) -> Args<'a> {
        Args { encoded, left: count as u32, longest: 0 }
    }

    /// The arguments of [`Args::encoded`], none longer than `longest` bytes.
    pub fn kept(encoded: &'a [u8], count: usize, longest: u64) -> Args<'a> {
        Args { encoded, left: count as u32, longest }
    }

    /// The arguments that [`Args::encoded`] or an [`Encoder`] wrote, each of which is looked at.
    pub fn decode(encoded: &'a [u8], count: usize) -> Args<'a> {
        let mut args = Args { encoded, left: count as u32, longest: 0 };
        args.longest = args.map(|arg| arg.len() as u64).max().unwrap_or(0);
        args
    }
}

impl<'a> Iterator for Args<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if self.left == 0 {
            return None;
        }
        #[cfg(debug_assertions)]
        WORDS_READ.set(WORDS_READ.get() + 1);
        let mut bytes = 0;
        let mut at = 1;
        loop {
            let digit = self.encoded.get(at)?.wrapping_sub(b'0');
            at += 1;
            if digit > 9 {
                break;
            }
            bytes = bytes * 10 + usize::from(digit);
        }
        // The loop stopped behind the carriage return.
        let start = at + 1;
        let argument = self.encoded.get(start..start + bytes)?;
        self.encoded = self.encoded.get(start + bytes + 2..).unwrap_or_default();
        self.left -= 1;
        Some(argument)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.len(), Some(self.len()))
    }
}

impl ExactSizeIterator for Args<'_> {}

/// Writes arguments as a request carries them: what inline requests become.
#[derive(Clone, Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
    count: usize,
}

impl Encoder {
    /// Adds an argument.
    pub fn push(&mut self, argument: &[u8]) {
        self.bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        self.bytes.extend_from_slice(argument);
        self.bytes.extend_from_slice(b"\r\n");
        self.count += 1;
    }

    /// Adds arguments in the form of [`Args::encoded`].
    pub fn extend(&mut self, args: Args<'_>) {
        self.bytes.extend_from_slice(args.encoded());
        self.count += args.len();
    }

    /// What was added.
    pub fn args(&self) -> Args<'_> {
        Args::decode(&self.bytes, self.count)
    }

    /// Bytes that it holds.
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}
