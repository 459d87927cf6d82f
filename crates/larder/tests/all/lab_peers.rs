//! How the lab treats servers that have other names or are not the expected programs, and its own child
//! processes when it is interrupted.

use larder_testkit::PATIENCE;
use larder_testkit::folder::Folder;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use larder_lab::results::Run;

use crate::outcome::refused;

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.arg("lab").args(arguments);
    command
}

/// Writes a program `name` into `folder` that runs the real Redis, without the option `without` and its
/// value, as if it did not know it.
fn redis_as(folder: &Path, name: &str, without: &str) {
    let path = folder.join(name);
    let script = format!(
        "#!/bin/sh\nn=$#\nwhile [ $n -gt 0 ]; do\n  if [ \"$1\" = {without} ]; then shift 2; n=$((n - 2)); continue; fi\n  \
         set -- \"$@\" \"$1\"; shift; n=$((n - 1))\ndone\nexec redis-server \"$@\"\n"
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
#[ignore = "peers: redis-server"]
fn valkey_and_keydb_are_started_under_their_names_asked_and_stopped() {
    let folder = Folder::new("names");
    redis_as(&folder, "valkey-server", "--no-such-option");
    redis_as(&folder, "keydb-server", "--server-threads");
    let json = folder.join("out.json");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let output =
        lab(&["cas", "--quick", "--rounds", "1", "--clients", "2", "--no-larder", "--wait-max", "100"])
            .args(["--peer", "valkey", "--peer", "keydb", "--threads", "2", "--json"])
            .arg(&json)
            .env("PATH", path)
            .output()
            .unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    let run = Run::read_json(&json).unwrap_or_else(|_| panic!("{complained}"));
    assert!(run.failed_at_any_time().next().is_none(), "{complained}");
    let names: Vec<&str> = run.targets.iter().map(|target| target.name.as_str()).collect();
    assert_eq!(names, ["valkey", "keydb"]);
    for target in &run.targets {
        assert!(target.version.starts_with(|c: char| c.is_ascii_digit()), "{}", target.version);
        assert!(target.settings.iter().any(|(name, value)| name == "appendonly" && value == "no"));
        let command = target.command.as_ref().unwrap();
        assert!(command.contains(&format!("{}-server", target.name)), "{command}");
        assert_eq!(command.contains("--server-threads 2"), target.name == "keydb", "{command}");
    }
}

#[test]
fn a_peer_that_is_not_installed_says_how_to_get_it() {
    for (peer, how) in [
        ("memcached", "apt install memcached"),
        ("redis", "apt install redis-server"),
        ("valkey", "apt install valkey-server"),
        ("keydb", "Debian does not carry it"),
    ] {
        let output = lab(&["memory", "--quick", "--peer", peer]).env("PATH", "/nowhere").output().unwrap();
        refused(&output, 69, how);
    }
}

/// A folder like cargo's `target`, with the larder binary and these fetched programs, in a test's folder.
fn target_in(folder: &Folder, fetched: &[(&str, &str)]) -> PathBuf {
    let home = folder.join("target");
    for inside in ["debug", "peers/bin"] {
        std::fs::create_dir_all(home.join(inside)).unwrap();
    }
    // The binary is copied: a link would lead to the real folder, where the peers of this machine may be.
    // Another process copies it: a child that this process starts meanwhile would inherit the open file, and
    // the copy could not be run until that child ends.
    let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_larder")).arg(home.join("debug/larder")).status();
    assert!(copied.unwrap().success());
    for (name, program) in fetched {
        let path = home.join("peers/bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\nexec {program} \"$@\"\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    home
}

#[test]
fn a_newest_peer_that_was_not_fetched_is_an_error_of_usage_that_names_the_command() {
    let folder = Folder::new("unfetched");
    let home = target_in(&folder, &[]);
    for peer in ["memcached-new", "valkey-new", "redis-new"] {
        for words in [["memory", "--quick"], ["bench-server", "--quick"]] {
            let mut command = Command::new(home.join("debug/larder"));
            command.arg("lab").args(words).args(["--peer", peer]).current_dir(&home);
            let output = command.output().unwrap();
            refused(&output, 64, "cargo xtask peers");
        }
    }
}

#[test]
#[ignore = "peers: memcached, redis-server"]
fn newest_peers_are_taken_from_where_they_are_fetched_to() {
    let fetched =
        [("memcached", "memcached"), ("valkey-server", "redis-server"), ("redis-server", "redis-server")];
    let folder = Folder::new("fetched");
    let home = target_in(&folder, &fetched);
    let json = home.join("out.json");
    let output = Command::new(home.join("debug/larder"))
        .args([
            "lab",
            "cas",
            "--quick",
            "--rounds",
            "1",
            "--clients",
            "2",
            "--no-larder",
            "--wait-max",
            "100",
        ])
        .args(["--peer", "memcached-new,valkey-new,redis-new", "--json"])
        .arg(&json)
        .output()
        .unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    let run = Run::read_json(&json).unwrap_or_else(|_| panic!("{complained}"));
    assert!(run.failed_at_any_time().next().is_none(), "{complained}");
    let found: Vec<(&str, bool)> = run
        .targets
        .iter()
        .map(|target| (target.name.as_str(), target.command.as_ref().unwrap().contains("/peers/bin/")))
        .collect();
    assert_eq!(found, [("memcached-new", true), ("valkey-new", true), ("redis-new", true)]);
}

/// A server that replies `answer` to everything, and then closes the connection if `close` is set.
fn saying(answer: &'static [u8], close: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut asked = [0; 4096];
                while matches!(stream.read(&mut asked), Ok(1..)) && stream.write_all(answer).is_ok() && !close
                {
                }
            });
        }
    });
    address.to_string()
}

