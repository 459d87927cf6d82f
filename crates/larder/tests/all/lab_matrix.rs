//! `larder lab matrix` from the command line, against Larder: the results of libmemcached's calls are
//! compared with the server's counts, and the number of lost writes is known exactly.
//!
//! These tests need a C compiler and Debian's libmemcached-dev: `cargo xtask clients`.

use std::process::Command;

use larder_lab::results::{Run, of_time};
use larder_testkit::folder::Folder;
use larder_testkit::stand_in::Burners;

use crate::outcome::{had_tracer, passing, table};
use crate::serving::Serving;

/// Runs the experiment; all its checks must pass, except those that depend on time.
fn matrix(arguments: &[&str]) -> Run {
    passing(&[&["matrix", "--quick"][..], arguments].concat())
}

#[test]
#[ignore = "peers: libmemcached"]
fn the_matrix_has_every_cell_and_both_sides_count_the_same() {
    let part = ["--rounds", "3", "--visit-ms", "1", "--part", "grid", "--operation", "set,get,delete"];
    let cells = ["--value-bytes", "8,1000", "--reply", "awaited,noreply", "--link", "loopback,relay-1ms"];
    let run = matrix(&[&part[..], &cells].concat());
    let claims = [
        "the options are in effect, as library and socket say",
        "no call without a fault told an error",
        "every value read was the one written",
        "a call said that it was queued where it was, and nowhere else",
        "the server counted the same sets",
        "the server counted the same hits",
        "the server counted the same deletes",
        "the driver opened the connections that it should",
        "the server saw as many connections",
        "what was set is what is read back over another connection",
    ];
    for claim in claims {
        assert!(run.checks.iter().any(|check| check.claim == claim && check.passed), "{claim}");
    }
    let costs = table(&run, "matrix");
    // Rows of the library: 8 option sets × 2 kinds of handle × (4 sets + 2 gets + 2 deletes) over loopback,
    // half of these over the relay, all for two lengths. By hand: 2 links × 2 handles × 5, and 2 × 3
    // together. Larder's client: 2 × (5 one by one, and 3 in each of three other ways).
    assert_eq!(costs.rows.len(), 2 * (8 + 4) * 2 * 8 + 20 + 6 + 2 * (5 + 3 * 3));
    let value = |labels: [&str; 6], column: &str| {
        costs.value("larder", &labels, column).unwrap_or_else(|| panic!("{labels:?} has no {column}")).median
    };
    for row in &costs.rows {
        assert!(row.note.is_empty(), "{row:?}");
        // A handle that is closed after each request without a reply has no barrier.
        let has_barrier = !(row.labels[2] == "churn" && row.labels[3] == "noreply");
        let barrier = row.values[1].as_ref().map(|barrier| barrier.median);
        assert_eq!(barrier.is_some_and(|barrier| barrier > 0.0), has_barrier, "{row:?}");
    }
    let one = |options| ["set", "8 B", "kept", "awaited", "loopback", options];
    // The relay holds each message, so a round trip takes at least that long.
    assert!(value(["set", "8 B", "kept", "awaited", "relay-1ms", "none"], "call") >= 1_000.0);
    assert!(value(one("BUFFER"), "segments") < 0.2 && value(one("none"), "segments") >= 1.5);
    if had_tracer(&run, "lab_matrix") {
        let by_hand = value(one("by hand"), "system calls");
        assert!((1.9..2.5).contains(&by_hand), "a send and a receive: {by_hand}");
        assert!(value(one("BUFFER"), "system calls") < 0.5);
        assert!(value(["set", "8 B", "churn", "awaited", "loopback", "none"], "system calls") > 8.0);
    }
    let effects = table(&run, "effects");
    let buffer = effects.value("larder", &["set", "kept", "awaited", "loopback", "BUFFER"], "8 B").unwrap();
    // The 64 requests of a buffer share the cost of one send: that shows on any machine, however busy.
    assert!(buffer.median < 0.7, "{buffer:?}");
    let article = table(&run, "article");
    assert_eq!(article.rows.len(), 2 * 8);
    assert_eq!(article.value("original article", &["(ON,OFF,OFF)"], "SET").unwrap().median, 10.163);
    assert!(article.value("larder", &["(ON,OFF,OFF)"], "DEL").unwrap().median > 0.0);
    assert!(table(&run, "batch").value("larder", &["set", "8 B"], "together / BUFFER").is_some());
    for id in ["effects-larder-set", "cost-larder-set"] {
        assert!(run.plots.iter().any(|plot| plot.id == id), "{id}");
    }
}

