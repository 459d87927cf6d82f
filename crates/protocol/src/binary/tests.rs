//! Frames of every shape, cut and joined, and what is wrong with them.

use proptest::prelude::*;

use super::*;

/// A frame with these lengths in its header, and this body.
fn raw(code: u8, key_bytes: u16, extras_bytes: u8, body_bytes: u32, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![REQUEST_MAGIC, code];
    frame.extend(key_bytes.to_be_bytes());
    // Type and vbucket are ignored.
    frame.extend([extras_bytes, 7, 1, 2]);
    frame.extend(body_bytes.to_be_bytes());
    frame.extend(*b"opaq");
    frame.extend(99u64.to_be_bytes());
    frame.extend(body);
    frame
}

fn frame(code: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let body = [extras, key, value].concat();
    raw(code, key.len() as u16, extras.len() as u8, body.len() as u32, &body)
}

const fn head(code: u8) -> Head {
    Head { code, opaque: *b"opaq" }
}

fn broken(code: u8, status: Status) -> Decoded<'static> {
    Decoded::Broken(head(code), status)
}

#[track_caller]
fn asks(code: u8, extras: &[u8], key: &[u8], value: &[u8], request: Request) {
    let bytes = frame(code, extras, key, value);
    let Decoded::Frame(frame, start) = decode(&bytes) else { panic!("{:?}", decode(&bytes)) };
    assert_eq!((frame.head, frame.request, frame.key, frame.cas), (head(code), request, key, 99));
    assert_eq!((frame.value_bytes as usize, &bytes[start..]), (value.len(), value));
}

#[test]
fn each_opcode_is_read_with_its_extras() {
    let time = |seconds: u32| seconds.to_be_bytes();
    asks(0x00, b"", b"k", b"", Request::Get);
    asks(0x0d, b"", b"a b\r\n\0", b"", Request::Get);
    asks(0x1d, &time(5), b"k", b"", Request::GetAndTouch { exptime: 5 });
    asks(0x24, &time(5), b"k", b"", Request::GetAndTouch { exptime: 5 });
    asks(0x1c, &time(u32::MAX), b"k", b"", Request::Touch { exptime: u32::MAX });
    let store = |verb| Request::Store { verb, flags: 0x0102_0304, exptime: 0x0506_0708 };
    asks(0x01, &[1, 2, 3, 4, 5, 6, 7, 8], b"k", b"value", store(StoreVerb::Set));
    asks(0x12, &[1, 2, 3, 4, 5, 6, 7, 8], b"k", b"", store(StoreVerb::Add));
    asks(0x03, &[1, 2, 3, 4, 5, 6, 7, 8], b"k", b"v", store(StoreVerb::Replace));
    asks(0x0e, b"", b"k", b"v", Request::Concat { verb: StoreVerb::Append });
    asks(0x1a, b"", b"k", b"", Request::Concat { verb: StoreVerb::Prepend });
    asks(0x04, b"", b"k", b"", Request::Delete);
    let number = |exptime: u32| [&1u64.to_be_bytes()[..], &u64::MAX.to_be_bytes(), &time(exptime)].concat();
    let arithmetic = |decrement, initial| Request::Arithmetic { decrement, delta: 1, initial };
    asks(0x05, &number(0), b"k", b"", arithmetic(false, Some((u64::MAX, 0))));
    asks(0x16, &number(7), b"k", b"", arithmetic(true, Some((u64::MAX, 7))));
    asks(0x06, &number(u32::MAX), b"k", b"", arithmetic(true, None));
    asks(0x08, b"", b"", b"", Request::Flush { delay: 0 });
    asks(0x18, &time(9), b"", b"", Request::Flush { delay: 9 });
    asks(0x1b, &time(2), b"", b"", Request::Verbosity { level: 2 });
    asks(0x10, b"", b"", b"", Request::Stat);
    asks(0x10, b"", b"detail on", b"", Request::Stat);
    asks(0x21, b"", b"PLAIN", b"\0u\0p", Request::Sasl { step: false });
    asks(0x22, b"", b"PLAIN", b"", Request::Sasl { step: true });
    for (code, request) in [
        (0x07, Request::Quit),
        (0x17, Request::Quit),
        (0x0a, Request::Noop),
        (0x0b, Request::Version),
        (0x20, Request::SaslList),
    ] {
        asks(code, b"", b"", b"", request);
    }
}

