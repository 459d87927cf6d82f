//! memcached's slab commands over sessions: the meaning of automove 0, 1 and 2, the size of a page, the items that a move keeps,
//! and the replies.

use larder_testkit::local::{Local, LocalConnection};
use std::fmt::Write;

/// A session with a server of 16 MB.
struct Bench {
    local: Local,
    connection: LocalConnection,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(&[])
    }

    fn with(options: &[&str]) -> Bench {
        let options: Vec<String> =
            ["-m", "16"].iter().chain(options).map(|&option| option.to_owned()).collect();
        let local = Local::new(&options).expect("a server");
        let connection = local.connection();
        Bench { local, connection }
    }

    fn say(&mut self, text: &str) -> String {
        self.local.exchange(&mut self.connection, text.as_bytes());
        let reply = String::from_utf8_lossy(self.connection.sent()).into_owned();
        self.connection.forget();
        reply
    }

    /// Sets `prefix0` and so on to values of this many bytes.
    fn fill(&mut self, prefix: &str, numbers: std::ops::Range<u32>, bytes: usize) {
        let value = "v".repeat(bytes);
        for number in numbers {
            assert_eq!(self.say(&format!("set {prefix}{number} 0 0 {bytes}\r\n{value}\r\n")), "STORED\r\n");
        }
    }

    fn get(&mut self, key: &str) -> bool {
        self.say(&format!("get {key}\r\n")) != "END\r\n"
    }

    /// A figure of `stats <of>`; 0 if it is not there.
    fn figure(&mut self, of: &str, name: &str) -> u64 {
        let lines = self.say(&format!("stats {of}\r\n"));
        let line = lines.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.map_or(0, |value| value.parse().expect("a number"))
    }

    /// Bytes that the items of a class of `stats items` requested.
    fn requested(&mut self, class: u32) -> u64 {
        self.figure("items", &format!("items:{class}:mem_requested"))
    }

    fn automove(&mut self, mode: u32) {
        assert_eq!(self.say(&format!("slabs automove {mode}\r\n")), "OK\r\n");
    }
}

/// Values of 500 bytes are shown in class 9 (600), of 900 in class 11 (944).
const SMALL: u32 = 9;
const LARGE: u32 = 11;

/// Reads these items.
fn read(bench: &mut Bench, numbers: &[u32]) {
    for number in numbers {
        bench.get(&format!("s{number}"));
    }
}

/// Fills a cache with small values, some of which are read now and then; then stores large ones of twice its memory.
fn shift(mode: u32) -> (Bench, u64, usize) {
    let mut bench = Bench::new();
    bench.automove(mode);
    bench.fill("s", 0..28_000, 500);
    let before = bench.requested(SMALL);
    assert!(before > 12 << 20, "{before} bytes");
    let hot: Vec<u32> = (0..28_000).step_by(56).filter(|n| bench.get(&format!("s{n}"))).collect();
    (0..3).for_each(|_| read(&mut bench, &hot));
    for piece in 0..200 {
        read(&mut bench, &hot);
        bench.fill("l", piece * 200..(piece + 1) * 200, 900);
    }
    let left = hot.iter().filter(|n| bench.get(&format!("s{n}"))).count();
    assert!(hot.len() > 300, "{} were there", hot.len());
    (bench, before, left * 100 / hot.len())
}

#[test]
fn automove_0_has_each_class_evict_its_own() {
    let (mut bench, before, _) = shift(0);
    let (small, large) = (bench.requested(SMALL), bench.requested(LARGE));
    assert!(small > before - before / 20, "{small} of {before} bytes are left");
    assert!(large > 0 && large < 2 << 20, "{large} bytes: a class without memory gets some");
    assert!(bench.figure("items", &format!("items:{LARGE}:evicted")) > 30_000);
    assert_eq!(bench.figure("", "slab_reassign_running"), 0);
}

#[test]
fn automove_1_has_memory_follow_what_is_written_and_what_is_hot_stays() {
    let (mut bench, before, hot) = shift(1);
    let (small, large) = (bench.requested(SMALL), bench.requested(LARGE));
    assert!(small < before / 4 && large > 9 << 20, "{small} and {large} bytes");
    assert!(hot >= 95, "{hot} % of what is hot are left");
    assert!(bench.figure("", "slabs_moved") > 100);
}

