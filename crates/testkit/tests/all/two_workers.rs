//! Commands that read a value twice, while another worker makes it shorter and longer in between.

use larder_testkit::local::{Local, LocalConnection};
use larder_testkit::talk::encode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Rounds of the first worker.
const ROUNDS: usize = 40_000;
/// Commands that a worker receives at once.
const BATCH: usize = 40;

fn exchange(local: &mut Local, client: &mut LocalConnection, requests: &[Vec<&[u8]>]) {
    let bytes: Vec<u8> = requests.iter().flat_map(|words| encode(words)).collect();
    local.exchange(client, &bytes);
}

/// Ends the other worker, also when this one panics.
struct Ends<'d>(&'d AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn parts_of_a_value_that_becomes_short_meanwhile_are_read_and_written() {
    let mut local = Local::new(&[]).expect("a server");
    let mut other = local.sibling().expect("another worker");
    let long = vec![b'0'; 40_000];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = other.resp_connection();
            let turns = [vec![&b"SET"[..], b"k", &long], vec![&b"SET"[..], b"k", b"short"]];
            let batch: Vec<_> = turns.iter().cycle().take(BATCH).cloned().collect();
            while !done.load(Relaxed) {
                exchange(&mut other, &mut client, &batch);
                client.forget();
            }
        });
        let _ends = Ends(&done);
        let mut client = local.resp_connection();
        let asks = [
            vec![&b"SETBIT"[..], b"k", b"300000", b"1"],
            vec![&b"BITFIELD"[..], b"k", b"SET", b"u8", b"300000", b"7", b"GET", b"u8", b"299000"],
            vec![&b"SETRANGE"[..], b"k", b"39000", b"some"],
            vec![&b"GETRANGE"[..], b"k", b"39000", b"39001"],
            vec![&b"BITCOUNT"[..], b"k", b"38000", b"39000"],
            vec![&b"BITFIELD_RO"[..], b"k", b"GET", b"u8", b"299000"],
        ];
        let batch: Vec<_> = asks.iter().cycle().take(BATCH).cloned().collect();
        for _ in 0..ROUNDS / BATCH {
            exchange(&mut local, &mut client, &batch);
            assert!(!client.sent().contains(&b'-'), "an error");
            client.forget();
        }
    });
}
