//! The client that runs a pattern, in order: one connection, with requests together as far as none depends on the answer to
//! another.
//!
//! ```text
//! some steps: sets and gets in one piece ─▶ their replies ─▶ sets of loads that missed ─▶ the next
//! ```
//!
//! Each value has its key and the number of its write in it, and is verified.

use std::time::{Duration, Instant};

use larder_protocol::client::{Answer, Asked, Protocol};

use super::patterns::{Course, KEY_BYTES, Request, Verb};
use crate::contender::Contender;
use crate::dialog::{Agent, Dialog, Step, Taken, answer};
use crate::error::Error;
use crate::shift::seen::Seen;
use crate::value;

/// Steps that are sent together at most.
const STEPS_MAX: u64 = 32;
/// A group is also at most this part of the keys that fit, so that a loaded value still exists when it is read again.
const STEPS_SHARE: u64 = 32;
/// Longer than any course takes.
const FOR_EVER: Duration = Duration::from_secs(24 * 3600);

/// A course that is running.
pub struct Walker {
    course: Course,
    steps: u64,
    protocol: Protocol,
    value_bytes: usize,
    /// The requests under way, and how many of them are answered.
    requests: Vec<Request>,
    answered: usize,
    /// Loads that missed among `requests`; they are written next.
    missed: Vec<Request>,
    loading: bool,
    /// A write was refused, so the key may have an older value.
    refused: bool,
    key: Vec<u8>,
}

/// Runs a course on a server in which `fits` keys fit. Returns the result and what was read.
///
/// # Errors
/// The connection fails or a reply is malformed.
pub fn walk(
    server: &Contender,
    course: Course,
    fits: u64,
    value_bytes: usize,
    core: Option<usize>,
) -> Result<(f64, Seen), Error> {
    let walker = Walker::new(course, fits, server.protocol(Protocol::Classic), value_bytes);
    let mut dialog = Dialog::connect(server.endpoint(), vec![walker], &[core])?;
    let outcome = dialog.run(FOR_EVER)?;
    let mut seen = Seen::default();
    outcome.tallies.into_iter().for_each(|tally| seen.merge(tally));
    let walker = dialog.agents().next().expect("there is one");
    Ok((walker.course.hit_ratio(), seen))
}

/// A number in a value that names its key.
fn name(id: u64) -> u32 {
    value::seed(id, 0, 0) as u32
}

/// Adds to a count, without a time.
fn count(seen: &mut Seen) -> &mut crate::shift::seen::Bin {
    seen.bin(Duration::ZERO, Duration::MAX)
}

impl Walker {
    fn new(course: Course, fits: u64, protocol: Protocol, value_bytes: usize) -> Walker {
        Walker {
            course,
            steps: (fits / STEPS_SHARE).clamp(1, STEPS_MAX),
            protocol,
            value_bytes,
            requests: Vec::new(),
            answered: 0,
            missed: Vec::new(),
            loading: false,
            refused: false,
            key: Vec::new(),
        }
    }

    fn ask(&mut self, out: &mut Vec<u8>) {
        for &Request { id, verb, version, .. } in &self.requests {
            self.key.clear();
            self.key.extend_from_slice(format!("{id:0width$x}", width = KEY_BYTES as usize).as_bytes());
            if verb == Verb::Set || self.loading {
                self.protocol.begin_set(out, &self.key, self.value_bytes, 0);
                value::write(out, name(id), version.into(), self.value_bytes);
                self.protocol.end_set(out, 0);
            } else {
                self.protocol.get(out, [&self.key[..]]);
            }
        }
        self.answered = 0;
    }

    fn verify(&self, request: Request, have: &[u8], seen: &mut Seen) {
        let found = value::verify(have, name(request.id));
        let newest = u64::from(request.version);
        let right = |version| version == newest || self.refused && version < newest;
        if have.len() != self.value_bytes || !found.is_ok_and(right) {
            seen.wrong += 1;
            seen.first.get_or_insert_with(|| {
                let bytes = have.len();
                format!(
                    "key {:x}: {bytes} bytes in place of {}, {found:?}, version {newest}",
                    request.id, self.value_bytes
                )
            });
        }
    }
}

impl Agent for Walker {
    type Tally = Seen;

    fn next(&mut self, _now: Instant, ending: bool, _seen: &mut Seen, out: &mut Vec<u8>) -> Step {
        self.loading = !self.missed.is_empty();
        if self.loading {
            self.requests.clear();
            self.requests.append(&mut self.missed);
        } else {
            self.requests.clear();
            if ending || self.course.is_done() {
                return Step::Done;
            }
            (0..self.steps).for_each(|_| self.course.step(&mut self.requests));
        }
        self.ask(out);
        Step::Request
    }

