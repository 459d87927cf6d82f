//! Arguments that no client sends by accident: every command of both protocols with numbers at the ends of every width, words of
//! its usage, keys of every kind, too few arguments and too many. No request ends the server, and every request has one complete
//! reply.
//!
//! Tests check arithmetic: a sum that would wrap in a release build fails here.

use larder_commands::memcached::table::{CLASSIC, META};
use larder_commands::redis::row::Command;
use larder_commands::redis::table::REDIS;
use larder_testkit::local::{Local, LocalConnection};
use larder_testkit::pattern::escaped;
use larder_testkit::redis::frame::Frame;
use larder_testkit::talk::encode;

/// Requests of each command.
const ROUNDS: usize = 800;
/// After this many requests the keys are restored, time has passed, and upkeep is done.
const ROUNDS_EACH: usize = 50;

/// Numbers at the ends of widths, and texts that are almost numbers.
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "7",
    "8",
    "16",
    "63",
    "64",
    "65",
    "100",
    "127",
    "128",
    "255",
    "256",
    "1023",
    "16383",
    "16384",
    "65535",
    "65536",
    "131072",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "9223372036854775",
    "9223372036854776",
    "-9223372036854776",
    "1844674407370955161",
    "4611686018427387904",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775807",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "1.5",
    "1e308",
    "-1e308",
    "1e-320",
    "1e4932",
    "0.0000000000000000001e-2147483648",
    "1e2147483647",
    "inf",
    "-inf",
    "nan",
    "0x10",
    "+5",
    " 5",
    "5 ",
    "",
    "-",
    "#0",
    "#9223372036854775807",
    "u63",
    "u64",
    "i64",
    "i65",
    "u0",
];

/// Words that several commands take, and patterns.
const WORDS: &[&str] =
    &["*", "?", "[", "[^a-", "\\", "**************a", "all", "k*", "on", "off", "\r\n", "\0", "\u{ff}"];

/// Commands that do not reply at once, that end the connection or the server, or whose reply is as long as the request wants:
/// these have tests and transcripts of their own.
const LEFT_OUT: &[&str] = &[
    "quit",
    "shutdown",
    "reset",
    "debug|populate",
    "debug|sleep",
    "client|pause",
    "client|reply",
    "client|kill",
    "hrandfield",
    "srandmember",
    "zrandmember",
];

/// Trees: a hash and a set with more elements than one step handles.
const TREES: [(&str, &str); 2] = [("treehash", "HSET"), ("treeset", "SADD")];
const TREE_ELEMENTS: usize = 2500;
/// Trees lose elements; one with fewer than this is created anew.
const TREE_ELEMENTS_MIN: usize = 2000;
/// Requests of each command on trees.
const TREE_ROUNDS: usize = 800;
/// Commands of other groups that take a key of any type.
const OF_ANY_KEY: &[&str] = &[
    "del",
    "unlink",
    "exists",
    "touch",
    "type",
    "expire",
    "persist",
    "copy",
    "rename",
    "renamenx",
    "move",
    "dump",
    "object|encoding",
    "memory|usage",
    "append",
    "getset",
    "strlen",
    "bitop",
    "setrange",
    "mget",
    "set",
    "getdel",
];

/// Random choices.
struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn of<'a, T: ?Sized>(&mut self, list: &[&'a T]) -> &'a T {
        list[self.below(list.len())]
    }

    /// As [`Choices::word`], but half of the keys are trees, and names are names of their elements.
    fn word_of_trees(&mut self, usage: &[&str]) -> Vec<u8> {
        match self.below(4) {
            0 => TREES[self.below(2)].0.as_bytes().to_vec(),
            1 => format!("element-{:054}", self.below(TREE_ELEMENTS)).into_bytes(),
            _ => self.word(usage),
        }
    }

    /// A word for a command whose usage is `usage`.
    fn word(&mut self, usage: &[&str]) -> Vec<u8> {
        match self.below(8) {
            0 | 1 => {
                let keys = keys();
                keys[self.below(keys.len())].0.clone()
            }
            2 | 3 if !usage.is_empty() => self.of(usage).as_bytes().to_vec(),
            4 => self.of(WORDS).as_bytes().to_vec(),
            _ => self.of(NUMBERS).as_bytes().to_vec(),
        }
    }
}

