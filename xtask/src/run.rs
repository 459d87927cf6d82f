//! Running other programs, and where things are.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

/// A task worked, or the text says why not.
pub type Outcome<T = ()> = Result<T, String>;

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository")
}

/// Where cargo builds.
pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(path) => root().join(path),
        None => root().join("target"),
    }
}

/// A program started in the repository.
pub fn command(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    command
}

/// Nothing is built twice by this process: see [`keep_nothing_for_a_second_build`].
static ONCE: AtomicBool = AtomicBool::new(false);

/// From here on cargo does not keep what would make a second build faster: it costs time and room in the first.
pub fn keep_nothing_for_a_second_build() {
    ONCE.store(true, Relaxed);
}

/// cargo, the one that runs us, building where we build, and with the versions of Cargo.lock.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), &[]);
    command.args(locked(arguments)).env("CARGO_TARGET_DIR", target());
    if ONCE.load(Relaxed) {
        command.env("CARGO_INCREMENTAL", "0");
    }
    // What the cargo that runs us says of xtask: a build script that looks at it would be run anew, and all that depends
    // on its package built anew (ring, rustls, the client, the lab), each time after a cargo that was called by hand.
    for (name, _) in std::env::vars_os() {
        let told = name.to_str().is_some_and(|name| OF_XTASK.iter().any(|prefix| name.starts_with(prefix)));
        if told {
            command.env_remove(name);
        }
    }
    command
}

/// What cargo is told, so that it fails where Cargo.lock is not what it would write: `cargo fmt` alone does not know that.
pub fn locked<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    match arguments.split_first() {
        Some((task, rest)) if *task != "fmt" => [&[*task, "--locked"], rest].concat(),
        _ => arguments.to_vec(),
    }
}

/// How names of variables begin that cargo gives to what it runs.
const OF_XTASK: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];

/// cargo through rustup's front, which takes `+toolchain` and knows nothing of the cargo that runs us.
pub fn cargo_front(arguments: &[&str]) -> Command {
    let mut command = command("cargo", arguments);
    without_our_toolchain(&mut command);
    command
}

/// rustup's front is told nothing of the toolchain that runs us.
pub fn without_our_toolchain(command: &mut Command) {
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "RUSTC_BOOTSTRAP", "RUSTFLAGS"] {
        command.env_remove(name);
    }
}

/// The command has the variables that another was given.
pub fn set_variables_of(like: &Command, command: &mut Command) {
    for (name, value) in like.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// Lines of a failed program's output that its error repeats, from each that [`tells`] why.
const AFTER: usize = 4;
/// How long its output may outlast a program.
const GRACE: Duration = Duration::from_secs(5);
/// Lines an error repeats at most.
const REPEATED: usize = 60;

/// Lines that programs have printed while they were run here.
static LINES: AtomicU64 = AtomicU64::new(0);

/// Lines that programs of [`run`] and [`capture`] have printed so far.
pub fn lines_printed() -> u64 {
    LINES.load(Relaxed)
}

/// Runs it, its output going where ours goes; the error repeats the lines that say what went wrong,
/// so that nobody has to find them above the output of all later stages.
pub fn run(mut command: Command) -> Outcome {
    let line = shown(&command);
    println!("$ {line}");
    let failed = |error: std::io::Error| format!("{line}: {error}");
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    let both = writer.try_clone().map_err(failed)?;
    let child = command.stdout(writer).stderr(both).spawn();
    // The command keeps the pipe's ends, which would never let the reader see the end of it.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.map_err(failed)?;
    let (lines, telling) = mpsc::channel();
    std::thread::spawn(move || {
        let mut telling = Telling::default();
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            LINES.fetch_add(1, Relaxed);
            if let Some(line) = telling.repeat(&line) {
                let _ = lines.send(line);
            }
        }
    });
    let status = child.wait().map_err(failed)?;
    // Its end closes the pipe, unless it left a child behind that holds it: that one is not waited for.
    let mut repeated = vec![format!("{line} failed: {status}")];
    let until = Instant::now() + GRACE;
    while let Ok(line) = telling.recv_timeout(until.saturating_duration_since(Instant::now())) {
        if repeated.len() < REPEATED {
            repeated.push(line);
        }
    }
    if status.success() { Ok(()) } else { Err(repeated.join("\n")) }
}

