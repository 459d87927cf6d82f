//! The keeper: a process beside the lab that ends the lab's servers when the lab itself no longer can.
//!
//! Each server is started in a process group of its own, so that a wrapper and the processes that it starts end together, and an
//! interrupt at the terminal reaches the lab alone. However the lab ends, the system closes the pipe between the two. Then the
//! keeper kills the groups on its list. It is `larder lab keep`, in a group of its own; a lab that is a library in another
//! program has no keeper.

use std::collections::BTreeSet;
use std::env;
use std::io::{BufRead, Write, stdin};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::Error;

/// This program is `larder`, which can be its own keeper.
static ENABLED: AtomicBool = AtomicBool::new(false);
/// The pipe to the keeper, once there is one.
static KEEPER: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// Adds servers that are started from now on to the keeper's list.
pub(crate) fn enable() {
    ENABLED.store(true, Relaxed);
}

/// Puts the process group `pid` on the keeper's list.
///
/// # Errors
/// [`Error::System`] when there can be no keeper.
pub(crate) fn keep(pid: u32) -> Result<(), Error> {
    if !ENABLED.load(Relaxed) {
        return Ok(());
    }
    let mut keeper = KEEPER.lock().unwrap_or_else(PoisonError::into_inner);
    let told = |pipe: &mut ChildStdin| writeln!(pipe, "{pid}");
    let start = || -> std::io::Result<ChildStdin> {
        let mut command = Command::new(env::current_exe()?);
        command.args(["lab", "keep"]).process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(child.stdin.take().expect("it was asked for"))
    };
    let mut try_once = || -> std::io::Result<()> {
        if keeper.is_none() {
            *keeper = Some(start()?);
        }
        keeper.as_mut().map_or(Ok(()), told)
    };
    try_once().map_err(|error| Error::System("the keeper of the servers", error))
}

/// Removes the process group `pid`, which has ended, from the list.
pub(crate) fn forget(pid: u32) {
    let mut keeper = KEEPER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pipe) = keeper.as_mut() {
        // If the keeper has ended, it has nothing to forget.
        let _ = writeln!(pipe, "-{pid}");
    }
}

/// Kills a process group at once; a group that has ended does not matter.
pub(crate) fn end_group(pid: u32) {
    if let Some(group) = Pid::from_raw(pid as i32) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// `larder lab keep`: reads the groups to add and to remove, until the pipe is closed.
pub(crate) fn serve() {
    let mut groups: BTreeSet<u32> = BTreeSet::new();
    for line in stdin().lock().lines().map_while(Result::ok) {
        match line.strip_prefix('-') {
            Some(gone) => drop(gone.parse().map(|pid: u32| groups.remove(&pid))),
            None => groups.extend(line.parse::<u32>().ok().filter(|&pid| pid > 1)),
        }
    }
    groups.into_iter().for_each(end_group);
}
