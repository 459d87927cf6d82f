//! Requests of many connections: each gets its reply once, in order and completely, within the limits and
//! timeouts.

use crate::toy::{LIMITS, REPLY_BYTES_MAX, World};
use larder_eventloop::sim::{Peer, Weather};
use larder_eventloop::{Closed, Limits};

fn request(n: u64) -> (Vec<u8>, Vec<u8>) {
    match n % 4 {
        0 => (format!("x{}\n", n % 977).into_bytes(), vec![b'x'; (n % 977) as usize]),
        1 => {
            let data: Vec<u8> = (0..1 + n * 37 % 5000).map(|i| (i % 251) as u8).collect();
            let sum: u64 = data.iter().map(|&b| u64::from(b)).sum();
            let mut bytes = format!("u{}\n", data.len()).into_bytes();
            bytes.extend(data);
            (bytes, format!("{sum}\n").into_bytes())
        }
        _ => {
            let line = format!("e{n}\n").into_bytes();
            (line.clone(), line)
        }
    }
}

#[test]
fn replies_are_complete_and_in_order_in_any_weather() {
    for seed in 0..60 {
        let weather = match seed % 3 {
            0 => Weather::FAIR,
            1 => Weather::DRIP,
            _ => Weather::STORM,
        };
        let mut world = World::new(seed, weather, LIMITS);
        let peers: Vec<Peer> = (0..5).map(|_| world.connect()).collect();
        let mut expected = vec![Vec::new(); 5];
        let mut got = vec![Vec::new(); 5];
        for round in 0..40u64 {
            for (index, peer) in peers.iter().enumerate() {
                let (ask, answer) = request(round * 5 + index as u64 + seed * 31);
                peer.send(&ask);
                expected[index].extend(answer);
            }
            // Memory is short at times.
            world.events.set_short(&mut world.toy, seed % 2 == 0 && round % 7 < 3);
            world.turn();
            got[(round % 5) as usize].extend(peers[(round % 5) as usize].read(700));
        }
        for (index, peer) in peers.iter().enumerate() {
            got[index].extend(world.read_all(peer));
            assert!(got[index] == expected[index], "seed {seed}, connection {index}");
        }
        assert!(world.toy.closed.is_empty(), "seed {seed}");
    }
}

/// A hundred long requests and a short one arrive at once. One turn receives large parts of some of them and
/// a little of the others, and answers the short one.
#[test]
fn what_a_turn_receives_of_all_together_is_bounded_and_who_asks_little_is_answered() {
    const NEARLY_SPENT_FROM: usize = 200_000;
    for seed in 0..10 {
        let weather = Weather { receive_max: usize::MAX, window: 1 << 20, ..Weather::FAIR };
        let mut world = World::new(seed, weather, LIMITS);
        world.toy.nearly_spent_from = NEARLY_SPENT_FROM;
        let long: Vec<Peer> = (0..100).map(|_| world.connect()).collect();
        let short = world.connect();
        world.run_until_idle();
        let line = format!("e{}\n", "y".repeat(30_000));
        long.iter().for_each(|peer| peer.send(line.as_bytes()));
        short.send(b"e1\n");
        world.turn();
        let looked_at = world.toy.looked_at;
        assert!(looked_at <= NEARLY_SPENT_FROM + 30_002 + 100 * 4096, "{looked_at} bytes, seed {seed}");
        assert_eq!(short.read(10), b"e1\n");
        for peer in &long {
            assert!(world.read_all(peer) == line.as_bytes());
        }
    }
}

