//! `larder lab load`: the files that it writes, when it ends, and on which cores it runs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use larder_lab::results::Run;
use larder_testkit::folder::Folder;
use larder_testkit::model_cache::{Model, serve};
use larder_testkit::process::{Program, Server};

use crate::outcome::said;

/// Runs a load on this server; the machine may be busy.
fn load(address: SocketAddr, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    let target = format!("a=memcached://{address}");
    command.args(["lab", "load", "--wait-max", "100", "--target", &target]).args(words).output().unwrap()
}

/// The values in the only row of a run, by column.
fn figures(run: &Run) -> BTreeMap<String, f64> {
    let table = &run.tables[0];
    let values = table.columns.iter().zip(&table.rows[0].values);
    values.filter_map(|(column, value)| Some((column.name.clone(), value.as_ref()?.median))).collect()
}

/// The columns of a CSV file, by name.
fn columns(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let rows: Vec<_> = lines.collect();
    let column = |at: usize| rows.iter().map(|row| row[at].to_owned()).collect();
    names.iter().enumerate().map(|(at, name)| ((*name).to_owned(), column(at))).collect()
}

fn sum(column: &[String]) -> u64 {
    column.iter().map(|count| count.parse::<u64>().unwrap()).sum()
}

#[test]
fn the_seconds_of_a_load_add_up_to_all_of_it_in_each_file() {
    seconds_add_up("closed", &["--seconds", "2.3"]);
}

#[test]
#[ignore = "time: a load at a rate ends if it comes too late"]
fn the_seconds_of_a_load_at_a_rate_add_up_to_all_of_it_in_each_file() {
    seconds_add_up("open", &["--seconds", "2.3", "--rate", "2000"]);
}

fn seconds_add_up(name: &str, pace: &[&str]) {
    let folder = Folder::new(name);
    let server = Server::start(&[""; 0]).unwrap();
    let (json, csv, log) = (folder.at("out.json"), folder.at("out.csv"), folder.at("out.hlog"));
    let files = ["--json", &json, "--csv", &csv, "--hdr-log", &log];
    let what =
        ["--verb", "get:6,set:2,miss:2", "--keys", "1000", "--pipeline", "3", "--flush-target", "--force"];
    let output = load(server.address(), &[&what[..], pace, &files].concat());
    let run = Run::read_json(Path::new(&json)).unwrap_or_else(|_| panic!("{}", said(&output)));
    assert!(run.failed_at_any_time().next().is_none(), "{}", said(&output));
    let valid = run.failed().next().is_none();
    assert_eq!(output.status.success(), valid, "{}", said(&output));
    assert_eq!(run.verdict.is_empty(), !valid);
    let all = figures(&run);
    assert!(all["hits"] > 0.0 && all["misses"] > 0.0, "{all:?}");

    let lines = columns(&std::fs::read_to_string(&csv).unwrap());
    for (column, name) in
        [("operations", "requests"), ("hits", "hits"), ("misses", "misses"), ("errors", "errors")]
    {
        assert_eq!(sum(&lines[column]) as f64, all[name], "{column} in {}", said(&output));
    }
    let seconds = lines["from_s"].len();
    // The last replies may be late, so there may be more seconds than were asked for.
    assert!(seconds >= 3, "{lines:?}");
    assert!(lines["valid"].iter().all(|said| said == if valid { "yes" } else { "no" }));

    let plot = |id: &str| run.plots.iter().find(|plot| plot.id == id).unwrap();
    for (curve, name) in plot("seconds").curves.iter().zip(["requests", "errors", "hits", "misses"]) {
        assert_eq!(curve.points.iter().map(|point| point.y).sum::<f64>(), all[name], "{}", curve.name);
        assert_eq!(curve.points.len(), seconds);
    }
    let longest = |name: &str| {
        let curve = plot("latencies").curves.iter().find(|curve| curve.name == name).unwrap();
        curve.points.iter().map(|point| point.y).fold(0.0, f64::max)
    };
    // The maximum of the whole run is at least that of each second; it is absent if the generator was late.
    assert!(all.get("latency max").is_none_or(|us| longest("max") <= *us), "{all:?}");
    assert!(longest("p50") > 0.0 && longest("p50") <= longest("p99").max(longest("p50")));

    let log = std::fs::read_to_string(&log).unwrap();
    let entries = log.lines().filter(|line| !line.starts_with('#') && !line.starts_with("Tag="));
    assert_eq!(entries.count(), seconds, "{log}");
    assert_eq!(log.lines().any(|line| line.starts_with("Tag=lag,")), pace.contains(&"--rate"), "{log}");
    let windows: u64 = run.histograms[0].count + run.histograms[0].over_range;
    assert_eq!(windows as f64 * 3.0, all["requests"]);
}

