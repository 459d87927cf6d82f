//! Running other programs, and paths.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

/// A task worked, or the text says why not.
pub type Outcome<T = ()> = Result<T, String>;

/// The repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository")
}

/// The folder in which cargo builds.
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

/// Whether each thing is built once in this process: see [`keep_nothing_for_a_second_build`].
static ONCE: AtomicBool = AtomicBool::new(false);

/// From here on cargo keeps nothing for a faster second build, which would cost time and room in the first.
pub fn keep_nothing_for_a_second_build() {
    ONCE.store(true, Relaxed);
}

/// The cargo that runs xtask, with the same target directory and the versions of Cargo.lock.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), &[]);
    command.args(locked(arguments)).env("CARGO_TARGET_DIR", target());
    if ONCE.load(Relaxed) {
        command.env("CARGO_INCREMENTAL", "0");
    }
    // Removes the variables that cargo sets for xtask. A build script that reads them would run again, and everything that
    // depends on its package would be built again (ring, rustls, the client, the lab), each time after a cargo that was called by
    // hand.
    for (name, _) in std::env::vars_os() {
        let told = name.to_str().is_some_and(|name| OF_XTASK.iter().any(|prefix| name.starts_with(prefix)));
        if told {
            command.env_remove(name);
        }
    }
    command
}

/// Arguments with `--locked`, so that cargo fails if Cargo.lock is out of date. Only `cargo fmt` does not take it.
pub fn locked<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    match arguments.split_first() {
        Some((task, rest)) if *task != "fmt" => [&[*task, "--locked"], rest].concat(),
        _ => arguments.to_vec(),
    }
}

/// Prefixes of the variables that cargo sets for programs that it runs.
const OF_XTASK: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];

/// cargo by rustup's proxy, which takes `+toolchain` and does not depend on the cargo that runs xtask.
pub fn cargo_front(arguments: &[&str]) -> Command {
    let mut command = command("cargo", arguments);
    without_our_toolchain(&mut command);
    command
}

/// Removes the variables of the present toolchain, so that rustup's proxy chooses one.
pub fn without_our_toolchain(command: &mut Command) {
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "RUSTC_BOOTSTRAP", "RUSTFLAGS"] {
        command.env_remove(name);
    }
}

/// Copies the variables of another command.
pub fn set_variables_of(like: &Command, command: &mut Command) {
    for (name, value) in like.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// How many lines of a failed program's output the error repeats after each line that [`tells`] why.
const AFTER: usize = 4;
/// How long the output of a program may outlast it.
const GRACE: Duration = Duration::from_secs(5);
/// Most lines that an error repeats.
const REPEATED: usize = 60;

/// Lines that programs have printed while xtask ran them.
static LINES: AtomicU64 = AtomicU64::new(0);

/// Lines that programs of [`run`] and [`capture`] have printed so far.
pub fn lines_printed() -> u64 {
    LINES.load(Relaxed)
}

/// Runs a program with its output going to xtask's. The error repeats the lines that say what went wrong, so that one need not
/// search the output of all later stages.
pub fn run(mut command: Command) -> Outcome {
    let line = shown(&command);
    println!("$ {line}");
    let failed = |error: std::io::Error| format!("{line}: {error}");
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    let both = writer.try_clone().map_err(failed)?;
    let child = command.stdout(writer).stderr(both).spawn();
    // The command keeps the pipe's ends open, and the reader would never see its end.
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
    // The end of the program closes the pipe, unless a child holds it open: that child is not waited for.
    let mut repeated = vec![format!("{line} failed: {status}")];
    let until = Instant::now() + GRACE;
    while let Ok(line) = telling.recv_timeout(until.saturating_duration_since(Instant::now())) {
        if repeated.len() < REPEATED {
            repeated.push(line);
        }
    }
    if status.success() { Ok(()) } else { Err(repeated.join("\n")) }
}

/// Chooses the lines of a failed program's output that its error repeats.
#[derive(Debug, Default)]
struct Telling {
    /// How many of the next lines to repeat.
    after: usize,
}

impl Telling {
    /// The line as the error repeats it; `None` if it does not.
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

/// Texts in lines that say what went wrong: those of Rust, Go, sanitizers, compilers and tests in C.
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

/// Runs a program; returns whether it succeeded, and everything it printed.
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

/// Runs a program and prints the lines of its output as they come. Returns its status and these lines.
pub fn lines_of(mut command: Command) -> Outcome<(ExitStatus, Vec<String>)> {
    let line = shown(&command);
    println!("$ {line}");
    let failed = |error: std::io::Error| format!("{line}: {error}");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut lines = Vec::new();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let line = line.map_err(failed)?;
            println!("{line}");
            LINES.fetch_add(1, Relaxed);
            lines.push(line);
        }
    }
    Ok((child.wait().map_err(failed)?, lines))
}

/// Reads a pipe to its end, and counts lines as they come.
fn read_lines(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut reader) = pipe.map(BufReader::new) {
        while reader.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
            LINES.fetch_add(1, Relaxed);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Puts the failures of several outcomes into one.
pub fn all_of(outcomes: impl IntoIterator<Item = Outcome>) -> Outcome {
    let failures: Vec<String> = outcomes.into_iter().filter_map(Result::err).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Calls `each` for every element, on `count` threads, beginning with the first. Returns the results that are not `None`, in
/// order.
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

/// The path of a program, if it is installed.
pub fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Administration tools are not on every user's path.
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