    fn reply(&mut self, bytes: &[u8], _now: Instant, seen: &mut Seen) -> Result<Taken, Error> {
        let request = self.requests[self.answered];
        let asked = if request.verb == Verb::Set || self.loading { Asked::Set } else { Asked::Get };
        let Some((answer, used)) = answer(self.protocol, asked, bytes)? else { return Ok(Taken::Nothing) };
        match answer {
            Answer::Value(have) => {
                let bin = count(seen);
                (bin.gets, bin.hits) = (bin.gets + 1, bin.hits + 1);
                self.verify(request, have, seen);
                self.course.note(request, true, false);
            }
            Answer::Miss => {
                count(seen).gets += 1;
                let loads = request.verb == Verb::Load;
                // A key that is loaded twice in one group is written once.
                let new = loads && self.missed.iter().all(|missed| missed.id != request.id);
                if new {
                    self.missed.push(request);
                }
                self.course.note(request, false, new);
            }
            Answer::Stored => {
                let bin = count(seen);
                bin.sets += 1;
                bin.set_bytes += KEY_BYTES + self.value_bytes as u64;
                if !self.loading {
                    self.course.note(request, false, false);
                }
            }
            Answer::Refused(line) if asked == Asked::Set => {
                self.refused = true;
                seen.refused += 1;
                seen.first.get_or_insert_with(|| line.escape_ascii().to_string());
                if !self.loading {
                    self.course.note(request, false, false);
                }
            }
            Answer::Refused(line) => {
                return Err(Error::Reply(format!("a get was refused: {}", line.escape_ascii())));
            }
            Answer::Deleted => return Err(Error::Reply("a reply to a delete".to_owned())),
        }
        self.answered += 1;
        Ok(if self.answered < self.requests.len() { Taken::More(used) } else { Taken::All(used) })
    }
}

#[cfg(test)]
mod tests {
    use super::super::patterns::Shape;
    use super::*;

    fn walker(shape: Shape, fits: u64) -> Walker {
        Walker::new(Course::new(shape, fits, 0, false), fits, Protocol::Classic, 24)
    }

    /// Runs a course on a map that keeps writes, or on one that holds nothing; returns the reads and the share of hits.
    fn walked(shape: Shape, fits: u64, keeps: bool) -> (Seen, f64) {
        let now = Instant::now();
        let (mut walker, mut seen) = (walker(shape, fits), Seen::default());
        let mut stored = std::collections::HashMap::new();
        let mut out = Vec::new();
        while walker.next(now, false, &mut seen, &mut out) == Step::Request {
            let mut replies = Vec::new();
            let mut asked = &out[..];
            while !asked.is_empty() {
                let end = asked.iter().position(|&byte| byte == b'\n').unwrap() + 1;
                let key = asked[4..20].to_vec();
                if asked.starts_with(b"get ") {
                    let value: Option<&Vec<u8>> = stored.get(&key).filter(|_| keeps);
                    if let Some(value) = value {
                        replies
                            .extend_from_slice(&[b"VALUE ", &key[..], b" 0 24\r\n", value, b"\r\n"].concat());
                    }
                    replies.extend_from_slice(b"END\r\n");
                    asked = &asked[end..];
                } else {
                    stored.insert(key, asked[end..end + 24].to_vec());
                    replies.extend_from_slice(b"STORED\r\n");
                    asked = &asked[end + 26..];
                }
            }
            let mut replies = &replies[..];
            loop {
                match walker.reply(replies, now, &mut seen).unwrap() {
                    Taken::More(used) => replies = &replies[used..],
                    Taken::All(used) => break assert_eq!(used, replies.len()),
                    Taken::Nothing => panic!("a reply is cut"),
                }
            }
            out.clear();
        }
        (seen, walker.course.hit_ratio())
    }

    #[test]
    fn a_server_that_forgets_nothing_has_every_read_of_what_was_written() {
        for shape in [
            Shape::Later { distance: 0.5, reads: 2 },
            Shape::Sessions { distance: 0.3, times: 8 },
            Shape::Return { distance: 0.8 },
            Shape::Loop { over: 1.2 },
        ] {
            let (seen, ratio) = walked(shape, 100, true);
            assert_eq!((seen.wrong, ratio), (0, 1.0), "{shape:?}: {:?}", seen.first);
        }
        let (seen, ratio) = walked(Shape::Zipf { alpha: 0.9, over: 4.0, lone: 0.5 }, 200, true);
        assert!(seen.wrong == 0 && (0.3..0.5).contains(&ratio), "half come once: {ratio}");
    }

    #[test]
    fn a_server_that_holds_nothing_has_no_hit_and_is_written_what_is_loaded() {
        let (seen, ratio) = walked(Shape::Return { distance: 0.5 }, 100, false);
        let (gets, hits, sets) = seen.totals();
        assert_eq!((hits, ratio), (0, 0.0));
        // A group may load a key twice.
        assert!(sets <= gets && sets * 10 > gets * 9, "{gets} gets, {sets} sets");
    }

    #[test]
    fn a_session_that_is_older_than_its_last_write_is_wrong() {
        let mut seen = Seen::default();
        let (walker, mut have) = (walker(Shape::Loop { over: 0.8 }, 100), Vec::new());
        value::write(&mut have, name(5), 2, 24);
        let request = |id, version| Request { id, verb: Verb::Get, counts: true, version };
        walker.verify(request(5, 2), &have, &mut seen);
        assert_eq!(seen.wrong, 0);
        walker.verify(request(5, 3), &have, &mut seen);
        walker.verify(request(6, 2), &have, &mut seen);
        assert_eq!(seen.wrong, 2);
    }

    #[test]
    fn filling_writes_and_reads_nothing() {
        let mut course = Course::filling(1 << 20, 1_000);
        let (mut requests, mut sets) = (Vec::new(), 0);
        while !course.is_done() {
            course.step(&mut requests);
            for request in requests.drain(..) {
                assert_eq!(request.verb, Verb::Set);
                course.note(request, false, true);
                sets += 1;
            }
        }
        assert_eq!(sets, (1 << 20) / 1_016 * 15 / 10);
    }
}
