//! Twitter's cache traces: `time,key,bytes of the key,bytes of the value,client,operation,TTL`, times in whole seconds.
//!
//! Keys were made anonymous: one that became shorter is padded with dots, so that an item keeps its size. The size of a read's
//! value is that of the value read, and 0 if unknown.

use std::collections::VecDeque;

use larder_protocol::client::KEY_BYTES_MAX;

use super::{Kind, Line, Op, number};

pub(super) fn parse(line: &[u8], ops: &mut VecDeque<Op>) -> Line {
    match read(line) {
        Some(op) => {
            ops.push_back(op);
            Line::Asks
        }
        None => Line::Bad,
    }
}

fn read(line: &[u8]) -> Option<Op> {
    // A key may have commas in it, nothing else has.
    let mut last = line.rsplitn(6, |&byte| byte == b',');
    let (ttl, operation, _client) = (last.next()?, last.next()?, last.next()?);
    let (value_bytes, key_bytes, rest) = (last.next()?, last.next()?, last.next()?);
    let comma = rest.iter().position(|&byte| byte == b',')?;
    let (time, key) = (number::<u64>(&rest[..comma])?, &rest[comma + 1..]);
    let (kind, partly) = match operation {
        b"get" | b"gets" => (Kind::Read, false),
        b"set" | b"add" | b"replace" | b"cas" => (Kind::Write, false),
        b"append" | b"prepend" | b"incr" | b"decr" => (Kind::Write, true),
        b"delete" => (Kind::Delete, false),
        _ => return None,
    };
    if key.is_empty() {
        return None;
    }
    let key_bytes = number::<usize>(key_bytes)?.min(KEY_BYTES_MAX);
    let mut op = Op::new(Some(time.checked_mul(1_000_000)?), kind, key);
    op.key.resize(key_bytes.max(key.len()), b'.');
    op.value_bytes = Some(number(value_bytes)?);
    op.ttl_s = number(ttl)?;
    op.partly = partly;
    Some(op)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_request() {
        let mut op = read(b"12,nz:u:eeW5,12,99,5,set,3600").unwrap();
        assert_eq!(
            (op.at_us, op.kind, op.value_bytes, op.ttl_s),
            (Some(12_000_000), Kind::Write, Some(99), 3600)
        );
        assert_eq!(op.key, b"nz:u:eeW5...", "as long as it was");
        op = read(b"0,a,b,1,0,5,gets,0").unwrap();
        assert_eq!((op.key.as_slice(), op.kind), (&b"a,b"[..], Kind::Read));
        assert!(read(b"0,k,1,8,5,incr,0").unwrap().partly);
        assert_eq!(read(b"0,k,1,8,5,delete,0").unwrap().kind, Kind::Delete);
        for bad in
            ["", "0,k,1,8,5,get", "x,k,1,8,5,get,0", "0,k,1,8,5,touch,0", "0,k,1,,5,get,0", "0,,1,8,5,get,0"]
        {
            assert_eq!(read(bad.as_bytes()), None, "{bad}");
        }
    }
}
