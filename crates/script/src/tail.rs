//! `return redis.call(…)` keeps its place: as Lua has it that is a tail call, whose caller is forgotten, and with it the
//! line that an error is told with. In brackets it is none, and has the same one value.
//!
//! ```text
//! return redis.call('GET', KEYS[1])   ─►   return (redis.call('GET', KEYS[1]))
//! ```
//!
//! Only what ends its block is given brackets; lines stay as they are. A script that has a variable called as one of these tables
//! may have functions of its own in it, with more results: such calls stay, too.

use std::borrow::Cow;

/// Functions with one result whose errors say where they were called.
const FUNCTIONS: &[(&[u8], &[u8])] = &[
    (b"redis", b"call"),
    (b"redis", b"pcall"),
    (b"redis", b"sha1hex"),
    (b"server", b"call"),
    (b"server", b"pcall"),
    (b"server", b"sha1hex"),
    (b"redis", b"acl_check_cmd"),
    (b"server", b"acl_check_cmd"),
    (b"cjson", b"encode"),
    (b"cjson", b"decode"),
    (b"cmsgpack", b"pack"),
    (b"struct", b"pack"),
    (b"struct", b"size"),
    (b"string", b"format"),
    (b"string", b"lower"),
    (b"string", b"rep"),
    (b"string", b"reverse"),
    (b"string", b"sub"),
    (b"string", b"upper"),
    (b"table", b"concat"),
    (b"bit", b"arshift"),
    (b"bit", b"band"),
    (b"bit", b"bnot"),
    (b"bit", b"bor"),
    (b"bit", b"bswap"),
    (b"bit", b"bxor"),
    (b"bit", b"lshift"),
    (b"bit", b"rol"),
    (b"bit", b"ror"),
    (b"bit", b"rshift"),
    (b"bit", b"tobit"),
    (b"bit", b"tohex"),
];
/// What may come behind the last statement of a block.
const ENDS: &[&[u8]] = &[b"end", b"else", b"elseif", b"until", b";"];

/// A call of more words stays as it is.
const WORDS_MAX: usize = 256;

/// Words, signs and strings of a script, one after another.
#[derive(Clone, Copy)]
struct Tokens<'s> {
    source: &'s [u8],
    at: usize,
}

impl<'s> Tokens<'s> {
    /// Where the closing bracket of a long string or comment ends, whose opening one begins here; none if none does.
    fn long_end(&self, at: usize) -> Option<usize> {
        let rest = self.source.get(at..)?.strip_prefix(b"[")?;
        let level = rest.iter().take_while(|byte| **byte == b'=').count();
        if rest.get(level) != Some(&b'[') {
            return None;
        }
        let close = [&b"]"[..], &vec![b'='; level], b"]"].concat();
        let from = at + level + 2;
        let found = memchr::memmem::find(&self.source[from..], &close);
        Some(found.map_or(self.source.len(), |found| from + found + close.len()))
    }

    fn skip_blank(&mut self) {
        loop {
            let rest = &self.source[self.at..];
            if rest.starts_with(b"--") {
                self.at = self.long_end(self.at + 2).unwrap_or_else(|| {
                    let line = memchr::memchr(b'\n', rest);
                    line.map_or(self.source.len(), |end| self.at + end)
                });
            } else if rest.first().is_some_and(|byte| byte.is_ascii_whitespace() || *byte == 0x0B) {
                self.at += 1;
            } else {
                return;
            }
        }
    }

    /// Where a quoted string ends.
    fn quoted_end(&self) -> usize {
        let quote = self.source[self.at];
        let mut at = self.at + 1;
        while let Some(&byte) = self.source.get(at) {
            at += 1;
            if byte == b'\\' {
                at += 1;
            } else if byte == quote {
                break;
            }
        }
        at.min(self.source.len())
    }
}

impl<'s> Iterator for Tokens<'s> {
    type Item = &'s [u8];

    fn next(&mut self) -> Option<&'s [u8]> {
        self.skip_blank();
        let (start, &first) = (self.at, self.source.get(self.at)?);
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        self.at = match first {
            b'"' | b'\'' => self.quoted_end(),
            b'[' => self.long_end(start).unwrap_or(start + 1),
            byte if is_word(&byte) => {
                start + self.source[start..].iter().take_while(|byte| is_word(byte)).count()
            }
            _ => start + 1,
        };
        Some(&self.source[start..self.at])
    }
}

