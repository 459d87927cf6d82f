//! Long texts of scripts and libraries: they are compiled in later turns, and others are served meanwhile.

use std::time::Duration;

use larder_commands::{Next, Pace, Session, Settings};
use larder_script::sha1_hex;

use crate::Bench;
use crate::survey::command;

/// A library that counts its calls.
const COUNTS: &str = "#!lua name=own\nlocal n = 0 \
    redis.register_function('count', function() n = n + 1 return n end)";

/// Each look at a script is a turn.
fn bench() -> Bench {
    let mut bench = Bench::of(Settings::default(), 64 << 20);
    bench.host.script_pace = Some(Pace::Look(Duration::from_millis(1)));
    bench
}

/// What some words are answered by.
pub fn said(bench: &mut Bench, words: &[&str]) -> String {
    let (reply, _) = bench.run(&mut Session::new(), &command(words), usize::MAX);
    String::from_utf8(reply).expect("text")
}

/// What a client is answered, and how many turns it has waited; others are served in each.
fn waited(bench: &mut Bench, words: &[&str]) -> (String, usize) {
    let (mut client, mut turns) = (Session::new(), 0);
    let (mut next, mut reply) = bench.turn(&mut client, &command(words));
    while reply.is_empty() {
        assert_eq!(next, Next::Yield, "{turns}");
        assert_eq!(said(bench, &["SET", "k", "v"]), "+OK\r\n");
        turns += 1;
        (next, reply) = bench.turn(&mut client, b"");
    }
    (String::from_utf8(reply).expect("text"), turns)
}

/// What goes on in later turns.
fn goes_on(bench: &mut Bench, client: &mut Session, words: &[&str]) {
    assert_eq!(bench.turn(client, &command(words)), (Next::Yield, Vec::new()));
    for _ in 0..5 {
        assert_eq!(bench.turn(client, b""), (Next::Yield, Vec::new()));
    }
}

/// A text whose part that is compiled has so many bytes.
fn padded(head: &str, text: &str, bytes: usize) -> String {
    format!("{head}{text} --{}", "x".repeat(bytes - text.len() - 3))
}

fn library(bytes: usize) -> String {
    padded("#!lua name=l", "\nredis.register_function('f', function() return 43 end)", bytes)
}

/// Half a MiB takes some tens of milliseconds, and seconds where functions lie deep in one another.
#[test]
fn a_long_text_is_compiled_in_turns_wherever_it_is_wanted() {
    let mut bench = bench();
    // One turn for each piece of 256 bytes, or of 64 behind 128 KiB, one for the end, and some for what goes on between them.
    for (bytes, turns_long) in
        [(8 << 10, 0..4), ((8 << 10) + 1, 33..60), (64 << 10, 256..400), (256 << 10, 2560..4000)]
    {
        let (script, library) = (&*padded("", "return 42", bytes), &*library(bytes));
        let digest = &*sha1_hex(script.as_bytes());
        let known = format!("$40\r\n{digest}\r\n");
        for (words, reply, is_compiled) in [
            (&["SCRIPT", "LOAD", script][..], &*known, true),
            (&["EVALSHA", digest, "0"][..], ":42\r\n", true),
            (&["EVALSHA", digest, "0"][..], ":42\r\n", false),
            (&["EVAL", script, "0"][..], ":42\r\n", false),
            (&["SCRIPT", "FLUSH"][..], "+OK\r\n", false),
            (&["EVAL", script, "0"][..], ":42\r\n", true),
            (&["EVAL", script, "0"][..], ":42\r\n", false),
            (&["FUNCTION", "LOAD", library][..], "$1\r\nl\r\n", true),
            // The worker's own state has not loaded it yet.
            (&["FCALL", "f", "0"][..], ":43\r\n", true),
            (&["FCALL", "f", "0"][..], ":43\r\n", false),
            (&["FUNCTION", "LOAD", "REPLACE", library][..], "$1\r\nl\r\n", true),
            (&["FUNCTION", "FLUSH"][..], "+OK\r\n", false),
        ] {
            let (said, turns) = waited(&mut bench, words);
            assert_eq!(said, reply, "{bytes}");
            let expected = if is_compiled { &turns_long } else { &(0..4) };
            assert!(expected.contains(&turns), "{bytes}, {}: {turns}", words[0]);
        }
    }
}

#[test]
fn what_is_wrong_with_a_long_text_is_told_as_of_a_short_one() {
    let mut bench = bench();
    let long = "\n".repeat(9000);
    for (head, words) in [
        ("", &["EVAL", "", "0"][..]),
        ("", &["SCRIPT", "LOAD", ""][..]),
        ("#!lua name=l", &["FUNCTION", "LOAD", ""][..]),
    ] {
        let [short, long] = ["\n", &*long].map(|lines| {
            let text = format!("{head}{lines}x x");
            let filled = words.iter().map(|&word| if word.is_empty() { &*text } else { word });
            let words: Vec<&str> = filled.collect();
            said(&mut bench, &words)
        });
        assert_eq!(short.replace(":2: ", ":9001: "), long);
        assert!(long.starts_with("-ERR Error compiling ") && long.contains(":9001: "), "{long}");
    }
    // Code that is compiled already is no text, however long.
    let code = format!("\u{1b}Lua{long}");
    let told = said(&mut bench, &["EVAL", &code, "0"]);
    assert!(told.starts_with("-ERR Error compiling script (new function): "), "{told}");
    assert_eq!(said(&mut bench, &["EVAL", "return 'alive'", "0"]), "$5\r\nalive\r\n");
}

