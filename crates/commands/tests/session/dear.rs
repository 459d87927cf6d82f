//! Requests whose replies do not show what they take: each of them spends that, so that none of them, however many come
//! at once, has a turn longer than a slice.

use crate::slices::{STEP_NS, set, turns};
use crate::{Bench, bench};
use larder_commands::{Next, SLICE_NS, Session};

/// What a request spends, in however many turns.
fn spent(bench: &mut Bench, session: &mut Session, input: &[u8]) -> u64 {
    let (mut at, mut ns) = (0, 0);
    loop {
        let (next, reply, consumed) = bench.call(session, &input[at..]);
        let said = String::from_utf8_lossy(&reply[..reply.len().min(100)]).into_owned();
        let request = String::from_utf8_lossy(&input[..input.len().min(100)]).into_owned();
        assert!(!said.starts_with('-') && !said.contains("ERROR"), "{request}: {said}");
        ns += bench.room.work().done_ns();
        at += consumed;
        match next {
            Next::Yield | Next::Flush => {}
            Next::Receive | Next::Await(_) => {
                assert_eq!(at, input.len());
                return ns;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Lines of memcached's text that are more than a look at a key, and what each takes at least.
#[test]
fn a_line_of_text_spends_what_it_takes() {
    let lines = [
        ("version", 500),
        ("stats", 20_000),
        ("stats settings", 500),
        ("stats items", 10_000),
        ("stats slabs", 10_000),
        ("stats doctor", 30_000),
        ("stats reset", 90_000),
        ("stats conns", 250_000),
        ("stats detail on", 500),
        ("stats detail dump", 1_000),
        ("stats nothing at all", 500),
        ("slabs reassign 1 2", 10_000),
        ("slabs automove 1", 500),
        ("lru tune 10 25 0.1 2.0", 500),
        ("lru_crawler crawl all", 500),
        ("cache_memlimit 64", 500),
        ("cache_memlimit 64 noreply", 500),
        ("verbosity 1", 500),
        ("verbosity 1 noreply", 500),
    ];
    for (line, least_ns) in lines {
        let mut bench = bench();
        set(&mut bench, "k", b"value");
        let input = format!("{line}\r\n");
        let mut session = Session::new();
        let first = bench.call(&mut session, b"version\r\n");
        assert_eq!(first.0, Next::Receive);
        let before = bench.room.work().done_ns();
        assert!(before < 2_000, "{before} ns");
        let mut ns = 0;
        if !line.contains("nothing") && !line.starts_with("slabs reassign") {
            ns = spent(&mut bench, &mut session, input.as_bytes());
            assert!(ns >= least_ns, "{line}: {ns} ns");
        }
        // A pipeline of it ends turns.
        let times = (20 * SLICE_NS / least_ns.max(ns)).max(4) as usize;
        let (_, turns) = turns(&mut bench, &mut session, input.repeat(times).as_bytes());
        let least = times as u64 * least_ns / (SLICE_NS + STEP_NS);
        assert!(turns as u64 >= least, "{line} × {times}: {turns} turns, not {least}");
        // A key is looked at for next to nothing all the same.
        assert_eq!(bench.call(&mut session, b"get nothing\r\n").1, b"END\r\n");
        assert_eq!(bench.room.work().done_ns(), 0, "a get spends nothing");
    }
}
