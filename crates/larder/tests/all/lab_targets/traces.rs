//! `larder lab load` and `hitratio` on traces.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::targets::{figures, lab, memcached};
use crate::outcome::{refused, said};
use larder_lab::results::Run;
use larder_testkit::folder::Folder;
use larder_testkit::model_cache::{Model, serve};
use larder_testkit::process::{Program, Server};

/// 200 keys are each set and read three times; every tenth key is then deleted and read. Ten more reads are
/// of keys that are never set.
fn requests() -> Vec<(&'static str, String, usize)> {
    let mut all = Vec::new();
    for key in 0..200 {
        all.push(("set", format!("user:{key:04}"), 30 + key));
        (0..3).for_each(|_| all.push(("get", format!("user:{key:04}"), 30 + key)));
        if key % 10 == 0 {
            all.push(("delete", format!("user:{key:04}"), 0));
            all.push(("get", format!("user:{key:04}"), 0));
        }
    }
    (0..10).for_each(|key| all.push(("get", format!("none:{key:04}"), 50)));
    all
}

/// These requests in each format, spread over `seconds` seconds.
fn traces(seconds: usize) -> [(&'static str, String); 3] {
    let all = requests();
    let (mut twitter, mut watch, mut monitor) = (String::new(), String::from("OK\r\n"), String::from("OK\n"));
    for (at, (verb, key, bytes)) in all.iter().enumerate() {
        let us = at * seconds * 1_000_000 / all.len();
        let (s, us) = (us / 1_000_000, us % 1_000_000);
        writeln!(twitter, "{s},{key},9,{bytes},7,{verb},{}", if *verb == "set" { 600 } else { 0 }).unwrap();
        let item = match *verb {
            "set" => {
                format!("type=item_store key={key} status=stored cmd=set ttl=600 clsid=1 cfd=9 size={bytes}")
            }
            "get" => format!("type=item_get key={key} status=found clsid=1 cfd=9 size={bytes}"),
            _ => format!("type=deleted key={key} cmd=delete clsid=1 cfd=9 size={bytes}"),
        };
        write!(watch, "ts={}.{us} gid={at} {item}\r\n", 1_700_000_000 + s).unwrap();
        let value = format!(" \"{}\" \"EX\" \"600\"", "v".repeat(*bytes));
        let (name, more) = match *verb {
            "set" => ("SET", value.as_str()),
            "get" => ("GET", ""),
            _ => ("DEL", ""),
        };
        writeln!(monitor, "{}.{us:06} [0 127.0.0.1:1] \"{name}\" \"{key}\"{more}", 1_700_000_000 + s)
            .unwrap();
    }
    [("twitter", twitter), ("memcached", watch), ("monitor", monitor)]
}

#[test]
fn each_format_is_told_and_asks_the_same_of_each_server() {
    let folder = Folder::new("formats");
    let (mc, redis) =
        (Server::start(&[""; 0]).unwrap(), Server::start_program(&Program::LarderResp, &[""; 0]).unwrap());
    let targets = [memcached(mc.address()), format!("a=redis://{}", redis.address())];
    for (format, text) in traces(10) {
        let file = folder.join("trace");
        std::fs::write(&file, text).unwrap();
        for target in &targets {
            for pipeline in ["1", "16"] {
                let words = ["--trace", file.to_str().unwrap(), "--pipeline", pipeline, "--connections", "5"];
                let (all, said) = figures(target, &folder, &words);
                let counts = ["requests", "sets", "hits", "misses", "deletes"].map(|name| all[name]);
                assert_eq!(counts, [850.0, 200.0, 600.0, 30.0, 20.0], "{format}: {said}");
                assert!(
                    said.contains(&format!("trace ({format}): ")) && said.contains(" 850 requests"),
                    "{said}"
                );
                assert!(
                    said.contains("the server counted the same") && !said.contains("none of this format"),
                    "{said}"
                );
            }
        }
    }
}

#[test]
fn a_trace_keeps_its_times_as_they_are_scaled() {
    let folder = Folder::new("times");
    let server = Server::start(&[""; 0]).unwrap();
    for (format, text) in traces(1250) {
        let file = folder.join("trace");
        std::fs::write(&file, text).unwrap();
        let words = ["--trace", file.to_str().unwrap(), "--trace-speed", "1000", "--trace-format", format];
        let (all, said) = figures(&memcached(server.address()), &folder, &words);
        // A trace of twenty minutes is played a thousand times as fast; its last request is due a little
        // before the end. At its own speed it would take longer than the limit here, which is beyond the
        // delays of any machine.
        assert!((1.2..600.0).contains(&all["seconds"]), "{said}");
        assert_eq!(all["requests"], 850.0, "{said}");
        assert!(said.contains("from when they were due"), "{said}");
    }
    let file = folder.join("verbose");
    std::fs::write(&file, "slab class   1: chunk size 96 perslab 10922\n<28 new auto-negotiating client connection\n<28 get k\n>28 END\n").unwrap();
    let target = memcached(server.address());
    let words = ["load", "--flush-target", "--target", &target, "--trace", file.to_str().unwrap()];
    refused(
        &lab(&[&words[..], &["--trace-speed", "1"]].concat()),
        74,
        "it tells no times: --trace-speed max",
    );
    let (all, said) = figures(&target, &folder, &words[4..]);
    assert!(all["requests"] == 1.0 && said.contains("left out: 3 lines that ask for no value"), "{said}");
}

#[test]
fn bad_lines_are_told_and_requests_end_a_trace() {
    let folder = Folder::new("bad");
    let file = folder.join("trace");
    let server = serve(Model::default());
    let [(_, twitter), ..] = traces(10);
    std::fs::write(&file, twitter.replacen("\n", "\nwhat is this\nand, this\n", 1)).unwrap();
    let path = file.to_str().unwrap();
    let words = ["--trace", path, "--requests", "3"];
    let (all, said) = figures(&memcached(server), &folder, &words);
    assert!(all["requests"] == 3.0 && said.contains("the trace goes on"), "{said}");
    assert!(said.contains("left out: 2 lines that are none of this format, the first is line 2"), "{said}");
    let target = memcached(server);
    let load = |words: &[&str]| lab(&[&["load", "--flush-target", "--target", &target], words].concat());
    std::fs::write(&file, b"\x28\xb5\x2f\xfd....").unwrap();
    refused(&load(&["--trace", path]), 74, "it is packed: zstd -d unpacks it");
    std::fs::write(&file, "what\n").unwrap();
    refused(&load(&["--trace", path]), 74, "--trace-format says it");
    refused(
        &load(&["--trace", path, "--trace-format", "twitter"]),
        74,
        "has no request: trace (twitter): 1 lines, 0 requests",
    );
    refused(&load(&["--trace", path, "--verb", "set"]), 64, "say themselves what is asked");
    refused(&load(&["--trace", path, "--rate", "5"]), 64, "are of a load that is made here");
    refused(&load(&["--trace", "/nowhere/trace"]), 74, "/nowhere/trace: No such file");
}

/// A trace in libCacheSim's format: two passes over a thousand objects of 1 kB.
fn oracle() -> Vec<u8> {
    let record = |at: u32| {
        let next: i64 = if at < 1000 { i64::from(at) + 1000 } else { -1 };
        [
            &(at / 100).to_le_bytes()[..],
            &u64::from(at % 1000).to_le_bytes(),
            &1000_u32.to_le_bytes(),
            &next.to_le_bytes(),
        ]
        .concat()
    };
    (0..2000).flat_map(record).collect()
}

#[test]
fn a_trace_of_reads_is_filled_from_its_misses() {
    let folder = Folder::new("oracle");
    let file = folder.join("trace");
    std::fs::write(&file, oracle()).unwrap();
    let path = file.to_str().unwrap();
    let server = Server::start(&[""; 0]).unwrap();
    let target = memcached(server.address());
    let (all, said) = figures(&target, &folder, &["--trace", path, "--connections", "3"]);
    let counts = |all: &BTreeMap<String, f64>| ["requests", "sets", "hits", "misses"].map(|name| all[name]);
    assert_eq!(counts(&all), [2000.0, 1000.0, 1000.0, 1000.0], "{said}");
    let (all, said) = figures(&target, &folder, &["--trace", path, "--trace-misses", "leave"]);
    assert_eq!(counts(&all), [2000.0, 0.0, 0.0, 2000.0], "{said}");
    // A server that stores all values under one key is recognized by the values that it returns.
    let one_key = memcached(serve(Model { forgetful: true, ..Model::default() }));
    let output = lab(&["load", "--flush-target", "--target", &one_key, "--trace", path]);
    refused(&output, 1, "that are not its value");
}

#[test]
fn misses_of_a_trace_are_those_of_the_cache_that_it_is_asked_of() {
    let folder = Folder::new("misses");
    let (file, json) = (folder.join("trace"), folder.join("out.json"));
    std::fs::write(&file, oracle()).unwrap();
    // The first cache holds the whole trace; in the second, no object of the loop stays until it is read
    // again. The oracle has one mebibyte.
    for (capacity_bytes, share) in [(64 << 20, 50.0), (500_000, 100.0)] {
        let target = memcached(serve(Model { capacity_bytes, ..Model::default() }));
        let words = [
            "hitratio",
            "--quick",
            "--no-larder",
            "--memory-mb",
            "1",
            "--flush-target",
            "--force",
            "--target",
            &target,
        ];
        let files = ["--trace", file.to_str().unwrap(), "--json", json.to_str().unwrap()];
        let output = lab(&[&words[..], &files].concat());
        let run = Run::read_json(&json).unwrap_or_else(|_| panic!("{}", said(&output)));
        assert!(run.failed_at_any_time().next().is_none(), "{}", said(&output));
        let table = run.tables.iter().find(|table| table.id == "trace").unwrap();
        let misses = |server| table.value(server, &[], "misses").unwrap().median;
        assert_eq!(misses("a"), share, "{}", said(&output));
        // A thousand items of 1001 to 1003 bytes fit one mebibyte.
        assert_eq!(misses("oracle, LRU by bytes"), 50.0, "{}", said(&output));
        assert!(
            run.notes.iter().any(|note| note.starts_with("50 % of the trace's reads are the first")),
            "{:?}",
            run.notes
        );
        assert!(run.tables.len() == 1, "no stream was asked for");
    }
}

#[test]
#[ignore = "peers: memcached, redis-server"]
fn a_trace_of_each_format_is_asked_of_every_peer() {
    let folder = Folder::new("peers");
    let (file, json) = (folder.join("trace"), folder.join("out.json"));
    let texts = traces(10).map(|(format, text)| (format, text.into_bytes()));
    for (format, bytes) in texts.into_iter().chain([("oracle", oracle())]) {
        std::fs::write(&file, bytes).unwrap();
        let words =
            ["hitratio", "--rounds", "1", "--memory-mb", "64", "--peer", "memcached,redis", "--force"];
        let files = ["--trace", file.to_str().unwrap(), "--json", json.to_str().unwrap()];
        let output = lab(&[&words[..], &files].concat());
        assert!(output.status.success(), "{format}: {}", said(&output));
        let run = Run::read_json(&json).unwrap();
        let table = run.tables.iter().find(|table| table.id == "trace").unwrap();
        let misses = |server: &str| table.value(server, &[], "misses").unwrap().median;
        // Each server holds the whole trace.
        for server in ["larder", "memcached", "redis"] {
            assert_eq!(misses(server), misses("oracle, LRU by bytes"), "{format}: {}", said(&output));
        }
        assert!(said(&output).contains(&format!("trace ({format}): ")), "{}", said(&output));
    }
}
