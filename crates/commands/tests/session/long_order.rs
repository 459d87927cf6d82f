//! Long members that are brought into their order: no turn compares more of them than others wait for.

use crate::apart::{array, job};
use crate::long_members::{check, turns};
use crate::values::{is, large_bench};

const MEBIBYTE: usize = 1 << 20;
const COUNT: usize = 16;

/// Members of a mebibyte, which are alike but for their ends, in their order.
fn members() -> Vec<String> {
    let job = job(MEBIBYTE - 2);
    (0..COUNT).map(|n| format!("{job}{}", n + 10)).collect()
}

/// Members of one score are sorted by their bytes: of the longest one at a time, and merged one at a time.
#[test]
fn no_turn_sorts_or_merges_more_than_a_mebibyte_of_members() {
    let mut bench = large_bench();
    let members = members();
    let texts: Vec<&str> = members.iter().map(String::as_str).collect();
    let (all, count) = (array(&texts), format!(":{COUNT}\r\n"));
    for key in ["s", "t"] {
        is(&mut bench, &format!("SADD {key} {}", members.join(" ")), &count);
    }
    for (command, wanted, turns_min) in [
        // Each is read, sorted, and merged and replied in turns of its own; or read, sorted, and put in.
        ("ZUNION 1 s", &all, 3 * COUNT),
        ("ZINTER 2 s t", &all, 4 * COUNT),
        ("ZUNIONSTORE d 1 s", &count, 5 * COUNT / 2),
    ] {
        let (reply, turned, ns_max) = turns(&mut bench, command);
        assert!(turned >= turns_min && ns_max < 10_000_000, "{command} {turned} {ns_max}");
        assert!(reply == wanted.as_bytes(), "{command} {}", reply.len());
    }
    is(&mut bench, "ZRANGE d 0 -1", &all);
    check(bench);
}
