//! How a run of the program ended.

use std::io::Write;
use std::process::Output;

use larder_lab::results::Run;

/// What the program printed on both of its outputs.
pub fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}", text(&output.stdout), text(&output.stderr))
}

/// Checks that the program ended with `code` of the table of `larder_lab::exit`, and gave the reason.
pub fn refused(output: &Output, code: u8, why: &str) {
    let said = said(output);
    assert!(said.contains(why) && !said.contains("panicked"), "{why:?} is not in {said}");
    assert_eq!(output.status.code(), Some(code.into()), "{said}");
}

/// Whether the run had a tracer that counts system calls. Where it had none, `test` prints what it cannot check; past the
/// harness, which keeps what a test prints that passes.
pub fn had_tracer(run: &Run, test: &str) -> bool {
    let tracer = run.settings.get("system calls").map_or("not counted", String::as_str);
    let had = !tracer.starts_with("not counted");
    if !had {
        // The test does not fail if standard error is closed.
        let _ = writeln!(std::io::stderr(), "{test}: NOT CHECKED: system calls of a request: {tracer}");
    }
    had
}
