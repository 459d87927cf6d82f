//! A key with its hash: two folded multiplications for the usual lengths, rapidhash for the others, and the
//! database's salt.

use crate::Store;
use crate::collection::{MEMBER_BYTES_MAX, PART_BYTES};
use crate::database::Word;
use rapidhash::v3::rapidhash_v3_micro_inline;

/// The longest key.
pub const KEY_BYTES_MAX: usize = 64 << 10;

#[cfg(all(test, not(feature = "loom")))]
thread_local! {
    /// Bytes of names of fields and members that this thread has hashed.
    pub(crate) static HASHED_BYTES: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A key with its hash: computed once a request, used by every step of it.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) hash: u64,
    /// The database's number.
    pub(crate) number: u8,
}

impl<'k> Key<'k> {
    /// The bytes.
    #[inline]
    pub fn bytes(&self) -> &'k [u8] {
        self.bytes
    }
    /// The hash; the same for the life of the store.
    #[inline(always)]
    pub fn hash(&self) -> u64 {
        self.hash
    }
    /// The number of its database, which items carry: another than its name where databases were swapped.
    pub fn number(&self) -> u8 {
        self.number
    }
}

/// Both halves of the product, one over the other.
#[inline(always)]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

impl Store {
    /// Keys of 8 to 16 bytes, which most are, by two folded multiplications without a call; a
    /// stranger does not know the seeds.
    #[inline(always)]
    fn hash(&self, key: &[u8]) -> u64 {
        if let (8..=16, Some(head), Some(tail)) = (key.len(), key.first_chunk(), key.last_chunk()) {
            let [first, second] = self.seeds;
            let head = u64::from_le_bytes(*head) ^ first;
            let tail = u64::from_le_bytes(*tail) ^ second.rotate_left(key.len() as u32);
            return folded(folded(head, tail) ^ second, first | 1);
        }
        self.hash_any(key)
    }

    #[inline(never)]
    fn hash_any(&self, key: &[u8]) -> u64 {
        rapidhash_v3_micro_inline::<true, false>(key, &self.secrets)
    }

    /// The hash of a field or member of a collection.
    #[inline]
    pub(crate) fn member_hash(&self, name: &[u8]) -> u64 {
        #[cfg(all(test, not(feature = "loom")))]
        {
            HASHED_BYTES.set(HASHED_BYTES.get() + name.len());
        }
        if name.len() > MEMBER_BYTES_MAX {
            return self.hash_of_blocks(name.chunks(PART_BYTES));
        }
        self.hash(name)
    }

    /// The same of a name that is longer than a leaf, in blocks as its parts would be: so that one that was received into its
    /// parts is hashed where it lies.
    #[cold]
    pub(crate) fn hash_of_blocks<'p>(&self, blocks: impl Iterator<Item = &'p [u8]>) -> u64 {
        let [first, second] = self.seeds;
        let (mut hash, mut bytes) = (second, 0);
        for block in blocks {
            hash = folded(hash ^ self.hash_any(block), first | 1);
            bytes += block.len() as u64;
        }
        folded(hash ^ bytes, second | 1)
    }

    /// A key of database 0, memcached's, with its hash. Good for the batch it was made in.
    #[inline(always)]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        self.key_in(0, bytes)
    }

    /// A key of the database of this name, below [`crate::DATABASES`].
    #[inline(always)]
    pub fn key_in<'a>(&self, name: u8, bytes: &'a [u8]) -> Key<'a> {
        let word = self.names.word(name);
        Key { bytes, hash: word.salt(self.hash(bytes)), number: word.number() }
    }

    /// The hash of a key of the database with this number.
    pub(crate) fn hash_of(&self, number: u8, key: &[u8]) -> u64 {
        Word::of(number).salt(self.hash(key))
    }
}
