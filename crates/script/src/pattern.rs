//! Lua's patterns, matched within bounds: Lua's own matching goes as deep as the pattern is long, and a short pattern may
//! take it hours, in which nothing could end the script. Here depth has a bound, and steps are counted.
//!
//! ```text
//! '%a'  a class          '[a-z%d]' a set       '(…)' a capture, '()' a place     '%1' what was captured
//! '*' '+' '-' '?'  how often      '^' '$'  ends      '%b()' balanced      '%f[…]' a frontier
//! ```

use mlua::prelude::{LuaError, LuaResult};

use crate::answer::{error, no_memory};

/// Most captures of a pattern.
const CAPTURES_MAX: usize = 32;
/// Most choices within choices.
const DEPTH_MAX: usize = 200;
/// Steps between two looks at the clock.
const STEPS: usize = 1 << 12;
/// Bytes that are compared, or copied, in one step.
const STEP_BYTES: usize = 64;

/// What a match has captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capture {
    /// The bytes from one place to another.
    Text(usize, usize),
    /// A place.
    Place(usize),
    /// A bracket that nothing closes: an error, where it is asked for.
    Open,
}

/// The error for a capture that is asked for and whose bracket is not closed.
pub(crate) fn unfinished() -> LuaError {
    error("unfinished capture")
}

/// A match.
#[derive(Debug)]
pub(crate) struct Found {
    pub start: usize,
    pub end: usize,
    pub captures: Vec<Capture>,
}

/// A capture under way.
#[derive(Clone, Copy, Debug)]
enum Open {
    From(usize),
    Closed(Capture),
}

/// Counts the steps of one call, however many searches that is, and looks at the clock.
pub(crate) struct Looks<'l> {
    steps: usize,
    go_on: &'l dyn Fn() -> bool,
}

impl Looks<'_> {
    /// `go_on`: looks at the clock; false if the script ends.
    pub fn new(go_on: &dyn Fn() -> bool) -> Looks<'_> {
        Looks { steps: 0, go_on }
    }

    fn steps(&mut self, steps: usize) -> LuaResult<()> {
        self.steps += steps;
        if self.steps < STEPS {
            return Ok(());
        }
        self.steps = 0;
        if (self.go_on)() { Ok(()) } else { Err(error("script ended")) }
    }
}

struct Matcher<'m, 'l> {
    text: &'m [u8],
    pattern: &'m [u8],
    captures: Vec<Open>,
    looks: &'m mut Looks<'l>,
}

/// Where the match ends; `None` if nothing matches.
type Matched = LuaResult<Option<usize>>;

/// True if a byte is of a class; an upper-case letter means all other bytes.
fn is_class(byte: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0B,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return class == byte,
    };
    is != class.is_ascii_uppercase()
}

impl Matcher<'_, '_> {
    fn step(&mut self) -> LuaResult<()> {
        self.looks.steps(1)
    }

    /// Where the class that begins at `p` ends.
    fn class_end(&mut self, p: usize) -> LuaResult<usize> {
        let byte = |at: usize| self.pattern.get(at).copied();
        match byte(p) {
            Some(b'%') if p + 1 >= self.pattern.len() => Err(error("malformed pattern (ends with '%')")),
            Some(b'%') => Ok(p + 2),
            Some(b'[') => {
                let mut at = p + 1 + usize::from(byte(p + 1) == Some(b'^'));
                // A bracket that comes first is one of the set.
                loop {
                    self.step()?;
                    let first = byte(at).ok_or_else(|| error("malformed pattern (missing ']')"))?;
                    at += 1 + usize::from(first == b'%');
                    if byte(at) == Some(b']') {
                        return Ok(at + 1);
                    }
                }
            }
            _ => Ok(p + 1),
        }
    }

