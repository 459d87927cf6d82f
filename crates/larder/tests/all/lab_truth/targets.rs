//! Servers that were running before the lab: which items they hold, and what the lab does to these.

use std::path::Path;
use std::process::{Command, Output};

use larder_lab::Address;
use larder_lab::control::Family;
use larder_lab::handshakes::Client;
use larder_lab::peers::{Kind, Server, Spec};
use larder_lab::results::Run;
use larder_testkit::folder::Folder;
use larder_testkit::process::{self, Program};

use super::cores::cores;
use super::{refused, said};
use crate::serving::Serving;

fn start(kind: Kind) -> Server {
    let program = (kind == Kind::Larder).then(|| env!("CARGO_BIN_EXE_larder").into());
    Server::start(&Spec { kind, program, memory_mb: 64, threads: 1, core: None, null: None }).unwrap()
}

/// Runs `larder lab` with `words` on a server; the machine may be busy.
fn lab(server: &Server, words: &[&str]) -> Output {
    at(&format!("a=memcached://{}", server.control.address), words)
}

fn at(target: &str, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.arg("lab").args(words).args(["--wait-max", "100", "--target", target]).output().unwrap()
}

const LOAD: [&str; 5] = ["load", "--keys", "100", "--seconds", "0.05"];

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_target_that_holds_something_keeps_it_unless_it_may_go() {
    let server = start(Kind::Larder);
    server.control.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n").unwrap();
    for experiment in ["cas", "servers", "latency", "memory", "shift", "hitratio"] {
        let output = lab(&server, &[experiment, "--quick", "--no-larder"]);
        refused(
            &output,
            3,
            "a holds 1 items: it is written to and flushed; if they may go, say --flush-target",
        );
    }
    refused(&lab(&server, &LOAD), 3, "a holds 1 items");
    // A load that only reads changes nothing.
    let output = lab(&server, &[&LOAD[..], &["--verb", "get", "--no-fill"]].concat());
    assert!(output.status.success() && !said(&output).contains("written to"), "{}", said(&output));
    assert_eq!(server.control.ask("get a\r\n", "END\r\n").unwrap(), "VALUE a 0 1\r\n1\r\nEND\r\n");

    let output = lab(&server, &[&LOAD[..], &["--flush-target"]].concat());
    let told = "a was running before: 1 items flushed; it is written to";
    assert!(output.status.success() && said(&output).contains(told), "{}", said(&output));
    assert_eq!(server.control.ask("get a\r\n", "END\r\n").unwrap(), "END\r\n");
}

