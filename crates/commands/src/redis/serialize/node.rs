//! A string in a payload that holds packed entries. It is decompressed in steps.

use super::{BAD_FORMAT, LZF_BYTES_MAX, Reader, unpack_some};
use crate::redis::fail::Fail;

/// Bytes that are decompressed between two looks at how much a step has done.
const UNPACKED_AT_ONCE: usize = 16 << 10;

/// A string in a payload that holds packed entries.
#[derive(Debug)]
pub(crate) enum Node {
    /// It is in the payload as it is.
    Here { at: usize, end: usize },
    /// It is in the payload, compressed; decompressed it has `wanted` bytes.
    Packed { at: usize, end: usize, wanted: usize, unpacked: Vec<u8> },
}

impl Node {
    /// Reads the next string of a payload that has so many bytes in all; none if it is no such string.
    pub fn read(reader: &mut Reader<'_>, bytes: usize) -> Option<Node> {
        let packed = reader.0.first() == Some(&0xc3);
        let (len, wanted) = if packed {
            reader.take(1)?;
            (reader.length()?, Some(reader.length()?))
        } else {
            (reader.length()?, None)
        };
        let at = bytes - reader.0.len();
        reader.take(len)?;
        let end = at + len;
        match wanted {
            None => Some(Node::Here { at, end }),
            Some(wanted) if wanted > len.saturating_mul(LZF_BYTES_MAX) => None,
            Some(wanted) => Some(Node::Packed { at, end, wanted, unpacked: Vec::new() }),
        }
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        match self {
            Node::Here { at, end } => end - at,
            Node::Packed { wanted, .. } => *wanted,
        }
    }

    /// How many bytes it has decompressed; 0 if it is not compressed.
    pub fn unpacked_bytes(&self) -> usize {
        match self {
            Node::Here { .. } => 0,
            Node::Packed { wanted, .. } => *wanted,
        }
    }

    /// Decompresses some of it, if it is compressed, and adds the time for that to `ns`; true when all of it is there.
    ///
    /// # Errors
    /// It is damaged.
    pub fn unpack(&mut self, body: &[u8], ns: &mut u64) -> Result<bool, Fail> {
        let Node::Packed { at, end, wanted, unpacked } = self else { return Ok(true) };
        if unpacked.capacity() == 0 {
            unpacked.reserve_exact(*wanted);
        }
        let (mut data, before) = (&body[*at..*end], unpacked.len());
        while !data.is_empty() && unpacked.len() - before < UNPACKED_AT_ONCE {
            unpack_some(&mut data, unpacked, *wanted).ok_or(BAD_FORMAT)?;
        }
        *at = *end - data.len();
        *ns += 2 * (unpacked.len() - before) as u64;
        if !data.is_empty() {
            return Ok(false);
        }
        if unpacked.len() == *wanted { Ok(true) } else { Err(BAD_FORMAT) }
    }

    /// Its bytes, as far as they are there.
    pub fn bytes<'a>(&'a self, body: &'a [u8]) -> &'a [u8] {
        match self {
            Node::Here { at, end } => &body[*at..*end],
            Node::Packed { unpacked, .. } => unpacked,
        }
    }
}
