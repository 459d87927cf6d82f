//! The program's errors for command lines that it cannot carry out.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_testkit::folder::Folder;

/// Runs the program; returns its exit code and its standard error.
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
fn a_host_that_cannot_be_looked_up_is_no_error_of_usage() {
    // A label of a host name has at most 63 letters, so this name fails without a look-up in the network.
    let host = "a".repeat(64) + ".invalid:11211";
    let target = format!("a=redis://me:secret@{host}");
    for words in [
        &["doctor", "--target", &host][..],
        &["top", "--once", "--target", &host],
        &["lab", "load", "--target", &target],
        &["lab", "cas", "--quick", "--no-larder", "--target", &target],
    ] {
        let (code, said) = refused(words);
        assert!(code == Some(69) && said.contains(&host) && !said.contains("secret"), "{words:?}: {said}");
    }
}

#[test]
fn a_folder_that_is_missing_is_named() {
    // An option with a file and one with a socket, in a folder that does not exist.
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

/// The complete `larder serve` commands of a document: lines of its code blocks, and text between two `.
fn commands_of_serve(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (at, part) in text.split("```").enumerate() {
        if at % 2 == 1 {
            let lines = part.replace("\\\n", " ");
            all.extend(lines.lines().map(|line| line.trim_start_matches("$ ").to_owned()));
        } else {
            all.extend(part.split('`').skip(1).step_by(2).map(|code| code.replace('\n', " ")));
        }
    }
    all.retain(|command| command.starts_with("larder serve") && !command.contains('…'));
    all
}

#[test]
fn every_command_of_serve_in_the_documents_is_understood() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let folder = Folder::new("documents");
    let users = folder.write("users", "me:secret\n");
    let mut paths: Vec<PathBuf> = ["README.md", "SECURITY.md"].map(|name| root.join(name)).into();
    let docs = std::fs::read_dir(root.join("docs")).expect("the documents are there");
    paths.extend(docs.map(|entry| entry.expect("the documents are there").path()));
    paths.retain(|path| path.extension().is_some_and(|kind| kind == "md"));
    let mut count = 0;
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("documents are text");
        for command in commands_of_serve(&text) {
            count += 1;
            // The file of users is read as soon as the command line is parsed.
            let own = |word: &str| match word {
                "/etc/larder/users" => OsString::from(&users),
                word => OsString::from(word),
            };
            let words = command.split_whitespace().skip(2).map(own);
            if let Err(why) = larder_server::parse(words) {
                panic!("{}: {command}: {why}", path.display());
            }
        }
    }
    assert!(count >= 3, "{count} commands were found");
}

#[test]
fn commands_of_serve_are_found_in_code_and_between_marks() {
    let text = "Say `larder serve\n--help` or `larder serve -p …`:\n```\n$ larder serve -p 0 \\\n  -m 64\nlarder top\n\
                ```\nlarder serve -x\n";
    assert_eq!(commands_of_serve(text), ["larder serve --help", "larder serve -p 0    -m 64"]);
    assert!(larder_server::parse(["-p", "no"].map(OsString::from)).is_err());
}
