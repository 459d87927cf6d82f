//! A connection of the HTTP listener, without its place in the loop: a head on its way in, or an answer on its way out.
//!
//! ```text
//!           whole head                 all is sent
//! Asking ───────────────► Answered ───────────────────► Asking
//!    │ refused, too late   ▲  │ it does not stay
//!    ├────────────────────►│  └────────► Leaving ──► closed
//!    │ later               │ its time has come
//!    └────────► Waiting ───┘
//! ```
//!
//! A connection that waits has a request that is to be asked about again at a time, or an answer that is to be sent then.
//! A connection that leaves is read a little longer, so that what its client still sends does not take the answer away from it.

use std::io::{self, Read, Write};

use larder_eventloop::Millis;
use larder_eventloop::poll::Interest;

use super::http::{Answer, HEAD_BYTES_MAX, Parsed, Request, Status, parse};

/// A head has so long to come.
pub const HEAD_MS: Millis = 5_000;
/// A connection on which nothing is asked stays so long.
pub const KEPT_MS: Millis = 60_000;
/// An answer has so long to go.
pub const ANSWER_MS: Millis = 20_000;
/// A client that is closed has so long to notice it.
pub const LEAVE_MS: Millis = 1_000;

/// A connection's stream, as far as it is used.
pub trait Stream: Read + Write {
    /// Ends the stream: nothing more is sent.
    fn end(&mut self);

    /// True if a read brings something, or the end, of which the system says nothing.
    fn has_received(&self) -> bool {
        false
    }

    /// True if bytes wait for room: written ones, or the stream's own.
    fn has_unsent(&self) -> bool {
        false
    }

    /// True while its handshake is not finished: it carries no bytes yet.
    fn is_opening(&self) -> bool {
        false
    }

    /// Bytes of memory that it takes.
    fn memory(&self) -> usize {
        0
    }
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Verdict {
    /// This is its answer.
    Answer(Answer),
    /// It is refused, and the connection ends.
    Refused(Status),
    /// This is its answer, to be sent at this time.
    AnswerAt(Answer, Millis),
    /// It is to be asked about again at this time.
    Later(Millis),
}

/// Decides what becomes of a request.
pub type Judge<'a> = dyn FnMut(&Request<'_>) -> Verdict + 'a;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asking,
    /// Until this time.
    Waiting(Millis),
    Answered,
    Leaving,
}

/// A connection.
#[derive(Debug)]
pub struct Client<S> {
    pub stream: S,
    state: State,
    head: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    stays: bool,
    /// When it came into this state, or began its head. A request that waits more than once waits since the first time.
    since: Millis,
}

