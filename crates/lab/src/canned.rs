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

/// Appends the reply to a write that was done.
pub fn stored(protocol: Protocol, out: &mut Vec<u8>) {
    out.extend_from_slice(match protocol {
        Protocol::Classic => b"STORED\r\n".as_slice(),
        Protocol::Meta => b"HD\r\n",
        Protocol::Resp => b"+OK\r\n",
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_protocol::client::Event;

    #[test]
    fn canned_replies_are_read_back_as_what_they_say() {
        let pairs = [(b"a".to_vec(), b"1\r\n2".to_vec()), (b"b".to_vec(), Vec::new())];
        for protocol in [Protocol::Classic, Protocol::Meta, Protocol::Resp] {
            let mut out = Vec::new();
            hits(protocol, &mut out, &pairs);
            misses(protocol, &mut out, 1);
            stored(protocol, &mut out);
            let (mut values, mut last, mut rest) = (Vec::new(), Vec::new(), &out[..]);
            while !rest.is_empty() {
                let (event, used) = protocol.event(rest).unwrap().expect("it is whole");
                match event {
                    Event::Value { value, .. } => values.push(value),
                    event => last.push(event),
                }
                rest = &rest[used..];
            }
            assert_eq!(values, [b"1\r\n2".as_slice(), b""], "{protocol:?}");
            let miss = if protocol == Protocol::Classic { Event::End } else { Event::Miss };
            assert!(last.ends_with(&[miss, Event::Stored]), "{protocol:?}: {last:?}");
        }
    }
}