/// Two classes whose items are equally old: with 1 each class evicts its own items, with 2 the class with older items gives
/// memory to the other.
#[test]
fn automove_2_takes_from_the_oldest_whatever_the_own_age() {
    let moved = |mode: u32| {
        let mut bench = Bench::new();
        bench.automove(mode);
        let fill = |bench: &mut Bench, from: u32, to: u32| {
            for n in from..to {
                bench.fill("s", n * 8..(n + 1) * 8, 500);
                bench.fill("l", n * 5..(n + 1) * 5, 900);
            }
        };
        fill(&mut bench, 0, 5_000);
        let before = bench.figure("", "slabs_moved");
        fill(&mut bench, 5_000, 10_000);
        bench.figure("", "slabs_moved") - before
    };
    let (ages, always) = (moved(1), moved(2));
    assert!(always > 4 * ages.max(10), "{ages} with 1, {always} with 2");
}

#[test]
fn classes_are_shown_in_whole_pages_and_their_chunks_add_up() {
    let mut bench = Bench::new();
    for (n, bytes) in (0..4_000).zip([20, 500, 900, 5_000, 40_000].into_iter().cycle()) {
        bench.fill("k", n..n + 1, bytes);
    }
    let lines = bench.say("stats slabs\r\n");
    let classes: Vec<u32> = lines
        .lines()
        .filter_map(|line| line.strip_prefix("STAT ")?.split_once(":chunk_size ")?.0.parse().ok())
        .collect();
    // 40,000 bytes are in pieces: two chunks of the largest size, the rest in a smaller one, and a head.
    assert_eq!(classes.len(), 6, "{lines}");
    for class in classes {
        let [size, pages, total, used, free] =
            ["chunk_size", "total_pages", "total_chunks", "used_chunks", "free_chunks"]
                .map(|name| bench.figure("slabs", &format!("{class}:{name}")));
        assert_eq!(total, used + free, "class {class}");
        // Chunks of a shown class are of its size or somewhat less, in spans of 64 KiB: 16 make a page.
        let spans = total.div_ceil((64 << 10) / (size * 3 / 4)).max(1);
        assert!(
            pages >= 1 && pages >= spans.div_ceil(16) && (pages - 1) << 20 <= total * size,
            "class {class}"
        );
    }
    // A header of 8 bytes, the key with its prefix, and the value.
    let (mut sum, mut names) = (0, String::new());
    for n in (1..4_000).step_by(5) {
        names.clear();
        write!(names, "k{n}").expect("a string");
        if bench.get(&names) {
            sum += 8 + names.len() as u64 + 500;
        }
    }
    assert_eq!(bench.requested(SMALL), sum);
}

#[test]
fn a_page_that_is_moved_in_a_full_cache_keeps_what_is_hot() {
    let mut bench = Bench::new();
    bench.fill("s", 0..40_000, 500);
    let hot: Vec<u32> = (30_000..40_000).step_by(10).filter(|n| bench.get(&format!("s{n}"))).collect();
    (0..3).for_each(|_| read(&mut bench, &hot));
    let (pages, evictions) =
        (bench.figure("slabs", &format!("{SMALL}:total_pages")), bench.figure("", "evictions"));
    for _ in 0..4 {
        assert_eq!(bench.say(&format!("slabs reassign {SMALL} {LARGE}\r\n")), "OK\r\n");
    }
    assert!(bench.figure("slabs", &format!("{SMALL}:total_pages")) <= pages - 3);
    assert_eq!(bench.figure("slabs", &format!("{LARGE}:total_pages")), 4);
    let evicted = bench.figure("", "evictions") - evictions;
    assert!(evicted <= 4 * (1 << 20) / 500, "{evicted} were evicted for 4 pages");
    let left = hot.iter().filter(|n| bench.get(&format!("s{n}"))).count();
    assert_eq!(left, hot.len(), "of what is hot");
    assert_eq!(
        bench.say(&format!("slabs reassign {LARGE} {LARGE}\r\n")),
        "SAME src and dst class are identical\r\n"
    );
    assert_eq!(bench.say("slabs reassign 5 9\r\n"), "NOSPARE source class has no spare pages\r\n");
    assert_eq!(bench.say("slabs reassign 50 9\r\n"), "BADCLASS invalid src or dst class id\r\n");
}

/// Values of a million bytes are in pieces, which are shown in class 24 (17352).
const PIECES: u32 = 24;
const HELD_BYTES: usize = 1_000_000;

