//! Memory of scripts: the same request finds room or does not, whatever ran before it.

use crate::Bench;
use larder_commands::{Session, Settings};
use larder_script::sha1_hex;
use larder_testkit::talk::encode;

/// A state of this bench may take 4 MiB, as one of a server with `-m 64 -t 2`.
fn bench() -> Bench {
    Bench::of(Settings::default(), 32 << 20)
}

/// What some words and then some numbers of six digits are answered by.
fn said(bench: &mut Bench, words: &[&str], numbers: usize) -> String {
    let numbers: Vec<String> = (0..numbers).map(|n| format!("{n:06}")).collect();
    let words = words.iter().copied().chain(numbers.iter().map(String::as_str));
    let words: Vec<&[u8]> = words.map(str::as_bytes).collect();
    let (reply, _) = bench.run(&mut Session::new(), &encode(&words), usize::MAX);
    String::from_utf8_lossy(&reply).into_owned()
}

/// A list of so many elements.
fn list(bench: &mut Bench, elements: usize) {
    said(bench, &["DEL", "list", "written"], 0);
    for have in (0..elements).step_by(1000) {
        assert_eq!(said(bench, &["RPUSH", "list"], 1000), format!(":{}\r\n", have + 1000));
    }
}

#[test]
fn so_many_arguments_find_room_always_or_never() {
    let mut bench = bench();
    let counts = "return #ARGV";
    for count in [20_000, 25_000] {
        for _ in 0..50 {
            assert_eq!(said(&mut bench, &["EVAL", counts, "0"], count), format!(":{count}\r\n"));
        }
    }
    let refused = format!("-ERR Error running script {}, not enough memory\r\n", sha1_hex(counts.as_bytes()));
    for _ in 0..5 {
        assert_eq!(said(&mut bench, &["EVAL", counts, "0"], 50_000), refused);
        assert_eq!(said(&mut bench, &["EVAL", counts, "0"], 25_000), ":25000\r\n");
        assert_eq!(said(&mut bench, &["EVAL", "return #KEYS", "25000"], 25_000), ":25000\r\n");
    }
}

#[test]
fn a_reply_of_so_many_elements_finds_room_always_or_never_also_behind_a_write() {
    let mut bench = bench();
    let reads = "return #redis.call('LRANGE', KEYS[1], 0, -1)";
    let writes = "redis.call('INCR', KEYS[2]) return #redis.call('LRANGE', KEYS[1], 0, -1)";
    for count in [20_000, 25_000] {
        list(&mut bench, count);
        for _ in 0..50 {
            let (reads, writes) = (["EVAL", reads, "1", "list"], ["EVAL", writes, "2", "list", "written"]);
            assert_eq!(said(&mut bench, &reads, 0), format!(":{count}\r\n"));
            assert_eq!(said(&mut bench, &writes, 0), format!(":{count}\r\n"));
        }
        assert_eq!(said(&mut bench, &["GET", "written"], 0), "$2\r\n50\r\n");
    }
    list(&mut bench, 50_000);
    for _ in 0..5 {
        let refused = said(&mut bench, &["EVAL", reads, "1", "list"], 0);
        assert!(refused.starts_with("-ERR not enough memory script: "), "{refused}");
    }
}

#[test]
fn what_earlier_runs_have_left_is_not_what_a_run_fails_by() {
    let mut bench = bench();
    // A mebibyte, which its state keeps.
    let leaves = "local t = {} for i = 1, 60000 do t[i] = i end return 'left'";
    for (script, reply) in [
        // In one step, of a few instructions.
        ("local s = string.rep('x', 250000) return #(s .. s .. s .. s)", ":1000000\r\n"),
        ("local t = {} for i = 1, 20000 do t['k' .. i] = i end return t.k20000", ":20000\r\n"),
        ("local t = {} for i = 1, 15000 do t[i] = {i} end return #t", ":15000\r\n"),
        ("return #cjson.decode('[' .. string.rep('1,', 29999) .. '1]')", ":30000\r\n"),
    ] {
        for _ in 0..20 {
            assert_eq!(said(&mut bench, &["EVAL", leaves, "0"], 0), "$4\r\nleft\r\n");
            assert_eq!(said(&mut bench, &["EVAL", script, "0"], 0), reply, "{script}");
        }
    }
}

/// Begun anew it would write twice.
#[test]
fn a_run_that_finds_no_memory_behind_its_write_is_carried_out_once() {
    let mut bench = bench();
    let script = "redis.call('INCR', KEYS[1]) local t = {} for i = 1, 1e9 do t[i] = {i} end";
    let refused = format!("-ERR Error running script {}, not enough memory\r\n", sha1_hex(script.as_bytes()));
    for n in 1..=3 {
        assert_eq!(said(&mut bench, &["EVAL", script, "1", "n"], 0), refused);
        assert_eq!(said(&mut bench, &["GET", "n"], 0), format!("$1\r\n{n}\r\n"));
    }
}
