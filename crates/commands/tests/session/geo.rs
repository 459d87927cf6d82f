//! Searches of many places: in steps, with what they show, and stored.

use crate::written::{Beside, beside_writes, until_held};
use crate::{Bench, bench};
use larder_commands::{Next, Session};
use larder_testkit::redis::frame::Frame;

const PLACES: usize = 30_000;

impl Bench {
    /// Places that lie in one degree and a half, no two of them alike.
    fn places(&mut self, key: &str, places: usize) {
        for from in (0..places).step_by(1_000) {
            let words: String = (from..places.min(from + 1_000))
                .map(|n| {
                    format!(
                        " {:.5} {:.5} m{n:05}",
                        10.0 + n as f64 / 2e4,
                        40.0 + (n * 7_919 % 30_011) as f64 / 2e4
                    )
                })
                .collect();
            let reply = self.reply(&format!("GEOADD {key}{words}"));
            assert!(reply.starts_with(b":"), "{}", String::from_utf8_lossy(&reply));
        }
    }

    fn frames(&mut self, words: &str) -> (Vec<Frame>, usize) {
        let (reply, turns) = self.bounded(words);
        let (frame, bytes) = Frame::read(&reply).expect("a reply").expect("all of it");
        assert_eq!(bytes, reply.len());
        (frame.inside, turns)
    }
}

fn text(frame: &Frame) -> String {
    String::from_utf8(frame.body.clone().expect("a string")).expect("text")
}

fn metres(frame: &Frame) -> f64 {
    text(&frame.inside[1]).parse().expect("a distance")
}

const AROUND: &str = "FROMLONLAT 10.7 40.7 BYRADIUS";

#[test]
fn many_places_are_searched_in_steps() {
    let mut bench = bench();
    bench.places("s", PLACES);
    let held = bench.worker.store().held_bytes();
    let (all, turns) = bench.frames(&format!("GEOSEARCH s {AROUND} 500 km ASC WITHDIST"));
    assert!(all.len() == PLACES && turns > 60, "{turns}");
    assert!(all.is_sorted_by(|one, other| metres(one) <= metres(other)));
    let (back, _) = bench.frames(&format!("GEOSEARCH s {AROUND} 500 km DESC WITHDIST COUNT 2000"));
    assert!(back.iter().map(metres).eq(all.iter().rev().take(2_000).map(metres)));
    let (any, turns) = bench.frames(&format!("GEOSEARCH s {AROUND} 500 km COUNT 5 ANY"));
    assert!(any.len() == 5 && turns <= 3, "{turns}");
    // Of what lies within, each is where it says.
    let (near, turns) = bench.frames(&format!("GEOSEARCH s {AROUND} 30 km WITHCOORD WITHHASH WITHDIST"));
    let expected = all.iter().filter(|frame| metres(frame) <= 30_000.0 / 1_000.0).count();
    assert!(
        near.len() == expected && (100..PLACES / 2).contains(&expected) && turns > 1,
        "{expected}, {turns}"
    );
    assert!(near.iter().all(|frame| frame.inside.len() == 4 && frame.inside[3].inside.len() == 2));
    let (boxed, _) =
        bench.frames(&format!("GEOSEARCH s FROMMEMBER {} BYBOX 10 10 km", text(&all[0].inside[0])));
    assert!(boxed.len() > 10 && boxed.len() < expected);
    assert_eq!(bench.worker.store().held_bytes(), held);
    // Members by the thousand are replied in pieces.
    let names: String = (0..5_000).map(|n| format!(" m{n:05}")).collect();
    for name in ["GEOPOS", "GEOHASH"] {
        let (told, turns) = bench.frames(&format!("{name} s{names} nosuch"));
        assert!(told.len() == 5_001 && turns > 2, "{turns}");
    }
}

