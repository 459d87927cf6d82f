//! Replies as a server sends them: those of the null server, and the lengths of right replies.

use larder_protocol::client::Protocol;

/// Appends the reply to a read of one or more keys that all hit: keys and their values.
pub fn hits(protocol: Protocol, out: &mut Vec<u8>, pairs: &[(Vec<u8>, Vec<u8>)]) {
    if protocol == Protocol::Resp && pairs.len() > 1 {
        out.extend_from_slice(format!("*{}\r\n", pairs.len()).as_bytes());
    }
    for (key, value) in pairs {
        match protocol {
            Protocol::Classic => {
                out.extend_from_slice(b"VALUE ");
                out.extend_from_slice(key);
                out.extend_from_slice(format!(" 0 {}\r\n", value.len()).as_bytes());
            }
            Protocol::Meta => out.extend_from_slice(format!("VA {}\r\n", value.len()).as_bytes()),
            Protocol::Resp => out.extend_from_slice(format!("${}\r\n", value.len()).as_bytes()),
        }
        out.extend_from_slice(value);
        out.extend_from_slice(b"\r\n");
    }
    if protocol == Protocol::Classic {
        out.extend_from_slice(b"END\r\n");
    }
}

/// Appends the reply to a read of `keys` keys that all miss.
pub fn misses(protocol: Protocol, out: &mut Vec<u8>, keys: usize) {
    match protocol {
        Protocol::Classic => out.extend_from_slice(b"END\r\n"),
        Protocol::Meta => (0..keys).for_each(|_| out.extend_from_slice(b"EN\r\n")),
        Protocol::Resp => {
            if keys > 1 {
                out.extend_from_slice(format!("*{keys}\r\n").as_bytes());
            }
            (0..keys).for_each(|_| out.extend_from_slice(b"$-1\r\n"));
        }
    }
}

/// Appends the reply to a write that succeeded.
pub fn stored(protocol: Protocol, out: &mut Vec<u8>) {
    out.extend_from_slice(match protocol {
        Protocol::Classic => b"STORED\r\n".as_slice(),
        Protocol::Meta => b"HD\r\n",
        Protocol::Resp => b"+OK\r\n",
    });
}

/// Appends the reply to a delete of a key that was there.
pub fn deleted(protocol: Protocol, out: &mut Vec<u8>) {
    out.extend_from_slice(match protocol {
        Protocol::Classic => b"DELETED\r\n".as_slice(),
        Protocol::Meta => b"HD\r\n",
        Protocol::Resp => b":1\r\n",
    });
}

/// Appends the reply to an addition that made a number 1.
pub fn counted(protocol: Protocol, out: &mut Vec<u8>) {
    out.extend_from_slice(match protocol {
        Protocol::Classic => b"1\r\n".as_slice(),
        Protocol::Meta => b"VA 1\r\n1\r\n",
        Protocol::Resp => b":1\r\n",
    });
}

/// Appends the reply to a read of a key with its token, which is 1.
///
/// # Panics
/// For RESP, which has no tokens.
pub fn tokened(protocol: Protocol, out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let bytes = value.len();
    match protocol {
        Protocol::Classic => {
            out.extend_from_slice(b"VALUE ");
            out.extend_from_slice(key);
            out.extend_from_slice(format!(" 0 {bytes} 1\r\n").as_bytes());
        }
        Protocol::Meta => out.extend_from_slice(format!("VA {bytes} c1\r\n").as_bytes()),
        Protocol::Resp => unreachable!("RESP has no tokens"),
    }
    out.extend_from_slice(value);
    out.extend_from_slice(if protocol == Protocol::Classic { b"\r\nEND\r\n".as_slice() } else { b"\r\n" });
}

/// Appends the reply to a write with a token that succeeded; in RESP the replies to a transaction that reads the value and
/// writes.
pub fn swapped(protocol: Protocol, out: &mut Vec<u8>, value: &[u8]) {
    if protocol != Protocol::Resp {
        return stored(protocol, out);
    }
    out.extend_from_slice(format!("+OK\r\n${}\r\n", value.len()).as_bytes());
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_protocol::client::{Classic, Event, Grammar, Meta};

    /// The events of these replies.
    fn read(protocol: Protocol, mut bytes: &[u8]) -> Vec<Event<'_>> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            let (event, used) = protocol.event(bytes).unwrap().expect("it is whole");
            events.push(event);
            bytes = &bytes[used..];
        }
        events
    }

    #[test]
    fn canned_replies_to_changes_are_read_back_as_what_they_say() {
        let value = |value| Event::Value { key: None, flags: 0, value };
        for (protocol, gone, one) in [
            (Protocol::Classic, Event::Deleted, Event::Number(1)),
            (Protocol::Meta, Event::Stored, value(b"1")),
            (Protocol::Resp, Event::Number(1), Event::Number(1)),
        ] {
            let mut out = Vec::new();
            deleted(protocol, &mut out);
            counted(protocol, &mut out);
            assert_eq!(read(protocol, &out), [gone, one], "{protocol:?}");
            out.clear();
            swapped(protocol, &mut out, b"+OK\r\n");
            let done = match protocol {
                Protocol::Classic | Protocol::Meta => vec![Event::Stored],
                Protocol::Resp => {
                    let first = [Event::Stored, value(b"+OK\r\n"), Event::Stored];
                    [&first[..], &[Event::Queued, Event::Count(1), Event::Stored]].concat()
                }
            };
            assert_eq!(read(protocol, &out), done, "{protocol:?}");
        }
    }

    #[test]
    fn canned_values_have_their_token_behind_them() {
        let (mut classic, mut meta) = (Vec::new(), Vec::new());
        tokened(Protocol::Classic, &mut classic, b"k", b"END\r\n");
        tokened(Protocol::Meta, &mut meta, b"k", b"END\r\n");
        let token = |key| Event::Token { key, flags: 0, value: b"END\r\n", token: 1 };
        let (event, used) = Classic::tokened(&classic).unwrap().expect("it is whole");
        assert_eq!((event, &classic[used..]), (token(Some(&b"k"[..])), &b"END\r\n"[..]));
        assert_eq!(Meta::tokened(&meta), Ok(Some((token(None), meta.len()))));
    }

    #[test]
    fn canned_replies_are_read_back_as_what_they_say() {
        let pairs = [(b"a".to_vec(), b"1\r\n2".to_vec()), (b"b".to_vec(), Vec::new())];
        for protocol in [Protocol::Classic, Protocol::Meta, Protocol::Resp] {
            let mut out = Vec::new();
            hits(protocol, &mut out, &pairs);
            misses(protocol, &mut out, 1);
            stored(protocol, &mut out);
            let (mut values, mut last) = (Vec::new(), Vec::new());
            for event in read(protocol, &out) {
                match event {
                    Event::Value { value, .. } => values.push(value),
                    event => last.push(event),
                }
            }
            assert_eq!(values, [b"1\r\n2".as_slice(), b""], "{protocol:?}");
            let miss = if protocol == Protocol::Classic { Event::End } else { Event::Miss };
            assert!(last.ends_with(&[miss, Event::Stored]), "{protocol:?}: {last:?}");
        }
    }
}
