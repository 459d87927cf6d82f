//! Clients that are the users that their certificates name (`--tls-auth-clients-user`).

use std::io::{ErrorKind, Read};

use larder_eventloop::sim::Weather;
use larder_eventloop::socket::Address;
use larder_testkit::folder::Folder;
use larder_testkit::talk::encode;
use larder_tls::{ClientAuth, ClientUser};

use super::client::{Client, Identity, trusting};
use super::process::{connect_to, parameter, resp, resp_server};
use super::world::World;

/// Writes a file of the certificates of some clients into a folder; returns its path.
fn authorities(folder: &Folder, clients: &[Identity]) -> String {
    let read = |client: &Identity| std::fs::read_to_string(&client.chain).expect("its file");
    folder.write("clients.crt", &clients.iter().map(read).collect::<String>())
}

#[test]
fn a_client_is_the_user_that_its_certificate_names_and_else_what_it_is_without_one() {
    let identity = Identity::new();
    let clients = ["app", "turned-off", "nobody"].map(Identity::named);
    let folder = Folder::new("tls-users");
    let authorities = authorities(&folder, &clients);
    let named = ["--tls-ca-cert-file", &authorities, "--tls-auth-clients-user", "CN"];
    let users = ["--acl-user", "app on ~app:* +@all", "--acl-user", "turned-off off >pw ~* +@all"];
    let unauthenticated = "-NOAUTH Authentication required.";
    for (password, other) in [(&[][..], "default"), (&["--requirepass", "secret"][..], unauthenticated)] {
        let (_server, address) = resp_server(&identity, &[&named[..], &users, password].concat());
        let connect = |client: &Identity| connect_to(address, &trusting(&identity, Some(client)));
        for (client, name) in clients.iter().zip(["app", other, other]) {
            assert_eq!(resp(&mut connect(client), &["ACL", "WHOAMI"]), name);
        }
        let mut app = connect(&clients[0]);
        assert_eq!(resp(&mut app, &["SET", "app:1", "v"]), "+OK");
        assert_eq!(resp(&mut app, &["GET", "x"]), "-NOPERM No permissions to access a key");
        let mut admin = connect(&clients[2]);
        if !password.is_empty() {
            assert_eq!(resp(&mut admin, &["AUTH", "secret"]), "+OK");
        }
        let stats = resp(&mut admin, &["INFO", "stats"]);
        assert!(stats.contains("acl_access_denied_tls_cert:3\r\n"), "{stats}");
        // A user that is removed is no user any more, and its client is closed.
        assert_eq!(resp(&mut admin, &["ACL", "DELUSER", "app"]), ":1");
        let end = app.read(&mut [0; 10]);
        let is_closed = match &end {
            Ok(bytes) => *bytes == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        assert!(is_closed, "{end:?}");
        assert_eq!(resp(&mut connect(&clients[0]), &["ACL", "WHOAMI"]), other);
    }
}

#[test]
fn config_set_has_certificates_name_users_for_connections_that_come() {
    const NAME: &str = "tls-auth-clients-user";
    let identity = Identity::new();
    let clients = [Identity::named("app")];
    let folder = Folder::new("tls-users");
    let authorities = authorities(&folder, &clients);
    let options = ["--tls-ca-cert-file", &authorities, "--acl-user", "app on ~* +@all"];
    let (_server, address) = resp_server(&identity, &options);
    // Always the same client: its sessions are resumed if the server allows it.
    let trust = trusting(&identity, Some(&clients[0]));
    let whoami = ["ACL", "WHOAMI"];
    let mut admin = connect_to(address, &trust);
    assert_eq!((resp(&mut admin, &whoami), parameter(&mut admin, NAME)), ("default".into(), "off".into()));
    for wrong in ["URI", "yes", ""] {
        let refused = resp(&mut admin, &["CONFIG", "SET", NAME, wrong]);
        assert!(refused.starts_with("-ERR CONFIG SET failed") && refused.contains("off, CN"), "{refused}");
    }
    let mut open = Vec::new();
    for (value, told, name) in [("cn", "CN", "app"), ("off", "off", "default"), ("CN", "CN", "app")] {
        assert_eq!(resp(&mut admin, &["CONFIG", "SET", NAME, value]), "+OK");
        assert_eq!(parameter(&mut admin, NAME), told);
        for _ in 0..2 {
            let mut stream = connect_to(address, &trust);
            assert_eq!(resp(&mut stream, &whoami), name);
            open.push((stream, name));
        }
    }
    assert_eq!(resp(&mut admin, &whoami), "default", "an open connection stays what it is");
    for (stream, name) in &mut open {
        assert_eq!(resp(stream, &whoami), *name);
    }
}

/// The handshake's last message and the first request are received together, or in whatever pieces the network makes.
#[test]
fn a_client_is_its_certificates_user_in_its_first_request_also_where_its_session_is_resumed() {
    for weather in [Weather::FAIR, Weather::STORM, Weather::DRIP] {
        let shown = Identity::named("app");
        let mut trusts = Vec::new();
        let change = |options: &mut larder_tls::Options, identity: &Identity| {
            options.clients = ClientAuth::Required;
            options.authorities = Some(shown.chain.clone());
            options.client_user = ClientUser::CommonName;
            options.resumption = true;
            trusts.extend([(); 2].map(|()| trusting(identity, Some(&shown))));
        };
        let mut world = World::of(21, weather, change, 64);
        let mut says = |nth: usize, words: &[&[u8]]| {
            let mut client = Client::new(world.peer_of(1, Address::Unix("/peer".into())), &trusts[nth]);
            client.write(&encode(words));
            world.talk(&mut client, usize::MAX);
            assert!(client.error.is_none(), "{:?}", client.error);
            (String::from_utf8(client.read.clone()).expect("text"), client.is_resumed())
        };
        // There is no such user yet.
        assert_eq!(says(0, &[b"ACL", b"SETUSER", b"app", b"on", b"~*", b"+@all"]), ("+OK\r\n".into(), false));
        for (nth, is_resumed) in [(0, true), (1, false), (1, true)] {
            assert_eq!(says(nth, &[b"ACL", b"WHOAMI"]), ("$3\r\napp\r\n".into(), is_resumed), "{weather:?}");
        }
    }
}
