//! What the lab reports when a proxy between it and a server delays, drops, duplicates or corrupts replies,
//! or removes the tokens of writes; and when a server stands still for a while, dies, or has idle threads.

use larder_testkit::PATIENCE;
use larder_testkit::folder::Folder;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use larder_lab::Address;
use larder_lab::Protocol;
use larder_lab::books::Books;
use larder_lab::cas::{Client, Method, Retry, Task};
use larder_lab::connection::Check;
use larder_lab::control::Family;
use larder_lab::dialog::Dialog;
use larder_lab::error::Error;
use larder_lab::experiment::Checks;
use larder_lab::fill::prepare;
use larder_lab::generator::{Arrivals, Load, STALL, Stop};
use larder_lab::keys::{Choice, Keyspace};
use larder_lab::peers::{Kind, Server, Spec};
use larder_lab::tally::Tally;
use larder_lab::workload::{Verb, Workload};

/// Tests that measure hold this lock: two of them at once would disturb each other.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the proxy does to the replies of each connection, once, after some replies were passed on.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Drop,
    Delay(Duration),
    Duplicate,
    Corrupt,
    /// Sends each `cas` on as `set`, as a client library does that ignores tokens. This fault changes
    /// requests, and all of them.
    Untoken,
}

/// Replies that pass before the fault: more than the lab's questions to the server need.
const PASS: usize = 6;

/// Starts a proxy in front of `server`, whose fault comes after `pass` replies; returns its address.
fn proxy(server: &Address, fault: Fault, pass: usize) -> Address {
    let Address::Tcp(server) = *server else { panic!("a TCP server") };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(upstream) = TcpStream::connect(server) else { return };
            let (mut requests, mut to) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
            match fault {
                Fault::Untoken => thread::spawn(move || pass_untokened(requests, to)),
                _ => thread::spawn(move || drop(std::io::copy(&mut requests, &mut to))),
            };
            thread::spawn(move || pass_replies(upstream, client, fault, pass));
        }
    });
    address
}

fn pass_replies(mut from: TcpStream, mut to: TcpStream, fault: Fault, pass: usize) {
    let _ = to.set_nodelay(true);
    let mut buffer = [0; 64 * 1024];
    let mut intact = true;
    for turn in 0.. {
        let Ok(received @ 1..) = from.read(&mut buffer) else { return };
        let reply = &mut buffer[..received];
        let times = match fault {
            // This corrupts the first long value, near its end, whenever it comes.
            Fault::Corrupt => {
                if intact && ends_in_a_value(reply) {
                    reply[received - 10] ^= 0x20;
                    intact = false;
                }
                1
            }
            _ if turn != pass => 1,
            Fault::Untoken => 1,
            Fault::Drop => 0,
            Fault::Duplicate => 2,
            Fault::Delay(time) => {
                thread::sleep(time);
                1
            }
        };
        if to.write_all(&reply.repeat(times)).is_err() {
            return;
        }
    }
}

fn ends_in_a_value(reply: &[u8]) -> bool {
    let end = b"\r\nEND\r\n";
    reply.len() > 60
        && reply.starts_with(b"VALUE ")
        && reply.ends_with(end)
        && !reply.ends_with(b"END\r\nEND\r\n")
}

/// Passes on requests, which come one at a time, without the tokens of their writes.
fn pass_untokened(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 64 * 1024];
    while let Ok(received @ 1..) = from.read(&mut buffer) {
        let text = String::from_utf8_lossy(&buffer[..received]);
        let untokened = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
            ["cas", key, flags, expiry, bytes, _] => format!("set {key} {flags} {expiry} {bytes}"),
            _ => line.to_owned(),
        };
        let passed = text.split("\r\n").map(untokened).collect::<Vec<_>>().join("\r\n");
        if to.write_all(passed.as_bytes()).is_err() {
            return;
        }
    }
}

fn start(kind: Kind, threads: u32) -> Server {
    let program = (kind == Kind::Larder).then(|| env!("CARGO_BIN_EXE_larder").into());
    Server::start(&Spec { kind, program, memory_mb: 64, threads, core: None, null: None }).unwrap()
}

fn reads(connections: usize) -> Workload {
    Workload {
        choice: Choice::Zipf(0.99),
        connections,
        ..Workload::new(Protocol::Classic, Verb::Hit, Keyspace::new(1000, 100))
    }
}

