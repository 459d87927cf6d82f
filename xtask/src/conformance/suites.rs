//! The suites: what each needs, how it is run, how its output is counted.

use super::namespace::{Namespace, Server};
use super::{Counts, Program, binary, clients, exporter, page, prometheus, redis, redis_exporter, watcher};
use crate::install::{debian, python, python_source};
use crate::peers::{peer, version};
use crate::programs::built;
use crate::run::{Outcome, capture, command, root, run, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs one suite inside a namespace.
pub type Suite = fn(&Namespace, &Program) -> Outcome<Counts>;

/// All suites of clients and tools.
pub const SUITES: &[(&str, Suite)] = &[
    ("memccapable", memccapable),
    ("pymemcache", pymemcache),
    ("python-memcached", python_memcached),
    ("cas-loop", cas_loop),
    ("pylibmc", pylibmc),
    ("pylibmc-sasl", pylibmc_sasl),
    ("spymemcached", binary::spymemcached),
    ("php-sessions", binary::php_sessions),
    ("gomemcache", gomemcache),
    ("gomemcache-facade", gomemcache_facade),
    ("larder-go", clients::larder_go),
    ("memcached-tool", memcached_tool),
    ("memcached-watcher", watcher::suite),
    ("memcached-transcripts", memcached_transcripts),
    ("memcached-exporter", exporter::suite),
    ("redis-cli", redis::redis_cli),
    ("redis-benchmark", redis::redis_benchmark),
    ("redis-transcripts", redis::transcripts),
    ("redis-ends", redis::ends),
    ("redis-differential", redis::differential),
    ("redis-elements", redis::elements),
    ("redis-scripts", redis::scripts),
    ("redis-key-positions", redis::key_positions),
    ("redis-exporter", redis_exporter::suite),
    ("prometheus", prometheus::suite),
    ("go-redis", clients::go_redis),
    ("jedis", clients::jedis),
    ("lettuce", clients::lettuce),
    ("ioredis", clients::ioredis),
    ("redis-py-tls", redis::redis_py_tls),
    ("redis-py", redis::redis_py),
    ("page", page::suite),
];

/// Suites in a form that takes an hour.
pub const LONG_FORMS: &[(&str, Suite)] = &[("redis-elements-long", redis::elements_long)];

/// Suites that share a Python environment.
pub const IN_PYTHON: [&str; 7] =
    ["pymemcache", "python-memcached", "cas-loop", "pylibmc", "pylibmc-sasl", "redis-py", "redis-py-tls"];

/// Suites that depend on times: they run after all others, one by one.
pub const ALONE: [&str; 2] = ["redis-py", "page"];

/// Suites that take minutes, the longest first.
pub const LONG: [&str; 4] =
    ["redis-transcripts", "memcached-transcripts", "redis-elements", "redis-differential"];

pub(super) const PYTEST: &str = "pytest==8.3.4";
/// The version of memcached that the transcripts describe.
const MEMCACHED: &str = "1.6.45";
/// The fewest runs of transcripts, in one piece and byte by byte, that must agree with it.
const TRANSCRIPTS_LEAST: u32 = 370;
const PYMEMCACHE: &str = "4.0.0";
const PYTHON_MEMCACHED: &str = "1.62";
const PYLIBMC: &str = "1.6.3";
/// The user of clients that have to authenticate by SASL, and its password.
pub(super) const USER: &str = "app";
pub(super) const PASSWORD: &str = "open sesame";
/// The folder of SASL's mechanisms, as Debian has it.
const SASL_MECHANISMS: &str = "/usr/lib/x86_64-linux-gnu/sasl2";
const GOMEMCACHE: &str = "github.com/bradfitz/gomemcache@v0.0.0-20260422231931-4d751bb6e37c";
const GOMEMCACHE_TESTS: &str = "^Test(Localhost|UnixSocket|FakeServer|TLS|ScanGetResponseLine)$";
const MEMCACHED_TOOL: &str = "/usr/share/memcached/scripts/memcached-tool";

/// Runs libmemcached's checks of a server: the text protocol's and the binary protocol's.
fn memccapable(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    debian(&[("memccapable", "libmemcached-tools")])?;
    let _server = namespace.serve(program, &[])?;
    let output = namespace.output("memccapable", &["-h", "localhost", "-p", "11211"])?;
    let count = |mark: &str| output.lines().filter(|line| line.trim_end().ends_with(mark)).count() as u32;
    match (count("[FAIL]"), output.contains("All tests passed")) {
        (0, true) => Ok(Counts { passed: count("[pass]"), skipped: count("[skip]") }),
        _ => Err(output),
    }
}

/// Runs Larder's transcripts on the newest memcached. They must agree, except where a case says otherwise.
fn memcached_transcripts(_: &Namespace, _: &Program) -> Outcome<Counts> {
    let memcached = peer("memcached")?;
    let version = version(&memcached)?;
    let is_known = version.ends_with(MEMCACHED);
    let command = command(built("transcripts")?, &["--spawn", &memcached.to_string_lossy()]);
    let output = agreeing(command, is_known, TRANSCRIPTS_LEAST)?;
    println!("{version}\n{output}");
    if !is_known {
        println!("the transcripts are of {MEMCACHED}: what differs above was not checked");
    }
    Ok(Counts { passed: TRANSCRIPTS_LEAST, skipped: 0 })
}

/// Runs transcripts, of which at least `least` must agree; new transcripts raise the number. A server of another version may
/// differ in some, not in most.
pub(super) fn agreeing(command: Command, is_known: bool, least: u32) -> Outcome<String> {
    let (agrees, output) = capture(command)?;
    let last = output.lines().last().unwrap_or_default();
    let passed = last.split_once(" passed").and_then(|(count, _)| count.parse().ok()).unwrap_or(0);
    let least = if is_known { least } else { least * 9 / 10 };
    check("transcripts", (agrees || !is_known) && passed >= least, &output)?;
    Ok(output)
}

/// Runs pymemcache's integration tests.
fn pymemcache(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    let python = python(&[PYTEST, &format!("pymemcache=={PYMEMCACHE}")])?;
    let source = python_source(&python, "pymemcache", PYMEMCACHE)?;
    write(&source.join("larder.ini"), "[pytest]\nmarkers =\n    unit\n    integration\n    benchmark\n")?;
    let _server = namespace.serve(program, &[])?;
    let mut command = pytest(namespace, &python);
    command.args(["-c", "larder.ini", "pymemcache/test/test_integration.py"]);
    command.args(["--server", "localhost", "--port", "11211"]).current_dir(&source);
    summed_up(command)
}

/// Runs python-memcached's own tests.
fn python_memcached(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    let python = python(&[PYTEST, &format!("python-memcached=={PYTHON_MEMCACHED}")])?;
    let source = python_source(&python, "python-memcached", PYTHON_MEMCACHED)?;
    // The distribution leaves out a module that its tests import.
    write(&source.join("tests/__init__.py"), "")?;
    write(&source.join("tests/utils.py"), include_str!("captured_stderr.py"))?;
    let _server = namespace.serve(program, &[])?;
    let mut command = pytest(namespace, &python);
    command.arg("tests").current_dir(&source);
    summed_up(command)
}

/// Runs a program that uses pylibmc by the binary protocol.
fn pylibmc(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    let _server = namespace.serve(program, &[])?;
    pylibmc_as(namespace, &[])
}

/// Runs it with a client that has to authenticate.
fn pylibmc_sasl(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    let _server = serve_sasl(namespace, program, "pylibmc-sasl")?;
    pylibmc_as(namespace, &[USER, PASSWORD])
}

/// Starts a server at which clients have to authenticate by SASL, and installs the mechanism for those in C. Suites run at once:
/// each has a file of users by its name.
pub(super) fn serve_sasl(namespace: &Namespace, program: &Program, suite: &str) -> Outcome<Server> {
    let plain = format!("{SASL_MECHANISMS}/libplain.so");
    debian(&[(&plain, "libsasl2-modules")])?;
    let users = target().join(format!("conformance/{suite}.users"));
    write(&users, &format!("{USER}:{PASSWORD}\n"))?;
    namespace.serve(program, &["-S", "--auth-file", &users.to_string_lossy()])
}

fn pylibmc_as(namespace: &Namespace, who: &[&str]) -> Outcome<Counts> {
    let python = python(&[&format!("pylibmc=={PYLIBMC}")])?;
    let script = target().join("conformance/pylibmc_binary.py");
    write(&script, include_str!("pylibmc_binary.py"))?;
    let mut command = namespace.command(&python);
    command.arg(&script).args(who).env("SASL_PATH", SASL_MECHANISMS);
    let output = succeeded(command)?;
    println!("{}", output.trim_end());
    Ok(Counts { passed: output.lines().filter(|line| line.ends_with(": ok")).count() as u32, skipped: 0 })
}

/// Runs threads that count down by gets and cas, as in an old article, with a check of the count.
fn cas_loop(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    let python = python(&[&format!("python-memcached=={PYTHON_MEMCACHED}")])?;
    let script = target().join("conformance/cas_loop.py");
    write(&script, include_str!("cas_loop.py"))?;
    let _server = namespace.serve(program, &[])?;
    let mut command = namespace.command(&python);
    command.arg(&script);
    let output = succeeded(command)?;
    println!("{}", output.trim_end());
    Ok(Counts { passed: output.lines().filter(|line| line.ends_with(": ok")).count() as u32, skipped: 0 })
}

/// Makes a directory with a Go module of its own.
pub(super) fn go_home() -> Outcome<PathBuf> {
    debian(&[("go", "golang-go")])?;
    let home = target().join("conformance/go");
    fs::create_dir_all(&home).map_err(|error| error.to_string())?;
    if !home.join("go.mod").is_file() {
        run(go(&home, &["mod", "init", "conformance"]))?;
    }
    Ok(home)
}

pub(super) fn go(home: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("go");
    command.args(arguments).current_dir(home).env("GOFLAGS", "-mod=mod");
    command
}

/// Runs gomemcache's own tests.
fn gomemcache(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    let home = go_home()?;
    run(go(&home, &["get", GOMEMCACHE]))?;
    let tests = home.join("gomemcache.test");
    let package = "github.com/bradfitz/gomemcache/memcache";
    run(go(&home, &["test", "-c", "-o", &tests.to_string_lossy(), package]))?;
    gomemcache_tests(namespace, program, &home, &tests)
}

/// Runs these tests on the package of `clients/go` that replaces gomemcache: overlaid, not copied.
fn gomemcache_facade(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    let home = go_home()?;
    run(go(&home, &["get", GOMEMCACHE]))?;
    let where_it_is = ["list", "-m", "-f", "{{.Dir}}", "github.com/bradfitz/gomemcache"];
    let upstream = succeeded(go(&home, &where_it_is))?;
    let module = root().join("clients/go");
    let laid: Vec<String> = ["memcache", "selector", "fakeserver", "fakecerts"]
        .iter()
        .map(|name| {
            let ours = module.join(format!("memcache/upstream_{name}_test.go"));
            format!("{:?}: {:?}", ours, format!("{}/memcache/{name}_test.go", upstream.trim()))
        })
        .collect();
    let overlay = home.join("overlay.json");
    write(&overlay, &format!("{{\"Replace\": {{{}}}}}\n", laid.join(", ")))?;
    let tests = home.join("facade.test");
    let overlay = overlay.to_string_lossy();
    let mut build =
        go(&module, &["test", "-c", "-overlay", &overlay, "-o", &tests.to_string_lossy(), "./memcache"]);
    build.env("GOFLAGS", "-mod=readonly");
    run(build)?;
    gomemcache_tests(namespace, program, &home, &tests)
}

/// Runs the tests. The one for a Unix socket starts a program `memcached`, which is Larder under that name.
fn gomemcache_tests(namespace: &Namespace, program: &Program, home: &Path, tests: &Path) -> Outcome<Counts> {
    let names = home.join("bin");
    fs::create_dir_all(&names).map_err(|error| error.to_string())?;
    let shim = names.join("memcached");
    write(&shim, &format!("#!/bin/sh\nexec {} \"$@\"\n", program.words.join(" ")))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&shim, mode).map_err(|error| error.to_string())?;
    // One worker: the tests send `flush_all` on a separate connection and do not wait for the reply. With two workers, the other
    // one might serve the first `set` before it.
    let _server = namespace.serve(program, &["-t", "1"])?;
    let mut command = namespace.command(tests);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::iter::once(names).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(paths).map_err(|error| error.to_string())?);
    // The tests of gomemcache are named, since a package of this repository may have more.
    command.args(["-test.v", "-test.run", GOMEMCACHE_TESTS]).current_dir(home);
    let output = succeeded(command)?;
    let count = |mark: &str| output.lines().filter(|line| line.starts_with(mark)).count() as u32;
    Ok(Counts { passed: count("--- PASS"), skipped: count("--- SKIP") })
}

