//! XXH3 of 64 bits without a seed, by which memcached's proxy places keys.
//!
//! ```text
//! key ──► 16 bytes at most:  a mix of the first and the last bytes
//!     ──► 240 at most:       a sum of products of 16 bytes each, from both ends or from the front
//!     ──► longer:            eight sums of products of 64 bytes each, scrambled once per 1,024
//! ```
//!
//! What is mixed with a key are bytes of a secret, each at its own place. Source: the specification of xxHash 0.8,
//! `doc/xxhash_spec.md`.

/// The default secret.
const SECRET: &[u8; 192] = b"\
    \xb8\xfe\x6c\x39\x23\xa4\x4b\xbe\x7c\x01\x81\x2c\xf7\x21\xad\x1c\
    \xde\xd4\x6d\xe9\x83\x90\x97\xdb\x72\x40\xa4\xa4\xb7\xb3\x67\x1f\
    \xcb\x79\xe6\x4e\xcc\xc0\xe5\x78\x82\x5a\xd0\x7d\xcc\xff\x72\x21\
    \xb8\x08\x46\x74\xf7\x43\x24\x8e\xe0\x35\x90\xe6\x81\x3a\x26\x4c\
    \x3c\x28\x52\xbb\x91\xc3\x00\xcb\x88\xd0\x65\x8b\x1b\x53\x2e\xa3\
    \x71\x64\x48\x97\xa2\x0d\xf9\x4e\x38\x19\xef\x46\xa9\xde\xac\xd8\
    \xa8\xfa\x76\x3f\xe3\x9c\x34\x3f\xf9\xdc\xbb\xc7\xc7\x0b\x4f\x1d\
    \x8a\x51\xe0\x4b\xcd\xb4\x59\x31\xc8\x9f\x7e\xc9\xd9\x78\x73\x64\
    \xea\xc5\xac\x83\x34\xd3\xeb\xc3\xc5\x81\xa0\xff\xfa\x13\x63\xeb\
    \x17\x0d\xdd\x51\xb7\xf0\xda\x49\xd3\x16\x55\x26\x29\xd4\x68\x9e\
    \x2b\x16\xbe\x58\x7d\x47\xa1\xfc\x8f\xf8\xb8\xd1\x7a\xd0\x31\xce\
    \x45\xcb\x3a\x8f\x95\x16\x04\x28\xaf\xd7\xfb\xca\xbb\x4b\x40\x7e";

const P32: [u64; 3] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d];
const P64: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];
/// The multipliers of an avalanche, and of the mix of four to eight bytes.
const AVALANCHE: u64 = 0x1656_6791_9e37_79f9;
const SHORT: u64 = 0x9fb2_1c65_1e98_df25;

/// Bytes that are added at a time to the sums of a long key.
const STRIPE_BYTES: usize = 64;
/// Stripes, each with the secret from another place on, before the sums are scrambled.
const BLOCK_STRIPES: usize = 16;

/// The hash of a key.
pub fn xxh3(key: &[u8]) -> u64 {
    match key.len() {
        0..=16 => short(key),
        17..=128 => from_both_ends(key),
        129..=240 => from_the_front(key),
        _ => long(key),
    }
}

fn short(key: &[u8]) -> u64 {
    let bytes = key.len();
    match bytes {
        0 => finished(word(SECRET, 56) ^ word(SECRET, 64)),
        1..=3 => {
            let [first, middle, last] = [key[0], key[bytes / 2], key[bytes - 1]].map(u64::from);
            let mixed = first << 16 | middle << 24 | last | (bytes as u64) << 8;
            finished(mixed ^ half_word(SECRET, 0) ^ half_word(SECRET, 4))
        }
        4..=8 => {
            let mixed = half_word(key, bytes - 4) | half_word(key, 0) << 32;
            let hash = mixed ^ word(SECRET, 8) ^ word(SECRET, 16);
            let hash = (hash ^ hash.rotate_left(49) ^ hash.rotate_left(24)).wrapping_mul(SHORT);
            let hash = (hash ^ ((hash >> 35) + bytes as u64)).wrapping_mul(SHORT);
            hash ^ hash >> 28
        }
        _ => {
            let low = word(key, 0) ^ word(SECRET, 24) ^ word(SECRET, 32);
            let high = word(key, bytes - 8) ^ word(SECRET, 40) ^ word(SECRET, 48);
            let sum = low.swap_bytes().wrapping_add(high).wrapping_add(folded(low, high));
            avalanche(sum.wrapping_add(bytes as u64))
        }
    }
}

fn from_both_ends(key: &[u8]) -> u64 {
    let bytes = key.len();
    let mut sum = (bytes as u64).wrapping_mul(P64[0]);
    for at in 0..=(bytes - 1) / 32 {
        sum = sum.wrapping_add(mixed(key, 16 * at, 32 * at));
        sum = sum.wrapping_add(mixed(key, bytes - 16 * (at + 1), 32 * at + 16));
    }
    avalanche(sum)
}