/// Fifty connections send one large request after another, and another connection sends a small one now and
/// then. The small one waits only for large ones that were begun before it came. The fifty are served in
/// turn.
#[test]
fn who_asks_for_little_comes_before_those_that_asked_for_much() {
    const MANY: usize = 50;
    const BYTES: usize = 20_000;
    for seed in 0..10 {
        let weather = Weather { receive_max: usize::MAX, window: 1 << 20, ..Weather::FAIR };
        let mut world = World::new(seed, weather, LIMITS);
        // Two large requests nearly spend the budget. Ten of them take a millisecond.
        (world.toy.nearly_spent_from, world.toy.byte_ns) = (2 * BYTES, 5);
        let dear: Vec<Peer> = (0..MANY).map(|_| world.connect()).collect();
        let little = world.connect();
        let line = format!("e{}\n", "y".repeat(BYTES));
        dear.iter().for_each(|peer| peer.send(line.as_bytes()));
        world.run_until_idle();
        dear.iter().for_each(|peer| drop(peer.read(usize::MAX)));
        let mut answered = [0; MANY];
        for turn in 0..10 * MANY {
            for peer in dear.iter().filter(|_| turn == 0) {
                peer.send(line.as_bytes());
            }
            little.send(b"eme\n");
            world.turn();
            assert_eq!(little.read(usize::MAX), b"eme\n", "seed {seed}, turn {turn}");
            assert!(world.toy.looked_at <= 3 * BYTES + 10, "{} bytes in a turn", world.toy.looked_at);
            for (peer, answered) in dear.iter().zip(&mut answered) {
                let got = peer.read(usize::MAX);
                *answered += got.len();
                if *answered % line.len() == 0 && !got.is_empty() {
                    // The connection sends its next request at once, and is served after the others.
                    peer.send(line.as_bytes());
                }
            }
            if turn % (MANY / 2) == MANY / 2 - 1 {
                let of_each = answered.iter().map(|bytes| bytes / line.len());
                let (least, most) = (of_each.clone().min().unwrap(), of_each.max().unwrap());
                assert!(most - least <= 1, "{answered:?}");
            }
        }
    }
}

#[test]
fn a_whole_pipeline_is_answered_by_one_send() {
    let mut world = World::new(1, Weather::FAIR, LIMITS);
    let peer = world.connect();
    peer.send(&b"ehello\n".repeat(200));
    world.turn();
    assert_eq!(peer.read(usize::MAX), b"ehello\n".repeat(200));
    assert_eq!(world.toy.sends, 1);
}

#[test]
fn who_has_something_new_to_say_comes_before_those_who_go_on() {
    const WORKERS: usize = 20;
    const WORK: usize = 30;
    let mut world = World::new(1, Weather::FAIR, LIMITS);
    let workers: Vec<Peer> = (0..WORKERS).map(|_| world.connect()).collect();
    let other = world.connect();
    for worker in &workers {
        worker.send(&b"w\n".repeat(WORK));
        worker.send(b"eend\n");
    }
    // In each turn all connections have a new request, the shortest possible one.
    world.turn();
    assert_eq!(world.toy.worked.1 as usize, WORKERS + 1);
    let mut turns = 0;
    let mut ended = 0;
    while ended < WORKERS {
        other.send(b"eme\n");
        let before = world.toy.worked.1;
        world.turn();
        assert_eq!(other.read(usize::MAX), b"eme\n", "answered in the turn in which it asks");
        assert!(world.toy.worked.1 - before <= 3, "and then no more is done than until the budget is spent");
        turns += 1;
        ended += workers.iter().filter(|worker| worker.read(usize::MAX) == b"eend\n").count();
        // The connections take turns: none finishes long before the others.
        assert!(ended == 0 || world.toy.worked.1 as usize >= WORKERS * (WORK - 1), "{turns}");
    }
    assert_eq!(world.toy.worked.1 as usize, WORKERS * WORK);
}

#[test]
fn several_slices_and_what_is_behind_them_are_filled_by_one_receive() {
    let mut world = World::new(1, Weather::FAIR, LIMITS);
    let peer = world.connect();
    // The first receive leaves 4500 bytes, which are 15 slices of 300: seven, seven, and the last.
    let bytes = larder_eventloop::RECEIVE_BYTES - "u70000\n".len() + 4500;
    peer.send(format!("u{bytes}\n").as_bytes());
    peer.send(&vec![1; bytes]);
    peer.send(b"enext\n");
    world.turn();
    assert_eq!(world.toy.fills, 3);
    assert_eq!(peer.read(usize::MAX), format!("{bytes}\nenext\n").as_bytes());
}

