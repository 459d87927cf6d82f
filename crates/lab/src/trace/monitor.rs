//! The output of Redis's MONITOR: `1339518083.107412 [0 127.0.0.1:60866] "set" "k" "value" "EX" "60"`.
//!
//! Bytes that are no letters are escaped, as in C. Commands on other types than strings, and all other commands, are skipped.

use std::collections::VecDeque;

use super::{Kind, Line, Op, seconds_us};

pub(super) fn parse(line: &[u8], ops: &mut VecDeque<Op>) -> Line {
    match read(line) {
        Some((at_us, words)) => ask(at_us, &words, ops),
        // The first line of MONITOR.
        None if matches!(line, b"OK" | b"+OK") => Line::Other,
        None => Line::Bad,
    }
}

/// The time, and the words of the command.
fn read(line: &[u8]) -> Option<(u64, Vec<Vec<u8>>)> {
    let space = line.iter().position(|&byte| byte == b' ')?;
    let at_us = seconds_us(line[..space].strip_prefix(b"+").unwrap_or(&line[..space]))?;
    let rest = line[space + 1..].strip_prefix(b"[")?;
    let mut rest = &rest[rest.iter().position(|&byte| byte == b']')? + 1..];
    let mut words = Vec::new();
    while let Some(word) = rest.strip_prefix(b" \"") {
        let (decoded, used) = quoted(word)?;
        words.push(decoded);
        rest = &word[used..];
    }
    (rest.is_empty() && !words.is_empty()).then_some((at_us, words))
}

/// A word up to its quotation mark, and its length including the mark.
fn quoted(text: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut word = Vec::new();
    let mut at = 0;
    loop {
        let byte = *text.get(at)?;
        at += 1;
        match byte {
            b'"' => return Some((word, at)),
            b'\\' => {
                let escaped = *text.get(at)?;
                at += 1;
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    b'x' => {
                        let digit = |byte: &u8| char::from(*byte).to_digit(16);
                        let (high, low) = (digit(text.get(at)?)?, digit(text.get(at + 1)?)?);
                        at += 2;
                        (high * 16 + low) as u8
                    }
                    other => other,
                });
            }
            byte => word.push(byte),
        }
    }
}

fn ask(at_us: u64, words: &[Vec<u8>], ops: &mut VecDeque<Op>) -> Line {
    let name = words[0].to_ascii_lowercase();
    let before = ops.len();
    let mut add = |kind, key: &[u8], value: Option<&Vec<u8>>, ttl_s, partly| {
        if !key.is_empty() {
            let value_bytes = value.map(|value: &Vec<u8>| value.len() as u32);
            ops.push_back(Op { value_bytes, ttl_s, partly, ..Op::new(Some(at_us), kind, key) });
        }
    };
    let seconds =
        |word: &[u8]| std::str::from_utf8(word).ok().and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    match (&name[..], &words[1..]) {
        (b"get" | b"getex" | b"getrange" | b"strlen", [key, ..]) => add(Kind::Read, key, None, 0, false),
        (b"mget", keys) => keys.iter().for_each(|key| add(Kind::Read, key, None, 0, false)),
        (b"set", [key, value, options @ ..]) => {
            let ttl_s = options.windows(2).find_map(|pair| match &pair[0].to_ascii_lowercase()[..] {
                b"ex" => Some(seconds(&pair[1])),
                b"px" => Some(seconds(&pair[1]).div_ceil(1000)),
                _ => None,
            });
            add(Kind::Write, key, Some(value), ttl_s.unwrap_or(0), false);
        }
        (b"setex", [key, ttl, value, ..]) => add(Kind::Write, key, Some(value), seconds(ttl), false),
        (b"psetex", [key, ttl, value, ..]) => {
            add(Kind::Write, key, Some(value), seconds(ttl).div_ceil(1000), false);
        }
        (b"setnx" | b"getset", [key, value, ..]) => add(Kind::Write, key, Some(value), 0, false),
        (b"mset" | b"msetnx", pairs) => {
            pairs.chunks_exact(2).for_each(|pair| add(Kind::Write, &pair[0], Some(&pair[1]), 0, false));
        }
        (b"append", [key, value, ..]) => add(Kind::Write, key, Some(value), 0, true),
        (b"incr" | b"decr" | b"incrby" | b"decrby" | b"incrbyfloat" | b"setrange" | b"setbit", [key, ..]) => {
            add(Kind::Write, key, None, 0, true);
        }
        (b"del" | b"unlink" | b"getdel", keys) => {
            keys.iter().for_each(|key| add(Kind::Delete, key, None, 0, false))
        }
        _ => {}
    }
    if ops.len() > before { Line::Asks } else { Line::Other }
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
    fn commands_on_strings_are_requests() {
        let at = "1339518083.107412 [0 127.0.0.1:60866] ";
        let (what, found) = ops(&format!("{at}\"SET\" \"a\\\"b\\x00\" \"1\\n3\" \"ex\" \"60\""));
        assert_eq!(
            (what, found[0].kind, found[0].at_us),
            (Line::Asks, Kind::Write, Some(1_339_518_083_107_412))
        );
        assert_eq!(
            (found[0].key.as_slice(), found[0].value_bytes, found[0].ttl_s),
            (&b"a\"b\0"[..], Some(3), 60)
        );
        assert_eq!(ops(&format!("{at}\"mget\" \"a\" \"b\"")).1.len(), 2);
        assert_eq!(ops(&format!("{at}\"psetex\" \"a\" \"1500\" \"v\"")).1[0].ttl_s, 2);
        assert_eq!(ops(&format!("{at}\"mset\" \"a\" \"1\" \"b\" \"22\"")).1[1].value_bytes, Some(2));
        assert!(ops(&format!("{at}\"incr\" \"a\"")).1[0].partly);
        assert_eq!(ops("1.5 [0 unix:/run/s] \"del\" \"a\"").1[0].kind, Kind::Delete);
        assert_eq!(ops("1.5 [0 lua] \"get\" \"a\"").1[0].kind, Kind::Read);
        for other in ["\"ping\"", "\"hset\" \"h\" \"f\" \"v\"", "\"get\""] {
            assert_eq!(ops(&format!("{at}{other}")).0, Line::Other, "{other}");
        }
    }

    #[test]
    fn what_is_cut_is_bad() {
        for bad in [
            "",
            "1.5 [0 x] \"get\" \"a",
            "1.5 [0 x] \"get\" \"a\\",
            "1.5 [0 x] get a",
            "1.5 0 \"get\" \"a\"",
            "1.5 [0 x]",
            "x [0 x] \"get\" \"a\"",
        ] {
            assert_eq!(ops(bad).0, Line::Bad, "{bad}");
        }
    }
}
