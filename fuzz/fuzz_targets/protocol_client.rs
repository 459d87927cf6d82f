//! What a server may send to a client: every reader of replies ends within the bytes, says the same of a reply however
//! much follows it, knows none before its last byte, and panics at nothing.
#![no_main]

use larder_protocol::client::{
    Asked, Classic, Dialect, Grammar, Head, Kind, LINE_BYTES_MAX, Meta, Protocol, Resp, VALUE_BYTES_MAX, answer, counter,
};
use libfuzzer_sys::fuzz_target;
use std::fmt::Debug;

const KINDS: [Kind; 8] = [
    Kind::Get,
    Kind::Touch,
    Kind::Store,
    Kind::Delete,
    Kind::Count,
    Kind::Barrier,
    Kind::Version,
    Kind::FlushAll,
];

fuzz_target!(|input: &[u8]| {
    for dialect in [Dialect::Meta, Dialect::Classic] {
        for kind in KINDS {
            let read = |bytes| Head::read(dialect, kind, bytes);
            if let Some(head) = holds(input, read) {
                assert!(head.value_bytes <= VALUE_BYTES_MAX);
            }
        }
    }
    for protocol in [Protocol::Classic, Protocol::Meta, Protocol::Resp] {
        for asked in [Asked::Get, Asked::Set, Asked::Delete] {
            holds(input, |bytes| answer(protocol, asked, bytes));
        }
    }
    series(input, Classic::event);
    series(input, Classic::tokened);
    series(input, Meta::event);
    series(input, Meta::tokened);
    series(input, Resp::event);
    let _ = counter(input);
});

/// All replies one after the other, as far as they are some.
fn series<'i, T: PartialEq + Debug, E: PartialEq + Debug>(
    mut input: &'i [u8],
    read: impl Fn(&'i [u8]) -> Result<Option<(T, usize)>, E>,
) {
    while holds(input, &read).is_some() {
        let Ok(Some((_, used))) = read(input) else { unreachable!("it was read") };
        input = &input[used..];
    }
}

/// One reply, if there is one.
fn holds<'i, T: PartialEq + Debug, E: PartialEq + Debug>(
    input: &'i [u8],
    read: impl Fn(&'i [u8]) -> Result<Option<(T, usize)>, E>,
) -> Option<T> {
    let (found, used) = read(input).ok()??;
    assert!(used > 0 && used <= input.len());
    let whole = read(&input[..used]).expect("it is a reply").expect("it is whole");
    assert_eq!((&whole.0, whole.1), (&found, used));
    // A line is looked at as a whole; of a value each byte need not be cut off.
    for end in [0, 1, used / 2, used - 1].into_iter().chain(0..used.min(LINE_BYTES_MAX)).filter(|&end| end < used) {
        assert_eq!(read(&input[..end]), Ok(None));
    }
    Some(found)
}