#[test]
#[ignore = "peers: libmemcached"]
fn the_matrix_knows_what_was_lost_and_not_told() {
    let run = matrix(&["--part", "faults"]);
    let faults = table(&run, "faults");
    let figure = |fault: &str, client: &str, column: &str| {
        faults.value("larder", &[fault, client], column).map(|value| value.median)
    };
    let row = |fault: &str, client: &str| {
        ["calls", "returned OK", "stored", "errors of calls", "lost without an error"]
            .map(|column| figure(fault, client, column).unwrap_or(f64::NAN))
    };
    for client in ["as shipped", "by hand", "larder-client"] {
        // The server is killed between two calls: all earlier calls are stored, and all later calls return an
        // error.
        assert_eq!(
            row("server killed half-way", client),
            [3_000.0, 1_500.0, 1_500.0, 1_500.0, 0.0],
            "{client}"
        );
        assert_eq!(figure("server killed half-way", client, "first error at call"), Some(1_501.0));
        assert_eq!(row("a value too large", client), [3_000.0, 2_999.0, 2_999.0, 1.0, 0.0], "{client}");
        assert_eq!(figure("a value too large", client, "first error at call"), Some(1_500.0), "{client}");
        let [calls, ok, stored, told, lost] = row("server full", client);
        assert!(ok == stored && ok + told == calls && told > 0.0 && lost == 0.0, "{client}");
    }
    // A batch is sent as a whole, so the kill comes after the batch that has the 1,500th call.
    let together = ["by hand, 64 together", "larder-client, batch of 64"];
    for client in together {
        assert_eq!(
            row("server killed half-way", client),
            [3_000.0, 1_536.0, 1_536.0, 1_464.0, 0.0],
            "{client}"
        );
        assert_eq!(figure("a value too large", client, "first error at call"), Some(1_500.0), "{client}");
    }
    // A stream reports its errors at the end, by its barriers.
    for client in ["larder-client, stream", "larder-client, quiet"] {
        let late = |fault| figure(fault, client, "errors in the end").unwrap();
        // Other writes may be refused with the large one, or be unknown; each of them must be reported.
        let [_, ok, stored, told, lost] = row("a value too large", client);
        assert!(ok == 3_000.0 && stored <= 2_999.0 && told == 0.0 && lost == 0.0, "{client}");
        assert!(late("a value too large") >= ok - stored, "{client}");
        let [calls, ok, stored, told, lost] = row("server full", client);
        assert!(
            ok == calls && told == 0.0 && lost == 0.0 && late("server full") == calls - stored,
            "{client}"
        );
        let [_, ok, stored, _, lost] = row("server killed half-way", client);
        assert!(lost == 0.0 && ok - stored <= late("server killed half-way"), "{client}");
        assert_eq!(row("none", client), [3_000.0, 3_000.0, 3_000.0, 0.0, 0.0], "{client}");
    }
    for client in ["as shipped", "NOREPLY", "by hand", together[0], "larder-client", together[1]] {
        assert_eq!(row("none", client), [3_000.0, 3_000.0, 3_000.0, 0.0, 0.0], "{client}");
        assert_eq!(row("exits, closes nothing", client), [3_000.0, 3_000.0, 3_000.0, 0.0, 0.0], "{client}");
        assert_eq!(row("server stopped 300 ms", client), [3_000.0, 3_000.0, 3_000.0, 0.0, 0.0], "{client}");
    }
    // Without a reply that is read, no error is reported.
    for client in ["NOREPLY", "BUFFER"] {
        assert_eq!(row("a value too large", client), [3_000.0, 3_000.0, 2_999.0, 0.0, 1.0], "{client}");
        let [calls, ok, stored, told, lost] = row("server full", client);
        assert!(ok == calls && told == 0.0 && lost > 0.0 && lost == calls - stored, "{client}");
    }
    // Requests in the library's buffer are lost when the process exits.
    let [_, ok, stored, told, lost] = row("exits, closes nothing", "BUFFER");
    assert!(ok == 3_000.0 && told == 0.0 && lost > 0.0 && stored + lost == 3_000.0);
    assert_eq!(figure("none", "BUFFER", "visible after"), None, "half of it waits until something is read");
    assert!(figure("none", "as shipped", "visible after").is_some());
    assert!(run.verdict.contains("0 where every reply was read"), "{}", run.verdict);
    assert!(run.plots.iter().any(|plot| plot.id == "lost-larder"));
}

