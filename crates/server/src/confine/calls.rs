//! The system calls that each kind of thread makes once the server has started: read from what the thread does, by the
//! crates that make them (rustix, the standard library, the C library below both).
//!
//! ```text
//! every thread    memory, locks, time, signals, its own end
//! + sockets       epoll, receiving and sending                       acceptor, worker, http
//! + reading       files that are opened for reading, folders         acceptor, worker, http
//! + of the role   accept4 …; with --aclfile: writing, and a thread   see `allowed`
//! ```
//!
//! No list has a call that makes a socket or a process, connects, changes users, or maps memory that can be executed.
//! A list has what this processor's C library may call in place of another (`unlink`, `unlinkat`).

use libc::{c_int, c_long};

use super::Role;
use crate::config::Config;

/// A system call, and what one of its arguments has to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) number: c_long,
    /// None: any arguments.
    pub(super) bits: Option<Bits>,
}

/// Bits of an argument, and what they have to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bits {
    /// Which argument, counted from 0.
    pub(super) argument: u8,
    pub(super) mask: u32,
    pub(super) value: u32,
}

impl Call {
    /// The call with any arguments.
    pub(super) const fn any(number: c_long) -> Call {
        Call { number, bits: None }
    }

    /// The call if an argument is this number.
    const fn with(number: c_long, argument: u8, value: c_int) -> Call {
        Call { number, bits: Some(Bits { argument, mask: u32::MAX, value: value as u32 }) }
    }

    /// The call if an argument has none of these bits.
    const fn without(number: c_long, argument: u8, bits: c_int) -> Call {
        Call { number, bits: Some(Bits { argument, mask: bits as u32, value: 0 }) }
    }

    /// The call if an argument has all bits of `all` and none of `none`.
    const fn having(number: c_long, argument: u8, all: c_int, none: c_int) -> Call {
        Call { number, bits: Some(Bits { argument, mask: (all | none) as u32, value: all as u32 }) }
    }
}

/// What options have the server do with files while it serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Files {
    /// Whether ACL SAVE writes a file, in a thread of its own (`--aclfile`).
    pub(super) saves: bool,
    /// Whether a file is removed at the end (`-P`, `-s`).
    pub(super) removes: bool,
}

impl Files {
    pub(super) fn of(config: &Config) -> Files {
        Files {
            saves: config.rules_file.is_some(),
            removes: config.pid_file.is_some() || config.unix_socket.is_some(),
        }
    }
}

/// What a thread of this role may call, in the process of this number.
pub(super) fn allowed(role: Role, files: Files, process: u32) -> Vec<Call> {
    let mut calls = EVERY_THREAD.to_vec();
    // A panic ends the process by a signal to its own thread.
    calls.push(Call::with(libc::SYS_tgkill, 0, process as c_int));
    match role {
        Role::Acceptor => {
            calls.extend([SOCKETS, READING, ACCEPTING].concat());
            if files.removes {
                calls.extend(REMOVING);
            }
        }
        Role::Worker => {
            calls.extend([SOCKETS, READING].concat());
            if files.saves {
                calls.extend([REMOVING, SAVING, THREAD].concat());
            }
        }
        Role::Http => calls.extend([SOCKETS, READING, ACCEPTING].concat()),
        Role::Mapper | Role::Log => {}
    }
    calls
}

/// Memory, locks, time, signals, and the end of a thread and of the process. `free` may look at
/// `/proc/sys/vm/overcommit_memory` once in a process, and does without it where opening fails.
const EVERY_THREAD: &[Call] = &[
    Call::any(libc::SYS_brk),
    Call::any(libc::SYS_madvise),
    Call::without(libc::SYS_mmap, 2, libc::PROT_EXEC),
    // Heaps of threads grow by it.
    Call::without(libc::SYS_mprotect, 2, libc::PROT_EXEC),
    Call::any(libc::SYS_mremap),
    Call::any(libc::SYS_munmap),
    Call::any(libc::SYS_futex),
    Call::any(libc::SYS_sched_yield),
    // The allocator asks how many processors there are, when a thread first allocates.
    Call::any(libc::SYS_sched_getaffinity),
    Call::any(libc::SYS_getcpu),
    Call::any(libc::SYS_clock_gettime),
    Call::any(libc::SYS_clock_nanosleep),
    Call::any(libc::SYS_gettimeofday),
    Call::any(libc::SYS_nanosleep),
    // Seeds of hash tables.
    Call::any(libc::SYS_getrandom),
    Call::any(libc::SYS_getpid),
    Call::any(libc::SYS_gettid),
    // Any thread may be the one that a signal interrupts: it sends a byte to the main thread.
    Call::any(libc::SYS_sendto),
    Call::any(libc::SYS_rt_sigaction),
    Call::any(libc::SYS_rt_sigprocmask),
    Call::any(libc::SYS_rt_sigreturn),
    Call::any(libc::SYS_sigaltstack),
    Call::any(libc::SYS_restart_syscall),
    // The log, wakers, and what a panic prints.
    Call::any(libc::SYS_write),
    Call::any(libc::SYS_writev),
    Call::any(libc::SYS_close),
    // Debug builds look whether a descriptor is open before they close it.
    Call::with(libc::SYS_fcntl, 1, libc::F_GETFD),
    Call::any(libc::SYS_exit),
    Call::any(libc::SYS_exit_group),
];

