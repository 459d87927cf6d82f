//! Reads replies of memcached's text out of bytes.

use super::line::{Malformed, VALUE_BYTES_MAX, counter, line, number};
use super::{Dialect, Kind};

/// Why a server did not carry out a request, by its line's first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `ERROR`: the server does not know the command.
    Unknown,
    /// `CLIENT_ERROR`.
    Client,
    /// `SERVER_ERROR`.
    Server,
}

/// The status of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Carried out: `HD`; `STORED`, `DELETED`, `TOUCHED`, `OK`.
    #[default]
    Done,
    /// A value follows: `VA`, `VALUE`.
    Value,
    /// There is no such item: `EN`, `NF`; `END`, `NOT_FOUND`.
    Absent,
    /// The condition of an add, replace, append or prepend did not hold: `NS`, `NOT_STORED`.
    NotStored,
    /// The item has another token: `EX`, `EXISTS`.
    Exists,
    /// A number, in the line itself (classic).
    Number(u64),
    /// The reply to a barrier.
    Barrier,
    /// The server's version is the text.
    Version,
    /// Not done; the reason is the text.
    Refused(Refusal),
}

/// Marks of a meta reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The item had been read before (`h1`).
    pub hit_before: bool,
    /// The item is stale: the client that has won is to store a new one (`X`).
    pub stale: bool,
    /// This client has won and is to store a new one (`W`).
    pub won: bool,
    /// Another client has won (`Z`).
    pub pending: bool,
}

/// A reply without its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head<'b> {
    /// The status.
    pub status: Status,
    /// Bytes of the value, if the status is [`Status::Value`].
    pub value_bytes: usize,
    /// What follows the value.
    pub trailer: &'static [u8],
    /// The client flags.
    pub flags: u32,
    /// The item's token.
    pub cas: u64,
    /// Seconds until the item expires; −1: never.
    pub ttl: i64,
    /// Length of the value, if the request asked for it.
    pub size: u64,
    /// Seconds since the last read.
    pub last_access: i64,
    /// Stale, won, pending, hit before.
    pub marks: Marks,
    /// The number that the request carried.
    pub opaque: Option<u32>,
    /// The rest of a refusal's line, or the version.
    pub text: &'b [u8],
    /// The key of a classic hit.
    pub key: Option<&'b [u8]>,
}

impl<'b> Head<'b> {
    /// Reads the line at the start of `bytes`, which answers a request of this kind, and its length; `None` while it is
    /// incomplete.
    ///
    /// # Errors
    /// [`Malformed`], as early as possible.
    pub fn read(
        dialect: Dialect,
        kind: Kind,
        bytes: &'b [u8],
    ) -> Result<Option<(Head<'b>, usize)>, Malformed> {
        let Some((line, used)) = line(bytes)? else { return Ok(None) };
        let head = match refusal(line) {
            Some(head) => head,
            None if dialect == Dialect::Classic || matches!(kind, Kind::Version | Kind::FlushAll) => {
                Head::classic(kind, line)?
            }
            None => Head::meta(line)?,
        };
        if answers(dialect, kind, head.status) { Ok(Some((head, used))) } else { Err(Malformed) }
    }

