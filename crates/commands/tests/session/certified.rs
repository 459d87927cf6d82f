//! Clients whose certificates name their users.

use larder_commands::{Context, Session, Settings, Speaks};

use crate::Bench;
use crate::users::{NO_KEY, say};

/// A client of a listener of Redis's whose certificate has this name, if it has shown one.
fn connected(bench: &mut Bench, name: Option<&str>) -> Session {
    let guard = bench.worker.enter(bench.shared.now(bench.system));
    let counters = &bench.host.counters;
    let cx = Context::new(guard, counters, &bench.shared, &bench.host, &bench.host, &bench.room);
    let mut session = Session::of(Speaks::Redis, &cx);
    if let Some(name) = name {
        session.log_in_by_certificate(&cx, name);
    }
    session
}

#[test]
fn the_user_that_a_certificate_names_is_in_without_a_password_and_by_its_rules() {
    let mut bench = Bench::new(Settings { password: Some("secret".into()), ..Settings::default() });
    let mut admin = connected(&mut bench, None);
    assert_eq!(say(&mut bench, &mut admin, "AUTH secret"), "+OK");
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app on ~app:* +@all"), "+OK");
    let mut user = connected(&mut bench, Some("app"));
    assert!(!user.is_unauthenticated());
    assert_eq!(say(&mut bench, &mut user, "ACL WHOAMI"), "$3\r\napp");
    assert_eq!(say(&mut bench, &mut user, "GET app:1"), "$-1");
    assert_eq!(say(&mut bench, &mut user, "GET x"), NO_KEY);
    assert!(say(&mut bench, &mut user, "CLIENT INFO").contains(" user=app "));
    // The default user is a user as others are.
    let mut default = connected(&mut bench, Some("default"));
    assert_eq!(say(&mut bench, &mut default, "ACL WHOAMI"), "$7\r\ndefault");
    // A login by password takes its place, and what is forgotten is not put back.
    assert_eq!(say(&mut bench, &mut user, "AUTH app pw").split(' ').next(), Some("-WRONGPASS"));
    assert_eq!(say(&mut bench, &mut user, "AUTH secret"), "+OK");
    assert_eq!(say(&mut bench, &mut user, "ACL WHOAMI"), "$7\r\ndefault");
    let mut reset = connected(&mut bench, Some("app"));
    assert_eq!(say(&mut bench, &mut reset, "RESET"), "+RESET");
    assert_eq!(say(&mut bench, &mut reset, "ACL WHOAMI"), "-NOAUTH Authentication required.");
    assert!(say(&mut bench, &mut admin, "INFO stats").contains("acl_access_denied_tls_cert:0\r\n"));
}

#[test]
fn a_name_that_no_user_has_is_logged_and_its_client_is_as_without_a_certificate() {
    let mut bench = crate::bench();
    let mut admin = connected(&mut bench, None);
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER turned-off off ~* +@all"), "+OK");
    let long = "n".repeat(300);
    for name in ["turned-off", "nobody", "nobody", "No\r\nbody", &long] {
        let mut other = connected(&mut bench, Some(name));
        assert_eq!(say(&mut bench, &mut other, "ACL WHOAMI"), "$7\r\ndefault", "{name:?}");
    }
    let log = say(&mut bench, &mut admin, "ACL LOG");
    assert!(log.starts_with("*4\r\n*20\r\n$5\r\ncount\r\n:1\r\n$6\r\nreason\r\n$8\r\ntls-cert\r\n"), "{log}");
    for part in [
        "$7\r\ncontext\r\n$8\r\ntoplevel\r\n$6\r\nobject\r\n$0\r\n\r\n",
        "$8\r\nusername\r\n$10\r\nturned-off\r\n",
        "$8\r\nusername\r\n$6\r\nnobody\r\n",
        "$8\r\nusername\r\n$8\r\nNo\r\nbody\r\n",
        &format!("$8\r\nusername\r\n$256\r\n{}\r\n", &long[..256]),
        "$5\r\ncount\r\n:2\r\n",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(say(&mut bench, &mut admin, "INFO stats").contains("acl_access_denied_tls_cert:5\r\n"));
}

#[test]
fn a_certificates_user_is_none_of_the_unauthenticated_and_is_let_in_where_there_are_too_many() {
    let mut bench = Bench::new(Settings {
        password: Some("secret".into()),
        unauthenticated_max: 1,
        ..Settings::default()
    });
    let mut admin = connected(&mut bench, None);
    assert_eq!(say(&mut bench, &mut admin, "AUTH secret"), "+OK");
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app on ~* +@all"), "+OK");
    let waits = connected(&mut bench, None);
    assert!(waits.is_unauthenticated());
    for name in [None, Some("nobody")] {
        let mut other = connected(&mut bench, name);
        assert_eq!(say(&mut bench, &mut other, "PING"), "-ERR max number of clients reached closed");
    }
    let mut user = connected(&mut bench, Some("app"));
    assert!(!user.is_turned_away());
    assert_eq!(say(&mut bench, &mut user, "ACL WHOAMI"), "$3\r\napp");
}

#[test]
fn protected_mode_refuses_clients_of_other_machines_whatever_their_certificates_name() {
    let mut bench = crate::bench();
    let mut admin = connected(&mut bench, None);
    assert_eq!(say(&mut bench, &mut admin, "ACL SETUSER app on ~* +@all"), "+OK");
    bench.host.far = true;
    let mut user = connected(&mut bench, Some("app"));
    assert!(say(&mut bench, &mut user, "PING").starts_with("-DENIED "));
}
