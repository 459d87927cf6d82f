//! SORT of many elements: in steps, with what other keys say of them, as they are while others write.

use crate::{Bench, bench};
use larder_commands::{Next, Session};
use larder_testkit::redis::frame::Frame;

const ELEMENTS: usize = 20_000;

fn number(n: usize) -> usize {
    n * 7_919 % 100_003
}

impl Bench {
    /// A list of numbers.
    fn numbers(&mut self, key: &str, elements: usize) {
        for from in (0..elements).step_by(1_000) {
            let words: String =
                (from..elements.min(from + 1_000)).map(|n| format!(" {}", number(n))).collect();
            assert!(self.bounded(&format!("RPUSH {key}{words}")).0.starts_with(b":"));
        }
    }

    /// As many strings, each of which orders the other way round.
    fn weights(&mut self, elements: usize) {
        for from in (0..elements).step_by(1_000) {
            let words: String = (from..elements.min(from + 1_000))
                .map(|n| format!(" w_{} -{}", number(n), number(n)))
                .collect();
            assert_eq!(self.reply(&format!("MSET{words}")), b"+OK\r\n");
        }
    }
}

fn texts(reply: &[u8]) -> Vec<Option<String>> {
    let (frame, bytes) = Frame::read(reply).expect("a reply").expect("all of it");
    assert_eq!(bytes, reply.len());
    let text = |frame: &Frame| frame.body.clone().map(|body| String::from_utf8(body).expect("text"));
    frame.inside.iter().map(text).collect()
}

fn some(numbers: impl Iterator<Item = usize>) -> Vec<Option<String>> {
    numbers.map(|n| Some(n.to_string())).collect()
}

fn sorted(elements: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..elements).map(number).collect();
    all.sort_unstable();
    all
}

#[test]
fn many_elements_are_sorted_in_steps() {
    let mut bench = bench();
    bench.numbers("l", ELEMENTS);
    bench.weights(ELEMENTS);
    let all = sorted(ELEMENTS);
    let held = bench.worker.store().held_bytes();
    let (reply, turns) = bench.bounded("SORT l");
    assert!(texts(&reply) == some(all.iter().copied()) && turns > 20, "{turns}");
    let (reply, _) = bench.bounded("SORT_RO l DESC LIMIT 19000 3");
    assert_eq!(texts(&reply), some(all.iter().rev().skip(19_000).take(3).copied()));
    let (reply, turns) = bench.bounded("SORT l BY w_* GET # GET w_* GET nosuch_*");
    let expected: Vec<Option<String>> =
        all.iter().rev().flat_map(|n| [Some(n.to_string()), Some(format!("-{n}")), None]).collect();
    assert!(texts(&reply) == expected && turns > 60, "{turns}");
    let mut words: Vec<String> = all.iter().map(usize::to_string).collect();
    words.sort_unstable();
    let (reply, _) = bench.bounded("SORT l ALPHA");
    assert!(texts(&reply) == words.into_iter().map(Some).collect::<Vec<_>>());
    let mut weights: Vec<usize> = all.clone();
    weights.sort_unstable_by_key(|n| format!("-{n}"));
    let (reply, _) = bench.bounded("SORT l BY w_* ALPHA DESC LIMIT 0 9");
    assert_eq!(texts(&reply), some(weights.iter().rev().take(9).copied()));
    let (reply, _) = bench.bounded("SORT l BY nosort LIMIT 100 4000");
    assert!(texts(&reply) == some((100..4_100).map(number)));
    let (reply, _) = bench.bounded("SORT l BY nosort DESC");
    assert!(texts(&reply) == some((0..ELEMENTS).rev().map(number)));
    assert_eq!(bench.worker.store().held_bytes(), held);
}

