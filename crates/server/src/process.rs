//! The process around the server: background, user, limits, pid file.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use larder_eventloop::sysexits;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::Failure;

/// Set for the process that runs in the background on behalf of the one that was started.
const DETACHED: &str = "LARDER_DETACHED";

/// What the background process says when it listens.
const READY: &str = "ready";

/// Descriptors besides connections: listeners, wakers, epoll sets, standard streams, /proc.
const DESCRIPTORS_OWN: u64 = 64;

/// True if this process is the one in the background.
pub fn is_detached() -> bool {
    std::env::var_os(DETACHED).is_some()
}

/// Starts the same command line again in a session of its own, waits until it listens or fails, and
/// gives the exit code for this process: that of the other, if it fails. A second start in place of fork(2): a fork of a process
/// that runs threads, and any fork made from Rust, needs code that cannot be proven safe.
pub fn start_detached() -> ExitCode {
    let start = || -> io::Result<(String, u8)> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env(DETACHED, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdout = child.stdout.take().expect("it was asked for");
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        if line.trim_end() == READY {
            return Ok((line, 0));
        }
        // It says no more, and ends. One that a signal ended has no code.
        let code = child.wait()?.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0);
        Ok((line, code.unwrap_or(sysexits::SYSTEM)))
    };
    match start() {
        Ok((_, 0)) => ExitCode::SUCCESS,
        Ok((line, code)) => {
            match line.is_empty() {
                true => eprintln!("larder: the server in the background has ended before it listened"),
                false => eprint!("{line}"),
            }
            ExitCode::from(code)
        }
        Err(error) => {
            eprintln!("larder: cannot start in the background: {error}");
            ExitCode::from(sysexits::SYSTEM)
        }
    }
}

/// Leaves the session of the process that started us; for the process in the background.
pub fn leave_session() {
    // It fails for a process that leads a session already, which is as well.
    let _ = rustix::process::setsid();
}

/// Tells the process in the foreground that we listen.
pub fn say_ready() {
    let _ = writeln!(io::stdout(), "{READY}");
}

/// Raises the limit of descriptors, if need be, so that `connections` can be open at once.
///
/// # Errors
/// When the hard limit is lower and cannot be raised.
pub fn allow_descriptors(connections: usize, threads: usize) -> Result<(), String> {
    let needed = connections as u64 + 3 * threads as u64 + DESCRIPTORS_OWN;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let maximum = limit.maximum.map(|maximum| maximum.max(needed));
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum })
        .map_err(|error| format!("-c {connections}: cannot open so many files ({error}); see ulimit -n"))
}

/// Raises the limit of descriptors as [`allow_descriptors`] does, while the server runs.
///
/// # Errors
/// For how many connections there can be descriptors.
pub fn allow_more_descriptors(connections: usize, threads: usize) -> Result<(), u64> {
    let own = 3 * threads as u64 + DESCRIPTORS_OWN;
    let needed = (connections as u64).saturating_add(own);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let most = limit.maximum.or(limit.current).unwrap_or(u64::MAX).saturating_sub(own);
    let maximum = limit.maximum.map(|maximum| maximum.max(needed));
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).map_err(|_| most)
}

/// Lifts the limit on core files.
///
/// # Errors
/// When the hard limit is 0 and cannot be raised.
pub fn allow_core_dumps() -> Result<(), String> {
    let unlimited = Rlimit { current: None, maximum: None };
    let maximum = getrlimit(Resource::Core).maximum;
    if maximum == Some(0) || maximum.is_none() {
        return setrlimit(Resource::Core, unlimited).map_err(|error| format!("-r: {error}"));
    }
    setrlimit(Resource::Core, unlimited)
        .or_else(|_| setrlimit(Resource::Core, Rlimit { current: maximum, maximum }))
        .map_err(|error| format!("-r: {error}"))
}

/// Lets the system write a core file of a process that has become another user: it writes none otherwise.
///
/// # Errors
/// What the system says.
pub fn stay_dumpable() -> Result<(), String> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    set_dumpable_behavior(DumpableBehavior::Dumpable).map_err(|error| format!("-r: {error}"))
}

/// Locks what is and will be mapped.
///
/// # Errors
/// When the right to do so is missing.
pub fn lock_memory() -> Result<(), String> {
    use rustix::mm::{MlockAllFlags, mlockall};
    // On fault: the arena reserves more than it uses.
    mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)
        .map_err(|error| format!("-k: cannot lock memory: {error}"))
}

/// Becomes `user`, by name or number. Before any other thread exists: each thread has a user of its
/// own as far as the system is concerned, and threads started later inherit it.
///
/// # Errors
/// When there is no such user, or we may not become it. Not being root is no error, as in memcached.
pub fn become_user(user: &str) -> Result<(), Failure> {
    use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let passwd = std::fs::read_to_string("/etc/passwd").map_err(|error| format!("-u {user}: {error}"))?;
    let (uid, gid) = find_user(&passwd, user)
        .ok_or_else(|| Failure::usage(format!("-u {user}: there is no such user")))?;
    let (uid, gid) = (rustix::process::Uid::from_raw(uid), rustix::process::Gid::from_raw(gid));
    let became =
        set_thread_groups(&[gid]).and_then(|()| set_thread_gid(gid)).and_then(|()| set_thread_uid(uid));
    Ok(became.map_err(|error| format!("-u {user}: {error}"))?)
}

