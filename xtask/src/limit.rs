//! A stage that takes too long is ended, and what it was doing is told: the others still run.

use crate::run::Outcome;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How long to wait for a stage whose programs were ended, before what it has started since is ended too.
const AGAIN: Duration = Duration::from_secs(1);

/// Runs a stage; when `limit` has passed, all programs below this one are told and ended, until it returns.
pub fn within(limit: Duration, stage: fn() -> Outcome) -> Outcome {
    let (done, over) = mpsc::channel::<()>();
    let watcher = std::thread::spawn(move || {
        let ended = || !matches!(over.recv_timeout(AGAIN), Err(RecvTimeoutError::Timeout));
        if !matches!(over.recv_timeout(limit), Err(RecvTimeoutError::Timeout)) {
            return None;
        }
        let running = below(std::process::id());
        loop {
            let ids: Vec<String> = below(std::process::id()).iter().map(|(id, _)| id.to_string()).collect();
            if !ids.is_empty() {
                let _ = Command::new("kill").arg("-KILL").args(ids).status();
            }
            if ended() {
                return Some(running);
            }
        }
    });
    let outcome = stage();
    drop(done);
    let Some(running) = watcher.join().expect("the watcher does not panic") else { return outcome };
    let lines: String = running.iter().map(|(id, line)| format!("\n  {id} {line}")).collect();
    let said = outcome.err().unwrap_or_default();
    Err(format!("ended after {} minutes, in which these still ran:{lines}\n{said}", limit.as_secs() / 60))
}

/// The processes below one, with their command lines: parents before children.
fn below(ancestor: u32) -> Vec<(u32, String)> {
    let mut parents: Vec<(u32, u32)> = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name, in parentheses, may hold anything; state and parent come after it.
        let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        parents.extend(parent.map(|parent| (id, parent)));
    }
    let mut found = vec![ancestor];
    let mut at = 0;
    while let Some(&parent) = found.get(at) {
        found.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(id, _)| *id));
        at += 1;
    }
    let line = |id: u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").chars().take(200).collect()
    };
    found.into_iter().skip(1).map(|id| (id, line(id))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{command, run};

    #[test]
    fn a_stage_that_is_too_long_is_ended_with_all_it_started() {
        let hangs = || {
            let _ = run(command("sh", &["-c", "sleep 4712 & wait"]));
            run(command("sleep", &["4713"]))
        };
        let error = within(Duration::from_millis(300), hangs).unwrap_err();
        assert!(error.contains("sleep 4712"), "{error}");
        assert!(error.contains("sleep 4713 failed"), "{error}");
        let left: Vec<_> =
            below(std::process::id()).into_iter().filter(|(_, line)| line.contains("471")).collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn a_stage_in_time_is_as_it_says() {
        assert_eq!(within(Duration::from_secs(60), || Ok(())), Ok(()));
        assert_eq!(within(Duration::from_secs(60), || Err("no".to_owned())), Err("no".to_owned()));
    }
}
