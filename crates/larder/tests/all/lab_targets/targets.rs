//! What the tests of `larder lab load` on a target share: they run the program, and read what it wrote.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};

use larder_lab::results::Run;

use crate::outcome::said;

/// Runs the lab; the machine may be busy.
pub fn lab(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_larder"))
        .args(["lab"])
        .args(words)
        .args(["--wait-max", "100"])
        .output()
        .unwrap()
}

pub fn memcached(address: SocketAddr) -> String {
    format!("a=memcached://{address}")
}

/// Runs a load on a target that may be flushed; all checks must pass that do not depend on time. Returns the
/// values of its row, and the output.
pub fn figures(target: &str, folder: &Path, words: &[&str]) -> (BTreeMap<String, f64>, String) {
    let json = folder.join("out.json");
    let files = ["--flush-target", "--force", "--json", json.to_str().unwrap()];
    let output = lab(&[&["load", "--target", target], words, &files].concat());
    let run = Run::read_json(&json).unwrap_or_else(|_| panic!("{}", said(&output)));
    assert!(run.failed_at_any_time().next().is_none(), "{}", said(&output));
    std::fs::remove_file(json).unwrap();
    let (table, row) = (&run.tables[0], &run.tables[0].rows[0]);
    let values = table.columns.iter().zip(&row.values);
    let all =
        values.filter_map(|(column, value)| Some((column.name.clone(), value.as_ref()?.median))).collect();
    (all, said(&output))
}
