//! Requests that differ from those that were asked for: mixes, rates without a limit, options without effect.

use std::path::Path;

use larder_lab::results::Run;
use larder_testkit::folder::Folder;

use super::cores::cores;
use super::loads::{larder, load};
use super::{refused, said, written};

/// The only row of a load on Larder that wrote `out.json` into `folder`.
fn row(folder: &Path, words: &[&str]) -> impl Fn(&str) -> f64 + use<> {
    let (_server, address) = larder();
    let json = folder.join("out.json");
    let files = ["--flush-target", "--force", "--json", json.to_str().unwrap()];
    let output = load(address, &[words, &files].concat()).output().unwrap();
    let run: Run = written(folder, &output);
    assert!(run.failed_at_any_time().next().is_none(), "{}", said(&output));
    move |column: &str| run.tables[0].value("a", &[], column).unwrap().median
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_mix_is_what_was_asked_for_whoever_owns_its_keys() {
    let folder = Folder::new("mix");
    for keys in [&["--one-key"][..], &["--hot-key", "80"], &["--keys", "3"]] {
        for (mix, changes) in [("hit:1,set:1", "sets"), ("hit:1,incr:1", "additions")] {
            let mix = ["--verb", mix, "--connections", "16", "--requests", "20000"];
            let row = row(&folder, &[&mix[..], keys].concat());
            let share = row(changes) / row("requests");
            assert!((share - 0.5).abs() < 0.05, "{keys:?} {mix:?}: {share}");
        }
    }
    // Swaps fail now and then because other connections change their key; both sides count them as failed.
    let words =
        ["--one-key", "--verb", "cas", "--connections", "16", "--pipeline", "4", "--requests", "20000"];
    let row = row(&folder, &words);
    let (swaps, refused) = (row("swaps"), row("refused swaps"));
    assert!(swaps > 0.0 && refused > 0.0 && (swaps + refused - 10_000.0).abs() < 500.0, "{swaps} {refused}");
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn keys_in_turn_are_asked_of_by_those_who_have_some() {
    let folder = Folder::new("turns");
    for pace in [&[][..], &["--rate", "2000"]] {
        for verb in ["hit", "set", "delete", "incr", "cas"] {
            // The threads run on as many cores as there are.
            for threads in ["1", "2"].into_iter().take(cores().len()) {
                let keys = ["--sequential", "--keys", "3", "--connections", "16", "--threads", threads];
                let words = [&keys[..], &["--verb", verb, "--requests", "200"], pace].concat();
                let row = row(&folder, &words);
                assert!(row("requests") == 200.0 && row("errors") == 0.0, "{words:?}");
                // At a rate a swap may be sent before the reply that has its token.
                if verb == "cas" && pace.is_empty() {
                    assert!(row("swaps") > 1.0 && row("refused swaps") == 0.0, "{words:?}");
                }
            }
        }
    }
}

/// Values that are too short to name their version are verified, too.
#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn keys_that_are_set_and_deleted_are_verified_whatever_their_values_length() {
    let folder = Folder::new("deleted");
    for bytes in ["10", "100"] {
        let mix = ["--verb", "get:1,set:1,delete:1", "--keys", "20", "--requests", "6000"];
        let row = row(&folder, &[&mix[..], &["--value-bytes", bytes]].concat());
        assert!(row("requests") == 6_000.0 && row("errors") == 0.0, "{bytes}");
    }
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_rate_that_nobody_can_send_ends() {
    let (_server, address) = larder();
    for verb in ["hit", "set"] {
        let words =
            ["--rate", "1e300", "--seconds", "0.1", "--keys", "100", "--flush-target", "--verb", verb];
        refused(&load(address, &words).output().unwrap(), 1, "result not valid: far more is asked than");
    }
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn the_cpu_time_of_another_process_is_not_the_servers() {
    let (server, address) = larder();
    let run = |pid: u32| {
        let words = ["--verb", "set", "--keys", "100", "--seconds", "0.1", "--flush-target"];
        load(address, &[&words[..], &["--pid", &pid.to_string()]].concat()).output().unwrap()
    };
    refused(&run(std::process::id()), 64, "is not the server's process: process");
    let output = run(server.process().unwrap());
    assert!(output.status.success() && said(&output).contains("server CPU"), "{}", said(&output));
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn options_that_mean_nothing_are_refused() {
    let (_server, address) = larder();
    for words in [
        &["--preset", "ycsb-d", "--one-key"][..],
        &["--preset", "ycsb-d", "--ttl", "5"],
        &["--trace", "/nowhere", "--zipf", "1"],
        &["--trace", "/nowhere", "--no-fill"],
        &["--command", "get {key}", "--ttl", "5"],
    ] {
        let output = load(address, words).output().unwrap();
        refused(&output, 64, "are said already by --trace, ycsb-d and ycsb-e");
    }
}
