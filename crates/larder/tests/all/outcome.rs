//! How a run of the program ended, and what it printed.

use std::io::Write;
use std::process::{Command, Output};

use larder_lab::results::{Run, Table};
use larder_testkit::folder::Folder;

/// What the program printed to both of its outputs.
pub fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}", text(&output.stdout), text(&output.stderr))
}

/// Checks that the program ended with `code`, one of `larder_lab::exit`, and printed the reason.
pub fn refused(output: &Output, code: u8, why: &str) {
    let said = said(output);
    assert!(said.contains(why) && !said.contains("panicked"), "{why:?} is not in {said}");
    assert_eq!(output.status.code(), Some(code.into()), "{said}");
}

/// Runs `larder lab` on a machine that may be busy; all its checks must pass, except those that depend on
/// time.
pub fn passing(arguments: &[&str]) -> Run {
    let folder = Folder::new("lab");
    let json = folder.join("out.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    let output = command.arg("lab").args(arguments).args(["--wait-max", "100", "--json"]).arg(&json).output();
    let output = output.unwrap();
    let run = Run::read_json(&json).unwrap_or_else(|_| panic!("{}", said(&output)));
    assert!(run.failed_at_any_time().next().is_none(), "{}", said(&output));
    assert_eq!(output.status.success(), run.failed().next().is_none(), "{}", said(&output));
    run
}

/// A table of a run.
pub fn table<'r>(run: &'r Run, id: &str) -> &'r Table {
    run.tables.iter().find(|table| table.id == id).unwrap_or_else(|| panic!("there is no table {id}"))
}

/// Returns whether the run had a tracer that counts system calls. If not, it prints what `test` cannot check.
/// It prints past the test harness, which hides the output of tests that pass.
pub fn had_tracer(run: &Run, test: &str) -> bool {
    let tracer = run.settings.get("system calls").map_or("not counted", String::as_str);
    let had = !tracer.starts_with("not counted");
    if !had {
        // A closed standard error does not fail the test.
        let _ = writeln!(std::io::stderr(), "{test}: NOT CHECKED: system calls of a request: {tracer}");
    }
    had
}
