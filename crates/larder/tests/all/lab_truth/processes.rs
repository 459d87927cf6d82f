//! Processes that are not the server itself: wrappers, proxies, and what they leave behind.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use larder_lab::Address;
use larder_lab::peers::{Kind, Server, Spec};
use larder_testkit::PATIENCE;
use larder_testkit::folder::Folder;
use larder_testkit::stand_in::{proxy, script, unchanged};

use super::{alone, lab, refused, said, written};
use crate::lab_peers::processes;

/// Writes a wrapper called `memcached` that starts this Larder as its child, and waits for it. The command
/// line of both contains the folder.
fn wrapped_memcached(folder: &Path) {
    let larder = folder.join("larder");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_larder"), &larder).unwrap();
    let serve = format!("{} serve --redis-port 0 --http-port 0 \"$@\"\ntrue", larder.display());
    script(folder, "memcached", &serve);
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Options for a visit or two, on any machine.
const FEW: [&str; 14] = [
    "--quick",
    "--rounds",
    "1",
    "--load",
    "hit",
    "--connections",
    "2",
    "--keys",
    "100",
    "--visit-ms",
    "20",
    "--no-larder",
    "--wait-max",
    "100",
];

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_wrapper_beside_its_server_has_no_figures_and_ends_with_it() {
    let folder = Folder::new("wrapper");
    wrapped_memcached(&folder);
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let peer = ["--peer", "memcached", "--memory-mb", "311"];
    let output = lab(&[&["servers"], &FEW[..], &peer].concat(), &folder).env("PATH", &path).output().unwrap();
    let run = written(&folder, &output);
    let figure = |column| run.tables[0].value("memcached", &["hit", "2", "1", "32"], column);
    assert!(figure("throughput").is_some() && figure("server CPU").is_none(), "{}", said(&output));
    assert!(said(&output).contains("no CPU time or memory of it is shown: process"), "{}", said(&output));
    let mark = folder.display().to_string();
    wait_until("nothing is left behind", || processes(&mark).is_empty());
    // An experiment that measures only memory has no result.
    let few = ["memory", "--quick", "--items", "1000", "--no-larder", "--peer", "memcached"];
    refused(
        &lab(&few, &folder).env("PATH", &path).output().unwrap(),
        69,
        "its process cannot be seen from here",
    );
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_process_id_that_is_not_the_listeners_has_no_figures() {
    let folder = Folder::new("reported");
    let program = Some(env!("CARGO_BIN_EXE_larder").into());
    let spec = Spec { kind: Kind::Larder, program, memory_mb: 64, threads: 1, core: None, null: None };
    let server = Server::start(&spec).unwrap();
    let Address::Tcp(at) = server.control.address else { panic!("a TCP server") };
    // As with a container's forwarded port, the process that listens is not the one that reports its figures.
    let through = proxy(at, unchanged(), unchanged());
    let run = |address: SocketAddr| {
        let target = format!("a=memcached://{address}");
        let output =
            lab(&[&["servers"], &FEW[..], &["--flush-target", "--target", &target]].concat(), &folder)
                .output()
                .unwrap();
        let run = written(&folder, &output);
        std::fs::remove_file(folder.join("out.json")).unwrap();
        let cpu = run.tables[0].value("a", &["hit", "2", "1", "32"], "server CPU").is_some();
        (cpu, said(&output).contains("it reports process"))
    };
    assert_eq!((run(at), run(through)), ((true, false), (false, true)));
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_lab_that_is_killed_takes_wrappers_and_their_servers_with_it_without_setpriv() {
    let _alone = alone();
    for (signal, memory_mb) in [("INT", "321"), ("TERM", "322"), ("KILL", "323")] {
        let folder = Folder::new(&format!("killed-{signal}"));
        wrapped_memcached(&folder);
        let mark = folder.display().to_string();
        let lab = lab(&["cas", "--no-larder", "--peer", "memcached", "--memory-mb", memory_mb], &folder);
        // A script that starts a program in the background has it ignore this signal; `env` restores the
        // default.
        let mut child = Command::new("env")
            .arg("--default-signal=INT")
            .arg(format!("PATH={}", folder.display()))
            .arg(lab.get_program())
            .args(lab.get_args())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_until("wrapper and server run", || processes(&mark).iter().any(|line| line.contains(" serve ")));
        let kill = ["kill", &format!("-{signal}"), &child.id().to_string()].join(" ");
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        assert!(!child.wait().unwrap().success(), "{signal}");
        wait_until(signal, || processes(&mark).is_empty());
    }
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_peer_that_dies_at_the_start_is_told_with_its_own_last_lines() {
    let folder = Folder::new("last-words");
    script(&folder, "memcached", "echo one\necho two >&2\necho the disk is on fire >&2\nexit 3");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let few = ["memory", "--quick", "--no-larder", "--peer", "memcached"];
    let output = lab(&few, &folder).env("PATH", &path).output().unwrap();
    refused(&output, 69, "ended at once (exit status: 3)");
    refused(&output, 69, "it said: the disk is on fire");
}

#[test]
#[ignore = "time: the lab measures, and gives up after some seconds"]
fn a_peer_whose_settings_are_not_what_was_asked_for_is_refused() {
    let folder = Folder::new("settings");
    let larder = env!("CARGO_BIN_EXE_larder");
    script(&folder, "memcached", &format!("exec {larder} serve --redis-port 0 --http-port 0 \"$@\" -t 3"));
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let few = ["memory", "--quick", "--no-larder", "--peer", "memcached"];
    let output = lab(&few, &folder).env("PATH", &path).output().unwrap();
    refused(&output, 69, "memcached has num_threads at \"3\" and was asked for \"1\"");
}