#[test]
fn a_frame_of_another_shape_is_invalid_and_ends_the_connection() {
    for row in OPCODES {
        let extras = usize::from(row.extras_bytes);
        for extras_bytes in [0, 1, 3, 4, 5, 7, 8, 9, 19, 20, 21, 255] {
            for (key, value) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
                let bytes = frame(row.code, &vec![0; extras_bytes], &vec![b'k'; key], &vec![b'v'; value]);
                let (keyed, valued) = match row.verb {
                    Verb::Get | Verb::Delete | Verb::Increment | Verb::Decrement => (key == 1, value == 0),
                    Verb::Touch | Verb::GetAndTouch => (key == 1, value == 0),
                    Verb::Store(_) | Verb::Concat(_) | Verb::SaslAuth | Verb::SaslStep => (key == 1, true),
                    Verb::Stat => (true, value == 0),
                    _ => (key == 0, value == 0),
                };
                let fits = extras_bytes == extras || row.verb == Verb::Flush && extras_bytes == 0;
                let is_frame = matches!(decode(&bytes), Decoded::Frame(..));
                assert_eq!(is_frame, keyed && valued && fits, "{} {extras_bytes} {key} {value}", row.name);
                if !is_frame {
                    assert_eq!(decode(&bytes), broken(row.code, Status::Invalid));
                }
            }
        }
    }
}

#[test]
fn lengths_are_checked_before_what_they_announce_has_come() {
    // Key and extras are longer than the body.
    assert_eq!(decode(&raw(0, 3, 0, 2, b"")), broken(0, Status::Unknown));
    assert_eq!(decode(&raw(1, 1, 8, 8, b"")), broken(1, Status::Unknown));
    assert_eq!(decode(&raw(0x50, u16::MAX, 255, 0, b"")), broken(0x50, Status::Unknown));
    assert_eq!(decode(&raw(0, 3, 0, 3, b"")), Decoded::Incomplete);
    // A key that is too long, of any opcode.
    let key = [b'k'; 251];
    for (bytes, is_frame) in [(249, true), (250, true), (251, false)] {
        let bytes = frame(0, b"", &key[..bytes], b"");
        assert_eq!(matches!(decode(&bytes), Decoded::Frame(..)), is_frame);
    }
    assert_eq!(decode(&raw(0, 251, 0, 251, b"")), broken(0, Status::Invalid));
    assert_eq!(decode(&raw(0x50, 251, 0, 251, b"")), broken(0x50, Status::Invalid));
    // A body that is too long.
    for (body_bytes, is_whole) in
        [(BODY_BYTES_MAX - 1, true), (BODY_BYTES_MAX, true), (BODY_BYTES_MAX + 1, false), (u32::MAX, false)]
    {
        let bytes = raw(1, 1, 8, body_bytes, b"12345678k");
        let Decoded::Frame(frame, start) = decode(&bytes) else {
            assert!(!is_whole);
            assert_eq!(decode(&bytes), broken(1, Status::Invalid));
            continue;
        };
        assert!(is_whole && start == bytes.len() && frame.value_bytes == body_bytes - 9);
        let refused = Decoded::Refused(head(0x50), Status::Unknown, 24 + u64::from(body_bytes));
        assert_eq!(decode(&raw(0x50, 0, 0, body_bytes, b"")), refused);
    }
}

#[test]
fn an_unknown_opcode_is_refused_with_all_that_belongs_to_it() {
    for code in [0x1f, 0x25, 0x30, 0x3c, 0x50, 0xff] {
        let bytes = frame(code, b"extras", b"key", b"value");
        assert_eq!(
            decode(&bytes[..24]),
            Decoded::Refused(head(code), Status::Unknown, bytes.len() as u64),
            "{code:#x}"
        );
    }
}

#[test]
fn another_first_byte_is_no_frame() {
    assert_eq!(decode(b""), Decoded::Incomplete);
    assert_eq!(decode(b"\x80"), Decoded::Incomplete);
    for bytes in [&b"\x81"[..], b"get a\r\n", b"\0", &[0x81; 30]] {
        assert_eq!(decode(bytes), Decoded::NoFrame);
    }
}

