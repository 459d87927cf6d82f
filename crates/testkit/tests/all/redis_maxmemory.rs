//! The effects of Redis's memory settings: the policies, and a limit that is changed while the server runs.

use larder_testkit::talk::{Talk, encode};

const REFUSED: &str = "-OOM command not allowed when used memory > 'maxmemory'.";
const VALUE_BYTES: usize = 1000;
/// Keys that are set in one pipeline.
const PIECE: usize = 500;

fn server(policy: &str) -> Talk {
    let mut talk = Talk::new(&["-m", "8"]);
    assert_eq!(talk.say(0, &format!("CONFIG SET maxmemory-policy {policy}")), "+OK");
    talk
}

/// Sets `prefix0` and so on, which expire after this many seconds unless it is 0; returns how many were stored.
fn fill(talk: &mut Talk, prefix: &str, count: usize, seconds: u64) -> usize {
    let (value, seconds) = ("x".repeat(VALUE_BYTES), seconds.to_string());
    let mut stored = 0;
    for from in (0..count).step_by(PIECE) {
        let mut bytes = Vec::new();
        for n in from..count.min(from + PIECE) {
            let key = format!("{prefix}{n}");
            let mut words = vec![&b"SET"[..], key.as_bytes(), value.as_bytes()];
            if seconds != "0" {
                words.extend([&b"EX"[..], seconds.as_bytes()]);
            }
            bytes.extend(encode(&words));
        }
        let reply = talk.send(0, &bytes);
        let (oks, refused) = (reply.matches("+OK").count(), reply.matches(REFUSED).count());
        assert_eq!(oks + refused, count.min(from + PIECE) - from, "nothing else is replied");
        stored += oks;
    }
    stored
}

/// How many of `prefix0` to `prefix{count}` exist.
fn there(talk: &mut Talk, prefix: &str, count: usize) -> usize {
    let mut there = 0;
    for from in (0..count).step_by(PIECE) {
        let keys: Vec<String> = (from..count.min(from + PIECE)).map(|n| format!("{prefix}{n}")).collect();
        let reply = talk.say(0, &format!("EXISTS {}", keys.join(" ")));
        there += reply[1..].parse::<usize>().expect("a number");
    }
    there
}

#[test]
fn noeviction_refuses_what_there_is_no_room_for_and_loses_nothing() {
    let mut talk = server("noeviction");
    let stored = fill(&mut talk, "a", 12_000, 0);
    assert!((4_000..12_000).contains(&stored), "{stored}");
    assert_eq!(there(&mut talk, "a", 12_000), stored);
    assert_eq!(talk.say(0, &format!("APPEND a0 {}", "x".repeat(VALUE_BYTES))), REFUSED);
    assert_eq!(talk.say(0, "DEL a0 a1 a2 a3 a4 a5"), ":6");
    assert_eq!(fill(&mut talk, "b", 3, 0), 3, "what was deleted makes room");
}

#[test]
fn a_full_store_that_keeps_its_items_takes_no_write_into_a_transaction() {
    const ABORTED: &str = "-EXECABORT Transaction discarded because of";
    for policy in ["noeviction", "volatile-lru", "volatile-ttl"] {
        let mut talk = server(policy);
        let value = "x".repeat(VALUE_BYTES);
        assert_eq!(talk.say(2, "MULTI"), "+OK");
        assert_eq!(talk.say(2, &format!("SET before {value}")), "+QUEUED");
        assert_eq!(talk.say(1, "MULTI"), "+OK");
        assert_eq!(talk.say(1, "GET a0"), "+QUEUED");
        let stored = fill(&mut talk, "a", 12_000, 0);
        assert!((4_000..12_000).contains(&stored), "{stored}");
        // This transaction was queued while there was memory: EXEC refuses it.
        assert_eq!(talk.say(2, "EXEC"), format!("{ABORTED}: {}", &REFUSED[1..]), "{policy}");
        // Now writes are refused while they are queued; reads and removals are not.
        assert_eq!(talk.say(1, &format!("APPEND a1 {value}")), REFUSED);
        assert_eq!(talk.say(1, "EXEC"), format!("{ABORTED} previous errors."));
        assert_eq!(talk.say(0, "MULTI"), "+OK");
        assert_eq!(talk.say(0, "DEL a0 a1 a2"), "+QUEUED");
        assert_eq!(talk.say(0, "STRLEN a3"), "+QUEUED");
        assert_eq!(talk.say(0, "EXEC"), format!("*2 :3 :{VALUE_BYTES}"));
        // The removal has freed memory, which a write can use at once.
        assert_eq!(talk.say(0, "MULTI"), "+OK");
        assert_eq!(talk.say(0, &format!("SET after {value}")), "+QUEUED");
        assert_eq!(talk.say(0, "EXEC"), "*1 +OK", "{policy}");
        assert_eq!(fill(&mut talk, "b", 2, 0), 2, "{policy}: what was deleted makes room");
        assert_eq!(there(&mut talk, "a", 12_000), stored - 3, "{policy}: and nothing was lost");
    }
}

