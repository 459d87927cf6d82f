//! `--seccomp`: what the process may still ask of the system once it has started.
//!
//! ```text
//! main    … listeners, keys, -u, store, pid file ─▶ begin ─▶ threads ─▶ enter(Acceptor) ─▶ serve
//! others                                                     enter(their role) ─▶ serve
//! ```
//!
//! [`Confinement::begin`] has the kernel end the process at calls that no server makes (it starts no program), and
//! limits the files of the threads that follow ([`files`]). [`Confinement::enter`] then limits the calling thread to
//! the list of its role ([`calls`]), and every thread that it starts. A filter can be added and never taken away.
//!
//! | | on the lists | in neither | no server makes it |
//! |---|---|---|---|
//! | `on` | allowed | EPERM | the process ends (SIGSYS) |
//! | `log` | allowed | allowed, and logged by the kernel | the same |
//!
//! An error and not an end for a call that the lists lack: each call here has an error path already, and a cache that
//! goes on without a figure is worth more than one that is gone. The thread that writes the log runs before its file
//! access can be limited, and may open no file at all.

mod calls;
mod files;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use landlock::RulesetStatus;
use larder_eventloop::sysexits;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use crate::Failure;
use crate::config::Config;
use calls::{Call, FATAL, Files, allowed};

/// `--seccomp`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Seccomp {
    /// Every call is allowed.
    #[default]
    Off,
    /// The kernel logs calls that are on no list, and allows them.
    Log,
    /// Calls that are on no list fail, and files are limited.
    On,
}

impl Seccomp {
    /// The mode of a name.
    pub fn named(name: &str) -> Option<Seccomp> {
        [Seccomp::Off, Seccomp::Log, Seccomp::On].into_iter().find(|mode| mode.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Seccomp::Off => "off",
            Seccomp::Log => "log",
            Seccomp::On => "on",
        }
    }

    /// The action for a call that is on no list.
    fn unlisted(self) -> SeccompAction {
        match self {
            Seccomp::Off => SeccompAction::Allow,
            Seccomp::Log => SeccompAction::Log,
            Seccomp::On => SeccompAction::Errno(libc::EPERM as u32),
        }
    }
}

/// What a thread is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The main thread: it accepts connections, handles signals, and removes files at the end.
    Acceptor,
    /// A worker, and the thread that it starts for `--aclfile`.
    Worker,
    /// The thread that answers monitors.
    Http,
    /// The thread that has memory mapped ahead.
    Mapper,
    /// The thread that writes the log.
    Log,
}

impl Role {
    const ALL: [Role; 5] = [Role::Acceptor, Role::Worker, Role::Http, Role::Mapper, Role::Log];
}

/// The filters of a process, one for each role; none where threads are not confined.
#[derive(Clone, Default)]
pub struct Confinement {
    filters: Option<Arc<[BpfProgram]>>,
}

impl fmt::Debug for Confinement {
    /// Without the filters, which are thousands of instructions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Confinement").field("limits", &self.filters.is_some()).finish_non_exhaustive()
    }
}

