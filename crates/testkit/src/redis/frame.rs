//! A RESP reply, parsed as far as needed to compare two of them.

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    /// Its first line, without the end.
    pub line: Vec<u8>,
    /// The bytes that follow a length.
    pub body: Option<Vec<u8>>,
    /// Its elements.
    pub inside: Vec<Frame>,
}

impl Frame {
    /// The first reply of `bytes` and its length; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The bytes are no reply.
    pub fn read(bytes: &[u8]) -> Result<Option<(Frame, usize)>, String> {
        let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
        let line = bytes[..end].to_vec();
        let mut at = end + 2;
        let kind = *line.first().ok_or("an empty line is no reply")?;
        let wrong = || format!("no reply: {}", crate::pattern::escaped(&line));
        let count =
            || -> Result<i64, String> { String::from_utf8_lossy(&line[1..]).parse().map_err(|_| wrong()) };
        let mut frame = Frame { line: line.clone(), body: None, inside: Vec::new() };
        match kind {
            b'+' | b'-' | b':' | b',' | b'#' | b'_' | b'(' => {}
            b'$' | b'=' | b'!' => {
                let Ok(length) = usize::try_from(count()?) else { return Ok(Some((frame, at))) };
                if bytes.len() < at + length + 2 {
                    return Ok(None);
                }
                frame.body = Some(bytes[at..at + length].to_vec());
                if &bytes[at + length..at + length + 2] != b"\r\n" {
                    return Err(wrong());
                }
                at += length + 2;
            }
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let elements = count()?.max(0) * if matches!(kind, b'%' | b'|') { 2 } else { 1 };
                for _ in 0..elements {
                    let Some((inside, length)) = Frame::read(&bytes[at..])? else { return Ok(None) };
                    frame.inside.push(inside);
                    at += length;
                }
                if kind == b'|' {
                    // Attributes belong to the reply that follows them.
                    let Some((inside, length)) = Frame::read(&bytes[at..])? else { return Ok(None) };
                    frame.inside.push(inside);
                    at += length;
                }
            }
            _ => return Err(wrong()),
        }
        Ok(Some((frame, at)))
    }

    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        self.line.first() == Some(&b'-')
    }

    /// Its number, if it is one.
    pub fn number(&self) -> Option<i64> {
        let text = self.line.strip_prefix(b":")?;
        std::str::from_utf8(text).ok()?.parse().ok()
    }

    /// The reply in words.
    pub fn shown(&self) -> String {
        let mut text = crate::pattern::escaped(&self.line).replace("\\$", "$");
        if let Some(body) = &self.body {
            text.push(' ');
            text.push_str(&crate::pattern::escaped(body));
        }
        for inside in &self.inside {
            text.push_str(&format!(" [{}]", inside.shown()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_end_where_they_end() {
        for whole in [
            "+OK\r\n",
            "$-1\r\n",
            "$3\r\na\r\n\r\n",
            "*2\r\n:1\r\n$1\r\nx\r\n",
            "%1\r\n+a\r\n*0\r\n",
            "_\r\n",
            "*-1\r\n",
        ] {
            let more = format!("{whole}+more\r\n");
            let (frame, length) = Frame::read(more.as_bytes()).expect("a reply").expect("whole");
            assert_eq!(length, whole.len(), "{}", frame.shown());
            for cut in 1..whole.len() {
                assert_eq!(Frame::read(&whole.as_bytes()[..cut]), Ok(None), "{whole:?} to {cut}");
            }
        }
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for text in ["\r\n", "hello\r\n", "$x\r\n", "$1\r\nabc\r\n"] {
            assert!(Frame::read(text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
