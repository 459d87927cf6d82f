//! Servers that were running before: what they hold, and what becomes of it.

use std::process::{Command, Output};

use larder_lab::peers::{Kind, Server, Spec};

use super::{refused, said};

fn start(kind: Kind) -> Server {
    let program = (kind == Kind::Larder).then(|| env!("CARGO_BIN_EXE_larder").into());
    Server::start(&Spec { kind, program, memory_mb: 64, threads: 1, core: None, null: None }).unwrap()
}

/// `larder lab` with `words` on a server, on a machine as busy as it likes.
fn lab(server: &Server, words: &[&str]) -> Output {
    let target = format!("a=memcached://{}", server.control.address);
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.arg("lab").args(words).args(["--wait-max", "100", "--target", &target]).output().unwrap()
}

const LOAD: [&str; 5] = ["load", "--keys", "100", "--seconds", "0.05"];

#[test]
fn a_target_that_holds_something_keeps_it_unless_it_may_go() {
    let server = start(Kind::Larder);
    server.control.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n").unwrap();
    for experiment in ["cas", "servers", "latency", "memory", "shift", "hitratio"] {
        let output = lab(&server, &[experiment, "--quick", "--no-larder"]);
        refused(&output, "a holds 1 items: it is written to and flushed; if they may go, say --flush-target");
    }
    refused(&lab(&server, &LOAD), "a holds 1 items");
    // Who only reads does no harm.
    let output = lab(&server, &[&LOAD[..], &["--verb", "get", "--no-fill"]].concat());
    assert!(output.status.success() && !said(&output).contains("written to"), "{}", said(&output));
    assert_eq!(server.control.ask("get a\r\n", "END\r\n").unwrap(), "VALUE a 0 1\r\n1\r\nEND\r\n");

    let output = lab(&server, &[&LOAD[..], &["--flush-target"]].concat());
    let told = "a was running before: 1 items flushed; it is written to";
    assert!(output.status.success() && said(&output).contains(told), "{}", said(&output));
    assert_eq!(server.control.ask("get a\r\n", "END\r\n").unwrap(), "END\r\n");
}

#[test]
#[ignore = "needs memcached"]
fn a_memcached_that_was_just_flushed_holds_nothing_though_it_counts() {
    let server = start(Kind::Memcached);
    let mut all = String::new();
    (0..100_000).for_each(|key| all.push_str(&format!("set {key} 0 0 1 noreply\r\n1\r\n")));
    server.control.ask(all + "version\r\n", "\r\n").unwrap();
    refused(&lab(&server, &LOAD), "a holds 100000 items");
    server.control.ask("flush_all\r\n", "OK\r\n").unwrap();
    let output = lab(&server, &LOAD);
    assert!(output.status.success() && said(&output).contains("and held nothing"), "{}", said(&output));
}
