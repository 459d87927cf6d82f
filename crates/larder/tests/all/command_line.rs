//! What the program says to a command line that it cannot carry out.

use std::process::Command;

/// Exit code, and what is said where errors are.
fn refused(words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_larder")).args(words).output().expect("it runs");
    assert!(output.stdout.is_empty(), "{words:?}");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn an_unknown_command_is_called_unknown() {
    let (code, said) = refused(&["frob\u{1b}[31m"]);
    assert_eq!(code, Some(64));
    assert!(
        said.starts_with("larder: unknown command \"frob\\u{1b}[31m\"\nusage: larder <command>"),
        "{said}"
    );
    let (code, said) = refused(&[]);
    assert!(code == Some(64) && said.starts_with("usage: larder <command>"), "{said}");
}

#[test]
fn what_is_no_address_is_told_what_is_expected_once() {
    for command in ["doctor", "top"] {
        let (code, said) = refused(&[command, "--target", "nowhere"]);
        assert_eq!(code, Some(64));
        let expected =
            format!("larder {command}: nowhere: expected HOST:PORT, such as 127.0.0.1:11211 or [::1]:6379\n");
        assert_eq!(said, expected);
        let (_, said) = refused(&[command, "--target", "redis://:secret@nowhere"]);
        assert!(said.contains("expected HOST:PORT") && !said.contains("secret"), "{said}");
    }
}

#[test]
fn a_folder_that_is_missing_is_named() {
    // A file, and a place to listen at, which the system refuses.
    for (option, expected) in [("-P", 74), ("-s", 71)] {
        for detached in [&[][..], &["-d"]] {
            let closed =
                ["serve", "-p", "0", "--redis-port", "0", "--http-port", "0", option, "/nowhere/at/all"];
            let (code, said) = refused(&[&closed[..], detached].concat());
            assert!(said.contains("the folder /nowhere/at does not exist"), "{option}: {said}");
            assert_eq!(code, Some(expected), "{option} {detached:?}");
        }
    }
}
