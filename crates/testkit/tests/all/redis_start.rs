//! Starts with the options of Redis's users: its own port, which on many machines is Redis's, and a password.

use larder_testkit::folder::Folder;
use larder_testkit::process::{Program, Server, larder};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};

/// An address of this machine that no other process's tests listen on.
fn here() -> String {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    format!("127.{}.{middle}.{low}", 64 + high % 64)
}

#[test]
fn a_default_port_that_is_taken_is_an_error_that_says_what_to_do() {
    let here = &here()[..];
    // If another program listens on this port of all addresses, the port is taken as well.
    let taken = TcpListener::bind((here, 6379));
    assert!(taken.as_ref().err().is_none_or(|error| error.kind() == ErrorKind::AddrInUse), "{taken:?}");
    let start = |options: &[&str]| {
        let mut command = Command::new(larder());
        command.args(["serve", "-l", here, "-p", "0", "--http-port", "0"]).args(options);
        command.stdin(Stdio::null()).output().expect("it runs")
    };
    let output = start(&[]);
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains(&format!("{here}:6379")) && said.contains("--redis-port 0"), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    // The same for a port that an option names.
    let output = start(&["--redis-port", "6379"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("choose another port with --redis-port"), "{said}");
}

#[test]
fn a_password_from_a_file_is_asked_for_and_in_no_list_of_processes() {
    let folder = Folder::new("requirepass");
    let name = folder.write("password", "open sesame\n");
    let server =
        Server::start_program(&Program::LarderResp, &["--requirepass-file", &name]).expect("a server");
    let line = std::fs::read(format!("/proc/{}/cmdline", server.id())).expect("it runs");
    assert!(!line.windows(4).any(|bytes| bytes == b"open"), "{}", line.escape_ascii());
    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    let mut says = |sent: &str, wanted: &str| {
        stream.write_all(sent.as_bytes()).expect("sent");
        let mut reply = vec![0; wanted.len()];
        stream.read_exact(&mut reply).expect("a reply");
        assert_eq!(String::from_utf8_lossy(&reply), wanted);
    };
    says("GET a\r\n", "-NOAUTH Authentication required.\r\n");
    says("AUTH open\r\n", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    says("AUTH \"open sesame\"\r\n", "+OK\r\n");
    says("GET a\r\n", "$-1\r\n");
}

/// Passwords that are right after the start are right after ACL LOAD, which reads the file again and ignores options.
#[test]
fn a_line_for_the_default_user_in_a_file_has_its_passwords_and_the_option_has_none() {
    const WRONG: &str = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let folder = Folder::new("at-start");
    let password = folder.write("password", "old");
    for (line, right, wrong) in
        [("user default on >new ~* &* +@all", "new", "old"), ("user app on >app", "old", "new")]
    {
        let rules = folder.write("rules", line);
        let options = ["--aclfile", &rules, "--requirepass-file", &password];
        let server = Server::start_program(&Program::LarderResp, &options).expect("a server");
        for loads in [true, false] {
            let mut stream = server.connect().expect("it listens");
            let mut says = |sent: &str, wanted: &str| {
                stream.write_all(sent.as_bytes()).expect("sent");
                let mut reply = vec![0; wanted.len()];
                stream.read_exact(&mut reply).expect("a reply");
                assert_eq!(String::from_utf8_lossy(&reply), wanted, "{line}: {sent}");
            };
            says(&format!("AUTH {wrong}\r\n"), WRONG);
            says(&format!("AUTH {right}\r\n"), "+OK\r\n");
            if loads {
                says("ACL LOAD\r\n", "+OK\r\n");
            }
        }
    }
}

/// A thread of its own reads and writes the file, and the client may have ended its sending side (`nc -N`).
#[test]
fn rules_are_loaded_and_saved_for_a_client_that_sends_no_more() {
    let folder = Folder::new("rules-of-the-last");
    let rules = folder.write("rules", "user app on >app\n");
    let server = Server::start_program(&Program::LarderResp, &["--aclfile", &rules]).expect("a server");
    folder.write("rules", "user app on >app\nuser bo on >bo\n");
    let ask = |sent: &str| {
        let mut stream = server.connect().expect("it listens");
        stream.write_all(sent.as_bytes()).expect("sent");
        stream.shutdown(Shutdown::Write).expect("it is open");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("a reply, and the end");
        reply
    };
    assert_eq!(ask("ACL LOAD\r\n"), "+OK\r\n");
    assert_eq!(ask("AUTH bo bo\r\n"), "+OK\r\n");
    assert_eq!(ask("ACL SETUSER cy on\r\n"), "+OK\r\n");
    assert_eq!(ask("ACL SAVE\r\n"), "+OK\r\n");
    let saved = std::fs::read_to_string(&rules).expect("it was written");
    assert!(saved.contains("user cy on"), "{saved}");
}
