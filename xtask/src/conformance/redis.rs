//! Redis's own tools and its Python client's tests, on the RESP port.

use super::Counts;
use super::Program;
use super::namespace::Namespace;
use super::secured::Certificates;
use super::suites::{PYTEST, agreeing, check, pytest, summed_up};
use crate::install::{debian, python, python_source};
use crate::peers::{peer, version};
use crate::programs::built;
use crate::run::{Outcome, capture, root};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Options for suites that use DEBUG.
const DEBUG: [&str; 2] = ["--enable-debug-command", "yes"];
const REDIS_PY: &str = "5.2.1";
/// What redis-py's tests need beside it.
const REDIS_PY_TESTS: [&str; 5] =
    [PYTEST, "pytest-asyncio==0.23.8", "pytest-timeout==2.3.1", "packaging==25.0", "mock==5.2.0"];

/// Tests what redis-cli does beside sending commands.
pub fn redis_cli(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    debian(&[("redis-cli", "redis-tools")])?;
    let _server = namespace.serve(program, &DEBUG)?;
    let cli = |arguments: &[&str]| namespace.output("redis-cli", arguments);
    cli(&["debug", "populate", "1000", "key", "10"])?;
    cli(&["set", "biggest", &"x".repeat(5000)])?;
    let scan = cli(&["--scan", "--pattern", "key:*"])?;
    let keys: BTreeSet<&str> = scan.lines().collect();
    check("--scan", keys.len() == 1000, &scan)?;
    let big = cli(&["--bigkeys"])?;
    let summary = "Biggest string found '\"biggest\"' has 5000 bytes";
    check("--bigkeys", big.contains(summary) && big.contains("Sampled 1001 keys"), &big)?;
    let memory = cli(&["--memkeys"])?;
    check("--memkeys", memory.contains("Sampled 1001 keys"), &memory)?;
    let mut stat = namespace.command("sh");
    // It never ends: head ends it after two lines of figures. stdbuf makes it write each line at once.
    stat.args(["-c", "timeout 600 stdbuf -oL redis-cli --stat -i 1 | head -n 4"]);
    let (_, stat) = crate::run::capture(stat)?;
    check("--stat", stat.contains("keys") && stat.contains("1001"), &stat)?;
    // redis-cli and valkey-cli show hints from COMMAND DOCS for a line that is typed, also for commands that they do not know.
    let mut hints = 0;
    for newest in ["redis-cli", "valkey-cli"] {
        let newest = peer(newest)?;
        println!("{}", version(&newest)?);
        for (typed, hint) in HINTS {
            let shown = namespace.output(&newest, &["--test_hint", typed])?;
            check(typed, shown.trim() == *hint, &shown)?;
            hints += 1;
        }
    }
    Ok(Counts { passed: 4 + hints, skipped: 0 })
}

/// What is typed, and what redis-cli and valkey-cli then show.
const HINTS: &[(&str, &str)] = &[
    ("CL.THROTTLE ", "key max_burst count period [quantity]"),
    ("DELEX k IFNE ", "value"),
    (
        "SET k v IFEQ ",
        "value [GET] [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|KEEPTTL]",
    ),
    ("SET k v EX 5 ", "[NX|XX|IFEQ value|IFNE value] [GET]"),
    ("BITOP DIFF1 ", "destkey key [key ...]"),
    ("BITCOUNT k 0 ", "end [BYTE|BIT]"),
    (
        "MSETEX 2 a b ",
        "[key value ...] [NX|XX] [EX seconds|PX milliseconds|EXAT unix-time-seconds|PXAT unix-time-milliseconds|KEEPTTL]",
    ),
    ("HELLO 3 AUTH u ", "password [SETNAME clientname]"),
];

/// The number of streams that are sent to each server and to Larder. They are the same in every run.
const STREAMS: u32 = 400;
/// The number of streams half of whose commands are on collections. Each is as long as the others.
const ELEMENT_STREAMS: u32 = 300;
/// The number of these streams in the long form, which uses others.
const ELEMENT_STREAMS_LONG: u32 = 4000;
/// The most streams of one run of the program, which has to end.
const STREAMS_OF_A_RUN: u32 = 500;

/// The fewest runs of transcripts, in one piece and byte by byte, that must pass on each server.
const TRANSCRIPTS_LEAST: u32 = 170;

/// The versions that the transcripts and the lists of differences describe.
const KNOWN: [&str; 2] = ["Redis server v=8.0.", "Valkey server v=9.1."];