#[test]
fn what_is_sorted_is_stored_and_told_once() {
    let mut bench = bench();
    bench.numbers("l", ELEMENTS);
    bench.weights(ELEMENTS);
    bench.reply("CONFIG SET notify-keyspace-events EA");
    let mut listens = Session::new();
    let sent = [bench.asked("HELLO 3"), bench.asked("SUBSCRIBE __keyevent@0__:sortstore")].concat();
    bench.turns(&mut listens, &sent);
    let all = sorted(ELEMENTS);
    let stored = format!(":{ELEMENTS}\r\n").into_bytes();
    let turns = |bench: &mut Bench, words: &str| {
        let sent = bench.asked(words);
        bench.turns(&mut Session::new(), &sent)
    };
    for (words, expected) in [
        ("SORT l STORE d", some(all.iter().copied())),
        ("SORT l DESC STORE d", some(all.iter().rev().copied())),
        ("SORT l BY w_* STORE d", some(all.iter().rev().copied())),
        ("SORT l GET w_* STORE d", all.iter().map(|n| Some(format!("-{n}"))).collect()),
        ("SORT l STORE l", some(all.iter().copied())),
    ] {
        let (reply, yields) = turns(&mut bench, words);
        assert!(reply == stored && yields > 10, "{words}: {yields}");
        let target = words.rsplit(' ').next().unwrap();
        assert!(texts(&bench.reply(&format!("LRANGE {target} 0 -1"))) == expected, "{words}");
    }
    assert_eq!(bench.reply("RPUSH little 3 1 2"), b":3\r\n");
    assert_eq!(bench.reply("SORT little STORE d"), b":3\r\n");
    assert_eq!(bench.reply("SORT nosuch STORE d"), b":0\r\n");
    assert_eq!(bench.reply("EXISTS d"), b":0\r\n");
    let ping = bench.asked("PING");
    let told = [bench.turns(&mut listens, &ping).0, bench.turns(&mut listens, &ping).0].concat();
    let told = String::from_utf8_lossy(&told);
    assert_eq!(told.matches("__keyevent@0__:sortstore\r\n").count(), 6, "{told}");
}

/// Until it is copied; then what is said is of that moment, but for what is stored.
#[test]
fn a_list_that_changes_is_sorted_anew() {
    let mut bench = bench();
    bench.numbers("l", ELEMENTS);
    bench.weights(ELEMENTS);
    let mut session = Session::new();
    let sent = bench.asked("SORT l LIMIT 0 2");
    assert_eq!(bench.turn(&mut session, &sent), (Next::Yield, Vec::new()));
    assert_eq!(bench.turn(&mut session, b"").0, Next::Yield);
    assert_eq!(bench.reply("RPUSH l -1"), format!(":{}\r\n", ELEMENTS + 1).as_bytes());
    assert_eq!(texts(&bench.turns(&mut session, b"").0), [Some("-1".into()), Some("0".into())]);
    // Of what is stored the last look is the one that counts, three times; then the list is held.
    let mut elements = ELEMENTS + 1;
    for words in ["SORT l STORE d", "SORT l BY w_* STORE d"] {
        let (sent, push) = (bench.asked(words), bench.asked("RPUSH l -2"));
        let (reply, whole) = bench.turns(&mut session, &sent);
        assert_eq!(reply, format!(":{elements}\r\n").as_bytes());
        let (mut next, mut reply) = bench.turn(&mut session, &sent);
        let (mut pushed, mut waited, mut turns) = (0, 0, 0);
        while next == Next::Yield {
            turns += 1;
            // Once in each try, when all is copied.
            if turns % whole == whole * 3 / 4 {
                let (paced, said, _) = bench.call(&mut Session::new(), &push);
                assert_eq!(matches!(paced, Next::Sleep(_)), said.is_empty(), "{words}: {paced:?}");
                assert_eq!(said.is_empty(), session.holds(), "{words}");
                (pushed, waited) = if said.is_empty() { (pushed, waited + 1) } else { (pushed + 1, waited) };
            }
            let more;
            (next, more) = bench.turn(&mut session, b"");
            reply.extend(more);
        }
        assert_eq!((next, pushed, waited), (Next::Receive, 3, 1), "{words}: {turns} turns of {whole}");
        elements += pushed;
        assert_eq!(reply, format!(":{elements}\r\n").as_bytes());
        let stored = texts(&bench.reply("LRANGE d 0 -1"));
        let added = stored.iter().filter(|text| text.as_deref() == Some("-2")).count();
        assert_eq!((stored.len(), added), (elements, elements - ELEMENTS - 1), "{words}");
        // Others have their turn before the next holds keys.
        bench.system += 100;
    }
    // Another type.
    assert_eq!(bench.turn(&mut session, &bench.asked("SORT l")).0, Next::Yield);
    bench.reply("SET l x");
    let (reply, _) = bench.turns(&mut session, b"");
    assert!(reply.starts_with(b"-WRONGTYPE"), "{}", String::from_utf8_lossy(&reply));
}