/// However fast a peer reads, other connections have their turns in between. Its replies are offered in one
/// piece, in slices, and in slices of which one is more than a turn may send.
#[test]
fn a_peer_that_reads_as_fast_as_replies_are_sent_lets_others_come_in_between() {
    const MOST: usize = 1 << 20;
    for slices_of in [0, 16 << 10, MOST, MOST + 1] {
        let mut world = World::new(1, Weather { window: usize::MAX, ..Weather::FAIR }, LIMITS);
        world.toy.slices_of = slices_of;
        let (peer, other) = (world.connect(), world.connect());
        let bytes = 9 * MOST + 300;
        peer.send(format!("x{bytes}\n").as_bytes());
        let mut left = bytes;
        while left > 0 {
            other.send(b"eme\n");
            world.turn();
            assert_eq!(other.read(usize::MAX), b"eme\n", "{left} of {slices_of}");
            let sent = peer.read(usize::MAX).len();
            // One turn sends once when the socket has room, and once when the connection is processed again.
            assert!((1..=2 * MOST).contains(&sent), "{sent} of {left}, {slices_of}");
            left -= sent;
        }
        world.run_until_idle();
        assert!(peer.read(usize::MAX).is_empty() && world.toy.closed.is_empty());
    }
}

#[test]
fn a_slow_reader_is_read_no_further_and_then_goes_on() {
    let mut world = World::new(2, Weather { window: 4096, ..Weather::FAIR }, LIMITS);
    let peer = world.connect();
    let asks = 100_000;
    peer.send(&b"x100\n".repeat(asks));
    world.run_until_idle();
    // At most the limit and one reply wait. Most requests are not received: at most one or two receives are
    // made.
    assert!(world.toy.unsent_most <= REPLY_BYTES_MAX + 100, "{}", world.toy.unsent_most);
    assert!(peer.untaken() > 5 * asks - 3 * 65536);
    assert_eq!(world.read_all(&peer).len(), 100 * asks);
    assert!(world.toy.unsent_most <= REPLY_BYTES_MAX + 100);
    assert!(world.toy.closed.is_empty());
}

#[test]
fn requests_are_read_while_less_than_the_limit_waits_and_no_further() {
    const WINDOW: usize = 4096;
    let max = REPLY_BYTES_MAX as usize;
    for waiting in [max - 1, max, max + 1] {
        let mut world = World::new(5, Weather { window: WINDOW, ..Weather::FAIR }, LIMITS);
        let peer = world.connect();
        peer.send(format!("x{}\n", WINDOW + waiting).as_bytes());
        world.run_until_idle();
        assert_eq!(world.toy.unsent_most, waiting as u64);
        peer.send(b"enext\n");
        world.run_until_idle();
        let untaken = if waiting < max { 0 } else { b"enext\n".len() };
        assert_eq!(peer.untaken(), untaken, "{waiting} bytes wait");
        // Requests that were received get their replies in turn; then the others are received.
        let replies = world.read_all(&peer);
        assert_eq!(replies.len(), WINDOW + waiting + b"enext\n".len());
        assert!(replies.ends_with(b"xenext\n") && world.toy.closed.is_empty());
    }
}

#[test]
fn a_reader_without_progress_is_closed_at_the_stall_timeout_and_one_with_progress_is_not() {
    let mut world = World::new(3, Weather { window: 4096, ..Weather::FAIR }, LIMITS);
    let stuck = world.connect();
    let slow = world.connect();
    stuck.send(b"x9000\n");
    slow.send(b"x9000\n");
    world.run_until_idle();
    world.pass(50_000);
    assert!(world.toy.closed.is_empty());
    slow.read(100);
    world.pass(15_000);
    assert_eq!(world.toy.closed, [Closed::Stalled]);
    assert!(stuck.closed() && !slow.closed());
    assert_eq!(world.read_all(&slow).len(), 8900);
}

