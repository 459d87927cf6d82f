//! Records of memcached.
//!
//! ```text
//! ts=1500000000.17 gid=5 type=item_get key=a%20b status=found clsid=1 cfd=28 size=3       watch fetchers
//! ts=1500000000.17 gid=6 type=item_store key=k status=stored cmd=set ttl=60 … size=5      watch mutations
//! ts=1500000000.17 gid=7 <28 set k 0 60 5                                                 watch rawcmds
//! <28 get k l                                                                             a server with -vv
//! ```
//!
//! µs have no leading zeros here: `.17` is 17 µs. Keys are encoded as in URIs. Older servers give no sizes.

use std::collections::VecDeque;

use super::{Kind, Line, Op, number};

pub(super) fn parse(line: &[u8], ops: &mut VecDeque<Op>) -> Line {
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).peekable();
    let at_us = match words.peek().and_then(|word| word.strip_prefix(b"ts=")) {
        None => None,
        Some(time) => {
            let mut parts = time.splitn(2, |&byte| byte == b'.');
            let seconds =
                parts.next().and_then(number::<u64>).and_then(|seconds| seconds.checked_mul(1_000_000));
            let us = parts.next().and_then(number::<u64>);
            let Some(at_us) = seconds.zip(us).and_then(|(seconds, us)| seconds.checked_add(us)) else {
                return Line::Bad;
            };
            words.next();
            if words.next_if(|word| word.starts_with(b"gid=")).is_none() {
                return Line::Bad;
            }
            Some(at_us)
        }
    };
    match words.peek() {
        Some(word) if at_us.is_some() && word.starts_with(b"type=") => item(at_us, line, ops),
        Some(word) if word.first() == Some(&b'<') && number::<u64>(&word[1..]).is_some() => {
            words.next();
            let rest: Vec<&[u8]> = words.collect();
            command(at_us, &rest, ops)
        }
        _ if at_us.is_some() => Line::Bad,
        // Lines about replies and slabs, and the answer to `watch`.
        _ if line.starts_with(b">") || line.starts_with(b"slab class") || matches!(line, b"" | b"OK") => {
            Line::Other
        }
        _ => Line::Bad,
    }
}

/// An item that was fetched, stored or deleted.
fn item(at_us: Option<u64>, line: &[u8], ops: &mut VecDeque<Op>) -> Line {
    let field = |name: &[u8]| {
        line.split(|&byte| byte == b' ').find_map(|word| word.strip_prefix(name)?.strip_prefix(b"="))
    };
    let (kind, partly) = match (field(b"type"), field(b"cmd")) {
        (Some(b"item_get"), _) => (Kind::Read, false),
        (Some(b"item_store"), Some(b"append" | b"prepend")) => (Kind::Write, true),
        (Some(b"item_store"), _) => (Kind::Write, false),
        (Some(b"deleted"), _) => (Kind::Delete, false),
        (Some(_), _) => return Line::Other,
        (None, _) => return Line::Bad,
    };
    let Some(key) = field(b"key").and_then(decoded).filter(|key| !key.is_empty()) else { return Line::Bad };
    let mut op = Op::new(at_us, kind, &key);
    op.value_bytes = field(b"size").and_then(number);
    op.ttl_s = field(b"ttl").and_then(number).unwrap_or(0);
    op.partly = partly;
    ops.push_back(op);
    Line::Asks
}

