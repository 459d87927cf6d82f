//! A start on Redis's own port, which on many machines is Redis's.

use larder_testkit::process::larder;
use std::net::TcpListener;
use std::process::{Command, Stdio};

/// An address of this machine that no other test listens on.
const HERE: &str = "127.63.79.1";

#[test]
fn a_default_port_that_is_taken_is_an_error_that_says_what_to_do() {
    let _taken = TcpListener::bind((HERE, 6379)).expect("nobody else is here");
    let start = |options: &[&str]| {
        let mut command = Command::new(larder());
        command.args(["serve", "-l", HERE, "-p", "0"]).args(options);
        command.stdin(Stdio::null()).output().expect("it runs")
    };
    let output = start(&[]);
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains(&format!("{HERE}:6379")) && said.contains("--redis-port 0"), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    // Who has asked for this port has made a choice.
    let output = start(&["--redis-port", "6379"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && !said.contains("--redis-port 0"), "{said}");
}
