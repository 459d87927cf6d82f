//! A real server that the system gives no more descriptors. It serves connected clients and accepts waiting
//! ones as soon as there are descriptors. It neither spins, nor fills its log, nor stops accepting.

use larder_testkit::PATIENCE;
use larder_testkit::process::Server;
use larder_testkit::timing::at_most;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A server that may open `more` descriptors beyond those that it has, and one of its clients.
fn starved(more: u64) -> (Server, TcpStream) {
    let server = Server::start(&["-m", "64", "-t", "1", "-c", "1000"]).expect("larder starts");
    let mut client = server.connect().expect("a connection");
    ask(&mut client);
    allow(&server, files(&server) + more);
    (server, client)
}

/// The first descriptor number that the server does not use; no socket has a higher one. A file that was open
/// for a moment leaves a gap in the numbers, and a connection behind the gap may be above the limit: when it
/// ends, no other can get its number. So further connections are opened until they fill the gap. Inherited
/// descriptors may have any numbers.
fn files(server: &Server) -> u64 {
    let directory = format!("/proc/{}/fd", server.id());
    loop {
        let (mut open, mut sockets): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        for entry in std::fs::read_dir(&directory).expect("a process").flatten() {
            let number = entry.file_name().to_string_lossy().parse().expect("a number");
            open.push(number);
            let file = std::fs::read_link(entry.path()).unwrap_or_default();
            sockets.extend(file.to_string_lossy().starts_with("socket:").then_some(number));
        }
        let first_free = (0..).find(|number| !open.contains(number)).expect("there is an end");
        if sockets.iter().all(|&number| number < first_free) {
            return first_free;
        }
        let mut further = server.connect().expect("a connection");
        ask(&mut further);
        // The connection stays open.
        std::mem::forget(further);
    }
}

/// Limits the server to descriptor numbers below `files`.
fn allow(server: &Server, files: u64) {
    let pid = Pid::from_raw(server.id() as i32).expect("a process");
    let limit = Rlimit { current: Some(files), maximum: getrlimit(Resource::Nofile).maximum };
    prlimit(Some(pid), Resource::Nofile, limit).expect("its limit is lowered");
}

fn ask(client: &mut TcpStream) {
    client.write_all(b"mn\r\n").expect("sent");
    let mut reply = [0; 4];
    client.read_exact(&mut reply).expect("a reply");
    assert_eq!(&reply, b"MN\r\n");
}

/// Clients whose connections the system has made, and whose requests are sent.
fn crowd(server: &Server, clients: usize) -> Vec<TcpStream> {
    let connect = |_| {
        let mut stream = server.connect().expect("a place in the listener's queue");
        stream.write_all(b"mn\r\n").expect("sent");
        stream
    };
    (0..clients).map(connect).collect()
}

/// Processor time of the process, in milliseconds.
fn cpu_ms(server: &Server) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id())).expect("a process");
    let fields = stat.rsplit(") ").next().expect("a name in parentheses").split(' ');
    // User and system time, fields 14 and 15 of all, in hundredths of a second.
    fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number") * 10).sum()
}

fn complaints(server: &Server) -> usize {
    server.output().lines().filter(|line| line.contains("cannot accept")).count()
}

#[test]
fn without_descriptors_it_pauses_says_so_once_a_second_and_goes_on_when_there_are_some() {
    let (server, mut client) = starved(0);
    let started = Instant::now();
    let mut waiting = crowd(&server, 20);
    while complaints(&server) == 0 || started.elapsed() < Duration::from_millis(1500) {
        assert!(started.elapsed() < PATIENCE, "it does not say so");
        ask(&mut client);
        std::thread::sleep(Duration::from_millis(10));
    }
    // The lines are counted before the time is taken: no line comes after the time that is compared with
    // them.
    let lines = complaints(&server);
    let seconds = started.elapsed().as_secs() as usize;
    assert!(lines <= seconds + 2, "{lines} lines in {seconds} s");
    // A client that disconnects frees a descriptor for a waiting one.
    drop(client);
    let mut reply = [0; 4];
    let mut first = waiting.remove(0);
    first.read_exact(&mut reply).expect("a reply");
    // The other clients are accepted once the system gives descriptors.
    allow(&server, 1000);
    waiting.iter_mut().for_each(|client| client.read_exact(&mut reply).expect("a reply"));
}

#[test]
#[ignore = "time: what a process takes of a core"]
fn without_descriptors_it_takes_little_of_a_core() {
    let (server, mut client) = starved(0);
    let _waiting = crowd(&server, 20);
    // Processor time within 1.5 seconds.
    at_most(Duration::from_millis(300), || {
        let (started, cpu) = (Instant::now(), cpu_ms(&server));
        while started.elapsed() < Duration::from_millis(1500) {
            ask(&mut client);
            std::thread::sleep(Duration::from_millis(10));
        }
        Duration::from_millis(cpu_ms(&server) - cpu)
    });
}

#[test]
fn a_signal_is_heard_while_no_connection_can_be_taken_in() {
    for more in 0..3 {
        let (mut server, mut client) = starved(more);
        let _waiting = crowd(&server, 20);
        let began = Instant::now();
        while complaints(&server) == 0 {
            assert!(began.elapsed() < PATIENCE, "it does not say so");
            std::thread::sleep(Duration::from_millis(1));
        }
        server.terminate();
        assert_eq!(client.read(&mut [0]).expect("an end"), 0);
        assert!(server.wait(PATIENCE).expect("it stops").success());
    }
}
