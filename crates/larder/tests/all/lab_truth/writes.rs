//! Servers that acknowledge writes without storing them as they should.

use std::net::SocketAddr;

use larder_testkit::folder::Folder;
use larder_testkit::model_cache::{Model, Writes, serve};

use super::loads::load;
use super::{lab, refused, said};

fn that(writes: Writes) -> SocketAddr {
    serve(Model { writes, ..Model::default() })
}

const FEW: [&str; 6] = ["--verb", "set", "--keys", "100", "--requests", "2000"];

/// Options of experiments that only write: the first sends a request when the last one is answered, the
/// second sends at a rate.
const CLOSED: [&str; 3] = ["servers", "--load", "set"];
const OPEN: [&str; 5] = ["latency", "--mix", "set", "--percent", "10"];

/// Checks that an experiment that only writes has no result on a server that treats writes by `writes`, and
/// that it gives this reason.
fn experiment_refused(experiment: &[&str], writes: Writes, why: &str) {
    let folder = Folder::new(&format!("{}-{writes:?}", experiment[0]));
    let target = format!("a=memcached://{}", that(writes));
    let few = ["--quick", "--rounds", "1", "--no-larder", "--keys", "100", "--visit-ms", "50"];
    let few = [&few[..], &["--flush-target", "--target", &target]].concat();
    refused(&lab(&[experiment, &few].concat(), &folder).output().unwrap(), 1, why);
}

const NOTHING: &str = "what was written can be read (a: 0 of the";
const STALE: &str = "which is no last write of anybody: stale";

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_server_that_stores_nothing_fails_loads_that_only_write() {
    let why = "result not valid: what was written can be read (a: 0 of the";
    refused(&load(that(Writes::Dropped), &FEW).output().unwrap(), 1, why);
    let output = load(that(Writes::Stored), &FEW).output().unwrap();
    assert!(
        output.status.success() && said(&output).contains(" values, 0 keys not there"),
        "{}",
        said(&output)
    );

    experiment_refused(&CLOSED, Writes::Dropped, NOTHING);
    // A trace of writes only is refused, too.
    let folder = Folder::new("dropped");
    let file = folder.join("trace");
    let line = |key: u32| format!("{key},key{key},6,100,1,set,0\n");
    std::fs::write(&file, (0..100).map(line).collect::<String>()).unwrap();
    let trace = ["--trace", file.to_str().unwrap()];
    refused(&load(that(Writes::Dropped), &trace).output().unwrap(), 1, NOTHING);
    let one_key = serve(Model { forgetful: true, ..Model::default() });
    refused(&load(one_key, &trace).output().unwrap(), 1, "every reply was the right one");
    assert!(load(that(Writes::Stored), &trace).output().unwrap().status.success());
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_server_that_keeps_old_values_fails_loads_that_only_write() {
    refused(&load(that(Writes::OnlyNew), &FEW).output().unwrap(), 1, STALE);
    experiment_refused(&CLOSED, Writes::OnlyNew, STALE);
}

#[test]
#[ignore = "time: an experiment asks at a rate, and ends if it comes too late"]
fn a_server_that_stores_nothing_or_keeps_old_values_fails_writes_at_a_rate() {
    experiment_refused(&OPEN, Writes::Dropped, NOTHING);
    experiment_refused(&OPEN, Writes::OnlyNew, STALE);
}
