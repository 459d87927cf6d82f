//! What DEBUG DIGEST is made of: hashes of keys and values, added up in any order.

use larder_store::{Collection, DIGITS_MAX, Element, Pinned, Stream, StreamId, Type};

/// The digest of the elements that a collection has at its time. Their order counts in lists alone.
pub(crate) fn digest_of(collection: &Collection<'_>) -> u64 {
    if let Some(stream) = collection.stream() {
        return digest_of_stream(&stream);
    }
    let ordered = collection.kind() == Type::List;
    collection.live().enumerate().fold(collection.kind() as u64, |sum, (i, entry)| {
        let mut one = Digest::default();
        let (mut name, mut value) = ([0; DIGITS_MAX], [0; DIGITS_MAX]);
        let place = if ordered { i as u64 } else { 0 };
        let rest = [place.to_le_bytes(), entry.score.to_bits().to_le_bytes()].concat();
        let mut hash = match &entry.name {
            Element::Apart(apart) => {
                let mut hash = Hash::of(&[&apart.len().to_le_bytes(), &rest]);
                collection.parts(apart).for_each(|part| hash.eat(part));
                hash
            }
            element => Hash::of(&[element.text(&mut name), &rest]),
        };
        match &entry.value {
            Element::Apart(apart) => collection.parts(apart).for_each(|part| hash.eat(part)),
            value_here => hash.eat(value_here.text(&mut value)),
        }
        if entry.expires_at != 0 {
            hash.eat(&entry.expires_at.to_le_bytes());
        }
        one.add(hash.end());
        sum.wrapping_add(one.0[1])
    })
}

/// The digest of a stream: its entries, its groups, and what is pending in them.
fn digest_of_stream(stream: &Stream<'_>) -> u64 {
    let mut digest = Digest::default();
    let id_bytes = |id: StreamId| [id.ms.to_le_bytes(), id.seq.to_le_bytes()].concat();
    for entry in stream.entries(0..stream.len()) {
        let mut hash = Hash::of(&[&id_bytes(entry.id), b""]);
        for (name, value) in entry.fields {
            hash.eat(name.text(&mut [0; DIGITS_MAX]));
            stream.each_part(entry.id, &value, |part| hash.eat(part));
        }
        digest.add(hash.end());
    }
    let counts = [stream.added().to_le_bytes(), (stream.len() as u64).to_le_bytes()].concat();
    let mut hash = Hash::of(&[&id_bytes(stream.last_id()), &counts]);
    hash.eat(&id_bytes(stream.deleted_max()));
    digest.add(hash.end());
    for group in stream.groups() {
        digest.add(Hash::of(&[group.name, &id_bytes(group.last)]).end());
        for there in stream.pending(&group, StreamId::MIN) {
            let consumer = stream.consumer_of(there.consumer).map_or(&[][..], |consumer| consumer.name);
            let mut hash = Hash::of(&[group.name, &id_bytes(there.id)]);
            hash.eat(consumer);
            digest.add(hash.end());
        }
    }
    digest.0[1]
}

/// 128 bits, shown as 160, that do not depend on the order in which hashes are added.
#[derive(Debug, Default)]
pub(crate) struct Digest([u64; 2]);

impl Digest {
    pub(crate) fn add(&mut self, hash: u64) {
        self.0[0] ^= hash;
        self.0[1] = self.0[1].wrapping_add(hash.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    }

    pub(crate) fn text(&self) -> String {
        format!("{:016x}{:016x}{:08x}", self.0[0], self.0[1], self.0[0] as u32 ^ self.0[1] as u32)
    }
}

/// A hash of some strings, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hash(u64);

impl Hash {
    pub(crate) fn of(parts: &[&[u8]]) -> Hash {
        let mut hash = Hash(0xcbf2_9ce4_8422_2325);
        for part in parts {
            hash.eat(&(part.len() as u64).to_le_bytes());
            hash.eat(part);
        }
        hash
    }

    pub(crate) fn eat(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) fn end(self) -> u64 {
        self.0
    }
}

/// A large value that is being hashed, as it was when that began.
#[derive(Debug)]
pub(crate) struct Hashing {
    hash: Hash,
    value: Pinned,
    at: u64,
}

impl Hashing {
    pub(crate) fn new(hash: Hash, value: Pinned) -> Hashing {
        Hashing { hash, value, at: 0 }
    }

    /// Hashes some more of it, and adds the time for that to `ns`; returns the hash at the end.
    pub(crate) fn step(&mut self, ns: &mut u64) -> Option<u64> {
        let Some(piece) = self.value.pieces(self.at).next() else { return Some(self.hash.end()) };
        self.hash.eat(piece);
        self.at += piece.len() as u64;
        *ns += piece.len() as u64;
        (self.at == self.value.value_bytes()).then(|| self.hash.end())
    }
}