#[test]
fn files_of_a_load_are_kept_and_a_full_disk_is_told() {
    let folder = Folder::new("kept");
    let few = ["--verb", "set", "--keys", "10", "--seconds", "0.05", "--flush-target"];
    let server = serve(Model::default());
    let file = folder.at("dear");
    for option in ["--json", "--csv", "--hdr-log"] {
        std::fs::write(&file, "dear").unwrap();
        let output = load(server, &[&few[..], &[option, &file]].concat());
        assert!(said(&output).contains("say --force") && !output.status.success(), "{}", said(&output));
        assert_eq!(std::fs::read(&file).unwrap(), b"dear");
        let output = load(server, &[&few[..], &["--force", option, &file]].concat());
        assert!(output.status.success(), "{}", said(&output));
        assert_ne!(std::fs::read(&file).unwrap(), b"dear");
        let output = load(server, &[&few[..], &[option, "/dev/full"]].concat());
        assert!(said(&output).contains("/dev/full: No space left on device"), "{}", said(&output));
        // The result is printed although the file cannot be written.
        assert!(said(&output).contains("throughput") && !output.status.success(), "{}", said(&output));
    }
    let output = load(server, &[&few[..], &["--force", "--csv", &file, "--hdr-log", &file]].concat());
    assert!(said(&output).contains("two results cannot both be written there"), "{}", said(&output));
}

