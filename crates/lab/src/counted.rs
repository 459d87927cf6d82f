//! Counts of a call in place of times: system calls, segments and delayed acknowledgements.
//!
//! | what | how |
//! |---|---|
//! | system calls | `perf stat -e raw_syscalls:sys_enter -p`; where that is not allowed `strace -f -c -p`, which slows what it counts; else not at all |
//! | segments | `TCP_INFO` of the driver's own sockets, sent and received |
//! | delayed acknowledgements | the system's `DelayedACKs`, compared with an idle time as long: others may cause some, too |
//!
//! Each is counted in a visit of its own, with a fixed number of calls, and once more with none. The cost of a barrier, of the
//! lab's questions and of closing a handle is in both, and cancels out.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, process, thread};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

use crate::error::Error;

const EVENT: &str = "raw_syscalls:sys_enter";
/// How long a tracer may take to attach and to report its count.
const PATIENCE: Duration = Duration::from_secs(30);

/// How system calls can be counted on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracer {
    /// perf: exact, with almost no cost.
    Perf,
    /// strace: exact, and slow: two clients at once would be counted in another order.
    Strace,
    /// Neither is permitted.
    Nobody,
}

impl Tracer {
    /// The best way that exists and may look into a child of this process.
    pub fn find() -> Tracer {
        let works = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).arg("true").env("LC_ALL", "C").output();
            output.is_ok_and(|output| {
                output.status.success() && !String::from_utf8_lossy(&output.stderr).contains("<not")
            })
        };
        if works("perf", &["stat", "-x,", "-e", EVENT, "--"]) {
            Tracer::Perf
        } else if works("strace", &["-f", "-c"]) {
            Tracer::Strace
        } else {
            Tracer::Nobody
        }
    }

    /// Its name in the settings of a run.
    pub fn words(self) -> &'static str {
        match self {
            Tracer::Perf => "perf stat -e raw_syscalls:sys_enter",
            Tracer::Strace => "strace -f -c, which slows what it counts",
            Tracer::Nobody => {
                "not counted: neither perf nor strace may (Debian has them: linux-perf, strace)"
            }
        }
    }

    /// Begins to count the system calls of process `pid`; `None` where that is not possible.
    ///
    /// # Errors
    /// [`Error::Peer`] when the tracer does not attach.
    pub fn attach(self, pid: u32) -> Result<Option<Counting>, Error> {
        match self {
            Tracer::Nobody => Ok(None),
            Tracer::Perf => Counting::perf(pid).map(Some),
            Tracer::Strace => Counting::strace(pid).map(Some),
        }
    }
}

/// A tracer that is attached.
#[derive(Debug)]
pub struct Counting {
    tracer: Tracer,
    child: Child,
    folder: PathBuf,
    control: Option<(File, File)>,
}

fn failed(error: std::io::Error) -> Error {
    Error::System("counting system calls", error)
}