#[test]
fn in_a_transaction_it_is_one_step_and_not_too_long() {
    let mut bench = bench();
    bench.numbers("few", 500);
    bench.numbers("many", ELEMENTS);
    bench.weights(500);
    bench.reply("SADD set b a c");
    let mut exec = |commands: &[&str]| {
        let all = [&["MULTI"], commands, &["EXEC"]].concat();
        let sent: Vec<u8> = all.iter().flat_map(|words| bench.asked(words)).collect();
        String::from_utf8_lossy(&bench.turns(&mut Session::new(), &sent).0).into_owned()
    };
    let reply = exec(&["SORT few BY w_* LIMIT 0 1 GET w_* GET #", "SORT set BY nosort", "SORT few STORE d"]);
    let most = sorted(500)[499];
    let first = format!(
        "*2\r\n${}\r\n-{most}\r\n${}\r\n{most}\r\n",
        most.to_string().len() + 1,
        most.to_string().len()
    );
    let expected = format!("*3\r\n{first}*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n:500\r\n");
    assert!(reply.ends_with(&expected), "{reply}");
    for long in [
        "SORT many",
        "SORT_RO many ALPHA",
        "SORT many STORE d",
        "SORT few GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_* GET w_*",
    ] {
        let reply = exec(&[long]);
        assert!(reply.contains("-EXECABORT Transaction discarded: "), "{long}: {reply}");
    }
    // What was stored counts for what comes behind it.
    let reply = exec(&["SORT few GET w_* GET # STORE d", "LRANGE d 0 -1", "LRANGE d 0 -1"]);
    assert!(reply.contains("-EXECABORT"), "{reply}");
    // Keys that a script names by patterns are others': it has the store to itself.
    let holds = bench.worker.store().whole_holds();
    let script = "return redis.call('SORT', KEYS[1], 'BY', 'w_*', 'LIMIT', '0', '1')";
    let sent = crate::survey::command(&["EVAL", script, "1", "few"]);
    let (reply, _) = bench.turns(&mut Session::new(), &sent);
    assert_eq!(texts(&reply), some([most].into_iter()));
    assert!(bench.worker.store().whole_holds() > holds);
}

#[test]
fn what_lies_in_pieces_is_sorted_by_and_shown() {
    let mut bench = bench();
    bench.reply("RPUSH l 1 2");
    crate::slices::set(&mut bench, "w_1", &[b'7'; 40_000]);
    let reply = bench.reply("SORT l GET w_* GET #");
    let expected = [&b"*4\r\n$40000\r\n"[..], &[b'7'; 40_000], b"\r\n$1\r\n1\r\n$-1\r\n$1\r\n2\r\n"].concat();
    assert!(reply == expected);
    // A key whose value lies in pieces, however short it is.
    let long = "k".repeat(9_000);
    assert_eq!(bench.reply(&format!("SET {long}1 9")), b"+OK\r\n");
    assert_eq!(texts(&bench.reply(&format!("SORT l BY {long}*"))), some([2, 1].into_iter()));
    assert_eq!(
        texts(&bench.reply(&format!("SORT l BY {long}* ALPHA GET {long}*"))),
        [None, Some("9".into())]
    );
}

/// Elements of which each is long, and alike up to its end: what is compared is bytes.
#[test]
fn long_elements_that_are_nearly_alike_take_no_longer_turns() {
    let mut bench = bench();
    for n in 0..300 {
        let element = format!("{}{:05}", "x".repeat(15_000), number(n) % 1_000);
        bench.reply(&format!("RPUSH l {element}"));
    }
    let (reply, turns) = bench.bounded("SORT l ALPHA");
    let all = texts(&reply);
    assert!(all.is_sorted() && all.len() == 300 && turns > 20, "{turns}");
}