    /// True if a byte is of the set whose brackets are at `p` and `last`.
    fn is_of_set(&mut self, byte: u8, p: usize, last: usize) -> LuaResult<bool> {
        let pattern = self.pattern;
        let negated = pattern[p + 1] == b'^';
        let mut at = p + 1 + usize::from(negated);
        while at < last {
            self.step()?;
            if pattern[at] == b'%' {
                if is_class(byte, pattern[at + 1]) {
                    return Ok(!negated);
                }
                at += 2;
            } else if pattern[at + 1] == b'-' && at + 2 < last {
                if (pattern[at]..=pattern[at + 2]).contains(&byte) {
                    return Ok(!negated);
                }
                at += 3;
            } else if pattern[at] == byte {
                return Ok(!negated);
            } else {
                at += 1;
            }
        }
        Ok(negated)
    }

    /// True if the byte at `s` is of the single class from `p` to `end`.
    fn is_single(&mut self, s: usize, p: usize, end: usize) -> LuaResult<bool> {
        let Some(&byte) = self.text.get(s) else { return Ok(false) };
        match self.pattern[p] {
            b'.' => Ok(true),
            b'%' => Ok(is_class(byte, self.pattern[p + 1])),
            b'[' => self.is_of_set(byte, p, end - 1),
            only => Ok(only == byte),
        }
    }