/// Whether differences from a server count. For another version than the known one they do not, and a line says so.
fn is_known(server: &Path) -> Outcome<bool> {
    let version = version(server)?;
    let is_known = KNOWN.iter().any(|known| version.starts_with(known));
    println!(
        "{version}{}",
        if is_known { "" } else { ": not Redis 8.0 nor Valkey 9.1, what differs does not count" }
    );
    Ok(is_known)
}

/// Runs the transcripts on the system's Redis and on the newest Redis and Valkey. Each case agrees there, or says why not.
pub fn transcripts(namespace: &Namespace, _: &Program) -> Outcome<Counts> {
    debian(&[("/usr/bin/redis-server", "redis-server")])?;
    let servers = ["/usr/bin/redis-server".into(), peer("redis-server")?, peer("valkey-server")?];
    let (transcripts, mut passed) = (built("transcripts")?, 0);
    for server in servers {
        let mut command = namespace.command(&transcripts);
        command.arg("--spawn").arg(&server);
        let is_known = is_known(&server)?;
        let output = agreeing(command, is_known, TRANSCRIPTS_LEAST)?;
        println!("{}", if is_known { output.lines().last().unwrap_or_default() } else { &output });
        passed += TRANSCRIPTS_LEAST;
    }
    Ok(Counts { passed, skipped: 0 })
}

/// Asks the newest Redis and Valkey for numbers at the ends of what integer arguments take. They must answer as Larder does.
pub fn ends(namespace: &Namespace, _: &Program) -> Outcome<Counts> {
    let (ends, mut passed, mut counts) = (built("ends")?, 0, false);
    for server in [peer("redis-server")?, peer("valkey-server")?] {
        let is_known = is_known(&server)?;
        counts |= is_known;
        let mut command = namespace.command(&ends);
        command.arg(&server);
        let (agrees, output) = capture(command)?;
        println!("{}", output.trim_end());
        check("the comparison", agrees || !is_known, &output)?;
        let last = output.trim_end().lines().last().unwrap_or_default();
        passed += last.split(' ').next().and_then(|replies| replies.parse::<u32>().ok()).unwrap_or(0);
    }
    check("what is compared", counts, "no server is of a known version")?;
    Ok(Counts { passed, skipped: 0 })
}

/// Sends random streams to each Redis and Valkey and to Larder: all must reply the same, except for `spec/redis-differs.list`.
pub fn differential(namespace: &Namespace, _: &Program) -> Outcome<Counts> {
    debian(&[("/usr/bin/redis-server", "redis-server")])?;
    let servers = ["/usr/bin/redis-server".into(), peer("redis-server")?, peer("valkey-server")?];
    streams(namespace, &servers, (1, STREAMS), &[])
}

/// Sends streams of commands on collections to the newest Redis and Valkey and to Larder.
pub fn elements(namespace: &Namespace, _: &Program) -> Outcome<Counts> {
    elements_from(namespace, (1, ELEMENT_STREAMS))
}

/// Sends thousands of such streams, which no other run uses.
pub fn elements_long(namespace: &Namespace, _: &Program) -> Outcome<Counts> {
    elements_from(namespace, (100_001, ELEMENT_STREAMS_LONG))
}

fn elements_from(namespace: &Namespace, numbers: (u32, u32)) -> Outcome<Counts> {
    let servers = [peer("redis-server")?, peer("valkey-server")?];
    streams(namespace, &servers, numbers, &["elements"])
}

/// Sends `count` streams to each server and to Larder, beginning with number `first`.
fn streams(
    namespace: &Namespace,
    servers: &[PathBuf],
    (first, count): (u32, u32),
    kind: &[&str],
) -> Outcome<Counts> {
    let (differential, larder) = (built("differential")?, built("larder")?);
    let (mut passed, mut counts) = (0, false);
    for server in servers {
        let is_known = is_known(server)?;
        counts |= is_known;
        for done in (0..count).step_by(STREAMS_OF_A_RUN as usize) {
            let now = STREAMS_OF_A_RUN.min(count - done);
            let mut command = namespace.command(&differential);
            command.arg(server).args([now.to_string(), (first + done).to_string()]).args(kind);
            // The built program: otherwise the tests would build one with other features, while suites start this one.
            command.env("LARDER_BIN", &larder);
            let (agrees, output) = capture(command)?;
            println!("{}", output.trim_end());
            check("the comparison", agrees || !is_known, &output)?;
            passed += now;
        }
    }
    check("what is compared", counts, "no server is of a known version")?;
    Ok(Counts { passed, skipped: 0 })
}

