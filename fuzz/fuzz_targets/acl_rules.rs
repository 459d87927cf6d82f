//! Any words as rules of a user, in several commands one after the other: all rules of a command are applied, or none is and one
//! line says why. What ACL LIST prints of the user makes the same user again, and rules one at a time make what they make at
//! once.
//!
//! A line of the input is a command, its words are between blanks, and the byte 0x1f is a blank within a word.
#![no_main]

use larder_testkit::local::{Local, LocalConnection};
use larder_testkit::talk::encode;
use libfuzzer_sys::fuzz_target;

/// Commands of an input that are carried out.
const LINES_MAX: usize = 16;
/// A blank within a word.
const BLANK: u8 = 0x1f;

/// How refusals begin.
const REFUSALS: [&[u8]; 4] = [
    b"-ERR Error in ACL SETUSER modifier '",
    b"-ERR Unmatched parenthesis in acl selector starting at '",
    b"-ERR so many rules are not applied at once",
    b"-ERR there are as many users as there may be, or their rules hold as much",
];

/// Keys of one request, as many as are compared with prefixes at once, of seven, eight and more bytes: see [`ASKED`].
const KEYS: [&str; 5] = ["session", "session:", "session:1", "app:12345678", "a"];

/// What a user may be allowed: commands, subcommands, keys that are read and written, channels.
const ASKED: [&[&str]; 11] = [
    &["get", "k"],
    &["get", "session:"],
    &["mget", KEYS[0], KEYS[1], KEYS[2], KEYS[3], KEYS[4]],
    &["set", "a", "v"],
    &["mget", "a", "ab"],
    &["copy", "a", "b"],
    &["config", "get", "x"],
    &["publish", "c", "m"],
    &["subscribe", "a"],
    &["flushall"],
    &["eval", "return 0", "0"],
];

fuzz_target!(|input: &[u8]| {
    let mut server = Server::new();
    // First arguments are printed where they were said, and may be lost where that is read again.
    let has_first_arguments = input.contains(&b'|');
    let mut rules: Vec<Vec<u8>> = Vec::new();
    for line in input.split(|&byte| byte == b'\n').take(LINES_MAX) {
        let words: Vec<Vec<u8>> = line.split(|&byte| byte == b' ').map(word).collect();
        let before = server.user("app");
        let reply = server.set("app", &words);
        let after = server.user("app");
        if reply != b"+OK\r\n" {
            let text = String::from_utf8_lossy(&reply);
            assert!(REFUSALS.iter().any(|refusal| reply.starts_with(refusal)), "{text}");
            assert!(reply.ends_with(b"\r\n") && !reply[..reply.len() - 2].iter().any(|byte| b"\r\n".contains(byte)));
            assert_eq!(after, before);
            continue;
        }
        // What is allowed for all keys at once is allowed for each: these are compared in another way.
        if !has_first_arguments && server.may("app", &[&["mget"][..], &KEYS[..]].concat()) {
            for key in KEYS {
                assert!(server.may("app", &["mget", key]), "{key}");
            }
        }
        let rules_before = std::mem::replace(&mut rules, server.rules("app"));
        if is_short(&rules) {
            assert_eq!(server.make("copy", &rules), after);
            for words in ASKED.iter().filter(|_| !has_first_arguments) {
                assert_eq!(server.may("app", words), server.may("copy", words), "{words:?}");
            }
        }
        // Words of a selector are one.
        if !has_first_arguments && line.len() <= 1_024 && !line.contains(&b'(') && is_short(&rules_before) {
            server.make("single", &rules_before);
            for word in &words {
                assert_eq!(server.set("single", std::slice::from_ref(word)), b"+OK\r\n");
            }
            assert_eq!(server.user("single"), after);
        }
    }
});

fn word(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|&byte| if byte == BLANK { b' ' } else { byte }).collect()
}

/// So many rules are applied at once, whatever they are.
fn is_short(rules: &[Vec<u8>]) -> bool {
    rules.len() <= 1_000 && rules.iter().map(Vec::len).sum::<usize>() <= 16 << 10
}

struct Server {
    local: Local,
    client: LocalConnection,
}

impl Server {
    fn new() -> Server {
        let mut local = Local::with_debug().expect("a server");
        let client = local.resp_connection();
        Server { local, client }
    }

    fn say(&mut self, words: &[&[u8]]) -> Vec<u8> {
        self.local.exchange(&mut self.client, &encode(words));
        let reply = self.client.sent().to_vec();
        self.client.forget();
        reply
    }

    fn set(&mut self, user: &str, rules: &[Vec<u8>]) -> Vec<u8> {
        let mut words = vec![&b"ACL"[..], b"SETUSER", user.as_bytes()];
        words.extend(rules.iter().map(Vec::as_slice));
        self.say(&words)
    }

    /// Makes a user anew that has these rules; what is told of it then.
    fn make(&mut self, user: &str, rules: &[Vec<u8>]) -> Vec<u8> {
        let all = [&[b"reset".to_vec()][..], rules].concat();
        assert_eq!(self.set(user, &all), b"+OK\r\n");
        self.user(user)
    }

    /// What is told of a user, beside its name.
    fn user(&mut self, user: &str) -> Vec<u8> {
        self.say(&[b"ACL", b"GETUSER", user.as_bytes()])
    }

    /// The rules of a user as ACL LIST prints them.
    fn rules(&mut self, user: &str) -> Vec<Vec<u8>> {
        let reply = self.say(&[b"ACL", b"LIST"]);
        let start = format!("user {user} ");
        let rules = bulks(&reply).into_iter().find_map(|line| line.strip_prefix(start.as_bytes()));
        rules.expect("a line").split(|&byte| byte == b' ').map(<[u8]>::to_vec).collect()
    }

    /// Whether a user may do this.
    fn may(&mut self, user: &str, asked: &[&str]) -> bool {
        let mut words = vec![&b"ACL"[..], b"DRYRUN", user.as_bytes()];
        words.extend(asked.iter().map(|word| word.as_bytes()));
        self.say(&words) == b"+OK\r\n"
    }
}

/// The bulks of an array.
fn bulks(reply: &[u8]) -> Vec<&[u8]> {
    let (_, mut rest) = line(reply);
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (head, behind) = line(rest);
        let bytes: usize = std::str::from_utf8(&head[1..]).expect("digits").parse().expect("a length");
        all.push(&behind[..bytes]);
        rest = &behind[bytes + 2..];
    }
    all
}

/// A line without its end, and what is behind it.
fn line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n").expect("a line");
    (&bytes[..end], &bytes[end + 2..])
}
