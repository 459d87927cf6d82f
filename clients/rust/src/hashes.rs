//! The hashes by which other clients place keys, where no library of ours has them; and the one by which a key has its lane.

use md5::{Digest, Md5};

/// The first four bytes of the MD5.
pub fn md5_first(key: &[u8]) -> u32 {
    let sum = Md5::digest(key);
    u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]])
}

/// Jenkins' one-at-a-time over signed bytes.
pub fn oaat(key: &[u8]) -> u32 {
    let mut hash: u32 = 0;
    for &byte in key {
        hash = hash.wrapping_add(byte as i8 as u32);
        hash = hash.wrapping_add(hash << 10);
        hash ^= hash >> 6;
    }
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

/// What libmemcached and twemproxy call FNV1A_64: 32 bits of state, signed bytes.
pub fn fnv1a_64(key: &[u8]) -> u32 {
    key.iter().fold(0x8422_2325, |hash, &byte| (hash ^ byte as i8 as u32).wrapping_mul(0x1b3))
}

/// FNV-1a: two different keys have the same hash once in four billion.
pub fn fnv1a(key: &[u8]) -> u32 {
    key.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// The seed by which libmemcached starts its Murmur hashes: made of the key's length.
pub fn of_length(key: &[u8]) -> u32 {
    0xdead_beef_u32.wrapping_mul(key.len() as u32)
}

/// MurmurHash2, with a seed of the key's length.
pub fn murmur(key: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = of_length(key) ^ key.len() as u32;
    let (words, rest) = key.as_chunks::<4>();
    for &word in words {
        let word = u32::from_le_bytes(word).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ (word ^ word >> 24).wrapping_mul(M);
    }
    if !rest.is_empty() {
        hash = (hash ^ little(rest)).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

/// The 32-bit MurmurHash3.
pub fn murmur3(seed: u32, key: impl Iterator<Item = u8>) -> u32 {
    let mix = |word: u32| word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (mut hash, mut word, mut bytes) = (seed, 0_u32, 0_u32);
    for byte in key {
        word |= u32::from(byte) << (8 * (bytes % 4));
        bytes += 1;
        if bytes.is_multiple_of(4) {
            hash = (hash ^ mix(word)).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
            word = 0;
        }
    }
    hash = hash ^ mix(word) ^ bytes;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

/// Jenkins' lookup3, with libmemcached's initial value.
pub fn jenkins(key: &[u8]) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(key.len() as u32).wrapping_add(13);
    let (mut a, mut b, mut c) = (start, start, start);
    let mut rest = key;
    while rest.len() > 12 {
        let (block, others) = rest.split_at(12);
        rest = others;
        a = a.wrapping_add(little(&block[..4]));
        b = b.wrapping_add(little(&block[4..8]));
        c = c.wrapping_add(little(&block[8..]));
        for turn in [4, 6, 8, 16, 19, 4] {
            a = a.wrapping_sub(c) ^ c.rotate_left(turn);
            c = c.wrapping_add(b);
            (a, b, c) = (b, c, a);
        }
    }
    if rest.is_empty() {
        return c;
    }
    a = a.wrapping_add(little(&rest[..rest.len().min(4)]));
    b = b.wrapping_add(little(rest.get(4..rest.len().min(8)).unwrap_or_default()));
    c = c.wrapping_add(little(rest.get(8..).unwrap_or_default()));
    for turn in [14, 11, 25, 16, 4, 14, 24] {
        c = (c ^ b).wrapping_sub(b.rotate_left(turn));
        (a, b, c) = (b, c, a);
    }
    b
}

/// Up to four bytes, the first the lowest.
fn little(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
}
