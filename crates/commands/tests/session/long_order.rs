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

/// Members of one place are found, sorted by their bytes and put in as few at a time, though they are not many.
#[test]
fn no_turn_of_a_search_copies_or_sorts_more_than_a_mebibyte_of_members() {
    let mut bench = large_bench();
    let members = members();
    let texts: Vec<&str> = members.iter().map(String::as_str).collect();
    let (all, count) = (array(&texts), format!(":{COUNT}\r\n"));
    let places: String = members.iter().map(|member| format!(" 13 38 {member}")).collect();
    is(&mut bench, &format!("GEOADD g{places}"), &count);
    for (command, wanted, turns_min) in [
        ("GEOSEARCH g FROMLONLAT 13 38 BYRADIUS 1 km", &all, 3 * COUNT / 2),
        ("GEOSEARCHSTORE d g FROMLONLAT 13 38 BYRADIUS 1 km", &count, 5 * COUNT / 2),
        ("GEOSEARCHSTORE d g FROMLONLAT 13 38 BYRADIUS 1 km ASC STOREDIST", &count, 5 * COUNT / 2),
        ("GEORADIUS g 13 38 1 km STORE d", &count, 5 * COUNT / 2),
    ] {
        let (reply, turned, ns_max) = turns(&mut bench, command);
        assert!(turned >= turns_min && ns_max < 10_000_000, "{command} {turned} {ns_max}");
        assert!(reply == wanted.as_bytes(), "{command} {}", reply.len());
        if turns_min > 2 * COUNT {
            is(&mut bench, "ZRANGE d 0 -1", &all);
        }
    }
    check(bench);
}
