//! What a call costs beside a loop by hand, which writes a request and reads its reply and does nothing else: CPU time
//! of this process for a call, in turns, medians of the rounds. `LARDER_ADDRESS` names the server; else one is started.
//!
//! ```text
//! taskset -c 1 cargo bench -p larder-client --bench compare
//! ```

use larder_client::{Client, Ttl, Window};
use larder_testkit::process::Server;
use rustix::time::{ClockId, clock_gettime};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const ROUNDS: usize = 15;
const CALLS: u32 = 4_000;
const BATCH: usize = 64;
const LARGE_BYTES: usize = 300_000;

fn cpu() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// A loop by hand: a request and so many bytes of reply.
fn ask(stream: &mut TcpStream, request: &[u8], reply: &mut [u8]) {
    stream.write_all(request).expect("sent");
    let mut read = 0;
    while read < reply.len() {
        read += stream.read(&mut reply[read..]).expect("received");
    }
}

/// Rows of two that are measured in turns: name, calls of a round, by hand, by the client.
type Row<'a> = (&'a str, u32, Box<dyn FnMut() + 'a>, Box<dyn FnMut() + 'a>);

fn main() {
    // `cargo test --benches` asks whether it runs at all.
    let rounds = if std::env::args().any(|argument| argument == "--bench") { ROUNDS } else { 1 };
    let started = std::env::var("LARDER_ADDRESS")
        .is_err()
        .then(|| Server::start(&["--threads", "1"]).expect("a server"));
    let address = match &started {
        Some(server) => server.address().to_string(),
        None => std::env::var("LARDER_ADDRESS").expect("asked for above"),
    };
    let client = Client::builder().server(address.as_str()).build().expect("a client");
    let value = vec![b'v'; 100];
    let large = vec![b'v'; LARGE_BYTES];
    client.set(b"key", &value).send().expect("stored");
    let connect = || {
        let stream = TcpStream::connect(&address).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(Duration::from_secs(1))).expect("an option");
        stream
    };
    let (mut get, mut set, mut larges) = (connect(), connect(), connect());
    let [mut sets, mut streamed, mut silent] = [connect(), connect(), connect()];
    let store = |key: &str, value: &[u8]| {
        [format!("ms {key} {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
    };
    let (one, many, big) = (store("key", &value), store("key", &value).repeat(BATCH), store("large", &large));
    let mut reply = vec![0; 8 + 100 + 2];
    let mut buffer = Vec::with_capacity(1000);
    let mut batch = client.batch();
    let mut stream = client.stream(Window::default());
    let mut quiet = client.quiet();
    let mut rows: Vec<Row<'_>> = vec![
        (
            "get of 100 B",
            CALLS,
            Box::new(|| ask(&mut get, b"mg key v\r\n", &mut reply)),
            Box::new(|| {
                buffer.clear();
                client.get_into(b"key", &mut buffer).expect("an answer").expect("a hit");
            }),
        ),
        (
            "set of 100 B",
            CALLS,
            Box::new(|| ask(&mut set, &one, &mut [0; 4])),
            Box::new(|| assert!(client.set(b"key", &value).send().is_ok())),
        ),
        (
            "batch of 64 sets",
            CALLS / BATCH as u32,
            Box::new(|| ask(&mut sets, &many, &mut [0; 4 * BATCH])),
            Box::new(|| {
                for _ in 0..BATCH {
                    let _ = batch.set(b"key", &value, Ttl::Forever);
                }
                drop(batch.run());
            }),
        ),
        (
            "64 sets of a stream",
            CALLS / BATCH as u32,
            Box::new(|| ask(&mut streamed, &many, &mut [0; 4 * BATCH])),
            Box::new(|| {
                (0..BATCH).for_each(|_| stream.set(b"key", &value, Ttl::Forever).expect("a good key"));
                assert!(stream.barrier().is_clean());
            }),
        ),
        (
            "64 quiet sets",
            CALLS / BATCH as u32,
            Box::new(|| ask(&mut silent, &many, &mut [0; 4 * BATCH])),
            Box::new(|| {
                (0..BATCH).for_each(|_| quiet.set(b"key", &value, Ttl::Forever).expect("a good key"));
                assert!(quiet.barrier().is_clean());
            }),
        ),
        (
            "set of 300,000 B",
            200,
            Box::new(|| ask(&mut larges, &big, &mut [0; 4])),
            Box::new(|| assert!(client.set(b"large", &large).send().is_ok())),
        ),
    ];
    let mut figures = vec![(Vec::new(), Vec::new()); rows.len()];
    for _ in 0..rounds {
        for ((_, calls, by_hand, by_client), (hand, ours)) in rows.iter_mut().zip(&mut figures) {
            for (call, figures) in [(by_hand, hand), (by_client, ours)] {
                let before = cpu();
                (0..*calls).for_each(|_| call());
                figures.push((cpu() - before).as_nanos() as f64 / 1000.0 / f64::from(*calls));
            }
        }
    }
    let median = |figures: &mut Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    println!("{:20} {:>14} {:>14} {:>7}", "CPU µs", "by hand", "larder-client", "ratio");
    for ((name, ..), (hand, ours)) in rows.iter().zip(&mut figures) {
        let mut ratios: Vec<f64> = hand.iter().zip(&*ours).map(|(hand, ours)| ours / hand).collect();
        println!("{name:20} {:14.2} {:14.2} {:7.2}", median(hand), median(ours), median(&mut ratios));
    }
}