/// User and group id of a line of passwd(5).
fn find_user(passwd: &str, user: &str) -> Option<(u32, u32)> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, uid, gid) = (fields.next()?, fields.nth(1)?, fields.next()?);
        if name != user && uid != user {
            return None;
        }
        Some((uid.parse().ok()?, gid.parse().ok()?))
    })
}

/// Says that the folder of a file that cannot be made is missing, or is no folder. `None` if there is a folder: then the system's
/// error about the file says more.
pub fn missing_folder(path: &Path) -> Option<String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty())?;
    match std::fs::metadata(folder) {
        Ok(found) if found.is_dir() => None,
        Ok(_) => Some(format!("{} is not a folder", folder.display())),
        // A folder that may not be looked at may exist.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Some(format!("the folder {} does not exist", folder.display()))
        }
        Err(_) => None,
    }
}

/// A file with the process id, removed when this is dropped.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes the file.
    ///
    /// # Errors
    /// What writing says.
    pub fn write(path: &Path) -> Result<PidFile, String> {
        let write = || {
            let unfinished = PidFile::unfinished(path);
            // Made new, or not at all.
            let mut file = File::options().write(true).create_new(true).open(&unfinished)?;
            let written = writeln!(file, "{}", std::process::id());
            written.and_then(|()| std::fs::rename(&unfinished, path)).inspect_err(|_| {
                let _ = std::fs::remove_file(&unfinished);
            })
        };
        write().map_err(|error| {
            let reason = missing_folder(path).unwrap_or_else(|| error.to_string());
            format!("-P {}: {reason}", path.display())
        })?;
        Ok(PidFile { path: path.to_owned() })
    }

    /// Name of the file until it is written. It cannot be guessed, so no link can have been laid there.
    fn unfinished(path: &Path) -> PathBuf {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{:016x}", RandomState::new().build_hasher().finish()));
        name.into()
    }
}

impl Drop for PidFile {
    /// Removes the file, unless a server that was started meanwhile has written its own there.
    fn drop(&mut self) {
        let own = |text: String| text.trim_end() == std::process::id().to_string();
        if std::fs::read_to_string(&self.path).is_ok_and(own) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_another_server_has_written_meanwhile_stays() {
        let path = std::env::temp_dir().join(format!("larder-pid-{}", std::process::id()));
        drop(PidFile::write(&path).unwrap());
        assert!(!path.exists());
        let file = PidFile::write(&path).unwrap();
        std::fs::write(&path, "1\n").unwrap();
        drop(file);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "1\n");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533:n:/:/bin/false\nbroken\n";
        assert_eq!(find_user(passwd, "nobody"), Some((65534, 65533)));
        assert_eq!(find_user(passwd, "0"), Some((0, 0)));
        assert_eq!(find_user(passwd, "nobod"), None);
    }

    #[test]
    fn the_pid_file_lives_as_long_as_the_server() {
        let path = std::env::temp_dir().join(format!("larder-pid-{}", std::process::id()));
        let file = PidFile::write(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        drop(file);
        assert!(!path.exists());
        // A link in its place is replaced, not followed; nothing else is left.
        let home = std::env::temp_dir().join(format!("larder-pid-home-{}", std::process::id()));
        // A process of the same number may have left it.
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir(&home).unwrap();
        let (other, path) = (home.join("other"), home.join("pid"));
        std::fs::write(&other, "theirs").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        // Nor is one that is laid where it may be guessed that the file is begun.
        let guessed =
            ["pid.tmp", "pid.new", &format!("pid.{}", std::process::id())].map(|name| home.join(name));
        guessed.iter().for_each(|name| std::os::unix::fs::symlink(&other, name).unwrap());
        let file = PidFile::write(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "theirs");
        assert!(guessed.iter().all(|name| name.is_symlink()));
        assert_eq!(std::fs::read_dir(&home).unwrap().count(), 2 + guessed.len());
        assert_ne!(PidFile::unfinished(&path), PidFile::unfinished(&path), "each start has its own");
        drop(file);
        std::fs::remove_dir_all(&home).unwrap();
        let said = PidFile::write(&home.join("pid")).unwrap_err();
        assert_eq!(said, format!("-P {0}/pid: the folder {0} does not exist", home.display()));
    }

    #[test]
    fn a_folder_that_is_missing_is_named() {
        assert_eq!(missing_folder(Path::new("pid")), None, "the working directory");
        assert_eq!(missing_folder(&std::env::temp_dir().join("pid")), None);
        let program = std::env::current_exe().unwrap();
        let said = missing_folder(&program.join("pid"));
        assert_eq!(said, Some(format!("{} is not a folder", program.display())));
        let said = missing_folder(&program.join("below/pid"));
        assert_eq!(said, Some(format!("the folder {}/below does not exist", program.display())));
    }
}
