//! The kinds of requests of a mix, and the bytes by which they are told apart.
//!
//! All requests of a verb have the same length and the same bytes, except for the numbers of keys, values and tokens. For each
//! other kind a kind has a mark: the first place where both have such a byte, and these two differ.
//!
//! ```text
//! get key:000000000017\r\n                 "g" at 0 against set, "k" at 4 against the next
//! get nil:000000000017\r\n                 "g" at 0, "n" at 4
//! set key:000000000004 0 0 32\r\n…\r\n     "s" at 0
//! ```
//!
//! A whole request has all marks of its kind, and of each other kind it lacks one, so that a request is known as soon as its own
//! marks have come.

use std::io;

use super::Canned;
use crate::keys::Prefix;
use crate::script::{KeyAt, NOBODYS, Request, Script};
use crate::workload::{Verb, Workload};

/// The kinds of requests of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kinds {
    kinds: Vec<Kind>,
    /// Bytes of a request up to the last mark of any kind.
    head_bytes: usize,
}

/// One kind of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kind {
    canned: Canned,
    /// Its reply several times, one behind the other.
    block: Vec<u8>,
    /// Places in a request, and the bytes there.
    marks: Vec<(usize, u8)>,
}

/// A kind's replies lie ready in a block of about this size, at least one of them.
const BLOCK_BYTES: usize = 4096;

/// A request's bytes; `None` where those of other requests of its kind may differ.
type Form = Vec<Option<u8>>;

impl Kinds {
    /// The kinds of a workload; `None` if requests or replies of one of its verbs have several lengths.
    pub fn of(workload: &Workload) -> Option<Kinds> {
        let mut verbs: Vec<Verb> = workload.mix.parts().map(|(verb, _)| verb).collect();
        let is_of_places = |verb: &Verb| matches!(verb, Verb::SetBit | Verb::GetBit | Verb::SetRange);
        if workload.sizes.is_some() || verbs.iter().any(is_of_places) {
            return None;
        }
        if workload.swaps() {
            verbs.push(Verb::Gets);
        }
        let mut all: Vec<(Form, Canned)> = Vec::new();
        for verb in verbs {
            let (request, reply) = workload.sample_of(verb);
            let kind = (form(workload, verb), Canned { request_bytes: request.len(), reply });
            // Reads of keys that may be gone look as reads of keys that exist.
            if !all.contains(&kind) {
                all.push(kind);
            }
        }
        let marks = |at: usize| -> Option<Vec<(usize, u8)>> {
            let others = all.iter().enumerate().filter(|&(other, _)| other != at);
            let mut marks =
                others.map(|(_, other)| mark(&all[at].0, &other.0)).collect::<Option<Vec<_>>>()?;
            marks.sort_unstable();
            marks.dedup();
            Some(marks)
        };
        let marks = (0..all.len()).map(marks).collect::<Option<Vec<_>>>()?;
        let head_bytes = marks.iter().flatten().map(|&(at, _)| at + 1).max().unwrap_or(0);
        let kind = |((_, canned), marks): ((Form, Canned), Vec<(usize, u8)>)| {
            let block = canned.reply.repeat((BLOCK_BYTES / canned.reply.len()).max(1));
            Kind { canned, block, marks }
        };
        Some(Kinds { kinds: all.into_iter().zip(marks).map(kind).collect(), head_bytes })
    }

    /// The only kind, if there are no others.
    pub fn only(&self) -> Option<&Canned> {
        match &self.kinds[..] {
            [kind] => Some(&kind.canned),
            _ => None,
        }
    }