/// Reads through a proxy with a fault.
fn through(fault: Fault, check: Check) -> Result<Tally, Error> {
    let server = start(Kind::Larder, 1);
    let workload = reads(2);
    prepare(&server.control.address, &workload, &[None]).unwrap();
    let address = proxy(&server.control.address, fault, PASS);
    let books = Books::open(&server.control).unwrap();
    let tally = Load::connect(&address, &workload, workload.scripts(1), &[None])
        .unwrap()
        .run(check, Stop::Windows(4 * PASS as u64))?;
    same_counts(books, &tally);
    Ok(tally)
}

/// Checks that both sides have counted the same, whatever happened to the replies.
fn same_counts(books: Books, tally: &Tally) {
    let mut checks = Checks::default();
    books.compare(&mut checks, "larder", tally).unwrap();
    let counted: Vec<_> = checks.list().into_iter().filter(|check| check.claim.contains("counted")).collect();
    assert!(counted.len() >= 3 && counted.iter().all(|check| check.passed), "{counted:?}");
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn replies_that_are_duplicated_end_the_run() {
    for check in [Check::Length, Check::Parse, Check::Verify] {
        let error = through(Fault::Duplicate, check).unwrap_err().to_string();
        assert!(error.contains("more bytes than the replies have"), "{check:?}: {error}");
    }
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn replies_that_are_dropped_end_the_run_when_nothing_comes_any_more() {
    let began = Instant::now();
    let error = through(Fault::Drop, Check::Verify).unwrap_err();
    assert!(matches!(error, Error::Stalled { missing_bytes: 1.. }), "{error}");
    assert!(began.elapsed() >= STALL);
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn replies_that_are_delayed_for_longer_than_anybody_waits_end_the_run() {
    let error = through(Fault::Delay(STALL + PATIENCE), Check::Verify).unwrap_err();
    assert!(matches!(error, Error::Stalled { missing_bytes: 1.. }), "{error}");
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn replies_that_are_corrupted_are_counted_as_wrong() {
    let tally = through(Fault::Corrupt, Check::Verify).unwrap();
    assert_eq!(tally.wrong, 2, "one on each connection: {:?}", tally.first_wrong);
    assert!(tally.first_wrong.unwrap().contains("broken value"));
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn replies_that_are_delayed_are_measured() {
    let delay = Duration::from_millis(150);
    let tally = through(Fault::Delay(delay), Check::Verify).unwrap();
    assert_eq!(tally.wrong, 0);
    assert!(tally.latency.ns.max() >= 149_000_000, "{} ns", tally.latency.ns.max());
}

/// Runs an experiment on a server behind a proxy, which must end without a valid result; visits take
/// `visit_ms`, if the experiment has that option. Returns the output about the server.
fn refused(experiment: &[&str], visit_ms: Option<&str>, fault: Fault, pass: usize) -> String {
    let server = start(Kind::Larder, 1);
    let address = proxy(&server.control.address, fault, pass);
    let output = Command::new(env!("CARGO_BIN_EXE_larder"))
        .arg("lab")
        .args(experiment)
        .args(visit_ms.into_iter().flat_map(|ms| ["--visit-ms", ms]))
        .args([
            "--quick",
            // The checks that are tested here hold on a busy machine, too.
            "--wait-max",
            "100",
            "--rounds",
            "1",
            "--no-larder",
            "--target",
            &format!("broken=memcached://{address}"),
        ])
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{experiment:?} {fault:?}");
    assert!(complaint.contains("broken"), "it says which server: {complaint}");
    complaint
}

/// The length of a visit that runs to its end, and of one that ends in an error long before.
const WHOLE: Option<&str> = Some("1500");
const LONG: Option<&str> = Some("600000");

/// The first experiment sends prepared requests; in the others a request depends on the reply before it.
const SERVERS: [&str; 9] =
    ["servers", "--load", "hit", "--keys", "1000", "--connections", "4", "--pipeline", "1"];
const CAS: [&str; 5] = ["cas", "--clients", "4", "--method", "gets-cas"];
const SHIFT: [&str; 9] = ["shift", "--memory-mb", "2", "--before", "0.5", "--after", "0.5", "--rate", "2000"];

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn experiments_through_a_proxy_that_corrupts_are_no_result() {
    let _alone = alone();
    // Values are verified in the first part of a visit.
    for experiment in [&SERVERS[..], &CAS] {
        let complaint = refused(experiment, WHOLE, Fault::Corrupt, 0);
        assert!(complaint.contains("result not valid: "), "{complaint}");
        assert!(complaint.contains("every reply was the right one"), "{complaint}");
    }
}

#[test]
#[ignore = "time: a server is asked at a rate for a second"]
fn a_shift_through_a_proxy_that_corrupts_is_no_result() {
    let _alone = alone();
    let complaint = refused(&SHIFT, None, Fault::Corrupt, 0);
    assert!(complaint.contains("every hit carried the right value"), "{complaint}");
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn experiments_through_a_proxy_that_duplicates_end_in_an_error() {
    for experiment in [&SERVERS[..], &CAS] {
        let complaint = refused(experiment, LONG, Fault::Duplicate, PASS);
        assert!(complaint.contains("more bytes than the replies have"), "{complaint}");
    }
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn experiments_through_a_proxy_that_drops_or_delays_for_too_long_end_in_an_error() {
    thread::scope(|scope| {
        for experiment in [&SERVERS[..], &CAS] {
            for fault in [Fault::Drop, Fault::Delay(STALL + PATIENCE)] {
                scope.spawn(move || {
                    let complaint = refused(experiment, LONG, fault, PASS);
                    assert!(complaint.contains("no reply for 10 s"), "{fault:?}: {complaint}");
                });
            }
        }
    });
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_server_that_refuses_no_conflict_is_found_before_and_by_what_is_lost() {
    let complaint = refused(&CAS, WHOLE, Fault::Untoken, 0);
    for claim in [
        "a deliberate conflict is refused (broken, gets-cas: STORED)",
        "of each counter, what is missing was acknowledged",
        "the server counted the same successes",
    ] {
        assert!(complaint.contains(claim), "{claim:?} is not in {complaint}");
    }
}

fn signal(server: &Server, name: &str) {
    let status = Command::new("kill").args([format!("-{name}"), server.pid().to_string()]).status().unwrap();
    assert!(status.success());
}

/// Runs `load`, and stops the server for 200 ms in the middle.
fn while_it_stands_still(
    server: &Server,
    load: impl FnOnce() -> Result<Tally, Error> + Send,
) -> Result<Tally, Error> {
    thread::scope(|scope| {
        let run = scope.spawn(load);
        thread::sleep(Duration::from_millis(400));
        signal(server, "STOP");
        thread::sleep(Duration::from_millis(200));
        signal(server, "CONT");
        run.join().unwrap()
    })
}

#[test]
#[ignore = "time: judges latencies beside a pause of 200 ms"]
fn a_pause_of_the_server_is_charged_to_all_who_would_have_asked_meanwhile() {
    let _alone = alone();
    let server = start(Kind::Larder, 1);
    let workload = reads(4);
    let address = &server.control.address;
    prepare(address, &workload, &[None]).unwrap();
    let connect = || Load::connect(address, &workload, workload.scripts(1), &[None]).unwrap();
    let time = Duration::from_secs(2);

    let mut load = connect();
    let arrivals = Arrivals { per_s: 2000.0, poisson: true, seed: 1 };
    let books = Books::open(&server.control).unwrap();
    let open = while_it_stands_still(&server, || load.run_open(Check::Verify, arrivals, time)).unwrap();
    same_counts(books, &open);
    // A tenth of all requests were due in the pause; they waited 100 ms on average.
    let beyond = |ms: u64| open.latency.ns.len() - open.latency.ns.count_between(0, ms * 1_000_000);
    assert!(open.latency.quantile_us(0.999) >= 180_000.0, "p99.9 {} µs", open.latency.quantile_us(0.999));
    assert!(open.latency.quantile_us(0.95) >= 40_000.0, "p95 {} µs", open.latency.quantile_us(0.95));
    assert!(beyond(100) >= 100, "{} waited longer than 100 ms", beyond(100));
    assert_eq!((open.wrong, open.over_range()), (0, 0));

    // The same pause in a closed loop: one window of each connection waited, and no other request was sent.
    // Other windows may wait because of the machine, so the lowest count of three tries is used.
    let few = |_| {
        let mut load = connect();
        let books = Books::open(&server.control).unwrap();
        let closed = while_it_stands_still(&server, || load.run(Check::Verify, Stop::After(time))).unwrap();
        same_counts(books, &closed);
        assert!(closed.latency.ns.max() >= 180_000_000);
        let waited = closed.latency.ns.len() - closed.latency.ns.count_between(0, 100_000_000);
        println!("{waited} windows waited");
        waited <= 8
    };
    assert!((0..3).any(few));
}

/// The error of `run` when the server is killed in the middle; `run` must end long before its time is over.
fn killed<T: Send>(server: Server, run: impl FnOnce() -> Result<T, Error> + Send) -> Error {
    let began = Instant::now();
    let error = thread::scope(|scope| {
        let hits = |server: &Server| server.control.counter("get_hits").unwrap();
        let before = hits(&server);
        let run = scope.spawn(run);
        while hits(&server) == before {
            assert!(began.elapsed() < PATIENCE, "nothing is asked");
            thread::sleep(Duration::from_millis(10));
        }
        drop(server);
        run.join().unwrap().err().expect("the server is gone")
    });
    assert!(began.elapsed() < PATIENCE, "after {:?}", began.elapsed());
    error
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_server_that_dies_ends_every_kind_of_run_with_an_error() {
    let _alone = alone();
    let hour = Duration::from_secs(3600);
    for open in [false, true] {
        let server = start(Kind::Larder, 1);
        let workload = reads(4);
        prepare(&server.control.address, &workload, &[None]).unwrap();
        let mut load =
            Load::connect(&server.control.address, &workload, workload.scripts(1), &[None]).unwrap();
        let error = killed(server, || match open {
            false => load.run(Check::Verify, Stop::After(hour)),
            true => load.run_open(Check::Verify, Arrivals { per_s: 1000.0, poisson: true, seed: 1 }, hour),
        });
        assert!(matches!(error, Error::Closed), "{error}");
    }
    let server = start(Kind::Larder, 1);
    let task = Task::new(Method::Blind, Family::Memcached, 1, Duration::ZERO, Retry::AtOnce);
    let set = format!("set {} 0 0 1\r\n1\r\n", task.names[0]);
    server.control.ask(set, "STORED\r\n").unwrap();
    let clients = (1..=4).map(|id| Client::new(task.clone(), id, 1)).collect();
    let mut dialog = Dialog::connect(&server.control.address, clients, &[None]).unwrap();
    let error = killed(server, || dialog.run(hour).map(|_| ()));
    assert!(matches!(error, Error::Closed), "{error}");
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn an_experiment_whose_server_dies_ends_soon_and_says_which_it_was() {
    let _alone = alone();
    for experiment in [&SERVERS[..], &CAS] {
        let mut server = Some(start(Kind::Larder, 1));
        let address = server.as_ref().unwrap().control.address.clone();
        let mut lab = Command::new(env!("CARGO_BIN_EXE_larder"));
        lab.arg("lab").args(experiment).args(["--visit-ms", "1500"]);
        lab.args(["--rounds", "1000", "--no-larder", "--target"]);
        lab.arg(format!("mortal=memcached://{address}")).stderr(Stdio::piped()).stdout(Stdio::null());
        let child = lab.spawn().unwrap();
        thread::sleep(Duration::from_secs(1));
        drop(server.take());
        let output = child.wait_with_output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && complaint.contains("mortal"), "{complaint}");
        assert!(!complaint.contains("panicked"), "{complaint}");
        // The lab noticed that at once, and did not wait for the timeout of a reply.
        assert!(!complaint.contains("no reply for"), "{complaint}");
    }
}

#[test]
#[ignore = "time: judges threads by their CPU time in a short visit"]
fn threads_that_did_nothing_are_reported() {
    let _alone = alone();
    let folder = Folder::new("idle");
    let json = folder.join("out.json");
    let output = Command::new(env!("CARGO_BIN_EXE_larder"))
        .args(["lab", "servers", "--quick", "--threads", "4", "--load", "hit", "--keys", "1000"])
        .args(["--connections", "1", "--pipeline", "1", "--wait-max", "100", "--json"])
        .arg(&json)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    // Whether two visits agree is not checked: it depends on the machine.
    assert!(
        said.contains("1 of 4 threads did all the work (connections per event loop: 1, 0, 0, 0"),
        "{said}"
    );
    assert!(json.exists(), "{said}");
}
