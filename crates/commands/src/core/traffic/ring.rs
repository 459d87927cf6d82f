//! A worker's samples on their way to the thread that counts them: words in a ring, one writer, one reader.
//!
//! ```text
//! words   │ taken │ head hash sizes cost key key … │ head hash kept │ head hash … │ free │
//!                 ▲ tail, the reader's                                            ▲ head, the writer's
//!                   a sample                         what happened to a key that is followed
//! ```
//!
//! A sample is written whole or not at all, and becomes the reader's when the writer moves its head. Neither waits for the
//! other: a record that finds no room is dropped, and counted.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use larder_store::{Happened, Kept, Millis};

use super::Verb;

/// Most bytes of a key that are kept: all that a key of memcached's has, and the beginning of longer ones.
pub(super) const KEY_BYTES_KEPT: usize = 250;
/// Words of a sample beside its key.
const HEAD_WORDS: usize = 4;
const SAMPLE_WORDS_MAX: usize = HEAD_WORDS + KEY_BYTES_KEPT.div_ceil(8);
/// Words of the smallest ring.
pub(super) const WORDS_MIN: usize = 1024;
const _: () = assert!(WORDS_MIN >= 4 * SAMPLE_WORDS_MAX);
/// Words of a record of a key that is followed.
const FOLLOWED_WORDS: u64 = 3;
/// Marks a head as that of a key which is followed.
const FOLLOWED: u64 = 1 << 7;
/// The time that an item has left is recorded in units of so many milliseconds.
const LEFT_MS: Millis = 10;

/// A request for a key that was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample<'k> {
    pub verb: Verb,
    /// Whether the key is there now.
    pub found: bool,
    pub db: u8,
    /// The sample stands for 1 << shift keys.
    pub shift: u8,
    pub hash: u64,
    /// The beginning of the key.
    pub key: &'k [u8],
    /// Bytes of the whole key.
    pub key_bytes: u32,
    pub value_bytes: u32,
    /// Bytes of its request and the reply, about.
    pub net_bytes: u32,
    /// Nanoseconds that it took, about.
    pub cost_ns: u32,
}

/// A request for a key that is followed: all of them are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    pub hash: u64,
    /// The number of its database.
    pub db: u8,
    pub happened: Happened,
}

impl Followed {
    fn words(&self) -> [u64; FOLLOWED_WORDS as usize] {
        let (what, kept) = match self.happened {
            Happened::Hit(kept) => (0, kept),
            Happened::Missed => (1, Kept { bytes: 0, left_ms: None }),
            Happened::Stored(kept) => (2, kept),
            Happened::Deleted => (3, Kept { bytes: 0, left_ms: None }),
        };
        let left =
            kept.left_ms.map_or(u32::MAX, |ms| u32::try_from(ms.div_ceil(LEFT_MS)).unwrap_or(u32::MAX));
        [FOLLOWED | what | u64::from(self.db) << 16, self.hash, u64::from(kept.bytes) | u64::from(left) << 32]
    }

    fn of([head, hash, kept]: [u64; FOLLOWED_WORDS as usize]) -> Followed {
        let left = (kept >> 32) as u32;
        let left_ms = (left != u32::MAX).then(|| Millis::from(left) * LEFT_MS);
        let kept = Kept { bytes: kept as u32, left_ms };
        let happened = match head & 3 {
            0 => Happened::Hit(kept),
            1 => Happened::Missed,
            2 => Happened::Stored(kept),
            _ => Happened::Deleted,
        };
        Followed { hash, db: (head >> 16) as u8, happened }
    }
}

/// A record of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record<'k> {
    Sample(Sample<'k>),
    Followed(Followed),
}

/// A line that only one thread writes.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// A ring with one writer and one reader.
#[derive(Debug)]
pub(super) struct Ring {
    words: Box<[AtomicU64]>,
    /// Words that were ever written; the writer's.
    head: Line,
    /// Words that were ever taken; the reader's.
    tail: Line,
    dropped: AtomicU64,
}

impl Ring {
    /// A ring of so many words, a power of two.
    pub fn new(words: usize) -> Ring {
        assert!(words.is_power_of_two() && words >= WORDS_MIN, "a ring of {words} words");
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        Ring { words, head: Line::default(), tail: Line::default(), dropped: AtomicU64::new(0) }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        (size_of::<Ring>() + self.words.len() * size_of::<u64>()) as u64
    }