/// A script that declares its flags is refused before it begins, another one at its first write. Neither has
/// changed anything.
#[test]
fn a_full_store_that_keeps_its_items_begins_no_script_that_may_write() {
    const LIKE: &str = "#!lua\nredis.call('DEL', KEYS[1]) return redis.call('SET', KEYS[2], ARGV[1])";
    const PLAIN: &str = "redis.call('GET', KEYS[1]) return redis.call('SET', KEYS[2], ARGV[1])";
    const REMOVES: &str = "redis.call('DEL', KEYS[1]) return redis.call('SET', KEYS[2], ARGV[1])";
    const READS: &str = "#!lua flags=no-writes\nreturn redis.call('STRLEN', KEYS[1])";
    const BOLD: &str =
        "#!lua flags=allow-oom\nredis.call('DEL', KEYS[1]) return redis.pcall('SET', KEYS[2], ARGV[1])";
    let value = "x".repeat(VALUE_BYTES);
    let ask = |talk: &mut Talk, script: &str, keys: [&str; 2]| {
        let words = ["EVAL", script, "2", keys[0], keys[1], &value].map(str::as_bytes);
        talk.send(0, &encode(&words)).trim_end().to_owned()
    };
    for policy in ["noeviction", "volatile-lru", "volatile-ttl"] {
        let mut talk = server(policy);
        for script in [LIKE, PLAIN, REMOVES, READS, BOLD] {
            assert!(!ask(&mut talk, script, ["no", "no"]).is_empty());
        }
        assert_eq!(ask(&mut talk, LIKE, ["no", "no"]), "+OK", "{policy}: there is room");
        let stored = fill(&mut talk, "a", 12_000, 0);
        assert!((3_000..12_000).contains(&stored), "{policy}: {stored}");
        assert_eq!(ask(&mut talk, LIKE, ["a0", "new"]), REFUSED, "{policy}");
        let refused = ask(&mut talk, PLAIN, ["a0", "new"]);
        assert!(
            refused.starts_with(REFUSED) && refused.ends_with("on @user_script:1."),
            "{policy}: {refused}"
        );
        assert_eq!(ask(&mut talk, READS, ["a0", "new"]), format!(":{VALUE_BYTES}"), "{policy}");
        assert_eq!(there(&mut talk, "a", 12_000), stored, "{policy}: nothing was done");
        assert_eq!(talk.say(0, "MULTI"), "+OK");
        assert_eq!(ask(&mut talk, READS, ["a0", "new"]), "+QUEUED", "{policy}");
        assert_eq!(ask(&mut talk, LIKE, ["a0", "new"]), REFUSED, "{policy}");
        assert!(talk.say(0, "EXEC").starts_with("-EXECABORT"), "{policy}");
        // A removal at the beginning frees memory, so the script goes on, whatever flags it declares.
        assert_eq!(ask(&mut talk, REMOVES, ["a0", "b0"]), "+OK", "{policy}");
        assert_eq!(ask(&mut talk, BOLD, ["a1", "b1"]), "+OK", "{policy}");
        assert_eq!(talk.say(0, "EXISTS a0 a1 b0 b1"), ":2", "{policy}");
    }
    let mut talk = server("allkeys-lru");
    fill(&mut talk, "a", 12_000, 0);
    for script in [LIKE, PLAIN, REMOVES, BOLD] {
        assert_eq!(ask(&mut talk, script, ["a0", "b0"]), "+OK", "others give way");
    }
}

