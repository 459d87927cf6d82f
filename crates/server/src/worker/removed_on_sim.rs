//! Clients of memcached whose users are removed, in virtual time.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use larder_commands::{Digest, Host};
use larder_eventloop::sim::{Peer, Weather};

use super::on_sim::{World, frame, resp};
use crate::config::Config;
use crate::options::OPTIONS;
use crate::removed::LOOKS_MAX;

/// A world of three users with passwords, and a Redis client that is the default one.
pub(super) fn world() -> (World, Peer) {
    let users = ["app", "other"].map(|user| (user.to_owned(), Digest::from("secret")));
    let limits = Config { threads: 2, connections_max: 4096, ..Config::default() };
    let config = Config { password: Some("boss".into()), users: users.into(), ..limits };
    let weather = Weather { receive_max: usize::MAX, window: 1 << 20, ..Weather::FAIR };
    let mut world = World::of(config, 1, weather);
    let admin = world.connect_to(1);
    world.exchange(&admin, &resp(&["AUTH", "boss"]), "+OK\r\n");
    (world, admin)
}

/// A user's client that speaks text.
pub(super) fn text(world: &mut World, user: &str) -> Peer {
    let (peer, pair) = (world.connect(), format!("{user} secret"));
    world.exchange(&peer, &format!("set login 0 0 {}\r\n{pair}\r\n", pair.len()), "STORED\r\n");
    peer
}

/// A user's client that speaks the binary protocol.
fn binary(world: &mut World, user: &str) -> Peer {
    let peer = world.connect();
    let login = frame(0x80, 0x21, b"", "PLAIN", &format!("\0{user}\0secret"));
    world.exchange(&peer, &login, &frame(0x81, 0x21, b"", "", "Authenticated"));
    peer
}

#[test]
fn clients_whose_user_is_removed_are_closed_also_if_they_ask_for_nothing() {
    let (mut world, admin) = world();
    let peers = [text(&mut world, "app"), binary(&mut world, "app")];
    let others = [text(&mut world, "other"), binary(&mut world, "other"), world.connect()];
    // A user that is changed is still there.
    for rule in ["off", "resetpass", "-@all"] {
        world.exchange(&admin, &resp(&["ACL", "SETUSER", "app", rule]), "+OK\r\n");
        assert!(peers.iter().all(|peer| !peer.closed()), "{rule}");
    }
    let hub = Arc::clone(world.service.hub());
    hub.handles[1].waker.drain();
    // One of the same name that is made at once is another.
    let requests = [&["ACL", "DELUSER", "app"][..], &["ACL", "SETUSER", "app", "on", ">secret", "+@all"]];
    world.exchange(&admin, &requests.map(resp).concat(), ":1\r\n+OK\r\n");
    assert!(peers.iter().all(Peer::closed));
    assert!(hub.handles[1].users_removed.load(SeqCst), "other workers look at theirs");
    assert!(hub.handles[1].waker.drain(), "and are woken for it");
    assert!(others.iter().all(|peer| !peer.closed()));
    world.exchange(&others[0], "get nothing\r\n", "END\r\n");
    let again = text(&mut world, "app");
    assert!(!again.closed());
    admin.send(resp(&["INFO", "stats"]).as_bytes());
    let info = world.read_all(&admin);
    assert!(info.contains("\r\nacl_change_disconnections:2\r\n"), "{info}");
}

#[test]
fn of_many_clients_of_a_removed_user_some_are_closed_in_each_turn() {
    let (mut world, admin) = world();
    let peers: Vec<Peer> = (0..300).map(|_| text(&mut world, "app")).collect();
    let asks = text(&mut world, "other");
    let hub = Arc::clone(world.service.hub());
    let open = || peers.iter().filter(|peer| !peer.closed()).count();
    admin.send(resp(&["ACL", "DELUSER", "app"]).as_bytes());
    let (mut before, mut turns) = (open(), 0);
    while before > 0 {
        asks.send(b"get nothing\r\n");
        hub.handles[0].waker.drain();
        world.turn();
        assert_eq!(asks.read(100), b"END\r\n");
        let now = open();
        assert!(now == before || now == 0 || hub.handles[0].waker.drain(), "{now} are left, and it sleeps");
        assert!(before - now <= 32, "{} closed in a turn", before - now);
        turns += 1;
        assert!(turns < 100, "{now} are open");
        before = now;
    }
    assert!(turns >= 10, "{turns} turns");
    assert_eq!(admin.read(100), b":1\r\n");
}

#[test]
fn a_turn_looks_at_so_many_places_and_removals_that_keep_coming_do_not_begin_anew() {
    let (mut world, admin) = world();
    let _others: Vec<Peer> = (2..LOOKS_MAX).map(|_| text(&mut world, "other")).collect();
    assert_eq!(world.events.places(), LOOKS_MAX - 1);
    let [last, behind] = [(); 2].map(|()| text(&mut world, "app"));
    let hub = Arc::clone(world.service.hub());
    admin.send(resp(&["ACL", "DELUSER", "app"]).as_bytes());
    for _ in 0..100 {
        if hub.handles[1].users_removed.load(SeqCst) {
            break;
        }
        world.turn();
    }
    assert_eq!((last.closed(), behind.closed()), (true, false));
    // Another user is removed before the next turn.
    hub.users_removed();
    world.turn();
    assert!(behind.closed());
    assert_eq!(admin.read(100), b":1\r\n");
}

