//! The last writes of clients, and whether they can be read over another connection.

use std::mem;
use std::time::Instant;

use larder_protocol::client::{Answer, Asked, Protocol};

use super::Replay;
use crate::books::LIVES_S;
use crate::dialog::{Agent, Dialog, Step, Taken, answer};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::tally::Tally;
use crate::value::{self, NAMED_BYTES_MIN};

/// Writes that each client remembers.
const RECENT: usize = 32;

/// The last write of a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wrote {
    key: Vec<u8>,
    hash: u64,
    version: u64,
    bytes: usize,
}

/// The last writes of a client, each of another key.
#[derive(Debug, Default)]
pub(super) struct Recent {
    wrote: Vec<Wrote>,
    /// The place of the next write, when there are as many as it remembers.
    next: usize,
}

impl Recent {
    /// Remembers that a value of this version and size was stored.
    pub(super) fn wrote(&mut self, key: &[u8], hash: u64, (version, bytes): (u64, usize), ttl_s: u32) {
        if ttl_s > 0 && ttl_s < LIVES_S {
            return self.forget(hash);
        }
        let at = match self.wrote.iter().position(|wrote| wrote.hash == hash) {
            Some(at) => at,
            None if self.wrote.len() < RECENT => {
                self.wrote.push(Wrote::default());
                self.wrote.len() - 1
            }
            None => {
                self.next = (self.next + 1) % RECENT;
                self.next
            }
        };
        let wrote = &mut self.wrote[at];
        wrote.key.clear();
        wrote.key.extend_from_slice(key);
        (wrote.hash, wrote.version, wrote.bytes) = (hash, version, bytes);
    }

    /// Forgets a key whose contents are unknown now.
    pub(super) fn forget(&mut self, hash: u64) {
        self.wrote.retain(|wrote| wrote.hash != hash);
    }

    pub(super) fn take(&mut self) -> Vec<Wrote> {
        mem::take(&mut self.wrote)
    }
}

impl Replay {
    /// Reads the last writes over another connection, and verifies them: a server that mixes keys up, or stores nothing,
    /// acknowledges writes like any other.
    ///
    /// # Errors
    /// The connection fails or a reply is malformed.
    pub fn read_back(
        &self,
        to: &Endpoint,
        wrote: Vec<Wrote>,
        cores: &[Option<usize>],
    ) -> Result<Tally, Error> {
        if wrote.is_empty() {
            return Ok(Tally::default());
        }
        let reader = Reader { protocol: self.protocol, wrote, asked: false, answered: 0 };
        let tallies = Dialog::connect(to, vec![reader], &cores[..1])?.run(self.time)?.tallies;
        Ok(tallies.into_iter().next().unwrap_or_default())
    }
}

/// The agent that reads all keys in one pipeline.
struct Reader {
    protocol: Protocol,
    wrote: Vec<Wrote>,
    asked: bool,
    answered: usize,
}

impl Agent for Reader {
    type Tally = Tally;

    fn next(&mut self, _now: Instant, _ending: bool, _tally: &mut Tally, out: &mut Vec<u8>) -> Step {
        if mem::replace(&mut self.asked, true) {
            return Step::Done;
        }
        self.wrote.iter().for_each(|wrote| self.protocol.get(out, [&wrote.key[..]]));
        Step::Request
    }

    fn reply(&mut self, bytes: &[u8], _now: Instant, tally: &mut Tally) -> Result<Taken, Error> {
        let Some((answer, used)) = answer(self.protocol, Asked::Get, bytes)? else {
            return Ok(Taken::Nothing);
        };
        let Wrote { ref key, hash, version, bytes } = self.wrote[self.answered];
        (tally.requests, tally.keys) = (tally.requests + 1, tally.keys + 1);
        match answer {
            Answer::Miss => tally.misses += 1,
            Answer::Value(have) => {
                tally.hits += 1;
                let version = if bytes < NAMED_BYTES_MIN { 0 } else { version };
                let found = value::verify(have, hash as u32);
                if have.len() != bytes || found != Ok(version) {
                    tally.mistake(|| {
                        let (key, length) = (key.escape_ascii(), have.len());
                        format!("{key} has {length} bytes, {found:?}, after {bytes} of version {version} were written")
                    });
                }
            }
            Answer::Stored | Answer::Deleted => return Err(Error::malformed(b"no value")),
            Answer::Refused(line) => tally.mistake(|| format!("refused: {}", line.escape_ascii())),
        }
        self.answered += 1;
        Ok(if self.answered == self.wrote.len() { Taken::All(used) } else { Taken::More(used) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_write_of_each_of_the_last_keys_is_remembered() {
        let mut recent = Recent::default();
        for hash in 1..=RECENT as u64 + 3 {
            recent.wrote(b"k", hash, (hash, 1), 0);
        }
        recent.wrote(b"again", 10, (99, 2), LIVES_S);
        recent.forget(11);
        recent.wrote(b"short", 12, (100, 3), 1);
        let wrote = recent.take();
        assert_eq!(wrote.len(), RECENT - 2);
        assert!(wrote.iter().all(|wrote| ![2, 3, 4, 11, 12].contains(&wrote.hash)), "{wrote:?}");
        assert!(wrote.contains(&Wrote { key: b"again".to_vec(), hash: 10, version: 99, bytes: 2 }));
    }

    #[test]
    fn what_is_read_back_must_be_what_was_written_last() {
        let wrote = |hash: u64| Wrote { key: format!("k{hash}").into_bytes(), hash, version: 5, bytes: 30 };
        let list = (1..=4).map(wrote).collect();
        let mut reader = Reader { protocol: Protocol::Resp, wrote: list, asked: false, answered: 0 };
        let (now, mut tally, mut out) = (Instant::now(), Tally::default(), Vec::new());
        assert_eq!(reader.next(now, false, &mut tally, &mut out), Step::Request);
        let mut come = Vec::new();
        for (hash, version) in [(1, 5), (2, 4), (4, 5)] {
            come.extend_from_slice(b"$30\r\n");
            value::write(&mut come, hash, version, 30);
            come.extend_from_slice(b"\r\n");
        }
        come.extend_from_slice(b"$-1\r\n");
        let mut rest = &come[..];
        while let Taken::More(used) = reader.reply(rest, now, &mut tally).unwrap() {
            rest = &rest[used..];
        }
        // Whole; an older version; another key's; gone.
        assert_eq!((tally.hits, tally.misses, tally.wrong), (3, 1, 2), "{:?}", tally.first_wrong);
        assert_eq!(reader.next(now, false, &mut tally, &mut out), Step::Done);
    }
}