    /// The kind of the request at the start of `bytes`, by its number; `None` if more of it has to come.
    ///
    /// # Errors
    /// `InvalidData` when it is of none.
    pub(super) fn number(&self, bytes: &[u8]) -> io::Result<Option<u8>> {
        let is_there = |&(at, byte): &(usize, u8)| bytes.get(at) == Some(&byte);
        match self.kinds.iter().position(|kind| kind.marks.iter().all(is_there)) {
            Some(number) => Ok(Some(number as u8)),
            None if bytes.len() < self.head_bytes => Ok(None),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The requests and replies of a kind.
    pub(super) fn canned(&self, number: u8) -> &Canned {
        &self.kinds[usize::from(number)].canned
    }

    /// Whole replies of a kind, one behind the other.
    pub(super) fn block(&self, number: u8) -> &[u8] {
        &self.kinds[usize::from(number)].block
    }
}

/// The form of a verb's requests.
fn form(workload: &Workload, verb: Verb) -> Form {
    let mut bytes = Vec::new();
    let key = KeyAt { id: workload.keyspace.first, at: 0, slot: NOBODYS };
    let mut keys = vec![key; workload.keys_of(verb)];
    let value_at = workload.request(&mut bytes, verb, &mut keys, 1);
    let mut form: Form = bytes.into_iter().map(Some).collect();
    if workload.protocol.dialect().is_none() {
        // What is asked stands in front of the first key.
        form[keys[0].at as usize + Prefix::BYTES..].fill(None);
        return form;
    }
    for key in &keys {
        let begins = key.at as usize;
        form[begins + Prefix::BYTES..begins + workload.keyspace.key_bytes].fill(None);
    }
    if value_at > 0 {
        form[value_at as usize..].fill(None);
    }
    if verb == Verb::Cas {
        form[Script::token_place(&Request { verb, keys_end: 1, value_at })].fill(None);
    }
    form
}

/// The first place where both forms have a byte and the two differ, and the first form's byte there.
fn mark(form: &[Option<u8>], other: &[Option<u8>]) -> Option<(usize, u8)> {
    form.iter().zip(other).enumerate().find_map(|(at, pair)| match pair {
        (&Some(byte), &Some(others)) if byte != others => Some((at, byte)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use larder_protocol::client::Protocol;

    use super::*;
    use crate::keys::Keyspace;
    use crate::sizes::Sizes;
    use crate::workload::Mix;

    const PROTOCOLS: [Protocol; 3] = [Protocol::Classic, Protocol::Meta, Protocol::Resp];

    fn workload(protocol: Protocol, mix: &str) -> Workload {
        let mix = Mix::parse(mix).unwrap();
        Workload { connections: 3, pipeline: 5, ..Workload::new(protocol, mix, Keyspace::new(700, 30)) }
    }

    /// Requests of a verb for several keys, with several values and tokens.
    fn requests(workload: &Workload, verb: Verb) -> Vec<Vec<u8>> {
        let request = |(id, version, token): (u32, u64, &[u8; 20])| {
            let mut bytes = Vec::new();
            let mut keys = vec![KeyAt { id, at: 0, slot: NOBODYS }; workload.keys_of(verb)];
            let value_at = workload.request(&mut bytes, verb, &mut keys, version);
            if verb == Verb::Cas && workload.swaps() {
                let place = Script::token_place(&Request { verb, keys_end: 1, value_at });
                bytes[place].copy_from_slice(token);
            }
            bytes
        };
        let first = (0, 1, b"18446744073709551615");
        let others = [(7, 1 << 40, b"00000000000000000009"), (699, 3, b"00000000001234567890")];
        [first, others[0], others[1]].map(request).into()
    }

    #[test]
    fn every_request_of_a_mix_is_known_by_a_part_of_it() {
        for protocol in PROTOCOLS {
            for mix in ["hit:9,set:1", "hit,miss,get,set,delete,incr,cas", "cas", "incr,delete"] {
                let workload = workload(protocol, mix);
                let kinds = Kinds::of(&workload).unwrap();
                let gets = workload.swaps().then_some(Verb::Gets);
                for verb in workload.mix.parts().map(|(verb, _)| verb).chain(gets) {
                    let (request, reply) = workload.sample_of(verb);
                    let canned = Canned { request_bytes: request.len(), reply };
                    for bytes in requests(&workload, verb) {
                        assert_eq!(bytes.len(), canned.request_bytes);
                        let number = kinds.number(&bytes).unwrap().expect("it is whole");
                        assert_eq!(*kinds.canned(number), canned, "{protocol:?} {mix}: {verb:?}");
                        // By less of it, it is known to be of this kind, or not known.
                        for end in 0..bytes.len() {
                            let less = kinds.number(&bytes[..end]).unwrap();
                            let same = less.is_none_or(|less| less == number);
                            assert!(same, "{protocol:?} {mix}: {verb:?} {end}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_asked_is_told_by_few_bytes_and_nothing_else_is_taken() {
        let marks = |protocol, mix| {
            let kinds = Kinds::of(&workload(protocol, mix)).unwrap();
            (kinds.kinds.iter().map(|kind| kind.marks.clone()).collect::<Vec<_>>(), kinds.head_bytes)
        };
        let [classic, meta, resp] = PROTOCOLS.map(|protocol| marks(protocol, "hit:9,set:1"));
        assert_eq!(classic, (vec![vec![(0, b'g')], vec![(0, b's')]], 1));
        assert_eq!(meta, (vec![vec![(1, b'g')], vec![(1, b's')]], 2));
        assert_eq!(resp, (vec![vec![(1, b'2')], vec![(1, b'3')]], 2));
        // "mg … v\r\n" and "mg … v c\r\n", "ms … 30\r\n" and "ms … 30 C…\r\n".
        let (meta, _) = marks(Protocol::Meta, "hit,set,cas");
        assert_eq!(meta[0], [(1, b'g'), (21, b'\r')]);
        assert_eq!(meta[1], [(1, b's'), (22, b'\r')]);
        assert_eq!(meta[2], [(1, b's'), (22, b' ')]);
        assert_eq!(meta[3], [(1, b'g'), (21, b' ')]);
        let kinds = Kinds::of(&workload(Protocol::Classic, "hit:9,set:1")).unwrap();
        let taken = |bytes: &[u8]| kinds.number(bytes).map_err(|error| error.kind());
        assert_eq!([taken(b""), taken(b"g"), taken(b"s")], [Ok(None), Ok(Some(0)), Ok(Some(1))]);
        assert_eq!(taken(b"quit\r\n"), Err(io::ErrorKind::InvalidData));
    }

    #[test]
    fn requests_of_several_lengths_have_no_kinds() {
        let sizes = Some(Sizes::Spread(1, 9));
        let sized = Workload { sizes, ..workload(Protocol::Classic, "hit:9,set:1") };
        assert_eq!(Kinds::of(&sized), None);
        let places = [Verb::SetBit, Verb::GetBit, Verb::SetRange];
        let of_place = |verb| Workload { mix: Mix::from(verb), ..workload(Protocol::Resp, "hit") };
        assert!(places.map(of_place).iter().all(|workload| Kinds::of(workload).is_none()));
        // Reads look the same whether a key may be gone or not.
        let both = Kinds::of(&workload(Protocol::Classic, "hit,get")).unwrap();
        assert_eq!(both.only(), Some(&Canned::of(&workload(Protocol::Classic, "hit"))));
    }
}
