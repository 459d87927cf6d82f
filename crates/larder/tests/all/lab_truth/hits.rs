//! Hit ratios of a cache whose hits are known, and what the lab must know before it compares them.

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use larder_testkit::folder::Folder;
use larder_testkit::model_cache::{Model, serve};

use super::{lab, refused, said, written};

const MEMORY_MB: u64 = 1;
const REQUESTS: f64 = 8_192.0;

/// Runs one stream on a model of a cache, with the oracle's misses beside it.
fn hitratio(model: Model, more: &[&str], folder: &Path) -> Output {
    let target = format!("a=memcached://{}", serve(Model { capacity_bytes: MEMORY_MB << 20, ..model }));
    let few = ["hitratio", "--quick", "--rounds", "1", "--no-larder", "--stream", "cluster52"];
    let sizes = ["--memory-mb", "1", "--requests", "8000", "--target", &target];
    lab(&[&few[..], &sizes, more].concat(), folder).output().unwrap()
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn an_ideal_lru_misses_what_the_oracle_misses_however_fast_it_is() {
    let folder = Folder::new("speeds");
    for delay in [0, 200, 1_000] {
        let model = Model { delay: Duration::from_micros(delay), ..Model::default() };
        let output = hitratio(model, &[], &folder);
        assert!(output.status.success(), "{}", said(&output));
        let run = written(&folder, &output);
        let misses = |server| run.tables[0].value(server, &["cluster52"], "misses").unwrap().median / 100.0;
        let (measured, truth) = (misses("a"), misses("oracle, LRU by bytes"));
        let deviation = (truth * (1.0 - truth) / REQUESTS).sqrt();
        assert!((measured - truth).abs() < deviation, "{delay} µs: {measured} is not {truth}");
        assert!((0.01..0.5).contains(&truth), "{truth}");
        std::fs::remove_file(folder.join("out.json")).unwrap();
    }
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn memory_that_was_not_seen_is_not_said_to_be_equal() {
    let folder = Folder::new("unseen");
    let output = hitratio(Model::default(), &[], &folder);
    let run = written(&folder, &output);
    for column in ["resident", "limit given"] {
        assert!(run.tables[0].value("a", &["cluster52"], column).is_none(), "{column}: {}", said(&output));
    }
    assert!(run.verdict.contains("in memory that was not equal (a is not seen"), "{}", run.verdict);
    assert!(!said(&output).contains("1 MiB of resident memory,"), "{}", said(&output));
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_server_that_differs_from_itself_is_no_result() {
    let folder = Folder::new("moody");
    let output = hitratio(Model { moody: true, ..Model::default() }, &[], &folder);
    refused(&output, 1, "result not valid: a server measured twice agrees with itself");
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_warm_up_that_was_cut_off_is_no_result() {
    let folder = Folder::new("cut");
    let slow = Model { delay: Duration::from_millis(20), ..Model::default() };
    refused(&hitratio(slow, &["--warm-max", "0.1"], &folder), 1, "the warm-up was cut off after 0.1 s");
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_server_that_counts_nothing_is_no_result() {
    let folder = Folder::new("uncounted");
    // This server does not count its items, either.
    let output = hitratio(Model { counts: false, ..Model::default() }, &["--flush-target"], &folder);
    refused(&output, 1, "a does not count hits and misses");
}
