//! Patterns as KEYS, SCAN and PSUBSCRIBE have them: `*`, `?`, `[a-c]`, `[^a]`, `\x`.

/// True if all of `text` matches `pattern`. Takes time in proportion to the product of the lengths at
/// worst, whatever the pattern: of several stars only the last one is tried again.
pub(crate) fn matches(pattern: &[u8], text: &[u8], any_case: bool) -> bool {
    // In Redis not even `**` matches nothing; that `*` does is for those who ask to know.
    if text.is_empty() {
        return pattern.is_empty();
    }
    let (mut p, mut t) = (0, 0);
    // Where the last star is, and where what it stands for ends.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, t));
            p += 1;
            continue;
        }
        let step = match (pattern.get(p), text.get(t)) {
            (None, None) => return true,
            (Some(_), Some(&byte)) => one(&pattern[p..], byte, any_case),
            (None, Some(_)) | (Some(_), None) => None,
        };
        match (step, star) {
            (Some(bytes), _) => {
                p += bytes;
                t += 1;
            }
            (None, Some((after, end))) if end < text.len() => {
                star = Some((after, end + 1));
                p = after;
                t = end + 1;
            }
            (None, _) => return false,
        }
    }
}

fn same(one: u8, other: u8, any_case: bool) -> bool {
    one == other || any_case && one.eq_ignore_ascii_case(&other)
}

/// Matches one byte with the start of a pattern that is no star; how much of the pattern that was.
fn one(pattern: &[u8], byte: u8, any_case: bool) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'[', rest @ ..] => {
            let (held, bytes) = class(rest, byte, any_case);
            held.then_some(bytes + 1)
        }
        [b'\\', escaped, ..] => same(*escaped, byte, any_case).then_some(2),
        [literal, ..] => same(*literal, byte, any_case).then_some(1),
        [] => None,
    }
}

/// A class behind its bracket: whether the byte is in it, and the bytes up to its end.
fn class(pattern: &[u8], byte: u8, any_case: bool) -> (bool, usize) {
    let not = pattern.first() == Some(&b'^');
    let mut at = usize::from(not);
    let mut held = false;
    loop {
        match pattern[at..] {
            [b'\\', escaped, ..] => {
                held |= same(escaped, byte, any_case);
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [from, b'-', to, ..] => {
                let fold = |b: u8| if any_case { b.to_ascii_lowercase() } else { b };
                let (from, to) = (fold(from.min(to)), fold(from.max(to)));
                held |= (from..=to).contains(&fold(byte));
                at += 3;
            }
            [literal, ..] => {
                held |= same(literal, byte, any_case);
                at += 1;
            }
            // An open class ends with the pattern.
            [] => break,
        }
    }
    (held != not, at)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_redis_matches_them() {
        for (pattern, text) in [
            ("", ""),
            ("*", "abc"),
            ("h?llo", "hello"),
            ("h*llo", "heeeello"),
            ("h[ae]llo", "hallo"),
            ("h[^e]llo", "hallo"),
            ("h[a-b]llo", "hbllo"),
            ("h[b-a]llo", "hallo"),
            ("a\\*b", "a*b"),
            ("*a*b*c*", "xxaxxbxxcxx"),
            ("[\\]]", "]"),
            ("a**b", "ab"),
            ("[abc", "b"),
        ] {
            assert!(matches(pattern.as_bytes(), text.as_bytes(), false), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            // As in Redis, where KEYS * and SCAN of all keys do not ask.
            ("*", ""),
            ("h?llo", "hllo"),
            ("h[^e]llo", "hello"),
            ("a\\*b", "axb"),
            ("*a", "ab"),
            ("[a-c]", "d"),
            ("ABC", "abc"),
        ] {
            assert!(!matches(pattern.as_bytes(), text.as_bytes(), false), "{pattern} {text}");
        }
        assert!(matches(b"A[B-C]?", b"abz", true));
    }

    #[test]
    fn many_stars_do_not_take_for_ever() {
        let pattern = "a*".repeat(50) + "b";
        assert!(!matches(pattern.as_bytes(), &[b'a'; 5000], false));
    }
}
