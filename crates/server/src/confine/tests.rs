//! What threads may do in each mode, asked of the kernel, and what ends the process.

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::thread;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

/// Set for the program that is to end.
const CHILD: &str = "LARDER_CONFINED_CHILD";

/// Runs `work` in a thread that is confined as one of this role: filters are of a thread, and other tests go on.
fn confined<T: Send>(mode: Seccomp, role: Role, files: Files, work: impl FnOnce() -> T + Send) -> T {
    let confinement = Confinement::of(mode, files).expect("this processor has filters");
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            confinement.enter(role);
            work()
        });
        thread.join().expect("it does not panic")
    })
}

fn is_refused<T>(result: io::Result<T>) -> bool {
    // Others refuse by EACCES.
    result.is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
}

/// Whether reading, writing and removing a file, a socket of each kind and a thread are refused.
fn refused() -> [bool; 6] {
    let path = std::env::temp_dir().join(format!("larder-confined-{:?}", thread::current().id()));
    [
        is_refused(File::open("/proc/self/status")),
        is_refused(File::create(&path)),
        is_refused(std::fs::remove_file(path)),
        is_refused(TcpListener::bind("127.0.0.1:0")),
        is_refused(UnixStream::pair()),
        is_refused(thread::Builder::new().spawn(|| {}).map(thread::JoinHandle::join)),
    ]
}

#[test]
fn each_thread_may_do_what_it_is_for_and_no_more() {
    let (none, saves) = (Files::default(), Files { saves: true, removes: false });
    let removes = Files { saves: false, removes: true };
    for (role, files, expected) in [
        (Role::Worker, none, [false, true, true, true, true, true]),
        (Role::Worker, removes, [false, true, true, true, true, true]),
        (Role::Worker, saves, [false, false, false, true, true, false]),
        (Role::Acceptor, none, [false, true, true, true, true, true]),
        (Role::Acceptor, saves, [false, true, true, true, true, true]),
        (Role::Acceptor, removes, [false, true, false, true, true, true]),
        (Role::Http, saves, [false, true, true, true, true, true]),
        (Role::Mapper, saves, [true; 6]),
        (Role::Log, saves, [true; 6]),
    ] {
        assert_eq!(confined(Seccomp::On, role, files, refused), expected, "{role:?}, {files:?}");
        assert_eq!(confined(Seccomp::Log, role, files, refused), [false; 6], "{role:?}, {files:?}");
    }
}

#[test]
fn memory_time_and_locks_are_every_threads() {
    for role in Role::ALL {
        let bytes = confined(Seccomp::On, role, Files::default(), || {
            // Of the heap, a mapping of its own, and one that is moved.
            let mut blocks: Vec<Vec<u8>> = [100, 10_000, 1 << 20].map(|bytes| vec![1; bytes]).into();
            blocks[2].resize(5 << 20, 1);
            thread::sleep(std::time::Duration::from_millis(1));
            let (send, receive) = std::sync::mpsc::channel();
            send.send(blocks.iter().map(Vec::len).sum::<usize>()).expect("a receiver");
            receive.recv().expect("a sender")
        });
        assert_eq!(bytes, 100 + 10_000 + (5 << 20), "{role:?}");
    }
}

#[test]
fn no_list_has_a_call_that_ends_the_process() {
    let all = Files { saves: true, removes: true };
    for role in Role::ALL {
        let listed = allowed(role, all, 1);
        let both = listed.iter().find(|call| FATAL.contains(&call.number));
        assert!(both.is_none(), "{role:?}: {both:?}");
    }
}

#[test]
fn a_thread_for_files_may_be_started_and_neither_a_process_nor_one_in_other_namespaces() {
    let listed = allowed(Role::Worker, Files { saves: true, removes: false }, 1);
    let clone = listed.iter().find(|call| call.number == libc::SYS_clone).and_then(|call| call.bits);
    let clone = clone.expect("flags are looked at");
    let may = |flags: libc::c_int| flags as u32 & clone.mask == clone.value;
    // As the C library starts one.
    let thread = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;
    assert!(may(thread));
    let others = [libc::SIGCHLD, libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD];
    let views = [libc::CLONE_NEWNS, libc::CLONE_NEWNET, libc::CLONE_NEWUSER].map(|view| thread | view);
    assert!(!others.into_iter().chain(views).any(may));
}

#[test]
fn a_process_that_starts_a_program_ends_and_has_threads_until_then() {
    if std::env::var_os(CHILD).is_some() {
        let core = Rlimit { current: Some(0), maximum: getrlimit(Resource::Core).maximum };
        setrlimit(Resource::Core, core).expect("a lower limit");
        for filter in first(Seccomp::On).expect("this processor has filters") {
            seccompiler::apply_filter_all_threads(&filter).expect("the kernel has filters");
        }
        // By clone(2), since clone3(2) is missing.
        assert_eq!(thread::spawn(|| 7).join().expect("it does not panic"), 7);
        let error = Command::new("/bin/true").exec();
        panic!("the process goes on: {error}");
    }
    let name = "confine::tests::a_process_that_starts_a_program_ends_and_has_threads_until_then";
    let test = std::env::current_exe().expect("a running program has a path");
    let output = Command::new(test).args(["--exact", name]).env(CHILD, "1").output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{}: {said}", output.status);
}

#[test]
fn modes_are_known_by_their_names() {
    for mode in [Seccomp::Off, Seccomp::Log, Seccomp::On] {
        assert_eq!(Seccomp::named(mode.name()), Some(mode));
    }
    assert_eq!(Seccomp::named("yes"), None);
}
