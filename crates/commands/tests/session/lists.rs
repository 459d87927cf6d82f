//! Long lists: what takes long is done in steps, and is what it would be in one.

use crate::bench;
use larder_commands::Session;

const ELEMENTS: usize = 60_000;

/// `RPUSH l 0 1 2 …`, of which each seventh is `x`.
fn pushed(end: &str) -> String {
    let elements: String =
        (0..ELEMENTS).map(|n| if n % 7 == 3 { " x".into() } else { format!(" {n}") }).collect();
    format!("{end} l{elements}")
}

fn element(n: usize) -> String {
    if n % 7 == 3 { "x".into() } else { n.to_string() }
}

/// As an array that is replied.
fn array(elements: impl ExactSizeIterator<Item = String>) -> String {
    let head = format!("*{}\r\n", elements.len());
    head + &elements.map(|element| format!("${}\r\n{element}\r\n", element.len())).collect::<String>()
}

fn numbers(numbers: impl Iterator<Item = usize>) -> String {
    let numbers: Vec<usize> = numbers.collect();
    format!("*{}\r\n", numbers.len()) + &numbers.iter().map(|n| format!(":{n}\r\n")).collect::<String>()
}

#[test]
fn commands_on_a_long_list_are_done_in_steps() {
    let mut bench = bench();
    let held = bench.worker.store().held_bytes();
    let places = |back: bool| {
        let places = (0..ELEMENTS).filter(|n| n % 7 == 3);
        if back { numbers(places.collect::<Vec<_>>().into_iter().rev()) } else { numbers(places) }
    };
    let cases: Vec<(String, String, usize)> = vec![
        (pushed("RPUSH"), format!(":{ELEMENTS}\r\n"), 5),
        ("LRANGE l 0 -1".into(), array((0..ELEMENTS).map(element)), 3),
        ("LRANGE l 100 40000".into(), array((100..40_001).map(element)), 3),
        ("LRANGE l 50000 50002".into(), array((50_000..50_003).map(element)), 1),
        ("LINDEX l 30000".into(), "$5\r\n30000\r\n".into(), 1),
        ("LPOS l 59998".into(), ":59998\r\n".into(), 2),
        ("LPOS l 1 RANK -1".into(), ":1\r\n".into(), 2),
        ("LPOS l nosuch".into(), "$-1\r\n".into(), 2),
        ("LPOS l x COUNT 0".into(), places(false), 2),
        ("LPOS l x COUNT 0 RANK -1".into(), places(true), 2),
        ("LPOS l x COUNT 2 RANK 7001".into(), numbers([49_003, 49_010].into_iter()), 2),
        ("LPOS l 59998 MAXLEN 40000".into(), "$-1\r\n".into(), 1),
        ("LINSERT l BEFORE 59998 new".into(), format!(":{}\r\n", ELEMENTS + 1), 2),
        ("LINSERT l AFTER nosuch new".into(), ":-1\r\n".into(), 2),
        ("LRANGE l -3 -1".into(), array(["new", "59998", "59999"].map(String::from).into_iter()), 1),
        ("LREM l 0 new".into(), ":1\r\n".into(), 2),
        ("LREM l -5000 x".into(), ":5000\r\n".into(), 2),
        ("LREM l 0 x".into(), format!(":{}\r\n", (0..ELEMENTS).filter(|n| n % 7 == 3).count() - 5_000), 2),
        ("LPOS l x".into(), "$-1\r\n".into(), 2),
        (
            "LPOP l 10000".into(),
            array(
                (0..ELEMENTS)
                    .filter(|n| n % 7 != 3)
                    .take(10_000)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .map(element),
            ),
            2,
        ),
        (
            "RPOP l 10000".into(),
            array(
                (0..ELEMENTS)
                    .rev()
                    .filter(|n| n % 7 != 3)
                    .take(10_000)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .map(element),
            ),
            2,
        ),
        ("LTRIM l 5 -6".into(), "+OK\r\n".into(), 1),
        (
            "LPOP l 1000000".into(),
            {
                let left: Vec<usize> = (0..ELEMENTS).filter(|n| n % 7 != 3).collect();
                array(left[10_005..left.len() - 10_005].iter().copied().map(element))
            },
            2,
        ),
        ("EXISTS l".into(), ":0\r\n".into(), 1),
        ("LPOP l 1000000".into(), "*-1\r\n".into(), 1),
    ];
    for (words, expected, turns_min) in cases {
        let (reply, turns) = bench.bounded(&words);
        let words = &words[..words.len().min(40)];
        let reply = String::from_utf8_lossy(&reply);
        assert!(reply == expected, "{words}: {}", &reply[..reply.len().min(80)]);
        assert!((turns_min..60).contains(&turns), "{words}: {turns} turns");
    }
    assert_eq!(bench.worker.store().held_bytes(), held);
}

/// A list that is changed while it is looked through is begun anew, and nothing is done twice.
#[test]
fn a_long_list_that_changes_meanwhile_is_looked_through_again() {
    let mut bench = bench();
    bench.bounded(&pushed("RPUSH"));
    for (words, expected) in [
        ("LPOS l 59998", ":59999\r\n".to_owned()),
        ("LINSERT l BEFORE 59998 new", format!(":{}\r\n", ELEMENTS + 3)),
        ("LREM l 0 x", format!(":{}\r\n", (0..ELEMENTS).filter(|n| n % 7 == 3).count() + 1)),
        ("LREM l -3 y", ":1\r\n".to_owned()),
    ] {
        let mut session = Session::new();
        let sent = bench.asked(words);
        let (_, early) = bench.turn(&mut session, &sent);
        assert_eq!(early, b"", "{words}");
        // In front of all, which moves the places of all.
        let front = match words {
            "LREM l 0 x" => "x",
            "LREM l -3 y" => "y",
            _ => "front",
        };
        assert!(bench.reply(&format!("LPUSH l {front}")).starts_with(b":"));
        let reply = bench.turns(&mut session, b"").0;
        assert_eq!(String::from_utf8_lossy(&reply), expected, "{words}");
    }
    assert_eq!(bench.reply("LRANGE l 0 2"), b"*3\r\n$5\r\nfront\r\n$5\r\nfront\r\n$1\r\n0\r\n");
}

#[test]
fn a_long_list_is_written_to_in_exec() {
    let mut bench = bench();
    bench.bounded(&pushed("LPUSH"));
    let (mut session, mut replies) = (Session::new(), Vec::new());
    for words in
        ["MULTI", "LPUSH l a", "RPUSH l b", "LINDEX l 30000", "LPOP l", "RPOP l", "LRANGE l 0 1", "EXEC"]
    {
        let sent = bench.asked(words);
        replies = bench.turns(&mut session, &sent).0;
    }
    let expected =
        "*6\r\n:60001\r\n:60002\r\n$5\r\n30000\r\n$1\r\na\r\n$1\r\nb\r\n*2\r\n$5\r\n59999\r\n$5\r\n59998\r\n";
    assert_eq!(String::from_utf8_lossy(&replies), expected);
}