/// Runs a session of memcached-tool, as operators use it.
fn memcached_tool(namespace: &Namespace, program: &Program) -> Outcome<Counts> {
    debian(&[(MEMCACHED_TOOL, "memcached")])?;
    let _server = namespace.serve(program, &[])?;
    let fill = "use IO::Socket::INET; my $s = IO::Socket::INET->new('127.0.0.1:11211') or die;\
        for my $i (0..99) { print $s \"set key:$i $i 0 \".length(\"value $i\").\"\\r\\nvalue $i\\r\\n\"; \
        my $line = <$s>; die $line unless $line eq \"STORED\\r\\n\" }";
    namespace.output("perl", &["-e", fill])?;
    let tool = |mode: &str| namespace.output("perl", &[MEMCACHED_TOOL, "localhost:11211", mode]);
    let display = tool("display")?;
    let items: u64 =
        display.lines().skip(1).filter_map(|line| line.split_whitespace().nth(4)?.parse::<u64>().ok()).sum();
    check("display", display.contains("Item_Size") && items == 100, &display)?;
    let stats = tool("stats")?;
    let value = |name: &str| {
        let line = stats.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or_default().to_owned()
    };
    check("stats", value("curr_items") == "100" && value("cmd_set") == "100", &stats)?;
    let settings = tool("settings")?;
    check("settings", settings.contains("maxbytes") && settings.contains("67108864"), &settings)?;
    let dump = tool("dump")?;
    let whole = (0..100).all(|i| {
        let value = format!("value {i}");
        dump.contains(&format!("add key:{i} {i} 0 {}\r\n{value}\r\n", value.len()))
    });
    check("dump", whole && dump.matches("add key:").count() == 100, &dump)?;
    Ok(Counts { passed: 4, skipped: 0 })
}

