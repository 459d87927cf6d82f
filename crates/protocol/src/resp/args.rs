//! The arguments of a request, read out of its bytes on demand.

#[cfg(debug_assertions)]
use std::cell::Cell;

#[cfg(debug_assertions)]
thread_local! {
    static WORDS_READ: Cell<u64> = const { Cell::new(0) };
}

/// How many arguments [`Args`] has read on this thread. Only builds with debug assertions count them, for tests that compare the
/// work of two requests of different lengths: a count is the same on a busy machine, a time is not.
#[cfg(debug_assertions)]
pub fn words_read() -> u64 {
    WORDS_READ.get()
}

/// Arguments of a request that was checked as a whole: an iterator that borrows from the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Args<'a> {
    /// Headers and arguments that are not returned yet.
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

    /// Length of the longest argument of the whole request, returned ones included.
    #[inline]
    pub fn longest(&self) -> u64 {
        self.longest
    }

    /// How many arguments are left.
    #[inline]
    pub fn len(&self) -> usize {
        self.left as usize
    }

    /// No argument is left.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// The argument behind `skip` others, without taking it.
    pub fn at(&self, skip: usize) -> Option<&'a [u8]> {
        self.clone().nth(skip)
    }

    /// The arguments that are left, as they were received: input for [`Args::decode`].
    pub fn encoded(&self) -> &'a [u8] {
        self.encoded
    }

    /// Arguments from [`Args::encoded`]. They are not scanned, so the longest is not known.
    pub fn rest(encoded: &'a [u8], count: usize) -> Args<'a> {
        Args { encoded, left: count as u32, longest: 0 }
    }

    /// Arguments from [`Args::encoded`], none longer than `longest` bytes.
    pub fn kept(encoded: &'a [u8], count: usize, longest: u64) -> Args<'a> {
        Args { encoded, left: count as u32, longest }
    }

    /// Arguments that [`Args::encoded`] or an [`Encoder`] wrote. Each is scanned.
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
        let (start, bytes) = header(self.encoded.first_chunk()?, self.encoded);
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

/// Bytes of the shortest header: `$0` and a line end.
const HEADER_BYTES_MIN: usize = 4;

/// Where the first argument begins behind its header `$<bytes>\r\n`, and its length. `head` is what `encoded` begins with.
///
/// Nearly all lengths have one or two digits, which are read without a loop. The keys of an `MGET` are read twice: for the rules
/// of its user, and where the command runs.
#[inline(always)]
fn header(head: &[u8; HEADER_BYTES_MIN], encoded: &[u8]) -> (usize, usize) {
    let &[_, first, second, third] = head;
    let (tens, ones) = (first.wrapping_sub(b'0'), second.wrapping_sub(b'0'));
    debug_assert!(tens <= 9, "a header that was checked begins with a digit");
    if ones > 9 {
        // The carriage return.
        return (4, usize::from(tens));
    }
    let bytes = usize::from(tens) * 10 + usize::from(ones);
    if third == b'\r' { (5, bytes) } else { long_header(encoded, bytes) }
}

/// Reads a header whose length has at least three digits, the first two of which are `bytes`. If the header has no end, the
/// argument begins behind all input.
#[inline(never)]
fn long_header(encoded: &[u8], mut bytes: usize) -> (usize, usize) {
    for (at, byte) in encoded.iter().enumerate().skip(3) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            // The line feed is behind the carriage return.
            return (at + 2, bytes);
        }
        bytes = bytes * 10 + usize::from(digit);
    }
    (usize::MAX, 0)
}

/// Writes arguments in a request's form: inline requests are turned into it.
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

    /// The arguments that were added.
    pub fn args(&self) -> Args<'_> {
        Args::decode(&self.bytes, self.count)
    }

    /// Its allocated bytes.
    pub fn capacity_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}
