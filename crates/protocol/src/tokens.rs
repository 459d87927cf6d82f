//! Tokens of a line: runs of bytes between spaces (0x20 and nothing else).

/// Iterator over the tokens of a line without its end.
#[derive(Clone, Copy, Debug)]
pub struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    /// The tokens of `line`.
    #[inline]
    pub fn new(line: &'a [u8]) -> Tokens<'a> {
        Tokens { rest: line }
    }

    /// The rest of the line, with the spaces in front.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        while let [b' ', rest @ ..] = self.rest {
            self.rest = rest;
        }
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|&b| b == b' ').unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(token)
    }
}

/// True if the last token is `noreply`.
pub fn ends_in_noreply(line: &[u8]) -> bool {
    last(line) == Some(b"noreply")
}

/// The last token.
pub fn last(line: &[u8]) -> Option<&[u8]> {
    let end = line.iter().rposition(|&b| b != b' ')? + 1;
    let start = line[..end].iter().rposition(|&b| b == b' ').map_or(0, |space| space + 1);
    Some(&line[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_spaces_separates() {
        let all: Vec<&[u8]> = Tokens::new(b"  get  a\tb   c ").collect();
        assert_eq!(all, [&b"get"[..], b"a\tb", b"c"]);
        assert_eq!(Tokens::new(b"   ").next(), None);
    }

    #[test]
    fn noreply_counts_only_at_the_end() {
        assert!(ends_in_noreply(b"delete k noreply"));
        assert!(ends_in_noreply(b"noreply  "));
        assert!(!ends_in_noreply(b"set noreply 0 0 1"));
        assert!(!ends_in_noreply(b"set k xnoreply"));
        assert_eq!(last(b"  "), None);
    }
}