impl Confinement {
    /// Confines the process as far as all its threads are alike, and makes the filters of each role. To be called by the
    /// main thread when all that needs more has been done, and before it starts the threads that serve.
    ///
    /// # Errors
    /// With `on`, when the kernel or the processor has no such filters. A kernel without Landlock is warned of.
    pub fn begin(config: &Config) -> Result<Confinement, Failure> {
        let mode = config.seccomp;
        if mode == Seccomp::Off {
            return Ok(Confinement::default());
        }
        let begun = Confinement::of(mode, Files::of(config)).and_then(|confinement| {
            first(mode)?.iter().try_for_each(|filter| seccompiler::apply_filter_all_threads(filter))?;
            Ok(confinement)
        });
        let confinement = match begun {
            Ok(confinement) => confinement,
            Err(error) if mode == Seccomp::Log => {
                tracing::warn!(%error, "--seccomp log: system calls are not looked at");
                return Ok(Confinement::default());
            }
            Err(error) => {
                return Err(format!("--seccomp on: system calls cannot be limited: {error}").into());
            }
        };
        if mode == Seccomp::Log {
            tracing::info!("--seccomp log: the kernel allows and logs system calls that are on no list");
            return Ok(confinement);
        }
        match files::limit(config) {
            Ok(RulesetStatus::FullyEnforced) => {
                tracing::info!("--seccomp on: system calls and files are limited");
            }
            Ok(RulesetStatus::PartiallyEnforced) => {
                tracing::info!(
                    "--seccomp on: system calls are limited, and files as far as this kernel's Landlock goes"
                );
            }
            Ok(RulesetStatus::NotEnforced) => {
                tracing::warn!(
                    "--seccomp on: system calls are limited, files are not: the kernel has no Landlock"
                );
            }
            Err(error) => {
                tracing::warn!(%error, "--seccomp on: system calls are limited, files are not");
            }
        }
        Ok(confinement)
    }

    /// The filters of a mode other than `off`.
    fn of(mode: Seccomp, files: Files) -> Result<Confinement, seccompiler::Error> {
        let filter = |role| {
            let rules = rules(&allowed(role, files, std::process::id()))?;
            program(rules, mode.unlisted(), SeccompAction::Allow)
        };
        let filters = Role::ALL.into_iter().map(filter).collect::<Result<_, BackendError>>()?;
        Ok(Confinement { filters: Some(filters) })
    }

    /// Limits the calling thread, and threads that it starts, to the calls of its role. Ends the process if the kernel refuses,
    /// although it took such filters when the process began.
    pub fn enter(&self, role: Role) {
        let Some(filters) = &self.filters else { return };
        if let Err(error) = seccompiler::apply_filter(&filters[role as usize]) {
            crate::complain(&format!("--seccomp: a thread cannot be limited: {error}"));
            std::process::exit(sysexits::SYSTEM.into());
        }
    }
}

/// The filters of all threads, whatever their role.
fn first(mode: Seccomp) -> Result<Vec<BpfProgram>, BackendError> {
    let of = |calls: &[Call], action| program(rules(calls)?, SeccompAction::Allow, action);
    let fatal: Vec<Call> = FATAL.iter().map(|number| Call::any(*number)).collect();
    match mode {
        Seccomp::Off => Ok(Vec::new()),
        Seccomp::Log => Ok(vec![of(&fatal, SeccompAction::Log)?]),
        Seccomp::On => {
            // The flags of clone3(2) lie in memory, where no filter sees them. The C library starts threads by clone(2) where
            // this is missing, and there a filter sees that it is a thread and no process.
            let clone3 = of(&[Call::any(libc::SYS_clone3)], SeccompAction::Errno(libc::ENOSYS as u32))?;
            Ok(vec![of(&fatal, SeccompAction::KillProcess)?, clone3])
        }
    }
}

/// Turns calls into the crate's rules. Without rules of its own a call matches whatever its arguments are.
fn rules(calls: &[Call]) -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in calls {
        let of_call = rules.entry(call.number).or_default();
        if let Some(bits) = call.bits {
            let is = SeccompCmpOp::MaskedEq(bits.mask.into());
            let condition =
                SeccompCondition::new(bits.argument, SeccompCmpArgLen::Dword, is, bits.value.into())?;
            of_call.push(SeccompRule::new(vec![condition])?);
        }
    }
    // A list may name a call with conditions and another list name it without.
    for call in calls.iter().filter(|call| call.bits.is_none()) {
        rules.insert(call.number, Vec::new());
    }
    Ok(rules)
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    others: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, BackendError> {
    let processor = TargetArch::try_from(std::env::consts::ARCH)?;
    BpfProgram::try_from(SeccompFilter::new(rules, others, listed, processor)?)
}

#[cfg(test)]
mod tests;