#[test]
fn an_upload_without_progress_is_closed_at_the_request_timeout_and_one_with_progress_is_not() {
    let mut world = World::new(5, Weather::FAIR, LIMITS);
    let stuck = world.connect();
    let slow = world.connect();
    let idle = world.connect();
    stuck.send(b"u5000\nabc");
    slow.send(b"u5000\n");
    world.run_until_idle();
    world.pass(59_000);
    assert!(world.toy.closed.is_empty());
    slow.send(b"abc");
    world.run_until_idle();
    world.pass(2_000);
    assert_eq!(world.toy.closed, [Closed::Unfinished]);
    assert!(stuck.closed() && !slow.closed() && !idle.closed());
    slow.send(&[b'x'; 4997]);
    world.run_until_idle();
    assert!(!world.read_all(&slow).is_empty());
    world.pass(120_000);
    assert_eq!(world.toy.closed.len(), 1, "a connection whose upload is done may rest");
}

#[test]
fn requests_that_come_with_the_end_of_an_upload_are_answered_also_if_its_handler_yields() {
    for weather in [Weather::FAIR, Weather::DRIP, Weather::STORM] {
        for yields in [false, true] {
            let mut world = World::new(5, weather, LIMITS);
            world.toy.yields = yields;
            let peer = world.connect();
            peer.send(b"u70000\n");
            world.run_until_idle();
            peer.send(&[1; 69_000]);
            world.run_until_idle();
            peer.send(
                &[&[1; 1_000][..], b"eone\nu3\n\x01\x01\x01etwo\nu2000\n", &[1; 2_000], b"ethree\n"].concat(),
            );
            let replies = world.read_all(&peer);
            assert_eq!(String::from_utf8_lossy(&replies), "70000\neone\n3\netwo\n2000\nethree\n", "{yields}");
        }
    }
}

#[test]
fn a_line_without_an_end_is_closed_at_the_request_timeout_and_one_with_progress_is_not() {
    let mut world = World::new(5, Weather::FAIR, Limits { request_ms: 7_000, ..LIMITS });
    let (stuck, slow, done) = (world.connect(), world.connect(), world.connect());
    for peer in [&stuck, &slow, &done] {
        peer.send(b"ehel");
    }
    world.run_until_idle();
    world.pass(6_000);
    slow.send(b"lo");
    done.send(b"lo\n");
    world.pass(900);
    assert!(world.toy.closed.is_empty());
    world.pass(1_100);
    assert_eq!(world.toy.closed, [Closed::Unfinished]);
    assert!(stuck.closed() && !slow.closed() && !done.closed());
    world.pass(3_000);
    slow.send(b"\n");
    assert_eq!(world.read_all(&slow), b"ehello\n");
    world.pass(120_000);
    assert_eq!(world.toy.closed.len(), 1, "who has had the answers may rest");
    // A loop whose connections have no request under way does not wake up to check timeouts.
    let waits = world.events.backend().waits();
    world.pass(60_000);
    assert!(world.events.backend().waits() - waits <= 2, "it sleeps");
}

#[test]
fn a_paused_request_is_not_one_that_its_sender_does_not_go_on_with() {
    let mut world =
        World::new(5, Weather { window: 4096, ..Weather::FAIR }, Limits { stall_ms: 0, ..LIMITS });
    let peer = world.connect();
    // More reply bytes than may wait, and behind them a line that is kept until the replies are sent.
    peer.send(b"x20000\nelater\n");
    world.run_until_idle();
    world.pass(300_000);
    assert!(world.toy.closed.is_empty() && world.events.kept_bytes() > 0);
    assert!(world.read_all(&peer).ends_with(b"xelater\n"));
}

#[test]
fn memory_for_kept_input_is_counted_and_given_back() {
    let mut world = World::new(6, Weather { window: 4096, ..Weather::FAIR }, LIMITS);
    let (half, other) = (world.connect(), world.connect());
    half.send(b"e");
    half.send(&[b'y'; 5000]);
    other.send(b"ez");
    world.run_until_idle();
    let kept = world.events.kept_bytes();
    assert!((5003..7000).contains(&kept), "{kept}");
    half.send(b"\n");
    world.run_until_idle();
    world.read_all(&half);
    world.run_until_idle();
    assert!(world.events.kept_bytes() <= 512);
    for peer in [&half, &other] {
        let id = world.events.id_at(0).or(world.events.id_at(1)).expect("one is left");
        let _ = peer;
        world.events.close(&mut world.toy, id, Closed::Shed);
    }
    assert_eq!(world.events.kept_bytes(), 0);
    assert_eq!(world.toy.closed, [Closed::Shed; 2]);
}

