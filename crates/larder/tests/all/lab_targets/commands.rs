//! `larder lab load` with commands that the user gives, and with presets.

use super::targets::{figures, lab, memcached};
use crate::outcome::refused;
use larder_testkit::folder::Folder;
use larder_testkit::process::{Program, Server};

/// Sends commands on hashes, with the options `pace`, and checks that the replies are the expected ones.
fn hash_is_checked(target: &str, folder: &std::path::Path, pace: &[&str]) {
    let hash = [
        "--command",
        "HSET h:{key} f {value}",
        "--expect",
        ":0|:1",
        "--command",
        "HGET h:{key} f",
        "--expect",
        "value",
    ];
    let words = [&hash[..], pace, &["--keys", "50", "--connections", "3"]].concat();
    let (all, said) = figures(target, folder, &words);
    assert_eq!((all["requests"], all["hits"], all["errors"]), (1000.0, 500.0, 0.0), "{said}");
}

#[test]
#[ignore = "time: a warm-up at a rate ends the load if it comes too late"]
fn commands_are_asked_at_a_rate() {
    let folder = Folder::new("rate");
    let redis = Server::start_program(&Program::LarderResp, &[""; 0]).unwrap();
    let target = format!("a=redis://{}", redis.address());
    let pace = ["--rate", "500", "--requests", "1000", "--pipeline", "4", "--warm-up", "0.1"];
    hash_is_checked(&target, &folder, &pace);
}

#[test]
fn commands_are_asked_and_what_they_answer_is_checked() {
    let folder = Folder::new("commands");
    let redis = Server::start_program(&Program::LarderResp, &[""; 0]).unwrap();
    let mc = Server::start(&[""; 0]).unwrap();
    let targets = (format!("a=redis://{}", redis.address()), memcached(mc.address()));
    hash_is_checked(&targets.0, &folder, &["--pipeline", "4", "--requests", "1000"]);
    let text = [
        "--command",
        "set t:{key} 0 0 {bytes}\\r\\n{value}",
        "--expect",
        "STORED",
        "--command",
        "get t:{key}",
        "--expect",
        "value",
        "--command",
        "get n:{n}",
        "--expect",
        "nil",
    ];
    let (all, said) = figures(
        &targets.1,
        &folder,
        &[&text[..], &["--requests", "300", "--keys", "20", "--value-bytes", "10-60"]].concat(),
    );
    assert_eq!(["requests", "hits", "misses"].map(|name| all[name]), [300.0, 100.0, 100.0], "{said}");

    let load = |target: &str, words: &[&str]| {
        lab(&[&["load", "--flush-target", "--target", target, "--requests", "10"], words].concat())
    };
    for (words, code, why) in [
        (&["--command", "SET {key} {value}", "--expect", "nil"][..], 1, "command 1 for key:"),
        (&["--command", "SET {key} {value}", "--expect", "nil"], 1, "is answered by \"OK\""),
        (&["--command", "HGET {key}"], 1, "is answered by \"ERR wrong number of arguments"),
        (
            &["--command", "SET {key} x", "--command", "GET {key}", "--expect", "OK", "--expect", "value"],
            1,
            "a value of 1 bytes",
        ),
        (&["--command", "GET {what}"], 64, "{what} is none of"),
        (
            &["--command", "GET {key}", "--command", "GET {key}", "--expect", "any"],
            64,
            "one for each, or none",
        ),
        (&["--command", "GET {key}", "--verb", "set"], 64, "say themselves what is asked"),
    ] {
        refused(&load(&targets.0, words), code, why);
    }
}

#[test]
fn a_turn_expects_the_value_that_it_sent() {
    let folder = Folder::new("turns");
    let redis = Server::start_program(&Program::LarderResp, &[""; 0]).unwrap();
    let target = format!("a=redis://{}", redis.address());
    let turn =
        ["--command", "SET {key} {value}", "--expect", "OK", "--command", "GET {key}", "--expect", "{value}"];
    let words = ["--pipeline", "8", "--requests", "320", "--keys", "50", "--connections", "1"];
    let (all, said) = figures(&target, &folder, &[&turn[..], &words].concat());
    assert_eq!((all["requests"], all["hits"]), (320.0, 160.0), "{said}");
    // With the largest possible number of requests, the load runs until its time is over.
    let most = ["--requests", &u64::MAX.to_string(), "--seconds", "1", "--connections", "3"];
    let (all, said) = figures(&target, &folder, &[&turn[..4], &most].concat());
    assert!(all["requests"] > 0.0, "{said}");
}

#[test]
fn presets_ask_what_they_are_called_after() {
    let folder = Folder::new("presets");
    let redis = Server::start_program(&Program::LarderResp, &[""; 0]).unwrap();
    let mc = Server::start(&[""; 0]).unwrap();
    for target in [format!("a=redis://{}", redis.address()), memcached(mc.address())] {
        for (preset, reads, updates) in
            [("ycsb-a", 0.5, 0.5), ("ycsb-b", 0.95, 0.05), ("ycsb-c", 1.0, 0.0), ("ycsb-d", 0.95, 0.05)]
        {
            let words = [
                "--preset",
                preset,
                "--keys",
                "500",
                "--requests",
                "20000",
                "--pipeline",
                "8",
                "--connections",
                "4",
            ];
            let (all, said) = figures(&target, &folder, &words);
            let share = |name: &str| all[name] / all["requests"];
            assert!(
                (share("hits") - reads).abs() < 0.02 && (share("sets") - updates).abs() < 0.02,
                "{preset}: {said}"
            );
            assert_eq!((all["misses"], all["requests"]), (0.0, 20_000.0), "{preset}: {said}");
        }
        let (all, said) = figures(
            &target,
            &folder,
            &["--preset", "ycsb-f", "--keys", "500", "--requests", "20000", "--connections", "4"],
        );
        assert!(all["swaps"] > 4_000.0 && all["refused swaps"] == 0.0, "{said}");
    }
    // Each scan of 1 to 100 records of a sorted set is compared with the records that must be there.
    let target = format!("a=redis://{}", redis.address());
    let words = ["--preset", "ycsb-e", "--keys", "500", "--requests", "4000", "--connections", "4"];
    for pace in [&[][..], &["--rate", "2000"]] {
        // No speed is checked: a busy machine may be too slow for any rate.
        let (all, said) = figures(&target, &folder, &[&words[..], pace].concat());
        let scans = all["requests"] - all["sets"];
        assert!((all["sets"] / all["requests"] - 0.05).abs() < 0.02, "{said}");
        assert_eq!((all["requests"], all["misses"], all["errors"]), (4_000.0, 0.0, 0.0), "{said}");
        assert!((20.0..80.0).contains(&(all["hits"] / scans)), "{said}");
        assert!(said.contains("read back over another connection"), "{said}");
    }
    let load = |words: &[&str]| lab(&[&["load", "--flush-target", "--target", &target], words].concat());
    refused(&load(&["--preset", "ycsb-e", "--pipeline", "2"]), 64, "one scan at a time on a connection");
    let target = memcached(mc.address());
    let load = |words: &[&str]| lab(&[&["load", "--flush-target", "--target", &target], words].concat());
    refused(&load(&["--preset", "ycsb-e"]), 64, "memcached has no command for that");
    refused(&load(&["--preset", "ycsb-a", "--value-bytes", "10"]), 64, "say themselves what is asked");
}
