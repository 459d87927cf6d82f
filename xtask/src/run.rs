//! Running other programs, and where things are.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

/// cargo, the one that runs us, building where we build.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), arguments);
    command.env("CARGO_TARGET_DIR", target());
    command
}

/// cargo through rustup's front, which takes `+toolchain` and knows nothing of the cargo that runs us.
pub fn cargo_front(arguments: &[&str]) -> Command {
    let mut command = command("cargo", arguments);
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN", "RUSTC_BOOTSTRAP", "RUSTFLAGS"] {
        command.env_remove(name);
    }
    command
}

/// Runs it, its output going where ours goes.
pub fn run(mut command: Command) -> Outcome {
    println!("$ {}", shown(&command));
    let status = command.status().map_err(|error| format!("{}: {error}", shown(&command)))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed: {status}", shown(&command))) }
}

/// Runs it and returns its status and everything it printed.
pub fn capture(mut command: Command) -> Outcome<(bool, String)> {
    command.stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("{}: {error}", shown(&command)))?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Ok((output.status.success(), text))
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
fn shown(command: &Command) -> String {
    let words: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
    words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
