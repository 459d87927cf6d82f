//! Scripts and libraries of any bytes, within their limits: every one ends with a reply, and leaves a server that works.
//!
//! | an input that begins with | is |
//! |---|---|
//! | `#!`, and names a library in its first line | loaded, its functions `f` and `g` called, dumped and restored |
//! | `#!` | run as it is |
//! | `~` | run without that, and goes on in later turns if it works for long and has written nothing |
//! | anything else | run behind a write, so that its time is over after some looks at it |
//!
//! Others are served between turns. What takes many of them is killed, or its client goes.
#![no_main]

use larder_testkit::local::{Local, LocalConnection};
use larder_testkit::talk::encode;
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// It holds its key, so that its time is over after some looks at it.
const HOLDS: &[u8] = b"redis.call('SET', KEYS[1], ARGV[1]) ";
/// Milliseconds that pass with each look, and that a script may take.
const LOOK_MS: u64 = 1;
const LIMIT_MS: &[u8] = b"30";
/// What a script is said to have worked from one look at it to the next, of 200 instructions.
const PACE: Duration = Duration::from_micros(2);
/// Turns behind which a script is ended, and in which it then has ended.
const TURNS: usize = 6;
const TURNS_MAX: usize = 10;

struct Server {
    local: Local,
    connection: LocalConnection,
}

thread_local! {
    static SERVER: RefCell<Server> = RefCell::new(Server::new());
}

impl Server {
    fn new() -> Server {
        let options = ["-m", "16", "--enable-debug-command", "no"].map(str::to_owned);
        let mut local = Local::new(&options).expect("a server");
        local.set_script_pace(PACE);
        let connection = local.charged_connection();
        local.look_us().store(LOOK_MS * 1000, Relaxed);
        let mut server = Server { local, connection };
        server.ask(&[b"CONFIG", b"SET", b"busy-reply-threshold", LIMIT_MS]);
        server
    }

    /// What it replies, however many turns that takes.
    fn ask(&mut self, words: &[&[u8]]) -> Vec<u8> {
        self.local.exchange(&mut self.connection, &encode(words));
        let reply = self.connection.sent().to_vec();
        self.connection.forget();
        reply
    }

    /// Carries it out turn by turn. Behind some turns it is ended by `kill`, or goes with its client if there is none.
    fn run(&mut self, words: &[&[u8]], kill: Option<&[u8]>) {
        let mut client = self.local.charged_connection().by_turns();
        self.local.exchange(&mut client, &encode(words));
        let mut turns = 0;
        while client.goes_on() {
            turns += 1;
            assert!(turns < TURNS_MAX, "it was ended, and goes on");
            assert!(client.sent().is_empty(), "a reply before the end");
            assert_eq!(self.ask(&[b"PING"]), b"+PONG\r\n");
            if turns >= TURNS {
                let Some(kill) = kill else { return self.local.ended(client) };
                let told = self.ask(&[kill, b"KILL"]);
                let fine = told == b"+OK\r\n" || told.starts_with(b"-NOTBUSY ");
                assert!(fine, "{}", told.escape_ascii());
            }
            self.local.go_on(&mut client);
        }
        assert!(!client.sent().is_empty(), "no reply");
        self.local.ended(client);
    }

    fn library(&mut self, text: &[u8], kill: Option<&[u8]>) {
        let told = self.ask(&[b"FUNCTION", b"LOAD", b"REPLACE", text]);
        assert!(matches!(told.first(), Some(b'$' | b'-')), "{}", told.escape_ascii());
        let list = self.ask(&[b"FUNCTION", b"LIST", b"WITHCODE"]);
        if told[0] == b'-' {
            assert_eq!(list, b"*0\r\n");
            return;
        }
        for name in [b"f", b"g"] {
            self.run(&[b"FCALL", name, b"2", b"k", b"l", b"1", b"two"], kill);
            self.run(&[b"FCALL_RO", name, b"1", b"k"], kill);
        }
        let dump = self.ask(&[b"FUNCTION", b"DUMP"]);
        let from = dump.windows(2).position(|pair| pair == b"\r\n").expect("a string") + 2;
        let told = self.ask(&[b"FUNCTION", b"RESTORE", &dump[from..dump.len() - 2], b"FLUSH"]);
        assert!(matches!(told.first(), Some(b'+' | b'-')), "{}", told.escape_ascii());
        // Refused or not, it is the same library.
        assert_eq!(self.ask(&[b"FUNCTION", b"LIST", b"WITHCODE"]).len(), list.len());
    }
}

fuzz_target!(|input: &[u8]| {
    SERVER.with_borrow_mut(|server| {
        let killed = input.len().is_multiple_of(2);
        let line = input.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let eval = |script| -> [&[u8]; 7] { [b"EVAL", script, b"2", b"k", b"l", b"1", b"two"] };
        if input.starts_with(b"#!") && line.windows(5).any(|word| word == b"name=") {
            server.library(input, killed.then_some(b"FUNCTION"));
        } else if input.starts_with(b"#!") {
            server.run(&eval(input), killed.then_some(b"SCRIPT"));
        } else if let Some(script) = input.strip_prefix(b"~") {
            server.run(&eval(script), killed.then_some(b"SCRIPT"));
        } else {
            let reply = server.ask(&eval(&[HOLDS, input].concat()));
            assert!(!reply.is_empty(), "no reply");
        }
        // It may have spoken RESP3, selected another database, or emptied this one; it has not changed what others see.
        let look = server.ask(&[b"EVAL", b"return {type(redis.call), #ARGV}", b"0"]);
        assert_eq!(look, b"*2\r\n$8\r\nfunction\r\n:0\r\n");
        assert_eq!(server.ask(&[b"PING"]), b"+PONG\r\n");
        // Nothing is left of its Lua state, so that what it has not given back is found. While there is one, what only the
        // stack of scripts holds is taken for lost, for that stack is not looked at while it rests; and so are the counts of
        // references to Lua values, which are held by pointers behind their ends.
        assert_eq!(server.ask(&[b"FUNCTION", b"FLUSH"]), b"+OK\r\n");
        assert_eq!(server.ask(&[b"SCRIPT", b"FLUSH"]), b"+OK\r\n");
    });
});
