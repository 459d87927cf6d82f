//! `larder lab clients` from the command line, against Larder: how much clients allocate, how many
//! connections they open, and what their calls return during faults.
//!
//! None of these tests depends on time. They need Go, a C compiler and Debian's libmemcached-dev: `cargo
//! xtask clients`.

use larder_lab::results::Run;
use larder_testkit::folder::Folder;
use larder_testkit::process::{Program, Server};

use crate::outcome::{had_tracer, passing, table};
use crate::serving::Serving;

/// Runs the experiment; all its checks must pass, except those that depend on time.
fn clients(arguments: &[&str]) -> Run {
    passing(&[&["clients", "--quick", "--rounds", "1"][..], arguments].concat())
}

/// Options for hits of one caller, by clients in Go and C.
const HITS: [&str; 10] =
    ["--part", "grid", "--driver", "go,c", "--operation", "hit", "--callers", "1", "--visit-ms", "20"];

fn holds(run: &Run, claim: &str) {
    assert!(run.checks.iter().any(|check| check.claim == claim && check.passed), "{claim}");
}

#[test]
#[ignore = "peers: go, libmemcached"]
fn the_clients_are_counted_and_none_is_wrong() {
    let run = clients(&["--part", "grid", "--driver", "go,c", "--visit-ms", "20"]);
    for claim in [
        "every value read was the key's",
        "every call has one outcome",
        "every call was timed",
        "the server counted the same hits",
        "the server counted the same sets",
    ] {
        holds(&run, claim);
    }
    let costs = table(&run, "clients");
    let count = |client: &str, operation: &str, figure: &str| {
        let figure = costs.value("larder", &[client, operation, "100 B", "1"], figure);
        figure.unwrap_or_else(|| panic!("{client}, {operation}")).median
    };
    for operation in ["hit", "set", "many"] {
        for client in ["go: larder", "go: by hand", "c: larder", "c: by hand"] {
            // A batch of the C client allocates memory.
            if (client, operation) == ("c: larder", "many") {
                continue;
            }
            // A runtime allocates now and then for itself; a call allocates nothing.
            let allocations = count(client, operation, "allocations");
            assert!(allocations < 0.5, "{client}, {operation}: {allocations}");
        }
    }
    // The tracer may miss a call or two at the beginning.
    if had_tracer(&run, "lab_clients") {
        for client in ["go: larder", "c: larder", "c: by hand"] {
            let calls = count(client, "hit", "system calls");
            assert!(calls >= 1.9, "{client}: {calls}");
        }
    }
    let facade = count("go: larder façade", "hit", "allocations");
    assert!((1.5..2.5).contains(&facade), "{facade}");
    assert_eq!(count("go: larder", "hit", "connections"), 1.0);
    // All threads share one connection.
    for callers in ["1", "16"] {
        let labels = ["c: larder", "hit", "100 B", callers];
        let connections = costs.value("larder", &labels, "connections").expect("it was counted");
        assert_eq!(connections.median, 1.0, "{callers}");
    }
    let bursts = table(&run, "bursts");
    let burst = |client: &str, figure: &str| bursts.value("larder", &[client, "256"], figure).unwrap().median;
    assert_eq!(burst("go: larder", "connections"), 1.0);
    assert_eq!(burst("go: larder façade", "connections"), 1.0);
    assert_eq!(burst("go: larder", "errors"), 0.0);
    assert!(
        costs.rows.iter().any(|row| row.target == "larder-redis"),
        "Redis's protocol is a group of its own"
    );
    let article = table(&run, "article");
    for client in ["gomemcache", "rainycape", "by hand", "larder"] {
        let figures = ["memory", "allocations"].map(|figure| article.value("larder", &[client], figure));
        assert!(figures.iter().all(Option::is_some), "{client}: {figures:?}");
    }
}

#[test]
#[ignore = "peers: go, libmemcached"]
fn sets_that_go_together_are_counted_by_both_sides() {
    let sets = ["--part", "grid", "--operation", "sets", "--callers", "1", "--visit-ms", "20"];
    let run = clients(&[&sets[..], &["--driver", "go,c"]].concat());
    holds(&run, "every call has one outcome");
    holds(&run, "the server counted the same sets");
    let costs = table(&run, "clients");
    let rows = costs.rows.iter().filter(|row| row.target == "larder");
    let names: Vec<&str> = rows.map(|row| row.labels[0].as_str()).collect();
    let expected = ["go: larder", "go: larder, replies verified", "go: by hand", "c: larder", "c: by hand"];
    assert_eq!(names, expected);
    for client in ["go: larder", "go: by hand", "c: by hand"] {
        let allocations = costs.value("larder", &[client, "sets", "100 B", "1"], "allocations");
        assert!(allocations.expect("counted").median < 0.5, "{client}: {allocations:?}");
    }
    let targets = table(&run, "targets");
    for language in ["go", "c"] {
        let row = format!("{language}: larder, sets, 1 callers: client CPU over that of by hand");
        assert_eq!(targets.value("larder", &[&row], "at most").expect("a target").median, 1.2);
    }
}

