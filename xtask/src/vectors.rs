//! `cargo xtask vectors`: makes `clients/vectors.txt`, the placement of keys by other people's clients.
//!
//! The clients' tests read the file and fetch nothing. For each library, a program of `clients/vectors` in its language reads the
//! servers and keys, and writes a digit for each key: the index of its server. Two are not asked themselves: memcached's proxy,
//! which no package has, and xmemcached. In their place `rules.py` has the rules of their source, and the library of their hash.
//!
//! ```text
//! key KEY                     a thousand of them
//! place PRESET by LIBRARY     then its servers, and where each key is
//! server WEIGHT NAME
//! at DIGITS
//! ```

use crate::install::{debian, python};
use crate::run::{Outcome, command, root, run, shown, target};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

const KEYS: usize = 1000;
const PYMEMCACHE: &str = "pymemcache==4.0.0";
const PYTHON_MEMCACHED: &str = "python-memcached==1.62";
const XXHASH: &str = "xxhash==4.1.0";
const GOMEMCACHE: &str = "v0.0.0-20260422231931-4d751bb6e37c";
const SPYMEMCACHED: &str = "2.12.3";
const COPY_PACKAGES: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// Servers with their weights.
type Servers = &'static [(&'static str, u32)];

const FOUR: Servers =
    &[("10.0.0.1:11211", 1), ("10.0.0.2:11211", 1), ("10.0.0.3:11212", 1), ("10.0.0.4:11211", 1)];
/// The same servers without the second.
const REMOVED: Servers = &[("10.0.0.1:11211", 1), ("10.0.0.3:11212", 1), ("10.0.0.4:11211", 1)];
/// The same servers in another order.
const ORDER: Servers =
    &[("10.0.0.3:11212", 1), ("10.0.0.1:11211", 1), ("10.0.0.4:11211", 1), ("10.0.0.2:11211", 1)];
const TEN: Servers = &[
    ("192.168.7.10:11211", 1),
    ("192.168.7.11:11211", 1),
    ("192.168.7.12:11213", 1),
    ("192.168.7.13:11211", 1),
    ("192.168.7.14:11211", 1),
    ("192.168.7.15:22122", 1),
    ("192.168.7.16:11211", 1),
    ("192.168.7.17:11211", 1),
    ("192.168.7.18:11211", 1),
    ("192.168.7.19:11211", 1),
];
const WEIGHED: Servers =
    &[("10.0.0.1:11211", 1), ("10.0.0.2:11211", 2), ("10.0.0.3:11212", 3), ("10.0.0.4:11211", 1)];
/// Weights for which single precision rounds differently with another order of multiplication.
const AWKWARD: Servers =
    &[("10.0.0.1:11211", 7), ("10.0.0.2:11211", 11), ("10.0.0.3:11212", 5), ("10.0.0.4:11211", 6)];
/// Weights that are equal, and not 1.
const DOUBLED: Servers = &[("10.0.0.1:11211", 2), ("10.0.0.2:11211", 2), ("10.0.0.3:11212", 2)];
const SIXTH: Servers = &[("10.0.0.1:11211", 1), ("10.0.0.2:11211", 3), ("10.0.0.3:11212", 2)];
const IPV6: Servers = &[("[2001:db8::1]:11211", 1), ("[2001:db8::2]:11211", 1), ("[2001:db8::3]:11212", 1)];
/// Hosts that spymemcached or xmemcached has resolved.
const NAMED: Servers = &[
    ("cache1.example/10.0.0.1:11211", 1),
    ("cache2.example/10.0.0.2:11211", 1),
    ("cache3.example/10.0.0.3:11212", 1),
];
const SOCKETS: Servers = &[("/run/cache/one.sock", 1), ("/run/cache/two.sock", 1), ("10.0.0.3:11211", 1)];