/// FIONREAD: bytes that have come.
const BYTES_WAITING: c_int = 0x541B;
/// FIONBIO: no call waits.
const NONBLOCKING: c_int = 0x5421;

/// Connections, and the wait for them.
const SOCKETS: &[Call] = &[
    Call::any(libc::SYS_epoll_ctl),
    Call::any(libc::SYS_epoll_pwait),
    // In place of epoll_pwait where a wait is very long.
    Call::any(libc::SYS_epoll_pwait2),
    Call::any(libc::SYS_recvfrom),
    Call::any(libc::SYS_read),
    Call::any(libc::SYS_readv),
    Call::any(libc::SYS_sendmsg),
    #[cfg(target_arch = "x86_64")]
    Call::any(libc::SYS_poll),
    Call::any(libc::SYS_ppoll),
    Call::with(libc::SYS_ioctl, 1, BYTES_WAITING),
    Call::any(libc::SYS_getpeername),
    Call::any(libc::SYS_getsockname),
    Call::any(libc::SYS_shutdown),
];

/// Bits of open(2) of a file that is written, made or cut.
const WRITES: c_int = libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC;

/// Figures of /proc, certificates, files of users. Limits of descriptors, which `CONFIG SET maxclients` raises.
const READING: &[Call] = &[
    Call::without(libc::SYS_openat, 2, WRITES),
    Call::any(libc::SYS_read),
    Call::any(libc::SYS_lseek),
    Call::any(libc::SYS_fstat),
    Call::any(libc::SYS_newfstatat),
    Call::any(libc::SYS_statx),
    Call::any(libc::SYS_getdents64),
    Call::with(libc::SYS_prlimit64, 0, 0),
];

/// New connections.
const ACCEPTING: &[Call] = &[
    Call::any(libc::SYS_accept4),
    Call::with(libc::SYS_ioctl, 1, NONBLOCKING),
    Call::with(libc::SYS_setsockopt, 1, libc::IPPROTO_TCP),
];

/// The pid file and the Unix socket, at the end; what an earlier ACL SAVE has left.
const REMOVING: &[Call] = &[
    #[cfg(target_arch = "x86_64")]
    Call::any(libc::SYS_unlink),
    Call::any(libc::SYS_unlinkat),
];

/// ACL SAVE: a file is written beside the other and takes its place.
const SAVING: &[Call] = &[
    Call::any(libc::SYS_openat),
    Call::any(libc::SYS_fchmod),
    Call::any(libc::SYS_fsync),
    #[cfg(target_arch = "x86_64")]
    Call::any(libc::SYS_rename),
    #[cfg(not(target_arch = "riscv64"))]
    Call::any(libc::SYS_renameat),
    Call::any(libc::SYS_renameat2),
];

/// Flags of clone(2) by which a thread sees other mounts, networks or the like than its process: root may set some of them.
const NAMESPACES: c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

/// The thread for ACL LOAD and ACL SAVE.
const THREAD: &[Call] = &[
    Call::having(libc::SYS_clone, 0, libc::CLONE_THREAD, NAMESPACES),
    // With `on` it is missing for every thread: see `first`.
    Call::any(libc::SYS_clone3),
    Call::any(libc::SYS_set_robust_list),
    Call::any(libc::SYS_rseq),
    Call::with(libc::SYS_prctl, 0, libc::PR_SET_NAME),
];

/// Calls that the process ends at: no server makes them, and much can be done with them.
pub(super) const FATAL: &[c_long] = &[
    // Other programs.
    libc::SYS_execve,
    libc::SYS_execveat,
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    // The kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    // What others see of the file system.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_open_by_handle_at,
    // Keys of the kernel's.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Means of exploits. Calls of io_uring pass by filters.
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];
