//! Patterns of keys, by Redis's rules: `*`, `?`, `[a-c]`, `[^a]`, `\x`.

/// Whether the pattern matches the whole text.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let Some((&first, rest)) = text.split_first() else { return pattern.is_empty() };
    let Some((&kind, after)) = pattern.split_first() else { return false };
    let (holds, after) = match kind {
        b'*' => {
            let stars = after.iter().take_while(|&&byte| byte == b'*').count();
            let after = &after[stars..];
            return after.is_empty() || (0..text.len()).any(|at| matches(after, &text[at..]));
        }
        b'?' => (true, after),
        b'[' => class(after, first),
        b'\\' if !after.is_empty() => (after[0] == first, &after[1..]),
        other => (other == first, after),
    };
    // At the end of the text only stars may be left.
    holds && if rest.is_empty() { after.iter().all(|&byte| byte == b'*') } else { matches(after, rest) }
}

/// Whether the class that begins here contains the byte, and the pattern behind the class. A class without an
/// end ends with the pattern.
fn class(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let (not, mut left) = match pattern {
        [b'^', left @ ..] => (true, left),
        left => (false, left),
    };
    let mut has = false;
    loop {
        left = match left {
            [] => return (has != not, left),
            [b']', after @ ..] => return (has != not, after),
            [b'\\', escaped, after @ ..] => {
                has |= *escaped == byte;
                after
            }
            [from, b'-', to, after @ ..] => {
                has |= (*from.min(to)..=*from.max(to)).contains(&byte);
                after
            }
            [one, after @ ..] => {
                has |= *one == byte;
                after
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, holds) in [
            ("*", "a", true),
            ("a*", "a", true),
            ("a?b", "axb", true),
            ("a?b", "ab", false),
            ("[ab]", "b", true),
            ("[^ab]", "b", false),
            ("[b-a]", "a", true),
            ("[a", "a", true),
            ("[", "a", false),
            ("\\a", "a", true),
            ("\\", "\\", true),
            ("key:*", "key:1", true),
            ("*:[1-2]", "key:3", false),
            ("", "a", false),
            ("", "", true),
            ("**", "", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), holds, "{pattern} {text}");
        }
    }
}
