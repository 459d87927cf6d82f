//! A client: how it is made and freed, which process it belongs to, and its servers.

use super::Fallible;
use super::call::{guard, plainly};
use super::pointers::{array, buffer, bytes, copied, handle, place, room, text};
use crate::calls;
use crate::config::{self, Texts};
use crate::failure::{Failure, wrong};
use crate::lives::{self, Inside, Life};
use crate::secure::Files;
use crate::shapes::{self, Bytes, Status};
use larder_client::OpenSocket;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fs::{File, Metadata};
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// `larder_client`.
pub struct Client {
    /// The life of this process, or its parent's. Made by [`Box::into_raw`], and freed only by the process that made it.
    life: AtomicPtr<Life>,
    names: Vec<CString>,
}

impl Client {
    /// The client of this process, made now if the process was forked since.
    pub fn life(&self) -> Fallible<&Life> {
        let parents = self.life.load(Ordering::Acquire);
        // SAFETY: a life is freed with its handle, not earlier.
        let life = unsafe { &*parents };
        if life.is_ours() {
            return Ok(life);
        }
        let ours = Box::into_raw(Box::new(life.anew()?));
        match self.life.compare_exchange(parents, ours, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => {
                close_sockets(life);
                // SAFETY: as above.
                Ok(unsafe { &*ours })
            }
            Err(others) => {
                // SAFETY: it was made above, and no other code has it.
                drop(unsafe { Box::from_raw(ours) });
                // SAFETY: as above.
                Ok(unsafe { &*others })
            }
        }
    }
}

/// Closes this process's copies of its parent's sockets, without shutting them down: the parent goes on.
fn close_sockets(parents: &Life) {
    parents.client.sockets().for_each(close_socket);
}

/// Closes this process's copy of a socket that its parent made.
pub fn close_socket(socket: OpenSocket) {
    // SAFETY: nothing else closes it: its owner is the parent's, and is never freed here. A child may have closed and opened
    // files, so it is checked whether the number still means the socket; if not, the number is left alone.
    let file = unsafe { File::from_raw_fd(socket.number) };
    let is_it = |known: Metadata| known.file_type().is_socket() && known.ino() == socket.inode;
    if !file.metadata().is_ok_and(is_it) {
        let _ = file.into_raw_fd();
    }
}