#[test]
fn what_is_found_is_stored_and_told_once() {
    let mut bench = bench();
    bench.places("s", PLACES);
    bench.reply("CONFIG SET notify-keyspace-events EA");
    let mut listens = Session::new();
    let sent = [bench.asked("HELLO 3"), bench.asked("PSUBSCRIBE __keyevent@0__:*store")].concat();
    bench.turns(&mut listens, &sent);
    let all = format!(":{PLACES}\r\n").into_bytes();
    let stored = |bench: &mut Bench, words: &str| {
        let sent = bench.asked(words);
        bench.turns(&mut Session::new(), &sent).0
    };
    assert_eq!(stored(&mut bench, &format!("GEOSEARCHSTORE d s {AROUND} 500 km")), all);
    assert_eq!(bench.reply("ZRANGE d 0 -1 WITHSCORES"), bench.reply("ZRANGE s 0 -1 WITHSCORES"));
    assert_eq!(
        stored(&mut bench, &format!("GEOSEARCHSTORE d s {AROUND} 500 km COUNT 9000 STOREDIST")),
        b":9000\r\n"
    );
    let (near, _) = bench.frames(&format!("GEOSEARCH s {AROUND} 500 km COUNT 9000"));
    let (there, _) = bench.frames("ZRANGE d 0 -1");
    assert!(near.iter().map(text).eq(there.iter().map(text)));
    assert_eq!(stored(&mut bench, "GEORADIUS s 10.7 40.7 500 km STORE s"), all);
    assert_eq!(bench.reply("ZCARD s"), all);
    let ping = bench.asked("PING");
    let told = [bench.turns(&mut listens, &ping).0, bench.turns(&mut listens, &ping).0].concat();
    let told = String::from_utf8_lossy(&told).into_owned();
    assert_eq!(told.matches("__keyevent@0__:geosearchstore\r\n").count(), 2, "{told}");
    assert_eq!(told.matches("__keyevent@0__:georadiusstore\r\n").count(), 1, "{told}");
    assert_eq!(bench.reply("GEOSEARCHSTORE d nosuch FROMLONLAT 1 1 BYRADIUS 1 m"), b":0\r\n");
    assert_eq!(bench.reply("EXISTS d"), b":0\r\n");
}

#[test]
fn a_sorted_set_that_changes_is_searched_anew() {
    let mut bench = bench();
    bench.places("s", PLACES);
    let mut session = Session::new();
    let sent = bench.asked(&format!("GEOSEARCH s {AROUND} 500 km COUNT 1"));
    assert_eq!(bench.turn(&mut session, &sent), (Next::Yield, Vec::new()));
    assert_eq!(bench.turn(&mut session, b"").0, Next::Yield);
    assert_eq!(bench.reply("GEOADD s 10.7 40.7 centre"), b":1\r\n");
    assert_eq!(bench.turns(&mut session, b"").0, b"*1\r\n$6\r\ncentre\r\n");
    // Around a member that moves, and is gone.
    let sent = bench.asked("GEOSEARCHSTORE d s FROMMEMBER centre BYRADIUS 500 km COUNT 1");
    assert_eq!(bench.turn(&mut session, &sent), (Next::Yield, Vec::new()));
    bench.reply("ZREM s centre");
    let reply = bench.turns(&mut session, b"").0;
    assert_eq!(reply, b"-ERR could not decode requested zset member\r\n");
    // At every step: three searches are given up, then its keys are noted, and held.
    let words = format!("GEOSEARCHSTORE d s {AROUND} 500 km");
    let Beside { reply, writes, waited } = beside_writes(&mut bench, &words, "ZADD s # other");
    assert_eq!((reply, writes), (format!(":{PLACES}\r\n").into_bytes(), 5));
    assert!(waited > 2, "{waited}");
    assert_eq!(bench.reply("ZCARD d"), format!(":{PLACES}\r\n").as_bytes());
    // The reply is in order when its key is free.
    let words = format!("GEOSEARCH s {AROUND} 500 km ASC");
    assert_eq!(until_held(&mut bench, &mut session, &words, "ZADD s # other"), 5);
    while session.holds() {
        assert_eq!(bench.turn(&mut session, b""), (Next::Yield, Vec::new()), "it replies");
    }
    assert_eq!(bench.reply("ZREM s m00007"), b":1\r\n");
    let (frame, _) = Frame::read(&bench.turns(&mut session, b"").0).expect("a reply").expect("all of it");
    assert!(frame.inside.len() == PLACES && frame.inside.iter().any(|frame| text(frame) == "m00007"));
}

#[test]
fn in_a_transaction_a_search_is_one_step_and_not_too_long() {
    let mut bench = bench();
    bench.places("few", 300);
    bench.places("many", PLACES);
    let mut exec = |commands: &[&str]| {
        let all = [&["MULTI"], commands, &["EXEC"]].concat();
        let sent: Vec<u8> = all.iter().flat_map(|words| bench.asked(words)).collect();
        String::from_utf8_lossy(&bench.turns(&mut Session::new(), &sent).0).into_owned()
    };
    let reply = exec(&[
        "GEOADD few 10.7 40.7 centre",
        "GEOSEARCH few FROMMEMBER centre BYRADIUS 500 km COUNT 1",
        "GEOSEARCHSTORE d few FROMLONLAT 10.7 40.7 BYRADIUS 500 km",
    ]);
    assert!(reply.ends_with("*3\r\n:1\r\n*1\r\n$6\r\ncentre\r\n:301\r\n"), "{reply}");
    for long in [
        "GEOSEARCH many FROMLONLAT 10.7 40.7 BYRADIUS 1 km",
        "GEORADIUS many 10.7 40.7 500 km STORE d",
        "GEOSEARCHSTORE d many FROMMEMBER m00001 BYBOX 1 1 km",
    ] {
        assert!(exec(&[long]).contains("-EXECABORT Transaction discarded: "), "{long}");
    }
}