#[test]
#[ignore = "peers: memcached"]
fn a_memcached_that_was_just_flushed_holds_nothing_though_it_counts() {
    let server = start(Kind::Memcached);
    let mut all = String::new();
    (0..100_000).for_each(|key| all.push_str(&format!("set {key} 0 0 1 noreply\r\n1\r\n")));
    server.control.ask(all + "version\r\n", "\r\n").unwrap();
    refused(&lab(&server, &LOAD), 3, "a holds 100000 items");
    server.control.ask("flush_all\r\n", "OK\r\n").unwrap();
    let output = lab(&server, &LOAD);
    assert!(output.status.success() && said(&output).contains("and held nothing"), "{}", said(&output));
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_target_that_is_another_program_with_other_settings_is_told_so() {
    let folder = Folder::new("names");
    let options = ["-t", "3", "-m", "48"];
    let server = process::Server::start_program(&Program::Larder, &options).unwrap();
    let json = folder.join("out.json");
    let target = format!("memcached=memcached://{}", server.address());
    let few =
        ["cas", "--quick", "--rounds", "1", "--no-larder", "--clients", "2", "--visit-ms", "20", "--json"];
    let output = at(&target, &[&few[..], &[json.to_str().unwrap()]].concat());
    let run = Run::read_json(&json).unwrap_or_else(|error| panic!("{error}\n{}", said(&output)));
    let notes = run.targets[0].notes.join("\n");
    for told in [
        "is called memcached, and says that it is larder",
        "has num_threads at \"3\", where a server that is started here has \"1\"",
        "has maxbytes at \"50331648\", where a server that is started here has \"67108864\"",
    ] {
        assert!(notes.contains(told) && said(&output).contains(told), "{told:?} is not in {}", said(&output));
    }
}

/// Experiments that open connections in different ways: for scripts of requests, for requests that depend on
/// replies, and for questions.
const EXPERIMENTS: [&[&str]; 2] = [
    &["servers", "--load", "set", "--connections", "2", "--keys", "100", "--visit-ms", "20"],
    &["cas", "--clients", "2", "--visit-ms", "20"],
];

/// The output and the files of these experiments on a target. Whether two visits agree depends on the
/// machine, and is not checked.
fn told(target: &str, folder: &Path) -> String {
    let (json, page) = (folder.join("out.json"), folder.join("out.html"));
    let mut all = String::new();
    for experiment in EXPERIMENTS {
        let few = ["--quick", "--rounds", "1", "--no-larder", "--flush-target", "--force", "--json"];
        let files = [json.to_str().unwrap(), "--report", page.to_str().unwrap()];
        let output = at(target, &[experiment, &few[..], &files].concat());
        let run = Run::read_json(&json).unwrap_or_else(|error| panic!("{error}\n{}", said(&output)));
        assert!(!run.tables.is_empty() && run.targets[0].name == "a", "{}", said(&output));
        all += &said(&output);
        all += &std::fs::read_to_string(&json).unwrap();
        all += &std::fs::read_to_string(&page).unwrap();
        std::fs::remove_file(&json).unwrap();
    }
    all
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_password_is_said_on_every_connection_and_shown_nowhere() {
    let folder = Folder::new("password");
    let options = ["--requirepass", "sEcr@t%"];
    let server = process::Server::start_program(&Program::LarderResp, &options).unwrap();
    let address = server.address();
    let shows = |text: &str| text.contains("sEcr");
    let all = told(&format!("a=redis://:sEcr%40t%25@{address}"), &folder);
    assert!(!shows(&all) && all.contains("***@"), "{all}");

    let output = at(&format!("a=redis://:sEcr@{address}"), &LOAD);
    refused(&output, 69, "the login is not taken: -WRONGPASS");
    assert!(!shows(&said(&output)), "{}", said(&output));
    refused(&at(&format!("a=redis://{address}"), &LOAD), 69, "it says \"-NOAUTH");
    let churn = [&LOAD[..], &["--churn", "2"]].concat();
    refused(&at(&format!("a=redis://:sEcr@{address}"), &churn), 64, "--churn needs a server without one");
    for (target, words) in [
        ("a=redis://:sEcr@127.0.0.1", &LOAD[..]),
        ("a=redis://:sEcr%@127.0.0.1:1", &LOAD),
        ("a=memcached://:sEcr@127.0.0.1:1", &["cas"]),
        ("a=memcached://me:sEcr@127.0.0.1:1", &["matrix"]),
        ("a=redis://:sEcr@127.0.0.1:1", &["cas", "b=redis://:sEcr@127.0.0.1:1"]),
    ] {
        let output = at(target, words);
        assert!(!output.status.success() && !shows(&said(&output)), "{}", said(&output));
    }
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn targets_by_tls_are_asked_as_others_are_if_they_are_trusted() {
    let folder = Folder::new("tls");
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let [chain, key] = ["crt", "key"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    std::fs::write(&chain, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let pair = format!("ssl_chain_cert={chain},ssl_key={key}");
    let options = ["-Z", "-o", &pair];
    let asking = [&options[..], &["--requirepass", "sEcret"]].concat();
    let asks = process::Server::start_program(&Program::Larder, &asking).unwrap();
    let target = format!("a=rediss://:sEcret@{}?ssl_ca_certs={chain}", asks.address());
    let all = told(&target, &folder);
    assert!(!all.contains("sEcret"), "{all}");

    let server = process::Server::start_program(&Program::Larder, &options).unwrap();
    let address = server.address();
    let url = |scheme: &str, query: &str| format!("a={scheme}://{address}?{query}");
    // Each new connection makes a handshake of its own.
    let churn = [&LOAD[..], &["--flush-target", "--churn", "2"]].concat();
    let output = at(&url("memcacheds", "ssl_cert_reqs=none"), &churn);
    assert!(output.status.success(), "{}", said(&output));

    let refusals = [
        (url("rediss", "ssl_cert_reqs=optional"), 64, "expected ssl_ca_certs=FILE"),
        (url("memcacheds", ""), 69, "invalid peer certificate"),
        (format!("a=memcached://{address}"), 69, "does not answer"),
    ];
    for (target, code, why) in refusals {
        refused(&at(&target, &LOAD), code, why);
    }
    let output = at(&url("memcacheds", "ssl_cert_reqs=none"), &["matrix", "--quick"]);
    refused(&output, 64, "libmemcached has no TLS");
}

/// Writes a self-signed certificate for 127.0.0.1 and its key into files with this name; returns the
/// certificate as PEM.
fn certificate(folder: &Path, name: &str) -> String {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(folder.join(format!("{name}.crt")), made.cert.pem()).unwrap();
    std::fs::write(folder.join(format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
    made.cert.pem()
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_client_that_may_resumes_all_sessions_but_the_first() {
    let folder = Folder::new("handshakes");
    certificate(&folder, "ca");
    let [chain, key] = ["ca.crt", "ca.key"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    let files = format!("ssl_chain_cert={chain},ssl_key={key},ssl_session_cache");
    let server = process::Server::start_program(&Program::Larder, &["-Z", "-o", &files]).unwrap();
    for family in [Family::Memcached, Family::Redis] {
        for (resumes, expected) in [(false, [false; 3]), (true, [false, true, true])] {
            let address = Address::Tcp(server.address());
            let client = Client::new(family, address, folder.join("ca.crt"), resumes).unwrap();
            assert_eq!([(); 3].map(|()| client.connect().unwrap()), expected, "{family:?}");
        }
    }
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn the_cost_of_tls_has_all_rows_and_each_handshake_is_of_its_kind() {
    let folder = Folder::new("cost-of-tls");
    let authority = ["ecdsa", "rsa"].map(|name| certificate(&folder, name)).concat();
    std::fs::write(folder.join("ca.crt"), authority).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_larder"))
        .args(["lab", "bench-tls", "--rounds", "1", "--visit-ms", "10", "--wait-max", "100"])
        .arg("--certificates")
        .arg(&folder)
        .output()
        .unwrap();
    let all = said(&output);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).collect();
    // Clients that shake hands beside plain requests need a third core: neither core 0 of the servers nor the
    // last.
    let cores = cores();
    let has_third = cores.iter().any(|&core| core != 0 && Some(&core) != cores.last());
    // The rows are the head, five loads twice, two handshakes with two certificates each, and one or two
    // latencies.
    assert_eq!(rows.len(), 1 + 5 * 2 + 2 * 2 + 1 + usize::from(has_third), "{all}");
    assert_eq!(text.contains("left out: p99 beside 500 handshakes/s"), !has_third, "{all}");
    let handshakes: Vec<&&str> = rows.iter().filter(|row| row.starts_with("| handshake, ")).collect();
    assert!(handshakes.len() == 4 && handshakes.iter().all(|row| !row.contains('–')), "{all}");
    // In so short a visit the bounds may be met or missed.
    let last = text.lines().next_back().unwrap_or_default();
    assert!(last.ends_with(" bounds missed; medians of 1 rounds"), "{all}");
}

#[test]
#[ignore = "peers: memcached"]
fn memcached_takes_user_and_password_on_every_connection() {
    let folder = Folder::new("users");
    let users = folder.join("users");
    std::fs::write(&users, "me:sEcret\n").unwrap();
    let memcached = Program::Memcached("/usr/bin/memcached".into());
    let server = process::Server::start_program(&memcached, &["-Y", users.to_str().unwrap()]).unwrap();
    let address = server.address();
    let all = told(&format!("a=memcached://me:sEcret@{address}"), &folder);
    assert!(!all.contains("sEcret"), "{all}");
    let output = at(&format!("a=memcached://me:other@{address}"), &LOAD);
    refused(&output, 69, "the login is not taken: CLIENT_ERROR authentication failure");
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn unix_sockets_and_ipv6_are_targets_as_others() {
    let folder = Folder::new("places");
    let path = folder.join("socket").to_string_lossy().into_owned();
    let target = format!("a=memcached+unix://{path}");
    let server = Serving::start(&["-s", &path], &target).unwrap();
    let all = told(&target, &folder);
    assert!(all.contains(&format!("unix:{path}")) && !all.contains("is shown: nobody"), "{all}");
    // The null server uses a Unix socket, too: over TCP it would be slower.
    for load in ["set 2×1 32 B", "2 clients, one request at a time"] {
        assert!(all.contains(&format!("(null server), {load}, text, Unix socket")), "{load}: {all}");
    }
    drop(server);
    if let Some((_server, target)) = Serving::at_ipv6("redis", &["-p", "0", "--redis-port"]) {
        let all = told(&target, &folder);
        let address = target.trim_start_matches("a=redis://");
        assert!(all.contains(address) && !all.contains("is shown: nobody"), "{all}");
    }
}
