//! Requests that come in part and stand still, in virtual time: which connection goes first, and when.

use std::sync::Arc;

use larder_commands::Counter;
use larder_eventloop::sim::{Peer, Weather};

use super::on_sim::{World, resp};
use crate::config::Config;

/// Bytes of a request that is kept.
const PART: usize = 31_000;

fn config() -> Config {
    Config { threads: 1, connections_max: 4096, ..Config::default() }
}

fn world(config: Config) -> World {
    World::of(config, 1, Weather { receive_max: usize::MAX, window: 1 << 20, ..Weather::FAIR })
}

/// A part of a RESP request that waits in the receive buffer, of a text line of keys, and of a value for its item.
fn part(number: usize) -> Vec<u8> {
    let head = [&b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$32000\r\n"[..], b"set z 0 0 15000\r\n"][number % 2];
    let bytes = [PART, 14_000][number % 2];
    let mut part = head.to_vec();
    part.resize(bytes, b'x');
    part
}

fn counter(world: &World, counter: Counter) -> u64 {
    let mut sums = larder_commands::Sums::default();
    world.service.hub().handles.iter().for_each(|handle| sums.add(&handle.counters));
    sums.of(counter)
}

#[test]
fn those_that_stand_for_longest_go_first_and_the_others_stay_within_the_share() {
    let mut world = world(config());
    let max = world.service.hub().store.input_bytes_max();
    assert_eq!(max, 8 << 20);
    // A request that goes on, and one that is short: neither is in the way.
    let (busy, typing) = (world.connect(), world.connect());
    busy.send(b"set busy 0 0 200000\r\n");
    typing.send(b"get someth");
    let mut sent = 0;
    let mut peers: Vec<Peer> = Vec::new();
    for number in 0..1000 {
        let peer = world.connect();
        peer.send(&part(number));
        peers.push(peer);
        if number % 10 == 0 {
            busy.send(&[b'b'; 2000]);
            sent += 2000;
        }
        world.run_until_idle();
        let bytes = world.service.hub().store.input_bytes();
        assert!(bytes <= max + (64 << 10), "{bytes} bytes at {number}");
        world.pass(1);
    }
    let open = peers.iter().position(|peer| !peer.closed()).expect("the last ones are there");
    assert!(peers[open..].iter().all(|peer| !peer.closed()), "the oldest have gone, and no others");
    assert!(open > 500 && open < 900, "{open} have gone");
    assert_eq!(counter(&world, Counter::Crowded), open as u64);
    busy.send(&vec![b'b'; 200_000 - sent]);
    busy.send(b"\r\n");
    assert_eq!(world.read_all(&busy), "STORED\r\n");
    world.exchange(&typing, "ing\r\n", "END\r\n");
}

/// A crowd that sends a part of a request each at once: a turn takes some of them, and a client that asks for a key is
/// answered by its end.
#[test]
fn a_turn_takes_little_of_a_crowd_and_answers_who_asks_for_a_key() {
    let mut world = world(config());
    let asks = world.connect();
    let peers: Vec<Peer> = (0..250).map(|_| world.connect()).collect();
    world.run_until_idle();
    peers.iter().for_each(|peer| peer.send(&part(0)));
    asks.send(b"get nothing\r\n");
    world.turn();
    let bytes = world.service.hub().store.input_bytes();
    assert!(bytes <= 3 << 20, "{bytes} bytes of a turn");
    assert_eq!(asks.read(100), b"END\r\n");
    world.run_until_idle();
    assert!(world.service.hub().store.input_bytes() >= 7 << 20, "the others come in the next ones");
}

/// What is kept is told where it has changed by 16 KiB or more, and so are the last bytes of it, which are fewer.
#[test]
fn input_that_is_kept_no_more_counts_no_more() {
    let mut world = world(config());
    let store = Arc::clone(&world.service.hub().store);
    let (one, other) = (world.connect_to(1), world.connect_to(1));
    world.run_until_idle();
    let heap_bytes = store.heap_bytes();
    let request = |key: &str| resp(&["SET", key, &"v".repeat(31_000)]).into_bytes();
    let (a, b) = (request("a"), request("b"));
    let mut told = |peer: &Peer, bytes: &[u8]| {
        peer.send(bytes);
        world.run_until_idle();
        (store.input_bytes(), store.heap_bytes() - heap_bytes)
    };
    assert_eq!(told(&one, &a[..20_000]), (20_000, 20_000));
    assert_eq!(told(&one, &a[20_000..30_000]), (20_000, 20_000));
    assert_eq!(told(&other, &b[..15_000]), (45_000, 45_000));
    assert_eq!(told(&one, &a[30_000..]), (15_000, 15_000));
    assert_eq!(told(&other, &b[15_000..]), (0, 0));
    for peer in [one, other] {
        assert_eq!(world.read_all(&peer), "+OK\r\n");
    }
}

#[test]
fn who_goes_in_the_turn_in_which_it_was_answered_has_its_reply() {
    let mut world = world(config());
    let peers: Vec<Peer> = (0..400).map(|_| world.connect()).collect();
    world.run_until_idle();
    for peer in &peers {
        peer.send(&[resp(&["PING"]).as_bytes(), &part(0)].concat());
    }
    world.run_until_idle();
    let gone = peers.iter().filter(|peer| peer.closed()).count();
    assert!(gone > 100, "{gone} have gone");
    for peer in &peers {
        assert_eq!(world.read_all(peer), "+PONG\r\n");
    }
}

#[test]
fn one_large_value_alone_may_be_larger_than_the_share_and_drives_nobody_out() {
    const VALUE: usize = 20 << 20;
    let mut world = world(Config { item_bytes_max: Some(24 << 20), ..config() });
    let (large, small) = (world.connect(), world.connect());
    small.send(&part(0));
    large.send(format!("set large 0 0 {VALUE}\r\n").as_bytes());
    for at in (0..VALUE).step_by(500_000) {
        large.send(&vec![b'v'; 500_000.min(VALUE - at)]);
        world.run_until_idle();
    }
    large.send(b"\r\n");
    assert_eq!(world.read_all(&large), "STORED\r\n");
    assert!(!small.closed());
}

#[test]
fn a_request_that_is_answered_in_steps_stands_in_the_way_of_none_behind_it() {
    const KEYS: usize = 500_000;
    let mut world = world(Config { item_bytes_max: Some(24 << 20), ..config() });
    let (asks, small) = (world.connect_to(1), world.connect());
    let keys: String = (0..KEYS).map(|key| format!("$10\r\nkey:{key:06}\r\n")).collect();
    let request = format!("*{}\r\n$4\r\nMGET\r\n{keys}", KEYS + 1);
    let max = world.service.hub().store.input_bytes_max();
    assert!(request.len() as u64 > max, "alone it is more than all requests may be on their way in");
    for bytes in request.as_bytes().chunks(500_000) {
        asks.send(bytes);
        world.run_until_idle();
    }
    // It is whole, and its reply waits for the client to read it.
    assert_eq!(world.service.hub().store.input_bytes(), 0);
    assert!(world.service.hub().store.held_bytes() as usize > request.len());
    asks.send([resp(&["PING"]).as_bytes(), &part(0)].concat().as_slice());
    small.send(&part(1));
    world.run_until_idle();
    world.pass(300);
    assert!(!asks.closed() && !small.closed());
    let reply = world.read_all(&asks);
    assert!(reply.starts_with(&format!("*{KEYS}\r\n$-1\r\n")) && reply.ends_with("$-1\r\n+PONG\r\n"));
    assert_eq!(reply.matches("$-1\r\n").count(), KEYS);
}

/// Requests that are whole are held while they are answered, and a client that reads no answers holds them for long:
/// further ones are kept within what connections may hold.
#[test]
fn whole_requests_of_those_who_read_nothing_stay_within_what_connections_hold() {
    const KEYS: usize = 200_000;
    let mut world = world(Config { item_bytes_max: Some(24 << 20), ..config() });
    let keys: String = (0..KEYS).map(|key| format!("$10\r\nkey:{key:06}\r\n")).collect();
    let request = format!("*{}\r\n$4\r\nMGET\r\n{keys}", KEYS + 1);
    let max = world.service.hub().store.held_bytes_max();
    let small = world.connect();
    small.send(&part(1));
    let peers: Vec<Peer> = (0..12).map(|_| world.connect_to(1)).collect();
    for peer in &peers {
        for bytes in request.as_bytes().chunks(500_000) {
            peer.send(bytes);
            world.run_until_idle();
            let held = world.service.hub().store.held_bytes();
            assert!(held <= max, "{held} bytes are held");
        }
        world.pass(20);
    }
    assert!(!small.closed());
    // A client that reads has an answer each: the values, or that there is no room.
    let last = world.connect_to(1);
    drop(peers);
    world.run_until_idle();
    last.send(request.as_bytes());
    assert_eq!(world.read_all(&last).matches("$-1\r\n").count(), KEYS);
}

/// Whether they have stood for long when it comes, or stand since that moment.
#[test]
fn who_waits_for_the_memory_of_requests_that_stand_gets_it_when_they_go() {
    for stood_ms in [0, 300] {
        let mut world = world(config());
        // Values under way, each within what may be refused, that take all the share and stand.
        let peers: Vec<Peer> = (0..9).map(|_| world.connect()).collect();
        for (number, peer) in peers.iter().enumerate() {
            peer.send(format!("set v{number} 0 0 1000000\r\n").as_bytes());
            peer.send(&vec![b'v'; 990_000]);
            world.run_until_idle();
        }
        world.pass(stood_ms);
        let other = world.connect();
        world.exchange(&other, "set base 0 0 1\r\nb\r\n", "STORED\r\n");
        other.send(b"append base 0 0 900000\r\n");
        for _ in 0..9 {
            other.send(&[b'a'; 100_000]);
            world.run_until_idle();
            world.pass(50);
        }
        other.send(b"\r\n");
        assert_eq!(world.read_all(&other), "STORED\r\n", "{stood_ms}");
        let closed = peers.iter().filter(|peer| peer.closed()).count();
        assert!((1..=3).contains(&closed), "{closed} have gone, {stood_ms}");
        assert!(peers[0].closed(), "the one that has stood for longest");
    }
}

/// Parts of a long request, which is gathered.
fn long_request() -> Vec<String> {
    let argument = format!("$16000\r\n{}\r\n", "x".repeat(16_000));
    let pairs = (0..20).map(|key| format!("$3\r\nk{key:02}\r\n{argument}"));
    std::iter::once("*41\r\n$4\r\nMSET\r\n".to_owned()).chain(pairs).collect()
}

#[test]
fn who_waits_for_what_replies_hold_drives_no_request_out() {
    let mut world = world(config());
    let (small, asks) = (world.connect(), world.connect_to(1));
    small.send(&part(0));
    world.run_until_idle();
    world.pass(300);
    let store = Arc::clone(&world.service.hub().store);
    let max = store.held_bytes_max() as i64;
    store.hold(max);
    for part in long_request() {
        asks.send(part.as_bytes());
        world.run_until_idle();
        world.pass(20);
    }
    assert!(!small.closed());
    assert_eq!(counter(&world, Counter::Crowded), 0);
    store.hold(-max);
}

#[test]
fn a_short_request_that_stands_stays_where_long_ones_hold_what_is_missing() {
    let mut world = world(config());
    let (small, other) = (world.connect(), world.connect());
    world.exchange(&other, "set base 0 0 1\r\nb\r\n", "STORED\r\n");
    small.send(&part(0));
    world.run_until_idle();
    let peers = uploads(&mut world, "");
    other.send(b"append base 0 0 900000\r\n");
    for _ in 0..9 {
        other.send(&[b'a'; 100_000]);
        peers.iter().for_each(|peer| peer.send(b"v"));
        world.run_until_idle();
        world.pass(50);
    }
    assert!(!small.closed());
}

/// Values under way that take all the share when all of them have begun, of clients that `say` this first.
fn uploads(world: &mut World, say: &str) -> Vec<Peer> {
    let peers: Vec<Peer> = (0..9).map(|_| world.connect()).collect();
    for (number, peer) in peers.iter().enumerate() {
        if !say.is_empty() {
            world.exchange(peer, say, "STORED\r\n");
        }
        peer.send(format!("set v{number} 0 0 1000000\r\n").as_bytes());
        peer.send(&[b'v'; 20_000]);
        world.run_until_idle();
    }
    for peer in &peers {
        peer.send(&vec![b'v'; 960_000]);
        world.run_until_idle();
    }
    peers
}

#[test]
fn short_requests_stay_above_the_share_until_they_are_a_sixteenth() {
    let mut world = world(config());
    let store = Arc::clone(&world.service.hub().store);
    let (max, uploads) = (store.input_bytes_max(), uploads(&mut world, ""));
    let mut peers: Vec<Peer> = Vec::new();
    let mut most = 0;
    for number in 0..60 {
        let peer = world.connect();
        peer.send(&part(0));
        peers.push(peer);
        uploads.iter().for_each(|upload| upload.send(b"v"));
        world.run_until_idle();
        world.pass(20);
        let bytes = store.input_bytes();
        assert!(bytes <= max + max / 16 + PART as u64, "{bytes} bytes at {number}");
        most = most.max(bytes);
        let open = peers.iter().position(|peer| !peer.closed()).expect("the last one is there");
        assert!(peers[open..].iter().all(|peer| !peer.closed()), "the oldest have gone, and no others");
        assert!(
            open == 0 || most > max + max / 16 - 2 * PART as u64,
            "{open} have gone of {number} at {most}"
        );
    }
    assert!(peers[0].closed() && uploads.iter().all(|peer| !peer.closed()));
}

#[test]
fn unauthenticated_clients_that_hold_more_than_their_quarter_go_where_those_who_move_hold_the_share() {
    let mut world = world(Config { password: Some("secret".into()), ..config() });
    let store = Arc::clone(&world.service.hub().store);
    let max = store.input_bytes_max();
    // Long ones, of which each is gathered, and short ones on top.
    let argument = format!("$16000\r\n{}\r\n", "x".repeat(16_000));
    let long = format!("*10\r\n{}$16000\r\n{}", argument.repeat(9), "x".repeat(14_000));
    let short = format!("*2\r\n$4\r\nECHO\r\n$16000\r\n{}", "x".repeat(15_000));
    let unknown: Vec<Peer> = (0..60).map(|_| world.connect_to(1)).collect();
    for peer in &unknown[..7] {
        peer.send(long.as_bytes());
        world.run_until_idle();
    }
    let uploads = uploads(&mut world, "set login 0 0 14\r\ndefault secret\r\n");
    assert!(world.service.hub().shared.common.unauthenticated.bytes() > max / 5);
    for (number, peer) in unknown[7..].iter().enumerate() {
        peer.send(short.as_bytes());
        unknown[..7].iter().for_each(|peer| peer.send(b"x"));
        uploads.iter().for_each(|upload| upload.send(b"v"));
        world.run_until_idle();
        world.pass(20);
        let held = world.service.hub().shared.common.unauthenticated.bytes();
        assert!(held <= max / 4 + (64 << 10), "{held} bytes of unauthenticated clients at {number}");
    }
    assert!(unknown[7].closed() && uploads.iter().all(|peer| !peer.closed()));
}

/// A value that may be larger than the share hides no unauthenticated client.
#[test]
fn unauthenticated_clients_that_hold_more_than_their_quarter_go_beside_a_value_larger_than_the_share() {
    const VALUE: usize = 20 << 20;
    let password = Some("secret".into());
    let mut world = world(Config { password, item_bytes_max: Some(24 << 20), ..config() });
    let max = world.service.hub().store.input_bytes_max();
    let large = world.connect();
    world.exchange(&large, "set login 0 0 14\r\ndefault secret\r\n", "STORED\r\n");
    large.send(format!("set large 0 0 {VALUE}\r\n").as_bytes());
    let send = |world: &mut World, bytes: usize| {
        large.send(&vec![b'v'; bytes]);
        world.run_until_idle();
    };
    (0..24).for_each(|_| send(&mut world, 500_000));
    let short = format!("*2\r\n$4\r\nECHO\r\n$16000\r\n{}", "x".repeat(15_000));
    let unknown: Vec<Peer> = (0..200).map(|_| world.connect_to(1)).collect();
    for (number, peer) in unknown.iter().enumerate() {
        peer.send(short.as_bytes());
        world.run_until_idle();
        world.pass(1);
        let held = world.service.hub().shared.common.unauthenticated.bytes();
        assert!(held <= max / 4 + (64 << 10), "{held} bytes of unauthenticated clients at {number}");
    }
    let gone = unknown.iter().filter(|peer| peer.closed()).count();
    assert!(unknown[..gone].iter().all(Peer::closed), "the oldest have gone, and no others");
    assert!((40..150).contains(&gone), "{gone} have gone");
    send(&mut world, VALUE - 24 * 500_000);
    large.send(b"\r\n");
    assert_eq!(world.read_all(&large), "STORED\r\n");
}

/// A receive buffer has as much memory as is known of its connection, twice as much at most.
#[test]
fn what_a_long_request_had_is_given_back_where_little_of_the_next_has_come() {
    let mut world = world(config());
    let store = Arc::clone(&world.service.hub().store);
    let set = |bytes: usize| format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$32000\r\n{}", "x".repeat(bytes));
    let small = world.connect_to(1);
    small.send(set(20_000).as_bytes());
    let peers: Vec<Peer> = (0..400).map(|_| world.connect_to(1)).collect();
    for peer in &peers {
        peer.send(set(31_000).as_bytes());
        world.run_until_idle();
        peer.send(format!("{}\r\n*", "x".repeat(1_000)).as_bytes());
        assert_eq!(world.read_all(peer), "+OK\r\n");
    }
    world.pass(300);
    let bytes = store.input_bytes();
    assert!(bytes < 400 * 300 + 40_000, "{bytes} bytes");
    assert!(!small.closed() && peers.iter().all(|peer| !peer.closed()));
}

#[test]
fn who_does_not_say_who_it_is_goes_after_ten_seconds_whatever_it_sends() {
    let mut world = world(Config { password: Some("secret".into()), ..config() });
    let (silent, asks, known, text) =
        (world.connect_to(1), world.connect_to(1), world.connect_to(1), world.connect());
    world.exchange(&known, &resp(&["AUTH", "secret"]), "+OK\r\n");
    for _ in 0..3 {
        world.pass(3_000);
        world.exchange(&asks, &resp(&["PING"]), "-NOAUTH Authentication required.\r\n");
    }
    assert!(!silent.closed() && !asks.closed());
    world.pass(2_100);
    assert!(silent.closed() && asks.closed());
    assert!(!known.closed() && text.closed(), "text clients are asked, too");
    assert_eq!(counter(&world, Counter::Unfinished), 3);
    // What it said is forgotten: then it has ten seconds again.
    world.exchange(&known, &resp(&["RESET"]), "+RESET\r\n");
    world.pass(8_000);
    assert!(!known.closed());
    world.pass(3_100);
    assert!(known.closed());
}

#[test]
fn unauthenticated_clients_are_a_quarter_of_the_connections_and_the_next_is_refused() {
    let mut world = world(Config { password: Some("secret".into()), connections_max: 40, ..config() });
    let mut unknown: Vec<Peer> = (0..10).map(|_| world.connect_to(1)).collect();
    world.run_until_idle();
    assert!(unknown.iter().all(|peer| !peer.closed()));
    let refusals = ["ERROR Too many open connections\r\n", "-ERR max number of clients reached\r\n"];
    for (listener, refusal) in refusals.into_iter().enumerate() {
        let more = world.connect_to(listener);
        more.send(resp(&["PING"]).as_bytes());
        assert_eq!(world.read_all(&more), refusal, "by what the port is for");
        assert!(more.closed());
    }
    let silent = world.connect_to(1);
    assert_eq!(world.read_all(&silent), "-ERR max number of clients reached\r\n");
    assert!(silent.closed(), "it does not wait to be asked");
    world.exchange(&unknown[3], &resp(&["AUTH", "secret"]), "+OK\r\n");
    unknown.push(world.connect_to(1));
    world.exchange(&unknown[10], &resp(&["AUTH", "secret"]), "+OK\r\n");
    unknown[0].end();
    world.run_until_idle();
    let next = world.connect_to(1);
    world.exchange(&next, &resp(&["AUTH", "secret"]), "+OK\r\n");
}

#[test]
fn unauthenticated_clients_hold_a_quarter_of_what_requests_may_hold_and_nobody_else_suffers() {
    let mut world = world(Config { password: Some("secret".into()), ..config() });
    let max = world.service.hub().store.input_bytes_max();
    let known = world.connect_to(1);
    world.exchange(&known, &resp(&["AUTH", "secret"]), "+OK\r\n");
    known.send(&part(0));
    world.run_until_idle();
    // Ten arguments of 16 KB at most: each is gathered.
    let argument = format!("$16000\r\n{}\r\n", "x".repeat(16_000));
    let unknown: Vec<Peer> = (0..200).map(|_| world.connect_to(1)).collect();
    for (number, peer) in unknown.iter().enumerate() {
        let arguments = [1, 9][number % 2];
        peer.send(
            format!("*10\r\n{}$16000\r\n{}", argument.repeat(arguments), "x".repeat(14_000)).as_bytes(),
        );
        world.run_until_idle();
        world.pass(1);
        let held = world.service.hub().shared.common.unauthenticated.bytes();
        assert!(held <= max / 4 + (64 << 10), "{held} bytes of unauthenticated clients at {number}");
    }
    assert!(!known.closed());
    let other = world.connect();
    world.exchange(&other, "set login 0 0 14\r\ndefault secret\r\n", "STORED\r\n");
    world.exchange(&other, "set base 0 0 1\r\nb\r\n", "STORED\r\n");
    other.send(format!("append base 0 0 900000\r\n{}\r\n", "a".repeat(900_000)).as_bytes());
    assert_eq!(world.read_all(&other), "STORED\r\n");
    drop(unknown);
}

/// Turns until all of them are closed, each of which closes some, and answers `asks`.
fn closes_some_in_each_turn(world: &mut World, peers: &[Peer], asks: &Peer) {
    let open = || peers.iter().filter(|peer| !peer.closed()).count();
    let (mut before, mut turns) = (open(), 0);
    while before > 0 {
        asks.send(b"get nothing\r\n");
        world.turn();
        assert_eq!(asks.read(100), b"END\r\n");
        let now = open();
        assert!(before - now <= 32, "{} closed in a turn", before - now);
        turns += 1;
        assert!(turns < 100, "{now} are open");
        before = now;
    }
    assert!(turns >= 6, "{turns} turns");
}

#[test]
fn of_those_whose_time_comes_at_once_some_go_in_each_turn() {
    let mut world = world(config());
    let asks = world.connect();
    let peers: Vec<Peer> = (0..200).map(|_| world.connect()).collect();
    peers.iter().for_each(|peer| peer.send(b"get someth"));
    world.run_until_idle();
    world.pass(59_900);
    assert!(peers.iter().all(|peer| !peer.closed()));
    world.exchange(&asks, "get nothing\r\n", "END\r\n");
    world.events.backend().time().pass_us(1_200_000);
    closes_some_in_each_turn(&mut world, &peers, &asks);
    assert_eq!(counter(&world, Counter::Unfinished), 200);
    // The look goes on as before.
    let late = world.connect();
    late.send(b"get someth");
    world.run_until_idle();
    world.pass(61_100);
    assert!(late.closed());
}

#[test]
fn of_those_whom_somebody_wants_closed_some_go_in_each_turn() {
    let mut world = world(config());
    let asks = world.connect();
    let peers: Vec<Peer> = (0..200).map(|_| world.connect_to(1)).collect();
    for peer in &peers {
        world.exchange(peer, &resp(&["PING"]), "+PONG\r\n");
    }
    let kills = world.connect_to(1);
    kills.send(resp(&["CLIENT", "KILL", "TYPE", "normal"]).as_bytes());
    closes_some_in_each_turn(&mut world, &peers, &asks);
    assert_eq!(kills.read(100), b":200\r\n");
}