/// What of a failed program's output its error repeats.
#[derive(Debug, Default)]
struct Telling {
    /// So many of the lines that come.
    after: usize,
}

impl Telling {
    /// The line as it is repeated, if it is.
    fn repeat(&mut self, line: &str) -> Option<String> {
        self.after = if tells(line) { AFTER } else { self.after };
        self.after = self.after.checked_sub(1)?;
        Some(format!("  | {line}"))
    }
}

/// The lines of a failed program's output that its error repeats.
pub fn repeated(output: &str) -> Vec<String> {
    let mut telling = Telling::default();
    output.lines().filter_map(|line| telling.repeat(line)).take(REPEATED).collect()
}

/// What is in a line that says what went wrong: of Rust, of Go, of sanitizers, of compilers and of tests in C.
const TELLING: [&str; 7] = [
    "panicked at",
    "... FAILED",
    "has been running for over",
    "--- FAIL",
    "ERROR: AddressSanitizer",
    "error:",
    "error[",
];

/// Whether a line of output says what went wrong.
fn tells(line: &str) -> bool {
    TELLING.iter().any(|words| line.contains(words))
}

/// Runs it and returns its status and everything it printed.
pub fn capture(mut command: Command) -> Outcome<(bool, String)> {
    let line = shown(&command);
    let failed = |error: std::io::Error| format!("{line}: {error}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (mut text, errors) = std::thread::scope(|scope| {
        let errors = scope.spawn(|| read_lines(stderr));
        (read_lines(stdout), errors.join().expect("it only reads"))
    });
    text.push_str(&errors);
    let status = child.wait().map_err(failed)?;
    Ok((status.success(), text))
}

/// All that comes of a pipe; its lines count as they come.
fn read_lines(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut reader) = pipe.map(BufReader::new) {
        while reader.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
            LINES.fetch_add(1, Relaxed);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What failed of several things, together.
pub fn all_of(outcomes: impl IntoIterator<Item = Outcome>) -> Outcome {
    let failures: Vec<String> = outcomes.into_iter().filter_map(Result::err).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Does something for each, so many at once, beginning with the first; what came of those of which something did, in
/// their order.
pub fn lanes<T: Sync, R: Send>(all: &[T], count: usize, each: impl Fn(&T) -> Option<R> + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let lane = || {
        while let Some((at, one)) = Some(next.fetch_add(1, Relaxed)).and_then(|at| Some((at, all.get(at)?))) {
            let result = each(one);
            results.lock().expect("no lane panics while it notes").extend(result.map(|result| (at, result)));
        }
    };
    std::thread::scope(|scope| (0..count).for_each(|_| drop(scope.spawn(lane))));
    let mut results = results.into_inner().expect("no lane panics while it notes");
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Where a program lies, if it is installed.
pub fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Administration tools are not on everybody's path.
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

/// The command line, for people.
pub fn shown(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_captured_is_told_whole_and_its_lines_count() {
        let _lives = crate::hang::nobody_is_ended();
        let before = lines_printed();
        let told = capture(command("sh", &["-c", "printf 'a\\nb'; printf 'c\\n' >&2; exit 3"]));
        assert_eq!(told, Ok((false, "a\nbc\n".to_owned())));
        assert_eq!(lines_printed(), before + 3);
    }

    #[test]
    fn all_that_failed_is_told() {
        let failed = |error: &str| Err(error.to_owned());
        assert_eq!(all_of([Ok(()), Ok(())]), Ok(()));
        assert_eq!(all_of([failed("a"), Ok(()), failed("b")]), failed("a\nb"));
    }

    #[test]
    fn what_cargo_builds_is_locked() {
        assert_eq!(locked(&["test", "--doc"]), ["test", "--locked", "--doc"]);
        assert_eq!(locked(&["fmt", "--all"]), ["fmt", "--all"]);
        assert_eq!(locked(&[]), [""; 0]);
    }
}
