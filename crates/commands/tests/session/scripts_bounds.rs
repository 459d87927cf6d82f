//! Bounds of scripts: the same request finds room or does not, whatever ran before it; how deep tables may lie in one another.

use crate::Bench;
use larder_commands::{Next, Pace, Session, Settings};
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

/// It is tried twice, in a state of its own where there is another library.
#[test]
fn a_library_that_finds_no_memory_logs_each_line_once() {
    let code = "#!lua name=f\nredis.log(1, 'begins') local s = 'x' for i = 1, 40 do s = s .. s end \
        redis.register_function('f', function() return s end)";
    let refused = "-ERR Error registering functions: not enough memory\r\n";
    for is_beside in [false, true] {
        let mut bench = bench();
        if is_beside {
            assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", COUNTS], 0), "$1\r\nl\r\n");
            assert_eq!(said(&mut bench, &["FCALL", "count", "0"], 0), ":1\r\n");
        }
        assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", code], 0), refused);
        assert_eq!(bench.host.take_noted(), [(1, "begins".to_owned())], "{is_beside}");
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

/// A library with a variable, which counts.
const COUNTS: &str = "#!lua name=l\nlocal n, kept = 0, {} \
    redis.register_function('count', function() n = n + 1 return n end) \
    redis.register_function('keep', function(keys, args) \
        n = n + 1 kept[n] = string.rep('x', args[1]) .. n return n end) \
    redis.register_function('leave', function() \
        local t = {} for i = 1, 120000 do t[i] = i end n = n + 1 return n end)";
/// Leaves two mebibytes of the four that a state may take.
const LEAVES: &str = "local t = {} for i = 1, 120000 do t[i] = i end return #t";

/// A state with a library is not made anew for what scripts and functions leave in it.
#[test]
fn a_function_goes_on_counting_whatever_runs_leave() {
    let mut bench = bench();
    assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", COUNTS], 0), "$1\r\nl\r\n");
    let fills = "local t = {} for i = 1, 1e9 do t[i] = {i} end";
    let writes = "redis.call('INCR', KEYS[1]) local t = {} for i = 1, 1e9 do t[i] = {i} end";
    let refused = |script: &str| {
        format!("-ERR Error running script {}, not enough memory\r\n", sha1_hex(script.as_bytes()))
    };
    let mut n = 0;
    for round in 1..=5 {
        for (words, reply) in [
            (&["EVAL", LEAVES, "0"][..], ":120000\r\n".to_owned()),
            (&["EVAL", fills, "0"][..], refused(fills)),
            (&["EVAL", writes, "1", "k"][..], refused(writes)),
        ] {
            for function in ["count", "leave", "count"] {
                n += 1;
                assert_eq!(said(&mut bench, &["FCALL", function, "0"], 0), format!(":{n}\r\n"));
            }
            assert_eq!(said(&mut bench, words, 0), reply, "{words:?}");
        }
        // What is compiled and loaded finds no room beside what was left.
        assert_eq!(said(&mut bench, &["EVAL", fills, "0"], 0), refused(fills));
        let text = format!("return {round} + 100");
        assert_eq!(said(&mut bench, &["EVAL", &text, "0"], 0), format!(":{}\r\n", round + 100));
        assert_eq!(said(&mut bench, &["EVAL", fills, "0"], 0), refused(fills));
        let text = format!("return {round} + 200");
        let loaded = format!("$40\r\n{}\r\n", sha1_hex(text.as_bytes()));
        assert_eq!(said(&mut bench, &["SCRIPT", "LOAD", &text], 0), loaded);
        assert_eq!(said(&mut bench, &["EVAL", fills, "0"], 0), refused(fills));
        let other = "#!lua name=other\nredis.register_function('other', function() return 'other' end)";
        let load = ["FUNCTION", "LOAD", "REPLACE", other];
        assert_eq!(said(&mut bench, &load, 0), "$5\r\nother\r\n");
        assert_eq!(said(&mut bench, &["EVAL", fills, "0"], 0), refused(fills));
        assert_eq!(said(&mut bench, &["FCALL", "other", "0"], 0), "$5\r\nother\r\n");
    }
    assert_eq!(said(&mut bench, &["GET", "k"], 0), "$1\r\n5\r\n");
}

/// A run that has written is not begun anew: it begins with the room that is there when nothing of another run is in use.
#[test]
fn what_a_run_had_in_use_beside_a_library_is_not_what_the_next_one_fails_by() {
    let mut bench = bench();
    assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", COUNTS], 0), "$1\r\nl\r\n");
    assert_eq!(said(&mut bench, &["FCALL", "count", "0"], 0), ":1\r\n");
    let joins = "redis.call('INCR', KEYS[1]) local s = string.rep('x', 250000) return #(s .. s .. s .. s)";
    for _ in 0..5 {
        assert_eq!(said(&mut bench, &["EVAL", LEAVES, "0"], 0), ":120000\r\n");
        assert_eq!(said(&mut bench, &["EVAL", joins, "1", "k"], 0), ":1000000\r\n");
    }
    assert_eq!(said(&mut bench, &["GET", "k"], 0), "$1\r\n5\r\n");
    assert_eq!(said(&mut bench, &["FCALL", "count", "0"], 0), ":2\r\n");
}

/// What fails is what finds no room, until the library goes.
#[test]
fn variables_of_a_library_stay_where_they_leave_little_room() {
    for replaces in [false, true] {
        let mut bench = bench();
        assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", COUNTS], 0), "$1\r\nl\r\n");
        for n in 1..=25 {
            assert_eq!(said(&mut bench, &["FCALL", "keep", "0", "100000"], 0), format!(":{n}\r\n"));
        }
        let sha1 = sha1_hex(LEAVES.as_bytes());
        for n in 26..=30 {
            let refused = format!("-ERR Error running script {sha1}, not enough memory\r\n");
            assert_eq!(said(&mut bench, &["EVAL", LEAVES, "0"], 0), refused);
            assert_eq!(said(&mut bench, &["EVAL", &format!("return {n}"), "0"], 0), format!(":{n}\r\n"));
            assert_eq!(said(&mut bench, &["FCALL", "count", "0"], 0), format!(":{n}\r\n"));
        }
        // It has counted, is begun anew, and has counted once more.
        let refused = "-ERR Error running script keep, not enough memory\r\n";
        assert_eq!(said(&mut bench, &["FCALL", "keep", "0", "2000000"], 0), refused);
        assert_eq!(said(&mut bench, &["FCALL", "count", "0"], 0), ":33\r\n");
        if replaces {
            assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", "REPLACE", COUNTS], 0), "$1\r\nl\r\n");
            assert_eq!(said(&mut bench, &["FCALL", "count", "0"], 0), ":1\r\n");
        } else {
            assert_eq!(said(&mut bench, &["FUNCTION", "DELETE", "l"], 0), "+OK\r\n");
        }
        assert_eq!(said(&mut bench, &["EVAL", LEAVES, "0"], 0), ":120000\r\n");
    }
}

/// What is weighed before it is made finds the room that a library has left, on each worker with its next script.
#[test]
fn what_a_library_has_kept_is_free_when_it_is_gone() {
    let reads = ["EVAL", "return #redis.call('LRANGE', KEYS[1], 0, -1)", "1", "list"];
    for goes in [&["FUNCTION", "DELETE", "l"][..], &["FUNCTION", "LOAD", "REPLACE", COUNTS][..]] {
        let mut bench = bench();
        list(&mut bench, 25_000);
        assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", COUNTS], 0), "$1\r\nl\r\n");
        for n in 1..=25 {
            assert_eq!(said(&mut bench, &["FCALL", "keep", "0", "100000"], 0), format!(":{n}\r\n"));
        }
        let refused = said(&mut bench, &reads, 0);
        assert!(refused.starts_with("-ERR not enough memory script: "), "{refused}");
        let gone = said(&mut bench, goes, 0);
        assert!(!gone.starts_with('-'), "{gone}");
        assert_eq!(said(&mut bench, &reads, 0), ":25000\r\n", "{goes:?}");
    }
}

/// What a library keeps takes longer to look through than one that replaces it may take to load.
#[test]
fn a_library_is_replaced_whatever_it_has_kept() {
    let mut bench = bench();
    // Each look at a script is a tenth of that time.
    bench.host.script_pace = Some(Pace::Look(std::time::Duration::from_millis(1)));
    let fills = "#!lua name=l\nlocal head \
        redis.register_function('fill', function() while true do head = {head} end end)";
    assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", fills], 0), "$1\r\nl\r\n");
    let refused = "-ERR Error running script fill, not enough memory\r\n";
    assert_eq!(said(&mut bench, &["FCALL", "fill", "0"], 0), refused);
    // It is looked at once at least while it is loaded.
    let sums = "#!lua name=l\nlocal n = 0 for i = 1, 200 do n = n + i end \
        redis.register_function('sum', function() return n end)";
    assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", "REPLACE", sums], 0), "$1\r\nl\r\n");
    assert_eq!(said(&mut bench, &["FCALL", "sum", "0"], 0), ":20100\r\n");
}

/// A collection takes longer than a library may take to load. It is due, or not yet, when a function is called first; what makes
/// it due is the library's code, or what it makes.
#[test]
fn a_library_is_loaded_for_a_call_whatever_others_have_left() {
    // Of a state of 8 MiB some 600 KiB, and as much again while it is compiled; or 256 KiB, and as much again amid it.
    let negated = "a = -a ".repeat(70_000);
    let of_code = format!("local function unused() local a = 1 {negated}end");
    let of_text = "local text = 'x' for i = 1, 18 do text = text .. text end".to_owned();
    for code in [of_code, of_text] {
        let registers = "redis.register_function('large', function() return 5 end)";
        let code = format!("#!lua name=large\n{code} {registers}");
        for quarters in 0..=10 {
            let mut bench = Bench::of(Settings::default(), 64 << 20);
            // Each look at a script is a tenth of that time.
            bench.host.script_pace = Some(Pace::Look(std::time::Duration::from_millis(1)));
            assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", COUNTS], 0), "$1\r\nl\r\n");
            assert_eq!(said(&mut bench, &["FCALL", "count", "0"], 0), ":1\r\n");
            assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", &code], 0), "$5\r\nlarge\r\n");
            // Two mebibytes, and so many quarters of one: a collection is due at some four.
            let leaves = format!(
                "local t, u = {{}}, {{}} for i = 1, 120000 do t[i] = i end \
                 for n = 1, {quarters} do u[n] = {{}} for i = 1, 16000 do u[n][i] = i end end return #t"
            );
            assert_eq!(said(&mut bench, &["EVAL", &leaves, "0"], 0), ":120000\r\n");
            assert_eq!(said(&mut bench, &["FCALL", "large", "0"], 0), ":5\r\n", "{quarters}");
            assert_eq!(said(&mut bench, &["FCALL", "count", "0"], 0), ":2\r\n");
        }
    }
}

#[test]
fn what_a_library_has_kept_is_free_when_it_goes_amid_a_run() {
    let mut bench = bench();
    // Each look at a script is a turn.
    bench.host.script_pace = Some(Pace::Look(std::time::Duration::from_millis(1)));
    assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", COUNTS], 0), "$1\r\nl\r\n");
    for n in 1..=25 {
        assert_eq!(said(&mut bench, &["FCALL", "keep", "0", "100000"], 0), format!(":{n}\r\n"));
    }
    let mut client = Session::new();
    let (next, reply, _) = bench.call(&mut client, &encode(&[b"EVAL", LEAVES.as_bytes(), b"0"]));
    assert!(next == Next::Yield && reply.is_empty(), "{next:?}");
    assert_eq!(said(&mut bench, &["FUNCTION", "DELETE", "l"], 0), "+OK\r\n");
    let (replies, _) = bench.run(&mut client, &encode(&[b"PING"]), usize::MAX);
    assert_eq!(String::from_utf8_lossy(&replies), ":120000\r\n+PONG\r\n");
}

const DEEPEST: &str = "-ERR reached lua stack limit\r\n";

/// What a script comes to that is given this number.
fn of(bench: &mut Bench, script: &str, number: usize) -> String {
    said(bench, &["EVAL", script, "0", &number.to_string()], 0)
}

/// As many as Redis replies, where each value takes a place of Lua's stack.
#[test]
fn a_reply_has_7995_tables_in_one_another() {
    let mut bench = bench();
    let tables = "local t = {} for i = 2, ARGV[1] do t = {t} end return t";
    for count in [1, 2, 64, 65, 66, 128, 129, 7994, 7995] {
        let expected = "*1\r\n".repeat(count - 1) + "*0\r\n";
        assert_eq!(of(&mut bench, tables, count), expected, "{count}");
    }
    for count in [7996, 10_000] {
        assert_eq!(of(&mut bench, tables, count), "*1\r\n".repeat(7995) + DEEPEST, "{count}");
    }
    let text = "local t = 'x' for i = 1, ARGV[1] do t = {t} end return t";
    assert_eq!(of(&mut bench, text, 7994), "*1\r\n".repeat(7994) + "$1\r\nx\r\n");
    assert_eq!(of(&mut bench, text, 7995), "*1\r\n".repeat(7995) + DEEPEST);
    let itself = "local t = {} t[1] = t return t";
    assert_eq!(of(&mut bench, itself, 0), "*1\r\n".repeat(7995) + DEEPEST);
}

/// A key takes four places, of which it leaves one, and so does a member of a set.
#[test]
fn a_reply_has_2664_maps_or_sets_in_one_another() {
    let mut bench = bench();
    let maps = "local t = {} for i = 1, ARGV[1] do t = {map = {k = t}} end return t";
    let keys = "*2\r\n$1\r\nk\r\n".repeat(2664);
    assert_eq!(of(&mut bench, maps, 2664), format!("{keys}*0\r\n"));
    assert_eq!(of(&mut bench, maps, 2665), format!("{keys}*2\r\n{DEEPEST}{DEEPEST}"));
    let sets = "local t = {} for i = 1, ARGV[1] do t = {set = {[t] = true}} end return t";
    assert_eq!(of(&mut bench, sets, 2664), "*1\r\n".repeat(2664) + "*0\r\n");
    assert_eq!(of(&mut bench, sets, 2665), "*1\r\n".repeat(2665) + DEEPEST);
}

#[test]
fn what_comes_behind_a_deep_table_is_replied_behind_it() {
    let mut bench = bench();
    let pairs = "local t = {} for i = 1, ARGV[1] do t = {t, 'x'} end return t";
    let both = "local t = {} for i = 1, ARGV[1] do t = {map = {[{1}] = {t, 'x'}}} end return t";
    for count in [1, 63, 64, 65, 66, 200] {
        let behind = "$1\r\nx\r\n".repeat(count);
        let expected = "*2\r\n".repeat(count) + "*0\r\n" + &behind;
        assert_eq!(of(&mut bench, pairs, count), expected, "{count}");
        let expected = "*2\r\n*1\r\n:1\r\n*2\r\n".repeat(count) + "*0\r\n" + &behind;
        assert_eq!(of(&mut bench, both, count), expected, "{count}");
    }
}

#[test]
fn json_has_1000_tables_in_one_another_also_where_a_script_is_deep_in_calls() {
    let mut bench = bench();
    let make = "local kind, t = KIND, {} \
        for i = 2, ARGV[1] do t = kind and {t} or {a = t} end \
        local function encode(calls) \
            if calls == 0 then return #cjson.encode(t) end \
            local ok, made = pcall(encode, calls - 1) \
            if ok then return made end \
            error(made, 0) \
        end \
        return encode(CALLS)";
    let read = "local kind, count, depth = KIND, tonumber(ARGV[1]), 1 \
        local open, close = kind and '[' or '{\"a\":', kind and ']' or '}' \
        local t = cjson.decode(string.rep(open, count - 1) .. '{}' .. string.rep(close, count - 1)) \
        while next(t) do t = kind and t[1] or t.a depth = depth + 1 end \
        return depth";
    for (kind, bytes) in [("true", 2), ("false", 6)] {
        for calls in ["0", "100", "150"] {
            let make = make.replace("KIND", kind).replace("CALLS", calls);
            for count in [1, 16, 17, 18, 256, 257, 999, 1000] {
                assert_eq!(of(&mut bench, &make, count), format!(":{}\r\n", 2 + bytes * (count - 1)));
            }
            let deep = of(&mut bench, &make, 1001);
            let told = "Cannot serialise, excessive nesting (1001)";
            assert!(deep.starts_with('-') && deep.contains(told), "{deep}");
        }
        let read = read.replace("KIND", kind);
        for count in [1, 256, 257, 999, 1000] {
            assert_eq!(of(&mut bench, &read, count), format!(":{count}\r\n"));
        }
        let deep = of(&mut bench, &read, 1001);
        let at = 1 + 1000 * if kind == "true" { 1 } else { 5 };
        let told = format!("Found too many nested data structures (1001) at character {at} script: ");
        assert!(deep.starts_with('-') && deep.contains(&told), "{deep}");
    }
}