#[test]
fn a_target_that_speaks_something_else_is_refused_with_what_it_says() {
    let web = saying(b"HTTP/1.1 400 Bad Request\r\n\r\n", true);
    let locked = saying(b"-NOAUTH Authentication required.\r\n", false);
    for (target, why) in [
        (
            format!("web=memcached://{web}"),
            "web does not answer \"version\\r\\n\" as it should: it says \"HTTP/1.1 400",
        ),
        (format!("web=redis://{web}"), "it says \"HTTP/1.1 400 Bad Request\""),
        (format!("locked=redis://{locked}"), "it says \"-NOAUTH Authentication required.\""),
        (format!("locked=memcached://{locked}"), "it says \"-NOAUTH Authentication required.\""),
    ] {
        let output = lab(&["cas", "--quick", "--no-larder", "--target", &target]).output().unwrap();
        refused(&output, 69, why);
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_started() {
    for arguments in [
        &["cas", "--rounds", "0"][..],
        &["cas", "--clients", "0"],
        &["cas", "--clients", "100000"],
        &["cas", "--retry", "always"],
        &["servers", "--load", "everything"],
        &["servers", "--value-bytes", "4294967295"],
        &["memory", "--sizes", "1+1"],
        &["memory", "--peer", "dragonfly"],
        &["memory", "--type", "tree"],
        &["memory", "--type", "set", "--sizes", "16+32"],
        &["memory", "--type", "set", "--elements", "0"],
        &["memory", "--elements", "10"],
        &["servers", "--verb", "hgetall"],
        &["servers", "--verb", "hget", "--load", "hit"],
        &["servers", "--elements", "10"],
        &["servers", "--items", "10"],
        &["servers", "--verb", "hget", "--items", "0"],
        &["servers", "--verb", "hget", "--keys", "10"],
        &["shift", "--zipf", "nan"],
        &["shift", "--after", "inf"],
        &["shift", "--working-set", "0"],
        &["latency", "--mix", "hit:0"],
        &["matrix", "--operation", "fly"],
        &["matrix", "--link", "relay-0ms"],
        &["matrix", "--value-bytes", "0"],
        &["clients", "--driver", "cobol"],
        &["clients", "--operation", "fly"],
        &["clients", "--callers", "0"],
        &["latency", "--zipf", "-1"],
        &["load", "--target", "a=redis://127.0.0.1:1", "--seconds", "inf"],
        &["load", "--target", "127.0.0.1:1"],
        &["cas", "--quick", "--full"],
        &["nonsense"],
    ] {
        let output = lab(arguments).output().unwrap();
        refused(&output, 64, "error: ");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn all_collections_together_have_one_number_of_elements() {
    let output = lab(&["memory", "--type", "set", "--items", "10,20"]).output().unwrap();
    refused(&output, 64, "--items with --type is one number");
}

#[test]
fn collections_are_asked_of_servers_that_have_them() {
    for server in [["--peer", "redis,memcached"], ["--target", "memcached=memcached://127.0.0.1:1"]] {
        for asked in [["memory", "--type", "zset"], ["servers", "--verb", "zrank"]] {
            let output = lab(&asked).args(server).output().unwrap();
            refused(&output, 64, "memcached is asked in memcached's protocols, which have no collections");
        }
    }
}

#[test]
fn elements_of_every_type_are_written_counted_and_read_back() {
    let folder = Folder::new("elements");
    let json = folder.join("out.json");
    let types = ["--type", "zset,set,list,hash", "--elements", "1200", "--items", "1200"];
    let output = lab(&["memory", "--quick"]).args(types).arg("--json").arg(&json).output().unwrap();
    let run = Run::read_json(&json).unwrap();
    let failed: Vec<&str> = run.failed_at_any_time().map(|check| check.found.as_str()).collect();
    assert!(failed.is_empty(), "{failed:?} {}", String::from_utf8_lossy(&output.stderr));
    let [table] = run.tables.as_slice() else { panic!("{} tables", run.tables.len()) };
    let rows: Vec<String> =
        table.rows.iter().map(|row| format!("{}: {}", row.target, row.labels.join(" of "))).collect();
    let all = [
        "larder-redis: hash of 1,200",
        "larder-redis again: hash of 1,200",
        "larder-redis: list of 1,200",
        "larder-redis: set of 1,200",
        "larder-redis: zset of 1,200",
    ];
    assert_eq!(rows, all);
}

#[test]
fn every_command_on_collections_is_answered_as_it_must_be() {
    let folder = Folder::new("verbs");
    let json = folder.join("out.json");
    let named = "hget,hset,hset-new,sadd,sismember,zadd,zadd-new,zscore,zrank,zrange,lpush,lpop";
    let verbs: Vec<&str> = named.split(',').collect();
    let mut lab = lab(&["servers", "--quick", "--rounds", "1", "--visit-ms", "10", "--elements", "700"]);
    // There are ten collections. Each visit fills them again, since the collections have another type, or a
    // command has changed them.
    lab.args(["--items", "7000", "--connections", "3", "--pipeline", "20", "--verb", named]);
    let output = lab.arg("--json").arg(&json).output().unwrap();
    let run = Run::read_json(&json).unwrap();
    let failed: Vec<&str> = run.failed_at_any_time().map(|check| check.found.as_str()).collect();
    assert!(failed.is_empty(), "{failed:?} {}", String::from_utf8_lossy(&output.stderr));
    for claim in ["every reply is one that must come", "no collection was evicted"] {
        assert!(run.checks.iter().any(|check| check.claim == claim && check.passed), "{claim}");
    }
    let [table] = run.tables.as_slice() else { panic!("{} tables", run.tables.len()) };
    let asked: Vec<&str> = table.rows.iter().map(|row| row.labels[0].as_str()).collect();
    // The first server is visited twice.
    let twice: Vec<&str> = verbs.iter().flat_map(|verb| [*verb, *verb]).collect();
    assert_eq!(asked, twice);
    let all_did = table.rows.iter().all(|row| row.values[0].as_ref().is_some_and(|rate| rate.median > 0.0));
    assert!(all_did, "each command was answered some times");
}

#[test]
fn the_matrix_says_in_a_line_what_it_lacks() {
    let folder = Folder::new("no-cc");
    let output =
        lab(&["matrix", "--quick"]).env("PATH", "/nowhere").env("XDG_CACHE_HOME", &folder).output().unwrap();
    refused(&output, 69, "cc is not on PATH; Debian has it: apt install gcc libc6-dev libmemcached-dev");
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
    let output = lab(&["matrix", "--quick", "--peer", "redis"]).output().unwrap();
    refused(&output, 64, "libmemcached does not speak redis's protocol");
}

#[test]
fn the_clients_say_in_a_line_what_they_lack() {
    for (driver, lacks) in [
        ("go", "go is not on PATH; Debian has it: apt install golang-go"),
        ("c", "cc is not on PATH; Debian has it: apt install gcc libc6-dev libmemcached-dev"),
        ("rust", "cargo is not on PATH; Debian has it: apt install cargo"),
        ("python", "python3 is not on PATH; Debian has it: apt install python3-venv"),
        ("java", "mvn is not on PATH; Debian has it: apt install maven"),
    ] {
        let folder = Folder::new(&format!("no-{driver}"));
        let mut lab = lab(&["clients", "--quick", "--driver", driver]);
        let output = lab.env("PATH", "/nowhere").env("XDG_CACHE_HOME", &folder).output().unwrap();
        refused(&output, 69, lacks);
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
    }
    refused(
        &lab(&["clients", "--quick", "--client", "nobody"]).output().unwrap(),
        64,
        "there is no such client",
    );
    let listed = lab(&["clients", "--list"]).output().unwrap();
    assert!(listed.status.success() && String::from_utf8_lossy(&listed.stdout).contains("go: gomemcache"));
}

#[test]
fn targets_that_drivers_cannot_ask_are_refused() {
    let (socket, login) = ("a=memcached+unix:///run/m", "a=memcached://me:x@127.0.0.1:1");
    let anyone = "a=memcacheds://127.0.0.1:1?ssl_cert_reqs=none";
    for (words, target, why) in [
        (&["matrix", "--link", "relay-1ms"][..], socket, "a: a relay leads to no Unix socket"),
        (&["matrix"], login, "a: libmemcached says no password in the text protocol"),
        (&["matrix"], anyone, "a: libmemcached has no TLS"),
        (&["clients"], anyone, "a: drivers check certificates: ssl_ca_certs names their authority"),
    ] {
        let output =
            lab(&[words, &["--quick", "--no-larder", "--target", target]].concat()).output().unwrap();
        refused(&output, 64, why);
    }
}

#[test]
fn what_ends_the_lab_is_told_by_its_exit_code() {
    let nobody = "a=memcached://127.0.0.1:1";
    for (arguments, code) in [
        (&["load", "--target", nobody, "--seconds", "0.1"][..], 69),
        (&["load", "--target", nobody, "--preset", "ycsb-d", "--one-key"], 64),
        (&["servers", "--quick", "--no-larder"], 64),
        (&["compare", "/nowhere/run", "/nowhere/run"], 74),
        (&["--help"], 0),
    ] {
        let output = lab(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {output:?}");
    }
    let help = lab(&["--help"]).output().unwrap();
    assert!(String::from_utf8_lossy(&help.stdout).contains(larder_lab::exit::TABLE.lines().last().unwrap()));
}

#[test]
fn servers_of_one_name_are_refused() {
    let target = format!("larder=redis://{}", saying(b"+PONG\r\n", false));
    refused(
        &lab(&["cas", "--quick", "--target", &target]).output().unwrap(),
        64,
        "two servers are called \"larder\"",
    );
    let (a, b) = (target.replacen("larder", "a", 1), target.replacen("larder", "a", 1));
    let output = lab(&["cas", "--no-larder", "--target", &a, "--target", &b]).output().unwrap();
    refused(&output, 64, "two servers are called \"a\"");
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_minutes_have_gone() {
    for option in ["--report", "--json"] {
        // The file is checked first: otherwise the error would be that the server is missing.
        let mut lab = lab(&["memory", "--no-larder", "--peer", "memcached", option, "/nowhere/out"]);
        refused(&lab.env("PATH", "/nowhere").output().unwrap(), 74, "/nowhere/out");
    }
}

#[test]
fn runs_of_two_experiments_are_not_compared() {
    let folder = Folder::new("two");
    let paths = ["memory", "cas"].map(|name| {
        let path = folder.join(name);
        std::fs::write(&path, Run::new(name, name).json().unwrap()).unwrap();
        path.to_string_lossy().into_owned()
    });
    let output = lab(&["compare", &paths[0], &paths[1]]).output().unwrap();
    refused(&output, 64, "a run of memory and one of cas have no figure in common");
    assert!(lab(&["compare", &paths[0], &paths[0]]).output().unwrap().status.success());
    let output = lab(&["compare", &paths[0], "/nowhere/run"]).output().unwrap();
    refused(&output, 74, "/nowhere/run");
}

#[test]
fn a_closed_or_full_stdout_loses_no_file_and_no_exit_code() {
    let folder = Folder::new("stdout");
    let json = folder.join("out.json");
    let few = ["memory", "--quick", "--items", "1000", "--memory-mb", "4"];
    for closed in [true, false] {
        let mut command = lab(&few);
        command.arg("--json").arg(&json).stderr(Stdio::piped());
        command.stdout(match closed {
            true => Stdio::piped(),
            false => std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into(),
        });
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(
            complained.contains("larder lab: stdout: ") && !complained.contains("panicked"),
            "{complained}"
        );
        let run = Run::read_json(&json).unwrap();
        assert_eq!(output.status.code(), Some(i32::from(run.failed().next().is_some())), "{complained}");
        std::fs::remove_file(&json).unwrap();
    }
    let output = lab(&few).arg("--json").arg(&json).arg("--report").arg(&json).output().unwrap();
    refused(&output, 74, "two results cannot both be written there");
}

#[test]
fn results_that_are_there_are_kept_and_a_full_disk_loses_nothing_else() {
    let folder = Folder::new("files");
    let (json, page) = (folder.join("out.json"), folder.join("out.html"));
    let few = ["memory", "--quick", "--items", "1000", "--memory-mb", "4"];
    let run = |json: &str, more: &[&str]| {
        lab(&few).args(["--json", json, "--report"]).arg(&page).args(more).output().unwrap()
    };
    let json_path = json.to_string_lossy();
    std::fs::write(&json, "dear").unwrap();
    refused(
        &run(&json_path, &[]),
        74,
        "out.json: it is there already; if it may be written over, say --force",
    );
    assert_eq!(std::fs::read(&json).unwrap(), b"dear");
    assert!(!page.exists());
    // Only the files are checked: whether two visits agree depends on the machine.
    run(&json_path, &["--force"]);
    Run::read_json(&json).unwrap();
    assert!(std::fs::read_to_string(&page).unwrap().contains("</html>"));
    // A file that cannot be written is reported; the other file is written, and the output is complete.
    std::fs::remove_file(&page).unwrap();
    let output = run("/dev/full", &[]);
    refused(&output, 74, "/dev/full: No space left on device");
    assert!(std::fs::read_to_string(&page).unwrap().contains("</html>"));
    assert!(String::from_utf8_lossy(&output.stdout).contains("bytes per key"));
}

#[test]
fn a_run_that_was_not_valid_is_not_compared() {
    let folder = Folder::new("invalid");
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let mut run = Run::new("memory", "memory");
    std::fs::write(folder.join("valid"), run.json().unwrap()).unwrap();
    run.check("counts agree", Err("1 ≠ 2".to_owned()));
    std::fs::write(folder.join("invalid"), run.json().unwrap()).unwrap();
    for pair in [["valid", "invalid"], ["invalid", "valid"]] {
        let output = lab(&["compare", &path(pair[0]), &path(pair[1])]).output().unwrap();
        refused(&output, 1, "invalid is of a run without a result: counts agree");
    }
}

/// The command lines of all processes that contain `word`.
pub fn processes(word: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let line = |entry: std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
    let lines = all.filter_map(line).map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(word)).collect()
}

#[test]
fn an_interrupted_lab_leaves_no_server_behind() {
    for (at, signal) in (0..).zip(["INT", "TERM", "KILL"]) {
        // The children are recognized by a memory limit with which no other test starts a server.
        let memory_mb = 301 + 3 * (std::process::id() % 200) + at;
        let mark = format!("-m {memory_mb} ");
        let lab = lab(&["cas", "--memory-mb", &memory_mb.to_string()]);
        // A script that starts a program in the background has it ignore this signal; `env` restores the
        // default.
        let mut child = Command::new("env")
            .arg("--default-signal=INT")
            .arg(lab.get_program())
            .args(lab.get_args())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let until = |wanted: bool| {
            let began = Instant::now();
            while processes(&mark).is_empty() == wanted {
                assert!(began.elapsed() < PATIENCE, "{signal}: {:?}", processes(&mark));
                thread::sleep(Duration::from_millis(20));
            }
        };
        until(true);
        let status =
            Command::new("kill").args([format!("-{signal}"), child.id().to_string()]).status().unwrap();
        assert!(status.success());
        assert!(!child.wait().unwrap().success(), "{signal}");
        until(false);
    }
}

#[test]
fn a_server_with_too_little_memory_is_no_result_and_no_hang() {
    let began = Instant::now();
    let output = lab(&["servers", "--quick", "--rounds", "1", "--memory-mb", "3", "--load", "hit"])
        .args(["--connections", "4", "--pipeline", "8", "--keys", "100000", "--value-bytes", "100"])
        .output()
        .unwrap();
    refused(&output, 1, "every reply was the right one");
    refused(&output, 1, "a miss for key");
    assert!(began.elapsed() < PATIENCE, "after {:?}", began.elapsed());
}
