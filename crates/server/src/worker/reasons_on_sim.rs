//! Why connections were closed, as `watch connevents` tells it, in virtual time.

use larder_eventloop::Closed;
use larder_eventloop::sim::{Peer, Weather};

use super::on_sim::{World, bytes_of, frame, resp};
use super::removed_on_sim;
use crate::config::Config;

/// A server that clients may stop, and a watcher of its connections.
fn world() -> (World, Peer) {
    let config = Config { threads: 1, shutdown: true, ..Config::default() };
    let mut world = World::of(config, 1, Weather::FAIR);
    let watcher = world.connect();
    watch(&mut world, &watcher);
    (world, watcher)
}

fn watch(world: &mut World, watcher: &Peer) {
    world.exchange(watcher, "watch connevents\r\n", "OK\r\n");
}

/// The reason of the one connection that was closed since the watcher read last.
fn reason(world: &mut World, watcher: &Peer) -> String {
    // The line wakes the watcher, which is sent it in a later turn.
    world.run_until_idle();
    let lines = world.read_all(watcher);
    let closed = lines.lines().filter(|line| line.contains(" type=conn_close "));
    let reasons: Vec<&str> =
        closed.filter_map(|line| line.split(' ').find_map(|word| word.strip_prefix("reason="))).collect();
    let &[reason] = &reasons[..] else { panic!("{lines:?}") };
    reason.to_owned()
}

#[test]
fn a_conversation_ends_normally_by_quit_and_in_error_by_all_else_but_shutdown() {
    let (mut world, watcher) = world();
    let [quits, stops] = [&["QUIT"][..], &["SHUTDOWN", "NOSAVE"]].map(resp);
    let (quit, quitq) = (frame(0x80, 0x07, b"", "", ""), frame(0x80, 0x17, b"", "", ""));
    // It would be `quit`, but for its key.
    let keyed = frame(0x80, 0x07, b"", "k", "");
    let endless = "x".repeat(5000);
    let cases: [(usize, &str, &str); 17] = [
        (0, "quit\r\n", "normal"),
        (0, "set k 0 0 1\r\nx\r\nget k\r\nquit\r\n", "normal"),
        (0, &quit, "normal"),
        (0, &quitq, "normal"),
        (0, &quits, "normal"),
        (1, "QUIT\r\n", "normal"),
        (0, "shutdown\r\n", "shutdown"),
        (0, "shutdown graceful\r\n", "shutdown"),
        (1, &stops, "shutdown"),
        // What a browser was made to send.
        (0, "GET / HTTP/1.1\r\n", "error"),
        (1, "POST / HTTP/1.1\r\n", "error"),
        // TLS, which is not spoken here.
        (0, "\x16\x03\x01", "error"),
        (1, "\x16\x03\x01", "error"),
        // Errors of the protocols.
        (0, &endless, "error"),
        (0, &keyed, "error"),
        (0, "*x\r\n", "error"),
        (1, "*1\r\n+QUIT\r\n", "error"),
    ];
    for (listener, request, told) in cases {
        let peer = world.connect_to(listener);
        peer.send(&bytes_of(request));
        assert_eq!(reason(&mut world, &watcher), told, "{request:?}");
        assert!(peer.closed());
    }
}

#[test]
fn the_end_of_a_stream_is_normal_and_a_reset_an_error_wherever_they_come() {
    let (mut world, watcher) = world();
    for sent in
        ["", "get a\r\n", "get a", "set a 0 0 5\r\nhe", "set a 0 0 90000\r\nhe", "*2\r\n$3\r\nGET\r\n"]
    {
        let [ends, resets] = [(); 2].map(|()| {
            let peer = world.connect();
            peer.send(sent.as_bytes());
            peer
        });
        world.run_until_idle();
        ends.end();
        assert_eq!(reason(&mut world, &watcher), "normal", "{sent:?}");
        resets.reset();
        assert_eq!(reason(&mut world, &watcher), "error", "{sent:?}");
    }
    // While a command waits its connection is not read: the end of its stream is not told from a reset.
    let waits = world.connect_to(1);
    waits.send(resp(&["BLPOP", "l", "0"]).as_bytes());
    world.run_until_idle();
    waits.end();
    assert_eq!(reason(&mut world, &watcher), "error");
}

#[test]
fn a_client_that_has_quit_ends_normally_also_if_the_rest_of_its_replies_is_lost() {
    let (mut world, watcher) = world();
    for (request, told) in [("version\r\nquit\r\n", "normal"), ("version\r\nGET / HTTP/1.1\r\n", "error")] {
        let peer = world.connect();
        peer.narrow(3);
        peer.send(request.as_bytes());
        world.run_until_idle();
        assert!(!peer.closed(), "the rest of the reply waits");
        peer.reset();
        assert_eq!(reason(&mut world, &watcher), told, "{request:?}");
    }
}

#[test]
fn what_others_close_is_closed_in_error() {
    let (mut world, watcher) = world();
    let [admin, victim] = [(); 2].map(|()| world.connect_to(1));
    world.exchange(&victim, &resp(&["PING"]), "+PONG\r\n");
    world.exchange(&admin, &resp(&["CLIENT", "KILL", "TYPE", "normal"]), ":1\r\n");
    assert!(victim.closed());
    assert_eq!(reason(&mut world, &watcher), "error");
    // So is the client itself, if it is among those that are to be closed.
    world.exchange(&admin, &resp(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no"]), ":1\r\n");
    assert!(admin.closed());
    assert_eq!(reason(&mut world, &watcher), "error");
}

#[test]
fn a_client_whose_user_is_removed_or_that_must_log_in_first_is_closed_in_error() {
    let (mut world, admin) = removed_on_sim::world();
    let watcher = removed_on_sim::text(&mut world, "other");
    watch(&mut world, &watcher);
    let client = removed_on_sim::text(&mut world, "app");
    world.exchange(&admin, &resp(&["ACL", "DELUSER", "app"]), ":1\r\n");
    assert!(client.closed());
    assert_eq!(reason(&mut world, &watcher), "error");
    // memcached takes no `quit` before the login either: the line is too short for one.
    let unauthenticated = world.connect();
    unauthenticated.send(b"quit\r\n");
    assert_eq!(reason(&mut world, &watcher), "error");
}

#[test]
fn what_the_loop_closes_is_told_in_memcacheds_words() {
    let (mut world, watcher) = world();
    for (why, told) in [
        (Closed::Peer, "normal"),
        (Closed::Idle, "idle_timeout"),
        (Closed::Drained, "shutdown"),
        (Closed::Handler, "error"),
        (Closed::Error, "error"),
        (Closed::Stalled, "error"),
        (Closed::Unfinished, "error"),
        (Closed::Unauthenticated, "error"),
        (Closed::Shed, "error"),
        (Closed::Crowded, "error"),
        (Closed::Input, "error"),
    ] {
        let _peer = world.connect();
        world.run_until_idle();
        // The watcher has the first place.
        let places = world.events.places();
        let id = (1..places).rev().find_map(|place| world.events.id_at(place)).expect("the other one");
        world.events.close(&mut world.service, id, why);
        assert_eq!(reason(&mut world, &watcher), told, "{why:?}");
    }
}
