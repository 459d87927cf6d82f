//! The meta commands.

use crate::{bench, talk};

#[test]
fn what_an_older_token_stores_keeps_the_time_of_the_item() {
    let mut bench = bench();
    talk(
        &mut bench,
        &[
            ("ms c 1 T100\r\nx\r\n", "HD\r\n"),
            ("ms c 1 I C1 T5\r\ny\r\nmg c v t\r\n", "HD\r\nVA 1 t100 X W\r\ny\r\n"),
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