#[test]
fn while_memory_is_short_nothing_is_answered_that_would_wait() {
    let mut world = World::new(7, Weather { window: 4096, ..Weather::FAIR }, LIMITS);
    world.events.set_short(&mut world.toy, true);
    let (peer, full) = (world.connect(), world.connect());
    peer.send(b"ea\n");
    assert_eq!(world.read_all(&peer), b"ea\n", "its stream has room");
    full.send(b"x4096\n");
    world.run_until_idle();
    full.send(b"x100\nx200\n");
    world.run_until_idle();
    assert_eq!((world.toy.unsent_most, full.untaken()), (0, 10), "its stream has none: it is not even read");
    assert_eq!(full.read(5000).len(), 4096);
    assert_eq!(world.read_all(&full).len(), 300);
    // A connection whose replies wait is not read from.
    peer.send(b"x9000\n");
    world.run_until_idle();
    peer.send(b"eb\n");
    world.run_until_idle();
    assert!(world.events.kept_bytes() <= 512);
    let mut replies = vec![b'x'; 9000];
    replies.extend_from_slice(b"eb\n");
    assert_eq!(world.read_all(&peer), replies);
}

/// A connection sends all of its requests before it reads. The loop reads from it again when memory is no
/// longer short, even if other connections are busy.
#[test]
fn whose_replies_wait_is_read_again_when_memory_is_short_no_more() {
    let mut world = World::new(9, Weather { window: 4096, ..Weather::FAIR }, LIMITS);
    let peer = world.connect();
    world.events.set_short(&mut world.toy, true);
    peer.send(b"x5000\n");
    world.run_until_idle();
    peer.send(b"ea\n");
    world.run_until_idle();
    assert_eq!(peer.untaken(), 3, "it is not read while its reply waits");
    world.events.set_short(&mut world.toy, false);
    world.run_until_idle();
    assert_eq!(peer.untaken(), 0);
    assert_eq!(world.read_all(&peer).len(), 5003);
}

#[test]
fn while_memory_is_short_a_stream_is_asked_for_room_only_when_it_may_be_full() {
    let mut world = World::new(9, Weather { window: 64 << 10, ..Weather::FAIR }, LIMITS);
    let peer = world.connect();
    peer.send(b"ea\n");
    assert_eq!(world.read_all(&peer), b"ea\n");
    assert_eq!(world.events.backend().asked(), 0, "there is enough");
    world.events.set_short(&mut world.toy, true);
    for _ in 0..100 {
        peer.send(b"ea\n");
        assert_eq!(world.read_all(&peer), b"ea\n");
    }
    // By the loop's estimate a send of 3 bytes takes 2 KiB and 3 bytes of the stream's 64 KiB.
    assert_eq!(world.events.backend().asked(), 4);
}

#[test]
fn who_waited_for_room_is_answered_when_memory_is_short_no_more() {
    let mut world = World::new(8, Weather { window: 4096, ..Weather::FAIR }, LIMITS);
    let peer = world.connect();
    peer.send(b"x4096\n");
    world.run_until_idle();
    world.events.set_short(&mut world.toy, true);
    peer.send(b"ea\n");
    world.run_until_idle();
    assert_eq!(world.toy.unsent_most, 0);
    world.events.set_short(&mut world.toy, false);
    world.run_until_idle();
    assert_eq!(world.toy.unsent_most, 3);
    assert_eq!(world.read_all(&peer).len(), 4099);
}

#[test]
fn an_idle_connection_is_closed_at_the_idle_timeout() {
    let mut world = World::new(4, Weather::FAIR, Limits { idle_ms: 3000, ..LIMITS });
    let idle = world.connect();
    let active = world.connect();
    for _ in 0..4 {
        world.pass(1000);
        active.send(b"ex\n");
        world.run_until_idle();
    }
    world.pass(1000);
    assert!(idle.closed() && !active.closed());
    assert_eq!(world.toy.closed, [Closed::Idle]);
}