#[test]
fn a_reply_repeats_opcode_and_opaque_and_says_its_lengths() {
    let bare = Reply::new(head(0x0a), Status::Unknown).header();
    assert_eq!(bare, *b"\x81\x0a\0\0\0\0\0\x81\0\0\0\0opaq\0\0\0\0\0\0\0\0");
    let reply = Reply {
        extras_bytes: 4,
        key_bytes: 0x0102,
        value_bytes: 0x0304_0000,
        cas: 0x0102_0304_0506_0708,
        ..Reply::new(head(0x0c), Status::Ok)
    };
    assert_eq!(
        reply.header(),
        *b"\x81\x0c\x01\x02\x04\0\0\0\x03\x04\x01\x06opaq\x01\x02\x03\x04\x05\x06\x07\x08"
    );
}

proptest! {
    /// Any frame, cut at every byte: the result for a part is never contradicted by the result for the whole.
    #[test]
    fn a_part_of_a_frame_is_waited_for_or_decided_as_the_whole(
        code in prop_oneof![0u8..0x40, any::<u8>()],
        extras in prop_oneof![Just(0usize), Just(4), Just(8), Just(20), 0usize..30],
        key in prop_oneof![0usize..4, 248usize..254],
        value in 0usize..20,
        error in prop_oneof![8 => Just(0i64), 1 => -30i64..30, 1 => Just(i64::from(u32::MAX))],
        behind in proptest::collection::vec(any::<u8>(), 0..40),
    ) {
        let body: Vec<u8> = (0..extras + key + value).map(|n| n as u8).collect();
        let body_bytes = (body.len() as i64 + error).clamp(0, i64::from(u32::MAX)) as u32;
        let mut bytes = raw(code, key as u16, extras as u8, body_bytes, &body);
        bytes.extend(behind);
        let whole = decode(&bytes);
        for cut in 0..bytes.len() {
            let part = decode(&bytes[..cut]);
            prop_assert!(part == Decoded::Incomplete || part == whole, "{cut}: {part:?} {whole:?}");
        }
        match whole {
            Decoded::Frame(frame, start) => {
                prop_assert_eq!(start, HEADER_BYTES + extras + key);
                prop_assert_eq!(frame.key, &bytes[HEADER_BYTES + extras..start]);
                prop_assert_eq!(frame.value_bytes as usize + extras + key, body_bytes as usize);
                prop_assert_eq!(decode(&bytes[..start]), whole);
            }
            Decoded::Refused(_, status, all) => {
                prop_assert_eq!((status, all), (Status::Unknown, 24 + u64::from(body_bytes)));
            }
            Decoded::Incomplete => prop_assert!(extras + key + HEADER_BYTES > bytes.len()),
            Decoded::Broken(..) => {}
            Decoded::NoFrame => prop_assert!(false, "it begins as a frame"),
        }
    }

    /// Frames in a row are read one by one, and each ends where the next begins.
    #[test]
    fn frames_behind_each_other_are_told_apart(
        rows in proptest::collection::vec((0..OPCODES.len(), 1usize..250, 0usize..300), 1..20),
    ) {
        let mut bytes = Vec::new();
        for &(row, key, value) in &rows {
            let row = OPCODES[row];
            let key = if row.takes(0, row.extras_bytes.into(), 0) { 0 } else { key };
            let value = if row.takes(key, row.extras_bytes.into(), 1) { value } else { 0 };
            bytes.extend(frame(row.code, &vec![1; row.extras_bytes.into()], &vec![b'k'; key], &vec![b'v'; value]));
        }
        let mut at = 0;
        for (row, ..) in rows {
            let Decoded::Frame(frame, start) = decode(&bytes[at..]) else { panic!("no frame") };
            prop_assert_eq!(frame.opcode, &OPCODES[row]);
            at += start + frame.value_bytes as usize;
        }
        prop_assert_eq!(at, bytes.len());
    }

    /// No bytes make it panic.
    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let mut framed = vec![REQUEST_MAGIC];
        framed.extend(&bytes);
        let _ = (decode(&bytes), decode(&framed));
    }
}