/// A piece of a text is asked for by a call, which lies in those of Lua's compiler.
#[test]
fn a_long_text_that_is_too_deep_is_told_so() {
    let mut bench = bench();
    let mut evaluated = |levels: usize| {
        let (begins, ends) = ("do ".repeat(levels), "end ".repeat(levels));
        let text = format!("{begins}{}{ends}return 42", " ".repeat(9000));
        said(&mut bench, &["EVAL", &text, "0"])
    };
    assert_eq!(evaluated(180), ":42\r\n");
    // Where there is room for the compiler's own calls, and for none or one of others, too.
    for levels in 190..=204 {
        let told = evaluated(levels);
        let is_told = told.starts_with("-ERR Error compiling script (new function): ")
            && told.ends_with("chunk has too many syntax levels\r\n");
        // Lua's limit is 200; the compiler's own calls and the one for the next piece take the rest.
        assert!(if levels < 197 { told == ":42\r\n" } else { is_told }, "{levels}: {told}");
    }
}

#[test]
fn in_exec_a_long_text_is_compiled_at_once() {
    let mut bench = bench();
    let (script, mut client) = (padded("", "return 42", 64 << 10), Session::new());
    for (words, reply) in [
        (&["MULTI"][..], "+OK\r\n"),
        (&["EVAL", &*script, "0"][..], "+QUEUED\r\n"),
        (&["EXEC"][..], "*1\r\n:42\r\n"),
    ] {
        let (_, said) = bench.turn(&mut client, &command(words));
        assert_eq!(String::from_utf8_lossy(&said), reply);
    }
}

/// It is compiled in a state of its own, so that functions with variables go on meanwhile, and keep what they have.
#[test]
fn variables_stay_while_another_library_is_compiled_and_when_its_client_goes() {
    let mut bench = bench();
    assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", COUNTS]), "$3\r\nown\r\n");
    assert_eq!(said(&mut bench, &["FCALL", "count", "0"]), ":1\r\n");
    let mut client = Session::new();
    goes_on(&mut bench, &mut client, &["FUNCTION", "LOAD", &library(64 << 10)]);
    assert_eq!(said(&mut bench, &["FCALL", "count", "0"]), ":2\r\n");
    drop(client);
    assert_eq!(said(&mut bench, &["FCALL", "count", "0"]), ":3\r\n");
    assert_eq!(said(&mut bench, &["FCALL", "f", "0"]), "-ERR Function not found\r\n");
    // One that is killed leaves them, too.
    let mut client = Session::new();
    goes_on(&mut bench, &mut client, &["FUNCTION", "LOAD", &library(64 << 10)]);
    assert_eq!(said(&mut bench, &["SCRIPT", "KILL"]), "+OK\r\n");
    let (_, killed) = bench.turn(&mut client, b"");
    assert!(String::from_utf8_lossy(&killed).contains("killed by user with SCRIPT KILL"));
    assert_eq!(said(&mut bench, &["FCALL", "count", "0"]), ":4\r\n");
    assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", &library(64 << 10)]), "$1\r\nl\r\n");
    assert_eq!(said(&mut bench, &["FCALL", "f", "0"]), ":43\r\n");
    assert_eq!(said(&mut bench, &["FCALL", "count", "0"]), ":5\r\n");
}

#[test]
fn nothing_comes_of_a_text_amid_a_pause_that_began_while_it_was_compiled() {
    let writes = padded("", "return redis.call('INCR', KEYS[1])", 64 << 10);
    let library = library(64 << 10);
    for (words, reply) in
        [(&["EVAL", &*writes, "1", "n"][..], ":1\r\n"), (&["FUNCTION", "LOAD", &*library][..], "$1\r\nl\r\n")]
    {
        let mut bench = bench();
        let mut client = Session::new();
        goes_on(&mut bench, &mut client, words);
        assert_eq!(said(&mut bench, &["CLIENT", "PAUSE", "100000", "WRITE"]), "+OK\r\n");
        let mut next = Next::Yield;
        while next == Next::Yield {
            let (then, reply) = bench.turn(&mut client, b"");
            assert_eq!(reply, b"");
            next = then;
        }
        assert_eq!(next, Next::Sleep(100));
        assert_eq!(said(&mut bench, &["EXISTS", "n"]), ":0\r\n");
        assert_eq!(said(&mut bench, &["FUNCTION", "LIST"]), "*0\r\n");
        assert_eq!(said(&mut bench, &["CLIENT", "UNPAUSE"]), "+OK\r\n");
        let mut said = Vec::new();
        while said.is_empty() {
            said = bench.turn(&mut client, b"").1;
        }
        assert_eq!(String::from_utf8_lossy(&said), reply);
    }
}

/// Another library may have come in the place of the one whose text was compiled for a call.
#[test]
fn a_call_finds_the_library_that_is_known_when_its_text_is_compiled() {
    let mut bench = bench();
    assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", &library(64 << 10)]), "$1\r\nl\r\n");
    let mut client = Session::new();
    goes_on(&mut bench, &mut client, &["FCALL", "f", "0"]);
    let other = "#!lua name=l\nredis.register_function('f', function() return 44 end)";
    assert_eq!(said(&mut bench, &["FUNCTION", "LOAD", "REPLACE", other]), "$1\r\nl\r\n");
    let mut reply = Vec::new();
    while reply.is_empty() {
        reply = bench.turn(&mut client, b"").1;
    }
    assert_eq!(String::from_utf8_lossy(&reply), ":44\r\n");
    assert_eq!(said(&mut bench, &["FCALL", "f", "0"]), ":44\r\n");
}
