//! Loads with a server or a generator that does not work as it claims: all keys are one, counts are those of
//! other requests, the generator stands still.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use larder_lab::Address;
use larder_lab::Protocol;
use larder_lab::connection::Check;
use larder_lab::error::Error;
use larder_lab::generator::{Arrivals, Load};
use larder_lab::keys::Keyspace;
use larder_lab::peers::{Kind, Server, Spec};
use larder_lab::workload::{Verb, Workload};
use larder_testkit::folder::Folder;
use larder_testkit::model_cache::{Model, serve};
use larder_testkit::stand_in::{Burners, proxy, switch, unchanged};

use super::{alone, cores, lab, refused, said};

/// A load on a server that speaks memcached's text protocol; the machine may be busy.
pub fn load(address: SocketAddr, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command
        .args(["lab", "load", "--target", &format!("a=memcached://{address}"), "--wait-max", "100"])
        .args(more);
    command
}

pub fn larder() -> (Server, SocketAddr) {
    let program = Some(env!("CARGO_BIN_EXE_larder").into());
    let spec = Spec { kind: Kind::Larder, program, memory_mb: 64, threads: 1, core: None, null: None };
    let server = Server::start(&spec).unwrap();
    let Address::Tcp(address) = server.control.address else { panic!("a TCP server") };
    (server, address)
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_server_that_keeps_everything_under_one_key_fails_loads_that_only_write() {
    let one_key = || serve(Model { forgetful: true, ..Model::default() });
    let few = ["--verb", "set", "--keys", "100", "--requests", "2000"];
    refused(&load(one_key(), &few).output().unwrap(), 1, "wrong replies, the first:");
    // A server with separate keys passes the same load, and the output says that its values were read.
    let output = load(serve(Model::default()), &few).output().unwrap();
    assert!(
        output.status.success() && said(&output).contains("read back over another connection"),
        "{}",
        said(&output)
    );
    one_key_refused(&["servers", "--load", "set"]);
}

/// Checks that an experiment that only writes has no result on a server that stores all values under one key.
fn one_key_refused(experiment: &[&str]) {
    let folder = Folder::new(&format!("one-key-{}", experiment[0]));
    let target = format!("a=memcached://{}", serve(Model { forgetful: true, ..Model::default() }));
    let few = ["--quick", "--rounds", "1", "--no-larder", "--keys", "100", "--visit-ms", "50"];
    let few = [&few[..], &["--flush-target", "--target", &target]].concat();
    let output = lab(&[experiment, &few].concat(), &folder).output().unwrap();
    refused(&output, 1, "every reply was the right one");
}

#[test]
#[ignore = "time: an experiment asks at a rate, and ends if it comes too late"]
fn a_server_that_keeps_everything_under_one_key_fails_writes_at_a_rate() {
    one_key_refused(&["latency", "--mix", "set", "--percent", "10"]);
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_server_that_counted_something_else_fails_a_load() {
    let counts_more = |bytes: &mut Vec<u8>| {
        if bytes.starts_with(b"STAT") {
            let text = String::from_utf8_lossy(bytes).replace("STAT get_hits ", "STAT get_hits 1");
            *bytes = text.into_bytes();
        }
    };
    let few = ["--verb", "hit", "--keys", "100", "--requests", "1000"];
    let honest = serve(Model::default());
    let output = load(honest, &few).output().unwrap();
    assert!(
        output.status.success() && said(&output).contains("the server counted the same"),
        "{}",
        said(&output)
    );
    // This server reports its hits with a 1 in front of the number: 0 becomes 10, and 1000 becomes 11000.
    let liar = proxy(serve(Model::default()), unchanged(), Arc::new(counts_more));
    refused(&load(liar, &few).output().unwrap(), 1, "result not valid: the server counted the same hits");
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_server_that_is_two_fails_a_load() {
    let (one, other) = (serve(Model::default()), serve(Model::default()));
    // The counts come from another server.
    let strangers_books =
        switch(Arc::new(move |_, first: &[u8]| if first.starts_with(b"stats") { other } else { one }));
    let few = ["--verb", "get:1,set:1", "--keys", "100", "--requests", "400", "--connections", "4"];
    refused(
        &load(strangers_books, &few).output().unwrap(),
        1,
        "result not valid: the server counted the same",
    );
    // The server is restarted in the middle: later connections find the new one.
    let (one, other) = (serve(Model::default()), serve(Model::default()));
    let restarted = switch(Arc::new(move |number, _: &[u8]| if number < 60 { one } else { other }));
    let output = load(restarted, &[&few[..], &["--churn", "1"]].concat()).output().unwrap();
    refused(&output, 1, "result not valid: the server counted the same");
}

#[test]
#[ignore = "time: stops a generator for 50 ms in the middle of its load"]
fn a_generator_that_was_stopped_shows_no_maximum() {
    let (server, address) = larder();
    let few = ["--verb", "set", "--keys", "100", "--rate", "500", "--seconds", "8"];
    let child = load(address, &few).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while server.control.counter("cmd_set").unwrap() < 200 {
        thread::sleep(Duration::from_millis(10));
    }
    let signal = |name: &str| {
        let kill = format!("kill -{name} {}", child.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    };
    signal("STOP");
    thread::sleep(Duration::from_millis(50));
    signal("CONT");
    let output = child.wait_with_output().unwrap();
    let said = said(&output);
    let line = |what: &str| said.lines().find(|line| line.contains(what)).unwrap_or_default().to_owned();
    for what in ["from when they were due", "from when they were sent"] {
        assert!(line(what).ends_with("max –"), "{said}");
    }
    let lag: f64 = line("lag of the generator").rsplit(' ').next().unwrap().parse().unwrap();
    assert!(lag >= 40_000.0, "{said}");
}

#[test]
#[ignore = "time: measures a generator whose core others have"]
fn a_starved_generator_was_busy_for_the_time_that_it_had() {
    let _alone = alone();
    let (_server, address) = larder();
    let burners = Burners::on(*cores::cores().last().unwrap(), 2);
    let few = ["--verb", "set", "--keys", "100", "--rate", "1000", "--seconds", "1"];
    let output = load(address, &few).output().unwrap();
    drop(burners);
    let said = said(&output);
    let line = said.lines().find(|line| line.starts_with("generator CPU")).unwrap_or_default();
    let us: f64 =
        line.split_ascii_whitespace().nth(2).unwrap().trim_end_matches("µs/request").parse().unwrap();
    // The system calls to send and to receive take longer than this on any machine.
    assert!(us > 0.5, "{said}");
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_server_that_is_silent_for_too_long_ends_an_open_loop_while_requests_go_on() {
    let silent = serve(Model { delay: Duration::from_secs(3600), ..Model::default() });
    let workload = Workload::new(Protocol::Classic, Verb::Miss, Keyspace::new(100, 32));
    let mut load = Load::connect(&Address::Tcp(silent), &workload, workload.scripts(1), &[None]).unwrap();
    let arrivals = Arrivals { per_s: 100.0, poisson: false, seed: 1 };
    // The limit is longer than the delays of any machine.
    let (began, asked) = (Instant::now(), Duration::from_secs(600));
    let error = load.run_open(Check::Parse, arrivals, asked).unwrap_err();
    assert!(matches!(error, Error::Stalled { .. }), "{error}");
    assert!(began.elapsed() < asked, "only when nothing was sent any more: {:?}", began.elapsed());
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn the_memory_of_a_target_that_was_used_is_no_result() {
    let folder = Folder::new("used");
    let (server, address) = larder();
    let target = format!("a=memcached://{address}");
    let few = ["memory", "--quick", "--no-larder", "--items", "100000", "--target", &target];
    server.control.ask("set a 0 0 1\r\n1\r\n", "STORED\r\n").unwrap();
    refused(&lab(&few, &folder).output().unwrap(), 3, "a holds 1 items");
    // After all keys are deleted the server is empty, but keeps its memory.
    let hits = ["--verb", "hit", "--keys", "100000", "--seconds", "0.1", "--flush-target"];
    let fill = load(address, &hits).output().unwrap();
    assert!(fill.status.success(), "{}", said(&fill));
    let mut all = String::from("delete a noreply\r\n");
    (0..100_000).for_each(|key| all.push_str(&format!("delete key:{key:012} noreply\r\n")));
    server.control.ask(all + "version\r\n", "\r\n").unwrap();
    assert_eq!(server.control.counter("curr_items"), Some(0));
    refused(
        &lab(&few, &folder).output().unwrap(),
        1,
        "result not valid: memory grew by what was stored at least",
    );
}
