//! Every transcript passes over the session alone and over sockets, byte by byte and in one piece.

use larder_testkit::PATIENCE;
use larder_testkit::local::Local;
use larder_testkit::process::{Program, Server};
use larder_testkit::runner::{Split, run};
use larder_testkit::socket::{Clock, Sockets};
use larder_testkit::transcript::{Case, load};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Servers at once: most of a case is waiting.
const SERVERS: usize = 4;

/// A case over sockets runs in real time: if it has taken this long, a remaining time in a reply may rightly be one second less,
/// since it is rounded.
const LONG: Duration = Duration::from_millis(400);
/// Most that the server's clock is behind the system's.
const BEHIND: Duration = Duration::from_millis(100);
/// The server's clock counts whole milliseconds.
const AHEAD: Duration = Duration::from_millis(1);
/// Most runs of a case. A failed run is repeated if it took [`LONG`], or if a second of the system's clock
/// ended meanwhile: an idle time in a reply may then rightly be one second more.
const TIMES: usize = 20;

fn cases() -> Vec<Case> {
    load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec")).expect("the transcripts parse")
}

/// `TRANSCRIPT=part of a name` runs only what contains it.
fn chosen(case: &Case) -> bool {
    std::env::var("TRANSCRIPT").map_or(true, |part| case.name().contains(&part))
}

fn report(failures: &[String], passed: usize) {
    assert!(failures.is_empty(), "{passed} passed, {} failed:\n{}", failures.len(), failures.join("\n"));
    assert!(passed > 0, "nothing ran");
}

#[test]
fn transcripts_pass_over_the_session_alone() {
    let mut failures = Vec::new();
    let mut passed = 0;
    for case in cases().iter().filter(|case| !case.process_only && chosen(case)) {
        for &split in case.splits() {
            let result = Local::new(&case.options)
                .and_then(|local| run(case, &mut local.speaking_resp(case.resp), split));
            match result {
                Ok(()) => passed += 1,
                Err(error) => failures.push(format!("{split:?}: {error}")),
            }
        }
    }
    report(&failures, passed);
}

#[test]
fn transcripts_pass_over_sockets() {
    all_over_sockets(&[]);
}

#[test]
#[ignore = "again: transcripts, with --seccomp on"]
fn transcripts_pass_over_sockets_where_system_calls_are_limited() {
    all_over_sockets(&["--seccomp", "on"]);
}

/// Runs all cases over sockets, with more options than their own.
fn all_over_sockets(more: &[&str]) {
    let cases = cases();
    let runs: Vec<(&Case, Split)> = cases
        .iter()
        .filter(|case| chosen(case))
        .flat_map(|case| case.splits().iter().map(move |split| (case, *split)))
        .collect();
    let next = AtomicUsize::new(0);
    let failures: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..SERVERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut failures = Vec::new();
                    while let Some((case, split)) = runs.get(next.fetch_add(1, Relaxed)) {
                        if let Err(error) = over_sockets_in_time(case, *split, more) {
                            failures.push(format!("{split:?}: {error}"));
                        }
                    }
                    failures
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    report(&failures, runs.len() - failures.len());
}

/// Subcommands whose replies are made from the table: the test below compares them.
const HELP: &str = "help";

/// Each command has to be in a transcript: otherwise its replies were never compared.
#[test]
fn every_resp_command_is_in_a_transcript() {
    use larder_commands::redis::table::REDIS;
    let spec = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec");
    let mut sent = String::new();
    for file in std::fs::read_dir(spec).expect("transcripts") {
        let path = file.expect("a file").path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let text = std::fs::read_to_string(path).expect("text");
        let steps = text.lines().filter(|line| {
            line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').starts_with('>')
        });
        steps.for_each(|line| sent.push_str(&line.replace("\\r\\n", " ").to_ascii_lowercase()));
    }
    let words: Vec<&str> =
        sent.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '_' | '-')).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let sends = |row: &larder_commands::redis::row::Command| match row.name.split_once('|') {
        Some((container, name)) => words.windows(2).any(|pair| *pair == [container, name]),
        None => words.contains(&row.name),
    };
    let rows = REDIS.iter().flat_map(|group| group.rows);
    let all = rows.flat_map(|row| std::iter::once(row).chain(row.subcommands()));
    let missing: Vec<&str> =
        all.filter(|row| row.short_name() != HELP && !sends(row)).map(|row| row.name).collect();
    assert!(missing.is_empty(), "no transcript sends {missing:?}");
}

#[test]
fn help_names_every_subcommand() {
    use larder_commands::redis::table::REDIS;
    let mut talk = larder_testkit::talk::Talk::new(&larder_testkit::local::DEBUG);
    for row in REDIS.iter().flat_map(|group| group.rows).filter(|row| !row.subcommands().is_empty()) {
        if row.subcommands().iter().all(|sub| sub.short_name() != HELP) {
            continue;
        }
        if row.name == "cluster" {
            // Without a cluster Redis has no help either.
            continue;
        }
        let reply = talk.say(0, &format!("{} HELP", row.name));
        assert!(reply.starts_with(&format!("*{} ", 1 + 2 * row.subcommands().len())), "{reply}");
        for sub in row.subcommands() {
            assert!(reply.contains(&format!("+{}", sub.short_name().to_ascii_uppercase())), "{reply}");
        }
    }
}

/// The result of a case in real time. (With the session alone, the test sets the clock.)
fn over_sockets_in_time(case: &Case, split: Split, more: &[&str]) -> Result<(), String> {
    let mut result = Ok(());
    for _ in 0..TIMES {
        let (began, second) = (Instant::now(), second_of(SystemTime::now() - BEHIND));
        result = over_sockets(case, split, more);
        let took = began.elapsed();
        let is_later = took >= LONG || second_of(SystemTime::now() + AHEAD) != second;
        if result.is_ok() || !is_later || took >= PATIENCE {
            break;
        }
    }
    result
}

/// The second of a moment, as servers count.
fn second_of(moment: SystemTime) -> u64 {
    moment.duration_since(UNIX_EPOCH).expect("the clock is set").as_secs()
}

fn over_sockets(case: &Case, split: Split, more: &[&str]) -> Result<(), String> {
    if case.refused_start {
        let (status, output) = Server::refused(&Program::Larder, &case.options)?;
        let lines = output.trim_end().lines().count();
        return match (status.success(), lines) {
            (false, 1) => Ok(()),
            _ => Err(format!("{}: {status}, {lines} lines: {output}", case.name())),
        };
    }
    let mut options = case.options.clone();
    options.extend(more.iter().map(|&option| option.to_owned()));
    if case.clock_seconds() > 0 {
        options.extend(["-o".into(), "relaxed_privileges".into()]);
    }
    let (program, clock) = match case.resp {
        // The clock can only be moved by a text command.
        true => (Program::LarderResp, Clock::Wait),
        false => (Program::Larder, Clock::Debugtime),
    };
    let server =
        Server::start_program(&program, &options).map_err(|error| format!("{}: {error}", case.name()))?;
    run(case, &mut Sockets::new(server.address(), clock), split)
}