fn from_the_front(key: &[u8]) -> u64 {
    let bytes = key.len();
    let mut sum = (bytes as u64).wrapping_mul(P64[0]);
    for at in 0..8 {
        sum = sum.wrapping_add(mixed(key, 16 * at, 16 * at));
    }
    sum = avalanche(sum);
    for at in 8..bytes / 16 {
        sum = sum.wrapping_add(mixed(key, 16 * at, 16 * (at - 8) + 3));
    }
    avalanche(sum.wrapping_add(mixed(key, bytes - 16, 119)))
}

fn long(key: &[u8]) -> u64 {
    let bytes = key.len();
    let mut sums = [P32[2], P64[0], P64[1], P64[2], P64[3], P32[1], P64[4], P32[0]];
    for stripe in 0..(bytes - 1) / STRIPE_BYTES {
        let of_block = stripe % BLOCK_STRIPES;
        add(&mut sums, &key[STRIPE_BYTES * stripe..], 8 * of_block);
        if of_block == BLOCK_STRIPES - 1 {
            for (at, sum) in sums.iter_mut().enumerate() {
                *sum = (*sum ^ *sum >> 47 ^ word(SECRET, 128 + 8 * at)).wrapping_mul(P32[0]);
            }
        }
    }
    // The last stripe may overlap the one before.
    add(&mut sums, &key[bytes - STRIPE_BYTES..], 121);
    let mut hash = (bytes as u64).wrapping_mul(P64[0]);
    for (at, pair) in sums.chunks_exact(2).enumerate() {
        let (low, high) = (word(SECRET, 11 + 16 * at), word(SECRET, 19 + 16 * at));
        hash = hash.wrapping_add(folded(pair[0] ^ low, pair[1] ^ high));
    }
    avalanche(hash)
}

/// Adds the first stripe of these bytes to the sums, with the secret from this place on.
fn add(sums: &mut [u64; 8], stripe: &[u8], secret: usize) {
    let mut products = [0; 8];
    for (at, product) in products.iter_mut().enumerate() {
        let value = word(stripe, 8 * at);
        let mixed = value ^ word(SECRET, secret + 8 * at);
        *product = (mixed & 0xffff_ffff) * (mixed >> 32);
        sums[at ^ 1] = sums[at ^ 1].wrapping_add(value);
    }
    for (sum, product) in sums.iter_mut().zip(products) {
        *sum = sum.wrapping_add(product);
    }
}

/// The product of 16 bytes of the key, each half mixed with bytes of the secret.
fn mixed(key: &[u8], at: usize, secret: usize) -> u64 {
    folded(word(key, at) ^ word(SECRET, secret), word(key, at + 8) ^ word(SECRET, secret + 8))
}

/// Both halves of a product, one upon the other.
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

fn avalanche(hash: u64) -> u64 {
    let hash = (hash ^ hash >> 37).wrapping_mul(AVALANCHE);
    hash ^ hash >> 32
}

/// The avalanche of the hash before XXH3, which the shortest keys have.
fn finished(hash: u64) -> u64 {
    let hash = (hash ^ hash >> 33).wrapping_mul(P64[1]);
    let hash = (hash ^ hash >> 29).wrapping_mul(P64[2]);
    hash ^ hash >> 32
}

/// Eight bytes, the first the lowest.
fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Four bytes, the first the lowest.
fn half_word(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_have_the_hashes_of_the_library() {
        // Both sides of each length at which the way changes.
        let x = |bytes: usize| vec![b'x'; bytes];
        for (key, hash) in [
            (Vec::new(), 0x2d06_8005_38d3_94c2),
            (b"a".to_vec(), 0xe6c6_32b6_1e96_4e1f),
            (b"abcd".to_vec(), 0x6497_a96f_53a8_9890),
            (b"key:0".to_vec(), 0xb464_ee7b_6334_4e80),
            (b"0123456789abcdef".to_vec(), 0x6443_9946_d8fa_212d),
            (x(17), 0x8997_5e6b_7d2f_5a11),
            (x(128), 0x4ca3_7e83_f6cd_dd17),
            (x(129), 0xe4f9_7421_08fe_27dc),
            (x(240), 0x3e16_ca8a_0c6c_cb68),
            (x(241), 0x14da_9e5c_301a_6a1d),
        ] {
            assert_eq!(xxh3(&key), hash, "{} bytes", key.len());
        }
        // The beginnings of a text, of 0 to 2,100 bytes, as xxHash 0.8.4 hashes them.
        let text: Vec<u8> = (0..2100_usize).map(|n| (n * 31 + 7) as u8).collect();
        let all = (0..=text.len()).fold(0_u64, |all, bytes| all.rotate_left(1) ^ xxh3(&text[..bytes]));
        assert_eq!(all, 0xc9c0_392b_7599_6fb3);
    }
}