#[test]
#[ignore = "network: cargo and its registry"]
fn the_clients_in_rust_are_counted_and_ours_is_one_connection_for_threads_and_for_tasks() {
    let run = clients(&["--driver", "rust", "--client", "larder,by hand", "--visit-ms", "20"]);
    for claim in [
        "every value read was the key's",
        "every call has one outcome",
        "the server counted the same hits",
        "the server counted the same sets",
        "every call beside a fault has one outcome",
        "no value of Larder's own client was wrong",
        "Larder's own client took no fault for a miss",
    ] {
        holds(&run, claim);
    }
    let costs = table(&run, "clients");
    for client in ["rust: larder", "rust: larder, tokio"] {
        for operation in ["hit", "set"] {
            let allocations = costs.value("larder", &[client, operation, "100 B", "1"], "allocations");
            assert!(allocations.expect("counted").median < 0.5, "{client}, {operation}: {allocations:?}");
        }
        for callers in ["1", "16"] {
            let connections = costs.value("larder", &[client, "hit", "100 B", callers], "connections");
            assert_eq!(connections.expect("counted").median, 1.0, "{client}, {callers}");
        }
    }
}

#[test]
#[ignore = "peers: go, libmemcached"]
fn a_target_with_a_password_is_asked_by_clients_that_say_one() {
    let folder = Folder::new("clients");
    let users = folder.write("users", "me:sE\"c\\ret\n");
    let server = Server::start_program(&Program::Larder, &["-Y", &users]).unwrap();
    let target = format!("a=memcached://me:sE%22c%5Cret@{}", server.address());
    let run = clients(&[&HITS[..], &["--no-larder", "--target", target.as_str()]].concat());
    holds(&run, "every value read was the key's");
    let rows = table(&run, "clients").rows.iter().filter(|row| row.target == "a");
    let names: Vec<&str> = rows.map(|row| row.labels[0].as_str()).collect();
    assert_eq!(names, ["go: larder", "go: larder, replies verified", "c: larder"]);
    let note = run.notes.iter().find(|note| note.contains("a wants a password, which is not said by "));
    let note = note.expect("who is left out is told");
    assert!(note.contains("go: gomemcache, ") && note.contains("c: libmemcached, c: by hand"), "{note}");
    let all = format!("{run:?}");
    assert!(!note.contains("rueidis") && !all.contains("%22c") && !all.contains("c\\\\ret"), "{all}");
}

#[test]
#[ignore = "peers: go, libmemcached"]
fn a_target_at_an_ipv6_address_is_asked_as_others() {
    let Some((_server, target)) = Serving::at_ipv6("memcached", &["--redis-port", "0", "-p"]) else { return };
    asked(&target, &OF_MEMCACHED);
}

/// The clients of memcached's protocols in Go and C.
const OF_MEMCACHED: [&str; 10] = [
    "go: larder",
    "go: larder, replies verified",
    "go: larder façade",
    "go: gomemcache",
    "go: gomemcache, pool = callers",
    "go: rainycape",
    "go: by hand",
    "c: libmemcached",
    "c: larder",
    "c: by hand",
];

/// Has clients in Go and C read existing keys of a target; exactly the clients in `names` must do so, without
/// an error.
fn asked(target: &str, names: &[&str]) -> Run {
    let run = clients(&[&HITS[..], &["--no-larder", "--target", target]].concat());
    holds(&run, "every value read was the key's");
    let costs = table(&run, "clients");
    let rows = costs.rows.iter().filter(|row| row.target == "a");
    assert_eq!(rows.map(|row| row.labels[0].as_str()).collect::<Vec<_>>(), names);
    for &name in names {
        let count = |figure: &str| {
            costs.value("a", &[name, "hit", "100 B", "1"], figure).unwrap_or_else(|| panic!("{name}")).median
        };
        assert_eq!((count("errors"), count("wrong")), (0.0, 0.0), "{name}");
    }
    run
}

#[test]
#[ignore = "peers: go, libmemcached"]
fn a_target_behind_a_unix_socket_is_asked_as_others() {
    let folder = Folder::new("socket");
    let path = folder.at("socket");
    let target = format!("a=memcached+unix://{path}");
    let server = Serving::start(&["-s", &path], &target).unwrap();
    let run = asked(&target, &OF_MEMCACHED);
    assert!(!run.notes.iter().any(|note| note.contains("a is reached by")), "{:?}", run.notes);
    drop(server);
}