#[test]
#[ignore = "peers: libmemcached"]
fn a_target_at_an_ipv6_address_is_asked_over_every_link() {
    let Some((_server, target)) = Serving::at_ipv6("memcached", &["--redis-port", "0", "-p"]) else { return };
    let cells = ["--part", "grid", "--operation", "set", "--value-bytes", "8", "--handle", "kept"];
    let links = ["--link", "loopback,relay-1ms", "--rounds", "1", "--visit-ms", "1"];
    let run = matrix(&[&cells[..], &links, &["--no-larder", "--target", target.as_str()]].concat());
    let costs = table(&run, "matrix");
    let of = |client: &str, link: &str| {
        let labels = ["set", "8 B", "kept", "awaited", link, client];
        costs.value("a", &labels, "call").unwrap_or_else(|| panic!("{client}, {link}")).median
    };
    for client in ["none", "by hand", "larder-client"] {
        assert!(of(client, "loopback") > 0.0 && of(client, "relay-1ms") >= 1_000.0, "{client}");
    }
}

#[test]
#[ignore = "peers: libmemcached"]
fn a_target_behind_a_unix_socket_is_asked_as_others() {
    let folder = Folder::new("socket");
    let path = folder.at("socket");
    let target = format!("a=memcached+unix://{path}");
    let server = Serving::start(&["-s", &path], &target).unwrap();
    let cells = ["--part", "grid", "--operation", "set,get", "--value-bytes", "8", "--handle", "kept,churn"];
    let rounds = ["--rounds", "1", "--visit-ms", "1"];
    let run = matrix(&[&cells[..], &rounds, &["--no-larder", "--target", target.as_str()]].concat());
    let costs = table(&run, "matrix");
    let of = |client: &str, handle: &str, figure: &str| {
        costs.value("a", &["set", "8 B", handle, "awaited", "loopback", client], figure)
    };
    for client in ["none", "by hand", "larder-client"] {
        let call = of(client, "kept", "call").unwrap_or_else(|| panic!("{client}"));
        assert!(call.median > 0.0, "{client}");
        assert!(of(client, "kept", "segments").is_none(), "{client}: a Unix socket has no segments");
    }
    assert!(of("none", "churn", "call").is_some());
    drop(server);
}

#[test]
#[ignore = "peers: libmemcached"]
fn the_matrix_has_no_result_where_others_have_the_drivers_core() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let last = list.trim().rsplit([',', '-']).next().unwrap().parse().unwrap();
    let burners = Burners::on(last, 1);
    for experiment in [
        &["matrix", "--part", "grid", "--operation", "get", "--value-bytes", "8", "--handle", "kept"][..],
        &["clients", "--part", "grid", "--driver", "c", "--operation", "hit", "--callers", "1"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_larder"))
            .arg("lab")
            .args(experiment)
            .args(["--quick", "--rounds", "1", "--visit-ms", "20"])
            .output()
            .unwrap();
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{complained}");
        assert!(complained.contains(of_time::CORES), "{complained}");
    }
    drop(burners);
}