/// Files in a folder of their own, which is gone with this.
struct Files(std::path::PathBuf);

impl Files {
    fn new(name: &str) -> Files {
        let folder = std::env::temp_dir().join(format!("larder-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        Files(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("text").to_owned()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    /// A server's configuration with these options, each with the path of the file of this name.
    fn options(&self, options: &[(&str, &str)]) -> Config {
        let mut config = Config { threads: 2, ..Config::default() };
        for (option, name) in options {
            let row = OPTIONS.iter().find(|row| row.name == *option).expect("an option");
            (row.apply)(&mut config, &self.path(name)).expect("a value");
        }
        config.check().expect("options that go together");
        config
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn files_of_users_are_read_again_and_clients_of_users_that_have_gone_are_closed() {
    let files = Files::new("users-again");
    files.write("password", "boss\n");
    files.write("users", "other:secret\n");
    files.write("texts", "app:secret\napp:second\n");
    let options = [("requirepass-file", "password"), ("auth-file", "users"), ("text-auth-file", "texts")];
    let weather = Weather { receive_max: usize::MAX, window: 1 << 20, ..Weather::FAIR };
    let mut world = World::of(files.options(&options), 1, weather);
    let hub = Arc::clone(world.service.hub());
    let redis = |world: &mut World, user: &str, password: &str| {
        let peer = world.connect_to(1);
        world.exchange(&peer, &resp(&["AUTH", user, password]), "+OK\r\n");
        peer
    };
    let gone = [text(&mut world, "app"), binary(&mut world, "app"), redis(&mut world, "app", "second")];
    let others = [text(&mut world, "other"), redis(&mut world, "other", "secret")];
    let admin = redis(&mut world, "default", "boss");
    // Nothing in the files is another: nothing is done.
    hub.reload();
    world.run_until_idle();
    assert!(gone.iter().chain(&others).all(|peer| !peer.closed()));
    // One file is wrong: none is followed.
    files.write("texts", "new:secret\n");
    files.write("password", "next\nand another\n");
    hub.reload();
    world.run_until_idle();
    let admits =
        |user: &str, password: &str| hub.shared.access().admits(user.as_bytes(), password.as_bytes());
    assert!(admits("default", "boss") && admits("app", "secret") && !admits("new", "secret"));
    assert!(gone.iter().chain(&others).all(|peer| !peer.closed()));
    files.write("password", "next\n");
    files.write("users", "other:third\n");
    hub.reload();
    world.run_until_idle();
    assert!(gone.iter().all(Peer::closed));
    assert!(hub.handles[1].users_removed.load(SeqCst), "other workers look at theirs");
    assert!(others.iter().chain([&admin]).all(|peer| !peer.closed()), "a new password closes nobody");
    for (user, password, is_right) in [
        ("default", "boss", false),
        ("default", "next", true),
        ("app", "secret", false),
        ("app", "second", false),
        ("other", "secret", false),
        ("other", "third", true),
        ("new", "secret", true),
    ] {
        assert_eq!(admits(user, password), is_right, "{user} {password}");
    }
    world.exchange(&others[0], "get nothing\r\n", "END\r\n");
    world.exchange(&others[1], &resp(&["PING"]), "+PONG\r\n");
    admin.send(resp(&["INFO", "stats"]).as_bytes());
    let info = world.read_all(&admin);
    assert!(info.contains("\r\nacl_change_disconnections:3\r\n"), "{info}");
}

#[test]
fn what_is_no_file_any_more_leaves_the_users_as_they_are() {
    let files = Files::new("users-gone");
    files.write("users", "app:secret\n");
    let world = World::of(files.options(&[("auth-file", "users")]), 1, Weather::FAIR);
    let hub = Arc::clone(world.service.hub());
    for change in [std::fs::remove_file::<String>, std::fs::create_dir::<String>] {
        change(files.path("users")).expect("a change");
        let why = hub.config.users_files.read().expect_err("no file");
        assert!(why.starts_with(&format!("--auth-file {}: ", files.path("users"))), "{why}");
        hub.reload();
        assert!(hub.shared.access().admits(b"app", b"secret"));
    }
}

#[test]
fn a_password_of_which_the_file_is_not_the_last_word_is_not_read_again() {
    let files = Files::new("users-passed-over");
    files.write("password", "boss\n");
    files.write("rules", "user default on >line ~* +@all\n");
    assert!(files.options(&[("requirepass-file", "password")]).users_files.any());
    // The option's value is the path itself.
    let said = files.options(&[("requirepass-file", "password"), ("requirepass", "password")]);
    assert!(!said.users_files.any() && said.password.is_some());
    let ruled = files.options(&[("requirepass-file", "password"), ("aclfile", "rules")]);
    assert!(!ruled.users_files.any() && ruled.passes_over_password());
}
