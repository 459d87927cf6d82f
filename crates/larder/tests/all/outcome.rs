//! How a run of the program ended.

use std::process::Output;

/// What it printed, and what it complained of.
pub fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}", text(&output.stdout), text(&output.stderr))
}

/// It ended with `code` of the table of `larder_lab::exit`, and said why.
pub fn refused(output: &Output, code: u8, why: &str) {
    let said = said(output);
    assert!(said.contains(why) && !said.contains("panicked"), "{why:?} is not in {said}");
    assert_eq!(output.status.code(), Some(code.into()), "{said}");
}