/// The table of a call that is returned, and where the call begins and ends, if what comes next is one and ends its block.
fn returned<'s>(mut tokens: Tokens<'s>) -> Option<(&'s [u8], usize, usize)> {
    tokens.skip_blank();
    let start = tokens.at;
    let table = tokens.next()?;
    if tokens.next()? != b"." || !FUNCTIONS.contains(&(table, tokens.next()?)) || tokens.next()? != b"(" {
        return None;
    }
    let mut depth = 1;
    for _ in 0..WORDS_MAX {
        match tokens.next()? {
            b"(" => depth += 1,
            b")" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    if depth > 0 {
        return None;
    }
    let end = tokens.at;
    let ends = tokens.next().is_none_or(|token| ENDS.contains(&token));
    ends.then_some((table, start, end))
}

/// Whether the script seems to have a variable of its own that is called so. Who passes the table on is taken for one, too, and
/// loses no more than the line of an error.
fn is_own(source: &[u8], name: &[u8]) -> bool {
    let tokens = Tokens { source, at: 0 };
    let (mut before, mut tokens) = (&b""[..], tokens.peekable());
    while let Some(token) = tokens.next() {
        if token == name {
            let next = tokens.peek().copied().unwrap_or_default();
            let listed =
                [&b","[..], b"("].contains(&before) && [&b","[..], b")", b"=", b"in"].contains(&next);
            if listed || [&b"local"[..], b"for", b"function"].contains(&before) {
                return true;
            }
        }
        before = token;
    }
    false
}

/// The script, whose returned calls are no tail calls.
pub(crate) fn untailed(source: &[u8]) -> Cow<'_, [u8]> {
    let mut changed: Option<Vec<u8>> = None;
    let (mut tokens, mut copied) = (Tokens { source, at: 0 }, 0);
    // Of each table that was met, whether it is the script's own.
    let mut known: Vec<(&[u8], bool)> = Vec::new();
    while let Some(token) = tokens.next() {
        if token == b"return"
            && let Some((table, start, end)) = returned(tokens)
        {
            let found = known.iter().find(|(name, _)| *name == table).map(|(_, own)| *own);
            let own = found.unwrap_or_else(|| {
                let own = is_own(source, table);
                known.push((table, own));
                own
            });
            if own {
                continue;
            }
            let text = changed.get_or_insert_default();
            text.extend_from_slice(&source[copied..start]);
            text.push(b'(');
            text.extend_from_slice(&source[start..end]);
            text.push(b')');
            (copied, tokens.at) = (end, end);
        }
    }
    match changed {
        None => Cow::Borrowed(source),
        Some(mut text) => {
            text.extend_from_slice(&source[copied..]);
            Cow::Owned(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returned_calls_are_given_brackets_where_they_end_their_block() {
        for (source, expected) in [
            ("return redis.call('GET', KEYS[1])", "return (redis.call('GET', KEYS[1]))"),
            ("if x then return redis.call('a') end", "if x then return (redis.call('a')) end"),
            ("return  redis . call ( f(1) ) ; ", "return  (redis . call ( f(1) )) ; "),
            ("return server.pcall(')')\n-- end", "return (server.pcall(')'))\n-- end"),
            ("return redis.call([[ ) ]]) --[[ x ]]", "return (redis.call([[ ) ]])) --[[ x ]]"),
            ("return cjson.encode(redis.call('a'))", "return (cjson.encode(redis.call('a')))"),
        ] {
            assert_eq!(String::from_utf8_lossy(&untailed(source.as_bytes())), expected);
        }
    }

    #[test]
    fn what_a_script_calls_so_itself_stays_as_it_is() {
        for own in [
            "local bit = {} return bit.band()",
            "local a, bit = 1, {} return bit.band()",
            "local function bit() end return bit.band()",
            "local f = function(x, bit) return bit.band() end",
            "for _, bit in pairs(t) do return bit.band() end",
            "for bit = 1, 2 do return bit.band() end",
        ] {
            assert_eq!(String::from_utf8_lossy(&untailed(own.as_bytes())), own);
        }
        assert_eq!(
            untailed(b"local x = bit.band(1) return bit.band(x)"),
            &b"local x = bit.band(1) return (bit.band(x))"[..]
        );
    }

    #[test]
    fn everything_else_stays_as_it_is() {
        for source in [
            "return string.find('a', 'b')",
            "",
            "return 1",
            "return redis.call('a')[1]",
            "return redis.call('a'), 2",
            "return redis.call('a') + 1",
            "return redis.status_reply('a')",
            "return redis.call('a'",
            "return redis.call",
            "return 'return redis.call(1)'",
            "-- return redis.call(1)",
            "--[[ return redis.call(1) ]]",
            "--[==[ ]] return redis.call(1) ]==]",
            "x = \"\\\" return redis.call(1)\"",
            "returned.redis.call(1)",
            "return redis.call{1}",
            "return \"",
            "--[[",
        ] {
            assert!(matches!(untailed(source.as_bytes()), Cow::Borrowed(_)), "{source}");
        }
    }
}