    /// Records for which there was no room.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        &self.words[at as usize & (self.words.len() - 1)]
    }

    /// Adds a sample; false if there is no room. Only the worker whose ring it is may call it.
    pub fn put(&self, sample: &Sample<'_>) -> bool {
        let key = &sample.key[..sample.key.len().min(KEY_BYTES_KEPT)];
        let words = (HEAD_WORDS + key.len().div_ceil(8)) as u64;
        let head = self.head.0.load(Relaxed);
        // Pairs with the reader's release: it no longer looks at words that it has taken.
        if head + words - self.tail.0.load(Acquire) > self.words.len() as u64 {
            self.dropped.store(self.dropped.load(Relaxed) + 1, Relaxed);
            return false;
        }
        let about = u64::from(sample.verb as u8)
            | u64::from(sample.found) << 8
            | u64::from(sample.db) << 16
            | u64::from(sample.shift) << 24
            | (key.len() as u64) << 32;
        let sizes = u64::from(sample.key_bytes) | u64::from(sample.value_bytes) << 32;
        let costs = u64::from(sample.net_bytes) | u64::from(sample.cost_ns) << 32;
        for (at, word) in (head..).zip([about, sample.hash, sizes, costs]) {
            self.word(at).store(word, Relaxed);
        }
        for (at, part) in (head + HEAD_WORDS as u64..).zip(key.chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..part.len()].copy_from_slice(part);
            self.word(at).store(u64::from_le_bytes(bytes), Relaxed);
        }
        // Pairs with the reader's acquire.
        self.head.0.store(head + words, Release);
        true
    }

    /// Adds a request for a key that is followed; false if there is no room. Only the worker whose ring it is may call it.
    pub fn follow(&self, followed: &Followed) -> bool {
        let head = self.head.0.load(Relaxed);
        // Pairs as in `put`.
        if head + FOLLOWED_WORDS - self.tail.0.load(Acquire) > self.words.len() as u64 {
            self.dropped.store(self.dropped.load(Relaxed) + 1, Relaxed);
            return false;
        }
        for (at, word) in (head..).zip(followed.words()) {
            self.word(at).store(word, Relaxed);
        }
        self.head.0.store(head + FOLLOWED_WORDS, Release);
        true
    }

    /// Takes at most `most` records, and returns how many. One thread at a time.
    pub fn take(&self, most: usize, mut visit: impl FnMut(&Record<'_>)) -> usize {
        let head = self.head.0.load(Acquire);
        let mut at = self.tail.0.load(Relaxed);
        let mut taken = 0;
        let mut bytes = [0; KEY_BYTES_KEPT.next_multiple_of(8)];
        while at < head && taken < most {
            if self.word(at).load(Relaxed) & FOLLOWED != 0 {
                let words = std::array::from_fn(|nth| self.word(at + nth as u64).load(Relaxed));
                at += FOLLOWED_WORDS;
                taken += 1;
                visit(&Record::Followed(Followed::of(words)));
                continue;
            }
            let [about, hash, sizes, costs] =
                std::array::from_fn(|nth| self.word(at + nth as u64).load(Relaxed));
            let kept = ((about >> 32) as usize).min(KEY_BYTES_KEPT);
            at += HEAD_WORDS as u64;
            for part in bytes.chunks_exact_mut(8).take(kept.div_ceil(8)) {
                part.copy_from_slice(&self.word(at).load(Relaxed).to_le_bytes());
                at += 1;
            }
            visit(&Record::Sample(Sample {
                verb: Verb::of(about as u8),
                found: about >> 8 & 1 == 1,
                db: (about >> 16) as u8,
                shift: (about >> 24) as u8,
                hash,
                key: &bytes[..kept],
                key_bytes: sizes as u32,
                value_bytes: (sizes >> 32) as u32,
                net_bytes: costs as u32,
                cost_ns: (costs >> 32) as u32,
            }));
            taken += 1;
        }
        self.tail.0.store(at, Release);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    fn sample(key: &[u8], n: u32) -> Sample<'_> {
        Sample {
            verb: if n.is_multiple_of(2) { Verb::Write } else { Verb::Read },
            found: n.is_multiple_of(3),
            db: n as u8,
            shift: (n % 21) as u8,
            hash: u64::from(n) * 0x0101_0101_0101,
            key,
            key_bytes: key.len() as u32,
            value_bytes: n,
            net_bytes: !n,
            cost_ns: n / 2,
        }
    }

    fn value_bytes(record: &Record<'_>) -> u32 {
        match record {
            Record::Sample(sample) => sample.value_bytes,
            Record::Followed(_) => panic!("nobody is followed"),
        }
    }

    #[test]
    fn what_happened_comes_out_as_it_went_in_between_samples() {
        let ring = Ring::new(WORDS_MIN);
        let kept = |left_ms| Kept { bytes: u32::MAX, left_ms };
        let all = [
            Happened::Hit(kept(None)),
            Happened::Hit(kept(Some(0))),
            Happened::Missed,
            Happened::Stored(kept(Some(86_400_000))),
            Happened::Stored(kept(Some(10))),
            Happened::Deleted,
        ];
        for n in 0..1000u32 {
            let happened = all[n as usize % all.len()];
            let followed = Followed { hash: u64::MAX - u64::from(n), db: n as u8, happened };
            assert!(ring.put(&sample(b"between", n)) && ring.follow(&followed));
            let mut got = Vec::new();
            ring.take(9, |record| match record {
                Record::Sample(_) => got.push(None),
                Record::Followed(followed) => got.push(Some(*followed)),
            });
            assert_eq!(got, [None, Some(followed)]);
        }
        let followed = Followed { hash: 1, db: 0, happened: Happened::Missed };
        let fits = (0..WORDS_MIN).take_while(|_| ring.follow(&followed)).count();
        assert_eq!((fits, ring.dropped()), (WORDS_MIN / FOLLOWED_WORDS as usize, 1));
        // For ever is more than can be recorded, and so is what is about as long.
        assert!(ring.take(usize::MAX, |_| {}) == fits);
        let long = Followed { happened: Happened::Hit(kept(Some(Millis::MAX))), ..followed };
        assert!(ring.follow(&long));
        ring.take(1, |got| assert_eq!(*got, Record::Followed(Followed { happened: all[0], ..followed })));
    }

    #[test]
    fn samples_come_out_as_they_went_in_and_long_keys_are_cut() {
        let ring = Ring::new(WORDS_MIN);
        let long = vec![b'k'; 300];
        for n in 0..1000 {
            let key = &long[..n as usize % 300];
            assert!(ring.put(&sample(key, n)));
            let mut seen = 0;
            let taken = ring.take(9, |got| {
                let kept = &key[..key.len().min(KEY_BYTES_KEPT)];
                assert_eq!(*got, Record::Sample(Sample { key: kept, ..sample(key, n) }));
                seen += 1;
            });
            assert_eq!((taken, seen, ring.dropped()), (1, 1, 0));
        }
    }

    #[test]
    fn a_full_ring_drops_and_counts_and_goes_on_when_there_is_room() {
        let ring = Ring::new(WORDS_MIN);
        let fits = WORDS_MIN / (HEAD_WORDS + 1);
        for n in 0..fits as u32 {
            assert!(ring.put(&sample(b"12345678", n)), "{n}");
        }
        assert!(!ring.put(&sample(b"12345678", 0)));
        assert_eq!(ring.dropped(), 1);
        let mut next = 0;
        let mut is_next = |got: &Record<'_>| {
            assert_eq!(value_bytes(got), next);
            next += 1;
        };
        assert_eq!(ring.take(10, &mut is_next), 10);
        assert!(ring.put(&sample(b"12345678", fits as u32)));
        ring.take(usize::MAX, &mut is_next);
        assert_eq!(next, fits as u32 + 1);
    }

    #[test]
    fn a_reader_beside_the_writer_sees_whole_samples_in_order() {
        let (ring, done) = (Ring::new(WORDS_MIN), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 0..200_000u32 {
                    let key = n.to_le_bytes().repeat(1 + n as usize % 9);
                    ring.put(&sample(&key, n));
                }
                done.store(true, SeqCst);
            });
            let (mut last, mut count) = (None, 0);
            loop {
                let ended = done.load(SeqCst);
                count += ring.take(50, |got| {
                    let n = value_bytes(got);
                    assert!(last.is_none_or(|last| n > last));
                    let key = n.to_le_bytes().repeat(1 + n as usize % 9);
                    assert_eq!(*got, Record::Sample(sample(&key, n)));
                    last = Some(n);
                }) as u64;
                if ended && count + ring.dropped() == 200_000 {
                    break;
                }
            }
        });
    }
}
