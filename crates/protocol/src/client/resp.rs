//! Redis's commands as clients write them: arrays of words.
//!
//! ```text
//! *2\r\n$3\r\nGET\r\n$1\r\nk\r\n
//! ```

use crate::resp::{HEAD_BYTES_MAX, write_head};

/// Appends a command. The first word is its name.
pub fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    begin(out, words.len());
    words.iter().for_each(|bytes| word(out, bytes));
}

/// Appends one word of a command.
pub fn word(out: &mut Vec<u8>, bytes: &[u8]) {
    begin_word(out, bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Appends the head of a command with this many words.
pub(super) fn begin(out: &mut Vec<u8>, words: usize) {
    head(out, b'*', words);
}

/// Appends the head of a word with this many bytes. The word and a line end have to follow.
pub(super) fn begin_word(out: &mut Vec<u8>, bytes: usize) {
    head(out, b'$', bytes);
}

fn head(out: &mut Vec<u8>, kind: u8, n: usize) {
    let mut text = [0; HEAD_BYTES_MAX];
    let bytes = write_head(&mut text, kind, n as u64);
    out.extend_from_slice(&text[..bytes]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Decoded, Limits, decode};

    #[test]
    fn a_command_is_read_back_as_its_words() {
        let long = vec![b'v'; 70_000];
        let words: [&[u8]; 4] = [b"SET", b"k\r\n", b"", &long];
        let mut out = Vec::new();
        command(&mut out, &words);
        assert!(out.starts_with(b"*4\r\n$3\r\nSET\r\n$3\r\nk\r\n\r\n$0\r\n\r\n$70000\r\nv"));
        let limits = Limits { bulk_bytes_max: 1 << 20, authenticated: true };
        let Decoded::Request(args, bytes) = decode(&out, &limits) else { panic!("it is a request") };
        assert_eq!((args.collect::<Vec<_>>(), bytes), (words.to_vec(), out.len()));
    }
}