    /// The same head without text and key.
    pub fn unborrowed(&self) -> Head<'static> {
        Head {
            status: self.status,
            value_bytes: self.value_bytes,
            trailer: self.trailer,
            flags: self.flags,
            cas: self.cas,
            ttl: self.ttl,
            size: self.size,
            last_access: self.last_access,
            marks: self.marks,
            opaque: self.opaque,
            text: &[],
            key: None,
        }
    }

    fn status(status: Status) -> Head<'b> {
        Head { status, ..Head::default() }
    }

    fn meta(line: &'b [u8]) -> Result<Head<'b>, Malformed> {
        let Some((word, mut rest)) = line.split_at_checked(2) else { return Err(Malformed) };
        let mut head = Head::status(match word {
            b"HD" => Status::Done,
            b"VA" => Status::Value,
            b"EN" | b"NF" => Status::Absent,
            b"NS" => Status::NotStored,
            b"EX" => Status::Exists,
            b"MN" => Status::Barrier,
            _ => return Err(Malformed),
        });
        if head.status == Status::Value {
            rest = rest.strip_prefix(b" ").ok_or(Malformed)?;
            let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
            head.value_bytes = value_bytes(&rest[..end])?;
            head.trailer = b"\r\n";
            rest = &rest[end..];
        }
        while let Some(more) = rest.strip_prefix(b" ") {
            let end = more.iter().position(|&byte| byte == b' ').unwrap_or(more.len());
            // memcached before 1.6.20 leaves a space at the end of some lines.
            if let Some((letter, token)) = more[..end].split_first() {
                head.flag(*letter, token)?;
            } else if end < more.len() {
                return Err(Malformed);
            }
            rest = &more[end..];
        }
        if rest.is_empty() { Ok(head) } else { Err(Malformed) }
    }

    fn flag(&mut self, letter: u8, token: &[u8]) -> Result<(), Malformed> {
        match letter {
            b'f' => self.flags = u32::try_from(number(token)?).map_err(|_| Malformed)?,
            b'c' => self.cas = number(token)?,
            b't' if token == b"-1" => self.ttl = -1,
            b't' => self.ttl = seconds(token)?,
            b'l' => self.last_access = seconds(token)?,
            b'h' => self.marks.hit_before = token == b"1",
            b'O' => self.opaque = Some(base36(token)?),
            b's' => self.size = number(token)?,
            b'W' => self.marks.won = true,
            b'X' => self.marks.stale = true,
            b'Z' => self.marks.pending = true,
            // A server may send these although they were not asked for.
            b'k' | b'b' => {}
            _ => return Err(Malformed),
        }
        Ok(())
    }

    fn classic(kind: Kind, line: &'b [u8]) -> Result<Head<'b>, Malformed> {
        let status = match (line, kind) {
            (b"STORED", Kind::Store) | (b"DELETED", Kind::Delete) => Status::Done,
            (b"TOUCHED", Kind::Touch) | (b"OK", Kind::FlushAll) => Status::Done,
            (b"END", Kind::Get) => Status::Absent,
            (b"NOT_FOUND", Kind::Touch | Kind::Store | Kind::Delete | Kind::Count) => Status::Absent,
            (b"NOT_STORED", Kind::Store) => Status::NotStored,
            (b"EXISTS", Kind::Store) => Status::Exists,
            (_, Kind::Count) => Status::Number(counter(line)?),
            (_, Kind::Get) => return Head::hit(line.strip_prefix(b"VALUE ").ok_or(Malformed)?),
            (_, Kind::Version | Kind::Barrier) => {
                let text = line.strip_prefix(b"VERSION ").ok_or(Malformed)?;
                return Ok(Head { text, ..Head::status(Status::Version) });
            }
            _ => return Err(Malformed),
        };
        Ok(Head::status(status))
    }

    /// Reads a key, flags, bytes and, if it is there, a token.
    fn hit(line: &'b [u8]) -> Result<Head<'b>, Malformed> {
        let mut words = line.split(|&byte| byte == b' ');
        let (Some(key), Some(flags), Some(bytes)) = (words.next(), words.next(), words.next()) else {
            return Err(Malformed);
        };
        let cas = words.next().map_or(Ok(0), number)?;
        if key.is_empty() || words.next().is_some() {
            return Err(Malformed);
        }
        Ok(Head {
            value_bytes: value_bytes(bytes)?,
            trailer: b"\r\nEND\r\n",
            flags: u32::try_from(number(flags)?).map_err(|_| Malformed)?,
            cas,
            key: Some(key),
            ..Head::status(Status::Value)
        })
    }
}

/// Errors that any request may be answered with.
fn refusal(line: &[u8]) -> Option<Head<'_>> {
    let words: [(&[u8], Refusal); 3] = [
        (b"ERROR", Refusal::Unknown),
        (b"CLIENT_ERROR", Refusal::Client),
        (b"SERVER_ERROR", Refusal::Server),
    ];
    words.into_iter().find_map(|(word, refusal)| {
        let rest = line.strip_prefix(word)?;
        let text = if rest.is_empty() { rest } else { rest.strip_prefix(b" ")? };
        Some(Head { text, ..Head::status(Status::Refused(refusal)) })
    })
}

/// True if this may be the answer to a request of this kind.
fn answers(dialect: Dialect, kind: Kind, status: Status) -> bool {
    match status {
        Status::Refused(_) => true,
        Status::Done => matches!(kind, Kind::Touch | Kind::Store | Kind::Delete | Kind::FlushAll),
        Status::Value => matches!(kind, Kind::Get | Kind::Count),
        Status::Absent => {
            matches!(kind, Kind::Get | Kind::Touch | Kind::Store | Kind::Delete | Kind::Count)
        }
        Status::NotStored => matches!(kind, Kind::Store | Kind::Count),
        Status::Exists => matches!(kind, Kind::Store | Kind::Delete | Kind::Count),
        Status::Number(_) => dialect == Dialect::Classic && kind == Kind::Count,
        Status::Barrier => kind == Kind::Barrier,
        Status::Version => matches!(kind, Kind::Version | Kind::Barrier),
    }
}

/// Reads an opaque.
fn base36(letters: &[u8]) -> Result<u32, Malformed> {
    if letters.is_empty() || letters.len() > 7 {
        return Err(Malformed);
    }
    let number = letters.iter().try_fold(0_u64, |number, &letter| match letter {
        b'0'..=b'9' => Some(number * 36 + u64::from(letter - b'0')),
        b'a'..=b'z' => Some(number * 36 + u64::from(letter - b'a') + 10),
        _ => None,
    });
    number.and_then(|number| u32::try_from(number).ok()).ok_or(Malformed)
}

fn seconds(digits: &[u8]) -> Result<i64, Malformed> {
    i64::try_from(number(digits)?).map_err(|_| Malformed)
}

fn value_bytes(digits: &[u8]) -> Result<usize, Malformed> {
    usize::try_from(number(digits)?).ok().filter(|&bytes| bytes <= VALUE_BYTES_MAX).ok_or(Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::LINE_BYTES_MAX;
    use proptest::prelude::*;

    const KINDS: [Kind; 8] = [
        Kind::Get,
        Kind::Touch,
        Kind::Store,
        Kind::Delete,
        Kind::Count,
        Kind::Barrier,
        Kind::Version,
        Kind::FlushAll,
    ];

    fn meta(kind: Kind, line: &str) -> Result<Option<(Head<'_>, usize)>, Malformed> {
        Head::read(Dialect::Meta, kind, line.as_bytes())
    }

    fn classic(kind: Kind, line: &str) -> Result<Option<(Head<'_>, usize)>, Malformed> {
        Head::read(Dialect::Classic, kind, line.as_bytes())
    }

    #[test]
    fn a_meta_hit_says_what_was_asked() {
        let line = "VA 5 f7 c42 t-1 l3 h1 s5 Oz W X Z\r\nhello\r\n";
        let (head, used) = meta(Kind::Get, line).expect("a reply").expect("a whole line");
        let marks = Marks { hit_before: true, stale: true, won: true, pending: true };
        assert_eq!(
            head,
            Head {
                status: Status::Value,
                value_bytes: 5,
                trailer: b"\r\n",
                flags: 7,
                cas: 42,
                ttl: -1,
                size: 5,
                last_access: 3,
                marks,
                opaque: Some(35),
                ..Head::default()
            }
        );
        assert_eq!(&line[used..], "hello\r\n");
    }

    #[test]
    fn a_classic_hit_has_its_key_and_its_token() {
        let line = "VALUE k 7 5 42\r\nhello\r\nEND\r\n";
        let (head, used) = classic(Kind::Get, line).expect("a reply").expect("a whole line");
        assert_eq!((head.status, head.value_bytes, head.flags, head.cas), (Status::Value, 5, 7, 42));
        assert_eq!((head.key, head.trailer), (Some(b"k".as_slice()), b"\r\nEND\r\n".as_slice()));
        assert_eq!(&line[used..], "hello\r\nEND\r\n");
    }

    #[test]
    fn each_status_answers_what_it_can_answer() {
        let status = |reply: Result<Option<(Head<'_>, usize)>, Malformed>| {
            reply.map(|head| head.expect("whole").0.status)
        };
        for (kind, line, said) in [
            (Kind::Store, "HD\r\n", Status::Done),
            (Kind::Get, "EN\r\n", Status::Absent),
            (Kind::Delete, "NF O7\r\n", Status::Absent),
            (Kind::Store, "NS \r\n", Status::NotStored),
            (Kind::Store, "EX\r\n", Status::Exists),
            (Kind::Barrier, "MN\r\n", Status::Barrier),
            (Kind::Version, "VERSION 1.6\r\n", Status::Version),
            (Kind::Get, "SERVER_ERROR out of memory\r\n", Status::Refused(Refusal::Server)),
            (Kind::Get, "CLIENT_ERROR bad\r\n", Status::Refused(Refusal::Client)),
            (Kind::Get, "ERROR\r\n", Status::Refused(Refusal::Unknown)),
        ] {
            assert_eq!(status(meta(kind, line)), Ok(said), "{line:?}");
        }
        for (kind, line, said) in [
            (Kind::Store, "STORED\r\n", Status::Done),
            (Kind::Store, "EXISTS\r\n", Status::Exists),
            (Kind::Touch, "TOUCHED\r\n", Status::Done),
            (Kind::Get, "END\r\n", Status::Absent),
            (Kind::Count, "12  \r\n", Status::Number(12)),
            (Kind::Barrier, "VERSION 1.4\r\n", Status::Version),
            (Kind::FlushAll, "OK\r\n", Status::Done),
        ] {
            assert_eq!(status(classic(kind, line)), Ok(said), "{line:?}");
        }
        for (kind, line) in [
            (Kind::Get, "HD\r\n"),
            (Kind::Store, "VA 1\r\n"),
            (Kind::Touch, "EX\r\n"),
            (Kind::Barrier, "EN\r\n"),
            (Kind::Store, "MN\r\n"),
            (Kind::Get, "VA\r\n"),
            (Kind::Get, "VA x\r\n"),
            (Kind::Get, "VA 2147483648\r\n"),
            (Kind::Get, "VA 1 q\r\n"),
            (Kind::Get, "VA 1  c2\r\n"),
            (Kind::Store, "HD\n"),
            (Kind::Store, "\r\n"),
            (Kind::Store, "ERRORS\r\n"),
        ] {
            assert_eq!(meta(kind, line), Err(Malformed), "{line:?}");
        }
        for (kind, line) in [
            (Kind::Get, "STORED\r\n"),
            (Kind::Store, "END\r\n"),
            (Kind::Count, "x\r\n"),
            (Kind::Get, "VALUE k 1\r\n"),
            (Kind::Get, "VALUE  1 2\r\n"),
            (Kind::Get, "VALUE k 1 2 3 4\r\n"),
            (Kind::Get, "VALUE k 4294967296 2\r\n"),
            (Kind::Get, "NOT_FOUND\r\n"),
        ] {
            assert_eq!(classic(kind, line), Err(Malformed), "{line:?}");
        }
    }

    #[test]
    fn a_line_has_a_longest_length() {
        let line = format!("SERVER_ERROR {}\r\n", "x".repeat(LINE_BYTES_MAX - 15));
        assert_eq!(line.len(), LINE_BYTES_MAX);
        assert!(meta(Kind::Get, &line).is_ok_and(|head| head.is_some()));
        assert_eq!(meta(Kind::Get, &line[..LINE_BYTES_MAX - 1]), Ok(None));
        assert_eq!(meta(Kind::Get, &format!("{}\r\n", &line[..LINE_BYTES_MAX - 1])), Err(Malformed));
    }

    proptest! {
        /// Any bytes are a complete reply, the beginning of one, or none. A complete reply does not depend on what follows it.
        #[test]
        fn any_bytes_are_read_without_a_panic(
            bytes in proptest::collection::vec(proptest::sample::select(b"VAHDENSX 0123456789cftO\r\nxk".to_vec()), 0..60),
        ) {
            for dialect in [Dialect::Meta, Dialect::Classic] {
                for kind in KINDS {
                    let whole = Head::read(dialect, kind, &bytes);
                    if let Ok(Some((head, used))) = whole {
                        prop_assert!(used <= bytes.len());
                        prop_assert_eq!(Head::read(dialect, kind, &bytes[..used]), Ok(Some((head, used))));
                        prop_assert_eq!(Head::read(dialect, kind, &bytes[..used - 1]), Ok(None));
                    }
                }
            }
        }
    }
}
