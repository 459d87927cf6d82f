//! The lines of MONITOR.

use larder_testkit::local::DEBUG;
use larder_testkit::talk::{Talk, encode};

/// The lines that a client has received, without times and addresses: `[0] "GET" "a"`.
fn shown(talk: &mut Talk, client: usize) -> Vec<String> {
    let heard = talk.heard(client);
    let lines = heard.split('+').filter(|line| !line.is_empty()).map(|line| {
        let (_, rest) = line.split_once('[').expect("a database");
        let (db, rest) = rest.split_once(' ').expect("an address");
        let (_, words) = rest.split_once("] ").expect("words");
        format!("[{db}] {}", words.trim_end())
    });
    lines.collect()
}

#[test]
fn commands_are_shown_in_the_words_of_the_client_and_exec_behind_what_it_ran() {
    let mut talk = Talk::new(&DEBUG);
    assert_eq!(talk.say(0, "MONITOR"), "+OK");
    for command in ["sEt a 1", "MULTI", "GeT a", "exec", "SELECT 1", "object encoding a", "get"] {
        talk.say(1, command);
    }
    let expected = [
        "[0] \"sEt\" \"a\" \"1\"",
        "[0] \"MULTI\"",
        "[0] \"GeT\" \"a\"",
        "[0] \"exec\"",
        "[1] \"SELECT\" \"1\"",
        "[1] \"object\" \"encoding\" \"a\"",
    ];
    assert_eq!(shown(&mut talk, 0), expected);
}

#[test]
fn no_password_is_shown_and_nothing_of_an_administrator() {
    let mut talk = Talk::new(&DEBUG);
    assert_eq!(talk.say(0, "MONITOR"), "+OK");
    for command in [
        "auth secret",
        "AUTH default secret",
        "hello 2 auth default secret setname me",
        "CONFIG GET maxmemory",
        "CONFIG SET requirepass secret",
        "CLIENT LIST",
        "SLOWLOG LEN",
        "DEBUG SLEEP 0",
        "ACL LIST",
        "client id",
    ] {
        talk.say(1, command);
    }
    let expected = [
        "[0] \"auth\" \"(redacted)\"",
        "[0] \"AUTH\" \"(redacted)\" \"(redacted)\"",
        "[0] \"hello\" \"2\" \"auth\" \"(redacted)\" \"(redacted)\" \"setname\" \"me\"",
        "[0] \"client\" \"id\"",
    ];
    assert_eq!(shown(&mut talk, 0), expected);
}

/// Whatever bytes a word has, MONITOR shows it within quotes, on one line.
#[test]
fn words_of_any_bytes_are_shown_on_one_line() {
    let mut talk = Talk::new(&DEBUG);
    assert_eq!(talk.say(0, "MONITOR"), "+OK");
    for (key, expected) in [
        (&b"END\r\n+OK\r\nset x 0 0 1\r\ny"[..], r"END\r\n+OK\r\nset x 0 0 1\r\ny"),
        (b"\" \"other", r#"\" \"other"#),
        (b"back\\", r"back\\"),
        (b"nul\0del\x7fhigh\xff", r"nul\x00del\x7fhigh\xff"),
        (b"\x1b[2J", r"\x1b[2J"),
    ] {
        talk.send(1, &encode(&[b"GET", key]));
        let heard = talk.heard(0);
        let (_, words) = heard.split_once("] ").expect("an address");
        assert_eq!(words, format!("\"GET\" \"{expected}\""));
    }
}