/// The number of streams of scripts that are sent to Redis and Larder.
const SCRIPT_STREAMS: u32 = 12;

/// Sends random scripts to the newest Redis and to Larder, whose results must be the same. Valkey is left out, since its errors
/// name no script: half of the replies contain an error, and a text that has gone through `tostring`, `cjson` or `#` does not
/// match a list of known differences. `spec/resp_script.txt` has what differs in Valkey.
pub fn scripts(namespace: &Namespace, _: &Program) -> Outcome<Counts> {
    streams(namespace, &[peer("redis-server")?], (1, SCRIPT_STREAMS), &["scripts"])
}

/// Asks the newest Redis and Valkey where the keys of commands are. They must say what `spec/key-positions.list` says, as far as
/// they know the commands, which are nearly all.
pub fn key_positions(namespace: &Namespace, _: &Program) -> Outcome<Counts> {
    let program = built("key_positions")?;
    let mut passed = 0;
    for server in [peer("redis-server")?, peer("valkey-server")?] {
        let is_known = is_known(&server)?;
        let mut command = namespace.command(&program);
        command.arg(&server);
        let (agrees, output) = capture(command)?;
        println!("{}", output.trim_end());
        let words: Vec<&str> = output.lines().last().unwrap_or_default().split([' ', ',']).collect();
        let count = |word: &str| -> u32 {
            let pair = words.windows(2).find(|pair| pair[1] == word);
            pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
        };
        check("the positions", agrees || !is_known, &output)?;
        check("what is known", count("known") * 10 >= count("usages") * 9, &output)?;
        passed += count("usages");
    }
    Ok(Counts { passed, skipped: 0 })
}

/// Runs all tests of the newest redis-benchmark: every reply is read, and none may be an error.
pub fn redis_benchmark(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    let benchmark = peer("redis-benchmark")?;
    println!("{}", version(&benchmark)?);
    let _server = namespace.serve(program, &[])?;
    let output = namespace.output(benchmark, &["-n", "20000", "-P", "16", "-q", "-r", "1000"])?;
    check("redis-benchmark", !output.contains("Error") && !output.contains("WARNING"), &output)?;
    // One line for each test, so the number of lines is the number of tests.
    let passed = output.matches(" requests per second").count() as u32;
    Ok(Counts { passed, skipped: 0 })
}

/// Runs redis-py's own tests, with those of its asyncio client, without the files and tests in `spec/redis-py-skipped.list`.
pub fn redis_py(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    let python = python(&[&REDIS_PY_TESTS[..], &[&format!("redis=={REDIS_PY}")]].concat())?;
    let source = python_source(&python, "redis", REDIS_PY)?;
    let path = root().join("spec/redis-py-skipped.list");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut command = pytest(namespace, &python);
    command.args(["--timeout", "600", "--redis-url", "redis://localhost:6379/9", "--asyncio-mode", "auto"]);
    command.args(["-m", "not onlycluster and not redismod and not ssl"]);
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (test, reason) = line.split_once(": ").ok_or_else(|| format!("no reason: {line}"))?;
        if reason.is_empty() {
            return Err(format!("no reason: {line}"));
        }
        // A file, or a test in one.
        let leave = if test.contains("::") { "deselect" } else { "ignore" };
        command.arg(format!("--{leave}={test}"));
    }
    command.arg("tests").current_dir(&source);
    let _server = namespace.serve(program, &DEBUG)?;
    summed_up(command)
}

/// Runs redis-py's tests of TLS, with certificates where they look for them. Those that ask authorities in the internet whether a
/// certificate is revoked need a package that is not installed, and skip themselves.
pub fn redis_py_tls(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    const PORT: &str = "6666";
    debian(&[("openssl", "openssl")])?;
    let python = python(&[&REDIS_PY_TESTS[..], &[&format!("redis=={REDIS_PY}")]].concat())?;
    let source = python_source(&python, "redis", REDIS_PY)?;
    let certificates = Certificates::make(&root().join(&source).join("dockers/standalone/tls"))?;
    let options = certificates.options(PORT, "optional");
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut command = pytest(namespace, &python);
    command.args(["--timeout", "600", "--redis-url", "redis://localhost:6379/9", "--asyncio-mode", "auto"]);
    let url = format!("rediss://localhost:{PORT}");
    command.args(["--redis-ssl-url", url.as_str(), "tests/test_ssl.py"]);
    command.current_dir(root().join(&source));
    let _server = namespace.serve(program, &options)?;
    summed_up(command)
}