/// The library, the preset, and the servers of each question.
const QUESTIONS: &[(&str, &str, &[Servers])] = &[
    ("libmemcached", "ketama", &[FOUR, REMOVED, ORDER, TEN, WEIGHED, AWKWARD, SIXTH, IPV6, SOCKETS]),
    ("libmemcached", "libmemcached-spy", &[FOUR, REMOVED, TEN, WEIGHED, AWKWARD, IPV6]),
    ("libmemcached", "libmemcached-consistent", &[FOUR, REMOVED, TEN, IPV6, SOCKETS]),
    ("libmemcached", "libmemcached-consistent-md5", &[FOUR, REMOVED, TEN, IPV6, SOCKETS]),
    ("libmemcached", "libmemcached-consistent-md5-late", &[FOUR, REMOVED, TEN, IPV6]),
    ("libmemcached", "modula-oaat", &[FOUR, REMOVED, ORDER, TEN, IPV6, SOCKETS]),
    ("libmemcached", "modula-md5", &[FOUR, REMOVED, TEN]),
    ("libmemcached", "modula-crc15", &[FOUR, REMOVED, TEN]),
    ("libmemcached", "modula-fnv1a_64", &[FOUR, REMOVED, TEN]),
    ("libmemcached", "modula-murmur", &[FOUR, REMOVED, TEN]),
    ("libmemcached", "modula-murmur3", &[FOUR, REMOVED, TEN]),
    ("libmemcached", "modula-jenkins", &[FOUR, REMOVED, TEN]),
    ("libmemcached", "twemproxy-fnv1a_64", &[FOUR, TEN, WEIGHED]),
    ("pymemcache", "rendezvous-murmur3", &[FOUR, REMOVED, ORDER, TEN]),
    ("python-memcached", "modula-crc15", &[FOUR, REMOVED, TEN, WEIGHED]),
    ("gomemcache", "modula-crc32", &[FOUR, REMOVED, ORDER, TEN, IPV6]),
    ("dalli", "dalli", &[FOUR, REMOVED, ORDER, TEN, WEIGHED, AWKWARD]),
    ("twemproxy", "ketama", &[FOUR, WEIGHED, AWKWARD, TEN]),
    ("twemproxy", "twemproxy-fnv1a_64", &[FOUR, REMOVED, TEN, WEIGHED, AWKWARD]),
    ("twemproxy", "twemproxy-modula-crc15", &[FOUR, REMOVED, ORDER, TEN, WEIGHED]),
    ("spymemcached", "ketama", &[FOUR, REMOVED, TEN]),
    ("spymemcached", "ketama-full-port", &[FOUR, REMOVED, ORDER, TEN, NAMED]),
    ("spymemcached", "modula-crc15", &[FOUR, TEN]),
    ("memcached", "jump-xxh3", &[FOUR, REMOVED, TEN, IPV6, SOCKETS]),
    ("memcached", "proxy-ring", &[FOUR, REMOVED, ORDER, TEN, IPV6]),
    ("xmemcached", "xmemcached-ketama", &[FOUR, REMOVED, ORDER, TEN, WEIGHED, AWKWARD, DOUBLED, NAMED]),
];

/// Asks all libraries, and writes the file.
pub fn vectors() -> Outcome {
    debian(&[
        ("/usr/lib/x86_64-linux-gnu/libmemcached.so.11", "libmemcached11"),
        ("nutcracker", "nutcracker"),
        ("ruby", "ruby"),
        ("/usr/share/doc/ruby-dalli", "ruby-dalli"),
        ("mvn", "maven"),
        ("javac", "default-jdk-headless"),
        ("go", "golang-go"),
    ])?;
    let sources = root().join("clients/vectors");
    let home = root().join(target()).join("vectors");
    fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
    let keys = keys();
    let mut file = String::from(
        "# Where other people's clients put keys: made by `cargo xtask vectors`, which says what the lines are.\n",
    );
    for key in &keys {
        let _ = writeln!(file, "key {key}");
    }
    let mut libraries: Vec<&str> = QUESTIONS.iter().map(|(library, ..)| *library).collect();
    libraries.dedup();
    for library in libraries {
        let sets: Vec<(&str, Servers)> = QUESTIONS
            .iter()
            .filter(|(asked, ..)| *asked == library)
            .flat_map(|(_, preset, sets)| sets.iter().map(|servers| (*preset, *servers)))
            .collect();
        let mut plan = String::new();
        for key in &keys {
            let _ = writeln!(plan, "key {key}");
        }
        for (preset, servers) in &sets {
            let _ = write!(plan, "set {preset}\n{}", listed(servers));
        }
        let answer = asked(program(library, &sources, &home)?, &plan, &home)?;
        let mut lines = answer.lines();
        let version = lines.next().ok_or_else(|| format!("{library} says nothing"))?;
        for (preset, servers) in &sets {
            let digits = lines.next().unwrap_or_default();
            if digits.len() != KEYS || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
                return Err(format!("{library}, {preset}: not a digit for each key: {digits:?}"));
            }
            let _ = write!(file, "place {preset} by {version}\n{}at {digits}\n", listed(servers));
        }
    }
    let to = root().join("clients/vectors.txt");
    fs::write(&to, file).map_err(|error| format!("{}: {error}", to.display()))
}