/// The connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl<S: Stream> Client<S> {
    /// A connection that was just taken in.
    pub fn new(stream: S, now: Millis) -> Client<S> {
        Client {
            stream,
            state: State::Asking,
            head: Vec::new(),
            answer: Vec::new(),
            sent: 0,
            stays: true,
            since: now,
        }
    }

    /// What it waits for.
    pub fn interest(&self) -> Interest {
        match self.state {
            _ if self.stream.has_unsent() => Interest::Write,
            State::Asking | State::Leaving => Interest::Read,
            State::Waiting(_) => Interest::None,
            State::Answered => Interest::Write,
        }
    }

    /// When its time is over.
    pub fn due(&self) -> Millis {
        self.since
            + match self.state {
                State::Asking if self.head.is_empty() && !self.stream.is_opening() => KEPT_MS,
                State::Asking => HEAD_MS,
                State::Waiting(until) => return until,
                State::Answered => ANSWER_MS,
                State::Leaving => LEAVE_MS,
            }
    }

    /// It is being answered: others give up their seats before it.
    pub fn is_answered(&self) -> bool {
        self.state == State::Answered
    }

    /// Since when it is in its state.
    pub fn since(&self) -> Millis {
        self.since
    }

    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        self.head.capacity() + self.answer.capacity() + self.stream.memory()
    }

    /// Ends a connection whose time is over. A client that has sent a part of a head is told so.
    ///
    /// # Errors
    /// If it is to be closed.
    pub fn expire(&mut self, now: Millis) -> Result<(), Gone> {
        if self.state != State::Asking || self.head.is_empty() {
            return Err(Gone);
        }
        self.refuse(Status::RequestTimeout, now)
    }

    /// Goes on as far as the stream lets it; `judge` decides what becomes of a request.
    ///
    /// # Errors
    /// If it is to be closed.
    pub fn go_on(&mut self, now: Millis, judge: &mut Judge<'_>) -> Result<(), Gone> {
        if self.stream.has_unsent() {
            self.stream.flush().or_else(|error| waits(&error))?;
            if self.stream.has_unsent() {
                return Ok(());
            }
        }
        match self.state {
            State::Asking => self.receive(now, judge),
            State::Waiting(until) if now < until => Ok(()),
            State::Waiting(_) if self.answer.is_empty() => self.answer_next(now, judge),
            State::Waiting(_) => {
                let answer = std::mem::take(&mut self.answer);
                self.begin(answer, now)
            }
            State::Answered => self.send(now),
            State::Leaving => self.drain(),
        }
    }

    fn receive(&mut self, now: Millis, judge: &mut Judge<'_>) -> Result<(), Gone> {
        if self.has_request() {
            return self.answer_next(now, judge);
        }
        let mut bytes = [0; 2048];
        let room = HEAD_BYTES_MAX - self.head.len();
        let most = bytes.len().min(room);
        match self.stream.read(&mut bytes[..most]) {
            Ok(0) => return Err(Gone),
            Ok(got) => {
                if self.head.is_empty() {
                    self.since = now;
                }
                self.head.extend_from_slice(&bytes[..got]);
            }
            Err(error) => return waits(&error),
        }
        self.answer_next(now, judge)
    }

    /// True if a request is here that is to be answered.
    fn has_request(&self) -> bool {
        !self.head.is_empty() && parse(&self.head) != Parsed::Partial
    }

    /// True if it goes on at once, although the system says nothing: there is a request behind one that was answered, or bytes
    /// have come that were not read, or its time to wait is over.
    pub fn has_more(&self, now: Millis) -> bool {
        match self.state {
            // The stream's own bytes go out first. A client that does not take them in its time to wait is closed unanswered.
            _ if self.stream.has_unsent() => false,
            State::Asking => self.has_request() || self.stream.has_received(),
            State::Waiting(until) => now >= until,
            State::Answered | State::Leaving => false,
        }
    }

    /// Answers the request at the front of its input, if one is whole. One at a time: others have their turn before the
    /// next.
    fn answer_next(&mut self, now: Millis, judge: &mut Judge<'_>) -> Result<(), Gone> {
        let request = match parse(&self.head) {
            Parsed::Partial => return Ok(()),
            Parsed::Refused(status) => return self.refuse(status, now),
            Parsed::Whole(request) => request,
        };
        let (answer, at) = match judge(&request) {
            Verdict::Answer(answer) => (answer, None),
            Verdict::AnswerAt(answer, at) => (answer, Some(at)),
            Verdict::Refused(status) => return self.refuse(status, now),
            Verdict::Later(until) => {
                self.wait(until, now);
                return Ok(());
            }
        };
        let (bytes, stays) = (request.bytes, request.stays);
        let answer = answer.bytes(request.head_only, stays);
        self.head.drain(..bytes);
        self.stays = stays;
        let Some(at) = at else { return self.begin(answer, now) };
        self.answer = answer;
        self.wait(at, now);
        Ok(())
    }

    fn wait(&mut self, until: Millis, now: Millis) {
        if !matches!(self.state, State::Waiting(_)) {
            self.since = now;
        }
        self.state = State::Waiting(until);
    }

    fn refuse(&mut self, status: Status, now: Millis) -> Result<(), Gone> {
        self.head = Vec::new();
        self.stays = false;
        self.begin(Answer::refusal(status).bytes(false, false), now)
    }

    fn begin(&mut self, answer: Vec<u8>, now: Millis) -> Result<(), Gone> {
        (self.answer, self.sent, self.state, self.since) = (answer, 0, State::Answered, now);
        self.send(now)
    }

    fn send(&mut self, now: Millis) -> Result<(), Gone> {
        while self.sent < self.answer.len() {
            match self.stream.write(&self.answer[self.sent..]) {
                Ok(0) => return Err(Gone),
                Ok(sent) => self.sent += sent,
                Err(error) => return waits(&error),
            }
        }
        if self.stream.has_unsent() {
            return Ok(());
        }
        self.answer = Vec::new();
        self.since = now;
        self.state = if self.stays { State::Asking } else { State::Leaving };
        if !self.stays {
            self.stream.end();
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Gone> {
        match self.stream.read(&mut [0; 2048]) {
            Ok(0) => Err(Gone),
            Ok(_) => Ok(()),
            Err(error) => waits(&error),
        }
    }
}

/// `Ok` if the stream is not ready; else the connection has failed.
fn waits(error: &io::Error) -> Result<(), Gone> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(Gone),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::VecDeque;
    use std::rc::Rc;

    use super::*;
    use crate::admin::http::TEXT;

    /// A stream whose other end is the test: what comes in pieces, and how much is taken.
    #[derive(Clone, Default)]
    struct Wire {
        pieces: Rc<RefCell<VecDeque<Vec<u8>>>>,
        sent: Rc<RefCell<Vec<u8>>>,
        takes: Rc<Cell<usize>>,
        ended: Rc<Cell<bool>>,
        closed: Rc<Cell<bool>>,
    }

    impl Read for Wire {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let mut pieces = self.pieces.borrow_mut();
            let Some(piece) = pieces.front_mut() else {
                return if self.closed.get() { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
            };
            let count = piece.len().min(into.len());
            into[..count].copy_from_slice(&piece[..count]);
            piece.drain(..count);
            if piece.is_empty() {
                pieces.pop_front();
            }
            Ok(count)
        }
    }

    impl Write for Wire {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.takes.get());
            if count == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.takes.set(self.takes.get() - count);
            self.sent.borrow_mut().extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Stream for Wire {
        fn end(&mut self) {
            self.ended.set(true);
        }
    }

    impl Wire {
        fn new() -> Wire {
            let wire = Wire::default();
            wire.takes.set(usize::MAX);
            wire
        }

        fn say(&self, bytes: &str) {
            self.pieces.borrow_mut().push_back(bytes.as_bytes().to_vec());
        }

        fn heard(&self) -> String {
            String::from_utf8(self.sent.take()).expect("text")
        }
    }

    fn path_of(request: &Request<'_>) -> Verdict {
        Verdict::Answer(Answer::ok(TEXT, request.path.to_owned()))
    }

    const GET: &str = "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n";

    #[test]
    fn a_head_in_bytes_and_an_answer_in_bytes_are_whole() {
        let wire = Wire::new();
        let mut client = Client::new(wire.clone(), 0);
        for byte in GET.chars() {
            assert!(wire.heard().is_empty());
            wire.say(&byte.to_string());
            wire.takes.set(0);
            assert_eq!(client.go_on(1, &mut path_of), Ok(()));
        }
        assert_eq!((client.interest(), client.is_answered()), (Interest::Write, true));
        let mut heard = String::new();
        while client.is_answered() {
            wire.takes.set(1);
            assert_eq!(client.go_on(2, &mut path_of), Ok(()));
            heard.push_str(&wire.heard());
        }
        assert!(heard.starts_with("HTTP/1.1 200 OK\r\n") && heard.ends_with("\r\n\r\n/a"), "{heard}");
        assert_eq!((client.interest(), client.due()), (Interest::Read, 2 + KEPT_MS));
    }

    #[test]
    fn requests_in_one_piece_are_answered_one_at_a_time() {
        let wire = Wire::new();
        let mut client = Client::new(wire.clone(), 0);
        wire.say(&format!("{GET}{}", GET.replace("/a", "/b")));
        assert_eq!(client.go_on(0, &mut path_of), Ok(()));
        assert!(wire.heard().ends_with("/a") && client.has_more(0));
        assert_eq!(client.go_on(0, &mut path_of), Ok(()));
        assert!(wire.heard().ends_with("/b") && !client.has_more(0));
    }

    #[test]
    fn who_is_refused_hears_it_and_may_go_on_sending_for_a_while() {
        let wire = Wire::new();
        let mut client = Client::new(wire.clone(), 0);
        wire.say("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n");
        assert_eq!(client.go_on(7, &mut path_of), Ok(()));
        assert!(wire.heard().starts_with("HTTP/1.1 413 ") && wire.ended.get());
        wire.say("123456789");
        assert_eq!(client.go_on(8, &mut path_of), Ok(()));
        assert_eq!((client.due(), client.expire(7 + LEAVE_MS)), (7 + LEAVE_MS, Err(Gone)));
        wire.closed.set(true);
        assert_eq!(client.go_on(9, &mut path_of), Err(Gone));
    }

    #[test]
    fn a_head_has_its_time_from_its_first_byte_however_it_drips() {
        let wire = Wire::new();
        let mut client = Client::new(wire.clone(), 0);
        assert_eq!(client.due(), KEPT_MS);
        for (at, byte) in (100..).step_by(1000).zip(["G", "E", "T", " "]) {
            wire.say(byte);
            assert_eq!(client.go_on(at, &mut path_of), Ok(()));
            assert_eq!(client.due(), 100 + HEAD_MS);
        }
        assert_eq!(client.expire(100 + HEAD_MS), Ok(()));
        assert!(wire.heard().starts_with("HTTP/1.1 408 ") && wire.ended.get());
        let mut quiet = Client::new(Wire::new(), 0);
        assert_eq!(quiet.expire(KEPT_MS), Err(Gone), "who asks nothing is told nothing");
    }

    #[test]
    fn a_request_is_asked_about_again_at_its_time_and_what_is_behind_it_waits() {
        let wire = Wire::new();
        let mut client = Client::new(wire.clone(), 0);
        wire.say(&format!("{GET}{}", GET.replace("/a", "/b")));
        let until = Cell::new(900);
        let mut asked = 0;
        let mut judge = |request: &Request<'_>| {
            asked += 1;
            if until.get() > 0 { Verdict::Later(until.get()) } else { path_of(request) }
        };
        assert_eq!(client.go_on(7, &mut judge), Ok(()));
        assert_eq!((client.interest(), client.due(), client.since()), (Interest::None, 900, 7));
        assert!(!client.is_answered() && !client.has_more(899) && client.has_more(900));
        assert_eq!(client.go_on(899, &mut judge), Ok(()));
        until.set(1400);
        assert_eq!(client.go_on(900, &mut judge), Ok(()));
        assert_eq!((client.due(), client.since()), (1400, 7), "it waits since it asked");
        assert!(wire.heard().is_empty());
        until.set(0);
        assert_eq!(client.go_on(1400, &mut judge), Ok(()));
        assert!(wire.heard().ends_with("/a") && client.has_more(1400));
        assert_eq!(client.go_on(1400, &mut judge), Ok(()));
        assert!(wire.heard().ends_with("/b") && !client.has_more(1400));
        assert_eq!((asked, client.interest()), (4, Interest::Read));
    }

    #[test]
    fn an_answer_that_is_to_be_late_is_sent_at_its_time_and_holds_what_it_is() {
        let wire = Wire::new();
        let mut client = Client::new(wire.clone(), 0);
        wire.say(GET);
        let late = |_: &Request<'_>| Verdict::AnswerAt(Answer::refusal(Status::Unauthorized), 500);
        assert_eq!(client.go_on(3, &mut { late }), Ok(()));
        assert!(wire.heard().is_empty() && client.bytes() > 0);
        assert_eq!((client.interest(), client.due()), (Interest::None, 500));
        assert_eq!(client.go_on(499, &mut { late }), Ok(()));
        assert!(wire.heard().is_empty());
        wire.takes.set(1);
        assert_eq!(client.go_on(500, &mut { late }), Ok(()));
        assert_eq!((client.interest(), client.due()), (Interest::Write, 500 + ANSWER_MS));
        wire.takes.set(usize::MAX);
        assert_eq!(client.go_on(501, &mut { late }), Ok(()));
        assert!(wire.heard().starts_with("HTTP/1.1 401 ") && !wire.ended.get());
        assert_eq!(client.interest(), Interest::Read, "it may ask again");
    }

    #[test]
    fn a_request_that_is_refused_ends_its_connection() {
        let wire = Wire::new();
        let mut client = Client::new(wire.clone(), 0);
        wire.say(GET);
        assert_eq!(client.go_on(0, &mut |_| Verdict::Refused(Status::Misdirected)), Ok(()));
        assert!(wire.heard().starts_with("HTTP/1.1 421 ") && wire.ended.get());
    }

    #[test]
    fn a_head_without_end_is_held_no_further() {
        let wire = Wire::new();
        let mut client = Client::new(wire.clone(), 0);
        wire.say(&format!("GET /{}", "a".repeat(4 * HEAD_BYTES_MAX)));
        while !client.is_answered() && !wire.ended.get() {
            assert!(client.bytes() <= 2 * HEAD_BYTES_MAX);
            assert_eq!(client.go_on(0, &mut path_of), Ok(()));
        }
        assert!(wire.heard().starts_with("HTTP/1.1 431 "));
        assert_eq!(client.bytes(), 0);
    }
}
