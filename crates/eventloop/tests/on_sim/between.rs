//! Streams with buffers between the system and the loop. The handler gets the bytes in them even if the peer
//! sends nothing more. Bytes that a stream has accepted are sent before the connection ends. Timeouts apply
//! to such streams as to others.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};

use crate::toy::{LIMITS, World};
use larder_eventloop::sim::{Peer, SimStream, Time, Weather};
use larder_eventloop::{Between, Closed, RECEIVE_BYTES, Stream};

/// The peer's first bytes, and the stream's reply.
const GREETING: &[u8] = b"hey";
const ANSWER: &[u8] = b"hi";
/// The stream's last bytes.
const FAREWELL: &[u8] = b"!";
/// Most bytes that the stream receives from the system at a time. The next two: the most that it delivers to
/// the loop, and accepts from it, at a time.
const AHEAD_BYTES: usize = 20_000;
const GIVEN_BYTES: usize = 700;
const TAKEN_BYTES: usize = 900;

/// A stream of records: a byte with the length, then that many bytes. It delivers only complete records,
/// receives more than it delivers, and accepts more bytes than the system does.
struct Lumpy {
    inner: SimStream,
    /// Bytes from the system, from the beginning of a record on.
    records: VecDeque<u8>,
    /// Bytes of complete records.
    given: VecDeque<u8>,
    unsent: VecDeque<u8>,
    greeted: bool,
    /// The handshake moves this clock by this many microseconds.
    greets_in: Option<(Time, u64)>,
    /// After this many records the stream reports that it is worn out.
    carries: usize,
}

impl Lumpy {
    fn over(inner: SimStream) -> Lumpy {
        let (records, given, unsent) = Default::default();
        Lumpy { inner, records, given, unsent, greeted: false, greets_in: None, carries: usize::MAX }
    }

    /// One receive from the system, and its consequences.
    fn fill(&mut self) -> io::Result<usize> {
        let mut buffer = [0; AHEAD_BYTES];
        let bytes = self.inner.recv(&mut buffer)?;
        self.records.extend(&buffer[..bytes]);
        if !self.greeted && self.records.len() >= GREETING.len() {
            assert!(self.records.drain(..GREETING.len()).eq(GREETING.iter().copied()));
            self.greeted = true;
            if let Some((time, us)) = &self.greets_in {
                time.pass_us(*us);
            }
            self.unsent.extend(ANSWER);
            self.flush()?;
        }
        while self.greeted
            && let Some(&len) = self.records.front()
            && self.records.len() > usize::from(len)
        {
            self.records.pop_front();
            self.carries = self.carries.saturating_sub(1);
            self.given.extend(self.records.drain(..usize::from(len)));
        }
        Ok(bytes)
    }
}

impl AsRef<SimStream> for Lumpy {
    fn as_ref(&self) -> &SimStream {
        &self.inner
    }
}