#[test]
fn volatile_policies_never_evict_a_key_without_expiry() {
    for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"] {
        let mut talk = server(policy);
        assert_eq!(fill(&mut talk, "stays", 3_000, 0), 3_000);
        assert_eq!(fill(&mut talk, "goes", 20_000, 1000), 20_000, "{policy}: others make room");
        assert_eq!(there(&mut talk, "stays", 3_000), 3_000, "{policy}");
        let left = there(&mut talk, "goes", 20_000);
        assert!((1..8_000).contains(&left), "{policy}: {left} of 20,000 in 8 MB");
        // When all items that expire are gone, there is no room any more.
        let more = fill(&mut talk, "more", 12_000, 0);
        assert!((1_000..12_000).contains(&more), "{policy}: {more}");
        assert_eq!(there(&mut talk, "more", 12_000), more, "{policy}");
        assert_eq!(there(&mut talk, "stays", 3_000), 3_000, "{policy}");
        // A search that found nothing to evict does not prevent the use of memory that is freed later.
        assert_eq!(talk.say(0, &format!("SET refused {}", "x".repeat(VALUE_BYTES))), REFUSED, "{policy}");
        assert_eq!(talk.say(0, "DEL stays0 stays1 stays2"), ":3");
        assert_eq!(fill(&mut talk, "again", 3, 0), 3, "{policy}: what was deleted makes room at once");
        assert_eq!(talk.say(0, &format!("SET refused {}", "x".repeat(VALUE_BYTES))), REFUSED, "{policy}");
    }
}

#[test]
fn volatile_ttl_takes_what_expires_first() {
    let mut talk = server("volatile-ttl");
    fill(&mut talk, "late", 3_000, 100_000);
    fill(&mut talk, "soon", 3_000, 100);
    // These keys are newer than the others, and expire later.
    fill(&mut talk, "last", 3_000, 200_000);
    let [late, soon, last] = ["late", "soon", "last"].map(|prefix| there(&mut talk, prefix, 3_000));
    assert!(soon < 2_000, "room was made: {soon}");
    assert!(late > 2_900 && last > 2_900, "of those that expire first: {late} {soon} {last}");
}

#[test]
fn every_policy_has_its_name() {
    let mut talk = server("allkeys-lru");
    for policy in [
        "noeviction",
        "allkeys-lru",
        "allkeys-lfu",
        "allkeys-random",
        "volatile-lru",
        "volatile-lfu",
        "volatile-random",
        "volatile-ttl",
    ] {
        assert_eq!(talk.say(0, &format!("CONFIG SET maxmemory-policy {policy}")), "+OK");
        let reply = talk.say(0, "CONFIG GET maxmemory-policy");
        assert!(reply.ends_with(&format!(" {policy}")), "{reply}");
        let info = talk.say(0, "INFO memory");
        assert!(info.contains(&format!("maxmemory_policy:{policy} ")), "{info}");
    }
    assert!(talk.say(0, "CONFIG SET maxmemory-policy lru").starts_with("-ERR CONFIG SET failed"));
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        talk.say(0, &format!("CONFIG SET maxmemory-policy {policy}"));
        assert_eq!(fill(&mut talk, policy, 12_000, 0), 12_000, "{policy} drops others");
    }
}

#[test]
fn the_limit_is_raised_and_lowered() {
    let mut talk = server("allkeys-lru");
    for (limit, bytes) in [("32mb", 32 << 20), ("6mb", 6 << 20), ("12582912", 12 << 20)] {
        assert_eq!(talk.say(0, &format!("CONFIG SET maxmemory {limit}")), "+OK");
        assert_eq!(
            talk.say(0, "CONFIG GET maxmemory"),
            format!("*2 $9 maxmemory ${} {bytes}", { u64::to_string(&bytes).len() })
        );
        assert!(talk.say(0, "INFO memory").contains(&format!("maxmemory:{bytes} ")));
        assert_eq!(talk.local().store().memory_bytes(), bytes);
        fill(&mut talk, limit, 20_000, 0);
        talk.local().maintain(10_000);
        let totals = talk.local().store().totals();
        assert!(totals.used_bytes <= bytes, "{} of {bytes}", totals.used_bytes);
        let left = totals.items as usize;
        let fits = bytes as usize / (VALUE_BYTES + 100);
        assert!(left >= fits.min(20_000) * 3 / 4, "{left} of {fits} in {limit}");
    }
}
