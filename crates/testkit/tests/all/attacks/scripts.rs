//! Scripts that are long or many, or that produce much data.

use super::full;
use larder_testkit::attacker::Attacker;

/// The table of known scripts is bounded; a worker that has compiled scripts keeps none of their text beyond it.
#[test]
#[ignore = "memory: the peak of a process in real time"]
fn scripts_that_are_little_but_comments() {
    let (bounded, _client) = full();
    let mut attackers = [Attacker::new(&bounded), Attacker::new(&bounded)];
    let comment = "x".repeat(500_000);
    for n in 0..150 {
        let script = format!("return {n} -- {comment}");
        for attacker in &mut attackers {
            assert_eq!(attacker.ask(&[b"EVAL", script.as_bytes(), b"0"]).errors, 0);
        }
    }
    bounded.stayed_within("EVAL of long scripts");
}

/// The same for libraries, each of which is deleted after a call on each worker.
#[test]
#[ignore = "memory: the peak of a process in real time"]
fn libraries_that_are_little_but_comments() {
    let (bounded, _client) = full();
    let mut attackers = [Attacker::new(&bounded), Attacker::new(&bounded)];
    let comment = "x".repeat(500_000);
    for n in 0..150 {
        let code = format!(
            "#!lua name=lib{n}\nredis.register_function('f{n}', function() return {n} end) -- {comment}"
        );
        assert_eq!(attackers[0].ask(&[b"FUNCTION", b"LOAD", code.as_bytes()]).errors, 0);
        let (function, library) = (format!("f{n}"), format!("lib{n}"));
        for attacker in &mut attackers {
            assert_eq!(attacker.ask(&[b"FCALL", function.as_bytes(), b"0"]).errors, 0);
        }
        assert_eq!(attackers[0].ask(&[b"FUNCTION", b"DELETE", library.as_bytes()]).errors, 0);
    }
    bounded.stayed_within("FCALL of long libraries");
}

/// Fills each Lua state up to its bound, on each worker, one after another.
#[test]
#[ignore = "memory: the peak of a process in real time"]
fn scripts_that_take_all_that_they_may() {
    let (bounded, _client) = full();
    let mut attackers = [(); 4].map(|()| Attacker::new(&bounded));
    for script in [
        "local t = {} for i = 1, 1e9 do t[i] = {i} end",
        "local t = {} for i = 1, 1e9 do t[i] = string.rep('x', 1000) .. i end",
        "local s = 'x' while true do s = s .. s end",
        "local t = {} for i = 1, 1e9 do t[i] = redis.call('GET', 'k1') or {} end",
        "return cjson.decode(string.rep('[', 500000))",
        "local t = {} for i = 1, 1e9 do t[i] = cmsgpack.pack(string.rep('y', 10000), i) end",
        "return string.rep('x', 1e9)",
    ] {
        for _ in 0..3 {
            for attacker in &mut attackers {
                assert_eq!(attacker.ask(&[b"EVAL", script.as_bytes(), b"0"]).errors, 1, "{script}");
            }
        }
    }
    // A reply that is more than its share of the memory for replies.
    let many = "local s = string.rep('x', 100000) local t = {} for i = 1, 5000 do t[i] = s end return t";
    for attacker in &mut attackers {
        assert_eq!(attacker.ask(&[b"EVAL", many.as_bytes(), b"0"]).errors, 1);
    }
    bounded.stayed_within("EVAL to its bound");
}