unsafe extern "C" {
    /// From the C library: registers functions that are called around a fork.
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

extern "C" fn in_child() {
    lives::was_forked();
}

/// Counts forks from now on.
pub fn count_forks() -> Fallible<()> {
    static COUNTED: AtomicBool = AtomicBool::new(false);
    if COUNTED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    // SAFETY: the function that is called in the child adds to a number, which any thread may do at any time.
    if unsafe { pthread_atfork(None, None, Some(in_child)) } == 0 {
        return Ok(());
    }
    COUNTED.store(false, Ordering::Relaxed);
    Err(Failure::Bug("no memory to count forks".to_owned()))
}

/// Begins a call with the client of this process.
///
/// # Safety
/// 1, as long as it is used.
pub unsafe fn enter<'a>(client: *const Client) -> Fallible<Inside<'a>> {
    // SAFETY: the caller's.
    Ok(unsafe { handle(client) }?.life()?.enter())
}

/// Reads a configuration, with what its pointers lead to.
///
/// # Safety
/// 2 and 3.
pub unsafe fn configured(config: *const shapes::Config) -> Fallible<larder_client::Builder> {
    // SAFETY: 2, 3.
    unsafe {
        let config = copied(config)?;
        let addresses = array(config.servers, config.servers_count);
        let names = array(config.names, addresses.len());
        let weights = array(config.weights, addresses.len());
        let mut servers = Vec::new();
        for (at, &address) in addresses.iter().enumerate() {
            let Some(address) = text(address)? else { return wrong("a server is NULL") };
            let name = names.get(at).map_or(Ok(None), |&name| text(name))?;
            servers.push((address, name, weights.get(at).copied()));
        }
        let texts = Texts {
            servers,
            preset: text(config.preset)?,
            user: text(config.user)?,
            password: text(config.password)?,
            key_prefix: bytes(config.key_prefix)?.to_vec(),
            tls: Files {
                ca: text(config.ca_file)?,
                cert: text(config.cert_file)?,
                key: text(config.key_file)?,
                name: text(config.server_name)?,
            },
        };
        config::builder(&config, texts)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_open(
    config: *const shapes::Config,
    client: *mut *mut Client,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 2, 3, 4.
    unsafe {
        guard(error, || {
            let Some(room) = place(client) else { return wrong("there is no room for the client") };
            room.write(ptr::null_mut());
            count_forks()?;
            let made = configured(config)?.build()?;
            let names =
                made.servers().into_iter().map(|name| CString::new(name).unwrap_or_default()).collect();
            let life = AtomicPtr::new(Box::into_raw(Box::new(Life::new(made))));
            room.write(Box::into_raw(Box::new(Client { life, names })));
            Ok(Status::OK)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_shutdown(client: *mut Client) {
    // SAFETY: 1.
    plainly((), || unsafe {
        handle(client)?.life()?.shut_down();
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_free(client: *mut Client) {
    plainly((), || {
        // SAFETY: 1.
        let pointer = unsafe { handle(client) }?.life.load(Ordering::Acquire);
        // SAFETY: a life is freed with its handle, not earlier.
        let life = unsafe { &*pointer };
        if life.is_ours() {
            life.shut_down();
            life.wait();
            // SAFETY: no call is inside, and none enters (1).
            drop(unsafe { Box::from_raw(pointer) });
        } else {
            // Threads of the parent may hold its locks: it is not freed.
            close_sockets(life);
        }
        // SAFETY: 1.
        drop(unsafe { Box::from_raw(client) });
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_server_count(client: *const Client) -> usize {
    // SAFETY: 1.
    plainly(0, || Ok(unsafe { handle(client) }?.names.len()))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_server_name(client: *const Client, server: usize) -> *const c_char {
    plainly(ptr::null(), || {
        // SAFETY: 1.
        let client = unsafe { handle(client) }?;
        Ok(client.names.get(server).map_or(ptr::null(), |name| name.as_ptr()))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_server_of(client: *const Client, key: Bytes) -> usize {
    // SAFETY: 1, 2.
    plainly(0, || unsafe { Ok(enter(client)?.client().index_of(bytes(key)?)) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_server_version(
    client: *mut Client,
    server: usize,
    buf: *mut c_char,
    cap: usize,
    error: *mut shapes::Error,
) -> Status {
    // SAFETY: 1, 4.
    unsafe {
        guard(error, || {
            if server >= handle(client)?.names.len() {
                return wrong("there are fewer servers");
            }
            let room = buffer(buf.cast(), cap)?;
            let version = enter(client)?.client().version(server)?;
            let Some((end, room)) = room.split_last_mut() else { return Ok(Status::TRUNCATED) };
            let copied = calls::copy(version.as_bytes(), room);
            room.get_mut(copied.bytes).unwrap_or(end).write(0);
            Ok(if copied.is_whole { Status::OK } else { Status::TRUNCATED })
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_flush_all(client: *mut Client, error: *mut shapes::Error) -> Status {
    // SAFETY: 1, 4.
    unsafe {
        guard(error, || {
            enter(client)?.client().flush_all()?;
            Ok(Status::OK)
        })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn larder_read_counters(client: *const Client, counters: *mut shapes::Counters) -> Status {
    // SAFETY: 1, 4.
    unsafe {
        guard(ptr::null_mut(), || {
            let room = room(counters)?;
            let servers = handle(client)?.names.len() as u32;
            let counted = enter(client)?.client().counters();
            room.put(&shapes::Counters {
                size: 0,
                servers,
                requests: counted.requests,
                writes: counted.writes,
                reads: counted.reads,
                overdue: counted.overdue,
                dials: counted.dials,
                unreported: counted.unreported,
            });
            Ok(Status::OK)
        })
    }
}

#[unsafe(no_mangle)]
extern "C" fn larder_status_text(status: Status) -> *const c_char {
    status.text().as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn larder_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no 0 inside"),
        };
    VERSION.as_ptr()
}
