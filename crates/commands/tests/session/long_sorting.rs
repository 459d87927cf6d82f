//! SORT by values that are longer than a leaf, and of such values that GET has stored: up to the length of an element, some of
//! them at a time, and in a transaction no more than is done while others wait.

use crate::apart::{array, bulk, job};
use crate::long_members::{turns, turns_of};
use crate::named::exec;
use crate::values::{is, large_bench};
use crate::{Bench, bench, slices};
use larder_commands::{Next, Session};

const MEBIBYTE: usize = 1 << 20;
/// The longest element of a list.
const MOST: usize = 4 * MEBIBYTE;
const COUNT: usize = 16;

const NO_NUMBER: &str = "-ERR One or more scores can't be converted into double\r\n";
const TOO_LONG: &str = "-ERR value to sort by exceeds maximum allowed size (4194304 bytes)\r\n";
const TOO_LARGE: &str = "-ERR collection exceeds maximum allowed size (16384 bytes of an element with its key, of a list, a set, a value or an entry of a stream 4 MiB, of a sorted set 1 MiB; an element of a list or a value that comes last 64 MiB)\r\n";
const TOO_MUCH: &str =
    "-ERR SORT in a transaction reads at most 1048576 bytes of values that are longer than 16384 bytes\r\n";
const TOO_LONG_NUMBERS: &str =
    "-ERR SORT reads at most 67108864 bytes of numbers that are longer than 512 bytes\r\n";
const ENOUGH: &str = "-ERR this EXEC has looked through or replied as much as is done while others wait\r\n";

/// Values of a mebibyte for a list of so many numbers, which order them the other way round and are alike but for their ends.
fn weighed() -> (Bench, Vec<String>) {
    let mut bench = large_bench();
    let job = job(MEBIBYTE - 2);
    let values: Vec<String> = (0..COUNT).map(|n| format!("{job}{}", 99 - n)).collect();
    for (n, value) in values.iter().enumerate() {
        slices::set(&mut bench, &format!("w_{n}"), value.as_bytes());
        bench.reply(&format!("RPUSH l {n}"));
    }
    (bench, values)
}

