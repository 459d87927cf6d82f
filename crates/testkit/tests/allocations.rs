//! In steady state a request costs no heap allocation: session, store and reply.

use larder_testkit::local::{Local, LocalConnection};

/// Runs `requests` until everything has its memory, then counts.
fn allocations(local: &mut Local, connection: &mut LocalConnection, requests: &[u8]) -> u64 {
    let mut round = || {
        local.exchange(connection, requests);
        assert!(!connection.is_closed() && !connection.sent().is_empty());
        connection.forget();
    };
    for _ in 0..1000 {
        round();
    }
    allocation_counter::measure(|| {
        for _ in 0..100 {
            round();
        }
    })
    .count_total
}

fn check(name: &str, requests: &[u8]) {
    let mut local = Local::new(&[]).expect("a server");
    let mut connection = local.connection();
    local.exchange(&mut connection, b"set k 1 0 5\r\nvalue\r\nset n 0 0 3\r\n100\r\nms m 5\r\nvalue\r\n");
    connection.forget();
    assert_eq!(allocations(&mut local, &mut connection, requests), 0, "{name}");
}

#[test]
fn reads_allocate_nothing() {
    check("get", b"get k\r\n");
    check("get of a missing key", b"get missing\r\n");
    check("get of many keys", format!("get {}\r\n", "k missing n ".repeat(100)).as_bytes());
    check("gets, gat", b"gets k\r\ngat 0 k\r\ngats 0 k\r\n");
    check("mg", b"mg k v f t c k s\r\nmg missing v\r\nmg m v h l\r\n");
    check("a pipeline of gets", "get k\r\n".repeat(200).as_bytes());
}

#[test]
fn writes_allocate_nothing() {
    check("set", b"set k 1 0 5\r\nvalue\r\n");
    check("set with an exptime", b"set k 1 100 5\r\nvalue\r\n");
    check("add, replace", b"add k 0 0 1\r\nx\r\nreplace k 0 0 1\r\nx\r\n");
    check("append, prepend", b"set k 1 0 1\r\nb\r\nappend k 0 0 1\r\nc\r\nprepend k 0 0 1\r\na\r\n");
    check("cas", b"cas k 0 0 1 1\r\nx\r\n");
    check("delete", b"delete k\r\nset k 0 0 1\r\nx\r\n");
    check("incr, decr", b"incr n 1\r\ndecr n 1\r\n");
    check("touch", b"touch k 100\r\ntouch missing 1\r\n");
    check("ms, md, ma", b"ms m 5 c\r\nvalue\r\nma n v\r\nmd m I\r\nmd m\r\nms m 1\r\nx\r\n");
    check("a pipeline of sets", "set k 1 0 5\r\nvalue\r\n".repeat(200).as_bytes());
}

#[test]
fn errors_allocate_nothing() {
    check("bad lines", b"bogus\r\nset k x 0 1\r\nx\r\nincr k 1\r\nmg k !\r\nget\r\n");
}

#[test]
fn large_values_allocate_nothing() {
    let set = format!("set large 0 0 100000\r\n{}\r\n", "v".repeat(100_000));
    check("set of 100 kB", set.as_bytes());
    check("set and get of 100 kB", format!("{set}get large\r\n").as_bytes());
}
