//! Servers that acknowledge writes and do something else.

use std::net::SocketAddr;

use larder_testkit::model_cache::{Model, Writes, serve};

use super::loads::load;
use super::{folder, lab, refused, said};

fn that(writes: Writes) -> SocketAddr {
    serve(Model { writes, ..Model::default() })
}

const FEW: [&str; 6] = ["--verb", "set", "--keys", "100", "--seconds", "0.1"];

#[test]
fn a_server_that_stores_nothing_fails_loads_that_only_write() {
    let why = "result not valid: what was written can be read (a: 0 of the";
    refused(&load(that(Writes::Dropped), &FEW).output().unwrap(), why);
    let output = load(that(Writes::Stored), &FEW).output().unwrap();
    assert!(
        output.status.success() && said(&output).contains(" values, 0 keys not there"),
        "{}",
        said(&output)
    );

    let folder = folder("dropped");
    let target = format!("a=memcached://{}", that(Writes::Dropped));
    let few = ["--quick", "--rounds", "1", "--no-larder", "--keys", "100", "--visit-ms", "50"];
    let few = [&few[..], &["--flush-target", "--target", &target]].concat();
    for experiment in [&["servers", "--load", "set"][..], &["latency", "--mix", "set", "--percent", "10"]] {
        let output = lab(&[experiment, &few].concat(), &folder).output().unwrap();
        refused(&output, "what was written can be read (a: 0 of the");
    }
    // A trace that only writes, too.
    let file = folder.join("trace");
    let line = |key: u32| format!("{key},key{key},6,100,1,set,0\n");
    std::fs::write(&file, (0..100).map(line).collect::<String>()).unwrap();
    let trace = ["--trace", file.to_str().unwrap()];
    refused(
        &load(that(Writes::Dropped), &trace).output().unwrap(),
        "what was written can be read (a: 0 of the",
    );
    let one_key = serve(Model { forgetful: true, ..Model::default() });
    refused(&load(one_key, &trace).output().unwrap(), "every reply was the right one");
    assert!(load(that(Writes::Stored), &trace).output().unwrap().status.success());
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_server_that_keeps_old_values_fails_loads_that_only_write() {
    let why = "which is no last write of anybody: stale";
    refused(&load(that(Writes::OnlyNew), &FEW).output().unwrap(), why);
    let folder = folder("old");
    let target = format!("a=memcached://{}", that(Writes::OnlyNew));
    let few = ["--quick", "--rounds", "1", "--no-larder", "--keys", "100", "--visit-ms", "50"];
    let few = [&few[..], &["--flush-target", "--target", &target]].concat();
    for experiment in [&["servers", "--load", "set"][..], &["latency", "--mix", "set", "--percent", "10"]] {
        refused(&lab(&[experiment, &few].concat(), &folder).output().unwrap(), why);
    }
    std::fs::remove_dir_all(folder).unwrap();
}