#[test]
fn a_load_that_is_not_valid_says_so_in_each_file() {
    let folder = Folder::new("wrong");
    let (json, csv, log) = (folder.at("out.json"), folder.at("out.csv"), folder.at("out.hlog"));
    let one_key = serve(Model { forgetful: true, ..Model::default() });
    let few = ["--verb", "hit", "--keys", "100", "--requests", "1000", "--flush-target"];
    let output = load(one_key, &[&few[..], &["--json", &json, "--csv", &csv, "--hdr-log", &log]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let run = Run::read_json(Path::new(&json)).unwrap();
    assert!(run.verdict.is_empty() && run.failed().any(|check| check.claim.contains("every reply")));
    let lines = columns(&std::fs::read_to_string(&csv).unwrap());
    assert_eq!(sum(&lines["errors"]) as f64, figures(&run)["errors"]);
    assert!(lines["valid"].iter().all(|said| said == "no") && figures(&run)["errors"] > 0.0);
    assert!(std::fs::read_to_string(&log).unwrap().contains("#Result not valid"));
}

#[test]
#[ignore = "time: loads of a second"]
fn a_closed_loop_of_a_second_has_the_generator_alone_beside_it() {
    // The null server needs a core of its own.
    if thread::available_parallelism().unwrap().get() < 2 {
        return;
    }
    let folder = Folder::new("alone");
    let json = folder.at("out.json");
    let server = Server::start_program(&Program::Larder, &["-t", "1"]).unwrap();
    let files = ["--keys", "100", "--flush-target", "--force", "--json", &json];
    let mixed = ["--seconds", "1.1", "--verb", "hit:9,set:1", "--meta"];
    for (words, alone) in [
        (&["--seconds", "1.1"][..], Some("hit 16×1, text, verified")),
        (&mixed, Some("90 % hit, 10 % set 16×1, meta, parsed")),
        (&["--seconds", "0.5"], None),
        (&["--seconds", "1.1", "--rate", "100"], None),
    ] {
        let output = said(&load(server.address(), &[words, &files].concat()));
        let run = Run::read_json(Path::new(&json)).unwrap_or_else(|_| panic!("{output}"));
        let ceilings: Vec<&str> = run.ceilings.iter().map(|ceiling| ceiling.load.as_str()).collect();
        assert_eq!(ceilings, alone.as_slice(), "{output}");
        assert!(run.ceilings.iter().all(|ceiling| ceiling.per_s > 0.0), "{output}");
        let line = alone.map(|load| format!(" requests/s, from a null server: {load}\n"));
        assert_eq!(output.contains("generator alone "), line.is_some(), "{output}");
        assert!(line.is_none_or(|line| output.contains(&line)), "{output}");
    }
}

#[test]
fn a_load_ends_after_so_many_requests_over_all_its_threads() {
    ends_after_requests("requests", &[&[], &["--rate", "3000"], &["--warm-up", "0.2"]]);
}

#[test]
#[ignore = "time: a warm-up at a rate ends the load if it comes too late"]
fn a_load_at_a_rate_ends_after_so_many_requests_beside_its_warm_up() {
    ends_after_requests("warm-requests", &[&["--rate", "3000", "--warm-up", "0.2"]]);
}

fn ends_after_requests(name: &str, paces: &[&[&str]]) {
    let folder = Folder::new(name);
    let json = folder.at("out.json");
    let server = Server::start_program(&Program::Larder, &["-t", "2"]).unwrap();
    let cores = thread::available_parallelism().unwrap().get();
    let threads = cores.min(2).to_string();
    let what =
        ["--verb", "hit", "--keys", "100", "--pipeline", "7", "--requests", "1000", "--threads", &threads];
    for &pace in paces {
        let files = ["--flush-target", "--force", "--json", &json];
        let output = load(server.address(), &[&what[..], pace, &files].concat());
        let run = Run::read_json(Path::new(&json)).unwrap_or_else(|_| panic!("{}", said(&output)));
        // The server also counted the requests of the warm-up, which were sent: a check compares the counts
        // of both sides.
        assert!(run.failed_at_any_time().next().is_none(), "{}", said(&output));
        let all = figures(&run);
        assert_eq!((all["requests"], all["hits"]), (1001.0, 1001.0), "{pace:?}: {}", said(&output));
        let placed = format!("generator         {threads} thread(s): core ");
        assert!(said(&output).contains(&placed), "{}", said(&output));
        if cores > 1 {
            assert_eq!(said(&output).matches(" with 8 connection(s)").count(), 2, "{}", said(&output));
        }
    }
    let many = (cores + 1).to_string();
    let output = load(server.address(), &["--threads", &many, "--flush-target"]);
    assert!(said(&output).contains("threads take a core each"), "{}", said(&output));
    if cores > 1 {
        let output = load(server.address(), &["--threads", "2", "--connections", "1", "--flush-target"]);
        assert!(said(&output).contains("2 threads take a connection each"), "{}", said(&output));
    }
}

#[test]
fn a_load_of_requests_ends_with_its_seconds_too() {
    let server = serve(Model::default());
    let few =
        ["--verb", "set", "--keys", "10", "--flush-target", "--requests", "1000000000", "--seconds", "0.2"];
    let output = load(server, &few);
    assert!(output.status.success(), "{}", said(&output));
    let said = said(&output);
    let (before, after) = said.split_once(" requests in ").unwrap();
    let requests: u64 = before.rsplit(' ').next().unwrap().parse().unwrap();
    let seconds: f64 = after.split(' ').next().unwrap().parse().unwrap();
    // The last replies may be late.
    assert!(requests < 1_000_000_000 && seconds >= 0.19, "{said}");
}

#[test]
fn a_load_of_more_than_two_minutes_says_so_before_it_begins() {
    let server = serve(Model::default());
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(["lab", "load", "--verb", "miss", "--seconds", "90", "--warm-up", "31", "--target"]);
    command.arg(format!("a=memcached://{server}")).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut load = command.spawn().unwrap();
    let mut first = String::new();
    let read = BufReader::new(load.stderr.take().unwrap()).read_line(&mut first);
    load.kill().unwrap();
    load.wait().unwrap();
    assert_eq!((read.unwrap(), first.as_str()), (first.len(), "warm-up and load take about 3 minutes\n"));
}
