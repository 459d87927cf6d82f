//! A connection of the HTTP listener as its client sees it: bytes that go over the network as they are, or by TLS.

use std::io::{self, Read, Write};

use larder_eventloop::sim::SimStream;
use larder_eventloop::socket::{Shutdown, Socket};
use larder_eventloop::{Between, Stream as Below};
use larder_tls::Transport;

use super::client::Stream;

/// A stream whose end can be told to its peer.
pub trait End {
    /// Tells the peer that nothing more is sent.
    fn end(&self);
}

impl End for Socket {
    fn end(&self) {
        // It fails where the other has gone already.
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl End for SimStream {
    fn end(&self) {
        SimStream::end(self);
    }
}

/// A connection.
#[derive(Debug)]
pub struct Channel<S> {
    transport: Transport<S>,
    /// The stream ends behind what waits for room.
    ends: bool,
}

impl<S> Channel<S> {
    /// A connection over this transport.
    pub fn new(transport: Transport<S>) -> Channel<S> {
        Channel { transport, ends: false }
    }

    /// The transport below.
    pub fn transport(&self) -> &Transport<S> {
        &self.transport
    }
}

impl<S: Below> Channel<S> {
    fn between(&self) -> Between {
        self.transport.between().unwrap_or_default()
    }
}

impl<S: Below> Read for Channel<S> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.transport.recv(into)
    }
}

impl<S: Below + End> Write for Channel<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.transport.send(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.transport.flush()?;
        if self.ends && self.between().unsent == 0 {
            self.ends = false;
            let below: &S = self.transport.as_ref();
            below.end();
        }
        Ok(())
    }
}

impl<S: Below + End> Stream for Channel<S> {
    fn end(&mut self) {
        self.transport.finish();
        self.ends = true;
        // TLS tells the end, too. What of that does not fit goes when there is room, and the stream ends behind it. What follows
        // shows whether the connection has failed.
        let _ = self.flush();
    }

    fn has_received(&self) -> bool {
        self.between().received > 0
    }

    fn has_unsent(&self) -> bool {
        self.between().unsent > 0
    }

    fn is_opening(&self) -> bool {
        self.between().opening
    }

    fn memory(&self) -> usize {
        self.between().memory
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, IoSliceMut};
    use std::path::PathBuf;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;

    use larder_eventloop::Millis;
    use larder_eventloop::poll::Interest;
    use larder_eventloop::sim::{Peer, Sim, Weather};
    use larder_tls::{Acceptor, ClientOptions, ClientStream, Connector, Counters, Files, Options, Trust};

    use super::*;
    use crate::admin::client::{Client, Gone, HEAD_MS, KEPT_MS, LEAVE_MS, Verdict};
    use crate::admin::http::{Answer, Request, TEXT};

    /// The client's end, as its TLS sees it.
    struct Far(Rc<Peer>);

    impl Below for Far {
        fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let bytes = self.0.read(buffer.len());
            if bytes.is_empty() && !self.0.closed() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            buffer[..bytes.len()].copy_from_slice(&bytes);
            Ok(bytes.len())
        }