    /// Matches the pattern from `p` on with the text from `s` on.
    fn matches(&mut self, mut s: usize, mut p: usize, depth: usize) -> Matched {
        if depth > DEPTH_MAX {
            return Err(error("pattern too complex"));
        }
        loop {
            self.step()?;
            let Some(&first) = self.pattern.get(p) else { return Ok(Some(s)) };
            let second = self.pattern.get(p + 1).copied();
            match (first, second) {
                (b'(', Some(b')')) => return self.open(s, p + 2, Open::Closed(Capture::Place(s)), depth),
                (b'(', _) => return self.open(s, p + 1, Open::From(s), depth),
                (b')', _) => return self.close(s, p + 1, depth),
                (b'$', None) => return Ok((s == self.text.len()).then_some(s)),
                (b'%', Some(b'b')) => match self.balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => {
                    p += 2;
                    if self.pattern.get(p) != Some(&b'[') {
                        return Err(error("missing '[' after '%f' in pattern"));
                    }
                    let end = self.class_end(p)?;
                    let before = s.checked_sub(1).map_or(0, |at| self.text[at]);
                    let here = self.text.get(s).copied().unwrap_or(0);
                    if self.is_of_set(before, p, end - 1)? || !self.is_of_set(here, p, end - 1)? {
                        return Ok(None);
                    }
                    p = end;
                }
                (b'%', Some(digit)) if digit.is_ascii_digit() => match self.again(s, digit)? {
                    Some(end) => (s, p) = (end, p + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = self.class_end(p)?;
                    match self.pattern.get(end) {
                        Some(b'?') => {
                            if self.is_single(s, p, end)?
                                && let Some(found) = self.matches(s + 1, end + 1, depth + 1)?
                            {
                                return Ok(Some(found));
                            }
                            p = end + 1;
                        }
                        Some(b'*') => return self.most(s, s, p, end, depth),
                        Some(b'-') => return self.least(s, p, end, depth),
                        _ if !self.is_single(s, p, end)? => return Ok(None),
                        Some(b'+') => return self.most(s + 1, s + 1, p, end, depth),
                        _ => (s, p) = (s + 1, end),
                    }
                }
            }
        }
    }

    /// Matches as many bytes of a class as there are from `s` on, then fewer, down to `least`.
    fn most(&mut self, least: usize, s: usize, p: usize, end: usize, depth: usize) -> Matched {
        let mut at = s;
        while self.is_single(at, p, end)? {
            self.step()?;
            at += 1;
        }
        loop {
            if let Some(found) = self.matches(at, end + 1, depth + 1)? {
                return Ok(Some(found));
            }
            if at == least {
                return Ok(None);
            }
            at -= 1;
        }
    }

    /// Matches as few bytes of a class as will do.
    fn least(&mut self, mut s: usize, p: usize, end: usize, depth: usize) -> Matched {
        loop {
            if let Some(found) = self.matches(s, end + 1, depth + 1)? {
                return Ok(Some(found));
            }
            if !self.is_single(s, p, end)? {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn open(&mut self, s: usize, p: usize, open: Open, depth: usize) -> Matched {
        if self.captures.len() >= CAPTURES_MAX {
            return Err(error("too many captures"));
        }
        self.captures.push(open);
        let found = self.matches(s, p, depth + 1)?;
        if found.is_none() {
            self.captures.pop();
        }
        Ok(found)
    }

    fn close(&mut self, s: usize, p: usize, depth: usize) -> Matched {
        let open = self.captures.iter().rposition(|capture| matches!(capture, Open::From(_)));
        let open = open.ok_or_else(|| error("invalid pattern capture"))?;
        let before = self.captures[open];
        if let Open::From(start) = before {
            self.captures[open] = Open::Closed(Capture::Text(start, s));
        }
        let found = self.matches(s, p, depth + 1)?;
        if found.is_none() {
            self.captures[open] = before;
        }
        Ok(found)
    }

    fn balanced(&mut self, s: usize, p: usize) -> Matched {
        let (Some(&open), Some(&close)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return Err(error("unbalanced pattern"));
        };
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for at in s + 1..self.text.len() {
            self.step()?;
            let byte = self.text[at];
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// Matches what was captured, once more.
    fn again(&mut self, s: usize, digit: u8) -> Matched {
        let captured = usize::from(digit).checked_sub(usize::from(b'1')).and_then(|at| self.captures.get(at));
        let Some(Open::Closed(Capture::Text(start, end))) = captured else {
            return Err(error("invalid capture index"));
        };
        let text = &self.text[*start..*end];
        self.looks.steps(text.len() / STEP_BYTES)?;
        Ok(self.text[s..].starts_with(text).then_some(s + text.len()))
    }
}

/// The first match from `init` on; `anchors`: a `^` at the beginning means that it begins there.
pub(crate) fn search(
    text: &[u8],
    pattern: &[u8],
    init: usize,
    anchors: bool,
    looks: &mut Looks<'_>,
) -> LuaResult<Option<Found>> {
    let anchored = anchors && pattern.first() == Some(&b'^');
    let pattern = if anchored { &pattern[1..] } else { pattern };
    let mut matcher = Matcher { text, pattern, captures: Vec::new(), looks };
    let last = if anchored { init } else { text.len() };
    for start in init..=last {
        matcher.captures.clear();
        let Some(end) = matcher.matches(start, 0, 0)? else { continue };
        let captured = |capture: &Open| match capture {
            Open::Closed(capture) => *capture,
            Open::From(_) => Capture::Open,
        };
        let captures = matcher.captures.iter().map(captured).collect();
        return Ok(Some(Found { start, end, captures }));
    }
    Ok(None)
}

/// Replaces up to `most` matches, from the first on, by `by`, in which `%1` is what was captured. Returns the text and the number
/// of matches. Up to the last match the text has at most `bytes_max` bytes; the rest behind that is not counted.
pub(crate) fn replace(
    text: &[u8],
    pattern: &[u8],
    by: &[u8],
    most: usize,
    bytes_max: usize,
    looks: &mut Looks<'_>,
) -> LuaResult<(Vec<u8>, usize)> {
    let anchored = pattern.first() == Some(&b'^');
    let (mut made, mut at, mut count) = (Vec::new(), 0, 0);
    while count < most {
        let Some(found) = search(text, pattern, at, true, looks)? else { break };
        count += 1;
        made.extend_from_slice(&text[at..found.start]);
        let before = made.len();
        put(&mut made, text, &found, by, bytes_max)?;
        looks.steps((made.len() - before) / STEP_BYTES)?;
        if made.len() > bytes_max {
            return Err(no_memory());
        }
        at = found.end;
        if found.end == found.start {
            let Some(&byte) = text.get(at) else { break };
            made.push(byte);
            at += 1;
        }
        if anchored {
            break;
        }
    }
    made.extend_from_slice(text.get(at..).unwrap_or_default());
    Ok((made, count))
}

/// Adds what replaces a match. Fails if there are more than `bytes_max` bytes then.
fn put(made: &mut Vec<u8>, text: &[u8], found: &Found, by: &[u8], bytes_max: usize) -> LuaResult<()> {
    let mut bytes = by.iter();
    while let Some(&byte) = bytes.next() {
        // What was captured may be long, and be wanted many times.
        if made.len() > bytes_max {
            return Err(no_memory());
        }
        match (byte, if byte == b'%' { bytes.next() } else { None }) {
            (b'%', Some(b'0')) => made.extend_from_slice(&text[found.start..found.end]),
            (b'%', Some(&digit)) if digit.is_ascii_digit() => {
                let at = usize::from(digit - b'1');
                match found.captures.get(at) {
                    Some(Capture::Text(start, end)) => made.extend_from_slice(&text[*start..*end]),
                    Some(Capture::Place(place)) => {
                        made.extend_from_slice((place + 1).to_string().as_bytes());
                    }
                    Some(Capture::Open) => return Err(unfinished()),
                    None if at == 0 => made.extend_from_slice(&text[found.start..found.end]),
                    None => return Err(error("invalid capture index")),
                }
            }
            (b'%', Some(&other)) => made.push(other),
            // Lua takes the zero behind its strings.
            (b'%', None) => made.push(0),
            (byte, _) => made.push(byte),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str, pattern: &str) -> Result<Option<(usize, usize, Vec<Capture>)>, String> {
        search(text.as_bytes(), pattern.as_bytes(), 0, true, &mut Looks::new(&|| true))
            .map(|found| found.map(|found| (found.start, found.end, found.captures)))
            .map_err(|error| crate::answer::text_of(&error))
    }

    fn gsub(text: &str, pattern: &str, by: &str) -> (String, usize) {
        let (made, count) = replace(
            text.as_bytes(),
            pattern.as_bytes(),
            by.as_bytes(),
            usize::MAX,
            1000,
            &mut Looks::new(&|| true),
        )
        .unwrap();
        (String::from_utf8(made).unwrap(), count)
    }

    #[test]
    fn patterns_match_as_luas_do() {
        let at = |text, pattern| find(text, pattern).unwrap().map(|(start, end, _)| (start, end));
        assert_eq!(at("hello world", "o w"), Some((4, 7)));
        assert_eq!(at("hello", "l+"), Some((2, 4)));
        assert_eq!(at("hello", "l-o"), Some((2, 5)));
        assert_eq!(at("hello", "^h"), Some((0, 1)));
        assert_eq!(at("hello", "^e"), None);
        assert_eq!(at("hello", "o$"), Some((4, 5)));
        assert_eq!(at("a$b", "$b"), Some((1, 3)));
        assert_eq!(at("f(a(b)c)d", "%b()"), Some((1, 8)));
        assert_eq!(at("THE (quick) fox", "%f[%a]%a+%f[%A]"), Some((0, 3)));
        assert_eq!(at("x-1", "[%a-]+"), Some((0, 2)));
        assert_eq!(at("]", "[]]"), Some((0, 1)));
        assert_eq!(at("a^", "[%^x]"), Some((1, 2)));
        assert_eq!(at("abc123", "[^%a]+"), Some((3, 6)));
        assert_eq!(at("key=value", "(%w+)=(%w+)"), Some((0, 9)));
        assert_eq!(at("", "a*"), Some((0, 0)));
        assert_eq!(at("aXb", "a.?b"), Some((0, 3)));
        assert_eq!(find("'x' \"y\"", "(['\"])(.-)%1").unwrap().unwrap().2.len(), 2);
        assert_eq!(find("ab", "a()b").unwrap().unwrap().2, [Capture::Place(1)]);
    }

    #[test]
    fn patterns_that_are_none_are_told() {
        for (pattern, told) in [
            ("%", "malformed pattern (ends with '%')"),
            ("[a", "malformed pattern (missing ']')"),
            ("[%", "malformed pattern (missing ']')"),
            ("[a-", "malformed pattern (missing ']')"),
            ("a)", "invalid pattern capture"),
            ("%1", "invalid capture index"),
            ("%b", "unbalanced pattern"),
            ("%f", "missing '[' after '%f' in pattern"),
        ] {
            assert_eq!(find("aaa", pattern).unwrap_err(), told, "{pattern}");
        }
        assert_eq!(find(&"a".repeat(50), &"(a".repeat(40)).unwrap_err(), "too many captures");
        assert_eq!(find(&"a".repeat(300), &"a?".repeat(300)).unwrap_err(), "pattern too complex");
    }

    #[test]
    fn what_a_bracket_captures_that_nothing_closes_is_an_error_where_it_is_asked_for() {
        assert_eq!(find("abc", "()(b").unwrap().unwrap().2, [Capture::Place(1), Capture::Open]);
        assert_eq!(gsub("abc", "(a", "%0y"), ("aybc".into(), 1));
        let asked = replace(b"abc", b"(a", b"%1y", 1, 100, &mut Looks::new(&|| true));
        assert_eq!(crate::answer::text_of(&asked.unwrap_err()), "unfinished capture");
    }

    #[test]
    fn a_search_without_end_is_ended() {
        let text = "a".repeat(200);
        let pattern = ".-".repeat(20) + "b";
        let ended = search(text.as_bytes(), pattern.as_bytes(), 0, true, &mut Looks::new(&|| false));
        assert_eq!(crate::answer::text_of(&ended.unwrap_err()), "script ended");
    }

    #[test]
    fn matches_of_one_call_are_looked_at_together_and_long_ones_the_more_often() {
        let looks = std::cell::Cell::new(0);
        let go_on = || {
            looks.set(looks.get() + 1);
            true
        };
        // Each search is a few steps.
        let text = [b'a'; 5 * STEPS];
        replace(&text, b"a", b"b", usize::MAX, text.len(), &mut Looks::new(&go_on)).unwrap();
        assert!((5..=20).contains(&looks.take()), "a look in so many steps");
        let backward = find_looks(&[&[b'a'; 8 * STEPS][..], b"b"].concat(), b"^(a-)%1x", &go_on, &looks);
        let plain = find_looks(&[&[b'a'; 8 * STEPS][..], b"b"].concat(), b"^(a-)x", &go_on, &looks);
        assert!(backward > 10 * plain, "{backward}, {plain}: what is compared again is work");
    }

    fn find_looks(
        text: &[u8],
        pattern: &[u8],
        go_on: &dyn Fn() -> bool,
        looks: &std::cell::Cell<u32>,
    ) -> u32 {
        search(text, pattern, 0, true, &mut Looks::new(go_on)).unwrap();
        looks.take()
    }

    /// What is captured is long, and wanted often: none of it is made that there is no room for.
    #[test]
    fn a_replacement_is_refused_before_it_is_made() {
        let text = vec![b'a'; 1 << 20];
        let by = b"%0".repeat(1 << 20);
        assert!(replace(&text, b".*", &by, 1, 2 << 20, &mut Looks::new(&|| true)).is_err());
    }

    #[test]
    fn matches_are_replaced() {
        assert_eq!(gsub("hello world", "o", "0"), ("hell0 w0rld".into(), 2));
        assert_eq!(gsub("abc", "", "-"), ("-a-b-c-".into(), 4));
        assert_eq!(gsub("abc", "%w", "%0%0"), ("aabbcc".into(), 3));
        assert_eq!(gsub("a b", "(%w) (%w)", "%2 %1"), ("b a".into(), 1));
        assert_eq!(gsub("abc", "b*", "x"), ("xaxxcx".into(), 4));
        assert_eq!(gsub("aaa", "^a", "b"), ("baa".into(), 1));
        assert_eq!(gsub("x", "x", "%%"), ("%".into(), 1));
        assert!(replace(b"x", b"x", b"%2", 1, 100, &mut Looks::new(&|| true)).is_err());
        assert!(replace(&[b'x'; 100], b"x", &[b'y'; 100], 200, 1000, &mut Looks::new(&|| true)).is_err());
    }
}