impl Stream for Lumpy {
    fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv_vectored(&mut [IoSliceMut::new(buffer)])
    }

    fn recv_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if self.given.is_empty() && self.fill()? == 0 {
            return Ok(0);
        }
        let mut left = self.given.len().min(GIVEN_BYTES);
        let mut taken = 0;
        for slice in slices {
            let bytes = left.min(slice.len());
            for byte in &mut slice[..bytes] {
                *byte = self.given.pop_front().expect("so many are there");
            }
            (left, taken) = (left - bytes, taken + bytes);
        }
        if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.send_vectored(&[IoSlice::new(bytes)])
    }

    fn send_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush()?;
        if !self.greeted || !self.unsent.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.unsent.extend(slices.iter().flat_map(|slice| slice.iter()).take(TAKEN_BYTES));
        let taken = self.unsent.len();
        self.flush()?;
        Ok(taken)
    }

    fn room(&self) -> usize {
        if self.unsent.is_empty() { self.inner.room() } else { 0 }
    }

    fn pending(&self) -> usize {
        // Together with the next bytes, an incomplete record may become complete.
        let coming = self.inner.pending();
        let part = if coming > 0 { self.records.len() } else { 0 };
        coming + part + self.given.len()
    }

    fn between(&self) -> Option<Between> {
        Some(Between {
            received: self.given.len(),
            unsent: self.unsent.len(),
            memory: self.records.len() + self.given.len() + self.unsent.len(),
            opening: !self.greeted,
            partial: self.records.len(),
            worn: self.carries == 0,
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.inner.send(self.unsent.make_contiguous()) {
                Ok(bytes) => drop(self.unsent.drain(..bytes)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn finish(&mut self) {
        if self.greeted {
            self.unsent.extend(FAREWELL);
            let _ = self.flush();
        }
    }
}

/// The bytes as records of all lengths.
fn records(bytes: &[u8]) -> Vec<u8> {
    let (mut all, mut left, mut len) = (Vec::new(), bytes, 1);
    while !left.is_empty() {
        let (record, rest) = left.split_at(left.len().min(len));
        all.push(record.len() as u8);
        all.extend_from_slice(record);
        left = rest;
        len = 1 + len * 7 % 255;
    }
    all
}

fn world(seed: u64, weather: Weather) -> World<Lumpy> {
    World::over(seed, weather, LIMITS)
}

/// As [`World::read_all`], for a connection whose stream may still have bytes for many turns, which the
/// network does not see.
fn read_all(world: &mut World<Lumpy>, peer: &Peer) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        (0..40).for_each(|_| world.turn());
        let bytes = world.read_all(peer);
        if bytes.is_empty() {
            return all;
        }
        all.extend(bytes);
    }
}

/// Connects a peer, and finishes the handshake.
fn greeted(world: &mut World<Lumpy>) -> Peer {
    let peer = world.connect_by(Lumpy::over);
    peer.send(GREETING);
    assert_eq!(world.read_all(&peer), ANSWER);
    peer
}

/// Requests of all kinds, and their replies: echoes, long replies, uploads, work.
fn requests(seed: u64) -> (Vec<u8>, Vec<u8>) {
    let (mut requests, mut replies) = (Vec::new(), Vec::new());
    for n in 0..60 {
        let bytes = ((seed + n) * 7919 % 3000) as usize;
        let (request, reply) = match (seed + n) % 5 {
            0 => (format!("x{bytes}\n").into_bytes(), vec![b'x'; bytes]),
            1 => {
                let data: Vec<u8> = (0..=bytes).map(|i| (i % 251) as u8).collect();
                let sum: u64 = data.iter().map(|&byte| u64::from(byte)).sum();
                let head = format!("u{}\n", data.len()).into_bytes();
                ([head, data].concat(), format!("{sum}\n").into_bytes())
            }
            2 => (b"w\n".to_vec(), Vec::new()),
            _ => (format!("e{n}\n").into_bytes(), format!("e{n}\n").into_bytes()),
        };
        requests.extend(request);
        replies.extend(reply);
    }
    (requests, replies)
}

#[test]
fn all_that_a_stream_has_received_is_answered_though_the_peer_says_nothing_more() {
    for seed in 0..60 {
        let weather = match seed % 3 {
            0 => Weather::FAIR,
            1 => Weather { window: 3000, ..Weather::FAIR },
            _ => Weather::STORM,
        };
        let mut world = world(seed, weather);
        world.toy.slices_of = [0, 1, 50][seed as usize / 3 % 3];
        world.toy.nearly_spent_from = [0, 300][seed as usize / 9 % 2];
        world.toy.yields = seed % 2 == 0;
        let peers: Vec<Peer> = (0..3).map(|_| greeted(&mut world)).collect();
        let all: Vec<_> = (0..3).map(|index| requests(seed + index)).collect();
        for (peer, (requests, _)) in peers.iter().zip(&all) {
            peer.send(&records(requests));
        }
        world.events.set_short(&mut world.toy, seed % 4 == 0);
        world.turn();
        world.events.set_short(&mut world.toy, false);
        for (peer, (_, replies)) in peers.iter().zip(&all) {
            assert!(read_all(&mut world, peer) == *replies, "seed {seed}");
            assert_eq!(peer.untaken(), 0, "seed {seed}");
        }
        assert!(world.toy.closed.is_empty(), "seed {seed}");
        // The stream has no bytes left: the loop sleeps.
        assert_eq!(world.toy.streams_bytes, 0, "seed {seed}");
        let waits = world.events.backend().waits();
        world.pass(100_000);
        assert!(world.events.backend().waits() - waits <= 3, "seed {seed}: it sleeps");
    }
}

#[test]
fn requests_that_came_with_the_end_of_the_stream_are_answered() {
    let mut world = world(1, Weather::FAIR);
    let peer = greeted(&mut world);
    let (requests, mut replies) = requests(3);
    peer.send(&records(&requests));
    peer.end();
    replies.extend(FAREWELL);
    assert!(read_all(&mut world, &peer) == replies);
    assert_eq!(world.toy.closed, [Closed::Peer]);
}

#[test]
fn a_stream_that_does_not_open_is_closed_when_unauthenticated_clients_are() {
    let mut world = world(2, Weather::FAIR);
    let (silent, late) = (world.connect_by(Lumpy::over), world.connect_by(Lumpy::over));
    silent.send(&GREETING[..2]);
    world.run_until_idle();
    assert_eq!(world.toy.streams_bytes, 2);
    world.pass(LIMITS.unauthenticated_ms / 2);
    late.send(GREETING);
    world.run_until_idle();
    world.pass(LIMITS.unauthenticated_ms);
    assert!(silent.closed() && !late.closed());
    assert_eq!(world.toy.closed, [Closed::Unauthenticated]);
    assert_eq!(world.toy.streams_bytes, 0);
    assert!(silent.read(10).is_empty(), "nothing is said to who has not greeted");
}

#[test]
fn one_stream_opens_in_a_turn_and_others_are_answered_meanwhile() {
    let mut world = world(9, Weather::FAIR);
    let open = greeted(&mut world);
    let crowd: Vec<Peer> = (0..20).map(|_| world.connect_by(Lumpy::over)).collect();
    crowd.iter().for_each(|peer| peer.send(GREETING));
    for turn in 0..20 {
        open.send(&records(b"e1\n"));
        world.turn();
        assert_eq!(open.read(10), b"e1\n", "turn {turn}");
        let opened = crowd.iter().filter(|peer| !peer.read(1).is_empty()).count();
        assert_eq!(opened, 1, "turn {turn}");
        crowd.iter().for_each(|peer| drop(peer.read(10)));
    }
}

#[test]
fn streams_that_open_have_a_quarter_of_the_time_while_others_wait_and_all_of_it_else() {
    const GREETS_US: u64 = 800;
    const REQUEST_US: u64 = 50;
    for busy in [true, false] {
        let mut world = world(10, Weather::FAIR);
        // Two connections have work all the time: one is queued in each turn, one sends a request in each
        // turn.
        let (queued, open) = (greeted(&mut world), greeted(&mut world));
        let time = world.events.backend().time();
        let crowd: Vec<Peer> = (0..40)
            .map(|_| {
                let greets_in = Some((time.clone(), GREETS_US));
                world.connect_by(|inner| Lumpy { greets_in, ..Lumpy::over(inner) })
            })
            .collect();
        crowd.iter().for_each(|peer| peer.send(GREETING));
        if busy {
            queued.send(&records(&b"w\n".repeat(4000)));
        }
        let (begun, mut longest, mut last) = (time.now_us(), 0, time.now_us());
        for turn in 0..400 {
            if busy && turn % 2 == 0 {
                open.send(&records(b"e1\n"));
            }
            let before = time.now_us();
            world.turn();
            if busy {
                time.pass_us(REQUEST_US);
                if turn % 2 == 0 {
                    assert_eq!(open.read(10), b"e1\n", "turn {turn}");
                }
            }
            if time.now_us() - before >= GREETS_US {
                longest = longest.max(before - last);
                last = time.now_us();
            }
        }
        let all = time.now_us() - begun;
        let opened = crowd.iter().filter(|peer| !peer.read(1).is_empty()).count() as u64;
        if busy {
            assert!((5..40).contains(&opened), "{opened} of them");
            assert!(opened * GREETS_US <= all / 4 + GREETS_US, "{opened} in {all} us");
            assert!(
                longest <= 3 * GREETS_US + 2 * REQUEST_US,
                "none waits for more than its rest: {longest}"
            );
        } else {
            assert_eq!((opened, all), (40, 40 * GREETS_US));
        }
    }
}

#[test]
fn a_refused_client_is_told_when_the_stream_carries_it_and_costs_no_turns_before() {
    let mut world = world(11, Weather::FAIR);
    world.toy.turns_away = true;
    let peer = world.connect_by(Lumpy::over);
    let id = world.events.id_at(0).expect("it is the only one");
    world.events.look_at(&mut world.toy, id);
    peer.send(&GREETING[..2]);
    let waits = world.events.backend().waits();
    world.pass(LIMITS.unauthenticated_ms / 2);
    assert!(world.events.backend().waits() - waits <= 10, "it sleeps");
    assert!(world.toy.closed.is_empty() && peer.read(10).is_empty());
    peer.send(&GREETING[2..]);
    assert_eq!(world.read_all(&peer), [ANSWER, b"no\n", FAREWELL].concat());
    assert_eq!(world.toy.closed, [Closed::Handler]);
    // The same when the first requests come together with the greeting.
    let peer = world.connect_by(Lumpy::over);
    let id = world.events.id_at(0).expect("it is the only one");
    world.events.look_at(&mut world.toy, id);
    peer.send(&[GREETING, &records(b"e1\ne2\n")].concat());
    assert!(world.read_all(&peer).ends_with(&[b"no\n", FAREWELL].concat()));
}

#[test]
fn of_silent_streams_that_open_the_one_goes_that_came_first() {
    let mut world = world(12, Weather::FAIR);
    let crowd: Vec<Peer> = (0..5)
        .map(|_| {
            world.pass(10);
            world.connect_by(Lumpy::over)
        })
        .collect();
    let opens = greeted(&mut world);
    world.pass(500);
    crowd[1].send(&GREETING[..1]);
    world.run_until_idle();
    world.pass(500);
    for (closed, next) in [(0, true), (2, true), (3, true), (4, true), (4, false)] {
        assert_eq!(world.events.close_silent_opening(&mut world.toy, 1000), next);
        assert!(crowd[closed].closed() && !crowd[1].closed() && !opens.closed());
        let left = crowd.iter().filter(|peer| !peer.closed()).count();
        assert_eq!(world.events.opening(), left);
    }
    world.pass(500);
    assert!(world.events.close_silent_opening(&mut world.toy, 1000) && crowd[1].closed());
    assert_eq!((world.events.opening(), world.toy.closed.len()), (0, 5));
}

#[test]
fn a_worn_stream_ends_between_requests_and_behind_all_replies() {
    for (carries, replies) in [(1, &b"e1\n"[..]), (2, b"e1\ne2\n"), (3, b"e1\ne2\nxxx")] {
        let mut world = world(13, Weather::FAIR);
        let peer = world.connect_by(|inner| Lumpy { carries, ..Lumpy::over(inner) });
        peer.send(GREETING);
        assert_eq!(world.read_all(&peer), ANSWER);
        // Each request lies in a record of its own, but the last one lies in two.
        for (record, wanted) in [(&b"e1\n"[..], 1), (b"e2\n", 2), (b"x", 3), (b"3\n", 4)] {
            peer.send(&[&[record.len() as u8][..], record].concat());
            world.run_until_idle();
            assert_eq!(
                peer.closed(),
                carries < wanted || carries == wanted && wanted < 3 || wanted == 4,
                "{carries}"
            );
            if peer.closed() {
                break;
            }
        }
        assert_eq!(peer.read(100), [replies, FAREWELL].concat(), "{carries}");
        assert_eq!(world.toy.closed, [Closed::Handler]);
    }
}

#[test]
fn half_a_record_is_not_waited_for_longer_than_half_a_request() {
    let mut world = world(3, Weather::FAIR);
    let (half, whole) = (greeted(&mut world), greeted(&mut world));
    // A client that sends nothing for a long time has begun no request, so no timeout of a request runs.
    world.pass(3 * LIMITS.request_ms);
    half.send(&[100, b'e']);
    whole.send(&records(b"e1\n"));
    world.run_until_idle();
    world.pass(LIMITS.request_ms - 1500);
    assert!(world.toy.closed.is_empty());
    world.pass(3000);
    assert_eq!(world.toy.closed, [Closed::Unfinished]);
    assert!(half.closed() && !whole.closed());
}

#[test]
fn what_a_stream_has_taken_goes_out_before_the_connection_ends_and_the_farewell_behind_it() {
    for window in [1, 7, 5_000, 1 << 20] {
        let mut world = world(4, Weather { window, ..Weather::FAIR });
        let peer = greeted(&mut world);
        peer.send(&records(b"x2000\ne1\nq\nelate\n"));
        let all = read_all(&mut world, &peer);
        assert!(all.starts_with(&[b'x'; 2000]), "{window}");
        // If the stream cannot send its farewell, the connection ends without it.
        assert!(matches!(&all[2000..], b"e1\n!" | b"e1\n"), "{window}: {:?}", &all[2000..]);
        assert_eq!(world.toy.closed, [Closed::Handler], "{window}");
    }
}

#[test]
fn who_takes_nothing_of_what_its_stream_holds_stands_still() {
    let mut world = world(5, Weather { window: 100, ..Weather::FAIR });
    let (stuck, slow) = (greeted(&mut world), greeted(&mut world));
    for peer in [&stuck, &slow] {
        peer.send(&records(b"x500\n"));
    }
    world.run_until_idle();
    assert_eq!(world.toy.unsent_most, 0, "their streams have it");
    assert_eq!(world.toy.streams_bytes, 2 * 400);
    for _ in 0..4 {
        world.pass(LIMITS.stall_ms / 2);
        slow.read(100);
        world.run_until_idle();
    }
    assert_eq!(world.toy.closed, [Closed::Stalled]);
    assert!(stuck.closed() && !slow.closed());
    assert_eq!(world.toy.streams_bytes, 0);
}

#[test]
fn a_drained_loop_answers_what_had_come_to_the_system_or_the_stream() {
    for seed in 0..12 {
        let weather = match seed % 3 {
            0 => Weather::FAIR,
            1 => Weather { window: 200, ..Weather::FAIR },
            _ => Weather::STORM,
        };
        let mut world = world(seed, weather);
        let (peer, idle, silent) = (greeted(&mut world), greeted(&mut world), world.connect_by(Lumpy::over));
        let asks = 4 * RECEIVE_BYTES / 5 / 100;
        let half = &[9, b'e'];
        peer.send(&[&records(&b"x100\n".repeat(asks))[..], half].concat());
        if seed % 2 == 0 {
            world.turn();
        }
        world.events.drain(&mut world.toy, 5_000);
        let all = read_all(&mut world, &peer);
        assert_eq!(all.iter().filter(|&&byte| byte == b'x').count(), 100 * asks, "seed {seed}");
        world.run_until_idle();
        assert!(world.events.is_empty() && peer.closed() && idle.closed() && silent.closed(), "seed {seed}");
        assert_eq!(world.toy.closed, [Closed::Drained; 3], "seed {seed}");
        assert_eq!(idle.read(10), FAREWELL, "seed {seed}");
    }
}

#[test]
fn plain_streams_are_not_asked_for_what_they_do_not_have() {
    let mut plain = World::new(6, Weather::FAIR, LIMITS);
    let peer = plain.connect();
    let (requests, replies) = requests(1);
    peer.send(&requests);
    assert!(plain.read_all(&peer) == replies);
    assert_eq!(plain.toy.streams_bytes, 0);
}