        fn recv_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
            slices.first_mut().map_or(Ok(0), |slice| self.recv(slice))
        }

        fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes);
            Ok(bytes.len())
        }

        fn send_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            slices.first().map_or(Ok(0), |slice| self.send(slice))
        }

        fn room(&self) -> usize {
            usize::MAX
        }

        fn pending(&self) -> usize {
            0
        }
    }

    /// A certificate and its key, in files.
    struct Pair(PathBuf);

    impl Pair {
        fn new(name: &str) -> Pair {
            let folder = std::env::temp_dir().join(format!("larder-http-{}-{name}", std::process::id()));
            std::fs::create_dir_all(&folder).expect("a folder");
            let made = rcgen::generate_simple_self_signed(["larder.test".to_owned()]).expect("a certificate");
            std::fs::write(folder.join("crt"), made.cert.pem()).expect("written");
            std::fs::write(folder.join("key"), made.signing_key.serialize_pem()).expect("written");
            Pair(folder)
        }
    }

    impl Drop for Pair {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// A connection by TLS, from the server's thread to its client.
    struct Talk {
        client: Client<Channel<SimStream>>,
        peer: Rc<Peer>,
        far: ClientStream<Far>,
        counters: Arc<Counters>,
        _pair: Pair,
    }

    impl Talk {
        fn new(name: &str, weather: Weather) -> Talk {
            let pair = Pair::new(name);
            let (chain, key) = (pair.0.join("crt"), pair.0.join("key"));
            let counters = Arc::default();
            let options = Options { chain: chain.clone(), key, ..Options::default() };
            let acceptor = Acceptor::load(&options, &counters, &mut Files::default()).expect("good files");
            let (stream, peer) = Sim::new(1, weather).connect();
            let stream = Channel::new(acceptor.accept(stream).expect("a session"));
            let trusts = ClientOptions { trust: Trust::File(chain), pair: None };
            let connector = Connector::load("larder.test", trusts).expect("good files");
            let peer = Rc::new(peer);
            let far = connector.connect(Far(Rc::clone(&peer))).expect("a session");
            Talk { client: Client::new(stream, 0), peer, far, counters, _pair: pair }
        }

        /// A turn, if the system would say that there is something to do, or there is more; false if not.
        fn turn(&mut self, now: Millis) -> Result<bool, Gone> {
            let below: &SimStream = self.client.stream.transport.as_ref();
            let is_ready = match self.client.interest() {
                Interest::Read => self.peer.untaken() > 0,
                Interest::Write => below.room() > 0,
                Interest::None | Interest::End | Interest::Both => false,
            };
            if !is_ready && !self.client.has_more(now) {
                return Ok(false);
            }
            self.client.go_on(now, &mut answer).map(|()| true)
        }

        /// Returns all that the far end receives until nothing more comes.
        fn hears(&mut self) -> String {
            let (mut all, mut bytes, mut idle) = (Vec::new(), [0; 4096], 0);
            for _ in 0..2_000_000 {
                let went = self.turn(0).expect("it stays");
                match self.far.recv(&mut bytes) {
                    Ok(0) => break,
                    Ok(got) => all.extend_from_slice(&bytes[..got]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        // What the far end took has made room: the server's end has one more turn.
                        idle = if went || self.peer.untaken() > 0 { 0 } else { idle + 1 };
                        if idle == 2 {
                            break;
                        }
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            String::from_utf8(all).expect("text")
        }

        fn says(&mut self, text: &str) {
            assert_eq!(self.far.send(text.as_bytes()).expect("sent"), text.len());
        }
    }

    /// As many bytes as the path says.
    fn answer(request: &Request<'_>) -> Verdict {
        let bytes = request.path[1..].parse().expect("a number");
        Verdict::Answer(Answer::ok(TEXT, "x".repeat(bytes)))
    }

    fn get(bytes: usize, more: &str) -> String {
        format!("GET /{bytes} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n")
    }

    /// Answers of so many bytes each, and nothing else.
    fn are(answers: &str, lengths: &[usize]) -> bool {
        let mut rest = answers;
        lengths.iter().all(|&length| {
            let Some((head, body)) = rest.split_once("\r\n\r\n") else { return false };
            let is_right = head.starts_with("HTTP/1.1 200 OK\r\n") && body.len() >= length;
            rest = body.get(length..).unwrap_or_default();
            is_right && body.bytes().take(length).all(|byte| byte == b'x')
        }) && rest.is_empty()
    }

    #[test]
    fn answers_by_tls_are_whole_in_any_weather_and_the_connection_stays() {
        for (name, weather) in [("fair", Weather::FAIR), ("drip", Weather::DRIP), ("storm", Weather::STORM)] {
            let mut talk = Talk::new(name, weather);
            talk.says(&get(30_000, ""));
            let heard = talk.hears();
            assert!(are(&heard, &[30_000]), "{name}: {} bytes", heard.len());
            assert_eq!((talk.client.interest(), talk.client.due()), (Interest::Read, KEPT_MS), "{name}");
            // Two in one record: what is behind the first has come already, and the system says nothing of it.
            talk.says(&[get(7, ""), get(0, "")].concat());
            let heard = talk.hears();
            assert!(are(&heard, &[7, 0]), "{name}: {heard}");
            assert_eq!(talk.counters.handshakes.load(Relaxed), 1);
            assert!(!talk.client.stream.has_unsent() && !talk.client.stream.has_received());
        }
    }

    /// A read takes a part of a record, and the system has given all of it.
    #[test]
    fn a_head_that_one_record_brings_is_read_to_its_end() {
        let mut talk = Talk::new("head", Weather::FAIR);
        talk.says(&get(5, &format!("X: {}\r\n", "y".repeat(5_000))));
        let heard = talk.hears();
        assert!(are(&heard, &[5]), "{heard}");
    }

    #[test]
    fn an_answer_that_nobody_takes_waits_sealed_within_a_bound_and_goes_when_there_is_room() {
        let mut talk = Talk::new("narrow", Weather::FAIR);
        talk.says(&get(1, ""));
        assert!(are(&talk.hears(), &[1]));
        talk.peer.narrow(1_000);
        talk.says(&get(1_000_000, ""));
        while talk.turn(0).expect("it stays") {}
        assert!(talk.client.stream.has_unsent() && talk.client.is_answered());
        assert_eq!(talk.client.interest(), Interest::Write);
        let beside = talk.client.bytes() - 1_000_000;
        assert!(beside < 100_000, "{beside} bytes beside the answer");
        let heard = talk.hears();
        assert!(are(&heard, &[1_000_000]), "{} bytes", heard.len());
        assert!(!talk.client.is_answered());
    }

    #[test]
    fn a_connection_that_does_not_stay_ends_with_close_notify_behind_its_answer() {
        let mut talk = Talk::new("leaves", Weather::FAIR);
        talk.says(&get(100, "Connection: close\r\n"));
        // The far end hears the end of TLS, and not that of the stream alone, which would be an error.
        let heard = talk.hears();
        assert!(are(&heard, &[100]), "{heard}");
        assert_eq!(talk.far.recv(&mut [0; 10]).expect("an end"), 0);
        assert_eq!(talk.client.due(), LEAVE_MS);
    }

    #[test]
    fn the_end_of_the_stream_comes_behind_a_close_notify_that_waits_for_room() {
        let leaves = |name: &str, room: usize| {
            let mut talk = Talk::new(name, Weather::FAIR);
            talk.says(&get(1, ""));
            assert!(are(&talk.hears(), &[1]));
            talk.peer.narrow(room);
            assert!(!talk.peer.ended());
            talk.says(&get(100, "Connection: close\r\n"));
            while talk.turn(0).expect("it stays") {}
            talk
        };
        let wide = leaves("wide", 10_000);
        assert!(wide.peer.ended());
        // Its last byte does not fit.
        let all = wide.peer.read(usize::MAX).len();
        let mut talk = leaves("full", all - 1);
        assert!(talk.client.stream.has_unsent() && !talk.peer.ended());
        assert_eq!((talk.client.interest(), talk.client.due()), (Interest::Write, LEAVE_MS));
        let heard = talk.hears();
        assert!(are(&heard, &[100]), "{heard}");
        assert_eq!(talk.far.recv(&mut [0; 10]).expect("an end"), 0);
        assert_eq!((talk.peer.ended(), talk.client.interest()), (true, Interest::Read));
    }

    #[test]
    fn a_client_that_speaks_no_tls_is_told_so_and_closed() {
        let mut talk = Talk::new("plain", Weather::FAIR);
        talk.peer.send(get(1, "").as_bytes());
        assert_eq!(talk.turn(0), Err(Gone));
        let alert = talk.peer.read(100);
        assert_eq!(alert.first(), Some(&21), "an alert: {alert:?}");
        assert_eq!(talk.counters.handshake_errors.load(Relaxed), 1);
    }

    #[test]
    fn a_handshake_has_the_time_of_a_head_and_holds_what_is_counted() {
        let mut talk = Talk::new("silent", Weather::FAIR);
        assert!(talk.client.stream.is_opening());
        assert_eq!(talk.client.due(), HEAD_MS);
        assert!(talk.client.bytes() >= larder_tls::HANDSHAKE_BYTES);
        assert_eq!(talk.client.expire(HEAD_MS), Err(Gone), "a client that says nothing is told nothing");
        // Once they have agreed it may be quiet for as long as any.
        talk.says(&get(1, ""));
        assert!(are(&talk.hears(), &[1]));
        assert!(!talk.client.stream.is_opening() && talk.client.due() == KEPT_MS);
        assert!(talk.client.bytes() < larder_tls::HANDSHAKE_BYTES, "{}", talk.client.bytes());
    }
}