/// A command as a client sent it.
fn command(at_us: Option<u64>, words: &[&[u8]], ops: &mut VecDeque<Op>) -> Line {
    let mut add = |kind, key: &[u8], value_bytes: Option<u32>, ttl_s: u32, partly| {
        ops.push_back(Op { value_bytes, ttl_s, partly, ..Op::new(at_us, kind, key) });
        Line::Asks
    };
    // A time in the past, or a date, is no length of time.
    const MONTH: u32 = 30 * 86_400;
    let ttl = |word: &[u8]| number::<u32>(word).filter(|&ttl_s| ttl_s <= MONTH).unwrap_or(0);
    match *words {
        [b"get" | b"gets", ref keys @ ..] if !keys.is_empty() => {
            for key in keys {
                add(Kind::Read, key, None, 0, false);
            }
            Line::Asks
        }
        [b"gat" | b"gats", _, ref keys @ ..] if !keys.is_empty() => {
            for key in keys {
                add(Kind::Read, key, None, 0, false);
            }
            Line::Asks
        }
        [b"mg", key, ..] => add(Kind::Read, key, None, 0, false),
        [
            name @ (b"set" | b"add" | b"replace" | b"cas" | b"append" | b"prepend"),
            key,
            _,
            exptime,
            bytes,
            ..,
        ] => {
            let Some(bytes) = number(bytes) else { return Line::Bad };
            add(Kind::Write, key, Some(bytes), ttl(exptime), matches!(name, b"append" | b"prepend"))
        }
        [b"ms", key, bytes, ref flags @ ..] => {
            let Some(bytes) = number(bytes) else { return Line::Bad };
            let ttl_s = flags.iter().find_map(|flag| Some(ttl(flag.strip_prefix(b"T")?))).unwrap_or(0);
            add(Kind::Write, key, Some(bytes), ttl_s, false)
        }
        [b"incr" | b"decr", key, _, ..] | [b"ma", key, ..] => add(Kind::Write, key, None, 0, true),
        [b"delete" | b"md", key, ..] => add(Kind::Delete, key, None, 0, false),
        [] => Line::Bad,
        _ => Line::Other,
    }
}

/// A key that is encoded as in URIs.
fn decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut key = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, more)) = rest.split_first() {
        rest = more;
        if byte != b'%' {
            key.push(byte);
            continue;
        }
        let (digits, more) = rest.split_at_checked(2)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        key.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
        rest = more;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(line: &str) -> (Line, Vec<Op>) {
        let mut ops = VecDeque::new();
        let what = parse(line.as_bytes(), &mut ops);
        (what, ops.into())
    }

    #[test]
    fn watched_items_are_requests() {
        let (what, found) =
            ops("ts=10.17 gid=5 type=item_get key=a%20b status=not_found clsid=0 cfd=28 size=0");
        assert_eq!((what, found[0].kind, found[0].at_us), (Line::Asks, Kind::Read, Some(10_000_017)));
        assert_eq!((found[0].key.as_slice(), found[0].value_bytes), (&b"a b"[..], Some(0)));
        let (_, found) =
            ops("ts=10.17 gid=5 type=item_store key=k status=stored cmd=set ttl=60 clsid=1 cfd=28");
        assert_eq!((found[0].kind, found[0].ttl_s, found[0].value_bytes), (Kind::Write, 60, None));
        assert_eq!(
            ops("ts=1.2 gid=5 type=eviction key=k fetch=no ttl=-1 la=0 clsid=1 size=1").0,
            Line::Other
        );
        assert_eq!(ops("ts=1.2 gid=5 type=conn_new rip=::1 rport=1 transport=tcp cfd=3").0, Line::Other);
        for bad in [
            "ts=1 gid=5 type=item_get key=k",
            "ts=1.2 type=item_get key=k",
            "ts=1.2 gid=5 type=item_get key=%g0",
            "what",
        ] {
            assert_eq!(ops(bad).0, Line::Bad, "{bad}");
        }
    }

    #[test]
    fn commands_of_clients_are_requests() {
        let (_, found) = ops("ts=3.4 gid=9 <28 gets k l");
        assert_eq!((found.len(), found[1].key.as_slice(), found[1].at_us), (2, &b"l"[..], Some(3_000_004)));
        let (_, found) = ops("<28 set k 0 60 5");
        assert_eq!((found[0].at_us, found[0].value_bytes, found[0].ttl_s), (None, Some(5), 60));
        let (_, found) = ops("<28 ms k 7 T30 I");
        assert_eq!((found[0].kind, found[0].value_bytes, found[0].ttl_s), (Kind::Write, Some(7), 30));
        assert!(ops("<28 incr k 1").1[0].partly && ops("<28 append k 0 0 3").1[0].partly);
        assert_eq!(ops("<28 delete k").1[0].kind, Kind::Delete);
        for other in ["<28 stats", "<28 connection closed.", ">28 END", "slab class   1: chunk size 96", ""] {
            assert_eq!(ops(other).0, Line::Other, "{other}");
        }
        assert_eq!(ops("<28 set k 0 0 x").0, Line::Bad);
    }
}