/// Keys and their values: one of each kind.
fn keys() -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let long = |byte| vec![byte; 8193];
    vec![
        (b"number".to_vec(), Some(b"41".to_vec())),
        (b"empty".to_vec(), Some(Vec::new())),
        (b"large".to_vec(), Some(vec![b'x'; 100_000])),
        (b"none".to_vec(), None),
        (b"hash".to_vec(), None),
        (b"list".to_vec(), None),
        (b"set".to_vec(), None),
        (b"zset".to_vec(), None),
        (long(b'k'), Some(Vec::new())),
        (long(b'l'), Some(b"9223372036854775807".to_vec())),
    ]
}

/// A server and a client of each protocol.
struct Talk {
    local: Local,
    redis: LocalConnection,
    memcached: LocalConnection,
}

impl Talk {
    fn new() -> Talk {
        let options =
            ["-o", "relaxed_privileges,track_sizes", "--enable-debug-command", "yes"].map(str::to_owned);
        let mut local = Local::new(&options).expect("a server");
        let (redis, memcached) = (local.resp_connection(), local.connection());
        let mut talk = Talk { local, redis, memcached };
        talk.begin();
        talk
    }

    /// Ends the wait of a blocking command.
    fn end_wait(&mut self) {
        let Some(id) = self.redis.client().filter(|_| self.redis.waits()) else { return };
        let mut other = self.local.resp_connection();
        let id = id.to_string();
        self.local.exchange(&mut other, &encode(&[b"CLIENT", b"UNBLOCK", id.as_bytes()]));
        assert_eq!((other.sent(), self.local.awake().len()), (&b":1\r\n"[..], 1));
        self.local.go_on(&mut self.redis);
    }

    /// Lets time pass, and restores the keys.
    fn begin(&mut self) {
        self.local.shift(70_000);
        self.local.maintain(20);
        let mut client = self.local.resp_connection();
        self.local.exchange(&mut client, &encode(&[b"FLUSHALL"]));
        self.stock();
    }

    /// Stores the keys, whatever else exists.
    fn stock(&mut self) {
        let mut client = self.local.resp_connection();
        for (key, value) in keys() {
            if let Some(value) = value {
                self.local.exchange(&mut client, &encode(&[b"SET", &key, &value]));
            }
        }
        self.local.exchange(&mut client, &encode(&[b"DEL", b"hash", b"list", b"set", b"zset"]));
        for words in ["HSET hash a 1 b 2", "RPUSH list a b 1", "SADD set a b 1", "ZADD zset 1 a 2 b 3 1"] {
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            self.local.exchange(&mut client, &encode(&words));
        }
        self.local.exchange(&mut client, &encode(&[b"PEXPIRE", b"large", b"9000000000"]));
        (self.redis, self.memcached) = (self.local.resp_connection(), self.local.connection());
    }
}

impl Talk {
    /// Stores the trees.
    fn plant(&mut self) {
        let mut client = self.local.resp_connection();
        for (key, put) in TREES {
            let len = if put == "HSET" { "HLEN" } else { "SCARD" };
            self.local.exchange(&mut client, &encode(&[len.as_bytes(), key.as_bytes()]));
            let reply = String::from_utf8_lossy(client.sent()).into_owned();
            client.forget();
            let there: usize = reply.trim().strip_prefix(':').and_then(|n| n.parse().ok()).unwrap_or(0);
            if there < TREE_ELEMENTS_MIN {
                self.local.exchange(&mut client, &encode(&[b"DEL", key.as_bytes()]));
                let names: Vec<Vec<u8>> =
                    (0..TREE_ELEMENTS).map(|n| format!("element-{n:054}").into_bytes()).collect();
                // Each request is one step.
                for some in names.chunks(1_000) {
                    let values = |name: &Vec<u8>| match put {
                        "HSET" => vec![name.clone(), b"1".to_vec()],
                        _ => vec![name.clone()],
                    };
                    let words = [put, key].into_iter().map(|word| word.as_bytes().to_vec());
                    let words: Vec<Vec<u8>> = words.chain(some.iter().flat_map(values)).collect();
                    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                    self.local.exchange(&mut client, &encode(&words));
                }
                client.forget();
            }
        }
    }
}