fn listed(servers: Servers) -> String {
    servers.iter().fold(String::new(), |mut text, (name, weight)| {
        let _ = writeln!(text, "server {weight} {name}");
        text
    })
}

/// A thousand keys: numbered ones, as most are; long and short ones; ones with letters beyond ASCII.
fn keys() -> Vec<String> {
    let mut keys: Vec<String> = (0..400).map(|i| format!("key:{i}")).collect();
    keys.extend((0..200_u32).map(|i| format!("session:{:08x}", i.wrapping_mul(2_654_435_761))));
    let letters: Vec<char> = ('!'..='~').collect();
    keys.extend((1..=250).map(|length| (0..length).map(|i| letters[(i * 7 + length * 31) % 94]).collect()));
    for i in 0.. {
        for word in ["ключ", "日本", "üñî", "🍺", "é"] {
            if keys.len() == KEYS {
                return keys;
            }
            keys.push(format!("{word}{i}"));
        }
    }
    keys
}

/// The program that asks a library, built where that is needed.
fn program(library: &str, sources: &Path, home: &Path) -> Outcome<Command> {
    let file = |name: &str| sources.join(name).to_string_lossy().into_owned();
    Ok(match library {
        "libmemcached" => command("python3", &[&file("libmemcached.py")]),
        "twemproxy" => command("python3", &[&file("twemproxy.py")]),
        "pymemcache" | "python-memcached" => {
            command(python(&[PYMEMCACHE, PYTHON_MEMCACHED])?, &[&file("python.py"), library])
        }
        "memcached" | "xmemcached" => command(python(&[XXHASH])?, &[&file("rules.py"), library]),
        "dalli" => command("/usr/bin/ruby", &[&file("dalli.rb")]),
        "gomemcache" => {
            let module = home.join("gomemcache");
            fs::create_dir_all(&module).map_err(|error| format!("{}: {error}", module.display()))?;
            for (from, to) in [("gomemcache/main.go", "main.go"), ("gomemcache/module", "go.mod")] {
                fs::copy(sources.join(from), module.join(to)).map_err(|error| format!("{from}: {error}"))?;
            }
            let go = |arguments: &[&str]| {
                let mut command = command("go", arguments);
                command.current_dir(&module);
                command
            };
            run(go(&["get", &format!("github.com/bradfitz/gomemcache@{GOMEMCACHE}")]))?;
            run(go(&["build", "-o", "asks", "."]))?;
            command(module.join("asks"), &[GOMEMCACHE])
        }
        "spymemcached" => {
            let classes = home.join("spymemcached").to_string_lossy().into_owned();
            let packages = format!("{classes}/packages");
            let mut copy =
                command("mvn", &["-q", "-B", COPY_PACKAGES, &format!("-DoutputDirectory={packages}")]);
            copy.current_dir(sources.join("spymemcached"));
            run(copy)?;
            let path = format!("{packages}/*:{classes}");
            run(command("javac", &["-d", &classes, "-cp", &path, &file("spymemcached/Vectors.java")]))?;
            command("java", &["-cp", &path, "Vectors", SPYMEMCACHED])
        }
        _ => return Err(format!("no program asks {library}")),
    })
}

/// Runs the program; returns its answer to the plan.
fn asked(mut program: Command, plan: &str, home: &Path) -> Outcome<String> {
    let line = shown(&program);
    println!("$ {line}");
    let failed = |error: std::io::Error| format!("{line}: {error}");
    let file = home.join("plan");
    fs::write(&file, plan).map_err(failed)?;
    program
        .stdin(File::open(&file).map_err(failed)?)
        .stderr(Stdio::inherit())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let output = program.output().map_err(failed)?;
    if !output.status.success() {
        return Err(format!("{line}: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{line}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_a_thousand_that_servers_take() {
        let keys = keys();
        assert_eq!(keys.len(), KEYS);
        for key in &keys {
            assert!(
                (1..=250).contains(&key.len()) && key.bytes().all(|byte| byte > b' ' && byte != 127),
                "{key}"
            );
        }
        let different: std::collections::HashSet<&String> = keys.iter().collect();
        assert_eq!(different.len(), KEYS);
    }
}
