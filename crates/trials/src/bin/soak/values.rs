//! Values that name their key and version, and continue with a piece of one block of random bytes. So each is
//! made quickly, and no two are alike.

use crate::random::Random;

const BLOCK_BYTES: usize = 1 << 20;

/// The block of which values have pieces.
#[derive(Debug)]
pub struct Values {
    block: Vec<u8>,
    version: u64,
}

impl Values {
    /// The values of one client.
    pub fn new(random: &mut Random) -> Values {
        Values { block: (0..BLOCK_BYTES).map(|_| random.below(256) as u8).collect(), version: 0 }
    }

    /// A new value for `key`, at least one byte long. A short one has only the end of the name and version.
    pub fn make(&mut self, key: &str, bytes: usize) -> Vec<u8> {
        self.version += 1;
        let name = format!("<{key} {}>", self.version);
        if bytes <= name.len() {
            return name.as_bytes()[name.len() - bytes.max(1)..].to_vec();
        }
        let filling = bytes - name.len();
        let mut value = Vec::with_capacity(bytes);
        value.extend_from_slice(name.as_bytes());
        let from =
            (self.version as usize).wrapping_mul(0x9e37_79b1) % (BLOCK_BYTES - filling.min(BLOCK_BYTES - 1));
        value.extend(self.block[from..].iter().chain(self.block.iter().cycle()).take(filling));
        value
    }
}

/// A random length: mostly short, sometimes in pieces, rarely so large that a socket does not take the value
/// at once.
pub fn length(random: &mut Random) -> usize {
    match random.below(1000) {
        0..700 => random.within(1, 200),
        700..900 => random.within(200, 2000),
        900..980 => random.within(2000, 16_000),
        980..990 => random.within(16_380, 16_390),
        990..999 => random.within(16_390, 100_000),
        _ => random.within(100_000, 600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_their_length_and_differ() {
        let mut random = Random::of(1, 1);
        let mut values = Values::new(&mut random);
        for bytes in [1, 5, 100, 16_384, BLOCK_BYTES + 5] {
            assert_eq!(values.make("k", bytes).len(), bytes);
        }
        assert_ne!(values.make("k", 30), values.make("k", 30));
    }
}