fn numbers(numbers: impl Iterator<Item = usize>) -> String {
    let texts: Vec<String> = numbers.map(|n| n.to_string()).collect();
    array(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}

/// As long as a leaf takes, as lies in one piece, as is copied without a look at how long it is; and more.
#[test]
fn long_values_are_sorted_by_and_stored() {
    let mut bench = large_bench();
    let held = bench.worker.store().held_bytes();
    is(&mut bench, "RPUSH l 1 2 3", ":3\r\n");
    for bytes in [16_300, 16_383, 16_384, 16_385, 17_407, 17_408, 17_409, 60_000, MEBIBYTE] {
        let (job, other) = (job(bytes), job(bytes - 1) + "!");
        for (key, value) in [("w_1", &job), ("w_3", &other)] {
            slices::set(&mut bench, key, value.as_bytes());
        }
        is(&mut bench, &format!("HSET h_1 f {job}"), if bytes == 16_300 { ":1\r\n" } else { ":0\r\n" });
        is(&mut bench, &format!("HSET h_3 f {other}"), if bytes == 16_300 { ":1\r\n" } else { ":0\r\n" });
        // It ends in a comma or a digit, which are behind a `!`.
        let (order, back) = (array(&["2", "3", "1"]), array(&["1", "3", "2"]));
        let got = format!("*3\r\n$-1\r\n{}{}", bulk(&other), bulk(&job));
        let stored = array(&["", &other, &job]);
        for by in ["w_*", "h_*->f"] {
            is(&mut bench, &format!("SORT l BY {by} ALPHA"), &order);
            is(&mut bench, &format!("SORT_RO l BY {by} ALPHA DESC"), &back);
            is(&mut bench, &format!("SORT l BY {by} ALPHA GET {by}"), &got);
            is(&mut bench, &format!("SORT l BY {by} ALPHA GET {by} STORE d"), ":3\r\n");
            is(&mut bench, "LRANGE d 0 -1", &stored);
            is(&mut bench, &format!("SORT l BY {by}"), NO_NUMBER);
            is(&mut bench, "DEL d", ":1\r\n");
        }
    }
    assert_eq!(bench.worker.store().held_bytes(), held);
    bench.check();
}

#[test]
fn a_value_to_sort_by_or_to_be_stored_is_no_longer_than_an_element() {
    for bytes in [MOST - 1, MOST, MOST + 1] {
        let (mut bench, fits) = (large_bench(), bytes <= MOST);
        let value = "b".repeat(bytes);
        is(&mut bench, "RPUSH l 1 2", ":2\r\n");
        is(&mut bench, "SET w_2 a", "+OK\r\n");
        slices::set(&mut bench, "w_1", value.as_bytes());
        is(&mut bench, "RPUSH d old", ":1\r\n");
        let or = |fits: bool, reply: &str, error: &str| (if fits { reply } else { error }).to_owned();
        is(&mut bench, "SORT l BY w_* ALPHA", &or(fits, &array(&["2", "1"]), TOO_LONG));
        is(&mut bench, "SORT l BY w_* ALPHA STORE e", &or(fits, ":2\r\n", TOO_LONG));
        is(&mut bench, "EXISTS e", &or(fits, ":1\r\n", ":0\r\n"));
        is(&mut bench, "SORT l GET w_* GET # STORE d", &or(fits, ":4\r\n", TOO_LARGE));
        is(&mut bench, "LINDEX d 0", &or(fits, &bulk(&value), &bulk("old")));
        is(&mut bench, "SORT l GET w_*", &format!("*2\r\n{}{}", bulk(&value), bulk("a")));
        // The field of a hash is no longer in any case.
        is(&mut bench, &format!("HSET h_1 f {value}"), &or(fits, ":1\r\n", TOO_LARGE));
        is(&mut bench, "HSET h_2 f a", ":1\r\n");
        let order = if fits { array(&["2", "1"]) } else { array(&["1", "2"]) };
        is(&mut bench, "SORT l BY h_*->f ALPHA", &order);
        is(&mut bench, "SORT l BY nosort GET h_*->f STORE d", ":2\r\n");
        is(&mut bench, "LINDEX d 0", &or(fits, &bulk(&value), &bulk("")));
        bench.check();
    }
}

/// Their digits are read where they lie, up to what is wrong in them.
#[test]
fn long_numbers_are_sorted_by() {
    let mut bench = large_bench();
    let held = bench.worker.store().held_bytes();
    let zeros = "0".repeat(20_000);
    is(&mut bench, "RPUSH l 1 2 3 4", ":4\r\n");
    is(&mut bench, "MSET w_2 2 w_3 3", "+OK\r\n");
    for (value, order) in [
        (format!("0.{zeros}25e20001"), ["4", "2", "1", "3"]),
        (format!("-{zeros}1"), ["1", "4", "2", "3"]),
        (format!("7{zeros}"), ["4", "2", "3", "1"]),
        (format!("{zeros}2.5\0{zeros}x"), ["4", "2", "1", "3"]),
    ] {
        slices::set(&mut bench, "w_1", value.as_bytes());
        is(&mut bench, "SORT l BY w_*", &array(&order));
        is(&mut bench, &format!("HMSET h_1 f {value}"), "+OK\r\n");
        is(&mut bench, "HMSET h_2 f 2", "+OK\r\n");
        is(&mut bench, "HMSET h_3 f 3", "+OK\r\n");
        is(&mut bench, "SORT l BY h_*->f", &array(&order));
    }
    // And so are elements that are numbers themselves.
    is(&mut bench, &format!("RPUSH m 3 {zeros}2 -{zeros}.{zeros}5e20000"), ":3\r\n");
    let own = [format!("-{zeros}.{zeros}5e20000"), format!("{zeros}2"), "3".to_owned()];
    is(&mut bench, "SORT m", &array(&[&own[0], &own[1], &own[2]]));
    for bytes in [MOST - 1, MOST, MOST + 1] {
        let fits = bytes <= MOST;
        slices::set(&mut bench, "w_1", format!("{}25e-1", "0".repeat(bytes - 5)).as_bytes());
        let order = array(&["4", "2", "1", "3"]);
        is(&mut bench, "SORT l BY w_*", if fits { &order } else { TOO_LONG });
        slices::set(&mut bench, "w_1", format!("{}x", "0".repeat(bytes - 1)).as_bytes());
        is(&mut bench, "SORT l BY w_*", if fits { NO_NUMBER } else { TOO_LONG });
        // What is wrong from its beginning is not read to its end.
        slices::set(&mut bench, "w_1", "x".repeat(bytes).as_bytes());
        is(&mut bench, "SORT l BY w_*", NO_NUMBER);
    }
    assert_eq!(bench.worker.store().held_bytes(), held);
    bench.check();
}

/// A list names one key as often as it likes: what is read of long numbers together is bounded, and short ones do not count.
#[test]
fn a_sort_reads_64_mebibytes_of_long_numbers_and_no_byte_more() {
    let mut bench = large_bench();
    is(&mut bench, &format!("RPUSH l 3 2{}", " 1".repeat(15)), ":17\r\n");
    let number = |value: &str, bytes: usize| "0".repeat(bytes - 1) + value;
    slices::set(&mut bench, "w_1", number("1", MOST).as_bytes());
    let sorted = array(&[&["1"; 15][..], &["2", "3"]].concat());
    for (two, three, fits) in
        [(MOST - 514, 513, true), (MOST - 513, 513, true), (MOST - 512, 513, false), (MOST, 512, true)]
    {
        slices::set(&mut bench, "w_2", number("2", two).as_bytes());
        slices::set(&mut bench, "w_3", number("3", three).as_bytes());
        is(&mut bench, "SORT l BY w_*", if fits { &sorted } else { TOO_LONG_NUMBERS });
        is(&mut bench, "SORT l BY w_* STORE d", if fits { ":17\r\n" } else { TOO_LONG_NUMBERS });
        is(&mut bench, "DEL d", if fits { ":1\r\n" } else { ":0\r\n" });
    }
    // The same key once more than it may be named, and a shorter number.
    is(&mut bench, "RPUSH l 1 1 1", ":20\r\n");
    is(&mut bench, "SORT l BY w_*", TOO_LONG_NUMBERS);
    slices::set(&mut bench, "w_1", number("1", MEBIBYTE).as_bytes());
    slices::set(&mut bench, "w_2", b"2");
    let all = array(&[&["1"; 18][..], &["2", "3"]].concat());
    is(&mut bench, "SORT l BY w_*", &all);
    bench.check();
}

/// The list is so short that it would be sorted in one step: what the values take is found out while they are read.
#[test]
fn no_turn_reads_sorts_or_stores_more_than_a_mebibyte_of_values() {
    let (mut bench, values) = weighed();
    let held = bench.worker.store().held_bytes();
    let texts: Vec<&str> = values.iter().map(String::as_str).collect();
    let count = format!(":{COUNT}\r\n");
    for (command, wanted, turns_min) in [
        // Each is read, sorted, and merged in turns of its own; the first turn reads two.
        ("SORT l BY w_* ALPHA", numbers((0..COUNT).rev()), 3 * COUNT - 4),
        ("SORT l BY w_* ALPHA DESC LIMIT 2 3", numbers(2..5), 2 * COUNT),
        // Or read, and put in.
        ("SORT l BY nosort GET w_* STORE d", count, 3 * COUNT / 2),
        ("LRANGE d 0 -1", array(&texts), 1),
    ] {
        let (reply, turned, ns_max) = turns(&mut bench, command);
        assert!(turned >= turns_min && ns_max < 10_000_000, "{command} {turned} {ns_max}");
        assert!(reply == wanted.as_bytes(), "{command} {}", reply.len());
    }
    for n in 0..COUNT {
        slices::set(&mut bench, &format!("w_{n}"), format!("{}{n}", "0".repeat(MEBIBYTE)).as_bytes());
    }
    let (reply, turned, ns_max) = turns(&mut bench, "SORT l BY w_* DESC");
    assert!(turned >= COUNT / 2 && ns_max < 10_000_000, "{turned} {ns_max}");
    assert!(reply == numbers((0..COUNT).rev()).as_bytes());
    assert_eq!(bench.worker.store().held_bytes(), held);
    bench.check();
}

/// What is copied is charged before it is, and given back.
#[test]
fn values_that_connections_may_not_hold_are_not_copied() {
    // They may hold 16 MiB of it, and a copy counts twice.
    let mut bench = bench();
    let held = bench.worker.store().held_bytes();
    for n in 0..3 {
        slices::set(&mut bench, &format!("w_{n}"), &vec![b'a' + n; MOST]);
        bench.reply(&format!("RPUSH l {n}"));
    }
    for command in ["SORT l BY w_* ALPHA", "SORT l BY nosort GET w_* STORE d"] {
        is(&mut bench, command, "-OOM connections hold as much memory as they may\r\n");
        assert_eq!(bench.worker.store().held_bytes(), held, "{command}");
    }
    is(&mut bench, "EXISTS d", ":0\r\n");
    is(&mut bench, "RPUSH one 1", ":1\r\n");
    is(&mut bench, "SORT one BY w_* ALPHA", &array(&["1"]));
    assert_eq!(bench.worker.store().held_bytes(), held);
}

#[test]
fn what_has_come_to_take_long_is_begun_anew_where_its_key_changes() {
    let (mut bench, _) = weighed();
    let mut session = Session::new();
    for (words, elements) in [("SORT l BY w_* ALPHA STORE d", COUNT), ("SORT l GET w_* STORE d", COUNT + 1)] {
        let sent = bench.asked(words);
        assert_eq!(bench.turn(&mut session, &sent), (Next::Yield, Vec::new()), "{words}");
        is(&mut bench, &format!("RPUSH l {elements}"), &format!(":{}\r\n", elements + 1));
        let (reply, _) = bench.turns(&mut session, b"");
        assert_eq!(String::from_utf8_lossy(&reply), format!(":{}\r\n", elements + 1), "{words}");
        is(&mut bench, "LLEN d", &format!(":{}\r\n", elements + 1));
    }
    bench.check();
}

/// One of a worker's clients works at large values at a time.
#[test]
fn two_clients_that_come_to_take_long_go_on_one_behind_the_other() {
    let (mut bench, _) = weighed();
    let held = bench.worker.store().held_bytes();
    let sent = bench.asked("SORT l BY w_* ALPHA");
    let wanted = numbers((0..COUNT).rev());
    let mut clients = [(Session::new(), Next::Yield, Vec::new()), (Session::new(), Next::Yield, Vec::new())];
    let mut turns = 0;
    while clients.iter().any(|(_, next, _)| *next != Next::Receive) {
        for (session, next, reply) in clients.iter_mut().filter(|(_, next, _)| *next != Next::Receive) {
            let input: &[u8] = if turns == 0 { &sent } else { b"" };
            let more;
            (*next, more) = bench.turn(session, input);
            reply.extend(more);
        }
        turns += 1;
        assert!(turns < 1_000, "neither goes on");
    }
    for (_, _, reply) in &clients {
        assert!(*reply == wanted.as_bytes(), "{}", String::from_utf8_lossy(&reply[..reply.len().min(80)]));
    }
    assert_eq!(bench.worker.store().held_bytes(), held);
}

/// A transaction is one step: what it reads of long values together has a mebibyte, by each SORT, and less in a long EXEC.
#[test]
fn a_transaction_reads_a_mebibyte_of_long_values_and_no_byte_more() {
    let mut bench = large_bench();
    is(&mut bench, "RPUSH l 1 2 3", ":3\r\n");
    // Short ones do not count.
    slices::set(&mut bench, "w_3", &[b'c'; 17_000]);
    for bytes in [MEBIBYTE - 1, MEBIBYTE, MEBIBYTE + 1] {
        let fits = bytes <= MEBIBYTE;
        let (one, other) = ("b".repeat(MEBIBYTE / 2), "a".repeat(bytes - MEBIBYTE / 2));
        slices::set(&mut bench, "w_1", one.as_bytes());
        slices::set(&mut bench, "w_2", other.as_bytes());
        let order = array(&["2", "1", "3"]);
        let order = if fits { order.as_str() } else { TOO_MUCH };
        let three = if fits { ":3\r\n" } else { TOO_MUCH };
        assert_eq!(exec(&mut bench, &["SORT l BY w_* ALPHA"]), format!("*1\r\n{order}"), "{bytes}");
        assert_eq!(exec(&mut bench, &["SORT l GET w_* STORE d"]), format!("*1\r\n{three}"), "{bytes}");
        is(&mut bench, "EXISTS d", if fits { ":1\r\n" } else { ":0\r\n" });
        is(&mut bench, "DEL d", if fits { ":1\r\n" } else { ":0\r\n" });
        let script = "EVAL return{redis.pcall('SORT','l','BY','w_*','ALPHA','GET','w_*','STORE','d')} 0";
        // BY and GET read them both.
        let reply = String::from_utf8(bench.reply(script)).unwrap();
        assert!(reply.contains(TOO_MUCH.trim_end()), "{}", &reply[..reply.len().min(200)]);
    }
    for (key, digits) in [("w_1", MEBIBYTE / 2), ("w_2", MEBIBYTE / 2 + 1)] {
        slices::set(&mut bench, key, "1".repeat(digits).as_bytes());
    }
    is(&mut bench, "SET w_3 3", "+OK\r\n");
    assert_eq!(exec(&mut bench, &["SORT l BY w_*"]), format!("*1\r\n{TOO_MUCH}"));
    is(&mut bench, "SORT l BY w_*", &array(&["3", "1", "2"]));
    // An element is weighed beforehand, however long it is.
    is(&mut bench, &format!("RPUSH m {}", job(MEBIBYTE + 1)), ":1\r\n");
    is(
        &mut bench,
        "EVAL return{redis.call('SORT','m','BY','nosort','GET','#','STORE','d')} 0",
        "*1\r\n:1\r\n",
    );
    // Each takes some milliseconds, and together they take no more than EXEC may.
    slices::set(&mut bench, "w_2", &[b'b'; MEBIBYTE / 2]);
    let reply = exec(&mut bench, &["SORT l BY w_* ALPHA"; 12]);
    let refused = reply.matches(TOO_MUCH).count();
    assert!(reply.starts_with("*12\r\n*3\r\n") && (5..12).contains(&refused), "{refused}");
    bench.check();
}

/// A number that is longer than may be read is not read to its end before that is said: else each SORT of an EXEC took 4 ms.
#[test]
fn exec_reads_of_a_long_number_only_what_it_may_read() {
    const SORTS: usize = 40;
    let mut bench = large_bench();
    is(&mut bench, "RPUSH l 1", ":1\r\n");
    for (value, error) in [("1", TOO_MUCH), ("x", NO_NUMBER), ("1\0", "*1\r\n$1\r\n1\r\n")] {
        let digits = "1".repeat(MOST - value.len());
        slices::set(&mut bench, "w_1", format!("{value}{digits}").as_bytes());
        let mut sent = bench.asked("MULTI");
        (0..SORTS).for_each(|_| sent.extend(bench.asked("SORT l BY w_*")));
        sent.extend(bench.asked("EXEC"));
        let (reply, _, ns_max) = turns_of(&mut bench, &sent);
        let told = format!("+OK\r\n{}*{SORTS}\r\n{}", "+QUEUED\r\n".repeat(SORTS), error.repeat(SORTS));
        assert_eq!(String::from_utf8_lossy(&reply), told, "{value:?}");
        // A mebibyte each until 10 ms of work are done, and of the others what a short one has.
        assert!(ns_max < 13_000_000, "{value:?} {ns_max}");
    }
    // Outside of it all of it is read.
    slices::set(&mut bench, "w_1", "1".repeat(MOST).as_bytes());
    is(&mut bench, "SORT l BY w_*", &array(&["1"]));
    bench.check();
}

/// A list of so many elements that are alike: a pattern names the same key of each.
fn alike(bench: &mut Bench, key: &str, count: usize) {
    let words = " 1".repeat(count);
    is(bench, &format!("RPUSH {key}{words}"), &format!(":{count}\r\n"));
}

/// The replies of so many times the same command in EXEC, and what its longest turn has done.
fn exec_times(bench: &mut Bench, command: &str, times: usize) -> (String, u64) {
    let mut sent = bench.asked("MULTI");
    (0..times).for_each(|_| sent.extend(bench.asked(command)));
    sent.extend(bench.asked("EXEC"));
    let (reply, _, ns_max) = turns_of(bench, &sent);
    let reply = String::from_utf8(reply).unwrap();
    let queued = format!("+OK\r\n{}*{times}\r\n", "+QUEUED\r\n".repeat(times));
    (reply.strip_prefix(&queued).expect("all of it is run").to_owned(), ns_max)
}

/// Values that no look is weighed for, though each is no longer than a leaf: 9 times as much as is copied of them is sorted by.
#[test]
fn exec_reads_no_more_values_of_a_leaf_each_than_take_10_ms() {
    let mut bench = large_bench();
    slices::set(&mut bench, "w_1", &[b'1'; 17_000]);
    slices::set(&mut bench, "v_1", &[b'1'; 16_000]);
    let ones = |count: usize| array(&vec!["1"; count]);
    let told = |count: usize| format!("*{count}\r\n{}", bulk(&"1".repeat(16_000)).repeat(count));
    let stored = |count: usize| format!(":{count}\r\n");
    type Expected<'e> = &'e dyn Fn(usize) -> String;
    let cases: [(&str, [usize; 2], Expected<'_>); 4] = [
        // 77 µs each, …
        ("BY w_* ALPHA", [100, 200], &ones),
        // … 18, …
        ("BY w_*", [400, 1_000], &ones),
        // … 25, …
        ("BY nosort GET v_* STORE d", [200, 600], &stored),
        // … and 9.
        ("BY nosort GET v_*", [1_000, 1_500], &told),
    ];
    for (options, [few, many], expected) in cases {
        bench.reply("DEL few many");
        alike(&mut bench, "few", few);
        alike(&mut bench, "many", many);
        let (reply, _) = exec_times(&mut bench, &format!("SORT few {options}"), 1);
        assert!(reply == expected(few), "{options}: {}", &reply[..reply.len().min(80)]);
        let (reply, ns_max) = exec_times(&mut bench, &format!("SORT many {options}"), 2);
        assert!(reply == ENOUGH.repeat(2), "{options}: {}", &reply[..reply.len().min(80)]);
        assert!(ns_max < 11_000_000, "{options} {ns_max}");
        // Outside of it there are steps.
        let (reply, _, _) = turns(&mut bench, &format!("SORT many {options}"));
        assert!(reply == expected(many).as_bytes(), "{options}");
    }
    // Several that are short share it.
    bench.reply("DEL few");
    alike(&mut bench, "few", 100);
    let (reply, ns_max) = exec_times(&mut bench, "SORT few BY w_* ALPHA", 10);
    assert_eq!(reply, ones(100) + &ENOUGH.repeat(9));
    assert!(ns_max < 12_000_000, "{ns_max}");
    bench.check();
}

/// Long elements are copied, read as numbers or compared, and replied: an EXEC that would take more than 10 ms for that is
/// refused before anything is run.
#[test]
fn exec_weighs_what_it_takes_to_sort_long_elements() {
    let mut bench = large_bench();
    let half = |n: usize, bytes: usize| format!("{n}{}", "0".repeat(bytes / 2 - 1));
    for (write, options, bytes, fits) in [
        // 5 ns a byte, …
        ("RPUSH k", " ALPHA", 3 << 19, true),
        ("RPUSH k", " ALPHA", 5 << 19, false),
        // … 6, …
        ("RPUSH k", "", 5 << 18, true),
        ("RPUSH k", "", 2 << 20, false),
        ("SADD k", " BY nosort", 5 << 19, false),
        // … and 1.
        ("RPUSH k", " BY nosort", 8 << 20, true),
    ] {
        bench.reply("DEL k");
        is(&mut bench, &format!("{write} {} {}", half(2, bytes), half(1, bytes)), ":2\r\n");
        let reply = exec(&mut bench, &[&format!("SORT k{options}")]);
        assert_eq!(!reply.starts_with("-EXECABORT "), fits, "{write}{options} {bytes}");
        assert_eq!(reply.len() > bytes, fits, "{write}{options} {bytes}");
    }
    // One by itself is compared with none.
    let one = "1".repeat(MOST);
    bench.reply("DEL k");
    is(&mut bench, &format!("RPUSH k {one}"), ":1\r\n");
    for options in ["", " ALPHA"] {
        assert!(exec(&mut bench, &[&format!("SORT k{options}")]) == format!("*1\r\n{}", array(&[&one])));
    }
    // How often GET names it is counted while it is replied, or stored.
    let gets = |count: usize| format!("SORT k BY nosort{}", " GET #".repeat(count));
    let four = array(&[one.as_str(); 4]);
    assert!(exec(&mut bench, &[&gets(4)]) == format!("*1\r\n{four}"));
    assert_eq!(exec(&mut bench, &[&gets(5)]), format!("*1\r\n{ENOUGH}"));
    for (count, reply) in [(1, ":1\r\n"), (2, ENOUGH)] {
        assert_eq!(exec(&mut bench, &[&(gets(count) + " STORE d")]), format!("*1\r\n{reply}"), "{count}");
    }
    bench.check();
}

/// What is reckoned for a look has room for 512 bytes.
#[test]
fn exec_reads_short_values_however_much_was_done() {
    // Each is weighed as 2.7 ms before anything is run, and takes 4.5.
    const SORTS: usize = 3;
    for (bytes, refused) in [(511, 0), (512, 0), (513, 1)] {
        let mut bench = large_bench();
        alike(&mut bench, "l", 1_000);
        slices::set(&mut bench, "w_1", &vec![b'1'; bytes]);
        let (reply, _) = exec_times(&mut bench, "SORT l BY w_* ALPHA", SORTS);
        let expected = array(&["1"; 1_000]).repeat(SORTS - refused) + &ENOUGH.repeat(refused);
        assert!(reply == expected, "{bytes}: {}", reply.matches(ENOUGH).count());
        bench.check();
    }
}

/// What others have done in the same turn, or what items that gave way took, is none of EXEC's work.
#[test]
fn exec_reads_long_values_whatever_was_done_before_it() {
    let mut bench = large_bench();
    is(&mut bench, "RPUSH l 1 2", ":2\r\n");
    slices::set(&mut bench, "w_1", &[b'b'; 20_000]);
    let mut session = Session::new();
    for (words, told) in [("MULTI", "+OK\r\n"), ("SORT l BY w_* ALPHA", "+QUEUED\r\n")] {
        let sent = bench.asked(words);
        assert_eq!(String::from_utf8_lossy(&bench.turn(&mut session, &sent).1), told);
    }
    bench.room.work().spend(20_000_000);
    let sent = bench.asked("EXEC");
    let (_, reply) = bench.same_slice(&mut session, &sent);
    assert_eq!(String::from_utf8_lossy(&reply), format!("*1\r\n{}", array(&["2", "1"])));
    bench.check();
}

/// What GET has stored may be longer than what was sorted: what comes behind it in an EXEC is weighed by that.
#[test]
fn exec_weighs_that_what_was_stored_may_be_long() {
    let mut bench = large_bench();
    is(&mut bench, "RPUSH l 1", ":1\r\n");
    slices::set(&mut bench, "w_1", &vec![b'x'; MEBIBYTE]);
    let value = "x".repeat(MEBIBYTE);
    let told = format!("*2\r\n:1\r\n{}", bulk(&value));
    assert!(exec(&mut bench, &["SORT l GET w_* STORE d", "LINDEX d 0"]) == told);
    let all = [&["SORT l GET w_* STORE d"][..], &["LRANGE d 0 -1"; 30]].concat();
    let reply = exec(&mut bench, &all);
    assert!(reply.starts_with("-EXECABORT "), "{}", &reply[..reply.len().min(80)]);
    // Of elements alone, and of nothing, it is known how long they are.
    is(&mut bench, "DEL d", ":1\r\n");
    let all = [&["SORT l GET # STORE d"][..], &["LRANGE d 0 -1"; 30]].concat();
    let reply = exec(&mut bench, &all);
    assert!(reply.starts_with("*31\r\n:1\r\n"), "{}", &reply[..reply.len().min(80)]);
    bench.check();
}
