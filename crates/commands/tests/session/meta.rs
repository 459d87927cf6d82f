//! The meta commands.

use crate::{BAD, bench, talk};

#[test]
fn meta_gets_tell_what_is_asked_in_order() {
    let mut bench = bench();
    talk(
        &mut bench,
        &[
            ("mg a v\r\n", "EN\r\n"),
            ("mg a v q\r\nmn\r\n", "MN\r\n"),
            ("mg a k O123 v\r\n", "EN ka O123\r\n"),
            ("ms a 5 T100 F7\r\nhello\r\n", "HD\r\n"),
            ("mg a\r\n", "HD\r\n"),
            ("mg a v\r\n", "VA 5\r\nhello\r\n"),
            ("mg a s v f k Oabc t\r\n", "VA 5 s5 f7 ka Oabc t100\r\nhello\r\n"),
            ("mg a t T50 t\r\n", "CLIENT_ERROR duplicate flag\r\n"),
            ("mg a t T50\r\n", "HD t100\r\n"),
            ("mg a T60 t\r\n", "HD t60\r\n"),
            ("mg a T0 t\r\n", "HD t-1\r\n"),
            ("mg a x!\r\n", "HD\r\n"),
            ("mg a !\r\n", "CLIENT_ERROR bad command line format\r\n"),
            ("mg a W\r\n", "CLIENT_ERROR invalid flag\r\n"),
            ("mg a Tx\r\n", "CLIENT_ERROR bad token in command line format\r\n"),
            ("ms h 1\r\nx\r\nmg h h\r\nmg h h u\r\n", "HD\r\nHD h0\r\nHD h1\r\n"),
        ],
    );
    let cas = bench.ask("mg a c\r\n")[4..].trim().to_string();
    talk(&mut bench, &[(&format!("mg a v C{cas}\r\n"), "HD\r\n"), ("mg a v C1\r\n", "VA 5\r\nhello\r\n")]);
}

#[test]
fn stale_items_are_recached_by_one() {
    let mut bench = bench();
    talk(
        &mut bench,
        &[
            ("ms a 1 T100\r\nx\r\n", "HD\r\n"),
            ("md a I T30\r\n", "HD\r\n"),
            ("mg a t v\r\n", "VA 1 t30 X W\r\nx\r\n"),
            ("mg a v\r\n", "VA 1 Z X\r\nx\r\n"),
            ("get a\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"),
            ("ms a 1 T20\r\ny\r\nmg a v\r\n", "HD\r\nVA 1\r\ny\r\n"),
            ("mg a R30 t\r\n", "HD t20 W\r\n"),
            ("mg a R30\r\n", "HD Z\r\n"),
            ("mg new N30 v t s\r\n", "VA 0 t30 s0 W\r\n\r\n"),
            ("mg new v\r\n", "VA 0 Z\r\n\r\n"),
            ("get new\r\n", "VALUE new 0 0\r\n\r\nEND\r\n"),
            ("md a x\r\nmg a v f\r\n", "HD\r\nVA 0 f0\r\n\r\n"),
            ("md a x I\r\nmg a s\r\n", "HD\r\nHD s0 X W\r\n"),
        ],
    );
    bench.ask("ms c 1 T100\r\nx\r\n");
    talk(
        &mut bench,
        &[
            ("ms c 1 I C1 T5\r\ny\r\nmg c v t\r\n", "HD\r\nVA 1 t100 X W\r\ny\r\n"),
            ("ms c 1 I C9223372036854775807\r\nz\r\n", "EX\r\n"),
            ("ms c 1 C1 c k\r\nz\r\n", "EX c0 kc\r\n"),
            ("ms none 1 C1\r\nz\r\n", "NF\r\n"),
        ],
    );
}

#[test]
fn a_hot_item_that_is_stale_says_so_in_a_pipeline() {
    let mut bench = bench();
    let many = |one: &str| one.repeat(200);
    bench.ask("ms a 1\r\nx\r\n");
    talk(
        &mut bench,
        &[
            (&many("mg a v\r\n"), &many("VA 1\r\nx\r\n")),
            ("md a I\r\n", "HD\r\n"),
            (&many("mg a v\r\n"), &format!("VA 1 X W\r\nx\r\n{}", "VA 1 Z X\r\nx\r\n".repeat(199))),
            ("mg a R30\r\nms a 1\r\ny\r\n", "HD Z X\r\nHD\r\n"),
            (&many("mg a v\r\n"), &many("VA 1\r\ny\r\n")),
        ],
    );
}

/// What a client does that gives an item the time that a reply had: docs/clients.md says what comes of it.
#[test]
fn a_time_left_that_is_stored_again_at_most_half_a_second_later_does_not_get_less() {
    let mut bench = bench();
    for (apart_ms, left_s) in [(1, 60), (500, 60), (501, 20), (1500, 20)] {
        bench.ask("ms a 1 T60\r\nx\r\n");
        for _ in 0..40 {
            bench.system += apart_ms;
            let reply = bench.ask("mg a t\r\n");
            let told = reply.strip_prefix("HD t").expect("it is there").trim_end();
            assert_eq!(bench.ask(&format!("ms a 1 T{told}\r\nx\r\n")), "HD\r\n");
        }
        assert_eq!(bench.ask("mg a t\r\n"), format!("HD t{left_s}\r\n"), "{apart_ms} ms apart");
    }
}

#[test]
fn meta_modes_and_arithmetic() {
    talk(
        &mut bench(),
        &[
            ("ms a 1 ME\r\nx\r\nms a 1 ME\r\nx\r\n", "HD\r\nNS\r\n"),
            ("ms a 2 MA s\r\nyz\r\nmg a v\r\n", "HD s3\r\nVA 3\r\nxyz\r\n"),
            ("ms n 2 MA\r\nyz\r\nms n 2 MP N0\r\nyz\r\n", "NS\r\nHD\r\n"),
            ("ms r 1 MR\r\nx\r\nms a 1 MReplace q\r\nx\r\nmn\r\n", "NS\r\nMN\r\n"),
            ("ms a 1 MX\r\nx\r\nmn\r\n", "CLIENT_ERROR invalid mode for ms M token\r\nMN\r\n"),
            ("ms a 1 Fx\r\nx\r\nmn\r\n", &format!("{BAD}MN\r\n")),
            ("ma c\r\nma c q k\r\n", "NF\r\nNF kc\r\n"),
            (
                "ma c N0 J13 v\r\nma c v\r\nma c MD D4 v t\r\n",
                "VA 2\r\n13\r\nVA 2\r\n14\r\nVA 2 t-1\r\n10\r\n",
            ),
            ("ma c q\r\nma c M-\r\nma c MX\r\n", "HD\r\nCLIENT_ERROR invalid mode for ma M token\r\n"),
            ("ma c Dx\r\nma c v v\r\n", &"CLIENT_ERROR invalid or duplicate flag\r\n".repeat(2)),
            ("md a q\r\nmd a q\r\nmd a C1\r\n", "NF\r\nNF\r\n"),
            (
                "ms Zm9v 1 b k\r\nx\r\nget foo\r\nmg foo k v\r\n",
                "HD kZm9v b\r\nVALUE foo 0 1\r\nx\r\nEND\r\nVA 1 kZm9v b\r\nx\r\n",
            ),
            (
                "mg Zm9v= b v\r\nms Zm9v= 1 b\r\nx\r\nmn\r\n",
                "CLIENT_ERROR error decoding key\r\nCLIENT_ERROR error decoding key\r\nMN\r\n",
            ),
        ],
    );
}
