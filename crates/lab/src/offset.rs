//! An offset in a value, and the commands of Redis that read or write it.

use larder_protocol::client::command;

use crate::mix::Verb;

/// An offset of bits in a value, and what is written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    bit: u64,
    /// The value of the bit: each request of a connection differs from the one before.
    on: bool,
}

impl Offset {
    /// The offset of a connection in a value of this many bytes, by the version that its request carries: far behind the
    /// beginning of the value.
    pub fn of(version: u64, value_bytes: usize) -> Offset {
        let (connection, request) = (version >> 40, version & 1);
        Offset { bit: (value_bytes as u64 / 2 + connection * 64) * 8 + 3, on: request == 0 }
    }

    /// Appends the command that reads or writes there.
    ///
    /// # Panics
    /// For a verb of whole values.
    pub fn request(&self, out: &mut Vec<u8>, verb: Verb, key: &[u8]) {
        let (bit, byte) = (self.bit.to_string(), (self.bit / 8).to_string());
        let set: &[u8] = if self.on { b"1" } else { b"0" };
        let bytes: &[u8] = if self.on { b"some" } else { b"else" };
        match verb {
            Verb::GetBit => command(out, &[b"GETBIT", key, bit.as_bytes()]),
            Verb::SetBit => command(out, &[b"SETBIT", key, bit.as_bytes(), set]),
            Verb::SetRange => command(out, &[b"SETRANGE", key, byte.as_bytes(), bytes]),
            Verb::Hit
            | Verb::Miss
            | Verb::Get
            | Verb::Set
            | Verb::Delete
            | Verb::Incr
            | Verb::Cas
            | Verb::EvalSha
            | Verb::Gets => unreachable!("a verb of whole values"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_a_place_of_its_own_that_it_changes_by_turns() {
        let asked = |verb, version| {
            let mut out = Vec::new();
            Offset::of(version, 1000).request(&mut out, verb, b"k");
            String::from_utf8(out).unwrap()
        };
        assert_eq!(asked(Verb::SetBit, 2), "*4\r\n$6\r\nSETBIT\r\n$1\r\nk\r\n$4\r\n4003\r\n$1\r\n1\r\n");
        assert_eq!(asked(Verb::SetBit, 3), "*4\r\n$6\r\nSETBIT\r\n$1\r\nk\r\n$4\r\n4003\r\n$1\r\n0\r\n");
        assert_eq!(asked(Verb::GetBit, (1 << 40) + 2), "*3\r\n$6\r\nGETBIT\r\n$1\r\nk\r\n$4\r\n4515\r\n");
        assert_eq!(
            asked(Verb::SetRange, 2),
            "*4\r\n$8\r\nSETRANGE\r\n$1\r\nk\r\n$3\r\n500\r\n$4\r\nsome\r\n"
        );
    }
}