fn words_of(usage: &'static str) -> Vec<&'static str> {
    let is_end = |c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '.');
    usage.split(is_end).filter(|word| !word.is_empty()).collect()
}

fn shown(words: &[Vec<u8>]) -> String {
    const BYTES: usize = 40;
    let word = |word: &Vec<u8>| escaped(&word[..word.len().min(BYTES)]);
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_redis_command_answers_any_arguments_once() {
    let rows = REDIS.iter().flat_map(|group| group.rows);
    let rows = rows.flat_map(|row| row.subcommands().iter().chain([row]));
    answers_once(rows.filter(|row| !LEFT_OUT.contains(&row.name)), ROUNDS, false);
}

#[test]
fn every_redis_command_on_trees_answers_any_arguments_once() {
    let groups = ["hash", "list", "set", "sorted-set"];
    let rows = REDIS.iter().flat_map(|group| group.rows.iter().map(move |row| (group.name, row)));
    let rows =
        rows.flat_map(|(group, row)| row.subcommands().iter().chain([row]).map(move |row| (group, row)));
    let rows = rows.filter(|(group, row)| groups.contains(group) || OF_ANY_KEY.contains(&row.name));
    answers_once(rows.map(|(_, row)| row).filter(|row| !LEFT_OUT.contains(&row.name)), TREE_ROUNDS, true);
}

/// Checks that each command has one complete reply, whatever its arguments are; with `trees`, some of its
/// keys are trees.
fn answers_once(rows: impl Iterator<Item = &'static Command>, rounds: usize, trees: bool) {
    let mut talk = Talk::new();
    for row in rows {
        let mut choices = Choices(row.name.bytes().map(u64::from).sum());
        let usage = words_of(row.usage);
        for round in 0..rounds {
            if round % ROUNDS_EACH == 0 && !trees {
                talk.begin();
            } else if round % ROUNDS_EACH == 0 {
                talk.stock();
                talk.plant();
            }
            let mut words: Vec<Vec<u8>> = row.name.split('|').map(|word| word.as_bytes().to_vec()).collect();
            let count = arguments(row, &mut choices);
            while words.len() < count {
                words.push(if trees { choices.word_of_trees(&usage) } else { choices.word(&usage) });
            }
            // A random word may be the name of a subcommand that is left out.
            if words.len() > 1 && LEFT_OUT.contains(&&*format!("{}|{}", row.name, shown(&words[1..2]))) {
                continue;
            }
            let sent = encode(&words.iter().map(Vec::as_slice).collect::<Vec<_>>());
            talk.local.exchange(&mut talk.redis, &sent);
            talk.end_wait();
            let (mut rest, mut replies) = (talk.redis.sent(), 0);
            while !rest.is_empty() {
                let frame = Frame::read(rest).unwrap_or_else(|why| panic!("{}: {why}", shown(&words)));
                let (_, length) = frame.unwrap_or_else(|| panic!("{}: half a reply", shown(&words)));
                rest = &rest[length..];
                replies += 1;
            }
            // Each channel of a subscription has a reply.
            let expected = if row.name.contains("subscribe") { replies.max(1) } else { 1 };
            assert_eq!((replies, talk.redis.is_closed()), (expected, false), "{}", shown(&words));
            talk.redis.forget();
            talk.local.deliveries();
        }
    }
}

/// How many words a request has: the fewest possible, or some more.
fn arguments(row: &Command, choices: &mut Choices) -> usize {
    let least = row.arity.unsigned_abs() as usize;
    if row.arity > 0 { least } else { least + choices.below(9) }
}

#[test]
fn every_memcached_command_answers_any_arguments_once() {
    let mut talk = Talk::new();
    // A client that watches gets no more replies.
    let is_asked = |name: &str| !LEFT_OUT.contains(&name) && name != "watch";
    for row in CLASSIC.iter().chain(META).filter(|row| is_asked(row.name)) {
        let mut choices = Choices(row.name.bytes().map(u64::from).sum());
        let usage = words_of(row.usage);
        for round in 0..ROUNDS {
            if round % ROUNDS_EACH == 0 {
                talk.begin();
            }
            let mut words = vec![row.name.as_bytes().to_vec()];
            for _ in 0..choices.below(8) {
                let mut word = choices.word(&usage);
                // A flag of a meta command, with its token. The word must not end the line.
                if row.name.starts_with('m') && choices.below(2) == 0 {
                    word.insert(0, b"bcfhklqstuvxCDEFIJMNORTPLS"[choices.below(26)]);
                }
                word.retain(|byte| !b"\r\n ".contains(byte));
                words.push(word);
            }
            let mut sent = words.join(&b' ');
            sent.extend_from_slice(b"\r\n");
            talk.local.exchange(&mut talk.memcached, &sent);
            talk.memcached.forget();
            // A blocking command replies or does not: another connection shows that the server goes on.
            let mut other = talk.local.connection();
            talk.local.exchange(&mut other, b"mn\r\n");
            assert_eq!(other.sent(), b"MN\r\n", "{}", shown(&words));
            if choices.below(4) == 0 || talk.memcached.is_closed() {
                talk.memcached = talk.local.connection();
            }
        }
    }
}

/// Replies of these commands are as long as the request wants: a client that does not read its reply, or wants none, delays no
/// other.
#[test]
fn picks_of_any_number_are_left_when_nobody_takes_them() {
    let mut talk = Talk::new();
    talk.plant();
    let counts = NUMBERS.iter().flat_map(|count| [(*count).to_owned(), format!("-{count}")]);
    let counts: Vec<String> = counts.filter(|count| !count.starts_with("--")).collect();
    let held = talk.local.store().held_bytes();
    for (name, keys, pairs) in [
        ("HRANDFIELD", ["hash", "treehash"], "WITHVALUES"),
        ("SRANDMEMBER", ["set", "treeset"], ""),
        ("ZRANDMEMBER", ["zset", "none"], "WITHSCORES"),
    ] {
        for key in keys {
            for count in &counts {
                let mut words: Vec<&[u8]> = vec![name.as_bytes(), key.as_bytes(), count.as_bytes()];
                for _ in 0..2 {
                    let mut reader = talk.local.resp_connection();
                    reader.stall();
                    talk.local.exchange(&mut reader, &encode(&words));
                    drop(reader);
                    let mut deaf = talk.local.resp_connection();
                    talk.local.exchange(&mut deaf, &encode(&[b"CLIENT", b"REPLY", b"OFF"]));
                    talk.local.exchange(&mut deaf, &encode(&words));
                    talk.local.exchange(&mut deaf, &encode(&[b"CLIENT", b"REPLY", b"ON"]));
                    talk.local.exchange(&mut deaf, &encode(&[b"PING"]));
                    let said = String::from_utf8_lossy(deaf.sent()).into_owned();
                    assert_eq!(said, "+OK\r\n+PONG\r\n", "{name} {key} {count}");
                    words.extend([pairs.as_bytes()].iter().filter(|pairs| !pairs.is_empty()));
                }
                assert_eq!(talk.local.store().held_bytes(), held, "{name} {key} {count}");
            }
        }
    }
}