/// While a request sleeps, its client has nothing to send. When the connection continues, the client has had
/// no time to send yet.
#[test]
fn a_connection_whose_request_is_under_way_is_not_idle() {
    let mut world = World::new(4, Weather::FAIR, Limits { idle_ms: 3000, ..LIMITS });
    let peer = world.connect();
    peer.send(b"t10000\nex\n");
    world.run_until_idle();
    world.pass(9_999);
    assert!(peer.read(usize::MAX).is_empty() && world.toy.closed.is_empty());
    world.pass(1);
    assert_eq!(world.read_all(&peer), b"ex\n");
    world.pass(2_000);
    assert!(world.toy.closed.is_empty());
    world.pass(2_000);
    assert_eq!(world.toy.closed, [Closed::Idle]);
}

#[test]
fn an_idle_loop_wakes_for_nothing() {
    let mut world = World::new(5, Weather::FAIR, LIMITS);
    let _peers: Vec<Peer> = (0..100).map(|_| world.connect()).collect();
    world.run_until_idle();
    wakes_for_nothing(&mut world);
    // The same for a connection whose replies had waited for the peer to read, and are sent now.
    let slow = Weather { window: 100, ..Weather::FAIR };
    let mut world = World::new(5, slow, LIMITS);
    let peer = world.connect();
    peer.send(b"x1000\n");
    assert_eq!(world.read_all(&peer).len(), 1000);
    wakes_for_nothing(&mut world);
}

fn wakes_for_nothing(world: &mut World) {
    let (before, now) = (world.events.backend().waits(), world.events.now());
    world.events.turn(&mut world.toy, Some(std::time::Duration::from_secs(3600))).unwrap();
    assert_eq!(world.events.now(), now + 3_600_000);
    assert_eq!(world.events.backend().waits(), before + 1);
}

#[test]
fn a_half_closed_peer_gets_its_replies_first() {
    for weather in [Weather::FAIR, Weather::DRIP, Weather::STORM] {
        let mut world = World::new(6, weather, LIMITS);
        let peer = world.connect();
        peer.send(b"x50000\nelast\nepartial");
        peer.end();
        let got = world.read_all(&peer);
        assert_eq!(got.len(), 50_006);
        assert!(got.ends_with(b"elast\n"));
        assert!(peer.closed());
        assert_eq!(world.toy.closed, [Closed::Peer]);
    }
}

#[test]
fn a_reset_ends_the_connection_whatever_it_waits_for() {
    let mut world = World::new(7, Weather { window: 4096, ..Weather::FAIR }, LIMITS);
    let peers: Vec<Peer> = (0..4).map(|_| world.connect()).collect();
    peers[1].send(b"epartial");
    peers[2].send(b"u5000\nbegin");
    peers[3].send(&b"x100\n".repeat(10_000));
    world.run_until_idle();
    for peer in &peers {
        peer.reset();
    }
    world.run_until_idle();
    assert_eq!(world.toy.closed, [Closed::Error; 4]);
    assert!(world.events.is_empty());
}

#[test]
fn close_sends_what_was_answered_and_drops_what_came_after() {
    let mut world = World::new(8, Weather { window: 16, ..Weather::FAIR }, LIMITS);
    let peer = world.connect();
    peer.send(b"x1000\nq\nelate\n");
    assert_eq!(world.read_all(&peer), vec![b'x'; 1000]);
    assert!(peer.closed());
    assert_eq!(world.toy.closed, [Closed::Handler]);
}

#[test]
fn input_without_end_is_closed_at_the_receive_bytes() {
    use larder_eventloop::RECEIVE_BYTES;
    for (bytes, closed) in [(RECEIVE_BYTES - 1, false), (RECEIVE_BYTES, true), (RECEIVE_BYTES + 1, true)] {
        let mut world = World::new(9, Weather::FAIR, LIMITS);
        let peer = world.connect();
        peer.send(&vec![b'e'; bytes]);
        world.run_until_idle();
        assert_eq!(peer.closed(), closed, "{bytes}");
    }
}

#[test]
fn the_waker_is_reported() {
    let mut world = World::new(11, Weather::FAIR, LIMITS);
    world.events.backend().wake();
    assert!(world.events.turn(&mut world.toy, None).unwrap().woken);
}