#[test]
#[ignore = "peers: go, libmemcached"]
fn a_target_with_tls_is_asked_by_clients_that_have_it_and_others_are_told() {
    let folder = Folder::new("tls");
    for (scheme, names) in [("memcacheds", &OF_TLS[..]), ("rediss", &["go: rueidis", "go: go-redis"])] {
        let (server, chain) = with_tls(&folder);
        let run = asked(&format!("a={scheme}://{}?ssl_ca_certs={chain}", server.address()), names);
        let told = run.notes.iter().find(|note| note.starts_with("a is reached by TLS, but not by "));
        let due = [
            "go: rainycape (it has no TLS, and dials by itself)",
            "c: libmemcached (it has no TLS)",
            "c: by hand (the loop is written over a socket)",
        ];
        match scheme {
            "rediss" => assert_eq!(told, None),
            _ => assert_eq!(told.unwrap(), &format!("a is reached by TLS, but not by {}", due.join(", "))),
        }
    }
}

/// A server with TLS and a self-signed certificate, and the certificate's file.
fn with_tls(folder: &Folder) -> (Server, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let chain = folder.write("crt", &made.cert.pem());
    let key = folder.write("key", &made.signing_key.serialize_pem());
    let pair = format!("ssl_chain_cert={chain},ssl_key={key}");
    (Server::start_program(&Program::Larder, &["-Z", "-o", &pair]).unwrap(), chain)
}

/// Those clients of memcached's protocols that can use TLS.
const OF_TLS: [&str; 7] = [
    "go: larder",
    "go: larder, replies verified",
    "go: larder façade",
    "go: gomemcache",
    "go: gomemcache, pool = callers",
    "go: by hand",
    "c: larder",
];

#[test]
#[ignore = "network: cargo and its registry"]
fn the_clients_in_rust_use_unix_sockets_and_ours_tls() {
    let folder = Folder::new("rust");
    let path = folder.at("socket");
    let at_path = format!("a=memcached+unix://{path}");
    let serving = Serving::start(&["-s", &path], &at_path).unwrap();
    let (server, chain) = with_tls(&folder);
    let by_tls = format!("a=memcacheds://{}?ssl_ca_certs={chain}", server.address());
    let own = ["rust: larder", "rust: larder, tokio"];
    let all = [&own[..], &["rust: memcache", "rust: async-memcached", "rust: by hand"]].concat();
    for (target, names) in [(&at_path, &all[..]), (&by_tls, &own[..])] {
        let part = ["--part", "grid", "--driver", "rust", "--operation", "hit", "--callers", "1"];
        let run = clients(&[&part[..], &["--visit-ms", "20", "--no-larder", "--target", target]].concat());
        holds(&run, "every value read was the key's");
        let costs = table(&run, "clients");
        let rows = costs.rows.iter().filter(|row| row.target == "a");
        assert_eq!(rows.map(|row| row.labels[0].as_str()).collect::<Vec<_>>(), names);
        for &name in names {
            let errors = costs.value("a", &[name, "hit", "100 B", "1"], "errors");
            assert_eq!(errors.expect("counted").median, 0.0, "{name}");
        }
    }
    drop(serving);
}

#[test]
#[ignore = "peers: go"]
fn the_clients_beside_faults_have_one_outcome_for_each_call_and_ours_is_never_wrong() {
    let run = clients(&["--part", "faults", "--driver", "go", "--client", "verified"]);
    for claim in [
        "every call beside a fault has one outcome",
        "no value of Larder's own client was wrong",
        "Larder's own client took no fault for a miss",
    ] {
        holds(&run, claim);
    }
    let faults = table(&run, "faults");
    assert_eq!(faults.rows.len(), 7);
    for row in &faults.rows {
        let fault = row.labels[1].as_str();
        let of = |figure: &str| {
            faults.value("larder", &[&row.labels[0], fault, &row.labels[2]], figure).unwrap().median
        };
        assert_eq!(of("calls"), of("right") + of("wrong") + of("false misses") + of("errors"), "{fault}");
        assert_eq!((of("wrong"), of("false misses")), (0.0, 0.0), "{fault}");
        assert!(of("right") > 0.0, "{fault}");
        match fault {
            "slow" => {}
            // A read whose connection was lost is repeated on another connection, whose first 20 pieces are
            // not cut.
            "cut" => assert!(of("connects") > 0.0, "{fault}"),
            _ => assert!(of("errors") > 0.0, "{fault}"),
        }
    }
}