impl Counting {
    fn perf(pid: u32) -> Result<Counting, Error> {
        let folder = own_folder().map_err(failed)?;
        let (ask, answer) = (folder.join("ask"), folder.join("answer"));
        let open = |path: &Path| -> std::io::Result<File> {
            mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
            // Both ends at once: neither opening nor reading waits for the tracer to be there.
            let flags = rustix::fs::OFlags::NONBLOCK.bits();
            OpenOptions::new().read(true).write(true).custom_flags(flags as i32).open(path)
        };
        let control = (open(&ask).map_err(failed)?, open(&answer).map_err(failed)?);
        let child = Command::new("perf")
            .args(["stat", "-x,", "-e", EVENT, "-D", "-1", "-p", &pid.to_string(), "-o"])
            .arg(folder.join("out"))
            .arg("--control")
            .arg(format!("fifo:{},{}", ask.display(), answer.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let mut counting = Counting { tracer: Tracer::Perf, child, folder, control: Some(control) };
        counting.say("enable\n")?;
        Ok(counting)
    }

    fn strace(pid: u32) -> Result<Counting, Error> {
        let folder = own_folder().map_err(failed)?;
        let mut child = Command::new("strace")
            .args(["-f", "-c", "-p", &pid.to_string(), "-o"])
            .arg(folder.join("out"))
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut lines = BufReader::new(child.stderr.take().expect("it was asked for"));
        let counting = Counting { tracer: Tracer::Strace, child, folder, control: None };
        let mut line = String::new();
        lines.read_line(&mut line).map_err(failed)?;
        if !line.contains("attached") {
            return Err(Error::Peer(format!("strace does not attach: {}", line.trim())));
        }
        Ok(counting)
    }

    /// Sends perf a command, and waits until it has carried it out.
    fn say(&mut self, what: &str) -> Result<(), Error> {
        let Some((ask, answer)) = &mut self.control else { return Ok(()) };
        ask.write_all(what.as_bytes()).map_err(failed)?;
        let began = Instant::now();
        let mut heard = [0; 16];
        loop {
            match answer.read(&mut heard) {
                Ok(1..) => return Ok(()),
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(failed(error)),
                Ok(0) | Err(_) => {}
            }
            if began.elapsed() > PATIENCE || self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(Error::Peer("perf does not attach".to_owned()));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends counting and returns the number of system calls.
    ///
    /// # Errors
    /// [`Error::Peer`] when the tracer does not report it.
    pub fn count(mut self) -> Result<u64, Error> {
        self.say("disable\n")?;
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = kill_process(pid, Signal::INT);
        }
        self.child.wait().map_err(failed)?;
        let said = fs::read_to_string(self.folder.join("out")).map_err(failed)?;
        let count = match self.tracer {
            Tracer::Perf => of_perf(&said),
            Tracer::Strace => of_strace(&said),
            Tracer::Nobody => None,
        };
        count
            .ok_or_else(|| Error::Peer(format!("how many system calls there were is not understood: {said}")))
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A new folder of this process.
fn own_folder() -> std::io::Result<PathBuf> {
    for number in 0.. {
        let folder = env::temp_dir().join(format!("larder-lab-count-{}-{number}", process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    unreachable!("there are numbers enough")
}

/// `29,,raw_syscalls:sys_enter,3000,100.00,,`.
fn of_perf(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains(EVENT))?;
    line.split(',').next()?.parse().ok()
}

/// `100.00    0.000123           4        29         2 total`; no line at all when nothing was called.
fn of_strace(said: &str) -> Option<u64> {
    let Some(line) = said.lines().find(|line| line.trim_end().ends_with(" total")) else {
        return said.trim().is_empty().then_some(0);
    };
    line.split_ascii_whitespace().nth(3)?.parse().ok()
}

/// Delayed acknowledgements that the system has sent so far, in this network namespace.
pub fn delayed_acks() -> Option<u64> {
    named(&fs::read_to_string("/proc/net/netstat").ok()?, "TcpExt:", "DelayedACKs")
}

/// A figure of a table of two lines, names and numbers, both behind `table`.
fn named(text: &str, table: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(table));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let at = names.split_ascii_whitespace().position(|have| have == name)?;
    numbers.split_ascii_whitespace().nth(at)?.parse().ok()
}

/// The largest share of other programs in a count that is still accepted.
const OTHERS_MAX: f64 = 0.05;

/// `counted` without the `idle` counts of an idle time of the same length; `None` if their share is too large.
pub fn without_others(counted: u64, idle: u64) -> Option<f64> {
    let fits = idle as f64 <= OTHERS_MAX * counted as f64;
    fits.then(|| counted.saturating_sub(idle) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tracers_say_is_read() {
        let said = "# started on Mon Nov 23 09:00:00 2026\n\n1029,,raw_syscalls:sys_enter,3000,100.00,,\n";
        assert_eq!(of_perf(said), Some(1029));
        assert_eq!(of_perf("<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n"), None);
        let said = "% time     seconds  usecs/call     calls    errors syscall\n\
                    ------ ----------- ----------- --------- --------- ----------------\n \
                    60.00    0.000300           1       200           sendto\n \
                    40.00    0.000200           1       212        12 recvfrom\n\
                    ------ ----------- ----------- --------- --------- ----------------\n\
                    100.00    0.000500           1       412        12 total\n";
        assert_eq!(
            (of_strace(said), of_strace("\n"), of_strace("strace: what?\n")),
            (Some(412), Some(0), None)
        );
    }

    #[test]
    fn a_figure_of_the_network_is_found_by_its_name() {
        let text = "TcpExt: A DelayedACKs B\nTcpExt: 1 22 3\nIpExt: InNoRoutes DelayedACKs\nIpExt: 4 5\n";
        assert_eq!(named(text, "TcpExt:", "DelayedACKs"), Some(22));
        assert_eq!((named(text, "IpExt:", "DelayedACKs"), named(text, "TcpExt:", "C")), (Some(5), None));
        assert!(delayed_acks().is_some());
    }

    #[test]
    fn what_others_may_have_caused_is_not_shown() {
        assert_eq!((without_others(100, 5), without_others(100, 6)), (Some(95.0), None));
        assert_eq!((without_others(0, 0), without_others(0, 1)), (Some(0.0), None));
    }
}