pub(super) fn check(what: &str, holds: bool, output: &str) -> Outcome {
    if holds { Ok(()) } else { Err(format!("{what} is not as it should be:\n{output}")) }
}

pub(super) fn pytest(namespace: &Namespace, python: &PathBuf) -> Command {
    let mut command = namespace.command(python);
    command.args(["-m", "pytest", "-q", "--no-header", "--tb=short", "-p", "no:cacheprovider"]);
    command
}

/// Reads `100 passed, 3 skipped in 1.97s` of pytest, `Tests: 3 skipped, 100 passed, 103 total` of Jest.
pub(super) fn summed_up(command: Command) -> Outcome<Counts> {
    let output = succeeded(command)?;
    let last = output.lines().rev().find(|line| line.contains(" passed")).unwrap_or_default();
    let words: Vec<&str> = last.split_whitespace().collect();
    let count = |what: &str| {
        let at = words.iter().position(|word| word.trim_end_matches(',') == what)?;
        words[at.checked_sub(1)?].parse().ok()
    };
    Ok(Counts { passed: count("passed").unwrap_or(0), skipped: count("skipped").unwrap_or(0) })
}

/// Runs a command and returns its output; if it fails, the output is the error.
pub(super) fn succeeded(command: Command) -> Outcome<String> {
    match capture(command)? {
        (true, output) => Ok(output),
        (false, output) => Err(output),
    }
}

pub(super) fn write(path: &Path, text: &str) -> Outcome {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
