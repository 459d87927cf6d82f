//! Cores of a server or of the generator on which other processes run, too.

use std::process::{Command, Output, Stdio};

use larder_lab::peers::{Kind, Server, Spec};
use larder_testkit::folder::Folder;
use larder_testkit::stand_in::Burners;

use super::{alone, lab, refused, said, written};

/// Options for a short visit.
const FEW: [&str; 15] = [
    "servers",
    "--quick",
    "--rounds",
    "1",
    "--load",
    "hit",
    "--connections",
    "4",
    "--pipeline",
    "8",
    "--keys",
    "100",
    "--visit-ms",
    "50",
    "--memory-mb",
];

/// Cores that this process may use: servers get the first, and the generator gets the last.
pub fn cores() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        first.parse::<usize>().unwrap()..=last.parse().unwrap()
    };
    list.split(',').flat_map(range).collect()
}

#[test]
#[ignore = "time: judges how long threads wait for a core"]
fn a_server_or_a_generator_whose_core_others_have_is_no_result() {
    let _alone = alone();
    let folder = Folder::new("starved");
    let cores = cores();
    for core in [cores.first(), cores.last()] {
        let burners = Burners::on(*core.unwrap(), 1);
        let output = lab(&[&FEW[..], &["64"]].concat(), &folder).output().unwrap();
        refused(&output, 1, "result not valid: threads got their cores");
        let run = written(&folder, &output);
        assert!(run.failed().any(|check| check.claim == "threads got their cores"), "{}", said(&output));
        std::fs::remove_file(folder.join("out.json")).unwrap();
        // If waiting is allowed there are results, and the run's settings say so.
        let output = lab(&[&FEW[..], &["64", "--wait-max", "100"]].concat(), &folder).output().unwrap();
        let run = written(&folder, &output);
        let check = run.checks.iter().find(|check| check.claim == "threads got their cores").unwrap();
        assert!(check.passed && run.settings["waits for a core, % at most"] == "100", "{}", said(&output));
        drop(burners);
        std::fs::remove_file(folder.join("out.json")).unwrap();
    }
}

#[test]
#[ignore = "time: judges how long threads wait for a core"]
fn of_two_labs_at_once_one_at_least_has_no_result() {
    let _alone = alone();
    let folders = [Folder::new("one-of-two"), Folder::new("two-of-two")];
    let labs = folders.each_ref().map(|folder| {
        let mut words = [&FEW[..], &["64"]].concat();
        for (name, value) in [("--rounds", "6"), ("--visit-ms", "500")] {
            let at = words.iter().position(|word| *word == name).unwrap();
            words[at + 1] = value;
        }
        let mut command = lab(&words, folder);
        // Both labs run long enough for their visits to overlap.
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    let outputs = labs.map(|lab| lab.wait_with_output().unwrap());
    let is_refused = |output: &Output| said(output).contains("result not valid: threads got their cores");
    let all: Vec<String> = outputs.iter().map(said).collect();
    assert!(outputs.iter().any(is_refused), "{}", all.join("\n"));
}

#[test]
#[ignore = "time: judges how long threads wait for a core"]
fn a_load_on_a_server_whose_core_others_have_is_no_result() {
    let _alone = alone();
    let core = *cores().first().unwrap();
    let program = Some(env!("CARGO_BIN_EXE_larder").into());
    let spec = Spec { kind: Kind::Larder, program, memory_mb: 64, threads: 1, core: Some(core), null: None };
    let server = Server::start(&spec).unwrap();
    let _burners = Burners::on(core, 2);
    let target = format!("a=memcached://{}", server.control.address);
    let load = |words: &[&str]| {
        let few = ["lab", "load", "--flush-target", "--seconds", "0.5", "--target", &target];
        Command::new(env!("CARGO_BIN_EXE_larder")).args(few).args(words).output().unwrap()
    };
    for words in [&["--verb", "set", "--keys", "100"][..], &["--command", "get {key}"]] {
        let output = load(words);
        refused(&output, 1, "result not valid: threads got their cores (a: the server waited for its core ");
        let said = said(&output);
        // If the generator has to wait for its core, the server may hardly have to.
        let share = |who: &str| {
            let (_, rest) = said.split_once(who).unwrap();
            rest.split_once(" %").unwrap().0.parse::<f64>().unwrap()
        };
        assert!(share("waited for its core ") > 5.0 || share("the generator ") > 5.0, "{said}");
        let output = load(&[words, &["--wait-max", "100"]].concat());
        assert!(output.status.success(), "{}", super::said(&output));
    }
}