impl Bench {
    /// Moves a page away from the pieces' class. A refused move changes nothing.
    fn reassign_pieces(&mut self) -> String {
        let before = (self.figure("", "curr_items"), self.figure("slabs", &format!("{PIECES}:total_pages")));
        let reply = self.say(&format!("slabs reassign {PIECES} {LARGE}\r\n"));
        if reply != "OK\r\n" {
            let pages = self.figure("slabs", &format!("{PIECES}:total_pages"));
            assert_eq!((self.figure("", "curr_items"), pages), before);
        }
        reply
    }
}

#[test]
fn a_class_whose_values_are_all_being_sent_is_busy() {
    let mut bench = Bench::new();
    bench.fill("p", 0..3, HELD_BYTES);
    let readers: Vec<LocalConnection> = (0..3)
        .map(|n| {
            let mut reader = bench.local.connection();
            reader.stall();
            bench.local.exchange(&mut reader, format!("get p{n}\r\n").as_bytes());
            reader
        })
        .collect();
    // Each attempt begins anew: the move does not wait for the readers.
    for _ in 0..3 {
        assert_eq!(bench.reassign_pieces(), "BUSY currently processing reassign request\r\n");
    }
    drop(readers);
    assert_eq!(bench.reassign_pieces(), "OK\r\n");
    assert_eq!(bench.figure("slabs", &format!("{LARGE}:total_pages")), 1);
    assert!((0..3).all(|n| bench.get(&format!("p{n}"))), "all were moved");
}

#[test]
fn a_class_whose_values_are_all_being_received_is_busy() {
    let mut bench = Bench::new();
    let mut value = vec![b'v'; HELD_BYTES];
    value.extend_from_slice(b"\r\n");
    let (early, last) = value.split_at(HELD_BYTES - 1);
    let mut writers: Vec<LocalConnection> = (0..3)
        .map(|n| {
            let mut writer = bench.local.connection();
            bench.local.exchange(&mut writer, format!("set p{n} 0 0 {HELD_BYTES}\r\n").as_bytes());
            bench.local.exchange(&mut writer, early);
            writer
        })
        .collect();
    assert_eq!(bench.reassign_pieces(), "BUSY currently processing reassign request\r\n");
    for writer in &mut writers {
        bench.local.exchange(writer, last);
        assert_eq!(writer.sent(), b"STORED\r\n");
    }
    assert_eq!(bench.reassign_pieces(), "OK\r\n");
    assert!((0..3).all(|n| bench.get(&format!("p{n}"))), "all were moved");
}

/// Without eviction, items that find no room elsewhere stay, and so does their span.
#[test]
fn a_class_that_has_nowhere_to_move_to_is_busy_if_nothing_may_be_evicted() {
    let mut bench = Bench::with(&["-M"]);
    let value = "v".repeat(500);
    let mut stored = 0;
    while bench.say(&format!("set s{stored} 0 0 500\r\n{value}\r\n")) == "STORED\r\n" {
        stored += 1;
    }
    assert!(stored > 20_000, "{stored}");
    let reply = bench.say(&format!("slabs reassign {SMALL} {LARGE}\r\n"));
    assert_eq!(reply, "BUSY currently processing reassign request\r\n");
    assert!((0..stored).all(|n| bench.get(&format!("s{n}"))), "nothing is lost");
}

#[test]
fn what_is_no_class_and_what_has_no_page_is_told_apart() {
    const BAD: &str = "BADCLASS invalid src or dst class id\r\n";
    const SPARE: &str = "NOSPARE source class has no spare pages\r\n";
    let mut bench = Bench::new();
    bench.fill("s", 0..6_000, 500);
    // The last class is 39; -1 is any source that has a page to spare, and no destination; 0 is the pool.
    let last = 39;
    for (from, to, reply) in [
        (-1, 39, "OK\r\n"),
        (i64::from(SMALL), last + 1, BAD),
        (last + 1, i64::from(SMALL), BAD),
        (-2, last, BAD),
        (i64::from(SMALL), -1, BAD),
        (last, i64::from(SMALL), SPARE),
        (-1, i64::from(SMALL), BAD),
        (-1, -1, "SAME src and dst class are identical\r\n"),
        (0, 0, "SAME src and dst class are identical\r\n"),
        (i64::from(SMALL), 0, "OK\r\n"),
        // The page in the pool was taken by the items that stayed.
        (0, last, SPARE),
        (i64::MAX, 1, "CLIENT_ERROR bad command line format\r\n"),
    ] {
        assert_eq!(bench.say(&format!("slabs reassign {from} {to}\r\n")), reply, "{from} {to}");
    }
    assert!((0..6_000).all(|n| bench.get(&format!("s{n}"))), "nothing is lost");
}
